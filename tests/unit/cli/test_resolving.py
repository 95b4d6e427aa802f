"""rtbuild resolve: a matrix on stdout, talk on stderr, and only what the package index has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from foreign_input import typed
from packaging.requirements import Requirement
from packaging.version import Version
from rtbuild_command import called

from builder.cli import first_matrix
from builder.cli.commands import resolve as command
from builder.core.errors import (
    CellError,
    NoSolutionError,
    NothingPossibleError,
    NotKnownError,
    PackageIndexError,
    UsageError,
)
from builder.core.model import Wheel
from builder.image.engine.facts import Gpu
from builder.plan.matrix import load
from builder.plan.resolve import solve
from builder.sources.index.client import ask
from builder.sources.index.simple_api import IndexFile
from builder.sources.index.target import Target, rank
from builder.sources.index.uv import IndexSettings

LINUX = "manylinux_2_17_x86_64.manylinux2014_x86_64"


class Offered:
    """An index by what it lists; a project that it does not list raises as one that is down."""

    settings = IndexSettings(default="http://index.invalid")

    def __init__(self, own: dict[str, list[str]] | None = None, **files: list[str]) -> None:
        self.files = {name.replace("_", "-"): found for name, found in files.items()}
        self.own = own or {}
        """What indexes that a cell may name list, by the last part of their address."""
        self.asked: list[str] = []

    def offers_of(self, url: str, name: str) -> tuple[IndexFile, ...]:
        variant = url.rpartition("/")[2]
        if variant not in self.own:
            raise PackageIndexError(f"package index {url}/{name}/: the host name is unknown")
        return Offered(**{name: self.own[variant]}).offers(name)

    def with_extra(self, urls: tuple[str, ...]) -> Offered:
        """A project of an index that a cell names hides the default's of that name."""
        files = dict(self.files)
        for variant in (url.rpartition("/")[2] for url in urls):
            files |= {"torch": self.own[variant]} if variant in self.own else {}
        return Offered(self.own, **files)

    def resolve(self, requirements, *, target: Target, built=(), limit=None) -> tuple[Wheel, ...]:
        """A resolver's double: each listed project on its own, without what it depends on itself."""
        fitting = target.tags()
        found = []
        for parsed in map(Requirement, requirements):
            files = self.files.get(parsed.name)
            if files is None:
                continue
            wheels = [
                (Version(file.split("-")[1]), file)
                for file in files
                if file.endswith(".whl")
                and parsed.specifier.contains(file.split("-")[1])
                and rank(file, fitting) is not None
            ]
            if not wheels:
                raise NoSolutionError(f"{parsed} has no wheel for Python {target.python}")
            version, file = max(wheels)
            found.append(Wheel(name=parsed.name, version=str(version), file=file, sha256="0" * 64, size=1))
        return tuple(found)

    def offers(self, name: str) -> tuple[IndexFile, ...]:
        self.asked.append(name)
        if name not in self.files:
            raise PackageIndexError(f"package index http://index.invalid/{name}/: connection refused")
        return tuple(
            IndexFile(
                name=file.removesuffix(" yanked"),
                url="http://index.invalid/x",
                sha256=None,
                yanked="bad" if file.endswith(" yanked") else None,
            )
            for file in self.files[name]
        )


def wheel(version: str, python: str = "311", name: str = "torch") -> str:
    return f"{name}-{version}-cp{python}-cp{python}-{LINUX}.whl"


def resolve(*requirements: str, index: Offered | None, gpus=(), driver=None, **options) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_matrix, "nvidia_smi", lambda: ((), None))
        patch.setattr(command.Index, "from_user", lambda **_: index)
        return called(
            command.resolve,
            list(requirements),
            gpu=list(gpus),
            driver=[driver] if isinstance(driver, str) else driver,
            conda_=options.pop("conda", None),
            offline=index is None,
            json_=options.pop("json", False),
            **options,
        )


def test_a_matrix_on_stdout_that_loads_and_the_origin_on_stderr(capsys, tmp_path) -> None:
    index = Offered(torch=[wheel("2.8.0"), wheel("2.7.1")])
    assert resolve("torch", index=index, name="mine", limit=2, verbose=1) == 0
    shown = capsys.readouterr()
    path = tmp_path / "mine.yaml"
    path.write_text(shown.out)
    matrix = load(path)
    assert matrix.name == "mine"
    assert len(matrix.cells) == 2
    assert {(cell.frameworks, cell.python) for cell in matrix.cells} == {(("torch==2.8.0",), "3.11")}
    assert "torch: versions from the index: it has 2 releases" in shown.err
    steps = [line for line in shown.err.splitlines() if line.startswith("mine  check: ")]
    assert steps[0] == "mine  check: asking the index about torch"
    assert any("uv resolves set 1 of at most " in step for step in steps)


def test_a_program_that_is_no_package_is_sent_to_its_own_requirements() -> None:
    with pytest.raises(UsageError) as refused:
        resolve("ComfyUI", index=None)
    assert "`rtbuild resolve torch -r THEIR/requirements.txt`" in str(refused.value.hint)


def test_what_is_not_known_of_a_jetson_is_said_once_with_what_people_do() -> None:
    index = Offered(torch=["torch-2.15.0-cp313-cp313-manylinux_2_28_aarch64.whl"])
    with pytest.raises(NothingPossibleError, match="whose own wheels have it") as refused:
        resolve("torch", index=index, gpus=("Jetson Orin Nano",))
    assert "JetPack" in str(refused.value.hint)
    with pytest.raises(NotKnownError) as raised:
        resolve("torch", index=None, gpus=("Jetson Orin Nano",))
    assert raised.value.message.count("run on a Jetson is not known") == 1
    assert "whether PyTorch" not in raised.value.message
    assert "JetPack" in str(raised.value.hint)
    assert len(raised.value.reasons) == len(set(raised.value.reasons))


