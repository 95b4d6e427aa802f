"""What is proposed passes the rules, reads back as a matrix, and keeps to every demand."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from packaging.requirements import Requirement

from builder.core.errors import NothingPossibleError, NotKnownError, UsageError
from builder.core.versions import newest_first, pinned, release, requirement, without_marker
from builder.plan.facts.rules.candidates import choices
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.devices import of_generations, of_older_driver
from builder.plan.facts.rules.finding import Outcome
from builder.plan.facts.rules.machines import MachineDrivers
from builder.plan.facts.tables.gpus import driver_installs
from builder.plan.facts.tables.loader import load as load_facts
from builder.plan.matrix import load
from builder.plan.resolve import notes, solve
from builder.plan.resolve import wishes as reading
from builder.plan.resolve.refusals import nothing
from builder.plan.resolve.servers import of_servers
from builder.plan.resolve.solve import (
    Demand,
    Proposal,
    meant,
    needs_standalone,
    pythons,
    search,
    split,
    to_matrix_yaml,
)
from builder.verify.cudnn_verify.common.causes import command_lines


def demanded(*texts: str, **options) -> Demand:
    frameworks, companions = split(reading.from_arguments(texts))
    return Demand(frameworks=frameworks, companions=companions, **options)


def proposals(*texts: str, available=None, **options) -> list[Proposal]:
    return search(demanded(*texts, **options), available=available).possible


def test_cards_that_no_release_serves_together_get_one_each_with_the_lines_to_type() -> None:
    """The reasons speak of each card's builds; the last driver branch is told of an old one."""
    cards = ("GTX1080-Ti", "RTX4090", "RTX5080")
    demand = demanded("torch", gpus=cards, driver="580.95.05")
    said = nothing(demand, search(demand), None)
    assert said.reasons == (
        "no build of torch for CUDA 12.8 or newer has code for GTX1080-Ti (6.1)",
        "no build of torch for CUDA 12.6 or older has code for RTX5080 (12.0)",
    )
    assert [way["cards"] for way in said.instead] == [["GTX1080-Ti", "RTX4090"], ["RTX5080"]]
    lines = said.message.splitlines()
    assert "2 environments or images instead, by card:" in lines
    assert sum(": `pip install torch==" in line for line in lines) == 2
    assert any("580 is the last driver branch for GTX1080-Ti (Pascal)" in line for line in lines)
    assert lines[-1].startswith("note: GTX1080-Ti beside RTX5080 in one computer: one driver serves not both")
    assert [*of_generations(("T4", "H100"))] == []


@pytest.mark.parametrize(
    ("requirements", "options", "frameworks"),
    [
        (
            ["tensorflow==2.15.*"],
            {"python": "3.11", "gpus": ("T4",), "driver": "535"},
            "tensorflow[and-cuda]==2.15.1",
        ),
        (["tensorflow==2.8.4"], {}, "tensorflow==2.8.4"),
        (["torch==2.9.*"], {"gpus": ("P100",)}, "torch==2.9.1+cu126"),
        (["jax[cuda12]==0.10.*"], {}, "jax[cuda12]==0.10.2"),
        (["cupy-cuda11x"], {}, "cupy-cuda11x==13.6.0"),
        (["torch==2.10.*"], {"gpus": ("V100", "B200")}, "torch==2.10.0"),
    ],
)
def test_the_best_proposal(requirements, options, frameworks, tmp_path) -> None:
    found = proposals(*requirements, **options)[:5]
    assert found[0].cell.frameworks == (frameworks,)
    assert all(Outcome.of(one.findings) in {Outcome.POSSIBLE, Outcome.WARNS} for one in found)
    path = tmp_path / "resolved.yaml"
    path.write_text(to_matrix_yaml(found))
    cells = load(path).cells
    assert [cell.inputs() for cell in cells] == [one.cell.inputs() for one in found]
    assert [cell.gpus for cell in cells] == [options.get("gpus", ())] * len(cells)
    assert all(Outcome.of(check(cell)) is one.outcome for cell, one in zip(cells, found, strict=True))


def test_a_list_of_a_hundred_packages_is_a_matrix_that_is_read(tmp_path) -> None:
    (found, *_) = proposals("torch==2.10.*")
    pins = tuple(f"a-package-of-some-length-{number}==1.2.{number}" for number in range(100))
    many = replace(found, cell=replace(found.cell, pip=pins))
    (tmp_path / "resolved.yaml").write_text(to_matrix_yaml([many]))
    assert load(tmp_path / "resolved.yaml").cells[0].pip == pins


@pytest.mark.parametrize(
    ("framework", "options"),
    [
        ("tensorflow", {"gpus": ("K80",)}),
        ("tensorflow", {"driver": "470.82.01"}),
        ("torch", {"driver": "470.82.01"}),
        ("torch", {"driver": "450.80.02", "python": "3.8"}),
    ],
)
def test_old_machines_get_the_old_lines(framework: str, options) -> None:
    found = proposals(framework, **options)
    assert found
    for one in found:
        assert Outcome.of(check(one.cell, driver=options.get("driver"))) is one.outcome


def test_python_and_versions_of_the_index_are_kept_to() -> None:
    found = proposals("torch", python="3.11", available={"torch": ["2.8.0", "2.9.0"]})
    assert found[0].cell.python == "3.11"
    assert {p.cell.frameworks[0].split("+")[0] for p in found} <= {"torch==2.9.0", "torch==2.8.0"}
    ranged = proposals("torch==2.9.*", python=">=3.11,<3.13")
    assert {p.cell.python for p in ranged} == {"3.11", "3.12"}
    with pytest.raises(UsageError, match="names no Python"):
        pythons("=>3")


