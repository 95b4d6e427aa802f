"""The facts that the probe carries: ``builder/probe/builds.jsonl``.

The probe imports nothing of rtbuild, and its commands have to name the releases that the tables know.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.facts.tables import Facts, FrameworkRow, FrameworkTable


def portable(facts: Facts) -> str:
    """One JSON object a line: releases of frameworks, NVIDIA's cuDNN wheels, driver floors."""
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in _rows(facts))


def _rows(facts: Facts) -> Iterator[dict[str, Any]]:
    for table in facts.frameworks.values():
        yield from _lines(table)
    for wheel in facts.wheels.values():
        if "cudnn" in wheel.name:
            yield {"wheel": wheel.name, "versions": wheel.versions}
    for family in facts.families.values():
        bounds = [family.capability_min, family.capability_max]
        yield {"cuda_major": family.major, "driver": family.floor, "capability": bounds}


def _lines(table: FrameworkTable) -> Iterator[dict[str, Any]]:
    """The rows of a table; exact releases in sequence of which all the same is known are one line."""
    rows = [row for row in table.rows if getattr(row, "distribution", table.name) != "tensorflow-gpu"]
    rows.sort(key=lambda row: (row.variant, Version(row.version)))
    held: dict[str, Any] = {}
    first = ""
    for row in rows:
        line = _line(table.name, row)
        exact = line["versions"] == f"=={row.version}"
        if held and exact and first and _same(held, line):
            held.update(versions=f">={first},<={row.version}", latest=row.version)
            continue
        if held:
            yield held
        held, first = line, row.version if exact else ""
    if held:
        yield held


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one[key] == other[key] for key in one if key not in {"versions", "latest"})


def _line(name: str, row: FrameworkRow) -> dict[str, Any]:
    return {
        "framework": name,
        "versions": str(row.versions),
        "latest": row.version,
        "variant": row.variant,
        "default": row.default,
        "cuda": row.cuda,
        "cudnn": row.cudnn,
        "extra": row.extra,
        "brings": row.brings,
        "python": [row.python[0], row.python[-1]] if row.python else ["3.0", "3.0"],
        "archs": list(row.architectures),
        "pins": [pin for pin in row.pins if "cudnn" in pin],
    }
