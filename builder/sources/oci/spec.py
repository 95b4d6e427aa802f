"""Names and documents of the OCI distribution and image specifications, and images outside of a registry: the
OCI layout in a folder, and the archive that ``docker load`` takes.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md
https://github.com/opencontainers/image-spec
"""

import ipaddress
import json
import re
import shutil
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeGuard, TypeVar

from builder.core.digests import canonical_json, content_of, sha256_of
from builder.core.documents import MalformedError, parse_object, shown
from builder.core.errors import RegistryError, UsageError
from builder.core.files import disk_errors, refuse_foreign, write_whole

DOCKER_HUB = "docker.io"
# Docker Hub's name is not its address: https://docs.docker.com/reference/api/registry/latest/
_HUB_ADDRESS = "registry-1.docker.io"

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
INDEXES = (INDEX, DOCKER_INDEX)
MANIFESTS = (MANIFEST, DOCKER_MANIFEST)

INPUTS_LABEL = "io.rtbuild.inputs"
CELL_LABEL = "io.rtbuild.cell"
MATRIX_LABEL = "io.rtbuild.matrix"

_MIRROR = re.compile(r"(?:https?://)?(?:\[[0-9a-fA-F:]+\]|[^/\s:@]+)(?::\d{1,5})?(?:/\S*)?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TAG = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}")
"""https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests"""
_HOST = re.compile(r"(?:\[[0-9a-fA-F:]{2,45}\]|[A-Za-z0-9_.-]{1,253})(?::[0-9]{1,5})?")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*")
_LONGEST_NAME = 255
"""https://github.com/distribution/reference/blob/main/reference.go: RepositoryNameTotalLengthMax"""
_MACHINES = {"x86_64": "amd64", "x86-64": "amd64", "aarch64": "arm64"}
"""Other names that engines know, as ``normalizeArch`` of containerd's platforms has them."""
_MOST_ENTRIES = 1000

_OF_MANIFEST = ("mediaType", "config", "layers", "manifests", "subject", "digest", "size", "urls", "platform")
_PLATFORM = {"os": str, "architecture": str, "variant": str}
_OF_CONFIG = {**_PLATFORM, "config": dict, "rootfs": dict, "history": list}
_ROOTFS = {"type": str, "diff_ids": list}
_SETTINGS = {
    **dict.fromkeys(("Env", "Cmd", "Entrypoint", "OnBuild", "Shell"), list),
    **dict.fromkeys(("Labels", "Volumes", "ExposedPorts", "Healthcheck"), dict),
    **dict.fromkeys(("User", "WorkingDir", "StopSignal"), str),
}


@dataclass(frozen=True, kw_only=True)
class Reference:
    """An image reference in full: ``nvidia/cuda:X`` is ``docker.io/nvidia/cuda:X``."""

    host: str
    repository: str
    tag: str | None
    digest: str | None

    @property
    def selector(self) -> str:
        """The part of an address that selects the image: the digest or, without one, the tag."""
        return self.digest or self.tag or "latest"

    def at(self, digest: str) -> Self:
        return type(self)(host=self.host, repository=self.repository, tag=None, digest=digest)

    def tagged(self, tag: str) -> Self:
        return type(self)(host=self.host, repository=self.repository, tag=tag, digest=None)

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
    name, colon, tag = path.partition(":")
    if (
        not _HOST.fullmatch(host)
        or len(name) > _LONGEST_NAME
        or not _REPOSITORY.fullmatch(name)
        or (colon and not is_tag(tag))
        or (at and not _DIGEST.fullmatch(digest))
    ):
        raise UsageError(
            f"{shown(text)} is no image reference", hint="as in nvidia/cuda:12.4.1-base-ubuntu22.04"
        )
    if host in ("index.docker.io", _HUB_ADDRESS):
        host = DOCKER_HUB
    if host == DOCKER_HUB and "/" not in name:
        name = f"library/{name}"
    return Reference(host=host, repository=name, tag=tag or None, digest=digest or None)


@dataclass(frozen=True, kw_only=True)
class Place:
    """The host that is asked for an image: its own registry, or a mirror of it."""

    name: Reference
    """The image as it was asked for."""
    host: str
    repository: str
    scheme: str | None = None
    """``http`` or ``https`` if the user gave one."""
    mirrored: bool = False

    @property
    def known_as(self) -> str:
        """The host as other programs name it, which know nothing of mirrors, and store logins for it."""
        return self.host if self.mirrored else self.name.host

    def __str__(self) -> str:
        return f"{self.host}, mirror of {self.name.host}" if self.mirrored else self.name.host


