"""A company's proxy that refuses, is down, or opens TLS: who is named, what helps, and nobody asked twice."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
import requests
from doubles.http_server import Answer, Server

from builder.core.errors import PackageIndexError, RegistrySilentError, UsageError
from builder.sources.debian import Apt
from builder.sources.index.simple_api import files
from builder.sources.index.target import Target
from builder.sources.index.uv import compile_requirements, from_user
from builder.sources.net import Client, explain, remedy
from builder.sources.oci import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOGIN = "clerk:hush%40"
REFUSALS = {
    407: ("wants a login, or refuses the one", "NAME:PASSWORD@"),
    403: ("refuses a connection to far.invalid", "ask who runs the proxy"),
}


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Named by the environment, with a login in its address."""
    with Server() as server:
        named(monkeypatch, f"http://{LOGIN}@{server.host}")
        yield server


def named(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    for name in ("all_proxy", "no_proxy", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(name.upper(), address)


def refuse(proxy: Server, status: int) -> None:
    proxy._answer = lambda _request: Answer(status, b"<html>no", {"Content-Type": "text/html"})


@pytest.mark.parametrize("status", REFUSALS)
def test_an_index_behind_a_proxy_that_refuses(proxy: Server, status: int) -> None:
    refuse(proxy, status)
    words, advice = REFUSALS[status]
    with pytest.raises(PackageIndexError) as found:
        files(Client(backoff=0.2), "https://far.invalid/simple", "torch")
    assert len(proxy.requests) == 1, "a refusal is no weather: it is not asked for again"
    assert words in found.value.message
    assert f"http://{proxy.host} " in found.value.message
    assert advice in str(found.value.hint)
    assert "hush" not in found.value.message


@pytest.mark.parametrize("status", REFUSALS)
def test_a_registry_behind_a_proxy_that_refuses(proxy: Server, status: int) -> None:
    refuse(proxy, status)
    words, advice = REFUSALS[status]
    with pytest.raises(RegistrySilentError) as found:
        Registry(client=Client(retries=0)).manifest("far.invalid/team/x:1")
    assert words in found.value.message
    assert advice in str(found.value.hint)


def test_a_plain_request_that_the_proxy_wants_a_login_for(proxy: Server) -> None:
    """Without TLS the proxy's refusal comes as if it were the server's."""
    refuse(proxy, 407)
    with pytest.raises(PackageIndexError, match="wants a login"):
        files(Client(), "http://far.invalid/simple", "torch")


def test_a_proxy_s_own_page_is_not_the_absence_of_a_project(server: Server) -> None:
    """One that opens TLS answers 403 in the index's name; PyTorch's index does, too, with S3's XML."""
    server.on("/simple/torch/", Answer(403, b"<html>blocked", {"Content-Type": "text/html; charset=utf-8"}))
    server.on("/simple/absent/", Answer(403, b"<Error/>", {"Content-Type": "application/xml"}))
    assert files(Client(), f"{server.url}/simple", "absent") == ()
    with pytest.raises(PackageIndexError, match="403 with a web page") as found:
        files(Client(), f"{server.url}/simple", "torch")
    assert "proxy" in str(found.value.hint)


def test_a_proxy_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = f"127.0.0.1:{gone.getsockname()[1]}"
    named(monkeypatch, address)  # also without a scheme, as people write it
    with pytest.raises(requests.exceptions.ProxyError) as found:
        Client(retries=0).get("https://far.invalid/")
    said = explain(found.value)
    assert said == f"the proxy http://{address} did not answer: connection refused"
    assert "HTTPS_PROXY" in str(remedy(said))


def test_uv_names_the_proxy_s_refusal_with_the_same_remedy(
    proxy: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://far.invalid/simple")
    target = Target(python="3.11", platform="linux/amd64", glibc="2.36")
    for status, (_, advice) in REFUSALS.items():
        refuse(proxy, status)
        with pytest.raises(PackageIndexError) as found:
            compile_requirements(["six"], target, from_user())
        assert advice in str(found.value.hint), found.value
        assert "hush" not in str(found.value)


def test_apt_is_told_of_the_proxy_in_its_own_spelling(
    proxy: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """apt reads ``http_proxy``, and neither ``HTTP_PROXY`` nor ``all_proxy``."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/apt-get"
    program.write_text('#!/bin/sh\necho "E: $http_proxy $https_proxy" >&2\nexit 100\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    apt = Apt(tmp_path / "apt", architecture="amd64", keyring=tmp_path)
    (tmp_path / "apt").mkdir()
    told = apt._run("update").stderr
    assert told.count(f"http://{LOGIN}@{proxy.host}") == 2
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("ALL_PROXY", "http://every.invalid:1")
    assert apt._run("update").stderr == "E: http://every.invalid:1 http://every.invalid:1\n"


def test_apt_trusts_whom_the_environment_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundle = tmp_path / "own.pem"
    bundle.write_text("-")
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    for own, wanted in ([], 1), (['Acquire::https::CaInfo "/etc/theirs.pem";'], 0):
        monkeypatch.setattr("builder.sources.debian.host_acquire_options", lambda own=own: own)
        Apt(tmp_path / "apt", architecture="amd64", keyring=tmp_path)._set_up()
        said = (tmp_path / "apt/apt.conf").read_text()
        assert said.count(f'Acquire::https::CaInfo "{bundle}";') == wanted


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        (
            "E: http://d/ 407  Proxy Authentication Required [IP: 10.0.0.1]",
            "NAME:PASSWORD",
        ),
        ("tunnel error: proxy authorization required", "NAME:PASSWORD"),
        ("tunnel error: unsuccessful", "ask who runs the proxy"),
        ("TLS: certificate verify failed: unable to get local issuer certificate", "SSL_CERT_FILE=FILE"),
        ("invalid peer certificate: UnknownIssuer", "SSL_CERT_FILE=FILE"),
        ("Certificate verification failed: The certificate is NOT trusted.", "SSL_CERT_FILE=FILE"),
        ("the host name is unknown", None),
    ],
)
def test_the_remedy_goes_by_the_words_of_each_program(said: str, advice: str | None) -> None:
    found = remedy(said)
    assert found is None if advice is None else advice in str(found)


def test_certificates_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent/own.pem")
    with pytest.raises(UsageError, match=r"SSL_CERT_FILE names /nonexistent/own\.pem, which is not there"):
        Client().get("https://far.invalid/")
