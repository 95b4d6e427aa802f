"""An environment with something wrong in it: a virtual environment, libraries in folders, and variables.

Nothing here touches the machine: every file lies under one temporary folder, the probe runs as a user runs
it (``python cudnn_verify.py --json``), and a changed file is written anew, so that hard links stay whole.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pages.checks import read_checks

from builder.verify.cudnn_verify.common.causes import CAUSES

INSTALLED = 1_700_000_000
"""When packages were installed, in seconds since 1970: what a fault writes is newer."""
EXIT_CODES = {"works": 0, "unverified": 10, "broken": 20, "unsupported-gpu": 21, "host": 22, "busy": 23}
PACKAGES = Path(__file__).resolve().parent / "doubles" / "packages"


@dataclass
class Outcome:
    """What the probe said: its exit code and, where it printed one, its report."""

    code: int
    report: dict[str, Any]
    stdout: str
    stderr: str
    seconds: float
    doubles: tuple[str, ...] = ()
    """What the test doubles logged: ``called cuInit``."""

    def unlisted(self) -> list[tuple[str, str]]:
        """Causes named by checks that, by the probe's own table, may not name them."""
        rows = {row.id: row for row in read_checks()}
        failed = [(c["id"], c["cause"]) for c in self.report["checks"] if c["outcome"] == "failed"]
        return [
            (check, cause)
            for check, cause in failed
            if cause not in rows[check].causes.split() and not (rows[check].loads and CAUSES[cause].judged)
        ]

    def checks(self, outcome: str) -> list[tuple[str, str]]:
        return [(c["stage"], c["id"]) for c in self.report["checks"] if c["outcome"] == outcome]


