"""What Colab's page does to a local runtime, over plain HTTP and a WebSocket, and what its browser checks."""

from __future__ import annotations

import json
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import requests
import websocket

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS = 60
"""Until something is given up for lost: a kernel may take its time to start on a machine that is busy."""
COLAB = "https://colab.research.google.com"


def admits(answer: requests.Response, origin: str) -> bool:
    """What a browser asks of an answer before a page of ``origin`` may have it, credentials and all:
    https://fetch.spec.whatwg.org/#cors-check"""
    return (
        answer.headers.get("Access-Control-Allow-Origin") == origin
        and answer.headers.get("Access-Control-Allow-Credentials") == "true"
    )


@dataclass(frozen=True)
class Page:
    """A page of ``origin`` that was given the runtime's address."""

    address: str
    origin: str = COLAB

    @property
    def base(self) -> str:
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def token(self) -> str:
        return parse_qs(urlsplit(self.address).query)["token"][0]

    def preflight(
        self, path: str, *, method: str = "GET", headers: str = "authorization"
    ) -> requests.Response:
        asked = {
            "Origin": self.origin,
            "Access-Control-Request-Method": method,
            "Access-Control-Request-Headers": headers,
            "Access-Control-Request-Private-Network": "true",
        }
        return requests.options(f"{self.base}{path}", params=self._query(), headers=asked, timeout=_SECONDS)

    def get(self, path: str, *, token: bool = True, **headers: str) -> requests.Response:
        query = self._query() if token else {}
        return requests.get(
            f"{self.base}{path}", params=query, headers={"Origin": self.origin, **headers}, timeout=_SECONDS
        )

    def post(self, path: str, document: Any) -> requests.Response:
        return requests.post(
            f"{self.base}{path}",
            params=self._query(),
            headers={"Origin": self.origin},
            json=document,
            timeout=_SECONDS,
        )

    def put(self, path: str, document: Any) -> requests.Response:
        return requests.put(
            f"{self.base}{path}",
            params=self._query(),
            headers={"Origin": self.origin},
            json=document,
            timeout=_SECONDS,
        )

    def _query(self) -> dict[str, str]:
        return {"token": self.token}

    @contextmanager
    def kernel(self) -> Iterator[Kernel]:
        """A session with a kernel, and the channel of its messages."""
        session = {
            "path": f"{uuid.uuid4().hex}.ipynb",
            "name": "",
            "type": "notebook",
            "kernel": {"name": "python3"},
        }
        answer = self.post("/api/sessions", session)
        assert answer.status_code == 201, answer.text
        channel = self.channel(answer.json()["kernel"]["id"])
        try:
            yield Kernel(channel, answer.json()["kernel"]["id"])
        finally:
            channel.close()

    def channel(self, kernel: str) -> websocket.WebSocket:
        """Raises WebSocketBadStatusException where the runtime refuses."""
        address = f"ws{self.base.removeprefix('http')}/api/kernels/{kernel}/channels?token={self.token}"
        return websocket.create_connection(address, origin=self.origin, timeout=_SECONDS)


@dataclass(frozen=True)
class Kernel:
    """https://jupyter-client.readthedocs.io/en/stable/messaging.html"""

    channel: websocket.WebSocket
    identifier: str

    def ask(self, code: str) -> str:
        """Send code to be run; the message's id."""
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": "execute_request",
            "session": uuid.uuid4().hex,
            "username": "",
            "version": "5.3",
        }
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        content["stop_on_error"] = False  # else, after an error, what arrives within 0.1 s is not run
        message = {
            "channel": "shell",
            "header": header,
            "parent_header": {},
            "metadata": {},
            "content": content,
            "buffers": [],
        }
        self.channel.send(json.dumps(message))
        return header["msg_id"]

    def run(self, code: str) -> str:
        """All that the code printed, gave back or raised."""
        asked, text = self.ask(code), ""
        while True:
            message = json.loads(self.channel.recv())
            if message["parent_header"].get("msg_id") != asked:
                continue
            content = message["content"]
            match message["msg_type"]:
                case "stream":
                    text += content["text"]
                case "execute_result" | "display_data":
                    text += content["data"]["text/plain"] + "\n"
                case "error":
                    text += f"{content['ename']}: {content['evalue']}\n"
                case "status" if content["execution_state"] == "idle":
                    return text
