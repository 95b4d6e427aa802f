"""Facts of what a message asks for: packages, their releases, and the Pythons and systems that those are for.

For the lines of ``causes.ini``: each takes a :class:`~remedies.Remedies`; None is for what is not known.
"""

import re

from .distributions import canonical, distribution_named, is_known_module, module_facts
from .framework_builds import torch_index
from .name_changes import (
    BETWEEN_TWO,
    apart_here,
    asked_names,
    asker_beside_framework,
    asker_of,
    name_change,
    plain_release,
    release_here,
    releases_with_name,
)
from .own_kernels import KERNEL_EXTENSIONS
from .release_days import left_behind, release_rows
from .release_skew import (
    asked_of_time,
    asker_to_raise,
    may_move,
    torch_of_time,
    with_plugin,
    works_told,
)
from .tables import Releases, names_row, read_patterns
from .toolkit_facts import failing_words, text_of
from .versions import dotted, numbers
from .wheel_tags import glibc_of_wheels

_OF_PYTHON = (
    "transformers diffusers huggingface_hub tokenizers accelerate peft datasets trl timm optimum evaluate"
)
PURE = set(_OF_PYTHON.split()) | {"sentence_transformers", "adapters", "setfit"}


_NOT_ALONE = "torch torchvision torchaudio torchao triton vllm flashinfer-python xformers".split()
"""Packages of which a release is chosen by CUDA, by the card, or with another one of these."""


def _named_requirement(remedies):
    """These releases, where pip may change the package alone."""
    change = name_change(remedies)
    if not change or change.package in _NOT_ALONE:
        return None
    return with_plugin(remedies, change.requirement)


def _named_torch(remedies):
    """PyTorch before the release that took a name away, with its companions, which pin it."""
    change = name_change(remedies)
    gone = (
        change
        and change.package == "torch"
        and numbers(change.gone)[:2] > (2, 0)
        and "<" in change.requirement
    )
    named = sorted(getattr(remedies.here, "companions", ())) if gone else []
    return [change.requirement] + named if gone else None


def _newer_torch(remedies):
    """The PyTorch with the name that a line asks for, where the one that the text names is older."""
    change = name_change(remedies)
    old = change and change.package == "torch" and change.here and change.since
    return "torch>=" + change.since if old and numbers(change.here) < numbers(change.since) else None


def _before_removal(remedies):
    """The releases of a package before the one of which a line tells that it took a name away; None for what
    is chosen by CUDA, or with PyTorch.
    """
    told = remedies.detail
    name = (told.get("package") or told.get("remover") or "").lower().replace("_", "-")
    release = told.get("release") or told.get("since")
    alone = name.replace("-", "_") in PURE | {"numpy", "setuptools"}
    return "%s<%s" % (name, release) if release and alone else None


def _wheel_of_what(remedies):
    """NVIDIA's wheel of the library, another one than cuBLAS, of which a line names two releases."""
    name = re.sub("^lib|lt$", "", (remedies.detail.get("what") or "cublas").lower())
    known = remedies.cuda in (12, 13) and name in ("cudnn", "nccl")
    return "nvidia-%s-cu%d" % (name, remedies.cuda) if known else None


def _asker_release(remedies):
    """The release from which on a package asks no longer for a name that is gone, unless another one asks."""
    found = read_patterns()["python-askers"].get(".".join(map(str, asked_names(remedies))).lower())
    asking = (getattr(getattr(remedies.here, "apart", None), "asker", None) or "").replace("-", "_") or None
    known = asking not in PURE | {None} or asking == asked_names(remedies)[0]
    return None if found and asking and not known and not found.startswith(asking) else found


def _asker_anew(remedies):
    """A package that asks another one for a name which later releases of that one do not have, and of which a
    later release was read than the text names: it goes with the other one. Else what it asks has to be older.
    """
    change = name_change(remedies)
    asker = asker_of(remedies, change) if change and change.gone and "<" in change.requirement else None
    row, release = names_row(asker), numbers(release_here(remedies.here, asker)) if asker else ()
    later = row and release and release < numbers(row["read"][1])
    return asker if later and _changes_alone(remedies, asker) else None


