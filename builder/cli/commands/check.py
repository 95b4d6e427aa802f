"""``rtbuild check`` and ``rtbuild explain``: can these cells work, before anything is built, and why not?"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from builder.cli import options as opt
from builder.cli.boundary import ask_probe, command_line, is_text
from builder.cli.console import (
    Case,
    CaseStatus,
    Terminal,
    counted,
    human_bytes,
    junit_xml,
    print_json,
    say,
    show,
)
from builder.core.errors import CellError, NothingSelectedError, UsageError
from builder.core.files import write_whole
from builder.core.items import item
from builder.core.model import Cell, Matrix
from builder.plan.facts.reading import ReadingCache, Truth, system_of
from builder.plan.facts.rules import Finding, Outcome
from builder.plan.facts.rules import check as check_cell
from builder.plan.lock import LockEntry, LockStatus, lock_path, pinned_cell, read_lock, state, status
from builder.plan.matrix import Replacement, amend, cell_id, entry

FAULT = "fault"
"""The rule of a finding on a cell that could not be judged."""
_UNASKED = "whether all packages load and import was not asked"
_MARKS = {
    Outcome.POSSIBLE: ("✓", "32"),
    Outcome.WARNS: ("!", "33"),
    Outcome.UNKNOWN: ("⊘", "33"),
    Outcome.IMPOSSIBLE: ("✗", "31;1"),
}
_WORDS = {
    Outcome.IMPOSSIBLE: ("impossible", "Refused because:"),
    Outcome.UNKNOWN: ("unknown", "Not known:"),
    Outcome.WARNS: ("possible, with a reservation", "Mind:"),
    Outcome.POSSIBLE: ("possible: nothing speaks against it", "Checked:"),
}
"""For a whole cell, and above the findings; the worst first."""


def check(
    matrices: list[Path] | None = opt.MATRICES,
    select: list[str] | None = opt.SELECT,
    skip: list[str] | None = opt.SKIP,
    gpu: list[str] | None = opt.CARDS,
    driver: list[str] | None = opt.DRIVERS,
    read: bool = opt.READ,
    deep: bool = opt.DEEP,
    mirror: list[str] | None = opt.MIRROR,
    fix: bool = opt.of(
        "--fix: Change the files: exclude impossible cells, and write the nearest possible ones.",
        False,
    ),
    junit: Path | None = opt.of("--junit FILE: Write the answers as JUnit XML; what is unknown is skipped."),
    json_: bool = opt.JSON,
    verbose: int = opt.VERBOSE,
) -> int:
    """Exit 1 if a cell is impossible, or cannot be judged; with ``fix``, if nothing could be done for one."""
    opt.refuse_machine(gpu or (), None, partial(opt.drivers, driver))
    loaded, cells = opt.choose(matrices, select, skip)
    cells = _on(cells, gpu)
    found, read_, unproven = _judge(loaded, cells, driver=driver, read=read, deep=deep, mirror=mirror)
    refused = [cell.id for cell, findings in found.items() if Outcome.of(findings) is Outcome.IMPOSSIBLE]
    helpless = _fix(loaded, found) if fix else refused
    helpless += [cell.id for cell, findings in found.items() if _is_fault(findings)]
    if junit is not None:
        cases = [_case(cell, findings) for cell, findings in found.items()]
        with opt.writing(junit):
            write_whole(junit, junit_xml(cases, command=command_line(), started=datetime.now(UTC)))
    if json_:
        print_json(_document(cells, found, read_, unproven), "cells")
        return 1 if helpless else 0
    if read_ is not None:
        size = human_bytes(read_["bytes"])
        say(f"read {read_['wheels']} wheels ({size}) and {read_['bases']} bases in {read_['seconds']:.1f} s")
    terminal = Terminal.of(stream=sys.stdout)
    width = max(len(cell.id) for cell in found)
    for cell, findings in found.items():
        outcome = Outcome.of(findings)
        show(f"{terminal.style(*_MARKS[outcome])} {cell.id:<{width}}  {outcome.answer}", hang=2)
        for finding in findings:
            if finding.outcome is not Outcome.POSSIBLE or verbose:
                show(f"    {finding.rule}: {finding.message}", hang=2)
        way_out = next((finding.nearest for finding in findings if finding.nearest is not None), None)
        if way_out is not None:
            show(f"    possible instead ({way_out}):", way_out.yaml.removesuffix("\n"))
    for text, number in Counter(_of_kernels(found)).items():
        show(f"in {counted(number, 'cell')}: {text}", hang=2)
    open_ = [why for cell, why in unproven.items() if Outcome.of(found[cell]) is not Outcome.IMPOSSIBLE]
    for why, number in Counter(filter(None, open_)).items():
        show(f"in {counted(number, 'cell')}: {_UNASKED}: {why}", hang=2)
    if refused:
        show(f"{len(refused)} of {len(found)} impossible; `rtbuild explain CELL` says why")
    return 1 if helpless else 0


def _is_fault(findings: Sequence[Finding]) -> bool:
    """Whether the cell could not be judged."""
    return any(one.rule == FAULT for one in findings[:1])


def _case(cell: Cell, findings: Sequence[Finding]) -> Case:
    """A cell's answer as a test case: skipped if it is unknown, an error if it could not be judged."""
    outcome = Outcome.of(findings)
    mine = [one for one in findings if one.outcome is outcome and outcome is not Outcome.POSSIBLE]
    status = {Outcome.IMPOSSIBLE: CaseStatus.FAILED, Outcome.UNKNOWN: CaseStatus.SKIPPED}.get(outcome)
    first = mine[0] if mine else None
    return Case(
        suite=cell.matrix,
        name=cell.id,
        status=CaseStatus.ERROR if _is_fault(findings) else status or CaseStatus.PASSED,
        word=outcome.answer,
        kind=first.rule if first is not None else "",
        message=first.message.partition("\n")[0] if first is not None else "",
        text="\n".join(f"{one.rule}: {one.message}" for one in mine),
    )


