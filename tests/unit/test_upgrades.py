"""Documents that rtbuild 0.1.0 (2026-11-22) and 0.2.0 (2026-11-23) wrote are read by every later one.

Each folder of ``tests/documents`` was written once, by that release's commands: ``lock`` and ``build`` of a
small cell without an engine, ``publish`` with cosign's signatures to a registry with the referrers API and
to one without, and a ``publish`` that found an image broken. Its reports are test doubles of a T4 and an
A100. A document that has to change is not written anew here: the reader has to know both.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from kept_documents import DOCUMENTS, RELEASES, REPOSITORIES, repository
from rtbuild_command import inside

from builder.core.errors import UsageError
from builder.image.compose.run_steps import layer_keys
from builder.image.layers.store import LayerStore
from builder.image.recipe.rendering import render
from builder.pipeline.run_context import MadeImages
from builder.plan.lock.file import pinned_cell, read_lock
from builder.plan.matrix import load
from builder.release.audit import Question, audit
from builder.sources.net.http import Client
from builder.sources.oci.registry import Registry
from builder.verify.evidence.statement import Verifier
from builder.verify.runner.reports import ReportStore, SealedReport

if TYPE_CHECKING:
    from builder.release.audit.run import Audit

SCHEMAS = Path(__file__).parents[2] / "docs"
CONTENTS = {
    "0.1.0": "sha256:3c1dfa7d13d208a1d171a7d09214f50a3be3050a0ecef867fbda2db3168c9b73",
    "0.2.0": "sha256:24eb6ad3522710bbf1ecf484d002311f76b81b31e646bd216489e49eec339d7b",
}
"""Of the image that each release's ``build`` made."""
EACH_RELEASE = pytest.mark.parametrize("release", RELEASES)


def ask(release: str, name: str, **question: Any) -> Audit:
    with repository(release, name) as where:
        registry = Registry(client=Client(retries=0), login=lambda _host: None)
        return audit(registry, f"{where}:latest", Question(**question))


@EACH_RELEASE
@pytest.mark.parametrize("name", REPOSITORIES)
def test_a_published_image_audits(release: str, name: str) -> None:
    found = ask(release, name)
    assert found.works == (name != "against")
    assert not [finding for finding in found.findings if finding.what == "unread"]
    assert len(found.against) == (1 if name == "against" else 0)


@pytest.mark.slow
@EACH_RELEASE
@pytest.mark.parametrize("name", REPOSITORIES)
def test_its_signatures_are_verified_by_cosign(release: str, name: str) -> None:
    if shutil.which("cosign") is None:
        pytest.skip("needs cosign: scripts/ensure-tools")
    found = ask(release, name, verifier=Verifier(key=str(DOCUMENTS / release / "cosign.pub")))
    assert found.works == (name != "against")
    assert [finding.outcome for finding in found.findings if finding.what == "signature"] == ["passes"]


def test_a_report_from_before_suites_counts_for_its_convolution_alone() -> None:
    assert ask("0.1.0", "signed", suites=("conv",)).works
    assert not ask("0.1.0", "signed", suites=("attention",)).works


@EACH_RELEASE
@pytest.mark.parametrize("path", ["tf.yaml", "build/small.yaml"])
def test_a_matrix_and_its_lock_are_read(release: str, path: str, tmp_path: Path) -> None:
    shutil.copytree(DOCUMENTS / release, tmp_path, dirs_exist_ok=True)
    listed = json.loads(inside(tmp_path, "lock", path, "--check", "--json").stdout)
    assert [cell["locked"] for cell in listed["cells"]] == [True]


@EACH_RELEASE
def test_reports_are_read_from_the_results_of_a_run(release: str) -> None:
    found = list(ReportStore(DOCUMENTS / release / "results" / "reports").entries())
    assert {type(one) for one in found} == {SealedReport}
    assert sorted(one.verdict for one in found if isinstance(one, SealedReport)) == ["broken", "works"]


@EACH_RELEASE
@pytest.mark.parametrize("kind", ["run", "publication"])
def test_records_fit_todays_schemas(release: str, kind: str) -> None:
    (path,) = (DOCUMENTS / release / "results").glob(f"{kind}-*.json")
    schema = json.loads((SCHEMAS / f"{kind}.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads(path.read_text()))


@EACH_RELEASE
def test_a_build_asks_a_cache_for_the_layers_that_are_in_it(release: str, tmp_path: Path) -> None:
    """All but the probe's, whose text changes; whichever zstandard is installed here."""
    shutil.copytree(DOCUMENTS / release / "cache", tmp_path, dirs_exist_ok=True)
    lockfile = read_lock(DOCUMENTS / release / "build" / "small.lock.json")
    (cell,) = load(DOCUMENTS / release / "build" / "small.yaml").cells
    assert lockfile is not None
    pinned = pinned_cell(cell, lockfile)
    assert pinned is not None
    recipe = render(pinned, probe=b"#!/usr/bin/env python3\n", version=release)
    store = LayerStore(tmp_path / "layers")
    kept = {path.name.partition("-zstd")[0]: path.stem for path in store.folder("index").glob("*.json")}
    with store.lease() as lease:
        below = (key for name, key in sorted(kept.items()) if re.match("rootfs2|wheels", name))
        system, wheels = map(store._read, below)
        assert system is not None
        assert wheels is not None
        keys = layer_keys(recipe, [system], [wheels])
        there = {name for name, key in keys.items() if key.partition("-zstd")[0] in kept}
        assert set(keys) - there == {"probe"}
        small = lease.find(next(key for key in kept.values() if key.startswith("step-0dbd")))
        assert small is not None
        assert small.size == store.blob(small.digest).stat().st_size


@EACH_RELEASE
def test_images_that_were_made_here_are_remembered(release: str) -> None:
    folder = DOCUMENTS / release / "cache" / "made"
    (path,) = folder.iterdir()
    assert MadeImages(folder).content(f"sha256:{path.stem}") == CONTENTS[release]


def test_a_document_of_the_future_names_what_reads_it(tmp_path: Path) -> None:
    lock = json.loads((DOCUMENTS / RELEASES[-1] / "tf.lock.json").read_text())
    path = tmp_path / "tf.lock.json"
    path.write_text(json.dumps(lock | {"schema": 9}))
    with pytest.raises(UsageError, match="has schema 9, and this rtbuild knows up to") as refused:
        read_lock(path)
    assert refused.value.hint == "a newer rtbuild wrote it: install that one"
    text = (DOCUMENTS / RELEASES[-1] / "tf.yaml").read_text()
    (tmp_path / "tf.yaml").write_text(text.replace("version: 1", "version: 9"))
    refusal = inside(tmp_path, "check", "tf.yaml", check=2).stderr
    assert "this rtbuild does not know version '9' of the format" in refusal
