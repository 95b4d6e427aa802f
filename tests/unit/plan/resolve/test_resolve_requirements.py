"""Files that people keep requirements in: nothing is lost, and what cannot be taken over is named."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from builder.core.errors import UsageError
from builder.plan.facts.tables import load
from builder.plan.resolve.manifests import from_pylock, from_pyproject
from builder.plan.resolve.project_files import from_file
from builder.plan.resolve.project_texts import MOST_BYTES
from builder.plan.resolve.requirements import from_requirements
from builder.plan.resolve.source_files import from_notebook
from builder.plan.resolve.wishes import from_arguments

HASH = "sha256:" + "0" * 64


def test_the_table_of_pip_list_is_read_as_pip_freeze(tmp_path: Path) -> None:
    """https://pip.pypa.io/en/stable/cli/pip_list/ shows the table, with a column for what is editable."""
    table = (
        "Package     Version     Editable project location\n"
        "----------- ----------- -------------------------\n"
        "mine        0.1         /home/u/mine\n"
        "numpy       1.26.4\npip         24.0\ntorch       2.3.1+cu121\n\n"
        "[notice] A new release of pip is available: 24.0 -> 25.0\n"
    )
    file = tmp_path / "list.txt"
    file.write_text(table)
    found = from_file(file)
    assert [str(wish) for wish in found.wishes] == ["numpy==1.26.4", "torch==2.3.1+cu121"]
    assert found.wishes[0].place == f"{file}:4"
    assert [note.partition(": ")[2][:4] for note in found.notes] == ["mine"]


def test_all_packages_that_are_asked_for_twice_are_told_at_once() -> None:
    found = from_arguments(["numpy==1.26.4", "numpy==1.20", "scipy<1.8", "scipy>=1.9", "torch", "torch>2"])
    assert found.merged().clashes == [
        "numpy==1.26.4 (as typed) and numpy==1.20 (as typed): no version is both",
        "scipy<1.8 (as typed) and scipy>=1.9 (as typed): no version is both",
    ]


def test_a_requirements_file_with_everything_in_it(tmp_path) -> None:
    (tmp_path / "more.txt").write_text("tqdm\n")
    path = tmp_path / "requirements.txt"
    path.write_text(
        "# a comment\n"
        'torch==2.3.1 ; python_version < "3.12"  # pinned\n'
        f"numpy==1.26.4 \\\n    --hash={HASH} \\\n    --hash={HASH}\n"
        "-e .\n"
        "git+https://example.invalid/x.git#egg=x\n"
        "name @ https://example.invalid/name-1.0-py3-none-any.whl\n"
        "./local.whl\n"
        "tensorflow_gpu>=2\n"
        "--extra-index-url https://example.invalid/simple\n"
        "-r more.txt\n"
        "-c bounds.txt\n"
        "--no-binary :all:\n"
    )
    found = from_file(path)
    assert [str(wish) for wish in found.wishes] == [
        'torch==2.3.1; python_version < "3.12"',
        "numpy==1.26.4",
        "tensorflow_gpu>=2",
        "tqdm",
    ]
    assert [wish.place for wish in found.wishes] == [
        f"{path}:2",
        f"{path}:3",
        f"{path}:10",
        f"{tmp_path / 'more.txt'}:1",
    ]
    assert found.wishes[2].name == "tensorflow-gpu"
    assert found.index == ["https://example.invalid/simple"]
    lines = [note.removeprefix(f"{path}:").partition(":")[0] for note in found.notes]
    assert lines == ["3", "6", "7", "8", "9", "13", "14"]
    assert "the lock has its own" in found.notes[0]
    for note in found.notes[1:3]:
        assert note.endswith(
            "built from the repository's own source: not part of the set; build it in the image"
        )


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("submodules/diff-gaussian-rasterization", True),
        ("submodules/x[extra]", True),
        ("./simple-knn", True),
        ("../here", True),
        ("~/here", True),
        ("sub\\folder", True),
        ("-e .", True),
        ("-e git+https://example.invalid/x.git#egg=x", True),
        ("git+ssh://example.invalid/x.git", True),
        ("name @ git+https://example.invalid/x.git", True),
        ("name @ file:///here", True),
        ("dist/name-1.0-py3-none-any.whl", False),
        ("name @ https://example.invalid/name-1.0.tar.gz", False),
    ],
)
def test_what_a_repository_builds_itself_is_noted_and_the_rest_is_taken(tmp_path, line, own) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(f"torch==2.3.1\n{line}\n")
    found = from_file(path)
    assert list(map(str, found.wishes)) == ["torch==2.3.1"]
    (note,) = found.notes
    assert note.startswith(f"{path}:2: {line}: ")
    assert ("the repository's own source" in note) is own


