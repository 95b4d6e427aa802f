"""Verifies one image by its digest on the machine where this runs, and puts the report beside the image.

A node of a cluster has neither the matrix nor the lock: the image itself says what was asked of it, and the
gate compares with the lock later. A registry that does not take the report is no reason to hold a card: the
report is kept on the node, and a job without a card hands it in. A task also leaves a note of why there is no
report, and the images that were pulled, of which as many stay as a budget has room for.
"""

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal, Self, TypeVar, get_args

from builder.core import errors
from builder.core.digests import canonical_json
from builder.core.documents import parse_object, readable, shown
from builder.core.errors import CellError, MissingToolError, RegistryError
from builder.core.files import locked, write_whole
from builder.core.resources import cache
from builder.plan.facts.tables import class_of
from builder.release.dispatch.fleet import KEEP_IMAGES
from builder.release.dispatch.tasks import CONCLUSIVE, answers, conclusive
from builder.sources.oci import (
    CELL_LABEL,
    MATRIX_LABEL,
    Artifact,
    Registry,
    Staged,
    attach,
    parse_reference,
    read_image,
    referrers,
)
from builder.verify.evidence import Cosign, People, Signer, share, shared
from builder.verify.runner import (
    CONFINED,
    EXIT_CODES,
    PROBE_FAILED,
    SealedReport,
    host_fault,
    key_of,
    parse,
    printed_report,
    read_entry,
    seal,
)

NOTE_TYPE = "application/vnd.rtbuild.note.v1+json"
_NOTE = "io.rtbuild.note"
_LARGEST = 32 << 20
"""Bytes of a kept report that are read."""


@dataclass(frozen=True)
class NodeFinding:
    """The result of a container."""

    verdict: str
    seen: str | None
    """The class of its GPU."""
    reports: Sequence[SealedReport]


@dataclass(frozen=True)
class KeptReport:
    """A report that waits on this node for the registry: a file for each image and card."""

    path: Path
    where: str

    @classmethod
    def of(cls, staged: Staged, card: str) -> Self:
        """In the user's cache folder: of every node, where homes are shared."""
        name = hashlib.sha256(f"{staged.reference}\n{card}".encode()).hexdigest()[:20]
        return cls(cache() / "reports-to-hand-in" / f"{name}.json", staged.reference)

    def write(self, found: NodeFinding) -> None:
        """Keep reports. A disk that takes none is told of: it matters only if the registry is away, too."""
        rows = [{"text": one.text, "signature": one.signature} for one in found.reports]
        document = {"reports": rows, "verdict": found.verdict, "seen": found.seen}
        try:
            write_whole(self.path, json.dumps(document).encode(), mode=0o600)
        except OSError as error:
            tell(f"the report cannot be kept on this node: {error}")

    def read(self) -> NodeFinding | None:
        """The kept report; None if there is none, or if it cannot be read."""
        try:
            with self.path.open("rb") as file:
                document = parse_object(file.read(_LARGEST))
            rows = [
                replace(read_entry(str(row["text"]), self.where), signature=str(row["signature"]))
                for row in document["reports"]
            ]
            verdict, seen = str(document["verdict"]), document["seen"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError, CellError) as error:
            tell(f"{self.path} is passed over, since it holds no report: {error}")
            return None
        return (
            NodeFinding(verdict, None if seen is None else str(seen), rows) if verdict in EXIT_CODES else None
        )

    def forget(self) -> None:
        """Remove the file, if it is there."""
        with contextlib.suppress(OSError):
            self.path.unlink()


def leave_note(registry: Registry, staged: Staged, card: str, why: str) -> None:
    """Put beside the image why a task had no verdict here, for those who cannot look into a node's log."""
    words = shown(" ".join(why.split()), most=400)
    node = os.environ.get("SLURMD_NODENAME") or platform.node()
    text = {"class": card, "node": node, "why": words, "when": f"{datetime.now(UTC):%Y-%m-%d %H:%M}"}
    notes = tuple(sorted((f"{_NOTE}.{name}", value) for name, value in text.items()))
    artifact = Artifact(artifact_type=NOTE_TYPE, content=canonical_json(text), annotations=notes)
    try:
        attach(registry, parse_reference(staged.reference), staged.manifest.descriptor, artifact)
    except RegistryError as error:
        tell(f"no note is left: {error.message}")


