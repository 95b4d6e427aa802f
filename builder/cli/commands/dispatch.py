"""``rtbuild dispatch``: every claimed (cell, card) verified, or every cell built, by a scheduler, whose nodes
run ``rtbuild verify-digest``; and ``rtbuild doctor``: a check of this machine, or of a fleet, with remedies.
"""

import functools
import math
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from builder import __version__
from builder.cli import options as opt
from builder.cli.boundary import INTERRUPTED, command_line
from builder.cli.console import Case, CaseStatus, CountTable, Terminal, junit_xml, print_json, say, show
from builder.core import resources
from builder.core.documents import redact, shown
from builder.core.errors import MissingToolError, RegistryError, RtbuildError, UsageError
from builder.core.files import write_whole
from builder.image.engine import DoctorCheck, Engine, diagnose, network
from builder.image.recipe import bundle
from builder.release.dispatch import (
    Follower,
    Scheduler,
    TaskState,
    building,
    exit_code,
    load_fleet,
    missing,
    rendered_cells,
    try_fleet,
    verifying,
)
from builder.release.dispatch import verify_digest as verify
from builder.sources.net import proxies
from builder.sources.oci import Registry
from builder.verify.evidence import People, Signer

_MOST_LINES = 200
"""Tasks that are told of one by one, and cells in the table."""
_EVERY = 50.0
"""Seconds between the counts of more tasks."""
_TROUBLE = 25.0
"""Seconds after which it is said again that registry or scheduler does not answer."""
_SHORT = {"works": "works", "broken": "BROKEN", "unsupported-gpu": "UNSUPPORTED", "built": "built"}


def dispatch(
    matrices: list[Path] | None = opt.MATRICES,
    fleet: Path = opt.of("--fleet FILE: Scheduler and classes of GPUs.", Path("fleet.yaml")),
    select: list[str] | None = opt.SELECT,
    skip: list[str] | None = opt.SKIP,
    from_: str | None = opt.of("--from REPOSITORY: Where `build --push` put the images."),
    reported_by: list[str] | None = opt.REPORTED_BY,
    build: bool = opt.of("--build: Build what staging lacks, on nodes without a GPU.", False),
    dry_run: bool = opt.of("--dry-run: Print the batch scripts or manifests; submit nothing.", False),
    format_: Scheduler | None = opt.of(
        "--format NAME: For slurm, kubernetes or dstack, not the fleet's own."
    ),
    collect: bool = opt.of("--collect: Attach the reports in logs of tasks that ran; submit nothing.", False),
    wait: bool = opt.of("--wait: Stay until every task has a verdict; submit lost ones again.", False),
    every: float = opt.of("--every: With --wait: seconds between looks.", 15, min=0.2, max=86400),
    junit: Path | None = opt.of("--junit: Write the outcome as JUnit XML."),
    json_: bool = opt.JSON,
) -> int:
    """Leave out what has a verdict, or with --build an image; saying it twice submits once."""
    chosen, cells = opt.choose_to_write(matrices, select, skip)
    if collect and (dry_run or wait or build):
        raise UsageError("--collect goes without --dry-run, --wait and --build")
    asked, probe, registry = load_fleet(fleet), bundle(), Registry.to_write(layers=False)
    asked = asked.model_copy(update={"scheduler": format_ or asked.scheduler})
    reporters = People.named(reported_by or (), "--reported-by")
    rendered = list(rendered_cells(chosen, cells, fleet=asked, staging=from_, probe=probe))
    # once, and not at every look
    warn = functools.cache(lambda text: say(f"warning: {text}"))

    broken: dict[str, str] = {}
    told = -math.inf

    def trouble(error: RtbuildError | None) -> None:
        """A look that failed, which is said again after a while; None for the first that did not."""
        nonlocal told
        if error is None:
            warn.cache_clear()
            told = -math.inf
            say("registry and scheduler answer again")
        elif time.monotonic() - told > _TROUBLE:
            told = time.monotonic()
            say(f"warning: {error.message}; it is asked again")

    try:
        if build:
            work = building(registry, rendered, asked, say=say, warn=warn, lost=broken)
        else:
            work = verifying(registry, rendered, asked, probe, reporters, say=say, warn=warn, lost=broken)
        by_logs = not dry_run and (collect or asked.scheduler != "dstack")
        there = (work.known if by_logs else work.reported)(work.tasks)
        left = missing(work.tasks, there)
        if dry_run:
            show(*(text.removesuffix("\n") for text in work.rendered(left).values()))
            return 0
        done = "are built" if build else "have a verdict"
        say(f"{len(work.tasks)} tasks: {len(there)} {done}, {len(left)} to run")
        follower = Follower(work=work)
        if not collect:
            follower.submit(left)
    except RegistryError as error:  # nobody knows anything about an image yet
        raise MissingToolError(error.message, hint=error.hint) from error
    cancel = threading.Event()
    rows = _waited(follower, cancel, every, trouble) if wait else follower.look()
    if json_:
        print_json({"schema": 1, "tasks": [_document(row) for row in rows], "left_out": broken})
    else:
        show(*_table(rows), *(f"{cell} is left out: {why}" for cell, why in broken.items()))
    if junit is not None:
        cases = list(map(_case, rows))
        with opt.writing(junit):
            write_whole(junit, junit_xml(cases, command=command_line(), started=datetime.now(UTC)))
    if cancel.is_set():
        say("the tasks go on; the same command follows them again")
        return INTERRUPTED
    return (exit_code(rows) if wait or collect else 5 if follower.refused else 0) or int(bool(broken))


