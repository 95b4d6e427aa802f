"""The cells of a matrix document, in the order of the file; cells as the text of a matrix file; and a file
changed by it: one cell is excluded, another one included. Comments stay.
"""

import hashlib
import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from pathlib import Path
from typing import Literal, cast

from builder.core.errors import MatrixError, UsageError
from builder.core.files import write_whole
from builder.core.model import Base, Cell, Cuda, Matrix, Profile, PythonFrom, Span
from builder.core.versions import apart, canonical, holds, names_of, requirement, without_marker
from builder.plan.matrix.nodes import Problems, compose, decoded, nearest, read
from builder.plan.matrix.reader import CELL, Reader, Setting
from builder.plan.matrix.sections import Axes, MatrixDocument, Rule, read_document, read_publish
from builder.plan.matrix.selection import matches
from builder.plan.matrix.values import exact_release, parse_base, parse_reference

MOST_CELLS = 4_096
LONGEST = 128
"""Characters of an id: a Docker tag's limit."""
_HASH = 12
DEFAULT_PLATFORM = "linux/amd64"


def load(path: Path) -> Matrix:
    """Reads, checks and expands one matrix file.

    Raises :class:`~builder.core.errors.MatrixError` with every error of the file, each at its place, and
    :class:`~builder.core.errors.UsageError` if there is no such file to read.
    """
    text, problems = read(path)
    try:
        return _matrix(path, text, problems)
    except MatrixError as wrong:
        wrong.message += _for_resolve(path, text)
        raise


def _matrix(path: Path, text: str, problems: Problems) -> Matrix:
    document = read_document(compose(text, path, problems), path, problems)
    before = problems.noted
    cells = expand(document, problems)
    complete = document.complete and problems.noted == before
    publish = read_publish(Reader(problems), document.publish, cells, complete=complete)
    if problems.noted:
        raise problems.error()
    return Matrix(
        name=document.name, path=path, description=document.description, cells=cells, publish=publish
    )


def _for_resolve(path: Path, text: str) -> str:
    """A line with the command that makes a matrix of a file of requirements; empty for any other file."""
    kinds = {
        "--pyproject": path.suffix == ".toml",
        "--notebook": path.suffix == ".ipynb",
        "-r": path.suffix in {".txt", ".in"} or re.match(r"(?i)(?:ARG .*\n+)*FROM \S", text) is not None,
        "--conda": re.search(r"^dependencies:", text, re.MULTILINE) is not None,
    }
    option = next((name for name, is_one in kinds.items() if is_one), None)
    words = shlex.join(["rtbuild", "resolve", option or "", str(path)])
    return f"\nhint: this is no matrix; `{words}` makes one of it" if option is not None else ""


@dataclass(frozen=True, slots=True)
class _CellDraft:
    """A cell to be: its settings, and where they come from."""

    settings: Mapping[str, Setting]
    point: Mapping[str, Setting]
    """The row's values on the axes; empty for an entry of ``include``."""
    span: Span


def expand(document: MatrixDocument, problems: Problems) -> tuple[Cell, ...]:
    """All cells, the excluded ones with their reason. If an error is noted, some are missing."""
    before = problems.noted
    rows = [*_product(document, problems), *_included(document, problems)]
    cells = [_cell(row, document) for row in rows]
    _check_profiles(rows, cells, problems)
    _check_ids(rows, cells, problems)
    reasons: dict[int, str] = {}
    for rule in document.exclude:
        matched = [i for i, row in enumerate(rows) if _takes_out(rule, row, cells[i])]
        for i in matched:
            reasons.setdefault(i, rule.reason)
        if not matched and document.complete and problems.noted == before:
            _idle_rule(rule, rows, cells, problems)
    return tuple(replace(cell, excluded=reasons[i]) if i in reasons else cell for i, cell in enumerate(cells))


# -- cells


def _product(document: MatrixDocument, problems: Problems) -> Iterator[_CellDraft]:
    axes = document.axes
    if axes is None:
        return
    missing = _missing(document.defaults.given | axes.given)
    if missing and axes.given:
        where = "add them to 'defaults'" if " and " in missing else "add it to 'defaults', or make it an axis"
        problems.add(f"the cells of 'axes' have no {missing}", axes.span, where)
    if missing or not axes.sound or not document.defaults.sound:
        return
    dimensions = _dimensions(axes)
    count = math.prod(len(points) for points in dimensions)
    if count > MOST_CELLS:
        lengths = " x ".join(str(len(points)) for points in dimensions)
        message = f"the axes make {count:,} cells ({lengths}); the limit is {MOST_CELLS:,}"
        problems.add(message, axes.span, "let axes move together with 'zip', or split the matrix")
        return
    for combination in product(*dimensions):
        point = {key: setting for part in combination for key, setting in part.items()}
        ordered = {axis.key: point[axis.key] for axis in axes.axes}
        settings = _over(document.defaults.settings, ordered)
        yield _CellDraft(settings, ordered, next(iter(ordered.values())).span)


