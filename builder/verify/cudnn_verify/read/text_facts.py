"""Facts of a machine out of a text: card, driver, CUDA, packages, the place where it ran.

The expressions are in ``patterns.ini``, and compiled at their first use: most runs of the probe read no text.
"""

import functools
import re
from itertools import islice

from ....core.cards import cards_in
from ..common.asking import (
    find_apart,
    imports_that_fail,
    named_package,
    package_of_path,
    traceback_frames,
)
from ..common.distributions import canonical, distribution_named, is_known_module
from ..common.name_changes import trace_names
from ..common.tables import (
    cuda_major_of,
    read_cards,
    read_facts,
    read_frameworks,
    read_patterns,
    told_names,
)
from ..common.versions import cuda_tuple, cudnn_tuple, dotted, numbers
from .package_lists import listed_within
from .signatures import Words


@functools.lru_cache(maxsize=1)
def _package_names():
    """An expression for the names under which frameworks are installed, the longest first."""
    rows = read_frameworks().values()
    names = {name for row in rows for name in [row["told"], *row.get("aliases", ()), row.get("distribution")]}
    names = sorted(filter(None, names), key=lambda name: (-len(name), name))
    return "|".join(
        [row["packages"] for row in rows if "packages" in row] + [re.escape(name) for name in names]
    )


_PACKAGES = "flash[-_]attn|deepspeed|transformers|cupy[-_]cuda1[1-3]x|quack[-_]kernels"
"""Packages of which messages and remedies name releases, beside those of the tables."""


@functools.lru_cache(maxsize=1)
def _family_names():
    names = {name for head, rest in read_patterns()["families"].items() for name in [head, *rest.split()]}
    return "|".join(name.replace("-", "[-_]") for name in sorted(names, key=lambda name: (-len(name), name)))


def _matches(name, text):
    """The matches of an expression, in their order."""
    pattern = read_patterns()["told"][name].replace("FRAMEWORKS", _package_names())
    pattern = pattern.replace("FAMILIES", _family_names())
    names = (name.replace("-", "[-_]") for name in read_facts()["pairs"])
    pattern = pattern.replace("PACKAGES", "|".join([_PACKAGES, *names, _family_names()]))
    words = text_words(text)
    return words.matches(re.compile(pattern), pattern, text) if words.may_fit(pattern) else iter(())


def _groups_of(match):
    return {key: value for key, value in match.groupdict().items() if value}


def _find_all(name, text):
    """The groups that hold something, of each match of an expression."""
    return map(_groups_of, _matches(name, text))


def _groups(name, text):
    """The groups of an expression's first match that hold something; {} without a match."""
    return next(_find_all(name, text), {})


def _fitting(section, text):
    """The keys of a section whose expressions are found in a text."""
    words, rows = text_words(text), read_patterns()[section].items()
    return [key for key, pattern in rows if words.may_fit(pattern) and re.search(pattern, text)]


def _gibibytes(name, text):
    """An amount of memory and its unit, in GiB."""
    amount, unit = tuple(_groups(name, text).values())[:2] or (None, None)
    return amount and float(amount.rstrip(".")) / (1 if unit == "G" else 1024)


@functools.lru_cache(maxsize=2)
def text_words(text):
    """The :class:`Words` of a text, which facts and signatures ask for one after the other."""
    return Words(text)


_COMMENT = re.compile(r"(?m)^[ \t]*# (?!-)[^\n]*$|(?<=[\w)])[ \t]{2,}# [^\n]*$")


def _without_comments(text):
    """A text without what somebody wrote behind a hash, in lines of their own or behind a command."""
    return _COMMENT.sub("", text)


def printed_by(text):
    """The frameworks whose files, modules or names a text has."""
    rows = {row["told"]: row["printed_by"] for row in read_frameworks().values() if "printed_by" in row}
    rows.update(read_patterns()["printed-by"])
    words = Words(text)
    return {name for name, pattern in rows.items() if words.may_fit(pattern) and re.search(pattern, text)}


def _branch_told(text):
    """A driver's branch, where any release of it is above or below what a CUDA asks for."""
    branch = next(iter(_groups("driver_branch", text).values()), None)
    floors = {floor.partition(".")[0] for floor, _, _ in read_facts()["cuda"].values() if floor}
    return None if branch in floors else branch


