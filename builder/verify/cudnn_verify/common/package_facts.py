"""Facts of packages that do not fit what they are installed beside, and all facts by their names.

For the lines of ``causes.ini``: each takes a :class:`~remedies.Remedies`; None is for what is not known.
"""

import re

from .conflicts import CONFLICT_FACTS
from .distributions import canonical, module_facts
from .framework_builds import serves, torch_index
from .known_bad import known_bad_mend
from .own_kernels import KERNEL_EXTENSIONS, extension_told
from .requirement_facts import COMPILED_AT_INSTALL, PURE, REQUIREMENT_FACTS, asked_release
from .tables import cuda_package, read_facts, read_patterns
from .toolkit_facts import TOOLKIT_FACTS, failing_words, text_of, torch_told
from .torch_facts import BRING_TORCH, OF_ONE_TORCH, TORCH_FACTS, companions_apart
from .two_copies import one_opencv
from .versions import dotted, numbers, pins_of, satisfies
from .wheel_tags import faiss_of_today, without_cuda_here


def all_apart(remedies):
    """The names of all packages that are for another minor release of PyTorch than the one in the text."""
    return list(companions_apart(remedies, 2, OF_ONE_TORCH))


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
    if getattr(
        remedies.here, "builds_told", None
    ):  # beside the build that the text tells of: that of PyTorch
        named = named or set(numbers(getattr(remedies.here, "built_cuda", None))[:1])
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


def _bringer_here(remedies):
    """vLLM or the like, of which a library does not load, where no text tells its release."""
    words = re.findall(r"\w+", failing_words(remedies).lower())
    name = next((name for name in BRING_TORCH if name in words), None)
    return None if name in remedies.here.packages else name


_SOURCE_PATH = re.compile(r"(?<![\w.-])(?:/[\w.@+-]+){2,}\.so\b(?=[^\n]{0,20}undefined symbol)")


def _own_source(remedies):
    """Whether the library that does not load lies in no folder of installed packages: it is compiled where
    its source is.
    """
    found = _SOURCE_PATH.search(str(remedies.detail.get("line")))
    return bool(found) and not re.search(r"(?:site|dist)-packages|/usr/lib/|\.cache/", found.group(0))


def _intel_mac_release(remedies):
    """The last release for Intel Macs of the package that a line of an installer's is about."""
    name = str(remedies.detail.get("what")).partition("==")[0].lower()
    last = read_patterns()["intel-macs"].get(name)
    return "%s==%s" % (name, last) if last and getattr(remedies.here, "intel_mac", False) else None


def distribution_of(module):
    """The distribution of a module that is not here; None if no table knows the module."""
    name, parts = (module or "").lower().replace("_", "-"), read_patterns()["grammar"]
    names = "|".join(parts[key] for key in ("ml-package", "other-package", "python-package"))
    known = re.match("(?:%s)$" % names, module or "") or module_facts(name)
    if not known or name in ("torch", "apex"):
        return None
    return (module_facts(name) or name) + " --no-build-isolation" * (name in COMPILED_AT_INSTALL)


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
    found = re.search("|".join(KERNEL_EXTENSIONS), failing_words(remedies).replace("_", "-"))
    return found and found.group(0)


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


def _bad_release(remedies, name):
    """(What stands in for a package's release that is here, why), if that is on record as bad; else None."""
    version = (remedies.here.packages.get(name) or "").partition("+")[0]
    rows = (row for row in read_facts()["bad_releases"] if row[0] == name)
    found = (row[2:] for row in rows if version and satisfies(version, pins_of(row[1])))
    return next(found, None)


def _tensorflow_whole(remedies):
    """The TensorFlow that is here, with its libraries, or what stands in for one on record as bad; None for
    an unknown release, and before 2.16, whose extra asks for packages that no index has:
    https://github.com/tensorflow/tensorflow/issues/66517
    """
    version = (remedies.here.packages.get("tensorflow") or "").partition("+")[0]
    bad = _bad_release(remedies, "tensorflow")
    if bad is not None:
        return bad[0]
    exact = version if len(numbers(version)) > 2 else version + ".*"
    return "tensorflow[and-cuda]==" + exact if numbers(version) >= (2, 16) else None


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


