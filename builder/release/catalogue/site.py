"""Writes the catalogue as static pages, readable from a folder, by any static host, without JavaScript; and
as documents for programs, ``api/v1/*.json``, at paths that stay.

Both are made of the same values; ``docs/catalogue.schema.json`` has the documents' form.
"""

import contextlib
import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from builder.plan.facts.tables import Source, load
from builder.plan.lock import pip_install
from builder.release.catalogue.collection import cell_frameworks
from builder.release.catalogue.values import (
    Branch,
    Card,
    Catalogue,
    CataloguedImage,
    Cause,
    Fit,
    Judgement,
    Release,
    Remark,
    slug,
)


def write_site(catalogue: Catalogue, folder: Path, *, made: str, site: str = "") -> list[Path]:
    """Write every page and document below ``folder``; return their paths. Each file is written beside and
    renamed.

    ``made`` is the date that the pages show: with the same one, the same catalogue gives the same bytes. The
    pages lead to the documentation if it lies in ``docs/`` there already (``make docs``). ``site`` is the
    address at which the folder is published, which each page and document then names.

    Raises CellError for the pages that cannot be made, when all others are written. An older page of that
    name is removed, and so is that of an image that the catalogue has no more: what it says may be true no
    longer.
    """
    docs = (folder / "docs" / "index.html").is_file()
    paths, failed = [], []
    for name, text_of in _pages(catalogue, made, docs=docs, site=site):
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
    there = {path.name for path in paths if path.parent == folder / "images"}
    for old in (folder / "images").glob("*.html"):
        if old.name not in there:
            old.unlink(missing_ok=True)
    if failed:
        raise CellError(f"{len(failed)} pages are not written: {'; '.join(failed[:5])}")
    return paths


def _write(path: Path, text: str) -> None:
    content = text.encode()
    if not (path.is_file() and path.read_bytes() == content):
        write_whole(path, content)


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
    environment.filters |= {"slug": page_name, "shell": shlex.quote, "row": _row, "path": release_path}
    environment.filters |= {"pip": _pip}
    return environment


def _pip(release: Release) -> str:
    return pip_install((release.requirement, *release.pins), release.index)


def _row(text: str) -> str:
    """Text in a cell of a Markdown table."""
    return shown(text).replace("|", "\\|").replace("`", "'")


def _pages(
    catalogue: Catalogue, made: str, *, docs: bool, site: str
) -> Iterator[tuple[str, Callable[[], str]]]:
    """The name of each page, and what makes its text."""
    environment = _environment()

    def page(
        name: str, template: str, more: Callable[[], dict[str, Any]] = dict, **values: Any
    ) -> tuple[str, Callable[[], str]]:
        def text() -> str:
            root = "../" * name.count("/")
            here = f"{site.rstrip('/')}/{name}" if site else ""
            return environment.get_template(f"{template}.j2").render(
                root=root, canonical=here, **values, **more()
            )

        return name, text

    by_framework, models = catalogue.by_framework(), catalogue.capabilities()
    environment.globals |= {"rtbuild": __version__, "made": made, "docs": docs, "catalogue": catalogue}
    environment.globals |= {"frameworks": by_framework, "capabilities": models}
    environment.globals |= {"ran": [image for image in catalogue.images if image.works_on]}
    environment.globals |= {"newest": catalogue.newest()}
    environment.globals |= {"titles": {card.name: card.title for card in catalogue.cards}}
    for text in ("style.css", "picker.js", "search.js"):
        yield text, partial((resources.templates() / "catalogue" / text).read_text, "utf-8")
    yield "data.js", partial(_common_data, catalogue)
    yield page("index.html", "index.html")
    yield page("catalogue.md", "catalogue.md")
    for name, releases in by_framework.items():
        yield f"data/{page_name(name)}.js", partial(_framework_data, name, releases, catalogue)
        yield page(f"frameworks/{page_name(name)}.html", "framework.html", releases=releases)
    for release in catalogue.releases:
        yield page(f"{release_path(release)}.html", "release.html", release=release)
    yield page("images/index.html", "images.html")
    for image in catalogue.images:
        yield page(f"images/{image.page}", "image.html", partial(_image, image, catalogue))
    yield page("causes/index.html", "causes.html")
    for cause in catalogue.causes:
        yield page(f"causes/{page_name(cause.id)}.html", "cause.html", cause=cause)
    yield page("cards/index.html", "cards.html")
    for card in catalogue.cards:
        ran = [image for image in catalogue.images if card.name in image.works_on]
        yield page(f"cards/{page_name(card.name)}.html", "card.html", card=card, ran=ran)
    yield page("drivers/index.html", "drivers.html")
    for branch in catalogue.branches:
        yield page(f"drivers/{page_name(branch.name)}.html", "driver.html", branch=branch)
    for name, document in documents(catalogue, made, site):
        yield name, partial(_document, document)


