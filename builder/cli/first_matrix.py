"""Questions of several commands to :mod:`builder.plan.resolve`, the matrix of the best cell that it finds,
and the lines of its answer, which text and document of ``rtbuild resolve`` both have.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from builder.cli import options as opt
from builder.cli.console import Terminal, counted, human_bytes, say
from builder.cli.walking import noted
from builder.core import resources
from builder.core.errors import NothingPossibleError, UsageError
from builder.core.files import write_whole
from builder.core.model import Base, Cell
from builder.core.versions import key, names_of, pinned, release, short
from builder.image.engine import nvidia_smi
from builder.plan.facts.rules import MachineDrivers, Outcome, by_compat, cuda_of, glibc_for, machines_told
from builder.plan.facts.tables import load, to_type
from builder.plan.lock import (
    LOADER_FOLDERS,
    Device,
    after,
    pip_install,
    pip_line,
    python_lines,
    smoke_statements,
)
from builder.plan.resolve import (
    TYPED,
    AskedMachine,
    Proposal,
    ProposedMatrix,
    Wishes,
    build_variables,
    from_arguments,
    from_conda,
    from_file,
    from_notebook,
    from_pylock,
    from_pyproject,
    line_of_itself,
    needs_standalone,
    pages_of,
    propose,
    to_matrix_yaml,
    with_variables,
)
from builder.sources.index import MACHINES, Index, host_platform

_OTHER_BASES = 10
"""Proposals among which one with another base is looked for."""


def asked_machine(gpus: Sequence[str], driver: str | None, platform: str | None = None) -> AskedMachine:
    """The machine that is asked about; this one, if neither cards nor a driver are named and it has cards.

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
    return AskedMachine(gpus=tuple(dict.fromkeys(map(opt.card, gpus))), driver=driver, platform=platform)


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
    single = (
        (from_pyproject, pyproject),
        (from_pylock, pylock),
        (from_notebook, notebook),
        (from_conda, environment),
    )
    others = [*map(from_file, files), *(read(path) for read, path in single if path is not None)]
    for other in others:
        found.take_over(other)
    if not found.wishes:
        raise UsageError(
            "\n".join(("no framework is named", *(f"  {note}" for note in found.notes))),
            hint="a repository is cloned first, and its folder is read: `rtbuild resolve -r FOLDER`"
            if any("://" in text for text in arguments)
            else "as in `rtbuild resolve torch`; or -r, --pyproject, --from-pylock, --notebook, --conda",
        )
    return found.merged()


@dataclass(frozen=True, kw_only=True)
class MatrixWish:
    """The contents of a first matrix."""

    words: tuple[str, ...]
    """Requirements: ``torch``, ``tensorflow==2.15.*``."""
    python: str | None = None
    gpu: str | None = None
    driver: str | None = None
    platform: str | None = None
    """None for that of the card, else of this machine if the card is its own."""
    jupyter: bool = False
    offline: bool = False
    name: str | None = None
    rootfs: bool = False
    """A base that needs no registry, if there is one."""

    @property
    def title(self) -> str:
        """The matrix's name: the one given, or that of the first framework."""
        if self.name:
            return self.name.lower()
        found = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.words[0])
        if found is None:
            raise UsageError(f"'{self.words[0]}' is no requirement", hint="as in `rtbuild init torch`")
        return found[0].lower()


def matrix_text(wish: MatrixWish, lacks: Callable[[Base], str | None] | None = None) -> str:
    """One cell, the best proposal of ``rtbuild resolve``. Raises as :func:`wishes` and :func:`propose`.

    ``lacks`` says why this machine cannot have a base: the first cell whose base it can have is then taken,
    and the others are told.
    """
    found = _found(wish, limit=1)
    taken = found.proposals[0]
    text, refused = found.text, lacks(taken.cell.base) if lacks is not None else None
    if lacks is not None and refused is not None:
        others = _found(wish, limit=_OTHER_BASES).proposals
        other = next((one for one in others if lacks(one.cell.base) is None), None)
        said = f"{taken.cell.base} cannot be had here: {refused}"
        if other is None:
            say(f"! {said}; nor can another base")
        else:
            taken, text = other, to_matrix_yaml([other], wish.title)
            cell = other.cell
            say(f"! {said}; {', '.join(cell.frameworks)} on Python {cell.python} and {cell.base} instead")
    defaults = "\ndefaults: {profile: colab}\n" if wish.jupyter else ""
    return _download(taken) + text.replace("\ninclude:\n", f"{defaults}\ninclude:\n", 1)


