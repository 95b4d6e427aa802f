"""Children: whatever kills or stops one, the parent knows which call was in flight."""

import faulthandler
import json
import os
import signal
import sys
import time
from types import SimpleNamespace

import pytest

from builder.verify.cudnn_verify.measure.protocol import COUNTER_LAYER, STAGES, stage
from builder.verify.cudnn_verify.measure.run import Program, Run, execute, find_stage


@pytest.fixture
def run_stage():
    """Register a function as a stage for one test, and run it."""
    known = list(STAGES)
    faulthandler.disable()  # children die on purpose here, and pytest's handler would comment on it

    def run(function, timeout=20, **params):
        STAGES[:] = known
        stage("under-test", layer=COUNTER_LAYER, timeout=timeout)(function)
        return Run(Program({}, None), find_stage("under-test"), params).start()

    yield run
    STAGES[:] = known
    faulthandler.enable()


def test_a_stage_that_comes_to_its_end(run_stage):
    def body(ctx):
        with ctx.call("cudnnGetVersion"):
            pass
        ctx.passed("C01", "all is well", {"path": "/x"}, note="a remark")
        ctx.fact("raw", {"path": "/x", "version": "9.10.2"})
        os.write(1, b"talk\n")
        os.write(2, b"more talk")

    run = run_stage(body)
    assert run.sound
    assert run.checks == [
        {
            "id": "C01",
            "outcome": "passed",
            "summary": "all is well",
            "cause": None,
            "evidence": {"path": "/x"},
            "note": "a remark",
            "stage": "under-test",
        }
    ]
    assert run.new_facts == [("raw", {"path": "/x", "version": "9.10.2"})]
    assert (run.stderr, run.in_flight) == ("more talk", None)


def test_an_abort_is_laid_to_the_call_in_flight(run_stage):
    def body(ctx):
        with ctx.call("cudnnGetVersion"):
            pass
        with ctx.call("cudnnCreate"):
            os.write(2, b"Unable to load any of {libcudnn_ops.so.9}\n")
            os.abort()

    run = run_stage(body)
    assert run.ending["kind"] == "signal"
    assert run.ending["signal"] == signal.SIGABRT
    assert run.in_flight == "cudnnCreate"
    assert "Unable to load any of" in run.stderr


@pytest.mark.parametrize("number", [signal.SIGBUS, signal.SIGSEGV, signal.SIGKILL])
def test_signals_are_told_apart(run_stage, number):
    def body(ctx):
        with ctx.call("outer"), ctx.call("inner"):
            os.kill(os.getpid(), number)

    run = run_stage(body)
    assert run.ending["signal"] == number
    assert run.in_flight == "inner"
    assert signal.Signals(number).name in run.ending["text"]


@pytest.fixture
def limit_passed(tmp_path, monkeypatch):
    """A path: once a child has made that file and the parent has looked again, 1000 seconds have passed."""
    reached, looks = tmp_path / "reached", []

    def clock():
        if reached.exists():
            looks.append(1)
        return time.time() + (1000 if len(looks) > 4 else 0)

    fake = SimpleNamespace(time=clock, sleep=time.sleep)
    monkeypatch.setattr("builder.verify.cudnn_verify.measure.run.time", fake)
    return reached


def test_a_hang_is_stopped_and_described(run_stage, limit_passed):
    def body(ctx):
        with ctx.call("cuInit"):
            limit_passed.touch()
            time.sleep(600)

    run = run_stage(body)
    assert run.ending["kind"] == "hang"
    assert run.in_flight == "cuInit"
    assert run.kernel["state"][0] in "RSD"
    assert isinstance(run.mapped, list)


def test_what_a_stage_started_is_stopped_with_it(run_stage):
    def body(ctx):
        if os.fork() == 0:
            time.sleep(600)
        with ctx.call("wait"):
            time.sleep(600)

    start = time.time()
    assert run_stage(body, timeout=0.3).ending["kind"] == "hang"
    assert time.time() - start < 60


def test_a_child_that_leaves_a_grandchild_behind_does_not_hold_us_up(run_stage):
    def body(ctx):
        if os.fork() == 0:
            time.sleep(600)

    start = time.time()
    assert run_stage(body).ending["kind"] == "done"
    assert time.time() - start < 60


