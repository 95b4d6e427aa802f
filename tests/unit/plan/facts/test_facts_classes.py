"""Classes of wrong answers, each asked of every row of the tables, so nobody has to know the next case."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby, permutations

import pytest
from packaging.requirements import Requirement

from builder.core.versions import at_least
from builder.plan.facts.reading.cells import _plugins
from builder.plan.facts.reading.observed import BaseTruth, Truth, WheelTruth
from builder.plan.facts.rules.candidates import choices
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import Outcome
from builder.plan.facts.tables.loader import load

JAX = load().frameworks["jax"]
TORCH = load().frameworks["torch"]
NEWEST = {"platform": "linux/amd64", "cuda": "wheels"}


def test_the_extra_without_a_number_is_one_with_a_number_for_every_reader(make) -> None:
    """``jax[cuda]``: ``check`` answers as for the extra that it means, and so do proposals and readings."""
    rows = [(row, alias) for row in JAX.rows for alias in row.aliases]
    assert len(rows) > 30
    for row, alias in rows:
        named, plain = f"jax[{row.variant}]=={row.version}", f"jax[{alias}]=={row.version}"
        assert _plugins(Requirement(plain)) == _plugins(Requirement(named)) == [f"jax-{row.variant}-plugin"]
        if alias not in row.extras:
            continue  # a build of Google's own index, which brings none of NVIDIA's wheels
        cells = [make(text, python=row.python[-1], base="ubuntu:24.04", **NEWEST) for text in (named, plain)]
        first, second = (
            [(f.rule, f.outcome, f.message) for f in check(cell, suggest=False)] for cell in cells
        )
        assert first == second, plain
        assert [c.row for c in choices(Requirement(plain))] == [c.row for c in choices(Requirement(named))]


def test_every_release_of_jax_says_what_its_extra_without_a_number_means() -> None:
    """It is in the metadata of all of them, and never means two."""
    for version, rows in groupby(JAX.rows, lambda row: row.version):
        meant = [row.variant for row in rows if "cuda" in row.aliases]
        assert len(meant) == 1 or version in {f"0.4.{patch}" for patch in range(26, 30)}, version


READ = {
    "a base that is gone": Truth(base=BaseTruth(reference="nvidia/cuda:gone", exists=False)),
    "a wheel for another Python": Truth(
        wheels=(
            WheelTruth(name="torch", version="2.5.1", file="torch.whl", tags=("cp36-cp36m-linux_x86_64",)),
        )
    ),
    "a wheel without code for the card": Truth(
        wheels=(WheelTruth(name="torch", version="2.5.1", file="torch.whl", architectures=("sm_50",)),)
    ),
    "a wheel without CUDA": Truth(
        wheels=(WheelTruth(name="torch", version="2.5.1", file="torch.whl", gpu=False),)
    ),
}
"""Readings that refuse a cell which the tables let pass."""


@pytest.mark.parametrize("read", READ.values(), ids=READ)
@pytest.mark.parametrize("base", ["rootfs:debian/bookworm", "nvidia/cuda:12.4.1-base-ubuntu22.04"])
def test_the_way_out_is_not_the_refused_cell(make, base: str, read: Truth) -> None:
    """Nor one that keeps what was read and refused: the base that is gone, the wheel."""
    cell = make("torch==2.5.1", python="3.11", base=base, cuda="wheels", gpus=("T4",))
    assert Outcome.of(check(cell)).answer == "possible"
    found = check(cell, read)
    assert Outcome.of(found).answer == "impossible"
    way = next((f.nearest for f in found if f.nearest is not None), None)
    if way is not None:
        assert way.cell != cell
        assert all(str(value) != str(getattr(cell, name, None)) for name, value in way.changes)
        if read.base is not None:
            assert way.cell.base != cell.base
        if read.wheels:
            assert (way.cell.frameworks, way.cell.python) != (cell.frameworks, cell.python)


@pytest.mark.parametrize("platform", ["linux/amd64", "linux/arm64"])
def test_what_nobody_read_of_an_index_is_unknown(make, platform: str) -> None:
    """No "no wheel" and no "without CUDA" of a CUDA variant, unless a source names its platforms."""
    asked = 0
    for row in TORCH.rows:
        known = platform in row.platforms or "platforms" not in row.unread
        if row.default or known:
            continue
        asked += 1
        cell = make(
            f"torch=={row.version}+{row.variant}",
            python=row.python[-1],
            base="ubuntu:24.04",
            gpus=("sm_90",),
            platform=platform,
            cuda="wheels",
            pip=("numpy<2",),
        )
        found = check(cell, suggest=False)
        assert {f.outcome.value for f in found if f.rule in {"platform", "framework-known"}} == {"unknown"}
        assert Outcome.of(found).answer != "possible"
    assert asked > 5 or platform == "linux/amd64"


def test_a_maker_s_bound_beyond_numpy_2_is_its_word(make) -> None:
    """A release that asks for ``numpy<2.6`` was written with NumPy 2 at hand: not unknown with 2.2."""
    asked = 0
    for row in load().frameworks["cupy"].rows:
        bound = next((r for r in map(Requirement, row.requires) if r.name == "numpy"), None)
        if bound is None or row.numpy_abi is not None or "3.11" not in row.python:
            continue
        cell = make(
            f"{row.distribution}=={row.version}",
            python="3.11",
            base="rootfs:debian/bookworm",
            cuda="wheels",
            pip=("numpy==2.0.2",),
        )
        rules = {f.outcome.value for f in check(cell, suggest=False) if f.rule in {"numpy", "pins"}}
        ends = [c.version for c in bound.specifier if c.operator == "<"]
        asked += 1
        if any(int(end.partition(".")[0]) > 1 for end in ends if end not in {"2", "2.0"}):
            assert not rules, (row.version, rules)
        else:
            assert rules, row.version
    assert asked > 20


def test_each_card_of_the_driver_tables_is_a_card() -> None:
    """By the name of ``gpus.toml``; no data-centre card is a consumer's; a card is younger than its kind."""
    facts = load()
    names = {row.name: row for row in facts.gpus.values()}
    assert set(facts.card_drivers) <= set(names)
    assert not [name for name in facts.forward.cards if names[name].consumer]
    for card in facts.card_drivers.values():
        kind = next(row for row in facts.architectures if names[card.name].capability in row.capabilities)
        assert kind.since is not None
        assert at_least(card.since, kind.since), card.name
    known = {capability for row in facts.architectures for capability in row.capabilities}
    assert not {row.capability for row in names.values() if not row.tegra and row.capability >= "3.0"} - known


