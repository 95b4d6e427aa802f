"""Counter-tests: the stage that failed once more with one thing of its surroundings taken away.

If the stage then passes, that thing is the cause, and this the proof.
"""

import os
import re

from .environment import memory_limit, preload_file
from .run import SETTINGS

ABSENT_LIBRARY = re.compile(r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file")
MISSING_SYMBOL = re.compile(
    r"undefined symbol|not defined in file|version `[^']+' not found|symbol lookup error"
)
TOO_OLD = re.compile(r"\S+: version `(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found.*")
_MIXED = re.compile(r"lib(cublas|cudart|nvJitLink|cusparse|cusolver|cufft|curand|nvrtc|cupti)")


def shorten(text):
    """The first line of a text, of 300 characters at the most."""
    line = (text.strip().splitlines() or [""])[0]
    return line if len(line) <= 300 else line[:297] + "..."


def by_counter_tests(run, check, shadow="cudnn-shadowed"):
    """The cause that a counter-test proves, or None; ``shadow``: the cause if it is LD_LIBRARY_PATH."""
    present = _present(run, shadow)
    for test, cause, what in present:
        again = run.again(test)
        record(run, again, test, what, check)
        if _cured(again, check):
            if test == "cleared-settings":
                _name_setting(run, check)
            check["evidence"]["cured_by"] = test
            return cause
    return _together(run, check, present) if len(present) > 1 else None


def _together(run, check, present):
    """The earliest of several things of which each alone breaks the stage; None if that is not so."""
    if not _cured(run.again(*[test for test, _, _ in present]), check):
        return None
    guilty = list(present)
    for row in present:
        rest = [other for other in guilty if other is not row]
        if rest and _cured(run.again(*[test for test, _, _ in rest]), check):
            guilty = rest
    what = " and ".join(what for _, _, what in guilty)
    what = "the stage passes only without %s: each alone breaks it" % what
    return run.proven(guilty[0][1], "together", what)


def _present(run, shadow):
    """(counter-test, cause, the thing taken away) for all such things that are here."""
    framework, driver = run.stage.layer in ("framework", "coimport"), run.stage.layer == "driver"
    preload, path = os.environ.get("LD_PRELOAD"), os.environ.get("LD_LIBRARY_PATH")
    files, loaded = ", ".join(preload_file()[:3]), (run.facts.get("mapped_at_start") or [])[:3]
    settings = sorted(name for name in os.environ if SETTINGS.match(name))
    shadowed = sorted((run.facts.get("shadowed_modules") or {}).values())[:3]
    limit, who = memory_limit()
    limited = limit is not None and who.startswith("ulimit")
    rows = (
        (preload, "cleared-preload", "preload-interference", "LD_PRELOAD=%s" % preload),
        (files, "no-preload-file", "preload-interference", "/etc/ld.so.preload, which names " + files),
        (loaded, "no-site", "startup-preload", "what Python's start loads (%s)" % ", ".join(loaded)),
        # a driver that is not found any more is no driver that works
        (path and not driver, "cleared-path", shadow, "LD_LIBRARY_PATH=%s" % path),
        (framework and settings, "cleared-settings", "variable-breaks-framework", ", ".join(settings)),
        (framework and shadowed, "unshadowed", "module-shadowed", ", ".join(shadowed)),
        (limited, "unlimited", "host-memory", "the limit of %d MiB (%s)" % ((limit or 0) >> 20, who)),
    )
    return [row[1:] for row in rows if row[0]]


def shadow_cause(text):
    """The cause if LD_LIBRARY_PATH brings the library that a message is about: C++'s, CUDA's or cuDNN's."""
    if TOO_OLD.search(text):
        return "libc-too-old"
    named = [line for line in text.splitlines() if MISSING_SYMBOL.search(line) or ABSENT_LIBRARY.search(line)]
    mixed = any(_MIXED.search(line) and "libcudnn" not in line for line in named)
    return "toolkit-mixed" if mixed else "cudnn-shadowed"


def _cured(again, check):
    """True if the stage passes now, or the very check that failed by itself does."""
    passed = {row["id"] for row in again.checks if row["outcome"] == "passed"}
    failed = {row["id"] for row in again.checks if row["outcome"] == "failed"}
    return again.sound or ("ending" not in check["evidence"] and check["id"] in passed - failed)


def record(run, again, test, what, check=None):
    """Put a counter-test and its outcome into the proof."""
    cured = again.sound if check is None else _cured(again, check)
    failed = [c["summary"] for c in again.checks if c["outcome"] == "failed"]
    ends = "passes" if cured else "fails too: %s" % shorten((failed or [again.ending["text"]])[0])
    run.prove(test, "confirmed" if cured else "refuted", "the same stage without %s %s" % (what, ends))


def _name_setting(run, check):
    """Which of the variables it is: the first without which alone the stage passes."""
    names = sorted(name for name in os.environ if SETTINGS.match(name))
    for name in names[:12]:
        if len(names) == 1 or _cured(run.again("cleared-settings", settings=[name]), check):
            check["summary"] = "%s=%s: %s" % (name, os.environ[name], check["summary"])
            check["evidence"]["variable"] = name
            return
