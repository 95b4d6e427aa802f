"""What a text says of the machine bounds the commands: cards, JetPack, distribution, cluster."""

import pytest
from pages import diagnose_score

from builder.verify.cudnn_verify.read.reading import read_text_given
from builder.verify.cudnn_verify.read.text_facts import TextFacts


def read(text):
    return diagnose_score.answer(text)


def facts_of(text):
    return TextFacts(read_text_given(text).lines)


def commands(found):
    return [row["text"] for cause in found["causes"] for row in cause["commands"]]


def test_the_driver_in_wsl_is_that_of_windows_and_not_the_number_of_nvidia_smi():
    header = "| NVIDIA-SMI {}    Driver Version: {}    CUDA Version: 12.4 |"
    within = facts_of(header.format("550.76.01", "552.22"))
    assert (within.driver, "wsl" in within.places) == ("552.22", True)
    linux = facts_of(header.format("550.67", "550.67"))
    assert (linux.driver, "wsl" in linux.places) == ("550.67", False)
    assert facts_of("nvidia-smi 550.67\ntorch 2.6.0").driver == "550.67"


LEGACY = (
    "NVRM: The NVIDIA GeForce GTX 1080 Ti GPU installed in this system is\n"
    "NVRM:  supported through the NVIDIA 580.xx Legacy drivers. Please\n"
)


def test_no_driver_is_installed_for_one_card_that_does_not_serve_the_other():
    """The open modules alone serve Blackwell, the proprietary ones alone Pascal; a machine loads one."""
    alone = commands(read(LEGACY))
    assert any(text.endswith("nvidia-driver-580") for text in alone)
    both = read("0  NVIDIA GeForce RTX 5090  Off\n" + LEGACY)
    assert not any("nvidia-driver" in text for text in commands(both))
    assert "No one driver serves both cards" in str(both["causes"][0])


@pytest.mark.parametrize(
    ("l4t", "index"), [("R36", "https://pypi.jetson-ai-lab.io/jp6/cu126"), ("R35", None)]
)
def test_a_jetson_gets_the_index_of_its_own_jetpack(l4t, index):
    text = f"# {l4t} (release), REVISION: 4.3, BOARD: generic\naarch64\ntorch 2.10.0+cpu\n2.10.0+cpu None\n"
    text += "AssertionError: Torch not compiled with CUDA enabled\n"
    found = commands(read(text))
    own = [one for one in found if "jetson-ai-lab" in one]
    assert bool(own) is (index is not None)
    assert all(one.startswith("pip uninstall -y torch && ") and one.endswith(index) for one in own)


OLD = (
    "driver 535.183.06\ntorch==2.11.0\n"
    "RuntimeError: The NVIDIA driver on your system is too old (found version 12020)\n"
)


def test_nobody_installs_a_driver_on_a_cluster():
    assert any("nvidia-driver" in text for text in commands(read(OLD)))
    found = commands(read(OLD + "#SBATCH --gres=gpu:1\n"))
    assert found
    assert not any("nvidia-driver" in text for text in found)


def test_enterprise_linux_has_no_akmod_of_fedoras():
    missing = "{}\nnvidia-smi: command not found\nRuntimeError: Found no NVIDIA driver on your system\n"
    assert any("akmod" in text for text in commands(read(missing.format("Fedora 43"))))
    assert not any("akmod" in text for text in commands(read(missing.format("Rocky Linux 9.4"))))


def test_wheels_that_were_fetched_on_another_system_lack_what_markers_left_out():
    text = (
        "(MacBook) $ pip download -d wheels --platform manylinux_2_28_x86_64 --only-binary=:all: torch\n"
        "$ pip install --no-index --find-links wheels torch\n"
        "ERROR: Could not find a version that satisfies the requirement cuda-bindings<14,>=13.0.3; "
        'platform_system == "Linux" (from torch) (from versions: none)\n'
    )
    said = str(read(text)["causes"][0])
    assert "pip evaluates markers" in said
    assert "behind-a-proxy" in said


def test_a_release_that_is_on_record_as_bad_does_not_stand_in_for_itself():
    """https://github.com/tensorflow/tensorflow/issues/63362"""
    text = "cudart_stub.cc:32] Could not find cuda drivers on your machine, GPU will not be "
    text += "used.\ntensorflow=={}\n"
    found = commands(read(text.format("2.16.1")))
    assert any("tensorflow[and-cuda]==2.17.*" in one for one in found)
    assert not any("2.16.1" in one for one in found if one.startswith("pip"))
    assert any("tensorflow[and-cuda]==2.18.1" in one for one in commands(read(text.format("2.18.1"))))
