"""A staged and verified image between two repositories, with a proxy in front that a test can make fail."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from doubles.project import CELL, Project

from builder.pipeline.events import Hooks
from builder.release.publish.gate import Publication, PublishOptions
from builder.release.publish.run import publish
from builder.sources.net.http import Client
from builder.sources.oci.registry import Registry
from builder.sources.oci.spec import MANIFEST
from builder.sources.oci.staging import staged_reference

if TYPE_CHECKING:
    from pathlib import Path

    from doubles.unreliable import Proxy

    from builder.sources.oci.staging import Staged

MEASURED = "tensorflow2.15.1-py3.11.2-cuda12.2-cudnn8.9.4-bookworm"
EVIDENCE = {"verification", "sbom", "provenance"}


def direct() -> Registry:
    """To prepare what is in a registry, and to look at it afterwards."""
    return Registry(client=Client(retries=0), login=lambda _host: None)


def impatient() -> Registry:
    """``Registry.to_write`` without the pauses between its tries."""
    client = Client(retries=4, connection_retries=3, backoff=0, read_timeout=20)
    return Registry(client=client, login=lambda _host: None)


class Scene:
    """``name``: two repositories that no other test uses; ``target``: another registry to publish to."""

    def __init__(self, folder: Path, proxy: Proxy, name: str, *, target: Proxy | None = None) -> None:
        self.project, self.proxy, self.registry = Project(folder), proxy, direct()
        self.target = target or proxy
        self.staging, self.public = (
            f"{proxy.upstream}/{name}/staging",
            f"{self.target.upstream}/{name}/public",
        )
        self.through = (f"{proxy.host}/{name}/staging", f"{self.target.host}/{name}/public")
        self.image: Staged = self.project.stage(self.registry, self.staging)

    def publish_to(self, name: str) -> None:
        """From here on into a public repository that nothing was published to."""
        self.public, through = f"{self.public.rpartition('/')[0]}/public-{name}", self.through[1]
        self.through = (self.through[0], f"{through.rpartition('/')[0]}/public-{name}")

    def publish(self, **order: Any) -> Publication:
        (row,) = self.publish_all(**order)
        return row

    def publish_twice_at_once(self) -> list[Publication]:
        with ThreadPoolExecutor(2) as pool:
            return [job.result() for job in [pool.submit(self.publish) for _ in range(2)]]

    def publish_all(self, **order: Any) -> list[Publication]:
        """In this process, through the proxy."""
        asked = {"source": self.through[0], "target": self.through[1], "results": self.project.results}
        return publish(
            [self.project.matrix],
            self.project.matrix.cells,
            PublishOptions(**asked | order),
            Hooks(emit=lambda _event: None, cancel=threading.Event()),
        )

    def tags(self) -> dict[str, str | None]:
        """What the public repository has, evidence's own tags left out."""
        if self.registry.request("GET", self.public, "tags/list", good=(200, 404)).status_code == 404:
            return {}
        names = [tag for tag in self.registry.tags(self.public) if not tag.startswith("sha256-")]
        return {tag: self.registry.digest_of(f"{self.public}:{tag}") for tag in sorted(names)}

    @property
    def unlisted(self) -> str:
        """The tag under which the staging repository has the cell's image."""
        return staged_reference(self.staging, self.project.recipes[self.project.cell.id].inputs)

    def move_staged(self, image: Staged) -> None:
        """What anybody who may push there can do."""
        self.registry.put_manifest(self.unlisted, image.manifest.content, image.manifest.media_type)

    def move_staged_to_anything(self) -> str:
        """The unlisted tag on an image that rtbuild never made; its digest."""
        config = json.dumps(
            {
                "os": "linux",
                "architecture": "amd64",
                "config": {},
                "rootfs": {"type": "layers", "diff_ids": []},
            }
        ).encode()
        file = self.project.folder / "config"
        file.write_bytes(config)
        digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
        self.registry.push_blob(self.staging, digest, file)
        kind = "application/vnd.oci.image.config.v1+json"
        entry = {"mediaType": kind, "digest": digest, "size": len(config)}
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": entry, "layers": []}
        return self.registry.put_manifest(self.unlisted, json.dumps(manifest).encode(), MANIFEST)

    def has_evidence(self) -> bool:
        """Whether all of it is found beside the public image, by the tag that lists it."""
        listed = self.registry.digest_of(f"{self.public}:sha256-{self.image.digest[7:]}")
        if listed is None:
            return False
        manifests = self.registry.manifest(f"{self.public}@{listed}").document["manifests"]
        return len(manifests) >= len(EVIDENCE)

    @property
    def wanted(self) -> dict[str, str]:
        """The tags of a publication that is complete."""
        immutable = f"{MEASURED}-{self.image.digest[7:19]}"
        return dict.fromkeys(sorted((CELL, "latest", MEASURED, immutable)), self.image.digest)

    def is_sound(self) -> bool:
        """No tag is on anything but the verified digest, and none is there before the evidence."""
        found = self.tags()
        return found.items() <= self.wanted.items() and (not found or self.has_evidence())


class Zygote:
    """Runs ``rtbuild`` in forks of a process that has imported it, so that one costs no second."""

    SCRIPT = """
import json, os, sys
from builder.cli import main
import builder.cli.commands.publish, builder.release.publish.run
probe = builder.release.publish.run.bundle()
builder.release.publish.run.bundle = lambda: probe  # once, as it costs a third of a second
for line in sys.stdin:
    folder, arguments = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.chdir(folder)
        sys.argv = ["rtbuild", *arguments]
        sys.stdin.close()
        os.dup2(2, 1)
        main()
        os._exit(99)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.pid = 0
        self._runs = threading.Event()
        self._output = log.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output,
            env={**os.environ, "TMPDIR": str(log.parent)},  # what a killed one leaves there
            text=True,
        )

    def run(self, folder: Path, *arguments: str) -> int:
        """Its exit status; negative for the signal that ended it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._runs.clear()
        self.process.stdin.write(json.dumps([str(folder), arguments]) + "\n")
        self.process.stdin.flush()
        self.pid = int(self.process.stdout.readline())
        self._runs.set()
        return int(self.process.stdout.readline())

    def kill(self) -> None:
        """``kill -9`` of what runs; it may be at work before :meth:`run` was told which process it is."""
        assert self._runs.wait(60)
        os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._output.close()
