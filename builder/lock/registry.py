"""Container registries: what a base image is, without pulling it; blobs and manifests in both directions.

The only module that talks to a registry: the OCI distribution API over ``requests``.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urljoin, urlsplit

import requests

from builder.errors import RegistryError
from builder.lock import download, oci
from builder.lock import registry_answers as answers
from builder.lock.http import Client, explain
from builder.lock.oci import Place, Reference, is_loopback, parse_mirrors, parse_reference, place_of
from builder.lock.registry_auth import Challenge, Login, answer, docker_login
from builder.model import RegistryBase

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

MIRROR_VARIABLE = "RTBUILD_REGISTRY_MIRROR"
_TAGS_A_PAGE = 1000


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A manifest or index as its bytes, and their digest."""

    digest: str
    media_type: str
    content: bytes

    @property
    def document(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.content)
        return loaded


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
    ) -> None:
        """``mirrors`` maps a registry's name to ``[scheme://]host[:port][/prefix]``."""
        self._mirrors = dict(mirrors or {})
        self._client = client or Client(retries=2, connection_retries=1, read_timeout=10)
        self._login = login
        self._guard = threading.Lock()
        self._authorizations: dict[tuple[str, str], str] = {}
        self._schemes: dict[str, str] = {}
        self._silent: dict[str, RegistryError] = {}

    @classmethod
    def from_user(cls, mirrors: Mapping[str, str] | None = None) -> Registry:
        """``mirrors`` (from the command line) win over ``RTBUILD_REGISTRY_MIRROR``."""
        named = parse_mirrors([os.environ.get(MIRROR_VARIABLE, "")])
        return cls(named | dict(mirrors or {}))

    def inspect(self, reference: str, platform: str) -> RegistryBase:
        """A base image by its manifest and config. Nothing of its layers is downloaded.

        Raises:
            RegistryError: it is not there, not for this platform, or its registry did not answer properly.
        """
        name = parse_reference(reference)
        manifest = self.manifest(name)
        if manifest.media_type in oci.INDEXES:
            manifest = self.manifest(name.at(oci.choose(manifest.document, platform, reference)))
        document = manifest.document
        config = json.loads(self._blob(name, document["config"]["digest"]))
        made_for = f"{config.get('os')}/{config.get('architecture')}"
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
            size=sum(layer["size"] for layer in document["layers"]),
        )

    def at_mirror(self, base: RegistryBase) -> str | None:
        """The base by digest at the mirror of its registry; None where it has none."""
        place = place_of(parse_reference(base.reference), self._mirrors)
        return f"{place.host}/{place.repository}@{base.digest}" if place.mirror_of else None

    def manifest(self, reference: str | Reference) -> Manifest:
        """A manifest or index, its bytes checked against the digest.

        Raises:
            RegistryError: as :meth:`inspect`.
        """
        name = _reference(reference)
        place = place_of(name, self._mirrors)
        accept = ", ".join((*oci.INDEXES, *oci.MANIFESTS))
        response = self._call("GET", place, f"manifests/{name.selector}", headers={"Accept": accept})
        if response.status_code != 200:
            raise answers.refusal(response, name, place)
        content = answers.read(response, name, place)
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        expected = name.digest or response.headers.get("Docker-Content-Digest") or digest
        if expected != digest:
            raise answers.altered(f"{name}", place, expected, digest)
        try:
            stated = json.loads(content).get("mediaType")
        except (ValueError, AttributeError):
            raise answers.no_registry(name, place, "something that is no manifest") from None
        media_type = stated or response.headers.get("Content-Type", "").partition(";")[0]
        if media_type not in (*oci.INDEXES, *oci.MANIFESTS):
            raise RegistryError(
                f"{name} has a manifest of type {media_type or 'unknown'}, which rtbuild does not read",
                hint="schema 1 images are too old to build on; push it again with a current Docker",
            )
        return Manifest(digest=digest, media_type=media_type, content=content)

    def tags(self, repository: str) -> frozenset[str]:
        """Every tag of a repository. A registry gives them in pages; one that goes in a circle is refused.

        Raises:
            RegistryError: as :meth:`inspect`.
        """
        name = parse_reference(repository)
        place = place_of(name, self._mirrors)
        found: set[str] = set()
        last = ""
        while True:
            query = urlencode({"n": _TAGS_A_PAGE} | ({"last": last} if last else {}))
            response = self._call("GET", place, f"tags/list?{query}")
            if response.status_code != 200:
                raise answers.refusal(response, name, place)
            more = "next" in response.links
            try:
                page: list[str] = json.loads(answers.read(response, name, place))["tags"] or []
            except (ValueError, LookupError, TypeError):
                raise answers.no_registry(name, place, "something that is no list of tags") from None
            if more and (not page or page[-1] == last):
                raise answers.no_registry(name, place, "the same page of tags again and again")
            found.update(page)
            if not more:
                return frozenset(found)
            last = page[-1]

    def exists(self, reference: str | Reference, digest: str) -> bool:
        """Whether the reference's repository has this blob."""
        name = _reference(reference)
        place = place_of(name, self._mirrors)
        response = self._call("HEAD", place, f"blobs/{digest}")
        if response.status_code not in (200, 404):
            raise answers.refusal(response, name, place)
        return response.status_code == 200

    def digest_of(self, reference: str | Reference) -> str | None:
        """The digest that a tag points at; None where there is no such tag."""
        name = _reference(reference)
        place = place_of(name, self._mirrors)
        accept = ", ".join((*oci.INDEXES, *oci.MANIFESTS))
        response = self._call("HEAD", place, f"manifests/{name.selector}", headers={"Accept": accept})
        if response.status_code == 404:
            return None
        if response.status_code != 200:
            raise answers.refusal(response, name, place)
        return response.headers.get("Docker-Content-Digest") or self.manifest(name).digest

    def fetch_blob(
        self,
        reference: str | Reference,
        digest: str,
        to: Path,
        *,
        size: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> Path:
        """One blob into a file, resumed and checked; see :func:`builder.lock.download.fetch`."""
        name = _reference(reference)
        place = place_of(name, self._mirrors)
        path = f"blobs/{digest}"

        def addresses() -> list[str]:
            # Also obtains the token that the download then carries.
            response = self._call("HEAD", place, path)
            if response.status_code != 200:
                raise answers.refusal(response, name.at(digest), place)
            return [self._url(place, path)]

        def headers(_url: str) -> dict[str, str]:
            return self._header(place, "pull")

        return download.fetch(
            self._client,
            addresses,
            download.Content(what=f"{name.repository}@{digest}", sha256=digest.partition(":")[2], size=size),
            to,
            error=RegistryError,
            hint="try again; if the registry lost it for good, take another base",
            progress=progress,
            headers=headers,
        )

    def push_blob(self, reference: str | Reference, digest: str, file: Path) -> bool:
        """Upload a file as a blob, unless the repository has it; True where bytes were sent."""
        name = _reference(reference)
        if self.exists(name, digest):
            return False
        place = place_of(name, self._mirrors)
        begun = self._call("POST", place, "blobs/uploads/", actions="pull,push")
        if begun.status_code != 202:
            raise answers.refusal(begun, name, place)
        location = urljoin(begun.url, begun.headers["Location"])
        joint = "&" if urlsplit(location).query else "?"
        with file.open("rb") as content:
            done = self._send(
                "PUT",
                place,
                f"{location}{joint}{urlencode({'digest': digest})}",
                data=content,
                headers=self._header(place, "pull,push")
                | {"Content-Type": "application/octet-stream", "Content-Length": str(file.stat().st_size)},
            )
        if done.status_code != 201:
            raise answers.refusal(done, name, place)
        return True

    def put_manifest(self, reference: str | Reference, content: bytes, media_type: str) -> str:
        """Store a manifest under the reference's tag or digest; its digest."""
        name = _reference(reference)
        place = place_of(name, self._mirrors)
        response = self._call(
            "PUT",
            place,
            f"manifests/{name.selector}",
            actions="pull,push",
            data=content,
            headers={"Content-Type": media_type},
        )
        if response.status_code != 201:
            raise answers.refusal(response, name, place)
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        stored = response.headers.get("Docker-Content-Digest", digest)
        if stored != digest:
            raise answers.altered(f"{name}", place, digest, stored)
        return digest

    def _blob(self, name: Reference, digest: str) -> bytes:
        """A small blob, checked."""
        place = place_of(name, self._mirrors)
        response = self._call("GET", place, f"blobs/{digest}")
        if response.status_code != 200:
            raise answers.refusal(response, name, place)
        content = answers.read(response, name, place)
        found = "sha256:" + hashlib.sha256(content).hexdigest()
        if found != digest:
            raise answers.altered(f"the config of {name}", place, digest, found)
        return content

    def _call(
        self, method: str, place: Place, path: str, *, actions: str = "pull", **options: Any
    ) -> requests.Response:
        """One request to a repository, answering the registry's challenge where it sets one."""
        url = self._url(place, path)
        given = options.pop("headers", {})
        options.setdefault("stream", method == "GET")
        response = self._send(method, place, url, headers=given | self._header(place, actions), **options)
        if response.status_code != 401:
            return response
        challenge = Challenge.parse(response.headers.get("WWW-Authenticate", ""))
        if challenge.scheme not in ("basic", "bearer"):
            return response
        response.close()
        scope = f"repository:{place.repository}:{actions}"
        login_host = oci.DOCKER_HUB if place.host.endswith(oci.DOCKER_HUB) else place.host
        found = answer(self._client, challenge, scope, self._login(login_host), str(place))
        if found is None:
            return response
        with self._guard:
            self._authorizations[place.host, scope] = found
        return self._send(method, place, url, headers=given | {"Authorization": found}, **options)

    def _header(self, place: Place, actions: str) -> dict[str, str]:
        with self._guard:
            known = self._authorizations.get((place.host, f"repository:{place.repository}:{actions}"))
        return {"Authorization": known} if known else {}

    def _send(self, method: str, place: Place, url: str, **options: Any) -> requests.Response:
        silent = self._silent.get(place.host)
        if silent is not None:
            raise RegistryError(silent.message, hint=silent.hint)
        try:
            return self._client.request(method, url, allow_redirects=method in ("GET", "HEAD"), **options)
        except requests.RequestException as problem:
            raise self._unreachable(place, problem) from problem

    def _unreachable(self, place: Place, problem: requests.RequestException) -> RegistryError:
        registry = place.mirror_of or place.host
        registry = oci.DOCKER_HUB if registry.endswith(oci.DOCKER_HUB) else registry
        error = RegistryError(
            f"registry {place} did not answer: {explain(problem)}",
            hint=f"if this network has a mirror: --registry-mirror {registry}=HOST[:PORT][/PREFIX], or "
            f"{MIRROR_VARIABLE}; a base of rootfs:debian/<suite> needs no registry",
        )
        self._silent[place.host] = error
        return error

    def _url(self, place: Place, path: str) -> str:
        return f"{self._scheme(place)}://{place.host}/v2/{place.repository}/{path}"

    def _scheme(self, place: Place) -> str:
        """https, except for a registry on this machine that speaks plain http, as Docker has it."""
        if place.scheme is not None:
            return place.scheme
        if not is_loopback(place.host):
            return "https"
        with self._guard:
            known = self._schemes.get(place.host)
        if known is None:
            known = self._schemes[place.host] = self._probe_scheme(place)
        return known

    def _probe_scheme(self, place: Place) -> str:
        silent = self._silent.get(place.host)
        if silent is not None:
            raise RegistryError(silent.message, hint=silent.hint)
        try:
            response = self._client.get(f"http://{place.host}/v2/", allow_redirects=False)
        except requests.exceptions.ConnectTimeout as problem:
            raise self._unreachable(place, problem) from problem
        except requests.ConnectionError as problem:
            if "refused" in explain(problem):
                raise self._unreachable(place, problem) from problem
            return "https"
        # Go's TLS listener answers plain http with 400 and a sentence.
        return "https" if response.status_code == 400 else "http"


def _reference(reference: str | Reference) -> Reference:
    return reference if isinstance(reference, Reference) else parse_reference(reference)
