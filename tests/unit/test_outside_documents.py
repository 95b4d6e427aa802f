"""Every field of every document from outside, with values that nobody expects there.

A document is refused in words, or what is made of it is harmless: no exception of another kind than a refusal
(the boundary of :mod:`builder.core.items` would hide it, so readers are called without), and no control
character in what people see.
"""

from __future__ import annotations

import copy
import itertools
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from doubles import small_image
from doubles.project import Project, report

from builder.cli.commands.audit import document, page
from builder.cli.console.terminal import Terminal
from builder.core.documents import readable, shown
from builder.core.errors import FaultError, RtbuildError
from builder.core.model import DebianPackage
from builder.plan.lock.file import read_lock
from builder.release.audit import checks
from builder.release.audit.checks import Question, judge_all
from builder.release.audit.run import Audit
from builder.release.catalogue.collection import _cell, _packages, _publications
from builder.sources.oci.staging import read_image
from builder.verify.evidence.contents import DpkgList, provenance, sbom
from builder.verify.evidence.judgement import Policy, judge, predicate_of
from builder.verify.evidence.statement import (
    CYCLONEDX,
    PROVENANCE,
    TEST_RESULT,
    Gathered,
    Piece,
    Statement,
    parse_statement,
)
from builder.verify.runner.reports import key_of, parse, read_entry, seal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from builder.sources.oci.staging import Staged

pytestmark = pytest.mark.slow

NOW = datetime.now(UTC)


def deep(levels: int) -> Any:
    found: Any = []
    for _ in range(levels):
        found = [found]
    return found


