"""Which wheels load where."""

from __future__ import annotations

import pytest

from builder.core.errors import UsageError
from builder.sources.index.target import Target, rank


def target(python: str = "3.9", glibc: str = "2.31", platform: str = "linux/amd64") -> Target:
    return Target(python=python, platform=platform, glibc=glibc)


def fits(file: str, **where: str) -> bool:
    return rank(file, target(**where).tags()) is not None


@pytest.mark.parametrize(
    ("file", "where", "expected"),
    [
        ("a-1-cp39-cp39-manylinux2010_x86_64.whl", {}, True),
        ("a-1-cp39-cp39-manylinux_2_31_x86_64.whl", {}, True),
        ("a-1-cp39-cp39-manylinux_2_35_x86_64.whl", {}, False),
        ("a-1-cp39-cp39-manylinux_2_35_x86_64.whl", {"glibc": "2.35"}, True),
        ("a-1-cp310-cp310-manylinux2014_x86_64.whl", {}, False),
        ("a-1-cp38-abi3-manylinux_2_28_x86_64.whl", {}, True),
        ("a-1-cp310-abi3-manylinux_2_28_x86_64.whl", {}, False),
        ("a-1-py3-none-manylinux1_x86_64.whl", {}, True),
        ("a-1-py2.py3-none-any.whl", {}, True),
        ("a-1-py2-none-any.whl", {}, False),
        ("a-1-cp37-cp37m-manylinux1_x86_64.whl", {"python": "3.7"}, True),
        ("a-1-cp38-cp38m-manylinux1_x86_64.whl", {"python": "3.8"}, False),
        ("a-1-cp39-cp39-musllinux_1_1_x86_64.whl", {}, False),
        ("a-1-cp39-cp39-macosx_11_0_arm64.whl", {}, False),
        ("a-1-cp39-cp39-manylinux2014_aarch64.whl", {}, False),
        ("a-1-cp39-cp39-manylinux2014_aarch64.whl", {"platform": "linux/arm64"}, True),
        ("a-1-cp313-cp313t-manylinux_2_28_x86_64.whl", {"python": "3.13"}, False),
        ("not a wheel.whl", {}, False),
    ],
)
def test_fit(file: str, where: dict[str, str], expected: bool) -> None:
    assert fits(file, **where) is expected


def test_the_best_of_several() -> None:
    files = [
        "a-1-py3-none-any.whl",
        "a-1-cp38-abi3-manylinux_2_28_x86_64.whl",
        "a-1-cp39-cp39-manylinux2014_x86_64.whl",
        "a-1-cp39-cp39-manylinux_2_28_x86_64.whl",
        "a-1-2-cp39-cp39-manylinux_2_28_x86_64.whl",
        "a-1-10-cp39-cp39-manylinux_2_28_x86_64.whl",
    ]
    tags = target().tags()
    assert sorted(files, key=lambda file: rank(file, tags) or (99,), reverse=True) == files


@pytest.mark.parametrize(
    ("glibc", "platform", "name"),
    [
        ("2.27", "linux/amd64", "x86_64-manylinux_2_17"),
        ("2.31", "linux/amd64", "x86_64-manylinux_2_31"),
        ("2.36", "linux/arm64", "aarch64-manylinux_2_36"),
        ("2.41", "linux/amd64", "x86_64-manylinux_2_40"),
    ],
)
def test_the_name_that_uv_knows(glibc: str, platform: str, name: str) -> None:
    assert target(glibc=glibc, platform=platform).uv_platform == name


def test_another_platform_is_refused() -> None:
    with pytest.raises(UsageError, match="linux/s390x"):
        target(platform="linux/s390x")
