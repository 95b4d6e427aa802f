"""Runs of stages: a child for each, followed to its end, and its checks; counter-tests on demand.

A child is a fork of the parent, which is single-threaded and has never loaded CUDA; a counter-test that
needs other start-up variables (the loader reads LD_LIBRARY_PATH only at exec) executes the probe's own file
anew.
"""

import json
import os
import re
import resource
import select
import signal
import time
import traceback
import warnings

from ..common.distributions import read_text
from ..common.isolation import USER_PATH, flush_output, return_to_user, user_path
from .cuda import need_ctypes, open_library
from .environment import hide_preload_file, memory_limit, raise_memory_limits, restore_file_limit
from .library_files import mapped_libraries, preload_order, shim_name
from .protocol import GROUNDWORK, STAGES, USES_FRAMEWORK, Ctx, ShapeError, new_check

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
    """One run of a stage as the parent sees it; its judge may change ``checks``, and nothing else."""

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
        """Run the same stage once more under counter-tests; nothing of it is reported."""
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


# -- children: started, followed by their lines and the tail of their stderr, stopped after their limit


def find_stage(name):
    return next((row for row in STAGES if row.name == name), None)


def child_main(name, params, fd):
    """Run a stage in this process and leave; the exit status says nothing, the lines do."""
    ctx = Ctx(name, params, fd)
    try:
        for path in params.get("preload") or ():
            with ctx.call("dlopen %s" % os.path.basename(path)):
                open_library(path, mode=need_ctypes().RTLD_GLOBAL)
        if params.get("path"):
            USER_PATH[:] = params["path"]
        if "unlimited" in ctx.counter:
            raise_memory_limits()
            who = memory_limit()[1]
            ctx.fact("kept_limit", who if who and who.startswith("ulimit") else None)
        row = find_stage(name)
        if row.layer in USES_FRAMEWORK:
            return_to_user("unshadowed" not in ctx.counter)
            restore_file_limit()
            # PYTHONWARNINGS=error is for the user's calls, not for a call of the probe's own
            warnings.filterwarnings("ignore", module=re.escape(__name__.rpartition(".")[0] or __name__))
        row.function(ctx)
        ctx.send({"t": "end"})
    except BaseException as error:
        lines = traceback.format_exc().splitlines()
        text = str(error)[:4000] or _place_of(error)
        told = {"t": "raised", "kind": type(error).__name__, "text": text, "trace": lines[-40:]}
        ctx.send(dict(told, own=_is_own(error), chain=[text[:1000] for text in _causes_of(error)]))
    flush_output()
    os._exit(0)


def _place_of(error):
    """The place at which an exception without a text was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return "without a text, at %s:%d: %s" % (frame.filename, frame.lineno, frame.line)


def _is_own(error):
    """True for a mistake in the probe's own code, raised there: no framework and no library took part."""
    mistake = (LookupError, TypeError, ValueError, NameError, ArithmeticError, ShapeError)
    frame = list(traceback.walk_tb(error.__traceback__))[-1][0]
    here = __name__.partition(".measure.")[0]  # of the one file: its own name
    raised_in = frame.f_globals.get("__name__") or ""
    return isinstance(error, mistake) and (raised_in + ".").startswith(here + ".")


def _causes_of(error):
    """The exceptions from which this one was raised, as texts, the nearest first."""
    found = []
    while error.__cause__ is not None and len(found) < 8:
        error = error.__cause__
        found.append("%s: %s" % (type(error).__name__, error))
    return found


def execute(name, params, timeout, environment=None, program=None, extend=False):
    """Run one child to its end: a :class:`Child` with its lines, its output and its end.

    ``environment``: start-up variables for a new process image; None forks. ``program``: the command that
    starts the probe anew (``python cudnn_verify.py --child NAME``), needed with ``environment``.
    ``extend``: the child may ask for a longer limit.
    """
    flush_output()
    pipes = [os.pipe() for _ in range(3)]
    (lines, line_writer), (stderr, stderr_writer), (stdin, feed) = pipes
    pid = os.fork()
    if pid == 0:
        _become_child(name, params, pipes, environment, program)
    for end in (line_writer, stderr_writer, stdin):
        os.close(end)
    text = json.dumps(params, default=str).encode("ascii") if environment is not None else b""
    child = Child(pid, [lines, stderr], feed, text)
    try:
        child.follow(child.began + timeout, extend)
    finally:
        child.stop()
    # what a killed child left half written is dropped
    child.lines = [json.loads(line) for line in child.buffers[0].decode("ascii", "replace").split("\n")[:-1]]
    child.stderr = child.buffers[1].decode("utf-8", "replace")
    return child


