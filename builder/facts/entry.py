"""A cell as YAML: an entry of ``include`` that can be pasted into a matrix file as it stands."""

import json
from collections.abc import Sequence

from builder.model import Cell


def entry(cell: Cell) -> list[str]:
    """The lines of the entry. Every value is quoted, so nothing in it can be misread."""
    cuda = json.dumps(cell.cuda.provider)
    if cell.cuda.packages:
        cuda = f"{{from: {cuda}, packages: {_list(cell.cuda.packages)}}}"
    lines = [
        f"  - framework: {_list(cell.frameworks)}",
        f"    python: {_python(cell)}",
        f"    base: {json.dumps(str(cell.base))}",
        f"    cuda: {cuda}",
    ]
    for what, values in (("pip", cell.pip), ("apt", cell.apt), ("gpus", cell.gpus), ("index", cell.index)):
        if values:
            lines.append(f"    {what}: {_list(values)}")
    builds = [json.dumps(name) for name in cell.from_source]
    builds += [f"{{{json.dumps(name)}: {_list(needs)}}}" for name, needs in cell.compiled]
    if builds:
        lines.append(f"    from-source: [{', '.join(builds)}]")
    if cell.env:
        pairs = ", ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in cell.env)
        lines.append(f"    env: {{{pairs}}}")
    for what, value, usual in (
        ("dependencies", cell.dependencies, "resolved"),
        ("profile", cell.profile, "plain"),
        ("platform", cell.platform, "linux/amd64"),
        ("variant", cell.variant, None),
    ):
        if value is not None and value != usual:
            lines.append(f"    {what}: {json.dumps(value)}")
    return lines


def _python(cell: Cell) -> str:
    version = json.dumps(cell.python_patch or cell.python)
    return version if cell.python_from is None else f"{{version: {version}, from: {cell.python_from}}}"


def _list(values: Sequence[str]) -> str:
    return "[" + ", ".join(json.dumps(value) for value in values) + "]"
