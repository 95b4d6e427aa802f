"""``cudnn-verify`` beside Jupyter: its verdict in a line, and in large letters where it is not ``works``."""

from __future__ import annotations

import subprocess
import threading
from typing import Callable, Sequence

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

    def __init__(
        self, tell: Callable[[str], None], command: Sequence[str] = ("cudnn-verify", "--quiet")
    ) -> None:
        self._tell, self._stopped = tell, False
        self._process: subprocess.Popen[str] | None = None
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                universal_newlines=True,
            )
        except OSError as error:
            tell(_large("not verified", f"cudnn-verify did not start: {error}"))
            return
        threading.Thread(target=self._follow, args=(self._process,), daemon=True).start()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._stopped = True
            self._process.terminate()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        try:
            output, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        status, last = process.returncode, (output.strip().splitlines() or ["it printed nothing"])[-1]
        text = _large("not verified", f"cudnn-verify failed by a fault of its own ({status}): {last}")
        if status in _WORDS:
            text = _large(_WORDS[status], last)
        if not self._stopped:
            self._tell(text if status else f"cudnn-verify: {last}")


def _large(words: str, detail: str) -> str:
    """A headline that nobody misses, and under it why."""
    headline = "   ".join(" ".join(word) for word in words.upper().split())
    rule = "#" * (len(headline) + 8)
    after = "Jupyter runs all the same; `!cudnn-verify` in a cell says more."
    return f"\n{rule}\n\n    {headline}\n\n{rule}\n{detail}\n{after}\n"