def _changes_alone(remedies, name):
    """Whether pip may change a package alone: a known name, of what is built for no PyTorch and no CUDA."""
    bound = re.match("(?:%s)$" % read_patterns()["grammar"]["ml-package"], name or "torch")
    sure = name and (is_known_module(name.replace("-", "_")) or name in remedies.here.packages)
    return bool(sure) and not bound


def _upgrade_both(remedies):
    """Two packages, neither built for a PyTorch or a CUDA, one of which asks the other for what it lacks."""
    apart = apart_here(remedies, *BETWEEN_TWO)
    if apart and (apart.kind, apart.asked) == ("size", "numpy"):
        return None  # numpy<2 changes one package, of which others here may need no newer release
    names = sorted((apart.asker or "", apart.asked or "")) if apart else []
    return names if apart and all(_changes_alone(remedies, name) for name in names) else None


def _no_tag(remedies):
    """(name, release) of which a line of uv's tells that it has no wheel for this Python; (None, None)."""
    text = str(remedies.detail.get("matched"))
    found = re.match(r"([a-z][\w-]*)==(\d[\w.]*) ha(?:s|ve) no (?:usable )?wheels", text)
    return found.groups() if found and may_move(found.group(1)) else (None, None)


def _no_tag_release(remedies):
    name, release = _no_tag(remedies)
    return "%s<%s" % (name, release) if name else None


def _model_library(remedies):
    """The library of Hugging Face's that loads a model."""
    told = re.search(r"\bdiffusers\b|DiffusionPipeline", text_of(remedies.here))
    return "diffusers" if told else "transformers"


def _asked_of_source(remedies):
    """The installed package that lacks what another one asks for which runs out of a folder of sources."""
    apart, path = apart_here(remedies, *BETWEEN_TWO), ""
    if apart and apart.asker and apart.asked and may_move(apart.asked):
        path = (apart.file or "").replace("\\", "/")
    sources = re.search(r"/(?:src|python)/|/([\w-]+)/\1/", path) and "-packages/" not in path
    return apart.asked if sources and not release_here(remedies.here, apart.asker) else None


def _is_package(name):
    return is_known_module(name) or bool(release_rows(name))


def _trace_both(remedies):
    """The last two packages of a traceback that pip may change alone; None where one is a framework's."""
    roots = getattr(getattr(remedies.here, "trace", None), "roots", ())
    names = [distribution_named(root) for root in roots if root]
    last = [name for index, name in enumerate(names) if name not in names[:index] and _is_package(name)]
    last = [name for name in last if may_move(name)][:2]
    return sorted(last) if len(last) == 2 else None


def _works_with(remedies):
    """The releases that work by the text's own words."""
    return sorted("%s==%s" % row for row in works_told(remedies.here).items()) or None


def _raised_in(remedies):
    """(package, caller) of an exception out of a package's own code; (None, "") without one."""
    return getattr(remedies.here, "raised_in", None) or (None, "")


def _raised_before(remedies):
    """The releases of the package that raises before the one that is here."""
    package, release = _raised_in(remedies)[0], ""
    if package and may_move(package):
        release = release_here(remedies.here, package).partition("+")[0]
    return "%s<%s" % (package, plain_release(release)) if release else None


def _raised_both(remedies):
    """The package that raises and the one that calls it."""
    names = sorted(filter(None, _raised_in(remedies)))
    return names if len(names) == 2 and all(map(may_move, names)) else None


def _asked_beside(remedies):
    """The package that lacks what a framework asks it for, beside that framework as it is here."""
    apart = apart_here(remedies, *BETWEEN_TWO)
    version = apart and apart.asker and apart.versions.get(apart.asker)
    if not version or not _changes_alone(remedies, apart.asked) or _changes_alone(remedies, apart.asker):
        return None
    return ["%s==%s" % (apart.asker, version.partition("+")[0]), apart.asked]


_SITE_FOLDER = re.compile(r"(?:site|dist)-packages[/\\]([A-Za-z]\w*)[/\\]")
_FOLDER_OF = '$(python3 -c "from importlib.metadata import packages_distributions as p; print(*p()[%r])")'
"""The distribution of a module by the files that are installed; from Python 3.10 on."""


