"""What would do in place of requirements that nothing meets: near, tried, and said one by one."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from rtbuild_command import called

from builder.cli.commands import resolve as command
from builder.core.errors import CellError, FaultError, NoSolutionError, NothingPossibleError, NotKnownError
from builder.core.import_outcomes import Missing
from builder.core.import_set import OWN
from builder.core.model import Wheel
from builder.plan.facts.reading import Truth
from builder.plan.facts.rules import asked_once, by_compat
from builder.plan.facts.rules.finding import Finding, Outcome
from builder.plan.matrix import load
from builder.plan.resolve import loosening, native_code, proposing, silent_pages, substitutes
from builder.plan.resolve import notes as told_of
from builder.plan.resolve import resolver as proving
from builder.plan.resolve import wishes as reading
from builder.plan.resolve.resolver import reason
from builder.plan.resolve.solve import Demand, Proposal, search, split, wheel_pythons
from builder.plan.resolve.vendor_builds import refused_for_vendor
from builder.sources.index import Offer
from builder.sources.index.simple_api import IndexFile
from builder.sources.index.uv import IndexSettings

BROUGHT = {"protobuf", "setuptools", "h5py", "gast", "wrapt", "keras"}
"""Of which the double has what is asked for."""
VERSIONS = {"numpy": "1.19.5", "triton": "3.1.0", "opencv-python": "4.8.0", "scipy": "1.7.3"}


def demanded(*texts: str, **options) -> Demand:
    frameworks, companions = split(reading.from_arguments(texts))
    return Demand(frameworks=frameworks, companions=companions, **options)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """A resolver's double that has one version of each package; what it was asked."""
    asked: list[tuple[str, ...]] = []

    def solved(proposal, _index, _driver, **_options):
        asked.append(proposal.cell.pip)
        wheels = []
        for parsed in map(Requirement, proposal.cell.pip):
            version = VERSIONS.get(parsed.name)
            if version is None and parsed.name not in BROUGHT:
                return f"Because {parsed.name} was not found in the package registry, nothing can be done"
            if version is not None and not parsed.specifier.contains(version):
                return f"Because {parsed} has no wheels with a matching Python ABI tag"
            wheels.append(Wheel(name=parsed.name, version=version or "1", file="f", sha256="", size=1))
        return replace(proposal, wheels=len(wheels)), wheels

    monkeypatch.setattr(loosening, "solved", solved)
    return asked


class Listed:
    """An index that lists a wheel of each of these versions."""

    settings = IndexSettings(default="https://index.example")

    def __init__(self, versions: dict[str, list[str]] | None = None) -> None:
        self.versions = versions or {}

    def offers(self, name: str) -> list[IndexFile]:
        files = (f"{name.replace('-', '_')}-{v}-py3-none-any.whl" for v in self.versions.get(name, ()))
        return [IndexFile(name=file, url=f"https://index.example/{file}", sha256=None) for file in files]


def changes(*texts: str, **options) -> list[str]:
    found = substitutes.nearest_demand(demanded(*texts, **options), Listed(), {})
    assert found is not None
    return [str(change) for change in found.changes]


@pytest.mark.usefixtures("resolver")
def test_a_framework_moves_to_the_nearest_release_and_a_clash_follows() -> None:
    first, *others = changes("tensorflow==1.5", "numpy<1.17", "scipy", gpus=("A100",))
    assert first.startswith("tensorflow==2.4.4 in place of tensorflow==1.5 (as typed)")
    assert first.endswith("another major version, so code may need changes")
    wants = "the cell wants numpy<1.17 and TensorFlow 2.4.4 wants numpy~=1.19.2: no version is both"
    assert others == [f"numpy==1.19.5 in place of numpy<1.17 (as typed): {wants}"]
    (only,) = changes("torch==0.4.1")
    assert only.startswith("torch==1.0.1 in place of torch==0.4.1 (as typed)")


def test_each_framework_moves_for_its_own_reason() -> None:
    found = substitutes.nearest_demand(demanded("cupy==2.0.0", "tensorflow-gpu==1.2.0"), None, {})
    assert found is not None
    cupy, tensorflow = found.changes
    assert "cupy==2.0.0" in cupy.reason
    assert "cupy" not in tensorflow.reason
    assert tensorflow.reason.startswith("TensorFlow 1.2.0 was compiled for CUDA 8.0")


@pytest.mark.parametrize(
    ("asked", "instead", "why"),
    [
        (
            "jax[cuda11_cudnn86]>=0.4.2",
            "jax[cuda12]==0.4.25",
            "extra cuda11-cudnn86 is 0.4.25, and its build for cuda11 lies on a page of its maker's",
        ),
        (
            "tensorflow[and-cuda]>=2.10,<2.13",
            "tensorflow==2.10.0",
            "of the releases of TensorFlow with the extra and-cuda, 2.14.0 to 2.21.0, none fits",
        ),
        (
            "jax[tpu]==0.7.2",
            "jax[cuda12]==0.7.2",
            "no release of JAX on record brings CUDA by the extra tpu",
        ),
    ],
)
def test_an_extra_that_newer_releases_dropped_leads_to_the_last_with_it(
    asked: str, instead: str, why: str
) -> None:
    found = substitutes.nearest_demand(demanded(asked), None, {})
    assert found is not None
    (only,) = found.changes
    assert only.instead == instead
    assert why in only.reason


@pytest.mark.usefixtures("resolver")
def test_one_framework_under_two_names_is_taken_once() -> None:
    asked = ("tensorflow==1.15.0", "tensorflow-gpu==1.15.0", "tensorflow-cpu==1.15.0", "numpy")
    first, third, second = changes(*asked, gpus=("A100",))
    stays = "==1.15.0 (as typed): tensorflow stays, and both write the same files"
    assert (first, third) == (f"without tensorflow-gpu{stays}", f"without tensorflow-cpu{stays}")
    assert second.startswith("tensorflow==2.4.4 in place of tensorflow==1.15.0 (as typed)")


@pytest.mark.usefixtures("resolver")
@pytest.mark.parametrize(
    ("marker", "left_out"),
    [("python_version == '3.7'", True), ("python_version < '3.10'", True), ("python_version < '3'", False)],
)
def test_a_second_name_counts_on_the_pythons_that_its_framework_has(marker: str, left_out: bool) -> None:
    said = changes("tensorflow==2.4.1", f"tensorflow-cpu==2.4.1 ; {marker}")
    assert any(one.endswith("tensorflow stays, and both write the same files") for one in said) is left_out


