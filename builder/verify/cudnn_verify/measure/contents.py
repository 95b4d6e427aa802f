"""P02: whether the libraries of the installed packages are as RECORD says: there, readable, of that size and,
if they were changed since or all are asked for, of that content.

Hashes take a second or more for each gigabyte, and a framework brings five of them. So by default only files
are hashed whose times say that they changed after their package's RECORD was written, cuDNN and the smallest
first, until the time is over. Whoever asks is told which were not compared.
"""

import base64
import hashlib
import os
import re
import time

from ..common.distributions import read_distributions, read_record, read_text, search_folders
from ..common.tables import read_frameworks
from .library_files import Loader, section_spans
from .protocol import COUNTER_LAYER, stage

WRITTEN, TOUCHED, AS_INSTALLED = range(3)
_HASH_SECONDS = {WRITTEN: 10.0, TOUCHED: 1.0, AS_INSTALLED: 0.0}
"""Limits by what a file's times say; copying a whole environment touches every file."""
_ZEROS_SECONDS = 1.0
_BLOCK, _STRIDE = 1 << 20, 512 << 10
_BESIDE = r"nvidia-.*|jaxlib|jax-cuda\d+-.*|onnxruntime|numpy|triton"
"""Distributions with libraries that are compared, beside those of the frameworks themselves."""
PROGRAMS = ("ptxas", "nvlink")
TOOLS = (*PROGRAMS, "libdevice.10.bc")
_CLOCKS = 2.0
"""Seconds by which the times of two files of one installation may be in the wrong order."""


def watched_names():
    """The pattern of the names of the distributions whose files are compared, frameworks' and others'."""
    frameworks = [row["packages"] for row in read_frameworks().values() if "packages" in row]
    return re.compile("(?:%s)$" % "|".join([_BESIDE, *frameworks]))


def watched_files(distributions):
    """{path: [(package, RECORD's row)]} of the libraries and tools that frameworks need.

    ``record`` in a row is RECORD's own ``os.stat``; ``stale`` says whether it is wrong about METADATA.
    """
    owners = {}
    watched = watched_names()
    for name, row in sorted(distributions.items()):
        if not watched.match(name) or not has_record(row):
            continue
        lines = read_record(row, lambda path: _is_watched(path) or path.endswith(".dist-info/METADATA"))
        # no installer changes METADATA
        meta = [entry for entry in lines if entry["path"].endswith("/METADATA")]
        about = {
            "record": os.stat(os.path.join(row["location"], row["info"], "RECORD")),
            "stale": any(entry["size"] not in (None, _size(entry["path"])) for entry in meta),
        }
        for entry in lines:
            # Triton's own programs are started by K01
            tool = name == "triton" and entry["path"].endswith(PROGRAMS)
            if entry["sha256"] and entry not in meta and not tool:
                owners.setdefault(entry["path"], []).append((name, dict(entry, **about)))
    return owners


def has_record(distribution):
    """Whether there is a RECORD to compare with. conda sets run paths after it was written: its is none."""
    info = os.path.join(distribution["location"], distribution["info"])
    by_conda = read_text(os.path.join(info, "INSTALLER"), 100).strip() == "conda"
    return not by_conda and os.path.isfile(os.path.join(info, "RECORD"))


def damaged_sources(distributions):
    """({package: paths}, {package: paths}): Python files that are gone, empty, or no Python any more; and
    those that are of another size than their package installed.

    Of the watched packages. What somebody patched is of the second kind alone; stripped tests, and a file in
    whose place a compiled one lies, are of none.
    """
    damaged, resized, watched = {}, {}, watched_names()
    for name, row in sorted(distributions.items()):
        rows = read_record(row, _is_source) if watched.match(name) and has_record(row) else ()
        for entry in rows:
            size = _size(entry["path"]) if entry["size"] else entry["size"]
            if size != entry["size"] and size is not None:
                found = damaged if _is_damaged(entry["path"], size) else resized
                found.setdefault(name, []).append(entry["path"])
    return damaged, resized


def _is_source(path):
    return path.endswith(".py") and not re.search("test|__pycache__|^\\.\\.", path)


def _size(path):
    """A file's size; 0 for one that is gone; None where a compiled one lies in its place."""
    try:
        return os.path.getsize(path)
    except OSError:
        return None if os.path.exists(path + "c") else 0


def _is_damaged(path, size):
    try:
        with open(path, "rb") as stream:
            compile(stream.read(), path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, FileNotFoundError):
        return True
    except OSError:
        return False  # closed: an import that fails by it says so
    return size == 0


def _is_watched(path):
    base = path.rpartition("/")[2]
    return ".so" in base or base in TOOLS


def compare_contents(owners, every=False, seconds=float("inf")):
    """([rows of the files that differ], [paths that were not compared]).

    ``owners``: :func:`watched_files`; ``every``: whether to hash files that are as installed by their times,
    too; ``seconds``: the limit.
    """
    files = []
    for path, rows in owners.items():
        try:
            about = os.stat(path)
        except OSError:
            continue
        if about.st_size in {entry["size"] for _, entry in rows} or not all(
            entry["size"] for _, entry in rows
        ):
            files.append((change_since_record(about, rows), "cudnn" not in path, about.st_size, path))
    start, differ, unread = time.time(), [], []
    for change, _, _, path in sorted(files):
        limit = seconds if every else min(_HASH_SECONDS[change], seconds)
        same = _is_same(path, owners[path], start + limit) if limit else None
        if same is None:
            unread.append(path)
        elif not same:
            differ.append(path)
    # what a write that failed leaves behind
    until = time.time() + _ZEROS_SECONDS
    holed = [path for path in unread if time.time() < until and _is_holed(path)]
    holes = [path for path in holed if _is_same(path, owners[path]) is False]
    return [_differing(path, owners[path]) for path in differ + holes], sorted(set(unread) - set(holes))


