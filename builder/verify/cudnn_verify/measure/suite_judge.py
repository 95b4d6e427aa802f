"""Whether the results of a suite are right: numbers beside their reference and bound, and where they lie; and
the release of NCCL that is loaded, beside that of the wheel it came in.

:func:`judge_results` is a pure function over :func:`suite_row` values, so that tests can ask it about results
that no card here gives.

References are computed in double precision: their functions take arrays of float64 of NumPy or PyTorch alike,
and use operators alone.

**Where bounds come from.** Products of matrices: |fl(AB) - AB| <= g |A||B| elementwise (N. J. Higham,
Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.5); tensor cores cut off where they add,
which doubles the unit (M. Fasi et al., Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science
7:e330, 2021). Decompositions: a residual below 30 n u |A|, the threshold of LAPACK's own tests (LAPACK
Working Note 41). FFT: Higham, theorem 24.2. Longer computations (attention, training, a fused kernel): the
reference is computed again with each intermediate result moved at random by up to a unit roundoff of the
type that stores it, which is Monte Carlo arithmetic (D. S. Parker, UCLA CSD-970002, 1997); the bound is a
multiple of the distance between them. Every stored value is moved, so a kernel that keeps some of them in a
wider type is closer to the reference.

**Why a multiple of the moved distance, and which.** Take rounding errors as independent with mean zero, which
is what bounds of sqrt(n) u rest on (N. J. Higham and T. Mary, A new approach to probabilistic rounding error
analysis, SIAM J. Sci. Comput. 41, A2815-A2835, 2019). Rounding to the nearest has a mean square of at most
u^2 / 3 where the bits that fall away are uniform, and a move, even from -u to u, has just that one. So to
first order the mean square of the 2-norm of a right result's error is at most that of the moved ones: a
factor of 1 is derived. The margin above it is measured, not derived. Of 60 operands of training and of
attention, rounded to the nearest in each step, each result of one pass came to at most 0.97 of the moved root
mean square, the losses of six steps to 1.24. Cut to the next coarser type, results came to 2.19 at least in
bfloat16 and to 1.37 in float16 (the smallest gradient; all others 1.93). ``TIMES`` lies between; the largest
difference of one element is held to a measured bound, too, in multiples of the largest move seen.

**Each row's norm.** The 2-norm of all hides one wrong row among hundreds. To first order the error of a row
(over the last axis) is a linear map of those independent errors, and its squared 2-norm is distributed about
as a multiple of chi-squared with d = (tr C)^2 / tr C^2 degrees of freedom, C its covariance (G. Box, Some
theorems on quadratic forms, Ann. Math. Stat. 25, 290-302, 1954); 1 / d is about the mean square of the cosine
between two moves of it. So its ratio to the mean square of 8 moves has about Fisher's F distribution with d
and 8 d degrees of freedom. A row is held to ``TIMES`` the root of the quantile that one of all rows exceeds
once in ``ONCE_IN`` results. Where d is near 1, eight moves tell no such quantile; the norm of all remains.
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

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "tf32": 2.0**-10}
UNIT.update({"float16": 2.0**-11, "bfloat16": 2.0**-8, "float8_e4m3fn": 2.0**-4})
"""Unit roundoff; TF32 may be cut off."""
PRODUCT, LAPACK = "Higham 3.5, tensor cores by Fasi et al.", "LAPACK Working Note 41, threshold 30"
FOURIER, MOVED = "Higham, theorem 24.2", "Monte Carlo arithmetic in float64"
EXACT, CHANCE = "whole numbers, exact", "six and a half standard deviations"
WHOLE = "whole numbers, the nearest"
"""The bound of a convolution whose algorithm the framework chooses: :mod:`reference`."""
MOVES = 8
TIMES = 1.5
"""How many times the root mean square of the moves the 2-norm of a result of one pass may be off."""
ONCE_IN = 1e6
"""In how many results a row would exceed its bound if a right result's error were as large as the moves."""
NEEDS = {"float16": (5, 3), "bfloat16": (8, 0), "tf32": (8, 0), "float8_e4m3fn": (8, 9)}
"""The compute capability from which a card computes in a type."""


def product_bound(a, b, dtype):
    """How far each element of a product of these operands may be off; ``dtype`` is that of the operands."""
    terms, size = a.shape[-1], abs(a) @ abs(b)
    if dtype == "float64":
        return (terms + 2) * 2 * UNIT[dtype] * size
    inner = 2.0**-13 if dtype.startswith("float8") else 2 * UNIT["float32"]
    off = (terms + 2) * inner * size
    if dtype == "tf32":
        off = off + 2 * UNIT["tf32"] * size
    stored = {"float16": "float16", "bfloat16": "bfloat16", "float8_e4m3fn": "bfloat16"}.get(dtype)
    return off + UNIT[stored] * (abs(a @ b) + off) if stored else off


