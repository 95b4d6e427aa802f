"""``rtbuild catalogue --from`` against a real registry: docker-registry, filled by ``rtbuild publish``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from doubles.project import CELL
from publish_scene import MEASURED, Scene, direct
from rtbuild_command import rtbuild

if TYPE_CHECKING:
    from pathlib import Path

    from doubles.unreliable import Proxy

pytestmark = [pytest.mark.docker, pytest.mark.long]

INDEX = "application/vnd.oci.image.index.v1+json"


@pytest.fixture
def scene(tmp_path: Path, proxy: Proxy) -> Scene:
    return Scene(tmp_path / "project", proxy, tmp_path.name.replace("_", "-"))


def catalogue(folder: Path, *arguments: str) -> tuple[dict[str, object], str]:
    done = rtbuild(folder, "catalogue", "--json", *arguments)
    return json.loads(done.stdout), done.stderr


def test_what_was_published_is_shown_from_the_registry_alone(scene: Scene, tmp_path: Path) -> None:
    scene.project.report(scene.image)
    rtbuild(scene.project.folder, "publish", "tf.yaml", "--from", scene.staging, "--to", scene.public, "-q")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    told, said = catalogue(folder, "--from", scene.public, "--from", scene.staging)
    assert (told["images"], told["ran"], told["notes"]) == (1, 1, []), said
    page = (folder / f"site/images/tf--{CELL}.html").read_text()
    assert f"docker run --rm --gpus all {scene.public}:{CELL} cudnn-verify" in page
    assert "Tesla T4" in page
    assert "8.9.4.25" in page, "packages, out of the SBOM"
    assert f"{scene.public}:{CELL}" in (folder / "site/catalogue.md").read_text()
    assert "Tesla T4" in (folder / "site/data/tensorflow.js").read_text()


def test_with_a_matrix_its_cells_stand_beside_them(scene: Scene) -> None:
    scene.project.report(scene.image)
    rtbuild(scene.project.folder, "publish", "tf.yaml", "--from", scene.staging, "--to", scene.public, "-q")
    told, _ = catalogue(scene.project.folder, "tf.yaml", "--from", scene.public)
    assert (told["images"], told["ran"]) == (1, 1)
    page = (scene.project.folder / f"site/images/tf--{CELL}.html").read_text()
    assert "rtbuild build tf.yaml" in page


def test_the_cells_tag_moved_and_a_foreign_image_is_there(scene: Scene, tmp_path: Path) -> None:
    scene.project.report(scene.image)
    rtbuild(scene.project.folder, "publish", "tf.yaml", "--from", scene.staging, "--to", scene.public, "-q")
    newer = scene.project.stage(direct(), scene.public, extra=b"newer")
    registry = direct()
    registry.put_manifest(f"{scene.public}:{CELL}", newer.manifest.content, newer.manifest.media_type)
    registry.put_manifest(f"{scene.public}:empty", b'{"schemaVersion": 2, "manifests": []}', INDEX)
    told, said = catalogue(tmp_path, "--from", scene.public)
    assert (told["images"], told["ran"]) == (2, 1)
    assert f"{scene.public}:empty is not shown" in said
    assert MEASURED in (tmp_path / "site/catalogue.md").read_text(), "the one that ran, by a tag it still has"
    assert "nobody can say that it works" in (tmp_path / f"site/images/tf--{CELL}.html").read_text()


def test_no_registry_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    done = rtbuild(tmp_path, "catalogue", "--from", "127.0.0.1:1/x", check=5)
    assert "127.0.0.1:1" in done.stderr
    assert not (tmp_path / "site").exists()