def _download(taken: Proposal) -> str:
    """A comment on how much is downloaded for a cell."""
    if taken.unasked is not None:
        return f"# how much is to be downloaded is not known: {taken.unasked}\n"
    size = "of a size that is not known" if taken.size is None else human_bytes(taken.size)
    base = "the base" if taken.cell.base.kind == "registry" else "Debian's packages"
    return f"# to be downloaded: {taken.wheels} wheels, {size}; and {base}\n"


def _found(wish: MatrixWish, *, limit: int) -> ProposedMatrix:
    try:
        with noted(Terminal.of(), wish.title) as note:
            return propose(
                wishes(wish.words),
                asked_machine([wish.gpu] if wish.gpu else [], opt.driver(wish.driver), wish.platform),
                python=wish.python,
                limit=limit,
                name=wish.title,
                index=None if wish.offline else Index.from_user(once=True),
                rootfs=wish.rootfs,
                note=note,
            )
    except NothingPossibleError as none:
        if none.hint is not None and none.hint.startswith("--nearest"):  # an option of resolve alone
            given = {"--python": wish.python, "--gpu": wish.gpu, "--driver": wish.driver}
            options = [word for name, value in given.items() if value for word in (name, value)]
            words = ["rtbuild", "resolve", *wish.words, *options, "--nearest", "-o", f"{wish.title}.yaml"]
            none.hint = f"`{shlex.join(words)}` takes these, and writes the matrix"
        raise


def write_matrix(text: str, path: Path) -> None:
    """Write it with the line by which editors find its schema. UsageError if it cannot be written."""
    name = where = "matrix.schema.json"
    if (path.parent.parent / "docs" / name).is_file():
        where = f"../docs/{name}"
    with opt.writing(path):
        if where == name:
            write_whole(path.parent / name, (resources.schemas() / name).read_bytes())
        write_whole(path, f"# yaml-language-server: $schema={where}\n{text}".encode())
    say(f"{path} is written")


# -- what `resolve` answers

_BESIDE = 2
"""Packages beside the frameworks that are named with them; the matrix has all."""
_OLDEST_OF_UV = "3.8"
"""The oldest Python that uv installs: https://docs.astral.sh/uv/reference/policies/platforms/"""
_EVERYWHERE = "2.17"
"""The glibc of manylinux2014 (PEP 599): not worth a word, systems since 2014 have it."""
_SOURCES = re.compile(r" \[(?:wheel|registry|table|cell): [^\[\]]*\]$")
"""The sources at the end of a note, as :class:`Source` writes them."""


@dataclass(frozen=True, kw_only=True)
class AnswerLine:
    """One line of an answer, and what it is about."""

    kind: str
    """``answer``, ``pip`` (its line for pip), ``newer`` (that of a newer release), ``by-hand`` (what pip
    installs after it), ``python`` (how to have it), ``check`` (what is typed to try it), ``detail`` (of the
    line above), ``changed``, ``added``, ``last`` (the newest release, and why no newer one), ``note``,
    ``origin``, ``proposal`` or ``reason``.
    """
    text: str
    command: str = ""
    """What is typed, where the line has it."""
    about: str = ""
    """The kind of a note."""

    def as_json(self) -> dict[str, str]:
        """The line without what is empty, for ``rtbuild resolve --json``."""
        every = {"kind": self.kind, "about": self.about, "text": self.text, "command": self.command}
        return {name: text for name, text in every.items() if text}


