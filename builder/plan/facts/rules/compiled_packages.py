"""Whether a compiled package beside the frameworks loads and runs: PyTorch's ABI, CUDA, GPU code, files."""

import functools
import re
from collections.abc import Iterable, Iterator, Sequence

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from builder.core.versions import (
    apart,
    at_least,
    canonical,
    contains,
    holds,
    key,
    lower_bound,
    major,
    pinned,
    release,
    requirement,
    short,
)
from builder.plan.facts.rules.cell_packages import CellFramework, CellPackage, firm_wishes, markers_of
from builder.plan.facts.rules.finding import CELL, Finding, Outcome, Value, impossible, unknown, warns
from builder.plan.facts.rules.image_contents import Stack
from builder.plan.facts.tables import GpuRow, PackageRow, card_of, load

FIRST_STABLE = "2.10"
"""The oldest PyTorch that a package compiled against its stable interface asks for, by the packages' tables.

https://docs.pytorch.org/docs/stable/notes/libtorch_stable_abi.html
"""
_OF_TORCH = re.compile(r"lib(?:torch|c10)_cuda\.so")


def known(stack: Stack) -> Iterator[Finding]:
    """``package-known``: the release exists, and its libraries were read."""
    for one in stack.beside:
        row = one.row
        if one.version is None:
            yield from _none_fits(stack, one)
        elif row is None:
            yield from _off_record(stack, one, one.version)
        elif row.yanked is not None:
            yield warns(f"{one.label} was yanked by its maker: {row.yanked}", _asked(one))
        elif not row.modules and row.archive != "source" and _asks_for_framework(row):
            text = f"{one.label} is older than the releases whose libraries were read"
            why = row.unread.get("libraries", "what it was compiled for is not known")
            yield unknown(f"{text}: {why}{_on_record(stack, one)}", _asked(one))


def _off_record(stack: Stack, one: CellPackage, version: str) -> Iterator[Finding]:
    """A release without a row: there is none, or nobody read it."""
    table, public = one.table, version.partition("+")[0]
    since = load().package_names[one.name].since
    inside = not at_least(public, table.newest) and at_least(public, since)
    if inside and not (one.elsewhere or stack.truth.locked or release(public).is_prerelease):
        line = [row.version for row in table.rows if key(row.version)[:2] == key(public)[:2]]
        there = f"there are {', '.join(line[:6])}" if line else f"the newest is {table.newest}"
        read = f"as read on {table.date}: {there}"
        yield impossible(f"there is no {one.name} {public} on the package index, {read}", _asked(one))
    elif _named_by_framework(stack, one):
        return  # PyTorch's own metadata names the release of Triton that it was made with
    elif _decides(one):
        span = f"whose releases on record are {table.rows[-1].version} to {table.newest}"
        text = f"nobody read the wheel of {one.label}, {span}{_on_record(stack, one)}"
        yield unknown(text, _asked(one))


def _decides(one: CellPackage) -> bool:
    """Whether a release matters: of what is linked with nothing of a framework's or CUDA's, none does."""
    return any(row.abi or row.architectures or row.either or row.cuda_libraries for row in one.table.rows)


def _named_by_framework(stack: Stack, one: CellPackage) -> bool:
    """Whether a framework's own requirements name this very release."""
    lines = [line for framework in stack.frameworks if framework.row for line in framework.row.requires]
    mine = (parsed for parsed in map(requirement, lines) if parsed and canonical(parsed.name) == one.name)
    return any(pinned(parsed) == one.version for parsed in mine)


def _asks_for_framework(row: PackageRow) -> bool:
    """Whether anything of a framework's is asked for, and not by one exact release, which settles it."""
    asked = [parsed for parsed in map(requirement, row.requires) if parsed is not None]
    mine = [parsed for parsed in asked if canonical(parsed.name) in load().frameworks]
    return any(not any(c.operator == "==" for c in parsed.specifier) for parsed in mine)


def _asked(one: CellPackage) -> Value:
    return Value(one.name, one.version or "any release", one.source)


