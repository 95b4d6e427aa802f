"""Faults that the facts of a text tell together, whatever its lines say: a package beside another one, a
build beside a card or a driver.

Each takes a :class:`~text_facts.TextFacts` and the detail of the line, and gives a sentence if it is so, else
nothing. What decides are the tables that travel with the probe.
"""

import re
from copy import copy
from shlex import quote

from ..common.asking import apart_told
from ..common.command_forms import Command
from ..common.distributions import last_word
from ..common.framework_builds import FrameworkBuilds, card_within, serves
from ..common.package_facts import all_apart, two_of_a_family
from ..common.release_skew import raised_out, works_words
from ..common.remedies import Remedies
from ..common.tables import Releases, cudnn_of_torch, driver_floor, read_facts, read_patterns, told_names
from ..common.toolkit_facts import newest_gcc, nvcc_told
from ..common.torch_facts import audio_past_index
from ..common.versions import cudnn_rule, dotted, numbers, two_that_exclude
from .package_lists import cudnn_past_pin, two_of_one_folder

_MIXED_BY_DEFAULT = ("vllm", "sgl-kernel", "sglang-kernel")
"""Packages whose wheel on PyPI is for one CUDA, and that say nothing of it in their version."""


def family_apart(facts, _):
    apart = two_of_a_family(facts.packages)
    return apart and "%s %s belongs to another release of %s than the %s here" % (
        apart[1],
        facts.packages[apart[1]],
        apart[0],
        facts.packages[apart[0]],
    )


def companions_apart_here(facts, detail):
    """A companion in the text is compiled for another PyTorch, or another CUDA, than the one in it."""
    release, _, variant = (facts.packages.get("torch") or "").partition("+")
    if facts.cpu_told or facts.resolving:  # nothing is installed yet
        return None
    apart = ["%s %s" % (name, facts.packages[name]) for name in all_apart(Remedies(facts, detail))]
    if apart:
        return "%s %s not for PyTorch %s" % (" and ".join(apart), "are" if apart[1:] else "is", release)
    for name in ("torchvision", "torchaudio"):
        other = (facts.packages.get(name) or "").partition("+")[2]
        if variant and other and other != variant and "cpu" not in (other, variant):
            return "%s is built for %s, and PyTorch for %s" % (name, other, variant)
    return None


def triton_apart(facts, _):
    """PyTorch pins the minor release of Triton."""
    torch, here = facts.packages.get("torch"), facts.packages.get("triton")
    wanted = read_patterns()["triton"].get(dotted(numbers(torch)[:2]))
    if not wanted or not here or numbers(here)[:2] == numbers(wanted)[:2]:
        return None
    return "PyTorch %s asks for Triton %s, and %s is here" % (torch, wanted, here)


def jax_apart(facts, _):
    """jaxlib is no newer than JAX, and of its minor release; the plug-in is of jaxlib's own release:
    https://docs.jax.dev/en/latest/jep/9419-jax-versioning.html
    """
    jax, jaxlib = numbers(facts.packages.get("jax")), numbers(facts.packages.get("jaxlib"))
    if jax and jaxlib >= (0, 4) and (jaxlib > jax or (jaxlib[:2] != jax[:2])):
        return "jaxlib %s is not for JAX %s" % (dotted(jaxlib), dotted(jax))
    for name, version in facts.packages.items() if jaxlib else ():
        if re.match(r"jax-cuda\d+-p\w+$", name) and numbers(version) != jaxlib:
            return "%s %s is not for jaxlib %s" % (name, version, dotted(jaxlib))
    return None