def _document(document: dict[str, Any]) -> str:
    return _script(document) + "\n"


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
    """The data that the picker needs before a framework is chosen."""
    titles = {release.framework: release.title for release in catalogue.releases}
    data = {
        "capabilities": list(catalogue.capabilities()),
        "cards": [
            [card.name, card.capability, card.title, card.listed or ""] for card in reversed(catalogue.cards)
        ],
        "kinds": {card.capability: [card.since or "", card.before or ""] for card in catalogue.cards},
        # tells two cards of one number apart
        "generations": {word: list(served) for word, served in load().generations.items()},
        "branches": {branch.name: branch.first or branch.name for branch in catalogue.branches},
        "titles": titles,
        "files": {name: f"data/{page_name(name)}.js" for name in titles},
        "frameworks": {},
    }
    return f"const RTBUILD = {_script(data)};\n"


def _framework_data(name: str, releases: Sequence[Release], catalogue: Catalogue) -> str:
    """One framework's releases and images, with short keys and each reason once.

    The release, the card and its number are left open in a reason: "{v} has no code for {m} ({c})" serves
    many of each. So is an image's id in its page and its name. ``picker.js`` fills them in.
    """
    sources: dict[str, int] = {}
    pins: dict[str, int] = {}
    bases: dict[tuple[tuple[str, str], ...], int] = {}
    reasons: dict[tuple[str, int], int] = {}
    models = {capability: cards[0] for capability, cards in catalogue.capabilities().items()}

    def reason(release: Release, model: str, text: str, source: str) -> int:
        text = text.replace(release.label, "{v}")
        if model:
            number = load().gpus[model.lower()].capability
            text = text.replace(model, "{m}")
            text = text.replace(f"{{m}} has {number}", "{m} has {c}").replace(
                f"{{m}} ({number})", "{m} ({c})"
            )
        return reasons.setdefault((text, sources.setdefault(source, len(sources))), len(reasons))

    def warned(release: Release, model: str, remarks: Sequence[Remark]) -> list[int]:
        return [
            reason(release, model, one.text, one.sources[-1].reference if one.sources else "")
            for one in remarks
        ]

    rows = []
    for release in releases:
        found = [release.cards[capability] for capability in models]
        why = [
            reason(release, model, one.reason, one.source)
            for one, model in zip(found, models.values(), strict=True)
        ]
        usual = Counter(why).most_common(1)[0][0]
        of_cards = {
            n: warned(release, model, one.warnings)
            for n, (one, model) in enumerate(zip(found, models.values(), strict=True))
            if one.warnings
        }
        rows.append(
            {
                "f": release.framework,
                "v": release.label,
                "r": release.requirement,
                "i": [pins.setdefault(pin, len(pins)) for pin in release.pins],
                "o": int(release.outside),
                "x": list(release.index),
                "p": list(release.pythons),
                "c": release.cuda,
                "n": release.cudnn,
                "d": release.driver,
                "a": "".join(one.answer[0] for one in found),
                "w": {"": usual} | {n: number for n, number in enumerate(why) if number != usual},
                "k": warned(release, "", release.warnings) if release.warnings else [],
                "l": of_cards,
                "e": [
                    [one.requirement, "".join(one.cards[capability].answer[0] for capability in models)]
                    for one in release.extensions
                ],
                "h": f"{release_path(release)}.html",
                "m": release.matrix,
                "b": bases.setdefault(tuple(release.bases.items()), len(bases)),
                "y": {platform: list(pythons) for platform, pythons in release.elsewhere.items()},
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
        "reasons": list(reasons),
        "pins": list(pins),
        "bases": list(map(dict, bases)),
    }
    data |= {"releases": rows, "images": images}
    return f"RTBUILD.frameworks[{_script(name)}] = {_script(data)};\n"


def _readable(data: Any) -> Any:
    if isinstance(data, str):
        return readable(data)
    if isinstance(data, dict):
        return {readable(str(key)): _readable(value) for key, value in data.items()}
    return [_readable(value) for value in data] if isinstance(data, (list, tuple)) else data


def _script(data: Any) -> str:
    """JSON, in a script as well: one ends at "</script>" and whose comments begin at "<!--" in any text."""
    return json.dumps(_readable(data), ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")


# -- documents for programs

ROOT = "api/v1"


def page_name(text: str) -> str:
    """The name of the page of a card, a cause, a framework or a release, in lower case: the names of no two
    of one kind differ by case alone.
    """
    return slug(text.casefold().strip("-"))


def release_path(release: Release) -> str:
    """``releases/torch/2.9.1+cu128``: of the page with ``.html``, of the document with ``.json``."""
    return f"releases/{page_name(release.framework)}/{page_name(release.label)}"


def documents(catalogue: Catalogue, made: str, site: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name of each document below the site's folder, and what it says.

    ``site`` is the address at which the site is published; empty if nobody said one.
    """

    def document(path: str, about: str, read: str, more: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        page = f"{path}.html"
        head = {"schema": 1, "kind": "catalogue", "about": about, "rtbuild": __version__, "made": made}
        where = {"page": page, "address": f"{site.rstrip('/')}/{page}" if site else None}
        return f"{ROOT}/{path}.json", {**head, "read": read or None, **where, **more}

    models = {capability: cards[0] for capability, cards in catalogue.capabilities().items()}
    newest = catalogue.newest()
    listed: dict[str, list[dict[str, Any]]] = {"releases": [], "cards": [], "drivers": [], "causes": []}
    for release in catalogue.releases:
        path = release_path(release)
        name = {"framework": release.framework, "release": release.label}
        listed["releases"].append({**name, "path": f"{path}.json"})
        yield document(path, "release", release.read, {**name, **_release(release, models)})
    for card in catalogue.cards:
        path = f"cards/{page_name(card.name)}"
        listed["cards"].append({"name": card.name, "title": card.title, "path": f"{path}.json"})
        yield document(path, "card", _day(card.sources), _card(card, catalogue, newest[card.capability]))
    for branch in catalogue.branches:
        path = f"drivers/{page_name(branch.name)}"
        listed["drivers"].append({"driver": branch.name, "path": f"{path}.json"})
        yield document(path, "driver", _day(branch.sources), _branch(branch))
    for cause in catalogue.causes:
        path = f"causes/{page_name(cause.id)}"
        listed["causes"].append({"id": cause.id, "title": cause.title, "path": f"{path}.json"})
        yield document(path, "cause", "", _cause(cause))
    read = max((release.read for release in catalogue.releases), default="")
    yield document("index", "index", read, listed)


def _day(sources: Iterable[Source]) -> str:
    return max((source.date or "" for source in sources), default="")


def _sources(sources: Sequence[Source]) -> list[dict[str, str | None]]:
    return [{"reference": source.reference, "date": source.date} for source in sources]


def _remarks(remarks: Sequence[Remark]) -> list[dict[str, Any]]:
    return [{"rule": one.rule, "text": one.text, "sources": _sources(one.sources)} for one in remarks]


def _judgement(found: Judgement, asked: str) -> dict[str, Any]:
    return {
        "answer": found.answer,
        "asked": asked,
        "reason": found.reason,
        "sources": _sources(found.sources),
        "warnings": _remarks(found.warnings),
    }


def _release(release: Release, models: Mapping[str, str]) -> dict[str, Any]:
    return {
        "title": release.title,
        "requirement": release.requirement,
        "pins": list(release.pins),
        "index": list(release.index),
        "outside": release.outside,
        "pythons": list(release.pythons),
        "cuda": release.cuda,
        "cudnn": release.cudnn,
        "driver": release.driver,
        "warnings": _remarks(release.warnings),
        "cards": {name: _judgement(release.cards[name], model) for name, model in models.items()},
        "extensions": [
            {
                "requirement": one.requirement,
                "cards": {name: one.cards[name].answer for name in models},
                "sources": _sources(one.sources),
            }
            for one in release.extensions
        ],
        "matrix": release.matrix,
        "sources": _sources(release.sources),
    }


def _fit(fit: Fit) -> dict[str, Any]:
    why = fit.why
    return {
        "framework": fit.framework,
        "release": fit.release.label if fit.release is not None else None,
        "requirement": fit.release.requirement if fit.release is not None else None,
        "path": f"{release_path(fit.release)}.json" if fit.release is not None else None,
        "dropped": None
        if why is None
        else {"release": fit.dropped, "reason": why.reason, "sources": _sources(why.sources)},
    }


def _card(card: Card, catalogue: Catalogue, newest: Sequence[Fit]) -> dict[str, Any]:
    return {
        "name": card.name,
        "title": card.title,
        "capability": card.capability,
        "driver": {"since": card.since, "listed": card.listed, "before": card.before},
        "newest": [_fit(fit) for fit in newest],
        "drivers": {
            branch.name: {
                fit.framework: fit.release.label if fit.release is not None else None
                for fit in branch.fits[card.capability]
            }
            for branch in catalogue.branches
            if card.may_run_on(branch.name)
        },
        "ran": [
            {
                "image": image.cell.id,
                "digest": run.digest,
                "driver": run.driver,
                "when": run.when.isoformat(),
                "report": run.evidence,
            }
            for image in catalogue.images
            if card.name in image.works_on
            for run in image.runs
            if run.card == card.name and run.verdict == "works"
        ],
        "sources": _sources(card.sources),
    }


def _branch(branch: Branch) -> dict[str, Any]:
    return {
        "driver": branch.name,
        "first": branch.first,
        "cards": {capability: [_fit(fit) for fit in fits] for capability, fits in branch.fits.items()},
        "sources": _sources(branch.sources),
    }


def _cause(cause: Cause) -> dict[str, Any]:
    return {
        "id": cause.id,
        "title": cause.title,
        "side": cause.side,
        "explanation": cause.explanation,
        "remedy": cause.remedy,
        "texts": list(cause.texts),
        "sources": [{"reference": cause.source, "date": None}],
    }
