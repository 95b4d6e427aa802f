"""Whether the results of a suite are right: numbers beside their reference and bound, and where they lie; and
the release of NCCL that is loaded, beside that of the wheel it came in.

:func:`judge_results` is a pure function over :func:`suite_row` values, so that tests can ask it about results
that no card here gives.
"""

import math
import os
import re

from ....core.suites import SUITES
from ..common.distributions import canonical
from ..common.versions import numbers
from .cuda import CudaError, ctypes, open_library
from .fw_common import is_gpu_name
from .library_files import mapped_paths

SUITE_CHECKS = {"linalg": "W01", "attention": "W02", "compile": "W03", "train": "W04"}
SUITE_CHECKS.update({"vision": "W05", "loader": "W06", "comm": "W07", "infer": "W08", "conv-kinds": "W09"})
"""The check of each suite; ``conv`` is C07 and F05."""
SUITE_SECONDS = {"compile": 60, "others": 30}
"""Limit of one suite in one framework, from the end of the framework's import.

Measured in processor seconds on a core of 2026, without a card: PyTorch's ``compile`` takes 20 (3 of them to
import Dynamo and Inductor, which ``import torch`` does not), everything else 6 at most.
"""
ON_CARD = "device memory of card "
"""How the driver's answer about an address on a card begins; the card's number follows."""


def suite_row(what, found, wanted, basis, largest=None, norm=None, rows=None, devices=(), memory=()):
    """One result beside its reference.

    ``found`` and ``wanted``: flat lists of numbers. ``largest``: bound of each absolute difference, a number
    or a list. ``norm``: bound of the 2-norm of all differences. One of the two at least. ``rows``: bounds of
    the 2-norm in each row, of so many rows of one length. ``basis``: where the bounds come from. ``devices``:
    the framework's names of the devices of the results; ``memory``: the driver's words on their addresses.
    """
    row = {"what": what, "found": found, "wanted": wanted, "basis": basis, "largest": largest, "norm": norm}
    row["rows"] = rows
    return dict(row, devices=list(devices), memory=list(memory))


def judge_results(rows):
    """{ran, worst, faults} of the results of a suite; no result at all is a fault.

    ``worst``: {what, error, bound, basis} of the result that comes closest to its bound, or goes farthest
    beyond it. ``faults``: [{what, fault: "device" or "numbers", says}].
    """
    faults, worst, top = [], None, -1.0
    for row in rows:
        elsewhere = _elsewhere(row)
        if elsewhere:
            says = "%s lies in %s" % (row["what"], elsewhere)
            faults.append({"what": row["what"], "fault": "device", "says": says})
        share, error, bound = _measure(row)
        if not share <= 1.0:
            told = (row["what"], error, bound)
            faults.append(
                {"what": row["what"], "fault": "numbers", "says": "%s is off by %g; bound %g" % told}
            )
        if not share <= top:
            top = share if share == share else float("inf")
            worst = {"what": row["what"], "error": error, "bound": bound, "basis": row["basis"]}
    if not rows:
        faults.append({"what": "all of it", "fault": "numbers", "says": "there is no result"})
    return {"ran": len(rows), "worst": worst, "faults": faults}


def _elsewhere(row):
    """The first place of a result that is no card's, by the framework's word or by the driver's; or None."""
    if not row["devices"] or not row["memory"]:
        return "a place that nobody named"
    others = [name for name in row["devices"] if not is_gpu_name(name)]
    return next(iter(others + [word for word in row["memory"] if not word.startswith(ON_CARD)]), None)


def _measure(row):
    """(share of the bound, error, bound) of the measure that comes closest to its bound.

    A NaN, a missing element, a bound that is none and a result without a bound have an infinite share.
    """
    off = [abs(a - b) for a, b in zip(row["found"], row["wanted"])]
    nothing = not off or (row["largest"] is None and row["norm"] is None)
    if nothing or len(row["found"]) != len(row["wanted"]) or not all(map(math.isfinite, off)):
        return float("inf"), float("inf"), 0.0
    measures = []
    if row["norm"] is not None:
        measures.append((_norm(off), row["norm"]))
    if row["rows"] is not None:
        width, left = divmod(len(off), len(row["rows"]))
        if left:
            return float("inf"), max(off), 0.0
        measures += [
            (_norm(off[at * width : (at + 1) * width]), bound) for at, bound in enumerate(row["rows"])
        ]
    if row["largest"] is not None:
        bounds = row["largest"] if isinstance(row["largest"], list) else [row["largest"]] * len(off)
        if len(bounds) != len(off):
            return float("inf"), max(off), 0.0
        measures.append(max(zip(off, bounds), key=lambda pair: _share(*pair)))
    error, bound = max(measures, key=lambda pair: _share(*pair))
    return _share(error, bound), error, bound


