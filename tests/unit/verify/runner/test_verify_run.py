from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING

import pytest
from doubles.engine import T4_HOST, WITH_GPU, EngineDouble, says

from builder.core.errors import CellError, CommandError
from builder.core.model import Image, Verdict
from builder.image.engine.container import ProbeRun
from builder.image.engine.facts import GpuFacts
from builder.verify.runner.probe_run import verify
from builder.verify.runner.reports import Expectation, ReportStore, SealedReport

if TYPE_CHECKING:
    from pathlib import Path

ASKED = Expectation(python="3.9", frameworks=(("tensorflow", "2.8.4"),), cuda="11.8", cudnn="8.6.0")
NO_HOOK = 'could not select device driver "" with capabilities: [[gpu]]'


def test_no_gpu_is_unverified(image: Image, document) -> None:
    engine = EngineDouble()
    report = verify(image, engine=engine, expect=ASKED)
    assert (report.verdict, report.cause, report.reused) == (Verdict.UNVERIFIED, None, False)
    assert report.document == document()
    assert report.image == image.content
    assert engine.runs == [False]


def test_what_else_the_image_prints_is_no_part_of_the_report(image: Image, document) -> None:
    said = says(document())
    noisy = dataclasses.replace(said, stdout=f"{{\nhello\n}}\n{json.dumps(document(), indent=1)}\ngood-bye\n")
    assert verify(image, engine=EngineDouble(run=noisy), expect=ASKED).document == document()


def test_a_gpu_is_asked_for_where_the_engine_has_one(image: Image, document) -> None:
    engine = EngineDouble(gpu=T4_HOST, run=says(document(**WITH_GPU)))
    report = verify(image, engine=engine, expect=ASKED)
    assert (report.verdict, engine.runs) == (Verdict.WORKS, [True])


def test_a_gpu_that_the_engine_cannot_hand_out_is_a_host_fault(image: Image) -> None:
    engine = EngineDouble(gpu=GpuFacts(request=None, traces=("/dev/nvidia0", "/dev/nvidiactl")))
    report = verify(image, engine=engine, expect=ASKED)
    assert (report.verdict, report.cause) == (Verdict.HOST, "container-no-gpu")
    assert "/dev/nvidia0" in report.summary
    assert "nvidia-ctk runtime configure" in str(report.remedy)
    assert engine.runs == [False]


@pytest.mark.parametrize(
    ("refusal", "cause", "remedy"),
    [
        (NO_HOOK, "container-no-gpu", "nvidia-ctk runtime configure"),
        ("unknown or invalid runtime name: nvidia", "container-no-gpu", "nvidia-ctk runtime configure"),
        (
            "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all",
            "container-no-gpu",
            "nvidia-ctk cdi generate",
        ),
        (
            "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update",
            "driver-too-old",
            "newer NVIDIA driver",
        ),
        (
            "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open",
            "driver-missing",
            "install NVIDIA's driver",
        ),
        (
            "nvidia-container-cli: initialization error: cuda error: no cuda-capable device is detected",
            "no-device",
            "nvidia-smi -L",
        ),
        (
            "initialization error: nvml error: driver/library version mismatch",
            "driver-library-mismatch",
            "reboot",
        ),
        ("Failed to initialize NVML: Driver/library version mismatch", "driver-library-mismatch", "reboot"),
        ("Failed to initialize NVML: Unknown Error", "device-access-denied", "start the container anew"),
        ("a text that nobody has seen yet", "container-no-gpu", "rtbuild doctor"),
    ],
)
def test_what_the_engine_says_becomes_a_host_verdict(
    image: Image, refusal: str, cause: str, remedy: str
) -> None:
    engine = EngineDouble(gpu=T4_HOST, refusal=refusal)
    report = verify(image, engine=engine, expect=ASKED)
    assert (report.verdict, report.cause) == (Verdict.HOST, cause)
    assert refusal in report.summary
    assert remedy in str(report.remedy)
    assert engine.runs == [True, False]


