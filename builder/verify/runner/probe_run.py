"""Runs the probe in an image and turns its answer into a report.

Faults of the machine appear before the probe starts. The engine's text only selects the words about one: the
proof is that the same image starts without a GPU, which is tried before the machine is blamed.
"""

from __future__ import annotations

import hashlib
import json
import re
import signal
import threading
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from builder.core.documents import parse_object
from builder.core.errors import CellError, CommandError
from builder.core.model import Image, Report, Verdict
from builder.image.engine import TOOLKIT_GUIDE, TOOLKIT_SETUP, GpuFacts
from builder.verify.runner.reports import (
    EXIT_CODES,
    Expectation,
    ProbeDocument,
    ReportKey,
    ReportStore,
    compare,
    key_of,
    parse,
    printed_report,
)

if TYPE_CHECKING:
    from builder.image.engine import Engine, ProbeRun

PROBE_PATH = "/usr/local/bin/cudnn-verify"
CONFINED = ("--network", "none", "--read-only", "--tmpfs", "/tmp:exec", "--user", "65534:65534")  # noqa: S108
"""Options of docker and podman for the probe: no root, no network, nothing to write to but /tmp."""
_SECONDS = 900.0
"""Time limit of the probe."""
PROBE_FAILED = 30
"""The probe's exit status for a fault of its own."""
_INSTALL = f"install NVIDIA's container toolkit ({TOOLKIT_GUIDE}), then: {TOOLKIT_SETUP}"


@dataclass(frozen=True, kw_only=True)
class HostFault:
    """Why this machine gave a container no GPU."""

    summary: str
    remedy: str
    cause: str = "container-no-gpu"
    said: str = ""
    """A regular expression of the engine's words."""


_FAULTS = tuple(
    HostFault(**row | {"remedy": row["remedy"].format(install=_INSTALL, setup=TOOLKIT_SETUP)})
    for row in tomllib.loads(Path(__file__).with_name("faults.toml").read_text("utf-8"))["fault"]
)
LOST_ON_THE_WAY = HostFault(
    summary="the engine accepted the request for a GPU, and the container saw no trace of one",
    remedy="look for NVIDIA_VISIBLE_DEVICES=void in the image's environment, then: " + TOOLKIT_SETUP,
)


def verify(
    image: Image,
    *,
    engine: Engine,
    expect: Expectation,
    gpus: Literal["auto"] | bool = "auto",
    suites: Sequence[str] = ("conv",),
    suggested: Sequence[str] = (),
    store: ReportStore | None = None,
    again: bool = False,
    cancel: threading.Event | None = None,
    waits: Callable[[], None] | None = None,
) -> Report:
    """Probe ``image``, or reuse a report about the same content, probe, GPUs and driver.

    ``auto`` asks for a GPU if the engine can provide one; a machine with a GPU whose engine cannot gets the
    verdict ``host``, never a silent ``unverified``. A difference between the probe's findings and ``expect``
    makes the verdict ``broken``. ``waits`` is called while another probe has
    the GPU. ``suites``: what the probe runs on a GPU, and ``suggested`` what it runs besides without effect
    on the verdict; one from before there were suites runs ``conv``, and a report without one of them is not
    reused. With ``again`` the probe runs although ``store`` has a report, and the new one takes its place.

    Raises CellError if the probe itself failed, which is no verdict, and CancelledError.
    """
    gpu = engine.facts().gpu
    ask = gpu.usable if gpus == "auto" else gpus
    content = _probe_of(engine, image)
    probe = hashlib.sha256(content).hexdigest()
    named = suites if len(suites) > 1 else ()
    asked = {
        name: suites
        for name, suites in (("suite", named), ("suggested", suggested))
        if ask and suites and f'"--{name}"'.encode() in content
    }
    options = (text for name, suites in asked.items() for text in (f"--{name}", ",".join(suites)))
    command = [PROBE_PATH, "--json", *options]
    key = _expected_key(image, probe, gpu, ask=ask)
    blind = no_way_in(gpu.traces) if gpus == "auto" and gpu.traces and not ask else None
    if store is not None and key is not None and blind is None and not again:
        kept = store.load(key)
        if kept is not None and _answers(kept, **asked):
            return replace(_report(image, kept, expect, fault=None, asked=ask), reused=True)

    # By digest, because the name may move meanwhile.
    probing = partial(engine.run_probe, image.digest, command, timeout=_SECONDS, cancel=cancel)
    run, fault = probing(gpus=ask, waits=waits), blind
    if not run.started and ask:
        fault = host_fault(run.daemon_error or "")
        run = probing(gpus=False)
    if not run.started:
        raise CellError(
            f"{image.reference} does not start: {run.daemon_error}", hint="docker logs says no more than this"
        )
    found = _found(run, image, probe)
    document = parse_object(printed_report(run.stdout))
    report = _report(image, document, expect, fault=fault, asked=ask)
    about = key_of(image.content, found, image.manifest)
    whole = report.verdict.value == found.verdict and not fault and not report.test_double
    if store is not None and about is not None and whole:
        store.save(about, report.document, cell=image.cell.id, matrix=image.cell.matrix)
    return report


