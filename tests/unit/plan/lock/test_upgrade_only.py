"""`rtbuild lock --upgrade-only` against an index on loopback: what is named moves, and what that forces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from doubles.package_index import PackageIndexDouble, sha256
from lock_values import lock_deb
from rtbuild_command import inside

from builder.core.model import Pinned, RootfsBase, Wheel
from builder.plan.lock.file import lock_path, merge
from builder.plan.matrix import load

if TYPE_CHECKING:
    from pathlib import Path

MATRIX = """\
version: 1
name: small
defaults: {python: "3.11", base: "rootfs:debian/bookworm", cuda: none}
include:
  - {framework: first==1.0, pip: [six, beside]}
  - {framework: second==1.0, pip: [numpy, beside]}
"""
NAMES = ("first", "second", "six", "plug-in", "beside", "numpy", "pip")
CELLS = (("first", "six", "plug-in", "beside", "pip"), ("second", "numpy", "beside", "pip"))


@pytest.fixture
def folder(fake_index: PackageIndexDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two locked cells, and an index that since has a newer release of each package.

    The newer six asks for a newer plug-in.
    """
    monkeypatch.setenv("UV_DEFAULT_INDEX", fake_index.url)
    (tmp_path / "small.yaml").write_text(MATRIX)
    matrix = load(tmp_path / "small.yaml")
    wheels = {}
    for name in NAMES:
        path = fake_index.add(name, "1.0", requires=("plug-in",) if name == "six" else ())
        content = path.read_bytes()
        wheels[name] = Wheel(
            name=name,
            version="1.0",
            file=path.name,
            sha256=sha256(content),
            size=len(content),
            uploaded=1_668_624_574,
        )
        fake_index.add(name, "1.1", requires=("plug-in>1.0",) if name == "six" else ())
    base = RootfsBase(suite="bookworm", debs=(lock_deb("bash"),), epoch=1)
    for cell, names in zip(matrix.cells, CELLS, strict=True):
        pinned = Pinned(cell=cell, base=base, wheels=tuple(wheels[name] for name in names), epoch=1)
        merge(lock_path(matrix.path), matrix, {cell.id: pinned})
    return tmp_path


def _moved(folder: Path) -> list[dict[str, str]]:
    """Of each cell, the packages that are no longer at 1.0."""
    cells = json.loads((folder / "small.lock.json").read_text())["cells"]
    files = [[file.split("-")[:2] for file in row["wheels"]] for _, row in sorted(cells.items())]
    return [{name: version for name, version in rows if version != "1.0"} for rows in files]


def test_what_is_named_moves_and_what_it_forces(folder: Path) -> None:
    before = (folder / "small.lock.json").read_text()
    done = inside(folder, "lock", "small.yaml", "--upgrade-only", "Six", "--progress", "plain")
    assert "moved: six 1.0 -> 1.1; with them plug-in 1.0 -> 1.1" in done.stderr
    assert _moved(folder) == [{"six": "1.1", "plug_in": "1.1"}, {}]
    rows = [json.loads(text)["cells"] for text in (before, (folder / "small.lock.json").read_text())]
    changed = [cell for cell in rows[0] if rows[0][cell] != rows[1][cell]]
    assert [cell.startswith("first") for cell in changed] == [True]


def test_one_name_moves_in_each_cell_that_has_it(folder: Path) -> None:
    inside(folder, "lock", "small.yaml", "--upgrade-only", "beside")
    assert _moved(folder) == [{"beside": "1.1"}, {"beside": "1.1"}]


def test_a_slip_of_the_keyboard_moves_nothing(folder: Path) -> None:
    before = (folder / "small.lock.json").read_bytes()
    done = inside(folder, "lock", "small.yaml", "--upgrade-only", "numpi", check=2)
    assert "no lock of these cells has numpi" in done.stderr
    assert "did you mean numpy" in done.stderr
    assert (folder / "small.lock.json").read_bytes() == before


def test_a_withdrawn_release_that_nobody_names_stays(folder: Path, fake_index: PackageIndexDouble) -> None:
    fake_index.page("beside")[0]["yanked"] = "breaks"
    inside(folder, "lock", "small.yaml", "--upgrade-only", "six")
    assert _moved(folder) == [{"six": "1.1", "plug_in": "1.1"}, {}]
    inside(folder, "lock", "small.yaml", "--upgrade-only", "six", "--upgrade-only", "beside")
    assert _moved(folder) == [{"six": "1.1", "plug_in": "1.1", "beside": "1.1"}, {"beside": "1.1"}]


def test_a_file_that_is_gone_is_no_reason_to_move_in_silence(
    folder: Path, fake_index: PackageIndexDouble
) -> None:
    before = (folder / "small.lock.json").read_bytes()
    del fake_index.page("beside")[0]
    done = inside(folder, "lock", "small.yaml", "-s", "first*", "--upgrade-only", "six", check=None)
    assert done.returncode != 0
    assert "beside-1.0-py3-none-any.whl" in done.stderr
    assert "--upgrade-only beside" in done.stderr
    assert (folder / "small.lock.json").read_bytes() == before


def test_all_and_some_are_two_wishes(folder: Path) -> None:
    done = inside(folder, "lock", "small.yaml", "--upgrade", "--upgrade-only", "six", check=2)
    assert "take one of them" in done.stderr
