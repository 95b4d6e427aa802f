"""Notices that the kernel killed a process of this container for memory, which Jupyter cannot tell."""

from __future__ import annotations

_EVENTS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class Watch(object):
    """Counts kills, ``oom_kill``: https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files"""

    def __init__(self, events: tuple[str, ...] = _EVENTS, limits: tuple[str, ...] = _LIMITS) -> None:
        self._events, self._limits = events, limits
        self._seen = self._count()

    def news(self) -> str | None:
        """What to say about kills since the last call; None where there were none."""
        count = self._count()
        new, self._seen = count - self._seen, count
        if new <= 0:
            return None
        killed = "a process was" if new == 1 else f"{new} processes were"
        return (
            f"out of memory: {killed} killed{self._limit()}. A notebook's kernel starts anew, its variables"
            " are gone.\n  hint: load less at a time, or give the container more: docker run --memory"
        )

    def _count(self) -> int:
        for text in map(_read, self._events):
            rows = [line.split() for line in text.splitlines()]
            if rows:
                return next((int(row[1]) for row in rows if row[:1] == ["oom_kill"] and row[1:]), 0)
        return 0

    def _limit(self) -> str:
        """Version 1 of cgroups says "none" by a number near 2**63, version 2 by "max"."""
        limit = next((int(text) for text in map(_read, self._limits) if text.strip().isdecimal()), 1 << 60)
        return f" at the limit of {limit / 1e9:.1f} GB" if limit < 1 << 60 else ""


def _read(path: str) -> str:
    try:
        with open(path) as stream:
            return stream.read()
    except OSError:
        return ""
