"""Deciding values that the tables have, by framework, and the reasons for missing ones."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from builder.plan.facts.tables import FrameworkRow, FrameworkTable, load

VALUES = {
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "architectures": "GPU code",
    "numpy_abi": "NumPy ABI",
    "python": "Python",
    "glibc": "glibc",
}
"""Values that decide, with the words for them."""
_REASONS = {
    ("cupy", "cudnn"): "it is optional: only cupyx.cudnn opens one",
    ("ctranslate2", "cudnn"): "no cuDNN is in its wheel, and none is named in its library",
}


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """One value of one framework: in how many rows it was read, was added by a person, and is not known."""

    framework: str
    value: str
    read: int
    added: int
    missing: int
    reasons: tuple[str, ...]
    """Why it is missing, each reason with the releases that it holds for."""


def coverage() -> tuple[Coverage, ...]:
    """Every framework and value, in the order of the tables."""
    return tuple(_one(table, value) for table in load().frameworks.values() for value in VALUES)


def _one(table: FrameworkTable, value: str) -> Coverage:
    always = value in {"numpy_abi", "python", "glibc"}  # a release without CUDA has them, too
    rows = [
        row
        for row in table.rows
        if "linux/amd64" in row.platforms and (always or set(row.cpu_only) != set(row.platforms))
    ]
    missing = [row for row in rows if not getattr(row, value)]
    added = [row for row in rows if value in row.added and row not in missing]
    usual = _REASONS.get((table.name, value), "nothing that is read of its wheels says it")
    reasons: dict[str, list[FrameworkRow]] = {}
    for row in missing:
        reasons.setdefault(row.unread.get(value, usual), []).append(row)
    return Coverage(
        framework=table.title,
        value=value,
        read=len(rows) - len(missing) - len(added),
        added=len(added),
        missing=len(missing),
        reasons=tuple(
            f"{reason} ({of_it[0].version}"
            + (f" to {of_it[-1].version}, {len(of_it)} rows)" if len(of_it) > 1 else ")")
            for reason, of_it in reasons.items()
        ),
    )


def as_text(found: Iterable[Coverage]) -> str:
    """A table for a terminal: read + added / all, and below it why values are missing."""
    every = list(found)
    lines = [f"{'':14}" + "".join(f"{word:>12}" for word in VALUES.values())]
    for framework, values in itertools.groupby(every, lambda one: one.framework):
        cells = (f"{one.read}+{one.added}/{one.read + one.added + one.missing}" for one in values)
        lines.append(f"{framework:14}" + "".join(f"{cell:>12}" for cell in cells))
    lines.append("read from files + added by hand / all rows")
    lines += [f"{one.framework}, {VALUES[one.value]}: {reason}" for one in every for reason in one.reasons]
    return "\n".join(lines) + "\n"
