"""The user's own configuration decides which package index is asked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from builder.core.errors import IndexSilentError, MissingToolError, UsageError
from builder.sources.index.client import Index
from builder.sources.index.target import Target
from builder.sources.index.uv import _ask_uv, from_user, with_extra
from builder.sources.net import pip_settings

if TYPE_CHECKING:
    from pathlib import Path


def test_nothing_configured_is_uvs_own_default() -> None:
    settings = from_user()
    assert not settings.chosen
    assert settings.default.startswith("https://")
    assert settings.extra == ()
    assert settings.notes == ()


def test_uv_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://user:pw@main.invalid/simple/")
    monkeypatch.setenv("UV_INDEX", "https://one.invalid/simple https://two.invalid/simple")
    settings = with_extra(from_user(), ["https://cell.invalid/cu118/"])
    assert settings.default == "https://user:pw@main.invalid/simple"
    assert settings.extra == (
        "https://cell.invalid/cu118",
        "https://one.invalid/simple",
        "https://two.invalid/simple",
    )


def test_uv_toml(own_configuration: Path) -> None:
    folder = own_configuration / ".config/uv"
    folder.mkdir(parents=True)
    (folder / "uv.toml").write_text('[[index]]\nurl = "https://toml.invalid/simple"\ndefault = true\n')
    assert from_user().default == "https://toml.invalid/simple"


def test_uv_refuses_its_configuration(own_configuration: Path) -> None:
    folder = own_configuration / ".config/uv"
    folder.mkdir(parents=True)
    (folder / "uv.toml").write_text("[[index]\n")
    with pytest.raises(UsageError, match=r"uv\.toml"):
        from_user()


def test_pip_files_from_weak_to_strong(own_configuration: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weak = own_configuration / ".pip/pip.conf"
    strong = own_configuration / ".config/pip/pip.conf"
    for path, text in (
        (weak, "[global]\nindex-url = https://weak.invalid/simple\ncert = /ca.pem\n"),
        (
            strong,
            (
                "[global]\nindex_url = https://strong.invalid/simple\n"
                "extra-index-url =\n    https://a.invalid/simple\n    https://b.invalid/simple\n"
            ),
        ),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    settings = from_user()
    assert settings.default == "https://strong.invalid/simple"
    assert settings.extra == ("https://a.invalid/simple", "https://b.invalid/simple")
    assert pip_settings(os.environ)["cert"] == ["/ca.pem"]

    monkeypatch.setenv("PIP_INDEX_URL", "https://variable.invalid/simple")
    assert from_user().default == "https://variable.invalid/simple"
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://uv.invalid/simple")
    assert from_user().default == "https://uv.invalid/simple"
    monkeypatch.delenv("UV_DEFAULT_INDEX")
    monkeypatch.delenv("PIP_INDEX_URL")

    named = own_configuration / "named.conf"
    named.write_text("[global]\nindex-url = https://named.invalid/simple\n[install]\ncert = /other.pem\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(named))
    assert (from_user().default, from_user().chosen) == ("https://named.invalid/simple", True)
    assert pip_settings(os.environ)["cert"] == ["/other.pem"]
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert "cert" not in pip_settings(os.environ)


def test_what_only_this_machine_understands_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "file:///srv/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "file:///srv/more https://ok.invalid/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "/srv/wheels")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    settings = from_user()
    assert settings.default.startswith("https://")
    assert settings.extra == ("https://ok.invalid/simple",)
    assert [note.split(" is not used")[0] for note in settings.notes] == [
        "index file:///srv/simple",
        "index file:///srv/more",
        "pip's find-links",
        "pip's no-index",
    ]
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    assert not any("no-index" in note for note in from_user().notes)


def test_how_long_a_server_may_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert from_user().timeout is None
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "180")
    assert from_user().timeout == 180
    assert Index.from_user().client.read_timeout == 180
    monkeypatch.setenv("PIP_TIMEOUT", "7")
    assert from_user().timeout == 7
    assert Index.from_user().client.read_timeout > 7
    monkeypatch.setenv("UV_HTTP_TIMEOUT", "300")
    assert from_user().timeout == 300


def test_a_broken_pip_file(own_configuration: Path) -> None:
    path = own_configuration / ".pip/pip.conf"
    path.parent.mkdir()
    path.write_text("index-url = x\n")
    with pytest.raises(UsageError, match=r"pip\.conf cannot be read"):
        from_user()


def test_a_matrix_cannot_name_a_folder() -> None:
    with pytest.raises(UsageError, match="file:///srv"):
        with_extra(from_user(), ["file:///srv"])


def test_the_default_is_not_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://main.invalid/simple")
    settings = from_user()
    assert with_extra(settings, ["https://main.invalid/simple/", "https://x.invalid"]).extra == (
        "https://x.invalid",
    )


def test_a_cache_of_uv_s_that_cannot_be_written_is_the_machine_s_fault(monkeypatch, tmp_path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("UV_CACHE_DIR", str(file / "uv"))
    with pytest.raises(MissingToolError, match=r"the folder .*file/uv cannot be made or written") as raised:
        _ask_uv(os.environ)
    assert "UV_CACHE_DIR" in str(raised.value.hint)


def test_an_index_that_gives_no_answer_has_the_exit_code_of_silence(monkeypatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    index = Index.from_user()
    target = Target(python="3.12", platform="linux/amd64", glibc="2.36")
    for ask in (lambda: index.offers("torch"), lambda: index.resolve(["torch"], target=target)):
        with pytest.raises(IndexSilentError) as raised:
            ask()
        assert raised.value.exit_code == 5
