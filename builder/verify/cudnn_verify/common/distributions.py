"""Installed Python distributions, by their ``*.dist-info``: Python 3.6 has no importlib.metadata."""

import os
import re
import stat

from .isolation import user_path
from .tables import read_frameworks
from .versions import pins_of


def packages_of(framework, distributions, key="packages"):
    """The rows of the installed distributions that bring a framework's module for a GPU."""
    pattern = re.compile(r"(%s)$" % read_frameworks()[framework].get(key, ""))
    return [row for name, row in sorted(distributions.items()) if pattern.match(name)]


def cudnn_wheels(packages):
    """{name: CUDA's major version} of NVIDIA's wheels of cuDNN among canonical names, sorted."""
    found = (re.match(r"nvidia-cudnn-cu(\d+)$", name) for name in sorted(packages))
    return {wheel.group(0): int(wheel.group(1)) for wheel in found if wheel}


def wheels_of(shim, packages):
    """:func:`cudnn_wheels` that a ``libcudnn.so.9`` can be of: in their folder, and of its major version."""
    folder, major = os.path.realpath(os.path.dirname(shim)), shim.rpartition(".")[2]
    found = {}
    for name, cuda in cudnn_wheels(packages).items():
        place = os.path.realpath(os.path.join(packages[name]["location"], "nvidia", "cudnn", "lib"))
        if place == folder and packages[name]["version"].partition(".")[0] == major:
            found[name] = cuda
    return found


def canonical(name):
    """``Nvidia.cuDNN_cu12`` -> ``nvidia-cudnn-cu12``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def search_folders():
    """The folders of ``sys.path`` that exist, in order, each once."""
    seen, folders = set(), []
    for entry in user_path():
        folder = os.path.abspath(entry or ".")
        if os.path.isdir(folder) and os.path.realpath(folder) not in seen:
            seen.add(os.path.realpath(folder))
            folders.append(folder)
    return folders


def find_wheel_folders():
    """The ``nvidia/<package>/lib`` folders of NVIDIA's wheels, in the order of ``sys.path``."""
    roots = [os.path.join(folder, "nvidia") for folder in search_folders()]
    packages = [(root, name) for root in roots for name in list_folder(root) if not name.startswith("~")]
    return [lib for lib in (os.path.join(*package, "lib") for package in packages) if os.path.isdir(lib)]


def list_folder(folder):
    """Names in a folder, sorted; [] for one that cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def read_text(path, limit=4 << 20):
    """The text of a file, '' if it cannot be read or is a pipe; undecodable bytes are kept as surrogates."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return ""
        with open(path, "rb") as stream:
            return stream.read(limit).decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def read_distributions(folders):
    """{canonical name: {name, version, location, info, requires}}; the first on the path wins."""
    found = {}
    for folder in folders:
        for entry in list_folder(folder):
            # pip renames what it removes to ~orch, and removes it at its end: a rest is not installed
            if not entry.endswith(".dist-info") or entry.startswith("~"):
                continue
            info = os.path.join(folder, entry)
            fields = _fields(read_text(os.path.join(info, "METADATA")))
            name, version = (entry[: -len(".dist-info")].rsplit("-", 1) + [""])[:2]
            name, version = fields.get("name", [name])[0], fields.get("version", [version])[0]
            row = {"name": name, "version": version, "location": folder, "info": entry}
            found.setdefault(canonical(name), dict(row, requires=fields.get("requires-dist", [])))
    return found


def _fields(text):
    fields = {}
    for line in text.splitlines():
        if not line.strip():
            break
        key, colon, value = line.partition(":")
        if colon and not line[0].isspace():
            fields.setdefault(key.strip().lower(), []).append(value.strip())
    return fields


def read_record(distribution, wanted=None):
    """The rows of a distribution's RECORD: [{path, sha256, size}]; paths are absolute, sha256 is urlsafe
    base64. ``wanted(path)`` picks rows by the path as it is written there.
    """
    rows, location = [], distribution["location"]
    for line in read_text(os.path.join(location, distribution["info"], "RECORD"), 64 << 20).splitlines():
        path, *rest = line.rsplit(",", 2)
        path = path.strip('"')
        if len(rest) == 2 and (wanted is None or wanted(path)):
            digest = rest[0][len("sha256=") :] if rest[0].startswith("sha256=") else None
            size = int(rest[1]) if rest[1].isdigit() else None
            path = os.path.normpath(os.path.join(location, path))
            rows.append({"path": path, "sha256": digest, "size": size})
    return rows


def requirement(text):
    """A Requires-Dist line as {name, extras, pins, optional, marker}, or None if it is malformed.

    Pins are (operator, version); optional means that the line belongs to an extra.
    """
    head, _, marker = text.partition(";")
    found = re.match(r"\s*([A-Za-z0-9._-]+)\s*(?:\[([^]]*)\])?\s*\(?([^)]*)\)?\s*$", head)
    if found is None:
        return None
    return {
        "name": canonical(found.group(1)),
        "extras": [extra.strip() for extra in (found.group(2) or "").split(",") if extra.strip()],
        "pins": pins_of(found.group(3)),
        "optional": "extra" in marker,
        "marker": marker.strip(),
    }
