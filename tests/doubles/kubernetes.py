"""A double of a Kubernetes API server, for the real kubectl: HTTP on loopback, objects in memory.

It knows Jobs, pods, events, network policies and logs, lists in pages, watches that end, dry runs and
conflicts, and checks what is posted by the schemas of ``kubernetes-validate``. Nothing runs a pod: a test
says what became of it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import kubernetes_validate

from doubles.http_server import Answer, Request, Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KINDS = {
    ("batch/v1", "jobs"): "Job",
    ("v1", "pods"): "Pod",
    ("v1", "events"): "Event",
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
    most_jobs: int | None = None
    """What a quota of the namespace lets be there, ended or not."""

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

    def unmade(self, job: dict[str, Any], message: str, *, at: int = 0) -> None:
        """An event of the Job's controller, which could make no pod."""
        name = f"{job['metadata']['name']}.{at}"
        self.objects["events", name] = {
            "metadata": {"name": name},
            "involvedObject": {"kind": "Job", "uid": job["metadata"]["uid"]},
            "reason": "FailedCreate",
            "message": message,
            "lastTimestamp": f"2026-01-01T00:00:{at:02d}Z",
        }

    @staticmethod
    def end(job: dict[str, Any], kind: str, reason: str = "", message: str = "") -> None:
        """Set a Job's condition: ``Complete``, or ``Failed`` with its reason."""
        condition = {"type": kind, "status": "True", "reason": reason, "message": message}
        job["status"] = {"conditions": [condition]}


@contextlib.contextmanager
def serve(folder: Path, double: KubeDouble | None = None) -> Iterator[KubeDouble]:
    """Answer on a port of 127.0.0.1 until the block ends; ``folder/kubeconfig`` leads there."""
    state = double or KubeDouble()
    with Server(lambda request: _answer(state, request)) as server:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "double",
            "contexts": [{"name": "double", "context": {"cluster": "double", "user": "tests"}}],
            "clusters": [{"name": "double", "cluster": {"server": server.url}}],
            "users": [{"name": "tests", "user": {}}],
        }
        (folder / "kubeconfig").write_text(json.dumps(config))
        yield state


def _answer(state: KubeDouble, request: Request) -> Answer:
    query = {key: values[0] for key, values in request.query.items()}
    state.requests.append(f"{request.method} {request.target}")
    refused = state.refuse(request.method, request.target)
    if refused is not None:
        return _refuse(*refused)
    if found := _discovery(request.path):
        return _object(200, found)
    asked = _PATH.fullmatch(request.path)
    if asked is None:
        return _refuse(404, "NotFound", "the server could not find the requested resource")
    return _resource(state, request, asked, query)


def _resource(state: KubeDouble, request: Request, asked: re.Match[str], query: dict[str, str]) -> Answer:
    plural, name = asked["kind"], asked["name"]
    if asked["log"]:
        if name not in state.logs:
            return _refuse(404, "NotFound", f'pods "{name}" not found')
        return Answer(200, state.logs[name].encode(), {"Content-Type": "text/plain"})
    if request.method == "POST":
        return _create(state, plural, json.loads(request.body), query)
    if name is None:
        if query.get("watch"):  # one that ends at once, as a server's do after minutes
            return Answer(200, b"", {"Content-Type": "application/json"})
        return _list(state, asked, query)
    if (plural, name) not in state.objects:
        return _refuse(404, "NotFound", f'{plural} "{name}" not found')
    if request.method == "DELETE":
        about = state.objects[plural, name]["metadata"]
        asked_for = json.loads(request.body or b"{}").get("preconditions", {})
        if wrong := [key for key, value in asked_for.items() if about[key] != value]:
            said = f"Precondition failed: {wrong[0]} in precondition: {asked_for[wrong[0]]}"
            return _refuse(409, "Conflict", f'Operation cannot be fulfilled on {plural} "{name}": {said}')
        gone = state.objects.pop((plural, name))
        for key, other in list(state.objects.items()):
            owners = other["metadata"].get("ownerReferences", ())
            if any(owner["uid"] == gone["metadata"]["uid"] for owner in owners):
                del state.objects[key]
        return _object(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
    return _object(200, state.objects[plural, name])


def _create(state: KubeDouble, plural: str, document: dict[str, Any], query: dict[str, str]) -> Answer:
    name = document["metadata"]["name"]
    if wrong := _strictly(json.dumps(_shape(document)), state.version):
        return _refuse(400, "BadRequest", f"strict decoding error: {wrong}")
    if (plural, name) in state.objects:
        return _refuse(409, "AlreadyExists", f'{plural} "{name}" already exists')
    if plural == "jobs" and state.most_jobs is not None and len(state.of(plural)) >= state.most_jobs:
        used = f"used: count/jobs.batch={state.most_jobs}, limited: count/jobs.batch={state.most_jobs}"
        said = f"exceeded quota: few, requested: count/jobs.batch=1, {used}"
        return _refuse(403, "Forbidden", f'jobs.batch "{name}" is forbidden: {said}')
    document["metadata"] |= {"uid": str(uuid.uuid4()), "resourceVersion": "1"}
    if query.get("dryRun") != "All":
        state.objects[plural, name] = document
    return _object(201, document)


def _list(state: KubeDouble, asked: re.Match[str], query: dict[str, str]) -> Answer:
    version = asked["core"] or asked["group"]
    selector = query.get("labelSelector", "")
    if among := re.fullmatch(r"(\S+) in \((\S*)\)", selector):
        wanted = {(among[1], value) for value in among[2].split(",")}
    else:
        wanted = {tuple(pair.split("=", 1)) for pair in selector.split(",") if pair}
    found = [
        one
        for one in state.of(asked["kind"])
        if not selector or wanted & one["metadata"].get("labels", {}).items()
    ]
    for wanted_field in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, value = wanted_field.partition("=")
        found = [one for one in found if functools.reduce(dict.__getitem__, path.split("."), one) == value]
    start = int(query.get("continue") or 0)
    most = min(state.page, int(query.get("limit") or 10**9))
    more = {"continue": str(start + most)} if "limit" in query and start + most < len(found) else {}
    shown = found[start : start + most] if "limit" in query else found
    metadata = {"resourceVersion": "1", **more}
    kind = KINDS[version, asked["kind"]] + "List"
    return _object(200, {"kind": kind, "apiVersion": version, "metadata": metadata, "items": shown})


def _refuse(status: int, reason: str, message: str) -> Answer:
    document = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    answer = _object(status, document | {"message": message, "reason": reason, "code": status})
    if status == 429:
        answer.headers["Retry-After"] = "1"
    return answer


def _object(status: int, document: dict[str, Any]) -> Answer:
    return Answer(status, json.dumps(document).encode(), {"Content-Type": "application/json"})


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
