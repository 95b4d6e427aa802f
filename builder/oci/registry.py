"""The client of container registries: manifests, blobs, tags and referrers by the OCI distribution API.

:mod:`.wire` sends the requests.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode, urljoin, urlsplit

import requests

from builder.digests import sha256_of
from builder.documents import MalformedError, parse_object, shown
from builder.errors import RegistryError
from builder.model import RegistryBase
from builder.net import download
from builder.net.http import Client
from builder.oci import spec as oci
from builder.oci import wire
from builder.oci.auth import Login, docker_login
from builder.oci.spec import Place, Reference, blobs_of, parse_config, parse_manifest, parse_mirrors
from builder.oci.wire import BUSY, MIRROR_VARIABLE, Wire

_ACCEPT = {"Accept": ", ".join((*oci.INDEXES, *oci.MANIFESTS))}
_TAGS_A_PAGE = 1000
_MOST_TAGS = 1_000_000
_PUSH = "pull,push"
_UNFIT = frozenset({400, 404, 416})
"""Statuses with which registries refuse an upload that they forgot, as after a restart, or hold a part of."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A manifest or index as its bytes, and their digest."""

    digest: str
    media_type: str
    content: bytes

    @property
    def document(self) -> dict[str, Any]:
        return parse_manifest(self.content)


