"""The newest release of a framework that runs on a card and a driver, and why no newer one does."""

from collections.abc import Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement

from builder.core.versions import canonical, key, release
from builder.plan.facts.rules import OF_MACHINE, Choice, Finding, Outcome, check, choices


@dataclass(frozen=True, kw_only=True)
class Newest:
    """The newest release that runs, and the oldest one after it."""

    choice: Choice | None
    """None if none on record runs."""
    dropped: Finding | None = None
    """Why the release after it does not run; None if it is the newest on record."""
    refused: Choice | None = None
    """The build of that release that ``dropped`` is about: of several the one that was tried last."""

    @property
    def since(self) -> str | None:
        """That release."""
        return self.refused.row.version if self.refused is not None else None

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
    full: tuple[str, str] | None = None
    """For a bare branch: a driver of it, and what runs from that one on; None if nothing newer does."""

    def lines(self, on: str) -> list[str]:
        """What a person reads, with the sources; nothing where the newest release runs."""
        said = []
        for newest, where in ((self.anywhere, ""), (self.default, " that the default index has")):
            if newest.dropped is None or newest.refused is None:
                continue
            if where and (newest.text, newest.refused) == (self.anywhere.text, self.anywhere.refused):
                continue
            sources = "; ".join(dict.fromkeys(str(value.source) for value in newest.dropped.values))
            known = " and is known to run" if where else " that is known to run"
            on_it = f"{known} on" if newest.dropped.outcome is Outcome.UNKNOWN else " for"
            runs = f"{newest.text} is the newest release{where}{on_it} {on}"
            none = f"no release of {self.name}{where} is known to run on {on}"
            why = f"{newest.refused.text}: {newest.dropped.message}"
            said.append(f"{runs if newest.text else none}; {why} [{sources}]")
        if self.full is not None:
            said.append(
                f"{self.full[1]} runs from driver {self.full[0]} on: a branch stands for its first release, "
                "and the full number (nvidia-smi prints it) may buy a newer one"
            )
        return said


def last_release(name: str, gpus: Sequence[str], driver: str | None) -> LastRelease:
    """The newest releases of a framework, by its distribution, for all of these cards and the driver.

    A release of which a deciding value is not known is none that runs.
    """
    ways = list(choices(Requirement(name)))
    anywhere = _newest(ways, gpus, driver)
    return LastRelease(
        name=name,
        anywhere=anywhere,
        default=_newest([choice for choice in ways if not choice.index], gpus, driver),
        full=_from_full_number(ways, gpus, driver, anywhere),
    )


def _from_full_number(
    ways: Sequence[Choice], gpus: Sequence[str], driver: str | None, bare: Newest
) -> tuple[str, str] | None:
    """The release of a branch that the best of its releases lets run, and the oldest driver that does."""
    if driver is None or "." in driver:
        return None
    best = _newest(ways, gpus, f"{driver}.999")
    if best.choice is None or best.text is None or best.text == bare.text:
        return None
    findings = check(next(best.choice.cells(tuple(gpus))), driver=driver, only=OF_MACHINE)
    open_ = [finding for finding in findings if finding.outcome is Outcome.UNKNOWN]
    numbers = [v.text for finding in open_ for v in finding.values if v.text.startswith(f"{driver}.")]
    return (max(numbers, key=key), best.text) if numbers else None


def _newest(ways: Sequence[Choice], gpus: Sequence[str], driver: str | None) -> Newest:
    refused: list[tuple[Choice, Finding]] = []
    for choice in sorted(ways, key=lambda one: release(one.row.version), reverse=True):
        cell = next(choice.cells(tuple(gpus)), None)
        if cell is None or choice.row.cuda is None:
            continue
        findings = check(cell, driver=driver, only=OF_MACHINE)
        worst = max(findings, key=lambda one: one.outcome.severity, default=None)
        if worst is None or worst.outcome.is_possible:
            after, dropped = _after(refused, choice)
            return Newest(choice=choice, dropped=dropped, refused=after)
        refused.append((choice, worst))
    after, dropped = refused[-1] if refused else (None, None)
    return Newest(choice=None, dropped=dropped, refused=after)


def _after(refused: Sequence[tuple[Choice, Finding]], found: Choice) -> tuple[Choice | None, Finding | None]:
    """The oldest refused release that is newer than the one found, or the same for a newer CUDA by a name of
    its own: cupy-cuda13x.
    """

    def is_newer(other: Choice) -> bool:
        at, mine = release(other.row.version), release(found.row.version)
        return at > mine or (at == mine and _project(other) != _project(found))

    newer = [one for one in refused if is_newer(one[0])]
    return newer[-1] if newer else (None, None)


def _project(choice: Choice) -> str:
    return canonical(Requirement(choice.text).name)
