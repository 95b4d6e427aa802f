"""Run by a framework's own Python: the probe's suites on the CPU, each time with fresh numbers.

Usage: suites_on_cpu.py REPOSITORY FRAMEWORK TIMES SUITE...; prints {suite: {"runs": [rows], ...}}.
"""

import json
import os
import sys
import types
from pathlib import Path

repository, name, times, *suites = sys.argv[1:]
for package in ("builder", "builder.core", "builder.verify", "builder.verify.cudnn_verify"):
    module = types.ModuleType(package)
    module.__path__ = [str(Path(repository, *package.split(".")))]
    sys.modules[package] = module

from builder.verify.cudnn_verify.measure.protocol import Ctx  # noqa: E402
from builder.verify.cudnn_verify.measure.schedule import FRAMEWORKS, SUITE_CLASSES, run_suite  # noqa: E402

framework = FRAMEWORKS[name](Ctx(name, {}, os.open(os.devnull, os.O_WRONLY)))
framework.load()
if hasattr(framework, "prepare"):
    framework.prepare(None)
device = {"tensorflow": "/CPU:0", "onnxruntime": "CPUExecutionProvider"}.get(name, "cpu")
if name == "jax":
    framework.api.config.update("jax_platforms", "cpu")
    device = framework.api.local_devices(backend="cpu")[0]
found = {}
for suite in suites:
    runs = [
        run_suite(SUITE_CLASSES[name], framework, device, suite)
        for _ in range(1 if suite == "compile" and name != "jax" else int(times))
    ]
    found[suite] = {"runs": [run[0] for run in runs], "skipped": runs[0][1], "seconds": runs[0][2]}
print(json.dumps(found))
