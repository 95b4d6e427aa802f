"""Classes of wrong answers, each asked of every row of the tables, so nobody has to know the next case."""

from __future__ import annotations

from itertools import groupby

import pytest
from packaging.requirements import Requirement

from builder.facts import check, summary
from builder.facts.candidates import choices
from builder.facts.reading import _plugins
from builder.facts.tables import load

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
        assert summary(found).answer != "possible"
    assert asked > 5 or platform == "linux/amd64"
