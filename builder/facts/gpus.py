"""Which class of ``facts/gpus.toml`` a GPU belongs to, by the name that its driver gives it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from builder.facts import tables

if TYPE_CHECKING:
    from builder.facts.tables import Facts

_FAMILIES = frozenset({"nvidia", "tesla", "geforce", "quadro"})
_OTHER_CARD = frozenset({"ti", "super", "laptop", "mobile", "max", "d"})
"""What makes ``RTX 3080 Ti`` or a laptop's chip another card than the one it is named after."""


def class_of(name: str, capability: str | None, *, facts: Facts | None = None) -> str | None:
    """``NVIDIA A100-SXM4-40GB`` of compute capability 8.0 is an ``A100``; None for a GPU in no table.

    The name has to begin with the class word for word (a ``T4G`` is no ``T4``), and the compute capability
    has to be the one of the class.
    """
    words = _words(name)
    best, most = None, 0
    for row in (facts or tables.load()).gpus.values():
        wanted = "".join(_words(row.name))
        if row.capability != capability or len(wanted) <= most:
            continue
        for count in range(1, len(words) + 1):
            rest = words[count : count + 1]
            if "".join(words[:count]) == wanted and _OTHER_CARD.isdisjoint(rest):
                best, most = row.name, len(wanted)
    return best


def known_class(text: str, *, facts: Facts | None = None) -> str | None:
    """The class as the tables write it, for what a person typed: ``t4``, ``A100-SXM4``; None if unknown."""
    rows = (facts or tables.load()).gpus.values()
    same = [row.name for row in rows if "".join(_words(row.name)) == "".join(_words(text))]
    found = same or [row.name for row in rows if class_of(text, row.capability, facts=facts) == row.name]
    return found[0] if found else None


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word and word not in _FAMILIES]
