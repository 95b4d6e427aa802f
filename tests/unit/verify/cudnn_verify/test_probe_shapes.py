"""What one part of the probe stores, every part that reads it can read.

No exception of the probe's own is taken for a finding, or ends more than its own check.
"""

import ast
from pathlib import Path

import pytest

from builder.verify.cudnn_verify.common.causes import CAUSES
from builder.verify.cudnn_verify.measure import judge, protocol, report, schedule
from builder.verify.cudnn_verify.measure.machine_facts import commands_here
from builder.verify.cudnn_verify.measure.protocol import (
    EVIDENCE_SHAPES,
    FACT_SHAPES,
    STAGES,
    ShapeError,
    check_shapes,
    new_check,
)
from builder.verify.cudnn_verify.measure.run import Program

PROBE = Path(schedule.__file__).parent
NEED = {"by": "torch 2.9.1", "wants": "nvidia-nccl-cu12==2.27.5", "name": "nvidia-nccl-cu12"}
PACKAGES = {
    name: {"name": name, "version": version, "location": "/site", "info": f"{name}.dist-info", "requires": []}
    for name, version in (("torch", "2.9.1"), ("nvidia-cudnn-cu12", "9.10.2.21"))
}
SAMPLES = {
    str: ("libcublas.so.12", "9.10.2", "cannot open shared object file"),
    None: (None,),
    bool: (True, False),
    int: (1,),
    dict: ({"cudnn": "9.10.2"},),
}


def sample(shape):
    """Values of every alternative of a shape."""
    if isinstance(shape, tuple):
        return [value for one in shape for value in sample(one)]
    if isinstance(shape, list):
        return [[], *([value] for value in sample(shape[0]))]
    if isinstance(shape, dict):
        if set(shape) == {"by", "wants", "name"}:
            return [NEED]
        return [{key: sample(part)[0] for key, part in shape.items() if key is not str}]
    return list(SAMPLES[shape])


def read_keys(name):
    """Keys that the probe's code reads out of something called ``name``: ``name.get("x")``, ``name["x"]``."""
    found = {}
    for path in sorted(PROBE.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            called = isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Attribute)
            if called and node.func.attr == "get":
                owner, key = node.func.value, node.args[0]
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                owner, key = node.value, node.slice
            else:
                continue
            ends = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", None)
            if isinstance(owner, ast.Subscript) and isinstance(owner.slice, ast.Constant):
                ends = owner.slice.value  # check["evidence"]["x"]
            if isinstance(owner, ast.Call) and owner.args and isinstance(owner.args[0], ast.Constant):
                ends = owner.args[0].value
            if ends == name and isinstance(key, ast.Constant) and isinstance(key.value, str):
                found.setdefault(key.value, set()).add(path.name)
    return found


OWN_EVIDENCE = {"file", "found", "free", "is_hip", "libcudnn.so", "name"}
"""Read only by the function that has just stored it."""
DERIVED = {"frameworks", "imported", "suggested_until", "suites_asked", "suites_left", "suites_suggested"}
"""Put together by the schedule itself, out of other facts."""


def test_every_key_that_is_read_has_a_shape():
    assert set(read_keys("evidence")) - OWN_EVIDENCE <= set(EVIDENCE_SHAPES)
    local = {"problem", "size", "skipped"}  # of a file's header, in library_files
    assert set(read_keys("facts")) - DERIVED - local <= set(FACT_SHAPES)


@pytest.mark.slow
@pytest.mark.parametrize("cause", CAUSES)
def test_evidence_of_every_shape_goes_through_every_reader(cause):
    """Each cause's commands for any check's evidence, one key at a time and all together."""
    facts = {"packages": PACKAGES, "unmet": [NEED], "copies": [], "gpus": [], "frameworks": []}
    each = [{key: value} for key, shape in EVIDENCE_SHAPES.items() for value in sample(shape)]
    for evidence in [{}, {key: sample(shape)[-1] for key, shape in EVIDENCE_SHAPES.items()}, *each]:
        check = new_check("torch", "R02", "failed", "libcublas.so.12 is not found", cause, dict(evidence))
        for row in commands_here(facts, check):
            assert set(row) == {"where", "text", "note"}


@pytest.mark.parametrize(
    ("table", "values"),
    [
        (EVIDENCE_SHAPES, {"absent": [["libcublas.so.12", "torch"]]}),
        (EVIDENCE_SHAPES, {"lost": [{"by": "torch"}]}),
        (EVIDENCE_SHAPES, {"packages": "torch"}),
        (FACT_SHAPES, {"packages": []}),
        (FACT_SHAPES, {"variables": {"A": None}}),
    ],
)
def test_another_shape_is_refused_where_it_is_stored(table, values):
    with pytest.raises(ShapeError):
        check_shapes(table, values)
    if table is EVIDENCE_SHAPES:
        with pytest.raises(ShapeError):
            new_check("packages", "P01", "failed", "x", "package-pin-mismatch", values)