def _dimensions(axes: Axes) -> list[list[dict[str, Setting]]]:
    """The factors of the product: each axis, and each zip group in the place of its first axis."""
    by_key = {axis.key: axis for axis in axes.axes}
    group_of = {key: group for group in axes.zips for key in group}
    groups = dict.fromkeys(group_of.get(axis.key, (axis.key,)) for axis in axes.axes)
    columns = {group: zip(*(by_key[key].values for key in group), strict=True) for group in groups}
    return [[dict(zip(group, column, strict=True)) for column in columns[group]] for group in groups]


def _included(document: MatrixDocument, problems: Problems) -> Iterator[_CellDraft]:
    for layer in document.include:
        missing = _missing(document.defaults.given | layer.given)
        if missing:
            problems.add(f"this cell has no {missing}", layer.span, "add it here or to 'defaults'")
        elif layer.sound and document.defaults.sound:
            yield _CellDraft(_over(document.defaults.settings, layer.settings), {}, layer.span)


def _missing(given: frozenset[str]) -> str:
    """The required keys that are not given: ``'base' and no 'cuda'``."""
    required = (key.name for key in CELL.values() if key.required)
    return " and no ".join(f"'{name}'" for name in required if name not in given)


def _over(below: Mapping[str, Setting], above: Mapping[str, Setting]) -> dict[str, Setting]:
    """A layer over another: lists grow, variables of the same name and all other values give way."""
    merged = dict(below)
    for name, setting in above.items():
        if CELL[name].adds and name in below:
            items = (*below[name].items, *setting.items)
            end = _NAME_ENDS.get(name)
            last = {item.partition(end)[0] if end else item: item for item in items}
            merged[name] = Setting(tuple(last.values()), setting.span)
        else:
            merged[name] = setting
    return merged


_NAME_ENDS = {"env": "=", "from-source": ":"}
"""Keys that may give the same name twice; the upper layer's counts."""


def _cell(row: _CellDraft, document: MatrixDocument) -> Cell:
    def items(key: str) -> tuple[str, ...]:
        return row.settings[key].items if key in row.settings else ()

    provider, *packages = items("cuda")
    profile = cast("Profile", (*items("profile"), "plain")[0])
    frameworks, (version, *origin) = items("framework"), items("python")
    python = ".".join(version.split(".")[:2])
    builds = [item.partition(":") for item in items("from-source")]
    cell = Cell(
        id="",
        matrix=document.name,
        frameworks=frameworks,
        python=python,
        base=parse_base(items("base")[0]),
        cuda=Cuda(provider=cast("Literal['base', 'wheels', 'none']", provider), packages=tuple(packages)),
        platform=(*items("platform"), DEFAULT_PLATFORM)[0],
        pip=_pip(profile, python=python, frameworks=frameworks, given=items("pip")),
        imports=items("imports"),
        apt=_apt(profile, items("apt")),
        compilers=items("compilers") == ("true",) or "compile" in items("verify"),
        verify=items("verify"),
        env=tuple((name, value) for name, _, value in (item.partition("=") for item in items("env"))),
        gpus=items("gpus"),
        index=items("index"),
        dependencies=cast("Literal['resolved', 'listed']", (*items("dependencies"), "resolved")[0]),
        profile=profile,
        from_source=tuple(name for name, colon, _ in builds if not colon),
        compiled=tuple((name, tuple(needs.split())) for name, colon, needs in builds if colon),
        python_patch=version if version != python else None,
        python_from=cast("PythonFrom | None", (*origin, None)[0]),
        variant=(*items("variant"), None)[0],
        options=document.options,
        span=row.span,
    )
    return replace(cell, id=cell_id(cell))


# -- what a profile adds: requirements like all others, which are locked, compared and shown

