"""NVIDIA's own C headers: read by range out of the wheels that carry them, into the cache, never committed.

``nvidia_headers.json`` names the wheel of each release, its sha256 as the index gives it, and the sha256 of
the headers together. ``python tests/faults/nvidia_headers.py`` writes it anew from the releases listed below.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from builder.core import resources
from builder.sources.index.archives import RemoteZip
from builder.sources.index.client import Index

PINS = Path(__file__).with_name("nvidia_headers.json")
_RUNTIME = (
    "builtin_types channel_descriptor crt/host_config crt/host_defines cuda_device_runtime_api cuda_runtime "
    "cuda_runtime_api device_types driver_functions driver_types host_config host_defines library_types "
    "surface_types texture_types vector_functions vector_types"
)
# What is kept of a wheel, by the kind of its pins; cuDNN's *_v8.h and *_v9.h are copies.
_KEPT = {
    "cudnn": re.compile(r"cudnn(?!.*_v\d\.h$)\w*\.h"),
    "driver": re.compile(r"cuda\.h"),
    "nccl": re.compile(r"nccl\.h"),
    "nvrtc": re.compile(r"nvrtc\.h"),
    "runtime": re.compile(rf"({_RUNTIME.replace(' ', '|')})\.h(pp)?"),
    "crt": re.compile(r"crt/(host_config|host_defines)\.h"),
}
_LOCK = threading.Lock()


@functools.cache
def pins() -> dict[str, dict[str, dict[str, str]]]:
    return json.loads(PINS.read_text())


def releases(kind: str) -> list[str]:
    """Pinned releases, oldest first: of ``cudnn`` and ``nccl`` as ``9.10.2``, of the others the CUDA."""
    return sorted(pins()[kind], key=lambda text: [int(part) for part in text.split(".")])


def headers(kind: str, release: str) -> Path:
    """The folder with the headers of one release; reads them into the cache if they are not there.

    Raises OSError if they are neither there nor to be had, and ValueError if they are not the pinned ones.
    """
    pin = pins()[kind][release]
    folder = resources.cache() / "nvidia-headers" / f"{kind}-{release}-{pin['headers'][:12]}"
    if not folder.is_dir():
        found = _read(kind, pin["wheel"], pin["sha256"])
        if _digest(found) != pin["headers"]:
            raise ValueError(f"the headers of {pin['wheel']} are not the pinned ones")
        half = folder.with_name(f"{folder.name}.{threading.get_ident()}.part")
        for name, content in found.items():
            (half / name).parent.mkdir(parents=True, exist_ok=True)
            (half / name).write_bytes(content)
        try:
            half.rename(folder)
        except OSError:  # another test process was faster
            shutil.rmtree(half)
    return folder


def cudnn_include(release: str) -> tuple[Path, ...]:
    """The include folders that ``#include <cudnn.h>`` of this release needs."""
    return (headers("cudnn", release), headers("runtime", "12.9"), headers("crt", "12.9"))


def nearest_cudnn(release: str) -> str:
    """The newest pinned cuDNN that is not newer than this one; the oldest for cuDNN 7, which no index has."""
    wanted = [int(part) for part in release.split(".")]
    known = releases("cudnn")
    older = [text for text in known if [int(part) for part in text.split(".")] <= wanted]
    return older[-1] if older else known[0]


@functools.cache
def _index() -> Index:
    return Index.from_user()


@functools.cache
def _offers(project: str):
    return {file.name: file for file in _index().offers(project)}


def _read(kind: str, wheel: str, sha256: str | None) -> dict[str, bytes]:
    project = wheel.partition("-")[0].replace("_", "-")
    with _LOCK:
        file = _offers(project).get(wheel)
    if file is None or (sha256 and file.sha256 != sha256):
        raise OSError(f"the index does not have {wheel}, or another file of that name")
    archive = RemoteZip(file.url, _index().client, file.size)
    inside = re.compile(rf"nvidia/\w+/include/({_KEPT[kind].pattern})")
    entries = [(found[1], one) for one in archive.entries() if (found := inside.fullmatch(one.filename))]
    return {name: archive.content(entry) for name, entry in entries}


def _digest(found: dict[str, bytes]) -> str:
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(found.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _newest(project: str, oldest: str = "0", newest: str = "99") -> dict[str, str]:
    """{release: wheel} of a project's x86-64 wheels, the newest build of each release."""
    found: dict[str, str] = {}
    for name in sorted(_offers(project), key=lambda text: [int(n) for n in re.findall(r"\d+", text)]):
        parts = name.split("-")
        if name.endswith("x86_64.whl") and _key(oldest) <= _key(parts[1]) < _key(newest):
            found[parts[1]] = name
    return found


def _key(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text)]


def _listed() -> list[tuple[str, str, str]]:
    """(kind, release, wheel) of all that are pinned."""
    rows = []
    for project, span in (("nvidia-cudnn-cu11", ("8.5", "8.8")), ("nvidia-cudnn-cu12", ("8.8", "99"))):
        for version, wheel in _newest(project, *span).items():
            rows.append(("cudnn", ".".join(version.split(".")[:3]), wheel))
    flavours = {"driver": "nvidia-cuda-runtime{}", "nvrtc": "nvidia-cuda-nvrtc{}"}
    for kind, project in flavours.items():
        for flavour in ("-cu11", "-cu12", ""):
            for version, wheel in _newest(project.format(flavour)).items():
                rows.append((kind, ".".join(version.split(".")[:2]), wheel))
    for flavour in ("-cu11", "-cu12", "-cu13"):
        for version, wheel in _newest(f"nvidia-nccl{flavour}").items():
            rows.append(("nccl", ".".join(version.split(".")[:3]), wheel))
    rows += [("runtime", "12.9", list(_newest("nvidia-cuda-runtime-cu12").values())[-1])]
    rows += [("crt", "12.9", list(_newest("nvidia-cuda-nvcc-cu12").values())[-1])]
    return rows


def _write() -> None:
    rows = list({row[:2]: row for row in _listed()}.values())
    with ThreadPoolExecutor(8) as pool:
        trees = list(pool.map(lambda row: _digest(_read(row[0], row[2], None)), rows))
    written: dict[str, dict[str, dict[str, str]]] = {kind: {} for kind in _KEPT}
    for (kind, release, wheel), tree in zip(rows, trees, strict=True):
        digest = _offers(wheel.partition("-")[0].replace("_", "-"))[wheel].sha256
        written[kind][release] = {"wheel": wheel, "sha256": digest, "headers": tree}
    PINS.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(_write())
