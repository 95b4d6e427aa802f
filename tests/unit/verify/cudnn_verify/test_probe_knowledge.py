"""``--knowledge``: causes and signatures out of a file, as data that is shown and never trusted."""

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

from builder.verify.cudnn_verify.common import causes
from builder.verify.cudnn_verify.common.tables import Section
from builder.verify.cudnn_verify.read import knowledge, signatures
from builder.verify.cudnn_verify.read.diagnosis import diagnose
from builder.verify.cudnn_verify.read.reading import TextReading

SCHEMA = json.loads((Path(__file__).parents[4] / "docs" / "knowledge.schema.json").read_text())
NEWER = {
    "schema": 1,
    "kind": "knowledge",
    "version": "9.9",
    "causes": {
        "flux-empty": {
            "side": "host",
            "title": "The flux is empty",
            "remedy": "Fill it.\x1b[2J",
            "explanation": "It empties.",
            "source": "https://example.org/flux",
            "commands": "any: shell: touch was-run | fills it\nno-such-fact: pip: wrong\nbroken line",
        }
    },
    "signatures": {
        "flux": {
            "text": "flux (?P<what>\\w+) ran dry",
            "example": "flux capacitor ran dry",
            "kind": "proves",
            "causes": "flux-empty",
            "when": "a-condition-of-tomorrow: flux-empty",
            "says": "{what} is dry {unknown} {what.__class__}",
            "source": "https://example.org/flux",
        }
    },
    "looks": {"flux": {"causes": "flux-empty", "command": "dip", "decides": "its level"}},
}


@pytest.fixture
def restored():
    """What is known is known again after the test."""
    before = {name: Section(name, row) for name, row in causes.cause_sections().items()}
    yield
    causes.learn_causes(before)
    signatures._TAKEN.clear()
    for read in (signatures.read_signatures, signatures.read_next_checks, signatures.read_counts):
        read.cache_clear()


def changed(path, value):
    """``NEWER`` with another value at a path of keys."""
    document = json.loads(json.dumps(NEWER))
    row = document
    for key in path[:-1]:
        row = row[key]
    row[path[-1]] = value
    return document


def written(folder, document):
    path = folder / "newer.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def probe(*arguments, said="", cwd=None):
    command = [sys.executable, "-m", "builder.verify.cudnn_verify", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    return subprocess.run(
        command, input=said, text=True, capture_output=True, cwd=cwd, env=environment, check=False
    )


def answer(text):
    reading = TextReading()
    reading.add("the text", io.BytesIO(text.encode()))
    return diagnose(reading)


def test_what_is_printed_fits_the_schema_and_read_back_gives_the_same_answers(tmp_path):
    document = json.loads(probe("--print-knowledge").stdout)
    jsonschema.validate(document, SCHEMA)
    path = written(tmp_path, document)
    text = "Library libcublas.so.12 is not found or cannot be loaded\ntorch==2.6.0+cu118\n"
    own = json.loads(probe("--read", "-", "--json", said=text).stdout)
    read = json.loads(probe("--read", "-", "--json", "--knowledge", path, said=text).stdout)
    named = f"newer.json (version {document['version']})"
    assert [note for note in read["read"].pop("notes") if named in note]
    own["read"].pop("notes")
    assert read == own
    assert own["cause"] == "cuda-major-mixed"


def test_a_newer_file_is_asked_in_place_of_this_release_and_nothing_of_it_is_run(tmp_path):
    jsonschema.validate(NEWER, SCHEMA)
    path = written(tmp_path, NEWER)
    said = probe("--read", "-", "--knowledge", path, said="flux capacitor ran dry\n", cwd=tmp_path)
    assert "flux-empty: The flux is empty" in said.stdout
    assert "capacitor is dry ? {what.__class__}" in said.stdout
    assert "[shell] touch was-run" in said.stdout
    assert "wrong" not in said.stdout
    assert "\x1b" not in said.stdout
    assert "(version 9.9) was asked" in " ".join(said.stdout.split())
    assert not (tmp_path / "was-run").exists()
    other = "libcudnn.so.9: file too short\n"
    assert "No cause" in probe("--read", "-", "--knowledge", path, said=other).stdout


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("half of { JSON", "no JSON"),
        ("[1]", "no object"),
        ("[" * 200000, "no JSON"),
        (changed(["schema"], 2), "form 1"),
        (changed(["version"], "9" * 81), "form 1"),
        (changed(["causes"], {}), "1 to 4000"),
        (changed(["causes", "flux-empty", "side"], "moon"), "no side 'moon'"),
        (changed(["causes", "flux-empty", "title"], 3), "needs a plain name"),
        (changed(["causes", "flux-empty", "commands"], "x" * 24001), "longer than 24000"),
        (changed(["signatures", "../../x"], NEWER["signatures"]["flux"]), "needs a plain name"),
        (changed(["signatures", "flux", "text"], "flux ("), "signature flux"),
        (changed(["signatures", "flux", "text"], "(?x) flux"), "a group of its expression"),
        (changed(["signatures", "flux", "kind"], "shouts"), "its kind"),
        (changed(["signatures", "flux", "causes"], "flux-full"), "no cause flux-full"),
        (changed(["looks", "flux", "command"], ""), "looks, 'flux'"),
        (changed(["counts"], {"flux": {"flux-empty": True}}), "counts"),
    ],
)
def test_a_file_that_is_no_knowledge_is_refused_and_nothing_of_it_is_taken(
    document, words, tmp_path, restored
):
    with pytest.raises(ValueError, match=r".") as error:
        knowledge.take_knowledge(written(tmp_path, document))
    assert words in str(error.value)
    assert len(str(error.value)) < 400
    assert "flux-empty" not in causes.CAUSES


def test_a_device_without_an_end_and_a_pipe_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("/dev/zero", str(tmp_path / "pipe"), str(tmp_path)):
        with pytest.raises(ValueError, match="no file of at most 8 MiB"):
            knowledge.take_knowledge(name)


def test_the_command_line_says_in_one_line_what_is_wrong(tmp_path):
    done = probe("--read", "-", "--knowledge", written(tmp_path, "[1]"), said="x")
    assert done.returncode == 30
    assert "cannot be used" in done.stderr
    assert "Traceback" not in done.stderr
    assert probe("--read", "-", "--knowledge", str(tmp_path / "none"), said="x").returncode == 30
    assert "goes with --read" in probe("--knowledge", written(tmp_path, NEWER)).stderr


def test_an_expression_that_searches_for_ever_ends(tmp_path, restored, monkeypatch):
    monkeypatch.setattr(knowledge, "_LONGEST_SEARCH", 0.3)
    document = changed(["signatures", "flux", "text"], "(flux+)+(x+x+)+y")
    knowledge.take_knowledge(written(tmp_path, document))
    start = time.monotonic()
    with pytest.raises(ValueError, match="searched for more"):
        knowledge.within_time(answer, "flux" + "x" * 60)
    assert time.monotonic() - start < 60


def test_this_release_names_no_group_that_a_file_may_not_have():
    for row in signatures.read_signatures():
        assert not knowledge._OTHER_GROUP.search(row.text), row.id