def test_where_no_base_has_the_python_a_standalone_one_is_proposed_and_after_a_bases_own() -> None:
    asked = proposals("torch==2.10.*", python="3.14")
    assert {one.cell.base.kind for one in asked} == {"rootfs", "registry"}
    assert all(needs_standalone(one.cell) and one.cell.python_from is None for one in asked)
    assert all(Outcome.of(check(one.cell)) is one.outcome for one in asked)
    free = [one.cell for one in proposals("torch==2.10.*") if one.cell.frameworks == ("torch==2.10.0",)]
    order = [needs_standalone(cell) for cell in free]
    assert order == sorted(order)
    rootfs = sorted(int(cell.python[2:]) for cell in free if cell.base.kind == "rootfs")
    assert rootfs == [10, 11, 12, 13, 14]
    # below 3.8 uv's catalogue has none: the base with that Python, and no other
    old = proposals("tensorflow==2.10.*", python="3.7")
    assert old
    assert all(str(one.cell.base).endswith("-ubuntu18.04") for one in old)


def test_a_marker_on_a_framework_bounds_the_python_and_one_beside_is_decided_by_it() -> None:
    old = "dataclasses ; python_version < '3.7'"
    found = proposals("torch==2.9.* ; python_version < '3.12'", old, "tqdm")
    assert {p.cell.python for p in found} == {"3.10", "3.11"}
    assert all("tqdm" in p.cell.pip and "dataclasses" not in str(p.cell.pip) for p in found)


def test_clashing_pins_are_avoided_if_an_extra_makes_them() -> None:
    best = proposals("tensorflow==2.15.*", "torch==2.1.*")[0]
    assert best.cell.frameworks == ("tensorflow==2.15.1", "torch==2.1.2")


def test_what_goes_beside_is_asked_about_by_the_rules_too() -> None:
    found = proposals("torch==2.1.*", "numpy==2.0.0")
    assert found == []
    assert proposals("torch==2.1.*", "numpy==1.26.4")[0].cell.pip[:1] == ("numpy==1.26.4",)


def refusal(*texts: str, available=None, **options) -> NothingPossibleError:
    demand = demanded(*texts, **options)
    found = search(demand, available=available)
    assert found.possible == []
    return nothing(demand, found, available)


@pytest.mark.parametrize(
    ("text", "options", "close"),
    [
        ("torch==0.4.1", {}, "torch==1.0.0"),
        ("torch==0.4.1", {"gpus": ("T4",), "driver": "535"}, "torch==1.0.0"),
        ("torch<1.0", {}, "torch==1.0.0"),
        ("torch==2.99.*", {"gpus": ("T4",), "driver": "535"}, "torch==2.14.1+cu126"),
        ("torch==2.3.0.dev2024", {}, "torch==2.3.0"),
        ("torch===1foo", {}, "torch==1.0.0"),
        ("tensorflow==0.11.0", {}, "tensorflow==1.15.0"),
        ("tensorflow-gpu==0.11.0", {}, "tensorflow-gpu==1.13.1"),
        ("paddlepaddle-gpu==1.6.3", {"gpus": ("T4",)}, "paddlepaddle-gpu==2.5.0"),
        ("jax==0.4.16", {}, "jax[cuda12]==0.4.23"),
        ("jax[cuda11_pip]==0.4.25", {}, "jax[cuda12]==0.4.25"),
        ("cupy-cuda91==7.0.0", {"gpus": ("T4",), "driver": "535"}, "cupy-cuda112==9.0.0"),
    ],
)
def test_what_is_not_on_record_is_unknown_with_the_nearest_that_is(text: str, options, close: str) -> None:
    said = refusal(text, **options)
    assert isinstance(said, NotKnownError), said
    assert "on record" in said.message
    (way,) = said.instead
    assert (way["cell"]["frameworks"], way["another_version"]) == ([close], True)
    assert f"another version in place of {text} (as typed): {close} on Python" in said.message


@pytest.mark.parametrize(
    ("text", "gpu", "driver"),
    [("tensorflow==2.15.0", "RTX4090", "470"), ("onnxruntime-gpu==1.20.0", "RTX3090", "470")],
)
def test_a_driver_that_may_do_for_another_card(text: str, gpu: str, driver: str) -> None:
    """Of a driver alone it is not known, since cuda-compat helps cards of data centres."""
    assert isinstance(refusal(text, driver=driver), NotKnownError)
    said = refusal(text, gpus=(gpu,), driver=driver)
    assert type(said) is NothingPossibleError
    assert "`gpus` says which card it is" not in said.message


def test_older_builds_that_nobody_reads_leave_an_old_driver_open() -> None:
    """JAX before 0.4.22 has its builds with CUDA 11 on a page of Google's."""
    said = refusal("jax", gpus=("RTX3060",), driver="470")
    assert isinstance(said, NotKnownError)
    assert "JAX before 0.4.22" in said.message
    assert not isinstance(refusal("jax>=0.5", gpus=("RTX3060",), driver="470"), NotKnownError)


def test_a_package_that_asks_for_no_pytorch_is_taken_in_the_release_that_goes_with_it() -> None:
    """torchaudio 2.11 has no requirement, and is linked with CUDA 13."""
    found = proposals("torch==2.4.0", "torchaudio", gpus=("A100",), driver="535", python="3.11")
    assert {text for one in found for text in one.cell.pip if "audio" in text} == {"torchaudio==2.4.0"}


