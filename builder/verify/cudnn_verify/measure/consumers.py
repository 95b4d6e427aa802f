"""Which installed frameworks open cuDNN, under which name, and which file the loader gives them for it; E06
and E07: the rule for those files; P04 in the same stage.

Read from their files and metadata; nothing is imported and nothing loaded.
"""

import glob
import os
import re

from ..common.distributions import find_wheel_folders, packages_of, read_text, requirement
from ..common.tables import read_frameworks
from ..common.versions import numbers
from .companions import check_companions
from .library_files import Loader, in_folders, parts_of, shim_major, shim_name
from .protocol import stage

_CPU_BUILD = re.compile(r"is_cuda_build['\"]?\s*[,:=]\s*False")
# The file in which a framework describes its build, and its words for CUDA's version there.
_BUILT_FOR = {
    "torch": ("version.py", r"(?m)^cuda[^=\n]*=\s*['\"]([\d.]+)"),
    "tensorflow": ("python/platform/build_info.py", r"cuda_version['\"]?\s*[,:=]\s*['\"](\d[\d.]*)"),
}
_FLOORS = ("==", "===", ">=", "~=")


def find_consumers(folders, distributions, loader, wheel_folders):
    """One row per framework that opens cuDNN.

    Keys: framework, requester, name, path, by, problem, passed, optional, cuda.
    ``wheel_folders``: the ``nvidia/*/lib`` folders, from which JAX and ONNX Runtime preload by absolute
    path.
    """
    rows = []
    for framework, known in read_frameworks().items():
        requester = _requester(folders, known.get("requesters", ()), loader)
        if requester is None:
            continue
        if framework == "tensorflow" and _CPU_BUILD.search(_own_words(framework, requester)):
            continue
        for name in map(shim_name, _majors(framework, requester, distributions, loader)):
            row = {"framework": framework, "requester": requester, "name": name}
            row.update(optional=framework == "cupy", cuda=built_for_cuda(framework, requester, loader))
            found = _resolve(framework, name, requester, loader, wheel_folders)
            rows.append(dict(row, **found))
    return rows


def _requester(folders, patterns, loader):
    def run_path(path):
        return "%(runpath)s:%(rpath)s" % loader.header(path)

    for folder in folders:
        found = [p for pattern in patterns for p in sorted(glob.glob(os.path.join(folder, pattern)))]
        found = [p for p in found if loader.header(p)["problem"] is None]
        if found:
            # JAX takes its plug-in for CUDA 13 if that for CUDA 12 was left beside it
            return max(found, key=lambda p: ("nvidia/cudnn" in run_path(p), "/xla_cuda13/" in p))
    return None


def _own_words(framework, requester):
    """The text in which a framework describes its build."""
    place = os.path.join(requester.rpartition("/%s/" % framework)[0], framework)
    return read_text(os.path.join(place, _BUILT_FOR[framework][0]))


def built_for_cuda(framework, requester, loader):
    """The CUDA version that a framework was built for, by its files: ``12.4``, ``12`` or None."""
    if framework in _BUILT_FOR:
        found = re.search(_BUILT_FOR[framework][1], _own_words(framework, requester))
        if found:
            return found.group(1)
    names = "\n".join(loader.header(requester)["needed"] + [requester])
    found = re.search(r"(?m)libcudart\.so\.([\d.]+)$|libcublas\.so\.(\d+)$|/xla_cuda(\d+)/", names)
    return next(filter(None, found.groups())) if found else None


def _majors(framework, requester, distributions, loader):
    """The major versions of cuDNN that a framework asks for; [] if no file says so."""
    needed = [m for m in map(shim_major, loader.header(requester)["needed"]) if m is not None]
    if not needed and framework == "tensorflow":
        said = re.findall(r"cudnn_version['\"]?\s*[,:=]\s*['\"](\d+)", _own_words(framework, requester))
        needed = [int(major) for major in said[:1]]
    if needed:
        return needed
    key = "pins" if "pins" in read_frameworks()[framework] else "packages"
    rows = packages_of(framework, distributions, key)
    wanted = filter(None, (requirement(text) for row in rows for text in row["requires"]))
    pins = [pin for need in wanted if need["name"].startswith("nvidia-cudnn-cu") for pin in need["pins"]]
    floors = [numbers(version)[0] for sign, version in pins if sign in _FLOORS and numbers(version)]
    return floors[:1]


def _resolve(framework, name, requester, loader, wheel_folders):
    # ONNX Runtime from 1.21 on, whether or not its METADATA is there to say so
    own = os.path.join(os.path.dirname(os.path.dirname(requester)), "__init__.py")
    preloads = framework == "jax" or (framework == "onnxruntime" and "preload_dlls" in read_text(own))
    path = in_folders(name, wheel_folders) if preloads else None
    if path is None:
        return loader.resolve(name, requester)
    problem = loader.header(path)["problem"]
    return {"path": path, "by": "preloaded by %s" % framework, "problem": problem, "passed": []}


