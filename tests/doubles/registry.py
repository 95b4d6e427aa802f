"""A registry in memory, on loopback: a test double for what Debian's docker-registry 2.8 is not.

It has the referrers API of the distribution specification 1.1 (``OCI-Subject``, ``artifactType``, pages),
which 2.8 has not; it says how much of an upload arrived, which 2.8 forgets when one is cut; and it can lie,
which no registry that one installs does: serve other bytes than a digest says, blobs without end, referrers
that are none. Not made for anything but tests.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from builder.sources.net.http import Client
from builder.sources.oci.registry import Registry
from builder.sources.oci.spec import Manifest
from doubles.http_server import Answer, Request, Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

INDEX = "application/vnd.oci.image.index.v1+json"


def sha256(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


@dataclass
class RegistryDouble:
    """One repository space. Change its tables to make it lie."""

    referrers: bool = True
    """Whether it has the referrers API."""
    page: int = 1000
    host: str = ""
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    lies: dict[str, bytes] = field(default_factory=dict)
    """Digest or tag → the bytes that are served in its place."""
    endless: set[str] = field(default_factory=set)
    """Digests whose content never ends."""
    listed: list[dict[str, Any]] | None = None
    """What the referrers API answers in place of the truth."""
    before_put: Callable[[str], None] | None = None
    """Called with the reference of every manifest that is put, before it is stored."""
    fault: Callable[[Request], int | Answer | None] | None = None
    """Called with every request: the status of a failure, an answer of the test's own, or None."""
    requests: list[str] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def refers_to(self, digest: str) -> list[dict[str, Any]]:
        found = []
        for own, (media_type, content) in self.manifests.items():
            document = json.loads(content)
            if (document.get("subject") or {}).get("digest") == digest:
                entry = {"mediaType": media_type, "digest": own, "size": len(content)}
                kind = document.get("artifactType") or document.get("config", {}).get("mediaType")
                found.append(entry | {"artifactType": kind, "annotations": document.get("annotations") or {}})
        return found


SERVED: dict[str, RegistryDouble] = {}
"""Those that answer now, by their host."""


@dataclass
class AtOnce:
    """The part of a client that pushes an image and reads it back, on a double's own tables: no request is
    sent, for a test that begins with images in a registry and is not about how they came there.
    """

    double: RegistryDouble

    def push_blob(self, _repository: str, digest: str, blob: Path) -> bool:
        self.double.blobs[digest] = blob.read_bytes()
        return True

    def put_manifest(self, reference: str, content: bytes, media_type: str) -> str:
        digest = sha256(content)
        self.double.manifests[digest] = media_type, content
        if "@" not in reference:
            self.double.tags[reference.rpartition(":")[2]] = digest
        return digest

    def manifest(self, reference: str) -> Manifest:
        digest = reference.rpartition("@")[2]
        media_type, content = self.double.manifests[digest]
        return Manifest(digest=digest, media_type=media_type, content=content)

    def blob(self, _repository: str, digest: str) -> bytes:
        return self.double.blobs[digest]


def registry_client() -> Registry:
    """The product's own, which gives up at once, and has no login."""
    return Registry(client=Client(retries=0, backoff=0.01, read_timeout=5), login=lambda _host: None)


@contextlib.contextmanager
def serve(double: RegistryDouble | None = None) -> Iterator[RegistryDouble]:
    """Answer on a port of 127.0.0.1 until the block ends."""
    state = double or RegistryDouble()
    with Server(lambda request: _answer(state, request)) as server:
        state.host = server.host
        SERVED[server.host] = state
        try:
            yield state
        finally:
            del SERVED[server.host]


def _answer(state: RegistryDouble, request: Request) -> Answer:
    found = re.fullmatch(r"/v2/(?:(.+?)/(blobs|manifests|referrers|tags)/(.+))?", request.path)
    _ = request.body  # else the lock is held while a client sends
    state.requests.append(f"{request.method} {request.target}")
    if fault := state.fault and state.fault(request):
        return fault if isinstance(fault, Answer) else _error(fault)
    if found is None:
        return _error(404)
    if found[1] is None:
        return _json(b"{}")
    kinds = {"blobs": _blobs, "manifests": _manifests, "referrers": _referrers, "tags": _tags}
    with state.lock:
        return kinds[found[2]](state, request, found[1], found[3])