def test_what_an_index_answered_that_it_lacks_is_impossible() -> None:
    """And a version between those on record is no release at all."""
    for text, available in (
        ("torch==1.99.0", {"torch": ["1.13.1", "2.0.0"]}),
        ("torch==2.3.7", None),
        ("torch==1.7.1", {"torch": ["2.0.0"]}),
    ):
        assert type(refusal(text, available=available)) is NothingPossibleError
    for text in ("paddlepaddle-gpu==3.0.0", "paddlepaddle-gpu>=3.0", "paddlepaddle-gpu==3.2.1"):
        said = refusal(text, available={"paddlepaddle-gpu": ["2.5.2", "2.6.2"]})
        assert isinstance(said, NotKnownError), text
        assert "PaddlePaddle has it on an index of its own" in said.reasons[0]
    for text in ("jax==0.3.25", "jax[cuda11_cudnn86]==0.3.25", "jax[cuda]==0.4.1"):
        said = refusal(text, available={"jax": ["0.4.16", "0.9.0"]})
        assert isinstance(said, NotKnownError), text
        assert "`rtbuild check` of a matrix whose `index` has it decides" in said.reasons[0]
    for text in ("torch==0.4.1", "torch==1.9.0+cu999", "torch==2.0.0rc1"):
        assert isinstance(refusal(text, available={"torch": ["0.4.1", "2.0.0"]}), NotKnownError), text


@pytest.mark.parametrize(
    ("texts", "python", "said"),
    [
        (
            ["tensorflow==2.15.1"],
            "3.12",
            "TensorFlow 2.15.1 has no wheel for Python 3.12 (it has 3.9, 3.10, 3.11)",
        ),
        (["tensorflow-gpu==1.6.0"], None, "was compiled for CUDA 9.0, of which no image and no wheels"),
        (["tensorflow==1.13.2", "torch==2.14.0"], None, "was built without CUDA; tensorflow-gpu 1.13.2"),
        (
            ["tensorflow==2.5.0", "torch==2.14.0"],
            None,
            "no Python has wheels of all: there are TensorFlow 2.5.0",
        ),
    ],
)
def test_where_no_cell_could_be_put_together_the_reason_says_what_lacks(texts, python, said: str) -> None:
    (reason,) = refusal(*texts, python=python).reasons
    assert said in reason


@pytest.mark.parametrize(
    ("texts", "name", "versions"),
    [
        (
            ("tensorflow[and-cuda]==2.17.0", "torch==2.4.0+cu121"),
            "nvidia-cublas-cu12",
            ("12.3.4.1", "12.1.3.1"),
        ),
        (
            ("tensorflow[and-cuda]==2.18.0", "torch==2.6.0+cu124"),
            "nvidia-cublas-cu12",
            ("12.5.3.2", "12.4.5.8"),
        ),
    ],
)
@pytest.mark.parametrize("python", [None, "3.11"])
def test_pins_that_clash_are_the_reason_where_they_left_no_candidate(texts, name, versions, python) -> None:
    said = " and ".join(f"{text} pins {name}=={exact}" for text, exact in zip(texts, versions, strict=True))
    assert said in refusal(*texts, python=python).reasons


def test_the_python_without_a_wheel_is_said() -> None:
    reasons = refusal("tensorflow==1.15.0", python="3.8").reasons
    assert "TensorFlow 1.15.0 has no wheel for Python 3.8 (it has 3.5, 3.6, 3.7)" in reasons


def test_what_was_built_without_cuda_alone_gets_none_and_only_where_no_card_is_asked_for() -> None:
    """The wheel of TensorFlow 1.6.0 is for the CPU; where something with CUDA was meant, it is no answer."""
    found = proposals("tensorflow==1.6.0")
    assert {one.cell.cuda.provider for one in found} == {"none"}
    assert ("ubuntu:18.04", "3.6") in {(str(one.cell.base), one.cell.python) for one in found}
    for machine in ({"gpus": ("T4",)}, {"driver": "535"}):
        said = refusal("tensorflow==1.6.0", **machine)
        assert "was built without CUDA; tensorflow-gpu 1.6.0 has it" in said.message
        assert all(
            way["cell"]["cuda"]["provider"] != "none" for way in said.instead if way["another_version"]
        )
    assert {one.cell.cuda.provider for one in proposals("tensorflow<2.4")} == {"base"}
    assert {one.cell.cuda.provider for one in proposals("tensorflow<2.6")} <= {"base", "wheels"}


def test_what_brings_a_cuda_of_which_no_image_is_left_goes_on_ubuntu_without_cuda() -> None:
    """Up to PyTorch 1.3 there are wheels for Pythons that no standalone one is of."""
    found = proposals("torch==1.1.0", gpus=("V100",))
    assert {(str(one.cell.base), one.cell.python) for one in found} >= {
        ("ubuntu:18.04", "3.7"),
        ("ubuntu:18.04", "3.6"),
    }
    assert all("nvidia/cuda" not in str(one.cell.base) for one in found)


def test_the_version_to_take_instead_is_the_nearest_and_not_the_newest() -> None:
    ways = refusal("tensorflow==2.3.0", gpus=("A100",), driver="535").instead
    assert ["tensorflow==2.4.0"] in [way["cell"]["frameworks"] for way in ways]
    ways = refusal("tensorflow==2.18.0", "torch==2.3.1").instead
    assert [way["cell"]["frameworks"] for way in ways] == [
        ["tensorflow==2.17.1", "torch==2.3.1"],
        ["tensorflow==2.18.0", "torch==2.6.0+cu126"],
    ]


