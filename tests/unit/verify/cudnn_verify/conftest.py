"""The probe as people get it: one file, run as a process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from builder.image.recipe.probe_file import bundle
from builder.verify.cudnn_verify.__main__ import answer
from builder.verify.cudnn_verify.measure.protocol import Ctx
from builder.verify.cudnn_verify.measure.run import SETTINGS


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter-test takes away what it finds here, and OPENBLAS_CORETYPE is set on some machines."""
    for name in [name for name in os.environ if SETTINGS.match(name)]:
        monkeypatch.delenv(name)


class Probe:
    """``cudnn-verify`` at a path, and a way to run it in a clean environment."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, *arguments: str, env=None, python=sys.executable, **options):
        """Run it; variables that steer the loader or the probe are not inherited."""
        clean = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
        clean.update(env or {})
        options.setdefault("stdin", subprocess.DEVNULL)
        command = [python, str(self.path), *arguments]
        return subprocess.run(
            command, env=clean, capture_output=True, text=True, timeout=120, check=False, **options
        )

    def report(self, *arguments: str, **options):
        done = self.run("--json", *arguments, **options)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)


class Recorder(Ctx):
    """A stage's context without a parent: lines are kept instead of sent."""

    def __init__(self, **params) -> None:
        super().__init__("under-test", params, -1)
        self.lines = []

    def send(self, line):
        self.lines.append(line)

    def found(self, number):
        return next(line for line in self.lines if line["t"] == "check" and line["id"] == number)


@pytest.fixture
def recorder():
    return Recorder


@pytest.fixture
def asked(capsys, monkeypatch):
    """The command in this process: its exit code, what it prints, what it says. It takes no signal here."""
    monkeypatch.setattr("builder.verify.cudnn_verify.__main__.signal.signal", lambda *_: None)

    def ask(*arguments):
        code = answer(list(arguments))
        printed, said = capsys.readouterr()
        return code, printed, said

    return ask


@pytest.fixture(scope="session")
def bare(probe):
    """The report of a run with nothing special about it."""
    return probe.report()


@pytest.fixture(scope="session")
def probe(tmp_path_factory):
    path = tmp_path_factory.mktemp("probe") / "cudnn_verify.py"
    path.write_bytes(bundle())
    return Probe(path)
