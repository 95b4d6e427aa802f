"""Files by content: what a bad line, a bad server and a bad cache do to a download."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from doubles.http_server import Answer, Request, Server
from doubles.package_index import sha256

from builder.core.errors import MissingToolError, PackageIndexError, RegistryError, RegistrySilentError
from builder.sources.net import download

if TYPE_CHECKING:
    from pathlib import Path

    from builder.sources.net.http import Client

BODY = bytes(range(256)) * 4096


def bring(
    client: Client, urls: list[str], to: Path, *, body: bytes = BODY, size: int | None = None, **kw: object
) -> Path:
    return download.Download(
        client=client,
        urls=lambda: urls,
        what="thing.whl",
        sha256=sha256(body),
        size=len(body) if size is None else size,
        to=to,
        error=PackageIndexError,
        hint="do this",
        **kw,
    ).fetch()


def test_arrives_and_is_not_asked_for_again(server: Server, client: Client, tmp_path: Path) -> None:
    url = server.file("/thing.whl", BODY)
    counts: list[int] = []
    path = bring(client, [url], tmp_path / "a/b/thing.whl", progress=counts.append)
    assert path.read_bytes() == BODY
    assert sum(counts) == len(BODY)
    again: list[int] = []
    bring(client, [url], path, progress=again.append)
    assert len(server.requests) == 1
    assert again == [len(BODY)]
    assert not list(path.parent.glob("*.part"))


def test_without_a_network_the_missing_file_is_named(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the file's server is not known, or nobody can say where the file is."""

    def nobody() -> list[str]:
        raise RegistrySilentError("package index https://far.invalid/: the host name is unknown")

    asked = []

    def unknown(*_: object, **__: object) -> None:
        asked.append(1)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    to = tmp_path / "wheels/ab/thing.whl"
    with pytest.raises(PackageIndexError) as found:
        bring(client, ["http://far.invalid/thing.whl"], to)
    assert len(asked) == client.retries + 1, "tried as often as a request is, and not each time anew"
    wanted = download.Download(
        client=client, urls=nobody, what="thing", sha256="", size=0, to=to, error=RegistryError, hint=""
    )
    with pytest.raises(RegistrySilentError) as other:
        wanted.fetch()
    for error in (found.value, other.value):
        assert "host name is unknown" in error.message
        assert f"missing here: {to}" in error.message
        assert "RTBUILD_CACHE" in str(error.hint)


def test_a_server_that_was_reached_keeps_its_own_hint(server: Server, client: Client, tmp_path: Path) -> None:
    with pytest.raises(PackageIndexError) as found:
        bring(client, [f"{server.url}/absent", "http://127.0.0.1:1/"], tmp_path / "thing.whl")
    assert found.value.hint == "do this"
    assert "missing here" not in found.value.message


def test_a_broken_line_is_resumed_where_it_broke(server: Server, client: Client, tmp_path: Path) -> None:
    cut = 300_000

    def flaky(request: Request) -> Answer:
        wanted = request.headers.get("range")
        if wanted is None:
            return Answer(200, BODY, break_after=cut)
        start = int(wanted.removeprefix("bytes=").rstrip("-"))
        return Answer(206, BODY[start:], {"Content-Range": f"bytes {start}-{len(BODY) - 1}/{len(BODY)}"})

    server.on("/thing.whl", flaky)
    counts: list[int] = []
    path = bring(client, [server.url + "/thing.whl"], tmp_path / "thing.whl", progress=counts.append)
    assert path.read_bytes() == BODY
    assert sum(counts) == len(BODY)
    assert 0 < int(server.requests[1].headers["range"].removeprefix("bytes=").rstrip("-")) <= cut


def test_what_an_earlier_process_left_is_continued(server: Server, client: Client, tmp_path: Path) -> None:
    (tmp_path / "thing.whl.part").write_bytes(BODY[:5000])
    path = bring(client, [server.file("/thing.whl", BODY)], tmp_path / "thing.whl")
    assert path.read_bytes() == BODY
    assert server.requests[0].headers["range"] == "bytes=5000-"


