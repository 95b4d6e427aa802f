"""The options that commands share, each declared once."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from builder.cli.console import say
from builder.core.errors import MatrixError, RtbuildError, SeveralMatricesError, UsageError
from builder.core.model import Cell, Matrix, Pinned
from builder.core.suites import SUITES

if TYPE_CHECKING:
    from builder.plan.matrix import Selection


def of(text: str, default: Any = None, **more: Any) -> Any:
    """An option as its help shows it, ``--key, -k METAVAR $VARIABLE: HELP``; without a flag, an argument.

    ``...`` for a default means that it has to be given, None that there is none.
    """
    head, _, shown = text.partition(": ")
    words = head.replace(",", "").split()
    flags = [word for word in words if word[0] == "-"]
    more["metavar"] = next((word for word in words if word[0] not in "-$"), None)
    if not flags:
        return typer.Argument(default, help=shown, **more)
    more["envvar"] = next((word[1:] for word in words if word[0] == "$"), None)
    return typer.Option(default, *flags, help=shown, **more)


def _complete_cell(ctx: typer.Context, incomplete: str) -> list[str]:
    from builder.plan.matrix import load

    ids: list[str] = []
    for path in matrix_paths(ctx.params.get("matrices") or []):
        try:
            ids += [cell.id for cell in load(path).cells]
        except RtbuildError:
            continue  # a matrix that is wrong has no ids to offer; the command itself will say why
    return sorted(i for i in ids if i.startswith(incomplete))


MATRICES = of(
    "MATRIX: Matrix files; without any, matrices/*.yaml.",
    autocompletion=lambda incomplete: [str(p) for p in matrix_files() if str(p).startswith(incomplete)],
    show_default=False,
)
SELECT = of(
    "--select, -s GLOB: Only cells whose id matches; may be repeated, braces work: '*-py3.{9,11}-*'.",
    autocompletion=_complete_cell,
)
SKIP = of("--skip GLOB: Leave out cells whose id matches; may be repeated.")
JSON = of("--json: One JSON document on stdout; talk stays on stderr.", False)
PROGRESS = of(
    "--progress auto|tty|plain|json|none $RTBUILD_PROGRESS: "
    "A live board, plain lines, JSON lines, or nothing.",
    "auto",
)
VERBOSE = of("--verbose, -v: Say more; may be repeated.", 0, count=True)
QUIET = of("--quiet, -q: Say nothing until the end.", False)
RESULTS = of("--results $RTBUILD_RESULTS: Where reports and logs go.", Path("results"))
TRACE = of("--trace FILE: Write where the time went, in Chrome's trace format: Perfetto opens it.")
MIRROR = of(
    "--registry-mirror HOST=MIRROR: "
    "Read images of HOST from MIRROR: docker.io=localhost:5000. Also RTBUILD_REGISTRY_MIRROR."
)
READ = of(
    "--read: Ask the package index and the registry, too: what wheels and bases say of themselves.", False
)
DEEP = of("--deep: As --read, and look into wheels, up to 16 MiB each: GPU code, NumPy, cuDNN.", False)
CONTEXT = of("--context NAME: The docker context to use.")
REPORT_KEY = of(
    "--key KEY $RTBUILD_VERIFY_KEY: Sign the reports by cosign with this key: a file, or a KMS URI."
)
REPORTED_BY = of(
    "--reported-by KEY $RTBUILD_REPORTED_BY: Count only reports that this public key signed at `verify`; "
    "repeatable."
)
BUILT_BY = of(
    "--built-by KEY $RTBUILD_BUILT_BY: "
    "Take only images that this public key signed at `build`, or this machine made; repeatable."
)
WORDS = of("FRAMEWORK: torch, and what is beside it: torch torchvision lightning; without one, it asks.")
PYTHON = of("--python: The Python: 3.11.")
GPU = of("--gpu: The card that it must run on: T4, H100.")
OFFLINE = of("--offline: Do not ask the package index.", False)
DRIVER = of("--driver: The driver that images are to run on: 535, 535.104.05.")
DRIVERS = of("--driver: A driver that images must run on: 535, 535.104.05; may be repeated: on all of them.")
CARDS = of(
    "--gpu: A GPU that cells must run on beside those of the file, as nvidia-smi names it or by compute "
    "capability: T4, 8.6; may be repeated."
)
LOCKED = of("--locked: Refuse to go on if the lock is missing or stale.", False)
Gpus = Literal["auto", "all", "none"]
GPUS = of("--gpus: Whether the probe gets the GPUs.", "auto")
WANTED: dict[str, Literal["auto"] | bool] = {"auto": "auto", "all": True, "none": False}
"""GPUs by the word of ``--gpus``."""


def matrix_files() -> list[Path]:
    """The matrices of the folder ``matrices/`` here."""
    return sorted(p for p in Path("matrices").glob("*.y*ml") if p.suffix in (".yaml", ".yml"))


def matrix_paths(given: list[Path]) -> list[Path]:
    """The files named, or all of ``matrices/``; naming the same file twice counts once."""
    paths = given or matrix_files()
    for path in paths:
        _refuse_framework(path)
    if not paths:
        raise UsageError(
            "no matrix file given, and there is no matrices/*.yaml here",
            hint="`rtbuild init torch` writes a first one; or name a file behind the command: "
            "path/to/matrix.yaml",
        )
    return list(dict.fromkeys(paths))


def _refuse_framework(path: Path) -> None:
    """UsageError for a requirement in a matrix file's place, as in ``check torch==1.12``."""
    word = str(path)
    name = re.match(r"[A-Za-z][\w-]*(?=$|[\[=<>~!])", word)
    if name is None or path.exists():
        return
    from builder.plan.facts.tables import load

    if name.end() < len(word) or load().is_framework(name[0]):
        raise UsageError(
            f"{word} is a requirement, and this command reads matrix files",
            hint=f"`rtbuild resolve '{word}'` says for which --gpu and --driver it can be had; "
            f"`rtbuild init '{word}'` writes a matrix of it",
        )


