"""The suites that a matrix names, and the packages that have them."""

from __future__ import annotations

import pytest

from builder.plan.facts.reading.observed import Truth, WheelTruth
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import Outcome

PLACE = {"python": "3.11", "base": "rootfs:debian/bookworm", "cuda": "wheels"}


def said(cell, truth=None):
    return [
        (found.outcome, found.message)
        for found in check(cell, truth, suggest=False)
        if found.rule == "suites"
    ]


@pytest.mark.parametrize(
    ("framework", "pip", "verify", "lacking"),
    [
        ("torch==2.6.0", (), ("conv", "linalg", "attention", "compile", "comm"), []),
        ("torch==2.6.0", (), ("infer",), ["infer"]),
        ("torch==2.6.0", ("onnxruntime-gpu==1.22.0",), ("infer",), []),
        ("jax==0.6.2", (), ("vision", "conv", "loader", "infer"), ["loader", "infer"]),
        ("torch==2.6.0", (), (), []),
    ],
)
def test_a_suite_that_no_package_has_is_named_before_anything_is_built(
    make, framework, pip, verify, lacking
) -> None:
    found = said(make(framework, **PLACE, pip=pip, verify=verify))
    assert [outcome for outcome, _ in found] == [Outcome.WARNS] * len(lacking)
    for name, (_, text) in zip(lacking, found, strict=True):
        assert f"no package here has the suite '{name}', so publish would refuse the image" in text


def test_a_package_that_another_one_brings_counts_once_it_is_locked(make) -> None:
    cell = make("torch==2.6.0", **PLACE, pip=("faster-whisper",), verify=("infer",))
    assert said(cell)
    names = ("torch", "faster-whisper", "ctranslate2")
    wheels = tuple(WheelTruth(name=name, version="1.0", file=f"{name}-1.0-any.whl") for name in names)
    assert said(cell, Truth(wheels=wheels, locked=True)) == []
