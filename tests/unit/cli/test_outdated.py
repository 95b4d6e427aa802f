"""``rtbuild outdated``: exit codes, and what is said of cells about which something stays open."""

from __future__ import annotations

from pathlib import Path

import pytest
from rtbuild_command import called

from builder.cli.commands import outdated as module
from builder.plan.lock import Outdated, file

MATRICES = Path(__file__).resolve().parents[3] / "benchmarks" / "matrices"


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, ...]]:
    """What every cell is answered."""
    found: dict[str, tuple[str, ...]] = {}
    monkeypatch.setattr(module, "pages", lambda *_: {})
    monkeypatch.setattr(module, "ask", lambda *_, **__: Outdated(changes=(), **{"unknown": (), **found}))
    return found


@pytest.mark.parametrize(("left", "code"), [(None, 0), ("unknown", 5), ("unasked", 5)])
def test_what_nobody_asked_is_no_good_news(
    answer: dict[str, tuple[str, ...]], left: str | None, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    if left is not None:
        answer[left] = ("the packages",)
    assert called(module.outdated, [MATRICES / "tf.yaml"]) == 0
    assert ("nothing newer\n" in capsys.readouterr().out) is (left is None)
    assert called(module.outdated, [MATRICES / "tf.yaml"], fail_on="security") == code
    assert called(module.outdated, [MATRICES / "tf.yaml"], fail_on="any") == code


def test_a_lock_is_read_once(
    answer: dict[str, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read: list[Path] = []
    whole = file.read_file
    monkeypatch.setattr(file, "read_file", lambda path: (read.append(path), whole(path))[1])
    assert called(module.outdated, [MATRICES / "tf.yaml"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert len(read) == 1


def test_a_cell_that_is_not_locked_is_not_known(
    answer: dict[str, tuple[str, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tf.yaml"
    path.write_text((MATRICES / "tf.yaml").read_text())
    assert called(module.outdated, [path], fail_on="any") == 5
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2 * 3  # a line for each cell, and one that says why
    assert all(line.endswith("missing: there is no lock yet") for line in said[1::2])
