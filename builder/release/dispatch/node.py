"""Verifies one image by its digest on the machine where this runs, and puts the report beside the image.

A node of a cluster has neither the matrix nor the lock: the image itself says what was asked of it, and the
gate compares with the lock later.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, TypeVar

from builder.core import errors
from builder.core.documents import readable
from builder.core.errors import CellError, MissingToolError, RegistryError
from builder.plan.facts.tables import class_of
from builder.release.dispatch.plan import conclusive
from builder.sources.oci import CELL_LABEL, MATRIX_LABEL, Registry, Staged, read_image
from builder.verify.evidence import Cosign, People, Signer, share, shared
from builder.verify.runner import (
    EXIT_CODES,
    PROBE_FAILED,
    SealedReport,
    key_of,
    parse,
    printed_report,
    read_entry,
    seal,
)

Tool = Literal["docker", "podman", "apptainer"]
_TOOLS: tuple[Tool, ...] = ("docker", "podman", "apptainer")
_LIMIT = 8 << 20
"""Bytes of a report."""
_WAITS = (5, 10, 20, 40, 60, 60, 60)
"""Seconds between questions to a registry that does not answer: a report in hand is worth four minutes."""
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, kw_only=True)
class NodeResult:
    """What came of one task on one node."""

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
    signer: Signer | None = None,
) -> NodeResult:
    """Run the probe in ``repository@digest`` and attach its report.

    Args:
        card: The class of GPU that the task is about. A report about another one is attached, since it is
            true, and the task fails: the fleet says what is not so.
        tool: None takes the first of docker, podman and apptainer that is here.
        seconds: Time limit of the container.
        signer: Signs the report. A report that is there counts only if the same key signed it.

    Raises:
        MissingToolError: no container tool is here, or no cosign to sign by.
        CommandError: the signer's key cannot be read.
        CellError: the image cannot be read, or the probe printed no report.
    """
    own = None if signer is None else People.holding(signer)
    staged = _patiently(lambda: read_image(registry, repository, digest))
    there = _patiently(lambda: _verdict_there(registry, staged, card, own))
    if there is not None:
        return NodeResult(exit_code=EXIT_CODES[there], message=f"{there}, by a report that is there")
    tools = _TOOLS if tool is None else (tool,)
    used = next((name for name in tools if shutil.which(name)), None)
    if used is None:
        hint = "`runtime` in the fleet file says which is taken; PATH names the place of one"
        raise MissingToolError(f"there is no {' or '.join(tools)} on this node", hint=hint)
    given = re.sub("[^A-Za-z0-9_.-]", "-", _given(os.environ)) or "all"
    name = f"rtbuild-{digest.removeprefix('sha256:')[:12]}-{given}"
    code, text = _run(container(used, staged.reference, os.environ, name), used, name, seconds)
    if code == PROBE_FAILED or code not in {*EXIT_CODES.values(), 0}:
        tail = text.decode("utf-8", "replace").splitlines()[-5:]
        told = "\n  ".join([f"{used} ended with {code} and no report", *tail])
        return NodeResult(exit_code=PROBE_FAILED, message=told)
    report = printed_report(text.decode("utf-8", "replace")).encode()
    verdict, seen, reports = report_on(staged, report, signer, exit_code=code)
    # the same report at each attempt, of which one may have arrived
    attached = bool(_patiently(lambda: share(registry, staged, reports)))
    if wrong := other_card(card, seen):
        return NodeResult(exit_code=2, message=wrong, attached=attached)
    return NodeResult(exit_code=code, message=f"{verdict} on {seen or 'no GPU'}", attached=attached)


def reports_beside(registry: Registry, staged: Staged, reporters: People | None) -> list[SealedReport]:
    """The reports beside an image; if there are ``reporters``, those that one of them signed."""
    found = [one for one in shared(registry, staged) if isinstance(one, SealedReport)]
    return [one for one in found if reporters is None or reporters.who(one.text.encode(), one.signature)]


def _verdict_there(registry: Registry, staged: Staged, card: str, own: People | None) -> str | None:
    """The verdict of a report that came first: of a task that was submitted twice, or requeued too late."""
    reports = conclusive(reports_beside(registry, staged, own))
    found = [verdict.verdict for _, gpu_class, verdict in reports if gpu_class == card]
    return found[-1] if found else None


def report_on(
    staged: Staged,
    text: bytes,
    signer: Signer | None = None,
    *,
    exit_code: int | None = None,
    verified: datetime | None = None,
) -> tuple[str, str | None, list[SealedReport]]:
    """The verdict of a report, the class of GPU that it saw, and the reports to put beside the image.

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
        return document.verdict, None, []
    seen = class_of(*key.gpus[0])
    if document.test_double:
        return document.verdict, seen, []
    cell, matrix = staged.label(CELL_LABEL) or "", staged.label(MATRIX_LABEL) or ""
    sealed = seal(key, json.loads(text), cell=cell, matrix=matrix, verified=verified)
    entry = read_entry(sealed, f"{staged.reference} here")
    if signer is not None:
        entry = replace(entry, signature=Cosign.find().sign_text(entry.text.encode(), signer))
    return document.verdict, seen, [entry]