def test_a_card_that_is_built_together_with_an_arm_processor_gets_an_arm_cell(capsys, tmp_path) -> None:
    arm = "torch-2.11.0-cp311-cp311-manylinux_2_28_aarch64.whl"
    assert resolve("torch", index=Offered(torch=[wheel("2.11.0"), arm]), gpus=("GH200",), limit=1) == 0
    shown = capsys.readouterr()
    (tmp_path / "arm.yaml").write_text(shown.out)
    assert [cell.platform for cell in load(tmp_path / "arm.yaml").cells] == ["linux/arm64"]
    assert "rootfs:debian/bookworm, linux/arm64: possible; the resolver finds 1 wheel for" in shown.err


def test_a_yanked_release_a_candidate_and_other_systems_are_not_there() -> None:
    files = [
        wheel("2.8.0") + " yanked",
        wheel("2.9.0rc1"),
        "torch-2.9.1-cp311-none-macosx_11_0_arm64.whl",
        "torch-2.7.0-cp311-cp311-manylinux_2_28_aarch64.whl",
        "torch-2.6.0.tar.gz",
        "torch-x.whl",
        wheel("2.7.1"),
    ]
    assert ask(["Torch"], Offered(torch=files))["torch"].versions == ("2.7.1",)


def test_the_wheels_of_nvidia_are_looked_for_too(capsys) -> None:
    name = "nvidia_cudnn_cu12"
    index = Offered(
        tensorflow=[wheel("2.15.1", name="tensorflow")],
        nvidia_cudnn_cu12=[f"{name}-9.1.0.70-py3-none-{LINUX}.whl"],
    )
    assert resolve("tensorflow==2.15.*", index=index, json=True, limit=50) == 0
    document = json.loads(capsys.readouterr().out)
    packages = [cell["cell"]["cuda"]["packages"] for cell in document["proposals"]]
    assert not any("cudnn" in package for found in packages for package in found)
    assert document["requirements"] == [
        {
            "requirement": "tensorflow==2.15.*",
            "versions_from": "index",
            "reason": "it has 1 releases with wheels for Linux on x86-64",
        }
    ]
    assert document["matrix"].startswith("version: 1\n")


def test_where_the_index_is_down_the_facts_are_asked_and_it_says_so(capsys) -> None:
    assert resolve("torch==2.9.*", index=Offered()) == 0
    assert "versions from the facts: package index http://index.invalid/torch/: connection refused" in (
        capsys.readouterr().err
    )


def test_offline_asks_nobody(capsys) -> None:
    assert resolve("torch==2.9.*", index=None, limit=1) == 0
    assert "versions from the facts: the index was not asked" in capsys.readouterr().err


def indexes(shown: str) -> dict[str, list[str]]:
    """The indexes that each proposed framework comes from, out of ``--json``."""
    return {p["cell"]["frameworks"][0]: p["cell"]["index"] for p in json.loads(shown)["proposals"]}


def test_the_index_of_a_cuda_variant_is_asked_for_what_it_is_proposed_for(capsys) -> None:
    own = {"cu118": [wheel("2.1.2+cu118"), wheel("2.1.1+cu118")]}
    assert resolve("torch==2.1.*", index=Offered(own, torch=[wheel("2.1.2")]), json=True) == 0
    found = indexes(capsys.readouterr().out)
    assert list(found) == ["torch==2.1.2", "torch==2.1.2+cu118"]
    assert found["torch==2.1.2+cu118"][0].endswith("/cu118")
    other = Offered({"cu118": [wheel("2.1.1+cu118")]}, torch=[wheel("2.1.2")])
    assert resolve("torch==2.1.*", index=other, json=True) == 0
    assert list(indexes(capsys.readouterr().out)) == ["torch==2.1.2"]
    with pytest.raises(CellError, match=r"torch==2.1.2\+cu118 has no wheel for Python"):
        resolve("torch==2.1.2+cu118", index=other)


def test_a_variants_index_that_does_not_answer_is_said_with_the_proposal(capsys) -> None:
    index = Offered(torch=[wheel("2.8.0")])
    assert resolve("torch==2.9.1+cu126", index=index) == 0
    assert (
        "the resolver was not asked: package index https://download.pytorch.org/whl/cu126"
        in capsys.readouterr().err
    )
    assert resolve("torch==2.9.1+cu126", index=Offered({"cu126": [wheel("2.9.1+cu126")]}, torch=[])) == 0
    assert "the resolver finds 1 wheel for it" in capsys.readouterr().err


def test_a_variant_on_the_users_own_index_needs_no_other(capsys) -> None:
    index = Offered(torch=[wheel("2.1.2"), wheel("2.1.1+cu118")])
    assert resolve("torch==2.1.*", index=index, json=True) == 0
    assert indexes(capsys.readouterr().out) == {"torch==2.1.2": [], "torch==2.1.1+cu118": []}


def test_what_the_index_does_not_have_is_refused_by_name(capsys) -> None:
    with pytest.raises(CellError, match="no wheel of torch for Linux"):
        resolve("torch", index=Offered(torch=[]))
    with pytest.raises(CellError, match="no release on record that the package index has fits torch"):
        resolve("torch==2.9.*", index=Offered(torch=[wheel("2.8.0")]))
    one = Offered(tensorflow=[wheel("2.20.0", name="tensorflow")])
    with pytest.raises(CellError, match=r"==2.20.0 has no wheel for Python 3.13"):
        resolve("tensorflow==2.20.*", index=one, python="3.13")
    with pytest.raises(UsageError, match="not a requirement"):
        resolve("torch==", index=None)
    assert capsys.readouterr().out == ""


def test_frameworks_whose_pins_clash_are_refused_with_them() -> None:
    with pytest.raises(CellError, match="nvidia-cudnn-cu11 and nvidia-cudnn-cu13 write the same files"):
        resolve("tensorflow==2.8.*", "torch==2.9.*", index=None)


def test_a_mig_slice_is_judged_as_its_card_with_a_note(capsys) -> None:
    assert resolve("torch", index=None, gpus=("NVIDIA H100 80GB HBM3 MIG 1g.10gb",), limit=1) == 0
    assert "CUDA shows a process one MIG slice" in capsys.readouterr().err
    assert resolve("torch", index=None, gpus=("NVIDIA H100 80GB HBM3",), limit=1) == 0
    assert "MIG" not in capsys.readouterr().err