def test_an_image_that_starts_neither_way_is_no_host_fault(image: Image) -> None:
    engine = EngineDouble(
        gpu=T4_HOST, refusal=NO_HOOK, run=ProbeRun(started=False, daemon_error="no such file: python3")
    )
    with pytest.raises(CellError, match="does not start: no such file: python3"):
        verify(image, engine=engine, expect=ASKED)


def test_a_broken_image_is_broken_on_a_faulty_host_too(image: Image, document) -> None:
    broken = document(verdict="broken", cause="cudnn-shadowed", summary="two copies", remedy="one copy")
    report = verify(image, engine=EngineDouble(gpu=T4_HOST, refusal=NO_HOOK, run=says(broken)), expect=ASKED)
    assert (report.verdict, report.cause, report.remedy) == (Verdict.BROKEN, "cudnn-shadowed", "one copy")


def test_a_gpu_lost_on_the_way_is_not_silently_unverified(image: Image, document) -> None:
    report = verify(image, engine=EngineDouble(gpu=T4_HOST, run=says(document())), expect=ASKED)
    assert (report.verdict, report.cause) == (Verdict.HOST, "container-no-gpu")


def test_no_gpu_on_request_is_unverified_even_with_a_gpu(image: Image) -> None:
    engine = EngineDouble(gpu=T4_HOST)
    assert verify(image, engine=engine, expect=ASKED, gpus=False).verdict is Verdict.UNVERIFIED
    assert engine.runs == [False]


@pytest.mark.parametrize("verdict", ["works", "unverified", "host", "busy"])
def test_a_difference_breaks_whatever_else_was_found(image: Image, document, verdict: str) -> None:
    changes = {**WITH_GPU, "verdict": verdict, "cause": "driver-too-old" if verdict == "host" else None}
    engine = EngineDouble(gpu=T4_HOST, run=says(document(**changes)))
    report = verify(image, engine=engine, expect=dataclasses.replace(ASKED, cudnn="8.7.0"))
    assert (report.verdict, report.cause) == (Verdict.BROKEN, "expect-mismatch")
    assert [(row.what, row.asked, row.found) for row in report.differences] == [("cudnn", "8.7.0", "8.6.0")]
    assert "cudnn: asked 8.7.0, found 8.6.0" in report.summary
    assert report.document["verdict"] == verdict


@pytest.mark.parametrize("verdict", ["broken", "unsupported-gpu"])
def test_a_worse_cause_stays(image: Image, document, verdict: str) -> None:
    changes = {**WITH_GPU, "verdict": verdict, "cause": "framework-arch-missing"}
    engine = EngineDouble(gpu=T4_HOST, run=says(document(**changes)))
    report = verify(image, engine=engine, expect=dataclasses.replace(ASKED, python="3.8"))
    assert (report.verdict.value, report.cause) == (verdict, "framework-arch-missing")
    assert report.differences


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (ProbeRun(timed_out=True, returncode=-1), "did not end within 900 s"),
        (ProbeRun(truncated=True, returncode=-1), "printed without end"),
        (ProbeRun(returncode=30, stderr="Traceback\nZeroDivisionError"), "failed by a fault of its own"),
        (ProbeRun(returncode=139), r"ended with exit status 139 \(SIGSEGV\)"),
        (ProbeRun(returncode=1), "ended with exit status 1,"),
        (ProbeRun(returncode=0, stdout=""), "printed no report"),
        (ProbeRun(returncode=10, stdout='{"schema": 1, "verd'), "printed no valid report"),
    ],
)
def test_a_probe_that_fails_is_no_verdict(image: Image, run: ProbeRun, said: str) -> None:
    with pytest.raises(CommandError, match=said) as caught:
        verify(image, engine=EngineDouble(run=run), expect=ASKED)
    assert caught.value.exit_code == 1
    assert caught.value.returncode == run.returncode
    assert caught.value.tail == tuple((run.stderr or run.stdout).splitlines())