def _first_release_told(remedies):
    """A package of nothing but Python from the release on that has a name, by the text's own words."""
    name, release = getattr(remedies.here, "first_release", None) or (None, None)
    return "%s>=%s" % (name, release) if name and name.replace("-", "_") in PURE else None


def _owner_of(call):
    """The library with a function, by the start of its name: ``libcublas`` for ``cublasGemmEx``."""
    rows = read_patterns()["symbol-owners"].items()
    return next((name for name, start in rows if re.match(start, call or "")), None)


def _link_package(remedies):
    """NVIDIA's package with the file that a linker asks for, for the nvcc that is here."""
    found = re.search(r"-l(\w+)", failing_words(remedies))
    return found and read_patterns()["link-packages"].get(found.group(1).lower())


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
    name, wanted = (remedies.detail.get("name") or what[0]).lower(), asked_release(remedies)[0] or what[2]
    rows = read_facts()["pairs"].get(name, ())
    for row in rows if numbers(wanted) else ():
        if numbers(row[0]) > numbers(wanted) and remedies.has_wheels(row):
            return "%s>=%s" % (name, row[0])
    return None


def _nvrtc_wheel(remedies):
    if len(remedies.here.cuda_majors) > 1:
        return None  # one library more would not make them one CUDA
    told = re.search(r"nvrtc-builtins\D{1,12}(1[1-3])", failing_words(remedies))
    major = int(told.group(1)) if told else remedies.cuda
    return cuda_package("cuda-nvrtc", major) if major in (11, 12, 13) else None


def _conda_library(remedies):
    """conda-forge's name of the library that a text is about."""
    name = (remedies.detail.get("what") or "").lower()
    return name if name.startswith("lib") or name in ("cudnn", "nccl") else "lib" + name if name else None


def _asked_library(remedies):
    """The library that a line asks for, in whichever place of it."""
    return next(
        (remedies.detail[key] for key in ("library", "first", "later") if remedies.detail.get(key)), None
    )


def _module_wheel(remedies):
    """The wheel with a module ``nvidia.cublas``; those of CUDA 13 are all in ``nvidia.cu13``, bar a few."""
    stem, major = (remedies.detail.get("module") or "").replace("_", "-"), remedies.cuda or 12
    apart = stem in ("cudnn", "nccl", "cusparselt", "nvshmem")
    return cuda_package(stem, major) if stem and (major < 13 or apart) else None


