"""Kubernetes: one Job for each task. The image under test is the pod's image; the pod has no token and no
network.

A pod prints the probe's JSON, and whoever dispatched reads it from the pod's log and puts the report beside
the image. Fields: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/job-v1/
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from builder.core.documents import parse_object, shown
from builder.core.errors import CellError, SchedulerError
from builder.release.dispatch.fleet import Fleet, merged
from builder.release.dispatch.tasks import PREFIX, Scheduled, SchedulerClient, Task, silent, why

LABEL = "app.kubernetes.io/managed-by"
MANAGER = "rtbuild"
KEY = "io.rtbuild/key"
_FAILED_ON = "io.rtbuild/failed-on"
_MOST_NODES = 20
_FINAL = frozenset({0, 2, 20, 21})
"""Exit statuses of a probe that decided, about the image or its own arguments."""
NETWORK = "network"
"""The name of the network policy among what is rendered."""
_KUBERNETES = SchedulerClient(
    name="Kubernetes",
    absent="install it and log in; --dry-run prints the manifests without it",
    silent="kubectl cluster-info",
    refused="kubectl auth can-i create jobs; rtbuild doctor --fleet FILE tries each class",
)
_MANIFESTS = {
    document["kind"]: document
    for document in yaml.safe_load_all(Path(__file__).with_name("manifests.yaml").read_text("utf-8"))
}
"""By kind; what a task and its fleet decide is empty."""
FORBIDDEN = "(Forbidden)"
"""Kubectl's word for a request that this login may not make."""
_ABOUT = re.compile(r'"(\S+)" (?:already exists|is forbidden)')
"""The name in a refusal to create an object."""
_OTHER_NOW = r"\((NotFound|Conflict)\)"
"""Kubectl's words for a Job that is gone, or is another or changed one than the preconditions name."""
_WITHIN = "--request-timeout=20s"
"""So that a server that accepts and hangs is said within a minute."""
_CREATED = 50
"""Objects that one kubectl creates; each of them may take as long."""
_DELETING = 4
"""Jobs deleted at a time: each takes a kubectl, which has no option for preconditions but ``--raw``."""
_MOST_OF_MANY = 1 << 20
"""Bytes of a log that is read with others; one alone may have eight times as many."""
_PREFIXED = re.compile(r"\[pod/([^/\]]+)/probe\] ?")
"""How ``kubectl logs --prefix`` begins a line."""
_CREATING = re.compile(r'^Error creating: (?:pods "[^"]*" is forbidden: )?')
"""How an event begins that tells why a Job has no pod."""
_UNPULLABLE = re.compile(
    "(manifest|name) unknown|not found|unauthorized|denied|forbidden|no match for platform", re.IGNORECASE
)
"""Reasons for which an image is not pulled at the next try either: the kubelet tries until the deadline."""


def render(
    tasks: Sequence[Task], fleet: Fleet, avoided: Mapping[str, Sequence[str]] | None = None
) -> dict[str, str]:
    """The manifests of each class that has tasks, and one network policy, as YAML by a name.

    ``avoided`` are the nodes on which a task failed, by its key: another one is preferred.
    """
    failed = avoided or {}
    policy = deepcopy(_MANIFESTS["NetworkPolicy"])
    policy["metadata"]["namespace"] = fleet.namespace
    found = {NETWORK: _yaml([policy])}
    for name in sorted({task.column for task in tasks}):
        found[name] = _yaml(
            [_job(task, fleet, failed.get(task.key, ())) for task in tasks if task.column == name]
        )
    return found


def _yaml(documents: Sequence[Mapping[str, Any]]) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False, explicit_start=True, width=1000)


