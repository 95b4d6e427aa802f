"""Text fits whatever terminal there is: its encoding, its width, its patience."""

from __future__ import annotations

import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

import pytest

from builder.cli.console import lines as lines_module
from builder.cli.console.lines import reporter
from builder.cli.console.terminal import Terminal, seconds_left, shortened, wrapped
from builder.pipeline.events import RunStarted, Stage, StageProgress, StageStarted

ROOT = Path(__file__).resolve().parents[4]
ID = "tensorflow2.8.4-py3.9-bullseye-cudnn8.6.0.163"
BOARD = f"""
import time
from builder.cli.console.terminal import Terminal
from builder.cli.console.lines import reporter
from builder.pipeline.events import RunStarted, Stage, StageProgress, StageStarted
with reporter(Terminal(progress="tty", color=False, github=False)) as board:
    board(RunStarted(cells=("{ID}",), stages=(Stage.FETCH,)))
    board(StageStarted(cell="{ID}", stage=Stage.FETCH))
    board(StageProgress(cell="{ID}", stage=Stage.FETCH, text="12 of 54 wheels, 2.3 GB", done=12, total=54))
    time.sleep(0.6)  # the board is drawn eight times a second
    clock, time.monotonic = time.monotonic, lambda: clock() + 3  # until then the pace is not known
    time.sleep(0.3)
"""


def on_a_terminal(command: list[str], *, columns: int) -> str:
    """What a command prints on a pseudo-terminal of that width."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {key: value for key, value in os.environ.items() if key not in {"COLUMNS", "NO_COLOR", "CI"}}
    env |= {"TERM": "xterm", "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        found = b""
        while True:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:  # Linux says so where the other side has closed
                break
            found += piece
        assert process.wait() == 0, found.decode()
    os.close(ours)
    return found.decode()


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_board_keeps_stage_and_time_and_cuts_the_middle_of_an_id(columns: int) -> None:
    shown = on_a_terminal([sys.executable, "-c", BOARD], columns=columns)
    rows = [line for line in re.split(r"[\r\n]+|\x1b\[[0-9;?]*[A-Za-z]", shown) if line.strip()]
    assert all(len(row) <= columns for row in rows)
    last = rows[-1]
    assert last.startswith("tensorflow2.")
    assert last.split()[0].endswith("163")
    assert (ID in last) == (columns == 200)
    assert " fetch " in last
    assert re.search(r" [\d.]+ s, \d+ s left$", last.rstrip())
    assert len({row for row in rows if "fetch" in row}) > 1, "a board moves"


def test_words_stay_whole() -> None:
    text = "  hint: build with an engine, or name " + "x" * 40 + " and sha256:" + "a" * 64
    broken = wrapped(text, 40).split("\n")
    assert broken[0].startswith("  hint:")
    assert all(line.startswith("    ") for line in broken[1:])
    assert " ".join(line.strip() for line in broken) == text.strip()
    assert all(len(line) <= 40 or " " not in line.strip() for line in broken)


def test_colours_take_no_room() -> None:
    """A warning in colour was cut in the middle of a word by the terminal."""
    text = "\x1b[33;1mUNVERIFIED: no GPU on this machine, so no convolution ran.\x1b[0m"
    assert wrapped(text, 58) == text
    assert wrapped(text, 40) == (
        "\x1b[33;1mUNVERIFIED: no GPU on this machine, so\n  no convolution ran.\x1b[0m"
    )
    row = "cell  \x1b[32m+ works\x1b[0m  rtbuild/cell:id  144.9 MB  in 4.1 s"
    assert wrapped(row, 32).split("\n") == [row[: row.index("  144")], "  144.9 MB  in 4.1 s"]


@pytest.mark.parametrize("columns", [40, 200])
def test_a_page_fits_the_terminal_that_it_is_shown_on(columns: int) -> None:
    text = "    pins: the cell wants one version, and the framework wants another one: no version is both"
    code = f"from builder.cli.console.terminal import show; show({text!r}, hang=2)"
    shown = on_a_terminal([sys.executable, "-c", code], columns=columns).split("\r\n")
    assert " ".join(line.strip() for line in shown).strip() == text.strip()
    assert (len(shown) > 2) == (columns == 40)
    assert all(len(line) <= columns for line in shown)


@pytest.mark.parametrize("width", [5, 16, 24, 44, 45, 46])
def test_an_id_is_cut_in_its_middle(width: int) -> None:
    short = shortened(ID, width)
    assert len(short) == min(width, len(ID))
    assert ID.startswith(short.partition("…")[0])
    assert ID.endswith(short.rpartition("…")[2])


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "koi8-r"])
def test_any_encoding_will_do(encoding: str) -> None:
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    script = (
        "from builder.cli.boundary import guarded\n"
        "from builder.cli.console.terminal import print_json\n"
        "import sys\n"
        "def program():\n"
        "    print('✓ 1.6 GB … → é ⛔')\n"
        "    print_json({'name': '✓é⛔'})\n"
        "    sys.stderr.write('✗ bad\\n')\n"
        "    return 0\n"
        "sys.exit(guarded(program))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode(encoding)
    assert "1.6 GB" in text
    assert "?" in text
    assert json.loads(text.partition("\n")[2]) == {"name": "✓é⛔"}
    assert done.stderr.decode(encoding).endswith(" bad\n")


def test_a_pace_says_what_is_left() -> None:
    assert seconds_left(10.0, 20, 100) == pytest.approx(40.0)
    assert seconds_left(1.0, 20, 100) is None
    assert seconds_left(10.0, 0, 100) is None
    assert seconds_left(6.0, 4, 100) is None, "it said 921 minutes of 49 MB of which 5 kB were there"
    assert seconds_left(10.0, None, None) is None
    assert seconds_left(10.0, 100, 100) is None


def test_a_stage_that_says_nothing_is_named_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lines_module, "_SILENCE", 0.5)
    with reporter(Terminal(progress="plain", color=False, github=False)) as lines:
        lines(RunStarted(cells=(ID,), stages=(Stage.BUILD,)))
        lines(StageStarted(cell=ID, stage=Stage.BUILD))
        said, limit = "", time.monotonic() + 60
        while "build: under way for " not in said:
            assert time.monotonic() < limit
            time.sleep(0.1)
            said += capsys.readouterr().err
        lines(StageProgress(cell=ID, stage=Stage.BUILD, text="step 3 of 9", done=3, total=9))
    said += capsys.readouterr().err
    assert re.search(rf"^{ID}  build: under way for [\d.]+ s$", said, re.MULTILINE)
    assert f"{ID}  build: step 3 of 9" in said.splitlines()[-1]
