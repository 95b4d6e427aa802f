"""What apt brought in: read from the image, kept, compared with the time before."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from doubles.engine import EngineDouble

from builder.core.errors import CellError
from builder.core.model import Base, Cell, Cuda, DebianPackage, Image
from builder.pipeline.build import LIST, drift, read_packages, remember

if TYPE_CHECKING:
    from pathlib import Path

CELL = Cell(
    id="cell",
    matrix="m",
    frameworks=("six==1.17.0",),
    python="3.11",
    base=Base(kind="registry", name="nvidia/cuda:x"),
    cuda=Cuda(provider="base"),
)
IMAGE = Image(cell=CELL, reference="r", digest="sha256:1", content="sha256:2", size=1)


def holding(content: bytes | None) -> EngineDouble:
    """Has the list in its images, or not."""
    return EngineDouble(files={} if content is None else {LIST: content})


def package(name: str, version: str = "1", architecture: str = "amd64") -> DebianPackage:
    return DebianPackage(name=name, version=version, architecture=architecture)


def test_packages_are_read_from_the_image() -> None:
    text = b"libgomp1 10.2.1-6 amd64\nlibc6 2.31-13+deb11u11 i386\n"
    engine = holding(text)
    found = read_packages(engine, IMAGE)
    assert engine.read == [(IMAGE.digest, LIST)]
    assert found == (package("libc6", "2.31-13+deb11u11", "i386"), package("libgomp1", "10.2.1-6"))
    assert read_packages(holding(None), IMAGE) == read_packages(holding(b""), IMAGE) == ()


@pytest.mark.parametrize("content", [b"\xff\n", b"only-a-name\n"])
def test_a_list_that_somebody_else_wrote(content: bytes) -> None:
    with pytest.raises(CellError, match="not as rtbuild wrote it"):
        read_packages(holding(content), IMAGE)


def test_drift_names_what_is_new_gone_and_other() -> None:
    before = [package("a", "1"), package("b", "1"), package("c", "1"), package("c", "1", "i386")]
    now = [package("a", "1"), package("b", "2"), package("c", "1", "i386"), package("d", "3")]
    assert drift(before, now) == (
        "the distribution's packages drifted: b 1 is now 2, c 1 is gone, d 3 is new"
    )
    assert drift(now, now) is None
    many = [package(f"p{number}") for number in range(9)]
    assert (drift([], many) or "").endswith("p5 1 is new, and 3 more")


def test_the_time_before_is_kept_and_a_damaged_file_is_no_time_before(tmp_path: Path) -> None:
    assert remember(tmp_path, CELL, IMAGE, [package("a", "1")]) is None
    path = tmp_path / "m" / "cell.json"
    assert json.loads(path.read_bytes())["packages"] == [
        {"name": "a", "version": "1", "architecture": "amd64"}
    ]
    assert "a 1 is now 2" in (remember(tmp_path, CELL, IMAGE, [package("a", "2")]) or "")
    assert remember(tmp_path, CELL, IMAGE, [package("a", "2")]) is None
    path.write_bytes(path.read_bytes()[:30])
    assert remember(tmp_path, CELL, IMAGE, [package("a", "3")]) is None
    assert "a 3 is now 4" in (remember(tmp_path, CELL, IMAGE, [package("a", "4")]) or "")
    assert [one.name for one in path.parent.iterdir()] == ["cell.json"]