def test_without_a_wheel_only_releases_on_record_are_spoken_of() -> None:
    with pytest.raises(CellError) as refused:
        resolve("jax", index=None, gpus=("RTX2060",), driver="535", python="3.8")
    assert "no release of JAX on record, which are from 0.4." in str(refused.value)


def said(capsys) -> list[str]:
    """The lines on stderr, without those of the steps."""
    return [line for line in capsys.readouterr().err.splitlines() if "  check: " not in line]


def test_the_answer_comes_first_with_its_line_for_pip_and_what_to_type_next_last(capsys, tmp_path) -> None:
    assert resolve("torch", index=None, gpus=("RTX3090",), driver="535", limit=1) == 0
    answer, by_pip, *_, following = said(capsys)
    index = "https://download.pytorch.org/whl/cu126"
    assert answer.startswith("possible: torch==2.14.1+cu126 on Python 3.13 with CUDA 12.6, for RTX")
    assert answer.endswith(
        "for RTX3090, driver 535; the resolver was not asked: the index was not asked (--offline)"
    )
    assert by_pip.endswith(f"pip install torch==2.14.1+cu126 --extra-index-url {index}")
    assert "on Python 3.13 and a system with glibc 2.28 or later: " in by_pip
    assert following == "next: with `-o matrices/torch.yaml`, rtbuild build matrices/torch.yaml"
    path = tmp_path / "x.yaml"
    assert resolve("torch", "tqdm", index=None, gpus=("RTX3090",), driver="535", limit=1) == 0
    assert said(capsys)[2] == "    which of these have a wheel was not asked; pip compiles the others"
    assert resolve("tensorflow==2.4.*", index=None, limit=1, output=path) == 0  # CUDA of the base image
    answer, by_pip, where, *_, following = said(capsys)
    assert answer.startswith(
        "possible, with a reservation: tensorflow==2.4.4, protobuf<3.21, numpy<2 on Python 3.8 with CUDA 11.0"
    )
    assert "on Python 3.8: pip install tensorflow==2.4.4" in by_pip
    assert "where the system has CUDA and cuDNN, as nvidia/cuda:11.0.3" in where
    assert following == f"{path} is written; next: rtbuild build {path}"


def test_of_several_drivers_the_oldest_decides_and_each_is_asked(capsys) -> None:
    assert resolve("torch", index=None, gpus=("RTX3090",), driver=["580.65.06", "535"], limit=1) == 0
    answer, *_ = said(capsys)
    assert answer.startswith("possible: torch==2.14.1+cu126 ")
    assert "for RTX3090, driver 535 and 580.65.06" in answer
    with pytest.raises(NothingPossibleError, match=r"with driver 590: .*V100") as refused:
        resolve("torch", index=None, gpus=("V100",), driver=["535,590"], limit=1)
    assert "each driver by itself" in str(refused.value.hint)
    with pytest.raises(UsageError, match=r"--driver 12\.4 is a CUDA version"):
        resolve("torch", index=None, gpus=("T4",), driver=["535", "12.4"])


def test_what_several_cells_have_in_common_is_said_once_and_all_of_it_with_verbose(capsys) -> None:
    index = Offered(torch=[wheel("2.8.0"), wheel("2.7.1"), wheel("2.7.0")])
    assert resolve("torch", index=index, limit=4) == 0
    brief = said(capsys)
    rows = [line for line in brief if re.match(r"\d\. ", line)]
    assert len(rows) == 4
    unread = "whether they load and import was not asked"
    assert [unread in line for line in rows].count(True) < 3
    assert ": possible; as " in rows[-1]
    assert not any("versions from the index" in line or "[table: " in line for line in brief)
    assert resolve("torch", index=index, limit=4, verbose=1) == 0
    assert [unread in line for line in said(capsys)].count(True) == 4