def host_fault(daemon_error: str) -> HostFault:
    """The fault behind an engine's refusal to start a container with a GPU."""
    said = daemon_error.strip()
    for fault in _FAULTS:
        if re.search(fault.said, said, re.IGNORECASE):
            return replace(fault, summary=f"{fault.summary} (the engine: {said})")
    return HostFault(
        summary=f"the image starts without a GPU, and with one the engine says: {said}",
        remedy="rtbuild doctor says what is set up; docker run --rm --gpus all IMAGE shows the same error",
    )


def no_way_in(traces: tuple[str, ...]) -> HostFault:
    """The machine has a GPU, and its engine cannot give it to a container."""
    return HostFault(
        summary=f"this machine has {', '.join(traces)}, but its engine cannot hand a GPU to a container",
        remedy=_INSTALL,
    )


def _answers(
    document: Mapping[str, Any], *, suite: Sequence[str] = (), suggested: Sequence[str] = ()
) -> bool:
    """Whether a kept report is one on these suites, run or not."""
    found = parse(json.dumps(document))
    return found.suites_asked() >= set(suite) and {row.suite for row in found.suites} >= set(suggested)


def _probe_of(engine: Engine, image: Image) -> bytes:
    content = engine.read_file(image.digest, PROBE_PATH)
    if content is None:
        raise CellError(
            f"{image.reference} has no {PROBE_PATH}: rtbuild did not make it", hint="rtbuild build"
        )
    return content


def _expected_key(image: Image, probe: str, gpu: GpuFacts, *, ask: bool) -> ReportKey | None:
    """The key of a new report; None if this machine does not know its GPUs well enough."""
    known = tuple(sorted((card.name, card.compute_capability or "") for card in gpu.gpus)) if ask else ()
    driver = gpu.driver if ask else None
    if ask and not (known and driver and all(capability for _, capability in known)):
        return None
    return ReportKey(digest=image.manifest, content=image.content, probe=probe, gpus=known, driver=driver)


def _report(
    image: Image, document: Mapping[str, Any], expect: Expectation, *, fault: HostFault | None, asked: bool
) -> Report:
    """The report with the probe's verdict, unless the engine or the lock gives a worse one."""
    found = parse(json.dumps(document))
    verdict, cause, summary = Verdict(found.verdict), found.cause, found.summary
    remedy = str(found.remedy) if found.remedy else None
    if verdict is Verdict.UNVERIFIED and asked and not found.gpus and fault is None:
        fault = LOST_ON_THE_WAY
    if fault is not None and verdict in {Verdict.UNVERIFIED, Verdict.HOST}:
        verdict, cause, summary, remedy = Verdict.HOST, fault.cause, fault.summary, fault.remedy
    differences = compare(expect, found)
    if differences and verdict not in {Verdict.BROKEN, Verdict.UNSUPPORTED_GPU}:
        verdict, cause = Verdict.BROKEN, "expect-mismatch"
        listed = "; ".join(f"{row.what}: asked {row.asked}, found {row.found}" for row in differences)
        summary = f"the image is not what the lock asks for: {listed}"
        remedy = "rtbuild build --no-cache; if the difference stays, the lock or the base is at fault"
    return Report(
        image=image.content,
        digest=image.manifest,
        verdict=verdict,
        cause=cause,
        differences=differences,
        document=document,
        summary=summary,
        remedy=remedy,
    )


def _found(run: ProbeRun, image: Image, probe: str) -> ProbeDocument:
    """The probe's report. Raises CommandError if there is none, or its exit status contradicts it."""
    try:
        return _answer(run, probe)
    except CellError as error:
        said = error.message.removeprefix("cudnn-verify ")
        raise CommandError(
            f"{image.reference}: cudnn-verify {said}, which says nothing about the image",
            command=["docker", "run", "--rm", image.digest, PROBE_PATH, "--json"],
            returncode=run.returncode,
            tail=(run.stderr.splitlines() or run.stdout.splitlines())[-40:],
            hint="run the command to see it happen",
        ) from error


def _answer(run: ProbeRun, probe: str) -> ProbeDocument:
    """The probe's document, with CellErrors that say how the probe ended."""
    signals = {128 + number: f" ({number.name})" for number in signal.Signals}
    ended = f"ended with exit status {run.returncode}{signals.get(run.returncode, '')}"
    if run.timed_out:
        raise CellError(f"did not end within {_SECONDS:g} s")
    if run.truncated:
        raise CellError("printed without end")
    if run.returncode == PROBE_FAILED:
        raise CellError("failed by a fault of its own")
    if run.returncode not in EXIT_CODES.values():
        raise CellError(ended)
    document = parse(printed_report(run.stdout))
    if EXIT_CODES[document.verdict] != run.returncode:
        raise CellError(f"says {document.verdict} and {ended}")
    if document.probe.sha256.removeprefix("sha256:") != probe:
        raise CellError(f"is {probe}, but its report is by {document.probe.sha256}")
    return document
