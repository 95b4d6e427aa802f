"""The lines from a stage to its parent, one in JSON before and after every risky call; and the shape of what
they hold.

A stage is a function ``stage(ctx)`` that runs in a child process of its own. cuDNN aborts the process over
a missing sub-library and a truncated file kills it with SIGBUS, so the parent must know which call was in
flight when the child died or had to be stopped: that is the last ``enter`` line without a ``leave``.
"""

import json
import os
import time
import traceback
from collections import namedtuple
from contextlib import contextmanager

WITHOUT_CUDA = "--expect asks for no CUDA (provider none), so its absence is no fault"

LAYERS = ("environment", "files", "packages", "resolver", "driver", "runtime", "cudnn", "convolution")
LAYERS += ("framework", "coimport", "imports", "suite", "session")
# Layers that load nothing: every other stage goes by their facts.
GROUNDWORK = ("environment", "files", "packages", "resolver")
USES_FRAMEWORK = ("framework", "coimport", "imports", "suite")
# Stages of this layer are never scheduled; judges start them.
COUNTER_LAYER = "counter-test"


class UsageError(Exception):
    """There is no answer, and one line says why: to the command line, to a file that it names."""


def new_check(stage_name, id, outcome, summary, cause=None, evidence=None, note=None):
    """A check as the report has it; an empty or false ``note`` is none. ShapeError: :func:`check_shapes`."""
    check_shapes(EVIDENCE_SHAPES, evidence or {})
    return {
        "id": id,
        "stage": stage_name,
        "outcome": outcome,
        "summary": summary,
        "cause": cause,
        "evidence": evidence or {},
        "note": note or None,
    }


def own_fault(stage_name, id, error, trace):
    """The check that an exception in the probe's own code leaves: it did not pass, and blames nobody."""
    evidence = {"probe_fault": trace.splitlines()[-40:]}
    text = "the probe's own fault in this check: %s: %s" % (type(error).__name__, error)
    return new_check(stage_name, id, "not_run", text, evidence=evidence)


Stage = namedtuple("Stage", "name layer function timeout module runs judge")


class Ctx(object):
    """The context that a stage function receives.

    ``params`` comes from the parent: ``facts`` of earlier stages by key, the options ``strict``, ``no_gpu``
    and ``expect``, the names of counter-tests under way in ``counter``, and what the stage's ``runs`` adds.
    """

    def __init__(self, stage, params, fd):
        self.stage = stage
        self.params = params
        self.facts = params.get("facts", {})
        self.strict = bool(params.get("strict"))
        self.no_gpu = bool(params.get("no_gpu"))
        self.thorough = bool(params.get("thorough"))
        self.expect = params.get("expect") or {}
        self.without_cuda = (self.expect.get("cuda") or {}).get("provider") == "none"
        self.counter = frozenset(params.get("counter", ()))
        self.fd = fd
        self.start = time.time()

    def send(self, line):
        """Write one line to the parent; a line is complete or, if the parent is gone, the stage ends."""
        line["at"] = round(time.time() - self.start, 4)
        data = (json.dumps(line, default=str, sort_keys=True) + "\n").encode("ascii")
        while data:
            data = data[os.write(self.fd, data) :]

    def extend(self, seconds):
        """Ask for a longer limit: this many seconds from now. A ``--timeout`` of the user's stands."""
        self.send({"t": "limit", "seconds": seconds})

    @contextmanager
    def call(self, name):
        """Bracket one call that may abort, hang or be killed: the parent knows that it was in flight."""
        self.send({"t": "enter", "call": name})
        failed = True
        try:
            yield
            failed = False
        finally:
            self.send({"t": "leave", "failed": failed})

    def attempt(self, id, function, *arguments):
        """Call a check that loads nothing; an exception in it is the probe's own, and ends it alone."""
        try:
            return function(*arguments)
        except Exception as error:
            self.send(dict(own_fault(self.stage, id, error, traceback.format_exc()), t="check"))
            return True

    def passed(self, id, summary, evidence=None, note=None):
        """Report a check that passed, and give back true; ``note`` is a remark for people."""
        return self._check(id, "passed", summary, evidence=evidence, note=note)

    def fails(self, id, summary, cause=None, evidence=None):
        """Report a check that failed, and give back false. Without a cause its judge finds one."""
        return self._check(id, "failed", summary, cause, evidence)

    def not_run(self, id, reason, evidence=None):
        """Report a check that could not be run, and give back true: nothing failed."""
        return self._check(id, "not_run", reason, evidence=evidence)

    def _check(self, id, outcome, *row, **rest):
        self.send(dict(new_check(self.stage, id, outcome, *row, **rest), t="check"))
        return outcome != "failed"

    def fact(self, key, value):
        """Hand a value to later stages and to the report.

        Keys with a place in the report: ``framework`` (appended to ``frameworks``), ``libraries`` (merged by
        path), ``driver``, ``gpus``, ``python``. Every other key is replaced by its last value.
        """
        check_shapes(FACT_SHAPES, {key: value})
        self.send({"t": "fact", "key": key, "value": value})


