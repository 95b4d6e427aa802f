"""Events as a trace in Chrome's trace-event format, which chrome://tracing and Perfetto's page open.

The format: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
Every event is sent by the thread that does the work, so the thread's clock of the processor and its bytes
(``/proc/thread-self/io``, man proc_pid_io) are read here, as a span begins and ends.
"""

import json
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from builder import __version__
from builder.cli.console.terminal import Terminal
from builder.core.documents import redact
from builder.core.errors import UsageError
from builder.core.files import write_whole
from builder.pipeline import (
    CellFinished,
    Event,
    Note,
    RunStarted,
    SpanFinished,
    SpanStarted,
    StageFinished,
    StageProgress,
    StageStarted,
)

LARGEST = 16 << 20
"""Bytes of events that a trace holds; those that come later are counted and left out."""
_SAMPLES = 2048
"""Samples of the machine that are kept; then every second one goes, and they are taken half as often."""
_INTERVAL = 0.25
"""Seconds between two samples at first."""
_LONGEST = 200
"""Characters of a text."""

Totals = dict[str, float]
"""Counts that only grow, by name. What cannot be read is absent."""


def thread_totals() -> Totals:
    """Totals of the calling thread: processor seconds, bytes read from and written to disks."""
    return {"processor_s": time.thread_time(), **_bytes("/proc/thread-self/io")}


def process_totals() -> Totals:
    """Totals of this process; ``programs_s`` is of the programs that it ran, and that have ended.

    The kernel adds the bytes of a program to its parent's as it ends. ``times`` counts in ticks of 10 ms and
    may be behind the clock of a thread; the clock of the process is not (man 2 times, clock_getres).
    """
    times = os.times()
    return {
        "processor_s": time.process_time(),
        "programs_s": times.children_user + times.children_system,
        **_bytes("/proc/self/io"),
    }


def machine_totals() -> Totals:
    """Totals of the whole machine, an engine's daemon and other users' programs among it.

    From ``/proc/stat`` and ``/proc/vmstat`` (man proc_stat, proc_vmstat).
    """
    found: Totals = {}
    for line in _lines("/proc/stat"):
        name, *values = line.split()
        if name == "cpu":
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, values[:8])
            ticks = user + nice + system + irq + softirq + steal
            found["processor_s"] = ticks / os.sysconf("SC_CLK_TCK")
    names = {"pgpgin": "read_bytes", "pgpgout": "written_bytes"}  # in KiB
    for line in _lines("/proc/vmstat"):
        name, _, value = line.partition(" ")
        if name in names:
            found[names[name]] = int(value) << 10
    return found


def _bytes(path: str) -> Totals:
    names = {"read_bytes": "read_bytes", "write_bytes": "written_bytes"}
    rows = (line.partition(": ") for line in _lines(path))
    return {names[name]: int(value) for name, _, value in rows if name in names}


def _lines(path: str) -> list[str]:
    """The lines of a file of the kernel; none if this kernel or container does not show it."""
    try:
        return Path(path).read_text("ascii").splitlines()
    except OSError:
        return []


def _between(before: Totals, after: Totals) -> Totals:
    return {name: round(after[name] - before[name], 6) for name in after if name in before}


@dataclass(frozen=True, kw_only=True)
class _OpenSpan:
    name: str
    kind: str
    """``stage`` or ``span``."""
    cell: str
    since: float
    totals: Totals


@dataclass(frozen=True, kw_only=True)
class _Sample:
    at: float
    process: Totals
    machine: Totals


