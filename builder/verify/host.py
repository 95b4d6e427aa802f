"""Faults of the machine that show before the probe starts, each with its remedy.

A text only chooses the words. The proof is that the same image starts without a GPU, which
:func:`builder.verify.verify` tries before it blames the machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_CONFIGURE = "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
_INSTALL = (
    "install NVIDIA's container toolkit"
    " (https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html), then: "
    + _CONFIGURE
)


@dataclass(frozen=True, kw_only=True)
class HostFault:
    """Why this machine gave a container no GPU."""

    cause: str
    summary: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class _Known:
    text: re.Pattern[str]
    cause: str
    summary: str
    remedy: str


def _known(text: str, *, cause: str, summary: str, remedy: str) -> _Known:
    return _Known(text=re.compile(text, re.IGNORECASE), cause=cause, summary=summary, remedy=remedy)


# Texts of dockerd, libnvidia-container (https://github.com/NVIDIA/libnvidia-container/tree/main/src) and the
# NVIDIA Container Toolkit; the reports behind each row are linked in docs/verdicts.md. First match wins.
_FAULTS = (
    _known(
        r'could not select device driver "cdi"|unresolvable CDI devices',
        cause="container-no-gpu",
        summary="the engine knows no CDI device of that name",
        remedy="sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
    ),
    _known(
        r"could not select device driver",
        cause="container-no-gpu",
        summary="the engine cannot hand a GPU to a container: NVIDIA's container toolkit is not set up",
        remedy=_INSTALL,
    ),
    _known(
        r"unknown or invalid runtime name: nvidia",
        cause="container-no-gpu",
        summary="the engine does not know the runtime nvidia",
        remedy=_CONFIGURE,
    ),
    _known(
        r"requirement error: unsatisfied condition: \S+",
        cause="driver-too-old",
        summary="this machine's driver is older than the image's CUDA asks for",
        remedy="install a newer NVIDIA driver, or build on a base with an older CUDA",
    ),
    _known(
        r"load library failed: libnvidia-ml\.so|libnvidia-ml\.so\.1: cannot open",
        cause="driver-missing",
        summary="the NVIDIA driver's libraries are not on this machine, or not where the toolkit looks",
        remedy="install NVIDIA's driver; if it is there, set its root in"
        " /etc/nvidia-container-runtime/config.toml",
    ),
    _known(
        r"driver/library version mismatch",
        cause="driver-library-mismatch",
        summary="the driver was upgraded, and the old kernel module is still loaded",
        remedy="sudo reboot, or unload and load the module nvidia",
    ),
    _known(
        r"no cuda-capable device is detected|nvml error: .*no devices",
        cause="no-device",
        summary="the driver is there and finds no GPU",
        remedy="nvidia-smi -L; load the module nvidia, and see that the GPU has power",
    ),
    _known(
        r"Failed to initialize NVML: Unknown Error",
        cause="device-access-denied",
        summary="the container has lost its right to open the GPU's device nodes",
        remedy="start the container anew; against its return:"
        " sudo nvidia-ctk system create-dev-char-symlinks --create-all",
    ),
)


def host_fault(daemon_error: str) -> HostFault:
    """What an engine that refused to start a container with a GPU meant."""
    said = daemon_error.strip()
    for known in _FAULTS:
        if known.text.search(said):
            return HostFault(
                cause=known.cause, summary=f"{known.summary} (the engine: {said})", remedy=known.remedy
            )
    return HostFault(
        cause="container-no-gpu",
        summary=f"the image starts without a GPU, and with one the engine says: {said}",
        remedy="rtbuild doctor says what is set up; docker run --rm --gpus all IMAGE shows the same error",
    )


def no_way_in(traces: tuple[str, ...]) -> HostFault:
    """A machine that has a GPU, and an engine that has no way to hand it out."""
    return HostFault(
        cause="container-no-gpu",
        summary=f"this machine has {', '.join(traces)}, but its engine cannot hand a GPU to a container",
        remedy=_INSTALL,
    )


def lost_on_the_way() -> HostFault:
    """A container that got a GPU by the engine's word, and found no trace of one inside."""
    return HostFault(
        cause="container-no-gpu",
        summary="the engine accepted the request for a GPU, and the container saw no trace of one",
        remedy="look for NVIDIA_VISIBLE_DEVICES=void in the image's environment, then: " + _CONFIGURE,
    )
