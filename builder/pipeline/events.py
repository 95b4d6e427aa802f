"""Events of cells on their way, as values, of which a console makes a board or lines; and the versioned
JSON document of a run, made of the last event of each cell.
"""

import enum
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from builder import __version__
from builder.core.documents import harmless
from builder.core.errors import CommandError, RtbuildError
from builder.core.files import write_whole
from builder.core.model import Cell, DebianPackage, Image, Report

_SCHEMA = 1


class Stage(enum.StrEnum):
    """The stations of a cell, in order."""

    CHECK = "check"
    LOCK = "lock"
    FETCH = "fetch"
    LAYERS = "layers"
    RENDER = "render"
    BUILD = "build"
    PUSH = "push"
    PULL = "pull"
    VERIFY = "verify"
    REPORT = "report"
    GATE = "gate"
    COPY = "copy"
    EVIDENCE = "evidence"
    TAGS = "tags"


BUILDING = (
    Stage.CHECK, Stage.LOCK, Stage.FETCH, Stage.LAYERS, Stage.RENDER, Stage.BUILD, Stage.PUSH, Stage.VERIFY,
)  # fmt: skip
PUBLISHING = (Stage.GATE, Stage.COPY, Stage.EVIDENCE, Stage.TAGS)


class CellOutcome(enum.StrEnum):
    """How a cell ended."""

    DONE = "done"
    """All that was asked for, short of a verification."""
    WORKS = "works"
    UNVERIFIED = "unverified"
    """Built and sound as far as it goes without a GPU."""
    FAILED = "failed"
    """It did not lock or build, or a check in the image failed."""
    HOST = "host"
    """Nothing is known against the image: this machine could not verify it (verdicts ``host``, ``busy``)."""
    PUBLISHED = "published"
    REFUSED = "refused"
    """The gate let it not through: there is no report on it that counts."""
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """The end of one cell. ``stage`` is the last one entered; ``seconds`` has an entry for each."""

    cell: Cell
    outcome: CellOutcome
    stage: Stage
    seconds: dict[Stage, float] = field(default_factory=dict)
    image: Image | None = None
    report: Report | None = None
    error: RtbuildError | None = None
    log: str | None = None
    notes: tuple[str, ...] = ()
    packages: tuple[DebianPackage, ...] = ()
    """Packages of the base's distribution that the build took from its archives; no lock fixes them."""


@dataclass(frozen=True, kw_only=True)
class RunStarted:
    cells: tuple[str, ...]
    stages: tuple[Stage, ...]


@dataclass(frozen=True, kw_only=True)
class StageStarted:
    cell: str
    stage: Stage


@dataclass(frozen=True, kw_only=True)
class _Said:
    """A line for people: those of programs, servers and images among it."""

    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", harmless(self.text))


@dataclass(frozen=True, kw_only=True)
class StageProgress(_Said):
    """The progress of a stage: a line of text, and ``done`` of ``total`` bytes if that is known."""

    cell: str
    stage: Stage
    done: int | None = None
    total: int | None = None
    quiet: bool = False
    """True for what a live board shows and a log of lines does not."""


@dataclass(frozen=True, kw_only=True)
class StageFinished(_Said):
    cell: str
    stage: Stage
    seconds: float


@dataclass(frozen=True, kw_only=True)
class SpanStarted:
    """A piece of work begins in the thread that says so; ``cell`` is empty if it is for all of them."""

    name: str
    cell: str = ""


@dataclass(frozen=True, kw_only=True)
class SpanFinished:
    """A span ended, well or not, in the thread that began it. Spans of one thread are nested."""

    name: str
    cell: str = ""


@dataclass(frozen=True, kw_only=True)
class CellFinished:
    result: CellResult


@dataclass(frozen=True, kw_only=True)
class Note(_Said):
    """Something worth saying that belongs to no stage; ``cell`` is empty if it concerns all."""

    cell: str = ""
    warning: bool = False


Event = (
    RunStarted
    | StageStarted
    | StageProgress
    | StageFinished
    | SpanStarted
    | SpanFinished
    | CellFinished
    | Note
)


def run_document(results: Sequence[CellResult], *, command: str, started: datetime) -> dict[str, Any]:
    """The document; its schema is ``docs/run.schema.json``."""
    return {**heading("run", command, started), "cells": [_cell_document(result) for result in results]}


def heading(kind: str, command: str, started: datetime) -> dict[str, Any]:
    """The part that every document about a command has."""
    return {
        "schema": _SCHEMA,
        "kind": kind,
        "rtbuild": __version__,
        "command": command,
        "started": started.isoformat(timespec="seconds"),
        "seconds": round((datetime.now(UTC) - started).total_seconds(), 1),
    }


def error_document(error: RtbuildError) -> dict[str, Any]:
    return {
        "kind": type(error).__name__,
        "message": error.message,
        "hint": error.hint,
        "exit_code": error.exit_code,
    }


def _cell_document(result: CellResult) -> dict[str, Any]:
    image, report, error = result.image, result.report, result.error
    command: dict[str, Any] = {}
    if isinstance(error, CommandError):
        command = {"command": list(error.command), "returncode": error.returncode, "tail": list(error.tail)}
    return {
        "id": result.cell.id,
        "matrix": result.cell.matrix,
        "outcome": result.outcome.value,
        "stage": result.stage.value,
        "seconds": {stage.value: round(seconds, 2) for stage, seconds in result.seconds.items()},
        "notes": list(result.notes),
        "log": result.log,
        "image": image and {name: value for name, value in vars(image).items() if name != "cell"},
        "packages": [vars(package) for package in result.packages],
        "verification": report
        and {
            "verdict": report.verdict.value,
            "cause": report.cause,
            "summary": report.summary,
            "remedy": report.remedy,
            "differences": [vars(difference) for difference in report.differences],
            "test_double": report.test_double,
            "reused": report.reused,
            "report": report.document,
        },
        "error": error and error_document(error) | command,
    }


def write_record(document: dict[str, Any], folder: Path) -> Path:
    """Put the document into ``folder``, beside and renamed: ``<kind>-<UTC time>-<pid>.json``. OSError."""
    stamp = document["started"].replace("+00:00", "Z").replace(":", "").replace("-", "")
    path = folder / f"{document['kind']}-{stamp}-{os.getpid()}.json"
    write_whole(path, (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode())
    return path
