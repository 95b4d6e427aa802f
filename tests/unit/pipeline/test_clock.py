"""A clock that is wrong, jumps or goes back: no time of the machine enters an image, and nothing waits."""

from __future__ import annotations

import datetime
import hashlib
import itertools
import os
import threading
import time
from typing import TYPE_CHECKING

import layer_wheels
import pytest

from builder.image.compose.cell_layers import plan
from builder.image.layers.store import Layer, LayerStore
from builder.image.recipe.rendering import render
from builder.image.recipe.values import write
from builder.pipeline.events import CellRun, Stage, StageFinished

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from builder.core.model import Pinned
    from builder.pipeline.events import Event

CLOCKS: dict[str, Callable[[], itertools.count[float]]] = {
    "before 1980, where zip files begin": lambda: itertools.count(1.0, 1.0),
    "after 2038": lambda: itertools.count(4_000_000_000.0, 1.0),
    "an hour back at each look": lambda: itertools.count(1_795_000_000.0, -3600.0),
    "a year ahead at each look": lambda: itertools.count(1_795_000_000.0, 365 * 86400.0),
}


def set_clock(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    ticks = CLOCKS[name]()
    monkeypatch.setattr(time, "time", lambda: next(ticks))
    monkeypatch.setattr(time, "time_ns", lambda: int(next(ticks) * 1e9))

    class Wrong(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return datetime.datetime.fromtimestamp(max(0.0, next(ticks)), tz)

    monkeypatch.setattr(datetime, "datetime", Wrong)


def cell(folder: Path) -> tuple[Pinned, dict[str, Path]]:
    folder.mkdir()
    builder = layer_wheels.Builder(folder)
    made = [builder.wheel("one", {"one/__init__.py": b"VALUE = 1\n"}), builder.pip()]
    return layer_wheels.pinned(made), layer_wheels.paths(made)


def digests(folder: Path) -> list[str]:
    """All that goes into an image from here: the layers, the recipe's inputs, its files with their times."""
    pinned, paths = cell(folder)
    store, rootfs = LayerStore(folder / "store", limit=10**9), folder / "rootfs.tar"
    rootfs.write_bytes(b"\0" * 10240)
    lease = store.lease()
    given = plan(pinned, lease)
    made = layer_wheels.make_missing(given, wheel_paths=paths, rootfs_tar=rootfs)
    recipe = render(pinned, probe=b"probe", version="1")
    blobs = dict.fromkeys(recipe.blobs, rootfs)
    write(recipe, folder / "recipe", blobs=blobs)
    files = [folder / "recipe" / name for name in recipe.files]
    lease.close()
    return [
        *(made.known[group].digest for group in made.groups),
        *(layer.digest for layer in made.base.layers),
        recipe.inputs,
        *(f"{path.name} {path.stat().st_mtime_ns} {path.stat().st_mode:o}" for path in files),
    ]


@pytest.mark.parametrize("clock", CLOCKS)
def test_no_time_of_the_machine_enters_an_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: str
) -> None:
    right = digests(tmp_path / "right")
    set_clock(monkeypatch, clock)
    assert digests(tmp_path / "wrong") == right


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_stage_takes_the_seconds_that_it_took(monkeypatch: pytest.MonkeyPatch, clock: str) -> None:
    set_clock(monkeypatch, clock)
    events: list[Event] = []
    pinned = layer_wheels.pinned([])
    walk = CellRun(pinned.cell, events.append, threading.Event())
    with walk.stage(Stage.BUILD):
        pass
    (finished,) = [event for event in events if isinstance(event, StageFinished)]
    assert 0 <= finished.seconds < 5


@pytest.mark.parametrize("stamp", [1.0, 4_000_000_000.0])
def test_a_layer_with_a_strange_time_is_as_good_as_any(tmp_path: Path, stamp: float) -> None:
    """Files out of a clock's past and future: what was used is what counts, and what is leased stays."""
    pinned, paths = cell(tmp_path / "cell")
    store = LayerStore(tmp_path / "store")
    lease = store.lease()
    rootfs = tmp_path / "rootfs.tar"
    rootfs.write_bytes(b"\0" * 10240)
    given = plan(pinned, lease)
    made = layer_wheels.make_missing(given, wheel_paths=paths, rootfs_tar=rootfs)
    digest = made.known[made.groups[0]].digest
    for path in (store.blob(digest), *store.folder("index").iterdir(), *store.folder("hashed").iterdir()):
        os.utime(path, (stamp, stamp))
    assert store.prune(0) == 0, "all is leased"
    again = plan(pinned, LayerStore(tmp_path / "store").lease())
    assert again.known.keys() == made.known.keys()
    again.lease.close()
    lease.close()
    assert store.prune(0) > 0
    assert not store.blob(digest).exists()


def test_a_clock_that_jumps_ahead_takes_no_layer_away_that_is_being_made(tmp_path: Path) -> None:
    """To whoever prunes meanwhile, everything that was written before the jump is old."""
    store, other = LayerStore(tmp_path / "store"), LayerStore(tmp_path / "store")
    lease = store.lease()

    def make(target: Path) -> Layer:
        target.write_bytes(b"layer")
        os.utime(target, (1.0, 1.0))
        other.prune(0)
        digest = "sha256:" + hashlib.sha256(b"layer").hexdigest()
        return Layer(title="a", digest=digest, diff_id=digest, size=5, unpacked=5, media_type="x")

    record = lease.obtain("key", make)
    assert record.new
    assert store.blob(record.digest).read_bytes() == b"layer"
    left = tmp_path / "store" / "tmp" / "of-a-process-that-died"
    left.write_bytes(b"half a layer")
    os.utime(left, (1.0, 1.0))
    other.prune(0)
    assert not left.exists()
