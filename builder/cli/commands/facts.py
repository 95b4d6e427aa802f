"""``rtbuild facts``: read the sources of the tables again, and write what the probe carries of them."""

import contextlib
import difflib
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from builder.cli import options as opt
from builder.cli.console import print_json, say, show
from builder.core import resources
from builder.core.errors import UsageError
from builder.core.files import write_whole
from builder.plan.facts.maintain.coverage_report import as_text, coverage
from builder.plan.facts.maintain.framework_sources import FAMILIES
from builder.plan.facts.maintain.probe_facts import portable
from builder.plan.facts.maintain.release_survey import Budget, Survey, survey, table_text
from builder.plan.facts.maintain.side_tables import Refresh, apply, refresh
from builder.sources.index import Index
from builder.sources.oci import Registry

facts = typer.Typer(
    help="The compatibility tables that ship with rtbuild.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


@facts.command("refresh")
def refresh_tables(
    check_: bool = opt.of("--check: Change nothing; exit 1 if something differs.", False),
    only: list[str] | None = opt.of("--only NAME: One framework's table; repeatable."),
    again: bool = opt.of("--again: Read every release, not only missing and changed ones.", False),
    verify: bool = opt.of(
        "--verify: Read the wheels of every row again, none from the cache; change nothing, exit 1 if one "
        "differs or was not read.",
        False,
    ),
    mebibytes: int = opt.of("--budget MIB: Stop after so many MiB.", 16384),
    minutes: int = opt.of("--minutes: Stop after so many minutes.", 360),
    mirror: list[str] | None = opt.MIRROR,
    json_: bool = opt.JSON,
) -> int:
    """Read releases and nvidia/cuda tags again. Show what differs from the tables, and write it."""
    where, index = resources.facts(), Index.from_user(brief=True)
    registry = Registry.from_user(opt.mirrors(mirror))  # a mistyped mirror is refused before hours of reading
    stems = [family.stem for family in FAMILIES]
    for name in only or ():
        if name not in stems:
            raise UsageError(f"there is no table of {name}", hint=f"there are {', '.join(stems)}")
    budget = Budget(bytes=mebibytes << 20, seconds=minutes * 60.0)
    check_ = check_ or verify
    with contextlib.ExitStack() as held:
        # what an earlier run has read of a wheel proves nothing about the wheel
        cache = Path(held.enter_context(TemporaryDirectory(prefix="rtbuild-facts-"))) if verify else None
        read = survey(
            where, index, only=only or (), again=again or verify, budget=budget, say=_progress(), cache=cache
        )
    if verify:  # what is on record is asked about, not what is new
        read.changes = [change for change in read.changes if not change.endswith(": is new")]
    found = Refresh() if verify else refresh(where, index=index, registry=registry)
    texts = {name: (where / name).read_text("utf-8") for name in {change.file for change in found.changes}}
    date = datetime.now(UTC).date().isoformat()
    changed = {
        name: apply(text, [c for c in found.changes if c.file == name], date)
        for name, text in sorted(texts.items())
    }
    diff: list[str] = []
    for name, text in changed.items():
        before, after = texts[name].splitlines(keepends=True), text.splitlines(keepends=True)
        path = f"builder/plan/facts/tables/data/{name}"
        diff += difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", n=0)
    if not check_:
        _write(where, changed | {f"releases/{stem}.json": table_text(t) for stem, t in read.tables.items()})
    differs = bool(changed or read.changes or (verify and (read.left or read.notes)))
    if json_:
        print_json(_document(found, read, written=differs and not check_))
    else:
        show(*(line.removesuffix("\n") for line in diff), *map(str, read.changes))
        _say(found, read, check=check_)
    return 1 if check_ and differs else 0


@facts.command("export")
def export(
    check_: bool = opt.of("--check: Change nothing; exit 1 if the file is not what the tables say.", False),
) -> int:
    """Write the facts that the probe carries. They come from the tables, into
    builder/verify/cudnn_verify/common/facts.json.
    """
    path, text = resources.probe() / "common/facts.json", portable()
    current = path.is_file() and path.read_text("utf-8") == text
    if not current and not check_:
        write_whole(path, text.encode())
    state = "as the tables say" if current else "not as the tables say" if check_ else "written"
    say(f"{path.name} is {state}")
    return 1 if check_ and not current else 0


def _progress() -> Callable[[int, int, int], None]:
    """Says a line on stderr every five seconds."""
    due = time.monotonic() + 5

    def told(done: int, of: int, size: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + 5
            say(f"facts: {done} of {of} wheels, {size >> 20} MiB read")

    return told


def _write(where: Path, texts: dict[str, str]) -> None:
    """Write the tables that change."""
    try:
        paths = {where / name: text for name, text in texts.items()}
        changed = [path for path in paths if not path.exists() or path.read_text("utf-8") != paths[path]]
        for path in changed:
            write_whole(path, paths[path].encode())
        if changed and any((above / "docs" / "facts.md").is_file() for above in where.parents):
            say("note: `make golden` writes docs/facts.md, which is made from the tables")
    except OSError as problem:
        raise UsageError(
            f"the tables in {where} cannot be written: {problem.strerror}",
            hint="refresh them in a checkout of rtbuild; --check only shows the differences",
        ) from problem


def _say(found: Refresh, read: Survey, *, check: bool) -> None:
    for text in (*found.kept, *found.notes, *read.notes):
        say(f"note: {text}")
    for change in found.changes:
        say(f"{change.label}: {change.key} {change.old} -> {change.new}")
    values = f"{len(found.changes) + len(read.changes)} values {'would change' if check else 'changed'}"
    say(f"{read.wheels} wheels read, {read.transferred >> 20} MiB; {values}")
    if read.left:
        say(f"note: the budget was spent with {read.left} wheels left; run it again to go on")
    say(as_text(coverage()).removesuffix("\n"))


def _document(found: Refresh, read: Survey, *, written: bool) -> dict[str, object]:
    return {
        "schema": 1,
        "written": written,
        "changes": [
            {"file": c.file, "row": c.label, "key": c.key, "old": c.old, "new": c.new} for c in found.changes
        ],
        "releases": read.changes,
        "kept": found.kept,
        "notes": [*found.notes, *read.notes],
        "wheels": read.wheels,
        "bytes": read.transferred,
        "left": read.left,
        "coverage": [asdict(one) for one in coverage()],
    }
