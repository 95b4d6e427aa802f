#!/usr/bin/env python3
"""kill -9 at random moments: after each the next run succeeds, gives the same digest and leaves nothing.

    python tests/kills.py FOLDER --rounds 50 --seed 7

Builds and publishes one small cell without an engine, against Debian's docker-registry on loopback. Between
rounds parts of the cache are taken away, so that a kill may come while a layer, a step or a download is made.
One line of JSON for each round; exit 1 if one of them was not as it should be. FOLDER keeps its cache for the
next call.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE), str(HERE / "docker")]

from doubles.project import Project  # noqa: E402
from publish_scene import Zygote, direct  # noqa: E402

MATRIX = """\
version: 1
name: kills
defaults: {python: "3.11", base: "rootfs:debian/bookworm", cuda: none}
axes:
  framework: [six==1.17.0]
"""
PR_SET_CHILD_SUBREAPER = 36
SHARED = Path("/dev/shm")
STATES = ("as it is", "steps", "half", "no memory", "downloads")


@dataclass
class Scene:
    folder: Path
    registry: str
    zygote: Zygote
    chance: random.Random
    mine: set[int]
    """Processes that are not a run's."""
    published: Project = field(init=False)
    digests: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    def arguments(self, kind: str, number: int) -> list[str]:
        """A command, each time into another place."""
        quiet = ["--progress", "none", "--results", str(self.folder / "results")]
        match kind:
            case "push":
                where = ["--push", f"{self.registry}/kills{number}"]
            case "output":
                where = ["--output", str(self.folder / "layout")]
            case "render":
                return ["render", "kills.yaml", "-o", str(self.folder / "recipes"), "--progress", "none"]
            case _:
                places = ["--from", f"{self.registry}/staging", "--to", f"{self.registry}/public{number}"]
                results = ["--results", str(self.published.results)]
                return ["publish", str(self.published.path), *places, *results, "--progress", "none"]
        return ["build", "kills.yaml", "--engine", "none", *where, *quiet]

    def result(self, kind: str, number: int) -> str:
        """What a command has made, as one text."""
        match kind:
            case "push":
                tags = direct().tags(f"{self.registry}/kills{number}")
                (tag,) = [tag for tag in tags if tag.startswith("staged-")]
                return str(direct().digest_of(f"{self.registry}/kills{number}:{tag}"))
            case "output":
                index = json.loads((self.folder / "layout" / "index.json").read_bytes())
                return str(index["manifests"][0]["digest"])
            case "render":
                return self.listing(self.folder / "recipes")
            case _:
                repository = f"{self.registry}/public{number}"
                tags = [tag for tag in direct().tags(repository) if not tag.startswith("sha256-")]
                return json.dumps({tag: direct().digest_of(f"{repository}:{tag}") for tag in sorted(tags)})

    def listing(self, folder: Path) -> str:
        names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
        return json.dumps(names)

    def take_away(self, state: str) -> None:
        """Make the next run begin somewhere."""
        layers = self.cache / "layers"
        match state:
            case "steps":
                shutil.rmtree(layers / "index", ignore_errors=True)
            case "half":
                for path in list((layers / "blobs" / "sha256").iterdir()):
                    if self.chance.random() < 0.5:
                        path.unlink()
            case "no memory":
                for name in ("made", "configs", "probe"):
                    shutil.rmtree(self.cache / name, ignore_errors=True)
            case "downloads":
                shutil.rmtree(layers / "index", ignore_errors=True)
                shutil.rmtree(self.cache / "wheels", ignore_errors=True)

    def left(self) -> list[str]:
        """What no run should leave: unfinished files and folders, locks of dead leases, processes."""
        found = [str(path) for path in self.temporary.iterdir() if path.name != "runs"]
        for name in ("layers/tmp", "layers/leases"):
            folder = self.cache / name
            found += [str(path) for path in folder.iterdir()] if folder.is_dir() else []
        odd = re.compile(r".*\.(part|new)|\..*\.rtbuild-.*|again-.*|\.[0-9a-f]{12}\..*")
        for place in (self.cache, self.folder / "results", self.folder / "recipes", self.folder / "layout"):
            found += [str(path) for path in place.rglob("*") if odd.fullmatch(path.name)]
        found += [str(path) for path in self.published.folder.rglob(".*.new")]
        found += [str(path) for path in SHARED.glob(f"rtbuild-{os.geteuid()}-*") if free(path)]
        return found + orphans(self.mine)


