"""E01 and E02: the machine and the interpreter; limits that keep libraries from loading: memory, mounts,
preloaded files; variables that steer CUDA and the frameworks, and those that alone keep a program here from
its work.

The tables of the names of variables and of their values are in ``patterns.ini``. What is read only once there
is a GPU is judged here, where there may be none.
"""

import glob
import os
import platform
import re
import resource
import shutil
import sys
import tempfile

from ..common.distributions import read_text, search_folders
from ..common.tables import read_frameworks, read_patterns
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


# -- E02: variables

_STEERING = (
    r"LD_LIBRARY_PATH|LD_PRELOAD|LD_AUDIT|CUDA_|CUDNN_|NVIDIA_|NV_CUD|CONDA_PREFIX$|COLAB_|VIRTUAL_ENV$|CUPY_|"
    r"TRITON_|NCCL_"
)
"""Variables for the report, beside the frameworks' own."""
# Variables that turn off a framework's own comparison of compiled and loaded cuDNN, and the values that do.
_SKIPS = {
    "PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK": ("1",),
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": ("1", "true", "True"),
    "MXNET_CUDNN_LIB_CHECKING": ("0",),
}
_NO_CARD = re.compile(r"\s*(-\d+|none|void|NoDevFiles)?\s*(,|$)", re.I)
"""Values of CUDA_VISIBLE_DEVICES that show no card: CUDA stops at the first entry that is none.
https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
"""


def steers(name):
    """Whether a variable decides about CUDA or a framework's use of it, and stands in the report."""
    rows = read_frameworks().values()
    return re.match("|".join([_STEERING] + [p for row in rows for p in row.get("settings", ())]), name)


def check_variables(ctx, packages):
    """E02; ``packages``: the names of the installed packages."""
    steering = {name: os.environ[name] for name in sorted(os.environ) if steers(name)}
    ctx.fact("variables", steering)
    evidence, cards = {"variables": steering}, os.environ.get("CUDA_VISIBLE_DEVICES")
    unusable, slight = unusable_folders(packages)
    faults = [] if ctx.without_cuda else refused_values(packages) + unusable
    if faults:
        name, text, cause = faults[0]
        named = {"variable": name} if name in os.environ else {}
        return ctx.fails("E02", text, cause, dict(evidence, weak=True, **named))
    hidden = cards is not None and _NO_CARD.match(cards)
    hides = "CUDA_VISIBLE_DEVICES=%s: no program here would see a GPU" % cards
    if hidden and not (ctx.without_cuda or ctx.no_gpu):
        named = dict(evidence, variable="CUDA_VISIBLE_DEVICES", yields=True)
        started = start_environment()
        if started is not None and started.get("CUDA_VISIBLE_DEVICES") != cards:
            named["set_by"] = set_by("CUDA_VISIBLE_DEVICES")
            hides += "; %s sets it, not the shell" % named["set_by"]
        return ctx.fails("E02", hides, "device-hidden", named)
    off = sorted(name for name, values in _SKIPS.items() if os.environ.get(name) in values)
    if off:
        text = "a framework's own cuDNN check is switched off: %s" % ", ".join(off)
        return ctx.fails("E02", text, "check-disabled", dict(evidence, off=off))
    notes = _notes() + [hidden and hides] + slight
    evidence["remarks"] = slight
    text = "%d variable%s steer CUDA and the loader" % (len(steering), "" if len(steering) == 1 else "s")
    return ctx.passed("E02", text, evidence, note="; ".join(filter(None, notes)))


def set_by(name):
    """The file that sets a variable as Python starts: sitecustomize, usercustomize or a .pth file that names
    it.
    """
    modules = [sys.modules.get(module) for module in ("sitecustomize", "usercustomize")]
    paths = [getattr(module, "__file__", None) for module in modules]
    paths += [
        path for folder in search_folders() for path in sorted(glob.glob(os.path.join(folder, "*.pth")))
    ]
    texts = ((path, read_text(path, 1 << 20)) for path in paths if path)
    return next((path for path, text in texts if name in text), "something that Python reads as it starts")