def _none_fits(stack: Stack, one: CellPackage) -> Iterator[Finding]:
    """No release goes with what is asked for beside it: which of them comes closest, and what it wants."""
    if too_old := [*_too_old(stack, one, one.table.rows[0])]:
        yield from too_old  # whatever else speaks against single releases
        return
    own = [parsed for who, parsed in one.wanted if who == "the cell"]
    rows = [row for row in one.table.rows if all(p.specifier.contains(row.version) for p in own)]
    wheels = [row for row in rows if row.archive != "source"]
    if rows and not wheels:
        without_code = [*_of_cards(stack, one, rows[0])]
        yield from without_code or [_source_alone(stack, one, rows[0])]
        return
    oldest = one.table.rows[-1]
    firm = firm_wishes(stack.cell, stack.frameworks, one.name)
    firm += [parsed for who, parsed in one.wanted if who != "the cell"]
    bounded = [row for row in wheels if all(contains(p.specifier, row.version) for p in firm)]
    older = (
        _asks_for_older(own, oldest) if not rows else not bounded and _rest_asks_for_older(firm, own, oldest)
    )
    if older or (wheels and _is_before(stack, one, wheels[-1])):
        if _decides(one):
            before = f"those before {(wheels or [oldest])[-1].version} were not read"
            yield unknown(f"no release of {one.name} on record goes with the rest, and {before}", _asked(one))
        return
    if not rows:
        outcome = unknown if one.elsewhere else impossible
        asked = " and ".join(str(parsed) for parsed in own) or one.name
        there = f"{one.table.rows[-1].version} to {one.table.newest}"
        yield outcome(f"no release of {one.name} on record fits {asked}: there are {there}", _asked(one))
        return
    newest = (bounded or wheels or rows)[0]
    asked_for = dict.fromkeys(str(p) for p in firm if not contains(p.specifier, newest.version))
    reasons = [f"is not the {text.partition(';')[0].strip()} that the rest asks for" for text in asked_for]
    if stack.cell.python not in newest.python:
        reasons.append(f"is for Python {_span(newest.python)}")
    if stack.cell.platform not in newest.platforms:
        reasons.append(f"is for {', '.join(newest.platforms)}")
    versions = {f.name: f for f in stack.frameworks if f.version}
    for parsed in filter(None, map(requirement, newest.requires)):
        framework = versions.get(canonical(parsed.name))
        if framework is not None and not parsed.specifier.contains(framework.version or "", prereleases=True):
            reasons.append(f"wants {parsed.name}{parsed.specifier}, and the cell {framework.label}")
    why = "; ".join(reasons) or "is asked for in another release"
    which = "the newest" if newest is (wheels or rows)[0] else "the newest that the rest admits"
    text = f"no release of {one.name} on record goes with the rest: {newest.label}, {which}, {why}"
    values = (_asked(one), Value(f"{one.name} on record", newest.version, newest.source))
    if one.elsewhere:
        yield unknown(f"{text}; what the cell's own index has was not read", *values)
    elif any(parsed.specifier.prereleases for _, parsed in one.wanted):
        yield unknown(f"{text}; its pre-releases, one of which is asked for, are not on record", *values)
    else:
        yield impossible(text, *values)


def _asks_for_older(asked: Iterable[Requirement], oldest: PackageRow) -> bool:
    """Whether no release from the oldest on record on may be meant: ``opencv-python==4.3.*``."""
    clauses = (clause for parsed in asked for clause in parsed.specifier)
    ends = [c.version.removesuffix(".*") for c in clauses if c.operator in {"<", "<=", "==", "~="}]
    return any(not at_least(end, oldest.version) for end in ends)


def _rest_asks_for_older(firm: Sequence[Requirement], own: Sequence[Requirement], oldest: PackageRow) -> bool:
    """As :func:`_asks_for_older`, of requirements for which the cell's own leave room: TensorFlow 2.8 wants
    keras<2.9.
    """
    room = not any(apart(one.specifier, other.specifier) for one in firm for other in own)
    return room and _asks_for_older(firm, oldest)


