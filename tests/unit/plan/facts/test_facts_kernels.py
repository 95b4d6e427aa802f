"""What compiles kernels as programs run, and what the image has for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rtbuild_command import inside

from builder.plan.facts.reading.observed import Truth, WheelTruth
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import Outcome

TRIXIE = {"python": "3.13", "base": "rootfs:debian/trixie", "cuda": "wheels"}
DEVEL = {"python": "3.12", "base": "nvidia/cuda:12.8.1-devel-ubuntu24.04", "cuda": "wheels"}
FOREIGN = {"python": "3.12", "base": "our.registry/base:1", "cuda": "wheels"}


def said(cell):
    return [(found.outcome, found.message) for found in check(cell, suggest=False) if found.rule == "kernels"]


@pytest.mark.parametrize(
    ("where", "more", "lacking"),
    [
        (TRIXIE, {}, True),
        (TRIXIE, {"compilers": True}, False),
        (TRIXIE, {"apt": ("gcc",)}, True),  # and no Python.h
        (TRIXIE, {"apt": ("gcc", "libpython3.13-dev")}, False),
        (TRIXIE, {"apt": ("build-essential", "python3-dev=3.13.5-1")}, False),
        ({**TRIXIE, "python": "3.12"}, {"apt": ("gcc",)}, False),  # a standalone Python has headers
        (DEVEL, {}, True),
        (DEVEL, {"apt": ("python3-dev",)}, False),
        (FOREIGN, {}, False),  # nobody knows what it holds
    ],
)
def test_torch_compile_needs_a_compiler_and_headers(make, where, more, lacking) -> None:
    found = said(make("torch==2.9.1", **where, **more))
    assert [outcome for outcome, _ in found] == [Outcome.POSSIBLE] * lacking
    assert all("torch.compile" in text and "compilers: true" in text for _, text in found)


@pytest.mark.parametrize(
    ("pip", "refused"),
    [
        (("flashinfer-python",), True),
        (("flashinfer-python", "flashinfer-jit-cache"), False),
    ],
)
def test_what_can_do_nothing_without_is_refused(make, pip, refused) -> None:
    found = said(make("torch==2.9.1", **TRIXIE, pip=pip, compilers=True))
    assert [outcome for outcome, _ in found] == [Outcome.IMPOSSIBLE] * refused


def test_of_what_another_package_wants_it_is_said_and_refuses_nothing(make) -> None:
    """vLLM has other kernels for most models: its lock was refused, and the cell without a lock was not."""
    where = {**TRIXIE, "python": "3.12"}
    cell = make("torch==2.10.0", **where, pip=("vllm==0.19.1",), compilers=True)
    assert [outcome for outcome, _ in said(cell)] == [Outcome.POSSIBLE]
    both = make("torch==2.13.0", **where, pip=("vllm==0.30.0", "flashinfer-python"), compilers=True)
    assert [outcome for outcome, _ in said(both)] == [Outcome.POSSIBLE]
    names = ("torch", "vllm", "flashinfer-python", "flashinfer-cubin")
    wheels = tuple(WheelTruth(name=name, version="1.0", file=f"{name}-1.0-any.whl") for name in names)
    locked = check(cell, Truth(wheels=wheels, locked=True), suggest=False)
    assert [one.outcome for one in locked if one.rule == "kernels"] == [Outcome.POSSIBLE]


def test_nvcc_of_the_wheel_is_found_where_a_variable_leads_to_it(make) -> None:
    pip = ("flashinfer-python", "nvidia-cuda-nvcc")
    home = ("CUDA_HOME", "/opt/runtime/lib/python/site-packages/nvidia/cu13")
    for env in ((), (home,)):
        found = said(make("torch==2.9.1", **TRIXIE, pip=pip, compilers=True, env=env))
        assert bool(found) is not bool(env)


@pytest.mark.parametrize(
    ("torch", "gpu", "env", "old"),
    [
        ("torch==2.9.1", "GB10", (), True),  # https://github.com/triton-lang/triton/issues/8539
        ("torch==2.9.1", "B300", (), True),
        ("torch==2.9.1", "RTX 5090", (), False),
        ("torch==2.9.1", "RTX 4090", (), False),
        ("torch==2.6.0", "RTX 5090", (), True),
        ("torch==2.6.0", "GTX 1080", (), False),
        ("torch==2.10.0", "GB10", (), False),  # Triton 3.6 has a second ptxas
        ("torch==2.9.1", "GB10", (("TRITON_PTXAS_PATH", "/usr/local/cuda/bin/ptxas"),), False),
    ],
)
def test_tritons_own_ptxas_knows_the_card(make, torch, gpu, env, old) -> None:
    platform = "linux/arm64" if gpu == "GB10" else "linux/amd64"
    cell = make(torch, **TRIXIE, compilers=True, gpus=(gpu,), env=env, platform=platform)
    found = said(cell)
    assert [outcome for outcome, _ in found] == [Outcome.WARNS] * old
    assert all("triton>=3.6.0" in text for _, text in found)


def test_check_says_it_once(tmp_path: Path) -> None:
    rows = "".join(
        f"- {{framework: torch==2.9.1, python: '{python}', base: 'rootfs:debian/trixie', cuda: wheels}}\n"
        for python in ("3.12", "3.13")
    )
    (tmp_path / "matrix.yaml").write_text(f"version: 1\nname: x\ninclude:\n{rows}")
    done = inside(tmp_path, "check", "matrix.yaml")
    assert done.stdout.count("torch.compile") == 1
    assert "in 2 cells: torch.compile" in done.stdout
