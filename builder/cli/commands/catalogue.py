"""``rtbuild catalogue``: the static site of working, possible and impossible combinations."""

import os
from datetime import UTC, datetime
from pathlib import Path

from builder.cli import options as opt
from builder.cli.console import print_json, say, show
from builder.core import resources
from builder.core.documents import shown
from builder.core.errors import UsageError
from builder.release.audit import Today
from builder.release.catalogue import CataloguedImage, collect, images_of, write_site
from builder.sources.oci import Registry, repository_of
from builder.verify.evidence import Verifier


def catalogue(
    matrices: list[Path] | None = opt.MATRICES,
    output: Path = opt.of("--output, -o: The folder to write.", Path("site")),
    results: Path = opt.RESULTS,
    repositories: list[str] | None = opt.of(
        "--from REPOSITORY: Show its images by the evidence beside them; without MATRIX those alone."
    ),
    key: str | None = opt.of("--key FILE|URI: With --from: count only what this public key signed."),
    outdated: bool = opt.of(
        "--outdated: Ask what is newer than each image, as `rtbuild outdated` does.", False
    ),
    mirror: list[str] | None = opt.MIRROR,
    json_: bool = opt.JSON,
) -> int:
    """Write a static site: which image, release and card work together, and how that is known."""
    if key and not repositories:
        raise UsageError("--key is for published images, and none is named", hint="--from REPOSITORY")
    # it counts first: https://reproducible-builds.org/specs/source-date-epoch/
    when = _moment(os.environ.get("SOURCE_DATE_EPOCH", ""))
    site = resources.site()
    chosen = opt.load_all(matrices) if matrices or (opt.matrix_files() and not repositories) else []
    registered: list[CataloguedImage] = []
    notes: list[str] = []
    registry, verifier = Registry.from_user(opt.mirrors(mirror)), Verifier(key=key) if key else None
    today = Today(registry, note=say) if outdated else None
    for text in repositories or ():
        now = datetime.now(UTC)
        images, doubts = images_of(
            registry, repository_of(text), now=now, verifier=verifier, say=say, today=today
        )
        registered += images
        notes += doubts
    if repositories and key is None:
        say("warning: no signature is looked at, and whoever may push there is believed: --key cosign.pub")
    found = collect(
        chosen,
        results=results,
        runtimes=chosen[0].path.parent if chosen else resources.matrices(),
        registered=registered,
        notes=notes,
        today=today,
    )
    for note in found.notes:
        say(f"warning: {shown(note, most=1000)}")
    with opt.writing(output):
        paths = write_site(found, output, made=when.date().isoformat(), site=site)
    pages = [path for path in paths if path.suffix == ".html"]
    documents = [path for path in paths if path.suffix == ".json"]
    counts = {"pages": len(pages), "documents": len(documents)}
    counts |= {"releases": len(found.releases), "images": len(found.images)}
    if json_:
        ran = sum(bool(image.works_on) for image in found.images)
        print_json({"schema": 1, "folder": str(output), **counts, "ran": ran, "notes": list(found.notes)})
    else:
        said = ", ".join(f"{count} {name}" for name, count in counts.items())
        show(f"{output / 'index.html'}: {said}")
    return 0


def _moment(epoch: str) -> datetime:
    """The moment of ``SOURCE_DATE_EPOCH``; now, if it is no number. Raises UsageError for one that is no
    date.
    """
    if not epoch.isdecimal():
        return datetime.now(UTC)
    try:
        return datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError) as error:
        said = f"SOURCE_DATE_EPOCH is no date: {shown(epoch, most=40)}"
        raise UsageError(said, hint="seconds since 1970, as `date +%s` prints them") from error
