"""The packages of an image: dpkg's list out of its layers, Python's list out of a report."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from builder.errors import CellError, EvidenceError
from builder.layers.untar import open_layer
from builder.model import DebianPackage
from builder.oci.registry import Registry
from builder.oci.spec import parse_reference
from builder.oci.staging import Staged

STATUS = "var/lib/dpkg/status"
_HIDDEN = frozenset({"var/lib/dpkg/.wh.status", "var/lib/.wh.dpkg", "var/.wh.lib", ".wh.var"})
_EMPTIED = frozenset({f"{folder}/.wh..wh..opq" for folder in ("var/lib/dpkg", "var/lib", "var")})
"""How a layer hides files of lower layers:
https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts"""

LARGE = 150_000_000
"""Bytes, compressed, above which a layer holds a framework or NVIDIA's libraries, and is not read."""
_LARGEST_STATUS = 64 << 20
_LARGEST_LAYER = 8 << 30
"""Unpacked bytes after which reading stops, against decompression bombs."""


@dataclass(frozen=True, kw_only=True)
class DpkgList:
    """dpkg's list. ``packages`` is None if the image has none."""

    packages: tuple[DebianPackage, ...] | None
    skipped: int = 0
    """Layers above the list that were too large to be read."""


def read_system(
    registry: Registry, image: Staged, layers: list[dict[str, Any]], *, note: Callable[[str], None]
) -> DpkgList:
    """dpkg's list in the topmost layer that has one; ``layers`` is the manifest's, lowest first.

    Large layers are not read, except the lowest, which is an operating system. Raises RegistryError, and
    EvidenceError for a layer that is no archive.
    """
    name = parse_reference(image.repository)
    skipped = 0
    with tempfile.TemporaryDirectory(prefix="rtbuild-layers-") as folder:
        for number, layer in reversed(list(enumerate(layers))):
            size = int(layer["size"])
            if size > LARGE and number > 0:
                skipped += 1
                continue
            note(f"reading layer {number + 1} of {len(layers)} for its packages")
            blob = registry.fetch_blob(name, layer["digest"], Path(folder) / f"{number}", size=size)
            try:
                text = _status(blob, str(layer["mediaType"]))
            except CellError as error:
                where = f"layer {layer['digest']} of {image.digest}"
                raise EvidenceError(f"{where} cannot be read: {error.message}") from error
            finally:
                blob.unlink()
            if text is not None:
                return DpkgList(packages=parse_status(text) if text else None, skipped=skipped)
    return DpkgList(packages=None, skipped=skipped)


def parse_status(text: str) -> tuple[DebianPackage, ...]:
    """The packages that are installed, in dpkg's own form:
    https://manpages.debian.org/trixie/dpkg/dpkg-query.1.en.html"""
    found = []
    for paragraph in text.split("\n\n"):
        lines = (line.partition(": ") for line in paragraph.splitlines() if not line[:1].isspace())
        fields = {key: value.strip() for key, _, value in lines}
        if fields.get("Status", "").split()[-1:] == ["installed"] and "Package" in fields:
            version, architecture = fields.get("Version", ""), fields.get("Architecture", "")
            found.append(DebianPackage(name=fields["Package"], version=version, architecture=architecture))
    return tuple(sorted(found))


def python_packages(report: Mapping[str, Any]) -> dict[str, str] | None:
    """Canonical name → version of all Python packages in the image; None for a report without them."""
    packages = _packages(report, "packages")
    return None if packages is None else {canonicalize_name(name): packages[name] for name in packages}


def system_packages(report: Mapping[str, Any]) -> dict[str, str]:
    """cuDNN's and CUDA's Debian packages, as the probe found them."""
    return _packages(report, "system_packages") or {}


def _packages(report: Mapping[str, Any], kind: str) -> dict[str, str] | None:
    match report.get("fingerprint"):
        case {**found} if isinstance(packages := found.get(kind), dict):
            return {str(name): str(version) for name, version in packages.items()}
    return None


def _status(blob: Path, media_type: str) -> str | None:
    """dpkg's status file in a layer; empty if the layer hides the one below, None if it has neither."""
    hidden = False
    with open_layer(blob, media_type, most=_LARGEST_LAYER) as archive:
        for entry in archive:
            path = entry.name.removeprefix("/")
            if path == STATUS and entry.kind == "file" and entry.size <= _LARGEST_STATUS:
                return archive.read().decode("utf-8", "replace")
            hidden = hidden or path in _HIDDEN or path in _EMPTIED
    return "" if hidden else None