def _notes():
    limit, who = memory_limit()
    preload, disabled = os.environ.get("LD_PRELOAD"), os.environ.get("NVIDIA_DISABLE_REQUIRE", "")
    notes = [
        limit and "memory is limited to %d MiB (%s)" % (limit >> 20, who),
        no_temporary_folder(),
        preload and "LD_PRELOAD is set: %s" % preload,
        preload_file() and "/etc/ld.so.preload names %s" % ", ".join(preload_file()[:3]),
        "/stubs" in os.environ.get("LD_LIBRARY_PATH", "")
        and "LD_LIBRARY_PATH holds a folder of stub libraries",
        disabled.lower() in ("1", "true")
        and "NVIDIA_DISABLE_REQUIRE: the driver was not compared with what the image needs",
    ]
    told = read_patterns()["variables-told"]
    for name, (values, _, words) in sorted((key.upper(), row.partition(" ")) for key, row in told.items()):
        if re.match("(?:%s)$" % values, os.environ.get(name) or ""):
            notes.append("%s=%s: %s" % (name, os.environ[name], words))
    return notes


def _here(pattern, packages):
    return next((name for name in sorted(packages) if re.match("(?:%s)$" % pattern, name)), None)


def refused_values(packages):
    """[(variable, text, cause)] of those whose value an installed package takes for a fault."""
    found = []
    for key, row in sorted(read_patterns()["variables-refused"].items()):
        name, (pattern, values) = key.upper(), row.split(" ", 1)
        value, package = os.environ.get(name), _here(pattern, packages)
        if value and package and not re.match("(?:%s)$" % values, value):
            text = "%s=%s: %s refuses this value as it turns to a GPU" % (name, value, package)
            found.append((name, text, "variable-breaks-framework"))
    for key, pattern in sorted(read_patterns()["variables-programs"].items()):
        name, package = key.upper(), _here(pattern, packages)
        words = (os.environ.get(name) or "").split()
        if words and package and not shutil.which(words[0]):
            text = "%s=%s: %s starts this program to compile, and it is not there" % (name, words[0], package)
            found.append((name, text, "variable-breaks-framework"))
    return found


def unusable_folders(packages):
    """([(variable, text, cause)], [remarks]) about folders for what is compiled as programs run.

    A fault is a folder that a variable names, and one of a package that can do nothing without; a remark the
    rest.
    """
    faults, remarks = [], []
    for key, row in sorted(read_patterns()["variables-folders"].items()):
        name, (pattern, kind, default) = key.upper(), row.split(" ")
        package, named = _here(pattern, packages), os.environ.get(name)
        usual = no_temporary_folder() is None and tempfile.gettempdir() if default == "TMPDIR" else ""
        folder = named or usual or (os.path.expanduser(default) if default.startswith("~") else "")
        if not package or not folder or name == "CUPY_CACHE_DIR" and _true("CUPY_CACHE_IN_MEMORY"):
            continue
        why = why_unusable(folder, code=kind == "code")
        if not why:
            continue
        named_so = "%s=%s" % (name, named) if named else "%s (%s is not set)" % (folder, name)
        text = "%s: %s cannot keep there what it compiles: %s" % (named_so, package, why)
        if named and kind != "quiet":
            faults.append((name, text, "variable-breaks-framework"))
        elif kind == "always":
            faults.append((name, text, "file-access-denied"))
        else:
            remarks.append(text)
    return faults, remarks


def _true(name):
    return os.environ.get(name, "").isdigit() and int(os.environ[name]) > 0


def why_unusable(folder, code=False):
    """Why no file can be made in a folder, which is made if need be; None if one can.

    ``code``: whether libraries are loaded from there, which a file system mounted noexec does not let.
    """
    there = os.path.abspath(folder)
    while not os.path.lexists(there) and there != os.path.dirname(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        return "%s is no folder" % there
    if not os.access(there, os.W_OK | os.X_OK):
        return "no right to write in %s" % there
    if code and on_noexec_mount(there):
        return "%s lies on a file system mounted noexec" % there
    try:
        with tempfile.TemporaryFile(prefix=".cudnn-verify-", dir=there) as stream:
            stream.write(b"0" * 4096)
    except OSError as error:
        return "%s: %s" % (there, error.strerror)
    return None