def build_without_card(facts, _):
    """A framework's build that a text names has code for none of the cards in it."""
    cards = [numbers(capability) for capability in facts.capabilities]
    if facts.arch_list or not cards or "jetson" in facts.places or any(card < (3, 7) for card in cards):
        return None
    # CuPy's builds differ by the package's name, and compile their kernels here
    named = [name for name in told_names() if name in facts.packages and name != "cupy"]
    name = "torch" if "torch" in named or not named else named[0]
    version = facts.packages.get(name) or ""
    release, _, variant = version.partition("+")
    rows = Releases().builds(_indexed(name), release) if release else []
    rows = [row for row in rows if (row["variant"] == variant if variant else row["default"])]
    told = numbers(facts.built_cuda) or (() if version else cuda_of_variant(facts))
    if variant == "cpu" or not (rows or told):
        return None
    if any(serves(rows[0], card) if rows else card_within(told, card) for card in cards):
        return None
    build = "%s %s" % (name, version) if rows else "CUDA " + dotted(told)
    return "%s has compute capability %s, which %s has no code for" % (
        card_told(facts),
        facts.capability,
        build,
    )


def nvcc_of_other_major(facts, detail):
    """Something is compiled here by the nvcc of another CUDA major version than PyTorch's."""
    build, nvcc = Remedies(facts, detail, ("torch",)).cuda_of_build(), numbers(facts.nvcc)
    known = build and nvcc and "torch" in facts.named and (facts.building or facts.compiling)
    if not known or build[:1] == nvcc[:1]:
        return None
    return "nvcc is of CUDA %s, and PyTorch of CUDA %s" % (dotted(nvcc), dotted(build))


def compiler_that_nvcc_takes(_, detail):
    """PyTorch refuses a GCC that nvcc of the CUDA in the same line accepts."""
    cuda, here = numbers(detail.get("cuda")), detail.get("compiler")
    newest = newest_gcc(cuda)
    if not cuda or newest is None or not here or int(here) > newest:
        return None
    return "the nvcc of CUDA %s accepts GCC up to %d, and GCC %s is here" % (dotted(cuda), newest, here)


def gcc_above_nvcc(facts, _):
    """Something is compiled here by a GCC that is newer than the nvcc here accepts."""
    nvcc = nvcc_told(facts)
    newest = newest_gcc(nvcc)
    if not facts.gcc or newest is None or int(facts.gcc) <= newest:
        return None
    if not (facts.building or facts.compiling):
        return None
    if not nvcc:
        none = "GCC %s is here, and no nvcc on record accepts one above %d" % (facts.gcc, newest)
        return none if facts.cuda_compiled else None
    known = dotted(nvcc) if facts.nvcc else nvcc[0]
    return "GCC %s is here, and the nvcc of CUDA %s accepts GCC up to %d" % (facts.gcc, known, newest)


def driver_without_card(facts, _):
    """Branch 590 of the driver serves cards from compute capability 7.5 on:
    https://github.com/NVIDIA/open-gpu-kernel-modules/issues/696
    """
    cards = [numbers(capability) for capability in facts.capabilities]
    old = cards and all((5, 0) <= card < (7, 5) for card in cards)
    new = numbers(facts.driver) >= (590,) and "windows" not in facts.places
    return old and new and "driver %s no longer serves %s" % (facts.driver, card_told(facts))


def driver_before_card(facts, _):
    """The driver's branch is older than all cards of the text: each is served from the branch on that came
    with the first CUDA for it, https://docs.nvidia.com/datacenter/tesla/drivers/supported-drivers-and-cuda-toolkit-versions.html
    """
    firsts = [first_branch(numbers(capability)[:2]) for capability in facts.capabilities]
    branch = numbers(facts.driver)[:1]
    if not branch or branch[0] < 100 or not firsts or None in firsts or branch[0] >= min(firsts):
        return None
    here = (facts.driver, card_told(facts), min(firsts))
    return "driver %s is older than %s, which is served from branch %d on" % here


def first_branch(card):
    """The first branch of drivers that serves a compute capability (numbers); None if it is not known."""
    rows = read_patterns()["first-branch"].items()
    return next((int(branch) for floor, branch in rows if card >= numbers(floor)), None)


def card_told(facts):
    """The first card of a text by its name; of a series or a bare number "the card"."""
    name = facts.cards[0] if facts.cards else "a card"
    return "the card" if name.startswith("a card") else name


