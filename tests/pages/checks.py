"""The page ``docs/checks.md``, made from ``builder/verify/cudnn_verify/common/checks.ini``."""

from __future__ import annotations

from collections import namedtuple

from builder.core import resources
from builder.verify.cudnn_verify.common.causes import CAUSES, ini_row
from builder.verify.cudnn_verify.common.tables import read_sections

CheckRow = namedtuple("CheckRow", "id title needs decides loads causes")

_HEAD = """\
# Checks

Generated from `builder/verify/cudnn_verify/common/checks.ini`; tests compare, and hold that \
no report names a cause that its check may not name. **judged**: the causes at the end, too.

| check | looks at | needs | decides on | causes |
|---|---|---|---|---|
"""
_JUDGED = """
## Judged

A check that loads something has the cause that a counter-test, the loader's answer, the machine or a\
 package proves:

"""


def read_checks() -> list[CheckRow]:
    """All checks, in the order of the file."""
    text = (resources.probe() / "common/checks.ini").read_text(encoding="utf-8")
    return [ini_row(CheckRow, section) for section in read_sections(text)]


def markdown() -> str:
    """The whole page."""
    lines = []
    for row in read_checks():
        causes = [_link(cause) for cause in row.causes.split()] + (["**judged**"] if row.loads else [])
        lines.append(f"| {row.id} | {row.title} | {row.needs} | {row.decides} | {', '.join(causes)} |\n")
    judged = ", ".join(_link(cause.id) for cause in sorted(CAUSES.values()) if cause.judged)
    return f"{_HEAD}{''.join(lines)}{_JUDGED}{judged}.\n"


def _link(cause: str) -> str:
    return f"[`{cause}`](causes.md#{cause})"
