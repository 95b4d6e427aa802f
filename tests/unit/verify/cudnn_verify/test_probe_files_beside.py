"""Files beside a log: lists of packages, a definition and a job's script, sessions of two machines."""

import pytest
from pages import diagnose_score

from builder.verify.cudnn_verify.page import render_diagnosis
from builder.verify.cudnn_verify.read.diagnosis import diagnose
from builder.verify.cudnn_verify.read.package_lists import listed_within
from builder.verify.cudnn_verify.read.reading import read_all, read_text_given
from builder.verify.cudnn_verify.read.text_facts import TextFacts

WORKS = """$ nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
NVIDIA GeForce RTX 3080, 570.158.01
$ python -c "import torch; print(torch.cuda.is_available())"
True
$ pip freeze
numpy==2.1.3
nvidia-cuda-runtime-cu12==12.8.90
pandas==2.2.3
timm==1.0.15
torch==2.11.0+cu128
torchvision==0.26.0+cu128
"""
FAILS = """$ nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
NVIDIA GeForce RTX 3080, 570.172.08
UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 12080).
$ pip freeze
cuda-toolkit==13.0.2
numpy==2.3.4
nvidia-cuda-runtime==13.0.96
pandas==2.2.3
timm==1.0.15
torch==2.11.0
torchvision==0.26.0
"""
FREEZE = """flash_attn==2.5.8
numpy==2.1.1
nvidia-cudnn-cu12==9.10.2.21
onnxruntime==1.19.2
onnxruntime-gpu==1.19.2
opencv-python==4.10.0.84
opencv-python-headless==4.10.0.84
torch==2.5.1
torchaudio==2.4.1
torchvision==0.20.1
xformers==0.0.28
"""


def read(folder, **texts):
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    return diagnose(read_all([str(folder / name) for name in texts]))


def test_two_machines_are_compared_and_never_mixed_into_one(tmp_path):
    document = read(tmp_path, a=WORKS, b=FAILS)
    rows = {row["what"]: row for row in document["compared"]["rows"]}
    assert rows["torch"]["values"] == ["2.11.0+cu128", "2.11.0"]
    assert rows["oldest driver"]["note"] == "driver 570.158.01 serves it, driver 570.172.08 is too old"
    (fault,) = document["compared"]["faults"]
    assert (fault["list"], fault["cause"]) == ("b", "driver-too-old")
    assert "names no build" in fault["because"][-1]
    removed, installed = [row["text"] for row in fault["commands"]]
    assert removed == "pip uninstall -y cuda-toolkit nvidia-cuda-runtime"
    assert installed.startswith("pip install torch==2.11.0+cu128 ")
    assert installed.endswith("--extra-index-url https://download.pytorch.org/whl/cu128")
    assert "torchvision==0.26.0+cu128" in fault["keep"]
    page = render_diagnosis(document)
    assert "nvidia-driver" not in page
    assert installed in page


def test_a_folder_is_read_as_its_files(tmp_path):
    read(tmp_path, a=WORKS, b=FAILS)
    (tmp_path / ".hidden").write_text("torch==1.0.0\n", "utf-8")
    document = diagnose(read_all([str(tmp_path)]))
    assert document["read"]["sources"] == ["a", "b"]
    assert document["compared"]["faults"][0]["list"] == "b"


def test_one_machine_in_two_files_stays_one(tmp_path):
    document = read(tmp_path, log=FAILS, freeze="\n".join(FAILS.splitlines()[4:]))
    assert document["compared"] is None
    assert document["cause"] == "driver-too-old"


def test_a_list_without_a_failure_tells_all_that_does_not_fit_and_what_is_uninstalled_first(tmp_path):
    document = read(tmp_path, freeze=FREEZE)
    causes = {row["cause"]: row for row in document["causes"]}
    assert next(iter(causes)) == "package-overwritten"
    removed, kept = [row["text"] for row in causes["package-overwritten"]["commands"][:2]]
    assert removed == "pip uninstall -y onnxruntime onnxruntime-gpu opencv-python opencv-python-headless"
    assert kept == "pip install --no-deps opencv-python-headless==4.10.0.84 onnxruntime-gpu==1.19.2"
    companions = causes["extension-mismatch"]["commands"][0]["text"]
    assert "torchaudio==2.5.1" in companions
    assert "xformers==0.0.28.post3" in companions or "xformers==0.0.29.post1" in companions
    assert causes["package-pin-mismatch"]["commands"][0]["text"] == "pip install nvidia-cudnn-cu12==9.1.0.70"
    assert not any("torch==" in row["text"] for one in causes.values() for row in one["commands"][:1])


