"""Why nothing, or nothing newer, is possible by the rules.

Of a demand that no cell meets: which two parts clash, why, and which one to give up. Of a framework, a card
and a driver: the newest release that runs, and why no newer one does.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from packaging.requirements import Requirement

from builder.core.errors import NothingPossibleError, NotKnownError
from builder.core.versions import (
    at_least,
    canonical,
    contains,
    key,
    lower_bound,
    major,
    pinned,
    release,
    short,
)
from builder.plan.facts.rules import (
    OF_MACHINE,
    Choice,
    Combination,
    Finding,
    MachineDrivers,
    Outcome,
    by_compat,
    check,
    choices,
    driver_of,
    of_driver,
    of_generations,
)
from builder.plan.facts.tables import FrameworkRow, card_of, cards_of, load, to_type
from builder.plan.lock import pip_line
from builder.plan.resolve.platform_tags import container_of, since_glibc
from builder.plan.resolve.solve import Demand, Proposal, Search, closest, meant_version, search
from builder.plan.resolve.wishes import NamedRequirement

Available = Mapping[str, Sequence[str]] | None
First = Callable[[Demand, Mapping[str, str]], Proposal | None]
WAYS_LEAD = ("give up one of them:", "the nearest on record:")
"""The lines above ways out: of demands that clash, and of a release that is not on record."""
_NOTHING_SUITS = "no Python and base on record suit all of them"
_MOST = 1500
"""Candidates that the rules are asked about for each smaller question."""


@dataclass(frozen=True, kw_only=True)
class WayOut:
    """A possible cell, and the demands that were given up for it."""

    given_up: tuple[str, ...]
    another_version: bool
    proposal: Proposal
    driver: str | None = None
    """Another driver: it or a newer one of its branch."""
    by: str = ""
    """The words about that driver."""
    cards: tuple[str, ...] = ()
    """The cards that it serves, of several that no cell serves together."""

    def __str__(self) -> str:
        cell, names = self.proposal.cell, " and ".join(self.given_up)
        kept = f"another version in place of {names}" if self.another_version else f"without {names}"
        if self.driver is not None:
            kept = f"with --driver {self.driver}, {self.by}"
        if self.cards:
            kept = f"for {' and '.join(map(to_type, self.cards))}"
        arm = ", linux/arm64" if cell.platform == "linux/arm64" else ""
        system = cell.cuda.provider == "base"
        line = pip_line(cell, system=system) if self.driver is not None or self.cards else None
        by_pip = f": `{line}`" if line is not None else ""
        return f"{kept}: {', '.join(cell.frameworks)} on Python {cell.python}{arm}{by_pip}"

    def as_json(self) -> dict[str, object]:
        """For ``rtbuild resolve --json``."""
        cell = self.proposal.cell
        return {
            "given_up": list(self.given_up),
            "another_version": self.another_version,
            **({"driver": self.driver} if self.driver is not None else {}),
            **({"cards": list(self.cards)} if self.cards else {}),
            "cell": cell.inputs() | {"gpus": list(cell.gpus)},
        }


def nothing(demand: Demand, found: Search, available: Available = None) -> NothingPossibleError:
    """The error for a demand that no cell meets; :class:`NotKnownError` if none is ruled out for certain."""
    first = functools.partial(closest, available=available, most=_MOST)
    if found.absent:
        culprits = [f"{one.wish} ({one.wish.place})" for one in found.absent]
        head = f"possible for {' and '.join(culprits)}"
        reasons = [*_of_pinned_builds(demand), *(one.reason for one in found.absent)]
        left_open = all(one.outcome is Outcome.UNKNOWN for one in found.absent)
        ways = list(_close_releases(demand, culprits, first)) or list(
            _of_later_times(demand, culprits, first)
        )
    else:
        unread = [*_older_elsewhere(demand), *(newer_elsewhere(demand) if demand.gpus else ())]
        left_open = bool(unread) or _left_open(found, demand)
        ask = functools.partial(search, available=available, enough=1, most=_MOST)
        apart = _apart(demand, first)
        culprits = [] if apart else _culprits(demand, first, ask, left_open=left_open)
        if culprits:
            demanded = _only(demand, culprits)
            asked = ask(demanded)
            names = " and ".join(culprits)
            head = f"possible: {names} clash" if len(culprits) == 2 else f"possible for {names}"
        else:
            demanded, asked = demand, found
            parts = [name for name, _ in demand.parts()]
            head = f"possible for {'all of ' * (len(parts) > 1)}{', '.join(parts)}"
            head += " with what is asked for beside" * bool(demand.companions)
        reasons = [*_codeless(demand, apart)]
        reasons = reasons or _reasons(asked, demanded)
        if demanded != demand:  # what is impossible on any machine may have no other on this one
            reasons = list(dict.fromkeys((*_of_machine(found, demand), *reasons)))
        if not found.refused and demanded != demand:
            reasons = list(dict.fromkeys((*reasons, *_without_candidate(demand))))
        if reasons == [_NOTHING_SUITS]:
            reasons = list(_against_the_rest(demand, first)) or reasons
        if demand.glibc is not None and next(_of_glibc(demand), None) is not None:
            reasons.append(container_of(demand))
        if any(re.match(r"CUDA \d+ serves ", reason) for reason in reasons):
            reasons += _builds(demand)
        reasons += unread
        if not (ways := apart):
            ways = list(_ways_out(demand, culprits, first))
            if drivers := _with_full_driver(found, demand, first) or _with_other_driver(found, demand, first):
                kept = {f"--driver {demand.driver}", *(f"--gpu {to_type(gpu)}" for gpu in demand.gpus)}
                # people have the card that they have: where a driver is all that it takes, that is the answer
                ways = [*drivers, *(way for way in ways if not {*way.given_up} & kept)]
    lines = [f"nothing is {'known to be ' * left_open}{head}", *(f"  {reason}" for reason in reasons)]
    lines += _of_ways(ways, demand, absent=bool(found.absent))
    of_cards = of_generations(demand.gpus, demand.driver, modules=demand.kernel_modules)
    lines += (f"note: {text}" for text in of_cards)
    return (NotKnownError if left_open else NothingPossibleError)(
        "\n".join(lines),
        reasons=reasons,
        instead=[way.as_json() for way in ways],
        ways=[f"  {way}" for way in ways],
        hint=None if ways or demand.gpus else "loosen a version, the Python or the driver",
    )


def _of_ways(ways: Sequence[WayOut], demand: Demand, *, absent: bool) -> Iterator[str]:
    """Lines on the ways out, and on how to install another driver."""
    if not ways:
        return
    head = WAYS_LEAD[absent] if (driver := ways[0].driver) is None else "another driver would do:"
    yield f"{len(ways)} environments or images instead, by card:" if ways[0].cards else head
    yield from (f"  {way}" for way in ways)
    if driver is not None:
        yield from (f"  {text}" for text in of_driver(demand.gpus, driver, modules=demand.kernel_modules))


def against(demand: Demand, available: Available = None) -> str:
    """The first reason against the frameworks of a demand; empty if nothing is on record."""
    found = search(replace(demand, companions=()), available=available, enough=1, most=_MOST)
    if found.absent:
        return found.absent[0].reason
    return next(iter(_reasons(found, demand)), "") if not found.possible else ""


def _culprits(demand: Demand, first: First, ask: Callable[[Demand], Search], *, left_open: bool) -> list[str]:
    """The demand, or the first two, that cannot be met even without the others.

    Unless the whole is ``left_open``, they are refused for certain, too: a driver that is too old for a card
    may do for one that nobody named.
    """
    names = [name for name, _ in demand.parts()]
    for some in itertools.chain(itertools.combinations(names, 1), itertools.combinations(names, 2)):
        only = _only(demand, some)
        if only.frameworks and first(only, {}) is None and (left_open or not _left_open(ask(only), only)):
            return list(some)
    return []


def _ways_out(demand: Demand, culprits: Sequence[str], first: First) -> Iterator[WayOut]:
    """The cells that become possible without each demand, or with another version of it."""
    for name, without in demand.parts():
        if culprits and name not in culprits:
            continue
        if other := list(_close_releases(demand, [name], first)):
            yield from other
        elif name.startswith("--gpu") and len(demand.gpus) == 1:
            continue  # nobody gives up the card that they have
        elif without.frameworks and (left := first(without, {})) is not None:
            yield WayOut(given_up=(name,), another_version=False, proposal=left)


def _apart(demand: Demand, first: First) -> list[WayOut]:
    """A cell for each of the fewest groups of cards, if no cell serves all and each group has one."""
    groups = list[tuple[tuple[str, ...], Proposal]]()
    for gpu in demand.gpus if len(demand.gpus) > 1 and demand.frameworks else ():
        for number, (cards, _) in enumerate(groups):
            if (together := first(replace(demand, gpus=(*cards, gpu)), {})) is not None:
                groups[number] = ((*cards, gpu), together)
                break
        else:
            if (alone := first(replace(demand, gpus=(gpu,)), {})) is None:
                return []
            groups.append(((gpu,), alone))
    groups = _of_one_release(demand, groups, first)
    return [
        WayOut(
            given_up=tuple(f"--gpu {to_type(gpu)}" for gpu in demand.gpus if gpu not in cards),
            another_version=False,
            proposal=proposal,
            cards=cards,
        )
        for cards, proposal in groups
        if len(groups) > 1
    ]


def _of_one_release(
    demand: Demand, groups: list[tuple[tuple[str, ...], Proposal]], first: First
) -> list[tuple[tuple[str, ...], Proposal]]:
    """The groups with builds of one release of the framework, and on one Python where that is possible; as
    they are, where there is none, or several frameworks are asked for.
    """
    if len(groups) < 2 or len(demand.frameworks) > 1:
        return groups
    (wish,) = demand.frameworks
    own = [pinned(Requirement(proposal.cell.frameworks[0])) or "" for _, proposal in groups]
    versions = sorted({text.partition("+")[0] for text in own} - {""}, key=key)
    if len(versions) < 2:
        return groups
    again = replace(demand, frameworks=(wish.bound(f"=={versions[0]}"),))
    for python in (*dict.fromkeys(proposal.cell.python for _, proposal in groups), demand.python):
        found = [(cards, first(replace(again, gpus=cards, python=python), {})) for cards, _ in groups]
        if all(proposal is not None for _, proposal in found):
            return [(cards, proposal) for cards, proposal in found if proposal is not None]
    return groups


def _codeless(demand: Demand, apart: Sequence[WayOut]) -> Iterator[str]:
    """For each card that another's cell does not serve: the CUDA versions of which no build serves it."""
    refused = [
        gpu
        for gpu in demand.gpus
        for way in apart
        if Outcome.of(check(replace(way.proposal.cell, gpus=(gpu,)), only=("gpu",), suggest=False))
        is Outcome.IMPOSSIBLE
    ]
    for wish, gpu in itertools.product(demand.frameworks, dict.fromkeys(refused)):
        served = dict[str, bool]()
        for choice in choices(wish.parsed):
            cell = next(choice.cells((gpu,), demand.built_for), None)
            if cell is None or choice.row.cuda is None:
                continue
            findings = check(cell, only=("gpu",), suggest=False)
            text = short(choice.row.cuda, 2)
            served[text] = served.get(text, False) or Outcome.of(findings) is not Outcome.IMPOSSIBLE
        every = sorted(served, key=key)
        without = [text for text in every if not served[text]]
        if not without or (row := card_of(gpu)) is None:
            continue
        said = ", ".join(without)
        if without == every[-len(without) :]:
            said = f"{without[0]} or newer"
        elif without == every[: len(without)]:
            said = f"{without[-1]} or older"
        yield f"no build of {wish} for CUDA {said} has code for {gpu} ({row.capability})"