_OWN_FRAME = re.compile(
    r"(?:site|dist)-packages[/\\]([A-Za-z]\w*)[/\\][^\n]{0,200}?"
    r"(?:, line \d+|\.py(?::\d+\b|\(\d+\)| in[ \n]<?\w|\]\(\S+\) in <?\w|\"(?=\n|$)))"
)
"""A line of a traceback, as Python, IPython and a notebook print it, or cut behind its file."""
_CUDNN_BUILT = re.compile(r"(?i)\b(?:built|compiled) (?:against|with|for) cuDNN v?(\d+\.\d+(?:\.\d+)*)")
_CUDNN_PACKAGED = re.compile(r"\blibcudnn\d+(?:-cuda-(\d+))?[ \t=]+(\d+\.\d+\.\d+)")
"""cuDNN of a distribution's packages, as dpkg lists them."""
_BUILD_TOLD = re.compile(
    r"(?i)\b(onnxruntime-gpu|vllm|sgl-kernel|ctranslate2|cupy)\b[^\n.;,]{0,40}?"
    r"\bcu(1[1-3])\d? (?:build|wheel)"
)
_DRIVER_PARTS = re.compile(r"(?m)^(?:ii +)?(?:lib)?nvidia-[a-z-]+-\d{3}\S*\s+\d{3}\.\d")
"""Debian's packages of a driver, as dpkg and apt list them."""
_TOLD = re.compile(
    r"Error\b|Traceback|(?i:\berrors?:|\bwarning\b|\bfail(?:ed|s)?\b|\bcannot\b|\bcan't\b)|\bFalse\b"
)
_MOST_REQUIREMENTS = 200
_MONTH = re.compile(r"2\d\.(?:0[1-9]|1[0-2])(?:$|-)")
"""The tag of NVIDIA's images, a year and a month, which is no release of what is inside:
https://docs.nvidia.com/deeplearning/frameworks/support-matrix/
"""
_SYSTEMS = {"fedora", "arch-linux", "suse", "void", "gentoo", "alpine", "nix"}
# CUDA's libraries with its major in their names, those that are here, and words for what is not there
CUDA_NUMBERED = re.compile(r"(lib(?:cudart|nvrtc|cublas|cublasLt|nvJitLink)\.so)\.(\d+)")
_HERE = re.compile(
    r"(?:(?:(?:site|dist)-packages|/usr/local/cuda[\w.-]*)/\S{0,200}?|(?i:CUDA toolkit)[^\n]{0,60}?)"
    + CUDA_NUMBERED.pattern
)
_SAYS_ABSENT = re.compile(
    r"(?i)not found|cannot open|can't open|no such file|missing|could not|couldn't|fail|unable|error"
)

# Exceptions of code that meets what it was not written for; others are what a package says of its input.
_OF_CODE = re.compile(
    r"^(?:[^\n]{0,60}?[\s|>)])?(?:\w+\.)*\w*(?:Attribute|Type|Name|UnboundLocal|Key|Index|NotImplemented)Error(?=:|\s|$)",
    re.M,
)


_OF_VALUE = re.compile(r"(?:Key|Index|NotImplemented)Error$")
_CODE_APART = re.compile(
    r"(?:Attribute|Name|UnboundLocal)Error\b|unexpected keyword argument|positional arguments? but|"
    r"required (?:positional|keyword-only) argument|multiple values for (?:keyword )?argument"
)
# The class of an exception with the module that it is of, and that of C++ with its namespace.
_OF_MODULE = re.compile(
    r"^(?:[^\n]{0,80}?[\s)])?(?P<module>[a-z]\w*)(?:\.\w+)+\.[A-Z]\w*(?:Error|Exception)(?=:|$)|"
    r"throwing an instance of '(?P<space>[a-z]\w*(?:::[a-z]\w*)*)::\w+'",
    re.M,
)


