"""Each library of a real cuDNN and its toolkit, broken in each of eight ways: the file is named."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from fault_scene import replace, swap

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fault_scene import Scene

pytestmark = pytest.mark.wheels
_WHEELS = ("cudnn-9.10.2", "cublas", "nvrtc", "cudart")
_PARTS = ["", "_graph", "_ops", "_cnn", "_adv"]
_PARTS += ["_engines_precompiled", "_engines_runtime_compiled", "_heuristic"]
LIBRARIES = [f"cudnn/lib/libcudnn{part}.so.9" for part in _PARTS]
LIBRARIES += [
    "cublas/lib/libcublas.so.12",
    "cublas/lib/libcublasLt.so.12",
    "cuda_nvrtc/lib/libnvrtc.so.12",
    "cuda_nvrtc/lib/libnvrtc-builtins.so.12.4",
    "cuda_runtime/lib/libcudart.so.12",
]
ABOUT_FILES = {
    "package-overwritten",
    "cudnn-file-corrupt",
    "cudnn-sublibrary-missing",
    "cudnn-sublibrary-mismatch",
    "nvrtc-missing",
}


def _changed(change: Callable[[bytearray], bytes | bytearray]) -> Callable[[Path], None]:
    return lambda path: replace(path, bytes(change(bytearray(path.read_bytes()))))


def _flipped(data: bytearray) -> bytearray:
    data[len(data) // 2] ^= 0x55
    return data


def _holed(data: bytearray) -> bytearray:
    """32 kB of zeros, or a quarter of a small file, over bytes that are none."""
    size = min(32 << 10, len(data) // 4)
    start = next(at for at in range(len(data) // 3, len(data), size) if any(data[at : at + size]))
    data[start : start + size] = bytes(len(data[start : start + size]))
    return data


def _foreign(path: Path) -> None:
    path.unlink()
    command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{path.name}", "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=b"int foreign(void) { return 1; }", check=True)


def _other_run_path(data: bytearray) -> bytearray:
    return data.replace(b"$ORIGIN", b"/nothin")


WAYS: dict[str, Callable[[Path], None]] = {
    "deleted": lambda path: path.unlink(),
    "emptied": lambda path: replace(path, b""),
    "truncated": _changed(lambda data: data[: len(data) * 2 // 3]),
    "flipped": _changed(_flipped),
    "zeros": _changed(_holed),
    "foreign": _foreign,
    "run path": _changed(_other_run_path),
}


def _sound(scene: Scene) -> None:
    for name in _WHEELS:
        scene.wheel(name)


def _is_named(scene: Scene, path: Path) -> None:
    outcome = scene.run()
    assert outcome.report, outcome.stderr
    assert outcome.code == 20, outcome.report["summary"]
    assert outcome.report["cause"] in ABOUT_FILES, outcome.report["summary"]
    assert path.name in str(outcome.report["proof"])
    assert outcome.unlisted() == []


EVERY = bool(os.environ.get("RTBUILD_EVERY_FAULT"))
"""Each library in each way: `make faults`. Without it each library once, the ways in turn."""
BROKEN = [
    (library, way)
    for number, library in enumerate(LIBRARIES)
    for turn, way in enumerate(sorted(WAYS))
    if EVERY or turn == number % len(WAYS)
]


@pytest.mark.parametrize(("library", "way"), BROKEN)
def test_a_broken_library_is_named(library: str, way: str, scene: Scene) -> None:
    _sound(scene)
    path = scene.site / "nvidia" / library
    if way == "run path" and b"$ORIGIN" not in path.read_bytes():
        pytest.skip("it has no run path")
    WAYS[way](path)
    _is_named(scene, path)


@pytest.mark.parametrize("record", [True, False], ids=["with RECORD", "without RECORD"])
@pytest.mark.parametrize("library", LIBRARIES[1:8] if EVERY else LIBRARIES[1:2])
def test_a_part_of_another_release_is_named(library: str, record: bool, scene: Scene) -> None:
    """Without RECORD, too: by cuDNN's own checks, or by the version in the code of a part that has none."""
    _sound(scene)
    path = scene.site / "nvidia" / library
    swap(path, scene.wheels("cudnn-9.1.0") / "nvidia" / library)
    if not record:
        next(scene.site.glob("nvidia_cudnn*/RECORD")).unlink()
    _is_named(scene, path)
