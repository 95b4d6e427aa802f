"""``rtbuild resolve``: from requirements to a matrix of possible cells."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from builder.cli import options as opt
from builder.cli.console import print_json, say, show
from builder.core.errors import NothingPossibleError, UsageError
from builder.core.files import write_whole
from builder.core.versions import pinned
from builder.image.engine import nvidia_smi
from builder.plan.facts.rules import Outcome, platform_of
from builder.plan.facts.tables import load
from builder.plan.lock import host_platform
from builder.plan.resolve import (
    Demand,
    LastRelease,
    NamedRequirement,
    Proposal,
    Substitution,
    Wishes,
    brought,
    distributions,
    from_arguments,
    from_notebook,
    from_pylock,
    from_pyproject,
    from_requirements,
    in_wheels,
    last_release,
    meant,
    nearest,
    needs_standalone,
    nothing,
    prove,
    read,
    read_text,
    search,
    split,
    to_matrix_yaml,
)
from builder.sources.index import MACHINES, Index, Offer, ask

_PROCESSORS = {"linux/amd64": "x86-64", "linux/arm64": "ARM"}


@dataclass(frozen=True, kw_only=True)
class AskedMachine:
    """The machine that images are to run on."""

    gpus: tuple[str, ...] = ()
    driver: str | None = None
    platform: str | None = None

    @classmethod
    def of(cls, gpus: Sequence[str], driver: str | None, platform: str | None = None) -> Self:
        """The one asked about; this machine, if neither cards nor a driver are asked and there are any cards.

        Raises UsageError for a card or a platform that no table has.
        """
        if platform not in {None, *MACHINES}:
            raise UsageError(
                f"--platform {platform} is none that rtbuild knows", hint=f"one of {', '.join(MACHINES)}"
            )
        if not gpus and driver is None:
            cards, driver = nvidia_smi()
            gpus = [gpu.compute_capability or gpu.name for gpu in cards]
            platform = platform or (host_platform() if cards else None)
        return cls(gpus=tuple(dict.fromkeys(map(opt.card, gpus))), driver=driver, platform=platform)


@dataclass(frozen=True, kw_only=True)
class ProposedMatrix:
    """A matrix of possible cells, and the answers of rules, index and resolver behind it."""

    text: str
    demand: Demand
    asked: Wishes
    offers: Mapping[str, Offer]
    proposals: Sequence[Proposal]
    last: Sequence[LastRelease] = ()
    """Of each framework, if a card or a driver is given."""
    changes: Sequence[Substitution] = ()
    """What differs from what was asked for."""


def resolve(
    requirements: list[str] | None = opt.of(
        "REQUIREMENT: Frameworks, and what goes beside: 'tensorflow==2.15.*' numpy."
    ),
    requirement_file: list[Path] | None = opt.of(
        "--requirement, -r FILE: A requirements.txt; may be repeated."
    ),
    pyproject: Path | None = opt.of("--pyproject FILE: The dependencies of a pyproject.toml."),
    pylock: Path | None = opt.of("--from-pylock FILE: The packages of a pylock.toml, by version."),
    notebook: Path | None = opt.of("--notebook FILE: The `!pip install` lines of a notebook."),
    conda_: Path | None = opt.of(
        "--conda FILE: A conda environment to tell in wheels: environment.yml, `conda list --export`."
    ),
    python: str | None = opt.of("--python: These Pythons only: 3.11, or '>=3.9,<3.12'."),
    gpu: list[str] | None = opt.of(
        "--gpu: A GPU that images must run on, as nvidia-smi names it or by compute capability: T4, "
        "'NVIDIA GeForce RTX 4090', 7.5; may be repeated. By default this machine's own."
    ),
    driver: str | None = opt.DRIVER,
    platform: str | None = opt.of(
        "--platform: The processor that images are for, linux/amd64 or linux/arm64. By default that of the "
        "cards: linux/arm64 for GH200, GB10, Orin."
    ),
    limit: int = opt.of("--limit: Cells at most.", 5, min=1, max=1000),
    name: str | None = opt.of("--name: The matrix's name; by default that of the file, or resolved."),
    output: Path | None = opt.of("--output, -o FILE: Write the matrix there; without, to stdout."),
    force: bool = opt.of("--force: Replace the file that is there.", False),
    take_nearest: bool = opt.of(
        "--nearest: If nothing fits, take the nearest requirements that do, and say which.", False
    ),
    offline: bool = opt.of("--offline: Ask no package index: the tables alone, without the resolver.", False),
    json_: bool = opt.JSON,
) -> int:
    """Print a matrix of the cells; errors as of :func:`propose`, with ``--json`` as a document, too."""
    if output is not None and not force:
        opt.refuse_existing(output)
    title = name or (_matrix_name(output) if output is not None else "resolved")
    asked = wishes(requirements or (), requirement_file or (), pyproject, notebook, conda_, pylock)
    on = AskedMachine.of(gpu or (), opt.driver(driver), platform)
    index = None if offline else Index.from_user(once=True)
    try:
        found = propose(
            asked, on, python=python, limit=limit, name=title, index=index, take_nearest=take_nearest
        )
    except NothingPossibleError as none:
        if json_:
            print_json(_refusal(none, asked, on))
        raise
    if output is not None:
        write_whole(output, found.text.encode())
        say(f"{output} is written; next: rtbuild build {shlex.quote(str(output))}")
    if json_:
        print_json(document(found))
    else:
        say_origins(found, own=not gpu and driver is None)
        if output is None:
            show(found.text.removesuffix("\n"))
    return 0


def _matrix_name(path: Path) -> str:
    """A matrix's name after its file's: what a name may not have becomes a hyphen."""
    return re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-") or "resolved"


def wishes(
    arguments: Sequence[str],
    files: Sequence[Path] = (),
    pyproject: Path | None = None,
    notebook: Path | None = None,
    environment: Path | None = None,
    pylock: Path | None = None,
) -> Wishes:
    """All requirements, with notes on those left out. Raises UsageError and CellError."""
    found = from_arguments(arguments)
    others = [from_requirements(path) for path in files]
    if pyproject is not None:
        others.append(from_pyproject(pyproject))
    if pylock is not None:
        others.append(from_pylock(pylock))
    if notebook is not None:
        others.append(from_notebook(notebook))
    if environment is not None:
        others.append(in_wheels(*read(read_text(environment)), str(environment)))
    for other in others:
        found.wishes += other.wishes
        found.index += [url for url in other.index if url not in found.index]
        found.notes += other.notes
        found.python = found.python or other.python
    if not found.wishes:
        raise UsageError(
            "\n".join(("no framework is named", *(f"  {note}" for note in found.notes))),
            hint="as in `rtbuild resolve torch`; or -r, --pyproject, --notebook, --conda",
        )
    return found.merged()


def propose(
    asked: Wishes,
    on: AskedMachine,
    *,
    python: str | None,
    limit: int,
    name: str,
    index: Index | None,
    take_nearest: bool = False,
) -> ProposedMatrix:
    """A matrix of at most ``limit`` cells, the best first. ``index`` None: the facts alone are asked.

    Raises UsageError if a requirement is neither on record nor in the index, NothingPossibleError if no cell
    is possible (which two demands clash, and which one to give up), and NotKnownError if none is known to be.
    Either says what would do; that is taken at once with ``take_nearest``.
    """
    python = python or asked.python
    frameworks, companions = split(asked, python, on.platform or platform_of(on.gpus))
    demand = Demand(
        frameworks=frameworks,
        companions=companions,
        gpus=on.gpus,
        driver=on.driver,
        platform=on.platform,
        python=python,
        index=tuple(asked.index),
    )
    swapped: list[Substitution] = []
    if not frameworks:
        demand, swapped = _for_gpus(demand)
    if not demand.frameworks:
        demand = _with_brought(demand, index)
    offers = ask(distributions(demand.frameworks), index, demand.built_for) if index is not None else {}
    _refuse_absent(demand, offers)
    available = {project: offer.versions for project, offer in offers.items() if offer.wheels}
    changes: Sequence[Substitution] = ()
    try:
        _refuse_swapped(swapped)
        standing = _standing(demand, available, index, limit)
    except NothingPossibleError as problem:
        way = nearest(demand, index, available)
        if way is None:
            raise
        changes, standing = _joined([*swapped, *way.changes]), [way.proposal]
        if changes and not take_nearest:
            raise _with_way(problem, changes, way.proposal) from problem
    text = to_matrix_yaml(standing, name, remarks=[str(change) for change in changes])
    machine_given = demand.built_for == "linux/amd64" and (on.gpus or on.driver is not None)
    last = [last_release(wish.name, on.gpus, on.driver) for wish in demand.frameworks if machine_given]
    return ProposedMatrix(
        text=text,
        demand=demand,
        asked=asked,
        offers=offers,
        proposals=standing,
        last=last,
        changes=changes,
    )


def _standing(
    demand: Demand, available: Mapping[str, Sequence[str]], index: Index | None, limit: int
) -> list[Proposal]:
    """At most ``limit`` proposals that rules and resolver accept; NothingPossibleError if there are none."""
    found = search(demand, available=available)
    if not found.possible:
        raise nothing(demand, found, available)
    if index is None:
        why = "the index was not asked (--offline)"
        return [replace(one, unasked=why) for one in found.possible[:limit]]
    standing, refused = prove(found.possible, demand, index, limit)
    if not standing:
        reasons = [line for text in refused[:3] for line in text.splitlines()[:8]]
        raise NothingPossibleError(
            "\n  ".join(("the rules let it pass, and the resolver finds no set of wheels:", *reasons)),
            reasons=reasons,
            hint="loosen a requirement that the resolver names, or the Python",
        )
    return standing


def _refuse_swapped(swapped: Sequence[Substitution]) -> None:
    """NothingPossibleError for frameworks' builds for the CPU alone."""
    reasons = [f"{one.asked} ({one.asked.place}) computes on the CPU alone" for one in swapped]
    if reasons:
        raise NothingPossibleError("\n".join(reasons), reasons=reasons)