def invertible(u, s, v):
    """The matrix of a decomposition with 1 added to each singular value: none is so small that a result
    without it is near enough.
    """
    return u * (s + 1.0) @ v


def moved_bounds(compute, arrays, unit, noise, rounds=MOVES):
    """[(reference, largest, norm, rows)] of each result of ``compute(arrays, r)``.

    ``r`` is called with each intermediate result and gives it back, moved or not. ``noise(array)``: numbers
    from -1 to 1 in the shape of an array. ``largest`` is the greatest distance of one element that was seen,
    ``norm`` the root mean square of the 2-norms, ``rows`` what each row's 2-norm may be beside it.
    """
    wanted = compute(arrays, lambda value: value)
    moved = [compute(arrays, lambda value: value * (1.0 + unit * noise(value))) for _ in range(rounds)]
    found = []
    for one, others in zip(wanted, zip(*moved)):
        offs = [other - one for other in others]
        norm = (sum(float((off * off).sum()) for off in offs) / rounds) ** 0.5
        largest = max(float(abs(off).max()) for off in offs)
        found.append((one, largest, norm, [min(row, norm) for row in _row_norms(offs)] or [norm]))
    return found


def bounds_of(moved, times, largest):
    """The judge's bounds for one result of :func:`moved_bounds`: ``times`` its norms, ``largest`` times its
    greatest distance.
    """
    _, distance, norm, rows = moved
    return {"largest": largest * distance, "norm": times * norm, "rows": [times * row for row in rows]}


def _row_norms(offs):
    """How large each row's 2-norm may be, of its moves; of an array without rows nothing."""
    width = offs[0].shape[-1]
    if len(offs[0].shape) < 2:
        return []
    products = {
        (at, to): (one * other).sum(-1).reshape(-1).tolist()
        for at, one in enumerate(offs)
        for to, other in enumerate(offs[: at + 1])
    }
    count, found = len(products[0, 0]), []
    normal = normal_quantile(1.0 / ONCE_IN / count)
    for row in range(count):
        squares = [products[at, at][row] for at in range(len(offs))]
        if not min(squares):
            found.append(float("inf"))
            continue
        cosines = [
            products[pair][row] ** 2 / (squares[pair[0]] * squares[pair[1]])
            for pair in products
            if pair[0] != pair[1]
        ]
        freedom = min(len(cosines) / sum(cosines), float(width))
        found.append(
            (sum(squares) / len(offs) * fisher_quantile(freedom, len(offs) * freedom, normal)) ** 0.5
        )
    return found


def normal_quantile(chance):
    """The number that a normal one exceeds so rarely."""
    low, high = 0.0, 40.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if math.erfc(middle / 2**0.5) / 2 > chance else (low, middle)
    return high


def fisher_quantile(freedom, other, normal):
    """Fisher's F at a normal quantile by Paulson's approximation (Ann. Math. Stat. 13, 233-235, 1942)."""
    a, b, z = 2.0 / (9.0 * freedom), 2.0 / (9.0 * other), normal * normal
    square = (1.0 - b) ** 2 - z * b
    if square <= 0.0:
        return float("inf")
    half = (1.0 - a) * (1.0 - b)
    return ((half + (half * half - square * ((1.0 - a) ** 2 - z * a)) ** 0.5) / square) ** 3


def softmax_of(scores):
    """The weights over the last axis; -1e30 hides a key."""
    raised = 2.718281828459045 ** (scores - _largest(scores))
    return raised / raised.sum(-1)[..., None]


def _largest(scores):
    """The largest value of all: it cancels out, and keeps the powers finite."""
    return float(scores.max())


def attention_reference(arrays, r):
    """[output, dq, dk, dv] of attention over (heads, tokens, width), of q, k, v, dy and a mask to add."""
    q, k, v, dy, mask = arrays
    scale, turned = q.shape[-1] ** -0.5, lambda array: array.swapaxes(-1, -2)
    weights = r(softmax_of(r(r(r(q) @ turned(r(k))) * scale) + mask))
    out = r(weights @ v)
    dv = r(turned(weights) @ dy)
    grown = r(dy @ turned(v))
    slope = r(weights * (grown - (dy * out).sum(-1)[..., None]))
    return [out, r(r(slope @ k) * scale), r(r(turned(slope) @ q) * scale), dv]


def tanh_of(value):
    raised = 2.718281828459045 ** (2.0 * value)
    return (raised - 1.0) / (raised + 1.0)


