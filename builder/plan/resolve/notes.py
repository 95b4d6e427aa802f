"""Notes on proposals: their releases, builds, indexes and extras, and the reasons that none is newer; and
what a wheel says of its GPU code where no table knows it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from packaging.requirements import Requirement

from builder.core.errors import NothingPossibleError, PackageIndexError
from builder.core.model import Cell
from builder.core.versions import canonical, key, names_of, pinned, release, short
from builder.plan.facts.reading import read_package
from builder.plan.facts.rules import (
    PYTORCH,
    Finding,
    Outcome,
    by_compat,
    check,
    cuda_of,
    driver_of,
    of_driver,
    of_generations,
    of_older_driver,
)
from builder.plan.facts.tables import ON_JETSON, FrameworkRow, card_of, cards_of, leaving_out, load
from builder.plan.lock import (
    after,
    official_images,
    pip_install,
    pip_line,
    python_lines,
    smoke_statements,
)
from builder.plan.resolve.cuda_variants import pages_of
from builder.plan.resolve.loosening import Substitution
from builder.plan.resolve.native_code import installed_by_nvcc, of_compiled, of_sources
from builder.plan.resolve.platform_tags import container_of, since_glibc
from builder.plan.resolve.refusals import WAYS_LEAD, LastRelease, newer_elsewhere
from builder.plan.resolve.servers import of_servers
from builder.plan.resolve.set_notes import of_old_cards, of_packages_together
from builder.plan.resolve.solve import Demand, Proposal, search
from builder.plan.resolve.wishes import NamedRequirement, Wishes
from builder.sources.index import MACHINES, Index, IndexFile, wheel_name

_ARM_WHEEL = re.compile(r"whether .* has a wheel for linux/arm64 is not known")

_NoteKind = Literal[
    "files",
    "python",
    "older",
    "newer",
    "name",
    "build",
    "index",
    "elsewhere",
    "cpu",
    "card",
    "feature",
    "image",
    "compile",
    "glibc",
    "system",
    "driver",
    "together",
]


@dataclass(frozen=True, kw_only=True)
class ProposalNote:
    """What a reader has to know of the proposals, and what it is about."""

    kind: _NoteKind
    """``files``: what was read and left out; ``newer``, ``older``: why it is no other release; ``build`` and
    ``index``: whose wheel it is; ``system``: what has to be there; ``driver``: how to install a newer one.
    """
    text: str


def noted_as(kind: _NoteKind, texts: Iterable[str]) -> Iterator[ProposalNote]:
    """The texts as notes of a kind."""
    return (ProposalNote(kind=kind, text=text) for text in texts)


def notes_on(
    standing: Sequence[Proposal], demand: Demand, asked: Wishes, by_hand: Sequence[str] = ()
) -> Iterator[ProposalNote]:
    """What a reader has to know of the cells that stand, the best of them first. ``by_hand``: what is
    compiled after it.
    """
    best = standing[0]
    sure, unread = installed_by_nvcc(asked)
    yield from noted_as("system", of_system(best, demand, [*by_hand, *sure], unread))
    if all(one.cell.cuda.provider == "none" for one in standing):
        names = ", ".join(best.cell.frameworks)
        yield ProposalNote(
            kind="cpu",
            text=f"{names} was built without CUDA and computes on the CPU alone: `cuda: none`",
        )
    yield from noted_as("build", (*_of_extras(best, demand), *_of_builds(best, demand)))
    yield from noted_as("name", of_retired(best, demand))
    yield from noted_as("index", of_indexes(asked.places, best, demand))
    yield from noted_as("elsewhere", newer_elsewhere(demand))
    yield from noted_as("card", of_generations(demand.gpus, demand.driver, modules=demand.kernel_modules))
    own_code = any(canonical(wish.name) in load().packages for wish in demand.companions)
    if own_code and demand.driver is not None and (cuda := cuda_of(best.cell)) is not None:
        yield from noted_as("driver", of_older_driver(cuda, demand.gpus, str(demand.driver)))
    yield from noted_as("feature", of_old_cards(best.cell, demand.gpus))
    yield from noted_as("together", of_packages_together(best.cell))
    yield from noted_as("feature", of_features(best, demand))
    yield from noted_as("compile", of_sources(asked, best, demand))
    yield from noted_as("glibc", of_glibc(best, demand))
    yield from noted_as("image", official_images(best.cell) if best.cell.cuda.provider != "none" else ())
    yield from noted_as("image", of_servers(demand))


def of_system(
    best: Proposal, demand: Demand, by_hand: Sequence[str] = (), unread: Sequence[str] = ()
) -> Iterator[str]:
    """What has to be on the system for the first proposal: the driver, CUDA where no wheel brings it,
    packages of Debian's, nvcc for what is compiled, now or as it runs, and what other sources need.
    ``unread``: sources of which nobody read whether they have CUDA code.
    """
    cell, cuda = best.cell, cuda_of(best.cell)
    if cuda is None or cell.cuda.provider == "none":
        return
    needs = [one for one in check(cell, only=("driver",)) if one.outcome is Outcome.POSSIBLE]
    least = f", {needs[0].values[0].text} or newer" if needs and demand.kernel_modules else ""
    source = f" [{needs[0].values[0].source}]" if least else ""
    if demand.driver is not None and by_compat(best.findings) is not None:
        least = f" {demand.driver} with the cuda-compat of the image, or without it{least.lstrip(',')}"
    with_sources = [text.partition(":")[0].replace(" ", "==", 1) for text in best.sources]
    names = ", ".join((*after(cell), *by_hand))
    to = [f"to compile {names}"] if names else []
    to += [f"for CUDA code in {', '.join(unread)}, if it has any"] if unread else []
    if cell.cuda.provider == "base":
        also = f", and nvcc of CUDA {short(cuda, 2)} {' and '.join(to)}" if to else ""
        yield (
            f"on the system: NVIDIA's driver{least}, and CUDA {short(cuda, 2)} with cuDNN, as {cell.base} "
            f"has them, which pip does not bring here{_by_conda(best, cuda)}{also}{source}"
        )
        yield from of_compiled([*with_sources, *by_hand])
        return
    to += [f"for what {name} compiles as programs run" for name in _compiling(cell)]
    other = f"nvcc of CUDA {short(cuda, 2)} {' and '.join(to)}" if to else "neither a CUDA toolkit nor cuDNN"
    other += f"; {', '.join(cell.apt)} of Debian's and Ubuntu's packages" if cell.apt else ""
    yield (
        f"on the system: NVIDIA's driver{least}, and {other}; the wheels bring the libraries of CUDA {cuda}, "
        f"whatever CUDA `nvidia-smi` prints{source}"
    )
    yield from of_compiled([*with_sources, *by_hand])


def _by_conda(best: Proposal, cuda: str) -> str:
    """The line by which conda brings CUDA and cuDNN into an environment, of the CUDA that its channel has."""
    if key(cuda) >= (12,):
        return ""
    named = {canonical(one.name): pinned(one) or "" for one in map(Requirement, best.cell.frameworks)}
    rows = [
        row for name, version in named.items() for row in load().table(name).of(version.partition("+")[0])
    ]
    cudnn = next((row.cudnn for row in rows if row.cudnn), None)
    exact = f"={key(cudnn)[0]}" if cudnn is not None else ""
    line = f"conda install -c conda-forge cudatoolkit={short(cuda, 2)} cudnn{exact}"
    return f": `{line}` brings both into an environment"


def _compiling(cell: Cell) -> Iterator[str]:
    """What compiles CUDA code as programs run, of a cell's packages and of what these ask for."""
    there = names_of((*cell.frameworks, *cell.pip))
    for one in map(Requirement, cell.pip):
        table = load().packages.get(canonical(one.name))
        if table is not None and (row := table.row(pinned(one) or "")) is not None:
            there |= names_of(row.requires)
    kernels = (load().kernels[name] for name in sorted(there & load().kernels.keys()))
    yield from (one.uses for one in kernels if "nvcc" in one.needs and one.unless not in there)


