"""The packages of the image as CycloneDX, made from the lock and from dpkg and checked against the image.

CycloneDX, not SPDX, because its fields fit the known facts (hash, package URL, property) without invented
relationships; ``cosign`` and vulnerability scanners read both.
https://cyclonedx.org/docs/1.5/json/ and https://github.com/package-url/purl-spec.
"""

import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from packaging.utils import canonicalize_name

from builder import __version__
from builder.errors import EvidenceError
from builder.evidence import purl
from builder.evidence.contents import DpkgList, python_packages, system_packages
from builder.evidence.documents import Evidence
from builder.evidence.verification import timestamp
from builder.facts.versions import equal
from builder.model import DebianPackage, Pinned, RegistryBase, RootfsBase, WheelSource
from builder.oci.staging import Staged

SPEC_VERSION = "1.5"
_SPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
"""The name space for URLs of RFC 4122: the serial number follows from the digest."""
_SYSTEM_LABEL = "org.opencontainers.image.ref.name"
"""Set by Ubuntu's own images (https://git.launchpad.net/cloud-images/+oci/ubuntu-base), kept by NVIDIA's."""
_SHOWN = 8


def sbom(evidence: Evidence, image: Staged, system: DpkgList) -> dict[str, Any]:
    """The document. It is the same for the same image: the time is the lock's, the number the digest's."""
    pinned = evidence.recipe.pinned
    components = [*_interpreter(pinned), *_python(pinned), *_debian(pinned, system.packages or ())]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(_SPACE, image.digest)}",
        "version": 1,
        "metadata": {
            "timestamp": timestamp(datetime.fromtimestamp(pinned.epoch, UTC)),
            "tools": {
                "components": [{"type": "application", "name": "rtbuild", "version": __version__}],
            },
            "component": {
                "type": "container",
                "bom-ref": image.digest,
                "name": pinned.cell.id,
                "version": image.digest,
                "purl": purl.of_image(image),
            },
            "properties": _properties(evidence, system),
        },
        "components": components,
        "dependencies": [
            {"ref": image.digest, "dependsOn": sorted(str(row["bom-ref"]) for row in components)},
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
            raise EvidenceError(
                "the report does not list the packages of the image, so the SBOM cannot be checked",
                hint="a newer cudnn-verify does: build the image again, and verify it",
            )
        differences += _python_differences(pinned, found)
        differences += _debian_differences(pinned, system, system_packages(report))
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


def _interpreter(pinned: Pinned) -> Iterator[dict[str, Any]]:
    """A Python outside of dpkg. The libraries inside it are not listed."""
    python = pinned.python
    if python is not None:
        inside = ("libraries-inside", "not listed: OpenSSL, SQLite and others")
        url, file = purl.of(python), ("file", python.file)
        yield _component("cpython", python.version, url, python.sha256, file, inside, kind="application")


def _python(pinned: Pinned) -> Iterator[dict[str, Any]]:
    for wheel in sorted(pinned.wheels):
        name, url = canonicalize_name(wheel.name), purl.of(wheel)
        row = _component(name, wheel.version, url, wheel.sha256, ("file", wheel.file))
        if wheel.source is not None:
            row["pedigree"] = {"ancestors": [_sources(wheel.source)]}
        yield row


def _sources(source: WheelSource) -> dict[str, Any]:
    """The source of a wheel: https://cyclonedx.org/docs/1.5/json/#components_items_pedigree_ancestors"""
    sdist = source.sdist
    compilers = source.system.debs if source.compiled is not None else ()
    row = _component(
        sdist.name,
        sdist.version,
        purl.of(sdist),
        sdist.sha256,
        ("file", sdist.file),
        *(("built-with", wheel.file) for wheel in source.requires),
        *(("compiled-with", f"{deb.package} {deb.version}") for deb in compilers),
    )
    del row["bom-ref"]  # nothing refers to it
    return row


def _debian(pinned: Pinned, packages: tuple[DebianPackage, ...]) -> Iterator[dict[str, Any]]:
    base = pinned.base
    locked = base.debs if isinstance(base, RootfsBase) else ()
    hashes = {(deb.package, deb.version, deb.architecture): deb.sha256 for deb in locked}
    vendor = "debian" if isinstance(base, RootfsBase) else dict(base.labels).get(_SYSTEM_LABEL, "debian")
    for package in packages:
        name, version, architecture = package.name, package.version, package.architecture
        url = purl.of_deb(name, version, architecture, vendor=vendor)
        yield _component(name, version, url, hashes.get((name, version, architecture)))


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
