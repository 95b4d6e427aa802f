"""Stands in for the kubelets of a real Kubernetes control plane: nodes with cards, on which nothing runs.

It registers nodes, sends their heartbeats, and says of each pod that the scheduler binds what a kubelet would
say: running, then ended, with a report that a test double wrote in its log. The API server reads logs from it
over TLS, as from a kubelet.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import requests

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

RESOURCE = "nvidia.com/gpu"
Outcome = tuple[str, int, str]
"""The phase in which a pod ends or stays, its container's exit code, and what that printed."""


def _now(ahead: float = 0) -> str:
    return f"{datetime.now(UTC) + timedelta(seconds=ahead):%Y-%m-%dT%H:%M:%SZ}"


@dataclass
class KubeletStandIn:
    """Plays all nodes until it is stopped; ``outcome`` decides what becomes of a pod, by pod and node."""

    api: str
    token: str
    folder: Path
    nodes: Mapping[str, str]
    """The value of the label ``nvidia.com/gpu.product`` of each node."""
    outcome: Callable[[dict[str, Any], str], Outcome]
    seconds: float = 2
    """How long a container runs."""
    ahead: dict[str, float] = field(default_factory=dict)
    """Seconds that the clock of a node is ahead."""
    dead: set[str] = field(default_factory=set)
    """Nodes that are lost: no heartbeat, nothing becomes of their pods."""
    ran: list[tuple[str, str, int]] = field(default_factory=list)
    """The Job's name, the node and the exit code of each container that ended."""
    logs: dict[str, str] = field(default_factory=dict)
    """By the pod's name."""

    def __enter__(self) -> KubeletStandIn:
        self._session = requests.Session()
        self._session.verify = self._session.trust_env = False
        self._session.headers["Authorization"] = f"Bearer {self.token}"
        self._started: dict[str, float] = {}
        self._over = threading.Event()
        self._serve_logs()
        for name in self.nodes:
            self._register(name)
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()
        self._http.shutdown()
        self._http.server_close()
        self._session.close()

    def _ask(self, method: str, path: str, body: Any = None, *, patch: str = "") -> dict[str, Any]:
        kind = f"application/{patch}+json" if patch else "application/json"
        answer = self._session.request(
            method, f"{self.api}{path}", data=json.dumps(body), headers={"Content-Type": kind}, timeout=10
        )
        if answer.status_code not in (200, 201, 404, 409):
            raise requests.HTTPError(f"{method} {path}: {answer.status_code} {answer.text[:500]}")
        found: dict[str, Any] = answer.json()
        return found

    def _serve_logs(self) -> None:
        key, certificate = self.folder / "kubelet.key", self.folder / "kubelet.crt"
        made = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=kubelet",
            "-days",
            "2",
        ]
        subprocess.run(
            [*made, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
            check=True,
            capture_output=True,
        )
        logs = self.logs

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                pod = self.path.partition("?")[0].split("/")[3]
                text = logs.get(pod, "").encode()
                self.send_response(200 if pod in logs else 404)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def _register(self, name: str) -> None:
        labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": self.nodes[name]}
        self._ask(
            "POST",
            "/api/v1/nodes",
            {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "labels": labels}},
        )
        self._beat(name)

    def _beat(self, name: str) -> None:
        amounts = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "20", RESOURCE: "1"}
        now = _now(self.ahead.get(name, 0))
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}
        status = {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._http.server_port}},
        }
        self._ask("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, patch="strategic-merge-patch")

    def _play(self) -> None:
        beats = 0.0
        while not self._over.wait(0.3):
            try:
                if time.monotonic() - beats > 2:
                    beats = time.monotonic()
                    for name in set(self.nodes) - self.dead:
                        self._beat(name)
                for pod in self._ask("GET", "/api/v1/pods?limit=500").get("items", ()):
                    self._drive(pod)
            except requests.RequestException:
                continue  # the API server is away, or somebody else changed the object first

    def _drive(self, pod: dict[str, Any]) -> None:
        """One step of a pod's life."""
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
        if node is None or node in self.dead:
            return
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{name}"
        now = _now(self.ahead.get(node, 0))
        if pod["metadata"].get("deletionTimestamp"):
            self._ask("DELETE", path, {"gracePeriodSeconds": 0})
            return
        phase = pod["status"].get("phase")
        if phase in ("Succeeded", "Failed"):
            return
        end, code, printed = self.outcome(pod, node)
        if end == "Pending":
            waiting = {"reason": "ErrImagePull", "message": printed}
            self._say(path, {"phase": "Pending", **_container({"waiting": waiting})})
            return
        if name not in self._started:
            self._started[name] = time.monotonic()
            running = _container({"running": {"startedAt": now}})
            self._say(path, {"phase": "Running", "startTime": now, **running})
            return
        if time.monotonic() - self._started[name] < self.seconds:
            return
        if end == "Evicted":
            message = "The node was low on resource: memory."
            self._say(path, {"phase": "Failed", "reason": "Evicted", "message": message})
            return
        self.logs[name] = printed
        reason = "Completed" if code == 0 else "Error"
        ended = {"exitCode": code, "reason": reason, "finishedAt": now, "startedAt": now}
        self._say(path, {"phase": end, **_container({"terminated": ended})})
        self.ran.append((pod["metadata"]["labels"]["job-name"], node, code))

    def _say(self, path: str, status: dict[str, Any]) -> None:
        self._ask("PATCH", f"{path}/status", {"status": status}, patch="strategic-merge-patch")


def _container(state: dict[str, Any]) -> dict[str, Any]:
    about = {"name": "probe", "image": "x", "imageID": "x", "ready": False, "restartCount": 0}
    return {"containerStatuses": [about | {"state": state}]}
