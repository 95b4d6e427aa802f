"""Whether installed files still have the content whose sha256 is in RECORD.

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
from .library_files import section_spans
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

    ``record`` in a row is RECORD's own ``os.stat``.
    """
    owners = {}
    watched = watched_names()
    for name, row in sorted(distributions.items()):
        if not watched.match(name) or not has_record(row):
            continue
        record = os.stat(os.path.join(row["location"], row["info"], "RECORD"))
        for entry in read_record(row, _is_watched):
            # Triton's own programs are started by K01
            if entry["sha256"] and not (name == "triton" and entry["path"].endswith(PROGRAMS)):
                owners.setdefault(entry["path"], []).append((name, dict(entry, record=record)))
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
    """What a file's times (``os.stat``) say of it since the last RECORD that lists it was written.

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
