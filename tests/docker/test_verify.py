"""Verification against a real engine, with a test double in the probe's place."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest
import tiny

from builder.core.errors import CommandError
from builder.core.model import Base, Cell, Cuda, Image, Verdict
from builder.image.engine.build import BuildRequest
from builder.image.engine.engine import Engine
from builder.verify.runner import probe_run
from builder.verify.runner.probe_run import verify
from builder.verify.runner.reports import Expectation, ReportStore

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.docker

DOCUMENT = {
    "schema": 1,
    "probe": {"version": "test double", "sha256": "SHA256"},
    "verdict": "unverified",
    "cause": None,
    "side": None,
    "summary": "a test double's word",
    "remedy": None,
    "proof": [],
    "consequences": [],
    "checks": [],
    "python": "3.9.2",
    "gpus": [],
    "driver": None,
    "libraries": [],
    "frameworks": [],
    "differences": [],
    "test_double": False,
    "seconds": 0.1,
}
SAY = f"""#!/bin/sh
# test double of cudnn-verify
[ "$1" = --json ] && [ $(id -u) != 0 ] || exit 30
say() {{ sed "s/SHA256/$(sha256sum "$0" | cut -d' ' -f1)/" <<'END'
{json.dumps(DOCUMENT)}
END
}}
"""
CELL = Cell(
    id="tiny",
    matrix="test",
    frameworks=(),
    python="3.9",
    base=Base(kind="rootfs", name="debian/bookworm"),
    cuda=Cuda(provider="none"),
)


@pytest.fixture(scope="module")
def engine():
    with Engine.connect() as engine:
        if engine.facts().gpu.request or engine.facts().gpu.traces:
            pytest.skip("this machine has a GPU or NVIDIA's toolkit")
        yield engine


@pytest.fixture(scope="module")
def busybox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.busybox(tmp_path_factory.mktemp("busybox"))


@pytest.fixture
def image(engine: Engine, busybox: Path, tmp_path: Path):
    """Make an image whose probe ends with ``script``."""
    names: list[str] = []

    def make(script: str) -> Image:
        names.append(tiny.name())
        folder = tiny.context(
            tmp_path / f"context{len(names)}",
            busybox,
            "COPY probe /usr/local/bin/cudnn-verify\n",
            probe=SAY + script + "\n",
        )
        platform = engine.facts().platform
        request = BuildRequest(context=folder, tag=names[-1], platform=platform, epoch=1)
        engine.build(request, log=tmp_path / "log", cancel=threading.Event())
        built = engine.inspect(names[-1])
        assert built is not None
        return Image(
            cell=CELL, reference=names[-1], digest=built.digest, content=built.content, size=built.size
        )

    yield make
    for name in names:
        engine.remove(name)


def test_a_sound_image_on_a_machine_without_a_gpu(engine: Engine, image, tmp_path: Path) -> None:
    made = image("say; exit 10")
    store = ReportStore(tmp_path / "reports")
    first = verify(made, engine=engine, expect=Expectation(python="3.9"), store=store)
    assert (first.verdict, first.cause, first.reused) == (Verdict.UNVERIFIED, None, False)
    again = verify(made, engine=engine, expect=Expectation(python="3.9"), store=store)
    assert (again.verdict, again.reused) == (Verdict.UNVERIFIED, True)
    other = verify(made, engine=engine, expect=Expectation(python="3.10"), store=store)
    assert (other.verdict, other.cause) == (Verdict.BROKEN, "expect-mismatch")


def test_a_gpu_that_this_engine_cannot_give(engine: Engine, image) -> None:
    report = verify(image("say; exit 10"), engine=engine, expect=Expectation(), gpus=True)
    assert (report.verdict, report.cause) == (Verdict.HOST, "container-no-gpu")
    assert 'could not select device driver "" with capabilities: [[gpu]]' in report.summary
    assert "nvidia-ctk runtime configure" in str(report.remedy)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("sh -c 'kill -11 $$'; exit $?", "SIGSEGV"),
        ("echo 'a framework prints'; say; exit 10", "no valid report"),
        ("say | head -c 100; exit 10", "no valid report"),
        ("say; exit 0", "says unverified and ended with exit status 0"),
        ("echo broken >&2; exit 30", "a fault of its own"),
    ],
)
def test_a_probe_that_fails_is_no_verdict(engine: Engine, image, script: str, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        verify(image(script), engine=engine, expect=Expectation())


def test_a_probe_that_hangs_is_no_verdict(engine: Engine, image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_run, "_SECONDS", 3.0)
    with pytest.raises(CommandError, match="did not end within 3 s") as caught:
        verify(image("echo starting >&2; sleep 300"), engine=engine, expect=Expectation())
    assert caught.value.tail == ("starting",)