def driver_known_bad(facts, _):
    """A release of the driver on record for crashes, in a text about one, beside a card that it serves."""
    good = read_patterns()["drivers-known-bad"].get(facts.driver or "")
    if not good or not facts.crash_told or driver_without_card(facts, _):
        return None
    return "driver %s is known for crashes and hangs that branch %s does not have" % (facts.driver, good)


def list_with_card(facts, _):
    """The list of ``torch.cuda.get_arch_list()`` in a text has code that its cards run, by their major
    version: a program that looks for the very name of the card finds none, and PyTorch works.
    """
    exact = {numbers(capability)[:2] for capability in facts.capabilities} & facts.arch_list
    if not facts.arch_list or exact or not Remedies(facts, {}).torch_has_code():
        return None
    card = numbers(facts.capability)[:2]
    served = max(code for code in facts.arch_list if code[0] == card[0] and code <= card)
    return "code for sm_%d%d, which is on the list, runs on compute capability %d.%d" % (served + card)


def driver_of_two_versions(facts, _):
    library, module = facts.nvml_library, facts.kernel_module
    if not library or not module or module.startswith(library):
        return None
    return "the driver's library is %s, and its kernel module %s" % (library, module)


def cuda_of_variant(facts):
    """The CUDA (numbers) of the one variant of PyTorch (``cu128``) that a text names; () without one."""
    names = [re.match(r"cu(\d\d)(\d)$", name) for name in facts.variants]
    return tuple(map(int, names[0].groups())) if len(names) == 1 and names[0] else ()


def _indexed(name):
    return {"onnxruntime": "onnxruntime-gpu"}.get(name, name)


def jetson_without_code(facts, _):
    """PyTorch's wheels for ARM have code for data-centre cards, and none for Orin and Xavier:
    https://github.com/pytorch/pytorch/blob/main/.ci/manywheel/build_cuda.sh
    """
    orin = facts.orin or {(8, 7), (7, 2)} & set(map(numbers, facts.capabilities))
    wheel = re.search(r"\+cu1[23]\d$", facts.packages.get("torch") or "") or facts.torch_of_pypi
    return orin and wheel and "PyTorch's own wheels for ARM have no code for compute capability 8.7 and 7.2"


def onnxruntime_of_other_cuda(facts, detail):
    built, here = facts.builds_told.get("onnxruntime-gpu"), numbers(facts.built_cuda)[:1]
    if built and here and (built,) != here:
        return "ONNX Runtime is built for CUDA %d, and PyTorch, whose libraries it takes, for CUDA %d" % (
            built,
            *here,
        )
    remedies = Remedies(facts, detail, ("onnxruntime",))
    majors = {numbers(row["cuda"])[0] for row in remedies.rows if row["cuda"]}
    named = facts.cuda_majors if "torch" in facts.packages else facts.cuda_named or facts.cuda_majors
    named = named - majors or named  # where both are told, the other one is what is here
    both = (1, 17) <= numbers(remedies.version)[:2] < (1, 19)  # an index of their own had those for CUDA 12
    if remedies.framework != "onnxruntime" or both or len(majors) != 1 or len(named) != 1 or majors == named:
        return None
    here = (remedies.version, majors.pop(), next(iter(named)))
    return "ONNX Runtime %s is built for CUDA %d, and the text is about CUDA %d" % here


def cupy_of_other_cuda(facts, _):
    """CuPy's wheel is for one CUDA, and takes the libraries of the machine."""
    built = {
        int(found.group(1)) for found in map(re.compile(r"cupy-cuda(\d\d)x$").match, facts.here) if found
    }
    machine = {numbers(facts.nvcc)[0]} if facts.nvcc else {facts.toolkit or facts.image_major} - {None}
    if len(built) != 1 or len(machine) != 1 or built == machine or "torch" in facts.packages:
        return None
    return "CuPy is built for CUDA %d, and the toolkit here is of CUDA %d" % (built.pop(), machine.pop())


