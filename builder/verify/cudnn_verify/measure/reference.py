"""A convolution in whole numbers: the answer that a GPU has to give, computed by plain Python.

**Why the answers are exact.** Every value is -1, 0 or 1, so every product and every partial sum is a whole
number of at most 64, which FP32, TF32, FP16 and BF16 all represent. An algorithm that multiplies and adds the
numbers themselves (direct, implicit GEMM, GEMM) rounds nowhere, in any order of adding, whatever the type of
its accumulator: it has to give the answer exactly.

**How far a transform may be off.** Winograd and FFT transform the numbers, and round what they store. With
the unit roundoff u of the stored type, a stored value v carries an error of at most u|v|, or none where v is
representable. Let U and V be the transformed operands, M = sum of U*V over the reduction, and s the factor
with which an element of M enters an answer (|A| x |A| for Winograd, 1/N^2 for an FFT of N x N points); then

    error <= sum of |s| * (sum of (dU |V| + |U| dV) + dM)

(the first-order running error bound: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed.,
sections 3.3 and 24.1; for Winograd B. Barabasz et al., https://arxiv.org/abs/1803.10986; the transforms are
those of A. Lavin and S. Gray, https://arxiv.org/abs/1509.09308). FP16 stores U, V and M with u = 2^-11; TF32
may cut U and V off, u = 2^-10, and keeps M in FP32; arithmetic is FP32, because the convolution descriptor
says so. F(2x2, 3x3) has only powers of two in it and is exact here; for F(4x4, 3x3) the bound is 0.38, for
FFTs of 16 and 32 points 0.09. A unit test evaluates the bound, and simulates each algorithm in each type.

**Why a stored answer is of no use.** :func:`fresh_answers` gives each run another of 36,864 variants of the
case: channels and filters in another order and with other signs. A variant changes no absolute value in the
bound above, so the bound of one holds for all.

Answers are whole numbers, so a wrong tap, channel or sign makes one wrong by 1 at least: both bounds are
below half of that, and to make it so the case is thinned out (half of x and dy and a third of w are 0).
"""

import os
from itertools import permutations, product

ROUNDING = {"direct": 0.0, "fft": 0.1, "winograd": 0.45}
"""How far an answer to :func:`case` may be off, by the kind of algorithm, in FP32 (with TF32) and in FP16."""


def _signs(count, one_in, state):
    """``count`` numbers, 2 of ``one_in`` of them 1 or -1 and the rest 0, and the state for the next call.

    The generator is the sample implementation of rand() in ISO C.
    """
    values = []
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        values.append({0: 1, 1: -1}.get((state >> 16) % one_in, 0))
    return values, state


def case():
    """The canonical case: x 1x3x8x8, w 4x3x3x3, dy 1x4x8x8, padding 1, stride 1; flat lists in NCHW order."""
    x, state = _signs(1 * 3 * 8 * 8, 4, 4)
    w, state = _signs(4 * 3 * 3 * 3, 3, state)
    dy, _ = _signs(1 * 4 * 8 * 8, 4, state)
    shapes = {"x_shape": (1, 3, 8, 8), "w_shape": (4, 3, 3, 3), "dy_shape": (1, 4, 8, 8)}
    return dict(shapes, x=x, w=w, dy=dy)


_CHANNELS, _FILTERS = list(permutations(range(3))), list(permutations(range(4)))
_SIGN_CHOICES = 2**3 * 2**4 * 2
VARIANTS = len(_CHANNELS) * len(_FILTERS) * _SIGN_CHOICES


def variant(number):
    """The canonical case in another form; ``number`` is below VARIANTS, and 0 is the case itself.

    Signs: a for each channel of x, r for each filter; w has r * a, dy has r * e. So every product in y has
    the sign r, every one in dx e * a, and sums keep their absolute values, of transformed operands as well.
    """
    data = case()
    rest, index = divmod(number, len(_CHANNELS))
    channels = _CHANNELS[index]
    rest, index = divmod(rest, len(_FILTERS))
    filters = _FILTERS[index]
    signs = [-1 if rest >> bit & 1 else 1 for bit in range(8)]
    a, r, e = signs[:3], signs[3:7], signs[7]
    planes = {
        "x": [(channel, a[channel]) for channel in channels],
        "w": [(k * 3 + channel, r[k] * a[channel]) for k in filters for channel in channels],
        "dy": [(k, r[k] * e) for k in filters],
    }
    for name, chosen in planes.items():
        size, values = data[name + "_shape"][-1] ** 2, data[name]
        data[name] = [sign * value for at, sign in chosen for value in values[at * size : (at + 1) * size]]
    return data


def fresh_answers():
    """:func:`answers` of a variant that nobody could foresee; its number is ``variant``."""
    number = int.from_bytes(os.urandom(8), "little") % VARIANTS
    return dict(answers(variant(number)), variant=number)


