"""The id of a cell: readable, a legal Docker tag, and different where it should be."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builder.core.model import Cell, Cuda
from builder.plan.matrix.expand import LONGEST, cell_id
from builder.plan.matrix.values import parse_base

LEGAL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
DIGEST = "sha256:" + "0123456789abcdef" * 4


def of(
    framework="torch==2.1.0", *, python="3.9", base="rootfs:debian/bullseye", cuda="base", packages=(), **more
):
    frameworks = (framework,) if isinstance(framework, str) else tuple(framework)
    provider = Cuda(provider=cuda, packages=tuple(packages))
    cell = Cell(
        id="", matrix="m", frameworks=frameworks, python=python, base=parse_base(base), cuda=provider, **more
    )
    return cell_id(cell)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (
            {
                "framework": "tensorflow==2.8.4",
                "cuda": "wheels",
                "packages": ["nvidia-cudnn-cu11==8.6.0.163"],
            },
            "tensorflow2.8.4-py3.9-bullseye-cudnn8.6.0.163",
        ),
        ({"cuda": "wheels"}, "torch2.1.0-py3.9-bullseye-cudawheels"),
        ({"cuda": "wheels", "packages": ["nvidia-cudnn-cu12>=9"]}, "torch2.1.0-py3.9-bullseye-cudawheels"),
        (
            {"cuda": "wheels", "packages": ["nvidia-cublas-cu12==12.1"]},
            "torch2.1.0-py3.9-bullseye-cudawheels",
        ),
        ({"cuda": "none"}, "torch2.1.0-py3.9-bullseye-cpu"),
        (
            {"base": "nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04"},
            "torch2.1.0-py3.9-cuda11.2.2-cudnn8-ubuntu20.04",
        ),
        (
            {"base": "registry.example.invalid:5000/nvidia/cuda:11.2.2-cudnn8-devel-ubuntu20.04"},
            "torch2.1.0-py3.9-cuda11.2.2-cudnn8-devel-ubuntu20.04",
        ),
        ({"base": "ubuntu:22.04"}, "torch2.1.0-py3.9-ubuntu22.04"),
        ({"base": "debian:Bookworm-slim"}, "torch2.1.0-py3.9-debian-bookworm-slim"),
        ({"base": f"team/image:1.0@{DIGEST}"}, "torch2.1.0-py3.9-image1.0"),
        ({"base": f"team/image@{DIGEST}"}, "torch2.1.0-py3.9-image-0123456789ab"),
        ({"framework": "torch==2.1.0+cu118"}, "torch2.1.0_cu118-py3.9-bullseye"),
        ({"framework": "torch==1!2.1.0"}, "torch1_2.1.0-py3.9-bullseye"),
        ({"framework": ["torch==2.1.0", "jax[cuda12]==0.4.30"]}, "torch2.1.0-jax0.4.30-py3.9-bullseye"),
        ({"platform": "linux/arm64", "variant": "sci"}, "torch2.1.0-py3.9-bullseye-arm64-sci"),
    ],
)
def test_an_id_reads_like_its_cell(arguments, wanted):
    assert of(**arguments) == wanted


def test_a_long_id_ends_in_a_hash_of_the_whole():
    one, other = (of([f"package{n}==1.{n}.0" for n in range(12)], variant=variant) for variant in ("a", "b"))
    assert len(one) == len(other) == LONGEST
    assert one[:-13] == other[:-13]
    assert one != other
    assert re.fullmatch("[0-9a-f]{12}", one[-12:])


LETTERS = "abcxyz019"
NAMES = st.lists(st.text(LETTERS, min_size=1, max_size=12), min_size=1, max_size=3).map("-".join)
VERSIONS = st.builds(
    "{}{}{}".format,
    st.lists(st.integers(0, 300), min_size=1, max_size=5).map(lambda parts: ".".join(map(str, parts))),
    st.sampled_from(["", "rc1", ".post2", "a0"]),
    st.sampled_from(["", "+cu118", "+cu12.1", "+local-1"]),
)
TAGS = st.builds("{}{}".format, st.sampled_from([*LETTERS, "_", "T"]), st.text(LETTERS + "_.-T", max_size=60))
BASES = st.one_of(
    st.sampled_from(["rootfs:debian/bullseye", "rootfs:debian/trixie", f"a/b@{DIGEST}"]),
    st.builds("{}/{}:{}".format, NAMES, NAMES, TAGS),
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(NAMES, VERSIONS), min_size=1, max_size=5),
    BASES,
    st.sampled_from(["base", "wheels", "none"]),
)
def test_every_id_is_a_legal_tag_in_lower_case(frameworks, base, cuda):
    found = of([f"{name}=={version}" for name, version in frameworks], base=base, cuda=cuda)
    assert LEGAL.fullmatch(found)
    assert found == found.lower()
    assert found == of([f"{name}=={version}" for name, version in frameworks], base=base, cuda=cuda)


@settings(max_examples=100, deadline=None)
@given(VERSIONS, VERSIONS)
def test_versions_that_differ_give_ids_that_differ(one, other):
    from packaging.version import Version

    if str(Version(one)) != str(Version(other)):
        assert of(f"torch=={one}") != of(f"torch=={other}")
