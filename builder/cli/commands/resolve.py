"""``rtbuild resolve`` and ``rtbuild init``: from requirements to a matrix of cells that are possible."""

import itertools
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import typer
from packaging.requirements import Requirement
from packaging.version import Version

from builder.cli import options as opt
from builder.cli.console import Progress, Terminal, counted, human_bytes, print_json, say, show
from builder.cli.first_matrix import MatrixWish, asked_machine, matrix_text, wishes, write_matrix
from builder.cli.walking import noted
from builder.core.errors import NothingPossibleError, NotKnownError, UsageError
from builder.core.files import write_whole
from builder.core.model import Cell
from builder.core.versions import key, names_of, pinned, release, short
from builder.plan.facts.reading import Truth
from builder.plan.facts.rules import Outcome, by_compat, check, cuda_of, glibc_for, platform_of
from builder.plan.facts.tables import load, to_type
from builder.plan.lock import LOADER_FOLDERS, after, pip_install, pip_line
from builder.plan.resolve import (
    TYPED,
    AskedMachine,
    AskedSystem,
    Proposal,
    ProposedMatrix,
    Wishes,
    asked_system,
    needs_standalone,
    of_jetson,
    propose,
    system_in,
    windows_lines,
    without_cuda,
)
from builder.sources.index import Index

_BESIDE = 2
"""Packages beside the frameworks that are named with them; the matrix has all."""
_OLDEST_OF_UV = "3.8"
"""The oldest Python that uv installs: https://docs.astral.sh/uv/reference/policies/platforms/"""
_EVERYWHERE = "2.17"
"""The glibc of manylinux2014 (PEP 599): not worth a word, systems since 2014 have it."""
_SOURCES = re.compile(r" \[(?:wheel|registry|table|cell): [^\[\]]*\]$")
"""The sources at the end of a note, as :class:`Source` writes them."""


def resolve(
    requirements: list[str] | None = opt.of(
        "REQUIREMENT: Frameworks, and packages beside them: torch, 'tensorflow==2.15.*' numpy."
    ),
    requirement_file: list[Path] | None = opt.of(
        "--requirement, -r FILE: A project's folder, 'FOLDER[EXTRA]', or any file of it: requirements.txt, "
        "pyproject.toml, setup.py (read, never run), Pipfile, environment.yml, Dockerfile, notebook, lock; "
        "may be repeated."
    ),
    pyproject: Path | None = opt.of(
        "--pyproject FILE: The dependencies of a pyproject.toml, whatever its name."
    ),
    pylock: Path | None = opt.of("--from-pylock FILE: The packages of a pylock.toml, each at its version."),
    notebook: Path | None = opt.of(
        "--notebook FILE: The `!pip install` lines of a notebook, and what its code imports of these."
    ),
    conda_: Path | None = opt.of(
        "--conda FILE: A conda environment, taken as the wheels that it stands for: environment.yml, "
        "`conda list --export`."
    ),
    python: str | None = opt.of("--python: These Pythons only: 3.11, or '>=3.9,<3.12'."),
    gpu: list[str] | None = opt.of(
        "--gpu: A GPU that images must run on, as nvidia-smi names it or by compute capability: T4, "
        "'NVIDIA GeForce RTX 4090', 7.5; a cloud's instance: g4dn.xlarge; none: builds for the CPU; may be "
        "repeated. By default this machine's own."
    ),
    driver: list[str] | None = opt.DRIVERS,
    platform: str | None = opt.of(
        "--platform: The processor that images are for, linux/amd64 or linux/arm64. By default that of the "
        "cards: linux/arm64 for GH200, GB10, Orin."
    ),
    system: str | None = opt.of(
        "--system: Where pip installs, if not on a current Linux: windows, wsl, macos, jetson, "
        "'JetPack 6.2', centos7, 'glibc 2.17'. Images are for Linux, and the matrix with them."
    ),
    limit: int = opt.of("--limit: How many proposals at most.", 5, min=1, max=1000),
    name: str | None = opt.of("--name: The matrix's name; by default that of the file, or resolved."),
    output: Path | None = opt.of("--output, -o FILE: Write the matrix there; without, a pipe gets it."),
    force: bool = opt.of("--force: Replace FILE of --output.", False),
    take_nearest: bool = opt.of(
        "--nearest: If nothing fits, take the nearest requirements that do, and say which.", False
    ),
    as_of: str | None = opt.of(
        "--as-of DATE: The time that the project is of: 2021-06, or today for the newest releases. By "
        "default what it pins tells: unbounded packages, and Python, are taken of that time."
    ),
    offline: bool = opt.of("--offline: Ask no package index: the tables alone, without the resolver.", False),
    progress: Progress = opt.PROGRESS,
    json_: bool = opt.JSON,
    verbose: int = opt.VERBOSE,
) -> int:
    """Print a matrix of the cells; errors as of :func:`propose`, with ``--json`` as a document, too."""
    if output is not None and not force:
        opt.refuse_existing(output)
    gpu = [part for text in gpu or () for part in re.split(r"\s*,\s*", text) if part]
    gpu, on_system = _systems(gpu, system)
    if output is not None and (gpu == ["none"] or on_system.kind not in {"linux", "wsl"}):
        said = (
            f"no matrix is written for {'no card' if gpu == ['none'] else on_system.kind}: --output {output}"
        )
        raise UsageError(
            said, hint="without -o, pip's lines are printed; an image without a card: `cuda: none`"
        )
    title = name or (_matrix_name(output) if output is not None else "resolved")
    options = [
        word
        for name, values in _given(gpu, driver or (), python, platform, system)
        for word in (name, values)
    ]
    read = list[Wishes]()
    opt.refuse_machine(
        () if gpu == ["none"] else gpu,
        None,
        partial(opt.drivers, driver),
        lambda: read.append(
            _read(options, requirements, requirement_file, pyproject, notebook, conda_, pylock)
        ),
    )
    (asked,) = read
    drivers = opt.drivers(driver)
    index = None if offline else Index.from_user(once=True)
    on = _asked(gpu, drivers, platform, on_system)
    try:
        lines = _elsewhere(asked, on_system, gpu, python, index)
        if lines is not None:
            unread = any("releases there are was not read" in text for text in lines)
            answer: Literal["possible", "unknown"] = "unknown" if unread else "possible"
            return _say_lines(lines, on_system, answer=answer, json_=json_)
        with noted(Terminal.of(progress), title) as note:
            found = propose(
                asked,
                on,
                python=python,
                limit=limit,
                name=title,
                index=index,
                take_nearest=take_nearest,
                date=as_of,
                files=requirement_file or (),
                note=note,
            )
            _refuse_newer(found, drivers[1:])
    except NothingPossibleError as none:
        if json_:
            print_json(_refusal(none, asked, on))
        raise
    if on_system.kind in {"windows", "wsl"}:
        found.asked.notes.insert(0, _IN_WSL)
    if on_system.kind == "windows":
        return _say_lines([*_on_windows(found)], on_system, answer="unknown", json_=json_)
    if output is not None:
        with opt.writing(output):
            write_whole(output, found.text.encode())
    if json_:
        print_json(document(found))
    else:
        say_answer(found, own=not gpu and not driver, newer=drivers[1:], verbose=bool(verbose))
        say_reasons(found, verbose=bool(verbose))
        if output is None and not sys.stdout.isatty():
            show(found.text.removesuffix("\n"))
    file = output or Path("matrices") / f"{_title(found)}.yaml"
    written = f"{file} is written; next:" if output is not None else f"next: with `-o {file}`,"
    say(f"{written} rtbuild build {shlex.quote(str(file))}")
    return 0


_KINDS = {"wsl": "linux"}
"""The system whose wheels another one takes."""
_IN_WSL = (
    "in WSL 2 the driver is that of Windows: no Linux driver and no CUDA toolkit is installed there "
    "(https://docs.nvidia.com/cuda/wsl-user-guide/)"
)


