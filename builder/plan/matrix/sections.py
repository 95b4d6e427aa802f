"""The sections of a matrix file, each read by itself: an error in one hides none in another."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from builder.core.model import Cell, Exemption, Options, Publishing, Span
from builder.plan.matrix.nodes import Items, Node, Problems, Scalar, Table, did_you_mean, is_empty, nearest
from builder.plan.matrix.reader import (
    CELL,
    EXEMPT,
    HEAD,
    OPTIONS,
    PUBLISH,
    SECTIONS,
    CellSettings,
    Glob,
    Reader,
    Setting,
    holes,
    meant,
)
from builder.plan.matrix.selection import matches
from builder.plan.matrix.values import GLOB, NAME, PROSE, TAG, BadValue


@dataclass(frozen=True, slots=True)
class Axis:
    key: str
    values: tuple[Setting, ...]
    sound: bool


@dataclass(frozen=True, slots=True)
class Axes:
    axes: tuple[Axis, ...]
    zips: tuple[tuple[str, ...], ...]
    """Keys of axes that move together."""
    given: frozenset[str]
    span: Span
    sound: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """An entry of ``exclude``: takes out the cells that match all of its globs."""

    globs: Mapping[str, Glob]
    """By key of a cell, or ``id``."""
    reason: str
    span: Span


@dataclass(frozen=True, slots=True)
class MatrixDocument:
    name: str
    description: str
    defaults: CellSettings
    axes: Axes | None
    include: tuple[CellSettings, ...]
    exclude: tuple[Rule, ...]
    options: Options
    publish: Node | None
    """Read once the cells are there, which it names."""
    complete: bool
    """False if an error may have cost a cell; a glob that matches no cell may then match the lost one."""


def read_document(root: Node, path: Path, problems: Problems) -> MatrixDocument:
    """The whole file. Errors are in ``problems``; raises MatrixError only if nothing can be read."""
    reader = Reader(problems)
    top = reader.shaped(Table, root, "a matrix", "a mapping", "start with 'version: 1'")
    if top is None:
        raise problems.error()
    reader.unknown(top, (*HEAD, *SECTIONS), " at the top of the file")
    include_node = top.get("include")
    none_included = include_node is None or (isinstance(include_node, Items) and not include_node.nodes)
    if problems.noted == 0 and "axes" not in top.entries and none_included:
        hint = "add 'axes' with lists of values, or 'include' with single cells"
        problems.add("the file describes no cells", problems.span(1, 1), hint)
    defaults, axes = _defaults(reader, top), _axes(reader, top)
    included = reader.tables(include_node, "include", "cells")
    include = tuple(reader.layer(table, "in 'include'") for table in included)
    complete = problems.noted == 0
    if "version" not in meant(top, (*HEAD, *SECTIONS)):
        message = "the file does not say which 'version' of the format it is"
        problems.add(message, problems.span(1, 1), "add 'version: 1'")
    head = reader.plain(top, HEAD)
    rules = [_rule(reader, table) for table in reader.tables(top.get("exclude"), "exclude", "rules")]
    return MatrixDocument(
        name=head["name"] or "" if "name" in head else _name_of(path, problems),
        description=head.get("description") or "",
        defaults=defaults,
        axes=axes,
        include=include,
        exclude=tuple(rule for rule in rules if rule is not None),
        options=_options(reader, top),
        publish=top.get("publish"),
        complete=complete,
    )


def _name_of(path: Path, problems: Problems) -> str:
    try:
        return NAME.check(path.stem)
    except BadValue:
        slug = re.sub("[^a-z0-9]+", "-", path.stem.lower()).strip("-") or "my-matrix"
        message = f"the file's name '{path.stem}' cannot be the matrix's name"
        problems.add(message, problems.span(1, 1), f"add 'name: {slug}'")
        return slug


def _defaults(reader: Reader, top: Table) -> CellSettings:
    node = top.get("defaults")
    table = reader.shaped(Table, node, "'defaults'", "a mapping of a cell's keys")
    if table is not None:
        return reader.layer(table, "in 'defaults'")
    # If it is unreadable, it may have held any key.
    given = frozenset[str]() if node is None else frozenset(CELL)
    return CellSettings({}, given, top.span, sound=node is None)


def _axes(reader: Reader, top: Table) -> Axes | None:
    node = top.get("axes")
    before = reader.problems.noted
    hint = "as in 'python: [3.8, 3.9]', each on a line of its own"
    table = reader.shaped(Table, node, "'axes'", "a mapping of keys to lists", hint)
    if table is None:
        # If 'axes' is unreadable, it may have held any axis.
        _zips(reader, top.get("zip"), {}, frozenset() if node is None else frozenset(CELL))
        return None
    if not table.entries:
        reader.problems.add("'axes' is empty", table.span, hint)
    reader.unknown(table, CELL, "", kind="axis")
    axes = {name: _axis(reader, name, value) for name, (_, value) in table.entries.items() if name in CELL}
    zips = _zips(reader, top.get("zip"), axes, meant(table))
    zipped = {name for group in zips for name in group}
    for axis in axes.values():
        if axis.key not in zipped:
            _repeated(reader, axis)
    sound = reader.problems.noted == before and not holes(table)
    return Axes(tuple(axes.values()), zips, meant(table), top.entries["axes"][0].span, sound)


def _axis(reader: Reader, name: str, node: Node) -> Axis:
    what = f"the axis '{name}'"
    bare = node.text if isinstance(node, Scalar) else ""
    hint = f"write '{name}: [{bare}]', or move it to 'defaults'" if bare else None
    items = reader.shaped(Items, node, what, "a list of values", hint)
    if items is None:
        return Axis(name, (), sound=False)
    if not items.nodes:
        hint = "with no value there are no cells; take it out, or fill it"
        reader.problems.add(f"{what} is empty", items.span, hint)
    found = [reader.setting(child, CELL[name]) for child in items.nodes]
    values = tuple(setting for setting in found if setting is not None)
    return Axis(name, values, sound=bool(values) and len(values) == len(found))


def _repeated(reader: Reader, axis: Axis) -> None:
    first: dict[tuple[str, ...], int] = {}
    for value in axis.values:
        if value.items in first:
            hint = f"the first one is in line {first[value.items]}; keep one of them"
            reader.problems.add(f"the axis '{axis.key}' has this value twice", value.span, hint)
        first.setdefault(value.items, value.span.line)


def _zips(
    reader: Reader, node: Node | None, axes: Mapping[str, Axis], given: frozenset[str]
) -> tuple[tuple[str, ...], ...]:
    """The groups of ``zip``. ``given`` names all axes, including the ones that could not be read."""
    hint = "a list of groups, as in [[base, cuda]]"
    items = reader.shaped(Items, node, "'zip'", "a list of lists of axes", hint)
    if items is None:
        return ()
    if items.nodes and all(isinstance(child, Scalar) and not is_empty(child) for child in items.nodes):
        reader.problems.add("'zip' wants a list of lists of axes, not a list of axes", items.span, hint)
        return ()
    taken: dict[str, int] = {}
    groups = []
    for child in items.nodes:
        group = reader.shaped(Items, child, "a group of 'zip'", "a list of axes", hint)
        if group is not None:
            groups.append(_group(reader, group, axes, given, taken))
    return tuple(groups)


def _group(
    reader: Reader, group: Items, axes: Mapping[str, Axis], given: frozenset[str], taken: dict[str, int]
) -> tuple[str, ...]:
    problems = reader.problems
    names = []
    for node in group.nodes:
        name = reader.text(node, GLOB, "a name in 'zip'")
        if name is None:
            continue
        if name in taken:
            hint = f"the first time in line {taken[name]}; axes that move together belong into one group"
            problems.add(f"the axis '{name}' is in 'zip' twice", node.span, hint)
        elif name not in given:
            known = did_you_mean(name, axes) if axes else "the file has no axes"
            problems.add(f"'zip' names the axis '{name}', which is not there", node.span, known)
        elif name in axes:
            names.append(name)
        taken.setdefault(name, node.span.line)
    if len(group.nodes) < 2:
        hint = "one axis moves by itself without 'zip'"
        problems.add("a group of 'zip' needs two axes or more", group.span, hint)
    lengths = {name: len(axes[name].values) for name in names if axes[name].sound}
    if len(set(lengths.values())) > 1:
        each = (f"'{name}' has {length} value{'s' * (length > 1)}" for name, length in lengths.items())
        problems.add("axes that move together have different lengths", group.span, ", ".join(each))
    return tuple(names)


def _rule(reader: Reader, table: Table) -> Rule | None:
    problems = reader.problems
    before = problems.noted
    globbed = (*CELL, "id")
    reader.unknown(table, (*globbed, "reason"), " in 'exclude'")
    globs = {}
    hint = "one glob; for several values use braces: '{3.8,3.9}'"
    for name, (_, node) in table.entries.items():
        if name in globbed and (glob := reader.glob(node, f"'{name}'", "{3.8,3.9}", hint)) is not None:
            globs[name] = glob
    reason = None
    if (said := table.get("reason")) is not None:
        reason = reader.text(said, PROSE, "'reason'")
        if reason == "":
            problems.add("'reason' is empty", said.span, "say why these cells are left out")
    elif "reason" not in meant(table, (*globbed, "reason")):
        problems.add("this rule has no 'reason'", table.span, 'say why these cells are left out: reason: "…"')
    if not set(table.entries) - {"reason"}:
        message = "this rule names no key, so it would leave out every cell"
        problems.add(message, table.span, f"valid here: {', '.join(globbed)}")
    if problems.noted > before or holes(table) or reason is None:
        return None
    return Rule(globs, reason, table.span)


def _options(reader: Reader, top: Table) -> Options:
    table = reader.shaped(Table, top.get("options"), "'options'")
    if table is None:
        return Options()
    reader.unknown(table, OPTIONS, " in 'options'")
    found = reader.plain(table, OPTIONS)
    size = found.get("max-size")
    return Options(
        compression=cast("Literal['zstd', 'gzip']", found.get("compression") or "zstd"),
        strict_cudnn=found.get("strict-cudnn") == "true",
        max_size=int(size) if size else None,
        slim=found.get("slim") != "false",
    )


# -- publish


_GLOB_OF_CELLS = "*-py3.{8,9}-*"


def read_publish(reader: Reader, node: Node | None, cells: Sequence[Cell], *, complete: bool) -> Publishing:
    """The section. Notes aliases and exemptions that name no cell, or several.

    ``complete``: no error elsewhere may have cost a cell; only then is a name that matches none an error.
    """
    table = reader.shaped(Table, node, "'publish'")
    if table is None:
        return Publishing()
    reader.unknown(table, PUBLISH, " in 'publish'")
    found = reader.plain(table, PUBLISH)
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
        glob = reader.glob(value, f"the alias '{name}'", _GLOB_OF_CELLS)
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
        reader.unknown(table, EXEMPT, " in 'exempt'")
        for name, key in EXEMPT.items():
            if key.required and name not in table.entries:
                reader.problems.add(f"this exemption has no '{name}'", table.span, f"add '{name}: …'")
        said = reader.plain(table, {name: key for name, key in EXEMPT.items() if name != "id"})
        gpu, reason = said.get("gpu"), said.get("reason")
        node = table.get("id")
        glob = Glob("*", table.span) if node is None else reader.glob(node, "'id'", _GLOB_OF_CELLS)
        if gpu is None or reason is None or glob is None:
            continue
        fitting = (cell for cell in cells if cell.excluded is None and matches(cell.id, glob.text))
        claimed = sorted({claim for cell in fitting for claim in cell.gpus})
        if gpu not in claimed and complete:
            hint = f"an exemption takes back a claim of 'gpus': {', '.join(claimed) or 'there is none'}"
            reader.problems.add(f"no cell that this matches claims '{gpu}'", glob.span, hint)
        exempt.append(Exemption(gpu=gpu, cells=glob.text, reason=reason))
    return tuple(exempt)
