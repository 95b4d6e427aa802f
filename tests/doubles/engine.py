"""Test doubles: a report as the probe prints it, and an engine that is none."""

from __future__ import annotations

import hashlib
import json
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from builder.verify.runner.document import EXIT_CODES

PROBE = b"#!/bin/sh\n# test double of the probe\n"
PROBE_SHA256 = hashlib.sha256(PROBE).hexdigest()

DOCUMENT: dict[str, Any] = {
    "schema": 1,
    "probe": {"version": "1.0", "sha256": PROBE_SHA256},
    "verdict": "unverified",
    "cause": None,
    "side": None,
    "summary": "no GPU here; all that can be checked without one is sound",
    "remedy": None,
    "proof": [],
    "consequences": [],
    "checks": [
        {"id": "E01", "stage": "environment", "outcome": "passed", "summary": "Python 3.9", "evidence": {}},
        {
            "id": "D01",
            "stage": "driver",
            "outcome": "not_run",
            "summary": "no GPU",
            "evidence": {},
            "note": "x",
        },
    ],
    "python": {"version": "3.9.2", "executable": "/opt/runtime/bin/python"},
    "gpus": [],
    "driver": None,
    "libraries": [
        {"name": "libcudnn.so.8", "path": "/x/libcudnn.so.8", "version": "8.6.0", "mapped_by": "tensorflow"}
    ],
    "frameworks": [
        {
            "name": "tensorflow",
            "version": "2.8.4",
            "compiled": {"cuda": "11.2", "cudnn": "8.1"},
            "loaded": {"cuda": "11.8", "cudnn": "8.6.0"},
            "device": None,
        }
    ],
    "differences": [],
    "test_double": False,
    "seconds": 2.5,
}
WITH_GPU = {
    "verdict": "works",
    "summary": "works",
    "gpus": [{"name": "Tesla T4", "compute_capability": "7.5", "memory": 15843721216}],
    "driver": {"version": "535.104.05", "api": "12.2"},
}


def make_document(**changes: Any) -> dict[str, Any]:
    return {**deepcopy(DOCUMENT), **changes}


@dataclass(frozen=True)
class Gpu:
    name: str = "Tesla T4"
    compute_capability: str | None = "7.5"


@dataclass(frozen=True)
class GpuFacts:
    usable: bool = False
    traces: tuple[str, ...] = ()
    driver: str | None = None
    gpus: tuple[Gpu, ...] = ()


T4_HOST = GpuFacts(usable=True, traces=("/dev/nvidia0",), driver="535.104.05", gpus=(Gpu(),))


@dataclass(frozen=True)
class Run:
    returncode: int = 10
    stdout: str = ""
    stderr: str = ""
    started: bool = True
    daemon_error: str | None = None
    timed_out: bool = False
    truncated: bool = False


@dataclass
class EngineDouble:
    """A test double: gives the same answer to every run, and counts them."""

    run: Run = field(default_factory=lambda: says(make_document()))
    gpu: GpuFacts = field(default_factory=GpuFacts)
    refusal: str | None = None
    """What the daemon says to a container that asks for a GPU."""
    probe: bytes | None = PROBE
    runs: list[bool] = field(default_factory=list)
    """For each run, whether it asked for a GPU."""

    def facts(self) -> EngineDouble:
        return self

    def read_file(self, reference: str, path: str) -> bytes | None:
        assert path == "/usr/local/bin/cudnn-verify"
        return self.probe

    def run_probe(self, reference, argv, *, gpus, timeout, cancel=None, waits=None) -> Run:
        self.runs.append(gpus)
        if gpus and self.refusal:
            return Run(returncode=-1, started=False, daemon_error=self.refusal)
        return self.run


def says(document: dict[str, Any], **changes: Any) -> Run:
    settings = {"returncode": EXIT_CODES[document["verdict"]], "stdout": json.dumps(document)}
    return Run(**{**settings, **changes})
