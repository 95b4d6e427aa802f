"""``make gpu``: cudnn-verify proven on a card, here or on Colab; writes ``tests/gpu/reports/``.

    python tests/gpu/run.py                    on this machine
    python tests/gpu/run.py --colab T4         on a machine of Google's (needs google-colab-cli, logged in)
    python tests/gpu/run.py --notebook FILE    the same as a notebook to open in Colab

Needs uv and, on a card, 25 GB of disk; no Docker. Exit status 0: all as expected, 1: something is not, 5: no
GPU is here, or a program is missing.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hashlib
import importlib.util
import json
import lzma
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

import trial  # noqa: E402

REPORTS = HERE / "reports"
_BEGIN, _END = "-----BEGIN GPU REPORT-----", "-----END GPU REPORT-----"

# What runs on a machine that has nothing of the project: the trial's source, then this.
_TAIL = """

def _unpacked(text, sha256, path):
    import base64, hashlib, lzma
    source = lzma.decompress(base64.b85decode(text))
    if hashlib.sha256(source).hexdigest() != sha256:
        raise SystemExit("cudnn-verify arrived damaged")
    path.write_bytes(source)
    return path


_folder = Path("gpu-trial").absolute()
_folder.mkdir(exist_ok=True)
_status, _report = carry_out(_unpacked(PACKED, SHA256, _folder / "cudnn_verify.py"), _folder, NAMES)
if _report:
    (_folder / "report.json").write_text(json.dumps(_report))
    print("{begin}")
    print(json.dumps(_report))
    print("{end}")
"""
_LAST = "raise SystemExit(_status)\n"
_TITLE = """\
# cudnn-verify on this GPU

Takes a GPU runtime (*Runtime → Change runtime type*), half an hour and 25 GB. It makes environments of
TensorFlow, PyTorch, JAX, CuPy and ONNX Runtime beside the runtime's own, runs cudnn-verify in each, breaks
one of them in ways that need a card, and ends in a table. The last cell downloads the report, for
`tests/gpu/reports/`.
"""
_DOWNLOAD = """\
import pathlib
if pathlib.Path("gpu-trial/report.json").exists():
    from google.colab import files
    files.download("gpu-trial/report.json")
else:
    print("there is no report: see above")
"""


def probe() -> bytes:
    """cudnn-verify as one file; needs nothing but this checkout."""
    place = ROOT / "builder" / "image" / "recipe" / "probe_file.py"
    spec = importlib.util.spec_from_file_location("rtbuild_bundle", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.bundle()


def payload(names: list[str] | None = None) -> str:
    """One script that has the probe and the trial in it, for a machine that has neither."""
    source = probe()
    packed = base64.b85encode(lzma.compress(source, preset=9)).decode()
    lines = "\n".join(f'    "{packed[at : at + 4000]}"' for at in range(0, len(packed), 4000))
    head = f'PACKED = (\n{lines}\n)\nSHA256 = "{hashlib.sha256(source).hexdigest()}"\nNAMES = {names!r}\n'
    tail = _TAIL.replace("{begin}", _BEGIN).replace("{end}", _END)
    return (HERE / "trial.py").read_text(encoding="utf-8") + "\n\n" + head + tail


def notebook(names: list[str] | None = None) -> str:
    """The same as a notebook for Colab."""

    def cell(identifier: str, kind: str, text: str) -> dict[str, object]:
        made = {"cell_type": kind, "id": identifier, "metadata": {}, "source": text.splitlines(keepends=True)}
        return made | ({"execution_count": None, "outputs": []} if kind == "code" else {})

    document = {
        "cells": [
            cell("title", "markdown", _TITLE),
            cell("trial", "code", payload(names)),
            cell("download", "code", _DOWNLOAD),
        ],
        "metadata": {
            "accelerator": "GPU",
            "colab": {"provenance": []},
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def keep(report: dict[str, object], folder: Path = REPORTS) -> None:
    """Write the report and its page; the same card and driver have one."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / trial.file_stem(report)
    for path, text in (
        (Path(f"{stem}.json"), json.dumps(report, indent=1, sort_keys=True) + "\n"),
        (Path(f"{stem}.md"), trial.page(report)),
    ):
        path.write_text(text, encoding="utf-8")
        print(f"gpu: {path} is written; commit it, and `pytest --update-golden tests/faults/test_proof.py`")


def on_colab(gpu: str, names: list[str] | None) -> int:
    """Run the trial on a machine of Google's: https://github.com/googlecolab/google-colab-cli."""
    if shutil.which("colab") is None:
        print("gpu: there is no colab command here; hint: uv tool install google-colab-cli, then log in")
        return trial.NO_GPU
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "gpu_trial.py"
        script.write_text(payload(names) + _LAST, encoding="utf-8")
        output = []
        with subprocess.Popen(
            ["colab", "run", "--gpu", gpu, str(script)], stdout=subprocess.PIPE, text=True, bufsize=1
        ) as running:
            assert running.stdout is not None
            for line in running.stdout:
                output.append(line)
                print(line, end="", flush=True)
    text = "".join(output)
    if _BEGIN in text and _END in text:
        keep(json.loads(text.partition(_BEGIN)[2].partition(_END)[0]))
    elif running.returncode == 0:
        print("gpu: the machine sent no report")
        return 1
    return running.returncode


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--colab", metavar="GPU", help="T4, L4, A100 or H100, by the command colab")
    parser.add_argument(
        "--notebook", metavar="FILE", type=Path, help="write the notebook, and do nothing else"
    )
    parser.add_argument(
        "--only", metavar="NAME", action="append", choices=[*trial.ENVIRONMENTS, *trial.FAULTS]
    )
    parser.add_argument("--work", metavar="DIR", type=Path, help="where the environments go and stay")
    options = parser.parse_args(arguments)
    if options.notebook:
        options.notebook.write_text(notebook(options.only), encoding="utf-8")
        print(f"gpu: {options.notebook} is written; open it in Colab")
        return 0
    if options.colab:
        return on_colab(options.colab, options.only)
    with work_folder(options.work) as folder:
        verify = Path(folder) / "cudnn_verify.py"
        verify.write_bytes(probe())
        status, report = trial.carry_out(verify, folder, options.only)
    if report and not options.only:
        keep(report)
    return status


def work_folder(kept: Path | None) -> tempfile.TemporaryDirectory[str] | object:
    """The folder given, which stays, or one that goes when the trial ends."""
    if kept is None:
        return tempfile.TemporaryDirectory(prefix="rtbuild-gpu-")
    kept.mkdir(parents=True, exist_ok=True)
    return contextlib.nullcontext(str(kept))


if __name__ == "__main__":
    sys.exit(main())
