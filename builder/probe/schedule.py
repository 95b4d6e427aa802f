"""All stages in their order, each in its child, and their results."""

from .judge import default_judge
from .protocol import GROUNDWORK, LAYERS, STAGES
from .run import Run
from .runner import find_stage


class ProbeFaultError(Exception):
    """The probe itself failed: an exception in one of its own stages, outside any call it made."""

    def __init__(self, stage_name, trace):
        Exception.__init__(self, "stage %s: %s" % (stage_name, trace[-1] if trace else "no trace"))
        self.trace = trace


def run_all(program, only, progress):
    """Run the stages; returns (checks, libraries). ``progress(stage name)`` is called before each."""
    checks, libraries = [], {}
    for row in in_order():
        if not _wanted(row, only, program.facts):
            continue
        progress(row.name)
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
    if row.modules and row.name not in facts.get("installed", {}):
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
    if row.layer in GROUNDWORK + ("session",) and kind != "done":
        if kind == "raised":
            raise ProbeFaultError(row.name, run.ending["trace"])
        run.excuse("H01", "the %s stage: %s" % (row.name, run.ending["text"]), {"kernel": run.kernel})
        return
    if kind == "raised" and run.in_flight is None and row.layer not in ("framework", "coimport"):
        raise ProbeFaultError(row.name, run.ending["trace"])
    judge = row.judge or default_judge
    judge(run)
    if any(check["outcome"] == "failed" and check["cause"] is None for check in run.checks):
        default_judge(run)
    elif run.ending["kind"] != "done" and not run.excused:
        if not any(check["outcome"] == "failed" for check in run.checks):
            default_judge(run)


def _take(facts, libraries, row, key, value):
    if key == "framework":
        rows = facts.setdefault("frameworks", [])
        # a stage tells early what it knows and completes it later
        rows[:] = [row for row in rows if row.get("name") != value.get("name")] + [value]
    elif key == "raw":
        facts.setdefault("raw", []).append(value)
    elif key == "libraries":
        for library in value or ():
            fresh = {"name": library["name"], "path": library["path"], "mapped_by": []}
            entry = libraries.setdefault(library["path"], fresh)
            entry["version"] = library.get("version") or entry.get("version")
            if row.name not in entry["mapped_by"]:
                entry["mapped_by"].append(row.name)
    elif key == "test_double":
        facts["test_double"] = bool(value) or facts.get("test_double", False)
    else:
        facts[key] = value
