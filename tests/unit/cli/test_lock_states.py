"""In each state of a lock, each command that reads it says what is true of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from foreign_input import typed

MATRIX = Path(__file__).resolve().parents[3] / "matrices" / "tf28.yaml"
CELL = "*py3.9*"
COMMANDS = (("check",), ("explain", CELL), ("lock", "--check"), ("render", "--locked"), ("size", CELL))


def _newer(document: dict) -> None:
    document["schema"] = 2


def _renamed(document: dict) -> None:
    document["cells"] = {"other": next(iter(document["cells"].values()))}


def _moved(document: dict) -> None:
    for cell in document["cells"].values():
        cell["inputs"] = "sha256:" + "0" * 64
        cell["apt"] = ["zip"]


STATES = {
    "schema": (_newer, 2, "a newer rtbuild wrote it"),
    "missing": (_renamed, 4, "missing: it is not in the lock"),
    "stale": (_moved, 4, "stale: the matrix names other Debian packages"),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_each_command_says_in_what_state_the_lock_is(
    command: tuple[str, ...],
    state: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    change, code, words = STATES[state]
    (tmp_path / "tf28.yaml").write_text(MATRIX.read_text())
    document = json.loads(MATRIX.with_name("tf28.lock.json").read_text())
    change(document)
    (tmp_path / "tf28.lock.json").write_text(json.dumps(document))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RTBUILD_CACHE", str(tmp_path / "cache"))
    first = command[0]
    arguments = (*command, "tf28.yaml")
    found = typed(*arguments, monkeypatch=monkeypatch)
    said = capsys.readouterr()
    assert words in said.err, said
    assert found == (0 if first in {"check", "explain"} and code == 4 else code)