def raised_in(text):
    """(package, caller) of a text's last exception: the installed package whose own code raises it, and the
    one that calls that, "" if no frame has another one. Where no frame tells, the package whose own class of
    exceptions it is. None if it is the program's or Python's own code, a framework's, or an exception by
    which a package says that it cannot use its input.
    """
    raised = [found.start() for found in _OF_CODE.finditer(text)][-1:]
    frames = traceback_frames(text) if raised else []
    above = [
        frame for frame in frames if frame[0] < raised[0]
    ] or frames  # written below, where none is above
    packages = [package_of_path(path)[0] for _, path, _ in reversed(above)]
    if not packages:
        told = named_package(text, raised[0]) if raised else None
        return (told, "") if told and told not in told_names() else _raised_by_class(text)
    if not packages[0] or packages[0] in told_names():
        return None
    callers = [package for package in packages if package is not None and package != packages[0]]
    return None if callers and not callers[0] else (packages[0], callers[0] if callers else "")


_EXCEPTION = re.compile(
    r"(?m)^(?:[^\n]{0,80}?[\s|>)])?[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b(?!\()"
)


def _cut_in(text):
    """Where a traceback ends before its exception, the package of its last frame; "" for another one."""
    frames = [frame for frame in traceback_frames(text) if '", line ' in text[frame[0] : frame[0] + 20]]
    if not frames or _EXCEPTION.search(text, frames[-1][0]) or len(text) - frames[-1][0] > 2000:
        return None
    return package_of_path(frames[-1][1])[0] or ""


_CRASH = re.compile(
    r"(?i)\bseg(?:mentation )?fault|\bSIGSEGV\b|\bSIGABRT\b|\bcore dumped\b|\bfatal python error\b"
)
_SPACE = re.compile(r"(?<![\w:])([a-z]\w*(?:::[a-z]\w*)?)::[\w~<]")


def _raised_in_space(text):
    """The packages of the namespaces that the frames of a crash go through, the innermost first."""
    found = []
    for row in islice(_SPACE.finditer(text), 200) if _CRASH.search(text) else ():
        names = (row.group(1).replace("::", "_"), row.group(1).partition("::")[0])
        known = next((distribution_named(name) for name in names if is_known_module(name)), None)
        found += [known] if known and known not in found else []
    if not found or found[0] in told_names():
        return None
    return found[0], found[1] if found[1:] and found[1] not in told_names() else ""


def _raised_by_class(text):
    found = list(_OF_MODULE.finditer(text))[-1:]
    module = found and (found[0].group("module") or found[0].group("space").replace("::", "_"))
    known = module and is_known_module(module) and distribution_named(module)
    return (known, "") if known and known not in told_names() else _raised_in_space(text)


def requirements_told(text):
    """[((package, release) or None for the user, the package it wants, in which versions)] of what pip, uv,
    conda, mamba and Poetry say that asks for what.
    """
    found, more = [], re.compile(read_patterns()["told"]["needs_more"])
    root = _groups("poetry_root", text).get("name")
    for match in islice(_matches("needs", text), _MOST_REQUIREMENTS):
        row = _groups_of(match)
        release = row.get("release") or re.sub(r"^==(?=\d[^,]*$)", "", row.get("range", "")) or None
        own = "user" in row or root == row["who"]
        who = None if own else (canonical(row["who"]), release or row.get("span"))
        found.append((who, canonical(row["dep"]), _bounds(row)))
        other = more.match(text, match.end())
        while other:
            found.append((who, canonical(other["dep"]), _bounds(other.groupdict())))
            other = more.match(text, other.end())
    for row in islice(_find_all("tree", text), _MOST_REQUIREMENTS):
        found.append(((canonical(row["who"]), row["release"]), canonical(row["dep"]), _bounds(row)))
    asked = islice(_find_all("tree_asked", text), _MOST_REQUIREMENTS)
    return found + [(None, canonical(row["dep"]), _bounds(row) + ".*") for row in asked]


def _bounds(row):
    """``>=1.23,<2`` of a requirement's bounds in any form; ``==2.4.0`` of a release alone."""
    if row.get("exact"):
        return "==" + row["exact"]
    return re.sub(r"\s+(?:and|&)\s+", ",", row["spec"]).rstrip(".,")


