"""The user's proxies and certificates, asked of the environment once for a server."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest
import requests
import requests.sessions

from builder.sources.net.http import Client

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses whose proxies were asked for, of the environment that tests here set."""
    for kind in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{kind}_proxy", raising=False)
        monkeypatch.delenv(f"{kind}_proxy".upper(), raising=False)
    seen: list[str] = []
    real = requests.sessions.get_environ_proxies

    def get(url: str, **options: object) -> dict[str, str]:
        seen.append(url)
        return real(url, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(requests.sessions, "get_environ_proxies", get)
    return seen


def settings(client: Client, url: str) -> Any:
    return client._session().merge_environment_settings(url, {}, None, None, None)


def test_a_server_s_proxy_is_asked_for_once(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.invalid:3128")
    monkeypatch.setenv("no_proxy", "near.invalid:8443")
    client = Client()
    far = [settings(client, f"https://far.invalid/{page}")["proxies"] for page in range(3)]
    near = settings(client, "https://near.invalid:8443/page")["proxies"]
    other_port = settings(client, "https://near.invalid/page")["proxies"]
    plain = settings(client, "http://far.invalid/page")["proxies"]
    assert [found["https"] for found in far] == ["http://proxy.invalid:3128"] * 3
    assert "https" not in near
    assert "https" in other_port
    assert "http" not in plain
    assert len(asked) == 4


def test_what_one_request_changes_of_its_proxies_the_next_does_not_see(asked: list[str]) -> None:
    client = Client(proxies={"http": "http://own.invalid:1"})
    first = settings(client, "http://far.invalid/")["proxies"]
    first.clear()
    assert settings(client, "http://far.invalid/")["proxies"] == {"http": "http://own.invalid:1"}
    assert len(asked) == 1


def test_certificates_of_the_environment_count(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the order of docs/behind-a-proxy.md, and all of them before pip's configuration."""
    for number, name in enumerate(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")):
        monkeypatch.setenv(name, str(tmp_path / f"{number}.pem"))
        (tmp_path / f"{number}.pem").write_text("-")
    (tmp_path / "conf.pem").write_text("-")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    (tmp_path / "pip.conf").write_text(f"[global]\ncert = {tmp_path}/conf.pem\n")
    found = []
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT"):
        found.append(settings(Client(), "https://far.invalid/")["verify"])
        monkeypatch.delenv(name)
    found.append(settings(Client(), "https://far.invalid/")["verify"])
    assert found == [str(tmp_path / f"{name}.pem") for name in (0, 1, 2, 3, "conf")]
    assert asked == ["https://far.invalid/"] * 5


def test_a_server_that_is_silent_costs_one_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts connections and says nothing, under two addresses of the same server."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        once = Client(retries=0, connect_timeout=1, read_timeout=0.3, gives_up=True)
        for path in ("/whl/cu126/torch/", "/whl/cu128/torch/"):
            with pytest.raises(requests.ConnectionError, match="timed out"):
                once.get(url + path)
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):  # nobody connected for the second
            silent.accept()