def notes_beside(registry: Registry, staged: Staged) -> dict[str, str]:
    """The newest note on each class of GPU: ``n7, 2026-01-01 12:00: there is no docker on this node``.

    Anybody who may push can write one: it is shown, and decides nothing. Raises RegistryError.
    """
    found: dict[str, tuple[str, str]] = {}
    for one in referrers(registry, parse_reference(staged.reference)).descriptors:
        if one.artifact_type != NOTE_TYPE:
            continue
        notes = {key.removeprefix(f"{_NOTE}."): shown(value, most=400) for key, value in one.annotations}
        card, when = notes.get("class", ""), notes.get("when", "")
        said = f"{notes.get('node')}, {when} UTC: {notes.get('why')}"
        found[card] = max(found.get(card, ("", "")), (when, said))
    return {card: said for card, (_, said) in found.items()}


def tell(text: str) -> None:
    """A line for the job's log, at once."""
    sys.stderr.write(f"{readable(text)}\n")
    sys.stderr.flush()


_ANSWER = 64 << 10
"""Bytes of an answer: a size, or the layers of an image that went."""


@dataclass(frozen=True, kw_only=True)
class PulledImages:
    """Images that Docker or Podman pulled here for tasks of this user; of others' images it knows nothing."""

    tool: str
    gigabytes: int
    """The disk space, in 10⁹ bytes, of images that stay; each counts whole, also where it shares layers."""

    @property
    def path(self) -> Path:
        """The file of this node alone: nodes may share homes."""
        node = os.environ.get("SLURMD_NODENAME") or platform.node()
        return cache() / "pulled-images" / f"{node}-{self.tool}.json"

    @contextmanager
    def using(self, image: str) -> Iterator[None]:
        """Run an image in the block; afterwards those that ran the longest ago go, until the budget holds."""
        pulled = self._bytes(image) is None
        try:
            yield
        finally:
            try:
                self._with_record(lambda found: self._trim(found, image if pulled else None, image))
            except (OSError, ValueError, MissingToolError) as error:
                tell(f"images that were pulled stay on this node: {error}")

    def _with_record(self, change: Callable[[dict[str, float]], dict[str, float]]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path.with_suffix(".lock")):
            text = self.path.read_bytes() if self.path.exists() else b"{}"
            before = {image: float(when) for image, when in parse_object(text).items()}
            if (after := change(before)) != before:
                write_whole(self.path, json.dumps(after).encode(), mode=0o600)

    def _trim(self, found: dict[str, float], pulled: str | None, used: str) -> dict[str, float]:
        """When each image ran that was pulled and is here still."""
        if pulled is not None or used in found:
            found = {name: when for name, when in found.items() if name != used} | {used: time.time()}
        sizes = {name: size for name in found if (size := self._bytes(name)) is not None}
        for name in sorted(sizes, key=found.__getitem__):
            if sum(sizes.values()) <= self.gigabytes * 10**9:
                break
            # without --force: one that another container runs stays
            if self._ask("image", "rm", name) is not None:
                del sizes[name]
                tell(f"{name} is removed from this node, which keeps {self.gigabytes} GB of what it pulled")
        return {name: found[name] for name in sizes}

    def _bytes(self, image: str) -> int | None:
        """None if it is not here."""
        said = self._ask("image", "inspect", "--format", "{{.Size}}", image)
        return int(said) if said is not None and said.strip().isdecimal() else None

    def _ask(self, *words: str) -> str | None:
        """The tool's answer; None if it refuses, takes five minutes, or prints more than 64 KiB."""
        pipe, none = subprocess.PIPE, subprocess.DEVNULL
        with subprocess.Popen(
            [self.tool, *words], stdout=pipe, stderr=none, start_new_session=True
        ) as process:
            end = partial(os.killpg, process.pid, signal.SIGKILL)
            limit = threading.Timer(300, end)
            limit.start()
            try:
                assert process.stdout is not None  # noqa: S101 - it is a pipe
                text = process.stdout.read(_ANSWER + 1)
                if len(text) > _ANSWER:
                    end()
                refused = process.wait() != 0
            finally:
                limit.cancel()
        return None if refused else text.decode("utf-8", "replace")


Tool = Literal["docker", "podman", "apptainer", "singularity"]
_TOOLS: tuple[Tool, ...] = get_args(Tool)
_BY_PROCESS = ("apptainer", "singularity")
"""Tools whose container ends with their process."""
_LIMIT = 8 << 20
"""Bytes of a report."""
_PATIENCE = 60
"""Seconds for a container to be removed."""
_WAITS = (5, 10, 15)
"""Seconds between questions to a registry that does not answer, which the job holds its card for."""
_ERRORS = 4 << 10
"""Bytes of a container tool's last words."""
AWAY = 75
"""Exit status: the registry does not answer, and nothing ran. As ``EX_TEMPFAIL`` of sysexits.h."""
KEPT = 76
"""Exit status: the report is kept on this node, since the registry did not take it."""
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, kw_only=True)
class NodeResult:
    """The result of one task on one node."""

    exit_code: int
    message: str
    attached: bool = False


