"""Referrers of an image: OCI artifacts whose manifest names the image as ``subject``.

A registry that knows referrers lists them by itself and says so with ``OCI-Subject``. For any other one the
specification has clients keep the list, an index under the tag ``sha256-<hex>``:
https://github.com/opencontainers/distribution-spec/blob/main/spec.md#listing-referrers and
#referrers-tag-schema. No registry swaps a tag by comparison, so of many writers of that tag one always
overtakes another, after that one looked. Each artifact therefore has a tag of its own, which nobody else
writes: ``sha256-<hex>.<32 hex of the artifact>``. Readers take both; the index is for other programs.
"""

import contextlib
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, TypeVar
from urllib.parse import urlsplit

import requests

from builder.core.digests import canonical_json, sha256_of
from builder.core.documents import MalformedError, parse_object
from builder.core.errors import ImageMissingError, RegistryError
from builder.sources.oci import spec as oci
from builder.sources.oci import wire
from builder.sources.oci.registry import Registry
from builder.sources.oci.spec import Descriptor, Place, Reference, place_of

EMPTY = "application/vnd.oci.empty.v1+json"
"""https://github.com/opencontainers/image-spec/blob/main/manifest.md#guidance-for-an-empty-descriptor"""

_Made = TypeVar("_Made")
_Asked = ParamSpec("_Asked")

_MOST = 4096
"""Referrers that are looked at: an image has a handful, and a list without end is an attack."""
_MOST_PAGES = 64
_REMEMBERED = 20_000
"""Artifacts that are not read again, since their tags name their content."""
_TRIES = 8
_OWN = 32
"""Hex digits of an artifact's digest in its own tag; a tag has 128 characters at most."""
_NO_API = (404, 405, 501)

Kept = Literal["referrers", "tag"]
"""Who keeps the list: the registry, or its clients under a tag."""


