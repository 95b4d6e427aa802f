# ruff: noqa: E501 - a mistake a line
"""The doubles refuse what is wrong, and the fake driver answers as NVIDIA's own does without a device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from nvidia_driver import BRANCHES, real_driver, without_nodes
from nvidia_headers import releases

from builder.verify.cudnn_verify.measure.suite_judge import ON_CARD

if TYPE_CHECKING:
    from fault_doubles import Doubles
    from fault_scene import Scene

# A program that makes one sound convolution through ctypes; MISTAKES change a line of it.
_SOUND = """\
import ctypes, struct
from ctypes import byref, c_float, c_int, c_size_t, c_uint64, c_void_p
cuda, cudnn = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libcudnn.so.9")
def made(kind):
    found = c_void_p()
    assert getattr(cudnn, "cudnnCreate" + kind)(byref(found)) == 0
    return found
def memory(size):
    address = c_uint64()
    assert cuda.cuMemAlloc_v2(byref(address), c_size_t(size)) == 0
    return c_void_p(address.value)
host = ctypes.create_string_buffer(4096)
context, handle, double_one = c_void_p(), c_void_p(), ctypes.c_double(1)
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cudnn.cudnnCreate(byref(handle)) == 0
x, y, w, d = made("TensorDescriptor"), made("TensorDescriptor"), made("FilterDescriptor"), made("ConvolutionDescriptor")
unset = made("TensorDescriptor")
statuses = [
    cudnn.cudnnSetTensor4dDescriptor(x, 0, 0, 1, 1, 4, 4),
    cudnn.cudnnSetTensor4dDescriptor(y, 0, 0, 1, 1, 4, 4),
    cudnn.cudnnSetFilter4dDescriptor(w, 0, 0, 1, 1, 3, 3),
    cudnn.cudnnSetConvolution2dDescriptor(d, 1, 1, 1, 1, 1, 1, 1, 0),
]
from_x, from_w, to, space = memory(64), memory(36), memory(64), memory(4096)
one, zero, algorithm, size = c_float(1), c_float(0), 1, c_size_t(4096)
for address, count in ((from_x, 16), (from_w, 9)):
    statuses.append(cuda.cuMemcpyHtoD_v2(address, struct.pack("%df" % count, *[1] * count), c_size_t(4 * count)))
