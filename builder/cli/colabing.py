"""``rtbuild colab import`` and ``rtbuild colab diff``."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from builder import resources
from builder.cli.boundary import INTERRUPTED
from builder.colab.diff import PRESENT_GOAL, SAME_GOAL, Parity, ParityRow, ParityStatus, compare, labelled
from builder.colab.imports import Imported, import_runtime, matrix_text, record, record_text
from builder.colab.listed import listed
from builder.colab.measure import measure
from builder.console import print_json, reporter, run_summary
from builder.debian.archive import Debian
from builder.engine import Engine
from builder.errors import UsageError
from builder.index.client import Index
from builder.matrix import load
from builder.pipeline import run as pipeline
from builder.pipeline.events import CellOutcome, RunStarted, Stage, StageFinished, StageProgress, StageStarted
from builder.pipeline.settings import Settings
from builder.recipe.bundle import bundle
from builder.sdist import Workshop

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from builder.colab.runtimes import Runtime
    from builder.console import Terminal
    from builder.model import Matrix, Profile
    from builder.pipeline.events import CellResult

_WORDS = {
    ParityStatus.SAME: "same",
    ParityStatus.OTHER: "other version",
    ParityStatus.MISSING: "missing",
    ParityStatus.EXTRA: "extra",
}
_SHOWN = 40
"""Rows of each kind in the table; --verbose and --json have them all."""


def import_lists(
    runtime: Runtime,
    output: Path,
    *,
    profile: Profile,
    lock: bool,
    build: bool,
    mirrors: Mapping[str, str],
    terminal: Terminal,
    json: bool,
) -> int:
    """Write the matrix and its record, and lock what can be locked here.

    Exits 1 where lines could not be read, or where cells were to be locked and none could be.
    """
    for problem in runtime.problems:
        terminal.say(str(problem))
    imported = _asked(runtime, profile, terminal, build=build)
    matrix_path = output / f"{imported.name}.yaml"
    try:
        output.mkdir(parents=True, exist_ok=True)
        matrix_path.write_text(matrix_text(imported), encoding="utf-8")
        (output / f"{imported.name}.runtime.json").write_text(record_text(imported), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error}") from error
    matrix = load(matrix_path)
    _say_import(imported, matrix, terminal)
    results = _lock(matrix, mirrors, terminal) if lock else []
    if json:
        outcomes = {result.cell.id: result.outcome.value for result in results}
        document = {"matrix": str(matrix_path), "locked": outcomes, **record(imported)}
        print_json(document)
    if any(result.outcome is CellOutcome.CANCELLED for result in results):
        return INTERRUPTED
    stuck = bool(results) and not any(result.outcome is CellOutcome.DONE for result in results)
    return 1 if runtime.problems or stuck else 0


def _asked(runtime: Runtime, profile: Profile, terminal: Terminal, *, build: bool) -> Imported:
    began = time.monotonic()
    debian = Debian.from_user()
    name, stage = f"colab-{runtime.name}", Stage.CHECK
    with reporter(terminal) as report:
        report(RunStarted(cells=(name,), stages=(stage,)))
        report(StageStarted(cell=name, stage=stage))
        imported = import_runtime(
            runtime,
            index=Index.from_user(brief=True),
            profile=profile,
            debian=debian,
            workshop=Workshop(debian=debian, cache=resources.cache()) if build else None,
            progress=lambda text, done, total: report(
                StageProgress(cell=name, stage=stage, text=text, done=done, total=total, quiet=True)
            ),
        )
        found = len(imported.matching.found)
        text = f"{found} of {len(runtime.packages)} packages are on the index"
        report(StageFinished(cell=name, stage=stage, seconds=time.monotonic() - began, text=text))
    return imported


def _say_import(imported: Imported, matrix: Matrix, terminal: Terminal) -> None:
    runtime, matching = imported.runtime, imported.matching
    terminal.say(
        f"{runtime.name}: {runtime.system or 'a system not named'}, Python {runtime.python}, "
        f"CUDA {runtime.cuda or 'not listed'}, cuDNN {runtime.cudnn or 'not listed'} by apt, "
        f"{len(runtime.packages)} Python packages"
    )
    for silent in matching.silent:
        terminal.say(f"not asked: {silent}")
    for kind, count in sorted(Counter(str(m.reason) for m in matching.missing).items()):
        terminal.say(f"not matched, {kind} ({count}):")
        if kind == "source-only" and not any(match.built for match in matching.found):
            terminal.say("  --from-source builds those that can be")
        for match in (m for m in matching.missing if m.reason == kind):
            terminal.say(f"  {match.package.name} {match.package.version or ''}: {match.detail}")
    for match in matching.found:
        if match.detail:
            terminal.say(f"note: {match.package.name} {match.package.version}: {match.detail}")
    for conflict in imported.conflicts:
        terminal.say(f"note: the list contradicts itself: {conflict}")
    if imported.unread:
        terminal.say(f"note: {imported.unread} wheels would not be read; they may contradict the list, too")
    for reason in imported.no_base:
        terminal.say(f"note: {reason}")
    found = len(matching.found)
    share = 100 * found / len(runtime.packages)
    terminal.say(
        f"{found} of {len(runtime.packages)} packages ({share:.1f} %) at Colab's version, "
        f"{len(imported.apt)} of {len(runtime.apt)} system packages; "
        f"{len(matrix.cells)} cell{'s' if len(matrix.cells) != 1 else ''} in {matrix.path}"
    )


def _lock(matrix: Matrix, mirrors: Mapping[str, str], terminal: Terminal) -> list[CellResult]:
    cells = [cell for cell in matrix.cells if cell.excluded is None]
    settings = Settings(mirrors=mirrors)
    with reporter(terminal) as report:
        results = pipeline.lock([matrix], cells, settings=settings, emit=report, cancel=threading.Event())
    terminal.say(run_summary(results, terminal))
    return results


def diff_image(
    image: str,
    against: str,
    *,
    check: bool,
    gpus: bool,
    context: str | None,
    terminal: Terminal,
    json: bool,
) -> int:
    """Print the parity; with ``check`` exit 1 where the goals are not reached."""
    runtime = listed(against)
    with Engine.connect(context=context) as engine:
        measured = measure(engine, image, probe=bundle(), labelled=labelled(runtime), gpus=gpus)
    parity = compare(runtime, measured)
    report = measured.report
    if json:
        probe: dict[str, Any] = {"verdict": report.verdict, "cause": report.cause, "summary": report.summary}
        print_json({"image": image, **parity.as_json(), "probe": probe})
    else:
        sys.stdout.write(_table(image, parity, verbose=terminal.verbose > 0))
        sys.stdout.write(f"cudnn-verify: {report.verdict}: {report.summary}\n")
    return 1 if check and not parity.reached else 0


def _table(image: str, parity: Parity, *, verbose: bool) -> str:
    """The figures, then every exception with its reason."""
    lines = [f"{image} against Colab {parity.runtime}", ""]
    lines += [_line(row) for row in parity.core]
    present = f"present {parity.present:.1f} % (goal {PRESENT_GOAL:g} %)"
    same = f"same version {parity.same:.1f} % (goal {SAME_GOAL:g} %)"
    counts = (f"{name} {parity.count(status)}" for status, name in _WORDS.items())
    lines += ["", f"  {parity.listed} other packages: {present}, {same}", f"  {', '.join(counts)}"]
    for status in (ParityStatus.OTHER, ParityStatus.MISSING, ParityStatus.EXTRA):
        rows = [row for row in parity.packages if row.status is status]
        if not rows:
            continue
        lines += ["", f"{_WORDS[status]} ({len(rows)})"]
        shown = rows if verbose else rows[:_SHOWN]
        lines += [_line(row) for row in shown]
        if len(shown) < len(rows):
            lines.append(f"  and {len(rows) - len(shown)} more: --verbose")
    return "\n".join(lines) + "\n"


def _line(row: ParityRow) -> str:
    text = f"  {row.status.value:<8} {row.name:<26} {row.asked or '-':<16} {row.found or '-':<16}"
    return f"{text} {row.why}".rstrip()