@pytest.mark.parametrize(
    ("name", "link"), [("thing.whl.part", True), ("thing.whl.part", False), (".thing.whl.lock", True)]
)
def test_what_somebody_else_put_there_is_not_followed(
    server: Server, client: Client, tmp_path: Path, name: str, link: bool
) -> None:
    """In a cache that others may write to, too."""
    mine, cache = tmp_path / "mine", tmp_path / "cache"
    mine.write_text("x")
    cache.mkdir()
    if link:
        (cache / name).symlink_to(mine)
    else:
        os.mkfifo(cache / name)
    with pytest.raises(MissingToolError, match=r"symbolic links|No such device"):
        bring(client, [server.file("/thing.whl", BODY)], cache / "thing.whl")
    assert mine.read_text() == "x"


def test_a_name_that_is_none_of_a_file_fails_its_own_cell(client: Client, tmp_path: Path) -> None:
    with pytest.raises(PackageIndexError, match=r"thing\.whl has a longer name than a file may have"):
        bring(client, [], tmp_path / ("x" * 300))


def test_a_server_without_range_sends_it_all_again(server: Server, client: Client, tmp_path: Path) -> None:
    (tmp_path / "thing.whl.part").write_bytes(BODY[:5000])
    counts: list[int] = []
    path = bring(
        client,
        [server.file("/thing.whl", BODY, ranges=False)],
        tmp_path / "thing.whl",
        progress=counts.append,
    )
    assert path.read_bytes() == BODY
    assert sum(counts) == len(BODY)


@pytest.mark.parametrize(
    "left", [b"\0" * 5000, b"\0" * len(BODY), BODY + b"more"], ids=["short", "whole", "long"]
)
def test_a_bad_remainder_is_thrown_away_once(
    server: Server, client: Client, tmp_path: Path, left: bytes
) -> None:
    (tmp_path / "thing.whl.part").write_bytes(left)
    counts: list[int] = []
    path = bring(client, [server.file("/thing.whl", BODY)], tmp_path / "thing.whl", progress=counts.append)
    assert path.read_bytes() == BODY
    assert sum(counts) == len(BODY)


def test_a_range_that_starts_elsewhere_is_not_trusted(server: Server, client: Client, tmp_path: Path) -> None:
    (tmp_path / "thing.whl.part").write_bytes(BODY[:5000])

    def shifted(request: Request) -> Answer:
        if "range" in request.headers:
            return Answer(206, BODY[4000:], {"Content-Range": f"bytes 4000-{len(BODY) - 1}/{len(BODY)}"})
        return Answer(200, BODY)

    server.on("/thing.whl", shifted)
    assert bring(client, [server.url + "/thing.whl"], tmp_path / "thing.whl").read_bytes() == BODY


def test_another_content_is_refused_with_both_hashes(server: Server, client: Client, tmp_path: Path) -> None:
    other = bytes(len(BODY))
    url = server.file("/thing.whl", other)
    counts: list[int] = []
    with pytest.raises(PackageIndexError) as caught:
        bring(client, [url], tmp_path / "thing.whl", progress=counts.append)
    assert sha256(BODY) in caught.value.message
    assert sha256(other) in caught.value.message
    assert url in caught.value.message
    assert not (tmp_path / "thing.whl").exists()
    assert not (tmp_path / "thing.whl.part").exists()
    assert sum(counts) == 0


def test_a_login_page_is_named(server: Server, client: Client, tmp_path: Path) -> None:
    server.on(
        "/thing.whl", Answer(200, b"<html>sign in</html>", {"Content-Type": "text/html; charset=utf-8"})
    )
    with pytest.raises(PackageIndexError, match="login page"):
        bring(client, [server.url + "/thing.whl"], tmp_path / "thing.whl")


def test_more_than_expected_is_cut_off(server: Server, client: Client, tmp_path: Path) -> None:
    url = server.file("/thing.whl", BODY * 4)
    with pytest.raises(PackageIndexError, match=f"more than the {len(BODY)} bytes expected"):
        bring(client, [url], tmp_path / "thing.whl")


