"""Facts of packages that do not fit what they are installed beside, or that no index has, out of a message:
for the lines of ``causes.ini``. Each takes a :class:`~remedies.Remedies` and returns None for
what is not known.
"""

import re

from .distributions import canonical, is_known_module, module_facts
from .framework_builds import card_within, serves, torch_index
from .tables import Releases, cuda_package, read_facts, read_patterns
from .toolkit_facts import TOOLKIT_FACTS, failing_words, torch_told
from .versions import dotted, may_meet, numbers, pins_of, satisfies, two_that_exclude

# Wheels that are compiled for one release of PyTorch, which their metadata pins.
_PINNED = {"vllm": "vllm", "sgl_kernel": "sgl-kernel", "xformers": "xformers", "lmcache": "lmcache"}
_OF_PYTORCH = ("torchvision", "torchaudio", "torchtext", "torchao", "xformers", "fbgemm-gpu")
"""Those that PyTorch's own indexes have."""
_BRING_TORCH = ("vllm", "lmdeploy")
"""Those whose requirements pin a PyTorch that comes with them."""
_OF_ONE_TORCH = _OF_PYTORCH + _BRING_TORCH + ("torchcodec", "sgl-kernel", "sglang-kernel")
# Those that pip compiles here, against the PyTorch that is here.
_COMPILED_HERE = (
    "transformer_engine_torch|grouped_gemm|gsplat|natten|causal_conv1d|mamba_ssm|torch_cluster|torch_scatter|"
    "torch_sparse|torch_spline_conv"
)
KERNEL_PACKAGES = (
    "sgl-kernel",
    "flash-attn",
    "xformers",
    "bitsandbytes",
    "causal-conv1d",
    "mamba-ssm",
    "vllm",
)
"""Packages with kernels of their own, by their names in ``printed-by``."""


def _conflict(remedies):
    return two_that_exclude(getattr(remedies.here, "requirements", ()))


def _with_its_pin(remedies):
    """The package that pins a version with that very version, where only the user wants another one."""
    name, pinned, other = _conflict(remedies) or (None, None, None)
    if not name or not pinned[0] or other[0] or "==" not in pinned[2] or not pinned[0][1]:
        return None
    (who, release), pin = pinned[0], pinned[2].replace(" ", "")
    if not numbers(release) or re.search(r"[<>]", release):
        return None
    variant = (pin + release).partition("+")[2]
    return ["%s==%s" % (who, release), name + pin] + torch_index(variant)


def _missed(remedies):
    """The packages that ``pip check`` misses, as it asks for them; None if two of them exclude each other."""
    rows = getattr(remedies.here, "missed_pins", ())
    told = [(name, re.sub(r",$", "", spec)) for name, spec in rows]
    if not told or any(a[0] == b[0] and not may_meet(a[1], b[1]) for a in told for b in told):
        return None
    return sorted({name + spec for name, spec in told if name not in ("torch", "pip")}) or None


def _override(remedies):
    """The requirement for uv in place of the pin of a library of NVIDIA's."""
    name, pinned, other = _conflict(remedies) or (None, None, None)
    ours = name and name.startswith("nvidia-")
    return name + other[2].replace(" ", "") if ours and pinned is not other else None


def _variant_of_companion(remedies):
    versions = [remedies.here.packages.get(name) or "" for name in ("torchvision", "torchaudio")]
    return next((version.partition("+")[2] for version in versions if "+cu" in version), "")


def _companions(remedies):
    """PyTorch with its companions, from the index of the CUDA that PyTorch has."""
    if "has no attribute" in failing_words(remedies):
        return None
    if not re.search(r"(?i)torchvision|torchaudio|_torch_sox|different CUDA", failing_words(remedies)):
        return None
    (release, variant), cuda = torch_told(remedies), numbers(remedies.detail.get("torch_cuda"))
    variant = "cu%d%d" % cuda[:2] if len(cuda) > 1 else variant or _variant_of_companion(remedies)
    variant = variant or remedies.index_named(release or None)
    return remedies.torch_and(("torchvision", "torchaudio"), release, variant)


def companions_apart(remedies, size=3, names=_OF_PYTORCH):
    """{package: requirement}: those in the text that are compiled for another PyTorch than the one in it, and
    the release that is compiled for that one. ``size``: the numbers of a release that have to differ.
    """
    (release, _), here, found = torch_told(remedies), remedies.here.packages, {}
    for name in names if len(numbers(release)) >= size else ():
        version = (here.get(name) or "").partition("+")[0]
        pair, row = remedies.releases.paired(name, release), Releases.wheels_of(name, version)
        asked = numbers(row[2][2:])[:size] if row and row[2].startswith("==") else ()
        if asked and asked == numbers(release)[:size]:
            continue
        alone = name == "torchaudio" and row and not row[2] and numbers(release) < numbers(row[0])
        if row and (pair or name in _BRING_TORCH) and (alone or not _serves_torch(row[2], release)):
            found[name] = pair
    return found


def all_apart(remedies):
    """The names of all packages that are for another minor release of PyTorch than the one in the text."""
    return list(companions_apart(remedies, 2, _OF_ONE_TORCH))


def _brings_torch(remedies):
    """A package that pins its PyTorch, in the release that is here, where another PyTorch is here."""
    names = list(companions_apart(remedies, 2, _BRING_TORCH))
    return names and "%s==%s" % (names[0], remedies.here.packages[names[0]].partition("+")[0])


def _kernels_apart(remedies):
    """SGLang's kernels for the PyTorch that is here."""
    return next(iter(companions_apart(remedies, 2, ("sgl-kernel", "sglang-kernel")).values()), None)


def _torchcodec_apart(remedies):
    return _torchcodec(remedies) if companions_apart(remedies, 2, ("torchcodec",)) else None


def _cupy_of_machine(remedies):
    """CuPy's wheel for the CUDA of the toolkit that is here: [the one to remove, the one to install]."""
    here = [name for name in getattr(remedies.here, "here", ()) if re.match(r"cupy-cuda\d\dx$", name)]
    nvcc = numbers(getattr(remedies.here, "nvcc", None))
    told = getattr(remedies.here, "toolkit", None) or getattr(remedies.here, "image_major", None)
    major = nvcc[0] if nvcc else told
    return "cupy-cuda%dx" % major if len(here) == 1 and major in (12, 13) else None


def _tensorrt_major(remedies):
    found = re.match(r"lib(?:nvinfer|nvonnxparser)\w*\.so\.(\d+)", str(remedies.detail.get("library")))
    return found.group(1) if found and int(found.group(1)) >= 10 else None  # PyPI has them from 10 on


def _cuda_told(remedies):
    """The CUDA major versions that the text is about, without the framework's own where it tells both."""
    named = set(getattr(remedies.here, "cuda_named", None) or ())
    built = {numbers(row["cuda"])[0] for row in remedies.rows if row["cuda"]}
    return named - built or named


def _pairs_that_fit(remedies):
    release, variant = torch_told(remedies)
    found = list(companions_apart(remedies).values())
    return found and found + torch_index(variant or remedies.variant_here(release))


def two_of_a_family(packages):
    """(the package that the others follow, one of another release) of the first family in a text of which
    two are apart; None if all of each are of one release. Their builds do not matter.
    """
    for head, rest in read_patterns()["families"].items():
        release = (packages.get(head) or "").partition("+")[0]
        for name in rest.split() if release else ():
            other = (packages.get(name) or release).partition("+")[0]
            if (
                numbers(other) != numbers(release)
                or other.partition("post")[2] != release.partition("post")[2]
            ):
                return head, name
    return None


def _family_member(remedies):
    """The package of a family that is apart, in the release of the one that the others follow."""
    head, name = two_of_a_family(remedies.here.packages) or (None, None)
    told = remedies.detail.get("cubin")
    if not name and not told:
        return None
    name = name or told.replace("_", "-")
    release = (remedies.here.packages.get(head) if head else remedies.detail.get("wanted")) or ""
    release, local = release.partition("+")[0], (remedies.here.packages.get(name) or "").partition("+")[2]
    variant = local or torch_told(remedies)[1] or {12: "cu129", 13: "cu130"}.get(remedies.cuda, "")
    index = read_patterns()["family-indexes"].get(name, "")
    if "{variant}" in index and not variant:
        return None
    return ["%s==%s" % (name, release)] + index.replace("{variant}", variant).split()


