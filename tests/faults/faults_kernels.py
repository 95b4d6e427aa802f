"""Faults of what compiles kernels as programs run: compilers, headers, nvcc, ptxas."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fault_list import fault

if TYPE_CHECKING:
    from fault_scene import Scene

KNOWN = ("sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a")
"""Cards of the ptxas of CUDA 12.8, which Triton 3.5 brings."""


def triton(scene: Scene, *cards: str) -> None:
    """Triton with a ptxas that holds the names of the cards that it knows, as the real one does."""
    folder = scene.site / "triton" / "backends" / "nvidia" / "bin"
    folder.mkdir(parents=True)
    tool = folder / "ptxas"
    tool.write_bytes(b"#!/bin/sh\nexit 0\n" + b"\0".join(name.encode() for name in cards) + b"\0")
    tool.chmod(0o755)
    scene.record("triton", "3.5.1", [tool])


def wants_compilers(scene: Scene) -> None:
    """An image with Triton that is to have compilers."""
    triton(scene, *KNOWN)
    scene.expect(compilers=True)


def without(scene: Scene, *names: str) -> None:
    """PATH with all programs of the system but these, and without what else they are called."""
    tools = scene.folder("tools")
    for path in (Path("/usr/bin"), Path("/bin")):
        for program in sorted(path.iterdir()):
            if not program.name.startswith(names) and not (tools / program.name).exists():
                (tools / program.name).symlink_to(program)
    scene.env["PATH"] = str(tools)


_COMPILERS = ("gcc", "g++", "clang", "cc", "c++", "x86_64-linux-gnu-g", "aarch64-linux-gnu-g")


@fault(
    "an image that is to have compilers, and has no C compiler",
    verdict="broken",
    cause="kernel-compiler-missing",
)
def compiler_removed(scene: Scene) -> None:
    wants_compilers(scene)
    without(scene, *_COMPILERS)


@fault(
    "an image that is to have compilers, and whose compiler does not compile",
    verdict="broken",
    cause="kernel-compiler-missing",
)
def compiler_without_headers(scene: Scene) -> None:
    """As gcc without libc6-dev: it is there, and the first include fails."""
    wants_compilers(scene)
    tool = scene.folder("cc") / "gcc"
    tool.write_text(
        "#!/bin/sh\necho 'probe.c:1:10: fatal error: stdlib.h: No such file or directory' >&2\nexit 1\n"
    )
    tool.chmod(0o755)
    scene.env["CC"] = str(tool)


@fault("FlashInfer without nvcc", verdict="broken", cause="kernel-compiler-missing")
def flashinfer_without_nvcc(scene: Scene) -> None:
    scene.record("flashinfer-python", "0.5.2", [])
    scene.env["CUDA_HOME"] = str(scene.folder("no-toolkit"))


@fault(
    "a ptxas of Triton that does not know the GPU", verdict="unsupported-gpu", cause="kernel-compiler-too-old"
)
def ptxas_older_than_the_card(scene: Scene) -> None:
    scene.cudnn()
    scene.driver(capability=121, driver=13000)
    wants_compilers(scene)
