"""E03 to E05: which copies of the CUDA family lie here, whether files are whole and sets complete; E06 and
E07: which installed frameworks open cuDNN, under which name, and which file the loader gives them for it;
P04: whether the compiled packages beside the frameworks load.

All of it before any file is loaded: a truncated library is a SIGBUS for whoever maps it.
"""

import errno
import glob
import os
import re
import struct
import sys
import time

from ....core.elf import INTERP_SEGMENT, WAITS, elf_segments, file_reader
from ....core.link import (
    DRIVER_LIBRARIES,
    DiskView,
    LinkProcess,
    default_folders,
    import_framework,
    read_cache,
    search_here,
)
from ..common.distributions import (
    find_wheel_folders,
    list_folder,
    packages_of,
    read_distributions,
    read_record,
    read_text,
    requirement,
    search_folders,
)
from ..common.tables import read_frameworks
from ..common.versions import numbers
from .environment import on_noexec_mount
from .library_files import (
    Loader,
    folder_version,
    in_folders,
    is_cuda_library,
    parts_of,
    required_sublibraries,
    shim_major,
    shim_name,
    toolkit_folders,
    unshipped_sublibraries,
)
from .protocol import stage

_CPU_BUILD = re.compile(r"is_cuda_build['\"]?\s*[,:=]\s*False")
# The file in which a framework describes its build, and its words for CUDA's version there.
_BUILT_FOR = {
    "torch": ("version.py", r"(?m)^cuda[^=\n]*=\s*['\"]([\d.]+)"),
    "tensorflow": ("python/platform/build_info.py", r"cuda_version['\"]?\s*[,:=]\s*['\"](\d[\d.]*)"),
}
_FLOORS = ("==", "===", ">=", "~=")


def find_consumers(folders, distributions, loader, wheel_folders):
    """One row per framework that opens cuDNN.

    Keys: framework, requester, name, path, by, problem, passed, optional, cuda.
    ``wheel_folders``: the ``nvidia/*/lib`` folders, from which JAX and ONNX Runtime preload by absolute
    path.
    """
    rows = []
    for framework, known in read_frameworks().items():
        requester = _requester(folders, known.get("requesters", ()), loader)
        if requester is None:
            continue
        if framework == "tensorflow" and _CPU_BUILD.search(_own_words(framework, requester)):
            continue
        for name in map(shim_name, _majors(framework, requester, distributions, loader)):
            row = {"framework": framework, "requester": requester, "name": name}
            row.update(optional=framework == "cupy", cuda=built_for_cuda(framework, requester, loader))
            found = _resolve(framework, name, requester, loader, wheel_folders)
            rows.append(dict(row, **found))
    return rows


def _requester(folders, patterns, loader):
    def run_path(path):
        return "%(runpath)s:%(rpath)s" % loader.header(path)

    for folder in folders:
        found = [p for pattern in patterns for p in sorted(glob.glob(os.path.join(folder, pattern)))]
        found = [p for p in found if loader.header(p)["problem"] is None]
        if found:
            # JAX takes its plug-in for CUDA 13 if that for CUDA 12 was left beside it
            return max(found, key=lambda p: ("nvidia/cudnn" in run_path(p), "/xla_cuda13/" in p))
    return None


def _own_words(framework, requester):
    """The text in which a framework describes its build."""
    place = os.path.join(requester.rpartition("/%s/" % framework)[0], framework)
    return read_text(os.path.join(place, _BUILT_FOR[framework][0]))


def built_for_cuda(framework, requester, loader):
    """The CUDA version that a framework was built for, by its files: ``12.4``, ``12`` or None."""
    if framework in _BUILT_FOR:
        found = re.search(_BUILT_FOR[framework][1], _own_words(framework, requester))
        if found:
            return found.group(1)
    names = "\n".join(loader.header(requester)["needed"] + [requester])
    found = re.search(r"(?m)libcudart\.so\.([\d.]+)$|libcublas\.so\.(\d+)$|/xla_cuda(\d+)/", names)
    return next(filter(None, found.groups())) if found else None


