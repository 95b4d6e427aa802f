"""Files of libraries: those of the CUDA family and of one cuDNN, those mapped, and the faults of a file; and
the file that the dynamic loader gives for a name.

All of it without loading one: a truncated library kills the process that maps it. The rules of the search are
:mod:`builder.core.link`'s. So a wheel with DT_RPATH (PyTorch's) beats LD_LIBRARY_PATH and one with DT_RUNPATH
(cuDNN's and TensorFlow's) loses to it.
"""

import glob
import mmap
import os
import re
import stat
import struct
import sys

from ....core.elf import LOAD_SEGMENT, elf_file, elf_segments
from ....core.link import DiskView, LinkProcess, Loaded, search_here
from ..common.distributions import read_text
from ..common.versions import numbers

_SHT_NOBITS, _EXECUTABLE = 8, 1
_ADDED = re.compile(r"-[0-9a-f]{8}$|\.alt$")
"""The hash that packagers put into a name, and NVRTC's second build."""
_FAMILY = re.compile(
    r"lib(cudnn|cudart|cublas|cuda|nvrtc|nvJitLink|cufft|curand|cusolver|cusparse|nvidia-ml)[^/]*\.so(\.|$)"
)
_SETS = {
    8: ("ops_infer", "ops_train", "cnn_infer", "cnn_train", "adv_infer", "adv_train"),
    9: ("graph", "ops", "cnn", "adv", "engines_precompiled", "engines_runtime_compiled", "heuristic"),
}
# Parts that came later, by the release whose wheel (nvidia-cudnn-cu12) is the first to hold them.
_SINCE = (((9, 21), "engines_tensor_ir"), ((9, 22), "ext"))


def is_cuda_library(name):
    """True for a file name of the CUDA families: ``libcudnn_ops.so.9`` yes, ``libcudadebugger.so.1`` no."""
    return bool(_FAMILY.match(name)) and not name.startswith("libcudadebugger")


def another_library(name, soname):
    """The words for a CUDA library that is another one, or cuDNN of another major, by its DT_SONAME; None if
    it is not.
    """
    if not soname or not is_cuda_library(name):
        return None
    (stem, major), (true_stem, true_major) = _stem_and_major(name), _stem_and_major(soname)
    same = stem == true_stem and (major in ("", true_major) or not stem.startswith("libcudnn"))
    return None if same else "it is %s under another name" % soname


def _stem_and_major(name):
    stem, _, version = name.partition(".so")
    return _ADDED.sub("", stem), version.strip(".").partition(".")[0]


def in_folders(name, folders):
    """The first folder's file of this name, or None."""
    return next(filter(os.path.exists, [os.path.join(folder, name) for folder in folders]), None)


def read_elf(path):
    """:func:`core.elf.elf_file` as {problem, skipped, size, kind, soname, needed, rpath, runpath, ...}."""
    return dict(elf_file(path)._asdict())


def section_spans(path):
    """[(start, end)] of the sections in a file and of the rest behind them; the whole without a table.

    The table is the last thing in most files, and the first that a write which failed leaves as zeros.
    """
    with open(path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        head = stream.read(64)
        if len(head) < 64 or head[:4] != b"\x7fELF":
            return [(0, size)]
        place, (length, count) = struct.unpack_from("<Q", head, 40)[0], struct.unpack_from("<HH", head, 58)
        stream.seek(place)
        table = stream.read(length * count) if place else b""
    if not any(table) or length < 64 or len(table) < length * count:
        return [(0, size)]
    rows = [struct.unpack_from("<IIQQQQ", table, index * length) for index in range(count)]
    spans = [(row[4], row[4] + row[5]) for row in rows if row[1] != _SHT_NOBITS]
    return spans + [(max([place + len(table)] + [end for _, end in spans]), size)]


def names_inside(path, pattern, limit=64 << 20):
    """The distinct texts in a file that match ``pattern`` (bytes), sorted; [] beyond ``limit`` bytes."""
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode) or not 0 < about.st_size <= limit:
            return []
        with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return sorted({m.group(0).decode("ascii", "replace") for m in re.finditer(pattern, data)})
    except (OSError, ValueError):
        return []


def number_in_code(path, number):
    """Whether an instruction of x86-64 in a file compares with a number of 32 bits, or loads it; None without
    code. The bytes alone are there by chance, too.
    """
    wanted = struct.pack("<I", number)
    try:
        with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            segments = elf_segments(lambda at, length: data[at : at + length])
            code = [one for one in segments if one.kind == LOAD_SEGMENT and one.flags & _EXECUTABLE]
            places = (
                at for one in code for at in _offsets_of(data, wanted, one.offset, one.offset + one.length)
            )
            return any(_is_operand(data[at - 2 : at]) for at in places) if code else None
    except (OSError, ValueError):
        return None


