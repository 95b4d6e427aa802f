"""The client of container registries: manifests, blobs, tags and referrers by the OCI distribution API.

:mod:`.wire` sends the requests.
"""

import bisect
import io
import itertools
import math
import os
import random
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode, urljoin, urlsplit

import requests

from builder.core.digests import sha256_of
from builder.core.documents import MalformedError, parse_object, shown
from builder.core.errors import ImageMissingError, RegistryError
from builder.core.model import RegistryBase
from builder.sources.net import Client, Download
from builder.sources.oci import spec as oci
from builder.sources.oci import wire
from builder.sources.oci.spec import Manifest, Place, Reference
from builder.sources.oci.wire import BUSY, MIRROR_VARIABLE, Login, Wire, docker_login

_ACCEPT = {"Accept": ", ".join((*oci.INDEXES, *oci.MANIFESTS))}
_PUSH = "pull,push"
_LONG = 0.25
"""Seconds of a list of tags that is worth keeping."""
_KEPT = 10
"""For how many times as long as it took."""
_UNFIT = frozenset({400, 404, 416})
"""Statuses with which registries refuse an upload that they forgot, as after a restart, or hold a part of."""


@dataclass(frozen=True)
class _Tags:
    """The tags of a repository, sorted, and the moment until which they are not asked for again."""

    tags: Sequence[str]
    until: float


