"""From a staged image to public tags: the gate, the copy by digest, the evidence, and at last the tags; and
reports against images that are public already.

A published digest that is found broken later keeps its tags: the gate refuses a new publication and undoes
none. So the report is attached to the public digest as a failed verification, for users who check it. This
applies to the digest that is staged now, to those that the cell's moving tags name, and to those that reports
in the results folder name.
"""

import contextlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from itertools import groupby

from builder import __version__
from builder.core.errors import (
    CancelledError,
    CellError,
    EvidenceError,
    PublishRefusedError,
    RegistryError,
    UsageError,
)
from builder.core.items import item
from builder.core.model import Cell, Matrix
from builder.image.recipe import bundle, render
from builder.pipeline import (
    PUBLISHING,
    CellOutcome,
    CellResult,
    CellRun,
    Hooks,
    Locks,
    MadeImages,
    RunStarted,
    Stage,
    each,
)
from builder.plan.lock import lock_path
from builder.release.publish.gate import (
    Decision,
    Failing,
    Found,
    Publication,
    PublishOptions,
    TagKind,
    decide,
    moving_tags,
    refuse_clashes,
    steps,
    tags_of,
)
from builder.sources.oci import (
    CELL_LABEL,
    MATRIX_LABEL,
    MovedTagError,
    NoImageError,
    Registry,
    Staged,
    Tally,
    copy_image,
    find_staged,
    parse_reference,
    put_tag,
    read_image,
    repository_of,
    staged_tag,
)
from builder.verify.evidence import (
    Cosign,
    Evidence,
    JudgedReport,
    Policy,
    Refusal,
    Signer,
    Statement,
    attach_statements,
    clocks_apart,
    denied,
    failure_statement,
    gather,
    judge,
    origin_of,
    shared,
    standing,
    statements,
    without_exempt,
)
from builder.verify.runner import AGAINST_IMAGE, Damaged, Expectation, ReportStore, SealedReport


def public_failures(registry: Registry, target: str, image: Staged) -> tuple[JudgedReport, ...]:
    """Standing judgements against an image, from all statements beside it in the public repository.

    Raises RegistryError.
    """
    if registry.digest_of(f"{target}@{image.digest}") is None:
        return ()
    gathered = gather(registry, parse_reference(target).at(image.digest))
    if gathered.unread:
        raise RegistryError(
            f"{gathered.unread} of the documents beside {target}@{image.digest} could not be read, and one "
            "may say that the image is broken",
            hint="try again; if the registry never gives them, delete those entries there",
        )
    words = _credible([piece.statement for piece in gathered.pieces], image, datetime.now(UTC))
    return tuple(word for word in standing(words) if word.side == "against")


def _credible(statements: Iterable[Statement], image: Staged, now: datetime) -> list[JudgedReport]:
    """Judgements of the test results among statements, without those that an audit would refuse."""
    judged = []
    for statement in statements:
        with contextlib.suppress(EvidenceError):  # an SBOM, or no evidence about this image
            judged.append(judge(statement.predicate, image, Policy(now=now)))
    return judged


def find_failures(
    registry: Registry,
    row: Publication,
    *,
    reports: Sequence[SealedReport | Damaged],
    policy: Policy,
    warn: Callable[[str], None],
) -> tuple[Failing, ...]:
    """The statements to attach to the cell's public images; nothing is written. Raises RegistryError.

    ``reports`` lie on this machine; the policy names the signers whose reports may be published.
    """
    look = _Look(registry, row, policy, warn)
    on = {name: registry.digest_of(f"{row.target}:{name}") for name in row.moving}
    mine = row.cell.id, row.cell.matrix
    own = [one for one in reports if isinstance(one, SealedReport) and (one.cell, one.matrix) == mine]
    staged = row.found.staged.digest if row.found is not None else None
    decided = row.decision.against if row.decision is not None else ()
    digests = {report.key.digest for report in own if report.verdict in AGAINST_IMAGE}
    found: list[Failing] = []
    for digest in sorted(digests | set(filter(None, (staged, *on.values())))):
        image = look.public(digest) if digest != staged or decided else None
        if image is None:
            continue
        against = decided if digest == staged else look.against(image, own)
        if against:
            found += look.failing(image, against, tuple(name for name in on if on[name] == digest))
    return tuple(found)


