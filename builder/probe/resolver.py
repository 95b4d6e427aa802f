"""The file that the dynamic loader gives for a name, and why: its search, worked out without loading.

The order is that of ``man 8 ld.so``: DT_RPATH of the requester (unless it has a DT_RUNPATH),
LD_LIBRARY_PATH, DT_RUNPATH of the requester, ``/etc/ld.so.cache``, the default folders. So a wheel with
DT_RPATH (PyTorch's) beats LD_LIBRARY_PATH and one with DT_RUNPATH (cuDNN's and TensorFlow's) loses to it.
"""

import os
import sys

from .ldcache import default_folders, read_cache
from .library_files import read_elf


class Loader(object):
    """The loader's view under one environment; reads the cache once and each file's header once."""

    def __init__(self, library_path=None, cache=None, defaults=None):
        path = os.environ.get("LD_LIBRARY_PATH") if library_path is None else library_path
        self.library_path = _split(path)
        self.cache = {}
        for name, path in read_cache() if cache is None else cache:
            self.cache.setdefault(name, path)
        self.defaults = default_folders() if defaults is None else defaults
        self.headers = {}
        program = self.header(os.path.realpath(sys.executable)) if sys.executable else {}
        self.program_rpath = []
        if program.get("rpath") and program["runpath"] is None:
            self.program_rpath = _expand(program["rpath"], os.path.realpath(sys.executable))

    def header(self, path):
        """:func:`library_files.read_elf`, remembered."""
        if path not in self.headers:
            self.headers[path] = read_elf(path)
        return self.headers[path]

    def candidates(self, name, requester=None, rpaths=()):
        """(path, by) pairs in the order in which the loader looks; ``by`` names the step of the search.

        ``rpaths``: further DT_RPATH folders, of the libraries that loaded the requester.
        """
        run_path, r_path = self._run_paths(requester)
        steps = []
        if run_path is None:
            steps += [(folder, "DT_RPATH") for folder in r_path + list(rpaths)]
            # conda's Python holds its prefix's lib folder for all that is loaded into it
            steps += [(folder, "DT_RPATH of the program") for folder in self.program_rpath]
        steps += [(folder, "LD_LIBRARY_PATH") for folder in self.library_path]
        steps += [(folder, "DT_RUNPATH") for folder in run_path or ()]
        found = [(os.path.join(folder, name), by) for folder, by in steps]
        if name in self.cache:
            found.append((self.cache[name], "ld.so.cache"))
        return found + [(os.path.join(folder, name), "default folder") for folder in self.defaults]

    def resolve(self, name, requester=None, rpaths=()):
        """{path, by, problem, passed}: the file the loader takes, None as path if it finds nothing.

        ``problem`` says what is wrong with the file that it takes or, if it takes none, with the last
        one that it passed over; ``passed`` lists those.
        """
        passed = []
        for path, by in self.candidates(name, requester, rpaths):
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
        return run_path, _expand(header["rpath"], requester) if header["rpath"] else []


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
    if not text:
        return []
    return [part or "." for part in text.replace(";", ":").split(":")]
