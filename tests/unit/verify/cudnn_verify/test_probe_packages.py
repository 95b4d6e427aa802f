"""Pins, owners, and what a dist-info says; expectations."""

import base64
import hashlib
import json
import os
import sys
from types import SimpleNamespace

import pytest
from packaging.markers import Marker
from pages import diagnose_score
from probe_elf import write_elf

from builder.verify.cudnn_verify.common.asking import find_apart
from builder.verify.cudnn_verify.common.distributions import read_distributions, requirement
from builder.verify.cudnn_verify.common.versions import satisfies
from builder.verify.cudnn_verify.measure import contents
from builder.verify.cudnn_verify.measure.expectation import find_differences, read_expectation
from builder.verify.cudnn_verify.measure.files import files_stage
from builder.verify.cudnn_verify.measure.library_files import Loader
from builder.verify.cudnn_verify.measure.machine_facts import MachineFacts
from builder.verify.cudnn_verify.measure.packages import check_pins, marker_applies, packages_stage
from builder.verify.cudnn_verify.measure.protocol import UsageError
from builder.verify.cudnn_verify.measure.runtime import needed_libraries

INSTALLED = 1_700_000_000
"""Seconds since 1970: what a test writes later is newer."""


def install(folder, name, version, *, requires=(), files=None):
    """A dist-info as pip writes it; ``files``: relative path -> content, written and listed in RECORD."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = [
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {text}" for text in requires),
        "",
        "Words",
    ]
    (info / "METADATA").write_text("\n".join(lines))
    rows = []
    for path, content in (files or {}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(content)}")
    (info / "RECORD").write_text("\n".join(rows) + "\n")
    for path in (info / "RECORD", *(folder / path for path in files or {})):
        os.utime(path, (INSTALLED, INSTALLED))


@pytest.mark.parametrize(
    ("version", "pins", "met"),
    [
        ("9.1.0.70", [("==", "9.1.0.70")], True),
        ("9.10.2.21", [("==", "9.1.0.70")], False),
        ("9.10.2", [(">=", "9.1"), ("<", "10")], True),
        ("9.1", [("==", "9.1.0")], True),
        ("9.1.5", [("==", "9.1.*")], True),
        ("9.2", [("~=", "9.1")], True),
        ("10.0", [("~=", "9.1")], False),
        ("9.10.0", [("!=", "9.10.0")], False),
        ("8.9", [(">", "8.9")], False),
        ("8.9", [("<=", "8.9.0")], True),
        ("8.9", [("===", "8.9")], True),
        ("9", [("~=", "9.0.0")], True),
    ],
)
def test_pins(version, pins, met):
    assert satisfies(version, pins) is met


@pytest.mark.parametrize("extra", ["", "all", "nvcc"])
@pytest.mark.parametrize(
    "marker",
    [
        "sys_platform == 'linux'",
        "'linux' == sys_platform",
        "sys_platform != 'linux' or extra == 'all'",
        "(sys_platform == 'linux' and os_name == 'posix' or sys_platform == 'win32') and extra == 'all'",
        "extra == 'all' and (sys_platform == 'win32' or (os_name == 'posix' and sys_platform == 'linux'))",
        "sys_platform == 'linux' or sys_platform == 'win32' and extra == 'all'",
        "python_version >= '3.6' and python_version < '3.99' and extra == \"nvcc\"",
        "python_version<'3' or (extra=='nvcc')",
        "(((extra == 'all')))",
        " python_version~='2.6' or extra == 'all'",
    ],
)
def test_a_marker_holds_as_packaging_says(marker, extra):
    assert marker_applies(marker, [extra]) is Marker(marker).evaluate({"extra": extra})


@pytest.mark.parametrize(
    "marker",
    [
        "",
        "new_variable == 'x'",
        "python_variant < '3'",
        "python_version >= 99",
        "(" * 5000,
        "extra == 'all",
        "platform_release in '5 6'",
    ],
)
def test_a_marker_that_cannot_be_read_holds(marker):
    assert marker_applies(marker) is True


def test_the_extras_that_another_package_asks_for_decide(recorder, tmp_path):
    """torch 2.15 asks for cuda-toolkit[cudart], whose metadata names every package of CUDA in brackets."""
    here = "(sys_platform == 'linux' and os_name == 'posix' or sys_platform == 'win32')"
    packages = ["cuda-runtime", "cublas", "cufft", "cuda-nvcc"]
    lines = [f"nvidia-{name}==13.2.86.*; {here} and extra == 'all'" for name in packages]
    lines.append(f"nvidia-cuda-runtime==13.2.86.*; {here} and extra == 'cudart'")
    install(tmp_path, "torch", "2.15.0", requires=["cuda-toolkit[cudart]==13.2.2"])
    install(tmp_path, "cuda-toolkit", "13.2.2", requires=lines)
    for name in packages[:3]:
        install(tmp_path, f"nvidia-{name}", "13.2.86")
    ctx = recorder()
    check_pins(ctx, read_distributions([str(tmp_path)]))
    assert ctx.found("P01")["evidence"] == {"missed": [], "allowed": [], "not_installed": [], "lost": []}


def test_a_library_of_a_wheel_whose_name_has_no_suffix_is_looked_for_elsewhere(
    recorder, tmp_path, monkeypatch
):
    """Of CUDA 13 the requirement's version alone tells which libcublas.so.N would serve."""
    install(tmp_path / "site", "thing", "1.0", requires=["nvidia-cublas==13.4.1.3"])
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "lib"))
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libcublas.so.12").touch()
    found = []
    for name in ("libcublas.so.12", "libcublas.so.13"):
        (tmp_path / "lib" / name).touch()
        ctx = recorder()
        check_pins(ctx, read_distributions([str(tmp_path / "site")]))
        found.append(len(ctx.found("P01")["evidence"]["lost"]))
    assert found == [1, 0]