def _majors(framework, requester, distributions, loader):
    """The major versions of cuDNN that a framework asks for; [] if no file says so."""
    needed = [m for m in map(shim_major, loader.header(requester)["needed"]) if m is not None]
    if not needed and framework == "tensorflow":
        said = re.findall(r"cudnn_version['\"]?\s*[,:=]\s*['\"](\d+)", _own_words(framework, requester))
        needed = [int(major) for major in said[:1]]
    if needed:
        return needed
    key = "pins" if "pins" in read_frameworks()[framework] else "packages"
    rows = packages_of(framework, distributions, key)
    wanted = filter(None, (requirement(text) for row in rows for text in row["requires"]))
    pins = [pin for need in wanted if need["name"].startswith("nvidia-cudnn-cu") for pin in need["pins"]]
    floors = [numbers(version)[0] for sign, version in pins if sign in _FLOORS and numbers(version)]
    return floors[:1]


def _resolve(framework, name, requester, loader, wheel_folders):
    # ONNX Runtime from 1.21 on, whether or not its METADATA is there to say so
    own = os.path.join(os.path.dirname(os.path.dirname(requester)), "__init__.py")
    preloads = framework == "jax" or (framework == "onnxruntime" and "preload_dlls" in read_text(own))
    path = in_folders(name, wheel_folders) if preloads else None
    if path is None:
        return loader.resolve(name, requester)
    problem = loader.header(path)["problem"]
    return {"path": path, "by": "preloaded by %s" % framework, "problem": problem, "passed": []}


@stage("resolver", layer="resolver", timeout=30)
def resolver_stage(ctx):
    """Work out which file the loader gives, without loading."""
    loader = Loader()
    ctx.attempt("E06", _check_shims, ctx, loader)
    ctx.attempt("E07", _check_unversioned, ctx, loader)
    ctx.attempt("P04", check_companions, ctx)


def mixed_folders(candidate, loader):
    """Sub-libraries that a shim gets from another folder than its own: {name: resolution}."""
    shim = candidate["path"]
    home = os.path.realpath(os.path.dirname(shim))
    found = {}
    for name in parts_of(shim):
        answer = loader.resolve(name, shim)
        path = answer["path"]
        near = path and (os.path.realpath(os.path.dirname(path)), os.path.dirname(os.path.realpath(path)))
        if not near or home not in near:
            found[name] = answer
    return found


def _check_shims(ctx, loader):
    consumers, copies = ctx.facts.get("consumers", []), ctx.facts.get("copies", [])
    lost = [row for row in consumers if row["path"] is None and not row["optional"]]
    if lost and not ctx.without_cuda:
        text, cause = _lost(lost[0], copies)
        return ctx.fails("E06", text, cause, {"consumers": consumers, "copies": copies})
    candidates = ctx.facts.get("candidates", [])
    if not candidates:
        return _check_absence(ctx)
    mixed = {row["path"]: mixed_folders(row, loader) for row in candidates}
    mixed = {path: names for path, names in mixed.items() if names}
    lines = ["%s by %s%s" % (r["path"], r["by"], " for " + r["for"] if r["for"] else "") for r in candidates]
    apart = "sub-libraries come from another folder than their shim; the cuDNN stage shows whether they fit"
    evidence = {"consumers": consumers, "mixed": mixed}
    return ctx.passed("E06", "; ".join(lines), evidence, note=mixed and apart)