def _asker_of_later(remedies):
    """The package that asks another one for what the release here does not have, where a later release of it
    is a mend: none that is built for one PyTorch or CUDA. By its files where no table has its name.
    """
    apart = apart_here(remedies, *BETWEEN_TWO, "python-gone")
    if apart is None or not apart.asker or apart.kind == "size":
        return None
    if _changes_alone(remedies, apart.asker):
        return apart.asker
    folder = _SITE_FOLDER.search(apart.file or "")
    bound = is_known_module(apart.asker.replace("-", "_")) or "windows" in remedies.here.places
    return _FOLDER_OF % folder.group(1) if folder and not bound else None


_NUMBERED_AS_TORCH = ("torch-npu", "torch-xla", "intel-extension-for-pytorch")
"""Packages whose releases have the number of the PyTorch that they are built for."""


def _torch_of_asker(remedies):
    """The PyTorch of a package whose releases are numbered as PyTorch's."""
    apart = apart_here(remedies, "symbol")
    release = apart.versions.get(apart.asker) if apart and apart.asker in _NUMBERED_AS_TORCH else None
    return "torch==%s" % dotted(numbers(release)[:3]) if len(numbers(release)) > 1 else None


def distribution_of_known(module):
    """The distribution of a module that is not here, where a table has it, and it is built for no CUDA."""
    name = module and distribution_named(module)
    ours = name and re.match("(?:%s)$" % read_patterns()["grammar"]["ml-package"], name)
    return name if name and not ours and is_known_module(module) else None


def _pinned_beside(remedies):
    """The package that lacks what a framework asks it for, beside that framework of an unknown release."""
    apart = apart_here(remedies, *BETWEEN_TWO)
    if apart is None or not apart.asker or apart.versions.get(apart.asker) or apart.kind == "size":
        return None
    if not _changes_alone(remedies, apart.asked) or _changes_alone(remedies, apart.asker):
        return None
    known = is_known_module(apart.asker.replace("-", "_")) and "windows" not in remedies.here.places
    return '"$(python3 -m pip freeze | grep -i ^%s==)" %s' % (apart.asker, apart.asked) if known else None


def _index_of_its_own(remedies):
    """A release that was asked for, from the index of its project, which has more of them than PyPI."""
    text = str(remedies.detail.get("matched")) + " " + str(remedies.detail.get("line"))
    for name, index in read_patterns()["family-indexes"].items():
        found = re.search(r"\b%s\s?==\s?(\d[\w.]*\w)" % name.replace("-", "[-_]"), text)
        variant = "cu" + (re.search(r"\+cu(1\d\d)|$", text).group(1) or "")
        if found and ("{variant}" not in index or variant != "cu"):
            return ["%s==%s" % (name, found.group(1))] + index.replace("{variant}", variant).split()
    return None


def _left_behind_pin(remedies):
    row = left_behind(remedies)
    return "%s==%s" % row[::2] if row and may_move(row[0]) else None


def _listed_python(remedies):
    """The newest Python among the tags of wheels that uv lists where this Python is not among them."""
    listed = getattr(remedies.here, "python_tags", ())
    tags = {int(tag[3:]) for tag in listed if re.match(r"cp3\d+$", tag)}
    here = numbers(remedies.here.python)[1:2]
    return "3.%d" % max(tags) if tags and here and here[0] not in tags else None


def _asker_named(remedies):
    apart = apart_here(remedies, "python-gone", "python-new")
    known = apart and apart.asker and is_known_module(apart.asker.replace("-", "_"))
    return apart.asker if known and apart.asker != "torch" else None


def _asker_alone(remedies):
    """A package that asks Python for what this one has no longer."""
    apart = apart_here(remedies, "python-gone")
    return apart.asker if apart and _changes_alone(remedies, apart.asker) else None


def _brought_back(remedies):
    """The distribution that brings back what Python took away."""
    apart = apart_here(remedies, "python-gone")
    return read_patterns()["python-back"].get(apart.name.partition(".")[0].lower()) if apart else None


def _python_needed(remedies):
    """The last Python with what a package asks it for, or the first one."""
    apart = apart_here(remedies, "python-gone", "python-new")
    release = numbers(apart.python) if apart and apart.python else None
    if not release:
        return None
    return dotted((release[0], release[1] - 1)) if apart.kind == "python-gone" else apart.python


