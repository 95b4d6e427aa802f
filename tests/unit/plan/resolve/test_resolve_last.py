"""The newest release that runs on a card and a driver, and why the next one does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import requests
from packaging.requirements import Requirement
from pages.last_releases import BRANCHES, CARDS, FRAMEWORKS

from builder.core.errors import IndexSilentError
from builder.core.versions import pinned, release
from builder.plan.facts.rules import by_compat
from builder.plan.facts.rules.finding import Outcome
from builder.plan.resolve import AskedMachine, last_release, propose
from builder.plan.resolve import wishes as reading
from builder.plan.resolve.solve import Demand, judged, split
from builder.sources.index import Index
from builder.sources.index.uv import IndexSettings
from builder.sources.net import Client


@pytest.mark.parametrize(
    ("framework", "card", "driver", "newest", "plain", "since", "why"),
    [
        ("torch", "GTX1080-Ti", None, "torch==2.14.1+cu126", "torch==2.7.1", "2.15.0", "has 6.1"),
        ("torch", "RTX3090", "535", "torch==2.14.1+cu126", "torch==2.10.0", "2.15.0", "older than 580"),
        (
            "onnxruntime-gpu",
            "V100",
            "580",
            "onnxruntime-gpu[cuda,cudnn]==1.26.0",
            None,
            "1.27.0",
            "V100 has 7.0",
        ),
        ("torch", "GTX1080-Ti", "595", None, None, "1.0.0", "serve Pascal no more"),
    ],
)
def test_the_last_release_and_what_was_dropped_after_it(
    framework, card, driver, newest, plain, since, why
) -> None:
    found = last_release(framework, (card,), driver)
    assert (found.anywhere.text, found.default.text) == (newest, plain or newest)
    assert found.anywhere.since == since
    lines = found.lines(card)
    assert why in lines[0]
    assert lines[0].endswith(")]")  # the day on which the last of the sources was read
    assert len(lines) == (2 if plain else 1)


def test_what_is_not_known_of_a_build_is_told_of_that_build_and_the_default_indexs_own_reason() -> None:
    anywhere, default = last_release("torch", ("K80",), "470").lines("K80")
    assert (
        "is the newest release that is known to run on K80; torch==2.1.0+cu118: whether cuDNN 8.7" in anywhere
    )
    assert "torch==2.1.0: CUDA 12 serves compute capability 5.0" in default


def test_a_build_of_the_same_release_for_a_newer_cuda_is_told_where_it_has_a_name_of_its_own() -> None:
    found = last_release("cupy", ("GTX1080",), None)
    (line,) = found.lines("GTX1080")
    assert str(found.anywhere.text).startswith("cupy-cuda12x==")
    assert "cupy-cuda13x" in line
    assert "CUDA 13 serves compute capability 7.5" in line
    assert not last_release("cupy", ("T4",), None).lines("T4")


def test_a_bare_branch_is_told_what_a_full_number_may_buy() -> None:
    found = last_release("torch", ("A100",), "525")
    assert found.full == ("525.60.13", "torch==2.14.1+cu126")
    assert found.anywhere.text != "torch==2.14.1+cu126"
    (line,) = [line for line in found.lines("A100") if "full number" in line]
    assert line.startswith("torch==2.14.1+cu126 runs from driver 525.60.13 on")
    for driver in ("525.60.13", "535", None):
        assert last_release("torch", ("A100",), driver).full is None


def test_where_the_newest_release_runs_nothing_is_said() -> None:
    assert last_release("torch", ("RTX5090",), "580").lines("RTX5090") == []


def test_a_release_that_a_driver_runs_by_cuda_compat_alone_is_no_last_one() -> None:
    """``pip install`` brings no cuda-compat: NVIDIA's base images have it."""
    found = last_release("torch", ("V100",), "470.256.02")
    assert (found.anywhere.text, found.default.text) == ("torch==2.7.1+cu118", "torch==2.0.1")
    assert "torch==2.1.0: driver 470.256.02 is older than 525.60.13" in found.lines("V100")[1]


def test_the_last_release_is_one_for_the_python_asked_for() -> None:
    found = last_release("torch", ("RTX5070",), "570.133.07", takes=lambda python: python == "3.9")
    assert found.anywhere.text is not None
    assert found.anywhere.text.startswith("torch==2.8.0")


@pytest.mark.parametrize(
    "card", [pytest.param(card, marks=[pytest.mark.slow] * (card != "V100")) for card in CARDS]
)
def test_the_newest_release_of_the_page_is_the_newest_that_resolve_takes(card) -> None:
    """Of every row, without what `cuda-compat` alone lets run, and Pythons that no base has."""
    for framework in FRAMEWORKS:
        frameworks, _ = split(reading.from_arguments([framework]))
        for branch in BRANCHES:
            demand = Demand(frameworks=frameworks, gpus=(card,), driver=branch)
            taken = (
                one.cell.frameworks[0]
                for _, one in judged(demand)
                if one.outcome.is_possible and by_compat(one.findings) is None
            )
            first, told = next(taken, None), last_release(framework, (card,), branch).anywhere.text
            assert first == told, (framework, branch)


def test_what_no_driver_can_change_is_the_reason_before_the_driver() -> None:
    """A newer driver gives a V100 no kernels of CUDA 13."""
    (first, second) = last_release("torch", ("V100",), "570").lines("V100, driver 570")
    assert "torch==2.15.0: CUDA 13 serves compute capability 7.5 to 12.1; V100 has 7.0" in first
    assert "older than 580" not in first + second
    found = last_release("torch", ("T4",), "570").anywhere.dropped
    assert found is not None
    assert (found.outcome, found.message) == (Outcome.IMPOSSIBLE, "driver 570 is older than 580.65.06")


def test_a_combination_that_is_known_to_fail_on_a_card_is_no_last_release() -> None:
    found = last_release("tensorflow", ("RTX5080",), "580").anywhere
    assert found.text is None
    assert found.dropped is not None
    assert "CUDA_ERROR_INVALID_PTX" in found.dropped.message
    older = last_release("tensorflow", ("RTX4090",), "580").anywhere.text
    assert release(pinned(Requirement(str(older))) or "0") >= release("2.21.0")


def test_a_silent_index_of_the_users_own_ends_it_and_no_other_host_is_asked() -> None:
    """Who names one may have no leave to ask another, and PyTorch's builds lie on its maker's."""
    asked: list[str] = []

    class Silent(Client):
        def request(self, method, url, **_options):
            asked.append(url)
            raise requests.ConnectionError("the host name is unknown")

        def get(self, url, **options):
            return self.request("GET", url, **options)

    def answer(settings: IndexSettings):
        return propose(
            reading.from_arguments(["torch"]),
            AskedMachine(gpus=("T4",), driver="535"),
            python=None,
            limit=1,
            name="torch",
            index=Index(settings, client=Silent()),
        )

    own = IndexSettings(default="https://user:secret@mirror.invalid/simple", chosen=True)
    with pytest.raises(IndexSilentError, match="your own index") as told:
        answer(own)
    assert "mirror.invalid" in told.value.message
    assert "secret" not in told.value.message
    assert {url.split("/simple")[0].rpartition("@")[2] for url in asked} == {"mirror.invalid"}
    # without one, by the tables: it is said that the resolver was not asked
    assert answer(replace(own, chosen=False)).proposals[0].unasked is not None