def _serves_torch(asked, release):
    """Whether a requirement on PyTorch, or a list of minor releases, has a release in it."""
    minor = dotted(numbers(release)[:2])
    return (
        satisfies(release, pins_of(asked))
        if re.match(r"[<>=~!]", asked)
        else not asked or minor in asked.split()
    )


def _pinned_wheel(remedies):
    """A package with PyTorch's interface in its wheels: where PyTorch's release is known and PyTorch's own
    indexes have the package, the release for it; else the one that is here, which brings its PyTorch.
    """
    words = re.findall(r"\w+", failing_words(remedies).lower())
    name = next((name for module, name in _PINNED.items() if module in words), None)
    if not name:
        return None
    release, variant = torch_told(remedies)
    if name == "sgl-kernel" and ("sglang-kernel" in remedies.here.packages or numbers(release) >= (2, 10)):
        name = "sglang-kernel"  # its name from 0.4 on
    pair, here = remedies.releases.paired(name, release), remedies.here.packages.get(name)
    if name in _OF_PYTORCH and pair:
        # PyTorch itself stays: its release and build are those of the text
        return ["--no-deps", pair] + torch_index(variant or remedies.variant_here(release))
    known = here and Releases.wheels_of(name, here.partition("+")[0])
    if not known and not pair and name != "lmcache":
        return None  # the newest would bring another PyTorch
    wanted = "%s==%s" % (name, here.partition("+")[0]) if known else pair or name
    other = name == "vllm" and variant and remedies.releases.pinned_torch(name, here) in (None, release)
    return [wanted] + (
        ["--extra-index-url"] + torch_index(variant)[1:] if other and torch_index(variant) else []
    )


_OF_TORCH_HERE = (
    "$(python3 -c \"from importlib.metadata import version as v; r, _, c = v('torch').partition('+'); "
    "a, b = map(int, r.split('.')[:2]); "
    "print(%s, *(['--index-url https://download.pytorch.org/whl/' + c] if c else []))\")"
)
_COMPANION_OF = {
    "torchvision": "'torchvision==0.%%d.*' %% min(b + 15 if a > 1 else b + 2 - (b > 2), %d)",
    "torchaudio": "'torchaudio==%%d.%%d.*' %% ((a, min(b, %d)) if a > 1 else (0, b + (b == 2)))",
}
"""The companions' releases by PyTorch's, up to the last one, which serves later ones, too:
https://github.com/pytorch/vision#installation
"""


def _companion_of(name):
    return _COMPANION_OF[name] % numbers(read_facts()["pairs"][name][-1][1])[1]


def _companions_here(remedies):
    """The companions that a line names, for the PyTorch that is here: what no text tells is asked of it."""
    words = failing_words(remedies)
    if torch_told(remedies)[0] or _ASKED_NAME.search(words):
        return None
    names = [name for name in _COMPANION_OF if re.search(name, words, re.IGNORECASE)]
    if not names and "different CUDA" in words:
        names = ["torchvision"]
    return _OF_TORCH_HERE % ", ".join(map(_companion_of, names)) if names else None


def _bringer_here(remedies):
    """vLLM or the like, of which a library does not load, where no text tells its release."""
    words = re.findall(r"\w+", failing_words(remedies).lower())
    name = next((name for name in _BRING_TORCH if name in words), None)
    return None if name in remedies.here.packages else name


def _of_torch_alone(remedies):
    """A package whose wheels pin one release of PyTorch each, where no text tells which one is here."""
    words = failing_words(remedies).lower()
    return "xformers" if "xformers" in words and not torch_told(remedies)[0] else None


_SOURCE_PATH = re.compile(r"(?<![\w.-])(?:/[\w.@+-]+){2,}\.so\b(?=[^\n]{0,20}undefined symbol)")


def _own_source(remedies):
    """Whether the library that does not load lies in no folder of installed packages: it is compiled where
    its source is.
    """
    found = _SOURCE_PATH.search(str(remedies.detail.get("line")))
    return bool(found) and not re.search(r"(?:site|dist)-packages|/usr/lib/|\.cache/", found.group(0))


def _torch_unread(remedies):
    """Whether a text tells neither card nor driver nor index, so that nothing chooses a build of PyTorch."""
    told = remedies.capability or remedies.driver_known() or getattr(remedies.here, "variants", ())
    return not (told or remedies.torch_release())


_ASKED_NAME = re.compile(
    r"cannot import name '(?P<name>\w+)' from '(?P<origin>\w[\w.]*)'|"
    r"module '(?P<module>\w[\w.]*)' has no attribute '(?P<attribute>\w+)'|"
    r"No module named '?(?P<path>\w[\w.]*)|(?P<np>`np)\.(?P<gone>\w+)` was removed in the NumPy|"
    r"unexpected keyword argument '(?P<argument>\w+)'"
)
_OF_PYTHON = (
    "transformers diffusers huggingface_hub tokenizers accelerate peft datasets trl timm optimum evaluate"
)
_PURE = set(_OF_PYTHON.split()) | {"sentence_transformers", "adapters", "setfit"}


def _asked_names(remedies):
    """(package, name) of which a line says that a release does not have it; (None, None) without one."""
    found = _ASKED_NAME.search(failing_words(remedies))
    said = found.groupdict() if found else {}
    if said.get("argument"):
        return "argument", said["argument"]
    if said.get("np"):
        return "numpy", said["gone"]
    origin = said.get("origin") or said.get("module") or said.get("path") or ""
    package, _, rest = origin.partition(".")
    return package or None, said.get("name") or said.get("attribute") or rest


def releases_with_name(remedies):
    """The releases of a package that have the name, the module or the argument that a line asks for."""
    package, name = _asked_names(remedies)
    asked, known = ("%s.%s" % (package, name)).lower(), read_patterns()["python-names"]
    above = asked.rpartition(".")[0]
    while asked not in known and "." in above:  # tensorflow.contrib.layers is gone with tensorflow.contrib
        asked, above = above if "<" in known.get(above, "") else asked, above.rpartition(".")[0]
    return known.get(asked) if package and name else None


def _named_requirement(remedies):
    """These releases, where pip may change the package alone: PyTorch is chosen by CUDA and the card, too."""
    found = releases_with_name(remedies)
    return None if found and found.startswith(("torch>", "torch<")) else found


def _before_removal(remedies):
    """The releases of a package before the one of which a line tells that it took a name away; None for what
    is chosen by CUDA, or with PyTorch.
    """
    told = remedies.detail
    name = (told.get("package") or told.get("remover") or "").lower().replace("_", "-")
    release = told.get("release") or told.get("since")
    alone = name.replace("-", "_") in _PURE | {"numpy", "setuptools"}
    return "%s<%s" % (name, release) if release and alone else None


def _intel_mac_release(remedies):
    """The last release for Intel Macs of the package that a line of an installer's is about."""
    name = str(remedies.detail.get("what")).partition("==")[0].lower()
    last = read_patterns()["intel-macs"].get(name)
    return "%s==%s" % (name, last) if last and getattr(remedies.here, "intel_mac", False) else None


def _wheel_of_what(remedies):
    """NVIDIA's wheel of the library, another one than cuBLAS, of which a line names two releases."""
    name = re.sub("^lib|lt$", "", (remedies.detail.get("what") or "cublas").lower())
    known = remedies.cuda in (12, 13) and name in ("cudnn", "nccl")
    return "nvidia-%s-cu%d" % (name, remedies.cuda) if known else None


def _asker_release(remedies):
    """The release from which on a package asks no longer for a name that is gone, unless another one asks."""
    found = read_patterns()["python-askers"].get(".".join(map(str, _asked_names(remedies))).lower())
    asking = (getattr(getattr(remedies.here, "apart", None), "asker", None) or "").replace("-", "_") or None
    known = asking not in _PURE | {None} or asking == _asked_names(remedies)[0]
    return None if found and asking and not known and not found.startswith(asking) else found


def _apart_here(remedies, *kinds):
    apart = getattr(remedies.here, "apart", None)
    return apart if apart and apart.kind in kinds else None


_BETWEEN_TWO = ("name", "module", "member", "argument", "size", "export")


def _changes_alone(remedies, name):
    """Whether pip may change a package alone: a known name, of what is built for no PyTorch and no CUDA."""
    bound = re.match("(?:%s)$" % read_patterns()["grammar"]["ml-package"], name or "torch")
    sure = name and (is_known_module(name.replace("-", "_")) or name in remedies.here.packages)
    return bool(sure) and not bound


