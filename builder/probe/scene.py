"""Every copy of cuDNN and of the CUDA libraries on this machine, and the copy that would be loaded."""

import os
import re

from .consumers import find_consumers
from .distributions import list_folder, read_distributions, search_folders
from .ldcache import default_folders, read_cache, toolkit_folders
from .library_files import another_library
from .maps import is_cuda_library
from .resolver import Loader
from .sublibraries import folder_version, required_sublibraries, shim_major, shim_name


def look_around():
    """The scene: {folders, distributions, wheel_folders, libraries, copies, consumers, candidates}."""
    folders = search_folders()
    distributions = read_distributions(folders)
    wheel_folders = find_wheel_folders(folders)
    loader = Loader()
    places = _places(folders, wheel_folders, loader)
    libraries = _inventory(places, loader)
    consumers = find_consumers(folders, distributions, loader, wheel_folders)
    scene = {"folders": folders, "distributions": distributions, "wheel_folders": wheel_folders}
    scene["copies"], scene["orphans"] = _copies(libraries)
    scene.update(libraries=libraries, consumers=consumers, loader=loader)
    scene["candidates"] = choose_candidates(scene)
    return scene


def find_wheel_folders(folders):
    """The ``nvidia/<package>/lib`` folders of NVIDIA's wheels, in the order of ``sys.path``."""
    found = []
    for folder in folders:
        root = os.path.join(folder, "nvidia")
        for package in list_folder(root):
            lib = os.path.join(root, package, "lib")
            if os.path.isdir(lib):
                found.append(lib)
    return found


def _places(folders, wheel_folders, loader):
    """(folder, kind) of every place where the CUDA family may lie."""
    places = [(f, "LD_LIBRARY_PATH") for f in loader.library_path]
    places += [(os.path.dirname(p), "ld.so.cache") for n, p in read_cache() if is_cuda_library(n)]
    places += [(f, "default folder") for f in default_folders()]
    places += [(f, "wheel") for f in wheel_folders]
    for folder in folders:
        for inner in ("torch/lib", "cupy/.data/lib", "tensorflow", "paddle/libs"):
            places.append((os.path.join(folder, inner), "framework"))
    for prefix in (os.environ.get("CONDA_PREFIX"), os.environ.get("CUDA_HOME")):
        if prefix:
            places += [(os.path.join(prefix, "lib"), "prefix"), (os.path.join(prefix, "lib64"), "prefix")]
    return places + [(f, "toolkit") for f in toolkit_folders()]


def _inventory(places, loader):
    """Rows {name, path, real, kind, size, problem, soname}, one per entry of a folder; each folder once."""
    rows, seen = [], set()
    for folder, kind in places:
        real_folder = os.path.realpath(folder)
        if real_folder in seen:
            continue
        seen.add(real_folder)
        for name in list_folder(folder):
            if not is_cuda_library(name):
                continue
            path = os.path.join(folder, name)
            header = loader.header(path)
            row = {"name": name, "path": path, "real": os.path.realpath(path), "kind": kind}
            problem = header["problem"] or another_library(name, header["soname"])
            rows.append(dict(row, size=header["size"], problem=problem, soname=header["soname"]))
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
        for major in sorted(parts - shims):
            orphans.append({"folder": folder, "major": major, "files": len(names)})
        for major in sorted(shims):
            version = folder_version(folder, major)
            missing = [name for name in required_sublibraries(major, version) if name not in names]
            copy = {"folder": folder, "major": major, "version": version, "missing": missing}
            shim = os.path.join(folder, shim_name(major))
            copies.append(dict(copy, kind=by_folder[folder][0]["kind"], shim=shim))
    return copies, orphans


def choose_candidates(scene):
    """The shims that programs here would load: [{path, by, for, preload}], each real file once.

    With frameworks: the file that each gets. Without: the file of the bare name, and those of the wheels,
    which are made to be opened by their path.
    """
    found = [row for row in scene["consumers"] if row["path"] is not None]
    rows = [{"path": row["path"], "by": row["by"], "for": row["framework"]} for row in found]
    if not any(c["path"] is not None or not c["optional"] for c in scene["consumers"]):
        for major in (9, 8, 7):
            found = scene["loader"].resolve(shim_name(major))
            if found["path"] is not None:
                rows.append({"path": found["path"], "by": found["by"], "for": None})
        for copy in scene["copies"]:
            if copy["kind"] in ("wheel", "framework") or not rows:
                rows.append({"path": copy["shim"], "by": copy["kind"], "for": None})
    chosen, seen = [], {}
    for row in rows:
        real = os.path.realpath(row["path"])
        if real in seen:
            seen[real]["for"] = "/".join(sorted({f for f in (seen[real]["for"], row["for"]) if f})) or None
        else:
            seen[real] = row
            chosen.append(row)
    return chosen
