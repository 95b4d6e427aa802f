"""The images that tasks pulled to a node, of which as many stay as a budget has room for."""

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from builder.core.documents import parse_object
from builder.core.files import write_whole
from builder.core.resources import cache
from builder.core.temporary import locked
from builder.release.dispatch.left import tell


@dataclass(frozen=True, kw_only=True)
class PulledImages:
    """Those that Docker or Podman pulled here for tasks of this user; of others' images it knows nothing."""

    tool: str
    gigabytes: int
    """Of 10⁹ bytes, that stay; an image counts whole, also where it shares layers with another one."""

    @property
    def path(self) -> Path:
        """Of this node alone, where homes are shared."""
        node = os.environ.get("SLURMD_NODENAME") or platform.node()
        return cache() / "pulled-images" / f"{node}-{self.tool}.json"

    @contextmanager
    def using(self, image: str) -> Iterator[None]:
        """Run an image in the block; afterwards those that ran the longest ago go, until the budget holds."""
        pulled = self._bytes(image) is None
        try:
            yield
        finally:
            try:
                self._with_record(lambda found: self._trim(found, image if pulled else None, image))
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                tell(f"images that were pulled stay on this node: {error}")

    def _with_record(self, change: Callable[[dict[str, float]], dict[str, float]]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path.with_suffix(".lock")):
            text = self.path.read_bytes() if self.path.exists() else b"{}"
            before = {image: float(when) for image, when in parse_object(text).items()}
            if (after := change(before)) != before:
                write_whole(self.path, json.dumps(after).encode(), mode=0o600)

    def _trim(self, found: dict[str, float], pulled: str | None, used: str) -> dict[str, float]:
        """When each image ran that was pulled and is here still."""
        if pulled is not None or used in found:
            found = {name: when for name, when in found.items() if name != used} | {used: time.time()}
        sizes = {name: size for name in found if (size := self._bytes(name)) is not None}
        for name in sorted(sizes, key=found.__getitem__):
            if sum(sizes.values()) <= self.gigabytes * 10**9:
                break
            # without --force: one that another container runs stays
            if self._ask("image", "rm", name) is not None:
                del sizes[name]
                tell(f"{name} is removed from this node, which keeps {self.gigabytes} GB of what it pulled")
        return {name: found[name] for name in sizes}

    def _bytes(self, image: str) -> int | None:
        """None if it is not here."""
        said = self._ask("image", "inspect", "--format", "{{.Size}}", image)
        return int(said) if said is not None and said.strip().isdecimal() else None

    def _ask(self, *words: str) -> str | None:
        """What the tool says; None if it refuses."""
        done = subprocess.run(
            [self.tool, *words], capture_output=True, encoding="utf-8", check=False, timeout=300
        )
        return done.stdout if done.returncode == 0 else None
