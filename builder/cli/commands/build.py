"""``rtbuild build``: the line that every selected cell walks; or two builds of each, compared."""

import json
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from builder.cli import options as opt
from builder.cli.console import Progress, Terminal, print_json, run_summary
from builder.cli.walking import exit_code, finished, walk
from builder.core.errors import UsageError
from builder.core.files import write_whole
from builder.core.model import Cell, Matrix
from builder.pipeline import BuildOptions, EngineOptions, LayerSource, build_cells


def build(
    matrices: list[Path] | None = opt.MATRICES,
    select: list[str] | None = opt.SELECT,
    skip: list[str] | None = opt.SKIP,
    locked: bool = opt.LOCKED,
    jobs: int | None = opt.of("--jobs, -j: Cells at a time.", min=1, max=1024),
    verify_: bool = opt.of("--verify/--no-verify: Run cudnn-verify in what was built.", True),
    require_verified: bool = opt.of("--require-verified: Exit 5 if no GPU could be asked.", False),
    gpus: opt.Gpus = opt.GPUS,
    no_cache: bool = opt.of("--no-cache: Build anew even if the image is there already.", False),
    no_check: bool = opt.of("--no-check: Build also what the compatibility rules refuse.", False),
    push: str | None = opt.of(
        "--push REPOSITORY: Push every built image to this repository, by digest and under an unlisted tag."
    ),
    engine: Literal["docker", "none"] = opt.of(
        "--engine: none: put images together here and push them, without Docker.", "docker"
    ),
    output: Path | None = opt.of("--output, -o: With --engine none: write images there, as an OCI layout."),
    layers_from: str | None = opt.of(
        "--layers-from REPO $RTBUILD_LAYERS_FROM: Take layers from there that --layers-key has signed."
    ),
    layers_key: str | None = opt.of(
        "--layers-key KEY $RTBUILD_LAYERS_KEY: The key for --layers-from: cosign.pub, or a KMS URI."
    ),
    key: str | None = opt.of(
        "--key KEY $RTBUILD_BUILD_KEY: Sign by cosign what --push leaves: images, and their layers."
    ),
    cache_from: list[str] | None = opt.of(
        "--cache-from TYPE=...: As of docker buildx build; {cell} stands for the cell's id."
    ),
    cache_to: list[str] | None = opt.of("--cache-to TYPE=...: As --cache-from."),
    check_reproducible: bool = opt.of(
        "--check-reproducible: Build twice, once from nothing, and name each file that differs; no probe.",
        False,
    ),
    results: Path = opt.RESULTS,
    trace: Path | None = opt.TRACE,
    mirror: list[str] | None = opt.MIRROR,
    context: str | None = opt.CONTEXT,
    builder: str | None = opt.of(
        "--builder NAME $BUILDX_BUILDER: The buildx builder: docker-container, kubernetes, remote."
    ),
    progress: Progress = opt.PROGRESS,
    quiet: bool = opt.QUIET,
    verbose: int = opt.VERBOSE,
    json_: bool = opt.JSON,
) -> int:
    """Exit 1 if a cell failed, 5 if this machine could not verify one that it had to."""
    buildx = EngineOptions(
        context=context,
        builder=builder,
        cache_from=tuple(cache_from or ()),
        cache_to=tuple(cache_to or ()),
    )
    options = BuildOptions(
        jobs=jobs,
        locked=locked,
        refuse=not no_check,
        no_cache=no_cache,
        gpus=opt.WANTED[gpus] if verify_ else None,
        engine=buildx if engine == "docker" else None,
        push=push,
        output=output,
        layers=LayerSource.named(layers_from, layers_key),
        key=key,
        results=results,
        mirrors=opt.mirrors(mirror),
    )
    needing = {
        "--require-verified": require_verified,
        "--check-reproducible": check_reproducible,
        "--context": context,
        "--cache-from": cache_from,
        "--cache-to": cache_to,
    }
    _refuse_idle(options, {option for option, given in needing.items() if given})
    terminal = Terminal.of(progress, quiet=quiet, verbose=verbose)
    loaded, cells = opt.choose_to_write(matrices, select, skip)
    if check_reproducible:
        return _compare_builds(loaded, cells, options, terminal, trace=trace, as_json=json_)
    run = partial(build_cells, loaded, cells, options)
    return finished(terminal, run, results, require_verified=require_verified, trace=trace, json=json_)


def _refuse_idle(options: BuildOptions, given: Collection[str]) -> None:
    """Raise UsageError for an option that does nothing beside the others; ``given`` are of an engine."""
    if options.engine is not None and options.output is not None:
        raise UsageError(
            "--output is for --engine none: an engine keeps images in its own store",
            hint="docker save writes one of them to a file",
        )
    if given and options.engine is None:
        needs = "needs" if len(given) == 1 else "need"
        raise UsageError(f"{', '.join(sorted(given))} {needs} an engine", hint="leave out `--engine none`")
    if "--require-verified" in given and options.gpus is None:
        raise UsageError("--require-verified, and --no-verify asks no GPU", hint="leave one of them out")
    if "--check-reproducible" in given and (options.push is not None or "--require-verified" in given):
        raise UsageError(
            "--check-reproducible only compares two builds: "
            f"{'--require-verified' if '--require-verified' in given else '--push'} has no part in it",
            hint="run `rtbuild build` once more, without --check-reproducible",
        )


def _compare_builds(
    matrices: list[Matrix],
    cells: Sequence[Cell],
    options: BuildOptions,
    terminal: Terminal,
    *,
    trace: Path | None,
    as_json: bool,
) -> int:
    """Build every cell twice and compare; exit 1 if two builds of a cell differ.

    The differences go to ``reproduce/<cell>.json`` below the results, whole.
    """
    from builder.pipeline import Comparison, check_reproducible

    found: dict[str, Comparison] = {}
    compared = found.__setitem__
    run = partial(check_reproducible, matrices, cells, options, compared=compared)
    results = walk(terminal, run, trace=trace)
    documents = {cell: comparison.document() for cell, comparison in found.items()}
    folder = options.results / "reproduce"
    with opt.writing(folder):
        for cell, document in documents.items():
            text = json.dumps({"schema": 1, "cell": cell, **document}, indent=2) + "\n"
            write_whole(folder / f"{cell}.json", text.encode())
    if as_json:
        rows = [
            {
                "id": result.cell.id,
                "outcome": result.outcome.value,
                "seconds": {stage.value: round(s, 2) for stage, s in result.seconds.items()},
                "notes": list(result.notes),
                "error": result.error.message if result.error else None,
                "comparison": documents.get(result.cell.id),
            }
            for result in results
        ]
        print_json({"schema": 1, "cells": rows})
    terminal.say(run_summary(results, terminal))
    return exit_code(results)
