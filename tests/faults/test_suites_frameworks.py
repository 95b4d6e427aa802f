"""The suites' judge over a real framework on the CPU: right results, and what faults would make of them.

A CPU is no card: each row's place is set to one for its numbers to be judged; "silent CPU" leaves it.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import faults_real_frameworks
import pytest

from builder.verify.cudnn_verify.measure.suite_judge import ON_CARD, judge_results
from builder.verify.cudnn_verify.measure.suite_reference import CHANCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fault_scene import Scene

pytestmark = pytest.mark.wheels
HERE = Path(__file__).resolve().parent
Row = dict[str, Any]

_COARSER = {"bfloat16": 4, "float16": 8, "float32": 11, "float64": 24}
"""{type of a result: the bits of the significand of the next coarser one}"""


def on_a_card(row: Row) -> Row:
    return {**row, "devices": ["cuda:0"], "memory": [ON_CARD + "0"]}


def cut(value: float, bits: int) -> float:
    """A number rounded to this many bits of a significand."""
    fraction, exponent = math.frexp(value)
    return math.ldexp(round(fraction * 2**bits), exponent - bits)


def stored_in(what: str) -> str:
    return next((name for name in _COARSER if name in what), "float32")


def faults_of(row: Row, before: Row | None) -> Iterator[tuple[str, Row]]:
    """(name, the row as a fault would leave it); ``before``: the same result of other operands."""
    sound, found = on_a_card(row), row["found"]
    yield "silent CPU", row
    yield "the driver names another memory", {**sound, "memory": ["memory of the host"]}
    yield "NaN in a corner", {**sound, "found": [*found[:-1], math.nan]}
    yield "an output that was not written", {**sound, "found": [math.nan] * len(found)}
    yield "an output that ends early", {**sound, "found": found[:-1]}
    if any(row["wanted"]):
        yield "a gradient that was dropped", {**sound, "found": [0.0] * len(found)}
    # moments, and vectors times themselves, are right whatever the operands were
    if before is not None and before["wanted"] != row["wanted"] and len(found) > 20:
        size = max(16, len(found) // 16)
        tile = before["found"][:size] + found[size:]
        if tile != found:  # whole numbers may be the same by chance
            yield "one tile is stale", {**sound, "found": tile}
        yield "all of it is of the call before", {**sound, "found": before["found"]}
    by_itself = "singular vectors" in row["what"] or row["basis"] == CHANCE
    if not row["basis"].startswith("whole numbers") and not by_itself:
        bits = _COARSER[stored_in(row["what"])]
        yield "another type's error", {**sound, "found": [cut(value, bits) for value in found]}


def said_by(scene: Scene, framework: str, script: str, *arguments: str, timeout: int = 600) -> list[Any]:
    """The lines of JSON that a script prints under the framework's own Python."""
    faults_real_frameworks.install(scene, framework)
    command = [str(scene.venv / "bin" / "python"), str(HERE / script), str(HERE.parent.parent), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False, env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def suites_of(scene: Scene, framework: str, suites: str) -> dict[str, Any]:
    return said_by(scene, framework, "suites_on_cpu.py", framework, *suites.split())[-1]


ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "USER": "nobody"}


COMPILED = {
    "outside": ("first-inputs", "tail", "operation-skipped", "half-between", "not-compiled"),
    "outside_hardware": ("lane-missed", "block-of-first-call", "gradient-dropped"),
}
EVERY = pytest.mark.skipif(
    "RTBUILD_EVERY_SUITE" not in os.environ, reason="PyTorch with its CUDA libraries is 3 GB: make suites"
)


@pytest.mark.parametrize(
    ("framework", "suites"),
    [
        pytest.param("jax", "linalg attention compile train conv-kinds", id="jax"),
        pytest.param(
            "tensorflow", "linalg attention compile train vision loader conv-kinds", id="tensorflow"
        ),
        pytest.param("paddle", "linalg attention train vision conv-kinds", id="paddle"),
        pytest.param("onnxruntime", "infer", id="onnxruntime"),
        pytest.param("ctranslate2", "infer", id="ctranslate2"),
        pytest.param(
            "torch", "linalg attention train vision loader comm conv-kinds", id="torch", marks=EVERY
        ),
        pytest.param("torch", "compile", id="torch-compile", marks=EVERY),
    ],
)
def test_right_results_pass_and_faults_do_not(framework: str, suites: str, scene: Scene) -> None:
    blamed, passed, sound, broken = [], [], 0, 0
    for suite, ran in suites_of(scene, framework, suites).items():
        assert ran["rows"], (suite, ran["skipped"])
        for row, before in zip(ran["rows"], ran["again"] or [None] * len(ran["rows"]), strict=True):
            for one in filter(None, (row, before)):
                sound += 1
                blamed += judge_results([on_a_card(one)])["faults"]
            if row["what"].startswith("singular values"):
                assert min(row["wanted"]) > 0.9  # one that is lost shows
            for name, wrong in faults_of(row, before):
                broken += 1
                if not judge_results([wrong])["faults"]:
                    passed.append(f"{suite}: {row['what']}: {name}")
    print(f"{framework}: {sound} sound results, {broken} faults")
    assert blamed == []
    assert not passed, "\n".join(passed)
    assert sound >= 2


@pytest.mark.parametrize(
    ("framework", "listed", "chosen", "count"),
    [
        pytest.param("onnxruntime", "outside", "", 6, id="infer"),
        pytest.param("onnxruntime", "outside_hardware", "", 4, id="infer-hardware"),
        pytest.param("jax", "outside_hardware", "", 26, id="jax-hardware"),
        *(
            pytest.param("torch", listed, suite, count, id=f"{suite}-{listed}", marks=EVERY)
            for listed, suite, count in [
                ("outside", "conv", 30),
                ("outside", "linalg", 31),
                ("outside", "attention", 24),
                ("outside", "train", 11),
                ("outside", "vision", 7),
                ("outside", "loader", 6),
                ("outside", "comm", 3),
                ("outside_hardware", "conv", 8),
                ("outside_hardware", "linalg", 16),
                ("outside_hardware", "attention", 8),
                ("outside_hardware", "train", 5),
                ("outside_hardware", "vision", 3),
                ("outside_hardware", "loader", 3),
            ]
        ),
        *(
            pytest.param("torch", listed, f"compile:{fault}", 1, id=f"compile-{fault}", marks=EVERY)
            for listed, faults in COMPILED.items()
            for fault in faults
        ),
    ],
)
def test_faults_written_before_the_judge_was_read(
    framework: str, listed: str, chosen: str, count: int, scene: Scene
) -> None:
    """suites_outside.toml and suites_outside_hardware.toml: each is refused where it can be put in, and the
    sound run beside it passes.
    """
    script, given = f"suites_{listed}_{framework}.py", list(filter(None, [chosen]))
    if framework == "onnxruntime":
        script, given = "suites_outside_onnxruntime.py", [f"suites_{listed}.toml"]
    told = said_by(scene, framework, script, *given, timeout=1200)
    sound, wrong = (
        [one for one in told if (one["fault"] == "sound") is is_sound] for is_sound in (True, False)
    )
    assert [one["faults"] for one in sound] == [[]] * (0 if ":" in chosen or framework == "jax" else 1)
    assert len(wrong) == count
    left = [one for one in wrong if "reason" in one]
    print(f"{framework} {chosen}: {count - len(left)} faults, {len(left)} need a card")
    assert [one for one in wrong if not one.get("reason") and not one.get("faults")] == []
