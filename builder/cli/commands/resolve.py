"""``rtbuild resolve`` and ``rtbuild init``: from requirements to a matrix of cells that are possible."""

import itertools
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from builder.cli import options as opt
from builder.cli.console import Progress, Terminal, print_json, say, show
from builder.cli.first_matrix import (
    AnswerLine,
    MatrixWish,
    answer_lines,
    asked_machine,
    check_lines,
    matrix_text,
    packages_of,
    wishes,
    without_sources,
    write_matrix,
)
from builder.cli.walking import noted
from builder.core.errors import NothingPossibleError, NotKnownError, UsageError
from builder.core.files import write_whole
from builder.plan.facts.reading import Truth
from builder.plan.facts.rules import MachineDrivers, Outcome, check, cuda_of, platform_of
from builder.plan.facts.tables import is_without, load, to_type
from builder.plan.lock import after
from builder.plan.resolve import (
    AskedMachine,
    AskedSystem,
    ElsewhereLine,
    ProposalNote,
    ProposedMatrix,
    Wishes,
    asked_system,
    left_out_on,
    of_jetson,
    propose,
    system_in,
    to_uv_project,
    windows_lines,
    without_cuda,
)
from builder.sources.index import Index


def resolve(
    requirements: list[str] | None = opt.of(
        "REQUIREMENT: Frameworks, and packages beside them: torch, 'tensorflow==2.15.*' numpy."
    ),
    requirement_file: list[Path] | None = opt.of(
        "--requirement, -r FILE: A project's folder, 'FOLDER[EXTRA]', or any file of it: requirements.txt, "
        "pyproject.toml, setup.py (read, never run), Pipfile, environment.yml, Dockerfile, setup.sh, "
        "notebook, lock; may be repeated."
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
        "repeated, and with the driver of its own machine: 'RTX 3090@535.183.01'. By default this "
        "machine's own."
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
    uv: Path | None = opt.of(
        "--uv FILE: Write a pyproject.toml for uv, too: one lock for these machines with Linux, for "
        "Windows and for a Mac."
    ),
    force: bool = opt.of("--force: Replace FILE of --output and of --uv.", False),
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
    for path in filter(None, (output, uv)) if not force else ():
        opt.refuse_existing(path)
    gpu, machines = _machines(
        [part for text in gpu or () for part in re.split(r"\s*,\s*", text) if part], driver
    )
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
    if machines:
        drivers = [MachineDrivers((opt.card(card), opt.driver(its) or "") for card, its in machines)]
    index = None if offline else Index.from_user(once=True)
    on = _asked(gpu, drivers, platform, on_system)
    try:
        lines = _elsewhere(asked, on_system, gpu, python, index)
        if lines is not None:
            return _say_elsewhere(lines, on_system, json_=json_)
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
        found = replace(found, said=[ProposalNote(kind="driver", text=_IN_WSL), *found.said])
    if on_system.kind == "windows":
        return _say_elsewhere([*_on_windows(found, index)], on_system, json_=json_)
    _write(output, found.text)
    if uv is not None:
        _write(uv, to_uv_project(found.proposals[0], found.changes, title, index))
    own = not gpu and not driver
    told = [*answer_lines(found, own=own, newer=drivers[1:], verbose=bool(verbose))]
    if json_:
        print_json(document(found, told))
    else:
        _say(told)
        if output is None and not sys.stdout.isatty():
            show(found.text.removesuffix("\n"))
    file = output or Path("matrices") / f"{_title(found)}.yaml"
    written = f"{file} is written; next:" if output is not None else f"next: with `-o {file}`,"
    say(f"{written} rtbuild build {shlex.quote(str(file))}")
    return 0


def _write(path: Path | None, text: str) -> None:
    if path is not None:
        with opt.writing(path):
            write_whole(path, text.encode())


_KINDS = {"wsl": "linux"}
"""The system whose wheels another one takes."""
_IN_WSL = (
    "in WSL 2 the driver is that of Windows: no Linux driver and no CUDA toolkit is installed there "
    "(https://docs.nvidia.com/cuda/wsl-user-guide/)"
)


def _machines(parts: Sequence[str], driver: Sequence[str] | None) -> tuple[list[str], list[tuple[str, str]]]:
    """The cards of ``--gpu``, and each with the driver of its own machine, as in ``RTX 3090@535.183.01`` or a
    line of ``nvidia-smi --query-gpu=name,driver_version --format=csv,noheader``; none if none has one.

    Raises UsageError if one has none, and ``--driver`` names not one for the rest.
    """
    cards = list[tuple[str, str | None]]()
    for part in parts:
        name, at, its = part.partition("@")
        if cards and re.fullmatch(r"\d{3}(\.\d{1,3}){1,2}", part):
            cards[-1] = (cards[-1][0], part)
        else:
            cards.append((name.strip(), its.strip() if at else None))
    names = list(dict.fromkeys(name for name, _ in cards))
    if not any(its for _, its in cards):
        return [name for name, _ in cards], []
    rest = opt.drivers(driver)
    if (without := [name for name, its in cards if not its]) and len(rest) != 1:
        text = f"--gpu {without[0]}: which driver is on its machine? Others have one of their own"
        raise UsageError(text, hint=f"--gpu '{without[0]}@535.183.01', or one --driver for the rest")
    return names, [(name, its or rest[0]) for name, its in cards]


def _asked(gpu: list[str], drivers: Sequence[str], platform: str | None, system: AskedSystem) -> AskedMachine:
    """The machine that is asked about: this one, if nothing of another is told."""
    cards = [] if gpu == ["none"] else gpu
    if gpu == ["none"] or (system.kind not in {"linux", "wsl"} and not cards and not drivers):
        return AskedMachine(platform=platform, glibc=system.glibc)
    on = asked_machine(cards, drivers[0] if drivers else None, platform)
    return replace(on, glibc=system.glibc, kernel_modules=system.kind not in {"windows", "wsl"})


def _elsewhere(
    asked: Wishes, system: AskedSystem, gpu: list[str], python: str | None, index: Index | None
) -> list[ElsewhereLine] | None:
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
    return ["none" if is_without(card) else card for card, _ in parts], asked_system(
        told[0] if told else "linux"
    )


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
            lines = [line.text for line in without_cuda(asked, "windows", python, index)]
            raise NothingPossibleError(
                "\n".join((f"{row.text} [{row.source}]", "on Windows itself, without the card:", *lines)),
                reasons=[row.text],
                hint=f"in WSL 2 that of Linux is taken, and Windows' driver serves: {_in_wsl(asked)} with "
                "the same --gpu and --driver",
            )


def _in_wsl(asked: Wishes) -> str:
    names = shlex.join(str(wish) for wish in asked.wishes)
    return f"`rtbuild resolve {names} --system wsl`"


_OF_LINUX = frozenset(("newer", "older", "build", "index", "elsewhere", "glibc", "system", "image"))
"""Kinds of notes on releases and builds that were judged by the wheels for Linux."""


def _on_windows(found: ProposedMatrix, index: Index | None) -> Iterable[ElsewhereLine]:
    """The lines for Windows of what was found for Linux; nobody read whether PyTorch's index has them.

    Raises NotKnownError if the lines of no proposal are known.
    """
    terminal_cards = ", ".join(map(to_type, found.demand.gpus))
    told = f", for {terminal_cards}" * bool(terminal_cards)
    told += f", driver {found.demand.driver}" * (found.demand.driver is not None)
    seen = set[tuple[str, ...]]()
    for one in found.proposals:
        late, without = after(one.cell), left_out_on("windows", one.cell, index)
        left_out = {text: why for text, why in without.items() if text not in late}
        lines = windows_lines(one.cell, left_out)
        cuda = cuda_of(one.cell)
        if lines is None or tuple(lines) in seen or one.cell.frameworks in seen:
            continue
        first = not seen
        seen |= {tuple(lines), one.cell.frameworks}
        brings = f" with CUDA {cuda}" if cuda is not None else ""
        text = f"{packages_of(one.cell)} on Python {one.cell.python}{brings}{told if first else ''}"
        yield ElsewhereLine(kind="answer", text=text)
        for line in lines:
            yield ElsewhereLine(kind="pip", text=f"  by pip on Windows: {line}", command=line)
        if late:
            nvcc = f" and nvcc of CUDA {cuda}" if cuda is not None else ""
            how = f"without a wheel that fits compiled by Visual Studio's Build Tools for C++{nvcc}"
            yield ElsewhereLine(kind="detail", text=f"  {', '.join(late)}: {how}")
        for text, why in left_out.items():
            yield ElsewhereLine(kind="detail", text=f"  without {text}: {why}")
        kept = (*one.cell.frameworks, *(text for text in one.cell.pip if text not in left_out))
        for told_how in check_lines(kept, "cuda") if first else ():
            yield ElsewhereLine(kind="check", text=told_how.text, command=told_how.command)
    if not seen:
        said = f"which builds of {packages_of(found.proposals[0].cell)} Windows takes is not known"
        raise NotKnownError(said, hint=f"in WSL 2 that of Linux is taken: {_in_wsl(found.asked)}")
    text = (
        "  without --index-url pip takes the build for the CPU on Windows; judged by the wheels for "
        "Linux: which of them PyTorch's index has for Windows was not read "
        "(https://pytorch.org/get-started/previous-versions/ lists them)"
    )
    yield ElsewhereLine(kind="unread", text=text)
    for note in found.notes:
        if note.kind not in _OF_LINUX and note.text != _IN_WSL:
            yield ElsewhereLine(kind="detail", text=f"note: {note.text}")


def _say_elsewhere(lines: list[ElsewhereLine], system: AskedSystem, *, json_: bool) -> int:
    """Say an answer that has no matrix: pip's lines on another system, or without a card."""
    told = [AnswerLine(kind=one.kind, text=without_sources(one.text), command=one.command) for one in lines]
    if json_:
        answer = "unknown" if any(one.kind == "unread" for one in lines) else "possible"
        texts: dict[str, Any] = {"pip": _typed(told), "lines": [one.text for one in told]}
        texts |= {"said": [one.as_json() for one in told]}
        print_json({"schema": 1, "answer": answer, "system": system.kind, **texts})
    else:
        _say(told)
    return 0


def _say(lines: Iterable[AnswerLine]) -> None:
    """Say the lines; those with a command as they are, since wrapping would break it."""
    terminal = Terminal.of()
    for line in lines:
        (say if line.command else terminal.say)(line.text)


def _typed(lines: Iterable[AnswerLine]) -> list[str]:
    """What is typed one after the other to have the first proposal."""
    return [line.command for line in lines if line.kind in {"pip", "by-hand"}]


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


def document(found: ProposedMatrix, lines: Sequence[AnswerLine]) -> dict[str, Any]:
    """For ``--json``: all that the text has, which is printed of the same ``lines``."""
    demand = found.demand
    period = demand.period
    origins = [(str(wish), *found.origin(wish)) for wish in demand.frameworks]
    return {
        "schema": 1,
        "answer": found.proposals[0].outcome.answer,
        "requirements": [
            {"requirement": text, "versions_from": origin, "reason": why} for text, origin, why in origins
        ],
        "beside": [str(wish) for wish in demand.companions],
        "pip": _typed(lines),
        "as_of": {"date": period.day, "reason": period.why} if period is not None else None,
        "notes": [note.text for note in found.notes],
        "said": [line.as_json() for line in lines],
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
