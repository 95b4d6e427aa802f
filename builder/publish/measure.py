"""The versions measured in a finished image, and the tags made of them, whatever the matrix says."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from builder.errors import CellError
from builder.evidence.contents import python_packages
from builder.model import Cell
from builder.recipe.expect import first_parts
from builder.verify.document import ProbeDocument
from builder.verify.expectation import family

LONGEST = 128
"""A tag's limit, in characters:
https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests"""
_DIGITS = 12
_RUNTIME = re.compile(r"nvidia-cuda-runtime(-cu\d+)?")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Versions as the probe read them in the image."""

    frameworks: tuple[tuple[str, str], ...]
    python: str
    """To the patch: ``3.9.2``."""
    cuda: str | None
    """``11.8``; None if nothing in the image says it."""
    cudnn: str
    """To the patch: ``8.6.0``."""
    system: str
    """``bullseye``, ``ubuntu22.04``."""

    @property
    def text(self) -> str:
        """``tensorflow2.8.4-py3.9.2-cuda11.8-cudnn8.6.0-bullseye``: with upper case and ``+`` made legal."""
        parts = [f"{name}{version}" for name, version in self.frameworks]
        parts += [f"py{self.python}", f"cuda{self.cuda}" if self.cuda else "", f"cudnn{self.cudnn}"]
        whole = "-".join(part for part in [*parts, self.system] if part)
        return re.sub(r"[^a-z0-9_.-]", "_", whole.lower())


def measure(report: ProbeDocument, cell: Cell) -> Measured:
    """The versions in a report. Raises CellError if a version that a tag needs is missing."""
    python, cudnn = report.python_version(), _cudnn(report)
    missing = [name for name, found in (("Python", python), ("cuDNN", cudnn)) if found is None]
    if python is None or cudnn is None:
        raise CellError(f"the report does not say which {' and '.join(missing)} the image holds")
    return Measured(
        frameworks=tuple(_frameworks(report, cell)),
        python=python,
        cuda=_cuda(report),
        cudnn=cudnn,
        system=_system(report),
    )


def tag_of(measured: Measured, cell: Cell) -> str:
    """The measured tag, with the architecture unless it is amd64, and with the cell's variant."""
    parts = [measured.text]
    architecture = cell.platform.partition("/")[2]
    if architecture != "amd64":
        parts.append(architecture)
    if cell.variant is not None:
        parts.append(cell.variant)
    return _cut("-".join(parts), LONGEST)


def immutable_tag(measured: Measured, cell: Cell, digest: str) -> str:
    """The measured tag with the first digits of the digest; it never names another digest."""
    end = f"-{digest.removeprefix('sha256:')[:_DIGITS]}"
    return _cut(tag_of(measured, cell), LONGEST - len(end)) + end


def _cut(text: str, length: int) -> str:
    if len(text) <= length:
        return text
    return f"{text[: length - _DIGITS - 1]}-{hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"


def _frameworks(report: ProbeDocument, cell: Cell) -> Iterator[tuple[str, str]]:
    """The cell's frameworks in its order: as the probe imported them, else as Python lists them."""
    imported = {family(row.name): row.version for row in report.frameworks}
    listed = _packages(report)
    for text in cell.frameworks:
        name = canonicalize_name(Requirement(text).name)
        version = imported.get(family(name)) or listed.get(name)
        if version is None:
            raise CellError(f"the report does not say which version of {name} the image holds")
        yield name, version


def _cudnn(report: ProbeDocument) -> str | None:
    """The cuDNN that was loaded, by the frameworks' own report or from the mapped library."""
    loaded = report.loaded("cudnn", "libcudnn.so")
    versions = {first_parts(version, 3) or version for version in loaded}
    if len(versions) > 1:
        raise CellError(f"several cuDNN were loaded: {', '.join(sorted(versions))}")
    return next(iter(versions), None)


def _cuda(report: ProbeDocument) -> str | None:
    """The CUDA runtime that was loaded; if that is not known, the one that is installed or compiled in."""
    loaded = report.loaded("cuda", "libcudart.so")
    installed = [version for name, version in sorted(_packages(report).items()) if _RUNTIME.fullmatch(name)]
    compiled = [
        str(row.compiled["cuda"]) for row in report.frameworks if row.compiled and row.compiled.get("cuda")
    ]
    return first_parts(next(iter(loaded or installed or compiled), None), 2)


def _system(report: ProbeDocument) -> str:
    """``bullseye`` of ``Debian GNU/Linux 11 (bullseye)``, ``ubuntu22.04`` of ``Ubuntu 22.04.4 LTS``."""
    machine = (report.model_extra or {}).get("machine")
    said = str((machine if isinstance(machine, dict) else {}).get("distribution") or "")
    if said.startswith("Debian") and (suite := re.search(r"\((\w+)\)", said)):
        return suite[1].lower()
    found = re.match(r"(\w+)\D*(\d+(?:\.\d+)?)", said)
    return f"{found[1]}{found[2]}".lower() if found else ""


def _packages(report: ProbeDocument) -> dict[str, str]:
    return python_packages(report.model_extra or {}) or {}