ODD: dict[str, Any] = {
    "null": None,
    "true": True,
    "zero": 0,
    "negative": -1,
    "huge": 1 << 62,
    "a huge float": 1e300,
    "empty": "",
    "list": [],
    "object": {},
    "list of objects": [{}],
    "object in object": {"": {"a": None}},
    "deep": deep(50),
    "long": "a" * 100_000,
    "digits": "9" * 5000,
    "bidi": "x\u202ey\u2066z",
    "C0": "a\x00b\x1b[2J\x07",
    "C1": "a\x9b31mb\x85",
    "lines": "a\r\n::error::b\n##[error]c",
    "surrogate": "\udc80",
    "path": "../../../etc/passwd",
    "markup": "</script><script>alert(1)</script>",
    "last date": "9999-12-31T23:59:59-23:59",
    "first date": "0001-01-01T00:00:00+23:59",
    "naive date": "2026-11-21T00:00:00",
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    """The document with another value at one place; it shares all other parts with ``value``.

    A copy of the whole for each change took most of the time: documents have hundreds of places.
    """
    if not path:
        return odd
    found = copy.copy(value)
    found[path[0]] = changed(value[path[0]], path[1:], odd)
    return found


def table(whole: Any) -> Iterator[tuple[str, Any]]:
    """The name of each change, and the changed document."""
    for path in places(whole):
        for name, odd in ODD.items():
            yield f"{'.'.join(map(str, path))}: {name}", changed(whole, path, odd)


def refused_or_harmless(
    whole: Any, read: Callable[[Any], Iterator[str]], *, stride: int = 1
) -> tuple[int, int]:
    """How many of the changed documents were refused, and how many read; whatever else happens fails.

    Of a large document each ``stride``-th change: each value, and each field with some of them.
    """
    refused = taken = 0
    for name, odd in itertools.islice(table(whole), 0, None, stride):
        try:
            for line in read(odd):
                assert line == readable(line), f"{name} is shown: {line!r}"
        except FaultError as error:
            pytest.fail(f"{name}: {error}")
        except RtbuildError:
            refused += 1
        except Exception as error:  # noqa: BLE001 - told with its place
            pytest.fail(f"{name}: {type(error).__name__}: {error}")
        else:
            taken += 1
    return refused, taken


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Staged:
    return small_image.push_image(
        small_image.Memory(), "registry.example/team/tf", tmp_path_factory.mktemp("image")
    )


def stated(image: Staged, kind: str, predicate: Any) -> Piece:
    made = Statement(subjects=(image.digest,), predicate_type=kind, predicate={})
    content = json.dumps({**json.loads(made.content), "predicate": predicate})
    return Piece(statement=parse_statement(content.encode()), digest="sha256:" + "e" * 64)


def audited(image: Staged, piece: Piece, *, alone: bool = True) -> Iterator[str]:
    """The page of an audit over one statement; ``alone`` says that it is a test result."""
    if alone:
        judge(piece.statement.predicate, image, Policy(now=NOW))
    gathered = Gathered(pieces=(piece,), refused=(), kept="tag", signatures=False)
    question = Question(gpu="T4", driver="535")
    weighed = judge_all(gathered, image, question, NOW)
    findings = [*weighed.findings(question)]
    if weighed.verified:
        findings += [checks.age(weighed.verified, NOW), checks.cudnn(weighed.verified[0])]
        findings += checks.known_bad(weighed.verified, ["T4"])
        findings.append(checks.seen(weighed.verified, "T4", "535"))
    made = Audit(
        reference=image.reference,
        image=image,
        when=NOW,
        question=question,
        works=bool(weighed.verified),
        evidence=weighed.held,
        refused=(),
        kept="tag",
        signatures=False,
        verified=weighed.verified,
        failed=weighed.against,
        findings=tuple(findings),
    )
    json.dumps(document(made)).encode()
    yield from page(made, Terminal(progress="none", color=False, github=False))


@pytest.mark.parametrize("verdict", ["works", "broken"])
def test_a_verification(verdict: str, image: Staged) -> None:
    cause = None if verdict == "works" else "cudnn-shadowed"
    found = small_image.double_report(verdict=verdict, cause=cause)
    sealed = small_image.verification(image, document=found)
    whole = dict(predicate_of(sealed, image, claims=("T4",) if verdict == "works" else (), exempt=()))
    refused, _ = refused_or_harmless(
        whole, lambda odd: audited(image, stated(image, TEST_RESULT, odd)), stride=17
    )
    assert refused > 50


def test_a_manifest_and_a_config(tmp_path: Path) -> None:
    memory = small_image.Memory()
    pushed = small_image.push_image(memory, "registry.example/team/tf", tmp_path)
    config = memory.blobs[pushed.config_digest]

    def put(manifest: bytes, config: bytes) -> Staged:
        import hashlib

        other = small_image.Memory()
        digest = "sha256:" + hashlib.sha256(manifest).hexdigest()
        other.manifests[digest] = manifest
        other.blobs = dict.fromkeys([*memory.blobs, pushed.config_digest], config)
        outside: Any = other
        return read_image(outside, "registry.example/team/tf", digest)

    def shown_of(found: Staged) -> Iterator[str]:
        assert found.size > 0
        yield from (found.label(f"io.rtbuild.{name}") or "" for name in ("cell", "matrix", "inputs"))

    manifest = json.loads(pushed.manifest.content)
    refused, _ = refused_or_harmless(manifest, lambda odd: shown_of(put(json.dumps(odd).encode(), config)))
    assert refused > 50
    refused, _ = refused_or_harmless(
        json.loads(config), lambda odd: shown_of(put(pushed.manifest.content, json.dumps(odd).encode()))
    )
    assert refused > 50


def test_a_lock(tmp_path: Path) -> None:
    project = Project(tmp_path)
    path = project.path.with_name("tf.lock.json")
    whole = json.loads(path.read_text())

    def read(odd: Any) -> Iterator[str]:
        path.write_text(json.dumps(odd))
        read_lock(path)
        yield ""

    refused, _ = refused_or_harmless(whole, read)
    assert refused > 500


def test_a_record_of_a_publication(tmp_path: Path) -> None:
    cell = {
        "id": "x",
        "matrix": "m",
        "outcome": "published",
        "target": "r.example/x",
        "digest": "sha256:" + "a" * 64,
    }
    whole = {
        "schema": 1,
        "kind": "publication",
        "started": "2026-01-01T00:00:00Z",
        "dry_run": False,
        "cells": [cell],
    }
    path = tmp_path / "publication-1.json"

    def read(odd: Any) -> Iterator[str]:
        path.write_text(json.dumps(odd))
        for key, values in _publications(path):
            yield from (*key, *values)

    refused, _ = refused_or_harmless(whole, read)
    assert refused > 50


def test_an_sbom(image: Staged) -> None:
    installed = (DebianPackage(name="libc6", version="2.36-9", architecture="amd64"),)
    whole = sbom(small_image.evidence(image), image, DpkgList(packages=installed))

    def read(odd: Any) -> Iterator[str]:
        yield from audited(image, stated(image, CYCLONEDX, odd), alone=False)
        doubts: list[str] = []
        packages = _packages(odd, doubts)
        yield from map(shown, (*packages, *packages.values(), *doubts))

    refused, taken = refused_or_harmless(whole, read, stride=3)
    assert refused + taken > 900


def test_a_provenance(image: Staged) -> None:
    whole = provenance(small_image.evidence(image), image)

    def read(odd: Any) -> Iterator[str]:
        yield from audited(image, stated(image, PROVENANCE, odd), alone=False)
        made = stated(image, PROVENANCE, odd).statement.predicate
        for found in checks.ruled(made, None, gpu="T4", driver="535").findings:
            yield found.message
        cell, possible = _cell("c", "m", image, made)
        yield from (shown(str(cell.base)), possible.answer)

    refused, taken = refused_or_harmless(whole, read, stride=3)
    assert refused + taken > 600


def test_a_sealed_report(image: Staged) -> None:
    found = small_image.double_report()
    key = key_of(image.content, parse(json.dumps(found)), image.digest)
    assert key is not None
    whole = json.loads(seal(key, found, cell="c", matrix="m", verified=small_image.moment(days=1)))

    def read(odd: Any) -> Iterator[str]:
        entry = read_entry(json.dumps(odd), "x.json")
        judged = judge(entry, image, Policy(now=NOW))
        yield judged.reason.text if judged.reason is not None else judged.text

    refused, _ = refused_or_harmless(whole, read, stride=3)
    assert refused > 500


def test_the_table_reaches_every_field() -> None:
    whole = report()
    names = {name.partition(":")[0] for name, _ in table(whole)}
    assert {"gpus.0.name", "driver.version", "frameworks.0.loaded.cudnn", "probe.sha256"} <= names