def say_failures(
    registry: Registry, found: Sequence[Failing], *, signer: Signer | None, note: Callable[[str], None]
) -> tuple[Failing, ...]:
    """Attach the statements, sign them if there is a signer. Raises as :func:`attach_statements`."""
    done: list[Failing] = []
    for _, group in groupby(found, key=lambda one: one.image.digest):
        rows = list(group)
        failed = [failure_statement(one.image, one.entry) for one in rows]
        made = attach_statements(registry, rows[0].image, failed, signer=signer, note=note)
        done += [replace(one, attached=piece) for one, piece in zip(rows, made, strict=True)]
    return tuple(done)


@dataclass(frozen=True)
class _Look:
    """A look at the images of one cell that are public already."""

    registry: Registry
    row: Publication
    policy: Policy
    warn: Callable[[str], None]

    def public(self, digest: str) -> Staged | None:
        """A public image of the cell; None if there is none, or it is another cell's."""
        target, cell = self.row.target, self.row.cell
        if self.registry.digest_of(f"{target}@{digest}") is None:
            return None
        try:
            image = read_image(self.registry, target, digest)
        except NoImageError:
            return None
        labels = image.label(CELL_LABEL), image.label(MATRIX_LABEL)
        return image if labels == (cell.id, cell.matrix) else None

    def against(self, image: Staged, own: Sequence[SealedReport]) -> tuple[SealedReport, ...]:
        """The reports that stand against an image other than the staged one.

        The gate decides, without the lock's demands: matrix and lock may have changed since that image was
        built, so a report that takes one back only has to prove a convolution.
        """
        reports: list[SealedReport | Damaged] = [*own]
        if self.registry.digest_of(f"{self.row.source}@{image.digest}") is not None:
            reports += shared(self.registry, replace(image, repository=self.row.source))
        for report in reports:
            if isinstance(report, Damaged):
                self.warn(f"{report.why}: it may speak against the public image {image.reference}")
        return decide(self.row.cell, image, reports, policy=self.policy).against

    def failing(
        self, image: Staged, against: Sequence[SealedReport], tags: tuple[str, ...]
    ) -> Iterator[Failing]:
        gathered = gather(self.registry, parse_reference(image.repository).at(image.digest))
        statements = [piece.statement for piece in gathered.pieces]
        now = self.policy.now
        verified = [word for word in _credible(statements, image, now) if word.side == "for"]
        claimed = {name for found in without_exempt(verified) for name in found.claims}
        for entry in sorted(against, key=lambda entry: (entry.verified, entry.where)):
            says = f"{entry.where} speaks against {image.reference}, but"
            try:
                statement = failure_statement(image, entry)
                failure = judge(statement.predicate, image, Policy(now=now))
            except EvidenceError as error:
                self.warn(f"{says} cannot be attached: {error.message}")
                continue
            if failure.verdict == "unsupported-gpu" and not denied([failure], claimed):
                continue  # the image never claimed to run there
            there = statement in statements
            yield Failing(image=image, entry=entry, failure=failure, tags=tags, there=there)


MAX_AGE = timedelta(days=30)
"""The greatest age of a report if neither the command nor the matrix gives one."""


