"""What people read: the same words with and without colour, on a terminal and in a pipe."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from builder.cli.console.lines import reporter
from builder.cli.console.results import error_text, failure_text, run_summary
from builder.cli.console.terminal import Terminal, human_bytes, human_seconds, print_json
from builder.core.errors import CellError, CommandError
from builder.core.model import Base, Cell, Cuda, Difference, Image, Report, Verdict
from builder.pipeline.events import (
    CellFinished,
    CellOutcome,
    CellResult,
    Event,
    Note,
    RunStarted,
    Stage,
    StageFinished,
    StageProgress,
    StageStarted,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conftest import Golden

CELL = Cell(
    id="tensorflow2.8.4-py3.9-bullseye",
    matrix="tf28",
    frameworks=("tensorflow==2.8.4",),
    python="3.9",
    base=Base(kind="rootfs", name="debian/bullseye"),
    cuda=Cuda(provider="wheels"),
)
IMAGE = Image(
    cell=CELL,
    reference="rtbuild/tf28:x",
    digest="sha256:" + "a" * 64,
    content="sha256:" + "b" * 64,
    size=5_600_000_000,
)


def report(verdict: Verdict, **document: Any) -> Report:
    return Report(
        image=IMAGE.content,
        digest=IMAGE.digest,
        verdict=verdict,
        cause=document.get("cause"),
        differences=tuple(document.pop("differences", ())),
        summary=document.get("summary", ""),
        document=document,
    )


def result(outcome: CellOutcome, **more: Any) -> CellResult:
    return CellResult(
        cell=CELL, outcome=outcome, stage=Stage.VERIFY, seconds={Stage.BUILD: 61.0, Stage.VERIFY: 4.2}, **more
    )


COMMAND_ERROR = CommandError(
    "docker buildx build failed in step 7/9",
    command=("docker", "buildx", "build", "."),
    returncode=1,
    tail=("#12 ERROR: process did not complete", "boom"),
    log=Path("results/logs/tf28/x.log"),
    hint="read the log",
)
STORY: list[Event] = [
    RunStarted(cells=(CELL.id,), stages=(Stage.BUILD, Stage.VERIFY)),
    StageStarted(cell=CELL.id, stage=Stage.BUILD),
    StageProgress(cell=CELL.id, stage=Stage.BUILD, text="[1/3] base", done=1, total=3),
    StageFinished(cell=CELL.id, stage=Stage.BUILD, seconds=61.0, text="5.6 GB"),
    Note(cell=CELL.id, text="engine cannot take layers", warning=True),
    CellFinished(
        result=result(
            CellOutcome.UNVERIFIED,
            image=IMAGE,
            report=report(Verdict.UNVERIFIED, summary="no GPU on this machine"),
        )
    ),
]


def tell(events: Sequence[Event], **terminal: Any) -> None:
    chosen = {"progress": "plain", "color": False, "github": False} | terminal
    with reporter(Terminal(**chosen)) as say:
        for event in events:
            say(event)


def test_lines_for_a_pipe(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    tell([*STORY, CellFinished(result=result(CellOutcome.FAILED, error=COMMAND_ERROR))])
    out, err = capsys.readouterr()
    assert out == "", "stdout is for data"
    assert "\x1b" not in err
    golden("console/lines.txt", err)


def test_github_folds_the_failure_and_annotates_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    tell([CellFinished(result=result(CellOutcome.FAILED, error=CellError("no wheel fits")))], github=True)
    err = capsys.readouterr().err
    assert f"::error title={CELL.id}::" in err
    assert err.index("::group::") < err.index("no wheel fits") < err.index("::endgroup::")


def test_json_lines_are_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    tell(STORY, progress="json")
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [e["event"] for e in events] == [type(e).__name__ for e in STORY]
    assert events[-1]["outcome"] == "unverified"


def test_silence_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    tell(STORY, progress="none")
    assert capsys.readouterr() == ("", "")


def test_the_board_ends_with_the_same_words(capsys: pytest.CaptureFixture[str]) -> None:
    tell(STORY, progress="tty")
    err = capsys.readouterr().err
    assert "UNVERIFIED" in err
    assert "5.6 GB" in err
    assert "no GPU on this machine" in err


def test_a_failed_command_is_shown_with_its_last_lines_status_and_log() -> None:
    text = error_text(COMMAND_ERROR)
    for part in (
        "step 7/9",
        "    boom",
        "+ docker buildx build .",
        "exit status 1",
        "x.log",
        "hint: read the log",
    ):
        assert part in text


def test_what_was_asked_and_not_found_is_named() -> None:
    found = report(
        Verdict.BROKEN,
        cause="expect-mismatch",
        summary="cuDNN differs",
        differences=(Difference(what="cudnn", asked="8.6.0", found="8.4.0"),),
    )
    text = failure_text(result(CellOutcome.FAILED, report=found))
    assert "asked for cudnn 8.6.0, found 8.4.0" in text
    assert "cause: expect-mismatch" in text


@pytest.mark.parametrize("color", [True, False])
def test_unverified_is_said_loudly_and_means_the_same_without_colour(color: bool) -> None:
    terminal = Terminal(progress="plain", color=color, github=False)
    probed = report(Verdict.UNVERIFIED)
    text = run_summary([result(CellOutcome.UNVERIFIED, image=IMAGE, report=probed)], terminal)
    assert ("\x1b" in text) is color
    assert "UNVERIFIED: no GPU on this machine, so no convolution ran." in text


def test_an_image_that_nobody_ran_says_where_to_run_it() -> None:
    terminal = Terminal(progress="plain", color=False, github=False)
    image = replace(IMAGE, pushed="127.0.0.1:5000/team/staging@sha256:1")
    text = run_summary([result(CellOutcome.UNVERIFIED, image=image)], terminal)
    assert "UNVERIFIED: no image was run here." in text
    assert text.endswith("rtbuild verify --from 127.0.0.1:5000/team/staging")


def test_no_color_wins_over_force_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not Terminal.of().color
    monkeypatch.delenv("NO_COLOR")
    assert Terminal.of().color


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1500, "2 kB"), (5_600_000_000, "5.6 GB"), (2e12, "2.0 TB")]
)
def test_bytes_for_people(count: int, text: str) -> None:
    assert human_bytes(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.42, "0.4 s"), (48.2, "48 s"), (185, "3 min 05 s")])
def test_seconds_for_people(seconds: float, text: str) -> None:
    assert human_seconds(seconds) == text


def test_a_long_list_is_one_document_with_an_entry_a_line(capsys) -> None:
    document = {
        "schema": 1,
        "cells": [{"id": "a", "text": 'x "cells": [] é'}, {"id": "b"}],
        "read": {"bytes": 7},
    }
    print_json(document, "cells")
    shown = capsys.readouterr().out
    assert json.loads(shown) == document
    assert [line[:14] for line in shown.splitlines() if '"id"' in line] == [
        '    {"id": "a"',
        '    {"id": "b"',
    ]
    print_json({"cells": []}, "cells")
    assert json.loads(capsys.readouterr().out) == {"cells": []}


def test_what_foreign_lines_say_is_not_obeyed() -> None:
    """Neither by a terminal nor by GitHub, which looks for its commands behind blanks, too."""
    said = ("\x1b]52;c;AAAA\x07\u202ex", "::add-mask::a", "x ##[add-mask]b", "\tint x = a::b;")
    event = Note(text="\n".join(said), cell="a")
    error = CommandError("\x1b[2J", command=["make", said[0]], returncode=2, tail=said, hint="\n::error::x")
    for text in (event.text, error_text(error), failure_text(result(CellOutcome.FAILED, error=error))):
        assert not [c for c in text if not c.isprintable() and c not in "\n\t"]
        assert "##[" not in text
        assert not [line for line in text.splitlines() if line.lstrip().startswith("::")]
        assert said[-1] in text