def place_of(name: Reference, mirrors: Mapping[str, str]) -> Place:
    """``mirrors`` maps a registry's name to ``[scheme://]host[:port][/prefix]``."""
    mirror = mirrors.get(name.host)
    if mirror is None:
        host = _HUB_ADDRESS if name.host == DOCKER_HUB else name.host
        return Place(name=name, host=host, repository=name.repository)
    scheme, _, rest = mirror.rpartition("://")
    host, _, prefix = rest.strip("/").partition("/")
    repository = f"{prefix}/{name.repository}" if prefix else name.repository
    return Place(name=name, host=host, repository=repository, scheme=scheme or None, mirrored=True)


def parse_mirrors(texts: Iterable[str]) -> dict[str, str]:
    """``docker.io=localhost:5000`` each, or several with commas between; a later one wins.

    Raises UsageError for one that has another form.
    """
    found: dict[str, str] = {}
    for text in (part.strip() for line in texts for part in line.split(",")):
        if not text:
            continue
        name, equals, mirror = text.partition("=")
        if not (equals and name and _MIRROR.fullmatch(mirror)):
            hint = "as in docker.io=localhost:5000, or docker.io=mirror.example/prefix"
            raise UsageError(f"registry mirror '{text}' has not the form registry=mirror", hint=hint)
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


def is_digest(text: object) -> TypeGuard[str]:
    """Whether it is ``sha256:`` and 64 hex digits: what may stand in an address or a file's name."""
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def is_tag(text: str) -> bool:
    """Whether the specification allows it as a tag."""
    return _TAG.fullmatch(text) is not None


def choose_manifest(index: object, platform: str, what: str, *, baseline: bool = False) -> str:
    """The digest of the one manifest that every engine takes for ``linux/amd64`` (or ``linux/arm64``).

    An engine prefers the variant that its processor has, and reads the config of an entry that says no
    platform (https://github.com/containerd/platforms, ``core/images/image.go`` of containerd). So an index
    with several entries for one platform means one image here and another there. With ``baseline``, for
    images that are pulled by their own digest, the one entry without a variant is taken all the same.

    Raises RegistryError if the index is malformed, has no image for that platform, or more than one.
    """
    entries = list(_entries(index, what))
    fitting = [(digest, variant) for digest, made_for, variant in entries if made_for == platform]
    if not fitting:
        names = ", ".join(sorted({made_for for _, made_for, _ in entries if made_for}))
        raise RegistryError(
            f"{what} is not made for {platform}, only for {names or 'no platform at all'}",
            hint="take another base",
        )
    plain = {digest for digest, variant in fitting if variant in ("", "v1", "v8")}
    if baseline and len(plain) == 1:
        return plain.pop()
    digests = sorted({digest for digest, made_for, _ in entries if made_for in (platform, None)})
    if len(digests) > 1:
        raise RegistryError(
            f"{what} is an index with {len(digests)} images that an engine may take for {platform}: "
            f"{', '.join(digests)}",
            hint="name the one that is meant by its digest",
        )
    return digests[0]


def _entries(index: object, what: str) -> Iterator[tuple[str, str | None, str]]:
    """Digest, platform (``linux/amd64``; None if the entry does not say) and variant of an index's images.

    Without the attestations that BuildKit lists as unknown/unknown.
    """
    listed = index.get("manifests") if isinstance(index, dict) else None
    if not isinstance(listed, list) or len(listed) > _MOST_ENTRIES:
        raise _malformed(what, f"it has no list of at most {_MOST_ENTRIES} manifests")
    for entry in listed:
        digest = entry.get("digest") if isinstance(entry, dict) else None
        if not is_digest(digest):
            raise _malformed(what, "an entry has no digest")
        own = entry.get("platform")
        if own is not None and not isinstance(own, dict):
            raise _malformed(what, f"the platform of {digest} is no object")
        words = [(own or {}).get(name, "") for name in ("os", "architecture", "variant")]
        if not all(isinstance(word, str) for word in words):
            raise _malformed(what, f"the platform of {digest} is not made of texts")
        system, machine, variant = (word.lower() for word in words)
        platform = f"{system}/{_MACHINES.get(machine, machine)}" if system and machine else None
        if platform == "unknown/unknown":
            continue
        if entry.get("mediaType", MANIFEST) not in MANIFESTS:
            raise _malformed(what, f"{digest} is of type {entry['mediaType']!r}, which is no image")
        yield digest, platform, variant


def _malformed(what: str, problem: str) -> RegistryError:
    return RegistryError(f"{what} is no index of images: {problem}", hint="whoever pushed it made it so")