def _with_full_driver(found: Search, demand: Demand, first: First) -> list[WayOut]:
    """The cell for the oldest driver of a bare branch that is known to do; none if none is in question."""
    branch = None if isinstance(demand.driver, MachineDrivers) else demand.driver
    if branch is None or "." in branch:
        return []
    judged = (check(cell, driver=branch, only=OF_MACHINE, suggest=False) for cell in found.refused)
    findings = (one for findings in judged for one in findings if one.outcome is Outcome.UNKNOWN)
    numbers = {v.text for one in findings for v in one.values if v.text.startswith(f"{branch}.")}
    for number in sorted(numbers, key=key):
        if (proposal := first(replace(demand, driver=number), {})) is not None:
            words = "or a newer one of its branch (nvidia-smi prints it)"
            return [_with_driver(demand, proposal, number, words)]
    return []


def _with_driver(demand: Demand, proposal: Proposal, number: str, by: str) -> WayOut:
    given_up = (f"--driver {demand.driver}",)
    return WayOut(given_up=given_up, another_version=False, proposal=proposal, driver=number, by=by)


def _with_other_driver(found: Search, demand: Demand, first: First) -> list[WayOut]:
    """With the last branch that serves the cards; else the newest that a release asks for, and the oldest."""
    given = demand.driver
    if given is None or not demand.gpus or isinstance(given, MachineDrivers):
        return []
    judged = (check(cell, driver=given, only=OF_MACHINE, suggest=False) for cell in found.refused)
    about = [one for findings in judged for one in findings if not one.outcome.is_possible]
    numbers = {text for one in about if (text := driver_of(one)) is not None}
    listed = {row.since for gpu in demand.gpus if (row := load().card_drivers.get(gpu)) is not None}
    numbers |= listed
    newer = sorted((text for text in numbers if key(text) > key(given)), key=key)
    least = max({*newer} & listed, key=key, default=given)  # who installs one takes one that lists the cards
    newer = [text for text in newer if key(text) >= key(least)]
    older, cards = {text for text in numbers if key(text) <= key(given)}, " and ".join(demand.gpus)
    last = {max((b for b in load().branches if key(b) < key(end)), key=key, default="") for end in older}
    for number in sorted(last - {""}, key=key, reverse=True):
        if (proposal := first(replace(demand, driver=number), {})) is not None:
            by = f"the last branch that serves {cards}; install it in place of {given}"
            return [_with_driver(demand, proposal, number, by)]
    by, ways = "or newer", dict[tuple[str, ...], WayOut]()
    for number in (*newer[-1:], *newer[:-1]):
        if (proposal := first(replace(demand, driver=number), {})) is not None:
            ways.setdefault(proposal.cell.frameworks, _with_driver(demand, proposal, number, by))
            by = f"or a newer one of its branch: from it on {cards} is known to be served"
    return [*ways.values()][:2]


