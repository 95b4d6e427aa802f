"""Commands that mind what else is in the environment of a text, and on its machine."""

import pytest
from pages import diagnose_score


def _commands(text):
    return diagnose_score.answer(text)["causes"][0]["commands"]


@pytest.mark.parametrize(
    ("other", "broken"),
    [
        ("torch 2.7.1\n", True),  # pins cuDNN 9.5.1
        ("torch 2.3.1\n", False),  # pins 8.9.2, and takes a later 8.9
        ("", False),
    ],
)
def test_a_framework_whose_pins_break_another_one_gets_an_environment_of_its_own(other, broken):
    """https://github.com/tensorflow/tensorflow/issues/63362"""
    text = (
        "Cannot dlopen some GPU libraries.\ntensorflow 2.17.0\nRTX 4080, driver version: 560.35.03\n" + other
    )
    commands = _commands(text)
    pip = next(row for row in commands if row["where"] == "pip")
    assert ("venv" in pip["text"]) is broken
    ask = [row["text"] for row in commands if row["where"] == "rtbuild" and "resolve" in row["text"]]
    told = "rtbuild resolve tensorflow torch==2.7.1 --gpu 'RTX 4080' --driver 560.35.03"
    assert ask == [told] * broken


def test_an_exact_pin_below_what_another_framework_was_compiled_with_breaks_it():
    text = "Cannot dlopen some GPU libraries.\ntensorflow 2.18.0\ntorch 2.7.1\n"
    notes = [row["note"] for row in _commands(text) if row["where"] == "pip"]
    assert any("PyTorch 2.7.1" in note for note in notes)


DRIVER = (
    "RuntimeError: The NVIDIA driver on your system is too old (found version 12080). Please update your GPU "
    "driver\ntorch 2.11.0\ntorchaudio 2.11.0\nvllm 0.21.0\nNVIDIA L40S, Driver Version: 570.86.10\n"
)


def test_what_pins_the_framework_is_asked_for_before_a_driver_is_installed():
    """https://github.com/modelscope/FunASR/issues/2973"""
    first, *others = [row["text"] for row in _commands(DRIVER)]
    assert first.startswith("rtbuild resolve vllm torchaudio --gpu ")
    assert first.endswith("--driver 570.86.10")
    assert any("nvidia-driver-580" in text for text in others)


def test_who_cannot_change_the_driver_is_told_of_none():
    row = diagnose_score.answer(DRIVER + "(a rented server, I can't change the driver)\n")["causes"][0]
    assert not any("nvidia-driver" in command["text"] for command in row["commands"])
    assert "rtbuild resolve" in row["commands"][0]["text"]
    assert "With the driver that is here" in row["remedy"]
    said = DRIVER + "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    assert any("nvidia-driver" in command["text"] for command in _commands(said))


MIXED = (
    "ImportError: site-packages/torch/lib/../../nvidia/cusparse/lib/libcusparse.so.12: undefined symbol: "
    "__nvJitLinkComplete_12_4, version libnvJitLink.so.12\ntorch 2.5.1\n"
)


@pytest.mark.parametrize(
    ("said", "command", "note"),
    [
        (
            "$ echo $LD_LIBRARY_PATH\n/usr/local/cuda-12.1/lib64:/opt/ofed/lib\n",
            "export LD_LIBRARY_PATH=/opt/ofed/lib",
            "without /usr/local/cuda-12.1/lib64",
        ),
        (
            "LD_LIBRARY_PATH=/usr/local/cuda-12.1/lib64\n",
            "unset LD_LIBRARY_PATH",
            "/usr/local/cuda-12.1/lib64",
        ),
        ('$ echo "${LD_LIBRARY_PATH}"\n\n', "unset LD_LIBRARY_PATH", "start the program anew"),
    ],
)
def test_of_the_loaders_path_the_toolkits_folders_go_and_the_others_stay(said, command, note):
    """https://github.com/pytorch/pytorch/issues/134929"""
    first = _commands(MIXED + said)[0]
    assert first["text"] == command
    assert note in first["note"]


SYMBOL = (
    "ImportError: site-packages/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so: undefined symbol: "
    "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE\n"
)


def test_what_is_compiled_anew_is_the_release_that_is_here_with_its_nvcc():
    """https://github.com/Dao-AILab/flash-attention/issues/1783"""
    text = SYMBOL + "flash-attn 2.8.2\ntorch 2.6.0+cu124\n"
    text += '$ python -c "import torch; print(torch._C._GLIBCXX_USE_CXX11_ABI)"\nFalse\n'
    row = diagnose_score.answer(text)["causes"][0]
    assert row["because"][0].endswith("the PyTorch here has the other one: it prints False")
    assert row["commands"][0]["text"].endswith("--no-build-isolation flash-attn==2.8.2")
    assert "nvcc of CUDA 12.4" in row["commands"][0]["note"]
    unknown = _commands(SYMBOL)[0]
    assert unknown["text"].endswith(" flash-attn")


REQUIREMENT = "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update\n"


def test_an_image_that_demands_more_than_it_needs_is_no_fault_of_the_driver():
    """https://github.com/NVIDIA/nvidia-container-toolkit/issues/152"""
    row = diagnose_score.answer(REQUIREMENT + "Driver Version: 550.144.03\nNVIDIA GeForce RTX 3090\n")[
        "causes"
    ][0]
    assert row["title"].startswith("The image demands")
    assert "image demands CUDA 12.8 or newer, and driver 550.144.03 came with CUDA 12.4" in row["because"][0]
    assert "NVIDIA_DISABLE_REQUIRE=1" in row["commands"][0]["text"]
    assert "nvidia-driver-570" in row["commands"][1]["text"]
    assert row["verdict"] != "host"
    assert row["remedy"].startswith("No new driver is needed")
    older = diagnose_score.answer(REQUIREMENT.replace("12.8", "13.0") + "Driver Version: 550.144.03\n")[
        "causes"
    ][0]
    assert older["title"] == "The driver is too old for this CUDA"
    assert "came with CUDA 12.4" in older["because"][0]
    assert "serves all" not in older["because"][0]


OLDER = (
    "tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load dynamic library "
    "'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file\n"
    "Cannot dlopen some GPU libraries.\ntensorflow 2.9.1\ntorch 2.3.1\nnvidia-cudnn-cu12 8.9.2.26\n"
    "Tesla V100-SXM2-16GB, driver version: 535.104.05\n"
)


def test_a_framework_of_an_older_cuda_is_not_mended_by_another_pytorch():
    """TensorFlow 2.9 takes CUDA 11 from outside of pip; PyTorch's wheels do not give it theirs."""
    commands = [row["text"] for row in _commands(OLDER)]
    assert commands[0] == "rtbuild up tensorflow==2.9.1"
    assert commands[1].startswith("rtbuild resolve tensorflow torch==2.3.1 --gpu ")
    assert not any("force-reinstall" in text for text in commands)
