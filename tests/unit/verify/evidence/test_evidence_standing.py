"""Which words about an image stand: the rule that gate and audit share, without either of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from builder.verify.evidence.judgement import broken, denied, standing
from builder.verify.runner.reports import ReportKey

if TYPE_CHECKING:
    from builder.verify.evidence.judgement import Side

DAWN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Said:
    verdict: str
    hour: int
    driver: str = "535"
    gpu_class: str | None = "T4"

    @property
    def key(self) -> ReportKey:
        gpus = ((self.gpu_class or "", "7.5"),)
        return ReportKey(digest="d", content="c", probe="p", gpus=gpus, driver=self.driver)

    @property
    def when(self) -> datetime:
        return DAWN + timedelta(hours=self.hour)

    @property
    def side(self) -> Side:
        against = self.verdict in {"broken", "unsupported-gpu"}
        return "against" if against else "for" if self.verdict == "works" else "neither"


WORKS, BROKEN, UNSUPPORTED, BUSY = "works", "broken", "unsupported-gpu", "busy"


@pytest.mark.parametrize(
    ("words", "last"),
    [
        ([Said(WORKS, 1), Said(BROKEN, 2)], BROKEN),
        ([Said(BROKEN, 1), Said(WORKS, 2)], WORKS),
        ([Said(WORKS, 1), Said(BROKEN, 1)], BROKEN),
        ([Said(BROKEN, 1), Said(BUSY, 2)], BROKEN),
        ([Said(WORKS, 1), Said(BUSY, 2)], BUSY),
        ([Said(BROKEN, 1), Said(WORKS, 2), Said(BUSY, 3)], BUSY),
        ([Said(BROKEN, 1), Said(WORKS, 2), Said(BROKEN, 3)], BROKEN),
        ([Said(UNSUPPORTED, 1), Said(BROKEN, 2)], BROKEN),
        ([Said(BROKEN, 1), Said(UNSUPPORTED, 2)], UNSUPPORTED),
        ([Said(UNSUPPORTED, 1), Said(BUSY, 2)], UNSUPPORTED),
    ],
)
def test_of_several_about_the_same_the_newest_in_whatever_order_they_come(
    words: list[Said], last: str
) -> None:
    for order in permutations(words):
        (found,) = standing(order)
        assert found.verdict == last


def test_another_driver_does_not_outvote() -> None:
    stand = standing([Said(BROKEN, 1), Said(WORKS, 2, driver="550"), Said(WORKS, 3, gpu_class="A100")])
    assert len(stand) == 3
    assert [word.hour for word in broken(stand)] == [1]
    assert denied(stand, {"T4", "A100"}) == []


def test_a_claim_is_denied_and_the_image_not_shut_out() -> None:
    stand = standing([Said(WORKS, 1), Said(UNSUPPORTED, 2, driver="470")])
    assert broken(stand) == []
    assert [word.driver for word in denied(stand, {"T4"})] == ["470"]
    assert denied(stand, {"A100"}) == []
    assert denied(standing([*stand, Said(WORKS, 3, driver="470")]), {"T4"}) == []
