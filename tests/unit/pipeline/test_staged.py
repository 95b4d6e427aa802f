"""Verification of what another machine built, against a registry in memory and a stand-in for an engine."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from doubles import small_image
from doubles.engine import PROBE, PROBE_SHA256, T4_HOST, EngineDouble, says, stored
from doubles.registry import RegistryDouble, registry_client, serve

from builder import __version__
from builder.core.errors import ImageMissingError, RegistryError
from builder.image.recipe.rendering import render
from builder.pipeline import verifying
from builder.pipeline.events import CellOutcome, CellRun, Note
from builder.pipeline.run_context import MadeImages, VerifyOptions
from builder.sources.oci.registry import Registry
from builder.sources.oci.staging import staged_tag
from builder.verify.evidence.attach import shared
from builder.verify.runner.reports import ReportStore, SealedReport

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.image.engine.container import ProbeRun
    from builder.sources.oci.staging import Staged
    from builder.verify.evidence.statement import People

PINNED = small_image.pinned()
INPUTS = render(PINNED, probe=PROBE, version=__version__).inputs


def said(**changes: Any) -> ProbeRun:
    """A run of the probe on the machine with the T4."""
    return says(small_image.double_report(probe={"version": "1.0", "sha256": PROBE_SHA256}, **changes))


@pytest.fixture
def server() -> Iterator[RegistryDouble]:
    with serve() as running:
        yield running


@pytest.fixture
def registry() -> Registry:
    return registry_client()


@pytest.fixture
def image(server: RegistryDouble, registry: Registry, tmp_path: Path) -> Staged:
    labels = {"io.rtbuild.inputs": INPUTS}
    tag = staged_tag(INPUTS)
    return small_image.push_image(registry, f"{server.host}/team/staging", tmp_path, labels=labels, tag=tag)


@pytest.fixture
def engine(image: Staged) -> EngineDouble:
    """Of a machine with one T4; a pull brings the image, under the name that a graph driver gives it."""
    pulled = stored(image.reference, image.config_digest, content=image.content, labels=image.labels)
    return EngineDouble(run=said(), gpu=T4_HOST, elsewhere={image.reference: pulled})


@pytest.fixture
def verify(engine: EngineDouble, image: Staged, registry: Registry, tmp_path: Path):
    """CellRun one cell; its result, and what was noted."""

    def run(*, builders: People | None = None, **options: Any) -> Any:
        notes: list[str] = []
        site: Any = SimpleNamespace(
            sources=SimpleNamespace(writing=registry),
            stores=SimpleNamespace(
                locks=SimpleNamespace(pinned=lambda _cell, stale=False: PINNED),
                probe=PROBE,
                made=MadeImages(tmp_path / "made"),
            ),
            connected=engine,
        )
        emit = lambda event: notes.append(event.text) if isinstance(event, Note) else None  # noqa: E731
        walk = CellRun(PINNED.cell, emit, threading.Event())
        result = verifying.verify_staged(
            walk,
            site,
            image.repository,
            VerifyOptions(**options),
            reports=ReportStore(tmp_path / "results" / "reports"),
            builders=builders,
        )
        return SimpleNamespace(result=result, notes=notes)

    return run


def test_the_report_lies_beside_the_image_and_here(
    verify, engine: EngineDouble, registry: Registry, image: Staged, tmp_path: Path
) -> None:
    done = verify()
    assert done.result.outcome is CellOutcome.WORKS
    assert done.result.image.pushed == image.reference
    assert engine.pulled == [image.reference]
    assert [name for name, _ in engine.started] == [image.config_digest], "what was pulled is what is probed"
    assert engine.removed == []
    (entry,) = shared(registry, image)
    assert isinstance(entry, SealedReport)
    assert entry.key.digest == image.digest
    (file,) = (tmp_path / "results" / "reports").iterdir()
    assert file.read_text() == entry.text


def test_a_bad_image_is_reported_as_bad(
    verify, engine: EngineDouble, registry: Registry, image: Staged
) -> None:
    engine.run = said(verdict="broken", cause="cudnn-shadowed", summary="two copies")
    assert verify().result.outcome is CellOutcome.FAILED
    (entry,) = shared(registry, image)
    assert isinstance(entry, SealedReport)
    assert entry.verdict == "broken"


def test_a_test_doubles_word_stays_here(
    verify, engine: EngineDouble, registry: Registry, image: Staged
) -> None:
    engine.run = said(test_double=True)
    done = verify()
    assert shared(registry, image) == []
    assert any("test double" in note for note in done.notes)


def test_nothing_leaves_where_that_is_not_wanted(verify, registry: Registry, image: Staged) -> None:
    assert verify(share_reports=False).result.outcome is CellOutcome.WORKS
    assert shared(registry, image) == []


def test_what_was_pulled_for_it_is_removed_where_that_is_wanted(
    verify, engine: EngineDouble, image: Staged
) -> None:
    engine.run = said(verdict="host", cause="driver-missing")
    assert verify(remove=True).result.outcome is CellOutcome.HOST
    assert engine.removed == [image.reference]
    engine.images |= engine.elsewhere
    verify(remove=True)
    assert engine.removed == [image.reference], "what was there before stays"


def test_a_report_that_cannot_travel_fails_the_cell_and_is_kept(
    verify, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> int:
        raise RegistryError("read only", hint="ask for the right to push")

    monkeypatch.setattr(verifying, "share", refuse)
    done = verify()
    assert done.result.outcome is CellOutcome.FAILED
    assert f"kept in {tmp_path / 'results' / 'reports'}" in done.result.error.message
    assert done.result.error.message.endswith("read only")
    assert done.result.error.hint.startswith("ask for the right to push; ")
    assert done.result.report.verdict.value == "works"
    assert list((tmp_path / "results" / "reports").iterdir())


def test_an_image_that_is_not_there(verify, server: RegistryDouble, engine: EngineDouble) -> None:
    server.tags.clear()
    with pytest.raises(ImageMissingError) as caught:
        verify()
    assert "rtbuild build --push" in str(caught.value.hint)
    assert engine.pulled == []


def test_a_tag_that_somebody_moved_is_not_followed(
    verify, server: RegistryDouble, registry: Registry, engine: EngineDouble, image: Staged, tmp_path: Path
) -> None:
    small_image.push_image(registry, image.repository, tmp_path, tag=staged_tag(INPUTS))
    with pytest.raises(RegistryError, match="somebody moved the tag"):
        verify()
    assert engine.pulled == []


def test_an_engine_that_has_something_else_is_caught(verify, engine: EngineDouble, image: Staged) -> None:
    engine.elsewhere[image.reference] = stored(image.reference, image.config_digest, labels=image.labels)
    with pytest.raises(RegistryError, match="in the engine"):
        verify()
