"""Sets whose framework lies on a page that does not answer: the rest of them is still asked about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builder.core.model import Wheel
from builder.plan.resolve import silent_pages
from builder.plan.resolve.silent_pages import asked_of_rest
from builder.plan.resolve.solve import Demand, Proposal, search, split
from builder.plan.resolve.wishes import from_arguments

WHEEL = Wheel(name="yacs", version="0.1.8", file="yacs-0.1.8-py3-none-any.whl", sha256="0" * 64, size=1)
SILENT = "package index https://page.example: the host name is unknown"


def proposed(*texts: str) -> tuple[Proposal, Demand]:
    frameworks, companions = split(from_arguments(list(texts)))
    demand = Demand(frameworks=frameworks, companions=companions, gpus=("RTX3090",))
    return replace(search(demand, available={}).possible[0], unasked=SILENT), demand


def test_the_rest_is_resolved_beside_the_same_release_of_the_default_index(monkeypatch) -> None:
    asked = list[Proposal]()

    def solved(proposal, _index, _driver, **_options):
        asked.append(proposal)
        return proposal, [WHEEL]

    monkeypatch.setattr(silent_pages, "solved", solved)
    one, demand = proposed("torch==1.10.2+cu113", "yacs")
    (kept,), refused = asked_of_rest([one], {}, demand, None)
    assert refused == {}
    assert (asked[0].cell.frameworks, asked[0].cell.index, asked[0].unasked) == (("torch==1.10.2",), (), None)
    assert (kept.cell, kept.wheels) == (one.cell, 1)
    assert kept.unasked is not None
    assert kept.unasked.startswith(f"{SILENT}; of the rest, beside torch==1.10.2")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("no set\n  cause: Because pytorch-nightly was not found in the package registry and", None),
        ("no set\n  cause: Because all versions of conda-build are yanked and", None),
        ("no set\n  cause: Because torch==1.10.2 has no wheels", "Because torch==1.10.2 has no wheels"),
        ("another build's words", "another build's words"),
    ],
)
def test_a_package_that_no_index_has_is_refused_and_what_else_is_said_of_the_rest_is_told(
    monkeypatch, answer, says
) -> None:
    monkeypatch.setattr(silent_pages, "solved", lambda *_, **__: answer)
    one, demand = proposed("torch==1.10.2+cu113", "yacs")
    kept, refused = asked_of_rest([one], {}, demand, None)
    assert refused == ({answer: one} if says is None else {})
    assert [each.unasked for each in kept] == (
        [f"{SILENT}; of the rest it says: {says}"] if says is not None else []
    )


def test_nothing_is_asked_where_nothing_is_beside_or_all_was_asked(monkeypatch) -> None:
    monkeypatch.setattr(silent_pages, "solved", None)  # a call would fail
    alone, demand = proposed("torch==1.10.2+cu113")
    alone = replace(alone, cell=replace(alone.cell, pip=()))
    assert asked_of_rest([alone], {}, demand, None) == ([alone], {})
    known, demand = proposed("torch==1.10.2+cu113", "yacs")
    known = replace(known, unasked=None)
    assert asked_of_rest([known], {}, demand, None) == ([known], {})