def test_what_jax_leaves_to_the_system_is_proposed_on_images_with_all_of_cuda() -> None:
    """Runtime images lack CUPTI."""
    found = proposals("jax[cuda12_local]==0.5.0", gpus=("T4",), driver="535")
    assert {one.cell.frameworks for one in found} == {("jax[cuda12-local]==0.5.0",)}
    assert all(re.search(r"-cudnn-devel-ubuntu", str(one.cell.base)) for one in found)
    assert {Outcome.of(check(one.cell, driver="535")) for one in found} == {Outcome.POSSIBLE}
    older = proposals("jax[cuda12_pip]==0.4.30")[0]
    assert older.cell.frameworks == ("jax[cuda12]==0.4.30",)


def test_a_name_that_is_nearly_one() -> None:
    assert meant("tensrflow") == "tensorflow"
    assert meant("tensorflow-cpu") == "tensorflow"
    assert meant("numpy") is None
    assert meant("pytorch") == "torch"
    assert meant("cv2") == "opencv-python"


@pytest.mark.parametrize(
    ("texts", "options", "first"),
    [
        (["torch"], {"gpus": ("K80",)}, r"torch==2\.0\."),
        (["tensorflow"], {"gpus": ("K80",)}, r"tensorflow==2\.11\."),
        (["tensorflow"], {"driver": "470.82.01"}, r"tensorflow\[and-cuda\]==2\.14\."),
        (["tensorflow"], {"gpus": ("T4",), "driver": "470"}, r"tensorflow\[and-cuda\]==2\.14\.1"),
        (["torch"], {"gpus": ("T4", "H100", "RTX5090")}, r"torch==2\.1\d\."),
        (["torch"], {"gpus": ("V100", "B200")}, r"torch==2\.10\.\d$"),
        (["jax[cuda12]"], {"python": "3.9"}, r"jax\[cuda12\]==0\.4\.30"),
        (["onnxruntime-gpu", "torch==2.2.2"], {}, r"onnxruntime-gpu==1\.18\."),
        (["paddlepaddle-gpu"], {"gpus": ("A100",)}, r"paddlepaddle-gpu==2\.6\."),
        (["torch"], {"gpus": ("GH200",)}, r"torch==2\.1\d\."),
        (["cupy"], {}, r"cupy-cuda1[23]x==14\."),
        (["jax[cuda12]==0.4.25"], {}, r"jax\[cuda12\]==0\.4\.25"),
    ],
)
def test_questions_from_outside(texts, options, first: str) -> None:
    best = proposals(*texts, **options)[0]
    assert re.match(first, best.cell.frameworks[0]), best.cell
    assert best.cell.gpus == options.get("gpus", ())


@pytest.mark.parametrize("text", ["tensorflow-gpu==1.14.*", "tensorflow<2", "tensorflow-gpu==2.0.*"])
def test_what_needs_a_tag_that_is_gone_stands_on_one_built_again_and_says_so(text: str) -> None:
    """As matrices/tf1.yaml has it, which ``check`` accepts."""
    best = search(demanded(text, python="3.6", gpus=("T4",), driver="535")).possible[0]
    assert best.cell.base.name.startswith("localhost:5000/nvidia/cuda:10.0-cudnn7-runtime-")
    said = [one for one in best.findings if one.rule == "base-tag"]
    assert [one.outcome for one in said] == [Outcome.WARNS]
    assert "has to be built first from its recipe" in said[0].message


def test_a_framework_under_several_markers_is_taken_for_the_newest_python() -> None:
    texts = ["torch==2.1.* ; python_version < '3.10'", "torch==2.8.* ; python_version >= '3.10'"]
    asked = reading.from_arguments(texts)
    (kept,), _ = split(asked)
    assert str(kept.parsed.specifier) == "==2.8.*"
    assert "left out" in asked.notes[0]
    (kept,), _ = split(reading.from_arguments(texts), "3.9")
    assert str(kept.parsed.specifier) == "==2.1.*"


def test_frameworks_for_two_cuda_majors_are_asked_about_once(monkeypatch) -> None:
    """Their refusal is the same on every Python and base."""
    asked: dict[tuple[str, ...], list[str]] = {}

    def judge(cell, driver, *, companions):
        cell, found = check_candidate(cell, driver, companions=companions)
        asked.setdefault(cell.frameworks, []).append(found[-1].rule)
        return cell, found

    check_candidate = solve.check_candidate
    monkeypatch.setattr(solve, "check_candidate", judge)
    found = search(demanded("tensorflow", "torch==2.14.*"))
    several = [rules for rules in asked.values() if rules[0] == "cuda-provider"]
    assert several
    assert all(len(rules) == 1 for rules in several)
    assert {cell.frameworks for cell in found.refused} >= {k for k, v in asked.items() if v in several}


def test_of_a_post_release_and_its_release_the_former_is_newer_wherever_versions_are_ordered() -> None:
    ordered = ["0.12.0.1", "0.12.0.post1", "0.12.0", "0.12.0rc1", "0.11.10", "0.11.9"]
    assert sorted(set(ordered), key=newest_first) == ordered
    assert sorted(ordered, key=release, reverse=True) == ordered


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(load_facts().frameworks))
def test_every_framework_s_releases_are_ranked_the_newest_first(name: str) -> None:
    table = load_facts().frameworks[name]
    wanted = Requirement("cupy" if name == "cupy" else f"{name}")
    rows = [choice.row for choice in choices(wanted)]
    assert rows == sorted(rows, key=lambda row: newest_first(row.version))
    assert table.newest == str(max(release(row.version) for row in table.rows))
    for clean in (True, False):
        ranked = [
            release(pinned(requirement(one.cell.frameworks[0])).partition("+")[0])
            for one in proposals(name)
            if (one.outcome is Outcome.POSSIBLE) is clean
        ]
        assert ranked == sorted(ranked, reverse=True)


