"""Test doubles: a report as the probe prints it, and an engine that is none."""

from __future__ import annotations

import hashlib
import json
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from builder.image.engine.container import ProbeRun
from builder.image.engine.facts import EngineFacts, Gpu, GpuFacts
from builder.image.engine.images import StoredImage
from builder.verify.runner.probe_run import PROBE_PATH
from builder.verify.runner.reports import EXIT_CODES

if TYPE_CHECKING:
    from collections.abc import Sequence

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


NO_GPU = GpuFacts(request=None, traces=())
T4_HOST = GpuFacts(
    request="gpus",
    traces=("/dev/nvidia0",),
    toolkit="1.17.8",
    driver="535.104.05",
    gpus=(Gpu(name="Tesla T4", compute_capability="7.5"),),
)


def says(document: dict[str, Any], **changes: Any) -> ProbeRun:
    """The run of a probe that prints this report."""
    settings = {"returncode": EXIT_CODES[document["verdict"]], "stdout": json.dumps(document)}
    return ProbeRun(**{**settings, **changes})


def stored(name: str, digest: str = "sha256:" + "d" * 64, **changes: Any) -> StoredImage:
    """An image as the engine tells of it."""
    fields = {"content": "sha256:" + "c" * 64, "size": 5, "labels": ()}
    return StoredImage(**{"reference": name, "digest": digest, **fields, **changes})


@dataclass
class EngineDouble:
    """In the place of an engine: has what a test gives it, and keeps what it was asked."""

    run: ProbeRun | list[ProbeRun] = field(default_factory=lambda: says(make_document()))
    """What each program prints in a container; a list: one after the other."""
    gpu: GpuFacts = NO_GPU
    refusal: str | None = None
    """What the daemon says to a container that asks for a GPU."""
    machine: dict[str, Any] = field(default_factory=dict)
    """What differs from a sound machine, by the fields of ``EngineFacts``."""
    probe: bytes | None = PROBE
    """The probe in each image."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Other files in each image, by path."""
    images: dict[str, StoredImage] = field(default_factory=dict)
    """By the name that it is asked for."""
    elsewhere: dict[str, StoredImage] = field(default_factory=dict)
    """Images that a pull brings, by name."""
    buildx: str = "0.13.1"
    runs: list[bool] = field(default_factory=list)
    """For each run, whether it asked for a GPU."""
    started: list[tuple[str, Sequence[str]]] = field(default_factory=list)
    """For each run, its image and its words."""
    read: list[tuple[str, str]] = field(default_factory=list)
    """Image and path of each file that was read."""
    pulled: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    def facts(self) -> EngineFacts:
        sound: dict[str, Any] = {
            "version": "26.1.5",
            "store": "containerd",
            "driver": "overlayfs",
            "root": "/var/lib/docker",
            "disk_free": 10**11,
            "platform": "linux/amd64",
            "host": "unix:///x.sock",
        }
        return EngineFacts(**{**sound, "gpu": self.gpu, **self.machine})

    def inspect(self, reference: str) -> StoredImage | None:
        return self.images.get(reference)

    def pull(self, reference: str, **_options: object) -> None:
        self.pulled.append(reference)
        self.images[reference] = self.elsewhere[reference]

    def remove(self, reference: str) -> bool:
        self.removed.append(reference)
        return self.images.pop(reference, None) is not None

    def read_file(self, reference: str, path: str) -> bytes | None:
        self.read.append((reference, path))
        return self.probe if path == PROBE_PATH else self.files.get(path)

    def run_probe(self, reference: str, argv: Sequence[str], *, gpus: bool, **_options: object) -> ProbeRun:
        self.started.append((reference, argv))
        self.runs.append(gpus)
        if gpus and self.refusal:
            return ProbeRun(started=False, daemon_error=self.refusal)
        return self.run.pop(0) if isinstance(self.run, list) else self.run
