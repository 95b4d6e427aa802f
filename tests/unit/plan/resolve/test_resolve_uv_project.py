"""One project of uv for the Linux machines of a demand and for a Mac."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from doubles import small_image
from packaging.markers import Marker
from packaging.requirements import Requirement

from builder.plan.resolve.loosening import Substitution
from builder.plan.resolve.solve import Proposal
from builder.plan.resolve.uv_project import to_uv_project
from builder.plan.resolve.wishes import TYPED, NamedRequirement

MAC = {"sys_platform": "darwin", "platform_machine": "arm64"}
WINDOWS = {"sys_platform": "win32", "platform_machine": "AMD64"}
LINUX = {"sys_platform": "linux", "platform_machine": "x86_64"}


def project(*frameworks: str, pip: tuple[str, ...] = (), left: tuple[str, ...] = (), **cell: Any) -> Any:
    taken = Proposal(cell=small_image.cell(frameworks=frameworks, pip=pip, **cell), findings=())
    changes = [
        Substitution(asked=NamedRequirement(parsed=Requirement(one), place=TYPED), instead=None)
        for one in left
    ]
    return tomllib.loads(to_uv_project(taken, changes, "torch"))


def on(machine: dict[str, str], found: Any) -> list[str]:
    """What of the project is installed on a machine."""
    parsed = map(Requirement, found["project"]["dependencies"])
    return [
        str(one).partition(";")[0].strip()
        for one in parsed
        if one.marker is None or one.marker.evaluate(machine)
    ]


def test_a_build_of_another_index_is_named_for_linux_and_a_mac_takes_the_same_release() -> None:
    found = project(
        "torch==2.10.0+cu128",
        pip=("torchvision==0.25.0+cu128", "einops>=0.8"),
        index=("https://download.pytorch.org/whl/cu128",),
    )
    assert on(MAC, found) == on(LINUX, found) == ["torch==2.10.0", "torchvision==0.25.0", "einops>=0.8"]
    (index,) = found["tool"]["uv"]["index"]
    assert index == {
        "name": "pytorch-cu128",
        "url": "https://download.pytorch.org/whl/cu128",
        "explicit": True,
    }
    source = {"index": "pytorch-cu128", "marker": "sys_platform != 'darwin'"}
    assert found["tool"]["uv"]["sources"] == {"torch": source, "torchvision": source}
    environments = [Marker(text) for text in found["tool"]["uv"]["environments"]]
    assert [[one.evaluate(machine) for one in environments] for machine in (LINUX, WINDOWS, MAC)] == [
        [True, False, False],
        [False, True, False],
        [False, False, True],
    ]


@pytest.mark.parametrize(
    ("framework", "linux", "mac"),
    [
        ("tensorflow[and-cuda]==2.21.0", "tensorflow[and-cuda]==2.21.0", "tensorflow==2.21.0"),
        ("jax[cuda12]==0.10.2", "jax[cuda12]==0.10.2", "jax==0.10.2"),
        ("onnxruntime-gpu[cuda,cudnn]==1.26.0", "onnxruntime-gpu[cuda,cudnn]==1.26.0", "onnxruntime"),
    ],
)
def test_what_brings_cuda_by_an_extra_or_a_name_is_without_it_on_a_mac(
    framework: str, linux: str, mac: str
) -> None:
    found = project(framework, pip=("nvidia-cudnn-cu12<=9.10.2.21",))
    assert on(LINUX, found) == [linux, "nvidia-cudnn-cu12<=9.10.2.21"]
    assert on(MAC, found) == [mac]
    assert on(WINDOWS, found)[0] == (linux if "onnx" in linux else mac)


def test_windows_gets_the_default_indexs_release_from_pytorchs_own() -> None:
    """The default index's wheel for Windows computes on the CPU alone."""
    found = project("torch==2.8.0", pip=("torchvision==0.23.0",))
    source = {"index": "pytorch-cu128", "marker": "sys_platform == 'win32'"}
    assert found["tool"]["uv"]["sources"] == {"torch": source, "torchvision": source}


def test_what_was_left_out_for_a_card_is_an_extra_that_is_locked_without_building_it() -> None:
    found = project("torch==2.8.0", left=("flash-attn==2.8.3", "einops>=0.8"))
    extras = found["project"]["optional-dependencies"]
    assert extras == {"flash-attn": ["flash-attn==2.8.3 ; sys_platform == 'linux'"]}
    assert found["tool"]["uv"]["no-build-isolation-package"] == ["flash-attn"]
    (told,) = found["tool"]["uv"]["dependency-metadata"]
    assert told == {"name": "flash-attn", "version": "2.8.3", "requires-dist": ["torch", "einops"]}
