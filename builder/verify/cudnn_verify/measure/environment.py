"""E01: the machine and the interpreter; and limits that keep libraries from loading: memory, mounts,
preloaded files.
"""

import os
import platform
import re
import resource
import sys

from ..common.distributions import read_text
from .cuda import ctypes
from .library_files import mapped_libraries
from .protocol import stage

OPEN_FILES = []
_PRELOAD_FILE = "/etc/ld.so.preload"
NO_MEMORY = re.compile(
    r"MemoryError|bad_alloc|cannot allocate memory|failed to map segment|cannot map zero-fill|out of memory|"
    r"can't start new thread|pthread_create failed|Resource temporarily unavailable|Too many open files",
    re.I,
)
"""Messages by which a process says that it got no memory, or no room for a library."""


def start_environment(pid="self"):
    """The variables that a process was started with, by which the loader goes; None without /proc."""
    try:
        with open("/proc/%s/environ" % pid, "rb") as stream:
            items = stream.read().split(b"\0")
    except OSError:
        return None
    pairs = [item.decode("utf-8", "surrogateescape").partition("=") for item in items if b"=" in item]
    return {name: value for name, _, value in pairs}


def in_container():
    """Why this looks like a container, or None."""
    for path in ("/.dockerenv", "/run/.containerenv"):
        if os.path.exists(path):
            return path
    if os.environ.get("container") or os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "environment"
    found = re.search(r"docker|kubepods|containerd|libpod|lxc", read_text("/proc/1/cgroup"))
    return "/proc/1/cgroup" if found else None


def libc_version():
    """glibc's version, or None (musl, or a libc that does not say)."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, OSError, ValueError):
        return None


@stage("environment", layer="environment", timeout=20)
def environment_stage(ctx):
    """Describe the machine, and what Python's start has loaded (.pth, sitecustomize)."""
    system = re.search(r'^PRETTY_NAME="?([^"\n]*)', read_text("/etc/os-release"), re.M)
    at_colabs = "yes" if os.path.isdir("/usr/lib64-nvidia") else None
    here = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "machine": os.uname()[4],
        "kernel": os.uname()[2],
        "libc": libc_version(),
        "distribution": system.group(1) if system else None,
        "container": in_container(),
        "wsl": "microsoft" in os.uname()[2].lower(),
        "colab": os.environ.get("COLAB_RELEASE_TAG") or at_colabs,
    }
    ctx.fact("python", {"version": here["python"], "executable": here["executable"]})
    ctx.fact("machine", here)
    ctx.fact("ctypes", ctypes is not None)
    custom = [getattr(sys.modules.get(name), "__file__", None) for name in ("sitecustomize", "usercustomize")]
    at_start = [row["path"] for row in mapped_libraries() or []] + list(filter(None, custom))
    ctx.fact("mapped_at_start", at_start)
    if ctypes is None:
        text = "%s has no module _ctypes, without which no framework loads a library" % here["executable"]
        ctx.fails("E01", text, "python-incomplete", here)
    else:
        note = here["libc"] is None and "this C library is not glibc, for which cuDNN is built"
        ctx.passed("E01", "Python %(python)s on %(machine)s, %(libc)s" % here, here, note=note)


def preload_file():
    """The libraries that /etc/ld.so.preload names."""
    return read_text(_PRELOAD_FILE, 1 << 16).replace(":", " ").split()


def hide_preload_file():
    """Cover /etc/ld.so.preload in a mount namespace of this process; OSError if that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x00020000) != 0:  # CLONE_NEWNS
        libc.unshare(0x10000000 | 0x00020000)  # CLONE_NEWUSER, too
    libc.mount(b"none", b"/", None, (1 << 18) | 16384, None)  # MS_PRIVATE | MS_REC
    paths = [path.encode("ascii") for path in (os.devnull, _PRELOAD_FILE)]
    if libc.mount(*paths, None, 4096, None) != 0:  # MS_BIND
        raise OSError(ctypes.get_errno(), "cannot cover %s" % _PRELOAD_FILE)


def raise_file_limit():
    """Let the probe itself open files as far as this user may; the limit that now holds."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[0] < 64:
        OPEN_FILES[:] = [before]
        for hard in (before[1], 64):
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
                break
            except (OSError, ValueError):
                continue  # only root may raise the hard limit
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


def on_noexec_mount(path):
    """True for a file on a file system from which nothing may be executed or mapped as code."""
    try:
        return bool(os.statvfs(path).f_flag & getattr(os, "ST_NOEXEC", 8))
    except OSError:
        return False


def no_temporary_folder():
    """Why no temporary file can be written, or None. The folders are those of Python's ``tempfile``."""
    tried = [os.environ[name] for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)]
    tried += ["/tmp", "/var/tmp", "/usr/tmp", "."]
    for folder in tried:
        name = os.path.join(folder, ".cudnn-verify-%d" % os.getpid())
        try:
            with open(name, "wb") as stream:
                stream.write(b"0" * 4096)
            os.unlink(name)
        except OSError:
            continue
        return None
    return "no temporary file can be written in %s" % ", ".join(tried)