def train_reference(arrays, r, steps, rate):
    """[gradients of the first step: w1, b1, w2; then w1, b1, w2 at the end; the losses as one array].

    A layer of tanh and a linear one, mean square error, gradient descent; ``arrays``: x, targets, w1, b1, w2.
    The weights and what is added to them stay in full precision, as AMP keeps them.
    """
    x, targets, w1, b1, w2 = arrays
    losses, first = x.sum(-1)[:steps] * 0.0, None
    for step in range(steps):
        low = r(w1), r(b1), r(w2)
        hidden = r(tanh_of(r(r(x) @ low[0] + low[1])))
        off = r(hidden @ low[2]) - targets
        losses[step] = (off * off).sum() / float(off.shape[0] * off.shape[1])
        dy = r(off * (2.0 / (off.shape[0] * off.shape[1])))
        dh = r(r(dy @ low[2].swapaxes(0, 1)) * (1.0 - hidden * hidden))
        slopes = r(r(x).swapaxes(0, 1) @ dh), r(dh.sum(0)), r(hidden.swapaxes(0, 1) @ dy)
        first = first or slopes
        w1, b1, w2 = w1 - rate * slopes[0], b1 - rate * slopes[1], w2 - rate * slopes[2]
    return list(first) + [w1, b1, w2, losses]


