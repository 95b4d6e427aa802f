"""cudnn-verify on a machine with a GPU: sound environments of each framework, then faults that need a card.

Standard library only, one file: ``run.py`` starts it here, in a Colab notebook, or by Google's ``colab run``.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

NO_GPU = 5
_TOOLKIT = (
    "nvidia-cublas-cu12==12.4.5.8",
    "nvidia-cuda-nvrtc-cu12==12.4.127",
    "nvidia-cuda-runtime-cu12==12.4.127",
)
ENVIRONMENTS = {
    "cudnn-9": ("nvidia-cudnn-cu12==9.10.2.21", *_TOOLKIT),
    "cudnn-8": ("nvidia-cudnn-cu12==8.9.7.29", *_TOOLKIT),
    "cudnn-9.28": ("nvidia-cudnn-cu12==9.28.0.42", *_TOOLKIT),
    "cudnn-cuda13": ("nvidia-cudnn-cu13==9.28.0.42", "nvidia-cublas", "nvidia-cuda-nvrtc"),
    "torch": ("torch==2.6.0", "torchvision==0.21.0", "numpy"),
    "tensorflow": ("tensorflow[and-cuda]==2.19.0",),
    "jax": ("jax[cuda12]==0.6.2",),
    "cupy": (
        "cupy-cuda12x==13.4.1",
        "nvidia-cudnn-cu12==8.9.7.29",
        "nvidia-curand-cu12==10.3.5.147",
        *_TOOLKIT,
    ),
    "ctranslate2": (
        "ctranslate2==4.6.0",
        "setuptools",
        "nvidia-cudnn-cu12==9.10.2.21",
        "nvidia-cublas-cu12==12.4.5.8",
    ),
    "onnxruntime": (
        "onnxruntime-gpu==1.22.0",
        "nvidia-cudnn-cu12==9.10.2.21",
        "nvidia-cufft-cu12==11.2.1.3",
        "nvidia-curand-cu12==10.3.5.147",
        *_TOOLKIT,
    ),
}
"""Environments by name; the probe has to say ``works`` in each, unless :func:`expected` knows better."""

FAULTS = {
    "gpu-hidden": ("host", "device-hidden"),
    "memory-taken": ("busy", "out-of-memory"),
    "part-missing": ("broken", "cudnn-sublibrary-missing"),
    "parts-of-two-versions": ("broken", "cudnn-sublibrary-mismatch"),
    "another-cudnn-on-the-path": ("broken", "cudnn-shadowed"),
}
"""Faults in the environment ``cudnn-9``, and what the probe has to say."""
_OLDER = "nvidia-cudnn-cu12==9.1.0.70"

# Takes the GPU's memory but for what a context needs, says so, and holds it until its input ends.
_HOLD = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, free, total, address = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
step = 1 << 30
while step >= 1 << 20:
    cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    if cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(step)):
        step >>= 1
print("held", flush=True)
sys.stdin.read()
"""


def expected(name, gpu, driver):
    """(verdict, cause) that the probe has to give: a card or a driver may be too old for an environment."""
    if name in FAULTS:
        return FAULTS[name]
    if name == "ctranslate2":
        return "unverified", None  # the probe has no convolution for it; the suite infer runs
    if name == "cudnn-cuda13" and int((driver.get("api") or "0").partition(".")[0]) < 13:
        return "host", "driver-too-old"
    capability = tuple(int(part) for part in gpu["compute_capability"].split("."))
    if name in ("cudnn-9.28", "cudnn-cuda13") and capability < (7, 5):
        return "unsupported-gpu", "cudnn-arch-dropped"
    return "works", None


