"""Cells as the text of a matrix file, and a file changed by it: one cell is excluded, another one included.

Comments stay.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.core.errors import MatrixError, UsageError
from builder.core.files import write_whole
from builder.core.model import Cell
from builder.plan.matrix.expand import load

_LONGEST = 400
"""Characters of a list that stays on its line: a matrix takes :data:`builder.plan.matrix.nodes.MAX_LINE`."""


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
        **{name: getattr(cell, name) for name in ("pip", "imports", "apt", "verify", "gpus", "index")},
        "compilers": cell.compilers,
        "from-source": [*cell.from_source, *({name: needs} for name, needs in cell.compiled)],
        "env": dict(cell.env),
        **{name: getattr(cell, name) for name in ("dependencies", "profile", "platform", "variant")},
    }
    usual = {"dependencies": "resolved", "profile": "plain", "platform": "linux/amd64"}
    said = ((name, value) for name, value in others.items() if value and value != usual.get(name))
    return lines + [line for name, value in said for line in _lines(name, value)]


def _lines(name: str, value: object) -> list[str]:
    text = json.dumps(value)
    if isinstance(value, (list, tuple)) and len(text) > _LONGEST:
        return [f"    {name}:", *(f"      - {json.dumps(one)}" for one in value)]
    return [f"    {name}: {text}"]


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """One cell that goes, why, and the entry of ``include`` that comes in its place."""

    cell: str
    """The id of the cell that goes."""
    reason: str
    entry: tuple[str, ...]
    """Lines of YAML, as :func:`entry` writes them; empty if the cell is there already."""


def amend(path: Path, replacements: Sequence[Replacement]) -> None:
    """Exclude and include, all or nothing: the new file is read before it takes the old one's place.

    Raises UsageError if a section is written in brackets, or the new file would not be sound.
    """
    text = path.read_text("utf-8")
    for one in replacements:
        rule = f"  - {{id: {json.dumps(one.cell)}, reason: {json.dumps(one.reason)}}}"
        text = _added(text, "exclude", [rule], path)
        if one.entry:
            text = _added(text, "include", list(one.entry), path)
    beside = path.with_name(f".{path.name}.new.yaml")
    try:
        beside.write_text(text, encoding="utf-8")
        matrix = load(beside)
    except MatrixError as problem:
        raise UsageError(
            f"{path}: the change would leave a matrix that does not read, so nothing was written:\n{problem}",
            hint="change it by hand: `rtbuild check` prints the cell to paste",
        ) from problem
    finally:
        beside.unlink(missing_ok=True)
    gone = {cell.id for cell in matrix.cells if cell.excluded is not None}
    if left := [one.cell for one in replacements if one.cell not in gone]:
        raise UsageError(f"{path}: {', '.join(left)} would not go, so nothing was written")
    write_whole(path, text.encode("utf-8"), mode=path.stat().st_mode & 0o777)


def _added(text: str, section: str, entry: list[str], path: Path) -> str:
    """The text with an entry at the end of a section's list, indented as its others are."""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if re.match(rf"{section}\s*:", line)), None)
    if start is None:
        return text.rstrip("\n") + f"\n\n{section}:\n" + "\n".join(entry) + "\n"
    if re.sub(r"\s#.*", "", lines[start].partition(":")[2]).strip():
        raise UsageError(
            f"{path}:{start + 1}: '{section}' is written in brackets; nothing was written",
            hint=f"write its entries as a list of lines, or paste the cell by hand: {entry[0].strip()}",
        )
    end = start + 1
    for number in range(start + 1, len(lines)):
        if re.match(r"[^\s#-]", lines[number]):
            break
        if lines[number].strip() and not lines[number].startswith("#"):
            end = number + 1
    first = next((match for line in lines[start + 1 : end] if (match := re.match(r"(\s*)- ", line))), None)
    indent = first[1] if first is not None else "  "
    lines[end:end] = [indent + line[2:] for line in entry]
    return "\n".join(lines) + "\n"
