"""The suites' judge over a real framework on the CPU: right results, and what faults would make of them.

A CPU is no card: each row's place is set to one for its numbers to be judged; "silent CPU" leaves it.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import faults_real_frameworks
import pytest

from builder.verify.cudnn_verify.measure.suite_judge import CHANCE, LAPACK, ON_CARD, judge_results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


def _run(draw: random.Random, found: list[float]) -> slice:
    size = draw.randint(1, len(found) // 4)
    start = draw.randrange(len(found) - size)
    return slice(start, start + size)


def _on_run(change: Callable[[float], float]) -> Callable[[list[float], random.Random], list[float]]:
    def spoil(found: list[float], draw: random.Random) -> list[float]:
        place = _run(draw, found)
        return [*found[: place.start], *map(change, found[place]), *found[place.stop :]]

    return spoil


def _exponent(found: list[float], draw: random.Random) -> list[float]:
    at, bit = draw.randrange(len(found)), 1 << draw.randrange(5)
    return [*found[:at], math.ldexp(found[at], draw.choice([bit, -bit])), *found[at + 1 :]]


def _moved_run(found: list[float], draw: random.Random) -> list[float]:
    place, other = _run(draw, found), list(found)
    start = draw.randrange(len(found) - (place.stop - place.start))
    other[place] = found[start : start + place.stop - place.start]
    if draw.random() < 0.5:
        other[start : start + place.stop - place.start] = found[place]
    return other


def _lane(found: list[float], draw: random.Random) -> list[float]:
    width, other = draw.choice([8, 16, 32]), list(found)
    lane = draw.randrange(1, width)
    other[lane::width] = [found[at - 1] for at in range(lane, len(found), width)]
    return other


def _stuck(value: float) -> float:
    """The first bit of the significand behind the point stuck at one."""
    fraction, exponent = math.frexp(value)
    lacking = 0.25 if 0.0 < abs(fraction) < 0.75 else 0.0
    return math.ldexp(fraction + math.copysign(lacking, value), exponent)


FORMS = {
    "a bit of an exponent flips": _exponent,
    "a run of signs flips": _on_run(lambda value: -value),
    "a run is zero": _on_run(lambda value: 0.0),
    "a run is added twice": _on_run(lambda value: 2 * value),
    "a run lacks half of each sum": _on_run(lambda value: value / 2),
    "a bit is stuck in a run": _on_run(_stuck),
    "a run is another's, or both are exchanged": _moved_run,
    "a lane holds its neighbour's": _lane,
    "all is shifted by a number": lambda found, draw: [found[-1], *found[:-1]],
}


def drawn_faults(row: Row, draw: random.Random, count: int = 4) -> Iterator[tuple[str, Row]]:
    """Faults of a form and at a place that nobody chose, each of which moves a number of the result by the
    root mean square of the result at least.
    """
    found, size = row["found"], math.sqrt(sum(value * value for value in row["wanted"]) / len(row["wanted"]))
    if row["basis"] in (CHANCE, LAPACK) or len(found) < 32:  # numbers that were worked out of the result's
        return
    while count:
        name = draw.choice(sorted(FORMS))
        wrong = FORMS[name](found, draw)
        if max(abs(one - other) for one, other in zip(wrong, row["wanted"], strict=True)) >= size:
            count -= 1
            yield name, {**on_a_card(row), "found": wrong}


def said_by(scene: Scene, framework: str, script: str, *arguments: str, timeout: int = 600) -> list[Any]:
    """The lines of JSON that a script prints under the framework's own Python."""
    faults_real_frameworks.install(scene, framework)
    command = [str(scene.venv / "bin" / "python"), str(HERE / script), str(HERE.parent.parent), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False, env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


HALF_SUMS = "avx512_fp16" in Path("/proc/cpuinfo").read_text()
"""Whether this CPU can add float16 in float16: XLA's attention is about twice its bound off on such a one,
which stands in for no card then. cuBLAS adds in float32 (CUBLAS_COMPUTE_32F).
"""


def suites_of(scene: Scene, framework: str, suites: str, times: int = 2) -> dict[str, Any]:
    given = (framework, str(times), *suites.split())
    return said_by(scene, framework, "suites_on_cpu.py", *given, timeout=1800)[-1]


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
        pytest.param("jax", "linalg attention compile train conv-kinds vision", id="jax"),
        pytest.param(
            "tensorflow", "linalg attention compile train vision loader conv-kinds", id="tensorflow"
        ),
        pytest.param("paddle", "linalg attention train vision loader conv-kinds", id="paddle"),
        pytest.param("onnxruntime", "infer", id="onnxruntime"),
        pytest.param("ctranslate2", "infer", id="ctranslate2"),
        pytest.param(
            "torch", "linalg attention train vision loader comm conv-kinds", id="torch", marks=EVERY
        ),
        pytest.param("torch", "compile", id="torch-compile", marks=EVERY),
    ],
)
def test_right_results_pass_and_faults_do_not(framework: str, suites: str, scene: Scene) -> None:
    blamed, passed, sound, broken, drawn = [], [], 0, 0, 0
    seed = int.from_bytes(os.urandom(4), "little")
    draw = random.Random(seed)
    for suite, ran in suites_of(scene, framework, suites).items():
        rows, *again = ran["runs"]
        assert rows, (suite, ran["skipped"])
        for row, before in zip(rows, again[0] if again else [None] * len(rows), strict=True):
            if HALF_SUMS and row["what"].startswith("attention by xla in float16"):
                continue
            for one in filter(None, (row, before)):
                sound += 1
                blamed += judge_results([on_a_card(one)])["faults"]
            if row["what"].startswith("singular values"):
                assert min(row["wanted"]) > 0.9  # one that is lost shows
            made, chosen = list(faults_of(row, before)), list(drawn_faults(row, draw))
            broken, drawn = broken + len(made), drawn + len(chosen)
            for name, wrong in made + chosen:
                if not judge_results([wrong])["faults"]:
                    passed.append(f"{suite}: {row['what']}: {name}")
    print(f"{framework}: {sound} sound results, {broken} faults, {drawn} drawn ones (seed {seed})")
    assert blamed == []
    assert not passed, "\n".join(passed)
    assert sound >= 2


