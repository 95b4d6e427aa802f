"""A conda environment told in wheels, and the ways in which it can have had no GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from builder.core.errors import CellError, UsageError
from builder.plan.matrix import load
from builder.plan.resolve.environments import (
    CondaPackage,
    conda_package,
    from_conda,
    from_dockerfile,
    in_wheels,
    read_conda,
)

MATRIX = Path(__file__).resolve().parents[4] / "matrices" / "torch-conda.yaml"
BUILD = "py3.9_cuda11.3_cudnn8.3.2_0"


def told(text: str) -> tuple[list[str], str | None, list[str]]:
    """Requirements, Python and notes."""
    found = in_wheels(*read_conda(text), Path("env.yml"), text)
    return [str(wish) for wish in found.wishes], found.python, found.notes


@pytest.mark.parametrize(
    ("line", "package"),
    [
        ("pytorch", CondaPackage(name="pytorch")),
        ("pytorch==1.12.1", CondaPackage(name="pytorch", version="1.12.1")),
        ("pytorch=1.12", CondaPackage(name="pytorch", version="1.12")),
        ("pytorch=1.12.*", CondaPackage(name="pytorch", version="1.12")),
        ("pytorch 1.12.1", CondaPackage(name="pytorch", version="1.12.1")),
        (
            "pytorch::pytorch=1.12.1=py3.9_cuda*",
            CondaPackage(name="pytorch", version="1.12.1", build="py3.9_cuda*"),
        ),
        (f"pytorch=1.12.1={BUILD}", CondaPackage(name="pytorch", version="1.12.1", build=BUILD)),
        ("pytorch >=1.12,<2", CondaPackage(name="pytorch", bounds=">=1.12,<2")),
        (
            f"https://conda.invalid/pytorch/linux-64/pytorch-1.12.1-{BUILD}.tar.bz2#d41d8cd98f",
            CondaPackage(name="pytorch", version="1.12.1", build=BUILD),
        ),
        (
            "https://conda.invalid/main/linux-64/ld_impl_linux-64-2.38-h1181459_1.conda",
            CondaPackage(name="ld-impl-linux-64", version="2.38", build="h1181459_1"),
        ),
    ],
)
def test_a_package_as_conda_names_it(line: str, package: CondaPackage) -> None:
    assert read_conda(f"# a comment\n@EXPLICIT\n{line}\n") == ([package], [])


def test_an_environment_file() -> None:
    text = """
channels: [pytorch]
dependencies:
  - python=3.10
  - pytorch=2.1
  - pytorch-cuda=11.8
  - torchvision
  - pip:
    - onnxruntime-gpu==1.16.3
    - wandb
"""
    assert told(text) == (
        ["torch==2.1.2+cu118", "torchvision", "onnxruntime-gpu==1.16.3", "wandb"],
        "3.10",
        ["env.yml: pytorch-cuda: not taken over"],
    )


def test_pips_lines_in_an_environment_are_those_of_a_requirements_file(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("einops==0.3.0\n")
    environment = tmp_path / "environment.yaml"
    environment.write_text(
        """dependencies:
  - python=3.8.5
  - pytorch=1.7.0
  - cudatoolkit=11.0
  - pip:
    - --extra-index-url https://example.org/simple
    - -r more.txt
    - omegaconf==2.0.0 --hash=sha256:00
    - -e git+https://github.com/CompVis/taming-transformers.git@master#egg=taming-transformers
    - -e .
    - submodules/diff-gaussian-rasterization
