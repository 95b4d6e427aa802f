"""Counter-tests: the stage that failed once more with one thing of its surroundings taken away.

If the stage then passes, that thing is the cause, and this the proof.
"""

import os
import re

from ..common.distributions import wheels_of
from .environment import memory_limit, preload_file, set_by
from .library_files import Loader, parts_of
from .protocol import USES_FRAMEWORK
from .run import SETTINGS

ABSENT_LIBRARY = re.compile(r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file")
MISSING_SYMBOL = re.compile(
    r"undefined symbol|not defined in file|version `[^']+' not found|symbol lookup error"
)
TOO_OLD = re.compile(
    r"\S+: version `(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found.*"
    r"|\S+: undefined symbol: \S+, version (?:GLIBC|GLIBCXX|CXXABI)_[\d.]+.*"
)
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
        unmade = None if _cured(again, check) else why_unmade(again)
        if unmade:
            run.prove(test, "not made", "the same stage without %s could not be made: %s" % (what, unmade))
            if test == "cleared-path" and _other_by_path(run, again, check):
                return cause
            continue
        record(run, again, test, what, check)
        if _cured(again, check):
            if test == "cleared-settings":
                _name_setting(run, check)
            if test == "unshadowed":
                check["summary"] += _put_first(run)
            check["evidence"]["cured_by"] = test
            return cause
    return _together(run, check, present) if len(present) > 1 else None


def _put_first(run):
    """Which file, read as Python starts, puts a shadowing module first, where PYTHONPATH does not."""
    folders = {os.path.dirname(path) for path in (run.facts.get("shadowed_modules") or {}).values()}
    named = sorted(folders - set(os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    found = [(folder, set_by(folder)) for folder in named]
    texts = ["%s puts %s on the path" % (path, folder) for folder, path in found if os.path.isabs(path)]
    return "".join("; " + text for text in texts[:1])


def why_unmade(again):
    """Why a counter-test, which the stage did not pass, says nothing; None if it does.

    Either its condition could not be made, or the stage ended by the absence of a driver, which no machine
    without a GPU has, before it came to what is asked.
    """
    kept = dict(again.new_facts).get("kept_limit")
    if kept:
        return "the hard limit (%s) stays" % kept
    if ended_without_driver(again):
        return "this cuDNN needs a driver to load, and there is none here"
    return None


def ended_without_driver(run):
    """True for an abort over ``libcuda.so`` where there is neither a GPU nor a driver.

    The parts of cuDNN 8 that compute open the driver as they are loaded, and the process dies without it.
    """
    wants_driver = re.search(r"(libcuda\.so(?:\.1)?): cannot open shared object file", run.stderr)
    excused = wants_driver and run.ending["kind"] == "signal" and run.facts.get("gpu_state") == "none"
    return bool(excused) and Loader().resolve("libcuda.so.1")["path"] is None


def _other_by_path(run, again, check):
    """True if the loader alone shows that LD_LIBRARY_PATH brings a cuDNN for another CUDA than is wanted.

    Without the variable the shim has to be of a package for the wanted CUDA, with parts beside it; with it,
    those come from another folder.
    """
    shims = [(each.params.get("candidate") or {}).get("path") for each in (run, again)]
    wanted = set(check["evidence"].get("wanted_majors") or ())
    if None in shims or not wanted & set(wheels_of(shims[1], run.facts.get("packages") or {}).values()):
        return False
    paths = (os.environ.get("LD_LIBRARY_PATH"), "")
    with_it, without = [_folders_of_parts(*pair) for pair in zip(shims, paths)]
    differs = without == {os.path.dirname(os.path.realpath(shims[1]))} and not with_it & without
    if differs:
        folders = [", ".join(sorted(each)) for each in (with_it, without)]
        what = "the parts of cuDNN come from %s with LD_LIBRARY_PATH, from %s without it"
        run.prove("resolve the parts", "confirmed", what % tuple(folders))
    return differs


def _folders_of_parts(shim, library_path):
    loader = Loader(library_path=library_path)
    found = [loader.resolve(part, shim)["path"] for part in parts_of(shim)]
    return {os.path.dirname(os.path.realpath(path)) for path in found if path}


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
    framework, driver = run.stage.layer in USES_FRAMEWORK, run.stage.layer == "driver"
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