@pytest.mark.parametrize(
    ("installed", "stubs"),
    [
        ({"nvidia-npp-cu13": "0.0.0a0"}, {"nvidia-npp-cu13": "nvidia-npp"}),
        ({"nvidia-npp-cu13": "0.0.1", "nvidia-npp": "13.1.2.81"}, {}),
        ({"nvidia-npp-cu12": "12.4.1.87"}, {}),
        ({"nvidia-cudnn-cu13": "9.26.0.51"}, {}),
        ({"nvidia-nvvm-cu13": "0.0.1"}, {}),  # which library would be missing is not known
    ],
)
def test_an_empty_stub_of_nvidia_s_counts_where_the_package_is_not(recorder, tmp_path, installed, stubs):
    for name, version in installed.items():
        install(tmp_path, name, version)
    ctx = recorder()
    check_pins(ctx, read_distributions([str(tmp_path)]))
    found = ctx.found("P01")
    assert found["cause"] == ("package-name-retired" if stubs else None)
    assert found["evidence"].get("packages", []) == sorted(stubs)


@pytest.mark.parametrize(
    ("cuda", "asked", "opened"),
    [
        (12, "nvidia-cublas-cu12", ["libcublas.so.12", "libcublasLt.so.12"]),
        (13, "nvidia-cublas", ["libcublas.so.13", "libcublasLt.so.13"]),
        (13, "nvidia-cuda-runtime", []),
    ],
)
def test_the_cublas_that_cudnn_opens(tmp_path, cuda, asked, opened):
    install(tmp_path, f"nvidia-cudnn-cu{cuda}", "9.26.0.51", requires=[asked])
    folder = tmp_path / "nvidia" / "cudnn" / "lib"
    write_elf(folder / "libcudnn.so.9", soname="libcudnn.so.9")
    packages = read_distributions([str(tmp_path)])
    facts = {"candidates": [{"path": str(folder / "libcudnn.so.9")}], "packages": packages}
    found = [name for name, _, who in needed_libraries(facts, Loader()) if who == f"nvidia-cudnn-cu{cuda}"]
    assert found == opened


@pytest.mark.parametrize(
    ("wheels", "majors"),
    [
        ({"nvidia-cuda-runtime": "13.2.86", "nvidia-cufft": "12.2.0.57"}, {13}),
        ({"nvidia-cublas-cu12": "12.9.1.4"}, {12}),
        ({"nvidia-cufft": "12.2.0.57"}, set()),
        ({"cuda-toolkit": "13.2.2"}, {13}),
    ],
)
def test_the_cuda_of_wheels_by_their_names_or_versions(tmp_path, wheels, majors):
    for name, version in wheels.items():
        install(tmp_path, name, version)
    assert MachineFacts({"packages": read_distributions([str(tmp_path)])}).cuda_majors == majors


def test_an_extra_of_a_packages_own_tests_explains_no_import_that_fails(recorder, tmp_path):
    """jax 0.10.2 asks for jaxlib, and by its extra minimum-jaxlib for the oldest one that it runs with."""
    lines = ["jaxlib<=0.10.2,>=0.10.1", "jaxlib==0.10.1; extra == 'minimum-jaxlib'"]
    install(tmp_path, "jax", "0.10.2", requires=[*lines, "jax-cuda12-plugin==0.10.2; extra == 'cuda12'"])
    install(tmp_path, "jaxlib", "0.10.2")
    install(tmp_path, "jax-cuda12-plugin", "0.6.2")
    ctx = recorder()
    check_pins(ctx, read_distributions([str(tmp_path)]))
    (unmet,) = [line["value"] for line in ctx.lines if line.get("key") == "unmet"]
    assert [entry["name"] for entry in unmet] == ["jax-cuda12-plugin"]


