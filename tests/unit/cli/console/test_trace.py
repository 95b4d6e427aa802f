"""A trace holds what the events said, on the track of the thread that said it, and is whole or not there."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from builder.cli.console import trace as traces
from builder.cli.console.terminal import Terminal
from builder.cli.console.trace import Trace
from builder.cli.walking import walk
from builder.core.errors import CellError, MissingToolError, UsageError
from builder.core.model import Base, Cell, Cuda
from builder.pipeline.events import (
    CellOutcome,
    CellRun,
    Hooks,
    Note,
    SpanFinished,
    SpanStarted,
    Stage,
    StageProgress,
    walk_all,
)

if TYPE_CHECKING:
    from pathlib import Path

    from builder.pipeline.events import CellResult

TERMINAL = Terminal(progress="none", color=False, github=False)


def cell(name: str) -> Cell:
    base = Base(kind="rootfs", name="debian/bullseye")
    return Cell(
        id=name, matrix="m", frameworks=("six==1.16.0",), python="3.9", base=base, cuda=Cuda(provider="none")
    )


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_bytes())
    return document


def rows(path: Path, kind: str = "X") -> list[dict[str, Any]]:
    """The rows of a kind, each with the name of its track."""
    events = read(path)["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    return [{**e, "track": names.get(e.get("tid"))} for e in events if e["ph"] == kind]


def row(path: Path, name: str) -> dict[str, Any]:
    (found,) = [one for one in rows(path) if one["name"] == name]
    return found


def works(cell_run: CellRun, seconds: float = 0.0) -> CellResult:
    with cell_run.stage(Stage.LAYERS):
        with ThreadPoolExecutor(1, thread_name_prefix="layers") as pool:
            pool.submit(_burn, cell_run, seconds).result()
        with cell_run.span("wait"):
            pass
        cell_run.done("all made")
    return cell_run.ended(CellOutcome.DONE)


def _burn(cell_run: CellRun, seconds: float) -> None:
    with cell_run.span("layer of numpy"):
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass


def walked(path: Path, *names: str, function: Any = works) -> list[CellResult]:
    def run(hooks: Hooks) -> list[CellResult]:
        return walk_all([cell(name) for name in names], (Stage.LAYERS,), function, hooks, jobs=1)

    return walk(TERMINAL, run, trace=path)


def test_each_span_is_on_the_track_of_its_thread_with_what_that_used(tmp_path: Path) -> None:
    path = tmp_path / "new" / "trace.json"
    walked(path, "a", function=partial(works, seconds=0.5))
    stage, layer, wait = row(path, "layers"), row(path, "layer of numpy"), row(path, "wait")
    assert stage["track"] == wait["track"] == "cell_0"
    assert layer["track"] == "layers_0"
    assert stage["ts"] <= layer["ts"]
    assert layer["ts"] + layer["dur"] <= stage["ts"] + stage["dur"]
    assert layer["tdur"] >= 500_000 > stage["tdur"]
    assert layer["args"]["cell"] == "a"
    assert stage["args"]["said"] == "all made"
    run = row(path, "run")
    assert run["track"] == threading.main_thread().name
    assert run["args"]["rtbuild"]["processor_s"] >= 0.5
    assert run["dur"] >= stage["dur"]
    assert not list(path.parent.glob(".*")), "nothing is left beside it"


def test_what_each_thread_wrote_stands_beside_its_spans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([{"written_bytes": 10}, {"written_bytes": 4106}, {}, {"written_bytes": 5}])
    monkeypatch.setattr(traces, "thread_totals", lambda: next(counts))
    path = tmp_path / "trace.json"
    with Trace(path, TERMINAL) as trace:
        for name in ("read", "unread"):
            trace(SpanStarted(name=name))
            trace(SpanFinished(name=name))
    assert row(path, "read")["args"] == {"written_bytes": 4096}
    assert row(path, "unread")["args"] == {}, "what nobody could read is no zero"


def test_the_kernel_says_what_thread_process_and_machine_used() -> None:
    for totals in (traces.thread_totals(), traces.process_totals(), traces.machine_totals()):
        assert {"processor_s", "read_bytes", "written_bytes"} <= totals.keys()
        assert totals["processor_s"] > 0


def test_the_clock_of_the_process_is_as_fine_as_that_of_a_thread() -> None:
    for _ in range(20):
        process, thread = traces.process_totals()["processor_s"], time.thread_time()
        while time.thread_time() < thread + 0.002:
            pass
        assert traces.process_totals()["processor_s"] >= process + 0.002


def test_a_stage_that_fails_ends_with_its_error(tmp_path: Path) -> None:
    def fails(cell_run: CellRun) -> CellResult:
        with cell_run.stage(Stage.BUILD), cell_run.span("step"):
            raise CellError("no wheel fits")

    path = tmp_path / "trace.json"
    (result,) = walked(path, "a", function=fails)
    assert result.outcome is CellOutcome.FAILED
    assert row(path, "build")["args"]["said"] == "no wheel fits"
    assert "said" not in row(path, "step")["args"]
    assert [one["name"] for one in rows(path, "i")] == ["a: failed"]


def test_it_is_written_if_the_run_ends_by_an_error(tmp_path: Path) -> None:
    def fails(cell_run: CellRun) -> CellResult:
        with cell_run.stage(Stage.BUILD):
            raise MissingToolError("the disk is full")

    path = tmp_path / "trace.json"
    path.write_text("of an earlier run")
    with pytest.raises(MissingToolError):
        walked(path, "a", function=fails)
    assert row(path, "build")["args"]["said"] == "unfinished"


def test_what_is_open_at_the_end_has_no_figures(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with Trace(path, TERMINAL) as trace:
        trace(SpanStarted(name="forgotten"))
    found = row(path, "forgotten")
    assert found["args"] == {"said": "unfinished"}
    assert "tdur" not in found


def test_a_thread_takes_the_track_of_one_that_ended(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    walked(path, *"abcdef")
    tracks = {e["tid"]: e["args"]["name"] for e in read(path)["traceEvents"] if e["name"] == "thread_name"}
    assert sorted(tracks.values()) == sorted([threading.main_thread().name, "cell_0", "layers_0"])
    assert len([one for one in rows(path) if one["name"] == "layer of numpy"]) == 6


def test_threads_of_one_name_that_work_at_once_have_a_track_each(tmp_path: Path) -> None:
    path, both = tmp_path / "trace.json", threading.Barrier(2)

    def work(trace: Trace) -> None:
        trace(SpanStarted(name="x"))
        both.wait(60)
        trace(SpanFinished(name="x"))

    with Trace(path, TERMINAL) as trace:
        threads = [threading.Thread(target=work, args=(trace,), name="same") for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({one["tid"] for one in rows(path) if one["name"] == "x"}) == 2


def test_it_has_an_end_and_says_what_it_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "LARGEST", 4096)
    monkeypatch.setattr(traces, "_INTERVAL", 60)  # samples of the machine come on top, with time
    path = tmp_path / "trace.json"
    with Trace(path, TERMINAL) as trace:
        for number in range(500):
            trace(Note(text=f"{number} " + "x" * 10_000))
    said = rows(path, "i")
    assert path.stat().st_size < 4096 + 8192
    assert len(said) + read(path)["otherData"]["left_out"] == 500
    assert all(len(one["name"]) == 200 for one in said)


def test_samples_of_a_long_run_become_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_SAMPLES", 8)
    monkeypatch.setattr(traces, "_INTERVAL", 0.001)
    path = tmp_path / "trace.json"
    taken = threading.Event()
    machine = traces.machine_totals

    def counted() -> dict[str, float]:
        calls.append(1)
        if len(calls) > 20:
            taken.set()
        return machine()

    calls: list[int] = []
    monkeypatch.setattr(traces, "machine_totals", counted)
    with Trace(path, TERMINAL):
        assert taken.wait(60)
    counters = [one for one in rows(path, "C") if one["name"] == "machine: cores busy"]
    assert 1 <= len(counters) <= 9
    assert all(one["args"]["cores busy"] >= 0 for one in counters)


def test_no_login_is_in_it_and_progress_for_the_board_alone_is_not(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with Trace(path, TERMINAL) as trace:
        trace(Note(text="asking https://me:secret@index.example/simple", cell="a"))
        trace(StageProgress(cell="a", stage=Stage.FETCH, text="12 of 34 MB", quiet=True))
    (said,) = rows(path, "i")
    assert "secret" not in path.read_text()
    assert said["name"] == "asking https://index.example/simple"


def test_a_place_that_takes_no_file_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path, tmp_path / "file" / "trace.json", type(tmp_path)("/dev/null")):
        with pytest.raises(UsageError, match="--trace"):
            walked(place, "a", function=lambda _: pytest.fail("the run began"))


def test_a_trace_that_cannot_be_written_at_the_end_changes_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(cell_run: CellRun) -> CellResult:
        (tmp_path / "new").write_text("in the way of the folder")
        return works(cell_run)

    (result,) = walked(tmp_path / "new" / "trace.json", "a", function=breaks)
    assert result.outcome is CellOutcome.DONE
    assert "trace: not written" in capsys.readouterr().err
