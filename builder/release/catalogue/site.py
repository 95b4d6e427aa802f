"""Writes the catalogue as static pages: readable from a folder, by any static host, without JavaScript."""

import contextlib
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from builder import __version__
from builder.core import resources
from builder.core.documents import readable, shown
from builder.core.errors import CellError
from builder.core.files import write_whole
from builder.core.items import item
from builder.release.catalogue.collection import cell_frameworks
from builder.release.catalogue.values import Catalogue, CataloguedImage, Release, slug


def write_site(catalogue: Catalogue, folder: Path, *, made: str) -> list[Path]:
    """Write every page below ``folder``; return their paths. Each file is written beside and renamed.

    ``made`` is the date that the pages show: with the same one, the same catalogue gives the same bytes. The
    pages lead to the documentation if it lies in ``docs/`` there already (``make docs``).

    Raises CellError for the pages that cannot be made, when all others are written. An older page of that
    name is removed: what it says of an image may be true no longer.
    """
    docs = (folder / "docs" / "index.html").is_file()
    paths, failed = [], []
    for name, text_of in _pages(catalogue, made, docs=docs):
        path = folder / name
        try:
            with item(name):
                _write(path, text_of())
        except CellError as error:
            failed.append(error.message)
            with contextlib.suppress(OSError):
                path.unlink()
        else:
            paths.append(path)
    if failed:
        raise CellError(f"{len(failed)} pages are not written: {'; '.join(failed[:5])}")
    return paths


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not (path.is_file() and path.read_text("utf-8") == text):
        write_whole(path, text.encode())


def _environment() -> jinja2.Environment:
    def shown_value(value: object) -> object:
        """A page shows no gap, and nothing of a foreign text turns the order of its letters."""
        if value is None:
            raise jinja2.UndefinedError("a template shows a value that is None")
        if isinstance(value, markupsafe.Markup):
            return markupsafe.Markup(readable(value))  # noqa: S704 - it was safe before
        return readable(str(value))

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.templates() / "catalogue"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=shown_value,
    )
    environment.filters |= {"slug": _page_name, "shell": shlex.quote, "row": _row}
    return environment


def _page_name(text: str) -> str:
    """The name of the page of a card, a cause, a framework or a release, in lower case: the names of no two
    of one kind differ by case alone.
    """
    return slug(text.casefold().strip("-"))


def _row(text: str) -> str:
    """Text in a cell of a Markdown table."""
    return shown(text).replace("|", "\\|").replace("`", "'")


def _pages(catalogue: Catalogue, made: str, *, docs: bool) -> Iterator[tuple[str, Callable[[], str]]]:
    """The name of each page, and what makes its text."""
    environment = _environment()

    def page(
        name: str, template: str, more: Callable[[], dict[str, Any]] = dict, **values: Any
    ) -> tuple[str, Callable[[], str]]:
        def text() -> str:
            root = "../" * name.count("/")
            return environment.get_template(f"{template}.j2").render(root=root, **values, **more())

        return name, text

    by_framework: dict[str, list[Release]] = {}
    for release in catalogue.releases:
        by_framework.setdefault(release.framework, []).append(release)
    environment.globals |= {"rtbuild": __version__, "made": made, "docs": docs, "catalogue": catalogue}
    environment.globals |= {"frameworks": by_framework, "capabilities": catalogue.capabilities()}
    for text in ("style.css", "picker.js", "search.js"):
        yield text, partial((resources.templates() / "catalogue" / text).read_text, "utf-8")
    yield "data.js", partial(_common_data, catalogue)
    yield page("index.html", "index.html")
    yield page("catalogue.md", "catalogue.md")
    for name, releases in by_framework.items():
        yield f"data/{_page_name(name)}.js", partial(_framework_data, name, releases, catalogue)
        yield page(f"frameworks/{_page_name(name)}.html", "framework.html", releases=releases)
    yield page("images/index.html", "images.html")
    for image in catalogue.images:
        yield page(f"images/{image.page}", "image.html", partial(_image, image, catalogue))
    yield page("causes/index.html", "causes.html")
    for cause in catalogue.causes:
        yield page(f"causes/{_page_name(cause.id)}.html", "cause.html", cause=cause)
    yield page("cards/index.html", "cards.html")
    for card in catalogue.cards:
        newest = {
            name: next((r for r in releases if r.cards[card.capability].answer == "possible"), None)
            for name, releases in by_framework.items()
        }
        ran = [image for image in catalogue.images if card.name in image.works_on]
        yield page(f"cards/{_page_name(card.name)}.html", "card.html", card=card, newest=newest, ran=ran)


