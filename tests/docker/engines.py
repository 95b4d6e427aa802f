"""A second Docker Engine on this machine, as another machine would have it: own images, own network.

It has a network namespace of its own. That is not for show: a daemon without a bridge deletes ``docker0`` of
the namespace that it is in, which is the first engine's
(https://github.com/moby/moby/blob/v26.1.5/daemon/daemon_unix.go, ``removeDefaultBridgeInterface``). All that
it reaches outside are the ports of this machine's loopback that are named.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
import relay

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_START_LIMIT = 60.0
"""Seconds until it must answer."""
ALONE = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


@dataclass(frozen=True, kw_only=True)
class SecondEngine:
    folder: Path
    log: Path
    pid: int

    @property
    def socket(self) -> Path:
        return self.folder / "docker.sock"

    @property
    def host(self) -> str:
        return f"unix://{self.socket}"

    @property
    def env(self) -> dict[str, str]:
        """The environment of somebody whose engine this is."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith("DOCKER_")}
        return kept | {"DOCKER_HOST": self.host}

    @contextlib.contextmanager
    def reached_by_tcp(self, port: int) -> Iterator[int]:
        """A port of this machine's loopback that leads to ``port`` of the engine's own."""
        between = self.folder / f"door-{port}"
        with (
            _inside(self.pid, f"unix:{between}", f"tcp:127.0.0.1:{port}"),
            relay.running("tcp:127.0.0.1:0", f"unix:{between}") as door,
        ):
            yield door.getsockname()[1]

    def docker(self, *arguments: str) -> str:
        done = subprocess.run(
            ["docker", *arguments], env=self.env, capture_output=True, text=True, check=True, timeout=120
        )
        return done.stdout.strip()


@contextlib.contextmanager
def second_engine(
    *,
    store: Literal["containerd", "graphdriver"] = "containerd",
    ports: Sequence[int] = (),
    devices: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
) -> Iterator[SecondEngine]:
    """Run an engine until the block ends, and leave nothing of it; skips the test where that is not allowed.

    ``ports`` of this machine's loopback are its own loopback's too: a registry there has one name for both.
    ``devices`` is a CDI specification that it hands devices out by; ``options`` go to dockerd.
    """
    for program in ("dockerd", "unshare", "nsenter", "ip"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program} for a second engine")
    if os.geteuid() != 0:
        pytest.skip("a second engine needs root")
    # Short, because the path of a socket has no more than 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="rtbuild-engine-"))
    log = folder / "log.txt"
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(_unmount, folder)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*ALONE, *dockerd(folder, store, devices, options)],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
            )
        stack.callback(stop, process)
        engine = SecondEngine(folder=folder, log=log, pid=process.pid)
        wait(engine, process)
        for port in ports:
            # The way between the two networks is a socket in the file system, which both share.
            between = folder / f"port-{port}"
            stack.enter_context(relay.running(f"unix:{between}", f"tcp:127.0.0.1:{port}"))
            stack.enter_context(_inside(process.pid, f"tcp:127.0.0.1:{port}", f"unix:{between}"))
        yield engine


def dockerd(folder: Path, store: str, devices: Mapping[str, Any] | None, options: Sequence[str]) -> list[str]:
    settings: dict[str, Any] = {"features": {"containerd-snapshotter": store == "containerd"}}
    if store != "containerd":
        settings["storage-driver"] = "overlay2"
    if devices is not None:
        (folder / "cdi").mkdir()
        (folder / "cdi" / "devices.json").write_text(json.dumps(devices))
        settings["features"]["cdi"] = True
        settings["cdi-spec-dirs"] = [str(folder / "cdi")]
    (folder / "daemon.json").write_text(json.dumps(settings))
    return [
        "dockerd",
        f"--config-file={folder}/daemon.json",
        f"--data-root={folder}/data",
        f"--exec-root={folder}/exec",
        f"--pidfile={folder}/pid",
        f"--host=unix://{folder}/docker.sock",
        "--bridge=none",
        "--iptables=false",
        "--ip6tables=false",
        *options,
    ]


def wait(engine: SecondEngine, process: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + _START_LIMIT
    while time.monotonic() < limit and process.poll() is None:
        done = subprocess.run(
            ["docker", "version"], env=engine.env, capture_output=True, check=False, timeout=_START_LIMIT
        )
        if done.returncode == 0:
            return
        time.sleep(0.1)
    tail = "\n".join(engine.log.read_text().splitlines()[-20:])
    pytest.skip(f"a second engine does not start here:\n{tail}")


@contextlib.contextmanager
def _inside(pid: int, listen: str, target: str) -> Iterator[None]:
    """A relay in the network of a process, which listens when the block begins."""
    command = ["nsenter", f"--net=/proc/{pid}/ns/net", sys.executable, relay.__file__, listen, target]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), "the relay did not come up"
            yield
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _unmount(folder: Path) -> None:
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        if line.split()[1].startswith(f"{folder}/"):
            subprocess.run(["umount", "--lazy", line.split()[1]], check=False)
