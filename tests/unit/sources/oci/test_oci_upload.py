"""Writing to a registry: what is tried again, what is mounted, for which scopes a token is asked."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from doubles.http_server import Answer, Request, Server
from doubles.package_index import sha256

from builder.core.errors import RegistryError
from builder.sources.oci.registry import Registry
from builder.sources.oci.wire import Login

if TYPE_CHECKING:
    from pathlib import Path

    from builder.sources.net.http import Client

CONTENT = b"a layer"
DIGEST = f"sha256:{sha256(CONTENT)}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "blob").write_bytes(CONTENT)
    return tmp_path / "blob"


@pytest.fixture
def registry(client: Client, server: Server) -> Registry:
    server.on("/v2/", Answer(200, b"{}"))
    return Registry(client=client, login=lambda _host: None)


def taking(server: Server, *answers: Answer) -> None:
    """RegistryUpload are begun, and end as ``answers`` say, the last one from then on."""
    left = list(answers)
    server.on("/v2/a/b/blobs/uploads/", Answer(202, b"", {"Location": "/v2/a/b/blobs/uploads/1?state=x"}))
    server.on("/v2/a/b/blobs/uploads/1", lambda _request: left.pop(0) if len(left) > 1 else left[0])


def test_an_upload_is_begun_where_the_registry_says_and_ended_with_the_digest(
    server: Server, registry: Registry, file: Path
) -> None:
    taking(server, Answer(201))
    assert registry.push_blob(f"{server.host}/a/b", DIGEST, file) is True
    (sent,) = server.asked("/v2/a/b/blobs/uploads/1")
    assert (sent.method, sent.body) == ("PUT", CONTENT)
    assert sent.query == {"state": ["x"], "digest": [DIGEST]}


@pytest.mark.parametrize("answer", [Answer(503), Answer(429), Answer(404), Answer(500)])
def test_an_upload_that_failed_is_begun_anew(
    server: Server, registry: Registry, file: Path, answer: Answer
) -> None:
    """404: the upload is gone, as after a restart. Four answers: the client repeats a PUT by itself."""
    taking(server, *[answer] * (1 if answer.status == 404 else 4), Answer(201))
    assert registry.push_blob(f"{server.host}/a/b", DIGEST, file) is True
    assert [request.body for request in server.asked("/v2/a/b/blobs/uploads/1")][-1] == CONTENT
    assert len(server.asked("/v2/a/b/blobs/uploads/")) == 2


def test_an_upload_that_is_refused_is_not(server: Server, registry: Registry, file: Path) -> None:
    taking(server, Answer(403, b'{"errors": [{"code": "DENIED", "message": "quota"}]}'))
    with pytest.raises(RegistryError, match="quota"):
        registry.push_blob(f"{server.host}/a/b", DIGEST, file)
    assert len(server.asked("/v2/a/b/blobs/uploads/")) == 1


def test_a_registry_that_asks_for_a_pause_gets_a_short_one(
    server: Server, registry: Registry, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[float] = []
    monkeypatch.setattr("builder.sources.oci.wire.time.sleep", paused.append)
    answers = [Answer(429, b"", {"Retry-After": "3600"}), Answer(202, b"", {"Location": "/v2/a/b/up"})]
    server.on("/v2/a/b/blobs/uploads/", lambda _request: answers.pop(0))
    server.on("/v2/a/b/up", Answer(201))
    assert registry.push_blob(f"{server.host}/a/b", DIGEST, file) is True
    assert paused == [30.0]


def test_a_blob_is_mounted_from_a_repository_of_the_same_registry(server: Server, registry: Registry) -> None:
    server.on("/v2/a/b/blobs/uploads/", Answer(201))
    assert registry.mount_blob(f"{server.host}/a/b", DIGEST, f"{server.host}/c/d") is True
    (asked,) = server.asked("/v2/a/b/blobs/uploads/")
    assert asked.query == {"mount": [DIGEST], "from": ["c/d"]}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405])
def test_a_registry_that_does_not_mount(server: Server, registry: Registry, status: int) -> None:
    server.on("/v2/a/b/blobs/uploads/", Answer(status))
    assert registry.mount_blob(f"{server.host}/a/b", DIGEST, f"{server.host}/c/d") is False


def test_an_upload_that_was_begun_in_place_of_a_mount_is_given_up(server: Server, registry: Registry) -> None:
    taking(server, Answer(204))
    assert registry.mount_blob(f"{server.host}/a/b", DIGEST, f"{server.host}/c/d") is False


def test_nothing_is_mounted_from_another_registry(server: Server, registry: Registry) -> None:
    assert registry.mount_blob(f"{server.host}/a/b", DIGEST, "other.example/c/d") is False
    assert server.requests == []


def test_a_mount_that_fails_is_said(server: Server, registry: Registry) -> None:
    server.on("/v2/a/b/blobs/uploads/", Answer(503))
    with pytest.raises(RegistryError, match="HTTP 503"):
        registry.mount_blob(f"{server.host}/a/b", DIGEST, f"{server.host}/c/d")
    assert len(server.asked("/v2/a/b/blobs/uploads/")) == 3


def test_a_mount_asks_for_both_scopes_and_a_push_for_one(server: Server, client: Client, file: Path) -> None:
    server.on("/v2/", Answer(200, b"{}"))
    server.on("/token", Answer(200, b'{"token": "good"}'))
    challenge = {"WWW-Authenticate": f'Bearer realm="{server.url}/token",service="reg"'}

    def guarded(request: Request) -> Answer:
        if request.headers.get("authorization") != "Bearer good":
            return Answer(401, b"", challenge)
        return Answer(201) if "mount" in request.query else Answer(202, b"", {"Location": "/v2/a/b/up"})

    server.on("/v2/a/b/blobs/uploads/", guarded)
    server.on("/v2/a/b/up", Answer(201))
    login = Login(username="me", password="x")
    registry = Registry(client=client, login=lambda _host: login)
    assert registry.mount_blob(f"{server.host}/a/b", DIGEST, f"{server.host}/c/d") is True
    assert registry.push_blob(f"{server.host}/a/b", DIGEST, file) is True
    both, one = server.asked("/token")
    assert both.query["scope"] == ["repository:a/b:pull,push", "repository:c/d:pull"]
    assert one.query["scope"] == ["repository:a/b:pull,push"]


@pytest.mark.parametrize("status", [201, 401])
def test_another_host_that_takes_the_upload_is_not_shown_the_login(
    server: Server, client: Client, file: Path, status: int
) -> None:
    """By its name the same machine is another host: what is stored for one is not for the other."""
    elsewhere = f"http://localhost:{server.host.partition(':')[2]}/up"
    server.on("/v2/", Answer(200, b"{}"))
    challenge = {"WWW-Authenticate": 'Basic realm="x"'}

    def guarded(request: Request) -> Answer:
        known = "authorization" in request.headers
        return Answer(202, b"", {"Location": elsewhere}) if known else Answer(401, b"", challenge)

    server.on("/v2/a/b/blobs/uploads/", guarded)
    server.on("/up", Answer(status, b"", challenge))
    login = Login(username="me", password="x")
    registry = Registry(client=client, login=lambda _host: login)
    if status == 201:
        assert registry.push_blob(f"{server.host}/a/b", DIGEST, file) is True
    else:
        with pytest.raises(RegistryError, match="without a login"):
            registry.push_blob(f"{server.host}/a/b", DIGEST, file)
    (sent,) = server.asked("/up")
    assert sent.body == CONTENT
    assert "authorization" not in sent.headers


def test_an_upload_that_is_begun_nowhere(server: Server, registry: Registry, file: Path) -> None:
    server.on("/v2/a/b/blobs/uploads/", Answer(202))
    with pytest.raises(RegistryError, match="an upload that is begun nowhere"):
        registry.push_blob(f"{server.host}/a/b", DIGEST, file)


def test_a_refresh_token_is_exchanged_for_all_scopes_at_once(server: Server, client: Client) -> None:
    """https://distribution.github.io/distribution/spec/auth/oauth/: one field, with blanks between."""
    server.on("/v2/", Answer(200, b"{}"))
    server.on("/token", Answer(200, b'{"access_token": "good"}'))
    challenge = {"WWW-Authenticate": f'Bearer realm="{server.url}/token",service="reg"'}
    server.on(
        "/v2/a/b/blobs/uploads/",
        lambda request: Answer(201) if "authorization" in request.headers else Answer(401, b"", challenge),
    )
    login = Login(username="<token>", password="", identity="refresh")
    registry = Registry(client=client, login=lambda _host: login)
    assert registry.mount_blob(f"{server.host}/a/b", DIGEST, f"{server.host}/c/d") is True
    (asked,) = server.asked("/token")
    assert b"scope=repository%3Aa%2Fb%3Apull%2Cpush+repository%3Ac%2Fd%3Apull" in asked.body