def test_what_is_not_known_is_not_said_to_be_impossible() -> None:
    """No one read the GPU code of the wheel for ARM; 4.8.5 is known to have none."""
    for version, head in (("4.8.4", "nothing is known to be possible"), ("4.8.5", "nothing is possible")):
        (wish,) = reading.from_arguments([f"ctranslate2=={version}"]).wishes
        demand = Demand(frameworks=(wish,), gpus=("GH200",))
        assert str(nothing(demand, search(demand))).startswith(head)


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["470", "535"])
@pytest.mark.parametrize("name", sorted(load_facts().frameworks))
def test_what_has_no_reservation_is_proposed_before_all_that_has(name: str, driver: str) -> None:
    """However many newer ones have: a base with cuda-compat starts each of them on a T4."""
    found = proposals(name, gpus=("T4",), driver=driver)
    order = [one.outcome is not Outcome.POSSIBLE for one in found]
    assert order == sorted(order)
    if all(order):
        every = (one for _, one in solve.judged(demanded(name, gpus=("T4",), driver=driver)))
        assert all(one.outcome is not Outcome.POSSIBLE for one in every)


def test_the_extras_that_bring_cuda_are_proposed_of_every_release_that_has_them() -> None:
    """ONNX Runtime's bring CUDA by one and cuDNN by the other; a release without them is no answer."""
    for row in load_facts().frameworks["onnxruntime-gpu"].rows:
        texts = {one.cell.frameworks[0] for one in proposals(f"onnxruntime-gpu=={row.version}")}
        both = f"onnxruntime-gpu[cuda,cudnn]=={row.version}"
        # of 1.27.0 the index lacks the packages that the extra names
        assert (both in texts) is ("cudnn" in row.extras and row.version != "1.27.0"), texts
        asked = list(choices(Requirement(both)))
        assert [choice.text for choice in asked] == ([both] if "cudnn" in row.extras else [])
        assert all({"nvidia-cufft", "nvidia-cudnn"} <= _families(choice.pins) for choice in asked)
    first = proposals("onnxruntime-gpu==1.22.0", gpus=("T4",), driver="535")[0]
    assert first.cell.frameworks == ("onnxruntime-gpu[cuda,cudnn]==1.22.0",)
    assert (first.cell.cuda.provider, first.cell.cuda.packages) == ("wheels", ())


def _families(pins: tuple[str, ...]) -> set[str]:
    return {re.sub(r"-cu\d+$", "", requirement(pin).name) for pin in pins}


@pytest.mark.parametrize("text", ["3.8.5", "3.8", "3.8.*", "==3.8.5", "=== 3.8.18"])
def test_an_exact_python_is_its_minor_release(text: str) -> None:
    assert str(pythons(text)) == "==3.8.*"
    assert str(pythons(">=3.8.5")) == ">=3.8.5"


def test_of_a_release_with_several_builds_the_cuda_of_the_indexs_wheel_is_told() -> None:
    demand = demanded("torch==1.5.0", gpus=("RTX5090",))
    assert nothing(demand, search(demand), None).reasons[-1] == (
        "torch==1.5.0: the default index's wheel is for CUDA 10.2, and builds for CUDA 9.2, 10.1 are on "
        "PyTorch's own"
    )
    demand = demanded("torch==1.5.0+cu92", gpus=("RTX5090",))
    assert not [one for one in nothing(demand, search(demand), None).reasons if "default index" in one]


def test_the_card_is_a_reason_where_a_release_is_impossible_on_any() -> None:
    demand = demanded("tensorflow==1.15.*", gpus=("RTX3090",))
    said = nothing(demand, search(demand), None)
    assert said.reasons[0] == "CUDA 10 serves compute capability 3.0 to 7.5; RTX3090 has 8.6"
    assert search(demanded("tensorflow==1.15.*", gpus=("V100",))).possible


def test_of_a_branch_of_drivers_the_release_is_named_that_its_full_number_lets_run() -> None:
    demand = demanded("jax", driver="525")
    said = nothing(demand, search(demand), None)
    assert isinstance(said, NotKnownError)
    assert said.instead[0]["driver"] == "525.60.13"
    assert (
        "with --driver 525.60.13, or a newer one of its branch (nvidia-smi prints it): jax[" in said.message
    )
    demand = demanded("jax", driver="520")
    assert "of its branch" not in nothing(demand, search(demand), None).message


def test_a_card_is_told_against_the_newest_release_of_an_old_python() -> None:
    """Each two of the three go together: PyTorch for Python 3.7 ends with 1.13."""
    demand = demanded("torch", gpus=("RTX5090",), python="3.7")
    reasons = nothing(demand, search(demand), None).reasons
    assert reasons[0] == (
        "torch==1.13.1, the newest for the rest: CUDA 11 serves compute capability 3.5 to 9.0; RTX5090 has "
        "12.0"
    )


