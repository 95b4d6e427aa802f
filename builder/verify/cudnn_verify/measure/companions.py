"""P04: whether the compiled packages beside the frameworks load, by the loader's rules; nothing is loaded.

The process is the one that these packages see: the framework that they ask for is in it first, as its own
import opens it. Of symbols, those of PyTorch's C++ are looked for, which change with each of its releases, by
the hash tables that the loader uses, too: to read PyTorch's tables takes a second.
"""

import os
import re
import struct
import sys
import time

from ....core.elf import INTERP_SEGMENT, elf_segments, file_reader
from ....core.link import DRIVER_LIBRARIES, DiskView, LinkProcess, import_framework, search_here
from ..common.distributions import packages_of, read_record, requirement
from ..common.tables import read_frameworks
from .library_files import is_cuda_library

_LINK_SECONDS = 2.0
"""After which the rest is not looked at; 40 packages beside PyTorch take 0.1."""
_MOST_FILES = 64
"""Libraries of one package."""
_ASKED = re.compile(r"(torch|tensorflow|tensorflow-cpu|jax|jaxlib|onnxruntime-gpu|(nvidia|cuda|cupy)-.*)$")
_COMPILED = re.compile(r"\.so(\.\d+)*$")
_EXTENSION = re.compile(r"(^|/)(?!lib)[^/]*\.so$")


_OF_TORCH = re.compile(rb"_Z(?:T[VIST])?NK?[VR]?(?:3c10|2at|5torch|6caffe2|4c10d)|(?:aoti_)?torch_[a-z]")
"""Symbols of PyTorch's: of its namespaces, and of its stable interface."""
_MOST_ASKED, _DEEPEST = 8192, 8
_NO_TORCH = re.compile(r"lib(?:(?:cu|nv|nccl|npp)\w*|c|m|dl|rt|pthread|util|stdc\+\+|gcc_s|gomp)[.-]|ld-")
"""Libraries of systems and NVIDIA's, which define nothing of PyTorch's."""


def companions(packages):
    """The names of the packages that ask for a framework or NVIDIA's libraries, and are none of them."""
    known = {row["name"] for name in read_frameworks() for row in packages_of(name, packages)}
    found = []
    for name, row in sorted(packages.items()):
        needs = [need for need in map(requirement, row["requires"]) if need and not need["optional"]]
        own = row["name"] in known or re.match(r"nvidia-|cuda-|jax-cuda", name)
        if not own and any(_ASKED.match(need["name"]) for need in needs):
            found.append(name)
    return found


def _process(packages):
    """A Python in which PyTorch and TensorFlow are loaded, as far as they load."""
    process = LinkProcess(DiskView(), search_here(given=DRIVER_LIBRARIES), symbols=False)
    program = os.path.realpath(sys.executable)
    read = file_reader(program)
    spans = [one for one in elf_segments(read) if one.kind == INTERP_SEGMENT]
    loader = read(spans[0].offset, spans[0].length).rstrip(b"\0").decode() if spans else None
    process.start(program, loader)
    for framework in ("torch", "tensorflow"):
        for row in packages_of(framework, packages):
            import_framework(process, framework, row["version"], row["location"])
    return process


def _files(row):
    """(what an import of the package may open, all of its libraries): its extensions, if it has any."""
    paths = [entry["path"] for entry in read_record(row, _COMPILED.search)]
    return ([path for path in paths if _EXTENSION.search(path)] or paths)[:_MOST_FILES], paths


def _lacks_symbol(process, answer, files):
    """A symbol of PyTorch's that a library asks for, and nothing in the process nor the package defines.

    None if there is none, or if it cannot be said. ``answer`` is that of a call that has loaded it.
    """
    loaded = {one.path: one for one in process.loaded if one.facts is not None}
    if not {"libc10.so", "libtorch_cpu.so"} <= {os.path.basename(path or "") for path in loaded}:
        return None
    own = [loaded[row.path] for row in answer.rows if row.path in files and row.path in loaded]
    try:
        wanted = {name: one.path for one in own for name in _asked_of_torch(one.facts)}
        left = set(wanted)
        paths = [path for path in loaded if not _NO_TORCH.match(os.path.basename(path or ""))]
        for path in paths + [path for path in files if path not in loaded]:
            left -= _defined(process.view.file(path), left) if left else set()
    except (ValueError, OSError, MemoryError, OverflowError, struct.error):
        return None
    name = min(left) if left and len(wanted) <= _MOST_ASKED else None
    return (name.decode("utf-8", "replace"), wanted[name]) if name is not None else None


def _defined(facts, names):
    """Those of the names that a library defines."""
    found = facts.defines(names) if facts.defines is not None else None
    if found is None:  # without the hash table of glibc's own
        table = facts.symbols() if facts.symbols is not None else None
        found = names & set(table.defined) if table is not None else set()
    return found


