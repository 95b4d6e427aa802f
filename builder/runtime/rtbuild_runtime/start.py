"""The start program: Jupyter, the probe beside it, and an end in order.

It prints the address to paste as soon as Jupyter answers. The token stands there and nowhere else.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import threading

from . import folders, memory, settings
from .server import Server
from .settings import LOOPBACK, StartError
from .verdict import Verdict

_EXPECTATION = "/usr/local/share/rtbuild/expect.json"
_speaking = threading.Lock()


def main() -> int:
    """Run until Jupyter ends or a signal asks; the exit status."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    try:
        return _run(stop)
    except StartError as error:
        say(f"error: {error.message}\nhint: {error.hint}")
        return error.status


def say(text: str) -> None:
    """One message, whole: the probe's thread speaks, too."""
    with _speaking:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def _warn(text: str) -> None:
    say("! " + text)


def _run(stop: threading.Event) -> int:
    asked = settings.read(os.environ)
    environment = dict(os.environ)
    work = folders.work_folder(folders.settle_home(environment, _warn), _warn)
    bind = asked.bind or settings.address()
    settings.refuse_taken(bind, asked.port)
    server = Server(asked.port, bind, asked.token, work, environment)
    verdict = None
    try:
        server.wait_until_it_answers(stop)
        if not stop.is_set():
            say(page(asked.port, asked.token, work))
            if asked.token_note:
                _warn(asked.token_note)
            if bind == LOOPBACK and asked.bind is None:
                _warn("this container shares the network of its host: only 127.0.0.1 is listened on\n")
            verdict = Verdict(say)
        return _watch(server, stop)
    finally:
        if verdict is not None:
            verdict.stop()
        server.stop()


def _watch(server: Server, stop: threading.Event) -> int:
    kills = memory.Watch()
    while not stop.wait(1.0):
        if news := kills.news():
            _warn(news)
        status = server.poll()
        if status is not None:
            say(f"error: Jupyter ended by itself with status {status}; its own words are above")
            return 1
    say("stopping")
    return 0


def page(port: int, token: str, work: str) -> str:
    """What a person needs to go on."""
    try:
        with open(_EXPECTATION) as stream:
            cell = json.load(stream)["cell"]
    except (OSError, ValueError, KeyError):
        cell = "rtbuild"
    return (
        f"\n{cell}, Python {platform.python_version()}\n\n"
        '  In Colab: "Connect to a local runtime", and paste this address. Or open it in a browser.\n\n'
        f"      http://{LOOPBACK}:{port}/?token={token}\n\n"
        f"  files: {work}    stop: Ctrl-C    cudnn-verify is running, its verdict follows\n"
    )
