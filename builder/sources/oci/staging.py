"""Images in a staging repository: the tag of a cell's image, and its manifest, labels and content digest."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from builder.core.digests import content_of, sha256_of
from builder.core.documents import MalformedError, shown
from builder.core.errors import ImageMissingError, RegistryError, UsageError
from builder.core.files import write_whole
from builder.sources.oci.registry import Registry
from builder.sources.oci.spec import (
    INDEXES,
    Manifest,
    blobs_of,
    is_digest,
    is_tag,
    parse_config,
    parse_reference,
)

INPUTS_LABEL = "io.rtbuild.inputs"
CELL_LABEL = "io.rtbuild.cell"
MATRIX_LABEL = "io.rtbuild.matrix"

PREFIX = "staged-"
_OWN: dict[str, Callable[[str], bool]] = {
    INPUTS_LABEL: is_digest,
    CELL_LABEL: is_tag,
    MATRIX_LABEL: lambda text: len(text) <= 64 and is_tag(text),
}
"""The form of rtbuild's own labels: names of files, pages and tags are made of them."""


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
    with suppress(OSError):  # not there yet
        content = path.read_bytes()
        if sha256_of(content) == digest:
            return content
    content = registry.blob(repository, digest)
    with suppress(OSError):  # a cache that cannot be written costs time, nothing else
        write_whole(path, content)
    return content
