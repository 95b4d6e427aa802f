"""A base image laid out as NVIDIA lays out ``nvidia/cuda``, for machines that reach no registry that has it.

The operating system is Debian's, the libraries are NVIDIA's own out of its wheels, and the places, links and
variables are those of NVIDIA's images (https://gitlab.com/nvidia/container-images/cuda, ``dist/11.8.0``).
It says what it is: ``/etc/os-release`` is Debian's, and the tag ends in ``debian11``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import subprocess
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from builder import resources
from builder.debian.archive import Debian
from builder.errors import MissingToolError, PackageIndexError
from builder.image.rootfs import cached_rootfs
from builder.index.client import Index

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from builder.model import Wheel

TAG = "11.8.0-cudnn8-runtime-debian11"
CUDA_HOME = "usr/local/cuda-11.8"
LIBRARIES = f"{CUDA_HOME}/targets/x86_64-linux/lib"
CUDNN_LIBRARIES = "usr/lib/x86_64-linux-gnu"
ENVIRONMENT = {
    "PATH": "/usr/local/nvidia/bin:/usr/local/cuda/bin:"
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "NVARCH": "x86_64",
    "NVIDIA_REQUIRE_CUDA": "cuda>=11.8 brand=tesla,driver>=450,driver<451",
    "NV_CUDA_CUDART_VERSION": "11.8.89-1",
    "CUDA_VERSION": "11.8.0",
    "LD_LIBRARY_PATH": "/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
    "NVIDIA_VISIBLE_DEVICES": "all",
    "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    "NV_CUDNN_VERSION": "8.6.0.163",
    "NV_CUDNN_PACKAGE_NAME": "libcudnn8",
}

SMALL = ("nvidia-cuda-runtime-cu11==11.8.89",)
FULL = (
    *SMALL,
    "nvidia-cublas-cu11==11.11.3.6",
    "nvidia-cudnn-cu11==8.6.0.163",
    "nvidia-cufft-cu11==10.9.0.58",
    "nvidia-curand-cu11==10.3.0.86",
    "nvidia-cusolver-cu11==11.4.1.48",
    "nvidia-cusparse-cu11==11.7.5.86",
    "nvidia-cuda-nvrtc-cu11==11.8.89",
)
"""What TensorFlow 2.8 opens; 3.6 GB unpacked."""


@dataclass(frozen=True, kw_only=True)
class CudaBase:
    reference: str
    """With the loopback registry's host; the engine pulls from there without TLS."""
    digest: str


@contextlib.contextmanager
def available() -> Iterator[None]:
    """Skip the test where this machine lacks a tool or reaches no archive."""
    try:
        yield
    except (MissingToolError, PackageIndexError) as problem:
        pytest.skip(str(problem))


def debian(*, python: bool = True) -> Path:
    """The tar of a bullseye; without Python as NVIDIA's images are, but with archives for apt-get."""
    archive = Debian()
    base = archive.resolve("bullseye", platform="linux/amd64")
    if not python:
        base = dataclasses.replace(
            base,
            debs=tuple(
                deb for deb in base.debs if not re.search(r"python3|^(media-types|mailcap)$", deb.package)
            ),
        )
    return cached_rootfs(base, cache=resources.cache(), fetch=archive.fetch)


def sources_list() -> str:
    """What bullseye's ``sources.list`` says on a machine with this one's mirrors."""
    return "".join(
        f"deb [check-valid-until=no] {source.uri} {source.suite} main\n"
        for source in Debian()._sources("bullseye")
        if source.suite != "bullseye-updates"
    )


def nvidia_wheels(requirements: Sequence[str]) -> list[tuple[Wheel, Path]]:
    """The wheels by name and version, from the user's index into the cache."""
    index = Index.from_user()
    names = {requirement.partition("==")[0] for requirement in requirements}
    resolved = index.resolve(requirements, python="3.9", platform="linux/amd64", glibc="2.31")
    found = [wheel for wheel in resolved if wheel.name in names]
    paths = index.fetch_all(found, cache=resources.cache())
    return [(wheel, paths[wheel.sha256]) for wheel in found]


