"""E03 to E05: which copies of the CUDA family lie here, whether files are whole and sets complete.

All of it before any file is loaded: a truncated library is a SIGBUS for whoever maps it.
"""

import errno
import os
import re

from .library_files import WAITS
from .machine_limits import on_noexec_mount
from .protocol import stage
from .scene import look_around
from .sublibraries import named_sublibraries, shim_major


@stage("files", layer="files", timeout=60)
def files_stage(ctx):
    """Look at every library without loading one."""
    scene = look_around()
    for key in ("candidates", "consumers", "copies", "orphans", "wheel_folders"):
        ctx.fact(key, scene[key])
    ctx.fact("libraries_found", scene["libraries"])
    _check_inventory(ctx, scene)
    # opening one of these would wait for ever, and no stage that loads something is to try
    ctx.fact("waits", [row["path"] for row in scene["libraries"] if row["problem"] == WAITS])
    in_play = copies_in_play(scene)
    _check_integrity(ctx, scene, in_play)
    _check_sets(ctx, scene, in_play)


def _check_inventory(ctx, scene):
    copies = scene["copies"]
    real = sorted({os.path.realpath(c["folder"]) for c in copies})
    note = len(real) > 1 and "%d copies of cuDNN: which one is loaded depends on who asks" % len(real)
    where = ", ".join(sorted({c["folder"] for c in copies})) or "nowhere"
    evidence = {"copies": copies, "libraries": len(scene["libraries"]), "candidates": scene["candidates"]}
    ctx.passed("E03", "cuDNN: %s" % where, evidence, note=note)


def copies_in_play(scene):
    """(real folder, major) of every cuDNN that would be loaded; of all that are here if none would be."""
    paths = [row["path"] for row in scene["candidates"]] or [copy["shim"] for copy in scene["copies"]]
    pairs = set()
    for path in paths:
        folders = os.path.realpath(os.path.dirname(path)), os.path.dirname(os.path.realpath(path))
        pairs |= {(folder, shim_major(os.path.basename(path))) for folder in folders}
    return pairs


def _check_integrity(ctx, scene, in_play):
    bad = [row for row in scene["libraries"] if row["problem"]]
    evidence = {"bad": bad}
    blocking = [row for row in bad if _blocks(row, scene, in_play)]
    used = [row["path"] for row in scene["candidates"]] + [row["requester"] for row in scene["consumers"]]
    mounted = [path for path in used if on_noexec_mount(path)]
    if mounted:
        text = "%s lies on a file system mounted noexec" % mounted[0]
        ctx.fails("E04", text, "noexec-mount", {"noexec": mounted})
    elif blocking:
        row = blocking[0]
        text = "%s is no usable library: %s" % (row["path"], row["problem"])
        denied = row["problem"] == os.strerror(errno.EACCES)
        ctx.fails("E04", text, "file-access-denied" if denied else "cudnn-file-corrupt", evidence)
    elif bad:
        note = "; ".join("%s (%s)" % (row["path"], row["problem"]) for row in bad[:5])
        ctx.passed("E04", "all cuDNN files in use are whole", evidence, "not in use, but unusable: " + note)
    else:
        count = len(scene["libraries"])
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
        ctx.not_run("E05", "no cuDNN here to look at")
        return
    broken = [copy for copy in relevant if copy["missing"]]
    if broken:
        copy = broken[0]
        text = "cuDNN %d in %s lacks %s" % (copy["major"], copy["folder"], ", ".join(copy["missing"]))
        # the loader may fill the gap from there, with another version
        elsewhere = [row["path"] for row in scene["libraries"] if row["name"] in copy["missing"]]
        evidence = {"copies": broken, "elsewhere": elsewhere}
        ctx.fails("E05", text, "cudnn-sublibrary-missing", evidence)
        return
    extra = {}
    for copy in relevant:
        named = named_sublibraries(copy["folder"], copy["major"])
        absent = [name for name in named if not os.path.exists(os.path.join(copy["folder"], name))]
        if absent:
            extra[copy["folder"]] = absent
    texts = ["%s in %s" % (", ".join(names), folder) for folder, names in sorted(extra.items())]
    note = texts and "named inside cuDNN but not shipped beside it: " + "; ".join(texts)
    ctx.fact("named_but_absent", extra)
    summary = "complete: " + ", ".join("cuDNN %d in %s" % (c["major"], c["folder"]) for c in relevant)
    ctx.passed("E05", summary, {"copies": relevant, "named_but_absent": extra}, note=note)
