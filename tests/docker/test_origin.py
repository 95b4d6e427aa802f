"""Whose image and whose report: real cosign, a real registry, and the report of a test double."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from doubles.project import Project, report
from registry import LoopbackRegistry, serve
from rtbuild_command import rtbuild

from builder.sources.net.http import Client
from builder.sources.oci.registry import Registry
from builder.verify.evidence.attach import sign_built
from builder.verify.evidence.statement import Cosign, People, Signer
from builder.verify.runner.reports import ReportStore, key_of, parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from builder.sources.oci.staging import Staged

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackRegistry]:
    with serve(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key pairs: of a builder, of who verifies, of the publisher, and of somebody who may push as well."""
    if shutil.which("cosign") is None:
        pytest.skip("needs cosign: scripts/ensure-tools")
    folder = tmp_path_factory.mktemp("keys")
    for name in ("builder", "gpu", "publisher", "stranger"):
        command = ["cosign", "generate-key-pair", "--output-key-prefix", str(folder / name)]
        environment = os.environ | {"COSIGN_PASSWORD": ""}
        subprocess.run(command, env=environment, check=True, capture_output=True)
    return folder


@pytest.fixture(autouse=True)
def no_password(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COSIGN_PASSWORD", "")
    monkeypatch.setenv("RTBUILD_CACHE", str(tmp_path / "cache"))


def signer(keys: Path, name: str) -> Signer:
    return Signer(key=str(keys / f"{name}.key"))


def keep_report(project: Project, image: Staged, signed_by: Signer) -> None:
    """As ``verify --key`` keeps it."""
    document = report(image)
    key = key_of(image.content, parse(json.dumps(document)), image.digest)
    assert key is not None
    store = ReportStore(
        project.results / "reports", sign=lambda text: Cosign.find().sign_text(text, signed_by)
    )
    store.save(key, document, cell=project.cell.id, matrix=project.cell.matrix)


def test_an_image_and_a_report_of_people_who_were_named(
    running: LoopbackRegistry, keys: Path, tmp_path: Path
) -> None:
    project = Project(tmp_path / "project")
    registry = Registry(client=Client(retries=0), login=lambda _host: None)
    staging, public = f"{running.host}/origin/staging", f"{running.host}/origin/public"
    image = project.stage(registry, staging)

    def publish(*, check: int) -> str:
        done = rtbuild(
            project.folder,
            *("publish", "tf.yaml", "--from", staging, "--to", public, "--progress", "none"),
            *("--key", str(keys / "publisher.key"), "--require-signed"),
            *("--built-by", str(keys / "builder.pub"), "--reported-by", str(keys / "gpu.pub")),
            check=check,
        )
        return done.stderr

    keep_report(project, image, signer(keys, "gpu"))
    # Somebody who may push has put an image of his own under the cell's label, and signs it as himself.
    stranger = signer(keys, "stranger")
    assert sign_built(registry, image, stranger, People.holding(stranger))
    assert "(unproven)" in publish(check=6)
    builder = signer(keys, "builder")
    assert sign_built(registry, image, builder, People.holding(builder))
    assert not sign_built(registry, image, builder, People.holding(builder))
    keep_report(project, image, stranger)
    assert "(unsigned)" in publish(check=6)
    assert registry.digest_of(f"{public}:latest") is None
    keep_report(project, image, signer(keys, "gpu"))
    publish(check=0)
    assert registry.digest_of(f"{public}:latest") == image.digest
    audited = rtbuild(
        project.folder, "audit", f"{public}:latest", "--key", str(keys / "publisher.pub"), check=0
    )
    assert "✓ known to work" in audited.stdout
