"""Conditions of signatures: by which the facts of a text decide on the line that failed, or tell a fault.

Each takes a :class:`~text_facts.TextFacts` and the detail of the line, and gives a sentence if it is so, else
nothing.
"""

import re

from ..common.framework_builds import card_within
from ..common.known_bad import KNOWN_BAD_FAULTS
from ..common.name_changes import change_told, name_change, no_release_told
from ..common.own_kernels import OWN_KERNELS
from ..common.prose_names import name_in_prose
from ..common.release_days import left_behind_told, numpy_exchanged
from ..common.remedies import Remedies
from ..common.requirement_facts import distribution_of_known, python_apart
from ..common.tables import Releases, cudnn_of_torch, driver_floor, read_facts, read_patterns
from ..common.toolkit_facts import nvcc_beside_driver
from ..common.torch_facts import KERNEL_PACKAGES
from ..common.two_copies import TWO_COPIES
from ..common.versions import dotted, numbers, two_that_exclude
from ..common.wheel_tags import glibc_of_wheels, tags_told
from .fact_faults import FACT_FAULTS, cuda_of_variant, toolkit_above_driver
from .text_facts import CUDA_NUMBERED

_VARIABLE = re.compile(r"[A-Z][A-Z\d]*_[A-Z_\d]+$")
_OF_ANY_CUDA = re.compile(r"libcurand\.so\.10\b")
# Libraries of Windows whose number is CUDA's major
_DLL_OF_CUDA = re.compile(r"(?:cublas(?:Lt)?|cudart|npp\w+)64_(\d\d)\.dll")


def _memory(facts, free):
    # in 512 MiB cuDNN's handle and a small workspace fit
    if facts.memory_free is None or (facts.memory_free >= 512 << 20) is not free:
        return None
    return "%d MiB of %d MiB were free" % (facts.memory_free >> 20, (facts.memory_total or 0) >> 20)


def _memory_own(facts, _):
    """The process that failed holds half of the card's memory or more: others are not in its way."""
    own, whole = facts.memory_own, facts.memory_whole
    if not own or not whole or own * 2 < whole:
        return None
    told = "this process itself holds %.1f of the card's %.1f GiB" % (own, whole)
    other = facts.memory_others
    if other:
        told += ", and process %(process)s %(theirs)s %(unit)siB, which are free once it ends" % other
    else:
        told += ", and no other one is named"
    return told + ": a smaller batch, shorter inputs, a smaller or quantised model need less"


def _driver_old(facts, detail):
    remedies = Remedies(facts, detail)
    cuda = _cuda_of_build(facts)
    floor = cuda and read_facts()["drivers"].get(dotted(cuda[:2]))
    if floor and facts.driver:
        here = "driver %s; CUDA %s needs %s" % (facts.driver, dotted(cuda[:2]), floor)
        return here if numbers(facts.driver) < numbers(floor) else None
    told = cuda[0] if cuda else remedies.cuda
    major = max(facts.cuda_majors) if facts.cuda_majors else told
    if major is None or not (facts.driver or facts.driver_cuda):
        return None
    api, driver = numbers(facts.driver_cuda), numbers(facts.driver)
    floor = driver_floor(major)
    if (api and api[0] < major) or (floor and driver and driver < floor):
        here = facts.driver or "for CUDA " + facts.driver_cuda
        return "driver %s; CUDA %d needs %s" % (here, major, dotted(floor))
    return None


def _architectures_of_nvcc(facts, detail):
    detail["arch"] = detail.get("arch") or detail.get("older")
    return facts.architectures_of_nvcc and "the build asks nvcc for these architectures"


def _driver_past_build(facts, detail):
    """The driver is of the CUDA of the build here or of a later one, by their minor versions."""
    cuda = _cuda_of_build(facts) or numbers(facts.nvcc)
    driver = Remedies(facts, detail).driver_cuda()[:2]
    if len(cuda) < 2 or not driver or driver < cuda[:2]:
        return None
    return "the driver is of CUDA %s, and this is built with CUDA %s" % (dotted(driver), dotted(cuda[:2]))


