"""Notes on old cards, and on packages that stand together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from doubles import small_image
from packaging.requirements import Requirement

from builder.core.model import Cuda
from builder.plan.resolve import notes
from builder.plan.resolve.set_notes import of_old_cards, of_packages_together
from builder.plan.resolve.solve import Demand, search
from builder.plan.resolve.wishes import NamedRequirement

if TYPE_CHECKING:
    from builder.core.model import Cell


def cell(*frameworks: str, pip: tuple[str, ...] = ()) -> Cell:
    return small_image.cell(frameworks=frameworks, pip=pip)


def test_an_old_card_is_told_what_it_does_not_compute_and_what_is_written_instead() -> None:
    qlora = cell("torch==2.7.1+cu118", pip=("transformers", "bitsandbytes==0.50.2"))
    told = [*of_old_cards(qlora, ("RTX8000", "A100"))]
    assert len(told) == 2
    assert all("RTX8000 (7.5)" in one and "A100" not in one for one in told)
    assert "bnb_4bit_compute_dtype=torch.float16" in told[0]
    assert "dtype=" not in told[0].replace("compute_dtype=", ""), "vllm is not in the set"
    assert 'attn_implementation="sdpa"' in told[1]
    assert not [*of_old_cards(qlora, ("A100",))]


@pytest.mark.parametrize(
    ("gpu", "torch", "told"),
    [("P40", "torch==2.7.1", True), ("V100", "torch==2.7.1", False), ("P40", "torch==1.13.1", False)],
)
def test_torch_compile_is_spoken_of_below_7_0_and_of_releases_that_have_it(
    gpu: str, torch: str, *, told: bool
) -> None:
    assert any("TORCHDYNAMO_DISABLE=1" in one for one in of_old_cards(cell(torch), (gpu,))) is told


def test_two_frameworks_share_a_gpu_and_one_gives_up_its_hold_on_it() -> None:
    assert any("XLA_PYTHON_CLIENT_PREALLOCATE=false" in one for one in together("jax[cuda12]", "torch"))
    assert not any("PREALLOCATE" in one for one in together("jax[cuda12]"))
    assert any("set_memory_growth" in one for one in together("tensorflow[and-cuda]", "torch"))


def together(*frameworks: str, pip: tuple[str, ...] = ()) -> list[str]:
    return [*of_packages_together(cell(*frameworks, pip=pip))]


@pytest.mark.parametrize(
    ("frameworks", "words"),
    [
        (("torch==2.10.0", "onnxruntime-gpu==1.26.0"), "preload_dlls()"),
        (("torch==2.4.1", "onnxruntime-gpu==1.19.2"), "before `import onnxruntime`"),
        (("onnxruntime-gpu[cuda,cudnn]==1.26.0",), "finds NVIDIA's wheels after"),
    ],
)
def test_onnx_runtime_is_told_where_it_finds_its_libraries(frameworks: tuple[str, ...], words: str) -> None:
    assert words in together(*frameworks)[0]
    assert sum("ONNX Runtime finds" in one for one in together(*frameworks)) == 1


def test_what_writes_the_same_files_is_not_beside_several_frameworks() -> None:
    told = together("torch==2.10.0", "onnxruntime-gpu==1.26.0", "cupy-cuda12x==14.2.0")
    assert any("`pip uninstall -y onnxruntime`" in one for one in told)
    assert any("(cupy, cupy-cuda13x, " in one for one in told)
    assert not any("opencv" in one for one in told)


def test_models_of_tf_hub_get_the_keras_of_tensorflows_own_minor() -> None:
    (told,) = together("tensorflow[and-cuda]==2.21.0", pip=("tensorflow-text==2.21.1",))
    assert "tf-keras==2.21.*" in told
    assert "TF_USE_LEGACY_KERAS=1" in told
    assert not together("tensorflow==2.15.1", pip=("tensorflow-text==2.15.0",))


def test_why_the_default_index_is_passed_over_on_arm_is_said_once() -> None:
    """Up to a release its wheels there are for the CPU, and later ones are for a CUDA above the driver's."""
    wish = NamedRequirement(parsed=Requirement("torch"), place="as typed")
    demand = Demand(frameworks=(wish,), gpus=("GH200",), driver="550.144.03", python="3.12")
    best = search(demand).possible[0]
    (told,) = notes._of_builds(best, demand)
    release = best.cell.frameworks[0].partition("==")[2].partition("+")[0]
    assert f"without CUDA on linux/arm64 up to {release}, and from " in told
    assert "for CUDA 13.0: driver 550.144.03 is older than 580.65.06; taken is that with +cu12" in told
    fits = Demand(frameworks=(wish,), gpus=("GH200",), driver="580.95.05", python="3.12")
    assert not [*notes._of_builds(search(fits).possible[0], fits)]


def test_tensorflow_on_wheels_of_cuda_11_is_told_where_xla_finds_libdevice() -> None:
    on_wheels = replace(
        cell("tensorflow==2.11.1"), cuda=Cuda(provider="wheels", packages=("nvidia-cudnn-cu11==8.5.0.96",))
    )
    (told,) = of_packages_together(on_wheels)
    assert "pip install nvidia-cuda-nvcc-cu11==11.8.89" in told
    assert "XLA_FLAGS=--xla_gpu_cuda_data_dir=" in told
    assert not together("tensorflow==2.11.1")  # an image's CUDA
    earlier = replace(on_wheels, frameworks=("tensorflow==2.10.1",))
    assert not [*of_packages_together(earlier)]