def _itself_anew(remedies):
    """A package, not built for a PyTorch or a CUDA, that asks itself for what its files do not have."""
    apart = apart_here(remedies, "itself")
    if not apart or not _changes_alone(remedies, apart.asked):
        return None
    version = apart.versions.get(apart.asked)
    return apart.asked + ("==" + version if version else "")


COMPILED_AT_INSTALL = ("flash-attn", *KERNEL_EXTENSIONS)
_REQUIRED = re.compile(r"[A-Za-z][\w.-]*(?:\[[\w,-]+\])?(?:[<>=~!]=?=?\d[\w.*]*,?)+$")


def _required(remedies):
    """The requirement that a line asks for, in its own words, and the packages whose releases it names beside
    it: asked for without a release, they are taken in one that fits.
    """
    text = re.sub(r"\s", "", remedies.detail.get("required") or remedies.detail.get("asked") or "").rstrip(
        ",."
    )
    if not _REQUIRED.match(text):
        return None
    name = canonical(re.split(r"[\[<>=~!]", text)[0])
    beside = re.findall(r"`([a-z][\w-]+)==\d[\w.]*`", str(remedies.detail.get("line")))
    return [text] + [other for other in beside if other != name and not other.startswith("torch")]


_TOLD_WORD = re.compile(r"(?:[A-Z][A-Z0-9_]+=\w+|-U|--upgrade|--no-build-isolation|pip3?|install)$")
_TOLD_PACKAGE = re.compile(
    r"(?!torch(?:vision|audio)?\b|apex\b)[A-Za-z][\w.-]*(?:\[[\w,-]+\])?(?:[<>=~!]=?\d[\w.]*,?)*$"
)


def _told_line(remedies):
    """The line of pip's that a message itself names, with one package; None for another PyTorch, beside which
    what is compiled for this one would not load, and for NVIDIA's Apex, whose name on the index is another's.
    """
    found, package = [], None
    for word in re.sub(r"[\"']", "", remedies.detail.get("installs") or "").split():
        word = word.rstrip(".,;:")
        if package is None and _TOLD_PACKAGE.match(word) and not _TOLD_WORD.match(word):
            package = word
        elif not _TOLD_WORD.match(word):
            break
        found.append(remedies.quoted(word))
    return " ".join(found).replace("pip3", "pip") if package else None


def _plainly_asked(remedies):
    """The package that a message asks for by its name alone; what is compiled here sees PyTorch."""
    attention = {"flashattention2": "flash-attn", "flashattention4": "flash-attn-4"}
    told = remedies.detail.get("plain") or remedies.detail.get("absent") or remedies.detail.get("demanded")
    name = (told or "").lower().replace("_", "-")
    name = attention.get((remedies.detail.get("attention") or "").lower()) or module_facts(name) or name
    return name + " --no-build-isolation" * (name in COMPILED_AT_INSTALL) if name else None


def _published_variants(remedies):
    """The CUDA variants of the release that was asked for: those that the installer lists, else the known."""
    listed, release = remedies.detail.get("listed") or "", asked_release(remedies)[0]
    printed = re.findall(r"\b%s(?:\.\d+)?\+(cu\d+)\b" % re.escape(release), listed)
    python, known = numbers(remedies.here.python), []
    for row in Releases().builds("torch", release):
        first, last = map(numbers, row["python"])
        if row["variant"] and (not python or first <= python <= last):
            known.append(row["variant"])
    return printed or known


def asked_release(remedies):
    release, _, local = (remedies.detail.get("wanted") or "").partition("+")
    return re.sub(r"\.\*?$", "", release), local


