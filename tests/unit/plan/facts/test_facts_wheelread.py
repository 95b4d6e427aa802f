"""Reading members of a wheel that stays on its server, and every way in which a server can spoil it."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from dataclasses import dataclass

import pytest
import requests
from doubles.http_server import NOT_FOUND, Answer, Request, Server

from builder.plan.facts.reading.framework_wheel import read_wheel
from builder.plan.facts.reading.observed import truth_of
from builder.sources.index import archives
from builder.sources.index.simple_api import IndexFile
from builder.sources.net.http import Client

FILE = "torch-2.9.1-cp312-cp312-manylinux_2_28_x86_64.whl"
DIST_INFO = "torch-2.9.1.dist-info"
METADATA = b"""Metadata-Version: 2.4
Name: torch
Version: 2.9.1
Requires-Python: >=3.10
Requires-Dist: nvidia-cudnn-cu12==9.10.2.21; platform_system == "Linux"
Requires-Dist: numpy; extra == "opt"

A description. Requires-Dist: nothing
"""
HEAD = METADATA.decode().partition("\n\n")[0]
VERSION = b"from typing import Optional\n__version__ = '2.9.1+cu128'\ncuda: Optional[str] = '12.8'\n"


def wheel(members: int = 10, *, version_at: int = 3) -> bytes:
    """A wheel with a large member, many small ones and ``torch/version.py`` as the n-th of them."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("torch/lib/big.so"), b"\0" * 300_000)
        for n in range(members):
            archive.writestr(f"torch/include/{'x' * 60}{n:06}.h", b"PK\x01\x02 is no header here")
            if n == version_at:
                archive.writestr("torch/version.py", VERSION)
        archive.writestr(f"{DIST_INFO}/METADATA", METADATA)
    return out.getvalue()


@dataclass
class WheelHost:
    """One wheel below ``/files`` and its metadata beside it, answered well or as ``fault`` says."""

    server: Server
    content: bytes
    fault: str = ""

    @property
    def url(self) -> str:
        return f"{self.server.url}/files/{FILE}"

    @property
    def asked(self) -> list[str]:
        return [request.path for request in self.server.requests]

    def answer(self, request: Request) -> Answer:
        if request.path.endswith(".metadata"):
            return NOT_FOUND if self.fault == "no sibling" else Answer(200, METADATA)
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
        match self.fault:
            case "redirect" if "/moved/" not in request.path:
                return Answer(302, headers={"Location": self.url.replace("/files/", "/moved/")})
            case "redirect loop":
                return Answer(302, headers={"Location": self.url})
            case "gone":
                return NOT_FOUND
            case "html":
                return Answer(
                    200, b"<html>please log in</html>", {"Content-Type": "text/html; charset=utf-8"}
                )
        if wanted is None or self.fault == "no ranges":
            return Answer(200, self.content)
        start, last, body = self.part(wanted)
        size = len(self.content)
        match self.fault:
            case "other range":
                start, last, size = start + 7, last + 7, size + 7
            case "short":
                body = body[:-10]
            case "other bytes":
                body = bytes(len(body))
        told = "lines 1-2" if self.fault == "nonsense range" else f"bytes {start}-{last}/{size}"
        return Answer(206, body, {"Content-Range": told})

    def part(self, wanted: re.Match[str]) -> tuple[int, int, bytes]:
        end = len(self.content) - 1
        if wanted[1]:
            start, last = int(wanted[1]), min(int(wanted[2]), end)
        else:
            start, last = max(0, end + 1 - int(wanted[2])), end
        return start, last, self.content[start : last + 1]


def listed(url: str, **said) -> IndexFile:
    return IndexFile(**{"name": FILE, "url": url, "sha256": None} | said)


@pytest.fixture
def serve(server: Server):
    def start(content: bytes = b"") -> WheelHost:
        host = WheelHost(server, content or wheel())
        for folder in ("files", "moved"):
            for name in (FILE, f"{FILE}.metadata"):
                server.on(f"/{folder}/{name}", host.answer)
        return host

    return start


@pytest.fixture
def client():
    return Client(retries=0)


def truth_of_wheel(file: IndexFile, client: Client, cache):
    told = read_wheel(file, client, cache=cache)
    return truth_of(file.name, told, sha256=file.sha256), told


def test_truth_of_a_wheel(serve, client, tmp_path) -> None:
    server = serve()
    truth, told = truth_of_wheel(listed(server.url), client, cache=tmp_path)
    assert (truth.name, truth.version, truth.cuda, truth.cudnn) == (
        "torch",
        "2.9.1+cu128",
        "12.8",
        "9.10.2.21",
    )
    assert truth.requires_python == ">=3.10"
    assert truth.tags == ("cp312-cp312-manylinux_2_28_x86_64",)
    assert len(truth.requires) == 2
    assert truth.gpu is True
    assert told.unread == []
    assert told.read == dict.fromkeys(("gpu", "cuda", "version"), "torch/version.py")
    assert 0 < told.transferred < len(server.content)


