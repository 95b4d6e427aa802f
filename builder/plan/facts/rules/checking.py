"""The rules, each of which looks at one stack and yields findings."""

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from packaging.version import Version

from builder.core.model import Cell
from builder.core.versions import canonical, contains, key, names_of, pinned, release, requirement, short
from builder.plan.facts.reading import Truth, WheelTruth, framework_texts
from builder.plan.facts.rules import compiled_packages, cuda, devices, packages, same_files, system
from builder.plan.facts.rules.bounds import free_bounds
from builder.plan.facts.rules.cell_packages import settled, with_releases
from builder.plan.facts.rules.finding import Finding, Nearest, Outcome
from builder.plan.facts.rules.image_contents import Stack, stack_of


def _links(stack: Stack) -> Iterator[Finding]:
    if stack.truth.links:
        from builder.plan.facts.rules.linking import links  # few runs know a lock's libraries

        yield from links(stack)


def _imports(stack: Stack) -> Iterator[Finding]:
    if stack.truth.imports:
        from builder.plan.facts.rules.linking import imports

        yield from imports(stack)


RULES: dict[str, Callable[[Stack], Iterable[Finding]]] = {
    "unread": system.unread,
    "index": system.index,
    "yanked": system.yanked,
    "names": packages.names,
    "framework-known": system.known_framework,
    "base-tag": system.base_tag,
    "compiled": system.compiled,
    "python": system.python,
    "platform": system.platform,
    "glibc": system.glibc,
    "cuda-provider": cuda.provider,
    "cuda-libraries": cuda.libraries,
    "elf-needs": cuda.linked,
    "cuda-version": cuda.cuda_version,
    "cudnn-copies": cuda.cudnn_copies,
    "cudnn-wheels": cuda.cudnn_wheels,
    "cudnn-version": cuda.cudnn_version,
    "documented-cuda": cuda.documented_cuda,
    "driver": devices.driver,
    "require-cuda": devices.require_cuda,
    "gpu": devices.gpus,
    "package-known": compiled_packages.known,
    "package-python": compiled_packages.installs,
    "package-torch": compiled_packages.torch_abi,
    "package-cuda": compiled_packages.cuda,
    "package-gpu": compiled_packages.gpus,
    "package-numpy": packages.package_numpy,
    "same-files": same_files.same_files,
    "links": _links,
    "imports": _imports,
    "known-bad": packages.known_bad,
    "numpy": packages.numpy,
    "pins": packages.pins,
    "kernels": devices.kernels,
    "suites": packages.suites,
    "last-lock": system.last_lock,
}
"""By their ids, which ``docs/compatibility.md`` explains; in the order in which a person would look: what is
asked for, then what is under it, then the machine."""
_OF_CUDA = {
    "cuda-libraries",
    "elf-needs",
    "cuda-version",
    "cudnn-copies",
    "cudnn-version",
    "driver",
    "gpu",
    "kernels",
    "package-cuda",
    "package-gpu",
}
"""Rules that ask nothing of an image without CUDA."""

OF_MACHINE = ("driver", "gpu", "package-gpu")
"""Rules that ask whether a machine runs a release at all, on whichever Python and base."""
OF_SET = (
    "package-torch",
    "package-numpy",
    "same-files",
    "links",
    "imports",
    "known-bad",
    "numpy",
)
"""Rules that judge wheels by one another, and so know more of a set that was resolved than of a cell."""
BROKEN_SET = "the wheels that were resolved cannot work together"
"""How :func:`broken_set` begins."""


def broken_set(finding: Finding) -> str:
    """The refusal of a set that was resolved, by what one of these rules finds."""
    return f"{BROKEN_SET} ({finding.rule}: {finding.message})"


def _findings(stack: Stack) -> Iterator[Finding]:
    """The findings of every rule, each made when it is asked for."""
    without = stack.cell.cuda.provider == "none"
    for name, rule in RULES.items():
        if not (without and name in _OF_CUDA):
            yield from (replace(finding, rule=name) for finding in rule(stack))


