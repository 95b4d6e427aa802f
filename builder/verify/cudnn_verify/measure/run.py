"""One run of a stage as the parent sees it: its checks, how it ended, and counter-tests on demand."""

import os
import re

from ..common.isolation import user_path
from .library_files import preload_order, shim_name
from .protocol import GROUNDWORK, new_check
from .runner import execute, find_stage

_CLEARED = {
    "cleared-path": "LD_LIBRARY_PATH",
    "cleared-preload": "LD_PRELOAD",
    "visible": "CUDA_VISIBLE_DEVICES",
}
SETTINGS = re.compile(
    r"(?!TF_VAR_|TF_TOKEN_|TF_CLI_)"  # Terraform's
    r"(XLA|TF|JAX|PYTORCH|TORCH|OMP|KMP|GOMP|MKL|OPENBLAS|ORT|CT2|FLAGS|CUDNN|CUPY|TRITON|NCCL|CUDA_(?:MODULE|FORCE|DISABLE|INJECTION|PATH)|LD_BIND|MALLOC|GLIBC)_"
)
"""Variables that steer a framework, and that some value of can end it."""
# Counter-tests for which the probe starts anew: variables, Python's start-up, the loader's own files.
_ANEW = set(_CLEARED) | {"cleared-settings", "no-preload-file", "no-site"}
COUNTER_TESTS = tuple(sorted(_ANEW)) + ("preloaded", "small", "unlimited", "unshadowed")


class Program(object):
    """Shared by all runs: options, facts so far, proof so far, the command that starts the probe anew."""

    def __init__(self, options, command):
        self.options, self.command = options, command
        self.facts, self.proof = {}, []


class Run(object):
    """See the module's first line; the stage's judge may change ``checks``, and nothing else."""

    def __init__(self, program, stage, params, counter=()):
        self.program, self.stage, self.params = program, stage, params
        self.counter = frozenset(counter)
        self.checks, self.new_facts = [], []
        self.ending = self.in_flight = self.mapped = self.kernel = None
        self.stderr, self.excused = "", False
        self.facts = program.facts  # of the stages before this one

    @property
    def sound(self):
        """True if the child came to its end and no check failed."""
        return self.ending["kind"] == "done" and not any(c["outcome"] == "failed" for c in self.checks)

    def start(self):
        if "preloaded" in self.counter:
            self.params = dict(self.params, preload=self._whole_set())
        facts = self._facts_of_environment()
        params = dict(self.params, facts=facts, counter=sorted(self.counter), **self.program.options)
        command, users_limit = self.program.command, self.program.options.get("timeout")
        if "no-site" in self.counter:
            command = command[:1] + ["-S"] + command[1:]
            params["path"] = list(user_path())
        limit = users_limit or self.stage.timeout
        anew = (self._environment(), command, users_limit is None)
        self._take(execute(self.stage.name, params, limit, *anew), limit)
        return self

    def _facts_of_environment(self):
        """The facts so far, with the places of files under the variables of this counter-test.

        Which file a name means was worked out under the parent's variables. A candidate is replaced by the
        one that the same program would get.
        """
        if "cleared-path" not in self.counter or self.stage.layer in GROUNDWORK:
            return self.facts
        fresh = dict(run_named(self.program, "files", ["cleared-path"]).new_facts)
        mine = self.params.get("candidate")
        if mine and fresh.get("candidates"):
            same = [row for row in fresh["candidates"] if row["for"] == mine["for"]]
            self.params = dict(self.params, candidate=(same or fresh["candidates"])[0])
        return dict(self.facts, **fresh)

    def _whole_set(self):
        """The files of the cuDNN in the candidate's own folder, for preloading."""
        folder = os.path.dirname(os.path.realpath((self.params.get("candidate") or {}).get("path") or ""))
        here = [major for major in (9, 8, 7) if os.path.exists(os.path.join(folder, shim_name(major)))]
        return preload_order(folder, here[0]) if here else []

    def _environment(self):
        changed = self.params.get("environment") or {}
        if not changed and not self.counter & _ANEW:
            return None
        dropped = [_CLEARED[test] for test in self.counter if test in _CLEARED]
        if "cleared-settings" in self.counter:
            dropped += self.params.get("settings") or [name for name in os.environ if SETTINGS.match(name)]
        values = dict(os.environ, **changed)
        return {name: value for name, value in values.items() if name not in dropped and value is not None}

    def _take(self, outcome, limit):
        stack, last = [], {"t": None}
        for line in outcome.lines:
            last = line
            if line["t"] == "enter":
                stack.append(line["call"])
            elif line["t"] == "leave" and stack:
                left = stack.pop()
                self.in_flight = left if line["failed"] else None
            elif line["t"] == "check":
                self.checks.append({key: value for key, value in line.items() if key not in ("t", "at")})
            elif line["t"] == "fact":
                self.new_facts.append((line["key"], line["value"]))
        self.stderr, self.mapped, self.kernel = outcome.stderr, outcome.mapped, outcome.kernel
        more = {}
        if last["t"] == "end":
            kind, text = "done", ""
        elif last["t"] == "raised":
            kind, text = "raised", "%s: %s" % (last["kind"], last["text"])
            said = " ".join(self.stderr.split())[:200]
            text += "; before it: " + said if said and "without a text, at " in text else ""
            more = {"trace": last["trace"], "chain": last["chain"], "own": last["own"]}
        elif outcome.hang:
            kind, text = "hang", "no answer within %g s" % limit
        elif outcome.signal is not None:
            kind, text, more = "signal", signal_text(outcome.signal), {"signal": outcome.signal}
        else:
            kind, text, more = "exit", "exit status %s" % outcome.code, {"code": outcome.code}
        self.ending = dict(more, kind=kind, text=text)
        if stack:
            self.in_flight = stack[-1]

    def again(self, *counter, **params):
        """The same stage once more under counter-tests; nothing of it is reported."""
        unknown = set(counter) - set(COUNTER_TESTS)
        if unknown:
            raise ValueError("no such counter-test: %s" % ", ".join(sorted(unknown)))
        return Run(self.program, self.stage, dict(self.params, **params), self.counter | set(counter)).start()

    def prove(self, test, outcome, detail):
        row = {"stage": self.stage.name, "test": test, "outcome": outcome, "detail": detail}
        self.program.proof.append(row)

    def proven(self, cause, test, detail):
        """The cause, once the test that confirms it is in the proof."""
        self.prove(test, "confirmed", detail)
        return cause

    def fail(self, id, summary, cause, evidence=None):
        """Add a failed check, and give it back."""
        self.checks.append(new_check(self.stage.name, id, "failed", summary, cause, evidence))
        return self.checks[-1]

    def excuse(self, id, reason, evidence=None):
        """Add a check that could not be run; it accounts for the end of the run."""
        self.checks.append(new_check(self.stage.name, id, "not_run", reason, evidence=evidence))
        self.excused = True


def signal_text(number):
    """The meaning of a signal for a library: ``killed by signal 7 (SIGBUS: ...)``."""
    meaning = {
        4: "SIGILL: an instruction that this processor lacks",
        6: "SIGABRT: the library gave up",
        7: "SIGBUS: a mapped file is shorter than it says",
        9: "SIGKILL: killed from outside, mostly for memory",
        11: "SIGSEGV: a bad memory access",
        15: "SIGTERM: asked to stop from outside",
    }
    return "killed by signal %d%s" % (number, " (%s)" % meaning[number] if number in meaning else "")


def run_named(program, name, counter=(), **params):
    """Start a stage by its name, for a counter-test from another stage's judge."""
    return Run(program, find_stage(name), params, counter).start()
