"""The station between build and verification: the image into a staging repository, by its inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from builder.errors import RegistryError
from builder.oci.staging import look, staged_reference
from builder.pipeline.events import Stage

if TYPE_CHECKING:
    from builder.model import Image
    from builder.oci.staging import Staged
    from builder.pipeline.schedule import Walk
    from builder.pipeline.stages import Site


def push_cell(
    walk: Walk, site: Site, image: Image, inputs: str, repository: str, *, known: Staged | None = None
) -> Image:
    """Push what was built, unless the repository has it; the image with the digest that it has there.

    The unlisted tag only says where to look. What counts from here on is the digest: with the containerd
    image store it is the engine's own, with a graph driver the one that the push came to, whose config is
    the engine's image. ``known`` is what the repository was seen to have; without, it is asked. Raises
    RegistryError.
    """
    engine = site.engine
    assert engine is not None  # noqa: S101 - the scheduler connects before it sends cells here
    reference = staged_reference(repository, inputs)
    with walk.stage(Stage.PUSH):
        staged = known or look(site.writing, reference)
        if staged is not None and _same(staged, image):
            walk.done(f"there already, {staged.digest[:19]}")
            return replace(image, pushed=staged.reference)
        walk.progress(repository, quiet=False)
        digest = engine.push(
            image.digest,
            reference,
            progress=lambda layer, done, total: walk.progress(f"layer {layer}", done, total),
            cancel=walk.cancel,
        )
        staged = look(site.writing, reference)
        if staged is None or staged.digest != digest or not _same(staged, image):
            raise RegistryError(
                f"the engine pushed {digest} as {reference}, and the registry has "
                f"{staged.digest if staged else 'nothing'} there",
                hint="another build may push the same inputs: run the command again",
            )
        walk.done(f"{staged.digest[:19]}, {staged.size / 1e9:.2f} GB")
        return replace(image, pushed=staged.reference)


def _same(staged: Staged, image: Image) -> bool:
    """Whether the registry's image is the engine's: manifest, or config where that is the engine's id."""
    return image.digest in {staged.digest, staged.config_digest} and staged.content == image.content
