"""The fleet file: what is said where there is none."""

from pathlib import Path

import pytest

from builder.core.errors import UsageError
from builder.release.dispatch.fleet import load_fleet


def test_a_missing_fleet_file_is_told_with_a_first_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no fleet file") as raised:
        load_fleet(tmp_path / "fleet.yaml")
    lines = str(raised.value.hint).splitlines()
    (tmp_path / "fleet.yaml").write_text("\n".join(line for line in lines if line.startswith("  ")))
    fleet = load_fleet(tmp_path / "fleet.yaml")
    assert (fleet.scheduler, list(fleet.classes)) == ("slurm", ["T4"])
