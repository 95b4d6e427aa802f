"""What is to be done for each cell: its image is used as it is found, or made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.core.errors import CellError
from builder.core.items import item
from builder.pipeline.events import Note

if TYPE_CHECKING:
    from builder.image.engine import StoredImage
    from builder.image.recipe import Recipe
    from builder.pipeline.run_context import RunContext
    from builder.sources.oci import Staged


@dataclass(frozen=True, kw_only=True)
class Reuse:
    """The engine has the image, and so has the repository, if there is one to push to."""

    stored: StoredImage
    staged: Staged | None


@dataclass(frozen=True, kw_only=True)
class Make:
    """The image is made, and pushed if there is a repository to push to."""

    staged: Staged | None
    """Another image of the same inputs that the repository has: of equal digests none is pushed."""
    new: bool
    """Neither has any image of these inputs: the disk needs room for it."""


def plan_cells(
    recipes: Iterable[Recipe],
    in_engine: Mapping[str, StoredImage],
    in_registry: Mapping[str, Staged] | None,
) -> list[Reuse | Staged | Make]:
    """The step of each recipe, by the images that are there of its inputs.

    One that is only ``Staged`` needs nothing: it is there already, and the engine is not given it.
    ``in_registry`` is None if no repository is pushed to. An engine's image that is to be pushed is used only
    if the repository has the same: an engine gives no bytes back from which a push could be made.
    """
    return [
        _step(in_engine.get(one.inputs), in_registry is not None, (in_registry or {}).get(one.inputs))
        for one in recipes
    ]


def _step(stored: StoredImage | None, pushes: bool, staged: Staged | None) -> Reuse | Staged | Make:
    if stored is None:
        return staged if staged is not None else Make(staged=None, new=True)
    if not pushes or (staged is not None and _same(stored, staged)):
        return Reuse(stored=stored, staged=staged)
    return Make(staged=staged, new=False)


def _same(stored: StoredImage, staged: Staged) -> bool:
    """An engine calls an image by the digest of its manifest, or by that of its config."""
    return stored.digest in {staged.digest, staged.config_digest} and stored.content == staged.content


def images_in_engine(context: RunContext, recipes: Iterable[Recipe]) -> dict[str, StoredImage]:
    """The images that the engine has, by the inputs of their recipes.

    A label finds them, and whether this machine made them decides: an engine also has what was pulled.

    They are looked for under their cells' own names, and only the others in a list of all images: for one,
    Engine 26.1 with the containerd store adds up the sizes of every image, which takes longer than
    a hundred questions.
    """
    engine = context.engine
    if engine is None:
        return {}
    wanted = {one.inputs: one.cell for one in recipes}

    def look(inputs: str, names: Sequence[str]) -> StoredImage | None:
        cell = wanted[inputs]
        try:
            with item(cell.id):
                return engine.find(inputs, names)
        except CellError as problem:
            context.emit(Note(cell=cell.id, text=f"built again: {problem.message}", warning=True))
            return None

    named = [[context.stores.image_name(cell)] for cell in wanted.values()]
    with ThreadPoolExecutor(8, thread_name_prefix="built") as pool:  # the client keeps ten connections
        found = dict(zip(wanted, pool.map(look, wanted, named), strict=True))
    if None in found.values():
        listed = engine.built()
        missing = [inputs for inputs, image in found.items() if image is None]
        found |= {inputs: look(inputs, listed.get(inputs, ())) for inputs in missing}
    return {
        inputs: image
        for inputs, image in found.items()
        if image is not None and image.content == context.stores.made.content(inputs)
    }


def images_in_registry(context: RunContext, repository: str, recipes: Iterable[Recipe]) -> dict[str, Staged]:
    """The images that a repository has, by the inputs of their recipes.

    A tag that leads to other inputs counts as no image, and is put right by the push, and so does an image of
    which this machine made another, or that is not proven if a key is given. Raises RegistryError if the
    registry does not answer.
    """
    registry = context.sources.writing
    from builder.sources.oci import find_staged

    def look(recipe: Recipe) -> Staged | None:
        try:
            with item(recipe.cell.id):
                configs = context.stores.cache / "configs"
                found = find_staged(registry, repository, recipe.inputs, kept=configs)
                if found is None:
                    return None
                from builder.verify.evidence import origin_of

                origin = origin_of(registry, found, recipe, made=context.stores.made, builders=context.own)
        except CellError as problem:
            if registry.digest_of(f"{repository}:nothing") is not None:
                raise
            why = problem.message  # it answers: the image is at fault
        else:
            if origin.refused is None:
                return found
            why = origin.refused.text
        context.emit(Note(cell=recipe.cell.id, text=f"built again: {why}", warning=True))
        return None

    wanted = list(recipes)
    with ThreadPoolExecutor(16, thread_name_prefix="staged") as pool:
        found = list(pool.map(look, wanted))
    return {recipe.inputs: one for recipe, one in zip(wanted, found, strict=True) if one is not None}