def test_a_requirement_line():
    line = "nvidia-cudnn-cu12 (==8.9.4.25) ; extra == 'and-cuda'"
    assert requirement(line) == {
        "name": "nvidia-cudnn-cu12",
        "extras": [],
        "pins": [("==", "8.9.4.25")],
        "optional": True,
        "marker": "extra == 'and-cuda'",
    }
    assert requirement("numpy[extra]>=1.2,<2")["pins"] == [(">=", "1.2"), ("<", "2")]
    assert requirement("torch @ file:///x.whl")["pins"] == []
    assert requirement("") is None


def test_distributions_are_read_and_broken_ones_survived(tmp_path):
    install(tmp_path / "a", "Nvidia.cuDNN-cu12", "9.1.0.70", requires=["nvidia-cublas-cu12"])
    install(tmp_path / "b", "nvidia-cudnn-cu12", "8.0")
    install(tmp_path / "a", "~umpy", "2.0")  # pip was killed while it replaced it
    (tmp_path / "a/empty-1.0.dist-info").mkdir()
    (tmp_path / "a/junk-2.0.dist-info").mkdir()
    (tmp_path / "a/junk-2.0.dist-info/METADATA").write_bytes(b"\xff\xfe\0\0")
    found = read_distributions([str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "none")])
    assert found["nvidia-cudnn-cu12"]["version"] == "9.1.0.70"
    assert found["nvidia-cudnn-cu12"]["requires"] == ["nvidia-cublas-cu12"]
    assert (found["empty"]["version"], found["junk"]["version"]) == ("1.0", "2.0")
    assert sorted(found) == ["empty", "junk", "nvidia-cudnn-cu12"]


@pytest.fixture
def p02(recorder, monkeypatch):
    """Run the stage over one folder and give back its check of owners."""

    def run(folder):
        monkeypatch.setattr(sys, "path", [str(folder)])
        ctx = recorder()
        packages_stage(ctx)
        return ctx.found("P02")

    return run


def test_two_packages_that_own_the_same_files(p02, tmp_path):
    path = "nvidia/cudnn/lib/libcudnn_ops.so.9"
    install(tmp_path, "nvidia-cudnn-cu12", "9.10.2.21", files={path: b"twelve"})
    install(tmp_path, "nvidia-cudnn-cu11", "9.10.2.21", files={path: b"eleven and more"})
    check = p02(tmp_path)
    assert (check["outcome"], check["cause"]) == ("failed", "package-overwritten")
    assert "belongs to nvidia-cudnn-cu12 but is the file of nvidia-cudnn-cu11" in check["summary"]


def test_equal_sizes_are_told_apart_by_their_hash(p02, tmp_path):
    path = "nvidia/cudnn/lib/libcudnn_ops.so.9"
    install(tmp_path, "nvidia-cudnn-cu12", "9.10.2.21", files={path: b"twelve"})
    install(tmp_path, "nvidia-cudnn-cu11", "9.10.2.21", files={path: b"eleven"})
    assert p02(tmp_path)["cause"] == "package-overwritten"


def test_the_same_file_twice_and_files_as_installed_are_sound(p02, tmp_path):
    path, shim = "nvidia/cudnn/lib/libcudnn.so.9", write_elf(tmp_path / "shim").read_bytes()
    install(tmp_path, "nvidia-cudnn-cu12", "9.10.2.21", files={path: shim})
    install(tmp_path, "nvidia-cudnn-cu11", "9.10.2.21", files={path: shim})
    check = p02(tmp_path)
    assert check["outcome"] == "passed"
    assert "two owners" in check["note"]


@pytest.mark.parametrize("left", ["", "Version: 2.21.5\n", "Name: nvidia-nccl-cu12\n"])
def test_metadata_that_names_no_package_is_a_fault_though_its_folder_does(p02, tmp_path, left):
    """An interrupted copy leaves it empty: importlib.metadata.version is None then."""
    install(tmp_path, "nvidia-nccl-cu12", "2.21.5", files={"nvidia/nccl/a.txt": b"words"})
    assert p02(tmp_path)["outcome"] == "passed"
    (tmp_path / "nvidia_nccl_cu12-2.21.5.dist-info" / "METADATA").write_text(left)
    check = p02(tmp_path)
    assert (check["outcome"], check["cause"]) == ("failed", "package-overwritten")
    assert check["evidence"]["packages"] == ["nvidia-nccl-cu12"]


SOURCE = b"def answer():\n    return (\n        42\n    )\n"


@pytest.mark.parametrize("path", ["triton/__init__.py", "triton/language/core.py", "triton/runtime/jit.py"])
@pytest.mark.parametrize("left", [None, b"", SOURCE[:30]], ids=["gone", "empty", "cut"])
def test_a_python_file_that_is_gone_empty_or_cut_is_named(p02, tmp_path, path, left):
    module = {"triton/__init__.py": SOURCE, "triton/language/__init__.py": SOURCE, path: SOURCE}
    install(tmp_path, "triton", "3.5.1", files=module)
    assert p02(tmp_path)["outcome"] == "passed"
    (tmp_path / path).unlink() if left is None else (tmp_path / path).write_bytes(left)
    check = p02(tmp_path)
    assert (check["outcome"], check["cause"]) == ("failed", "package-overwritten")
    assert check["evidence"]["packages"] == ["triton"]