def lay_out(wheels: Sequence[tuple[Wheel, Path]], tree: Path, *, shims_only: bool) -> None:
    """Unpack the libraries below ``tree``: real file by full version, link by soname.

    ``shims_only``: of cuDNN only the small library that opens the others.
    """
    for wheel, path in wheels:
        cudnn = wheel.name.startswith("nvidia-cudnn")
        folder = tree / (CUDNN_LIBRARIES if cudnn else LIBRARIES)
        folder.mkdir(parents=True, exist_ok=True)
        version = ".".join(wheel.version.split(".")[:3]) if cudnn else wheel.version
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                name = member.filename.rpartition("/")[2]
                if not re.search(r"/lib/lib[\w-]+\.so\.[\d.]+$", "/" + member.filename):
                    continue
                if shims_only and cudnn and name != "libcudnn.so.8":
                    continue
                real = f"{name.partition('.so.')[0]}.so.{version}"
                with archive.open(member) as source, (folder / real).open("wb") as target:
                    while chunk := source.read(1 << 20):
                        target.write(chunk)
                (folder / real).chmod(0o644)
                if real != name:
                    (folder / name).symlink_to(real)
    for link, target in {
        f"{CUDA_HOME}/lib64": "targets/x86_64-linux/lib",
        "etc/alternatives/cuda": f"/{CUDA_HOME}",
        "etc/alternatives/cuda-11": f"/{CUDA_HOME}",
        "usr/local/cuda": "/etc/alternatives/cuda",
        "usr/local/cuda-11": "/etc/alternatives/cuda-11",
    }.items():
        (tree / link).parent.mkdir(parents=True, exist_ok=True)
        (tree / link).symlink_to(target)
    conf = tree / "etc/ld.so.conf.d"
    conf.mkdir(parents=True)
    (conf / "000_cuda.conf").write_text("/usr/local/cuda/targets/x86_64-linux/lib\n")
    (conf / "nvidia.conf").write_text("/usr/local/nvidia/lib\n/usr/local/nvidia/lib64\n")


def nvidia_cuda(
    folder: Path,
    host: str,
    *,
    packages: Sequence[str] = SMALL,
    python: bool = False,
    shims_only: bool = False,
    environment: Mapping[str, str] = ENVIRONMENT,
) -> CudaBase:
    """Build the base below ``folder`` and push it to the registry at ``host``.

    The engine keeps no tag of it. Needs mmdebstrap, the user's package index and Debian mirror.
    """
    with available():
        rootfs = debian(python=python)
        wheels = nvidia_wheels(packages)
    tree = folder / "tree"
    lay_out(wheels, tree, shims_only=shims_only)
    (tree / "etc/apt").mkdir(parents=True, exist_ok=True)
    (tree / "etc/apt/sources.list").write_text(sources_list())
    os.link(rootfs, folder / "rootfs.tar")
    lines = ["FROM scratch", "ADD rootfs.tar /", "COPY tree/ /", "RUN --network=none ldconfig"]
    lines += [f"ENV {name}={json.dumps(value)}" for name, value in environment.items()]
    (folder / "Dockerfile").write_text("\n".join(lines) + "\n")
    reference = f"{host}/nvidia/cuda:{TAG}"
    metadata = folder / "metadata.json"
    subprocess.run(
        ["docker", "buildx", "build", "--provenance=false", "--sbom=false", "--metadata-file", str(metadata),
         "--output", f"type=image,name={reference},push=true,compression=zstd", str(folder)],
        check=True,
        capture_output=True,
    )  # fmt: skip
    subprocess.run(["docker", "image", "rm", reference], check=True, capture_output=True)
    return CudaBase(reference=reference, digest=json.loads(metadata.read_text())["containerimage.digest"])