@pytest.fixture
def stages():
    known = list(STAGES)
    yield STAGES
    STAGES[:] = known


def run_with(stages, row):
    stages[:] = [row]
    program = Program({"only": None, "no_gpu": True, "timeout": None}, None)
    checks, libraries = schedule.run_all(program)
    return report.make_report(program, checks, libraries, {"version": "0", "sha256": None}, 0.0)


def mistaken(*_):
    raise KeyError(0)


OF_THE_PROBE = [name for name in protocol.LAYERS if name not in protocol.USES_FRAMEWORK]


@pytest.mark.parametrize("layer", OF_THE_PROBE)
def test_an_exception_in_a_stage_ends_that_stage_and_passes_nothing(stages, layer):
    found = run_with(stages, protocol.Stage("under-test", layer, mistaken, 20, None, None, None))
    (check,) = found["checks"]
    assert (check["outcome"], check["cause"]) == ("not_run", None)
    assert "the probe's own fault" in check["summary"]
    assert "KeyError: 0" in check["summary"]
    assert check["evidence"]["probe_fault"]
    assert (found["verdict"], report.exit_code(found)) == (None, 30)
    assert "the probe's own fault" in found["summary"]


@pytest.mark.parametrize("layer", ["framework", "coimport"])
def test_a_mistake_in_the_probe_s_own_code_is_laid_to_no_framework(stages, layer):
    def body(ctx):
        ctx.fact("packages", [])

    found = run_with(stages, protocol.Stage("under-test", layer, body, 20, None, None, None))
    assert [c["outcome"] for c in found["checks"]] == ["not_run"]
    assert "ShapeError: packages is list and no dict" in found["summary"]


def test_an_exception_in_one_check_leaves_the_others(stages):
    def body(ctx):
        ctx.attempt("P01", mistaken)
        ctx.attempt("P02", ctx.passed, "P02", "sound")

    found = run_with(stages, protocol.Stage("under-test", "packages", body, 20, None, None, None))
    assert [(c["id"], c["outcome"]) for c in found["checks"]] == [("P01", "not_run"), ("P02", "passed")]
    assert (found["verdict"], report.exit_code(found)) == (None, 30)
    assert "KeyError" in found["summary"]


def test_a_judge_that_falls_over_turns_no_failure_into_a_pass(stages):
    def body(ctx):
        ctx.fails("F04", "no GPU is seen")

    found = run_with(stages, protocol.Stage("under-test", "framework", body, 20, None, None, mistaken))
    assert [(c["id"], c["outcome"]) for c in found["checks"]] == [("F04", "failed"), ("H01", "not_run")]
    assert found["cause"] == "execution-failed"


def test_runs_that_cannot_be_worked_out(stages):
    def body(ctx):
        ctx.passed("C07", "right")

    row = protocol.Stage("under-test", "cudnn", body, 20, None, mistaken, judge.default_judge)
    assert run_with(stages, row)["verdict"] is None


def test_commands_that_cannot_be_worked_out_leave_the_verdict(monkeypatch):
    monkeypatch.setattr(report, "commands_here", mistaken)
    check = new_check("packages", "P01", "failed", "x", "package-pin-mismatch")
    found = report.decide_verdict([check], {}, {})
    assert (found["verdict"], found["commands"]) == ("broken", [])


def test_nothing_works_beside_a_check_that_was_not_made():
    ran = new_check("convolution", "C07", "passed", "right")
    fault = protocol.own_fault("packages", "P01", KeyError(0), "trace")
    facts = {"gpus": [{"name": "Tesla T4"}]}
    assert report.decide_verdict([ran], facts, {})["verdict"] == "works"
    assert report.decide_verdict([fault, ran], facts, {})["verdict"] is None
    pin = new_check("packages", "P02", "failed", "x", "package-overwritten")
    assert report.decide_verdict([fault, ran, pin], facts, {})["verdict"] == "broken"


def test_a_framework_s_own_exception_is_no_fault_of_the_probe(stages):
    def body(ctx):
        with ctx.call("import torch"):
            raise KeyError(0)

    found = run_with(stages, protocol.Stage("torch", "framework", body, 20, None, None, None))
    assert found["cause"] == "framework-import"
