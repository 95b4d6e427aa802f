"""Files that a project describes itself by: each kind says the same, and nothing of a project is run."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path

import pytest

from builder.core.errors import UsageError
from builder.plan.resolve import native_code
from builder.plan.resolve.evidence import with_data_on_cpu, with_told
from builder.plan.resolve.project_files import from_file
from builder.plan.resolve.set_aside import with_aside
from builder.plan.resolve.solve import Demand, search, split
from builder.plan.resolve.wishes import TYPED, Wishes, from_arguments
from builder.verify.cudnn_verify.common.tables import read_patterns

SAME = ["numpy<1.24", "torch==1.10.2"]
SETUP = """\
import sys
from setuptools import setup
{before}
if __name__ == "__main__":
    setup(name="x", python_requires=">=3.7", install_requires={asked}{more})
"""


def as_notebook(*lines: str) -> str:
    return json.dumps({"cells": [{"cell_type": "code", "source": line} for line in lines]}, indent=1)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", "numpy<1.24\ntorch==1.10.2\n"),
        ("requirements.in", "numpy<1.24\r\ntorch==1.10.2\r\n"),
        ("requirements.txt", "numpy\ntorch==1.10.2\n-c bounds.txt\n"),
        ("Dockerfile", "FROM ubuntu:20.04\nRUN apt-get update && pip install 'numpy<1.24' torch==1.10.2\n"),
        ("gpu.Dockerfile", "FROM ubuntu\nARG T=1.10.2\nENV N=1.24\nRUN pip install 'numpy<$N' torch==${T}\n"),
        ("Dockerfile", "FROM pytorch/pytorch:1.10.2-cuda10.2-cudnn7-runtime\nRUN pip install 'numpy<1.24'\n"),
        (
            "Dockerfile",
            "FROM ubuntu\nRUN conda install -y 'numpy<1.24' pytorch=1.10.2 cudatoolkit=10.2 -c pytorch\n",
        ),
        ("n.ipynb", as_notebook("!pip install 'numpy<1.24' torch==1.10.2")),
        ("n.ipynb", as_notebook("! pip install 'numpy<1.24'\n", "%pip install torch==1.10.2")),
        ("n.ipynb", as_notebook("!conda install -c pytorch 'numpy<1.24' pytorch==1.10.2 cudatoolkit=10.2")),
        ("environment.yml", "dependencies:\n- numpy<1.24\n- pytorch=1.10.2\n- cudatoolkit=10.2\n"),
        ("any.yaml", "name: x\ndependencies:\n- pip:\n  - numpy<1.24\n  - torch==1.10.2\n"),
        ("pyproject.toml", '[project]\ndependencies = ["numpy<1.24", "torch==1.10.2"]\n'),
        ("pyproject.toml", '[tool.poetry.dependencies]\nnumpy = "<1.24"\ntorch = "1.10.2"\n'),
        (
            "pyproject.toml",
            '[project]\ndynamic=["dependencies"]\n[tool.setuptools.dynamic]\ndependencies={file="listed.txt"}\n',
        ),
        ("setup.cfg", "[options]\ninstall_requires =\n    numpy<1.24\n    torch==1.10.2\n"),
        ("setup.cfg", "[options]\ninstall_requires = file: listed.txt\n"),
        ("setup.py", SETUP.format(before="", asked='["numpy<1.24", "torch==1.10.2"]', more="")),
        ("setup.py", SETUP.format(before='A = ["numpy<1.24"]\nA += ["torch==1.10.2"]', asked="A", more="")),
        (
            "setup.py",
            SETUP.format(
                before='A = []\nA.append("numpy<1.24")\nA.extend(["torch==1.10.2"])', asked="A", more=""
            ),
        ),
        (
            "setup.py",
            SETUP.format(before='with open("listed.txt") as f:\n    A = f.read()', asked="A.split()", more="")
            .replace("A = f.read()", "A = [line.strip() for line in open('listed.txt')]")
            .replace("A.split()", "A"),
        ),
        (
            "setup.py",
            SETUP.format(
                before='def asked():\n    with open("requirements.txt") as f:\n        return f.readlines()',
                asked="asked()",
                more="",
            ),
        ),
        (
            "setup.py",
            SETUP.format(
                before='K = {"install_requires": ["numpy<1.24", "torch==1.10.2"]}', asked="[]", more=", **K"
            ),
        ),
        (
            "setup.py",
            SETUP.format(
                before='A = ["numpy<1.24", "torch==1.10.2"]\nif sys.version_info[0] < 3:\n    A += ["x"]',
                asked="A",
                more=', tests_require=["pytest"]',
            ),
        ),
        ("pixi.toml", '[dependencies]\nnumpy = "<1.24"\npytorch = "1.10.2.*"\ncudatoolkit = "10.2.*"\n'),
        ("pixi.toml", '[dependencies]\nnumpy = "<1.24"\n[pypi-dependencies]\ntorch = "==1.10.2"\n'),
        ("Pipfile", '[packages]\nnumpy = "<1.24"\ntorch = {version = "==1.10.2"}\n'),
        ("Pipfile.lock", '{"default": {"numpy": {"version": "<1.24"}, "torch": {"version": "==1.10.2"}}}'),
    ],
)
def test_every_kind_of_file_with_the_same_content_gives_the_same_requirements(
    tmp_path: Path, name: str, text: str
) -> None:
    for other in ("listed.txt", "listed-requirements.txt", "requirements.txt"):
        (tmp_path / other).write_text("numpy<1.24\ntorch==1.10.2\n")
    (tmp_path / "bounds.txt").write_text("numpy<1.24\nscipy<1.9\n")
    path = tmp_path / name
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        path.write_bytes(text.encode(encoding))
        found = from_file(path).merged()
        assert sorted(map(str, found.wishes)) == SAME
        assert not found.clashes
    folder = tmp_path / "project"
    folder.mkdir()
    for other in ("listed.txt", "listed-requirements.txt", "bounds.txt"):
        (folder / other).write_text((tmp_path / other).read_text())
    (folder / name).write_text(text)
    known = name in {
        "requirements.txt",
        "requirements.in",
        "Dockerfile",
        "environment.yml",
        "Pipfile",
        "pixi.toml",
        "setup.cfg",
    }
    if known or (
        name in {"pyproject.toml", "setup.py"} and "requirements.txt" not in text.replace("d-requ", "")
    ):
        found = from_file(folder).merged()
        assert sorted(map(str, found.wishes)) == SAME
        assert found.notes[0].startswith(f"{folder}: read as one project: {name}")


def test_what_only_a_run_of_setup_py_would_tell_is_said(tmp_path: Path) -> None:
    path = tmp_path / "setup.py"
    path.write_text(
        "import sys\nfrom setuptools import setup\nexec(open('version.py').read())\n"
        "if '--gpu' in sys.argv:\n    gpu = True\nelse:\n    gpu = False\n"
        "NAMES = ['numpy', compute()]\n"
        "if gpu:\n    NAMES.append('tensorflow-gpu >= 1.12.0')\n"
        "else:\n    NAMES.append('tensorflow >= 1.12.0')\n"
        "setup(version=__version__, install_requires=NAMES, python_requires=ask(), "
        "extras_require={'all': ['rich']}, setup_requires=['pytest-runner'])\n"
    )
    found = from_file(path)
    assert [str(wish) for wish in found.wishes] == ["numpy", "tensorflow-gpu>=1.12.0"]
    assert found.wishes[0].place == f"{path}:13, install_requires"
    said = "\n".join(found.notes)
    for words in (
        "a part of install_requires: computed by the program, which is not run",
        "python_requires: computed by the program",
        "tensorflow-gpu >= 1.12.0 (if gpu): taken, as if the test held",
        "tensorflow >= 1.12.0 (if not (gpu)): left out: tensorflow-gpu stands for it",
        "setup_requires (pytest-runner): not taken over",
    ):
        assert words in said
    for text, message in (("print 'x'\n", "cannot be read"), ("setup()\n", "calls no setup")):
        path.write_text(text)
        with pytest.raises(UsageError, match=message) as refused:
            from_file(path)
        assert refused.value.hint


def test_the_indexes_of_a_project_are_those_that_linux_uses(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(
        '[project]\ndependencies = ["torch~=2.8.0", "mine"]\n'
        "[tool.uv.sources]\nmine = { path = 'mine' }\ntorch = [\n"
        "  { index = 'cpu', marker = \"sys_platform == 'darwin'\" },\n"
        "  { index = 'cuda', marker = \"sys_platform != 'darwin'\" } ]\n"
        "[[tool.uv.index]]\nname = 'cuda'\nurl = 'https://example.invalid/whl/cu128'\nexplicit = true\n"
        "[[tool.uv.index]]\nname = 'cpu'\nurl = 'https://example.invalid/whl/cpu'\nexplicit = true\n"
        "[[tool.uv.index]]\nname = 'any'\nurl = 'https://example.invalid/any'\n"
    )
    found = from_file(path)
    assert found.index == ["https://example.invalid/whl/cu128", "https://example.invalid/any"]
    assert found.places[found.index[0]] == f"{path}, [[tool.uv.index]] 'cuda'"
    assert [str(wish) for wish in found.wishes] == ["torch~=2.8.0"]
    assert "mine @ file:mine: built from the repository's own source" in found.notes[0]
    path.write_text(
        '[tool.poetry.dependencies]\npython = ">=3.8,<3.11"\n'
        'torch = [{version = "^1.13", python = "<3.9"}, {version = "^2.0", python = ">=3.9", source = "w"}]\n'
        'rich = {version = "*", optional = true}\nodd = "^1.0 || ^2.0"\n'
        '[[tool.poetry.source]]\nname = "w"\nurl = "https://example.invalid/whl/cu118"\n'
    )
    found = from_file(path)
    assert [str(wish) for wish in found.wishes] == [
        'torch<2,>=1.13; python_version < "3.9"',
        'torch<3,>=2.0; python_version >= "3.9"',
        "odd",
    ]
    assert found.index == ["https://example.invalid/whl/cu118"]
    assert [note.partition("dependencies: ")[2][:4] for note in found.notes] == ["rich", "odd "]


UV_LOCK = """\
version = 1
requires-python = ">=3.10"