def wheel_of_other_cuda(facts, _):
    """A package's wheel on PyPI is built for another CUDA major version than the PyTorch in the text."""
    variant = re.search(r"\+cu(1\d)\d$", facts.packages.get("torch") or "")
    for name in _MIXED_BY_DEFAULT if variant else ():
        version = facts.packages.get(name) or ""
        row = Releases.wheels_of(name, version) if "+" not in version else None
        if row and row[3] and row[3] != variant.group(1):
            here = (name, version, row[3], facts.packages["torch"])
            return "%s %s on PyPI is built for CUDA %s, and PyTorch is %s" % here
    return None


def cudnn_below_build(facts, detail):
    """The cuDNN wheel in the text is older than the one that its PyTorch, or its jaxlib, is built with."""
    release, _, variant = (facts.packages.get("torch") or "").partition("+")
    rows = Releases().builds("torch", release) if release else []
    built = [row["cudnn"] for row in rows if (row["variant"] == variant if variant else row["default"])]
    jaxlib = re.search(r"\.cudnn(\d)(\d+)$", facts.packages.get("jaxlib") or "")
    built = ["%s.%s" % jaxlib.groups()] if jaxlib else built[:1]
    for version in facts.cudnn_here if facts.cudnn_built else ():
        if cudnn_rule(numbers(facts.cudnn_built)[:2], numbers(version)[:2]) == "cudnn-too-old":
            detail.update(compiled=facts.cudnn_built, loaded=version)
            return "the build is made with cuDNN %s, and %s is here" % (facts.cudnn_built, version)
    for name, version in facts.packages.items() if any(built) else ():
        old = cudnn_rule(numbers(built[0])[:2], numbers(version)[:2]) == "cudnn-too-old"
        if re.match(r"nvidia-cudnn-cu\d+$", name) and old:
            here = ("jaxlib" if jaxlib else "PyTorch " + release, built[0], version)
            return "%s is built with cuDNN %s, and %s is here" % here
    return None


def ctranslate2_of_other_cudnn(facts, _):
    """4.5 and later need cuDNN 9 (none from 4.6.3 on), earlier ones 8:
    https://github.com/OpenNMT/CTranslate2/blob/master/CHANGELOG.md
    """
    version = numbers(facts.packages.get("ctranslate2"))
    if not version or version >= (4, 6, 3) or version < (3,):
        return None
    wanted = 9 if version >= (4, 5) else 8
    brought = cudnn_of_torch(facts.packages)
    here = facts.cudnn_majors() or ({brought} - {None})
    if not here or wanted in here:
        return None
    return "CTranslate2 %s needs cuDNN %d, and %d is here" % (dotted(version), wanted, max(here))


def arm_without_wheel(facts, _):
    """https://huggingface.co/docs/bitsandbytes/main/en/installation"""
    if "aarch64" not in facts.places:
        return None
    version = facts.packages.get("bitsandbytes")
    here = () < numbers(version) < (0, 46)
    return here and "bitsandbytes %s has no wheel for ARM with a library for CUDA" % version


def cpu_build_here(facts, _):
    """The build that is here is one for the CPU, and the text is about a card."""
    card = facts.cards or facts.driver_cuda_known or facts.unavailable or facts.gpu_named
    version = facts.packages.get("torch") or ""
    if not card or "macos" in facts.places:
        return None
    if version.endswith("+cpu") or facts.conda_cpu or facts.built_without_cuda:
        return "the PyTorch that is here is a build for the CPU"
    return None


def tensorflow_without_cuda(facts, _):
    """https://www.tensorflow.org/install/pip#windows-native"""
    if "tensorflow-cpu" in facts.here and "tensorflow" not in facts.here:
        return "tensorflow-cpu is here"
    if (
        "windows" in facts.places
        and "wsl" not in facts.places
        and numbers(facts.here.get("tensorflow")) >= (2, 11)
    ):
        return "TensorFlow %s has no build with CUDA for Windows" % facts.here["tensorflow"]
    return None


def two_onnxruntimes(facts, _):
    both = {"onnxruntime", "onnxruntime-gpu"} <= set(facts.here)
    return both and "onnxruntime and onnxruntime-gpu own one folder: the later one overwrote the other"


