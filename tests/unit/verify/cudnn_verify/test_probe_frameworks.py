"""What the framework stages work out without a framework: architectures, versions, a model, a cause."""

from __future__ import annotations

import functools
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from probe_elf import write_elf

from builder.verify.cudnn_verify.common.tables import newest_row, opened_libraries
from builder.verify.cudnn_verify.measure import fw_arrays, fw_libraries, fw_tensorflow, schedule
from builder.verify.cudnn_verify.measure.fw_arrays import Cupy, Jax
from builder.verify.cudnn_verify.measure.fw_common import (
    arch_support,
    is_gpu_name,
    loss_falls,
    training_data,
)
from builder.verify.cudnn_verify.measure.fw_eager import Torch
from builder.verify.cudnn_verify.measure.fw_inference import Onnxruntime, conv_model
from builder.verify.cudnn_verify.measure.fw_libraries import _cudart_without_driver, cause_of_missing
from builder.verify.cudnn_verify.measure.fw_tensorflow import Tensorflow, pinned_cudnn
from builder.verify.cudnn_verify.measure.protocol import FACT_SHAPES, check_shapes
from builder.verify.cudnn_verify.measure.run import Run
from builder.verify.cudnn_verify.measure.schedule import coimport_orders, judge_framework

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize(
    ("archs", "capability", "how"),
    [
        (["sm_80", "sm_90"], (9, 0), "machine code"),
        (["sm_80"], (8, 9), "machine code"),
        (["sm_86"], (8, 0), None),
        (["sm_80", "compute_80"], (9, 0), "PTX"),
        (["sm_80", "compute_90"], (8, 6), "machine code"),
        (["sm_90a"], (9, 0), "machine code"),
        (["sm_90a"], (9, 1), None),
        (["sm_100f"], (10, 3), "machine code"),
        (["compute_90a"], (10, 0), None),
        (["sm_80"], (7, 5), None),
        (["sm_120"], (12,), "machine code"),
        (["nonsense", "sm_"], (8, 0), None),
    ],
)
def test_arch_support(archs: list[str], capability: tuple[int, ...], how: str | None) -> None:
    assert arch_support(archs, capability) == how


@pytest.mark.parametrize(
    ("losses", "falls"),
    [
        ([2.0, 1.0], True),
        ([2.0, 1.9], False),
        ([2.0, 2.0], False),
        ([2.0], False),
        ([], False),
        ([2.0, float("nan"), 0.1], False),
        ([float("inf"), 0.1], False),
    ],
)
def test_loss_falls(losses: list[float], falls: bool) -> None:
    assert loss_falls(losses) is falls


@pytest.mark.parametrize("name", ["cuda:0", "/job:localhost/replica:0/task:0/device:GPU:0", "Place(gpu:0)"])
def test_names_of_a_gpu(name: str) -> None:
    assert is_gpu_name(name)


@pytest.mark.parametrize("name", ["cpu", "TFRT_CPU_0", "/device:CPU:0", "Place(cpu)", "CPUExecutionProvider"])
def test_names_of_no_gpu(name: str) -> None:
    assert not is_gpu_name(name)


def test_training_data_has_the_shapes_it_says() -> None:
    data = training_data()
    assert [len(data[key]) for key in ("x", "w", "v", "targets")] == [8 * 3 * 64, 4 * 27, 4, 8]


def test_cause_of_missing_libraries() -> None:
    assert cause_of_missing(["libcublas.so.12", "libcudnn.so.9"]) == "cudnn-missing"
    assert cause_of_missing(["libcudnn_ops.so.9"]) == "cudnn-sublibrary-missing"
    assert cause_of_missing(["libnvrtc.so.12"]) == "nvrtc-missing"
    assert cause_of_missing(["libnvrtc.so.12", "libcudart.so.12"]) == "toolkit-library-missing"


