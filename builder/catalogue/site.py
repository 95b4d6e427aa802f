"""Writes the catalogue as static pages: readable from a folder, by any static host, without JavaScript."""

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jinja2

from builder import __version__, resources
from builder.catalogue.collect import cell_frameworks
from builder.catalogue.values import Catalogue, CataloguedImage, Release, slug
from builder.documents import shown
from builder.files import write_whole

_ANSWERS = {"possible": "p", "impossible": "i", "unknown": "u"}
_NEIGHBOURS = 6
_BARS = 14
"""Parts of an image that are drawn; the rest is one bar."""


def write_site(
    catalogue: Catalogue, folder: Path, *, made: str, say: Callable[[str], None] = lambda _text: None
) -> list[Path]:
    """Write every page below ``folder``; return their paths. Each file is written beside and renamed.

    ``made`` is the date that the pages show: with the same one, the same catalogue gives the same bytes. The
    pages lead to the documentation if it lies in ``docs/`` there already (``make docs``).
    """
    docs = (folder / "docs" / "index.html").is_file()
    pages = dict(_pages(catalogue, made, docs=docs))
    for number, (name, text) in enumerate(pages.items(), 1):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not (path.is_file() and path.read_text("utf-8") == text):
            write_whole(path, text.encode())
        if number % 500 == 0:
            say(f"{number} of {len(pages)} pages")
    return [folder / name for name in pages]


def _environment() -> jinja2.Environment:
    def no_gap(value: object) -> object:
        if value is None:
            raise jinja2.UndefinedError("a template shows a value that is None")
        return value

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.templates() / "catalogue"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=no_gap,
    )
    environment.filters |= {"slug": _page_name, "shell": shlex.quote, "row": _row}
    return environment


def _page_name(text: str) -> str:
    """Of a card, a cause, a framework or a release: no two of one kind differ by case alone."""
    return slug(text.casefold().strip("-"))


def _row(text: str) -> str:
    """Text in a cell of a Markdown table."""
    return shown(text).replace("|", "\\|").replace("`", "'")


def _pages(catalogue: Catalogue, made: str, *, docs: bool) -> Iterator[tuple[str, str]]:
    environment = _environment()
    environment.globals |= {"rtbuild": __version__, "made": made, "docs": docs}

    def page(template: str, depth: int = 0, **values: Any) -> str:
        return environment.get_template(template).render(root="../" * depth, **values)

    by_framework: dict[str, list[Release]] = {}
    for release in catalogue.releases:
        by_framework.setdefault(release.framework, []).append(release)
    capabilities: dict[str, list[str]] = {}
    for card in catalogue.cards:
        capabilities.setdefault(card.capability, []).append(card.name)
    texts = resources.templates() / "catalogue"
    yield "style.css", (texts / "style.css").read_text("utf-8")
    for script in ("picker.js", "search.js"):
        yield script, (texts / script).read_text("utf-8")
    yield "data.js", _common_data(catalogue)
    yield "index.html", page("index.html.j2", catalogue=catalogue, frameworks=by_framework)
    yield "catalogue.md", page("catalogue.md.j2", catalogue=catalogue)
    for name, releases in by_framework.items():
        yield f"data/{_page_name(name)}.js", _framework_data(name, releases, catalogue)
        yield (
            f"frameworks/{_page_name(name)}.html",
            page(
                "framework.html.j2", 1, releases=releases, capabilities=capabilities, title=releases[0].title
            ),
        )
    yield "images/index.html", page("images.html.j2", 1, catalogue=catalogue)
    for image in catalogue.images:
        yield f"images/{image.page}", page("image.html.j2", 1, **_image(image, catalogue))
    yield "causes/index.html", page("causes.html.j2", 1, catalogue=catalogue)
    for cause in catalogue.causes:
        yield f"causes/{_page_name(cause.id)}.html", page("cause.html.j2", 1, cause=cause)
    titles = {name: releases[0].title for name, releases in by_framework.items()}
    yield "cards/index.html", page("cards.html.j2", 1, capabilities=capabilities)
    for card in catalogue.cards:
        newest = {
            name: next((r for r in releases if r.cards[card.capability].answer == "possible"), None)
            for name, releases in by_framework.items()
        }
        ran = [image for image in catalogue.images if card.name in image.works_on]
        yield (
            f"cards/{_page_name(card.name)}.html",
            page("card.html.j2", 1, card=card, newest=newest, ran=ran, titles=titles),
        )


