"""Run by a framework's own Python: the probe's suites on the CPU, each with two seeds.

Usage: suites_on_cpu.py REPOSITORY FRAMEWORK SUITE...; prints {suite: {"rows", "again", ...}}.
"""

import json
import os
import sys
import types
from pathlib import Path

repository, name, *suites = sys.argv[1:]
for package in ("builder", "builder.core", "builder.verify", "builder.verify.cudnn_verify"):
    module = types.ModuleType(package)
    module.__path__ = [str(Path(repository, *package.split(".")))]
    sys.modules[package] = module

from builder.verify.cudnn_verify.measure.fw_stages import FRAMEWORKS  # noqa: E402
from builder.verify.cudnn_verify.measure.protocol import Ctx  # noqa: E402
from builder.verify.cudnn_verify.measure.suite_stages import SUITE_CLASSES, run_suite  # noqa: E402

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
    rows, skipped, seconds = run_suite(SUITE_CLASSES[name], framework, device, suite)
    twice = suite != "compile" or name == "jax"
    again = run_suite(SUITE_CLASSES[name], framework, device, suite)[0] if twice else []
    found[suite] = {"rows": rows, "again": again, "skipped": skipped, "seconds": seconds}
print(json.dumps(found))