def publish(
    matrices: Sequence[Matrix], cells: Sequence[Cell], options: PublishOptions, hooks: Hooks
) -> list[Publication]:
    """Publish every cell that the gate admits; nothing of a refused cell is published.

    Every step is named by content: a second run changes nothing, and a run after an interruption continues.
    Raises UsageError if no repository is named, StaleLockError if the lock is stale, and MissingToolError if
    cosign is needed and missing.
    """
    line = _Line(matrices, options)
    rows = [line.begin(cell) for cell in cells]
    line.locks.fresh(cells)
    if options.signer is not None:
        Cosign.find()
    stages = PUBLISHING[:1] if options.dry_run else PUBLISHING
    hooks.emit(RunStarted(cells=tuple(cell.id for cell in cells), stages=stages))
    walks = [CellRun(row.cell, hooks.emit, hooks.cancel) for row in rows]
    row_of = dict(zip(walks, rows, strict=True))
    early = each(walks, partial(_noted, line.judge, row_of), hooks, jobs=options.jobs)
    going = [walk for walk, result in zip(walks, early, strict=True) if result is None]
    refuse_clashes(rows)
    each(going, partial(_noted, line.carry, row_of), hooks, jobs=options.jobs)
    return rows


def _noted(
    station: Callable[[CellRun, Publication], CellResult | None],
    row_of: Mapping[CellRun, Publication],
    walk: CellRun,
) -> CellResult | None:
    """One station of one cell; a failure is noted in its row."""
    row = row_of[walk]
    try:
        with item(walk.cell.id):
            result = station(walk, row)
    except CellError as error:
        row.state = "cancelled" if isinstance(error, CancelledError) else "failed"
        row.error = error
        raise
    finally:
        row.seconds = sum(walk.seconds.values())
    if not row.refusals:
        return result
    row.state = "refused"
    hints = list(dict.fromkeys(refusal.hint for refusal in row.refusals if refusal.hint))
    refused = PublishRefusedError(
        "not published: " + "\n  ".join(f"{refusal.text} ({refusal.kind})" for refusal in row.refusals),
        hint="; ".join(hints[:2]) or None,
    )
    return walk.ended(CellOutcome.REFUSED, error=refused)


