from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import sys
from typing import TYPE_CHECKING

import jsonschema
import pytest
from pages import model_schemas

from builder.core.errors import CellError
from builder.image.recipe.probe_file import bundle
from builder.verify.runner.reports import EXIT_CODES, ProbeDocument, parse, printed_report

if TYPE_CHECKING:
    from pathlib import Path


def test_a_report_is_read_and_more_than_asked_is_kept(document) -> None:
    found = parse(json.dumps(document(later="value")))
    assert found.python_version() == "3.9.2"
    assert found.model_extra == {"later": "value"}
    assert parse(json.dumps(document(python="3.10.12"))).python_version() == "3.10.12"


@pytest.mark.parametrize(
    "key", [field.alias or name for name, field in ProbeDocument.model_fields.items() if field.is_required()]
)
def test_every_named_key_is_required(document, key: str) -> None:
    broken = document()
    del broken[key]
    with pytest.raises(CellError, match=f"no valid report: {key}: Field required"):
        parse(json.dumps(broken))


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"schema": 2}, "schema"),
        ({"verdict": "fine"}, "verdict"),
        ({"test_double": "no"}, "test_double"),
        ({"probe": {"version": "1", "sha256": "short"}}, "probe.sha256"),
        ({"checks": [{"id": "E01"}]}, "checks.0.stage"),
        ({"gpus": [{"name": "T4"}]}, "gpus.0.compute_capability"),
    ],
)
def test_wrong_values_are_named_by_their_place(document, changes: dict, where: str) -> None:
    with pytest.raises(CellError, match=f"no valid report: .*{where}"):
        parse(json.dumps(document(**changes)))


@pytest.mark.parametrize("text", ["", "\n", "Segmentation fault", '{"schema": 1', "[]", "null"])
def test_what_is_no_report(text: str) -> None:
    with pytest.raises(CellError, match="cudnn-verify printed no"):
        parse(text)


def test_the_schema_in_docs_is_this_one(generated) -> None:
    generated(
        "docs/report.schema.json", json.dumps(model_schemas.of_report(), indent=2, sort_keys=True) + "\n"
    )


def test_the_schema_agrees_with_the_model(document) -> None:
    validator = jsonschema.Draft202012Validator(model_schemas.of_report())
    validator.validate(document())
    for key in document():
        broken = document()
        del broken[key]
        assert not validator.is_valid(broken), key


def test_every_verdict_has_its_own_exit_code() -> None:
    from builder.core.model import Verdict

    assert set(EXIT_CODES) == {verdict.value for verdict in Verdict}
    assert len(set(EXIT_CODES.values())) == len(EXIT_CODES)


def test_the_real_probe_s_report_is_read(tmp_path: Path) -> None:
    program = tmp_path / "cudnn-verify"
    program.write_bytes(bundle())
    command = [sys.executable, str(program), "--json"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    found = parse(done.stdout)
    assert done.returncode == EXIT_CODES[found.verdict]
    assert found.probe.sha256 == hashlib.sha256(bundle()).hexdigest()
    assert found.python_version() == platform.python_version()
    assert not found.test_double


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('said\n{\n "a": 1\n}\nmore\n', '{\n "a": 1\n}'),
        ("{\n1\n}\n{\n2\n}\n", "{\n2\n}"),
        ("}\n{\n{\n1\n}\n}", "{\n{\n1\n}"),
        ("{\n1\n}\n{\n2", "{\n1\n}"),
        ("nothing", "nothing"),
        ("", ""),
        pytest.param(
            "{\n" * 2_000_000, "{\n" * 2_000_000, id="millions of beginnings"
        ),  # hours, if read anew from each
    ],
)
def test_the_last_document_among_other_lines(text: str, expected: str) -> None:
    assert printed_report(text) == expected
