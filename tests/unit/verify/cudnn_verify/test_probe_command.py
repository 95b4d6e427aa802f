"""The command as people meet it: bad input, odd machines, every way out."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from probe_elf import write_elf

from builder.verify.cudnn_verify.__main__ import _mend, answer
from builder.verify.cudnn_verify.measure.protocol import UsageError
from builder.verify.cudnn_verify.measure.report import compare_reports, printed_report, without_infinities


def test_a_bare_machine_has_nothing_to_check(probe):
    done = probe.run()
    assert done.returncode == 10, done.stderr
    assert done.stdout.startswith("UNVERIFIED: there is neither a GPU nor cuDNN nor a framework here")
    assert done.stderr == ""


def test_the_report_is_one_document(bare):
    report = bare
    keys = "schema probe verdict cause side summary remedy proof consequences checks python gpus driver "
    keys += "libraries frameworks differences test_double seconds"
    assert set(keys.split()) <= set(report)
    assert report["schema"] == 1
    assert report["seconds"] < 20
    assert {check["outcome"] for check in report["checks"]} <= {"passed", "failed", "not_run"}


def test_terraform_s_secrets_are_not_tensorflow_s_variables(probe):
    secret = {f"TF_{name}": "hush" for name in ("TOKEN_app_terraform_io", "VAR_password", "CLI_ARGS")}
    report = probe.report(env=dict(secret, TF_FORCE_GPU_ALLOW_GROWTH="true"))
    assert report["variables"] == {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    assert "hush" not in json.dumps(report)


@pytest.fixture
def mistaken(probe, tmp_path):
    """The probe with an exception in one of its checks, P01."""
    start = 'if __name__ == "__main__":'
    path = tmp_path / "cudnn_verify.py"
    mistake = "def check_pins(*_):\n    raise KeyError(0)\n\n\n"
    path.write_text(probe.path.read_text().replace(start, mistake + start))
    return type(probe)(path)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["--json", "--html", "--quiet", None])
def test_a_fault_of_the_probe_in_a_check_is_no_verdict_and_the_report_is_printed(mistaken, form):
    done = mistaken.run("--no-gpu", *filter(None, [form]))
    assert done.returncode == 30
    assert "no verdict: P01 of the stage packages was not made" in done.stderr
    if form == "--json":
        report = json.loads(done.stdout)
        assert (report["verdict"], report["cause"]) == (None, None)
        assert {check["id"]: check["outcome"] for check in report["checks"]}["P01"] == "not_run"
        assert printed_report("noise\n" + done.stdout) == report
    else:
        assert "NO VERDICT" in done.stdout or form == "--quiet"
        assert "KeyError: 0" in done.stdout


def test_a_probe_that_fails_itself_mends_nothing(mistaken):
    done = mistaken.run("--fix", "--yes", "--no-gpu")
    assert done.returncode == 30
    assert "the probe gave no verdict" in done.stderr


def test_only_one_stage_claims_nothing(probe):
    report = probe.report("--only", "driver")
    assert report["verdict"] == "unverified"
    assert {check["stage"] for check in report["checks"]} <= {
        "environment",
        "files",
        "packages",
        "resolver",
        "driver",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "nothing"], "there is no stage nothing; there are: "),
        (["--explain", "nothing"], "no cause nothing, and no signature fits it; there are: cudnn-missing"),
        (
            ["--expect", "/nowhere/expect.json"],
            "cannot read the expectation /nowhere/expect.json: No such file",
        ),
        (["--compare", "/nowhere/old.json"], "cannot read the older report /nowhere/old.json"),
        (["--frobnicate"], "unrecognized arguments: --frobnicate"),
    ],
)
def test_a_wrong_call_is_one_clear_message(asked, arguments, message):
    code, printed, said = asked(*arguments)
    assert code == 30
    assert message in said
    assert "Traceback" not in said
    assert printed == ""


def test_the_variable_names_an_expectation_too(probe, tmp_path):
    wanted = tmp_path / "expect.json"
    wanted.write_text('{"schema": 1, "cell": "c", "python": "2.7"}')
    done = probe.run("--json", env={"CUDNN_VERIFY_EXPECT": str(wanted)})
    report = json.loads(done.stdout)
    assert (done.returncode, report["cause"]) == (20, "expect-mismatch")
    assert report["differences"][0]["what"] == "python"


@pytest.mark.parametrize(
    ("module", "imports", "outcome", "summary"),
    [
        (
            "",
            ["json.decoder", "code_of:there", "code_of.part", "code_of:part"],
            "passed",
            "4 imports that were",
        ),
        ("", ["code_of.editor"], "failed", "import code_of.editor: ModuleNotFoundError: No module named"),
        (
            "",
            ["code_of:Gone", "json", "code_of.lost"],
            "failed",
            "from code_of import Gone: ImportError: cannot import name .*; and 1 more of 3 imports fail$",
        ),
        ("raise SystemExit(3)", ["code_of"], "failed", "import code_of: SystemExit: 3"),
        ("import os; os.abort()", ["json", "code_of"], "failed", "killed by signal 6"),
        (
            "raise ImportError('libcuda.so.1: cannot open shared object file: No such file')",
            ["code_of"],
            "not_run",
            "import code_of: ImportError: libcuda.so.1: cannot open shared object file",
        ),
        (
            "raise OSError('libnowhere.so.1: cannot open shared object file: No such file')",
            ["code_of"],
            "failed",
            "import code_of: OSError: libnowhere.so.1",
        ),
    ],
)
def test_what_code_imports_is_executed(probe, tmp_path, module, imports, outcome, summary):
    """Without a card, too. A crash names the import in which the process died."""
    folder = tmp_path / "path" / "code_of"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(f"there = 1\n{module}\n")
    (folder / "part.py").touch()
    wanted = tmp_path / "expect.json"
    wanted.write_text(json.dumps({"schema": 1, "imports": imports}))
    done = probe.run("--json", "--expect", str(wanted), env={"PYTHONPATH": str(folder.parent)})
    report = json.loads(done.stdout)
    (check,) = [one for one in report["checks"] if one["id"] == "F08"]
    assert (check["outcome"], report["verdict"]) == (
        outcome,
        "broken" if outcome == "failed" else "unverified",
    )
    assert re.match(summary, check["summary"])
    assert "code_of" in check["summary"] or outcome == "passed"
    causes = {"libnowhere": "system-library-missing", "abort": "crash"}
    wanted_cause = next((cause for word, cause in causes.items() if word in module), "expect-mismatch")
    assert report["cause"] == (wanted_cause if outcome == "failed" else None)


def test_nothing_is_imported_that_nobody_asks_for(probe):
    report = json.loads(probe.run("--json").stdout)
    assert not [one for one in report["checks"] if one["id"] == "F08"]


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_a_time_limit_is_a_time(asked, seconds):
    code, _, said = asked("--timeout", seconds)
    assert code == 30
    assert "--timeout wants a number of seconds above 0" in said


def test_an_older_report_that_is_none(asked, tmp_path):
    old = tmp_path / "old.json"
    old.write_text('{"fingerprint": "none"}')
    code, _, said = asked("--compare", str(old))
    assert (code, "is no report of this probe" in said) == (30, True)


def test_json_has_no_number_for_what_is_none():
    found = without_infinities({"losses": [1.5, float("nan")], "off": (float("inf"), -float("inf"), 1)})
    assert found == {"losses": [1.5, "nan"], "off": ["inf", "-inf", 1]}


@pytest.mark.slow
def test_a_terminal_that_is_closed_leaves_no_child_behind(probe, tmp_path):
    (tmp_path / "torch.py").write_text(
        f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    # a test run under nohup would hand the ignored signal down
    command = ["env", "--default-signal=HUP", sys.executable, str(probe.path), "--timeout", "300"]
    process = subprocess.Popen(command, env={"PYTHONPATH": str(tmp_path)}, stderr=subprocess.DEVNULL)
    child = tmp_path / "pid"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (child.exists() and child.read_text()):
        time.sleep(0.05)
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=60) == 128 + signal.SIGHUP
    with pytest.raises(ProcessLookupError):
        os.kill(int(child.read_text()), 0)


NOISE = """\
import atexit, os, sys
print("{")
print("hello")
print("}")
atexit.register(print, "good-bye")
"""


@pytest.mark.slow
def test_what_a_sitecustomize_prints_is_no_part_of_the_json(probe, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(NOISE)
    done = probe.run("--json", env={"PYTHONPATH": str(tmp_path)})
    assert json.loads(done.stdout)["verdict"] == "unverified"
    assert {"hello", "good-bye"} <= set(done.stderr.splitlines())


@pytest.mark.slow
def test_what_is_printed_at_once_stands_before_the_document(probe, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(NOISE)
    environment = {"PYTHONPATH": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    done = probe.run("--json", env=environment)
    assert done.stdout.startswith("{\nhello\n}\n")
    assert printed_report(done.stdout)["verdict"] == "unverified"


def test_explain_is_readable(asked):
    _, text, _ = asked("--explain", "cudnn-shadowed")
    assert text.startswith("cudnn-shadowed: Another cuDNN on LD_LIBRARY_PATH")
    assert "What to do: " in text
    assert "exit code 20" in text


@pytest.mark.slow
def test_a_cudnn_without_its_functions_is_broken_and_no_fault_of_the_probe(probe, tmp_path):
    target = tmp_path / "libcudnn.so.9"
    build = ["gcc", "-shared", "-x", "c", "/dev/null", "-Wl,-soname,libcudnn.so.9", "-o", str(target)]
    subprocess.run(build, check=True)
    argv = [sys.executable, str(probe.path), "--json"]
    env = {"LD_LIBRARY_PATH": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(argv, env=env, capture_output=True, check=False)
    assert done.returncode == 20, done.stderr
    assert json.loads(done.stdout)["verdict"] == "broken"


def test_a_fault_of_the_probe_is_pasteable(monkeypatch, capsys):
    def broken(*_):
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr("builder.verify.cudnn_verify.__main__.run_probe", broken)
    assert answer(["--json"]) == 30
    said = capsys.readouterr().err
    assert "this is a fault of the probe" in said
    assert "ZeroDivisionError: surprise" in said
    assert said.count("```") == 2


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&- 2>&- <&-", "| head -c 1 >/dev/null"])
def test_nobody_listens(probe, closed):
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} {probe.path} {closed}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 10, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    ["", "--json", "--html", "-q", "--version", "--help", "--explain hang", "--read /etc/hostname"],
)
def test_a_device_that_is_full_is_said_and_no_report_is_taken_for_written(probe, arguments):
    """Every kind of output, and the verdict in the message where there is one."""
    command = f"{sys.executable} {probe.path} {arguments} >/dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 30
    assert "the output could not be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    if arguments in ("", "--json", "--html", "-q"):
        assert "cudnn-verify: unverified: " in done.stderr


@pytest.mark.slow
def test_it_does_not_run_out_of_a_pipe(probe):
    piped = subprocess.run(
        [sys.executable, "-", "-q"], input=probe.path.read_text(), capture_output=True, text=True, check=False
    )
    assert piped.returncode == 30
    assert "it came through a pipe" in piped.stderr


@pytest.mark.slow
def test_without_an_environment_in_a_folder_without_write_permission(probe):
    done = subprocess.run(
        [os.path.realpath(sys.executable), str(probe.path)],
        env={"PYTHONIOENCODING": "ascii"},
        cwd="/proc/self",
        capture_output=True,
        check=False,
    )
    assert done.returncode == 10, done.stderr
    done.stdout.decode("ascii")


@pytest.mark.slow
def test_no_proc(probe):
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("needs root and unshare")
    script = f"umount -l /proc && exec {sys.executable} {probe.path} --json"
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False)
    if not done.stdout:
        pytest.skip(f"no mount namespace here: {done.stderr}")
    assert done.returncode == 10
    assert json.loads(done.stdout)["verdict"] == "unverified"


@pytest.mark.slow
def test_a_libcudnn_that_is_a_text_file(probe, tmp_path):
    (tmp_path / "libcudnn.so.9").write_text("hello\n")
    report = probe.report(env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert (report["verdict"], report["cause"]) == ("broken", "cudnn-file-corrupt")
    assert "not an ELF file" in report["summary"]


@pytest.mark.slow
def test_ten_thousand_files_on_the_path(probe, tmp_path):
    for number in range(10000):
        (tmp_path / f"libcudnn_not_{number}.txt").touch()
    report = probe.report(env={"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)})
    assert report["verdict"] == "unverified"
    assert report["seconds"] < 10


def test_a_broken_python_package(probe, tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise RuntimeError('boom')\n")
    report = probe.report(env={"PYTHONPATH": str(tmp_path)})
    assert (report["verdict"], report["cause"]) == ("broken", "framework-import")
    assert "RuntimeError: boom" in report["summary"]


@pytest.mark.slow
def test_a_package_that_ends_the_process_is_no_end_of_the_probe(probe, tmp_path):
    (tmp_path / "torch.py").write_text("import os\nos._exit(0)\n")
    report = probe.report(env={"PYTHONPATH": str(tmp_path)})
    assert report["verdict"] == "broken"
    assert report["cause"] == "crash"


def test_parts_without_a_shim(probe, tmp_path):
    write_elf(tmp_path / "nvidia/cudnn/lib/libcudnn_ops.so.9")
    report = probe.report(env={"PYTHONPATH": str(tmp_path)})
    assert report["cause"] == "cudnn-missing"
    assert "holds parts of cuDNN 9, but no libcudnn.so.9" in report["summary"]


@pytest.mark.slow
def test_what_changed_since_the_last_time(probe, bare, tmp_path):
    old = tmp_path / "old.json"
    old.write_text(json.dumps(bare))
    (tmp_path / "lib").mkdir()
    write_elf(tmp_path / "lib/libcudnn.so.7", soname="libcudnn.so.7")
    report = probe.report("--compare", str(old), env={"LD_LIBRARY_PATH": str(tmp_path / "lib")})
    changed = {row["what"]: (row["before"], row["now"]) for row in report["changes"]}
    assert f"libraries {tmp_path}/lib/libcudnn.so.7" in changed
    assert changed["variables LD_LIBRARY_PATH"] == (None, str(tmp_path / "lib"))
    assert compare_reports(bare, bare) == []


@pytest.mark.slow
def test_a_notebook_runs_it_beside_the_kernel(probe):
    code = (
        "import os, cudnn_verify\n"
        "os.environ['LD_LIBRARY_PATH'] = '/set/too/late'\n"
        "class Shell:\n"
        "    user_ns = {}\n"
        "    def register_magic_function(self, function, kind, name):\n"
        "        print(kind, name)\n"
        "        function('-q')\n"
        "cudnn_verify.load_ipython_extension(Shell())\n"
        "print(cudnn_verify.verify('--no-gpu')['verdict'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=probe.path.parent, capture_output=True, text=True, check=True
    )
    assert "unverified: " in done.stdout
    assert "line cudnn_verify\n" in done.stdout
    assert "UNVERIFIED" in done.stdout  # without IPython the page is text
    assert done.stdout.endswith("\nunverified\n")


def test_a_running_process_that_started_with_other_variables(probe):
    report = probe.report("--pid", str(os.getpid()), env={"LD_LIBRARY_PATH": "/set/too/late"})
    check = next(row for row in report["checks"] if row["stage"] == "session")
    assert check["outcome"] == "passed"
    assert "LD_LIBRARY_PATH differs" in check["note"]


def interpreters():
    """Every CPython from 3.6 on that answers here, by name or below a pyenv."""
    found = {}
    names = [shutil.which(f"python3.{minor}") for minor in range(6, 16)]
    names += sorted(map(str, Path("~/.pyenv/versions").expanduser().glob("*/bin/python")))
    for name in filter(None, names):
        done = subprocess.run(
            [name, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
        )
        version = done.stdout.strip()
        if done.returncode == 0 and tuple(map(int, version.split("."))) >= (3, 6):
            found.setdefault(version, name)
    return found


@pytest.mark.slow
def test_the_oldest_and_the_newest_interpreter_here(probe, tmp_path):
    """With CI set all of them: half a second each."""
    (tmp_path / "libcudnn.so.9").write_text("hello\n")
    started = {}
    here = interpreters()
    by_age = sorted(here, key=lambda version: tuple(map(int, version.split("."))))
    chosen = by_age if os.environ.get("CI") else sorted({by_age[0], by_age[-1]})
    for version, python in ((version, here[version]) for version in chosen):
        started[version] = subprocess.Popen(
            [python, "-W", "error", str(probe.path), "--json"],
            env={"LD_LIBRARY_PATH": str(tmp_path), "PATH": os.environ["PATH"]},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert started
    for version, process in started.items():
        out, err = process.communicate(timeout=300)
        assert (version, process.returncode, err) == (version, 20, "")
        assert json.loads(out)["cause"] == "cudnn-file-corrupt"
        # all expressions, compiled
        argv = [here[version], "-W", "error", str(probe.path), "--explain", "CUDNN_STATUS_ARCH_MISMATCH"]
        assert b"cudnn-arch-dropped" in subprocess.run(argv, check=True, capture_output=True).stdout


@pytest.mark.slow
def test_a_python_that_does_not_know_its_own_file_gives_a_verdict(probe):
    argv = ["python3", str(probe.path), "-q"]
    done = subprocess.run(argv, executable=sys.executable, env={}, capture_output=True, check=False)
    assert done.returncode in {10, 20}, done.stderr


def test_a_fault_of_the_probe_is_no_report_and_nothing_is_called_mended(capsys):
    for text in ('{"verdict": null, "cause": null}', '{"a": 1}', "[]"):
        with pytest.raises(ValueError, match="no report"):
            printed_report(text)

    def look(_environment=None):
        raise UsageError("the probe gave no report")

    work = SimpleNamespace(run=lambda _command: True, look=look, undo=list)
    with pytest.raises(UsageError):
        _mend(work, [{}], {"cause": "package-overwritten"}, None)
    assert "That did not help" in capsys.readouterr().out
