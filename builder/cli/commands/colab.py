"""``rtbuild colab import``, ``rtbuild colab diff`` and ``rtbuild colab probe``."""

import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

import typer

from builder.cli import options as opt
from builder.cli.boundary import INTERRUPTED
from builder.cli.console import Progress, Terminal, counted, print_json, reporter, run_summary, say, show
from builder.cli.walking import walk
from builder.core import resources
from builder.core.documents import shown
from builder.core.errors import MissingToolError
from builder.core.files import write_whole
from builder.core.items import item
from builder.core.model import Matrix, Profile
from builder.image.engine import Engine
from builder.image.recipe import bundle
from builder.image.sdist import Workshop
from builder.pipeline import (
    CellOutcome,
    CellResult,
    LockOptions,
    RunStarted,
    Stage,
    StageFinished,
    StageProgress,
    StageStarted,
    lock_cells,
)
from builder.plan.matrix import load
from builder.release.colab import (
    ABOUT,
    PRESENT_GOAL,
    SAME_GOAL,
    ColabGpu,
    Imported,
    Login,
    Parity,
    ParityRow,
    ParityStatus,
    Runtime,
    compare,
    import_runtime,
    labelled,
    listed,
    matrix_text,
    measure,
    probe_runtime,
    read_runtime,
    record,
    record_text,
    save,
)
from builder.release.colab import load as load_report
from builder.sources.debian import Debian
from builder.sources.index import Index
from builder.verify.evidence import covered_class

_WORDS = {
    ParityStatus.SAME: "same",
    ParityStatus.OTHER: "other version",
    ParityStatus.MISSING: "missing",
    ParityStatus.UNASKED: "out of reach",
    ParityStatus.EXTRA: "extra",
}