def _upgrade_both(remedies):
    """Two packages, neither built for a PyTorch or a CUDA, one of which asks the other for what it lacks."""
    apart = _apart_here(remedies, *_BETWEEN_TWO)
    names = sorted((apart.asker or "", apart.asked or "")) if apart else []
    return names if apart and all(_changes_alone(remedies, name) for name in names) else None


def _asked_beside(remedies):
    """The package that lacks what a framework asks it for, beside that framework as it is here."""
    apart = _apart_here(remedies, *_BETWEEN_TWO)
    version = apart and apart.asker and apart.versions.get(apart.asker)
    if not version or not _changes_alone(remedies, apart.asked) or _changes_alone(remedies, apart.asker):
        return None
    return ["%s==%s" % (apart.asker, version.partition("+")[0]), apart.asked]


def _asker_named(remedies):
    apart = _apart_here(remedies, "python-gone", "python-new")
    known = apart and apart.asker and is_known_module(apart.asker.replace("-", "_"))
    return apart.asker if known and apart.asker != "torch" else None


def _asker_alone(remedies):
    """A package that asks Python for what this one has no longer."""
    apart = _apart_here(remedies, "python-gone")
    return apart.asker if apart and _changes_alone(remedies, apart.asker) else None


def _brought_back(remedies):
    """The distribution that brings back what Python took away."""
    apart = _apart_here(remedies, "python-gone")
    return read_patterns()["python-back"].get(apart.name.partition(".")[0].lower()) if apart else None


def _python_needed(remedies):
    """The last Python with what a package asks it for, or the first one."""
    apart = _apart_here(remedies, "python-gone", "python-new")
    release = numbers(apart.python) if apart and apart.python else None
    if not release:
        return None
    return dotted((release[0], release[1] - 1)) if apart.kind == "python-gone" else apart.python


def _itself_anew(remedies):
    """A package, not built for a PyTorch or a CUDA, that asks itself for what its files do not have."""
    apart = _apart_here(remedies, "itself")
    if not apart or not _changes_alone(remedies, apart.asked):
        return None
    version = apart.versions.get(apart.asked)
    return apart.asked + ("==" + version if version else "")


_COMPILED_AT_INSTALL = ("flash-attn", "causal-conv1d", "mamba-ssm")
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
    return name + " --no-build-isolation" * (name in _COMPILED_AT_INSTALL) if name else None


def distribution_of(module):
    """The distribution of a module that is not here; None if no table knows the module."""
    name, parts = (module or "").lower().replace("_", "-"), read_patterns()["grammar"]
    names = "|".join(parts[key] for key in ("ml-package", "other-package", "python-package"))
    known = re.match("(?:%s)$" % names, module or "") or module_facts(name)
    if not known or name in ("torch", "apex"):
        return None
    return (module_facts(name) or name) + " --no-build-isolation" * (name in _COMPILED_AT_INSTALL)


def _card_share(remedies):
    """The part of a card's memory that is free, a little less, as vLLM takes it: ``0.87``."""
    free, whole = (float(remedies.detail.get(name) or 0) for name in ("free", "whole"))
    return "%.2f" % (int(free / whole * 100 - 1) / 100) if 0 < free < whole else None


def _after(minor):
    """The minor release after one: ``1.25`` after ``1.24``."""
    found = numbers(minor)[:2]
    return "%d.%d" % (found[0], found[1] + 1) if len(found) == 2 else None


_GCC_OF = {26: 9, 27: 9, 28: 9, 29: 11, 30: 12, 31: 13, 32: 13, 33: 14, 34: 15}
"""{the last number of GLIBCXX_3.4.N: the GCC that brought it}:
https://gcc.gnu.org/onlinedocs/libstdc++/manual/abi.html
"""


_SYSTEM_LIBSTDCXX = re.compile(r"(?:^|[\s:])/(?:usr/)?lib\S*libstdc\+\+\.so\.6: version .GLIBCXX")
_DRIVER_PART = re.compile(
    r"^\s*(?:nvidia-(?:driver|dkms|kernel-common)|libnvidia-\w+)-(\d{3})\b", re.MULTILINE
)


def _libstdcxx(remedies):
    """conda's C++ run-time that has the version which a library asks for."""
    found = re.search(r"GLIBCXX_3\.4\.(\d+)", failing_words(remedies))
    gcc = _GCC_OF.get(int(found.group(1))) if found else None
    return gcc and "libstdcxx-ng>=%d" % gcc


def _compiled_anew(remedies):
    found = re.search(_COMPILED_HERE, failing_words(remedies).replace("-", "_"))
    return found and found.group(0).replace("_", "-")


def _torch_of_library(remedies):
    """The PyTorch of the same release for the CUDA of the library that a package asks for."""
    major, (release, _) = remedies.library_major(), torch_told(remedies)
    if not major or not release or remedies.here.cuda_majors == {major}:
        return None
    rows = [row for row in Releases().builds("torch", release) if numbers(row["cuda"])[:1] == (major,)]
    row = next((row for row in rows if row["variant"]), None)
    return remedies.torch_and_companions(release, row["variant"]) if row else None


def _dgl_page(remedies):
    """The address of DGL's page of wheels for the PyTorch and the CUDA that are here; None where it has none:
    its pages are for PyTorch 2.1 to 2.4 (https://www.dgl.ai/pages/start.html).
    """
    if not re.search(r"\bdgl\b", failing_words(remedies), re.IGNORECASE):
        return None
    release = numbers(remedies.detail.get("for") or torch_told(remedies)[0])[:2]
    variant = "cu%d%d" % remedies.cuda_of_build()[:2] if len(remedies.cuda_of_build()) > 1 else None
    if not (2, 1) <= release <= (2, 4) or variant not in ("cu118", "cu121", "cu124"):
        return None
    return "https://data.dgl.ai/wheels/torch-%s/%s/repo.html" % (dotted(release), variant)


def _torch_of_toolkit(remedies):
    """A PyTorch of the toolkit's CUDA major version that has code for the card: the release that is here,
    with what is compiled for it, if there is one, else the newest.
    """
    toolkit, release = numbers(remedies.detail.get("toolkit"))[:1], torch_told(remedies)[0]
    for row in Releases().builds("torch", release) if release and toolkit else ():
        fits = remedies.capability is None or serves(row, remedies.capability)
        if row["variant"] and numbers(row["cuda"])[:1] == toolkit and fits:
            return remedies.torch_and_companions(release, row["variant"])
    rows = [row for row in Releases().builds("torch", None) if row["variant"]]
    rows = [row for row in rows if toolkit and numbers(row["cuda"])[:1] == toolkit]
    minor = numbers(remedies.detail.get("toolkit"))[:2]
    # another minor version is only warned of: the same one is worth no release of long ago
    for row in sorted(
        rows, key=lambda row: (numbers(row["cuda"])[:2], numbers(row["latest"]) >= (2, 9)) != (minor, True)
    ):
        if remedies.capability is None or serves(row, remedies.capability):
            return ["torch==" + row["latest"]] + torch_index(row["variant"])
    return None


def _published_variants(remedies):
    """The CUDA variants of the release that was asked for: those that the installer lists, else the known."""
    listed, release = remedies.detail.get("listed") or "", _asked_release(remedies)[0]
    printed = re.findall(r"\b%s(?:\.\d+)?\+(cu\d+)\b" % re.escape(release), listed)
    python, known = numbers(remedies.here.python), []
    for row in Releases().builds("torch", release):
        first, last = map(numbers, row["python"])
        if row["variant"] and (not python or first <= python <= last):
            known.append(row["variant"])
    return printed or known


def _asked_release(remedies):
    release, _, local = (remedies.detail.get("wanted") or "").partition("+")
    return re.sub(r"\.\*?$", "", release), local


def _published(remedies):
    """PyTorch of the release that was asked for, from the index that has it: of its own variant, else of
    another one.
    """
    release, local = _asked_release(remedies)
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
    wanted, known = numbers(_asked_release(remedies)[0]), sorted(map(numbers, listed))
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
        _asked_release(remedies)[0],
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
    release, name = _asked_release(remedies)[0], remedies.detail.get("name") or ""
    name = {"tensorflow-gpu": "tensorflow"}.get(name, name)
    rows = Releases().builds(name, release) if numbers(release) else []
    return [tuple(map(numbers, row["python"])) for row in rows]


def _python_range(remedies):
    ranges = _python_ranges(remedies)
    return "%s to %s" % (dotted(min(ranges)[0]), dotted(max(last for _, last in ranges))) if ranges else None


