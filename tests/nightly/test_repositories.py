"""What people bring: the requirements of public repositories of ten years, resolved as they stand.

Each has a set of wheels (``locks``), or a refusal that says what would do; that is then taken, and has a set
of wheels: of all that is asked for in near releases (``near``), or without some of it (``served``). Each
change has its reason.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rtbuild_command import rtbuild

from builder.plan.resolve.loosening import PYTHONS_OWN

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long

COLLECTION = tomllib.loads(Path(__file__).with_name("repositories.toml").read_text())["repository"]
SECONDS = 900
ORDER = ("wrong", "served", "near", "locks")
NOT_LOST = ("write the same files", PYTHONS_OWN)


def answer(folder: Path, file: str) -> tuple[str, str]:
    """``locks``, ``near``, ``served`` or ``wrong``, and the words that tell.

    Skips what a silent index leaves open.
    """
    done = rtbuild(folder, "resolve", "-r", file, "--json", check=None, timeout=SECONDS)
    document = json.loads(done.stdout)
    if done.returncode == 0:
        first = document["proposals"][0]
        if document["changes"]:
            return "wrong", "changed without being asked"
        if not first["resolved"]:
            pytest.skip(first["reason"])
        return "locks", document["matrix"]
    if done.returncode not in {1, 7} or "what would do:" not in done.stderr:
        return "wrong", done.stderr
    taken = rtbuild(folder, "resolve", "-r", file, "--nearest", "--json", check=None, timeout=SECONDS)
    way = json.loads(taken.stdout)
    changes = way.get("changes", [])
    told = all(one["reason"] for one in changes)  # none, where something is compiled untried
    if taken.returncode != 0 or not told:
        return "wrong", done.stderr
    if not way["proposals"][0]["resolved"]:
        pytest.skip(way["proposals"][0]["reason"])
    lost = [
        one for one in changes if one["instead"] is None and not any(why in one["reason"] for why in NOT_LOST)
    ]
    return ("served" if lost else "near"), done.stderr


@pytest.fixture(scope="module")
def counts() -> Iterator[Counter[str]]:
    """How many repositories have each answer so far; printed at the end, too, and after Ctrl-C."""
    so_far: Counter[str] = Counter()
    yield so_far
    print(f"\n{dict(so_far)}", flush=True)


@pytest.mark.parametrize("repository", COLLECTION, ids=lambda one: one["name"])
def test_a_repository_is_served(repository: dict[str, str], tmp_path: Path, counts: Counter[str]) -> None:
    file = Path(repository["path"]).name
    (tmp_path / file).write_text(repository["requirements"])
    found, words = answer(tmp_path, file)
    counts[found] += 1
    line = f"{repository['year']} {repository['name']}: {found}, so far {dict(counts)}"
    print(f"\n{line}\n{words}", flush=True)
    assert ORDER.index(found) >= ORDER.index(repository["answer"]), words


def test_the_collection_is_one_of_ten_years_and_most_is_pinned() -> None:
    assert len({one["name"] for one in COLLECTION}) == len(COLLECTION) == 40
    assert {one["year"] for one in COLLECTION} == set(range(2017, 2027))
    assert all(len(one["commit"]) == 40 for one in COLLECTION)
