"""Events as JSON lines on stderr, for programs that watch a run (``--progress json``)."""

from __future__ import annotations

import json
import sys
import time

from builder.pipeline.events import CellFinished, Event


class JsonLines:
    """One object a line: ``event`` names the kind, ``time`` is seconds since 1970."""

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def __call__(self, event: Event) -> None:
        if isinstance(event, CellFinished):
            result = event.result
            fields: dict[str, object] = {
                "cell": result.cell.id,
                "outcome": result.outcome,
                "stage": result.stage,
                "error": None if result.error is None else result.error.message,
            }
        else:
            fields = dict(vars(event))
        document = {"event": type(event).__name__, "time": round(time.time(), 3), **fields}
        sys.stderr.write(json.dumps(document) + "\n")
        sys.stderr.flush()


class Silence:
    """Says nothing until the end (``--quiet``)."""

    def __enter__(self) -> Silence:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def __call__(self, event: Event) -> None:
        del event