def _joined(changes: Sequence[Substitution]) -> list[Substitution]:
    """One change for a requirement that was changed twice: to another distribution, and to its release."""
    found: list[Substitution] = []
    for change in changes:
        before = next((n for n, one in enumerate(found) if one.instead == str(change.asked)), None)
        if before is None:
            found.append(change)
        else:
            found[before] = replace(change, asked=found[before].asked)
    return found


def _with_way(
    problem: NothingPossibleError, changes: Sequence[Substitution], proposal: Proposal
) -> NothingPossibleError:
    """The refusal with what would do."""
    cell = proposal.cell
    proven = (
        f"the resolver finds {proposal.wheels} wheels" if proposal.unasked is None else "the rules accept"
    )
    on = f"on Python {cell.python} and {cell.base} {proven} with"
    lines = [problem.message, f"what would do: {on}", *(f"  {change}" for change in changes)]
    lines += [f"  {reason}" for reason in proposal.sources]
    hint = "--nearest takes these, and writes the matrix"
    return type(problem)("\n".join(lines), reasons=problem.reasons, instead=problem.instead, hint=hint)


def _for_gpus(demand: Demand) -> tuple[Demand, list[Substitution]]:
    """The demand with a build for GPUs in the place of each framework's build for the CPU alone."""
    rows = load().without
    changes = [
        Substitution(asked=wish, instead=f"{rows[wish.name].instead}{wish.parsed.specifier}")
        for wish in demand.companions
        if wish.name in rows
    ]
    wishes = from_arguments(filter(None, (one.instead for one in changes))).merged().wishes
    others = tuple(wish for wish in demand.companions if wish not in [one.asked for one in changes])
    placed = zip(wishes, changes, strict=True) if len(wishes) == len(changes) else ()
    frameworks = tuple(replace(wish, place=one.asked.place) for wish, one in placed)
    return (
        (replace(demand, frameworks=frameworks, companions=others), changes) if frameworks else (demand, [])
    )


