"""The section ``publish``: read like the others, in terms of the matrix's cells."""

from collections.abc import Sequence

from builder.core.model import Cell, Exemption, Publishing
from builder.plan.matrix import keys
from builder.plan.matrix.document import Glob
from builder.plan.matrix.nodes import Node, Table
from builder.plan.matrix.reader import Reader
from builder.plan.matrix.selection import matches
from builder.plan.matrix.source import Problems, nearest
from builder.plan.matrix.values import TAG

_EXAMPLE = "*-py3.{8,9}-*"


def read_publish(reader: Reader, node: Node | None, cells: Sequence[Cell], *, complete: bool) -> Publishing:
    """The section. Notes aliases and exemptions that name no cell, or several.

    ``complete``: no error elsewhere may have cost a cell; only then is a name that matches none an error.
    """
    table = reader.shaped(Table, node, "'publish'")
    if table is None:
        return Publishing()
    reader.unknown(table, keys.PUBLISH, " in 'publish'")
    found = reader.plain(table, keys.PUBLISH)
    age = found.get("max-age")
    return Publishing(
        staging=found.get("staging"),
        repository=found.get("repository"),
        max_age=int(age) if age else None,
        aliases=_aliases(reader, table, cells, complete=complete),
        exempt=_exempt(reader, table, cells, complete=complete),
    )


def _aliases(
    reader: Reader, section: Table, cells: Sequence[Cell], *, complete: bool
) -> tuple[tuple[str, str], ...]:
    wanted, hint = "a mapping of tags to cells", "as in {latest: '*-py3.12-*'}"
    table = reader.shaped(Table, section.get("aliases"), "'aliases'", wanted, hint)
    aliases = []
    for name, (key, value) in (table.entries if table is not None else {}).items():
        tag = reader.text(key, TAG, "an alias")
        glob = reader.glob(value, f"the alias '{name}'", _EXAMPLE)
        if tag is None or glob is None:
            continue
        found = [cell.id for cell in cells if cell.excluded is None and matches(cell.id, glob.text)]
        if tag in {cell.id for cell in cells}:
            if complete:
                message = f"the alias '{tag}' is the id of a cell"
                reader.problems.add(message, key.span, "each cell has its id as a tag anyway")
        elif len(found) == 1:
            aliases.append((tag, found[0]))
        elif complete:
            _refuse_alias(reader.problems, tag, glob, found, cells)
    return tuple(aliases)


def _refuse_alias(
    problems: Problems, tag: str, glob: Glob, found: Sequence[str], cells: Sequence[Cell]
) -> None:
    if found:
        listed = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
        hint = "one tag is one image: make the glob match a single cell"
        problems.add(f"the alias '{tag}' names {len(found)} cells: {listed}", glob.span, hint)
        return
    left_out = [cell for cell in cells if matches(cell.id, glob.text)]
    close = nearest(glob.text, [cell.id for cell in cells])
    hint = f"did you mean '{close}'?" if close else "`rtbuild list` shows all cells"
    if left_out:
        hint = f"{left_out[0].id} is excluded: {left_out[0].excluded}"
    problems.add(f"the alias '{tag}' names no cell of the matrix", glob.span, hint)


def _exempt(
    reader: Reader, section: Table, cells: Sequence[Cell], *, complete: bool
) -> tuple[Exemption, ...]:
    exempt = []
    for table in reader.tables(section.get("exempt"), "exempt", "exemptions"):
        reader.unknown(table, keys.EXEMPT, " in 'exempt'")
        for name, key in keys.EXEMPT.items():
            if key.required and name not in table.entries:
                reader.problems.add(f"this exemption has no '{name}'", table.span, f"add '{name}: …'")
        said = reader.plain(table, {name: key for name, key in keys.EXEMPT.items() if name != "id"})
        gpu, reason = said.get("gpu"), said.get("reason")
        node = table.get("id")
        glob = Glob("*", table.span) if node is None else reader.glob(node, "'id'", _EXAMPLE)
        if gpu is None or reason is None or glob is None:
            continue
        fitting = (cell for cell in cells if cell.excluded is None and matches(cell.id, glob.text))
        claimed = sorted({claim for cell in fitting for claim in cell.gpus})
        if gpu not in claimed and complete:
            hint = f"an exemption takes back a claim of 'gpus': {', '.join(claimed) or 'there is none'}"
            reader.problems.add(f"no cell that this matches claims '{gpu}'", glob.span, hint)
        exempt.append(Exemption(gpu=gpu, cells=glob.text, reason=reason))
    return tuple(exempt)
