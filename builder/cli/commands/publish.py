"""``rtbuild publish``: the plan or the deed, cell by cell, and one exit code."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from builder.cli import options as opt
from builder.cli.boundary import INTERRUPTED, command_line
from builder.cli.console import Case, CaseStatus, Progress, Terminal, counted, print_json, write_job_files
from builder.cli.walking import record, walk
from builder.core.errors import PublishRefusedError, UsageError
from builder.release.publish import Publication, PublishOptions, publication_document
from builder.release.publish import publish as publish_cells
from builder.verify.evidence import People, Signer, claim_text

_WORDS = {
    "published": "published",
    "unchanged": "there already, nothing changed",
    "planned": "would be published",
    "refused": "REFUSED",
    "failed": "FAILED",
    "cancelled": "cancelled",
}
_STATUS = {
    "published": CaseStatus.PASSED,
    "unchanged": CaseStatus.PASSED,
    "cancelled": CaseStatus.SKIPPED,
    "failed": CaseStatus.ERROR,  # the registry, or cosign: the gate has said nothing against it
}
"""A refused cell is a failed case."""


def publish(
    matrices: list[Path] | None = opt.MATRICES,
    select: list[str] | None = opt.SELECT,
    skip: list[str] | None = opt.SKIP,
    source: str | None = opt.of(
        "--from REPOSITORY: Where images were pushed by `build --push`; by default as the matrix says."
    ),
    target: str | None = opt.of("--to REPOSITORY: Where they are published; by default as the matrix says."),
    max_age: str | None = opt.of(
        "--max-age AGE: How old a report may be: 30d, 12h. By default as the matrix says, else 30d."
    ),
    dry_run: bool = opt.of("--dry-run: Show what would be published, and change nothing.", False),
    key: str | None = opt.of("--key KEY: Sign the evidence by cosign with this key: a file, or a KMS URI."),
    keyless: bool = opt.of("--keyless: Sign the evidence by cosign with the identity of the CI.", False),
    built_by: list[str] | None = opt.BUILT_BY,
    reported_by: list[str] | None = opt.REPORTED_BY,
    require_signed: bool = opt.of(
        "--require-signed: Demand both signatures; for one without a named key, the signature of --key.",
        False,
    ),
    overwrite: bool = opt.of(
        "--overwrite: Move also tags that another matrix or another tool has put.", False
    ),
    jobs: int = opt.of("--jobs, -j: Images at a time.", 2, min=1, max=1024),
    results: Path = opt.RESULTS,
    progress: Progress = opt.PROGRESS,
    quiet: bool = opt.QUIET,
    verbose: int = opt.VERBOSE,
    json_: bool = opt.JSON,
) -> int:
    """Put public tags on the digests that are known to work, with the evidence beside them; exit 6 else."""
    if key and keyless:
        raise UsageError("--key and --keyless exclude each other", hint="take one of them")
    signer = Signer(key=key) if key or keyless else None
    builders, reporters = _people(signer, built_by, reported_by, both=require_signed)
    options = PublishOptions(
        source=source,
        target=target,
        results=results,
        max_age=opt.age(max_age),
        dry_run=dry_run,
        overwrite=overwrite,
        signer=signer,
        builders=builders,
        reporters=reporters,
        jobs=jobs,
    )
    terminal = Terminal.of(progress, quiet=quiet, verbose=verbose)
    loaded, cells = opt.choose(matrices, select, skip)
    started, command = datetime.now(UTC), command_line()
    rows = walk(terminal, partial(publish_cells, loaded, cells, options))
    document = publication_document(rows, command=command, started=started, dry_run=dry_run)
    where = None if dry_run else record(document, results)
    if not dry_run:
        write_job_files(cases(rows), terminal, results, command=command, started=started)
    if json_:
        print_json(document)
    terminal.say(summary(rows, terminal, signed=signer is not None, dry_run=dry_run))
    if where is not None:
        terminal.say(f"record: {where}")
    return exit_code(rows)


def _people(
    signer: Signer | None, built_by: list[str] | None, reported_by: list[str] | None, *, both: bool
) -> tuple[People | None, People | None]:
    """The signers of whom an image and a report each need one. Raises UsageError."""
    named = [
        People.named(keys or (), option)
        for keys, option in ((built_by, "--built-by"), (reported_by, "--reported-by"))
    ]
    if both and None in named:
        if signer is None or signer.key is None:
            raise UsageError(
                "--require-signed, and nobody is named whose signature would count",
                hint="--built-by cosign.pub and --reported-by cosign.pub; or --key, whose holder did both",
            )
        own = People.holding(signer)
        named = [people or own for people in named]
    return named[0], named[1]


def exit_code(rows: Sequence[Publication]) -> int:
    """The exit code of a publication: a cell that was refused outweighs one that only failed."""
    codes = {"cancelled": INTERRUPTED, "refused": PublishRefusedError.exit_code, "failed": 1}
    states = {row.state for row in rows}
    return next((code for state, code in codes.items() if state in states), 0)


def cases(rows: Sequence[Publication]) -> list[Case]:
    """The cells as test cases for CI."""
    return [
        Case(
            suite=row.cell.matrix,
            name=row.cell.id,
            status=_STATUS.get(row.state, CaseStatus.FAILED),
            word=_WORDS[row.state],
            seconds=row.seconds,
            kind=row.refusals[0].kind if row.refusals else type(row.error).__name__ if row.error else "",
            message=row.refusals[0].text if row.refusals else row.error.message if row.error else "",
            text="\n".join([*_against(row), *_failures(row, dry_run=False)]),
            facts=_facts(row),
        )
        for row in rows
    ]


def _facts(row: Publication) -> dict[str, str]:
    if row.found is None or row.decision is None:
        return {}
    return {
        "GPUs": ", ".join(row.decision.claims) or "none",
        "tags": ", ".join(step.name for step in row.steps) or "none",
        "digest": row.found.staged.digest,
    }


def _against(row: Publication) -> list[str]:
    """The reasons why a cell is not published, each with its hint."""
    said = [(f"REFUSED: {refusal.text} ({refusal.kind})", refusal.hint) for refusal in row.refusals]
    if row.error is not None:
        said.append((f"FAILED: {row.error.message}", row.error.hint))
    return [text + (f"\n  hint: {hint}" if hint else "") for text, hint in said]


def _failures(row: Publication, *, dry_run: bool) -> list[str]:
    """Failed verifications attached to public images of a cell, and the tags that still point there."""
    lines: list[str] = []
    for found in row.failures:
        if found.there:
            word = "was there, and is signed now" if found.new else "is there already"
        elif dry_run:
            word = "would be attached"
        else:
            word = "is attached" if found.attached is not None else "could not be attached"
        lines.append(f"{row.cell.id}: a FAILED verification of a public image {word}")
        lines += [f"  {row.target}@{found.image.digest}", f"    {found.failure.text}"]
        if found.tags:
            lines.append(f"    still on it, until a digest that works is published: {', '.join(found.tags)}")
    return lines


def summary(rows: Sequence[Publication], terminal: Terminal, *, signed: bool, dry_run: bool) -> str:
    """Digest, claims and tags of each published cell, the counts, and a warning if nothing is signed."""
    lines: list[str] = []
    for row in rows if terminal.progress == "none" else ():  # else it was said when the cell ended
        lines += [f"{row.cell.id}: {text}" for text in _against(row)]
    for row in rows:
        wanted = row.state in ("published", "unchanged", "planned")
        if not wanted or row.found is None or row.decision is None:
            continue
        lines += [f"{row.cell.id}: {_WORDS[row.state]}", f"  {row.target}@{row.found.staged.digest}"]
        lines.append(f"  known to work on {claim_text(row.decision.drivers)}")
        machines = {
            (", ".join(name for name, _ in entry.key.gpus), entry.key.driver or "?", f"{entry.verified:%F}")
            for entry in row.decision.counted
        }
        lines += [f"    {gpus}, driver {driver}, {day}" for gpus, driver, day in sorted(machines)]
        if row.decision.exempt:
            lines.append(f"  not claimed: {', '.join(row.decision.exempt)}")
        for step in row.steps:
            was = f" (was {step.was[:19]}…)" if step.was and step.action == "move" else ""
            lines.append(f"  {step.action:5} {row.target}:{step.name}{was}")
    for row in rows:
        lines += _failures(row, dry_run=dry_run)
    counts = {state: sum(row.state == state for row in rows) for state in _WORDS}
    words = ", ".join(f"{count} {_WORDS[state]}" for state, count in counts.items() if count)
    lines.append(f"{counted(rows, 'cell')}: {words}")
    said = any(not found.there for row in rows for found in row.failures)
    if (counts["published"] + counts["planned"] or said) and not signed:
        what = f"the evidence {'would be' if dry_run else 'is'} published without a signature"
        lines.append(terminal.style(f"NOT SIGNED: {what}. Sign it with --key or --keyless.", "33;1"))
    return "\n".join(lines)
