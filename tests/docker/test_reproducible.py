"""`rtbuild build --check-reproducible` on a real engine: a recipe that repeats, and one that does not."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import TYPE_CHECKING

import engines
import pytest
import tiny

from builder.debian.archive import Debian
from builder.engine import Engine
from builder.errors import CellError
from builder.index.client import Index
from builder.model import Base, Cell, Cuda, Pinned, RootfsBase
from builder.oci.registry import Registry
from builder.pipeline.reproduce import compare_builds, refuse_difference
from builder.pipeline.schedule import Walk
from builder.pipeline.settings import Settings
from builder.pipeline.stages import Site
from builder.recipe.values import Recipe, RecipeFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.pipeline.events import Event

pytestmark = [pytest.mark.docker, pytest.mark.long]

SHELL = 'RUN --network=none ["/bin/sh", "-c", "'
STEADY = f"""{SHELL}mkdir /made; echo same > /made/file; touch -d @1000000000 /made/file /made"]
"""
STAMP = "sleep 2; date +%s > /made/stamp"  # whole seconds are all that busybox tells: no two builds in one


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.connect() as found:
        yield found


@pytest.fixture(scope="module")
def busybox(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny.busybox(tmp_path_factory.mktemp("busybox")).read_bytes()


def recipe(busybox: bytes, steps: str) -> Recipe:
    cell = Cell(
        id="steady",
        matrix="reproducible-test",
        frameworks=("six==1.17.0",),
        python="3.11",
        base=Base(kind="rootfs", name="debian/bookworm"),
        cuda=Cuda(provider="none"),
    )
    base = RootfsBase(suite="bookworm", debs=(), epoch=1_000_000_000)
    # One COPY and one RUN, each with its times set: what is built is as old in every build.
    dockerfile = (
        "FROM scratch AS made\nCOPY --chmod=0755 busybox /bin/busybox\n"
        'RUN --network=none ["/bin/busybox", "--install", "-s", "/bin"]\n'
        f"{steps}"
        "FROM scratch\n"
        "COPY --link --from=made /made/ /made/\n"
        f"LABEL {tiny.LABEL}=1\n"
    )
    return Recipe(
        cell=cell,
        pinned=Pinned(cell=cell, base=base, wheels=(), epoch=1_000_000_000),
        files={
            "Dockerfile": RecipeFile(content=dockerfile.encode()),
            "busybox": RecipeFile(content=busybox, mode=0o755),
        },
        blobs={},
        inputs="sha256:" + "1" * 64,
    )


@pytest.fixture
def site(engine: Engine, tmp_path: Path) -> Iterator[Site]:
    with site_with(engine, tmp_path) as found:
        yield found


@contextlib.contextmanager
def site_with(engine: Engine, tmp_path: Path) -> Iterator[Site]:
    settings = Settings(
        layers=False,
        no_cache=True,
        verify=False,
        cache=tmp_path / "cache",
        results=tmp_path / "results",
        repository="rtbuild-test",
    )
    yield Site(
        settings=settings,
        registry=Registry.from_user({}),
        debian=Debian.from_user(cache=settings.cache),
        index=Index.from_user(),
        keepers={},
        engine=engine,
    )
    engine.remove(settings.image_name("reproducible-test", "steady"))


def walk(cell: Cell) -> tuple[Walk, list[Event]]:
    events: list[Event] = []
    return Walk(cell, events.append, threading.Event()), events


def test_a_recipe_that_repeats_has_one_digest(site: Site, busybox: bytes) -> None:
    made = recipe(busybox, STEADY)
    comparison = compare_builds(walk(made.cell)[0], site, made)
    assert comparison.same
    assert comparison.first.digest == comparison.second.digest
    assert site.engine is not None
    assert site.engine.inspect("rtbuild-test-again/reproducible-test:steady") is None
    assert comparison.document()["digests"] == [comparison.first.digest] * 2
    refuse_difference(comparison)


def test_a_date_in_a_file_is_found_and_named(site: Site, busybox: bytes) -> None:
    steps = STEADY + f"{SHELL}cat /proc/uptime /proc/sys/kernel/random/uuid > /made/random;"
    steps += f' {STAMP}; touch -d @1000000000 /made /made/*"]\n'
    made = recipe(busybox, steps)
    comparison = compare_builds(walk(made.cell)[0], site, made)
    assert not comparison.same
    with pytest.raises(CellError) as raised:
        refuse_difference(comparison)
    message = str(raised.value)
    assert "/made/stamp (content): it holds the time of the build" in message
    assert "/made/random" in message
    assert "/made/file" not in message
    assert comparison.kept is not None
    assert f"{comparison.kept / 'first'} {comparison.kept / 'second'}" in message
    stamps = {side: (comparison.kept / side / "made" / "stamp").read_text() for side in ("first", "second")}
    assert stamps["first"] != stamps["second"]
    files = [file["path"] for layer in comparison.document()["layers"] for file in layer["files"]]
    assert files == ["/made/random", "/made/stamp"]
    assert json.dumps(comparison.document())


def test_a_graph_driver_says_what_to_switch_and_compares_contents(
    tmp_path: Path, busybox: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engines.second_engine(store="graphdriver") as second:
        monkeypatch.setenv("DOCKER_HOST", second.host)
        with Engine.connect() as engine, site_with(engine, tmp_path) as site:
            made = recipe(busybox, STEADY)
            way, events = walk(made.cell)
            comparison = compare_builds(way, site, made)
            assert comparison.same
            assert not comparison.by_digest
            assert any("containerd-snapshotter" in note for note in way.notes)
            assert events
            steps = STEADY + f'{SHELL}{STAMP}"]\n'
            comparison = compare_builds(walk(made.cell)[0], site, recipe(busybox, steps))
            assert not comparison.same
            files = [file["path"] for layer in comparison.document()["layers"] for file in layer["files"]]
            assert "/made/stamp" in files
