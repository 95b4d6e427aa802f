"""Faults of the machine that appear before the probe starts, each with its remedy.

The engine's text only selects the words. The proof is that the same image starts without a GPU, which
:func:`builder.verify.verify` tries before it blames the machine.
"""

import re
from dataclasses import dataclass, replace

from builder.engine.facts import TOOLKIT_GUIDE, TOOLKIT_SETUP

_INSTALL = f"install NVIDIA's container toolkit ({TOOLKIT_GUIDE}), then: {TOOLKIT_SETUP}"


@dataclass(frozen=True, kw_only=True)
class HostFault:
    """Why this machine gave a container no GPU."""

    cause: str
    summary: str
    remedy: str
    said: str = ""
    """A regular expression of the engine's words; letter case does not count."""


# Texts of dockerd, libnvidia-container (https://github.com/NVIDIA/libnvidia-container/tree/main/src) and the
# NVIDIA Container Toolkit; the reports behind each row are linked in docs/verdicts.md. First match wins.
_FAULTS = (
    HostFault(
        said=r'could not select device driver "cdi"|unresolvable CDI devices',
        cause="container-no-gpu",
        summary="the engine knows no CDI device of that name",
        remedy="sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
    ),
    HostFault(
        said=r"could not select device driver",
        cause="container-no-gpu",
        summary="the engine cannot hand a GPU to a container: NVIDIA's container toolkit is not set up",
        remedy=_INSTALL,
    ),
    HostFault(
        said=r"unknown or invalid runtime name: nvidia",
        cause="container-no-gpu",
        summary="the engine does not know the runtime nvidia",
        remedy=TOOLKIT_SETUP,
    ),
    HostFault(
        said=r"requirement error: unsatisfied condition: \S+",
        cause="driver-too-old",
        summary="this machine's driver is older than the image's CUDA asks for",
        remedy="install a newer NVIDIA driver, or build on a base with an older CUDA",
    ),
    HostFault(
        said=r"load library failed: libnvidia-ml\.so|libnvidia-ml\.so\.1: cannot open",
        cause="driver-missing",
        summary="the NVIDIA driver's libraries are not on this machine, or not where the toolkit looks",
        remedy="install NVIDIA's driver; if it is there, set its root in"
        " /etc/nvidia-container-runtime/config.toml",
    ),
    HostFault(
        said=r"driver/library version mismatch",
        cause="driver-library-mismatch",
        summary="the driver was upgraded, and the old kernel module is still loaded",
        remedy="sudo reboot, or unload and load the module nvidia",
    ),
    HostFault(
        said=r"no cuda-capable device is detected|nvml error: .*no devices",
        cause="no-device",
        summary="the driver is there and finds no GPU",
        remedy="nvidia-smi -L; load the module nvidia, and see that the GPU has power",
    ),
    HostFault(
        said=r"Failed to initialize NVML: Unknown Error",
        cause="device-access-denied",
        summary="the container has lost its right to open the GPU's device nodes",
        remedy="start the container anew; against its return:"
        " sudo nvidia-ctk system create-dev-char-symlinks --create-all",
    ),
)


def host_fault(daemon_error: str) -> HostFault:
    """The fault behind an engine's refusal to start a container with a GPU."""
    said = daemon_error.strip()
    for fault in _FAULTS:
        if re.search(fault.said, said, re.IGNORECASE):
            return replace(fault, summary=f"{fault.summary} (the engine: {said})")
    return HostFault(
        cause="container-no-gpu",
        summary=f"the image starts without a GPU, and with one the engine says: {said}",
        remedy="rtbuild doctor says what is set up; docker run --rm --gpus all IMAGE shows the same error",
    )


def no_way_in(traces: tuple[str, ...]) -> HostFault:
    """The machine has a GPU, and its engine cannot give it to a container."""
    return HostFault(
        cause="container-no-gpu",
        summary=f"this machine has {', '.join(traces)}, but its engine cannot hand a GPU to a container",
        remedy=_INSTALL,
    )


LOST_ON_THE_WAY = HostFault(
    cause="container-no-gpu",
    summary="the engine accepted the request for a GPU, and the container saw no trace of one",
    remedy="look for NVIDIA_VISIBLE_DEVICES=void in the image's environment, then: " + TOOLKIT_SETUP,
)
