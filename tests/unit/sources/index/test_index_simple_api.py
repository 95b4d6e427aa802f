"""Project pages of a package index, in both forms and in neither."""

from __future__ import annotations

import json

import pytest

from builder.sources.index.simple_api import IndexFile, NotAPageError, parse

SHA = "a" * 64
URL = "https://index.invalid/simple/thing/"


def test_json() -> None:
    page = {
        "files": [
            {"filename": "thing-1.whl", "url": "../../f/thing-1.whl", "hashes": {"sha256": SHA}, "size": 7},
            {"filename": "thing-2.whl", "url": "https://cdn.invalid/thing-2.whl", "hashes": {}},
        ]
    }
    assert parse(json.dumps(page), "application/vnd.pypi.simple.v1+json", URL) == (
        IndexFile(name="thing-1.whl", url="https://index.invalid/f/thing-1.whl", sha256=SHA, size=7),
        IndexFile(name="thing-2.whl", url="https://cdn.invalid/thing-2.whl", sha256=None),
    )


def test_html() -> None:
    page = """<!DOCTYPE html><html><head><base href="https://cdn.invalid/x/"></head><body>
    <a href="thing-1%2Bcu118-py3-none-any.whl#sha256=SHA" data-requires-python="&gt;=3.6">thing</a>
    <A HREF="/y/thing-2-py3-none-any.whl#md5=bb">thing</A><a name="top">no link</a><a href="/">home</a>
    </body></html>"""
    assert parse(page.replace("SHA", SHA), "text/html; charset=utf-8", URL) == (
        IndexFile(
            name="thing-1+cu118-py3-none-any.whl",
            url="https://cdn.invalid/x/thing-1%2Bcu118-py3-none-any.whl",
            sha256=SHA,
            requires_python=">=3.6",
        ),
        IndexFile(
            name="thing-2-py3-none-any.whl", url="https://cdn.invalid/y/thing-2-py3-none-any.whl", sha256=None
        ),
    )


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ('<html><head><meta name="pypi:repository-version" content="1.0"></head></html>', "text/html"),
        ("<!DOCTYPE html><html><body><h1>Links for thing</h1></body></html>", "text/html; charset=utf-8"),
        ("<html><body></body></html>", "application/vnd.pypi.simple.v1+html"),
    ],
)
def test_a_project_without_files(body: str, kind: str) -> None:
    assert parse(body, kind, URL) == ()


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("<html><a href='/login'>sign in</a></html>", "text/html", "without one package file"),
        ("<html><form>Your name: <input></form></html>", "text/html", "without one package file"),
        ("", "text/html", "without one package file"),
        ("{", "application/json", "JSON that is no project page"),
        ("[]", "application/json", "JSON that is no project page"),
        ('{"files": [{"url": "x"}]}', "application/json", "filename"),
        ("hello", "text/plain", "text/plain"),
        ("", "", "unknown"),
    ],
)
def test_something_else(body: str, kind: str, words: str) -> None:
    with pytest.raises(NotAPageError, match=words):
        parse(body, kind, URL)


def test_what_was_yanked_and_where_the_metadata_is() -> None:
    files = [
        {"filename": "a-1.whl", "url": "a", "yanked": "broken", "core-metadata": {"sha256": "c" * 64}},
        {"filename": "a-2.whl", "url": "a", "yanked": True, "dist-info-metadata": True},
        {"filename": "a-3.whl", "url": "a", "yanked": False, "core-metadata": False},
    ]
    told = parse(json.dumps({"files": files}), "application/json", URL)
    assert [(f.yanked, f.metadata) for f in told] == [
        ("broken", "c" * 64),
        ("no reason given", True),
        (None, False),
    ]
    marks = (" data-yanked='broken'", " data-yanked", "")
    page = "".join(f"<a href='a-{n}.whl'{mark}>a</a>" for n, mark in enumerate(marks))
    assert [f.yanked for f in parse(page, "text/html", URL)] == ["broken", "no reason given", None]


@pytest.mark.parametrize(
    "address", ["file:///etc/thing-1.whl", "javascript:thing-1.whl", "ftp://x/thing-1.whl"]
)
def test_an_index_names_no_file_of_this_machine(address: str) -> None:
    """The resolver would read it."""
    page = json.dumps({"files": [{"filename": "thing-1.whl", "url": address, "hashes": {}}]})
    for body, kind in (
        (page, "application/vnd.pypi.simple.v1+json"),
        (f'<a href="{address}">x</a>', "text/html"),
    ):
        with pytest.raises(NotAPageError):
            parse(body, kind, URL)


@pytest.mark.parametrize("text", ["aa", "A" * 64, "a" * 65, "../" + "a" * 61, 5, None])
def test_a_hash_that_is_none_is_none(text: object) -> None:
    page = json.dumps({"files": [{"filename": "thing-1.whl", "url": "a.whl", "hashes": {"sha256": text}}]})
    (file,) = parse(page, "application/vnd.pypi.simple.v1+json", URL)
    assert file.sha256 is None


@pytest.mark.parametrize(
    ("named", "address"),
    [
        ("https://files.example/a/b-1.tar.gz", "https://files.example/a/b-1.tar.gz"),
        ("http://127.0.0.1:8080/b-1.tar.gz?x=1", "http://127.0.0.1:8080/b-1.tar.gz?x=1"),
        ("../../files/b-1.tar.gz", "https://index.example/files/b-1.tar.gz"),
        ("//other.example/b-1.tar.gz", "https://other.example/b-1.tar.gz"),
        ("https://files.example/a\t/b-1.tar.gz", "https://files.example/a/b-1.tar.gz"),
    ],
)
def test_an_address_is_as_a_browser_joins_it(named: str, address: str) -> None:
    body = json.dumps({"files": [{"filename": "b-1.tar.gz", "url": named}]})
    (file,) = parse(body, "application/vnd.pypi.simple.v1+json", "https://index.example/simple/b/")
    assert file.url == address


@pytest.mark.parametrize("named", ["file:///etc/passwd", "ftp://files.example/b", "https://[/b"])
def test_an_address_of_no_server_is_no_page(named: str) -> None:
    body = json.dumps({"files": [{"filename": "b-1.tar.gz", "url": named}]})
    with pytest.raises(NotAPageError):
        parse(body, "application/vnd.pypi.simple.v1+json", "https://index.example/simple/b/")