def other_card(asked: str, seen: str | None) -> str | None:
    """The complaint about a report from another class of GPU than the fleet says; None if it is the same."""
    if seen is None or seen.casefold() == asked.casefold():
        return None
    return f"the fleet says {asked}, and its node has {seen}: mend the fleet file"


def _patiently(call: Callable[[], _Answer]) -> _Answer:
    """What ``call`` gives, once the registry answers. Raises RegistryError after :data:`_WAITS`."""
    for seconds in _WAITS:
        try:
            return call()
        except (errors.ImageMissingError, errors.RegistryLoginError):
            raise
        except RegistryError as error:
            sys.stderr.write(f"{readable(error.message)}; again in {seconds} s\n")
            sys.stderr.flush()
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


def container(tool: Tool, image: str, environment: Mapping[str, str], name: str) -> list[str]:
    """The command that runs the probe in an image: no root, no network, nothing to write to but /tmp.

    Docker's daemon is outside the job's cgroup, so the device that the scheduler gave is named to it.
    """
    given = _given(environment)
    inside = ["--network", "none", "--read-only", "--tmpfs", "/tmp:exec", "--user", "65534:65534"]  # noqa: S108
    inside += ["--name", name]
    probe = ["--entrypoint", "cudnn-verify", image, "--json"]
    if tool == "docker":
        gpus = ["--gpus", f'"device={given}"' if given else "all"]
        return ["docker", "run", "--rm", *inside, *gpus, *probe]
    if tool == "podman":
        flags = [f for part in (given or "all").split(",") for f in ("--device", f"nvidia.com/gpu={part}")]
        return ["podman", "run", "--rm", *inside, *flags, *probe]
    # --containall leaves the environment out, and with it which GPU of the node is the job's
    seen = environment.get("CUDA_VISIBLE_DEVICES")
    gpus = ["--env", f"CUDA_VISIBLE_DEVICES={seen}"] if seen else []
    inner = ["--nv", "--containall", "--no-home", *gpus, f"docker://{image}", "cudnn-verify", "--json"]
    return ["apptainer", "exec", *inner]


def _run(command: Sequence[str], tool: Tool, name: str, seconds: int) -> tuple[int, bytes]:
    """Exit status and standard output; stderr passes through to the job's log.

    Whatever ends this, no container is left: a client that is killed leaves its container to the daemon, and
    one that a requeued job left has the GPU still.
    """
    _remove(tool, name)
    late = threading.Event()
    with contextlib.ExitStack() as failed:
        failed.callback(_remove, tool, name)
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:

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
    return process.returncode, text


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _remove(tool: Tool, name: str) -> None:
    """Remove a container if it is there. Apptainer's ends with its process."""
    if tool != "apptainer" and shutil.which(tool):
        subprocess.run([tool, "rm", "--force", name], capture_output=True, check=False, timeout=60)
