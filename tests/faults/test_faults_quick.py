"""Every fault that needs nothing but gcc: exactly its cause, exactly its verdict, and never ``works``."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import faults_driver  # noqa: F401
import faults_files  # noqa: F401
import faults_framework  # noqa: F401
import faults_gpu  # noqa: F401
import faults_hosts  # noqa: F401
import faults_kernels  # noqa: F401
import faults_packages  # noqa: F401
import faults_pairs  # noqa: F401
import faults_session  # noqa: F401
import faults_surroundings  # noqa: F401
import faults_together
import faults_toolkit  # noqa: F401
import pytest
from fault_list import FAULTS, Fault
from fault_scene import EXIT_CODES
from healthy import HEALTHY

if TYPE_CHECKING:
    from fault_scene import Scene

QUICK = [row for row in FAULTS if row.parts == "doubles"]


@pytest.mark.slow
@pytest.mark.parametrize("row", QUICK, ids=[row.name for row in QUICK])
def test_fault_gets_its_cause(row: Fault, scene: Scene) -> None:
    row.prepare(scene)
    outcome = scene.run()
    assert outcome.report, outcome.stderr
    found = (outcome.report["verdict"], outcome.report["cause"])
    assert found == (row.verdict, row.cause), outcome.report["summary"]
    assert outcome.code == EXIT_CODES[row.verdict]
    assert outcome.unlisted() == []
    assert outcome.report["verdict"] != "works"


@pytest.mark.parametrize("version", ["7.6.5", "8.9.7", "9.10.2"])
def test_sound_doubles_pass_every_check(version: str, scene: Scene) -> None:
    """The faults prove something only if the same parts without a fault pass; never as evidence, though."""
    scene.cudnn(version)
    scene.driver()
    outcome = scene.run()
    assert outcome.report["cause"] is None, outcome.report["summary"]
    assert ("convolution", "C07") in outcome.checks("passed")
    assert outcome.report["test_double"] is True
    assert (outcome.code, outcome.report["verdict"]) == (10, "unverified")


def test_a_framework_with_cudnn_inside_needs_none_beside_it(scene: Scene) -> None:
    """PyTorch for CUDA 10.2 is linked with cuDNN statically: there is no libcudnn to find."""
    scene.driver()
    scene.framework("torch", cudnn="7.6.5", compiled="7.6.5", cuda="10.2")
    outcome = scene.run()
    assert outcome.report["cause"] is None, outcome.report["summary"]
    assert ("torch", "F05") in outcome.checks("passed")
    assert "a test double took part" in outcome.report["summary"]


def test_the_image_not_the_host_brought_the_wrong_driver_library(scene: Scene) -> None:
    scene.cudnn()
    compat = scene.folder("usr/local/cuda-12.4/compat")
    (compat / "libcuda.so.1").hardlink_to(scene.build.driver() / "libcuda.so.1")
    scene.search(compat)
    scene.env["RTBUILD_DOUBLE_CUDA"] = "cuInit=803"
    outcome = scene.run()
    assert (outcome.report["verdict"], outcome.report["cause"]) == ("unsupported-gpu", "compat-unsupported")


def test_sound_framework_passes_every_check(scene: Scene) -> None:
    scene.cudnn()
    scene.driver()
    scene.framework("torch")
    outcome = scene.run()
    assert outcome.report["cause"] is None, outcome.report["summary"]
    passed = outcome.checks("passed")
    assert {("torch", number) for number in ("F01", "P03", "F02", "F03", "F04", "F05", "F07")} <= set(passed)
    assert outcome.report["test_double"] is True


@pytest.mark.slow
@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("build", ["12.6", "none"], ids=["a build for CUDA", "a build for the CPU"])
def test_where_no_cuda_is_asked_for_its_absence_is_no_fault(build: str, gpu: bool, scene: Scene) -> None:
    """``cuda: none`` in a matrix; the image computes on the CPU, and is never said to work."""
    scene.expect(cuda={"provider": "none", "version": None}, cudnn=None, frameworks={})
    scene.framework("torch", cuda=build, gpus=0, device="cpu")
    scene.links("torch/lib/libtorch_cuda_cpp.so", scene.cudnn(into=scene.folder("lost")))
    shutil.rmtree(scene.root / "lost")
    if gpu:
        scene.driver()
    outcome = scene.run()
    assert (outcome.report["verdict"], outcome.report["cause"]) == ("unverified", None)
    assert ("torch", "F01") in outcome.checks("passed")
    scene.args.clear()
    assert scene.run().report["verdict"] == "broken"


@pytest.mark.parametrize(
    ("version", "status"), [("7.6.5", 9), ("8.9.7", 9), ("9.10.2", 3000), ("9.10.2", 3009)]
)
def test_an_algorithm_that_is_not_supported_is_no_fault_where_another_ran(
    version: str, status: int, scene: Scene
) -> None:
    scene.cudnn(version)
    scene.driver()
    scene.env["RTBUILD_DOUBLE_CUDNN"] = f"cudnnConvolutionBackwardData#1={status}"
    outcome = scene.run()
    assert outcome.report["cause"] is None, outcome.report["summary"]
    check = next(c for c in outcome.report["checks"] if c["id"] == "C07")
    tried = {(row["direction"], row["algorithm"]) for row in check["evidence"]["rows"]}
    assert ("BackwardData", 1) not in tried
    assert {("BackwardData", 0), ("Forward", 0), ("Forward", 1)} <= tried
    assert ("SUBLIBRARY_UNAVAILABLE" in (check["note"] or "")) == (status == 3009)


def test_what_rounding_explains_is_no_fault(scene: Scene) -> None:
    """The heuristics choose FFT and Winograd (number 5), which are off by 0.08."""
    scene.cudnn()
    scene.driver(algorithm=5, rounding=0.08)
    outcome = scene.run()
    assert outcome.report["cause"] is None, outcome.report["summary"]
    rows = next(c for c in outcome.report["checks"] if c["id"] == "C07")["evidence"]["rows"]
    assert {row["allowed"] for row in rows if row["algorithm"] == 5} == {0.1, 0.45}
    assert {round(row["difference"], 2) for row in rows if row["algorithm"] == 5} == {0.08}


def test_no_two_causes_are_excused_as_one() -> None:
    """Every cause that the list can give without NVIDIA's own files is met by a fault of its own."""
    assert len({row.cause for row in QUICK}) >= 50
    assert all(row.verdict != "works" for row in QUICK)


