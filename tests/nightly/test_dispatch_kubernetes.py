"""`rtbuild dispatch` on a real Kubernetes API server, with its real scheduler and controllers.

The kubelets are a stand-in: pods are bound and counted by Kubernetes, and run by nobody. Release 1.20
knows no podFailurePolicy, which the fleet file therefore takes away.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from dispatch_scene import DispatchScene, running
from doubles.kubelet_stand_in import KubeletStandIn, Outcome
from doubles.project import A100, T4, report
from doubles.registry import RegistryDouble, serve
from kubernetes_control_plane import TOKEN, ControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]
CELLS = int(os.environ.get("RTBUILD_TEST_CELLS", "12"))
"""On two classes each: 24 tasks."""
CARDS = {"T4": T4, "A100": A100}
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

    def jobs(self) -> list[str]:
        """The names of the Jobs, in the order of the plan."""
        text = self.control.ask("get", "jobs", "--namespace", self.space, "--output", "json")
        return sorted(item["metadata"]["name"] for item in json.loads(text)["items"])


@pytest.fixture
def scene(control: ControlPlane, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    name = request.node.name.replace("_", "-").removeprefix("test-")[:50].strip("-")
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
    check(scene, scene.dispatch())


def test_an_image_that_cannot_be_pulled(scene: Scene) -> None:
    (name, *_) = _names(scene)
    scene.bad = {name: [("Pending", 0, "manifest unknown")] * 99}
    code, rows, talk = scene.dispatch()
    lost = [row for row in rows if row["verdict"] is None]
    assert (code, len(lost)) == (5, 1), talk
    assert "the image cannot be pulled: ErrImagePull: manifest unknown" in lost[0]["scheduler"]
    assert name not in scene.jobs(), "it would hold its card"


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