colab = typer.Typer(
    help="Google Colab's runtimes: import one, measure how near an image is to it, run the probe on one.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


@colab.command("import")
def import_(
    source: Path | None = opt.of("DIR: A folder with the lists, or a clone of Google's repository of them."),
    at: str | None = opt.of(
        "--at COMMIT|DATE|RUNTIME: Read a clone at this commit, as of 2024-07-15, or at 2025.07."
    ),
    freeze: Path | None = opt.of("--freeze FILE: The output of pip freeze."),
    apt: Path | None = opt.of("--apt FILE: The output of apt list --installed."),
    os_info: Path | None = opt.of("--os-info FILE: The distribution and Python's version."),
    python: str | None = opt.of("--python: The Python, if no OS info says it: 3.7."),
    name: str | None = opt.of("--name: The runtime's name: 2025.07."),
    output: Path = opt.of("--output, -o DIR: Where the matrix and its record go.", Path("matrices")),
    profile: Literal["plain", "colab"] = opt.of("--profile: colab: with Jupyter for Colab's page.", "colab"),
    lock: bool = opt.of("--lock/--no-lock: Lock the cells whose base this machine can reach.", True),
    build: bool = opt.of(
        "--from-source: Build what the index has only sources of: runs their setup code.", False
    ),
    mirror: list[str] | None = opt.MIRROR,
    progress: Progress = opt.PROGRESS,
    json_: bool = opt.JSON,
) -> int:
    """Make a matrix and its lock of the lists that Colab publishes. Each package has Colab's version."""
    # Exit 1 if lines could not be read, or if cells were to be locked and none could be.
    runtime = read_runtime(source, at=at, freeze=freeze, apt=apt, system=os_info, name=name, python=python)
    terminal = Terminal.of(progress)
    for problem in runtime.problems:
        terminal.say(str(problem))
    imported = _asked(runtime, profile, terminal, build=build)
    matrix_path = output / f"{imported.name}.yaml"
    with opt.writing(output):
        write_whole(matrix_path, matrix_text(imported).encode())
        write_whole(output / f"{imported.name}.runtime.json", record_text(imported).encode())
    matrix = load(matrix_path)
    for line in _import_lines(imported, matrix):
        terminal.say(line)
    results: list[CellResult] = []
    if lock:
        cells = [cell for cell in matrix.cells if cell.excluded is None]
        options = LockOptions(mirrors=opt.mirrors(mirror))
        results = walk(terminal, partial(lock_cells, [matrix], cells, options))
        terminal.say(run_summary(results, terminal))
    if json_:
        outcomes = {result.cell.id: result.outcome.value for result in results}
        print_json({"matrix": str(matrix_path), "locked": outcomes, **record(imported)})
    ends = {result.outcome for result in results}
    if CellOutcome.CANCELLED in ends:
        return INTERRUPTED
    return 1 if runtime.problems or (ends and CellOutcome.DONE not in ends) else 0


def _asked(runtime: Runtime, profile: Profile, terminal: Terminal, *, build: bool) -> Imported:
    began, cache = time.monotonic(), resources.cache()
    name, stage = f"colab-{runtime.name}", Stage.CHECK
    with reporter(terminal) as report:
        report(RunStarted(cells=(name,), stages=(stage,)))
        report(StageStarted(cell=name, stage=stage))
        imported = import_runtime(
            runtime,
            index=Index.from_user(brief=True),
            profile=profile,
            workshop=Workshop(debian=Debian(), cache=cache) if build else None,
            progress=lambda text, done, total: report(
                StageProgress(cell=name, stage=stage, text=text, done=done, total=total, quiet=True)
            ),
        )
        found = len(imported.matching.found)
        text = f"{found} of {len(runtime.packages)} packages are on the index"
        report(StageFinished(cell=name, stage=stage, seconds=time.monotonic() - began, text=text))
    return imported


def _import_lines(imported: Imported, matrix: Matrix) -> Iterator[str]:
    runtime, matching = imported.runtime, imported.matching
    yield (
        f"{runtime.name}: {runtime.system or 'a system not named'}, Python {runtime.python}, "
        f"CUDA {runtime.cuda or 'not listed'}, cuDNN {runtime.cudnn or 'not listed'} by apt, "
        f"{len(runtime.packages)} Python packages"
    )
    yield from (f"not asked: {silent}" for silent in matching.silent)
    for kind, count in sorted(Counter(str(m.reason) for m in matching.missing).items()):
        yield f"not matched, {kind} ({count}):"
        if kind == "source-only" and not any(match.built for match in matching.found):
            yield "  --from-source builds those that can be"
        for match in (m for m in matching.missing if m.reason == kind):
            yield f"  {match.package.name} {match.package.version or ''}: {match.detail}"
    for match in (m for m in matching.found if m.detail):
        yield f"note: {match.package.name} {match.package.version}: {match.detail}"
    yield from (f"note: {reason}" for reason in imported.no_base)
    found = len(matching.found)
    share = 100 * found / len(runtime.packages)
    yield (
        f"{found} of {len(runtime.packages)} packages ({share:.1f} %) at Colab's version, "
        f"{len(imported.apt)} of {len(runtime.apt)} system packages; "
        f"{counted(matrix.cells, 'cell')} in {matrix.path}"
    )


@colab.command("diff")
def diff(
    image: str = opt.of("IMAGE: An image in the engine's store; rtbuild's or any other.", ...),
    against: str = opt.of("--against RUNTIME: 2025.07, or an import's record.", ...),
    check: bool = opt.of("--check: Exit 1 if the goals of an imported runtime are not reached.", False),
    gpus: opt.Gpus = opt.of("--gpus: Whether the probe gets the GPUs.", "none"),
    context: str | None = opt.CONTEXT,
    verbose: int = opt.VERBOSE,
    json_: bool = opt.JSON,
) -> int:
    """Compare an image with a Colab runtime. Lists equal, different, missing and extra packages."""
    runtime = listed(against)
    with Engine.connect(context=context) as engine:
        labels = labelled(runtime)
        wanted = engine.facts().gpu.usable if gpus == "auto" else gpus == "all"
        with item(image):
            measured = measure(engine, image, probe=bundle(), labelled=labels, gpus=wanted)
            parity = compare(runtime, measured)
    report = measured.report
    if json_:
        probe: dict[str, Any] = {"verdict": report.verdict, "cause": report.cause, "summary": report.summary}
        print_json({"image": image, **parity.as_json(), "probe": probe})
    else:
        show(*_table(image, parity, verbose=verbose > 0))
        show(f"cudnn-verify: {report.verdict}: {report.summary}")
    return 1 if check and not parity.reached else 0


def _table(image: str, parity: Parity, *, verbose: bool) -> Iterator[str]:
    """The figures, then every exception with its reason."""
    yield from (f"{image} against Colab {parity.runtime}", "", *map(_line, parity.core), "")
    present = f"present {parity.present:.1f} % (goal {PRESENT_GOAL:g} %)"
    same = f"same version {parity.same:.1f} % (goal {SAME_GOAL:g} %)"
    yield f"  {parity.listed} other packages: {present}, {same}"
    yield "  " + ", ".join(f"{name} {parity.count(status)}" for status, name in _WORDS.items())
    for status in (ParityStatus.OTHER, ParityStatus.MISSING, ParityStatus.UNASKED, ParityStatus.EXTRA):
        rows = [row for row in parity.packages if row.status is status]
        most = len(rows) if verbose else 40
        if rows:
            yield from ("", f"{_WORDS[status]} ({len(rows)})", *map(_line, rows[:most]))
        if len(rows) > most:
            yield f"  and {len(rows) - most} more: --verbose"


def _line(row: ParityRow) -> str:
    text = f"  {row.status.value:<8} {row.name:<26} {row.asked or '-':<16} {row.found or '-':<16}"
    return f"{text} {row.why}".rstrip()


@colab.command("probe")
def probe(
    gpu: ColabGpu = opt.of("--gpu: The card to ask Colab for.", "T4"),
    compare: Path | None = opt.of("--compare FILE: Say what changed since this earlier output."),
    output: Path | None = opt.of("--output, -o FILE: Write the report there."),
    login: Login | None = opt.of("--login: As `colab --auth` has it; adc for machines."),
    timeout: int = opt.of("--timeout: Seconds for the probe.", 900, min=60, max=86400),
    json_: bool = opt.JSON,
) -> int:
    """Run cudnn-verify on a fresh Colab runtime. The report is about the runtime, never about an image.

    Exit 0: it works; 1: the runtime is at fault; 5: nothing is known, or Google's `colab` is not here.
    """
    older = load_report(compare) if compare is not None else None
    with item(f"the runtime with {gpu}"):
        report, document = probe_runtime(gpu, probe=bundle(), older=older, login=login, seconds=timeout)
    if output is not None:
        save(document, output, gpu=gpu, at=datetime.now(UTC))
    if json_:
        print_json({"schema": 1, "about": ABOUT, "gpu": gpu, "report": document})
    else:
        show(f"Colab, {gpu}: {report.verdict}: {report.summary}")
        for row in document.get("changes") or ():
            show(f"  {row['what']}: {_shown(row['before'])} -> {_shown(row['now'])}")
        if older is not None and not document.get("changes"):
            show("  nothing changed")
    if (seen := covered_class(report)) != gpu:
        say(f"warning: {gpu} was asked for, and the runtime has {seen or 'no GPU'}")
        return MissingToolError.exit_code
    return {"works": 0, "broken": 1, "unsupported-gpu": 1}.get(report.verdict, MissingToolError.exit_code)


def _shown(value: object) -> str:
    return "-" if value is None else shown(str(value), most=100)