STAGES = []


def stage(name, layer, timeout=60, module=None, runs=None, judge=None):
    """Register a stage function.

    ``timeout`` in seconds. ``module`` of a ``framework`` stage: the import name without which it is not run.
    ``runs(facts)`` gives a list of parameter dicts, one child each; by default one child without any.
    ``judge(run)`` turns the outcome into checks in the parent, with counter-tests at hand: :mod:`judge`.
    """
    if layer not in LAYERS + (COUNTER_LAYER,):
        raise ValueError("no such layer: %r" % (layer,))

    def register(function):
        STAGES.append(Stage(name, layer, function, timeout, module, runs, judge))
        return function

    return register


# -- the shape of what one part of the probe stores and another reads: evidence of checks, and facts
#
# A key has one shape, whichever check or stage stores it; other keys are for people. A shape is a type, None,
# a tuple of alternatives, [shape] for a list, {str: shape} for a map, or {"key": shape, ...} for a record,
# which may hold other keys, too.

_TEXT_OR_NONE = (str, None)
_TEXTS = [str]
_REQUIREMENT = {"by": str, "wants": str, "name": str}
"""A requirement that is not met: ``torch 2.9.1``, ``nvidia-nccl-cu12==2.27.5``, the canonical name."""

EVIDENCE_SHAPES = {
    "absent": [{"name": str, "by": str}],  # libraries that are not found, and who needs them
    "by": str,
    "by_status": _TEXT_OR_NONE,
    "builtins": _TEXT_OR_NONE,
    "cannot be opened": {str: str},  # library: the loader's message
    "card": int,
    "changed": [{"path": str, "not_as_in": _TEXTS, "as_in": _TEXTS}],
    "closed": _TEXTS,
    "compiled": (str, dict, None),
    "cured_by": str,
    "dlerror": str,
    "ending": {"kind": str, "text": str},
    "framework": str,
    "header": str,
    "imports": {str: _TEXT_OR_NONE},  # statement: the last line of its traceback, None if it ran
    "loaded": (str, dict, None),
    "lost": [_REQUIREMENT],
    "memory": (bool, int),
    "missed": [_REQUIREMENT],
    "not_installed": [_REQUIREMENT],
    "not_as_installed": _TEXTS,
    "off": _TEXTS,
    "otherwise": str,
    "packages": _TEXTS,
    "probe_fault": _TEXTS,
    "problem": str,
    "remarks": _TEXTS,
    "rule": _TEXT_OR_NONE,
    "rows": [dict],
    "set_by": str,
    "shadow": str,
    "stderr": str,
    "types": dict,
    "unloadable": [{"package": str, "file": str, "library": str, "fault": str}],
    "variable": str,
    "wanted_majors": [int],
    "weak": bool,
    "yields": bool,
}

