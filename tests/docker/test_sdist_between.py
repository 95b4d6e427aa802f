"""Sources for Python 3.12, which no Debian has: real ones and treacherous ones, in the Debians around it."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from sdist_scene import SMALL, empty_cache, workshop

from builder.errors import CellError
from builder.index.client import Index, cache_path
from builder.index.target import Target
from builder.lock.file import LockEntry, Lockfile, read_lock, render
from builder.lock.resolve import pin
from builder.lock.sources import systems_of
from builder.model import Base, Sdist
from builder.oci.registry import Registry
from builder.oci.spec import MANIFEST

if TYPE_CHECKING:
    from pathlib import Path

    from registry import LoopbackRegistry

    from builder.index.client import LocalWheel
    from builder.model import Pinned, RootfsBase, Wheel
    from builder.sdist import Workshop

pytestmark = [pytest.mark.docker, pytest.mark.long]

CELL = replace(
    SMALL,
    id="numpy1.26.4-py3.12-ubuntu24.04",
    python="3.12",
    base=Base(kind="registry", name="ubuntu:24.04"),
    pip=("imutils==0.5.4", "promise==2.3", "setuptools==75.2.0"),
    from_source=("imutils", "promise"),
)
LABELS = {"org.opencontainers.image.ref.name": "ubuntu", "org.opencontainers.image.version": "24.04"}


@pytest.fixture(scope="module")
def works(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return workshop(empty_cache(tmp_path_factory.mktemp("here") / "cache"))


@pytest.fixture(scope="module")
def systems(works: Workshop) -> tuple[RootfsBase, RootfsBase]:
    above, below = systems_of("3.12", works.debian)
    assert below is not None
    return above, below


@pytest.fixture(scope="module")
def pinned(works: Workshop, tmp_path_factory: pytest.TempPathFactory, server: LoopbackRegistry) -> Pinned:
    """Of the base only the config is read, as ever: that of Ubuntu's image, without its layers."""
    folder = tmp_path_factory.mktemp("base")
    registry = Registry.from_user({"docker.io": server.host})
    config = {"os": "linux", "architecture": "amd64", "config": {"Labels": LABELS}}
    (folder / "config").write_text(json.dumps(config))
    content = (folder / "config").read_bytes()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    repository = f"{server.host}/library/ubuntu"
    registry.push_blob(repository, digest, folder / "config")
    kind = "application/vnd.oci.image.config.v1+json"
    of_config = {"mediaType": kind, "digest": digest, "size": len(content)}
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": of_config, "layers": []}
    registry.put_manifest(f"{repository}:24.04", json.dumps(manifest).encode(), MANIFEST)
    return pin(CELL, index=Index.from_user(), registry=registry, debian=works.debian, workshop=works)


def built(pinned: Pinned, name: str) -> Wheel:
    return next(wheel for wheel in pinned.wheels if wheel.name == name)


def test_the_lock_has_one_of_the_two_systems(pinned: Pinned) -> None:
    source = built(pinned, "imutils").source
    assert source is not None
    assert (source.python, source.system.suite) == ("3.12", "trixie")
    assert [wheel.file for wheel in source.requires] == ["setuptools-75.2.0-py3-none-any.whl"]


def test_another_machine_makes_the_same_by_the_lock(pinned: Pinned, tmp_path: Path) -> None:
    entry = LockEntry(
        inputs="sha256:" + "0" * 64,
        platform=CELL.platform,
        base=pinned.base,
        apt=(),
        wheels=pinned.wheels,
        epoch=pinned.epoch,
    )
    lock = tmp_path / "small.lock.json"
    lock.write_text(render(Lockfile(matrix="small", cells={CELL.id: entry})))
    read = read_lock(lock)
    assert read is not None
    works = workshop(empty_cache(tmp_path / "cache"))
    for wheel in read.cells[CELL.id].wheels:
        if wheel.source is not None:
            assert works.make(wheel, Index.from_user()) == cache_path(wheel, works.cache)


def test_the_system_that_is_not_in_the_lock_makes_it_too(
    pinned: Pinned, systems: tuple[RootfsBase, RootfsBase], tmp_path: Path
) -> None:
    wheel = built(pinned, "promise")
    assert wheel.source is not None
    works = workshop(empty_cache(tmp_path / "cache"))
    assert systems[1].suite == "bookworm"
    there = replace(wheel, source=replace(wheel.source, system=systems[1]))
    assert works.make(there, Index.from_user()) == cache_path(wheel, works.cache)


SETUP = """
import sys
from pathlib import Path
from setuptools import setup

Path("tiny.py").write_text({content})
setup(name="tiny", version="1.0", py_modules=["tiny"], install_requires={requires})
"""


def locked(
    works: Workshop,
    systems: tuple[RootfsBase, RootfsBase],
    *,
    content: str = '"x = 1"',
    requires: str = "[]",
) -> LocalWheel:
    text = SETUP.format(content=content, requires=requires).encode()
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        entry = tarfile.TarInfo("tiny-1.0/setup.py")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    data = made.getvalue()
    sha256 = hashlib.sha256(data).hexdigest()
    sdist = Sdist(name="tiny", version="1.0", file="tiny-1.0.tar.gz", sha256=sha256, size=len(data))
    path = cache_path(sdist, works.cache)
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    system, also = systems
    target = Target(python="3.12", platform="linux/amd64", glibc="2.39")
    return works.lock(sdist, index=Index.from_user(), target=target, system=system, also=also)


def test_setup_code_that_asks_what_both_answer_alike(
    works: Workshop, systems: tuple[RootfsBase, RootfsBase]
) -> None:
    asks = '["enum34"] if sys.version_info < (3, 4) else []'
    assert locked(works, systems, requires=asks).wheel.file == "tiny-1.0-py3-none-any.whl"


@pytest.mark.parametrize(
    ("asks", "file"),
    [
        ({"content": "'made = ' + repr(sys.version)"}, "tiny.py"),
        ({"requires": '["six"] if sys.version_info < (3, 12) else []'}, "tiny-1.0.dist-info/METADATA"),
    ],
)
def test_setup_code_that_asks_for_its_python_is_refused(
    works: Workshop, systems: tuple[RootfsBase, RootfsBase], asks: dict[str, str], file: str
) -> None:
    with pytest.raises(CellError) as raised:
        locked(works, systems, **asks)
    assert raised.value.message == (
        "tiny-1.0.tar.gz comes out otherwise with Python 3.11 than with 3.13, and no system to build in has "
        f"the 3.12 between them: {file}"
    )