def test_code_for_numpy_1_gets_numpy_1_and_keeps_its_release(
    resolver: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason itself names what mends: it was taken for a reason against the release."""
    monkeypatch.setitem(VERSIONS, "scikit-learn", "1.2.2")
    for beside in ((), ("numpy",), ("numpy>=1.19",)):
        assert changes("torch==2.6.0", "scikit-learn==1.2.2", *beside, python="3.11") == []
        (numpy,) = (parsed for parsed in map(Requirement, resolver[-1]) if parsed.name == "numpy")
        assert "<2" in map(str, numpy.specifier)
        assert "scikit-learn==1.2.2" in resolver[-1]
    moved = changes("torch==2.6.0", "scikit-learn==1.2.2", "numpy>=2", python="3.11")
    assert len(moved) == 1


@pytest.mark.usefixtures("resolver")
def test_only_what_has_to_changes() -> None:
    (moved,) = changes("torch==2.5.1", "triton==3.0.0", "scipy>=1.2")
    assert moved.startswith("triton==3.1.0 in place of triton==3.0.0 (as typed): triton 3.0.0 has no")
    (gone,) = changes("torch==2.5.1", "nowhere==1.0")
    assert gone == (
        "without nowhere==1.0 (as typed): Because nowhere was not found in the package registry, "
        "nothing can be done"
    )
    assert changes("torch==2.5.1", "scipy") == []


def test_of_packages_that_write_the_same_files_the_one_to_keep_is_kept(
    monkeypatch: pytest.MonkeyPatch, resolver: list[tuple[str, ...]]
) -> None:
    monkeypatch.setitem(VERSIONS, "opencv-contrib-python-headless", "4.5.5.64")
    (gone,) = changes("torch==2.5.1", "opencv-contrib-python-headless==4.5.5.64", "opencv-python")
    assert gone.startswith("without opencv-python (as typed): ")
    assert "opencv-contrib-python-headless stays, and both write the same files" in gone
    assert any("opencv-contrib-python-headless==4.5.5.64" in pip for pip in resolver)


def test_a_package_goes_that_writes_the_files_of_one_that_another_brings() -> None:
    said = (
        "the wheels that were resolved cannot work together (same-files: ultralytics-thop and thop write the "
        "same files (thop/__init__.py): an image has one of them. Keep ultralytics-thop: it is maintained)"
    )
    problem = proposing._BrokenSetError(f"nothing is possible:\n  {said}\nand more")
    demand, dropped = proposing._with_one_of_each(demanded("torch==2.10.0", "ultralytics", "thop"), problem)
    assert [wish.name for wish in demand.companions] == ["ultralytics"]
    assert [(one.asked.name, one.instead, one.reason) for one in dropped] == [
        ("thop", None, "ultralytics-thop stays, and both write the same files: it is maintained")
    ]
    with pytest.raises(proposing._BrokenSetError):
        proposing._with_one_of_each(demanded("torch==2.10.0", "ultralytics"), problem)


@pytest.mark.parametrize(
    ("asked", "own", "once"),
    [
        (["numpy==1.16.4"], ["numpy<2"], ["numpy==1.16.4"]),
        (["numpy<1.17"], ["numpy<2"], ["numpy<1.17"]),
        (["numpy>=1.18", "scipy"], ["numpy<2"], ["numpy<2,>=1.18", "scipy"]),
        (["scipy"], ["numpy<2"], ["scipy", "numpy<2"]),
        (["numpy==2.1"], ["numpy<2"], ["numpy<2,==2.1"]),
    ],
)
def test_a_package_has_one_line(asked: list[str], own: list[str], once: list[str]) -> None:
    assert asked_once(asked, own) == tuple(once)


def test_the_pythons_are_tried_for_which_there_are_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old pin beside an open framework: the framework is older, and nothing is replaced."""
    index = Listed()
    monkeypatch.setitem(index.versions, "numpy", ["1.16.4"])
    files = [
        IndexFile(name=f"numpy-1.16.4-cp{n}-cp{n}m-manylinux1_x86_64.whl", url="", sha256=None)
        for n in (36, 37)
    ]
    monkeypatch.setattr(index, "offers", lambda _name: files)
    demand = demanded("torch", "numpy==1.16.4")
    (there,) = wheel_pythons(demand.companions, index, "linux/amd64").values()
    assert there == {"3.6", "3.7"}

    def prove(proposals, demand, _index, limit, _note):
        old = [one for one in proposals if one.cell.python in there]
        refused = {"numpy==1.16.4 has no usable wheels": proposals[0]}
        return [replace(one, wheels=5) for one in old[:limit]], refused

    monkeypatch.setattr(proposing, "prove", prove)
    demand = replace(demand, driver=None)
    standing, notes = proposing._on_any_python(demand, {}, index, 1, rootfs=False)
    assert standing[0].cell.python == "3.7"
    assert standing[0].cell.frameworks == ("torch==1.13.1",)
    assert notes[0].kind == "python"
    assert notes[0].text == (
        "numpy==1.16.4 (as typed) has wheels for Python 3.6, 3.7, and so one of them is taken"
    )
    assert re.fullmatch(
        r"torch 2\.\S+ is possible alone; 1\.13\.1 is the newest found with numpy==1\.16\.4", notes[1].text
    )
    monkeypatch.setattr(index, "offers", lambda _name: files[:0])
    with pytest.raises(NothingPossibleError):
        proposing._on_any_python(demand, {}, index, 1, rootfs=False)


def test_what_packages_bring_is_asked_on_the_pythons_that_have_their_wheels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def brought(_index, _demand, python):
        asked.append(python)
        if python != "3.6":
            raise NoSolutionError(f"nothing for {python}", hint="loosen")
        return ["ctranslate2"]

    monkeypatch.setattr(proposing, "brought", brought)
    files = [
        IndexFile(name=f"old-1-cp{n}-cp{n}m-manylinux1_x86_64.whl", url="", sha256=None) for n in (36, 37)
    ]
    index = Listed()
    monkeypatch.setattr(index, "offers", lambda _name: files)
    assert proposing._with_brought(demanded("old==1"), index).frameworks[0].name == "ctranslate2"
    assert asked == ["3.7", "3.6"]
    with pytest.raises(NoSolutionError, match=r"nothing for 3\.7") as refused:
        proposing._with_brought(demanded("old==1", python="3.7"), index)
    assert "`rtbuild resolve torch old==1`" in str(refused.value.hint)


def test_a_build_that_is_not_on_record_names_those_that_are() -> None:
    (absent,) = search(demanded("torch==1.3.0+cu92")).absent
    assert absent.reason == (
        "the build torch==1.3.0+cu92 (as typed) is not on record; of PyTorch 1.3.0 there are: "
        "torch==1.3.0 for CUDA 10.1"
    )


def test_a_mistaken_name_is_the_one_that_is_meant(resolver: list[tuple[str, ...]]) -> None:
    (moved,) = changes("torch==2.5.1", "opencv==4.1")
    assert moved.startswith("opencv-python==4.8.0 in place of opencv==4.1 (as typed): ")
    assert all("opencv" not in pip for pip in resolver)


HAD = {
    "transformers": ["4.4.2", "4.5.1", "4.6.0", "4.6.1", "4.20.0", "4.57.6"],
    "opencv-python": ["3.2.0.8", "3.4.18.65", "4.5.5.64", "5.0.0.93"],
    "umap-learn": ["0.5.12"],
}


def newest_that_goes(proposal, _index, _driver, **_options):
    """A resolver's double: transformers goes from 4.6 on, and umap-learn not beside what is asked for."""
    wheels = []
    asked = [parsed for parsed in map(Requirement, proposal.cell.pip) if parsed.name in HAD]
    as_asked = {"opencv-python==3.2.0", "transformers~=4.4.2"} <= {*map(str, asked)}
    for parsed in asked:
        fitting = [version for version in HAD[parsed.name] if parsed.specifier.contains(version)]
        goes = [v for v in fitting if parsed.name != "transformers" or Version(v) >= Version("4.6.0")]
        if not fitting:
            return f"No solution found: Because there is no version of {parsed} and you require {parsed}"
        if not goes:
            said = f"Because torch==2.5.1 depends on transformers>=4.6 and you require {parsed}"
            return f"No solution found: {said}"
        if parsed.name == "umap-learn" and as_asked:
            return "No solution found: umap-learn has no usable wheels"
        wheels.append(Wheel(name=parsed.name, version=goes[-1], file="f", sha256="", size=1))
    return replace(proposal, wheels=len(wheels)), wheels


def test_what_gave_way_is_brought_back_as_near_as_it_goes(monkeypatch) -> None:
    monkeypatch.setattr(loosening, "solved", newest_that_goes)
    asked = demanded("torch==2.5.1", "umap-learn", "transformers~=4.4.2", "opencv-python==3.2.0")
    found = substitutes.nearest_demand(asked, Listed(HAD), {})
    assert found is not None
    assert {(one.instead, one.reason) for one in found.changes} == {
        ("opencv-python==3.2.0.8", "the index has no such release"),
        ("transformers==4.6.1", "torch==2.5.1 wants transformers>=4.6"),
    }
    assert {"opencv-python==3.2.0.8", "transformers==4.6.1", "umap-learn"} <= {*found.proposal.cell.pip}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("pandas==0.19.1 has no usable wheels and", "it has no wheel for that Python and system"),
        ("pandas==0.19.1 has no wheels with a matching Python ABI tag", "it has no wheel for that Python"),
        (
            "the requested Python does not satisfy and pandas==2.1 depends on Python>=3.9",
            "it wants Python>=3.9",
        ),
        ("pandas==0.19.1 depends on numpy>=1.7", "it wants numpy>=1.7"),
        ("seaborn==0.13 depends on pandas>=1.2,<3 and", "seaborn==0.13 wants pandas>=1.2,<3"),
        ("python-pandas==1 depends on my-pandas>=2", "the resolver finds no set of wheels with it"),
    ],
)
def test_of_the_resolvers_words_those_about_the_package_are_told(said: str, why: str) -> None:
    wish = demanded("torch", "pandas==0.19.1").companions[0]
    assert reason(f"No solution found when resolving\n Because {said}", wish).startswith(why)


