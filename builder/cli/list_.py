"""``rtbuild list``: the cells, which are chosen, and why the others are not."""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from builder.cli import options as opt
from builder.console import counted, print_json, say, show
from builder.model import Cell, Matrix
from builder.pipeline.settings import Settings

ANY_GPU = "any"
"""In place of a GPU class, for a cell that claims none."""
GITHUB_LIMIT = 256
"""Jobs that one job matrix may have (GitHub Actions: "Usage limits", docs.github.com)."""


def list_(
    matrices: opt.Matrices = None,
    select: opt.Select = None,
    skip: opt.Skip = None,
    format_: Annotated[
        Literal["table", "id", "image", "github"],
        opt.of("--format: A table; bare ids; image names; or job matrices for GitHub Actions."),
    ] = "table",
    json_: opt.Json = False,
) -> int:
    """Print the selection. Raises NothingSelectedError if a selector matches nothing."""
    loaded, selection = opt.selection(matrices, select, skip)
    name_of = Settings().image_name
    match "json" if json_ else format_:
        case "id":
            show(*(cell.id for cell in selection.chosen))
        case "image":
            show(*(name_of(cell.matrix, cell.id) for cell in selection.chosen))
        case "github":
            show(json.dumps(_job_matrices(selection.chosen, loaded)))
        case "json":
            left_out = [{**describe(cell), "reason": reason} for cell, reason in selection.left_out]
            chosen = [{**describe(cell), "image": name_of(cell.matrix, cell.id)} for cell in selection.chosen]
            print_json({"schema": 1, "chosen": chosen, "left_out": left_out})
        case "table":
            show(*_table(selection.chosen, selection.left_out), hang=2)
    for glob in selection.unmatched_skips:
        say(f"warning: --skip '{glob}' matches no cell")
    return 0


def describe(cell: Cell) -> dict[str, Any]:
    """A cell as JSON, for ``--json``."""
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
    class that it claims, in chunks, since a job matrix may have no more than 256 jobs."""
    files = {matrix.name: str(matrix.path) for matrix in matrices}
    build = [{"cell": cell.id, "matrix": files[cell.matrix], "engine": _engine(cell)} for cell in cells]
    verify = [
        {"cell": cell.id, "matrix": files[cell.matrix], "gpu": gpu, "labels": _labels(gpu)}
        for cell in cells
        for gpu in (cell.gpus or (ANY_GPU,))
    ]
    return {"build": _chunks(build), "verify": _chunks(verify)}


def _engine(cell: Cell) -> str:
    """``none`` if ``build --engine none`` can build the cell: nothing is unpacked into an engine's store."""
    return "none" if cell.base.kind == "rootfs" and cell.profile == "plain" else "docker"


def _labels(gpu: str) -> list[str]:
    """The labels that a runner with this GPU must have."""
    return ["self-hosted", "gpu"] + ([] if gpu == ANY_GPU else [gpu])


def _chunks(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"include": jobs[at : at + GITHUB_LIMIT]} for at in range(0, len(jobs), GITHUB_LIMIT)]


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