def test_a_conda_environment_is_resolved_in_wheels(capsys, tmp_path) -> None:
    path = tmp_path / "environment.yml"
    path.write_text("dependencies: [python=3.9, pytorch==1.12.1, cudatoolkit=11.3, torchaudio]\n")
    assert resolve(index=None, conda=path, json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert {p["cell"]["frameworks"][0] for p in document["proposals"]} == {"torch==1.12.1+cu113"}
    assert {p["cell"]["python"] for p in document["proposals"]} == {"3.9"}
    assert document["beside"] == ["torchaudio"]
    left, system, *_ = document["notes"]
    assert left == f"{path}: cudatoolkit: not taken over"
    assert "neither a CUDA toolkit nor cuDNN" in system
    with pytest.raises(UsageError, match="No such file"):
        resolve(index=None, conda=tmp_path / "nowhere.yml")


def test_the_document_has_all_that_the_text_has_and_what_is_typed(capsys, tmp_path) -> None:
    """The text is the document's own lines; a note is told by its kind, and pip's line is a field."""
    path = tmp_path / "requirements.txt"
    path.write_text("torch==2.7.1\ntorchvision\n")
    asked = {"requirement_file": [path], "gpus": ("V100",), "driver": "535", "as_of": "2025-07", "limit": 2}
    index = Offered(torch=[wheel("2.7.1")], torchvision=[wheel("0.22.1", name="torchvision")])
    assert resolve(index=index, json=True, **asked) == 0
    document = json.loads(capsys.readouterr().out)
    assert resolve(index=index, **asked) == 0
    shown = capsys.readouterr().err
    assert [line["text"] for line in document["said"] if line["text"] not in shown] == []
    assert document["pip"] == ["pip install torch==2.7.1 torchvision==0.22.1"]
    assert document["as_of"]["date"] >= "2025-07"
    notes = {line["about"]: line["text"] for line in document["said"] if line["kind"] == "note"}
    assert notes["system"].startswith("  on the system: NVIDIA's driver, 525.60.13 or newer, and neither")
    assert notes["card"].startswith("note: 580 is the last driver branch for V100")
    way = next(line for line in document["said"] if line["kind"] == "python")
    assert way["command"].startswith("uv venv --seed --python 3.")


def test_the_resolver_has_the_last_word_and_the_next_best_is_proposed(capsys) -> None:
    index = Offered(torch=[wheel("2.8.0"), wheel("2.7.1")], torchvision=[wheel("0.22.1", name="torchvision")])
    assert resolve("torch", "torchvision", index=index, limit=1) == 0
    shown = capsys.readouterr()
    # 2.8.0 goes with torchvision 0.23.0, which this index lacks
    shown_first = (
        "torch==2.7.1, torchvision==0.22.1, Python 3.11, rootfs:debian/bookworm: possible; the resolver"
    )
    assert f"{shown_first} finds 2" in shown.err
    assert 'pip: ["torchvision==0.22.1"]' in shown.out
    with pytest.raises(CellError, match=r"torchvision==0\.23\.0 has no wheel"):
        resolve("torch", "torchvision==0.23.0", index=index)


@pytest.mark.parametrize(("text", "told"), [("cupy-cuda11x==13.6.0", True), ("torch==2.7.1", False)])
def test_the_line_for_pip_says_where_the_loader_has_to_look(text: str, *, told: bool, capsys) -> None:
    assert resolve(text, index=None, gpus=("RTX3060",), driver="470", limit=1) == 0
    shown = capsys.readouterr().err
    assert "by pip alone" in shown
    assert ("nvidia/*/lib, in LD_LIBRARY_PATH" in shown) is told


def test_a_cell_that_needs_cuda_compat_of_its_base_has_no_line_for_pip(capsys) -> None:
    assert resolve("jax[cuda12]==0.4.30", index=None, gpus=("A100",), driver="470.256.02", limit=1) == 0
    shown = capsys.readouterr()
    assert "no line for pip alone: on this driver it takes the cuda-compat of the image" in shown.err
    assert "by pip alone" not in shown.err
    told = " ".join(shown.err.split())
    assert "apt-get download cuda-compat-12-" in told  # without the image
    assert "NVIDIA's driver 470.256.02 with the cuda-compat of the image, or without it 525" in told


def test_a_package_that_no_index_has_is_asked_for_on_three_pythons_and_then_once() -> None:
    class Lacking(Offered):
        """The double of a resolver, in uv's words."""

        def with_extra(self, _urls: tuple[str, ...]) -> Offered:
            return self

        def resolve(self, requirements, **options) -> tuple[Wheel, ...]:
            self.asked.append("resolve")
            raise NoSolutionError("Because nothing-9 was not found in the package registry")

    index = Lacking(torch=[wheel(f"2.{n}.0") for n in range(3, 10)])
    with pytest.raises(CellError, match="nothing-9 was not found"):
        resolve("torch", "nothing-9", index=index)
    # then what would do is looked for: twice on each of six Pythons
    assert index.asked.count("resolve") <= 4 + 2 * 6


def test_where_an_index_is_silent_an_older_release_of_the_others_is_found(capsys) -> None:
    index = Offered(
        torch=[wheel("2.14.1"), wheel("2.10.0")], onnxruntime_gpu=[wheel("1.26.0", name="onnxruntime_gpu")]
    )
    assert resolve("torch", "onnxruntime-gpu", index=index, gpus=("T4",), driver="535", limit=1) == 0
    assert "1. torch==2.10.0, onnxruntime-gpu[cuda,cudnn]==1.26.0" in capsys.readouterr().err


def test_what_a_package_brings_is_resolved_with_it(capsys) -> None:
    class Bringing(Offered):
        """The double of a resolver, and a package that depends on PyTorch."""

        def resolve(self, requirements, **options) -> tuple[Wheel, ...]:
            beside = (
                ["torch"] if "speech" in requirements and not any("torch" in r for r in requirements) else []
            )
            return super().resolve([*requirements, *beside], **options)

        def with_extra(self, urls: tuple[str, ...]) -> Offered:
            return self

    index = Bringing(torch=[wheel("2.8.0"), wheel("2.8.0", "312")], speech=["speech-1.0-py3-none-any.whl"])
    assert resolve("speech", index=index, limit=1, verbose=1) == 0
    shown = capsys.readouterr()
    assert "torch (brought by speech): versions from the index" in shown.err
    assert 'pip: ["speech"]' in shown.out
    with pytest.raises(UsageError, match="--offline asks no index"):
        resolve("speech", index=None)
    with pytest.raises(UsageError, match="no table has tensrflow") as caught:
        resolve("tensrflow", index=None)
    assert caught.value.hint == "did you mean tensorflow?"
    with pytest.raises(UsageError, match="no framework is named"):
        resolve(index=None)


@pytest.mark.parametrize(("typed_name", "meant"), [("paddle", "paddlepaddle-gpu"), ("tf", "tensorflow")])
def test_another_projects_package_is_not_proposed_for_a_framework(typed_name: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"{typed_name} is not {meant}: this one is about") as caught:
        resolve(typed_name, index=None)
    assert caught.value.hint == f"did you mean {meant}?"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed_name", "meant"),
    [
        ("paddle", "paddlepaddle-gpu in place of paddle"),
        ("paddle>=2", "paddlepaddle-gpu>=2 in place of paddle>=2"),
        ("paddle==2.6.2", "paddlepaddle-gpu==2.6.2 in place of paddle==2.6.2"),
        ("tf", "tensorflow in place of tf"),
        ("onnx-runtime", "onnxruntime-gpu in place of onnx-runtime"),
        ("dali", "nvidia-dali-cuda120 in place of dali"),
        ("pytorch", "without pytorch (as typed)"),
        ("opencv", "opencv-python in place of opencv"),
    ],
)
def test_another_projects_package_is_not_proposed_beside_a_framework_either(
    typed_name: str, meant: str
) -> None:
    with pytest.raises(NothingPossibleError) as caught:
        resolve("torch", typed_name, index=None)
    assert meant in caught.value.message
    assert "--nearest" in str(caught.value.hint)


def test_a_release_that_only_the_other_project_has_is_that_projects(capsys) -> None:
    assert resolve("torch", "paddle==1.0.2", index=None, limit=1) == 0
    assert 'pip: ["paddle==1.0.2"]' in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("text", ["tensorflow==1.15", "tensorflow-gpu>=1.12,<2", "tensorflow~=1.14.0"])
