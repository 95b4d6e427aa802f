"""Kubernetes: one Job for each task. The image under test is the pod's image; the pod has no token and no
network.

A pod prints the probe's JSON, and whoever dispatched reads it from the pod's log and puts the report beside
the image. Fields: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/job-v1/
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from builder.dispatch.client import Scheduled, SchedulerClient, why
from builder.dispatch.fleet import Fleet, Lane
from builder.dispatch.plan import Task
from builder.documents import parse_object, shown
from builder.errors import SchedulerError

PREFIX = "rtbuild-"
LABEL = "app.kubernetes.io/managed-by"
MANAGER = "rtbuild"
KEY = "io.rtbuild/key"
_KUBERNETES = SchedulerClient(
    name="Kubernetes",
    absent="install it and log in; --dry-run prints the manifests without it",
    silent="kubectl cluster-info",
    refused="kubectl auth can-i create jobs; rtbuild doctor --fleet FILE tries each class",
)
_LOG = 8 << 20
"""Bytes of a pod's log that are read."""
_KEPT = 24 * 3600
"""Seconds for which an ended job stays, so that a dispatcher that comes back finds its log."""
_NOBODY = 65534
_UNPULLABLE = re.compile(
    "(manifest|name) unknown|not found|unauthorized|denied|forbidden|no match for platform", re.IGNORECASE
)
"""Reasons for which an image is not pulled at the next try either: the kubelet tries until the deadline."""
_SECONDS = 0.5
"""Time limit of a submission, for each manifest in it."""


def render(tasks: Sequence[Task], fleet: Fleet) -> dict[str, str]:
    """The manifests of each class that has tasks, and one network policy, as YAML by a name."""
    found = {"network": _yaml([_network_policy(fleet)])}
    for name in sorted({task.column for task in tasks}):
        lane = fleet.lane(name)
        if lane is None:
            raise ValueError(f"the fleet has no class {name}")
        found[name] = _yaml([job(task, lane, fleet) for task in tasks if task.column == name])
    return found


def _yaml(documents: Sequence[Mapping[str, Any]]) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False, explicit_start=True, width=1000)


def job(task: Task, lane: Lane, fleet: Fleet) -> dict[str, Any]:
    """The Job of one task. Its name is the task's key, so saying it twice makes one job."""
    labels = {LABEL: MANAGER, KEY: task.key}
    queue = lane.queue or fleet.queue
    if queue is not None:
        labels["kueue.x-k8s.io/queue-name"] = queue
    selector = {"nvidia.com/gpu.product": lane.product} if lane.product else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": PREFIX + task.key,
            "namespace": fleet.namespace,
            "labels": labels,
            "annotations": {"io.rtbuild/cell": task.cell, "io.rtbuild/class": task.column},
        },
        "spec": {
            "backoffLimit": fleet.attempts - 1,
            "activeDeadlineSeconds": 60 * (lane.minutes or fleet.minutes) * fleet.attempts,
            "ttlSecondsAfterFinished": _KEPT,
            "podFailurePolicy": {
                "rules": [
                    # 20 and 21 are verdicts about the image: another node would say the same
                    {
                        "action": "FailJob",
                        "onExitCodes": {"containerName": "probe", "operator": "In", "values": [20, 21]},
                    },
                    # a drained or lost node is no attempt
                    {
                        "action": "Ignore",
                        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                    },
                ]
            },
            "template": {
                "metadata": {"labels": {LABEL: MANAGER, KEY: task.key}},
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    **({"nodeSelector": selector} if selector else {}),
                    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": _NOBODY,
                        "runAsGroup": _NOBODY,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [
                        {
                            "name": "probe",
                            "image": task.image,
                            "command": ["cudnn-verify", "--json"],
                            "resources": {"limits": {"nvidia.com/gpu": 1}},
                            "securityContext": {
                                "allowPrivilegeEscalation": False,
                                "readOnlyRootFilesystem": True,
                                "capabilities": {"drop": ["ALL"]},
                            },
                            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108
                        }
                    ],
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                },
            },
        },
    }


