"""What is left out of wheels: the same in a layer as after pip, and RECORD stays true."""

from __future__ import annotations

import ast
import csv
import importlib.metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from layer_wheels import Builder

from builder.image.layers.wheel import SITE, Archive, Tree
from builder.image.recipe import slim

if TYPE_CHECKING:
    from layer_wheels import Made

FILES = {
    "pkg/__init__.py": b"",
    "pkg/tests/__init__.py": b"from .common import run_tests\n",
    "pkg/tests/common.py": b"def run_tests(): ...\n",
    "pkg/tests/test_one.py": b"def test(): ...\n",
    "pkg/tests/deep/test_two.py": b"",
    "pkg/lib/libstatic.a": b"!<arch>\n",
    "pkg/lib/libcudadevrt.a": b"!<arch>\n",
    "pkg/lib/libshared.so.1": b"\x7fELF",
    "pkg/include/pkg.h": b"",
    "pkg/__pycache__/old.cpython-38.pyc": b"\x00",
    "pkg/testing.py": b"",
    "pkg/test_tools.py": b"",
    "tensorflow/include/tensorflow/core/op.h": b"// header\n",
    "numpy/core/tests/data/table.csv": b"1,2\n",
    "pkg-1.0.data/scripts/run": b"#!python\n",
    "pkg-1.0.data/data/share/lib/libkept.a": b"!<arch>\n",
    "pkg-1.0.data/purelib/tensorflow/include/moved.h": b"// pip moves it to where the rule is about it\n",
}
LEFT_OUT = {
    "pkg/tests/test_one.py",
    "pkg/tests/deep/test_two.py",
    "pkg/lib/libstatic.a",
    "pkg/__pycache__/old.cpython-38.pyc",
    "tensorflow/include/tensorflow/core/op.h",
    "tensorflow/include/moved.h",
    "numpy/core/tests/data/table.csv",
}


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Builder(tmp_path).wheel("pkg", FILES, unrecorded=("pkg/tests/test_one.py",))


def installed(made: Made, *, slim: bool) -> Tree:
    with Tree(made.path, made.wheel, python="3.11", style="removesuffix", slim=slim) as tree:
        return tree


def written(made: Made, folder: Path) -> Path:
    """The whole wheel on disk, as pip would leave it."""
    with Archive(made.path) as archive:
        for file in installed(made, slim=False).files:
            path = folder / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            data = file.content if isinstance(file.content, bytes) else b"".join(archive.chunks(file.content))
            path.write_bytes(data)
    return folder / SITE


def test_which_files(made: Made) -> None:
    paths = {which: {file.path for file in installed(made, slim=which).files} for which in (True, False)}
    assert {path.removeprefix(f"{SITE}/") for path in paths[False] - paths[True]} == LEFT_OUT
    assert paths[True] < paths[False]


def test_a_layer_holds_what_is_left_after_pip(made: Made, tmp_path: Path) -> None:
    site = written(made, tmp_path / "root")
    slim.main(site)
    left = {str(p.relative_to(tmp_path / "root")): p for p in (tmp_path / "root").rglob("*") if p.is_file()}
    tree_ = {file.path: file for file in installed(made, slim=True).files}
    assert left.keys() == tree_.keys()
    record = f"{SITE}/pkg-1.0.dist-info/RECORD"
    assert left[record].read_bytes() == tree_[record].content


def test_record_names_what_is_there_and_nothing_else(made: Made, tmp_path: Path) -> None:
    site = written(made, tmp_path / "root")
    slim.main(site)
    rows = list(csv.reader((site / "pkg-1.0.dist-info" / "RECORD").read_text().splitlines()))
    assert all((site / row[0]).is_file() for row in rows)
    assert len(rows) == sum(1 for path in (tmp_path / "root").rglob("*") if path.is_file())
    (found,) = importlib.metadata.distributions(path=[str(site)])
    assert all(file.locate().is_file() for file in found.files or ())


def test_a_second_time_changes_nothing(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = written(made, tmp_path / "root")
    slim.main(site)
    before = {path: path.stat().st_mtime_ns for path in site.rglob("*")}
    slim.main(site)
    assert {path: path.stat().st_mtime_ns for path in site.rglob("*")} == before
    assert capsys.readouterr().out.splitlines()[-1] == "0.0 MB of wheels left out"


@pytest.mark.parametrize(
    "path",
    [
        "nvidia/cuda_runtime/include/cuda_fp16.h",
        "nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc",
        "nvidia/cuda_nvcc/bin/ptxas",
        "nvidia/cu13/lib/libcudadevrt.a",
        "triton/backends/nvidia/include/cuda.h",
        "torch/include/ATen/ATen.h",
        "torch/testing/_internal/common_utils.py",
        "h5py/tests/__init__.py",
        "mpmath/tests/runtests.py",
        "numpy/_core/tests/_natype.py",
        "../../../bin/libtool.a",
    ],
)
def test_what_runs_need_stays(path: str) -> None:
    assert not slim.left_out(path)


def test_it_runs_under_python_3_6() -> None:
    source = Path(slim.__file__).read_text()
    ast.parse(source, feature_version=(3, 6))
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {getattr(node, "module", None) or node.names[0].name for node in imports} == {
        *("csv", "re", "sys", "pathlib"),
    }
