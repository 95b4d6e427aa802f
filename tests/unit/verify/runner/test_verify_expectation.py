from __future__ import annotations

import json
from dataclasses import replace

import pytest

from builder.core.model import Base, Cell, Cuda, Difference, Pinned, RegistryBase, RootfsBase, Wheel
from builder.plan.facts.tables.loader import load
from builder.verify.runner.reports import Expectation, compare, family, first_parts, parse, same_version

ASKED = Expectation(python="3.9", frameworks=(("tensorflow", "2.8.4"),), cuda="11.8", cudnn="8.6.0")


def cell(provider: str) -> Cell:
    return Cell(
        id="x",
        matrix="m",
        frameworks=("TensorFlow==2.8.4",),
        python="3.9",
        base=Base(kind="registry", name="nvidia/cuda:x"),
        cuda=Cuda(provider=provider),
    )


def wheel(name: str, version: str) -> Wheel:
    return Wheel(name=name, version=version, file=f"{name}.whl", sha256="0" * 64, size=1)


def differences(document: dict, asked: Expectation = ASKED) -> tuple[Difference, ...]:
    return compare(asked, parse(json.dumps(document)))


def test_expectation_from_a_base_image_s_environment() -> None:
    env = (("CUDA_VERSION", "11.8.0"), ("NV_CUDNN_VERSION", "8.9.6.50-1+cuda11.8"))
    base = RegistryBase(reference="nvidia/cuda:x", digest="sha256:1", env=env, labels=(), size=1)
    pinned = Pinned(cell=cell("base"), base=base, wheels=(wheel("tensorflow", "2.8.4"),), epoch=1)
    assert Expectation.of(pinned) == Expectation(
        python="3.9", frameworks=(("tensorflow", "2.8.4"),), cuda="11.8", cudnn="8.9.6"
    )


@pytest.mark.parametrize(("version", "cudnn"), [("9.3.0.75", None), ("9.2.1.18", "9.2.1")])
def test_of_two_copies_that_differ_neither_is_asked_for(version: str, cudnn: str | None) -> None:
    """Colab has apt's cuDNN and the wheel's; which one a framework loads is its own affair."""
    env = (("CUDA_VERSION", "12.5.1"), ("NV_CUDNN_VERSION", "9.2.1.18-1+cuda12.5"))
    base = RegistryBase(reference="nvidia/cuda:x", digest="sha256:1", env=env, labels=(), size=1)
    wheels = (wheel("nvidia-cudnn-cu12", version), wheel("nvidia-cuda-runtime-cu12", "12.5.82"))
    asked = Expectation.of(Pinned(cell=cell("base"), base=base, wheels=wheels, epoch=1))
    assert (asked.cuda, asked.cudnn) == ("12.5", cudnn)


def test_expectation_from_nvidia_s_wheels() -> None:
    wheels = (
        wheel("nvidia-cudnn-cu11", "8.6.0.163"),
        wheel("nvidia-cuda-runtime-cu11", "11.8.89"),
        wheel("tensorflow", "2.8.4"),
    )
    pinned = Pinned(
        cell=cell("wheels"), base=RootfsBase(suite="bullseye", debs=(), epoch=1), wheels=wheels, epoch=1
    )
    assert Expectation.of(pinned) == ASKED


def test_a_cpu_image_asks_for_no_cuda() -> None:
    pinned = Pinned(
        cell=cell("none"), base=RootfsBase(suite="bullseye", debs=(), epoch=1), wheels=(), epoch=1
    )
    assert Expectation.of(pinned) == Expectation(python="3.9")


@pytest.mark.parametrize("name", sorted(load().frameworks))
def test_a_framework_that_is_asked_for_and_not_there_is_a_difference(document, name: str) -> None:
    asked = replace(ASKED, frameworks=((name, "1.2.3"),))
    found = [one for one in differences(document(frameworks=[]), asked) if one.found == "nothing"]
    assert f"framework {name}" in {one.what for one in found}


def test_what_was_asked_was_found(document) -> None:
    assert differences(document()) == ()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"python": "3.10.2"}, ("python", "3.9", "3.10.2")),
        (
            {"frameworks": [{"name": "tensorflow", "version": "2.8.3"}]},
            ("framework tensorflow", "2.8.4", "2.8.3"),
        ),
        ({"frameworks": []}, ("framework tensorflow", "2.8.4", "nothing")),
        (
            {"libraries": [{"name": "libcudnn.so.8", "path": "/x", "version": "8.5.0"}]},
            ("cudnn", "8.6.0", "8.5.0"),
        ),
        (
            {"libraries": [{"name": "libcudart.so.11.0", "path": "/x", "version": "11.2.152"}]},
            ("cuda", "11.8", "11.2"),
        ),
    ],
)
def test_each_difference_is_found(document, changes: dict, expected: tuple[str, str, str]) -> None:
    found = document(**changes)
    if "libraries" in changes:
        found["frameworks"][0]["loaded"] = None
    assert differences(found) == (Difference(what=expected[0], asked=expected[1], found=expected[2]),)


def test_two_frameworks_with_two_cudnns_differ(document) -> None:
    found = document()
    found["frameworks"].append({"name": "torch", "version": "2.4.1", "loaded": {"cudnn": "9.1.0"}})
    assert differences(found) == (Difference(what="cudnn", asked="8.6.0", found="9.1.0"),)


def test_the_probe_s_own_differences_count_and_none_counts_twice(document) -> None:
    own = [
        {"what": "numpy", "asked": "1.23.5", "found": None},
        {"what": "Python", "asked": "3.9", "found": "3.8"},
    ]
    found = differences(document(differences=own, python="3.8.1"))
    assert [row.what for row in found] == ["numpy", "Python"]
    assert found[0].found == "None"


def test_what_could_not_be_measured_counts_only_where_all_works(document) -> None:
    nothing = [{"name": "tensorflow", "version": "2.8.4", "loaded": {"cudnn": None, "cuda": None}}]
    assert differences(document(frameworks=nothing, libraries=[])) == ()
    works = document(frameworks=nothing, libraries=[], verdict="works")
    assert differences(works) == (Difference(what="cudnn", asked="8.6.0", found="nothing"),)


def test_a_framework_that_a_faulty_machine_could_not_import_is_no_difference(document) -> None:
    assert differences(document(frameworks=[], verdict="host")) == ()


@pytest.mark.parametrize(
    ("asked", "found", "same"),
    [
        ("2.4.1", "2.4.1+cu124", True),
        ("2.4.1+cu124", "2.4.1+cu124", True),
        ("2.4.1+cu124", "2.4.1+cu121", False),
        ("2.4", "2.4.0", True),
        ("2.4.1", "2.4.2", False),
        ("weird one", "weird one", True),
    ],
)
def test_versions_compare_as_versions(asked: str, found: str, same: bool) -> None:
    assert same_version(asked, found) is same


def test_names_of_one_family() -> None:
    names = {
        "tensorflow-gpu": "tensorflow",
        "cupy-cuda12x": "cupy",
        "paddlepaddle-gpu": "paddle",
        "Torch": "torch",
    }
    assert {name: family(name) for name in names} == names


def test_first_parts() -> None:
    assert first_parts("8.6.0.163-1+cuda11.8", 3) == "8.6.0"
    assert first_parts(None, 3) is None
    assert first_parts("unknown", 2) is None
