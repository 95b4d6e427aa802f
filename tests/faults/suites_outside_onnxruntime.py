"""Run by ONNX Runtime's own Python: the faults of ``infer`` in a list, in a real ONNX Runtime.

Usage: suites_outside_onnxruntime.py REPOSITORY LIST: suites_outside.toml or suites_outside_hardware.toml;
prints lines as suites_outside_torch.py does.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
import types
from pathlib import Path
from unittest import mock

repository, list_of_faults = sys.argv[1:]
for package in ("builder", "builder.core", "builder.verify", "builder.verify.cudnn_verify"):
    module = types.ModuleType(package)
    module.__path__ = [str(Path(repository, *package.split(".")))]
    sys.modules[package] = module

import numpy as np  # noqa: E402

from builder.verify.cudnn_verify.measure import fw_inference  # noqa: E402
from builder.verify.cudnn_verify.measure.protocol import Ctx  # noqa: E402
from builder.verify.cudnn_verify.measure.schedule import FRAMEWORKS, SUITE_CLASSES, run_suite  # noqa: E402
from builder.verify.cudnn_verify.measure.suite_judge import ON_CARD, judge_results  # noqa: E402

framework = FRAMEWORKS["onnxruntime"](Ctx("onnxruntime", {}, os.open(os.devnull, os.O_WRONLY)))
framework.load()
APPLIED = [0]


def output(change):
    """The session writes a changed output."""
    real = framework.api.InferenceSession

    class Session(real):
        def run_with_iobinding(self, binding, run_options=None):
            super().run_with_iobinding(binding, run_options)
            (y,) = binding.get_outputs()
            y.update_inplace(np.ascontiguousarray(change(y.numpy())))
            APPLIED[0] += 1

    return mock.patch.object(framework.api, "InferenceSession", Session)


def edit(array, place, value):
    copy = array.copy()
    copy[place] = value
    return copy


def activation_skipped():
    real = fw_inference._onnx

    def message(*fields):
        APPLIED[0] += (4, "Relu") in fields
        return real(*[(4, "Identity") if field == (4, "Relu") else field for field in fields])

    return mock.patch.object(fw_inference, "_onnx", message)


def narrow():
    real = fw_inference.encoder_model

    def model(dtype, arrays, heads):
        APPLIED[0] += 1
        cut = [(array.astype("float32").view("uint32") & 0xFFFF0000).view("float32") for array in arrays]
        return real(dtype, cut, heads)

    return mock.patch.object(fw_inference, "encoder_model", model)


def first_output():
    """Every run of each model returns the output of the first."""
    kept = {}

    def change(y):
        return kept.setdefault((y.dtype, y.shape), y.copy())

    return output(change)


def exchanged(y):
    width = y.shape[-1] // 4
    return np.concatenate([y[..., width : 2 * width], y[..., :width], y[..., 2 * width :]], -1)


def flipped(y):
    bits, whole = {"float32": (23, np.int32), "float16": (10, np.int16)}[str(y.dtype)]
    copy = np.ascontiguousarray(y).copy()
    copy.view(whole).reshape(-1)[copy.size // 3] ^= whole(1 << bits)
    return copy


TYPES = {"fp32": "float32", "fp16": "float16"}
FAULTS = {
    "first-output": first_output,
    "heads-exchanged": lambda: output(exchanged),
    "bit-flipped": lambda: output(flipped),
    "transposed": lambda: output(lambda y: y.T.reshape(y.shape)),
    "activation-skipped": activation_skipped,
    "last-class": lambda: output(lambda y: edit(y, (slice(None), -1), 0.0)),
    "row-repeated": lambda: output(lambda y: edit(y, 1, y[0])),
    "narrow": narrow,
    "silent-cpu": lambda: mock.patch.object(framework, "api", framework.api),
    "sound": lambda: mock.patch.object(framework, "api", framework.api),
}


for name, entry in [
    ("sound", {"dtypes": [""]}),
    *tomllib.loads(Path(__file__).with_name(list_of_faults).read_text("utf-8"))["infer"].items(),
]:
    for dtype in entry["dtypes"]:
        APPLIED[0] = 0
        with FAULTS[name]():
            rows = run_suite(SUITE_CLASSES["onnxruntime"], framework, "CPUExecutionProvider", "infer")[0]
        if dtype:
            rows = [row for row in rows if TYPES[dtype] in row["what"]]
        if name != "silent-cpu":
            rows = [{**row, "devices": ["cuda:0"], "memory": [ON_CARD + "0"]} for row in rows]
        told = {"suite": "infer", "fault": name, "dtype": dtype, "rows": len(rows), "applied": APPLIED[0]}
        told["faults"] = [one["says"] for one in judge_results(rows)["faults"]][:3]
        print(json.dumps(told), flush=True)
