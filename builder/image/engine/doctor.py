"""Checks of this machine, each with its remedy, and of the hosts that a build asks. Looks, and changes
nothing.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import requests
from packaging.requirements import Requirement
from uv import find_uv_bin

from builder.core.errors import MissingToolError, RtbuildError
from builder.core.items import item
from builder.image.engine.engine import Engine
from builder.image.engine.facts import TOOLKIT_GUIDE, TOOLKIT_SETUP, EngineFacts, GpuFacts, gpu_facts
from builder.image.sandbox import control_group, require
from builder.sources.debian import archives_of, host_proxies, host_sources
from builder.sources.index import Index, host_platform, offered
from builder.sources.net import Client, explain
from builder.sources.oci import Registry

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
        done = subprocess.run(
            [program, "--version"], capture_output=True, errors="replace", check=False, timeout=20
        )
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


@dataclass(frozen=True)
class AskedHosts:
    """What a build asks of the network for one purpose, by the settings in force."""

    use: str
    setting: str
    """Where another address is named."""
    hosts: tuple[str, ...]
    """With those that the first led to; with a port if it is none of https or http."""
    problem: str | None = None
    """Why it was not answered to the end: further hosts are then not known."""


@dataclass(kw_only=True)
class _Noting(Client):
    """Notes the hosts of all requests, of their redirections, too."""

    asked: dict[str, None] = field(default_factory=dict)

    def request(self, method: str, url: str, **options: Any) -> requests.Response:
        self.asked[_host(url)] = None
        response = super().request(method, url, **options)
        self.asked.update((_host(one.url), None) for one in (*response.history, response))
        return response


def network(mirrors: Mapping[str, str]) -> list[AskedHosts]:
    """Ask each service of a build for something small, within some seconds, at once."""
    # imported here: `doctor` without --network asks none of them
    from builder.plan.facts.rules import choices
    from builder.plan.facts.tables import load

    settings = Index.from_user().settings
    own = "index-url or extra-index-url of pip, UV_DEFAULT_INDEX or UV_INDEX of uv"
    kinds: list[tuple[str, str, Callable[[_Noting], object]]] = [
        ("package index", own, partial(_files, url, "packaging")) for url in settings.all
    ]
    builds = (way for name in load().frameworks for way in choices(Requirement(name)) if way.index)
    makers: dict[str, tuple[str, str]] = {}
    for way in builds:  # the newest first
        makers.setdefault(_host(way.index[0]), (way.index[0], way.row.distribution))
    kinds += (
        (f"{name}'s builds for other CUDA versions", "`index` of a matrix", partial(_files, url, name))
        for url, name in makers.values()
    )
    tag = next(row for row in load().tags if row.state == "listed")
    base = f"nvidia/cuda:{tag.cuda}-base-{tag.systems[-1]}"
    kinds += [
        (
            "bases from a registry",
            "--registry-mirror, RTBUILD_REGISTRY_MIRROR",
            partial(_base, base, mirrors),
        ),
        ("rootfs: bases", "apt's sources, RTBUILD_DEBIAN_MIRROR", _debian),
        ("standalone Pythons", "UV_PYTHON_INSTALL_MIRROR", _python),
    ]
    with ThreadPoolExecutor(len(kinds)) as pool:
        return list(pool.map(lambda kind: _asked(*kind), kinds))


def _asked(use: str, setting: str, ask: Callable[[_Noting], object]) -> AskedHosts:
    client, problem = _Noting(retries=0, connection_retries=0, connect_timeout=4, read_timeout=8), None
    try:
        with item(use):
            try:
                ask(client)
            except requests.RequestException as error:
                problem = explain(error)
    except RtbuildError as error:
        problem = error.message
    return AskedHosts(use, setting, tuple(client.asked), problem)


def _files(index: str, name: str, client: _Noting) -> None:
    """A project's page, and the first of its files: often on another host."""
    client.asked[_host(index)] = None
    files = Index(Index.from_user().settings, client=client).offers_of(index, name)
    client.asked.update((_host(file.url), None) for file in files)
    for file in files[:1]:
        client.get(file.url, stream=True).close()


def _base(reference: str, mirrors: Mapping[str, str], client: _Noting) -> None:
    Registry(mirrors, client=client).inspect(reference, "linux/amd64")


def _debian(client: _Noting) -> None:
    client.proxies = host_proxies()
    for root in archives_of(os.environ, host_sources).values():
        client.get(f"{root}/", stream=True).close()


def _python(client: _Noting) -> None:
    for one in offered(host_platform())[-1:]:
        client.get(one.url, stream=True).close()


def _host(url: str) -> str:
    """The host of an address, without a login; with its port if one is named."""
    return urlsplit(url).netloc.rpartition("@")[2]
