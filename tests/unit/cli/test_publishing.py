"""What a publication comes to: one exit code, and a case for each cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from doubles.project import Project

from builder.cli.commands.publish import cases, exit_code
from builder.cli.console.results import CaseStatus
from builder.core.errors import RegistryError
from builder.release.publish.gate import Publication
from builder.verify.evidence.judgement import Refusal

if TYPE_CHECKING:
    from pathlib import Path

    from builder.release.publish.gate import State


def row(project: Project, state: State) -> Publication:
    found = Publication(cell=project.cell, source="r/staging", target="r/public", moving=(), state=state)
    if state == "refused":
        found.refusals.append(Refusal(kind="broken", text="it says broken", hint="mend the cell"))
    if state == "failed":
        found.error = RegistryError("HTTP 503", hint="try again")
    return found


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (["published", "unchanged", "planned"], 0),
        (["published", "failed"], 1),
        (["published", "failed", "refused"], 6),
        (["published", "failed", "refused", "cancelled"], 130),
    ],
)
def test_one_exit_code(tmp_path: Path, states: list[State], code: int) -> None:
    project = Project(tmp_path)
    assert exit_code([row(project, state) for state in states]) == code


def test_what_was_refused_failed_and_what_could_not_be_published_is_an_error(tmp_path: Path) -> None:
    project = Project(tmp_path)
    refused, failed = cases([row(project, "refused"), row(project, "failed")])
    assert (refused.status, refused.kind, refused.message) == (CaseStatus.FAILED, "broken", "it says broken")
    assert "hint: mend the cell" in refused.text
    assert (failed.status, failed.kind, failed.message) == (CaseStatus.ERROR, "RegistryError", "HTTP 503")
