"""Every prototype, number and struct that the probe uses, against NVIDIA's headers of every release."""

from __future__ import annotations

import ctypes
import subprocess
from typing import TYPE_CHECKING

import pytest
from abi import declared, enumerators, measured
from nvidia_headers import cudnn_include, headers, releases

from builder.verify.cudnn_verify.measure import cuda, runtime, suite_judge

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.wheels
PERF = ("algo", "status", "time", "memory", "determinism", "mathType", "reserved")
DIRECTIONS = {"Forward": "FWD", "BackwardData": "BWD_DATA", "BackwardFilter": "BWD_FILTER"}
PERFS = ("Fwd", "BwdData", "BwdFilter")


def as_measured(prototype: str) -> str:
    """A prototype of the probe in the letters that C can tell apart: a string is a pointer."""
    return prototype.replace("s", "p").replace("u", "n")


def held(prototypes: dict[str, str], functions: dict[str, object]) -> None:
    for name, prototype in prototypes.items():
        if name in functions:
            assert functions[name] == as_measured(prototype), name


@pytest.mark.parametrize("release", releases("cudnn"))
def test_cudnn(release: str, tmp_path: Path) -> None:
    include = cudnn_include(release)
    major = int(release.partition(".")[0])
    checks = {f"cudnn{part}VersionCheck": "i()" for part in cuda.VERSION_CHECKS[major]}
    prototypes = {**cuda.CUDNN_PROTOTYPES, **checks}
    functions = declared("cudnn.h", include, tmp_path, prototypes)
    statuses = enumerators(include[0], r"CUDNN_STATUS_[A-Z_0-9]+")
    algorithms = enumerators(include[0], r"CUDNN_CONVOLUTION_(?:FWD|BWD_DATA|BWD_FILTER)_ALGO_\w+")
    single = [
        "CUDNN_VERSION",
        "CUDNN_DATA_FLOAT",
        "CUDNN_DATA_HALF",
        "CUDNN_TENSOR_NCHW",
        "CUDNN_CROSS_CORRELATION",
    ]
    structs = {f"cudnnConvolution{short}AlgoPerf_t": PERF for short in PERFS}
    found = measured(
        "cudnn.h",
        include,
        tmp_path,
        functions=functions,
        numbers=[*single, *statuses, *algorithms],
        structs=structs,
    )
    numbers = found["numbers"]
    assert cuda.cudnn_tuple(numbers["CUDNN_VERSION"]) == tuple(int(part) for part in release.split("."))
    assert (numbers["CUDNN_DATA_FLOAT"], numbers["CUDNN_DATA_HALF"]) == (cuda.FLOAT, cuda.HALF)
    assert (numbers["CUDNN_TENSOR_NCHW"], numbers["CUDNN_CROSS_CORRELATION"]) == (
        cuda._NCHW,
        cuda._CROSS_CORRELATION,
    )
    absent = {"cudnnGetLastErrorString"} if major < 9 else set()
    absent |= {"cudnnGetMaxDeviceVersion"} if release == "8.5.0" else set()
    if (9,) <= tuple(int(part) for part in release.split(".")) < (9, 22):
        absent |= {"cudnnSubquadraticOpsVersionCheck"}
    assert set(prototypes) - set(functions) == absent
    held(prototypes, found["functions"])
    _statuses(major, numbers, statuses)
    _algorithms(numbers, algorithms)
    perf = cuda.perf_type()
    for name, layout in found["structs"].items():
        mine = [(getattr(perf, field).offset, getattr(perf, field).size) for field, _ in perf._fields_]
        assert [(offset, size) for _, offset, size in layout["fields"]] == mine, name
        assert layout["size"] == ctypes.sizeof(perf)


def _statuses(major: int, numbers: dict[str, int], statuses: list[str]) -> None:
    real = {name.removeprefix("CUDNN_STATUS_"): numbers[name] for name in statuses}
    assert cuda.VERSION_MISMATCH[major] in {real.get(name) for name in real if "VERSION_MISMATCH" in name}
    if major >= 9:
        lost = {word for word, _ in cuda._STATUS_CAUSES if not any(word in name for name in real)}
        assert lost <= {"SUBLIBRARY_LOADING_FAILED"}, "1008 came with 9.2"
    for name, number in real.items():
        error = cuda.CudnnError("a call", number, "CUDNN_STATUS_" + name, "")
        assert error.unsupported == (number // 1000 == 3 if major >= 9 else number == 9) or name in {
            "ARCH_MISMATCH",  # old names of numbers among the new: the probe never gives them
            "RUNTIME_PREREQUISITE_MISSING",
        }


