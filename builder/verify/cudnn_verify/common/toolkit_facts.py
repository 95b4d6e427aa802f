"""Facts of what compiles and of what drives: nvcc, host compilers, toolkits, drivers, the card to compile
for; for the lines of ``causes.ini``. Each takes a :class:`~remedies.Remedies` and returns None for what is
not known.
"""

import re

from .framework_builds import card_within
from .tables import branch_for, read_patterns
from .versions import dotted, numbers

_NVCC_PARTS = ("cuda-nvcc", "cuda-crt", "nvvm", "cuda-cccl")
_OWN = "$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | sort -u | %s)"
_OWN_CAPABILITY = _OWN % "paste -sd ';'"
"""What the driver says of the cards here, as ``TORCH_CUDA_ARCH_LIST`` has it."""


def text_of(here):
    """The whole text that facts are of; "" of what the probe measured."""
    return getattr(getattr(here, "trace", None), "text", "")


def failing_words(remedies):
    return "%s %s" % (remedies.detail.get("matched") or "", remedies.detail.get("line") or "")


def torch_told(remedies):
    """(release, variant) of the PyTorch that the text names: ("2.9.0", "cu128"); ("", "") without one."""
    release, _, variant = (remedies.here.packages.get("torch") or "").partition("+")
    return release, variant


def _driver_toolkit(remedies):
    """The toolkit of the newest CUDA that the driver serves, as the packages of NVIDIA name it; where no text
    names that CUDA, the driver itself is asked.
    """
    asked = r"$(nvidia-smi | sed -n 's/.*CUDA.* Version: \([0-9]*\)\.\([0-9]*\).*/\1-\2/p')"
    return "-".join(map(str, remedies.driver_cuda()[:2])) or asked


def nvcc_told(here):
    """The nvcc of a text as (major, minor); without one the last of the one CUDA with which it compiles."""
    named = getattr(here, "cuda_named", ())
    last = (max(named), 99) if len(named) == 1 and getattr(here, "cuda_compiled", False) else ()
    return numbers(getattr(here, "nvcc", None)) or last


def newest_gcc(cuda):
    """The major release of the newest GCC that the nvcc of a CUDA accepts, of the newest on record for ();
    None for a CUDA before those on record.
    """
    rows = read_patterns()["newest-gcc"].items()
    return next((int(newest) for floor, newest in rows if not cuda or cuda >= numbers(floor)), None)


def _last_compiler(remedies):
    """The newest GCC that the nvcc here accepts: by its message, else by its version where GCC is newer."""
    known, here = newest_gcc(nvcc_told(remedies.here)), getattr(remedies.here, "gcc", None)
    return remedies.detail.get("last") or (str(known) if here and known and int(here) > known else None)


def _known_arch(remedies):
    """The card here as ``TORCH_CUDA_ARCH_LIST`` has it, by the driver's own word where no text names it; 12.0
    for 12.1, which runs its code, and which PyTorch before 2.9 has no name for.
    """
    card = (remedies.capability or ())[:2]
    return "12.0+PTX" if card == (12, 1) else dotted(card) if card else _OWN_CAPABILITY


def _torch_cuda_name(separator):
    """A shell expression for the CUDA of the PyTorch here, as the names of NVIDIA's packages have it."""
    return "$(python3 -c \"import torch; print(torch.version.cuda.replace('.', '%s'))\")" % separator


def _toolkit_here(remedies):
    """The toolkit of the CUDA that PyTorch is built for, as NVIDIA's packages name it; where no text names
    that CUDA, PyTorch itself is asked.
    """
    build = remedies.cuda_of_build()
    if len(build) > 1:
        return "-".join(map(str, build[:2]))
    if remedies.cuda == 13:
        return "13-0"
    others = set(getattr(remedies.here, "named", ())) - {"torch"}
    return "12-9" if remedies.cuda == 12 and others else None if others else _torch_cuda_name("-")


def _one_toolkit(remedies):
    """The wheels of nvcc and of what it includes, at the minor version of PyTorch's headers of CUDA. No wheel
    before CUDA 13 holds nvcc.
    """
    version = numbers(remedies.here.packages.get("nvidia-cuda-runtime"))[:2]
    of_torch = re.match(r"cu(\d\d)(\d)$", torch_told(remedies)[1])
    minor = version or (of_torch and tuple(map(int, of_torch.groups())))
    if not minor or minor < (13,):
        return None
    return ["nvidia-%s~=%d.%d.0" % ((name,) + minor) for name in _NVCC_PARTS]


def _code_for(remedies):
    """The compute capability to compile for, where an nvcc does not know the one asked for: that of the card
    here, by the driver's own word where no text names the card; None where the card is the one asked for.
    """
    if not remedies.detail.get("arch"):
        return None
    card, nvcc = (
        remedies.capability and remedies.capability[:2],
        numbers(getattr(remedies.here, "nvcc", None)),
    )
    if not card:
        return _OWN_CAPABILITY
    known = card != _arch_asked(remedies) and (not nvcc or card_within(nvcc, card))
    return dotted(card) if known else None


