"""The catalogue as documents for programs: ``api/v1/*.json``, at paths that stay.

They are made of the same values as the pages; ``docs/catalogue.schema.json`` has their form.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from builder import __version__
from builder.plan.facts.tables import Source
from builder.release.catalogue.values import (
    Branch,
    Card,
    Catalogue,
    Cause,
    Fit,
    Judgement,
    Release,
    Remark,
    slug,
)

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