def toolkit_known_bad(facts, _):
    """1.19.1: https://github.com/NVIDIA/nvidia-container-toolkit/issues/1967"""
    return facts.container_toolkit == "1.19.1" and "the NVIDIA container toolkit 1.19.1 is here"


def two_cudnn(facts, _):
    """Two releases of one major version of cuDNN."""
    here = sorted({numbers(version)[:2] for version in facts.cudnn_here if len(numbers(version)) > 1})
    apart = [(one, other) for one, other in zip(here, here[1:]) if one[0] == other[0]]
    return apart and "cuDNN %s and %s are both named" % tuple(map(dotted, apart[0])) or None


def pair_unpublished(facts, _):
    """A release of PyTorch is asked for with a CUDA for which none was published, or none is on record."""
    release, _, variant = (facts.torch_asked or "").partition("+")
    rows = Releases().builds("torch", release) if release and variant.startswith("cu") else []
    known = sorted({row["variant"] for row in rows if row["variant"]})
    if not known or variant in known:
        return None
    first, last = map(numbers, read_facts()["complete"]["torch"])
    denied = "none for" if first <= numbers(release) < last else "none is on record for"
    return "PyTorch %s has builds for %s, and %s %s" % (release, ", ".join(known), denied, variant)


def two_nccl(facts, _):
    names = sorted(name for name in facts.packages if re.match(r"nvidia-nccl-cu\d+$", name))
    return (
        "%s own one file, and the later one overwrote the other" % " and ".join(names) if names[1:] else None
    )


def pins_exclude(facts, _):
    found = two_that_exclude(facts.requirements)
    if not found:
        return None
    name, one, other = found
    return "%s wants %s%s, and %s %s" % (_whose(one[0]), name, one[2], _whose(other[0]), other[2])


def _whose(who):
    return " ".join(filter(None, who)) if who else "what is asked for or installed"


def card_after_build(facts, detail):
    """The card is newer than the CUDA that a build or an image is made with, whatever PTX it has: the runtime
    then asks for a newer driver, which is here.
    """
    remedies = Remedies(facts, detail)
    if not remedies.driver_known() or not remedies.driver_serves((12, 8)) or not facts.capability:
        return None
    image = numbers((facts.image_cuda or "")[2:4] + "." + (facts.image_cuda or "")[4:])
    card, told = numbers(facts.capability), (image, remedies.cuda_of_build())
    cuda = next((cuda for cuda in told if cuda and not card_within(cuda, card)), None)
    if not cuda or card < (8, 9):
        return None
    return "CUDA %s is older than compute capability %s, and the driver is new" % (
        dotted(cuda),
        facts.capability,
    )


def list_without_card(facts, _):
    """A list of architectures in the text has none whose machine code the card runs, and the text tells that
    the card is left out: of older code as PTX a driver makes some, which programs with a list do not ask for.
    """
    cards = [numbers(capability)[:2] for capability in facts.capabilities]
    listed = facts.compiled_for
    served = any(_runs(code, card) for code in listed for card in cards)
    if not listed or not cards or not facts.left_out or served:
        return None
    card = card_told(facts)
    told = ", ".join("%d.%d" % code for code in sorted(listed))
    return "%s has compute capability %s, and the list is %s" % (card, facts.capability, told)


def _runs(code, card):
    return code[0] == card[0] and code[1] <= card[1]


def card_before_image(facts, _):
    """CUDA 13 dropped all cards before 7.5:
    https://docs.nvidia.com/cuda/archive/13.0.0/cuda-toolkit-release-notes/index.html
    """
    cards = [numbers(capability) for capability in facts.capabilities]
    if 13 not in facts.image_majors or not cards or not all((3, 0) <= card < (7, 5) for card in cards):
        return None
    return "%s has compute capability %s, and the image is of CUDA 13" % (card_told(facts), facts.capability)


def nvcc_known_bad(facts, _):
    """13.2: https://github.com/ggml-org/llama.cpp/pull/28784"""
    return facts.nvcc == "13.2" and "llama-cpp" in facts.places and "it was compiled by nvcc 13.2"


