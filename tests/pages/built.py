"""Which cells of the project's matrices were built and probed: ``matrices/built.json``, and its page.

Rows come out of run records, by ``scripts/record-built``; nobody writes one by hand.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

INTRODUCTION = """\
# Built and probed

Cells of [`matrices/`](../matrices) that were built on Debian with NVIDIA's wheels, without a GPU.
`unverified` is the best verdict there: every check that needs no GPU passed, and each framework was imported.
`content` is the digest of the image's content on that date. `scripts/record-built` adds rows from run
records, and `make golden` writes this page.

"""


@dataclass(frozen=True, kw_only=True, order=True)
class Built:
    """One cell as it was built. ``size`` is in bytes, unpacked; ``seconds`` the whole way to the report."""

    matrix: str
    cell: str
    date: str
    verdict: str
    frameworks: tuple[str, ...]
    """``torch 2.9.1+cu128``, as imported in the image."""
    cudnn: tuple[str, ...]
    """What each framework was compiled for and what it loaded: ``9.10.2, loaded 9.10.2``."""
    size: int
    seconds: float
    content: str


def of_run(record: Mapping[str, Any]) -> list[Built]:
    """The cells of a run record that were probed; those that were there already say nothing about time."""
    rows = []
    for cell in record["cells"]:
        image, verification = cell.get("image"), cell.get("verification")
        if not image or not verification or image["reused"] or verification["test_double"]:
            continue
        report = verification["report"]
        rows.append(
            Built(
                matrix=cell["matrix"],
                cell=cell["id"],
                date=record["started"][:10],
                verdict=verification["verdict"],
                frameworks=imported(report),
                cudnn=cudnn(report),
                size=image["size"],
                seconds=round(sum(cell["seconds"].values()), 1),
                content=image["content"],
            )
        )
    return rows


def imported(report: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"{f['name']} {f['version']}" for f in report["frameworks"])


def cudnn(report: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(
        f"{f['compiled']['cudnn'] or 'not told'}, loaded {f['loaded'].get('cudnn') or 'none yet'}"
        for f in report["frameworks"]
    )


def read(text: str) -> list[Built]:
    rows: list[dict[str, Any]] = json.loads(text)["cells"]
    return [Built(**{**row, **{name: tuple(row[name]) for name in ("frameworks", "cudnn")}}) for row in rows]


def write(rows: Iterable[Built]) -> str:
    """JSON, one row a cell, the later of two."""
    latest = {(row.matrix, row.cell): row for row in rows}
    cells = [asdict(row) for _, row in sorted(latest.items())]
    return json.dumps({"schema": 1, "cells": cells}, indent=1) + "\n"


def markdown(rows: Iterable[Built]) -> str:
    """The page ``docs/built.md``."""
    head = ("cell", "imported", "cuDNN: compiled for", "size", "time", "verdict", "date", "content")
    lines = [_line(head), "|" + " --- |" * len(head)]
    lines += [
        _line(
            (
                f"`{row.cell}`",
                ", ".join(row.frameworks),
                "; ".join(row.cudnn),
                f"{row.size / 1e9:.2f} GB",
                f"{row.seconds:.0f} s",
                row.verdict,
                row.date,
                f"`{row.content.removeprefix('sha256:')[:12]}`",
            )
        )
        for row in rows
    ]
    return INTRODUCTION + "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
