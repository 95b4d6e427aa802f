"""Libraries of the system: which of Debian's packages have one, and which wheels load it without a word in
their own dynamic sections."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from builder.plan.facts.tables.frameworks import Row


@dataclass(frozen=True, kw_only=True)
class SystemLibraryRow(Row):
    """A library that Debian's packages have."""

    name: str
    """As loaders are asked for it: ``libGL.so.1``."""
    packages: tuple[str, ...] = ()
    """Each has the library in some suite."""
    loaded_by: tuple[str, ...] = ()
    """Wheels for x86-64 whose import loads it, as requirements."""
    by_suite: Mapping[str, tuple[str, ...]] | None = None
    """The packages in each Debian suite whose files were read, none if it has none, and in others as far as
    their names tell; None if no suite was looked through."""

    def packages_in(self, suite: str | None) -> tuple[str, ...]:
        """The packages in a suite, or in all of them if it was not looked through. The first one is to be
        named; it ends in ``t64`` after 64-bit time.
        """
        if self.by_suite is not None and suite is not None and suite in self.by_suite:
            return self.by_suite[suite]
        return tuple(sorted(self.packages, key=lambda one: suite == "trixie" and not one.endswith("t64")))

    def is_there(self, suite: str | None, debs: Collection[str]) -> bool | None:
        """Whether a system of a suite with just these packages has it; None if nobody looked through it."""
        if not frozenset(self.packages).isdisjoint(debs):
            return True
        return None if self.by_suite is not None and suite not in self.by_suite else False


@dataclass(frozen=True, kw_only=True)
class SystemChoiceRow(Row):
    """Libraries of the system of which wheels have a file for each major release, and load one."""

    names: tuple[str, ...]
    """Without their numbers: ``libavutil``."""
    title: str
    package: str
    """The Debian package that brings all of them, in any suite."""
    loaded_by: tuple[str, ...]
    """Wheels for x86-64 whose import ends if none of the files loads, as requirements."""
