"""An operating system of one file for tests: Debian's static busybox, from the machine's own apt sources."""

from __future__ import annotations

import subprocess
import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

LABEL = "io.rtbuild.test"

BASE = f"""FROM scratch AS base
COPY --chmod=0755 busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
LABEL {LABEL}=1
"""


def busybox(folder: Path) -> Path:
    """Download and unpack it; about 2 MB. Skips the test where apt cannot."""
    commands = (["apt-get", "download", "busybox-static"], ["sh", "-c", "dpkg-deb -x busybox-static*.deb ."])
    for command in commands:
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("needs apt, to get busybox-static")
        if done.returncode != 0:
            pytest.skip(f"{' '.join(command)}: {done.stderr.strip()[-200:]}")
    return folder / "bin" / "busybox"


def context(folder: Path, busybox: Path, dockerfile: str, **files: str) -> Path:
    """A build context with a busybox base and what ``dockerfile`` adds; ``files`` get their mode 0755."""
    folder.mkdir()
    (folder / "busybox").write_bytes(busybox.read_bytes())
    (folder / "Dockerfile").write_text(BASE + dockerfile)
    for name, text in files.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def name() -> str:
    """A name that no other test has."""
    return f"rtbuild-test/{uuid.uuid4().hex[:12]}:cell"