def test_a_path_on_the_command_line_is_refused() -> None:
    for text in ("tensorflow/tensorflow:1.15", "submodules/simple-knn"):
        with pytest.raises(UsageError, match="is a path, an image or a repository, and no package"):
            from_arguments(["torch", text])


def test_the_address_of_a_frameworks_wheel_tells_its_version(tmp_path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(
        "torch @ https://example.invalid/whl/cu121/torch-2.2.2%2Bcu121-cp311-cp311-linux_x86_64.whl\n"
        "https://example.invalid/torchvision-0.17.2-py3-none-any.whl#sha256=00 ; python_version < '3.12'\n"
        "name @ https://example.invalid/name-1.0-py3-none-any.whl\n"
    )
    found = from_file(path)
    assert [str(wish) for wish in found.wishes] == [
        "torch==2.2.2+cu121",
        'torchvision==0.17.2; python_version < "3.12"',
    ]
    assert [note.partition(": ")[0] for note in found.notes] == [f"{path}:{n}" for n in (1, 2, 3)]
    assert "taken as torch==2.2.2+cu121" in found.notes[0]


def test_what_is_wrong_is_named_with_its_line(tmp_path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("numpy\ntorch=2.3\n")
    with pytest.raises(UsageError, match=r"requirements.txt:2: 'torch=2.3' is not a requirement"):
        from_file(path)
    path.write_text("-r requirements.txt\n")
    with pytest.raises(UsageError, match="in a circle"):
        from_file(path)
    with pytest.raises(UsageError, match="No such file"):
        from_file(tmp_path / "nowhere.txt")
    path.write_bytes(b"\xff\xfe\x00")  # half a letter of UTF-16
    with pytest.raises(UsageError, match="is no text: its byte 2 is none of UTF-8"):
        from_file(path)
    path.write_bytes(b"#" * (MOST_BYTES + 1))
    with pytest.raises(UsageError, match="more than 16 MiB"):
        from_file(path)
    with pytest.raises(UsageError, match="as typed: 'torch==' is not a requirement"):
        from_arguments(["torch=="])


@pytest.mark.parametrize(
    ("extras", "own", "taken"),
    [
        ('cpu = ["torch==1.10.*"]\ncuda = ["torch==1.10.*"]\n', "", ["numpy", "torch==1.10.*"]),
        ('cpu = ["torch==1.10.*"]\ncuda = ["torch==1.12.*"]\n', "", ["numpy"]),
        ('cuda = ["torch==1.10.*"]\n', ', "jax"', ["numpy", "jax"]),
        ("cuda = 3\n", "", ["numpy"]),
    ],
)
def test_a_framework_that_extras_alone_name_is_taken_if_they_agree(tmp_path, extras, own, taken) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(f'[project]\ndependencies = ["numpy"{own}]\n[project.optional-dependencies]\n{extras}')
    found = from_pyproject(path)
    assert [str(wish.parsed) for wish in found.wishes] == taken
    told = "cuda" in found.extras
    assert told is ("torch==1.10.*" not in taken)  # all that such an extra names is taken


def test_a_pyproject_of_either_kind(tmp_path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(
        '[project]\nrequires-python = ">=3.9"\ndependencies = ["torch>=2.1", "numpy<2"]\n'
        '[project.optional-dependencies]\ndocs = ["sphinx"]\n'
    )
    found = from_pyproject(path)
    assert [str(wish) for wish in found.wishes] == ["torch>=2.1", "numpy<2"]
    assert found.python == ">=3.9"
    (note,) = found.merged().notes
    assert note.startswith("extras of the project that are not taken over: docs; ")
    path.write_text(
        '[tool.poetry.dependencies]\npython = "^3.10"\ntorch = "^2.1"\nnumpy = "~1.26.4"\ntqdm = "*"\n'
        'jax = {version = "0.4.30", extras = ["cuda12"], markers = "sys_platform == \'linux\'"}\n'
        'pre = "^0.2.3"\nmine = {path = "../mine"}\n'
    )
    found = from_pyproject(path)
    assert [str(wish.parsed) for wish in found.wishes] == [
        "torch<3,>=2.1",
        "numpy<1.27,>=1.26.4",
        "tqdm",
        'jax[cuda12]==0.4.30; sys_platform == "linux"',
        "pre<0.3,>=0.2.3",
    ]
    assert found.python == ">=3.10,<4"
    assert "mine @ file:../mine: built from the repository's own source" in found.notes[0]
    for text, said in (("[tool.x]\n", "names no dependencies"), ("= 1", "pyproject.toml")):
        path.write_text(text)
        with pytest.raises(UsageError, match=said):
            from_pyproject(path)


def notebook(path, *sources: str | list[str]) -> None:
    cells = [{"cell_type": "markdown", "source": "!pip install nothing"}]
    cells += [{"cell_type": "code", "source": source} for source in sources]
    path.write_text(json.dumps({"nbformat": 4, "cells": cells}))


def test_the_lines_of_a_notebook_in_order_the_last_one_of_a_package_counts(tmp_path) -> None:
    path = tmp_path / "n.ipynb"
    notebook(
        path,
        ["!pip -q install tensorflow==2.8.2 keras\n", "import tensorflow\n"],
        "%pip install torch --index-url https://example.invalid/cu118 > /dev/null\n# !pip install commented",
        "!python -m pip install -U 'numpy<2' && pip install tqdm | tail -1\nx = 'pip install y'",
        "%%bash\npip install \\\n  einops==0.8\necho pip install z",
        "!pip install {name} git+https://example.invalid/x -r requirements.txt 'unclosed",
        "!pip install {name} git+https://example.invalid/x -r requirements.txt tensorflow==2.9.1",
        "!apt install libcudnn8",
        "!{sys.executable} -m pip install timm==1.0.9 -q | tail -1\n!PIP_NO_CACHE_DIR=1 pip3 install peft",
    )
    found = from_notebook(path)
    assert [str(wish) for wish in found.wishes] == [
        "keras",
        "torch",
        "numpy<2",
        "tqdm",
        "einops==0.8",
        "tensorflow==2.9.1",
        "timm==1.0.9",
        "peft",
    ]
    assert found.wishes[1].place == f"{path}, cell 3, line 1"
    assert found.index == ["https://example.invalid/cu118"]
    told = "\n".join(found.notes)
    for words in ("quotes do not close", "{name}: a variable", "git+https", "-r requirements.txt"):
        assert words in told
    assert "tensorflow==2.8.2: replaced by tensorflow==2.9.1" in told
    assert len(found.notes) == 5


def test_lines_in_a_comment_count_where_no_other_line_of_a_notebook_installs_anything(tmp_path) -> None:
    path = tmp_path / "n.ipynb"
    notebook(
        path, "# Uncomment it:\n#! pip install datasets transformers\n# pip install rouge", "import torch"
    )
    found = from_notebook(path)
    assert [str(wish) for wish in found.wishes] == ["datasets", "transformers", "torch"]
    assert found.wishes[0].place == f"{path}, cell 2, line 2"


def test_what_the_code_of_a_notebook_certainly_imports(tmp_path) -> None:
    """A ``try`` or an ``if`` may leave an import out, and what Python 2 printed nobody reads."""
    notebook(
        tmp_path / "n.ipynb",
        "!pip install torch moviepy\nimport moviepy.editor as mp, os",
        "from torch.utils.data import DataLoader, Dataset\nif True:\n    import x.y\nfrom . import own",
        "try:\n    import apex.amp\nexcept ImportError:\n    pass",
        "print 1\nimport old.part",
        "%matplotlib inline\nfrom moviepy.video.fx import *\n!ls",
    )
    assert from_notebook(tmp_path / "n.ipynb").imports == [
        "moviepy.editor",
        "os",
        "torch.utils.data:DataLoader",
        "torch.utils.data:Dataset",
        "moviepy.video.fx",
    ]


def test_what_is_no_notebook(tmp_path) -> None:
    path = tmp_path / "n.ipynb"
    for text in ("[1]", "{", '{"cells": 3}', "{}"):
        path.write_text(text)
        with pytest.raises(UsageError, match="is no notebook"):
            from_notebook(path)
    notebook(path, "print(1)")
    with pytest.raises(UsageError, match="installs nothing by pip"):
        from_notebook(path)


def test_the_requirements_file_that_an_install_line_names_is_read(tmp_path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.1.0\n-r more.txt\n")
    (tmp_path / "more.txt").write_text("numpy<2\n")
    lines = (
        "!cd repo && pip install -r requirements.txt",
        "!pip install --requirement=/content/requirements.txt",
    )
    notebook(tmp_path / "n.ipynb", *lines)
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text("FROM x\nRUN pip install -r /app/requirements.txt\n")
    for found in (from_notebook(tmp_path / "n.ipynb"), from_file(dockerfile)):
        assert list(map(str, found.wishes)) == ["torch==2.1.0", "numpy<2"]
        assert found.wishes[0].place == f"{tmp_path}/requirements.txt:1"
        assert not found.notes


def test_a_file_that_an_install_line_names_and_that_is_not_there_is_told(tmp_path) -> None:
    notebook(tmp_path / "n.ipynb", "!pip install -r " + "x" * 300)
    with pytest.raises(UsageError, match=r"n\.ipynb, cell 2, line 1: -r x+.*no such file here"):
        from_notebook(tmp_path / "n.ipynb")


def test_several_requirements_on_one_package_are_one() -> None:
    found = from_arguments(
        ["torch>=2", "torch[opt]<2.1", "numpy ; python_version < '3.9'", "numpy<2"]
    ).merged()
    assert [str(wish) for wish in found.wishes] == [
        "torch[opt]<2.1,>=2",
        'numpy; python_version < "3.9"',
        "numpy<2",
    ]


@pytest.mark.parametrize(
    "text",
    [
        '[project]\ndependencies = "torchvision==0.19.0"\n',
        '[project]\nrequires-python = 3.8\ndependencies = ["torch"]\n',
        'project = "torch"\n',
        '[project]\ndependencies = ["torch"]\n[tool]\npoetry = 3\n',
    ],
)
def test_a_value_of_another_type_is_no_absence(tmp_path, text):
    path = tmp_path / "pyproject.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"pyproject.toml: "):
        from_pyproject(path)


def test_pylock_names_each_package_by_version(tmp_path: Path) -> None:
    path = tmp_path / "pylock.toml"
    path.write_text(
        'lock-version = "1.0"\nrequires-python = ">=3.11"\n'
        '[[packages]]\nname = "torch"\nversion = "2.9.1"\n'
        '[[packages]]\nname = "win"\nversion = "1"\nmarker = "sys_platform == \'win32\'"\n'
        '[[packages]]\nname = "mine"\ndirectory = { path = "." }\n'
    )
    found = from_pylock(path)
    assert [str(wish) for wish in found.wishes] == ["torch==2.9.1", 'win==1; sys_platform == "win32"']
    assert found.wishes[0].place == f"{path}:5:11"
    assert found.python == ">=3.11"
    assert f"{path}:10:1: mine: not taken over" in found.notes[0]


def test_packages_of_extras_and_groups_of_a_pylock_are_named(tmp_path: Path) -> None:
    path = tmp_path / "pylock.toml"
    path.write_text(
        'lock-version = "1.0"\npackages = [\n'
        '{ name = "torch", version = "2.9.1", marker = "\'extras\' not in platform_release" },\n'
        '{ name = "rich", version = "1", marker = "\'dev\' in dependency_groups" },\n'
        '{ name = "numba", version = "1", marker = "\'cpu\' in extras or sys_platform == \'win32\'" }]\n'
    )
    found = from_pylock(path)
    assert [wish.name for wish in found.wishes] == ["torch"]
    assert [note.split(": ")[:2] for note in found.notes] == [
        [f"{path}, package 2", "rich"],
        [f"{path}, package 3", "numba"],
    ]


PYLOCK = 'lock-version = "1.0"\n[[packages]]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "pylock.toml is no lock of PEP 751"),
        ('lock-version = "1.0"\npackages = 3', "pylock.toml is no lock of PEP 751"),
        (
            'lock-version = "2.0"\n[[packages]]\nname = "a"\nversion = "1"',
            "pylock.toml:1:16: its lock-version is 2.0, and 1.0 is read",
        ),
        ('lock-version = "1.0"\npackages = [3]', "pylock.toml, package 1 has no name"),
        (f'{PYLOCK}version = "1"', "pylock.toml:2:1 has no name"),
        (f'{PYLOCK}name = "a"', "pylock.toml locks no package by version"),
        (f'{PYLOCK}name = "a"\n  version = "x y"', "pylock.toml:4:13: 'x y' is not one version"),
        (f'{PYLOCK}name = "a"\nversion = "1,!=2"', "pylock.toml:4:11: '1,!=2' is not one version"),
        (f'{PYLOCK}name = "a"\nversion = "2.*"', "pylock.toml:4:11: '2.*' is not one version"),
        (f'{PYLOCK}name = "a"\nversion = 2', "pylock.toml:4:11: '2' is not one version"),
        (f'{PYLOCK}name = "a[b]"\nversion = "1"', "pylock.toml:3:8: 'a[b]' is not the name of a package"),
        (f'{PYLOCK}name = "a\\u001b[1m"\nversion = "1"', "pylock.toml:3:8: "),
        (f'{PYLOCK}name = "a"\nversion = "1"\nmarker = "x"', "pylock.toml:5:10: 'x' is not an environment"),
        (f'{PYLOCK}name = "a"\nversion = "1"\nmarker = 3', "pylock.toml:5:10: '3' is not an environment"),
        (f'requires-python = "x"\n{PYLOCK}name = "a"', "pylock.toml:1:19: 'x' is not a set of Pythons"),
        (f'requires-python = 3\n{PYLOCK}name = "a"', "pylock.toml:1:19: '3' is not a set of Pythons"),
        ('lock-version = "1.0\n', "pylock.toml:1:20: it is no TOML"),
        (f'{PYLOCK}name = "a"\nversion =\n', "pylock.toml:4:10: it is no TOML"),
        ("x = " + "[" * 5000, "pylock.toml: it is nested more than"),
    ],
)
def test_pylock_that_is_none(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "pylock.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        from_pylock(path)
    assert caught.value.hint
    assert "\x1b" not in str(caught.value)


def test_the_cuda_of_a_wheels_address_is_that_of_its_build(tmp_path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(
        "torch @ https://example.invalid/whl/cu102/torch-1.8.1-cp38-cp38-linux_x86_64.whl\n"
        "https://example.invalid/whl/cu102/torchvision-0.9.1-cp38-cp38-linux_x86_64.whl\n"
        "https://example.invalid/cu102/tensorflow-2.3.0-cp38-cp38-manylinux2010_x86_64.whl\n"
    )
    found = from_file(path)
    assert [str(wish) for wish in found.wishes] == [
        "torch==1.8.1+cu102",
        "torchvision==0.9.1",
        "tensorflow==2.3.0",
    ]
    assert "taken as torch==1.8.1+cu102" in found.notes[0]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-32"])
def test_a_requirements_file_is_read_by_its_mark_of_encoding(tmp_path, encoding: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_bytes("torch==2.3.1\r\nnumpy\r\n".encode(encoding))
    assert [str(wish) for wish in from_file(path).wishes] == ["torch==2.3.1", "numpy"]


@pytest.mark.parametrize(
    ("code", "taken", "told"),
    [
        (
            "%tensorflow_version 1.x\nimport tensorflow as tf",
            "tensorflow<2",
            "cell 1, line 1 has `%tensorflow_version 1.x`: tensorflow<2",
        ),
        (
            "try:\n  %tensorflow_version 1.x\nexcept: pass\nimport tensorflow",
            "tensorflow<2",
            "`%tensorflow_version 1.x`",
        ),
        (
            "import numpy\nfrom torch import nn",
            "torch numpy",
            "cell 1, line 2: import of torch: no line installs it",
        ),
        ("import onnxruntime", "onnxruntime-gpu", "no line installs it"),
        ("from keras import layers", "tensorflow", "import of keras: no line installs it"),
        ("import paddle", "paddlepaddle-gpu", "`rtbuild resolve paddlepaddle-gpu==VERSION`"),
    ],
)
def test_a_notebook_that_installs_no_framework_has_the_one_that_it_imports(
    tmp_path: Path, code: str, taken: str, told: str
) -> None:
    path = tmp_path / "old.ipynb"
    source = ["!pip install tqdm\n"] if "import numpy" not in code else []
    cells = [{"cell_type": "code", "source": code.splitlines(keepends=True)}]
    cells += [{"cell_type": "code", "source": source}]
    path.write_text(json.dumps({"cells": cells}))
    found = from_notebook(path)
    assert [str(wish) for wish in found.wishes if wish.name != "tqdm"] == taken.split()
    assert told in found.notes[0]


def test_the_cuda_of_a_dockerfiles_base_is_told(tmp_path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(
        "FROM rust:1.80 AS build\nFROM --platform=linux/amd64 nvidia/cuda:13.1.0-cudnn-runtime-ubuntu24.04\n"
        "RUN pip install onnxruntime-gpu\n"
    )
    found = from_file(path)
    assert list(map(str, found.wishes)) == ["onnxruntime-gpu"]
    (note,) = found.notes
    assert note.startswith(
        f"{path}:2: FROM nvidia/cuda:13.1.0-cudnn-runtime-ubuntu24.04: CUDA 13.1 is not taken"
    )
    assert note.endswith("the framework's build decides, and --driver bounds it")


@pytest.mark.parametrize(
    ("text", "wishes", "told"),
    [
        (
            "FROM pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime\nRUN pip install numpy\n",
            ["numpy", "torch==2.1.0"],
            "taken as torch==2.1.0: its wheels bring CUDA and cuDNN; its Python is not in the tag",
        ),
        (
            'ARG TORCH="1.6.0"\nARG CUDA="10.1"\nFROM pytorch/pytorch:${TORCH}-cuda${CUDA}-cudnn7-devel\n',
            ["torch==1.6.0+cu101"],
            "FROM pytorch/pytorch:1.6.0-cuda10.1-cudnn7-devel: taken as torch==1.6.0+cu101",
        ),
        (
            "FROM tensorflow/tensorflow:2.8.0-gpu-jupyter AS base\nFROM base\nCOPY . .\n",
            ["tensorflow==2.8.0"],
            "Dockerfile:1: FROM tensorflow/tensorflow:2.8.0-gpu-jupyter: taken as tensorflow==2.8.0",
        ),
        (
            "FROM tensorflow/tensorflow:1.14.0-gpu-py3\n",
            ["tensorflow-gpu==1.14.0"],
            "as tensorflow-gpu==1.14.0",
        ),
        (
            "FROM paddlepaddle/paddle:2.4.2-gpu-cuda11.7-cudnn8.4-trt8.4\n",
            ["paddlepaddle-gpu==2.4.2"],
            "taken as paddlepaddle-gpu==2.4.2",
        ),
        (
            "FROM pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime\nRUN pip install torch==2.2.0\n",
            ["torch==2.2.0"],
            "what it brings is replaced by torch==2.2.0 (",
        ),
        (
            "FROM nvcr.io/nvidia/pytorch:23.10-py3\nRUN pip install numpy\n",
            ["numpy"],
            "23.10 is a month, and no release of PyTorch; NVIDIA's own build of PyTorch is not taken over: ",
        ),
        (
            "FROM pytorch/pytorch:latest\nRUN pip install numpy\n",
            ["numpy", "torch"],
            "its tag names no release of PyTorch: any; `rtbuild resolve torch==VERSION -r ",
        ),
        (
            "FROM tensorflow/tensorflow:2..1\nRUN pip install numpy\n",
            ["numpy", "tensorflow"],
            "its tag names no release of TensorFlow: any; `rtbuild resolve tensorflow==VERSION -r ",
        ),
    ],
)
def test_the_framework_of_a_dockerfiles_image_is_read(
    tmp_path: Path, text: str, wishes: list[str], told: str
) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(text)
    found = from_file(path)
    assert list(map(str, found.wishes)) == wishes
    assert told in found.notes[-1]
    assert found.python is None


def test_the_python_of_a_dockerfiles_image_is_read(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text("FROM python:3.9-slim\nRUN pip install torch\n")
    found = from_file(path)
    assert found.python == "3.9"
    assert found.notes == [f"{path}:1: FROM python:3.9-slim: its Python, 3.9, is taken over"]


@pytest.mark.parametrize("text", ["pkg-resources==0.0.0", "pkg_resources"])
def test_pkg_resources_is_that_of_setuptools(tmp_path, text: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(f"torch\n{text} ; python_version > '3'\n")
    found = from_file(path)
    assert list(map(str, found.wishes)) == ["torch", 'setuptools<82; python_version > "3"']
    assert "taken as setuptools<82: it is a module of setuptools" in found.notes[0]


def test_a_dockerfiles_pip_lines_are_read(tmp_path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(
        "FROM nvidia/cuda:11.8.0-base-ubuntu22.04\n"
        "ARG V=1\n"
        "RUN apt-get update && pip install --no-cache-dir \\\n"
        "    torch==2.3.1 \\\n    # a comment\n    numpy && rm -rf x\n"
        'RUN ["pip3", "install", "tqdm==4.66"]\n'
        "RUN pip install -r requirements.txt x==${V} y==${W}\n"
    )
    found = from_file(path)
    assert [str(wish) for wish in found.wishes] == ["torch==2.3.1", "numpy", "tqdm==4.66", "x==1"]
    assert f"{path}:8: y==${{W}}: a variable, whose value is not known here" in found.notes
    assert found.wishes[0].place == f"{path}:3"
    assert "-r requirements.txt" in "\n".join(found.notes)
    path.write_text("FROM scratch\n")
    with pytest.raises(UsageError, match="a Dockerfile that installs nothing by pip"):
        from_file(path)
    path.write_text("FROM tensorflow/tensorflow:latest-gpu\n")
    assert list(map(str, from_file(path).wishes)) == ["tensorflow"]


@pytest.mark.parametrize(
    "row", [row for row in load().registry if row.distribution], ids=lambda row: row.name
)
def test_a_notebook_without_pip_is_answered_by_the_framework_that_it_imports(tmp_path: Path, row) -> None:
    path = tmp_path / "n.ipynb"
    code = f"import os\nfrom {row.module}.x import y"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": code}]}))
    found = from_file(path)
    assert [(str(wish), wish.place) for wish in found.wishes] == [
        (row.distribution, f"{path}, cell 1, line 2")
    ]


@pytest.mark.parametrize("text", ["old-gan", "old-gan/", "./old-gan"])
def test_a_folder_in_the_place_of_a_package_names_the_file_of_it_that_is_read(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old-gan").mkdir()
    (tmp_path / "torch").mkdir()
    for name in ("notes.txt", "requirements.txt", "environment.yml"):
        (tmp_path / "old-gan" / name).touch()
    with pytest.raises(UsageError) as found:
        from_arguments([text])
    assert f"`rtbuild resolve -r {text}` reads the files of its project" in found.value.hint
    assert [one.name for one in from_arguments(["torch"]).wishes] == ["torch"]


def test_markers_and_tags_of_a_wheels_address_decide(tmp_path: Path) -> None:
    """As text-generation-webui of 2023 lists them: one line for each system, of one package."""
    path, release = tmp_path / "requirements.txt", "https://github.com/x/y/releases/download/1"
    path.write_text(
        "bitsandbytes==0.41.1; platform_system != 'Windows'\n"
        f"{release}/bitsandbytes-0.41.1-py3-none-win_amd64.whl; platform_system == 'Windows'\n"
        f"{release}/exllama-0.0.10+cu117-cp310-cp310-win_amd64.whl; platform_system == 'Windows'\n"
        f"{release}/exllama-0.0.10+cu117-cp310-cp310-linux_x86_64.whl; platform_system == 'Linux'\n"
        f"{release}/one-1-cp311-cp311-linux_x86_64.whl; python_version == '3.10'\n"
    )
    found = from_requirements(path).merged()
    assert [str(wish) for wish in found.wishes] == ['bitsandbytes==0.41.1; platform_system != "Windows"']
    assert found.python == "3.10"
    windows = [note for note in found.notes if "its file is for win_amd64, not Linux" in note]
    assert len(windows) == 2
    assert f"Python 3.10: the files of exllama 0.0.10+cu117 ({path}:4) are for it alone" in found.notes


def test_wheels_for_several_pythons_name_none(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("".join(f"https://x.org/one-1-cp{n}-cp{n}-linux_x86_64.whl\n" for n in (310, 311)))
    assert from_requirements(path).merged().python is None


def test_a_file_that_another_names_and_is_not_there_is_told_with_its_line_and_the_rest_is_read(
    tmp_path,
) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.9.1\n-r extra/other.txt\nnumpy\n")
    found = from_file(tmp_path / "requirements.txt")
    assert [str(wish) for wish in found.wishes] == ["torch==2.9.1", "numpy"]
    (note,) = found.notes
    assert f"{tmp_path}/requirements.txt:2: -r extra/other.txt" in note
    assert "what it asks for is not known" in note
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra/other.txt").write_text("scipy\n")
    assert [wish.name for wish in from_file(tmp_path / "requirements.txt").wishes] == [
        "torch",
        "scipy",
        "numpy",
    ]
