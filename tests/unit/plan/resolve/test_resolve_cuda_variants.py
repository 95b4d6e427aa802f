"""Packages beside a framework whose wheels are for one CUDA: they follow the framework's."""

from __future__ import annotations

import pytest

from builder.plan.resolve import cuda_variants
from builder.plan.resolve import wishes as reading
from builder.plan.resolve.solve import Demand, search, split


def demanded(*texts: str, **options) -> Demand:
    frameworks, companions = split(reading.from_arguments(texts))
    return Demand(frameworks=frameworks, companions=companions, **options)


@pytest.mark.parametrize(
    ("texts", "taken"),
    [
        (("torch==1.13.1", "spconv-cu102"), "spconv-cu117"),
        (("torch==1.13.1", "spconv-cu117"), "spconv-cu117"),
        (("torch==1.12.1+cu113", "spconv-cu111>=2.1"), "spconv-cu113>=2.1"),
        (("torch==2.8.0", "spconv-cu117"), "spconv-cu126"),
        (("torch==2.8.0", "nvidia-dali-cuda110"), "nvidia-dali-cuda120"),
        (("torch==2.8.0", "numpy"), "numpy"),
    ],
)
def test_a_distribution_for_a_cuda_follows_the_frameworks(texts: tuple[str, str], taken: str) -> None:
    """https://github.com/traveller59/spconv: one for each CUDA, and PyTorch's decides."""
    found = search(demanded(*texts, gpus=("RTX3090",)), enough=1)
    best = (found.possible or found.left_to_lock)[0]
    assert any(text.startswith(taken) for text in best.cell.pip)
    moved = taken.partition(">")[0] != texts[1].partition(">")[0]
    assert any(text.startswith(f"{taken.partition('>')[0]}: ") for text in best.added) is moved


def test_a_package_whose_wheel_on_an_index_is_for_the_cpu_lies_on_its_makers_page() -> None:
    """https://github.com/dmlc/dgl/issues/5427: a release without +cu… has no GPU support."""
    demand = demanded("torch", "dgl==1.0.2+cu116", "numpy", gpus=("H100",))
    frameworks, companions, (dgl,) = cuda_variants.without_pages(demand.frameworks, demand.companions)
    assert [str(wish) for wish in companions] == ["numpy"]
    assert str(frameworks[0].parsed.specifier) == "<2.5,>=2.1"
    (best, *_) = search(demanded("torch==2.4.1", gpus=("H100",)), enough=1).possible
    line = dgl.line(best.cell)
    assert "pip install dgl 'torchdata<0.10' pandas pydantic pyyaml -f https://data.dgl.ai/wheels/" in line
    assert "/torch-2.4/cu121/repo.html" in line
    assert "(the page itself was not read)" in line
    (newer, *_) = search(demanded("torch==2.8.0", gpus=("H100",)), enough=1).possible
    assert "none is for torch==2.8.0" in dgl.line(newer.cell)
    assert "2.4+cu124" in dgl.row.builds
    assert "2.3+cu124" not in dgl.row.builds  # no source names that page
    assert cuda_variants.page_of("mmcv", newer.cell) is None  # of sources alone beside it
    assert cuda_variants.page_of("mmcv", best.cell) == (
        "https://download.openmmlab.com/mmcv/dist/cu121/torch2.4/index.html"
    )
    pages = list(cuda_variants.pages_of(["torch-scatter==2.1", "git+https://x/y", "numpy"], newer.cell))
    assert pages == ["https://data.pyg.org/whl/torch-2.8.0+cu128.html"]
    pinned = demanded("torch==1.12.1", "dgl")
    assert cuda_variants.without_pages(pinned.frameworks, pinned.companions)[0] == pinned.frameworks
