"""`rtbuild dispatch` on a real Kubernetes API server, with its real scheduler and controllers.

The kubelets are a stand-in: pods are bound and counted by Kubernetes, and run by nobody. Release 1.20
knows no podFailurePolicy, which the fleet file therefore takes away.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from dispatch_scene import Dispatcher, DispatchScene, running
from doubles.kubelet_stand_in import KubeletStandIn, Outcome
from doubles.project import A100, T4, report
from doubles.registry import RegistryDouble, serve
from kubernetes_control_plane import TOKEN, ControlPlane

from builder.release.dispatch.node import reports_beside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]
CELLS = int(os.environ.get("RTBUILD_TEST_CELLS", "12"))
"""On two classes each: 24 tasks."""
CARDS = {"T4": T4, "A100": A100}
LONGEST = 60.0
"""Seconds for which a dispatcher may say nothing while something is away."""
NODES = {f"n{number}": ("T4" if number % 2 else "A100") for number in range(6)}


@pytest.fixture(scope="module")
def control() -> Iterator[ControlPlane]:
    with running(ControlPlane) as control:
        yield control


class Scene(DispatchScene):
    """A namespace of its own, with a stand-in for its kubelets."""

    kubelet: KubeletStandIn

    def __init__(self, folder: Path, control: ControlPlane, server: RegistryDouble, space: str) -> None:
        super().__init__(folder, server, tuple(CARDS), CELLS)
        self.control, self.space = control, space
        self.bad: dict[str, list[Outcome]] = {}
        """What becomes of a Job's first pods, by the Job's name; then it works."""
        self.unpullable, self.hopeless, self.hopeless_tasks, self.told = "", set[str](), 0, ""
        """The class whose nodes pull nothing; classes and tasks that are lost rightly; what is to be said."""
        self.users: list[dict[str, str]] = []
        """The environments of several dispatchers."""
        self.later: Callable[[], object] = lambda: None
        """What happens while they wait."""
        self.played: dict[str, int] = {}
        self.played_of: dict[str, list[str]] = {}
        self.by_digest = {image.digest: image for image in self.images()}
        self.fleet.write_text(
            f"version: 1\nscheduler: kubernetes\nnamespace: {self.space}\n"
            f"staging: {self.staging}\n"
            "patch: {spec: {podFailurePolicy: null}}\n"
            "classes: {T4: {product: T4}, A100: {product: A100}}\n"
        )
        self.control.ask("create", "namespace", self.space)

    def outcome(self, pod: dict[str, Any], node: str) -> Outcome:
        job = pod["metadata"]["labels"]["job-name"]
        if NODES[node] == self.unpullable:
            return "Pending", 0, "failed to pull and unpack image: 401 Unauthorized"
        if waiting := self.bad.get(job):
            known = self.played.setdefault(pod["metadata"]["name"], len(self.played_of.setdefault(job, [])))
            if known == len(self.played_of[job]):
                self.played_of[job].append(pod["metadata"]["name"])
            if known < len(waiting):
                return waiting[known]
        digest = pod["spec"]["containers"][0]["image"].partition("@")[2]
        return "Succeeded", 0, json.dumps(report(self.by_digest[digest], gpu=CARDS[NODES[node]]), indent=1)

    def env(self) -> dict[str, str]:
        path = f"{self.control.bin}:{os.environ['PATH']}"
        return os.environ | {
            "PATH": path,
            "KUBECONFIG": str(self.control.kubeconfig),
            "HOME": str(self.folder),
        }

    def ended(self, process: subprocess.Popen[str]) -> tuple[int, list[dict[str, Any]], str]:
        text, talk = process.communicate(timeout=600)
        assert '"tasks"' in text, text + talk + self.control.logs()
        return process.returncode, json.loads(text)["tasks"], talk

    def dispatch(self) -> tuple[int, list[dict[str, Any]], str]:
        return self.ended(self.start())

    def running(self) -> list[str]:
        """The names of pods that run."""
        about = ("--namespace", self.space, "--field-selector=status.phase=Running", "--output=name")
        return [line.partition("/")[2] for line in self.control.ask("get", "pods", *about).split()]

    def jobs(self) -> list[str]:
        """The names of the Jobs, in the order of the plan."""
        text = self.control.ask("get", "jobs", "--namespace", self.space, "--output", "json")
        return sorted(item["metadata"]["name"] for item in json.loads(text)["items"])


@pytest.fixture
def scene(control: ControlPlane, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    name = re.sub("[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_"))[-50:].strip("-")
    with serve() as server:
        made = Scene(tmp_path, control, server, name)
        with KubeletStandIn(control.api, TOKEN, tmp_path, NODES, made.outcome) as kubelet:
            made.kubelet = kubelet
            yield made
            control.ask("delete", "namespace", name, "--wait=false")


def check(scene: Scene, found: tuple[int, list[dict[str, Any]], str]) -> None:
    """Every task works, and none ran to a good end more often than once."""
    code, rows, talk = found
    assert (code, {row["verdict"] for row in rows}, len(rows)) == (0, {"works"}, 2 * CELLS), talk
    ran = [job for job, _, code in scene.kubelet.ran if code == 0]
    assert sorted(ran) == sorted(set(ran))


def test_twenty_four_tasks(scene: Scene) -> None:
    check(scene, scene.dispatch())


def test_two_dispatchers(scene: Scene) -> None:
    both = [scene.start() for _ in range(2)]
    for one in both:
        check(scene, scene.ended(one))


def test_the_api_server_is_away(scene: Scene, control: ControlPlane) -> None:
    waiting = scene.start()
    _until(lambda: scene.kubelet.ran, control)
    control.kill("kube-apiserver")
    time.sleep(15)
    control.start("kube-apiserver")
    control.ready()
    found = scene.ended(waiting)
    check(scene, found)
    assert "it is asked again" in found[2]


def test_a_node_is_lost(scene: Scene, control: ControlPlane) -> None:
    scene.kubelet.seconds = 8
    waiting = scene.start()
    _until(lambda: scene.kubelet._started, control)
    scene.kubelet.dead.add("n1")
    scene.kubelet.seconds = 2
    check(scene, scene.ended(waiting))
    scene.kubelet.dead.clear()


def test_a_pod_is_evicted_and_a_card_fails(scene: Scene) -> None:
    names = _names(scene)
    scene.bad = {names[0]: [("Evicted", 0, "")], names[1]: [("Failed", 22, "driver missing")] * 2}
    check(scene, scene.dispatch())
    nodes = [node for job, node, _ in scene.kubelet.ran if job == names[1]]
    assert len(nodes) == len(set(nodes)) == 3, "each attempt on another node"


def test_a_quota_is_waited_for(scene: Scene) -> None:
    scene.control.ask(
        *("create", "quota", "cards", "--hard=requests.nvidia.com/gpu=12", "--namespace", scene.space)
    )
    code, rows, talk = scene.dispatch()
    check(scene, (code, rows, talk))
    assert "no pod yet: exceeded quota: cards" in talk


def test_an_image_that_cannot_be_pulled(scene: Scene) -> None:
    (name, *_) = _names(scene)
    scene.bad = {name: [("Pending", 0, "manifest unknown")] * 99}
    code, rows, talk = scene.dispatch()
    lost = [row for row in rows if row["verdict"] is None]
    assert (code, len(lost)) == (5, 1), talk
    assert "the image cannot be pulled: ErrImagePull: manifest unknown" in lost[0]["scheduler"]
    assert name not in scene.jobs(), "it would hold its card"


# Written from the documentation of Kubernetes and ours, before the dispatcher was read.


def hangs(scene: Scene, control: ControlPlane) -> tuple[float, float]:
    """The API server takes connections and says nothing for 90 s."""
    _until(lambda: scene.kubelet.ran, control)
    began = time.monotonic()
    control.processes["kube-apiserver"].send_signal(signal.SIGSTOP)
    time.sleep(90)
    control.processes["kube-apiserver"].send_signal(signal.SIGCONT)
    control.ready()
    return began, time.monotonic()


def clocks_are_skewed(scene: Scene, _control: ControlPlane) -> None:
    """Of one node by an hour ahead, of another by an hour behind."""
    scene.kubelet.ahead = {"n0": 3600, "n1": -3600}


def one_class_cannot_pull(scene: Scene, _control: ControlPlane) -> None:
    """Its nodes have no login for the registry."""
    scene.unpullable = "A100"
    scene.hopeless = {"A100"}


def a_quota_is_raised_later(scene: Scene, control: ControlPlane) -> None:
    """https://kubernetes.io/docs/concepts/policy/resource-quotas/#object-count-quota"""
    quota = ["--hard=count/jobs.batch=3,requests.nvidia.com/gpu=1", "--namespace", scene.space]
    control.ask("create", "quota", "small", *quota)
    scene.later = lambda: (
        time.sleep(20),
        control.ask(
            *("patch", "quota", "small", "--namespace", scene.space, "--patch"),
            '{"spec": {"hard": {"count/jobs.batch": "50", "requests.nvidia.com/gpu": "12"}}}',
        ),
    )


