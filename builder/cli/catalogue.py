"""``rtbuild catalogue``: the static site of working, possible and impossible combinations."""

import os
from datetime import UTC, datetime
from pathlib import Path

from builder import resources
from builder.catalogue.collect import collect
from builder.catalogue.registry import images_of
from builder.catalogue.site import write_site
from builder.catalogue.values import CataloguedImage
from builder.cli import options as opt
from builder.console import print_json, say, show
from builder.documents import shown
from builder.evidence.cosign import Verifier
from builder.oci.registry import Registry
from builder.oci.staging import repository_of


def catalogue(
    matrices: list[Path] | None = opt.MATRICES,
    output: Path = opt.of("--output, -o: The folder to write.", Path("site")),
    results: Path = opt.RESULTS,
    repositories: list[str] | None = opt.of(
        "--from REPOSITORY: Show its images by the evidence beside them; without MATRIX those alone.", None
    ),
    key: str | None = opt.of("--key FILE|URI: With --from: count only what this public key signed.", None),
    mirror: list[str] | None = opt.MIRROR,
    json_: bool = opt.JSON,
) -> int:
    """Write a static site: which image, release and card work together, and how that is known."""
    chosen = opt.load_all(matrices) if matrices or (opt.matrix_files() and not repositories) else []
    registered, notes = _registered(repositories or [], key, mirror)
    found = collect(
        chosen,
        results=results,
        runtimes=chosen[0].path.parent if chosen else resources.matrices(),
        registered=registered,
        notes=notes,
    )
    # it counts first: https://reproducible-builds.org/specs/source-date-epoch/
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    when = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdecimal() else datetime.now(UTC)
    pages = write_site(found, output, made=when.date().isoformat())
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
    registry, verifier = Registry.from_user(opt.mirrors(mirror)), Verifier(key=key) if key else None
    found, notes = [], []
    for text in repositories:
        repository, now = repository_of(text), datetime.now(UTC)
        images, doubts = images_of(registry, repository, now=now, verifier=verifier, say=say)
        found += images
        notes += doubts
    if repositories and key is None:
        say("warning: no signature is looked at, and whoever may push there is believed: --key cosign.pub")
    return found, notes
