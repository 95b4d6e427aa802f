"""The section ``publish``: read like the others, and then held against the cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from builder.matrix import keys
from builder.matrix.document import Alias, ExemptRule, Glob, PublishSection
from builder.matrix.nodes import Node, Table
from builder.matrix.selection import matches
from builder.matrix.source import Problems, nearest
from builder.matrix.values import TAG
from builder.model import Cell, Exemption, Publishing

if TYPE_CHECKING:
    from builder.matrix.reader import Reader


_EXAMPLE = "*-py3.{8,9}-*"


def read_publish(reader: Reader, node: Node | None) -> PublishSection:
    """The values of the section, each checked by itself."""
    table = reader.table(node, "'publish'")
    if table is None:
        return PublishSection()
    reader.unknown(table, keys.PUBLISH, " in 'publish'")
    found = reader.plain(table, keys.PUBLISH)
    age = found.get("max-age")
    return PublishSection(
        staging=found.get("staging"),
        repository=found.get("repository"),
        max_age=int(age) if age else None,
        aliases=_aliases(reader, table),
        exempt=_exempt(reader, table),
    )


def _aliases(reader: Reader, section: Table) -> tuple[Alias, ...]:
    node, hint = section.get("aliases"), "as in {latest: '*-py3.12-*'}"
    table = reader.table(node, "'aliases'", "a mapping of tags to cells", hint)
    found = []
    for name, (key, value) in (table.entries if table is not None else {}).items():
        tag = reader.text(key, TAG, "an alias")
        cell = reader.glob(value, f"the alias '{name}'", _EXAMPLE)
        if tag is not None and cell is not None:
            found.append(Alias(tag, key.span, cell))
    return tuple(found)


def _exempt(reader: Reader, section: Table) -> tuple[ExemptRule, ...]:
    items = reader.items(section.get("exempt"), "'exempt'", "a list of exemptions", "start each with '- '")
    found = []
    for entry in items.nodes if items is not None else ():
        table = reader.table(entry, "an entry of 'exempt'")
        if table is None:
            continue
        reader.unknown(table, keys.EXEMPT, " in 'exempt'")
        given = {name: value for name, (_, value) in table.entries.items() if name in keys.EXEMPT}
        for name, key in keys.EXEMPT.items():
            if key.required and name not in given:
                reader.problems.add(f"this exemption has no '{name}'", table.span, f"add '{name}: …'")
        gpu = reader.text(given["gpu"], keys.EXEMPT["gpu"].syntax, "'gpu'") if "gpu" in given else None
        why = keys.EXEMPT["reason"].syntax
        reason = reader.text(given["reason"], why, "'reason'") if "reason" in given else None
        cell = reader.glob(given["id"], "'id'", _EXAMPLE) if "id" in given else Glob("*", table.span)
        if gpu is not None and reason is not None and cell is not None:
            found.append(ExemptRule(gpu, cell, reason, table.span))
    return tuple(found)


def hold_against_cells(
    section: PublishSection, cells: Sequence[Cell], problems: Problems, *, complete: bool
) -> Publishing:
    """The section in terms of the matrix's cells. Notes aliases and exemptions that name none, or several.

    ``complete``: no error elsewhere may have cost a cell; only then is a name that matches none an error.
    """
    going = [cell for cell in cells if cell.excluded is None]
    aliases = []
    for alias in section.aliases:
        found = [cell.id for cell in going if matches(cell.id, alias.cell.text)]
        if len(found) == 1 and alias.tag not in {cell.id for cell in cells}:
            aliases.append((alias.tag, found[0]))
        elif complete:
            _wrong_alias(alias, found, cells, problems)
    for rule in section.exempt:
        claimed = sorted({gpu for cell in going if matches(cell.id, rule.cell.text) for gpu in cell.gpus})
        if rule.gpu not in claimed and complete:
            problems.add(
                f"no cell that this matches claims '{rule.gpu}'",
                rule.cell.span,
                f"an exemption takes back a claim of 'gpus': {', '.join(claimed) or 'there is none'}",
            )
    return Publishing(
        staging=section.staging,
        repository=section.repository,
        max_age=section.max_age,
        aliases=tuple(aliases),
        exempt=tuple(Exemption(gpu=r.gpu, cells=r.cell.text, reason=r.reason) for r in section.exempt),
    )


def _wrong_alias(alias: Alias, found: Sequence[str], cells: Sequence[Cell], problems: Problems) -> None:
    ids = [cell.id for cell in cells]
    if alias.tag in ids:
        problems.add(
            f"the alias '{alias.tag}' is the id of a cell", alias.span, "each cell has its id as a tag anyway"
        )
    elif found:
        problems.add(
            f"the alias '{alias.tag}' names {len(found)} cells: {', '.join(found[:3])}"
            + (", …" if len(found) > 3 else ""),
            alias.cell.span,
            "one tag is one image: make the glob match a single cell",
        )
    else:
        left_out = [cell for cell in cells if matches(cell.id, alias.cell.text)]
        close = nearest(alias.cell.text, ids)
        hint = f"did you mean '{close}'?" if close else "`rtbuild list` shows all cells"
        if left_out:
            hint = f"{left_out[0].id} is excluded: {left_out[0].excluded}"
        problems.add(f"the alias '{alias.tag}' names no cell of the matrix", alias.cell.span, hint)
