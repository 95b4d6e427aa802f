"""What dispatching costs by the task, and what 10,000 cells on 8 classes then cost: docs/scale.md.

    python -m benchmarks.dispatch            measure (a minute), and write benchmarks/dispatch.json and the page
    python -m benchmarks.dispatch --page     the page again, from what was measured

Registry and schedulers are doubles on loopback, so what is measured is the dispatcher and the node's program, and
how often and how much they ask; nothing here says how fast a registry answers.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from benchmarks.rig import PROGRAM

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ROOT / "benchmarks" / "dispatch.json"
PAGE = ROOT / "docs" / "scale.md"
CLASSES = ("A100", "H100", "L4", "T4", "A10G", "L40S", "V100", "P100")
CELLS, EACH = 10_000, len(CLASSES)
LOOKS = 10

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> int:
    """Measure, and write both files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--page", action="store_true", help="do not measure")
    parser.add_argument("--follow", type=int, metavar="TASKS", help="only follow so many, and print figures")
    asked = parser.parse_args()
    if asked.follow:
        print(json.dumps(_followed(asked.follow)))
        return 0
    if not asked.page:
        MEASURED.write_text(json.dumps(measured(), indent=1, sort_keys=True) + "\n")
    PAGE.write_text(page(json.loads(MEASURED.read_text())))
    return 0


def measured() -> dict[str, Any]:
    """Seconds, bytes and requests, by what they are of."""
    sys.path[:0] = [str(ROOT / "tests")]
    with tempfile.TemporaryDirectory(prefix="rtbuild-bench-") as folder:
        followed = {str(count): _alone("--follow", str(count)) for count in (CELLS, CELLS * EACH)}
        return {"command": _command(Path(folder)), "pure": _pure(), "followed": followed}