def _triton_windows(remedies):
    """The release line of triton-windows that goes with the PyTorch here:
    https://github.com/woct0rdho/triton-windows#3-pytorch
    """
    torch = dotted(numbers(remedies.here.packages.get("torch"))[:2])
    wanted = numbers(read_patterns()["triton"].get(torch, ""))[:2]
    return "triton-windows>=%s,<%d.%d" % (dotted(wanted), wanted[0], wanted[1] + 1) if wanted else None


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
    **REQUIREMENT_FACTS,
    **TORCH_FACTS,
    "needed-release": _needed_release,
    "libraries-of-asked": lambda r: _LAST_MINORS.get(r.library_major()),
    "libraries-of-asked-name": lambda r: _LAST_MINORS.get(r.library_major(), "").replace(".", "-") or None,
    **CONFLICT_FACTS,
    "uv": lambda r: getattr(r.here, "uv", False),
    "cpu-index-set": lambda r: getattr(r.here, "cpu_index_set", False),
    "intel-mac-release": _intel_mac_release,
    "ctranslate2-alone": lambda r: (
        set(getattr(r.here, "named", ())) == {"ctranslate2"} and not r.here.cudnn_majors()
    ),
    "cudnn-past": lambda r: str(r.cudnn_again()).endswith("==9.20.0.48") and bool(r.cuda),
    "torch-alone": lambda r: set(getattr(r.here, "named", ())) <= {"torch"} and not r.here.places,
    "cudnn-by-name": lambda r: "ImportError" in str(r.detail.get("line")),
    "cusparselt-told": lambda r: "libcusparseLt.so" in str(r.detail.get("matched")),
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
    "bringer-here": _bringer_here,
    "own-source": _own_source,
    "compiled-anew": _compiled_anew,
    "cudart-folder": lambda r: "cu13" if r.library_major() == 13 else "cuda_runtime",
    "nvtoolsext-asked": lambda r: "nvToolsExt" in failing_words(r),
    "link-package": _link_package,
    "link-flag": lambda r: (_owner_of(r.detail.get("call")) or "").replace("lib", "-l", 1) or None,
    "preload-stem": lambda r: _owner_of(r.detail.get("call")),
    "preload-short": lambda r: (_owner_of(r.detail.get("call")) or "")[3:] or None,
    "good-branch": lambda r: r.detail.get("good"),
    "torchvision-and-audio": lambda r: (
        ["torchaudio"] + r.FACTS["torchvision"](r) if r.FACTS["torchvision"](r) else None
    ),
    "known-bad-mend": known_bad_mend,
    "tensorflow-bad": lambda r: (_bad_release(r, "tensorflow") or (None, None))[1],
    "one-opencv": one_opencv,
    "extension-told": lambda r: extension_told(r.here),
    "without-cuda-here": without_cuda_here,
    "faiss-of-today": faiss_of_today,
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
    "nvpl": _nvpl,
    "lost-pin": lambda r: r.detail.get("pin") and "%s==%s" % (r.detail["what"], r.detail["pin"]),
    "driver-branch": lambda r: r.driver_branch(),
    "speaks-of-driver": lambda r: getattr(r.here, "speaks_of_driver", False),
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
    "release-for-card": _release_for_card,
    "release-with-wheels": _release_with_wheels,
    "no-npp": lambda r: getattr(r.here, "no_npp", False),
    "npp-wheel": _npp_wheel,
    "npp-folder": lambda r: "cu13" if _npp_major(r) == 13 else "npp",
    "ffmpeg-range": _ffmpeg_range,
    "uv-exact": lambda r: (re.match(r"==\s*(\d[\d.]*)$", r.detail.get("asked") or "") or (0, None))[1],
    "install-tool": lambda r: "uv pip" if getattr(r.here, "uv", False) else "pip",
    "cutlass-dsl": _cutlass_dsl,
    "cuda-told-12": lambda r: _cuda_told(r) == {12},
    "cuda-told-13": lambda r: _cuda_told(r) == {13},
    "cubin": lambda r: r.detail.get("cubin"),
    "instead": lambda r: r.detail.get("instead"),
    "package": _package_built,
    "cudnn-packaged": lambda r: getattr(r.here, "cudnn_packaged", None),
    "image-built": lambda r: bool(getattr(r.here, "dockerfile", False) or "compose" in r.here.places) or None,
    "nvrtc": _nvrtc_wheel,
    "cutlass-told": lambda r: "cutlass" in failing_words(r),
    "cutlass-parts": lambda r: "nvidia-cutlass-dsl-libs-cu%d" % r.cuda if r.cuda in (12, 13) else None,
    "bitsandbytes-told": lambda r: "bitsandbytes" in r.here.printed_by,
    "cupy-wheel": lambda r: (
        "cupy-cuda%dx" % r.cuda if "cupy" in r.here.named and r.cuda in (12, 13) else None
    ),
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
    "variant-before-12.8": lambda r: () < r.cuda_of_build() < (12, 8),
    "flash-attn-unbuilt": lambda r: bool(re.search(r"flash[-_]attn-\d[^\n]*\.whl", text_of(r.here))) or None,
    "flash-attn-told": lambda r: re.search(r"flash[-_]attn", failing_words(r)) is not None,
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
    "ctranslate2-told": lambda r: (
        r.known("ctranslate2-here")
        or bool({"ctranslate2", "faster-whisper"} & {*getattr(r.here, "named", ()), *r.here.printed_by})
    ),
    "ggml-failed": lambda r: getattr(r.here, "ggml_failed", False),
    "flash-attn-package": lambda r: "flash" in str(r.known("kernel-package")),
    "asks-cudnn-8": lambda r: str(r.detail.get("major")) == "8" and r.framework != "tensorflow",
    "asks-cudnn-9": lambda r: str(r.detail.get("major")) == "9",
    "cudnn-8-of": lambda r: r.cuda if r.cuda in (11, 12) else 12,
    "ort-asks-13": lambda r: str(r.detail.get("cuda")) == "13",
    "nvrtc-by-name": lambda r: r.known("toolkit-wheel") if "nvrtc" in str(r.detail.get("library")) else None,
    "nvrtc-folder": lambda r: "cu13" if r.library_major() == 13 else "cuda_nvrtc",
    "python-folder": lambda r: ".\\python_embeded" if "comfy-portable" in r.here.places else "PYTHON_FOLDER",
    "python-told": lambda r: r.here.python is not None or r.framework is not None,
    "cupy-major": lambda r: r.cuda if r.cuda in (12, 13) else 12,
    "tensorflow-serves-card": lambda r: bool(r.capability) and r.capability < (10, 0),
    "paddle-for-card": lambda r: "cu126" if (r.capability or ()) >= (7, 0) else "cu118",
    "cupy-unread": lambda r: not any(name.startswith("cupy") for name in getattr(r.here, "here", ())),
    "kernels-elsewhere": lambda r: (
        getattr(r.here, "kernels_elsewhere", False) and "torch" not in r.here.packages
    ),
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
    "rebooted": lambda r: getattr(r.here, "rebooted", False),
    "bare-nvrtc": lambda r: any(
        name in str(r.detail.get("line")) for name in ("_get_nvrtc_library", "libnvrtc.so:")
    ),
    "triton-windows": _triton_windows,
    "wheel-asked": lambda r: (
        r.detail.get("what") and str(r.detail["what"]).endswith(".whl") and r.detail["what"]
    ),
    "newer-branch": lambda r: next(
        (read_patterns()["toolkit-driver"].get(name) for name in getattr(r.here, "cuda_releases", ())), None
    ),
    "bare-nvml": lambda r: (
        "libnvidia-ml.so" in str(r.detail.get("matched")) or r.detail.get("requirement") == "the name of NVML"
    ),
    "stale-container": lambda r: getattr(r.here, "stale_container", False),
    "gpus-given": lambda r: getattr(r.here, "gpus_given", False),
    "nodes-told": lambda r: getattr(r.here, "nodes_told", False),
    "vllm-image": lambda r: getattr(r.here, "vllm_image", False),
    "other-graphics": lambda r: getattr(r.here, "other_graphics", False),
    "open-branch": lambda r: next(iter(numbers(r.here.driver)), 580) if r.here.driver else 580,
    "ngc": lambda r: getattr(r.here, "ngc", False),
    "torchcodec-told": lambda r: "torchcodec" in failing_words(r),
    "index-asked": lambda r: getattr(r.here, "index_asked", None),
    "nvjitlink-floor": _nvjitlink_floor,
    "module-folder": lambda r: r.detail.get("module"),
    "fabric-driver": lambda r: r.detail.get("host"),
    "fabric-absent": lambda r: getattr(r.here, "fabric_absent", False),
    "driver": lambda r: r.here.driver if len(numbers(r.here.driver)) > 1 else None,
    "fabric-branch": lambda r: (r.detail.get("host") or r.here.driver or "").partition(".")[0] or None,
}
"""By the names in ``causes.ini``."""
