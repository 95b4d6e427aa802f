"""A project's page is kept, asked for by its validator, and never believed unasked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from doubles.http_server import Answer, Request, Server
from doubles.package_index import PackageIndexDouble

from builder.core.errors import PackageIndexError
from builder.sources.index.client import Index
from builder.sources.index.uv import IndexSettings

if TYPE_CHECKING:
    from pathlib import Path

    from builder.sources.net.http import Client


class Counted:
    """A project's page with validators; how often it was sent whole, and how often a 304 was enough."""

    def __init__(self, server: Server, index: PackageIndexDouble, **headers: str) -> None:
        self.index, self.headers = index, headers
        self.whole = self.unchanged = 0
        server.on("/simple/a/", self.answer)

    def answer(self, request: Request) -> Answer:
        page = self.index._page("a")
        page.headers |= self.headers
        tag, day = self.headers.get("ETag"), self.headers.get("Last-Modified")
        if tag and request.headers.get("if-none-match") == tag:
            self.unchanged += 1
            return Answer(304)
        if not tag and day and request.headers.get("if-modified-since") == day:
            self.unchanged += 1
            return Answer(304)
        self.whole += 1
        return page


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RTBUILD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pages"


def files(url: str, client: Client) -> list[str]:
    """As another run sees them."""
    return [file.name for file in Index(IndexSettings(default=url), client=client).offers("a")]


@pytest.mark.parametrize("html", [False, True], ids=["json", "html"])
@pytest.mark.parametrize(
    "headers", [{"ETag": '"one"'}, {"Last-Modified": "Tue, 01 Jul 2025 10:00:00 GMT"}], ids=["tag", "day"]
)
def test_a_page_that_did_not_change_is_not_sent_again(
    server: Server, fake_index: PackageIndexDouble, client: Client, headers: dict[str, str], html: bool
) -> None:
    fake_index.html = html
    fake_index.add("a", "1.0")
    asked = Counted(server, fake_index, **headers)
    first, second = (Index(IndexSettings(default=fake_index.url), client=client).offers("a") for _ in "12")
    assert first == second  # addresses, hashes and all
    assert (asked.whole, asked.unchanged) == (1, 1)


def test_a_page_that_changed_is_seen_at_once(
    server: Server, fake_index: PackageIndexDouble, client: Client
) -> None:
    fake_index.add("a", "1.0")
    asked = Counted(server, fake_index, ETag='"one"')
    assert len(files(fake_index.url, client)) == 1
    fake_index.add("a", "2.0")
    asked = Counted(server, fake_index, ETag='"two"')
    assert len(files(fake_index.url, client)) == 2
    assert len(files(fake_index.url, client)) == 2
    assert (asked.whole, asked.unchanged) == (1, 1)


@pytest.mark.parametrize("headers", [{}, {"ETag": '"one"', "Cache-Control": "private, no-store"}])
def test_what_is_not_to_be_kept_is_not(
    server: Server, fake_index: PackageIndexDouble, client: Client, cache: Path, headers: dict[str, str]
) -> None:
    fake_index.add("a", "1.0")
    asked = Counted(server, fake_index, **headers)
    assert files(fake_index.url, client) == files(fake_index.url, client)
    assert (asked.whole, asked.unchanged) == (2, 0)
    assert not cache.exists()


@pytest.mark.parametrize("content", [b"", b"not JSON", b'{"status": 200, "rea', b'{"status": 200}'])
def test_what_is_damaged_is_fetched_again(
    server: Server, fake_index: PackageIndexDouble, client: Client, cache: Path, content: bytes
) -> None:
    fake_index.add("a", "1.0")
    asked = Counted(server, fake_index, ETag='"one"')
    expected = files(fake_index.url, client)
    (kept,) = cache.rglob("*.json")
    kept.write_bytes(content)
    assert files(fake_index.url, client) == expected
    assert (asked.whole, asked.unchanged) == (2, 0)
    assert files(fake_index.url, client) == expected
    assert (asked.whole, asked.unchanged) == (2, 1)


def test_an_index_that_is_down_is_not_covered_by_what_was_kept(
    server: Server, fake_index: PackageIndexDouble, client: Client
) -> None:
    fake_index.add("a", "1.0")
    Counted(server, fake_index, ETag='"one"')
    assert files(fake_index.url, client)
    server.on("/simple/a/", lambda _request: Answer(503))
    with pytest.raises(PackageIndexError, match="HTTP 503"):
        files(fake_index.url, client)


def test_a_login_is_in_the_name_by_its_hash_only(
    server: Server, fake_index: PackageIndexDouble, client: Client, cache: Path
) -> None:
    fake_index.add("a", "1.0")
    asked = Counted(server, fake_index, ETag='"one"')
    theirs = fake_index.url.replace("//", "//me:hunter2@")
    (file,) = Index(IndexSettings(default=theirs), client=client).offers("a")
    assert "me:hunter2@" in file.url
    assert files(fake_index.url, client)  # without the login: asked whole, not answered from another's
    assert (asked.whole, asked.unchanged) == (2, 0)
    assert len(list(cache.rglob("*.json"))) == 2
    assert not any(b"hunter2" in path.read_bytes() for path in cache.rglob("*.json"))