def test_a_python_file_that_was_patched_stripped_or_compiled_is_sound(p02, tmp_path):
    names = ("triton/__init__.py", "triton/a.py", "triton/b.py", "triton/testing/c.py", "triton/empty.py")
    install(tmp_path, "triton", "3.5.1", files={name: SOURCE * ("empty" not in name) for name in names})
    (tmp_path / "triton/a.py").write_text("answer = 42\n")
    (tmp_path / "triton/b.py").unlink()
    (tmp_path / "triton/b.pyc").write_bytes(b"compiled in its place")
    (tmp_path / "triton/testing/c.py").unlink()
    (tmp_path / "triton/empty.py").unlink()
    assert p02(tmp_path)["outcome"] == "passed"


@pytest.mark.parametrize(
    ("package", "version", "numpy", "misfit"),
    [
        ("onnxruntime-gpu", "1.18.1", "2.2.6", True),
        ("onnxruntime-gpu", "1.19.0", "2.2.6", False),
        ("torch", "2.2.2+cu121", "2.0.0", True),
        ("torch", "2.3.0", "2.0.0", False),
        ("tensorflow", "2.17.1", "2.0.2", True),
        ("jaxlib", "0.4.25", "2.0.0", True),
        ("jaxlib", "0.4.25", "1.26.4", False),
    ],
)
def test_a_numpy_of_another_abi_is_named_beside_other_faults(
    recorder, tmp_path, package, version, numpy, misfit
):
    wanted = ["nvidia-cudnn-cu12==9.1.0.70"]
    install(tmp_path, package, version, requires=wanted)
    install(tmp_path, "numpy", numpy)
    install(tmp_path, "nvidia-cudnn-cu12", "9.0.0.312")
    ctx = recorder()
    check_pins(ctx, read_distributions([str(tmp_path)]))
    check = ctx.found("P01")
    assert "needs nvidia-cudnn-cu12==9.1.0.70, installed is 9.0.0.312" in check["summary"]
    assert (f"{package} {version} needs numpy<2, installed is {numpy}" in check["summary"]) == misfit


def test_a_library_of_another_machine_and_the_very_size_is_no_other_packages_file(p02, tmp_path):
    path = "nvidia/cuda_runtime/lib/libcudart.so.12"
    content = write_elf(tmp_path / "so").read_bytes()
    install(tmp_path, "nvidia-cuda-runtime-cu12", "12.8.90", files={path: content})
    (tmp_path / path).write_bytes(content[:18] + b"\xf3" + content[19:])  # RISC-V
    check = p02(tmp_path)
    assert check["cause"] == "package-overwritten"
    assert "is the file of" not in check["summary"]
    assert "is damaged: " in check["summary"]


@pytest.mark.parametrize(("there", "outcome"), [(True, "passed"), (False, "failed")])
def test_what_pytorch_pins_and_is_not_installed_is_missed(recorder, tmp_path, there, outcome):
    install(tmp_path, "torch", "2.9.1", requires=["triton==3.5.1", "numpy; extra == 'x'", "networkx"])
    if there:
        install(tmp_path, "triton", "3.5.1")
    ctx = recorder()
    check_pins(ctx, read_distributions([str(tmp_path)]))
    check = ctx.found("P01")
    assert check["outcome"] == outcome
    assert there or "torch 2.9.1 needs triton==3.5.1, which is not installed" in check["summary"]
    assert there or check["evidence"]["weak"]


def test_a_file_of_a_package_that_nobody_watches_is_told_from_damage(p02, tmp_path):
    """As tensorflow-cpu over tensorflow, whose files are of other sizes and contents."""
    path = "nvidia/nccl/lib/libnccl.so.2"
    install(tmp_path, "nvidia-nccl-cu12", "2.21.5", files={path: write_elf(tmp_path / "so").read_bytes()})
    install(tmp_path, "nccl-of-others", "1.0", files={path: b"no library of NVIDIA's"})
    check = p02(tmp_path)
    assert check["summary"].endswith("belongs to nvidia-nccl-cu12 but is the file of nccl-of-others")
    assert check["evidence"]["packages"] == ["nvidia-nccl-cu12"]
    (tmp_path / path).write_bytes(b"NO LIBRARY OF NVIDIA'S")
    assert "nccl-of-others" not in p02(tmp_path)["summary"]


LIBRARIES = [f"nvidia/cudnn/lib/{name}.so.9" for name in ("libcudnn", "libcudnn_ops", "libcudnn_cnn")]