def _asked(gpu: list[str], drivers: Sequence[str], platform: str | None, system: AskedSystem) -> AskedMachine:
    """The machine that is asked about: this one, if nothing of another is told."""
    cards = [] if gpu == ["none"] else gpu
    if gpu == ["none"] or (system.kind not in {"linux", "wsl"} and not cards and not drivers):
        return AskedMachine(platform=platform, glibc=system.glibc)
    on = asked_machine(cards, drivers[0] if drivers else None, platform)
    return replace(on, glibc=system.glibc, kernel_modules=system.kind not in {"windows", "wsl"})


def _elsewhere(
    asked: Wishes, system: AskedSystem, gpu: list[str], python: str | None, index: Index | None
) -> list[str] | None:
    """The answer without CUDA and where there is none; None where CUDA is asked for. Raises as
    :func:`without_cuda`, and NothingPossibleError for what has no CUDA on the system.
    """
    if system.kind == "jetson":
        raise of_jetson(asked, system.jetpack)
    if gpu == ["none"] or system.kind.startswith("macos"):
        return [*without_cuda(asked, _KINDS.get(system.kind, system.kind), python, index)]
    if system.kind == "windows":
        _refuse_without_cuda(asked, python, index)
    return None


def _systems(gpus: list[str], system: str | None) -> tuple[list[str], AskedSystem]:
    """The cards without the systems behind their names, and the system. UsageError for two, or an unknown."""
    parts = [system_in(text) for text in gpus]
    told = list(dict.fromkeys(one for one in (system, *(name for _, name in parts)) if one))
    if len({asked_system(one) for one in told}) > 1:
        raise UsageError(f"several systems are named: {', '.join(told)}", hint="ask for each by itself")
    return [card for card, _ in parts], asked_system(told[0] if told else "linux")


def _refuse_without_cuda(asked: Wishes, python: str | None, index: Index | None) -> None:
    """NothingPossibleError for a framework that has no build with CUDA for Windows, with the ways that it
    has; NotKnownError for one of which that is not known.
    """
    for wish in asked.wishes:
        if not load().is_framework(wish.name):
            continue
        row = load().elsewhere_systems.get((load().table_name(wish.name), "windows"))
        if row is None:
            text = f"whether {wish} has a build with CUDA for Windows is not known"
            raise NotKnownError(text, hint=f"in WSL 2 that of Linux is taken: {_in_wsl(asked)}")
        if row.cuda == "none":
            lines = [*without_cuda(asked, "windows", python, index)]
            raise NothingPossibleError(
                "\n".join((f"{row.text} [{row.source}]", "on Windows itself, without the card:", *lines)),
                reasons=[row.text],
                hint=f"in WSL 2 that of Linux is taken, and Windows' driver serves: {_in_wsl(asked)} with "
                "the same --gpu and --driver",
            )


def _in_wsl(asked: Wishes) -> str:
    names = shlex.join(str(wish) for wish in asked.wishes)
    return f"`rtbuild resolve {names} --system wsl`"


def _on_windows(found: ProposedMatrix) -> Iterable[str]:
    """The lines for Windows of what was found for Linux; nobody read whether PyTorch's index has them.

    Raises NotKnownError if the lines of no proposal are known.
    """
    terminal_cards = ", ".join(map(to_type, found.demand.gpus))
    told = f", for {terminal_cards}" * bool(terminal_cards)
    told += f", driver {found.demand.driver}" * (found.demand.driver is not None)
    seen = set[tuple[str, ...]]()
    for one in found.proposals:
        lines = windows_lines(one.cell)
        cuda = cuda_of(one.cell)
        if lines is None or tuple(lines) in seen or one.cell.frameworks in seen:
            continue
        first = not seen
        seen |= {tuple(lines), one.cell.frameworks}
        brings = f" with CUDA {cuda}" if cuda is not None else ""
        yield f"{_packages(one.cell)} on Python {one.cell.python}{brings}{told if first else ''}"
        yield from (f"  by pip on Windows: {line}" for line in lines)
    if not seen:
        said = f"which builds of {_packages(found.proposals[0].cell)} Windows takes is not known"
        raise NotKnownError(said, hint=f"in WSL 2 that of Linux is taken: {_in_wsl(found.asked)}")
    yield (
        "  without --index-url pip takes the build for the CPU on Windows; judged by the wheels for "
        "Linux: which of them PyTorch's index has for Windows was not read "
        "(https://pytorch.org/get-started/previous-versions/ lists them)"
    )
    for text in found.asked.notes:
        if text != _IN_WSL and " pip install " not in text and not text.startswith("torch"):
            yield f"note: {_noted(text, verbose=False)}"


