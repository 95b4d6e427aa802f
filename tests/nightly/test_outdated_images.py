"""``rtbuild outdated`` of twenty images in a real registry, with the lists and pages of today.

They are small images, each with the provenance of a lock of this project and a report. The first run fetches
Debian's lists; the second, whose lists are warm, has the limit.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING

from doubles import small_image
from registry import serve
from rtbuild_command import rtbuild

from builder.plan.lock.file import pinned_cell, read_lock
from builder.plan.matrix import load
from builder.sources.net.http import Client
from builder.sources.oci.registry import Registry
from builder.verify.evidence.attach import attach_statements
from builder.verify.evidence.contents import provenance
from builder.verify.evidence.judgement import predicate_of
from builder.verify.evidence.statement import PROVENANCE, TEST_RESULT, Statement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.core.model import Pinned
    from builder.sources.oci.staging import Staged

MATRICES = Path(__file__).resolve().parents[2] / "matrices"
IMAGES = 20
LIMIT = 30.0
"""Seconds by the clock on a machine with nothing else to do, and of one processor on any."""


def locks() -> Iterator[Pinned]:
    """The locked cells of all matrices, one of each in turn."""
    rows = []
    for path in sorted(MATRICES.glob("*.lock.json")):
        cells = load(path.with_name(path.name.replace(".lock.json", ".yaml"))).cells
        lockfile = read_lock(path)
        rows.append([pinned for cell in cells if (pinned := pinned_cell(cell, lockfile)) is not None])
    return (pinned for row in itertools.zip_longest(*rows) for pinned in row if pinned is not None)


def published(registry: Registry, repository: str, folder: Path, pinned: Pinned) -> Staged:
    labels = {"io.rtbuild.lock": pinned.cell.id}
    image = small_image.push_image(registry, repository, folder, labels=labels, tag=pinned.cell.id)
    evidence = small_image.evidence(image, recipe=small_image.recipe(pinned))
    predicates = {
        TEST_RESULT: predicate_of(small_image.verification(image), image, claims=("T4",), exempt=()),
        PROVENANCE: provenance(evidence, image),
    }
    made = [
        Statement(subjects=(image.digest,), predicate_type=kind, predicate=predicate)
        for kind, predicate in predicates.items()
    ]
    attach_statements(registry, image, made, signer=None, note=lambda _text: None)
    return image


def _spent() -> float:
    """Seconds of processor of all commands that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_twenty_images_are_asked_about_in_half_a_minute(tmp_path: Path) -> None:
    with serve(tmp_path / "registry") as server:
        repository = f"{server.host}/team/kept"
        registry = Registry(client=Client(retries=0), login=lambda _host: None)
        for pinned in itertools.islice(locks(), IMAGES):
            published(registry, repository, tmp_path, pinned)
        rtbuild(tmp_path, "outdated", repository)
        load, before, started = os.getloadavg()[0], _spent(), time.monotonic()
        done = rtbuild(tmp_path, "outdated", repository, "--json")
        took, spent = time.monotonic() - started, _spent() - before
    cells = json.loads(done.stdout)["cells"]
    print(f"{len(cells)} images: {took:.1f} s, {spent:.1f} s of processor, load {load:.1f} before")
    assert len(cells) == IMAGES
    assert all(cell["lists"] for cell in cells)
    assert spent <= LIMIT
    assert took <= LIMIT or load > 0.5, "nothing else ran here"
