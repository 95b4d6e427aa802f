"""Builds against a stand-in for the docker client, which prints what buildx printed once."""

from __future__ import annotations

import os
import shlex
import stat
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from builder.core.errors import CancelledError, CellError, CommandError
from builder.image.engine import build as engine_build
from builder.image.engine.build import (
    _ESCALATION,
    RECEIVING,
    BuildRequest,
    command_line,
    passing_names,
    run_build,
    sweep_passing,
)
from builder.image.engine.facts import EngineFacts

DATA = Path(__file__).parent / "data"

DOUBLE = """#!/bin/sh
# test double of the docker client: replays a recording
echo $$ > {folder}/pid
env > {folder}/env
{body}
"""


def request(**changes: object) -> BuildRequest:
    settings: dict = {"context": Path("/ctx"), "tag": "rt/x:cell", "platform": "linux/amd64", "epoch": 42}
    return BuildRequest(**settings | changes)


def facts(**changes: object) -> EngineFacts:
    known: dict = {"version": "26.1.5", "store": "containerd", "driver": "overlayfs"}
    known |= {"root": "/", "disk_free": None, "platform": "linux/amd64", "host": "unix:///x"}
    return EngineFacts(**known | changes)


@pytest.fixture
def double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put a ``docker`` on PATH that runs ``body``."""

    def install(body: str) -> Path:
        program = tmp_path / "bin" / "docker"
        program.parent.mkdir()
        program.write_text(DOUBLE.format(folder=tmp_path, body=body))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        return tmp_path

    return install


def build(folder: Path, *, on_line=lambda _: None, cancel=None, **changes) -> None:
    asked = request(**changes)
    command = command_line(asked, docker=["docker"], facts=facts())
    cancel = cancel or threading.Event()
    run_build(command, asked, log=folder / "logs" / "cell.log", on_line=on_line, cancel=cancel)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_command_for_another_builder_and_the_containerd_store() -> None:
    asked = request(
        build_contexts={"wheels": "oci-layout:///cache/oci:x"},
        secrets={"pip_conf": Path("/s/pip.conf"), "ca": Path("/s/ca.pem")},
        proxies={"HTTPS_PROXY": "http://user:hush@127.0.0.1:1"},
        no_cache=True,
        cache_from=["type=registry,ref=127.0.0.1:5000/cache"],
        cache_to=["type=inline"],
    )
    command = command_line(asked, docker=["docker"], facts=facts(builder="big", builder_driver="remote"))
    assert shlex.join(command) == (
        "docker buildx build --builder big --progress=plain --platform linux/amd64"
        " --provenance=false --sbom=false --no-cache"
        " --build-arg SOURCE_DATE_EPOCH=42 --build-arg HTTPS_PROXY"
        " --build-context wheels=oci-layout:///cache/oci:x --secret id=ca,src=/s/ca.pem"
        " --secret id=pip_conf,src=/s/pip.conf"
        " --cache-from type=registry,ref=127.0.0.1:5000/cache --cache-to type=inline"
        " --output type=docker,name=rt/x:cell,oci-mediatypes=true,compression=uncompressed /ctx"
    )


def test_command_for_an_engines_own_builder() -> None:
    command = command_line(request(target="system"), docker=["docker"], facts=facts())
    assert command[-2] == "type=image,name=rt/x:cell,oci-mediatypes=true,compression=uncompressed"
    assert command[command.index("--target") + 1] == "system"
    assert command[:5] == ["docker", "buildx", "build", "--builder", "default"]


@pytest.mark.parametrize("driver", ["docker", "docker-container"])
def test_command_for_a_graphdriver_store_loads(driver: str) -> None:
    command = command_line(
        request(), docker=["docker"], facts=facts(builder="b", builder_driver=driver, store="graphdriver")
    )
    assert command[-4:] == ["--tag", "rt/x:cell", "--load", "/ctx"]
    assert not any("compression" in word for word in command)


def test_success_is_told_and_logged(double) -> None:
    folder = double(f"cat {DATA}/success.plain >&2")
    lines: list[str] = []
    build(folder, on_line=lines.append)
    log = (folder / "logs" / "cell.log").read_text()
    assert log.startswith("+ docker buildx build --builder default ")
    assert log.splitlines()[1:] == lines == (DATA / "success.plain").read_text().splitlines()


def test_lines_are_as_a_terminal_leaves_them_wherever_they_are_cut(double) -> None:
    folder = double(
        "printf 'caf\\303' >&2; sleep 0.2; printf '\\251\\n#1 \\033[31mred\\033[0m\\n10%%\\r100%%' >&2"
    )
    lines: list[str] = []
    build(folder, on_line=lines.append)
    assert lines == ["café", "#1 red", "100%"]


def test_failure_carries_command_status_and_the_last_lines(double) -> None:
    folder = double(f"cat {DATA}/failure.plain >&2; exit 1")
    with pytest.raises(CommandError) as caught:
        build(folder)
    error = caught.value
    assert error.returncode == 1
    assert error.command[:3] == ("docker", "buildx", "build")
    assert len(error.tail) == 40
    assert "line 60" in error.tail
    assert error.tail[-1].startswith("ERROR: failed to solve")
    assert error.log is not None
    assert "line 1\n" in error.log.read_text()
    assert error.message.startswith("rt/x:cell did not build: [3/3] RUN echo hello;")
    assert error.message.endswith("ended with status 3")


def test_a_failing_neighbour_does_not_take_the_blame(double) -> None:
    folder = double(f"cat {DATA}/parallel.plain >&2; exit 1")
    with pytest.raises(CommandError, match=r"\[bad 1/1\] RUN .* ended with status 7") as caught:
        build(folder)
    assert "no newline" not in caught.value.tail


def test_a_script_s_reason_is_its_first_line(double) -> None:
    folder = double(f"cat {DATA}/heredoc.plain >&2; exit 1")
    with pytest.raises(CommandError, match=r"\[3/3\] RUN <<EOF \(echo a...\) ended with status 4"):
        build(folder)


def test_a_dockerfile_that_does_not_parse(double) -> None:
    folder = double(f"cat {DATA}/syntax.plain >&2; exit 1")
    with pytest.raises(CommandError, match="unknown instruction: FROMM") as caught:
        build(folder)
    assert any(">>> FROMM x" in line for line in caught.value.tail)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("ERROR: failed to copy: write /x: no space left on device", "docker system df"),
        ("ERROR: Cannot connect to the Docker daemon at unix:///x. Is it running?", "rtbuild doctor"),
        (
            "ERROR: rpc error: code = Unavailable desc = error reading from server: EOF",
            "the engine stopped in the middle",
        ),
    ],
)
def test_faults_of_the_machine_get_their_own_hint(double, text: str, hint: str) -> None:
    folder = double(f"echo '{text}' >&2; exit 1")
    with pytest.raises(CommandError) as caught:
        build(folder)
    assert hint in str(caught.value.hint)


def test_proxies_reach_the_build_by_environment_alone(double) -> None:
    folder = double("exit 0")
    build(folder, proxies={"HTTPS_PROXY": "http://user:hush@127.0.0.1:1"})
    assert "HTTPS_PROXY=http://user:hush@127.0.0.1:1\n" in (folder / "env").read_text()
    assert "hush" not in (folder / "logs" / "cell.log").read_text()


def test_cancel_ends_the_whole_group(double, tmp_path: Path) -> None:
    folder = double(f"sleep 300 & echo $! > {tmp_path}/child; cat {DATA}/success.plain >&2; wait")
    cancel = threading.Event()
    began = time.monotonic()
    with pytest.raises(CancelledError):
        build(folder, cancel=cancel, on_line=lambda _: cancel.set())
    assert time.monotonic() - began < 60
    assert gone(int((folder / "pid").read_text()))


def test_cancel_of_a_build_that_ignores_signals(double, monkeypatch: pytest.MonkeyPatch) -> None:
    escalation = [(number, 0.3) for number, _ in _ESCALATION]
    monkeypatch.setattr("builder.image.engine.build._ESCALATION", escalation)
    folder = double(f"trap '' INT TERM; cat {DATA}/cached.plain >&2; while :; do sleep 0.1; done")
    cancel = threading.Event()
    with pytest.raises(CancelledError):
        build(folder, cancel=cancel, on_line=lambda _: cancel.set())
    assert gone(int((folder / "pid").read_text()))


def test_an_error_in_the_listener_leaves_no_process(double) -> None:
    folder = double(f"cat {DATA}/success.plain >&2; exec sleep 300")

    def broken(_: str) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        build(folder, on_line=broken)
    assert gone(int((folder / "pid").read_text()))


def test_a_log_that_cannot_be_written_is_said_before_the_build(double) -> None:
    folder = double("exit 0")
    (folder / "logs").write_text("in the way")
    with pytest.raises(CellError, match="log cannot be written"):
        build(folder)
    assert not (folder / "pid").exists()


def test_a_build_that_ends_while_another_one_sweeps_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its note goes between the moment at which nobody holds it and the one at which it is read."""
    removed: list[str] = []
    images = SimpleNamespace(memory=tmp_path, remove=removed.append, named=lambda _: ())
    dead = tmp_path / f"{engine_build._NOTED}dead"
    dead.write_text(f"{RECEIVING}/dead:1\n")

    def free(noted: Path) -> bool:
        if noted != dead:
            noted.unlink()
        return True

    monkeypatch.setattr(engine_build, "try_lock", free)
    with passing_names(images) as named:  # type: ignore[arg-type]
        named("1")
        sweep_passing(images)  # type: ignore[arg-type]
    assert removed == [f"{RECEIVING}/dead:1"]


def test_of_the_images_that_engines_were_given_the_last_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_build, "_REMEMBERED", 2)
    images = SimpleNamespace(memory=tmp_path, remove=lambda _: None, named=lambda _: ())
    for age, digit in enumerate("abcd"):
        path = tmp_path / (digit * 64)
        path.write_text("{}")
        os.utime(path, (1e9 - age, 1e9 - age))
    (tmp_path / "somebody's").write_text("")
    sweep_passing(images)  # type: ignore[arg-type]
    assert sorted(path.name[0] for path in tmp_path.iterdir()) == ["a", "b", "s"]