def _algorithms(numbers: dict[str, int], algorithms: list[str]) -> None:
    for direction, short in DIRECTIONS.items():
        head = f"CUDNN_CONVOLUTION_{short}_ALGO_"
        named = {name.removeprefix(head): numbers[name] for name in algorithms if name.startswith(head)}
        assert named.pop("COUNT") == len(cuda.ALGORITHMS[direction]) == len(named)
        for name, number in named.items():
            kind = next((k for k in ("fft", "winograd") if k in name.lower()), "direct")
            assert cuda.ALGORITHMS[direction][number] == kind, name


@pytest.mark.parametrize("release", releases("driver"))
def test_driver(release: str, tmp_path: Path) -> None:
    include = (headers("driver", release),)
    functions = declared("cuda.h", include, tmp_path, cuda.DRIVER_PROTOTYPES)
    assert set(functions) == set(cuda.DRIVER_PROTOTYPES)
    errors = enumerators(include[0], r"CUDA_(?:SUCCESS|ERROR_\w+)")
    attributes = {
        "CU_DEVICE_ATTRIBUTE_COMPUTE_MODE": cuda.ATTRIBUTE_COMPUTE_MODE,
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": cuda.ATTRIBUTE_MAJOR,
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": cuda.ATTRIBUTE_MINOR,
        "CU_COMPUTEMODE_PROHIBITED": 2,
        "CU_COMPUTEMODE_EXCLUSIVE_PROCESS": 3,
    }
    found = measured(
        "cuda.h", include, tmp_path, functions=functions, numbers=[*errors, *attributes], structs={}
    )
    held(cuda.DRIVER_PROTOTYPES, found["functions"])
    numbers = found["numbers"]
    assert {name: numbers[name] for name in attributes} == attributes
    assert {name: numbers.get(name) for name in (name for name, _ in cuda.RESULTS.values())} == {
        name: number for number, (name, _) in cuda.RESULTS.items()
    }
    assert set(cuda.RESULT_CAUSES) <= set(numbers.values())
    assert numbers["CUDA_ERROR_OUT_OF_MEMORY"] == cuda.OUT_OF_MEMORY


@pytest.mark.parametrize("release", releases("nvrtc"))
def test_nvrtc(release: str, tmp_path: Path) -> None:
    include = (headers("nvrtc", release),)
    functions = declared("nvrtc.h", include, tmp_path, runtime.NVRTC_PROTOTYPES)
    assert set(functions) == set(runtime.NVRTC_PROTOTYPES)
    found = measured("nvrtc.h", include, tmp_path, functions=functions, numbers=["NVRTC_SUCCESS"], structs={})
    held(runtime.NVRTC_PROTOTYPES, found["functions"])
    assert found["numbers"] == {"NVRTC_SUCCESS": 0}


NCCL = """
#include <nccl.h>
ncclResult_t ncclGetVersion(int *version) {
    if (!version) return ncclInvalidArgument;
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}
"""


@pytest.mark.parametrize("release", releases("nccl"))
def test_the_release_of_nccl_is_read_as_its_header_writes_it(
    release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suite comm reads a double that is compiled from the header; its half types play no part."""
    for name in ("fp16", "bf16", "fp8"):
        (tmp_path / f"cuda_{name}.h").touch()
    source, library = tmp_path / "nccl.c", tmp_path / "libnccl.so.2"
    source.write_text(NCCL)
    include = (headers("nccl", release), headers("runtime", "12.9"), headers("crt", "12.9"), tmp_path)
    assert measured(
        "nccl.h",
        include,
        tmp_path,
        functions=declared("nccl.h", include, tmp_path, ["ncclGetVersion"]),
        numbers=["ncclSuccess", "ncclInvalidArgument"],
        structs={},
    ) == {
        "functions": {"ncclGetVersion": "i(p)"},
        "numbers": {"ncclSuccess": 0, "ncclInvalidArgument": 4},
        "structs": {},
    }
    command = ["gcc", "-shared", "-fPIC", *(f"-I{path}" for path in include), "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    monkeypatch.setattr(suite_judge, "mapped_paths", lambda: {str(library)})
    for version, sound in ((release, True), (f"{release}.post1", True), ("2.1.15", False)):
        wheel = {"nvidia-nccl-cu12": {"name": "nvidia-nccl-cu12", "version": version}}
        (row,), reason = suite_judge.version_of_nccl(wheel, {})
        assert (row["found"] == row["wanted"], reason) == (sound, None)
