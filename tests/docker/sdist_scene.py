"""Cells with packages that are built from sources: locked in a cache of their own, rendered, and started."""

from __future__ import annotations

import contextlib
import os
import subprocess
import uuid
from typing import TYPE_CHECKING

from builder.core import resources
from builder.core.model import Base, Cell, Cuda, RootfsBase
from builder.image.compose.systems import Pythons, cached_rootfs
from builder.image.recipe.rendering import render
from builder.image.recipe.values import write
from builder.image.sdist import Workshop
from builder.plan.lock.pinning import pin
from builder.sources.debian import Debian
from builder.sources.index.client import Index
from builder.sources.oci.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.core.model import Pinned

SMALL = Cell(
    id="numpy1.26.4-py3.11-bookworm",
    matrix="small",
    frameworks=("numpy==1.26.4",),
    python="3.11",
    base=Base(kind="rootfs", name="debian/bookworm"),
    cuda=Cuda(provider="none"),
)
"""Without anything from sources, which each file of tests names for itself."""


def empty_cache(folder: Path) -> Path:
    """Nothing but what makes a system: that is the same on every machine, and is what takes long."""
    folder.mkdir()
    for name in ("rootfs", "debs", "apt"):
        (resources.cache() / name).mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(resources.cache() / name)
    return folder


def workshop(cache: Path) -> Workshop:
    return Workshop(debian=Debian(cache=cache), cache=cache)


def locked(cell: Cell, cache: Path, previous: Pinned | None = None) -> Pinned:
    works = workshop(cache)
    return pin(
        cell,
        index=Index.from_user(),
        registry=Registry.from_user(),
        debian=works.debian,
        previous=previous,
        workshop=works,
        pythons=Pythons(works.cache),
    )


@contextlib.contextmanager
def image(pinned: Pinned, context: Path) -> Iterator[str]:
    """The image that plain ``docker build`` makes of the rendered recipe, which stays in ``context``."""
    index, cache = Index.from_user(), resources.cache()
    works = workshop(cache)
    recipe = render(pinned, probe=b"#!/usr/bin/env python3\n", version="0.1.0")
    blobs = {}
    for name, blob in recipe.blobs.items():
        if isinstance(blob, RootfsBase):
            blobs[name] = cached_rootfs(blob, cache=cache, fetch=works.debian.fetch)
        else:
            blobs[name] = works.make(blob, index) if blob.source else index.fetch(blob, cache=cache)
    write(recipe, context, blobs=blobs)
    name = f"rtbuild-test/{uuid.uuid4().hex[:12]}:cell"
    ca = os.environ.get("SSL_CERT_FILE")
    authority = ["--secret", f"id=ca,src={ca}"] if ca else []
    docker("build", "--label", "io.rtbuild.test=1", *authority, "--tag", name, str(context))
    try:
        yield name
    finally:
        docker("image", "rm", "--force", name)


def docker(*command: str) -> str:
    done = subprocess.run(["docker", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
