"""What `dispatch --wait` says at its end is true: faults of a cluster on a real Slurm, and a table of counts.

For each scenario: tasks that were called lost and need not have been, reports that vanished after their
container had ended well, tasks that ran to the end twice, and the dispatcher's longest silence while a
registry or a controller was away. Slurm is real; a double stands in for Docker, and another for the registry.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from dispatch_scene import Dispatcher, running
from doubles.registry import RegistryDouble, serve
from slurm_cluster import Cluster
from slurm_scene import Scene, made

from builder.release.dispatch.node import reports_beside
from builder.sources.oci import Artifact, attach, parse_reference
from builder.sources.oci.staging import CELL_LABEL
from builder.verify.evidence.attach import REPORT_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.docker, pytest.mark.long]
CELLS = int(os.environ.get("RTBUILD_TEST_CELLS", "2"))
"""On four classes each."""
CLASSES = ("T4", "A100", "L4", "H100")
LONGEST = 60.0
"""Seconds for which a dispatcher may say nothing while something is away."""


@dataclass
class Bench:
    """One scenario while it runs."""

    scene: Scene
    cluster: Cluster
    server: RegistryDouble
    dispatchers: list[Dispatcher] = field(default_factory=list)
    away: list[tuple[float, float]] = field(default_factory=list)
    """When registry or controller did not serve."""
    hopeless: set[str] = field(default_factory=set)
    """Tasks that are rightly lost."""
    visited: set[str] = field(default_factory=set)
    """Tasks on whose node those of another class run, too."""

    told: str = ""
    """What a dispatcher has to have said, as a pattern."""
    after: list[Callable[[], None]] = field(default_factory=list)
    """What is put back in its order."""

    def dispatch(self, *words: str) -> Dispatcher:
        self.dispatchers.append(Dispatcher(self.scene, words=words))
        return self.dispatchers[-1]

    def until_said(self, pattern: str, seconds: float = LONGEST) -> None:
        """Wait until the last dispatcher says it; a user is not to wait longer for a word."""
        told, end = self.dispatchers[-1], time.monotonic() + seconds
        while not any(re.search(pattern, line) for _, line in told.lines):
            assert time.monotonic() < end, (pattern, told.lines)
            assert told.process.poll() is None, (pattern, told.lines)
            time.sleep(0.1)

    def task(self, number: int, name: str) -> str:
        return f"{self.scene.project.matrix.cells[number % CELLS].id} on {name}"

    def slow(self, *names: str) -> None:
        """Let the first run of every task of these classes take 20 seconds."""
        tasks = [self.task(number, name) for number in range(CELLS) for name in names]
        self.scene.ask({task: ["slow"] for task in tasks})

    @contextmanager
    def is_away(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.away.append((began, time.monotonic()))

    def fault(self, answer: Callable[[Any], Any], seconds: float) -> None:
        with self.is_away():
            self.server.fault = answer
            time.sleep(seconds)
            self.server.fault = None

    def end(self) -> None:
        """Wait for every dispatcher, as an administrator who gives back drained nodes."""
        until = time.monotonic() + 900
        while any(one.process.poll() is None for one in self.dispatchers):
            assert time.monotonic() < until, [one.lines[-5:] for one in self.dispatchers]
            self.cluster.resume()
            time.sleep(2)


def clean(bench: Bench) -> None:
    bench.dispatch()


def controller_away(bench: Bench) -> None:
    bench.slow("T4")
    bench.dispatch()
    bench.scene.until(bench.task(0, "T4"))
    _without_controller(bench, 15)


def controller_killed_after_submission(bench: Bench) -> None:
    told = bench.dispatch()
    while not any("submitted as job" in line for _, line in told.lines):
        assert told.process.poll() is None, told.lines
        time.sleep(0.05)
    _without_controller(bench, 3)


def _without_controller(bench: Bench, seconds: float) -> None:
    with bench.is_away():
        bench.cluster.kill("ctld")
        time.sleep(seconds)
        bench.cluster.start("ctld")
        for _ in range(60):
            with suppress(subprocess.SubprocessError):
                bench.cluster.call("squeue")
                break
            time.sleep(1)


def dispatcher_killed_in_submission(bench: Bench) -> None:
    told = bench.dispatch()
    while told.process.poll() is None and not any("tasks: " in line for _, line in told.lines):
        time.sleep(0.01)
    told.process.kill()
    told.process.wait()
    bench.dispatch()


def interrupted(bench: Bench, *, late: bool) -> None:
    bench.slow("T4")
    told = bench.dispatch()
    if late:
        bench.scene.until(bench.task(0, "T4"))
    else:
        while told.process.poll() is None and not any("waiting" in line for _, line in told.lines):
            time.sleep(0.05)
    told.process.send_signal(signal.SIGINT)
    told.process.wait(60)
    assert told.process.returncode == 130, told.lines
    bench.dispatch()


def two_dispatchers(bench: Bench) -> None:
    bench.dispatch()
    bench.dispatch()


def two_nodes_killed(bench: Bench) -> None:
    bench.slow("T4", "A100")
    bench.dispatch()
    bench.scene.until(bench.task(0, "A100"))
    for name in ("n1", "n2"):
        bench.cluster.kill(name)
    time.sleep(25)
    for name in ("n1", "n2"):
        bench.cluster.start(name)


def node_down(bench: Bench) -> None:
    _node(bench, "DOWN")


def node_drained(bench: Bench) -> None:
    _node(bench, "DRAIN")


def _node(bench: Bench, state: str) -> None:
    bench.slow("L4")
    bench.dispatch()
    bench.scene.until(bench.task(0, "L4"))
    bench.cluster.call("scontrol", "update", "NodeName=n3", f"State={state}", "Reason=test")
    time.sleep(5)
    with suppress(subprocess.CalledProcessError):  # it came back by itself
        bench.cluster.call("scontrol", "update", "NodeName=n3", "State=RESUME")


def requeued(bench: Bench) -> None:
    bench.slow("H100")
    bench.dispatch()
    bench.scene.until(bench.task(0, "H100"))
    _jobs(bench, "requeue", "h100")


def _jobs(bench: Bench, verb: str, name: str) -> int:
    running = ["--noheader", "--array", "--states=RUNNING", "--format=%i|%j"]
    rows = [row.split("|") for row in bench.cluster.call("squeue", *running).split()]
    found = [job for job, called in rows if called.startswith(f"rtbuild-{name}-")]
    for job in found:
        bench.cluster.call("scontrol", verb, job)
    return len(found)


def preempted(bench: Bench) -> None:
    bench.slow("A100")
    bench.dispatch()
    bench.scene.until(bench.task(0, "A100"))
    urgent = ["--partition=urgent", "--gres=gpu:a100:1", "--output=/dev/null", "--wrap=sleep 2"]
    bench.cluster.call("sbatch", *urgent)


def cancelled(bench: Bench) -> None:
    """Somebody's scancel is a decision, and no fault: such tasks are lost, rightly."""
    bench.slow("T4", "A100", "L4", "H100")
    bench.dispatch()
    for name in ("T4", "A100", "L4", "H100"):
        bench.scene.until(bench.task(0, name))
    found = bench.cluster.call("squeue", "--noheader", "--array", "--states=RUNNING", "--format=%i|%j|%K")
    rows = [row.split("|") for row in found.splitlines()]
    # one that is on its way and has no container yet is among them
    bench.hopeless = {bench.task(int(index), name.split("-")[1].upper()) for _, name, index in rows}
    bench.cluster.call("scancel", *(job for job, _, _ in rows))