def answer_lines(
    found: ProposedMatrix, *, own: bool = False, newer: Sequence[str] = (), verbose: bool = False
) -> Iterator[AnswerLine]:
    """The answer, a line each: the first cell, its line for pip, what moved for it, why no newer release is
    it, the notes, and how each cell was judged, of which what two have in common is said once. ``own``: for
    this machine; ``newer``: other drivers that it was asked for; ``verbose``: with sources, and all of each
    cell.
    """
    demand, first = found.demand, found.proposals[0]
    cell = first.cell
    driver = [f"driver {' and '.join((demand.driver, *newer))}"] if demand.driver is not None else []
    cards = [*map(to_type, demand.gpus), *driver]
    if isinstance(demand.driver, MachineDrivers):
        cards = [machines_told(demand.gpus, demand.driver)]
    for_python = [f"Python {demand.python}"] if demand.python is not None else []
    cuda = cuda_of(cell) if cell.cuda.provider != "none" else None
    brings = f" with CUDA {cuda}" if cuda is not None else ""
    on = f", for {', '.join(cards)}" if cards else ""
    whose = ", of this machine (others: --gpu, --driver)" if own and driver else ""
    open_ = [one.message for one in first.findings if one.outcome is Outcome.UNKNOWN]
    why = "".join(f"; {text}" for text in (*_proven(first)[: first.unasked is not None], *open_[:1]))
    left = sum(change.by_hand is not None for change in found.changes)
    then = f", and {counted(left, 'package')} to compile by hand after the others" * (left > 0)
    names = f"{packages_of(cell)} on Python {cell.python}{brings}{then}"
    yield AnswerLine(kind="answer", text=f"{_answer(first)}: {names}{on}{whose}{why}")
    yield from _of_pip(found)
    own_notes = [note for note in found.notes if note.kind == "system"]
    for note in own_notes:  # what is typed, and what has to be there, before the reasons
        text = f"  {without_sources(note.text, verbose=verbose)}"
        yield AnswerLine(kind="note", text=text, about=note.kind)
    if by_compat(first.findings) is None:
        yield from check_lines((*cell.frameworks, *cell.pip), "cuda" if cuda is not None else "cpu")
    for change in found.changes:
        yield AnswerLine(kind="changed", text=f"changed: {change}")
    for text in first.added:
        yield AnswerLine(kind="added", text=f"added: {text}")
    for last in found.last:
        for line in last.lines(", ".join((*cards, *for_python))):
            yield AnswerLine(kind="last", text=f"note: {without_sources(line, verbose=verbose)}")
    for note in (one for one in found.notes if one not in own_notes):
        text = f"note: {without_sources(note.text, verbose=verbose)}"
        yield AnswerLine(kind="note", text=text, about=note.kind)
    yield from _of_reasons(found, verbose=verbose)


def check_lines(requirements: Iterable[str], device: Device, spaces: int = 2) -> Iterator[AnswerLine]:
    """How to try what was installed: a line for each package that has one."""
    for line in python_lines(smoke_statements(requirements, device)):
        yield AnswerLine(kind="check", text=f"{' ' * spaces}to check it: {line}", command=line)


def _of_pip(found: ProposedMatrix) -> Iterator[AnswerLine]:
    """The first cell's line for pip, the conditions of it, and that of the newest release; or the reason that
    there is none.
    """
    first = found.proposals[0]
    cell = first.cell
    glibc = glibc_for(cell)
    where, pages = f"on Python {cell.python}", _pages(found)
    if glibc is not None and key(glibc) > key(_EVERYWHERE):
        where += f" and a system with glibc {glibc} or later"
    compat = by_compat(first.findings) is not None
    if cell.cuda.provider == "base" and (by_pip := pip_line(cell, system=True, pages=pages)) is not None:
        yield AnswerLine(kind="pip", text=f"  by pip, {where}: {by_pip}", command=by_pip)
        yield _detail(f"where the system has CUDA and cuDNN, as {cell.base} has: pip brings neither here")
    if not compat and (by_pip := pip_line(cell, pages=pages)) is not None:
        by_pip += _wheels_alone(found)
        text = f"  by pip{' alone' * (not first.sources)}, {where}: {by_pip}"
        yield AnswerLine(kind="pip", text=text, command=by_pip)
        if first.sources:
            compiled = {name for name, _ in cell.compiled} | {row.name for row in load().builds}
            names = [text.partition(":")[0] for text in first.sources]
            hard = ", ".join(one for one in names if one.partition(" ")[0] in compiled)
            pure = ", ".join(one for one in names if one.partition(" ")[0] not in compiled)
            if hard:
                needs = f"a compiler and the headers of Python {cell.python}"
                yield _detail(f"{hard}: pip compiles it from its sources, which takes {needs}")
            if pure:
                yield _detail(f"{pure}: pip builds it from its sources, without a compiler")
        if first.unasked is not None and first.wheels is None and cell.pip:
            yield _detail("which of these have a wheel was not asked; pip compiles the others")
        if late := after(cell):
            text = "after their framework, which their builds import; without a wheel that fits they are"
            yield _detail(f"{', '.join(late)}: {text} compiled, with the nvcc of its CUDA")
        if cell.cuda.packages:
            yield _detail(f"{LOADER_FOLDERS} then, which an image and `rtbuild venv` set")
        newest = max((one.cell for one in found.proposals), key=_release)
        line = pip_line(newest) if _release(newest) > _release(cell) else None
        if line is not None and not any(line in note.text for note in found.notes):
            text = f"  a newer one by pip alone, on Python {newest.python}: {line}"
            yield AnswerLine(kind="newer", text=text, command=line)
    if compat:
        yield _detail("no line for pip alone: on this driver it takes the cuda-compat of the image", 2)
        yield from (_detail(text) for text in _without_image(first))
    yield from _of_hand(found, pages)


