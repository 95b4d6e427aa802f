"""Run by a framework's own Python: asks the probe's adapter for everything it computes on a GPU, on the CPU.

Usage: adapter_on_cpu.py REPOSITORY STAGE [graph]; prints one JSON object.
"""

import json
import os
import sys
import types
from pathlib import Path

repository, name = sys.argv[1:3]
for package in ("builder", "builder.core", "builder.verify", "builder.verify.cudnn_verify"):
    module = types.ModuleType(package)
    module.__path__ = [str(Path(repository, *package.split(".")))]
    sys.modules[package] = module

from builder.verify.cudnn_verify.measure.fw_common import (  # noqa: E402
    compare_convolutions,
    loss_falls,
    training_data,
    wrong_numbers,
)
from builder.verify.cudnn_verify.measure.protocol import Ctx  # noqa: E402
from builder.verify.cudnn_verify.measure.schedule import FRAMEWORKS  # noqa: E402

# A device that is named makes an adapter give the gradients too; JAX's adapter takes the CPU's own device.
CPU = {"torch": "cpu", "tensorflow": "/CPU:0", "paddle": "cpu"}
ctx = Ctx(name, {}, os.open(os.devnull, os.O_WRONLY))
framework = FRAMEWORKS[name](ctx)
framework.load()
if sys.argv[3:] == ["graph"]:
    framework.api.compat.v1.disable_eager_execution()
    framework.eager = False
if name == "jax":
    place = framework.api.local_devices(backend="cpu")[0]
    framework._device = lambda name: place
    CPU["jax"] = "cpu"
dtypes = framework.dtypes[: 1 if name == "paddle" else None]  # Paddle has no other on the CPU
done, skipped, devices = compare_convolutions(ctx, framework, CPU.get(name), None, dtypes)
report = {"devices": sorted(devices), "skipped": skipped, "wrong": wrong_numbers(done)}
report["differences"] = {
    f"{dtype} {key}": off for dtype, row in done.items() for key, off in row["differences"].items()
}
compared, calls = framework.convolve, []


def stale(device, dtype, case, *tail):
    """The answer to the numbers before: an output that nobody wrote to."""
    calls.append(compared(device, dtype, case, *tail))
    return calls[-2] if len(calls) > 1 else calls[0]


def stored(device, dtype, case, *tail):
    """The answer to the first numbers, again and again."""
    calls.append(compared(device, dtype, case, *tail))
    return calls[0]


def first_wrong(device, dtype, case, *tail):
    found = compared(device, dtype, case, *tail)
    calls.append(None)
    return found if len(calls) > 1 else dict(found, y=[value + 1 for value in found["y"]])


def nan_corner(device, dtype, case, *tail):
    found = compared(device, dtype, case, *tail)
    return dict(found, y=[*found["y"][:-1], float("nan")])


report["unnoticed"] = []
for perturbed in (stale, stored, first_wrong, nan_corner):
    calls.clear()
    framework.convolve = perturbed
    if not wrong_numbers(compare_convolutions(ctx, framework, CPU.get(name), None, ["float32"])[0]):
        report["unnoticed"].append(perturbed.__name__)
framework.convolve = compared
if framework.trains:
    trained = framework.train(CPU.get(name), training_data())
    report["losses"] = trained["losses"]
    report["falls"] = loss_falls(trained["losses"])
print(json.dumps(report))