def _blobs(state: RegistryDouble, request: Request, name: str, rest: str) -> Answer:
    if rest.startswith("uploads/"):
        return _upload(state, request, name, rest)
    if rest not in state.blobs:
        return _error(404)
    headers = {"Docker-Content-Digest": rest}
    if rest in state.endless and request.method == "GET":
        return Answer(200, itertools.repeat(b"x" * (1 << 20)), {"Content-Length": str(1 << 40)})
    return _json(state.lies.get(rest, state.blobs[rest]), headers=headers)


def _upload(state: RegistryDouble, request: Request, name: str, rest: str) -> Answer:
    own = {"Location": f"/v2/{name}/blobs/{rest}"}
    match request.method:
        case "PUT":
            digest = request.query["digest"][0]
            content = state.blobs.pop(rest, b"") + request.body
            if sha256(content) != digest:
                return _error(400)
            state.blobs[digest] = content
            return _json(b"", 201, {"Docker-Content-Digest": digest})
        case "GET":
            end = len(state.blobs.get(rest, b"")) - 1
            return _json(b"", 204 if end >= 0 else 404, own | {"Range": f"0-{end}"})
        case "PATCH":  # what arrived of one that was cut counts, too
            begin = request.headers.get("content-range", "0").partition("-")[0]
            if begin != str(len(state.blobs.get(rest, b""))):
                return _error(416)
            state.blobs[rest] = state.blobs.get(rest, b"") + request.body
            return _json(b"", 202, own)
        case "DELETE":
            return _json(b"", 204)
    return _json(b"", 202, {"Location": f"/v2/{name}/blobs/uploads/{len(state.requests)}"})


def _manifests(state: RegistryDouble, request: Request, name: str, rest: str) -> Answer:
    if request.method == "PUT":
        if state.before_put is not None:
            state.before_put(rest)
        digest = sha256(request.body)
        document = json.loads(request.body)
        state.manifests[digest] = (request.headers.get("content-type", ""), request.body)
        if not rest.startswith("sha256:"):
            state.tags[rest] = digest
        subject = (document.get("subject") or {}).get("digest")
        headers = {"Docker-Content-Digest": digest, "Location": f"/v2/{name}/manifests/{digest}"}
        if subject and state.referrers:
            headers["OCI-Subject"] = subject
        return _json(b"", 201, headers)
    digest = state.tags.get(rest, rest)
    if digest not in state.manifests:
        return _error(404)
    media_type, content = state.manifests[digest]
    content = state.lies.get(rest, state.lies.get(digest, content))
    return _json(content, headers={"Content-Type": media_type, "Docker-Content-Digest": digest})


def _referrers(state: RegistryDouble, request: Request, _name: str, rest: str) -> Answer:
    if not state.referrers:
        return _error(404)
    entries = state.refers_to(rest) if state.listed is None else state.listed
    start = int(request.query.get("after", ["0"])[0])
    headers = {"Content-Type": INDEX}
    if start + state.page < len(entries):
        after = start + state.page
        headers["Link"] = f'<http://elsewhere.invalid/v2/x/referrers/y?after={after}>; rel="next"'
    page = entries[start : start + state.page]
    document = {"schemaVersion": 2, "mediaType": INDEX, "manifests": page}
    return _json(json.dumps(document).encode(), headers=headers)


def _tags(state: RegistryDouble, _request: Request, name: str, _rest: str) -> Answer:
    return _json(json.dumps({"name": name, "tags": sorted(state.tags)}).encode())


def _error(status: int) -> Answer:
    errors = {"errors": [{"code": "UNKNOWN", "message": "no such thing here"}]}
    return _json(json.dumps(errors).encode(), status)


def _json(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    return Answer(status, body, {"Content-Type": "application/json", **(headers or {})})