def _release_asked_for(remedies):
    release, local = _asked_release(remedies)
    return ["%s==%s" % (remedies.detail.get("name"), release)] + torch_index(local)


def _listed_nearest(remedies):
    """The release of the same minor version, or else of the same major one, that an installer lists: the
    next one above the one asked for, else the newest.
    """
    name, wanted = remedies.detail.get("name") or "", numbers(_asked_release(remedies)[0])
    listed = re.findall(r"[\s,](\d[\d.]*)(?=[,)\s]|$)", remedies.detail.get("listed") or "")
    for size in (2, 1) if wanted and name not in ("torch", "torchvision", "torchaudio") else ():
        same = sorted((numbers(text), text) for text in listed if numbers(text)[:size] == wanted[:size])
        same = [row for row in same if row[0] < _STUB_SINCE.get(name, (1 << 30,))]
        above = [text for number, text in same if number > wanted]
        if same:
            return "%s==%s" % (name, above[0] if above else same[-1][1])
    return None


def _flash_attn_wheel(remedies):
    found = re.match(r"flash_attn-(\d[\d.]*)[+-]", remedies.detail.get("what") or "")
    return "flash-attn==" + found.group(1) if found else None


def _torchcodec(remedies):
    """The TorchCodec for the PyTorch here, from the same index:
    https://github.com/pytorch/torchcodec#installing-torchcodec
    """
    told, variant = torch_told(remedies)
    release = read_patterns()["torchcodec"].get(dotted(numbers(told)[:2]))
    return release and ["torchcodec==%s.*" % release] + torch_index(variant)


def _nvpl(remedies):
    """NVPL's wheels for a library of it: LAPACK stands on BLAS."""
    found = re.match(r"libnvpl_(blas|lapack|fft|rand|scalapack|sparse)_", str(remedies.detail.get("library")))
    part = found and found.group(1)
    return ["nvpl-blas", "nvpl-lapack"] if part in ("blas", "lapack") else part and ["nvpl-" + part]


def _cutlass_dsl(remedies):
    """CUTLASS's language with the library of the CUDA here, in the release that the text names."""
    version, major = remedies.here.packages.get("nvidia-cutlass-dsl"), remedies.cuda
    extra = "[cu13]" if major != 12 else ""
    return "nvidia-cutlass-dsl" + extra + ("==" + version if version else "")


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


def _torch_asked_index(remedies):
    """PyTorch with the variant that a resolver names."""
    found = re.search(r"torch[=<>~]{1,2}(\d+\.\d+\.\d+)\+(cu\d+)", failing_words(remedies))
    release = found and "torch==%s+%s" % found.groups()
    return found and [release, "--extra-index-url"] + torch_index(found.group(2))[1:]


def _torch_of_image(remedies):
    """PyTorch with its companions, for the CUDA that the text says its image or toolkit is of."""
    variant = getattr(remedies.here, "image_cuda", None)
    known = {row["variant"] for row in Releases().builds("torch", None)}
    return ["torch", "torchvision", "torchaudio"] + torch_index(variant) if variant in known else None


def _tensorflow_whole(remedies):
    """The TensorFlow that is here, with its libraries; None for an unknown release, and before 2.16, whose
    extra asks for packages that no index has: https://github.com/tensorflow/tensorflow/issues/66517
    """
    version = (remedies.here.packages.get("tensorflow") or "").partition("+")[0]
    whole = len(numbers(version)) > 2 and numbers(version) >= (2, 16)
    return "tensorflow[and-cuda]==" + version if whole else None


def _served_torch(remedies):
    """A PyTorch that the driver serves, where the one here is not served; the same release first."""
    build, served = remedies.cuda_of_build(), remedies.driver_cuda()
    ptx = getattr(remedies.here, "ptx_told", False)
    if (
        remedies.framework != "torch"
        or build
        and served
        and (build <= served if ptx else build[:1] <= served[:1])
    ):
        return None
    return remedies.known("nearest")


def _cublas_wheel(remedies):
    """cuBLAS of a release after the one that PyTorch pins."""
    cuda = remedies.cuda or remedies.library_major()
    return cuda_package("cublas", cuda) if cuda in (12, 13) else None


_LLAMA = "https://github.com/ggml-org/llama.cpp/releases/download/%s/llama-%s-bin-win-cuda-%s-x64.zip"
_LLAMA_CUDA = "12.4"
"""The CUDA of llama.cpp's archives for Windows beside those of CUDA 13:
https://github.com/ggml-org/llama.cpp/blob/master/.github/workflows/release.yml
"""


def _llama_archive(remedies):
    build = getattr(remedies.here, "llama_build", None)
    return _LLAMA % (build, build, _LLAMA_CUDA) if build and remedies.driver_serves((12, 0)) else None


def _jax_whole(remedies):
    """JAX with its plug-in and libraries, in the release that is here."""
    packages = remedies.here.packages
    version = (packages.get("jax") or packages.get("jaxlib") or "").partition("+")[0]
    found = re.search(r"cuda(1[2-3])", failing_words(remedies))
    major = int(found.group(1)) if found else remedies.cuda
    major = (
        major
        if major in (12, 13)
        else 13
        if remedies.driver_known() and remedies.driver_serves((13, 0))
        else 12
    )
    return "jax[cuda%d]%s" % (major, "==" + version if numbers(version) >= (0, 4, 22) else "")


def _companion_of_torch(remedies):
    """The companion of PyTorch that asks for a library of another CUDA, for the PyTorch here, from its
    index.
    """
    (release, variant), words = (
        torch_told(remedies),
        failing_words(remedies) + " ".join(remedies.here.printed_by),
    )
    name = next((name for name in _OF_PYTORCH if re.search(name.replace("-", "[-_]"), words)), None)
    pair = remedies.releases.paired(name, release) if name and remedies.library_major() else None
    index = torch_index(variant or remedies.variant_here(release))
    return [pair] + index if pair else None


def _cudart_asked_by(remedies):
    """The package, compiled for the PyTorch here, that asks for CUDA's runtime of another major version."""
    words = failing_words(remedies) + " ".join(remedies.here.printed_by)
    names = [name for name in KERNEL_PACKAGES if re.search(name.replace("-", "[-_]"), words)]
    asks = str(remedies.detail.get("library")).startswith("libcudart")
    return names[0] if asks and remedies.library_major() and names and "vllm" not in names else None


def _variants_differ(remedies, name):
    """Whether a companion is of another CUDA than PyTorch, by their variants."""
    own, other = ((remedies.here.packages.get(one) or "").partition("+")[2] for one in ("torch", name))
    return bool(own and other and own != other)


def _first_release_told(remedies):
    """A package of nothing but Python from the release on that has a name, by the text's own words."""
    name, release = getattr(remedies.here, "first_release", None) or (None, None)
    return "%s>=%s" % (name, release) if name and name.replace("-", "_") in _PURE else None


def _owner_of(call):
    """The library with a function, by the start of its name: ``libcublas`` for ``cublasGemmEx``."""
    rows = read_patterns()["symbol-owners"].items()
    return next((name for name, start in rows if re.match(start, call or "")), None)


def _link_package(remedies):
    """NVIDIA's package with the file that a linker asks for, for the nvcc that is here."""
    found = re.search(r"-l(\w+)", failing_words(remedies))
    return found and read_patterns()["link-packages"].get(found.group(1).lower())


def _any_torch_of_library(remedies):
    """The newest PyTorch of the CUDA of the library that a package asks for, where no text names PyTorch's
    release.
    """
    major, used = remedies.library_major(), getattr(remedies.here, "says_torch", False)
    if not major or not used or torch_told(remedies)[0] or not remedies.driver_serves((major, 0)):
        return None
    if _cudart_asked_by(remedies):  # it is compiled for one release of PyTorch, that of the text
        return None
    rows = [row for row in Releases().builds("torch", None) if numbers(row["cuda"])[:1] == (major,)]
    row = next((row for row in rows if row["variant"]), None)
    return ["torch", "torchvision", "torchaudio"] + torch_index(row["variant"]) if row else None


def _kernel_package(remedies):
    """A package with kernels of its own whose message it is, where the card is none that is being dropped."""
    if remedies.capability and remedies.capability < (8, 0):
        return None
    words = failing_words(remedies) + " " + (getattr(remedies.here, "importing", None) or "")
    names = [name for name in KERNEL_PACKAGES if re.search(name.replace("-", "[-_]"), words)]
    others = [name for name in KERNEL_PACKAGES if name in remedies.here.printed_by]
    return names[0] if names else others[0] if len(others) == 1 and others != ["vllm"] else None