"""
    )
    found = from_conda(environment)
    assert list(map(str, found.wishes)) == ["torch==1.7.0+cu110", "einops==0.3.0", "omegaconf==2.0.0"]
    assert [wish.place for wish in found.wishes[1:]] == [f"{tmp_path}/more.txt:1", f"{environment}:8"]
    assert found.index == ["https://example.org/simple"]
    own = [note for note in found.notes if "built from the repository's own source" in note]
    begins = [f"{environment}:9: -e ", f"{environment}:10: -e .:", f"{environment}:11: submodules/"]
    assert all(note.startswith(begin) for note, begin in zip(own, begins, strict=True))


@pytest.mark.parametrize("line", ["a b c", "-e 'x"])
def test_pips_line_that_is_none_is_told_with_its_line(line: str) -> None:
    with pytest.raises(UsageError, match=r"env\.yml:3: "):
        told(f"dependencies:\n- pip:\n  - {line}\n")


def test_a_file_of_pips_that_is_not_there_is_told_with_its_line_and_the_rest_is_read() -> None:
    requirements, _, notes = told("dependencies:\n- pip:\n  - -r nowhere.txt\n  - torch==2.9.1\n")
    assert requirements == ["torch==2.9.1"]
    assert any("env.yml:3: -r nowhere.txt: there is no" in note for note in notes)


def test_a_build_for_cuda_12_runs_with_its_later_minor_versions() -> None:
    requirements, _, notes = told("pytorch=2.1.2=cuda120_py311h25b6552_301\ncuda-version=12.5")
    assert requirements == ["torch==2.1.2"]
    assert "the wheel for CUDA 12.1 in place of conda's build for 12.0" in notes[0]
    with pytest.raises(CellError, match=r"cuda-version=11\.8"):
        told("pytorch=2.1.2=cuda120_py311h25b6552_301\ncuda-version=11.8")


def test_a_lock_of_conda_lock_is_read_for_linux() -> None:
    entry = """- name: %s
  version: %s
  manager: %s
  platform: %s
  dependencies:
    python: '>=3.9'
  url: https://conda.invalid/conda-forge/%s
"""
    rows = [
        ("python", "3.11.9", "conda", "linux-64", "linux-64/python-3.11.9-hb806964_0_cpython.conda"),
        ("pytorch", "2.1.2", "conda", "linux-64", "linux-64/pytorch-2.1.2-cuda120_py311h25b6552_301.conda"),
        ("pytorch", "2.1.2", "conda", "osx-64", "osx-64/pytorch-2.1.2-cpu_generic_py311h5c3ea13_1.conda"),
        ("timm", "1.0.3", "pip", "linux-64", "timm-1.0.3-py3-none-any.whl"),
    ]
    text = "version: 1\npackage:\n" + "".join(entry % row for row in rows)
    packages, pip = read_conda(text)
    assert [(one.name, one.version) for one in packages] == [("python", "3.11.9"), ("pytorch", "2.1.2")]
    assert packages[1].build == "cuda120_py311h25b6552_301"
    assert pip == ["timm==1.0.3"]
    with pytest.raises(UsageError, match="no package for linux-64") as caught:
        read_conda(text.replace("linux-64", "win-64"))
    assert caught.value.hint == "it has osx-64, win-64"


def test_condas_parts_of_numpy_are_no_packages_of_their_own() -> None:
    text = "dependencies:\n- pytorch=2.1.2\n- numpy=1.23\n- numpy-base=1.23\n- pip:\n  - numpy>=1.18\n"
    requirements, _, notes = told(text)
    assert requirements == ["torch==2.1.2", "numpy==1.23.*", "numpy>=1.18"]
    assert any("numpy-base: not taken over" in note for note in notes)


@pytest.mark.parametrize(
    ("lines", "requirement"),
    [
        (("pytorch==1.12.1", "cudatoolkit=11.3"), "torch==1.12.1+cu113"),
        ((f"pytorch=1.12.1={BUILD}",), "torch==1.12.1+cu113"),
        ((f"pytorch=1.12.1={BUILD}", "cudatoolkit=11.3.1"), "torch==1.12.1+cu113"),
        (("pytorch==1.12.1", "cudatoolkit=10.2"), "torch==1.12.1"),  # what the default index has
    ],
)
def test_the_variant_of_the_same_cuda(lines: tuple[str, ...], requirement: str) -> None:
    assert told("\n".join(lines))[0] == [requirement]


def test_another_cudnn_in_the_wheel_is_said() -> None:
    """Of 1.10.2, conda's build for CUDA 11.1 and the wheel differ in nothing; a made-up one does."""
    assert told("pytorch=1.12.1=py3.9_cuda11.3_cudnn8.3.2_0")[2] == []
    assert told("pytorch=1.12.1=py3.9_cuda11.3_cudnn8.0.5_0")[2] == [
        "env.yml: cuDNN 8.3.2.44 in place of conda's 8.0.5"
    ]