def test_a_library_of_another_name_is_refused_whatever_the_framework(make) -> None:
    """Each row that opens a renamed library, in the images of its CUDA major: names decide, not majors."""
    tags = [row for row in load().tags if row.infix == "cudnn8" and row.state == "listed"]
    asked = 0
    for table in load().frameworks.values():
        for row in table.rows:
            if row.cuda is None or row.carries_cuda or not row.cuda.startswith("11.") or table.name == "jax":
                continue
            for tag in tags:
                names = [(load().soname(n, row.cuda), load().soname(n, tag.cuda)) for n in row.needs]
                renamed = any(a and b and a.soname != b.soname for a, b in names)
                if not renamed:
                    continue
                asked += 1
                base = f"nvidia/cuda:{tag.cuda}-cudnn8-runtime-{tag.systems[0]}"
                cell = make(f"{row.distribution}=={row.version}", python=row.python[-1], base=base)
                assert Outcome.of(check(cell, suggest=False)).answer == "impossible", (row.version, base)
    assert asked > 100


def test_cuda_compat_serves_data_centre_cards_on_its_branches_and_no_others(make) -> None:
    """Every listed base with cuda-compat, every branch: possible with a reservation, or refused."""
    wanted = {"12": "torch==2.5.1", "13": "torch==2.13.0"}
    said = set()
    for row in load().tags:
        text = wanted.get(row.cuda.partition(".")[0])
        if row.state != "listed" or text is None:
            continue
        ubuntu = [system for system in row.systems if system.startswith("ubuntu")]
        if not ubuntu:
            continue
        base = f"nvidia/cuda:{row.cuda}-base-{ubuntu[-1]}"
        floor = load().families[row.cuda.partition(".")[0]].floor or ""
        for branch in ("470", "535", "550", "570"):
            if at_least(f"{branch}.999", floor):
                continue
            answers = [
                Outcome.of(
                    check(
                        make(text, python="3.12", base=base, cuda="wheels", gpus=gpus),
                        driver=f"{branch}.999",
                        suggest=False,
                    )
                ).answer
                for gpus in (("T4",), ("RTX 3090",), (), ("sm_75",), ("Unheard-of 1",))
            ]
            compat = load().compat.get(row.cuda.rpartition(".")[0])
            served = branch in row.branches or (compat is not None and branch in compat.branches)
            said.add(served)
            starts = branch in row.branches
            expected = (
                ["possible", "impossible", *["unknown"] * 3] if served and starts else ["impossible"] * 5
            )
            assert answers == expected, (base, branch)
    assert said == {True, False}