def _is_before(stack: Stack, one: CellPackage, oldest: PackageRow) -> bool:
    """Whether the cell is older than the oldest release on record, so that an older one may go with it."""
    bounds = (lower_bound(parsed) for _, parsed in one.wanted)
    if any(bound is not None and at_least(bound, oldest.version) for bound in bounds):
        return False
    if all(key(stack.cell.python) < key(python) for python in oldest.python):
        return True
    own = (parsed for parsed in map(requirement, stack.cell.pip) if parsed is not None)
    versions = {canonical(parsed.name): pinned(parsed) for parsed in own}
    versions |= {framework.name: framework.version for framework in stack.frameworks}
    for parsed in filter(None, map(requirement, oldest.requires)):
        name = canonical(parsed.name)
        asked, mine = lower_bound(parsed) or pinned(parsed), versions.get(name)
        if asked is None or not holds(parsed, markers_of(stack.cell.python, stack.cell.platform)):
            continue
        if mine is not None and not at_least(mine, asked):
            return True
        firm = firm_wishes(stack.cell, stack.frameworks, name) if mine is None else []
        if any(apart(one.specifier, SpecifierSet(f">={asked}")) for one in firm):
            return True  # matplotlib 3.5 wants numpy>=1.17, and the cell numpy<=1.15.4
    return False


def _span(versions: Sequence[str]) -> str:
    return f"{versions[0]} to {versions[-1]}" if len(versions) > 1 else "".join(versions)


def _source_alone(stack: Stack, one: CellPackage, row: PackageRow) -> Finding:
    value = Value(f"{one.name} on the package index", "a source archive alone", row.source)
    what = f"{row.label} has no wheel on the package index"
    needs = [{"torch": "PyTorch", "nvcc": "nvcc", "network": "a network"}[name] for name in row.compiles]
    against = f", whose compilation asks for {', '.join(needs)}" if needs else ""
    if one.name in _built(stack):
        if "nvcc" in row.compiles:
            return unknown(f"{what}{against}: whether it compiles here, `rtbuild lock` tells", value)
        return warns(f"{what}, and is built from its sources", value)
    if one.elsewhere:
        return unknown(f"{what}{against}; whether the cell's own index has one was not read", value)
    way = "name an index that has a wheel of it in `index`, or the package in `from-source`"
    return impossible(f"{what}, only sources{against}: {way}", value)


def _built(stack: Stack) -> set[str]:
    """Packages that are built from their sources."""
    return {canonical(name) for name in (*stack.cell.from_source, *(name for name, _ in stack.cell.compiled))}


def installs(stack: Stack) -> Iterator[Finding]:
    """``package-python``: there is a wheel for the Python, the platform and the glibc."""
    cell = stack.cell
    for one in stack.beside:
        row = one.row
        if row is None:
            continue
        if row.archive == "source":
            if not stack.truth.locked and not any(_of_cards(stack, one, row)):
                yield _source_alone(stack, one, row)
            continue
        if stack.truth.locked or one.name in _built(stack):
            continue  # the resolver took a wheel that installs, or one is built
        for name, wanted, there in (
            ("Python", cell.python, row.python),
            ("the platform", cell.platform, row.platforms),
        ):
            if wanted not in there and not one.variant and not one.elsewhere:
                values = (
                    Value(name, wanted, CELL),
                    Value(f"{one.name} wheels for", ", ".join(there), row.source),
                )
                text = f"{one.label} has no wheel for {wanted if '/' in wanted else f'Python {wanted}'}"
                yield impossible(f"{text} (it has {', '.join(there)})", *values)
        needs = row.glibc_arm64 if cell.platform.endswith("arm64") else row.glibc
        system = stack.system
        if needs is not None and system is not None and not at_least(system.glibc, needs) and not one.variant:
            yield impossible(
                f"{one.label} needs glibc {needs}, {system.name} has {system.glibc}",
                Value(f"glibc that {one.name} needs", needs, row.source_of("glibc")),
                Value(f"glibc in {system.name}", system.glibc, system.source),
            )


def _refused(one: CellPackage) -> Outcome:
    """The outcome for a package with a library that cannot be loaded."""
    return Outcome.WARNS if load().package_names[one.name].optional else Outcome.IMPOSSIBLE