def limited(bench: Bench) -> None:
    """MaxSubmitJobs needs an accounting database: a stand-in before sbatch says the controller's words."""
    real, folder = bench.cluster.bin / "sbatch", bench.scene.folder / "limited"
    folder.mkdir()
    (folder / "sbatch").write_text(
        "#!/bin/bash\n"
        'script=$(cat); last=$(sed -n "s/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p" <<<"$script")\n'
        'case "$*" in *--test-only*|*--array=*) exec ' + str(real) + ' "$@" <<<"$script" ;; esac\n'
        f"there=$({bench.cluster.bin}/squeue --noheader --array --format=%i | wc -l)\n"
        "if [ $((there + last + 1)) -gt 5 ]; then\n"
        '  echo "sbatch: error: AssocMaxSubmitJobLimit" >&2\n'
        '  echo "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy'
        " (job submit limit, user's size and/or time limits)\" >&2\n  exit 1\nfi\n"
        f'exec {real} "$@" <<<"$script"\n'
    )
    (folder / "sbatch").chmod(0o755)
    bench.scene.first = f"{folder}:"
    bench.dispatch()


def registry_says(bench: Bench, status: int, seconds: float, *, every: int = 1) -> None:
    count = iter(range(1 << 30))
    bench.slow("T4")
    bench.dispatch()
    bench.scene.until(bench.task(0, "T4"))
    bench.fault(lambda _request: status if next(count) % every == 0 else None, seconds)