def a_pod_is_evicted_twice(scene: Scene, _control: ControlPlane) -> None:
    """By its node, for want of memory."""
    scene.bad = {_names(scene)[0]: [("Evicted", 0, "")] * 2}


def two_nodes_are_drained(scene: Scene, control: ControlPlane) -> None:
    """https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/"""
    scene.kubelet.seconds = 6

    def drain() -> None:
        evicted: set[str] = set()
        for _ in range(2):
            _until(lambda: set(scene.running()) - evicted, control)
            pod = min(set(scene.running()) - evicted)
            evicted.add(pod)
            about = {"name": pod, "namespace": scene.space}
            body = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": about}
            _post(control, f"/api/v1/namespaces/{scene.space}/pods/{pod}/eviction", body)

    scene.later = drain


def _post(control: ControlPlane, path: str, body: dict[str, Any]) -> None:
    command = [str(control.bin / "kubectl"), "--kubeconfig", str(control.kubeconfig)]
    command += ["create", "--raw", path, "--filename", "-"]
    subprocess.run(command, input=json.dumps(body), text=True, check=True, capture_output=True)


def a_job_of_the_same_name_is_not_ours(scene: Scene, control: ControlPlane) -> None:
    name = _names(scene)[0]
    container = {"name": "x", "image": "registry.example/theirs"}
    pod = {"restartPolicy": "Never", "nodeSelector": {"nowhere": "yes"}, "containers": [container]}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
    path = f"/apis/batch/v1/namespaces/{scene.space}/jobs"
    _post(control, path, body | {"spec": {"template": {"spec": pod}}})
    scene.told = f"{name} is a Job that rtbuild did not make"
    scene.hopeless_tasks = 1


