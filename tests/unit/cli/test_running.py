"""``rtbuild run`` and ``rtbuild devcontainer`` up to the engine, and what comes of its answer."""

from __future__ import annotations

import json
import socket
import subprocess
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, ClassVar

import pytest
from rtbuild_command import inside
from typer.testing import CliRunner

from builder.cli import launching as running
from builder.cli.app import app
from builder.core.errors import CommandError, MissingToolError, UsageError
from builder.release.colab.launch import LaunchPlan

if TYPE_CHECKING:
    from pathlib import Path

MATRIX = """\
version: 1
name: two
defaults: {framework: numpy==2.2.6, python: "3.11", base: rootfs:debian/bookworm, cuda: none}
include: [{profile: colab}, {variant: other}]
"""


def planned(mode: str = "jupyter", *docker: str) -> LaunchPlan:
    client = docker or ("false",)
    return LaunchPlan(
        mode=mode,  # type: ignore[arg-type]
        docker=client,
        command=(*client, "run", "x"),
        name="rtbuild-8888",
        port=8888,
    )


def client_double(folder: Path, script: str) -> str:
    """A program in place of the docker client."""
    path = folder / "docker"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_two_modes_exclude_each_other() -> None:
    result = CliRunner().invoke(app, ["run", "x", "--shell", "--verify"])
    assert isinstance(result.exception, UsageError)
    assert "--shell and --verify exclude each other" in str(result.exception)


@pytest.mark.parametrize("name", ["numpy2.2.6-py3.11-bookworm-cpu-colab", "*-colab", "*{colab,jupyter}"])
def test_a_cell_by_id_or_glob(tmp_path: Path, name: str) -> None:
    (tmp_path / "two.yaml").write_text(MATRIX)
    cell = running._cell(name, [tmp_path / "two.yaml"])
    assert cell is not None
    assert cell.image_name() == "rtbuild/two:numpy2.2.6-py3.11-bookworm-cpu-colab"


def test_one_cell_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "two.yaml").write_text(MATRIX)
    with pytest.raises(UsageError, match=r"'numpy\*' matches 2 cells, and one is started"):
        running._cell("numpy*", [tmp_path / "two.yaml"])
    assert running._cell("torch*", [tmp_path / "two.yaml"]) is None
    monkeypatch.chdir(tmp_path)
    assert running._cell("anything", None) is None  # no matrices here: it is an image's name


class StoreDouble:
    """In place of an engine's store: two images of rtbuild's."""

    images: ClassVar = {
        "rtbuild/torch:torch2.6.0-py3.12": "torch2.6.0-py3.12-bookworm",
        "rtbuild/multi:all": "tensorflow2.19.0-torch2.6.0-py3.12-bookworm",
    }

    def __init__(self) -> None:
        self.client_command = ("false",)

    def inspect(self, reference: str) -> str | None:
        if reference != reference.lower():
            raise CommandError("the engine could not inspect it: repository name must be lowercase")
        return reference if reference in self.images else None

    def cells(self) -> dict[str, str]:
        return self.images


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow==2.19", "TensorFlow2.19.0"])
def test_an_image_is_found_by_what_it_holds(name: str) -> None:
    assert running.find_image(name, None, StoreDouble()) == "rtbuild/multi:all"  # type: ignore[arg-type,comparison-overlap]


def test_several_that_hold_it_are_named() -> None:
    with pytest.raises(UsageError, match=r"2 images here hold torch==2\.6") as raised:
        running.find_image("torch==2.6", None, StoreDouble())  # type: ignore[arg-type]
    assert "rtbuild/multi:all" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("tensorflow2.19-torch2.6-py3.12", "did you mean tensorflow2.19.0-torch2.6.0-py3.12-bookworm"),
        ("zz", "zz:latest"),
    ],
)
def test_a_mistyped_word_is_not_pulled(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match="there is no image") as raised:
        running.find_image(name, None, StoreDouble())  # type: ignore[arg-type]
    assert hint in str(raised.value.hint)


