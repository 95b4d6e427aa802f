"""``rtbuild resolve`` and ``rtbuild init``: from requirements to a matrix of cells that are possible."""

import itertools
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from packaging.requirements import Requirement
from packaging.version import Version

from builder.cli import options as opt
from builder.cli.console import Progress, Terminal, human_bytes, print_json, say, show
from builder.cli.first_matrix import MatrixWish, asked_machine, matrix_text, wishes, write_matrix
from builder.cli.walking import noted
from builder.core.errors import NothingPossibleError, UsageError
from builder.core.files import write_whole
from builder.core.model import Cell
from builder.core.versions import pinned, release
from builder.plan.facts.rules import Outcome, by_compat, platform_of
from builder.plan.facts.tables import to_type
from builder.plan.lock import LOADER_FOLDERS, after, pip_line
from builder.plan.resolve import (
    AskedMachine,
    Proposal,
    ProposedMatrix,
    Wishes,
    needs_standalone,
    propose,
)
from builder.sources.index import Index


def resolve(
    requirements: list[str] | None = opt.of(
        "REQUIREMENT: Frameworks, and what goes beside: 'tensorflow==2.15.*' numpy."
    ),
    requirement_file: list[Path] | None = opt.of(
        "--requirement, -r FILE: A project's folder, or any file of it: requirements.txt, pyproject.toml, "
        "setup.py (read, never run), Pipfile, environment.yml, Dockerfile, notebook, lock; may be repeated."
    ),
    pyproject: Path | None = opt.of("--pyproject FILE: The dependencies of a pyproject.toml."),
    pylock: Path | None = opt.of("--from-pylock FILE: The packages of a pylock.toml, by version."),
    notebook: Path | None = opt.of(
        "--notebook FILE: The `!pip install` lines of a notebook, and what its code imports of these."
    ),
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
    progress: Progress = opt.PROGRESS,
    json_: bool = opt.JSON,
) -> int:
    """Print a matrix of the cells; errors as of :func:`propose`, with ``--json`` as a document, too."""
    if output is not None and not force:
        opt.refuse_existing(output)
    gpu = [part for text in gpu or () for part in re.split(r"\s*,\s*", text) if part]
    title = name or (_matrix_name(output) if output is not None else "resolved")
    options = [word for name, values in _given(gpu, driver, python, platform) for word in (name, values)]
    read = list[Wishes]()
    opt.refuse_machine(
        gpu or (),
        driver,
        lambda: read.append(
            _read(options, requirements, requirement_file, pyproject, notebook, conda_, pylock)
        ),
    )
    (asked,) = read
    on = asked_machine(gpu or (), driver, platform)
    index = None if offline else Index.from_user(once=True)
    try:
        with noted(Terminal.of(progress), title) as note:
            found = propose(
                asked,
                on,
                python=python,
                limit=limit,
                name=title,
                index=index,
                take_nearest=take_nearest,
                note=note,
            )
    except NothingPossibleError as none:
        if json_:
            print_json(_refusal(none, asked, on))
        raise
    if output is not None:
        with opt.writing(output):
            write_whole(output, found.text.encode())
    if json_:
        print_json(document(found))
    else:
        say_origins(found, own=not gpu and driver is None)
        if output is None:
            show(found.text.removesuffix("\n"))
        first, findings = found.proposals[0].cell, found.proposals[0].findings
        if first.cuda.provider == "base" and (by_pip := pip_line(first, system=True)) is not None:
            say(f"the first by pip, on Python {first.python}: {by_pip}")
            say(f"  where the system has CUDA and cuDNN, as {first.base} has: pip brings neither with these")
        if by_compat(findings) is None and (by_pip := pip_line(first)) is not None:
            say(f"the first by pip alone, on Python {first.python}: {by_pip}")
            if late := after(first):
                text = "after their framework, which their builds import; without a wheel that fits they are"
                say(f"  {', '.join(late)}: {text} compiled, with the nvcc of its CUDA")
            if first.cuda.packages:
                say(f"  {LOADER_FOLDERS} then, which an image and `rtbuild venv` set")
            newest = max((one.cell for one in found.proposals), key=_release)
            if _release(newest) > _release(first) and (line := pip_line(newest)) is not None:
                say(f"the newest of them by pip alone, on Python {newest.python}: {line}")
    file = output or Path("matrices") / f"{_title(found)}.yaml"
    written = f"{file} is written; next:" if output is not None else f"next: with `-o {file}`,"
    say(f"{written} rtbuild build {shlex.quote(str(file))}")
    return 0


def _release(cell: Cell) -> Version:
    """The release of a cell's first framework, without its build."""
    return release((pinned(Requirement(cell.frameworks[0])) or "0").partition("+")[0])


def _given(
    gpu: list[str] | None, driver: str | None, python: str | None, platform: str | None
) -> list[tuple[str, str]]:
    """The options about the machine that were typed, each with its value."""
    one = (("--driver", driver), ("--python", python), ("--platform", platform))
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


def say_origins(found: ProposedMatrix, *, own: bool) -> None:
    """Say where the versions come from, and how each cell was judged; ``own``: for this machine."""
    for note in found.asked.notes:
        say(f"note: {note}")
    if own and found.demand.driver is not None:
        on = f"{', '.join(map(to_type, found.demand.gpus))}, driver {found.demand.driver}"
        say(f"for this machine: {on} (others: --gpu, --driver)")
    for wish in found.demand.frameworks:
        origin, why = found.origin(wish)
        beside = "" if wish.place == "the command line" else f" ({wish.place})"
        say(f"{wish}{beside}: versions from the {origin}: {why}")
    driver = [f"driver {found.demand.driver}"] if found.demand.driver is not None else []
    for_python = [f"Python {found.demand.python}"] if found.demand.python is not None else []
    machine = ", ".join((*map(to_type, found.demand.gpus), *driver, *for_python))
    for last in found.last:
        for line in last.lines(machine):
            say(f"note: {line}")
    for change in found.changes:
        say(f"nearest: {change}")
    for number, one in enumerate(found.proposals, 1):
        cell = one.cell
        python = f"Python {cell.python}{' (standalone)' * needs_standalone(cell)}"
        parts = ", ".join((*cell.frameworks, python, str(cell.base), *({cell.platform} - {"linux/amd64"})))
        say(f"{number}. {parts}: {one.outcome.answer}; {_proven(one)}")
        for reason in one.sources:
            say(f"   from sources: {reason}")
        for finding in one.findings:
            if finding.outcome in {Outcome.WARNS, Outcome.UNKNOWN}:
                say(f"   {finding.rule}: {finding.message}")


def _proven(one: Proposal) -> str:
    if one.unasked is not None:
        return f"not through the resolver: {one.unasked}"
    size = f", {human_bytes(one.size)}" if one.size is not None else ""
    wheels = f"the resolver finds {one.wheels} wheels for it{size}"
    if one.unproven is not None:
        return f"{wheels}; whether they load and import was not asked: {one.unproven}; `rtbuild lock` asks"
    asks = (
        "`rtbuild lock` reads them" if one.cell.base.kind == "rootfs" else "nobody reads those of this base"
    )
    said = "nothing in their files speaks against it"
    return f"{wheels}, and {said}; the system's packages were not read: {asks}"


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
