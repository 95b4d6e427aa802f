"""Images in the engine's store: their content and their names."""

import contextlib
import io
import re
import tarfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import requests

from builder.core import resources
from builder.core.digests import content_of
from builder.core.errors import CancelledError, CellError, ImageMissingError, RegistryError
from builder.sources.oci import CELL_LABEL, INPUTS_LABEL

_LARGEST_FILE = 16 << 20
_REFUSED = re.compile("unauthorized|denied|forbidden|no basic auth|x509", re.IGNORECASE)
"""Refusals, which trying again does not change."""
_MISSING = re.compile("not found|manifest unknown|name unknown", re.IGNORECASE)
_FULL = re.compile("no space left", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class StoredImage:
    """An image in the engine's store."""

    reference: str
    digest: str
    """The engine's name for it: with the containerd image store the manifest digest, else the image id."""
    content: str
    """Digest over the ordered layer diff ids and the config without its dates; see :func:`content_digest`."""
    size: int
    """Unpacked, in bytes, as the engine's history counts it."""
    labels: tuple[tuple[str, str], ...]

    def label(self, name: str) -> str | None:
        return dict(self.labels).get(name)


def content_digest(document: Mapping[str, Any]) -> str:
    """:func:`builder.core.digests.content_of` of what ``docker image inspect`` gives."""
    parts = (document.get("Os"), document.get("Architecture"), document.get("Variant"))
    return content_of(
        platform="/".join(part for part in parts if part),
        layers=(document.get("RootFS") or {}).get("Layers") or [],
        config=document.get("Config") or {},
    )


class ImageStore:
    """The images of an engine. Raises CellError with the engine's words if it refuses or does not answer."""

    def __init__(self, client: docker.DockerClient) -> None:
        self._client = client
        self.memory = resources.cache() / "received"
        """The folder with the manifests of images that engines were given."""

    def inspect(self, reference: str) -> StoredImage | None:
        """The image of that name or digest; None if the store has none."""
        with said_by_engine(f"inspect {reference}"):
            try:
                document = self._client.images.get(reference).attrs
            except docker.errors.ImageNotFound:
                return None
            try:
                history = self._client.api.history(reference) or ()  # type: ignore[no-untyped-call]
            except docker.errors.APIError:
                # Engine 26.1 with the containerd store asks for the snapshot of every layer, and fails if one
                # was removed meanwhile, which a start of the image would unpack again.
                history = ()
        config = document.get("Config") or {}
        return StoredImage(
            reference=reference,
            digest=document["Id"],
            content=content_digest(document),
            size=sum(int(entry["Size"]) for entry in history) or int(document.get("Size", 0)),
            labels=tuple(sorted((config.get("Labels") or {}).items())),
        )

    def built(self) -> dict[str, tuple[str, ...]]:
        """All images that rtbuild built, by the inputs of their recipes: their names, and then their ids."""
        found: dict[str, list[tuple[bool, str]]] = {}
        for entry in self._listed({"label": INPUTS_LABEL}):
            named = found.setdefault((entry.get("Labels") or {}).get(INPUTS_LABEL, ""), [])
            named += [*((False, name) for name in _names(entry)), (True, entry["Id"])]
        return {given: tuple(name for _, name in sorted(named)) for given, named in found.items()}

    def cells(self) -> dict[str, str]:
        """The cell of each named image that rtbuild built, by the image's name."""
        found = self._listed({"label": CELL_LABEL})
        return {name: (one.get("Labels") or {}).get(CELL_LABEL, "") for one in found for name in _names(one)}

    def named(self, pattern: str) -> list[str]:
        """The names that fit a pattern of ``docker images``, such as ``rtbuild/*``."""
        return [name for one in self._listed({"reference": pattern}) for name in _names(one)]

    def _listed(self, filters: dict[str, str]) -> list[dict[str, Any]]:
        """The engine's rows of some images.

        Engine 26.1 with the containerd store answers 404 if another process removes an image meanwhile.
        """
        with said_by_engine("list images"):
            pauses = [2.0, 0.5, 0.1]
            while True:
                try:
                    return list(self._client.api.images(filters=filters))
                except docker.errors.NotFound:
                    if not pauses:
                        raise
                    time.sleep(pauses.pop())

    def find(self, inputs: str, names: Sequence[str]) -> StoredImage | None:
        """The first of these images whose label says that it was built from ``inputs``."""
        for name in names:
            image = self.inspect(name)
            if image is not None and image.label(INPUTS_LABEL) == inputs:
                return image
        return None

    def tag(self, reference: str, new: str) -> None:
        """Give the image one more name, with a tag."""
        repository, _, name = new.rpartition(":")
        with said_by_engine(f"tag {reference} as {new}"):
            self._client.api.tag(reference, repository, name)

    def remove(self, reference: str) -> bool:
        """Remove a name, and the image with its last one; False if there was none."""
        with said_by_engine(f"remove {reference}"):
            try:
                self._client.api.remove_image(reference)
            except docker.errors.ImageNotFound:
                return False
        return True

    def pull(
        self, reference: str, *, progress: Callable[[str, int, int], None], cancel: threading.Event
    ) -> None:
        """Pull ``repository@sha256:…``; layers that the engine has are not sent again.

        The login is what ``docker login`` stored on this machine, wherever the engine is. ``progress`` is
        told a layer's id, and how many bytes of how many have come. Raises ImageMissingError if the
        repository has no such image, RegistryError if it refuses or stays away through three tries, and
        CancelledError.
        """
        repository, _, digest = reference.rpartition("@")
        error = ""
        for _ in range(3):
            with said_by_engine(f"pull {reference}"):
                try:
                    lines = self._client.api.pull(repository, tag=digest, stream=True, decode=True)
                    error = _pulled(lines, progress, cancel)
                except docker.errors.APIError as refusal:  # before the first layer it is a status, not a line
                    error = str(refusal.explanation or refusal).strip()
            if not error:
                return
            if any(pattern.search(error) for pattern in (_REFUSED, _MISSING, _FULL)):
                break
        kind = ImageMissingError if _MISSING.search(error) else RegistryError
        raise kind(f"the engine could not pull {reference}: {error}", hint=_pull_hint(error, repository))

    def save(self, reference: str, target: Path) -> None:
        """Write the image to a file, as ``docker save`` does."""
        with said_by_engine(f"save {reference}"), target.open("wb") as file:
            for chunk in self._client.api.get_image(reference):
                file.write(chunk)

    def read_file(self, reference: str, path: str) -> bytes | None:
        """One file out of an image, of a container that is never started; None if there is no such file, or a
        link of that name, which the engine's API does not follow.

        Raises CellError also if it is larger than 16 MiB.
        """
        api = self._client.api
        with said_by_engine(f"read {path} in {reference}"):
            container = api.create_container(reference, command=["-"], network_disabled=True)["Id"]
            try:
                chunks, _ = api.get_archive(container, path)
                archive = b""
                with contextlib.closing(chunks):  # the engine removes no container that it is copying out of
                    for chunk in chunks:
                        archive += chunk
                        if len(archive) > _LARGEST_FILE:
                            raise CellError(f"{path} in {reference} is larger than {_LARGEST_FILE} bytes")
            except docker.errors.NotFound:
                return None
            finally:
                api.remove_container(container, force=True, v=True)
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            member = tar.next()
            file = tar.extractfile(member) if member is not None and member.isreg() else None
            return file.read() if file is not None else None


def _pulled(
    lines: Iterable[dict[str, Any]], progress: Callable[[str, int, int], None], cancel: threading.Event
) -> str:
    """Read the engine's lines to the end, or to the one that says why it failed: its words."""
    for line in lines:
        if cancel.is_set():
            raise CancelledError("the pull was cancelled")
        detail = line.get("progressDetail") or {}
        if line.get("id") and detail.get("total"):
            progress(str(line["id"]), int(detail.get("current") or 0), int(detail["total"]))
        if line.get("error"):
            return str(line["error"]).strip()
    return ""


def _pull_hint(error: str, repository: str) -> str:
    host = repository.partition("/")[0]
    if _FULL.search(error):
        return "the engine's disk is full: docker system df, then docker image prune"
    if "x509" in error:
        return (
            "the engine does not know the registry's certificate authority: put it into "
            f"/etc/docker/certs.d/{host}/ca.crt on the engine's machine"
        )
    if _REFUSED.search(error):
        return f"docker login {host}, as a user who may pull there"
    if _MISSING.search(error):
        return "push it again: rtbuild build --push"
    return "try again: layers that have arrived are not sent twice"


def _names(entry: Mapping[str, Any]) -> list[str]:
    return [name for name in entry.get("RepoTags") or () if name != "<none>:<none>"]


@contextmanager
def said_by_engine(what: str) -> Iterator[None]:
    """Make a CellError of the engine's refusal, or of its silence."""
    try:
        yield
    except docker.errors.APIError as error:
        raise CellError(f"the engine could not {what}: {error.explanation or error}") from error
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise CellError(
            f"the engine did not answer ({what}): {error}",
            hint="the engine stopped, or cannot be reached: rtbuild doctor",
        ) from error