def test_what_lies_on_no_index_is_told_of_an_old_release_with_its_source(text: str) -> None:
    with pytest.raises(CellError) as caught:
        resolve(text, index=None, gpus=("RTX3090",))
    first, lead, by_pip, *_ = caught.value.message.splitlines()
    assert first == "no build of TensorFlow 1 on the package indexes runs on RTX3090"
    assert lead.startswith(
        "what would do: NVIDIA's own build of TensorFlow 1.15.5, for CUDA 12.1, on Python 3.8"
    )
    assert "[table: https://github.com/NVIDIA/tensorflow/releases (" in lead
    assert "pip install nvidia-pyindex && pip install 'nvidia-tensorflow[horovod]'" in by_pip
    assert "docker pull nvcr.io/nvidia/tensorflow:" in caught.value.message
    assert "==2.4.4" not in caught.value.message
    # its recipes are for cards up to Turing, and the nearest of another major only if it is asked for
    assert "as in matrices/tf1.yaml" not in caught.value.message
    assert resolve(text, index=None, gpus=("RTX3090",), take_nearest=True) == 0
    with pytest.raises(CellError) as caught:
        resolve("tensorflow==2.4.1", "numpy==1.26.4", index=None, gpus=("RTX3090",))
    assert "elsewhere" not in caught.value.message


def test_where_a_package_would_be_left_out_another_driver_that_keeps_it_is_told() -> None:
    index = Offered(
        torch=[wheel("2.0.1"), wheel("2.8.0", "313")], modern=[wheel("1.0", "313", name="modern")]
    )
    with pytest.raises(NothingPossibleError) as caught:
        resolve("torch", "modern", index=index, gpus=("GTX1650",), driver="470")
    first, lead, by_pip, system, check, left_out, whole, *_ = caught.value.message.splitlines()
    assert first.startswith("not possible as asked")
    assert lead.startswith("what would do: torch==2.0.1 on Python 3.11 and ")
    assert left_out.startswith("  without modern (as typed)")
    assert by_pip.startswith("  by pip, on Python 3.11: pip install torch==2.0.1")
    assert system.startswith("  on the system: NVIDIA's driver")
    assert check.startswith('  to check it: python -c "import torch;')
    assert whole.startswith("with another driver all of it: torch==2.8.0 on Python 3.13")
    assert "the machine needs driver 525" in whole
    with pytest.raises(NothingPossibleError) as caught:
        resolve("torch", "modern", "nowhere", index=index, gpus=("GTX1650",), driver="535", python="3.11")
    assert "with another driver" not in caught.value.message


@pytest.mark.slow
def test_two_demands_that_clash_are_named_with_what_to_give_up() -> None:
    with pytest.raises(CellError) as caught:
        resolve("tensorflow==2.18.0", "torch==2.3.1", "numpy", index=None)
    lines = caught.value.message.splitlines()
    assert lines[0].endswith("tensorflow==2.18.0 (as typed) and torch==2.3.1 (as typed) clash")
    assert "give up one of them:" in lines
    assert sum("another version in place of" in line for line in lines) == 1
    # what would do, in words and by pip, and no second time
    assert [line.partition(": ")[0] for line in lines if "tensorflow==2.17.1" in line] == [
        "what would do",
        "  by pip, on Python 3.11",
        "  tensorflow==2.17.1 in place of tensorflow==2.18.0 (as typed)",
    ]
    with pytest.raises(CellError, match=r"jax==0.12.\* \(as typed\) and Python 3.9 clash"):
        resolve("jax==0.12.*", "torch", index=None, python="3.9")
    with pytest.raises(CellError, match=r"--driver 440\.33 clash"):
        resolve("torch==2.9.*", index=None, driver="440.33")


def test_this_machines_own_card_and_driver_are_the_default(monkeypatch, capsys) -> None:
    monkeypatch.setattr(first_matrix, "nvidia_smi", lambda: ((), None))
    of = first_matrix.asked_machine
    assert of((), None) == first_matrix.AskedMachine()
    double = Gpu(name="NVIDIA GeForce RTX 4090 Laptop GPU", compute_capability="8.9")
    monkeypatch.setattr(first_matrix, "nvidia_smi", lambda: ((double, double), "575.57.08"))
    for processor, platform in (
        ("x86_64", "linux/amd64"),
        ("aarch64", "linux/arm64"),
        ("riscv64", "linux/amd64"),
    ):
        monkeypatch.setattr("builder.sources.index.target.platform.machine", lambda here=processor: here)
        own = first_matrix.AskedMachine(gpus=("sm_89",), driver="575.57.08", platform=platform)
        assert of((), None) == own
        assert of((), None, "linux/amd64").platform == "linux/amd64"
    assert of(("T4",), None).platform is None  # another machine, whose processor nobody said
    for options, said in (({}, True), ({"driver": ["575.57.08"]}, False)):
        assert called(command.resolve, ["torch"], offline=True, **options) == 0
        assert ("for sm_89, driver 575.57.08, of this machine" in capsys.readouterr().err) is said
    assert of(["Tesla T4", "8.6"], None).gpus == ("T4", "sm_86")
    with pytest.raises(UsageError, match="--platform arm64 is none that rtbuild knows"):
        of((), "535", "arm64")


def test_a_companion_alone_brings_the_framework_that_it_was_built_for(capsys) -> None:
    """Without an index, too; tensorflow-text is no misspelt tensorflow."""
    assert resolve("tensorflow-text==2.16.1", index=None, gpus=("A100",)) == 0
    shown = capsys.readouterr()
    assert 'framework: ["tensorflow[and-cuda]==2.16.' in shown.out
    assert '"tensorflow-text==2.16.1"' in shown.out
    with pytest.raises(
        CellError, match=r"tensorflow<2\.16,>=2\.15\.0 \(brought by tensorflow-text==2\.15\.0\)"
    ):
        resolve("tensorflow-text==2.15.0", index=None, python="3.12")