def _opened(process, path, own, depth=0):
    """What opening a file of a package gives, and whether PyTorch has the symbols that it asks for.

    ``own``: the paths of the package's libraries by their names. One of them that the loader does not find is
    opened first, by its path, as the package's Python does (torchaudio).
    """
    answer = process.open(path)
    first = own.get(os.path.basename(answer.library or "")) if answer.kind == "absent" else None
    if first is not None and first != path and depth < _DEEPEST:
        before = _opened(process, first, own, depth + 1)
        return _opened(process, path, own, depth + 1) if before.loads else before
    lost = _lacks_symbol(process, answer, own.values()) if answer.loads else None
    if lost is None:
        return answer
    text = "undefined symbol: %s" % lost[0]
    return answer._replace(loads=False, kind="symbol", text=text, library=lost[1])


def _asked_of_torch(facts):
    """The symbols of PyTorch's that a library cannot do without."""
    table = facts.symbols() if facts.symbols is not None else None
    if table is None:
        return []
    rows = {at: row[0] for at, row in table.wanted.items() if _OF_TORCH.match(row[0])}
    used = table.used(False) if rows else ()
    return [name for at, name in rows.items() if at in used]


def _lies_in_a_package(name, packages):
    """Whether some package has a file of this name, which its own code may open by its path."""
    return any(read_record(row, lambda path: path.endswith("/" + name)) for row in packages.values())


def _runtimes(process):
    """{CUDA's major: path} of the CUDA runtimes in a process."""
    found = {}
    for one in process.loaded:
        runtime = re.search(r"libcudart[^/]*\.so\.(\d+)", one.path or "")
        if runtime:
            found.setdefault(runtime.group(1), one.path)
    return found


def check_companions(ctx):
    """P04. Fails for a package of which no library can load: what it needs is nowhere, or too old."""
    packages = ctx.facts.get("packages") or {}
    names, start = companions(packages), time.time()
    if not names:
        return ctx.not_run("P04", "no compiled package asks for a framework here")
    process = _process(packages)
    before, notes, lost, seen, found = _runtimes(process), [], [], 0, 0
    for at, name in enumerate(names):
        if time.time() - start > _LINK_SECONDS:
            notes.append("not looked at: %s" % ", ".join(names[at:]))
            break
        files, every = _files(packages[name])
        own = {os.path.basename(path): path for path in every}
        answers = [(path, _opened(process, path, own)) for path in files]
        seen += len(answers)
        faults = [(path, answer) for path, answer in answers if not answer.loads]
        found += len(answers) - len(faults)
        for path, answer in faults[:3]:
            row = {
                "package": "%(name)s %(version)s" % packages[name],
                "file": path,
                "fault": _fault_words(answer),
            }
            row["library"] = os.path.basename(answer.library or "")
            decided = answer.kind in ("version", "symbol") or (
                answer.kind == "absent" and not _lies_in_a_package(row["library"], packages)
            )
            if decided and len(faults) == len(answers):
                lost.append(row)
                break
            brought = (
                ", and which an installed package has" if answer.kind == "absent" and not decided else ""
            )
            notes.append("%(package)s: %(file)s: %(fault)s" % row + brought)
        both = {major: path for major, path in _runtimes(process).items() if major not in before}
        if both and before:
            text = "%s brings the runtime of CUDA %s into a process that has CUDA %s's"
            notes.append(text % (name, " and ".join(sorted(both)), " and ".join(sorted(before))))
            before.update(both)
    if lost:
        text = "%(package)s does not load: %(file)s: %(fault)s" % lost[0]
        return ctx.fails("P04", text, _cause(lost[0]), {"unloadable": lost, "files": seen, "weak": True})
    count = "%d" % seen if found == seen else "%d of %d" % (found, seen)
    text = "%s compiled files of %d packages beside the frameworks find their libraries" % (count, len(names))
    return ctx.passed("P04", text, {"files": seen}, note="; ".join(notes[:4]))


def _fault_words(answer):
    if answer.kind == "absent":
        asker = os.path.basename(answer.by or "")
        return "%s needs %s, which the loader does not find" % (asker, answer.library)
    return "%s: %s" % (answer.library, answer.text)


def _cause(row):
    if "undefined symbol" in row["fault"]:
        return "extension-mismatch"
    if re.match(r"lib(c10|torch)", row["library"]):  # a build for CUDA beside a PyTorch for the CPU
        return "package-pin-mismatch"
    if is_cuda_library(row["library"]) or re.match(r"lib(nccl|npp|nvptx|nvToolsExt|cu)", row["library"]):
        return "toolkit-library-missing"
    if row["fault"].partition("version ")[2]:
        return "libc-too-old" if "GLIBC" in row["fault"] else "package-pin-mismatch"
    return "system-library-missing"
