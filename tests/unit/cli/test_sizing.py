"""``rtbuild size``: one cell, two cells, and the ways to ask for what is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rtbuild_command import called

from builder.cli.commands.size import size
from builder.core.errors import StaleLockError, UsageError

MATRICES = Path(__file__).resolve().parents[3] / "benchmarks" / "matrices"
FIRST, NEXT = "tensorflow2.8.4-py3.9-bullseye-cudnn8.6.0.163", "tensorflow2.11.1-*"


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RTBUILD_CACHE", str(tmp_path))


def test_from_the_lock_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert called(size, FIRST, [MATRICES / "tf.yaml"], json_=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["cell"] == FIRST
    assert 4e9 < document["unpacked"] < 6e9
    assert sum(layer["unpacked"] for layer in document["layers"]) == document["unpacked"]
    assert document["packages"][0]["name"] in {"tensorflow", "nvidia-cudnn-cu11"}


def test_the_page_says_what_is_estimated(capsys: pytest.CaptureFixture[str]) -> None:
    assert called(size, FIRST, [MATRICES / "tf.yaml"]) == 0
    page = capsys.readouterr().out
    assert "~ is estimated from the lock" in page


def test_two_cells(capsys: pytest.CaptureFixture[str]) -> None:
    assert called(size, FIRST, [MATRICES / "tf.yaml"], against=NEXT, json_=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert "nvidia-cudnn-cu11 8.6.0.163" in document["both"]["layers"]
    assert [only["layers"][0] for only in document["only"]] == ["tensorflow 2.8.4", "tensorflow 2.11.1"]
    assert any(row["change"] == "tensorflow 2.8.4 → 2.11.1" for row in document["packages"])
    assert called(size, FIRST, [MATRICES / "tf.yaml"], against=NEXT) == 0
    assert "layers of both" in capsys.readouterr().out


@pytest.mark.parametrize(("cell", "count"), [("tensorflow*", 3)])
def test_a_glob_that_names_several(cell: str, count: int) -> None:
    with pytest.raises(UsageError, match=f"names {count} cells"):
        called(size, cell, [MATRICES / "tf.yaml"])


def test_a_cell_that_is_not_locked(tmp_path: Path) -> None:
    path = tmp_path / "tf.yaml"
    path.write_text((MATRICES / "tf.yaml").read_text())
    with pytest.raises(StaleLockError, match="missing: there is no lock yet"):
        called(size, FIRST, [path])
