"""Whether the packages of a lock can be imported: read out of wheels, kept, judged."""

from __future__ import annotations

from pathlib import Path

import pytest
from facts_shelf import Shelf

from builder.core.model import Cell, Pinned, RootfsBase
from builder.plan.facts.reading.cache import ReadingCache
from builder.plan.facts.rules.checking import check


def wheel(name: str, version: str, members: dict[str, bytes | str]) -> dict[str, dict]:
    stem = f"{name}-{version}"
    return {f"{stem}-py3-none-any.whl": {f"{stem}.dist-info/METADATA": "Metadata-Version: 2.1\n", **members}}


def judged(cell: Cell, folder: Path, *wheels: dict[str, dict]) -> list[tuple[str, str]]:
    """What the rule says of a lock of these wheels, read from an index, then by what was kept alone."""
    shelf = Shelf({file: members for one in wheels for file, members in one.items()})
    readings = ReadingCache(cache=folder)
    locked = Pinned(
        cell=cell, base=RootfsBase(suite="bookworm", debs=(), epoch=0), wheels=shelf.wheels(), epoch=0
    )
    readings.read_imports(cell, locked, shelf)  # type: ignore[arg-type]
    truth = ReadingCache(cache=folder).truth(cell, locked, links=True)
    return [(one.outcome.value, one.message) for one in check(cell, truth, only=("imports",))]


@pytest.fixture
def cell(make):
    return make("torch==2.11.0", python="3.12", base="rootfs:debian/bookworm", cuda="wheels", pip=("taker",))


def test_a_name_that_the_other_wheel_lacks_is_refused(cell, tmp_path) -> None:
    taker = wheel(
        "taker",
        "1.0",
        {"taker/__init__.py": "from . import inner\n", "taker/inner.py": "\nfrom giver.sub import gone\n"},
    )
    giver = wheel("giver", "2.0", {"giver/__init__.py": "", "giver/sub.py": "there = 1\n"})
    ((outcome, text),) = judged(cell, tmp_path, taker, giver)
    assert outcome == "impossible"
    assert text.startswith(
        "taker 1.0 imports giver.sub.gone, which giver 2.0 does not have: the import ends;"
    )