class Trace:
    """Takes the events of a run within a ``with`` block, from any thread, and writes the file as it ends.

    The file is written when the run fails, too; one that cannot be written then is said, and changes nothing
    else. Raises UsageError for a path at which no file can be.
    """

    def __init__(self, path: Path, terminal: Terminal) -> None:
        _refuse_unwritable(path)
        self._path, self._terminal = path, terminal
        self._events: list[str] = []
        self._size = self._left_out = 0
        self._tracks: list[threading.Thread] = []
        self._open: dict[int, list[_OpenSpan]] = {}
        self._samples: list[_Sample] = []
        self._guard = threading.Lock()
        self._over = threading.Event()
        self._sampler = threading.Thread(target=self._take_samples, name="trace", daemon=True)
        self._begun = time.monotonic()

    def __enter__(self) -> Self:
        self._begun = time.monotonic()
        self._track()
        self._samples.append(self._sample())
        self._sampler.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over.set()
        self._sampler.join()
        with self._guard:
            self._samples.append(self._sample())
            content = self._document()
        try:
            write_whole(self._path, content)
        except OSError as problem:
            self._terminal.say(f"trace: not written: {problem}")
        else:
            self._terminal.say(f"trace: {self._path}")

    def __call__(self, event: Event) -> None:
        now, totals = time.monotonic(), thread_totals()
        with self._guard:
            track = self._track()
            match event:
                case StageStarted():
                    self._close(track, now, totals, kind="stage")
                    self._begin(track, event.stage, "stage", event.cell, now, totals)
                case SpanStarted():
                    self._begin(track, event.name, "span", event.cell, now, totals)
                case StageFinished():
                    self._close(track, now, totals, kind="stage", name=event.stage, said=event.text)
                case SpanFinished():
                    self._close(track, now, totals, kind="span", name=event.name, said="")
                case CellFinished(result=result):
                    error = result.error.message if result.error is not None else ""
                    self._close(track, now, totals, kind="stage", said=error or None)
                    self._instant(track, now, f"{result.cell.id}: {result.outcome}", error)
                case StageProgress():
                    if not event.quiet:
                        self._instant(track, now, event.text, event.cell)
                case Note():
                    self._instant(track, now, event.text, event.cell)
                case RunStarted():
                    pass  # the run's own row begins with the block

    def _track(self) -> int:
        """The number of this thread's track: that of a thread of its name that has ended, or a new one."""
        mine = threading.current_thread()
        for number, thread in enumerate(self._tracks, 1):
            if thread is mine:
                return number
        for number, thread in enumerate(self._tracks, 1):
            if thread.name == mine.name and not thread.is_alive():
                self._tracks[number - 1] = mine
                return number
        self._tracks.append(mine)
        return len(self._tracks)

    def _begin(self, track: int, name: str, kind: str, cell: str, now: float, totals: Totals) -> None:
        span = _OpenSpan(name=name, kind=kind, cell=cell, since=now, totals=totals)
        self._open.setdefault(track, []).append(span)

    def _close(
        self,
        track: int,
        now: float,
        totals: Totals,
        *,
        kind: str,
        name: str | None = None,
        said: str | None = None,
    ) -> None:
        """Write the innermost open span of this kind, and name if one is given, and whatever is in it.

        What nobody said the end of is marked as unfinished.
        """
        spans = self._open.get(track, [])
        places = [n for n, one in enumerate(spans) if one.kind == kind and name in (None, one.name)]
        if not places:
            return
        for one in reversed(spans[places[-1] :]):
            ended = one is spans[places[-1]] and said is not None
            self._complete(track, one, now, _between(one.totals, totals), said if ended else "unfinished")
        del spans[places[-1] :]

    def _complete(self, track: int, span: _OpenSpan, now: float, used: Totals, said: str | None) -> None:
        args: dict[str, object] = {**used, **({"said": _clipped(said)} if said else {})}
        if span.cell:
            args["cell"] = span.cell
        clock = {}
        if "processor_s" in used:
            begun = round(span.totals["processor_s"] * 1e6)
            clock = {"tts": begun, "tdur": round(used["processor_s"] * 1e6)}
        self._add(
            {
                "ph": "X",
                "name": _clipped(span.name),
                "cat": span.kind,
                "pid": os.getpid(),
                "tid": track,
                "ts": self._micros(span.since),
                "dur": round((now - span.since) * 1e6),
                **clock,
                "args": args,
            }
        )

    def _instant(self, track: int, now: float, text: str, more: str) -> None:
        place = {"pid": os.getpid(), "tid": track, "ts": self._micros(now)}
        args = {"more": _clipped(more)} if more else {}
        self._add({"ph": "i", "s": "t", "name": _clipped(text), "cat": "said", **place, "args": args})

    def _add(self, event: dict[str, Any]) -> None:
        text = json.dumps(event)
        if self._size + len(text) > LARGEST:
            self._left_out += 1
            return
        self._size += len(text)
        self._events.append(text)

    def _micros(self, moment: float) -> int:
        return round((moment - self._begun) * 1e6)

    def _sample(self) -> _Sample:
        return _Sample(at=time.monotonic(), process=process_totals(), machine=machine_totals())

    def _take_samples(self) -> None:
        interval = _INTERVAL
        while not self._over.wait(interval):
            with self._guard:
                self._samples.append(self._sample())
                if len(self._samples) > _SAMPLES:
                    del self._samples[1::2]
                    interval *= 2

    def _document(self) -> bytes:
        first, last = self._samples[0], self._samples[-1]
        totals = {
            "wall_s": round(last.at - first.at, 3),
            "cores": len(os.sched_getaffinity(0)),
            "rtbuild": _between(first.process, last.process),
            "machine": _between(first.machine, last.machine),
        }
        for track, spans in self._open.items():
            for one in reversed(spans):  # of threads that no longer say what they used
                self._complete(track, one, last.at, {}, "unfinished")
        rows = [*map(json.dumps, self._described(totals)), *self._events, *map(json.dumps, self._counters())]
        other = {"version": __version__, **totals, "left_out": self._left_out}
        head = f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(other)}, "traceEvents": [\n'
        return (head + ",\n".join(rows) + "\n]}\n").encode("ascii")

    def _described(self, totals: dict[str, Any]) -> list[dict[str, Any]]:
        """The names of process and tracks, and the run itself on the first of these."""
        place = {"pid": os.getpid(), "tid": 1}
        rows: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", **place, "args": {"name": "rtbuild"}}
        ]
        for number, thread in enumerate(self._tracks, 1):
            track = {"ph": "M", "pid": os.getpid(), "tid": number}
            rows.append({**track, "name": "thread_name", "args": {"name": thread.name}})
            rows.append({**track, "name": "thread_sort_index", "args": {"sort_index": number}})
        duration = round(totals["wall_s"] * 1e6)
        rows.append(
            {"ph": "X", "name": "run", "cat": "run", **place, "ts": 0, "dur": duration, "args": totals}
        )
        return rows

    def _counters(self) -> list[dict[str, Any]]:
        """Rates of process and machine between two samples, by the second."""
        rows: list[dict[str, Any]] = []
        for before, after in zip(self._samples, self._samples[1:], strict=False):
            seconds = after.at - before.at
            if seconds <= 0:
                continue
            for whose, old, new in (
                ("rtbuild", before.process, after.process),
                ("machine", before.machine, after.machine),
            ):
                used = _between(old, new)
                for name, key, unit in (
                    ("cores busy", "processor_s", 1.0),
                    ("MB/s read", "read_bytes", 1e6),
                    ("MB/s written", "written_bytes", 1e6),
                ):
                    if key in used:
                        value = round(used[key] / seconds / unit, 3)
                        row = {"ph": "C", "pid": os.getpid(), "ts": self._micros(before.at)}
                        rows.append({**row, "name": f"{whose}: {name}", "args": {name: value}})
        return rows


def _clipped(text: str) -> str:
    return redact(text)[:_LONGEST]


def _refuse_unwritable(path: Path) -> None:
    hint = "name a file in a folder that you may write to"
    if path.exists() and not path.is_file():
        raise UsageError(f"--trace {path} is there and is no file", hint=hint)
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise UsageError(f"--trace {path} cannot be written: {above} takes no file", hint=hint)