def test_a_compute_capability_is_no_promise_that_its_cards_are_for_data_centres(make) -> None:
    """The container starts on a T4 there, and not on an RTX 2080: both are 7.5."""
    base = "nvidia/cuda:12.8.1-base-ubuntu22.04"
    said = {}
    for card in ("T4", "RTX 2080", "sm_75", "sm_90"):
        cell = make("torch==2.5.1", python="3.10", base=base, cuda="wheels", gpus=(card,))
        found = [f for f in check(cell, driver="535.104.05", suggest=False) if f.rule == "require-cuda"]
        said[card] = [finding.outcome for finding in found]
    assert said == {"T4": [], "RTX 2080": [Outcome.IMPOSSIBLE], "sm_75": [Outcome.WARNS], "sm_90": []}


@pytest.mark.parametrize(
    ("version", "instead"),
    [
        ("0.3.25", "jax[cuda12]==0.4.23"),
        ("0.4.14", "jax[cuda12]==0.4.23"),
        ("0.4.35", "ask for jax[cuda12]"),
        ("0.8.0", "ask for jax[cuda12] or jax[cuda13]"),
        ("0.99.0", "ask for jax[cuda12] or jax[cuda13]"),
    ],
)
def test_a_jax_without_an_extra_is_told_extras_that_its_release_has(make, version: str, instead: str) -> None:
    cell = make(f"jax=={version}", python="3.11", base="rootfs:debian/bookworm", cuda="wheels")
    (found,) = (f for f in check(cell, suggest=False) if f.rule == "framework-known")
    assert found.message.endswith(instead)


@pytest.mark.parametrize("version", ["0.3.1", "0.4.0", "0.4.1"])
def test_a_release_without_a_row_is_not_one_that_brings_nothing(make, version: str) -> None:
    """What a deep reading tells of a wheel does not say where its cuDNN lies."""
    cell = make(f"torch=={version}", python="3.8", base="rootfs:debian/bookworm", cuda="wheels")
    wheel = WheelTruth(name="torch", version=version, file="torch.whl", cuda="10.2", cudnn="7.6.5", gpu=True)
    found = [f for f in check(cell, Truth(wheels=(wheel,)), suggest=False) if f.rule == "cudnn-version"]
    assert [f.outcome.value for f in found] == ["unknown"]
    unread = [f for f in check(cell, suggest=False) if f.rule == "framework-known"]
    assert "the next release on record is 1.0.0" in unread[0].message


@pytest.mark.parametrize(
    ("name", "other"), list(permutations(load().frameworks, 2)), ids=lambda name: name.removesuffix("-gpu")
)
def test_a_framework_under_pip_is_judged_as_a_framework_is(make, name: str, other: str) -> None:
    """Each beside each other one, three releases of both: the key that names it decides nothing."""
    mine, its = (
        [next(choices(Requirement(f"{text}=={version}")), None) for version in _spread(text)]
        for text in (name, other)
    )
    compared = 0
    for first, second in ((a, b) for a in mine for b in its if a is not None and b is not None):
        common = sorted({*first.row.python} & {*second.row.python})
        if not common:
            continue
        place = {
            "python": common[-1],
            "base": "nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04",
            "index": (*first.index, *second.index),
            "gpus": ("T4",),
        }
        for driver in ("450.80.02", "580.65.06"):
            cells = make(first.text, second.text, **place), make(first.text, pip=(second.text,), **place)
            both, beside = (check(cell, driver=driver, suggest=False) for cell in cells)
            assert {(f.rule, f.message) for f in beside} >= {(f.rule, f.message) for f in both}, second.text
            assert Outcome.of(beside).severity >= Outcome.of(both).severity
            compared += 1
    assert compared


def _spread(name: str) -> list[str]:
    rows = load().frameworks[name].rows
    return [row.version for row in (rows[0], rows[len(rows) // 2], rows[-1])]


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("jax[cuda12]==0.4.30", Outcome.IMPOSSIBLE),  # wants cuDNN 9, torch 2.3.1 pins 8.9.2.26
        ("jax[cuda12]==0.4.26", Outcome.POSSIBLE),
        ("jax==0.4.30", Outcome.WARNS),  # on the CPU
        ("cupy-cuda12x>=13", Outcome.UNKNOWN),
        ("cupy-cuda11x==13.6.0", Outcome.IMPOSSIBLE),
        ("torch>=2", Outcome.POSSIBLE),
        ("onnxruntime==1.17.1", Outcome.POSSIBLE),  # the build for the CPU
    ],
)
def test_what_stands_under_pip_beside_a_pytorch_of_cuda_12_and_cudnn_8(make, text: str, outcome) -> None:
    cell = make("torch==2.3.1", python="3.11", base="rootfs:debian/bookworm", cuda="wheels", pip=(text,))
    found = check(replace(cell, gpus=("A100",), pip=(text, "numpy<2")), driver="550.54.14", suggest=False)
    assert Outcome.of(found) is outcome, [(f.rule, f.message) for f in found if f.outcome.severity > 1]