def verify_digest(
    registry: Registry,
    repository: str,
    digest: str,
    *,
    card: str,
    tool: Tool | None,
    seconds: int,
    suites: Sequence[str] = (),
    suggested: Sequence[str] = (),
    signer: Signer | None = None,
    hand_in: bool = False,
    keep_images: int = KEEP_IMAGES,
) -> NodeResult:
    """Run the probe in ``repository@digest`` and attach its report.

    Why there is no verdict, if there is none, goes beside the image as a note. A report that the registry
    does not take is kept, and handed in by the next call for the same image and card on this node.

    Args:
        card: The class of GPU that the task is about. A report about another one is attached, since it is
            true, and the task fails: the fleet says what is not so.
        tool: None takes the first of docker, podman, apptainer and singularity that is here.
        seconds: Time limit of the container.
        suites: What the probe runs besides ``conv``. A report that is there counts only with them.
        suggested: What it runs without effect on the verdict.
        signer: Signs the report. A report that is there counts only if the same key signed it.
        hand_in: Run nothing: only hand in what is kept.
        keep_images: Gigabytes of images that Docker or Podman pulled for tasks, and that stay here. Of
            Apptainer's cache all stays, or with 0 nothing is kept there.

    Raises:
        MissingToolError: no container tool is here, or no cosign to sign by.
        CommandError: the signer's key cannot be read.
        CellError: the image cannot be read, or the probe printed no report.
    """
    own = None if signer is None else People.holding(signer)
    try:
        staged = _patiently(lambda: read_image(registry, repository, digest))
        there = _patiently(lambda: _verdict_there(registry, staged, card, own, suites))
    except errors.ImageMissingError:
        raise
    except RegistryError as error:
        return NodeResult(exit_code=AWAY, message=_on_the_registry(registry, repository, error))
    kept = KeptReport.of(staged, card)
    if there is not None:
        kept.forget()
        return NodeResult(exit_code=EXIT_CODES[there], message=f"{there}, by a report that is there")
    try:
        if (earlier := kept.read()) is not None:
            return _handed_in(registry, staged, card, kept, earlier)
        if hand_in:
            return NodeResult(exit_code=AWAY, message="no report is kept here: the image is run again")
        result = _run_and_attach(
            registry,
            staged,
            kept,
            card=card,
            tool=tool,
            seconds=seconds,
            suites=suites,
            suggested=suggested,
            signer=signer,
            keep_images=keep_images,
        )
    except errors.RtbuildError as error:
        leave_note(registry, staged, card, error.message)
        raise
    if result.exit_code not in _DECIDED:
        leave_note(registry, staged, card, result.message)
    return result


def _run_and_attach(
    registry: Registry,
    staged: Staged,
    kept: KeptReport,
    *,
    card: str,
    tool: Tool | None,
    seconds: int,
    suites: Sequence[str],
    suggested: Sequence[str],
    signer: Signer | None,
    keep_images: int,
) -> NodeResult:
    tools = _TOOLS if tool is None else (tool,)
    used = next((name for name in tools if shutil.which(name)), None)
    if used is None:
        hint = "`runtime` in the fleet file says which is taken; PATH names the place of one"
        raise MissingToolError(f"there is no {' or '.join(tools)} on this node", hint=hint)
    given = re.sub("[^A-Za-z0-9_.-]", "-", _given(os.environ)) or "all"
    name = f"rtbuild-{staged.digest.removeprefix('sha256:')[:12]}-{given}"
    command = container(used, staged.reference, os.environ, name, suites, suggested=suggested)
    with contextlib.ExitStack() as held:
        if used not in _BY_PROCESS:
            held.enter_context(PulledImages(tool=used, gigabytes=keep_images).using(staged.reference))
        elif not keep_images:
            command.insert(2, "--disable-cache")
        code, text, said = _run(command, used, name, seconds)
    if code == PROBE_FAILED or code not in {*EXIT_CODES.values(), 0}:
        fault = host_fault(said)
        lines = [*text.decode("utf-8", "replace").splitlines(), *said.splitlines()][-5:]
        told = [fault.summary] if fault.said else lines
        first = f"{used} ended with {code} and no report"
        return NodeResult(exit_code=PROBE_FAILED, message="\n  ".join([first, *told]))
    report = printed_report(text.decode("utf-8", "replace")).encode()
    found = report_on(staged, report, signer, exit_code=code)
    if found.reports:
        kept.write(found)
        return _handed_in(registry, staged, card, kept, found)
    return _concluded(card, found, attached=False)