statuses.append(
    cudnn.cudnnConvolutionForward(
        handle, byref(one), x, from_x, w, from_w, d, algorithm, space, size, byref(zero), y, to
    )
)
statuses.append(cuda.cuMemcpyDtoH_v2(host, to, c_size_t(64)))
answer = struct.unpack("16f", host.raw[:64])
print([status for status in statuses if status], sorted(set(answer)))
"""
# what is wrong: (text of a line, its replacement, what the double says)
MISTAKES = {
    "filter as a tensor": ("byref(one), x, from_x", "byref(one), w, from_x", "p).x is no TENSOR"),
    "tensor as a filter": ("w, from_w, d, alg", "x, from_w, d, alg", "p).w is no FILTER"),
    "descriptor that was not set": ("zero), y, to", "zero), unset, to", "was not set"),
    "no handle": ("        handle, byref", "        x, byref", "is no HANDLE"),
    "host pointer as data": ("w, from_w, d", "w, host, d", "data that is not on the device"),
    "output too small": ("to, space = memory(64), memory(36), memory(64)", "to, space = memory(64), memory(36), memory(60)", "not all of it"),
    "output in an operand": ("zero), y, to\n", "zero), y, from_x\n", "the output lies in an operand"),
    "no workspace": ("algorithm, space, size", "algorithm, None, c_size_t(0)", "bytes of workspace"),
    "workspace of the host": ("algorithm, space, size", "algorithm, host, size", "workspace that is not on the device"),
    "scalar on the device": ("handle, byref(one)", "handle, from_w", "scalars on the device"),
    "unknown algorithm": ("algorithm, size = c_float(1), c_float(0), 1", "algorithm, size = c_float(1), c_float(0), 8", "no algorithm 8"),
    "shapes that do not fit": ("(y, 0, 0, 1, 1, 4, 4)", "(y, 0, 0, 1, 1, 4, 3)", "shapes that do not go together"),
    "mixed types": ("(y, 0, 0, 1, 1, 4, 4)", "(y, 0, 2, 1, 1, 4, 4)", "three types"),
    "another layout": ("(x, 0, 0, 1, 1, 4, 4)", "(x, 1, 0, 1, 1, 4, 4)", "layout 1"),
    "format and type exchanged": ("(x, 0, 0, 1, 1, 4, 4)", "(x, 2, 0, 1, 1, 4, 4)", "layout 2"),
    "dilation of zero": ("(d, 1, 1, 1, 1, 1, 1, 1, 0)", "(d, 1, 1, 1, 1, 0, 0, 1, 0)", "stride or dilation"),
    "true convolution": ("(d, 1, 1, 1, 1, 1, 1, 1, 0)", "(d, 1, 1, 1, 1, 1, 1, 0, 0)", "mode 0"),
    "computing in half": ("(d, 1, 1, 1, 1, 1, 1, 1, 0)", "(d, 1, 1, 1, 1, 1, 1, 1, 2)", "computing in type 2"),
    "more uploaded than allocated": ("c_size_t(4 * count)", "c_size_t(4 * count + 4)", "were not allocated"),
    "download of a freed block": ("statuses.append(cuda.cuMemcpyDtoH", "cuda.cuMemFree_v2(to); statuses.append(cuda.cuMemcpyDtoH", "were not allocated"),
    "no context": ("cuda.cuCtxSetCurrent(context)", "cuda.cuCtxSetCurrent(None)", "no current context"),
    "unknown device": ("byref(context), 0)", "byref(context), 3)", "no device 3"),
}  # fmt: skip


def run_program(doubles: Doubles, text: str, tmp_path: Path) -> tuple[subprocess.CompletedProcess[str], str]:
    log = tmp_path / "doubles.log"
    search = f"{doubles.driver()}:{doubles.cudnn('9.10.2')}"
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={"LD_LIBRARY_PATH": search, "RTBUILD_DOUBLE_LOG": str(log)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done, log.read_text() if log.exists() else ""


def test_a_sound_program_is_not_refused(doubles: Doubles, tmp_path: Path) -> None:
    done, log = run_program(doubles, _SOUND, tmp_path)
    assert done.stdout == "[] [4.0, 6.0, 9.0]\n", done.stderr
    assert "refused" not in log


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_argument_is_refused(mistake: str, doubles: Doubles, tmp_path: Path) -> None:
    line, wrong, said = MISTAKES[mistake]
    assert _SOUND.count(line) == 1
    done, log = run_program(doubles, _SOUND.replace(line, wrong), tmp_path)
    assert any(row.startswith("refused") and said in row for row in log.splitlines()), (log, done.stderr)


def test_a_scalar_of_the_wrong_type_gives_a_wrong_answer(doubles: Doubles, tmp_path: Path) -> None:
    done, _ = run_program(
        doubles, _SOUND.replace("handle, byref(one)", "handle, byref(double_one)"), tmp_path
    )
    assert done.stdout == "[] [0.0]\n", done.stderr


def test_a_device_address_is_no_address_of_the_host(doubles: Doubles, tmp_path: Path) -> None:
    touch = _SOUND.replace("print([status", "ctypes.string_at(to.value, 1)\nprint([status")
    assert run_program(doubles, touch, tmp_path)[0].returncode == -11


_PLACES = """\
import ctypes, os, sys
sys.path.insert(0, sys.argv[1])
from builder.verify.cudnn_verify.measure.cuda import Driver
from builder.verify.cudnn_verify.measure.protocol import Ctx
from builder.verify.cudnn_verify.measure.suite_judge import place_of_address
driver = Driver(Ctx("places", {}, os.open(os.devnull, os.O_WRONLY)))
driver.call("cuInit", 0)
host = ctypes.create_string_buffer(64)
for card in (0, 1):
    driver.use(card)
    print(place_of_address(driver, driver.allocate(4096) + 64))
