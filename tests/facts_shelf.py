"""A package index of small wheels, which stands in for one with gigabytes: ranges of real zip files."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zipfile
from typing import Any

import requests

from builder.core.errors import PackageIndexError
from builder.core.model import Wheel
from builder.core.packed_text import unpack_text
from builder.sources.index.simple_api import IndexFile

LINUX = "manylinux_2_28_x86_64"


class Shelf:
    """``wheels`` are members by file name. Counts what it was asked for in ``asked``."""

    def __init__(self, wheels: dict[str, dict[str, bytes | str]], *, down: bool = False) -> None:
        self.content = {file: packed(members) for file, members in wheels.items()}
        self.yanked: dict[str, str] = {}
        self.asked: list[str] = []
        self.down = down
        self.client = self

    def offers(self, name: str) -> tuple[IndexFile, ...]:
        if self.down:
            raise PackageIndexError("package index: connection refused")
        return tuple(
            IndexFile(
                name=file,
                url=f"http://index.invalid/{file}",
                sha256=hashlib.sha256(content).hexdigest(),
                size=len(content),
                yanked=self.yanked.get(file),
            )
            for file, content in self.content.items()
            if file.removesuffix(".tar.gz").split("-")[0].replace("_", "-") == name
        )

    def with_extra(self, extra: tuple[str, ...]) -> Shelf:
        return self

    def address(self, wheel: Wheel) -> str:
        if wheel.file not in self.content:
            raise PackageIndexError(f"no index has {wheel.file}")
        return f"http://index.invalid/{wheel.file}"

    def wheels(self) -> tuple[Wheel, ...]:
        """All of them, as a lock has them."""
        every = ((file, file.split("-"), content) for file, content in self.content.items())
        return tuple(
            Wheel(
                name=name.replace("_", "-"),
                version=version,
                file=file,
                sha256=hashlib.sha256(content).hexdigest(),
                size=len(content),
            )
            for file, (name, version, *_), content in every
        )

    def get(self, url: str, **options):
        file = url.rpartition("/")[2]
        self.asked.append(file)
        content = self.content[file]
        if "headers" not in options:
            whole = requests.Response()
            whole.status_code, whole.raw = 200, io.BytesIO(content)
            return whole
        first, _, last = options["headers"]["Range"].removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, len(content) - int(last))
        end = min(len(content), int(last) + 1) if first else len(content)
        answer = requests.Response()
        answer.status_code = 206
        answer.headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
        answer.raw = io.BytesIO(content[start:end])
        return answer


def library(*needed: str, glibc: tuple[str, ...] = (), paths: str | None = None, machine: int = 62) -> bytes:
    """A shared library that holds names of others, and versions that it asks of ``libc.so.6``."""
    strings = b"\0"
    entries: list[tuple[int, int]] = []

    def name(text: str) -> int:
        nonlocal strings
        strings += text.encode() + b"\0"
        return len(strings) - len(text) - 1

    entries += [(1, name(text)) for text in needed]
    entries += [(29, name(paths))] if paths is not None else []
    versions = [name(f"GLIBC_{version}") for version in glibc]
    verneed = struct.pack("<HHIII", 1, len(versions), name("libc.so.6"), 16, 0)
    for n, at in enumerate(versions):
        verneed += struct.pack("<IHHII", 0, 0, n + 2, at, 16 if n + 1 < len(versions) else 0)
    shift, start = 0x1000, 64 + 2 * 56  # addresses differ from places in the file, as in real ones
    entries += [(5, start + shift), (10, len(strings))]
    if glibc:
        entries += [(0x6FFFFFFE, start + len(strings) + shift), (0x6FFFFFFF, 1)]
    table = b"".join(struct.pack("<QQ", *entry) for entry in [*entries, (0, 0)])
    place = start + len(strings) + len(verneed)
    size = place + len(table)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, shift, shift, size, size, 4096)
    dynamic = struct.pack("<IIQQQQQQ", 2, 6, place, place + shift, place + shift, len(table), len(table), 8)
    return header + load + dynamic + strings + verneed + table


def packed(members: dict[str, bytes | str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, compress_type=zipfile.ZIP_DEFLATED)
    return out.getvalue()


def metadata(
    name: str, version: str, *requires: str, extras: tuple[str, ...] = (), python: str = ">=3.8"
) -> dict[str, str]:
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", f"Requires-Python: {python}"]
    lines += [f"Requires-Dist: {line}" for line in requires] + [
        f"Provides-Extra: {extra}" for extra in extras
    ]
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    return {f"{folder}/METADATA": "\n".join(lines) + "\n\nAbout it.\n"}


def fatbin(*architectures: str) -> bytes:
    """A container of GPU code, with an empty cubin or PTX for each architecture."""
    entries = b""
    for name in architectures:
        kind, _, capability = name.partition("_")
        entries += struct.pack("<HHIQ", 1 if kind == "compute" else 2, 0x101, 64, 8)
        entries += bytes(12) + struct.pack("<I", int(capability)) + bytes(32) + b"codecode"
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


def torch_python(
    *architectures: str, abi: str = "numpy._core", cudnn: tuple[int, int, int] | None = None
) -> bytes:
    """``libtorch_python.so``: the flags, NumPy's module, cuDNN's version as three constants."""
    code = b"\x90"
    if cudnn is not None:
        major, minor, patch = (struct.pack("<I", number) for number in cudnn)
        code = b"\x48\xc7\x07" + patch + b"\x48\xc7\x47\x08" + minor + b"\x48\xc7\x47\x10" + major
    return b"\x7fELF" + code + b"tail" + " ".join(architectures).encode() + b"\0" + abi.encode() + b"\0"


def jax_versions(cuda: int, cudnn: int) -> bytes:
    """Functions that return constants, in the order of ``_versions.so``."""
    return b"\x7fELF" + b"".join(
        b"\xbf" + struct.pack("<I", number) + b"\xe9" + bytes(4) for number in (cuda, cudnn, 120304)
    )


def torch(
    version: str,
    *,
    cuda: str = "12.8",
    cudnn: str = "9.10.2.21",
    python: str = "312",
    architectures=("sm_75", "sm_120"),
    linux: str = LINUX,
) -> dict[str, dict[str, bytes | str]]:
    members: dict[str, bytes | str] = {
        "torch/version.py": f"__version__ = '{version}'\ncuda = '{cuda}'\n",
        "torch/lib/libtorch_python.so": torch_python(*architectures),
        **metadata("torch", version, f"nvidia-cudnn-cu12=={cudnn}; platform_system == 'Linux'", "filelock"),
    }
    return {f"torch-{version}-cp{python}-cp{python}-{linux}.whl": members}


def jax(version: str, *, cudnn: int = 90800) -> dict[str, dict[str, bytes | str]]:
    """jax, jaxlib and both plug-ins of one release."""
    asked = [f"jax-cuda{cuda}-plugin[with-cuda]=={version}; extra == 'cuda{cuda}'" for cuda in (12, 13)]
    about = metadata("jax", version, f"jaxlib=={version}", "numpy>=1.25", *asked, extras=("cuda12", "cuda13"))
    return {
        f"jax-{version}-py3-none-any.whl": about,
        f"jaxlib-{version}-cp312-cp312-{LINUX}.whl": metadata("jaxlib", version),
        **_plugin(version, "12", jax_versions(12090, cudnn), "nvidia-cuda-runtime-cu12>=12.1.105"),
        **_plugin(version, "13", jax_versions(13000, 91200), "nvidia-cuda-runtime>=13.0.48"),
    }


def _plugin(version: str, cuda: str, built: bytes, runtime: str) -> dict[str, dict[str, bytes | str]]:
    pins = [f"nvidia-cudnn-cu{cuda}<10.0,>=9.8; extra == 'with-cuda'", f"{runtime}; extra == 'with-cuda'"]
    return {
        f"jax_cuda{cuda}_plugin-{version}-cp312-cp312-{LINUX}.whl": {
            f"jax_cuda{cuda}_plugin/_versions.so": built,
            f"jax_cuda{cuda}_plugin/_prng.so": fatbin("sm_50", "sm_90", "compute_90"),
            **metadata(f"jax-cuda{cuda}-plugin", version, *pins, extras=("with-cuda",)),
        }
    }


def names_row_of(table: str, name: str) -> dict[str, Any]:
    """The row of a package in a table as ``names_table`` gives it, unpacked."""
    packed = json.loads(table)[name]
    row: dict[str, Any] = json.loads(unpack_text(packed["row"]))
    assert packed["roots"] == row["roots"]
    return row