def _driver_new(facts, detail):
    remedies = Remedies(facts, detail)
    names = {remedies.framework} - {None} or set(facts.printed_by)
    builds = [rows for rows in (remedies.releases.builds(name, None) for name in names) if rows]
    rows = builds[0] if len(builds) == 1 else []
    told = remedies.cuda_of_build()[:1]
    majors = set(told or facts.cuda_majors) or {numbers(row["cuda"])[0] for row in rows if row["cuda"]}
    newest = max(majors or map(int, read_facts()["cuda"]))
    return None if toolkit_above_driver(facts, detail) else remedies.driver_that_serves(newest)


def _cuda_other(facts, detail):
    """The library is of another CUDA than the one here, in packages or in a toolkit, or than all packages."""
    asked = CUDA_NUMBERED.search(str(detail.get("library") or detail["matched"]))
    named = sorted(number for stem, number in facts.libraries if asked and stem == asked.group(1))
    if named and asked.group(2) not in named:
        return "%s is asked for, and the one here is %s.%s" % (
            asked.group(0),
            asked.group(1),
            named[0],
        )
    major = Remedies(facts, detail).library_major()
    if not major or len(facts.cuda_majors) != 1 or major in facts.cuda_majors:
        return None
    here = (detail["library"], major, next(iter(facts.cuda_majors)))
    told, floor = "%s is of CUDA %d, and the packages here are built for CUDA %d" % here, driver_floor(major)
    if numbers(facts.driver) and numbers(facts.driver) < floor:
        told += "; driver %s is too old for CUDA %d besides" % (facts.driver, major)
    return told


def _cuda_named_other(facts, detail):
    """The library is of another CUDA than the one that the text names."""
    found = _DLL_OF_CUDA.search(detail["matched"])
    major = int(found.group(1)) if found else Remedies(facts, detail).library_major()
    if not major or len(facts.cuda_named) != 1 or major in facts.cuda_named:
        return None
    return "the library is of CUDA %d, and the text is about CUDA %d" % (major, next(iter(facts.cuda_named)))


def _toolkit_other(facts, detail):
    """CuPy takes NVRTC out of the toolkit: https://docs.cupy.dev/en/stable/install.html"""
    major = Remedies(facts, detail).known("cupy-of-toolkit") and Remedies(facts, detail).library_major()
    if not major or not facts.toolkit or major == facts.toolkit:
        return None
    return "%s is of CUDA %d, and the toolkit here is of CUDA %d" % (detail["library"], major, facts.toolkit)


def _cuda_of_library(facts, detail):
    major = Remedies(facts, detail).library_major()
    same = major and facts.cuda_majors == {major}
    return "the packages here are built for CUDA %d, too" % major if same else None


def _not_the_wheels(facts, detail):
    """The library that failed is none of the wheels', and PyTorch, which brings its own, is here."""
    found = re.search(r"/\S*/libcudnn\w*\.so\S*?(?=: )", detail.get("line") or "")
    outside = found and not re.search(r"(?:site|dist)-packages|/torch/lib", found.group(0))
    if outside and ("torch" in facts.packages or "torch" in facts.printed_by):
        return "PyTorch brings its own cuDNN, and the loader took %s" % found.group(0)
    return None


def _versions(holds, text):
    """The condition ``holds(loaded, compiled)``; both versions stand in its sentence."""

    def condition(_, detail):
        loaded, compiled = numbers(detail.get("loaded")), numbers(detail.get("compiled"))
        if not (loaded and compiled and holds(loaded, compiled)):
            return None
        return text.format(loaded=dotted(loaded), compiled=dotted(compiled[:2]))

    return condition


def _torch_of(major):
    says = "PyTorch %%s brings cuDNN %d" % major
    return lambda facts, _: (
        says % facts.packages["torch"] if cudnn_of_torch(facts.packages) == major else None
    )


_torch_of_8 = _torch_of(8)


def _onnxruntime_of_9(facts, _):
    """From 1.19 on: https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html"""
    version = facts.packages.get("onnxruntime")
    brings = _torch_of_8(facts, None)
    new = numbers(version) >= (1, 19) and brings
    return "ONNX Runtime %s needs cuDNN 9, and %s" % (version, brings) if new else None


def _attention_by_cudnn(facts, _):
    """2.5.0 asked cuDNN first, 2.5.1 does not: https://github.com/pytorch/pytorch/issues/138649"""
    text = "PyTorch 2.5.0 lets cuDNN compute attention wherever it can; 2.5.1 does not"
    return text if numbers(facts.packages.get("torch"))[:3] == (2, 5, 0) else None


