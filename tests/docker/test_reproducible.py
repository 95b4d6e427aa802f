"""`rtbuild build --check-reproducible` on a real engine: a recipe that repeats, and one that does not."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import TYPE_CHECKING

import engines
import pytest
import tiny

from builder.core.errors import CellError
from builder.image import compose
from builder.image.engine.engine import Engine
from builder.image.recipe.values import Recipe, RecipeSetting, RecipeStep
from builder.pipeline.events import CellRun
from builder.pipeline.reproduce import compare_builds, refuse_difference
from builder.pipeline.run_context import BuildOptions, RunContext, Sources, Stores

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.core.model import Cell
    from builder.pipeline.events import Event

pytestmark = [pytest.mark.docker, pytest.mark.long]

STEADY = "mkdir -p /out/made; echo same > /out/made/file\n"
TIMES = "touch -d @1000000000 /out/made /out/made/*\n"
STAMP = "sleep 2; date +%s > /out/made/stamp\n"  # whole seconds are all that busybox tells


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.connect() as found:
        yield found


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.system(tmp_path_factory.mktemp("busybox"))


@pytest.fixture(autouse=True)
def _rootfs(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of mmdebstrap, which makes no system of no packages."""
    monkeypatch.setattr(compose, "cached_rootfs", lambda _base, **_given: system)


def recipe(script: str) -> Recipe:
    step = RecipeStep(name="made", script=script, makes=("made",))
    label = RecipeSetting(kind="LABEL", name=tiny.LABEL, value="1")
    return tiny.recipe("reproducible", step, files={}, settings=(label,))


@pytest.fixture
def site(engine: Engine, tmp_path: Path) -> Iterator[RunContext]:
    with site_with(engine, tmp_path) as found:
        yield found


@contextlib.contextmanager
def site_with(engine: Engine, tmp_path: Path) -> Iterator[RunContext]:
    cache = tmp_path / "cache"
    stores = Stores(cache=cache, repository="rtbuild-test")
    yield RunContext(lambda _event: None, Sources(cache=cache), stores, engine=engine)
    engine.remove("rtbuild-test/reproducible-test:reproducible")


def walk(cell: Cell) -> tuple[CellRun, list[Event]]:
    events: list[Event] = []
    return CellRun(cell, events.append, threading.Event()), events


def test_a_recipe_that_repeats_has_one_digest(site: RunContext, tmp_path: Path) -> None:
    made = recipe(STEADY + TIMES)
    comparison = compare_builds(walk(made.cell)[0], site, BuildOptions(results=tmp_path), made)
    assert comparison.same
    assert comparison.first.digest == comparison.second.digest
    assert site.engine is not None
    assert site.engine.inspect("rtbuild-test-again/reproducible-test:reproducible") is None
    assert comparison.document()["digests"] == [comparison.first.digest] * 2
    refuse_difference(comparison)


def test_a_date_in_a_file_is_found_and_named(site: RunContext, tmp_path: Path) -> None:
    random = "mktemp -u XXXXXXXXXX > /out/made/random\n"
    made = recipe(STEADY + random + STAMP + TIMES)
    comparison = compare_builds(walk(made.cell)[0], site, BuildOptions(results=tmp_path), made)
    assert not comparison.same
    with pytest.raises(CellError) as raised:
        refuse_difference(comparison)
    message = str(raised.value)
    assert "/stamp (content): it holds the time of the build" in message
    assert "/random" in message
    assert "/file" not in message
    assert comparison.kept is not None
    assert f"{comparison.kept / 'first'} {comparison.kept / 'second'}" in message
    stamps = {side: (comparison.kept / side / "stamp").read_text() for side in ("first", "second")}
    assert stamps["first"] != stamps["second"]
    files = [file["path"] for layer in comparison.document()["layers"] for file in layer["files"]]
    assert files == ["/random", "/stamp"]
    assert json.dumps(comparison.document())


def test_a_graph_driver_says_what_to_switch_and_compares_contents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engines.second_engine(store="graphdriver") as second:
        monkeypatch.setenv("DOCKER_HOST", second.host)
        with Engine.connect() as engine, site_with(engine, tmp_path) as site:
            made = recipe(STEADY + TIMES)
            way, events = walk(made.cell)
            comparison = compare_builds(way, site, BuildOptions(results=tmp_path), made)
            assert comparison.same
            assert not comparison.by_digest
            assert any("containerd-snapshotter" in note for note in way.notes)
            assert events
            comparison = compare_builds(
                walk(made.cell)[0], site, BuildOptions(results=tmp_path), recipe(STEADY + STAMP)
            )
            assert not comparison.same
            files = [file["path"] for layer in comparison.document()["layers"] for file in layer["files"]]
            assert "/stamp" in files
