"""Every file of every recipe by its hash, for all locks of the project and a set of generated ones.

A change of how recipes come to be leaves ``tests/golden/record.json`` as it is, or its commit says which line
changed and why. What people read (help, schemas, errors, documents) is golden as text, beside it and in docs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from builder.core.model import Cuda, Options, RootfsBase
from builder.image.compose.cell_layers import BaseLayers, SystemLayers
from builder.image.compose.compose import final_config
from builder.image.layers.store import Layer
from builder.image.recipe.rendering import render
from builder.plan.lock.file import pinned_cell, read_lock
from builder.plan.matrix import load

sys.path.insert(0, str(Path(__file__).parent / "image" / "recipe"))
import recipe_cells

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.core.model import Pinned
    from builder.image.recipe.values import Recipe

MATRICES = Path(__file__).parents[2] / "matrices"
ENVIRONMENTS = ((), (("GREETING", 'a "b" $HOME \\ `id` #c ü <&>'), ("NVIDIA_VISIBLE_DEVICES", "0")))
PYTHONS = ("3.6", "3.9", "3.12", "3.13")


def short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def layer(name: str) -> Layer:
    """Known by its name alone."""
    digest = f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"
    return Layer(title=name, digest=digest, diff_id=digest, size=1, unpacked=2, media_type="")


def rendered(pinned: Pinned) -> Recipe:
    return render(pinned, probe=recipe_cells.PROBE, version="0.1.0")


def config(recipe: Recipe) -> bytes:
    """The config that the recipe's settings make of an image, over layers that are only named."""
    base = BaseLayers(layers=(layer("base"),), config={"architecture": "amd64", "os": "linux"})
    wheels = [layer(wheel.file) for wheel in recipe.pinned.wheels]
    stacked = (*base.layers, *wheels)
    return final_config(recipe, base, stacked, SystemLayers(), [layer(name) for name in recipe.added])


def generated() -> Iterator[Pinned]:
    """Kinds of base, of CUDA and of profile, with every option that reaches a recipe."""
    sources = (recipe_cells.ROOTFS_WHEELS, recipe_cells.NVIDIA_TORCH, recipe_cells.CPU)
    kinds = itertools.product(sources, ("base", "wheels", "none"), ("plain", "colab"), PYTHONS, ENVIRONMENTS)
    for source, provider, profile, python, env in kinds:
        for slim, apt in itertools.product((True, False), ((), ("libgomp1", "tini"))):
            cell = dataclasses.replace(
                source.cell, cuda=Cuda(provider=provider), profile=profile, python=python, env=env, apt=apt,
                options=Options(slim=slim),
            )  # fmt: skip
            yield dataclasses.replace(source, cell=cell)


def of_projects_locks() -> dict[str, dict[str, str]]:
    found = {}
    for path in sorted(MATRICES.glob("*.lock.json")):
        matrix = load(path.with_name(path.name.replace(".lock.json", ".yaml")))
        lockfile = read_lock(path)
        assert lockfile
        for cell in matrix.cells:
            pinned = pinned_cell(cell, lockfile, stale=True)
            if pinned is None:
                continue
            recipe = rendered(pinned)
            files = {name: short(file.content) for name, file in sorted(recipe.files.items())}
            files = {name: text for name, text in files.items() if not name.startswith("runtime/")}
            if isinstance(pinned.base, RootfsBase):
                files["(config)"] = short(config(recipe))
            found[f"{matrix.name}/{cell.id}"] = {"inputs": recipe.inputs[7:23], **files}
    return found


def of_generated_locks() -> dict[str, str]:
    groups: dict[str, list[str]] = {}
    for pinned in generated():
        cell, recipe = pinned.cell, rendered(pinned)
        texts = [recipe.inputs, *(short(file.content) for _, file in sorted(recipe.files.items()))]
        if isinstance(pinned.base, RootfsBase):
            texts.append(short(config(recipe)))
        groups.setdefault(f"{cell.base} {cell.cuda.provider} {cell.profile} {cell.python}", []).extend(texts)
    return {name: short(json.dumps(texts).encode()) for name, texts in sorted(groups.items())}


def test_recipes_are_what_they_were(golden):
    document = {"locks": of_projects_locks(), "generated": of_generated_locks()}
    assert len(document["locks"]) > 10
    golden("record.json", json.dumps(document, indent=1) + "\n")
