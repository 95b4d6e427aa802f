"""Facts of packages that do not fit what they are installed beside, or that no index has, out of a message:
for the lines of ``causes.ini``. Each takes a :class:`~remedies.Remedies` and returns None for
what is not known.
"""

import re

from .framework_builds import card_within, serves, torch_index
from .tables import Releases, cuda_package, read_patterns
from .versions import dotted, numbers

# Wheels that are compiled for one release of PyTorch, which their metadata pins.
_PINNED = {"vllm": "vllm", "sgl_kernel": "sgl-kernel", "xformers": "xformers", "lmcache": "lmcache"}
# Those that pip compiles here, against the PyTorch that is here.
_COMPILED_HERE = "causal_conv1d|mamba_ssm|torch_cluster|torch_scatter|torch_sparse|torch_spline_conv"
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
_NVCC_PARTS = ("cuda-nvcc", "cuda-crt", "nvvm", "cuda-cccl")
# (capability, code): cards from it on run this code by its PTX, which an nvcc one generation older makes.
_OLDER_CODE = (((10, 0), "9.0"), ((8, 6), "8.0"), ((8, 0), "7.5"), ((7, 5), "7.0"))


def two_that_exclude(requirements):
    """(package, statement, statement) of the first two that no version satisfies, one that pins a version
    first; None if all may hold together. Statements are those of ``TextFacts.requirements``.
    """
    for index, one in enumerate(requirements):
        for other in requirements[:index]:
            if one[1] == other[1] and one[0] != other[0] and not _may_meet(one[2], other[2]):
                pinned = one if "==" in one[2] and one[0] else other
                return (one[1], pinned, other if pinned is one else one)
    return None


def _may_meet(one, other):
    parts = re.findall(r"(\^|[<>=!~]+)\s?(\d[\w.*+!-]*)", one + "," + other)
    bounds = [(operator, text.partition("+")[0]) for operator, text in parts]
    tried = [numbers(text.rstrip(".*x")) for _, text in bounds]
    tried += [version + (1,) for version in tried] + [(0,)]
    return any(all(_satisfies(version, *bound) for bound in bounds) for version in tried)


def _satisfies(version, operator, text):
    exact, wild = numbers(text.rstrip(".*x")), text[-1] in "*x"
    size = max(len(version), len(exact))
    here, bound = (v + (0,) * (size - len(v)) for v in (version, exact))
    if operator in ("==", "===", "!=", "="):
        same = version[: len(exact)] == exact if wild else here == bound
        return same is (operator != "!=")
    if operator in ("~=", "^"):
        fixed = len(exact) - 1 if operator == "~=" else 1
        return here >= bound and here[:fixed] == bound[:fixed]
    return {">": here > bound, ">=": here >= bound, "<": here < bound}.get(operator, here <= bound)


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
    """What ``pip check`` misses, as it is asked for; None if two of these exclude each other."""
    rows = getattr(remedies.here, "missed_pins", ())
    told = [(name, re.sub(r",$", "", spec)) for name, spec in rows]
    if not told or any(a[0] == b[0] and not _may_meet(a[1], b[1]) for a in told for b in told):
        return None
    return sorted({name + spec for name, spec in told if name not in ("torch", "pip")}) or None


def _override(remedies):
    """What uv is to take in place of the pin of a library of NVIDIA's."""
    name, pinned, other = _conflict(remedies) or (None, None, None)
    ours = name and name.startswith("nvidia-")
    return name + other[2].replace(" ", "") if ours and pinned is not other else None


def _failing_words(remedies):
    return "%s %s" % (remedies.detail.get("matched") or "", remedies.detail.get("line") or "")


def _torch_told(remedies):
    """(release, variant) of the PyTorch that the text names: ("2.9.0", "cu128"); ("", "") without one."""
    release, _, variant = (remedies.here.packages.get("torch") or "").partition("+")
    return release, variant


def _variant_of_companion(remedies):
    versions = [remedies.here.packages.get(name) or "" for name in ("torchvision", "torchaudio")]
    return next((version.partition("+")[2] for version in versions if "+cu" in version), "")


def _companions(remedies):
    """PyTorch with its companions, from the index of the CUDA that PyTorch has."""
    if "has no attribute" in _failing_words(remedies):
        return None
    if not re.search(r"(?i)torchvision|torchaudio|_torch_sox|different CUDA", _failing_words(remedies)):
        return None
    (release, variant), cuda = _torch_told(remedies), numbers(remedies.detail.get("torch_cuda"))
    variant = "cu%d%d" % cuda[:2] if len(cuda) > 1 else variant or _variant_of_companion(remedies)
    return ["torch==" + release if release else "torch", "torchvision", "torchaudio"] + torch_index(variant)