def _say_lines(
    lines: list[str], system: AskedSystem, *, answer: Literal["possible", "unknown"], json_: bool
) -> int:
    """Say an answer that has no matrix: pip's lines on another system, or without a card."""
    if json_:
        pip = [text.partition(": ")[2] for text in lines if re.match(r" +(by pip|then)", text)]
        print_json({"schema": 1, "answer": answer, "system": system.kind, "pip": pip, "lines": lines})
    for line in lines:
        say(_noted(line, verbose=False))
    return 0


def _release(cell: Cell) -> Version:
    """The release of a cell's first framework, without its build."""
    return release((pinned(Requirement(cell.frameworks[0])) or "0").partition("+")[0])


def _given(
    gpu: list[str] | None,
    drivers: Iterable[str],
    python: str | None,
    platform: str | None,
    system: str | None,
) -> list[tuple[str, str]]:
    """The options about the machine that were typed, each with its value."""
    one = (
        *(("--driver", text) for text in drivers),
        ("--python", python),
        ("--platform", platform),
        ("--system", system),
    )
    return [*(("--gpu", text) for text in gpu or ()), *((name, value) for name, value in one if value)]


def _read(
    options: list[str],
    requirements: list[str] | None,
    files: list[Path] | None,
    *others: Path | None,
) -> Wishes:
    """The requirements, as :func:`wishes`; commands in the hint of a UsageError keep the ``options``."""
    try:
        return wishes(requirements or (), files or (), *others)
    except UsageError as problem:
        if problem.hint is not None and options:
            kept = f" {shlex.join(options)}`"
            problem.hint = re.sub(r"(`rtbuild resolve [^`]+)`", lambda one: one[1] + kept, problem.hint)
        raise


def _title(found: ProposedMatrix) -> str:
    return found.demand.frameworks[0].name


def _matrix_name(path: Path) -> str:
    """A matrix's name after its file's: what a name may not have becomes a hyphen."""
    return re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-") or "resolved"


def _refuse_newer(found: ProposedMatrix, drivers: Sequence[str]) -> None:
    """NothingPossibleError if the first cell, proposed for the oldest driver, cannot work with one of these:
    later branches serve old cards no more.
    """
    for driver in drivers:
        for finding in check(found.proposals[0].cell, Truth(), driver=driver):
            if finding.outcome is Outcome.IMPOSSIBLE:
                raise NothingPossibleError(
                    f"nothing is possible for all of these drivers: with driver {driver}: {finding.message}",
                    reasons=[finding.message],
                    hint="ask for each driver by itself: a matrix can have a cell for each",
                )