def _published(remedies):
    """PyTorch of the release that was asked for, from the index that has it: of its own variant, else of
    another one.
    """
    release, local = asked_release(remedies)
    if remedies.detail.get("name") != "torch" or not numbers(release):
        return None
    if local == "cpu" or "macos" in remedies.here.places:
        return ["torch==" + release]  # ARM's and macOS's builds have no such name
    variants = _published_variants(remedies)
    if not variants:
        return None
    if local not in variants:
        # of CUDA 13 only where the card or the driver is known to be one for it
        told = remedies.capability or remedies.driver_known()
        older = [name for name in variants if numbers(name[2:]) < (130,)]
        local = max((not told and older) or variants, key=lambda name: numbers(name[2:]))
    full = r"\b(%s(?:\.\d+)?)\+%s\b" % (re.escape(release), local)
    found = re.search(full, remedies.detail.get("listed") or "")
    any_patch = "*" in remedies.detail["wanted"] and not found
    release = found.group(1) if found else release + ".*" * any_patch
    return ["torch==" + release] + torch_index(local)


_OLDEST_OF_UV = (3, 8)
"""The oldest Python that `uv python list` has."""
_STUB_SINCE = {"tensorflow-gpu": (2, 12)}
"""Names whose later releases are empty, and fail as they install:
the page of tensorflow-gpu says so."""


def _other_python(remedies):
    """A Python for which the release that was asked for has wheels, where this one is none of these."""
    side, ranges = _python_side(remedies), _python_ranges(remedies)
    if side is None:
        return None
    first, last = min(first for first, _ in ranges), max(last for _, last in ranges)
    return dotted(last if side == "newer" else min(max(first, _OLDEST_OF_UV), last))


def _python_of_uv(remedies):
    return numbers(_other_python(remedies)) >= _OLDEST_OF_UV


def _python_side(remedies):
    """Whether this Python is ``newer`` or ``older`` than all that the release asked for has wheels for: as a
    text says it, else by what the index has for it; None if it is not, or nothing tells.
    """
    here, ranges = numbers(remedies.here.python)[:2], _python_ranges(remedies)
    if not ranges:
        return None
    if here:
        first, last = min(first for first, _ in ranges), max(last for _, last in ranges)
        return "newer" if here > last else "older" if here < first else None
    return _side_by_list(remedies)


def _side_by_list(remedies):
    """An index that has neither the release asked for nor an older one has none for a Python this new."""
    listed = re.findall(r"[\s,](\d[\d.]*)(?=[,)\s]|$)", remedies.detail.get("listed") or "")
    wanted, known = numbers(asked_release(remedies)[0]), sorted(map(numbers, listed))
    elsewhere = {"aarch64", "jetson", "macos", "windows"} & remedies.here.places
    if not known or not wanted or elsewhere or "+" in remedies.detail["listed"]:
        return None
    return "newer" if known[0] > wanted else "older" if known[-1] < wanted else None


def python_apart(remedies):
    """The sentence for a Python for which the release that was asked for has no wheels; None if it has."""
    side, here = _python_side(remedies), remedies.here.python
    if side is None:
        return None
    asked = "%s %s has wheels for Python %s" % (
        remedies.detail["name"],
        asked_release(remedies)[0],
        _python_range(remedies),
    )
    if here:
        return "%s, and this is Python %s" % (asked, here)
    return "%s, and what the index has for this Python is all %s: this Python is too %s for that release" % (
        asked,
        side,
        "new" if side == "newer" else "old",
    )


def _python_ranges(remedies):
    release, name = asked_release(remedies)[0], remedies.detail.get("name") or ""
    name = {"tensorflow-gpu": "tensorflow"}.get(name, name)
    rows = Releases().builds(name, release) if numbers(release) else []
    return [tuple(map(numbers, row["python"])) for row in rows]


def _python_range(remedies):
    ranges = _python_ranges(remedies)
    return "%s to %s" % (dotted(min(ranges)[0]), dotted(max(last for _, last in ranges))) if ranges else None


def _release_asked_for(remedies):
    release, local = asked_release(remedies)
    return ["%s==%s" % (remedies.detail.get("name"), release)] + torch_index(local)


def _listed_nearest(remedies):
    """The release of the same minor version, or else of the same major one, that an installer lists: the
    next one above the one asked for, else the newest.
    """
    name, wanted = remedies.detail.get("name") or "", numbers(asked_release(remedies)[0])
    listed = re.findall(r"[\s,](\d[\d.]*)(?=[,)\s]|$)", remedies.detail.get("listed") or "")
    for size in (2, 1) if wanted and name not in ("torch", "torchvision", "torchaudio") else ():
        same = sorted((numbers(text), text) for text in listed if numbers(text)[:size] == wanted[:size])
        same = [row for row in same if row[0] < _STUB_SINCE.get(name, (1 << 30,))]
        above = [text for number, text in same if number > wanted]
        if same:
            return "%s==%s" % (name, above[0] if above else same[-1][1])
    return None