def _waited(
    follower: Follower, cancel: threading.Event, every: float, trouble: Callable[[RtbuildError | None], None]
) -> Sequence[TaskState]:
    """The last look, after all have ended or somebody pressed Ctrl-C, which sets ``cancel``."""
    before = signal.signal(signal.SIGINT, lambda *_: cancel.set())
    terminal = Terminal.of()
    try:
        with CountTable(terminal) if terminal.progress == "tty" else nullcontext() as table:
            told = _Changes(len(follower.work.tasks), table)
            return follower.wait(cancel, seconds=every, say=told, warn=trouble)
    finally:
        signal.signal(signal.SIGINT, before)


def verify_digest(
    image: str = opt.of("REPOSITORY@DIGEST: The image to verify.", ...),
    card: str = opt.of("--card: The class of GPU that this machine should have.", ...),
    runtime: Literal["auto", "docker", "podman", "apptainer", "singularity"] = opt.of(
        "--runtime: What runs the container.", "auto"
    ),
    seconds: int = opt.of("--timeout: Time limit in seconds.", 2400, min=10, max=86400),
    suite: list[str] | None = opt.of(
        "--suite NAMES: Suites that the probe runs besides `conv`, separated by commas. May be repeated."
    ),
    suggested: list[str] | None = opt.of(
        "--suggested NAMES $RTBUILD_SUGGESTED: Suites that it runs without effect on the verdict."
    ),
    key: str | None = opt.REPORT_KEY,
    hand_in: bool = opt.of("--hand-in: Run nothing; hand in a report that is kept here.", False),
    keep_images: int = opt.of(
        "--keep-images GB: Of the images pulled for tasks, as much stays here.", 50, min=0, max=100_000
    ),
) -> int:
    """Exit as the probe's verdict says; 75: the registry is away, 76: the report is kept on this machine."""
    repository, at, digest = image.partition("@")
    if not at or not digest.startswith("sha256:"):
        raise UsageError(f"{image} names no digest", hint="as in registry.example/staging@sha256:…")
    try:
        found = verify(
            Registry.to_write(layers=False),
            repository,
            digest,
            card=card,
            tool=None if runtime == "auto" else runtime,
            seconds=seconds,
            suites=opt.suites(suite),
            suggested=opt.suites(suggested),
            signer=Signer(key=key) if key else None,
            hand_in=hand_in,
            keep_images=keep_images,
        )
    except RtbuildError as error:
        _give_reason(error.message)
        raise
    _give_reason(found.message)
    say(f"{found.message}{', the report is beside the image' if found.attached else ''}")
    return found.exit_code


