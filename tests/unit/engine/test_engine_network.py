from __future__ import annotations

import stat
from pathlib import Path

import pytest

from builder.engine.network import ca_bundle, pip_conf, proxies, user_network
from builder.errors import UsageError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment whose only pip configuration is below ``tmp_path``."""
    monkeypatch.setattr("builder.engine.network._pip_files", lambda env: [tmp_path / "pip.conf"])
    return {"HOME": str(tmp_path)}


def test_nothing_configured_is_nothing_given(home: dict[str, str]) -> None:
    with user_network(env=home) as network:
        assert network.secrets == {}
        assert network.build_args == {}


def test_secrets_are_private_and_go_with_the_context(home: dict[str, str]) -> None:
    env = {**home, "PIP_INDEX_URL": "https://user:hush@index.example.invalid/simple"}
    with user_network(env=env) as network:
        path = network.secrets["pip_conf"]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert "index-url = https://user:hush@index.example.invalid/simple" in path.read_text()
    assert not path.parent.exists()


def test_the_variable_wins_over_the_file_and_folders_stay_home(home: dict[str, str]) -> None:
    conf = "[global]\nindex-url = https://a.example.invalid/simple\nextra-index-url = file:///srv https://b.example.invalid/\n"
    (Path(home["HOME"]) / "pip.conf").write_text(conf + "[install]\ntrusted-host = a.example.invalid\n")
    text = pip_conf({**home, "PIP_INDEX_URL": "https://c.example.invalid/simple"})
    assert text is not None
    assert "index-url = https://c.example.invalid/simple\n" in text
    assert "extra-index-url = https://b.example.invalid/\n" in text
    assert "trusted-host = a.example.invalid" in text
    assert "file:" not in text


def test_only_folders_is_no_configuration(home: dict[str, str]) -> None:
    assert pip_conf({**home, "PIP_EXTRA_INDEX_URL": "file:///srv/simple"}) is None


def test_the_lock_s_indexes_replace_pip_s(home: dict[str, str]) -> None:
    env = {
        **home,
        "PIP_INDEX_URL": "https://other.example.invalid/",
        "PIP_EXTRA_INDEX_URL": "https://x.example.invalid/",
    }
    text = pip_conf(env, ["https://a.example.invalid/simple", "https://b.example.invalid/simple"])
    assert (
        text
        == "[global]\nindex-url = https://a.example.invalid/simple\nextra-index-url = https://b.example.invalid/simple\n\n"
    )


def test_several_extra_indexes_survive_the_file_format(home: dict[str, str]) -> None:
    import configparser

    text = pip_conf(
        home, ["https://a.example.invalid/", "https://b.example.invalid/", "https://c.example.invalid/"]
    )
    parser = configparser.RawConfigParser()
    parser.read_string(text or "")
    assert parser["global"]["extra-index-url"].split() == [
        "https://b.example.invalid/",
        "https://c.example.invalid/",
    ]


def test_a_broken_pip_conf_is_named(home: dict[str, str]) -> None:
    (Path(home["HOME"]) / "pip.conf").write_text("index-url = nowhere\n")
    with pytest.raises(UsageError, match=r"pip\.conf cannot be read"):
        pip_conf(home)


def test_ca_bundle_is_what_the_variable_names(home: dict[str, str], tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("-")
    assert ca_bundle({**home, "REQUESTS_CA_BUNDLE": str(bundle)}) == bundle
    assert ca_bundle(home) is None
    (tmp_path / "pip.conf").write_text(f"[global]\ncert = {bundle}\n")
    assert ca_bundle(home) == bundle


def test_a_bundle_that_is_not_there_is_said_before_the_build(home: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"SSL_CERT_FILE names /nonexistent\.pem"):
        ca_bundle({**home, "SSL_CERT_FILE": "/nonexistent.pem"})


def test_proxies_come_in_both_spellings() -> None:
    assert proxies({"https_proxy": "http://p:1", "HTTP_PROXY": "http://q:2", "NO_PROXY": ""}) == {
        "HTTPS_PROXY": "http://p:1",
        "https_proxy": "http://p:1",
        "HTTP_PROXY": "http://q:2",
        "http_proxy": "http://q:2",
    }