def _toolkit_of_words(remedies):
    found = re.search(r"(?:built|compiled) (?:for|with|against) CUDA (1\d\.\d)", failing_words(remedies))
    return found and found.group(1)


def _card_code(remedies):
    """The compute capability of the card here as ``TORCH_CUDA_ARCH_LIST`` names it for kernels that use all
    of the card: https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/#gpu-feature-list
    """
    card = remedies.capability and remedies.capability[:2]
    return dotted(card) + ("a" if card >= (9, 0) else "") if card else _OWN_CAPABILITY


def _arch_asked(remedies):
    return divmod(int(remedies.detail["arch"]), 10) if remedies.detail.get("arch") else None


def _toolkit_for(remedies):
    """The CUDA whose nvcc has code for the card (for what is asked for where no text names the card), as
    near to PyTorch's as can be: ``12.8``; None if none is known, or the nvcc in the text is new enough.
    """
    card = (remedies.capability or _arch_asked(remedies) or ())[:2]
    nvcc, build = numbers(getattr(remedies.here, "nvcc", None)), remedies.cuda_of_build()
    if not card or card < (5, 0):
        return None
    if card < (7, 5):
        return "12.9" if not nvcc or nvcc >= (13,) else None  # CUDA 13 dropped it
    rows = [(numbers(floor), numbers(first)) for floor, first in read_patterns()["first-cuda"].items()]
    first = max((floor, first) for floor, first in rows if floor <= card)[1]
    if card in ((10, 3), (12, 1)):  # by their own names: the notes of CUDA 12.9
        first = max(first, (12, 9))
    if nvcc and nvcc >= first:
        return None
    return dotted(max(first, build))


def _arch_below(remedies):
    """The nearest older compute capability of the same major version, whose code the asked one runs, that the
    nvcc in the text knows: ``8.6`` for 8.9.
    """
    asked, nvcc = _arch_asked(remedies), numbers(getattr(remedies.here, "nvcc", None))
    if not asked or not remedies.capability or remedies.capability[:2] != asked:
        return None
    rows = [(numbers(floor), numbers(first)) for floor, first in read_patterns()["first-cuda"].items()]
    rows = [
        floor
        for floor, first in rows
        if floor[0] == asked[0] and floor < asked and (not nvcc or nvcc >= first)
    ]
    return dotted(max(rows)) if rows else None


def _told_old(remedies):
    """Whether the line itself says that the driver is older than what was made for it."""
    said = (
        r"(?i)PTX|driver version is insufficient|unsatisfied condition|__cuda|too old|Unsupported \.version"
    )
    return re.search(said, remedies.detail.get("matched") or "") is not None


def _image_of_major(remedies):
    """Whether the driver serves all of the CUDA major version that an image asks for a newer minor version
    of: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
    """
    wanted = numbers(remedies.detail.get("wanted_cuda"))
    return bool(wanted and remedies.driver_known() and remedies.driver_serves(wanted))


def _newer_nvcc(remedies):
    """The CUDA of the driver, where the text's nvcc is newer: kernels that are compiled here are not for
    this driver.
    """
    nvcc, served = numbers(getattr(remedies.here, "nvcc", None)), remedies.driver_cuda()
    newer = remedies.here.ptx_told if hasattr(remedies.here, "ptx_told") else False
    build = remedies.cuda_of_build()
    if not newer or not nvcc or not served or nvcc <= served:
        return None
    return dotted(build if build and build <= served else served)


def _glibc_part(remedies):
    """The library of glibc before 2.34 with a function that is not found."""
    part = remedies.detail.get("part")
    if not part:
        return None
    if part.startswith("dl"):
        return "libdl.so.2"
    return "libpthread.so.0" if re.match("pthread|sem", part) else "librt.so.1"


def _math_functions(remedies):
    """CUDA's header, as the compiler names it."""
    found = re.search(r"(/usr/local/cuda\S*?/math_functions\.h)", str(remedies.detail.get("line")))
    return found.group(1) if found else "/usr/local/cuda/include/crt/math_functions.h"


def _header_package(remedies):
    """The -dev package with the header that was not found."""
    return read_patterns()["header-packages"].get((remedies.detail.get("what") or "").partition(".")[0])


def _dropped(remedies):
    asked, nvcc = _arch_asked(remedies), numbers(getattr(remedies.here, "nvcc", None))
    return bool(asked and asked < (7, 5) and nvcc >= (13,))


def _base_for_card(remedies):
    """The tag of NVIDIA's image of the first CUDA for the card, where the text names an older one."""
    base, card = numbers(getattr(remedies.here, "image_base", None)), remedies.capability
    if not base or not card or card < (10, 0) or card_within(base, card[:2]):
        return None
    rows = [(numbers(floor), first) for floor, first in read_patterns()["first-cuda"].items()]
    return next(first for floor, first in sorted(rows, reverse=True) if floor <= card[:2]) + ".1"


