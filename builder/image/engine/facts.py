"""The abilities of an engine and its machine, GPUs among them, without starting a container."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from builder.sources.index import host_platform

GpuRequest = Literal["gpus", "cdi"]
"""How a container asks for GPUs: Docker's ``--gpus all``, or the CDI device ``nvidia.com/gpu=all``."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU as the host's ``nvidia-smi`` names it."""

    name: str
    compute_capability: str | None
    """``7.5``; None if ``nvidia-smi`` is too old to say."""


@dataclass(frozen=True, kw_only=True)
class GpuFacts:
    """NVIDIA GPUs on the engine's machine, as far as they are known without starting a container."""

    request: GpuRequest | None
    """The way in which this engine hands GPUs to a container; None if it has none."""
    traces: tuple[str, ...]
    """Signs of a GPU here: device nodes, a loaded driver. Empty also if the engine is remote."""
    toolkit: str | None = None
    """Version of ``nvidia-ctk`` on this machine."""
    driver: str | None = None
    gpus: tuple[Gpu, ...] = ()
    remote: bool = False
    """True if the engine runs on another machine, so that nothing but the engine's word is known."""

    @property
    def usable(self) -> bool:
        """A container that asks for a GPU will probably get one."""
        return self.request is not None and (self.remote or bool(self.traces))


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """Facts from ``docker info`` and the machine."""

    version: str
    store: Literal["containerd", "graphdriver"]
    driver: str
    """The storage driver or snapshotter: ``overlay2``, ``overlayfs``."""
    root: str
    disk_free: int | None
    """Free bytes on the disk of the images; None if the engine is remote."""
    platform: str
    """``linux/amd64``."""
    host: str
    """The address that the engine answers on: ``unix:///var/run/docker.sock``."""
    gpu: GpuFacts = field(default_factory=lambda: GpuFacts(request=None, traces=()))
    security: tuple[str, ...] = ()
    """The engine's security options by name: ``rootless``, ``selinux``, ``seccomp``."""
    memory: int | None = None
    """Memory of the engine's machine, in bytes."""
    builder: str = "default"
    """The buildx builder. One that is not the engine's own loads what it built into the engine."""
    builder_driver: str = "docker"
    """``docker`` if BuildKit is the engine's own; or ``docker-container``, ``kubernetes``, ``remote``."""

    @property
    def takes_layers(self) -> bool:
        """Whether a build can be given a stage as an OCI layout: BuildKit inside an engine with a graphdriver
        has no content store to put it in, every other has."""
        return self.builder_driver != "docker" or self.store == "containerd"


_CDI_KIND = "nvidia.com/gpu"
TOOLKIT_GUIDE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
TOOLKIT_SETUP = "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"


def gpu_facts(info: Mapping[str, Any], *, local: bool, root: Path = Path("/")) -> GpuFacts:
    """From ``docker info`` and, if the engine is on this machine, from the files below ``root``."""
    devices = cdi_devices(info, root if local else None)
    traces = gpu_traces(root) if local else ()
    # dockerd looks for this program on its PATH to offer --gpus
    # (https://github.com/moby/moby/blob/v26.1.5/daemon/nvidia_linux.go).
    hook = shutil.which("nvidia-container-runtime-hook") if local else None
    hooked = hook is not None or any("nvidia" in name for name in info.get("Runtimes") or ())
    request: GpuRequest | None = "gpus" if hooked else "cdi" if f"{_CDI_KIND}=all" in devices else None
    gpus, driver = nvidia_smi() if traces else ((), None)
    return GpuFacts(
        request=request,
        traces=traces,
        toolkit=toolkit_version() if local else None,
        driver=(module_version(root) or driver) if local else None,
        gpus=gpus,
        remote=not local,
    )


def without_engine() -> EngineFacts:
    """Facts of this machine alone, with Docker's defaults for the rest: for a command that is printed."""
    return EngineFacts(
        version="",
        store="containerd",
        driver="",
        root="",
        disk_free=None,
        platform=host_platform(),
        host="",
        gpu=gpu_facts({"Runtimes": {"nvidia": {}}}, local=True),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def gpu_traces(root: Path = Path("/")) -> tuple[str, ...]:
    """Signs of a GPU: ``/dev/nvidia0`` and its like, the kernel module, WSL's ``/dev/dxg``."""
    nodes = sorted((root / "dev").glob("nvidia[0-9]*"))
    others = (root / "dev/nvidiactl", root / "dev/dxg", root / "proc/driver/nvidia/version")
    return tuple(f"/{path.relative_to(root)}" for path in (*nodes, *others) if path.exists())


def module_version(root: Path = Path("/")) -> str | None:
    """Version of the loaded kernel module, from a line that begins with ``NVRM version:``."""
    try:
        text = (root / "proc/driver/nvidia/version").read_text("utf-8")
    except OSError:
        return None
    found = re.search(r"^NVRM version:.*?\s(\d+(?:\.\d+)+)\s", text, re.MULTILINE)
    return found[1] if found else None


def cdi_devices(info: Mapping[str, Any], root: Path | None) -> tuple[str, ...]:
    """GPUs that the engine offers by the Container Device Interface.

    Engine 28.2 and later list them in ``docker info``. Earlier ones only name the folders they read
    specifications from, and name none unless their ``cdi`` feature is on.
    """
    found = {str(device.get("ID", "")) for device in info.get("DiscoveredDevices") or ()}
    if root is not None:
        for folder in info.get("CDISpecDirs") or ():
            for path in sorted((root / str(folder).lstrip("/")).glob("*")):
                found.update(_spec_devices(path))
    return tuple(sorted(name for name in found if name.startswith(f"{_CDI_KIND}=")))


def _spec_devices(path: Path) -> list[str]:
    """The device names in one CDI specification; a file that is none has none."""
    if path.suffix not in {".json", ".yaml", ".yml"}:
        return []
    try:
        text = path.read_text("utf-8")
        spec = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
        return [f"{spec['kind']}={device['name']}" for device in spec["devices"]]
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
        return []


def nvidia_smi() -> tuple[tuple[Gpu, ...], str | None]:
    """The GPUs and the driver as ``nvidia-smi`` names them; nothing if it is missing or fails."""
    for fields in ("name,driver_version,compute_cap", "name,driver_version"):  # the latter before 510
        lines = _output(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]).splitlines()
        rows = [[value.strip() for value in line.split(",")] for line in lines]
        rows = [row for row in rows if len(row) == fields.count(",") + 1]
        if rows:
            gpus = (Gpu(name=row[0], compute_capability=row[2] if row[2:] else None) for row in rows)
            return tuple(gpus), rows[0][1]
    return (), None


def toolkit_version() -> str | None:
    """Version of NVIDIA's container toolkit: ``NVIDIA Container Toolkit CLI version 1.17.8``."""
    found = re.search(r"version (\S+)", _output(["nvidia-ctk", "--version"]))
    return found[1] if found else None


def _output(command: Sequence[str]) -> str:
    """Empty if there is no such program, or it fails."""
    try:
        return subprocess.run(command, capture_output=True, errors="replace", check=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