def test_an_exit_code_that_contradicts_the_verdict(image: Image, document) -> None:
    engine = EngineDouble(run=says(document(), returncode=0))
    with pytest.raises(CommandError, match="says unverified and ended with exit status 0"):
        verify(image, engine=engine, expect=ASKED)


def test_a_report_by_another_probe(image: Image, document) -> None:
    engine = EngineDouble(run=says(document(probe={"version": "1", "sha256": "a" * 64})))
    with pytest.raises(CommandError, match="but its report is by a"):
        verify(image, engine=engine, expect=ASKED)


def test_an_image_without_the_probe(image: Image) -> None:
    with pytest.raises(CellError, match="has no /usr/local/bin/cudnn-verify"):
        verify(image, engine=EngineDouble(probe=None), expect=ASKED)


def test_a_report_is_reused_for_the_same_gpu_and_driver(image: Image, document, tmp_path: Path) -> None:
    store = ReportStore(tmp_path)
    engine = EngineDouble(gpu=T4_HOST, run=says(document(**WITH_GPU)))
    first = verify(image, engine=engine, expect=ASKED, store=store)
    second = verify(image, engine=engine, expect=ASKED, store=store)
    assert (first.reused, second.reused, second.verdict) == (False, True, Verdict.WORKS)
    assert engine.runs == [True]
    engine.gpu = dataclasses.replace(T4_HOST, driver="550.54.14")
    assert not verify(image, engine=engine, expect=ASKED, store=store).reused


def test_asked_again_the_probe_runs_and_its_report_takes_the_place_of_the_old(
    image: Image, document, tmp_path: Path
) -> None:
    """A report that is too old to publish by is a dead end otherwise."""
    store = ReportStore(tmp_path)
    engine = EngineDouble(gpu=T4_HOST, run=says(document(**WITH_GPU)))
    verify(image, engine=engine, expect=ASKED, store=store)
    (first,) = store.entries()
    engine.run = says(document(**{**WITH_GPU, "summary": "of the second run"}))
    report = verify(image, engine=engine, expect=ASKED, store=store, again=True)
    (second,) = store.entries()
    assert (report.reused, engine.runs) == (False, [True, True])
    assert isinstance(first, SealedReport)
    assert isinstance(second, SealedReport)
    assert (second.where, second.document["summary"]) == (first.where, "of the second run")


def test_a_reused_report_is_compared_anew(image: Image, document, tmp_path: Path) -> None:
    store = ReportStore(tmp_path)
    engine = EngineDouble()
    verify(image, engine=engine, expect=ASKED, store=store)
    report = verify(image, engine=engine, expect=dataclasses.replace(ASKED, cudnn="8.7.0"), store=store)
    assert (report.reused, report.verdict, report.cause) == (True, Verdict.BROKEN, "expect-mismatch")


def test_an_unverified_report_does_not_stand_for_a_gpu(image: Image, document, tmp_path: Path) -> None:
    store = ReportStore(tmp_path)
    verify(image, engine=EngineDouble(), expect=ASKED, store=store)
    engine = EngineDouble(gpu=T4_HOST, run=says(document(**WITH_GPU)))
    assert verify(image, engine=engine, expect=ASKED, store=store).verdict is Verdict.WORKS


def test_a_host_fault_is_not_kept(image: Image, tmp_path: Path) -> None:
    store = ReportStore(tmp_path)
    engine = EngineDouble(gpu=T4_HOST, refusal=NO_HOOK)
    verify(image, engine=engine, expect=ASKED, store=store)
    verify(image, engine=engine, expect=ASKED, store=store)
    assert engine.runs == [True, False, True, False]
    assert list(tmp_path.iterdir()) == []


