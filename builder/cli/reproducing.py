"""``rtbuild build --check-reproducible``."""

from __future__ import annotations

import json as json_module
import threading
from typing import TYPE_CHECKING

from builder.cli.walking import exit_code
from builder.console import print_json, reporter, run_summary
from builder.pipeline.reproduce import check_reproducible

if TYPE_CHECKING:
    from builder.console import Terminal
    from builder.model import Cell, Matrix
    from builder.pipeline.reproduce import Comparison
    from builder.pipeline.settings import Settings


def check_cells(
    matrices: list[Matrix], cells: tuple[Cell, ...], *, settings: Settings, terminal: Terminal, json: bool
) -> int:
    """Build every cell twice and compare; exit 1 where two builds of a cell differ.

    What differs is written to ``reproduce/<cell>.json`` below the results, whole.
    """
    comparisons: dict[str, Comparison] = {}
    with reporter(terminal) as report:
        results = check_reproducible(
            matrices,
            cells,
            settings=settings,
            emit=report,
            cancel=threading.Event(),
            compared=comparisons.__setitem__,
        )
    documents = {cell: comparison.document() for cell, comparison in comparisons.items()}
    folder = settings.results / "reproduce"
    folder.mkdir(parents=True, exist_ok=True)
    for cell, document in documents.items():
        text = json_module.dumps({"schema": 1, "cell": cell, **document}, indent=2) + "\n"
        (folder / f"{cell}.json").write_text(text, "utf-8")
    if json:
        print_json(
            {
                "schema": 1,
                "cells": [
                    {
                        "id": result.cell.id,
                        "outcome": result.outcome.value,
                        "seconds": {stage.value: round(s, 2) for stage, s in result.seconds.items()},
                        "notes": list(result.notes),
                        "error": result.error.message if result.error else None,
                        "comparison": documents.get(result.cell.id),
                    }
                    for result in results
                ],
            }
        )
    terminal.say(run_summary(results, terminal))
    return exit_code(results)
