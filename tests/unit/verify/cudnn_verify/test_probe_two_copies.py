# ruff: noqa: E501, as people write it
"""Two copies of one library, by the packages that a text names; and names that are told in prose."""

import pytest

from builder.verify.cudnn_verify.read.diagnosis import diagnose
from builder.verify.cudnn_verify.read.reading import read_text_given


def first(text):
    return next(iter(diagnose(read_text_given(text))["causes"]), None)


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        # https://github.com/sulci-io/sulci-oss/issues/43
        ("Fatal Python error: Aborted\n# the stack ends in torch/__init__.py; faiss/_swigfaiss was loaded earlier", "torch and faiss"),
        # https://github.com/pytorch/pytorch/issues/191933
        ("macOS 26.5, EXC_BAD_ACCESS (SIGSEGV) in libomp.dylib`__kmp_suspend_64\nimport lightgbm as lgb, torch", "torch and lightgbm"),
        # https://github.com/mmschlk/shapiq/issues/536
        ("macOS: import shapiq, then import xgboost, then xgboost.train(): segmentation fault", "xgboost and shapiq"),
    ],
)  # fmt: skip
def test_two_packages_with_a_libomp_each(text, pair):
    row = first(text)
    assert row["cause"] == "import-order-conflict"
    assert pair + " are in one process" in row["because"]
    assert "KMP_DUPLICATE_LIB_OK" in row["commands"][0]["text"]


@pytest.mark.parametrize(
    "text",
    [
        "Ubuntu 24.04: import faiss, then import torch: Segmentation fault",
        "macOS: import torch: Segmentation fault",
        "Windows 11, torch and faiss: Process finished with a segmentation fault",
    ],
)
def test_another_crash_is_none_of_them(text):
    row = first(text)
    assert row is None or row["signature"] != "openmp-crash"


def test_several_packages_of_opencv_are_reduced_to_one():
    """https://github.com/obss/sahi/pull/1393"""
    row = first(
        "opencv-python 5.0.0.93, opencv-python-headless 4.10.0.84\n>>> import cv2\n(partially initialized module 'cv2')"
    )
    assert row["cause"] == "package-overwritten"
    assert row["commands"][0]["text"].startswith("pip uninstall -y opencv-python opencv-python-headless")
    assert row["commands"][0]["text"].endswith("pip install opencv-python-headless")


def test_a_name_in_words_beside_the_release_that_lacks_it():
    """https://github.com/dfm/jpu/issues/38"""
    row = first(
        "# jax 0.10.0, newest jpu: AttributeError at line 559 of its wrapper, which uses jax.numpy.fix"
    )
    assert row["commands"][0]["text"] == 'pip install "jax<0.10"'
    assert any("jax.numpy.fix no longer from 0.10 on" in reason for reason in row["because"])
    assert first("# jax 0.9.0: AttributeError in its wrapper, which uses jax.numpy.fix") is None


def test_python_says_itself_that_an_argument_was_renamed():
    row = first("TypeError: fit() got an unexpected keyword argument 'old_name'. Did you mean 'new_name'?")
    assert row["cause"] == "package-pin-mismatch"
    assert "takes new_name" in row["says"]
