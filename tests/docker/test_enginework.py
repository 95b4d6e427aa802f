"""Steps of a recipe that an engine runs, where a machine has no sandbox: the same layers, byte for byte."""

from __future__ import annotations

import subprocess
import threading
from typing import TYPE_CHECKING

import pytest
import tiny

from builder.core.errors import CommandError, MissingToolError
from builder.image.compose.cell_layers import LayerBuild, plan
from builder.image.compose.compose import compose_image
from builder.image.compose.run_steps import BaseCache, ComposeInput
from builder.image.compose.step_runners import EngineRunner, StepRunner, step_runner
from builder.image.engine.engine import WORKING, Engine
from builder.image.layers.store import LayerStore
from builder.image.recipe.values import RecipeFile, RecipeStep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.image.compose.compose import ComposedImage

pytestmark = pytest.mark.docker

ONE = """\
set -eu
umask 022
mkdir -p /out/one/bin /out/one/etc
cp /mnt/file /out/one/etc/file
ln -s /bin/busybox /out/one/bin/absolute
ln -s ../etc/file /out/one/bin/relative
mkdir -m 1777 /out/one/tmp
id -u > /out/one/etc/user
if [ -e /sys/class/net/eth0 ]; then echo "a network" >&2; exit 1; fi
touch -h -d @1000000000 /out/one /out/one/*/* /out/one/*
"""
TWO = """\
set -eu
umask 022
mkdir -p /out/two
find /out/one | sort > /out/two/list
touch -d @1000000000 /out/two /out/two/list
"""
STEPS = (
    RecipeStep(name="one", script=ONE, makes=("one",), files=(("file", "/mnt/file"),)),
    RecipeStep(name="two", script=TWO, makes=("two",), needs=("one",)),
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.connect() as found:
        yield found
    left = ["docker", "images", "-q", "--filter", f"reference={WORKING}/*"]
    assert subprocess.run(left, capture_output=True, text=True, check=True).stdout == ""


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.system(tmp_path_factory.mktemp("system"))


def composed(folder: Path, system: Path, runner: StepRunner, steps: tuple[RecipeStep, ...]) -> ComposedImage:
    recipe = tiny.recipe("steps", *steps, files={"file": RecipeFile(content=b"content", mode=0o640)})
    store = LayerStore(folder)
    lease = store.lease()
    with LayerBuild(given=plan(recipe.pinned, lease), rootfs=lambda _base: system) as missing:
        made = missing.finish()
    with BaseCache() as bench:
        image = compose_image(
            ComposeInput(
                recipe=recipe,
                plan=made,
                cancel=threading.Event(),
                base_cache=bench,
                runner=runner,
            )
        )
    lease.close()
    return image


def test_an_engine_makes_the_same_layers(engine: Engine, system: Path, tmp_path: Path) -> None:
    here = composed(tmp_path / "here", system, StepRunner(), STEPS)
    there = composed(tmp_path / "there", system, EngineRunner(engine), STEPS)
    for image in (here, there):
        assert sum(one.new for one in image.own if one.key.startswith("step-")) == 2
    assert there.layers == here.layers
    assert there.digest == here.digest


def test_a_step_that_fails_in_the_engine_shows_its_words(
    engine: Engine, system: Path, tmp_path: Path
) -> None:
    bad = (RecipeStep(name="one", script="echo its own words; exit 7\n", makes=("one",)), STEPS[1])
    with pytest.raises(CommandError, match="the step `one` failed in the engine") as raised:
        composed(tmp_path, system, EngineRunner(engine), bad)
    assert any("its own words" in line for line in raised.value.tail)


def test_it_is_chosen_where_the_machine_has_no_sandbox(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_self: StepRunner) -> None:
        raise MissingToolError("no namespaces")

    monkeypatch.setattr(StepRunner, "check", refused)
    assert isinstance(step_runner(engine), EngineRunner)
    with pytest.raises(MissingToolError):
        step_runner(None).check()
