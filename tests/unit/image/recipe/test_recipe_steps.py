"""What a recipe adds as values: the steps of each layer, and settings in the words of BuildKit's history."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import recipe_cells

from builder.image.compose.cell_layers import BaseLayers, SystemLayers
from builder.image.compose.compose import final_config
from builder.image.compose.run_steps import layer_keys
from builder.image.layers.store import Layer
from builder.image.recipe.rendering import render
from builder.image.recipe.values import Recipe, RecipeSetting

NASTY = "a \"b\" $HOME ${PATH} `id` $(id) \\ 'x' #c <<EOF ü <&>"


def rendered(name: str) -> Recipe:
    return render(recipe_cells.LOCKS[name], probe=recipe_cells.PROBE, version="0.1.0")


def layer(name: str) -> Layer:
    return Layer(title=name, digest=name, diff_id=name, size=1, unpacked=1, media_type="")


@pytest.mark.parametrize("name", recipe_cells.LOCKS)
def test_every_step_and_setting_stands_in_the_dockerfile_once(name: str) -> None:
    recipe = rendered(name)
    text = recipe.files["Dockerfile"].content.decode()
    for step in recipe.steps:
        assert text.count(step.script) == 1
        for folder in step.makes:
            assert f"/out/{folder}" in step.script
    for folder in recipe.added:
        assert text.count(f"COPY --link --from=additions /out/{folder}/ /\n") == 1
    assert text.partition(" AS runtime\n")[2].count("\nENV ") == sum(s.kind == "ENV" for s in recipe.settings)


def test_steps_that_look_at_one_another_make_layers_of_their_own() -> None:
    recipe = rendered("colab")
    assert recipe.added == ("bytecode", "environment", "probe", "profile", "writable")
    assert len(set(layer_keys(recipe, (), ()).values())) == 5
    assert [step.name for step in recipe.steps_of["writable"]] == ["environment", "bytecode", "profile"]
    assert [step.name for step in recipe.steps_of["environment"]] == ["environment"]


def test_layers_depend_on_the_wheels_only_where_their_steps_look_at_them() -> None:
    for name, seeing in (("rootfs-wheels", {"bytecode", "environment"}), ("cpu", {"bytecode"})):
        recipe = rendered(name)
        one, other = (layer_keys(recipe, (layer("base"),), (layer(wheel),)) for wheel in ("one", "other"))
        assert {folder for folder in one if one[folder] != other[folder]} == seeing


@pytest.mark.parametrize("beside", [(), ("nvidia-ml-py",)])
def test_a_framework_that_has_cuda_in_itself_needs_no_folders_of_nvidia(beside: tuple[str, ...]) -> None:
    """PyTorch 1.9.1, as the index has it, and its cell with ``cuda: wheels``."""
    lock = recipe_cells.ROOTFS_WHEELS
    wheels = [recipe_cells.wheel(name, "1.9.1") for name in ("torch", *beside)]
    alone = replace(
        lock, cell=replace(lock.cell, frameworks=("torch==1.9.1",)), wheels=(*wheels, recipe_cells.PIP)
    )
    text = render(alone, probe=recipe_cells.PROBE, version="0.1.0").files["Dockerfile"].content.decode()
    assert "nvidia/*/lib" not in text
    assert "nvidia/*/lib" in rendered("rootfs-wheels").files["Dockerfile"].content.decode()


def test_history_in_the_words_of_buildkit() -> None:
    settings = (
        RecipeSetting(kind="ENV", name="NASTY", value=NASTY),
        RecipeSetting(
            kind="HEALTHCHECK",
            value=("a b", "-c"),
            durations=(("interval", 30), ("timeout", 90), ("start-period", 3600)),
        ),
        RecipeSetting(kind="CMD", value=("bash", "-l")),
        RecipeSetting(kind="LABEL", name="a.b", value="c d"),
    )
    lock = recipe_cells.ROOTFS_WHEELS
    recipe = Recipe(cell=lock.cell, pinned=lock, files={}, blobs={}, inputs="", settings=settings)
    base = BaseLayers(layers=(), config={"architecture": "amd64", "os": "linux"})
    config = json.loads(final_config(recipe, base, (), SystemLayers(), ()))
    assert [entry["created_by"] for entry in config["history"]] == [
        f"ENV NASTY={NASTY}",
        r"""HEALTHCHECK &{["CMD" "a b" "-c"] "30s" "1m30s" "1h0m0s" "0s" '\x00'}""",
        'CMD ["bash" "-l"]',
        "LABEL a.b=c d",
    ]
    assert config["config"]["Env"] == [f"NASTY={NASTY}"]
    assert config["config"]["Cmd"] == ["bash", "-l"]
    assert config["config"]["Healthcheck"] == {
        "Test": ["CMD", "a b", "-c"],
        "Interval": 30 * 10**9,
        "Timeout": 90 * 10**9,
        "StartPeriod": 3600 * 10**9,
    }