[[package]]
name = "mine"
version = "0.1"
source = { virtual = "." }
dependencies = [{ name = "torch" }, { name = "rich" }]

[[package]]
name = "torch"
version = "2.7.1+cu128"
source = { registry = "https://example.invalid/whl/cu128" }
dependencies = [{ name = "colorama", marker = "sys_platform == 'win32'" }]

[[package]]
name = "colorama"
version = "0.4.6"
source = { registry = "https://example.invalid/simple" }

[[package]]
name = "rich"
version = "13.0"
source = { registry = "https://example.invalid/simple" }
"""
POETRY_LOCK = """\
# This file is automatically @generated by Poetry 2.1.1 and should not be changed by hand.

[[package]]
name = "torch"
version = "2.7.1"
groups = ["main"]

[package.dependencies]
colorama = {version = "*", markers = "platform_system == 'Windows'"}

[[package]]
name = "colorama"
version = "0.4.6"
groups = ["main"]

[[package]]
name = "pytest"
version = "8"
groups = ["dev"]

[metadata]
lock-version = "2.1"
python-versions = "^3.10"
"""


@pytest.mark.parametrize(
    ("name", "text", "taken", "python", "index"),
    [
        (
            "uv.lock",
            UV_LOCK,
            ["torch==2.7.1+cu128", "rich==13.0"],
            ">=3.10",
            ["https://example.invalid/whl/cu128"],
        ),
        (
            "my.lock",
            UV_LOCK,
            ["torch==2.7.1+cu128", "rich==13.0"],
            ">=3.10",
            ["https://example.invalid/whl/cu128"],
        ),
        ("poetry.lock", POETRY_LOCK, ["torch==2.7.1"], ">=3.10,<4", []),
        ("p.lock", POETRY_LOCK, ["torch==2.7.1"], ">=3.10,<4", []),
    ],
)
def test_a_lock_pins_what_nothing_in_it_brings(tmp_path, name, text, taken, python, index) -> None:
    path = tmp_path / name
    path.write_text(text)
    found = from_file(path)
    assert (list(map(str, found.wishes)), found.python, found.index) == (taken, python, index)
    assert found.notes == [f"{path}: 1 packages that others of it bring are not pinned"]


def test_a_folder_without_requirements_is_read_by_the_blocks_of_its_readme(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(
        "Install:\n\n```sh\npip install torch numpy \\\n  tqdm\npip install <your build>\n```\n"
        "or pip install what you like\n\n    $ pip install einops==0.8\n"
    )
    for found in (from_file(tmp_path), from_file(tmp_path / "README.md")):
        assert [str(wish) for wish in found.wishes] == ["torch", "numpy", "tqdm", "einops==0.8"]
    assert from_file(tmp_path).notes[0] == f"{tmp_path}: read as one project: README.md"
    (tmp_path / "README.md").write_text("Install it by pip.\n")
    with pytest.raises(UsageError, match="has no requirements"):
        from_file(tmp_path)


def test_a_folder_without_requirements_has_the_framework_that_its_sources_import(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(SETUP.format(before="", asked="[]", more=""))
    (tmp_path / "README.md").write_text("```\npip install opencv-python onnxruntime\n```\n")
    inner = tmp_path / "mine" / "models"
    inner.mkdir(parents=True)
    for name, text in (
        ("a", "import torch\n"),
        ("b", "from torch import nn\nimport torchvision\n"),
        ("c", "x"),
    ):
        (inner / f"{name}.py").write_text(text)
    (tmp_path / "export.py").write_text("import onnxruntime\n")
    (tmp_path / "tests").mkdir()
    for number in range(3):
        (tmp_path / "tests" / f"test_{number}.py").write_text("import tensorflow\n")
    found = from_file(tmp_path)
    assert [str(wish) for wish in found.wishes] == ["opencv-python", "onnxruntime", "torch", "torchvision"]
    assert found.wishes[2].place == str(inner / "a.py")
    assert "import of torch: 2 of its files import it: torch, in any release" in "".join(found.notes)


def test_a_folder_is_read_as_one_project(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        "FROM tensorflow/tensorflow:2.4.0-gpu\nRUN pip install -r requirements.txt tqdm\n"
    )
    (tmp_path / "Pipfile").write_text(
        '[packages]\ntensorflow-gpu = "*"\npandas = "*"\n[requires]\npython_version = "3.8"\n'
    )
    (tmp_path / "setup.py").write_text(SETUP.format(before="", asked='["scipy"]', more=""))
    (tmp_path / "requirements-dev.txt").write_text("pytest\n")
    (tmp_path / "environment.yml").write_text("dependencies: [numpy]\n")
    (tmp_path / "requirements.txt").write_text("h5py<3\n")
    found = from_file(tmp_path)
    assert found.notes[0] == (
        f"{tmp_path}: read as one project: setup.py, Pipfile, requirements.txt, Dockerfile; left aside: "
        "environment.yml, requirements-dev.txt (`-r FILE` reads one)"
    )
    names = {wish.name for wish in found.wishes}
    assert names == {"tensorflow", "tensorflow-gpu", "pandas", "scipy", "h5py", "tqdm"}
    assert found.python == "3.8"  # one of setup.py's
    assert "its tag names no release" not in "".join(found.notes)
    (tmp_path / "Dockerfile").write_text("FROM tensorflow/tensorflow:latest-gpu\nRUN pip install tqdm\n")
    told = f"what it brings is replaced by tensorflow-gpu ({tmp_path}/Pipfile, packages)"
    assert told in from_file(tmp_path).notes[-1]
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match="has no requirements"):
        from_file(empty)


def test_the_values_of_a_dockerfiles_variables_are_put_in_as_the_shell_does(tmp_path) -> None:
    """``ARG`` before ``FROM`` counts where it stands again behind it: AlphaFold's, PyTorch's recipes."""
    path = tmp_path / "Dockerfile"
    path.write_text(
        "ARG CUDA=11.1\nARG LOST=1\nFROM nvidia/cuda:${CUDA}-cudnn8-runtime-ubuntu18.04\nARG CUDA\n"
        "ENV A=1.7.1 B='0.8.2'\nENV OLD 2.0\n"
        "RUN pip install --upgrade jax==0.2.14 jaxlib==0.1.69+cuda${CUDA/./} -f \\\n"
        "  https://storage.googleapis.com/jax-releases/jax_releases.html\n"
        "RUN pip install a==${CUDA%.*} b==${A%%.*} c==${B//./} d==${OLD} e==${X:-3} f==${LOST}\n"
    )
    found = from_file(path)
    assert list(map(str, found.wishes)) == [
        "jax==0.2.14", "jaxlib==0.1.69+cuda111", "a==11", "b==1", "c==082", "d==2.0", "e==3",
    ]  # fmt: skip
    said = "\n".join(found.notes)
    assert "f==${LOST}: a variable" in said
    assert "-f https://storage.googleapis.com/jax-releases/jax_releases.html: a page of wheels" in said


@pytest.mark.parametrize(
    "lines",
    [
        ["ENV A=" + "a" * 20]
        + [f'ENV {new}="{f"${old}" * 10}"' for old, new in itertools.pairwise("ABCDEFGHIJ")],
        ["ENV A=" + "a" * 30000, "ENV J=${A//a/" + "b" * 30000 + "}"],
        ["RUN " + "[" * 50000, "RUN make \\", *[""] * 200_000, "all"],
    ],
)
def test_what_a_dockerfile_makes_of_its_variables_and_brackets_is_bounded(tmp_path, lines: list[str]) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text("\n".join(("FROM python:3.10", *lines, "RUN pip install torch $J", "")))
    began = time.monotonic()
    found = from_file(path)
    assert [str(wish) for wish in found.wishes] == ["torch"]
    assert time.monotonic() - began < 10


def test_what_two_files_of_a_folder_pin_otherwise_is_that_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "environment.yml").write_text(
        "dependencies:\n  - pip:\n    - torch==1.9.1\n    - scipy==1.7\n"
    )
    (tmp_path / "Dockerfile").write_text(
        "FROM python:3.9\n"
        "RUN pip install torch==1.9.1+cu111 scipy==1.8 git+https://host.example/x#egg=x tqdm # 'x\n"
    )
    found = from_file(tmp_path).merged()
    assert [str(wish) for wish in found.wishes] == ["torch==1.9.1,==1.9.1+cu111", "scipy==1.7", "tqdm"]
    assert any("scipy==1.8: left out" in note and "has scipy==1.7" in note for note in found.notes)


def test_conda_packages_of_pixi_that_come_in_no_wheels_end_nothing(tmp_path: Path) -> None:
    path = tmp_path / "pixi.toml"
    path.write_text(
        '[dependencies]\npython = "3.10.*"\nnodejs = "*"\nmine = {path = "mine"}\n'
        '[pypi-dependencies]\ntorch = "==2.3.0"\n[feature.test.dependencies]\npytest = "*"\n'
    )
    found = from_file(path)
    assert [str(wish) for wish in found.wishes] == ["torch==2.3.0"]
    assert found.python == "3.10"
    told = "\n".join(found.notes)
    assert all(word in told for word in ("nodejs", "mine @ file:mine", "[feature.test]"))
    cuda = '[feature.cu121.dependencies]\npytorch = {channel = "pytorch", version = "2.3.0"}\n'
    path.write_text('[pypi-dependencies]\nnumpy = "*"\n[feature.test.dependencies]\npytest = "*"\n' + cuda)
    (told,) = from_file(path).notes
    assert "[feature.test], [feature.cu121] (pytorch 2.3.0): not taken over" in told
    manifest = path.with_name("pyproject.toml")
    manifest.write_text(
        '[project]\nname = "a"\ndependencies = ["tqdm"]\n[tool.pixi.dependencies]\npython = "3.10.*"\n'
        'pytorch = "2.3.0"\ncudatoolkit = "12.1"\n[tool.pixi.pypi-dependencies]\nnumpy = "*"\n'
    )
    found = from_file(manifest)
    assert [str(wish) for wish in found.wishes] == ["tqdm", "numpy", "torch==2.3.0"]
    path.write_text('[dependencies]\npytorch-cpu = ">=2.6,<3"\n')
    assert [str(wish) for wish in from_file(path).wishes] == ["torch<3,>=2.6"]
    assert found.python == "3.10"
    path.write_text('[dependencies]\n"[a" = "1"\n')
    with pytest.raises(UsageError, match=r"pixi\.toml: '\[a=1' is no conda package"):
        from_file(path)


UV_EXTRAS = """[project]
dependencies = ["torch==2.9.1", "numpy"]
[project.optional-dependencies]
cpu = ["torch==2.9.1"]
gpu = ["torch==2.9.1"]
[tool.uv.sources]
torch = [{ index = "of-cpu", extra = "cpu" }, { index = "of-cuda", extra = "gpu" }]
[[tool.uv.index]]
name = "of-cpu"
url = "https://download.pytorch.org/whl/cpu"
explicit = true
[[tool.uv.index]]
name = "of-cuda"
url = "https://download.pytorch.org/whl/cu128"
explicit = true
"""


def test_of_extras_that_exclude_one_another_the_index_with_cuda_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(UV_EXTRAS)
    found = from_file(path)
    assert found.index == ["https://download.pytorch.org/whl/cu128"]
    (note,) = found.notes  # and none on the extras: all that they name is asked for
    assert "whl/cpu: left out: it is of the extra for the CPU alone" in note


def test_an_index_for_the_cpu_alone_stays(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(UV_EXTRAS.replace(', { index = "of-cuda", extra = "gpu" }', ""))
    assert from_file(path).index == ["https://download.pytorch.org/whl/cpu"]


def test_what_a_project_compiles_itself_is_remembered_with_what_it_says_of_it(tmp_path: Path) -> None:
    for name, text in (("kernels", "from torch.utils.cpp_extension import CUDAExtension"), ("plain", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "setup.py").write_text(text)
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(
        'FROM pytorch/pytorch:2.1.2-cuda12.1-cudnn8-devel\nENV TORCH_CUDA_ARCH_LIST="7.5 8.6"\n'
        "RUN conda install -c nvidia/label/cuda-12.1.1 cuda\nRUN pip install ./kernels ./plain ./absent\n"
    )
    found = from_file(dockerfile)
    assert found.sources == [
        ("./kernels", f"{dockerfile}:4", True),
        ("./absent", f"{dockerfile}:4", False),
    ]
    assert found.compiling == [
        ("architectures", "7.5 8.6", f"{dockerfile}:2"),
        ("nvcc", "12.1.1", f"{dockerfile}:3"),
    ]


def test_scripts_and_makefiles_of_a_project_that_run_nvcc_are_remembered(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch\n")
    for name, text in {
        "ops/op_compile.sh": "#/bin/bash\n/usr/local/cuda-8.0/bin/nvcc op_g.cu -o op_g.cu.o -c -O2\n",
        "lib/Makefile": "all:\n\tcd nms; python setup.py build_ext --inplace\n",
        "lib/nms/setup.py": "ext = Extension('gpu_nms', ['k.cu'], args={'nvcc': ['-arch=sm_35', '-c']})\n",
        "setup.sh": "pip install git+https://github.com/x/y.git\n",
        "train.sh": "# nvcc is not asked for\npython train.py\n",
        "cpu/setup.py": "from setuptools import setup\nsetup(name='cpu')\n",
        "README": "nvcc\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = from_file(tmp_path)
    assert sorted(found.compiling) == [
        ("perhaps", "", str(tmp_path / "setup.sh")),
        ("script", "", str(tmp_path / "ops/op_compile.sh")),
        ("script", "35", str(tmp_path / "lib/nms/setup.py")),
    ]
    sure, unread = native_code.installed_by_nvcc(found)
    assert sure == [str(tmp_path / "lib/nms/setup.py"), str(tmp_path / "ops/op_compile.sh")]
    assert unread == [str(tmp_path / "setup.sh")]
    assert not native_code.compiling(found)  # whose PyTorch need not know the card in its tool


@pytest.mark.parametrize(
    ("lines", "outputs", "taken", "told"),
    [
        (
            ["from transformers import Trainer"],
            [],
            ["torch", "transformers", "accelerate"],
            "import of transformers",
        ),
        (
            ["from transformers import TFAutoModel"],
            [],
            ["tensorflow", "transformers"],
            "import of transformers",
        ),
        (["import torchvision", "import jax"], [], ["jax", "torchvision"], "import of jax"),
        (
            ["import keras", "keras.__version__"],
            [{"data": {"text/plain": ["'2.0.8'"]}}],
            ["tensorflow<2.16,>=2"],
            "cell 1 printed Keras 2.0.8",
        ),
        (["import keras", "keras.__version__"], [], ["tensorflow"], "in any release"),
        (
            ["import torch", "print(torch.__version__)"],
            [{"name": "stdout", "text": "1.13.1+cu117\n"}],
            ["torch"],
            "`rtbuild resolve torch==1.13.1+cu117` asks for one",
        ),
    ],
)
def test_a_notebook_that_installs_no_framework_has_that_of_its_imports(
    tmp_path, lines, outputs, taken, told
) -> None:
    path = tmp_path / "old.ipynb"
    source = [f"{line}\n" for line in lines]
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": source, "outputs": outputs}]}))
    found = from_file(path)
    assert [str(wish) for wish in found.wishes] == taken
    assert any(told in note for note in found.notes)


def test_settings_of_other_tools_are_no_environment_and_notebooks_tell_by_their_imports(tmp_path) -> None:
    for name, text in {
        "azure-pipelines.yml": "jobs:\n- job: 'a'\n  steps:\n    # Install nbformat\n  - script: x\n",
        ".travis.yml": "language: python\ninstall:\n- pip install torch==0.4\n",
        "docker-compose.yml": "services:\n  web:\n    image: x\n",
        "chart.yaml": "dependencies:\n- name: redis\n",
    }.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match="has no requirements"):
        from_file(tmp_path)
    (tmp_path / "lessons").mkdir()
    (tmp_path / "lessons" / "1.ipynb").write_text(
        as_notebook("%matplotlib inline\nfrom fastai.text import *")
    )
    (tmp_path / "lessons" / "2.ipynb").write_text(as_notebook("import pandas"))
    found = from_file(tmp_path)
    assert [str(wish) for wish in found.wishes] == ["torch", "fastai", "pandas"]
    assert not any(".yml" in note or ".yaml" in note for note in found.notes)
    (tmp_path / "gpu.yaml").write_text("name: x\nchannels: [pytorch]\ndependencies:\n- pytorch=1.12.1\n")
    assert "torch==1.12.1" in str(from_file(tmp_path).wishes[0])


def test_a_side_file_that_cannot_be_read_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==1.12.1\n")
    (tmp_path / "requirements-gpu.txt").write_text("=== not a requirement ===\n")
    (tmp_path / "environment-gpu.yml").write_text("name: x\ndependencies: ['# nothing']\n")
    (tmp_path / "environment.yml").write_text("name: x\ndependencies: [tensorflow=2.4.1=mkl_py39]\n")
    assert [str(wish) for wish in from_file(tmp_path).wishes] == ["torch==1.12.1"]


def test_the_framework_that_requirements_leave_out_is_taken_of_the_readme(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("tqdm\n")
    (tmp_path / "README.md").write_text(
        "```bash\nconda create -n mine python=3.9\n"
        "conda install pytorch==1.12.1 torchvision==0.13.1 cudatoolkit=11.3 -c pytorch\n"
        "pip install black\n```\n"
    )
    found = from_file(tmp_path)
    assert [str(wish) for wish in found.wishes] == ["tqdm", "torch==1.12.1+cu113", "torchvision==0.13.1"]
    assert "3.9" in str(found.python)
    assert found.notes[0].endswith("read as one project: requirements.txt, README.md")


def test_a_folder_of_the_project_is_installed_from_there_and_not_asked_of_an_index(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(
        SETUP.format(before="", asked='["torch==1.12.1", "se3-layers"]', more="")
    )
    (tmp_path / "env" / "SE3").mkdir(parents=True)
    (tmp_path / "env" / "SE3" / "setup.py").write_text(
        "from setuptools import setup\nsetup(\n name='se3_layers')\n"
    )
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "Dockerfile").write_text(
        "FROM ubuntu:22.04\nCOPY . /app/here\nRUN pip install dgl==1.0.2+cu116 "
        "-f https://data.dgl.ai/wheels/cu116/repo.html /app/here/env/SE3 /app/elsewhere\n"
    )
    found = from_file(tmp_path)
    assert [wish.name for wish in found.wishes] == ["torch", "dgl"]
    assert found.by_hand == [f"{tmp_path}/env/SE3", "/app/elsewhere"]
    assert [text for text, _, _ in found.sources] == ["/app/elsewhere"]
    assert found.pages == {"https://data.dgl.ai/wheels/cu116/repo.html": f"{tmp_path}/docker/Dockerfile:3"}
    assert "se3-layers: it is the project's own folder" in "".join(found.notes)


def test_requirements_in_the_one_subfolder_that_has_some_are_read_and_of_several_none(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(SETUP.format(before="", asked='["flax"]', more=""))
    for name, text in (("mine", "jax[cuda12]\n"), ("docs", "torch\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "requirements.txt").write_text(text)
    found = from_file(tmp_path)
    assert {wish.name for wish in found.wishes} == {"flax", "jax"}
    assert found.notes[0] == f"{tmp_path}: read as one project: setup.py, mine/requirements.txt"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "environment.yml").write_text("dependencies: [pytorch]\n")
    found = from_file(tmp_path)
    assert {wish.name for wish in found.wishes} == {"flax"}
    assert "left aside: mine/requirements.txt, other/environment.yml" in found.notes[0]


def test_what_is_built_after_the_framework_is_taken_of_a_readme(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.6.0\n")
    (tmp_path / "README.md").write_text(
        "```\npip install torch==2.5.0 black\npip install flash-attn==2.7.3\n```\n"
    )
    found = from_file(tmp_path)
    assert [str(wish) for wish in found.wishes] == ["torch==2.6.0", "flash-attn==2.7.3"]


def test_the_compilers_that_nvcc_takes_are_those_that_the_probe_knows() -> None:
    """The probe's table stands alone, in one file that runs on old Pythons."""
    known = {cuda: int(gcc) for cuda, gcc in read_patterns()["newest-gcc"].items()}
    assert known.items() <= dict(native_code._GCC).items()
    assert {cuda: gcc for cuda, gcc in native_code._GCC if cuda != "11.0"} == known