def _pinned_wheel(remedies):
    words = re.findall(r"\w+", _failing_words(remedies).lower())
    name = next((name for module, name in _PINNED.items() if module in words), None)
    if not name or "windows" not in remedies.here.places:
        return name
    # the PyTorch of the default index has no CUDA on Windows
    index = torch_index(_torch_told(remedies)[1])
    return [name] + index if name == "xformers" and index else None


def _compiled_anew(remedies):
    found = re.search(_COMPILED_HERE, _failing_words(remedies).replace("-", "_"))
    return found and found.group(0).replace("_", "-")


def _torch_of_library(remedies):
    """The PyTorch of the same release for the CUDA of the library that a package asks for."""
    major, (release, _) = remedies.library_major(), _torch_told(remedies)
    if not major or not release or remedies.here.cuda_majors == {major}:
        return None
    rows = [row for row in Releases().builds("torch", release) if numbers(row["cuda"])[:1] == (major,)]
    row = next((row for row in rows if row["variant"]), None)
    return remedies.torch_and_companions(release, row["variant"]) if row else None


def _torch_of_toolkit(remedies):
    """The newest PyTorch of the toolkit's CUDA major version that has code for the card."""
    toolkit = numbers(remedies.detail.get("toolkit"))[:1]
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
    variants = _published_variants(remedies)
    if not variants:
        return None
    local = local if local in variants else max(variants, key=lambda name: numbers(name[2:]))
    full = r"\b(%s(?:\.\d+)?)\+%s\b" % (re.escape(release), local)
    found = re.search(full, remedies.detail.get("listed") or "")
    any_patch = "*" in remedies.detail["wanted"] and not found
    release = found.group(1) if found else release + ".*" * any_patch
    return ["torch==" + release] + torch_index(local)


def _other_python(remedies):
    """A Python for which the release that was asked for has wheels, where this one is none of these."""
    here, ranges = numbers(remedies.here.python), _python_ranges(remedies)
    if not here or not ranges or any(first <= here <= last for first, last in ranges):
        return None
    first, last = min(first for first, _ in ranges), max(last for _, last in ranges)
    return dotted(last if here > last else first)


def _python_ranges(remedies):
    release, _ = _asked_release(remedies)
    rows = Releases().builds(remedies.detail.get("name") or "", release) if numbers(release) else []
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
        above = [text for number, text in same if number > wanted]
        if same:
            return "%s==%s" % (name, above[0] if above else same[-1][1])
    return None


def _flash_attn_wheel(remedies):
    found = re.match(r"flash_attn-(\d[\d.]*)[+-]", remedies.detail.get("what") or "")
    return "flash-attn==" + found.group(1) if found else None


def _one_toolkit(remedies):
    """The wheels of nvcc and of what it includes, at the minor version of PyTorch's headers of CUDA. No wheel
    before CUDA 13 holds nvcc.
    """
    version = numbers(remedies.here.packages.get("nvidia-cuda-runtime"))[:2]
    of_torch = re.match(r"cu(\d\d)(\d)$", _torch_told(remedies)[1])
    minor = version or (of_torch and tuple(map(int, of_torch.groups())))
    if not minor or minor < (13,):
        return None
    return ["nvidia-%s~=%d.%d.0" % ((name,) + minor) for name in _NVCC_PARTS]


def _torchcodec(remedies):
    """The TorchCodec for the PyTorch here, from the same index:
    https://github.com/pytorch/torchcodec#installing-torchcodec
    """
    told, variant = _torch_told(remedies)
    release = read_patterns()["torchcodec"].get(dotted(numbers(told)[:2]))
    return release and ["torchcodec==%s.*" % release] + torch_index(variant)


def _nvpl(remedies):
    """NVPL's wheels for a library of it: LAPACK stands on BLAS."""
    found = re.match(r"libnvpl_(blas|lapack|fft|rand|scalapack|sparse)_", str(remedies.detail.get("library")))
    part = found and found.group(1)
    return ["nvpl-blas", "nvpl-lapack"] if part in ("blas", "lapack") else part and ["nvpl-" + part]