def test_cells_have_what_the_source_imports_of_packages_that_are_asked_for(tmp_path) -> None:
    """matplotlib is on Colab, whoever installs it; a package under a marker that fails is in no image."""
    imports = (
        "torch.utils.data:DataLoader",
        "torch",
        "matplotlib.pyplot",
        "cv2.dnn",
        "moviepy.editor",
        "old.x",
    )
    asked = ("torch==2.3.0", "opencv-python", "moviepy", "old; python_version < '3.0'")
    found = proposals(*asked, python="3.11", imports=imports)[0]
    assert found.cell.imports == ("cv2.dnn", "moviepy.editor", "torch.utils.data:DataLoader")
    path = tmp_path / "m.yaml"
    path.write_text(to_matrix_yaml([found]))
    assert load(path).cells[0].imports == found.cell.imports


def test_a_framework_s_import_is_that_of_its_package_whatever_it_is_called() -> None:
    demand = demanded("onnxruntime-gpu", imports=("onnxruntime.capi", "onnx.helper"))
    assert solve.imports_into(demand, ()) == ("onnxruntime.capi",)


@pytest.mark.parametrize(
    ("card", "driver", "other", "framework"),
    [
        ("GTX1060", "595.71", "580", "torch==2.14.1+cu126"),  # the last branch that serves Pascal
        ("RTX5060", "535", "570.158.01", "torch==2.11.0+cu128"),
    ],
)
def test_where_only_the_driver_is_in_the_way_another_one_is_the_answer(
    card, driver, other, framework
) -> None:
    demand = demanded("torch", gpus=(card,), driver=driver)
    said = nothing(demand, search(demand), None)
    *newest, way = said.instead
    assert way["driver"] == other
    assert all(one["cell"]["frameworks"] == ["torch==2.15.0"] for one in newest)
    assert "another driver would do:" in said.message
    index = f"https://download.pytorch.org/whl/{framework.partition('+')[2]}"
    assert f"with --driver {other}, " in said.message
    assert f": {framework} on Python" in said.message
    assert f"`pip install {framework} --extra-index-url {index}`" in said.message
    assert "without --gpu" not in said.message


def test_who_has_a_driver_that_is_too_old_gets_the_commands_of_their_system() -> None:
    """The newest release first, the oldest driver that does for who cannot have that, and whole commands."""
    demand = demanded("torch", gpus=("GTX1650",), driver="390")
    said = nothing(demand, search(demand), None)
    assert [way["driver"] for way in said.instead] == ["580.65.06", "410"]
    for system in ("Ubuntu 22.04, 24.04", "Debian 12, 13", "RHEL", "Fedora"):
        line = next(line for line in said.message.splitlines() if f"580.65.06 or newer on {system}" in line)
        assert ("which was not read" in line) is (system[:6] != "Ubuntu")
    assert "sudo ubuntu-drivers install nvidia:580 && sudo reboot" in said.message
    windows = nothing(replace(demand, kernel_modules=False), search(demand), None).message
    assert "  a newer driver on Windows itself: https://www.nvidia.com/en-us/drivers/" in windows
    assert "apt-get" not in windows


@pytest.mark.parametrize(
    ("card", "least", "branch", "systems"),
    [
        ("GTX1080", "595.71", "", 0),  # no such branch serves it
        ("GTX1080", "525.60.13", "nvidia-driver-580 ", 2),  # the last that does, with its own modules
        ("K80", "450.80.02", "", 0),  # whose last branch is not on record
        ("RTX4090", "580.65.06", "nvidia:580 ", 4),
    ],
)
def test_the_driver_that_is_installed_serves_the_card(card, least, branch, systems) -> None:
    found = dict(driver_installs([card], least))
    assert len(found) == systems
    assert branch in "".join(found.values())


def test_nobody_is_told_to_give_up_the_card_that_they_have() -> None:
    demand = demanded("tensorflow", gpus=("RTX5060-Ti",))
    said = nothing(demand, search(demand), None)
    assert "without --gpu" not in said.message
    assert "nvcr.io/nvidia/tensorflow:" in said.message


def test_a_card_that_only_the_maker_s_own_index_may_serve_leaves_it_open() -> None:
    demand = demanded("paddlepaddle-gpu", gpus=("RTX5080",))
    said = nothing(demand, search(demand), None)
    assert isinstance(said, NotKnownError)
    line = load_facts().table("paddlepaddle-gpu").elsewhere_blackwell
    assert (
        f"not known: PaddlePaddle from 2.6.3 on, which lies on an index of its maker's: `{line}`"
        in said.message
    )
    told = [text for row in command_lines("framework-arch-missing") for text in row if "/cu129/" in text]
    assert [text.replace("--force-reinstall ", "") for text in told] == [line]
    pinned = demanded("paddlepaddle-gpu==2.6.2", gpus=("RTX5080",))
    assert not isinstance(nothing(pinned, search(pinned), None), NotKnownError)


def test_a_card_s_own_reason_comes_before_the_driver_s() -> None:
    demand = demanded("torch==2.15.0", gpus=("V100",), driver="570")
    reasons = nothing(demand, search(demand), None).reasons
    assert reasons[0] == "CUDA 13 serves compute capability 7.5 to 12.1; V100 has 7.0"
    assert reasons[-1] == "driver 570 is older than 580.65.06"


OLD = ("numpy<=1.15.4", "matplotlib>=1.5.3")


