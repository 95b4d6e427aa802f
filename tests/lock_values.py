"""Cells, wheels and packages of a made-up lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from doubles.package_index import sha256

from builder.core.model import Base, Cell, Cuda, Deb, Matrix, Pinned, RegistryBase, RootfsBase, Wheel

if TYPE_CHECKING:
    from pathlib import Path


def lock_wheel(name: str, version: str = "1.0", *, size: int = 1000, uploaded: int = 1_600_000_000) -> Wheel:
    return Wheel(
        name=name,
        version=version,
        file=f"{name.replace('-', '_')}-{version}-py3-none-any.whl",
        sha256=sha256(f"{name} {version}".encode()),
        size=size,
        uploaded=uploaded,
    )


def lock_deb(package: str, version: str = "1:2.0-3+deb11u1", archive: str = "debian") -> Deb:
    return Deb(
        package=package,
        version=version,
        architecture="amd64",
        file=f"pool/main/{package[0]}/{package}/{package}_2.0-3+deb11u1_amd64.deb",
        sha256=sha256(package.encode()),
        size=2000,
        archive=archive,
    )


def lock_registry_base(reference: str = "nvidia/cuda:x", **labels: str) -> RegistryBase:
    return RegistryBase(
        reference=reference,
        digest="sha256:" + sha256(reference.encode()),
        env=(("CUDA_VERSION", "11.8.0"), ("NV_CUDNN_VERSION", "8.6.0.163")),
        labels=tuple(sorted(labels.items())),
        size=3000,
    )


def lock_cell(cell_id: str, **changes: Any) -> Cell:
    values: dict[str, Any] = {
        "id": cell_id,
        "matrix": "tf28",
        "frameworks": ("tensorflow==2.8.4",),
        "python": "3.9",
        "base": Base(kind="rootfs", name="debian/bullseye"),
        "cuda": Cuda(provider="wheels", packages=("nvidia-cudnn-cu11==8.6.0.163",)),
        "pip": ("numpy==1.23.5",),
    }
    return Cell(**(values | changes))


def lock_pinned(cell: Cell, *, base: RegistryBase | RootfsBase | None = None) -> Pinned:
    system = RootfsBase(
        suite="bullseye",
        debs=(lock_deb("bash"), lock_deb("python3", archive="debian-security")),
        epoch=1_500_000_000,
    )
    wheels = (
        lock_wheel("nvidia-cudnn-cu11", "8.6.0.163", size=10),
        lock_wheel("tensorflow", "2.8.4"),
        lock_wheel("numpy", "1.23.5"),
    )
    return Pinned(cell=cell, base=base or system, wheels=wheels, epoch=1_600_000_000)


def lock_matrix(path: Path, *cells: Cell) -> Matrix:
    return Matrix(name="tf28", path=path, description="", cells=cells)