def _check_absence(ctx):
    """No shim at all: a fault if a package, an expectation or left-over parts ask for one."""
    orphans = ctx.facts.get("orphans", [])
    listed = sorted(n for n in ctx.facts.get("packages", {}) if n.startswith("nvidia-cudnn-cu"))
    evidence = {"orphans": orphans, "packages": listed, "expected": ctx.expect.get("cudnn")}
    if orphans:
        text = "%(folder)s holds parts of cuDNN %(major)d, but no libcudnn.so.%(major)d" % orphans[0]
    elif ctx.expect.get("cudnn") or listed:
        who = listed[0] + " is installed" if listed else "cuDNN %s is expected" % ctx.expect["cudnn"]
        text = "%s, and there is no libcudnn here" % who
    else:
        return ctx.not_run("E06", "no cuDNN here to resolve", evidence)
    return ctx.fails("E06", text, "cudnn-missing", evidence)


def _lost(row, copies):
    """(text, cause) for a framework that would find no cuDNN."""
    who = "%(framework)s opens %(name)s, " % row
    same = [copy for copy in copies if copy["major"] == shim_major(row["name"])]
    if same:
        return who + "which lies in %(folder)s, where the loader does not look" % same[0], "cudnn-missing"
    if copies:
        return who + "but only cuDNN %(major)d is here (%(folder)s)" % copies[0], "cudnn-major-mismatch"
    return who + "and there is no such file on this machine", "cudnn-missing"


def _check_unversioned(ctx, loader):
    """E07: names without a number, which cuDNN 8 (libnvrtc.so, libcuda.so) and Paddle (libcudnn.so) open."""
    paddle = [row for row in ctx.facts.get("consumers", []) if row["framework"] == "paddle"]
    names = ("libcudnn.so", "libnvrtc.so", "libcuda.so")
    evidence = {name: loader.resolve(name)["path"] for name in names}
    places = [os.path.join(os.environ.get("FLAGS_cudnn_dir", "/usr/local/cuda/lib64"), "libcudnn.so")]
    places += [os.path.join(folder, "libcudnn.so.9") for folder in find_wheel_folders()]
    if paddle and not evidence["libcudnn.so"] and not any(map(os.path.exists, places)):
        text = "Paddle opens libcudnn.so, and only names with a version number are here"
        return ctx.fails("E07", text, "unversioned-name-missing", evidence)
    absent = sorted(name for name, path in evidence.items() if path is None)
    note = absent and "not on the loader's path: %s" % ", ".join(absent)
    text = "no installed framework needs an unversioned name that is missing"
    return ctx.passed("E07", text, evidence, note=note)


# -- P04
#
# The process is the one that these packages see: the framework that they ask for is in it first, as its own
# import opens it. Of symbols, those of PyTorch's C++ are looked for, which change with each of its releases,
# by the hash tables that the loader uses, too: to read PyTorch's tables takes a second.

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
    """The names that a library defines."""
    found = facts.defines(names) if facts.defines is not None else None
    if found is None:  # without the hash table of glibc's own
        table = facts.symbols() if facts.symbols is not None else None
        found = names & set(table.defined) if table is not None else set()
    return found


