"""Reads ``buildx --progress=rawjson``: BuildKit's own status messages, and the plain text after them.

buildx 0.13 prints each message indented over several lines, later ones print one message per line; both
are JSON values in a row on stderr, followed by the human error text when a build fails. The decoder takes
bytes as they come, cut anywhere. The messages' fields are those of BuildKit's ``client.SolveStatus``
(https://github.com/moby/buildkit/blob/master/client/graph.go).
"""

from __future__ import annotations

import base64
import codecs
import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from builder.engine.events import BuildEvent, StepFinished, StepOutput, StepStarted, Transfer

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBERED = re.compile(r"^\[(?!internal\])[^\]]*\d+/\d+\]")
"""Names of Dockerfile steps: ``[2/5] RUN …``, ``[wheels 1/1] RUN …``; not ``[internal] load …``."""

_CANCELED = ": context canceled"
"""How BuildKit ends the error of a step that it stopped because another one failed."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


class MessageDecoder:
    """Splits a byte stream into JSON messages and lines of text, whatever the chunks look like."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._lines: list[str] = []
        """The lines of a message that is not whole yet, each with its newline."""
        self._rest = ""
        """The start of a line whose newline has not come yet."""

    def feed(self, chunk: bytes, *, final: bool = False) -> Iterator[dict[str, Any] | str]:
        """Yield each whole message as a mapping and each line of other text as a string."""
        *lines, self._rest = (self._rest + self._utf8.decode(chunk, final)).split("\n")
        for line in lines:
            yield from self._take(line)
        if final:
            if self._rest:
                yield from self._take(self._rest)
                self._rest = ""
            yield from self._give_up()

    def _take(self, line: str) -> Iterator[dict[str, Any] | str]:
        """Indented or not, a message begins with a line that begins with ``{``."""
        if not self._lines and not line.startswith("{"):
            yield line
            return
        if self._lines and line.startswith("{"):  # what began before was no message after all
            yield from self._give_up()
        self._lines.append(line)
        if not line.rstrip().endswith("}") or (len(self._lines) > 1 and line.rstrip() != "}"):
            return
        try:
            message = json.loads("\n".join(self._lines))
        except ValueError:
            return  # a line of text that only looks like one, or an inner object: see what follows
        self._lines.clear()
        yield message

    def _give_up(self) -> Iterator[str]:
        yield from self._lines
        self._lines.clear()


@dataclass
class _Step:
    name: str
    counts: bool
    number: int = 0
    """In the order in which steps begin; 0 for what is no step of the Dockerfile (``exporting to image``)."""
    started: bool = False
    finished: bool = False
    partial: dict[Literal["stdout", "stderr"], bytes] = field(default_factory=dict)
    """Output without its newline yet, by stream."""


class BuildProgress:
    """Turns BuildKit's messages, which repeat themselves, into events that each happen once."""

    def __init__(self) -> None:
        self._steps: dict[str, _Step] = {}
        self._transfers: dict[tuple[str, str], tuple[int, bool]] = {}
        self.total = 0
        self.begun = 0
        self.cached = 0
        self.failed: str | None = None
        """The name of the first step that failed by itself."""

    def events(self, message: dict[str, Any]) -> Iterator[BuildEvent]:
        """Yield what is new in ``message``."""
        for vertex in message.get("vertexes") or ():
            yield from self._vertex(vertex)
        for status in message.get("statuses") or ():
            yield from self._status(status)
        for log in message.get("logs") or ():
            yield from self._log(log)
        for warning in message.get("warnings") or ():
            short = warning.get("short")
            if short:
                text = base64.b64decode(short).decode("utf-8", "replace")
                yield StepOutput(step=self._name(warning), line=f"warning: {text}", stream="stderr")

    def finish(self) -> Iterator[BuildEvent]:
        """Yield output that ended without a newline."""
        for step in self._steps.values():
            yield from _flush(step)

    def _vertex(self, vertex: dict[str, Any]) -> Iterator[BuildEvent]:
        name = str(vertex.get("name", ""))
        step = self._steps.get(vertex["digest"])
        if step is None:
            counts = bool(_NUMBERED.match(name))
            self.total += int(counts)
            step = self._steps[vertex["digest"]] = _Step(name=name, counts=counts)
        cached = bool(vertex.get("cached"))
        if vertex.get("started") and not step.started:
            step.started = True
            if step.counts:
                self.begun += 1
                step.number = self.begun
            yield StepStarted(name=step.name, number=step.number, total=self.total)
        if vertex.get("completed") and step.started and not step.finished:
            yield from _flush(step)
            step.finished = True
            error = vertex.get("error") or None
            if error and self.failed is None and not error.endswith(_CANCELED):
                self.failed = step.name
            self.cached += int(cached and step.counts)
            seconds = max(0.0, _seconds(vertex["completed"]) - _seconds(vertex["started"]))
            yield StepFinished(
                name=step.name,
                number=step.number,
                total=self.total,
                seconds=seconds,
                cached=cached,
                error=error,
            )

    def _status(self, status: dict[str, Any]) -> Iterator[BuildEvent]:
        key = (status.get("vertex", ""), status["id"])
        done, finished = int(status.get("current", 0)), bool(status.get("completed"))
        if self._transfers.get(key) == (done, finished):
            return
        self._transfers[key] = (done, finished)
        yield Transfer(
            step=self._name(status),
            what=status["id"],
            done=done,
            total=status.get("total") or None,
            finished=finished,
        )

    def _log(self, log: dict[str, Any]) -> Iterator[BuildEvent]:
        step = self._steps.get(log.get("vertex", ""))
        if step is None:
            return
        stream: Literal["stdout", "stderr"] = "stderr" if log.get("stream") == 2 else "stdout"
        *lines, rest = (step.partial.pop(stream, b"") + base64.b64decode(log.get("data", ""))).split(b"\n")
        if rest:
            step.partial[stream] = rest.rpartition(b"\r")[2] or rest  # a progress bar keeps its last state
        for line in lines:
            yield StepOutput(step=step.name, line=printable_line(line), stream=stream)

    def _name(self, entry: dict[str, Any]) -> str:
        step = self._steps.get(entry.get("vertex", ""))
        return step.name if step else ""


def printable_line(line: bytes) -> str:
    """A line as a terminal would leave it: without colours, and after its last carriage return."""
    return _ANSI.sub("", line.decode("utf-8", "replace")).rstrip("\r").rpartition("\r")[2]


def _flush(step: _Step) -> Iterator[StepOutput]:
    for stream, rest in step.partial.items():
        yield StepOutput(step=step.name, line=printable_line(rest), stream=stream)
    step.partial.clear()


def _seconds(moment: str) -> float:
    """Seconds since 1970 of an RFC 3339 time with nanoseconds, which Python reads from 3.11 on."""
    return datetime.fromisoformat(moment).timestamp()
