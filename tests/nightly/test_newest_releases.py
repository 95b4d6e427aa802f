"""The probe beside the newest release of every framework: 4 to 7 GB each, downloaded, looked at, removed.

What is released tomorrow is in no list of faults. TensorFlow 2.21, CuPy 14, onnxruntime 1.31 and torch 2.15
were each called broken on the day they came, for things that they do differently and rightly.
"""

import json
import subprocess
import sys

import pytest

from builder.recipe.bundle import bundle

# No GPU: sound is "unverified". onnxruntime finds NVIDIA's wheels only after its own preload_dlls().
SOUND = {
    "torch": None,
    "tensorflow[and-cuda]": None,
    "jax[cuda12]": None,
    "jax[cuda13]": None,
    "cupy-cuda13x[ctk]": None,
    "onnxruntime-gpu[cuda,cudnn]": "framework-silent-cpu",
    "ctranslate2": "toolkit-library-missing",  # it pins nothing of NVIDIA's
}


@pytest.mark.parametrize("requirement", SOUND)
def test_the_newest_release_as_its_own_pins_install_it(requirement, tmp_path):
    python = tmp_path / "venv/bin/python"
    uv(["venv", "--python", sys.executable, str(tmp_path / "venv")])
    uv(["pip", "install", "--no-cache", "--python", str(python), requirement])
    probe = tmp_path / "cudnn_verify.py"
    probe.write_bytes(bundle())
    done = subprocess.run(
        [python, probe, "--json", "--no-gpu"], capture_output=True, text=True, timeout=600, check=False
    )
    report = json.loads(done.stdout)
    failed = {
        row["id"]: (row["cause"], row["summary"]) for row in report["checks"] if row["outcome"] == "failed"
    }
    assert report["cause"] == SOUND[requirement], (report["summary"], failed)
    assert report["verdict"] == ("broken" if SOUND[requirement] else "unverified")


def uv(arguments):
    subprocess.run([sys.executable, "-m", "uv", "--quiet", *arguments], check=True, timeout=1800)
