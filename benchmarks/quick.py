"""What needs no engine: how fast commands start, and a matrix of a thousand cells."""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.rig import PROGRAM, installed_env, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_RUNS = 7

THOUSAND = """\
version: 1
name: thousand
defaults:
  base: rootfs:debian/bookworm
  python: "3.11"
  cuda: wheels
axes:
  framework: [{frameworks}]
  variant: [{variants}]
"""


def commands(say: Callable[[str], None]) -> dict[str, Any]:
    """`rtbuild --help` beside `python -c pass`, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        ours, pass_ = [], []
        for _ in range(_RUNS + 1):
            env = installed_env(Path(folder))
            ours.append(run([*PROGRAM, "--help"], env=env, cwd=Path(folder))[0])
            pass_.append(run([sys.executable, "-c", "pass"], env=env, cwd=Path(folder))[0])
    figures = {"help": _median(ours[1:]), "pass": _median(pass_[1:])}
    say(f"help: {figures['help']:.3f} s, pass: {figures['pass']:.3f} s")
    return {"help": figures}


def thousand(say: Callable[[str], None]) -> dict[str, Any]:
    """`list` and `check` of 1,000 cells: 20 frameworks that work, 50 variants of each."""
    figures: dict[str, Any] = {}
    frameworks = [f"torch==2.{minor}.{patch}" for minor in range(2, 7) for patch in (0, 1)]
    frameworks += [
        f"'tensorflow[and-cuda]==2.{minor}.{patch}'" for minor in range(14, 19) for patch in (0, 1)
    ]
    text = THOUSAND.format(
        frameworks=", ".join(frameworks), variants=", ".join(f"v{number}" for number in range(50))
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "thousand.yaml"
        path.write_text(text)
        for command in ("list", "check"):
            runs = [run_any([*PROGRAM, command, str(path)], Path(folder)) for _ in range(_RUNS)][1:]
            figures[command] = {"seconds": _median(runs), "runs": [round(seconds, 3) for seconds in runs]}
            say(f"thousand {command}: {figures[command]['seconds']:.2f} s")
    return {"thousand": figures}


def run_any(command: Sequence[str], folder: Path) -> float:
    """Seconds of a command that may also say 1: a cell in a thousand that cannot work is no failure here."""
    words = ["sh", "-c", '"$@" || test $? -eq 1', "sh", *command]
    return run(words, env=installed_env(folder), cwd=folder)[0]


def _median(runs: list[float]) -> float:
    return round(statistics.median(runs), 3)
