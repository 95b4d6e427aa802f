"""Requirements on one package that no version satisfies together."""

import re

from .versions import numbers


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