def _job(task: Task, fleet: Fleet, failed: Sequence[str] = ()) -> dict[str, Any]:
    """The Job of one task. Its name is the task's key, so saying it twice makes one job."""
    made: dict[str, Any] = deepcopy(_MANIFESTS["Job"])
    spec, labels, lane = made["spec"], {LABEL: MANAGER, KEY: task.key}, fleet.lane(task.column)
    pod = spec["template"]["spec"]
    queue = lane.queue or fleet.queue
    made["metadata"] |= {
        "name": PREFIX + task.key,
        "namespace": fleet.namespace,
        "labels": {**labels, "kueue.x-k8s.io/queue-name": queue} if queue else labels,
        "annotations": {"io.rtbuild/cell": task.cell, "io.rtbuild/class": task.column},
    }
    spec["template"]["metadata"]["labels"] = dict(labels)
    pod["activeDeadlineSeconds"] = 60 * (lane.minutes or fleet.minutes)
    (container,), (tmp,) = pod["containers"], pod["volumes"]
    container["image"] = task.image
    container["command"] += ["--suite", ",".join(task.suites)] if task.suites else []
    container["command"] += ["--suggested", ",".join(task.suggested)] if task.suggested else []
    asked = {"cpu": str(lane.cpus or 2), "memory": lane.memory or "8Gi", "ephemeral-storage": lane.disk}
    container["resources"] = {"requests": asked, "limits": dict(asked)}
    tmp["emptyDir"]["sizeLimit"] = lane.disk
    if lane.claim is None:
        container["resources"]["limits"][lane.resource] = 1
    else:
        pod["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": lane.claim}]
        container["resources"]["claims"] = [{"name": "gpu"}]
    pod["nodeSelector"]["nvidia.com/gpu.product"] = lane.product
    if lane.product is None:
        del pod["nodeSelector"]
    if failed:
        # not podAntiAffinity: a scheduler forgets pods that have ended
        made["metadata"]["annotations"][_FAILED_ON] = ",".join(failed)
        elsewhere = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in failed]
        rule = "preferredDuringSchedulingIgnoredDuringExecution"
        pod["affinity"] = {
            "nodeAffinity": {rule: [{"weight": 100, "preference": {"matchFields": elsewhere}}]}
        }
    patched: dict[str, Any] = merged(merged(made, fleet.patch), lane.patch)
    return patched


@dataclass(frozen=True, kw_only=True)
class JobState(Scheduled):
    """A Job of ours, and the pod whose log counts: the newest, or the one that succeeded."""

    uid: str
    version: str
    """The Job's resourceVersion."""
    pod: str | None
    exit_code: int | None
    """The exit code of the probe in that pod."""
    failed_on: tuple[str, ...] = ()
    """The nodes on which the task failed, of this Job and those before it; at most :data:`_MOST_NODES`."""
    stuck: bool = False
    """Its image cannot be pulled: it has not ended, and holds a GPU until its deadline."""


@dataclass(frozen=True)
class Creation:
    """The result of a request to create objects."""

    new: int
    count: int
    there: tuple[str, ...]
    """Names that objects have which are there already."""
    full: Mapping[str, str]
    """Why a quota has no room, by the name of the object."""


def submit(manifests: str) -> Creation:
    """Create the objects that are not there yet, as far as quotas have room. Raises SchedulerError."""
    documents = re.split("^---\n", manifests, flags=re.MULTILINE)[1:]
    new, there, full = 0, list[str](), dict[str, str]()
    for first in range(0, len(documents), _CREATED):
        made, refused = _KUBERNETES.answer(
            ["kubectl", "create", "--filename", "-", _WITHIN],
            "---\n" + "---\n".join(documents[first : first + _CREATED]),
            seconds=55,
            harmless=r"\(AlreadyExists\)|exceeded quota",
        )
        new += len(made.splitlines())
        for line in refused:
            if (named := _ABOUT.search(line)) and "exceeded quota" in line:
                full[named[1]] = line[line.index("exceeded quota") :]
            elif named:
                there.append(named[1])
    return Creation(new, len(documents), tuple(there), full)


def strangers(names: Sequence[str], fleet: Fleet) -> set[str]:
    """The names that belong to Jobs of others. Raises SchedulerError."""
    found: set[str] = set()
    for first in range(0, len(names), 200):
        options = ["--namespace", fleet.namespace, "--ignore-not-found", "--output", "json", _WITHIN]
        text = _KUBERNETES.ask(["kubectl", "get", "jobs", *options, *names[first : first + 200]])
        listed = parse_object(text) if text.strip() else {"items": []}
        items = listed.get("items", [listed])
        found |= {str(item["metadata"]["name"]) for item in items if _key_of(item) is None}
    return found


def remove(jobs: Mapping[str, JobState], fleet: Fleet) -> None:
    """Delete these Jobs, and no newer one of the same name, so that their tasks can be submitted again.

    One that is stuck is deleted only if nothing has become of it since it was seen. Raises SchedulerError.
    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/delete-options/
    """
    with ThreadPoolExecutor(_DELETING) as pool:
        going = list(pool.map(partial(_delete, fleet), jobs, jobs.values()))
    # of a finalizer that something else put on it
    names = [f"jobs/{PREFIX}{key}" for key, stays in zip(jobs, going, strict=True) if stays]
    for first in range(0, len(names), 200):
        options = ["--namespace", fleet.namespace, "--for=delete", "--timeout=50s"]
        _KUBERNETES.ask(["kubectl", "wait", *options, *names[first : first + 200]], harmless=_OTHER_NOW)


