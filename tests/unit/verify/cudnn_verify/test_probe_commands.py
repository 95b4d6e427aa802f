"""The commands that mend a cause on this machine, from the facts and the failed check."""

import re
import sys

import pytest

from builder.verify.cudnn_verify.common.causes import CAUSES, command_lines
from builder.verify.cudnn_verify.common.remedies import Remedies
from builder.verify.cudnn_verify.common.tables import read_patterns, told_names
from builder.verify.cudnn_verify.measure import machine_facts
from builder.verify.cudnn_verify.measure.machine_facts import MachineRemedies, commands_here
from builder.verify.cudnn_verify.read.text_facts import TextFacts


def _package(name, version, requires=()):
    row = {"name": name, "version": version, "requires": list(requires), "location": "/x", "info": "i"}
    return {name: row}


def _texts(facts, cause, **evidence):
    check = {
        "id": evidence.pop("id", "P02"),
        "stage": evidence.pop("stage", "packages"),
        "summary": "",
        "cause": cause,
        "evidence": evidence,
    }
    return [row["text"] for row in commands_here(facts, check)]


def test_of_two_packages_with_the_same_files_both_go_and_the_build_with_cuda_comes():
    facts = {"packages": {**_package("onnxruntime", "1.23.2"), **_package("onnxruntime-gpu", "1.22.0")}}
    row = {"path": "/x/a.so", "not_as_in": ["onnxruntime-gpu"], "as_in": ["onnxruntime"]}
    first, second = _texts(facts, "package-overwritten", changed=[row], packages=["onnxruntime-gpu"])
    assert first.endswith("onnxruntime onnxruntime-gpu")
    assert second.endswith("--no-deps onnxruntime-gpu==1.22.0")
    facts = {"packages": {**_package("cupy-cuda11x", "13.6.0"), **_package("cupy-cuda12x", "13.6.0")}}
    row = {"path": "/x/a.so", "not_as_in": ["cupy-cuda11x"], "as_in": ["cupy-cuda12x"]}
    first, second = _texts(facts, "package-overwritten", changed=[row], packages=["cupy-cuda11x"])
    assert first.endswith("cupy-cuda11x cupy-cuda12x")
    assert second.endswith("cupy-cuda12x==13.6.0")


def _kept(*packages, lost, winner):
    facts = {"packages": {k: v for row in packages for k, v in row.items()}}
    row = {"path": "/x/a.so", "not_as_in": [lost], "as_in": [winner]}
    texts = _texts(facts, "package-overwritten", changed=[row], packages=[lost])
    return texts[0].split(" -y ")[-1].split(), texts[1].split("--no-deps ")[-1]


def test_of_two_packages_with_the_same_files_the_one_that_the_framework_asks_for_is_kept():
    """The one that came last is the intruder."""
    eleven, twelve = _package("nvidia-nccl-cu11", "2.14.3"), _package("nvidia-nccl-cu12", "2.25.1")
    torch = _package("torch", "2.6.0", ["nvidia-nccl-cu12==2.21.5; platform_system == 'Linux'"])
    names = {"lost": "nvidia-nccl-cu12", "winner": "nvidia-nccl-cu11"}
    both = ["nvidia-nccl-cu11", "nvidia-nccl-cu12"]
    assert _kept(eleven, twelve, torch, **names) == (both, "nvidia-nccl-cu12==2.21.5")
    optional = _package("tensorflow", "2.20.0", ["nvidia-nccl-cu12<3,>=2.25; extra == 'and-cuda'"])
    assert _kept(eleven, twelve, optional, **names)[1] == "nvidia-nccl-cu12==2.25.1"
    runtime = _package("nvidia-cuda-runtime-cu12", "12.4.127")
    assert _kept(eleven, twelve, runtime, **names)[1] == "nvidia-nccl-cu12==2.25.1"
    cupys = _package("cupy-cuda11x", "13.4.1"), _package("cupy-cuda12x", "13.4.0")
    kept = _kept(*cupys, runtime, lost="cupy-cuda12x", winner="cupy-cuda11x")
    assert kept == (["cupy-cuda11x", "cupy-cuda12x"], "cupy-cuda12x==13.4.0")
    builds = _package("tensorflow", "2.20.0"), _package("tensorflow-cpu", "2.20.0")
    assert _kept(*builds, lost="tensorflow", winner="tensorflow-cpu")[1] == "tensorflow==2.20.0"


def test_a_tool_that_is_gone_is_installed_again_by_force():
    facts = {"packages": _package("nvidia-cuda-nvcc-cu12", "12.9.86")}
    (text,) = _texts(facts, "ptxas-missing", packages=["nvidia-cuda-nvcc-cu12"])
    assert re.search(r"reinstall --no-deps nvidia-cuda-nvcc-cu12==12\.9\.86$", text)


def test_both_halves_of_jaxs_plugin_are_of_jaxlibs_release():
    names = ("jaxlib", "jax", "jax-cuda12-plugin", "jax-cuda12-pjrt")
    facts = {"packages": {k: v for name in names for k, v in _package(name, "0.6.2").items()}}
    missed = [{"name": "jax-cuda12-plugin", "wants": "jax-cuda12-plugin<=0.6.2,>=0.6.2"}]
    (text,) = _texts(facts, "package-pin-mismatch", missed=missed, id="P01", stage="packages")
    assert text.endswith("--no-deps jax-cuda12-plugin==0.6.2 jax-cuda12-pjrt==0.6.2")