def _cublas_of_2_10(facts, _):
    """https://github.com/pytorch/pytorch/issues/174949"""
    text = "PyTorch 2.10 for CUDA 12.8 brings cuBLAS 12.8.4.1; another release of cuBLAS works"
    return text if numbers(facts.packages.get("torch"))[:2] == (2, 10) else None


def _wheel_of_other_torch(facts, _):
    """The name of a wheel in the text, ``...+cu128torch2.9.0...``, has another PyTorch than the one here."""
    here = numbers(facts.packages.get("torch"))[:2]
    found = here and facts.wheel_torch and numbers(facts.wheel_torch)[:2] != here
    names = (facts.wheel_torch, facts.packages.get("torch"))
    return "a wheel here is built for PyTorch %s, and %s is installed" % names if found else None


def _wheel_of(facts, detail):
    """NVIDIA's wheel of the library that is not found; None if its name does not tell."""
    remedies = Remedies(facts, detail)
    return remedies.known("toolkit-wheel") if remedies.library_major() else None


def _pin_above_floor(_, detail):
    floor, pin = detail["floor"], detail["pin"]
    return numbers(pin) >= numbers(floor) and "%s is not below %s" % (pin, floor)


_MORE_THAN_THE_CARD = re.compile(
    r"allocate ([\d.]+) ([KMG])iB.{0,30}?(?:; |total capacity of )([\d.]+) ([KMG])iB", re.S
)


def _beyond_card(_, detail):
    """One allocation is larger than the card's whole memory: https://pytorch.org/docs/stable/notes/cuda.html"""
    found = _MORE_THAN_THE_CARD.search(detail["line"])
    if not found:
        return None
    asked, unit, total, of = found.groups()
    more = float(asked) * 1024 ** "KMG".index(unit) > float(total) * 1024 ** "KMG".index(of)
    here = (asked, unit, total, of)
    return more and "the program asks for %s %siB at once, and the card has %s %siB" % here


def _driver_below_build(facts, detail):
    """The driver is below the CUDA of the build here, of its release's wheel on PyPI, or of the image."""
    if not facts.driver_cuda_known:
        return None
    if _cuda_of_build(facts):
        return _driver_old(facts, detail)
    major = facts.image_major or _major_on_pypi(facts, detail)
    api, floor = numbers(facts.driver_cuda), driver_floor(major)
    below = major and (api[0] < major if api else () < numbers(facts.driver) < floor)
    here = (facts.driver or "for CUDA " + (facts.driver_cuda or ""), major, dotted(floor))
    return "driver %s; CUDA %s needs %s" % here if below else None


def _major_on_pypi(facts, detail):
    """The CUDA major version of the wheel that PyPI has of vLLM's or PyTorch's release; None if not known."""
    row = Releases.wheels_of("vllm", facts.packages.get("vllm"))
    if row and row[3]:
        return int(row[3])
    here = "torch" in facts.packages and "windows" not in facts.places and not facts.cpu_told
    default = Remedies(facts, detail, ("torch",)).cuda_of_build() if here else cuda_of_variant(facts)
    return next(iter(default), None)


def _mapping(why):
    return lambda _, detail: why if why in (detail.get("why") or "") else None


def _cudnn_other_here(facts, detail):
    wanted, here = numbers(detail.get("major"))[:1], facts.cudnn_majors()
    if wanted and here and wanted[0] not in here:
        return "cuDNN %d is asked for, and %d is here" % (wanted[0], max(here))
    return None


def _cudnn_wheel_serves(facts, detail):
    wheels = [v for name, v in facts.packages.items() if re.match(r"nvidia-cudnn(-cu\d+)?$", name)]
    asked, loaded = numbers(detail.get("compiled"))[:2], numbers(detail.get("loaded"))
    for wheel in wheels if asked else ():
        if asked[:1] == numbers(wheel)[:1] and asked <= numbers(wheel)[:2] != loaded[:2]:
            return "the wheel of cuDNN %s serves it, and another one takes its place" % wheel
    return None


def _cuda_same(facts, detail):
    number = numbers(detail.get("number"))
    same = number and facts.cuda_majors == {number[0]}
    return "everything here is built for CUDA %d" % number[0] if same else None


