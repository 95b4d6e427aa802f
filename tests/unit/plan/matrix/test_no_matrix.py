"""A file of requirements in a matrix's place: the command that makes a matrix of it is named."""

import pytest

from builder.core.errors import MatrixError
from builder.plan.matrix import load


@pytest.mark.parametrize(
    ("name", "text", "option"),
    [
        ("requirements.txt", "torch==2.5.1\n", "-r"),
        ("environment.yml", "name: x\ndependencies:\n  - pytorch\n", "--conda"),
        ("pyproject.toml", '[project]\nname = "x"\n', "--pyproject"),
        ("old.ipynb", '{"cells": [], "nbformat": 4}\n', "--notebook"),
    ],
)
def test_a_file_of_requirements_is_sent_to_resolve(tmp_path, name, text, option) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(MatrixError) as refused:
        load(path)
    assert f"`rtbuild resolve {option} {path}`" in refused.value.message


def test_a_wrong_matrix_is_not(tmp_path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("version: 1\nnonsense: 2\n")
    with pytest.raises(MatrixError) as refused:
        load(path)
    assert "rtbuild resolve" not in refused.value.message
