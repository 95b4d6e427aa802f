"""``rtbuild facts refresh``: read again what the compatibility tables say, and show or write what differs."""

from __future__ import annotations

import difflib
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from builder import resources
from builder.console import print_json
from builder.errors import UsageError
from builder.facts import tables
from builder.facts.document import markdown
from builder.facts.edit import apply
from builder.facts.refresh import origin_of, refresh

if TYPE_CHECKING:
    from pathlib import Path

    from builder.facts.refresh import Refresh
    from builder.index.client import Index
    from builder.oci.registry import Registry


def run(*, index: Index, registry: Registry, check: bool, json: bool, folder: Path | None = None) -> int:
    """Print a diff, and write it unless ``check``; with ``check`` exit 1 where there is one.

    In a checkout ``docs/facts.md``, which is made from the tables, is written anew as well.

    Raises:
        UsageError: The tables cannot be written: rtbuild is installed where this user may not.
    """
    where = folder or resources.facts()
    found = refresh(where, index=index, registry=registry)
    texts = {name: (where / name).read_text("utf-8") for name in {change.file for change in found.changes}}
    date = datetime.now(UTC).date().isoformat()
    changed = {
        name: apply(text, [c for c in found.changes if c.file == name], origin_of(name, date))
        for name, text in sorted(texts.items())
    }
    if not check:
        _write(where, changed)
    if json:
        print_json(_document(found, written=bool(changed) and not check))
    else:
        for name, text in changed.items():
            path = f"builder/facts/tables/{name}"
            sys.stdout.writelines(
                difflib.unified_diff(
                    texts[name].splitlines(keepends=True),
                    text.splitlines(keepends=True),
                    f"a/{path}",
                    f"b/{path}",
                    n=0,
                )
            )
        _say(found, check=check)
    return 1 if check and changed else 0


def _write(where: Path, changed: dict[str, str]) -> None:
    try:
        for name, text in changed.items():
            (where / name).write_text(text, "utf-8")
        page = where.parents[2] / "docs" / "facts.md"
        if changed and page.is_file():
            tables.read.cache_clear()
            page.write_text(markdown(tables.load(where)), "utf-8")
    except OSError as problem:
        raise UsageError(
            f"the tables in {where} cannot be written: {problem.strerror}",
            hint="refresh them in a checkout of rtbuild; --check only shows the differences",
        ) from problem


def _say(found: Refresh, *, check: bool) -> None:
    for text in (*found.kept, *found.notes):
        sys.stderr.write(f"note: {text}\n")
    for change in found.changes:
        sys.stderr.write(f"{change.label}: {change.key} {change.old} -> {change.new}\n")
    done = "would change" if check else "changed"
    sys.stderr.write(f"{len(found.changes)} values {done}\n")


def _document(found: Refresh, *, written: bool) -> dict[str, object]:
    return {
        "schema": 1,
        "written": written,
        "changes": [
            {"file": c.file, "row": c.label, "key": c.key, "old": c.old, "new": c.new} for c in found.changes
        ],
        "kept": found.kept,
        "notes": found.notes,
    }