@dataclass
class _Changes:
    """Says what has changed: each task, or of more than :data:`_MOST_LINES` the counts of each class.

    On a terminal the counts stand in a table, and only what is lost is said.
    """

    total: int
    table: CountTable | None = None
    rows: dict[str, TaskState] = field(default_factory=dict)
    """The last state of each task, by its key."""
    counts: dict[str, str] = field(default_factory=dict)
    """The last line on each class."""
    reasons: set[str] = field(default_factory=set)
    at: float = -math.inf

    def __call__(self, changed: Sequence[TaskState]) -> None:
        if self.table is None and self.total <= _MOST_LINES:
            say("\n".join(f"{row.task.cell}, {row.task.column}: {_word(row)}" for row in changed))
            return
        self.rows |= {row.task.key: row for row in changed}
        lost = Counter(row.word for row in self.rows.values() if row.state == "lost")
        for word in sorted(lost.keys() - self.reasons)[:_MOST_LINES]:  # at once: somebody may have to act
            say(f"lost, tasks: {lost[word]}: {word}")
        self.reasons |= lost.keys()
        over = not any(row.state == "waiting" for row in self.rows.values())
        if self.table is None and not over and time.monotonic() - self.at < _EVERY:
            return
        self.at = time.monotonic()
        found: dict[str, Counter[str]] = {}
        for row in self.rows.values():
            found.setdefault(row.task.column, Counter())[_state(row)] += 1
        if self.table is not None:
            self.table.draw(found)
            return
        for name, states in sorted(found.items()):
            line = ", ".join(f"{count:,} {state}" for state, count in sorted(states.items()))
            if self.counts.get(name) != line:
                self.counts[name] = line
                say(f"{name}: {line}")


def _state(row: TaskState) -> str:
    return _SHORT[row.verdict.verdict] if row.verdict else row.state


def _give_reason(text: str) -> None:
    """For the batch script, which puts it into the scheduler's own field."""
    if place := os.environ.get("RTBUILD_REASON"):
        try:
            Path(place).write_text(shown(" ".join(text.split()), most=400), encoding="utf-8")
        except OSError as error:  # a full disk is no reason to lose a verdict
            say(f"the reason cannot be handed to the job's script: {error}")


def _word(row: TaskState) -> str:
    if row.verdict is None:
        return f"{row.state}: {row.word}"
    cause = f": {row.verdict.cause}" if row.verdict.cause else ""
    card = f" ({row.verdict.gpu}, driver {row.verdict.driver})" if row.verdict.gpu else ""
    return f"{row.verdict.verdict}{cause}{card}"


def _table(rows: Sequence[TaskState]) -> Iterator[str]:
    """Cells down, classes across; of many cells those that are not good."""
    classes = sorted({row.task.column for row in rows})
    states: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        states.setdefault((row.task.matrix, row.task.cell), {})[row.task.column] = _state(row)
    if len(states) > _MOST_LINES:
        good = {cell for cell, found in states.items() if {*found.values()} <= {"works", "built"}}
        if good:
            yield f"{len(good):,} of {len(states):,} cells are good on every class; the others:"
        states = {cell: found for cell, found in states.items() if cell not in good}
    width = max((len(cell) for _, cell in states), default=0)
    yield " ".join([" " * width, *(f"{name:>12}" for name in classes)])
    for (_, cell), found in states.items():
        yield " ".join([f"{cell:<{width}}", *(f"{found.get(name, '-'):>12}" for name in classes)])


def _document(row: TaskState) -> dict[str, Any]:
    return {
        "key": row.task.key,
        "cell": row.task.cell,
        "matrix": row.task.matrix,
        "class": row.task.column,
        "image": row.task.image,
        "state": row.state,
        **dict.fromkeys(("verdict", "cause", "gpu", "driver")),
        **(vars(row.verdict) if row.verdict else {}),
        "scheduler": row.word,
    }


def _case(row: TaskState) -> Case:
    if row.verdict is None:
        status = CaseStatus.SKIPPED if row.state == "waiting" else CaseStatus.ERROR
    else:
        status = CaseStatus.PASSED if row.verdict.verdict in {"works", "built"} else CaseStatus.FAILED
    return Case(
        suite=row.task.matrix,
        name=f"{row.task.cell}, {row.task.column}",
        status=status,
        word=_word(row),
        kind=(row.verdict.cause or row.verdict.verdict) if row.verdict else row.state,
    )


_MARKS = {"passed": ("✓", "32"), "failed": ("✗", "31;1"), "not_run": ("⊘", "33")}


