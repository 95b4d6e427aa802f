"""From a stage that failed to the one cause: by counter-tests, by the machine, the loader and the packages.

A message only chooses the test: the stage without LD_LIBRARY_PATH, the stage with every sub-library preloaded
from one folder, the loader's true answer about the very file. The cause follows from the outcome.
"""

import os
import re

from ..common.distributions import read_distributions, read_record, search_folders, wheels_of
from ..common.tables import read_frameworks
from .cuda import open_library
from .environment import NO_MEMORY, memory_limit, no_temporary_folder, on_noexec_mount, preload_file, set_by
from .library_files import Loader, is_cuda_library, parts_of
from .protocol import COUNTER_LAYER, USES_FRAMEWORK, stage
from .run import SETTINGS, execute, run_named

_TOOLKIT = re.compile(
    r"libcublas|libcudart|libnvJitLink|libcusparse|libcusolver|libcufft|libcurand|libcupti|libnccl|libnvToolsExt|"
    r"libcufile|libnvshmem|libnvrtc"
)
_CORRUPT = re.compile(r"file too short|invalid ELF header|wrong ELF class|cannot map|ELF load command")
# Which check a call belongs to that was in flight when the process died.
_CALL_CHECKS = (
    (r"import ", "F01"),
    (r"cudnn\w*VersionCheck", "C03"),
    (r"cudnnCreate$", "C06"),
    (r"cudnn\w*(Descriptor|OutputDim)", "C04"),
    (r"cudnnConvolution|cudnnGetConvolution", "C07"),
)
_FIRST_CHECK = {
    "driver": "D03",
    "runtime": "R02",
    "cudnn": "C01",
    "convolution": "C07",
    "framework": "F01",
    "coimport": "F06",
    "suite": "F01",
}


