"""``cudnn-verify`` beside Jupyter: its verdict in a line, and in large letters where it is not ``works``."""

from __future__ import annotations

import subprocess
import threading
from typing import Callable, Sequence

PROBE = ("cudnn-verify", "--quiet")
SECONDS = 900

_WORDS = {
    10: "unverified",
    20: "broken",
    21: "unsupported gpu",
    22: "no gpu for this container",
    23: "gpu busy",
}
"""By the probe's exit status; see docs/verdicts.md of rtbuild."""


class Verdict(object):
    """A probe under way. ``tell`` gets the text once it has ended."""

    def __init__(self, tell: Callable[[str], None], command: Sequence[str] = PROBE) -> None:
        self._tell = tell
        self._stopped = False
        self._process: subprocess.Popen[str] | None = None
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                universal_newlines=True,
            )
        except OSError as error:
            tell(large("not verified", "cudnn-verify did not start: %s" % error))
            return
        threading.Thread(target=self._follow, daemon=True).start()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._stopped = True
            self._process.terminate()

    def _follow(self) -> None:
        assert self._process is not None
        try:
            output, _ = self._process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            output, _ = self._process.communicate()
        if not self._stopped:
            self._tell(text_of(self._process.returncode, output))


def text_of(status: int, output: str) -> str:
    """What a person is told of a probe that ended with ``status`` and printed ``output``."""
    lines = output.strip().splitlines()
    last = lines[-1] if lines else "it printed nothing"
    if status == 0:
        return "cudnn-verify: %s" % last
    word = _WORDS.get(status)
    if word is None:
        return large("not verified", "cudnn-verify failed by a fault of its own (%d): %s" % (status, last))
    return large(word, last)


def large(words: str, detail: str) -> str:
    """A headline that nobody misses, and under it why."""
    headline = "   ".join(" ".join(word) for word in words.upper().split())
    rule = "#" * (len(headline) + 8)
    return "\n%s\n\n    %s\n\n%s\n%s\nJupyter runs all the same; `!cudnn-verify` in a cell says more.\n" % (
        rule,
        headline,
        rule,
        detail,
    )