def _delete(fleet: Fleet, key: str, job: JobState) -> bool:
    """Whether it takes longer than this call."""
    only = {"uid": job.uid} | ({"resourceVersion": job.version} if job.stuck else {})
    # by default the pods of a batch/v1 Job stay
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": only}
    text = json.dumps(body | {"propagationPolicy": "Background"})
    path = f"/apis/batch/v1/namespaces/{fleet.namespace}/jobs/{PREFIX}{key}"
    told = _KUBERNETES.ask(["kubectl", "delete", "--raw", path, "--filename", "-"], text, harmless=_OTHER_NOW)
    try:
        return bool(told.strip()) and parse_object(told).get("kind") != "Status"
    except ValueError as error:
        raise SchedulerError(
            f"kubectl printed no answer to a deletion ({shown(repr(error))})",
            command=["kubectl", "delete"],
            returncode=0,
        ) from error


def jobs(fleet: Fleet) -> Mapping[str, JobState]:
    """Every Job of ours by its task's key, from one list of all at each look.

    It is no watch: kubectl watches one kind of object at a time, and a watch that hangs looks like one on
    which nothing happens. Raises SchedulerError, MissingToolError.
    """
    command = ["kubectl", "get", "jobs,pods", "--namespace", fleet.namespace]
    options = ["--selector", f"{LABEL}={MANAGER}", "--output", "json", _WITHIN]
    listed = _KUBERNETES.ask([*command, *options], seconds=45)
    try:
        items = parse_object(listed)["items"]
        pods: dict[str, list[dict[str, Any]]] = {}
        for pod in (item for item in items if item["kind"] == "Pod"):
            for owner in pod["metadata"].get("ownerReferences") or ():
                pods.setdefault(str(owner["uid"]), []).append(pod)
        ours = [(key, str(item["metadata"]["uid"]), item) for item in items if (key := _key_of(item))]
        waiting = [uid for _, uid, job in ours if uid not in pods and not _part(job, "spec").get("suspend")]
        unmade = _unmade(fleet) if waiting else {}
        return {key: _state(job, pods.get(uid, ()), unmade.get(uid)) for key, uid, job in ours}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise SchedulerError(
            f"kubectl printed no list of jobs and pods ({shown(repr(error))})", command=command, returncode=0
        ) from error


def _unmade(fleet: Fleet) -> dict[str, str]:
    """Why the server makes no pod, by the UID of a Job: a quota that is full, an admission webhook's refusal.

    They stand in events alone, which are kept for an hour, at most 500 are read, and not every login may.
    https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
    """
    path = f"/api/v1/namespaces/{fleet.namespace}/events?limit=500"
    path += "&fieldSelector=involvedObject.kind%3DJob%2Creason%3DFailedCreate"
    try:
        events = parse_object(_KUBERNETES.ask(["kubectl", "get", "--raw", path, _WITHIN], seconds=30))[
            "items"
        ]
    except (SchedulerError, ValueError, LookupError):
        return {}
    told = sorted(events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime")))
    return {str(_part(one, "involvedObject").get("uid")): str(one.get("message")) for one in told}


def _key_of(job: Mapping[str, Any]) -> str | None:
    """The key of the task whose Job it is; None if rtbuild did not make it, by its name and labels."""
    if job["kind"] != "Job":
        return None
    labels, name = _part(job["metadata"], "labels"), str(job["metadata"]["name"])
    key = labels.get(KEY)
    return str(key) if labels.get(LABEL) == MANAGER and name == f"{PREFIX}{key}" else None


def _state(job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], unmade: str | None) -> JobState:
    """Until a Job has ended, no log is read; an ended one without a pod has no log."""
    newest = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), reverse=True)
    good = [pod for pod in newest if _phase(pod) == "Succeeded"]
    pod: Mapping[str, Any] = next(iter(good or newest), {})
    name = str(pod["metadata"]["name"]) if pod else None
    code = _state_of(pod, "terminated").get("exitCode")
    failed = [*str(_part(job["metadata"], "annotations").get(_FAILED_ON, "")).split(",")]
    failed += [str(_part(one, "spec").get("nodeName", "")) for one in newest if _phase(one) == "Failed"]
    nodes = tuple(dict.fromkeys(filter(None, failed)))[-_MOST_NODES:]
    about = job["metadata"]
    uid, version = str(about["uid"]), str(about["resourceVersion"])
    state = partial(JobState, uid=uid, version=version, pod=name, exit_code=code, failed_on=nodes)
    for condition in _part(job, "status").get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            word = _words(condition["type"].lower(), condition)
            again = not pod or (_phase(pod) != "Succeeded" and code not in _FINAL)
            return state(word=word, ended=True, again=again, reason=_why_failed(pod))
    if stuck := _unpullable(pod):
        return state(word=stuck, ended=True, stuck=True)
    if _part(job, "spec").get("suspend"):
        return state(word="suspended: it waits in its queue", queued=True)
    if pod:
        return state(word=_pod_word(pod), queued=True)
    return state(word=_words("no pod yet", {"message": _CREATING.sub("", unmade or "")}), queued=True)


