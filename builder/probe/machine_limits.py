"""Limits of the machine that keep libraries from loading: memory, mounts, preloaded files."""

import os
import re
import resource

from .cuda import ctypes
from .distributions import read_text

OPEN_FILES = []
_FILES = 64
_PRELOAD_FILE = "/etc/ld.so.preload"
_NEW_NAMESPACES = 0x10000000 | 0x00020000  # CLONE_NEWUSER, CLONE_NEWNS
_BIND = 4096  # MS_BIND
_NO_MEMORY = re.compile(
    r"MemoryError|bad_alloc|cannot allocate memory|failed to map segment|cannot map zero-fill|out of memory|"
    r"can't start new thread|pthread_create failed|Resource temporarily unavailable|Too many open files",
    re.I,
)


def preload_file():
    """The libraries that /etc/ld.so.preload names."""
    return read_text(_PRELOAD_FILE, 1 << 16).replace(":", " ").split()


def hide_preload_file():
    """Cover /etc/ld.so.preload in a mount namespace of this process; OSError if that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    empty = os.devnull.encode("ascii")
    for flags in (_NEW_NAMESPACES & 0x00020000, _NEW_NAMESPACES):
        if libc.unshare(flags) == 0:
            break
    libc.mount(b"none", b"/", None, (1 << 18) | 16384, None)  # MS_PRIVATE | MS_REC
    if libc.mount(empty, _PRELOAD_FILE.encode("ascii"), None, _BIND, None) != 0:
        raise OSError(ctypes.get_errno(), "cannot cover %s" % _PRELOAD_FILE)


def raise_file_limit():
    """Let the probe itself open files as far as this user may; the limit that now holds."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[0] < _FILES:
        for limits in ((_FILES, before[1]), (_FILES, _FILES)):
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                break
            except (OSError, ValueError):
                continue  # only root may raise the hard limit
        OPEN_FILES[:] = [before]
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def restore_file_limit():
    """Give a framework the limit of open files that the user's programs have."""
    for before in OPEN_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def raise_memory_limits():
    """Raise the soft limit of the address space and the data segment as far as this user may."""
    for name in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        _, hard = resource.getrlimit(name)
        try:
            resource.setrlimit(name, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except (OSError, ValueError):
            resource.setrlimit(name, (hard, hard))


def memory_limit():
    """(bytes, who sets it) of the limit on this process's memory; (None, None) if there is none."""
    for name, who in ((resource.RLIMIT_AS, "ulimit -v"), (resource.RLIMIT_DATA, "ulimit -d")):
        soft = resource.getrlimit(name)[0]
        if soft != resource.RLIM_INFINITY:
            return soft, who
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = read_text(path, 64).strip()
        if text.isdigit() and int(text) < 1 << 50:
            return int(text), path
    return None, None


def lacks_memory(text):
    """True for a message that says that the process got no memory, or no room for a library."""
    return bool(_NO_MEMORY.search(text))


def on_noexec_mount(path):
    """True for a file on a file system from which nothing may be executed or mapped as code."""
    try:
        return bool(os.statvfs(path).f_flag & getattr(os, "ST_NOEXEC", 8))
    except OSError:
        return False


def no_temporary_folder():
    """Why no temporary file can be written, or None. The folders are those of Python's ``tempfile``."""
    tried = [os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")]
    tried += ["/tmp", "/var/tmp", "/usr/tmp", "."]
    for folder in [folder for folder in tried if folder]:
        name = os.path.join(folder, ".cudnn-verify-%d" % os.getpid())
        try:
            with open(name, "wb") as stream:
                stream.write(b"0" * 4096)
            os.unlink(name)
        except OSError:
            continue
        return None
    return "no temporary file can be written in %s" % ", ".join(folder for folder in tried if folder)