def _variants_of_asked(remedies):
    release = (getattr(remedies.here, "torch_asked", None) or "").partition("+")[0]
    rows = Releases().builds("torch", release) if release else []
    return [row["variant"] for row in rows if row["variant"] and remedies.driver_serves(numbers(row["cuda"]))]


def _published_pair(remedies):
    """The PyTorch that was asked for with a CUDA that has no build of it, from the index nearest above."""
    release, _, asked = (getattr(remedies.here, "torch_asked", None) or "").partition("+")
    known = sorted(_variants_of_asked(remedies), key=lambda name: numbers(name[2:]))
    above = [name for name in known if numbers(name[2:]) > numbers(asked[2:])]
    return known and remedies.torch_and_companions(release, (above or known[::-1])[0])


def _python_told(remedies):
    """The Python that a text is about, by the library that it links, too."""
    found = re.search(
        r"python3(\d\d)\b", str(remedies.detail.get("line")) + str(remedies.detail.get("matched"))
    )
    return remedies.here.python or (found and "3." + found.group(1))


_UBUNTU_OF = ((35, "22.04"), (39, "24.04"))
"""(the minor version of its glibc, the release): https://documentation.ubuntu.com/project/release-team/list-of-releases/"""


def glibc_asked(remedies):
    """The minor version of the newest glibc 2 that a message asks for: 34; None if it names none."""
    asked = re.findall(r"GLIBC_2\.(\d\d)\b", failing_words(remedies))
    _, of_wheels = glibc_of_wheels(remedies.here) or (None, None)
    return max(map(int, asked)) if asked else of_wheels


def _newer_system(remedies):
    """An image with the C library that a message asks for; None where it asks for that of no known one."""
    asked = glibc_asked(remedies)
    release = next((name for minor, name in _UBUNTU_OF if asked and asked <= minor), None)
    return release and "ubuntu:" + release


def _last_python(remedies):
    """The last Python of which the index that was asked has a PyTorch; None if that is not known."""
    asked = getattr(remedies.here, "index_asked", None)
    rows = [row for row in Releases().builds("torch", None) if asked and row["variant"] == asked]
    return max((row["python"][1] for row in rows if row["python"]), key=numbers, default=None)


def _index_of_later_pythons(remedies):
    """PyTorch from an index for the Pythons after those of the one asked, which has nothing for this one."""
    last, here = numbers(_last_python(remedies)), numbers(remedies.here.python)[:2]
    nothing = remedies.detail.get("name") in ("torch", "torchvision", "torchaudio")
    if not nothing or not last or last >= (3, 12) or (here and here <= last):
        return None
    return ["torch", "torchvision", "torchaudio"] + torch_index("cu126")


def _python_of_index(remedies):
    """The last Python of the index that was asked, for a text whose Python is later, and which no later index
    serves better: another Python is all that helps.
    """
    last, here = _last_python(remedies), numbers(remedies.here.python)[:2]
    nothing = remedies.detail.get("name") in ("torch", "torchvision", "torchaudio")
    return last if nothing and here and numbers(last or "") and here > numbers(last) else None


def _wheel_python(remedies):
    """The Python that a wheel's name asks for, where the text is about another one."""
    found = re.search(r"-cp3(\d{1,2})-cp3\1t?-", str(remedies.detail.get("what")))
    here = numbers(remedies.here.python)[:2]
    other = found and here and here != (3, int(found.group(1)))
    return "3.%s" % found.group(1) if other else None


_ASKED_LINE = re.compile(r"\bpip3? install ([^\n&|;`'\"<>$()]{1,120})")


_PART_FOR_CUDA = re.compile(
    r"-packages/(([A-Za-z]\w*?)_(?:cuda|gpu|cu1[1-3]))/[\w./+-]+\.so[\w.]*: undefined symbol: (\w+)"
)


