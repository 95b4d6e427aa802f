"""The files that make up one cuDNN: the shim that programs open and the sub-libraries it opens later."""

import os
import re

from .elf import names_inside

_SETS = {
    8: ("ops_infer", "ops_train", "cnn_infer", "cnn_train", "adv_infer", "adv_train"),
    9: ("graph", "ops", "cnn", "adv", "engines_precompiled", "engines_runtime_compiled", "heuristic"),
}
_SHIM = re.compile(r"libcudnn\.so\.(\d+)$")


def shim_major(name):
    """9 for ``libcudnn.so.9``; None for any other file name."""
    found = _SHIM.match(name)
    return int(found.group(1)) if found else None


def shim_name(major):
    return "libcudnn.so.%d" % major


def required_sublibraries(major):
    """File names without which this major version of cuDNN cannot work; cuDNN 7 is one file."""
    return ["libcudnn_%s.so.%d" % (part, major) for part in _SETS.get(major, _SETS[9] if major > 9 else ())]


def preload_order(folder, major):
    """Paths of a whole cuDNN, each after those that it needs; the shim last."""
    parts = [os.path.join(folder, name) for name in required_sublibraries(major) + [shim_name(major)]]
    return [path for path in parts if os.path.exists(path)]


def named_sublibraries(folder, major):
    """Further sub-libraries that the ones at hand name as strings: 9.20 names an engine that is not
    shipped.
    """
    if major < 9:
        return []
    pattern = re.compile(rb"libcudnn_[a-z_]+")
    names = set()
    for part in ("libcudnn_graph.so.%d" % major, "libcudnn.so.%d" % major):
        names.update(names_inside(os.path.join(folder, part), pattern))
    named = {"%s.so.%d" % (name, major) for name in names}
    return sorted(named - set(required_sublibraries(major)))


def folder_version(folder, major):
    """The version in the shim's real file name (``libcudnn.so.9.10.2``), or None: wheels have no such
    name.
    """
    real = os.path.basename(os.path.realpath(os.path.join(folder, shim_name(major))))
    found = re.match(r"libcudnn\.so\.(\d+(?:\.\d+)+)$", real)
    return found.group(1) if found else None