def _handed_in(
    registry: Registry,
    staged: Staged,
    card: str,
    kept: KeptReport,
    found: NodeFinding,
) -> NodeResult:
    """Attach reports that are kept, and keep them no longer."""
    try:
        # the same report at each attempt, of which one may have arrived
        attached = bool(_patiently(lambda: share(registry, staged, found.reports)))
    except RegistryError as error:
        why = _on_the_registry(registry, staged.repository, error)
        said = f"{why}; the report ({found.verdict}) is kept on this node"
        return NodeResult(exit_code=KEPT, message=said)
    kept.forget()
    return _concluded(card, found, attached=attached)


def _concluded(card: str, found: NodeFinding, *, attached: bool) -> NodeResult:
    if wrong := other_card(card, found.seen):
        return NodeResult(exit_code=2, message=wrong, attached=attached)
    cause = next((str(one.document["cause"]) for one in found.reports if one.document.get("cause")), "")
    said = f"{found.verdict}{f' ({cause})' if cause else ''} on {found.seen or 'no GPU'}"
    return NodeResult(exit_code=EXIT_CODES[found.verdict], message=said, attached=attached)


_DECIDED = frozenset({EXIT_CODES[verdict] for verdict in CONCLUSIVE} | {AWAY, KEPT})
"""Exit statuses of which no note is left: a verdict, and a registry that would not take a note either."""


def _on_the_registry(registry: Registry, repository: str, error: RegistryError) -> str:
    login = registry.login_at(repository)
    who = f" (login {login})" if isinstance(error, errors.RegistryLoginError) and login else ""
    return f"registry: {error.message}{who}"


def reports_beside(registry: Registry, staged: Staged, reporters: People | None) -> list[SealedReport]:
    """The reports beside an image; if there are ``reporters``, those that one of them signed."""
    found = [one for one in shared(registry, staged) if isinstance(one, SealedReport)]
    return [one for one in found if reporters is None or reporters.who(one.text.encode(), one.signature)]


def _verdict_there(
    registry: Registry, staged: Staged, card: str, own: People | None, suites: Sequence[str]
) -> str | None:
    """The verdict of a report that came first: of a task that was submitted twice, or requeued too late."""
    reports = conclusive(reports_beside(registry, staged, own))
    found = [
        verdict.verdict
        for report, gpu_class, verdict in reports
        if gpu_class == card and answers(report, suites)
    ]
    return found[-1] if found else None


def report_on(
    staged: Staged,
    text: bytes,
    signer: Signer | None = None,
    *,
    exit_code: int | None = None,
    verified: datetime | None = None,
) -> NodeFinding:
    """The finding of a report's text; its reports are those to put beside the image.

    A report without a GPU says nothing about a card, and a test double's says nothing: neither is put there.
    ``exit_code`` is the probe's, if it is known; ``verified`` is now by default.

    Raises:
        CellError: the text is no report, or one of another exit code.
        CommandError: it could not be signed.
    """
    document = parse(text)
    if exit_code is not None and EXIT_CODES[document.verdict] != exit_code:
        raise CellError(f"the report says {document.verdict}, and its container ended with {exit_code}")
    key = key_of(staged.content, document, staged.digest)
    if key is None or not key.gpus:
        return NodeFinding(document.verdict, None, ())
    seen = class_of(*key.gpus[0])
    if document.test_double:
        return NodeFinding(document.verdict, seen, ())
    cell, matrix = staged.label(CELL_LABEL) or "", staged.label(MATRIX_LABEL) or ""
    sealed = seal(key, json.loads(text), cell=cell, matrix=matrix, verified=verified)
    entry = read_entry(sealed, f"{staged.reference} here")
    if signer is not None:
        entry = replace(entry, signature=Cosign.find().sign_text(entry.text.encode(), signer))
    return NodeFinding(document.verdict, seen, (entry,))


def other_card(asked: str, seen: str | None) -> str | None:
    """The complaint about a report from another class of GPU than the fleet says; None if it is the same."""
    if seen is None or seen.casefold() == asked.casefold():
        return None
    return f"the fleet says {asked}, and its node has {seen}: mend the fleet file"


def _patiently(call: Callable[[], _Answer]) -> _Answer:
    """The answer of ``call``, once the registry answers. Raises RegistryError after :data:`_WAITS`.

    A login that is refused may be one whose service is away.
    """
    for seconds in _WAITS:
        try:
            return call()
        except errors.ImageMissingError:
            raise
        except RegistryError as error:
            tell(f"{error.message}; again in {seconds} s")
            time.sleep(seconds)
    return call()


