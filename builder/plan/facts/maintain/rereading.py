"""The sources of all tables read again: the differences, and the tables with them."""

import contextlib
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from builder.core.errors import UsageError
from builder.core.files import write_whole
from builder.plan.facts.maintain.coverage_report import as_text, coverage
from builder.plan.facts.maintain.framework_sources import families
from builder.plan.facts.maintain.release_survey import Budget, Survey, survey, table_text
from builder.plan.facts.maintain.side_tables import Refresh, apply, refresh
from builder.sources.index import Index
from builder.sources.oci import Registry


@dataclass(frozen=True, kw_only=True)
class Reread:
    """What differs from the tables in a folder."""

    folder: Path
    found: Refresh
    read: Survey
    changed: Mapping[str, str]
    """The new texts of the tables that :attr:`found` changes, by file name."""
    differs: bool
    """Whether a table is not what was read; of a verification also whether a wheel was not read."""

    def diff(self) -> list[str]:
        """The lines of a patch of the checkout."""
        lines: list[str] = []
        for name, text in self.changed.items():
            before = (self.folder / name).read_text("utf-8").splitlines(keepends=True)
            path = f"builder/plan/facts/tables/data/{name}"
            after = text.splitlines(keepends=True)
            lines += difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", n=0)
        return lines

    def write(self) -> bool:
        """Write the tables that change; whether there are any. Raises UsageError if it cannot."""
        texts = {
            self.folder / name: text
            for name, text in {
                **self.changed,
                **{f"releases/{stem}.json": table_text(table) for stem, table in self.read.tables.items()},
            }.items()
        }
        try:
            changed = [path for path in texts if not path.exists() or path.read_text("utf-8") != texts[path]]
            for path in changed:
                write_whole(path, texts[path].encode())
        except OSError as problem:
            raise UsageError(
                f"the tables in {self.folder} cannot be written: {problem.strerror}",
                hint="refresh them in a checkout of rtbuild; --check only shows the differences",
            ) from problem
        return bool(changed)

    def lines(self, *, written: bool) -> Iterator[str]:
        """The differences, what could not be read, and the deciding values that the tables have."""
        found, read = self.found, self.read
        yield from (f"note: {text}" for text in (*found.kept, *found.notes, *read.notes))
        yield from (f"{c.label}: {c.key} {c.old} -> {c.new}" for c in found.changes)
        values = f"{len(found.changes) + len(read.changes)} values {'changed' if written else 'would change'}"
        yield f"{read.wheels} wheels read, {read.transferred >> 20} MiB; {values}"
        if read.left:
            yield f"note: the budget was spent with {read.left} wheels left; run it again to go on"
        yield as_text(coverage()).removesuffix("\n")

    def as_json(self, *, written: bool) -> dict[str, object]:
        found, read = self.found, self.read
        return {
            "schema": 1,
            "written": written,
            "changes": [
                {"file": c.file, "row": c.label, "key": c.key, "old": c.old, "new": c.new}
                for c in found.changes
            ],
            "releases": read.changes,
            "kept": found.kept,
            "notes": [*found.notes, *read.notes],
            "wheels": read.wheels,
            "bytes": read.transferred,
            "left": read.left,
            "coverage": [asdict(one) for one in coverage()],
        }


def reread(
    folder: Path,
    *,
    index: Index,
    registry: Registry,
    only: Sequence[str] = (),
    again: bool = False,
    verify: bool = False,
    most_bytes: int,
    most_seconds: float,
    say: Callable[[int, int, int], None],
) -> Reread:
    """Read the sources of the tables in ``folder``; nothing is written.

    ``only`` these frameworks' releases; ``again`` also those that are on record; ``verify`` every wheel on
    record, none from the cache, and no other source. Raises UsageError if no table is of that name.
    """
    names = sorted({family.name for family in families(folder)})
    for name in only:
        if name not in names:
            raise UsageError(f"there is no table of {name}", hint=f"there are {', '.join(names)}")
    budget = Budget(bytes=most_bytes, seconds=most_seconds)
    with contextlib.ExitStack() as held:
        # what an earlier run has read of a wheel proves nothing about the wheel
        cache = Path(held.enter_context(TemporaryDirectory(prefix="rtbuild-facts-"))) if verify else None
        read = survey(folder, index, only=only, again=again or verify, budget=budget, say=say, cache=cache)
    if verify:  # what is on record is asked about, not what is new
        read.changes = [change for change in read.changes if not change.endswith(": is new")]
    found = Refresh() if verify else refresh(folder, index=index, registry=registry)
    date = datetime.now(UTC).date().isoformat()
    changed = {
        name: apply((folder / name).read_text("utf-8"), [c for c in found.changes if c.file == name], date)
        for name in sorted({change.file for change in found.changes})
    }
    differs = bool(changed or read.changes or (verify and (read.left or read.notes)))
    return Reread(folder=folder, found=found, read=read, changed=changed, differs=differs)