@pytest.mark.parametrize(
    ("lines", "taken", "cuda"),
    [
        (("pytorch==1.12.1", "cudatoolkit=11.4"), "torch==1.12.1", "11.4"),
        (("pytorch=1.4", "cudatoolkit=9.2"), "torch==1.4.*", "9.2"),
        (("pytorch=1.12.1=cuda112py39h1_0",), "torch==1.12.1", "11.2"),  # conda-forge's own builds
    ],
)
def test_a_cuda_that_no_wheel_is_for_leaves_the_release(
    lines: tuple[str, ...], taken: str, cuda: str
) -> None:
    found = in_wheels([conda_package(line) for line in lines], [], Path("environment.yml"), "")
    assert [str(one) for one in found.wishes] == [taken]
    assert any(f"is for CUDA {cuda}: PyTorch" in note for note in found.notes)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("pytorch=1.12.1=py3.9_cpu_0", "cudatoolkit=11.3"), "is the build for the CPU"),
        ((f"pytorch=1.12.1={BUILD}", "cudatoolkit=11.6"), "holds cudatoolkit=11.6"),
        ((f"pytorch=1.12.1={BUILD}", "python=3.10"), "is built for Python 3.9"),
        (("tensorflow=2.4.1=mkl_py38h1",), "tensorflow=2.4.1=mkl_py38h1 is a build for the CPU"),
        (("pytorch", "cpuonly"), "PyTorch's build for the CPU"),
        (("pytorch", "cudatoolkit=8.0"), "no PyTorch on record for CUDA 8.0"),
    ],
)
def test_what_cannot_have_used_a_gpu_is_refused(lines: tuple[str, ...], words: str) -> None:
    with pytest.raises(CellError, match=re.escape(words)):
        told("\n".join(lines))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("openssl=3", "no package that comes in wheels"),
        ("dependencies: 3", "no list of dependencies"),
        ("dependencies: [", "no YAML"),
        ("[]", "no conda package"),
    ],
)
def test_what_is_no_such_environment_is_the_users_mistake(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        told(text)


def test_the_matrix_says_what_its_commands_come_to() -> None:
    commands = re.findall(r"# conda install ([^:\n]+)", MATRIX.read_text())
    cells = load(MATRIX).cells
    assert len(commands) == len(cells)
    for command, cell in zip(commands, cells, strict=True):
        environment = told("\n".join(command.split()))
        assert environment[0] == list(cell.frameworks)
        assert environment[1] == cell.python


def test_an_environment_of_2019_and_one_that_leaves_versions_open() -> None:
    named = ("python=3.6", "tensorflow-gpu=1.14", "cudatoolkit=10.0", "numpy>=1.16,<1.17", "matplotlib-base")
    old = "dependencies:" + "".join(f"\n- {text}" for text in named)
    assert told(old) == (
        ["tensorflow-gpu==1.14.*", "numpy<1.17,>=1.16", "matplotlib"],
        "3.6",
        ["env.yml: cudatoolkit: not taken over"],
    )
    assert told("dependencies: [pytorch, python>=3.9]")[0] == ["torch"]
    assert told("dependencies: [pytorch, python>=3.9]")[1] == ">=3.9"
    assert told("dependencies: [pytorch, pytorch-cuda=12.1]")[0] == ["torch==2.5.1+cu121"]
    assert told("dependencies: [pytorch=2.3, numpy=2.0rc1]")[0] == ["torch==2.3.*", "numpy==2.0rc1"]
    exact = told("dependencies: [pytorch=1.12]")
    assert exact[0] == ["torch==1.12.*"]
    assert exact[2][0].startswith("env.yml: nothing says which CUDA pytorch=1.12 is built for: any; PyTorch")


def test_a_list_that_conda_exported_keeps_its_packages_of_python_and_is_named() -> None:
    lines = [
        "libgcc-ng=9.3.0=h5101ec6_17",
        "intel-openmp=2022.0.1=h06a4308_3633",
        "numpy=1.21.2=py39h20f2e39_0",
        "pip=21.2.4=py39h06a4308_0",
        "python=3.9.12=h12debd9_0",
        f"pytorch=1.11.0={BUILD.replace('8.3.2', '8.2.0')}",
        "pytorch-metric-learning=1.2.1=pypi_0",
        "tbb=2021.5.0=hd09550d_0",
        "torchvision=0.12.0=py39_cu113",
        "tqdm=4.63.0=pyhd3eb1b0_0",
    ]
    found = in_wheels(*read_conda("\n".join(lines)), Path("requirements.txt"), "")
    beside = {"numpy==1.21.2", "pytorch-metric-learning==1.2.1", "torchvision==0.12.0", "tqdm==4.63.0"}
    assert {str(wish) for wish in found.wishes} == {"torch==1.11.0+cu113", *beside}
    assert found.python == "3.9"
    (note,) = found.notes
    assert "a list of `conda list --export`, which pip does not read" in note
    assert note.endswith(
        "; tbb, libgcc-ng, intel-openmp, pip: not taken over"
    )  # those that nobody misses last


def test_a_pip_section_with_condas_own_pins_is_taken_as_pinned() -> None:
    text = "dependencies:\n  - python=3.8\n  - pip:\n    - torch==2.1.0\n    - tqdm=4.66.1\n"
    wishes, _, notes = told(text)
    assert wishes == ["torch==2.1.0", "tqdm==4.66.1"]
    assert notes == ["env.yml:5: tqdm=4.66.1: taken as tqdm==4.66.1"]


def test_a_name_with_its_cuda_is_condas_alone_and_asked_of_no_index(tmp_path) -> None:
    path = tmp_path / "environment.yml"
    path.write_text("dependencies: [python=3.9, pytorch=1.9, cudatoolkit=11.1, dgl-cuda11.1, numpy]\n")
    found = from_conda(path)
    assert [wish.name for wish in found.wishes] == ["torch", "numpy"]
    assert any("dgl-cuda11-1: dgl built for CUDA 11.1, by conda's own name" in n for n in found.notes)


@pytest.mark.parametrize(
    ("pytorch", "requirement"),
    [("pytorch=1.12.1", "torch==1.12.1+cu116"), ("pytorch", "torch==2.7.1+cu118")],
)
def test_a_toolkit_by_its_major_alone_is_any_of_it(pytorch: str, requirement: str, tmp_path: Path) -> None:
    """conda's ``cudatoolkit=11`` is every 11.x: the newest of them that the release was built for."""
    path = tmp_path / "environment.yml"
    path.write_text(f"dependencies: [python=3.9, {pytorch}, cudatoolkit=11]\n")
    (wish,) = [one for one in from_conda(path).wishes if one.name == "torch"]
    assert str(wish) == requirement


def test_names_of_condas_own_are_no_packages_of_an_index(tmp_path) -> None:
    (tmp_path / "Dockerfile").write_text(
        "FROM nvidia/cuda:9.0-devel-ubuntu16.04\nRUN conda install -y conda-build anaconda-client ipython\n"
        "RUN conda install pytorch-nightly cudatoolkit=9.0 -c pytorch\nRUN pip install yacs\n"
    )
    asked = from_dockerfile(tmp_path / "Dockerfile")
    assert {str(wish) for wish in asked.wishes} == {"torch", "ipython", "yacs"}
    assert any("conda-build" in note and "not taken over" in note for note in asked.notes)
