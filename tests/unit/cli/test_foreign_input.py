"""Whatever a file holds, the answer is an answer: no traceback, and nothing that a terminal obeys."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from foreign_input import CONTROL, cases, logs, typed, written

import builder
from builder.cli.console.terminal import Terminal, print_json, say, show
from builder.sources.index.client import Index

GROUPS = ("requirements", "pyproject", "conda", "notebook", "freeze", "-")
"""Kinds of files; ``-`` are whole files."""


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_every_hostile_place_of_every_file_is_answered(
    group: str, tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Index, "from_user", classmethod(_no_index))
    monkeypatch.chdir(tmp_path)
    wrong = []
    mine = [case for case in cases() if case.name.startswith(group)]
    assert len(mine) > 20
    for case in mine:
        began = time.process_time()
        code = typed(*written(case, tmp_path), monkeypatch=monkeypatch)
        printed = capsys.readouterr()
        said = printed.out + printed.err
        if code not in (0, 1, 2, 7) or (code and "error: " not in said):
            wrong.append((case.name, code, said[-300:]))
        elif (found := CONTROL.search(said)) or len(said) > 40_000 or time.process_time() - began > 10:
            wrong.append((case.name, found, len(said), said[:300]))
    assert wrong == []


def _no_index(_cls: object, **_options: object) -> object:
    from builder.core.errors import PackageIndexError

    raise PackageIndexError("no index is asked here")


def test_every_hostile_log_is_diagnosed_and_a_device_without_an_end_within_its_seconds(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from builder.verify.cudnn_verify.read import reading

    monkeypatch.setattr(reading, "_SECONDS", 0.5)
    for case in logs():
        *_, path = written(case, tmp_path)
        kept = reading.read_all([path])
        assert not any(CONTROL.search(line.text) for line in kept.lines), case.name
    began = time.monotonic()
    assert "too long" in reading.read_all(["/dev/zero"]).notes[-1]
    assert time.monotonic() - began < 60


def test_commands_print_by_the_console_alone() -> None:
    """So that its one filter sees every foreign text; the exceptions print bytes, or run elsewhere."""
    root = Path(builder.__file__).parent
    apart = {
        "cli/console/terminal.py",
        "core/items.py",
        "release/dispatch/node.py",
        "image/recipe/slim.py",
        "release/colab/runtimes.py",
        "release/colab/diff.py",
    }
    assert all((root / name).is_file() for name in apart)
    for path in root.rglob("*.py"):
        name = path.relative_to(root).as_posix()
        if name in apart or name.startswith(("verify/cudnn_verify/", "release/colab/runtime/")):
            continue
        found = re.findall(r"sys\.std(?:out|err)\.write\w*\(|^\s*print\(", path.read_text(), re.MULTILINE)
        assert found == [], name


@pytest.mark.parametrize(
    "code", sorted({*range(0x20), 0x7F, *range(0x80, 0xA0), 0x202E, 0x2066, 0x61C} - {9, 10})
)
def test_no_control_character_passes_the_console(code: int, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = f"a{chr(code)}[2Jb"
    say(foreign)
    show(foreign)
    Terminal.of().say(foreign)
    print_json({"a": [foreign]})
    printed = capsys.readouterr()
    assert chr(code) not in printed.out + printed.err
    assert json.loads(printed.out.partition("\n")[2])["a"] == [foreign]
    styled = Terminal(progress="plain", color=True, github=False).style("x", "31;1")
    show(styled)
    assert capsys.readouterr().out == styled + "\n"
