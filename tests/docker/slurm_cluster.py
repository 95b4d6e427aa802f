"""A real Slurm of Debian 13 in a root of its own: one controller, five nodes on this host, typed cards.

The cards are character devices that every Linux has, since Slurm only counts them. Nothing here computes on a
GPU.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from builder.core import resources

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = "slurmctld,slurmd,slurm-client,procps,util-linux"
NODES = {
    "n0": ("t4", "/dev/null"),
    "n1": ("t4", "/dev/zero"),
    "n2": ("a100", "/dev/full"),
    "n3": ("l4", "/dev/random"),
    "n4": ("h100", "/dev/urandom"),
}
CONF = """\
ClusterName=test
SlurmctldHost=localhost
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmctldPort={port}
StateSaveLocation=/srv/state
SlurmdSpoolDir=/srv/spool.%n
SlurmctldPidFile=/srv/ctld.pid
SlurmdPidFile=/srv/slurmd.%n.pid
SlurmctldLogFile=/srv/ctld.log
SlurmdLogFile=/srv/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=10
JobRequeue=1
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,batch_sched_delay=0,requeue_delay=1
MaxArraySize=1001
{nodes}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=gpu Nodes=ALL Default=YES State=UP MaxTime=60 PriorityTier=1
PartitionName=urgent Nodes=ALL State=UP MaxTime=60 PriorityTier=10
"""


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody listens on."""
    for first in range(16800, 30000, count):
        try:
            for port in range(first, first + count):
                with socket.socket() as taken:
                    taken.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise AssertionError("no ports are free")


def debian_site() -> str:
    """The archive that this system's apt asks."""
    command = ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"]
    return min(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def root() -> Path:
    """Debian 13 with Slurm, put together once by mmdebstrap from the system's own archive."""
    folder = resources.cache() / "slurm" / "root"
    # Debian's alternatives make it an absolute link, which dangles out here.
    if not (folder / "usr/sbin/slurmctld").is_symlink():
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.parent.mkdir(parents=True)
        beside = folder.with_name("part")
        subprocess.run(
            [
                "mmdebstrap",
                "--quiet",
                "--mode=root",
                "--variant=minbase",
                f"--include={PACKAGES}",
                "trixie",
                str(beside),
                debian_site(),
            ],
            check=True,
            timeout=900,
        )
        beside.rename(folder)
    return folder


@dataclass
class Cluster:
    """Runs until it is stopped. Commands of Slurm lie in ``bin``, for the PATH."""

    folder: Path
    port: int = field(default_factory=lambda: free_ports(20))
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.srv = self.folder / "srv"
        self.bin = self.folder / "bin"
        for name in ("srv/state", "bin", *(f"srv/spool.{node}" for node in NODES)):
            (self.folder / name).mkdir(parents=True)
        nodes = "\n".join(
            f"NodeName={name} NodeAddr=127.0.0.1 NodeHostname=localhost Port={self.port + 10 + number} CPUs=2"
            f" RealMemory=500 Gres=gpu:{kind}:1 State=UNKNOWN"
            for number, (name, (kind, _)) in enumerate(NODES.items())
        )
        (self.srv / "slurm.conf").write_text(CONF.format(port=self.port, nodes=nodes))
        (root() / "etc/hosts").write_text("127.0.0.1 localhost\n")
        (self.srv / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        (self.srv / "gres.conf").write_text(
            "".join(
                f"NodeName={name} Name=gpu Type={kind} File={device}\n"
                for name, (kind, device) in NODES.items()
            )
        )
        for command in ("sbatch", "squeue", "scontrol", "sinfo", "scancel"):
            path = self.bin / command
            path.write_text(f'#!/bin/bash\nexec {" ".join(self.inside(command))} "$@"\n')
            path.chmod(0o755)

    def inside(self, *command: str) -> list[str]:
        """A command in the root, which sees this cluster's folder as /srv and the machine's /tmp."""
        script = (
            f"mount --bind {self.srv} {root()}/srv && mount --rbind /dev {root()}/dev &&"
            f" mount --bind /tmp {root()}/tmp && mount -t proc proc {root()}/proc &&"
            f' exec chroot {root()} env PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"'
        )
        return [
            "env",
            "SLURM_CONF=/srv/slurm.conf",
            "unshare",
            "--mount",
            "sh",
            "-c",
            f"'{script}'",
            "sh",
            *command,
        ]

    def start(self, name: str) -> None:
        """``ctld``, or a node by its name."""
        command = ["slurmctld", "-D", "-i"] if name == "ctld" else ["slurmd", "-D", "-N", name]
        script = " ".join(self.inside(*command))
        self.processes[name] = subprocess.Popen(
            # with this process it ends, too, however that one ends
            ["setpriv", "--pdeathsig", "KILL", "bash", "-c", f"exec {script}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"LC_ALL": "C"},
            start_new_session=True,
        )

    def call(self, *command: str) -> str:
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]], capture_output=True, text=True, check=True, timeout=60
        ).stdout

    def clear(self) -> None:
        """Cancel every job, also one that Slurm has queued again for later, and wait until none is left."""
        until = time.monotonic() + 180
        while ids := self.call("squeue", "--noheader", "--array", "--format=%i").split():
            assert time.monotonic() < until, self.logs()
            with contextlib.suppress(subprocess.CalledProcessError):  # it ended meanwhile
                self.call("scancel", *ids)
            time.sleep(0.5)

    def resume(self) -> None:
        """Do an administrator's part: give back the nodes that Slurm drained, and the jobs that it holds.

        A controller that lost its last seconds starts a job again; if that runs still, Slurm drains its node
        ("Duplicate jobid") and holds the job ("launch failed requeued held").
        """
        drained = self.call("sinfo", "--noheader", "--partition=gpu", "--states=drain", "--format=%N").strip()
        if drained:
            self.call("scontrol", "update", f"NodeName={drained}", "State=RESUME")
        rows = self.call("squeue", "--noheader", "--array", "--states=PENDING", "--format=%i|%r").splitlines()
        if held := [row.partition("|")[0] for row in rows if row.endswith("requeued held")]:
            self.call("scontrol", "release", *held)

    def up(self) -> None:
        self.start("ctld")
        for name in NODES:
            self.start(name)
        until = time.monotonic() + 180
        while time.monotonic() < until:
            try:
                states = self.call("sinfo", "--noheader", "--Node", "--format", "%N %T").splitlines()
            except subprocess.SubprocessError:
                states = []
            if set(states) == {f"{name} idle" for name in NODES}:  # a node stands in two partitions
                return
            time.sleep(0.5)
        raise AssertionError(f"not up: {states}\n" + self.logs())

    def kill(self, name: str) -> None:
        """kill -9 of a daemon and of all that it started."""
        process = self.processes.pop(name)
        os.killpg(process.pid, 9)
        process.wait()

    def logs(self) -> str:
        return "\n".join(
            f"== {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-15:])
            for path in sorted(self.srv.glob("*.log"))
        )

    def down(self) -> None:
        for name in list(self.processes):
            try:
                self.kill(name)
            except ProcessLookupError:
                continue
