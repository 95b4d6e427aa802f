"""Checks of this machine, each with its remedy. Looks, and changes nothing."""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from uv import find_uv_bin

from builder.core.errors import MissingToolError, RtbuildError
from builder.image.engine.engine import Engine
from builder.image.engine.facts import TOOLKIT_GUIDE, TOOLKIT_SETUP, EngineFacts, GpuFacts, gpu_facts
from builder.image.sandbox import control_group, require

Outcome = Literal["passed", "failed", "not_run"]


@dataclass(frozen=True)
class DoctorCheck:
    """One thing that was looked for. ``required``: no matrix can do without it."""

    name: str
    outcome: Outcome
    found: str
    remedy: str | None = None
    required: bool = False


def diagnose(engine: Engine | RtbuildError, *, cache: Path) -> list[DoctorCheck]:
    """Check the engine (or the error that connecting to it gave), tools, disk and GPU of this machine."""
    if isinstance(engine, RtbuildError):
        checks = [DoctorCheck("engine", "failed", engine.message, engine.hint, required=True)]
        checks += map(_not_asked, ("image store", "engine disk", "buildx"))
        # driver and card are this machine's, whichever engine there is: an environment needs none
        gpu = [_not_asked("NVIDIA toolkit"), *gpu_checks(gpu_facts({}, local=True))[1:]]
    else:
        facts = engine.facts()
        buildx = _tried("buildx", lambda: engine.buildx, "for bases out of a registry")
        checks, gpu = [*_engine_checks(facts), buildx], gpu_checks(facts.gpu)
    existing = next((folder for folder in (cache, *cache.parents) if folder.is_dir()), None)
    free = shutil.disk_usage(existing).free if existing else None
    # The wheels of an image are about 3 GB, and as many again as layers.
    remedy = "set RTBUILD_CACHE to a folder with more room"
    install = "sudo apt-get install mmdebstrap   (for rootfs bases)"
    tools = [
        _tool("mmdebstrap", shutil.which("mmdebstrap"), install),
        _tool("uv", _uv(), "pip install uv   (for rtbuild lock)"),
        _tried("sandbox", _sandbox, "for sources, and --engine none"),
    ]
    disk = _disk("cache disk", str(cache), free, 10, remedy)
    if existing is None or not os.access(existing, os.W_OK):
        way = "set RTBUILD_CACHE to a folder that can"
        disk = DoctorCheck("cache disk", "failed", f"{cache} cannot be written", way)
    return [*checks, disk, *tools, *gpu]


def gpu_checks(gpu: GpuFacts) -> list[DoctorCheck]:
    """NVIDIA's toolkit, the driver and the GPU: no trace of one is ``not_run``, half of one is ``failed``."""
    here = bool(gpu.traces)
    nothing: Outcome = "failed" if here else "not_run"
    version = f", nvidia-ctk {gpu.toolkit}" if gpu.toolkit else ""
    toolkit = {
        "gpus": f"the engine hands out GPUs by --gpus all{version}",
        "cdi": f"the engine hands out GPUs by CDI{version}",
        None: f"nvidia-ctk {gpu.toolkit}, not configured in the engine" if gpu.toolkit else "not installed",
    }[gpu.request]
    setup = TOOLKIT_SETUP if gpu.toolkit else f"install it: {TOOLKIT_GUIDE}"
    driver = gpu.driver or ("the engine is on another machine" if gpu.remote else "not loaded")
    load = "sudo modprobe nvidia, or install NVIDIA's driver" if here else None
    names = ", ".join(
        f"{card.name} (compute capability {card.compute_capability or '?'})" for card in gpu.gpus
    )
    if here:
        names = names or f"{', '.join(gpu.traces)}, and nvidia-smi names none"
        look = "nvidia-smi   (its error says what the driver lacks)"
    else:
        look = "images are built, and checked as far as a CPU goes; run rtbuild verify where a GPU is"
    rows = (
        ("NVIDIA toolkit", gpu.request, toolkit, setup),
        ("NVIDIA driver", gpu.driver, driver, load),
        ("GPU", gpu.gpus, names or "no trace of one", look),
    )
    return [
        DoctorCheck(name, *(("passed", found) if good else (nothing, found, remedy)))
        for name, good, found, remedy in rows
    ]


def _engine_checks(facts: EngineFacts) -> list[DoctorCheck]:
    store = (
        'set {"features": {"containerd-snapshotter": true}} in /etc/docker/daemon.json and restart'
        " the engine; without it builds work, but the same lock does not give the same digest"
    )
    # A framework with its CUDA wheels unpacks to 5 to 7 GB, and the build cache keeps it once more.
    return [
        DoctorCheck("engine", "passed", f"Docker Engine {facts.version} at {facts.host}", required=True),
        _check("image store", f"{facts.store} ({facts.driver})", store, passed=facts.store == "containerd"),
        _disk("engine disk", facts.root, facts.disk_free, 20, "docker system df"),
    ]


def _check(name: str, found: str, remedy: str, *, passed: bool) -> DoctorCheck:
    """A check that ran; it has a remedy if it failed."""
    return DoctorCheck(name, "passed" if passed else "failed", found, None if passed else remedy)


def _tried(name: str, look: Callable[[], str], use: str) -> DoctorCheck:
    """A check that ``look`` passes with its words, or fails with a hint; ``use`` says who needs it."""
    try:
        return _check(name, look(), "", passed=True)
    except MissingToolError as lack:
        return _check(name, lack.message, f"{lack.hint}   ({use})", passed=False)


def _disk(name: str, place: str, free: int | None, room: int, remedy: str) -> DoctorCheck:
    """Whether ``free`` bytes are at least ``room`` GB."""
    if free is None:
        return DoctorCheck(name, "not_run", f"{place} is not on this machine")
    remedy = f"an image takes about {room} GB: {remedy}"
    return _check(name, f"{free / 1e9:.0f} GB free at {place}", remedy, passed=free >= room * 10**9)


def _sandbox() -> str:
    """Try the sandbox, since kernels and containers may forbid namespaces; its limits in words."""
    require()
    group = control_group(1 << 30, 64)
    by = "looking, five times a second" if group is None else f"a control group, version {group.version}"
    if group is not None:
        group.remove()
    return f"bubblewrap runs a program; memory in sum is bounded by {by}"


def _tool(name: str, program: str | None, remedy: str) -> DoctorCheck:
    if program is None:
        return _check(name, "not installed", remedy, passed=False)
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return _check(name, str(error), remedy, passed=False)
    first = (done.stdout or done.stderr).strip().partition("\n")[0]
    found = first or f"{program} ended with status {done.returncode}"
    return _check(name, found, remedy, passed=done.returncode == 0)


def _uv() -> str | None:
    """The uv that rtbuild was installed with."""
    try:
        return find_uv_bin()
    except FileNotFoundError:
        return shutil.which("uv")


def _not_asked(name: str) -> DoctorCheck:
    return DoctorCheck(name, "not_run", "no engine to ask")
