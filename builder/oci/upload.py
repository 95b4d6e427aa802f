"""Blobs and manifests into a repository.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md#push

A small blob goes in one request. A large one goes as Docker sends all of them, PATCH and then PUT, because
the registry says how much of that arrived when it breaks, and the rest is sent from there. Where it does not,
the upload is begun anew: Docker's own registry forgets one that was cut (``BLOB_UPLOAD_INVALID``, seen with
2.8.2).
"""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import requests

from builder.documents import shown
from builder.errors import RegistryError
from builder.oci import answers
from builder.oci.spec import Place, Reference
from builder.oci.wire import BUSY, Wire

RESUMED = 8 << 20
"""Size in bytes above which two more requests per blob, which make an upload resumable, pay off."""

_PUSH = "pull,push"
_STORED = (201, 200)
"""200 answers the question whether the blob is there after all."""
_UNFIT = frozenset({400, 416})
"""Statuses with which registries refuse an upload whose parts do not make up the blob."""
_RANGE = re.compile(r"(?:bytes=)?0-(\d+)")


def mount_blob(wire: Wire, reference: str | Reference, digest: str, source: str | Reference) -> bool:
    """Have a blob of another repository of the same registry in this one, without its bytes on the way.

    False if that is impossible: another registry, one without mounts, or no access to the source. Raises
    RegistryError if the registry does not answer.
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
    upload = _Upload(wire, name, place, digest, file)
    attempt = upload.resumed if file.stat().st_size >= RESUMED else upload.whole

    def reached() -> int:
        return upload.reached

    response = wire.persist(attempt, place, done=_STORED, reached=reached)
    # The upload that was begun is gone, as after a restart of the registry, or its parts do not fit.
    if response.status_code == 404 or (response.status_code in _UNFIT and upload.reached):
        response.close()
        upload.forget()
        response = wire.persist(attempt, place, done=_STORED, reached=reached)
    if response.status_code not in _STORED:
        raise answers.refusal(response, name, place)


class _Upload:
    """One blob on its way. Each method is one try, and its answer the last that the try got."""

    def __init__(self, wire: Wire, name: Reference, place: Place, digest: str, file: Path) -> None:
        self._wire, self._name, self._place = wire, name, place
        self._digest, self._file = digest, file
        self._size = file.stat().st_size
        self._location: str | None = None
        self._tried = False
        self.reached = 0
        """Bytes that the registry said it has, at most."""

    def forget(self) -> None:
        """Begin anew the next time."""
        self._location = None

    def whole(self) -> requests.Response:
        """Begin an upload and send all of it in the request that ends it."""
        refused = self._begin()
        if refused is not None:
            return refused
        with self._file.open("rb") as content:
            return self._end(data=content, headers={"Content-Length": str(self._size)})

    def resumed(self) -> requests.Response:
        """Continue after the last byte that arrived, or start anew; finish once all bytes are there."""
        if self._tried:  # perhaps the try that broke had been taken, and only its answer was lost
            there = self._call("HEAD", f"blobs/{self._digest}")
            if there.status_code == 200:
                return there
        self._tried = True
        offset = self._arrived()
        if offset is None:
            offset = 0
            refused = self._begin()
            if refused is not None:
                return refused
        if offset < self._size:
            with self._file.open("rb") as content:
                content.seek(offset)
                answer = self._call(
                    "PATCH",
                    self._location or "",
                    data=content,
                    headers={
                        "Content-Type": "application/octet-stream",
                        "Content-Length": str(self._size - offset),
                        "Content-Range": f"{offset}-{self._size - 1}",
                    },
                )
            if answer.status_code != 202:
                return answer
            self._follow(answer)
        return self._end(headers={"Content-Length": "0"})

    def _begin(self) -> requests.Response | None:
        """The answer of a registry that begins none."""
        begun = self._call("POST", "blobs/uploads/")
        if begun.status_code != 202:
            return begun
        if "Location" not in begun.headers:
            raise answers.no_registry(self._name, self._place, "an upload that is begun nowhere")
        self._follow(begun)
        return None

    def _end(self, **options: Any) -> requests.Response:
        location = self._location or ""
        joint = "&" if urlsplit(location).query else "?"
        options["headers"] |= {"Content-Type": "application/octet-stream"}
        return self._call("PUT", f"{location}{joint}{urlencode({'digest': self._digest})}", **options)

    def _arrived(self) -> int | None:
        """How many bytes of an interrupted upload the registry has; None without an upload to continue."""
        if self._location is None:
            return None
        answer = self._call("GET", self._location)
        found = _RANGE.fullmatch(answer.headers.get("Range", ""))
        answer.close()
        # "0-0" is one byte by the specification, and none by Docker's registry.
        count = int(found[1]) + 1 if found is not None and found[1] != "0" else 0
        if answer.status_code != 204 or not 0 < count <= self._size:
            self._location = None
            return None
        self._follow(answer)
        self.reached = max(self.reached, count)
        return count

    def _follow(self, answer: requests.Response) -> None:
        location = answer.headers.get("Location", self._location or "")
        try:
            self._location = urljoin(answer.url, location)
        except ValueError:
            raise RegistryError(
                f"{self._place} names an upload that is no address: {shown(location)}"
            ) from None

    def _call(self, method: str, path: str, **options: Any) -> requests.Response:
        return self._wire.call(method, self._place, path, actions=_PUSH, **options)