def test_a_fault_in_every_proposal_is_no_lack_of_a_way(monkeypatch) -> None:
    def solved(*_asked, **_options):
        raise KeyError("cell")

    monkeypatch.setattr(loosening, "solved", solved)
    with pytest.raises(FaultError, match="unexpected KeyError"):
        changes("torch==2.5.1", "scipy")


@pytest.mark.usefixtures("resolver")
def test_a_refusal_says_what_would_do_and_nearest_takes_it(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(command.Index, "from_user", lambda **_kept: Listed())
    monkeypatch.setattr(proposing, "ask", lambda *_asked: {})
    options = {"driver": ["590"], "gpu": ["T4"]}
    with pytest.raises(CellError) as raised:
        called(command.resolve, ["torch==0.4.1"], **options)
    assert "what would do:" in raised.value.message
    assert "torch==1.0.1 in place of torch==0.4.1" in raised.value.message
    path = tmp_path / "old.yaml"
    assert called(command.resolve, ["torch==0.4.1"], **options, take_nearest=True, output=path) == 0
    assert path.read_text().startswith("# torch==1.0.1 in place of torch==0.4.1")
    assert load(path).cells[0].frameworks == ("torch==1.0.1",)
    assert "changed: torch==1.0.1" in capsys.readouterr().err


@pytest.mark.usefixtures("resolver")
def test_a_build_for_the_cpu_alone_is_one_for_gpus_instead(monkeypatch) -> None:
    monkeypatch.setattr(proposing, "prove", lambda found, *_asked: ([replace(found[0], wheels=3)], {}))
    monkeypatch.setattr(proposing, "brought", lambda *_asked: [])
    monkeypatch.setattr(command.Index, "from_user", lambda **_kept: Listed())
    monkeypatch.setattr(proposing, "ask", lambda *_asked: {})
    with pytest.raises(CellError, match=r"computes on the CPU alone[^$]*onnxruntime-gpu==1.18.0 in place of"):
        called(command.resolve, ["onnxruntime==1.18.0", "scipy"], gpu=["T4"], driver=["590"])


@pytest.mark.parametrize(
    ("texts", "brings", "framework"),
    [
        (("flax", "tensorflow-cpu"), ["jax"], "jax"),
        (("sentence-transformers", "onnxruntime==1.18.0"), ["torch"], "torch"),
        (("t5", "tensorflow-cpu"), ["jax", "tensorflow"], None),  # both would write the same files
        (("scipy", "tensorflow-cpu"), [], None),
        (("tensorflow-cpu",), ["jax"], None),
    ],
)
def test_a_build_for_the_cpu_alone_stays_beside_the_framework_that_the_rest_brings(
    monkeypatch, texts, brings, framework
) -> None:
    """tensorflow-cpu beside flax reads the data, and JAX is what computes."""
    monkeypatch.setattr(proposing, "brought", lambda *_asked: brings)
    asked = demanded(*texts)
    found = proposing._beside_cpu_builds(asked, Listed(), lambda _text: None)
    assert [wish.name for wish in found.frameworks] == ([framework] if framework else [])
    assert found.companions == asked.companions
    assert (
        proposing._beside_cpu_builds(asked, None, lambda _text: None) == asked
    )  # nobody read what it brings


def test_why_the_first_proposal_is_no_newer_release_is_said() -> None:
    """A silent index, and wheels that were refused, each with the release."""

    def on_a_card(text: str) -> Proposal:
        return search(demanded(text, gpus=("RTX3090",))).possible[0]

    first, silent = on_a_card("torch==2.9.1"), on_a_card("torch==2.14.1+cu126")
    against = {
        "files speak against it\nmore": on_a_card("torch==2.10.0"),
        "and old": on_a_card("torch==2.8.0"),
    }
    standing = [first, replace(silent, unasked="the host is unknown")]
    unread, refused = told_of.of_newer(standing, against)
    assert unread.startswith(
        "torch==2.14.1+cu126 is newer than the first below, and nobody read it here: the host"
    )
    url = "https://download.pytorch.org/whl/cu126"
    assert unread.endswith(f": pip install torch==2.14.1+cu126 --extra-index-url {url}")
    assert refused == "torch==2.10.0 is newer than the first below, and refused: files speak against it"


def test_where_a_builds_own_index_is_silent_the_default_index_has_the_release(monkeypatch) -> None:
    def solved(proposal, _index, _driver, **_options):
        if proposal.cell.index:
            return replace(proposal, unasked="https://index.example did not answer"), ()
        return newest_that_goes(proposal, None, None)

    monkeypatch.setattr(loosening, "solved", solved)
    marked = 'torchvision==0.20.1+cu121; sys_platform == "win32"'
    asked = demanded("torch==2.5.1+cu121", "transformers~=4.4.2", marked, index=("https://index.example",))
    found = substitutes.nearest_demand(asked, Listed(HAD), {})
    assert found is not None
    assert found.proposal.unasked is None
    assert [(one.instead, one.reason) for one in found.changes] == [
        ("torch==2.5.1", "https://index.example did not answer"),
        ("transformers==4.6.1", "torch==2.5.1 wants transformers>=4.6"),
    ]


def test_a_release_that_moves_for_the_sake_of_a_silent_index_says_so(monkeypatch) -> None:
    """CosyVoice: ONNX Runtime for CUDA 11 fits PyTorch 2.3 in the build of PyTorch's index alone."""

    def solved(proposal, _index, _driver, **_options):
        silent = "https://index.example did not answer" if "+" in str(proposal.cell.frameworks) else None
        return replace(proposal, unasked=silent), ()

    monkeypatch.setattr(loosening, "solved", solved)
    asked = demanded("onnxruntime-gpu==1.18.0", "torch==2.3.1")
    found = substitutes.nearest_demand(asked, Listed({}), {})
    assert found is not None
    assert found.proposal.unasked is None
    assert [one.reason for one in found.changes] == ["https://index.example did not answer"]


def test_a_release_that_the_rules_name_is_taken_and_not_left_out(monkeypatch) -> None:
    monkeypatch.setattr(loosening, "solved", lambda proposal, *_, **__: (replace(proposal, wheels=1), ()))
    found = substitutes.nearest_demand(demanded("torch==2.10.0", "torchcodec>=0.9.1"), Listed(), {})
    assert found is not None
    (change,) = found.changes
    assert str(change.instead).startswith("torchcodec==0.1")
    assert "libcudart.so.13" in change.reason


def test_companions_that_are_pinned_for_another_pytorch_move_with_it_and_none_is_left_out(
    monkeypatch,
) -> None:
    had = {
        "torchvision": ["0.16.0", "0.23.0"],
        "torchaudio": ["2.1.0", "2.8.0"],
        "xformers": ["0.0.22.post7", "0.0.32.post2"],
    }

    def solved(proposal, *_, **__):
        asked = [parsed for parsed in map(Requirement, proposal.cell.pip) if parsed.name in had]
        newest = [
            Wheel(name=one.name, version=had[one.name][-1], file="f", sha256="", size=1) for one in asked
        ]
        return replace(proposal, wheels=len(newest)), newest

    monkeypatch.setattr(loosening, "solved", solved)
    pins = ("torch==2.8.0", *(f"{name}=={versions[0]}" for name, versions in had.items()))
    found = substitutes.nearest_demand(demanded(*pins, python="3.11", driver="570"), Listed(had), {})
    assert found is not None
    assert {*found.proposal.cell.pip} == {f"{name}=={versions[-1]}" for name, versions in had.items()}


def clock(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    """A machine so loaded that ``step`` seconds go by between two looks at its clock."""
    now = itertools.count(0.0, step)
    slow = SimpleNamespace(monotonic=lambda: next(now))
    monkeypatch.setattr(substitutes, "time", slow)
    monkeypatch.setattr(loosening, "time", slow)
    monkeypatch.setattr(proving, "time", slow)


MANY = ("torch==2.5.1", "numpy<1.17", "triton==3.0.0", "scipy<1", "opencv-python<4", "protobuf", "nothing")


def test_the_way_out_does_not_depend_on_the_load_of_the_machine(monkeypatch, resolver) -> None:
    idle, questions = changes(*MANY), len(resolver)
    assert questions > 5
    clock(monkeypatch, 5.0)
    assert changes(*MANY) == idle
    assert len(resolver) == 2 * questions
    clock(monkeypatch, 1000.0)
    with pytest.raises(NotKnownError, match="unknown: stopped after 300 s"):
        changes(*MANY)


def test_which_proposals_stand_does_not_depend_on_the_load_of_the_machine(monkeypatch) -> None:
    """The resolver refuses twelve before one that stands, and is asked forty times at most."""
    demand = demanded("torch", python="3.12")
    proposals = search(demand).possible
    asked: list[object] = []

    def solved(proposal, _index, _driver, **_options):
        asked.append(proposal.cell)
        return (proposal, ()) if len(asked) > stands else f"refused {len(asked)}"

    monkeypatch.setattr(proving, "solved", solved)
    monkeypatch.setattr(proving, "page", lambda *_: ())
    clock(monkeypatch, 10.0)
    stands = 12
    found, refused = proving.prove(proposals, demand, object(), 1)
    assert (len(found), len(refused)) == (1, 12)
    asked.clear()
    stands = 10_000
    assert len(proposals) > proving.QUESTIONS
    assert len(proving.prove(proposals, demand, object(), 1)[1]) == len(asked) == proving.QUESTIONS
    clock(monkeypatch, 1000.0)
    with pytest.raises(NotKnownError, match="unknown: stopped after 300 s"):
        proving.prove(proposals, demand, object(), 1)


def a_wheel(name: str, version: str) -> Wheel:
    return Wheel(
        name=name, version=version, file=f"{name}-{version}-py3-none-any.whl", sha256="0" * 64, size=9
    )


def test_each_set_is_asked_what_the_versions_of_its_wheels_tell(monkeypatch) -> None:
    """Nobody read for which NumPy PaddlePaddle 2.6.2 was compiled: not of the first set alone."""
    demand = demanded("paddlepaddle-gpu==2.6.2")
    proposals = search(demand).possible
    newest = "2.4.6"

    def solved(one, *_, **__):
        numpy = "1.26.4" if "numpy<2" in one.cell.pip else newest
        return replace(one, wheels=1), (a_wheel("numpy", numpy),)

    monkeypatch.setattr(proving, "solved", solved)
    monkeypatch.setattr(proving, "page", lambda *_: ())
    monkeypatch.setattr(
        proving.ReadingCache, "read_set", lambda _, _cell, wheels, _index: Truth.of_lock(wheels, None)
    )

    class Anything:
        def with_extra(self, _urls):
            return self

    found, _ = proving.prove(proposals, demand, Anything(), 3)
    assert [(one.possible, "numpy<2" in one.cell.pip) for one in found] == [(True, True)] * 3
    monkeypatch.setattr(proving, "on_numpy_1", lambda _cell: None)
    found, _ = proving.prove(proposals, demand, Anything(), 3)
    assert [one.possible for one in found] == [False] * 3


def test_a_set_whose_files_speak_against_it_does_not_stand(monkeypatch) -> None:
    """Files of sets are read until one stands; of the later ones it is said that nobody asked."""
    demand = demanded("torch", python="3.12")
    proposals = search(demand).possible
    read: list[object] = []

    def read_set(_cache, cell, wheels, _index):
        read.append(cell)
        lacks = (
            Missing("taker", 1, "giver", "gone", root="taker", taker="taker", path="taker.py", giver="giver"),
        )
        return Truth(imports=lacks if len(read) in broken else (), unproven=unread)

    class Anything:
        def with_extra(self, _urls):
            return self

    monkeypatch.setattr(
        proving, "solved", lambda one, *_, **__: (replace(one, wheels=1), (a_wheel("taker", "1"),))
    )
    monkeypatch.setattr(proving, "page", lambda *_: ())
    monkeypatch.setattr(proving.ReadingCache, "read_set", read_set)
    broken, unread = {1, 2}, None
    found, refused = proving.prove(proposals, demand, Anything(), 2)
    assert [one.unproven for one in found] == [None, "the wheels of the first were read"]
    assert len(read) == 3
    assert len(refused) == 1
    assert next(iter(refused)).startswith(
        "the wheels that were resolved cannot work together (imports: taker imports gi"
    )
    read.clear()
    broken, unread = set(range(100)), None
    assert proving.prove(proposals, demand, Anything(), 2) == ([], refused)
    assert len(read) == proving.PROOFS
    with pytest.raises(
        NothingPossibleError,
        match=r"by the files of their wheels the packages do not go together:\n.*taker imports giver.gone",
    ):
        proposing._standing(demand, {}, Anything(), 2, rootfs=False)
    read.clear()
    broken, unread = set(), "giver was not read"
    found, _ = proving.prove(proposals, demand, Anything(), 10)
    assert [one.unproven for one in found] == [
        "giver was not read",
        *["the wheels of the first were read"] * 9,
    ]
    assert len(read) == 1


def test_of_packages_whose_files_speak_against_one_another_the_nearest_set_is_read(monkeypatch) -> None:
    demand, broken = demanded("torch==2.10.0", "taker"), proposing._BrokenSetError("nothing is possible")
    best = search(demanded("torch==2.10.0")).possible[0]
    way = loosening.Substitution(asked=demand.companions[0], instead="taker==1", reason="")
    read: list[object] = []

    def refused(*_args, **_options):
        raise broken

    def prove(proposals, *_args):
        read.extend(proposals)
        return stands, {}

    monkeypatch.setattr(proposing, "_served", refused)
    monkeypatch.setattr(proposing, "ask", lambda *_: {"torch": Offer(wheels={"2.10.0": ()})})
    monkeypatch.setattr(
        proposing, "nearest_demand", lambda *_: proposing.NearestDemand(changes=(way,), proposal=best)
    )
    monkeypatch.setattr(proposing, "prove", prove)
    asked = reading.from_arguments(["torch==2.10.0", "taker"]).merged()

    def answer():
        machine = proposing.AskedMachine()
        options = {"python": None, "limit": 1, "name": "a", "index": Listed(), "take_nearest": True}
        return proposing.propose(asked, machine, **options)

    stands = [replace(best, unproven=None)]
    assert [str(one) for one in answer().changes] == ["taker==1 in place of taker (as typed)"]
    assert read == [best]
    stands = []
    with pytest.raises(proposing._BrokenSetError):
        answer()


@pytest.mark.parametrize(
    ("told", "bound"),
    [
        ({"older": "0.36.2"}, "giver<=0.36.2"),
        ({"older": "0.36.2", "taker": OWN, "root": OWN}, "giver<=0.36.2"),
        ({"generated": "3.18.0"}, "giver<4"),
        ({"giver": "", "module": "pkg_resources"}, "setuptools<82"),
    ],
)
def test_what_a_newer_release_lost_is_taken_from_the_older_one_that_has_it(
    monkeypatch, told: dict[str, str], bound: str
) -> None:
    """gradio 4.41.0 takes huggingface_hub.HfFolder, and bounds huggingface-hub from below alone; so does
    tensorboardX 2.0 protobuf, which refuses its generated code from 4.21 on.
    """
    demand = demanded("torch", python="3.12")
    (proposal, *_) = search(demand).possible
    about = {"root": "taker", "taker": "taker", "path": "taker.py", "giver": "giver", **told}
    module = about.pop("module", None)
    gone = Missing("taker", 1, module or "giver", None if module else "gone", **about)

    class Anything:
        def with_extra(self, _urls):
            return self

    def read_set(_cache, cell, _wheels, _index):
        lacks = () if heeds and bound in cell.pip else (gone,)
        return Truth(imports=lacks, unproven=None)

    monkeypatch.setattr(
        proving,
        "solved",
        lambda one, *_, **__: (replace(one, wheels=1), (a_wheel("taker", "1"), a_wheel("giver", "5"))),
    )
    monkeypatch.setattr(proving, "page", lambda *_: ())
    monkeypatch.setattr(proving.ReadingCache, "read_set", read_set)
    heeds = True
    (found,), refused = proving.prove([proposal], demand, Anything(), 1)
    assert (found.cell.pip, found.unproven, refused) == ((*proposal.cell.pip, bound), None, {})
    heeds = False
    found, refused = proving.prove([proposal], demand, Anything(), 1)
    assert (found, len(refused)) == ([], 1)


@pytest.mark.parametrize(("onnx", "moves"), [("1.16.1", True), ("1.12.0", False)])
def test_a_reservation_less_is_taken_where_it_moves_one_package(onnx: str, moves: bool) -> None:
    def a_set(**versions: str) -> list[Wheel]:
        return [Wheel(name=name, version=one, file="", sha256="", size=0) for name, one in versions.items()]

    before = a_set(protobuf="5.29.6", onnx="1.16.1")
    assert proving._moves_one(before, a_set(protobuf="3.20.3", onnx=onnx)) is moves
    assert not proving._moves_one(before, before)


@pytest.mark.parametrize(
    ("more", "outcome"),
    [(False, Outcome.IMPOSSIBLE), (True, Outcome.IMPOSSIBLE), (False, Outcome.UNKNOWN)],
)
def test_a_library_of_the_system_is_written_into_apt_where_nothing_else_speaks_against_it(
    monkeypatch, more: bool, outcome: Outcome
) -> None:
    """opencv-python loads libGL: `rtbuild lock` refused what `rtbuild resolve` had proposed. Of one that a
    part alone needs, as torchcodec's for HEIC, nobody has to know whether the rest does without.
    """
    demand = demanded("torch", python="3.12")
    (proposal, *_) = search(demand).possible
    lacks = Finding(outcome, "loads libGL.so.1", rule="links", apt=("libgl1",))
    other = Finding(Outcome.IMPOSSIBLE, "another torch", rule="links")

    class Anything:
        def with_extra(self, _urls):
            return self

    def check(cell, _truth, **_options):
        return (*(() if "libgl1" in cell.apt else (lacks,)), *((other,) if more else ()))

    monkeypatch.setattr(
        proving, "solved", lambda one, *_, **__: (replace(one, wheels=1), (a_wheel("taker", "1"),))
    )
    monkeypatch.setattr(proving, "page", lambda *_: ())
    monkeypatch.setattr(proving.ReadingCache, "read_set", lambda *_: Truth(unproven=None))
    monkeypatch.setattr(proving, "check", check)
    found, refused = proving.prove([proposal], demand, Anything(), 1)
    assert [one.cell.apt for one in found] == ([] if more else [("libgl1",)])
    assert len(refused) == more


def test_an_index_that_does_not_answer_refuses_nothing(monkeypatch) -> None:
    """PyTorch's own index may be out of reach: the nearest is proposed by the rules, and that is said."""
    monkeypatch.setattr(loosening, "solved", lambda one, *_, **__: (replace(one, unasked="no answer"), ()))
    monkeypatch.setattr(silent_pages, "solved", loosening.solved)
    wanted = demanded("torch==1.5.0+cu101", "torchvision==0.6.0+cu101", gpus=("RTX4090",))
    found = substitutes.nearest_demand(wanted, Listed(), {})
    assert found is not None
    assert found.proposal.unasked == "no answer"
    assert all(change.reason for change in found.changes)
    assert str(found.changes[0]).startswith("torch==1.7.1+cu110 in place of torch==1.5.0+cu101")


def test_another_build_of_the_release_is_nearer_than_another_release() -> None:
    found = substitutes.nearest_demand(demanded("torch==1.10.0+cu110", gpus=("RTX3090",)), None, {})
    assert found is not None
    assert found.proposal.cell.frameworks[0].startswith("torch==1.10.0+cu11")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            ("because speech==0.10.1 depends on av==10.* and you require speech==0.10.1",),
            "it wants av==10.*, of which the index has only sources",
        ),
        (
            (
                "           depend on engine>=4.0, we can conclude that",
                "all versions of speech depend on engine>=4.0.",
            ),
            "each of its releases that could be had wants engine>=4.0",
        ),
    ],
)
def test_the_reason_is_what_the_resolver_says_of_that_package(lines: tuple[str, ...], said: str) -> None:
    message = "No solution found\nBecause av==10.0.0 has no usable wheels and\n" + "\n".join(lines)
    (wish,) = reading.from_arguments(["speech"]).wishes
    assert reason(message, wish) == said