def check(
    cell: Cell,
    truth: Truth | None = None,
    *,
    driver: str | None = None,
    suggest: bool = True,
    only: Collection[str] = (),
) -> tuple[Finding, ...]:
    """All findings on a cell, in the order of the rules; :meth:`Outcome.of` gives the cell's.

    ``truth`` is what was read from wheels and the base image; without it the tables alone decide.
    ``driver`` is the driver of the machine that is to run the image, ``535`` or ``535.104.05``.
    With ``suggest``, a finding that refuses carries the nearest possible cell, if there is one; and what
    ``rtbuild lock`` keeps its resolver from by a bound is a reservation that names the bound.
    ``only`` these rules are asked, and nothing is suggested: a cell of which the others are known.
    """
    stack = stack_of(cell, truth, driver)
    if only:
        return tuple(replace(finding, rule=name) for name in only for finding in RULES[name](stack))
    found = [*_findings(stack), *stack.disagreements]
    if suggest and not stack.truth.locked:
        found = [*_kept_by_lock(stack, found, driver)]
    refusing = {finding.rule for finding in found if finding.outcome is Outcome.IMPOSSIBLE}
    if not suggest or refusing <= {"links", "imports"}:
        return tuple(found)  # what the files of a lock lack, no other cell is known to have
    near = _way_out(replace(cell, id="", matrix="", variant=None, span=None), driver, _kept(stack))
    if near is None:
        return tuple(found)
    near = replace(near, cell=replace(near.cell, id=cell.id, matrix=cell.matrix))
    return tuple(replace(f, nearest=near) if f.outcome is Outcome.IMPOSSIBLE else f for f in found)


def _kept_by_lock(stack: Stack, found: Sequence[Finding], driver: str | None) -> Iterator[Finding]:
    """The findings, of which one that a bound averts which a lock adds is a reservation."""
    refused = {one.message for one in found if one.outcome is Outcome.IMPOSSIBLE}
    cell = replace(stack.cell, id="", matrix="", variant=None, span=None)
    for one in found:
        bounds = free_bounds(cell, one) if one.message in refused else ()
        left = ((text, _refusals(bounded, driver, stack.truth)) for text, bounded in bounds)
        averts = (text for text, others in left if others <= refused - {one.message})
        text = next(averts, None)
        told = f"{one.message}; `rtbuild lock` resolves with {text}"
        yield one if text is None else replace(one, outcome=Outcome.WARNS, message=told)


@functools.lru_cache(maxsize=4096)
def _refusals(cell: Cell, driver: str | None, truth: Truth) -> frozenset[str]:
    """What refuses a cell; of cells that differ in their name only it is asked once."""
    found = _findings(stack_of(cell, truth, driver))
    return frozenset(one.message for one in found if one.outcome is Outcome.IMPOSSIBLE)


def _kept(stack: Stack) -> Truth:
    """The facts that hold for other cells, too: of the frameworks' wheels, and of a base that is gone."""
    of_it = names_of(framework.requirement for framework in stack.frameworks)
    wheels = tuple(wheel for wheel in stack.truth.wheels if wheel.name in of_it)
    base = stack.truth.base
    gone = base if base is not None and not base.exists else None
    return Truth(wheels=wheels, base=gone, absent=stack.truth.absent)


def _release(text: str) -> tuple[str, frozenset[str], Version | str]:
    """A requirement's package, extras and versions, however they are spelled."""
    parsed = requirement(text)
    if parsed is None:
        return text, frozenset(), ""
    try:
        versions: Version | str = release(pinned(parsed) or "")
    except ValueError:
        versions = str(parsed.specifier)
    return canonical(parsed.name), frozenset(map(canonical, parsed.extras)), versions


def _is_absent(other: Cell, cell: Cell, absent: Collection[str]) -> bool:
    """Whether a cell asks for what the same indexes answered not to have, itself or by the same extras."""
    if not absent or other.index != cell.index:
        return False
    mine, its = ([_release(text) for text in framework_texts(one)] for one in (cell, other))
    gone = {(name, versions) for name, _, versions in map(_release, absent)}
    return mine == its or any((name, versions) in gone for name, _, versions in its)


@functools.lru_cache(maxsize=4096)
def _way_out(cell: Cell, driver: str | None, kept: Truth) -> Nearest | None:
    """Cells that differ in their name only have the same way out; a matrix has many such."""
    # with all candidates: few runs have a cell that is refused
    from builder.plan.facts.rules.alternatives import nearest_cell

    def judge(other: Cell) -> Outcome:
        base_is_gone = kept.base is not None and other.base == cell.base
        if other == cell or base_is_gone or _is_absent(other, cell, kept.absent):
            return Outcome.IMPOSSIBLE
        same = (framework_texts(other), other.python, other.platform, other.index) == (
            framework_texts(cell),
            cell.python,
            cell.platform,
            cell.index,
        )
        return _judge(other, driver, kept.wheels if same else ())

    return nearest_cell(stack_of(cell, driver=driver), judge)