def _code_for(remedies):
    """The compute capability to compile for, with PTX, by an nvcc that does not know the one asked for."""
    if not remedies.detail.get("arch"):
        return None
    wanted = divmod(int(remedies.detail["arch"]), 10)
    if remedies.capability and (7, 5) <= remedies.capability < wanted:
        return dotted(remedies.capability[:2])  # the card that is here is older than the one asked for
    if wanted < (7, 5):  # dropped: the nvcc is new
        served = remedies.capability and remedies.capability >= (7, 5)
        return dotted(remedies.capability[:2]) if served else "7.5"
    return next(code for first, code in _OLDER_CODE if wanted >= first)


def _told_old(remedies):
    """Whether the line itself says that the driver is older than what was made for it."""
    said = (
        r"(?i)PTX|driver version is insufficient|unsatisfied condition|__cuda|too old|Unsupported \.version"
    )
    return re.search(said, remedies.detail.get("matched") or "") is not None


def _torch_for_card(remedies):
    """PyTorch with its companions from the index of a CUDA with code for the card, where the text names
    PyTorch without its build, and no other package with kernels of its own.
    """
    here = remedies.here
    told = getattr(here, "says_torch", False) and not getattr(here, "other_kernels", True)
    if not told or "+" in (here.packages.get("torch") or "") or set(here.printed_by) & set(KERNEL_PACKAGES):
        return None
    for row in Releases().builds("torch", None) if remedies.capability else ():
        cuda, capability = numbers(row["cuda"]), remedies.capability
        old = capability >= (10, 0) and not card_within(cuda, capability)  # what it has is PTX
        if row["variant"] and remedies.driver_serves(cuda) and serves(row, capability) and not old:
            return ["torch", "torchvision", "torchaudio"] + torch_index(row["variant"])
    return None


def _nvrtc_wheel(remedies):
    told = re.search(r"nvrtc-builtins\D{1,12}(1[1-3])", _failing_words(remedies))
    major = int(told.group(1)) if told else remedies.cuda
    return cuda_package("cuda-nvrtc", major) if major in (11, 12, 13) else None


def _kernels_of_sglang(remedies):
    """SGLang's kernels for the CUDA that is here, from its own index: https://docs.sglang.io/whl/cu130"""
    words, asked = " ".join(remedies.here.printed_by) + _failing_words(remedies), remedies.library_major()
    here = remedies.here.cuda_majors - {asked}
    major = min(here) if here else {12: 13, 13: 12}.get(asked)
    if not asked or not re.search(r"(?i)sgl(?:ang)?[-_]kernel", words) or major not in (12, 13):
        return None
    version = remedies.here.packages.get("sgl-kernel")
    index = "https://docs.sglang.io/whl/cu%s" % {12: 129, 13: 130}[major]
    return ["sgl-kernel" + ("==" + version if version else ""), "--index-url", index]


def _vllm(remedies):
    """vLLM in the release that is here, for a library of another CUDA."""
    if "vllm" not in remedies.here.printed_by or not remedies.library_major():
        return None
    version = remedies.here.packages.get("vllm")
    return "vllm" + ("==" + version.partition("+")[0] if version else "")


def _module_wheel(remedies):
    """The wheel with a module ``nvidia.cublas``; those of CUDA 13 are all in ``nvidia.cu13``, bar a few."""
    stem, major = (remedies.detail.get("module") or "").replace("_", "-"), remedies.cuda or 12
    apart = stem in ("cudnn", "nccl", "cusparselt", "nvshmem")
    return cuda_package(stem, major) if stem and (major < 13 or apart) else None


def _glibc_part(remedies):
    """The library of glibc before 2.34 with a function that is not found."""
    part = remedies.detail.get("part")
    if not part:
        return None
    if part.startswith("dl"):
        return "libdl.so.2"
    return "libpthread.so.0" if re.match("pthread|sem", part) else "librt.so.1"


def _torchcodec_index(remedies):
    """TorchCodec's index for the other CUDA than that of the library that it asks for."""
    words = "torchcodec" in remedies.here.printed_by or "torchcodec" in _failing_words(remedies)
    asked = remedies.library_major()
    return torch_index({13: "cu126", 12: "cu130"}.get(asked)) if words and asked else None


def _math_functions(remedies):
    """CUDA's header, as the compiler names it."""
    found = re.search(r"(/usr/local/cuda\S*?/math_functions\.h)", str(remedies.detail.get("line")))
    return found.group(1) if found else "/usr/local/cuda/include/crt/math_functions.h"


