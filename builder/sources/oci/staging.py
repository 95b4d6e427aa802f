"""Images in repositories: a cell's unlisted tag, manifest, labels and content digest; and copies by digest.

Of a copy blobs come first, then the manifest, a tag last. Everything is named by its content: an interrupted
copy continues, and a complete one sends nothing.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from builder.core.digests import content_of, sha256_of
from builder.core.documents import MalformedError, shown
from builder.core.errors import ImageMissingError, RegistryError, UsageError
from builder.core.files import write_whole
from builder.sources.oci.registry import Registry
from builder.sources.oci.spec import (
    CELL_LABEL,
    INDEXES,
    INPUTS_LABEL,
    MANIFEST,
    MATRIX_LABEL,
    Blob,
    Manifest,
    OciImage,
    blobs_of,
    is_digest,
    is_tag,
    parse_config,
    parse_reference,
)

PREFIX = "staged-"
_OWN: dict[str, Callable[[str], bool]] = {
    INPUTS_LABEL: is_digest,
    CELL_LABEL: is_tag,
    MATRIX_LABEL: lambda text: len(text) <= 64 and is_tag(text),
}
"""The form of rtbuild's own labels: names of files, pages and tags are made of them."""
Advance = Callable[[str, int], None]
"""Told of each blob that is in place: ``there``, ``mounted`` or ``sent``, and its size in bytes."""
_AT_A_TIME = 4
"""Blobs: a registry far away answers slowly, not little."""


class MovedTagError(RegistryError):
    """An unlisted tag leads to an image of other inputs than it stands for."""


class NoImageError(RegistryError):
    """A digest names no single image, but an index, a chart or a document that cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Staged:
    """An image in a repository, as its manifest and config describe it. Nothing of its layers is read."""

    repository: str
    manifest: Manifest
    content: str
    """:func:`builder.core.digests.content_of`, as an engine computes it for the same image."""
    labels: tuple[tuple[str, str], ...]
    platform: str
    blobs: tuple[tuple[str, int], ...]
    """Digest and compressed size in bytes: the config, then the layers, lowest first."""

    @property
    def digest(self) -> str:
        """Digest of the manifest, which is verified and published."""
        return self.manifest.digest

    @property
    def config_digest(self) -> str:
        return self.blobs[0][0]

    @property
    def reference(self) -> str:
        """The reference to pull: by digest, so that a moved tag changes nothing."""
        return f"{self.repository}@{self.digest}"

    @property
    def size(self) -> int:
        """In bytes, compressed."""
        return sum(size for _, size in self.blobs)

    def label(self, name: str) -> str | None:
        return dict(self.labels).get(name)

    @property
    def inputs(self) -> str | None:
        return self.label(INPUTS_LABEL)


def staged_tag(inputs: str) -> str:
    """``staged-<32 hex>``: the unlisted tag of the image that these inputs give."""
    return PREFIX + inputs.removeprefix("sha256:")[:32]


def staged_reference(repository: str, inputs: str) -> str:
    return f"{repository_of(repository)}:{staged_tag(inputs)}"


def repository_of(text: str) -> str:
    """A repository's name, checked: no tag and no digest. Raises UsageError."""
    name = parse_reference(text)
    if name.tag or name.digest:
        hint = f"without the tag: {text.rpartition('@')[0] or text.rpartition(':')[0]}"
        raise UsageError(f"{text} names an image, and a repository is wanted", hint=hint)
    return text


def find_staged(
    registry: Registry, repository: str, inputs: str, *, kept: Path | None = None
) -> Staged | None:
    """The image that these inputs gave, if the repository has it under its unlisted tag.

    The tag is a hint that anyone who may push can move; the label in the image's own config decides. A config
    is asked for once, and kept below ``kept``: which one it is, the manifest says each time. Raises
    RegistryError if the tag leads to an image of other inputs, or to none that can be read.
    """
    reference = staged_reference(repository, inputs)
    found = look(registry, reference, kept=kept)
    if found is not None and found.inputs != inputs:
        raise MovedTagError(
            f"{reference} is {found.digest}, whose label {INPUTS_LABEL} is {found.inputs or 'not there'}: "
            "somebody moved the tag",
            hint="push the image again: rtbuild build --push",
        )
    return found


def look(registry: Registry, reference: str, *, kept: Path | None = None) -> Staged | None:
    """The image behind a tag; None if there is no such tag. Raises RegistryError."""
    try:
        manifest = registry.manifest(reference)
    except ImageMissingError:
        return None
    return _image(registry, reference.rpartition(":")[0], manifest, kept)


def read_image(registry: Registry, repository: str, digest: str) -> Staged:
    """An image by its digest, each document checked against its own. Raises RegistryError."""
    return _image(registry, repository, registry.manifest(f"{repository}@{digest}"))


def _image(registry: Registry, repository: str, manifest: Manifest, kept: Path | None = None) -> Staged:
    reference = f"{repository}@{manifest.digest}"
    if manifest.media_type in INDEXES:
        hint = "build it by rtbuild build --push, which adds nothing to the image's own manifest"
        raise NoImageError(f"{reference} is an index of images, and a single one is wanted", hint=hint)
    try:
        blobs = blobs_of(manifest.document)
        config = parse_config(_config(registry, repository, blobs[0][0], kept))
        settings = config.get("config") or {}
        parts = (config.get("os"), config.get("architecture"), config.get("variant"))
        platform = "/".join(part for part in parts if part)
        content = content_of(platform=platform, layers=config["rootfs"]["diff_ids"], config=settings)
        labels = tuple(sorted((settings.get("Labels") or {}).items()))
        if wrong := [name for name, text in labels if name in _OWN and text and not _OWN[name](text)]:
            raise MalformedError(f"its label {wrong[0]} is none that rtbuild writes")
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        why = shown(repr(error))
        raise NoImageError(f"{reference} is no image that can be read: {why}") from error
    return Staged(
        repository=repository,
        manifest=manifest,
        content=content,
        labels=labels,
        platform=platform,
        blobs=blobs,
    )


def _config(registry: Registry, repository: str, digest: str, kept: Path | None) -> bytes:
    if kept is None:
        return registry.blob(repository, digest)
    path = kept / digest.removeprefix("sha256:")
    with contextlib.suppress(OSError):  # not there yet
        content = path.read_bytes()
        if sha256_of(content) == digest:
            return content
    content = registry.blob(repository, digest)
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, nothing else
        write_whole(path, content)
    return content


@dataclass
class Tally:
    """The cost of a copy, in blobs and bytes."""

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
