"""One project's page of a package index, JSON or HTML.

https://packaging.python.org/en/latest/specifications/simple-repository-api/
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"

# What tells a project without files from any page without links: PEP 629's version, or the usual heading.
_EMPTY_PAGE = re.compile(r'name="pypi:repository-version"|<(?:title|h1)>\s*Links for ', re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class IndexFile:
    """A file as an index offers it. ``sha256`` is None if the index gives none."""

    name: str
    url: str
    sha256: str | None
    size: int = 0
    metadata: str | bool = False
    """The sha256 of the metadata file beside it; True for one without a hash, False if there is none."""
    yanked: str | None = None
    """Why its maker took it back, as far as the index says; None for a file that stands."""
    requires_python: str | None = None
    """``Requires-Python`` of its metadata, if the index repeats it: ``>=3.10``."""


class NotAPageError(ValueError):
    """The answer is neither form of a project page: a login page, a proxy's message, broken JSON."""


def parse(body: str, content_type: str, url: str) -> tuple[IndexFile, ...]:
    """The files that a project page lists. ``url`` is the address the page finally came from."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind.endswith("json"):
        return _from_json(body, url)
    if kind == "application/vnd.pypi.simple.v1+html":
        return _from_html(body, url, certain=True)
    if kind.endswith("html"):
        return _from_html(body, url)
    msg = f"an answer of type {kind or 'unknown'}"
    raise NotAPageError(msg)


def _from_json(body: str, url: str) -> tuple[IndexFile, ...]:
    try:
        document = json.loads(body)
        return tuple(
            IndexFile(
                name=file["filename"],
                url=urljoin(url, file["url"]),
                sha256=file.get("hashes", {}).get("sha256"),
                size=file.get("size") or 0,
                metadata=_sibling(file.get("core-metadata", file.get("dist-info-metadata"))),
                yanked=_yanked(file.get("yanked")),
                requires_python=file.get("requires-python"),
            )
            for file in document["files"]
        )
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        msg = f"JSON that is no project page ({type(problem).__name__}: {problem})"
        raise NotAPageError(msg) from problem


def _sibling(told: Any) -> str | bool:
    if isinstance(told, dict):
        digest = told.get("sha256")
        return digest if isinstance(digest, str) else True
    return bool(told)


def _yanked(told: Any) -> str | None:
    """``true``, or the reason as text."""
    if not told:
        return None
    return told if isinstance(told, str) else "no reason given"


def _from_html(body: str, url: str, *, certain: bool = False) -> tuple[IndexFile, ...]:
    anchors = _Anchors()
    anchors.feed(body)
    files = []
    for href, yanked, python in anchors.found:
        address, fragment = urldefrag(urljoin(anchors.base or url, href))
        name = unquote(urlsplit(address).path.rsplit("/", 1)[-1])
        if name.endswith((".whl", ".tar.gz", ".zip", ".tar.bz2", ".egg")):
            algorithm, _, value = fragment.partition("=")
            files.append(
                IndexFile(
                    name=name,
                    url=address,
                    sha256=value if algorithm == "sha256" else None,
                    yanked=None if yanked is None else yanked or "no reason given",
                    requires_python=python,
                )
            )
    if not files and (anchors.found or not (certain or _EMPTY_PAGE.search(body))):
        msg = "an HTML page without one package file"
        raise NotAPageError(msg)
    return tuple(files)


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str | None, str | None]] = []
        """Address, reason of a yank, Requires-Python."""
        self.base: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        href = found.get("href")
        if href is None:
            return
        if tag == "a":
            yanked = (found["data-yanked"] or "") if "data-yanked" in found else None
            self.found.append((href, yanked, found.get("data-requires-python")))
        elif tag == "base":
            self.base = href
