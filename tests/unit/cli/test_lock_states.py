"""In each state of a lock, each command that reads it says what is true of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from foreign_input import typed

if TYPE_CHECKING:
    from collections.abc import Callable

MATRIX = Path(__file__).resolve().parents[3] / "matrices" / "tf28.yaml"
CELL = "*py3.9*"
COMMANDS = (
    ("check",),
    ("explain", CELL),
    ("lock", "--check"),
    ("render", "--locked"),
    ("build", "--engine", "none", "--output", "images", "--locked", "-s", CELL),
    ("size", CELL),
)


def _newer(document: dict) -> None:
    document["schema"] = 2


def _renamed(document: dict) -> None:
    document["cells"] = {"other": next(iter(document["cells"].values()))}


def _moved(document: dict) -> None:
    for cell in document["cells"].values():
        cell["inputs"] = "sha256:" + "0" * 64
        cell["apt"] = ["zip"]


def _other_digest(document: dict) -> None:
    for cell in document["cells"].values():
        cell["inputs"] = "sha256:" + "0" * 64


def _set(**fields: str) -> Callable[[dict], None]:
    def change(document: dict) -> None:
        document["wheels"][WHEEL].update(fields)

    return change


def _without_wheel(document: dict) -> None:
    for cell in document["cells"].values():
        cell["wheels"].remove(WHEEL)


WHEEL = "tensorflow-2.8.4-cp39-cp39-manylinux2010_x86_64.whl"
DAMAGED = "is not as rtbuild wrote it, but damaged or changed by hand: "
FILE = f"{DAMAGED}wheel {WHEEL}: its file {WHEEL}"
STATES: dict[str, tuple[Callable[[dict], None] | None, int, str]] = {
    "schema": (_newer, 2, "a newer rtbuild wrote it"),
    "absent": (None, 4, "missing: there is no lock yet"),
    "missing": (_renamed, 4, "missing: it is not in the lock"),
    "stale": (_moved, 4, "stale: the matrix names other Debian packages"),
    "other digest of inputs": (_other_digest, 4, "stale: its digest of inputs is of another matrix"),
    "no digest of inputs": (
        lambda document: document["cells"][next(iter(document["cells"]))].update(inputs="0"),
        2,
        f"{DAMAGED}cells.tensorflow2.8.4-py3.9-bullseye-cudnn8.6.0.163.inputs: ",
    ),
    "other version": (_set(version="2.8.3"), 2, f"{FILE} is tensorflow 2.8.4, not tensorflow 2.8.3"),
    "other name": (_set(name="tensorboard"), 2, f"{FILE} is tensorflow 2.8.4, not tensorboard 2.8.4"),
    "no name of a wheel": (_set(file="tensorflow-2.8.4.whl"), 2, "tensorflow-2.8.4.whl is not named"),
    "no hash": (_set(sha256="0"), 2, f"{DAMAGED}wheels.{WHEEL}.sha256: "),
    "another Python's wheel": (
        _set(file=WHEEL.replace("cp39", "cp38")),
        4,
        f"changed by hand: {WHEEL.replace('cp39', 'cp38')} is not for Python 3.9 on linux/amd64; the digest",
    ),
    "another release": (
        _set(file=WHEEL.replace("2.8.4", "2.8.3"), version="2.8.3"),
        4,
        "changed by hand: it has tensorflow 2.8.3, and the matrix asks for tensorflow==2.8.4",
    ),
    "a framework less": (
        _without_wheel,
        4,
        "changed by hand: it has no tensorflow, and the matrix asks for tensorflow==2.8.4",
    ),
}  # fmt: skip
ROUTINE = {"absent", "missing"}
"""States in which a matrix is judged as it stands, without a word."""


def test_a_check_names_the_cells_that_are_not_locked_and_the_command_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of two is locked: that is no lock of another matrix."""
    for name in ("tf28.yaml", "tf28.lock.json"):
        (tmp_path / name).write_bytes(MATRIX.with_name(name).read_bytes())
    monkeypatch.chdir(tmp_path)
    assert typed("lock", "--check", "tf28.yaml", monkeypatch=monkeypatch) == 4
    said = capsys.readouterr().err
    cell = "tensorflow2.8.4-py3.8-cuda11.2.2-cudnn8-ubuntu20.04"
    assert f"the lock has no entry that fits 1 of 2 cells (tf28.lock.json): {cell}: missing" in said
    assert f"`rtbuild lock tf28.yaml -s {cell}`" in said
    assert typed("lock", "--check", "tf28.yaml", "-s", "*bullseye*", monkeypatch=monkeypatch) == 0


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
    if change is not None:
        change(document)
        (tmp_path / "tf28.lock.json").write_text(json.dumps(document))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RTBUILD_CACHE", str(tmp_path / "cache"))
    judges = command[0] in {"check", "explain"}
    found = typed(*command, "tf28.yaml", monkeypatch=monkeypatch)
    said = capsys.readouterr()
    if judges and state in ROUTINE:
        assert not said.err, said
    else:
        assert words in said.err, said
        assert said.err.count("\nnote: ") + said.err.startswith("note: ") <= 1, said
    assert found == (0 if judges and code == 4 else code), said
