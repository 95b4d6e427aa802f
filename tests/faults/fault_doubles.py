"""Compiles the test doubles, each once per session: a driver, cuDNN 7 to 9, toolkit libraries.

Driver and cuDNN are compiled from NVIDIA's own headers of their release; gcc refuses what differs from them.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from nvidia_headers import cudnn_include, headers, nearest_cudnn

from builder.core.errors import PackageIndexError
from builder.sources.index.archives import UnknownError

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCES = Path(__file__).resolve().parent / "doubles"
_WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "-Wno-deprecated-declarations")
_DRIVER = "12.8"  # the cuda.h of the fake driver, unless a test asks for another
_PARTS = {
    8: {
        "ops_infer": ("-DPART_BASE", "-DPART_DESC", "-DCHECK_NAME=cudnnOpsInferVersionCheck"),
        "ops_train": ("-DCHECK_NAME=cudnnOpsTrainVersionCheck",),
        "cnn_infer": ("-DPART_CONV", "-DCHECK_NAME=cudnnCnnInferVersionCheck"),
        "cnn_train": ("-DPART_TRAIN", "-DCHECK_NAME=cudnnCnnTrainVersionCheck"),
        "adv_infer": ("-DCHECK_NAME=cudnnAdvInferVersionCheck",),
        "adv_train": ("-DCHECK_NAME=cudnnAdvTrainVersionCheck",),
    },
    9: {
        "graph": ("-DPART_BASE", "-DCHECK_NAME=cudnnGraphVersionCheck"),
        "ops": ("-DPART_DESC", "-DCHECK_NAME=cudnnOpsVersionCheck"),
        "cnn": ("-DPART_CONV", "-DPART_TRAIN", "-DCHECK_NAME=cudnnCnnVersionCheck"),
        "adv": ("-DCHECK_NAME=cudnnAdvVersionCheck",),
        "engines_precompiled": (),
        "engines_runtime_compiled": (),
        "heuristic": (),
    },
}
_CUDART = {10: 10020, 11: 11080, 12: 12090, 13: 13000}


class Doubles:
    """A compiler with a memory; every method gives the folder in which the library lies."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def compile(self, target: Path, source: str, *flags: str) -> Path:
        """One shared library, named by the file it goes into."""
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            command = ["gcc", "-shared", "-fPIC", "-O1", *_WARNINGS, f"-Wl,-soname,{target.name}"]
            command += [*flags, "-o", str(target), str(SOURCES / source), "-ldl", "-lm"]
            subprocess.run(command, check=True, capture_output=True, text=True)
        return target

    def driver(self, release: str = _DRIVER) -> Path:
        """The fake driver, from the cuda.h of this CUDA release."""
        (include,) = self._headers(lambda: (headers("driver", release),))
        folder = self.root / f"driver-{release}"
        names = _enumerators(include / "cuda.h", r"CUDA_(?:SUCCESS|ERROR_\w+)")
        flags = (f"-I{self._table(folder, 'error_names.inc', names)}", f"-I{include}")
        return self.compile(folder / "libcuda.so.1", "fake_driver.c", *flags).parent

    @staticmethod
    def _headers(read: Callable[[], tuple[Path, ...]]) -> tuple[Path, ...]:
        try:
            return read()
        except (OSError, PackageIndexError, UnknownError) as error:
            pytest.skip(f"NVIDIA's headers are neither in the cache nor in an index: {error}")

    @staticmethod
    def _table(folder: Path, name: str, names: list[str]) -> Path:
        """A C include file with a line for each name; its folder."""
        place = folder.with_name(f"{folder.name}-tables")
        place.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("".join(f"X({known})\n" for known in names))
        return place

    def wrapper(self) -> Path:
        """The LD_PRELOADed dlopen of a profiler; this one a file."""
        return self.compile(self.root / "wrapper" / "dlopen_wrapper.so", "dlopen_wrapper.c")

    def cudnn(self, version: str, flavour: int = 12) -> Path:
        """All files of a fake cuDNN of this version, built for CUDA ``flavour``."""
        major, minor, patch = (int(part) for part in version.split("."))
        number = major * (10000 if major >= 9 else 1000) + minor * 100 + patch
        folder = self.root / f"cudnn-{version}-cu{flavour}"
        base = f"libcudnn_{'graph' if major >= 9 else 'ops_infer'}.so.{major}"
        include = self._headers(lambda: cudnn_include(nearest_cudnn(version)))
        status = next(
            h for h in (include[0] / "cudnn_graph.h", include[0] / "cudnn_ops_infer.h") if h.exists()
        )
        names = _enumerators(status, r"CUDNN_STATUS_\w+")
        flags = (
            *(f"-I{path}" for path in (self._table(folder, "status_names.inc", names), *include)),
            f"-DVERSION={number}",
            f"-DCUDART={_CUDART[flavour]}",
            f'-DBASE="{base}"',
            "-Wl,-rpath,$ORIGIN",
        )
        if major == 7:
            parts = ("-DPART_BASE", "-DPART_DESC", "-DPART_CONV", "-DPART_TRAIN")
            self.compile(folder / "libcudnn.so.7", "fake_cudnn.c", *flags, *parts)
            return folder
        for part, defines in _PARTS[major].items():
            self.compile(folder / f"libcudnn_{part}.so.{major}", "fake_cudnn.c", *flags, *defines)
        shim = folder / f"libcudnn.so.{major}"
        versions = (f"-DMAJOR={major}", f"-DVERSION={number}")
        self.compile(shim, "fake_cudnn_shim.c", *versions, "-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags")
        return folder

    def toolkit(self, name: str, number: int = 12040) -> Path:
        """A fake of any other CUDA library; one in the driver's place has its own folder."""
        folder = self.root / (f"no-driver-{number}" if name == "libcuda.so.1" else f"toolkit-{number}")
        return self.compile(folder / name, "fake_toolkit.c", f"-DVERSION={number}")

    def nvrtc(self) -> Path:
        """The folder of a fake NVRTC of CUDA 13, which has no run path, and of its builtins."""
        builtins = self.toolkit("libnvrtc-builtins.so.13.0", 13000)
        flags = (f'-DBUILTINS="{builtins.name}"',)
        return self.compile(builtins.with_name("libnvrtc.so.13"), "fake_nvrtc.c", *flags).parent

    def requester(self, target: Path, needed: tuple[Path, ...], *flags: str) -> Path:
        """A library of a framework, linked against others."""
        links = [part for file in needed for part in (f"-L{file.parent}", f"-l:{file.name}")]
        number = "-DVERSION=0"
        return self.compile(target, "fake_toolkit.c", number, "-Wl,--no-as-needed", *links, *flags)


def _enumerators(header: Path, pattern: str) -> list[str]:
    """Names that an enum of this header gives a number of their own, in order."""
    found = re.findall(rf"^\s*({pattern})\s*=\s*\d+", header.read_text(), re.MULTILINE)
    return list(dict.fromkeys(found))