# Lines that frameworks log on every machine, and that say nothing about this failure.
_LOG_LINE = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[\d.,:]*:? *[\[(]?[IWE]\b|[IWE]\d{4} |(DEBUG|INFO|WARNING|ERROR)\b|"
    r".*Could not load dynamic library|.*\[[A-Z]:onnxruntime|.*(Futur|User|Deprecation|Runtime)eWarning|"
    r".*(User|Deprecation|Runtime)Warning"
)


@stage("dlopen", layer=COUNTER_LAYER, timeout=30)
def dlopen_stage(ctx):
    """Open one file, and give the loader's message."""
    path = ctx.params["path"]
    with ctx.call("dlopen %s" % path):
        open_library(path)


def dlerror_of(path):
    """The loader's message about this very file in a fresh process; None if it loads."""
    outcome = execute("dlopen", {"path": path}, 30)
    last = outcome.lines[-1] if outcome.lines else {}
    died = "the process died: signal %s, exit status %s" % (outcome.signal, outcome.code)
    return {"end": None, "raised": last.get("text")}.get(last.get("t"), died)


def default_judge(run):
    """Turn a run that died, raised or failed without a cause into checks with causes."""
    if run.ending["kind"] != "done" and not run.excused:
        identifier = _check_of_call(run)
        where = " in %s" % run.in_flight if run.in_flight else ""
        evidence = {"in_flight": run.in_flight, "ending": run.ending, "stderr": run.stderr[-4000:]}
        if run.kernel:
            evidence.update(kernel=run.kernel, mapped=run.mapped)
        run.fail(identifier, "%s%s" % (shorten(run.ending["text"]), where), None, evidence)
    for check in run.checks:
        if check["outcome"] == "failed" and check["cause"] is None:
            otherwise = check["evidence"].get("otherwise")
            if otherwise and (run.excused or run.ending["kind"] == "done"):
                shadow = check["evidence"].get("shadow", "cudnn-shadowed")
                refused = "\n".join((check["evidence"].get("cannot be opened") or {}).values())
                check["cause"] = (
                    by_counter_tests(run, check, shadow)
                    or (refused and by_machine(run, refused))
                    or otherwise
                )
            else:
                check["cause"] = find_cause(run, check)


def _check_of_call(run):
    if run.ending["kind"] == "hang":
        return "H01"
    if run.stage.layer == "imports":
        return "F08"
    dead = run.ending["kind"] == "signal" and run.stage.layer in USES_FRAMEWORK
    first = "H02" if dead else _FIRST_CHECK.get(run.stage.layer, "H02")
    return next((number for call, number in _CALL_CHECKS if re.match(call, run.in_flight or "")), first)


def judge_cudnn(run):
    """An abort over ``libcuda.so`` without a trace of a GPU is no fault of the image; the rest by default."""
    if not ended_without_driver(run):
        default_judge(run)
        return
    run.prove("resolve libcuda.so.1", "confirmed", "there is no driver here, which this cuDNN needs to load")
    evidence = {"in_flight": run.in_flight, "stderr": run.stderr[-4000:]}
    text = "this cuDNN needs the driver to load its convolutions, and there is none here"
    for number in sorted({"C03", "C04", "C05"} - {check["id"] for check in run.checks}):
        run.excuse(number, text, evidence)
    default_judge(run)


def find_cause(run, check):
    """The cause of a failed check, with the proof added to the run."""
    if run.ending["kind"] == "hang":
        run.prove("watchdog", "confirmed", "%s; in flight: %s" % (run.ending["text"], run.in_flight))
        notes = [row["note"] for row in run.checks if row["id"] == "F03" and row["note"]]
        if notes:
            check["summary"] += "; " + notes[0]
        return "hang"
    text = last_words(run, check)
    return (
        by_counter_tests(run, check, shadow_cause(text))
        or by_machine(run, text)
        or _by_loader(run, text)
        or _by_fault(run, text)
        or by_packages(run, check, text)
        or fallback(run)
    )


def last_words(run, check):
    """The exception, or the last lines of a dying process without its routine log lines."""
    if run.ending["kind"] == "raised":
        return "\n".join([check["summary"], run.ending["text"]] + run.ending.get("chain", []))
    said = [line for line in run.stderr.splitlines() if not _LOG_LINE.match(line)]
    if run.ending["kind"] == "done":
        return check["summary"] + "\n" + str(check["evidence"].get("dlerror", ""))
    return "\n".join([check["summary"], run.ending["text"]] + said[-40:])


def by_machine(run, text):
    """The cause if the machine refused memory, a file, a mapping or a place for temporary files; or None."""
    limit, who = memory_limit()
    killed = run.ending.get("signal") == 9
    mapping = "failed to map segment" in text and "Cannot allocate" not in text
    paths = re.findall(r"(/[^\s:'\"]+)", text) if mapping else []
    mounted = next(filter(on_noexec_mount, paths + _files_named(run, text)), None)
    if mounted:
        return run.proven(
            "noexec-mount", "mount options", "%s lies on a file system mounted noexec" % mounted
        )
    what = "a limit of %d MiB by %s" % (limit >> 20, who) if limit else "the machine has no more to give"
    if killed or NO_MEMORY.search(text):
        end = "the kernel killed it" if killed else "it got no memory"
        return run.proven("host-memory", "memory", "%s; %s" % (end, what))
    if limit is not None and who.startswith("ulimit") and run.ending["kind"] in ("signal", "exit"):
        return run.proven("host-memory", "memory", "it died under %s" % what)
    full = no_temporary_folder()
    if full and re.search(r"tempor|No space left|Read-only file system|tmp", text, re.I):
        return run.proven("no-temporary-space", "temporary files", full)
    if re.search(r"Permission denied|PermissionError|Errno 13\b", text):
        return run.proven("file-access-denied", "permissions", text.splitlines()[0][:300])
    return None


def _files_named(run, text):
    """The folders of the libraries that could not be mapped: the loader names a dependency without its
    folder.
    """
    names = set(re.findall(r"([\w.+-]+\.so[\w.]*): failed to map segment", text))
    paths = [row["path"] for row in run.facts.get("libraries_found") or ()]
    folders = {os.path.dirname(path) for path in paths} | set(run.facts.get("wheel_folders") or ())
    folders |= {os.path.dirname(row["requester"]) for row in run.facts.get("consumers") or ()}
    found = [Loader().resolve(name)["path"] for name in sorted(names)]
    found += [os.path.join(folder, name) for folder in sorted(folders) for name in sorted(names)]
    return [path for path in found if path and os.path.exists(path)]


def by_packages(run, check, text):
    """The cause if a package is not of the version that was asked for, or a file is damaged; or None."""
    stranger = (run.facts.get("strangers") or {}).get(run.stage.name)
    if stranger:
        what = "%s is not the file that pip installed" % stranger
        return run.proven("module-shadowed", "the module's file", what)
    about = "\n".join([text] + run.ending.get("trace", [])).replace("-", "_")
    for entry in run.facts.get("unmet", ()) if run.ending["kind"] == "raised" else ():
        if re.search(r"\b%s\b" % re.escape(entry["name"].replace("-", "_")), about, re.I):
            what = "%(by)s needs %(wants)s, installed is %(found)s" % entry
            return run.proven("package-pin-mismatch", "pins", what)
    resized = _resized(run) if run.ending["kind"] == "raised" else {}
    if resized and (run.in_flight or "import").startswith("import"):
        name = min(resized)
        check["evidence"]["packages"] = sorted(resized)
        what = "%s of %s is not of the size that was installed" % (resized[name][0], name)
        return run.proven("package-overwritten", "RECORD", what)
    if run.ending["kind"] in ("signal", "exit"):
        hashed = run_named(run.program, "hashes")
        damaged = dict(hashed.new_facts).get("damaged") or []
        what = "%(path)s: %(problem)s" % damaged[0] if damaged else "every library is as installed"
        run.prove("RECORD", "confirmed" if damaged else "refuted", what)
        if damaged:
            check["evidence"]["packages"] = damaged[0]["not_as_in"]
            return "package-overwritten"
    return None


def _resized(run):
    """{package: Python files of another size than was installed}, but for other frameworks' packages."""
    rows = read_frameworks().items()
    others = [row["packages"] for name, row in rows if name != run.stage.name and "packages" in row]
    other = re.compile("(?:%s)$" % "|".join(others))
    return {name: paths for name, paths in (run.facts.get("resized") or {}).items() if not other.match(name)}


def _by_loader(run, text):
    """Ask the loader about each library that the text names."""
    newer = TOO_OLD.search(text)
    if newer:
        return run.proven("libc-too-old", "the loader's answer", newer.group(0)[:300])
    mixed = re.search(r"\S+: version `(lib(?:cu|nv|nccl)[\w.]+)' not found.*", text)
    if mixed:
        return run.proven(_mixed(mixed.group(1)), "the loader's answer", mixed.group(0)[:300])
    loader = Loader()
    shim = (run.params.get("candidate") or {}).get("path")
    for name in _named(text):
        path = loader.resolve(name, shim)["path"]
        beside = os.path.join(os.path.dirname(os.path.realpath(shim)), name) if shim and not path else ""
        path = beside if os.path.exists(beside) else path
        if path is None:
            cause = absent_cause(name, loader, run.facts)
            test, answer = "resolve %s" % name, cause and "the loader finds no %s" % name
        else:
            test, answer = "dlerror of %s" % os.path.basename(path), dlerror_of(path)
            cause = answer and _by_dlerror(answer, loader, name, run.facts)
        if answer:
            run.prove(test, "confirmed", answer)
        if cause:
            return cause
    if re.search(r"VERSION_MISMATCH|undefined symbol: cudnn|version libcudnn\w*\.so", text):
        if shim is None:
            proof = "the sub-libraries' own version check, or a missing symbol of another version, says so"
            return run.proven("cudnn-sublibrary-mismatch", "sub-libraries", proof)
        folders = {os.path.dirname(loader.resolve(part, shim)["path"] or "?") for part in parts_of(shim)}
        proof = "shim %s, sub-libraries from %s" % (shim, ", ".join(sorted(folders)))
        run.prove("sub-libraries", "confirmed", proof)
        what = "the same stage with every file of %s preloaded" % os.path.dirname(shim)
        record(run, run.again("preloaded"), "preloaded", what)
        return "cudnn-sublibrary-mismatch"
    return None


def _mixed(text):
    """The cause for a symbol or a version that one library misses in another."""
    return "cudnn-sublibrary-mismatch" if "libcudnn" in text else "toolkit-mixed"


def _named(text):
    """Libraries that a message says could not be loaded, in order: the ones a dlerror names come first."""
    names = ABSENT_LIBRARY.findall(text)
    for group in re.findall(r"Unable to load any of \{([^}]*)\}", text):
        exact = [part.strip() for part in group.split(",") if re.search(r"\.so\.\d+$", part.strip())]
        names += exact[-1:]
    names += re.findall(r"Could not load library (lib[\w.]+?)\.? Error", text)
    named = r"(?:^|[\s:])(?:/\S*/)?(lib[\w.+-]+\.so[\w.]*): (?:file too short|invalid ELF|undefined symbol)"
    names += re.findall(named, text)
    return list(dict.fromkeys(names))


def absent_cause(name, loader, facts):
    """The cause for a library that the loader does not find; None for the driver's, if there is no GPU."""
    if re.match(r"libcuda\.so", name):
        if loader.resolve("libcuda.so.1")["path"]:
            return "unversioned-name-missing"
        return "driver-missing" if facts.get("gpu_state", "none") != "none" else None
    if name == "libcudnn.so" and any(loader.resolve("libcudnn.so.%d" % major)["path"] for major in (9, 8, 7)):
        return "unversioned-name-missing"
    families = (
        (r"libnvrtc", "nvrtc-missing"),
        (r"libcudnn_", "cudnn-sublibrary-missing"),
        (r"libcudnn", "cudnn-missing"),
        (_TOOLKIT, "toolkit-library-missing"),
    )
    found = next((cause for family, cause in families if re.match(family, name)), None)
    return found or ("package-overwritten" if owner_of(name) else "system-library-missing")


def owner_of(name):
    """The installed distribution whose RECORD lists a library of this name, or None."""
    for package, row in sorted(read_distributions(search_folders()).items()):
        if read_record(row, lambda path: path.rpartition("/")[2] == name):
            return package
    return None


def damaged_system_library(answer):
    """The library that the loader's message calls damaged, if no package has it and it is none of CUDA's."""
    found = re.search(
        r"(lib[\w.+-]+\.so[\w.]*): (?:file too short|invalid ELF header|ELF load command)", answer
    )
    name = found.group(1) if found else ""
    return name if name and not is_cuda_library(name) and not owner_of(name) else None


def _by_dlerror(answer, loader, name, facts):
    absent = ABSENT_LIBRARY.search(answer)
    if absent:
        return absent_cause(absent.group(1), loader, facts)
    if _CORRUPT.search(answer):
        if damaged_system_library(answer):
            return "system-library-missing"
        if "libcudnn" in name:
            return "cudnn-file-corrupt"
        return "toolkit-library-missing" if _TOOLKIT.match(name) else "package-overwritten"
    if "GLIBC" in answer or "CXXABI" in answer:
        return "libc-too-old"
    if MISSING_SYMBOL.search(answer):
        return _mixed(answer)
    if answer.startswith("the process died: signal 7"):
        return "cudnn-file-corrupt" if "libcudnn" in name else "package-overwritten"
    return None


def _by_fault(run, text):
    """A signal: a truncated file explains SIGBUS, a missing symbol an exit of 127."""
    shim = (run.params.get("candidate") or {}).get("path")
    if run.ending.get("signal") == 7 and shim:
        folder, loader = os.path.dirname(os.path.realpath(shim)), Loader()
        for name in sorted(name for name in os.listdir(folder) if "libcudnn" in name):
            problem = loader.problem(os.path.join(folder, name))
            if problem:
                return run.proven("cudnn-file-corrupt", "file headers", "%s: %s" % (name, problem))
    if re.search(r"has no function cudnn", text):
        return "cudnn-file-corrupt"
    if re.search(r"symbol lookup error", text):
        return _mixed(text)
    return None


def fallback(run):
    """The cause of a failure that nothing else explains."""
    importing = (run.in_flight or "import").startswith("import")
    if run.ending["kind"] == "raised" and run.stage.layer in USES_FRAMEWORK and importing:
        return "framework-import"
    alive = run.ending["kind"] not in ("signal", "exit") and run.stage.layer in (
        "convolution",
        "framework",
        "suite",
    )
    return "execution-failed" if alive else "crash"


# -- counter-tests: the stage that failed once more with one thing of its surroundings taken away
#
# If the stage then passes, that thing is the cause, and this the proof.

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
    """The file, read as Python starts, that puts a shadowing module first, if PYTHONPATH does not."""
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
    """Name the variable to blame: the first without which alone the stage passes."""
    names = sorted(name for name in os.environ if SETTINGS.match(name))
    for name in names[:12]:
        if len(names) == 1 or _cured(run.again("cleared-settings", settings=[name]), check):
            check["summary"] = "%s=%s: %s" % (name, os.environ[name], check["summary"])
            check["evidence"]["variable"] = name
            return
