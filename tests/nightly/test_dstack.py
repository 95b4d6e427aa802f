"""The scripts for rented cards, beside the newest dstack: its own models read each document.

Nothing is rented: no server, no cloud.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from builder.release.dispatch.by_logs import dstack_scripts
from builder.release.dispatch.fleet import Fleet, Lane
from builder.release.dispatch.tasks import Task

pytestmark = [pytest.mark.long]
UV = Path(sys.executable).with_name("uv")
READ = """\
import sys, yaml
from dstack._internal.core.models.configurations import TaskConfiguration, parse_apply_configuration
found = parse_apply_configuration(yaml.safe_load(sys.stdin))
assert isinstance(found, TaskConfiguration), found
print(found.image, *found.resources.gpu.name, found.resources.gpu.count.max, found.max_duration)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has dstack."""
    folder = tmp_path_factory.mktemp("dstack")
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    subprocess.run(
        [UV, "pip", "install", "--quiet", "--python", folder / "bin/python", "dstack"],
        check=True,
        timeout=900,
    )
    return folder / "bin" / "python"


def test_dstack_takes_each_document(python: Path, tmp_path: Path) -> None:
    patch = {"max_price": 2, "resources": {"disk": "50GB.."}}
    classes = {"T4": Lane(minutes=7), "A100": Lane(patch=patch)}
    fleet = Fleet(version="1", scheduler="dstack", classes=classes)
    digest = "sha256:" + "0" * 64
    tasks = [
        Task(column=name, matrix="m", cell="c", repository="r.example/staging", inputs="i", digest=digest)
        for name in classes
    ]
    double = tmp_path / "dstack"
    double.write_text(f'#!/bin/sh\nexec {python} -c "$READ"\n')
    double.chmod(0o755)
    said = {}
    for name, script in dstack_scripts(tasks, fleet).items():
        path = f"{tmp_path}:{os.environ['PATH']}"
        said[name] = subprocess.run(
            ["sh", "-c", script],
            env=os.environ | {"PATH": path, "READ": READ},
            capture_output=True,
            text=True,
            check=False,
        )
    assert {name: done.stdout.split()[-3:] for name, done in said.items()} == {
        "T4": ["T4", "1", "420"],
        "A100": ["A100", "1", "1800"],
    }, [done.stderr for done in said.values()]


def test_what_dstack_does_not_take_is_seen(python: Path) -> None:
    done = subprocess.run(
        [python, "-c", READ],
        input="type: task\nimage: x\nprice: 1\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "price" in done.stderr
    assert done.returncode != 0
