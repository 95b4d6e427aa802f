"""Frameworks as their own documents install and start them, and what the probe says beside each.

Which releases there are is asked of the index: those that were the newest three years ago or came later, of
each minor release the newest patch that has a wheel for this Python.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename
from packaging.version import Version
from uv import find_uv_bin

from builder.image.recipe.probe_file import bundle
from builder.sources.index.client import Index

if TYPE_CHECKING:
    from pathlib import Path

YEARS = 3


@dataclass(frozen=True, kw_only=True)
class Documented:
    """How a framework's documents install it: a requirement, and what else has to be there."""

    requirement: str
    """With ``{}`` for the version."""
    beside: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """From which version on, which other packages; their libraries are then on LD_LIBRARY_PATH."""
    since: str = "0"
    """The first release whose documents name such an installation."""
    source: str
    name: str = field(default="")

    @property
    def distribution(self) -> str:
        return self.name or re.split(r"[\[=]", self.requirement)[0]


DOCUMENTED = {
    "torch": Documented(requirement="torch=={}", source="https://pytorch.org/get-started/locally/"),
    "tensorflow": Documented(
        requirement="tensorflow[and-cuda]=={}", since="2.14", source="https://www.tensorflow.org/install/pip"
    ),
    "jax-cuda12": Documented(
        requirement="jax[cuda12]=={}",
        since="0.4.30",
        source="https://docs.jax.dev/en/latest/installation.html",
    ),
    "jax-cuda13": Documented(
        requirement="jax[cuda13]=={}",
        since="0.7.2",
        source="https://docs.jax.dev/en/latest/installation.html",
    ),
    "cupy-cuda12x": Documented(
        requirement="cupy-cuda12x[ctk]=={}", since="14", source="https://docs.cupy.dev/en/stable/install.html"
    ),
    "cupy-cuda13x": Documented(
        requirement="cupy-cuda13x[ctk]=={}", since="14", source="https://docs.cupy.dev/en/stable/install.html"
    ),
    "onnxruntime-gpu": Documented(
        requirement="onnxruntime-gpu[cuda,cudnn]=={}",
        since="1.21",
        source="https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html#preload-dlls",
    ),
    "ctranslate2": Documented(
        requirement="ctranslate2=={}",
        beside=(
            ("4.0", ("nvidia-cublas-cu12", "nvidia-cudnn-cu12==8.*")),
            ("4.5", ("nvidia-cublas-cu12", "nvidia-cudnn-cu12==9.*")),
        ),
        since="4.0",
        source="https://github.com/SYSTRAN/faster-whisper#gpu",
    ),
}


def newest_then(requirement: str, day: datetime.date) -> Version:
    """The release that an installation on that day would have brought; 0 if there was none."""
    command = [
        find_uv_bin(),
        "--quiet",
        "pip",
        "compile",
        "--no-deps",
        "--exclude-newer",
        day.isoformat(),
        "-",
    ]
    done = subprocess.run(command, input=requirement, capture_output=True, text=True, check=False)
    found = re.search(r"==([\w.]+)", done.stdout)
    return Version(found[1]) if found else Version("0")


def releases(row: Documented, *, today: datetime.date) -> list[str]:
    """The versions to try, the newest first."""
    floor = newest_then(row.distribution, today.replace(year=today.year - YEARS, day=min(today.day, 28)))
    tags, newest = set(sys_tags()), {}
    for file in Index.from_user().offers(row.distribution):
        if not file.name.endswith(".whl") or file.yanked is not None:
            continue
        _, version, _, fits = parse_wheel_filename(file.name)
        if version.is_prerelease or version < max(floor, Version(row.since)) or not tags & fits:
            continue
        minor = version.release[:2]
        newest[minor] = max(version, newest.get(minor, version))
    return [str(version) for _, version in sorted(newest.items(), reverse=True)]


def install(row: Documented, version: str, folder: Path) -> dict[str, str]:
    """Install it into ``folder/venv``; the environment in which its documents start it."""
    others = [names for since, names in row.beside if Version(version) >= Version(since)]
    python, uv = folder / "venv/bin/python", [find_uv_bin(), "--quiet"]
    subprocess.run([*uv, "venv", "--python", sys.executable, str(folder / "venv")], check=True)
    wanted = [row.requirement.format(version), *(others[-1] if others else ())]
    options = ["--no-cache", "--only-binary", ":all:", "--python", str(python)]
    subprocess.run([*uv, "pip", "install", *options, *wanted], check=True, timeout=3600)
    libraries = sorted(folder.glob("venv/lib/python*/site-packages/nvidia/*/lib")) if others else []
    return {"LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries))} if libraries else {}


def probed(folder: Path, variables: dict[str, str]) -> dict[str, Any]:
    """The probe's report of ``folder/venv``, without a GPU."""
    probe = folder / "cudnn_verify.py"
    probe.write_bytes(bundle())
    command = [str(folder / "venv/bin/python"), str(probe), "--json", "--no-gpu"]
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), **variables}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900, check=False)
    return json.loads(done.stdout)


def said(report: dict[str, Any]) -> str | None:
    """What the probe holds against it; None if nothing, and each framework was imported and looked at."""
    if (report["verdict"], report["cause"]) != ("unverified", None):
        return f"{report['verdict']}, {report['cause']}: {report['summary']}"
    faults = [check["summary"] for check in report["checks"] if "probe_fault" in check["evidence"]]
    imported = [check for check in report["checks"] if check["id"] == "F01" and check["outcome"] != "failed"]
    return faults[0] if faults else None if imported else "no framework was imported"
