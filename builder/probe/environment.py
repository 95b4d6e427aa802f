"""E01 and E02: the machine, the interpreter, and the variables that steer which libraries are loaded."""

import os
import platform
import re
import sys

from .cuda import ctypes
from .distributions import read_text
from .library_files import mapped_libraries
from .machine_limits import memory_limit, no_temporary_folder, preload_file
from .protocol import stage

_STEERING = re.compile(
    r"LD_LIBRARY_PATH|LD_PRELOAD|LD_AUDIT|CUDA_|CUDNN_|NVIDIA_|NV_CUD|TF_(?!VAR_|TOKEN_|CLI_)|XLA_|JAX_|PYTORCH_|"
    r"TORCH_CUDNN|MXNET_CUDNN|FLAGS_|CONDA_PREFIX$|COLAB_|VIRTUAL_ENV$"
)
"""Variables for the report. Terraform's begin with TF_, too, and hold secrets."""
# Variables that turn off a framework's own comparison of compiled and loaded cuDNN, and the values that do.
_SKIPS = {
    "PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK": ("1",),
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": ("1", "true", "True"),
    "MXNET_CUDNN_LIB_CHECKING": ("0",),
}


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


def distribution_name():
    """``Debian GNU/Linux 11 (bullseye)``, or None."""
    found = re.search(r'^PRETTY_NAME="?([^"\n]*)', read_text("/etc/os-release"), re.M)
    return found.group(1) if found else None


def libc_version():
    """glibc's version, or None (musl, or a libc that does not say)."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, OSError, ValueError):
        return None


def loaded_at_start():
    """Files that Python's own start has loaded: CUDA libraries (by a ``.pth`` file), sitecustomize."""
    found = [row["path"] for row in mapped_libraries() or []]
    for name in ("sitecustomize", "usercustomize"):
        path = getattr(sys.modules.get(name), "__file__", None)
        found += [path] if path else []
    return found


@stage("environment", layer="environment", timeout=20)
def environment_stage(ctx):
    """Describe the machine and the variables."""
    here = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "machine": os.uname()[4],
        "kernel": os.uname()[2],
        "libc": libc_version(),
        "distribution": distribution_name(),
        "container": in_container(),
        "wsl": "microsoft" in os.uname()[2].lower(),
    }
    at_colabs = "yes" if os.path.isdir("/usr/lib64-nvidia") else None
    here["colab"] = os.environ.get("COLAB_RELEASE_TAG") or at_colabs
    ctx.fact("python", {"version": here["python"], "executable": here["executable"]})
    ctx.fact("machine", here)
    summary = "Python %(python)s on %(machine)s, %(libc)s" % here
    ctx.fact("ctypes", ctypes is not None)
    ctx.fact("mapped_at_start", loaded_at_start())
    if ctypes is None:
        text = "%s has no module _ctypes, without which no framework loads a library" % here["executable"]
        ctx.fails("E01", text, "python-incomplete", here)
    else:
        note = "this C library is not glibc, for which cuDNN is built"
        ctx.passed("E01", summary, here, note=here["libc"] is None and note)
    _check_variables(ctx)


def _check_variables(ctx):
    limit, who = memory_limit()
    steering = {name: os.environ[name] for name in sorted(os.environ) if _STEERING.match(name)}
    ctx.fact("variables", steering)
    off = sorted(name for name, values in _SKIPS.items() if os.environ.get(name) in values)
    if off:
        text = "a framework's own cuDNN check is switched off: %s" % ", ".join(off)
        ctx.fails("E02", text, "check-disabled", {"variables": steering, "off": off})
        return
    notes = ["memory is limited to %d MiB (%s)" % (limit >> 20, who)] if limit else []
    notes += [no_temporary_folder()] if no_temporary_folder() else []
    if os.environ.get("LD_PRELOAD"):
        notes.append("LD_PRELOAD is set: %s" % os.environ["LD_PRELOAD"])
    if preload_file():
        notes.append("/etc/ld.so.preload names %s" % ", ".join(preload_file()[:3]))
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1", "none", "NoDevFiles"):
        hidden = os.environ["CUDA_VISIBLE_DEVICES"]
        notes.append("CUDA_VISIBLE_DEVICES=%s: no program here would see a GPU" % hidden)
    if "/stubs" in os.environ.get("LD_LIBRARY_PATH", ""):
        notes.append("LD_LIBRARY_PATH holds a folder of stub libraries")
    if os.environ.get("NVIDIA_DISABLE_REQUIRE", "").lower() in ("1", "true"):
        notes.append("NVIDIA_DISABLE_REQUIRE: the driver was not compared with what the image needs")
    text = "%d variable%s steer CUDA and the loader" % (len(steering), "" if len(steering) == 1 else "s")
    ctx.passed("E02", text, {"variables": steering}, note="; ".join(notes))