def _of_kernels(found: Mapping[Cell, Sequence[Finding]]) -> Iterator[str]:
    """Remarks on kernels that cells do not compile and do without; each is said once, not for each cell."""
    for findings in found.values():
        for finding in findings:
            if finding.rule == "kernels" and finding.outcome is Outcome.POSSIBLE:
                yield finding.message


def explain(
    cell: str = opt.of("CELL|CAUSE|TEXT: A cell's id or glob; a cause's id; an error message.", ...),
    matrices: list[Path] | None = opt.MATRICES,
    gpu: list[str] | None = opt.CARDS,
    driver: list[str] | None = opt.of("--driver: The driver to answer for; may be repeated."),
    read: bool = opt.READ,
    deep: bool = opt.DEEP,
    mirror: list[str] | None = opt.MIRROR,
    json_: bool = opt.JSON,
) -> int:
    """Everything about one cell's verdict, as JSON the same as ``check``; exit 1 if it is impossible, or
    cannot be judged.
    """
    if is_text(cell) or not (matrices or opt.matrix_files()):
        return ask_probe("--explain", cell)
    loaded = opt.load_all(matrices)
    try:
        chosen = opt.choose_one(loaded, cell)
    except NothingSelectedError as none:
        try:
            return ask_probe("--explain", cell)
        except UsageError as neither:
            said = f"no cell matches '{cell}', and {neither.message}"
            raise NothingSelectedError(said, hint=none.hint) from neither
    (chosen,) = _on([chosen], gpu)
    found, read_, unproven = _judge(loaded, [chosen], driver=driver, read=read, deep=deep, mirror=mirror)
    findings = found[chosen]
    if json_:
        print_json(_document([chosen], found, read_, unproven), "cells")
    else:
        show(verdict_text(chosen, findings).removesuffix("\n"))
        if (why := unproven[chosen]) is not None and Outcome.of(findings) is not Outcome.IMPOSSIBLE:
            show(f"{_UNASKED}: {why}")
    return 1 if Outcome.of(findings) is Outcome.IMPOSSIBLE or _is_fault(findings) else 0


