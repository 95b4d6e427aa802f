"""Kubernetes: one Job for each task. The image under test is the pod's image; the pod has no token and no
network.

A pod prints the probe's JSON, and whoever dispatched reads it from the pod's log and puts the report beside
the image. Fields: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/job-v1/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from builder.dispatch.client import Scheduled, SchedulerClient
from builder.documents import parse_object, shown
from builder.errors import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from builder.dispatch.fleet import Fleet, Lane
    from builder.dispatch.plan import VerifyTask

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
_SECONDS = 0.5
"""Time limit of a submission, for each manifest in it."""


def render(tasks: Sequence[VerifyTask], fleet: Fleet) -> dict[str, str]:
    """The manifests of each class that has tasks, and one network policy, as YAML by a name."""
    found = {"network": _yaml([_network_policy(fleet)])}
    for name in sorted({task.gpu_class for task in tasks}):
        lane = fleet.lane(name)
        if lane is None:
            raise ValueError(f"the fleet has no class {name}")
        found[name] = _yaml([job(task, lane, fleet) for task in tasks if task.gpu_class == name])
    return found


def _yaml(documents: Sequence[Mapping[str, Any]]) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False, explicit_start=True, width=1000)


def job(task: VerifyTask, lane: Lane, fleet: Fleet) -> dict[str, Any]:
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
            "annotations": {"io.rtbuild/cell": task.cell, "io.rtbuild/class": task.gpu_class},
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

    ended: bool
    scheduled: Scheduled
    pod: str | None
    exit_code: int | None
    """Of the probe in that pod."""


def submit(manifests: str) -> str:
    """Create what is not there yet, and say how much that was. Raises SchedulerError, MissingToolError."""
    count = manifests.count("\n---\n") + 1
    made = _KUBERNETES.ask(
        ["kubectl", "create", "--filename", "-"],
        manifests,
        seconds=60 + _SECONDS * count,
        harmless="(AlreadyExists)",
    )
    return f"{len(made.splitlines())} of {count} are new"


def remove(keys: Sequence[str], fleet: Fleet) -> None:
    """Delete ended Jobs, so that their tasks can be submitted again. Raises SchedulerError."""
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
    ended, scheduled = _progress(job, pod)
    return JobState(
        ended=ended,
        scheduled=scheduled,
        pod=None if pod is None else str(pod["metadata"]["name"]),
        exit_code=None if pod is None else _exit_code(pod),
    )


def _progress(job: Mapping[str, Any], pod: Mapping[str, Any] | None) -> tuple[bool, Scheduled]:
    """Whether a Job has ended, and what is to be said of it. Until it has, no log is read."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("status") != "True":
            continue
        if condition.get("type") == "Complete":
            return True, Scheduled(word="complete")
        if condition.get("type") == "Failed":
            return True, Scheduled(word=_words("failed", condition.get("reason"), condition.get("message")))
    if (job.get("spec") or {}).get("suspend"):
        return False, Scheduled(word="suspended: it waits in its queue", queued=True)
    return False, Scheduled(word="no pod yet" if pod is None else _pod_word(pod), queued=True)


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
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
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
    from builder.dispatch.plan import VerifyTask

    lane = fleet.lane(name)
    if lane is None:
        return f"the fleet has no class {name}"
    task = VerifyTask(
        gpu_class=name, matrix="x", cell="x", repository="x", digest="sha256:0", probe="", inputs=""
    )
    try:
        _KUBERNETES.ask(
            ["kubectl", "create", "--dry-run=server", "--filename", "-"], _yaml([job(task, lane, fleet)])
        )
    except SchedulerError as error:
        return error.tail[-1] if error.tail else error.message
    return None
