"""Commands of ``diagnose`` as whole sets: what a line would move beside what it names is held in it."""

import shlex

import pytest
from packaging.requirements import Requirement
from pages import diagnose_score

from builder.core.versions import key
from builder.plan.facts.tables import load
from builder.verify.cudnn_verify.common.held_sets import asked_by, follower_of
from builder.verify.cudnn_verify.page import render_diagnosis


def commands_of(text, where="pip"):
    return [
        row["text"]
        for cause in diagnose_score.answer(text)["causes"]
        for row in cause["commands"]
        if row["where"] == where
    ]


KERAS = (
    "RuntimeError: Failed to import transformers.models.bert.modeling_tf_bert because of the error:\n"
    "Your currently installed version of Keras is Keras 3, but this is not yet supported in Transformers. "
    "Please install the backwards-compatible tf-keras package with `pip install tf-keras`.\n"
    "keras  3.4.1\ntensorflow  {}\ntransformers  4.40.2\n"
)


@pytest.mark.parametrize("release", ["2.16.2", "2.17.0", "2.18.1", "2.20.0"])
def test_a_package_of_one_minor_release_goes_with_the_framework_that_is_here(release):
    """https://github.com/keras-team/keras-io/pull/2070"""
    first = commands_of(KERAS.format(release))[0]
    words = [Requirement(word) for word in shlex.split(first)[2:]]
    minor = release.rpartition(".")[0]
    assert [str(word) for word in words] == [f"tf-keras=={minor}.*", f"tensorflow=={release}"]
    rows = [row for row in load().packages["tf-keras"].rows if words[0].specifier.contains(row.version)]
    assert rows
    asked = [one.specifier for row in rows for one in row.asks("tensorflow")]
    assert asked
    assert all(spec.contains(release) for spec in asked)


def test_a_package_is_not_proposed_of_which_no_release_goes_with_the_framework():
    assert follower_of("tf-keras", {"tensorflow": "2.12.1"}) == ""
    assert follower_of("tf-keras", {}) is None
    assert follower_of("numpy", {"tensorflow": "2.16.2"}) is None
    assert not any("tf-keras" in text for text in commands_of(KERAS.format("2.12.1")))


def test_what_asks_for_a_framework_is_raised_beside_the_one_that_is_here():
    text = (
        "bitsandbytes library load error: Configured CUDA binary not found at "
        "/v/lib/python3.12/site-packages/bitsandbytes/libbitsandbytes_cuda130.so\n"
        "bitsandbytes==0.47.0\ntorch==2.9.1+cu130\n"
    )
    first = commands_of(text)[0]
    assert first == 'pip install "bitsandbytes>0.47.0" torch==2.9.1+cu130'
    assert asked_by("bitsandbytes") == {"torch"}
    in_project = commands_of(text + "$ uv sync\nuv.lock\n")
    assert not any("torch==" in command for command in in_project)


def test_a_card_that_triton_does_not_compile_for_needs_no_other_wheel():
    """https://github.com/MIC-DKFZ/nnUNet/issues/2188"""
    text = (
        "torch._inductor.exc.GPUTooOldForTriton: Found NVIDIA GeForce GTX 1080 which is too old to be "
        "supported by the triton GPU compiler, which is used as the backend. Triton only supports "
        "devices of CUDA "
        "Capability >= 7.0, but your device is of CUDA capability 6.1\ntorch 2.6.0+cu126\n"
    )
    (row,) = diagnose_score.answer(text)["causes"]
    assert row["cause"] == "compile-card-too-old"
    assert [command["text"] for command in row["commands"]] == ["export TORCHDYNAMO_DISABLE=1"]
    assert "+cu126" in row["remedy"]
    assert "CUDA 13" in row["remedy"]
    own = commands_of(text + "nnUNetv2_train 1 3d_fullres 0\n", "shell")
    assert own[0] == "export nnUNet_compile=f"


@pytest.mark.parametrize("quote", ["'", ""])
def test_an_nvcc_before_the_card_is_a_matter_of_the_build(quote):
    """https://github.com/gcorso/DiffDock/issues/228"""
    text = (
        f"nvcc fatal   : Unsupported gpu architecture {quote}compute_89{quote}\n"
        "Cuda compilation tools, release 11.5, V11.5.119\nRTX 4090\ntorch==1.13.1+cu117\n"
    )
    (row,) = diagnose_score.answer(text)["causes"]
    assert row["cause"] == "build-toolkit-mismatch"
    texts = [command["text"] for command in row["commands"]]
    assert "cuda-toolkit-11-8" in texts[0]
    assert any('TORCH_CUDA_ARCH_LIST="8.6"' in command for command in texts)
    assert not any("TRITON" in command or "torch==1.13.1" in command for command in texts)


