"""One project's page of a package index, JSON or HTML.

https://packaging.python.org/en/latest/specifications/simple-repository-api/
"""

import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from builder.documents import parse_object, shown

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"

# What tells a project without files from any page without links: PEP 629's version, or the usual heading.
_EMPTY_PAGE = re.compile(r'name="pypi:repository-version"|<(?:title|h1)>\s*Links for ', re.IGNORECASE)


_NAME = re.compile(r"[^/\\\x00-\x1f\x7f-\x9f\u200b-\u202e\u2060-\u2069]{1,255}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


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
        return tuple(_file(file, url) for file in parse_object(body)["files"])
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        msg = f"JSON that is no project page ({type(problem).__name__}: {problem})"
        raise NotAPageError(msg) from problem


def _file(file: Any, url: str) -> IndexFile:
    """One file of the JSON form. Raises LookupError, TypeError, AttributeError or ValueError."""
    size = file.get("size") or 0
    return IndexFile(
        name=_word(file["filename"]),
        url=_served(urljoin(url, file["url"])),
        sha256=_sha256(file.get("hashes", {}).get("sha256")),
        size=size if isinstance(size, int) and size >= 0 else 0,
        metadata=_sibling(file.get("core-metadata", file.get("dist-info-metadata"))),
        yanked=_yanked(file.get("yanked")),
        requires_python=_text(file.get("requires-python")),
    )


def _word(name: str) -> str:
    """A file's name; one that is none could be taken for another, or lead somewhere."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"a file is called {shown(name)!r}")
    return name


def _served(address: str) -> str:
    """An address of a server; an index that names a file of this machine has the resolver read that."""
    if urlsplit(address).scheme not in ("http", "https"):
        raise ValueError(f"a file is at {shown(address)!r}")
    return address


def _sha256(told: object) -> str | None:
    return told if isinstance(told, str) and _SHA256.fullmatch(told) else None


def _text(told: object) -> str | None:
    return told if isinstance(told, str) else None


def _sibling(told: Any) -> str | bool:
    if isinstance(told, dict):
        digest = told.get("sha256")
        return _sha256(digest) or True
    return bool(told)


def _yanked(told: Any) -> str | None:
    """``true``, or the reason as text."""
    if not told:
        return None
    return shown(told) if isinstance(told, str) else "no reason given"


def _from_html(body: str, url: str, *, certain: bool = False) -> tuple[IndexFile, ...]:
    anchors = _Anchors()
    try:
        anchors.feed(body)
        found = [_linked(anchors.base or url, *anchor) for anchor in anchors.found]
    except (ValueError, AssertionError) as problem:  # the parser asserts what it takes for impossible
        msg = f"an HTML page that is none of an index ({shown(str(problem))})"
        raise NotAPageError(msg) from problem
    files = [file for file in found if file is not None]
    if not files and (anchors.found or not (certain or _EMPTY_PAGE.search(body))):
        msg = "an HTML page without one package file"
        raise NotAPageError(msg)
    return tuple(files)


def _linked(base: str, href: str, yanked: str | None, python: str | None) -> IndexFile | None:
    """A file of the HTML form; None for a link to something else. Raises ValueError."""
    address, fragment = urldefrag(urljoin(base, href))
    name = unquote(urlsplit(address).path.rsplit("/", 1)[-1])
    if not name.endswith((".whl", ".tar.gz", ".zip", ".tar.bz2", ".egg")):
        return None
    algorithm, _, value = fragment.partition("=")
    return IndexFile(
        name=_word(name),
        url=_served(address),
        sha256=_sha256(value) if algorithm == "sha256" else None,
        yanked=None if yanked is None else shown(yanked) or "no reason given",
        requires_python=python,
    )


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