def _alone(*words: str) -> dict[str, Any]:
    """What a process of its own prints, whose memory nobody else used before."""
    command = [sys.executable, "-m", "benchmarks.dispatch", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _followed(count: int) -> dict[str, Any]:
    """Submit tasks and follow them by :data:`LOOKS` looks, a tenth of them ending between two."""
    from builder.release.dispatch import slurm
    from builder.release.dispatch.fleet import Fleet
    from builder.release.dispatch.run import OnSlurm
    from builder.release.dispatch.tasks import Follower, Task, TaskVerdict
    from builder.sources.oci.registry import Registry

    sys.path[:0] = [str(ROOT / "tests")]
    from doubles.registry import serve

    with tempfile.TemporaryDirectory(prefix="rtbuild-bench-") as name, serve() as server:
        folder = Path(name)
        _programs(folder / "bin", folder / "jobs")
        (folder / "bin/squeue").write_text(f"#!/bin/bash\ncat {folder}/queue\n")
        (folder / "queue").write_text("")
        os.environ["PATH"] = f"{folder}/bin:{os.environ['PATH']}"
        tasks = sorted(
            Task(
                column=name,
                cell=f"c{number}",
                matrix="m",
                repository=f"{server.host}/staging",
                digest=f"sha256:{number:064x}",
                inputs="i",
            )
            for number in range(count // EACH)
            for name in CLASSES
        )
        fleet = Fleet.model_validate(
            {"version": "1", "scheduler": "slurm", "classes": {name: {} for name in CLASSES}}
        )
        done: set[str] = set()
        works = TaskVerdict(verdict="works", gpu="Tesla T4", driver="535")
        work = OnSlurm(
            registry=Registry(login=lambda _host: None),
            fleet=fleet,
            tasks=tasks,
            reported=lambda asked: {task.key: works for task in asked if task.key in done},
            say=lambda _text: None,
            warn=lambda _text: None,
            script=lambda part: slurm.verification(part, fleet),
        )
        follower = Follower(work=work)
        began = time.process_time()
        follower.submit(tasks)
        submitted = time.process_time() - began
        rows = [
            (f"{job.name}|{index}|rtbuild-x|", key)
            for job in sorted((folder / "jobs").iterdir(), key=lambda path: int(path.name))
            for index, key in enumerate(slurm.keys_in(job.read_text()))
        ]
        looked, states = 0.0, set[str]()
        for look in range(1, LOOKS + 1):
            ended = len(rows) * look // LOOKS
            done |= {key for _, key in rows[:ended]}
            (folder / "queue").write_text(
                "".join(
                    f"{head}{'COMPLETED|None' if number < ended else 'PENDING|Resources'}|2026-01-01T00:00:00|\n"
                    for number, (head, _) in enumerate(rows)
                )
            )
            began = time.process_time()
            states = {row.state for row in follower.look()}
            looked += time.process_time() - began
        assert states == {"verdict"}
    return {
        "submit_s": round(submitted, 2),
        "looks_s": round(looked, 2),
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    started = time.process_time()
    found = call()
    return round(time.process_time() - started, 3), found


def _pure() -> dict[str, Any]:
    """The plan and the texts of 80,000 tasks, in processor seconds and bytes."""
    from builder.release.dispatch import kubernetes, slurm
    from builder.release.dispatch.fleet import Fleet
    from builder.release.dispatch.tasks import Task, missing

    def planned() -> list[Task]:
        return sorted(
            Task(
                column=name,
                cell=f"torch2.{number}.0-py3.11-bookworm-cudawheels",
                matrix="torch",
                repository="registry.example/staging",
                digest=f"sha256:{number:064x}",
                probe="b" * 64,
                inputs=f"sha256:{number:064x}",
            )
            for number in range(CELLS)
            for name in CLASSES
        )

    lanes: dict[str, Any] = {name: {} for name in CLASSES}
    fleet = Fleet.model_validate({"version": "1", "scheduler": "slurm", "classes": lanes})
    plan_s, tasks = _timed(planned)
    missing_s, left = _timed(lambda: missing(tasks, [task.key for task in tasks[::2]]))
    slurm_s, scripts = _timed(lambda: [slurm.verification(p, fleet) for p in slurm.arrays(tasks).values()])
    some = tasks[:1000]
    kubernetes_s, manifests = _timed(lambda: kubernetes.render(some, fleet))
    documents = [document for text in manifests.values() for document in yaml.safe_load_all(text)]
    return {
        "tasks": len(tasks),
        "left": len(left),
        "plan_s": plan_s,
        "missing_s": missing_s,
        "slurm_s": slurm_s,
        "slurm_scripts": len(scripts),
        "slurm_bytes": sum(map(len, scripts)),
        "kubernetes_s_of_1000": kubernetes_s,
        "kubernetes_bytes_of_1000": len(json.dumps(documents)),
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }


def _command(folder: Path) -> dict[str, Any]:
    """The commands as people and nodes call them, on 200 tasks."""
    from doubles.project import MATRIX, Project, report
    from doubles.registry import serve

    from builder.sources.net.http import Client
    from builder.sources.oci.registry import Registry

    cells = 50
    text = MATRIX.replace("[T4]", "[T4, A100, L4, H100]") + "include:\n"
    text += "".join(f"  - {{variant: v{number}}}\n" for number in range(cells))
    with serve() as server:
        project = Project(folder / "project", text=text)
        registry = Registry(client=Client(), login=lambda _host: None)
        staging = f"{server.host}/staging"
        images = [
            project.stage(registry, staging, cell, extra=b"%d" % number)
            for number, cell in enumerate(project.matrix.cells)
        ]
        _programs(folder / "bin", folder / "jobs")
        fleet = project.folder / "fleet.yaml"
        lanes = "{T4: {}, A100: {}, L4: {}, H100: {}}"
        fleet.write_text(f"version: 1\nscheduler: slurm\nstaging: {staging}\nclasses: {lanes}\n")
        dispatch = ["dispatch", str(project.path), "--fleet", str(fleet), "--json"]
        (folder / "document").write_text(json.dumps(report(images[0])))

        def asked(*words: str) -> dict[str, Any]:
            before = len(server.requests)
            done = _run(folder / "bin", *words)
            return done | {"requests": len(server.requests) - before}

        first, look = asked(*dispatch), asked(*dispatch)
        size = sum(len(content) for _, content in server.manifests.values())
        node = [
            asked("verify-digest", "--card", "T4", "--runtime", "docker", image.reference)
            for image in images[:1]
        ]
        after = sum(len(content) for _, content in server.manifests.values())
        for image in images[1:6]:
            (folder / "document").write_text(json.dumps(report(image)))
            node.append(asked("verify-digest", "--card", "T4", "--runtime", "docker", image.reference))
        blobs = [len(content) for content in server.blobs.values()]
    return {
        "tasks": 4 * cells,
        "submit": first,
        "look": look,
        "node_s": [one["seconds"] for one in node],
        "node_cpu_s": statistics.median(one["cpu"] for one in node),
        "node_requests": node[0]["requests"],
        "report_bytes": after - size + max(blobs),
        "load": round(os.getloadavg()[0], 1),
    }


def _run(path: Path, *words: str) -> dict[str, Any]:
    """Seconds of the clock and of the processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    command = [*PROGRAM, *words]
    env = os.environ | {"PATH": f"{path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(time.monotonic() - started, 2), "cpu": round(used, 2)}


def _programs(folder: Path, jobs: Path) -> None:
    """Doubles of Slurm's commands and of Docker that answer at once."""
    folder.mkdir()
    jobs.mkdir()
    rows = f"for job in {jobs}/*; do n=$(basename $job); awk -v n=$n "
    rows += '\'/job-name=/{split($0,a,"=")} /^  \\x27/{print n"|"i++"|"a[2]"|PENDING|Resources"}\' $job; done'
    scripts = {
        "sbatch": f"n=$(($(ls {jobs} | wc -l) + 1)); cat >{jobs}/$n; echo $n",
        "squeue": f'[ -z "$(ls {jobs})" ] && exit 0; {rows}',
        "scontrol": f'case "$1" in write) cat {jobs}/$3 ;; *) echo "MaxArraySize = 1001" ;; esac',
        "docker": f'[ "$1" = run ] || exit 0; cat {folder.parent}/document',
    }
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)


def page(found: dict[str, Any]) -> str:
    """The page, from what was measured and from the assumptions that it names."""
    pure, command = found["pure"], found["command"]
    followed = "\n".join(
        f"| {int(count):,} tasks | {one['submit_s']:.1f} | {one['looks_s']:.1f} | {one['memory_mib']} MiB |"
        for count, one in found["followed"].items()
    )
    tasks = CELLS * EACH
    images = CELLS
    cpu = command["submit"]["cpu"] / (command["tasks"] / 4)
    node = statistics.median(command["node_s"])
    kube = pure["kubernetes_bytes_of_1000"] / 1000
    rows = [
        (
            "the plan: every task with its key",
            f"{pure['plan_s'] + pure['missing_s']:.1f} s of processor time",
        ),
        ("batch scripts", f"{pure['slurm_scripts']} arrays, {pure['slurm_bytes'] / 1e6:.1f} MB"),
        (
            "reading locks, rendering and asking for each image",
            f"{cpu * images / 60:.0f} min of processor time",
        ),
        ("questions to the registry, planning", f"{_each(command['submit'], command) * images:,.0f}"),
        ("memory of the dispatcher", f"{pure['memory_mib']} MiB"),
        ("questions to the registry, by nodes", f"{command['node_requests'] * tasks:,}"),
        ("reports in the registry", f"{command['report_bytes'] * tasks / 1e9:.1f} GB in {tasks:,} artifacts"),
        ("Jobs in etcd, Kubernetes", f"{kube * tasks / 1e6:.0f} MB, and as much again for pods"),
    ]
    table = "\n".join(f"| {what} | {value} |" for what, value in rows)
    bill = "\n".join(_bill(seconds, tasks) for seconds in (20 + node, 20 + node + 57))
    return f"""# 10,000 cells on 8 classes of GPU

What 80,000 verifications ask of registry, scheduler and purse. Measured by `python -m benchmarks.dispatch`, which also
writes this page: the dispatcher on 80,000 tasks, the rest by the task and multiplied; no such run has been made. Registry
and scheduler are doubles on loopback: it says what they are asked, and not how fast yours answers.

## Measured

On {command["tasks"]} tasks, on a shared machine with two cores and a load of {command["load"]}:

| what | seconds | of processor | questions to the registry |
|---|---|---|---|
| `rtbuild dispatch`: planned and submitted | {command["submit"]["seconds"]} | {command["submit"]["cpu"]} | {command["submit"]["requests"]} |
| again, all of them in the queue | {command["look"]["seconds"]} | {command["look"]["cpu"]} | {command["look"]["requests"]} |
| `rtbuild verify-digest` beyond its container, image on the node | {node:.2f} (median of {len(command["node_s"])}) | {command["node_cpu_s"]} | {command["node_requests"]} |

A report takes {command["report_bytes"] / 1000:.1f} kB in the registry; that of a real probe is longer, up to 100 kB.

The dispatcher alone, in seconds of processor, from the plan to the last of {LOOKS} looks between which a tenth of the
tasks end; the registry's answers are not among it:

| | submitted | followed | memory |
|---|---|---|---|
{followed}

## Multiplied

| for 10,000 cells on 8 classes | |
|---|---|
{table}

- **Slurm** takes 1,000 tasks of a job by default (`MaxArraySize`), and 10,000 jobs in all (`MaxJobCount`), of which each
  task is one. For all at once set `MaxJobCount` above 80,000; else dispatch class by class or by `--select`. What was not
  taken is said, and the same command submits it later.
- **A look** asks `squeue` once, and the registry about images whose task runs or has ended. What is in the queue costs it
  nothing, so with 100 cards a look is 100 questions, whatever is still to come. `--every 60` is enough at this size.
- **Kubernetes** keeps each ended Job for a day. A list of 80,000 Jobs and as many pods is {2 * kube * tasks / 1e6:.0f} MB in pages of 500, at
  every look: dispatch in parts of 5,000 tasks.
- **The registry** keeps the reports of an image as its referrers: at most 8 here, read in one page.
- **Signed reports** start cosign once for each report on its node (0.7 s by the clock), and once for each that a dispatcher with
  `--reported-by` reads: 0.06 s, or ten minutes for 80,000 reports in eight threads.

## The bill

Card seconds are tasks times what one holds a card for. Assumed: a probe of 20 s on a card that nobody else uses; 57 s to
pull and unpack an image of 2.2 GB that the node lacks ([layers.md](layers.md)); $0.35 for an hour of a small card (T4, L4)
and $3.00 of a large one (A100, H100), half of the tasks each. Take your own.

| | hours of cards | with 100 cards | at these prices |
|---|---|---|---|
{bill}

The first row is for images that are on the nodes, the second for nodes that never have one: most of the bill is unpacking.
What helps is a registry mirror beside the nodes, and layers in common.
"""


def _each(one: dict[str, Any], command: dict[str, Any]) -> float:
    return float(one["requests"]) / (float(command["tasks"]) / 4)


def _bill(seconds: float, tasks: int) -> str:
    hours = seconds * tasks / 3600
    price = hours * (0.35 + 3.00) / 2
    return f"| {seconds:.0f} s a task | {hours:,.0f} | {hours / 100:.1f} hours | ${price:,.0f} |"


if __name__ == "__main__":
    sys.exit(main())