def verdict_text(cell: Cell, found: Sequence[Finding]) -> str:
    """The answer, what the cell is, what each rule says of it with its sources, the nearest possible cell."""
    lines = [
        f"{cell.id}: {_WORDS[Outcome.of(found)][0]}",
        "",
        f"  frameworks  {', '.join(cell.frameworks)}",
        f"  python      {_python(cell)}",
        f"  base        {cell.base}",
        f"  cuda        {', '.join((cell.cuda.provider, *cell.cuda.packages))}",
    ]
    if cell.gpus:
        lines.append(f"  gpus        {', '.join(cell.gpus)}")
    for outcome, (_, heading) in _WORDS.items():
        group = [finding for finding in found if finding.outcome is outcome]
        lines += ["", heading] if group else []
        for finding in group:
            lines.append(f"  {finding.rule}: {finding.message}")
            lines += [f"      {value.what}: {value.text}  [{value.source}]" for value in finding.values]
    way_out = next((finding.nearest for finding in found if finding.nearest is not None), None)
    if way_out is not None:
        lines += ["", f"The nearest possible cell ({way_out}):", way_out.yaml.rstrip()]
    return "\n".join(lines) + "\n"


def _python(cell: Cell) -> str:
    """``3.12, standalone (Debian bookworm has 3.11)``; the version alone if it is the base's own."""
    system = system_of(cell)
    if cell.has_own_python(system):
        return cell.python
    there = f" ({system.name} has {', '.join(system.python)})" if system is not None else ""
    return f"{cell.named_python}, standalone{there}"


def _on(cells: Sequence[Cell], gpu: Sequence[str] | None) -> tuple[Cell, ...]:
    """The cells with the cards of ``--gpu`` beside their own. Raises UsageError for an unknown one."""
    cards = [opt.card(text) for text in gpu or ()]
    return tuple(replace(cell, gpus=tuple(dict.fromkeys((*cell.gpus, *cards)))) for cell in cells)


def _judge(
    matrices: list[Matrix],
    cells: Sequence[Cell],
    *,
    driver: list[str] | None,
    read: bool,
    deep: bool,
    mirror: list[str] | None,
) -> tuple[dict[Cell, tuple[Finding, ...]], dict[str, Any] | None, dict[Cell, str | None]]:
    """Findings of the rules by cell, from locks that fit and from metadata that was read; and why the proofs
    by links and imports were not asked, with the command that asks them. Cells of two matrices may have one
    id.

    ``read`` reads wheels and bases anew, ``deep`` up to 16 MiB of a wheel, and the figures of it are given,
    too; without them, earlier readings count, and no network is asked.
    """
    asked, mirrors, figures = opt.drivers(driver), opt.mirrors(mirror), None
    truths: dict[Cell, Truth] = {}
    locks = {matrix.name: read_lock(lock_path(matrix.path)) for matrix in matrices}
    pairs = [(cell, pinned_cell(cell, locks[cell.matrix])) for cell in cells]
    for matrix in matrices:
        _say_ignored(matrix, [cell for cell in cells if cell.matrix == matrix.name], locks[matrix.name])
    readings = ReadingCache(mirrors=mirrors)
    if read or deep:
        from builder.plan.facts.reading import read_cells
        from builder.sources.index import Index
        from builder.sources.oci import Registry

        index, registry = Index.from_user(brief=True), Registry.from_user(mirrors)
        reading = read_cells(pairs, index=index, registry=registry, readings=readings, deep=deep)
        truths = dict(zip(cells, reading.truths, strict=True))
        figures = {
            "wheels": reading.wheels,
            "bases": reading.bases,
            "bytes": reading.transferred,
            "seconds": round(reading.seconds, 3),
        }

    found: dict[Cell, tuple[Finding, ...]] = {}
    unproven: dict[Cell, str | None] = {}
    for cell, pinned in pairs:
        step = "rtbuild lock" if pinned is None else "" if deep else "rtbuild check --read --deep"
        try:
            with item(cell.id):
                truth = truths[cell] if cell in truths else readings.truth(cell, pinned, links=True)
                found[cell] = _for_all(cell, truth, asked)
                why = truth.unproven
        except CellError as error:
            found[cell] = (Finding(Outcome.UNKNOWN, error.message, rule=FAULT),)
            why, step = "the cell could not be judged", ""
        unproven[cell] = f"{why}; next: `{step}`" if why and step else why
    return found, figures, unproven


