"""SBOM and provenance of an image, made from the lock and from dpkg, and checked against the image; and the
lock that a provenance states, read back.

The SBOM is CycloneDX, not SPDX, because its fields fit the known facts (hash, package URL, property) without
invented relationships; ``cosign`` and vulnerability scanners read both:
https://cyclonedx.org/docs/1.5/json/ and https://github.com/package-url/purl-spec.

The provenance is SLSA's: https://slsa.dev/spec/v1.0/provenance. rtbuild states the content of its lock and
recipe. It cannot detect a manipulated machine, so no SLSA level is claimed, and the builder is the program:
the signer is responsible for the statement.
"""

import hashlib
import posixpath
import re
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from packaging.utils import canonicalize_name

from builder import __version__
from builder.core.documents import shown
from builder.core.errors import CellError, EvidenceError
from builder.core.model import (
    Base,
    Cell,
    Cuda,
    Deb,
    DebianPackage,
    Pinned,
    RegistryBase,
    RootfsBase,
    Sdist,
    StandalonePython,
    Wheel,
    WheelSource,
)
from builder.core.versions import equal
from builder.image.layers import open_layer
from builder.image.recipe import Recipe
from builder.sources.oci import Registry, Staged, parse_reference
from builder.verify.evidence.judgement import timestamp
from builder.verify.runner import SealedReport

_SPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
"""The name space for URLs of RFC 4122: the serial number follows from the digest."""
_SYSTEM_LABEL = "org.opencontainers.image.ref.name"
"""Set by Ubuntu's own images (https://git.launchpad.net/cloud-images/+oci/ubuntu-base), kept by NVIDIA's."""
_SHOWN = 8
STATUS = "var/lib/dpkg/status"
_LARGEST_STATUS = 64 << 20
_ABOVE = frozenset({"var", "var/lib", "var/lib/dpkg"})
_HIDDEN = frozenset({"var/lib/dpkg/.wh.status", "var/lib/.wh.dpkg", "var/.wh.lib", ".wh.var"})
_EMPTIED = frozenset({f"{folder}/.wh..wh..opq" for folder in _ABOVE})
"""How a layer hides files of lower layers:
https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts"""

LARGEST_READ = 150_000_000
"""Bytes, compressed, above which a layer holds a framework or NVIDIA's libraries, and is not read."""
_LARGEST_LAYER = 8 << 30
"""Unpacked bytes after which reading stops, against decompression bombs."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The input of the statements about an image."""

    recipe: Recipe
    verifications: tuple[SealedReport, ...]
    claims: tuple[str, ...]
    """GPU classes that the image is published for."""
    exempt: tuple[str, ...] = ()
    """GPU classes that its cell names but that it is not published for."""
    as_of: datetime | None = None
    """The time of the newest report that was known when the exemptions were made."""
    matrix: bytes = b""
    """The matrix file; empty if it is not known."""
    lock: bytes = b""
    """The lock file; empty if it is not known."""


@dataclass(frozen=True, kw_only=True)
class DpkgList:
    """dpkg's list. ``packages`` is None if the image has none."""

    packages: tuple[DebianPackage, ...] | None
    skipped: int = 0
    """Layers above the list that were too large to be read."""


def sbom(evidence: Evidence, image: Staged, system: DpkgList) -> dict[str, Any]:
    """The document. It is the same for the same image: the time is the lock's, the number the digest's."""
    pinned = evidence.recipe.pinned
    name = image.repository.rpartition("/")[2].lower()  # no host: a mirror has the same SBOM
    components = [*_python(pinned), *_debian(pinned, system.packages or ())]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_SPACE, image.digest)}",
        "version": 1,
        "metadata": {
            "timestamp": timestamp(datetime.fromtimestamp(pinned.epoch, UTC)),
            "tools": {"components": [{"type": "application", "name": "rtbuild", "version": __version__}]},
            "component": {
                "type": "container",
                "bom-ref": image.digest,
                "name": pinned.cell.id,
                "version": image.digest,
                "purl": f"pkg:oci/{name}@{quote(image.digest, safe='')}",
            },
            "properties": _properties(evidence, system),
        },
        "components": components,
        "dependencies": [
            {"ref": image.digest, "dependsOn": sorted(str(row["bom-ref"]) for row in components)}
        ],
    }