def _close_releases(demand: Demand, names: Sequence[str], first: First) -> Iterator[WayOut]:
    """The cell with the closest releases in place of the named ones."""
    bound = [wish for wish in demand.frameworks if wish.parsed.specifier or wish.parsed.extras]
    named = [wish for wish in bound if f"{wish} ({wish.place})" in names]
    tried = list[Demand]()
    for opened in zip(*map(_opened, named), strict=True):
        others = dict(zip(named, opened, strict=True))
        near = {other.name: meant_version(wish) for wish, other in others.items()}
        freed = replace(demand, frameworks=tuple(others.get(wish, wish) for wish in demand.frameworks))
        if freed in tried:
            continue
        if (proposal := first(freed, near)) is not None:
            yield WayOut(given_up=tuple(names), another_version=True, proposal=proposal)
            return
        tried.append(freed)


def _of_later_times(demand: Demand, names: Sequence[str], first: First) -> Iterator[WayOut]:
    """As :func:`_close_releases`, on any Python and without pinned builds beside, which only releases of that
    time have.
    """
    built = [wish for wish in demand.companions if "+" in (pinned(wish.parsed) or "")]
    others = tuple(wish for wish in demand.companions if wish not in built)
    given_up = [f"Python {demand.python}"] if demand.python is not None else []
    given_up += [f"{wish} ({wish.place})" for wish in built]
    if given_up:
        free = replace(demand, python=None, companions=others)
        yield from _close_releases(free, [*names, *given_up], first)