def torch_abi(stack: Stack) -> Iterator[Finding]:
    """``package-torch``: PyTorch has the symbols that a package compiled against it asks for."""
    torch = torch_of(stack)
    if torch is None or torch.version is None:
        return
    minor = short(torch.version.partition("+")[0], 2)
    for one in stack.beside:
        row = one.row
        if row is not None and _before_stable(row, minor):
            text = f"{one.label} is compiled against PyTorch's stable interface, of an unread release"
            older = f"{torch.label} is older than any that is known to have it"
            judge = warns if load().package_names[one.name].optional else unknown
            yield judge(
                f"{text}: {older}{_instead(stack, one, torch)}",
                Value("PyTorch that has its stable interface", FIRST_STABLE, row.source_of("abi")),
                Value("PyTorch", torch.version, CELL),
            )
            continue
        if row is None or not row.torch or minor in row.torch:
            continue
        built = Value(f"PyTorch that has {one.name}'s symbols", ", ".join(row.torch), row.source_of("torch"))
        there = Value("PyTorch", torch.version, CELL)
        if not at_least(row.torch[0], minor) and not at_least(_newest_torch(), minor):
            yield unknown(
                f"whether {one.label} goes with {torch.label} is not known: nobody compared them", built
            )
            continue
        span = " or ".join(row.torch) if len(row.torch) < 3 else f"{row.torch[0]} to {row.torch[-1]}"
        text = f"{one.label} asks for symbols that PyTorch {span} has, and {torch.label} has not"
        message = f"{text}: it does not load{_instead(stack, one, torch)}"
        yield Finding(_refused(one), message, (built, there))


def _before_stable(row: PackageRow, minor: str) -> bool:
    """Whether a package is compiled against PyTorch's stable interface, does not say since which release, and
    this one is older than each that a package of that kind asks for.
    """
    asks = any(len(parsed.specifier) for parsed in row.asks("torch"))
    return row.abi == "stable" and not asks and not at_least(minor, FIRST_STABLE)


def torch_of(stack: Stack) -> CellFramework | None:
    """The cell's PyTorch."""
    return next((framework for framework in stack.frameworks if framework.name == "torch"), None)


def _newest_torch() -> str:
    """The newest minor release whose symbols any package was compared with."""
    return short(load().frameworks["torch"].newest, 2)


def _instead(stack: Stack, one: CellPackage, torch: CellFramework) -> str:
    """The newest release of the package for this PyTorch and its CUDA."""
    other = release_for(stack, one, torch)
    return f"; {other.label} has nothing against it" if other is not None else ""


def _on_record(stack: Stack, one: CellPackage) -> str:
    """As :func:`_instead`, where the cell has a PyTorch; else the release that pins this PyTorch."""
    torch = torch_of(stack)
    if torch is None:
        return ""
    made = (row for row in one.table.rows if stack.cell.python in row.python and _is_made_for(row, torch))
    other = next(made, None)
    return _instead(stack, one, torch) or (f"; {other.label} has nothing against it" if other else "")


def _is_made_for(row: PackageRow, torch: CellFramework) -> bool:
    """Whether a release pins this very PyTorch in its metadata, as torchvision 0.8.2 pins torch==1.7.1."""
    public = (torch.version or "").partition("+")[0]
    return row.yanked is None and any(pinned(parsed) == public for parsed in row.asks("torch"))


def release_for(stack: Stack, one: CellPackage, torch: CellFramework) -> PackageRow | None:
    """The newest release of a package that this PyTorch, its CUDA and this Python have nothing against."""
    version = torch.version or ""
    minor = short(version.partition("+")[0], 2)
    for row in one.table.rows:
        asked = row.asks("torch")
        fits = all(parsed.specifier.contains(version.partition("+")[0], prereleases=True) for parsed in asked)
        stable = row.abi == "stable" and not _before_stable(row, minor)
        bound = stable or any(len(parsed.specifier) for parsed in asked)
        named = minor in row.torch if row.torch else bound
        if (
            row.yanked is None
            and row.archive != "source"
            and row.modules
            and stack.cell.python in row.python
            and fits
            and named
            and not _lacking(stack, row, one.variant)
        ):
            return row
    return None


