"""One project's page of a package index, JSON or HTML, kept between runs and never believed unasked.

https://packaging.python.org/en/latest/specifications/simple-repository-api/

A page that came with a validator (``ETag``, ``Last-Modified``) is asked for again by it, and the server sends
the page only if it changed: https://www.rfc-editor.org/rfc/rfc9110#name-conditional-requests. One without
is fetched each time.
"""

import hashlib
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import requests
from packaging.utils import canonicalize_name

from builder.core import resources
from builder.core.documents import parse_object, redact, shown
from builder.core.errors import IndexSilentError
from builder.core.files import read_cached, write_cached
from builder.sources.net import Client, explain, remedy

_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_VALIDATORS = {"ETag": "If-None-Match", "Last-Modified": "If-Modified-Since"}
"""Headers by which a server marks a page's state, and those that ask by them."""

# What tells a project without files from any page without links: PEP 629's version, or the usual heading.
_EMPTY_PAGE = re.compile(r'name="pypi:repository-version"|<(?:title|h1)>\s*Links for ', re.IGNORECASE)
_NAME = re.compile(r"[^/\\\x00-\x1f\x7f-\x9f\u200b-\u202e\u2060-\u2069]{1,255}")


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
    uploaded: str | None = None
    """The day of its upload, ``2021-06-14``; None if the index does not say: https://peps.python.org/pep-0700/"""


class NotAPageError(ValueError):
    """The answer is neither form of a project page: a login page, a proxy's message, broken JSON."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page as it is kept."""

    text: str
    content_type: str
    url: str
    """The final address, without a login; links of the page are relative to it."""
    validators: dict[str, str]


def files(client: Client, index: str, project: str) -> tuple[IndexFile, ...]:
    """The files of a project's page, from the server or, if that says it did not change, from the cache.

    Empty if the index does not carry the project. Raises PackageIndexError.
    """
    url = f"{index}/{canonicalize_name(project)}/"
    # By the whole address: an index may list other files for another login, which is not kept itself.
    key = hashlib.sha256(f"{_ACCEPT}\n{url}".encode()).hexdigest()
    path = resources.cache() / "pages" / key[:2] / f"{key}.json"
    page = read_cached(path, lambda found: Page(**found | {"validators": dict(found["validators"])}))
    asking = {} if page is None else {_VALIDATORS[name]: text for name, text in page.validators.items()}
    try:
        response = client.get(url, headers={"Accept": _ACCEPT, **asking})
    except requests.RequestException as problem:
        raise unanswered(url, problem) from problem
    status, where = response.status_code, f"package index {redact(url)}"
    if status == 403 and "html" in response.headers.get("Content-Type", "").lower():
        hint = "ask who runs the proxy to allow this index, or name a mirror that it allows"
        raise IndexSilentError(f"{where}: HTTP 403 with a web page, as a proxy refuses", hint=hint)
    if status in (403, 404, 410):
        return ()  # PyTorch's index answers 403, with S3's XML, for a name it does not carry
    if page is None or status != 304:
        if status != 200:
            hint = "the index has a problem of its own: try again later"
            hint = "credentials belong into the index URL or ~/.netrc" if status == 401 else hint
            raise IndexSilentError(f"{where}: HTTP {status} {response.reason}", hint=hint)
        page = Page(
            text=response.text,
            content_type=response.headers.get("Content-Type", ""),
            url=redact(response.url),
            validators={name: response.headers[name] for name in _VALIDATORS if response.headers.get(name)},
        )
        # https://www.rfc-editor.org/rfc/rfc9111#name-no-store-2
        if page.validators and "no-store" not in response.headers.get("Cache-Control", "").lower():
            write_cached(path, vars(page))
    try:
        return parse(page.text, page.content_type, page.url)
    except NotAPageError as problem:
        hint = "is it the address of an index (often ending in /simple)? Does a proxy want a login?"
        raise IndexSilentError(f"{where} answers with {problem}", hint=hint) from problem


def unanswered(url: str, problem: requests.RequestException) -> IndexSilentError:
    why = explain(problem)
    hint = remedy(why) or "check the network, the proxy variables, and UV_DEFAULT_INDEX or pip.conf"
    return IndexSilentError(f"package index {redact(url)}: {why}", hint=hint)


def parse(body: str, content_type: str, url: str) -> tuple[IndexFile, ...]:
    """The files that a project page lists. ``url`` is the address the page finally came from."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind.endswith("json"):
        try:
            return tuple(_file(file, url) for file in parse_object(body)["files"])
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            what = f"{type(problem).__name__}: {problem}"
            raise NotAPageError(f"JSON that is no project page ({what})") from problem
    if kind.endswith("html"):
        return _from_html(body, url, certain=kind == "application/vnd.pypi.simple.v1+html")
    raise NotAPageError(f"an answer of type {kind or 'unknown'}")


def _file(file: Any, url: str) -> IndexFile:
    """One file of the JSON form. Raises LookupError, TypeError, AttributeError or ValueError."""
    size, python = file.get("size") or 0, file.get("requires-python")
    beside = file.get("core-metadata", file.get("dist-info-metadata"))
    return IndexFile(
        name=_word(file["filename"]),
        url=_served(file["url"], url),
        sha256=_sha256(file.get("hashes", {}).get("sha256")),
        size=size if isinstance(size, int) and size >= 0 else 0,
        metadata=_sha256(beside.get("sha256")) or True if isinstance(beside, dict) else bool(beside),
        yanked=_reason(file["yanked"]) if file.get("yanked") else None,
        requires_python=python if isinstance(python, str) else None,
        uploaded=_day(file.get("upload-time")),
    )


def _day(told: object) -> str | None:
    return told[:10] if isinstance(told, str) and re.match(r"\d{4}-\d\d-\d\dT", told) else None


def _word(name: str) -> str:
    """A file's name; one that is none could be taken for another, or lead somewhere."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"a file is called {shown(name)!r}")
    return name


_WHOLE = re.compile(r"https?://[A-Za-z0-9.-]+(?::[0-9]+)?/[!-~]*")
"""An address that is joined to no other, as most of the many thousands on a page are."""


def _served(named: str, page: str) -> str:
    """An address of a server; an index that names a file of this machine has the resolver read that."""
    if _WHOLE.fullmatch(named):
        return named
    address = urljoin(page, named)
    if urlsplit(address).scheme not in ("http", "https"):
        raise ValueError(f"a file is at {shown(address)!r}")
    return address


def _sha256(told: object) -> str | None:
    return told if isinstance(told, str) and re.fullmatch("[0-9a-f]{64}", told) else None


def _reason(yanked: object) -> str:
    """``true``, or the reason as text."""
    return shown(yanked if isinstance(yanked, str) else "") or "no reason given"


def _from_html(body: str, url: str, *, certain: bool) -> tuple[IndexFile, ...]:
    anchors = _Anchors()
    try:
        anchors.feed(body)
        found = [_linked(anchors.base or url, *anchor) for anchor in anchors.found]
    except (ValueError, AssertionError) as problem:  # the parser asserts what it takes for impossible
        raise NotAPageError(f"an HTML page that is none of an index ({shown(str(problem))})") from problem
    files = [file for file in found if file is not None]
    if not files and (anchors.found or not (certain or _EMPTY_PAGE.search(body))):
        raise NotAPageError("an HTML page without one package file")
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
        url=_served(address, base),
        sha256=_sha256(value) if algorithm == "sha256" else None,
        yanked=None if yanked is None else _reason(yanked),
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