def test_a_body_without_length_that_ends_early_is_resumed(
    server: Server, client: Client, tmp_path: Path
) -> None:
    def silent_end(request: Request) -> Answer:
        if "range" in request.headers:
            start = int(request.headers["range"].removeprefix("bytes=").rstrip("-"))
            return Answer(206, BODY[start:], {"Content-Range": f"bytes {start}-{len(BODY) - 1}/{len(BODY)}"})
        return Answer(200, BODY[:9000], {"Connection": "close"})

    server.on("/thing.whl", silent_end)
    assert bring(client, [server.url + "/thing.whl"], tmp_path / "thing.whl").read_bytes() == BODY


def test_server_errors_are_retried_with_a_limit(server: Server, client: Client, tmp_path: Path) -> None:
    answers = [Answer(503), Answer(502), Answer(200, BODY)]
    server.on("/thing.whl", lambda _request: answers.pop(0))
    assert bring(client, [server.url + "/thing.whl"], tmp_path / "thing.whl").read_bytes() == BODY
    server.on("/other.whl", Answer(500))
    with pytest.raises(PackageIndexError, match="HTTP 500"):
        bring(client, [server.url + "/other.whl"], tmp_path / "other.whl")
    assert len(server.asked("/other.whl")) == client.retries + 1


def test_the_next_address_is_tried(server: Server, client: Client, tmp_path: Path) -> None:
    url = server.file("/thing.whl", BODY)
    assert bring(client, [server.url + "/gone", url], tmp_path / "thing.whl").read_bytes() == BODY
    with pytest.raises(PackageIndexError) as caught:
        bring(client, [server.url + "/gone", "http://user:secret@127.0.0.1:1/x"], tmp_path / "other.whl")
    assert "HTTP 404" in caught.value.message
    assert "connection refused" in caught.value.message
    assert "secret" not in str(caught.value)
    assert caught.value.hint == "do this"


def test_redirects_are_followed(server: Server, client: Client, tmp_path: Path) -> None:
    server.file("/real", BODY)
    server.on("/thing.whl", Answer(302, headers={"Location": "/real"}))
    assert bring(client, [server.url + "/thing.whl"], tmp_path / "thing.whl").read_bytes() == BODY


def test_several_at_once_download_one_file_once(server: Server, client: Client, tmp_path: Path) -> None:
    url = server.file("/thing.whl", BODY)
    threads = [threading.Thread(target=bring, args=(client, [url], tmp_path / "thing.whl")) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.requests) == 1
    assert (tmp_path / "thing.whl").read_bytes() == BODY


def test_a_full_disk_says_what_to_do(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    url = server.file("/thing.whl", BODY)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(download.Download, "_attempt", full)
    with pytest.raises(MissingToolError, match="no space left") as caught:
        bring(client, [url], tmp_path / "thing.whl")
    assert "RTBUILD_CACHE" in (caught.value.hint or "")
    assert "TMPDIR" in (caught.value.hint or "")


def test_together_stops_the_others_after_a_failure(tmp_path: Path) -> None:
    begun: list[str] = []

    def work(item: str, _report: object, stopped: object) -> Path:
        begun.append(item)
        if item == "bad":
            raise PackageIndexError("bad")
        while not stopped():
            threading.Event().wait(0.001)
        raise download.StoppedError("stopped")

    with pytest.raises(PackageIndexError, match="bad"):
        download.together([(["slow", "bad", *map(str, range(50))], 2)], work)
    assert len(begun) < 50


def test_together_stops_from_outside(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()

    def work(item: str, _report: object, stopped: object) -> Path:
        if stopped():
            raise download.StoppedError("stopped")
        return tmp_path

    with pytest.raises(download.StoppedError):
        download.together([(["a"], 1), (["b"], 1)], work, stop=stop)


def test_what_was_stopped_is_continued_by_the_next_run(
    server: Server, client: Client, tmp_path: Path
) -> None:
    url = server.file("/thing.whl", BODY)
    arrived: list[int] = []
    with pytest.raises(download.StoppedError, match=r"thing\.whl was stopped"):
        bring(client, [url], tmp_path / "thing.whl", progress=arrived.append, stop=lambda: sum(arrived) > 0)
    assert 0 < sum(arrived) < len(BODY)
    assert bring(client, [url], tmp_path / "thing.whl").read_bytes() == BODY
    assert server.requests[1].headers["range"] == f"bytes={sum(arrived)}-"