@pytest.mark.parametrize(
    ("asked", "beside", "taken"),
    [
        ("tensorflow-gpu>=1.12.0", OLD, "tensorflow-gpu<2,>=1.12.0"),
        ("tensorflow-gpu>=1.12.0", (), "tensorflow-gpu>=1.12.0"),  # nothing tells of when it was written
        ("tensorflow-gpu>=1.12.0", ("tqdm",), "tensorflow-gpu>=1.12.0"),
        ("tensorflow-gpu>=2.1", OLD, "tensorflow-gpu>=2.1"),
        ("tensorflow-gpu>=1.12.0,<3", OLD, "tensorflow-gpu<3,>=1.12.0"),
    ],
)
def test_tensorflow_1_is_meant_where_the_rest_is_of_its_time(asked: str, beside, taken: str) -> None:
    notes: list[str] = []
    found = solve.of_its_time(demanded(asked, *beside, gpus=("6.1",), driver="535"), None, notes)
    assert [str(wish) for wish in found.frameworks] == [taken]
    assert bool(notes) is (taken == "tensorflow-gpu<2,>=1.12.0")
    best = search(found).possible[0].cell
    assert (best.frameworks, best.python) == (("tensorflow-gpu==1.14.0",), "3.7") or not notes


def test_no_release_is_ruled_out_by_releases_that_nobody_read() -> None:
    """matplotlib 3.5, the oldest on record, wants numpy>=1.17: an older one goes with numpy<=1.15.4."""
    assert proposals("tensorflow-gpu==1.14.0", *OLD, python="3.7")
    assert not proposals("tensorflow-gpu==1.14.0", "numpy<=1.15.4", "matplotlib>=3.5", python="3.7")


def test_another_distribution_is_told_with_why_it_is_of_no_use_on_the_card() -> None:
    for card, words in (
        ("RTX3060", "has it, for CUDA 9.0, which serves compute capability 3.0 to 7.5, and RTX3060 has 8.6"),
        ("6.1", "has it"),
    ):
        demand = demanded("tensorflow==1.5", gpus=(card,))
        said = str(nothing(demand, search(demand)))
        assert f"built without CUDA; tensorflow-gpu 1.5.0 {words}" in said
        assert ("has it, for" in said) is (card == "RTX3060")


def test_the_index_of_another_build_gives_way_to_that_of_the_build_that_is_taken() -> None:
    mine = "https://download.pytorch.org/whl/"
    named = (f"{mine}cu128", "https://example.invalid/simple")
    (old, *_) = proposals("torch==2.8.0", gpus=("6.1",), index=named)
    assert old.cell.frameworks == ("torch==2.8.0+cu126",)
    assert old.cell.index == (named[1], f"{mine}cu126")
    (new, *_) = proposals("torch==2.8.0", gpus=("12.0",), index=named)
    assert (new.cell.frameworks, new.cell.index) == (("torch==2.8.0",), named)


def test_markers_that_hold_together_are_one_requirement_and_another_systems_line_is_told() -> None:
    asked = reading.from_arguments(
        ["jax==0.10.2", "jax[cuda12]==0.10.2; sys_platform != 'darwin'", "jax-mps; sys_platform == 'darwin'"]
    )
    (jax,), beside = split(asked)
    assert str(without_marker(jax.parsed)) == "jax[cuda12]==0.10.2"
    assert jax.holds("3.12")
    assert beside == ()
    (note,) = asked.notes
    assert "not for Linux on x86_64 by their markers, left out: jax-mps" in note


def test_a_framework_of_the_bases_cuda_stands_beside_one_that_carries_its_own() -> None:
    """TensorFlow 1.15 finds CUDA 10.0 in the base; two copies of cuDNN are the true reason against 1.3.1."""
    asked = {
        text: tuple(reading.from_arguments(["tensorflow<2", text]).wishes)
        for text in ("torch==1.3.1", "torch==1.5.0")
    }
    found = search(Demand(frameworks=asked["torch==1.5.0"], gpus=("RTX2070",)), enough=1)
    assert found.possible[0].cell.base.name.endswith("nvidia/cuda:10.0-cudnn7-runtime-ubuntu18.04")
    assert found.possible[0].cell.cuda.provider == "base"
    refused = search(Demand(frameworks=asked["torch==1.3.1"], gpus=("RTX2070",)), enough=1).refused
    said = [one.message for one in check(refused[0], suggest=False) if one.outcome is Outcome.IMPOSSIBLE]
    assert [text.partition(":")[0] for text in said] == ["2 copies of cuDNN"]


def test_an_open_requirement_gets_the_bound_below_what_is_known_bad_and_a_pinned_one_is_refused() -> None:
    best = proposals("torch==1.13.1", "transformers>=4.31")[0]
    (asked,) = (text for text in best.cell.pip if text.startswith("transformers"))
    assert asked == "transformers<4.52,>=4.31"  # the lowest of the bounds of five rows
    told = [text for text in best.added if text.startswith("transformers<")]
    assert len(told) == 1
    assert told[0].startswith("transformers<4.52: transformers-4.52-torch")
    assert proposals("torch==1.13.1", "transformers==5.20.2") == []
    assert proposals("torch==1.13.1", "transformers>=5.20") == []


def test_the_kernel_modules_that_cards_need_are_told() -> None:
    """The driver's branch is that of the machine, or the first that serves the card."""
    (open_,) = of_generations(("RTX5070", "RTX3090"), "575.57")
    assert open_.startswith("RTX5070: the driver's open kernel modules alone serve it")
    assert "nvidia-driver-575-open" in open_
    assert "nvidia-driver-570-open" in [*of_generations(("RTX5070",), "565.77")][-1]
    old = [*of_generations(("P40", "RTX3060"), "575.57")]
    assert [line.partition(":")[0] for line in old[1:]] == [
        "current builds stay with RTX3060 (8.6)",
        "P40",
    ]
    assert "nvidia-driver-575, without -open" in old[-1]
    assert not any("kernel modules" in line for line in of_generations(("P40",), "535.10"))