def _opened(wish: NamedRequirement) -> Iterator[NamedRequirement]:
    """Any release that the sources go with, with the same extras, with any, and under any name of the
    framework's.
    """
    proven = str(wish.proven)
    yield wish.bound(proven)
    yield wish.bound(proven, extras=False)
    yield replace(wish, parsed=Requirement(f"{load().table_name(wish.name)}{proven}"))


def _only(demand: Demand, names: Sequence[str]) -> Demand:
    """The demand without the parts that are not named."""
    kept = demand
    for name, _ in demand.parts():
        if name not in names:
            kept = next(without for part, without in kept.parts() if part == name)
    return replace(kept, companions=())


def _left_open(found: Search, demand: Demand) -> bool:
    """Whether a candidate is refused by nothing, and only a value is not known that decides."""
    judged = (check(cell, driver=demand.driver, suggest=False) for cell in found.refused)
    return any(Outcome.of(findings) is Outcome.UNKNOWN for findings in judged)


def _older_elsewhere(demand: Demand) -> Iterator[str]:
    """Lines on frameworks whose older builds nobody reads: these may serve the driver that is asked for."""
    for wish in demand.frameworks if demand.driver is not None else ():
        table, least = load().table(wish.name), lower_bound(wish.parsed)
        before = table.elsewhere_before
        if before is not None and (least is None or table.on_its_makers_page(least)):
            yield (
                f"not known: {table.title} before {before}, whose builds with CUDA lie on a page of its "
                "maker's that is no package index"
            )


