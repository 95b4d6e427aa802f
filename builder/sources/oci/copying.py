"""Copies images into repositories by digest: blobs first, then the manifest, a tag last.

Everything is named by its content: an interrupted copy continues, and a complete one sends nothing.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from builder.core.errors import RegistryError
from builder.sources.oci.layout import Blob, OciImage
from builder.sources.oci.registry import Registry
from builder.sources.oci.spec import MANIFEST, Manifest, blobs_of
from builder.sources.oci.staging import Staged

Advance = Callable[[str, int], None]
"""Told of each blob that is in place: ``there``, ``mounted`` or ``sent``, and its size in bytes."""
_AT_A_TIME = 4
"""Blobs: a registry far away answers slowly, not little."""


@dataclass
class Tally:
    """What a copy cost, in blobs and bytes."""

    there: int = 0
    mounted: int = 0
    sent: int = 0
    bytes_sent: int = 0
    manifest_sent: bool = False

    @property
    def changed(self) -> bool:
        """Whether the repository has anything that it had not before."""
        return self.manifest_sent or bool(self.mounted or self.sent)

    @property
    def text(self) -> str:
        """``3 blobs there, 2 mounted, 1 sent (5.0 MB)``"""
        sent = f"{self.sent} sent ({self.bytes_sent / 1e6:.1f} MB)" if self.sent else ""
        mounted = f"{self.mounted} mounted" if self.mounted else ""
        return ", ".join(part for part in (f"{self.there} blobs there", mounted, sent) if part)


def push_image(
    registry: Registry,
    reference: str,
    image: OciImage[Blob],
    blob: Callable[[Blob], Path],
    *,
    mount_from: Mapping[str, str],
    advance: Advance,
) -> None:
    """Put an image into a repository out of files, under the tag of ``reference``.

    ``blob`` gives the file of a layer, only of one that the repository lacks. ``mount_from`` says for some
    digests in which repository of the same registry they are. The tag is put after all else, and read back.
    Raises RegistryError.
    """
    repository = reference.rpartition(":")[0]
    manifest = Manifest(digest=image.digest, media_type=MANIFEST, content=image.manifest)
    layers = {layer.digest: layer for layer in image.layers}

    def opened(digest: str) -> contextlib.AbstractContextManager[Path | bytes]:
        layer = layers.get(digest)
        return contextlib.nullcontext(image.config if layer is None else blob(layer))

    blobs = dict(blobs_of(manifest.document))
    _fill(registry, repository, blobs, opened, mount_from=mount_from, advance=advance)
    _put_by_digest(registry, repository, manifest)
    put_tag(registry, reference, manifest)


def copy_image(
    registry: Registry, image: Staged, repository: str, *, advance: Advance | None = None
) -> Tally:
    """Bring an image into another repository under the same digest, without a tag. Raises RegistryError.

    Blobs that the target has are skipped; blobs of the same registry are mounted; all others pass through a
    file and are checked.
    """

    @contextlib.contextmanager
    def passing(digest: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="rtbuild-copy-") as folder:
            yield registry.fetch_blob(image.repository, digest, Path(folder) / "blob", size=blobs[digest])

    blobs = dict(image.blobs)
    mount_from = dict.fromkeys(blobs, image.repository)
    tally = _fill(registry, repository, blobs, passing, mount_from=mount_from, advance=advance)
    tally.manifest_sent = _put_by_digest(registry, repository, image.manifest)
    return tally


def _fill(
    registry: Registry,
    repository: str,
    blobs: Mapping[str, int],
    opened: Callable[[str], contextlib.AbstractContextManager[Path | bytes]],
    *,
    mount_from: Mapping[str, str],
    advance: Advance | None,
) -> Tally:
    """Have blobs, each of its size, in a repository, several at a time; the first failure ends the others."""

    def one(digest: str, size: int) -> tuple[str, int]:
        source = mount_from.get(digest)
        if registry.exists(repository, digest, size=size):
            return "there", size
        if source is not None and registry.mount_blob(repository, digest, source):
            registry.exists(repository, digest, size=size)
            return "mounted", size
        with opened(digest) as file:
            return "sent" if registry.push_blob(repository, digest, file) else "there", size

    tally = Tally()
    with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="blob") as pool:
        jobs = [pool.submit(one, digest, size) for digest, size in blobs.items()]
        try:
            for job in as_completed(jobs):
                how, size = job.result()
                setattr(tally, how, getattr(tally, how) + 1)
                tally.bytes_sent += size if how == "sent" else 0
                if advance is not None:
                    advance(how, size)
        finally:
            for job in jobs:
                job.cancel()
    return tally


def _put_by_digest(registry: Registry, repository: str, manifest: Manifest) -> bool:
    """A manifest under no name but its digest; False if it is there already."""
    reference = f"{repository}@{manifest.digest}"
    if registry.digest_of(reference) == manifest.digest:
        return False
    registry.put_manifest(reference, manifest.content, manifest.media_type)
    return True


def put_tag(registry: Registry, reference: str, manifest: Manifest) -> None:
    """Have a tag name a manifest, and ask the registry whether it does. Raises RegistryError."""
    registry.put_manifest(reference, manifest.content, manifest.media_type)
    found = registry.digest_of(reference)
    if found != manifest.digest:
        raise RegistryError(
            f"{reference} was put on {manifest.digest}, and a moment later is {found or 'gone'}",
            hint="another publisher may be at work; run the same command again",
        )