def _index_that_is(remedies):
    """PyTorch from the newest index below one that does not exist."""
    asked = getattr(remedies.here, "index_asked", None) or ""
    known = {row["variant"] for row in Releases().builds("torch", None)} - {None}
    if not re.match(r"cu\d{3}$", asked) or asked in known:
        return None
    below = [name for name in known if re.match(r"cu\d{3}$", name) and name < asked]
    return ["torch", "torchvision", "torchaudio"] + torch_index(max(below)) if below else None


def _nvjitlink_floor(remedies):
    """nvJitLink of the version whose symbol is asked for, where no wheel of PyTorch's asks."""
    major, minor = remedies.detail.get("major"), remedies.detail.get("minor")
    known = major and minor and "torch" not in str(remedies.detail.get("line"))
    return "%s>=%s.%s" % (cuda_package("nvjitlink", int(major)), major, minor) if known else None


def _package_built(remedies):
    """The package that pip compiles: as the message names it, else the one of the line that asked for it."""
    return remedies.detail.get("package") or getattr(remedies.here, "asked_build", None)


_DISTRIBUTIONS = {"flashinfer": "flashinfer-python"}
"""Names of packages by the names that messages give them."""


def _needed_release(remedies):
    """``bitsandbytes>=0.46.1``: the package and the oldest release that the line asks for, or None."""
    for name, floor in (("needed", "floor"), ("asks", "least"), ("who", "at")):
        package, version = remedies.detail.get(name), remedies.detail.get(floor)
        ceiling = re.escape(version or "") + r"\s+or\s+(?:less|older|lower|earlier|below)\b"
        if version and re.search(ceiling, _failing_words(remedies)):
            return None
        if re.match(r"[A-Za-z][\w-]*$", package or "") and numbers(version):
            name = package.lower().replace("_", "-")
            return "%s>=%s" % (_DISTRIBUTIONS.get(name, name), version)
    return None


PACKAGE_FACTS = {
    "needed-release": _needed_release,
    "told-old": _told_old,
    "agreed": _with_its_pin,
    "override": _override,
    "asked-instead": _missed,
    "uv": lambda r: getattr(r.here, "uv", False),
    "companions": _companions,
    "pinned-wheel": _pinned_wheel,
    "compiled-anew": _compiled_anew,
    "required-index": lambda r: torch_index(r.detail.get("variant")) or None,
    "torch-of-library": _torch_of_library,
    "torch-of-toolkit": _torch_of_toolkit,
    "published": _published,
    "published-variants": lambda r: ", ".join(sorted(set(_published_variants(r)))) or None,
    "one-toolkit": _one_toolkit,
    "torchcodec": _torchcodec,
    "nvpl": _nvpl,
    "lost-pin": lambda r: r.detail.get("pin") and "%s==%s" % (r.detail["what"], r.detail["pin"]),
    "code-for": _code_for,
    "code-digits": lambda r: (_code_for(r) or "").replace(".", "") or None,
    "cubin": lambda r: r.detail.get("cubin"),
    "cubin-wanted": lambda r: r.detail.get("cubin") and r.detail.get("wanted"),
    "instead": lambda r: r.detail.get("instead"),
    "package": _package_built,
    "torch-for-card": _torch_for_card,
    "nvrtc": _nvrtc_wheel,
    "kernels-of-sglang": _kernels_of_sglang,
    "vllm-here": _vllm,
    "module-wheel": _module_wheel,
    "legacy-branch": lambda r: r.detail.get("branch"),
    "files-told": lambda r: bool(r.owners() or r.detail.get("stem")),
    "other-python": _other_python,
    "python-range": _python_range,
    "asked": _release_asked_for,
    "listed-nearest": _listed_nearest,
    "flash-attn-wheel": _flash_attn_wheel,
    "served-branch": lambda r: 580 if not r.capability or r.capability >= (5, 0) else None,
    "rebooted": lambda r: getattr(r.here, "rebooted", False),
    "ngc": lambda r: getattr(r.here, "ngc", False),
    "glibc-part": _glibc_part,
    "torchcodec-index": _torchcodec_index,
    "torchcodec-told": lambda r: "torchcodec" in _failing_words(r),
    "math-functions": _math_functions,
    "index-that-is": _index_that_is,
    "index-asked": lambda r: getattr(r.here, "index_asked", None),
    "nvjitlink-floor": _nvjitlink_floor,
    "module-folder": lambda r: r.detail.get("module"),
    "last-compiler": lambda r: r.detail.get("last"),
    "fabric-driver": lambda r: r.detail.get("host"),
    "fabric-branch": lambda r: (r.detail.get("host") or "").partition(".")[0] or None,
}
"""By the names in ``causes.ini``."""
