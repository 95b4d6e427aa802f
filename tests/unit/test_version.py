"""Every file that names the version names this one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from builder import __version__

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("CHANGELOG.md", r"^## (\S+) - \d{4}-\d\d-\d\d$"),
        ("docs/ci.md", r"^    rev: v(\S+)$"),
        ("packages/rtbuild-image/rtbuild.yaml", r"^  framework: rtbuild==(\S+)$"),
    ],
)
def test_the_version_is_the_one_of_the_package(path: str, pattern: str) -> None:
    named = re.search(pattern, (ROOT / path).read_text(), re.MULTILINE)
    assert named is not None
    assert named[1] == __version__