def _release_for_card(remedies):
    """The oldest release of the framework's newest builds with code for the card, where the one here has
    none.
    """
    extras = {"onnxruntime": "onnxruntime-gpu[cuda,cudnn]", "jax": "jax[cuda%s]"}
    card = remedies.capability and remedies.capability[:2]
    if remedies.framework not in extras or not card or any(serves(row, card) for row in remedies.rows):
        return None
    for row in remedies._rows():
        own = ["sm_%d%d" % (card[0], minor) for minor in range(card[1] + 1)]
        if set(own) & set(row["archs"] or ()) and remedies.driver_serves(numbers(row["cuda"])):
            name = extras[remedies.framework]
            name = name % numbers(row["cuda"])[0] if "%s" in name else name
            if remedies.framework == "onnxruntime" and not row["extra"]:
                name = "onnxruntime-gpu"
            newest = remedies._rows()[0]
            if serves(newest, card):
                return "%s>=%s" % (name, numbers_of_first(row))
            last = numbers(row["latest"])  # newer ones have dropped the card
            return "%s>=%s,<%d.%d" % (name, numbers_of_first(row), last[0], last[1] + 1)
    return None


def numbers_of_first(row):
    """The oldest release that a row of builds stands for."""
    return re.split(r"[=<>]+", row["versions"].split(",")[0])[-1]


def _release_with_wheels(remedies):
    """A package from the first release on that has wheels for this Python and processor, after the one
    without.
    """
    what = (remedies.detail.get("what") or "").partition("==")
    name, wanted = (remedies.detail.get("name") or what[0]).lower(), _asked_release(remedies)[0] or what[2]
    rows = read_facts()["pairs"].get(name, ())
    for row in rows if numbers(wanted) else ():
        if numbers(row[0]) > numbers(wanted) and remedies.has_wheels(row):
            return "%s>=%s" % (name, row[0])
    return None


def _torch_by_driver(remedies):
    """The PyTorch that is here, or the newest, with its companions, for an installer that reads the driver
    itself.
    """
    release = torch_told(remedies)[0] if remedies.framework == "torch" else ""
    used = "torch" in set(remedies.here.packages) | set(remedies.here.printed_by)
    if remedies.driver_known() or not (used or getattr(remedies.here, "says_torch", False)):
        return None
    if "vllm" in remedies.here.printed_by:  # which pins its PyTorch
        version = (remedies.here.packages.get("vllm") or "").partition("+")[0]
        return "vllm" + ("==" + version if numbers(version) else "")
    if len(numbers(release)) < 3:
        release = ""
    names = [name for name in ("torchvision", "torchaudio") if name in remedies.here.packages or not release]
    return remedies.torch_and(names, release, None)[: len(names) + 1]


def _torch_before_2_9(remedies):
    """PyTorch 2.8 with its companions, of the build that is here."""
    release, variant = torch_told(remedies)
    names = [name for name in ("torchvision",) if name in remedies.here.packages or not release]
    own = [row for row in Releases().builds("torch", "2.8.0") if variant and row["variant"] == variant]
    return remedies.torch_and([*names, "torchaudio"], "2.8.0", variant if own else None)


def _python_told(remedies):
    """The Python that a text is about, by the library that it links, too."""
    found = re.search(
        r"python3(\d\d)\b", str(remedies.detail.get("line")) + str(remedies.detail.get("matched"))
    )
    return remedies.here.python or (found and "3." + found.group(1))


_UBUNTU_OF = ((35, "22.04"), (39, "24.04"))
"""(the minor version of its glibc, the release): https://documentation.ubuntu.com/project/release-team/list-of-releases/"""


def _glibc_asked(remedies):
    """The minor version of the newest glibc 2 that a message asks for: 34; None if it names none."""
    asked = re.findall(r"GLIBC_2\.(\d\d)\b", failing_words(remedies))
    return max(map(int, asked)) if asked else None


def _newer_system(remedies):
    """An image with the C library that a message asks for; None where it asks for that of no known one."""
    asked = _glibc_asked(remedies)
    release = next((name for minor, name in _UBUNTU_OF if asked and asked <= minor), None)
    return release and "ubuntu:" + release


def _torch_of_old_libc(remedies):
    """The last PyTorch whose wheels are for glibc 2.17, where a message asks for a glibc up to 2.28:
    https://github.com/pytorch/pytorch/issues/123649
    """
    asked = _glibc_asked(remedies)
    python = numbers(remedies.here.python) or (3, 9)
    fits = (
        remedies.framework == "torch" and (3, 9) <= python[:2] <= (3, 13) and remedies.driver_serves((12, 4))
    )
    away = {"windows", "aarch64", "jetson", "macos"} & remedies.here.places
    return "torch==2.6.0" if fits and asked and asked <= 28 and not away else None


_TORCH_RAISES = ("RuntimeError: CUDA error:", "torch.AcceleratorError: CUDA error:")


def _torch_by_card(remedies):
    """Whether a text of PyTorch's own names neither card nor build: the card decides on the index then."""
    here = remedies.here
    others = (
        here.torch_extension if getattr(here, "torch_raised", False) else getattr(here, "other_kernels", 1)
    )
    told = getattr(here, "says_torch", False) or str(remedies.detail.get("line")).startswith(_TORCH_RAISES)
    away = {"windows", "jetson", "aarch64", "macos"} & here.places or getattr(
        here, "kernels_elsewhere", False
    )
    elsewhere = others or away or set(here.printed_by) & set(KERNEL_PACKAGES) or here.packages.get("torch")
    return bool(remedies.framework == "torch" and told and not remedies.capability and not elsewhere)


def _torch_for_card(remedies):
    """PyTorch with its companions from the index of a CUDA with code for the card, where the text names
    PyTorch without its build, and no other package with kernels of its own.
    """
    here = remedies.here
    raised = getattr(here, "torch_raised", False)
    others = here.torch_extension if raised else getattr(here, "other_kernels", True)
    told = getattr(here, "says_torch", False) and not others
    if not told or "+" in (here.packages.get("torch") or "") or set(here.printed_by) & set(KERNEL_PACKAGES):
        return None
    for row in Releases().builds("torch", None) if remedies.capability else ():
        cuda, capability = numbers(row["cuda"]), remedies.capability
        old = capability >= (10, 0) and not card_within(cuda, capability)  # what it has is PTX
        if row["variant"] and remedies.driver_serves(cuda) and serves(row, capability) and not old:
            return ["torch", "torchvision", "torchaudio"] + torch_index(row["variant"])
    return None


def _nvrtc_wheel(remedies):
    if len(remedies.here.cuda_majors) > 1:
        return None  # one library more would not make them one CUDA
    told = re.search(r"nvrtc-builtins\D{1,12}(1[1-3])", failing_words(remedies))
    major = int(told.group(1)) if told else remedies.cuda
    return cuda_package("cuda-nvrtc", major) if major in (11, 12, 13) else None


def _torch_by_variant(remedies):
    """PyTorch for CUDA 12.8, whose builds serve Blackwell, where no text names the card and the build here is
    of an older CUDA 12.
    """
    release, wanted = torch_told(remedies)[0], "cu128"
    if remedies.capability or {"jetson", "aarch64"} & remedies.here.places:
        return None
    rows = [row for row in Releases().builds("torch", None) if row["variant"] == wanted]
    own = [row for row in Releases().builds("torch", release) if row["variant"] == wanted] if release else []
    if not rows or not remedies.driver_serves(numbers(rows[0]["cuda"])):
        return None
    return remedies.torch_and_companions(release if own else rows[0]["latest"], wanted)


def _torch_for_driver(remedies):
    """PyTorch with its companions from the index of the newest CUDA that the driver serves, where no text
    names its release.
    """
    here = remedies.here
    if not getattr(here, "says_torch", False) or not remedies.driver_known() or "torch" in here.packages:
        return None
    for row in Releases().builds("torch", None):
        card = remedies.capability is None or serves(row, remedies.capability)
        if row["variant"] and card and remedies.driver_serves(numbers(row["cuda"])):
            return ["torch", "torchvision", "torchaudio"] + torch_index(row["variant"])
    return None