def say_answer(found: ProposedMatrix, *, own: bool, newer: Sequence[str], verbose: bool) -> None:
    """Say the first cell, its line for pip, what moved for it, and why no newer release is it; ``own``: for
    this machine; ``newer``: other drivers that it was asked for; ``verbose``: with the sources.
    """
    terminal, demand, first = Terminal.of(), found.demand, found.proposals[0]
    cell = first.cell
    driver = [f"driver {' and '.join((demand.driver, *newer))}"] if demand.driver is not None else []
    cards = [*map(to_type, demand.gpus), *driver]
    for_python = [f"Python {demand.python}"] if demand.python is not None else []
    cuda = cuda_of(cell) if cell.cuda.provider != "none" else None
    brings = f" with CUDA {cuda}" if cuda is not None else ""
    on = f", for {', '.join(cards)}" if cards else ""
    whose = ", of this machine (others: --gpu, --driver)" if own and driver else ""
    open_ = [one.message for one in first.findings if one.outcome is Outcome.UNKNOWN]
    why = "".join(f"; {text}" for text in (*_proven(first)[: first.unasked is not None], *open_[:1]))
    names = f"{_packages(cell)} on Python {cell.python}{brings}"
    terminal.say(f"{_answer(first)}: {names}{on}{whose}{why}")
    _say_pip(found)
    for change in found.changes:
        terminal.say(f"changed: {change}")
    for text in first.added:
        terminal.say(f"added: {text}")
    for last in found.last:
        for line in last.lines(", ".join((*cards, *for_python))):
            terminal.say(f"note: {_noted(line, verbose=verbose)}")


def _say_pip(found: ProposedMatrix) -> None:
    """Say the first cell's line for pip, the conditions of it, and that of the newest release; or the reason
    that there is none.
    """
    terminal, first = Terminal.of(), found.proposals[0]
    cell = first.cell
    glibc = glibc_for(cell)
    where, pages = f"on Python {cell.python}", _pages(found)
    if glibc is not None and key(glibc) > key(_EVERYWHERE):
        where += f" and a system with glibc {glibc} or later"
    compat = by_compat(first.findings) is not None
    if cell.cuda.provider == "base" and (by_pip := pip_line(cell, system=True, pages=pages)) is not None:
        say(f"  by pip, {where}: {by_pip}")
        cuda = cuda_of(cell)
        has = ""
        if cuda is not None and key(cuda) < (12,):
            has = f"; `conda install cudatoolkit={short(cuda, 2)} cudnn` brings both into an environment"
        text = f"where the system has CUDA and cuDNN, as {cell.base} has: pip brings neither here{has}"
        terminal.say(f"    {text}")
    if not compat and (by_pip := pip_line(cell, pages=pages)) is not None:
        say(f"  by pip{' alone' * (not first.sources)}, {where}: {by_pip}")
        if first.sources:
            names = ", ".join(text.partition(":")[0] for text in first.sources)
            needs = f"a compiler and the headers of Python {cell.python}"
            terminal.say(f"    {names}: pip compiles it from its sources, which may take {needs}")
        if first.unasked is not None and cell.pip:
            terminal.say("    which of these have a wheel was not asked; pip compiles the others")
        if late := after(cell):
            text = "after their framework, which their builds import; without a wheel that fits they are"
            terminal.say(f"    {', '.join(late)}: {text} compiled, with the nvcc of its CUDA")
        if cell.cuda.packages:
            terminal.say(f"    {LOADER_FOLDERS} then, which an image and `rtbuild venv` set")
        newest = max((one.cell for one in found.proposals), key=_release)
        line = pip_line(newest) if _release(newest) > _release(cell) else None
        if line is not None and not any(line in note for note in found.asked.notes):
            say(f"  a newer one by pip alone, on Python {newest.python}: {line}")
    if compat:
        terminal.say("  no line for pip alone: on this driver it takes the cuda-compat of the image")
    _say_by_hand(found, pages)


def _say_by_hand(found: ProposedMatrix, pages: Sequence[str]) -> None:
    """Say what pip installs after the first cell's line, and how to have its Python."""
    terminal, cell = Terminal.of(), found.proposals[0].cell
    left = [change.by_hand for change in found.changes if change.by_hand is not None]
    if by_hand := [*left, *found.asked.by_hand]:
        tools = sorted({"setuptools", "wheel"} - names_of(cell.pip))
        lines = [pip_install(tools, ())] if tools else []
        lines.append(pip_install(("--no-build-isolation", *by_hand), (), pages if left else ()))
        say(f"  then, by hand: {' && '.join(lines)}")
        after_torch = {row.name for row in load().builds if row.against}
        late = [text for text in left if names_of([text]) & after_torch]
        if late and (cuda := cuda_of(cell)) is not None:
            terminal.say(f"    {', '.join(late)}: compiled by nvcc of CUDA {short(cuda, 2)}")
    if any(wish.place != TYPED for wish in found.asked.wishes):
        old = key(cell.python) < key(_OLDEST_OF_UV)
        way = (
            f"conda create -n NAME python={cell.python}" if old else f"uv venv --seed --python {cell.python}"
        )
        terminal.say(f"  Python {cell.python}, where the system has another: `{way}`")