def _card(facts, by):
    card = facts.cards[0] if facts.cards else "the card"
    return "%s has compute capability %s, which %s" % (card, facts.capability, by)


def _card_of_build(facts, served):
    """Whether the CUDA of the build that is here has code for the card that is here."""
    capability, cuda = numbers(facts.capability), _cuda_of_build(facts)
    if not capability or not cuda or card_within(cuda, capability) is not served:
        return None
    unserved = _card(facts, "CUDA %s has no code for" % dotted(cuda))
    return "CUDA %s has code for this card" % dotted(cuda) if served else unserved


def card_age(facts):
    """How a card stands to the CUDA of a build that does not know it, as far as both are known."""
    capability, cuda = numbers(facts.capability), _cuda_of_build(facts)
    row = read_facts()["cuda"].get(str(cuda[0])) if cuda else None
    if capability and row and row[1] and capability < numbers(row[1]):
        return "too old for it: CUDA %d begins at compute capability %s" % (cuda[0], row[1])
    if capability and cuda and card_within(cuda, capability) is False:
        return "newer than CUDA %s" % dotted(cuda)
    return "newer than its CUDA (or was dropped by it)"


def _card_listed(facts, detail, listed):
    """Whether the card's major version is among those for which a message found no card to compile."""
    majors, capability = numbers((detail.get("majors") or "").replace(",", ".")), numbers(facts.capability)
    if not majors or not capability or (capability[0] in majors) is not listed:
        return None
    return _card(facts, "it asks for: its nvcc does not know the card" if listed else "it does not ask for")


def _card_from_7_5(facts, newer):
    capability = numbers(facts.capability)
    if not capability or (capability >= (7, 5)) is not newer:
        return None
    return _card(facts, "is not older: its nvcc does not know the card" if newer else "is older")


_FIRST_WITH = (("16BF", (8, 0)), ("bfloat16", (8, 0)), ("4F_", (10, 0)), ("6F_", (10, 0)), ("", (8, 9)))
"""(a type of cuBLAS's, the first compute capability with it): https://docs.nvidia.com/cuda/cublas/index.html"""


def _card_of_type(facts, detail, served):
    """Whether the card computes in the type of number that the message is about."""
    capability = numbers(facts.capability)
    first = next(first for name, first in _FIRST_WITH if name in detail["matched"])
    if not capability or (capability >= first) is not served:
        return None
    by = "has this type" if served else "does not have this type: %s and newer do" % dotted(first)
    return _card(facts, by)


def _torch_serves_card(facts, detail):
    if not Remedies(facts, detail).torch_has_code():
        return None
    cards = " and ".join(sorted(facts.capabilities))
    release = facts.packages.get("torch", "here")
    has = "PyTorch %s has code for compute capability %s" % (release, cards)
    named = [name for name in KERNEL_PACKAGES if name in facts.printed_by]
    return "%s: %s, whose kernel failed, has none" % (has, " or ".join(named) or "another package")


def _card_old(facts, _):
    old = () < numbers(facts.capability) < (5, 0)
    return _card(facts, "cuDNN for CUDA 12 and cuDNN 9 do not serve") if old else None


def _cudnn_too_new_for_card(facts, _):
    new = [v for v in facts.cudnn_here if len(numbers(v)) > 1 and numbers(v)[:2] >= (9, 11)]
    old = () < numbers(facts.capability) < (7, 5)
    return "cuDNN %s serves compute capability 7.5 and newer" % new[0] if new and old else None


def _cuda_of_build(facts):
    """The CUDA that the framework here is built for, as (major, minor), or the most that its release had."""
    if facts.built_cuda:
        return numbers(facts.built_cuda)
    for name in ("torch", "tensorflow", "jaxlib"):
        plus = re.search(r"\+cu(?:da)?(\d\d)(\d)?", facts.packages.get(name) or "")
        if plus:
            return int(plus.group(1)), int(plus.group(2) or 0)
    toolkit = numbers(facts.packages.get("cudatoolkit"))[:2]
    if len(toolkit) == 2:
        return toolkit
    known = facts.packages.get("tensorflow")
    for row in Releases().builds("tensorflow", known) if known and "torch" not in facts.packages else ():
        return numbers(row["cuda"])[:2] or None
    # 1.5 and 1.6 came with 10.2 at the most: https://pytorch.org/get-started/previous-versions/
    return (10, 2) if () < numbers(facts.packages.get("torch")) < (1, 7) else None