def _symbol_siblings(remedies):
    """A package and its part for CUDA, whose library lacks a function of none of PyTorch's and CUDA's: they
    are of two builds.
    """
    found = _PART_FOR_CUDA.search(text_of(remedies.here))
    own = found and not re.match(r"_Z\w*(?:2at|3c10|5torch)|cu[A-Z]|cuda|cudnn|nccl|Py", found.group(3))
    return sorted(canonical(name) for name in found.groups()[:2]) if own else None


def _asked_line(remedies):
    """What the last line of pip's in a text installs; None without a plain one."""
    lines = [row.group(1).split() for row in _ASKED_LINE.finditer(text_of(remedies.here))]
    words = [word for word in (lines or [[]])[-1] if word not in ("--no-build-isolation", "\\")]
    plain = words and all(re.match(r"[\w./=\[\],:@+-]+$", word) for word in words)
    named = plain and any(re.match(r"(?:-[er]|\.|[A-Za-z][\w.-]*(?:==\S+)?$)", word) for word in words)
    return " ".join(words) if named and len(words) < 8 else None


REQUIREMENT_FACTS = {
    "before-removal": _before_removal,
    "index-of-later-pythons": _index_of_later_pythons,
    "last-python": _last_python,
    "named-requirement": _named_requirement,
    "named-torch": _named_torch,
    "upgrade-both": _upgrade_both,
    "no-tag-release": _no_tag_release,
    "no-tag-asked": lambda r: "%s==%s" % _no_tag(r) if _no_tag(r)[0] else None,
    "model-library": _model_library,
    "asked-of-source": _asked_of_source,
    "asked-of-time": lambda r: with_plugin(r, asked_of_time(r.here)),
    "asker-to-raise": lambda r: asker_to_raise(r.here),
    "torch-of-time": lambda r: torch_of_time(r.here),
    "trace-both": _trace_both,
    "works-with": _works_with,
    "raised-package": lambda r: _raised_in(r)[0],
    "raised-before": _raised_before,
    "raised-both": _raised_both,
    "raised-alone": lambda r: next((name for name in _raised_in(r) if name and may_move(name)), None),
    "asked-beside": _asked_beside,
    "asker-named": _asker_named,
    "torch-of-asker": _torch_of_asker,
    "absent-known": lambda r: distribution_of_known(r.detail.get("absent")),
    "asked-line": _asked_line,
    "symbol-siblings": _symbol_siblings,
    "package-from-index": lambda r: (
        bool(getattr(r.here, "collected", None) or getattr(r.here, "asked_build", None)) or None
    ),
    "standard-20": lambda r: r.detail.get("standard") == "20" or None,
    "asker-of-later": _asker_of_later,
    "pinned-beside": _pinned_beside,
    "index-of-its-own": _index_of_its_own,
    "listed-python": _listed_python,
    "left-behind": _left_behind_pin,
    "left-behind-python": lambda r: left_behind(r) and left_behind(r)[3],
    "asker-alone": _asker_alone,
    "brought-back": _brought_back,
    "python-needed": _python_needed,
    "asker-release": _asker_release,
    "asker-anew": _asker_anew,
    "asker-beside-framework": asker_beside_framework,
    "itself-anew": _itself_anew,
    "required": _required,
    "told-line": _told_line,
    "plainly-asked": _plainly_asked,
    "published": _published,
    "published-variants": lambda r: ", ".join(sorted(set(_published_variants(r)))) or None,
    "published-pair": _published_pair,
    "published-cuda": lambda r: ", ".join(sorted(_variants_of_asked(r))) or None,
    "python-minor": lambda r: dict(enumerate(numbers(_python_told(r)))).get(1),
    "python-digits": lambda r: "".join(map(str, numbers(_python_told(r))[:2])),
    "newer-system": _newer_system,
    "newer-torch-told": lambda r: (releases_with_name(r) or "").startswith("torch>"),
    "newer-torch": _newer_torch,
    "python-of-uv": _python_of_uv,
    "other-python": _other_python,
    "python-range": _python_range,
    "asked": _release_asked_for,
    "listed-nearest": _listed_nearest,
    "python-of-index": _python_of_index,
    "wheel-python": _wheel_python,
    "other-wheel": _wheel_of_what,
}
"""By the names in ``causes.ini``."""