def _kernels_of_sglang(remedies):
    """SGLang's kernels for the CUDA that is here, from its own index: https://docs.sglang.io/whl/cu130"""
    words, asked = " ".join(remedies.here.printed_by) + failing_words(remedies), remedies.library_major()
    here = remedies.here.cuda_majors - {asked}
    major = min(here) if here else {12: 13, 13: 12}.get(asked)
    if not asked or not re.search(r"(?i)sgl(?:ang)?[-_]kernel", words) or major not in (12, 13):
        return None
    version = remedies.here.packages.get("sgl-kernel")
    index = "https://docs.sglang.io/whl/cu%s" % {12: 129, 13: 130}[major]
    return ["sgl-kernel" + ("==" + version if version else ""), "--index-url", index]


def _vllm(remedies):
    """vLLM in the release that is here, for a library of another CUDA."""
    told = remedies.library_major() or remedies.known("wants-the-CUDA-here")
    failed = getattr(remedies.here, "importing", None)  # whose module fails, not whoever imports it
    if "vllm" not in remedies.here.printed_by or not told or failed not in (None, "vllm"):
        return None
    version = remedies.here.packages.get("vllm")
    return "vllm" + ("==" + version.partition("+")[0] if version else "")


def _conda_library(remedies):
    """conda-forge's name of the library that a text is about."""
    name = (remedies.detail.get("what") or "").lower()
    return name if name.startswith("lib") or name in ("cudnn", "nccl") else "lib" + name if name else None


def _asked_library(remedies):
    """The library that a line asks for, in whichever place of it."""
    return next(
        (remedies.detail[key] for key in ("library", "first", "later") if remedies.detail.get(key)), None
    )


def _vllm_of_torch(remedies):
    """vLLM's own wheel for the CUDA of the PyTorch here: https://docs.vllm.ai/en/latest/getting_started/installation/gpu/"""
    version = (remedies.here.packages.get("vllm") or "").partition("+")[0]
    variant = (remedies.here.packages.get("torch") or "").partition("+")[2]
    if not version or variant not in ("cu129", "cu130"):
        return None
    return "vllm==%s --extra-index-url https://wheels.vllm.ai/%s/%s --torch-backend=%s" % (
        version,
        version,
        variant,
        variant,
    )


def _module_wheel(remedies):
    """The wheel with a module ``nvidia.cublas``; those of CUDA 13 are all in ``nvidia.cu13``, bar a few."""
    stem, major = (remedies.detail.get("module") or "").replace("_", "-"), remedies.cuda or 12
    apart = stem in ("cudnn", "nccl", "cusparselt", "nvshmem")
    return cuda_package(stem, major) if stem and (major < 13 or apart) else None


def _torchcodec_index(remedies):
    """TorchCodec's index for the other CUDA than that of the library that it asks for."""
    words = "torchcodec" in remedies.here.printed_by or "torchcodec" in failing_words(remedies)
    asked = remedies.library_major()
    return torch_index({13: "cu126", 12: "cu130"}.get(asked)) if words and asked else None


def _index_that_is(remedies):
    """PyTorch from the newest index below one that does not exist."""
    asked = getattr(remedies.here, "index_asked", None) or ""
    known = {row["variant"] for row in Releases().builds("torch", None)} - {None}
    if not re.match(r"cu\d{3}$", asked) or asked in known:
        return None
    below = [name for name in known if re.match(r"cu\d{3}$", name) and name < asked]
    # torchaudio is not on the newest ones: of the companions those alone that a text names
    names = ["torch"] + sorted(getattr(remedies.here, "companions", ()), reverse=True)
    return names + torch_index(max(below)) if below else None


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


def _triton_windows(remedies):
    """The release line of triton-windows that goes with the PyTorch here:
    https://github.com/woct0rdho/triton-windows#3-pytorch
    """
    torch = dotted(numbers(remedies.here.packages.get("torch"))[:2])
    wanted = numbers(read_patterns()["triton"].get(torch, ""))[:2]
    return "triton-windows>=%s,<%d.%d" % (dotted(wanted), wanted[0], wanted[1] + 1) if wanted else None


def _index_for_card(remedies):
    """The index of PyTorch whose builds have code for a card that other builds leave out."""
    card = remedies.capability
    if not card or card < (5, 0):
        return None
    return "cu128" if card >= (10, 0) else "cu126" if card < (7, 5) else None


def _index_of_audio(remedies):
    """PyTorch from the last index with torchaudio: https://docs.pytorch.org/audio/main/installation.html"""
    asked = getattr(remedies.here, "index_asked", None) or ""
    later = re.match(r"cu\d{3}$", asked) and asked > "cu130"
    names = ["torch", "torchvision", "torchaudio"]
    return names + torch_index("cu130") if later and remedies.detail.get("name") == "torchaudio" else None


def _nvjitlink_floor(remedies):
    """nvJitLink of the version whose symbol is asked for, where no wheel of PyTorch's asks."""
    major, minor = remedies.detail.get("major"), remedies.detail.get("minor")
    known = major and minor and "torch" not in str(remedies.detail.get("line"))
    return "%s>=%s.%s" % (cuda_package("nvjitlink", int(major)), major, minor) if known else None


def _package_built(remedies):
    """The package that pip compiles: as the message names it, else the one of the line that asked for it,
    else the one that pip took up last.
    """
    asked = remedies.detail.get("package") or getattr(remedies.here, "asked_build", None)
    return asked or getattr(remedies.here, "collected", None)


_LAST_MINORS = {11: "11.8", 12: "12.9", 13: "13.0"}
"""A minor release of each major version of CUDA whose libraries serve all programs of that major version:
https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
"""


def _needed_release(remedies):
    """``bitsandbytes>=0.46.1``: the package and the oldest release that the line asks for, or None."""
    for name, floor in (
        ("needed", "floor"),
        ("asks", "least"),
        ("who", "at"),
        ("told", "since"),
        ("named", "above"),
    ):
        package, version = remedies.detail.get(name), remedies.detail.get(floor)
        ceiling = re.escape(version or "") + r"\s+or\s+(?:less|older|lower|earlier|below)\b"
        if version and re.search(ceiling, failing_words(remedies)):
            return None
        if re.match(r"[A-Za-z][\w-]*$", package or "") and numbers(version):
            name = package.lower().replace("_", "-")
            return "%s>=%s" % (module_facts(name) or name, version)
    return None


def _npp_major(remedies):
    """The CUDA major version of the NPP that is asked for, by its own name, else of the packages here."""
    return getattr(remedies.here, "npp", None) or remedies.cuda


def _npp_wheel(remedies):
    major = _npp_major(remedies)
    return cuda_package("npp", major) + ("~=13.0.0" if major == 13 else "") if major in (12, 13) else None


def _ffmpeg_range(remedies):
    """The releases of FFmpeg that TorchCodec knows: as its message has them, else by its own release, else by
    PyTorch's: https://github.com/meta-pytorch/torchcodec/blob/main/README.md
    """
    last, here = getattr(remedies.here, "ffmpeg_last", None), remedies.here.packages
    release = here.get("torchcodec") or read_patterns()["torchcodec"].get(
        dotted(numbers(torch_told(remedies)[0])[:2])
    )
    floors = read_patterns()["torchcodec-ffmpeg"].items()
    known = [int(newest) for floor, newest in floors if () < numbers(floor) <= numbers(release)]
    last = last or max(known, default=None)
    return "ffmpeg<%d" % (last + 1) if last else None