def test_a_login_that_runs_out_during_a_download_is_renewed(
    server: Server, client: Client, tmp_path: Path
) -> None:
    server.on("/v2/", Answer(200, b"{}"))
    tokens = iter(("one", "two", "three"))
    server.on("/token", lambda _request: Answer(200, f'{{"token": "{next(tokens)}"}}'.encode()))
    challenge = {"WWW-Authenticate": f'Bearer realm="{server.url}/token",service="reg"'}

    def guarded(request: Request) -> Answer:
        token = request.headers.get("authorization")
        if request.method == "HEAD" and token == "Bearer one":
            return Answer(200, CONTENT)
        return Answer(200, CONTENT) if token == "Bearer two" else Answer(401, b"", challenge)

    server.on(f"/v2/a/b/blobs/{DIGEST}", guarded)
    registry = Registry(client=client, login=lambda _host: None)
    fetched = registry.fetch_blob(f"{server.host}/a/b", DIGEST, tmp_path / "fetched")
    assert fetched.read_bytes() == CONTENT
    assert len(server.asked("/token")) == 2


def test_how_far_the_clocks_are_apart(
    server: Server, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the ``Date`` that every answer carries."""
    reference = f"{server.host}/a/b:1"
    assert registry.clock_ahead(reference) is None
    assert registry.digest_of(reference) is None
    assert abs(registry.clock_ahead(reference) or 99) < 10
    behind = SimpleNamespace(time=lambda: time.time() - 7200, sleep=time.sleep)
    monkeypatch.setattr("builder.sources.oci.wire.time", behind)
    assert registry.digest_of(reference) is None
    assert abs((registry.clock_ahead(reference) or 0) + 7200) < 10
