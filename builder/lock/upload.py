"""Blobs and manifests into a repository.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md#push

An upload that breaks is begun anew, and not continued in its middle: Docker's own registry forgets one that
was cut (``BLOB_UPLOAD_INVALID``, seen with 2.8.2). What has arrived whole stays, and is not sent again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode, urljoin, urlsplit

from builder.digests import sha256_of
from builder.lock import registry_answers as answers
from builder.lock.wire import BUSY

if TYPE_CHECKING:
    from pathlib import Path

    import requests

    from builder.lock.oci import Reference
    from builder.lock.wire import Wire

_PUSH = "pull,push"


def mount_blob(wire: Wire, reference: str | Reference, digest: str, source: str | Reference) -> bool:
    """Have a blob of another repository of the same registry in this one, without its bytes on the way.

    False where that cannot be: another registry, one that does not mount, or does not show us the source.
    Raises RegistryError where it does not answer.
    """
    name, place = wire.place(reference)
    _, other = wire.place(source)
    if (place.host, place.scheme) != (other.host, other.scheme):
        return False
    query = urlencode({"mount": digest, "from": other.repository})
    also = other.repository if other.repository != place.repository else None

    def attempt() -> requests.Response:
        path = f"blobs/uploads/?{query}"
        return wire.call("POST", place, path, actions=_PUSH, also=also)

    response = wire.persist(attempt, place, done=(201, 202))
    if response.status_code == 201:
        return True
    if response.status_code == 202:  # no such blob there, or no mounting here: an upload was begun instead
        begun = urljoin(response.url, response.headers.get("Location", ""))
        wire.call("DELETE", place, begun, actions=_PUSH).close()
        return False
    if response.status_code < 500 and response.status_code not in BUSY:
        response.close()  # if it is writing that it refuses, the upload that comes next is told so, and why
        return False
    raise answers.refusal(response, name, place)


def push_blob(wire: Wire, reference: str | Reference, digest: str, file: Path) -> None:
    """Upload a file as a blob. Raises RegistryError."""
    name, place = wire.place(reference)

    def attempt() -> requests.Response:
        begun = wire.call("POST", place, "blobs/uploads/", actions=_PUSH)
        if begun.status_code != 202:
            return begun
        if "Location" not in begun.headers:
            raise answers.no_registry(name, place, "an upload that is begun nowhere")
        location = urljoin(begun.url, begun.headers["Location"])
        joint = "&" if urlsplit(location).query else "?"
        with file.open("rb") as content:
            return wire.call(
                "PUT",
                place,
                f"{location}{joint}{urlencode({'digest': digest})}",
                actions=_PUSH,
                data=content,
                headers={
                    "Content-Type": "application/octet-stream",
                    "Content-Length": str(file.stat().st_size),
                },
            )

    response = wire.persist(attempt, place, done=(201,))
    if response.status_code == 404:  # the upload that was begun is gone: the registry was restarted, say
        response.close()
        response = wire.persist(attempt, place, done=(201,))
    if response.status_code != 201:
        raise answers.refusal(response, name, place)


def put_manifest(wire: Wire, reference: str | Reference, content: bytes, media_type: str) -> str:
    """Store a manifest under the reference's tag or digest; its digest. Raises RegistryError."""
    name, place = wire.place(reference)

    response = wire.call(
        "PUT",
        place,
        f"manifests/{name.selector}",
        actions=_PUSH,
        data=content,
        headers={"Content-Type": media_type},
    )
    if response.status_code != 201:
        raise answers.refusal(response, name, place)
    digest = sha256_of(content)
    stored = response.headers.get("Docker-Content-Digest", digest)
    if stored != digest:
        raise answers.altered(f"{name}", place, digest, stored)
    return digest