@pytest.mark.parametrize(
    ("framework", "suites"),
    [
        pytest.param("jax", "linalg train conv-kinds vision", id="jax"),
        pytest.param("tensorflow", "linalg train conv-kinds vision", id="tensorflow"),
        pytest.param("paddle", "linalg train conv-kinds vision", id="paddle"),
        pytest.param("torch", "linalg train conv-kinds vision", id="torch", marks=EVERY),
    ],
)
def test_sixty_sound_runs_of_each_framework_are_not_blamed(framework: str, suites: str, scene: Scene) -> None:
    """Each has numbers of its own: a bound that a right result exceeds now and then shows."""
    runs = [rows for ran in suites_of(scene, framework, suites, times=15).values() for rows in ran["runs"]]
    judged = [judge_results([on_a_card(row) for row in rows]) for rows in runs]
    worst = max((one["worst"] for one in judged), key=lambda one: one["error"] / (one["bound"] or math.inf))
    ran = sum(one["ran"] for one in judged)
    print(f"{framework}: {len(runs)} sound runs, {ran} results; nearest to its bound: {worst}")
    assert [one["faults"] for one in judged] == [[]] * 60


@pytest.mark.parametrize(
    ("framework", "listed", "chosen", "count"),
    [
        pytest.param("onnxruntime", "outside", "", 6, id="infer"),
        pytest.param("onnxruntime", "outside_hardware", "", 4, id="infer-hardware"),
        pytest.param("jax", "outside_hardware", "", 26, id="jax-hardware"),
        pytest.param("jax", "outside_programs", "", 14, id="jax-programs"),
        pytest.param("paddle", "outside_programs", "", 8, id="paddle-programs"),
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
                ("outside_programs", "conv", 3),
                ("outside_programs", "train", 12),
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
    """suites_outside*.toml: each is refused where it can be put in, and the sound run beside it passes."""
    script, given = f"suites_{listed}_{framework}.py", list(filter(None, [chosen]))
    if framework != "torch":
        script, given = f"suites_outside_{framework}.py", [f"suites_{listed}.toml"]
    told = said_by(scene, framework, script, *given, timeout=1200)
    sound, wrong = (
        [one for one in told if (one["fault"] == "sound") is is_sound] for is_sound in (True, False)
    )
    assert [one["faults"] for one in sound] == [[]] * (0 if ":" in chosen or framework == "jax" else 1)
    assert len(wrong) == count
    left = [one for one in wrong if "reason" in one]
    print(f"{framework} {chosen}: {count - len(left)} faults, {len(left)} need a card")
    assert [one for one in wrong if not one.get("reason") and not one.get("faults")] == []
