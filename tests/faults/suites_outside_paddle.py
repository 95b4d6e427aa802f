"""Run by Paddle's own Python: the faults of ``paddle-loader`` in a list, in a real Paddle on the CPU.

Usage: suites_outside_paddle.py REPOSITORY LIST; prints lines as suites_outside_torch.py does.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
import types
from itertools import pairwise
from pathlib import Path
from unittest import mock

repository, list_of_faults = sys.argv[1:]
for package in ("builder", "builder.core", "builder.verify", "builder.verify.cudnn_verify"):
    module = types.ModuleType(package)
    module.__path__ = [str(Path(repository, *package.split(".")))]
    sys.modules[package] = module

import numpy as np  # noqa: E402
import paddle.io  # noqa: E402

from builder.verify.cudnn_verify.measure.protocol import Ctx  # noqa: E402
from builder.verify.cudnn_verify.measure.schedule import FRAMEWORKS, SUITE_CLASSES, run_suite  # noqa: E402
from builder.verify.cudnn_verify.measure.suite_judge import ON_CARD, judge_results  # noqa: E402

framework = FRAMEWORKS["paddle"](Ctx("paddle", {}, os.open(os.devnull, os.O_WRONLY)))
framework.load()
REAL, APPLIED = paddle.io.DataLoader, [0]


def loads(change=iter, **changed):
    def loader(source, **options):
        APPLIED[0] += 1
        return change(REAL(source, **{**options, **changed}))

    return loader


def spoilt(change):
    """The batches as arrays of NumPy, changed, as tensors."""
    return loads(lambda loader: map(paddle.to_tensor, change([batch.numpy() for batch in loader])))


def flipped(batches):
    batches[2].view(np.int32)[3, 100] ^= 1 << 16
    return batches


FAULTS = {
    "sound": REAL,
    "batch-repeated": spoilt(lambda batches: [batches[0], batches[0], *batches[2:]]),
    "last-sample-lost": spoilt(lambda batches: [*batches[:-1], batches[-1][:-1]]),
    "order": spoilt(lambda batches: [batches[0], batches[2], batches[1], *batches[3:]]),
    "no-workers": loads(num_workers=0, timeout=0),
    "one-worker": loads(num_workers=1),
    "bit-flipped": spoilt(flipped),
    "torn": spoilt(
        lambda batches: [batches[0], *(np.concatenate([new[:4], old[4:]]) for old, new in pairwise(batches))]
    ),
    "last-batch-lost": spoilt(lambda batches: batches[:-1]),
}

listed = tomllib.loads(Path(__file__).with_name(list_of_faults).read_text("utf-8"))["paddle-loader"]
for name in ("sound", *listed):
    APPLIED[0] = 0
    with mock.patch.object(paddle.io, "DataLoader", FAULTS[name]):
        rows = run_suite(SUITE_CLASSES["paddle"], framework, "cpu", "loader")[0]
    rows = [{**row, "devices": ["gpu:0"], "memory": [ON_CARD + "0"]} for row in rows]
    told = {"suite": "loader", "fault": name, "dtype": "fp32", "rows": len(rows), "applied": APPLIED[0]}
    told["faults"] = [one["says"] for one in judge_results(rows)["faults"]][:3]
    print(json.dumps(told), flush=True)