@pytest.mark.parametrize("base", ["Bootstrap: docker\nFrom: nvidia/cuda:12.6.3-runtime-ubuntu22.04\n", ""])
def test_apptainer_gets_its_own_option_and_nothing_of_dockers(tmp_path, base):
    """https://apptainer.org/docs/user/main/gpu.html"""
    log = "UserWarning: CUDA initialization: Found no NVIDIA driver on your system.\ntorch 2.6.0+cu124\n"
    job = "#!/bin/bash\n#SBATCH --gres=gpu:1\napptainer exec /scratch/torch.sif python train.py\n"
    document = read(tmp_path, log=log, job=job, definition=base)
    row = next(row for row in document["causes"] if row["cause"] == "container-no-gpu")
    assert row["commands"][0]["text"] == "apptainer exec --nv /scratch/torch.sif python train.py"
    texts = [command["text"] for one in document["causes"] for command in one["commands"]]
    assert not any("docker" in text or "nvidia-ctk" in text for text in texts)
    assert row["check"].startswith("apptainer exec --nv ")


def test_what_a_comment_tells_weighs_less_than_what_is_printed():
    printed = "$ python -c 'import torch; print(torch.__version__)'\n2.8.0+cu128\n"
    text = "# already tried: torch 2.6 cu124\n"
    assert TextFacts(read_text_given(text + printed).lines).packages["torch"] == "2.8.0+cu128"
    assert TextFacts(read_text_given(text).lines).packages["torch"] == "2.6"


@pytest.mark.parametrize(
    "package", ["libnvidia-compute-570-server", "nvidia-dkms-570-server-open", "nvidia-driver-570"]
)
def test_a_driver_is_read_out_of_any_of_its_packages(package):
    text = f"Error 802: system not yet initialized\n{package} 570.172.08-0ubuntu0.22.04.1\n"
    text += "nvidia-utils-570-server 570.172.08-0ubuntu0.22.04.1\n"
    (row,) = diagnose_score.answer(text)["causes"]
    assert "'nvidia-fabricmanager-570=570.172.08*'" in row["commands"][0]["text"]


def test_an_installers_list_that_ends_follows_from_the_c_library():
    """https://github.com/pytorch/pytorch/issues/150724"""
    text = (
        "ERROR: Could not find a version that satisfies the requirement torch==2.7.0 "
        "(from versions: 2.5.1, 2.6.0)\n"
        "ERROR: No matching distribution found for torch==2.7.0\nPython 3.11\n"
        "ImportError: /lib64/libm.so.6: version `GLIBC_2.27' not found (required by "
        "/e/lib/python3.11/site-packages/torch/lib/../../../../libcurand.so.10)\n"
    )
    document = diagnose_score.answer(text)
    assert [row["cause"] for row in document["causes"]] == ["libc-too-old"]
    assert any("ends for the same reason" in reason for reason in document["causes"][0]["because"])


def test_tensorflow_keeps_its_release_line_with_its_libraries():
    said = "Could not find cuda drivers on your machine, GPU will not be used\n"
    said += "Cannot dlopen some GPU libraries\n"
    for release in ("2.14.0", "2.15.1", "2.18.0"):
        document = diagnose_score.answer(f"{said}tensorflow=={release}\n")
        texts = [
            row["text"] for one in document["causes"] for row in one["commands"] if "and-cuda" in row["text"]
        ]
        minor = release.rpartition(".")[0]
        assert texts
        assert all(f"[and-cuda]=={minor}" in text for text in texts)
    document = diagnose_score.answer(f"{said}tensorflow==2.12.1\n")
    assert not any("and-cuda" in row["text"] for one in document["causes"] for row in one["commands"])
    unread = [row["text"] for one in diagnose_score.answer(said)["causes"] for row in one["commands"]]
    assert any("version('tensorflow')" in text for text in unread)


def test_a_list_within_a_session_is_read_and_no_other_lines():
    assert listed_within(WORKS.splitlines())["torch"] == "2.11.0+cu128"
    assert set(listed_within(WORKS.splitlines())) & {"python", "nvidia"} == set()
    assert listed_within(["Python 3.12.8", "torch==2.6.0"]) is None


def test_lines_that_mean_nothing_are_named_beside_the_answer():
    text = (
        "torch 2.6.0+cu124\nxformers 0.0.28.post3\nrequires device with capability > (8, 0) but your GPU has "
    )
    document = diagnose_score.answer(text + "capability (7, 5) (too old)\n")
    assert "FlashAttention alone" in document["harmless"][0]["says"]
