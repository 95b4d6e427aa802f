"""The commands that mend a cause on this machine, from the facts and the failed check."""

import random
import re
import shlex
import sys
import sysconfig

import pytest
from packaging.requirements import InvalidRequirement, Requirement
from pages import diagnose_score

from builder.verify.cudnn_verify.common import torch_facts
from builder.verify.cudnn_verify.common.causes import CAUSES, command_lines, word_lines
from builder.verify.cudnn_verify.common.remedies import _NOT_BY_IMAGE, Remedies
from builder.verify.cudnn_verify.common.tables import read_facts, read_patterns, told_names
from builder.verify.cudnn_verify.common.versions import numbers
from builder.verify.cudnn_verify.measure import machine_facts
from builder.verify.cudnn_verify.measure.machine_facts import MachineRemedies, commands_here
from builder.verify.cudnn_verify.read.signatures import read_signatures
from builder.verify.cudnn_verify.read.text_facts import TextFacts


@pytest.fixture(autouse=True)
def _pip(monkeypatch):
    """A Python with pip, whether this one has it or not: Debian's own has none."""
    monkeypatch.setattr(machine_facts, "_has_pip", lambda: True)


def _package(name, version, requires=()):
    row = {"name": name, "version": version, "requires": list(requires), "location": "/x", "info": "i"}
    return {name: row}


