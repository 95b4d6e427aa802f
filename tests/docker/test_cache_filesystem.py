"""A cache on a file system without hard links, symbolic links and modes: the same image, bit for bit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from rtbuild_command import rtbuild

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.docker, pytest.mark.long]

MATRIX = """\
version: 1
name: plain
defaults: {python: "3.9", base: "rootfs:debian/bullseye", cuda: none}
include: [{framework: six==1.17.0}]
"""
_SIZE = 3 << 30
"""Bytes; the file is sparse, and rtbuild asks for this much room before it starts."""


@pytest.fixture
def without_links(tmp_path: Path) -> Iterator[Path]:
    """A folder on exFAT or FAT32, whichever this machine can mount from a file."""
    image, folder = tmp_path / "disk", tmp_path / "mounted"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(_SIZE)
    device = _run("losetup", "--find", "--show", str(image))
    if device is None:
        pytest.skip("this machine lends no loop device: needs root and losetup")
    try:
        for make, mount in (("mkfs.vfat", ("mount", "-t", "vfat")), ("mkfs.exfat", ("mount.exfat-fuse",))):
            if shutil.which(make) and _run(make, device) is not None:
                _run(*mount, device, str(folder))
            if os.path.ismount(folder):
                break
        else:
            pytest.skip("no FAT can be mounted here: needs the kernel's vfat, or exfat-fuse and exfatprogs")
        yield folder
    finally:
        if os.path.ismount(folder):
            _run("umount", str(folder))
        _run("losetup", "--detach", device)


def _run(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def test_the_image_is_the_same_on_a_file_system_without_links(tmp_path: Path, without_links: Path) -> None:
    (tmp_path / "plain.yaml").write_text(MATRIX)
    (without_links / "one").touch()
    with pytest.raises(OSError, match="one"):
        os.link(without_links / "one", without_links / "two")
    rtbuild(tmp_path, "lock", "plain.yaml")
    digests = []
    for name, env in (("usual", {}), ("fat", {"RTBUILD_CACHE": str(without_links / "cache")})):
        command = ("build", "plain.yaml", "--locked", "--engine", "none", "--output", name, "--json")
        done = rtbuild(tmp_path, *command, env=os.environ | env)
        digests.append(json.loads(done.stdout)["cells"][0]["image"]["digest"])
        for blob in (tmp_path / name / "blobs" / "sha256").iterdir():
            assert _run("sha256sum", str(blob.resolve())) == f"{blob.name}  {blob.resolve()}"
    assert digests[0] == digests[1]
    assert (without_links / "cache" / "layers" / "blobs").is_dir(), "the cache was there"