def test_a_row_of_a_table_holds_until_the_next_one() -> None:
    assert newest_row("tensorflow", "cudnn", (2, 20)) == "9.3"
    assert newest_row("tensorflow", "cudnn", (2, 8)) == "8.1"
    assert newest_row("tensorflow", "cudnn", (1, 12)) == newest_row("tensorflow", "cudnn", ()) == ""


def test_tensorflow_opens_other_names_for_each_minor_version_of_cuda() -> None:
    """TensorFlow 2.3 is built for CUDA 10.1, 2.4 for 11.0: neither has its major's usual names."""
    opened = functools.partial(opened_libraries, "tensorflow")
    assert "libcudart.so.10.1" in opened("10.1")
    assert "libcusolver.so.10" in opened("11.0")
    assert "libcusolver.so.11" in opened("11.2")
    assert opened("12") == opened("12.5.1")
    assert opened("11") == opened("9.2") == opened(None) == []


def test_a_cuda_that_nobody_knows_opens_nothing() -> None:
    assert opened_libraries("cupy", "11") == ["libcudart.so.11.0", "libnvrtc.so.11.2"]
    assert opened_libraries("jax", "11.8") == opened_libraries("jax", "14.0") == []


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ('nvidia-cudnn-cu12==9.3.0.75; extra == "and-cuda"', "9.3.0.75"),
        ('nvidia-cudnn-cu12 (==8.9.4.25) ; extra == "and-cuda"', "8.9.4.25"),
        ('nvidia-cudnn-cu12<10.0,>=9.3.0.75; extra == "and-cuda"', "9.3.0.75"),
        ("nvidia-cublas-cu12==12.5.3.2", None),
    ],
)
def test_pinned_cudnn(line: str, version: str | None) -> None:
    assert pinned_cudnn([line]) == version


@pytest.mark.parametrize(
    ("path", "packages", "version"),
    [
        ("/usr/local/cuda/lib64/libcudart.so.11.2.152", {}, "11.2"),
        ("/x/nvidia/cuda_runtime/lib/libcudart.so.11.0", {"nvidia-cuda-runtime-cu11": "11.8.89"}, "11.8"),
        ("/x/nvidia/cuda_runtime/lib/libcudart.so.11.0", {"nvidia-cuda-runtime-cu12": "12.4.127"}, None),
        ("/elsewhere/libcudart.so.11.0", {"nvidia-cuda-runtime-cu11": "11.8.89"}, None),
        ("/x/nvidia/cuda_runtime/lib/libcudart.so", {}, None),
    ],
)
def test_the_cuda_runtime_where_no_driver_lets_it_answer(
    path: str, packages: dict[str, str], version: str | None
) -> None:
    rows = {name: {"version": text} for name, text in packages.items()}
    assert _cudart_without_driver(path, rows) == version


class _JaxWithoutGpu:
    """What JAX 0.4.30 with its CUDA plugin does where no GPU is visible."""

    def __init__(self, message: str) -> None:
        self.message = message
        self.platforms: dict[str, str] = {}
        self.config = SimpleNamespace(update=self.platforms.__setitem__)

    def local_devices(self) -> list[str]:
        raise RuntimeError(self.message)


def _jax(message: str, **facts: Any) -> Jax:
    framework = Jax(SimpleNamespace(facts=facts, no_gpu=False))
    framework.api = _JaxWithoutGpu(message)
    return framework


def test_jax_opens_its_libraries_by_the_run_path_of_its_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With apt's cuDNN in the loader's cache, as on Colab, JAX still gets the wheel's."""
    plugin = tmp_path / "jax_plugins" / "xla_cuda12" / "xla_cuda_plugin.so"
    plugin.parent.mkdir(parents=True)
    (plugin.parent / "__init__.py").touch()
    plugin.touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "jax_plugins", raising=False)
    framework = Jax(SimpleNamespace(facts={}, no_gpu=False))
    framework.built = SimpleNamespace(
        cuda_runtime_build_version=lambda: 12030, cudnn_build_version=lambda: 90101
    )
    names, requesters = framework.wanted()
    assert "libcudnn.so.9" in names
    assert requesters == [str(plugin)]
    plugin.unlink()
    assert framework.wanted()[1] == []


