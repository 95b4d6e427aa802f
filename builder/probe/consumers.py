"""Which installed frameworks open cuDNN, under which name, and which file the loader gives them for it.

Read from their files and metadata; nothing is imported and nothing loaded.
"""

import glob
import os
import re

from .data import read_frameworks
from .distributions import packages_of, read_text, requirement
from .library_files import shim_major, shim_name
from .versions import numbers

_FLOORS = ("==", "===", ">=", "~=")


def find_consumers(folders, distributions, loader, wheel_folders):
    """One row per framework that opens cuDNN.

    Keys: framework, requester, name, path, by, problem, passed, optional, cuda.
    ``wheel_folders``: the ``nvidia/*/lib`` folders, from which JAX and ONNX Runtime preload by absolute
    path.
    """
    rows = []
    for framework, known in read_frameworks().items():
        requester = _requester(folders, known.get("requesters", "").split(), loader)
        if requester is None or (framework == "tensorflow" and not _tensorflow_is_cuda(requester)):
            continue
        for name in map(shim_name, _majors(framework, requester, distributions, loader)):
            row = {"framework": framework, "requester": requester, "name": name}
            row.update(optional=framework == "cupy", cuda=built_for_cuda(framework, requester, loader))
            found = _resolve(framework, name, requester, loader, wheel_folders, distributions)
            rows.append(dict(row, **found))
    return rows


def _requester(folders, patterns, loader):
    for folder in folders:
        found = [p for pattern in patterns for p in sorted(glob.glob(os.path.join(folder, pattern)))]
        found = [p for p in found if loader.header(p)["problem"] is None]
        if found:
            # JAX takes its plug-in for CUDA 13 if that for CUDA 12 was left beside it
            return max(found, key=lambda p: (_points_to_wheels(loader.header(p)), "/xla_cuda13/" in p))
    return None


def _points_to_wheels(header):
    return "nvidia/cudnn" in ((header["runpath"] or "") + (header["rpath"] or ""))


def _tensorflow_build_info(requester):
    root = requester[: requester.rindex("/tensorflow/") + len("/tensorflow/")]
    return read_text(os.path.join(root, "python/platform/build_info.py"))


def _tensorflow_is_cuda(requester):
    return not re.search(r"is_cuda_build['\"]?\s*[,:=]\s*False", _tensorflow_build_info(requester))


def built_for_cuda(framework, requester, loader):
    """The CUDA version that a framework was built for, by its files: ``12.4``, ``12`` or None."""
    if framework == "torch":
        root = requester[: requester.rindex("/torch/") + len("/torch/")]
        found = re.search(r"^cuda[^=\n]*=\s*['\"]([\d.]+)", read_text(os.path.join(root, "version.py")), re.M)
        if found:
            return found.group(1)
    if framework == "tensorflow":
        found = re.search(r"cuda_version['\"]?\s*[,:=]\s*['\"](\d[\d.]*)", _tensorflow_build_info(requester))
        if found:
            return found.group(1)
    names = "\n".join(loader.header(requester)["needed"] + [requester])
    found = re.search(r"(?m)libcudart\.so\.([\d.]+)$|libcublas\.so\.(\d+)$|/xla_cuda(\d+)/", names)
    return next(filter(None, found.groups())) if found else None


def _majors(framework, requester, distributions, loader):
    """The major versions of cuDNN that a framework asks for; [] if no file says so."""
    needed = [m for m in map(shim_major, loader.header(requester)["needed"]) if m is not None]
    if not needed and framework == "tensorflow":
        info = _tensorflow_build_info(requester)
        needed = [int(major) for major in re.findall(r"cudnn_version['\"]?\s*[,:=]\s*['\"](\d+)", info)[:1]]
    if needed:
        return needed
    key = "pins" if "pins" in read_frameworks()[framework] else "packages"
    rows = packages_of(framework, distributions, key)
    wanted = filter(None, (requirement(text) for row in rows for text in row["requires"]))
    pins = [pin for need in wanted if need["name"].startswith("nvidia-cudnn-cu") for pin in need["pins"]]
    floors = [numbers(version)[0] for sign, version in pins if sign in _FLOORS and numbers(version)]
    return floors[:1]


def _resolve(framework, name, requester, loader, wheel_folders, distributions):
    version = numbers(distributions.get("onnxruntime-gpu", {}).get("version"))
    preloads = framework == "jax" or (framework == "onnxruntime" and version >= (1, 21))
    paths = [os.path.join(folder, name) for folder in wheel_folders] if preloads else ()
    path = next(filter(os.path.exists, paths), None)
    if path is None:
        return loader.resolve(name, requester)
    problem = loader.header(path)["problem"]
    return {"path": path, "by": "preloaded by %s" % framework, "problem": problem, "passed": []}
