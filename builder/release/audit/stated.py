"""The lock that a published image was built from, as its provenance states it.

Whoever may push an image can write one: whoever reads it asks no host that it names, and takes its values to
``check_stated``.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from packaging.utils import canonicalize_name

from builder.core.model import (
    Base,
    Cell,
    Cuda,
    Deb,
    Pinned,
    RegistryBase,
    RootfsBase,
    Sdist,
    StandalonePython,
    Wheel,
    WheelSource,
)


def pinned_of(predicate: Mapping[str, Any]) -> Pinned | None:
    """Cell, base, Python and wheels from a provenance predicate; None if rtbuild did not write it.

    It says nothing of a base's environment, of the date of a suite's lists, and of the files' sizes.
    """
    try:
        definition = predicate["buildDefinition"]
        cell = _cell(definition["externalParameters"])
        rows = definition["resolvedDependencies"]
        built_from = [_sdist(row) for row in rows if _is_sdist(row)]
        rows = [row for row in rows if "for" not in row.get("annotations", {}) and not _is_sdist(row)]
        base = _base(cell, rows)
        sources = {
            (one.name, one.version): WheelSource(sdist=one, requires=(), system=_NOTHING, python=cell.python)
            for one in built_from
        }
        return Pinned(
            cell=cell,
            base=base,
            wheels=tuple(_wheel(row, sources) for row in _of_kind(rows, "pkg:pypi/")),
            epoch=int(definition["internalParameters"]["epoch"]),
            python=next((_python(row) for row in _of_kind(rows, "pkg:generic/cpython@")), None),
        )
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
        return None


_NOTHING = RootfsBase(suite="", debs=(), epoch=0)
"""In the place of the system that ran a build from sources, which no reader of a provenance asks for."""


def _cell(parameters: Mapping[str, Any]) -> Cell:
    stated = parameters["cell"]
    kind, colon, name = str(stated["base"]).partition("rootfs:")
    base = Base(kind="rootfs", name=name) if colon and not kind else Base(kind="registry", name=kind)
    provider = stated["cuda"]["provider"]
    if provider not in ("base", "wheels", "none"):
        raise ValueError(provider)
    python = str(stated["python"])
    minor = ".".join(python.split(".")[:2])
    return Cell(
        id=str(stated["id"]),
        matrix=str(parameters["matrix"]),
        frameworks=_texts(stated["frameworks"]),
        python=minor,
        python_patch=python if python != minor else None,
        base=base,
        cuda=Cuda(provider=provider, packages=_texts(stated["cuda"]["packages"])),
        platform=str(stated["platform"]),
        pip=_texts(stated["pip"]),
        apt=_texts(stated["apt"]),
        index=_texts(stated.get("index", [])),
        dependencies="listed" if stated.get("dependencies") == "listed" else "resolved",
        compilers=stated.get("compilers") is True,
    )


def _base(cell: Cell, rows: Sequence[Mapping[str, Any]]) -> RegistryBase | RootfsBase:
    if cell.base.kind == "rootfs":
        suite = cell.base.name.rpartition("/")[2]
        return RootfsBase(suite=suite, debs=tuple(map(_deb, _of_kind(rows, "pkg:deb/"))), epoch=0)
    (row,) = (row for row in rows if row["name"] == "base")
    digest = f"sha256:{row['digest']['sha256']}"
    return RegistryBase(reference=cell.base.name, digest=digest, env=(), labels=(), size=0)


def _of_kind(rows: Sequence[Mapping[str, Any]], prefix: str) -> Iterator[Mapping[str, Any]]:
    return (row for row in rows if str(row.get("uri")).startswith(prefix))


def _is_sdist(row: Mapping[str, Any]) -> bool:
    uri = str(row.get("uri"))
    return uri.startswith("pkg:pypi/") and "?file_name=" in uri


def _named(row: Mapping[str, Any]) -> tuple[str, str]:
    """Name and version of a package URL; see :func:`builder.verify.evidence.contents.purl`."""
    name, _, rest = str(row["uri"]).partition("?")[0].rpartition("/")[2].partition("@")
    return unquote(name), unquote(rest)


def _file(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"file": str(row["name"]), "sha256": str(row["digest"]["sha256"]), "size": 0}


def _wheel(row: Mapping[str, Any], sources: Mapping[tuple[str, str], WheelSource]) -> Wheel:
    name, version = _named(row)
    name = canonicalize_name(name)
    return Wheel(name=name, version=version, source=sources.get((name, version)), **_file(row))


def _sdist(row: Mapping[str, Any]) -> Sdist:
    name, version = _named(row)
    return Sdist(name=canonicalize_name(name), version=version, **_file(row))


def _deb(row: Mapping[str, Any]) -> Deb:
    name, version = _named(row)
    architecture = str(row["uri"]).rpartition("?arch=")[2]
    return Deb(package=name, version=version, architecture=architecture, archive="", **_file(row))


def _python(row: Mapping[str, Any]) -> StandalonePython:
    version, _, build = _named(row)[1].partition("+")
    return StandalonePython(version=version, build=build, **_file(row))


def _texts(rows: Any) -> tuple[str, ...]:
    if not isinstance(rows, list) or not all(isinstance(row, str) for row in rows):
        raise TypeError("not a list of texts")
    return tuple(rows)
