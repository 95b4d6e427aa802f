"""Whether installed files still have the content whose sha256 is in RECORD.

Hashes take a second or more for each gigabyte, and a framework brings five of them. So files that were
written after their package's RECORD come first, whatever they take; then those touched since, cuDNN, and
all others, the smallest first, until the time is over. Whoever asks is told which were not compared.
"""

import base64
import hashlib
import os
import re
import time

from .distributions import read_distributions, read_record, read_text, search_folders
from .library_files import section_spans
from .protocol import COUNTER_LAYER, stage

_DEFAULT_SECONDS, _SUSPECTS_SECONDS = 10.0, 40.0
_BLOCK, _STRIDE = 1 << 20, 512 << 10
WATCHED = re.compile(
    r"nvidia-|torch$|tensorflow(-gpu)?$|tf-nightly$|jaxlib$|jax-cuda\d+-|onnxruntime(-gpu)?$|cupy|paddlepaddle-gpu$|"
    r"ctranslate2$|numpy$"
)
PROGRAMS = ("ptxas", "nvlink")
TOOLS = (*PROGRAMS, "libdevice.10.bc")
_CLOCKS = 2.0
"""Seconds by which the times of two files of one installation may be in the wrong order."""


def watched_files(distributions):
    """{path: [(package, RECORD's row)]} of the libraries and tools that frameworks need.

    ``recorded`` in a row is the time at which RECORD itself was written.
    """
    owners = {}
    for name, row in sorted(distributions.items()):
        if not WATCHED.match(name) or not has_record(row):
            continue
        recorded = os.stat(os.path.join(row["location"], row["info"], "RECORD")).st_mtime
        for entry in read_record(row, _is_watched):
            if entry["sha256"]:
                owners.setdefault(entry["path"], []).append((name, dict(entry, recorded=recorded)))
    return owners


def has_record(distribution):
    """Whether there is a RECORD to compare with. conda sets run paths after it was written: its is none."""
    info = os.path.join(distribution["location"], distribution["info"])
    by_conda = read_text(os.path.join(info, "INSTALLER"), 100).strip() == "conda"
    return not by_conda and os.path.isfile(os.path.join(info, "RECORD"))


def _is_watched(path):
    base = path.rpartition("/")[2]
    return ".so" in base or base in TOOLS


def compare_contents(owners, seconds=_DEFAULT_SECONDS):
    """([rows of the files that differ], [paths that were not compared]).

    ``owners``: :func:`owners.watched_files`; ``seconds``: None for no limit.
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
            recorded = max(entry["recorded"] for _, entry in rows) + _CLOCKS
            rank = 0 if about.st_mtime > recorded else 1 if about.st_ctime > recorded else 2
            files.append((rank, "cudnn" not in path, about.st_size, path))
    start, differ, unread = time.time(), [], []
    for rank, _, _, path in sorted(files):
        limit = _SUSPECTS_SECONDS if rank == 0 else seconds
        same = _is_same(path, owners[path], None if seconds is None else start + limit)
        if same is None:
            unread.append(path)
        elif not same:
            differ.append(path)
    # what a write that failed leaves behind
    holes = [path for path in unread if _is_holed(path) and _is_same(path, owners[path]) is False]
    return [_differing(path, owners[path]) for path in differ + holes], sorted(set(unread) - set(holes))


def _differing(path, rows):
    row = {"path": path, "size": os.path.getsize(path), "not_as_in": [name for name, _ in rows], "as_in": []}
    return dict(row, problem="its content is not what was installed (sha256)")


def _is_same(path, rows, until=None):
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


def owners_by_hash(path, rows, until=None):
    """The owners whose hash a file has; OSError if it cannot be read, or is not by ``until``."""
    digest = hashlib.sha256()
    with open(path, "rb", 0) as stream:
        for block in iter(lambda: stream.read(_BLOCK), b""):
            digest.update(block)
            if until is not None and time.time() > until:
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
    ctx.fact("damaged", compare_contents(owners, 110)[0])