def adam_reference(arrays, r, count, rate):
    """The weights after steps of Adam with its authors' defaults (D. Kingma and J. Ba, arXiv:1412.6980,
    algorithm 1); ``arrays``: ``count`` weights, then their gradients in each step.
    """
    weights, first, second = list(arrays[:count]), [0.0] * count, [0.0] * count
    for step in range(1, len(arrays) // count):
        for at in range(count):
            slope = arrays[step * count + at]
            first[at] = r(0.9 * first[at] + 0.1 * slope)
            second[at] = r(0.999 * second[at] + 0.001 * r(slope * slope))
            root = r(r((second[at] / (1.0 - 0.999**step)) ** 0.5) + 1e-8)
            weights[at] = r(weights[at] - r(rate / (1.0 - 0.9**step) * r(first[at] / root)))
    return weights


def fused_reference(arrays, r):
    """[each row's sum, the gradient by x] of z * sigmoid(z), z = x * w + b; the sums' gradients are 1."""
    x, w, b = arrays
    z = r(r(x * w) + b)
    gate = r(1.0 / r(1.0 + r(2.718281828459045 ** (-z))))
    return [r(r(z * gate).sum(-1)), r(r(gate * r(1.0 + r(z * r(1.0 - gate)))) * w)]


def encoder_reference(arrays, r, heads):
    """[output] of one layer of an encoder, normalized before each part and at the end, over (tokens, width).

    ``arrays``: x; weights and bias of the queries, keys and values as one, of the output, and of both layers
    of ReLU, each as (inputs, outputs); gain and bias of the three normalizations.
    """
    x, into, into_bias, out, out_bias, up, up_bias, down, down_bias = arrays[:9]
    gains = arrays[9:]
    tokens, width = x.shape
    low = r(r(_normalized(x, gains[0], gains[1], r)) @ r(into) + into_bias)
    q, k, v = [
        low[:, at * width : (at + 1) * width].reshape(tokens, heads, -1).swapaxes(0, 1) for at in range(3)
    ]
    weights = r(softmax_of(r(r(q @ k.swapaxes(-1, -2)) * (width // heads) ** -0.5)))
    mixed = r(weights @ v).swapaxes(0, 1).reshape(tokens, width)
    x = r(x + r(mixed @ r(out) + out_bias))
    hidden = r(_normalized(x, gains[2], gains[3], r) @ r(up) + up_bias)
    x = r(x + r(r(hidden * (hidden > 0)) @ r(down) + down_bias))
    return [_normalized(x, gains[4], gains[5], r)]


def _normalized(x, gain, bias, r):
    off = x - x.mean(-1)[..., None]
    return r(r(off / ((off * off).mean(-1)[..., None] + 1e-5) ** 0.5) * gain + bias)


def uniform_moments(values, older, distinct):
    """Moments of uniform numbers: mean, variance, correlation of neighbours, share of distinct ones, how many
    are as in the draw before, the smallest, the largest, and the share of ones in each of the first 16 bits.
    """
    centred = values - 0.5
    found = [float(values.mean()), float((centred * centred).mean())]
    found += [float((centred[1:] * centred[:-1]).mean()), distinct / float(len(values))]
    found += [float((values == older).sum()), float(values.min()), float(values.max())]
    # a number of 1.0, as curand draws it, has no such bits, and is one in millions
    return found + [float(((values * 2.0**bit) % 2.0 >= 1.0).sum()) / len(values) for bit in range(1, 17)]


def uniform_bounds(count):
    """(the moments of ``count`` uniform numbers, how far each may be off)."""
    off = 6.5 / count**0.5
    bounds = [off / 12.0**0.5, off / 180.0**0.5, off / 12.0, 0.01, 8.0, 0.01, 0.01] + [off / 2.0] * 16
    return [0.5, 1 / 12.0, 0.0, 1.0, 0.0, 0.0, 1.0] + [0.5] * 16, bounds


def normal_moments(values, older, distinct):
    """Moments of normal numbers: the first four, correlation of neighbours, share of distinct ones, how many
    are as in the draw before.
    """
    found = [float((values**power).mean()) for power in (1, 2, 3, 4)]
    found += [float((values[1:] * values[:-1]).mean()), distinct / float(len(values))]
    return found + [float((values == older).sum())]


def normal_bounds(count):
    """(the moments of ``count`` normal numbers, how far each may be off)."""
    off = 6.5 / count**0.5
    bounds = [off, off * 2.0**0.5, off * 15.0**0.5, off * 96.0**0.5, off, 0.01, 8.0]
    return [0.0, 1.0, 0.0, 3.0, 0.0, 1.0, 0.0], bounds


def convolution_bounds(data, terms, dtype):
    """{answer: {"largest": how far each element may be off, "norm": the 2-norm of all or None}} of a
    convolution that multiplies and adds: Higham 3.5.

    ``data``: :func:`reference.fresh_real`'s; ``terms``: {answer: products in an element at most}. The output
    is summed in float32, or float64, and rounded once; a gradient in a short type may be summed in that type.
    Then each partial sum is rounded, with a mean square of at most u^2 / 3 of its own: ``norm`` is ``TIMES``
    the root of their sum.
    """
    bounds = {}
    for name, most in terms.items():
        sums = "float64" if dtype == "float64" else "float32"
        inner, stored, norm = (most + 2) * 2 * UNIT[sums], 0.0, None
        if dtype != sums:
            stored = UNIT[dtype]
        if stored and name != "y":
            inner += most * stored
            norm = TIMES * stored * (data["walks"][name] / 3.0) ** 0.5
        largest = [
            inner * size + stored * (abs(value) + inner * size)
            for size, value in zip(data["sizes"][name], data[name])
        ]
        bounds[name] = {"largest": largest, "norm": norm}
    return bounds


def boxes_to_suppress(below):
    """([x1, y1, x2, y2] in whole numbers, distinct scores, two thresholds); ``below(n)``: one of 0 to n - 1.

    The thresholds lie so near below and above the overlap of two boxes that the boxes kept differ, and that
    one of both is wrong where overlaps are worked out in float16 or TF32, which have 11 bits.
    """
    while True:
        boxes = [[below(80), below(80)] for _ in range(120)]
        boxes = [box + [at + 5 + below(35) for at in box] for box in boxes]
        scores = [float(at * 1024 + below(1024)) for at in sorted(range(120), key=lambda _: below(1 << 20))]
        for thresholds in _decisive(boxes, suppressed(boxes, scores, 0.437)):
            if len({tuple(suppressed(boxes, scores, threshold)) for threshold in thresholds}) > 1:
                return boxes, scores, thresholds


def _decisive(boxes, kept):
    """Thresholds around overlaps of kept boxes that are more in 11 bits than they are."""
    for at, first in enumerate(kept):
        for second in kept[:at]:
            overlap = _overlap(boxes[first], boxes[second])
            short, less = _in_bits(overlap, 11), overlap * (1 - 4e-5)
            if overlap > 0.3 and short > overlap * (1 + 8e-5) and _in_bits(less, 11) == short:
                yield less, (overlap + short) / 2


def _in_bits(value, bits):
    fraction, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(fraction, bits)), exponent - bits)


def suppressed(boxes, scores, threshold):
    """The boxes that non-maximum suppression keeps, the best first; boxes are (x1, y1, x2, y2)."""
    order, kept = sorted(range(len(boxes)), key=lambda at: -scores[at]), []
    for at in order:
        if all(_overlap(boxes[at], boxes[other]) <= threshold for other in kept):
            kept.append(at)
    return kept


def _overlap(one, other):
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    both = max(width, 0) * max(height, 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return both / (areas[0] + areas[1] - both)


def resized(image, side):
    """A square image (a list of rows) in another size, by bilinear interpolation between pixel centres."""
    places = [_between(at, len(image), side) for at in range(side)]
    rows = [[row[i] * (1 - t) + row[j] * t for i, j, t in places] for row in image]
    return [[rows[i][c] * (1 - t) + rows[j][c] * t for c in range(side)] for i, j, t in places]


def resize_bound(size, largest):
    """How far a value may be off: its place is rounded by a unit of the size, and each of six operations."""
    return (4.0 * size + 6.0) * UNIT["float32"] * 2.0 * float(largest)


def _between(at, size, side):
    """(pixel before, pixel after, share of the one after) of a place in the new size."""
    place = max((at + 0.5) * size / side - 0.5, 0.0)
    before = int(place)
    return before, min(before + 1, size - 1), place - before


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