@pytest.fixture
def hashed(monkeypatch):
    """The names of the files whose hash was computed."""
    names, compute = [], contents.owners_by_hash

    def counted(path, *rest):
        names.append(path.rpartition("/")[2])
        return compute(path, *rest)

    monkeypatch.setattr(contents, "owners_by_hash", counted)
    return names


def cudnn(folder, sound):
    install(folder, "nvidia-cudnn-cu12", "9.10.2.21", files=dict.fromkeys(LIBRARIES, sound))
    return folder / LIBRARIES[1]


def test_only_what_changed_since_it_was_installed_is_hashed(p02, hashed, tmp_path):
    sound = write_elf(tmp_path / "sound").read_bytes()
    path = cudnn(tmp_path, sound)
    assert p02(tmp_path)["outcome"] == "passed"
    assert hashed == []
    path.write_bytes(sound[:-1] + b"?")
    assert p02(tmp_path)["cause"] == "package-overwritten"
    assert set(hashed) == {"libcudnn_ops.so.9"}


def test_a_report_names_what_was_compared_by_size_alone(p02, recorder, hashed, tmp_path, monkeypatch):
    cudnn(tmp_path, write_elf(tmp_path / "sound").read_bytes())
    assert p02(tmp_path)["evidence"]["by_size"] == sorted(str(tmp_path / name) for name in LIBRARIES)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    ctx = recorder(thorough=True)
    packages_stage(ctx)
    assert ctx.found("P02")["evidence"]["by_size"] == []
    assert len(hashed) == len(LIBRARIES)


@pytest.mark.parametrize(
    ("written", "changed", "links", "expected"),
    [
        (0, 0, 1, contents.AS_INSTALLED),
        (60, 60, 1, contents.WRITTEN),
        (60, 60, 2, contents.WRITTEN),
        (-60, 60, 1, contents.TOUCHED),
        (-60, 60, 2, contents.AS_INSTALLED),
    ],
    ids=["with RECORD", "written", "written and linked", "touched", "linked, as uv does"],
)
def test_the_times_of_a_file_say_whether_it_changed(written, changed, links, expected):
    record = SimpleNamespace(st_mtime=INSTALLED, st_ctime=INSTALLED)
    about = SimpleNamespace(st_mtime=INSTALLED + written, st_ctime=INSTALLED + changed, st_nlink=links)
    assert contents.change_since_record(about, [("torch", {"record": record})]) == expected


@pytest.mark.parametrize(
    ("change", "stale", "outcome"),
    [
        (contents.AS_INSTALLED, False, "passed"),
        (contents.TOUCHED, True, "passed"),
        (contents.TOUCHED, False, "failed"),
        (contents.WRITTEN, True, "failed"),
    ],
)
def test_a_file_that_its_author_changed_after_record_was_written(
    p02, tmp_path, monkeypatch, change, stale, outcome
):
    """As libtorch_cpu.so of PyTorch 1.9.1, which was stripped: it is as pip installs it."""
    sound = write_elf(tmp_path / "so").read_bytes()
    install(tmp_path, "torch", "1.9.1", files={"torch/lib/libtorch_cpu.so": sound + b"symbols"})
    (tmp_path / "torch/__init__.py").write_bytes(b"")
    info = tmp_path / "torch-1.9.1.dist-info"
    size = (info / "METADATA").stat().st_size + 6 * stale  # "+cu102" in its version
    with (info / "RECORD").open("a") as record:
        record.write(f"{info.name}/METADATA,sha256=abc,{size}\n")
    (tmp_path / "torch/lib/libtorch_cpu.so").write_bytes(sound)
    monkeypatch.setattr(contents, "change_since_record", lambda *_: change)
    check = p02(tmp_path)
    assert (check["outcome"], "after RECORD was written" in (check["note"] or "")) == (
        outcome,
        outcome == "passed",
    )
    assert len(check["evidence"]["edited"]) == (outcome == "passed")
    (tmp_path / "torch/lib/libtorch_cpu.so").write_bytes(sound[:-9])
    assert p02(tmp_path)["cause"] == "package-overwritten"


def test_a_file_of_another_package_is_none_that_its_author_changed(p02, tmp_path, monkeypatch):
    path = "nvidia/nccl/lib/libnccl.so.2"
    install(tmp_path, "nvidia-nccl-cu12", "2.21.5", files={path: write_elf(tmp_path / "so").read_bytes()})
    other = write_elf(tmp_path / "so").read_bytes() + b"of others"
    install(tmp_path, "nccl-of-others", "1.0", files={path: other})
    monkeypatch.setattr(contents, "change_since_record", lambda *_: contents.AS_INSTALLED)
    assert p02(tmp_path)["summary"].endswith("belongs to nvidia-nccl-cu12 but is the file of nccl-of-others")


