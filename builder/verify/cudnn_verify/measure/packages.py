"""The installed packages: which frameworks are here, and the check P01: whether the packages meet the
requirements of frameworks' and NVIDIA's wheels. P02 is about their files.
"""

import ast
import importlib.util
import os
import platform
import re
import sys

from ....core.link import read_cache
from ..common.distributions import (
    canonical,
    find_wheel_folders,
    list_folder,
    packages_of,
    read_distributions,
    read_text,
    requirement,
    search_folders,
)
from ..common.isolation import shadowed_modules, user_path
from ..common.tables import cuda_family, cuda_package, read_facts, read_frameworks, read_patterns
from ..common.versions import numbers, satisfies
from .contents import check_owners, has_record, watched_names
from .environment import check_variables
from .library_files import Loader, toolkit_folders
from .protocol import STAGES, stage

# The cause if the library of one of NVIDIA's wheels is nowhere; toolkit-library-missing for others.
_ABSENT = {"cuda-nvcc": "ptxas-missing", "cuda-nvrtc": "nvrtc-missing", "cudnn": "cudnn-missing"}
# Packages that a framework is one half of: with another release, or without it, the framework does not work.
_HALVES = re.compile(r"jaxlib|jax-cuda\d+-pjrt|keras")
_ASKING = re.compile(r"tensorflow(-gpu|-cpu)?|tf-nightly|jax|jax-cuda\d+-plugin")
# A marker's operators by Python's; ``~=`` is read as ``is``.
_SIGNS = {ast.Eq: "==", ast.NotEq: "!=", ast.LtE: "<=", ast.GtE: ">=", ast.Lt: "<", ast.Gt: ">", ast.Is: "~="}


@stage("packages", layer="packages", timeout=60)
def packages_stage(ctx):
    """Compare packages with each other and with the disk."""
    distributions = read_distributions(search_folders())
    ctx.fact("packages", distributions)
    modules = find_modules()
    ctx.fact("installed", modules)
    ctx.fact("system_packages", system_packages())
    ctx.fact("shadowed_modules", shadowed_modules())
    ctx.attempt("E02", check_variables, ctx, distributions)
    ctx.attempt("P01", check_pins, ctx, distributions)
    ctx.fact("strangers", strangers(distributions, modules))
    absent = sorted(set(read_frameworks()) - set(modules))
    lost = sorted(canonical(row["name"]) for name in absent for row in packages_of(name, distributions))
    started, nameless = made_at_start(distributions), _nameless(distributions)
    if started:
        name, origin = sorted(started.items())[0]
        text = "%s is in the process as Python starts, from %s, and is not what pip installed" % (
            name,
            origin,
        )
        ctx.fails("P02", text, "startup-preload", {"started": started})
    elif lost:
        text = "pip lists %s, and there is no module of it to import" % ", ".join(lost)
        ctx.fails("P02", text, "package-overwritten", {"packages": lost})
    elif nameless:
        path = os.path.join(
            distributions[nameless[0]]["location"], distributions[nameless[0]]["info"], "METADATA"
        )
        text = "%s does not say the name and the version of its package" % path
        ctx.fails("P02", text, "package-overwritten", {"packages": nameless, "not_as_installed": [path]})
    else:
        ctx.attempt("P02", check_owners, ctx, distributions)


def _nameless(distributions):
    """The packages of frameworks and NVIDIA's with a RECORD and without a name, or a version, in METADATA.

    ``importlib.metadata.version`` gives None for them, on which other packages end.
    """
    found, watched = [], watched_names()
    for name, row in sorted(distributions.items()):
        if watched.match(name) and has_record(row):
            text = read_text(os.path.join(row["location"], row["info"], "METADATA"))
            found += [] if all(re.search(r"(?mi)^%s:" % key, text) for key in ("Name", "Version")) else [name]
    return found