@pytest.mark.parametrize(
    ("cell", "says", "not_said"),
    [
        ({}, ["driver, 525.60.13 or newer, and neither a CUDA toolkit nor cuDNN"], ["nvcc", "Debian"]),
        (
            {"pip": ("vllm==0.19.1",), "apt": ("libheif1",)},
            ["nvcc of CUDA 12.8 for what FlashInfer"],
            ["neither"],
        ),
        ({"apt": ("libgl1",)}, ["neither a CUDA toolkit nor cuDNN; libgl1 of Debian's"], ["nvcc"]),
        ({"pip": ("flash-attn",)}, ["nvcc of CUDA 12.8 to compile flash-attn"], ["neither"]),
    ],
)
def test_what_has_to_be_on_the_system_is_said_once(cell, says, not_said) -> None:
    demand = demanded("torch==2.10.0", gpus=("RTX3090",))
    (best, *_) = search(demand).possible
    best = replace(best, cell=replace(best.cell, **cell))
    (said,) = notes.of_system(best, demand)
    for words in says:
        assert words in said
    for words in not_said:
        assert words not in said
    (windows,) = notes.of_system(best, replace(demand, kernel_modules=False))
    assert "525.60.13" not in windows  # which is a driver for Linux


def test_what_a_package_does_on_newer_cards_alone_is_said() -> None:
    demand = demanded("torch==2.10.0", gpus=("V100",))
    (best, *_) = search(demand).possible
    best = replace(best, cell=replace(best.cell, pip=("vllm==0.19.1",)))
    (said,) = notes.of_features(best, demand)
    assert "vllm on V100 (7.0) is without AWQ (from 7.5 on)" in said
    assert "FP8 (W8A8) (from 8.9 on)" in said
    assert not list(notes.of_features(best, replace(demand, gpus=("H100",))))


MACHINES = (("RTX3090", "535.183.01"), ("GTX1080-Ti", "535.183.01"), ("RTX5090", "575.64.03"))


def test_each_card_is_asked_for_with_the_driver_of_its_own_machine() -> None:
    """The driver of one machine is no reason against the card of another one."""
    pair = MachineDrivers(one for one in MACHINES if one[0] != "GTX1080-Ti")
    found = search(demanded("torch", gpus=("RTX3090", "RTX5090"), driver=pair)).possible[0]
    assert found.cell.frameworks[0].endswith("+cu128")
    assert not search(demanded("torch", gpus=("RTX3090", "RTX5090"), driver="535.183.01")).possible


def test_machines_that_no_build_serves_together_get_builds_of_one_release() -> None:
    demand = demanded("torch", gpus=tuple(card for card, _ in MACHINES), driver=MachineDrivers(MACHINES))
    said = nothing(demand, search(demand), None)
    assert [way["cards"] for way in said.instead] == [["RTX3090", "GTX1080-Ti"], ["RTX5090"]]
    assert [way["cell"]["frameworks"] for way in said.instead] == [
        ["torch==2.11.0+cu126"],
        ["torch==2.11.0+cu128"],
    ]
    assert "in one computer" not in said.message


def test_of_two_machines_with_one_card_each_driver_counts() -> None:
    drivers = MachineDrivers([("GTX1080", "535.183.01"), ("GTX1080", "595.71")])
    assert not search(demanded("torch", gpus=("GTX1080",), driver=drivers)).possible
    assert str(drivers) == "535.183.01"
    assert drivers != "535.183.01"


def test_a_server_that_is_an_image_is_told_with_what_the_machine_serves() -> None:
    """https://docs.nvidia.com/deeplearning/triton-inference-server/release-notes/rel-24-04.html"""
    asked = demanded("tritonserver", gpus=("T4",), driver="525.125.06")
    image, machine, page = of_servers(asked)
    assert "nvcr.io/nvidia/tritonserver:YY.MM-py3" in image
    assert machine.startswith("driver 525.125.06 serves all of CUDA 12 on T4")
    assert "525 is none of them" in machine
    assert "release-notes" in page
    consumer = [*of_servers(demanded("tritonserver", gpus=("RTX3090",), driver="580.65.06"))][1]
    assert consumer.startswith("driver 580.65.06 serves all of CUDA 13 on RTX3090")
    assert "cuda-compat" not in consumer
    assert not [*of_servers(demanded("torch", "numpy"))]


@pytest.mark.parametrize(
    ("gpu", "driver", "words"),
    [
        ("H100", "535.161.08", ("older than CUDA 12.8", "no PTX", "cuda-compat-12-8")),
        ("RTX3090", "535.161.08", ("no PTX",)),
        ("H100", "570.86.10", ()),
    ],
)
def test_what_a_driver_of_the_major_version_does_not_do_is_told(gpu, driver, words) -> None:
    """https://github.com/vllm-project/vllm/issues/31700"""
    said = "".join(of_older_driver("12.8", (gpu,), driver))
    assert bool(said) is bool(words)
    assert all(word in said for word in words)
    assert ("cuda-compat" in said) is ("cuda-compat-12-8" in words)


def test_a_bound_on_cudnn_names_the_card_that_later_ones_serve_no_more() -> None:
    found = proposals("jax", gpus=("V100",), driver="550.144.03")[0]
    (why,) = [text for text in found.added if "cudnn" in text]
    assert why.startswith("nvidia-cudnn-cu12<=9.10.2.21: cuDNN from 9.11")
    assert "7.5 and newer, and V100 has 7.0" in why
    assert not [text for text in proposals("jax", gpus=("T4",))[0].added if "cudnn" in text]