def test_a_whole_package_for_another_machine_is_not_damaged(p02, tmp_path):
    """``pip install --target vendor --platform manylinux_2_28_aarch64``: the import says what is wrong."""
    library = write_elf(tmp_path / "other", machine=8)
    install(tmp_path, "numpy", "2.4.6", files={"numpy.libs/libgfortran.so.5": library.read_bytes()})
    assert p02(tmp_path)["outcome"] == "passed"
    data = bytearray(library.read_bytes())
    data[-1] ^= 1
    (tmp_path / "numpy.libs/libgfortran.so.5").write_bytes(data)
    assert p02(tmp_path)["cause"] == "package-overwritten"


@pytest.mark.parametrize(
    ("name", "lost"),
    [("torch", True), ("onnxruntime-gpu", True), ("cupy-cuda12x", True), ("torchvision", False)],
)
def test_a_framework_that_is_listed_and_cannot_be_imported(p02, tmp_path, name, lost):
    """A folder without __init__.py is a namespace to Python: no stage would ask the framework anything."""
    (tmp_path / "torch").mkdir()
    install(tmp_path, name, "2.6.0")
    assert (p02(tmp_path)["cause"] == "package-overwritten") is lost


def test_sizes_are_not_compared_for_what_conda_installed(p02, tmp_path):
    """conda writes new run paths into the libraries after RECORD was made."""
    install(tmp_path, "nvidia-cudnn-cu12", "9.1.0", files={"nvidia/cudnn/lib/libcudnn.so.9": b"as built"})
    (tmp_path / "nvidia/cudnn/lib/libcudnn.so.9").write_bytes(b"with another run path")
    assert p02(tmp_path)["outcome"] == "failed"
    (tmp_path / "nvidia_cudnn_cu12-9.1.0.dist-info/INSTALLER").write_text("conda\n")
    assert p02(tmp_path)["outcome"] == "passed"


def test_a_package_whose_files_are_gone(p02, tmp_path):
    path = "nvidia/cudnn/lib/libcudnn.so.9"
    install(tmp_path, "nvidia-cudnn-cu12", "9.10.2.21", files={path: b"shim"})
    (tmp_path / path).unlink()
    check = p02(tmp_path)
    assert (check["outcome"], check["cause"]) == ("failed", "package-overwritten")
    assert "its libraries are gone" in check["summary"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the expectation"),
        ("{", "is no JSON document"),
        ("[]", "is no JSON object"),
        ('{"schema": 2}', "has schema 2, not 1"),
        ('{"schema": 1, "cudn": "9"}', "has an unknown key: cudn"),
        ('{"schema": 1, "frameworks": ["torch"]}', "frameworks is no JSON object"),
    ],
)
def test_an_expectation_that_cannot_be_used(tmp_path, content, message):
    path = tmp_path / "expect.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=message):
        read_expectation(str(path))