def doctor(
    fleet: Path | None = opt.of("--fleet FILE: Ask the scheduler about each class of the fleet instead."),
    context: str | None = opt.CONTEXT,
    network_: bool = opt.of(
        "--network: Ask the hosts that a build asks instead: what a proxy has to allow.", False
    ),
    json_: bool = opt.JSON,
) -> int:
    """Exit 0 if everything that building needs is here, or the scheduler would take each task, or each host
    answers; else 5.
    """
    given = {"--network": network_, "--fleet": fleet is not None, "--context": context is not None}
    if sum(given.values()) > 1:
        names = " and ".join(name for name, is_given in given.items() if is_given)
        raise UsageError(f"{names} ask different things", hint="call doctor once for each")
    if network_:
        return _network(as_json=json_)
    if fleet is not None:
        answers = try_fleet(load_fleet(fleet))  # nothing is submitted
        if json_:
            print_json({"schema": 1, "classes": answers})
        else:
            show(*(f"{name}: {problem or 'would be taken'}" for name, problem in answers.items()))
        return 5 if any(answers.values()) else 0
    engine: Engine | MissingToolError
    try:
        engine = Engine.connect(context=context)
    except MissingToolError as error:
        engine = error
    checks = diagnose(engine, cache=resources.cache())
    missing = [check for check in checks if check.required and check.outcome == "failed"]
    if json_:
        rows = [dict(vars(check)) for check in checks]
        uses = {use: not lacks for use, _, lacks in _uses(checks)}
        print_json(
            {"schema": 1, "rtbuild": __version__, "ready": not missing, "ready_for": uses, "checks": rows}
        )
    else:
        terminal = Terminal.of(stream=sys.stdout)
        for use, commands, lacks in _uses(checks):
            mark = terminal.style(*_MARKS["failed" if lacks else "passed"])
            why = f"; it lacks {' and '.join(lacks)}, see below" if lacks else ""
            show(f"{mark} {'not ' * bool(lacks)}ready to {use} ({commands}){why}", hang=4)
        show("")
        width = max(len(check.name) for check in checks)
        for check in checks:
            mark = terminal.style(*_MARKS[check.outcome])
            show(f"{mark} {check.name:<{width}}  {check.found}", hang=width + 4)
            if check.remedy and check.outcome != "passed":
                show(f"  {'':<{width}}  → {check.remedy}", hang=2)
    return 5 if missing else 0


def _uses(checks: Sequence[DoctorCheck]) -> Iterator[tuple[str, str, list[str]]]:
    """What this machine is used for, the commands, and the checks that keep it from that."""
    by = {check.name: check.outcome for check in checks}
    yield "plan", "resolve, check, diagnose, lock, export", ["uv"] * (by["uv"] != "passed")
    needed = [check.name for check in checks if check.required and check.outcome != "passed"]
    alone = "; without an engine `rtbuild build --engine none`" * (needed == ["engine"])
    yield "build", f"build, up{alone}", needed
    yield "verify", "verify, run, up: images on a GPU", needed + ["GPU"] * (by["GPU"] != "passed")


def _network(*, as_json: bool) -> int:
    say("asking each for something small: half a minute at most")
    found = network(opt.mirrors(None))
    if as_json:
        print_json({"schema": 1, "asked": [vars(one) for one in found]})
        return 5 if any(one.problem for one in found) else 0
    through = {name: redact(url) for name, url in proxies(os.environ).items() if name.isupper()}
    terminal = Terminal.of(stream=sys.stdout)
    for one in found:
        mark = terminal.style(*_MARKS["failed" if one.problem else "passed"])
        show(f"{mark} {', '.join(one.hosts) or 'no host named'}   {one.use} (others: {one.setting})", hang=2)
        if one.problem:
            show(f"  → {one.problem}; hosts that it leads to are not known", hang=4)
    said = ", ".join(f"{name}={url}" for name, url in through.items())
    say(f"through {said}" if said else "no proxy is set: HTTPS_PROXY, HTTP_PROXY")
    failed = sum(one.problem is not None for one in found)
    show(f"hosts to allow: {' '.join(dict.fromkeys(host for one in found for host in one.hosts))}")
    show(f"{failed} of {len(found)} not answered to the end" if failed else "all answered")
    return 5 if failed else 0