def of_features(best: Proposal, demand: Demand) -> Iterator[str]:
    """What packages of the first proposal do on newer cards alone."""
    cards = cards_of(demand.gpus)
    for parsed in map(Requirement, (*best.cell.frameworks, *best.cell.pip)):
        features = row.features if (row := load().package_names.get(canonical(parsed.name))) else {}
        for card in cards:
            lacks = [
                f"{what} (from {least} on)"
                for what, least in features.items()
                if key(card.capability) < key(least)
            ]
            if lacks:
                yield f"{parsed.name} on {card.name} ({card.capability}) is without {', '.join(lacks)}"


def of_newer_driver(best: Proposal, last: Sequence[LastRelease], demand: Demand) -> Iterator[str]:
    """How to install the driver that the release after the newest one asks for, if the first proposal does
    without one only by ``cuda-compat``. Where the driver serves it, nobody asked for another.
    """
    dropped = [one.anywhere.dropped for one in last if one.anywhere.dropped is not None]
    needs = [text for one in dropped if (text := driver_of(one)) is not None]
    if needs and demand.driver is not None and by_compat(best.findings) is not None:
        yield from of_driver(demand.gpus, min(needs, key=key), modules=demand.kernel_modules)


def with_code_read(one: Proposal, demand: Demand, index: Index, note: Callable[[str], None]) -> Proposal:
    """The proposal with the GPU code of packages that no table knows read from their wheels: one that has
    code for each card is known to be possible. What cannot be read stays unknown.
    """
    cards = cards_of(demand.gpus)
    found = list(one.findings)
    for parsed in map(Requirement, one.cell.pip if cards else ()):
        version = pinned(parsed)
        asks = f"whether {canonical(parsed.name)} {version} has code for "
        open_ = [f for f in found if f.rule == "package-gpu" and f.message.startswith(asks)]
        if not open_ or version is None:
            continue
        note(f"reading the GPU code of {parsed.name} {version}")
        try:
            file = _wheel_for(one.cell, index.offers(canonical(parsed.name)), version)
            reading = read_package(file, index.client) if file is not None else None
        except PackageIndexError:
            continue  # it stays unknown
        listed = reading.values.get("architectures") if reading is not None else None
        made = [key(f"{text[3:-1]}.{text[-1]}") for text in listed or () if re.fullmatch(r"sm_\d+", text)]
        have = [key(card.capability) for card in cards]
        if all(any(code[0] == mine[0] and code <= mine for code in made) for mine in have):
            text = f"{canonical(parsed.name)} {version} has code for {', '.join(card.name for card in cards)}"
            found = [f for f in found if f not in open_]
            found.append(Finding(Outcome.POSSIBLE, f"{text}, by its wheel", rule="package-gpu"))
    return replace(one, findings=tuple(found))