def _pages(found: ProposedMatrix) -> list[str]:
    """The project's pages of wheels; of such as are for one CUDA those of the first cell's."""
    cell = found.proposals[0].cell
    builds = {(pinned(Requirement(text)) or "").partition("+")[2] for text in cell.frameworks} - {""}
    builds = builds or {f"cu{short(cuda_of(cell) or '0', 2).replace('.', '')}"}
    told = ((url, re.findall(r"(?:\b|_)cu\d{2,3}\b", url)) for url in found.asked.pages)
    return [url for url, named in told if not named or not builds.isdisjoint(named)]


def say_reasons(found: ProposedMatrix, *, verbose: bool) -> None:
    """Say what was left out of the files, and how each cell was judged: what two have in common once, unless
    ``verbose``, with which the index is told, too, where it was asked.
    """
    terminal = Terminal.of()
    for note in found.asked.notes:
        terminal.say(f"note: {_noted(note, verbose=verbose)}")
    for wish in found.demand.frameworks:
        origin, why = found.origin(wish)
        beside = "" if wish.place == TYPED else f" ({wish.place})"
        if verbose or origin != "index":
            terminal.say(f"{wish}{beside}: versions from the {origin}: {why}")
    said = dict.fromkeys(_proven(found.proposals[0])[: found.proposals[0].unasked is not None], 1)
    for number, one in enumerate(found.proposals, 1):
        cell = one.cell
        python = f"Python {cell.python}{' (standalone)' * needs_standalone(cell)}"
        parts = ", ".join((_packages(cell), python, str(cell.base), *({cell.platform} - {"linux/amd64"})))
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
        terminal.say(f"{number}. {parts}: {'; '.join((_answer(one), *shown, *same))}")
        for text in reasons:
            if verbose or text not in said:
                terminal.say(f"   {text}")
        said = {**dict.fromkeys((*proof, *reasons), number), **said}


def _answer(one: Proposal) -> str:
    """``possible``, with the word that a finding below limits it."""
    return f"{one.outcome.answer}, with a reservation" if one.outcome is Outcome.WARNS else one.outcome.answer


def _packages(cell: Cell) -> str:
    """``torch==2.10.0, vllm==0.19.1``: the frameworks, and the first packages beside them."""
    more = len(cell.pip) - _BESIDE
    named = ", ".join((*cell.frameworks, *cell.pip[:_BESIDE]))
    return f"{named} and {counted(more, 'more package')}" if more > 0 else named


def _noted(note: str, *, verbose: bool) -> str:
    """A note; with the sources of its facts if ``verbose``."""
    return note if verbose else _SOURCES.sub("", note)


def _proven(one: Proposal) -> list[str]:
    """The wheels of a cell, and what was asked of them."""
    if one.unasked is not None:
        return [f"the resolver was not asked: {one.unasked}"]
    size = f", {human_bytes(one.size)}" if one.size is not None else ""
    wheels = f"the resolver finds {counted(one.wheels or 0, 'wheel')} for it{size}"
    if one.unproven is not None:
        return [wheels, f"whether they load and import was not asked: {one.unproven}; `rtbuild lock` asks"]
    asks = (
        "`rtbuild lock` reads them" if one.cell.base.kind == "rootfs" else "nobody reads those of this base"
    )
    refused_none = f"{wheels}, and nothing in their files speaks against it"
    return [refused_none, f"the system's packages were not read: {asks}"]


