"""Run by a framework's own Python: asks the probe's adapter for everything it computes on a GPU, on the CPU.

Usage: adapter_on_cpu.py REPOSITORY STAGE [graph]; prints one JSON object.
"""

import json
import os
import sys
import types
from pathlib import Path

repository, name = sys.argv[1:3]
for package in ("builder", "builder.probe"):
    module = types.ModuleType(package)
    module.__path__ = [str(Path(repository, *package.split(".")))]
    sys.modules[package] = module

from builder.probe.fw_compute import loss_falls, training_data  # noqa: E402
from builder.probe.fw_stages import FRAMEWORKS  # noqa: E402
from builder.probe.protocol import Ctx  # noqa: E402
from builder.probe.reference import answers, bias_relu, largest_difference  # noqa: E402

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
case, bias = answers(), [3, -2, 5, -7]
report = {"differences": {}, "devices": []}
for dtype in framework.dtypes[: 1 if name == "paddle" else None]:  # Paddle has no other on the CPU
    found = framework.convolve(CPU.get(name), dtype, case)
    for key in framework.answers:
        report["differences"][f"{dtype} {key}"] = largest_difference(found[key], case[key])
    report["devices"] += found["devices"]
found = framework.fused(CPU.get(name), "float32", case, bias)
report["differences"]["bias+relu"] = largest_difference(found["y"], bias_relu(case["y"], bias, 4))
if framework.trains:
    trained = framework.train(CPU.get(name), training_data())
    report["losses"] = trained["losses"]
    report["falls"] = loss_falls(trained["losses"])
print(json.dumps(report))