def newer_elsewhere(demand: Demand) -> Iterator[str]:
    """Lines on frameworks whose newer builds nobody reads: these may serve what is asked for."""
    for wish in demand.frameworks:
        table = load().table(wish.name)
        since = table.elsewhere_since
        if since is None or not contains(wish.parsed.specifier, since):
            continue
        cards = [row for gpu in demand.gpus if (row := card_of(gpu)) is not None]
        young = len(cards) == len(demand.gpus) > 0 and all(key(card.capability) >= (10, 0) for card in cards)
        way = f": `{table.elsewhere_blackwell}`" if young and table.elsewhere_blackwell else ""
        way = way or f", {table.elsewhere_page}" * bool(table.elsewhere_page)
        yield f"not known: {table.title} from {since} on, which lies on an index of its maker's{way}"


def _reasons(found: Search, demand: Demand, most: int = 6) -> list[str]:
    """Why the candidates that came closest are refused, each reason once."""
    if not found.refused:
        return list(_without_candidate(demand)) or [_NOTHING_SUITS]
    bad = {Outcome.IMPOSSIBLE, Outcome.UNKNOWN}
    judged = (check(cell, driver=demand.driver, suggest=False) for cell in found.refused)
    nearest = sorted(([f for f in findings if f.outcome in bad] for findings in judged), key=len)[:8]
    for findings in nearest:
        findings.sort(key=lambda one: (one.rule not in OF_MACHINE, _of_driver(one)))
    return list(dict.fromkeys(finding.message for findings in nearest for finding in findings))[:most]


def _of_pinned_builds(demand: Demand) -> Iterator[str]:
    """The cards that the CUDA of a pinned build, ``jaxlib==0.1.69+cuda111``, has no code for.

    A family of CUDA is one for its drivers, and not for the cards that its first minors knew.
    """
    for wish, gpu in itertools.product((*demand.frameworks, *demand.companions), demand.gpus):
        build = re.search(r"\+cu(?:da)?(\d+)(\d)$", pinned(wish.parsed) or "")
        card = card_of(gpu)
        if build is None or card is None:
            continue
        cuda = f"{build[1]}.{build[2]}"
        kind = next((one for one in load().architectures if card.capability in one.capabilities), None)
        if kind is not None and kind.cuda is not None and not at_least(cuda, kind.cuda):
            yield (
                f"{wish} ({wish.place}) is a build for CUDA {cuda}, which has no code for {gpu} "
                f"({card.capability}): CUDA {kind.cuda} is the first that does [{kind.sources[-1]}]"
            )