def _again(attempt: Callable[_Asked, _Made]) -> Callable[_Asked, _Made]:
    """Docker's registry 2.8 refuses now and then what two clients put or read at the same moment (HTTP 400,
    "provided digest did not match uploaded content"), and takes it a moment later."""

    def patient(*args: _Asked.args, **options: _Asked.kwargs) -> _Made:
        for pause in (0.2, 0.6):
            try:
                return attempt(*args, **options)
            except RegistryError:
                time.sleep(pause * (1 + random.random()))  # noqa: S311 - only to get out of step
        return attempt(*args, **options)

    return patient


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """One document that is attached to an image."""

    artifact_type: str
    content: bytes
    annotations: tuple[tuple[str, str], ...] = ()

    def manifest(self, subject: Descriptor) -> bytes:
        """Equal bytes for equal content and subject, so that attaching twice changes nothing."""
        layer = Descriptor(
            media_type=self.artifact_type,
            digest=sha256_of(self.content),
            size=len(self.content),
            annotations=self.annotations,
        )
        return canonical_json(
            {
                "schemaVersion": 2,
                "mediaType": oci.MANIFEST,
                "artifactType": self.artifact_type,
                "config": {"mediaType": EMPTY, "digest": sha256_of(b"{}"), "size": 2, "data": "e30="},
                "layers": [layer.document()],
                "subject": subject.document(),
                "annotations": dict(self.annotations),
            }
        )


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Everything that refers to an image, as far as its registry tells."""

    kept: Kept
    descriptors: tuple[Descriptor, ...]
    left_out: int = 0
    """Entries that were beyond the limit, or made no sense."""
    complete: bool = True
    """False if the list is longer than the part that was read."""


@dataclass(frozen=True, kw_only=True)
class Attachment:
    """The place of an artifact in the registry."""

    descriptor: Descriptor
    kept: Kept
    new: bool
    """False if the very same artifact was attached before."""


def tag_of(digest: str) -> str:
    """The tag under which clients keep the list: ``sha256-<hex>``."""
    return digest.replace(":", "-", 1)


def own_tag(subject: str, digest: str) -> str:
    """The tag of one artifact where the registry lists no referrers: ``sha256-<hex>.<32 hex>``."""
    return f"{tag_of(subject)}.{digest.removeprefix('sha256:')[:_OWN]}"


def referrers(registry: Registry, image: Reference) -> Listing:
    """List the artifacts that refer to an image, which is named by digest.

    Raises RegistryError if the registry did not answer, refused, or answered with no list.
    """
    if image.digest is None:
        raise ValueError(f"{image} is not named by digest")
    entries: list[Any] = []
    query = ""
    for _ in range(_MOST_PAGES):
        path = f"referrers/{image.digest}?{query}".removesuffix("?")
        response = registry.request("GET", image, path, good=(200, *_NO_API), headers={"Accept": oci.INDEX})
        if response.status_code != 200:
            response.close()
            return _listed_by_tags(registry, image, image.digest)
        entries += _listed(response, place_of(image, {}))
        # Only the query of the link is followed: a link to another host would carry our login there.
        query = _query(response)
        if not query or len(entries) > _MOST:
            break
    return _listing("referrers", entries, complete=not query)


def _listing(kept: Kept, entries: list[Any], *, complete: bool) -> Listing:
    found = [one for entry in entries if (one := _descriptor(entry)) is not None]
    return Listing(
        kept=kept,
        descriptors=tuple(found[:_MOST]),
        left_out=len(entries) - len(found[:_MOST]),
        complete=complete and len(found) <= _MOST,
    )


def _listed_by_tags(registry: Registry, image: Reference, subject: str) -> Listing:
    """The index under the tag, and each artifact that has a tag of its own."""
    entries: list[Any] = list(_tagged_index(registry, image, tag_of(subject))["manifests"])
    there = {own_tag(subject, entry["digest"]) for entry in entries}
    length = len(own_tag(subject, subject))  # else it is another program's, such as cosign's
    tags = registry.tags_of(image, tag_of(subject) + ".")
    wanted = [tag for tag in tags if len(tag) == length and tag not in there]
    for tag in wanted[: _MOST + 1]:
        found = _tagged_artifact(registry, image, subject, tag)
        entries += [] if found is None else [found]
    return _listing("tag", entries, complete=len(wanted) <= _MOST)


def _tagged_artifact(registry: Registry, image: Reference, subject: str, tag: str) -> dict[str, Any] | None:
    """The entry of the artifact under its own tag; None if it is gone, or is no artifact of this image."""
    place = (image.host, image.repository, tag)
    known = registry.artifacts.get(place)
    if known is None:
        try:
            manifest = registry.manifest(image.tagged(tag))
        except ImageMissingError:  # deleted since the tags were listed
            return None
        document = manifest.document
        about = document.get("subject")
        if (
            not isinstance(about, dict)
            or about.get("digest") != subject
            or own_tag(subject, manifest.digest) != tag
        ):
            return None
        known = {
            "mediaType": manifest.media_type,
            "digest": manifest.digest,
            "size": len(manifest.content),
            "artifactType": document.get("artifactType"),
            "annotations": document.get("annotations"),
        }
        if len(registry.artifacts) >= _REMEMBERED:
            registry.artifacts.clear()
        registry.artifacts[place] = known
    return dict(known)


def attach(registry: Registry, image: Reference, subject: Descriptor, artifact: Artifact) -> Attachment:
    """Push the artifact and make sure that whoever lists the image's referrers finds it.

    Where the registry lists none, it gets a tag of its own; :func:`keep_in_tag` tells other programs of it.
    Raises RegistryError if the registry refused.
    """
    content = artifact.manifest(subject)
    own = Descriptor(
        media_type=oci.MANIFEST,
        digest=sha256_of(content),
        size=len(content),
        artifact_type=artifact.artifact_type,
        annotations=artifact.annotations,
    )
    tag = own_tag(subject.digest, own.digest)
    if registry.digest_of(image.at(own.digest)):
        if registry.digest_of(image.tagged(tag)) == own.digest:
            return Attachment(descriptor=own, kept="tag", new=False)
        listed = referrers(registry, image.at(subject.digest))
        if any(entry.digest == own.digest for entry in listed.descriptors):
            return Attachment(descriptor=own, kept=listed.kept, new=False)
    response = _push(registry, image, artifact.content, content)
    if response.headers.get("OCI-Subject") == subject.digest:
        return Attachment(descriptor=own, kept="referrers", new=True)
    registry.put_manifest(image.tagged(tag), content, oci.MANIFEST)
    return Attachment(descriptor=own, kept="tag", new=True)


@_again
def _push(registry: Registry, image: Reference, document: bytes, manifest: bytes) -> requests.Response:
    for blob in (b"{}", document):
        registry.push_blob(image, sha256_of(blob), blob)
    name = image.at(sha256_of(manifest))
    path, headers = f"manifests/{name.digest}", {"Content-Type": oci.MANIFEST}
    return registry.request(
        "PUT", name, path, good=(201,), actions="pull,push", data=manifest, headers=headers
    )


def keep_in_tag(registry: Registry, image: Reference, subject: str, wanted: tuple[Descriptor, ...]) -> None:
    """Put ``wanted`` into the index under the tag; entries of other writers stay.

    Raises RegistryError if something else than an index has that tag, or others overwrote it again and again.
    """
    tag = tag_of(subject)
    seen: dict[str, dict[str, Any]] = {}
    for attempt in range(1, _TRIES + 1):
        document = _tagged_index(registry, image, tag)
        there = {entry["digest"]: entry for entry in document["manifests"]}
        # Entries of another writer that a third one overwrote meanwhile are restored, too.
        seen = {entry.digest: entry.document() for entry in wanted} | seen | there
        missing = [entry for digest, entry in seen.items() if digest not in there]
        if not missing:
            return
        wider = {**document, "manifests": [*document["manifests"], *missing]}
        for digest in _put_index(registry, image, tag, wider):
            seen.pop(digest, None)
        # Longer than another writer's way from reading to writing, and out of step with it.
        time.sleep(0.05 * attempt * (1 + random.random()))  # noqa: S311
    kept = {entry["digest"] for entry in _tagged_index(registry, image, tag)["manifests"]}
    if all(entry.digest in kept for entry in wanted):
        return
    raise RegistryError(
        f"{image.host}/{image.repository}:{tag} was overwritten by others {_TRIES} times",
        hint="several publishers write to this image's referrers at once; publish again, nothing is lost",
    )


@_again
def _put_index(registry: Registry, image: Reference, tag: str, document: Mapping[str, Any]) -> frozenset[str]:
    """Put the index; which entries had to be left out, because their manifests were deleted since."""
    name = image.tagged(tag)
    try:
        registry.put_manifest(name, canonical_json(document), oci.INDEX)
    except RegistryError:  # registries refuse an index that names what they do not have
        entries = document["manifests"]
        alive = [entry for entry in entries if registry.digest_of(image.at(entry["digest"]))]
        if len(alive) == len(entries):
            raise
        registry.put_manifest(name, canonical_json({**document, "manifests": alive}), oci.INDEX)
        return frozenset(entry["digest"] for entry in entries if entry not in alive)
    return frozenset()


@_again
def _tagged_index(registry: Registry, image: Reference, tag: str) -> dict[str, Any]:
    """The index under the tag, or an empty one."""
    name = image.tagged(tag)
    digest = registry.digest_of(name)
    if digest is None:
        return {"schemaVersion": 2, "mediaType": oci.INDEX, "manifests": []}
    manifest = registry.manifest(image.at(digest))
    document = manifest.document
    if manifest.media_type not in oci.INDEXES or not isinstance(document.get("manifests"), list):
        hint = "something else was pushed under that tag; remove it, evidence has no other place here"
        raise RegistryError(f"{name} is no list of referrers, but {manifest.media_type}", hint=hint)
    document["manifests"] = [
        entry
        for entry in document["manifests"]
        if isinstance(entry, dict) and oci.is_digest(entry.get("digest"))
    ]
    return document


def _query(response: requests.Response) -> str:
    """The query of the link to the next page; empty at the end, and if the link is no address."""
    try:
        return urlsplit(response.links.get("next", {}).get("url", "")).query
    except ValueError:
        return ""


def _listed(response: requests.Response, place: Place) -> list[Any]:
    with contextlib.suppress(MalformedError):
        if isinstance(entries := parse_object(wire.read(response, place)).get("manifests"), list):
            return entries
    raise wire.no_registry(place, "something that is no list of referrers")


def _descriptor(entry: Any) -> Descriptor | None:
    """None for an entry that makes no sense."""
    match entry:
        case {"mediaType": str(media_type), "digest": digest, "size": int(size)} if (
            oci.is_digest(digest) and size >= 0
        ):
            kind, notes = entry.get("artifactType"), entry.get("annotations")
            pairs = notes.items() if isinstance(notes, dict) else ()
            return Descriptor(
                media_type=media_type,
                digest=digest,
                size=size,
                artifact_type=kind if isinstance(kind, str) else None,
                annotations=tuple(sorted((str(key), str(value)) for key, value in pairs)),
            )
    return None