def test_a_package_that_needs_no_framework_stands_in_its_place(capsys) -> None:
    """DALI and XGBoost bring their CUDA, cuDF's metadata brings CuPy, and Transformer Engine wants cuDNN."""
    assert resolve("nvidia-dali-cuda120", index=None, gpus=("T4",), driver="535", limit=1) == 0
    assert 'framework: ["nvidia-dali-cuda120==' in capsys.readouterr().out
    assert resolve("xgboost", index=None, gpus=("V100",), driver="535", limit=1) == 0
    shown = capsys.readouterr()
    assert "xgboost==3.2.0 is the newest release for V100" in shown.err
    assert 'framework: ["xgboost==3.2.0"]' in shown.out
    assert resolve("cudf-cu12", index=None, gpus=("T4",), driver="535", limit=1) == 0
    shown = capsys.readouterr()
    assert "cupy-cuda12x (brought by cudf-cu12)" in shown.err
    assert 'pip: ["cudf-cu12==' in shown.out
    with pytest.raises(CellError, match=r"nvidia-dali-cuda130 [^ ]+ has no code for V100"):
        resolve("nvidia-dali-cuda130", index=None, gpus=("V100",), driver="580")
    with pytest.raises(UsageError, match="names no framework"):
        resolve("transformer-engine-cu12", index=None, gpus=("A100",))


def test_a_name_without_a_wheel_is_refused_with_the_one_that_has_them() -> None:
    with pytest.raises(CellError, match=r"cudf>=25 \(as typed\) has no wheel") as caught:
        resolve("cudf>=25", index=None, gpus=("T4",), driver="535")
    assert "cudf-cu12>=25 in place of cudf>=25" in caught.value.message


def test_not_known_and_not_possible_differ_in_exit_code_and_in_json(capsys, monkeypatch) -> None:
    """The document of either says why, and what is possible in place of it."""
    for text, code, answer in (("torch==0.4.1", 7, "unknown"), ("tensorflow-gpu==1.12.0", 1, "impossible")):
        words = ("resolve", text, "--offline", "--gpu", "T4", "--driver", "535")
        assert typed(*words, monkeypatch=monkeypatch) == code
        shown = capsys.readouterr()
        assert shown.out == ""
        assert typed(*words, "--json", monkeypatch=monkeypatch) == code
        document = json.loads(capsys.readouterr().out)
        assert (document["answer"], document["proposals"], document["matrix"]) == (answer, [], None)
        assert all(reason in shown.err for reason in document["reasons"])
        assert document["reasons"]
        (way,) = document["instead"]
        assert way["given_up"] == [f"{text} (as typed)"]
        assert resolve(*way["cell"]["frameworks"], index=None, gpus=("T4",), driver="535", json=True) == 0
        assert json.loads(capsys.readouterr().out)["answer"] == "possible"


@pytest.mark.slow
def test_a_platform_is_asked_of_tables_index_and_resolver(capsys) -> None:
    """Wheels and markers are those of the processor; a card that is built with another one clashes."""
    arm = "torch-2.11.0-cp311-cp311-manylinux_2_28_aarch64.whl"
    index = Offered(torch=[wheel("2.12.0"), arm])
    marked = ("torch<2.12 ; platform_machine == 'aarch64'", "torch==2.12.0 ; platform_machine == 'x86_64'")
    for asked in (("torch",), marked):
        assert resolve(*asked, index=index, platform="linux/arm64", json=True, limit=1) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["platform"] == "linux/arm64"
        assert document["requirements"][0]["reason"] == "it has 1 releases with wheels for Linux on ARM"
        (one,) = document["proposals"]
        assert (one["cell"]["platform"], one["cell"]["frameworks"]) == ("linux/arm64", ["torch==2.11.0"])
    with pytest.raises(NothingPossibleError, match="no wheel of torch for Linux on ARM"):
        resolve("torch", index=Offered(torch=[wheel("2.12.0")]), platform="linux/arm64")
    clash = (
        r"(?s)`platform: linux/arm64`.*without --platform linux/amd64: torch\S+ on Python \S+, linux/arm64"
    )
    with pytest.raises(NothingPossibleError, match=clash):
        resolve("torch", index=None, gpus=("GH200",), platform="linux/amd64")
    with pytest.raises(NothingPossibleError, match="linux/arm64 was built without CUDA"):
        resolve("tensorflow", index=None, platform="linux/arm64")


def test_a_computer_that_is_named_for_its_card_gets_arm_cells(capsys) -> None:
    for named, card in (("DGX Spark", "GB10"), ("NVIDIA DGX Spark", "GB10"), ("Jetson AGX Orin", "Orin")):
        assert first_matrix.asked_machine((named,), "580").gpus == (card,)
    assert resolve("torch", index=None, gpus=("DGX Spark",), driver="580", json=True) == 0
    cells = [one["cell"] for one in json.loads(capsys.readouterr().out)["proposals"]]
    assert {(cell["platform"], *cell["gpus"]) for cell in cells} == {("linux/arm64", "GB10")}


def test_a_matrix_goes_into_a_file(tmp_path, capsys) -> None:
    path = tmp_path / "new" / "My torch.yaml"
    options = {"gpu": ["T4"], "driver": ["590"], "offline": True, "output": path}
    assert called(command.resolve, ["torch"], **options) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert f"rtbuild build '{path}'" in said.err
    found = load(path)
    assert found.name == "my-torch"
    assert found.cells[0].frameworks
    with pytest.raises(UsageError, match="is there already"):
        called(command.resolve, ["torch"], **options)
    assert called(command.resolve, ["torch"], **options, force=True) == 0


@pytest.mark.parametrize(
    ("typed_name", "meant"),
    [
        ("pytorh", "torch"),
        ("pytorch", "torch"),
        ("tensrflow", "tensorflow"),
        ("opencv", "opencv-python"),
        ("paddle", "paddlepaddle-gpu"),
        ("tf", "tensorflow"),
        ("skimage", None),
        ("tensorflow-text", None),
        ("pytorch3d", None),
        ("torchvision", None),
        ("torchx", None),
        ("keras", None),
    ],
)
def test_a_name_misspelt_is_told_from_a_package_of_its_own(typed_name: str, meant: str | None) -> None:
    assert solve.meant(typed_name) == meant


