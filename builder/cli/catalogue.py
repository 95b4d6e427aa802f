"""``rtbuild catalogue``: the static site of working, possible and impossible combinations."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from builder import resources
from builder.cli import options as opt
from builder.console import print_json, say, show
from builder.documents import shown

if TYPE_CHECKING:
    from builder.catalogue.values import CataloguedImage


def catalogue(
    matrices: opt.Matrices = None,
    output: Annotated[Path, opt.of("--output, -o: The folder to write.")] = Path("site"),
    results: opt.Results = Path("results"),
    repositories: Annotated[
        list[str] | None,
        opt.of("--from REPOSITORY: Show its images by the evidence beside them; without MATRIX those alone."),
    ] = None,
    key: Annotated[
        str | None, opt.of("--key FILE|URI: With --from: count only what this public key signed.")
    ] = None,
    mirror: opt.Mirror = None,
    json_: opt.Json = False,
) -> int:
    """Write a static site: which image, release and card work together, and how that is known."""
    from builder.catalogue import collect, write_site
    from builder.recipe.bundle import kept_bundle

    chosen = opt.load_all(matrices) if matrices or (opt.matrix_files() and not repositories) else []
    registered, notes = _registered(repositories or [], key, mirror)
    found = collect(
        chosen,
        results=results,
        runtimes=chosen[0].path.parent if chosen else resources.matrices(),
        probe=kept_bundle(resources.cache()),
        registered=registered,
        notes=notes,
    )
    pages = write_site(found, output, made=_today(), say=say)
    for note in found.notes:
        say(f"warning: {shown(note, most=1000)}")
    if json_:
        counts = {"pages": len(pages), "releases": len(found.releases), "images": len(found.images)}
        ran = sum(bool(image.works_on) for image in found.images)
        print_json({"schema": 1, "folder": str(output), **counts, "ran": ran, "notes": list(found.notes)})
    else:
        releases, images = len(found.releases), len(found.images)
        show(f"{output / 'index.html'}: {len(pages)} pages, {releases} releases, {images} images")
    return 0


def _registered(
    repositories: list[str], key: str | None, mirror: list[str] | None
) -> tuple[list[CataloguedImage], list[str]]:
    from builder.catalogue.registry import images_of
    from builder.evidence.cosign import Verifier
    from builder.oci.registry import Registry
    from builder.oci.staging import repository_of

    registry, found, notes = Registry.from_user(opt.mirrors(mirror)), [], []
    for text in repositories:
        images, doubts = images_of(
            registry,
            repository_of(text),
            now=datetime.now(UTC),
            verifier=Verifier(key=key) if key else None,
            say=say,
        )
        found += images
        notes += doubts
    if repositories and key is None:
        say("warning: no signature is looked at, and whoever may push there is believed: --key cosign.pub")
    return found, notes


def _today() -> str:
    """``SOURCE_DATE_EPOCH`` counts first: https://reproducible-builds.org/specs/source-date-epoch/"""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    when = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdecimal() else datetime.now(UTC)
    return when.date().isoformat()
