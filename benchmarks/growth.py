"""What rtbuild's own work costs as a matrix grows: locked cells of small wheels, a variable apart."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

from benchmarks.ours import Ours, many_cells
from benchmarks.rig import PROGRAM, BenchError
from benchmarks.sessions import HERE, REPOSITORY, Figures, Site

if TYPE_CHECKING:
    from pathlib import Path

CELLS = (1, 10, 100, 1000)
LARGEST = "colab-2025.07"
"""The matrix of the project whose lock has the most wheels in a cell."""
PLANNING = ("list", "check", "lock --check", "render --text-only --locked")
"""What is asked about its cell."""
RUNS = 3


def growth(site: Site) -> Figures:
    """`list`, `check`, `lock --check`, and a build with nothing to do, by the number of cells and of wheels.

    The images of small cells are in a registry before the clock runs; of the largest cell only the recipe is
    written. Beside the seconds, those of processor and the memory.
    """
    figures: Figures = {}
    with site.rig(None):
        ours = Ours(site, None, "small")
        fresh = {name: (ours.folder / name).read_bytes() for name in ("small.yaml", "small.lock.json")}
        for count in CELLS:
            for name, content in fresh.items():
                (ours.folder / name).write_bytes(content)
            many_cells(ours.folder, count)
            built = ours.build()
            site.say(f"{count} cells: built in {built['seconds']:.1f} s")
            nothing = ("build", "--locked", "--no-check", "--no-verify", "--progress", "none")
            for name, words in (
                ("list", ("list",)),
                ("check", ("check",)),
                ("lock --check", ("lock", "--check")),
                ("nothing to do", (*nothing, "--engine", "none", "--push", f"{REPOSITORY}/ours")),
            ):
                best = _median((*PROGRAM, words[0], "small.yaml", *words[1:]), ours)
                figures.setdefault(name, {})[f"{count:,} cell{'s' * (count != 1)}"] = best
                site.say(f"{count} cells, {name}: {best['seconds']:.2f} s, {best['memory'] / 1e6:.0f} MB")
        cell, wheels = largest(ours.folder)
        for name in PLANNING:
            verb, *options = name.split()
            best = _median((*PROGRAM, verb, f"{LARGEST}.yaml", "--select", cell, *options), ours)
            figures.setdefault(name, {})[f"1 cell of {wheels} wheels"] = best
            site.say(f"{wheels} wheels, {name}: {best['seconds']:.2f} s, {best['memory'] / 1e6:.0f} MB")
    return {"growth": figures}


def largest(folder: Path) -> tuple[str, int]:
    """Bring the largest lock of the project here; its cell, and how many wheels that has."""
    for suffix in (".yaml", ".lock.json"):
        shutil.copy(HERE.parent / "matrices" / f"{LARGEST}{suffix}", folder)
    ((name, cell),) = json.loads((folder / f"{LARGEST}.lock.json").read_text())["cells"].items()
    return name, len(cell["wheels"])


def _median(command: tuple[str, ...], ours: Ours) -> dict[str, Any]:
    """That of three runs, by processor."""
    runs = [_measured(command, ours.program_env, ours.folder) for _ in range(RUNS)]
    return sorted(runs, key=lambda one: one["processor"])[RUNS // 2]


def _measured(command: tuple[str, ...], env: dict[str, str], folder: Path) -> dict[str, Any]:
    """Seconds, those of processor, and bytes of memory at most. BenchError if it fails."""
    shutil.rmtree(folder / "results", ignore_errors=True)
    start = time.perf_counter()
    with subprocess.Popen(
        command, env=env, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as done:
        said = done.stderr.read() if done.stderr is not None else b""
        _, status, used = os.wait4(done.pid, 0)
        done.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        raise BenchError(f"{' '.join(command)} ended with {done.returncode}:\n{said.decode()[-2000:]}")
    return {"seconds": seconds, "processor": used.ru_utime + used.ru_stime, "memory": used.ru_maxrss << 10}
