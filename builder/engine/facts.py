"""The abilities of an engine and its machine, as one value."""

from dataclasses import dataclass, field
from typing import Literal

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
    """Of the engine's machine, in bytes."""
    builder: str = "default"
    """The buildx builder. One that is not the engine's own loads what it built into the engine."""
    builder_driver: str = "docker"
    """``docker`` if BuildKit is the engine's own; or ``docker-container``, ``kubernetes``, ``remote``."""

    @property
    def takes_layers(self) -> bool:
        """Whether a build can be given a stage as an OCI layout: BuildKit inside an engine with a graphdriver
        has no content store to put it in, every other has."""
        return self.builder_driver != "docker" or self.store == "containerd"
