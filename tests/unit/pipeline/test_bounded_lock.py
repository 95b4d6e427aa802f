"""A lock is resolved again with the bound that a rule names, where the cell leaves the resolver free to."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from lock_values import lock_cell, lock_pinned, lock_wheel
from packaging.requirements import Requirement

from builder.core.errors import CellError, NoSolutionError
from builder.core.model import Base, Cell, Cuda, Pinned
from builder.pipeline import stages
from builder.plan.facts.reading import Truth
from builder.plan.facts.rules.checking import check

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from builder.plan.facts.rules.finding import Finding

OFFERED = {
    "torch": ("1.13.1",),
    "tensorflow": ("2.11.0",),
    "numpy": ("2.2.6", "1.26.4"),
    "protobuf": ("6.30.0", "3.20.3"),
    "torchvision": ("0.16.2",),
    "setuptools": ("82.0.0", "69.5.1"),
    "packaging": ("25.0",),
}
BRINGS = {
    "torch": ("numpy",),
    "tensorflow": ("numpy", "protobuf"),
    "torchvision": ("torch", "numpy", "setuptools"),
}


def cell(framework: str, *pip: str, **changes: object) -> Cell:
    return lock_cell(
        "c",
        frameworks=(framework,),
        pip=pip,
        python="3.10",
        cuda=Cuda(provider="none"),
        base=Base(kind="rootfs", name="debian/bookworm"),
        **changes,
    )


class Lock:
    """A double of a run's context with a resolver of some releases, and the notes of ``lock``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, needs: Sequence[str] = ()) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.previous: list[Pinned | None] = []
        self.notes: list[str] = []
        self.needs = tuple(needs)
        self.folder = folder
        monkeypatch.setattr("builder.plan.lock.pin", self.pin, raising=False)
        monkeypatch.setattr(stages, "judge_set", self.judge)

    def pin(self, one: Cell, *, previous: Pinned | None, **_: object) -> Pinned:
        self.asked.append(one.pip)
        self.previous.append(previous)
        parsed = [*map(Requirement, (*one.frameworks, *one.pip, *self.needs))]
        names = {parsed.name for parsed in parsed} - {Requirement(text).name for text in self.needs}
        names |= {name for top in tuple(names) for name in BRINGS.get(top, ())}
        wheels = []
        for name in sorted(names):
            mine = [each.specifier for each in parsed if each.name == name]
            fit = [v for v in OFFERED[name] if all(specifier.contains(v) for specifier in mine)]
            if not fit:
                raise NoSolutionError(f"no {name} meets all of it")
            wheels.append(lock_wheel(name, fit[0]))
        return replace(lock_pinned(one), cell=one, wheels=tuple(wheels))

    def judge(self, _run: object, _context: object, pinned: Pinned) -> tuple[Finding, ...]:
        rules = ("known-bad", "numpy", "package-numpy", "same-files")
        return check(pinned.cell, Truth.of_lock(pinned.wheels, None), only=rules)

    def run(self, one: Cell, before: Pinned | None = None, **options: object) -> Pinned:
        run = SimpleNamespace(
            cell=one,
            progress=lambda *_, **__: None,
            note=lambda text, **_: self.notes.append(text),
            span=lambda _name: contextlib.nullcontext(),
        )
        sources = SimpleNamespace(
            index=None, registry=None, debian=None, workshop=lambda _: None, pythons=None, mirrors={}
        )
        context = SimpleNamespace(sources=sources, stores=SimpleNamespace(cache=self.folder))
        options = {"upgrade": False, "refuse": True} | options
        return stages.resolve_set(run, context, before, **options)  # type: ignore[arg-type]


def versions(pinned: Pinned) -> dict[str, str]:
    return {wheel.name: wheel.version for wheel in pinned.wheels}


def test_what_nobody_asked_for_gets_the_bound_that_the_rule_names(monkeypatch, tmp_path) -> None:
    """https://github.com/pytorch/pytorch/issues/107302"""
    lock, one = Lock(monkeypatch, tmp_path), cell("torch==1.13.1")
    pinned = lock.run(one)
    assert versions(pinned) == {"torch": "1.13.1", "numpy": "1.26.4"}
    assert pinned.cell == one, "the lock is of the cell as the matrix has it"
    ((bound, why),) = pinned.added
    assert bound == "numpy<2"
    assert why.startswith("known-bad: torch-numpy-2: ")
    assert lock.notes == [f"resolved with numpy<2, which the matrix does not ask for: {why}"]
    assert lock.previous[1] is not None, "the rest stays as it was resolved"