def cuda(stack: Stack) -> Iterator[Finding]:
    """``package-cuda``: the libraries of CUDA that a package is linked with are there in that major."""
    torch = torch_of(stack)
    for one in stack.beside:
        row = one.row
        if row is None:
            continue
        if re.match(r"cu\d", one.variant):
            yield from _variant(stack, one)
            continue
        if one.variant:
            continue
        if torch is None and any(name.startswith("libtorch") for name in row.needed):
            text = f"{one.label} brings a PyTorch, which is not judged: name it among the frameworks"
            yield warns(text, Value("linked with", ", ".join(row.needed), row.source_of("needed")))
            continue
        lacking = _lacking(stack, row, one.variant)
        if lacking:
            there = _majors(stack)
            has = " and ".join(f"CUDA {number} ({who})" for number, who in sorted(there.items()))
            said = f"{one.label} is linked with {', '.join(lacking)}, and here is {has}"
            values = [Value(f"{one.name} is linked with", ", ".join(lacking), row.source_of("needed"))]
            values += [Value(f"CUDA {number}", who, CELL) for number, who in there.items()]
            instead = _instead(stack, one, torch) if torch is not None else ""
            yield Finding(_refused(one), f"{said}: it does not load{instead}", tuple(values))
        elif torch is not None and re.match("cpu|rocm|xpu", torch.variant):
            if missing := ", ".join(name for name in row.needed if _OF_TORCH.fullmatch(name)):
                text = f"{one.label} is linked with {missing}, which {torch.label} does not bring"
                yield impossible(text, Value("linked with", missing, row.source_of("needed")))
        elif row.by_cuda and torch is not None and torch.cuda is not None:
            yield from _by_cuda(one, row, torch, torch.cuda)
        elif not stack.frameworks and not _majors(stack):
            names = [name for name, number in row.cuda_libraries if number not in row.pinned_cuda]
            if names:
                text = f"{one.label} is linked with {', '.join(names)}, which nothing that is named brings"
                yield unknown(text, Value("linked with", ", ".join(names), row.source_of("needed")))


def _variant(stack: Stack, one: CellPackage) -> Iterator[Finding]:
    """A build of PyTorch's own index: its name says for which CUDA it is."""
    torch, number = torch_of(stack), one.variant.removeprefix("cu")
    if torch is None or torch.cuda is None or not number.isdigit():
        return
    if int(number[:-1]) != major(torch.cuda.text):
        text = (
            f"{one.label} is a build for CUDA {number[:-1]}.{number[-1]}, {torch.label} for {torch.cuda.text}"
        )
        yield impossible(f"{text}: take both from one index", Value(one.name, one.variant, CELL), torch.cuda)
    elif one.row is not None and one.row.modules and not _has_cuda(one.row) and not stack.truth.locked:
        text = f"{one.label} is a build with CUDA, whose libraries were not read: the default index has none"
        judge = warns if stack.cell.dependencies == "listed" else unknown  # a list is of what ran together
        yield judge(f"{text}; `rtbuild lock` reads them", Value(one.name, one.variant, CELL))


def _has_cuda(row: PackageRow) -> bool:
    return row.cuda is not None or any("cuda" in name for name in row.needed)


def _by_cuda(one: CellPackage, row: PackageRow, torch: CellFramework, found: Value) -> Iterator[Finding]:
    wanted = short(found.text, 2)
    if wanted in row.by_cuda:
        return
    there = ", ".join(sorted(row.by_cuda, key=key))
    has = Value(f"libraries of {one.name}, by CUDA", there, row.source_of("by_cuda"))
    text = f"{one.label} has no library for the CUDA {wanted} of {torch.label} (it has {there})"
    nearest = load().package_names[one.name].nearest
    same = any(major(cuda) == major(wanted) for cuda in row.by_cuda)
    if nearest is not None and at_least(row.version, nearest) and same:
        return  # it takes the next one
    newer = next((r for r in one.table.rows if wanted in r.by_cuda), None)
    yield impossible(f"{text}{f'; {newer.label} has one' if newer is not None else ''}", has, found)