def registry_hangs(bench: Bench) -> None:
    over = threading.Event()
    bench.slow("T4")
    bench.dispatch()
    bench.scene.until(bench.task(0, "T4"))

    def hang(_request: object) -> None:
        over.wait(70)

    try:
        bench.fault(hang, 70)
    finally:
        over.set()


def wrong(bench: Bench, limits: str) -> None:
    text = bench.scene.fleet.read_text()
    bench.scene.fleet.write_text(text.replace("H100: {}", f"H100: {{{limits}}}"))
    bench.hopeless = {bench.task(number, "H100") for number in range(CELLS)}
    bench.visited = {bench.task(number, "L4") for number in range(CELLS)}
    bench.dispatch()


def four_nodes_attach_at_once(bench: Bench) -> None:
    """In a registry without the referrers API; the pushes of the lists meet."""
    meet = threading.Barrier(4)
    bench.server.referrers = False

    def together(request: Any) -> None:
        if request.method == "PUT" and "/manifests/sha256-" in request.path:
            try:
                meet.wait(8)
            except threading.BrokenBarrierError:
                meet.reset()

    bench.server.fault = together
    bench.dispatch()


def out_of_time(bench: Bench) -> None:
    """Each attempt of a task is ended by its limit."""
    _fleet(bench, "attempts: 3", "attempts: 1")
    _fleet(bench, "H100: {}", "H100: {minutes: 1}")
    bench.hopeless = {bench.task(0, "H100")}
    bench.scene.ask({bench.task(0, "H100"): ["hangs"]})
    bench.told = "TIMEOUT|was not done after 60 s"
    bench.dispatch()


def _fleet(bench: Bench, old: str, new: str) -> None:
    text = bench.scene.fleet.read_text()
    assert old in text
    bench.scene.fleet.write_text(text.replace(old, new))


def partition_with_less_time(bench: Bench) -> None:
    _fleet(bench, "H100: {}", "H100: {minutes: 90}")
    bench.dispatch()
    bench.until_said("PartitionTimeLimit")
    bench.after.append(lambda: _partition(bench, "MaxTime=60"))
    _partition(bench, "MaxTime=120")


def _partition(bench: Bench, setting: str) -> None:
    bench.cluster.call("scontrol", "update", "PartitionName=gpu", setting)


def disk_full(bench: Bench) -> None:
    """On one of two nodes of a class: Docker pulls nothing there."""
    _on_node(bench, "n0", "docker: failed to register layer: write /x: no space left on device", 125)
    bench.dispatch()


def _on_node(bench: Bench, node: str, said: str, code: int) -> None:
    folder = bench.scene.folder / "first"
    folder.mkdir()
    (folder / "docker").write_text(
        f"#!/bin/bash\n"
        f'[ "$SLURMD_NODENAME" = {node} ] && [ "$1" = run ] && {{ echo "{said}" >&2; exit {code}; }}\n'
        f'exec {bench.scene.folder}/bin/docker "$@"\n'
    )
    (folder / "docker").chmod(0o755)
    bench.scene.write_node(f"{folder}:{bench.scene.folder}/bin:$PATH")


