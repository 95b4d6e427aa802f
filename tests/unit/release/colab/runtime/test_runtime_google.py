"""``google.colab`` outside Colab: what works, and how the rest explains itself."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

MODULES = """ai auth autoviz data_table drive errors files html output patches runtime sheets snippets sql
syntax userdata widgets"""


@pytest.fixture
def colab(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A fresh import, with IPython's display standing in: it is no dependency of rtbuild."""
    for name in [name for name in sys.modules if name.split(".")[:2] == ["google", "colab"]]:
        monkeypatch.delitem(sys.modules, name)
    display = SimpleNamespace(
        display=lambda item: print("shown:", item),
        clear_output=lambda wait: print("cleared", wait),
        FileLink=lambda path: f"link to {path}",
        Javascript=lambda script: f"script {script}",
    )
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return importlib.import_module("google.colab")


def test_all_names_of_colabs_can_be_imported(colab: ModuleType) -> None:
    for name in MODULES.split():
        assert importlib.import_module(f"google.colab.{name}") is getattr(colab, name)


def test_what_only_google_has_explains_itself_where_it_is_used(colab: ModuleType) -> None:
    from google.colab import ai, sheets

    for call in (ai.generate_text, sheets.InteractiveSheet, colab.widgets.TabBar, colab.widgets.Grid):
        with pytest.raises(colab.errors.LocalRuntimeError, match="works on Google's own machines only"):
            call("x")


def test_a_name_that_colab_may_have_and_this_has_not(colab: ModuleType) -> None:
    with pytest.raises(ImportError, match=r"google\.colab\.newest works on Google's own machines only"):
        from google.colab import newest  # noqa: F401
    assert not hasattr(colab, "_private")


def test_secrets_come_from_the_environment(colab: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    assert colab.userdata.get("HF_TOKEN") == "hf_x"
    with pytest.raises(colab.userdata.SecretNotFoundError, match="start it with --env NO_SUCH_KEY"):
        colab.userdata.get("NO_SUCH_KEY")


def test_drive_is_a_folder_and_says_so_once(
    colab: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        colab.drive.mount(str(tmp_path))
    said = capsys.readouterr().out
    assert (tmp_path / "MyDrive").is_dir()
    assert said.count("Google Drive cannot be mounted from inside") == 1
    assert f'--volume "$HOME/My Drive:{tmp_path}/MyDrive"' in said
    colab.drive.flush_and_unmount()


def test_a_drive_that_cannot_be_made(colab: ModuleType) -> None:
    with pytest.raises(colab.errors.LocalRuntimeError, match="cannot be mounted from inside"):
        colab.drive.mount("/proc/drive")


def test_files_are_named_instead_of_sent(
    colab: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_bytes(b"1,2")
    monkeypatch.setattr(colab.files, "_WORK", str(tmp_path))
    answers = iter(["a.csv", "missing.csv", "", "a.csv", ""])
    monkeypatch.setattr("builtins.input", lambda prompt: next(answers))
    assert colab.files.upload(target_dir=str(tmp_path / "in")) == {"a.csv": b"1,2"}
    assert (tmp_path / "in" / "a.csv").read_bytes() == b"1,2"
    assert "missing.csv: No such file or directory" in capsys.readouterr().out
    colab.files.upload_file(str(tmp_path / "b.csv"))
    assert (tmp_path / "b.csv").read_bytes() == b"1,2"


def test_nobody_is_there_to_name_files(colab: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(prompt: str) -> str:
        raise RuntimeError("raw_input was called, but this frontend does not support input requests.")

    monkeypatch.setattr("builtins.input", nobody)
    with pytest.raises(colab.errors.LocalRuntimeError, match="Open the file by its name instead"):
        colab.files.upload()


def test_a_download_says_where_the_file_is(
    colab: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work = tmp_path / "content"
    work.mkdir()
    monkeypatch.setattr(colab.files, "_WORK", str(work))
    monkeypatch.chdir(work)
    (work / "model.h5").write_bytes(b"x")
    (tmp_path / "outside.txt").write_bytes(b"y")
    colab.files.download("model.h5")
    colab.files.download(str(tmp_path / "outside.txt"))
    said = capsys.readouterr().out
    assert "it is model.h5 of your work folder" in said
    assert "link to outside.txt" in said
    assert (work / "outside.txt").read_bytes() == b"y"
    with pytest.raises(FileNotFoundError, match="Cannot find file: gone"):
        colab.files.download("gone")


def test_output_helpers(colab: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    colab.output.clear(wait=True)
    colab.output.eval_js("alert(1)", ignore_result=True)
    with colab.output.redirect_to_element("#x"), colab.output.use_tags("t"):
        print("within")
    colab.output.no_vertical_scroll()
    colab.output.enable_custom_widget_manager()
    colab.output.serve_kernel_port_as_iframe(6006)
    colab.output.register_callback("f", print)
    said = capsys.readouterr().out
    for part in ("cleared True", "shown: script alert(1)", "within", "--publish 127.0.0.1:6006:6006"):
        assert part in said
    with pytest.raises(colab.errors.LocalRuntimeError, match="its value cannot be had"):
        colab.output.eval_js("1 + 1")


def test_nobody_is_signed_in(
    colab: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "before")
    colab.auth.authenticate_user(project_id="mine")
    colab.auth.authenticate_service_account()
    colab.runtime.unassign()
    assert os.environ["GOOGLE_CLOUD_PROJECT"] == "mine"
    assert "nobody was signed in" in capsys.readouterr().out


def test_tables_are_shown_as_pandas_shows_them(colab: ModuleType) -> None:
    class Frame:
        def _repr_html_(self) -> str:
            return "<table>"

    colab.data_table.enable_dataframe_formatter()
    assert colab.data_table.DataTable(Frame(), num_rows_per_page=5)._repr_html_() == "<table>"
