"""What docs/publish.md and its schema say is what the code does."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args, get_type_hints

import jsonschema
from doubles.project import Project, entry, image_of, policy

from builder.release.publish.gate import Publication, TagStep, decide, publication_document
from builder.release.publish.run import MAX_AGE
from builder.sources.oci.staging import Tally
from builder.verify.evidence.judgement import Refusal

DOCS = Path(__file__).resolve().parents[4] / "docs"
TEXT = (DOCS / "publish.md").read_text()
SCHEMA = json.loads((DOCS / "publication.schema.json").read_text())
STARTED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_every_kind_of_refusal_has_its_row() -> None:
    table = TEXT.partition("| refused as | because |")[2].partition("\n\n")[0]
    rows = [re.findall(r"`([a-z-]+)`", line.split("|")[1]) for line in table.splitlines()[2:]]
    assert sorted(kind for row in rows for kind in row) == sorted(get_args(get_type_hints(Refusal)["kind"]))


def test_the_default_age_is_the_one_that_is_said() -> None:
    assert f"({MAX_AGE.days} days by default)" in TEXT


def test_the_documents_of_publications_are_what_their_schema_says(tmp_path: Path) -> None:
    cell = Project(tmp_path).cell
    decision = decide(cell, image_of(cell), [entry(cell)], policy=policy())
    digest = "sha256:" + "d" * 64
    rows = [
        Publication(cell=cell, source="a.example/s", target="a.example/p", moving=()),
        Publication(
            cell=cell,
            source="a.example/s",
            target="a.example/p",
            moving=(),
            state="refused",
            decision=decision,
            refusals=[Refusal(kind="tag", text="taken")],
            steps=(TagStep(name="latest", kind="alias", was=None, digest=digest),),
            copied=Tally(there=1, mounted=2, sent=3, bytes_sent=4),
        ),
    ]
    document = publication_document(rows, command="rtbuild publish", started=STARTED, dry_run=False)
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(document)))
    assert document["cells"][1]["claims"] == ["T4"]
    assert document["cells"][1]["tags"][0]["action"] == "put"