def test_tensorflow_opens_its_libraries_by_the_run_paths_of_two_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorder
) -> None:
    """From 2.21 on libtensorflow_cc finds cuSOLVER alone, and libtensorflow_framework the others."""
    home = tmp_path / "tensorflow"
    for name, part in (("cc", "cusolver"), ("framework", "cudnn")):
        write_elf(home / f"libtensorflow_{name}.so.2", runpath=f"$ORIGIN/../nvidia/{part}/lib")
        write_elf(tmp_path / f"nvidia/{part}/lib/lib{part}_of_this_test.so.1")
    monkeypatch.setattr(fw_tensorflow, "mapped_paths", lambda: {str(path): 1 for path in home.iterdir()})
    opened = []
    monkeypatch.setattr(fw_libraries, "open_library", opened.append)
    openers = Tensorflow._openers(SimpleNamespace())
    assert len(openers) == 2
    names = ["libcudnn_of_this_test.so.1", "libcusolver_of_this_test.so.1"]
    assert fw_libraries.unloadable(recorder(), names, openers) == {}
    assert [Path(path).name for path in opened] == names
    assert all(Path(path).is_file() for path in opened)


_NO_GPU = "Unable to initialize backend 'cuda': FAILED_PRECONDITION: No visible GPU devices."


def test_jax_that_raises_for_want_of_a_gpu_is_asked_for_the_cpu() -> None:
    framework = _jax(_NO_GPU, gpu_state="none")
    assert framework.touch() == ()
    assert framework.api.platforms == {"jax_platforms": "cpu"}


@pytest.mark.parametrize("variable", ["JAX_PLATFORMS", "JAX_PLATFORM_NAME"])
def test_jax_that_is_told_to_use_a_gpu_is_judged_without_one_as_if_it_were_not(monkeypatch, variable) -> None:
    """JAX 0.6.2 ends in an AssertionError then."""
    monkeypatch.setenv(variable, "cuda")
    for state, asked in (("none", {variable.lower(): ""}), ("works", {})):
        framework = _jax("", gpu_state=state)
        framework.api.local_devices = list
        framework.touch()
        assert framework.api.platforms == asked


@pytest.mark.parametrize(
    ("message", "state"), [(_NO_GPU, "works"), ("Unable to initialize backend 'cuda': no cuDNN", "none")]
)
def test_whatever_else_jax_raises_is_a_failure(message: str, state: str) -> None:
    framework = _jax(message, gpu_state=state)
    with pytest.raises(RuntimeError, match="Unable to initialize"):
        framework.touch()
    assert not framework.api.platforms


@pytest.mark.parametrize("mends", [True, False])
def test_a_framework_is_judged_with_the_line_that_its_documents_ask_for(recorder, monkeypatch, mends) -> None:
    """onnxruntime-gpu[cuda,cudnn] finds its libraries by preload_dlls(): the line is told."""
    called: list[str] = []

    def missing(_ctx: Any, names: Any, _requesters: Any = ()) -> dict[str, str]:
        return {} if called and mends else dict.fromkeys(names, "cannot open shared object file")

    monkeypatch.setattr(fw_libraries, "unloadable", missing)
    ctx = recorder(facts={})
    framework = Onnxruntime(ctx)
    framework.api = SimpleNamespace(preload_dlls=lambda: called.append("called"))
    monkeypatch.setattr(framework, "wanted", lambda: (["libcudnn.so.9"], []))
    assert fw_libraries.check_wanted(ctx, framework) is mends
    check = ctx.found("R02")
    assert check["outcome"] == ("passed" if mends else "failed")
    assert called
    if mends:
        assert "the line onnxruntime.preload_dlls()" in check["note"]


