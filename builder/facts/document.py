"""The tables as Markdown, for ``docs/facts.md``: what people read is what the rules use."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from builder.facts.tables import Facts, FrameworkTable, Row

INTRODUCTION = """\
# Facts

What the rules of [compatibility](compatibility.md) know where neither a wheel nor a registry was asked. This
page is made from the tables in `builder/facts/tables/`; `pytest --update-golden` writes it anew.

A row names its sources by id; each file's `[sources]` table gives an id its public reference and the day on
which it was read. Versions are text, unknown keys are errors, and a row with `kept = "reason"` was fixed by
hand. To correct a fact, change its row and its source, run the tests, and review what changes here.
"""


def markdown(facts: Facts) -> str:
    """The whole page."""
    parts = [INTRODUCTION, _coverage(facts)]
    parts += [_framework(table) for table in facts.frameworks.values()]
    parts += [
        _cuda(facts),
        _cudnn(facts),
        _tags(facts),
        _bad(facts),
        _systems(facts),
        _gpus(facts),
        _builds(facts),
    ]
    return "\n".join(parts) + "\n" + _sources(facts)


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"## {title}", "", "| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") or "-" for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _pythons(versions: Sequence[str]) -> str:
    return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"


def _coverage(facts: Facts) -> str:
    rows = [
        (table.title, str(len(table.rows)), table.rows[0].latest, table.newest, str(_read(table)))
        for table in facts.frameworks.values()
    ]
    return _table(
        "Coverage", ("framework", "rows", "from", "to", "rows read from wheels or their metadata"), rows
    )


def _read(table: FrameworkTable) -> int:
    return sum(any("package index" in source.reference for source in row.sources) for row in table.rows)


def _framework(table: FrameworkTable) -> str:
    rows = [
        (
            str(row.versions),
            row.variant + (" (default)" if row.variant and row.default else ""),
            _pythons(row.python),
            row.cuda or "",
            row.cudnn or "",
            row.brings + (f" `{row.extra}`" if row.extra else ""),
            " ".join(row.architectures),
        )
        for row in table.rows
    ]
    head = ("versions", "variant", "Python", "CUDA", "cuDNN", "brings cuDNN", "GPU code")
    return _table(f"{table.title} (`{table.name}`)", head, rows)


def _cuda(facts: Facts) -> str:
    families = _table(
        "CUDA majors",
        ("CUDA", "driver floor", "compute capability"),
        (
            (
                row.major,
                row.floor or "the toolkit's own",
                f"{row.capability_min} to {row.capability_max}" if row.capability_min else "",
            )
            for row in facts.families.values()
        ),
    )
    toolkits = _table(
        "CUDA toolkits", ("CUDA", "its own driver"), ((row.version, row.driver) for row in facts.toolkits)
    )
    return families + "\n" + toolkits


def _cudnn(facts: Facts) -> str:
    rows = (
        (str(row.versions), ", ".join(row.cuda), f"{row.capability_min} to {row.capability_max}")
        for row in facts.cudnn
    )
    return _table("cuDNN", ("cuDNN", "CUDA majors", "compute capability"), rows)


def _tags(facts: Facts) -> str:
    rows = (
        (
            f"{row.cuda}-{row.infix}",
            ", ".join(row.ubuntu),
            row.cudnn or "",
            ", ".join(row.branches),
            row.state,
        )
        for row in facts.tags
    )
    head = ("tag", "Ubuntu", "cuDNN inside", "older driver branches that may start it", "Docker Hub")
    return _table("nvidia/cuda tags", head, rows)


def _bad(facts: Facts) -> str:
    rows = ((row.id, " and ".join(row.when), row.outcome, row.message, row.remedy) for row in facts.bad)
    return _table("Known bad", ("id", "when", "outcome", "what happens", "remedy"), rows)


def _systems(facts: Facts) -> str:
    rows = ((row.name, row.glibc, ", ".join(row.python)) for row in facts.systems.values())
    return _table("Systems", ("system", "glibc", "Python"), rows)


def _gpus(facts: Facts) -> str:
    rows = ((row.name, row.capability) for row in facts.gpus.values())
    return _table("GPUs", ("GPU", "compute capability"), rows)


def _builds(facts: Facts) -> str:
    rows = ((row.name, str(row.versions or ""), ", ".join(row.needs)) for row in facts.builds)
    return _table("Compiling", ("package", "versions", "Debian packages that its build needs"), rows)


def _sources(facts: Facts) -> str:
    rows: list[Row] = [row for table in facts.frameworks.values() for row in table.rows]
    rows += [*facts.toolkits, *facts.families.values(), *facts.cudnn, *facts.tags, *facts.bad]
    rows += [*facts.systems.values(), *facts.gpus.values(), *facts.wheels.values(), *facts.builds]
    found = sorted({(source.reference, source.date or "") for row in rows for source in row.sources})
    return _table("Sources", ("reference", "read"), found)
