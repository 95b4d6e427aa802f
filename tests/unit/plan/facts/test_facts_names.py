"""Names that are mistaken for a distribution's are refused, with the distribution that is meant."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from rtbuild_command import inside

from builder.core.model import Cuda
from builder.core.versions import canonical
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import Outcome
from builder.plan.facts.tables import loader as tables

NAMES = tables.load().mistaken_names


def said(cell):
    return [(found.outcome, found.message) for found in check(cell) if found.rule == "names"]


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_refused_with_the_one_that_is_meant(make, name) -> None:
    row = NAMES[name]
    version = "2.0.1" if row.versions is None else next(iter(row.versions)).version
    cell = make("numpy==2.2.6", python="3.11", base="rootfs:debian/bookworm", cuda="none")
    for text in (name, name.upper().replace("-", "_"), f"{name}=={version}"):
        ((outcome, line),) = said(replace(cell, pip=(text,)))
        assert outcome is Outcome(row.outcome)
        assert f"did you mean {row.instead}?" in line
    ((outcome, _),) = said(replace(cell, pip=(name,), index=("https://example.org/simple",)))
    assert outcome is Outcome.WARNS
    own = "https://download.pytorch.org/whl/cu126"  # which has none of these names
    ((outcome, _),) = said(replace(cell, pip=(name,), index=(own,)))
    assert outcome is Outcome(row.outcome)
    assert not said(replace(cell, pip=(row.instead,)))


def test_a_framework_by_another_name_is_refused(make) -> None:
    cell = make("pytorch==2.0.1", python="3.11", base="rootfs:debian/bookworm", cuda="wheels")
    assert Outcome.of(check(cell)) is Outcome.IMPOSSIBLE


def test_releases_that_had_the_name_are_not_meant(make) -> None:
    cell = make("numpy==1.23.5", python="3.8", base="rootfs:debian/bullseye", cuda="none")
    assert not said(replace(cell, pip=("tensorflow-gpu==2.8.4",)))
    assert not said(replace(cell, pip=("tensorflow-gpu<2.11",)))


def test_each_framework_is_found_by_its_title_and_its_module() -> None:
    """Its distribution has the name, or the table says which one has."""
    known = tables.load()
    titles = (table.title.replace(" ", "-") for table in known.frameworks.values())
    people = {*(row.name for row in tables.load().registry), *map(canonical, titles)}
    assert len(people) > len(known.frameworks)
    distributions = {row.distribution for table in known.frameworks.values() for row in table.rows}
    distributions |= {*known.frameworks, *known.without}
    assert people - distributions - {"mxnet"} <= NAMES.keys()


@pytest.mark.parametrize(
    ("family", "cuda", "name"),
    [
        ("cublas", "12", "nvidia-cublas-cu12"),
        ("cublas", "13", "nvidia-cublas"),
        ("cuda-runtime", "13", "nvidia-cuda-runtime"),
        ("cudnn", "13", "nvidia-cudnn-cu13"),
        ("nccl", "13", "nvidia-nccl-cu13"),
        ("cusparselt", "13", "nvidia-cusparselt-cu13"),
        ("nvshmem", "13", "nvidia-nvshmem-cu13"),
    ],
)
def test_the_suffix_of_nvidia_s_wheels_goes_by_family_and_cuda(family, cuda, name) -> None:
    assert tables.load().wheel_families[family].distribution(cuda) == name
    assert name not in NAMES


def test_the_way_out_of_a_stub_has_the_right_name(make) -> None:
    cell = make("torch==2.9.1", python="3.11", base="rootfs:debian/bookworm", cuda="wheels")
    found = check(replace(cell, pip=("nvidia-npp-cu13", "rich")))
    (near,) = {one.nearest for one in found if one.nearest is not None}
    assert (near.changes, near.cell.pip) == ((("pip", "nvidia-npp"),), ("nvidia-npp", "rich"))


def test_a_stub_among_cudas_packages_is_refused(make) -> None:
    cell = make("numpy==2.2.6", python="3.11", base="rootfs:debian/bookworm", cuda="wheels")
    packages = ("nvidia-cublas-cu13==13.0.2.14", "nvidia-cudnn-cu13")
    ((outcome, line),) = said(replace(cell, cuda=Cuda(provider="wheels", packages=packages)))
    assert (outcome, "did you mean nvidia-cublas?" in line) == (Outcome.IMPOSSIBLE, True)


def test_what_is_meant_is_mistaken_for_nothing() -> None:
    assert not {canonical(Requirement(row.instead).name) for row in NAMES.values()} & NAMES.keys()


def test_check_and_so_the_hook_exit_with_1(tmp_path: Path) -> None:
    matrix = tmp_path / "matrix.yaml"
    cell = "framework: numpy==1.26.4, python: 3.11, base: rootfs:debian/bookworm, cuda: none"
    matrix.write_text(f"version: 1\nname: x\ninclude:\n- {{{cell}, pip: [pytorch==2.0.1]}}\n")
    done = inside(tmp_path, "check", "matrix.yaml", "--json", check=1)
    assert "did you mean torch?" in json.dumps(json.loads(done.stdout))
