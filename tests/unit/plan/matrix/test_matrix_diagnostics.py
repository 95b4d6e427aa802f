"""Every kind of error, with its whole message as a golden file beside the matrix that earns it."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import yaml

from builder.core import resources
from builder.core.errors import MatrixError, UsageError
from builder.plan.matrix import load
from builder.plan.matrix.reader import CELL, ELSEWHERE

GOLDEN = Path(__file__).parents[3] / "golden" / "matrix"
BAD = sorted(path.name for path in GOLDEN.glob("*.yaml"))


@pytest.mark.parametrize("name", BAD)
def test_the_message_of_a_bad_file(name, golden, monkeypatch):
    monkeypatch.chdir(GOLDEN)
    with pytest.raises(MatrixError) as caught:
        load(Path(name))
    golden(f"matrix/{Path(name).stem}.txt", f"{caught.value}\n")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", BAD)
def test_the_words_are_the_same_without_libyaml(name, monkeypatch):
    monkeypatch.chdir(GOLDEN)
    with pytest.raises(MatrixError) as fast:
        load(Path(name))
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    with pytest.raises(MatrixError) as slow:
        load(Path(name))
    assert str(slow.value) == str(fast.value)


@pytest.mark.parametrize("name", BAD)
def test_every_place_is_inside_the_file(name, monkeypatch):
    monkeypatch.chdir(GOLDEN)
    lines = Path(name).read_bytes().decode(errors="replace").splitlines()
    with pytest.raises(MatrixError) as caught:
        load(Path(name))
    for diagnostic in caught.value.diagnostics:
        span = diagnostic.span
        assert span.file == name
        if lines:
            assert 1 <= span.line <= len(lines)
            assert 1 <= span.column <= len(lines[span.line - 1]) + 1
            assert span.column + span.width <= len(lines[span.line - 1]) + 2


def test_every_golden_message_has_its_file():
    assert {path.stem for path in GOLDEN.glob("*.txt")} <= {Path(name).stem for name in BAD}


def test_a_missing_file_names_its_neighbours(tmp_path):
    (tmp_path / "torch.yaml").touch()
    (tmp_path / "tf28.yml").touch()
    with pytest.raises(UsageError) as caught:
        load(tmp_path / "toch.yaml")
    assert caught.value.message == f"no matrix file {tmp_path / 'toch.yaml'}"
    assert (
        caught.value.hint == f"did you mean '{tmp_path / 'torch.yaml'}'? in {tmp_path}: tf28.yml, torch.yaml"
    )
    with pytest.raises(UsageError, match=r"did you mean '.*tf28\.yml'"):
        load(tmp_path / "tf28")


def test_a_matrix_that_rtbuild_brings_is_named(tmp_path):
    with pytest.raises(UsageError) as caught:
        load(tmp_path / "matrices" / "tf28.yaml")
    assert caught.value.hint == f"rtbuild brings one of that name: {resources.matrices() / 'tf28.yaml'}"


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(UsageError, match=f"there is no folder {tmp_path / 'x'}"):
        load(tmp_path / "x" / "m.yaml")
    with pytest.raises(UsageError, match=f"there is no \\*.yaml file in {tmp_path}"):
        load(tmp_path / "m.yaml")


def test_a_folder_is_no_matrix(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read the matrix file .*[Dd]irectory"):
        load(tmp_path)


def test_a_huge_file_is_not_read(load_text):
    with pytest.raises(MatrixError, match="larger than 1024 KiB"):
        load_text(b"# " + b"x" * (1 << 20))


def test_a_long_line_is_refused_and_not_echoed(load_text):
    with pytest.raises(MatrixError, match=r"m.yaml:2:1: error: the line is 5,002 characters long") as caught:
        load_text("version: 1\n# " + "x" * 5000)
    assert len(str(caught.value)) < 3000


def test_the_file_s_name_must_do_as_a_name(load_text):
    with pytest.raises(MatrixError, match="hint: add 'name: my-matrix-2'"):
        load_text("version: 1\naxes: {}\n", "My Matrix 2.yaml")


def test_a_name_says_what_the_stem_cannot(load_text):
    text = (
        "version: 1\nname: mine\ninclude: [{framework: torch==2.1.0, python: 3.9, base: 'a:1', cuda: base}]\n"
    )
    assert load_text(text, "My Matrix 3.yaml").name == "mine"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "latin-1"])
def test_other_encodings_are_refused_at_a_place(load_text, encoding):
    with pytest.raises(MatrixError, match=r"m.yaml:\d+:\d+: error: "):
        load_text("version: 1\ndescription: é\n".encode(encoding))


@pytest.mark.parametrize("newline", ["\r\n", "\r", "\x85", "\u2028"])
def test_places_count_yaml_s_own_line_breaks(load_text, newline):
    text = newline.join(["version: 1", "description: é漢", "axes: {}", "optoins: {}", ""])
    with pytest.raises(MatrixError) as caught:
        load_text(text.encode())
    assert [(d.span.line, d.span.column) for d in caught.value.diagnostics] == [(3, 7), (4, 1)]
    assert "4 | optoins: {}\n    | ^^^^^^^\n" in str(caught.value)


def test_a_byte_order_mark_counts_for_no_column(load_text):
    with pytest.raises(MatrixError, match=r"m\.yaml:1:1: error: unknown key 'versoin'"):
        load_text(b"\xef\xbb\xbfversoin: 1\naxes: {}\n")


def test_what_is_no_key_is_told_where_it_belongs(load_text):
    """All of them in one run; a hint names keys that there are."""
    text = "version: 1\ndefaults: {cudnn: '8.9.7', driver: 470}\ninclude:\n  - {pip_packages: [numpy]}\n"
    with pytest.raises(MatrixError) as caught:
        load_text(text)
    hints = {d.message.split("'")[1]: d.hint for d in caught.value.diagnostics if d.hint}
    assert "'cuda' can name another" in hints["cudnn"]
    assert "--driver 535" in hints["driver"]
    assert "under 'pip'" in hints["pip_packages"]
    for word, hint in ELSEWHERE.items():
        assert word not in CELL
        assert set(re.findall(r"'([a-z]+)'", hint)) <= CELL.keys()
        assert "`rtbuild" in hint or "'" in hint


def test_nothing_in_a_file_reaches_the_terminal_raw(load_text):
    with pytest.raises(MatrixError) as caught:
        load_text('version: 1\n"\\e[31m\\u202e": \u202ex\u200b\naxes: {}\ndescription: "a\xa0b"\n')
    assert all(char.isprintable() or char == "\n" for char in str(caught.value))
    assert "unknown key '\\x1b[31m\\u202e'" in str(caught.value)


def test_credentials_are_not_repeated(monkeypatch):
    monkeypatch.chdir(GOLDEN)
    with pytest.raises(MatrixError) as caught:
        load(Path("credentials.yaml"))
    assert "secret" not in str(caught.value)
    assert str(caught.value).count("https://*********@wheels.example.invalid/simple") == 3


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_depth_is_bounded(load_text, opening):
    text = "version: 1\naxes:\n  " + opening * 400
    started = time.process_time()
    with pytest.raises(MatrixError, match="nested more than 12 levels deep"):
        load_text(text)
    assert time.process_time() - started < 5


def test_aliases_cannot_multiply(load_text):
    text = "version: 1\ndefaults:\n  pip: &a [" + ", ".join(["x"] * 400) + "]\naxes:\n  pip:\n"
    text += "    - *a\n" * 400
    started = time.process_time()
    with pytest.raises(MatrixError, match="unfolds to more than 100,000 values"):
        load_text(text)
    assert time.process_time() - started < 5


def test_an_error_in_an_anchor_is_told_once(load_text):
    with pytest.raises(MatrixError) as caught:
        load_text(
            """\
            version: 1
            include:
              - &one {framework: torch==2.1.0, python: 4, base: "a:1", cuda: base}
              - {<<: *one, variant: a}
              - {<<: *one, variant: b}
            """
        )
    assert [d.message for d in caught.value.diagnostics] == ["'4' is no Python version"]