def _wheel_for(cell: Cell, files: Iterable[IndexFile], version: str) -> IndexFile | None:
    """The wheel of a release for a cell's Python and processor; None if there is none."""
    python, machine = f"cp{cell.python.replace('.', '')}", MACHINES[cell.platform]
    for file in files:
        wheel = wheel_name(file.name)
        if wheel is None or str(wheel.version).partition("+")[0] != version.partition("+")[0]:
            continue
        linux = (tag for tag in wheel.tags if "linux" in tag.platform and tag.platform.endswith(machine))
        if any(tag.interpreter == python or tag.abi == "abi3" for tag in linux):
            return file
    return None


def named(wishes: Sequence[NamedRequirement]) -> str:
    """The first four of the requirements, and how many more there are."""
    more = f" and {len(wishes) - 4} more" if len(wishes) > 4 else ""
    return ", ".join(map(str, wishes[:4])) + more


def of_pythons(has: Mapping[NamedRequirement, frozenset[str]]) -> Iterator[str]:
    """The Pythons for which a requirement has wheels, where they decide on the proposal's."""
    for wish, there in has.items():
        pythons = sorted(there, key=key)
        yield f"{wish} ({wish.place}) has wheels for Python {', '.join(pythons)}, and so one of them is taken"


def of_newer(standing: Sequence[Proposal], refused: Mapping[str, Proposal]) -> Iterator[str]:
    """Why the first proposal is not a newer release that the rules let pass: its index was silent, or its
    wheels were resolved or read, and refused.
    """
    first, told = dict(releases_of(standing[0])), set[tuple[str, ...]]()
    for one, why in (
        *((one, one.unasked) for one in standing[1:]),
        *((one, text.partition("\n")[0]) for text, one in refused.items()),
    ):
        mine = dict(releases_of(one))
        newer = any(name in first and release(text) > release(first[name]) for name, text in mine.items())
        if why is None or not newer or one.cell.frameworks in told:
            continue
        told.add(one.cell.frameworks)
        names = ", ".join(one.cell.frameworks)
        if one.unasked is None:
            yield f"{names} is newer than the first below, and refused: {why}"
            continue
        line = pip_line(one.cell)
        by_pip = f"; by pip, on Python {one.cell.python}: {line}" if line is not None else ""
        yield f"{names} is newer than the first below, and nobody read it here: {why}{by_pip}"


