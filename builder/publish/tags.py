"""The tags of a published image: their names, their current targets, and whether they may move."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from builder.evidence.documents import Refusal
from builder.model import Cell
from builder.oci.registry import Registry
from builder.oci.staging import CELL_LABEL, MATRIX_LABEL, NoImageError, look
from builder.publish.measure import Measured, immutable_tag, tag_of

TagKind = Literal["immutable", "measured", "cell", "alias"]


@dataclass(frozen=True, kw_only=True)
class ImageTag:
    """A tag for an image."""

    name: str
    kind: TagKind


@dataclass(frozen=True, kw_only=True)
class TagStep:
    """The change of a tag: none if it names the digest already."""

    tag: ImageTag
    was: str | None
    """The digest that the tag names now; None without such a tag."""
    digest: str

    @property
    def action(self) -> Literal["there", "put", "move"]:
        if self.was == self.digest:
            return "there"
        return "put" if self.was is None else "move"


def tags_of(
    cell: Cell, measured: Measured, digest: str, aliases: Sequence[tuple[str, str]]
) -> tuple[ImageTag, ...]:
    """All tags of one image in the order in which they are put: the immutable one first, aliases last."""
    tags = [
        ImageTag(name=immutable_tag(measured, cell, digest), kind="immutable"),
        ImageTag(name=tag_of(measured, cell), kind="measured"),
        ImageTag(name=cell.id, kind="cell"),
        *(ImageTag(name=alias, kind="alias") for alias, named in aliases if named == cell.id),
    ]
    unique: dict[str, ImageTag] = {}
    for tag in tags:
        unique.setdefault(tag.name, tag)
    return tuple(unique.values())


def clashes(wanted: Mapping[tuple[str, str], Sequence[ImageTag]]) -> dict[tuple[str, str], Refusal]:
    """Refusals for cells that have the same tag, by repository and cell: none of them gets it."""
    owners: dict[tuple[str, str], list[str]] = {}
    for (repository, cell), tags in wanted.items():
        for tag in tags:
            owners.setdefault((repository, tag.name), []).append(cell)
    found = {}
    for (repository, name), cells in owners.items():
        for cell in cells if len(cells) > 1 else ():
            others = ", ".join(other for other in cells if other != cell)
            found[repository, cell] = Refusal(
                "tag",
                f"{repository}:{name} is also wanted for {others}",
                "give one of them a 'variant', or another repository",
            )
    return found


def steps(
    registry: Registry,
    repository: str,
    cell: Cell,
    tags: Sequence[ImageTag],
    digest: str,
    *,
    others: Container[str] = (),
    overwrite: bool,
) -> tuple[tuple[TagStep, ...], tuple[Refusal, ...]]:
    """The changes that tags need, and refusals for tags that may not move. Raises RegistryError.

    An immutable tag stays where it is. A tag that another matrix or another program put is moved only by
    ``overwrite``, and so is one of another cell of this matrix, unless it is an alias: ``others`` are the ids
    of the other cells.
    """
    found, against = [], []
    for tag in tags:
        name = f"{repository}:{tag.name}"
        step = TagStep(tag=tag, was=registry.digest_of(name), digest=digest)
        found.append(step)
        if step.action != "move" or (overwrite and tag.kind != "immutable"):
            continue
        if tag.kind == "immutable":
            text = f"names {step.was} and never moves, so it cannot name {digest}"
            against.append(
                Refusal("tag", f"{name} {text}", "somebody put it there by hand; delete it in the registry")
            )
            continue
        matrix, other = _owner(registry, name)
        if matrix != cell.matrix:
            by = f"the matrix {matrix} published" if matrix else "rtbuild did not publish"
            hint = "publish to another repository, or use --overwrite"
            against.append(Refusal("tag", f"{name} is {step.was}, which {by}", hint))
        elif tag.kind != "alias" and other in others:
            text = f"is {step.was}, the image of {other}, which has the same tag"
            hint = "give one of them a 'variant'; --overwrite moves the tag"
            against.append(Refusal("tag", f"{name} {text}", hint))
    return tuple(found), tuple(against)


def _owner(registry: Registry, reference: str) -> tuple[str | None, str | None]:
    """Matrix and cell of the image that a tag names; None if rtbuild did not make it.

    Raises RegistryError if the registry does not answer.
    """
    try:
        image = look(registry, reference)
    except NoImageError:
        return None, None
    return (image.label(MATRIX_LABEL), image.label(CELL_LABEL)) if image is not None else (None, None)
