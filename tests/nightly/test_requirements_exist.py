"""Each requirement of each release has a wheel on the index today, or ``check`` says that one is missing."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from builder.core.model import Base, Cell, Cuda
from builder.plan.facts.reading.framework_wheel import read_wheel
from builder.plan.facts.reading.observed import metadata_of
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import Outcome
from builder.plan.facts.tables.loader import load
from builder.sources.index.client import Index, pages
from builder.sources.index.target import Target, environment, rank, takes, wheel_name

pytestmark = pytest.mark.long

PYTHON = "3.6"
"""Older ones have too little left on the index to be worth a row each."""


def wheel_for(files, asked: Requirement, tags, python: str) -> bool:
    """Whether a resolver finds a standing wheel of it."""
    for file in files:
        wheel = wheel_name(file.name)
        if wheel is None or file.yanked is not None or not takes(file.requires_python, python):
            continue
        if asked.specifier.contains(wheel.version) and rank(file.name, tags) is not None:
            return True
    return False


def lacking(index: Index):
    """``(distribution, version, extra, Python)`` with the requirements that no wheel meets."""
    rows = [row for table in load().frameworks.values() for row in table.rows if row.default]
    listed = pages({row.distribution for row in rows}, index)

    def metadata(row):
        files = [f for f in listed[row.distribution] if f.name.endswith(("x86_64.whl", "any.whl"))]
        mine = [f for f in files if (w := wheel_name(f.name)) and str(w.version) == row.version]
        return metadata_of(read_wheel(mine[-1], index.client, "metadata").metadata) if mine else None

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(metadata, rows))
    asked = defaultdict(list)
    for row, said in zip(rows, told, strict=True):
        for asking in map(Requirement, said.requires if said is not None else ()):
            for extra in ("", *({"and-cuda", "cuda", "cudnn", row.variant} & {*row.extras, *row.aliases})):
                for python in row.python:
                    here, plain = (
                        asking.marker is None
                        or asking.marker.evaluate(environment(f"{python}.0", machine="x86_64", extra=one))
                        for one in (extra, "")
                    )
                    if here and (not extra or not plain):
                        asked[row.distribution, row.version, extra, python].append(asking)
    needed = pages({one.name for every in asked.values() for one in every}, index)
    tags = {
        python: Target(python=python, platform="linux/amd64", glibc="2.41").tags() for *_, python in asked
    }
    for place, every in asked.items():
        python = place[-1]
        missing = []
        for one in every:
            files = needed[canonicalize_name(one.name)]
            assert not isinstance(files, str), files  # an index that is silent proves nothing
            if not wheel_for(files, one, tags[python], python):
                missing.append(str(one))
        if missing:
            yield place, missing


def test_check_says_which_requirement_has_no_wheel() -> None:
    quiet, asked = [], 0
    for (name, version, extra, python), missing in lacking(Index.from_user(brief=True)):
        if tuple(map(int, python.split("."))) < tuple(map(int, PYTHON.split("."))):
            continue
        asked += 1
        text = f"{name}[{extra}]=={version}" if extra else f"{name}=={version}"
        cell = Cell(
            id="",
            matrix="",
            frameworks=(text,),
            python=python,
            base=Base(kind="rootfs", name="debian/trixie"),
            cuda=Cuda(provider="wheels"),
        )
        said = {f.outcome for f in check(cell, suggest=False) if f.rule in {"known-bad", "yanked"}}
        if not said & {Outcome.WARNS, Outcome.IMPOSSIBLE}:
            quiet.append(f"{text} on Python {python}: {', '.join(missing)}")
    assert asked, "nothing lacks anything: the index was not asked"
    assert not quiet, "\n".join(quiet)