def load_all(given: list[Path] | None) -> list[Matrix]:
    """Every matrix; the errors of all files together, not only of the first that has some."""
    from builder.plan.matrix import load

    matrices, wrong = [], []
    for path in matrix_paths(given or []):
        try:
            matrices.append(load(path))
        except MatrixError as error:
            wrong.append(error)
    if wrong:
        raise SeveralMatricesError(wrong)
    names = [matrix.name for matrix in matrices]
    for name in names:
        if names.count(name) > 1:
            files = ", ".join(str(m.path) for m in matrices if m.name == name)
            raise UsageError(f"two matrices have the name '{name}': {files}", hint="give one another `name`")
    return matrices


def selection(
    given: list[Path] | None, select: list[str] | None, skip: list[str] | None
) -> tuple[list[Matrix], Selection]:
    """The matrices, and the cells that the selectors leave out of all of them together."""
    from builder.plan.matrix import select as pick

    matrices = load_all(given)
    cells = [cell for matrix in matrices for cell in matrix.cells]
    return matrices, pick(cells, select=tuple(select or ()), skip=tuple(skip or ()))


def choose(
    given: list[Path] | None, select: list[str] | None, skip: list[str] | None
) -> tuple[list[Matrix], tuple[Cell, ...]]:
    """The matrices, and the chosen cells."""
    matrices, found = selection(given, select, skip)
    return matrices, found.chosen


def choose_to_write(
    given: list[Path] | None, select: list[str] | None, skip: list[str] | None
) -> tuple[list[Matrix], tuple[Cell, ...]]:
    """As :func:`choose`, for output that is written by a cell's id: a cell that two files have alike counts
    once, as the first of them has it. UsageError for an id that stands for different cells.
    """
    matrices, cells = choose(given, select, skip)
    files = {matrix.name: matrix.path for matrix in matrices}
    seen: dict[str, Cell] = {}
    for cell in cells:
        other = seen.setdefault(cell.id, cell)
        if other is cell:
            continue
        if replace(cell, matrix=other.matrix) != other:
            raise UsageError(
                f"two cells have the id {cell.id}: in {files[other.matrix]} and in {files[cell.matrix]}",
                hint="`variant` tells them apart; or give one file at a time, or leave it out by --skip",
            )
        say(f"{cell.id} is the same cell in {files[cell.matrix]}: it is that of {files[other.matrix]} here")
    return matrices, tuple(seen.values())


def is_matrix(text: str) -> bool:
    """Whether the word for a cell is the name of a matrix file."""
    return text.endswith((".yaml", ".yml"))


def of_file(cell: str, matrices: list[Path] | None) -> tuple[str, list[Path] | None]:
    """A cell's glob, and the matrices to look for it in: a matrix file in its place stands for its cell."""
    return ("*", [Path(cell), *(matrices or [])]) if is_matrix(cell) else (cell, matrices)


def choose_one(matrices: list[Matrix], text: str) -> Cell:
    """The cell that an id or a glob names. UsageError for none or several."""
    from builder.plan.matrix import select

    chosen = select([cell for matrix in matrices for cell in matrix.cells], select=(text,)).chosen
    if len(chosen) != 1:
        ids = ", ".join(cell.id for cell in chosen[:4]) + (", …" if len(chosen) > 4 else "")
        hint = "name one: `rtbuild list` has their ids"
        raise UsageError(f"'{text}' names {len(chosen)} cells: {ids}", hint=hint)
    return chosen[0]