def parse_manifest(content: bytes) -> dict[str, Any]:
    """A manifest or index. Raises MalformedError for one that programs read differently."""
    document = parse_object(content, strict=True)
    lists = [document.get(name) for name in ("layers", "manifests")]
    entries = [entry for one in lists if isinstance(one, list) for entry in one]
    entries += [entry.get("platform") for entry in entries if isinstance(entry, dict)]
    for part in (document, document.get("config"), *entries):
        if isinstance(part, dict):
            _refuse_lookalikes(part, (*_OF_MANIFEST, *_PLATFORM))
    return document


@dataclass(frozen=True, kw_only=True)
class Descriptor:
    """A piece of content as a manifest or index names it. ``size`` is in bytes."""

    media_type: str
    digest: str
    size: int
    artifact_type: str | None = None
    annotations: tuple[tuple[str, str], ...] = ()

    def document(self) -> dict[str, Any]:
        return {
            "mediaType": self.media_type,
            "digest": self.digest,
            "size": self.size,
            **({} if self.artifact_type is None else {"artifactType": self.artifact_type}),
            **({"annotations": dict(self.annotations)} if self.annotations else {}),
        }


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A manifest or index as its bytes, and their digest."""

    digest: str
    media_type: str
    content: bytes

    @property
    def document(self) -> dict[str, Any]:
        return parse_manifest(self.content)

    @property
    def descriptor(self) -> Descriptor:
        return Descriptor(media_type=self.media_type, digest=self.digest, size=len(self.content))


def blobs_of(manifest: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Digests and sizes in bytes of an image's config and layers, lowest first. Raises MalformedError."""
    layers = manifest.get("layers")
    if not isinstance(layers, list):
        raise MalformedError("it has no list of layers")
    found = []
    for entry in (manifest.get("config"), *layers):
        digest, size = (entry.get("digest"), entry.get("size")) if isinstance(entry, dict) else (None, None)
        if not is_digest(digest) or type(size) is not int or size <= 0:
            raise MalformedError("it has a blob without a digest or size, or an empty one")
        found.append((digest, size))
    return tuple(found)


def parse_config(content: bytes) -> dict[str, Any]:
    """An image's config. Raises MalformedError for one that programs read differently, or not at all."""
    document = parse_object(content, strict=True)
    _check(document, _OF_CONFIG)
    settings, rootfs = document.get("config") or {}, document.get("rootfs") or {}
    _check(settings, _SETTINGS)
    _check(rootfs, _ROOTFS)
    texts = [text for name in ("Env", "Cmd", "Entrypoint", "OnBuild") for text in settings.get(name) or ()]
    texts += [*(settings.get("Labels") or {}).values(), *(rootfs.get("diff_ids") or ())]
    steps = document.get("history") or ()
    if not all(isinstance(text, str) for text in texts) or not all(isinstance(row, dict) for row in steps):
        raise MalformedError("it has other values where texts belong")
    return document


def _check(part: Mapping[str, Any], fields: Mapping[str, type]) -> None:
    _refuse_lookalikes(part, fields)
    for name, kind in fields.items():
        if not isinstance(part.get(name), (kind, type(None))):
            raise MalformedError(f"its {name} is of another type than the specification says")


def _refuse_lookalikes(part: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse ``env`` for ``Env``: programs in Go take it, and the last of both, and others do not.

    https://pkg.go.dev/encoding/json#Unmarshal
    """
    known = {name.casefold(): name for name in names}
    for key in part:
        if known.get(key.casefold(), key) != key:
            raise MalformedError(f"some programs read its {shown(key, most=40)} as {known[key.casefold()]}")


_REF = "org.opencontainers.image.ref.name"
_LOADED = "io.containerd.image.name"
"""https://github.com/containerd/containerd/blob/main/core/images/annotations.go"""
_LAYOUT = canonical_json({"imageLayoutVersion": "1.0.0"})


class LayerBlob(Protocol):
    """The facts of a layer that an image's documents need."""

    @property
    def digest(self) -> str:
        """``sha256:…`` of the blob."""

    @property
    def diff_id(self) -> str:
        """``sha256:…`` of the tar stream inside."""

    @property
    def size(self) -> int:
        """Bytes of the blob."""

    @property
    def media_type(self) -> str: ...


Blob = TypeVar("Blob", bound=LayerBlob)


@dataclass(frozen=True, kw_only=True)
class OciImage(Generic[Blob]):
    """An image as its documents and its layers."""

    manifest: bytes
    config: bytes
    layers: tuple[Blob, ...]
    """Lowest first."""

    @property
    def digest(self) -> str:
        return sha256_of(self.manifest)

    @property
    def config_digest(self) -> str:
        return sha256_of(self.config)

    @property
    def content(self) -> str:
        """The identity of the image, as an engine computes it."""
        config = json.loads(self.config)
        return content_of(
            platform=f"{config['os']}/{config['architecture']}",
            layers=config["rootfs"]["diff_ids"],
            config=config["config"],
        )


def image_manifest(config: bytes, layers: Sequence[LayerBlob]) -> bytes:
    """The manifest as BuildKit writes it: of equal layers comes an equal digest."""
    kind = "application/vnd.oci.image.config.v1+json"
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": kind, "digest": sha256_of(config), "size": len(config)},
        "layers": [
            {"mediaType": layer.media_type, "digest": layer.digest, "size": layer.size} for layer in layers
        ],
    }
    return json.dumps(document, indent=2).encode()