def refuse_difference(evidence: Evidence, system: DpkgList, reports: list[Mapping[str, Any]]) -> None:
    """Compare the lock with the packages that the image itself lists.

    Raises EvidenceError naming every difference: either the image is not the locked one, or the SBOM would
    not list the image's content.
    """
    differences: list[str] = []
    pinned = evidence.recipe.pinned
    for report in reports:
        found = python_packages(report)
        if found is None:
            said = "the report does not list the packages of the image, so the SBOM cannot be checked"
            hint = "a newer cudnn-verify does: build the image again, and verify it"
            raise EvidenceError(said, hint=hint)
        differences += _python_differences(pinned, found)
        differences += _debian_differences(pinned, system, _packages(report, "system_packages") or {})
    if unique := list(dict.fromkeys(differences)):
        more = f"; and {len(unique) - _SHOWN} more" if len(unique) > _SHOWN else ""
        raise EvidenceError(
            f"the SBOM would differ from the image: {'; '.join(unique[:_SHOWN])}{more}",
            hint="the image differs from its lock: rtbuild build --no-cache, and verify it again",
        )


def _python_differences(pinned: Pinned, found: Mapping[str, str]) -> Iterator[str]:
    locked: dict[str, str] = {canonicalize_name(wheel.name): wheel.version for wheel in pinned.wheels}
    for name in sorted(locked.keys() | found.keys()):
        want, have = locked.get(name), found.get(name)
        if want is None:
            yield f"{name} {have} is in the image and not in the lock"
        elif have is None:
            yield f"{name} {want} is in the lock and not in the image"
        elif not equal(want, have):
            yield f"{name} is {want} in the lock and {have} in the image"


def _debian_differences(pinned: Pinned, system: DpkgList, probed: Mapping[str, str]) -> Iterator[str]:
    packages = system.packages
    if packages is None:
        if isinstance(pinned.base, RootfsBase):
            yield "the image is built from Debian packages, but has no list of them (/var/lib/dpkg/status)"
        return
    versions = {package.name: package.version for package in packages}
    for name, version in sorted(probed.items()):
        if versions.get(name) != version:
            yield f"{name} is {versions.get(name, 'absent')} by dpkg and {version} by the report"
    if isinstance(pinned.base, RootfsBase):
        locked = {
            DebianPackage(name=deb.package, version=deb.version, architecture=deb.architecture)
            for deb in pinned.base.debs
        }
        for package in sorted(locked ^ set(packages)):
            where = "lock and not in the image" if package in locked else "image and not in the lock"
            yield f"{package.name} {package.version} {package.architecture} is in the {where}"


def _component(
    name: str, version: str, url: str, sha256: str | None, *properties: tuple[str, str], kind: str = "library"
) -> dict[str, Any]:
    """https://cyclonedx.org/docs/1.5/json/#components"""
    row: dict[str, Any] = {"type": kind, "bom-ref": url, "name": name, "version": version, "purl": url}
    if sha256 is not None:
        row["hashes"] = [{"alg": "SHA-256", "content": sha256}]
    if properties:
        row["properties"] = [{"name": f"rtbuild:{key}", "value": value} for key, value in properties]
    return row


def _file(
    name: str, part: Wheel | Sdist | StandalonePython, *more: tuple[str, str], **kind: str
) -> dict[str, Any]:
    return _component(name, part.version, purl(part), part.sha256, ("file", part.file), *more, **kind)


def _python(pinned: Pinned) -> Iterator[dict[str, Any]]:
    python = pinned.python
    if python is not None:  # outside of dpkg
        inside = ("libraries-inside", "not listed: OpenSSL, SQLite and others")
        yield _file("cpython", python, inside, kind="application")
    for wheel in sorted(pinned.wheels):
        row = _file(canonicalize_name(wheel.name), wheel)
        if wheel.source is not None:
            row["pedigree"] = {"ancestors": [_sources(wheel.source)]}
        yield row


def _sources(source: WheelSource) -> dict[str, Any]:
    """The source of a wheel: https://cyclonedx.org/docs/1.5/json/#components_items_pedigree_ancestors"""
    compilers = source.system.debs if source.compiled is not None else ()
    row = _file(
        source.sdist.name,
        source.sdist,
        *(("built-with", wheel.file) for wheel in source.requires),
        *(("compiled-with", f"{deb.package} {deb.version}") for deb in compilers),
    )
    del row["bom-ref"]  # nothing refers to it
    return row