def _network_policy(fleet: Fleet) -> dict[str, Any]:
    """No traffic for the pods. It takes a network plug-in that heeds policies."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "rtbuild-no-network", "namespace": fleet.namespace, "labels": {LABEL: MANAGER}},
        "spec": {
            "podSelector": {"matchLabels": {LABEL: MANAGER}},
            "policyTypes": ["Ingress", "Egress"],
        },
    }


@dataclass(frozen=True, kw_only=True)
class JobState:
    """A Job of ours, and the pod whose log counts: the newest, or the one that succeeded."""

    scheduled: Scheduled
    pod: str | None
    exit_code: int | None
    """Of the probe in that pod."""
    stuck: bool
    """Its image cannot be pulled: it has not ended, and holds a GPU until its deadline."""


def submit(manifests: str) -> str:
    """Create the objects that are not there yet; their number as text. Raises SchedulerError."""
    count = manifests.count("\n---\n") + 1
    made = _KUBERNETES.ask(
        ["kubectl", "create", "--filename", "-"],
        manifests,
        seconds=60 + _SECONDS * count,
        harmless="(AlreadyExists)",
    )
    return f"{len(made.splitlines())} of {count} are new"


def remove(keys: Sequence[str], fleet: Fleet) -> None:
    """Delete Jobs, so that their tasks can be submitted again. Raises SchedulerError."""
    for first in range(0, len(keys), 200):
        names = [PREFIX + key for key in keys[first : first + 200]]
        options = ["--namespace", fleet.namespace, "--ignore-not-found", "--timeout=50s"]
        _KUBERNETES.ask(["kubectl", "delete", "jobs", *options, *names])


def jobs(fleet: Fleet) -> Mapping[str, JobState]:
    """Every Job of ours by its task's key. Raises SchedulerError, MissingToolError."""
    command = ["kubectl", "get", "jobs,pods", "--namespace", fleet.namespace]
    listed = _KUBERNETES.ask([*command, "--selector", f"{LABEL}={MANAGER}", "--output", "json"])
    try:
        items = parse_object(listed)["items"]
        pods: dict[str, list[dict[str, Any]]] = {}
        for pod in (item for item in items if item["kind"] == "Pod"):
            for owner in pod["metadata"].get("ownerReferences") or ():
                pods.setdefault(str(owner["uid"]), []).append(pod)
        return {
            str(item["metadata"]["labels"][KEY]): _state(item, pods.get(str(item["metadata"]["uid"]), ()))
            for item in items
            if item["kind"] == "Job"
        }
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise SchedulerError(
            f"kubectl printed no list of jobs and pods ({shown(repr(error))})", command=command, returncode=0
        ) from error


def _state(job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> JobState:
    newest = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), reverse=True)
    good = [pod for pod in newest if (pod.get("status") or {}).get("phase") == "Succeeded"]
    pod = next(iter(good or newest), None)
    reason = None if pod is None else _unpullable(pod)
    scheduled = _progress(job, pod)
    stuck = reason is not None and not scheduled.ended
    if reason is not None and stuck:
        scheduled = Scheduled(word=reason, ended=True)
    return JobState(
        scheduled=scheduled,
        pod=None if pod is None else str(pod["metadata"]["name"]),
        exit_code=None if pod is None else _exit_code(pod),
        stuck=stuck,
    )


def _progress(job: Mapping[str, Any], pod: Mapping[str, Any] | None) -> Scheduled:
    """Where a Job stands. Until it has ended, no log is read; an ended one without a pod has no log."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            word = _words(condition["type"].lower(), condition.get("reason"), condition.get("message"))
            return Scheduled(word=word, ended=True, again=pod is None)
    if (job.get("spec") or {}).get("suspend"):
        return Scheduled(word="suspended: it waits in its queue", queued=True)
    return Scheduled(word="no pod yet" if pod is None else _pod_word(pod), queued=True)


def _waiting(pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Why a container of the pod has not started: a reason and a message."""
    states = ((one.get("state") or {}) for one in (pod.get("status") or {}).get("containerStatuses") or ())
    return next((state["waiting"] for state in states if state.get("waiting")), None)


def _unpullable(pod: Mapping[str, Any]) -> str | None:
    """Why the image of the pod cannot be pulled, ever; None if it can, or if that is not known."""
    waiting = _waiting(pod) or {}
    reason = str(waiting.get("reason"))
    words = f"{reason}: {waiting.get('message')}"
    never = reason in {"InvalidImageName", "ErrImageNeverPull"}
    if not never and not ("ImagePull" in reason and _UNPULLABLE.search(words)):
        return None
    return _words("the image cannot be pulled", words)


def _exit_code(pod: Mapping[str, Any]) -> int | None:
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated")
        if ended and isinstance(ended.get("exitCode"), int):
            return int(ended["exitCode"])
    return None


def _pod_word(pod: Mapping[str, Any]) -> str:
    """Why a pod has not ended, or how it did: ``pending: ImagePullBackOff: …``."""
    status = pod.get("status") or {}
    phase = str(status.get("phase", "unknown")).lower()
    waiting = _waiting(pod)
    if waiting is not None:
        return _words(phase, waiting.get("reason"), waiting.get("message"))
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _words(phase, condition.get("reason"), condition.get("message"))
    if status.get("reason"):
        return _words(phase, status["reason"], status.get("message"))
    node = (pod.get("spec") or {}).get("nodeName")
    return f"{phase} on {shown(str(node), most=100)}" if node else phase


def _words(*parts: object) -> str:
    return shown(": ".join(str(part) for part in parts if part), most=200)


def log_of(pod: str, fleet: Fleet) -> str:
    """What a pod printed, which is the probe's JSON. Raises SchedulerError."""
    options = ["--namespace", fleet.namespace, "--container", "probe", "--limit-bytes", str(_LOG)]
    return _KUBERNETES.ask(["kubectl", "logs", pod, *options])


def try_lane(name: str, fleet: Fleet) -> str | None:
    """Why the cluster would not take a job of the class; None if it would. Nothing is created."""
    lane = fleet.lane(name)
    if lane is None:
        return f"the fleet has no class {name}"
    task = Task(column=name, matrix="x", cell="x", repository="x", digest="sha256:0", inputs="")
    try:
        _KUBERNETES.ask(
            ["kubectl", "create", "--dry-run=server", "--filename", "-"], _yaml([job(task, lane, fleet)])
        )
    except SchedulerError as error:
        return why(error)
    return None
