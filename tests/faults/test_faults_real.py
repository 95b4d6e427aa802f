"""The faults in real parts, and the same parts without a fault."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import faults_real
import pytest
from fault_list import FAULTS, Fault
from fault_scene import EXIT_CODES
from nvidia_headers import cudnn_include, nearest_cudnn

from builder.verify.cudnn_verify.measure import cuda

if TYPE_CHECKING:
    from fault_scene import Scene

pytestmark = pytest.mark.wheels
REAL = [row for row in FAULTS if row.parts == "real"]


@pytest.mark.parametrize("row", REAL, ids=[row.name for row in REAL])
def test_real_fault_gets_its_cause(row: Fault, scene: Scene) -> None:
    row.prepare(scene)
    outcome = scene.run()
    assert outcome.report, outcome.stderr
    found = (outcome.report["verdict"], outcome.report["cause"])
    assert found == (row.verdict, row.cause), outcome.report["summary"]
    assert outcome.code == EXIT_CODES[row.verdict]
    assert outcome.unlisted() == []


_NAMES = """\
import ctypes, json, sys
cudnn = ctypes.CDLL(sys.argv[1])
cudnn.cudnnGetErrorString.restype = ctypes.c_char_p
names = {n: (cudnn.cudnnGetErrorString(n) or b"").decode() for n in [*range(20), *range(1000, 5100)]}
print(json.dumps([[name for name in sys.argv[2:] if not hasattr(cudnn, name)], names]))
"""


@pytest.mark.parametrize("name", ["cudnn-7.6.5", "cudnn-8.9.7", "cudnn-9.1.0", "cudnn-9.10.2"])
def test_a_real_cudnn_has_the_functions_and_the_names_of_statuses(name: str, scene: Scene) -> None:
    """It says without a GPU what its numbers mean; of cuDNN 7, whose headers no index has, this is all."""
    for part in (name, "cublas", "nvrtc", "cudart"):
        scene.wheel(part)
    library = next(path for path in sorted(scene.site.rglob("libcudnn.so.*")))
    major = int(library.name.rpartition(".")[2])
    search = ":".join(str(path) for path in sorted((scene.site / "nvidia").glob("*/lib")))
    said = subprocess.run(
        [sys.executable, "-c", _NAMES, str(library), *cuda.CUDNN_PROTOTYPES],
        env={"LD_LIBRARY_PATH": search},
        capture_output=True,
        text=True,
        check=True,
    )
    missing, names = json.loads(said.stdout)
    absent = {7: {"cudnnGetLastErrorString", "cudnnGetMaxDeviceVersion"}, 8: {"cudnnGetLastErrorString"}}
    assert set(missing) == absent.get(major, set())
    known = {int(number) for number, text in names.items() if text.startswith("CUDNN_STATUS_")}
    header = cudnn_include(nearest_cudnn({7: "7.6.5", 8: "8.9.7"}.get(major, name.removeprefix("cudnn-"))))[0]
    text = "".join(path.read_text() for path in header.glob("*.h"))
    listed = {int(number) for number in re.findall(r"CUDNN_STATUS_\w+\s*=\s*(\d+)", text)}
    assert listed - known <= ({14} if major == 7 else set()), "the probe takes cuDNN's own names"


@pytest.mark.parametrize("name", ["cudnn-7.6.5", "cudnn-8.9.7", "cudnn-9.1.0", "cudnn-9.10.2"])
def test_sound_cudnn_is_only_unverified(name: str, scene: Scene) -> None:
    for part in (name, "cublas", "nvrtc", "cudart"):
        scene.wheel(part)
    outcome = scene.run()
    assert (outcome.report["verdict"], outcome.report["cause"]) == ("unverified", None), outcome.report[
        "summary"
    ]
    passed = outcome.checks("passed")
    assert {("cudnn", number) for number in ("C01", "C04", "C05")} <= set(passed)
    assert [row["version"] for row in outcome.report["libraries"] if row["name"].startswith("libcudnn.so")]
    assert outcome.report["test_double"] is False
    assert outcome.seconds < 20


def test_sound_cudnn_8_6_needs_a_driver_to_load_its_convolutions(scene: Scene) -> None:
    """Without a driver its libraries abort: that is no fault of the image, and no trace of a GPU either."""
    faults_real.cudnn_8_6(scene)
    folder = scene.site / "nvidia" / "cuda_nvrtc" / "lib"
    (folder / "libnvrtc.so").symlink_to("libnvrtc.so.11.2")
    outcome = scene.run()
    assert (outcome.report["verdict"], outcome.report["cause"]) == ("unverified", None), outcome.report[
        "summary"
    ]