def configured(bench: Bench, *lines: str) -> None:
    """Other lines in slurm.conf, by a controller that starts again."""
    conf = bench.cluster.srv / "slurm.conf"
    text = conf.read_text()
    names = {line.partition("=")[0] for line in lines}
    kept = [line for line in text.splitlines() if line.partition("=")[0] not in names]

    def write(content: str) -> None:
        conf.write_text(content)
        _without_controller(bench, 0)
        bench.away.pop()  # nobody waits

    write("\n".join([*kept[:3], *lines, *kept[3:]]) + "\n")
    bench.after.append(lambda: write(text))


def small_arrays(bench: Bench) -> None:
    configured(bench, "MaxArraySize=1")
    bench.dispatch()


def forgotten_at_once(bench: Bench) -> None:
    configured(bench, "MinJobAge=2")
    bench.dispatch()


def renamed_by_the_site(bench: Bench) -> None:
    """A plug-in of the site gives each job its own name, and takes comments away."""
    (bench.cluster.srv / "job_submit.lua").write_text(
        "function slurm_job_submit(job, partitions, uid)\n"
        '  job.name = "site-" .. uid\n  job.comment = ""\n  return slurm.SUCCESS\nend\n'
        "function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end\n"
    )
    configured(bench, "JobSubmitPlugins=lua")
    bench.slow("T4")
    bench.dispatch()
    bench.scene.until(bench.task(0, "T4"))
    bench.dispatch()


def clocks_differ(bench: Bench) -> None:
    """Nodes are an hour ahead of the dispatcher."""
    if not Path("/usr/lib/x86_64-linux-gnu/faketime").is_dir():
        pytest.skip("Debian's libfaketime is not installed")
    # under libfaketime clock_nanosleep() to a moment, which is time.sleep(), ends with EINVAL at times
    sleeping = bench.scene.folder / "clock" / "sitecustomize.py"
    sleeping.parent.mkdir()
    sleeping.write_text(
        "import select, time\ntime.sleep = lambda seconds: select.select([], [], [], seconds)\n"
    )
    ahead = "FAKETIME=+3600s FAKETIME_DONT_FAKE_MONOTONIC=1 LD_PRELOAD=libfaketimeMT.so.1"
    path = "LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/faketime"
    for script in (bench.scene.node, bench.scene.folder / "bin" / "docker"):
        text = script.read_text().replace("PYTHONPATH=", f"PYTHONPATH={sleeping.parent}:")
        script.write_text(text.replace("env HOME", f"env {path} {ahead} HOME"))
    bench.slow("T4")
    bench.dispatch()
    bench.scene.until(bench.task(0, "T4"))
    bench.dispatch()


def outsiders_reports(bench: Bench) -> None:
    """Somebody puts what is no report beside each image, and a report on an image that is not there."""
    bench.slow("T4", "A100", "L4", "H100")
    bench.dispatch()
    bench.scene.until(bench.task(0, "T4"))
    for image in bench.scene.images():
        for content in (b"{", b'{"verdict": "works"}', b"\0" * 9000):
            artifact = Artifact(artifact_type=REPORT_TYPE, content=content)
            attach(
                bench.scene.registry, parse_reference(image.reference), image.manifest.descriptor, artifact
            )


def node_reinstalled(bench: Bench) -> None:
    """Its disk is new after it kept reports: they are made again, which is no fault of anybody's."""
    kept = bench.scene.folder / "kept"
    node = bench.scene.node.read_text()
    bench.scene.node.write_text(node.replace("env HOME", f"env RTBUILD_CACHE={kept} HOME"))
    bench.slow("T4")
    bench.visited = {bench.task(number, name) for number in range(CELLS) for name in CLASSES}
    bench.dispatch()
    bench.scene.until(bench.task(0, "T4"))
    with bench.is_away():
        bench.server.fault = lambda request: 403 if request.method != "GET" else None
        end = time.monotonic() + 300
        while not list(kept.glob("reports-to-hand-in/*.json")):
            assert time.monotonic() < end
            time.sleep(0.2)
        time.sleep(35)  # so that a node gives up, and a job is to hand it in
        shutil.rmtree(kept)
        bench.server.fault = None


