"""Names and documents of the OCI distribution and image specifications.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md
https://github.com/opencontainers/image-spec
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from builder.errors import RegistryError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DOCKER_HUB = "docker.io"
# Docker Hub's name is not its address: https://docs.docker.com/reference/api/registry/latest/
_HUB_ADDRESS = "registry-1.docker.io"

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
INDEXES = (INDEX, DOCKER_INDEX)
MANIFESTS = (MANIFEST, DOCKER_MANIFEST)

_MIRROR = re.compile(r"(?:https?://)?(?:\[[0-9a-fA-F:]+\]|[^/\s:@]+)(?::\d{1,5})?(?:/\S*)?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Reference:
    """An image reference in full: ``nvidia/cuda:X`` is ``docker.io/nvidia/cuda:X``."""

    host: str
    repository: str
    tag: str | None
    digest: str | None

    @property
    def selector(self) -> str:
        """What stands for it in an address: the digest where it has one, as Docker does."""
        return self.digest or self.tag or "latest"

    def at(self, digest: str) -> Reference:
        return Reference(host=self.host, repository=self.repository, tag=None, digest=digest)

    def tagged(self, tag: str) -> Reference:
        return Reference(host=self.host, repository=self.repository, tag=tag, digest=None)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.host}/{self.repository}{tag}{digest}"


def parse_reference(text: str) -> Reference:
    """Docker's reading of a reference: https://github.com/distribution/reference/blob/main/normalize.go."""
    rest, at, digest = text.partition("@")
    first, slash, remainder = rest.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        host, path = first, remainder
    else:
        host, path = DOCKER_HUB, rest
    name, _, tag = path.partition(":")
    if not name or name != name.lower() or (at and not _DIGEST.fullmatch(digest)):
        raise UsageError(f"{text} is no image reference", hint="as in nvidia/cuda:12.4.1-base-ubuntu22.04")
    if host in ("index.docker.io", _HUB_ADDRESS):
        host = DOCKER_HUB
    if host == DOCKER_HUB and "/" not in name:
        name = f"library/{name}"
    return Reference(host=host, repository=name, tag=tag or None, digest=digest or None)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a repository is really asked for: at its own registry, or at a mirror of it."""

    host: str
    repository: str
    scheme: str | None
    """``http`` or ``https`` where the user said so."""
    mirror_of: str | None = None

    def __str__(self) -> str:
        if self.mirror_of is not None:
            return f"{self.host}, mirror of {self.mirror_of}"
        return DOCKER_HUB if self.host == _HUB_ADDRESS else self.host


def place_of(reference: Reference, mirrors: Mapping[str, str]) -> Place:
    """``mirrors`` maps a registry's name to ``[scheme://]host[:port][/prefix]``."""
    mirror = mirrors.get(reference.host)
    if mirror is None:
        host = _HUB_ADDRESS if reference.host == DOCKER_HUB else reference.host
        return Place(host=host, repository=reference.repository, scheme=None)
    scheme, separator, rest = mirror.rpartition("://")
    host, _, prefix = rest.strip("/").partition("/")
    repository = f"{prefix}/{reference.repository}" if prefix else reference.repository
    return Place(
        host=host, repository=repository, scheme=scheme if separator else None, mirror_of=reference.host
    )


def parse_mirrors(texts: Iterable[str]) -> dict[str, str]:
    """``docker.io=localhost:5000`` each, or several with commas between; a later one wins.

    Raises:
        UsageError: one that has another form.
    """
    found: dict[str, str] = {}
    for text in (part.strip() for line in texts for part in line.split(",")):
        if not text:
            continue
        name, equals, mirror = text.partition("=")
        if not (equals and name and _MIRROR.fullmatch(mirror)):
            raise UsageError(
                f"registry mirror '{text}' has not the form registry=mirror",
                hint="as in docker.io=localhost:5000, or docker.io=mirror.example/prefix",
            )
        found[name] = mirror
    return found


def is_loopback(host: str) -> bool:
    """Whether plain http is acceptable: the traffic does not leave the machine."""
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def choose(index: Mapping[str, Any], platform: str, what: str) -> str:
    """The digest of the manifest for ``linux/amd64`` (or ``linux/arm64``) in an index.

    Raises:
        RegistryError: the image is not made for that platform; the message names those it is made for.
    """
    offered: dict[str, str] = {}
    for entry in index.get("manifests", ()):
        own = entry.get("platform", {})
        name = f"{own.get('os')}/{own.get('architecture')}"
        # BuildKit's attestations stand in the index as manifests for unknown/unknown.
        if name != "unknown/unknown":
            offered.setdefault(name, entry["digest"])
    if platform not in offered:
        names = ", ".join(sorted(offered)) or "no platform at all"
        raise RegistryError(f"{what} is not made for {platform}, only for {names}", hint="take another base")
    return offered[platform]
