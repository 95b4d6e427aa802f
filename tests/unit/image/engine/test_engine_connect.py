"""Connecting, against a stand-in for the docker client and an engine that is an HTTP server on a socket."""

from __future__ import annotations

import json
import stat
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from doubles.http_server import Answer, Server

from builder.core.errors import MissingToolError
from builder.image.engine.engine import _another_is_named, buildx_version, connect

if TYPE_CHECKING:
    from pathlib import Path

CLIENT = """#!/bin/sh
# test double of the docker client
case "$*" in
    "context inspect") echo '[{{"Endpoints": {{"docker": {{"Host": "unix://{socket}"}}}}}}]' ;;
    "context inspect gone") echo 'context "gone" does not exist' >&2; exit 1 ;;
    "buildx version") {buildx} ;;
    "buildx inspect big") printf 'Name: big\\nDriver: docker-container\\n' ;;
    "buildx inspect other") printf 'Name: other\\nDriver: docker\\n' ;;
    "buildx inspect default") printf 'Name: default\\nDriver: docker\\n' ;;
    *) echo "no such builder" >&2; exit 1 ;;
esac
"""
BUILDX = "echo 'github.com/docker/buildx v0.13.1 7884339'"


@pytest.fixture
def engine(tmp_path: Path):
    """Start an engine that knows its version and nothing else; gives the socket."""
    with ExitStack() as servers:

        def start(version: str) -> Path:
            body = json.dumps({"Version": version, "ApiVersion": "1.45"}).encode()
            answer = Answer(200, body, {"Content-Type": "application/json"})
            socket = tmp_path / "docker.sock"
            servers.enter_context(Server(lambda _request: answer, socket=socket))
            return socket

        yield start


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def install(socket: Path, buildx: str = BUILDX) -> None:
        program = tmp_path / "bin" / "docker"
        program.parent.mkdir()
        program.write_text(CLIENT.format(socket=socket, buildx=buildx))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        monkeypatch.setenv("DOCKER_CONTEXT", "a double")

    return install


def test_an_engine_that_answers(engine, client) -> None:
    client(engine("26.1.5+dfsg1"))
    connection = connect()
    assert (connection.version, connection.builder_driver) == ("26.1.5+dfsg1", "docker")
    assert buildx_version(connection.docker) == "0.13.1"
    assert connection.endpoint.local
    connection.client.close()


def test_another_builder_is_looked_up(engine, client) -> None:
    client(engine("28.0.0"))
    connection = connect(builder="big")
    assert connection.builder_driver == "docker-container"
    connection.client.close()
    with pytest.raises(MissingToolError, match="no buildx builder gone") as caught:
        connect(builder="gone")
    assert caught.value.hint == "docker buildx ls"


def test_an_engine_of_another_context_is_no_builder_for_this_one(engine, client) -> None:
    client(engine("28.0.0"))
    connection = connect(builder="default")
    assert (connection.builder, connection.builder_driver) == ("default", "docker")
    connection.client.close()
    with pytest.raises(MissingToolError, match="engine of another docker context") as caught:
        connect(builder="other")
    assert "--context other" in str(caught.value.hint)


def test_no_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError, match="docker client is not on PATH") as caught:
        connect()
    assert caught.value.exit_code == 5
    assert "ensure-engine" in str(caught.value.hint)


def test_no_engine(tmp_path: Path, client) -> None:
    client(tmp_path / "nowhere.sock")
    with pytest.raises(MissingToolError, match=r"no Docker Engine answers at .*No such file") as caught:
        connect()
    assert str(caught.value.hint).startswith("sudo ")


def test_no_permission(client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def closed(path: Path) -> None:  # root, who may run the tests, is never refused
        raise PermissionError(13, "Permission denied", str(path))

    client(tmp_path / "docker.sock")
    monkeypatch.setattr("builder.image.engine.engine._knock", closed)
    with pytest.raises(MissingToolError, match="no permission on") as caught:
        connect()
    assert "usermod -aG docker" in str(caught.value.hint)


def test_no_such_context(client, tmp_path: Path) -> None:
    client(tmp_path / "docker.sock")
    with pytest.raises(MissingToolError, match='context "gone" does not exist'):
        connect(context="gone")


@pytest.mark.parametrize("version", ["20.10.24+dfsg1", "19.03.0"])
def test_an_engine_too_old(engine, client, version: str) -> None:
    client(engine(version))
    with pytest.raises(MissingToolError, match=r"too old.*Engine 23\.0"):
        connect()


def test_no_buildx(engine, client) -> None:
    client(engine("26.1.5"), buildx="echo 'docker: buildx is not a docker command' >&2; exit 1")
    with pytest.raises(MissingToolError, match="no buildx plugin") as caught:
        buildx_version(("docker",))
    assert "docker-buildx" in str(caught.value.hint)


def test_a_buildx_too_old(engine, client) -> None:
    client(engine("26.1.5"), buildx="echo 'github.com/docker/buildx v0.11.2 abc'")
    with pytest.raises(MissingToolError, match=r"buildx 0\.11\.2 is too old"):
        buildx_version(("docker",))


def test_a_development_buildx_counts_as_new(engine, client) -> None:
    client(engine("dev"), buildx="echo 'github.com/docker/buildx master-abc abc'")
    connect().client.close()
    assert buildx_version(("docker",)) == "master-abc"


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (None, False),
        ("{}", False),
        ('{"currentContext": "default"}', False),
        ('{"currentContext": "far"}', True),
        ("[]", True),
        ("{", True),
    ],
)
def test_the_client_is_asked_only_if_something_may_lead_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str | None, named: bool
) -> None:
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    assert _another_is_named() is named
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere:2376")
    assert _another_is_named()