def test_what_asks_a_framework_for_a_lost_name_moves_first_and_an_older_framework_comes_as_a_set():
    """https://github.com/ecmwf-lab/ai-models-graphcast/issues/24"""
    text = (
        "Traceback (most recent call last):\n"
        '  File "/v/lib/python3.10/site-packages/haiku/_src/dot.py", line 163, in <module>\n'
        "    @jax.linear_util.transformation\n"
        "AttributeError: module 'jax' has no attribute 'linear_util'\n"
        "dm-haiku==0.0.10\njax==0.4.30\njax-cuda12-plugin==0.4.30\njaxlib==0.4.30\noptax==0.2.3\nchex==0.1.86\n"
    )
    first, other = commands_of(text)
    assert first == 'pip install "dm-haiku>0.0.10" jax==0.4.30'
    words = {Requirement(word).name: Requirement(word) for word in shlex.split(other)[2:]}
    assert set(words) == {"jax", "chex", "optax", "nvidia-cudnn-cu12"}
    assert not words["optax"].specifier.contains("0.2.3")
    assert not words["nvidia-cudnn-cu12"].specifier.contains("9.1.0.70")


def test_two_frameworks_get_the_release_whose_cudnn_serves_both():
    """https://github.com/tensorflow/tensorflow/issues/60913"""
    text = (
        "Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0.\nPython 3.11\n"
        "Driver Version: 550.90.07\nNVIDIA L4\n"
        "nvidia-cudnn-cu12==9.1.0.70\ntensorflow==2.18.0\ntorch==2.6.0\n"
    )
    first, second = commands_of(text)
    named = {Requirement(word).name: Requirement(word) for word in shlex.split(first)[2:]}
    assert str(named["tensorflow"].specifier) == "==2.18.0"
    (release,) = (one.version for one in named["torch"].specifier)
    (row,) = (r for r in load().frameworks["torch"].rows if r.version == release and r.default)
    (pin,) = (Requirement(pin) for pin in row.pins if "cudnn" in pin)
    assert [key(one.version) >= (9, 3) and key(one.version) < (10,) for one in pin.specifier] == [True]
    assert second == "pip install --no-deps nvidia-cudnn-cu12==9.3.0.75"


def test_all_packages_of_one_wrong_build_are_in_one_line_from_the_page_of_their_maker():
    """https://github.com/rusty1s/pytorch_scatter/issues/476"""
    text = (
        "OSError: /v/lib/python3.10/site-packages/torch_scatter/_version_cuda.so: undefined symbol: "
        "_ZN3c1017RegisterOperatorsD1Ev\ntorch  2.7.1\ntorch_scatter  2.1.2+pt24cu121\n"
        "torch_sparse  0.6.18+pt24cu121\ntorch_cluster  1.6.3+pt24cu121\npyg_lib  0.4.0+pt27cu126\n"
    )
    first, second = commands_of(text)
    names = "torch-cluster torch-scatter torch-sparse"
    page = "https://data.pyg.org/whl/torch-2.7.0+cu126.html"
    assert first == f"pip install --force-reinstall --no-deps {names} -f {page}"
    assert second.endswith("--no-binary torch-cluster,torch-scatter,torch-sparse " + names)
    (row,) = diagnose_score.answer(text)["causes"]
    assert row["check"] == 'python3 -c "import torch, torch_cluster, torch_scatter, torch_sparse"'
    assert row["keep"][:2] == ["-f " + page, "torch-cluster"]
    assert "torch==2.7.1" in row["keep"]


def test_each_answer_that_mends_ends_with_a_line_that_checks_it():
    for text, check in (
        (
            "AssertionError: Torch not compiled with CUDA enabled\ntorch==2.6.0+cpu",
            "torch.cuda.is_available()",
        ),
        ("Error 802: system not yet initialized", "nvidia-smi -q | grep -A 2 Fabric"),
        ("RuntimeError: operator torchvision::nms does not exist\ntorch==2.6.0", "import torch, torchvision"),
    ):
        row = diagnose_score.answer(text)["causes"][0]
        assert check in row["check"], text
        assert f"$ {row['check']}" in render_diagnosis(diagnose_score.answer(text))