def test_imports_that_no_requirement_names_and_sources_that_compile_cuda_are_noted(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch\nopencv-python\nscikit-learn\nPyYAML\nPillow\n")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "net.py").write_text("import os, torch\n")
    (tmp_path / "run.py").write_text(
        "import cv2\nimport yaml\nimport sklearn\nfrom PIL import Image\nimport gym\nimport mine.net\n"
        "from torch.utils import cpp_extension\ncpp_extension.load(name='a', sources=['a.cu'])\n"
    )
    (tmp_path / "a.ipynb").write_text('{"cells": [{"source": ["import matplotlib.pyplot as plt\\n"]}]}')
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "setup.py").write_text("from torch.utils.cpp_extension import CUDAExtension\n")
    found = from_file(tmp_path)
    told = f"gym ({tmp_path}/run.py), matplotlib ({tmp_path}/a.ipynb): imported, and in no list by that name"
    assert any(note.startswith(told) for note in found.notes)
    assert found.compiling == [
        ("run", "torch.utils.cpp_extension.load", f"{tmp_path}/run.py"),
        ("install", "CUDAExtension", f"{tmp_path}/ops/setup.py"),
    ]


def test_an_extra_is_taken_as_pip_takes_it_and_with_it_those_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "Robots"\ndependencies = ["torch"]\n[project.optional-dependencies]\n'
        'data = ["datasets<5"]\ntraining = ["robots[data]", "wandb", "ray[data]"]\nother = ["rich"]\n'
    )
    for text in (f"{tmp_path}[training]", f"{tmp_path}/pyproject.toml[training]"):
        found = from_file(Path(text)).merged()
        assert [str(wish) for wish in found.wishes] == ["torch", "wandb", "ray[data]", "datasets<5"]
        assert "extras of the project that are not taken over: other; " in found.notes[-1]
    with pytest.raises(UsageError, match="has no extra 'trainig'") as refused:
        from_file(Path(f"{tmp_path}[trainig]"))
    assert refused.value.hint == "its extras: data, other, training"


