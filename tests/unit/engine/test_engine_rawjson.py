"""BuildKit's messages as recorded from buildx 0.13.1 on Docker Engine 26.1.5, cut in all manners."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from builder.engine.events import BuildEvent, StepFinished, StepOutput, StepStarted, Transfer
from builder.engine.rawjson import BuildProgress, MessageDecoder

DATA = Path(__file__).parent / "data"
RECORDED = sorted(path.stem for path in DATA.glob("*.rawjson"))


def decode(raw: bytes, size: int) -> list[dict | str]:
    decoder = MessageDecoder()
    items: list[dict | str] = []
    for start in range(0, len(raw), size):
        items += decoder.feed(raw[start : start + size])
    return items + list(decoder.feed(b"", final=True))


def replay(name: str) -> tuple[list[BuildEvent], list[str], BuildProgress]:
    progress, events, text = BuildProgress(), [], []
    for item in decode((DATA / f"{name}.rawjson").read_bytes(), 4096):
        if isinstance(item, str):
            text.append(item)
        else:
            events += progress.events(item)
    return events + list(progress.finish()), text, progress


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_chunks_may_be_cut_anywhere(name: str, size: int) -> None:
    raw = (DATA / f"{name}.rawjson").read_bytes()
    assert decode(raw, size) == decode(raw, len(raw))


@pytest.mark.parametrize("name", RECORDED)
def test_one_message_per_line_reads_the_same(name: str) -> None:
    whole = decode((DATA / f"{name}.rawjson").read_bytes(), 4096)
    lines = "".join((item if isinstance(item, str) else json.dumps(item)) + "\n" for item in whole)
    assert decode(lines.encode(), 64) == whole


def test_text_that_looks_like_a_message_stays_text() -> None:
    raw = b'{ this is no JSON }\n{"vertexes": []}\n{\nhalf a message\n'
    assert decode(raw, 3) == ["{ this is no JSON }", {"vertexes": []}, "{", "half a message"]


def test_steps_are_counted_in_the_order_in_which_they_begin() -> None:
    events, text, progress = replay("success")
    started = [event for event in events if isinstance(event, StepStarted) and event.number]
    assert [(event.number, event.total, event.name.split("]")[0]) for event in started] == [
        (1, 3, "[base 1/2"),
        (2, 3, "[base 2/2"),
        (3, 3, "[wheels 1/1"),
    ]
    finished = [event for event in events if isinstance(event, StepFinished) and event.number]
    assert [event.number for event in finished] == [1, 2, 3]
    assert 1.0 < finished[2].seconds < 2.0
    assert not any(event.cached or event.error for event in finished)
    assert (text, progress.failed, progress.cached) == ([], None, 0)


def test_output_says_its_stream() -> None:
    events, _, _ = replay("success")
    output = {(event.line, event.stream) for event in events if isinstance(event, StepOutput)}
    assert output == {("hello", "stdout"), ("err", "stderr"), ("done", "stdout")}


def test_transfers_end_with_their_size() -> None:
    events, _, _ = replay("success")
    ended = {event.what: event.done for event in events if isinstance(event, Transfer) and event.finished}
    assert ended["transferring context:"] == 1982653
    assert "unpacking to docker.io/library/eng-test:1" in ended


def test_cached_steps_are_told_apart() -> None:
    events, _, progress = replay("cached")
    assert (progress.total, progress.cached) == (3, 3)
    assert all(event.cached for event in events if isinstance(event, StepFinished) and event.number)


def test_the_failed_step_is_the_one_that_failed_by_itself() -> None:
    events, text, progress = replay("parallel")
    assert progress.failed is not None
    assert progress.failed.startswith("[bad 1/1]")
    errors = [event.name for event in events if isinstance(event, StepFinished) and event.error]
    assert {name.split("]")[0] for name in errors} == {"[bad 1/1", "[slow 1/1"}
    assert text[-1].startswith("ERROR: failed to solve:")


def test_output_is_what_a_terminal_would_leave() -> None:
    events, _, _ = replay("parallel")
    lines = [event.line for event in events if isinstance(event, StepOutput)]
    assert [line for line in lines if line != "no newline"] == ["ä café", "red", "100%"]
    assert "no newline" in lines


def test_a_letter_cut_in_two_messages_is_one_letter() -> None:
    progress = BuildProgress()
    vertex = {"digest": "sha256:1", "name": "[1/1] RUN x", "started": "2026-01-01T00:00:00.123456789Z"}
    list(progress.events({"vertexes": [vertex]}))

    def log(data: bytes) -> list[BuildEvent]:
        message = {"vertex": "sha256:1", "stream": 1, "data": base64.b64encode(data).decode()}
        return list(progress.events({"logs": [message]}))

    assert log("é".encode()[:1]) == []
    assert log("é".encode()[1:] + b"\n") == [StepOutput(step="[1/1] RUN x", line="é", stream="stdout")]


def test_a_progress_bar_does_not_pile_up() -> None:
    progress = BuildProgress()
    vertex = {"digest": "sha256:1", "name": "[1/1] RUN x", "started": "2026-01-01T00:00:00Z"}
    list(progress.events({"vertexes": [vertex]}))
    for percent in range(100):
        data = base64.b64encode(f"\r{percent}%".encode()).decode()
        assert not list(progress.events({"logs": [{"vertex": "sha256:1", "stream": 1, "data": data}]}))
    assert [event.line for event in progress.finish() if isinstance(event, StepOutput)] == ["99%"]


def test_warnings_of_the_dockerfile_are_output() -> None:
    warning = {"vertex": "sha256:1", "short": base64.b64encode(b"JSONArgsRecommended").decode()}
    (event,) = BuildProgress().events({"warnings": [warning]})
    assert event == StepOutput(step="", line="warning: JSONArgsRecommended", stream="stderr")
