"""The file that the dynamic loader gives for a name, and why: its search, worked out without loading.

Its cache and its built-in folders are read as it reads them, without running ldconfig.

The order is that of ``man 8 ld.so``: DT_RPATH of the requester (unless it has a DT_RUNPATH),
LD_LIBRARY_PATH, DT_RUNPATH of the requester, ``/etc/ld.so.cache``, the default folders. So a wheel with
DT_RPATH (PyTorch's) beats LD_LIBRARY_PATH and one with DT_RUNPATH (cuDNN's and TensorFlow's) loses to it.
"""

import glob
import os
import struct
import sys

from .library_files import another_library, read_elf

_NEW_CACHE = b"glibc-ld.so.cache1.1"
_OLD_CACHE = b"ld.so-1.7.0"
# Low byte 3 is "ELF, libc 6", the next one the processor: https://sourceware.org/git/glibc.git elf/cache.c
_CACHE_FLAGS = {"x86_64": 0x0303, "aarch64": 0x0A03, "ppc64le": 0x0503}


class Loader(object):
    """The loader's view under one environment; reads the cache once and each file's header once."""

    def __init__(self, library_path=None, cache=None, defaults=None):
        path = os.environ.get("LD_LIBRARY_PATH") if library_path is None else library_path
        self.library_path = _split(path)
        # the first of several
        self.cache = dict(reversed(read_cache() if cache is None else list(cache)))
        self.defaults = default_folders() if defaults is None else defaults
        self.headers = {}
        program = os.path.realpath(sys.executable) if sys.executable else None
        run_path, r_path = self._run_paths(program)
        self.program_rpath = r_path if run_path is None else []

    def header(self, path):
        """:func:`library_files.read_elf`, remembered."""
        if path not in self.headers:
            self.headers[path] = read_elf(path)
        return self.headers[path]

    def problem(self, path):
        """Why a file cannot be the library of its name here; None if nothing speaks against it."""
        header = self.header(path)
        return header["problem"] or another_library(os.path.basename(path), header["soname"])

    def candidates(self, name, requester):
        """(path, by) pairs in the order in which the loader looks; ``by`` names the step of the search."""
        run_path, r_path = self._run_paths(requester)
        steps = [(self.library_path, "LD_LIBRARY_PATH"), (run_path or (), "DT_RUNPATH")]
        if run_path is None:
            # conda's Python holds its prefix's lib folder for all that is loaded into it
            steps = [(r_path, "DT_RPATH"), (self.program_rpath, "DT_RPATH of the program")] + steps
        found = [(os.path.join(folder, name), by) for folders, by in steps for folder in folders]
        if name in self.cache:
            found.append((self.cache[name], "ld.so.cache"))
        return found + [(os.path.join(folder, name), "default folder") for folder in self.defaults]

    def resolve(self, name, requester=None):
        """{path, by, problem, passed}: the file the loader takes, None as path if it finds nothing.

        ``problem`` says what is wrong with the file that it takes or, if it takes none, with the last
        one that it passed over; ``passed`` lists those.
        """
        passed = []
        for path, by in self.candidates(name, requester):
            if not os.path.lexists(path):
                continue
            header = self.header(path)
            if header["problem"] and header["skipped"]:
                passed.append({"path": path, "by": by, "problem": header["problem"]})
                continue
            return {"path": path, "by": by, "problem": header["problem"], "passed": passed}
        problem = passed[-1]["problem"] if passed else None
        return {"path": None, "by": None, "problem": problem, "passed": passed}

    def _run_paths(self, requester):
        if requester is None:
            return None, []
        header = self.header(requester)
        run_path = _expand(header["runpath"], requester) if header["runpath"] is not None else None
        return run_path, _expand(header["rpath"], requester)


def _expand(text, requester):
    """The folders of a run path; $ORIGIN is that of the opened name, then that of the real file."""
    folders = []
    for path in (os.path.abspath(requester), os.path.realpath(requester)):
        origin = os.path.dirname(path)
        expanded = [f.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for f in _split(text)]
        folders += [folder for folder in expanded if folder not in folders]
    return folders


def _split(text):
    """A path list; an empty element means the current folder, as the loader has it."""
    return [part or "." for part in text.replace(";", ":").split(":")] if text else []


def read_cache(path="/etc/ld.so.cache"):
    """(file name, path) pairs in the cache's own order, of this machine's word size; [] if there is none."""
    try:
        with open(path, "rb") as stream:
            return _cache_entries(stream.read())
    except (OSError, struct.error, ValueError):
        return []


def _cache_entries(data):
    start = 0
    if data.startswith(_OLD_CACHE):
        count = struct.unpack_from("<I", data, 12)[0]
        start = (16 + 12 * count + 7) // 8 * 8
    if data[start : start + len(_NEW_CACHE)] != _NEW_CACHE:
        return []
    count = struct.unpack_from("<I", data, start + 20)[0]
    wanted = _CACHE_FLAGS.get(os.uname()[4])
    rows = (struct.unpack_from("<iII", data, start + 48 + 24 * index) for index in range(count))
    places = [row[1:] for row in rows if wanted in (None, row[0])]
    return [tuple(_text_at(data, start + place) for place in pair) for pair in places]


def _text_at(data, place):
    return data[place : data.index(b"\0", place)].decode("utf-8", "surrogateescape")


def default_folders():
    """The folders that the loader searches last, without any configuration."""
    machine = os.uname()[4]
    triplets = ["/lib/%s-linux-gnu" % machine, "/usr/lib/%s-linux-gnu" % machine]
    return [f for f in triplets + ["/lib64", "/usr/lib64", "/lib", "/usr/lib"] if os.path.isdir(f)]


def toolkit_folders():
    """Where CUDA toolkits, drivers and Colab put libraries; the loader does not search there by itself."""
    patterns = (
        "/usr/local/cuda/lib64 /usr/local/cuda-*/lib64 /usr/local/cuda*/targets/*/lib "
        "/usr/local/cuda*/compat /usr/local/nvidia/lib* /usr/lib64-nvidia /usr/lib/wsl/lib "
        "/opt/conda/lib /opt/cuda/lib64"
    ).split()
    return [folder for pattern in patterns for folder in sorted(glob.glob(pattern)) if os.path.isdir(folder)]
