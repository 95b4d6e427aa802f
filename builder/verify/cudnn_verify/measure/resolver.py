"""The file that the dynamic loader gives for a name, and why: its search, worked out without loading.

The rules are :mod:`builder.core.link`'s. So a wheel with DT_RPATH (PyTorch's) beats LD_LIBRARY_PATH and one
with DT_RUNPATH (cuDNN's and TensorFlow's) loses to it.
"""

import glob
import os
import sys

from ....core.link import DiskView, LinkProcess, Loaded, search_here
from .library_files import another_library


class Loader(object):
    """The loader's view under one environment; reads the cache once and each file's header once."""

    def __init__(self, library_path=None, cache=None, defaults=None):
        search = search_here(library_path)
        if cache is not None:
            search = search._replace(cache=dict(reversed(list(cache))))
        if defaults is not None:
            search = search._replace(defaults=list(defaults))
        self.search, self.view = search, DiskView()
        self.library_path, self.defaults = search.library_path, search.defaults
        self._process = LinkProcess(self.view, search)
        if sys.executable:
            # conda's Python holds its prefix's lib folder for all that is loaded into it
            program = self._loaded(os.path.realpath(sys.executable))
            program.program = True
            self._process.loaded.append(program)

    def _loaded(self, path):
        return Loaded(path, path, self.view.file(path), self.view.key(path))

    def header(self, path):
        """A file's header, as :func:`library_files.read_elf` has it, read once."""
        return self.view.file(path)._asdict()

    def problem(self, path):
        """Why a file cannot be the library of its name here; None if nothing speaks against it."""
        header = self.view.file(path)
        return header.problem or another_library(os.path.basename(path), header.soname)

    def resolve(self, name, requester=None):
        """{path, by, problem, passed}: the file the loader takes, None as path if it finds nothing.

        ``problem`` says what is wrong with the file that it takes or, if it takes none, with the last
        one that it passed over; ``passed`` lists those.
        """
        asker = self._loaded(os.path.abspath(requester)) if requester is not None else None
        found = self._process.find(name, asker)
        passed = [{"path": path, "problem": problem} for path, problem in found.passed]
        problem = passed[-1]["problem"] if passed else None
        if found.path is not None:
            problem = self.view.file(found.path).problem
        return {"path": found.path, "by": found.path and found.by, "problem": problem, "passed": passed}


def toolkit_folders():
    """Where CUDA toolkits, drivers and Colab put libraries; the loader does not search there by itself."""
    patterns = (
        "/usr/local/cuda/lib64 /usr/local/cuda-*/lib64 /usr/local/cuda*/targets/*/lib "
        "/usr/local/cuda*/compat /usr/local/nvidia/lib* /usr/lib64-nvidia /usr/lib/wsl/lib "
        "/opt/conda/lib /opt/cuda/lib64"
    ).split()
    return [folder for pattern in patterns for folder in sorted(glob.glob(pattern)) if os.path.isdir(folder)]