def _majors(stack: Stack) -> dict[int, str]:
    """The majors of CUDA whose libraries are in the image, each with who brings it."""
    found: dict[int, str] = {}
    for framework in stack.frameworks:
        if framework.cuda is not None and framework.brings != "outside":
            found.setdefault(major(framework.cuda.text), framework.label)
        elif framework.name == "torch" and (said := re.fullmatch(r"cu(\d+)\d", framework.variant)):
            found.setdefault(int(said[1]), framework.label)  # a build that is not on record
    names = [canonical(parsed.name) for parsed, _ in stack.asked]
    names += [wheel.name for wheel in stack.truth.wheels]
    for name in names:
        if match := re.fullmatch(r"nvidia-(?!cudnn|nccl)[a-z-]+-cu(\d\d)", name):
            found.setdefault(int(match[1]), name)
    if stack.wheel_cuda is not None and stack.wheel_cuda.version is not None:
        found.setdefault(major(stack.wheel_cuda.version.text), "NVIDIA's wheels")
    if stack.base_cuda is not None and stack.base_has_libraries:
        found.setdefault(major(stack.base_cuda.text), str(stack.cell.base))
    return found


def _lacking(stack: Stack, row: PackageRow, variant: str) -> list[str]:
    """Libraries that it is linked with, of a CUDA that is not in the image."""
    there = _majors(stack)
    if not there or variant:
        return []
    majors = {*there, *row.pinned_cuda}
    return [name for name, number in row.cuda_libraries if number not in majors]


def gpus(stack: Stack) -> Iterator[Finding]:
    """``package-gpu``: a package has code for each GPU that the cell claims."""
    for one in stack.beside:
        if one.row is not None:
            yield from _of_cards(stack, one, one.row)


def _of_cards(stack: Stack, one: CellPackage, row: PackageRow) -> Iterator[Finding]:
    """What is against a release on the cell's cards, in its wheel or in what its build files compile."""
    package, build = load().package_names[one.name], re.match(r"cu\d", one.variant)
    if (one.variant and not build) or stack.cell.platform != "linux/amd64" or package.runtime:
        return
    too_old = [*_too_old(stack, one, row)]
    yield from too_old
    listed, other = _code(stack, row)
    for card in filter(None, map(card_of, stack.cell.gpus if not too_old else ())):
        runs = [*_runs(one, row, card, listed, other)] if listed else []
        why = _why_no_code_known(one, row) if not listed and row.archive != "source" else None
        if build and any(found.outcome is Outcome.IMPOSSIBLE for found in runs):
            why, runs = "the default index's build of the release has none, and this one was not read", []
        yield from runs if not build else ()
        if why is not None and not (listed and _code_of_torch(stack, one, row, card)):
            text = f"whether {one.label} has code for {card.name} ({card.capability}) is not known: {why}"
            yield unknown(text, Value("gpu", card.name, CELL))


def _code_of_torch(stack: Stack, one: CellPackage, row: PackageRow, card: GpuRow) -> bool:
    """Whether each release of a package that was read has code for each card that the PyTorch of its metadata
    has code for, this one is made for the cell's, and that has code for the card.
    """
    torch = torch_of(stack)
    if torch is None or torch.row is None or not _is_made_for(row, torch):
        return False
    return _made_as_torch(one.name) and _serves(torch.row.architectures, key(card.capability)[:2])


@functools.cache
def _made_as_torch(name: str) -> bool:
    torch, found = load().frameworks["torch"], False
    for row in load().packages[name].rows:
        version = next(filter(None, map(pinned, row.asks("torch"))), None)
        made = torch.row(version) if version is not None and row.architectures else None
        if made is not None and made.architectures:
            cards = {key(_number(code))[:2] for code in made.architectures if code.startswith("sm_")}
            if not all(_serves(row.architectures, card) for card in cards):
                return False
            found = True
    return found


def _too_old(stack: Stack, one: CellPackage, row: PackageRow) -> Iterator[Finding]:
    """The cards of the cell that are older than any that the package's maker names."""
    package = load().package_names[one.name]
    for card in filter(None, map(card_of, stack.cell.gpus)) if package.least is not None else ():
        if not at_least(card.capability, package.least or "0"):
            text = f"{one.label} is for compute capability {package.least} and newer by its maker's page"
            values = (_of_card(card), Value(f"cards of {one.name}", package.least or "", package.sources[1]))
            yield impossible(f"{text}; {card.name} has {card.capability}{_else_for(one, row, card)}", *values)


