"""What a text tells beside the line that failed, and what that decides: a sentence, or None."""

import re

from .builds import card_within
from .remedies import Remedies
from .versions import dotted, numbers

_AMPLE = 512 << 20
"""Free memory with which cuDNN's handle and a small workspace fit."""


def _if_memory_free(told, _):
    if told.memory_free is not None and told.memory_free >= _AMPLE:
        return "%d MiB of %d MiB were free" % (told.memory_free >> 20, (told.memory_total or 0) >> 20)
    return None


def _if_memory_full(told, _):
    if told.memory_free is not None and told.memory_free < _AMPLE:
        return "%d MiB of %d MiB were free" % (told.memory_free >> 20, (told.memory_total or 0) >> 20)
    return None


def _if_driver_old(told, detail):
    remedies = Remedies(told, detail)
    major = max(told.cuda_majors) if told.cuda_majors else remedies.cuda
    if major is None or not (told.driver or told.driver_cuda):
        return None
    api = numbers(told.driver_cuda)
    floor = numbers((remedies.releases.families.get(str(major)) or {}).get("driver"))
    if (api and api[0] < major) or (floor and numbers(told.driver) and numbers(told.driver) < floor):
        return "driver %s; CUDA %d needs %s" % (
            told.driver or "for CUDA " + told.driver_cuda,
            major,
            dotted(floor),
        )
    return None


def _if_driver_new(told, detail):
    remedies = Remedies(told, detail)
    names = {remedies.framework} - {None} or told.printed_by
    rows = remedies.releases.builds(next(iter(names)), None) if len(names) == 1 else []
    majors = set(told.cuda_majors) or {numbers(row["cuda"])[0] for row in rows if row["cuda"]}
    return remedies.driver_that_serves(max(majors)) if majors else None


def _if_slept(told, _):
    return "the machine slept" if told.slept else None


def _if_cuda_other(told, detail):
    """The library is of another CUDA than the packages, which are all built for one."""
    major = Remedies(told, detail).library_major()
    if not major or len(told.cuda_majors) != 1 or major in told.cuda_majors:
        return None
    here = (detail["library"], major, next(iter(told.cuda_majors)))
    return "%s is of CUDA %d, and the packages here are built for CUDA %d" % here


def _if_no_kernel_module(told, _):
    return "there is no kernel module" if told.no_kernel_module else None


def _if_in_container(told, _):
    return "it ran in a container" if "container" in told.places else None


def _if_hidden(told, _):
    return "CUDA_VISIBLE_DEVICES hides the cards" if told.hidden else None


def _if_cpu_build(told, _):
    return "a build for the CPU is installed" if told.cpu_build else None


def _if_library_path(told, _):
    return "LD_LIBRARY_PATH leads to %s" % told.library_path if told.library_path else None


def _if_not_the_wheels(told, detail):
    """The library that failed is none of the wheels', and PyTorch, which brings its own, is here."""
    found = re.search(r"/\S*/libcudnn\w*\.so\S*?(?=: )", detail.get("line") or "")
    outside = found and not re.search(r"(?:site|dist)-packages|/torch/lib", found.group(0))
    if outside and ("torch" in told.packages or "torch" in told.printed_by):
        return "PyTorch brings its own cuDNN, and the loader took %s" % found.group(0)
    return None


def _versions(detail):
    return numbers(detail.get("loaded")), numbers(detail.get("compiled"))


def _if_loaded_older(_, detail):
    loaded, compiled = _versions(detail)
    return "%s is older" % dotted(loaded) if loaded and compiled and loaded < compiled else None


def _if_exact_era(_, detail):
    """The same major and a newer minor, which was refused: the build demands its own minor version."""
    loaded, compiled = _versions(detail)
    newer = loaded[:1] == compiled[:1] and loaded[:2] > compiled[:2]
    return (
        "this old build accepts only cuDNN %s, and the one loaded is newer" % dotted(compiled[:2])
        if newer
        else None
    )


def _if_other_major(_, detail):
    loaded, compiled = _versions(detail)
    return (
        "nothing crosses a major version of cuDNN"
        if loaded and compiled and loaded[0] != compiled[0]
        else None
    )


def _if_cudnn_9_here(told, _):
    if 9 in told.cudnn_majors():
        return "cuDNN 9 is here"
    version = told.packages.get("torch")
    return "PyTorch %s brings cuDNN 9" % version if version and numbers(version)[:2] >= (2, 4) else None


def _if_cudnn_8_here(told, _):
    majors = told.cudnn_majors()
    return "cuDNN 8 is here" if 8 in majors and 9 not in majors else None


def _if_cudnn_other_here(told, detail):
    wanted = numbers(detail.get("major"))
    others = sorted(told.cudnn_majors() - set(wanted[:1]))
    if wanted and others and wanted[0] not in told.cudnn_majors():
        return "cuDNN %d is asked for, and %d is here" % (wanted[0], others[-1])
    return None


def _if_cuda_same(told, detail):
    number = numbers(detail.get("number"))
    same = number and told.cuda_majors == {number[0]}
    return "everything here is built for CUDA %d" % number[0] if same else None


def _capability(told):
    return numbers(told.capability) or None


def _if_card_unserved(told, _):
    """The build that is here has no code for the card that is here."""
    capability = _capability(told)
    if capability is None:
        return None
    cuda = _cuda_of_build(told)
    if cuda and not card_within(cuda, capability):
        return "%s has compute capability %s, which CUDA %s has no code for" % (
            _card(told),
            told.capability,
            dotted(cuda),
        )
    return None


def _if_card_served(told, _):
    capability, cuda = _capability(told), _cuda_of_build(told)
    return (
        "CUDA %s has code for this card" % dotted(cuda)
        if capability and cuda and card_within(cuda, capability)
        else None
    )


def _if_card_old(told, _):
    capability = _capability(told)
    if capability is not None and capability < (5, 0):
        return "%s has compute capability %s, which cuDNN for CUDA 12 and cuDNN 9 do not serve" % (
            _card(told),
            told.capability,
        )
    return None


def _if_cudnn_too_new_for_card(told, _):
    capability = _capability(told)
    new = [v for v in told.cudnn_here if len(numbers(v)) > 1 and numbers(v)[:2] >= (9, 11)]
    return (
        "cuDNN %s serves compute capability 7.5 and newer" % new[0]
        if new and capability and capability < (7, 5)
        else None
    )


def _card(told):
    return told.cards[0] if told.cards else "the card"


def _cuda_of_build(told):
    """The CUDA that the framework here is built for, as (major, minor), or the most that its release had."""
    for name in ("torch", "tensorflow", "jaxlib"):
        version = told.packages.get(name)
        plus = re.search(r"\+cu(?:da)?(\d\d)(\d)?", version or "")
        if plus:
            return (int(plus.group(1)), int(plus.group(2) or 0))
    version = numbers(told.packages.get("torch"))
    if version and version < (1, 7):
        return (
            10,
            2,
        )  # 1.5 and 1.6 came with 10.2 at the most: https://pytorch.org/get-started/previous-versions/
    return None


CONDITIONS = {
    name[len("_if_") :].replace("_", "-"): value
    for name, value in sorted(globals().items())
    if name.startswith("_if_")
}
