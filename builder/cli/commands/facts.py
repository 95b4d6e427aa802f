"""``rtbuild facts``: read the sources of the tables again, and write what the probe carries of them."""

import time
from collections.abc import Callable

import typer

from builder.cli import options as opt
from builder.cli.console import print_json, say, show
from builder.core import resources
from builder.core.files import write_whole
from builder.plan.facts.reading import days_table, names_table, reread
from builder.plan.facts.tables import portable
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
    only: list[str] | None = opt.of("--only NAME: One table, of a framework or a package; repeatable."),
    again: bool = opt.of("--again: Read every release, not only missing and changed ones.", False),
    verify: bool = opt.of(
        "--verify: Read the wheels of every row again, none from the cache; change nothing, exit 1 if one "
        "differs or was not read.",
        False,
    ),
    mebibytes: int = opt.of("--budget MIB: Stop after so many MiB.", 16384, min=1, max=1 << 30),
    minutes: int = opt.of("--minutes: Stop after so many minutes.", 360, min=1, max=100_000),
    mirror: list[str] | None = opt.MIRROR,
    json_: bool = opt.JSON,
) -> int:
    """Read releases and nvidia/cuda tags again. Show what differs from the tables, and write it."""
    where, index = resources.facts(), Index.from_user(brief=True)
    registry = Registry.from_user(opt.mirrors(mirror))  # a mistyped mirror is refused before hours of reading
    check_ = check_ or verify
    told = reread(
        where,
        index=index,
        registry=registry,
        only=only or (),
        again=again,
        verify=verify,
        most_bytes=mebibytes << 20,
        most_seconds=minutes * 60.0,
        say=_progress(),
    )
    diff = told.diff()
    if (
        not check_
        and told.write()
        and any((above / "docs" / "facts.md").is_file() for above in where.parents)
    ):
        say("note: `make golden` writes docs/facts.md, which is made from the tables")
    if json_:
        print_json(told.as_json(written=told.differs and not check_))
    else:
        show(*(line.removesuffix("\n") for line in diff), *map(str, told.read.changes))
        for line in told.lines(written=not check_):
            say(line)
    return 1 if check_ and told.differs else 0


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


@facts.command("names")
def names(
    only: list[str] | None = opt.of("--only NAME: One package; repeatable. The others stay as they are."),
) -> int:
    """Write the names that releases lost or brought. They come from wheels on the index, into
    builder/verify/cudnn_verify/common/names.json: names of modules, members of classes, keywords of
    functions. All of them take hours.
    """
    path = resources.probe() / "common/names.json"
    current = path.read_text("utf-8") if path.is_file() else "{}"
    said = list[str]()

    def told(step: str) -> None:  # of a wheel it is told once for each of its modules
        if said[-1:] != [step]:
            said.append(step)
            say(step)

    text = names_table(Index.from_user(brief=True), told, only or (), current=current)
    write_whole(path, text.encode())
    say(f"{path.name} is written: {len(text)} bytes")
    return 0


@facts.command("days")
def days(
    only: list[str] | None = opt.of("--only NAME: One package; repeatable. The others stay as they are."),
) -> int:
    """Write the day on which each release came. The days come from the package index, into
    builder/verify/cudnn_verify/common/release_days.json, for the packages of release-days.toml; with them the
    last release for each Python that the newest one leaves out.
    """
    path = resources.probe() / "common/release_days.json"
    current = path.read_text("utf-8") if path.is_file() else "{}"
    text = days_table(Index.from_user(brief=True), say, only or (), current=current)
    write_whole(path, text.encode())
    say(f"{path.name} is written: {len(text)} bytes")
    return 0


def _progress() -> Callable[[int, int, int], None]:
    """Says a line on stderr every five seconds."""
    due = time.monotonic() + 5

    def told(done: int, of: int, size: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + 5
            say(f"facts: {done} of {of} wheels, {size >> 20} MiB read")

    return told
