"""What a failed lock said is no yes for the same requirements, until a lock succeeds or the answer is old."""

from __future__ import annotations

import json
import time

import pytest

from builder.core.errors import NoSolutionError
from builder.core.model import RootfsBase, Wheel
from builder.plan.facts.reading.cache import ReadingCache
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import Outcome
from builder.plan.lock.pinning import pin


@pytest.fixture
def cell(make, tmp_path, monkeypatch):
    monkeypatch.setenv("RTBUILD_CACHE", str(tmp_path))
    return make("torch==2.9.1", python="3.13", base="rootfs:debian/trixie", cuda="wheels")


class Resolver:
    """A double: no set of wheels the first time, one wheel from then on."""

    def __init__(self) -> None:
        self.asked = 0

    def with_extra(self, _urls: tuple[str, ...]) -> Resolver:
        return self

    def resolve(self, _requirements, **_options) -> tuple[Wheel, ...]:
        self.asked += 1
        if self.asked == 1:
            raise NoSolutionError("no set of wheels\n  because torch has no usable wheels")
        return (Wheel(name="torch", version="2.9.1", file="torch.whl", sha256="0" * 64, size=1),)


class Suite:
    """A double of Debian: a system without packages."""

    def resolve(self, suite: str, **_options) -> RootfsBase:
        return RootfsBase(suite=suite, debs=(), epoch=0)


def test_a_failed_lock_is_remembered_until_one_succeeds(cell, make) -> None:
    index = Resolver()
    with pytest.raises(NoSolutionError):
        pin(cell, index=index, registry=None, debian=Suite(), workshop=None, pythons=None)
    truth = ReadingCache().truth(cell, None)
    assert truth.failed == "no set of wheels because torch has no usable wheels"
    assert Outcome.of(check(cell, truth)).answer == "unknown"
    other = make("torch==2.9.1", python="3.13", base="rootfs:debian/trixie", cuda="wheels", pip=("tqdm",))
    assert ReadingCache().truth(other, None).failed is None
    pin(cell, index=index, registry=None, debian=Suite(), workshop=None, pythons=None)
    assert ReadingCache().truth(cell, None).failed is None


def test_an_old_answer_and_a_damaged_one_count_for_nothing(cell, tmp_path) -> None:
    assert ReadingCache().last_failure(cell) is None
    ReadingCache().keep_failure(cell, "said")
    (path,) = (tmp_path / "lockfail").iterdir()
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"when": time.time() - 8 * 86400}))
    assert ReadingCache().last_failure(cell) is None
    path.write_text("{")
    assert ReadingCache().last_failure(cell) is None
    ReadingCache().keep_failure(cell, None)
    ReadingCache().keep_failure(cell, None)
    assert not path.exists()
