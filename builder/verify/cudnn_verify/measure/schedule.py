"""All stages in their order, each in its child, and their results. The last stage looks at a running process
beside the probe (``--pid``, a notebook's kernel): its start, and its libraries.
"""

import os
import time
import traceback

from ..common.isolation import show_progress
from .consumers import resolver_stage
from .cudnn import convolution_stage, library_stage
from .driver import driver_stage
from .environment import environment_stage, start_environment
from .files import files_stage
from .fw_stages import SUGGESTED_SECONDS, coimport_stage, suite_stage
from .judge import default_judge, fallback
from .library_files import Loader, mapped_libraries
from .packages import packages_stage
from .protocol import GROUNDWORK, LAYERS, STAGES, USES_FRAMEWORK, own_fault, stage
from .run import Run, find_stage, run_named
from .runtime import kernels_stage, runtime_stage

# Their import registers them; the frameworks' come with coimport.
REGISTERED = (environment_stage, files_stage, packages_stage, resolver_stage, driver_stage, runtime_stage)
REGISTERED += (kernels_stage, library_stage, convolution_stage, coimport_stage, suite_stage)


def run_all(program):
    """Run the stages; returns (checks, libraries)."""
    checks, libraries = [], {}
    program.facts["suites_asked"] = list(program.options.get("suites") or ())
    program.facts["suites_suggested"] = list(program.options.get("suggested") or ())
    program.facts["suggested_until"] = time.time() + SUGGESTED_SECONDS
    for row in in_order():
        if not _wanted(row, program.options["only"], program.facts):
            continue
        show_progress(row.name)
        sound = True
        for params in _parameters(row, program.facts, checks):
            run = Run(program, row, params).start()
            try:
                _judge(row, run)
            except Exception as error:
                _judge_failed(row, run, error)
            checks.extend(run.checks)
            sound = sound and run.sound
            for key, value in run.new_facts:
                _take(program.facts, libraries, row, key, value)
        if row.layer == "framework" and sound:
            program.facts.setdefault("imported", []).append(row.name)
    return checks, [libraries[path] for path in sorted(libraries)]


def _parameters(row, facts, checks):
    """The parameters of each run of a stage; of none if the probe itself fails over them."""
    try:
        return [{}] if row.runs is None else row.runs(facts)
    except Exception as error:
        checks.append(own_fault(row.name, "H01", error, traceback.format_exc()))
        return []


def in_order():
    """The stages by layer, and by name within one."""
    return sorted((s for s in STAGES if s.layer in LAYERS), key=lambda s: (LAYERS.index(s.layer), s.name))


def _wanted(row, only, facts):
    if row.module and row.name not in facts.get("installed", {}):
        return False
    if row.layer == "suite" and row.name not in facts["suites_asked"] + facts["suites_suggested"]:
        return False
    if row.layer not in GROUNDWORK and (facts.get("ctypes") is False or facts.get("waits")):
        return False
    if only is None or row.layer in GROUNDWORK:
        return True
    # the driver's facts tell every later stage whether there is a GPU
    after = LAYERS[LAYERS.index("driver") + 1 :]
    return row.name == only or (row.layer == "driver" and find_stage(only).layer in after)


def _judge(row, run):
    kind = run.ending["kind"]
    own = row.layer in GROUNDWORK + ("session",)
    if kind == "raised" and (own or (run.in_flight is None and not _of_a_framework(row, run))):
        text = "the probe's own fault in the stage %s: %s" % (row.name, run.ending["text"])
        run.excuse("H01", text, {"probe_fault": run.ending["trace"]})
        return
    if own and kind != "done":
        run.excuse("H01", "the %s stage: %s" % (row.name, run.ending["text"]), {"kernel": run.kernel})
        return
    (row.judge or default_judge)(run)
    failed = [check for check in run.checks if check["outcome"] == "failed"]
    unexplained = run.ending["kind"] != "done" and not run.excused and not failed
    if unexplained or any(check["cause"] is None for check in failed):
        default_judge(run)


def _of_a_framework(row, run):
    """True for an exception that a framework may have brought about outside of an announced call."""
    return row.layer in USES_FRAMEWORK and not run.ending["own"]


def _judge_failed(row, run, error):
    """A judge fell over: failed checks go on failing, by the cause that needs no judge."""
    run.checks.append(own_fault(row.name, "H01", error, traceback.format_exc()))
    for check in run.checks:
        if check["outcome"] == "failed" and check["cause"] is None:
            check["cause"] = fallback(run)


def _take(facts, libraries, row, key, value):
    if key == "framework":
        # a stage tells early what it knows and completes it later
        others = [other for other in facts.get("frameworks", ()) if other.get("name") != value.get("name")]
        facts["frameworks"] = others + [value]
    elif key == "raw":
        facts.setdefault("raw", []).append(value)
    elif key == "libraries":
        for library in value:
            fresh = {"name": library["name"], "path": library["path"], "mapped_by": []}
            entry = libraries.setdefault(library["path"], fresh)
            entry["version"] = library.get("version") or entry.get("version")
            if row.name not in entry["mapped_by"]:
                entry["mapped_by"].append(row.name)
    else:
        facts[key] = value


def judge_session(run):
    """Variables that were changed later matter only if cuDNN loads with them and not without."""
    late = dict(run.new_facts).get("late")
    if not late:
        return
    for candidate in run.facts.get("candidates", ())[:1]:
        now = run_named(run.program, "cudnn", candidate=candidate).sound
        then = _sound_then(run.program, candidate, {name: start for name, (start, _) in late.items()})
        outcome = "confirmed" if now and not then else "refuted"
        detail = "cuDNN %s with the variables as they are, %s as the process was started"
        words = {True: "loads", False: "does not load"}
        run.prove("start environment", outcome, detail % (words[now], words[then]))
        if outcome == "confirmed":
            names = ", ".join(sorted(late))
            text = "%s was changed inside the process: a new one would find cuDNN, this one does not" % names
            run.fail("E02", text, "env-set-too-late", {"late": late})


def _sound_then(program, candidate, environment):
    """Whether the process, as it was started, could load the cuDNN that the loader would have given it."""
    if candidate["by"] == "LD_LIBRARY_PATH":
        loader = Loader(library_path=environment.get("LD_LIBRARY_PATH") or "")
        path = loader.resolve(os.path.basename(candidate["path"]))["path"]
        if path is None:
            return False
        candidate = dict(candidate, path=path)
    return run_named(program, "cudnn", candidate=candidate, environment=environment).sound


@stage("session", layer="session", timeout=20, judge=judge_session)
def session_stage(ctx):
    pid = ctx.params.get("pid")
    if pid is None:
        return
    start, libraries = start_environment(pid), mapped_libraries(pid)
    if start is None or libraries is None:
        ctx.not_run("C05", "nothing can be seen of process %d" % pid)
        return
    names = ("LD_LIBRARY_PATH", "LD_PRELOAD")
    pairs = {name: (start.get(name), os.environ.get(name)) for name in names}
    late = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    ctx.fact("late", late)
    deleted = [row["path"] for row in libraries if row["deleted"]]
    evidence = {"pid": pid, "libraries": libraries, "late": late}
    if deleted:
        text = "process %d still holds %s, which was replaced on disk" % (pid, deleted[0])
        ctx.fails("C05", text, "stale-process", evidence)
        return
    note = "%s differs from what the process was started with, and has no effect in it" % ", ".join(late)
    ctx.passed("C05", "process %d holds no library that is gone from disk" % pid, evidence, late and note)
