"""A control group for one shut-in program, if this user is given one: the kernel then bounds the sum.

Of version 2 a neighbour of this process's own group, since a group that has processes bounds none below it;
of version 1 one below it in each hierarchy. https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

import contextlib
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
_PREFIX = "rtbuild-"
_WANTED = frozenset({"memory", "pids"})


@dataclass(frozen=True)
class ControlGroup:
    """``folders`` by controller: the same one for both of version 2."""

    version: int
    folders: dict[str, Path]

    def add(self, process: int) -> None:
        """Bound a process and all that it starts from now on. Raises OSError."""
        for folder in set(self.folders.values()):
            (folder / "cgroup.procs").write_text(str(process))

    def full(self) -> bool:
        """Whether the kernel killed a process in it for want of memory."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        with contextlib.suppress(OSError):
            return any(
                line.partition(" ")[0] == "oom_kill" and line.partition(" ")[2] not in ("", "0")
                for line in (self.folders["memory"] / name).read_text().splitlines()
            )
        return False

    def remove(self) -> None:
        """Once its processes have ended; what does not go now is swept by the next."""
        for folder in set(self.folders.values()):
            for _ in range(20):
                with contextlib.suppress(OSError):
                    folder.rmdir()
                if not folder.exists():
                    break
                time.sleep(0.01)


def control_group(memory: int, processes: int, *, root: Path = ROOT, own: Path = OWN) -> ControlGroup | None:
    """A new group for so many bytes and processes; None if this process may make none."""
    for version, places in _places(root, own):
        name = f"{_PREFIX}{os.getpid()}-{uuid.uuid4().hex[:8]}"
        group = ControlGroup(version, {what: place / name for what, place in places.items()})
        try:
            for place in set(places.values()):
                _sweep(place)
                (place / name).mkdir()
            limit = "memory.max" if version == 2 else "memory.limit_in_bytes"
            (group.folders["memory"] / limit).write_text(str(memory))
            (group.folders["pids"] / "pids.max").write_text(str(processes))
        except OSError:
            group.remove()
            continue
        for more in ("memory.swap.max", "memory.oom.group"):  # not in every kernel
            with contextlib.suppress(OSError):
                (group.folders["memory"] / more).write_text("0" if "swap" in more else "1")
        return group
    return None


def _places(root: Path, own: Path) -> Iterator[tuple[int, dict[str, Path]]]:
    """Folders in which a group could be made that bounds both."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines() if line.count(":") >= 2]
    except OSError:
        return
    paths = {name: path.strip("/") for _, names, path in lines for name in names.split(",")}
    if "" in paths and (root / "cgroup.controllers").is_file():
        folder = root / paths[""]
        for place in dict.fromkeys((folder.parent if paths[""] else folder, folder)):
            with contextlib.suppress(OSError):
                if set((place / "cgroup.subtree_control").read_text().split()) >= _WANTED:
                    yield 2, dict.fromkeys(_WANTED, place)
    elif paths.keys() >= _WANTED:
        places = {what: root / what / paths[what] for what in _WANTED}
        if all(place.is_dir() for place in places.values()):
            yield 1, places


def _sweep(place: Path) -> None:
    """Remove what runs left that were killed: a group with processes stays by itself."""
    for folder in place.glob(f"{_PREFIX}*"):
        process = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path(f"/proc/{process}").exists():
            with contextlib.suppress(OSError):
                folder.rmdir()