# Versions of Colab's own runtime, the same in all lists from 2025.07 to 2026.07:
# https://github.com/googlecolab/backend-info/blob/main/pip-freeze.gpu.txt
_PROFILE_PIP: dict[Profile, tuple[str, ...]] = {
    "colab": (
        "ipykernel==6.17.1",
        'ipython==7.34.0; python_version < "3.12"',
        'ipython<9,>=8; python_version >= "3.12"',  # 7 imports imp, which went: %load_ext autoreload
        "ipywidgets==7.7.1",
        "jupyter-server<3,>=2",
        "notebook==6.5.7",
        'setuptools; python_version >= "3.12"',  # notebook 6 imports distutils, which went with 3.12
    )
}
# The commands that notebooks call most; Colab's own images have all of them:
# https://github.com/googlecolab/backend-info/blob/main/apt-list.txt
# tini is PID 1: it forwards signals, and reaps processes that notebooks leave behind.
_PROFILE_APT: dict[Profile, tuple[str, ...]] = {
    "colab": ("curl", "git", "less", "procps", "tini", "unzip", "wget", "zip")
}
PROFILE_PYTHON: dict[Profile, int] = {"colab": 8}
"""The oldest minor version that a profile runs on: that of ipykernel 6.17 and jupyter_server 2."""


def _pip(
    profile: Profile, *, python: str, frameworks: Sequence[str], given: Sequence[str]
) -> tuple[str, ...]:
    """``given`` requirements and the profile's. A project that the matrix names itself keeps its version."""
    named = names_of((*frameworks, *given))
    own = (
        without_marker(parsed)
        for parsed in filter(None, map(requirement, _PROFILE_PIP.get(profile, ())))
        if canonical(parsed.name) not in named and holds(parsed, {"python_version": python})
    )
    return (*given, *own)


def _apt(profile: Profile, given: Sequence[str]) -> tuple[str, ...]:
    """``given`` Debian packages and the profile's."""
    named = {text.partition("=")[0] for text in given}
    return (*given, *(name for name in _PROFILE_APT.get(profile, ()) if name not in named))


# -- ids. No other code takes one apart.


def cell_id(cell: Cell) -> str:
    """``tensorflow2.8.4-py3.9-bullseye-cudnn8.6.0.163``: a legal Docker tag in lower case.

    Two cells can get the same id (they differ in packages alone, say); the caller looks for that.
    """
    parts = ["".join(exact_release(text) or text) for text in cell.frameworks]
    parts += [f"py{cell.named_python}", _base(cell.base)]
    if cell.cuda.provider == "wheels":
        parts.append(_cudnn(cell.cuda.packages))
    elif cell.cuda.provider == "none":
        parts.append("cpu")
    if cell.platform != DEFAULT_PLATFORM:
        parts.append(cell.platform.partition("/")[2])
    if cell.profile != "plain":
        parts.append(cell.profile)
    if cell.variant is not None:
        parts.append(cell.variant)
    # What a tag does not allow is '+' and '!' of versions.
    whole = re.sub(r"[^a-z0-9_.-]", "_", "-".join(parts).lower())
    if len(whole) <= LONGEST:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:_HASH]
    return f"{whole[: LONGEST - _HASH - 1]}-{digest}"


def _base(base: Base) -> str:
    if base.kind == "rootfs":
        return base.name.rpartition("/")[2]
    reference = parse_reference(base.name)
    name = reference.path.rpartition("/")[2]
    if reference.tag is None:
        # Only if nothing else identifies the image: a newer digest of the same tag keeps its cell's id.
        return f"{name}-{(reference.digest or '').removeprefix('sha256:')[:_HASH]}"
    tag = reference.tag
    if f"/{reference.path}".endswith("/nvidia/cuda"):
        tag = tag.replace("-runtime", "", 1)
    return f"{name}{tag}" if tag[0].isdigit() else f"{name}-{tag}"


def _cudnn(packages: Sequence[str]) -> str:
    for text in packages:
        pinned = exact_release(text)
        if pinned and re.fullmatch(r"nvidia-cudnn-cu\d+", pinned[0]):
            return f"cudnn{pinned[1]}"
    return "cudawheels"


def _check_profiles(rows: list[_CellDraft], cells: list[Cell], problems: Problems) -> None:
    """Notes a Python that is too old for a cell's profile, once for each place where they meet."""
    seen = set()
    for row, cell in zip(rows, cells, strict=True):
        python = row.settings["python"]
        oldest = PROFILE_PYTHON.get(cell.profile, 0)
        if int(cell.python.partition(".")[2]) < oldest and python.span not in seen:
            seen.add(python.span)
            problems.add(
                f"the profile '{cell.profile}' needs Python 3.{oldest} or later, not {python.items[0]}",
                python.span,
                "its Jupyter has no older one: take another Python, or profile: plain",
            )