def test_an_exception_and_an_early_exit(run_stage):
    def raises(ctx):
        with ctx.call("import torch"):
            raise ImportError("libcudnn.so.9: cannot open shared object file")

    def leaves(ctx):
        with ctx.call("import torch"):
            os._exit(3)

    raised = run_stage(raises)
    assert raised.ending["kind"] == "raised"
    assert raised.ending["text"] == "ImportError: libcudnn.so.9: cannot open shared object file"
    assert raised.in_flight == "import torch"
    left = run_stage(leaves)
    assert (left.ending["kind"], left.ending["code"], left.in_flight) == ("exit", 3, "import torch")


def test_an_exception_without_a_text_says_where_it_was_raised_and_what_was_said_before(run_stage):
    def raises(ctx):
        os.write(
            2, b"A module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.2.6 as it may crash.\n"
        )
        with ctx.call("import onnxruntime"):
            raise ImportError

    text = run_stage(raises).ending["text"]
    assert text.startswith("ImportError: without a text, at ")
    assert "test_probe_runner.py" in text
    assert text.endswith(
        "raise ImportError; before it: A module that was compiled using NumPy 1.x cannot be run in"
        " NumPy 2.2.6 as it may crash."
    )


def test_a_flood_of_output_keeps_its_tail(run_stage):
    def body(ctx):
        for number in range(20000):
            for stream in (1, 2):
                os.write(stream, f"line {number} of a very talkative library\n".encode())

    run = run_stage(body)
    assert run.sound
    assert run.stderr.endswith("line 19999 of a very talkative library\n")
    assert len(run.stderr) <= 64 << 10


def test_binary_talk_and_odd_facts_do_no_harm(run_stage):
    def body(ctx):
        os.write(2, b"\xff\xfe\0binary")
        ctx.fact("odd", {"path": "\udcff", "object": object})

    run = run_stage(body)
    assert run.sound
    assert run.new_facts[0][0] == "odd"


def test_a_line_cut_in_half_is_dropped(run_stage):
    def body(ctx):
        ctx.passed("C01", "whole")
        os.write(ctx.fd, b'{"t": "check", "id": "C0')
        os.kill(os.getpid(), signal.SIGKILL)

    run = run_stage(body)
    assert [check["summary"] for check in run.checks] == ["whole"]


def test_only_counter_tests_that_there_are(run_stage):
    run = run_stage(lambda ctx: None)
    with pytest.raises(ValueError, match="no such counter-test: nonsense"):
        run.again("nonsense")


def test_a_counter_test_starts_anew_without_the_variable(tmp_path, monkeypatch):
    """The program is replaced by one that tells what it was given."""
    teller = tmp_path / "teller.py"
    teller.write_text(
        "import json, os, sys\n"
        "fd = int(sys.argv[sys.argv.index('--fd') + 1])\n"
        "params = json.loads(sys.stdin.read())\n"
        "seen = [os.environ.get('LD_LIBRARY_PATH'), params['big'][-1]]\n"
        "line = {'t': 'fact', 'key': 'seen', 'value': seen}\n"
        "os.write(fd, (json.dumps(line) + chr(10) + json.dumps({'t': 'end'}) + chr(10)).encode())\n"
    )
    monkeypatch.setenv("LD_LIBRARY_PATH", "/somewhere")
    environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    big = list(range(50000))
    outcome = execute("any", {"big": big}, 20, environment, [sys.executable, str(teller)])
    assert outcome.lines[0]["value"] == [None, 49999]
    assert len(json.dumps(big)) > 64 << 10, "more than a pipe holds"


@pytest.mark.parametrize(("user_limit", "kind"), [(None, "done"), (60, "hang")])
def test_a_stage_may_ask_for_time_but_not_beyond_the_users_limit(run_stage, limit_passed, user_limit, kind):
    def body(ctx):
        ctx.extend(5000)
        time.sleep(1)  # it is read before the clock jumps
        limit_passed.touch()
        time.sleep(1 if kind == "done" else 600)

    known = list(STAGES)
    stage("slow", layer=COUNTER_LAYER, timeout=60)(body)
    try:
        run = Run(Program({"timeout": user_limit}, None), find_stage("slow"), {}).start()
    finally:
        STAGES[:] = known
    assert run.ending["kind"] == kind
