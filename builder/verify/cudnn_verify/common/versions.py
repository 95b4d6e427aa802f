"""Version numbers, requirements on them, and NVIDIA's rule for which cuDNN serves which build."""

import functools
import re


def cudnn_tuple(number):
    """``cudnnGetVersion()`` as (major, minor, patch).

    Up to cuDNN 8 the number is major*1000 + minor*100 + patch, from 9 on major*10000 + minor*100 + patch:
    https://docs.nvidia.com/deeplearning/cudnn/backend/latest/api/overview.html
    """
    number = int(number)
    scale = 10000 if number >= 90000 else 1000
    return number // scale, number % scale // 100, number % 100


def cuda_tuple(number):
    """A CUDA version number such as 12040 as (major, minor)."""
    return int(number) // 1000, int(number) % 1000 // 10


def dotted(parts):
    """(9, 10, 2) as ``9.10.2``; None stays None."""
    return None if parts is None else ".".join(str(part) for part in parts)


def numbers(text):
    """The leading dotted number of a version text as a tuple: ``8.9.4.25`` -> (8, 9, 4, 25); () if none."""
    return _numbers_of(str(text or ""))


@functools.lru_cache(maxsize=8192)
def _numbers_of(text):
    found = re.match(r"\s*v?(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in found.group(1).split(".")) if found else ()


def cudnn_rule(compiled, loaded, strict=False):
    """The cause id that forbids this pair of cuDNN versions, or None if it is allowed.

    From cuDNN 7 on a library x.y serves whatever was built for x.z with z <= y, patches do not matter, and
    nothing crosses a major version:
    https://docs.nvidia.com/deeplearning/cudnn/backend/latest/developer/forward-compatibility.html
    Both arguments are tuples of at least one number; a compiled version known only by its major (TensorFlow
    says ``9``) is compared by its major. ``strict`` demands equality in as many parts as both have.
    """
    if not compiled or not loaded:
        return None
    if compiled[0] != loaded[0]:
        return "cudnn-major-mismatch"
    shared = min(len(compiled), len(loaded), 3)
    if strict and compiled[:shared] != loaded[:shared]:
        return "cudnn-not-equal"
    if len(compiled) > 1 and len(loaded) > 1 and loaded[1] < compiled[1]:
        return "cudnn-too-old"
    return None


def pins_of(text):
    """``>=1.13.1,<2`` as [(operator, version)]."""
    return re.findall(r"(===|==|~=|!=|<=|>=|<|>)\s*([^,\s]+)", text)


def satisfies(version, pins):
    """Whether a version meets all (operator, version) pins; only the numbers are compared."""
    return all(_meets(numbers(version), operator, wanted) for operator, wanted in pins)


def two_that_exclude(requirements):
    """(package, statement, statement) of the first two that no version satisfies, one that pins a version
    first; None if all may hold together. Statements are those of ``TextFacts.requirements``.
    """
    for index, one in enumerate(requirements):
        for other in requirements[:index]:
            if one[1] == other[1] and one[0] != other[0] and not may_meet(one[2], other[2]):
                pinned = one if "==" in one[2] and one[0] else other
                return (one[1], pinned, other if pinned is one else one)
    return None


def may_meet(one, other):
    parts = re.findall(r"(\^|[<>=!~]+)\s?(\d[\w.*+!-]*)", one + "," + other)
    bounds = [(operator, text.partition("+")[0]) for operator, text in parts]
    tried = [numbers(text.rstrip(".*x")) for _, text in bounds]
    tried += [version + (1,) for version in tried] + [(0,)]
    return any(all(_meets(version, *bound) for bound in bounds) for version in tried)


def _meets(version, operator, text):
    exact, wild = numbers(text.rstrip(".*x")), text.endswith(("*", "x"))
    size = max(len(version), len(exact))
    here, bound = (v + (0,) * (size - len(v)) for v in (version, exact))
    if operator in ("==", "===", "!=", "="):
        same = version[: len(exact)] == exact if wild else here == bound
        return same is (operator != "!=")
    if operator in ("~=", "^"):
        fixed = len(exact) - 1 if operator == "~=" else 1
        return here >= bound and here[:fixed] == bound[:fixed]
    return {">": here > bound, ">=": here >= bound, "<": here < bound}.get(operator, here <= bound)