def _texts(facts, cause, **evidence):
    check = {
        "id": evidence.pop("id", "P02"),
        "stage": evidence.pop("stage", "packages"),
        "summary": evidence.pop("summary", ""),
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
    new = f"{sysconfig.get_path('purelib')}/nvidia/cuda_nvrtc/lib"
    assert last["text"] == f"export LD_LIBRARY_PATH={wheels[1]}:{new}:{wheels[0]}:{alive}"
    assert f"not there: {dead}" in last["note"]


def _ends(facts, cause, **evidence):
    return [text.partition(" install ")[2] or text for text in _texts(facts, cause, **evidence)]


@pytest.mark.parametrize(
    ("packages", "words"),
    [
        (["nvidia-cudnn-cu12"], "torch==2.13.0 --index-url https://download.pytorch.org/whl/cu126"),
        (["nvidia-cudnn-cu13"], "torch==2.13.0"),
        ([], "torch==2.13.0"),
        (["xformers"], "torch==2.9.1"),
        (["torchvision", "torchaudio"], "torch==2.9.1 torchvision==0.24.1 torchaudio==2.9.1"),
        (["peft", "nvidia-cudnn-cu12"], "torch==2.13.0 --index-url https://download.pytorch.org/whl/cu126"),
    ],
    ids=lambda one: "-".join(one) if isinstance(one, list) else "",
)
def test_a_pytorch_for_the_cpu_becomes_one_for_cuda_of_the_release_that_belongs_here(packages, words):
    """What pins another release decides, then the release that is here; never the newest that is known."""
    facts = {"packages": _package("torch", "2.13.0+cpu"), "driver": {"version": "580.65.06"}}
    asked = {"peft": "torch>=1.13", "nvidia-cudnn-cu12": "", "nvidia-cudnn-cu13": ""}
    for name in packages:
        facts["packages"] |= _package(name, "9.20.0.48", [asked.get(name, "torch==2.9.1")])
    assert _ends(facts, "framework-cpu-build", id="P03", stage="torch") == ["--force-reinstall " + words]


def test_a_release_for_one_cuda_is_named_although_no_driver_is_known():
    facts = {"packages": _package("torch", "2.11.0+cpu")}
    (words,) = _ends(facts, "framework-cpu-build", id="P03", stage="torch")
    assert words == "--force-reinstall torch==2.11.0 --index-url https://download.pytorch.org/whl/cu126"
    facts = {"packages": _package("torch", "2.15.0+cpu"), "python": {"version": "3.12.3"}}
    (words,) = _ends(facts, "framework-cpu-build", id="P03", stage="torch")
    assert words == "--force-reinstall torch==2.15.0"


def test_what_a_framework_opens_by_name_is_installed_and_led_to_at_once(monkeypatch):
    """CTranslate2 looks in no wheel: after the installation alone the next run said so."""
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    site = sysconfig.get_path("purelib")
    cudnn = f"{site}/nvidia/cudnn/lib"
    row = {"name": "nvidia-cublas-cu12", "wants": "nvidia-cublas-cu12"}
    facts = {"packages": {**_package("ctranslate2", "4.8.5"), **_package("nvidia-cudnn-cu12", "9.28.0.42")}}
    facts |= {"not_installed": [row], "wheel_folders": [cudnn]}
    absent = [{"name": "libcublas.so.12"}, {"name": "libcublasLt.so.12"}]
    path = f"export LD_LIBRARY_PATH={site}/nvidia/cublas/lib:{cudnn}"
    texts = _ends(facts, "toolkit-library-missing", id="R02", stage="runtime", absent=absent)
    assert texts == ["--no-deps nvidia-cublas-cu12", path]
    lost = {"lost": [row], "id": "P01"}
    assert _ends(facts, "toolkit-library-missing", **lost) == ["--no-deps nvidia-cublas-cu12", path]
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{site}/nvidia/cublas/lib")
    assert _ends(facts, "toolkit-library-missing", **lost) == ["--no-deps nvidia-cublas-cu12"]
    facts["packages"] |= _package("torch", "2.9.1")
    del facts["packages"]["ctranslate2"]
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert _ends(facts, "toolkit-library-missing", **lost) == ["--no-deps nvidia-cublas-cu12"]


def test_all_libraries_that_are_nowhere_are_installed_by_one_command(monkeypatch):
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    site = sysconfig.get_path("purelib")
    facts = {"packages": _package("cupy-cuda12x", "13.6.0")}
    missing = {"libcudart.so.12": "", "libnvrtc.so.12": ""}
    check = {"id": "R02", "stage": "cupy", "cannot be opened": missing}
    check["summary"] = "CuPy asks for libcudart.so.12, libnvrtc.so.12, which cannot be opened"
    install, path = _ends(facts, "toolkit-library-missing", **check)
    assert install == "nvidia-cuda-runtime-cu12 nvidia-cuda-nvrtc-cu12"
    assert path == f"export LD_LIBRARY_PATH={site}/nvidia/cuda_runtime/lib:{site}/nvidia/cuda_nvrtc/lib"


def test_headers_that_are_installed_are_led_to_and_not_installed_again(tmp_path):
    """CuPy takes the folder above an nvcc on PATH, whether it has headers or not."""
    facts = {"packages": {**_package("cupy-cuda12x", "13.4.1"), **_package("nvidia-cudnn-cu12", "9.10.2.21")}}
    check = {"id": "F01", "stage": "cupy", "header": "cuda_fp16.h"}
    assert _ends(facts, "kernel-compiler-missing", **check) == ["nvidia-cuda-runtime-cu12"]
    facts["packages"] |= _package("nvidia-cuda-runtime-cu12", "12.9.79")
    facts["packages"]["nvidia-cuda-runtime-cu12"]["location"] = str(tmp_path)
    header = tmp_path / "nvidia/cuda_runtime/include/cuda_fp16.h"
    header.parent.mkdir(parents=True)
    header.touch()
    path = f"export CUDA_PATH={tmp_path}/nvidia/cuda_runtime"
    assert _ends(facts, "kernel-compiler-missing", **check) == [path]


def test_what_is_here_in_a_version_that_will_do_is_not_installed_again():
    """pip would say "already satisfied", and the fault would stay."""
    facts = {"packages": {**_package("triton", "3.5.1"), **_package("torch", "2.9.1")}}
    check = {"id": "K02", "stage": "kernels"}
    install, path = _ends(facts, "kernel-compiler-too-old", **check)
    assert install == "'nvidia-cuda-nvcc>=13'"
    facts["packages"] |= _package("nvidia-cuda-nvcc", "13.0.88")
    assert _ends(facts, "kernel-compiler-too-old", **check) == [path]
    facts["packages"] |= _package("nvidia-cuda-nvcc", "12.9.86")
    assert _ends(facts, "kernel-compiler-too-old", **check) == [install, path]


def test_a_package_that_two_others_ask_for_is_named_once():
    facts = {"packages": _package("numpy", "1.24.4"), "unmet": []}
    missed = [{"name": "numpy", "wants": "numpy" + pins} for pins in (">=2.0", ">=1.26.0", ">=2.0")]
    (text,) = _ends(facts, "package-pin-mismatch", missed=missed, id="F01", stage="jax")
    assert text == "--no-deps 'numpy>=2.0,>=1.26.0'"


def test_only_the_companions_that_are_installed_are_installed_anew():
    facts = {"packages": {**_package("torch", "2.9.1+cu128"), **_package("torchvision", "0.20.0")}}
    check = {"id": "P04", "stage": "packages", "cause": "extension-mismatch", "evidence": {}}
    check["summary"] = "torchvision 0.20.0 does not load: undefined symbol: _ZN3c10"
    (row,) = commands_here(facts, check)
    assert (
        " torch==2.9.1 torchvision==0.24.1 --index-url https://download.pytorch.org/whl/cu128" in row["text"]
    )


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
        "sure",
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
        for facts, sentence in word_lines(cause):
            named |= {fact.lstrip("!") for fact in facts.split()}
            named |= set(re.findall(r"\{([\w.-]+)\}", sentence))
    assert {name for name in named if not name.startswith("wants-")} <= set(MachineRemedies.FACTS) | plain
    assert set(MachineRemedies.FACTS) <= named


def test_every_word_that_chooses_a_command_is_one_of_a_signature():
    """A misspelt one would never hold: ``wants-…`` of causes.ini, and those that no image is a remedy for."""
    wanted = {signature.wants for signature in read_signatures() if signature.wants}
    rows = [row for cause in CAUSES for row in command_lines(cause)]
    facts = {fact.lstrip("!") for names, *_ in rows for fact in names.split()}
    chosen = {fact for fact in facts if fact.startswith("wants-")}
    assert len(chosen) > 50
    assert chosen <= {"wants-" + word.replace(" ", "-") for word in wanted}
    assert set(_NOT_BY_IMAGE) <= wanted


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


EMPTY = ("", " ", "''", [], (), [""], ("",), ["--upgrade", ""], None, False)
"""What a fact may be where nothing is known."""
CUT_OFF = ("torch==", "nvidia-cudnn-cu12==.*", "cudnn>=,<10", "export LD_PRELOAD=", "nvidia-cudnn-cuNone")
"""What is put together of a name and a version, or a path, that is empty."""
UNSET = re.compile(r"%env [A-Z_]+=")
"""The one command that gives a variable nothing, on purpose: a notebook has no ``unset``."""


def lacks(text):
    """What a command lacks, as a shell and pip would read it; nothing if it is whole."""
    words = shlex.split(text)
    if "" in words or (re.search(r"\{[\w.-]+\}", text) and "${" not in text and "$(" not in text):
        return "an empty argument or a placeholder"
    if re.search(r"(?:^|\s|;)(?:export\s+)?\w+=(?=\s|;|$)", text) and not UNSET.fullmatch(text):
        return "a variable with nothing"
    for word in (word for word in words if re.match(r"[\w.\[\],-]+(==|>=|<=|~=|!=)", word)):
        try:
            Requirement(word)
        except InvalidRequirement:
            return f"a requirement: {word}"
    if words[-1] in ("install", "uninstall", "-y", "--no-deps", "--force-reinstall", "unset", "--index-url"):
        return "what it is about"
    return "None" if re.search(r"(?<!expandable_segments:)(\b|-cu)(None|True|False)\b", text) else ""


LINES = [(cause, *line) for cause in CAUSES for line in command_lines(cause) if line[1] != "see"]


@pytest.mark.parametrize("nothing", [*EMPTY, *CUT_OFF], ids=repr)
def test_no_command_is_made_of_a_fact_that_is_empty(nothing, monkeypatch):
    """Of every line of every cause, with each of its facts in turn empty and the others known."""
    everything = dict.fromkeys(MachineRemedies.FACTS, lambda _: "1.2")
    facts: dict = {}
    monkeypatch.setattr(MachineRemedies, "FACTS", facts)
    asked = 0
    for cause, conditions, where, text, note in LINES:
        absent = {name[1:]: lambda _: None for name in conditions.split() if name.startswith("!")}
        for empty in sorted(set(re.findall(r"\{([\w.-]+)\}", text + note))):
            facts.update(everything | absent | {empty: lambda _: nothing})
            remedies = MachineRemedies({}, {"id": "E01", "stage": "files", "summary": "", "cause": cause})
            assert remedies._filled(where, text, note) == [], (cause, empty)
            asked += 1
    assert asked > 100


def test_what_a_line_says_by_itself_is_whole(monkeypatch):
    monkeypatch.setattr(MachineRemedies, "FACTS", {name: lambda _: "1.2" for name in MachineRemedies.FACTS})
    remedies = MachineRemedies({}, {"id": "E01", "stage": "files", "summary": "", "cause": "crash"})
    for cause, _, where, text, note in LINES:
        for command in remedies._filled(where, text, note):
            assert lacks(command.text) == "", (cause, command.text)
    for text in (
        "pip install",
        "unset",
        "export LD_PRELOAD=",
        "pip install torch==",
        "pip install ''",
        "rm {path}",
    ):
        assert lacks(text), text


DRAWS = 25
"""For each cause, of each kind."""
DETAILS = re.findall(
    r"\w+",
    "line matched library path variable flag what wanted name listed pin module compiled loaded minimum "
    "part jaxlib requirement names stem soname toolkit package instead cubin branch last host arch major "
    "minor old header object own number variant torch_cuda printed_by",
)
"""Names of what is known of a fault in a text."""
FAULTY = (
    "libcublas.so.12: cannot open shared object file",
    "torch",
    "torchvision",
    "jax",
    "tensorflow",
    "onnxruntime",
    "cupy",
    "ctranslate2",
    "12",
    "2.9.1",
    "13.0",
)


@pytest.mark.slow
@pytest.mark.parametrize("cause", CAUSES)
def test_no_command_for_a_text_lacks_anything_whatever_is_not_known(cause):
    """Facts and details of a text, drawn at random, each of them empty as often as not."""
    draw = random.Random(cause)
    for _ in range(DRAWS):
        here = TextFacts([])
        some = draw.sample(["torch", "torchvision", "jax", "jaxlib", "tensorflow", "onnxruntime", "cupy"], 3)
        some += ["ctranslate2", "nvidia-cudnn-cu12", "vllm", "triton"][draw.randrange(4) :]
        here.packages = {name: draw.choice(["", "2.9.1", "2.9.1+cu128", "2.9.1+cpu", "0"]) for name in some}
        here.cuda_majors = draw.choice([set(), {12}, {13}, {11, 12}])
        here.driver, here.driver_cuda = draw.choice(["", None, "580.65"]), draw.choice(["", None, "12.4"])
        here.capability, here.python = draw.choice([None, "", "9.0"]), draw.choice([None, "", "3.11"])
        here.printed_by = set(draw.sample(["torch", "jax", "vllm", "cupy", "torchcodec"], 2))
        here.library_path = draw.choice([None, "", "/x"])
        detail = {name: draw.choice([None, "", draw.choice(FAULTY)]) for name in DETAILS}
        for name, number in (("wanted", "14"), ("arch", "90"), ("major", "12"), ("minor", "8")):
            detail[name] = draw.choice([None, "", number])  # numbers by their signatures
        for command in Remedies(here, detail, [draw.choice(["torch", "jax", "cupy"])]).commands(cause):
            assert lacks(command.text) == "", (command, detail)


@pytest.mark.slow
@pytest.mark.parametrize("cause", CAUSES)
def test_no_command_of_the_probe_lacks_anything_whatever_was_not_read(cause, monkeypatch):
    """Facts of a machine and the evidence of a check, drawn at random, each empty as often as not."""
    draw = random.Random(cause)
    names = [
        "torch",
        "torchvision",
        "jax",
        "jaxlib",
        "tensorflow",
        "onnxruntime-gpu",
        "cupy-cuda12x",
        "ctranslate2",
        "triton",
    ]
    names += ["nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cuda-runtime-cu12", "nvidia-cuda-nvrtc-cu12"]
    asked = [
        "",
        "torch",
        "torch==2.9.1",
        "nvidia-cudnn-cu12",
        "nvidia-cudnn-cu12==9.1.0.70; extra == 'x'",
        ";",
    ]
    known = ["libcublas.so.12", "libnvrtc.so.12", "libcudnn.so.9", "libcupti.so", "", None]
    for _ in range(DRAWS):
        monkeypatch.setenv("LD_LIBRARY_PATH", draw.choice(["", ":", "/x/stubs", "/x/stubs:/y", "/a b:"]))
        some = draw.sample(names, 5)
        packages = {}
        for name in some:
            packages |= _package(name, draw.choice(["", "2.9.1", "2.9.1+cpu", "0"]), draw.sample(asked, 2))
        changed = [{"path": "/x/a.so", "not_as_in": some[:1], "as_in": draw.choice([[], some[1:2]])}]
        evidence = {
            "packages": draw.choice([None, [], some[:2], [""]]),
            "changed": draw.choice([[], changed]),
            "missed": draw.choice([[], [{"name": "torch", "wants": draw.choice(["", "torch==2.9.1"])}]]),
            "off": draw.choice([None, [], [""], ["TORCH_CUDNN_V8_API_DISABLED"]]),
            "closed": draw.choice([None, [], [""], ["/x/ptxas"]]),
            "cannot be opened": draw.choice([{}, {draw.choice(known) or "": ""}]),
            "absent": draw.choice([[], [{"name": draw.choice(known)}]]),
            "variable": draw.choice([None, "", "JAX_PLATFORMS"]),
            "compiled": draw.choice([None, "", "9.1"]),
            "loaded": draw.choice([None, "", "8.9"]),
            "header": draw.choice([None, "cuda_fp16.h"]),
        }
        facts = {
            "packages": packages,
            "wheel_folders": draw.choice([[], ["/x/nvidia/cublas/lib"]]),
            "driver": {"version": draw.choice([None, "", "580.65"]), "api": draw.choice([None, "", "13.0"])},
            "gpus": draw.choice([[], [{"compute_capability": draw.choice([None, "", "9.0"])}]]),
            "not_installed": draw.choice([[], [{"name": "nvidia-cublas-cu12", "wants": ""}]]),
            "copies": draw.choice([[], [{"major": 9, "folder": draw.choice(["", "/x/nvidia/cudnn/lib"])}]]),
        }
        check = {"id": draw.choice(["R02", "P01", "P02", "E06", "F02"]), "cause": cause, "evidence": evidence}
        check["stage"] = draw.choice(["runtime", "packages", "torch", "cupy", "ctranslate2"])
        check["summary"] = draw.choice(["", "CuPy asks for libcublas.so.12", "torch opens libcudnn.so.9"])
        for row in commands_here(facts, check):
            assert lacks(row["text"]) == "", (row, facts, evidence)


@pytest.mark.parametrize("name", sorted(torch_facts._COMPANION_OF))
def test_a_companion_by_the_number_of_pytorch_is_the_one_of_the_table(name):
    """Beside each release that pins one of PyTorch."""
    expression = torch_facts._companion_of(name)
    pairs = [(numbers(row[1]), row[2]) for row in read_facts()["pairs"][name] if row[2].startswith("==")]
    pairs = [(release, numbers(wanted[2:])) for release, wanted in pairs]
    assert len(pairs) > 20
    for release, (a, b, *_) in pairs:
        assert eval(expression, {"a": a, "b": b, "min": min}) == f"{name}=={release[0]}.{release[1]}.*"


_PLACES = {
    "pip": "",
    "uv": "uv pip install -r requirements.txt",
    "conda": "/opt/conda/envs/x",
    "docker": "docker run --gpus all image",
    "colab": "on Google Colab",
    "portable": r"D:\ComfyUI_windows_portable\python_embeded\python.exe",
    "windows": "on Windows 11",
    "wsl": "in WSL2",
    "jetson": "Jetson Orin, JetPack 6",
    "fedora": "Fedora 42",
}
_CARDS = {"cudnn-arch-dropped": "GTX 1080"}
"""The card of a text where a cause is one of certain cards."""
_BESIDE = "NVIDIA GeForce %s, Driver Version: 550.54.15, CUDA Version: 12.4\nPython 3.12\ntorch 2.8.0+cu128"


@pytest.mark.slow
def test_each_cause_has_a_command_in_each_place_or_says_why_there_is_none():
    """What an example of a signature is answered beside a card, a driver and packages, in ten places."""
    examples = {}
    for signature in read_signatures():
        for cause in signature.causes[:1]:
            examples.setdefault(cause, []).append(signature.example)
    reasons, silent = read_patterns()["no-command"].values(), []
    for cause, texts in examples.items():
        beside = _BESIDE % _CARDS.get(cause, "RTX 3090")
        for place, words in _PLACES.items():
            told = []
            for text in texts[:12]:
                rows = diagnose_score.answer(f"{text}\n{words}\n{beside}")["causes"]
                told += [row for row in rows if row["cause"] == cause]
                if told and (told[-1]["commands"] or any(why in told[-1]["remedy"] for why in reasons)):
                    break
            else:
                silent += [(cause, place)] if told and not CAUSES[cause].without else []
    assert silent == []


NO_FILE = "cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("text", "cause", "command"),
    [
        # a program without Python gets the library itself, where its system has it
        (
            f"./whisper-cli: error while loading shared libraries: libcublas.so.12: {NO_FILE}",
            "toolkit-library-missing",
            "cuda-libraries-12-9",
        ),
        (
            (
                "thread 'main' panicked at src/main.rs:6:8: Failed to load library "
                f"libonnxruntime_providers_cuda.so with error: libcublasLt.so.12: {NO_FILE}\n"
                "libcurand.so.10 => /opt/cuda/lib64/libcurand.so.10"
            ),
            "cuda-major-mixed",
            "conda create -y -p $HOME/cuda-12.9 -c nvidia cuda-libraries=12.9",
        ),
        # what is compiled for the PyTorch here does not get another PyTorch
        (
            f"import flash_attn_2_cuda as flash_attn_gpu\nImportError: libcudart.so.12: {NO_FILE}",
            "cuda-major-mixed",
            "--no-binary flash-attn flash-attn",
        ),
        (
            "multiple CuPy packages are installed\ncupy-cuda12x, cupy-cuda13x\nimport cudf",
            "package-overwritten",
            "pip uninstall -y cupy-cuda12x cupy-cuda13x",
        ),
        # CUDA's wheels of two majors in a list, and the line that fails is another library's
        (
            (
                "nvidia-nvshmem-cu12 3.4.5\nnvidia-nvshmem-cu13 3.4.5\ntorch 2.10.0\nvllm 0.17.0\n"
                f"ImportError: libcudart.so.12: {NO_FILE}"
            ),
            "cuda-major-mixed",
            "vllm==0.17.0",
        ),
        (
            "- CUDA devices available: 8\ncudaErrorInsufficientDriver, cutlass",
            "driver-too-old",
            "cuda-python<13",
        ),
        (
            (
                "- `kernels==0.12.3` + `transformers==4.57.6` \u2192 imports fine\n"
                "ImportError: huggingface-hub>=0.34.0,<1.0 is required for a normal functioning of this "
                "module, but found huggingface-hub==1.24.0."
            ),
            "package-pin-mismatch",
            "kernels==0.12.3 transformers==4.57.6",
        ),
        (
            (
                "the name only exists in transformers >=5.13\n"
                "ImportError: cannot import name 'PreTrainedConfig' from 'transformers.configuration_utils'"
            ),
            "package-pin-mismatch",
            "transformers>=5.13",
        ),
        # by where the header or the symbol that fails belongs
        (
            (
                "torch/include/c10/util/Half.h(537): error: more than one conversion function applies\n"
                '2 errors detected in the compilation of "csrc/layernorm.cu".'
            ),
            "build-toolkit-mismatch",
            "cuda-toolkit-$(python3",
        ),
        ("error: 'THCState' was not declared in this scope", "extension-mismatch", "AT_CHECK"),
        ("ops.o: undefined reference to `cublasGemmEx'", "build-toolkit-mismatch", "-lcublas"),
        (
            "/usr/bin/ld: cannot find -lcudart: No such file or directory",
            "unversioned-name-missing",
            "LIBRARY_PATH=/usr/local/cuda/lib64:",
        ),
        (
            "libonnxruntime_providers_cuda.so: undefined symbol: nvrtcGetProgramLogSize\npkgs of NixOS",
            "extension-mismatch",
            "/nix/store/*nvrtc*/lib",
        ),
        (
            "nvlink error   : Undefined reference to '_Z3fooPf' in 'a.o'",
            "build-toolkit-mismatch",
            "SEPARABLE",
        ),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_'", "build-toolkit-mismatch", "tr -d ."),
        (
            "cuda.h:100:61: error: too few arguments to function 'cuMemPrefetchAsync_v2', with CUDA 13",
            "build-toolkit-mismatch",
            "cuda-toolkit-12-9",
        ),
        ("CUDA 13.1 builds fail because the server compiles other APIs", "build-toolkit-mismatch", "12-9"),
        # Windows has lines of its own
        ("error: command 'cl.exe' failed: None", "build-toolkit-missing", "VisualStudio.2022.BuildTools"),
        ("CMake Error: No CUDA toolset found.", "build-toolkit-missing", "-G Ninja"),
        ("Could not create named generator Visual Studio 18 2026", "build-toolkit-mismatch", "Kitware.CMake"),
        (
            "torch/csrc/dynamo/compiled_autograd.h(1143): error C2872: 'std': ambiguous symbol",
            "build-toolkit-mismatch",
            "set CL=/DUSE_CUDA",
        ),
        # a driver
        (
            "Isaac Sim segfaults in librtx.scenedb.plugin.so with driver 595",
            "framework-known-bad",
            "580-open",
        ),
        (
            "it crashes after updating the NVIDIA driver to 595; rolling back to 570.172 fixes it",
            "driver-error",
            "nvidia-driver-570",
        ),
        ("RTX 5060 Ti: Xid 109 (GSP CTX SWITCH TIMEOUT)", "driver-error", "dmesg"),
        # containers
        ('exec: "nvidia-smi": executable file not found in $PATH: unknown', "container-no-gpu", "--gpus all"),
        (
            "ImportError: cannot import name 'LLM' from 'vllm' (unknown location)",
            "module-shadowed",
            "__path__",
        ),
        (
            "ValueError: 'aimv2' is already used by a Transformers config, pick another name.",
            "package-pin-mismatch",
            "transformers<4.54",
        ),
    ],
)
def test_the_first_command_fits_what_stays_and_the_system_of_the_text(text, cause, command):
    document = diagnose_score.answer(text)
    assert document["cause"] == cause
    assert command in document["causes"][0]["commands"][0]["text"]


def test_the_words_name_the_driver_that_the_text_asks_for():
    asked = diagnose_score.answer("minimum required Nvidia driver for nvenc is 610.00 or newer")
    assert "branch 610" in asked["causes"][0]["remedy"]
    ptx = diagnose_score.answer("the provided PTX was compiled with an unsupported toolchain")
    assert "12.2: 535" in ptx["causes"][0]["remedy"]


def test_a_first_cause_without_a_command_has_the_look_at_what_decides_on_it():
    document = diagnose_score.answer("0.11.1 [CudaDevice(id=0)] jax\ncudaErrorNoKernelImageForDevice")
    assert (document["cause"], document["causes"][0]["commands"]) == ("framework-arch-missing", [])
    assert "compute_cap" in document["look"]["command"]