def _refuse_absent(demand: Demand, offers: Mapping[str, Offer]) -> None:
    """NothingPossibleError for a framework that the index answers about, and has no wheel of."""
    for wish in demand.frameworks:
        mine = [offers[project] for project in distributions([wish]) if project in offers]
        # a +cu126 build may be on an index of its own alone
        if mine and "+" not in str(wish) and all(o.unknown is None and not o.wheels for o in mine):
            text = (
                f"the package index has no wheel of {wish.name} for Linux on {_PROCESSORS[demand.built_for]}"
            )
            raise NothingPossibleError(
                text,
                reasons=[text],
                hint="check UV_DEFAULT_INDEX or pip.conf; --offline asks only rtbuild's own tables",
            )


def _with_brought(demand: Demand, index: Index | None) -> Demand:
    """The demand with the frameworks that the other packages bring: faster-whisper brings ctranslate2."""
    found: list[str] = []
    for wish in demand.companions:
        found += load().companion_asks(wish.name, pinned(wish.parsed))
        other = meant(wish.name)
        if other is not None:
            raise UsageError(f"{wish.place}: no table has {wish}", hint=f"did you mean {other}?")
    names = ", ".join(str(wish) for wish in demand.companions)
    if not found:
        if index is None:
            raise UsageError(f"{names} names no framework that is on record, and --offline asks no index")
        python = demand.python if demand.python and demand.python[0].isdigit() else "3.12"
        found = brought(index, demand, python)
    if not found:
        raise UsageError(
            f"{names} brings no framework that is on record",
            hint=f"name one beside: {', '.join(sorted(load().frameworks))}",
        )
    added = tuple(
        NamedRequirement(parsed=wish.parsed, place=f"brought by {names}")
        for wish in from_arguments(found).merged().wishes
    )
    return replace(demand, frameworks=added)