def strangers(distributions, modules):
    """{stage name: file} of frameworks whose module is none of the files that pip installed for it."""
    found = {}
    for stage_name, module in sorted(modules.items()):
        folders = [row["location"] for row in packages_of(stage_name, distributions)]
        origin = importlib.util.find_spec(module).origin or ""
        within = origin.startswith(tuple(folder + os.sep for folder in folders))
        if folders and (not within or os.path.dirname(origin) in folders):
            found[stage_name] = origin
    return found


def made_at_start(distributions):
    """{stage name: file} of frameworks that sitecustomize or a .pth file has put in the place of pip's."""
    found = {}
    for row in STAGES:
        module = sys.modules.get(row.module) if row.module else None
        folders = [one["location"] for one in packages_of(row.name, distributions)] if module else []
        origin = str(getattr(module, "__file__", None) or "no file")
        if folders and not origin.startswith(tuple(folder + os.sep for folder in folders)):
            found[row.name] = origin
    return found


def find_modules():
    """{stage name: import name} of the frameworks that could be imported; nothing is imported."""
    found = {}
    sys.path[:] = user_path()  # a child of its own: nobody needs the path back
    for row in STAGES:
        try:
            spec = importlib.util.find_spec(row.module) if row.module else None
        except (ImportError, AttributeError, ValueError):
            continue
        if spec is not None and spec.origin not in (None, "namespace"):
            found[row.name] = row.module
    return found


def system_packages():
    """cuDNN and CUDA among dpkg's installed packages: {name: version}."""
    status = read_text("/var/lib/dpkg/status", 32 << 20)
    pattern = r"^Package: ((?:libcudnn|cuda-cudart|libnvrtc|libcublas).*)\n(?:.+\n)*?Version: (.*)"
    return dict(re.findall(pattern, status, re.M))


def marker_applies(marker, extras=()):
    """Whether an environment marker holds here; ``extras`` are those in use. What cannot be read holds.

    A marker is an expression of Python, but for two operators; an unknown variable holds, too:
    https://packaging.python.org/specifications/dependency-specifiers/
    """
    if not marker:
        return True
    here = {
        "platform_system": platform.system(),
        "platform_machine": platform.machine(),
        "sys_platform": sys.platform,
        "os_name": os.name,
        "platform_python_implementation": platform.python_implementation(),
        "implementation_name": sys.implementation.name,
        "python_version": "%d.%d" % sys.version_info[:2],
        "python_full_version": platform.python_version(),
    }
    try:
        tree = ast.parse(marker.strip().replace("===", "==").replace("~=", " is "), mode="eval")
        return _holds(tree.body, here, extras)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return True


def _holds(node, here, extras):
    if isinstance(node, ast.BoolOp):
        every = [_holds(term, here, extras) for term in node.values]
        return all(every) if isinstance(node.op, ast.And) else any(every)
    if not isinstance(node, ast.Compare) or not isinstance(node.left, ast.Name):
        return True
    name, kind, wanted = node.left.id, type(node.ops[0]), ast.literal_eval(node.comparators[0])
    if kind not in _SIGNS or not isinstance(wanted, str):
        return True
    if name == "extra":
        return wanted in extras
    if name in ("python_version", "python_full_version"):
        return satisfies(here[name], [(_SIGNS[kind], wanted)])
    have = here.get(name, wanted)
    return (have != wanted) if kind is ast.NotEq else (have == wanted)


def _other_major(wanted, version):
    """True if every version that is asked for by ``==`` is of another major."""
    asked = [numbers(text)[:1] for operator, text in wanted["pins"] if operator in ("==", "===", "~=")]
    return bool(asked) and numbers(version)[:1] not in asked


def _harmless(wanted, version):
    """A pin that is missed in a direction that NVIDIA allows: the same major, and no older minor."""
    for operator, text in wanted["pins"]:
        want, have = numbers(text), numbers(version)
        if operator in ("==", "===", "~=", ">=") and (have[:1] != want[:1] or have[:2] < want[:2]):
            return False
        if operator in ("<", "<=", "!=") and not satisfies(version, [(operator, text)]):
            return False
    return True


