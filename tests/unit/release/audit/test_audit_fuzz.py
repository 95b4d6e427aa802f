"""Whatever stands in evidence, an audit answers: no text and no number in it makes it fail in another way."""

from __future__ import annotations

import copy
import json
import random
import sys
from typing import TYPE_CHECKING, Any

import pytest
from doubles import small_image

from builder.cli.commands.audit import clean, document, page
from builder.cli.console.terminal import Terminal
from builder.core.errors import RegistryError
from builder.release.audit.checks import Question
from builder.release.audit.run import audit
from builder.verify.evidence.contents import DpkgList, parse_status, provenance, sbom
from builder.verify.evidence.judgement import predicate_of
from builder.verify.evidence.statement import CYCLONEDX, PROVENANCE, TEST_RESULT, Gathered, Piece, Statement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.sources.oci.staging import Staged

ROUNDS = 60
TERMINAL = Terminal(progress="plain", color=False, github=False)
JUNK: tuple[Any, ...] = (
    None, True, -1, 1e308, 10**40, "", "x", "\x1b[2J\x9b", "9" * 5000, [], {}, [[]], [None], {"a": None},
    {"sha256": 5}, "12.2", "8.9.4", "K80", "1.2.3.4.5.6.7.8.9.10", "٣.٤", "2026-01-01T00:00:00Z",
)  # fmt: skip


class NoRegistry:
    def manifest(self, _name: object) -> object:
        raise RegistryError("not now")

    def clock_ahead(self, _name: object) -> None:
        return None

    def blob(self, *_arguments: object) -> bytes:
        return b'{"config": {"Env": ["CUDA_VERSION=\\u001b", "NV_CUDNN_VERSION"]}}'


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Staged:
    folder = tmp_path_factory.mktemp("image")
    return small_image.push_image(small_image.Memory(), "registry.example/team/tf", folder)


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield (*before, key)
        yield from places(child, (*before, key))


def spoil(value: Any, chance: random.Random) -> None:
    """Replace or remove one thing, anywhere in it."""
    *way, last = chance.choice(list(places(value)))
    for key in way:
        value = value[key]
    if isinstance(value, dict) and chance.random() < 0.2:
        del value[last]
    else:
        value[last] = copy.deepcopy(chance.choice(JUNK))


@pytest.mark.parametrize("seed", range(4))
def test_nothing_makes_it_fail(seed: int, image: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    evidence = small_image.evidence(image)
    system = DpkgList(packages=parse_status(small_image.status_file().decode()))
    test = predicate_of(small_image.verification(image), image, claims=("T4",), exempt=())
    broken = small_image.double_report(verdict="broken", cause="cudnn-shadowed")
    against = predicate_of(small_image.verification(image, document=broken), image, claims=(), exempt=())
    against = json.loads(json.dumps(against))
    good = {TEST_RESULT: json.loads(json.dumps(test)), CYCLONEDX: sbom(evidence, image, system)}
    good[PROVENANCE] = provenance(evidence, image)
    module = sys.modules["builder.release.audit.run"]
    monkeypatch.setattr(module, "resolve", lambda *_arguments: image)
    for _ in range(ROUNDS):
        predicates = copy.deepcopy(good)
        for _ in range(chance.choice([1, 1, 2, 4])):
            spoil(predicates[chance.choice([TEST_RESULT, TEST_RESULT, CYCLONEDX, PROVENANCE])], chance)
        failed, whole = copy.deepcopy(against), chance.random() < 0.2
        if not whole:
            spoil(failed, chance)
        pieces = tuple(
            Piece(
                statement=Statement(subjects=(image.digest,), predicate_type=kind, predicate=predicate),
                digest="sha256:" + "1" * 64,
            )
            for kind, predicate in (*predicates.items(), (TEST_RESULT, failed))
        )
        found = Gathered(pieces=pieces, refused=(), kept="tag", signatures=False)
        monkeypatch.setattr(module, "gather", lambda *_arguments, found=found: found)
        question = Question(gpu=chance.choice([None, "T4"]), driver=chance.choice([None, "535"]))
        answer = audit(NoRegistry(), "registry.example/team/tf:1", question)  # type: ignore[arg-type]
        assert json.loads(json.dumps(document(answer)))["works"] is answer.works
        for line in page(answer, TERMINAL):
            assert clean(line) == line
        assert not (answer.works and whole)
        assert not answer.works or answer.verified[0].report.verdict == "works"
