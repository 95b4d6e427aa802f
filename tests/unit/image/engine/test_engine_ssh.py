"""An engine behind ssh, with a stand-in for ssh that has an engine at its other end."""

from __future__ import annotations

import shutil
import socket
import stat
import sys
import time
from typing import TYPE_CHECKING

import pytest

from builder.core.errors import MissingToolError
from builder.image.engine.engine import SshDoor, ssh_command

if TYPE_CHECKING:
    from pathlib import Path

ECHO = """#!{python}
# test double of ssh: what comes in goes out again, after a word
import os, sys
os.write(1, b"ready ")
while block := os.read(0, 65536):
    os.write(1, block)
"""


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("ssh://gpu", "ssh -o ConnectTimeout=30 -T -- gpu docker system dial-stdio"),
        ("ssh://me@gpu:2222", "ssh -o ConnectTimeout=30 -T -l me -p 2222 -- gpu docker system dial-stdio"),
        (
            "ssh://me@gpu/run/d.sock",
            "ssh -o ConnectTimeout=30 -T -l me -- gpu docker --host=unix:///run/d.sock system dial-stdio",
        ),
        ("ssh://[::1]", "ssh -o ConnectTimeout=30 -T -- ::1 docker system dial-stdio"),
    ],
)
def test_the_command_is_that_of_the_docker_client(host: str, says: str) -> None:
    assert " ".join(ssh_command(host)) == says


@pytest.mark.parametrize("host", ["ssh://", "ssh://me:secret@gpu", "ssh://gpu:port", "tcp://gpu"])
def test_what_is_no_address_is_refused(host: str) -> None:
    with pytest.raises(MissingToolError, match="no address of an engine"):
        ssh_command(host)


def test_an_address_is_never_an_option_of_ssh() -> None:
    command = ssh_command("ssh://-oProxyCommand=x")
    assert command.index("--") < command.index("-oproxycommand=x")


@pytest.fixture
def double(tmp_path: Path):
    def make(text: str) -> list[str]:
        program = tmp_path / "ssh"
        program.write_text(text)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return [str(program)]

    return make


def test_every_connection_is_one_ssh_and_all_end_with_the_door(double) -> None:
    door = SshDoor(double(ECHO.format(python=sys.executable)))
    place = door.socket
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as two:
        for client, word in ((one, b"first"), (two, b"second")):
            client.settimeout(60)
            client.connect(str(place))
            client.sendall(word)
        for client, word in ((one, b"first"), (two, b"second")):
            said = b""
            while len(said) < len(word) + 6:
                said += client.recv(100)
            assert said == b"ready " + word
        door.close()
        door.close()
        assert one.recv(1) == b"", "its ssh has ended"
    assert not place.parent.exists()


def test_what_ssh_complains_of_can_be_read(double) -> None:
    words = "Permission denied (publickey)."
    door = SshDoor(double(f"#!/bin/sh\n# test double of ssh\necho '{words}' >&2\nexit 255\n"))
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(str(door.socket))
            assert client.recv(1) == b""
        limit = time.monotonic() + 60
        while not door.said() and time.monotonic() < limit:
            time.sleep(0.01)
        assert door.said() == words
    finally:
        door.close()


def test_without_ssh_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("ssh") is None
    with pytest.raises(MissingToolError, match="ssh is not on PATH") as caught:
        SshDoor(ssh_command("ssh://gpu"))
    assert "openssh-client" in str(caught.value.hint)
