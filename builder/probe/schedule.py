"""All stages in their order, each in its child, and their results."""

from .consumers import resolver_stage
from .convolution import convolution_stage
from .driver import driver_stage
from .environment import environment_stage
from .files import files_stage
from .fw_stages import coimport_stage
from .isolation import show_progress
from .judge import default_judge
from .library import library_stage
from .packages import packages_stage
from .protocol import GROUNDWORK, LAYERS, STAGES
from .run import Run
from .runner import find_stage
from .runtime import runtime_stage
from .session import session_stage

# Their import registers them; the frameworks' come with coimport.
REGISTERED = (environment_stage, files_stage, packages_stage, resolver_stage, driver_stage, runtime_stage)
REGISTERED += (library_stage, convolution_stage, coimport_stage, session_stage)


class ProbeFaultError(Exception):
    """The probe itself failed: an exception in one of its own stages, outside any call it made."""

    def __init__(self, stage_name, trace):
        Exception.__init__(self, "stage %s: %s" % (stage_name, trace[-1] if trace else "no trace"))
        self.trace = trace


def run_all(program):
    """Run the stages; returns (checks, libraries)."""
    checks, libraries = [], {}
    for row in in_order():
        if not _wanted(row, program.options["only"], program.facts):
            continue
        show_progress(row.name)
        sound = True
        for params in [{}] if row.runs is None else row.runs(program.facts):
            run = Run(program, row, params).start()
            _judge(row, run)
            checks.extend(run.checks)
            sound = sound and run.sound
            for key, value in run.new_facts:
                _take(program.facts, libraries, row, key, value)
        if row.layer == "framework" and sound:
            program.facts.setdefault("imported", []).append(row.name)
    return checks, [libraries[path] for path in sorted(libraries)]


def in_order():
    """The stages by layer, and by name within one."""
    return sorted((s for s in STAGES if s.layer in LAYERS), key=lambda s: (LAYERS.index(s.layer), s.name))


def _wanted(row, only, facts):
    if row.module and row.name not in facts.get("installed", {}):
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
    if kind == "raised" and (own or (run.in_flight is None and row.layer not in ("framework", "coimport"))):
        raise ProbeFaultError(row.name, run.ending["trace"])
    if own and kind != "done":
        run.excuse("H01", "the %s stage: %s" % (row.name, run.ending["text"]), {"kernel": run.kernel})
        return
    (row.judge or default_judge)(run)
    failed = [check for check in run.checks if check["outcome"] == "failed"]
    unexplained = run.ending["kind"] != "done" and not run.excused and not failed
    if unexplained or any(check["cause"] is None for check in failed):
        default_judge(run)


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