class Bench:
    """A folder with environments, and the probe to run in them."""

    def __init__(self, probe, folder, uv):
        self.probe, self.folder, self.uv = Path(probe), Path(folder), uv

    def python(self, name):
        """The interpreter of an environment; makes it first."""
        folder = self.folder / name
        python = folder / "bin" / "python"
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([*self.uv, "venv", "-q", "--python", sys.executable, str(folder)], check=True)
            install = [*self.uv, "pip", "install", "-q", "--python", str(python)]
            subprocess.run([*install, *ENVIRONMENTS[name]], check=True)
            (folder / "ready").touch()
        return python

    def packages(self, name):
        """{package: version} of what was installed."""
        command = [*self.uv, "pip", "freeze", "--python", str(self.python(name))]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        return dict(line.split("==") for line in lines if "==" in line)

    def library(self, name):
        """cuDNN's folder in an environment."""
        return next((self.folder / name).glob("lib/python*/site-packages/nvidia/cudnn/lib"))

    def older(self):
        """The libraries of an older cuDNN, in a folder of their own."""
        target = self.folder / "older"
        if not target.exists():
            command = [*self.uv, "pip", "install", "-q", "--no-deps", "--target", str(target), _OLDER]
            subprocess.run(command, check=True)
        return target / "nvidia" / "cudnn" / "lib"

    def look(self, python, *arguments, **variables):
        """The probe's report, and the seconds that it took."""
        # LD_LIBRARY_PATH stays: on Colab it is what leads to the driver
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment.update(variables)
        started = time.monotonic()
        done = subprocess.run(
            [str(python), str(self.probe), "--json", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=3600,
        )
        try:
            report = json.loads(done.stdout)
        except ValueError:
            report = {
                "verdict": None,
                "cause": None,
                "summary": (done.stderr or "no report")[-500:],
                "checks": [],
            }
        return report, round(time.monotonic() - started, 1)

    @contextlib.contextmanager
    def broken(self, fault):
        """The environment ``cudnn-9`` with one thing wrong; gives the variables to run the probe with."""
        part = self.library("cudnn-9") / "libcudnn_cnn.so.9"
        aside = part.with_name("aside")
        if fault == "gpu-hidden":
            yield {"CUDA_VISIBLE_DEVICES": ""}
        elif fault == "memory-taken":
            with subprocess.Popen(
                [sys.executable, "-c", _HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as holder:
                if holder.stdout.readline() != "held\n":
                    raise RuntimeError("the GPU's memory could not be taken")
                yield {}
        elif fault == "another-cudnn-on-the-path":
            yield {"LD_LIBRARY_PATH": f"{self.older()}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")}
        else:
            part.rename(aside)
            try:
                if fault == "parts-of-two-versions":
                    shutil.copy(self.older() / part.name, part)
                yield {}
            finally:
                part.unlink(missing_ok=True)
                aside.rename(part)


def examine(bench, names, say=print):
    """The whole trial: the report to commit, or a text that says why there is none."""
    report, _ = bench.look(sys.executable, "--only", "driver")
    gpus, driver = report.get("gpus") or [], report.get("driver") or {}
    if report.get("test_double"):
        return "a test double stands in for the driver: that is evidence for nothing"
    if not gpus:
        order = {"failed": 0, "not_run": 1}
        told = [
            c for c in report["checks"] if c["id"] in ("D02", "D03", "D04", "D05") and c["outcome"] in order
        ]
        told.sort(key=lambda check: order[check["outcome"]])
        return f"no GPU here that works: {told[0]['summary'] if told else report['summary']}"
    gpu = {key: gpus[0][key] for key in ("name", "compute_capability", "memory_total")}
    say(f"{gpu['name']}, compute capability {gpu['compute_capability']}, driver {driver.get('version')}")
    rows = []
    for name in names:
        rows.append(_row(bench, name, expected(name, gpu, driver)))
        say(line_of(rows[-1]))
    return {
        "schema": 1,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "gpu": gpu,
        "driver": {key: driver.get(key) for key in ("version", "api")},
        "machine": platform.machine(),
        "python": platform.python_version(),
        "probe": report.get("probe"),
        "rows": rows,
    }


def _row(bench, name, wanted):
    row = {"kind": "fault" if name in FAULTS else "environment", "name": name, "expected": list(wanted)}
    try:
        if name in FAULTS:
            python = bench.python("cudnn-9")
            with bench.broken(name) as variables:
                report, seconds = bench.look(python, **variables)
        else:
            python = bench.python(name)
            row["packages"] = bench.packages(name)
            report, seconds = bench.look(python, "--suite", "all")
    except (OSError, subprocess.SubprocessError, RuntimeError, StopIteration) as error:
        row.update(found=[None, None], summary=f"not run: {error}", seconds=None, checks=[])
        return row
    row.update(found=[report["verdict"], report["cause"]], summary=report["summary"], seconds=seconds)
    row["checks"] = [
        [check["stage"], check["id"], check["outcome"], check.get("cause")] for check in report["checks"]
    ]
    raw = [
        check["evidence"].get("rows")
        for check in report["checks"]
        if check["id"] == "C07" and check["evidence"]
    ]
    row["convolutions"] = raw[0] if raw else None
    row["suites"] = report.get("suites")
    return row


def as_it_should(row):
    return row["found"] == row["expected"]


def line_of(row):
    """One row as a line of the table in Markdown."""
    wanted, found = (
        f"{v or 'no answer'}{f' ({c})' if c else ''}" for v, c in (row["expected"], row["found"])
    )
    mark = "yes" if as_it_should(row) else "**no**"
    return f"| {row['kind']} | {row['name']} | {wanted} | {found} | {mark} | {row['seconds'] or ''} |"


def page(report):
    """The report as a page in Markdown."""
    gpu, driver = report["gpu"], report["driver"]
    right = sum(map(as_it_should, report["rows"]))
    about = (
        f"{report['date']}; compute capability {gpu['compute_capability']}, driver API {driver['api']}, "
        f"Python {report['python']}, cudnn-verify {report['probe']['version']}. "
        f"{right} of {len(report['rows'])} as expected."
    )
    lines = [
        f"# {gpu['name']}, driver {driver['version']}",
        "",
        about,
        "",
        "| | name | expected | found | as expected | seconds |",
        "|---|---|---|---|---|---|",
        *map(line_of, report["rows"]),
    ]
    wrong = [row for row in report["rows"] if not as_it_should(row)]
    lines += ["", *(f"- {row['name']}: {row['summary']}" for row in wrong)] if wrong else []
    return "\n".join(lines) + "\n"


def file_stem(report):
    """``tesla-t4-550.54.15``: a card and a driver have one report."""
    return re.sub(
        r"[^a-z0-9.]+", "-", f"{report['gpu']['name']} {report['driver']['version']}".lower()
    ).strip("-")


def find_uv():
    """The command that runs uv, or None."""
    if shutil.which("uv"):
        return ["uv"]
    module = [sys.executable, "-m", "uv"]
    found = subprocess.run([*module, "--version"], capture_output=True, check=False).returncode == 0
    return module if found else None


def carry_out(probe, folder, names=None, say=print):
    """(exit status, report or None): 0 all as expected, 1 something is not, 5 no GPU or no uv here."""
    uv = find_uv()
    if uv is None:
        say("gpu: uv is needed, which makes the environments; hint: pip install uv")
        return NO_GPU, None
    report = examine(Bench(probe, folder, uv), names or [*ENVIRONMENTS, *FAULTS], say)
    if isinstance(report, str):
        say(f"gpu: {report}")
        return NO_GPU, None
    say("\n" + page(report))
    return (0 if all(map(as_it_should, report["rows"])) else 1), report
