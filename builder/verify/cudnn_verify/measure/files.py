"""E03 to E05: which copies of the CUDA family lie here, whether files are whole and sets complete.

All of it before any file is loaded: a truncated library is a SIGBUS for whoever maps it.
"""

import errno
import os
import re

from ....core.elf import WAITS
from ....core.link import default_folders, read_cache
from ..common.distributions import find_wheel_folders, list_folder, read_distributions, search_folders
from ..common.tables import read_frameworks
from .consumers import find_consumers
from .environment import on_noexec_mount
from .library_files import (
    Loader,
    folder_version,
    is_cuda_library,
    required_sublibraries,
    shim_major,
    shim_name,
    toolkit_folders,
    unshipped_sublibraries,
)
from .protocol import stage


@stage("files", layer="files", timeout=60)
def files_stage(ctx):
    folders, wheel_folders, loader = search_folders(), find_wheel_folders(), Loader()
    libraries = _inventory(_places(folders, wheel_folders, loader), loader)
    copies, orphans = _copies(libraries)
    consumers = find_consumers(folders, read_distributions(folders), loader, wheel_folders)
    scene = {
        "libraries_found": libraries,
        "copies": copies,
        "orphans": orphans,
        "wheel_folders": wheel_folders,
        "consumers": consumers,
        "candidates": choose_candidates(consumers, copies, loader),
        # opening one of these would wait for ever, and no stage that loads something is to try
        "waits": [row["path"] for row in libraries if row["problem"] == WAITS],
    }
    for key, value in scene.items():
        ctx.fact(key, value)
    ctx.attempt("E03", _check_inventory, ctx, scene)
    in_play = copies_in_play(scene)
    ctx.attempt("E04", _check_integrity, ctx, scene, in_play)
    ctx.attempt("E05", _check_sets, ctx, scene, in_play)


def _places(folders, wheel_folders, loader):
    """(folder, kind) of every place where the CUDA family may lie."""
    places = [(f, "LD_LIBRARY_PATH") for f in loader.library_path]
    places += [(os.path.dirname(p), "ld.so.cache") for n, p in read_cache() if is_cuda_library(n)]
    places += [(f, "default folder") for f in default_folders()]
    places += [(f, "wheel") for f in wheel_folders]
    inner = [name for row in read_frameworks().values() for name in row.get("inner", ())]
    places += [(os.path.join(folder, name), "framework") for folder in folders for name in inner]
    prefixes = filter(None, (os.environ.get("CONDA_PREFIX"), os.environ.get("CUDA_HOME")))
    places += [(os.path.join(prefix, lib), "prefix") for prefix in prefixes for lib in ("lib", "lib64")]
    return places + [(f, "toolkit") for f in toolkit_folders()]


def _inventory(places, loader):
    """Rows {name, path, real, kind, size, problem, soname}, one per entry of a folder; each folder once."""
    rows, seen = [], set()
    for folder, kind in places:
        real_folder = os.path.realpath(folder)
        if real_folder in seen:
            continue
        seen.add(real_folder)
        for name in filter(is_cuda_library, list_folder(folder)):
            path = os.path.join(folder, name)
            header = loader.header(path)
            row = {"name": name, "path": path, "real": os.path.realpath(path), "kind": kind}
            rows.append(dict(row, size=header["size"], problem=loader.problem(path), soname=header["soname"]))
    return rows


def _copies(libraries):
    """(copies, orphans): the folders with a cuDNN in them, and those with parts of one but no shim."""
    by_folder = {}
    for row in libraries:
        if row["name"].startswith("libcudnn"):
            by_folder.setdefault(os.path.dirname(row["path"]), []).append(row)
    copies, orphans = [], []
    for folder in sorted(by_folder):
        names = {row["name"]: row for row in by_folder[folder]}
        shims = {m for m in map(shim_major, names) if m is not None}
        parts = {int(n.rsplit(".", 1)[1]) for n in names if re.match(r"libcudnn_\w+\.so\.\d+$", n)}
        orphans += [{"folder": folder, "major": m, "files": len(names)} for m in sorted(parts - shims)]
        for major in sorted(shims):
            version = folder_version(folder, major)
            missing = [name for name in required_sublibraries(major, version) if name not in names]
            copy = {"folder": folder, "major": major, "version": version, "missing": missing}
            shim = os.path.join(folder, shim_name(major))
            copies.append(dict(copy, kind=by_folder[folder][0]["kind"], shim=shim))
    return copies, orphans