def _origin(wish: NamedRequirement, offers: Mapping[str, Offer], platform: str) -> tuple[str, str]:
    """The source of a framework's versions, ``index`` or ``facts``, and why."""
    mine = [offers[project] for project in distributions([wish]) if project in offers]
    answered = [offer for offer in mine if offer.unknown is None]
    if not answered:
        return "facts", str(mine[0].unknown) if mine else "the index was not asked"
    releases = len({version for offer in answered for version in offer.versions})
    return "index", f"it has {releases} releases with wheels for Linux on {_PROCESSORS[platform]}"


def say_origins(found: ProposedMatrix, *, own: bool) -> None:
    """Say where the versions come from, and how each cell was judged; ``own``: for this machine."""
    for note in found.asked.notes:
        say(f"note: {note}")
    if own and found.demand.driver is not None:
        on = f"{', '.join(found.demand.gpus)}, driver {found.demand.driver}"
        say(f"for this machine: {on} (others: --gpu, --driver)")
    for wish in found.demand.frameworks:
        origin, why = _origin(wish, found.offers, found.demand.built_for)
        beside = "" if wish.place == "the command line" else f" ({wish.place})"
        say(f"{wish}{beside}: versions from the {origin}: {why}")
    driver = [f"driver {found.demand.driver}"] if found.demand.driver is not None else []
    machine = ", ".join((*found.demand.gpus, *driver))
    for last in found.last:
        for line in last.lines(machine):
            say(f"note: {line}")
    for change in found.changes:
        say(f"nearest: {change}")
    for number, one in enumerate(found.proposals, 1):
        cell = one.cell
        python = f"Python {cell.python}{' (standalone)' * needs_standalone(cell)}"
        parts = ", ".join((*cell.frameworks, python, str(cell.base), *({cell.platform} - {"linux/amd64"})))
        proven = f"the resolver finds {one.wheels} wheels for it"
        if one.unasked is not None:
            proven = f"not through the resolver: {one.unasked}"
        say(f"{number}. {parts}: {one.outcome.answer}; {proven}")
        for reason in one.sources:
            say(f"   from sources: {reason}")
        for finding in one.findings:
            if finding.outcome is Outcome.WARNS:
                say(f"   {finding.rule}: {finding.message}")


def document(found: ProposedMatrix) -> dict[str, Any]:
    """For ``--json``."""
    demand = found.demand
    origins = [(str(wish), *_origin(wish, found.offers, demand.built_for)) for wish in demand.frameworks]
    return {
        "schema": 1,
        "answer": "possible",
        "requirements": [
            {"requirement": text, "versions_from": origin, "reason": why} for text, origin, why in origins
        ],
        "beside": [str(wish) for wish in demand.companions],
        "notes": found.asked.notes,
        "changes": [
            {"requirement": str(one.asked), "place": one.asked.place, "instead": one.instead}
            for one in found.changes
        ],
        "gpus": list(demand.gpus),
        "driver": demand.driver,
        "platform": demand.built_for,
        "proposals": [
            {
                "outcome": one.outcome.old_name,
                "answer": one.outcome.answer,
                "resolved": one.unasked is None,
                **({"wheels": one.wheels} if one.unasked is None else {"reason": one.unasked}),
                "cell": one.cell.inputs() | {"gpus": list(one.cell.gpus)},
                "sources": list(one.sources),
                "findings": [finding.as_json() for finding in one.findings],
            }
            for one in found.proposals
        ],
        "last": [
            {
                "framework": last.name,
                "newest": last.anywhere.text,
                "newest_on_default_index": last.default.text,
                "dropped_since": last.anywhere.since,
                "dropped_because": last.anywhere.dropped.as_json() if last.anywhere.dropped else None,
            }
            for last in found.last
        ],
        "matrix": found.text,
    }


def _refusal(none: NothingPossibleError, asked: Wishes, on: AskedMachine) -> dict[str, Any]:
    """For ``--json``, if nothing is proposed: ``impossible`` or ``unknown``, why, and what is possible."""
    return {
        "schema": 1,
        "answer": none.answer,
        "requirements": [{"requirement": str(wish)} for wish in asked.wishes],
        "notes": asked.notes,
        "gpus": list(on.gpus),
        "driver": on.driver,
        "platform": on.platform or platform_of(on.gpus) or "linux/amd64",
        "reasons": list(none.reasons),
        "instead": list(none.instead),
        "proposals": [],
        "matrix": None,
    }