PACKAGE_FACTS = {
    **TOOLKIT_FACTS,
    "needed-release": _needed_release,
    "libraries-of-asked": lambda r: _LAST_MINORS.get(r.library_major()),
    "libraries-of-asked-name": lambda r: _LAST_MINORS.get(r.library_major(), "").replace(".", "-") or None,
    "agreed": _with_its_pin,
    "override": _override,
    "asked-instead": _missed,
    "uv": lambda r: getattr(r.here, "uv", False),
    "companions": _companions,
    "pinned-wheel": _pinned_wheel,
    "before-removal": _before_removal,
    "cpu-index-set": lambda r: getattr(r.here, "cpu_index_set", False),
    "intel-mac-release": _intel_mac_release,
    "ctranslate2-alone": lambda r: (
        set(getattr(r.here, "named", ())) == {"ctranslate2"} and not r.here.cudnn_majors()
    ),
    "index-of-audio": _index_of_audio,
    "index-of-later-pythons": _index_of_later_pythons,
    "last-python": _last_python,
    "cudnn-past": lambda r: str(r.cudnn_again()).endswith("==9.20.0.48") and bool(r.cuda),
    "torch-alone": lambda r: set(getattr(r.here, "named", ())) <= {"torch"} and not r.here.places,
    "cudnn-by-name": lambda r: "ImportError" in str(r.detail.get("line")),
    "cusparselt-told": lambda r: "libcusparseLt.so" in str(r.detail.get("matched")),
    "named-requirement": _named_requirement,
    "upgrade-both": _upgrade_both,
    "asked-beside": _asked_beside,
    "asker-named": _asker_named,
    "asker-alone": _asker_alone,
    "brought-back": _brought_back,
    "python-needed": _python_needed,
    "asker-release": _asker_release,
    "itself-anew": _itself_anew,
    "required": _required,
    "told-line": _told_line,
    "plainly-asked": _plainly_asked,
    "broken": lambda r: r.detail.get("broken"),
    "card-share": _card_share,
    "triton-kernels-here": lambda r: getattr(r.here, "triton_kernels_here", False),
    "vllm-read": lambda r: "vllm" in r.here.packages,
    "after-most": lambda r: _after(r.detail.get("most")),
    "cuda-home": lambda r: r.detail.get("home"),
    "driver-parts": lambda r: next(iter(_DRIVER_PART.findall(failing_words(r))), None),
    "standard": lambda r: r.detail.get("standard") or "20",
    "target": lambda r: r.detail.get("target"),
    "cutlass-parts-told": lambda r: any("cutlass-dsl-libs" in name for name in r.here.packages),
    "gencode": lambda r: r.detail.get("gencode"),
    "libstdcxx": _libstdcxx,
    "system-libstdcxx": lambda r: _SYSTEM_LIBSTDCXX.search(failing_words(r)) is not None,
    "in-environment": lambda r: re.search(r"/envs/|conda", failing_words(r)) is not None,
    "companions-here": _companions_here,
    "bringer-here": _bringer_here,
    "of-torch-alone": _of_torch_alone,
    "own-source": _own_source,
    "torch-unread": _torch_unread,
    "compiled-anew": _compiled_anew,
    "cudart-asked-by": _cudart_asked_by,
    "cudart-folder": lambda r: "cu13" if r.library_major() == 13 else "cuda_runtime",
    "nvtoolsext-asked": lambda r: "nvToolsExt" in failing_words(r),
    "link-package": _link_package,
    "link-flag": lambda r: (_owner_of(r.detail.get("call")) or "").replace("lib", "-l", 1) or None,
    "preload-stem": lambda r: _owner_of(r.detail.get("call")),
    "preload-short": lambda r: (_owner_of(r.detail.get("call")) or "")[3:] or None,
    "good-branch": lambda r: r.detail.get("good"),
    "torchaudio-of-other-cuda": lambda r: _variants_differ(r, "torchaudio") or None,
    "torchvision-and-audio": lambda r: (
        ["torchaudio"] + r.FACTS["torchvision"](r) if r.FACTS["torchvision"](r) else None
    ),
    "told-to-work": lambda r: getattr(r.here, "told_to_work", None) or None,
    "first-release-told": _first_release_told,
    "module-told": lambda r: r.detail.get("module"),
    "taken-by-transformers": lambda r: "aimv2" in failing_words(r),
    "header-in-wheels": lambda r: (
        ".h" in str(r.detail.get("what")) and 13 in getattr(r.here, "cuda_majors", ()) or None
    ),
    "cutlass-dsl-told": lambda r: getattr(r.here, "cutlass_dsl", False),
    "rapids": lambda r: {"cudf", "cuml", "cugraph"} & set(r.here.printed_by) != set() or None,
    "required-index": lambda r: torch_index(r.detail.get("variant")) or None,
    "torch-of-library": _torch_of_library,
    "torch-of-toolkit": _torch_of_toolkit,
    "published": _published,
    "published-variants": lambda r: ", ".join(sorted(set(_published_variants(r)))) or None,
    "torchcodec": _torchcodec,
    "nvpl": _nvpl,
    "lost-pin": lambda r: r.detail.get("pin") and "%s==%s" % (r.detail["what"], r.detail["pin"]),
    "driver-branch": lambda r: r.driver_branch(),
    "speaks-of-driver": lambda r: getattr(r.here, "speaks_of_driver", False),
    "served-torch": _served_torch,
    "torch-by-driver": _torch_by_driver,
    "pairs-that-fit": _pairs_that_fit,
    "family-member": _family_member,
    "torch-told": lambda r: torch_told(r)[0] or None,
    "build-cuda": lambda r: dotted(r.cuda_of_build()) or None,
    "build-cuda-name": lambda r: "-".join(map(str, r.cuda_of_build())) or None,
    "older-major": lambda r: bool(r.driver_cuda() and r.driver_cuda()[:1] < r.cuda_wanted()[:1]),
    "served-cuda-12": lambda r: dotted(r.driver_cuda()) if r.driver_cuda()[:1] == (12,) else None,
    "served-cuda": lambda r: dotted(r.driver_cuda()) or None,
    "llama-archive": _llama_archive,
    "llama-cuda": lambda r: _LLAMA_CUDA if _llama_archive(r) else None,
    "jax-whole": _jax_whole,
    "jax-told": lambda r: bool({"jax", "jaxlib"} & set(r.here.packages)),
    "tensorflow-whole": _tensorflow_whole,
    "blackwell-told": lambda r: bool(r.capability and r.capability[0] == 12),
    "cublas-wheel": _cublas_wheel,
    "torch-released": lambda r: (
        "torch==" + r.here.packages["torch"].partition("+")[0]
        if len(numbers(r.here.packages.get("torch"))) > 2
        else None
    ),
    "nccl-told": lambda r: getattr(r.here, "nccl_told", False) or None,
    "of-vllm": lambda r: "vllm" in r.here.printed_by,
    "of-comfyui": lambda r: getattr(r.here, "comfyui", False),
    "companion-of-torch": _companion_of_torch,
    "any-torch-of-library": _any_torch_of_library,
    "kernel-package": _kernel_package,
    "compiled-here": lambda r: _kernel_package(r) in (*_COMPILED_AT_INSTALL, "xformers"),
    "release-for-card": _release_for_card,
    "release-with-wheels": _release_with_wheels,
    "no-npp": lambda r: getattr(r.here, "no_npp", False),
    "npp-wheel": _npp_wheel,
    "npp-folder": lambda r: "cu13" if _npp_major(r) == 13 else "npp",
    "ffmpeg-range": _ffmpeg_range,
    "uv-exact": lambda r: (re.match(r"==\s*(\d[\d.]*)$", r.detail.get("asked") or "") or (0, None))[1],
    "install-tool": lambda r: "uv pip" if getattr(r.here, "uv", False) else "pip",
    "cutlass-dsl": _cutlass_dsl,
    "torch-asked-index": _torch_asked_index,
    "published-pair": _published_pair,
    "published-cuda": lambda r: ", ".join(sorted(_variants_of_asked(r))) or None,
    "cuda-told-12": lambda r: _cuda_told(r) == {12},
    "cuda-told-13": lambda r: _cuda_told(r) == {13},
    "torch-of-image": _torch_of_image,
    "cubin": lambda r: r.detail.get("cubin"),
    "instead": lambda r: r.detail.get("instead"),
    "package": _package_built,
    "torch-for-card": _torch_for_card,
    "nvrtc": _nvrtc_wheel,
    "cutlass-told": lambda r: "cutlass" in failing_words(r),
    "cutlass-parts": lambda r: "nvidia-cutlass-dsl-libs-cu%d" % r.cuda if r.cuda in (12, 13) else None,
    "bitsandbytes-told": lambda r: "bitsandbytes" in r.here.printed_by,
    "cupy-wheel": lambda r: (
        "cupy-cuda%dx" % r.cuda if "cupy" in r.here.named and r.cuda in (12, 13) else None
    ),
    "brings-torch": _brings_torch,
    "kernels-apart": _kernels_apart,
    "torchcodec-apart": _torchcodec_apart,
    "cupy-of-machine": _cupy_of_machine,
    "cupy-ctk": lambda r: next(
        (name for name in getattr(r.here, "here", ()) if re.match(r"cupy-cuda1[23]x$", name)), None
    ),
    "conda-torch": lambda r: "pytorch-gpu" + ("=%s" % r.torch_release() if r.torch_release() else ""),
    "conda-told": lambda r: getattr(r.here, "conda_told", False),
    "llama-python": lambda r: getattr(r.here, "llama_python", False),
    "tensorrt-major": _tensorrt_major,
    "quack-told": lambda r: "quack-kernels" in getattr(r.here, "here", ()) or "quack" in failing_words(r),
    "nvcc-below-build": lambda r: () < numbers(getattr(r.here, "nvcc", None)) < r.cuda_of_build(),
    "cudnn-header": lambda r: "cudnn.h" in failing_words(r),
    "cuda-or-asked": lambda r: r.cuda or '$(python3 -c "import torch; print(torch.version.cuda[:2])")',
    "torch-by-variant": _torch_by_variant,
    "variant-before-12.8": lambda r: () < r.cuda_of_build() < (12, 8),
    "flash-attn-told": lambda r: re.search(r"flash[-_]attn", failing_words(r)) is not None,
    "torch-for-driver": _torch_for_driver,
    "kernels-of-sglang": _kernels_of_sglang,
    "dgl-page": _dgl_page,
    "vllm-here": _vllm,
    "vllm-of-torch": _vllm_of_torch,
    "other-nixl": lambda r: {13: "nixl-cu12", 12: "nixl-cu13"}.get(r.library_major(_asked_library(r))),
    "cupy-of-image": lambda r: next(
        ("cupy-cuda%sx" % r.detail[key] for key in ("image", "base") if r.detail.get(key)), None
    ),
    "cupy-of-other-image": lambda r: next(
        ("cupy-cuda%sx" % r.detail[key] for key in ("cupy", "wheel") if r.detail.get(key)), None
    ),
    "conda-library": _conda_library,
    "torch-named": lambda r: "torch" in getattr(r.here, "named", ()),
    # https://docs.nvidia.com/cuda/parallel-thread-execution/#release-notes: each PTX 8 is of a CUDA 12
    "ptx-of-cuda-12": lambda r: numbers(r.detail.get("wanted"))[:1] == (8,),
    "cuda-13-told": lambda r: 13 in getattr(r.here, "cuda_named", ()),
    "card-is-new": lambda r: bool(r.capability) and r.capability >= (10, 0),
    "torch-by-card": _torch_by_card,
    "ctranslate2-told": lambda r: (
        r.known("ctranslate2-here")
        or bool({"ctranslate2", "faster-whisper"} & {*getattr(r.here, "named", ()), *r.here.printed_by})
    ),
    "ggml-failed": lambda r: getattr(r.here, "ggml_failed", False),
    "flash-attn-package": lambda r: "flash" in str(r.known("kernel-package")),
    "torch-before-2.9": _torch_before_2_9,
    "asks-cudnn-8": lambda r: str(r.detail.get("major")) == "8" and r.framework != "tensorflow",
    "asks-cudnn-9": lambda r: str(r.detail.get("major")) == "9",
    "cudnn-8-of": lambda r: r.cuda if r.cuda in (11, 12) else 12,
    "ort-asks-13": lambda r: str(r.detail.get("cuda")) == "13",
    "nvrtc-by-name": lambda r: r.known("toolkit-wheel") if "nvrtc" in str(r.detail.get("library")) else None,
    "nvrtc-folder": lambda r: "cu13" if r.library_major() == 13 else "cuda_nvrtc",
    "python-minor": lambda r: dict(enumerate(numbers(_python_told(r)))).get(1),
    "python-digits": lambda r: "".join(map(str, numbers(_python_told(r))[:2])),
    "python-folder": lambda r: ".\\python_embeded" if "comfy-portable" in r.here.places else "PYTHON_FOLDER",
    "newer-system": _newer_system,
    "torch-of-old-libc": _torch_of_old_libc,
    "python-told": lambda r: r.here.python is not None or r.framework is not None,
    "cupy-major": lambda r: r.cuda if r.cuda in (12, 13) else 12,
    "tensorflow-serves-card": lambda r: bool(r.capability) and r.capability < (10, 0),
    "paddle-for-card": lambda r: "cu126" if (r.capability or ()) >= (7, 0) else "cu118",
    "cupy-unread": lambda r: not any(name.startswith("cupy") for name in getattr(r.here, "here", ())),
    "kernels-elsewhere": lambda r: (
        getattr(r.here, "kernels_elsewhere", False) and "torch" not in r.here.packages
    ),
    "newer-torch-told": lambda r: (releases_with_name(r) or "").startswith("torch>"),
    "kubernetes": lambda r: getattr(r.here, "kubernetes", False),
    "podman": lambda r: getattr(r.here, "podman", False),
    "smi-in-container": lambda r: getattr(r.here, "smi_in_container", False),
    "good-release": lambda r: r.detail.get("good"),
    "module-wheel": _module_wheel,
    "asked-minor": lambda r: dotted(numbers(r.detail.get("asked"))[:2]) or None,
    "asker-before": lambda r: (
        "%s<%s" % (canonical(r.detail["asker"]), r.detail["release"]) if r.detail.get("asker") else None
    ),
    "conda-part": lambda r: r.detail.get("part"),
    "conda-release": lambda r: r.detail.get("conda"),
    "uuid": lambda r: r.detail.get("uuid"),
    "kernel-module": lambda r: r.detail.get("module"),
    "pinned": lambda r: r.detail.get("pinned"),
    "lone-index": lambda r: r.detail.get("lone"),
    "bad-driver-branch": lambda r: read_patterns()["drivers-known-bad"].get(r.here.driver or ""),
    "uvx-told": lambda r: getattr(r.here, "uvx_told", False),
    "capability-digits": lambda r: r.detail.get("have"),
    "fla-bad": lambda r: getattr(r.here, "fla_bad", False),
    "entrypoint-off": lambda r: getattr(r.here, "entrypoint_off", False),
    "lmcache-told": lambda r: getattr(r.here, "lmcache_told", False),
    "tei-tag": lambda r: (
        read_patterns()["tei-tags"].get(str(r.detail.get("have"))) if r.detail.get("have") != "80" else None
    ),
    "variant-toolkit": lambda r: next(
        ("%s-%s" % (name[2:4], name[4:]) for name in getattr(r.here, "variants", ())), None
    ),
    "branch-told": lambda r: r.detail.get("branch"),
    "files-told": lambda r: bool(r.owners() or r.detail.get("stem")),
    "python-of-uv": _python_of_uv,
    "other-python": _other_python,
    "python-range": _python_range,
    "asked": _release_asked_for,
    "listed-nearest": _listed_nearest,
    "flash-attn-wheel": _flash_attn_wheel,
    "rebooted": lambda r: getattr(r.here, "rebooted", False),
    "bare-nvrtc": lambda r: any(
        name in str(r.detail.get("line")) for name in ("_get_nvrtc_library", "libnvrtc.so:")
    ),
    "triton-windows": _triton_windows,
    "python-of-index": _python_of_index,
    "wheel-asked": lambda r: (
        r.detail.get("what") and str(r.detail["what"]).endswith(".whl") and r.detail["what"]
    ),
    "wheel-python": _wheel_python,
    "index-for-card": _index_for_card,
    "newer-branch": lambda r: next(
        (read_patterns()["toolkit-driver"].get(name) for name in getattr(r.here, "cuda_releases", ())), None
    ),
    "bare-nvml": lambda r: (
        "libnvidia-ml.so" in str(r.detail.get("matched")) or r.detail.get("requirement") == "the name of NVML"
    ),
    "stale-container": lambda r: getattr(r.here, "stale_container", False),
    "gpus-given": lambda r: getattr(r.here, "gpus_given", False),
    "nodes-told": lambda r: getattr(r.here, "nodes_told", False),
    "other-wheel": _wheel_of_what,
    "vllm-image": lambda r: getattr(r.here, "vllm_image", False),
    "other-graphics": lambda r: getattr(r.here, "other_graphics", False),
    "open-branch": lambda r: next(iter(numbers(r.here.driver)), 580) if r.here.driver else 580,
    "ngc": lambda r: getattr(r.here, "ngc", False),
    "torchcodec-index": _torchcodec_index,
    "torchcodec-told": lambda r: "torchcodec" in failing_words(r),
    "index-that-is": _index_that_is,
    "index-asked": lambda r: getattr(r.here, "index_asked", None),
    "nvjitlink-floor": _nvjitlink_floor,
    "module-folder": lambda r: r.detail.get("module"),
    "fabric-driver": lambda r: r.detail.get("host"),
    "fabric-absent": lambda r: getattr(r.here, "fabric_absent", False),
    "driver": lambda r: r.here.driver if len(numbers(r.here.driver)) > 1 else None,
    "fabric-branch": lambda r: (r.detail.get("host") or r.here.driver or "").partition(".")[0] or None,
}
"""By the names in ``causes.ini``."""
