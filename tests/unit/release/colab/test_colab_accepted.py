"""Whatever month is imported: check accepts the matrix, and something brings its CUDA."""

# ruff: noqa: E501

from __future__ import annotations

import pytest
from test_colab_match import PackageIndexDouble, wheel

from builder.core.errors import CellError
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import Outcome
from builder.plan.matrix import load
from builder.release.colab.imports import import_runtime, matrix_text
from builder.release.colab.runtimes import read_runtime
from builder.sources.index.simple_api import IndexFile

_REST = (
    " nvidia-cuda-cupti-cu12==12.6.80 nvidia-cufft-cu12==11.3.0.4 nvidia-cusolver-cu12==11.7.1.2"
    " nvidia-cusparse-cu12==12.5.4.2 nvidia-cublas-cu12==12.6.4.1 nvidia-cuda-nvcc-cu12==12.6.77"
)
"""NVIDIA's other wheels, which the lists have since September 2024."""
# Python, toolkit by apt, cuDNN by apt, then the lines of pip freeze about CUDA, by the last list of a month:
# https://github.com/googlecolab/backend-info
MONTHS = {
    "2022-10": ("3.7.15", "11.2.2", "8.1.1.33", "tensorflow==2.9.2"),
    "2023-02": ("3.8.10", "11.6.2", "8.4.0.27", "tensorflow==2.11.0 torch==1.13.1+cu116"),
    "2023-04": ("3.10.12", "11.8.0", "8.7.0.84", "tensorflow==2.12.0 torch==2.0.0+cu118"),
    "2023-10": ("3.10.12", "11.8.0", "8.9.6.50", "tensorflow==2.14.0 torch==2.1.0+cu118"),
    "2023-12": ("3.10.12", "12.2.2", "8.9.6.50", "tensorflow==2.15.0 torch==2.1.0+cu121"),
    "2024-07": ("3.10.12", "12.2.2", "8.9.6.50", "tensorflow==2.17.0 torch==2.3.1 jax==0.4.26 jax-cuda12-plugin==0.4.26"),
    "2024-12": (
        "3.10.12", "12.2.2", "8.9.6.50",
        "tensorflow==2.17.1 torch==2.5.1+cu121 jax==0.4.33 jax-cuda12-plugin==0.4.33 nvidia-cudnn-cu12==9.5.1.17"
        " nvidia-cuda-runtime-cu12==12.6.77" + _REST,
    ),
    "2025-07": (
        "3.11.13", "12.5.1", "9.2.1.18",
        "tensorflow==2.19.0 torch==2.6.0 jax==0.5.3 jax-cuda12-plugin==0.5.3 nvidia-cudnn-cu12==9.3.0.75"
        " nvidia-cuda-runtime-cu12==12.5.82" + _REST,
    ),
    "2025-11": (
        "3.12.12", "12.5.1", "9.2.1.18",
        "tensorflow==2.19.0 torch==2.9.0+cu126 jax==0.7.2 jax-cuda12-plugin==0.7.2 nvidia-cudnn-cu12==9.10.2.21"
        " nvidia-cuda-runtime-cu12==12.6.77" + _REST,
    ),
    "2026-08": (
        "3.13.5", "12.8.1", "9.8.0.87",
        "tensorflow==2.20.0 torch==2.11.0+cu128 jax==0.7.2 jax-cuda12-plugin==0.7.2 nvidia-cudnn-cu12==9.19.0.56"
        " nvidia-cuda-runtime-cu12==12.8.90" + _REST,
    ),
    "only torch": ("3.10.12", "12.2.2", "8.9.6.50", "torch==2.3.1"),
    "only tensorflow": ("3.10.12", "12.2.2", "8.9.6.50", "tensorflow==2.15.0"),
    "only jax": ("3.10.12", "12.2.2", "8.9.6.50", "jax==0.4.26 jax-cuda12-plugin==0.4.26 jaxlib==0.4.26"),
}  # fmt: skip


class EveryIndex(PackageIndexDouble):
    """Stands in for the network: an index with each listed wheel, and no other."""

    def __init__(self, lines: list[str]) -> None:
        pairs = [line.split("==") for line in lines]
        super().__init__({name: [wheel(f"{name.replace('-', '_')}-{version}")] for name, version in pairs})

    def offers_of(self, index: str, name: str) -> tuple[IndexFile, ...]:
        return self.offers(name)


@pytest.mark.parametrize("month", MONTHS)
def test_check_accepts_each_month_s_matrix_and_something_brings_its_cuda(month: str, tmp_path) -> None:
    python, cuda, cudnn, text = MONTHS[month]
    lines = text.split()
    short = "-".join(cuda.split(".")[:2])
    (tmp_path / "pip-freeze.txt").write_text("\n".join([*lines, "numpy==1.26.4"]))
    (tmp_path / "apt-list.txt").write_text(
        f"cuda-libraries-{short}/unknown {cuda}-1 amd64 [installed]\n"
        f"libcudnn{cudnn[0]}/unknown {cudnn}-1+cuda12.2 amd64 [installed]\n"
    )
    runtime = read_runtime(tmp_path, python=python, name=f"m-{month[-2:]}")
    profile = "plain" if python.startswith("3.7") else "colab"
    imported = import_runtime(runtime, index=EveryIndex([*lines, "numpy==1.26.4"]), profile=profile)
    path = tmp_path / "imported.yaml"
    path.write_text(matrix_text(imported))
    cells = load(path).cells
    assert cells
    for cell in cells:
        found = check(cell)
        assert not [one.message for one in found if one.outcome is Outcome.IMPOSSIBLE], cell.id
        assert cell.cuda.provider != "none"
        if cell.cuda.provider == "wheels":  # `dependencies: listed`: nothing comes that is not named
            assert any(one.startswith("nvidia-cuda-runtime") for one in (*cell.cuda.packages, *cell.pip))
            assert "NVIDIA's wheels" in path.read_text()


def test_a_month_whose_wheels_can_work_on_no_base_is_refused_with_the_reason_of_each(tmp_path) -> None:
    lines = ["tensorflow==2.17.0", "torch==2.4.0"]  # built with cuDNN 8 and 9
    (tmp_path / "pip-freeze.txt").write_text("\n".join(lines))
    runtime = read_runtime(tmp_path, python="3.10.12", name="2024-08")
    with pytest.raises(CellError, match=r"can work on no base(.|\n)*rootfs:debian/bookworm: .*cuDNN"):
        import_runtime(runtime, index=EveryIndex(lines))


def test_a_python_that_the_profile_has_none_for_is_said_before_a_matrix_is_written(tmp_path) -> None:
    (tmp_path / "pip-freeze.txt").write_text("tensorflow==2.9.2")
    runtime = read_runtime(tmp_path, python="3.7.15", name="2022-10")
    with pytest.raises(CellError, match=r"needs Python 3\.8 or later, 2022-10 has 3\.7\.15"):
        import_runtime(runtime, index=EveryIndex(["tensorflow==2.9.2"]))
