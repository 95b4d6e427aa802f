"""Engines and a registry of the benchmark's own, in a network of their own with nothing outside it.

The benchmark starts itself again with ``unshare --net``: what it measures cannot reach a network, and a
second dockerd cannot touch the first one's bridge: with ``--bridge=none`` it deletes ``docker0`` of its
network namespace (moby, daemon/daemon_unix.go, ``removeDefaultBridgeInterface``).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Store = Literal["containerd", "overlay2"]
ALONE = "RTBUILD_BENCH_ALONE"
"""Set in the process that runs in the private network."""
PROGRAM = (sys.executable, "-c", "from builder.cli import main; main()")
"""rtbuild of the folder in ``PYTHONPATH``, or of this environment."""
_PORT = 5000
_PROBED = 256 << 20
"""Bytes by which the disk's speed is measured."""
_SECONDS_TO_START = 60.0


class BenchError(Exception):
    """The benchmark cannot go on; the message says why."""


def enter_private_network() -> None:
    """Run this program again as the only one of a new network namespace; returns in that one only."""
    if os.environ.get(ALONE):
        return
    if os.geteuid() != 0:
        raise BenchError("the benchmark starts engines of its own, which needs root: sudo make bench")
    script = 'ip link set lo up && exec "$@"'
    command = ["unshare", "--net", "sh", "-c", script, "sh", sys.executable, "-m", "benchmarks.builds"]
    os.execvpe(command[0], [*command, *sys.argv[1:]], {**os.environ, ALONE: "1"})


