"""``check`` accepts what ``resolve`` and ``init`` propose: of every framework, for each kind of machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from foreign_input import typed
from packaging.requirements import Requirement

from builder.core.versions import key
from builder.plan.facts.rules.candidates import choices
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import Outcome
from builder.plan.facts.tables.loader import load
from builder.plan.matrix import load as load_matrix
from builder.plan.resolve import wishes as reading
from builder.plan.resolve.solve import Demand, search, split, to_matrix_yaml

if TYPE_CHECKING:
    from pathlib import Path

MACHINES = (
    {},
    {"gpus": ("T4",), "driver": "535.183.01"},
    {"gpus": ("K80",), "driver": "470.256.02"},
    {"gpus": ("RTX 5090",), "driver": "580.95.05"},
    {"gpus": ("V100", "H100"), "driver": "560.35.03"},
    {"python": "3.10"},
)


def _releases() -> list[str]:
    """The first and the last release of each framework, under each of its names, and one between."""
    found = []
    for table in load().frameworks.values():
        names = sorted({row.distribution for row in table.rows})
        for name in names:
            versions = sorted(sorted({r.version for r in table.rows if r.distribution == name}), key=key)
            chosen = dict.fromkeys((versions[0], versions[len(versions) // 2], versions[-1]))
            texts = [f"{name}=={version}" for version in chosen]
            found += [text for text in texts if any(choices(Requirement(text)))]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("text", _releases())
def test_check_accepts_what_is_proposed_and_says_the_same_of_it(text: str, tmp_path: Path) -> None:
    frameworks, companions = split(reading.from_arguments((text,)))
    for number, machine in enumerate(MACHINES):
        demand = Demand(frameworks=frameworks, companions=companions, **machine)
        proposed = search(demand).possible[:3]
        if not proposed:
            continue
        path = tmp_path / f"m{number}.yaml"
        path.write_text(to_matrix_yaml(proposed))
        for cell, one in zip(load_matrix(path).cells, proposed, strict=True):
            findings = check(cell, driver=machine.get("driver"))
            assert Outcome.of(findings) is not Outcome.IMPOSSIBLE, (machine, [f.message for f in findings])
            assert Outcome.of(findings) is one.outcome, (machine, [f.message for f in findings])


@pytest.mark.parametrize("card", ["T4", pytest.param("H100", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", sorted(load().frameworks))
def test_check_accepts_what_init_writes(
    name: str,
    card: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RTBUILD_CACHE", str(tmp_path / "cache"))
    asked = "cupy-cuda12x" if name == "cupy" else name
    code = typed("init", asked, "--offline", "--gpu", card, monkeypatch=monkeypatch)
    said = capsys.readouterr().err
    if code:
        assert "nothing is possible" in said or "nothing is known to be possible" in said, said
        assert not list(tmp_path.rglob("*.yaml"))
        return
    assert typed("check", "--json", monkeypatch=monkeypatch) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert cells
    assert {cell["answer"] for cell in cells} <= {"possible"}, cells


def accepted(framework: str, package: str) -> bool:
    """Whether a cell is proposed for both; ``check`` accepts each that is."""
    frameworks, companions = split(reading.from_arguments((framework, package)))
    found = search(Demand(frameworks=frameworks, companions=companions), enough=1).possible[:1]
    for proposal in found:
        findings = check(proposal.cell, suggest=False)
        assert Outcome.of(findings).severity < Outcome.UNKNOWN.severity, (proposal.cell.pip, findings)
    return bool(found)


@pytest.mark.parametrize(
    ("framework", "package"),
    [
        ("torch==2.6.0", "lmdeploy"),  # PyTorch wants one Triton, and the newest lmdeploy another
        ("tensorflow==2.16.2", "opencv-python"),  # numpy<2 here, numpy>=2 there
        ("cupy-cuda12x==14.0.0", "cudf-cu12"),  # which wants no CuPy 14.0.0
    ],
)
def test_check_accepts_the_release_that_is_named_beside_a_framework(framework: str, package: str) -> None:
    assert accepted(framework, package)


@pytest.mark.slow
@pytest.mark.parametrize("framework", sorted({name for row in load().registry if (name := row.distribution)}))
def test_check_accepts_whatever_is_named_beside_a_framework(framework: str) -> None:
    """Each package on record, beside four releases of it."""
    table = load().frameworks[framework]
    versions = sorted({row.version for row in table.rows}, key=key)
    packages = [name for name in load().packages if not load().is_framework(name)]
    found = [
        accepted(f"{framework}=={version}", package)
        for version in versions[-1 :: -max(1, len(versions) // 4)][:4]
        for package in packages
    ]
    assert len(found) >= len(packages)
