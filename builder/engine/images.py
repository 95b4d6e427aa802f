"""Images in the engine's store: what they hold, under which names."""

from __future__ import annotations

import io
import tarfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import docker
import requests

from builder.digests import content_of
from builder.errors import CellError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

INPUTS_LABEL = "io.rtbuild.inputs"
CELL_LABEL = "io.rtbuild.cell"


@dataclass(frozen=True, kw_only=True)
class StoredImage:
    """An image in the engine's store."""

    reference: str
    digest: str
    """What the engine calls it: with the containerd image store the manifest digest, else the image id."""
    content: str
    """Digest over the ordered layer diff ids and the config without its dates; see :func:`content_digest`."""
    size: int
    """Unpacked, in bytes, as the engine's history counts it."""
    labels: tuple[tuple[str, str], ...]
    env: tuple[tuple[str, str], ...]
    platform: str
    layers: tuple[str, ...]
    """The diff ids, lowest first."""

    def label(self, name: str) -> str | None:
        return dict(self.labels).get(name)


@dataclass(frozen=True, kw_only=True)
class HistoryEntry:
    """One step of an image's history. ``size`` is in bytes unpacked."""

    created_by: str
    size: int


def content_digest(document: Mapping[str, Any]) -> str:
    """:func:`builder.digests.content_of` of what ``docker image inspect`` gives."""
    return content_of(
        platform=_platform(document),
        layers=(document.get("RootFS") or {}).get("Layers") or [],
        config=document.get("Config") or {},
    )


def inspect(client: docker.DockerClient, reference: str) -> StoredImage | None:
    """The image of that name or digest; None if the store has none."""
    with said_by_engine(f"inspect {reference}"):
        try:
            document = client.images.get(reference).attrs
        except docker.errors.ImageNotFound:
            return None
        size = _unpacked(client, reference)
    config = document.get("Config") or {}
    env = (pair.partition("=") for pair in config.get("Env") or ())
    return StoredImage(
        reference=reference,
        digest=document["Id"],
        content=content_digest(document),
        size=size or int(document.get("Size", 0)),
        labels=tuple(sorted((config.get("Labels") or {}).items())),
        env=tuple((name, value) for name, _, value in env),
        platform=_platform(document),
        layers=tuple((document.get("RootFS") or {}).get("Layers") or ()),
    )


def _unpacked(client: docker.DockerClient, reference: str) -> int:
    """Bytes unpacked, as the history counts them; 0 if the engine cannot count them just now.

    Seen with Engine 26.1 and the containerd store: history asks for the snapshot of every layer, and fails
    where one was removed meanwhile, which a start of the image would unpack again.
    """
    try:
        return sum(entry.size for entry in history(client, reference))
    except CellError:
        return 0


def listed(client: docker.DockerClient, inputs: str | None = None) -> dict[str, tuple[str, ...]]:
    """Images by what they were built from, all or those of ``inputs``: their names, and then their ids."""
    label = INPUTS_LABEL if inputs is None else f"{INPUTS_LABEL}={inputs}"
    found = _listed(client, label)
    named: dict[str, list[str]] = {}
    ids: dict[str, list[str]] = {}
    for entry in found:
        given = (entry.get("Labels") or {}).get(INPUTS_LABEL, "")
        named.setdefault(given, []).extend(t for t in entry.get("RepoTags") or () if t != "<none>:<none>")
        ids.setdefault(given, []).append(entry["Id"])
    return {given: (*sorted(named[given]), *sorted(ids[given])) for given in ids}


def _listed(client: docker.DockerClient, label: str) -> list[dict[str, Any]]:
    """The engine's rows of the images with a label.

    Engine 26.1 with the containerd store answers 404 if another process removes an image meanwhile.
    """
    with said_by_engine("list images"):
        pauses = [2.0, 0.5, 0.1]
        while True:
            try:
                return list(client.api.images(filters={"label": label}))
            except docker.errors.NotFound:
                if not pauses:
                    raise
                time.sleep(pauses.pop())


def cells(client: docker.DockerClient) -> dict[str, str]:
    """The cell of each named image that rtbuild built, by the image's name."""
    found = _listed(client, CELL_LABEL)
    return {
        name: (entry.get("Labels") or {}).get(CELL_LABEL, "")
        for entry in found
        for name in entry.get("RepoTags") or ()
        if name != "<none>:<none>"
    }


def built_ids(client: docker.DockerClient) -> frozenset[str]:
    """The ids of all images that rtbuild built."""
    return frozenset(
        name for names in listed(client).values() for name in names if name.startswith("sha256:")
    )


def find(client: docker.DockerClient, inputs: str, names: Sequence[str]) -> StoredImage | None:
    """The first of these images that says that it was built from ``inputs``."""
    for name in names:
        image = inspect(client, name)
        if image is not None and image.label(INPUTS_LABEL) == inputs:
            return image
    return None


def history(client: docker.DockerClient, reference: str) -> tuple[HistoryEntry, ...]:
    """How the image came to be, the newest step first."""
    with said_by_engine(f"history of {reference}"):
        entries = client.api.history(reference) or ()  # type: ignore[no-untyped-call]
    return tuple(HistoryEntry(created_by=entry["CreatedBy"], size=int(entry["Size"])) for entry in entries)


def tag(client: docker.DockerClient, reference: str, new: str) -> None:
    """Give the image one more name."""
    repository, separator, name = new.rpartition(":")
    if not separator or "/" in name:
        repository, name = new, "latest"
    with said_by_engine(f"tag {reference} as {new}"):
        client.api.tag(reference, repository, name)


def remove(client: docker.DockerClient, reference: str) -> bool:
    """Remove a name, and the image with its last one; False if there was none."""
    with said_by_engine(f"remove {reference}"):
        try:
            client.api.remove_image(reference)
        except docker.errors.ImageNotFound:
            return False
    return True


def save(client: docker.DockerClient, reference: str, target: Path) -> None:
    """Write the image to ``target`` as ``docker save`` does."""
    with said_by_engine(f"save {reference}"), target.open("wb") as file:
        for chunk in client.api.get_image(reference):
            file.write(chunk)


def read_file(client: docker.DockerClient, reference: str, path: str, limit: int) -> bytes | None:
    """One file out of an image, of a container that is never started; None if there is no such file."""
    with said_by_engine(f"read {path} in {reference}"):
        container = client.api.create_container(reference, command=["-"], network_disabled=True)["Id"]
        try:
            chunks, _ = client.api.get_archive(container, path)
            archive = b""
            for chunk in chunks:
                archive += chunk
                if len(archive) > limit:
                    raise CellError(f"{path} in {reference} is larger than {limit} bytes")
        except docker.errors.NotFound:
            return None
        finally:
            client.api.remove_container(container, force=True, v=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        member = tar.next()
        file = tar.extractfile(member) if member is not None else None
        return file.read() if file is not None else None


@contextmanager
def said_by_engine(what: str) -> Iterator[None]:
    """Make a CellError of what the engine answers, or of its silence."""
    try:
        yield
    except docker.errors.APIError as error:
        raise CellError(f"the engine could not {what}: {error.explanation or error}") from error
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise CellError(
            f"the engine did not answer ({what}): {error}",
            hint="the engine stopped, or cannot be reached: rtbuild doctor",
        ) from error


def _platform(document: Mapping[str, Any]) -> str:
    parts = (document.get("Os"), document.get("Architecture"), document.get("Variant"))
    return "/".join(part for part in parts if part)
