"""A double of a Kubernetes API server, for the real kubectl: HTTP on loopback, objects in memory.

It knows Jobs, pods, network policies and logs, lists in pages, watches that end, dry runs and conflicts, and
checks what is posted by the schemas of ``kubernetes-validate``. Nothing runs a pod: a test says what became
of it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate
from http_double import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KINDS = {
    ("batch/v1", "jobs"): "Job",
    ("v1", "pods"): "Pod",
    ("networking.k8s.io/v1", "networkpolicies"): "NetworkPolicy",
}
_VERBS = ["create", "delete", "get", "list", "watch"]
_PATH = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+/v1))/namespaces/(?P<space>[^/]+)/(?P<kind>[^/]+)"
    r"(?:/(?P<name>[^/]+))?(?P<log>/log)?"
)
Refusal = tuple[int, str, str]
"""Status, reason and message, as a ``Status`` object has them."""


@dataclass
class KubeDouble:
    """One namespace space. Change its tables to say what became of pods."""

    version: str = "1.32"
    page: int = 500
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """By plural and name."""
    logs: dict[str, str] = field(default_factory=dict)
    refuse: Callable[[str, str], Refusal | None] = lambda _method, _path: None
    requests: list[str] = field(default_factory=list)
    port: int = 0

    def of(self, plural: str) -> list[dict[str, Any]]:
        return [found for (kind, _), found in sorted(self.objects.items()) if kind == plural]

    def pod(
        self, job: dict[str, Any], name: str, status: dict[str, Any], *, log: str | None = None, at: int = 0
    ) -> None:
        """A pod of a Job in the state that the test wants."""
        self.objects["pods", name] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "default",
                "labels": job["spec"]["template"]["metadata"]["labels"],
                "ownerReferences": [{"uid": job["metadata"]["uid"], "kind": "Job"}],
                "creationTimestamp": f"2026-01-01T00:00:{at:02d}Z",
            },
            "spec": {"containers": [{"name": "probe"}], "nodeName": "node-1"},
            "status": status,
        }
        if log is not None:
            self.logs[name] = log

    @staticmethod
    def end(job: dict[str, Any], kind: str, reason: str = "", message: str = "") -> None:
        """Set a Job's condition: ``Complete``, or ``Failed`` with its reason."""
        condition = {"type": kind, "status": "True", "reason": reason, "message": message}
        job["status"] = {"conditions": [condition]}


@contextlib.contextmanager
def serve(folder: Path, double: KubeDouble | None = None) -> Iterator[KubeDouble]:
    """Answer on a port of 127.0.0.1 until the block ends; ``folder/kubeconfig`` leads there."""
    state = double or KubeDouble()

    class Handler(_Handler):
        cluster = state

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.port = server.server_address[1]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "double",
        "contexts": [{"name": "double", "context": {"cluster": "double", "user": "tests"}}],
        "clusters": [{"name": "double", "cluster": {"server": f"http://127.0.0.1:{state.port}"}}],
        "users": [{"name": "tests", "user": {}}],
    }
    (folder / "kubeconfig").write_text(json.dumps(config))
    with serving(server):
        yield state


