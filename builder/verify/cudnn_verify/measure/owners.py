"""P02: whether the libraries of the installed packages are as RECORD says: there, readable, of that size and,
if they were changed since or all are asked for, of that content.
"""

import os
import re

from ..common.distributions import read_record, search_folders
from .contents import (
    PROGRAMS,
    TOOLS,
    compare_contents,
    damaged_sources,
    has_record,
    owners_by_hash,
    watched_files,
    watched_names,
)
from .library_files import Loader

_HASH_LIMIT = 64 << 20
# Files that slim images leave out, and no convolution needs.
_SPARE = re.compile(
    r"tensorrt|nvblas|cufftw|openvino|dnnl|rocm|test|libnvrtc.*alt|_static|nvperf|pcsamp|libcheckpoint|cusolverMg|"
    r"nvshmem_|cufile_rdma"
)
# The causes of their own that files have which are gone; package-overwritten for others.
_CAUSES_OF_LOSS = (
    (re.compile(r"ptxas$|libdevice|nvlink$"), "ptxas-missing"),
    (re.compile(r"libnvrtc"), "nvrtc-missing"),
)


def _look(path, rows, found, loader):
    """Add what is wrong with one file: gone or present {package: paths}, or a row in another list."""
    names = [name for name, _ in rows]
    tool = os.path.basename(path) in PROGRAMS
    try:
        size = os.path.getsize(path)
        closed = not os.access(path, os.R_OK | (os.X_OK if tool else 0))
    except PermissionError:
        size, closed = None, True
    except OSError:
        for name in names:
            found["gone"].setdefault(name, []).append(path)
        return
    if closed:
        found["denied"].append(path)
        return
    found["present"].update(names)
    matching = [name for name, entry in rows if entry["size"] in (None, size)]
    if len(names) > 1:
        found["shared"].append({"path": path, "owners": names})
        matching = _by_hash(path, size, rows) or matching
    strangers = [name for name in names if name not in matching]
    # RECORD may have been written anew with the file
    problem = None if strangers and matching else _cut(path, size, rows, loader)
    if problem and matching and not tool and loader.header(path)["skipped"] and owners_by_hash(path, rows):
        return  # a whole package for another machine is no damage: who imports it knows better
    if strangers or problem:
        # of the very size that its one owner installed, and broken: no other package's file
        row = {
            "path": path,
            "size": size,
            "not_as_in": strangers or names,
            "as_in": matching if strangers else [],
        }
        found["damaged" if problem else "changed"].append(dict(row, problem=problem) if problem else row)


def _cut(path, size, rows, loader):
    """Why a file cannot be used, whatever RECORD says; None for a sound one, also if stripped or rebuilt."""
    if re.search(r"\.so(\.\d+)*$", path):
        return loader.problem(path)
    if not path.endswith(TOOLS):
        return None
    other = path.endswith(PROGRAMS) and loader.header(path)["skipped"]
    shorter = size < max(entry["size"] or 0 for _, entry in rows)
    return loader.header(path)["problem"] if other else "shorter than it was" if shorter else None


def check_owners(ctx, distributions):
    """P02."""
    owners = watched_files(distributions)
    found = {"gone": {}, "present": set(), "denied": [], "shared": [], "changed": [], "damaged": []}
    loader = Loader()
    for path in sorted(owners):
        _look(path, owners[path], found, loader)
    if ctx.thorough:
        ctx.extend(900)
    seconds = float("inf") if ctx.thorough else (ctx.params.get("timeout") or float("inf")) / 4
    differ, unread = compare_contents(owners, every=ctx.thorough, seconds=seconds)
    known = {row["path"] for row in found["damaged"]}
    found["damaged"] += [row for row in differ if row["path"] not in known]
    _name_intruders(found, distributions)
    ctx.fact("uncompared", unread)
    found["sources"], resized = damaged_sources(distributions)
    ctx.fact("resized", {name: paths[:20] for name, paths in resized.items()})
    found["denied"] += [folder for folder in search_folders() if not os.access(folder, os.R_OK | os.X_OK)]
    most = (("changed", 50), ("shared", 50), ("damaged", 20), ("denied", 20))
    evidence = dict({key: found[key][:count] for key, count in most}, gone=found["gone"], by_size=unread[:50])
    failure = _failure(found, evidence)
    if failure:
        text, cause, evidence["packages"], evidence["not_as_installed"] = failure
        return ctx.fails("P02", text, cause, evidence)
    return ctx.passed("P02", _summary(owners, unread), evidence, note=_note(found, distributions))


