"""The command line: words, exit codes, and that stdout carries data only."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest
import rtbuild_command
import typer.main
import typer.testing

from builder.cli import boundary
from builder.cli.app import EXAMPLES, _complete, app, loaded
from builder.cli.console import Terminal
from builder.cli.console.terminal import print_json
from builder.cli.options import matrix_paths, mirrors
from builder.cli.walking import exit_code, finished
from builder.core import errors
from builder.core.errors import (
    CellError,
    IndexSilentError,
    NoSolutionError,
    RegistrySilentError,
    UsageError,
)
from builder.core.model import Base, Cell, Cuda
from builder.pipeline import Hooks
from builder.pipeline.events import CellOutcome, CellResult, Stage

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[3]
TF28 = "matrices/tf28.yaml"
CELL = Cell(
    id="c",
    matrix="m",
    frameworks=("six==1.17.0",),
    python="3.11",
    base=Base(kind="rootfs", name="debian/bookworm"),
    cuda=Cuda(provider="none"),
)


def rtbuild(*args: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return rtbuild_command.inside(cwd, *args, check=None)


def test_list_shows_what_is_chosen_and_why_the_rest_is_not() -> None:
    done = rtbuild("list", TF28, "--select", "*bullseye*")
    assert done.returncode == 0
    chosen, left_out = sorted(line for line in done.stdout.splitlines() if line.startswith("  "))
    assert chosen.startswith("  * tensorflow2.8.4-py3.9-bullseye")
    assert left_out.startswith("  - tensorflow2.8.4-py3.8-cuda11.2.2")
    assert done.stdout.endswith("1 of 2 cells chosen\n")


def test_list_counts_what_is_not_selected_where_that_is_much() -> None:
    done = rtbuild("list", "--select", "jax*")
    assert not [line for line in done.stdout.splitlines() if line.endswith("not selected")]
    rows = [line for line in done.stdout.splitlines() if line.startswith("  ")]
    assert {row.split()[0] for row in rows} == {"*"}
    count, chosen = done.stdout.splitlines()[-2:]
    number = int(count.split()[0])
    assert count.endswith(" cells that --select does not name: `rtbuild list` has them")
    assert chosen == f"{len(rows)} of {len(rows) + number} cells chosen"


def test_completion_is_that_of_the_shell_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert _complete("--show-completion", "zsh") == 0
    assert capsys.readouterr().out.startswith("#compdef rtbuild")
    assert _complete("--show-completion", "bash") == 0
    assert "complete -o default -F" in capsys.readouterr().out
    assert _complete("--show-completion", "tcsh") == 2
    assert "none but bash, zsh, fish" in capsys.readouterr().err


def test_the_errors_of_several_files_come_together(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(f"version: 1\nname: {name}\nincldue: []\n")
    done = rtbuild("list", "one.yaml", "two.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "one.yaml:3:1: error:" in done.stderr
    assert "\n\ntwo.yaml:3:1: error:" in done.stderr
    assert not done.stderr.startswith("error:")


def test_list_json_is_one_document_with_both() -> None:
    document = json.loads(rtbuild("list", TF28, "--json", "--skip", "*ubuntu*").stdout)
    assert [c["python"] for c in document["chosen"]] == ["3.9"]
    assert document["chosen"][0]["image"].startswith("rtbuild/tf28:tensorflow2.8.4")
    assert document["left_out"][0]["reason"]


@pytest.mark.parametrize(
    ("row", "suggested"),
    [
        ("{framework: torch==2.7.1}", "linalg attention train loader comm conv-kinds"),
        (
            "{framework: torch==2.7.1, pip: [torchvision==0.22.1], compilers: true}",
            "linalg attention compile train vision loader comm conv-kinds",
        ),
        (
            "{framework: tensorflow-gpu==2.8.4}",
            "linalg attention compile train vision loader conv-kinds",
        ),
        ("{framework: torch==2.7.1, pip: [onnxruntime-gpu==1.22.0], verify: [comm]}", None),
        (
            "{framework: torch==2.7.1, pip: [onnxruntime-gpu==1.22.0]}",
            "linalg attention train loader comm infer conv-kinds",
        ),
        ("{framework: six==1.16.0}", ""),
    ],
)
def test_list_names_the_suites_that_the_packages_of_a_cell_have(
    tmp_path: Path, row: str, suggested: str | None
) -> None:
    (tmp_path / "m.yaml").write_text(
        "version: 1\nname: m\ndefaults: {python: '3.11', base: 'rootfs:debian/bookworm', cuda: wheels}\n"
        f"include: [{row}]\n"
    )
    (cell,) = json.loads(rtbuild("list", "m.yaml", "--json", cwd=tmp_path).stdout)["chosen"]
    if suggested is None:  # a matrix that names suites decides
        assert cell["suites"] == ["conv", "comm"]
        assert cell["suggested_suites"] == []
    else:
        assert (cell["suites"], cell["suggested_suites"]) == (["conv"], suggested.split())


def test_list_makes_job_matrices_in_chunks_that_github_takes(tmp_path: Path) -> None:
    versions = ",\n  ".join(f"six==1.{n}.0" for n in range(300))
    (tmp_path / "m.yaml").write_text(
        f"version: 1\nname: m\ndefaults: {{python: '3.11', base: 'rootfs:debian/bookworm', cuda: none}}\n"
        f"axes: {{framework: [{versions}]}}\n"
    )
    jobs = json.loads(rtbuild("list", "m.yaml", "--format", "github", cwd=tmp_path).stdout)
    for chunks in (jobs["build"], jobs["verify"]):
        assert [len(chunk["include"]) for chunk in chunks] == [256, 44]
    six = "six1.0.0-py3.11-bookworm-cpu"
    cell = {"name": f"m {six}", "cell": six, "matrix": "m.yaml"}
    assert jobs["build"][0]["include"][0] == {**cell, "engine": "none"}
    assert jobs["verify"][0]["include"][0] == {**cell, "gpu": "any", "labels": ["self-hosted", "gpu"]}


def test_a_cell_is_built_once_and_verified_on_each_gpu_that_it_claims(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(
        "version: 1\nname: m\ndefaults: {python: '3.11', base: 'rootfs:debian/bookworm', cuda: none, "
        "gpus: [T4, A100]}\naxes: {framework: [six==1.17.0]}\n"
    )
    jobs = json.loads(rtbuild("list", "m.yaml", "--format", "github", cwd=tmp_path).stdout)
    assert len(jobs["build"][0]["include"]) == 1
    on_a_registry_base = json.loads(
        rtbuild("list", TF28, "--format", "github", "--skip", "*bullseye*").stdout
    )
    assert {job["engine"] for job in on_a_registry_base["build"][0]["include"]} == {"docker"}
    verify = jobs["verify"][0]["include"]
    assert [(job["gpu"], job["labels"]) for job in verify] == [
        ("T4", ["self-hosted", "gpu", "T4"]),
        ("A100", ["self-hosted", "gpu", "A100"]),
    ]


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["lisst"], 2, "Did you mean 'list'?"),
        (["list", "--sellect", "x"], 2, "--select"),
        (["list", "matrices/tf288.yaml"], 2, "did you mean 'matrices/tf28.yaml'"),
        (["list", TF28, "-s", "*py3.7*"], 3, "no cell matches --select '*py3.7*'"),
        (
            ["build", TF28, "--progress", "loud"],
            2,
            "'loud' is not one of 'auto', 'tty', 'plain', 'json', 'none'",
        ),
        (["lock", TF28, "--registry-mirror", "docker.io"], 2, "docker.io=localhost:5000"),
        (["lock", TF28, "--check", "--upgrade"], 2, "--upgrade has no part in it"),
        (["lock", TF28, "--check", "--upgrade-only", "numpy"], 2, "--upgrade-only has no part in it"),
        (["lock", TF28, "--check", "--trace", "trace.json"], 2, "--trace has no part in it"),
    ],
)
def test_wrong_usage_ends_with_its_code_and_a_way_on(args: list[str], code: int, says: str) -> None:
    done = rtbuild(*args)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["resolve", "init", "up", "check"])
def test_who_gives_a_cuda_is_told_how_and_no_option_that_is_spelt_alike(command: str) -> None:
    done = rtbuild(command, "torch", "--cuda", "12.1")
    assert done.returncode == 2
    assert "'torch==2.1.0+cu121'" in done.stderr
    assert "--driver 535" in done.stderr
    assert "--conda" not in done.stderr


def test_all_wrong_matrices_are_shown_together(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text("version: 1\nnaem: x\n")
    done = rtbuild("list", "a.yaml", "b.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "a.yaml:2:1" in done.stderr
    assert "b.yaml:2:1" in done.stderr


def test_locked_without_a_lock_is_exit_4_before_anything_is_touched(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text((ROOT / TF28).read_text())
    done = rtbuild("lock", "m.yaml", "--check", cwd=tmp_path)
    assert done.returncode == 4
    assert "missing" in done.stderr
    assert "rtbuild lock" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["m.yaml"]


def test_no_engine_is_exit_5_with_one_command_that_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    done = rtbuild("build", TF28)
    assert done.returncode == 5, done.stderr
    assert "hint:" in done.stderr


def test_a_bug_is_exit_70_and_leaves_a_file_ready_to_paste(capsys: pytest.CaptureFixture[str]) -> None:
    def program() -> int:
        raise ZeroDivisionError("a bug")

    assert boundary.guarded(program) == 70
    err = capsys.readouterr().err
    assert "ZeroDivisionError: a bug" in err
    path = Path(next(word for word in err.split() if word.endswith(".md")))
    text = path.read_text()
    path.unlink()
    assert "Traceback" in text
    assert text.count("```") == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_twice_does_not_end_the_clearing_away(number: int) -> None:
    """As ``timeout`` sends it: to the program, and to the group that it is in."""
    before = signal.signal(number, signal.SIG_DFL)
    cleared: list[bool] = []

    def program() -> int:
        try:
            os.kill(os.getpid(), number)
            time.sleep(10)
        finally:
            os.kill(os.getpid(), number)
            time.sleep(0.01)
            cleared.append(True)
        return 0

    try:
        assert boundary.guarded(program) == 130
    finally:
        signal.signal(number, before)
    assert cleared == [True]


def test_no_step_follows_a_run_that_was_interrupted_at_its_last_cells_end() -> None:
    def run(hooks: Hooks) -> list[CellResult]:
        hooks.cancel.set()
        return []

    assert finished(Terminal.of(), run, json=False) == 130
    assert finished(Terminal.of(), lambda hooks: [], json=False) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_being_asked_to_stop_clears_away_as_ctrl_c_does(number: int) -> None:
    before = signal.signal(number, signal.SIG_DFL)
    ended: list[bool] = []

    def program() -> int:
        try:
            os.kill(os.getpid(), number)
            time.sleep(10)
        finally:
            ended.append(True)
        return 0

    try:
        assert boundary.guarded(program) == 130
    finally:
        signal.signal(number, before)
    assert ended == [True]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--output", "x"], "--output is for --engine none"),
        (["--engine", "none", "--check-reproducible"], "--check-reproducible needs an engine"),
        (["--engine", "none", "--cache-to", "type=local,dest=x"], "--cache-to needs an engine"),
        (
            ["--engine", "none", "--cache-from", "a", "--context", "b"],
            "--cache-from, --context need an engine",
        ),
        (["--require-verified", "--no-verify"], "--no-verify asks no GPU"),
        (["--check-reproducible", "--push", "host/a"], "--push has no part in it"),
        (["--check-reproducible", "--require-verified"], "--require-verified has no part in it"),
    ],
)
def test_options_of_build_that_would_say_nothing(options: list[str], said: str) -> None:
    done = typer.testing.CliRunner().invoke(app, ["build", str(TF28), *options])
    assert isinstance(done.exception, UsageError)
    assert said in done.exception.message


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["catalogue", "--key", "cosign.pub"], "--key is for published images, and none is named"),
        (["doctor", "--network", "--fleet", "x"], "--network and --fleet ask different things"),
        (["doctor", "--fleet", "x", "--context", "y"], "--fleet and --context ask different things"),
    ],
)
def test_options_of_questions_that_are_not_asked(words: list[str], said: str) -> None:
    done = typer.testing.CliRunner().invoke(app, words)
    assert isinstance(done.exception, UsageError)
    assert said in done.exception.message


@pytest.mark.parametrize(
    "command",
    [
        ["explain", "*bullseye*", TF28],
        ["check", TF28, "-s", "*bullseye*"],
        ["lock", "--check", TF28, "-s", "*bullseye*"],
    ],
    ids=lambda command: command[0],
)
def test_json_is_one_document_about_cells(command: list[str]) -> None:
    done = typer.testing.CliRunner().invoke(app, [*map(str, command), "--json"])
    document = json.loads(done.stdout)
    assert document["schema"] == 1
    (cell,) = document["cells"]
    assert cell["id"].startswith("tensorflow2.8.4-")


def test_the_reader_of_a_pipe_may_leave() -> None:
    done = subprocess.run(
        f"{shlex.join(rtbuild_command.RTBUILD)} list {TF28} --json | head -c 1",
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == "{"
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.parametrize(
    ("outcomes", "require", "code"),
    [
        ([CellOutcome.WORKS, CellOutcome.DONE], False, 0),
        ([CellOutcome.UNVERIFIED], False, 0),
        ([CellOutcome.UNVERIFIED], True, 5),
        ([CellOutcome.HOST, CellOutcome.WORKS], False, 5),
        ([CellOutcome.HOST, CellOutcome.FAILED], False, 1),
        ([CellOutcome.CANCELLED, CellOutcome.FAILED], False, 130),
    ],
)
def test_what_a_run_comes_to(outcomes: list[CellOutcome], require: bool, code: int) -> None:
    results = [CellResult(cell=CELL, outcome=outcome, stage=Stage.VERIFY) for outcome in outcomes]
    assert exit_code(results, require_verified=require) == code


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ([IndexSilentError("no answer")], 5),
        ([IndexSilentError("no answer"), RegistrySilentError("no answer")], 5),
        ([IndexSilentError("no answer"), NoSolutionError("none")], 1),
    ],
)
def test_a_run_that_got_no_answer_says_nothing_of_its_cells(errors: list[CellError], code: int) -> None:
    failed = partial(CellResult, cell=CELL, outcome=CellOutcome.FAILED, stage=Stage.LOCK)
    assert exit_code([failed(error=error) for error in errors]) == code


def test_mirrors_on_the_command_line_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RTBUILD_REGISTRY_MIRROR", "docker.io=a:5000, quay.io=b:5000/q")
    assert mirrors(["docker.io=c:5000"]) == {"docker.io": "c:5000", "quay.io": "b:5000/q"}


def test_no_matrix_at_all_says_what_to_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"no matrices/\*\.yaml here"):
        matrix_paths([])


def test_the_reference_is_what_help_says(
    generated: Callable[[str, str | bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    runner = typer.testing.CliRunner()
    root = typer.main.get_command(app)
    assert isinstance(root, typer.main.TyperGroup)
    text = ["# Command line reference", "", "Made from `rtbuild --help`; a test keeps it true.", ""]
    commands = [[]]
    for name in root.commands:
        commands.append([name])
        command = loaded(name)
        if isinstance(command, typer.main.TyperGroup):
            commands += [[name, inner] for inner in command.commands]
    for words in commands:
        shown = runner.invoke(app, [*words, "--help"], prog_name="rtbuild").stdout
        assert shown.startswith("Usage: rtbuild")
        cut = [line for line in shown.splitlines()[1:] if line.endswith("...") and "Usage" not in line]
        assert not cut, "a line of help that is cut short"
        text += [f"## {' '.join(['rtbuild', *words])}", "", "```text", shown.rstrip(), "```", ""]
    generated("docs/cli.md", "\n".join(text))


@pytest.mark.parametrize(
    "words",
    [
        ["probe"],
        ["init", "torch", "--offline", "--gpu", "T4"],
        ["resolve", "torch", "--offline", "--gpu", "T4"],
        [
            "export",
            "tensorflow2.11.1-*",
            str(ROOT / "benchmarks/matrices/tf.yaml"),
            "--format",
            "constraints",
        ],
    ],
    ids=lambda words: words[0],
)
def test_an_output_that_cannot_be_written_is_no_bug(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = rtbuild(*words, "--output", "file/within", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: file/within" in done.stderr
    assert "cannot be written: " in done.stderr


def test_the_help_names_every_exit_code() -> None:
    of_errors = {
        one.exit_code for one in vars(errors).values() if isinstance(one, type) and hasattr(one, "exit_code")
    }
    named = re.findall(r"(?:: |· )([0-9]+) ", " ".join((app.info.epilog or "").split()))
    assert [int(code) for code in named] == sorted({0, 70, 130} | of_errors)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["check", "--json", "no-file.yaml"], 2, "no matrix file no-file.yaml"),
        (["check", "--json", "wrong.yaml"], 2, "wrong.yaml: 1 error"),
        (["check", "--json", "--frobnicate"], 2, "No such option: --frobnicate"),
        (["list", TF28, "--json", "--select", "nothing"], 3, "nothing"),
        (["diagnose", "--json", "no-log.txt"], 2, "no-log.txt"),
        (["audit", "--json", "localhost:9/x:y"], 5, "localhost:9 did not answer"),
    ],
)
def test_an_error_is_a_document_too(words: list[str], code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("version: 1\nname: wrong\nincldue: []\n")
    (tmp_path / "matrices").symlink_to(ROOT / "matrices")
    done = rtbuild(*words, cwd=tmp_path)
    document = json.loads(done.stdout)
    jsonschema.validate(document, json.loads((ROOT / "docs" / "error.schema.json").read_text()))
    assert (done.returncode, document["exit_code"]) == (code, code)
    assert said in document["message"]
    assert said in done.stderr
    if "wrong.yaml" in words:
        assert [(row["line"], row["column"]) for row in document["places"]] == [(3, 1)]


def test_a_form_that_export_has_not_leads_to_the_docker_command(tmp_path: Path) -> None:
    done = rtbuild("export", TF28, "--format", "compose", cwd=tmp_path)
    assert done.returncode == 2
    assert "'pylock', 'requirements'" in done.stderr
    assert "`rtbuild run CELL --dry-run` prints the docker command" in done.stderr


def test_a_document_that_was_printed_stays_the_only_one(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr("sys.argv", ["rtbuild", "run", "--json", "x"])

    def program() -> int:
        print_json({"schema": 1})
        raise UsageError("it ended")

    assert boundary.guarded(program) == 2
    assert json.loads(capsys.readouterr().out) == {"schema": 1}


def test_without_json_an_error_prints_nothing_on_stdout(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def program() -> int:
        raise UsageError("it ended")

    monkeypatch.setattr("sys.argv", ["rtbuild", "run", "x", "--", "--json"])
    assert boundary.guarded(program) == 2
    assert capsys.readouterr().out == ""


def test_diagnose_takes_the_message_itself() -> None:
    message = "Loaded runtime CuDNN library: 8.0.5 but source was compiled with: 8.1.0."
    done = rtbuild_command.rtbuild(ROOT, "diagnose", "--json", message)
    assert json.loads(done.stdout)["cause"] == "cudnn-too-old"
    missing = rtbuild("diagnose", "train of today.log")
    assert missing.returncode == 2
    assert "cannot read train of today.log" in missing.stderr


def test_explain_of_a_framework_leads_to_resolve(tmp_path: Path) -> None:
    done = rtbuild("explain", "torch 2.6", cwd=tmp_path)
    assert done.returncode == 2
    assert "hint: `rtbuild resolve torch --gpu CARD`" in done.stderr


def test_explain_lists_what_is_near_and_not_every_cause(tmp_path: Path) -> None:
    for folder, code in ((tmp_path, 2), (ROOT, 3)):
        done = rtbuild("explain", "cudnn-to-old", cwd=folder)
        assert done.returncode == code
        assert "did you mean cudnn-too-old" in done.stderr
        assert "driver-missing" not in done.stderr


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("rtbuild che", ["check"]),
        ("rtbuild resolve --near", ["--nearest"]),
        ("rtbuild check matrices/tf28", ["matrices/tf28.yaml"]),
    ],
)
def test_a_shell_completes_commands_options_and_matrices(
    typed: str, offered: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the script of `rtbuild --show-completion bash` asks."""
    monkeypatch.chdir(ROOT)
    asked = {"_RTBUILD_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        app(prog_name="rtbuild")
    assert capsys.readouterr().out.split() == offered


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_the_lines_below_a_commands_help_have_options_that_there_are(line: str) -> None:
    ours = next(part for part in re.split(r"[|&]+", line) if part.split()[0] == "rtbuild")
    _, command, *words = shlex.split(ours)
    options = {option for one in loaded(command).params for option in one.opts}
    assert {word for word in words if word.startswith("-") and word != "-"} <= options
    assert line in typer.testing.CliRunner().invoke(app, [command, "--help"], prog_name="rtbuild").stdout
