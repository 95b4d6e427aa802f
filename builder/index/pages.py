"""Project pages of a package index, kept between runs and never believed unasked.

A page that came with a validator (``ETag``, ``Last-Modified``) is asked for again by it, and the server sends
the page only if it changed: https://www.rfc-editor.org/rfc/rfc9110#name-conditional-requests. One without
is fetched each time.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder.files import write_whole
from builder.net.http import Client, redact

if TYPE_CHECKING:
    import requests


_SCHEMA = 1
_VALIDATORS = {"ETag": "If-None-Match", "Last-Modified": "If-Modified-Since"}
"""What a server says of a page, and the header that asks by it."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """An answer, from the server or as it was kept."""

    status: int
    reason: str
    text: str
    content_type: str
    url: str
    """The final address, without a login; links of the page are relative to it."""


def get(client: Client, url: str, *, accept: str, folder: Path) -> Page:
    """The page at ``url``; ``folder`` has the pages that earlier runs kept.

    Raises:
        requests.RequestException: the server did not answer.
    """
    path = _path(folder, url, accept)
    kept = _read(path)
    headers = {"Accept": accept}
    if kept is not None:
        headers |= {_VALIDATORS[name]: value for name, value in kept[1].items()}
    response = client.get(url, headers=headers)
    if kept is not None and response.status_code == 304:
        return kept[0]
    page = Page(
        status=response.status_code,
        reason=response.reason,
        text=response.text,
        content_type=response.headers.get("Content-Type", ""),
        url=redact(response.url),
    )
    validators = _validators(response)
    if validators:
        _write(path, page, validators)
    return page


def _validators(response: requests.Response) -> dict[str, str]:
    """Empty for a page that must not be kept: https://www.rfc-editor.org/rfc/rfc9111#name-no-store-2."""
    if response.status_code != 200 or "no-store" in response.headers.get("Cache-Control", "").lower():
        return {}
    return {name: response.headers[name] for name in _VALIDATORS if response.headers.get(name)}


def _path(folder: Path, url: str, accept: str) -> Path:
    """By the whole address: an index may list other files for another login, which is not kept itself."""
    key = hashlib.sha256(f"{accept}\n{url}".encode()).hexdigest()
    return folder / key[:2] / f"{key}.json.gz"


def _read(path: Path) -> tuple[Page, Mapping[str, str]] | None:
    try:
        document: Any = json.loads(gzip.decompress(path.read_bytes()))
        if document["schema"] != _SCHEMA:
            return None
        return Page(**document["page"]), {str(k): str(v) for k, v in document["validators"].items()}
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError):
        return None  # absent or damaged: fetched as if for the first time, and written anew


def _write(path: Path, page: Page, validators: Mapping[str, str]) -> None:
    document = {"schema": _SCHEMA, "page": vars(page), "validators": dict(validators)}
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, nothing else
        write_whole(path, gzip.compress(json.dumps(document).encode(), compresslevel=1), mode=0o600)