@dataclass
class Scene:
    """One prepared environment. ``build`` compiles doubles, ``wheels`` gives real parts."""

    root: Path
    probe: Path
    build: Any
    wheels: Any
    python: str = sys.executable
    env: dict[str, str] = field(default_factory=dict)
    args: list[str] = field(default_factory=list)
    command: list[str] | None = None
    """What to run instead of the probe's file itself: a program that starts it under other conditions."""

    outcomes: list[Outcome] = field(default_factory=list)
    """Of each run so far."""

    def __post_init__(self) -> None:
        base = Path(self.python).resolve()
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        self.venv = self.root / "venv"
        self.site = self.venv / "lib" / version / "site-packages"
        self.site.mkdir(parents=True)
        (self.venv / "bin").mkdir()
        (self.venv / "bin" / "python").symlink_to(base)
        config = f"home = {base.parent}\ninclude-system-site-packages = false\n"
        (self.venv / "pyvenv.cfg").write_text(config)

    @property
    def cudnn_lib(self) -> Path:
        """Where NVIDIA's wheels put cuDNN."""
        return self.site / "nvidia" / "cudnn" / "lib"

    def folder(self, name: str) -> Path:
        made = self.root / name
        made.mkdir(parents=True, exist_ok=True)
        return made

    def startup(self, text: str) -> None:
        """A sitecustomize.py of this text, on PYTHONPATH: Debian's own comes before one in site-packages."""
        folder = self.folder("startup")
        (folder / "sitecustomize.py").write_text(text)
        self.env["PYTHONPATH"] = str(folder)

    def search(self, *folders: Path) -> None:
        """Append folders to LD_LIBRARY_PATH."""
        known = [part for part in self.env.get("LD_LIBRARY_PATH", "").split(":") if part]
        self.env["LD_LIBRARY_PATH"] = ":".join(known + [str(folder) for folder in folders])

    def driver(self, faults: str = "", **settings: object) -> None:
        """Put the fake driver on the loader's path; ``faults`` as in ``cuInit=803``."""
        self.search(self.build.driver())
        if faults:
            self.env["RTBUILD_DOUBLE_CUDA"] = faults
        for name, value in settings.items():
            self.env[f"RTBUILD_DOUBLE_{name.upper()}"] = str(value)

    def cudnn(self, version: str = "9.10.2", *, into: Path | None = None, flavour: int = 12) -> Path:
        """A fake cuDNN, as a wheel where ``into`` is not given; the folder of its libraries."""
        target = into if into is not None else self.cudnn_lib
        link_tree(self.build.cudnn(version, flavour), target)
        if into is None:
            self.record(f"nvidia-cudnn-cu{flavour}", f"{version}.0", sorted(target.iterdir()))
        return target

    def nvrtc(self) -> Path:
        """A fake cuDNN and NVRTC as the wheels for CUDA 13; the folder of NVRTC and its builtins."""
        self.cudnn(flavour=13)
        return link_tree(self.build.nvrtc(), self.site / "nvidia" / "cu13" / "lib")

    def wheel(self, name: str) -> Path:
        """A real wheel's tree out of the cache; site-packages."""
        link_tree(self.wheels(name), self.site)
        return self.site

    def framework(self, name: str, **behaviour: object) -> Path:
        """A fake framework, a Python package that computes on the CPU and says what it is told to say."""
        package = self.site / name
        link_tree(PACKAGES / name, package)
        shutil.copy(PACKAGES / "rtbuild_double.py", self.site)
        if behaviour:
            text = ",".join(f"{key}={value}" for key, value in sorted(behaviour.items()))
            self.env[f"RTBUILD_DOUBLE_{name.upper()}"] = text
        return package

    def links(self, library: str, cudnn: Path, *needed: Path) -> None:
        """A library of a framework's own, linked against this cuDNN, which it finds by DT_RPATH."""
        major = next(cudnn.glob("libcudnn.so.*"))
        search = (f"-Wl,--disable-new-dtags,-rpath,{cudnn}",)
        self.build.requester(self.site / library, (major, *needed), *search)

    def record(self, name: str, version: str, files: list[Path], requires: tuple[str, ...] = ()) -> None:
        """Write a ``.dist-info`` with METADATA and RECORD, as pip leaves it."""
        info = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(exist_ok=True)
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (info / "METADATA").write_text(head + "".join(f"Requires-Dist: {line}\n" for line in requires))
        rows = []
        for file in files:
            digest = (
                base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).rstrip(b"=").decode()
            )
            rows.append(f"{os.path.relpath(file, self.site)},sha256={digest},{file.stat().st_size}\n")
        (info / "RECORD").write_text("".join(rows))
        for path in (*files, info / "RECORD"):  # installed before the fault
            os.utime(path, (INSTALLED, INSTALLED))

    def expect(self, **document: object) -> None:
        path = self.root / "expect.json"
        path.write_text(json.dumps({"schema": 1, **document}))
        self.args += ["--expect", str(path)]

    def run(self, timeout: float = 240) -> Outcome:
        """Run the probe as a user does and take in its report."""
        log = self.root / "doubles.log"
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.root), "LANG": "C.UTF-8", **self.env}
        environment["RTBUILD_DOUBLE_LOG"] = str(log)
        python = str(self.venv / "bin" / "python")
        command = self.command or [python, str(self.probe)]
        start = time.monotonic()
        done = subprocess.run(
            [*command, "--json", *self.args],
            env=environment,
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        seconds = time.monotonic() - start
        try:
            report = json.loads(done.stdout)
        except ValueError:
            report = {}
        # a double that was given a wrong argument says so, and the probe has no business to give it one
        said = log.read_text().splitlines() if log.exists() else []
        refused = [line for line in said if line.startswith("refused")]
        assert not refused, refused
        outcome = Outcome(done.returncode, report, done.stdout, done.stderr, seconds, tuple(said))
        self.outcomes.append(outcome)
        return outcome


def link_tree(source: Path, target: Path) -> Path:
    """Hard-link every file of a tree into the target, or copy where a link cannot be made; the target."""
    for path in sorted(source.rglob("*")):
        aim = target / path.relative_to(source)
        if path.is_symlink():
            aim.parent.mkdir(parents=True, exist_ok=True)
            aim.symlink_to(path.readlink())
        elif path.is_dir():
            aim.mkdir(parents=True, exist_ok=True)
        elif "__pycache__" not in path.parts:
            aim.parent.mkdir(parents=True, exist_ok=True)
            aim.unlink(missing_ok=True)
            try:
                os.link(path, aim)
            except OSError:
                shutil.copy2(path, aim)
    return target


def replace(path: Path, data: bytes) -> None:
    """New content in a new file: the other hard links keep theirs."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def swap(path: Path, source: Path) -> None:
    """Another file in this one's place."""
    path.unlink(missing_ok=True)
    os.link(source, path)
