"""``rtbuild list``: the cells, which are chosen, and why the others are not."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from builder.cli import options as opt
from builder.cli.console import counted, print_json, say, show
from builder.core.errors import CellError
from builder.core.items import item
from builder.core.model import Cell
from builder.plan.facts.rules import cuda_of
from builder.plan.facts.tables import load
from builder.plan.matrix import NOT_SELECTED

_Told = TypeVar("_Told")

_MOST_UNNAMED = 10
"""Cells that no selector names, of which a table has a row each."""


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
    chosen, failed = selection.chosen, list[str]()
    reasons = dict(selection.left_out)
    cells = [*chosen, *reasons]
    match "json" if json_ else format_:
        case "id":
            show(*(cell.id for cell in chosen))
        case "image":
            show(*_each(chosen, Cell.image_name, failed))
        case "github":
            jobs = _each(chosen, partial(_jobs, files={one.name: str(one.path) for one in loaded}), failed)
            show(json.dumps(_job_matrices(jobs)))
        case "json":
            named = _each(chosen, lambda one: describe(one) | {"image": one.image_name()}, failed)
            others = _each(reasons, lambda one: describe(one) | {"reason": reasons[one]}, failed)
            print_json({"schema": 1, "chosen": list(named), "left_out": list(others)})
        case "table":
            unnamed = [cell for cell in cells if reasons.get(cell) == NOT_SELECTED]
            if len(unnamed) > _MOST_UNNAMED:
                cells = [cell for cell in cells if cell not in unnamed]
            width = max((len(cell.id) for cell in cells), default=0)
            for matrix in dict.fromkeys(cell.matrix for cell in cells):
                mine = [cell for cell in cells if cell.matrix == matrix]
                row = partial(_row, reasons=reasons, width=width)
                show(f"{matrix}:", *_each(mine, row, failed), hang=2)
            if len(unnamed) > _MOST_UNNAMED:
                show(f"{counted(unnamed, 'cell')} that --select does not name: `rtbuild list` has them")
                cells += unnamed
            show(f"{len(chosen)} of {counted(cells, 'cell')} chosen")
    for glob in selection.unmatched_skips:
        say(f"warning: --skip '{glob}' matches no cell")
    for message in failed:
        say(f"error: {message}")
    return 1 if failed else 0


def _each(cells: Iterable[Cell], tell: Callable[[Cell], _Told], failed: list[str]) -> Iterator[_Told]:
    """The rows of the cells; a cell without a row leaves its message in ``failed``."""
    for cell in cells:
        try:
            with item(cell.id):
                told = tell(cell)
        except CellError as error:
            failed.append(error.message)
        else:
            yield told


def describe(cell: Cell) -> dict[str, Any]:
    return {
        "id": cell.id,
        "matrix": cell.matrix,
        **cell.inputs(),
        "env": dict(cell.env),
        "verify": list(cell.verify),
        "suites": list(cell.suites()),
        "suggested_suites": list(load().suggested_suites(cell)),
        "gpus": list(cell.gpus),
        "variant": cell.variant,
        "cuda_version": cuda_of(cell),
    }


def _jobs(cell: Cell, *, files: dict[str, str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The job that builds a cell, and one for each GPU class that it claims; ``files`` are by matrix.

    ``name`` is its own in all matrices: two of them may have a cell of one id.
    """
    # `build --engine none` can build it: nothing is unpacked into an engine's store
    engine = "none" if cell.base.kind == "rootfs" and cell.profile == "plain" else "docker"
    about = {"name": f"{cell.matrix} {cell.id}", "cell": cell.id, "matrix": files[cell.matrix]}
    classes = [
        (gpu or "any", ["self-hosted", "gpu", *([gpu] if gpu else [])]) for gpu in cell.gpus or (None,)
    ]
    return {**about, "engine": engine}, [{**about, "gpu": gpu, "labels": labels} for gpu, labels in classes]


def _job_matrices(
    jobs: Iterable[tuple[dict[str, Any], list[dict[str, Any]]]],
) -> dict[str, list[dict[str, Any]]]:
    """Job matrices for GitHub's ``fromJSON``: a job to build each cell, and one to verify it on each GPU
    class that it claims, with the labels that a runner must have, in chunks that GitHub takes.
    """
    build: list[dict[str, Any]] = []
    verify: list[dict[str, Any]] = []
    for one, several in jobs:
        build.append(one)
        verify += several
    most = 256  # jobs that one job matrix may have (GitHub Actions: "Usage limits", docs.github.com)
    return {
        name: [{"include": found[at : at + most]} for at in range(0, len(found), most)]
        for name, found in (("build", build), ("verify", verify))
    }


def _row(cell: Cell, *, reasons: Mapping[Cell, str], width: int) -> str:
    reason = reasons.get(cell)
    cuda = cuda_of(cell)
    of = f"{cell.base}, CUDA {cuda}" if cuda is not None else str(cell.base)
    mark, tail = ("*", of) if reason is None else ("-", reason)
    return f"  {mark} {cell.id:<{width}}  {tail}"