def _norm(values):
    return math.sqrt(sum(value * value for value in values))


def _share(error, bound):
    if not 0.0 <= bound < float("inf"):
        return float("inf")
    return error / bound if bound else (float("inf") if error else 0.0)


def suite_rows(asked, checks, facts):
    """The report's ``suites``: one row for each suite asked for and each framework that has it.

    {suite, framework, outcome, reason, ran, worst, seconds, basis}; ``framework`` None: none here has it.
    """
    rows = []
    for suite in [name for name in SUITES if name in asked]:
        mine = list(filter(None, (_row_of(suite, check) for check in checks)))
        for framework, reason in (facts.get("suites_left") or {}).get(suite, []):
            mine.append(dict(_empty(suite, framework), reason=reason))
        rows += mine or [dict(_empty(suite, None), reason="no framework here has it")]
    return rows


def _empty(suite, framework):
    row = dict.fromkeys(("reason", "worst", "seconds"))
    return dict(row, suite=suite, framework=framework, outcome="not_run", ran=0, skipped={}, results=[])


def _row_of(suite, check):
    """The row that a check makes, or None: each framework convolves in F05, cuDNN by itself in C07."""
    conv = {"C07": "cudnn", "F05": check["stage"]}.get(check["id"])
    if suite == "conv" and conv:
        row = dict(_empty(suite, conv), outcome=check["outcome"], reason=None)
        ran = _convolved(check["evidence"])
        if check["outcome"] != "passed":
            return dict(row, reason=check["summary"])
        worst = max(ran, key=lambda one: _share(one["error"], one["bound"])) if ran else None
        return dict(row, ran=len(ran), worst=worst)
    if check["id"] != SUITE_CHECKS.get(suite, "") and check["stage"] != suite:
        return None
    evidence, outcome = check["evidence"], check["outcome"]
    row = dict(_empty(suite, evidence.get("framework")), outcome=outcome)
    row.update({key: evidence[key] for key in row if key in evidence})
    return row if outcome == "passed" else dict(row, reason=check["summary"])


def _convolved(evidence):
    """[{what, error, bound, basis}] of the convolutions in the evidence of C07 or F05."""
    basis = "proven rounding error of the algorithm"
    told = "%(format)s %(direction)s, algorithm %(algorithm)s"
    found = [
        {"what": told % row, "error": row["difference"], "bound": row["allowed"], "basis": basis}
        for row in evidence.get("rows") or ()
    ]
    for dtype, row in (evidence.get("types") or {}).items():
        for answer, off in row["differences"].items():
            found.append({"what": "%s %s" % (dtype, answer), "error": off, "bound": 0.45, "basis": basis})
    return found


# -- where a result lies, by the driver's word on its address

_POINTER_TYPE, _POINTER_CARD = 2, 9  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE, _DEVICE_ORDINAL
PINNED = "pinned memory of the host"
_KINDS = {1: PINNED, 2: ON_CARD, 3: "an array", 4: "memory of both"}


def place_of_address(driver, address):
    """``device memory of card 0``, or another place; ``driver`` None: there is no card."""
    if driver is None or not address:
        return "memory of the host"
    try:
        kind = driver.number("cuPointerGetAttribute", _POINTER_TYPE, address, kind=ctypes.c_uint)
        card = driver.number("cuPointerGetAttribute", _POINTER_CARD, address)
    except CudaError as error:
        return "no memory of CUDA (%s)" % error
    return _KINDS.get(kind, "memory of kind %d" % kind) + ("%d" % card if kind == 2 else "")


_NCCL = re.compile(r"libnccl\.so(\.|$)")


def version_of_nccl(packages, row):
    """([a row like ``row`` about the release], None), or ([], why there is none)."""
    # mapped_libraries has CUDA's and cuDNN's alone
    loaded = [path for path in sorted(mapped_paths() or ()) if _NCCL.match(os.path.basename(path))]
    wheels = [one for name, one in packages.items() if canonical(name).startswith("nvidia-nccl-cu")]
    if not loaded or not wheels:
        return [], "it comes from no wheel of NVIDIA's here"
    number = ctypes.c_int(0)
    open_library(loaded[0]).ncclGetVersion(ctypes.byref(number))
    # 10000 major + 100 minor + patch, from 2.9 on (nccl.h)
    said = [number.value // 10000, number.value // 100 % 100, number.value % 100]
    wanted = list(numbers(wheels[0]["version"])[:3])
    told = dict(row, what="NCCL is that of %(name)s %(version)s" % wheels[0])
    return [dict(told, found=[float(part) for part in said], wanted=[float(part) for part in wanted])], None
