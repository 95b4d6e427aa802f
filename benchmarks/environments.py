"""`rtbuild venv` beside `uv pip install` of the same wheels by hash, and the first import in either.

rtbuild runs the probe in the environment that it makes, which imports the framework: what the command takes
longer for that, the first import after it need not do again.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from uv import find_uv_bin

from benchmarks.ours import Ours
from benchmarks.rig import PROGRAM, run
from benchmarks.sessions import MODULES, Figures, Site

if TYPE_CHECKING:
    from pathlib import Path

    from builder.core.model import Pinned

ROUNDS = 5
_KINDS = ("ours", "uv")


def environments(site: Site) -> Figures:
    """One cell on empty caches over a line of its own, once; then from full caches, in turns."""
    pinned = site.cells(site.plan.family)[0]
    with site.index([pinned]) as (url, _):
        peer = _Peer(site, pinned, url)
        cold = {kind: peer.made(kind) for kind in _KINDS}
        site.say(f"cold: {_said(cold)}")
        rounds = []
        for number in range(ROUNDS):
            turn = _KINDS[number % 2 :] + _KINDS[: number % 2]
            rounds.append({"load": round(os.getloadavg()[0], 1)} | {kind: peer.made(kind) for kind in turn})
            site.say(f"warm: {_said(rounds[-1])}")
    site.fresh_cache()
    return {"cold": {"rounds": [{"load": rounds[0]["load"]} | cold]}, "warm": {"rounds": rounds}}


def _said(figures: Figures) -> str:
    return ", ".join(
        f"{kind} {figures[kind]['install']:.1f} + {figures[kind]['import']:.1f} s" for kind in _KINDS
    )


class _Peer:
    """Makes the environment in either way, each with caches of its own that stay from round to round."""

    def __init__(self, site: Site, pinned: Pinned, url: str) -> None:
        self._site, self._pinned = site, pinned
        self._ours = Ours(site, None, site.plan.family)
        self._folder = self._ours.folder / "environment"
        self._env = {**self._ours.env, "UV_DEFAULT_INDEX": url, "NO_PROXY": "127.0.0.1"}
        self._env["UV_PYTHON_DOWNLOADS"] = "never"
        rows = [f"{one.name}=={one.version} --hash=sha256:{one.sha256}\n" for one in pinned.wheels]
        (self._ours.folder / "requirements.txt").write_text("".join(rows))
        for kind in _KINDS:
            shutil.rmtree(self._cache(kind), ignore_errors=True)

    def made(self, kind: str) -> Figures:
        """Seconds of ``install``, and of the first ``import`` after it."""
        shutil.rmtree(self._folder, ignore_errors=True)
        env = {**self._env, "UV_CACHE_DIR": str(self._cache(kind))}
        if kind == "ours":
            words = (
                "venv",
                self._pinned.cell.id,
                self._ours.matrix,
                "-o",
                str(self._folder),
                "--locked",
            )
            install, _ = run([*PROGRAM, *words], env=self._ours.program_env | env, cwd=self._ours.folder)
        else:
            python = ("--python", self._pinned.cell.python)
            made, _ = run([find_uv_bin(), "venv", "--quiet", *python, str(self._folder)], env=env)
            words = ("pip", "install", "--quiet", "--python", str(self._folder / "bin/python"), "--no-deps")
            command = [find_uv_bin(), *words, "--require-hashes", "-r", "requirements.txt"]
            filled, _ = run(command, env=env, cwd=self._ours.folder)
            install = made + filled
        program = [str(self._folder / "bin/python"), "-c", f"import {MODULES[self._site.plan.family]}"]
        first, _ = run(program, env=env, cwd=self._ours.folder)
        return {"install": install, "import": first}

    def _cache(self, kind: str) -> Path:
        return self._site.work / f"uv-{kind}"
