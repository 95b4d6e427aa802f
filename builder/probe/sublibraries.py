"""The files that make up one cuDNN: the shim that programs open and the sub-libraries it opens later."""

import os
import re

from .distributions import read_text
from .library_files import names_inside
from .versions import numbers

_SETS = {
    8: ("ops_infer", "ops_train", "cnn_infer", "cnn_train", "adv_infer", "adv_train"),
    9: ("graph", "ops", "cnn", "adv", "engines_precompiled", "engines_runtime_compiled", "heuristic"),
}
# Parts that came later, by the release whose wheel (nvidia-cudnn-cu12) is the first to hold them.
_SINCE = (((9, 21), "engines_tensor_ir"), ((9, 22), "ext"))
_SHIM = re.compile(r"(?:.*/)?libcudnn\.so\.(\d+)$")


def shim_major(name):
    """9 for ``libcudnn.so.9``, with or without a folder; None for any other file."""
    found = _SHIM.match(name)
    return int(found.group(1)) if found else None


def shim_name(major):
    return "libcudnn.so.%d" % major


def required_sublibraries(major, version=None):
    """File names without which this cuDNN cannot work; cuDNN 7 is one file. ``version``: text, if known."""
    parts = list(_SETS.get(major, _SETS[9] if major > 9 else ()))
    parts += [part for since, part in _SINCE if numbers(version)[:2] >= since]
    return ["libcudnn_%s.so.%d" % (part, major) for part in parts]


def parts_of(shim):
    """File names of the sub-libraries that a shim cannot work without; [] for any other file."""
    return required_sublibraries(shim_major(shim) or 0)


def preload_order(folder, major):
    """Paths of a whole cuDNN, each after those that it needs; the shim last."""
    names = required_sublibraries(major, "9.99" if major == 9 else None) + [shim_name(major)]
    parts = [os.path.join(folder, name) for name in names]
    return [path for path in parts if os.path.exists(path)]


def named_sublibraries(folder, major):
    """Further sub-libraries that the ones at hand name as strings: 9.20 names one that is not shipped."""
    if major < 9:
        return []
    pattern = re.compile(rb"libcudnn_[a-z_]+")
    names = set()
    for part in ("libcudnn_graph.so.%d" % major, "libcudnn.so.%d" % major):
        names.update(names_inside(os.path.join(folder, part), pattern))
    named = {"%s.so.%d" % (name, major) for name in names}
    return sorted(named - set(required_sublibraries(major)))


def folder_version(folder, major):
    """The version in the shim's real file name, ``libcudnn.so.9.10.2``, or in a wheel's header; or None."""
    header = os.path.join(os.path.dirname(folder), "include", "cudnn_version.h")
    told = re.findall(r"#define CUDNN_(?:MAJOR|MINOR|PATCHLEVEL) +(\d+)", read_text(header, 1 << 16))
    if len(told) == 3 and int(told[0]) == major and os.path.basename(folder) == "lib":
        return ".".join(told)
    real = os.path.basename(os.path.realpath(os.path.join(folder, shim_name(major))))
    found = re.match(r"libcudnn\.so\.(\d+(?:\.\d+)+)$", real)
    return found.group(1) if found else None