def change_since_record(about, rows):
    """The change of a file since the last RECORD that lists it was written, by its times (``os.stat``).

    A hard link more or less, as uv makes them, changes the time of the inode, too, and nothing in the file.
    """
    if about.st_mtime > max(entry["record"].st_mtime for _, entry in rows) + _CLOCKS:
        return WRITTEN
    touched = about.st_ctime > max(entry["record"].st_ctime for _, entry in rows) + _CLOCKS
    return TOUCHED if touched and about.st_nlink == 1 else AS_INSTALLED


def _differing(path, rows):
    row = {"path": path, "size": os.path.getsize(path), "not_as_in": [name for name, _ in rows], "as_in": []}
    return dict(row, problem="its content is not what was installed (sha256)")


def _is_same(path, rows, until=float("inf")):
    """Whether a file has the hash of one of its owners; None if it cannot be read, or not in time."""
    try:
        return bool(owners_by_hash(path, rows, until))
    except OSError:
        return None


def _is_holed(path):
    try:
        return has_zeros(path)
    except OSError:  # closed, which is a finding of its own
        return False


def owners_by_hash(path, rows, until=float("inf")):
    """The owners whose hash a file has; OSError if it cannot be read, or is not by ``until``."""
    digest = hashlib.sha256()
    with open(path, "rb", 0) as stream:
        for block in iter(lambda: stream.read(_BLOCK), b""):
            digest.update(block)
            if time.time() > until:
                raise TimeoutError(path)
    text = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode("ascii")
    return [name for name, entry in rows if entry["sha256"].rstrip("=") == text]


def has_zeros(path):
    """True for a file with half a megabyte of zeros between two multiples of it, within one section.

    Between sections the linker leaves megabytes of them: all of cuDNN 9.3 and later has such gaps.
    """
    spans = section_spans(path)
    with open(path, "rb", 0) as stream:
        fd = stream.fileno()
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # a page each, not what follows it
        before = False
        for place in range(0, os.fstat(fd).st_size, _STRIDE):
            here = not any(os.pread(fd, 64, place))
            inside = any(start <= place - _STRIDE and place + 64 <= end for start, end in spans)
            if here and before and inside and not any(os.pread(fd, _STRIDE, place - _STRIDE)):
                return True
            before = here
    return False


@stage("hashes", layer=COUNTER_LAYER, timeout=120)
def hashes_stage(ctx):
    """Hash the watched files that nobody has compared so far, to explain a crash: the fact ``damaged``."""
    owners = watched_files(read_distributions(search_folders()))
    left = ctx.facts.get("uncompared")
    owners = owners if left is None else {path: owners[path] for path in left if path in owners}
    ctx.fact("damaged", compare_contents(owners, every=True, seconds=110)[0])


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
    found["edited"] = [row for row in found["changed"] if _is_edited(row, owners[row["path"]])]
    found["changed"] = [row for row in found["changed"] if row not in found["edited"]]
    ctx.fact("uncompared", unread)
    found["sources"], resized = damaged_sources(distributions)
    ctx.fact("resized", {name: paths[:20] for name, paths in resized.items()})
    found["denied"] += [folder for folder in search_folders() if not os.access(folder, os.R_OK | os.X_OK)]
    most = (("changed", 50), ("shared", 50), ("damaged", 20), ("denied", 20), ("edited", 20))
    evidence = dict({key: found[key][:count] for key, count in most}, gone=found["gone"], by_size=unread[:50])
    failure = _failure(found, evidence)
    if failure:
        text, cause, evidence["packages"], evidence["not_as_installed"] = failure
        return ctx.fails("P02", text, cause, evidence)
    same = owners.keys() - {row["path"] for row in found["edited"]}
    return ctx.passed("P02", _summary(same, unread), evidence, note=_note(found, distributions))


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


def _is_edited(row, rows):
    """Whether a file's author changed it after RECORD was written: it has another size, is of no other
    package, and was not written since.

    So is libtorch_cpu.so in PyTorch 1.9.1, which was stripped: pip and uv install it, and leave its line of
    RECORD. Where the times are those of a copy of the whole environment, another file may have come by it,
    too: then only if RECORD is as wrong about METADATA (https://github.com/pytorch/pytorch/issues/47916).
    """
    if row["as_in"] or row["size"] is None:
        return False
    change = change_since_record(os.stat(row["path"]), rows)
    return change == AS_INSTALLED or (change == TOUCHED and all(entry["stale"] for _, entry in rows))


def _summary(owners, unread):
    """The comparison in words: a size says less than a hash."""
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
        found["edited"]
        and "changed by its author after RECORD was written, by size and times: %s"
        % ", ".join(row["path"] for row in found["edited"][:3]),
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
