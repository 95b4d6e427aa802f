"""The libraries that this process (or another one) has mapped, by their real paths."""

import os
import re

_FAMILY = re.compile(
    r"lib(cudnn|cudart|cublas|cuda|nvrtc|nvJitLink|cufft|curand|cusolver|cusparse|nvidia-ml)[^/]*\.so(\.|$)"
)


def is_cuda_library(name):
    """True for a file name of the CUDA families: ``libcudnn_ops.so.9`` yes, ``libcudadebugger.so.1`` no."""
    return bool(_FAMILY.match(name)) and not name.startswith("libcudadebugger")


def mapped_paths(pid="self"):
    """Paths of all files mapped by a process as {path: deleted}; None without ``/proc``."""
    found = {}
    try:
        with open("/proc/%s/maps" % pid, "rb") as stream:
            text = stream.read().decode("utf-8", "surrogateescape")
    except OSError:
        return None
    for line in text.splitlines():
        parts = line.split(None, 5)
        if len(parts) < 6 or not parts[5].startswith("/"):
            continue
        path = parts[5]
        deleted = path.endswith(" (deleted)")
        path = path[: -len(" (deleted)")] if deleted else path
        found[path] = found.get(path, False) or deleted
    return found


def mapped_libraries(pid="self"):
    """The CUDA family among the mapped files: sorted rows {name, path, deleted}; None without ``/proc``."""
    paths = mapped_paths(pid)
    if paths is None:
        return None
    rows = []
    for path in sorted(paths):
        name = os.path.basename(path)
        if is_cuda_library(name):
            rows.append({"name": name, "path": path, "deleted": paths[path]})
    return rows