def card_here(here):
    """The first card of a text by its name, without what stands beside it; None without a card."""
    return next((re.split(r"\s{2}", name)[0] for name in getattr(here, "cards", ())), None)


def _tensorflow_before_extra(remedies):
    """Whether the TensorFlow of the text is older than its extra and-cuda, which came with 2.14:
    https://github.com/tensorflow/tensorflow/releases/tag/v2.14.0
    """
    return () < numbers(_tensorflow_told(remedies)) < (2, 14)


def _tensorflow_told(remedies):
    version = remedies.version if remedies.framework == "tensorflow" else ""
    return remedies.here.packages.get("tensorflow") or version or ""


def _cuda_of_tensorflow(remedies):
    """CUDA and cuDNN of such a TensorFlow, as conda-forge names them; None if no row of it names both."""
    release = _tensorflow_told(remedies).partition("+")[0]
    rows = remedies.releases.builds("tensorflow", release) if _tensorflow_before_extra(remedies) else []
    row = next((row for row in rows if row["cuda"] and row["cudnn"]), None)
    if row is None:
        return None
    return ["cudatoolkit=" + dotted(numbers(row["cuda"])[:2]), "cudnn=%d" % numbers(row["cudnn"])[0]]


TOOLKIT_FACTS = {
    "tensorflow-before-extra": _tensorflow_before_extra,
    "cuda-of-tensorflow": _cuda_of_tensorflow,
    "base-for-card": _base_for_card,
    "header-package": _header_package,
    "cccl-header": lambda r: re.match(r"(cub|thrust|nv|cuda/std)/", r.detail.get("what") or "") and True,
    "toolkit-branch": lambda r: read_patterns()["toolkit-driver"].get(getattr(r.here, "nvcc", None) or ""),
    "arch-dropped": _dropped,
    "arch-below": _arch_below,
    "told-old": _told_old,
    "one-toolkit": _one_toolkit,
    "code-for": _code_for,
    "code-digits": lambda r: (
        "native" if _code_for(r) == _OWN_CAPABILITY else (_code_for(r) or "").replace(".", "")
    ),
    "arch-unread": lambda r: _code_for(r) == _OWN_CAPABILITY,
    "arch-new": lambda r: _code_for(r) == _OWN_CAPABILITY and _arch_asked(r) >= (7, 5),
    "toolkit-for": _toolkit_for,
    "image-of-major": _image_of_major,
    "built-with": lambda r: dotted(r.cuda_of_build()[:2]) or None,
    "wanted-branch": lambda r: r.driver_branch() and branch_for(r.cuda_wanted()),
    "newer-nvcc": _newer_nvcc,
    "newer-nvcc-name": lambda r: (_newer_nvcc(r) or "").replace(".", "-") or None,
    "card-code": _card_code,
    "card-plain": lambda r: dotted(r.capability[:2]) if r.capability else _OWN_CAPABILITY,
    "card-specific": lambda r: _card_code(r) if r.capability else _OWN % "sed s/$/a/ | paste -sd ' '",
    "arch-asked": lambda r: _arch_asked(r) is not None,
    "toolkit-name": lambda r: (_toolkit_for(r) or "").replace(".", "-") or None,
    "toolkit-of-torch": lambda r: _toolkit_of_words(r),
    "nvcc-in-wheels": lambda r: _one_toolkit(r),
    "toolkit-here-name": _toolkit_here,
    "torch-cuda-name": lambda _: _torch_cuda_name("-"),
    "torch-cuda-dotted": lambda _: '$(python3 -c "import torch; print(torch.version.cuda)")',
    "known-arch": _known_arch,
    "driver-toolkit": _driver_toolkit,
    "glibc-part": _glibc_part,
    "math-functions": _math_functions,
    "last-compiler": _last_compiler,
    # conda-forge has gxx from 9 on: https://github.com/conda-forge/ctng-compilers-feedstock
    "gxx": lambda r: _last_compiler(r) if (numbers(_last_compiler(r)) or (0,)) >= (9,) else None,
}
"""By the names in ``causes.ini``."""


def nvcc_beside_driver(facts, _):
    """https://docs.nvidia.com/cuda/blackwell-compatibility-guide/"""
    if not facts.nvcc or not facts.driver_cuda or numbers(facts.nvcc) >= numbers(facts.driver_cuda):
        return None
    told = (
        "nvcc in use is of CUDA %s%s; nvidia-smi's %s is the newest CUDA that the driver runs, and no toolkit"
    )
    own = " (/usr/bin/nvcc, the distribution's own)" if facts.nvcc_of_system else ""
    return told % (facts.nvcc, own, facts.driver_cuda)