def _taps(x_shape, w_shape, stride=1, dilation=1, groups=1):
    """Yield (index in x, index in w, index in y) of every product; padding is half the size of the filter,
    which is odd, so that a stride of 1 keeps the size.
    """
    (n, c), (k, depth), sizes, taps = x_shape[:2], w_shape[:2], x_shape[2:], w_shape[2:]
    outs = [(size - 1) // stride + 1 for size in sizes]
    near = []
    for iy, place in enumerate(product(*map(range, outs))):
        for iw, tap in enumerate(product(*map(range, taps))):
            at = [p * stride + (t - size // 2) * dilation for p, t, size in zip(place, tap, taps)]
            if all(0 <= here < size for here, size in zip(at, sizes)):
                ix = 0
                for here, size in zip(at, sizes):
                    ix = ix * size + here
                near.append((ix, iw, iy))
    planes = [len(list(product(*map(range, shape)))) for shape in (sizes, taps, outs)]
    for image, out, channel in product(range(n), range(k), range(depth)):
        of_x = (image * c + out // (k // groups) * depth + channel) * planes[0]
        of_w, of_y = (out * depth + channel) * planes[1], (image * k + out) * planes[2]
        for ix, iw, iy in near:
            yield of_x + ix, of_w + iw, of_y + iy


def bias_relu(y, bias, channels):
    """max(0, y + bias), the fused tail of a training call; ``y`` is NCHW with N = 1."""
    plane = len(y) // channels
    return [max(0, value + bias[index // plane]) for index, value in enumerate(y)]


def answers(data=None):
    """A case, the canonical one if none is given, with y = x * w and the gradients of sum(y * dy)."""
    data = data or case()
    y, dx, dw = [[0] * len(data[name]) for name in ("dy", "x", "w")]
    for ix, iw, iy in _taps(data["x_shape"], data["w_shape"], *data.get("how", ())):
        y[iy] += data["x"][ix] * data["w"][iw]
        dx[ix] += data["dy"][iy] * data["w"][iw]
        dw[iw] += data["dy"][iy] * data["x"][ix]
    return dict(data, y=y, dx=dx, dw=dw)


class Kind(object):
    """A convolution of another kind than the canonical one.

    ``operands`` and ``answers``: a case's names of what goes in (input, filter, gradient of the output) and
    of what comes out (output and both gradients). A transposed convolution is the gradient of one. With its
    channels last comes the canonical case; no transform that rounds more serves the other kinds.
    """

    def __init__(self, name, x_shape, w_shape, stride=1, dilation=1, groups=1):
        self.name, self.stride, self.dilation, self.groups = name, stride, dilation, groups
        self.transposed, self.last = name == "transposed", name == "channels last"
        self.dimensions = len(x_shape) - 2
        outs = tuple((size - 1) // stride + 1 for size in x_shape[2:])
        self.shapes = {"x": x_shape, "w": w_shape, "dy": (x_shape[0], w_shape[0]) + outs}
        self.operands, self.answers = ("x", "w", "dy"), ("y", "dx", "dw")
        if self.transposed:
            self.operands, self.answers = ("dy", "w", "x"), ("dx", "y", "dw")

    def fresh(self):
        """:func:`answers` of fresh numbers, with the shape of each."""
        if self.last:
            return fresh_answers()
        state, data = int.from_bytes(os.urandom(4), "little"), {}
        for name, one_in in (("x", 4), ("w", 3), ("dy", 4)):
            shape = data[name + "_shape"] = self.shapes[name]
            data[name], state = _signs(len(list(product(*map(range, shape)))), one_in, state)
        return answers(dict(data, how=(self.stride, self.dilation, self.groups)))

    def fresh_real(self, bits):
        """:func:`answers` of fresh numbers from -1 to 1 of this many bits; ``sizes``: the sums of the
        products' absolute values; ``walks``: {answer: the sum of the squares of all its partial sums}.
        Whole numbers do not show the precision of operands and of sums; these do. A stride of 2 keeps
        algorithms away that transform what they multiply.
        """
        data = {"how": (self.stride, self.dilation, self.groups)}
        for name in ("x", "w", "dy"):
            shape = data[name + "_shape"] = self.shapes[name]
            drawn = [int.from_bytes(os.urandom(8), "little") for _ in product(*map(range, shape))]
            data[name] = [(number % 2 ** (bits + 1) - 2**bits) / 2.0**bits for number in drawn]
        sizes = dict(data)
        for name in ("x", "w", "dy"):
            sizes[name] = [abs(value) for value in data[name]]
        return dict(answers(data), sizes=answers(sizes), walks=_walks(data))


def _walks(data):
    sums, walks = {"y": {}, "dx": {}, "dw": {}}, {"y": 0.0, "dx": 0.0, "dw": 0.0}
    for ix, iw, iy in _taps(data["x_shape"], data["w_shape"], *data["how"]):
        terms = ("y", iy, data["x"][ix] * data["w"][iw]), ("dx", ix, data["dy"][iy] * data["w"][iw])
        for name, at, term in terms + (("dw", iw, data["dy"][iy] * data["x"][ix]),):
            sums[name][at] = sums[name].get(at, 0.0) + term
            walks[name] += sums[name][at] ** 2
    return walks


STRIDED = Kind("strided, real numbers", (2, 8, 5, 5), (4, 8, 3, 3), stride=2)
"""The kind of :meth:`Kind.fresh_real`; small: a long sum's error in float16 hides that of a coarser type."""
STRIDED_TERMS = {"y": 72, "dx": 16, "dw": 18}
"""{answer: products in an element of it at most}"""
CONVOLUTION_KINDS = (
    Kind("3D", (1, 3, 4, 5, 6), (4, 3, 3, 3, 3)),
    Kind("depthwise", (2, 8, 9, 7), (8, 1, 3, 3), groups=8),
    Kind("dilated", (2, 3, 9, 8), (4, 3, 3, 3), dilation=2),
    Kind("transposed", (2, 3, 9, 7), (4, 3, 3, 3), stride=2),
    Kind("channels last", (1, 3, 8, 8), (4, 3, 3, 3)),
)


def largest_difference(found, wanted):
    """The largest absolute difference of two flat lists; a NaN or a missing element is infinite."""
    distances = [abs(a - b) for a, b in zip(found, wanted)]
    if len(found) != len(wanted) or any(distance != distance for distance in distances):
        return float("inf")
    return max([0.0] + distances)
