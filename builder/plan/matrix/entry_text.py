"""A cell as the text of a matrix file."""

import json

from builder.core.model import Cell


def entry(cell: Cell) -> list[str]:
    """A cell as YAML: the lines of an entry of ``include``, to paste into a matrix file as they stand.

    Every value is quoted, so nothing in it can be misread.
    """
    python, cuda = json.dumps(cell.named_python), json.dumps(cell.cuda.provider)
    if cell.python_from is not None:
        python = f"{{version: {python}, from: {cell.python_from}}}"
    if cell.cuda.packages:
        cuda = f"{{from: {cuda}, packages: {json.dumps(cell.cuda.packages)}}}"
    lines = [
        f"  - framework: {json.dumps(cell.frameworks)}",
        f"    python: {python}",
        f"    base: {json.dumps(str(cell.base))}",
        f"    cuda: {cuda}",
    ]
    others = {
        **{name: getattr(cell, name) for name in ("pip", "apt", "verify", "gpus", "index")},
        "compilers": cell.compilers,
        "from-source": [*cell.from_source, *({name: needs} for name, needs in cell.compiled)],
        "env": dict(cell.env),
        **{name: getattr(cell, name) for name in ("dependencies", "profile", "platform", "variant")},
    }
    usual = {"dependencies": "resolved", "profile": "plain", "platform": "linux/amd64"}
    said = ((name, value) for name, value in others.items() if value and value != usual.get(name))
    return lines + [f"    {name}: {json.dumps(value)}" for name, value in said]
