"""One lock of every kind that a recipe is rendered from."""

from __future__ import annotations

import dataclasses
import hashlib

from builder.core.model import Base, Cell, Cuda, Deb, Options, Pinned, RegistryBase, RootfsBase, Wheel

EPOCH = 1_789_205_228
PROBE = b"#!/usr/bin/env python3\nprint('a stand-in for the probe')\n"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def wheel(name: str, version: str, tags: str = "py3-none-any") -> Wheel:
    file = f"{name.replace('-', '_')}-{version}-{tags}.whl"
    return Wheel(name=name, version=version, file=file, sha256=digest(file), size=1000, uploaded=EPOCH)


def deb(package: str, version: str) -> Deb:
    file = f"pool/main/{package[0]}/{package}/{package}_{version}_amd64.deb"
    return Deb(
        package=package,
        version=version,
        architecture="amd64",
        file=file,
        sha256=digest(file),
        size=1000,
        archive="debian",
    )


def registry(reference: str, **env: str) -> RegistryBase:
    return RegistryBase(
        reference=reference,
        digest=f"sha256:{digest(reference)}",
        env=tuple(env.items()),
        labels=(),
        size=1000,
    )


NVIDIA_PATH = (
    "/usr/local/nvidia/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)
BULLSEYE = RootfsBase(
    suite="bullseye",
    debs=(deb("libc6", "2.31-13+deb11u11"), deb("python3.9", "3.9.2-1+deb11u3")),
    epoch=EPOCH - 1000,
)
PIP = wheel("pip", "26.0.1")

ROOTFS_WHEELS = Pinned(
    cell=Cell(
        id="tensorflow2.8.4-cu118-cudnn8.6.0-py3.9-bullseye",
        matrix="tf28",
        frameworks=("tensorflow==2.8.4",),
        python="3.9",
        base=Base(kind="rootfs", name="debian/bullseye"),
        cuda=Cuda(
            provider="wheels",
            packages=("nvidia-cudnn-cu11==8.6.0.163", "nvidia-cuda-runtime-cu11==11.8.89"),
        ),
        pip=("numpy==1.23.5",),
    ),
    base=BULLSEYE,
    wheels=(
        wheel("nvidia-cudnn-cu11", "8.6.0.163", "py3-none-manylinux1_x86_64"),
        wheel("nvidia-cuda-runtime-cu11", "11.8.89", "py3-none-manylinux2014_x86_64"),
        wheel("tensorflow", "2.8.4", "cp39-cp39-manylinux2010_x86_64"),
        wheel("numpy", "1.23.5", "cp39-cp39-manylinux_2_17_x86_64"),
        PIP,
    ),
    epoch=EPOCH,
)
NVIDIA_CUDNN = Pinned(
    cell=Cell(
        id="tensorflow2.8.4-cu112-cudnn8-py3.8-ubuntu20.04",
        matrix="tf28",
        frameworks=("tensorflow==2.8.4",),
        python="3.8",
        base=Base(kind="registry", name="nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04"),
        cuda=Cuda(provider="base"),
    ),
    base=registry(
        "nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04",
        PATH=NVIDIA_PATH,
        CUDA_VERSION="11.2.2",
        NV_CUDNN_VERSION="8.1.1.33",
        NVIDIA_VISIBLE_DEVICES="all",
        NVIDIA_DRIVER_CAPABILITIES="compute,utility",
    ),
    wheels=(wheel("tensorflow", "2.8.4", "cp38-cp38-manylinux2010_x86_64"), PIP),
    epoch=EPOCH,
)
NVIDIA_TORCH = Pinned(
    cell=Cell(
        id="torch2.4.1-cu124-py3.10-ubuntu22.04",
        matrix="torch",
        frameworks=("torch==2.4.1",),
        python="3.10",
        base=Base(kind="registry", name="nvidia/cuda:12.4.1-base-ubuntu22.04"),
        cuda=Cuda(provider="wheels"),
        index=("https://wheels.example.invalid/whl/cu124",),
    ),
    base=registry(
        "nvidia/cuda:12.4.1-base-ubuntu22.04",
        PATH=NVIDIA_PATH,
        CUDA_VERSION="12.4.1",
        NVIDIA_VISIBLE_DEVICES="all",
        NVIDIA_DRIVER_CAPABILITIES="compute,utility",
    ),
    wheels=(
        wheel("nvidia-cudnn-cu12", "9.1.0.70", "py3-none-manylinux2014_x86_64"),
        wheel("nvidia-cuda-runtime-cu12", "12.4.127", "py3-none-manylinux2014_x86_64"),
        wheel("torch", "2.4.1+cu124", "cp310-cp310-linux_x86_64"),
        PIP,
    ),
    epoch=EPOCH,
)
SEVERAL = Pinned(
    cell=Cell(
        id="torch2.8.0-jax0.7.1-cu128-py3.13-trixie",
        matrix="both",
        frameworks=("torch==2.8.0", "jax==0.7.1"),
        python="3.13",
        base=Base(kind="rootfs", name="debian/trixie"),
        cuda=Cuda(provider="wheels"),
        options=Options(strict_cudnn=True),
    ),
    base=RootfsBase(suite="trixie", debs=(deb("python3.13", "3.13.5-2"),), epoch=EPOCH),
    wheels=(
        wheel("nvidia-cudnn-cu12", "9.10.2.21", "py3-none-manylinux_2_27_x86_64"),
        wheel("torch", "2.8.0", "cp313-cp313-manylinux_2_28_x86_64"),
        wheel("jax", "0.7.1"),
        PIP,
    ),
    epoch=EPOCH,
)
CPU = Pinned(
    cell=Cell(
        id="onnxruntime1.22.1-cpu-py3.12-ubuntu24.04",
        matrix="cpu",
        frameworks=("onnxruntime==1.22.1",),
        python="3.12",
        base=Base(kind="registry", name="ubuntu:24.04"),
        cuda=Cuda(provider="none"),
        platform="linux/arm64",
    ),
    base=registry("ubuntu:24.04"),
    wheels=(wheel("onnxruntime", "1.22.1", "cp312-cp312-manylinux_2_27_aarch64"), PIP),
    epoch=EPOCH,
)
EVERYTHING = Pinned(
    cell=Cell(
        id="torch2.4.1-cu124-py3.10-ubuntu22.04-audio",
        matrix="torch",
        frameworks=("torch==2.4.1",),
        python="3.10",
        base=NVIDIA_TORCH.cell.base,
        cuda=Cuda(provider="wheels"),
        pip=("soundfile==0.13.1",),
        apt=("libsndfile1", "ffmpeg=7:4.4.2-0ubuntu0.22.04.1"),
        env=(("OMP_NUM_THREADS", "4"), ("GREETING", 'costs $5, said "she"'), ("NVIDIA_VISIBLE_DEVICES", "0")),
        variant="audio",
        options=Options(compression="gzip"),
    ),
    base=NVIDIA_TORCH.base,
    wheels=(*NVIDIA_TORCH.wheels, wheel("soundfile", "0.13.1")),
    epoch=EPOCH,
)

COLAB = Pinned(
    cell=dataclasses.replace(
        ROOTFS_WHEELS.cell,
        id="tensorflow2.8.4-py3.9-bullseye-cudnn8.6.0-colab",
        profile="colab",
        apt=("tini",),
    ),
    base=BULLSEYE,
    wheels=(*ROOTFS_WHEELS.wheels, wheel("notebook", "6.5.7")),
    epoch=EPOCH,
)

LOCKS = {
    "rootfs-wheels": ROOTFS_WHEELS,
    "nvidia-cudnn": NVIDIA_CUDNN,
    "nvidia-torch": NVIDIA_TORCH,
    "several-frameworks": SEVERAL,
    "cpu": CPU,
    "apt-env-variant-gzip": EVERYTHING,
    "colab": COLAB,
}