def test_what_was_asked_and_what_was_found(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VERSION", raising=False)
    expect = {
        "schema": 1,
        "cell": "tf",
        "python": "3.9",
        "frameworks": {"tensorflow": "2.8.4", "torch": "2.6.0"},
        "cuda": {"provider": "wheels", "version": "11.8"},
        "cudnn": "8.6.0",
        "packages": {"NumPy": "1.23.5", "protobuf": "3.19.6"},
    }
    path = tmp_path / "expect.json"
    path.write_text(json.dumps(expect))
    facts = {
        "python": {"version": "3.9.18"},
        "packages": {
            "tensorflow": {"version": "2.8.4"},
            "torch": {"version": "2.6.0+cu124"},
            "numpy": {"version": "1.23.4"},
            "nvidia-cuda-runtime-cu11": {"version": "11.8.89"},
        },
        "raw": [{"version": "8.6.0"}],
    }
    assert find_differences(read_expectation(str(path)), facts) == [
        {"what": "package NumPy", "asked": "1.23.5", "found": "1.23.4"},
        {"what": "package protobuf", "asked": "3.19.6", "found": "nothing"},
    ]
    facts["raw"] = [{"version": "8.5.0"}]
    assert {"what": "cudnn", "asked": "8.6.0", "found": "8.5.0"} in find_differences(expect, facts)


def test_a_damaged_file_counts_only_where_it_is_in_use(recorder, tmp_path, monkeypatch):
    """A dangling link of cuDNN 7 beside a whole cuDNN in use is a remark; damage to the latter is not."""
    folder = tmp_path / "lib"
    for part in ("", "_graph", "_ops", "_cnn", "_adv", "_engines_precompiled", "_engines_runtime_compiled"):
        write_elf(folder / f"libcudnn{part}.so.9")
    write_elf(folder / "libcudnn_heuristic.so.9")
    (folder / "libcudnn.so.7").symlink_to("libcudnn.so.7.6.5")
    (folder / "libcudnn_ops_infer.so.8").write_text("left over")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.setattr(sys, "path", [])
    ctx = recorder()
    files_stage(ctx)
    assert ctx.found("E04")["outcome"] == "passed"
    assert "libcudnn.so.7 (a link to libcudnn.so.7.6.5, which is not there)" in ctx.found("E04")["note"]
    assert ctx.found("E05")["outcome"] == "passed"
    (folder / "libcudnn_adv.so.9").write_text("")
    ctx = recorder()
    files_stage(ctx)
    assert ctx.found("E04")["cause"] == "cudnn-file-corrupt"
    assert "libcudnn_adv.so.9 is no usable library: empty" in ctx.found("E04")["summary"]
    write_elf(folder / "libcudnn_adv.so.9", soname="libcudnn_adv.so.9")
    (folder / "libcudnn.so.9").unlink()
    write_elf(folder / "libcudnn.so.9", soname="libcudnn.so.8")
    ctx = recorder()
    files_stage(ctx)
    assert "libcudnn.so.9 is no usable library: it is libcudnn.so.8" in ctx.found("E04")["summary"]
    (folder / "libcudnn.so.9").unlink()
    write_elf(folder / "libcudnn.so.9", soname="libcudnn.so.9")
    (folder / "libcudnn_adv.so.9").unlink()
    ctx = recorder()
    files_stage(ctx)
    assert ctx.found("E05")["cause"] == "cudnn-sublibrary-missing"


VENV = "/venv/lib/python3.9/site-packages"


@pytest.mark.parametrize(
    ("text", "kind", "asker", "asked", "versions"),
    [
        # as Python prints it, with the releases of both in a list of packages
        (
            f"""Traceback (most recent call last):
  File "/home/me/run.py", line 1, in <module>
    import arviz
  File "{VENV}/arviz/stats.py", line 8, in <module>
    from scipy.signal import gaussian
ImportError: cannot import name 'gaussian' from 'scipy.signal' ({VENV}/scipy/signal/__init__.py)
arviz    0.15.1
scipy    1.13.0
""",
            "name",
            "arviz",
            "scipy",
            {"arviz": "0.15.1", "scipy": "1.13.0"},
        ),
        # an older Python names no module: the line of code does
        (
            f"""  File "{VENV}/pipupgrade/_pip.py", line 7, in <module>
    from pip import get_installed_distributions
ImportError: cannot import name 'get_installed_distributions'""",
            "name",
            "pipupgrade",
            "pip",
            {"pipupgrade": None, "pip": None},
        ),
        # Windows, a blank in the path; IPython; quoted; the message wrapped
        (
            r"""  File "C:\Users\My Name\envs\x\Lib\site-packages\gradio_client\utils.py", line 9, in <module>
ImportError: cannot import name 'connect' from
'websockets.legacy' (C:\Users\My Name\envs\x\Lib\site-packages\websockets\legacy\__init__.py)""",
            "name",
            "gradio-client",
            "websockets",
            {"gradio-client": None, "websockets": None},
        ),
        (
            f"""File {VENV}/silero_vad/utils_vad.py:139, in read_audio(path)
--> 139     list_backends = torchaudio.list_audio_backends()
AttributeError: module 'torchaudio' has no attribute 'list_audio_backends'""",
            "name",
            "silero-vad",
            "torchaudio",
            {"silero-vad": None, "torchaudio": None},
        ),
        # a part of a package that is there: Python would name the package itself, were it not
        (
            f"""  File "{VENV}/peft/x.py", line 2, in <module>
ModuleNotFoundError: No module named 'transformers.modeling_layers'""",
            "module",
            "peft",
            "transformers",
            {"peft": None, "transformers": None},
        ),
        ("ModuleNotFoundError: No module named 'mmcv._ext'", "part", None, "mmcv", {"mmcv": None}),
        # what an exception led to is no other failure; a loader of modules asks for nothing itself
        (
            f"""  File "{VENV}/peft/model.py", line 1, in <module>
    from transformers import EncoderDecoderCache
  File "{VENV}/transformers/utils/import_utils.py", line 9, in __getattr__
ImportError: cannot import name 'EncoderDecoderCache' from 'transformers' ({VENV}/transformers/__init__.py)

The above exception was the direct cause of the following exception:

  File "/home/me/run.py", line 1, in <module>
RuntimeError: it failed""",
            "name",
            "peft",
            "transformers",
            {"peft": None, "transformers": None},
        ),
        # the function of a package that the line of code names
        (
            f"""  File "{VENV}/aiger/expr.py", line 9, in <module>
    @attr.s(frozen=True, eq=False)
TypeError: attrs() got an unexpected keyword argument 'eq'""",
            "argument",
            "aiger",
            "attrs",
            {"aiger": None, "attrs": None},
        ),
        # its own name; Cython's sources; whose library and whose function
        (
            f"""  File "{VENV}/pandas/util/testing.py", line 28, in <module>
ImportError: cannot import name 'raise_with_traceback' from 'pandas.compat' ({VENV}/pandas/compat.py)""",
            "itself",
            "pandas",
            "pandas",
            {"pandas": None},
        ),
        (
            """  File "hdbscan/_hdbscan_tree.pyx", line 1, in init hdbscan._hdbscan_tree
ValueError: numpy.ndarray size changed, may indicate binary incompatibility. Expected 88 from C header""",
            "size",
            "hdbscan",
            "numpy",
            {"hdbscan": None, "numpy": None},
        ),
        (
            """  File "interval.pyx", line 1, in init pandas._libs.interval
ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header""",
            "size",
            "pandas",
            "numpy",
            {"pandas": None, "numpy": None},
        ),
        (
            f"""  File "{VENV}/vllm/transformers_utils/tokenizer.py", line 98, in get_cached_tokenizer
    extended = tokenizer.all_special_tokens_extended
  File "{VENV}/transformers/tokenization_utils_base.py", line 1293, in __getattr__
    raise AttributeError(f"{{self.__class__.__name__}} has no attribute {{key}}")
AttributeError: Qwen2Tokenizer has no attribute all_special_tokens_extended""",
            "member",
            "vllm",
            "transformers",
            {"vllm": None, "transformers": None},
        ),
        (
            f"ImportError: {VENV}/torchcodec/libtorchcodec_core8.so: undefined symbol: torch_from_blob",
            "symbol",
            "torchcodec",
            "torch",
            {"torchcodec": None, "torch": None},
        ),
        # Python itself: what it took away, and what a later one brings
        (
            """  File "/venv/lib/python3.13/site-packages/pydub/utils.py", line 11, in <module>
ModuleNotFoundError: No module named 'pyaudioop'""",
            "python-gone",
            "pydub",
            "python",
            {"pydub": None},
        ),
        (
            f"""  File "{VENV}/textual/app.py", line 91
    match event:
          ^
SyntaxError: invalid syntax""",
            "python-new",
            "textual",
            "python",
            {"textual": None},
        ),
    ],
)
def test_a_traceback_tells_which_package_asks_which_one(text, kind, asker, asked, versions):
    apart = find_apart(text)
    assert (apart.kind, apart.asker, apart.asked, apart.versions) == (kind, asker, asked, versions)
    cause = diagnose_score.answer(text)["causes"][0]
    assert asked in " ".join(cause["because"]).lower()
    assert kind in ("itself", "part", "symbol") or cause["cause"] == "package-pin-mismatch"


@pytest.mark.parametrize(
    "text",
    [
        # modules and classes of the program's own
        """  File "run.py", line 4, in <module>
    from libs import update
ImportError: cannot import name 'update'""",
        """  File "train.py", line 3, in <module>
ModuleNotFoundError: No module named 'utils.metric'""",
        """  File "/home/me/model.py", line 12, in fit
AttributeError: 'Net' object has no attribute 'foo'""",
        "TypeError: Client.__init__() got an unexpected keyword argument 'version'",
        # a file of the program's in the place of Python's module, and Python's own files
        f"""  File "{VENV}/numpy/random/__init__.py", line 4, in <module>
ImportError: cannot import name 'randint' from 'random' (/home/me/random.py)""",
        """  File "/usr/lib/python2.7/weakref.py", line 14, in <module>
    from _weakref import (
ImportError: cannot import name _remove_dead_weakref""",
        # a package that is not here at all, and a name that this Python has
        "ModuleNotFoundError: No module named 'torchdiffeq'",
        f"""  File "{VENV}/x.py", line 3, in <module>
ImportError: cannot import name 'pairwise' from 'itertools' (unknown location)""",
    ],
)
def test_no_two_packages_are_told_apart_where_no_line_names_them(text):
    assert find_apart(text, "3.12") is None


def test_two_packages_of_python_alone_are_upgraded_together_and_a_look_names_both():
    text = f"""  File "{VENV}/evaluate/loading.py", line 10, in <module>
ImportError: cannot import name 'xyz' from 'datasets' ({VENV}/datasets/__init__.py)
evaluate==0.4.0"""
    document = diagnose_score.answer(text.replace("evaluate", "trl"))
    commands = [row["text"] for row in document["causes"][0]["commands"]]
    assert commands == ["pip install --upgrade datasets trl"]
    assert "pip show datasets trl" in document["look"]["command"]
    assert not document["decided"]
    # what is compiled for a PyTorch stays as it is, and its own requirements choose the other one
    document = diagnose_score.answer(text.replace("evaluate", "vllm"))
    assert [row["text"] for row in document["causes"][0]["commands"]][:1] == [
        "pip install --upgrade vllm==0.4.0 datasets"
    ]
    # what pip must not change alone is named and left as it is: what asks for it is raised
    document = diagnose_score.answer(text.replace("datasets", "torchaudio"))
    raised = [row["text"] for row in document["causes"][0]["commands"] if "--upgrade" in row["text"]]
    assert len(raised) == 1
    assert "'evaluate'" in raised[0]
    assert "torchaudio" not in raised[0]
