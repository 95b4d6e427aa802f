"""P02: whether the libraries of the installed packages are as RECORD says: there, readable, of that size.

Hashes take seconds for each gigabyte. They are computed under ``--thorough``, to explain a crash, and for a
file with a megabyte of zeros in one piece: the trace of a write that failed.
"""

import base64
import hashlib
import os
import re
import time

from .distributions import read_distributions, read_record, read_text, search_folders
from .library_files import section_spans
from .protocol import COUNTER_LAYER, stage
from .resolver import Loader

_HASH_LIMIT = 64 << 20
_STRIDE = 512 << 10
_WATCHED = re.compile(
    r"nvidia-|torch$|tensorflow(-gpu)?$|tf-nightly$|jaxlib$|jax-cuda\d+-|onnxruntime(-gpu)?$|cupy|paddlepaddle-gpu$|"
    r"ctranslate2$|numpy$"
)
_PROGRAMS = ("ptxas", "nvlink")
_TOOLS = (*_PROGRAMS, "libdevice.10.bc")
# Files that slim images leave out, and no convolution needs.
_SPARE = re.compile(
    r"tensorrt|nvblas|cufftw|openvino|dnnl|rocm|test|libnvrtc.*alt|_static|nvperf|pcsamp|libcheckpoint"
)


def watched_files(distributions):
    """{path: [(package, RECORD's row)]} of the libraries and tools that frameworks need."""
    owners = {}
    for name, row in sorted(distributions.items()):
        installer = os.path.join(row["location"], row["info"], "INSTALLER")
        # conda sets run paths after RECORD was written, so sizes differ
        if not _WATCHED.match(name) or read_text(installer, 100).strip() == "conda":
            continue
        for entry in read_record(row, _is_watched):
            if entry["sha256"]:
                owners.setdefault(entry["path"], []).append((name, entry))
    return owners


def _is_watched(path):
    base = path.rpartition("/")[2]
    return ".so" in base or base in _TOOLS


def _look(path, rows, found, loader):
    """Add what is wrong with one file: gone or present {package: paths}, or a row in another list."""
    names = [name for name, _ in rows]
    tool = os.path.basename(path) in _PROGRAMS
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
        row = {"path": path, "size": size, "not_as_in": strangers or names, "as_in": matching}
        found["damaged" if problem else "changed"].append(dict(row, problem=problem) if problem else row)


def _cut(path, size, rows, loader):
    """Why a file cannot be used, whatever RECORD says; None for a sound one, also if stripped or rebuilt."""
    if re.search(r"\.so(\.\d+)*$", path):
        return loader.problem(path)
    if not path.endswith(_TOOLS):
        return None
    other = path.endswith(_PROGRAMS) and loader.header(path)["skipped"]
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
    found["damaged"] += wrong_hashes(owners, None if ctx.thorough else has_zeros)
    found["denied"] += [folder for folder in search_folders() if not os.access(folder, os.R_OK | os.X_OK)]
    most = (("changed", 50), ("shared", 50), ("damaged", 20), ("denied", 20))
    evidence = dict({key: found[key][:count] for key, count in most}, gone=found["gone"])
    failure = _failure(found, evidence)
    if failure:
        text, cause, evidence["packages"] = failure
        return ctx.fails("P02", text, cause, evidence)
    shared = len(found["shared"])
    note = shared and "%d files have two owners with the same content" % shared
    gone = [path for rows in found["gone"].values() for path in rows[:3]]
    note = "missing since installation: " + ", ".join(gone) if gone else note
    text = "%d libraries are as their packages installed them" % len(owners)
    return ctx.passed("P02", text, evidence, note=note)


def _failure(found, evidence):
    """(text, cause, names of the packages at fault) of what is worst, or None."""
    overwritten = [row for row in found["changed"] if row["as_in"]]
    vanished = sorted(set(found["gone"]) - found["present"])
    gone = sorted(found["gone"].items())
    lost = [(name, path) for name, paths in gone for path in paths if _is_needed(name, path)]
    if found["denied"]:
        return "%s cannot be read by this user" % found["denied"][0], "file-access-denied", []
    if overwritten:
        row = overwritten[0]
        text = "%s belongs to %s but is the file of %s" % (row["path"], row["not_as_in"][0], row["as_in"][0])
        return text, "package-overwritten", row["not_as_in"]
    tools = [path for _, path in lost if os.path.basename(path) in _TOOLS]
    if tools:
        return "%s, which its package installed, is gone" % tools[0], "ptxas-missing", []
    if vanished:
        text = "pip lists %s, but its libraries are gone" % ", ".join(vanished)
        return text, "package-overwritten", vanished
    if found["damaged"]:
        row = found["damaged"][0]
        text = "%s of %s is damaged: %s" % (row["path"], row["not_as_in"][0], row["problem"])
        # a file of another release is no damage: cuDNN's own version checks, later, know better
        evidence["yields"] = os.path.basename(row["path"]).startswith("libcudnn")
        return text, "package-overwritten", row["not_as_in"]
    if lost:
        name, path = lost[0]
        return "%s, which %s installed, is gone" % (path, name), "package-overwritten", [name]
    if found["changed"]:
        evidence["weak"] = True
        row = found["changed"][0]
        text = "%s is not the file that its package installed" % row["path"]
        return text, "package-overwritten", row["not_as_in"]
    return None


def _is_needed(name, path):
    """True for a lost file whose absence breaks something; other checks know about NVIDIA's libraries."""
    base = os.path.basename(path)
    if name.startswith("nvidia-"):
        return base in ("ptxas", "libdevice.10.bc") or base.startswith("libcudnn")
    return not _SPARE.search(base)


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


def wrong_hashes(owners, chosen=None, until=None):
    """Rows of the files whose content differs from that of all their packages.

    ``chosen(path)`` picks the files to hash, None all of them; ``until`` (``time.time()``) ends it.
    """
    rows = []
    for path in sorted(owners, key=lambda name: ("cudnn" not in name, name)):
        try:
            size = os.path.getsize(path)
            if size not in [entry["size"] for _, entry in owners[path]] or (chosen and not chosen(path)):
                continue
            if not owners_by_hash(path, owners[path]):
                row = {"path": path, "not_as_in": [name for name, _ in owners[path]], "as_in": []}
                problem = "its content is not what was installed (sha256)"
                rows.append(dict(row, size=size, problem=problem))
        except OSError:
            continue
        if until is not None and time.time() > until:
            break
    return rows


def owners_by_hash(path, rows):
    """The owners whose hash a file has; OSError if it cannot be read."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    text = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode("ascii")
    return [name for name, entry in rows if entry["sha256"].rstrip("=") == text]


def _by_hash(path, size, rows):
    """:func:`owners_by_hash`; [] if the sizes tell, or the file is too large to hash soon, or closed."""
    if len({entry["size"] for _, entry in rows}) > 1 or size > _HASH_LIMIT:
        return []
    try:
        return owners_by_hash(path, rows)
    except OSError:
        return []


@stage("hashes", layer=COUNTER_LAYER, timeout=120)
def hashes_stage(ctx):
    """Hash the watched files, to explain a crash: the fact ``damaged``."""
    owners = watched_files(read_distributions(search_folders()))
    ctx.fact("damaged", wrong_hashes(owners, until=ctx.start + 110))
