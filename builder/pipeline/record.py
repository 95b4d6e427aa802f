"""The records of a run: the versioned JSON document, and the packages that apt brought into its images.

On a registry's base the versions are what the distribution's archives hold on the day of the build; no lock
fixes them. The build leaves a list in the image; it is read there, and compared with the time before.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder import __version__
from builder.core.errors import CellError, CommandError, RtbuildError
from builder.core.files import write_whole
from builder.core.model import Cell, DebianPackage, Image
from builder.pipeline.events import CellResult

if TYPE_CHECKING:
    from builder.image.engine import Engine

SCHEMA = 1
LIST = "/usr/local/share/rtbuild/apt.txt"
"""A line for each package: name, version, architecture."""
_NAMED = 6
"""Differences that are written out; the files have all of them."""


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


def read_packages(engine: Engine, image: Image) -> tuple[DebianPackage, ...]:
    """The packages that apt brought in; none if no step had to install any. Raises CellError."""
    content = engine.read_file(image.digest, LIST)
    if content is None:
        return ()
    try:
        rows = (line.split(" ") for line in content.decode().splitlines())
        found = [DebianPackage(name=row[0], version=row[1], architecture=row[2]) for row in rows]
        return tuple(sorted(found))
    except (ValueError, IndexError) as problem:
        raise CellError(f"{image.reference}: {LIST} is not as rtbuild wrote it: {problem}") from problem


def remember(folder: Path, cell: Cell, image: Image, packages: Sequence[DebianPackage]) -> str | None:
    """Keep ``packages`` below ``folder`` for the next time; what drifted since the last, in one line.

    Raises OSError if the folder cannot be written.
    """
    path = folder / cell.matrix / f"{cell.id}.json"
    before = None
    # None, or of another rtbuild, or cut short: nothing is known of the time before
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError, LookupError):
        before = [DebianPackage(**entry) for entry in json.loads(path.read_bytes())["packages"]]
    rows = [vars(package) for package in packages]
    document = {"schema": 1, "cell": cell.id, "digest": image.digest, "packages": rows}
    write_whole(path, (json.dumps(document, indent=2) + "\n").encode())
    return drift(before, packages) if before is not None else None


def drift(before: Sequence[DebianPackage], now: Sequence[DebianPackage]) -> str | None:
    """``libssl3 3.0.14-1 is now 3.0.15-1``: all that differs, in one line; None if nothing does."""
    old, new = ({(one.name, one.architecture): one.version for one in packages} for packages in (before, now))
    parts = []
    for key in sorted(old.keys() | new.keys()):
        if key not in new:
            parts.append(f"{key[0]} {old[key]} is gone")
        elif key not in old:
            parts.append(f"{key[0]} {new[key]} is new")
        elif old[key] != new[key]:
            parts.append(f"{key[0]} {old[key]} is now {new[key]}")
    if len(parts) > _NAMED:
        parts[_NAMED:] = [f"and {len(parts) - _NAMED} more"]
    return "the distribution's packages drifted: " + ", ".join(parts) if parts else None
