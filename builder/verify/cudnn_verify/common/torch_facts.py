"""Facts of PyTorch, its indexes, and packages that are compiled for one release of it.

For the lines of ``causes.ini``: each takes a :class:`~remedies.Remedies`; None is for what is not known.
"""

import re

from .framework_builds import card_within, serves, torch_index
from .name_changes import ASKED_NAME, release_here
from .own_kernels import KERNEL_EXTENSIONS
from .requirement_facts import COMPILED_AT_INSTALL, glibc_asked
from .tables import Releases, read_facts, read_patterns, told_names
from .toolkit_facts import failing_words, text_of, torch_told
from .versions import dotted, numbers, pins_of, satisfies

# Wheels that are compiled for one release of PyTorch, which their metadata pins.
_PINNED = {"vllm": "vllm", "sgl_kernel": "sgl-kernel", "xformers": "xformers", "lmcache": "lmcache"}
_OF_PYTORCH = ("torchvision", "torchaudio", "torchtext", "torchao", "xformers", "fbgemm-gpu")
"""Those that PyTorch's own indexes have."""
BRING_TORCH = ("vllm", "lmdeploy")
"""Those whose requirements pin a PyTorch that comes with them."""
OF_ONE_TORCH = _OF_PYTORCH + BRING_TORCH + ("torchcodec", "sgl-kernel", "sglang-kernel")
KERNEL_PACKAGES = (
    "sgl-kernel",
    "flash-attn",
    "xformers",
    "bitsandbytes",
    *KERNEL_EXTENSIONS,
    "vllm",
)
"""Packages with kernels of their own, by their names in ``printed-by``."""


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
        if row and (pair or name in BRING_TORCH) and (alone or not _serves_torch(row[2], release)):
            found[name] = pair
    return found


def _brings_torch(remedies):
    """A package that pins its PyTorch, in the release that is here, where another PyTorch is here."""
    names = list(companions_apart(remedies, 2, BRING_TORCH))
    return names and "%s==%s" % (names[0], remedies.here.packages[names[0]].partition("+")[0])


def _kernels_apart(remedies):
    """SGLang's kernels for the PyTorch that is here."""
    return next(iter(companions_apart(remedies, 2, ("sgl-kernel", "sglang-kernel")).values()), None)


def _torchcodec_apart(remedies):
    return _torchcodec(remedies) if companions_apart(remedies, 2, ("torchcodec",)) else None


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
    if torch_told(remedies)[0] or ASKED_NAME.search(words):
        return None
    names = [name for name in _COMPANION_OF if re.search(name, words, re.IGNORECASE)]
    if not names and "different CUDA" in words:
        names = ["torchvision"]
    return _OF_TORCH_HERE % ", ".join(map(_companion_of, names)) if names else None


def _of_torch_alone(remedies):
    """A package whose wheels pin one release of PyTorch each, where no text tells which one is here."""
    words = failing_words(remedies).lower()
    return "xformers" if "xformers" in words and not torch_told(remedies)[0] else None


def _torch_unread(remedies):
    """Whether a text tells neither card nor driver nor index, so that nothing chooses a build of PyTorch."""
    told = remedies.capability or remedies.driver_known() or getattr(remedies.here, "variants", ())
    return not (told or remedies.torch_release())


def _torch_of_library(remedies):
    """The PyTorch of the same release for the CUDA of the library that a package asks for."""
    major, (release, _) = remedies.library_major(), torch_told(remedies)
    if not major or not release or remedies.here.cuda_majors == {major}:
        return None
    rows = [row for row in Releases().builds("torch", release) if numbers(row["cuda"])[:1] == (major,)]
    row = next((row for row in rows if row["variant"]), None)
    words = remedies.torch_and_companions(release, row["variant"]) if row else None
    index = re.search(r"/whl/cu(1\d)\d", " ".join(words or ()))  # that of the text may be of the other CUDA
    return words if index and int(index.group(1)) == major else None


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
    told = re.search(r"\bimport(?:ing)? ([A-Za-z_]\w*)", str(remedies.detail.get("line")))
    if told and told.group(1) not in [name.replace("-", "_") for name in names]:
        names = []  # the line itself tells of another package
    asks = str(remedies.detail.get("library")).startswith("libcudart")
    return names[0] if asks and remedies.library_major() and names and "vllm" not in names else None


def _variants_differ(remedies, name):
    """Whether a companion is of another CUDA than PyTorch, by their variants."""
    own, other = ((remedies.here.packages.get(one) or "").partition("+")[2] for one in ("torch", name))
    return bool(own and other and own != other)


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


def _torch_of_old_libc(remedies):
    """The last PyTorch whose wheels are for glibc 2.17, where a message asks for a glibc up to 2.28:
    https://github.com/pytorch/pytorch/issues/123649
    """
    asked = glibc_asked(remedies)
    python = numbers(remedies.here.python) or (3, 9)
    fits = (
        remedies.framework == "torch" and (3, 9) <= python[:2] <= (3, 13) and remedies.driver_serves((12, 4))
    )
    away = {"windows", "aarch64", "jetson", "macos"} & remedies.here.places
    named = fits and asked and asked <= 28 and not away
    return " ".join(remedies.torch_and_companions("2.6.0", None)) if named else None


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
    version = release_here(remedies.here, "vllm").partition("+")[0]
    return "vllm" + ("==" + version if version else "")