def _name_intruders(found, distributions):
    """Fill ``as_in`` by packages that nobody watches, whose RECORD has a file with the very hash on disk."""
    rows = {row["path"]: row for row in found["damaged"] + found["changed"] if not row["as_in"]}
    bases = {os.path.basename(path) for path in rows}
    owners = {}
    for name, one in sorted(distributions.items()) if rows else ():
        for entry in read_record(one, lambda path: path.rpartition("/")[2] in bases):
            row = rows.get(entry["path"])
            same = row and entry["sha256"] and entry["size"] == row["size"]
            if same and name not in row["not_as_in"]:
                owners.setdefault(entry["path"], []).append((name, entry))
    for path, entries in owners.items():
        rows[path]["as_in"] = _by_hash(path, rows[path]["size"], entries)
    found["changed"] += [row for row in found["damaged"] if row["as_in"]]
    found["damaged"] = [row for row in found["damaged"] if not row["as_in"]]


def _summary(owners, unread):
    """What was compared, and how: a size says less than a hash."""
    if not unread:
        return "%d libraries are as their packages installed them (sha256)" % len(owners)
    hashed, names = len(owners) - len(unread), [os.path.basename(path) for path in unread]
    if not hashed:
        return "%d libraries are as large as their packages installed them (sha256: --thorough)" % len(owners)
    text = (
        "%d of %d libraries are as their packages installed them (sha256), %d were compared by size alone: %s"
    )
    return text % (hashed, len(owners), len(unread), ", ".join(names[:3]) + ", ..." * (len(names) > 3))


def _note(found, distributions):
    gone = [path for rows in found["gone"].values() for path in rows[:3]]
    watched = watched_names()
    bare = [
        name for name, row in sorted(distributions.items()) if watched.match(name) and not has_record(row)
    ]
    notes = (
        gone and "missing since installation: " + ", ".join(gone),
        bare and "no RECORD to compare %s with" % ", ".join(bare),
        found["shared"] and "%d files have two owners with the same content" % len(found["shared"]),
    )
    return "; ".join(filter(None, notes))


def _failure(found, evidence):
    """(text, cause, names of the packages at fault, their files) of what is worst, or None.

    ``weak`` in the evidence: a program may do without it, or strip it. ``yields``: a file of another release
    is no damage, and cuDNN's own version checks, later, know better.
    """
    overwritten = [row for row in found["changed"] if row["as_in"]]
    vanished = sorted(set(found["gone"]) - found["present"])
    gone = sorted(found["gone"].items())
    lost = [(name, path) for name, paths in gone for path in paths if _is_needed(path)]
    if found["denied"]:
        return (
            "%s cannot be read by this user" % found["denied"][0],
            "file-access-denied",
            [],
            found["denied"],
        )
    if overwritten:
        text = "%s belongs to %s but is the file of %s"
        row = overwritten[0]
        return _finding(overwritten, text % (row["path"], row["not_as_in"][0], row["as_in"][0]))
    for family, cause in _CAUSES_OF_LOSS:
        some = [(name, path) for name, path in lost if family.match(os.path.basename(path))]
        if some:
            return _loss(some, cause)
    if vanished:
        text = "pip lists %s, but its libraries are gone" % ", ".join(vanished)
        return (
            text,
            "package-overwritten",
            vanished,
            [path for name in vanished for path in found["gone"][name]],
        )
    if found["damaged"]:
        row = found["damaged"][0]
        evidence["yields"] = os.path.basename(row["path"]).startswith("libcudnn")
        text = "%s of %s is damaged: %s" % (row["path"], row["not_as_in"][0], row["problem"])
        return _finding(found["damaged"], text)
    if lost:
        evidence["weak"] = all(name.startswith("nvidia-") for name, _ in lost)
        return _loss(lost, "package-overwritten")
    if found["sources"]:
        evidence["weak"] = True
        name = min(found["sources"])
        paths = [path for rows in found["sources"].values() for path in rows]
        text = "%s of %s is gone, empty or cut" % (found["sources"][name][0], name)
        return text, "package-overwritten", sorted(found["sources"]), paths[:50]
    if found["changed"]:
        evidence["weak"] = True
        text = "%s is not the file that its package, %s, installed"
        row = found["changed"][0]
        return _finding(found["changed"], text % (row["path"], row["not_as_in"][0]))
    return None


def _finding(rows, text):
    names = list(dict.fromkeys(name for row in rows for name in row["not_as_in"]))
    return text, "package-overwritten", names, [row["path"] for row in rows]


def _loss(rows, cause):
    name, path = rows[0]
    names = list(dict.fromkeys(name for name, _ in rows))
    return "%s, which %s installed, is gone" % (path, name), cause, names, [path for _, path in rows]


def _is_needed(path):
    """True for a lost file whose absence may break something."""
    base = os.path.basename(path)
    return base in ("ptxas", "libdevice.10.bc") if base in TOOLS else not _SPARE.search(base)


def _by_hash(path, size, rows):
    """:func:`owners_by_hash`; [] if the sizes tell, or the file is too large to hash soon, or closed."""
    if len({entry["size"] for _, entry in rows}) > 1 or size > _HASH_LIMIT:
        return []
    try:
        return owners_by_hash(path, rows)
    except OSError:
        return []