def test_a_companion_that_nobody_read_moves_with_its_pytorch(monkeypatch) -> None:
    """torchvision 0.8.2 pins torch==1.7.1 in its own metadata; 0.3.0 asks for any from 1.1.0 on."""
    monkeypatch.setattr(loosening, "solved", lambda one, *_, **__: (replace(one, unasked="no answer"), ()))
    monkeypatch.setattr(silent_pages, "solved", loosening.solved)
    wanted = demanded("torch==1.1.0", "torchvision==0.3.0", "torchtext==0.3.1", gpus=("RTX3090",))
    found = substitutes.nearest_demand(wanted, Listed(), {})
    assert found is not None
    assert [one.instead for one in found.changes] == [
        "torch==1.7.1+cu110",
        "torchvision==0.8.2",
        "torchtext==0.8.1",
    ]
    assert found.proposal.possible
    assert {"torchvision==0.8.2", "torchtext==0.8.1"} <= {*found.proposal.cell.pip}


def test_a_way_that_changes_nothing_says_why_nobody_calls_it_possible() -> None:
    """As of a build with CUDA beside it whose libraries nobody read."""
    cell = search(demanded("torch==2.5.1"), enough=1).possible[0].cell
    open_ = Finding(Outcome.UNKNOWN, "the libraries of torchcodec were not read", ())
    told = told_of.with_way(NothingPossibleError("no"), [], Proposal(cell=cell, findings=(open_,)))
    _, way, by_pip, check = told.message.splitlines()
    assert way.startswith(f"what nothing refuses: {', '.join(cell.frameworks)} on Python {cell.python}")
    assert way.endswith(": the libraries of torchcodec were not read")
    assert by_pip.startswith(f"  by pip, on Python {cell.python}: pip install torch==2.5.1")
    assert check.startswith("  to check it: python -c ")


