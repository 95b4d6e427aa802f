"""testcontainers as these tests use it: on the engine of this machine, and without a reaper.

The reaper, Ryuk, is an image of Docker Hub, and tests pull nothing from there. Each container is removed by
the block that started it; what a killed run left is removed by the next one, which sees by its label that the
process is gone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from testcontainers.core.config import testcontainers_config

LABEL = "io.rtbuild.test.containers"
"""On every container, with the process that started it."""

testcontainers_config.ryuk_disabled = True


def labels() -> dict[str, str]:
    return {LABEL: str(os.getpid())}


def remove_left() -> None:
    """Remove containers of runs that were killed, and no other."""
    for line in _containers("{{.ID}} " + f'{{{{.Label "{LABEL}"}}}}'):
        container, _, process = line.partition(" ")
        if not Path("/proc", process).exists():
            _docker("rm", "-fv", container)


def remove_images() -> None:
    """Remove the images that were made for containers, unless another run is at work with them."""
    if not _containers("{{.ID}}"):
        for image in _docker("images", "-q", "--filter", f"label={LABEL}=image").split():
            _docker("rmi", image)


def _containers(form: str) -> list[str]:
    return _docker("ps", "-a", "--filter", f"label={LABEL}", "--format", form).splitlines()


def _docker(*arguments: str) -> str:
    if shutil.which("docker") is None:  # then there is nothing to remove either
        return ""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    return done.stdout
