"""The facts that travel inside the probe: ``builder/probe/builds.jsonl`` is this text.

The probe imports nothing of rtbuild, and its commands have to name the releases that the tables know.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.facts.tables import Facts


def portable(facts: Facts) -> str:
    """One JSON object a line: releases of frameworks, NVIDIA's cuDNN wheels, cards, driver floors."""
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in _rows(facts))


def _rows(facts: Facts) -> Iterator[dict[str, Any]]:
    for table in facts.frameworks.values():
        for row in table.rows:
            yield {
                "framework": table.name,
                "versions": str(row.versions),
                "latest": row.latest,
                "variant": row.variant,
                "default": row.default,
                "cuda": row.cuda,
                "cudnn": row.cudnn,
                "extra": row.extra,
                "brings": row.brings,
                "python": [row.python[0], row.python[-1]],
                "archs": row.architectures,
                "pins": [pin for pin in row.pins if "cudnn" in pin],
            }
    for wheel in facts.wheels.values():
        if "cudnn" in wheel.name:
            yield {"wheel": wheel.name, "versions": wheel.versions}
    for gpu in facts.gpus.values():
        yield {"gpu": gpu.name, "capability": gpu.capability}
    for family in facts.families.values():
        bounds = [family.capability_min, family.capability_max]
        yield {"cuda_major": family.major, "driver": family.floor, "capability": bounds}
