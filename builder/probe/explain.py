"""Causes by a failure's own words, by the machine and by packages, if no counter-test has found one."""

import re

from .machine_limits import lacks_memory, memory_limit, no_temporary_folder, on_noexec_mount
from .run import run_named

# Lines that frameworks log on every machine, and that say nothing about this failure.
_LOG_LINE = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[\d.,:]*:? *[\[(]?[IWE]\b|[IWE]\d{4} |(DEBUG|INFO|WARNING|ERROR)\b|"
    r".*Could not load dynamic library|.*\[[A-Z]:onnxruntime|.*(Futur|User|Deprecation|Runtime)eWarning|"
    r".*(User|Deprecation|Runtime)Warning"
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
    paths = re.findall(r"(/[^\s:'\"]+)", text)
    if "failed to map segment" in text and "Cannot allocate" not in text:
        mounted = [path for path in paths if on_noexec_mount(path)]
        if mounted:
            run.prove("mount options", "confirmed", "%s lies on a file system mounted noexec" % mounted[0])
            return "noexec-mount"
    if killed or lacks_memory(text):
        what = "a limit of %d MiB by %s" % (limit >> 20, who) if limit else "the machine has no more to give"
        end = "the kernel killed it" if killed else "it got no memory"
        run.prove("memory", "confirmed", "%s; %s" % (end, what))
        return "host-memory"
    if limit is not None and who.startswith("ulimit") and run.ending["kind"] in ("signal", "exit"):
        run.prove("memory", "confirmed", "it died under a limit of %d MiB by %s" % (limit >> 20, who))
        return "host-memory"
    full = no_temporary_folder()
    if full and re.search(r"tempor|No space left|Read-only file system|tmp", text, re.I):
        run.prove("temporary files", "confirmed", full)
        return "no-temporary-space"
    if re.search(r"Permission denied|PermissionError|Errno 13\b", text):
        run.prove("permissions", "confirmed", text.splitlines()[0][:300])
        return "file-access-denied"
    return None


def by_packages(run, check, text):
    """The cause if a package is not of the version that was asked for, or a file is damaged; or None."""
    stranger = (run.facts.get("strangers") or {}).get(run.stage.name)
    if stranger:
        run.prove("the module's file", "confirmed", "%s is not the file that pip installed" % stranger)
        return "module-shadowed"
    about = text + "\n" + "\n".join(run.ending.get("trace", ()))
    if run.ending["kind"] == "raised":
        for entry in run.facts.get("unmet", ()):
            word = r"\b%s\b" % re.escape(entry["name"].replace("-", "_"))
            if re.search(word, about.replace("-", "_"), re.I):
                run.prove("pins", "confirmed", "%(by)s needs %(wants)s, installed is %(found)s" % entry)
                return "package-pin-mismatch"
    if run.ending["kind"] in ("signal", "exit"):
        hashed = run_named(run.program, "hashes")
        damaged = dict(hashed.new_facts).get("damaged") or []
        what = "%(path)s: %(problem)s" % damaged[0] if damaged else "every library is as installed"
        run.prove("RECORD", "confirmed" if damaged else "refuted", what)
        if damaged:
            check["evidence"]["packages"] = damaged[0]["not_as_in"]
            return "package-overwritten"
    return None