def registry_swapped(bench: Bench) -> None:
    """Its mirror has the images and no reports; the tasks for the first are under way."""
    bench.slow("T4")
    bench.dispatch()
    bench.scene.until(bench.task(0, "T4"))
    held = ExitStack()
    mirror = held.enter_context(serve(RegistryDouble()))
    bench.visited = {bench.task(number, name) for number in range(CELLS) for name in CLASSES}
    for name in ("blobs", "manifests", "tags"):
        getattr(mirror, name).update(getattr(bench.server, name))
    images = {digest for tag, digest in mirror.tags.items() if tag.startswith("staged-")}
    for digest, (_, content) in list(mirror.manifests.items()):
        if json.loads(content).get("subject"):
            del mirror.manifests[digest]
    bench.dispatch("--from", f"{mirror.host}/staging")

    def reported_there() -> None:
        with held:
            counts = {digest: len(mirror.refers_to(digest)) for digest in images}
            assert set(counts.values()) == {len(CLASSES)}, counts

    bench.after.append(reported_there)


def queue_cleared(bench: Bench) -> None:
    """Somebody cancels whatever waits: a decision, as for what runs."""
    bench.slow("T4", "A100", "L4", "H100")
    bench.dispatch()
    for name in ("A100", "L4", "H100"):
        bench.scene.until(bench.task(0, name))
    rows = bench.cluster.call("squeue", "--noheader", "--array", "--states=PENDING", "--format=%i|%j|%K")
    waiting = [row.split("|") for row in rows.splitlines()]
    bench.hopeless = {bench.task(int(index), name.split("-")[1].upper()) for _, name, index in waiting}
    bench.cluster.call("scancel", "--state=PENDING", *(job for job, _, _ in waiting))


def _pending(bench: Bench) -> list[str]:
    return bench.cluster.call("squeue", "--noheader", "--array", "--states=PENDING", "--format=%i").split()


def held(bench: Bench) -> None:
    bench.slow("A100")
    bench.dispatch()
    bench.scene.until(bench.task(0, "A100"))
    waiting = _pending(bench)
    for job in waiting:
        with suppress(subprocess.CalledProcessError):  # it has begun
            bench.cluster.call("scontrol", "hold", job)
    if _pending(bench):
        bench.until_said("JobHeld")
    time.sleep(20)
    for job in waiting:
        with suppress(subprocess.CalledProcessError):
            bench.cluster.call("scontrol", "release", job)


def cold_start(bench: Bench) -> None:
    """The controller's state is gone, and its ids begin again: what ran is killed by its nodes."""
    bench.slow("T4", "A100", "L4", "H100")
    bench.dispatch()
    for name in CLASSES:
        bench.scene.until(bench.task(0, name))
    with bench.is_away():
        bench.cluster.kill("ctld")
        shutil.rmtree(bench.cluster.srv / "state")
        (bench.cluster.srv / "state").mkdir()
    bench.cluster.start("ctld")


def partition_down(bench: Bench) -> None:
    bench.slow("A100")
    bench.dispatch()
    bench.scene.until(bench.task(0, "A100"))
    with bench.is_away():
        _partition(bench, "State=DOWN")
        time.sleep(40)
        _partition(bench, "State=UP")


def suspended(bench: Bench) -> None:
    bench.slow("H100")
    bench.dispatch()
    bench.scene.until(bench.task(0, "H100"))
    assert _jobs(bench, "suspend", "h100")
    time.sleep(30)
    stopped = ["--noheader", "--array", "--states=SUSPENDED", "--format=%i"]
    bench.cluster.call("scontrol", "resume", ",".join(bench.cluster.call("squeue", *stopped).split()))


def two_without_a_shared_folder(bench: Bench) -> None:
    """Two machines of one user: neither sees the other's lock, and both have looked before either submits."""
    folder, real = bench.scene.folder / "meet", bench.cluster.bin / "sbatch"
    folder.mkdir()
    (folder / "sbatch").write_text(
        f"#!/bin/bash\ntouch {folder}/$PPID.here\nfor i in $(seq 600); do\n"
        f"  [ $(ls {folder}/*.here | wc -l) -ge 2 ] && break\n  sleep 0.1\ndone\n"
        f'exec {real} "$@"\n'
    )
    (folder / "sbatch").chmod(0o755)
    bench.scene.first = f"{folder}:"
    # beside the slow one a card is free for a second job of it
    bench.scene.ask({bench.task(0, "T4"): ["slow", "slow"]})
    bench.told = "withdrawn"
    environment = bench.scene.env()
    for name in ("one", "two"):
        place = {"RTBUILD_CACHE": str(bench.scene.folder / name)}
        bench.scene.env = lambda place=place: environment | place  # type: ignore[method-assign,misc]
        bench.dispatch()


