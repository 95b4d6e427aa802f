"""check --fix: comments stay, the refused cell is excluded, and the file is sound or is not written."""

from __future__ import annotations

import pytest
from rtbuild_command import called

from builder.cli.commands import check as command
from builder.core.errors import UsageError
from builder.plan.matrix import load

HEAD = """# kept
version: 1
name: m
defaults:
  pip: [numpy]   # kept too
axes:
  framework: [torch==2.1.2, torch==2.9.1]
  python: ["3.12"]
  base: [rootfs:debian/bookworm]
  cuda: [wheels]
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RTBUILD_CACHE", str(tmp_path / "cache"))


def check(path, **options) -> int:
    return called(command.check, [path], **({"json_": True, "fix": True} | options))


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "include:\n- {framework: torch==2.8.0, python: 3.11, base: debian:bookworm, cuda: wheels}  # mine\n",
        "exclude:\n    # why\n    - {framework: 'torch==2.9*', reason: later}\noptions: {slim: false}\n",
    ],
)
def test_a_refused_cell_gives_way(tmp_path, capsys, rest: str) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(HEAD + rest)
    path.chmod(0o640)
    assert check(path) == 0
    text = path.read_text()
    for line in (HEAD + rest).splitlines():
        assert line in text
    assert path.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in tmp_path.glob(".m*")] == []
    matrix = load(path)
    gone = next(cell for cell in matrix.cells if cell.frameworks == ("torch==2.1.2",) and cell.excluded)
    assert gone.excluded is not None
    assert gone.excluded.startswith("python: PyTorch 2.1.2 ")
    new = next(cell for cell in matrix.cells if cell.frameworks == ("torch==2.1.2",) and not cell.excluded)
    assert (new.python, new.pip) == ("3.11", ("numpy", "numpy<2"))
    assert "excluded; in its place: pip: numpy<2, python: 3.11" in capsys.readouterr().err
    assert check(path, fix=False) == 0
    assert check(path) == 0
    assert path.read_text() == text


def test_what_cannot_be_changed_stays_as_it_is(tmp_path) -> None:
    path = tmp_path / "m.yaml"
    for rest in ("exclude: [{framework: 'torch==2.9*', reason: later}]\n", "include: []\n"):
        path.write_text(HEAD + rest)
        with pytest.raises(UsageError, match="is written in brackets"):
            check(path)
        assert path.read_text() == HEAD + rest


def test_a_cell_that_nothing_can_be_done_for(tmp_path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(HEAD.replace("torch==2.1.2, torch==2.9.1", "torch==2.9.7"))
    before = path.read_text()
    assert check(path) == 1
    assert path.read_text() == before


def test_a_release_that_defaults_give_each_cell_cannot_be_changed_for_one(tmp_path, capsys) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(HEAD.replace("3.12", "3.11").replace("[numpy]", "[torchvision==0.24.1]"))
    before = path.read_text()
    words = (
        "`pip` of `defaults` has torchvision==0.24.1 for each cell, and .*-fixed needs torchvision==0.16.2"
    )
    with pytest.raises(UsageError, match=words):
        check(path)
    assert path.read_text() == before
    assert "in its place" not in capsys.readouterr().err


def test_cells_that_differ_in_their_packages_alone_are_each_replaced(tmp_path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(
        """version: 1
name: m
defaults: {python: "3.11", base: "rootfs:debian/bookworm", cuda: wheels}
include:
  - {framework: torch==2.10.0, variant: vision, pip: [torchvision==0.20.1]}
  - {framework: torch==2.9.1, pip: [torchvision==0.20.1]}
  - {framework: torch==2.10.0, variant: eyes, pip: [opencv-python, opencv-python-headless]}
"""
    )
    assert check(path) == 0
    new = {cell.variant: cell.pip for cell in load(path).cells if cell.excluded is None}
    assert new == {
        "vision-fixed": ("torchvision==0.25.0",),
        "fixed": ("torchvision==0.24.1",),
        "eyes-fixed": ("opencv-python-headless",),
    }
    assert check(path, fix=False) == 0


def test_a_matrix_without_a_name_is_mended_too(tmp_path) -> None:
    """Its name is its file's, and the new text was read from another file."""
    path = tmp_path / "m.yaml"
    path.write_text(HEAD.replace("name: m\n", ""))
    assert check(path) == 0
    assert [cell.python for cell in load(path).cells if cell.excluded is None] == ["3.12", "3.11"]
