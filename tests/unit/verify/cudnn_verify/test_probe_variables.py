"""E02: variables that alone keep a program from its GPU, or from compiling, where none shows it."""

import os
import sys

import pytest

from builder.verify.cudnn_verify.common.tables import read_patterns
from builder.verify.cudnn_verify.measure import environment
from builder.verify.cudnn_verify.measure.environment import check_variables
from builder.verify.cudnn_verify.measure.machine_facts import commands_here
from builder.verify.cudnn_verify.measure.report import decide_verdict

ALL = ("torch", "triton", "jax", "jaxlib", "tensorflow", "cupy-cuda12x", "ctranslate2")


@pytest.fixture
def e02(recorder, monkeypatch, tmp_path):
    """What E02 says under these variables, and under no others."""
    for name in [name for name in os.environ if environment.steers(name)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(environment, "start_environment", lambda: dict(os.environ))

    def check(packages=ALL, options=(), **values):
        for name, value in values.items():
            monkeypatch.setenv(name, str(value))
        ctx = recorder(**dict(options))
        check_variables(ctx, packages)
        return ctx.found("E02")

    return check


@pytest.mark.parametrize("value", ["", "-1", "-1,0", "NoDevFiles", "none", " -1 "])
def test_a_value_that_shows_no_card_is_a_verdict_where_there_is_none_either(e02, value):
    found = e02(CUDA_VISIBLE_DEVICES=value)
    assert (found["outcome"], found["cause"]) == ("failed", "device-hidden")
    assert found["evidence"]["yields"]  # whatever else is wrong says more


@pytest.mark.parametrize(
    "value", ["0", "1,0", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "MIG-1/2/3", "0,-1"]
)
def test_a_value_that_shows_a_card_is_sound(e02, value):
    assert e02(CUDA_VISIBLE_DEVICES=value)["outcome"] == "passed"


@pytest.mark.parametrize("options", [{"no_gpu": True}, {"expect": {"cuda": {"provider": "none"}}}])
def test_whoever_wants_no_gpu_may_hide_it(e02, options):
    found = e02(options=options, CUDA_VISIBLE_DEVICES="-1")
    assert found["outcome"] == "passed"
    assert "no program here would see a GPU" in found["note"]


def test_a_file_that_sets_the_variable_as_python_starts_is_named_and_no_shell_is_told(
    e02, tmp_path, monkeypatch
):
    monkeypatch.setattr(environment, "start_environment", dict)
    monkeypatch.setattr(environment, "search_folders", lambda: [str(tmp_path)])
    (tmp_path / "hide.pth").write_text("import os; os.environ['CUDA_VISIBLE_DEVICES'] = '-1'\n")
    found = e02(CUDA_VISIBLE_DEVICES="-1")
    assert f"{tmp_path}/hide.pth sets it, not the shell" in found["summary"]
    assert commands_here({"packages": {}}, found) == []
    monkeypatch.setattr(environment, "start_environment", lambda: dict(os.environ))
    texts = [command["text"] for command in commands_here({"packages": {}}, e02())]
    assert texts == ["unset CUDA_VISIBLE_DEVICES"]


def test_a_compiler_that_a_variable_names_and_nobody_finds_is_the_variables_fault(e02):
    found = e02(CC="/usr/bin/gcc-99 -O2")
    assert (found["cause"], found["evidence"]["variable"]) == ("variable-breaks-framework", "CC")
    assert e02(("torch",))["outcome"] == "passed"
    assert e02(CC=sys.executable)["outcome"] == "passed"


SOUND = {
    "JAX_PLATFORMS": "cuda,cpu",
    "CT2_CUDA_ALLOCATOR": "cuda_malloc_async",
    "JAX_CUDA_VISIBLE_DEVICES": "0,1",
    "TF_GPU_THREAD_MODE": "gpu_private",
    "XLA_PYTHON_CLIENT_ALLOCATOR": "platform",
    "XLA_PYTHON_CLIENT_MEM_FRACTION": ".75",
}


def test_each_variable_of_the_table_is_known_by_a_sound_and_a_refused_value(e02):
    assert {key.upper() for key in read_patterns()["variables-refused"]} == set(SOUND)
    assert e02(**SOUND)["outcome"] == "passed"


@pytest.mark.parametrize("name", sorted(SOUND))
def test_a_value_that_a_framework_refuses_on_a_gpu_is_named_without_one(e02, name):
    found = e02(**{name: "cuda-malloc"})
    assert found["cause"] == "variable-breaks-framework"
    assert found["evidence"]["variable"] == name
    assert e02(("numpy",), **{name: "cuda-malloc"})["outcome"] == "passed"  # nobody reads it


FOLDERS = {key.upper(): row.split(" ")[1] for key, row in read_patterns()["variables-folders"].items()}


@pytest.mark.parametrize("name", sorted(FOLDERS))
def test_a_folder_in_which_nothing_can_be_made_is_named_with_its_variable(e02, tmp_path, name):
    (tmp_path / "file").write_text("")
    found = e02(**{name: tmp_path / "file/cache"})
    assert name in (found["summary"] if FOLDERS[name] != "quiet" else found["note"])
    assert found["cause"] == ("variable-breaks-framework" if FOLDERS[name] != "quiet" else None)
    assert e02(**{name: tmp_path / "to/be/made"})["outcome"] == "passed"


def test_a_home_without_rights_is_a_fault_for_cupy_alone(e02, tmp_path, monkeypatch):
    monkeypatch.setattr(environment.os, "access", lambda path, _: str(path) != str(tmp_path))
    assert e02()["cause"] == "file-access-denied"
    assert e02(CUPY_CACHE_IN_MEMORY="1")["outcome"] == "passed"
    assert e02(("torch", "triton", "jax"))["outcome"] == "passed"


@pytest.mark.parametrize("name", ["TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUPY_CACHE_DIR"])
def test_libraries_are_loaded_from_some_folders_and_not_from_a_mount_without_execution(
    e02, tmp_path, monkeypatch, name
):
    monkeypatch.setattr(environment, "on_noexec_mount", lambda _: True)
    found = e02(**{name: tmp_path})
    assert ("noexec" in found["summary"]) == (FOLDERS[name] == "code")


def test_temporary_files_that_do_not_run_are_told_on_the_first_line(e02, monkeypatch):
    """torch.compile loads what it has compiled from there; the rest of PyTorch does not."""
    monkeypatch.setattr(environment, "on_noexec_mount", lambda _: True)
    found = e02(("torch",))
    assert (found["outcome"], "TORCHINDUCTOR_CACHE_DIR is not set" in found["note"]) == ("passed", True)
    said = decide_verdict([found], {"copies": [], "frameworks": [{"name": "torch"}]}, {})
    assert "mounted noexec" in said["summary"]
    assert e02(("jax",))["note"] is None


def test_values_that_break_nothing_are_remarks(e02):
    found = e02(TRITON_INTERPRET="1", CUDA_FORCE_PTX_JIT="0", NVIDIA_DRIVER_CAPABILITIES="graphics,video")
    assert found["note"].count("=") == 2
    assert e02(NVIDIA_DRIVER_CAPABILITIES="compute,utility", TRITON_INTERPRET="0")["note"] is None


def test_a_check_that_was_switched_off(e02):
    assert e02(PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK="0")["outcome"] == "passed"
    assert e02(PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK="1")["cause"] == "check-disabled"