def _image(image: CataloguedImage, catalogue: Catalogue) -> dict[str, Any]:
    mine = dict(cell_frameworks(image.cell)).keys()
    near = [
        other
        for other in catalogue.images
        if other is not image and other.packages and mine & dict(cell_frameworks(other.cell)).keys()
    ][:6]
    return {
        "image": image,
        "neighbours": [
            (other.page, other.cell.id, _difference(image.packages, other.packages)) for other in near
        ],
        "colab": [
            (runtime.runtime, _difference(image.packages, {k: v for k, v in runtime.packages.items() if v}))
            for runtime in catalogue.runtimes
            if image.cell.profile == "colab"
        ],
    }


def _difference(mine: Mapping[str, str], other: Mapping[str, str]) -> dict[str, Any]:
    """Packages at another version, and how many only one of them has."""
    both = sorted(mine.keys() & other.keys())
    return {
        "changed": [(name, mine[name], other[name]) for name in both if mine[name] != other[name]],
        "only_here": len(mine.keys() - other.keys()),
        "only_there": len(other.keys() - mine.keys()),
    }


def _common_data(catalogue: Catalogue) -> str:
    """What the picker needs before a framework is chosen."""
    titles = {release.framework: release.title for release in catalogue.releases}
    data = {
        "capabilities": list(catalogue.capabilities()),
        "cards": [[card.name, card.capability] for card in catalogue.cards],
        "titles": titles,
        "files": {name: f"data/{_page_name(name)}.js" for name in titles},
        "frameworks": {},
    }
    return f"const RTBUILD = {_script(data)};\n"


def _framework_data(name: str, releases: Sequence[Release], catalogue: Catalogue) -> str:
    """One framework's releases and images, with short keys and each reason once.

    The release and the card are left open in a reason: "{v} has no code for {m}" serves many of both. So is
    an image's id in its page and its name. ``picker.js`` fills them in.
    """
    models = {capability: cards[0] for capability, cards in catalogue.capabilities().items()}
    sources: dict[str, int] = {}
    reasons: dict[tuple[str, int], int] = {}
    rows = []
    for release in releases:
        label = release.version + (f"+{release.variant}" if release.variant else "")
        found = [release.cards[capability] for capability in models]
        why = []
        for one, model in zip(found, models.values(), strict=True):
            text = one.reason.replace(label, "{v}").replace(model, "{m}")
            source = sources.setdefault(one.source, len(sources))
            why.append(reasons.setdefault((text, source), len(reasons)))
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
                "a": "".join(one.answer[0] for one in found),
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
    data = {"sources": list(sources), "reasons": list(reasons), "releases": rows, "images": images}
    return f"RTBUILD.frameworks[{_script(name)}] = {_script(data)};\n"


def _readable(data: Any) -> Any:
    if isinstance(data, str):
        return readable(data)
    if isinstance(data, dict):
        return {readable(str(key)): _readable(value) for key, value in data.items()}
    return [_readable(value) for value in data] if isinstance(data, (list, tuple)) else data


def _script(data: Any) -> str:
    """JSON inside a script, which ends at "</script>" and whose comments begin at "<!--" in any text."""
    return json.dumps(_readable(data), ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
