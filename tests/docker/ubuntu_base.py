"""``ubuntu:18.04`` and its like, put together of Ubuntu's own packages, for machines that reach no registry.

As the image of Docker Hub is: the smallest variant, with apt, and a ``sources.list`` with the updates. It is
not that image: the packages are those of today.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SUITES = {"18.04": "bionic", "20.04": "focal", "22.04": "jammy", "24.04": "noble"}
ARCHIVE = "http://archive.ubuntu.com/ubuntu"
_KEYS = "usr/share/keyrings/ubuntu-archive-keyring.gpg"


def ubuntu(folder: Path, host: str, tag: str) -> None:
    """Push ``library/ubuntu:TAG`` to the registry at ``host``; skips the test where apt cannot have it.

    The engine keeps no tag of it. Needs mmdebstrap and root.
    """
    folder.mkdir(exist_ok=True)
    lines = [
        f"deb {ARCHIVE} {SUITES[tag]}{part} main restricted universe multiverse\n"
        for part in ("", "-updates", "-security")
    ]
    (folder / "sources.list").write_text("".join(lines))
    _do(folder, "apt-get", "download", "ubuntu-keyring")
    (keyring,) = folder.glob("ubuntu-keyring_*.deb")
    _do(folder, "dpkg", "-x", keyring.name, "keys")
    signed = [line.replace("deb ", f"deb [signed-by={folder / 'keys' / _KEYS}] ") for line in lines]
    _do(
        folder,
        "mmdebstrap",
        "--variant=minbase",
        "--include=apt,ubuntu-keyring",
        '--aptopt=APT::Sandbox::User "root"',
        SUITES[tag],
        "tree.tar",
        "-",
        stdin="".join(signed),
    )
    (folder / "Dockerfile").write_text("FROM scratch\nADD tree.tar /\nCOPY sources.list /etc/apt/\n")
    reference = f"{host}/library/ubuntu:{tag}"
    output = f"type=image,name={reference},push=true"
    _do(folder, "docker", "buildx", "build", "--provenance=false", "--output", output, ".")
    _do(folder, "docker", "image", "rm", reference)


def _do(folder: Path, *command: str, stdin: str = "") -> None:
    done = subprocess.run(command, cwd=folder, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no {command[0]}, or it has no Ubuntu: {done.stderr[-500:]}")
