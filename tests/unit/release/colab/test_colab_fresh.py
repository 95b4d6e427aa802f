"""The probe on a fresh runtime, with a double of Google's `colab` command line: this machine has no login."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from doubles.project import T4, report
from typer.testing import CliRunner

from builder.cli.app import app
from builder.core.errors import MissingToolError, UsageError
from builder.release.colab import runtimes
from builder.verify.runner.reports import EXIT_CODES

if TYPE_CHECKING:
    from pathlib import Path

COLAB = """\
#!{python}
# A double of google-colab-cli: what runs is this machine's Python, and no Colab.
import re, subprocess, sys
assert sys.argv[1:-1] == {words!r}, sys.argv
print("[colab] Creating session 'run-1'...", file=sys.stderr)
script = open(sys.argv[-1]).read()
done = subprocess.run([sys.executable, "-"], input=script, text=True)  # a kernel, too, has no file of it
sys.exit(done.returncode)
"""
PROBE = """\
import json, sys
report = {report!r}
if "--compare" in sys.argv:
    older = json.load(open(sys.argv[sys.argv.index("--compare") + 1]))
    assert set(older) == {{"verdict", "cause", "fingerprint"}}
    now, before = report["fingerprint"]["packages"], older["fingerprint"]["packages"]
    report["changes"] = [
        {{"what": "packages " + name, "before": before.get(name), "now": now.get(name)}}
        for name in sorted({{*now, *before}}) if now.get(name) != before.get(name)
    ]
print(json.dumps(report))
sys.exit({code})
"""


class ColabDouble:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        folder.mkdir()
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        self.install(COLAB.format(python=sys.executable, words=["run", "--gpu", "T4", "--timeout", "900"]))

    def install(self, text: str) -> None:
        (self.folder / "colab").write_text(text)
        (self.folder / "colab").chmod(0o755)

    def finds(self, packages: dict[str, str], *, code: int | None = None, **changes: Any) -> None:
        """What the probe will report; as a program of its own, since it has to start there."""
        document = report(gpu=T4, fingerprint={"packages": packages, "digest": "x"}, **changes)
        code = EXIT_CODES[document["verdict"]] if code is None else code
        self.monkeypatch.setattr(
            "builder.cli.commands.colab.bundle", PROBE.format(report=document, code=code).encode
        )

    def run(self, *words: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["colab", "probe", *words], standalone_mode=False)
        self.said = result.stderr
        if result.exception is not None:
            raise result.exception
        return result.return_value, result.stdout


@pytest.fixture
def colab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ColabDouble:
    return ColabDouble(tmp_path / "bin", monkeypatch)


def test_a_runtime_and_what_changed_since(colab: ColabDouble, tmp_path: Path) -> None:
    last = tmp_path / "results" / "t4.json"
    colab.finds({"torch": "2.14.0", "jax": "0.9"})
    code, text = colab.run("--output", str(last))
    assert (code, text.count("\n")) == (0, 1)
    assert text.startswith("Colab, T4: works: ")
    document = json.loads(last.read_text())
    assert (document["about"], document["gpu"]) == ("a runtime of Google Colab", "T4")
    colab.finds({"torch": "2.15.0", "jax": "0.9", "triton": "3.9"})
    code, text = colab.run("--compare", str(last), "--output", str(last))
    assert code == 0
    assert text.splitlines()[1:] == ["  packages torch: 2.14.0 -> 2.15.0", "  packages triton: - -> 3.9"]
    _, text = colab.run("--compare", str(last))
    assert text.splitlines()[1:] == ["  nothing changed"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"verdict": "broken", "cause": "cudnn-missing"}, 1),
        ({"verdict": "busy", "cause": "device-busy"}, 5),
        ({"verdict": "unverified", "gpus": []}, 5),
        ({"gpus": [{"name": "NVIDIA L4", "compute_capability": "8.9"}]}, 5),
    ],
    ids=["broken", "busy", "no GPU", "another card"],
)
def test_exit_codes(colab: ColabDouble, changes: dict[str, Any], expected: int) -> None:
    colab.finds({}, **changes)
    assert colab.run()[0] == expected
    assert ("was asked for" in colab.said) == ("gpus" in changes)


def test_without_the_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError, match="Google's `colab` command line is not installed") as raised:
        runtimes.probe_runtime("T4", probe=b"", older=None, login=None, seconds=60)
    assert raised.value.exit_code == 5
    assert "google-colab-cli" in str(raised.value.hint)


def test_without_a_login_or_a_card(colab: ColabDouble) -> None:
    colab.install("#!/bin/bash\necho 'No valid default credentials found.' >&2\nexit 1\n")
    with pytest.raises(MissingToolError, match=r"ended with 1 and no report: No valid default credentials"):
        colab.run()


def test_what_comes_back_is_not_believed(colab: ColabDouble) -> None:
    colab.finds({}, code=20)
    with pytest.raises(MissingToolError, match="the report says works, and `colab run` ended with 20"):
        colab.run()
    colab.install("#!/bin/bash\nprintf 'rtbuild-report-begin\\neJw=\\nrtbuild-report-end\\n'\n")
    with pytest.raises(MissingToolError, match="what came back from Colab is no report"):
        colab.run()


def test_the_login_is_named_before_the_command(colab: ColabDouble) -> None:
    words = ["--auth", "adc", "run", "--gpu", "T4", "--timeout", "60"]
    colab.install(COLAB.format(python=sys.executable, words=words))
    colab.finds({})
    assert colab.run("--login", "adc", "--timeout", "60")[0] == 0


@pytest.mark.parametrize("text", ["", "[]", '{"about": "x", "report": {"fingerprint": {}}}', '{"report": 1}'])
def test_an_older_report_that_is_none(colab: ColabDouble, tmp_path: Path, text: str) -> None:
    path = tmp_path / "older.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"older\.json is"):
        colab.run("--compare", str(path))
    with pytest.raises(UsageError, match="there is no"):
        colab.run("--compare", str(tmp_path / "missing.json"))