def _of_driver(finding: Finding) -> bool:
    """Whether it is about the driver, which people can change, and a card's kernels are what they are."""
    return any(value.what == "driver" for value in finding.values)


def _builds(demand: Demand) -> Iterator[str]:
    """The CUDA of the default index's wheel of each exact release that has builds for several."""
    for wish in demand.frameworks:
        version = pinned(wish.parsed)
        if version is None or "+" in version:
            continue
        rows = [row for row in load().table(wish.name).of(version) if row.cuda]
        default = next((short(row.cuda or "", 2) for row in rows if row.default), None)
        others = sorted({short(row.cuda or "", 2) for row in rows} - {default}, key=key)
        if default is not None and others:
            yield (
                f"{wish}: the default index's wheel is for CUDA {default}, and builds for CUDA "
                f"{', '.join(others)} are on {load().table(wish.name).title}'s own"
            )


def _against_the_rest(demand: Demand, first: First) -> Iterator[str]:
    """The reasons of a card or the driver against the newest release that meets all other demands."""
    for name, without in demand.parts():
        if not name.startswith(("--gpu", "--driver")) or (best := first(without, {})) is None:
            continue
        cell = replace(best.cell, gpus=demand.gpus)
        found = check(cell, driver=demand.driver, only=OF_MACHINE, suggest=False)
        for message in dict.fromkeys(one.message for one in found if one.outcome is Outcome.IMPOSSIBLE):
            yield f"{', '.join(cell.frameworks)}, the newest for the rest: {message}"


def _of_machine(found: Search, demand: Demand) -> Iterator[str]:
    """The reasons of card and driver against the candidates that came closest; none if not against all."""
    judged = [check(cell, driver=demand.driver, only=OF_MACHINE, suggest=False) for cell in found.refused]
    refused = [[one for one in findings if one.outcome is Outcome.IMPOSSIBLE] for findings in judged]
    if all(refused):
        nearest = sorted((one for findings in refused[:3] for one in findings), key=_of_driver)
        yield from dict.fromkeys(one.message for one in nearest)


def _without_candidate(demand: Demand) -> Iterator[str]:
    """Why no cell was put together: no wheel with CUDA, or for the Python, no such CUDA, or pins apart."""
    pythons: dict[str, set[str]] = {}
    first: list[Choice] = []
    if demand.glibc is not None and (held := [*_of_glibc(demand)]):
        yield from held
        return
    for wish in demand.frameworks:
        ways = [choice for choice in choices(wish.parsed) if demand.built_for in choice.row.platforms]
        if not ways:
            continue
        table, exact = load().table(wish.name), pinned(wish.parsed)
        label = f"{table.title} {exact}" if exact is not None else table.title
        with_cuda = [choice for choice in ways if demand.built_for not in choice.row.cpu_only]
        first += with_cuda[:1]
        pythons[label] = {python for choice in with_cuda for python in choice.row.python}
        if not with_cuda:
            others = (row for row in table.of(ways[0].row.version) if demand.built_for not in row.cpu_only)
            has = "".join(f"; {_other_build(row, demand)}" for row in itertools.islice(others, 1))
            yield f"the wheel of {label} for {demand.built_for} was built without CUDA{has}"
        elif not any(map(demand.takes_python, pythons[label])):
            there = ", ".join(sorted(pythons[label], key=key))
            if exact is not None:
                yield f"{label} has no wheel for Python {demand.python} (it has {there})"
            else:  # older releases than those on record may have one
                oldest = min((choice.row.version for choice in with_cuda), key=key)
                told = f"no release of {label} on record, which are from {oldest} on, has a wheel with CUDA"
                yield f"{told} for Python {demand.python} (they have {there}); older ones are not on record"
        elif not any(_has_cell(choice, demand) for choice in with_cuda):
            cuda = short(with_cuda[0].row.cuda or "0", 2)
            gone = "of which no image and no wheels of NVIDIA's are on record"
            yield f"{label} was compiled for CUDA {cuda}, {gone}"
        else:
            continue
        return
    if len(pythons) > 1 and all(pythons.values()) and not set.intersection(*pythons.values()):
        each = (f"{label} for {', '.join(sorted(found, key=key))}" for label, found in pythons.items())
        yield f"no Python has wheels of all: there are {'; '.join(each)}"
        return
    clash = Combination(first).clash
    if clash is not None:
        package, pinned_to = clash
        yield " and ".join(f"{text} pins {package}=={version}" for text, version in pinned_to.items())


