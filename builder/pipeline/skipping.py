"""Cells whose image the engine or a repository has already: neither built nor fetched again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from builder.digests import sha256_of
from builder.errors import RegistryError
from builder.files import write_whole
from builder.model import Image
from builder.pipeline.events import CellOutcome, CellResult, Note, Stage
from builder.pipeline.stages import image_of

if TYPE_CHECKING:
    from builder.engine.images import StoredImage
    from builder.oci.registry import Manifest, Registry
    from builder.oci.staging import Staged
    from builder.pipeline.schedule import Walk
    from builder.pipeline.site import Site
    from builder.recipe.values import Recipe


def built_before(site: Site, recipes: Iterable[Recipe]) -> dict[str, StoredImage]:
    """The images that the engine has, by the inputs of their recipes.

    A label finds them, and whether this machine made them decides: an engine also has what was pulled.

    They are looked for under their cells' own names, and only the others in a list of all images: for one,
    Engine 26.1 with the containerd store adds up the sizes of every image, which takes longer than
    a hundred questions.
    """
    engine = site.engine
    if engine is None or site.settings.no_cache:
        return {}

    names = {one.inputs: [site.settings.image_name(one.cell.matrix, one.cell.id)] for one in recipes}
    with ThreadPoolExecutor(8, thread_name_prefix="built") as pool:  # the client keeps ten connections
        found = dict(zip(names, pool.map(engine.find, names, names.values()), strict=True))
    if None in found.values():
        listed = engine.built()
        missing = [inputs for inputs, image in found.items() if image is None]
        found |= {inputs: engine.find(inputs, listed.get(inputs, ())) for inputs in missing}
    return {
        inputs: image
        for inputs, image in found.items()
        if image is not None and image.content == site.made.content(inputs)
    }


def staged_before(site: Site, recipes: Iterable[Recipe]) -> dict[str, Staged]:
    """The images that the repository to push to has, by the inputs of their recipes.

    A tag that leads to other inputs counts as no image, and is put right by the push, and so does an image of
    which this machine made another, or that is not proven if a key is given. Raises RegistryError if the
    registry does not answer.
    """
    repository = site.settings.push
    if repository is None or site.settings.no_cache:
        return {}
    from builder.oci.staging import find_staged

    registry = _Remembering(site.writing, site.settings.cache / "configs")

    def look(recipe: Recipe) -> Staged | None:
        try:
            found = find_staged(registry, repository, recipe.inputs)
            if found is None:
                return None
            from builder.evidence.origin import origin_of

            origin = origin_of(site.writing, found, recipe, made=site.made, builders=site.builders)
        except RegistryError as problem:
            if site.writing.digest_of(f"{repository}:nothing") is not None:
                raise
            why = problem.message  # it answers: the image is at fault
        else:
            if origin.refused is None:
                return found
            why = origin.refused.text
        site.emit(Note(cell=recipe.cell.id, text=f"built again: {why}", warning=True))
        return None

    wanted = list(recipes)
    with ThreadPoolExecutor(16, thread_name_prefix="staged") as pool:
        found = list(pool.map(look, wanted))
    return {recipe.inputs: one for recipe, one in zip(wanted, found, strict=True) if one is not None}


@dataclass(frozen=True)
class _Remembering:
    """A registry that is asked for an image's config once: which one it is, the manifest says each time."""

    registry: Registry
    folder: Path

    def manifest(self, reference: str) -> Manifest:
        return self.registry.manifest(reference)

    def digest_of(self, reference: str) -> str | None:
        return self.registry.digest_of(reference)

    def blob(self, reference: str, digest: str) -> bytes:
        path = self.folder / digest.removeprefix("sha256:")
        with contextlib.suppress(OSError):  # not there yet
            content = path.read_bytes()
            if sha256_of(content) == digest:
                return content
        content = self.registry.blob(reference, digest)
        with contextlib.suppress(OSError):  # a cache that cannot be written costs time, nothing else
            write_whole(path, content)
        return content


def same_image(staged: Staged, there: StoredImage) -> bool:
    """Whether the registry's image is the engine's, which may call it by its manifest or its config."""
    return there.digest in {staged.digest, staged.config_digest} and staged.content == there.content


def reuse(walk: Walk, site: Site, there: StoredImage, staged: Staged | None) -> Image:
    """The image that the engine has, under the cell's name; ``staged`` is the same in the repository."""
    name = site.settings.image_name(walk.cell.matrix, walk.cell.id)
    with walk.stage(Stage.BUILD):
        if site.engine is not None and there.reference != name:
            site.engine.tag(there.reference, name)
        walk.done("there already, nothing to build")
    if staged is None or site.settings.push is None:
        return image_of(walk.cell, name, there, reused=True)
    with walk.stage(Stage.PUSH):
        if site.own is not None:
            from builder.pipeline.feeding import sign_pushed

            sign_pushed(site, staged.reference)
        walk.done(f"there already, {staged.digest[:19]}")
    return image_of(walk.cell, name, there, reused=True, pushed=staged.reference)


def end_staged(walk: Walk, site: Site, staged: Staged) -> CellResult:
    """The end of a cell that needs nothing. Its verification is a matter of `rtbuild verify --from`."""
    with walk.stage(Stage.BUILD):
        walk.done(f"there already, in {staged.repository}")
    image = image_of(walk.cell, staged.reference, staged, reused=True, pushed=staged.reference)
    return walk.ended(CellOutcome.UNVERIFIED if site.settings.verify else CellOutcome.DONE, image=image)