def test_a_test_double_is_marked_and_not_kept(image: Image, document, tmp_path: Path) -> None:
    engine = EngineDouble(gpu=T4_HOST, run=says(document(**WITH_GPU, test_double=True)))
    report = verify(image, engine=engine, expect=ASKED, store=ReportStore(tmp_path))
    assert report.test_double
    assert list(tmp_path.iterdir()) == []


def test_the_causes_given_here_are_in_the_probe_s_closed_list() -> None:
    from builder.verify.cudnn_verify.common.causes import CAUSES
    from builder.verify.runner.probe_run import _FAULTS, LOST_ON_THE_WAY, host_fault, no_way_in

    given = {fault.cause for fault in _FAULTS} | {"expect-mismatch", host_fault("?").cause}
    given |= {no_way_in(("/dev/nvidia0",)).cause, LOST_ON_THE_WAY.cause}
    assert given <= set(CAUSES)


def test_a_gpu_that_was_seen_and_not_used_is_not_called_lost(image: Image, document) -> None:
    seen = document(**{**WITH_GPU, "verdict": "unverified"})
    assert verify(image, engine=EngineDouble(gpu=T4_HOST, run=says(seen)), expect=ASKED).cause is None


SUITES = [
    {"suite": name, "framework": None, "outcome": "not_run", "reason": "x"} for name in ("conv", "train")
]


class WithSuites(EngineDouble):
    """A test double: the commands are kept, too."""

    def run_probe(self, reference, argv, **options):
        self.commands = [*getattr(self, "commands", []), list(argv)]
        return super().run_probe(reference, argv, **options)


def with_suites(document, rows, probe: bytes = b'add("--suite", metavar="NAMES")') -> WithSuites:
    """An image whose probe knows suites."""
    told = document(
        **WITH_GPU, suites=rows, probe={"version": "1", "sha256": hashlib.sha256(probe).hexdigest()}
    )
    return WithSuites(gpu=T4_HOST, run=says(told), probe=probe)


def test_the_suites_are_handed_to_the_probe(image: Image, document) -> None:
    engine = with_suites(document, SUITES)
    verify(image, engine=engine, expect=ASKED, suites=("conv", "train"))
    verify(image, engine=engine, expect=ASKED)
    assert [command[1:] for command in engine.commands] == [["--json", "--suite", "conv,train"], ["--json"]]


def test_without_a_gpu_or_with_an_older_probe_no_suite_is_asked_for(image: Image, document) -> None:
    engine = EngineDouble(gpu=T4_HOST, run=says(document(**WITH_GPU)))
    report = verify(image, engine=engine, expect=ASKED, suites=("conv", "train"))
    assert report.verdict is Verdict.WORKS


def test_a_kept_report_without_a_suite_is_not_reused(image: Image, document, tmp_path: Path) -> None:
    store = ReportStore(tmp_path)
    assert not verify(image, engine=with_suites(document, SUITES[:1]), expect=ASKED, store=store).reused
    wanted = {"expect": ASKED, "store": store, "suites": ("conv", "train")}
    assert not verify(image, engine=with_suites(document, SUITES), **wanted).reused
    assert verify(image, engine=with_suites(document, SUITES), **wanted).reused


def test_suites_that_nobody_named_are_handed_to_a_probe_that_knows_the_option(
    image: Image, document, tmp_path: Path
) -> None:
    before = with_suites(document, SUITES)
    verify(image, engine=before, expect=ASKED, suggested=("train",))
    assert before.commands[0][1:] == ["--json"]
    rows = [SUITES[0], {**SUITES[1], "suggested": True}]
    engine = with_suites(document, rows, b'add("--suite") add("--suggested")')
    asked = {"engine": engine, "expect": ASKED, "store": ReportStore(tmp_path)}
    assert not verify(image, **asked, suggested=("train",)).reused
    assert engine.commands[0][1:] == ["--json", "--suggested", "train"]
    assert verify(image, **asked, suggested=("train",)).reused
    # it did not pass, so a matrix that names it needs a report that was asked for it
    assert not verify(image, **asked, suites=("conv", "train")).reused