def two_users(bench: Bench) -> None:
    """Neither may read the other's batch scripts; both have looked before either submits."""
    folder, cluster = bench.scene.folder, bench.cluster
    folder.chmod(0o777)
    meet = folder / "meet"
    meet.mkdir()
    meet.chmod(0o777)
    bench.scene.write_node(f"{folder}/bin:$PATH", by=_setuid_nsenter(folder))
    bench.scene.ask({bench.task(0, "T4"): ["slow", "slow"]})
    bench.told = "another user|withdrawn"
    environment = bench.scene.env()
    for name, user in (("one", "root"), ("two", "nobody")):
        place = folder / f"of-{user}"
        place.mkdir()
        for command in ("sbatch", "squeue", "scontrol", "sinfo", "scancel"):
            wait = (
                f'case "$*" in *--test-only*) ;; *) touch {meet}/{name}; for i in $(seq 600); do'
                f" [ $(ls {meet} | wc -l) -ge 2 ] && break; sleep 0.1; done ;; esac\n"
            )
            as_user = " ".join(cluster.inside("setpriv", f"--reuid={user}", "--clear-groups", command))
            text = f'#!/bin/bash\n{wait if command == "sbatch" else ""}exec {as_user} "$@"\n'
            (place / command).write_text(text)
            (place / command).chmod(0o755)
        own = {"RTBUILD_CACHE": str(folder / name), "PATH": f"{place}:{environment['PATH']}"}
        bench.scene.env = lambda own=own: environment | own  # type: ignore[method-assign,misc]
        bench.dispatch()


def _setuid_nsenter(folder: Path) -> str:
    """By which the job of a user who is nobody comes out of Slurm's root, where it finds rtbuild."""
    path = folder / "nsenter"
    shutil.copy("/usr/bin/nsenter", path)
    path.chmod(0o4755)
    return f"{path} --setuid=0 --setgid=0"


def maintenance(bench: Bench) -> None:
    """All nodes are reserved for somebody else for a time."""
    reserved = ["reservation=maint", "starttime=now", "duration=60", "users=nobody", "nodes=ALL"]
    bench.cluster.call("scontrol", "create", *reserved, "flags=maint,ignore_jobs")
    bench.dispatch()
    try:
        bench.until_said("[Rr]eserv|ReqNodeNotAvail")
        time.sleep(15)
    finally:
        bench.cluster.call("scontrol", "delete", "reservation=maint")


