"""The suites' judge over plain numbers, their references, and what a report says of suites."""

from __future__ import annotations

import ast
import ctypes
import json
import math
import os
import random
import re
import signal
import struct
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from builder.core.suites import SUITES
from builder.verify.cudnn_verify.common.tables import read_frameworks
from builder.verify.cudnn_verify.measure import fw_arrays, schedule, suite_judge, suite_torch
from builder.verify.cudnn_verify.measure.cuda import CudaError
from builder.verify.cudnn_verify.measure.cudnn import Bench
from builder.verify.cudnn_verify.measure.fw_tensorflow import TensorflowSuites, address_of
from builder.verify.cudnn_verify.measure.library_files import mapped_paths
from builder.verify.cudnn_verify.measure.protocol import own_fault
from builder.verify.cudnn_verify.measure.reference import (
    CONVOLUTION_KINDS,
    STRIDED,
    STRIDED_TERMS,
    _taps,
    answers,
)
from builder.verify.cudnn_verify.measure.report import make_report
from builder.verify.cudnn_verify.measure.run import Run, execute, find_stage
from builder.verify.cudnn_verify.measure.suite_arrays import ArraySuites
from builder.verify.cudnn_verify.measure.suite_judge import (
    ON_CARD,
    SUITE_CHECKS,
    boxes_to_suppress,
    convolution_bounds,
    fisher_quantile,
    judge_results,
    moved_bounds,
    normal_bounds,
    normal_moments,
    normal_quantile,
    resized,
    suite_row,
    suite_rows,
    suppressed,
    uniform_bounds,
    uniform_moments,
)
from builder.verify.cudnn_verify.measure.suite_judge import (
    _overlap as overlap_of,
)
from builder.verify.cudnn_verify.page import Style, render_page
from builder.verify.runner import parse

DOCS = Path(__file__).resolve().parents[4] / "docs"
NAN, INF = float("nan"), float("inf")


def row(found=(1.0, 2.0), wanted=(1.0, 2.0), **changed):
    place = {"devices": ["cuda:0"], "memory": [ON_CARD + "0"], "largest": 0.01}
    what = changed.pop("what", "a product")
    return suite_row(what, list(found), list(wanted), "a book", **{**place, **changed})


@pytest.mark.parametrize(
    "sound",
    [
        row(),
        row(found=(1.009, 2.0)),
        row(found=(1.5, 2.0), largest=[0.6, 0.0]),
        row(found=(1.3, 2.4), largest=None, norm=0.51),
        row(largest=0.0),
        row(devices=["/GPU:0"]),
    ],
)
def test_a_right_result_passes(sound):
    assert judge_results([sound])["faults"] == []


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        (row(found=(1.011, 2.0)), "numbers"),
        (row(found=(1.0, NAN)), "numbers"),
        (row(found=(1.0, INF)), "numbers"),
        (row(found=(1.0, INF), wanted=(1.0, INF)), "numbers"),
        (row(found=(1.0,)), "numbers"),
        (row(found=(), wanted=()), "numbers"),
        (row(found=(1.0, 2.0, 3.0)), "numbers"),
        (row(largest=None), "numbers"),
        (row(largest=NAN), "numbers"),
        (row(largest=INF), "numbers"),
        (row(largest=-1.0), "numbers"),
        (row(largest=[0.01]), "numbers"),
        (row(found=(1.3, 2.4), largest=0.5, norm=0.49), "numbers"),
        (row(found=(1.5, 2.1), largest=[0.6, 0.0]), "numbers"),
        (row(devices=["cpu"]), "device"),
        (row(devices=[]), "device"),
        (row(devices=["cuda:0", "cpu"]), "device"),
        (row(memory=["memory of the host"]), "device"),
        (row(memory=["pinned memory of the host"]), "device"),
        (row(memory=[]), "device"),
    ],
)
def test_a_wrong_result_is_refused(wrong, fault):
    judged = judge_results([row(), wrong])
    assert [found["fault"] for found in judged["faults"]] == [fault]
    assert judged["ran"] == 2


def test_nothing_that_ran_is_no_pass():
    assert judge_results([])["faults"]


def test_the_worst_result_is_the_one_nearest_to_its_bound():
    rows = [row(found=(1.002, 2.0)), dict(row(found=(100.0, 2.0), largest=990.0), what="far"), row()]
    assert judge_results(rows)["worst"]["what"] == "a product"
    worst = judge_results([*rows, dict(row(found=(NAN, 2.0)), what="none")])["worst"]
    assert (worst["what"], worst["error"]) == ("none", INF)


def test_boxes_that_overlap_more_are_suppressed():
    boxes = [[0, 0, 10, 10], [0, 0, 10, 9], [20, 20, 30, 30], [0, 6, 10, 16]]
    assert suppressed(boxes, [5, 6, 7, 1], 0.5) == [2, 1, 3]
    assert suppressed(boxes, [5, 6, 7, 1], 0.95) == [2, 1, 0, 3]