def test_the_line_of_a_project_to_change_and_a_retired_name_are_told() -> None:
    mine, place = "https://download.pytorch.org/whl/cu128", "pyproject.toml, [[tool.uv.index]] 'pytorch'"
    demand = demanded("torch~=2.8.0", gpus=("6.1",), driver="580.95.05")
    (best, *_) = search(demand, enough=1).possible
    (note,) = told_of.of_indexes({mine: place}, best, demand)
    assert note.startswith(f"{place} names {mine}: ")
    assert "6.1" in note
    assert note.endswith("; put https://download.pytorch.org/whl/cu126 there")
    assert not list(told_of.of_indexes({mine.replace("cu128", "cu126"): place}, best, demand))
    for text, said in (
        ("tensorflow-gpu==2.6.2", "tensorflow==2.6.2 is the same, with CUDA"),
        ("tensorflow-gpu==1.14.0", "tensorflow==1.14.0 was built without CUDA; later ones have it"),
        ("tensorflow==2.6.2", ""),
    ):
        demand = demanded(text)
        notes = list(told_of.of_retired(search(demand, enough=1).possible[0], demand))
        assert [note.endswith(said) for note in notes] == [True] * bool(said)


def test_where_a_wheel_is_lacked_no_python_is_asked_that_can_be_no_nearer(
    monkeypatch: pytest.MonkeyPatch, resolver: list[tuple[str, ...]]
) -> None:
    asked: list[str] = []
    (demand, (best, *_)) = (demanded("torch==2.3.1"), search(demanded("torch==2.3.1")).possible)
    ways = [
        (replace(best, cell=replace(best.cell, python=python)), n)
        for python, n in (("3.8", 0), ("3.9", 1), ("3.10", 1), ("3.11", 0))
    ]

    def loosened(proposal: Proposal, **_: object) -> loosening.NearestDemand:
        asked.append(proposal.cell.python)
        change = loosening.Substitution(asked=demand.frameworks[0], instead=None)
        return loosening.NearestDemand(changes=(change,), proposal=proposal)

    monkeypatch.setattr(substitutes, "_one_for_each_python", lambda *_: ways)
    monkeypatch.setattr(substitutes, "loosened", loosened)
    told: list[str] = []
    sources = substitutes._Sources(index=None, available={}, until=0.0, note=told.append)
    assert substitutes._way((demand, []), sources, lambda _: True) is not None
    assert sorted(asked) == ["3.11", "3.8", "3.9"]