@pytest.mark.parametrize(
    ("copies", "why"),
    [
        ([], "there is none here"),
        ([("/wheel", 9)], "of cuDNN there is 9 alone, which cannot take its place"),
        ([("/wheel", 9), ("/opt/old", 8)], "the one in /opt/old is not where it looks"),
    ],
)
def test_a_cudnn_that_a_framework_can_do_without_is_said_as_what_it_is(
    recorder, monkeypatch, copies, why
) -> None:
    """CuPy 13 opens libcudnn.so.8, and works without it."""
    monkeypatch.setattr(fw_libraries, "unloadable", lambda *_: {"libcudnn.so.8": "no such file"})
    monkeypatch.setattr(fw_libraries, "asked_for", lambda *_: False)
    ctx = recorder(facts={"copies": [{"folder": folder, "major": major} for folder, major in copies]})
    framework = Cupy(ctx)
    monkeypatch.setattr(framework, "compiled", lambda: {"cuda": "12", "cudnn": "8.8.1"})
    assert fw_libraries.check_wanted(ctx, framework)
    assert fw_libraries.check_loaded(ctx, framework, {"version": None}, ())
    said = f"CuPy works without cuDNN 8, which it would use; {why}"
    assert ctx.found("R02")["note"] == ctx.found("F02")["summary"] == said


def test_onnx_model_is_well_formed() -> None:
    model = conv_model("float16", [("x", (1, 3, 8, 8)), ("w", (4, 3, 3, 3))], (1, 4, 8, 8), relu=True)
    fields = dict(_fields(model))
    assert fields[1] == 6  # ir_version
    graph = list(_fields(fields[7]))
    assert [number for number, _ in graph] == [1, 1, 2, 11, 11, 12]
    operations = [dict(_fields(value))[4] for number, value in graph if number == 1]
    assert operations == [b"Conv", b"Relu"]


def _fields(data: bytes) -> Any:
    """(field number, value) pairs of a protobuf message: varints as numbers, the rest as bytes."""

    def varint() -> int:
        nonlocal place
        number, shift = 0, 0
        while True:
            byte = data[place]
            place += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    place = 0
    while place < len(data):
        key = varint()
        value: int | bytes = varint()
        if key & 7 == 2:
            place += int(value)
            value = data[place - int(value) : place]
        yield key >> 3, value


def test_every_order_of_what_was_imported() -> None:
    assert coimport_orders({"imported": ["jax"]}) == []
    assert coimport_orders({"imported": ["a", "b"]}) == [{"order": ["a", "b"]}, {"order": ["b", "a"]}]
    orders = [row["order"] for row in coimport_orders({"imported": ["jax", "tensorflow", "torch"]})]
    assert orders[0] == ["jax", "tensorflow", "torch"]
    assert len({tuple(order) for order in orders}) == 6


def test_of_many_each_comes_first_and_last() -> None:
    orders = [row["order"] for row in coimport_orders({"imported": list("abcde")})]
    assert len(orders) == 10
    assert {order[0] for order in orders} == {order[-1] for order in orders} == set("abcde")
    assert all(sorted(order) == list("abcde") for order in orders)


class _Context:
    """What the stage of imports together says and notes."""

    def __init__(self, *order: str) -> None:
        self.params, self.facts, self.strict = {"order": list(order)}, {}, False
        self.said: list[tuple[str, str]] = []

    @contextmanager
    def call(self, name: str, **_: Any) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(result=None)

    def fact(self, name: str, value: Any) -> None:
        check_shapes(FACT_SHAPES, {name: value})
        self.facts[name] = value

    def passed(self, number: str, *_: Any, **__: Any) -> None:
        self.said.append((number, "passed"))

    def fails(self, number: str, summary: str, **_: Any) -> None:
        self.said.append((number, summary))


def _framework(name: str, compiled: str, *, needs: bool, loads: tuple[int, ...]) -> Any:
    return SimpleNamespace(
        name=name,
        title=name,
        module=name,
        needs_cudnn=needs,
        load=lambda: None,
        touch=lambda: loads,
        wanted=lambda: ([], None),
        compiled=lambda: {"cudnn": compiled},
    )


