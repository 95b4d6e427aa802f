"""Real source distributions from the real index: locked, built, made again elsewhere, and in an image."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from builder import resources
from builder.errors import PackageIndexError
from builder.layers.rootfs import cached_rootfs
from builder.lock import Debian, Index, Registry, pin
from builder.lock.index import cache_path
from builder.model import Base, Cell, Cuda, RootfsBase
from builder.recipe import render, write
from builder.sdist import Workshop

if TYPE_CHECKING:
    from pathlib import Path

    from builder.model import Pinned

pytestmark = pytest.mark.docker

CELL = Cell(
    id="numpy1.26.4-py3.11-bookworm",
    matrix="small",
    frameworks=("numpy==1.26.4",),
    python="3.11",
    base=Base(kind="rootfs", name="debian/bookworm"),
    cuda=Cuda(provider="none"),
    pip=("imutils==0.5.4", "pyperclip==1.9.0", "setuptools==75.2.0"),
    from_source=("imutils", "pyperclip", "setuptools"),
)


def empty_cache(folder: Path) -> Path:
    """Nothing but what makes a system: that is the same on every machine, and is what takes long."""
    folder.mkdir()
    for name in ("rootfs", "debs", "apt"):
        (resources.cache() / name).mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(resources.cache() / name)
    return folder


def locked(cell: Cell, cache: Path, previous: Pinned | None = None) -> Pinned:
    debian = Debian.from_user(cache=cache)
    return pin(
        cell,
        index=Index.from_user(),
        registry=Registry.from_user(),
        debian=debian,
        previous=previous,
        workshop=Workshop(debian=debian, cache=cache),
    )


@pytest.fixture(scope="module")
def pinned(tmp_path_factory: pytest.TempPathFactory) -> Pinned:
    return locked(CELL, empty_cache(tmp_path_factory.mktemp("here") / "cache"))


def test_without_the_key_nothing_is_built(tmp_path: Path) -> None:
    with pytest.raises(PackageIndexError, match="naming it under 'from-source'"):
        locked(replace(CELL, from_source=()), empty_cache(tmp_path / "cache"))


def test_only_what_has_no_wheel_is_built(pinned: Pinned) -> None:
    built = {wheel.name: wheel for wheel in pinned.wheels if wheel.source is not None}
    assert set(built) == {"imutils", "pyperclip"}
    source = built["imutils"].source
    assert source is not None
    assert source.sdist.file == "imutils-0.5.4.tar.gz"
    assert [wheel.file for wheel in source.requires] == ["setuptools-75.2.0-py3-none-any.whl"]
    assert source.system == pinned.base


def test_another_machine_makes_the_same(pinned: Pinned, tmp_path: Path) -> None:
    wheel = next(wheel for wheel in pinned.wheels if wheel.name == "imutils")
    cache = empty_cache(tmp_path / "cache")
    works = Workshop(debian=Debian.from_user(cache=cache), cache=cache)
    assert works.make(wheel, Index.from_user()) == cache_path(wheel, cache)


def test_what_was_built_stays_locked(pinned: Pinned, tmp_path: Path) -> None:
    changed = replace(CELL, pip=(*CELL.pip, "idna==3.7"))
    again = locked(changed, empty_cache(tmp_path / "cache"), pinned)
    assert {w for w in again.wheels if w.source} == {w for w in pinned.wheels if w.source}


def test_plain_docker_build_takes_them(pinned: Pinned, tmp_path: Path) -> None:
    """As from an index: no file says that they came from a folder."""
    debian, index, cache = Debian.from_user(), Index.from_user(), resources.cache()
    works = Workshop(debian=debian, cache=cache)
    recipe = render(pinned, probe=b"#!/usr/bin/env python3\n", version="0.1.0")
    blobs = {}
    for name, blob in recipe.blobs.items():
        if isinstance(blob, RootfsBase):
            blobs[name] = cached_rootfs(blob, cache=cache, fetch=debian.fetch)
        else:
            blobs[name] = works.make(blob, index) if blob.source else index.fetch(blob, cache=cache)
    write(recipe, tmp_path / "recipe", blobs=blobs)
    assert (tmp_path / "recipe/built/imutils-0.5.4-py3-none-any.whl").is_file()
    name = f"rtbuild-test/{uuid.uuid4().hex[:12]}:cell"
    ca = os.environ.get("SSL_CERT_FILE")
    authority = ["--secret", f"id=ca,src={ca}"] if ca else []
    docker("build", "--label", "io.rtbuild.test=1", *authority, "--tag", name, str(tmp_path / "recipe"))
    try:
        plain = docker("run", "--rm", name, "python", "-c", LOOK)
    finally:
        docker("image", "rm", "--force", name)
    found = json.loads(plain)
    assert found["versions"] == ["0.5.4", "1.9.0"]
    assert not [path for path in found["files"] if "direct_url" in path]


LOOK = """
import importlib.metadata as m, json, pyperclip
files = [str(f) for n in ("imutils", "pyperclip") for f in m.files(n)]
print(json.dumps({"versions": [m.version("imutils"), m.version("pyperclip")], "files": files}))
"""


def docker(*command: str) -> str:
    done = subprocess.run(["docker", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