def _asks_itself(facts, detail):
    apart = facts.apart
    about = apart and apart.kind == "itself" and apart.name in "%s %s" % (detail["matched"], detail["line"])
    return about and "%s asks this of itself: its files are of two releases" % apart.asked


def _name_of_release(proven):
    """A name that a line asks for and that, by the tables, some releases of its package do not have;
    ``proven``: whether no release in the text contradicts that.
    """

    def condition(facts, detail):
        change = name_change(Remedies(facts, detail))
        if not change or re.search("partially initialized|unknown location", detail["line"] or ""):
            return None
        if change.stray and facts.apart:  # no release of what is imported
            facts.apart.versions.pop(change.package, None)
        return (not change.stray) is proven and change_told(change)

    return condition


def _abi_apart(facts, detail):
    """The C++ ABI that a symbol's name shows, against that of the PyTorch here: PyTorch's own wheels have the
    C++11 one from 2.7 on, and in 2.6 those for CUDA 12.6: https://pytorch.org/blog/pytorch2-6/
    """
    symbol = re.search(r"undefined symbol: (\w+)", detail["line"])
    release = numbers(facts.packages.get("torch"))[:2]
    own = "__cxx11" in symbol.group(1) if symbol else None
    if own is None or not own and not re.search(r"S[sa](?:RK|$|E|S)|RKSs|Ss$", symbol.group(1)):
        return None
    told = getattr(facts, "abi", None)
    if told and own is (told == "True"):
        return None
    if told:
        return (
            "the symbol's name shows the %s C++ ABI, and the PyTorch here has the other one: it prints %s"
            % (
                "new" if own else "old",
                told,
            )
        )
    if not release or release == (2, 6):
        here = "that of a PyTorch before 2.6" if own else "that of PyTorch 2.7 and later"
        return "the symbol's name shows the %s C++ ABI, and %s is the other one" % (
            "new" if own else "old",
            here,
        )
    if own is (release > (2, 6)):
        return None
    python = re.search(r"cpython-(3\d+)", detail["line"])
    name = "torch%scxx11abi%s" % (dotted(release), "FALSE" if own else "TRUE")
    name += "-cp" + python.group(1) if python else ""
    told = "the symbol's name shows the %s C++ ABI, and PyTorch %s has the other one: on the page of the "
    told += "package's releases the wheel is that with %s in its name"
    return told % ("new" if own else "old", facts.packages["torch"], name)


def _dependency_absent(facts, detail):
    """The package whose file imports a module that is not there, of which no part is Python's or its own."""
    asker = facts.import_fails.get(detail.get("absent"))
    known = asker and distribution_of_known(detail["absent"])
    return known and "%s imports %s, which is not installed" % (asker, detail["absent"])


def _of_flag(row):
    name, _, sentence = row.partition(": ")
    return lambda facts, _: getattr(facts, name) and sentence


