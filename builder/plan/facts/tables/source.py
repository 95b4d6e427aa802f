"""Where a value was read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

SourceKind = Literal["wheel", "registry", "table", "cell"]
"""``wheel``: read from the wheel; ``registry``: from the base image's config; ``table``: from the facts that
ship with rtbuild; ``cell``: stated by the matrix itself."""


@dataclass(frozen=True)
class Source:
    """Where a value was read: a URL, ``repo@commit:path``, a wheel's file name or an image reference."""

    kind: SourceKind
    reference: str
    date: str | None = None
    """The day on which a table row was read, ``YYYY-MM-DD``; None for a value of the wheel or image."""

    def within(self, places: Mapping[str, str]) -> dict[str, "Source"]:
        """Of each value the place of its own below this one: ``METADATA`` of a wheel."""
        return {
            value: replace(self, reference=f"{place} of {self.reference}")
            for value, place in places.items()
            if place
        }

    def __str__(self) -> str:
        return f"{self.kind}: {self.reference}" + (f" ({self.date})" if self.date else "")
