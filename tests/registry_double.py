"""A registry in memory, on loopback: a test double for what Debian's docker-registry 2.8 is not.

It has the referrers API of the distribution specification 1.1 (``OCI-Subject``, ``artifactType``, pages),
which 2.8 has not; it says how much of an upload arrived, which 2.8 forgets when one is cut; and it can lie,
which no registry that one installs does: serve other bytes than a digest says, blobs without end, referrers
that are none. Not made for anything but tests.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from http_double import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    fault: Callable[[str, str], int | None] | None = None
    """Called with method and path of every request: the status of a failure, or None."""
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


@contextlib.contextmanager
def serve(double: RegistryDouble | None = None) -> Iterator[RegistryDouble]:
    """Answer on a port of 127.0.0.1 until the block ends."""
    state = double or RegistryDouble()

    class Handler(_Handler):
        registry = state

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.host = f"127.0.0.1:{server.server_address[1]}"
    with serving(server):
        yield state


class _Handler(BaseHTTPRequestHandler):
    registry: RegistryDouble
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # in one packet, or each answer waits 40 ms for the client to acknowledge its headers

    def log_message(self, *args: Any) -> None:
        """Nothing: pytest's output is not for access logs."""

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def do_PATCH(self) -> None:
        self._answer()

    def _answer(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = re.fullmatch(r"/v2/(?:(.+?)/(blobs|manifests|referrers|tags)/(.+))?", url.path)
        self.registry.requests.append(f"{self.command} {self.path}")
        try:
            status = self.registry.fault and self.registry.fault(self.command, self.path)
            if status:
                return self._error(status)
            if found is None:
                return self._error(404)
            if found[1] is None:
                return self._send(200, b"{}")
            with self.registry.lock:
                getattr(self, f"_{found[2]}")(found[1], found[3], parse_qs(url.query), body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        return None

    def _blobs(self, name: str, rest: str, query: dict[str, list[str]], body: bytes) -> None:
        state = self.registry
        if rest.startswith("uploads/"):
            if self.command == "PUT":
                digest = query["digest"][0]
                content = state.blobs.pop(rest, b"") + body
                if sha256(content) != digest:
                    return self._error(400)
                state.blobs[digest] = content
                return self._send(201, b"", {"Docker-Content-Digest": digest})
            own = {"Location": f"/v2/{name}/blobs/{rest}"}
            if self.command == "GET":
                end = len(state.blobs.get(rest, b"")) - 1
                return self._send(204 if end >= 0 else 404, b"", own | {"Range": f"0-{end}"})
            if self.command == "PATCH":  # what arrived of one that was cut counts, too
                if self.headers.get("Content-Range", "0").partition("-")[0] != str(
                    len(state.blobs.get(rest, b""))
                ):
                    return self._error(416)
                state.blobs[rest] = state.blobs.get(rest, b"") + body
                return self._send(202, b"", own)
            if self.command == "DELETE":
                return self._send(204, b"")
            place = f"/v2/{name}/blobs/uploads/{len(state.requests)}"
            return self._send(202, b"", {"Location": place})
        if rest not in state.blobs:
            return self._error(404)
        if rest in state.endless and self.command == "GET":
            return self._flood()
        return self._send(200, state.lies.get(rest, state.blobs[rest]), {"Docker-Content-Digest": rest})

    def _manifests(self, name: str, rest: str, query: dict[str, list[str]], body: bytes) -> None:
        state = self.registry
        if self.command == "PUT":
            if state.before_put is not None:
                state.before_put(rest)
            digest = sha256(body)
            document = json.loads(body)
            state.manifests[digest] = (self.headers.get("Content-Type", ""), body)
            if not rest.startswith("sha256:"):
                state.tags[rest] = digest
            subject = (document.get("subject") or {}).get("digest")
            headers = {"Docker-Content-Digest": digest, "Location": f"/v2/{name}/manifests/{digest}"}
            if subject and state.referrers:
                headers["OCI-Subject"] = subject
            return self._send(201, b"", headers)
        digest = state.tags.get(rest, rest)
        if digest not in state.manifests:
            return self._error(404)
        media_type, content = state.manifests[digest]
        content = state.lies.get(rest, state.lies.get(digest, content))
        return self._send(200, content, {"Content-Type": media_type, "Docker-Content-Digest": digest})

    def _referrers(self, name: str, rest: str, query: dict[str, list[str]], body: bytes) -> None:
        state = self.registry
        if not state.referrers:
            return self._error(404)
        entries = state.refers_to(rest) if state.listed is None else state.listed
        start = int(query.get("after", ["0"])[0])
        headers = {"Content-Type": INDEX}
        if start + state.page < len(entries):
            after = start + state.page
            headers["Link"] = f'<http://elsewhere.invalid/v2/x/referrers/y?after={after}>; rel="next"'
        page = entries[start : start + state.page]
        document = {"schemaVersion": 2, "mediaType": INDEX, "manifests": page}
        return self._send(200, json.dumps(document).encode(), headers)

    def _tags(self, name: str, rest: str, query: dict[str, list[str]], body: bytes) -> None:
        self._send(200, json.dumps({"name": name, "tags": sorted(self.registry.tags)}).encode())

    def _error(self, status: int) -> None:
        errors = {"errors": [{"code": "UNKNOWN", "message": "no such thing here"}]}
        self._send(status, json.dumps(errors).encode())

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _flood(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(1 << 40))
        self.end_headers()
        block = b"x" * (1 << 20)
        while True:
            self.wfile.write(block)
