"""``rtbuild catalogue``: the static site of what works, what is possible and what is not."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from builder import resources
from builder.cli import options as opt


def catalogue(
    matrices: opt.Matrices = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")] = Path("site"),
    results: opt.Results = Path("results"),
    json_: opt.Json = False,
) -> int:
    """Write a static site: which image, release and card work together, and how that is known."""
    from builder.catalogue import collect, write_site
    from builder.console import print_json
    from builder.recipe.bundle import kept_bundle

    chosen = opt.load_all(matrices) if matrices or any(Path("matrices").glob("*.y*ml")) else []
    found = collect(
        chosen,
        results=results,
        runtimes=chosen[0].path.parent if chosen else resources.matrices(),
        probe=kept_bundle(resources.cache()),
    )
    pages = write_site(found, output, made=_today(), say=_say)
    for note in found.notes:
        sys.stderr.write(f"warning: {note}\n")
    if json_:
        print_json(
            {
                "schema": 1,
                "folder": str(output),
                "pages": len(pages),
                "releases": len(found.releases),
                "images": len(found.images),
                "ran": sum(bool(image.works_on) for image in found.images),
                "notes": list(found.notes),
            }
        )
    else:
        sys.stdout.write(f"{output / 'index.html'}: {len(pages)} pages, {len(found.releases)} releases, ")
        sys.stdout.write(f"{len(found.images)} images\n")
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _today() -> str:
    """``SOURCE_DATE_EPOCH`` counts first: https://reproducible-builds.org/specs/source-date-epoch/"""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    when = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdecimal() else datetime.now(UTC)
    return when.date().isoformat()