def test_two_rules_in_turn(monkeypatch, tmp_path) -> None:
    """https://github.com/tensorflow/tensorflow/issues/56266"""
    pinned = Lock(monkeypatch, tmp_path).run(cell("tensorflow==2.11.0"))
    assert versions(pinned) == {"tensorflow": "2.11.0", "numpy": "1.26.4", "protobuf": "3.20.3"}
    assert sorted(text for text, _ in pinned.added) == ["numpy<2", "protobuf<3.21"]


@pytest.mark.parametrize(
    ("pip", "needs"), [(("numpy==2.2.6",), ()), (("numpy>=2",), ()), ((), ("numpy>=2",))]
)
def test_what_is_asked_for_stands(monkeypatch, tmp_path, pip, needs) -> None:
    """By the matrix, or by the packages themselves."""
    lock = Lock(monkeypatch, tmp_path, needs)
    with pytest.raises(
        CellError, match=r"cannot work together \(known-bad: torch-numpy-2: .*Remedy: numpy<2"
    ):
        lock.run(cell("torch==1.13.1", *pip))
    assert lock.notes == []


def test_a_bound_joins_the_one_that_the_matrix_has(monkeypatch, tmp_path) -> None:
    lock = Lock(monkeypatch, tmp_path)
    assert versions(lock.run(cell("torch==1.13.1", "numpy>=1.20")))["numpy"] == "1.26.4"
    assert [Requirement(text).specifier for text in lock.asked[1]] == ["<2,>=1.20"]


def test_a_list_of_packages_is_taken_as_it_is(monkeypatch, tmp_path) -> None:
    lock = Lock(monkeypatch, tmp_path)
    with pytest.raises(CellError, match="known-bad: torch-numpy-2"):
        lock.run(cell("torch==1.13.1", "numpy", dependencies="listed"))
    assert len(lock.asked) == 1


def test_who_builds_although_it_is_refused_gets_what_was_resolved(monkeypatch, tmp_path) -> None:
    lock = Lock(monkeypatch, tmp_path)
    assert versions(lock.run(cell("torch==1.13.1"), refuse=False))["numpy"] == "2.2.6"
    assert {note.partition(":")[0] for note in lock.notes} == {"known-bad", "numpy"}


def test_another_name_of_the_framework_is_not_added_beside_it(monkeypatch, tmp_path) -> None:
    """A row on tensorflow is met by tensorflow-cpu, and a bound on tensorflow would install both."""
    monkeypatch.setitem(OFFERED, "tensorflow-cpu", ("2.16.1",))
    monkeypatch.setitem(OFFERED, "tf-agents", ("0.19.0",))
    lock = Lock(monkeypatch, tmp_path)
    with pytest.raises(CellError, match="tf-agents-keras-3"):
        lock.run(cell("tensorflow-cpu==2.16.1", "tf-agents"))
    assert len(lock.asked) == 1


def test_a_new_resolution_asks_again_whether_a_bound_is_needed(monkeypatch, tmp_path) -> None:
    lock = Lock(monkeypatch, tmp_path)
    before = lock.run(cell("torch==1.13.1"))
    assert lock.run(cell("torch==1.13.1", "packaging"), before).added == before.added
    monkeypatch.setitem(OFFERED, "torch", ("2.6.0",))
    moved = lock.run(cell("torch==2.6.0"), before)
    assert (versions(moved)["numpy"], moved.added) == ("2.2.6", ())


def test_a_bound_stays_where_only_others_are_to_move(monkeypatch, tmp_path) -> None:
    lock = Lock(monkeypatch, tmp_path)
    before = lock.run(cell("torch==1.13.1", "packaging"))
    after = lock.run(before.cell, before, upgrade=frozenset({"packaging"}))
    assert after.added == before.added
    assert "numpy<2" in lock.asked[-1]


def test_check_without_a_lock_tells_what_lock_adds() -> None:
    """And refuses what the matrix asks for."""
    for pip, outcome in (("numpy", "warns"), ("numpy==2.2.6", "impossible"), ("numpy>=2", "impossible")):
        found = [one for one in check(cell("torch==1.13.1", pip)) if one.rule in {"numpy", "known-bad"}]
        assert {one.outcome.value for one in found} == {outcome}, pip
        assert (outcome == "warns") == any(
            "`rtbuild lock` resolves with numpy<2" in one.message for one in found
        )
