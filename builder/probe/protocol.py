"""How a stage tells its parent what it does: one JSON line before and after every risky call.

A stage is a function ``stage(ctx)`` that runs in a child process of its own. cuDNN aborts the process over
a missing sub-library and a truncated file kills it with SIGBUS, so the parent must know which call was in
flight when the child died or had to be stopped: that is the last ``enter`` line without a ``leave``.
"""

import json
import os
import time
from collections import namedtuple

WITHOUT_CUDA = "--expect asks for no CUDA (provider none), so its absence is no fault"
PASSED = "passed"
FAILED = "failed"
NOT_RUN = "not_run"

LAYERS = (
    "environment",
    "files",
    "packages",
    "resolver",
    "driver",
    "runtime",
    "cudnn",
    "convolution",
    "framework",
    "coimport",
    "session",
)
# Layers that load nothing: every other stage goes by their facts.
GROUNDWORK = ("environment", "files", "packages", "resolver")
# Stages of this layer are never scheduled; judges start them.
COUNTER_LAYER = "counter-test"

Stage = namedtuple("Stage", "name layer function timeout modules runs judge")


class Call(object):
    """One risky call: ``with ctx.call("cudnnCreate") as call: call.result = create(...)``."""

    def __init__(self, ctx, name, detail):
        self.ctx = ctx
        self.name = name
        self.detail = detail
        self.result = None

    def __enter__(self):
        self.ctx.send({"t": "enter", "call": self.name, "detail": self.detail})
        return self

    def __exit__(self, kind, error, trace):
        line = {"t": "leave", "call": self.name, "result": self.result}
        if error is not None:
            line["error"] = "%s: %s" % (kind.__name__, error)
        self.ctx.send(line)
        return False


class Ctx(object):
    """What a stage function receives.

    ``params`` holds what the parent knows: ``facts`` of earlier stages by key, the options ``strict``,
    ``no_gpu`` and ``expect``, the names of counter-tests under way in ``counter``, and what the stage's
    ``runs`` adds.
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
        self.failed = False
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

    def call(self, name, **detail):
        """Context manager around a call that may abort, hang or be killed."""
        return Call(self, name, detail)

    def check(self, id, outcome, summary, cause=None, evidence=None, note=None):
        """Report one check of the list E01 ... S01.

        ``outcome`` is ``passed``, ``failed`` or ``not_run``; ``cause`` is an id of the closed list, and may
        be left out of a failed check where the stage's ``judge`` decides by counter-tests. ``note`` marks a
        pass that a person should know about.
        """
        if outcome not in (PASSED, FAILED, NOT_RUN):
            raise ValueError("no such outcome: %r" % (outcome,))
        self.failed = self.failed or outcome == FAILED
        line = {"t": "check", "id": id, "outcome": outcome, "summary": summary}
        line.update(cause=cause, evidence=evidence or {}, note=note)
        self.send(line)

    def passed(self, id, summary, evidence=None, note=None):
        self.check(id, PASSED, summary, evidence=evidence, note=note)

    def fails(self, id, summary, cause=None, evidence=None):
        self.check(id, FAILED, summary, cause=cause, evidence=evidence)

    def not_run(self, id, reason, evidence=None):
        self.check(id, NOT_RUN, reason, evidence=evidence)

    def fact(self, key, value):
        """Hand a value to later stages and to the report.

        Keys with a place in the report: ``framework`` (appended to ``frameworks``), ``libraries`` (merged by
        path), ``driver``, ``gpus``, ``python``. Every other key is replaced by its last value.
        """
        self.send({"t": "fact", "key": key, "value": value})


STAGES = []


def stage(name, layer, timeout=60, modules=(), runs=None, judge=None):
    """Register a stage function.

    ``timeout`` in seconds. ``modules`` of a ``framework`` stage: the import names of which one must be
    installed for the stage to run. ``runs(facts)`` gives a list of parameter dicts, one child each; the
    default is one run without parameters, and an empty list means that there is nothing to do here.
    ``judge(run)`` turns what came back into checks in the parent, with counter-tests at hand; see
    :mod:`judge`.
    """
    if layer not in LAYERS + (COUNTER_LAYER,):
        raise ValueError("no such layer: %r" % (layer,))

    def register(function):
        STAGES.append(Stage(name, layer, function, timeout, tuple(modules), runs, judge))
        return function

    return register
