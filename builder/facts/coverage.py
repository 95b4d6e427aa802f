"""Deciding values that the tables have, by framework, and the reasons for missing ones."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from builder.facts.frameworks import FrameworkRow, FrameworkTable
from builder.facts.tables import load

VALUES = {
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "architectures": "GPU code",
    "numpy_abi": "NumPy ABI",
    "python": "Python",
    "glibc": "glibc",
}
"""Values that decide, with the words for them."""
_WITHOUT_CUDA = frozenset({"numpy_abi", "python", "glibc"})
"""Values that a release without CUDA has, too."""


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
    rows = [row for row in table.rows if value in _WITHOUT_CUDA or set(row.cpu_only) != set(row.platforms)]
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
        reasons=tuple(f"{reason} ({_spans(of_it)})" for reason, of_it in reasons.items()),
    )


def _spans(rows: Sequence[FrameworkRow]) -> str:
    """``2.0.0 to 2.1.3, 12 rows``."""
    first, last = rows[0].version, rows[-1].version
    return first if len(rows) == 1 else f"{first} to {last}, {len(rows)} rows"


def as_text(found: Iterable[Coverage]) -> str:
    """A table for a terminal: read + added / all, and below it why values are missing."""
    by_framework: dict[str, list[Coverage]] = {}
    for one in found:
        by_framework.setdefault(one.framework, []).append(one)
    lines = [f"{'':14}" + "".join(f"{word:>12}" for word in VALUES.values())]
    for framework, values in by_framework.items():
        cells = (f"{one.read}+{one.added}/{one.read + one.added + one.missing}" for one in values)
        lines.append(f"{framework:14}" + "".join(f"{cell:>12}" for cell in cells))
    lines.append("read from files + added by hand / all rows")
    for values in by_framework.values():
        lines += [
            f"{one.framework}, {VALUES[one.value]}: {reason}" for one in values for reason in one.reasons
        ]
    return "\n".join(lines) + "\n"
