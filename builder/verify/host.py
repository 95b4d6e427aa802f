"""Faults of the machine that appear before the probe starts, each with its remedy.

The engine's text only selects the words. The proof is that the same image starts without a GPU, which
:func:`builder.verify.verify` tries before it blames the machine.
"""

import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from builder.engine.facts import TOOLKIT_GUIDE, TOOLKIT_SETUP

_INSTALL = f"install NVIDIA's container toolkit ({TOOLKIT_GUIDE}), then: {TOOLKIT_SETUP}"


@dataclass(frozen=True, kw_only=True)
class HostFault:
    """Why this machine gave a container no GPU."""

    summary: str
    remedy: str
    cause: str = "container-no-gpu"
    said: str = ""
    """A regular expression of the engine's words."""


_FAULTS = tuple(
    HostFault(**row | {"remedy": row["remedy"].format(install=_INSTALL, setup=TOOLKIT_SETUP)})
    for row in tomllib.loads(Path(__file__).with_name("faults.toml").read_text("utf-8"))["fault"]
)


def host_fault(daemon_error: str) -> HostFault:
    """The fault behind an engine's refusal to start a container with a GPU."""
    said = daemon_error.strip()
    for fault in _FAULTS:
        if re.search(fault.said, said, re.IGNORECASE):
            return replace(fault, summary=f"{fault.summary} (the engine: {said})")
    return HostFault(
        summary=f"the image starts without a GPU, and with one the engine says: {said}",
        remedy="rtbuild doctor says what is set up; docker run --rm --gpus all IMAGE shows the same error",
    )


def no_way_in(traces: tuple[str, ...]) -> HostFault:
    """The machine has a GPU, and its engine cannot give it to a container."""
    return HostFault(
        summary=f"this machine has {', '.join(traces)}, but its engine cannot hand a GPU to a container",
        remedy=_INSTALL,
    )


LOST_ON_THE_WAY = HostFault(
    summary="the engine accepted the request for a GPU, and the container saw no trace of one",
    remedy="look for NVIDIA_VISIBLE_DEVICES=void in the image's environment, then: " + TOOLKIT_SETUP,
)
