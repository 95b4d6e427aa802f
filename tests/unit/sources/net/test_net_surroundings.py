from __future__ import annotations

from pathlib import Path

import pytest

from builder.core.errors import UsageError
from builder.sources.net import ca_bundle, proxies


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment whose only pip configuration is ``pip.conf`` below ``tmp_path``."""
    monkeypatch.setattr("builder.sources.net.http._pip_files", lambda _env: [tmp_path / "pip.conf"])
    return {"HOME": str(tmp_path)}


def test_ca_bundle_is_what_the_variable_names(surroundings: dict[str, str], tmp_path: Path) -> None:
    bundle = tmp_path / "our authorities.pem"
    bundle.write_text("-")
    assert ca_bundle({**surroundings, "REQUESTS_CA_BUNDLE": str(bundle)}) == bundle
    assert ca_bundle(surroundings) is None
    (tmp_path / "pip.conf").write_text(f"[global]\ncert = {bundle}\n")
    assert ca_bundle(surroundings) == bundle


def test_a_broken_pip_conf_is_named(surroundings: dict[str, str]) -> None:
    (Path(surroundings["HOME"]) / "pip.conf").write_text("cert = nowhere\n")
    with pytest.raises(UsageError, match=r"pip\.conf cannot be read"):
        ca_bundle(surroundings)


def test_a_bundle_that_is_not_there_is_said_before_the_build(surroundings: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"SSL_CERT_FILE names /nonexistent\.pem"):
        ca_bundle({**surroundings, "SSL_CERT_FILE": "/nonexistent.pem"})


def test_proxies_come_in_both_spellings() -> None:
    assert proxies({"https_proxy": "http://p:1", "HTTP_PROXY": "http://q:2", "NO_PROXY": ""}) == {
        "HTTPS_PROXY": "http://p:1",
        "https_proxy": "http://p:1",
        "HTTP_PROXY": "http://q:2",
        "http_proxy": "http://q:2",
    }
