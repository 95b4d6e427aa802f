"""A matrix, its lock, images of a few bytes pushed to a loopback registry, and reports on them.

The images are real to a registry, and no more than that. The reports are test doubles: no GPU ran anything,
and they say ``works`` so that the way behind the gate can be walked. They name digests that exist in no
registry but the one that a test started.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from builder import __version__
from builder.core.model import Pinned, RootfsBase
from builder.image.recipe.probe_file import bundle
from builder.image.recipe.rendering import render
from builder.plan.lock.file import lock_path, merge
from builder.plan.matrix import load
from builder.sources.oci.spec import MANIFEST, Manifest
from builder.sources.oci.staging import Staged, staged_tag
from builder.verify.evidence.judgement import Policy
from builder.verify.runner.reports import (
    Expectation,
    ReportStore,
    SealedReport,
    key_of,
    parse,
    read_entry,
    seal,
)
from doubles.registry import SERVED, AtOnce
from doubles.small_image import DEBS, WHEELS, double_report, layer, moment, status_file
from doubles.small_image import push_image as push_double

if TYPE_CHECKING:
    from pathlib import Path

    from builder.core.model import Cell, Matrix
    from builder.image.recipe.values import Recipe

PROBE = bundle()
T4 = {"name": "Tesla T4", "compute_capability": "7.5"}
A100 = {"name": "NVIDIA A100-SXM4-40GB", "compute_capability": "8.0"}

MATRIX = """\
version: 1
name: tf
defaults:
  framework: tensorflow==2.15.1
  base: rootfs:debian/bookworm
  python: 3.11
  cuda: {from: wheels, packages: [nvidia-cudnn-cu12==8.9.4.25, nvidia-cuda-runtime-cu12==12.2.140]}
  gpus: [T4]
"""
ONE = MATRIX + "include:\n  - {}\n"
CELL = "tensorflow2.15.1-py3.11-bookworm-cudnn8.9.4.25"


_RENDERED: dict[str, dict[str, Recipe]] = {}
"""By the text of a matrix."""


@functools.cache
def probe_sha256() -> str:
    return hashlib.sha256(PROBE).hexdigest()


@dataclass
class Project:
    """A folder with a matrix and its lock, as a user has it."""

    folder: Path
    text: str = ONE + "publish: {aliases: {latest: '*'}}\n"
    matrix: Matrix = field(init=False)
    recipes: dict[str, Recipe] = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "tf.yaml"
        self.results = self.folder / "results"
        self.store = ReportStore(self.results / "reports")
        self.write(self.text)

    def write(self, text: str) -> None:
        """The matrix anew, and a lock that fits it."""
        self.path.write_text(text)
        self.matrix = load(self.path)
        base = RootfsBase(suite="bookworm", debs=DEBS, epoch=1_700_000_000)
        pinned = {
            cell.id: Pinned(cell=cell, base=base, wheels=WHEELS, epoch=1_700_000_000)
            for cell in self.matrix.cells
        }
        merge(lock_path(self.path), self.matrix, pinned)
        if text not in _RENDERED:
            _RENDERED[text] = {
                name: render(one, probe=PROBE, version=__version__) for name, one in pinned.items()
            }
        self.recipes = _RENDERED[text]

    @property
    def cell(self) -> Cell:
        return self.matrix.cells[0]

    def stage(
        self, registry: Any, repository: str, cell: Cell | None = None, *, extra: bytes = b"x"
    ) -> Staged:
        """An image of the cell as ``build --push`` leaves it there; ``extra`` makes its content differ."""
        cell = cell or self.cell
        recipe = self.recipes[cell.id]
        layers = (layer({"var/lib/dpkg/status": status_file()}), layer({f"opt/runtime/{cell.id}": extra}))
        labels = {
            "io.rtbuild.cell": cell.id,
            "io.rtbuild.matrix": cell.matrix,
            "io.rtbuild.inputs": recipe.inputs,
            "io.rtbuild.version": __version__,
        }
        tag = staged_tag(recipe.inputs)
        double = SERVED.get(repository.partition("/")[0])
        if double is not None and double.fault is double.before_put is None:
            registry = AtOnce(double)
        return push_double(registry, repository, self.folder, layers=layers, labels=labels, tag=tag)

    def report(self, image: Staged, *, verified: datetime | None = None, **changes: Any) -> Path:
        """A report on the image in the store, written by the product's own code."""
        document = report(image, **changes)
        key = key_of(image.content, parse(json.dumps(document)), image.digest)
        assert key is not None
        path = self.store.save(
            key,
            document,
            cell=image.label("io.rtbuild.cell") or "",
            matrix=image.label("io.rtbuild.matrix") or "",
            verified=verified or moment(days=1),
        )
        assert path is not None
        return path


def report(
    image: Staged | None = None, *, gpu: dict[str, str] | None = None, **changes: Any
) -> dict[str, Any]:
    """A test double of what cudnn-verify would print on a T4."""
    document = double_report()
    document |= {
        "probe": {"version": "1.0", "sha256": probe_sha256()},
        "expectation": image.label("io.rtbuild.cell") if image is not None else CELL,
        "machine": {"distribution": "Debian GNU/Linux 12 (bookworm)"},
        "gpus": [gpu or T4],
    }
    return document | changes


IMAGE = "sha256:" + "d" * 64
CONTENT = "sha256:" + "c" * 64


def image_of(cell: Cell, *, digest: str = IMAGE, content: str = CONTENT) -> Staged:
    """What stands before the gate, with no registry behind it."""
    return Staged(
        repository="registry.example/team/tf",
        manifest=Manifest(digest=digest, media_type=MANIFEST, content=b"{}"),
        content=content,
        labels=(("io.rtbuild.cell", cell.id), ("io.rtbuild.matrix", cell.matrix)),
        platform=cell.platform,
        blobs=((digest, 0),),
    )


def policy(**changes: Any) -> Policy:
    """What is demanded of reports about it."""
    fields: dict[str, Any] = {
        "now": datetime.now(UTC),
        "probe": probe_sha256(),
        "expect": Expectation(
            python="3.11", frameworks=(("tensorflow", "2.15.1"),), cuda="12.2", cudnn="8.9.4"
        ),
    }
    return Policy(**fields | changes)


def entry(
    cell: Cell,
    *,
    digest: str = IMAGE,
    content: str = CONTENT,
    verified: datetime | None = None,
    where: str = "results/reports/x.json",
    **changes: Any,
) -> SealedReport:
    """A report whose seal holds, without a file."""
    document = report(**changes)
    key = key_of(content, parse(json.dumps(document)), digest)
    assert key is not None
    text = seal(key, document, cell=cell.id, matrix=cell.matrix, verified=verified or moment(days=1))
    return read_entry(text, where)