def run(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> tuple[float, str]:
    """Run it to its end; seconds and stdout. BenchError with its last lines where it fails."""
    start = time.perf_counter()
    done = subprocess.run(
        command, env=dict(env or os.environ), cwd=cwd, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        tail = "\n".join((done.stderr + done.stdout).splitlines()[-30:])
        raise BenchError(f"{' '.join(command)} ended with {done.returncode}:\n{tail}")
    return seconds, done.stdout


def installed_env(work: Path, env: Mapping[str, str] | None = None) -> dict[str, str]:
    """``env``, this program's without, for one whose bytecode is kept, as that of an installed one is."""
    kept = {name: text for name, text in (env or os.environ).items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(work / "bytecode")}


def totals(process: subprocess.Popen[bytes] | None) -> dict[str, float]:
    """What a process and those below it used until now: ``processor`` seconds, bytes ``written`` to files.

    One that has ended counts in its parent (man proc_pid_stat, proc_pid_io). BenchError without any.
    """
    if process is None:
        raise BenchError("it is not running")
    parents: dict[int, int] = {}
    used: dict[int, tuple[float, int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            rows = dict(line.split(": ") for line in (folder / "io").read_text().splitlines())
        except OSError:  # it has ended
            continue
        pid, ticks = int(folder.name), sum(map(int, stat[11:15]))
        parents[pid] = int(stat[1])
        used[pid] = ticks / os.sysconf("SC_CLK_TCK"), int(rows["write_bytes"])
    own = {process.pid}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    mine = [used[pid] for pid in own if pid in used]
    return {"processor": sum(one[0] for one in mine), "written": float(sum(one[1] for one in mine))}


def disk_speed(folder: Path) -> float:
    """Bytes a second that the disk takes now, written once and brought to it."""
    block = os.urandom(1 << 20)
    start = time.perf_counter()
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(_PROBED >> 20):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return _PROBED / (time.perf_counter() - start)


def bound(used: dict[str, float], disk: float) -> float:
    """Seconds below which this machine could not do what was done: disk or cores, whichever takes longer."""
    return max(used["written"] / disk, used["processor"] / len(os.sched_getaffinity(0)))


@dataclass
class Engine:
    """A private dockerd with everything it keeps below ``root``."""

    root: Path
    store: Store
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def socket(self) -> Path:
        return self.root / "docker.sock"

    @property
    def env(self) -> dict[str, str]:
        """The environment in which the docker client, buildx and rtbuild find this engine."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith("DOCKER_")}
        return kept | {"DOCKER_HOST": f"unix://{self.socket}", "DOCKER_CLI_HINTS": "false"}

    def start(self) -> Engine:
        self.destroy()  # what a killed run left: containerd numbers snapshots anew, and would meet them
        self.root.mkdir(parents=True, exist_ok=True)
        containerd = self.store == "containerd"
        settings: dict[str, Any] = {"features": {"containerd-snapshotter": containerd}}
        if not containerd:
            settings["storage-driver"] = "overlay2"
        (self.root / "daemon.json").write_text(json.dumps(settings))
        options = {
            "config-file": self.root / "daemon.json",
            "data-root": self.root / "data",
            "exec-root": self.root / "exec",
            "pidfile": self.root / "docker.pid",
            "host": f"unix://{self.socket}",
            "bridge": "none",
            "iptables": "false",
            "ip6tables": "false",
        }
        # A dockerd without --containerd starts one of its own, below its own folders.
        command = ["dockerd", *(f"--{name}={value}" for name, value in options.items())]
        with (self.root / "dockerd.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        limit = time.monotonic() + _SECONDS_TO_START
        while time.monotonic() < limit and self.process.poll() is None:
            done = subprocess.run(["docker", "version"], env=self.env, capture_output=True, check=False)
            if done.returncode == 0:
                return self
            time.sleep(0.2)
        tail = "\n".join((self.root / "dockerd.log").read_text().splitlines()[-20:])
        raise BenchError(f"dockerd does not answer:\n{tail}")

    def stop(self) -> None:
        """End it in order, so that it unmounts what it mounted."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def destroy(self) -> None:
        """End it and remove all that it kept."""
        self.stop()
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            place = line.split()[1]
            if place.startswith(f"{self.root}/"):
                subprocess.run(["umount", "--lazy", place], check=False)
        shutil.rmtree(self.root, ignore_errors=True)

    def totals(self) -> dict[str, float]:
        return totals(self.process)

    def docker(self, *arguments: str) -> tuple[float, str]:
        return run(["docker", *arguments], env=self.env)


@dataclass
class Registry:
    """Debian's ``docker-registry`` on this network's loopback; its blobs below ``root``."""

    root: Path
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    host = f"127.0.0.1:{_PORT}"

    def start(self) -> Registry:
        program = shutil.which("docker-registry")
        if program is None:
            raise BenchError("needs a registry: apt-get install docker-registry")
        self.destroy()
        self.root.mkdir(parents=True, exist_ok=True)
        config = self.root / "config.yml"
        config.write_text(
            f"version: 0.1\nlog: {{level: warn}}\nhttp: {{addr: '{self.host}'}}\n"
            f"storage: {{filesystem: {{rootdirectory: {self.root}/data}}, delete: {{enabled: true}}}}\n"
        )
        with (self.root / "log").open("wb") as log:
            self.process = subprocess.Popen([program, "serve", str(config)], stdout=log, stderr=log)
        time.sleep(1)
        if self.process.poll() is not None:
            raise BenchError(f"docker-registry ended:\n{(self.root / 'log').read_text()}")
        return self

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(20)
            self.process = None

    def totals(self) -> dict[str, float]:
        return totals(self.process)

    def blob_bytes(self) -> int:
        """What all repositories together keep: each blob once."""
        return sum(
            path.stat().st_size for path in self.root.glob("data/docker/registry/v2/blobs/sha256/*/*/data")
        )

    def manifest(self, repository: str, tag: str) -> dict[str, Any]:
        """The manifest behind a tag, out of the storage: no client has to agree."""
        base = self.root / "data/docker/registry/v2"
        link = base / f"repositories/{repository}/_manifests/tags/{tag}/current/link"
        return self.by_digest(link.read_text())

    def by_digest(self, digest: str) -> dict[str, Any]:
        """The manifest of this digest."""
        name = digest.removeprefix("sha256:")
        blob = self.root / f"data/docker/registry/v2/blobs/sha256/{name[:2]}/{name}/data"
        document: dict[str, Any] = json.loads(blob.read_bytes())
        return document

    def destroy(self) -> None:
        self.stop()
        shutil.rmtree(self.root, ignore_errors=True)