def _debian(pinned: Pinned, packages: tuple[DebianPackage, ...]) -> Iterator[dict[str, Any]]:
    base = pinned.base
    locked = base.debs if isinstance(base, RootfsBase) else ()
    hashes = {(deb.package, deb.version, deb.architecture): deb.sha256 for deb in locked}
    labels = {} if isinstance(base, RootfsBase) else dict(base.labels)
    vendor = labels.get(_SYSTEM_LABEL, "debian")
    for package in packages:
        found = (package.name, package.version, package.architecture)
        url = _deb_url(*found, vendor=vendor)
        yield _component(package.name, package.version, url, hashes.get(found))


def _properties(evidence: Evidence, system: DpkgList) -> list[dict[str, str]]:
    pinned = evidence.recipe.pinned
    rows = {
        "rtbuild:cell": pinned.cell.id,
        "rtbuild:inputs": evidence.recipe.inputs,
        "rtbuild:system": "dpkg" if system.packages is not None else "the image has no list of dpkg",
        "rtbuild:layers-not-read": str(system.skipped),
    }
    if isinstance(pinned.base, RegistryBase):
        rows["rtbuild:base"] = f"{pinned.base.reference}@{pinned.base.digest}"
    return [{"name": name, "value": value} for name, value in sorted(rows.items())]


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
            if size > LARGEST_READ and number > 0:
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
    """The packages that are installed, by dpkg's own reading: names of fields in any case, with or without a
    blank behind the colon, each once in a paragraph; only a line feed ends a line. EvidenceError.

    https://manpages.debian.org/trixie/dpkg-dev/deb822.5.en.html
    """
    found = []
    for paragraph in re.split(r"\n[ \t]*\n", text):
        fields: dict[str, str] = {}
        for line in paragraph.split("\n"):
            name, colon, value = line.partition(":")
            if not colon or line[0] in " \t":
                continue
            if name.strip().lower() in fields:
                raise EvidenceError(f"dpkg's list has {shown(name, most=40)} twice in one paragraph")
            fields[name.strip().lower()] = value.strip()
        if fields.get("status", "").split()[-1:] == ["installed"] and "package" in fields:
            name, version, architecture = (
                fields.get(key, "") for key in ("package", "version", "architecture")
            )
            found.append(DebianPackage(name=name, version=version, architecture=architecture))
    return tuple(sorted(found))


def python_packages(report: Mapping[str, Any]) -> dict[str, str] | None:
    """Canonical name → version of all Python packages in the image; None for a report without them."""
    packages = _packages(report, "packages")
    return None if packages is None else {canonicalize_name(name): packages[name] for name in packages}


def _packages(report: Mapping[str, Any], kind: str) -> dict[str, str] | None:
    match report.get("fingerprint"):
        case {**found} if isinstance(packages := found.get(kind), dict):
            return {str(name): str(version) for name, version in packages.items()}
    return None


def _status(blob: Path, media_type: str) -> str | None:
    """dpkg's status file in a layer; empty if the layer hides the one below, None if it has neither.

    The whole layer is read, and paths are taken as an engine resolves them: a later entry replaces an earlier
    one, and a link leads elsewhere. Raises CellError for a list that is there twice, is no plain file, or
    lies below something else than folders: nobody needs these, and each reader would see another list.
    """
    hidden, found = False, None
    with open_layer(blob, media_type, most=_LARGEST_LAYER) as archive:
        for entry in archive:
            path = posixpath.normpath(f"/{entry.name}").lstrip("/")
            hidden = hidden or path in _HIDDEN or path in _EMPTIED
            if path in _ABOVE and entry.kind != "folder":
                raise archive.error(f"/{path} is no folder in it, but a {entry.kind}")
            if path != STATUS:
                continue
            if found is not None or entry.kind != "file" or entry.size > _LARGEST_STATUS:
                raise archive.error(f"/{STATUS} is there twice, is too large, or is no plain file")
            found = archive.read().decode("utf-8", "replace")
    return "" if found is None and hidden else found


