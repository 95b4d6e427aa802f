"""The images that tasks pulled to a node, of which as many stay as a budget has room for."""

import json
import os
import platform
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from builder.core.documents import parse_object
from builder.core.files import write_whole
from builder.core.resources import cache
from builder.core.temporary import locked
from builder.release.dispatch.left import tell

_ANSWER = 64 << 10
"""Bytes of an answer: a size, or the layers of an image that went."""


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
            except (OSError, ValueError) as error:
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
        """The tool's answer; None if it refuses, takes five minutes, or prints more than 64 KiB."""
        pipe, none = subprocess.PIPE, subprocess.DEVNULL
        with subprocess.Popen(
            [self.tool, *words], stdout=pipe, stderr=none, start_new_session=True
        ) as process:
            end = partial(os.killpg, process.pid, signal.SIGKILL)
            limit = threading.Timer(300, end)
            limit.start()
            try:
                assert process.stdout is not None  # noqa: S101 - it is a pipe
                text = process.stdout.read(_ANSWER + 1)
                if len(text) > _ANSWER:
                    end()
                refused = process.wait() != 0
            finally:
                limit.cancel()
        return None if refused else text.decode("utf-8", "replace")
