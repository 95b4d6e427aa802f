"""Real systems out of real Debian packages: the same bytes twice, small, clean, and Python works in them."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
import tarfile
import uuid
from typing import TYPE_CHECKING

import cuda_base
import pytest

from builder.core import resources
from builder.image.compose.systems import cached_rootfs, make
from builder.sources.debian import Debian

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.docker

LIMIT = 130_000_000
"""Bytes of a tar: what a base image without CUDA may weigh."""
PYTHON = {"bullseye": "3.9", "bookworm": "3.11", "trixie": "3.13"}


@pytest.fixture(scope="module", params=PYTHON)
def system(request):
    """(suite, tar)"""
    archive = Debian()
    with cuda_base.available():
        base = archive.resolve(request.param, platform="linux/amd64")
        return request.param, cached_rootfs(base, cache=resources.cache(), fetch=archive.fetch)


def members(tar: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(tar) as archive:
        return {member.name.removeprefix("./"): member for member in archive}


def test_two_runs_give_the_same_bytes(tmp_path):
    archive = Debian()
    with cuda_base.available():
        base = archive.resolve("bullseye", platform="linux/amd64")
        debs = archive.fetch(base.debs)
        kept = cached_rootfs(base, cache=resources.cache(), fetch=archive.fetch)
    made = make(base, debs, tmp_path / "again.tar")
    with kept.open("rb") as first, made.open("rb") as second:
        assert hashlib.file_digest(first, "sha256").digest() == hashlib.file_digest(second, "sha256").digest()


def test_what_is_in_it(system):
    suite, tar = system
    assert tar.stat().st_size < LIMIT
    found = members(tar)
    assert f"usr/bin/python{PYTHON[suite]}" in found
    assert found["dev"].isdir()
    assert found["bin"].issym() == (suite != "bullseye")  # merged /usr
    assert not [name for name in found if name.startswith("dev/")]
    assert "usr/share/doc/libc6/copyright" in found
    for folder in ("usr/share/man/", "usr/share/locale/", "var/lib/apt/lists/", "var/log/", "tmp/", "run/"):
        files = [name for name in found if name.startswith(folder) and found[name].isfile()]
        assert [name for name in files if found[name].size] == [], folder
    for gone in (
        "etc/hostname",
        "etc/resolv.conf",
        "etc/hosts",
        "etc/.pwd.lock",
        "var/cache/ldconfig/aux-cache",
    ):
        assert gone not in found
    assert not [name for name in found if name.endswith("99mmdebstrap")]


def test_no_time_is_later_than_the_release(system):
    suite, tar = system
    newest = max(member.mtime for member in members(tar).values())
    assert newest == Debian().resolve(suite, platform="linux/amd64").epoch


def test_nothing_of_this_machine_is_in_it(system):
    _, tar = system
    host = os.uname().nodename.encode()
    with tarfile.open(tar) as archive:
        for member in archive:
            if not member.isfile() or not member.name.startswith(("./etc/", "./var/")):
                continue
            content = archive.extractfile(member).read()
            assert b"rtbuild-rootfs-" not in content, member.name
            assert b"copy://" not in content, member.name
            assert len(host) < 8 or host not in content, member.name


def test_python_is_compiled_and_checks_its_sources(system):
    _, tar = system
    with tarfile.open(tar) as archive:
        compiled = [member for member in archive if member.name.endswith(".pyc")]
        assert len(compiled) > 500
        for member in compiled:
            flags = struct.unpack("<I", archive.extractfile(member).read(8)[4:])[0]
            assert flags == 0b11, f"{member.name} holds a time"  # hash-based and checked: PEP 552
    sources = {name for name in members(tar) if name.endswith("/asyncio/base_events.py")}
    assert len(sources) == 1


def test_it_runs(system, tmp_path):
    suite, tar = system
    name = f"rtbuild-test/{uuid.uuid4().hex[:12]}:rootfs"
    os.link(tar, tmp_path / "rootfs.tar")
    (tmp_path / "Dockerfile").write_text("FROM scratch\nADD rootfs.tar /\n")
    subprocess.run(["docker", "build", "--tag", name, str(tmp_path)], check=True, capture_output=True)
    script = (
        "import asyncio, ctypes, json, platform, sqlite3, ssl, sys\n"
        "context = ssl.create_default_context(cafile='/etc/ssl/certs/ca-certificates.crt')\n"
        "print(json.dumps([sys.version_info[:2], len(context.get_ca_certs()) > 100,"
        " asyncio.__cached__ is not None, platform.freedesktop_os_release()['VERSION_CODENAME']]))"
    )
    if suite == "bullseye":  # platform.freedesktop_os_release came with Python 3.10
        script = script.replace("platform.freedesktop_os_release()['VERSION_CODENAME']", "'bullseye'")
    try:
        done = subprocess.run(
            ["docker", "run", "--rm", "--network=none", name, "/usr/bin/python3", "-c", script],
            capture_output=True,
            text=True,
            check=True,
        )
        version = [int(part) for part in PYTHON[suite].split(".")]
        assert json.loads(done.stdout) == [version, True, True, suite]
        audit = subprocess.run(
            ["docker", "run", "--rm", "--network=none", name, "dpkg", "--audit"],
            capture_output=True,
            check=True,
        )
        assert audit.stdout == b""
    finally:
        subprocess.run(["docker", "image", "rm", "--force", name], capture_output=True, check=False)
