"""``profile: colab``: what it asks for, and what of it a matrix may say otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builder.core.errors import MatrixError
from builder.plan.matrix import load

if TYPE_CHECKING:
    from pathlib import Path

    from builder.core.model import Cell


def cell(folder: Path, lines: str = "", *, python: str = "3.11") -> Cell:
    path = folder / "small.yaml"
    path.write_text(
        f"version: 1\ndefaults:\n  framework: numpy==2.2.6\n  python: '{python}'\n"
        f"  base: rootfs:debian/bookworm\n  cuda: none\n{lines}include: [{{}}]\n"
    )
    return load(path).cells[0]


def test_plain_is_the_default_and_changes_nothing(tmp_path: Path) -> None:
    plain, named = cell(tmp_path), cell(tmp_path, "  profile: plain\n")
    assert plain.profile == named.profile == "plain"
    assert plain.id == named.id == "numpy2.2.6-py3.11-bookworm-cpu"
    assert plain.inputs() == named.inputs()
    assert "profile" not in plain.inputs()  # locks from before the key was there stay fresh


def test_colab_brings_colabs_own_jupyter(tmp_path: Path) -> None:
    colab = cell(tmp_path, "  profile: colab\n  pip: [pandas]\n  apt: [git]\n")
    assert colab.id == "numpy2.2.6-py3.11-bookworm-cpu-colab"
    assert colab.pip == (
        "pandas",
        "ipykernel==6.17.1",
        "ipython==7.34.0",
        "ipywidgets==7.7.1",
        "jupyter-server<3,>=2",
        "notebook==6.5.7",
    )
    assert colab.apt == ("git", "curl", "less", "procps", "tini", "unzip", "wget", "zip")
    assert colab.inputs()["profile"] == "colab"


def test_what_the_matrix_names_itself_stays(tmp_path: Path) -> None:
    colab = cell(
        tmp_path, "  profile: colab\n  pip: [Jupyter_Server==2.14.2, notebook>=7]\n  apt: [tini=0.19.0-1]\n"
    )
    assert "jupyter-server<3,>=2" not in colab.pip
    assert "notebook==6.5.7" not in colab.pip
    assert colab.apt[0] == "tini=0.19.0-1"
    assert "tini" not in colab.apt


def test_what_left_python_with_312_is_made_good(tmp_path: Path) -> None:
    """imp, which IPython 7 imports, and distutils, which notebook 6 does."""
    packages = cell(tmp_path, "  profile: colab\n", python="3.12").pip
    assert {"ipython<9,>=8", "setuptools", "notebook==6.5.7"} <= set(packages)


def test_a_python_that_jupyter_has_left_behind(tmp_path: Path) -> None:
    with pytest.raises(MatrixError, match=r"the profile 'colab' needs Python 3\.8 or later, not 3\.7"):
        cell(tmp_path, "  profile: colab\n", python="3.7")
    with pytest.raises(MatrixError, match="'collab' is no profile"):
        cell(tmp_path, "  profile: collab\n")