def toolkit_above_driver(facts, _):
    floor = read_patterns()["toolkit-driver"].get(facts.nvcc or "")
    if not floor or not facts.driver or numbers(facts.driver)[:1] >= numbers(floor)[:1]:
        return None
    return "driver %s; the toolkit of CUDA %s comes with branch %s" % (facts.driver, facts.nvcc, floor)


def release_apart(facts, _):
    """The one CUDA in a text is of a later minor version than its driver came with. Most of it runs by minor
    version compatibility, and what a driver compiles (PTX) does not.
    """
    (release,) = facts.cuda_releases if len(facts.cuda_releases) == 1 else (None,)
    floor = read_patterns()["toolkit-driver"].get(release or "")
    if not floor or not facts.driver or numbers(facts.driver)[:1] >= numbers(floor)[:1]:
        return None
    return "driver %s; CUDA %s comes with branch %s" % (facts.driver, release, floor)


def card_apart(facts, detail):
    """The card, or the series, in a text has no code in any build of the CUDA that it names."""
    cards = [numbers(capability)[:2] for capability in facts.capabilities]
    if facts.arch_list or not cards or "jetson" in facts.places or any(card < (3, 7) for card in cards):
        return None
    variants, majors = sorted(facts.variants), facts.cudas_built
    card = "%s has compute capability %s" % (card_told(facts), facts.capability)
    if len(variants) == 1 and "torch" not in facts.packages:
        rows = [r for r in Releases().builds("torch", None) if r["variant"] == variants[0] and r["archs"]]
        if rows and not any(serves(row, one) for row in rows for one in cards):
            detail["beside"] = variants[0]
            return "%s, and no build of PyTorch for %s has code for it" % (card, variants[0])
    if len(majors) != 1 or facts.built_cuda:
        return None
    major = next(iter(majors))
    if any(card_within((major, 99), one) for one in cards):
        return None
    detail["beside"] = "cu(?:da)?[ :_-]?%d" % major
    return "%s, and CUDA %d makes no code for it" % (card, major)


def driver_apart(facts, detail):
    """The driver in a text is older than the one CUDA that its build, image or packages are of."""
    remedies = Remedies(facts, detail)
    if not remedies.driver_known() or len(facts.cudas_built) != 1:
        return None
    major = next(iter(facts.cudas_built))
    if remedies.driver_serves((major, 0)) or not driver_floor(major):
        return None
    detail["beside"] = "cu(?:da)?[ :_-]?%d" % major
    here = facts.driver or "for CUDA " + facts.driver_cuda
    return "driver %s; CUDA %d needs %s" % (here, major, dotted(driver_floor(major)))


def python_apart_here(facts, detail):
    """The Python in a text is none for which the release in it has wheels."""
    python = numbers(facts.python)[:2]
    for name in ("torch", "tensorflow", "jaxlib") if python else ():
        release = (facts.packages.get(name) or "").partition("+")[0]
        rows = Releases().builds(name, release) if len(numbers(release)) > 1 else []
        ranges = [tuple(map(numbers, row["python"])) for row in rows]
        if ranges and not any(first <= python <= last for first, last in ranges):
            detail.update(name=name, wanted=release, beside=re.escape(release))
            told = (name, release, dotted(ranges[0][0]), dotted(ranges[0][1]), facts.python)
            return "%s %s has wheels for Python %s to %s, and this is Python %s" % told
    return None


def packages_apart(facts, detail):
    """NVIDIA's packages in a text are all of another CUDA major version than its PyTorch."""
    built = re.search(r"\+cu(1\d)\d$", facts.packages.get("torch") or "")
    names = {re.match(r"nvidia-[a-z-]+-cu(1\d)$", name): name for name in [*facts.packages, *facts.wheels]}
    majors = {found.group(1): name for found, name in names.items() if found}
    if not built or not majors or built.group(1) in majors:
        return None
    detail["beside"] = re.escape(facts.packages["torch"])
    return "PyTorch is %s, and %s is of another CUDA" % (facts.packages["torch"], min(majors.values()))