def _become_child(name, params, pipes, environment, program):
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        (lines, fd), (stderr, stderr_writer), (stdin, feed) = pipes
        os.dup2(stdin, 0)
        os.dup2(stderr_writer, 2)
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        except OSError:  # a chroot without /dev
            os.dup2(2, 1)
        for unused in (lines, stderr, stderr_writer, stdin, feed):
            os.close(unused)
        if environment is None:
            child_main(name, params, fd)
        os.set_inheritable(fd, True)
        if "no-preload-file" in params.get("counter", ()):
            hide_preload_file()
        os.execve(program[0], program + ["--child", name, "--fd", str(fd)], environment)
    except BaseException:
        os.write(2, traceback.format_exc().encode("ascii", "replace"))
    finally:
        os._exit(127)


class Child(object):
    """The parent's end of a child: its lines and its stderr to read, its stdin to write, and a clock."""

    def __init__(self, pid, readers, stdin, text):
        self.pid, self.readers, self.stdin, self.text = pid, readers, stdin, text
        self.buffers, self.began = [b"", b""], time.time()
        self.code = self.signal = self.mapped = self.kernel = None
        self.hang = self.over = False
        for fd in readers + [stdin]:
            os.set_blocking(fd, False)

    def follow(self, deadline, extend):
        """Read until the child has ended, or the deadline (``time.time()``) is past.

        ``extend``: the child may ask for more time (:meth:`protocol.Ctx.extend`).
        """
        poll, open_ends = select.poll(), set(self.readers)
        for fd in self.readers:
            poll.register(fd, select.POLLIN)
        while not self._ended():
            self._write()
            # with all its ends closed a child is about to leave, and nothing would wake a longer wait
            for fd, _ in poll.poll(50 if open_ends and self.stdin is None else 1):
                if self._read(fd) == b"":
                    poll.unregister(fd)
                    open_ends.remove(fd)
            if extend and time.time() > deadline:
                deadline = self._asked_for()
            if time.time() > deadline:
                self.hang, self.kernel = True, kernel_state(self.pid)
                self.mapped = mapped_libraries(self.pid)
                return
        for fd in open_ends:
            while self._read(fd):
                continue

    def _asked_for(self):
        """The deadline that the child has asked for last; 0 if it has not."""
        lines = [line for line in self.buffers[0].split(b"\n")[:-1] if b'"t": "limit"' in line]
        line = json.loads(lines[-1].decode("ascii")) if lines else None
        return self.began + line["at"] + line["seconds"] if line else 0

    def _write(self):
        """Write as much as the child takes; its standard input ends once it has all, or wants no more."""
        try:
            while self.text:
                self.text = self.text[os.write(self.stdin, self.text[:32768]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.text = b""
        self._close_stdin()

    def _close_stdin(self):
        if self.stdin is not None:
            os.close(self.stdin)
            self.stdin = None

    def _read(self, fd):
        """The bytes at hand: b"" at the end of the stream, None if there are none yet."""
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return None
        if fd == self.readers[0]:
            self.buffers[0] += data
        else:
            self.buffers[1] = (self.buffers[1] + data)[-65536:]
        return data

    def _ended(self):
        if not self.over:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except OSError:
                pid, status = self.pid, None
            self.over = pid != 0
            if self.over and status is not None:
                self.signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
                self.code = None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        return self.over

    def stop(self):
        """Kill the child and what it started, and close our ends; one stuck in the kernel is left."""
        for kill in (os.killpg, os.kill):
            try:
                kill(self.pid, signal.SIGKILL)
            except OSError:
                continue
        deadline = time.time() + 5
        while not self._ended() and time.time() < deadline:
            time.sleep(0.01)
        self._close_stdin()
        for fd in self.readers:
            os.close(fd)


def kernel_state(pid):
    """The kernel's word on what a process is doing: {state, wchan}; None for an unknown value."""
    state = re.search(r"^State:\s*(.+)", read_text("/proc/%d/status" % pid), re.M)
    wchan = read_text("/proc/%d/wchan" % pid).strip()
    return {"state": state and state.group(1), "wchan": wchan or None}