def _image(image: CataloguedImage, catalogue: Catalogue) -> dict[str, Any]:
    drawn = list(image.parts[:_BARS])
    rest = sum(part.size for part in image.parts[_BARS:])
    packages = dict(image.packages)
    mine = {name for name, _ in cell_frameworks(image.cell)}
    near = [
        other
        for other in catalogue.images
        if other is not image and other.packages and mine & {name for name, _ in cell_frameworks(other.cell)}
    ][:_NEIGHBOURS]
    return {
        "image": image,
        "drawn": drawn,
        "rest": rest,
        "whole": image.size,
        "packages": sorted(packages.items()),
        "neighbours": [
            (other.page, other.cell.id, _difference(packages, dict(other.packages))) for other in near
        ],
        "colab": [
            (runtime.runtime, _difference(packages, {k: v for k, v in runtime.packages.items() if v}))
            for runtime in catalogue.runtimes
            if image.cell.profile == "colab"
        ],
    }


def _difference(mine: dict[str, str], other: dict[str, str]) -> dict[str, Any]:
    """Packages at another version, and how many only one of them has."""
    changed = [
        (name, mine[name], other[name])
        for name in sorted(mine.keys() & other.keys())
        if mine[name] != other[name]
    ]
    return {
        "changed": changed,
        "only_here": len(mine.keys() - other.keys()),
        "only_there": len(other.keys() - mine.keys()),
    }


def _common_data(catalogue: Catalogue) -> str:
    """What the picker needs before a framework is chosen."""
    data = {
        "capabilities": list(_models(catalogue)),
        "cards": [[card.name, card.capability] for card in catalogue.cards],
        "titles": {release.framework: release.title for release in catalogue.releases},
        "files": {
            release.framework: f"data/{_page_name(release.framework)}.js" for release in catalogue.releases
        },
        "frameworks": {},
    }
    return f"const RTBUILD = {_script(data)};\n"


def _framework_data(name: str, releases: Sequence[Release], catalogue: Catalogue) -> str:
    """One framework's releases and images, with short keys and each reason once.

    The release and the card are left open in a reason: "{v} has no code for {m}" serves many of both. So is
    an image's id in its page and its name. ``picker.js`` fills them in.
    """
    models = _models(catalogue)
    sources: dict[str, int] = {}
    reasons: dict[tuple[str, int], int] = {}
    rows = []
    for release in releases:
        label = release.version + (f"+{release.variant}" if release.variant else "")
        found = [release.cards[capability] for capability in models]
        why = []
        for one, model in zip(found, models.values(), strict=True):
            text = one.reason.replace(label, "{v}").replace(model, "{m}")
            row = text, sources.setdefault(one.source, len(sources))
            why.append(reasons.setdefault(row, len(reasons)))
        rows.append(
            {
                "f": release.framework,
                "v": label,
                "r": release.requirement,
                "x": list(release.index),
                "p": list(release.pythons),
                "c": release.cuda,
                "n": release.cudnn,
                "d": release.driver,
                "a": "".join(_ANSWERS[one.answer] for one in found),
                "w": why if len(set(why)) > 1 else why[:1],
                "m": release.matrix,
                "b": dict(release.bases),
            }
        )
    images = [
        [
            image.cell.id,
            image.page.replace(image.cell.id, "{i}"),
            image.cell.python,
            version,
            shlex.quote(image.published).replace(image.cell.id, "{i}") if image.published else "",
            int(image.cell.profile == "colab"),
            *(
                [run.card, run.driver, run.when.date().isoformat(), run.gpu]
                for run in image.runs
                if run.card in image.works_on and run.verdict == "works"
            ),
        ]
        for image in catalogue.images
        for framework, version in cell_frameworks(image.cell)
        if framework.partition("-cuda")[0] == name and (image.published or image.runs or image.parts)
    ]
    data = {
        "sources": list(sources),
        "reasons": [list(pair) for pair in reasons],
        "releases": rows,
        "images": images,
    }
    return f"RTBUILD.frameworks[{_script(name)}] = {_script(data)};\n"


def _models(catalogue: Catalogue) -> dict[str, str]:
    """By compute capability the model for which :func:`builder.catalogue.releases.releases_of` asked."""
    found: dict[str, str] = {}
    for card in catalogue.cards:
        found.setdefault(card.capability, card.name)
    return found


def _script(data: Any) -> str:
    """JSON inside a script, which ends at "</script>" and whose comments begin at "<!--" in any text."""
    return json.dumps(data, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