def free(folder: Path) -> bool:
    """Whether no process has it locked."""
    try:
        file = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return folder.exists()
    finally:
        os.close(file)


def orphans(mine: set[int]) -> list[str]:
    """Our children but ``mine``: what loses its parent below us becomes our child."""
    for _ in range(20):
        found = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                text = status.read_text()
                command = (status.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:80]
            except OSError:
                continue
            state, parent = text.rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state == "Z":
                os.waitpid(int(status.parent.name), os.WNOHANG)
            elif int(parent) == os.getpid() and int(status.parent.name) not in mine:
                found.append(f"process {status.parent.name}: {command or text[:40]}")
        if not found:
            return []
        time.sleep(0.1)
    return found


def one(scene: Scene, number: int) -> dict[str, Any]:
    """Begin, kill, run again, look."""
    kind = scene.chance.choices(("push", "output", "render", "publish"), (4, 3, 1, 3))[0]
    state = scene.chance.choice(STATES) if kind in ("push", "output") else "as it is"
    scene.take_away(state)
    arguments = scene.arguments(kind, number)
    after = scene.chance.uniform(0.01, scene.seconds.get(f"{kind} {state}", 1.0))
    timer = threading.Timer(after, scene.zygote.kill)
    timer.start()
    killed = scene.zygote.run(scene.folder, *arguments)
    timer.cancel()
    timer.join()
    began = time.monotonic()
    again = scene.zygote.run(scene.folder, *arguments)
    seconds = time.monotonic() - began
    scene.seconds[f"{kind} {state}"] = max(0.3, min(8.0, 0.95 * seconds))
    found = scene.result(kind, number) if again == 0 else ""
    expected = scene.digests.setdefault("image" if kind in ("push", "output") else kind, found)
    left = scene.left()
    good = again == 0 and found == expected and not left
    row = {"round": number, "what": kind, "state": state, "after": round(after, 2), "killed": killed == -9}
    row |= {"again": again, "seconds": round(seconds, 2), "same": found == expected}
    return row | {"left": left, "good": good}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    folder = asked.folder.resolve()
    for name in ("cache", "tmp", "results"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "kills.yaml").write_text(MATRIX)
    shutil.rmtree(folder / "registry", ignore_errors=True)
    config = folder / "registry.yml"
    config.write_text(
        "version: 0.1\nlog: {level: info, accesslog: {disabled: true}}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder}/registry}}}}\nhttp:\n  addr: 127.0.0.1:0\n"
    )
    log = (folder / "registry.log").open("wb")
    server = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)
    os.environ |= {"RTBUILD_CACHE": str(folder / "cache"), "TMPDIR": str(folder / "tmp")}
    zygote = Zygote(folder / "tmp" / "runs")  # its TMPDIR
    try:
        host = ""
        for _ in range(100):
            found = re.search(r"listening on (127\.0\.0\.1:\d+)", (folder / "registry.log").read_text())
            if found:
                host = found[1]
                break
            time.sleep(0.1)
        scene = Scene(folder, host, zygote, random.Random(asked.seed), {server.pid, zygote.process.pid})
        shutil.rmtree(folder / "published", ignore_errors=True)
        scene.published = Project(folder / "published")
        scene.published.report(scene.published.stage(direct(), f"{host}/staging"))
        for kind in (
            "push",
            "output",
            "render",
            "publish",
        ):  # the first run says what is right
            code = zygote.run(folder, *scene.arguments(kind, 0))
            assert code == 0, f"{kind}: exit {code}, see {folder}/tmp/runs"
            scene.digests.setdefault("image" if kind in ("push", "output") else kind, scene.result(kind, 0))
        rows = []
        for number in range(1, asked.rounds + 1):
            rows.append(one(scene, number))
            print(json.dumps(rows[-1]), flush=True)
    finally:
        zygote.close()
        server.terminate()
        server.wait()
    bad = [row for row in rows if not row["good"]]
    killed = sum(row["killed"] for row in rows)
    image = scene.digests["image"]
    print(json.dumps({"rounds": len(rows), "killed": killed, "bad": len(bad), "image": image}))
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