def test_a_word_that_a_cell_begins_with_names_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rtbuild run torch` after `rtbuild init torch` was told of other images alone."""
    (tmp_path / "matrices").mkdir()
    (tmp_path / "matrices" / "two.yaml").write_text(MATRIX)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="there is no image numpy here") as raised:
        running.find_image("numpy", None, StoreDouble())  # type: ignore[arg-type]
    assert "did you mean numpy2.2.6-py3.11-bookworm-cpu-colab" in str(raised.value.hint)


def test_a_name_with_a_tag_is_pulled(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandError, match="could not be pulled"):
        running.find_image("zz:latest", None, StoreDouble())  # type: ignore[arg-type]
    assert "+ false pull zz:latest" in capfd.readouterr().err


@pytest.mark.parametrize("pull", [True, False])
def test_a_matrix_file_stands_for_its_cell(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], pull: bool
) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(MATRIX)
    with pytest.raises(UsageError, match="matches 2 cells, and one is started") as raised:
        running.find_image(str(path), None, StoreDouble(), pull=pull)  # type: ignore[arg-type]
    assert str(path) in raised.value.message
    path.write_text(MATRIX.replace("{profile: colab}, ", ""))
    with pytest.raises(UsageError, match="there is no image rtbuild/two:numpy") as raised:
        running.find_image(str(path), None, StoreDouble(), pull=pull)  # type: ignore[arg-type]
    assert raised.value.hint == f"build it first: rtbuild build {path}"
    with pytest.raises(UsageError, match="no matrix file"):
        running.find_image(str(tmp_path / "none.yaml"), None, StoreDouble(), pull=pull)  # type: ignore[arg-type]
    assert "pull" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        (
            "numpy2.2.6-*colab",
            (),
            "--publish 127.0.0.1:8888:8888 rtbuild/two:numpy2.2.6-py3.11-bookworm-cpu-colab",
        ),
        ("here.test/image:1", (), "here.test/image:1 bash"),
        ("here.test/image:1", ("--jupyter", "--port", "9999"), "--env RTBUILD_PORT=9999 here.test/image:1"),
        ("here.test/image:1", ("--gpus", "all", "--verify"), "--gpus all "),
    ],
)
def test_a_command_is_printed_without_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, options: tuple[str, ...], words: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    (tmp_path / "matrices").mkdir()
    (tmp_path / "matrices" / "two.yaml").write_text(MATRIX)
    done = inside(tmp_path, "run", name, *options, "--dry-run")
    assert done.stdout.startswith("docker run --rm ")
    assert words in done.stdout
    assert "the command is that for Docker's own defaults, and nobody saw the image" in done.stderr
    inside(tmp_path, "run", name, *options, check=5)


def test_a_dry_run_pulls_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="--dry-run pulls nothing") as raised:
        running.find_image("zz:latest", None, StoreDouble(), pull=False)  # type: ignore[arg-type]
    assert "docker pull zz:latest" in str(raised.value.hint)
    assert "+ false" not in capfd.readouterr().err


def test_a_taken_port_is_named_with_one_that_is_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(MissingToolError, match=f"port {port} on 127.0.0.1 is taken") as raised:
            running._refuse_taken(port)
    assert f"docker stop rtbuild-{port}" in str(raised.value.hint)
    assert raised.value.exit_code == 5
    running._refuse_taken(port)


@pytest.mark.parametrize(
    ("mode", "status", "code"),
    [
        ("jupyter", 0, 0),
        ("jupyter", 2, 2),
        ("jupyter", 5, 5),
        ("jupyter", 137, 1),
        ("shell", 0, 0),
        ("shell", 127, 1),
        ("verify", 0, 0),
        ("verify", 10, 5),
        ("verify", 20, 1),
        ("verify", 22, 5),
    ],
)
def test_exit_codes_are_rtbuilds_own(mode: str, status: int, code: int) -> None:
    assert running._outcome(planned(mode), status) == code


@pytest.mark.parametrize(
    ("mode", "status", "said"),
    [
        ("jupyter", 125, "the engine did not start"),
        ("verify", 30, "cudnn-verify failed"),
        ("verify", 137, "failed"),
    ],
)
def test_what_says_nothing_is_an_error_with_its_command(mode: str, status: int, said: str) -> None:
    with pytest.raises(CommandError, match=said) as raised:
        running._outcome(planned(mode), status)
    assert raised.value.command == ("false", "run", "x")
    assert raised.value.returncode == status


def test_a_container_that_has_the_name_already_is_named(tmp_path: Path) -> None:
    docker = client_double(tmp_path, "echo exited")
    for client in ((docker,), (docker, "--context", "run")):
        with pytest.raises(
            MissingToolError, match=r"there is a container rtbuild-8888 already \(exited\)"
        ) as raised:
            running._outcome(planned("jupyter", *client), 125)
        assert f"{' '.join(client)} rm --force rtbuild-8888" in str(raised.value.hint)


@pytest.mark.parametrize("deaf", [0, 1])
def test_a_container_that_is_just_being_started_is_asked_again(tmp_path: Path, deaf: int) -> None:
    """The kernel drops signals to a first process that has no handler yet."""
    with subprocess.Popen(["sleep", "60"]) as process:
        count = tmp_path / "count"
        docker = client_double(
            tmp_path, f"echo $* >> {count}; [ $(wc -l < {count}) -le {deaf} ] || kill {process.pid}"
        )
        running._stop(planned("jupyter", docker), process)
        assert process.poll() is not None
    assert count.read_text().splitlines() == ["kill --signal TERM rtbuild-8888"] * (deaf + 1)


def test_a_container_that_does_not_end_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_SECONDS_TO_STOP", 1)
    with subprocess.Popen(["sleep", "60"]) as process:
        docker = client_double(tmp_path, f"echo $* >> {tmp_path}/asked")
        running._stop(planned("jupyter", docker), process)
    assert (tmp_path / "asked").read_text().splitlines()[-1] == "rm --force rtbuild-8888"


def test_the_document_is_printed_once_with_the_first_address(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"address": None}
    lines = ["starting\n", "   http://127.0.0.1:8888/?token=ab\n", "http://127.0.0.1:8888/?token=cd\n"]
    running._relay(lines, document)
    said = capsys.readouterr()
    assert json.loads(said.out) == {"address": "http://127.0.0.1:8888/?token=ab"}
    assert said.err.splitlines()[0] == "starting"


def test_jupyter_that_ends_before_it_has_an_address_leaves_a_document(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    docker = client_double(tmp_path, "echo no port is free; exit 5")
    document = {"mode": "jupyter", "address": None}
    assert running._start(planned("jupyter", docker), document) == 5
    assert json.loads(capfd.readouterr().out) == {**document, "exit_status": 5}


def test_the_document_of_a_shell_is_printed_and_what_runs_there_is_talk(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    docker = client_double(tmp_path, "echo said")
    document = {"mode": "shell", "address": None}
    assert running._start(replace(planned("shell", docker), name=None), document) == 0
    said = capfd.readouterr()
    assert json.loads(said.out) == document
    assert said.err == "said\n"


def test_an_image_without_the_probe_is_not_verified() -> None:
    """One whose entrypoint takes any word ended with 0."""
    labels = {"mine": "cell"}
    stored = [
        SimpleNamespace(reference=name, label=lambda _label, name=name: labels.get(name))
        for name in ("mine", "derived", "another")
    ]
    engine = SimpleNamespace(read_file=lambda name, _path: b"#!" if name == "derived" else None)
    for one in stored[:2]:
        running._refuse_without_probe(one, engine)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="another has no cudnn-verify: rtbuild did not make it") as raised:
        running._refuse_without_probe(stored[2], engine)  # type: ignore[arg-type]
    assert "rtbuild probe -o cudnn-verify" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("environment", "user"),
    [
        ({"SUDO_UID": "1000", "SUDO_GID": "100"}, (1000, 100)),
        ({"SUDO_UID": "1000"}, (1000, 1000)),
        ({"SUDO_UID": "1000", "SUDO_GID": "staff"}, (1000, 1000)),
        ({"SUDO_UID": "me", "SUDO_GID": "100"}, (0, 0)),
        ({}, (0, 0)),
    ],
)
def test_under_sudo_the_files_are_the_callers(monkeypatch, environment, user) -> None:
    for name in ("SUDO_UID", "SUDO_GID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(running.os, "getuid", lambda: 0)
    monkeypatch.setattr(running.os, "getgid", lambda: 0)
    assert running._machine(("docker",), running.without_engine()).user == user