def _for_all(cell: Cell, truth: Truth, drivers: Sequence[str]) -> tuple[Finding, ...]:
    """The findings of a cell; of several drivers those that all have, then each one's own, which names it."""
    if len(drivers) < 2:
        return check_cell(cell, truth, driver=next(iter(drivers), None))
    by_driver = {one: check_cell(cell, truth, driver=one) for one in drivers}
    common = [one for one in by_driver[drivers[0]] if all(one in found for found in by_driver.values())]
    own = (
        replace(
            one,
            message=one.message
            if f"driver {driver} " in one.message
            else f"with driver {driver}: {one.message}",
        )
        for driver, found in by_driver.items()
        for one in found
        if one not in common
    )
    return (*common, *own)


def _say_ignored(matrix: Matrix, cells: Sequence[Cell], entries: Mapping[str, LockEntry]) -> None:
    """One line if the lock has entries for cells that do not fit them; a cell never locked is no news."""
    wrong = [c for c in cells if status(c, entries) in {LockStatus.STALE, LockStatus.EDITED}]
    if wrong:
        more = f", and {counted(wrong[1:], 'more cell')}" if wrong[1:] else ""
        why = f"{wrong[0].id}: {state(wrong[0], entries)}{more}"
        say(f"note: {lock_path(matrix.path)}: {why}: judged without the lock; `rtbuild lock` renews it")


def _document(
    cells: Sequence[Cell],
    found: Mapping[Cell, tuple[Finding, ...]],
    read: dict[str, Any] | None,
    unproven: Mapping[Cell, str | None],
) -> dict[str, Any]:
    rows = [
        {
            "id": cell.id,
            "matrix": cell.matrix,
            "outcome": Outcome.of(found[cell]).value,
            "answer": Outcome.of(found[cell]).answer,
            "findings": [f.as_json() for f in found[cell]],
            "files_read": unproven[cell] is None,
            **({"files_unread": why} if (why := unproven[cell]) is not None else {}),
        }
        for cell in cells
    ]
    return {"schema": 1, "cells": rows} | ({"read": read} if read is not None else {})


def _fix(matrices: Sequence[Matrix], found: Mapping[Cell, tuple[Finding, ...]]) -> list[str]:
    """Put the nearest possible cell into its matrix for each impossible one; the ids of cells without any.

    Raises UsageError if a program cannot change the file; it stays as it is.
    """
    helpless = []
    named = {(cell.matrix, cell.id): findings for cell, findings in found.items()}  # `--gpu` changes a cell
    for matrix in matrices:
        there = {cell.id for cell in matrix.cells}
        replacements, said = [], list[str]()
        for cell in matrix.cells:
            findings = named.get((matrix.name, cell.id), ())
            refusal = next((f for f in findings if f.outcome is Outcome.IMPOSSIBLE), None)
            if refusal is None or cell.excluded is not None:
                continue
            if refusal.nearest is None:
                helpless.append(cell.id)
                continue
            reason = f"{refusal.rule}: {refusal.message}"[:200]
            new = _named(refusal.nearest.cell, cell)
            lines = tuple(entry(new)) if cell_id(new) not in there else ()
            there.add(cell_id(new))
            replacements.append(Replacement(cell=cell.id, reason=reason, entry=lines, id=cell_id(new)))
            said.append(f"{matrix.path}: {cell.id} excluded; in its place: {refusal.nearest}")
        if replacements:
            amend(matrix.path, replacements)
            say("\n".join(said))
    return helpless


def _named(new: Cell, old: Cell) -> Cell:
    """The new cell under an id of its own."""
    if old.variant:  # cells that differ in their packages alone
        return replace(new, variant=f"{old.variant}-fixed")
    return replace(new, variant="fixed") if cell_id(new) == old.id else new
