# ruff: noqa: E501, as programs print it
"""Releases on record as bad, told by the words of their failure: ``known-bad.toml``."""

import pytest

from builder.plan.facts.tables.loader import load
from builder.verify.cudnn_verify.read.diagnosis import diagnose
from builder.verify.cudnn_verify.read.reading import read_text_given

ROWS = [row for row in load().bad if row.example is not None]


def first(text):
    """The first cause of a text; None without one."""
    return next(iter(diagnose(read_text_given(text))["causes"]), None)


def test_a_row_with_a_line_for_pip_has_words_and_an_example():
    assert len(ROWS) >= 30
    for row in load().bad:
        alone = len(row.when) == 1 and row.says is None  # a remedy then takes another release
        assert alone or not row.mend or (row.says and row.example), row.id
        assert not row.named or row.mend, row.id


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_its_example_tells_it_with_the_line_that_mends(row):
    told = first(row.example)
    assert told is not None
    assert told["signature"] == "known-bad-" + row.id
    assert told["cause"] == "package-pin-mismatch"
    assert row.message in told["because"]
    command = told["commands"][0]["text"]
    assert all(requirement in command for requirement in row.mend), command


def test_both_releases_in_the_text_make_it_certain():
    text = "xgboost 2.1.3\nscikit-learn 1.6.0\nAttributeError: 'super' object has no attribute '__sklearn_tags__'"
    document = diagnose(read_text_given(text))
    assert document["decided"]
    assert "the text names xgboost 2.1.3 and scikit-learn 1.6.0" in document["causes"][0]["because"]


def test_what_mends_one_fault_brings_no_release_that_is_bad_beside_another_of_the_text():
    """https://github.com/tile-ai/tilelang/issues/2040: 0.1.10 is bad beside TileLang 0.1.8, 0.1.12 beside 0.1.11."""
    text = (
        "terminate called after throwing an instance of 'tvm::ffi::Error'\napache-tvm-ffi 0.1.12, tilelang %s"
    )
    lines = [first(text % release)["commands"][0]["text"] for release in ("0.1.8", "0.1.11")]
    assert lines == ['pip install "apache-tvm-ffi<0.1.10"', 'pip install "apache-tvm-ffi<0.1.11"']


@pytest.mark.parametrize("other", ["xgboost 3.0.0", "scikit-learn 1.5.2"])
def test_another_release_in_the_text_rules_it_out(other):
    told = first(other + "\nAttributeError: 'super' object has no attribute '__sklearn_tags__'")
    assert told is None or not str(told["signature"]).startswith("known-bad-")


def test_words_of_many_faults_need_the_release():
    crash = "pytest: Fatal Python error: Segmentation fault\n  pandas/core/arrays/string_arrow.py in _from_sequence\n"
    bad = first(crash + "pandas 3.0.3, pyarrow 25.0.0")
    assert bad["signature"] == "known-bad-pyarrow-25.0.0"
    for text in (crash, crash + "pandas 3.0.3, pyarrow 24.0.0"):
        told = first(text)
        assert told is None or not str(told["signature"]).startswith("known-bad-")


def test_a_package_for_a_pytorch_comes_in_its_release():
    """A floor alone would take a release for another PyTorch: https://github.com/pytorch/ao/issues/2919"""
    text = (
        "tool 1.0 requires torchao>=0.12, but you have torchao 0.9.0 which is incompatible.\ntorch==2.9.1\n"
    )
    assert "torchao==0.15.0" in first("pip check\n" + text)["commands"][0]["text"]