class TextFacts(object):
    """Facts out of texts. Versions are texts; memory is in bytes; None or empty if no text says it."""

    def __init__(self, lines):
        self.packages, self.here, self.floors = {}, {}, {}
        """What texts say that is installed or asked for, {name: version}; here: by the names as written;
        floors: the release from which on something is asked for.
        """
        self.written = []
        """Files that are written before a program runs, as of ``TextReading``."""
        self.missed_pins = []
        """[(package, the versions of it that another one asks for and that are not here)]."""
        self.requirements = []
        """[((package, release) or None for the user, the package it wants, in which versions)]."""
        self.cudnn_here, self.cuda_majors = set(), set()
        text = "\n".join(line.text for line in lines)
        self.__dict__.update((name, False) for name in read_patterns()["flags"])
        self.__dict__.update((name, True) for name in _fitting("flags", text))
        words = read_patterns()["reading"]["failures"].split("|")
        self.fails = any(word in text for word in words)
        self.quiet = not _TOLD.search(text)
        """Whether the texts tell of nothing that went wrong: lists, and what a machine says of itself."""
        self.listed = listed_within(line.text for line in lines) or {}
        """The packages of the longest list in the texts, {name: version}."""
        listed = _DRIVER_PARTS.findall(text)
        self.fabric_absent = self.fabric_absent or len(listed) > 1 and "fabricmanager" not in text
        self._packages(text)
        self._requirements(text)
        self._machine(text)
        self._cudnn(text)
        self._visible(text)
        frames = _OWN_FRAME.findall(text)
        self.importing = frames[-1] if frames else None
        """The package of a traceback's last frame."""
        self.printed_by, self.places = printed_by(text), set(_fitting("places", text))
        if len(_SYSTEMS & self.places) > 1:  # a list of them, as installers print it
            self.places -= _SYSTEMS
        self.named = set(_fitting("named", text))
        self.companions = set(re.findall(r"(?<![\w/.])(torchvision|torchaudio)\b(?![-_/])", text))
        """Those of PyTorch's companions that a text names."""
        folders = {int(found["major"]) for found in _find_all("toolkit_folder", text)}
        self.toolkit = folders.pop() if len(folders) == 1 else None
        self.cuda_named = {int(major) for found in _find_all("cuda_named", text) for major in found.values()}
        self.cuda_releases = {found["release"] for found in _find_all("cuda_release", text)}
        """CUDA as a text names it with its minor version, of builds and images alike."""
        self.wheels = {found["name"] for found in islice(_find_all("wheel", text), _MOST_REQUIREMENTS)}
        self.apart = find_apart(text, self.python)
        """What one package asks of another and does not find, an ``Apart``; None without such a message."""
        self.trace = trace_names(text)
        """The files of packages that its tracebacks go through, and what their lines call."""
        self.raised_in = raised_in(text)
        """(the package whose own code raises the last exception, the one that calls it or ""); None if no
        frame tells, or the program's own code does.
        """
        self.cut_in = _cut_in(text)
        """The package of the last frame of a traceback whose exception is not in the text, "" for another
        one; None if no traceback is cut.
        """
        told = {row.group(1).lower(): int(row.group(2)) for row in _BUILD_TOLD.finditer(text)}
        self.builds_told = {canonical(name): major for name, major in told.items()}
        """{package: the CUDA major version that a text says its wheel is built for}."""
        self.code_apart = bool(_CODE_APART.search(text))
        """Whether an exception tells that a call or a name, and no value, is not as it was written for."""
        last = (list(_OF_CODE.finditer(text)) or [None])[-1]
        self.value_raised = bool(last and _OF_VALUE.search(last.group(0)))
        """Whether the last exception tells that a value is not there, as of a program's own data."""
        self.import_fails = imports_that_fail(text)
        """{module that is not there: the installed package that imports it}."""
        present = [line.text for line in lines if not _SAYS_ABSENT.search(line.text)]
        self.libraries = {found.groups() for text in present for found in _HERE.finditer(text)}

    def _packages(self, text):
        rows = read_frameworks().values()
        names = {alias: row["told"] for row in rows for alias in row.get("aliases", ())}
        for found in _find_all("image_tag", text):
            of_torch = "{release}+cu{major}{minor}" if "torch" in found else None
            self.packages["torch" if of_torch else "vllm"] = (of_torch or "{version}").format(**found)
        words = "held shown locked instead pinned asked wordy family_pair family fetched"
        said = _without_comments(text)  # what a comment tells weighs less than what a program printed
        for pattern, part in [(word, part) for part in dict.fromkeys((said, text)) for word in words.split()]:
            for found in sorted(_find_all(pattern, part), key=lambda found: "bound" in found):
                name = canonical(found.get("met") or found["name"])
                version = (found.get("release") or found["version"]).rstrip(".,;)")
                version += "+" + found["variant"] if "variant" in found else ""
                if "bound" in found:  # what is asked for is no release that is here
                    self.floors.setdefault(names.get(name, name), version)
                    continue
                if _MONTH.match(version):
                    continue
                if pattern in ("held", "shown", "locked", "pinned"):
                    self.here.setdefault(name, version)
                self.packages.setdefault(names.get(name, name), version)
        config = {key: value for found in _find_all("cupy_config", text) for key, value in found.items()}
        if "cupy" in config:
            self.packages.setdefault("cupy", config["cupy"])
        self.cupy_cuda = config.get("cuda") and dotted(cuda_tuple(config["cuda"]))
        """The CUDA that CuPy was built with, as ``cupy.show_config()`` prints it."""
        majors = [_groups("plus", version).get("major") for version in self.packages.values()]
        self.cuda_majors = {int(major) if major != "92" else 9 for major in majors if major}
        for names in ([n for n in self.packages if "cudnn" not in n], self.packages):
            found = [re.search(r"-cu(?:da)?(\d\d)", name) for name in names]
            told = {int(match.group(1)) for match in found if match}
            told |= {cuda_major_of(name, self.packages[name]) for name in names} - {None}
            self.cuda_majors = self.cuda_majors or told
        self.cuda_majors |= {int(major) for major in _groups("jax_cuda", text).values()}
        folders = {int(found["major"]) for found in _find_all("wheel_folder", text)}
        self.cuda_majors = self.cuda_majors or folders
        self.cuda_majors = self.cuda_majors or ({numbers(self.cupy_cuda)[0]} if self.cupy_cuda else set())
        words = {int(found["major"]) for found in _find_all("cu_word", text)}
        self.cuda_majors = self.cuda_majors or (words if len(words) == 1 else set())

    def _requirements(self, text):
        self.requirements = requirements_told(text)
        missed = [*islice(_find_all("but_have", text), 20), *islice(_find_all("version_conflict", text), 20)]
        self.missed_pins = [(canonical(found["name"]), found["spec"]) for found in missed]

    def _machine(self, text):
        said = next(iter(_groups("driver", text).values()), None)
        # a libcuda may be a container's cuda-compat: what the text says of the driver outweighs it
        self.l4t = next(iter(_groups("l4t", text).values()), None)
        """The major number of a Jetson's L4T: 36 is JetPack 6."""
        self.off_the_mac = bool(_groups("pip_for_another_system", text))
        """Whether wheels are fetched for another system, or installed without an index."""
        self.compat = _groups("driver_library", text).get("version")
        self.driver = said or self.compat or _branch_told(text)
        majors_told = {int(major) for found in _find_all("image_major", text) for major in found.values()}
        self.image_major = next(iter(majors_told)) if len(majors_told) == 1 else None
        """The CUDA major version of the image that a text is about."""
        built = {int(major) for found in _find_all("cuda_of_build", text) for major in found.values()}
        tags = {int(major) for found in _find_all("image_tags", text) for major in found.values()}
        self.image_majors = majors_told | tags
        if self.image_major is None and len(self.image_majors) == 1:
            self.image_major = next(iter(self.image_majors))
        self.cudas_built = built | self.image_majors | self.cuda_majors
        """The CUDA major versions that a text names of builds, images and packages."""
        said = _groups("driver_cuda", text)
        number = said.get("number") or said.get("short")
        told = next((said[key] for key in said if key not in ("number", "short")), None)
        self.driver_cuda = dotted(cuda_tuple(number)) if number else told
        self.nvcc = next(iter(_groups("nvcc", text).values()), None)
        """The version of CUDA's compiler."""
        self.built_cuda = next(iter(_groups("built_cuda", text).values()), self.cupy_cuda)
        """The CUDA that a program says it was built with."""
        known, cards = read_cards(), {}
        for written, name in cards_in(text, known):
            cards.setdefault(written, known.capabilities[name])
        if not cards:
            bare = re.sub(r"\s", "", _groups("card_number", text).get("name", "").lower())
            names = [series + bare for series in ("rtx", "gtx", "gt", "")]
            names = [name for name in names if name in known.capabilities]
            cards.update((name.upper(), known.capabilities[name]) for name in names[:1])
        if not cards:
            cards.update(
                {
                    "a card of the series with compute capability %s" % cc: cc
                    for cc in _fitting("series", text)
                }
            )
        self.driver_cuda_known = bool(self.driver or self.driver_cuda)
        self.cards, by_card = list(cards), next(iter(cards.values()), None)
        digits = _groups("capability", text).get("cc")
        if not digits and not cards:
            digits = next(iter(_groups("card_without", text).values()), None)
        self.capability = re.sub(r"^(\d+)(\d)$", r"\1.\2", digits) if digits else by_card
        self.capabilities = set(cards.values()) | {self.capability} - {None}
        listed = " ".join(value for found in _find_all("arch_list", text) for value in found.values())
        self.arch_list = {divmod(int(digits), 10) for digits in re.findall(r"sm_(\d{2,3})", listed)}
        """Compute capabilities that ``torch.cuda.get_arch_list()`` gave."""
        listed = " ".join(value for found in _find_all("compiled_for", text) for value in found.values())
        codes = re.findall(r"(?<![\d.])(\d{1,2})\.?(\d)(?=[af]?\b|[af]?-)", listed)
        self.compiled_for = {(int(major), int(minor)) for major, minor in codes}
        """Compute capabilities that a build was compiled for, where a text has their list."""
        self.container_toolkit = _groups("container_toolkit", text).get("version")
        """The version of NVIDIA's container toolkit."""
        self.ollama = _groups("ollama", text).get("version")
        self.nvml_library = _groups("nvml_library", text).get("version")
        self.kernel_module = _groups("kernel_module", text).get("version")
        self.gcc = next(iter(_groups("gcc", text).values()), None)
        """The major version of the host compiler."""
        self.asked_build = _groups("asked_build", text).get("name")
        self.collected = next((found["name"] for found in reversed([*_find_all("collected", text)])), None)
        """What pip took up last, as it says itself."""
        said = _groups("told_to_work", text).get("pins") or ""
        self.told_to_work = re.findall(r"[\w.-]+==\d[\w.]*", said)
        """Pins that go together, by the text's own words."""
        said = _groups("first_release", text)
        self.first_release = (canonical(said["name"]), said["version"]) if said else None
        self.absent_library = _groups("absent_library", text).get("name")
        """The library of NVIDIA's that the loader did not find."""
        self.own_python = _groups("own_python", text).get("path")
        """The Python of a program on Windows, by its path."""
        self.llama_build = _groups("llama_build", text).get("name")
        self.index_asked = _groups("index_asked", text).get("name")
        told = list(_find_all("python", text))  # a wheel's tag is no Python that is here
        said = next((found for found in told if not {"tag", "folder"} & set(found)), (told or [{}])[0])
        minor = said.get("tag") or said.get("folder")
        self.python = "3." + minor if minor else said.get("instead") or said.get("version")
        listed = _groups("python_tags", text).get("list") or ""
        self.python_tags = re.findall(r"\b(?:cp|pp)3\d+t?\b", listed)
        """Pythons by the tags of the wheels that uv found of a package, where none is for this one."""
        self.wheel_torch = _groups("wheel_torch", text).get("version")
        said = _groups("image_cuda", text)
        digits = next(iter(said.values()), "")
        self.image_cuda = "cu" + digits.replace(".", "") if digits else None
        """The CUDA of the image or the setting that the text names, as PyTorch's variants are named."""
        self.image_base = said.get("tag")
        """The CUDA of NVIDIA's image that the text names."""
        self.variants = {found["variant"] for found in _find_all("variants", text)}
        """PyTorch's variants that a text names: ``cu128``."""
        self.torch_asked = _groups("torch_asked", text).get("version")
        """PyTorch as an installer is asked for it, with its build: ``2.6.0+cu121``."""
        self.torches = {numbers(found["version"])[:2] for found in _find_all("torches", text)}
        """The minor releases of PyTorch that a text names."""
        self.library_path = next(iter(_groups("path", text).values()), None)
        self.noexec = _groups("noexec", text).get("path")
        self.abi = next(iter(_groups("abi", text).values()), None)
        """``True`` or ``False``, as PyTorch prints whether it has the C++11 ABI."""
        said, self.memory_free, self.memory_total = _groups("memory", text), None, None
        if said:
            self.memory_total = int(said["total"]) << 20
            self.memory_free = self.memory_total - (int(said["used"]) << 20)
        self.npp = int(_groups("npp", text).get("major", 0)) or None
        """The CUDA major version of NPP's library that is asked for."""
        self.ffmpeg_last = int(_groups("ffmpeg_known", text).get("last", 0)) or None
        """The last major version of FFmpeg that TorchCodec says it knows."""
        self.memory_others = _groups("memory_others", text)
        self.memory_own, self.memory_whole = _gibibytes("memory_own", text), _gibibytes("memory_whole", text)
        """What the process that failed holds of the card's memory, and all of that, in GiB."""
        said = _groups("memory_bytes", text)
        if said:
            self.memory_free, self.memory_total = int(said["free"]), int(said["total"])

    def _cudnn(self, text):
        self.cudnn_built = next((row.group(1) for row in _CUDNN_BUILT.finditer(text)), None)
        """The cuDNN that a text says something here is built against."""
        for name, version in self.packages.items():
            if re.match(r"nvidia-cudnn-cu\d+$|libcudnn\d|cudnn$", name):
                self.cudnn_here.add(version)
        for name in ("cudnn", "debian", "found"):
            for found in _find_all(name, text):
                version = found["version"]
                as_number = len(version) > 3 and version.isdigit()
                self.cudnn_here.add(dotted(cudnn_tuple(version)) if as_number else version)
                self.cuda_majors |= {int(found["cuda"])} if "cuda" in found else set()
        packaged = [row.groups() for row in _CUDNN_PACKAGED.finditer(text) if row.group(1)]
        packaged = packaged if self.cudnn_built else []
        self.cudnn_packaged = (
            "libcudnn%s-cuda-%s" % (packaged[0][1][:1], packaged[0][0]) if packaged else None
        )
        """The distribution's package of the cuDNN that is here, where a text tells of another build."""
        if packaged:  # what it is built against is not what is here
            self.cudnn_here = self.cudnn_here - {self.cudnn_built} | {version for _, version in packaged}
            self.cuda_majors = self.cuda_majors or {int(cuda) for cuda, _ in packaged if cuda}

    def _visible(self, text):
        """Whether a variable keeps the cards, or CUDA's part of the driver, away."""
        listed = re.findall(r"(?m)^\s*GPU (\d+): |^\|\s+(\d+)\s+[A-Z][^|]*(?:On|Off|WDDM|TCC|N/A)\s*\|", text)
        listed = [int(number or other) for number, other in listed]
        self.cards_listed = bool(listed)
        found = re.search(r"CUDA_VISIBLE_DEVICES\W{1,6}(\d+)", text)
        beyond = found and listed and int(found.group(1)) > max(listed)
        none = re.search(r"CUDA_VISIBLE_DEVICES\W{1,4}(?:-1|[\"']{2}|\s*$|NoDevFiles)", text, re.M)
        self.hidden = bool(beyond or none)
        lists = " ".join(found["list"] for found in _find_all("capabilities", text))
        words = set(re.findall(r"\w+", lists.lower()))
        self.no_compute = "utility" in words and not words & {"compute", "all"}

    def cudnn_majors(self):
        """The major versions of cuDNN that the text says are here."""
        return {numbers(version)[0] for version in self.cudnn_here if numbers(version)}

    def as_document(self):
        names = "cards capability driver driver_cuda python packages library_path memory_free memory_total"
        found = {name: getattr(self, name) for name in names.split()}
        return dict(found, cudnn=sorted(self.cudnn_here), places=sorted(self.places))