CONDITIONS = {
    **FACT_FAULTS,
    **TWO_COPIES,
    **OWN_KERNELS,
    **KNOWN_BAD_FAULTS,
    "name-in-prose": name_in_prose,
    "tags-told": tags_told,
    **{name: _of_flag(row) for name, row in read_patterns()["of-flags"].items()},
    "name-of-release": _name_of_release(True),
    "name-of-another-release": _name_of_release(False),
    "name-of-no-release": lambda facts, detail: no_release_told(Remedies(facts, detail)),
    "no-library-refused": lambda facts, _: (
        not facts.jax_library_refused and "no library of its plug-in for CUDA is told to be at fault"
    ),
    "abi-apart": _abi_apart,
    "asks-itself": _asks_itself,
    "left-behind": lambda facts, detail: left_behind_told(Remedies(facts, detail)),
    "cards-unlike": lambda facts, _: (
        len(facts.capabilities) > 1
        and "cards of compute capability %s are here" % " and ".join(sorted(facts.capabilities, key=numbers))
    ),
    "numpy-told-as-compiled": lambda facts, detail: numpy_exchanged(Remedies(facts, detail)),
    "asks-between-two": lambda facts, _: (
        facts.apart
        and facts.apart.kind in ("name", "module")
        and facts.apart.asker not in (None, facts.apart.asked)
        and "what asks names a part in Python, and no compiled one"
    ),
    "dependency-absent": _dependency_absent,
    "not-beside-other-dlls": lambda facts, _: (
        not facts.other_dlls and not facts.torch_alone and "no other package of the same process is named"
    ),
    "not-torch-first": lambda facts, _: (
        not facts.torch_first and "no bare import of PyTorch that fails is told"
    ),
    "attention-told": lambda _, detail: (
        "flash" in str(detail.get("package") or detail.get("gone")).lower()
        and "it is one of several ways to compute attention"
    ),
    "no-module-told": lambda facts, _: (
        not facts.module_told and "the line that says why the build failed is not in the text"
    ),
    "asks-not-itself": lambda facts, detail: (
        not _asks_itself(facts, detail) and "no file of that package asks for it"
    ),
    "driver-below-build": _driver_below_build,
    "unified-memory": lambda facts, _: (
        ("jetson" in facts.places or {(12, 1), (11, 0)} & set(map(numbers, facts.capabilities)))
        and "the card shares its memory with the processor"
    ),
    "cuda-part-absent": lambda _, detail: (
        re.search(r"lib(?:c10|torch)_cuda\.so", detail["matched"])
        and "every build of PyTorch with CUDA has this library, and the one for the CPU has not"
    ),
    "jax-before-card": lambda facts, _: (
        numbers(facts.capability) >= (10, 0)
        and () < numbers(facts.packages.get("jaxlib")) < (0, 5)
        and "jaxlib %s is older than the card" % facts.packages["jaxlib"]
    ),
    "provider-listed": lambda facts, _: (
        (facts.accelerator_listed or facts.no_deps)
        and "its part for CUDA is compiled in: what it needs of CUDA and cuDNN is not here"
    ),
    "library-of-any-cuda": lambda _, detail: (
        _OF_ANY_CUDA.search(detail["matched"])
        and "CUDA 12 and 13 both have this library: none of any is where the loader looks"
    ),
    "dev-package-told": lambda facts, _: (
        facts.no_dev_package
        and facts.kernels_at_run
        and "the library for linking is missing, too: the package with both, -dev, is not installed"
    ),
    "arch-dropped": lambda facts, detail: (
        detail.get("arch")
        and len(detail["arch"]) == 2
        and int(detail["arch"]) < 75
        and numbers(facts.nvcc) >= (13,)
        and "nvcc %s makes no code before compute_75" % facts.nvcc
    ),
    "no-toolkit-told": lambda facts, _: (
        facts.no_toolkit_told
        and (
            "a wheel has the library, and its folder is not where the loader looks"
            if facts.wheels
            else "no CUDA was installed here"
        )
    ),
    "onnxruntime-named": lambda facts, _: (
        "onnxruntime" in facts.named and "torch" not in facts.named and "ONNX Runtime printed it"
    ),
    "bitsandbytes-asks": lambda facts, _: (
        "bitsandbytes" in facts.printed_by
        and len(facts.cuda_majors) < 2
        and "bitsandbytes takes the library for the CUDA of the PyTorch that is here"
    ),
    "container-told": lambda facts, _: (
        (facts.container_told or "container" in facts.places) and "the text is about a container"
    ),
    "card-told": lambda facts, _: facts.cards and "%s is the card" % facts.cards[0],
    "in-build-of-cuda": lambda facts, _: (
        (facts.building or facts.own_build or facts.compiling) and "code of CUDA is compiled"
    ),
    "two-torches": lambda facts, _: (
        len(facts.torches) > 1
        and "PyTorch %s are both named" % " and ".join(dotted(version) for version in sorted(facts.torches))
    ),
    "arch-other": lambda facts, detail: (
        detail.get("arch")
        and facts.capability
        and divmod(int(detail["arch"]), 10) != numbers(facts.capability)[:2]
        and _card(facts, "this build is not for")
    ),
    "same-cuda-told": lambda facts, _: (
        len(facts.cuda_majors) == 1
        and "+cu" in (facts.packages.get("torch") or "")
        and "+cu" in (facts.packages.get("torchcodec") or "")
        and "PyTorch and TorchCodec are built for one CUDA"
    ),
    "memory-free": lambda facts, _: _memory(facts, True),
    "memory-full": lambda facts, _: _memory(facts, False),
    "driver-old": _driver_old,
    "driver-new": _driver_new,
    "driver-past-build": _driver_past_build,
    "architectures-of-nvcc": _architectures_of_nvcc,
    "fails-or-builds": lambda facts, _: (
        (facts.fails or facts.building or facts.own_build or facts.compiling or facts.torch_headers)
        and "a package is compiled for PyTorch"
    ),
    "torch-of-later-standard": lambda facts, _: (
        numbers(facts.packages.get("torch")) >= (2, 13)
        and "PyTorch %s has headers of C++20" % facts.packages["torch"]
    ),
    "driver-before-13": lambda facts, _: (
        "container" not in facts.places
        and () < numbers(facts.driver) < driver_floor(13)
        and "driver %s is older than the CUDA 13 of today's builds asks for" % facts.driver
    ),
    "in-container": lambda facts, _: "container" in facts.places and "it ran in a container",
    "not-nvidia": lambda facts, _: (
        not (facts.driver or facts.cards) and "no card and no driver of NVIDIA's is in this text"
    ),
    "other-graphics": lambda facts, _: (
        facts.other_graphics
        and not (facts.driver or facts.cards)
        and "the graphics that it names are not NVIDIA's"
    ),
    "podman-before-5": lambda facts, _: (
        facts.podman_before_5 and facts.cdi_written and "nvidia-ctk writes the list, and podman 4 is here"
    ),
    "blackwell-closed": lambda facts, _: (
        facts.proprietary_module
        and numbers(facts.capability) >= (10, 0)
        and _card(facts, "the proprietary kernel modules do not serve")
    ),
    "extension-compiled": lambda facts, _: (
        facts.extension_compiled
        and not facts.kernels_at_run
        and "a package is compiled here, and not as it runs"
    ),
    "package-asked": lambda _, detail: (
        not _VARIABLE.match(detail.get("plain") or detail.get("absent") or "")
        and "the message names a package"
    ),
    "card-of-jetson": lambda facts, _: (
        dotted(numbers(facts.capability)[:2]) in read_facts()["boards"]
        and "jetson" in facts.places
        and _card(facts, "FlashInfer does not list")
    ),
    "card-of-12": lambda facts, _: (
        numbers(facts.capability)[:1] == (12,) and _card(facts, "many builds do not serve yet")
    ),
    "cuda-13-here": lambda facts, _: 13 in facts.cuda_named and "the text is about CUDA 13",
    "driver-told": lambda facts, _: facts.driver and "driver %s is here" % facts.driver,
    "tensorflow's-xla": lambda facts, _: (
        {"tensorflow", "jax"} & facts.named == {"tensorflow"}
        and "TensorFlow's own XLA writes PTX of the CUDA that this build was made with, whatever the ptxas"
    ),
    "ptxas-of-xla": lambda facts, _: (
        {"tensorflow", "jax"} & facts.named
        and "torch" not in facts.named
        and "TensorFlow and JAX start the ptxas of the CUDA that they were built with"
    ),
    "ptxas-of-triton": lambda facts, _: (
        facts.named == {"torch"} and "Triton brings a ptxas of the CUDA that it was built with"
    ),
    "two-cuda-named": lambda facts, _: (
        len(facts.cuda_named) == 2 and "the text is about CUDA %d and %d" % tuple(sorted(facts.cuda_named))
    ),
    "numbered-here": lambda facts, detail: (
        (detail["library"] or "").endswith(".so")
        and any(stem == detail["library"] for stem, _ in facts.libraries)
        and "it is there under its name with a number alone"
    ),
    "not-in-container": lambda facts, _: "container" not in facts.places and "no container is told of",
    "in-macos": lambda facts, _: "macos" in facts.places and "it ran on a Mac, which has no card of NVIDIA's",
    "in-windows": lambda facts, _: "windows" in facts.places and "it ran on Windows",
    "in-wsl": lambda facts, _: "wsl" in facts.places and "WSL keeps libcuda in /usr/lib/wsl/lib",
    "wheel-of-other-torch": _wheel_of_other_torch,
    "pin-above-floor": _pin_above_floor,
    "asked-build": lambda facts, _: (
        facts.asked_build and "%s is compiled where pip has no PyTorch" % facts.asked_build
    ),
    "loaded-by-torch": lambda facts, detail: (
        facts.loaded_by_torch
        and Remedies(facts, detail).library_major()
        and "PyTorch is loaded, and brings NVRTC and CUDA's runtime of its own CUDA"
    ),
    "wheel-here": lambda facts, detail: (
        _wheel_of(facts, detail) in facts.wheels
        and "%s is installed: its folder is not where the loader looks" % _wheel_of(facts, detail)
    ),
    "pins-agree": lambda facts, _: (
        not two_that_exclude(facts.requirements) and "no two of these exclude each other"
    ),
    "beyond-card": _beyond_card,
    "memory-own": _memory_own,
    "python-apart": lambda facts, detail: python_apart(Remedies(facts, detail)),
    "cublas-of-2.10": _cublas_of_2_10,
    "other-library-absent": lambda facts, detail: (
        facts.absent_library
        and detail.get("stem") not in facts.absent_library.lower()
        and "%s is what is not found, and none of these wheels has it" % facts.absent_library
    ),
    "devices-counted": lambda facts, _: (
        (facts.devices_counted or facts.cards_listed) and "the driver is there, as it lists the cards"
    ),
    "compiled-for-torch-asks": lambda facts, detail: (
        facts.printed_by & set(KERNEL_PACKAGES) - {"bitsandbytes"}
        and "libcudart" in detail["matched"]
        and "a package that is compiled for PyTorch asks for it: PyTorch brings the runtime of its own CUDA"
    ),
    "no-memory-errno": _mapping("Cannot allocate memory"),
    "no-permission-errno": _mapping("Operation not permitted"),
    "noexec": lambda facts, _: facts.noexec and "%s is mounted noexec" % facts.noexec,
    "torch-of-8": _torch_of_8,
    "onnxruntime-of-9": _onnxruntime_of_9,
    "attention-by-cudnn": _attention_by_cudnn,
    "library-path": lambda facts, _: (
        facts.library_path and "LD_LIBRARY_PATH leads to %s" % facts.library_path
    ),
    "not-the-wheels": _not_the_wheels,
    "nvcc-beside-driver": nvcc_beside_driver,
    "loaded-older": _versions(lambda loaded, compiled: loaded < compiled, "{loaded} is older"),
    "exact-era": _versions(
        lambda loaded, compiled: loaded[0] == compiled[0] and loaded[:2] > compiled[:2],
        "this old build accepts only cuDNN {compiled}, and the one loaded is newer",
    ),
    "other-major": _versions(lambda a, b: a[0] != b[0], "nothing crosses a major version of cuDNN"),
    "cudnn-wheel-serves": _cudnn_wheel_serves,
    "glibc-of-wheels": lambda facts, _: next(iter(glibc_of_wheels(facts) or ()), None),
    "cudnn-9-here": lambda facts, _: (
        9 in facts.cudnn_majors() and "cuDNN 9 is here" or _torch_of(9)(facts, _)
    ),
    "cudnn-8-here": lambda facts, _: facts.cudnn_majors() & {8, 9} == {8} and "cuDNN 8 is here",
    "cudnn-other-here": _cudnn_other_here,
    "cuda-same": _cuda_same,
    "cuda-other": _cuda_other,
    "toolkit-other": _toolkit_other,
    "cuda-named-other": _cuda_named_other,
    "cuda-of-library": _cuda_of_library,
    "card-unserved": lambda facts, _: _card_of_build(facts, False),
    "card-served": lambda facts, _: _card_of_build(facts, True),
    "card-with-type": lambda facts, detail: _card_of_type(facts, detail, True),
    "card-without-type": lambda facts, detail: _card_of_type(facts, detail, False),
    "card-listed": lambda facts, detail: _card_listed(facts, detail, True),
    "card-unlisted": lambda facts, detail: _card_listed(facts, detail, False),
    "card-from-7.5": lambda facts, _: _card_from_7_5(facts, True),
    "card-before-7.5": lambda facts, _: _card_from_7_5(facts, False),
    "torch-serves-card": _torch_serves_card,
    "card-old": _card_old,
    "cudnn-too-new-for-card": _cudnn_too_new_for_card,
}
"""By the names in ``signatures.ini``: functions of the text's facts and of the line's detail."""