def document(found: ProposedMatrix) -> dict[str, Any]:
    """For ``--json``."""
    demand = found.demand
    origins = [(str(wish), *found.origin(wish)) for wish in demand.frameworks]
    return {
        "schema": 1,
        "answer": found.proposals[0].outcome.answer,
        "requirements": [
            {"requirement": text, "versions_from": origin, "reason": why} for text, origin, why in origins
        ],
        "beside": [str(wish) for wish in demand.companions],
        "notes": found.asked.notes,
        "changes": [
            {
                "requirement": str(one.asked),
                "place": one.asked.place,
                "instead": one.instead,
                "reason": one.reason,
            }
            for one in found.changes
        ],
        "gpus": list(demand.gpus),
        "driver": demand.driver,
        "platform": demand.built_for,
        "proposals": [
            {
                "outcome": one.outcome.value,
                "answer": one.outcome.answer,
                "resolved": one.unasked is None,
                **(
                    {"wheels": one.wheels, "bytes": one.size}
                    if one.unasked is None
                    else {"reason": one.unasked}
                ),
                "files_read": one.unasked is None and one.unproven is None,
                **({"files_unread": one.unproven} if one.unasked is None and one.unproven else {}),
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
                "with_full_driver": dict(zip(("driver", "newest"), last.full or (), strict=False)) or None,
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


def init(
    words: list[str] | None = opt.WORDS,
    python: str | None = opt.PYTHON,
    gpu: str | None = opt.GPU,
    driver: str | None = opt.DRIVER,
    jupyter: bool = opt.of("--jupyter: With Jupyter in the image (profile: colab).", False),
    name: str | None = opt.of(
        "--name: The matrix's name and its file's; by default the framework's, or NAME-2 if that is taken."
    ),
    output: Path = opt.of("--output, -o: The folder to write to.", Path("matrices")),
    force: bool = opt.of("--force: Replace a matrix that is there.", False),
    offline: bool = opt.OFFLINE,
) -> int:
    """Write a first matrix: the best cell for a framework, this card and this Python."""
    if not words:
        words, gpu = _ask(gpu)
    opt.refuse_machine([gpu] if gpu else [], driver)
    wish = MatrixWish(
        words=tuple(words),
        python=python,
        gpu=gpu,
        driver=driver,
        jupyter=jupyter,
        offline=offline,
        name=name,
        rootfs=True,
    )
    path = output / f"{wish.title}.yaml"
    if not force and name is None:
        wish, path = _free(wish, output)
    elif not force:
        opt.refuse_existing(path, hint="--force replaces it; without --name the next free one is taken")
    write_matrix(matrix_text(wish), path)
    file = shlex.quote(str(path))
    show(
        f"rtbuild check {file}    # can it work? in half a second",
        f"rtbuild build {file}    # lock, build and verify the image",
        f"rtbuild venv {file}     # or the same without Docker",
    )
    return 0


def _free(wish: MatrixWish, output: Path) -> tuple[MatrixWish, Path]:
    """The wish, and its file, under the first name that no file has: torch, torch-2, torch-3."""
    first = wish.title
    names = itertools.chain([first], (f"{first}-{number}" for number in itertools.count(2)))
    with opt.writing(output):
        name = next(name for name in names if not (output / f"{name}.yaml").exists())
    if name != first:
        say(f"{output / first}.yaml is there and stays (--force replaces it): this one is {name}")
    return replace(wish, name=name), output / f"{name}.yaml"


def _ask(gpu: str | None) -> tuple[list[str], str | None]:
    """A framework and a card, asked at the terminal."""
    if not sys.stdin.isatty():
        raise UsageError("no framework is named", hint="as in `rtbuild init torch`")
    words = typer.prompt("Framework (torch, tensorflow==2.15.*, jax …)", default="torch", err=True)
    card = gpu or typer.prompt("Card (T4, H100; empty for any)", default="", show_default=False, err=True)
    return shlex.split(words), card or None
