"""Children: start one per stage, follow its lines, keep the tail of its output, stop it after its limit.

A child is a fork of the parent, which is single-threaded and has never loaded CUDA; a counter-test that
needs other start-up variables (the loader reads LD_LIBRARY_PATH only at exec) executes the probe's own file
anew.
"""

import errno
import fcntl
import json
import os
import resource
import select
import signal
import sys
import time
import traceback

from .cuda import need_ctypes, open_library
from .isolation import USER_PATH, return_to_user
from .machine_limits import hide_preload_file, raise_memory_limits, restore_file_limit
from .maps import mapped_libraries
from .protocol import STAGES, Ctx

TAIL = 64 << 10


def find_stage(name):
    """The registered stage of this name, or None."""
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
        row = find_stage(name)
        if row.layer in ("framework", "coimport"):
            return_to_user("unshadowed" not in ctx.counter)
            restore_file_limit()
        row.function(ctx)
        ctx.send({"t": "end"})
    except BaseException as error:
        lines = traceback.format_exc().splitlines()
        told = {"t": "raised", "kind": type(error).__name__, "text": str(error)[:4000], "trace": lines[-40:]}
        ctx.send(dict(told, chain=[text[:1000] for text in _causes_of(error)]))
    os._exit(0 if flush_output() else 1)


def _causes_of(error):
    """The exceptions from which this one was raised, as texts, the nearest first."""
    found = []
    while error.__cause__ is not None and len(found) < 8:
        error = error.__cause__
        found.append("%s: %s" % (type(error).__name__, error))
    return found


def flush_output():
    """Write out what is buffered, so that a fork does not print it twice; false if a stream is closed."""
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except (OSError, ValueError):
        return False
    return True


def execute(name, params, timeout, environment=None, program=None, extend=False):
    """Run one child to its end: a :class:`Child` with its lines, its output and its end.

    ``environment``: start-up variables for a new process image; None forks. ``program``: the command that
    starts the probe anew (``python cudnn_verify.py --child NAME``), needed with ``environment``.
    ``extend``: the child may ask for a longer limit.
    """
    flush_output()
    pipes = [_pipe() for _ in range(4)]
    start = time.time()
    pid = os.fork()
    if pid == 0:
        _become_child(name, params, pipes, environment, program)
    for index, (reader, writer) in enumerate(pipes):
        os.close(reader if index == 3 else writer)
    feed = json.dumps(params, default=str).encode("ascii") if environment is not None else b""
    child = Child(pid, [pipe[0] for pipe in pipes[:3]], pipes[3][1], feed)
    try:
        child.follow(start + timeout, extend)
    finally:
        child.stop()
    child.lines = _json_lines(child.buffers[0])
    child.stdout, child.stderr = [data.decode("utf-8", "replace") for data in child.buffers[1:]]
    return child


def _pipe():
    reader, writer = os.pipe()
    # out of the way of the standard descriptors, which may be closed in the parent
    return tuple(_raise_fd(fd) for fd in (reader, writer))


def _raise_fd(fd):
    if fd > 2:
        return fd
    higher = fcntl.fcntl(fd, fcntl.F_DUPFD, 3)
    os.close(fd)
    return higher


def _become_child(name, params, pipes, environment, program):
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        os.dup2(pipes[3][0], 0)
        os.dup2(pipes[1][1], 1)
        os.dup2(pipes[2][1], 2)
        fd = pipes[0][1]
        for unused in sum(pipes, ()):
            if unused != fd and unused > 2:
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
    """The parent's end of a child: three pipes to read, one to write, and a clock."""

    def __init__(self, pid, readers, stdin, feed):
        self.pid, self.readers, self.stdin, self.feed = pid, readers, stdin, feed
        self.buffers, self.began = [b"", b"", b""], time.time()
        self.code = self.signal = self.mapped = self.kernel = None
        self.hang = self.over = False
        for fd in readers + [stdin]:
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)

    def follow(self, deadline, extend=False):
        """Read until the child has ended, or the deadline (``time.time()``) is past.

        ``extend``: the child may ask for more time (:meth:`protocol.Ctx.extend`).
        """
        open_ends = {fd: index for index, fd in enumerate(self.readers)}
        while True:
            self._write()
            # with all its ends closed a child is about to leave, and nothing would wake a longer wait
            pause = 0.05 if open_ends else 0.001
            ready = _wait(list(open_ends), [self.stdin] if self.stdin is not None else [], pause)
            for fd in ready:
                if not self._read(fd, open_ends[fd]):
                    del open_ends[fd]
                elif extend and fd == self.readers[0]:
                    deadline = max(deadline, self._asked_for(deadline))
            if self._ended():
                for fd, index in open_ends.items():
                    while self._read(fd, index, once=True):
                        continue
                return
            if time.time() > deadline:
                self.hang = True
                self.mapped = mapped_libraries(self.pid)
                self.kernel = kernel_state(self.pid)
                return

    def _asked_for(self, deadline):
        """The deadline that the child has asked for last, or the one that stands."""
        lines = [line for line in self.buffers[0].split(b"\n")[:-1] if b'"t": "limit"' in line]
        if not lines:
            return deadline
        line = json.loads(lines[-1].decode("ascii"))
        return self.began + line["at"] + line["seconds"]

    def _write(self):
        if self.stdin is None:
            return
        try:
            while self.feed:
                self.feed = self.feed[os.write(self.stdin, self.feed[:32768]) :]
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EINTR):
                return
        os.close(self.stdin)
        self.stdin = None

    def _read(self, fd, index, once=False):
        """Read the bytes at hand; false at the end of the stream, or with ``once`` if there are none."""
        try:
            data = os.read(fd, 65536)
        except OSError as error:
            return error.errno in (errno.EAGAIN, errno.EINTR) and not once
        self.buffers[index] += data
        if index:
            self.buffers[index] = self.buffers[index][-TAIL:]
        return bool(data)

    def _ended(self):
        if self.over:
            return True
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
        _kill_group(self.pid)
        deadline = time.time() + 5
        while not self._ended() and time.time() < deadline:
            time.sleep(0.01)
        for fd in self.readers + ([self.stdin] if self.stdin is not None else []):
            os.close(fd)


def _json_lines(data):
    """The JSON lines; what a killed child left half written is dropped."""
    found = []
    for line in data.decode("ascii", "replace").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def _kill_group(pid):
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except OSError:
            continue


def _wait(readers, writers, seconds):
    poll = select.poll()
    for fd in readers:
        poll.register(fd, select.POLLIN | select.POLLHUP)
    for fd in writers:
        poll.register(fd, select.POLLOUT)
    return [fd for fd, _ in poll.poll(int(seconds * 1000)) if fd in readers]


def kernel_state(pid):
    """The kernel's word on what a process is doing: {state, wchan}; None for an unknown value."""
    found = {"state": None, "wchan": None}
    try:
        with open("/proc/%d/status" % pid) as stream:
            for line in stream:
                if line.startswith("State:"):
                    found["state"] = line.split(None, 1)[1].strip()
        with open("/proc/%d/wchan" % pid) as stream:
            found["wchan"] = stream.read().strip() or None
    except OSError:
        return found
    return found