class Registry:
    """All registries as this user reaches them: mirrors, stored logins, tokens.

    A registry that did not answer is not asked again by the same object, or not for some time, so that a run
    over many cells does not wait for it many times.
    """

    def __init__(
        self,
        mirrors: Mapping[str, str] | None = None,
        *,
        client: Client | None = None,
        login: Callable[[str], Login | None] = docker_login,
        hint: str | None = None,
        remembers: float = math.inf,
        keeps_tags: bool = False,
    ) -> None:
        """``mirrors`` maps a registry's name to ``[scheme://]host[:port][/prefix]``.

        Args:
            remembers: For how many seconds one that did not answer is not asked again.
            keeps_tags: A list of tags that took long is used for ten times as long: for somebody who looks
                again and again. Whoever says yes to an image reads what lies beside it now.
        """
        client = client or Client(retries=2, connection_retries=1, read_timeout=10)
        self._wire = Wire(mirrors or {}, client, login, hint, remembers)
        self.artifacts: dict[tuple[str, str, str], Mapping[str, Any]] = {}
        """Entries of artifacts that were read by their own tags: :mod:`.artifacts`."""
        self._keeps_tags = keeps_tags
        self._tags: dict[str, _Tags] = {}
        self._listing = threading.Lock()

    @classmethod
    def from_user(cls, mirrors: Mapping[str, str] | None = None) -> Self:
        """``mirrors`` (from the command line) win over ``RTBUILD_REGISTRY_MIRROR``."""
        named = oci.parse_mirrors([os.environ.get(MIRROR_VARIABLE, "")])
        return cls(named | dict(mirrors or {}))

    @classmethod
    def to_write(cls, *, layers: bool = True) -> Self:
        """For repositories that are written to: no mirrors, and more patience than a look at a base needs.

        Without ``layers`` only documents are pushed, by somebody who asks again: a registry that accepts a
        connection and says nothing is told of within a minute, and asked again after some seconds.
        """
        if not layers:
            client = Client(retries=2, connection_retries=1, read_timeout=15)
            return cls(client=client, remembers=3, keeps_tags=True)
        return cls(
            client=Client(retries=4, connection_retries=3, read_timeout=120),
            hint="see that it is up and can be reached from here; the same command then goes on where it was",
        )

    def inspect(self, reference: str, platform: str) -> RegistryBase:
        """A base image by its manifest and config. Nothing of its layers is downloaded.

        Raises RegistryError if it is not there, not for this platform, or not as it should be.
        """
        name = oci.parse_reference(reference)
        manifest = self.manifest(name)
        if manifest.media_type in oci.INDEXES:
            digest = oci.choose_manifest(manifest.document, platform, reference, baseline=True)
            manifest = self.manifest(name.at(digest))
        try:
            return self._base(reference, manifest, platform)
        except (LookupError, TypeError, ValueError, AttributeError) as problem:
            raise RegistryError(
                f"{reference} has a manifest or config that is none: {shown(repr(problem))}",
                hint="whoever pushed it made it so: take another base",
            ) from problem

    def _base(self, reference: str, manifest: Manifest, platform: str) -> RegistryBase:
        (digest, _), *layers = oci.blobs_of(manifest.document)
        config = oci.parse_config(self.blob(reference, digest))
        made_for = shown(f"{config.get('os')}/{config.get('architecture')}")
        if made_for != platform:
            hint = "take another base"
            raise RegistryError(f"{reference} is made for {made_for}, not for {platform}", hint=hint)
        settings = config.get("config") or {}
        pairs = (text.partition("=") for text in settings.get("Env") or ())
        return RegistryBase(
            reference=reference,
            digest=manifest.digest,
            env=tuple(sorted((key, value) for key, _, value in pairs)),
            labels=tuple(sorted((settings.get("Labels") or {}).items())),
            size=sum(size for _, size in layers),
        )

    def at_mirror(self, base: RegistryBase) -> str | None:
        """The base by digest at the mirror of its registry; None if the registry has no mirror."""
        place = self._wire.place(base.reference)
        return f"{place.host}/{place.repository}@{base.digest}" if place.mirrored else None

    def may_ask(self, reference: str, *, beside: str) -> bool:
        """Whether an image ``beside`` may have its reader ask for a ``reference`` that it names.

        It may name Docker Hub, its own registry, and one that the user has a mirror of: no host that whoever
        pushed it chose. Raises UsageError for what is no reference.
        """
        place = self._wire.place(reference)
        own = self._wire.place(beside).name.host
        return place.mirrored or place.name.host in (oci.DOCKER_HUB, own)

    def address(self, reference: str) -> str:
        """The repository as another program finds it, that knows nothing of mirrors: ``host/repository``."""
        place = self._wire.place(reference)
        return f"{place.known_as}/{place.repository}"

    def request(
        self,
        method: str,
        reference: str | Reference,
        path: str,
        *,
        good: Container[int] = (200,),
        **options: Any,
    ) -> requests.Response:
        """Send a request below the reference's repository, with the login that the registry asks for.

        Raises RegistryError if nothing answers, or with another status than a ``good`` one.
        """
        place = self._wire.place(reference)
        response = self._wire.call(method, place, path, **options)
        if response.status_code not in good:
            raise wire.refusal(response, place)
        return response

    def manifest(self, reference: str | Reference) -> Manifest:
        """A manifest or index, its bytes checked against the digest. Raises as :meth:`inspect`."""
        place = self._wire.place(reference)
        name = place.name
        response = self.request("GET", name, f"manifests/{name.selector}", headers=_ACCEPT)
        content = wire.read(response, place)
        digest = sha256_of(content)
        expected = name.digest or response.headers.get("Docker-Content-Digest") or digest
        wire.refuse_altered(name, place, expected, digest)
        try:
            document = oci.parse_manifest(content)
        except MalformedError as problem:
            raise wire.no_registry(place, f"something that is no manifest: {problem}") from None
        sent_as = response.headers.get("Content-Type", "").partition(";")[0]
        media_type = document.get("mediaType") or sent_as
        # https://github.com/advisories/GHSA-77vh-xpmg-72qh
        twofold = "manifests" in document and document.keys() & {"config", "layers"}
        if twofold or (media_type != sent_as and sent_as in (*oci.INDEXES, *oci.MANIFESTS)):
            raise RegistryError(
                f"{name} is index and image at once, and each program takes it for another one",
                hint="whoever pushed it made it so: push another image",
            )
        if media_type not in (*oci.INDEXES, *oci.MANIFESTS):
            raise RegistryError(
                f"{name} has a manifest of type {media_type or 'unknown'}, which rtbuild does not read",
                hint="schema 1 images are too old to build on; push it again with a current Docker",
            )
        return Manifest(digest=digest, media_type=media_type, content=content)

    def tags(self, repository: str) -> frozenset[str]:
        """Every tag of a repository. A registry gives them in pages; one that goes in a circle is refused.

        Raises as :meth:`inspect`.
        """
        place = self._wire.place(repository)
        found: set[str] = set()
        last = ""
        while True:
            query = urlencode({"n": 1000} | ({"last": last} if last else {}))
            response = self.request("GET", repository, f"tags/list?{query}")
            more = "next" in response.links
            try:
                page = [str(tag) for tag in parse_object(wire.read(response, place))["tags"] or []]
            except (ValueError, LookupError, TypeError):
                raise wire.no_registry(place, "something that is no list of tags") from None
            if more and (not page or page[-1] == last or len(found) > 1_000_000):
                raise wire.no_registry(place, "pages of tags again and again")
            found.update(page)
            if not more:
                return frozenset(found)
            last = page[-1]

    def tags_of(self, reference: str | Reference, start: str) -> tuple[str, ...]:
        """The tags of a reference's repository that begin with ``start``, sorted. Raises as :meth:`tags`.

        With ``keeps_tags`` a list that took long is used for ten times as long, so that asking for each of
        10,000 images costs a tenth more than asking for one; a short one is asked for each time.
        """
        whole = _repository(self._wire.place(reference).name)
        with self._listing:
            kept = self._tags.get(whole)
            if kept is None or time.monotonic() >= kept.until:
                began = time.monotonic()
                try:
                    tags = sorted(self.tags(whole))
                except ImageMissingError:  # nothing in it has a tag
                    tags = []
                now = time.monotonic()
                kept = _Tags(tags, now + _KEPT * (now - began))
                if self._keeps_tags and now - began >= _LONG:
                    self._tags[whole] = kept
        first = bisect.bisect_left(kept.tags, start)
        return tuple(itertools.takewhile(lambda tag: tag.startswith(start), kept.tags[first:]))

    def exists(self, reference: str | Reference, digest: str, *, size: int | None = None) -> bool:
        """Whether the repository has this blob. Raises RegistryError if it is there in another ``size``."""
        response = self.request("HEAD", reference, f"blobs/{digest}", good=(200, 404))
        length = response.headers.get("Content-Length")
        if response.status_code == 200 and size is not None and length not in (None, str(size)):
            said = f"{digest} of {reference} has {shown(length or '', most=40)} bytes"
            raise RegistryError(
                f"{said}, and its manifest says {size}",
                hint="whoever pushed it made it so: push the image again",
            )
        return response.status_code == 200

    def digest_of(self, reference: str | Reference) -> str | None:
        """The digest that a tag points at; None if there is no such tag."""
        place = self._wire.place(reference)
        path = f"manifests/{place.name.selector}"
        response = self.request("HEAD", reference, path, good=(200, 404), headers=_ACCEPT)
        if response.status_code == 404:
            return None
        stated = response.headers.get("Docker-Content-Digest")
        if stated and not oci.is_digest(stated):
            raise wire.no_registry(place, f"the digest {shown(stated)}")
        return stated or self.manifest(reference).digest

    def fetch_blob(
        self,
        reference: str | Reference,
        digest: str,
        to: Path,
        *,
        size: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> Path:
        """One blob into a file, resumed and checked; see :class:`builder.sources.net.download.Download`."""
        place = self._wire.place(reference)
        path = f"blobs/{digest}"

        def addresses() -> list[str]:
            # Also obtains the token that the download then carries.
            self.request("HEAD", place.name.at(digest), path)
            return [self._wire.url(place, path)]

        return Download(
            client=self._wire.client,
            urls=addresses,
            what=f"{place.name.repository}@{digest}",
            sha256=digest.partition(":")[2],
            size=size,
            to=to,
            error=RegistryError,
            hint="try again; if the registry lost it for good, take another base",
            progress=progress,
            headers=lambda: self._wire.header(place),
            renew=lambda refused: self._wire.renew(refused, place),
        ).fetch()

    def push_blob(self, reference: str | Reference, digest: str, blob: Path | bytes) -> bool:
        """Upload a file or bytes as a blob unless the repository has it; True if bytes were sent."""
        place = self._wire.place(reference)

        def attempt() -> requests.Response:
            begun = self._wire.call("POST", place, "blobs/uploads/", actions=_PUSH)
            if begun.status_code != 202:
                return begun
            location = _upload_of(begun, place)
            if not location:
                raise wire.no_registry(place, "an upload that is begun nowhere")
            whole = f"{location}{'&' if urlsplit(location).query else '?'}{urlencode({'digest': digest})}"
            size = len(blob) if isinstance(blob, bytes) else blob.stat().st_size
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
            with io.BytesIO(blob) if isinstance(blob, bytes) else blob.open("rb") as content:
                return self._wire.call("PUT", place, whole, actions=_PUSH, data=content, headers=headers)

        if self.exists(reference, digest):
            return False
        response = self._wire.persist(attempt, place)
        if response.status_code in _UNFIT:
            response.close()
            response = self._wire.persist(attempt, place)
        if response.status_code != 201:
            raise wire.refusal(response, place)
        return True

    def mount_blob(self, reference: str | Reference, digest: str, source: str | Reference) -> bool:
        """Have a blob of another repository of the same registry in this one, without its bytes on the way.

        False if that is impossible, and it must be pushed: another registry, one without mounts, or no access
        to the source. Raises RegistryError if the registry does not answer.
        """
        place, other = self._wire.place(reference), self._wire.place(source)
        if (place.host, place.scheme) != (other.host, other.scheme):
            return False
        path = f"blobs/uploads/?{urlencode({'mount': digest, 'from': other.repository})}"
        also = other.repository if other.repository != place.repository else None
        response = self._wire.persist(
            lambda: self._wire.call("POST", place, path, actions=_PUSH, also=also), place
        )
        if response.status_code == 202:  # no such blob there, or no mounting: an upload was begun instead
            if begun := _upload_of(response, place):
                self._wire.call("DELETE", place, begun, actions=_PUSH).close()
        elif response.status_code >= 500 or response.status_code in BUSY:
            raise wire.refusal(response, place)
        # If it is writing that the registry refuses, the upload that comes next is told so, and why.
        response.close()
        return response.status_code == 201

    def put_manifest(self, reference: str | Reference, content: bytes, media_type: str) -> str:
        """Store a manifest under the reference's tag or digest; its digest.

        Docker's registry 2.8 refuses it now and then while another client puts a blob of it (HTTP 400,
        "provided digest did not match uploaded content"), and takes it a moment later: it is sent
        three times at most. Raises RegistryError.
        """
        place, digest = self._wire.place(reference), sha256_of(content)
        path, headers = f"manifests/{place.name.selector}", {"Content-Type": media_type}

        def put(*good: int) -> requests.Response:
            return self.request(
                "PUT", reference, path, good=good, actions=_PUSH, data=content, headers=headers
            )

        pauses = [0.2, 0.6]
        while (answer := put(201, 400) if pauses else put(201)).status_code != 201:
            answer.close()
            time.sleep(pauses.pop(0) * (1 + random.random()))  # noqa: S311 - only to get out of step
        if place.name.digest is None:
            self._tags.pop(_repository(place.name), None)
        stored = answer.headers.get("Docker-Content-Digest", digest)
        wire.refuse_altered(place.name, place, digest, stored)
        return digest

    def clock_ahead(self, reference: str | Reference) -> float | None:
        """Seconds by which this machine's clock is ahead of the registry's, by its last answer."""
        return self._wire.ahead.get(self._wire.place(reference).host)

    def login_at(self, reference: str | Reference) -> str | None:
        """The name of the stored login for a reference's registry; None without one."""
        found = self._wire.login(self._wire.place(reference).known_as)
        return found.username if found else None

    def blob(self, reference: str | Reference, digest: str) -> bytes:
        """A small blob, such as a config, checked against its digest."""
        place = self._wire.place(reference)
        content = wire.read(self.request("GET", reference, f"blobs/{digest}"), place)
        wire.refuse_altered(f"{digest} of {place.name}", place, digest, sha256_of(content))
        return content


def _repository(name: Reference) -> str:
    return f"{name.host}/{name.repository}"


def _upload_of(begun: requests.Response, place: Place) -> str:
    """The address of an upload that was begun; empty if the registry gives none."""
    location = begun.headers.get("Location", "")
    try:
        return location and urljoin(begun.url, location)
    except ValueError:
        raise RegistryError(f"{place} names an upload that is no address: {shown(location)}") from None
