"""What would do in place of requirements that nothing meets: near, tried, and said one by one."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from rtbuild_command import called

from builder.cli.commands import resolve as command
from builder.core.errors import CellError, FaultError, NotKnownError
from builder.core.model import Wheel
from builder.plan.matrix import load
from builder.plan.resolve import proof, proposing, substitutes
from builder.plan.resolve import requirements as reading
from builder.plan.resolve.solve import Demand, search, split

VERSIONS = {"numpy": "1.19.5", "triton": "3.1.0", "opencv-python": "4.8.0", "scipy": "1.7.3"}


def demanded(*texts: str, **options) -> Demand:
    frameworks, companions = split(reading.from_arguments(texts))
    return Demand(frameworks=frameworks, companions=companions, **options)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """A resolver's double that has one version of each package; what it was asked."""
    asked: list[tuple[str, ...]] = []

    def solved(proposal, _index, _driver):
        asked.append(proposal.cell.pip)
        wheels = []
        for parsed in map(Requirement, proposal.cell.pip):
            version = VERSIONS.get(parsed.name)
            if version is None and parsed.name not in {"protobuf", "setuptools"}:
                return f"Because {parsed.name} was not found in the package registry, nothing can be done"
            if version is not None and not parsed.specifier.contains(version):
                return f"Because {parsed} has no wheels with a matching Python ABI tag"
            wheels.append(Wheel(name=parsed.name, version=version or "1", file="f", sha256="", size=1))
        return replace(proposal, wheels=len(wheels)), wheels

    monkeypatch.setattr(substitutes, "solved", solved)
    return asked


def changes(*texts: str, **options) -> list[str]:
    found = substitutes.nearest(demanded(*texts, **options), object(), {})
    assert found is not None
    return [str(change) for change in found.changes]


@pytest.mark.usefixtures("resolver")
def test_a_framework_moves_to_the_nearest_release_and_a_clash_follows() -> None:
    first, *others = changes("tensorflow==1.5", "numpy<1.17", "scipy", gpus=("T4",))
    assert first.startswith("tensorflow==2.4.4 in place of tensorflow==1.5 (the command line)")
    assert first.endswith("another major version, so code may need changes")
    assert others == ["numpy==1.19.5 in place of numpy<1.17 (the command line)"]
    (only,) = changes("torch==0.4.1")
    assert only.startswith("torch==1.0.1 in place of torch==0.4.1 (the command line)")


@pytest.mark.usefixtures("resolver")
def test_one_framework_under_two_names_is_taken_once() -> None:
    first, second = changes("tensorflow==1.15.0", "tensorflow-gpu==1.15.0", "numpy")
    assert first == "without tensorflow-gpu==1.15.0 (the command line): tensorflow writes the same files"
    assert second.startswith("tensorflow==2.4.4 in place of tensorflow==1.15.0 (the command line)")


@pytest.mark.usefixtures("resolver")
def test_only_what_has_to_changes() -> None:
    assert changes("torch==2.5.1", "triton==3.0.0", "scipy>=1.2") == [
        "triton==3.1.0 in place of triton==3.0.0 (the command line)"
    ]
    assert changes("torch==2.5.1", "nowhere==1.0") == ["without nowhere==1.0 (the command line)"]
    assert changes("torch==2.5.1", "scipy") == []


def test_a_mistaken_name_is_the_one_that_is_meant(resolver: list[tuple[str, ...]]) -> None:
    assert changes("torch==2.5.1", "opencv==4.1") == [
        "opencv-python==4.8.0 in place of opencv==4.1 (the command line)"
    ]
    assert all("opencv" not in pip for pip in resolver)


def test_a_fault_in_every_proposal_is_no_lack_of_a_way(monkeypatch) -> None:
    def solved(*_asked):
        raise KeyError("cell")

    monkeypatch.setattr(substitutes, "solved", solved)
    with pytest.raises(FaultError, match="unexpected KeyError"):
        changes("torch==2.5.1", "scipy")


@pytest.mark.usefixtures("resolver")
def test_a_refusal_says_what_would_do_and_nearest_takes_it(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(command.Index, "from_user", lambda **_kept: object())
    monkeypatch.setattr(proposing, "ask", lambda *_asked: {})
    options = {"driver": "590", "gpu": ["T4"]}
    with pytest.raises(CellError) as raised:
        called(command.resolve, ["torch==0.4.1"], **options)
    assert "what would do:" in raised.value.message
    assert "torch==1.0.1 in place of torch==0.4.1" in raised.value.message
    path = tmp_path / "old.yaml"
    assert called(command.resolve, ["torch==0.4.1"], **options, take_nearest=True, output=path) == 0
    assert path.read_text().startswith("# torch==1.0.1 in place of torch==0.4.1")
    assert load(path).cells[0].frameworks == ("torch==1.0.1",)
    assert "nearest: torch==1.0.1" in capsys.readouterr().err


@pytest.mark.usefixtures("resolver")
def test_a_build_for_the_cpu_alone_is_one_for_gpus_instead(monkeypatch) -> None:
    monkeypatch.setattr(proposing, "prove", lambda found, *_asked: ([replace(found[0], wheels=3)], []))
    monkeypatch.setattr(command.Index, "from_user", lambda **_kept: object())
    monkeypatch.setattr(proposing, "ask", lambda *_asked: {})
    with pytest.raises(CellError, match=r"computes on the CPU alone[^$]*onnxruntime-gpu==1.18.0 in place of"):
        called(command.resolve, ["onnxruntime==1.18.0", "scipy"], gpu=["T4"], driver="590")


def clock(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    """A machine so loaded that ``step`` seconds go by between two looks at its clock."""
    now = itertools.count(0.0, step)
    slow = SimpleNamespace(monotonic=lambda: next(now))
    monkeypatch.setattr(substitutes, "time", slow)
    monkeypatch.setattr(proof, "time", slow)


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

    def solved(proposal, _index, _driver):
        asked.append(proposal.cell)
        return (proposal, ()) if len(asked) > stands else f"refused {len(asked)}"

    monkeypatch.setattr(proof, "solved", solved)
    monkeypatch.setattr(proof, "page", lambda *_: ())
    clock(monkeypatch, 10.0)
    stands = 12
    found, refused = proof.prove(proposals, demand, object(), 1)
    assert (len(found), len(refused)) == (1, 12)
    asked.clear()
    stands = 10_000
    assert len(proposals) > proof.QUESTIONS
    assert len(proof.prove(proposals, demand, object(), 1)[1]) == len(asked) == proof.QUESTIONS
    clock(monkeypatch, 1000.0)
    with pytest.raises(NotKnownError, match="unknown: stopped after 300 s"):
        proof.prove(proposals, demand, object(), 1)