def _vllm_backend(remedies):
    """The index of the PyTorch that goes with vLLM's own wheel, where the library that is not found is of the
    CUDA which that wheel is built for: another PyTorch is here than the wheel's.
    """
    row = Releases.wheels_of("vllm", release_here(remedies.here, "vllm"))
    major = remedies.library_major()
    if not row or not major or row[3] != str(major):
        return None
    builds = Releases().builds("torch", Releases().pinned_torch("vllm", row[1]))
    known = [build["variant"] for build in builds if build["cuda"] and numbers(build["cuda"])[0] == major]
    return max(filter(None, known), key=lambda name: numbers(name[2:]), default=None)


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


def _torchcodec_index(remedies):
    """TorchCodec's index for the other CUDA than that of the library that it asks for."""
    text = failing_words(remedies) + text_of(remedies.here)
    words = "torchcodec" in remedies.here.printed_by or "torchcodec" in text
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


def _index_for_card(remedies):
    """The index of PyTorch whose builds have code for a card that other builds leave out."""
    card = remedies.capability
    if not card or card < (5, 0):
        return None
    return "cu128" if card >= (10, 0) else "cu126" if card < (7, 5) else None


def _index_of_audio(remedies):
    """PyTorch from the last index with torchaudio: https://docs.pytorch.org/audio/main/installation.html"""
    named = remedies.detail.get("name") == "torchaudio" or audio_past_index(remedies.here)
    names = ["torch", "torchvision", "torchaudio"]
    return names + torch_index("cu130") if named and index_past_audio(remedies.here) else None


def index_past_audio(here):
    """Whether the index that a text asks is a later one than the last with torchaudio."""
    asked = getattr(here, "index_asked", None) or ""
    return bool(re.match(r"cu\d{3}$", asked)) and asked > "cu130"


def audio_past_index(here):
    """Whether a text asks such an index for torchaudio."""
    return "torchaudio" in getattr(here, "companions", ()) and index_past_audio(here)


def _backend_of_audio(remedies):
    """The packages of a line of uv's that asks such an index, from the last one with torchaudio."""
    line = re.search(r"uv pip install ([^\n]*?)\s*--torch-backend[= ]cu\d{3}", text_of(remedies.here))
    words = (
        re.findall(r"[\w.-]+(?:\[[\w,-]+\])?==[\w.]+|(?<![\w-])[a-z][\w-]+(?![\w=-])", line.group(1))
        if line
        else []
    )
    return " ".join(words) if words and audio_past_index(remedies.here) else None


def _torch_of_cpu(remedies):
    """PyTorch's build for the CPU, in the release of the text."""
    release = torch_told(remedies)[0]
    asked = "torch" + ("==" + release if len(numbers(release)) > 2 else "")
    return [asked, "--index-url", "https://download.pytorch.org/whl/cpu"]


def _plain_torch(remedies):
    """PyTorch in the release of the text, without a build for CUDA."""
    release = torch_told(remedies)[0]
    return "torch==" + release if len(numbers(release)) > 2 else None


def _torch_for_loading(remedies):
    """The newest PyTorch with its torchvision, from 2.6 on, that the driver and the card of a text serve. A
    driver that no text tells serves the CUDA major version of the build that is here:
    https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
    """
    built = remedies.cuda_of_build() if "+cu" in (remedies.here.packages.get("torch") or "") else ()
    if not (remedies.driver_known() or built) or {"jetson", "aarch64", "macos"} & remedies.here.places:
        return None
    for row in Releases().builds("torch", None):
        card = remedies.capability is None or serves(row, remedies.capability)
        new = numbers(row["latest"]) >= (2, 6) and row["variant"]
        known = remedies.driver_known()
        served = (
            remedies.driver_serves(numbers(row["cuda"])) if known else numbers(row["cuda"])[:1] == built[:1]
        )
        if new and card and served:
            return remedies.torch_and(("torchvision",), row["latest"], row["variant"])
    return None


_COMPANIONS_IN_WHEELS = ("torchvision", "torchaudio", "jaxlib", "vllm", "xformers")
_WHEEL_PYTHONS = ((3, 10), (3, 12))
"""The Pythons for which the releases of some years, the newest among them, have wheels: not for one of
these does an index list none.
"""


def _python_of_wheels(remedies):
    """A package whose releases have wheels for Python 3.12, where this Python is older, newer or not told."""
    name, here = remedies.detail.get("name"), numbers(remedies.here.python)[:2]
    apart = {"jetson", "aarch64", "macos"} & remedies.here.places or getattr(
        remedies.here, "arm_of_32", False
    )
    within = (
        not getattr(remedies.here, "bits_32", False)
        and here
        and _WHEEL_PYTHONS[0] <= here <= _WHEEL_PYTHONS[1]
    )
    other_index = getattr(remedies.here, "index_asked", None)
    known = name in told_names() or name in _COMPANIONS_IN_WHEELS
    return name if known and not (apart or within or other_index) else None