def ollama_above_driver(facts, _):
    """From 0.30 on with a CUDA that is too new for branch 535:
    https://github.com/ollama/ollama/issues/18095
    """
    release, driver = numbers(facts.ollama), numbers(facts.driver)
    old = release >= (0, 30) and () < driver < (550,)
    return (
        "driver %s is here, and Ollama %s brings a newer CUDA" % (facts.driver, facts.ollama) if old else None
    )


def tensorflow_before_colab(facts, _):
    """Colab has CUDA 12 since December 2023, and no TensorFlow before 2.15 is built for it:
    https://github.com/googlecolab/colabtools/issues/4214
    """
    version = facts.packages.get("tensorflow")
    rows = Releases().builds("tensorflow", version) if version and "colab" in facts.places else []
    row = next((row for row in rows if () < numbers(row["cuda"]) < (12,)), None)
    told = (
        "TensorFlow %s is built for CUDA %s and for Python up to %s, and Colab has CUDA 12 and a later Python"
    )
    return told % (version, row["cuda"], row["python"][1]) if row else None


def _image_above_driver(facts, detail):
    """What an image demands, beside what the driver came with and serves."""
    wanted, builds = numbers(detail.get("wanted_cuda"))[:2], FrameworkBuilds(facts, detail)
    here = builds.driver_cuda()[:2]
    if not wanted or not here or here >= wanted:
        return None
    told = "the image demands CUDA %s or newer, and driver %s came with CUDA %s" % (
        dotted(wanted),
        facts.driver or "here",
        dotted(here),
    )
    return told + ", and serves all of CUDA %d" % wanted[0] * builds.driver_serves(wanted)


def whole_way(facts, causes):
    """[:class:`Command`]: one way that satisfies all facts of a text at once, where several of them
    contradict each other by these causes: a driver for the card, then a PyTorch with its companions for card,
    driver and Python. What the tables do not know is asked of ``rtbuild resolve``.
    """
    machine, commands, card = copy(facts), [], numbers(facts.capability)[:2]
    if "driver-card-unsupported" in causes:
        young = (first_branch(card) or 0) > 470 and numbers(facts.driver) < (590,)
        remedies = Remedies(facts, {"requirement": NEWER_BRANCH if young else None})
        commands = remedies.commands("driver-card-unsupported")
        machine.driver, machine.driver_cuda = dotted(driver_floor(13)), None
        if not young and card < (5, 0):
            machine.driver = "470.42.01"
    names = [name for name in ("torchvision", "torchaudio") if name in facts.packages]
    names += [name for name in all_apart(Remedies(facts, {})) if name not in names]
    remedies = Remedies(machine, {}, ("torch",))
    release, _, variant = (facts.packages.get("torch") or "").partition("+")
    stays = not set(causes) & {"driver-too-old", "framework-arch-missing", "build-not-published"}
    row = None if stays or not release else remedies.nearest_torch()
    if row:
        index = row["variant"] or "cu" + "".join(map(str, numbers(row["cuda"])[:2]))
        own = row in remedies.releases.builds("torch", release)
        release, variant = release if own else row["latest"], index
    told = [name for name in told_names() if name in facts.packages]
    if told == ["torch"] and (row or stays) and "jetson" not in facts.places:
        words = remedies.torch_and(names, release, variant)
        text = "pip install --force-reinstall " + " ".join(map(remedies.quoted, words))
        note = "one set that fits what the text says of card, driver, Python and packages"
        return commands + [Command("pip", text, note)]
    card = facts.capability if card_told(facts) == "the card" else card_told(facts)
    text = "rtbuild resolve %s" % " ".join(told or ["torch"])
    text += " --gpu %s" % quote(card) if card else ""
    text += " --driver %s" % machine.driver if numbers(machine.driver) else ""
    return commands + [Command("rtbuild", text, "asks for releases that fit all of these facts at once")]


def _apart(*kinds):
    """The condition that what one package asks of another and does not find is of one of these kinds."""

    def condition(facts, detail):
        apart = facts.apart
        if apart is None or apart.kind not in kinds:
            return None
        detail["apart"] = last_word(apart)
        return apart_told(apart, facts.python)

    return condition