def _is_operand(before):
    """Whether what follows these two bytes is the number in ``cmp r32``, ``movabs r64`` or ``mov eax``."""
    return bool(re.match(rb"(?s)\x81[\xf8-\xff]|[\x48\x49][\xb8-\xbf]|.\xb8", before))


def _offsets_of(data, wanted, start, end):
    """The offsets of ``wanted`` between ``start`` and ``end``."""
    at = data.find(wanted, start, end)
    while at >= 0:
        yield at
        at = data.find(wanted, at + 1, end)


# -- the parts of one cuDNN: the shim that programs open, and the sub-libraries that it opens later


def shim_major(name):
    """9 for ``libcudnn.so.9``, with or without a folder; None for any other file."""
    found = re.match(r"(?:.*/)?libcudnn\.so\.(\d+)$", name)
    return int(found.group(1)) if found else None


def shim_name(major):
    return "libcudnn.so.%d" % major


def required_sublibraries(major, version=None):
    """File names without which this cuDNN cannot work; cuDNN 7 is one file. ``version``: text, if known."""
    parts = list(_SETS.get(major, _SETS[9] if major > 9 else ()))
    parts += [part for since, part in _SINCE if numbers(version)[:2] >= since]
    return ["libcudnn_%s.so.%d" % (part, major) for part in parts]


def parts_of(shim):
    """File names of the sub-libraries that a shim cannot work without; [] for any other file."""
    return required_sublibraries(shim_major(shim) or 0)


def preload_order(folder, major):
    """Paths of a whole cuDNN, each after those that it needs; the shim last."""
    names = required_sublibraries(major, "9.99" if major == 9 else None) + [shim_name(major)]
    parts = [os.path.join(folder, name) for name in names]
    return [path for path in parts if os.path.exists(path)]


def unshipped_sublibraries(folder, major):
    """Sub-libraries that the ones at hand name as strings, and that are not beside them, as one of 9.20."""
    parts = ("libcudnn_graph", "libcudnn") if major >= 9 else ()
    files = [os.path.join(folder, "%s.so.%d" % (part, major)) for part in parts]
    stems = {name for file in files for name in names_inside(file, rb"libcudnn_[a-z_]+")}
    names = ["%s.so.%d" % (stem, major) for stem in sorted(stems)]
    return [name for name in names if not os.path.exists(os.path.join(folder, name))]


def folder_version(folder, major):
    """The version in the shim's real file name, ``libcudnn.so.9.10.2``, or in a wheel's header; or None."""
    header = os.path.join(os.path.dirname(folder), "include", "cudnn_version.h")
    told = re.findall(r"#define CUDNN_(?:MAJOR|MINOR|PATCHLEVEL) +(\d+)", read_text(header, 1 << 16))
    if len(told) == 3 and int(told[0]) == major and os.path.basename(folder) == "lib":
        return ".".join(told)
    real = os.path.basename(os.path.realpath(os.path.join(folder, shim_name(major))))
    found = re.match(r"libcudnn\.so\.(\d+(?:\.\d+)+)$", real)
    return found.group(1) if found else None


# -- the libraries that this process (or another one) has mapped, by their real paths


def mapped_paths(pid="self"):
    """Paths of all files mapped by a process as {path: deleted}; None without ``/proc``."""
    found = {}
    try:
        with open("/proc/%s/maps" % pid, "rb") as stream:
            text = stream.read().decode("utf-8", "surrogateescape")
    except OSError:
        return None
    for path, deleted in re.findall(r"(?m)^(?:\S+ +){5}(/.*?)( \(deleted\))?$", text):
        found[path] = found.get(path, False) or bool(deleted)
    return found


def mapped_libraries(pid="self"):
    """The CUDA family among the mapped files: sorted rows {name, path, deleted}; None without ``/proc``."""
    paths = mapped_paths(pid)
    if paths is None:
        return None
    rows = [{"name": os.path.basename(p), "path": p, "deleted": paths[p]} for p in sorted(paths)]
    return [row for row in rows if is_cuda_library(row["name"])]


# -- the dynamic loader's search


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
        """A file's header, as :func:`read_elf` has it, read once."""
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
    """Folders of CUDA toolkits, drivers and Colab; the loader does not search there by itself."""
    patterns = (
        "/usr/local/cuda/lib64 /usr/local/cuda-*/lib64 /usr/local/cuda*/targets/*/lib "
        "/usr/local/cuda*/compat /usr/local/nvidia/lib* /usr/lib64-nvidia /usr/lib/wsl/lib "
        "/opt/conda/lib /opt/cuda/lib64"
    ).split()
    return [folder for pattern in patterns for folder in sorted(glob.glob(pattern)) if os.path.isdir(folder)]