def purl(part: Wheel | Sdist | StandalonePython | Deb) -> str:
    """``pkg:pypi/nvidia-cudnn-cu12@8.9.4.25``; ``pkg:pypi/moviepy@1.0.3?file_name=moviepy-1.0.3.tar.gz``;
    ``pkg:generic/cpython@3.12.16%2B20261110?file_name=cpython-…`` of python-build-standalone."""
    if isinstance(part, Deb):
        return _deb_url(part.package, part.version, part.architecture)
    file = "" if isinstance(part, Wheel) else f"?file_name={quote(part.file, safe='')}"
    if isinstance(part, StandalonePython):
        version = quote(f"{part.version}+{part.build}", safe="")
        return f"pkg:generic/cpython@{version}{file}"
    return f"pkg:pypi/{canonicalize_name(part.name)}@{quote(part.version, safe='')}{file}"


def _deb_url(package: str, version: str, architecture: str, *, vendor: str = "debian") -> str:
    """``pkg:deb/debian/libc6@2.36-9%2Bdeb12u9?arch=amd64``"""
    return f"pkg:deb/{vendor}/{quote(package, safe='')}@{quote(version, safe='')}?arch={architecture}"


BUILD_TYPE = "https://rtbuild.io/build/v1"
"""An identifier, described in docs/evidence.md; nothing is fetched from there."""
BUILDER = "https://rtbuild.io/cli/v1"


def provenance(evidence: Evidence, image: Staged) -> dict[str, Any]:
    """The predicate. It has no time and no run: the same lock and recipe give the same document."""
    recipe = evidence.recipe
    cell, pinned = recipe.cell, recipe.pinned
    files = (("matrix", evidence.matrix), ("lock", evidence.lock))
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {
                "matrix": cell.matrix,
                "cell": {"id": cell.id, "env": dict(cell.env), "gpus": list(cell.gpus), **cell.inputs()},
            },
            "internalParameters": {
                "inputs": recipe.inputs,
                "content": image.content,
                "epoch": pinned.epoch,
                "compression": cell.options.compression,
                "strictCudnn": cell.options.strict_cudnn,
            },
            "resolvedDependencies": [
                *_base(pinned.base, cell.platform),
                *([_part(pinned.python)] if pinned.python is not None else []),
                *({"name": name, "digest": _sha256(content)} for name, content in files if content),
                *map(_part, pinned.wheels),
                *_built_from(pinned),
            ],
        },
        "runDetails": {
            "builder": {
                "id": BUILDER,
                "version": {"rtbuild": image.label("io.rtbuild.version") or __version__},
            },
            "byproducts": [
                {"name": f"recipe/{name}", "digest": _sha256(file.content)}
                for name, file in sorted(recipe.files.items())
            ],
        },
    }


def _part(part: Wheel | Sdist | StandalonePython | Deb, **more: Any) -> dict[str, Any]:
    """https://github.com/in-toto/attestation/blob/main/spec/v1/resource_descriptor.md"""
    name = part.file.rpartition("/")[2]
    return {"uri": purl(part), "name": name, "digest": {"sha256": part.sha256}, **more}


def _base(base: RegistryBase | RootfsBase, platform: str) -> Iterable[dict[str, Any]]:
    if isinstance(base, RootfsBase):
        return map(_part, base.debs)
    digest, notes = {"sha256": base.digest.removeprefix("sha256:")}, {"platform": platform}
    return [{"uri": f"oci://{base.reference}", "name": "base", "digest": digest, "annotations": notes}]


def _built_from(pinned: Pinned) -> Iterator[dict[str, Any]]:
    """The sources of wheels that no index has, and the wheels and compilers of their builds."""
    sources = [wheel.source for wheel in pinned.wheels if wheel.source is not None]
    yield from map(_part, dict.fromkeys(source.sdist for source in sources))
    pythons = [python for s in sources if (python := s.interpreter) is not None and python != pinned.python]
    wheels = [wheel for source in sources for wheel in source.requires]
    installed = frozenset(pinned.base.debs) if isinstance(pinned.base, RootfsBase) else frozenset()
    compilers = [source.system for source in sources if source.compiled is not None]
    debs = [deb for system in compilers for deb in system.debs if deb not in installed]
    tools: list[StandalonePython | Wheel | Deb] = [*pythons, *wheels, *debs]
    for part in dict.fromkeys(tools):
        yield _part(part, annotations={"for": "building from sources"})


