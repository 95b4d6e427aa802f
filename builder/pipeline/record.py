"""The versioned JSON document of a run: the command, the outcome of each cell, and the evidence."""

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from builder import __version__
from builder.errors import CommandError, RtbuildError
from builder.files import write_whole
from builder.pipeline.events import CellResult

SCHEMA = 1


def run_document(results: Sequence[CellResult], *, command: str, started: datetime) -> dict[str, Any]:
    """The document; its schema is ``docs/run.schema.json``."""
    return {**heading("run", command, started), "cells": [_cell_document(result) for result in results]}


def heading(kind: str, command: str, started: datetime) -> dict[str, Any]:
    """The part that every document about a command has."""
    return {
        "schema": SCHEMA,
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