class Registry:
    """All registries as this user reaches them: mirrors, stored logins, tokens.

    A registry that did not answer is not asked again by the same object, so that a run over many cells does
    not wait for it many times.
    """

    def __init__(
        self,
        mirrors: Mapping[str, str] | None = None,
        *,
        client: Client | None = None,
        login: Callable[[str], Login | None] = docker_login,
        hint: str | None = None,
    ) -> None:
        """``mirrors`` maps a registry's name to ``[scheme://]host[:port][/prefix]``."""
        client = client or Client(retries=2, connection_retries=1, read_timeout=10)
        self._wire = Wire(mirrors or {}, client, login, hint)

    @classmethod
    def from_user(cls, mirrors: Mapping[str, str] | None = None) -> Self:
        """``mirrors`` (from the command line) win over ``RTBUILD_REGISTRY_MIRROR``."""
        named = parse_mirrors([os.environ.get(MIRROR_VARIABLE, "")])
        return cls(named | dict(mirrors or {}))

    @classmethod
    def to_write(cls) -> Self:
        """For repositories that are written to: no mirrors, and more patience than a look at a base needs."""
        return cls(
            client=Client(retries=4, connection_retries=3, read_timeout=120),
            hint="see that it is up and can be reached from here; the same command then goes on where it was",
        )

    def inspect(self, reference: str, platform: str) -> RegistryBase:
        """A base image by its manifest and config. Nothing of its layers is downloaded.

        Raises RegistryError if it is not there, not for this platform, or not as it should be.
        """
        name, _ = self._wire.place(reference)
        manifest = self.manifest(name)
        if manifest.media_type in oci.INDEXES:
            manifest = self.manifest(
                name.at(oci.choose(manifest.document, platform, reference, baseline=True))
            )
        try:
            return self._base(reference, name, manifest, platform)
        except (LookupError, TypeError, ValueError, AttributeError) as problem:
            raise RegistryError(
                f"{reference} has a manifest or config that is none: {shown(repr(problem))}",
                hint="whoever pushed it made it so: take another base",
            ) from problem

    def _base(self, reference: str, name: Reference, manifest: Manifest, platform: str) -> RegistryBase:
        (digest, _), *layers = blobs_of(manifest.document)
        config = parse_config(self.blob(name, digest))
        made_for = shown(f"{config.get('os')}/{config.get('architecture')}")
        if made_for != platform:
            raise RegistryError(
                f"{reference} is made for {made_for}, not for {platform}", hint="take another base"
            )
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
        _, place = self._wire.place(base.reference)
        return f"{place.host}/{place.repository}@{base.digest}" if place.mirror_of else None

    def address(self, reference: str) -> str:
        """The repository as another program finds it, that knows nothing of mirrors: ``host/repository``."""
        name, place = self._wire.place(reference)
        return f"{(place if place.mirror_of else name).host}/{place.repository}"

    def manifest(self, reference: str | Reference) -> Manifest:
        """A manifest or index, its bytes checked against the digest.

        Raises as :meth:`inspect`.
        """
        name, place = self._wire.place(reference)
        response = self._ask("GET", name, place, f"manifests/{name.selector}", headers=_ACCEPT)
        content = wire.read(response, name, place)
        digest = sha256_of(content)
        expected = name.digest or response.headers.get("Docker-Content-Digest") or digest
        if expected != digest:
            raise wire.altered(f"{name}", place, expected, digest)
        try:
            document = parse_manifest(content)
            stated = document.get("mediaType")
        except MalformedError as problem:
            raise wire.no_registry(name, place, f"something that is no manifest: {problem}") from None
        sent_as = response.headers.get("Content-Type", "").partition(";")[0]
        media_type = stated or sent_as
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
        name, place = self._wire.place(repository)
        found: set[str] = set()
        last = ""
        while True:
            query = urlencode({"n": _TAGS_A_PAGE} | ({"last": last} if last else {}))
            response = self._ask("GET", name, place, f"tags/list?{query}")
            more = "next" in response.links
            try:
                page = [str(tag) for tag in parse_object(wire.read(response, name, place))["tags"] or []]
            except (ValueError, LookupError, TypeError):
                raise wire.no_registry(name, place, "something that is no list of tags") from None
            if more and (not page or page[-1] == last or len(found) > _MOST_TAGS):
                raise wire.no_registry(name, place, "pages of tags again and again")
            found.update(page)
            if not more:
                return frozenset(found)
            last = page[-1]

    def exists(self, reference: str | Reference, digest: str) -> bool:
        """Whether the reference's repository has this blob."""
        name, place = self._wire.place(reference)
        return self._ask("HEAD", name, place, f"blobs/{digest}", good=(200, 404)).status_code == 200

    def digest_of(self, reference: str | Reference) -> str | None:
        """The digest that a tag points at; None if there is no such tag."""
        name, place = self._wire.place(reference)
        path = f"manifests/{name.selector}"
        response = self._ask("HEAD", name, place, path, good=(200, 404), headers=_ACCEPT)
        if response.status_code == 404:
            return None
        stated = response.headers.get("Docker-Content-Digest")
        if stated and not oci.is_digest(stated):
            raise wire.no_registry(name, place, f"the digest {shown(stated)}")
        return stated or self.manifest(name).digest

    def fetch_blob(
        self,
        reference: str | Reference,
        digest: str,
        to: Path,
        *,
        size: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> Path:
        """One blob into a file, resumed and checked; see :class:`builder.net.download.Download`."""
        name, place = self._wire.place(reference)
        path = f"blobs/{digest}"

        def addresses() -> list[str]:
            # Also obtains the token that the download then carries.
            self._ask("HEAD", name.at(digest), place, path)
            return [self._wire.url(place, path)]

        return download.Download(
            client=self._wire.client,
            urls=addresses,
            what=f"{name.repository}@{digest}",
            sha256=digest.partition(":")[2],
            size=size,
            to=to,
            error=RegistryError,
            hint="try again; if the registry lost it for good, take another base",
            progress=progress,
            headers=lambda: self._wire.header(place, "pull"),
            renew=lambda refused: self._wire.renew(refused, place, "pull"),
        ).fetch()

    def push_blob(self, reference: str | Reference, digest: str, file: Path) -> bool:
        """Upload a file as a blob unless the repository has it; True if bytes were sent."""
        name, place = self._wire.place(reference)

        def attempt() -> requests.Response:
            begun = self._wire.call("POST", place, "blobs/uploads/", actions=_PUSH)
            if begun.status_code != 202:
                return begun
            location = _upload_of(begun, place)
            if not location:
                raise wire.no_registry(name, place, "an upload that is begun nowhere")
            whole = f"{location}{'&' if urlsplit(location).query else '?'}{urlencode({'digest': digest})}"
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(file.stat().st_size)}
            with file.open("rb") as content:
                return self._wire.call("PUT", place, whole, actions=_PUSH, data=content, headers=headers)

        if self.exists(reference, digest):
            return False
        response = self._wire.persist(attempt, place)
        if response.status_code in _UNFIT:
            response.close()
            response = self._wire.persist(attempt, place)
        if response.status_code != 201:
            raise wire.refusal(response, name, place)
        return True

    def mount_blob(self, reference: str | Reference, digest: str, source: str | Reference) -> bool:
        """Have a blob of another repository of the same registry in this one, without its bytes on the way.

        False if that is impossible, and it must be pushed: another registry, one without mounts, or no access
        to the source. Raises RegistryError if the registry does not answer.
        """
        name, place = self._wire.place(reference)
        _, other = self._wire.place(source)
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
            raise wire.refusal(response, name, place)
        # If it is writing that the registry refuses, the upload that comes next is told so, and why.
        response.close()
        return response.status_code == 201

    def put_manifest(self, reference: str | Reference, content: bytes, media_type: str) -> str:
        """Store a manifest under the reference's tag or digest; its digest."""
        name, place = self._wire.place(reference)
        path, headers = f"manifests/{name.selector}", {"Content-Type": media_type}
        answer = self._ask(
            "PUT", name, place, path, good=(201,), actions=_PUSH, data=content, headers=headers
        )
        digest = sha256_of(content)
        stored = answer.headers.get("Docker-Content-Digest", digest)
        if stored != digest:
            raise wire.altered(f"{name}", place, digest, stored)
        return digest

    def request(
        self, method: str, reference: str | Reference, path: str, *, actions: str = "pull", **options: Any
    ) -> requests.Response:
        """Send a request that has no method here, such as ``referrers/sha256:…`` below a repository.

        Answers the registry's challenge and returns any status. Raises RegistryError without an answer.
        """
        _, place = self._wire.place(reference)
        return self._wire.call(method, place, path, actions=actions, **options)

    def clock_ahead(self, reference: str | Reference) -> float | None:
        """Seconds by which this machine's clock is ahead of the registry's, by its last answer."""
        return self._wire.ahead(self._wire.place(reference)[1])

    def blob(self, reference: str | Reference, digest: str) -> bytes:
        """A small blob, such as a config, checked against its digest."""
        name, place = self._wire.place(reference)
        content = wire.read(self._ask("GET", name, place, f"blobs/{digest}"), name, place)
        found = sha256_of(content)
        if found != digest:
            raise wire.altered(f"{digest} of {name}", place, digest, found)
        return content

    def _ask(
        self,
        method: str,
        name: Reference,
        place: Place,
        path: str,
        *,
        good: tuple[int, ...] = (200,),
        **options: Any,
    ) -> requests.Response:
        """The answer with a ``good`` status; any other is raised as RegistryError."""
        response = self._wire.call(method, place, path, **options)
        if response.status_code not in good:
            raise wire.refusal(response, name, place)
        return response


def _upload_of(begun: requests.Response, place: Place) -> str:
    """The address of an upload that was begun; empty if the registry gives none."""
    location = begun.headers.get("Location", "")
    try:
        return location and urljoin(begun.url, location)
    except ValueError:
        raise RegistryError(f"{place} names an upload that is no address: {shown(location)}") from None