def locked_cell(matrices: list[Matrix], cell: Cell) -> Pinned:
    """The cell as the lock of its matrix has it. StaleLockError if it has none that fits."""
    from builder.pipeline import Locks

    return Locks(matrix for matrix in matrices if matrix.name == cell.matrix).fresh([cell])[0]


def mirrors(given: list[str] | None) -> dict[str, str]:
    """``--registry-mirror`` options over ``RTBUILD_REGISTRY_MIRROR``, as registry → mirror. UsageError."""
    from builder.sources.oci import parse_mirrors

    return parse_mirrors([os.environ.get("RTBUILD_REGISTRY_MIRROR", ""), *(given or ())])


def driver(text: str | None) -> str | None:
    """``--driver`` checked: a branch or a full version, ``535`` or ``535.104.05``. Raises UsageError."""
    if text is None or re.fullmatch(r"[0-9]{3}(\.[0-9]{1,3}){0,2}", text):
        return text
    like = "a driver is like 535.104.05, or 535 for its branch; `nvidia-smi` prints it as Driver Version"
    if re.fullmatch(r"[0-9]{1,2}(\.[0-9]+){0,2}", text):
        from builder.plan.facts.tables import load

        row = load().own_drivers.get(text)
        branch = (
            f"; one that serves up to CUDA {text} is like --driver {row.driver.partition('.')[0]}"
            if row
            else ""
        )
        raise UsageError(f"--driver {text} is a CUDA version, not a driver", hint=like + branch)
    raise UsageError(f"--driver {text} is no driver version", hint=like)


def drivers(texts: Iterable[str] | None) -> list[str]:
    """``--driver``, repeated or with commas between, checked; the oldest first. Raises UsageError."""
    given = [part for text in texts or () for part in re.split(r"\s*,\s*", text) if part]
    found = [one for one in map(driver, given) if one is not None]
    return sorted(dict.fromkeys(found), key=lambda one: [int(part) for part in one.split(".")])


def refuse_machine(gpus: Iterable[str], driver_: str | None, *others: Callable[[], object]) -> None:
    """UsageError with all that is wrong of ``--gpu``, ``--driver`` and what ``others`` ask, at once."""
    from builder.plan.facts.tables import said_of

    gpus_ = tuple(gpus)
    asks: tuple[Callable[[], object], ...] = (
        *others,
        partial(driver, driver_),
        *(partial(card, text) for text in gpus_),
    )
    faults = list[UsageError]()
    for ask in asks:
        try:
            ask()
        except UsageError as fault:
            faults.append(fault)
    if len(faults) > 1:
        lines = (f"{fault.message}" + (f"\n    {fault.hint}" if fault.hint else "") for fault in faults)
        raise UsageError("\n  ".join(("several values are wrong:", *lines)))
    if faults:
        raise faults[0]
    for text in gpus_:
        if (told := said_of("--gpu", text)) is not None:
            say(f"note: {told}")


def card(text: str, *, alike: bool = True) -> str:
    """``--gpu`` as the tables name the card, or ``sm_75`` for a compute capability.

    With ``alike`` a laptop's chip stands for the card of the same compute capability: good for a question to
    the rules, too much for a question about reports. Raises UsageError if no table has it.
    """
    from builder.plan.facts.tables import named_card

    return named_card("--gpu", text, alike=alike)


def refuse_existing(path: Path, *, hint: str = "--force replaces it") -> None:
    """UsageError if what is to be written is there already."""
    with writing(path):
        there = path.exists()
    if there:
        raise UsageError(f"{path} is there already", hint=hint)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """UsageError if what the command line names cannot be written there; a full disk stays an OSError."""
    try:
        yield
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UsageError(f"{path} cannot be written: {problem.strerror or problem}") from problem


def suites(texts: Iterable[str] | None) -> tuple[str, ...]:
    """Names of the probe's suites, repeated or separated by commas. Raises UsageError."""
    found = [name.strip() for text in texts or () for name in text.split(",")]
    if unknown := [name for name in found if name not in SUITES]:
        raise UsageError(f"there is no suite {unknown[0]}", hint=f"one of {', '.join(SUITES)}")
    return tuple(dict.fromkeys(found))


def age(text: str | None) -> timedelta | None:
    """``--max-age``: ``30d``, ``12h``. Raises UsageError."""
    from builder.plan.matrix import BadValue, seconds

    if text is None:
        return None
    try:
        return timedelta(seconds=int(seconds(text)))
    except (BadValue, OverflowError) as error:
        raise UsageError(f"--max-age: {error}", hint="a number and its unit: 30d, 12h, 2w, 90m") from error