def test_all_typed_faults_are_told_at_once_and_hints_keep_the_options(tmp_path) -> None:
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text("FROM nvcr.io/nvidia/tensorflow:23.10-tf2-py3\n")
    with pytest.raises(UsageError) as several:
        called(command.resolve, ["torch"], gpu=["RTX 3009", "T44"], driver=["abc"], offline=True)
    assert several.value.message.startswith("several values are wrong:")
    for said in (
        "--driver abc is no driver",
        "--gpu RTX 3009 is no GPU",
        "one of RTX3090",
        "--gpu T44 is no",
    ):
        assert said in several.value.message
    with pytest.raises(UsageError) as one:
        called(command.resolve, [], requirement_file=[dockerfile], gpu=["T4"], driver=["535"], offline=True)
    assert "23.10 is a month, and no release of TensorFlow" in one.value.message
    assert "`rtbuild resolve tensorflow==VERSION --gpu T4 --driver 535`" in str(one.value.hint)


def test_a_package_whose_build_only_a_lock_reads_rules_no_framework_out(capsys) -> None:
    """torchcodec on PyTorch's index of a build: its release by its table is named, and said to be unknown."""
    texts = ("torch<2.8.0,>=2.2.1", "torchvision<0.23.0,>=0.21.0", "torchcodec<0.6.0,>=0.2.1")
    assert resolve(*texts, index=None, gpus=("RTX5090",), limit=1) == 0
    shown = capsys.readouterr()
    assert '"torch==2.7.1+cu128"' in shown.out
    assert '"torchvision==0.22.1", "torchcodec==0.5"' in shown.out
    assert "# not known: torchcodec 0.5 is a build with CUDA, whose libraries were not read" in shown.out
    assert "unknown: torch==2.7.1+cu128" in shown.err
    assert "the resolver was not asked" in shown.err
    assert resolve(*texts, index=None, gpus=("RTX5090",), limit=1, json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["answer"] == "unknown"  # never a yes
    with pytest.raises(NothingPossibleError):  # what is refused is refused beside it, too
        resolve(*texts, "torchaudio==2.6.0", index=None, gpus=("RTX5090",))


def test_pinned_packages_that_do_not_go_with_a_newer_framework_are_told(capsys) -> None:
    asked = {"index": None, "gpus": ("RTX3060",), "driver": "535"}
    assert resolve("tensorflow==1.5", "keras==2.1.0", **asked, take_nearest=True) == 0
    lines = capsys.readouterr().err.splitlines()
    (keras,) = (line for line in lines if line.startswith("changed: ") and "keras==2.1.0 (" in line)
    assert "in place of keras==2.1.0" in keras or "without keras" in keras
    assert "no attribute 'get_default_graph'" in keras
    with pytest.raises(NothingPossibleError) as caught:
        resolve("torch==1.11.0", "pytorch-lightning==1.4.2", index=None, gpus=("RTX5070-Ti",))
    assert "PyTorch Lightning before 1.8.4 asks of a scheduler" in caught.value.message


@pytest.mark.parametrize(("build", "told"), [("cuda111", True), ("cuda118", False)])
def test_a_pinned_build_is_held_against_the_card_by_its_minor_of_cuda(build: str, told: bool) -> None:
    """JAX of 2021 with CUDA 11.1 on an H100, whose code CUDA 11.8 was the first to compile."""
    texts = ("jax==0.2.14", f"jaxlib==0.1.69+{build}")
    with pytest.raises(NotKnownError) as caught:
        resolve(*texts, index=None, gpus=("H100",), driver="550.163.01", python="3.7")
    said = "has no code for H100 (9.0): CUDA 11.8 is the first that does"
    assert (said in caught.value.message) is told
    assert " and Python 3.7 and jaxlib==" in caught.value.message
    assert "jax[cuda12]==" in caught.value.message


def test_a_refusal_tells_one_way_once() -> None:
    with pytest.raises(NothingPossibleError) as caught:
        resolve("tensorflow==2.18.0", "torch==2.3.1", index=None, gpus=("A100",))
    lines = caught.value.message.splitlines()
    again = [line for line in lines if "tensorflow==2.17.1 in place of" in line]
    assert len(again) == 1, caught.value.message


@pytest.fixture
def three_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = Offered(
        torch=[
            "torch-2.2.2-cp311-none-macosx_10_9_x86_64.whl",
            "torch-2.7.1-cp311-none-macosx_11_0_arm64.whl",
            "torch-2.7.1-cp311-cp311-win_amd64.whl",
            "torch-2.7.1-cp311-cp311-manylinux_2_28_x86_64.whl",
            "torch-2.6.0-cp311-cp311-manylinux1_x86_64.whl",
        ],
        jax=["jax-0.6.2-py3-none-any.whl"],
    )
    monkeypatch.setattr(command.Index, "from_user", lambda **_: offered)


@pytest.mark.usefixtures("three_systems")
@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--gpu", "none"], "pip install torch==2.7.1 --index-url https://download.pytorch.org/whl/cpu"),
        (["--system", "macos"], "pip install torch==2.7.1"),
        (["--system", "Mac OS intel"], "pip install torch==2.2.2 'numpy<2'"),
        (["--system", "windows", "--gpu", "none"], "pip install torch==2.7.1"),
    ],
)
def test_a_build_without_cuda_is_that_of_the_system(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: list[str], line: str
) -> None:
    assert typed("resolve", "torch", *options, "--json", monkeypatch=monkeypatch) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["answer"], said["pip"]) == ("possible", [line])