def _given(environment: Mapping[str, str]) -> str:
    """The GPUs that Slurm gave the job, with commas: numbers, or the ids of parts of one (MIG).

    Slurm counts parts as if they were GPUs, so their number names another GPU to Docker; the ids stand in
    ``CUDA_VISIBLE_DEVICES``: https://slurm.schedmd.com/gres.html#MIG_Management
    """
    parts = environment.get("CUDA_VISIBLE_DEVICES", "")
    if parts.startswith("MIG-"):
        return parts
    return environment.get("SLURM_JOB_GPUS") or environment.get("SLURM_STEP_GPUS") or ""


def container(
    tool: Tool,
    image: str,
    environment: Mapping[str, str],
    name: str,
    suites: Sequence[str] = (),
    *,
    suggested: Sequence[str] = (),
) -> list[str]:
    """The command that runs the probe in an image.

    Docker's daemon is outside the job's cgroup, so the device that the scheduler gave is named to it.
    """
    given = _given(environment)
    asked = ["--json", *(["--suite", ",".join(suites)] if suites else [])]
    asked += ["--suggested", ",".join(suggested)] if suggested else []
    inside = [*CONFINED, "--name", name]
    probe = ["--entrypoint", "cudnn-verify", image, *asked]
    if tool == "docker":
        gpus = ["--gpus", f'"device={given}"' if given else "all"]
        return ["docker", "run", "--rm", *inside, *gpus, *probe]
    if tool == "podman":
        flags = [f for part in (given or "all").split(",") for f in ("--device", f"nvidia.com/gpu={part}")]
        return ["podman", "run", "--rm", *inside, *flags, *probe]
    # --containall leaves the environment out, and with it which GPU of the node is the job's
    seen = environment.get("CUDA_VISIBLE_DEVICES")
    gpus = ["--env", f"CUDA_VISIBLE_DEVICES={seen}"] if seen else []
    inner = ["--nv", "--containall", "--no-home", *gpus, f"docker://{image}", "cudnn-verify", *asked]
    return [tool, "exec", *inner]


def _run(command: Sequence[str], tool: Tool, name: str, seconds: int) -> tuple[int, bytes, str]:
    """Exit status, standard output, and the end of stderr, all of which passes through to the job's log.

    Whatever ends this, no container is left: a client that is killed leaves its container to the daemon, and
    one that a requeued job left has the GPU still.
    """

    def clear() -> None:
        with contextlib.suppress(MissingToolError):  # what has failed before is told
            _remove(tool, name)

    _remove(tool, name)
    late = threading.Event()
    with contextlib.ExitStack() as failed:
        failed.callback(clear)
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, start_new_session=True) as process:
            last = bytearray()
            passing = threading.Thread(target=_pass_on, args=(process.stderr, last), daemon=True)
            passing.start()

            def end() -> None:
                late.set()
                _kill(process.pid)

            limit = threading.Timer(seconds, end)
            limit.start()
            try:
                assert process.stdout is not None  # noqa: S101 - it is a pipe
                text = process.stdout.read(_LIMIT + 1)
                if len(text) <= _LIMIT:
                    process.wait()
            finally:
                limit.cancel()
                _kill(process.pid)
                passing.join(5)  # a process that left the group may hold the pipe
        if late.is_set():
            raise errors.CommandError(
                f"the container was not done after {seconds} s",
                command=command,
                returncode=124,
                hint="kernels that are compiled from PTX take long: `minutes` in the fleet file",
            )
        if len(text) > _LIMIT:
            raise CellError(f"the container printed more than {_LIMIT >> 20} MiB, which is no report")
        failed.pop_all()
    return process.returncode, text, last.decode("utf-8", "replace")


def _pass_on(pipe: BinaryIO, last: bytearray) -> None:
    """Copy a container tool's stderr to ours, and its end to ``last``."""
    while block := pipe.read1(1 << 14):  # type: ignore[attr-defined]
        sys.stderr.write(block.decode("utf-8", "replace"))
        sys.stderr.flush()
        last += block
        del last[:-_ERRORS]


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _remove(tool: Tool, name: str) -> None:
    """Remove a container if it is there. Raises MissingToolError if its engine does not answer."""
    if tool not in _BY_PROCESS and shutil.which(tool):
        try:
            subprocess.run([tool, "rm", "--force", name], capture_output=True, check=False, timeout=_PATIENCE)
        except subprocess.TimeoutExpired as problem:
            raise MissingToolError(f"{tool} on this node did not answer in {_PATIENCE} s") from problem