@pytest.mark.parametrize("version_at", [3, 3000, 7000, 11_000])
def test_a_directory_of_a_megabyte_stays_within_the_limit(serve, client, tmp_path, version_at) -> None:
    server = serve(wheel(12_000, version_at=version_at))
    truth, told = truth_of_wheel(listed(server.url), client, cache=tmp_path)
    assert told.transferred <= archives.LIMIT
    if told.unread:
        assert "is larger than what is read of one" in told.unread[0]
        assert truth.cuda is None
    else:
        assert truth.cuda == "12.8"
    assert truth.requires_python == ">=3.10"


def test_the_metadata_sibling_is_used_and_its_hash_checked(serve, client, tmp_path) -> None:
    server = serve()
    good = hashlib.sha256(METADATA).hexdigest()
    told = read_wheel(listed(server.url, metadata=good), client, "metadata", cache=tmp_path)
    assert told.metadata == HEAD
    assert server.asked == [f"/files/{FILE}.metadata"]
    wrong = read_wheel(listed(server.url, metadata="0" * 64), client, "metadata", cache=tmp_path)
    assert wrong.metadata == HEAD
    assert f"/files/{FILE}" in server.asked  # from the wheel itself instead


def test_a_sibling_that_is_not_there_after_all(serve, client, tmp_path) -> None:
    server = serve()
    server.fault = "no sibling"
    told = read_wheel(listed(server.url, metadata=True), client, "metadata", cache=tmp_path)
    assert told.metadata == HEAD


def test_what_was_read_once_is_not_read_again(serve, client, tmp_path) -> None:
    server = serve()
    sha256 = hashlib.sha256(server.content).hexdigest()
    first, _ = truth_of_wheel(listed(server.url, sha256=sha256), client, tmp_path)
    asked = len(server.asked)
    again, told = truth_of_wheel(listed(server.url, sha256=sha256), client, tmp_path)
    assert again == first
    assert (told.transferred, len(server.asked)) == (0, asked)
    next(tmp_path.rglob("*.json")).write_text("{damaged")
    assert truth_of_wheel(listed(server.url, sha256=sha256), client, tmp_path)[0] == first


def test_redirects_are_followed(serve, client, tmp_path) -> None:
    server = serve()
    server.fault = "redirect"
    truth, told = truth_of_wheel(listed(server.url), client, tmp_path)
    assert truth.cuda == "12.8"
    assert told.unread == []


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("no ranges", "does not support ranges"),
        ("html", "answers with a page"),
        ("gone", "answers 404"),
        ("other range", "is not where its end says"),
        ("nonsense range", "sends the range 'lines 1-2'"),
        ("short", "were announced"),
        ("other bytes", "does not end as a zip file does"),
        ("redirect loop", "redirects"),
    ],
)
def test_a_server_that_spoils_it_makes_it_unknown_with_the_reason(
    serve, client, tmp_path, fault, reason
) -> None:
    server = serve()
    server.fault = fault
    sha256 = hashlib.sha256(server.content).hexdigest()
    truth, told = truth_of_wheel(listed(server.url, sha256=sha256), client, tmp_path)
    assert (truth.cuda, truth.cudnn, truth.gpu, truth.requires) == (None, None, None, ())
    assert len(told.unread) == 1
    assert reason in told.unread[0] or fault == "short"  # requests may notice first
    assert told.transferred < len(server.content)
    assert not list(tmp_path.rglob("*.json"))


def test_a_zip_that_is_no_wheel(serve, client, tmp_path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("hello.txt", "no wheel")
    _, told = truth_of_wheel(listed(serve(out.getvalue()).url), client, cache=tmp_path)
    assert "it holds no METADATA" in told.unread[0]


def test_a_size_that_the_index_does_not_give(serve, client, tmp_path) -> None:
    server = serve()
    _, told = truth_of_wheel(listed(server.url, size=12), client, cache=tmp_path)
    assert "the index says 12" in told.unread[0]


def test_a_server_that_is_not_there(client, tmp_path) -> None:
    truth, told = truth_of_wheel(listed(f"http://127.0.0.1:9/{FILE}"), client, tmp_path)
    assert truth.cuda is None
    assert told.unread


def test_a_damaged_member_is_not_believed(serve, client, tmp_path) -> None:
    content = bytearray(wheel())
    at = content.find(b"PK\x03\x04", content.find(b"torch/version.py") - 64)
    content[at + 30 + len("torch/version.py") + 12] ^= 0xFF
    truth, told = truth_of_wheel(listed(serve(bytes(content)).url), client, tmp_path)
    assert truth.cuda is None
    assert "torch/version.py" in told.unread[0]
    assert truth.requires_python == ">=3.10"


def test_a_plain_session_will_do(serve, tmp_path) -> None:
    with requests.Session() as session:
        truth, _ = truth_of_wheel(listed(serve().url), session, cache=tmp_path)
    assert truth.cuda == "12.8"
