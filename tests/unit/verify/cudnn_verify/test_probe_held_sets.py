"""Commands of ``diagnose`` as whole sets: what a line would move beside what it names is held in it."""

import shlex

import pytest
from packaging.requirements import Requirement
from pages import diagnose_score

from builder.plan.facts.tables import load
from builder.verify.cudnn_verify.common.held_sets import asked_by, follower_of


def commands_of(text, where="pip"):
    return [
        row["text"]
        for cause in diagnose_score.answer(text)["causes"]
        for row in cause["commands"]
        if row["where"] == where
    ]


KERAS = (
    "RuntimeError: Failed to import transformers.models.bert.modeling_tf_bert because of the following error:\n"
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
        "torch._inductor.exc.GPUTooOldForTriton: Found NVIDIA GeForce GTX 1080 which is too old to be supported "
        "by the triton GPU compiler, which is used as the backend. Triton only supports devices of CUDA "
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