def test_an_environment_for_the_cpu_is_left_aside_beside_other_files(tmp_path: Path) -> None:
    (tmp_path / "pixi.toml").write_text('[dependencies]\npython = "3.10.*"\npytorch-cpu = ">=2.6,<3"\n')
    assert [str(wish) for wish in from_file(tmp_path).wishes] == ["torch<3,>=2.6"]
    (tmp_path / "requirements.txt").write_text("torch>=2.2.2\n")
    found = from_file(tmp_path)
    assert ([str(wish) for wish in found.wishes], found.python) == (["torch>=2.2.2"], None)
    assert found.notes[0].endswith(
        "read as one project: requirements.txt; left aside: pixi.toml (`-r FILE` reads one)"
    )


def test_what_one_file_pins_twice_is_that_of_its_first_line_and_clashes_with_nothing(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(
        "torch\nimageio-ffmpeg==0.4.3\nimageio-ffmpeg==0.4.4\nscipy==1.7 ; python_version<'3.9'\nscipy==1.8\n"
    )
    found = from_file(path).merged()
    assert [str(wish) for wish in found.wishes if wish.name != "scipy"] == ["torch", "imageio-ffmpeg==0.4.3"]
    assert len(found.wishes) == 4
    assert not found.clashes
    assert found.notes == [f"{path}:3: imageio-ffmpeg==0.4.4: left out: {path}:2 has imageio-ffmpeg==0.4.3"]


@pytest.mark.parametrize(("beside", "compiles"), [("readme.md", False), ("CMakeLists.txt", True)])
def test_a_folder_without_setup_py_or_cmake_compiles_nothing(
    tmp_path: Path, beside: str, compiles: bool
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "pyproject.toml").write_text("[project]\nname = 'mine'\n")
    (tmp_path / "mine" / beside).write_text("")
    (tmp_path / "requirements.txt").write_text("torch\n-e ./mine\n")
    found = from_file(tmp_path / "requirements.txt")
    assert found.by_hand == [f"{tmp_path}/mine"]
    assert bool(found.sources) is compiles


CUDA_PROJECT = {
    "ops.py": "import torch\nfrom torch.utils import cpp_extension\ncpp_extension.load('x', [])\n",
    "ops.cpp": "#include <torch/extension.h>\nvoid f() {\n  AT_CHECK(true);\n}\n",
    "README.md": "## Requirements\n\n* 64-bit Python 3.7 and PyTorch 1.7.1.\n* `pip install click ninja`\n",
}


@pytest.mark.parametrize(("card", "least"), [("RTX4090", ">=1.8"), ("RTX3090", ">=1.7"), ("T4", None)])
def test_code_that_is_compiled_for_a_card_takes_a_pytorch_that_knows_it(tmp_path, card, least) -> None:
    """https://github.com/NVlabs/stylegan2-ada-pytorch: 1.7.1 ends with Unknown CUDA arch on 8.9."""
    for name, text in CUDA_PROJECT.items():
        (tmp_path / name).write_text(text)
    asked = from_file(tmp_path).merged()
    demand = native_code.for_compiling(Demand(frameworks=split(asked)[0], gpus=(card,)), asked)
    (torch,) = demand.frameworks
    assert str(torch.parsed.specifier) == (least or "")
    told = [str(one.frameworks[0].parsed.specifier) for one, _ in with_told(demand, asked.told, {})]
    assert ("==1.7.1" in told[0]) is (least != ">=1.8")
    pinned = Demand(frameworks=split(from_arguments(["torch==1.7.1"]))[0], gpus=(card,))
    assert native_code.for_compiling(pinned, asked) == pinned


def test_a_readme_is_read_as_people_write_it_and_its_first_line_counts(tmp_path) -> None:
    """A command in a sentence, a list under one that names pip, and use before training."""
    (tmp_path / "README.md").write_text(
        "    conda install pytorch=1.4 torchvision=0.5 -c pytorch\n\nTo train:\n\n"
        "    conda install pytorch=1.1 torchvision=0.3 -c pytorch\n\nRun `pip install click` first.\n\n"
        "Install the following Python dependencies (with `pip install`):\n\n"
        "    matplotlib\n    'trimesh>=2.35.39,<2.35.40'\n\n## Run\n\n    python demo.py\n"
    )
    names = [str(wish) for wish in from_file(tmp_path).wishes]
    assert sorted(names) == [
        "click",
        "matplotlib",
        "torch==1.4.*",
        "torchvision==0.5.*",
        "trimesh<2.35.40,>=2.35.39",
    ]


def test_what_extensions_of_pytorch_lost_is_told_with_what_stands_for_it(tmp_path) -> None:
    for name, text in CUDA_PROJECT.items():
        (tmp_path / name).write_text(text)
    (note,) = (text for text in from_file(tmp_path).notes if "AT_CHECK" in text)
    assert note.startswith(f"{tmp_path / 'ops.cpp'}:3: AT_CHECK, which PyTorch has no longer from 1.5 on")
    assert "put TORCH_CHECK there" in note


def test_lists_that_are_left_aside_bind_what_both_name_and_bring_a_framework(tmp_path) -> None:
    (tmp_path / "requirements.txt").write_text("numpy\nrich==10.16.1\n")
    (tmp_path / "pypi_requirements.txt").write_text("numpy<1.23\ntensorflow>=2.6.3,<2.9\nscipy<=1.9\n")
    (tmp_path / "dev_requirements.txt").write_text("rich==13\npytest\n")
    asked = from_file(tmp_path).merged()
    names = {wish.name: str(wish.parsed.specifier) for wish in asked.wishes}
    assert names == {"numpy": "<1.23", "rich": "==10.16.1", "tensorflow": "<2.9,>=2.6.3", "scipy": "<=1.9"}
    (tmp_path / "requirements.txt").write_text("numpy\ntorch>=1.10\nrich==10.16.1\n")
    (tmp_path / "pypi_requirements.txt").unlink()
    (tmp_path / "environment.yml").write_text(
        "dependencies:\n- numpy<1.23\n- rich=13.0.0\n- pytorch=1.12.1\n- cudatoolkit=11.3\n- scipy\n"
    )
    asked = from_file(tmp_path).merged()
    frameworks, companions = split(asked)
    found = with_aside(Demand(frameworks=frameworks, companions=companions), asked.aside)
    assert found is not None
    demand, said = found
    assert [str(wish) for wish in demand.companions] == ["numpy<1.23", "rich==10.16.1"]
    assert str(demand.frameworks[0]) == "torch==1.12.1+cu113,>=1.10"
    assert any("rich==13.0.0" in text and "left aside" in text for text in said)


@pytest.mark.parametrize(
    ("source", "typed", "cpu"),
    [
        ("import jax\nimport tensorflow as tf\nx = tf.data.Dataset\ny = jax.jit(f)\n", [], True),
        ("import jax\nimport tensorflow as tf\nx = tf.keras.Model\ny = jax.jit(f)\n", [], False),
        ("import jax\nimport tensorflow as tf\nx = tf.keras.Model\n", ["tensorflow-cpu"], True),
        ("import jax\ny = jax.jit(f)\n", [], False),  # what is not taken tells nothing
        ("x = 1\n", [], False),
    ],
)
def test_a_tensorflow_that_reads_data_beside_jax_leaves_it_the_card(tmp_path, source, typed, cpu) -> None:
    (tmp_path / "train.py").write_text(source)
    (tmp_path / "requirements.txt").write_text("jax\ntensorflow>=2.10\n")
    asked = from_file(tmp_path)
    for text in typed:
        asked.add(text, TYPED)
    frameworks, companions = split(asked.merged())
    demand = with_data_on_cpu(Demand(frameworks=frameworks, companions=companions), asked)
    assert ("tensorflow" in {wish.name for wish in demand.frameworks}) is not cpu
    assert ("tensorflow-cpu" in {wish.name for wish in demand.companions}) is cpu


def test_a_list_that_names_its_project_means_the_folder_that_pip_installs(tmp_path, monkeypatch) -> None:
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "requirements.txt").write_text("-e .\ntorch==2.4.1\n")
    monkeypatch.chdir(tmp_path)
    asked = from_file(Path("requirements/requirements.txt"))
    assert (asked.itself, asked.by_hand, asked.sources) == (None, [], [])  # nothing there is installed
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["torch==2.4.1"]\n')
    for file in (Path("requirements/requirements.txt"), Path()):
        asked = from_file(file)
        assert (asked.itself, asked.by_hand, asked.sources) == (".", [], [])
    (tmp_path / "requirements.txt").write_text("-e .\n-e ./mine\ntorch==2.4.1\n")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "setup.py").write_text("")
    asked = from_file(Path("requirements.txt"))
    assert (asked.itself, asked.by_hand) == (".", ["./mine"])


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject.toml": '[project]\nversion = "1"\nname = "My_Drug"\ndependencies = ["torch"]\n'},
        {
            "setup.cfg": "[metadata]\nname = my-drug\n[options]\ninstall_requires = torch\n",
            "setup.py": "import setuptools\nsetuptools.setup()\n",
        },
        {"setup.py": "from setuptools import setup\nsetup(\n  name='my_drug', install_requires=['torch'])\n"},
        {"setup.py": "NAME = 'my.drug'\nsetup(name=NAME)\n", "requirements.txt": "torch\nmy-drug\n"},
    ],
)
def test_the_project_itself_is_its_folder_and_no_release_of_an_index(tmp_path, files) -> None:
    (tmp_path / "README.md").write_text("```\npip install torch\npip install my-drug\n```\n")
    (tmp_path / "train.py").write_text("import torch\nimport my_drug\n")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    asked = from_file(tmp_path)
    assert {wish.name for wish in asked.wishes} == {"torch"}
    assert asked.itself == str(tmp_path)


