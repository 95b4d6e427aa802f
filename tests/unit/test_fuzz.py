"""Ten thousand generated inputs over all readers; in ``make test-unit`` 1,000, in ``make fuzz`` a million."""

from __future__ import annotations

import gc
import os
import re
import secrets
import time
from pathlib import Path

import hypothesis
import pytest
from fuzz_readers import Cases
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

INPUTS = int(os.environ.get("RTBUILD_FUZZ", "10000"))
LONGEST = 10.0
"""Seconds for one input."""
MOST = 300_000
"""KiB of memory that a process may have which does nothing else."""
OWN = 100_000
"""KiB of it that Python, pytest and rtbuild take before the first input; more is of tests that ran before."""
PART = 1000
"""Inputs between two starts of Hypothesis."""
NAMES = (
    "json", "moment", "report", "sealed", "index", "manifest", "config", "statement", "page", "html", "lock",
    "challenge", "reference", "tar", "wheel", "sdist", "pyproject", "layer",
)  # fmt: skip


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    return Cases(tmp_path_factory.mktemp("fuzz"))


def test_every_reader_is_fuzzed(cases: Cases) -> None:
    assert tuple(cases.readers) == NAMES


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_reader_answers_or_refuses(cases: Cases, name: str) -> None:
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of what ran before
    gc.collect()
    before = memory("VmRSS")
    slowest, left = 0.0, max(1, INPUTS // len(NAMES))
    number = 0 if INPUTS <= 10_000 else secrets.randbelow(1 << 32)  # each night others
    while left > 0:  # in parts: Hypothesis remembers all that it has tried
        slowest = max(slowest, fuzz(cases, name, seed=number, inputs=min(PART, left)))
        left, number = left - PART, number + 1
    assert slowest < LONGEST
    own = OWN if INPUTS > 10_000 else 0  # beside other tests, the collector waits longer
    assert memory("VmHWM") - max(0, before - own) < MOST


def memory(what: str) -> int:
    """KiB that this process has (``VmRSS``), or had at most (``VmHWM``)."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


def fuzz(cases: Cases, name: str, *, seed: int, inputs: int) -> float:
    """Read ``inputs`` generated documents; the seconds of the slowest."""
    slowest = 0.0

    @hypothesis.seed(seed)
    @settings(
        max_examples=inputs,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        nonlocal slowest
        given_bytes = data.draw(cases.readers[name][0])
        began = time.process_time()
        cases.run(name, given_bytes)
        slowest = max(slowest, time.process_time() - began)

    run()
    return slowest