print(place_of_address(driver, ctypes.addressof(host)))
freed = driver.allocate(4096)
driver.call("cuMemFree_v2", freed)
print(place_of_address(driver, freed))
print(place_of_address(driver, 0), place_of_address(None, 64))
"""


def test_the_driver_says_on_which_card_a_result_lies(doubles: Doubles) -> None:
    """A silent CPU is seen by the address, whatever the framework says."""
    done = subprocess.run(
        [sys.executable, "-c", _PLACES, str(Path(__file__).resolve().parents[2])],
        env={"LD_LIBRARY_PATH": str(doubles.driver()), "RTBUILD_DOUBLE_DEVICES": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    on_first, on_second, *others = done.stdout.splitlines()
    assert (on_first, on_second) == (ON_CARD + "0", ON_CARD + "1")
    assert [line.partition(" (")[0] for line in others] == [
        "no memory of CUDA",
        "no memory of CUDA",
        "memory of the host memory of the host",
    ]


_ASK = """\
import ctypes, json, sys
from ctypes import byref, c_size_t, c_uint64
cuda = ctypes.CDLL(sys.argv[1])
text, number, pointer, size = ctypes.create_string_buffer(64), ctypes.c_int(), ctypes.c_void_p(), c_size_t()
calls = {
    "cuDeviceGetCount": (byref(number),),
    "cuDeviceGet": (byref(number), 0),
    "cuDeviceGetName": (text, 60, 0),
    "cuDeviceGetAttribute": (byref(number), 75, 0),
    "cuDeviceTotalMem_v2": (byref(size), 0),
    "cuDevicePrimaryCtxRetain": (byref(pointer), 0),
    "cuCtxSetCurrent": (None,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (byref(size), byref(size)),
    "cuMemAlloc_v2": (byref(pointer), c_size_t(64)),
    "cuMemFree_v2": (c_uint64(4096),),
    "cuPointerGetAttribute": (byref(number), 2, c_uint64(4096)),
    "cuMemcpyHtoD_v2": (c_uint64(4096), text, c_size_t(4)),
    "cuMemcpyDtoH_v2": (text, c_uint64(4096), c_size_t(4)),
}
def ask_all():
    return {name: getattr(cuda, name)(*arguments) for name, arguments in calls.items()}
def error_name(code):
    name = ctypes.c_char_p()
    return cuda.cuGetErrorName(code, byref(name)), (name.value or b"").decode()
found = {"before": ask_all(), "version without a place": cuda.cuDriverGetVersion(None)}
found["flags"], found["cuInit"] = cuda.cuInit(5), cuda.cuInit(0)
found["after"], found["version"] = ask_all(), cuda.cuDriverGetVersion(byref(number))
names = {code: error_name(code) for code in list(range(1100)) + [-1, 12345]}
found["names"] = {str(code): name for code, (result, name) in names.items() if result == 0}
found["results of unknown codes"] = sorted({result for result, name in names.values() if not name})
print(json.dumps(found))
"""


def without_a_device(library: Path) -> dict[str, object]:
    """What this libcuda says."""
    environment = {**os.environ, "RTBUILD_DOUBLE_DEVICES": "0"}
    done = subprocess.run(
        without_nodes(sys.executable, "-c", _ASK, library),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)


@pytest.mark.wheels
@pytest.mark.parametrize("branch", BRANCHES)
def test_the_fake_driver_answers_as_the_real_one_does_without_a_device(branch: str, doubles: Doubles) -> None:
    real = without_a_device(real_driver(branch) / "libcuda.so.1")
    cuda = {"470": "11.8", "535": "12.2"}[branch]
    fake = without_a_device(doubles.driver(cuda) / "libcuda.so.1")
    assert real["cuInit"] == 100
    newer, missing = (
        dict(sorted(a["names"].items() - b["names"].items())) for a, b in ((fake, real), (real, fake))
    )
    assert not missing, "codes of the real driver that its cuda.h lacks"
    # the header of 11.8 is younger than the driver of 11.4
    assert not newer or branch == "470", newer
    for found in (real, fake):
        del found["names"]
    assert fake == real


@pytest.mark.wheels
@pytest.mark.parametrize("branch", BRANCHES)
def test_the_real_driver_exports_what_the_fake_one_does(branch: str, doubles: Doubles) -> None:
    def exported(library: Path) -> set[str]:
        listing = subprocess.run(
            ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
        ).stdout
        return {line.split()[-1].partition("@")[0] for line in listing.splitlines()}

    fake = {name for name in exported(doubles.driver() / "libcuda.so.1") if name.startswith("cu")}
    assert len(fake) > 15
    assert fake <= exported(real_driver(branch) / "libcuda.so.1")


@pytest.mark.wheels
@pytest.mark.parametrize("release", releases("cudnn"))
def test_every_convolution_of_every_release(release: str, scene: Scene) -> None:
    """The whole probe on the doubles of one release: no argument is refused, and nothing is found fault with."""
    scene.cudnn(release)
    scene.driver()
    outcome = scene.run()
    known = ("broken", "cudnn-known-bad") if release == "9.10.0" else ("unverified", None)
    found = (outcome.report["verdict"], outcome.report["cause"])
    assert found == known, outcome.report["summary"]
    assert outcome.report["test_double"] is True
    rows = next(check for check in outcome.report["checks"] if check["id"] == "C07")["evidence"]["rows"]
    done = {(row["direction"], row["format"], row["algorithm"]) for row in rows}
    assert len(done) == 3 * 2 * 2
    calls = [line for line in outcome.doubles if line.startswith("called cudnnConvolution")]
    assert len([line for line in calls if "#" not in line]) == 2 * len(done)


@pytest.mark.wheels
@pytest.mark.parametrize("branch", BRANCHES)
def test_nvml_and_nvidia_smi_without_a_device(branch: str) -> None:
    """What their users see: NVML's 9 (DRIVER_NOT_LOADED), and nvidia-smi's words with the same exit status."""
    folder = real_driver(branch)
    ask = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).nvmlInit_v2())"
    nvml = without_nodes(sys.executable, "-c", ask, folder / "libnvidia-ml.so.1")
    assert subprocess.run(nvml, capture_output=True, text=True, check=True).stdout == "9\n"
    smi = subprocess.run(
        without_nodes(folder / "nvidia-smi"),
        env={"LD_LIBRARY_PATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert smi.returncode == 9
    assert "couldn't communicate with the NVIDIA driver" in smi.stdout
    assert not list(Path("/dev").glob("nvidia*"))
