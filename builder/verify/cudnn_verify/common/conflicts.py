"""Requirements that exclude each other, as installers print them: what satisfies both sides.

Each takes a :class:`~remedies.Remedies`; None is for what is not known.
"""

import re

from .framework_builds import torch_index
from .known_bad import for_torch_here
from .release_skew import may_move
from .toolkit_facts import text_of
from .versions import may_meet, numbers, two_that_exclude


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
    found = sorted({name + spec for name, spec in told if name not in ("torch", "pip")})
    return [for_torch_here(remedies, one) for one in found] or None


def _override(remedies):
    """The requirement for uv in place of the pin of a library of NVIDIA's."""
    name, pinned, other = _conflict(remedies) or (None, None, None)
    ours = name and name.startswith("nvidia-")
    return name + other[2].replace(" ", "") if ours and pinned is not other else None


def _within_bound(remedies):
    """The package whose bound holds, as it is asked for, and what it bounds within that: where the user alone
    wants another release of that.
    """
    name, one, other = _conflict(remedies) or (None, None, None)
    user = [row for row in (one, other) if row and not row[0]]
    held = [row for row in (one, other) if row and row[0]]
    if len(user) != 1 or not may_move(name):
        return None
    who, release = held[0][0]
    exact = release and re.match(r"\d[\w.]*$", release)
    return ["%s==%s" % (who, release) if exact else who, name + re.sub(r"\s|,$", "", held[0][2])]


def _freed(remedies):
    """The two packages that ask for a third one, without pins, so that the installer takes releases of both
    that go together; one that is built for a PyTorch or a CUDA stays as it is.
    """
    name, one, other = _conflict(remedies) or (None, None, None)
    asking = [row[0] for row in (one, other) if row and row[0]]
    free = [who for who, _ in asking if may_move(who)]
    if len(asking) != 2 or asking[0][0] == asking[1][0] or not free:
        return None
    exact = {who: release for who, release in asking if re.match(r"\d[\w.]*$", release or "")}
    if len(free) < 2 and len(exact) < 2:
        return None
    return sorted(who if who in free else "%s==%s" % (who, exact[who]) for who, _ in asking)


_OF_CONDA = re.compile(r"Could not solve for environment|LibMamba|UnsatisfiableError: The following|[├└]─ \w")

CONFLICT_FACTS = {
    "conda-solver": lambda r: _OF_CONDA.search(text_of(r.here)) is not None,
    "agreed": _with_its_pin,
    "override": _override,
    "asked-instead": _missed,
    "within-bound": _within_bound,
    "conda-within-bound": lambda r: " ".join(map(r.quoted, _within_bound(r) or ())) or None,
    "freed": _freed,
}
"""By the names in ``causes.ini``."""