@pytest.mark.parametrize(
    ("loads", "said"),
    [((), "passed"), ((9, 3, 0), "cupy gets cuDNN 9.3.0 when imported in the order cupy, torch")],
)
def test_a_framework_without_cudnn_does_not_get_that_of_the_others(
    monkeypatch: pytest.MonkeyPatch, loads: tuple[int, ...], said: str
) -> None:
    """CuPy 13 is made for cuDNN 8 and does without; PyTorch beside it maps cuDNN 9."""
    made = {
        "torch": _framework("torch", "9.1.0", needs=True, loads=(9, 3, 0)),
        "cupy": _framework("cupy", "8.8.1", needs=False, loads=loads),
    }
    monkeypatch.setattr(schedule, "FRAMEWORKS", {name: lambda _, name=name: made[name] for name in made})
    monkeypatch.setattr(schedule, "framework_cudnn", lambda *_: {"version": (9, 3, 0)})
    monkeypatch.setattr(schedule, "mapped_libraries", list)
    ctx = _Context("cupy", "torch")
    schedule.coimport_stage(ctx)
    assert ctx.said == [("F06", said)]


@pytest.mark.parametrize("none", [None, ()])
def test_frameworks_whose_cudnn_is_nowhere_are_imported_together(
    monkeypatch: pytest.MonkeyPatch, none: tuple[int, ...] | None
) -> None:
    """ctranslate2 and onnxruntime of faster-whisper, in an image without cuDNN."""
    made = {name: _framework(name, "9.1.0", needs=True, loads=()) for name in ("ctranslate2", "onnxruntime")}
    monkeypatch.setattr(schedule, "FRAMEWORKS", {name: lambda _, name=name: made[name] for name in made})
    monkeypatch.setattr(schedule, "framework_cudnn", lambda *_: {"version": none})
    monkeypatch.setattr(schedule, "mapped_libraries", list)
    ctx = _Context("ctranslate2", "onnxruntime")
    schedule.coimport_stage(ctx)
    assert ctx.said == [("F06", "passed")]
    assert ctx.facts["coimport"]["cudnn"] == {"ctranslate2": "none", "onnxruntime": "none"}


class _Run:
    """A run of a framework stage that raised, with counter-tests that answer as they are told to."""

    proven = Run.proven

    def __init__(self, text: str, *, small: bool = False, **facts: Any) -> None:
        self.stage = SimpleNamespace(layer="framework", name="torch")
        self.checks: list[dict[str, Any]] = []
        self.ending = {"kind": "raised", "text": text}
        self.in_flight = "torch: convolution and its gradients"
        self.stderr = self.stdout = ""
        self.facts, self.params, self.sound = facts, {}, False
        self.new_facts = [("framework", {"compiled": {"cuda": "12.4"}})]
        self.proof: list[str] = []
        self.counter_tests = {"small": small}

    def again(self, name: str) -> Any:
        sound = self.counter_tests.get(name, False)
        return SimpleNamespace(sound=sound, checks=[], ending={"kind": "done", "text": ""})

    def prove(self, test: str, outcome: str, detail: str) -> None:
        self.proof.append(f"{test} {outcome}: {detail}")

    def fail(self, number: str, summary: str, cause: str | None, evidence: Any) -> dict[str, Any]:
        check = {"id": number, "outcome": "failed", "summary": summary, "cause": cause, "evidence": evidence}
        self.checks.append(check)
        return check

    def decide(self, check: dict[str, Any], cause: str) -> None:
        check["cause"] = cause