def _without_image(first: Proposal) -> Iterator[str]:
    """How to have the package cuda-compat without the image, which takes no root: its files in a folder."""
    found = by_compat(first.findings)
    for value in found.values if found is not None else ():
        if package := re.fullmatch(r"cuda-compat-(\d+)-(\d+)", value.what):
            folder = f"usr/local/cuda-{package[1]}.{package[2]}/compat"
            yield (
                f"without it, on a data-centre card: `apt-get download {value.what} && dpkg -x "
                f"{value.what}_*.deb compat` from NVIDIA's repository, $PWD/compat/{folder} first in "
                "LD_LIBRARY_PATH, and then pip's line (https://docs.nvidia.com/deploy/cuda-compatibility/)"
            )


def _wheels_alone(found: ProposedMatrix) -> str:
    """pip's option for the system of an older glibc: a newer release without a wheel for it would else be
    compiled.
    """
    first = found.proposals[0]
    solved = found.demand.glibc is not None and first.unasked is None
    return " --only-binary=:all:" * (solved and not first.sources and not after(first.cell))


def _detail(text: str, spaces: int = 4) -> AnswerLine:
    return AnswerLine(kind="detail", text=" " * spaces + text)


def _of_hand(found: ProposedMatrix, pages: Sequence[str]) -> Iterator[AnswerLine]:
    """What pip installs after the first cell's line, and how to have its Python."""
    cell = found.proposals[0].cell
    left = [change.by_hand for change in found.changes if change.by_hand is not None]
    itself, by_hand = found.asked.itself, [*left, *found.asked.by_hand]
    compiled = found.asked.compiles_itself
    if by_hand or itself:
        tools = sorted({"setuptools", "wheel"} - names_of(cell.pip)) if by_hand or compiled else []
        lines = [pip_install(tools, ())] if tools else []
        pages = list(dict.fromkeys((*pages_of(left, cell), *pages)))
        if by_hand:
            lines.append(pip_install(("--no-build-isolation", *by_hand), (), pages if left else ()))
        if itself:
            lines.append(line_of_itself(found.asked))
        before = build_variables(found.asked, cell, found.demand)
        command = " && ".join(with_variables(lines, before))
        yield AnswerLine(kind="by-hand", text=f"  then, by hand: {command}", command=command)
        after_torch = {row.name for row in load().builds if row.against}
        late = [text for text in left if names_of([text]) & after_torch]
        if late and (cuda := cuda_of(cell)) is not None:
            yield _detail(f"{', '.join(late)}: compiled by nvcc of CUDA {short(cuda, 2)}")
    if any(wish.place != TYPED for wish in found.asked.wishes):
        old = key(cell.python) < key(_OLDEST_OF_UV)
        way = (
            f"conda create -n NAME python={cell.python}" if old else f"uv venv --seed --python {cell.python}"
        )
        text = f"  Python {cell.python}, where the system has another: `{way}`"
        yield AnswerLine(kind="python", text=text, command=way)