_ANNOTATIONS = (
    (r"'(?:type|ABCMeta)' object is not subscriptable", "3.9"),
    (r"unsupported operand type\(s\) for \|", "3.10"),
)
"""(what Python says of a form of type hints, the first one with it): https://docs.python.org/3/whatsnew/"""


def _annotation_python(remedies):
    """The first Python with the form of type hints that a message is about, where this one has it not."""
    text, here = str(remedies.detail.get("matched")), numbers(remedies.here.python)
    first = next((python for pattern, python in _ANNOTATIONS if re.search(pattern, text)), None)
    return first if first and not (here and here >= numbers(first)) else None


def _python_within(remedies):
    """The newest Python below a range's bound, at most 3.12, which most packages have wheels for, else the
    oldest that the range allows; None for a range without a bound.
    """
    bounds = re.findall(r"(<=?|>=?|==|~=)\s*(3\.\d+)", remedies.detail.get("range") or "")
    lowest = [numbers(python) for sign, python in bounds if sign in (">=", "==", "~=")]
    below = [numbers(python) for sign, python in bounds if sign == "<"]
    newest = min([(3, 12)] + [(3, python[1] - 1) for python in below])
    chosen = max(lowest + [newest]) if lowest else newest
    return dotted(chosen) if bounds and not any(chosen >= python for python in below) else None


def _torch_floor(remedies):
    """The release from which on PyTorch is asked for, where the one here is older or not known."""
    floor = getattr(remedies.here, "floors", {}).get("torch")
    here = numbers(remedies.here.packages.get("torch"))
    told = floor and floor in "%s %s" % (remedies.detail.get("matched"), remedies.detail.get("line"))
    return floor if told and not here >= numbers(floor) else None


TORCH_FACTS = {
    "build-part": lambda r: r.detail.get("dep") or r.detail.get("asked"),
    "mmcv-range": lambda r: re.sub(r"\s|\.$", "", r.detail.get("range") or "") or None,
    "musl-told": lambda r: getattr(r.here, "musl_told", False),
    "newest-host-compiler": lambda r: int(r.detail["before"]) - 1 if r.detail.get("before") else None,
    "torch-floor": _torch_floor,
    "annotation-python": _annotation_python,
    "python-within": _python_within,
    "python-spec": lambda r: re.sub(r"\s+", " ", (r.detail.get("range") or "").strip()) or None,
    "package-refused": lambda r: r.detail.get("name"),
    "pair-release": lambda r: r.detail.get("release"),
    "number-digits": lambda r: (r.detail.get("number") or "").replace(".", "") or None,
    "tensorflow-with-windows": lambda r: (
        () < numbers(r.here.packages.get("tensorflow")) < (2, 11)
        and numbers(r.here.packages["tensorflow"]) >= (2, 5)
    ),
    "python-of-wheels": _python_of_wheels,
    "torch-for-loading": _torch_for_loading,
    "torch-of-cpu": _torch_of_cpu,
    "plain-torch": _plain_torch,
    "companions": _companions,
    "pinned-wheel": _pinned_wheel,
    "index-of-audio": _index_of_audio,
    "backend-of-audio": _backend_of_audio,
    "companions-here": _companions_here,
    "of-torch-alone": _of_torch_alone,
    "torch-unread": _torch_unread,
    "cudart-asked-by": _cudart_asked_by,
    "torchaudio-of-other-cuda": lambda r: _variants_differ(r, "torchaudio") or None,
    "torch-of-library": _torch_of_library,
    "torch-of-toolkit": _torch_of_toolkit,
    "torchcodec": _torchcodec,
    "served-torch": _served_torch,
    "torch-by-driver": _torch_by_driver,
    "companion-of-torch": _companion_of_torch,
    "any-torch-of-library": _any_torch_of_library,
    "kernel-package": _kernel_package,
    "compiled-here": lambda r: _kernel_package(r) in (*COMPILED_AT_INSTALL, "xformers"),
    "torch-asked-index": _torch_asked_index,
    "torch-of-image": _torch_of_image,
    "torch-for-card": _torch_for_card,
    "brings-torch": _brings_torch,
    "kernels-apart": _kernels_apart,
    "torchcodec-apart": _torchcodec_apart,
    "torch-by-variant": _torch_by_variant,
    "torch-for-driver": _torch_for_driver,
    "kernels-of-sglang": _kernels_of_sglang,
    "vllm-here": _vllm,
    "vllm-of-torch": _vllm_of_torch,
    "vllm-backend": _vllm_backend,
    "torch-by-card": _torch_by_card,
    "torch-before-2.9": _torch_before_2_9,
    "torch-of-old-libc": _torch_of_old_libc,
    "flash-attn-wheel": _flash_attn_wheel,
    "index-for-card": _index_for_card,
    "torchcodec-index": _torchcodec_index,
    "index-that-is": _index_that_is,
}
"""By the names in ``causes.ini``."""