@pytest.mark.usefixtures("three_systems")
@pytest.mark.parametrize("system", [["--system", "windows"], []])
def test_windows_gets_the_build_with_cuda_by_pytorchs_index(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, system: list[str]
) -> None:
    """Or the system is typed behind the card, as people write it."""
    card = "Quadro P4000" + " Windows 10" * (not system)
    words = ("resolve", "torch==2.7.1", "--gpu", card, "--driver", "537.70", *system)
    assert typed(*words, monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().err
    assert "pip install torch==2.7.1+cu126 --index-url https://download.pytorch.org/whl/cu126" in said
    assert 'to check it: python -c "import torch;' in said
    assert "without --index-url pip takes the build for the CPU on Windows" in said
    assert "580 is the last driver branch" in said


@pytest.mark.usefixtures("three_systems")
def test_builds_for_windows_that_nobody_read_are_unknown_and_none_is_no_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {"gpu": ["Quadro P4000"], "driver": ["537.70"], "system": "windows"}
    assert called(command.resolve, ["torch==2.7.1"], json_=True, **words) == 0
    assert json.loads(capsys.readouterr().out)["answer"] == "unknown"
    monkeypatch.setattr(command, "windows_lines", lambda *_cell: None)
    with pytest.raises(NotKnownError, match="Windows takes is not known"):
        called(command.resolve, ["torch==2.7.1"], **words)


@pytest.mark.usefixtures("three_systems")
def test_what_has_no_cuda_there_is_refused_with_the_way_that_has() -> None:
    with pytest.raises(NothingPossibleError, match="no build with CUDA for Windows") as caught:
        called(command.resolve, ["jax[cuda12]"], gpu=["RTX 3060"], system="windows")
    assert "--system wsl" in str(caught.value.hint)
    with pytest.raises(NothingPossibleError, match=r"JetPack 6 \(L4T R36.*jp6/cu126") as caught:
        called(command.resolve, ["torch"], system="JetPack 6.2")
    assert "no other driver is installed there" in str(caught.value.hint)
    with pytest.raises(UsageError, match="--system beos is none"):
        called(command.resolve, ["torch"], system="beos")


@pytest.mark.parametrize(("system", "told"), [(None, True), ("wsl", False)])
def test_where_the_driver_is_that_of_windows_no_kernel_has_modules(system: str | None, told: bool) -> None:
    words = {"gpu": ["RTX 5070"], "driver": ["591.44"], "offline": True}
    with pytest.raises(NothingPossibleError) as caught:
        called(command.resolve, ["tensorflow==2.20.0"], system=system, **words)
    assert ("kernel modules" in caught.value.message) is told


@pytest.mark.parametrize("machine", [{"system": "windows"}, {"gpu": ["none"]}])
def test_where_no_image_is_made_no_file_is_said_to_be_written(
    tmp_path: Path, machine: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match="no matrix is written for"):
        called(command.resolve, ["torch"], output=tmp_path / "m.yaml", **machine)


@pytest.mark.usefixtures("three_systems")
def test_an_old_glibc_gets_the_newest_release_with_a_wheel_for_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("resolve", "torch", "--gpu", "A100", "--driver", "525.60.13", "--system", "CentOS 7.9")
    assert typed(*words, monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().err
    assert "possible: torch==2.6.0 on Python 3.11" in said
    assert "the wheels ask for glibc 2.28, and the system has 2.17" in said


def test_each_card_can_have_the_driver_of_its_own_machine(capsys) -> None:
    told = ["RTX 3090@535.183.01", "NVIDIA GeForce RTX 5090", "575.64.03", "T4"]
    with pytest.raises(UsageError, match="T4: which driver is on its machine"):
        command._machines(told, None)
    assert command._machines(told, ["550"]) == (
        ["RTX 3090", "NVIDIA GeForce RTX 5090", "T4"],
        [("RTX 3090", "535.183.01"), ("NVIDIA GeForce RTX 5090", "575.64.03"), ("T4", "550")],
    )
    assert command._machines(["T4", "A100"], ["550"]) == (["T4", "A100"], [])
    called(command.resolve, ["torch"], gpu=["RTX 3090@535.183.01", "A100@550.90.07"], offline=True)
    assert "drivers RTX3090 with 535.183.01, A100 with 550.90.07" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(UsageError, match="is no driver version"):
        called(command.resolve, ["torch"], gpu=["T4@new"], offline=True)


@pytest.mark.parametrize(
    ("wish", "refused"),
    [("torch==2.4.1", True), ("torch>=2.2", True), ("torch", False), ("torch<2.2", False)],
)
def test_a_jetson_is_told_nvidias_newest_wheel_and_no_to_a_newer_one(wish: str, *, refused: bool) -> None:
    with pytest.raises(NothingPossibleError) as caught:
        called(command.resolve, [wish, "torchvision"], system="JetPack 5.1.2")
    said = str(caught.value)
    assert "the newest there is of PyTorch 2.1.0, for JetPack 5.1" in said
    assert ("no: NVIDIA lists no wheel of" in said) is refused
    assert "git clone --branch v0.16.0 https://github.com/pytorch/vision" in said
    assert "Thor" not in str(caught.value.hint)


@pytest.mark.parametrize(
    ("package", "files", "left"),
    [
        ("flash-attn==2.8.3", ["flash_attn-2.8.3.tar.gz"], True),
        ("nvidia-cublas-cu12", [], True),
        ("cupy-cuda12x", [], True),
        ("bitsandbytes", ["bitsandbytes-0.50.2-py3-none-macosx_14_0_arm64.whl"], False),
        ("einops>=0.8", ["einops-0.8.1-py3-none-any.whl"], False),
        ("hydra-core==1.3.2", ["hydra_core-1.3.2.tar.gz"], False),
    ],
)
def test_what_is_for_cuda_alone_is_left_out_on_macos_with_a_marker_for_one_file_for_all(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    package: str,
    files: list[str],
    *,
    left: bool,
) -> None:
    name = package.partition("=")[0].partition(">")[0]
    there = Offered(torch=["torch-2.8.0-cp311-none-macosx_11_0_arm64.whl"], **{name: files})
    monkeypatch.setattr(command.Index, "from_user", lambda **_: there)
    assert typed("resolve", "torch", package, "--system", "macos", "--json", monkeypatch=monkeypatch) == 0
    said = json.loads(capsys.readouterr().out)
    assert any(name in line for line in said["pip"]) is not left
    told = " ".join(said["lines"])
    assert (f"`{package} ; sys_platform == 'linux'`" in told) is left
    assert "'mps'" in told