def test_a_companion_of_pytorch_that_the_sources_import_is_of_the_set(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch\n")
    (tmp_path / "data.py").write_text("import torchvision.transforms as T\ntry:\n    import torchaudio\n")
    asked = from_file(tmp_path)
    assert [str(wish) for wish in asked.wishes] == ["torch", "torchvision"]
    assert asked.wishes[1].place == f"{tmp_path / 'data.py'}:1"
    assert any("import of torchvision: taken" in note for note in asked.notes)
    (tmp_path / "requirements.txt").write_text("numpy\njax\n")  # nothing of PyTorch's is asked for
    assert "torchvision" not in {wish.name for wish in from_file(tmp_path).wishes}


@pytest.mark.parametrize(
    ("test", "switch"),
    [
        ("torch.cuda.is_available() or os.getenv('FORCE_CUDA', '0') == '1'", ["FORCE_CUDA=1"]),
        ('os.environ.get("MINE_KEEP_CUDA_BUILD", "FALSE") == "TRUE"', ["MINE_KEEP_CUDA_BUILD=TRUE"]),
        ("os.getenv('BUILD_CUDA_EXT', '1') == '1'", []),  # as it is anyway
        ("os.getenv('SKIP_CUDA_BUILD', 'FALSE') == 'TRUE'", []),
        ("os.getenv('CC', 'gcc') == 'gcc'", []),
    ],
)
def test_what_turns_cuda_code_on_in_a_setup_py_stands_before_the_line_that_compiles_it(
    tmp_path, test, switch
) -> None:
    (tmp_path / "setup.py").write_text(
        "import os, torch\nfrom setuptools import setup\n"
        "from torch.utils.cpp_extension import CUDAExtension\n"
        f"more = [CUDAExtension('x', ['x.cu'])] if {test} else []\n"
        "setup(name='x', ext_modules=more, install_requires=['torch==2.4.1'])\n"
    )
    asked = from_file(tmp_path)
    frameworks, companions = split(asked.merged())
    demand = Demand(frameworks=frameworks, companions=companions, gpus=("RTX4090",))
    best = search(demand, available={}).possible[0]
    before = native_code.build_variables(asked, best.cell, demand)
    assert before[:-1] == switch
    assert before[-1].startswith("TORCH_CUDA_ARCH_LIST=8.")
    assert native_code.build_variables(Wishes(), best.cell, demand) == []
