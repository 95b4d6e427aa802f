"""The newest release of a framework that runs on a card and a driver, and why no newer one does."""

from collections.abc import Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement

from builder.core.versions import release
from builder.plan.facts.rules import Choice, Finding, Outcome, check, choices


@dataclass(frozen=True, kw_only=True)
class Newest:
    """The newest release that runs, and the oldest one after it."""

    choice: Choice | None
    """None if none on record runs."""
    dropped: Finding | None = None
    """Why the release after it does not run; None if it is the newest on record."""
    since: str | None = None
    """That release."""

    @property
    def text(self) -> str | None:
        """``torch==2.14.1+cu126``."""
        return self.choice.text if self.choice is not None else None


@dataclass(frozen=True, kw_only=True)
class LastRelease:
    """For one framework, card and driver."""

    name: str
    anywhere: Newest
    """On any index that is known to have builds of it."""
    default: Newest
    """On the default package index alone."""

    def lines(self, on: str) -> list[str]:
        """What a person reads, with the sources; nothing where the newest release runs."""
        said = []
        for newest, where in ((self.anywhere, ""), (self.default, " that the default index has")):
            if newest.dropped is None or (where and newest.text == self.anywhere.text):
                continue
            sources = "; ".join(dict.fromkeys(str(value.source) for value in newest.dropped.values))
            runs = f"{newest.text} is the newest release{where} for {on}"
            none = f"no release of {self.name}{where} is known to run on {on}"
            why = f"{self.name} {newest.since}: {newest.dropped.message}"
            said.append(f"{runs if newest.text else none}; {why} [{sources}]")
        return said


def last_release(name: str, gpus: Sequence[str], driver: str | None) -> LastRelease:
    """The newest releases of a framework, by its distribution, for all of these cards and the driver.

    A release of which a deciding value is not known is none that runs.
    """
    ways = list(choices(Requirement(name)))
    return LastRelease(
        name=name,
        anywhere=_newest(ways, gpus, driver),
        default=_newest([choice for choice in ways if not choice.index], gpus, driver),
    )


def _newest(ways: Sequence[Choice], gpus: Sequence[str], driver: str | None) -> Newest:
    refused: list[tuple[str, Finding]] = []
    for choice in sorted(ways, key=lambda one: release(one.row.version), reverse=True):
        cell = next(choice.cells(tuple(gpus)), None)
        if cell is None or choice.row.cuda is None:
            continue
        findings = check(cell, driver=driver, only=("driver", "gpu"))
        worst = max(findings, key=lambda one: one.outcome.severity, default=None)
        if worst is None or worst.outcome.severity < Outcome.UNKNOWN.severity:
            since, dropped = _after(refused, choice)
            return Newest(choice=choice, dropped=dropped, since=since)
        refused.append((choice.row.version, worst))
    since, dropped = refused[-1] if refused else (None, None)
    return Newest(choice=None, dropped=dropped, since=since)


def _after(refused: Sequence[tuple[str, Finding]], found: Choice) -> tuple[str | None, Finding | None]:
    """The oldest refused release that is newer than the one found."""
    newer = [one for one in refused if release(one[0]) > release(found.row.version)]
    return newer[-1] if newer else (None, None)