BOTH = (
    "opencv-contrib-python-headless and opencv-python-headless (albumentations 1.3.0 wants it) write the "
    "same files (cv2/__init__.py): an image has one of them. Keep opencv-contrib-python-headless: contrib has"
)


def test_of_two_that_write_the_same_files_the_one_that_can_go_goes() -> None:
    mine = loosening.written_twice(BOTH, ["opencv-python-headless", "albumentations"])
    assert list(mine) == ["opencv-python-headless"]
    (why,) = loosening.written_twice(BOTH, ["opencv-contrib-python-headless", "albumentations"]).values()
    assert "another package brings opencv-python-headless" in why
    assert "`pip install --force-reinstall --no-deps opencv-contrib-python-headless`" in why
    assert loosening.written_twice(BOTH, ["albumentations"]) == {}


def test_what_compiles_cuda_code_is_told_nvcc_an_image_and_the_cards_architecture() -> None:
    demand = demanded("torch==2.8.0", gpus=("RTX5080",))
    best = search(demand).possible[0]
    asked = reading.Wishes(
        sources=[("./kernels", "Dockerfile:4", False)],
        compiling=[
            ("architectures", "7.5 8.6+PTX", "Dockerfile:2"),
            ("architectures", "12.0", "Dockerfile:3"),
            ("nvcc", "12.1.1", "Dockerfile:5"),
            ("run", "torch.utils.cpp_extension.load", "ops.py"),
        ],
    )
    first, run, listed, nvcc = told_of.of_sources(asked, best, demand)
    for said in (
        "nvcc of CUDA 12.8",
        "FROM nvidia/cuda:12.8.",
        "-devel-ubuntu24.04",
        "TORCH_CUDA_ARCH_LIST='12.0'",
        "submodule",
    ):
        assert said in first
    assert "ops.py: torch.utils.cpp_extension.load compiles CUDA code as it runs, by nvcc of CUDA 12.8" in run
    assert "a gcc of at most 14 (CC=gcc-14 CXX=g++-14)" in run
    assert listed.startswith("Dockerfile:2: TORCH_CUDA_ARCH_LIST='7.5 8.6+PTX' has no 12.0 (RTX5080)")
    assert "Dockerfile:5: nvcc of CUDA 12.1.1 beside a PyTorch for CUDA 12.8" in nvcc
    assert list(told_of.of_sources(reading.Wishes(), best, demand)) == []