def choose_candidates(consumers, copies, loader):
    """The shims that programs here would load: [{path, by, for}], each real file once.

    With frameworks: the file that each gets. Without: the file of the bare name, and those of the wheels,
    which are made to be opened by their path.
    """
    found = [row for row in consumers if row["path"] is not None]
    rows = [{"path": row["path"], "by": row["by"], "for": row["framework"]} for row in found]
    if not any(c["path"] is not None or not c["optional"] for c in consumers):
        for major in (9, 8, 7):
            found = loader.resolve(shim_name(major))
            if found["path"] is not None:
                rows.append({"path": found["path"], "by": found["by"], "for": None})
        for copy in copies:
            if copy["kind"] in ("wheel", "framework") or not rows:
                rows.append({"path": copy["shim"], "by": copy["kind"], "for": None})
    chosen = {}
    for row in rows:
        first = chosen.setdefault(os.path.realpath(row["path"]), row)
        first["for"] = "/".join(sorted({name for name in (first["for"], row["for"]) if name})) or None
    return list(chosen.values())


def _check_inventory(ctx, scene):
    copies = scene["copies"]
    real = sorted({os.path.realpath(c["folder"]) for c in copies})
    note = len(real) > 1 and "%d copies of cuDNN: which one is loaded depends on who asks" % len(real)
    where = ", ".join(sorted({c["folder"] for c in copies})) or "nowhere"
    count = len(scene["libraries_found"])
    evidence = {"copies": copies, "candidates": scene["candidates"], "libraries": count}
    ctx.passed("E03", "cuDNN: %s" % where, evidence, note=note)


def copies_in_play(scene):
    """(real folder, major) of every cuDNN that would be loaded; of all that are here if none would be."""
    paths = [row["path"] for row in scene["candidates"]] or [copy["shim"] for copy in scene["copies"]]
    pairs = set()
    for path in paths:
        folders = os.path.realpath(os.path.dirname(path)), os.path.dirname(os.path.realpath(path))
        pairs |= {(folder, shim_major(path)) for folder in folders}
    return pairs


def _check_integrity(ctx, scene, in_play):
    bad = [row for row in scene["libraries_found"] if row["problem"]]
    blocking = [row for row in bad if _blocks(row, scene, in_play)]
    used = [row["path"] for row in scene["candidates"]] + [row["requester"] for row in scene["consumers"]]
    mounted = [path for path in used if on_noexec_mount(path)]
    if mounted:
        text = "%s lies on a file system mounted noexec" % mounted[0]
        ctx.fails("E04", text, "noexec-mount", {"noexec": mounted})
    elif blocking:
        denied = blocking[0]["problem"] == os.strerror(errno.EACCES)
        text = "%(path)s is no usable library: %(problem)s" % blocking[0]
        ctx.fails("E04", text, "file-access-denied" if denied else "cudnn-file-corrupt", {"bad": bad})
    elif bad:
        note = "not in use, but unusable: " + "; ".join("%(path)s (%(problem)s)" % row for row in bad[:5])
        ctx.passed("E04", "all cuDNN files in use are whole", {"bad": bad}, note)
    else:
        count = len(scene["libraries_found"])
        ctx.passed("E04", "%d file%s of the CUDA family, all whole" % (count, "" if count == 1 else "s"))


def _blocks(row, scene, in_play):
    """True for a damaged file of a cuDNN in use, or one for which the loader found no other."""
    found = re.match(r"libcudnn\w*\.so\.(\d+)", row["name"])
    if found is None:
        return False
    if (os.path.realpath(os.path.dirname(row["path"])), int(found.group(1))) in in_play:
        return True
    lost = [passed["path"] for c in scene["consumers"] if c["path"] is None for passed in c["passed"]]
    return row["path"] in lost or not scene["candidates"]


def _check_sets(ctx, scene, in_play):
    relevant = [c for c in scene["copies"] if (os.path.realpath(c["folder"]), c["major"]) in in_play]
    if not relevant:
        return ctx.not_run("E05", "no cuDNN here to look at")
    broken = [copy for copy in relevant if copy["missing"]]
    if broken:
        copy = broken[0]
        text = "cuDNN %d in %s lacks %s" % (copy["major"], copy["folder"], ", ".join(copy["missing"]))
        # the loader may fill the gap from there, with another version
        elsewhere = [row["path"] for row in scene["libraries_found"] if row["name"] in copy["missing"]]
        evidence = {"copies": broken, "elsewhere": elsewhere}
        return ctx.fails("E05", text, "cudnn-sublibrary-missing", evidence)
    absent = {copy["folder"]: unshipped_sublibraries(copy["folder"], copy["major"]) for copy in relevant}
    absent = {folder: names for folder, names in absent.items() if names}
    texts = ["%s in %s" % (", ".join(names), folder) for folder, names in sorted(absent.items())]
    note = texts and "named inside cuDNN but not shipped beside it: " + "; ".join(texts)
    summary = "complete: " + ", ".join("cuDNN %d in %s" % (c["major"], c["folder"]) for c in relevant)
    return ctx.passed("E05", summary, {"copies": relevant, "named_but_absent": absent}, note=note)
