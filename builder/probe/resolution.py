"""E06 and E07: the file that each framework and each cuDNN would get from the loader, and the rule."""

import os

from .distributions import find_wheel_folders
from .library_files import parts_of, shim_major
from .protocol import stage
from .resolver import Loader


@stage("resolver", layer="resolver", timeout=30)
def resolver_stage(ctx):
    """Work out which file the loader gives, without loading."""
    loader = Loader()
    _check_shims(ctx, loader)
    _check_unversioned(ctx, loader)


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
        ctx.fails("E06", text, cause, {"consumers": consumers, "copies": copies})
        return
    candidates = ctx.facts.get("candidates", [])
    if not candidates:
        _check_absence(ctx)
        return
    mixed = {row["path"]: mixed_folders(row, loader) for row in candidates}
    mixed = {path: names for path, names in mixed.items() if names}
    ctx.fact("mixed", mixed)
    lines = ["%s by %s%s" % (r["path"], r["by"], " for " + r["for"] if r["for"] else "") for r in candidates]
    apart = "sub-libraries come from another folder than their shim; the cuDNN stage shows whether they fit"
    ctx.passed("E06", "; ".join(lines), {"consumers": consumers, "mixed": mixed}, note=mixed and apart)


def _check_absence(ctx):
    """No shim at all: a fault if a package, an expectation or left-over parts ask for one."""
    orphans = ctx.facts.get("orphans", [])
    listed = sorted(n for n in ctx.facts.get("packages", {}) if n.startswith("nvidia-cudnn-cu"))
    evidence = {"orphans": orphans, "packages": listed, "expected": ctx.expect.get("cudnn")}
    if orphans:
        text = "%(folder)s holds parts of cuDNN %(major)d, but no libcudnn.so.%(major)d" % orphans[0]
        ctx.fails("E06", text, "cudnn-missing", evidence)
    elif ctx.expect.get("cudnn") or listed:
        who = listed[0] + " is installed" if listed else "cuDNN %s is expected" % ctx.expect["cudnn"]
        ctx.fails("E06", "%s, and there is no libcudnn here" % who, "cudnn-missing", evidence)
    else:
        ctx.not_run("E06", "no cuDNN here to resolve", evidence)


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
        ctx.fails("E07", text, "unversioned-name-missing", evidence)
        return
    absent = sorted(name for name, path in evidence.items() if path is None)
    note = absent and "not on the loader's path: %s" % ", ".join(absent)
    ctx.passed("E07", "no installed framework needs an unversioned name that is missing", evidence, note=note)