def plain_image(layers: tuple[Blob, ...], config: Mapping[str, Any]) -> OciImage[Blob]:
    """An image of these layers, lowest first, with ``config`` and the documents that both make."""
    diff_ids = [layer.diff_id for layer in layers]
    content = canonical_json({**config, "rootfs": {"type": "layers", "diff_ids": diff_ids}})
    return OciImage(manifest=image_manifest(content, layers), config=content, layers=layers)


def write_layout(
    folder: Path,
    tag: str,
    loaded: str,
    image: OciImage[Blob],
    blob: Callable[[Blob], Path],
    *,
    link: bool = False,
) -> None:
    """Add an image to the OCI layout in ``folder`` under ``tag``; blobs that are there stay.

    https://github.com/opencontainers/image-spec/blob/main/image-layout.md; tools read it as
    ``oci:FOLDER:TAG``, and ``docker load`` gives a tar file of it the name ``loaded``. With ``link`` the
    layers are links to their files. Raises UsageError if the folder holds something else.
    """
    index = folder / "index.json"
    with disk_errors(folder):
        refuse_foreign(folder, {"blobs"}, "OCI layout")
        (folder / _place("")).mkdir(parents=True, exist_ok=True)
        for layer in image.layers:
            target = folder / _place(layer.digest)
            if link:
                target.symlink_to(blob(layer).resolve())
            elif not (target.is_file() and target.stat().st_size == layer.size):
                beside = target.with_suffix(f".{uuid.uuid4().hex}.part")
                try:
                    shutil.copyfile(blob(layer), beside)
                    beside.replace(target)
                finally:
                    beside.unlink(missing_ok=True)
        for document in (image.config, image.manifest):
            write_whole(folder / _place(sha256_of(document)), document)
        write_whole(folder / "oci-layout", _LAYOUT)

        def listed() -> bytes:
            there = json.loads(index.read_bytes())["manifests"] if index.is_file() else []
            others = [entry for entry in there if _tag(entry) != tag]
            return _index(sorted([*others, _entry({_REF: tag, _LOADED: loaded}, image)], key=_tag))

        write_whole(index, listed)


def _tag(entry: Mapping[str, Any]) -> str:
    return str((entry.get("annotations") or {}).get(_REF))


def archive_parts(
    image: OciImage[Blob], name: str, blob: Callable[[Blob], Path], *, without: Collection[str] = ()
) -> Iterator[tuple[str, bytes | Path]]:
    """The files of an archive that ``docker load`` takes, with the blobs that are not in ``without``.

    The containerd image store reads the OCI layout in it, a graphdriver ``manifest.json``:
    https://github.com/moby/docker-image-spec/blob/main/spec.md
    """
    described = {
        "Config": _place(image.config_digest),
        "RepoTags": [name],
        "Layers": [_place(layer.digest) for layer in image.layers],
    }
    annotations = {_REF: name.rpartition(":")[2], _LOADED: f"docker.io/{name}"}
    yield "oci-layout", _LAYOUT
    yield "index.json", _index([_entry(annotations, image)])
    yield "manifest.json", canonical_json([described])
    for document in (image.manifest, image.config):
        yield _place(sha256_of(document)), document
    for layer in {layer.digest: layer for layer in image.layers}.values():
        if layer.digest not in without:
            yield _place(layer.digest), blob(layer)


def _place(digest: str) -> str:
    return "blobs/sha256/" + digest.removeprefix("sha256:")


def _entry(annotations: dict[str, str], image: OciImage[Any]) -> dict[str, Any]:
    return {
        "mediaType": MANIFEST,
        "digest": image.digest,
        "size": len(image.manifest),
        "annotations": annotations,
    }


def _index(entries: list[dict[str, Any]]) -> bytes:
    return canonical_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries})