def of_older(best: Proposal, demand: Demand, available: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Why the first proposal has an older release of a framework than could be had without the rest."""
    if not demand.companions:
        return
    alone = search(replace(demand, companions=()), available=available, enough=20).possible
    # an index of its own that the best has none of may be silent
    alike = (one for one in alone if {*one.cell.index} <= {*best.cell.index})
    newest = dict(releases_of(next(alike, best)))
    for name, version in releases_of(best):
        if name in newest and release(version) < release(newest[name]):
            wants = next(leaving_out(best.cell.pip, name, newest[name], load().packages), "")
            beside = named(demand.companions) + f": {wants}" * bool(wants)
            yield f"{name} {newest[name]} is possible alone; {version} is the newest found with {beside}"


def _of_extras(best: Proposal, demand: Demand) -> Iterator[str]:
    """That the first proposal's framework brings CUDA by another extra than the one that is asked for, which
    older releases had.
    """
    taken = {canonical(parsed.name): parsed for parsed in map(Requirement, best.cell.frameworks)}
    for wish in demand.frameworks:
        asked, mine = set(map(canonical, wish.parsed.extras)), taken.get(wish.name)
        rows = load().table(wish.name).of(pinned(mine) or "") if mine is not None else []
        here = {extra for row in rows for extra in (*row.extras, *row.aliases)}
        if mine is None or not mine.extras:
            continue
        other = asked - here - set(map(canonical, mine.extras))
        gone = sorted(extra for extra in other if any(row.is_named_by(extra) for row in rows))
        if not gone:
            continue
        had = [row.version for row in load().table(wish.name).rows if {*gone} <= {*row.extras}]
        last = (
            f"; the last one on record that does by {', '.join(gone)} is {max(had, key=release)}"
            if had
            else ""
        )
        said = f"{wish} ({wish.place}) is taken as {mine}"
        yield f"{said}: this release brings the same CUDA by that extra{last}"


def _of_builds(best: Proposal, demand: Demand) -> Iterator[str]:
    """Why the first proposal has another build of a PyTorch than the one that its requirement, with the index
    beside it, gets by pip.
    """
    for parsed in map(Requirement, best.cell.frameworks):
        wish = next((wish for wish in demand.frameworks if wish.name == canonical(parsed.name)), None)
        release_, _, taken = (pinned(parsed) or "").partition("+")
        if not taken or wish is None:
            continue
        exact = pinned(wish.parsed) == release_
        named = re.findall(r"/whl/(cu\d+)", " ".join(demand.index))
        platform = best.cell.platform
        every = load().table(wish.name).of(release_)
        rows = [row for row in every if row.variant != taken or platform in row.cpu_only]
        row = next((row for row in rows if row.variant in named), None)
        row = row or next((row for row in rows if row.default), None)
        if row is None or not (exact or platform in row.cpu_only):
            continue  # a range leaves the build open
        if (why := _against(row, parsed, best.cell, demand)) is not None:
            bare = best.cell.platform in row.cpu_only
            told = f"{wish} ({wish.place}) is by pip the build {f'for CUDA {row.cuda}: {why}' * (not bare)}"
            told += f"without CUDA on {best.cell.platform}{' up to ' + release_ if not exact else ''}" * bare
            later = _first_with_cuda(parsed, release_, best.cell, demand) if bare and not exact else ""
            yield f"{told}{later}; taken is that with +{taken}"


def _first_with_cuda(parsed: Requirement, release_: str, cell: Cell, demand: Demand) -> str:
    """The first later release with CUDA on a cell's platform by the default index, and why it is not it."""
    rows = load().table(canonical(parsed.name)).rows
    has = [one for one in rows if one.default and {cell.platform} <= {*one.platforms} - {*one.cpu_only}]
    later = [one for one in has if release(one.version) > release(release_)]
    if not later:
        return ""
    first = min(later, key=lambda one: release(one.version))
    why = _against(first, parsed, cell, demand)
    return f", and from {first.version} on for CUDA {first.cuda}" + (f": {why}" if why is not None else "")


def _against(row: FrameworkRow, parsed: Requirement, cell: Cell, demand: Demand) -> str | None:
    """Why another build of the same release does not do in the place of a cell's; None if it does."""
    mine = f"{parsed.name}=={row.version}" + f"+{row.variant}" * (not row.default)
    frameworks = tuple(mine if text == str(parsed) else text for text in cell.frameworks)
    index = tuple(url for url in cell.index if not PYTORCH.match(url))
    if not row.default:
        index = (*index, f"https://download.pytorch.org/whl/{row.variant}")
    found = check(replace(cell, frameworks=frameworks, index=index), driver=demand.driver, suggest=False)
    return next((one.message for one in found if one.outcome is Outcome.IMPOSSIBLE), None)


def of_indexes(places: Mapping[str, str], best: Proposal, demand: Demand) -> Iterator[str]:
    """The line of a project to change, where it names PyTorch's index of a build that the first proposal has
    another of, and why.
    """
    torch = (one for one in map(Requirement, best.cell.frameworks) if canonical(one.name) == "torch")
    for parsed in torch if places else ():
        version, _, taken = (pinned(parsed) or "").partition("+")
        rows = load().table("torch").of(version)
        default = next((row.variant for row in rows if row.default), "")
        for url, place in places.items():
            named = re.match(r"https://download\.pytorch\.org/whl/(cu\d+)", url)
            if named is None or named[1] == (taken or default):
                continue
            row = next((row for row in rows if row.variant == named[1]), None)
            why = f"no build of PyTorch {version} on record is there"
            if row is not None:
                why = _against(row, parsed, best.cell, demand) or f"the build +{taken or default} is taken"
            way = f"put {url.replace(named[1], taken)} there" if taken else "the default index has the build"
            yield f"{place} names {url}: {why}; {way}"


def of_retired(best: Proposal, demand: Demand) -> Iterator[str]:
    """What stands for a name that its maker gave up: tensorflow-gpu."""
    for parsed in map(Requirement, best.cell.frameworks):
        name, version = canonical(parsed.name), pinned(parsed) or ""
        row = load().mistaken_names.get(name)
        if row is None or row.versions is None or not load().is_framework(row.instead):
            continue
        same = load().table(row.instead).of(version, row.instead)
        has = any(demand.built_for in {*one.platforms} - {*one.cpu_only} for one in same)
        what = "is the same, with CUDA" if has else "was built without CUDA; later ones have it"
        yield f"{name} is a retired name: {row.reason}; {row.instead}=={version} {what}"


def of_glibc(best: Proposal, demand: Demand) -> Iterator[str]:
    """Why the first proposal is no newer release, where the system's glibc holds it back."""
    held = [text for name, _ in releases_of(best) for text in since_glibc(name, demand)]
    if held:
        yield "; ".join((*held, container_of(demand)))


def for_jetson(problem: NothingPossibleError, demand: Demand) -> NothingPossibleError:
    """The refusal with one line in place of those about each release's wheels, and what people do there."""
    rows = (card_of(name) for name in demand.gpus)
    if not any(row is not None and row.tegra for row in rows):
        return problem
    told = [reason for reason in problem.reasons if _ARM_WHEEL.match(reason)]
    titles = " and ".join(load().table(wish.name).title for wish in demand.frameworks)
    once = (
        f"which wheels of {titles} run on a Jetson is not known: those on its maker's indexes were not read"
    )

    def said(texts: Iterable[str]) -> list[str]:
        return list(
            dict.fromkeys(
                text.replace(text.strip(), once) if text.strip() in told else text for text in texts
            )
        )

    hint = "; ".join(filter(None, (problem.hint, ON_JETSON)))
    message = "\n".join(said(problem.message.splitlines()))
    reasons = said(problem.reasons)
    return type(problem)(message, reasons=reasons, instead=problem.instead, ways=problem.ways, hint=hint)


def with_way(
    problem: NothingPossibleError,
    changes: Sequence[Substitution],
    proposal: Proposal,
    whole: Proposal | None = None,
    *,
    system: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> NothingPossibleError:
    """The refusal, led by what would do: its line for pip, what has to be on the ``system``, what changes;
    then ``notes``, and the reasons. ``whole``: with another driver, and nothing left out.
    """
    cell = proposal.cell
    proven = (
        f"the resolver finds {proposal.wheels} wheels" if proposal.unasked is None else "the rules accept"
    )
    place = f"on Python {cell.python} and {cell.base}"
    told = [*map(str, changes), *proposal.sources]
    if told:
        head, *reasons = _without_the_same(problem, proposal).splitlines()
        head = re.sub(r"^nothing is (known to be )?possible", r"not \1possible as asked", head)
        lines = [head, f"what would do: {', '.join(cell.frameworks)} {place}: {proven}"]
    else:  # nothing has to change: it is not known to be possible
        open_ = (finding.message for finding in proposal.findings if finding.outcome is Outcome.UNKNOWN)
        why = f": {first}" if (first := next(open_, None)) else ""
        head, *reasons = problem.message.splitlines()
        lines = [head, f"what nothing refuses: {', '.join(cell.frameworks)} {place}{why}"]
    if by_compat(proposal.findings) is None:
        line = pip_line(cell, system=cell.cuda.provider == "base")
        lines += [f"  by pip, on Python {cell.python}: {line}"] if line is not None else []
        if by_hand := [text for change in changes if (text := change.by_hand) is not None]:
            pages = pages_of(by_hand, cell)
            lines.append(f"  then, by hand: {pip_install(('--no-build-isolation', *by_hand), (), pages)}")
    lines += (f"  {text}" for text in system)
    if by_compat(proposal.findings) is None and cell.cuda.provider != "none":
        checks = python_lines(smoke_statements((*cell.frameworks, *cell.pip)))
        lines += (f"  to check it: {line}" for line in checks)
    lines += (f"  {one}" for one in told)
    bad = (one.message for one in proposal.findings if one.rule == "known-bad")
    lines += (f"  note: {note}" for note in (*notes, *bad))
    if whole is not None:
        needs = (finding.message for finding in whole.findings if finding.rule == "driver")
        frameworks = ", ".join(whole.cell.frameworks)
        lines.append(
            f"with another driver all of it: {frameworks} on Python {whole.cell.python} and "
            f"{whole.cell.base}; {next(needs, 'no driver is known to be asked for')}"
        )
    lines += ["why not as asked:", *reasons] if reasons else []
    hint = "--nearest takes these, and writes the matrix"
    return type(problem)("\n".join(lines), reasons=problem.reasons, instead=problem.instead, hint=hint)


def _without_the_same(problem: NothingPossibleError, proposal: Proposal) -> str:
    """The refusal without the ways out that give up more than a proposal does, or tell its releases again."""
    mine = dict(releases_of(proposal))
    lines = problem.message.splitlines()
    kept = 0
    for line, way in zip(problem.ways, problem.instead, strict=True):
        texts = map(Requirement, way["cell"]["frameworks"])
        theirs = {canonical(one.name): (pinned(one) or "0").partition("+")[0] for one in texts}
        if "driver" in way or "cards" in way or (way["another_version"] and theirs != mine):
            kept += 1
        else:
            lines.remove(line)
    if problem.ways and not kept:
        lines = [line for line in lines if line not in WAYS_LEAD]
    return "\n".join(lines)


def releases_of(proposal: Proposal) -> Iterator[tuple[str, str]]:
    """Name and version, without its build, of each framework."""
    for parsed in map(Requirement, proposal.cell.frameworks):
        yield canonical(parsed.name), (pinned(parsed) or "0").partition("+")[0]
