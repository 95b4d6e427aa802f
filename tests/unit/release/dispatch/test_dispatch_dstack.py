"""Rented cards: the scripts for dstack, and the reports that are read from its logs."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml
from doubles.project import A100, T4, report

from builder.core.errors import MissingToolError, SchedulerError, UsageError

if TYPE_CHECKING:
    from tests.unit.release.dispatch.conftest import Desk


def applied(desk: Desk) -> list[dict[str, object]]:
    """The documents that the printed scripts give to a double of dstack."""
    code, scripts = desk.call("--dry-run", "--format", "dstack")
    assert code == 0
    desk.program("dstack", f'cat >{desk.folder}/applied-$$; echo "$*" >>{desk.folder}/asked')
    subprocess.run(["sh", "-c", scripts], check=True)
    asked = (desk.folder / "asked").read_text().splitlines()
    assert set(asked) == {"apply --yes --detach --file -"}
    return [yaml.safe_load(path.read_text()) for path in desk.folder.glob("applied-*")]


def logs(desk: Desk, cards: dict[str, dict[str, str]]) -> None:
    """Let each task that was applied have printed the report of a card, by its class."""
    for one in applied(desk):
        name, digest = str(one["name"]), str(one["image"]).partition("@")[2]
        (image,) = (found for found in desk.images() if found.digest == digest)
        (card,) = one["resources"]["gpu"]["name"]  # type: ignore[index]
        text = json.dumps(report(image, gpu=cards[card]), indent=1).replace("\n", "\r\n")
        (desk.folder / name).write_text(f"pulling\r\n{text}\r\n")
    desk.program(
        "dstack", f'[ -e {desk.folder}/$2 ] || {{ echo "Run $2 not found"; exit 1; }}; cat {desk.folder}/$2'
    )


def test_a_task_is_the_image_and_holds_no_token(desk: Desk) -> None:
    desk.write_fleet("slurm", limits="{minutes: 7, patch: {max_price: 2, resources: {disk: 50GB..}}}")
    found = applied(desk)
    assert len(found) == 4
    one = next(task for task in found if task["resources"]["gpu"]["name"] == ["T4"])  # type: ignore[index]
    assert {**one, "name": "", "image": ""} == {
        "type": "task",
        "name": "",
        "image": "",
        "commands": [
            "cudnn-verify --json --suggested linalg,attention,compile,train,vision,loader,conv-kinds"
        ],
        "resources": {"gpu": {"name": ["T4"], "count": 1}, "disk": "50GB.."},
        "max_duration": "7m",
        "tags": {"managed-by": "rtbuild"},
        "max_price": 2,
    }
    assert "@sha256:" in str(one["image"])


def test_reports_are_collected_from_logs(desk: Desk) -> None:
    desk.write_fleet("dstack")
    logs(desk, {"T4": T4, "A100": A100})
    code, rows = desk.tasks("--collect")
    assert (code, {row["verdict"] for row in rows}) == (0, {"works"})
    desk.program("dstack", "exit 1")
    assert desk.tasks("--collect")[0] == 0, "the registry has them"


def test_a_card_of_another_class_and_a_task_that_never_ran(desk: Desk) -> None:
    logs(desk, {"T4": A100, "A100": A100})
    code, rows = desk.tasks("--collect", "--format", "dstack")
    assert code == 5
    assert [row["verdict"] for row in rows if row["class"] == "T4"] == [None, None]
    assert "the fleet says T4, and its node has A100" in desk.said


def test_what_dstack_has_no_run_of(desk: Desk) -> None:
    desk.program("dstack", 'echo "Run $2 not found"; exit 1')
    code, rows = desk.tasks("--collect", "--format", "dstack")
    assert (code, {row["state"] for row in rows}) == (5, {"waiting"})
    assert "the log holds no report" in desk.said


def test_a_server_that_refuses_is_no_absence(desk: Desk) -> None:
    desk.program("dstack", 'echo "Unauthorized"; exit 1')
    with pytest.raises(SchedulerError) as raised:
        desk.call("--collect", "--format", "dstack")
    assert raised.value.tail == ("Unauthorized",)


def test_nothing_is_rented_by_accident(desk: Desk) -> None:
    desk.write_fleet("dstack")
    with pytest.raises(UsageError, match="rents no cards for 4 tasks"):
        desk.call()
    with pytest.raises(UsageError, match="--collect goes without"):
        desk.call("--collect", "--wait")
    desk.monkeypatch.setenv("PATH", str(desk.bin))
    with pytest.raises(MissingToolError, match="there is no dstack here"):
        desk.call("--collect")