def test_two_frameworks_with_one_cudnn_are_no_conflict(scene: Scene) -> None:
    faults_together.two_frameworks(scene, "9.10.2", "9.8.0")
    outcome = scene.run()
    assert outcome.report["cause"] is None, outcome.report["summary"]
    notes = [check["note"] for check in outcome.report["checks"] if check["id"] == "F06"]
    assert notes == [None, "both serve it by NVIDIA's rule, but the order decides"]


@pytest.mark.slow
@pytest.mark.parametrize("title", HEALTHY)
def test_nothing_is_wrong(title: str, scene: Scene) -> None:
    HEALTHY[title](scene)
    outcome = scene.run()
    found = (outcome.code, outcome.report.get("verdict"), outcome.report.get("cause"))
    assert found == (10, "unverified", None), outcome.report.get("summary") or outcome.stderr


def test_what_the_probe_falls_over_is_said_as_a_document_and_as_a_line(scene: Scene) -> None:
    scene.startup("import sys\nsys.modules['mmap'] = None\n")
    outcome = scene.run()
    assert (outcome.code, outcome.report["verdict"]) == (30, None)
    assert "mmap" in outcome.report["summary"]
    assert "Traceback" not in outcome.stderr


@pytest.mark.slow
def test_each_further_card_is_tried_and_a_bad_one_is_named(scene: Scene) -> None:
    scene.cudnn("9.10.2")
    scene.driver(devices=3)
    found = [row for row in scene.run().report["checks"] if row["id"] == "D06"]
    assert [(row["outcome"], row["evidence"]["card"]) for row in found] == [("passed", 1), ("passed", 2)]
    scene.driver(devices=3, bad_card=2)
    report = scene.run().report
    assert (report["verdict"], report["cause"]) == ("host", "driver-error")
    assert "card 2, " in report["summary"]
    assert [row["outcome"] for row in report["checks"] if row["id"] == "D06"] == ["passed", "failed"]