class _Handler(BaseHTTPRequestHandler):
    cluster: KubeDouble
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def log_message(self, *args: Any) -> None:
        """Nothing: pytest's output is not for access logs."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def _answer(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.cluster.requests.append(f"{self.command} {self.path}")
        refused = self.cluster.refuse(self.command, self.path)
        if refused is not None:
            return self._refuse(*refused)
        if found := _discovery(url.path):
            return self._send(200, found)
        asked = _PATH.fullmatch(url.path)
        if asked is None:
            return self._refuse(404, "NotFound", "the server could not find the requested resource")
        plural, name = asked["kind"], asked["name"]
        if asked["log"]:
            if name not in self.cluster.logs:
                return self._refuse(404, "NotFound", f'pods "{name}" not found')
            return self._text(200, self.cluster.logs[name].encode(), "text/plain")
        if self.command == "POST":
            return self._create(plural, json.loads(body), query)
        if name is None:
            return self._watch() if query.get("watch") else self._list(asked, query)
        if (plural, name) not in self.cluster.objects:
            return self._refuse(404, "NotFound", f'{plural} "{name}" not found')
        if self.command == "DELETE":
            gone = self.cluster.objects.pop((plural, name))
            for key, other in list(self.cluster.objects.items()):
                owners = other["metadata"].get("ownerReferences", ())
                if any(owner["uid"] == gone["metadata"]["uid"] for owner in owners):
                    del self.cluster.objects[key]
            return self._send(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
        return self._send(200, self.cluster.objects[plural, name])

    def _create(self, plural: str, document: dict[str, Any], query: dict[str, str]) -> None:
        name = document["metadata"]["name"]
        if wrong := _strictly(json.dumps(_shape(document)), self.cluster.version):
            return self._refuse(400, "BadRequest", f"strict decoding error: {wrong}")
        if (plural, name) in self.cluster.objects:
            return self._refuse(409, "AlreadyExists", f'{plural} "{name}" already exists')
        document["metadata"] |= {"uid": str(uuid.uuid4()), "resourceVersion": "1"}
        if query.get("dryRun") != "All":
            self.cluster.objects[plural, name] = document
        return self._send(201, document)

    def _list(self, asked: re.Match[str], query: dict[str, str]) -> None:
        version = asked["core"] or asked["group"]
        wanted = dict(pair.split("=", 1) for pair in query.get("labelSelector", "").split(",") if pair)
        found = [
            one
            for one in self.cluster.of(asked["kind"])
            if wanted.items() <= one["metadata"].get("labels", {}).items()
        ]
        if named := query.get("fieldSelector", "").removeprefix("metadata.name="):
            found = [one for one in found if one["metadata"]["name"] == named]
        start = int(query.get("continue") or 0)
        most = min(self.cluster.page, int(query.get("limit") or 10**9))
        more = {"continue": str(start + most)} if "limit" in query and start + most < len(found) else {}
        shown = found[start : start + most] if "limit" in query else found
        metadata = {"resourceVersion": "1", **more}
        kind = KINDS[version, asked["kind"]] + "List"
        self._send(200, {"kind": kind, "apiVersion": version, "metadata": metadata, "items": shown})

    def _watch(self) -> None:
        """A watch that ends at once, as a server's do after minutes."""
        self._text(200, b"", "application/json")

    def _refuse(self, status: int, reason: str, message: str) -> None:
        document = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        self._send(status, document | {"message": message, "reason": reason, "code": status})

    def _send(self, status: int, document: dict[str, Any]) -> None:
        self._text(status, json.dumps(document).encode(), "application/json")

    def _text(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if status == 429:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _shape(document: dict[str, Any]) -> dict[str, Any]:
    """A manifest without what differs from task to task, since a validation takes a second."""
    found: dict[str, Any] = json.loads(json.dumps(document))
    found["metadata"] = {"name": "x", "labels": dict.fromkeys(found["metadata"].get("labels", {}), "x")}
    if "template" in found["spec"]:
        found["spec"]["template"]["metadata"] = {}
        found["spec"]["template"]["spec"]["containers"][0]["image"] = "x"
    return found


@functools.cache
def _strictly(document: str, version: str) -> str:
    """What is wrong with a manifest by Kubernetes' own schema; empty if nothing is."""
    try:
        kubernetes_validate.validate(json.loads(document), version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error.message)
    return ""


def _discovery(path: str) -> dict[str, Any] | None:
    """What the server has, for kubectl."""
    groups = sorted({version for version, _ in KINDS if "/" in version})
    if path == "/openapi/v3":
        return {"paths": {f"apis/{group}": {"serverRelativeURL": f"/openapi/v3/{group}"} for group in groups}}
    if path.startswith("/openapi/v3/"):
        return _openapi(path.removeprefix("/openapi/v3/"))
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        named = [{"groupVersion": group, "version": "v1"} for group in groups]
        listed = [
            {"name": one["groupVersion"].partition("/")[0], "versions": [one], "preferredVersion": one}
            for one in named
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    for version in ("v1", *groups):
        if path == (f"/apis/{version}" if "/" in version else "/api/v1"):
            resources = [
                {"name": plural, "singularName": "", "namespaced": True, "kind": kind, "verbs": _VERBS}
                for (own, plural), kind in KINDS.items()
                if own == version
            ]
            return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}
    return None


def _openapi(version: str) -> dict[str, Any]:
    """As much as kubectl looks for: that the server itself validates fields."""
    group, _, short = version.partition("/")
    own = [(plural, kind) for (whose, plural), kind in KINDS.items() if whose == version]
    paths = {
        f"/apis/{version}/namespaces/{{namespace}}/{plural}/{{name}}": {
            "patch": {
                "parameters": [{"name": "fieldValidation", "in": "query"}],
                "x-kubernetes-group-version-kind": {"group": group, "version": short, "kind": kind},
            }
        }
        for plural, kind in own
    }
    return {"openapi": "3.0.0", "info": {"title": "double", "version": "1"}, "paths": paths}