@stage("resolver", layer="resolver", timeout=30)
def resolver_stage(ctx):
    """Work out which file the loader gives, without loading."""
    loader = Loader()
    ctx.attempt("E06", _check_shims, ctx, loader)
    ctx.attempt("E07", _check_unversioned, ctx, loader)
    ctx.attempt("P04", check_companions, ctx)


def mixed_folders(candidate, loader):
    """Sub-libraries that a shim gets from another folder than its own: {name: resolution}."""
    shim = candidate["path"]
    home = os.path.realpath(os.path.dirname(shim))
    found = {}
    for name in parts_of(shim):
        answer = loader.resolve(name, shim)
        path = answer["path"]
        near = path and (os.path.realpath(os.path.dirname(path)), os.path.dirname(os.path.realpath(path)))
        if not near or home not in near:
            found[name] = answer
    return found


def _check_shims(ctx, loader):
    consumers, copies = ctx.facts.get("consumers", []), ctx.facts.get("copies", [])
    lost = [row for row in consumers if row["path"] is None and not row["optional"]]
    if lost and not ctx.without_cuda:
        text, cause = _lost(lost[0], copies)
        return ctx.fails("E06", text, cause, {"consumers": consumers, "copies": copies})
    candidates = ctx.facts.get("candidates", [])
    if not candidates:
        return _check_absence(ctx)
    mixed = {row["path"]: mixed_folders(row, loader) for row in candidates}
    mixed = {path: names for path, names in mixed.items() if names}
    lines = ["%s by %s%s" % (r["path"], r["by"], " for " + r["for"] if r["for"] else "") for r in candidates]
    apart = "sub-libraries come from another folder than their shim; the cuDNN stage shows whether they fit"
    evidence = {"consumers": consumers, "mixed": mixed}
    return ctx.passed("E06", "; ".join(lines), evidence, note=mixed and apart)


def _check_absence(ctx):
    """No shim at all: a fault if a package, an expectation or left-over parts ask for one."""
    orphans = ctx.facts.get("orphans", [])
    listed = sorted(n for n in ctx.facts.get("packages", {}) if n.startswith("nvidia-cudnn-cu"))
    evidence = {"orphans": orphans, "packages": listed, "expected": ctx.expect.get("cudnn")}
    if orphans:
        text = "%(folder)s holds parts of cuDNN %(major)d, but no libcudnn.so.%(major)d" % orphans[0]
    elif ctx.expect.get("cudnn") or listed:
        who = listed[0] + " is installed" if listed else "cuDNN %s is expected" % ctx.expect["cudnn"]
        text = "%s, and there is no libcudnn here" % who
    else:
        return ctx.not_run("E06", "no cuDNN here to resolve", evidence)
    return ctx.fails("E06", text, "cudnn-missing", evidence)


def _lost(row, copies):
    """(text, cause) for a framework that would find no cuDNN."""
    who = "%(framework)s opens %(name)s, " % row
    same = [copy for copy in copies if copy["major"] == shim_major(row["name"])]
    if same:
        return who + "which lies in %(folder)s, where the loader does not look" % same[0], "cudnn-missing"
    if copies:
        return who + "but only cuDNN %(major)d is here (%(folder)s)" % copies[0], "cudnn-major-mismatch"
    return who + "and there is no such file on this machine", "cudnn-missing"


def _check_unversioned(ctx, loader):
    """E07: names without a number, which cuDNN 8 (libnvrtc.so, libcuda.so) and Paddle (libcudnn.so) open."""
    paddle = [row for row in ctx.facts.get("consumers", []) if row["framework"] == "paddle"]
    names = ("libcudnn.so", "libnvrtc.so", "libcuda.so")
    evidence = {name: loader.resolve(name)["path"] for name in names}
    places = [os.path.join(os.environ.get("FLAGS_cudnn_dir", "/usr/local/cuda/lib64"), "libcudnn.so")]
    places += [os.path.join(folder, "libcudnn.so.9") for folder in find_wheel_folders()]
    if paddle and not evidence["libcudnn.so"] and not any(map(os.path.exists, places)):
        text = "Paddle opens libcudnn.so, and only names with a version number are here"
        return ctx.fails("E07", text, "unversioned-name-missing", evidence)
    absent = sorted(name for name, path in evidence.items() if path is None)
    note = absent and "not on the loader's path: %s" % ", ".join(absent)
    text = "no installed framework needs an unversioned name that is missing"
    return ctx.passed("E07", text, evidence, note=note)