_COPY = {"folder": str, "major": int, "kind": str, "shim": str, "missing": _TEXTS}
_GPU = {"name": str, "compute_capability": str}
_FILE = {"name": str, "path": str}
_DISTRIBUTION = {"name": str, "version": str, "location": str, "info": str, "requires": _TEXTS}

FACT_SHAPES = {
    "candidates": [{"path": str, "by": str, "for": _TEXT_OR_NONE}],
    "coimport": {"order": _TEXTS, "cudnn": {str: str}, "files": _TEXTS},
    "consumers": [{"framework": str, "requester": str, "name": str, "optional": bool, "cuda": _TEXT_OR_NONE}],
    "copies": [_COPY],
    "ctypes": bool,
    "damaged": [{"path": str, "not_as_in": _TEXTS, "problem": str}],
    "driver": {"version": _TEXT_OR_NONE, "api": _TEXT_OR_NONE, "path": str},
    "framework": {"name": str, "version": str, "compiled": {str: _TEXT_OR_NONE}, "loaded": dict},
    "gpu_state": str,
    "gpus": [_GPU],
    "imports_asked": _TEXTS,
    "installed": {str: str},
    "late": {str: [_TEXT_OR_NONE]},
    "libraries": [_FILE],
    "libraries_found": [dict(_FILE, real=str, kind=str, problem=_TEXT_OR_NONE)],
    "machine": {"python": str, "executable": str, "machine": str},
    "mapped_at_start": _TEXTS,
    "not_installed": [_REQUIREMENT],
    "nvrtc": _TEXT_OR_NONE,
    "orphans": [{"folder": str, "major": int, "files": int}],
    "packages": {str: _DISTRIBUTION},
    "python": {"version": str, "executable": str},
    "raw": {"path": str, "version": _TEXT_OR_NONE},
    "resized": {str: _TEXTS},
    "shadowed_modules": {str: str},
    "strangers": {str: str},
    "system_packages": {str: str},
    "test_double": (bool, int),
    "uncompared": _TEXTS,
    "unmet": [_REQUIREMENT],
    "variables": {str: str},
    "waits": _TEXTS,
    "wheel_folders": _TEXTS,
}


class ShapeError(Exception):
    """One part of the probe stored what another could not read."""


def check_shapes(table, values):
    """Raise ShapeError for the first value whose key is in the table and whose shape is another."""
    for key in sorted(set(values) & set(table)):
        fault = _fault(table[key], values[key], key)
        if fault:
            raise ShapeError(fault)


def _fault(shape, value, where):
    """The fault of a value, with its place; None if the value has the shape."""
    if isinstance(shape, tuple):
        faults = [_fault(one, value, where) for one in shape]
        return None if None in faults else faults[0]
    if isinstance(shape, list):
        parts = enumerate(value) if isinstance(value, (list, tuple)) else None
        inner = [(shape[0], part, "%s[%d]" % (where, index)) for index, part in parts or ()]
    elif isinstance(shape, dict):
        parts = value if isinstance(value, dict) else None
        pairs = [(key, shape.get(key, shape.get(str))) for key in (parts or () if str in shape else shape)]
        if parts is not None and not {key for key, _ in pairs} <= set(parts):
            return "%s lacks %s" % (where, ", ".join(sorted({key for key, _ in pairs} - set(parts))))
        inner = [(part, parts[key], "%s.%s" % (where, key)) for key, part in pairs if parts is not None]
    else:
        fits = value is None if shape is None else isinstance(value, shape)
        name = "None" if shape is None else shape.__name__
        return None if fits else "%s is %s and no %s" % (where, type(value).__name__, name)
    if parts is None:
        return "%s is %s and no %s" % (where, type(value).__name__, type(shape).__name__)
    return next(filter(None, (_fault(*row) for row in inner)), None)
