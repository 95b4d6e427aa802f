"""An operating system of one file for tests: Debian's static busybox, from the machine's own apt sources."""

from __future__ import annotations

import subprocess
import tarfile
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from builder.core.model import Base, Cell, Cuda, Pinned, RootfsBase
from builder.image.recipe.values import Recipe

if TYPE_CHECKING:
    from pathlib import Path

    from builder.image.recipe.values import RecipeStep

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


def system(folder: Path) -> Path:
    """The tar of a system of one program, in the place of a Debian's."""
    program = busybox(folder)
    names = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    path = folder / "rootfs.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(program, "./bin/busybox")
        for one in names:
            link = tarfile.TarInfo(f"./bin/{one}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            if one != "busybox":
                tar.addfile(link)
    return path


def recipe(cell: str, *steps: RecipeStep, **given: Any) -> Recipe:
    """A recipe of steps over a rootfs without packages and without wheels."""
    described = Cell(
        id=cell,
        matrix=f"{cell}-test",
        frameworks=("six==1.17.0",),
        python="3.11",
        base=Base(kind="rootfs", name="debian/bookworm"),
        cuda=Cuda(provider="none"),
    )
    base = RootfsBase(suite="bookworm", debs=(), epoch=1_000_000_000)
    return Recipe(
        cell=described,
        pinned=Pinned(cell=described, base=base, wheels=(), epoch=1_000_000_000),
        blobs={},
        inputs="sha256:" + "1" * 64,
        steps=steps,
        added=tuple(folder for step in steps for folder in step.makes),
        **given,
    )
