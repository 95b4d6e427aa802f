"""Installed Python distributions, by their ``*.dist-info``: Python 3.6 has no importlib.metadata; and their
names and releases as texts have them.
"""

import functools
import os
import re
import stat

from .isolation import user_path
from .tables import read_frameworks, read_patterns
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


def module_facts(module):
    """The distribution that brings a module, where its name is another one: ``pyyaml`` for ``yaml``; with the
    releases that still have it, where later ones have not: ``setuptools<82``. None if no table has it.
    """
    return read_patterns()["modules"].get((module or "").lower().replace("-", "_"))


def moved_with(module):
    """These releases, of a module that later ones have not; else None."""
    found = module_facts(module)
    return found if found and "<" in found else None


@functools.lru_cache(maxsize=None)
def is_known_module(name):
    """Whether a table has a package of this name, or of one whose module this is."""
    parts, name = read_patterns()["grammar"], (name or "").lower()
    names = "|".join(parts[key] for key in ("ml-package", "other-package", "python-package"))
    told = {row["told"] for row in read_frameworks().values()} | {
        re.split("[<>=]", known)[0] for known in read_patterns()["modules"].values()
    }
    forms = {name, name.replace("_", "-")}
    return bool(module_facts(name) or forms & told or any(re.match("(?:%s)$" % names, one) for one in forms))


def distribution_named(module):
    """The distribution that a module is of, by the tables, else by the module's own first name."""
    parts = (module or "").lower().split(".")
    known = module_facts(".".join(parts[:2])) or module_facts(parts[0]) or canonical(parts[0]).strip("-")
    return re.split("[<>=]", known)[0]


def release_told(text, name):
    """The release of a distribution as a text has it in any of the forms of installers; None without one."""
    inner = re.sub(r"^(?:apache|nvidia)-(?=\w+-\w)|-python$", "", name)  # tvm-ffi, flashinfer
    known = r"[-_. ]?".join(map(re.escape, re.split(r"[-_.]", inner)))
    if inner != name:
        known = "(?:%s|%s)" % (r"[-_.]".join(map(re.escape, re.split(r"[-_.]", name))), known)
    pattern = (
        r"(?i)(?<![\w./-])%s(?:\[[\w,-]+\])?(?:`?\s?===?\s?v?|`?[ \t]{1,40}v?|[ \t]?[:|=(@][ \t|]{0,20}v?|-|"
        r"`?[ \t]version(?:[ \t]\([^)\n]{1,30}\))?[ \t]{0,40}[: ][ \t]{0,3}v?|"
        r"[ \t](?:in|inside|on)[ \t](?:the |this |my )?[\w.-]{1,20}:[ \t]v?|"
        r"\nVersion: )(?P<version>\d+(?:\.\d+)+(?:[a-z]+\d+)?(?:\+[\w.]+)?)"
    )
    found = re.search(pattern % known, text)
    return found.group("version").rstrip(".") if found else None


def last_word(apart):
    """The last part of what an :class:`Apart` does not find, as its line has it: ``b`` of ``a.b``, ``c`` of
    ``c of f()``.
    """
    return re.split(r"[. ]", apart.name.partition(" of ")[0])[-1]


PLAIN_CLASSES = re.compile(
    r"(?:NoneType|str|int|float|dict|list|tuple|set|bytes|bool|function|method|property|generator|coroutine|"
    r"builtin_function_or_method|object|type|module|ndarray|Tensor|Namespace|super|Series|DataFrame)$"
)
"""Classes of Python's, and names that classes of many packages have."""
