from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

import pytest
from layer_wheels import Builder

from builder.layers import LayerStore

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    folder = tmp_path / "wheels"
    folder.mkdir()
    return Builder(folder)


@pytest.fixture
def store(tmp_path: Path) -> LayerStore:
    return LayerStore(tmp_path / "store")


@pytest.fixture
def rootfs(tmp_path: Path) -> Path:
    path = tmp_path / "rootfs.tar"
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo("./etc/os-release")
        entry.size = 5
        archive.addfile(entry, io.BytesIO(b"ID=x\n"))
    return path