class Numbers(tuple):
    """As much of an array as moments ask for."""

    def _each(self, of):
        return Numbers(map(of, self))

    def __getitem__(self, at):
        return Numbers(tuple.__getitem__(self, at)) if isinstance(at, slice) else tuple.__getitem__(self, at)

    def __sub__(self, number):
        return self._each(lambda value: value - number)

    def __add__(self, number):
        return self._each(lambda value: value + number)

    def __mod__(self, number):
        return self._each(lambda value: value % number)

    def __ge__(self, number):
        return self._each(lambda value: value >= number)

    def __mul__(self, other):
        if isinstance(other, tuple):
            return Numbers(one * two for one, two in zip(self, other, strict=True))
        return self._each(lambda value: value * other)

    def __eq__(self, other):
        return Numbers(one == two for one, two in zip(self, other, strict=True))

    __hash__ = None

    def sum(self):
        return sum(self)

    def mean(self):
        return sum(self) / len(self)

    def min(self):
        return min(iter(self))

    def max(self):
        return max(iter(self))


@pytest.mark.parametrize("seed", range(20))
def test_the_thresholds_tell_overlaps_in_float16_apart(seed):
    boxes, scores, thresholds = boxes_to_suppress(random.Random(seed).randrange)
    right = [suppressed(boxes, scores, threshold) for threshold in thresholds]
    assert right[0] != right[1]

    def in_float16(value):
        return struct.unpack("e", struct.pack("e", value))[0]

    def narrow(threshold):
        kept = []
        for at in sorted(range(len(boxes)), key=lambda at: -scores[at]):
            if all(in_float16(overlap_of(boxes[at], boxes[other])) <= threshold for other in kept):
                kept.append(at)
        return kept

    assert [narrow(threshold) for threshold in thresholds] != right
    assert [narrow(in_float16(threshold)) for threshold in thresholds] != right
    # float32, where a card computes, is far from both
    for off in (-1e-6, 1e-6):
        assert [suppressed(boxes, scores, threshold + off) for threshold in thresholds] == right


