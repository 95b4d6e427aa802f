"""Notices that the kernel killed a process of this container for memory, which Jupyter cannot tell."""

from __future__ import annotations

_EVENTS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_NO_LIMIT = 1 << 60
"""Bytes: version 1 of cgroups says "none" by a number near 2**63."""


class Watch(object):
    """Counts kills, ``oom_kill``: https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files"""

    def __init__(self, events: "tuple[str, ...]" = _EVENTS, limits: "tuple[str, ...]" = _LIMITS) -> None:
        self._events = events
        self._limits = limits
        self._seen = self._count()

    def news(self) -> str | None:
        """What to say about kills since the last call; None where there were none."""
        count = self._count()
        new, self._seen = count - self._seen, count
        if new <= 0:
            return None
        limit = self._limit()
        return (
            "out of memory: %s killed%s. A notebook's kernel starts anew, its variables are gone.\n"
            "  hint: load less at a time, or give the container more: docker run --memory"
            % (
                "a process was" if new == 1 else "%d processes were" % new,
                " at the limit of %.1f GB" % (limit / 1e9) if limit else "",
            )
        )

    def _count(self) -> int:
        for path in self._events:
            try:
                with open(path) as stream:
                    fields = dict(line.split(None, 1) for line in stream if " " in line)
                return int(fields.get("oom_kill", 0))
            except (OSError, ValueError):
                continue
        return 0

    def _limit(self) -> int | None:
        for path in self._limits:
            try:
                with open(path) as stream:
                    limit = int(stream.read())
            except (OSError, ValueError):  # not there, or "max"
                continue
            return limit if limit < _NO_LIMIT else None
        return None
