"""The staged image of a cell, found by the inputs that it was built from."""

import hashlib
from dataclasses import dataclass

from builder.evidence.cosign import People
from builder.evidence.documents import Refusal
from builder.evidence.judgement import CLOCKS
from builder.evidence.made import MadeImages
from builder.evidence.origin import ImageOrigin, origin_of
from builder.model import Cell
from builder.oci.registry import Registry
from builder.oci.staging import CELL_LABEL, MATRIX_LABEL, MovedTagError, Staged, find_staged, staged_tag
from builder.recipe.values import Recipe


@dataclass(frozen=True, kw_only=True)
class Found:
    """An image in staging, before any report about it is read."""

    cell: Cell
    staged: Staged
    recipe: Recipe
    probe: str
    """sha256 of the probe that the recipe puts into the image, 64 hex digits."""
    origin: ImageOrigin


def find(
    registry: Registry,
    source: str,
    cell: Cell,
    recipe: Recipe,
    probe: bytes,
    *,
    made: MadeImages,
    builders: People | None,
) -> Found | Refusal:
    """The image that the cell's matrix and lock give, in ``source``; ``made`` and ``builders``: see
    :func:`~builder.evidence.origin.origin_of`. Raises RegistryError.
    """
    try:
        staged = find_staged(registry, source, recipe.inputs)
    except MovedTagError as error:
        return Refusal("moved", error.message, error.hint)
    ahead = registry.clock_ahead(source)
    if ahead is not None and abs(ahead) > CLOCKS.total_seconds():
        return Refusal(
            "clock",
            f"the clock of this machine is {abs(ahead) / 60:.0f} minutes "
            f"{'ahead of' if ahead > 0 else 'behind'} the one of {source}: the age of reports is unknown",
            "set the clock: timedatectl set-ntp true",
        )
    if staged is None:
        return Refusal(
            "not-staged",
            f"{source} has no image of this cell for the present matrix, lock and rtbuild "
            f"({staged_tag(recipe.inputs)})",
            f"rtbuild build --push {source}",
        )
    labels = (staged.label(MATRIX_LABEL), staged.label(CELL_LABEL), staged.platform)
    if labels != (cell.matrix, cell.id, cell.platform):
        return Refusal(
            "other-image",
            f"{staged.reference} is labelled as {labels[1]} of {labels[0]} for {labels[2]}",
            "push the image again: rtbuild build --no-cache --push",
        )
    origin = origin_of(registry, staged, recipe, made=made, builders=builders)
    if origin.refused is not None:
        return origin.refused
    return Found(
        cell=cell,
        staged=staged,
        recipe=recipe,
        probe=hashlib.sha256(probe).hexdigest(),
        origin=origin,
    )