def test_cuda_code_of_a_projects_own_takes_nvcc_on_the_system() -> None:
    """VoteNet's pointnet2/setup.py; that nothing but the driver is needed was said of it."""
    demand = demanded("torch==2.8.0", gpus=("RTX5080",))
    best = search(demand).possible[0]
    asked = reading.Wishes(compiling=[("install", "CUDAExtension", "ops/setup.py")])
    (told,) = told_of.of_sources(asked, best, demand)
    assert told.startswith("ops/setup.py: CUDA code of the project's own")
    assert "nvcc of CUDA 12.8, which -base and -runtime images lack" in told
    system = next(one.text for one in told_of.notes_on([best], demand, asked) if one.kind == "system")
    assert "nvcc of CUDA 12.8 to compile ops/setup.py" in system
    assert "neither" not in system


@pytest.mark.parametrize(
    ("listed", "known"),
    [(["sm_80", "compute_80"], True), (["sm_75"], False), (["sm_90"], False), (None, False)],
)
def test_gpu_code_that_no_table_knows_is_read_from_the_wheel(monkeypatch, listed, known) -> None:
    demand = demanded("torch==2.8.0", gpus=("RTX3060",))
    best = search(demand).possible[0]
    text = "whether torchvision 0.14.1 has code for RTX3060 (8.6) is not known: it is older"
    open_ = Finding(Outcome.UNKNOWN, text, rule="package-gpu")
    best = replace(best, cell=replace(best.cell, pip=("torchvision==0.14.1",)), findings=(open_,))
    python = f"cp{best.cell.python.replace('.', '')}"
    names = (
        f"torchvision-0.14.1-{python}-{python}-macosx_11_0_arm64.whl",
        f"torchvision-0.14.1-{python}-{python}-manylinux1_x86_64.whl",
        f"torchvision-0.15.0-{python}-{python}-manylinux1_x86_64.whl",
    )
    files = [IndexFile(name=name, url=f"https://index.example/{name}", sha256=None) for name in names]
    index, read = SimpleNamespace(offers=lambda _name: files, client=None), []

    def read_package(file, _client):
        read.append(file.name)
        return SimpleNamespace(values={"architectures": listed})

    monkeypatch.setattr(told_of, "read_package", read_package)
    found = told_of.with_code_read(best, demand, index, lambda _text: None)
    assert read == [names[1]]
    assert found.possible is known
    assert (open_ in found.findings) is not known


def test_the_nearest_set_is_one_that_the_driver_serves_itself() -> None:
    """With cuda-compat in an image the newest torch would do, too; nobody installs that by pip."""
    asked = demanded("torch==2.11.0", "onnxruntime-gpu==1.31.1", gpus=("T4",), driver="535.216")
    found = substitutes.nearest_demand(asked, None, {})
    assert found is not None
    assert "onnxruntime-gpu[cuda,cudnn]==1.26.0" in found.proposal.cell.frameworks
    assert by_compat(found.proposal.findings) is None
    old = demanded("torch==2.15.0", gpus=("T4",), driver="535.216")
    other = substitutes.nearest_demand(old, None, {})
    assert other is not None
    assert by_compat(other.proposal.findings) is None


def test_nvidias_build_is_no_answer_to_what_another_framework_lacks() -> None:
    """TensorFlow 1.13 runs on an RTX 2080 Ti; it is CuPy that has no such release."""
    frameworks, _ = split(reading.from_arguments(["tensorflow-gpu==1.2.0", "cupy==2.0.0"]), None, None)
    demand = Demand(frameworks=frameworks, companions=(), gpus=("RTX2080-Ti",), driver="450.119")
    available = {"tensorflow-gpu": ("1.13.2", "1.14.0"), "cupy": ("4.0.0",)}
    problem = NothingPossibleError("nothing is possible for cupy==2.0.0")
    assert refused_for_vendor(problem, demand, available, None, lambda _text: None) is None
    found = refused_for_vendor(problem, demand, {"tensorflow-gpu": ("1.2.0",)}, None, lambda _text: None)
    assert found is not None


