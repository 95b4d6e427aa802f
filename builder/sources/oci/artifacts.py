"""Referrers of an image: OCI artifacts whose manifest names the image as ``subject``.

A registry that knows referrers lists them by itself and says so with ``OCI-Subject``. For any other one the
client keeps the list, an index under the tag ``sha256-<hex>``:
https://github.com/opencontainers/distribution-spec/blob/main/spec.md#listing-referrers and
#referrers-tag-schema. No registry swaps a tag by comparison, so two writers of that tag can overtake each
other: each reads the tag again after writing, and writes once more if its entry got lost.
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
from builder.core.errors import RegistryError
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
_TRIES = 8
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
        """The same bytes for the same content and subject, so that attaching twice changes nothing."""
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
    """Where an artifact came to lie."""

    descriptor: Descriptor
    kept: Kept
    new: bool
    """False if the very same artifact was attached before."""


def tag_of(digest: str) -> str:
    """The tag under which clients keep the list: ``sha256-<hex>``."""
    return digest.replace(":", "-", 1)


def referrers(registry: Registry, image: Reference) -> Listing:
    """List the artifacts that refer to an image, which is named by digest.

    Raises RegistryError if the registry did not answer, refused, or answered with no list.
    """
    if image.digest is None:
        raise ValueError(f"{image} is not named by digest")
    kept: Kept = "referrers"
    entries: list[Any] = []
    query = ""
    for _ in range(_MOST_PAGES):
        path = f"referrers/{image.digest}?{query}".removesuffix("?")
        response = registry.request("GET", image, path, good=(200, *_NO_API), headers={"Accept": oci.INDEX})
        if response.status_code != 200:
            response.close()
            kept, query = "tag", ""
            entries = _tagged_index(registry, image, tag_of(image.digest))["manifests"]
            break
        entries += _listed(response, place_of(image, {}))
        # Only the query of the link is followed: a link to another host would carry our login there.
        query = _query(response)
        if not query or len(entries) > _MOST:
            break
    found = [one for entry in entries if (one := _descriptor(entry)) is not None]
    return Listing(
        kept=kept,
        descriptors=tuple(found[:_MOST]),
        left_out=len(entries) - len(found[:_MOST]),
        complete=not query and len(found) <= _MOST,
    )


def attach(registry: Registry, image: Reference, subject: Descriptor, artifact: Artifact) -> Attachment:
    """Push the artifact and make sure that the image's referrers name it.

    Raises RegistryError if the registry refused, or its list of referrers cannot be kept.
    """
    content = artifact.manifest(subject)
    own = Descriptor(
        media_type=oci.MANIFEST,
        digest=sha256_of(content),
        size=len(content),
        artifact_type=artifact.artifact_type,
        annotations=artifact.annotations,
    )
    listed = referrers(registry, image.at(subject.digest))
    known = any(entry.digest == own.digest for entry in listed.descriptors)
    if known and registry.digest_of(image.at(own.digest)):
        return Attachment(descriptor=own, kept=listed.kept, new=False)
    response = _push(registry, image, artifact.content, content)
    if response.headers.get("OCI-Subject") == subject.digest:
        return Attachment(descriptor=own, kept="referrers", new=True)
    keep_in_tag(registry, image, subject.digest, (own,))
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
    """Of the link to the next page; empty at the end, and where the link is no address."""
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