OUTSIDE: dict[str, Callable[[Bench], None]] = {
    "time limit": out_of_time,
    "partition with less time": partition_with_less_time,
    "disk full on a node": disk_full,
    "MaxArraySize=1": small_arrays,
    "ended jobs forgotten after 2 s": forgotten_at_once,
    "a site's plug-in renames jobs": renamed_by_the_site,
    "clocks of nodes an hour ahead": clocks_differ,
    "an outsider's reports": outsiders_reports,
    "node reinstalled, with reports kept": node_reinstalled,
    "registry swapped for a mirror": registry_swapped,
    "scancel of what waits": queue_cleared,
    "what waits is held, and released": held,
    "slurmctld without its state": cold_start,
    "partition down for 40 s": partition_down,
    "suspended for 30 s": suspended,
    "two dispatchers without a shared folder": two_without_a_shared_folder,
    "two users": two_users,
    "reservation over all nodes": maintenance,
}
"""Written from what users are told, before the dispatcher was read."""
SCENARIOS: dict[str, Callable[[Bench], None]] = {
    "clean": clean,
    "slurmctld killed for 15 s": controller_away,
    "slurmctld killed right after submission": controller_killed_after_submission,
    "dispatcher killed in submission": dispatcher_killed_in_submission,
    "Ctrl-C early": lambda bench: interrupted(bench, late=False),
    "Ctrl-C late": lambda bench: interrupted(bench, late=True),
    "two dispatchers": two_dispatchers,
    "two slurmd killed for 25 s": two_nodes_killed,
    "node down": node_down,
    "node drained in mid-job": node_drained,
    "requeue": requeued,
    "preemption": preempted,
    "scancel of running tasks": cancelled,
    "five jobs at most (stand-in of sbatch)": limited,
    "registry: 429 for 45 s": lambda bench: registry_says(bench, 429, 45),
    "registry: 500 at 20 % for a minute": lambda bench: registry_says(bench, 500, 60, every=5),
    "registry: 403 for 20 s": lambda bench: registry_says(bench, 403, 20),
    "registry accepts and hangs for 70 s": registry_hangs,
    "wrong partition": lambda bench: wrong(bench, "partition: none"),
    "wrong gres": lambda bench: wrong(bench, "gres: 'gpu:h200:1'"),
    "a node with another card": lambda bench: wrong(bench, "gres: 'gpu:l4:1'"),
    "four nodes attach to one image at once": four_nodes_attach_at_once,
    **OUTSIDE,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(Cluster) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    found: list[str] = []
    yield found
    head = (
        f"{'scenario':<42} {'tasks':>5} {'lost wrongly':>12} {'vanished':>8} {'run twice':>9} {'silent':>7}"
    )
    text = "\n".join(["", head, *found]) + "\n"
    sys.stderr.write(text)
    if place := os.environ.get("RTBUILD_TABLE"):
        Path(place).write_text(text)


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_said_at_the_end_is_true(name: str, cluster: Cluster, table: list[str]) -> None:
    with serve() as server, made(cluster, server, CELLS) as scene:
        bench = Bench(scene, cluster, server)
        try:
            SCENARIOS[name](bench)
            bench.end()
        finally:
            server.fault = None
            for mended in bench.after:
                mended()
        tasks = {bench.task(number, card) for number in range(CELLS) for card in CLASSES}
        last = {f"{row['cell']} on {row['class']}": row for row in bench.dispatchers[-1].rows()}
        ends = {
            path.name: [one.read_text() for one in path.iterdir()]
            for path in (scene.folder / "runs").iterdir()
        }
        kept = _reported(scene)
        lost = {task for task in tasks - bench.hopeless if last[task]["verdict"] is None}
        vanished = {task for task in tasks - bench.hopeless if "0" in ends.get(task, ()) and task not in kept}
        twice = sum(max(0, codes.count("0") - 1) for task, codes in ends.items() if task not in bench.visited)
        silent = max((one.silence(*span) for one in bench.dispatchers for span in bench.away), default=0.0)
        row = f"{len(tasks):>5} {len(lost):>12} {len(vanished):>8} {twice:>9} {silent:>6.0f}s"
        table.append(f"{name:<42} {row}")
        sys.stderr.write(table[-1] + "\n")
        said = [line for one in bench.dispatchers for _, line in one.lines]
        rows = [row for one in bench.dispatchers for row in one.rows()]
        words = "\n".join([*said, *(str(row["scheduler"]) for row in rows)])
        assert re.search(bench.told, words), words
        assert not lost, "\n".join([*(f"{task}: {last[task]['scheduler']}" for task in lost), *said])
        assert not vanished
        assert not twice
        assert silent < LONGEST
        for task in bench.hopeless:
            assert last[task]["verdict"] is None
            assert last[task]["state"] == "lost"
            assert last[task]["scheduler"], "it says why"


def _reported(scene: Scene) -> set[str]:
    """The tasks whose reports lie in the registry."""
    cards = {
        "Tesla T4": "T4",
        "NVIDIA A100-SXM4-40GB": "A100",
        "NVIDIA L4": "L4",
        "NVIDIA H100 80GB HBM3": "H100",
    }
    return {
        f"{image.label(CELL_LABEL)} on {cards[name]}"
        for image in scene.images()
        for report in reports_beside(scene.registry, image, None)
        for name, _ in report.key.gpus
    }