@pytest.mark.usefixtures("resolver")
@pytest.mark.parametrize("nearest", [False, True])
def test_a_release_that_the_sources_do_not_run_with_is_no_way_and_nvidias_build_is(
    monkeypatch, tmp_path, nearest: bool
) -> None:
    """https://github.com/alexanderkroner/saliency/issues/25: TensorFlow 1 on an RTX 3090."""
    monkeypatch.setitem(VERSIONS, "numpy", "1.18.5")
    monkeypatch.setattr(command.Index, "from_user", lambda **_kept: Listed())
    monkeypatch.setattr(proposing, "ask", lambda *_asked: {})
    (tmp_path / "train.py").write_text("import tensorflow as tf\nx = tf.contrib.rnn\n")
    (tmp_path / "requirements.txt").write_text("tensorflow\nnumpy==1.14.0\nopencv-python==4.8.0\nnothing\n")
    with pytest.raises(NothingPossibleError) as caught:
        called(
            command.resolve,
            [],
            requirement_file=[tmp_path],
            gpu=["RTX 3090"],
            driver=["535.183.01"],
            take_nearest=nearest,
        )
    first, lead, by_pip, *rest = caught.value.message.splitlines()
    assert first.startswith("no build of TensorFlow 1 on the package indexes runs on RTX3090, which the code")
    assert "train.py:2 uses tensorflow.contrib" in first
    assert lead.startswith("what would do: NVIDIA's own build of TensorFlow 1.15.5, for CUDA 12.1")
    assert "&& pip install 'numpy<1.19.0,>=1.16.0' opencv-python" in by_pip
    assert "tensorflow==2" not in caught.value.message
    assert any("without nothing (" in line for line in rest)
    assert any("NVIDIA's container of it for CUDA 12.0: `docker pull nvcr.io" in line for line in rest)
    assert any("tensorflow:23.01-tf1-py3`" in line for line in rest)
    # its wheel's page does not name Hopper: the container alone
    with pytest.raises(NothingPossibleError) as caught:
        called(command.resolve, [], requirement_file=[tmp_path], gpu=["H100"], driver=["535.183.01"])
    assert "in its container: `docker pull nvcr.io/nvidia/tensorflow:23.01-tf1-py3`" in caught.value.message
    assert "nvidia-pyindex" not in caught.value.message
    # not for a card that its CUDA does not know, nor on a driver that is older than its CUDA asks for
    for card, driver in (("RTX 5090", "575.64.03"), ("RTX 3090", "460.32.03")):
        with pytest.raises(NothingPossibleError) as caught:
            called(command.resolve, [], requirement_file=[tmp_path], gpu=[card], driver=[driver])
        told = caught.value.message
        assert ("22.12-tf1-py3" in told) is (driver == "460.32.03")
        assert "23.01-tf1-py3" not in told
        assert "tensorflow==2" not in told


@pytest.mark.usefixtures("resolver")
def test_what_a_dockerfile_alone_names_gives_way_without_a_refusal(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(command.Index, "from_user", lambda **_kept: Listed())
    monkeypatch.setattr(proposing, "ask", lambda *_asked: {})
    (tmp_path / "requirements.txt").write_text("torch>=1.1\nnumpy\n")
    (tmp_path / "Dockerfile").write_text("FROM ubuntu\nRUN pip install torch==1.6.0\n")
    options = {"requirement_file": [tmp_path], "gpu": ["A100"], "driver": ["535"]}
    assert called(command.resolve, [], **options) == 0
    said = capsys.readouterr().err
    assert "possible: torch==1." in said.splitlines()[-1] or "\npossible: torch==1." in f"\n{said}"
    assert "in place of torch==1.6.0,>=1.1" in said
    (tmp_path / "requirements.txt").write_text("torch==1.6.0\nnumpy\n")
    with pytest.raises(NothingPossibleError, match="not possible as asked") as caught:
        called(command.resolve, [], **options)
    lines = caught.value.message.splitlines()
    assert [line.partition(":")[0].strip() for line in lines[1:4]] == [
        "what would do",
        "by pip, on Python 3.9",
        "on the system",
    ]


@pytest.mark.usefixtures("resolver")
def test_of_two_lines_under_other_markers_each_is_kept(monkeypatch) -> None:
    asked = reading.from_arguments(
        ["torch", "numpy<2.1,>=2.0.2; python_version<'3.13'", "numpy<2.3,>=2.1; python_version>='3.13'"]
    )
    frameworks, companions = split(asked)
    demand, changes_ = proposing._by_other_names(Demand(frameworks=frameworks, companions=companions))
    assert changes_ == []
    assert [str(wish) for wish in demand.companions] == [str(wish) for wish in asked.wishes[1:]]


def test_what_compiling_a_package_takes_on_the_system_is_a_line_to_type() -> None:
    (line,) = native_code.of_compiled(["mpi4py==4.0.3", "pyaudio", "fire==0.1", "git+https://x/y", "/tmp"])
    assert line.startswith(
        "to compile mpi4py, pyaudio, on the system: Debian and Ubuntu `sudo apt-get install"
    )
    assert "build-essential libopenmpi-dev portaudio19-dev`" in line
    assert "gcc-c++ openmpi-devel portaudio-devel`" in line
    assert "RHEL's repositories have was not read" in line
    assert "mpi4py: on Fedora `module load mpi/openmpi-$(arch)` first" in line
    (line,) = native_code.of_compiled(["av==14.0.1", "mysqlclient==2.2.4"])
    assert "mariadb-connector-c-devel pkgconf-pkg-config`" in line  # pkgconf alone brings no pkg-config
    assert "FFmpeg 6 with av 13" in line
    assert [*native_code.of_compiled(["fire==0.1"])] == []


def test_what_a_rule_refuses_of_a_set_gets_the_bound_that_the_rule_names() -> None:
    """As `rtbuild lock` resolves again: gensim 4.3.2 beside SciPy 1.13, which nothing in the demand names."""
    (proposal, *_) = search(demanded("torch", python="3.12")).possible
    finding = Finding(
        Outcome.IMPOSSIBLE, "they fail", rule="known-bad", bounds=("scipy<1.13", "gensim>=4.3.3")
    )
    there = (a_wheel("scipy", "1.13.0"), a_wheel("gensim", "4.3.2"))
    bound = proving._bounded(proposal, (finding,), there)
    assert bound is not None
    assert "scipy<1.13" in bound.cell.pip
    assert bound.added[-1] == "scipy<1.13: they fail"
    assert proving._bounded(proposal, (finding,), there[1:]).cell.pip[-1] == "gensim>=4.3.3"  # type: ignore[union-attr]
    asked = replace(proposal, cell=replace(proposal.cell, pip=("scipy==1.13.0", "gensim==4.3.2")))
    assert proving._bounded(asked, (finding,), there) is None
    assert proving._bounded(proposal, (replace(finding, outcome=Outcome.WARNS),), there) is None