def _phase(pod: Mapping[str, Any]) -> str:
    return str(_part(pod, "status").get("phase", "Unknown"))


def _part(item: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return item.get(name) or {}


def _state_of(pod: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The state of this kind that a container of the pod has: ``waiting``, ``terminated``; empty if it has
    none.
    """
    containers = _part(pod, "status").get("containerStatuses") or ()
    return next((found for one in containers if (found := _part(one, "state").get(kind))), {})


def _unpullable(pod: Mapping[str, Any]) -> str | None:
    """Why the image of the pod cannot be pulled, ever; None if it can, or if that is not known."""
    waiting = _state_of(pod, "waiting")
    reason = str(waiting.get("reason"))
    never = reason in {"InvalidImageName", "ErrImageNeverPull"}
    if never or ("ImagePull" in reason and _UNPULLABLE.search(f"{reason}: {waiting.get('message')}")):
        return _words("the image cannot be pulled", waiting)
    return None


def _pod_word(pod: Mapping[str, Any]) -> str:
    """Why a pod has not ended, or how it did: ``pending: ImagePullBackOff: …``."""
    status = _part(pod, "status")
    phase = _phase(pod).lower()
    conditions = status.get("conditions") or ()
    unplaced = [c for c in conditions if (c.get("type"), c.get("status")) == ("PodScheduled", "False")]
    for found in (_state_of(pod, "waiting"), *unplaced, status if status.get("reason") else {}):
        if found:
            return _words(phase, found)
    node = _part(pod, "spec").get("nodeName")
    return f"{phase} on {shown(str(node), most=100)}" if node else phase


def _why_failed(pod: Mapping[str, Any]) -> str:
    """The last words of a pod that failed: of the kubelet about it, or the end of its log."""
    status, ended = _part(pod, "status"), _state_of(pod, "terminated")
    if _phase(pod) == "Succeeded" or not pod:
        return ""
    said = status if status.get("reason") else ended
    # of a report, which fills the end of a log, no line says it
    last = [line for line in str(said.get("message") or "").splitlines()[-1:] if not line.startswith("}")]
    about = ": ".join([str(word) for word in (said.get("reason"), *last) if word and word != "Error"])
    node = _part(pod, "spec").get("nodeName")
    return shown(f"{about}, on {node}" if about and node else about, most=200)


def _words(first: str, said: Mapping[str, Any]) -> str:
    parts = (first, said.get("reason"), said.get("message"))
    return shown(": ".join(str(part) for part in parts if part), most=200)


def log_of(job: JobState, fleet: Fleet) -> str:
    """The output of a Job's pod, which is the probe's JSON. Raises SchedulerError, CellError."""
    if job.pod is None:
        raise CellError("its pod is gone, and its log with it")
    options = ["--namespace", fleet.namespace, "--container", "probe", "--limit-bytes", str(8 << 20), _WITHIN]
    return _KUBERNETES.ask(["kubectl", "logs", job.pod, *options])


def logs_of(keys: Sequence[str], fleet: Fleet) -> dict[str, str]:
    """The output of these tasks' pods, by the pod's name, by one kubectl.

    A pod whose log is not whole, or did not come, is left out: :func:`log_of` says why. Raises SchedulerError
    if the server does not answer.
    """
    options = ["--namespace", fleet.namespace, "--container", "probe", "--limit-bytes", str(_MOST_OF_MANY)]
    selector = f"{KEY} in ({','.join(keys)})"
    command = ["kubectl", "logs", "--selector", selector, "--prefix", "--tail=-1", _WITHIN, *options]
    try:
        text = _KUBERNETES.ask(command, seconds=60 + len(keys))
    except SchedulerError as error:
        if silent(" ".join([error.message, *error.tail])):
            raise
        return {}  # by one pod that has no log, and those after it were not asked for
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if said := _PREFIXED.match(line):
            found.setdefault(said[1], []).append(line[said.end() :])
    whole = {pod: "\n".join(lines) for pod, lines in found.items()}
    return {pod: log for pod, log in whole.items() if len(log.encode()) < _MOST_OF_MANY - 1}


def try_lane(name: str, fleet: Fleet) -> str | None:
    """Why the cluster would not take a job of the class; None if it would. Nothing is created."""
    task = Task(column=name, matrix="x", cell="x", repository="x", digest="sha256:0", inputs="")
    manifest = _yaml([_job(task, fleet)])
    try:
        _KUBERNETES.ask(
            ["kubectl", "create", "--dry-run=server", "--filename", "-", _WITHIN], manifest, seconds=45
        )
    except SchedulerError as error:
        return why(error)
    return None