def _check_ids(rows: list[_CellDraft], cells: list[Cell], problems: Problems) -> None:
    """Notes cells of the same id: once for each pair of rules, however many cells they make."""
    first: dict[str, int] = {}
    pairs: dict[tuple[Span, Span], tuple[str, list[str]]] = {}
    for i, cell in enumerate(cells):
        earlier = first.setdefault(cell.id, i)
        if earlier != i:
            one, other, message = _clash(rows[earlier], rows[i])
            pairs.setdefault((one, other), (message, []))[1].append(cell.id)
    for (_, span), (message, ids) in pairs.items():
        more = f" (and so for {len(ids) - 1} more {'ids' if len(ids) > 2 else 'id'})" if len(ids) > 1 else ""
        problems.add(
            f"two cells get the id '{ids[0]}': {message}{more}",
            span,
            "tell them apart by 'variant': a key of its own, or an axis zipped with the one that differs",
        )


def _clash(one: _CellDraft, other: _CellDraft) -> tuple[Span, Span, str]:
    """The two places that make the same id, and how to call them."""
    differ = [
        key for key in one.point if key in other.point and one.point[key].items != other.point[key].items
    ]
    if not differ:
        rules = (f"one from {'axes' if r.point else 'include'!r} (line {r.span.line})" for r in (one, other))
        return one.span, other.span, ", ".join(rules)
    first, second = one.point[differ[0]].span, other.point[differ[0]].span
    axes = " and ".join(f"'{key}'" for key in differ)
    lines = f"line {first.line}" if first.line == second.line else f"lines {first.line} and {second.line}"
    return first, second, f"the values of {axes} in {lines} do not show in it"


# -- exclude


def _values(key: str, row: _CellDraft, cell: Cell) -> tuple[str, ...]:
    """The values that a glob on a key is tried on."""
    if key in {"id", "platform"}:
        return (getattr(cell, key),)
    if key == "from-source":
        return (*cell.from_source, *(name for name, _ in cell.compiled))
    items = row.settings[key].items if key in row.settings else ()
    return (cell.python, *items) if key == "python" else items


def _takes_out(rule: Rule, row: _CellDraft, cell: Cell) -> bool:
    globs = rule.globs.items()
    return all(any(matches(value, glob.text) for value in _values(key, row, cell)) for key, glob in globs)


def _idle_rule(rule: Rule, rows: list[_CellDraft], cells: list[Cell], problems: Problems) -> None:
    """Notes a rule that matches nothing, at the glob that is to blame if there is one."""
    for key, glob in rule.globs.items():
        pairs = zip(rows, cells, strict=True)
        values = sorted({value for row, cell in pairs for value in _values(key, row, cell)})
        if any(matches(value, glob.text) for value in values):
            continue
        close = nearest(glob.text, values)
        shown = ", ".join(values[:12]) + (f" and {len(values) - 12} more" if len(values) > 12 else "")
        hint = (f"did you mean '{close}'? " if close else "") + f"the cells have: {shown or 'none'}"
        problems.add(f"this rule matches no cell: none has {key} '{glob.text}'", glob.span, hint)
        return
    message = "this rule matches no cell: each of its globs matches some, but no cell matches them all"
    problems.add(message, rule.span, "take the rule out, or correct it")


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
    id: str
    """Of the cell that comes."""


def amend(path: Path, replacements: Sequence[Replacement]) -> None:
    """Exclude and include, all or nothing: the new file is read before it takes the old one's place.

    Raises UsageError if a section is written in brackets, the new file would not be sound, or ``defaults``
    keep a package of a new cell at another release.
    """
    text = path.read_text("utf-8")
    for one in replacements:
        rule = f"  - {{id: {json.dumps(one.cell)}, reason: {json.dumps(one.reason)}}}"
        text = _added(text, "exclude", [rule], path)
        if one.entry:
            text = _added(text, "include", list(one.entry), path)
    try:
        matrix = _matrix(path, *decoded(path, text.encode()))
    except MatrixError as problem:
        raise UsageError(
            f"{path}: the change would leave a matrix that does not read, so nothing was written:\n{problem}",
            hint="change it by hand: `rtbuild check` prints the cell to paste",
        ) from problem
    gone = {cell.id for cell in matrix.cells if cell.excluded is not None}
    if left := [one.cell for one in replacements if one.cell not in gone]:
        raise UsageError(f"{path}: {', '.join(left)} would not go, so nothing was written")
    came = {one.id for one in replacements if one.entry}
    for cell in matrix.cells:
        asked = [parsed for parsed in map(requirement, cell.pip if cell.id in came else ()) if parsed]
        for first, other in combinations(asked, 2):
            if canonical(first.name) == canonical(other.name) and apart(first.specifier, other.specifier):
                raise UsageError(
                    f"{path}: `pip` of `defaults` has {first} for each cell, and {cell.id} needs {other}; "
                    "nothing was written",
                    hint="take it out of `defaults`, and give each cell its own",
                )
    write_whole(path, text.encode(), mode=path.stat().st_mode & 0o777)


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