def _opened(process, path, own, depth=0):
    """The result of opening a file of a package, and whether PyTorch has the symbols that it asks for.

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


@stage("files", layer="files", timeout=60)
def files_stage(ctx):
    folders, wheel_folders, loader = search_folders(), find_wheel_folders(), Loader()
    libraries = _inventory(_places(folders, wheel_folders, loader), loader)
    copies, orphans = _copies(libraries)
    consumers = find_consumers(folders, read_distributions(folders), loader, wheel_folders)
    scene = {
        "libraries_found": libraries,
        "copies": copies,
        "orphans": orphans,
        "wheel_folders": wheel_folders,
        "consumers": consumers,
        "candidates": choose_candidates(consumers, copies, loader),
        # opening one of these would wait for ever, and no stage that loads something is to try
        "waits": [row["path"] for row in libraries if row["problem"] == WAITS],
    }
    for key, value in scene.items():
        ctx.fact(key, value)
    ctx.attempt("E03", _check_inventory, ctx, scene)
    in_play = copies_in_play(scene)
    ctx.attempt("E04", _check_integrity, ctx, scene, in_play)
    ctx.attempt("E05", _check_sets, ctx, scene, in_play)


def _places(folders, wheel_folders, loader):
    """(folder, kind) of every place where the CUDA family may lie."""
    places = [(f, "LD_LIBRARY_PATH") for f in loader.library_path]
    places += [(os.path.dirname(p), "ld.so.cache") for n, p in read_cache() if is_cuda_library(n)]
    places += [(f, "default folder") for f in default_folders()]
    places += [(f, "wheel") for f in wheel_folders]
    inner = [name for row in read_frameworks().values() for name in row.get("inner", ())]
    places += [(os.path.join(folder, name), "framework") for folder in folders for name in inner]
    prefixes = filter(None, (os.environ.get("CONDA_PREFIX"), os.environ.get("CUDA_HOME")))
    places += [(os.path.join(prefix, lib), "prefix") for prefix in prefixes for lib in ("lib", "lib64")]
    return places + [(f, "toolkit") for f in toolkit_folders()]


def _inventory(places, loader):
    """Rows {name, path, real, kind, size, problem, soname}, one per entry of a folder; each folder once."""
    rows, seen = [], set()
    for folder, kind in places:
        real_folder = os.path.realpath(folder)
        if real_folder in seen:
            continue
        seen.add(real_folder)
        for name in filter(is_cuda_library, list_folder(folder)):
            path = os.path.join(folder, name)
            header = loader.header(path)
            row = {"name": name, "path": path, "real": os.path.realpath(path), "kind": kind}
            rows.append(dict(row, size=header["size"], problem=loader.problem(path), soname=header["soname"]))
    return rows


def _copies(libraries):
    """(copies, orphans): the folders with a cuDNN in them, and those with parts of one but no shim."""
    by_folder = {}
    for row in libraries:
        if row["name"].startswith("libcudnn"):
            by_folder.setdefault(os.path.dirname(row["path"]), []).append(row)
    copies, orphans = [], []
    for folder in sorted(by_folder):
        names = {row["name"]: row for row in by_folder[folder]}
        shims = {m for m in map(shim_major, names) if m is not None}
        parts = {int(n.rsplit(".", 1)[1]) for n in names if re.match(r"libcudnn_\w+\.so\.\d+$", n)}
        orphans += [{"folder": folder, "major": m, "files": len(names)} for m in sorted(parts - shims)]
        for major in sorted(shims):
            version = folder_version(folder, major)
            missing = [name for name in required_sublibraries(major, version) if name not in names]
            copy = {"folder": folder, "major": major, "version": version, "missing": missing}
            shim = os.path.join(folder, shim_name(major))
            copies.append(dict(copy, kind=by_folder[folder][0]["kind"], shim=shim))
    return copies, orphans


def choose_candidates(consumers, copies, loader):
    """The shims that programs here would load: [{path, by, for}], each real file once.

    With frameworks: the file that each gets. Without: the file of the bare name, and those of the wheels,
    which are made to be opened by their path.
    """
    found = [row for row in consumers if row["path"] is not None]
    rows = [{"path": row["path"], "by": row["by"], "for": row["framework"]} for row in found]
    if not any(c["path"] is not None or not c["optional"] for c in consumers):
        for major in (9, 8, 7):
            found = loader.resolve(shim_name(major))
            if found["path"] is not None:
                rows.append({"path": found["path"], "by": found["by"], "for": None})
        for copy in copies:
            if copy["kind"] in ("wheel", "framework") or not rows:
                rows.append({"path": copy["shim"], "by": copy["kind"], "for": None})
    chosen = {}
    for row in rows:
        first = chosen.setdefault(os.path.realpath(row["path"]), row)
        first["for"] = "/".join(sorted({name for name in (first["for"], row["for"]) if name})) or None
    return list(chosen.values())


def _check_inventory(ctx, scene):
    copies = scene["copies"]
    real = sorted({os.path.realpath(c["folder"]) for c in copies})
    note = len(real) > 1 and "%d copies of cuDNN: which one is loaded depends on who asks" % len(real)
    where = ", ".join(sorted({c["folder"] for c in copies})) or "nowhere"
    count = len(scene["libraries_found"])
    evidence = {"copies": copies, "candidates": scene["candidates"], "libraries": count}
    ctx.passed("E03", "cuDNN: %s" % where, evidence, note=note)


def copies_in_play(scene):
    """(real folder, major) of every cuDNN that would be loaded; of all that are here if none would be."""
    paths = [row["path"] for row in scene["candidates"]] or [copy["shim"] for copy in scene["copies"]]
    pairs = set()
    for path in paths:
        folders = os.path.realpath(os.path.dirname(path)), os.path.dirname(os.path.realpath(path))
        pairs |= {(folder, shim_major(path)) for folder in folders}
    return pairs


def _check_integrity(ctx, scene, in_play):
    bad = [row for row in scene["libraries_found"] if row["problem"]]
    blocking = [row for row in bad if _blocks(row, scene, in_play)]
    used = [row["path"] for row in scene["candidates"]] + [row["requester"] for row in scene["consumers"]]
    mounted = [path for path in used if on_noexec_mount(path)]
    if mounted:
        text = "%s lies on a file system mounted noexec" % mounted[0]
        ctx.fails("E04", text, "noexec-mount", {"noexec": mounted})
    elif blocking:
        denied = blocking[0]["problem"] == os.strerror(errno.EACCES)
        text = "%(path)s is no usable library: %(problem)s" % blocking[0]
        ctx.fails("E04", text, "file-access-denied" if denied else "cudnn-file-corrupt", {"bad": bad})
    elif bad:
        note = "not in use, but unusable: " + "; ".join("%(path)s (%(problem)s)" % row for row in bad[:5])
        ctx.passed("E04", "all cuDNN files in use are whole", {"bad": bad}, note)
    else:
        count = len(scene["libraries_found"])
        ctx.passed("E04", "%d file%s of the CUDA family, all whole" % (count, "" if count == 1 else "s"))


def _blocks(row, scene, in_play):
    """True for a damaged file of a cuDNN in use, or one for which the loader found no other."""
    found = re.match(r"libcudnn\w*\.so\.(\d+)", row["name"])
    if found is None:
        return False
    if (os.path.realpath(os.path.dirname(row["path"])), int(found.group(1))) in in_play:
        return True
    lost = [passed["path"] for c in scene["consumers"] if c["path"] is None for passed in c["passed"]]
    return row["path"] in lost or not scene["candidates"]


def _check_sets(ctx, scene, in_play):
    relevant = [c for c in scene["copies"] if (os.path.realpath(c["folder"]), c["major"]) in in_play]
    if not relevant:
        return ctx.not_run("E05", "no cuDNN here to look at")
    broken = [copy for copy in relevant if copy["missing"]]
    if broken:
        copy = broken[0]
        text = "cuDNN %d in %s lacks %s" % (copy["major"], copy["folder"], ", ".join(copy["missing"]))
        # the loader may fill the gap from there, with another version
        elsewhere = [row["path"] for row in scene["libraries_found"] if row["name"] in copy["missing"]]
        evidence = {"copies": broken, "elsewhere": elsewhere}
        return ctx.fails("E05", text, "cudnn-sublibrary-missing", evidence)
    absent = {copy["folder"]: unshipped_sublibraries(copy["folder"], copy["major"]) for copy in relevant}
    absent = {folder: names for folder, names in absent.items() if names}
    texts = ["%s in %s" % (", ".join(names), folder) for folder, names in sorted(absent.items())]
    note = texts and "named inside cuDNN but not shipped beside it: " + "; ".join(texts)
    summary = "complete: " + ", ".join("cuDNN %d in %s" % (c["major"], c["folder"]) for c in relevant)
    return ctx.passed("E05", summary, {"copies": relevant, "named_but_absent": absent}, note=note)
