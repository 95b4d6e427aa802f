"""Headless Chromium for tests, by its own protocol: https://chromedevtools.github.io/devtools-protocol/"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests
import websocket

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS = 60


class Tab:
    """One page. Calls wait for their answer."""

    def __init__(self, address: str) -> None:
        self._socket = websocket.create_connection(address, suppress_origin=True, timeout=_SECONDS)
        self._number = 0

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def value(self, script: str) -> Any:
        """What a script comes to; None where it fails, as one does while a page loads."""
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def wait_for(self, script: str) -> Any:
        """The first value of the script that is true."""
        value = self.look_for(script, _SECONDS)
        assert value, f"{script}\n{self.value('document.body.innerText')}"
        return value

    def look_for(self, script: str, seconds: float) -> Any:
        """As :meth:`wait_for`; None where there is none in that time."""
        until = time.monotonic() + seconds
        while not (value := self.value(script)):
            if time.monotonic() > until:
                return None
            time.sleep(0.1)
        return value

    def click(self, selector: str) -> None:
        where = self.wait_for(
            f"(() => {{const r = document.querySelector({selector!r})?.getBoundingClientRect();"
            " return r && r.width ? [r.x + Math.min(r.width / 2, 60), r.y + r.height / 2] : null})()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=where[0], y=where[1], button="left", clickCount=1
            )

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def press_shift_enter(self) -> None:
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "modifiers": 8}
        self.call("Input.dispatchKeyEvent", type="rawKeyDown", **key)
        self.call("Input.dispatchKeyEvent", type="keyUp", **key)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        self._socket.close()


@contextmanager
def opened(address: str) -> Iterator[Tab]:
    """A browser of its own, with one tab on ``address``."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program is not None, "no Chromium here: scripts/ensure-tools chromium"
    with tempfile.TemporaryDirectory(prefix="rtbuild-chromium-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                program,
                "--headless=new",
                "--no-sandbox",  # root has none, and the page is our own
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--window-size=1100,760",
                "--remote-debugging-port=0",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            env=os.environ | {"HOME": profile},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            tab = Tab(_debugger(Path(profile) / "DevToolsActivePort"))
            try:
                tab.call("Page.enable")
                tab.call("Page.navigate", url=address)
                yield tab
            finally:
                tab.close()
        finally:
            process.terminate()
            process.wait(60)


def _debugger(told: Path) -> str:
    """The address of the first tab, once Chromium has written which port it took and opened the tab."""
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        if told.is_file() and (lines := told.read_text().split()):
            tabs = requests.get(f"http://127.0.0.1:{lines[0]}/json/list", timeout=_SECONDS).json()
            for tab in tabs:
                if tab["type"] == "page":
                    return str(tab["webSocketDebuggerUrl"])
        time.sleep(0.1)
    raise AssertionError("Chromium did not open its debugging port, or no tab")
