"""Kubernetes: one Job for each task. The image under test is the pod's image; the pod has no token and no
network.

A pod prints the probe's JSON, and whoever dispatched reads it from the pod's log and puts the report beside
the image.
Fields: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/job-v1/
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml

from builder.dispatch.client import SchedulerClient
from builder.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


def submit(manifests: str) -> str:
    """What kubectl says of the manifests that it applied. Raises CommandError, MissingToolError."""
    return _KUBERNETES.ask(["kubectl", "apply", "--filename", "-"], manifests)


def jobs(fleet: Fleet) -> Mapping[str, str]:
    """The state of every job of ours by its task's key: ``active``, ``complete``, or ``failed (reason)``."""
    listed = _KUBERNETES.ask(
        [
            "kubectl",
            "get",
            "jobs",
            "--namespace",
            fleet.namespace,
            "--selector",
            f"{LABEL}={MANAGER}",
            "--output",
            "json",
        ]
    )
    try:
        items = json.loads(listed)["items"]
        return {str(item["metadata"]["labels"][KEY]): _state(item.get("status") or {}) for item in items}
    except (ValueError, LookupError, TypeError) as error:
        raise CommandError(
            f"kubectl printed no list of jobs ({error!r})", command=["kubectl", "get", "jobs"], returncode=0
        ) from error


def _state(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in {"Complete", "SuccessCriteriaMet"}:
            return "complete"
        if condition.get("status") == "True" and condition.get("type") == "Failed":
            return f"failed ({condition.get('reason', 'no reason given')})"
    return "active"


def log_of(key: str, fleet: Fleet) -> str:
    """What the newest pod of a task printed, which is the probe's JSON. Raises CommandError."""
    return _KUBERNETES.ask(
        [
            "kubectl",
            "logs",
            "--namespace",
            fleet.namespace,
            f"job/{PREFIX}{key}",
            "--container",
            "probe",
            "--limit-bytes",
            str(_LOG),
        ]
    )


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
    except CommandError as error:
        return error.tail[-1] if error.tail else error.message
    return None