def _release(cell: Cell) -> Version:
    """The release of a cell's first framework, without its build."""
    return release((pinned(Requirement(cell.frameworks[0])) or "0").partition("+")[0])


def _pages(found: ProposedMatrix) -> list[str]:
    """The project's pages of wheels; of such as are for one CUDA those of the first cell's."""
    cell = found.proposals[0].cell
    builds = {(pinned(Requirement(text)) or "").partition("+")[2] for text in cell.frameworks} - {""}
    builds = builds or {f"cu{short(cuda_of(cell) or '0', 2).replace('.', '')}"}
    told = ((url, re.findall(r"(?:\b|_)cu\d{2,3}\b", url)) for url in found.asked.pages)
    return [url for url, named in told if not named or not builds.isdisjoint(named)]


def _of_reasons(found: ProposedMatrix, *, verbose: bool) -> Iterator[AnswerLine]:
    """Where the versions are from, and how each cell was judged."""
    for wish in found.demand.frameworks:
        origin, why = found.origin(wish)
        beside = "" if wish.place == TYPED else f" ({wish.place})"
        if verbose or origin != "index":
            yield AnswerLine(kind="origin", text=f"{wish}{beside}: versions from the {origin}: {why}")
    said = dict.fromkeys(_proven(found.proposals[0])[: found.proposals[0].unasked is not None], 1)
    for number, one in enumerate(found.proposals, 1):
        cell = one.cell
        python = f"Python {cell.python}{' (standalone)' * needs_standalone(cell)}"
        parts = ", ".join((packages_of(cell), python, str(cell.base), *({cell.platform} - {"linux/amd64"})))
        proof = _proven(one)
        reasons = [f"from sources: {reason}" for reason in one.sources]
        reasons += [
            f"{finding.rule}: {finding.message}"
            for finding in one.findings
            if finding.outcome in {Outcome.WARNS, Outcome.UNKNOWN}
        ]
        again = {said[text] for text in (*proof, *reasons) if text in said and not verbose} - {number}
        shown = [text for text in proof if verbose or text not in said]
        same = [f"{'else ' * bool(shown)}as {' and '.join(map(str, sorted(again)))}"] if again else []
        text = f"{number}. {parts}: {'; '.join((_answer(one), *shown, *same))}"
        yield AnswerLine(kind="proposal", text=text)
        for text in reasons:
            if verbose or text not in said:
                yield AnswerLine(kind="reason", text=f"   {text}")
        said = {**dict.fromkeys((*proof, *reasons), number), **said}


def _answer(one: Proposal) -> str:
    """``possible``, with the word that a finding below limits it."""
    return f"{one.outcome.answer}, with a reservation" if one.outcome is Outcome.WARNS else one.outcome.answer


def packages_of(cell: Cell) -> str:
    """``torch==2.10.0, vllm==0.19.1``: the frameworks, and the first packages beside them."""
    more = len(cell.pip) - _BESIDE
    named = ", ".join((*cell.frameworks, *cell.pip[:_BESIDE]))
    return f"{named} and {counted(more, 'more package')}" if more > 0 else named


def without_sources(note: str, *, verbose: bool = False) -> str:
    """A note; with the sources of its facts if ``verbose``."""
    return note if verbose else _SOURCES.sub("", note)


def _proven(one: Proposal) -> list[str]:
    """The wheels of a cell, and what was asked of them."""
    if one.unasked is not None:
        what = " about the framework" * (one.wheels is not None)
        return [f"the resolver was not asked{what}: {one.unasked}"]
    size = f", {human_bytes(one.size)}" if one.size is not None else ""
    wheels = f"the resolver finds {counted(one.wheels or 0, 'wheel')} for it{size}"
    if one.unproven is not None:
        return [wheels, f"whether they load and import was not asked: {one.unproven}; `rtbuild lock` asks"]
    asks = (
        "`rtbuild lock` reads them" if one.cell.base.kind == "rootfs" else "nobody reads those of this base"
    )
    refused_none = f"{wheels}, and nothing in their files speaks against it"
    return [refused_none, f"the system's packages were not read: {asks}"]