def _of_glibc(demand: Demand) -> Iterator[str]:
    """The frameworks of which every release that is asked for has wheels for a newer glibc alone."""
    for wish in demand.frameworks:
        ways = [choice.row for choice in choices(wish.parsed)]
        if not ways or any(map(demand.takes_glibc, ways)):
            continue
        yield from since_glibc(wish.name, demand)


def _other_build(row: FrameworkRow, demand: Demand) -> str:
    """That another distribution has CUDA, and why that does not help on the cards that are asked about."""
    has = f"{row.distribution} {row.version} has it"
    family = load().families.get(str(major(row.cuda or "")))
    if family is None or family.capability_max is None:
        return has
    cards = cards_of(demand.gpus)
    newer = next((card for card in cards if not at_least(family.capability_max, card.capability)), None)
    if newer is None:
        return has
    serves = (
        f"CUDA {row.cuda}, which serves compute capability {family.capability_min} to {family.capability_max}"
    )
    return f"{has}, for {serves}, and {newer.name} has {newer.capability}"


def _has_cell(choice: Choice, demand: Demand) -> bool:
    alone = Combination((choice,))
    every = (cell for python in alone.pythons for cell in alone.cells(python, demand.gpus, demand.built_for))
    return next(every, None) is not None


# -- the newest release that runs


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
        """The version of the release that ``dropped`` is about."""
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
        """Lines for people, with the sources; none if the newest release runs."""
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


def last_release(
    name: str, gpus: Sequence[str], driver: str | None, *, takes: Callable[[str], bool] = lambda _: True
) -> LastRelease:
    """The newest releases of a framework, by its distribution, for all of these cards and the driver.

    A release of which a deciding value is not known is none that runs, and neither is one that needs
    ``cuda-compat`` in its image. ``takes`` leaves out releases that have no wheel for a Python asked for.
    """
    ways = [one for one in choices(Requirement(name)) if any(map(takes, one.row.python))]
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
    of_all: dict[str, Finding] | None = None
    for choice in sorted(ways, key=lambda one: release(one.row.version), reverse=True):
        cell = next(choice.cells(tuple(gpus)), None)
        if cell is None or choice.row.cuda is None:
            continue
        findings = check(cell, driver=driver, only=OF_MACHINE)
        worst = max(findings, key=lambda one: (one.outcome.severity, not _of_driver(one)), default=None)
        if worst is not None and worst.outcome.is_possible:
            worst = by_compat(findings)
        if worst is None and (worst := _known_bad(choice, gpus)) is None:
            after, dropped = _after(refused, choice)
            return Newest(choice=choice, dropped=dropped, refused=after)
        refused.append((choice, worst))
        mine = {one.message: one for one in findings if one.outcome is Outcome.IMPOSSIBLE}
        of_all = mine if of_all is None else {text: of_all[text] for text in of_all if text in mine}
    if not refused:
        return Newest(choice=None)
    # the reason that holds for each of them; where each has its own, that of the newest, and its oldest CUDA
    newest = [one for one in refused if release(one[0].row.version) == release(refused[0][0].row.version)]
    after, dropped = (refused if of_all else newest)[-1]
    return Newest(choice=None, dropped=next(iter((of_all or {}).values()), dropped), refused=after)


def _known_bad(choice: Choice, gpus: Sequence[str]) -> Finding | None:
    """What is on record against a release on every Python and base; None if one of these is free of it."""
    first = None
    for cell in {(one.python, one.cuda): one for one in choice.cells(tuple(gpus))}.values():
        found = check(cell, only=("known-bad",))
        bad = next((one for one in found if one.outcome is Outcome.IMPOSSIBLE), None)
        if bad is None:
            return None
        first = first or bad
    return first


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