def _extras_installed(wanted, distributions):
    """Extras of which most NVIDIA packages are installed: no file records the extras of the call of pip."""
    extras = {}
    for need in wanted:
        if need["optional"] and need["name"].startswith("nvidia-"):
            for extra in re.findall(r"extra\s*==\s*['\"]([^'\"]+)", need["marker"]):
                extras.setdefault(extra, []).append(need["name"])
    here = {extra: sum(name in distributions for name in names) for extra, names in extras.items()}
    return [extra for extra, names in extras.items() if len(names) > 2 and 2 * here[extra] > len(names)]


def check_pins(ctx, distributions):
    """P01; the fact ``unmet`` holds every pin that is missed, to explain an import that fails."""
    found = {"missed": [], "allowed": [], "not_installed": [], "lost": [], "unmet": []}
    read = {name: map(requirement, row["requires"]) for name, row in distributions.items()}
    needs = {name: list(filter(None, rows)) for name, rows in read.items()}
    asked = {}  # the extras of each, as torch asks for cuda-toolkit[cudart]
    for need in (need for rows in needs.values() for need in rows):
        if need["extras"] and marker_applies(need["marker"]):
            asked.setdefault(need["name"], set()).update(need["extras"])
    for name, row in sorted(distributions.items(), key=lambda pair: pair[1]["name"].lower()):
        in_use = asked.get(name) or _extras_installed(needs[name], distributions)
        plain = {need["name"] for need in needs[name] if not need["optional"]}
        for need in needs[name]:
            # jax asks for jaxlib, and once more, for an older one, by an extra of its own tests
            there = need["optional"] and need["name"] in distributions and need["name"] not in plain
            if there or marker_applies(need["marker"], in_use):
                _compare(found, row, need, distributions, ctx.strict)
    found["missed"] += numpy_misfits(distributions)
    unmet = found.pop("unmet")
    ctx.fact("unmet", unmet[:50])
    ctx.fact("not_installed", (found["lost"] + found["not_installed"])[:50])
    stubs = _stubs(distributions)
    if stubs and not found["missed"]:
        text = "%s is an empty stub: for this CUDA the package is called %s"
        text = "; ".join(text % pair for pair in sorted(stubs.items()))
        return ctx.fails("P01", text, "package-name-retired", dict(found, packages=sorted(stubs)))
    if found["missed"] or found["lost"]:
        entry = (found["missed"] + found["lost"])[0]
        cause = entry.get("cause", "package-pin-mismatch")
        found["lost"].sort(key=lambda row: bool(row.get("slight")))
        found["weak"] = all(row.get("slight") for row in found["missed"] + found["lost"])
        text = "; ".join(_said("needs", row) for row in (found["missed"] + found["lost"])[:3])
        return ctx.fails("P01", text, cause, found)
    others = [row for row in unmet if not row["name"].startswith("nvidia-")]
    others = [row for row in others if _ASKING.match(row["by"].lower())]
    notes = [_said("asks for", entry) for entry in found["allowed"] + found["not_installed"] + others]
    met = "no pin is missed in a way that breaks" if found["allowed"] else "pins on NVIDIA's packages are met"
    return ctx.passed("P01", met, found, note="; ".join(notes[:4]))


def numpy_misfits(distributions):
    """The requirements that no METADATA has: what was compiled before NumPy 2 runs with NumPy 1 alone.

    https://numpy.org/doc/stable/numpy_2_0_migration_guide.html
    """
    numpy = distributions.get("numpy")
    if numpy is None or numbers(numpy["version"])[:1] < (2,):
        return []
    found, since = [], read_patterns()["numpy-two"]
    for name in sorted(set(since) & set(distributions)):
        row = distributions[name]
        if () < numbers(row["version"]) < numbers(since[name]):
            entry = {"by": "%(name)s %(version)s" % row, "wants": "numpy<2", "name": "numpy"}
            found.append(dict(entry, found=numpy["version"]))
    return found