def test_libraries_that_are_installed_are_led_to_and_not_installed_again(tmp_path, monkeypatch):
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(machine_facts, "read_elf", lambda path: {"problem": None})
    folders = [tmp_path / "nvidia" / part / "lib" for part in ("cublas", "cudnn")]
    for folder, name in zip(folders, ("libcublas.so.12", "libcudnn_ops.so.9"), strict=True):
        folder.mkdir(parents=True)
        (folder / name).touch()
    facts = {"packages": _package("nvidia-cudnn-cu12", "9.1.0.70"), "wheel_folders": list(map(str, folders))}
    missing = {"cannot be opened": {"libcublas.so.12": "", "libcudnn_ops.so.9": ""}}
    texts = _texts(facts, "cudnn-sublibrary-missing", id="R02", stage="ctranslate2", **missing)
    assert texts == [f"export LD_LIBRARY_PATH={folders[0]}:{folders[1]}"]


def test_the_rest_is_installed_first_and_a_folder_that_is_not_there_is_left_out(tmp_path, monkeypatch):
    """CuPy 13 looks in no wheel: what lies in one is not installed again."""
    dead, alive = tmp_path / "python3.10", tmp_path / "mine"
    alive.mkdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{dead}:{alive}")
    monkeypatch.setattr(machine_facts, "read_elf", lambda path: {"problem": None})
    wheels = [tmp_path / "nvidia" / part / "lib" for part in ("cublas", "cuda_runtime")]
    for folder in wheels:
        folder.mkdir(parents=True)
    (wheels[1] / "libcudart.so.12").touch()
    facts = {"packages": _package("nvidia-cuda-runtime-cu12", "12.4.127")}
    facts["wheel_folders"] = list(map(str, wheels))
    check = {"id": "R02", "stage": "cupy", "cause": "nvrtc-missing"}
    check["summary"] = (
        "CuPy asks for libnvrtc.so.12, which cannot be opened; and for libcudart.so.12, installed"
    )
    check["evidence"] = {"cannot be opened": {"libnvrtc.so.12": "", "libcudart.so.12": ""}}
    first, last = commands_here(facts, check)
    assert first["text"].endswith("install 'nvidia-cuda-nvrtc-cu12==12.4.*'")
    assert last["text"] == f"export LD_LIBRARY_PATH={wheels[1]}:{wheels[0]}:{alive}"
    assert f"not there: {dead}" in last["note"]


def test_the_file_that_preloads_is_named_and_not_the_variable():
    (text,) = _texts({}, "preload-interference", cured_by="no-preload-file")
    assert "/etc/ld.so.preload" in text
    assert "LD_PRELOAD" not in text


@pytest.mark.parametrize("pip", [True, False])
def test_every_pip_is_that_of_this_interpreter_and_its_absence_is_said(monkeypatch, pip):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(machine_facts, "_has_pip", lambda: pip)
    facts = {"packages": {**_package("tensorflow", "2.20.0"), **_package("tensorflow-cpu", "2.20.0")}}
    check = {
        "id": "P03",
        "stage": "tensorflow",
        "summary": "",
        "cause": "framework-cpu-build",
        "evidence": {},
    }
    rows = commands_here(facts, check)
    assert rows[0]["text"] == f"{sys.executable} -m pip uninstall -y tensorflow tensorflow-cpu"
    assert all(row["text"].startswith(f"{sys.executable} -m pip ") for row in rows)
    assert all(("-m ensurepip" in (row["note"] or "")) is not pip for row in rows)


def test_every_fact_in_the_lines_of_causes_has_a_meaning_and_every_fact_a_line():
    """A misspelt name would never hold, and the line would be dead."""
    patterns = read_patterns()
    plain = {
        "any",
        "colab",
        "container",
        "conda",
        "slept",
        *patterns["places"],
        *patterns["tags"],
        *told_names(),
    }
    named = set()
    for cause in CAUSES:
        for facts, where, text, note in command_lines(cause):
            named |= {fact.lstrip("!") for fact in facts.split()}
            named |= set(re.findall(r"\{([\w.-]+)\}", text + note))
            assert where != "see" or set(text.split()) <= set(CAUSES)
    assert {name for name in named if not name.startswith("wants-")} <= set(MachineRemedies.FACTS) | plain
    assert set(MachineRemedies.FACTS) <= named


def test_packages_that_a_text_alone_names_are_uninstalled_and_none_is_made_up():
    """Their versions are unknown; and without a name pip has nothing to uninstall."""
    here = TextFacts([])
    here.packages, here.cuda_majors = {"torch": "2.5.1"}, {12}
    for detail, first in (
        ({"names": "nvidia-cudnn-cu11, nvidia-cudnn-cu12"}, "uninstall -y nvidia-"),
        ({"stem": "cudnn"}, "install "),
    ):
        commands = Remedies(here, detail).commands("package-overwritten")
        assert commands[0].text.startswith("pip " + first)
    assert Remedies(here, {}).commands("package-overwritten") == [], "nothing says whose files"
