"""The tags of a published image: made of the versions that were measured in it, whatever the matrix says."""

import contextlib
import hashlib
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from builder.core.errors import CellError
from builder.core.model import Cell
from builder.image.recipe import first_parts
from builder.sources.oci import CELL_LABEL, MATRIX_LABEL, NoImageError, Registry, look
from builder.verify.evidence import Refusal, python_packages
from builder.verify.runner import ProbeDocument, family

LONGEST = 128
"""A tag's limit, in characters:
https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests"""
_DIGITS = 12

TagKind = Literal["immutable", "measured", "cell", "alias"]


@dataclass(frozen=True, kw_only=True)
class TagStep:
    """The change of a tag: none if it names the digest already."""

    name: str
    kind: TagKind
    was: str | None
    """The digest that the tag names now; None without such a tag."""
    digest: str

    @property
    def action(self) -> Literal["there", "put", "move"]:
        if self.was == self.digest:
            return "there"
        return "put" if self.was is None else "move"


def measure(report: ProbeDocument, cell: Cell) -> str:
    """The versions in a report, as part of a tag: ``tensorflow2.8.4-py3.9.2-cuda11.8-cudnn8.6.0-bullseye``.

    CUDA and the system are left out if nothing in the image says them. Raises CellError if another version is
    missing.
    """
    python, cudnn = report.python_version(), _cudnn(report)
    missing = [name for name, found in (("Python", python), ("cuDNN", cudnn)) if found is None]
    if missing:
        raise CellError(f"the report does not say which {' and '.join(missing)} the image holds")
    parts = [f"{name}{version}" for name, version in _frameworks(report, cell)]
    cuda = _cuda(report)
    parts += [f"py{python}", f"cuda{cuda}" if cuda else "", f"cudnn{cudnn}", _system(report)]
    return re.sub(r"[^a-z0-9_.-]", "_", "-".join(filter(None, parts)).lower())


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
    loaded = report.loaded("cudnn")
    versions = {first_parts(version, 3) or version for version in loaded}
    if len(versions) > 1:
        raise CellError(f"several cuDNN were loaded: {', '.join(sorted(versions))}")
    return next(iter(versions), None)


def _cuda(report: ProbeDocument) -> str | None:
    """The CUDA runtime that was loaded; if that is not known, the one that is installed or compiled in."""
    loaded = report.loaded("cuda")
    installed = [
        version
        for name, version in sorted(_packages(report).items())
        if re.fullmatch(r"nvidia-cuda-runtime(-cu\d+)?", name)
    ]
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


def tag_of(measured: str, cell: Cell) -> str:
    """The measured tag, with the architecture unless it is amd64, and with the cell's variant."""
    parts = [measured, cell.platform.partition("/")[2].replace("amd64", ""), cell.variant]
    return _cut("-".join(filter(None, parts)), LONGEST)


def immutable_tag(measured: str, cell: Cell, digest: str) -> str:
    """The measured tag with the first digits of the digest; it never names another digest."""
    end = f"-{digest.removeprefix('sha256:')[:_DIGITS]}"
    return _cut(tag_of(measured, cell), LONGEST - len(end)) + end


def _cut(text: str, length: int) -> str:
    if len(text) <= length:
        return text
    return f"{text[: length - _DIGITS - 1]}-{hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"


def moving_tags(cell: Cell, aliases: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The cell's id and its aliases, out of all aliases of its matrix with the cells that they name."""
    return (cell.id, *(alias for alias, named in aliases if named == cell.id))


def tags_of(cell: Cell, measured: str, digest: str, moving: Sequence[str]) -> dict[str, TagKind]:
    """All tags of one image in the order in which they are put: the immutable one first, aliases last."""
    tags: dict[str, TagKind] = {immutable_tag(measured, cell, digest): "immutable"}
    tags.setdefault(tag_of(measured, cell), "measured")
    for name in moving:
        tags.setdefault(name, "cell" if name == cell.id else "alias")
    return tags


def steps(
    registry: Registry,
    repository: str,
    cell: Cell,
    tags: Mapping[str, TagKind],
    digest: str,
    *,
    others: Container[str] = (),
    overwrite: bool,
) -> tuple[tuple[TagStep, ...], tuple[Refusal, ...]]:
    """The changes that tags need, and refusals for tags that may not move. Raises RegistryError.

    An immutable tag stays where it is. A tag that another matrix or another program put is moved only by
    ``overwrite``, and so is one of another cell of this matrix, unless it is an alias: ``others`` are the ids
    of the other cells.
    """
    found, against = [], []
    for tag, kind in tags.items():
        name = f"{repository}:{tag}"
        step = TagStep(name=tag, kind=kind, was=registry.digest_of(name), digest=digest)
        found.append(step)
        if step.action != "move" or (overwrite and kind != "immutable"):
            continue
        if kind == "immutable":
            text = f"names {step.was} and never moves, so it cannot name {digest}"
            hint = "somebody put it there by hand; delete it in the registry"
            against.append(Refusal("tag", f"{name} {text}", hint))
            continue
        image = None
        with contextlib.suppress(NoImageError):  # rtbuild did not make it
            image = look(registry, name)
        matrix, other = (image.label(MATRIX_LABEL), image.label(CELL_LABEL)) if image else (None, None)
        if matrix != cell.matrix:
            by = f"the matrix {matrix} published" if matrix else "rtbuild did not publish"
            hint = "publish to another repository, or use --overwrite"
            against.append(Refusal("tag", f"{name} is {step.was}, which {by}", hint))
        elif kind != "alias" and other in others:
            text = f"is {step.was}, the image of {other}, which has the same tag"
            hint = "give one of them a 'variant'; --overwrite moves the tag"
            against.append(Refusal("tag", f"{name} {text}", hint))
    return tuple(found), tuple(against)