def _of_card(card: GpuRow) -> Value:
    return Value(f"compute capability of {card.name}", card.capability, card.source)


def _else_for(one: CellPackage, row: PackageRow, card: GpuRow) -> str:
    """What there is in a release's place on a card, in clauses: the last release that has code for it,
    another package that does the same, and what programs take without any.
    """
    package, said = load().package_names[one.name], list[str]()
    if (last := _last_with_code(one.name, card)) is not None and not at_least(last.version, row.version):
        said.append(f"the last release with code for it is {_with_its_torch(last)}")
    elif last is None and row.version == one.table.newest and package.least is None:
        said.append("no release on record has any")
    for name in package.instead:
        if (other := _last_with_code(name, card)) is not None:
            said.append(f"{_with_its_torch(other)} has code for it")
    if card.capability in package.by_card:
        said.append(package.by_card[card.capability])
    if package.without and at_least(card.capability, package.without_least):
        said.append(f"programs do without it by {package.without}")
    return "".join(f"; {text}" for text in said)


def _last_with_code(name: str, card: GpuRow) -> PackageRow | None:
    """The newest release of a package that is known to have code for a card."""
    least = load().package_names[name].least
    if least is not None and not at_least(card.capability, least):
        return None
    rows = (row for row in load().packages[name].rows if row.yanked is None)
    have = key(card.capability)[:2]
    return next(
        (
            row
            for row in rows
            if any(_serves(code, have) for code in (row.architectures, *row.by_cuda.values()))
        ),
        None,
    )


def _with_its_torch(row: PackageRow) -> str:
    """``xformers 0.0.30, beside PyTorch 2.7.0``, if it pins one."""
    version = next(filter(None, map(pinned, row.asks("torch"))), None)
    return row.label + f" (beside PyTorch {version})" * (version is not None)


def _why_no_code_known(one: CellPackage, row: PackageRow) -> str | None:
    """Why a wheel's GPU code is not known; None for one that was read and has none."""
    if "architectures" in row.unread:
        return row.unread["architectures"]
    if not row.modules and any(other.architectures for other in one.table.rows):
        return "it is older than the releases whose libraries were read"
    return None


def _code(stack: Stack, row: PackageRow) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The GPU code that most kernels have, and what others have beyond; of the library for this CUDA."""
    torch = torch_of(stack)
    if row.by_cuda and torch is not None and torch.cuda is not None:
        wanted = short(torch.cuda.text, 2)
        same = [c for c in sorted(row.by_cuda, key=key) if major(c) == major(wanted) and at_least(wanted, c)]
        return row.by_cuda.get(wanted) or row.by_cuda.get(same[-1] if same else "", ()), ()
    return row.architectures, row.other_code


def _runs(
    one: CellPackage, row: PackageRow, card: GpuRow, listed: Sequence[str], other: Sequence[str]
) -> Iterator[Finding]:
    have = key(card.capability)[:2]
    if _serves(listed, have):
        return
    code = Value(f"code in {one.name}", " ".join((*listed, *other)), row.source_of("architectures"))
    values = (_of_card(card), code)
    if _serves(other, have):
        yield warns(
            f"only some kernels of {one.label} have code for {card.name} ({card.capability})", *values
        )
    else:
        text = f"{one.label} has no code for {card.name} ({card.capability})"
        if row.archive == "source":
            made = ", ".join(sorted({_number(code) for code in listed}, key=key))
            text += f", and compiling makes none: its build files name compute capability {made} alone"
        yield impossible(f"{text}{_else_for(one, row, card)}", *values)


def _number(code: str) -> str:
    """``8.0`` of ``sm_80``."""
    digits = re.sub(r"\D", "", code)
    return f"{digits[:-1]}.{digits[-1]}"


def _serves(listed: Sequence[str], have: tuple[int, ...]) -> bool:
    """Whether kernels or PTX in a list run on this capability."""
    for text in listed:
        digits = re.sub(r"\D", "", text)
        made = (int(digits[:-1]), int(digits[-1]))
        if made <= have and (text.startswith("compute_") or made[0] == have[0]):
            return True
    return False