def two_users_without_a_shared_folder(scene: Scene, _control: ControlPlane) -> None:
    """Both have seen the same Jobs that failed, and are about to make them anew."""
    names = _names(scene)
    scene.bad = {name: [("Failed", 22, "driver missing")] for name in names[:3]}
    folder, real = scene.folder / "meet", scene.control.bin / "kubectl"
    folder.mkdir()
    (folder / "kubectl").write_text(
        "#!/bin/bash\n"
        f'case "$*" in\n"create --filename"*|"delete --raw"*)\n'
        f"  touch {folder}/$1.$RTBUILD_USER\n  for i in $(seq 100); do\n"
        f"    [ $(ls {folder}/$1.* | wc -l) -ge 2 ] && break\n    sleep 0.1\n  done ;;\nesac\n"
        f'exec {real} "$@"\n'
    )
    (folder / "kubectl").chmod(0o755)
    environment = scene.env()
    scene.users = [
        environment
        | {"RTBUILD_CACHE": str(scene.folder / user), "RTBUILD_USER": user}
        | {"PATH": f"{folder}:{environment['PATH']}"}
        for user in ("one", "two")
    ]


OUTSIDE: dict[str, Callable[[Scene, ControlPlane], Any]] = {
    "the API server hangs for 90 s": hangs,
    "clocks of nodes are skewed": clocks_are_skewed,
    "an image of one class cannot be pulled": one_class_cannot_pull,
    "a quota is raised later": a_quota_is_raised_later,
    "a pod is evicted twice": a_pod_is_evicted_twice,
    "two pods are drained away": two_nodes_are_drained,
    "a Job of the same name is not ours": a_job_of_the_same_name_is_not_ours,
    "two users without a shared folder": two_users_without_a_shared_folder,
}


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    found: list[str] = []
    yield found
    head = (
        f"{'scenario':<42} {'tasks':>5} {'lost wrongly':>12} {'vanished':>8} {'run twice':>9} {'silent':>7}"
    )
    sys.stderr.write("\n".join(["", head, *found]) + "\n")


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_is_said_at_the_end_is_true(
    name: str, scene: Scene, control: ControlPlane, table: list[str]
) -> None:
    before = None if name.startswith("the API") else OUTSIDE[name](scene, control)
    assert before is None
    told = []
    for environment in scene.users or [scene.env()]:
        scene.env = lambda environment=environment: environment  # type: ignore[method-assign,misc]
        told.append(Dispatcher(scene))
    away = OUTSIDE[name](scene, control) if name.startswith("the API") else None
    scene.later()
    rows = [one.rows() for one in told]
    good = [job for job, _, code in scene.kubelet.ran if code == 0]
    # two dispatchers that read a log at one moment both attach what it says
    reported = [
        (image.digest, report.key.gpus)
        for image in scene.images()
        for report in reports_beside(scene.registry, image, None)
    ]
    kept = len(set(reported))
    lost = [row for one in rows for row in one if row["verdict"] is None]
    rightly = [row for row in lost if row["class"] in scene.hopeless]
    wrongly = len(lost) - len(rightly) - scene.hopeless_tasks
    silent = max(one.silence(*away) for one in told) if away else 0.0
    counts = f"{wrongly:>12} {len(set(good)) - kept:>8} {len(good) - len(set(good)):>9} {silent:>6.0f}s"
    table.append(f"{name:<42} {2 * CELLS:>5} {counts}")
    sys.stderr.write(table[-1] + "\n")
    said = "\n".join([*(line for one in told for _, line in one.lines), *(str(row) for row in lost)])
    assert all(len(one) == 2 * CELLS for one in rows), said
    assert (wrongly, len(set(good)) - kept, len(good) - len(set(good))) == (0, 0, 0), said
    assert silent < LONGEST, said
    assert len(rightly) == len(scene.hopeless) * CELLS, said
    assert all("cannot be pulled" in row["scheduler"] for row in rightly), said
    assert scene.told in said


def _names(scene: Scene) -> list[str]:
    """The names of the Jobs on T4, of which there are three nodes."""
    asked = scene.command("--dry-run")
    said = subprocess.run(asked, env=scene.env(), capture_output=True, text=True, timeout=120, check=False)
    lines = said.stdout.splitlines()
    found = [line.partition(": ")[2] for line in lines if line.startswith("  name: rtbuild-")]
    assert found, said.stderr
    return [name for name in found if name != "rtbuild-no-network"][CELLS:]


def _until(call: Any, control: ControlPlane) -> None:
    end = time.monotonic() + 120
    while not call():
        assert time.monotonic() < end, control.logs()
        time.sleep(0.2)
