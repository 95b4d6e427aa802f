"""Many cells at a time: one bad cell stops no other, Ctrl-C keeps what has finished."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from builder.core.errors import CancelledError, CellError, MissingToolError
from builder.core.model import Base, Cell, Cuda
from builder.pipeline.events import (
    CellFinished,
    CellOutcome,
    CellResult,
    CellRun,
    Event,
    Hooks,
    SpanFinished,
    SpanStarted,
    Stage,
    StageFinished,
    each,
)


def hooks(events: list[Event], cancel: threading.Event) -> Hooks:
    return Hooks(emit=events.append, cancel=cancel)


def cell(name: str) -> Cell:
    return Cell(
        id=name,
        matrix="m",
        frameworks=("six==1.17.0",),
        python="3.11",
        base=Base(kind="rootfs", name="debian/bookworm"),
        cuda=Cuda(provider="none"),
    )


def walks(names: str, events: list[Event], cancel: threading.Event) -> list[CellRun]:
    return [CellRun(cell(name), events.append, cancel) for name in names]


def done(walk: CellRun) -> CellResult:
    return CellResult(cell=walk.cell, outcome=CellOutcome.DONE, stage=walk.current, seconds=walk.seconds)


def test_results_come_in_the_order_of_the_cells_not_of_their_ends() -> None:
    events: list[Event] = []
    cancel, ended = threading.Event(), threading.Event()

    def function(walk: CellRun) -> CellResult:
        if walk.cell.id == "a":
            assert ended.wait(60)
        if walk.cell.id == "c":
            ended.set()
        return done(walk)

    results = each(
        walks("abc", events, cancel), function, jobs=3, hooks=Hooks(emit=events.append, cancel=cancel)
    )
    assert [r.cell.id for r in results if r] == ["a", "b", "c"]
    assert {e.result.cell.id for e in events if isinstance(e, CellFinished)} == {"a", "b", "c"}


def test_a_bad_cell_ends_alone() -> None:
    events: list[Event] = []
    cancel = threading.Event()

    def function(walk: CellRun) -> CellResult:
        with walk.stage(Stage.BUILD):
            if walk.cell.id == "b":
                raise CellError("no such wheel", hint="look again")
        return done(walk)

    results = each(
        walks("abc", events, cancel), function, jobs=1, hooks=Hooks(emit=events.append, cancel=cancel)
    )
    assert [r.outcome for r in results if r] == [CellOutcome.DONE, CellOutcome.FAILED, CellOutcome.DONE]
    failed = results[1]
    assert failed is not None
    assert failed.stage is Stage.BUILD
    assert failed.error is not None
    assert failed.error.hint == "look again"
    assert Stage.BUILD in failed.seconds
    assert not cancel.is_set()


def test_what_the_machine_lacks_stops_all_and_is_raised() -> None:
    events: list[Event] = []
    cancel = threading.Event()
    ran = []

    def function(walk: CellRun) -> CellResult:
        with walk.stage(Stage.BUILD):
            ran.append(walk.cell.id)
            if walk.cell.id == "a":
                raise MissingToolError("disk full")
            assert cancel.wait(60), "the run was not told to stop"
        return done(walk)

    with pytest.raises(MissingToolError, match="disk full"):
        each(
            walks("abcdef", events, cancel), function, jobs=2, hooks=Hooks(emit=events.append, cancel=cancel)
        )
    assert cancel.is_set()
    assert len(ran) < 6


def test_what_a_cell_lacks_after_ctrl_c_is_no_fault_of_it() -> None:
    """Its children get the signal, too, and its temporary files go."""
    events: list[Event] = []
    cancel = threading.Event()

    def function(cell_run: CellRun) -> CellResult:
        cancel.set()
        raise FileNotFoundError(2, "No such file or directory", "/tmp/rtbuild-0-x/log")

    (result,) = each(walks("a", events, cancel), function, hooks=hooks(events, cancel))
    assert isinstance(result, CellResult)
    assert result.outcome is CellOutcome.CANCELLED
    assert "interrupted" in str(result.error)
    assert "Errno" not in str(result.error)


def test_a_cancelled_cell_goes_on_to_no_other_piece_of_its_stage() -> None:
    cancel = threading.Event()
    walk = CellRun(cell("a"), lambda _: None, cancel)
    walk.go_on()
    cancel.set()
    with pytest.raises(CancelledError, match="a: interrupted at"):
        walk.go_on()


def test_ctrl_c_keeps_what_has_finished_and_cancels_the_rest() -> None:
    events: list[Event] = []
    cancel = threading.Event()

    def function(walk: CellRun) -> CellResult:
        with walk.stage(Stage.BUILD):
            if walk.cell.id == "b":
                os.kill(os.getpid(), signal.SIGINT)
                assert cancel.wait(60), "the run was not told to stop"
        with walk.stage(Stage.VERIFY):
            return done(walk)

    results = each(
        walks("abc", events, cancel), function, jobs=1, hooks=Hooks(emit=events.append, cancel=cancel)
    )
    assert [r.outcome for r in results if r] == [
        CellOutcome.DONE,
        CellOutcome.CANCELLED,
        CellOutcome.CANCELLED,
    ]


def test_a_cell_that_goes_on_has_no_result_and_no_end() -> None:
    events: list[Event] = []
    cancel = threading.Event()
    results = each(
        walks("a", events, cancel), lambda _: None, jobs=1, hooks=Hooks(emit=events.append, cancel=cancel)
    )
    assert results == [None]
    assert events == []


def test_a_span_says_its_end_in_its_thread_however_it_ends() -> None:
    events: list[tuple[Event, str]] = []
    name = threading.current_thread().name
    walk = CellRun(
        cell("a"), lambda e: events.append((e, threading.current_thread().name)), threading.Event()
    )
    with pytest.raises(CellError), walk.span("step"):
        raise CellError("it failed")
    began, ended = SpanStarted(name="step", cell="a"), SpanFinished(name="step", cell="a")
    assert events == [(began, name), (ended, name)]


def test_a_stage_says_how_long_it_took_and_what_came_of_it() -> None:
    events: list[Event] = []
    walk = CellRun(cell("a"), events.append, threading.Event())
    with walk.stage(Stage.LOCK):
        walk.done("45 wheels")
    finished = [e for e in events if isinstance(e, StageFinished)]
    assert [(e.stage, e.text) for e in finished] == [(Stage.LOCK, "45 wheels")]
    assert walk.seconds[Stage.LOCK] >= 0
