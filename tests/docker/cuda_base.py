"""A base image laid out as NVIDIA lays out ``nvidia/cuda``, for machines that reach no registry that has it.

The operating system is Debian's, the libraries are NVIDIA's own out of its wheels, and the places, links and
variables are those of NVIDIA's images (https://gitlab.com/nvidia/container-images/cuda, ``dist/11.8.0``).
It says what it is: ``/etc/os-release`` is Debian's, and the tag ends in Debian's release.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from builder.core import resources
from builder.core.errors import MissingToolError, PackageIndexError
from builder.image.compose.systems import cached_rootfs
from builder.sources.debian import Debian
from builder.sources.index.client import Index
from builder.sources.index.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

TAG = "11.8.0-cudnn8-runtime-debian11"
CUDA_HOME = "usr/local/cuda-11.8"
LIBRARIES = f"{CUDA_HOME}/targets/x86_64-linux/lib"
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

WHEEL = "nvidia-cuda-runtime-cu11==11.8.89"


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


def debian(suite: str) -> Path:
    """The tar of a Debian release without Python, as NVIDIA's images are."""
    archive = Debian()
    base = archive.resolve(suite, platform="linux/amd64", python=False)
    return cached_rootfs(base, cache=resources.cache(), fetch=archive.fetch)


def sources_list(suite: str) -> str:
    """What the release's ``sources.list`` says on a machine with this one's mirrors."""
    return "".join(
        f"deb [check-valid-until=no] {source.uri} {source.suite} main\n"
        for source in Debian()._sources(suite)
        if source.suite != f"{suite}-updates"
    )


def lay_out(tree: Path) -> None:
    """Unpack the libraries of :data:`WHEEL` below ``tree``: real file by full version, link by soname."""
    target = Target(python="3.9", platform="linux/amd64", glibc="2.31")
    resolved = Index.from_user().resolve([WHEEL], target=target)
    paths = Index.from_user().fetch_all(resolved, cache=resources.cache())
    folder = tree / LIBRARIES
    folder.mkdir(parents=True)
    for wheel in resolved:
        with zipfile.ZipFile(paths[wheel.sha256]) as archive:
            for member in archive.namelist():
                if re.search(r"/lib/lib[\w-]+\.so\.[\d.]+$", "/" + member):
                    name = member.rpartition("/")[2]
                    real = folder / f"{name.partition('.so.')[0]}.so.{wheel.version}"
                    real.write_bytes(archive.read(member))
                    (folder / name).symlink_to(real.name)
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
    tag: str = TAG,
    suite: str = "bullseye",
    environment: Mapping[str, str] = ENVIRONMENT,
) -> CudaBase:
    """Build the base below ``folder`` and push it to the registry at ``host``; ``suite``: its Debian release.

    The engine keeps no tag of it. Needs mmdebstrap, the user's package index and Debian mirror.
    """
    tree = folder / "tree"
    with available():
        rootfs = debian(suite)
        lay_out(tree)
    (tree / "etc/apt").mkdir(parents=True, exist_ok=True)
    (tree / "etc/apt/sources.list").write_text(sources_list(suite))
    os.link(rootfs, folder / "rootfs.tar")
    lines = ["FROM scratch", "ADD rootfs.tar /", "COPY tree/ /", "RUN --network=none ldconfig"]
    lines += [f"ENV {name}={json.dumps(value)}" for name, value in environment.items()]
    (folder / "Dockerfile").write_text("\n".join(lines) + "\n")
    reference = f"{host}/nvidia/cuda:{tag}"
    metadata = folder / "metadata.json"
    subprocess.run(
        ["docker", "buildx", "build", "--provenance=false", "--sbom=false", "--metadata-file", str(metadata),
         "--output", f"type=image,name={reference},push=true,compression=zstd", str(folder)],
        check=True,
        capture_output=True,
    )  # fmt: skip
    subprocess.run(["docker", "image", "rm", reference], check=True, capture_output=True)
    return CudaBase(reference=reference, digest=json.loads(metadata.read_text())["containerimage.digest"])
