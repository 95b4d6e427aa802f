"""``rtbuild list``: the cells, which are chosen, and why the others are not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from builder.cli import options as opt
from builder.cli.console import counted, print_json, say, show
from builder.core.model import Cell, Matrix


def list_(
    matrices: list[Path] | None = opt.MATRICES,
    select: list[str] | None = opt.SELECT,
    skip: list[str] | None = opt.SKIP,
    format_: Literal["table", "id", "image", "github"] = opt.of(
        "--format: A table; bare ids; image names; or job matrices for GitHub Actions.", "table"
    ),
    json_: bool = opt.JSON,
) -> int:
    """Print the selection. Raises NothingSelectedError if a selector matches nothing."""
    loaded, selection = opt.selection(matrices, select, skip)
    match "json" if json_ else format_:
        case "id":
            show(*(cell.id for cell in selection.chosen))
        case "image":
            show(*(cell.image_name() for cell in selection.chosen))
        case "github":
            show(json.dumps(_job_matrices(selection.chosen, loaded)))
        case "json":
            left_out = [{**describe(cell), "reason": reason} for cell, reason in selection.left_out]
            chosen = [{**describe(cell), "image": cell.image_name()} for cell in selection.chosen]
            print_json({"schema": 1, "chosen": chosen, "left_out": left_out})
        case "table":
            show(*_table(selection.chosen, selection.left_out), hang=2)
    for glob in selection.unmatched_skips:
        say(f"warning: --skip '{glob}' matches no cell")
    return 0


def describe(cell: Cell) -> dict[str, Any]:
    return {
        "id": cell.id,
        "matrix": cell.matrix,
        **cell.inputs(),
        "env": dict(cell.env),
        "gpus": list(cell.gpus),
        "variant": cell.variant,
    }


def _job_matrices(cells: tuple[Cell, ...], matrices: list[Matrix]) -> dict[str, list[dict[str, Any]]]:
    """What ``fromJSON`` turns into job matrices: a job to build each cell, and one to verify it on each GPU
    class that it claims, with the labels that a runner must have, in chunks that GitHub takes."""
    files = {matrix.name: str(matrix.path) for matrix in matrices}
    build: list[dict[str, Any]] = []
    verify: list[dict[str, Any]] = []
    for cell in cells:
        # `build --engine none` can build it: nothing is unpacked into an engine's store
        engine = "none" if cell.base.kind == "rootfs" and cell.profile == "plain" else "docker"
        build.append({"cell": cell.id, "matrix": files[cell.matrix], "engine": engine})
        for gpu in cell.gpus or (None,):
            labels = ["self-hosted", "gpu", *([gpu] if gpu else [])]
            verify.append(
                {"cell": cell.id, "matrix": files[cell.matrix], "gpu": gpu or "any", "labels": labels}
            )
    most = 256  # jobs that one job matrix may have (GitHub Actions: "Usage limits", docs.github.com)
    return {
        name: [{"include": jobs[at : at + most]} for at in range(0, len(jobs), most)]
        for name, jobs in (("build", build), ("verify", verify))
    }


def _table(chosen: tuple[Cell, ...], left_out: tuple[tuple[Cell, str], ...]) -> Iterator[str]:
    reasons = {id(cell): reason for cell, reason in left_out}
    cells = [*chosen, *(cell for cell, _ in left_out)]
    width = max((len(cell.id) for cell in cells), default=0)
    for matrix in dict.fromkeys(cell.matrix for cell in cells):
        yield f"{matrix}:"
        for cell in (c for c in cells if c.matrix == matrix):
            reason = reasons.get(id(cell))
            mark, tail = ("*", str(cell.base)) if reason is None else ("-", reason)
            yield f"  {mark} {cell.id:<{width}}  {tail}"
    yield f"{len(chosen)} of {counted(cells, 'cell')} chosen"