def _sha256(content: bytes) -> dict[str, str]:
    return {"sha256": hashlib.sha256(content).hexdigest()}


# -- a provenance read back
#
# Whoever may push an image can write one: whoever reads it asks no host that it names, and takes its values
# to builder.release.audit.check_stated.


def pinned_of(predicate: Mapping[str, Any]) -> Pinned | None:
    """Cell, base, Python and wheels from a provenance predicate; None if rtbuild did not write it.

    It says nothing of a base's environment, of the date of a suite's lists, and of the files' sizes.
    """
    try:
        definition = predicate["buildDefinition"]
        cell = _stated_cell(definition["externalParameters"])
        rows = definition["resolvedDependencies"]
        built_from = [_stated_sdist(row) for row in rows if _is_sdist(row)]
        rows = [row for row in rows if "for" not in row.get("annotations", {}) and not _is_sdist(row)]
        base = _stated_base(cell, rows)
        sources = {
            (one.name, one.version): WheelSource(
                sdist=one, requires=(), system=_NO_SYSTEM, python=cell.python
            )
            for one in built_from
        }
        return Pinned(
            cell=cell,
            base=base,
            wheels=tuple(_stated_wheel(row, sources) for row in _of_kind(rows, "pkg:pypi/")),
            epoch=int(definition["internalParameters"]["epoch"]),
            python=next((_stated_python(row) for row in _of_kind(rows, "pkg:generic/cpython@")), None),
        )
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
        return None


_NO_SYSTEM = RootfsBase(suite="", debs=(), epoch=0)
"""In the place of the system that ran a build from sources, which no reader of a provenance asks for."""


def _stated_cell(parameters: Mapping[str, Any]) -> Cell:
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
        imports=_texts(stated.get("imports", [])),
    )


def _stated_base(cell: Cell, rows: Sequence[Mapping[str, Any]]) -> RegistryBase | RootfsBase:
    if cell.base.kind == "rootfs":
        suite = cell.base.name.rpartition("/")[2]
        return RootfsBase(suite=suite, debs=tuple(map(_stated_deb, _of_kind(rows, "pkg:deb/"))), epoch=0)
    (row,) = (row for row in rows if row["name"] == "base")
    digest = f"sha256:{row['digest']['sha256']}"
    return RegistryBase(reference=cell.base.name, digest=digest, env=(), labels=(), size=0)


def _of_kind(rows: Sequence[Mapping[str, Any]], prefix: str) -> Iterator[Mapping[str, Any]]:
    return (row for row in rows if str(row.get("uri")).startswith(prefix))


def _is_sdist(row: Mapping[str, Any]) -> bool:
    uri = str(row.get("uri"))
    return uri.startswith("pkg:pypi/") and "?file_name=" in uri


def _named(row: Mapping[str, Any]) -> tuple[str, str]:
    """Name and version of a package URL of :func:`purl`."""
    name, _, rest = str(row["uri"]).partition("?")[0].rpartition("/")[2].partition("@")
    return unquote(name), unquote(rest)


def _stated_file(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"file": str(row["name"]), "sha256": str(row["digest"]["sha256"]), "size": 0}


def _stated_wheel(row: Mapping[str, Any], sources: Mapping[tuple[str, str], WheelSource]) -> Wheel:
    name, version = _named(row)
    name = canonicalize_name(name)
    return Wheel(name=name, version=version, source=sources.get((name, version)), **_stated_file(row))


def _stated_sdist(row: Mapping[str, Any]) -> Sdist:
    name, version = _named(row)
    return Sdist(name=canonicalize_name(name), version=version, **_stated_file(row))


def _stated_deb(row: Mapping[str, Any]) -> Deb:
    name, version = _named(row)
    architecture = str(row["uri"]).rpartition("?arch=")[2]
    return Deb(package=name, version=version, architecture=architecture, archive="", **_stated_file(row))


def _stated_python(row: Mapping[str, Any]) -> StandalonePython:
    version, _, build = _named(row)[1].partition("+")
    return StandalonePython(version=version, build=build, **_stated_file(row))


def _texts(rows: Any) -> tuple[str, ...]:
    if not isinstance(rows, list) or not all(isinstance(row, str) for row in rows):
        raise TypeError("not a list of texts")
    return tuple(rows)
