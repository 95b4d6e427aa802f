"""What is proposed passes the rules, reads back as a matrix, and refusals name what clashes."""

from __future__ import annotations

import pytest

from builder.errors import CellError, UsageError
from builder.facts import Outcome, check, propose, summary, to_matrix_yaml
from builder.matrix import load


@pytest.mark.parametrize(
    ("requirements", "options", "frameworks"),
    [
        (
            ["tensorflow==2.15.*"],
            {"python": "3.11", "gpu": "T4", "driver": "535"},
            "tensorflow[and-cuda]==2.15.1",
        ),
        (["tensorflow==2.8.4"], {}, "tensorflow==2.8.4"),
        (["torch==2.9.*"], {"gpu": "P100"}, "torch==2.9.1+cu126"),
        (["jax[cuda12]"], {}, "jax[cuda12]==0.12.0.1"),
        (["cupy-cuda11x"], {}, "cupy-cuda11x==13.6.0"),
    ],
)
def test_the_best_proposal(requirements, options, frameworks, tmp_path) -> None:
    proposals = propose(requirements, **options)
    assert proposals[0].cell.frameworks == (frameworks,)
    assert all(summary(proposal.findings) in {Outcome.POSSIBLE, Outcome.WARNS} for proposal in proposals)
    path = tmp_path / "resolved.yaml"
    path.write_text(to_matrix_yaml(proposals))
    cells = load(path).cells
    assert [cell.inputs() for cell in cells] == [proposal.cell.inputs() for proposal in proposals]
    assert all(
        summary(check(cell)) is proposal.outcome for cell, proposal in zip(cells, proposals, strict=True)
    )


def test_python_and_versions_of_the_index_are_kept_to() -> None:
    proposals = propose(["torch"], python="3.11", available={"torch": ["2.8.0", "2.9.0"]})
    assert proposals[0].cell.python == "3.11"
    assert {p.cell.frameworks[0].split("+")[0] for p in proposals} <= {"torch==2.9.0", "torch==2.8.0"}


def test_clashing_pins_are_avoided_where_an_extra_makes_them() -> None:
    best = propose(["tensorflow==2.15.*", "torch==2.1.*"])[0]
    assert best.cell.frameworks == ("tensorflow==2.15.1", "torch==2.1.2")


def test_frameworks_for_different_cuda_majors_are_refused_by_name() -> None:
    with pytest.raises(CellError, match="nvidia-cudnn-cu1"):
        propose(["tensorflow==2.8.*", "torch==2.9.*"])


def test_unknown_frameworks_and_versions_are_the_users_mistake_or_a_lack() -> None:
    with pytest.raises(UsageError, match="no facts about mxnet"):
        propose(["mxnet==1.9"])
    with pytest.raises(UsageError, match="not a requirement"):
        propose(["tensorflow=="])
    with pytest.raises(CellError, match="no release on record"):
        propose(["tensorflow==2.99.*"])