@functools.lru_cache(maxsize=16384)
def _judge(cell: Cell, driver: str | None, wheels: tuple[WheelTruth, ...]) -> Outcome:
    """The outcome of a way out by the tables, and by what was read of the same wheels."""
    return Outcome.of(_until_refused(stack_of(cell, Truth(wheels=wheels), driver)))


def cuda_of(cell: Cell) -> str | None:
    """The CUDA that a cell's frameworks find by the tables, as in ``12.8``; its major alone if a range of
    wheels leaves the rest to a lock, and None if nothing is known.
    """
    stack = stack_of(cell, Truth())
    found = stack.cuda or next((one.cuda for one in stack.frameworks if one.cuda is not None), None)
    ranged = stack.wheel_cuda is not None and stack.wheel_cuda.ranged and found == stack.wheel_cuda.version
    return short(found.text, 1 if ranged else 2) if found is not None else None


def glibc_for(cell: Cell) -> str | None:
    """The oldest glibc on which a cell's frameworks have wheels by the tables; None if nothing is known."""
    frameworks = stack_of(cell, Truth()).frameworks
    needed = [needs.text for one in frameworks if (needs := system.needed_glibc(one, cell.platform))]
    return max(needed, key=key, default=None)


def check_candidate(cell: Cell, driver: str | None, *, companions: bool) -> tuple[Cell, tuple[Finding, ...]]:
    """A proposed cell with the findings by the tables, up to the first that refuses it or does not know.

    With ``companions``, packages beside the frameworks, it is another cell: of packages that no requirement
    bounds, an older release is taken if the newest one refuses its PyTorch; the releases are pinned that were
    judged, if it is possible. Where a lock is all that it takes to know (:func:`left_to_lock`), all findings
    are there.
    """
    stack = stack_of(cell, Truth.of_offer(cell), driver)
    found = _until_refused(stack)
    if companions and not Outcome.of(found).is_possible and (other := _with_fitting_releases(stack)) != cell:
        fitting = stack_of(other, Truth.of_offer(other), driver)
        instead = _until_refused(fitting)
        if Outcome.of(instead).severity < Outcome.of(found).severity:
            stack, found = fitting, instead
    if companions and left_to_lock(found[-1:]) and left_to_lock(whole := tuple(_findings(stack))):
        found = whole
    if companions and (Outcome.of(found).is_possible or left_to_lock(found)):
        # pins choose the packages below them: opencv-python-headless by what the pinned vllm asks for
        cell = settled(stack.cell, stack.beside)
        pinned_ = stack_of(cell, Truth.of_offer(cell), driver)
        return cell, tuple(_findings(pinned_)) if left_to_lock(found) else _until_refused(pinned_)
    return stack.cell, found


def left_to_lock(findings: Sequence[Finding]) -> bool:
    """Whether nothing is refused, and all that is not known are the libraries of a package beside a framework
    whose build lies on an index that nobody reads before a lock: torchcodec on PyTorch's own.
    """
    open_ = [one for one in findings if not one.outcome.is_possible]
    return bool(open_) and all(one.outcome is Outcome.UNKNOWN and one.rule == "package-cuda" for one in open_)


def _until_refused(stack: Stack) -> tuple[Finding, ...]:
    """A search refuses thousands, and shows why for a few of them at most."""
    found: list[Finding] = []
    for finding in _findings(stack):
        found.append(finding)
        if not finding.outcome.is_possible:
            break
    return tuple(found)


def _with_fitting_releases(stack: Stack) -> Cell:
    """The cell, with the newest releases that its PyTorch has nothing against of those packages that no
    requirement bounds: torchaudio 2.11 asks for no PyTorch, so a resolver takes it beside any.
    """
    torch = compiled_packages.torch_of(stack)
    if torch is None:
        return stack.cell
    versions = {
        one.name: row.version
        for one in stack.beside
        if one.chosen
        and (row := compiled_packages.release_for(stack, one, torch)) is not None
        and all(contains(asked.specifier, row.version) for _, asked in one.wanted)
    }
    return with_releases(stack.cell, versions)
