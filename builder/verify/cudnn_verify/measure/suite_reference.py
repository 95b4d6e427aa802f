"""References of the suites in double precision, and how far a right result may be off.

The reference functions take arrays of float64 of NumPy or PyTorch alike: they use operators alone.

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

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "tf32": 2.0**-10}
UNIT.update({"float16": 2.0**-11, "bfloat16": 2.0**-8, "float8_e4m3fn": 2.0**-4})
"""Unit roundoff; TF32 may be cut off."""
PRODUCT, LAPACK = "Higham 3.5, tensor cores by Fasi et al.", "LAPACK Working Note 41, threshold 30"
FOURIER, MOVED = "Higham, theorem 24.2", "Monte Carlo arithmetic in float64"
EXACT, CHANCE = "whole numbers, exact", "six and a half standard deviations"
WHOLE = "whole numbers, the nearest"
"""Of a convolution whose algorithm the framework chooses: :mod:`reference`."""
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
    """Of uniform numbers: mean, variance, correlation of neighbours, share of distinct ones, how many are as
    in the draw before, the smallest, the largest, and the share of ones in each of the first 16 bits.
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
    """Of normal numbers: the first four moments, correlation of neighbours, share of distinct ones, how many
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