def _stubs(distributions):
    """{name: right name} of NVIDIA's stubs, if the package itself and its library are nowhere.

    Of a name that has lost its suffix with a CUDA there are an empty wheel 0.0.0a0, which an installer takes
    that may not build (``--only-binary``), and a source package 0.0.1.
    """
    found = {}
    for name, row in distributions.items():
        family, major = cuda_family(name)
        right = cuda_package(family, major) if major else name
        if right == name or right in distributions or numbers(row["version"])[:2] > (0, 0):
            continue
        libraries = read_facts()["families"][family]["libraries"]
        if libraries and not any(lies_somewhere(library, major) for library in libraries):
            found[name] = right
    return found


def _said(verb, entry):
    ends = "installed is %(found)s" % entry if "found" in entry else "which is not installed"
    return "%s %s %s, %s" % (entry["by"], verb, entry["wants"], ends)


def _exact(need):
    return not need["optional"] and any(operator in ("==", "===") for operator, _ in need["pins"])


def _compare(found, row, need, distributions, strict):
    name, there = need["name"], distributions.get(need["name"])
    pins = ",".join("".join(pin) for pin in need["pins"])
    entry = {"by": "%(name)s %(version)s" % row, "wants": name + pins, "name": name}
    half = bool(_HALVES.match(name) and _ASKING.match(row["name"].lower())) and not need["optional"]
    if there is not None:
        if satisfies(there["version"], need["pins"]):
            return
        entry["found"] = there["version"]
        found["unmet"].append(entry)
        if name.startswith("nvidia-cudnn-cu") and _other_major(need, there["version"]):
            entry["cause"] = "cudnn-major-mismatch"
        if name.startswith("nvidia-"):
            harmless = _harmless(need, there["version"]) and not strict
            found["allowed" if harmless or need["optional"] else "missed"].append(entry)
        elif half:
            found["missed"].append(entry)
    elif half:
        found["lost"].append(dict(entry, cause="package-pin-mismatch"))
    elif (
        _exact(need) and row["name"].lower() == "torch" and not name.startswith("nvidia-") and has_record(row)
    ):
        # triton, without which torch.compile cannot work and the rest of PyTorch does
        found["lost"].append(dict(entry, cause="package-pin-mismatch", slight=True))
    elif name.startswith("nvidia-"):
        exact = any(operator in ("==", "===") for operator, _ in need["pins"])
        stem, major = cuda_family(name)
        libraries = (read_facts()["families"].get(stem) or {}).get("libraries")
        # a plain name tells no major, and an exact pin on CUDA 13's cuBLAS 13.4 does
        major = major or next((numbers(text)[0] for _, text in need["pins"] if numbers(text)), None)
        # XLA opens NCCL only for more than one GPU
        needed = stem != "nccl" if need["optional"] else exact
        if libraries and needed and not any(lies_somewhere(library, major) for library in libraries):
            found["lost"].append(dict(entry, cause=_ABSENT.get(stem, "toolkit-library-missing")))
        else:
            found["not_installed"].append(entry)


def lies_somewhere(library, major):
    """Whether a file of this name, or one that goes on from it, lies where a program here could find it."""
    stem = library % int(major or 0) if "%" in library else library
    loader = Loader()
    folders = loader.library_path + loader.defaults + find_wheel_folders() + toolkit_folders()
    inner = ("torch/lib", "paddle/libs", "cusparselt/lib")  # the last of cuSPARSELt up to 0.6.2
    folders += [os.path.join(folder, name) for folder in user_path() for name in inner]
    if stem == "ptxas":
        folders = os.environ.get("PATH", "").split(":") + ["/usr/local/cuda/bin"]
        folders += [os.path.join(os.environ.get("CUDA_HOME") or "/usr/local/cuda", "bin")]
    names = [name for folder in folders for name in list_folder(folder)]
    there = any(name == stem or name.startswith(stem + ".") for name in names)
    return there or any(name.startswith(stem) for name, _ in read_cache())
