"""How large a cell is said to be, beside what its layers then are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from layer_wheels import Builder, make_missing, pinned

from builder.core.model import Deb, RegistryBase, RootfsBase
from builder.image.compose.cell_layers import plan
from builder.image.compose.sizes import COMPILERS, CellSize, measure
from builder.image.layers.store import LayerStore
from builder.pipeline.stages import refuse_large
from builder.plan.lock.file import OWN_LAYER

if TYPE_CHECKING:
    from layer_wheels import Made

    from builder.core.model import Pinned


@pytest.fixture
def made(tmp_path: Path) -> list[Made]:
    builder = Builder(tmp_path)
    library = b"\x7fELF" + b"\0" * 5000
    return [
        builder.wheel("nvidia-big", {"nvidia/cudnn/lib/libcudnn.so.9": library}, pad=OWN_LAYER),
        builder.wheel("small", {"small/__init__.py": b"pass\n" * 100, "small/tests/test_a.py": b"x" * 9000}),
        builder.pip(),
    ]


def sizes(cell: Pinned, made: list[Made], folder: Path) -> CellSize:
    places = {one.wheel.sha256: one.path for one in made}
    return measure(cell, store=LayerStore(folder), place=lambda wheel: places.get(wheel.sha256, Path("none")))


def test_before_and_after_the_layers_are_made(made: list[Made], tmp_path: Path) -> None:
    cell = pinned(made)
    before = sizes(cell, made, tmp_path / "store")
    assert [layer.made for layer in before.layers] == [False, False, False]
    store = LayerStore(tmp_path / "store")
    rootfs = tmp_path / "rootfs.tar"
    rootfs.write_bytes(b"\0" * 10240)
    paths = {one.wheel.sha256: one.path for one in made}
    lease = store.lease()
    make_missing(plan(cell, lease), wheel_paths=paths, rootfs_tar=rootfs)
    lease.close()
    after = sizes(cell, made, tmp_path / "store")
    assert [layer.made for layer in after.layers] == [True, True, True]
    assert after.layers[0].unpacked == 10240
    for packages, layer in zip((before.packages[:1], before.packages[1:]), after.layers[1:], strict=True):
        content = sum(package.unpacked for package in packages)
        assert content < layer.unpacked < content + 40 * 1024, "headers and padding, and nothing else"
    assert after.unpacked == sum(layer.unpacked for layer in after.layers)


def test_packages_and_files_largest_first_without_what_is_left_out(made: list[Made], tmp_path: Path) -> None:
    found = sizes(pinned(made), made, tmp_path / "store")
    assert [package.name for package in found.packages] == ["nvidia-big", "pip", "small"] or [
        package.name for package in found.packages
    ] == ["nvidia-big", "small", "pip"]
    assert found.largest[0].path.endswith("/nvidia_big.pad")
    assert found.largest[0].package == "nvidia-big"
    small = next(package for package in found.packages if package.name == "small")
    assert small.unpacked < 9000
    assert not found.doubled


def test_the_parts_of_a_shared_layer_add_up(made: list[Made], tmp_path: Path) -> None:
    found = sizes(pinned(made), made, tmp_path / "store")
    parts = [package.compressed for package in found.packages if package.name != "nvidia-big"]
    assert sum(parts) == pytest.approx(found.layers[-1].compressed, abs=2)


def test_a_wheel_that_is_not_here_is_estimated_and_said_to_be(made: list[Made], tmp_path: Path) -> None:
    found = sizes(pinned(made), made[1:], tmp_path / "store")
    big = next(package for package in found.packages if package.name == "nvidia-big")
    assert not big.known
    assert big.unpacked == 2 * made[0].wheel.size


def test_a_second_copy_of_cudnn_is_named(made: list[Made], tmp_path: Path) -> None:
    again = Builder(tmp_path).wheel("torch-like", {"torch/lib/libcudnn.so.9": b"\x7fELF"})
    found = sizes(pinned([*made, again]), [*made, again], tmp_path / "store")
    (soname, paths) = found.doubled[0]
    assert soname == "libcudnn.so.9"
    assert [path.removeprefix("/opt/runtime/lib/python/site-packages") for path in paths] == [
        "/nvidia/cudnn/lib/libcudnn.so.9",
        "/torch/lib/libcudnn.so.9",
    ]


def test_what_compilers_cost_is_said(made: list[Made], tmp_path: Path) -> None:
    cell = pinned(made)
    assert sizes(cell, made, tmp_path).compilers is None
    names = (
        "gcc",
        "g++-12",
        "libc6-dev",
        "libasan8",
        "cpp-12",
        "libc6",
        "zlib1g",
        "libgcc-s1",
        "libexpat1-dev",
    )
    debs = tuple(
        Deb(
            package=name,
            version="1",
            architecture="amd64",
            file="f",
            sha256=name,
            size=1000,
            archive="debian",
        )
        for name in names
    )
    with_them = replace(
        cell,
        cell=replace(cell.cell, compilers=True),
        base=RootfsBase(suite="bookworm", debs=debs, epoch=0),
    )
    assert sizes(with_them, made, tmp_path).compilers == 6 * 4000
    image = RegistryBase(reference="x", digest="sha256:0", env=(), labels=(), size=1)
    assert sizes(replace(with_them, base=image), made, tmp_path).compilers == COMPILERS


def test_a_broken_budget_names_the_largest_packages(made: list[Made]) -> None:
    cell = pinned(made)
    options = replace(cell.cell.options, max_size=1000)
    cell = replace(cell, cell=replace(cell.cell, options=options))
    refuse_large(cell, 1000)
    with pytest.raises(Exception, match=r"budget.*nvidia-big 1\.0 \(8\.4 MB as a wheel\)") as raised:
        refuse_large(cell, 2000)
    assert "rtbuild size cell" in str(raised.value)
