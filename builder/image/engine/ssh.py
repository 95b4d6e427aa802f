"""An engine on another machine, reached as the docker client reaches it: by the user's own ``ssh``.

The Docker SDK has a way of its own, which needs paramiko even if it is told to run ``ssh``. Here a local
socket stands for the engine's, and each connection to it is one ``ssh HOST docker system dial-stdio``
(https://github.com/docker/cli/blob/v26.1.5/cli/connhelper/connhelper.go).
"""

import atexit
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import unquote, urlsplit

from builder.core.errors import MissingToolError

_SECONDS_TO_CONNECT = 30
_WORDS = 2000
"""Characters of ssh's own words that are kept for a message."""


def ssh_command(host: str) -> list[str]:
    """The command behind ``ssh://[user@]host[:port][/socket]``; MissingToolError for anything else."""
    parts = urlsplit(host)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme != "ssh" or not parts.hostname or parts.password or port == -1:
        raise MissingToolError(
            f"{host} is no address of an engine: ssh://[user@]host[:port][/path/to/docker.sock]",
            hint="docker context ls",
        )
    command = ["ssh", "-o", f"ConnectTimeout={_SECONDS_TO_CONNECT}", "-T"]
    if parts.username:
        command += ["-l", unquote(parts.username)]
    if port is not None:
        command += ["-p", str(port)]
    path = unquote(parts.path)
    remote = ["docker", *([f"--host=unix://{path}"] if path.strip("/") else []), "system", "dial-stdio"]
    return [*command, "--", parts.hostname, *remote]


class SshDoor(ExitStack[None]):
    """A socket on this machine behind which an engine on another one answers, until it is closed."""

    def __init__(self, command: Sequence[str]) -> None:
        if shutil.which(command[0]) is None:
            raise MissingToolError(
                f"{command[0]} is not on PATH, and the engine is reached by it",
                hint="sudo apt-get install openssh-client",
            )
        super().__init__()
        self._command = list(command)
        folder = tempfile.TemporaryDirectory(prefix="rtbuild-ssh-", ignore_cleanup_errors=True)  # mode 0700
        place = Path(self.enter_context(folder))
        self.socket = place / "docker.sock"
        self._words = self.enter_context((place / "stderr").open("a+b"))  # several write to it
        self._children: list[subprocess.Popen[bytes]] = []
        self.callback(self._end_children)
        self._door = self.enter_context(socket.socket(socket.AF_UNIX))
        self._door.bind(str(self.socket))
        self._door.listen(16)
        self.callback(self._door.shutdown, socket.SHUT_RDWR)  # wakes accept
        atexit.register(self.close)
        self.callback(atexit.unregister, self.close)
        threading.Thread(target=self._serve, name="ssh-door", daemon=True).start()

    def said(self) -> str:
        """The complaints of ssh, if there are any."""
        self._words.seek(0)
        return self._words.read()[-_WORDS:].decode(errors="replace").strip()

    def _end_children(self) -> None:
        for child in self._children:
            child.terminate()
        for child in self._children:
            child.wait()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._door.accept()
            except OSError:
                return  # closed
            with connection:
                self._children = [child for child in self._children if child.poll() is None]
                child = subprocess.Popen(
                    self._command,
                    stdin=connection.fileno(),
                    stdout=connection.fileno(),
                    stderr=self._words,
                    start_new_session=True,  # Ctrl-C reaches rtbuild alone, which then stops in order
                )
                self._children.append(child)