@pytest.mark.parametrize(
    ("text", "facts", "cause"),
    [
        ("CUDNN_STATUS_NOT_INITIALIZED", {"small": True}, "out-of-memory"),
        ("Failed to get convolution algorithm.", {"gpus": [{"memory_free": 9 << 20}]}, "out-of-memory"),
        ("RESOURCE_EXHAUSTED", {"gpus": [{"memory_free": 9 << 30}]}, "execution-failed"),
        ("CUDA driver version is insufficient", {"driver": {"api": "11.8"}}, "driver-too-old"),
        ("CUDA driver version is insufficient", {"driver": {"api": "12.8"}}, "execution-failed"),
        ("no kernel image is available for execution", {}, "framework-arch-missing"),
        ("CUDNN_STATUS_ARCH_MISMATCH", {}, "cudnn-arch-dropped"),
        ("something else", {}, "execution-failed"),
    ],
)
def test_a_text_only_chooses_the_counter_test(
    text: str, facts: dict[str, Any], cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    run = _Run(text, **facts)
    judge_framework(run)
    assert [(check["id"], check["cause"]) for check in run.checks] == [("F05", cause)]
    assert run.proof or cause == "execution-failed"


@pytest.mark.parametrize(
    "text",
    [
        'carray.cuh(57): catastrophic error: cannot open source file "cuda_fp16.h"',
        "Failed to find CUDA headers. Please install CUDA toolkit headers",
    ],
)
def test_a_header_of_cuda_that_nvrtc_misses_is_named_with_the_package_that_had_it(
    tmp_path, monkeypatch, text
):
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    info = tmp_path / "nvidia_cuda_runtime_cu12.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("nvidia/cuda_runtime/include/cuda_fp16.h,,1\n")
    row = {"name": "nvidia-cuda-runtime-cu12", "location": str(tmp_path), "info": info.name}
    run = _Run(text, packages={row["name"]: row})
    run.in_flight = "cupy: compile a kernel"
    judge_framework(run)
    assert [(check["id"], check["cause"]) for check in run.checks] == [("F04", "kernel-compiler-missing")]
    assert run.checks[0]["evidence"]["packages"] == ["nvidia-cuda-runtime-cu12"]
    assert "cuda_fp16.h; nvidia-cuda-runtime-cu12 installed it" in run.proof[-1]


def test_cupy_compiles_its_own_headers_where_there_is_no_gpu(monkeypatch):
    compiled = []
    program = SimpleNamespace(compile=compiled.append)
    modules = {
        "cupy._core.core": SimpleNamespace(assemble_cupy_compiler_options=lambda given: ("-I", *given)),
        "cupy.cuda.compiler": SimpleNamespace(
            _NVRTCProgram=lambda source, _: compiled.append(source) or program
        ),
    }
    monkeypatch.setattr(fw_arrays, "imported", modules.get)
    fw_arrays.Cupy(None).compile_kernel()
    assert "cupy/carray.cuh" in compiled[0]
    assert compiled[1] == ("-I",)


@pytest.mark.parametrize(
    ("variables", "forbidden"),
    [
        ({"JAX_PLATFORMS": "cpu"}, "JAX_PLATFORMS=cpu"),
        ({"JAX_PLATFORM_NAME": "cpu"}, "JAX_PLATFORM_NAME=cpu"),
        ({"JAX_PLATFORMS": "cuda,cpu"}, ""),
        ({"JAX_PLATFORMS": ""}, ""),
        ({}, ""),
    ],
)
def test_jax_is_told_to_do_without_a_gpu(recorder, monkeypatch, variables, forbidden):
    for name in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert Jax(recorder()).forbidden() == forbidden


def test_cupy_14_loads_its_libraries_by_its_own_search_first(
    monkeypatch: pytest.MonkeyPatch, recorder
) -> None:
    class Missing(Exception):
        pass

    asked: list[str] = []

    def load(stem: str) -> None:
        asked.append(stem)
        if stem == "cudart":
            raise Missing

    pathfinder = SimpleNamespace(load_nvidia_dynamic_lib=load, DynamicLibNotFoundError=Missing)
    for name in ("cupy_backends", "cupy_backends.cuda"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(__path__=[]))
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs", SimpleNamespace(_pathfinder=pathfinder))
    ctx = recorder()
    Cupy(ctx).load_first(["libcudart.so.13", "libnvrtc.so.13"])
    assert asked == ["cudart", "nvrtc"]
    assert not any(line.get("failed") for line in ctx.lines)
    monkeypatch.delattr(sys.modules["cupy_backends.cuda.libs"], "_pathfinder")
    Cupy(ctx).load_first(["libnvrtc.so.12"])  # CuPy 13 searches nothing


def test_onnxruntime_does_not_answer_for_the_driver(tmp_path: Path) -> None:
    capi = tmp_path / "onnxruntime/capi"
    needed = ("libcuda.so.1", "libcublas.so.13")
    provider = write_elf(capi / "libonnxruntime_providers_cuda.so", needed=needed)
    framework = Onnxruntime(SimpleNamespace(facts={}))
    framework.api = SimpleNamespace(__file__=str(tmp_path / "onnxruntime/__init__.py"))
    assert framework.wanted() == (["libcublas.so.13"], [str(provider)])


@pytest.mark.parametrize(
    ("said", "gpu", "raises"),
    [
        ("Unrecognized CachingAllocator option: expandable_segments=True", "none", True),
        ("CUDA error: CUDA driver version is insufficient for CUDA runtime version", "none", False),
        ("Unrecognized CachingAllocator option: expandable_segments=True", "works", False),
    ],
)
def test_what_pytorch_says_of_its_allocators_variable_is_heard_without_a_card(
    recorder, monkeypatch, said, gpu, raises
) -> None:
    """PyTorch reads the variable as a setting is made; where a card works, a setting would change it."""
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments=True")

    def refuse(_text: str) -> None:
        raise RuntimeError(said)

    framework = Torch(recorder(facts={"gpu_state": gpu}))
    library = SimpleNamespace(_cuda_cudaCachingAllocator_set_allocator_settings=refuse)
    framework.api = SimpleNamespace(_C=library, set_num_threads=lambda _count: None)
    if raises:
        with pytest.raises(RuntimeError, match="Unrecognized"):
            framework.prepare(None)
    else:
        framework.prepare(None)
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF")
    framework.prepare(None)


def test_libraries_in_wheels_are_said_to_lie_there_and_an_extra_is_not_asked_for(
    recorder, tmp_path, monkeypatch
) -> None:
    lib = tmp_path / "nvidia/cuda_runtime/lib"
    lib.mkdir(parents=True)
    (lib / "libcudart.so.12").touch()
    names = ["libcudart.so.12", "libnvrtc.so.12", "libcudnn.so.8"]
    monkeypatch.setattr(fw_libraries, "find_wheel_folders", lambda: [str(lib)])
    monkeypatch.setattr(
        fw_libraries, "unloadable", lambda _ctx, names, _requesters: dict.fromkeys(names, "no")
    )
    framework = Cupy(recorder(facts={}, expect={}))
    monkeypatch.setattr(Cupy, "wanted", lambda _self: (names, []))
    fw_libraries.check_wanted(framework.ctx, framework)
    check = framework.ctx.found("R02")
    assert check["summary"] == (
        "CuPy asks for libnvrtc.so.12, which cannot be opened; and for libcudart.so.12, installed in "
        f"{lib}, where the loader does not look"
    )
    assert sorted(check["evidence"]["cannot be opened"]) == names[:2]
    assert check["evidence"]["otherwise"] == "nvrtc-missing"
    (lib / "libnvrtc.so.12").touch()
    framework = Cupy(recorder(facts={}, expect={}))
    fw_libraries.check_wanted(framework.ctx, framework)
    assert "cannot be opened" not in framework.ctx.found("R02")["summary"]
    monkeypatch.setattr(fw_libraries, "start_environment", lambda: {"LD_LIBRARY_PATH": f"/venv310/lib:{lib}"})
    framework = Cupy(recorder(facts={}, expect={}))
    fw_libraries.check_wanted(framework.ctx, framework)
    assert framework.ctx.found("R02")["summary"].endswith(
        "where the loader does not look; LD_LIBRARY_PATH leads to /venv310/lib, which is not there"
    )
