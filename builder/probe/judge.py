"""From a stage that failed to the one cause, by counter-tests.

A message only chooses what to test: the stage without LD_LIBRARY_PATH, the stage with every sub-library
preloaded from one folder, the loader's true answer about the very file. The cause follows from what these
gave.
"""

import os
import re

from .cuda import need_ctypes
from .elf import elf_problem
from .protocol import COUNTER_LAYER, stage
from .resolver import Loader
from .runner import execute
from .sublibraries import required_sublibraries, shim_major

_TOOLKIT = re.compile(r"libcublas|libcudart|libnvJitLink|libcusparse|libcusolver|libcufft|libcurand")
_ABSENT = re.compile(r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file")
_SYMBOL = re.compile(r"undefined symbol|not defined in file|version `[^']+' not found|symbol lookup error")
_CORRUPT = re.compile(r"file too short|invalid ELF header|wrong ELF class|cannot map|ELF load command")
# Which check a call belongs to that was in flight when the process died.
_CALL_CHECKS = (
    (re.compile(r"import "), "F01"),
    (re.compile(r"cudnn\w*VersionCheck"), "C03"),
    (re.compile(r"cudnnCreate$"), "C06"),
    (re.compile(r"cudnn\w*(Descriptor|OutputDim)"), "C04"),
    (re.compile(r"cudnnConvolution|cudnnGetConvolution"), "C07"),
)
_FIRST_CHECK = {
    "driver": "D03",
    "runtime": "R02",
    "cudnn": "C01",
    "convolution": "C07",
    "framework": "F01",
    "coimport": "F06",
}


@stage("dlopen", layer=COUNTER_LAYER, timeout=30)
def dlopen_stage(ctx):
    """Open one file, and say what the loader says."""
    path = ctx.params["path"]
    ctypes = need_ctypes()
    with ctx.call("dlopen %s" % path):
        ctypes.CDLL(path)


def dlerror_of(path):
    """What the loader says about this very file in a fresh process; None where it loads."""
    outcome = execute("dlopen", {"path": path}, 30)
    last = outcome["lines"][-1] if outcome["lines"] else {}
    if last.get("t") == "end":
        return None
    if last.get("t") == "raised":
        return last["text"]
    return "the process died: signal %s, exit status %s" % (outcome["signal"], outcome["code"])


def default_judge(run):
    """Turn a run that died, raised or failed without a cause into checks with causes."""
    if run.ending["kind"] != "done":
        identifier = _check_of_call(run)
        where = " in %s" % run.in_flight if run.in_flight else ""
        evidence = {"in_flight": run.in_flight, "ending": run.ending, "stderr": run.stderr[-4000:]}
        if run.kernel:
            evidence.update(kernel=run.kernel, mapped=run.mapped)
        run.fail(identifier, "%s%s" % (shorten(run.ending["text"]), where), None, evidence)
    for check in run.checks:
        if check["outcome"] == "failed" and check["cause"] is None:
            run.decide(check, find_cause(run, check))


def _check_of_call(run):
    if run.ending["kind"] == "hang":
        return "H01"
    for pattern, identifier in _CALL_CHECKS:
        if pattern.match(run.in_flight or ""):
            return identifier
    dead = run.ending["kind"] == "signal" and run.stage.layer in ("framework", "coimport")
    return "H02" if dead else _FIRST_CHECK.get(run.stage.layer, "H02")


def judge_cudnn(run):
    """The judge of the stages that load cuDNN directly."""
    if not _excuse_for_want_of_a_driver(run):
        default_judge(run)


def _excuse_for_want_of_a_driver(run):
    """True for an abort over ``libcuda.so`` where there is no trace of a GPU: the image is not at fault.

    The parts of cuDNN 8.6 that convolve open the driver as they are loaded, and the process dies without it.
    """
    named = re.search(r"(libcuda\.so(?:\.1)?): cannot open shared object file", run.stderr)
    if run.ending["kind"] != "signal" or not named or run.facts.get("gpu_state") != "none":
        return False
    if Loader().resolve("libcuda.so.1")["path"] is not None:
        return False
    run.prove("resolve libcuda.so.1", "confirmed", "there is no driver here, which this cuDNN needs to load")
    evidence = {"in_flight": run.in_flight, "stderr": run.stderr[-4000:]}
    text = "this cuDNN needs the driver to load its convolutions, and there is none here"
    reported = [check["id"] for check in run.checks]
    for number in ("C03", "C04", "C05"):
        if number not in reported:
            run.excuse(number, text, evidence)
    return True


def shorten(text, limit=300):
    """The first line of a text, cut to a length."""
    line = (text.strip().splitlines() or [""])[0]
    return line if len(line) <= limit else line[: limit - 3] + "..."


def find_cause(run, check):
    """The cause of a failed check, with the proof added to the run."""
    if run.ending["kind"] == "hang":
        run.prove("watchdog", "confirmed", "%s; in flight: %s" % (run.ending["text"], run.in_flight))
        return "hang"
    text = "\n".join([check["summary"], run.ending["text"], run.stderr])
    return _by_environment(run, text) or _by_loader(run, text) or _by_fault(run, text) or _fallback(run)


def _by_environment(run, text):
    """The stage without LD_PRELOAD, then without LD_LIBRARY_PATH: where that passes, the variable is the
    cause.
    """
    if os.environ.get("LD_PRELOAD"):
        again = run.again("cleared-preload")
        _record(
            run, again, "cleared-preload", "the same stage without LD_PRELOAD=%s" % os.environ["LD_PRELOAD"]
        )
        if again.sound:
            return "preload-interference"
    if os.environ.get("LD_LIBRARY_PATH"):
        again = run.again("cleared-path")
        what = "the same stage without LD_LIBRARY_PATH=%s" % os.environ["LD_LIBRARY_PATH"]
        _record(run, again, "cleared-path", what)
        if again.sound:
            named = [line for line in text.splitlines() if _SYMBOL.search(line) or _ABSENT.search(line)]
            mixed = any(_TOOLKIT.search(line) and "libcudnn" not in line for line in named)
            return "toolkit-mixed" if mixed else "cudnn-shadowed"
    return None


def _record(run, again, test, what):
    if again.ending["kind"] == "unavailable":
        run.prove(test, "not_run", again.ending["text"])
    else:
        run.prove(test, "confirmed" if again.sound else "refuted", "%s %s" % (what, _outcome(again)))


def _outcome(run):
    if run.sound:
        return "passes"
    failed = [c["summary"] for c in run.checks if c["outcome"] == "failed"]
    return "fails too: %s" % shorten(failed[0] if failed else run.ending["text"])


def _by_loader(run, text):
    """Ask the loader about each library that the text names."""
    loader = Loader()
    shim = (run.params.get("candidate") or {}).get("path")
    for name in _named(text):
        path = _locate(name, shim, loader)
        if path is None:
            run.prove("resolve %s" % name, "confirmed", "the loader finds no %s" % name)
            return absent_cause(name, loader)
        answer = dlerror_of(path)
        if answer is None:
            continue
        run.prove("dlerror of %s" % os.path.basename(path), "confirmed", answer)
        return _by_dlerror(answer, loader, name)
    if re.search(r"VERSION_MISMATCH|undefined symbol: cudnn|version libcudnn\w*\.so", text):
        run.prove("sub-libraries", "confirmed", _mixed_proof(shim, loader))
        if shim is not None:
            again = run.again("preloaded")
            _record(
                run,
                again,
                "preloaded",
                "the same stage with every file of %s preloaded" % os.path.dirname(shim),
            )
        return "cudnn-sublibrary-mismatch"
    return None


def _named(text):
    """Libraries that a message says could not be loaded, in order: the ones a dlerror names come first."""
    names = _ABSENT.findall(text)
    for group in re.findall(r"Unable to load any of \{([^}]*)\}", text):
        exact = [part.strip() for part in group.split(",") if re.search(r"\.so\.\d+$", part.strip())]
        names += exact[-1:]
    names += re.findall(r"Could not load library (lib[\w.]+?)\.? Error", text)
    return [name for index, name in enumerate(names) if name not in names[:index]]


def _locate(name, shim, loader):
    found = loader.resolve(name, shim)["path"]
    if found is None and shim is not None:
        beside = os.path.join(os.path.dirname(os.path.realpath(shim)), name)
        found = beside if os.path.exists(beside) else None
    return found


def absent_cause(name, loader):
    """The cause for a library that the loader does not find."""
    if re.match(r"libcuda\.so", name):
        return "unversioned-name-missing" if loader.resolve("libcuda.so.1")["path"] else "driver-missing"
    if re.match(r"libnvrtc", name):
        return "nvrtc-missing"
    if re.match(r"libcudnn_", name):
        return "cudnn-sublibrary-missing"
    if name == "libcudnn.so":
        versioned = [
            n for n in ("libcudnn.so.9", "libcudnn.so.8", "libcudnn.so.7") if loader.resolve(n)["path"]
        ]
        return "unversioned-name-missing" if versioned else "cudnn-missing"
    if re.match(r"libcudnn", name):
        return "cudnn-missing"
    return "toolkit-library-missing"


def _by_dlerror(answer, loader, name):
    absent = _ABSENT.search(answer)
    if absent:
        return absent_cause(absent.group(1), loader)
    if _CORRUPT.search(answer):
        return "cudnn-file-corrupt" if "libcudnn" in name else "toolkit-library-missing"
    if "GLIBC" in answer:
        return "libc-too-old"
    if _SYMBOL.search(answer):
        return "cudnn-sublibrary-mismatch" if "libcudnn" in answer else "toolkit-mixed"
    if answer.startswith("the process died: signal 7"):
        return "cudnn-file-corrupt"
    return None


def _mixed_proof(shim, loader):
    """Where each sub-library comes from, as a sentence."""
    if shim is None:
        return "the sub-libraries' own version check, or a missing symbol of another version, says so"
    names = required_sublibraries(shim_major(os.path.basename(shim)) or 0)
    folders = {os.path.dirname(loader.resolve(n, shim)["path"] or "?") for n in names}
    return "shim %s, sub-libraries from %s" % (shim, ", ".join(sorted(folders)))


def _by_fault(run, text):
    """A signal: a truncated file explains SIGBUS, a missing symbol an exit of 127."""
    if run.ending.get("signal") == 7:
        shim = (run.params.get("candidate") or {}).get("path")
        folder = os.path.dirname(os.path.realpath(shim)) if shim else None
        names = sorted(os.listdir(folder)) if folder else []
        bad = [n for n in names if "libcudnn" in n and elf_problem(os.path.join(folder, n))]
        if bad:
            run.prove(
                "file headers", "confirmed", "%s: %s" % (bad[0], elf_problem(os.path.join(folder, bad[0])))
            )
            return "cudnn-file-corrupt"
    if re.search(r"has no function cudnn", text):
        return "cudnn-file-corrupt"
    if re.search(r"symbol lookup error", text):
        return "cudnn-sublibrary-mismatch" if "libcudnn" in text else "toolkit-mixed"
    return None


def _fallback(run):
    importing = (run.in_flight or "import").startswith("import")
    if run.ending["kind"] == "raised" and run.stage.layer in ("framework", "coimport") and importing:
        return "framework-import"
    if run.ending["kind"] in ("signal", "exit"):
        return "crash"
    return {"convolution": "execution-failed", "framework": "execution-failed"}.get(run.stage.layer, "crash")