NEWER_BRANCH = "a branch that knows the card"
"""What a signature wants whose driver is older than the card."""
FACT_FAULTS = {
    "driver-in-image": lambda facts, _: (
        facts.driver_in_image and "the text names files of the driver that the image installs"
    ),
    "raised-out": lambda facts, _: raised_out(facts),
    "cuda-works": lambda facts, _: (
        facts.cuda_works
        and "CUDA works here: the cards are there, and the host lacks this library of its own"
    ),
    "works-told": lambda facts, _: (
        works_words(facts) and "it works with %s, as the text says itself" % works_words(facts)
    ),
    "audio-past-index": lambda facts, _: (
        audio_past_index(facts) and "torchaudio is asked of the index %s" % facts.index_asked
    ),
    "image-above-driver": _image_above_driver,
    "releases-apart": _apart("name", "module", "member", "argument", "size", "export"),
    "files-apart": _apart("itself"),
    "part-absent": _apart("part"),
    "symbol-apart": _apart("symbol"),
    "nccl-of-torch": lambda facts, _: (
        facts.apart
        and facts.apart[:3] == ("symbol", "torch", "libnccl")
        and "PyTorch itself asks for it: a copy of the library of another release is loaded"
    ),
    "of-cuda-library": lambda facts, _: (
        facts.apart
        and facts.apart.kind == "symbol"
        and facts.apart.asked.startswith("lib")
        and "%s is of another release than what asks it was built with" % facts.apart.asked
    ),
    "torch-of-two": lambda facts, _: (
        facts.apart
        and facts.apart[:3] == ("itself", "torch", "torch")
        and "PyTorch's own files do not fit each other"
    ),
    "python-took-away": _apart("python-gone"),
    "python-before": _apart("python-new"),
    "card-apart": card_apart,
    "driver-apart": driver_apart,
    "release-apart": release_apart,
    "python-apart-here": python_apart_here,
    "packages-apart": packages_apart,
    "ollama-above-driver": ollama_above_driver,
    "list-without-card": list_without_card,
    "card-before-image": card_before_image,
    "compiler-that-nvcc-takes": compiler_that_nvcc_takes,
    "nvcc-known-bad": nvcc_known_bad,
    "toolkit-above-driver": toolkit_above_driver,
    "card-after-build": card_after_build,
    "family-apart": family_apart,
    "companions-apart": companions_apart_here,
    "triton-apart": triton_apart,
    "jax-apart": jax_apart,
    "build-without-card": build_without_card,
    "nvcc-of-other-major": nvcc_of_other_major,
    "gcc-above-nvcc": gcc_above_nvcc,
    "driver-without-card": driver_without_card,
    "driver-before-card": driver_before_card,
    "driver-known-bad": driver_known_bad,
    "list-with-card": list_with_card,
    "driver-of-two-versions": driver_of_two_versions,
    "jetson-without-code": jetson_without_code,
    "onnxruntime-of-other-cuda": onnxruntime_of_other_cuda,
    "cupy-of-other-cuda": cupy_of_other_cuda,
    "wheel-of-other-cuda": wheel_of_other_cuda,
    "cudnn-below-build": cudnn_below_build,
    "ctranslate2-of-other-cudnn": ctranslate2_of_other_cudnn,
    "arm-without-wheel": arm_without_wheel,
    "cpu-build-here": cpu_build_here,
    "tensorflow-before-colab": tensorflow_before_colab,
    "tensorflow-without-cuda": tensorflow_without_cuda,
    "two-onnxruntimes": two_onnxruntimes,
    "two-of-one-folder": two_of_one_folder,
    "cudnn-past-pin": cudnn_past_pin,
    "toolkit-version-bad": toolkit_known_bad,
    "two-cudnn": two_cudnn,
    "pair-unpublished": pair_unpublished,
    "two-nccl": two_nccl,
    "pins-exclude": pins_exclude,
}
"""By the names in ``signatures.ini``."""