class _Line:
    """The stations of a cell, and the values that they share."""

    def __init__(self, matrices: Sequence[Matrix], options: PublishOptions) -> None:
        self.options = options
        self.matrices = {matrix.name: matrix for matrix in matrices}
        self.locks = Locks(matrices)
        self.registry = Registry.to_write()
        self.reports = tuple(ReportStore(options.results / "reports").entries())
        self.probe = bundle()

    def begin(self, cell: Cell) -> Publication:
        """The cell's source and target repository. Raises UsageError."""
        said, options = self.matrices[cell.matrix].publish, self.options

        def named(option: str, repository: str | None, key: str) -> str:
            if repository is None:
                raise UsageError(
                    f"{cell.matrix}: no repository to publish {option[2:]}",
                    hint=f"{option} registry.example/name, or `publish: {key}` in the matrix",
                )
            return repository_of(repository)

        return Publication(
            cell=cell,
            source=named("--from", options.source or said.staging, "staging"),
            target=named("--to", options.target or said.repository, "repository"),
            moving=moving_tags(cell, said.aliases),
        )

    def judge(self, walk: CellRun, row: Publication) -> None:
        """The gate; its refusals are noted in the cell's row."""
        with walk.stage(Stage.GATE):
            walk.done("refused")
            found = self._find(row)
            if isinstance(found, Refusal):
                row.refusals.append(found)
            else:
                row.found = found
                if not found.origin.proven:
                    walk.note(f"{found.staged.digest[:19]}…: {found.origin.text}", warning=True)
                decision = self._decide(row, found)
                if not row.refusals and decision.measured is not None:
                    digest = found.staged.digest
                    self._plan(row, found, tags_of(row.cell, decision.measured, digest, row.moving))
                    walk.done(f"verified on {', '.join(decision.claims)}: {digest[:19]}")
            self._look_back(walk, row)
        self._say_failures(walk, row)

    def _find(self, row: Publication) -> Found | Refusal:
        """The image in staging that the cell's matrix and lock give. Raises RegistryError."""
        cell, source = row.cell, row.source
        (pinned,) = self.locks.fresh([cell])
        recipe = render(pinned, probe=self.probe, version=__version__)
        try:
            staged = find_staged(self.registry, source, recipe.inputs)
        except MovedTagError as error:
            return Refusal("moved", error.message, error.hint)
        if ahead := clocks_apart(self.registry, source):
            return Refusal(
                "clock",
                f"the clock of this machine is {abs(ahead) / 60:.0f} minutes "
                f"{'ahead of' if ahead > 0 else 'behind'} the one of {source}: the age of reports is unknown",
                "set the clock: timedatectl set-ntp true",
            )
        if staged is None:
            return Refusal(
                "not-staged",
                f"{source} has no image of this cell for the present matrix, lock and rtbuild "
                f"({staged_tag(recipe.inputs)})",
                f"rtbuild build {_chosen(cell)} --push {source}",
            )
        labels = (staged.label(MATRIX_LABEL), staged.label(CELL_LABEL), staged.platform)
        if labels != (cell.matrix, cell.id, cell.platform):
            return Refusal(
                "other-image",
                f"{staged.reference} is labelled as {labels[1]} of {labels[0]} for {labels[2]}",
                "push the image again: rtbuild build --no-cache --push",
            )
        here = MadeImages(self.options.cache / "made").digest(recipe.inputs)
        origin = origin_of(self.registry, staged, recipe, here=here, builders=self.options.builders)
        return origin.refused or Found(staged=staged, recipe=recipe, origin=origin)

    def _look_back(self, walk: CellRun, row: Publication) -> None:
        """Look for reports against images of the cell that are public already."""
        if any(refusal.kind == "clock" for refusal in row.refusals):
            return  # it is unknown which report is newer
        policy = Policy(now=datetime.now(UTC), reporters=self.options.reporters)
        warn = partial(walk.note, warning=True)
        row.failures = find_failures(self.registry, row, reports=self.reports, policy=policy, warn=warn)

    def _say_failures(self, walk: CellRun, row: Publication) -> None:
        """Attach those reports to the images."""
        if not row.failures or self.options.dry_run:
            return
        with walk.stage(Stage.EVIDENCE):
            signer = self.options.signer
            row.failures = say_failures(self.registry, row.failures, signer=signer, note=walk.progress)
            new = sum(found.new for found in row.failures)
            words = f"{new} of them new" if new else "there already"
            how = "signed" if signer else "NOT SIGNED"
            walk.done(f"{len(row.failures)} against public images, {words}, {how}")

    def _decide(self, row: Publication, found: Found, claimed: Sequence[str] = ()) -> Decision:
        """Decide by the reports that are in the registry now and those that this machine had at the start.

        ``claimed`` are the claims of the evidence so far.
        """
        said = self.matrices[row.cell.matrix].publish
        limit = self.options.max_age or (timedelta(seconds=said.max_age) if said.max_age else MAX_AGE)
        row.decision = decision = decide(
            row.cell,
            found.staged,
            [*self.reports, *shared(self.registry, found.staged)],
            policy=Policy(
                now=datetime.now(UTC),
                max_age=limit,
                probe=sha256(self.probe).hexdigest(),
                expect=Expectation.of(found.recipe.pinned),
                suites=frozenset(row.cell.verify),
                reporters=self.options.reporters,
            ),
            exemptions=said.exempt,
            published=public_failures(self.registry, row.target, found.staged),
        )
        row.refusals += decision.refusals
        lost = [claim for claim in claimed if claim not in decision.claims]
        if lost and not row.refusals:
            text = f"{', '.join(lost)}: a report denied the claim after the evidence was attached"
            row.refusals.append(Refusal("claim", text, "publish again: the evidence then leaves it out"))
        return decision

    def carry(self, walk: CellRun, row: Publication) -> CellResult | None:
        """The steps after the gate, up to the tags."""
        found, decision = row.found, row.decision
        if row.refusals or found is None or decision is None:
            return None
        try:
            if self.options.dry_run:
                with walk.stage(Stage.GATE):
                    self._statements(walk, found, decision, found.staged)
                    walk.done("the evidence holds")
                row.state = "planned"
                return walk.ended(CellOutcome.DONE)
            row.copied = self._copy(walk, found.staged, row.target)
            # Once more: copying may have taken an hour, and others verify and publish as well.
            decision = self._decide(row, found)
            if row.refusals:
                self._taken_back(walk, row)
                return None
            with walk.stage(Stage.EVIDENCE):
                signer, public = self.options.signer, replace(found.staged, repository=row.target)
                made = self._statements(walk, found, decision, public)
                row.evidence = attach_statements(
                    self.registry, public, made, signer=signer, note=walk.progress
                )
                new = sum(piece.new for piece in row.evidence)
                words = f"{len(row.evidence)} attached, {new} of them new" if new else "there already"
                walk.done(f"{words}, {'signed' if signer else 'NOT SIGNED'}")
        except EvidenceError as error:
            row.refusals.append(Refusal("evidence", error.message, error.hint))
            return None
        changed = self._tag(walk, row, found, decision.claims)
        if row.refusals:
            self._taken_back(walk, row)
            return None
        new = any(piece.new for piece in row.evidence) or any(found.new for found in row.failures)
        same = not (changed or row.copied.changed or new)
        row.state = "unchanged" if same else "published"
        return walk.ended(CellOutcome.DONE if same else CellOutcome.PUBLISHED)

    def _taken_back(self, walk: CellRun, row: Publication) -> None:
        """Refused after the gate had admitted it: attach the reports against it to the copied image."""
        self._look_back(walk, row)
        self._say_failures(walk, row)

    def _statements(
        self, walk: CellRun, found: Found, decision: Decision, image: Staged
    ) -> tuple[Statement, ...]:
        path = self.matrices[walk.cell.matrix].path
        evidence = Evidence(
            recipe=found.recipe,
            verifications=decision.counted,
            claims=decision.claims,
            exempt=decision.exempt,
            as_of=decision.as_of,
            matrix=path.read_bytes(),
            lock=lock_path(path).read_bytes(),
        )
        return statements(self.registry, image, evidence, note=walk.progress)

    def _copy(self, walk: CellRun, staged: Staged, target: str) -> Tally:
        with walk.stage(Stage.COPY):
            done = 0

            def advance(how: str, size: int) -> None:
                nonlocal done
                done += size
                walk.progress(f"{done / 1e6:.0f} of {staged.size / 1e6:.0f} MB, {how}", done, staged.size)
                if walk.cancel.is_set():
                    raise CancelledError(f"{walk.cell.id}: interrupted while copying")

            copied = copy_image(self.registry, staged, target, advance=advance)
            walk.done(f"{staged.digest[:19]}: {copied.text}")
            return copied

    def _tag(self, walk: CellRun, row: Publication, found: Found, claimed: Sequence[str]) -> bool:
        """Put the tags, those that never move first; True if any tag was put."""
        staged = found.staged
        with walk.stage(Stage.TAGS):
            self._decide(row, found, claimed)
            if not row.refusals:
                self._plan(row, found, {step.name: step.kind for step in row.steps})
            if row.refusals:
                return False
            changed = [step for step in row.steps if step.action != "there"]
            for step in changed:
                reference = f"{row.target}:{step.name}"
                put_tag(self.registry, reference, staged.manifest)
            walk.done(", ".join(step.name for step in row.steps) + ("" if changed else ": there already"))
        return bool(changed)

    def _plan(self, row: Publication, found: Found, tags: Mapping[str, TagKind]) -> None:
        """The changes that these tags need now, and a refusal for each that may not move."""
        cells = self.matrices[row.cell.matrix].cells
        row.steps, against = steps(
            self.registry,
            row.target,
            row.cell,
            tags,
            found.staged.digest,
            others={cell.id for cell in cells if cell.excluded is None} - {row.cell.id},
            overwrite=self.options.overwrite,
        )
        row.refusals += against


def _chosen(cell: Cell) -> str:
    """The arguments of a command that choose this cell alone."""
    file = [shlex.quote(str(cell.span.file))] if cell.span is not None else []
    return " ".join([*file, "--select", shlex.quote(cell.id)])