def test_a_stuck_bit_of_uniform_numbers_is_seen():
    draw = random.Random(1)
    values = Numbers(draw.random() for _ in range(1 << 16))
    older = Numbers(draw.random() for _ in range(1 << 16))
    wanted, bounds = uniform_bounds(1 << 16)

    def off(values):
        found = uniform_moments(values, older, len(set(values)))
        assert len(found) == len(wanted) == len(bounds)
        return [at for at, row in enumerate(zip(found, wanted, bounds, strict=True))
                if abs(row[0] - row[1]) > row[2]]  # fmt: skip

    assert off(values) == []
    for bit in (1, 7, 16):
        assert 6 + bit in off(Numbers(value - (value * 2**bit // 1 % 2) / 2**bit for value in values))


def test_a_plane_stays_a_plane_in_another_size():
    small = [[float(3 * y + x) for x in range(8)] for y in range(8)]
    large = resized(small, 16)
    assert large[8][8] == pytest.approx(3 * 3.75 + 3.75)
    assert (large[0][0], large[15][15]) == (0.0, 28.0)


@pytest.mark.parametrize("kind", CONVOLUTION_KINDS, ids=lambda kind: kind.name)
def test_the_gradients_of_each_kind_of_convolution_are_those_of_its_output(kind):
    """sum(y dy) is linear in x and in w, so it is sum(x dx) and sum(w dw), too."""
    data = kind.fresh()
    through = [sum(a * b for a, b in zip(data[name], data["d" + name], strict=True)) for name in "xyw"]
    assert through[0] == through[1] == through[2]
    assert {len(data[name]) for name in ("y", "dy")} == {len(data["y"])}
    assert data != kind.fresh()


def test_a_dilated_filter_reaches_two_pixels_far_and_a_depthwise_one_its_own_channel():
    by_name = {kind.name: kind for kind in CONVOLUTION_KINDS}
    data = by_name["dilated"].fresh()
    c, h, w = data["x_shape"][1:]
    wanted = sum(
        data["x"][(channel * h + 4 + 2 * (i - 1)) * w + 3 + 2 * (j - 1)] * data["w"][channel * 9 + 3 * i + j]
        for channel in range(c)
        for i in range(3)
        for j in range(3)
    )
    assert data["y"][4 * w + 3] == wanted
    data = by_name["depthwise"].fresh()
    c, h, w = data["x_shape"][1:]
    last = (c - 1) * h * w
    wanted = sum(
        data["x"][last + (4 + i - 1) * w + 3 + j - 1] * data["w"][(c - 1) * 9 + 3 * i + j]
        for i in range(3)
        for j in range(3)
    )
    assert data["y"][last + 4 * w + 3] == wanted


def adapter(driver):
    """An adapter without a framework, on a card or not."""
    suites = ArraySuites.__new__(ArraySuites)
    suites.driver, suites.skipped = driver, {}
    return suites


def test_a_release_that_cannot_say_where_a_result_lies_runs_no_suite():
    for version in ("1.15.5", "2.1.4"):
        suites = TensorflowSuites.__new__(TensorflowSuites)
        suites.api, suites.skipped = SimpleNamespace(__version__=version), {}
        suites.lacking = suites.lacks()
        assert suites.run("linalg") == []
        assert "has no DLPack" in suites.skipped["linalg"]


def refuse():
    raise RuntimeError("No OpKernel was registered to support Op 'Conv3D'\nfor this")


def test_what_a_framework_has_not_in_half_precision_is_named_and_in_float32_it_fails():
    on_card = adapter(driver="a card")
    assert on_card.tried("conv", "bfloat16", refuse) is None
    assert on_card.skipped == {"conv": "No OpKernel was registered to support Op 'Conv3D'"}
    with pytest.raises(RuntimeError):
        on_card.tried("conv", "float32", refuse)
    with pytest.raises(ZeroDivisionError):
        on_card.tried("conv", "bfloat16", lambda: 1 // 0)
    assert adapter(driver=None).tried("conv", "float32", refuse) is None


def test_the_address_in_a_capsule_of_dlpack():
    tensor = ctypes.create_string_buffer(
        struct.pack("<QiiiBBHQQQ", 0x7F0000001000, 2, 0, 1, 2, 32, 1, 0, 0, 64)
    )
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    assert address_of(make(ctypes.addressof(tensor), b"dltensor", None)) == 0x7F0000001040


class ShortOfMemory:
    """A driver whose second card others hold."""

    def memory(self):
        return 1 << 20, 16 << 30

    def allocate(self, size):
        raise CudaError("cuMemAlloc_v2", 2)

    def call(self, symbol, *arguments):
        raise AssertionError("nothing was allocated")


@pytest.mark.parametrize(("number", "outcome"), [(2, "not_run"), (719, "failed")])
def test_a_further_card_without_memory_is_left_alone_and_a_bad_one_fails(recorder, number, outcome):
    ctx = recorder()
    ctx.facts = {"nvrtc": True}
    bench = Bench(ctx, ShortOfMemory(), None, None, {"index": 1, "name": "Tesla T4"})
    bench._failed("FP32 Forward", CudaError("cuMemAlloc_v2", number), [])
    assert [(line["id"], line["outcome"]) for line in ctx.lines] == [("D06", outcome)]
    assert ctx.lines[0]["cause"] == (None if outcome == "not_run" else "driver-error")


def test_each_suite_has_a_check_and_each_framework_s_suite_a_method():
    assert set(SUITE_CHECKS) == set(SUITES) - {"conv"}
    suites = {name: row["suites"] for name, row in read_frameworks().items() if "suites" in row}
    assert schedule.SUITE_CLASSES.keys() == suites.keys()
    for framework, kind in schedule.SUITE_CLASSES.items():
        assert set(suites[framework]) <= set(SUITES)
        assert all(callable(getattr(kind, name.replace("-", "_"))) for name in suites[framework])


NCCL = """
static int version = %d;
int ncclGetVersion(int *found) { if (!found) return 4; *found = version; return 0; }
"""
"""Of nccl.h: ``ncclResult_t ncclGetVersion(int *version)``; 4 is ncclInvalidArgument."""


@pytest.mark.parametrize(
    ("number", "wheel", "sound"),
    [
        (22105, "2.21.5", True),
        (22105, "2.21.5.post1", True),
        (22304, "2.21.5", False),
        (22104, "2.21.5", False),
    ],
)
def test_the_nccl_that_is_loaded_is_that_of_the_wheel_and_each_card_gets_the_sum(
    number, wheel, sound, recorder, tmp_path, monkeypatch
):
    """A double of NCCL that says its release, and a PyTorch of two cards that says what each got."""
    source, library = tmp_path / "nccl.c", tmp_path / "libnccl.so.2"
    source.write_text(NCCL % number)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    loaded = ctypes.CDLL(str(library))
    assert str(library) in mapped_paths()
    others = [path for path in mapped_paths() if str(tmp_path) not in path and "nccl" in path]
    monkeypatch.setattr(suite_judge, "mapped_paths", lambda: set(mapped_paths()) - set(others))
    ctx = recorder()
    ctx.facts = {"packages": {"nvidia-nccl-cu12": {"name": "nvidia-nccl-cu12", "version": wheel}}}
    suites = suite_torch.TorchSuites.__new__(suite_torch.TorchSuites)
    suites.ctx, suites.skipped = ctx, {}
    cards = SimpleNamespace(device_count=lambda: 2, nccl=SimpleNamespace(all_reduce=lambda parts: None))
    suites.api = SimpleNamespace(cuda=cards, full=lambda shape, value, device: [value] * shape[0])
    suites.row = lambda what, part, wanted, basis, **bounds: row(part, wanted, what=what, **bounds)
    (first, second, version), skipped = suites._nccl(row()), suites.skipped
    assert not skipped
    assert (version["found"] == version["wanted"]) is sound
    assert bool(judge_results([version])["faults"]) is not sound
    # nothing was added up: each card has its own part
    assert [len(judge_results([part])["faults"]) for part in (first, second)] == [1, 1]
    assert first["wanted"] == [3.0] * 3000
    assert loaded.ncclGetVersion(None) == 4
    ctx.facts = {}
    assert len(suites._nccl(row())) == 2
    assert list(suites.skipped) == ["version of NCCL"]


class Card:
    """The current card of a CuPy of two, and NCCL's group of them: what each sends, and what it gets."""

    def __init__(self, sums):
        self.current, self.open, self.asked, self.sums = 0, False, [], sums
        null = SimpleNamespace(ptr=0, synchronize=lambda: None)
        self.cuda = SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=lambda: 2))
        self.cuda.Device, self.cuda.Stream = self._device, SimpleNamespace(null=null)
        self.available, self.NCCL_FLOAT32, self.NCCL_SUM, self.NcclCommunicator = True, 7, 0, self

    @contextmanager
    def _device(self, number):
        self.current, before = number, self.current
        yield
        self.current = before

    def initAll(self, cards):
        return [SimpleNamespace(allReduce=lambda *given, at=at: self._reduce(at, *given)) for at in cards]

    def _reduce(self, at, given, out, *options):
        assert self.open
        assert options == (3000, 7, 0, 0)
        assert at == self.current
        self.asked.append((given, out))

    def groupStart(self):
        self.open = True

    def groupEnd(self):
        self.open = False
        for given, out in self.asked:
            parts = zip(*(one for one, _ in self.asked), strict=True)
            out[:] = [sum(part) for part in parts] if self.sums else given


@pytest.mark.parametrize(("sums", "faults"), [(True, 0), (False, 2)])
def test_cupy_adds_up_over_all_cards(sums, faults, recorder, monkeypatch):
    numpy = SimpleNamespace(
        arange=lambda count: Numbers(map(float, range(int(count)))), full=lambda count, value: [value] * count
    )
    api = Card(sums)
    monkeypatch.setattr(fw_arrays, "imported", lambda name: api)
    suites = fw_arrays.CupySuites.__new__(fw_arrays.CupySuites)
    suites.ctx, suites.api, suites.np, suites.skipped = recorder(), api, numpy, {}
    suites.ctx.facts = {}
    held = []

    def send(array):
        held.append((api.current, list(array)))
        return SimpleNamespace(data=SimpleNamespace(ptr=held[-1][1]))

    suites.send = send
    suites.row = lambda what, out, wanted, basis, **bounds: row(out.data.ptr, wanted, what=what, **bounds)
    found = suites.comm()
    assert [card for card, _ in held] == [0, 0, 1, 1]
    assert [one["what"] for one in found] == ["all_reduce over 2, card 0", "all_reduce over 2, card 1"]
    assert found[0]["wanted"][:3] == [1.0, 3.0, 5.0]
    assert len(judge_results(found)["faults"]) == faults


def in_the_documentation():
    """{suite: {framework: ``✓`` or the letter of a reason}}, and {letter: reason}, out of docs/suites.md."""
    text = DOCS.joinpath("suites.md").read_text("utf-8")
    table = (
        text.partition("Each suite beside each framework")[2].partition("\n\n")[2].partition("\n\n*Hig")[0]
    )
    rows = [
        [cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table.splitlines() if "|" in line
    ]
    names = [name.lower().replace("pytorch", "torch").replace(" ", "") for name in rows[0][1:]]
    told = {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows[2:]}
    return told, dict(re.findall(r"^- (\w): (.+)", table, re.MULTILINE))


def test_each_suite_beside_each_framework_runs_or_says_why_not():
    told, reasons = in_the_documentation()
    listed = {name: row["suites"] for name, row in read_frameworks().items() if "suites" in row}
    assert told.keys() == set(SUITES) - {"conv"}
    cells = {(suite, name): cell for suite, row in told.items() for name, cell in row.items()}
    assert {name for _, name in cells} == listed.keys() == schedule.SUITE_CLASSES.keys()
    for (suite, name), cell in cells.items():
        assert (cell == "✓") is (suite in listed[name]), (suite, name)
        assert cell == "✓" or cell in reasons, (suite, name, cell)
    assert {cell for cell in cells.values() if cell != "✓"} == reasons.keys()


def test_each_suite_of_each_framework_is_judged_over_the_real_one_or_said_to_need_a_card():
    """tests/faults/test_suites_frameworks.py runs them on the CPU; CuPy computes on cards alone."""
    source = DOCS.parent.joinpath("tests", "faults", "test_suites_frameworks.py").read_text("utf-8")
    run = {(node.args[0].value, suite) for node in ast.walk(ast.parse(source))
           if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "param"
           and len(node.args) == 2 and node.args[0].value in schedule.SUITE_CLASSES
           for suite in node.args[1].value.split()}  # fmt: skip
    listed = {(name, suite) for name, row in read_frameworks().items() for suite in row.get("suites", ())}
    assert run <= listed
    assert {name for name, _ in listed - run} == {"cupy"}
    assert "| CuPy | all of it" in DOCS.joinpath("suites.md").read_text("utf-8")


def asked(checks=(), facts=None, suites=SUITES):
    return suite_rows(suites, list(checks), facts or {})


def check(number, stage, outcome="passed", **evidence):
    told = {"id": number, "stage": stage, "outcome": outcome, "summary": "what was seen", "cause": None}
    return dict(told, evidence=evidence, note=None)


def test_a_suite_that_no_framework_has_did_not_run():
    (found,) = asked(suites=("linalg",))
    assert (found["outcome"], found["framework"], found["reason"]) == (
        "not_run",
        None,
        "no framework here has it",
    )


def test_without_a_gpu_no_child_starts_and_the_reason_is_said():
    for state, reason in (("none", "no GPU here"), ("faulty", "the driver or the GPU does not work")):
        facts = {"gpu_state": state, "installed": {"torch": "2.6"}, "imported": ["torch"]}
        assert schedule.runs_of("linalg")(facts) == []
        (found,) = asked(facts=facts, suites=("linalg",))
        assert (found["outcome"], found["framework"], found["reason"]) == ("not_run", "torch", reason)


def test_a_framework_that_failed_its_own_checks_runs_no_suite():
    facts = {"gpu_state": "works", "installed": {"torch": "2.6"}, "imported": []}
    assert schedule.runs_of("train")(facts) == []
    assert asked(facts=facts, suites=("train",))[0]["reason"] == "torch did not pass its own checks"
    facts = {"gpu_state": "works", "installed": {"torch": "2.6"}, "imported": ["torch"]}
    assert schedule.runs_of("train")(facts) == [{"framework": "torch"}]


def test_conv_is_told_by_the_checks_of_today():
    found = asked(
        [
            check("C07", "convolution", rows=[
                {"format": "FP16", "direction": "Forward", "algorithm": 1, "difference": 0.0, "allowed": 0.1}
            ]),
            check("F05", "torch", types={"float16": {"differences": {"y": 0.2}}}),
            check("F05", "jax", "not_run"),
        ],
        suites=("conv",),
    )  # fmt: skip
    assert [(r["framework"], r["outcome"], r["ran"]) for r in found] == [
        ("cudnn", "passed", 1),
        ("torch", "passed", 1),
        ("jax", "not_run", 0),
    ]
    assert found[1]["worst"]["error"] == 0.2


def told(recorder, rows, skipped=(), suite="linalg"):
    ctx = recorder()
    schedule.tell_suite(ctx, suite, "torch", (rows, dict(skipped), 1.5))
    return ctx.lines[0]


def test_the_check_of_a_suite(recorder):
    found = told(recorder, [row()], {"float8": "none"})
    assert (found["outcome"], found["id"]) == ("passed", SUITE_CHECKS["linalg"])
    assert found["evidence"]["ran"] == 1
    found = told(recorder, [row(found=(3.0, 2.0))])
    assert (found["outcome"], found["cause"]) == ("failed", "wrong-result")
    assert told(recorder, [row(found=(3.0, 2.0))], suite="train")["cause"] == "training-loss"
    assert told(recorder, [row(devices=["cpu"])])["cause"] == "framework-silent-cpu"
    assert told(recorder, [])["outcome"] == "failed"
    assert told(recorder, [], {"attention": "too old"})["outcome"] == "not_run"


class ProgramUnderTest:
    facts, command = {}, None

    def __init__(self, **options):
        self.options, self.proof = options, []


def ended(suite, kind, text="", suggested=(), **more):
    run = Run(ProgramUnderTest(suggested=suggested), find_stage(suite), {"framework": "torch"})
    run.ending, run.in_flight = dict(more, kind=kind, text=text, trace=[], chain=[]), "torch: suite " + suite
    schedule.judge_suite(run)
    return run.checks


def test_a_suite_that_hangs_is_named():
    (found,) = ended("attention", "signal", "killed by signal 14", signal=int(signal.SIGALRM))
    assert (found["id"], found["cause"], found["outcome"]) == ("H01", "hang", "failed")
    assert "torch, suite attention" in found["summary"]
    assert "within 30 s" in found["summary"]
    assert asked([found], suites=("attention",))[0]["outcome"] == "failed"


def reported(check, **options):
    program = ProgramUnderTest(**options)
    return make_report(program, [check], [], {"version": "1", "sha256": "0" * 64}, 1.0)


@pytest.mark.parametrize("how", ["hang", "crash", "exception", "probe"])
def test_a_suite_that_nobody_named_has_no_effect_on_the_verdict(how):
    ends = {
        "hang": ("signal", "killed by signal 14", int(signal.SIGALRM)),
        "crash": ("signal", "killed by signal 11", 11),
        "exception": ("raised", "RuntimeError: no kernel image is available", None),
    }
    if how == "probe":
        check = own_fault("attention", "H01", ValueError("x"), "trace")
    else:
        kind, text, number = ends[how]
        (check,) = ended("attention", kind, text, suggested=["attention"], signal=number)
        assert check["outcome"] == "failed"
    named = reported(check, suites=["conv", "attention"])
    assert (named["verdict"] is None) is (how == "probe")
    assert named["verdict"] != "unverified"
    report = reported(check, suites=["conv"], suggested=["attention"])
    assert (report["verdict"], report["cause"]) == ("unverified", None)
    assert [found["outcome"] for found in report["checks"]] == ["not_run"]
    (row_,) = [row for row in report["suites"] if row["suite"] == "attention"]
    assert (row_["suggested"], row_["outcome"]) == (True, "not_run" if how == "probe" else "failed")
    assert row_["reason"]


def test_no_suite_that_nobody_named_starts_late():
    facts = {"gpu_state": "works", "installed": {"torch": {}}, "imported": ["torch"]}
    facts.update(suites_suggested=["train"], suggested_until=time.time() - 1)
    assert schedule.runs_of("train")(facts) == []
    assert schedule.runs_of("linalg")(facts) == [{"framework": "torch"}]
    (row_,) = suite_rows(["train"], [], facts)
    assert (row_["outcome"], "nobody named it" in row_["reason"]) == ("not_run", True)
    facts["suggested_until"] = time.time() + 60
    assert schedule.runs_of("train")(facts) == [{"framework": "torch"}]


class Quick:
    """A framework that takes no time; what it is made to do is in ``Suites``."""

    module = "quick"

    def __init__(self, ctx):
        self.ctx = ctx

    def load(self):
        time.sleep(0.2)

    def touch(self):
        return ()

    def devices(self):
        return ["cuda:0"]


class Suites:
    def __init__(self, framework, device):
        self.skipped = {}

    def run(self, suite):
        if suite == "loader":  # its workers hang, and it waits for them
            worker = os.fork()
            if not worker:
                time.sleep(60)
            os.write(2, b"%d " % worker)
            os.waitpid(worker, 0)
        if suite == "linalg":  # a call into a library, which no exception ends
            ctypes.CDLL(None).sleep(60)
        return [row()]


def test_each_suite_has_30_s_and_one_that_compiles_60():
    assert {suite: schedule.seconds_for(suite, {}) for suite in SUITE_CHECKS} == {
        suite: 60 if suite == "compile" else 30 for suite in SUITE_CHECKS
    }
    assert schedule.seconds_for("compile", {"timeout": 7}) == 7
    text = DOCS.joinpath("suites.md").read_text("utf-8")
    assert "30 s from the end of the framework's import, 60 s for `compile`, or `--timeout`" in text


def is_dead(pid):
    state = Path("/proc", pid, "stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] in "ZX"


def comes_true(what, *given):
    """Within five seconds: a killed process may still be on its way out."""
    deadline = time.time() + 5
    while not what(*given) and time.time() < deadline:
        time.sleep(0.02)
    return what(*given)


def test_a_suite_that_does_not_come_back_ends_alone_with_what_it_started_and_is_named(monkeypatch):
    monkeypatch.setitem(schedule.FRAMEWORKS, "quick", Quick)
    monkeypatch.setitem(schedule.SUITE_CLASSES, "quick", Suites)
    monkeypatch.setattr(schedule, "seconds_for", lambda suite, options: 1)
    for suite, outcome in (("linalg", "hang"), ("loader", "hang"), ("train", "passed"), ("vision", "passed")):
        run = Run(ProgramUnderTest(), find_stage(suite), {"framework": "quick"})
        began = time.time()
        child = execute(suite, {"framework": "quick"}, 20)
        assert time.time() - began < 5
        run._take(child, 20)
        schedule.judge_suite(run)
        (found,) = run.checks
        if outcome == "passed":
            assert (found["outcome"], found["id"]) == ("passed", SUITE_CHECKS[suite])
            continue
        assert (child.signal, child.hang) == (signal.SIGALRM, False)
        assert (found["id"], found["cause"]) == ("H01", "hang")
        assert found["summary"].startswith(f"quick, suite {suite}: ended by the limit")
        if suite == "loader":
            assert comes_true(is_dead, child.stderr.split()[0])


def test_a_compiler_that_nobody_promised_is_a_reason_and_no_fault():
    text = (
        "InductorError: RuntimeError: Failed to find C compiler. Please specify via CC environment variable."
    )
    (found,) = ended("compile", "raised", text)
    assert (found["outcome"], found["id"]) == ("not_run", "W03")
    (row_,) = asked([found], suites=("compile",))
    assert (row_["outcome"], row_["framework"]) == ("not_run", "torch")


def test_a_full_shared_memory_is_the_machine_s():
    text = (
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. insufficient shared memory"
    )
    (found,) = ended("loader", "raised", text)
    assert (found["outcome"], found["cause"], found["id"]) == ("failed", "host-memory", "W06")


def document(small, **changed):
    return parse(json.dumps({**small, **changed}))


def test_a_suite_counts_with_its_check_alone(bare):
    passed = {"suite": "linalg", "framework": "torch", "outcome": "passed", "ran": 3}
    with_check = [*bare["checks"], check("W01", "linalg")]
    assert document(bare, suites=[passed]).suites_that_ran() == frozenset()
    assert document(bare, suites=[passed], checks=with_check).suites_that_ran() == {"linalg"}
    assert document(bare, suites=[dict(passed, ran=0)], checks=with_check).suites_that_ran() == frozenset()
    failed = [passed, dict(passed, framework="jax", outcome="failed")]
    assert document(bare, suites=failed, checks=with_check).suites_that_ran() == frozenset()


def test_a_report_from_before_counts_as_conv(bare):
    before = {key: value for key, value in bare.items() if key != "suites"}
    assert document(before).suites_that_ran() == frozenset()
    convolved = [*bare["checks"], check("F05", "torch")]
    assert document(before, checks=convolved).suites_that_ran() == {"conv"}


def test_the_command_asks_for_suites(probe, asked):
    done = probe.run("--suite", "linalg,attention")
    assert "attention (no framework): not run: no framework here has it" in done.stdout
    assert done.returncode == 10
    code, _, said = asked("--suite", "lnalg")
    assert (code, "there is no suite lnalg; there are: conv, linalg" in said) == (30, True)
    assert asked("--suite", "conv", "--only", "files")[0] == 30
    report = json.loads(probe.run("--suite", "all", "--json").stdout)
    assert [row["suite"] for row in report["suites"]] == list(SUITES)


def test_the_page_shows_each_suite_with_its_worst_result_or_its_reason(bare):
    worst = {"what": "product in tf32", "error": 0.25, "bound": 0.5, "basis": "a book"}
    passed = {"suite": "linalg", "framework": "torch", "outcome": "passed", "ran": 3, "worst": worst}
    rows = [
        dict(passed, seconds=1.5),
        {"suite": "comm", "framework": None, "outcome": "not_run", "reason": "no GPU"},
    ]
    page = render_page(dict(bare, suites=rows), Style())
    line = "linalg (torch): 3 results; nearest to its bound is product in tf32: 0.25 of 0.5; 1.5 s"
    assert line in " ".join(page.split())
    assert "comm (no framework): not run: no GPU" in page
    assert "Suites" not in render_page({key: bare[key] for key in bare if key != "suites"}, Style())


def kept(value, bits):
    """A number rounded to this many bits of a significand."""
    fraction, exponent = math.frexp(value)
    return math.ldexp(round(fraction * 2**bits), exponent - bits)


def real_faults(data, found, dtype):
    bounds = convolution_bounds(data, STRIDED_TERMS, dtype)
    return {
        name
        for name in STRIDED.answers
        if judge_results([row(found[name], data[name], **bounds[name])])["faults"]
    }


@pytest.mark.parametrize(
    ("dtype", "bits", "fewer"),
    [("float64", 53, 24), ("float32", 24, 11), ("float16", 11, 8), ("bfloat16", 8, 4)],
)
def test_a_convolution_in_real_numbers_shows_the_precision_of_its_result(dtype, bits, fewer):
    data = STRIDED.fresh_real(bits)
    assert all(kept(value, bits) == value for name in ("x", "w", "dy") for value in data[name])
    stored = {name: [kept(value, bits) for value in data[name]] for name in STRIDED.answers}
    assert real_faults(data, stored, dtype) == set()
    coarser = {name: [kept(value, fewer) for value in data[name]] for name in STRIDED.answers}
    assert real_faults(data, coarser, dtype) == {"y", "dx", "dw"}


@pytest.mark.parametrize(("dtype", "bits"), [("float16", 11), ("bfloat16", 8)])
def test_gradients_may_be_summed_in_their_own_type(dtype, bits):
    data = STRIDED.fresh_real(bits)
    summed = {name: [0.0] * len(data[name]) for name in STRIDED.answers}
    for x, w, y in _taps(data["x_shape"], data["w_shape"], *data["how"]):
        for name, at, one, other in (("dx", x, "dy", "w"), ("dw", w, "dy", "x")):
            term = kept(data[one][y] * data[other][w if other == "w" else x], bits)
            summed[name][at] = kept(summed[name][at] + term, bits)
    assert real_faults(data, {**summed, "y": data["y"]}, dtype) == set()


def test_operands_in_tf32_where_float32_is_asked_for_are_refused():
    data = STRIDED.fresh_real(24)
    cut = {name: [kept(value, 11) for value in data[name]] for name in ("x", "w", "dy")}
    assert real_faults(data, answers({**data, **cut}), "float32") == {"y", "dx", "dw"}


def test_the_terms_of_the_convolution_in_real_numbers():
    ones = {
        name: [1] * len(values) for name, values in STRIDED.fresh_real(8).items() if name in ("x", "w", "dy")
    }
    counted = answers({**STRIDED.fresh_real(8), **ones})
    assert {name: max(counted[name]) for name in STRIDED.answers} == STRIDED_TERMS


class Moments(list):
    """The operations of an array that :func:`normal_moments` asks for."""

    def __getitem__(self, index):
        return Moments(list.__getitem__(self, index))

    def __pow__(self, power):
        return Moments(value**power for value in self)

    def __mul__(self, other):
        return Moments(a * b for a, b in zip(self, other, strict=True))

    def __eq__(self, other):
        return SimpleNamespace(sum=lambda: sum(a == b for a, b in zip(self, other, strict=True)))

    __hash__ = None

    def mean(self):
        return sum(self) / len(self)


@pytest.mark.parametrize(
    ("spoil", "refused"),
    [
        (lambda values: values, False),
        (lambda values: [0.95 * value for value in values], True),
        (lambda values: [(random.Random(1).random() - 0.5) * 12**0.5] * len(values), True),
        (lambda values: [math.copysign(1.0, value) * (abs(value) % 1.0 + 0.62) for value in values], True),
        (lambda values: values[: len(values) // 2] * 2, True),
    ],
)
def test_normal_numbers_are_told_by_their_moments(spoil, refused):
    draw = random.Random(28)
    older, values = ([draw.gauss(0.0, 1.0) for _ in range(1 << 14)] for _ in range(2))
    spoilt = Moments(spoil(values))
    wanted, bounds = normal_bounds(len(spoilt))
    found = normal_moments(spoilt, Moments(older), len(set(spoilt)))
    assert bool(judge_results([row(found, wanted, largest=bounds)])["faults"]) is refused


def test_the_norm_s_bound_is_the_root_mean_square_of_the_moves():
    class Square(Moments):
        shape = (2,)

        def sum(self):
            return sum(self)

        def __sub__(self, other):
            return Square(a - b for a, b in zip(self, other, strict=True))

        def __mul__(self, other):
            return Square(a * b for a, b in zip(self, other, strict=True))

        def __abs__(self):
            return self

        def max(self):
            return max(abs(value) for value in self)

    moves = iter([0.0, 3.0, 4.0, 5.0])
    (found,) = moved_bounds(lambda arrays, r: [Square([next(moves), 0.0])], None, 1.0, None, rounds=3)
    norm = pytest.approx((50 / 3) ** 0.5)
    assert found[1:] == (5.0, norm, [norm])


class Matrix:
    """The operations of an array of two axes that :func:`moved_bounds` asks for."""

    def __init__(self, lines):
        self.lines, self.shape = [list(line) for line in lines], (len(lines), len(lines[0]))

    def __sub__(self, other):
        return self.each(other, lambda a, b: a - b)

    def __mul__(self, other):
        return self.each(other, lambda a, b: a * b)

    def __abs__(self):
        return self.each(self, lambda a, _: abs(a))

    def each(self, other, operation):
        pairs = zip(self.lines, other.lines, strict=True)
        return Matrix([list(map(operation, one, two)) for one, two in pairs])

    def max(self):
        return max(map(max, self.lines))

    def sum(self, axis=None):
        return sum(map(sum, self.lines)) if axis is None else Matrix([[sum(line)] for line in self.lines])

    def reshape(self, _):
        return self

    def tolist(self):
        return [number for line in self.lines for number in line]


def moved_matrix(draw, lines=60, width=32):
    """(what a right result is, how it is moved, bounds): numbers of which each is off by a unit at most."""
    right = Matrix([[draw.gauss(0.0, 1.0) for _ in range(width)] for _ in range(lines)])

    def off():
        return Matrix([[number * (1 + draw.uniform(-0.01, 0.01)) for number in line] for line in right.lines])

    results = iter([right] + [off() for _ in range(8)])
    ((_, _, norm, rows),) = moved_bounds(lambda arrays, r: [next(results)], None, 1.0, None)
    return right, off, {"largest": None, "norm": 1.5 * norm, "rows": [1.5 * bound for bound in rows]}


def test_a_wrong_row_shows_that_the_norm_of_all_does_not():
    for seed in range(10):
        right, off, bounds = moved_matrix(random.Random(seed))
        found, wanted = off(), right.tolist()
        assert judge_results([row(found.tolist(), wanted, **bounds)])["faults"] == []
        found.lines[7] = [number * 1.04 for number in found.lines[7]]
        assert judge_results([row(found.tolist(), wanted, **{**bounds, "rows": None})])["faults"] == []
        told = judge_results([row(found.tolist(), wanted, **bounds)])
        assert [one["fault"] for one in told["faults"]] == ["numbers"]
        assert told["worst"]["bound"] == bounds["rows"][7]


def test_a_row_of_one_degree_of_freedom_is_held_to_the_norm_of_all():
    """Of eight moves in one direction nobody knows how far a ninth may go."""
    draw = random.Random(1)
    right = Matrix([[draw.gauss(0.0, 1.0) for _ in range(8)] for _ in range(4)])
    scales = iter([1.0] + [1 + draw.uniform(-0.01, 0.01) for _ in range(8)])

    def scaled(arrays, r):
        scale = next(scales)
        return [Matrix([[number * scale for number in line] for line in right.lines])]

    ((_, _, norm, rows),) = moved_bounds(scaled, None, 1.0, None)
    assert rows == [norm] * 4


def test_rows_of_another_number_than_their_bounds_are_no_result():
    assert judge_results([row(largest=None, norm=1.0, rows=[1.0] * 3)])["faults"]


@pytest.mark.parametrize(
    ("freedom", "chance", "quantile"),
    [(8, 1e-6 / 272, 10.347), (16, 1e-6 / 272, 5.705), (64, 1e-6 / 272, 2.596), (10, 0.01, 2.551)],
)
def test_the_quantile_is_fisher_s(freedom, chance, quantile):
    """``quantile``: SciPy's ``stats.f.isf(chance, freedom, 8 * freedom)``."""
    found = fisher_quantile(freedom, 8.0 * freedom, normal_quantile(chance))
    assert found == pytest.approx(quantile, rel=0.04)
