"""Ten thousand generated inputs over all readers; ``RTBUILD_FUZZ=1000000`` in ``make fuzz``."""

from __future__ import annotations

import os
import resource
import time

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from readers import Cases

INPUTS = int(os.environ.get("RTBUILD_FUZZ", "10000"))
LONGEST = 10.0
"""Seconds for one input."""
MOST = 300_000
"""KiB of memory that reading may add."""
NAMES = (
    "json", "moment", "report", "sealed", "index", "manifest", "config", "statement", "page", "html", "lock",
    "challenge", "reference", "tar", "wheel", "sdist", "pyproject", "layer",
)  # fmt: skip


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    return Cases(tmp_path_factory.mktemp("fuzz"))


def test_every_reader_is_fuzzed(cases: Cases) -> None:
    assert tuple(cases.readers) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_answers_or_refuses(cases: Cases, name: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    slowest = 0.0

    @settings(
        max_examples=max(1, INPUTS // len(NAMES)),
        deadline=None,
        database=None,
        derandomize=INPUTS <= 10_000,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        nonlocal slowest
        given_bytes = data.draw(cases.readers[name][0])
        began = time.monotonic()
        cases.run(name, given_bytes)
        slowest = max(slowest, time.monotonic() - began)

    run()
    assert slowest < LONGEST
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST
