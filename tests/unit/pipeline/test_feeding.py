"""Layers go to an engine while others are made: one on its way is in no part, and an end begins nothing."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from doubles.engine import EngineDouble

from builder.core.errors import CellError
from builder.image.layers.store import Layer
from builder.pipeline.image_build import LEAST, EngineLoad

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

LARGE = Layer(title="large", digest="sha256:a", diff_id="sha256:1", size=LEAST, unpacked=1, media_type="x")
SMALL = Layer(title="small", digest="sha256:b", diff_id="sha256:2", size=1, unpacked=1, media_type="x")


class SlowEngine(EngineDouble):
    """Takes a layer when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.told = threading.Event(), threading.Event()
        self.parts: list[list[str]] = []
        self.given = threading.Event()
        self.forgotten: set[str] = set()
        self.refuses = False

    def keep(self, _layer: Layer, _blob: Any, _name: str, **_options: Any) -> None:
        self.asked.set()
        assert self.told.wait(60)
        if self.refuses:
            raise CellError("an engine that takes no such manifest")

    def receive(self, image: Any, _blob: Any, _name: str, **_options: Any) -> None:
        self.parts.append([layer.title for layer in image.layers])
        self.given.set()

    def forget(self, kept: set[str]) -> None:
        self.forgotten |= kept


@pytest.fixture
def engine() -> SlowEngine:
    return SlowEngine()


@pytest.fixture
def feed(engine: SlowEngine, tmp_path: Path) -> EngineLoad:
    given: Any = engine
    given.memory = tmp_path
    return EngineLoad(given, blob=lambda _layer: tmp_path, cancel=threading.Event())


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_the_engine_is_given_is_a_span_of_the_thread_that_gives_it(
    engine: SlowEngine, tmp_path: Path
) -> None:
    spans: list[tuple[str, str]] = []

    def span(name: str) -> AbstractContextManager[None]:
        spans.append((name, threading.current_thread().name))
        return nullcontext()

    given: Any = engine
    given.memory = tmp_path
    engine.told.set()
    feed = EngineLoad(given, blob=lambda _layer: tmp_path, cancel=threading.Event(), span=span)
    with feed:
        feed.add(0, (LARGE,))
        assert engine.given.wait(60)
    assert sorted(spans) == [
        ("load and unpack the lowest 1 layers", "load-parts_0"),
        ("load large", "load-layers_0"),
    ]


@pytest.mark.parametrize("refuses", [False, True])
def test_a_part_waits_for_the_layers_that_are_on_their_way(
    engine: SlowEngine, feed: EngineLoad, *, refuses: bool
) -> None:
    engine.refuses = refuses
    with feed:
        feed.add(0, (LARGE,))
        assert engine.asked.wait(60)
        feed.add(1, (SMALL,))
        assert feed._parts.submit(lambda: list(engine.parts)).result(60) == []  # after what was asked before
        engine.told.set()
        assert engine.given.wait(60)
    assert engine.parts == [["large", "small"]]


def test_the_end_begins_nothing(engine: SlowEngine, feed: EngineLoad) -> None:
    with feed:
        feed.add(0, (LARGE,))
        assert engine.asked.wait(60)
        ending = threading.Thread(target=feed.finish)
        ending.start()
        until(lambda: feed._parts._shutdown)
        engine.told.set()
        ending.join(60)
    assert engine.parts == []


def test_the_engine_counts_on_nothing_whose_name_goes(engine: SlowEngine, feed: EngineLoad) -> None:
    engine.told.set()
    with feed:
        feed.add(1, (SMALL,))
        feed.add(0, (LARGE,))
        assert engine.given.wait(60)
    assert engine.forgotten == {LARGE.digest}
    assert len(engine.removed) == 2


def test_layers_above_one_that_is_missing_are_in_no_part(engine: SlowEngine, feed: EngineLoad) -> None:
    engine.told.set()
    with feed:
        feed.add(2, (SMALL,))
        feed.add(0, (LARGE,))
        assert engine.given.wait(60)
        feed.add(1, (SMALL,))
    assert engine.parts == [["large"]]  # what the others add is too little for a part of its own
