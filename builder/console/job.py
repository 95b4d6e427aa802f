"""Leaves a run's results where a CI system looks for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from builder.console.junit import junit_xml
from builder.console.page import page
from builder.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from builder.console.case import Case

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
"""Names the file to which a step of GitHub Actions adds Markdown for its job's page."""
JUNIT = "junit.xml"


def write_job_files(
    cases: Sequence[Case],
    *,
    title: str,
    command: str,
    started: datetime,
    results: Path,
    env: Mapping[str, str] = os.environ,
) -> Path:
    """``junit.xml`` in ``results``, and the page of the job where there is one; the former's path.

    The file is that of the last run: CI systems look for one name. Raises OSError.
    """
    path = results / JUNIT
    write_whole(path, junit_xml(cases, command=command, started=started))
    summary = env.get(SUMMARY_VARIABLE)
    if summary:
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(page(title, cases) + "\n")
    return path
