"""Convolution algorithms in reduced precision, in plain Python: each intermediate value is rounded as told.

The transforms are Cook-Toom's for a set of points (A. Lavin and S. Gray, https://arxiv.org/abs/1509.09308,
use 0, 1, -1 for F(2, 3) and 0, 1, -1, 2, -2 for F(4, 3)); a test proves them right in rational arithmetic.
"""

from __future__ import annotations

import cmath
import math
import struct
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

Rounding = "Callable[[float], float]"
POINTS = {2: (0, 1, -1), 4: (0, 1, -1, 2, -2)}


def exactly(value):
    return value


def half(value: float) -> float:
    return struct.unpack("<e", struct.pack("<e", value))[0]


def single(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def tf32(value: float) -> float:
    """Cut off after ten bits of fraction: what a tensor core does to an FP32 operand at worst."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(math.trunc(mantissa * 2048), exponent - 11)


@dataclass(frozen=True)
class Precision:
    """How transforms compute, operands are stored, products are added up, and sums are stored."""

    arithmetic: Rounding
    operands: Rounding
    adding: Rounding
    sums: Rounding


PRECISIONS = {
    "FP32": Precision(single, single, single, single),
    "FP32 by TF32": Precision(single, tf32, single, single),
    "FP16 added up in FP32": Precision(single, half, single, half),
    "FP16 throughout": Precision(half, half, half, half),
}


def polynomial(roots):
    """Coefficients of the product of (t - root), from the constant up."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        coefficients = [
            high - root * low for high, low in zip(shifted, [*coefficients, Fraction(0)], strict=True)
        ]
    return coefficients


def winograd(outputs: int):
    """(B^T, G, A^T) of F(outputs, 3), as rows of fractions."""
    points = [Fraction(point) for point in POINTS[outputs]]
    size = len(points) + 1
    a = [[point**row for point in points] + [Fraction(row == outputs - 1)] for row in range(outputs)]
    g, b = [], []
    for point in points:
        others = [other for other in points if other != point]
        scale = math.prod(point - other for other in others)
        g.append([point**column / scale for column in range(3)])
        b.append([*polynomial(others), Fraction(0)])
    g.append([Fraction(0), Fraction(0), Fraction(1)])
    b.append(polynomial(points))
    assert len(b) == size
    return b, g, a


def transpose(matrix):
    return [list(column) for column in zip(*matrix, strict=True)]


def matmul(left, right, rounded=exactly):
    """Matrix product, every product and every sum rounded."""
    out = []
    for row in left:
        sums = []
        for column in zip(*right, strict=True):
            total = 0
            for a, b in zip(row, column, strict=True):
                if a != 0 and b != 0:
                    term = rounded(a * b)
                    total = term if total == 0 else rounded(total + term)
            sums.append(total)
        out.append(sums)
    return out


def sandwich(left, middle, rounded=exactly):
    """left * middle * left^T."""
    return matmul(matmul(left, middle, rounded), transpose(left), rounded)


def planes(flat, shape):
    """A flat list as nested lists [outer][inner][row][column]."""
    n, c, h, w = shape
    rows = [flat[start : start + w] for start in range(0, n * c * h * w, w)]
    return [[rows[(i * c + j) * h : (i * c + j + 1) * h] for j in range(c)] for i in range(n)]


def flatten(nested):
    return [value for outer in nested for plane in outer for row in plane for value in row]


def padded(plane, before=1, after=5):
    """A plane with zeros around: room for the last tile."""
    width = len(plane[0]) + before + after
    rows = [[0] * before + list(row) + [0] * after for row in plane]
    return [[0] * width] * before + rows + [[0] * width] * after


def tiles(plane, size, step):
    """{(row, column): size x size window} for each output tile of ``step`` by ``step``."""
    wide, height, width = padded(plane), len(plane), len(plane[0])
    return {
        (i, j): [row[j : j + size] for row in wide[i : i + size]]
        for i in range(0, height, step)
        for j in range(0, width, step)
    }


class Winograd:
    """F(m x m, 3 x 3), forward and backward by the filter."""

    def __init__(self, outputs: int, precision: Precision) -> None:
        self.m, self.size, self.to = outputs, outputs + 2, precision
        self.b, g, self.a = winograd(outputs)
        self.g = [[precision.arithmetic(float(v)) for v in row] for row in g]
        self.b = [[float(v) for v in row] for row in self.b]
        self.a = [[float(v) for v in row] for row in self.a]
        self.leave, self.leave_filter = self.a, transpose(self.g)

    def operand(self, matrix, plane):
        return [[self.to.operands(v) for v in row] for row in sandwich(matrix, plane, self.to.arithmetic)]

    def add_up(self, pairs):
        total = [[0.0] * self.size for _ in range(self.size)]
        for u, v in pairs:
            for i, j in product(range(self.size), repeat=2):
                total[i][j] = self.to.adding(total[i][j] + self.to.adding(u[i][j] * v[i][j]))
        return [[self.to.sums(value) for value in row] for row in total]

    def forward(self, x, w):
        """x [c][h][w] and w [k][c][3][3]; y [k][h][w]."""
        u = [[self.operand(self.g, plane) for plane in filters] for filters in w]
        v = [
            {at: self.operand(self.b, tile) for at, tile in tiles(plane, self.size, self.m).items()}
            for plane in x
        ]
        return [self._outputs(filters, v, len(x[0]), len(x[0][0])) for filters in u]

    def _outputs(self, filters, v, height, width):
        y = [[0.0] * width for _ in range(height)]
        for i, j in v[0]:
            sums = self.add_up((u, tile[i, j]) for u, tile in zip(filters, v, strict=True))
            out = sandwich(self.leave, sums, self.to.arithmetic)
            for r, c in product(range(min(self.m, height - i)), range(min(self.m, width - j))):
                y[i + r][j + c] = self.to.sums(out[r][c])
        return y

    def backward_filter(self, x, dy):
        """x [c][h][w] and dy [k][h][w]; dw [k][c][3][3]."""
        v = [
            {at: self.operand(self.b, tile) for at, tile in tiles(plane, self.size, self.m).items()}
            for plane in x
        ]
        back = transpose(self.a)
        s = [
            {
                at: self.operand(back, [row[1 : 1 + self.m] for row in tile[1 : 1 + self.m]])
                for at, tile in tiles(plane, self.size, self.m).items()
            }
            for plane in dy
        ]
        return [[self._gradient(mine, theirs) for theirs in v] for mine in s]

    def _gradient(self, mine, theirs):
        sums = self.add_up((mine[at], theirs[at]) for at in mine)
        out = sandwich(self.leave_filter, sums, self.to.arithmetic)
        return [[self.to.sums(value) for value in row] for row in out]


class Fourier:
    """By an FFT of ``points`` x ``points``, radix two, with complex numbers rounded part by part."""

    def __init__(self, points: int, precision: Precision) -> None:
        self.n, self.to = points, precision

    def rounded(self, value: complex, how) -> complex:
        return complex(how(value.real), how(value.imag))

    def line(self, values, sign):
        if len(values) == 1:
            return list(values)
        even, odd = self.line(values[::2], sign), self.line(values[1::2], sign)
        count, how, out = len(values), self.to.arithmetic, [0j] * len(values)
        for index in range(count // 2):
            turn = self.rounded(cmath.exp(sign * 2j * cmath.pi * index / count), how)
            turned = self.rounded(turn * odd[index], how)
            out[index] = self.rounded(even[index] + turned, how)
            out[index + count // 2] = self.rounded(even[index] - turned, how)
        return out

    def plane(self, plane, sign=-1):
        """The transform of a plane of at most n x n."""
        rows = [list(row) + [0] * (self.n - len(row)) for row in plane]
        rows += [[0] * self.n for _ in range(self.n - len(plane))]
        half_way = transpose([self.line(row, sign) for row in rows])
        return transpose([self.line(column, sign) for column in half_way])

    def operand(self, plane):
        return [[self.rounded(v, self.to.operands) for v in row] for row in self.plane(plane)]

    def correlate(self, pairs, origin, height, width):
        """The sum over the pairs of a correlated with b, from shift ``origin`` on, both ways."""
        total = [[0j] * self.n for _ in range(self.n)]
        for a, b in pairs:
            for i, j in product(range(self.n), repeat=2):
                term = self.rounded(a[i][j] * b[i][j].conjugate(), self.to.adding)
                total[i][j] = self.rounded(total[i][j] + term, self.to.adding)
        # divided first, so that FP16 does not overflow
        kept = [[self.rounded(v, self.to.sums) / self.n**2 for v in row] for row in total]
        back = self.plane(kept, 1)
        return [
            [self.to.sums(back[(i + origin) % self.n][(j + origin) % self.n].real) for j in range(width)]
            for i in range(height)
        ]

    def forward(self, x, w):
        u = [[self.operand(plane) for plane in filters] for filters in w]
        v = [self.operand(plane) for plane in x]
        size = len(x[0]), len(x[0][0])
        return [self.correlate(zip(v, filters, strict=True), -1, *size) for filters in u]

    def backward_filter(self, x, dy):
        v, s = [self.operand(plane) for plane in x], [self.operand(plane) for plane in dy]
        return [[self.correlate([(theirs, mine)], -1, 3, 3) for theirs in v] for mine in s]


class Storing:
    """What storing costs: the bound in :mod:`builder.verify.cudnn_verify.measure.reference`, for unit
    roundoffs of the operands and of the sums. A value that the type holds costs nothing.
    """

    def __init__(self, operands: float, sums: float) -> None:
        self.operands, self.sums = operands, sums

    @staticmethod
    def of(value: complex, u: float) -> float:
        mantissa, _ = math.frexp(value.real)
        digits = mantissa / u
        held = value.imag == 0 and digits == math.trunc(digits)
        return 0.0 if held else u * abs(value)

    def sum_of(self, pairs) -> float:
        pairs = list(pairs)
        each = sum(self.of(a, self.operands) * abs(b) + abs(a) * self.of(b, self.operands) for a, b in pairs)
        return each + self.of(sum(a * b for a, b in pairs), self.sums)


class WinogradBound(Winograd):
    """Gives the error bound of each answer in the place of the answer."""

    def __init__(self, outputs: int, storing: Storing) -> None:
        super().__init__(outputs, Precision(exactly, exactly, exactly, exactly))
        self.storing = storing
        self.leave = [[abs(v) for v in row] for row in self.leave]
        self.leave_filter = [[abs(v) for v in row] for row in self.leave_filter]

    def add_up(self, pairs):
        pairs = list(pairs)
        return [
            [self.storing.sum_of((u[i][j], v[i][j]) for u, v in pairs) for j in range(self.size)]
            for i in range(self.size)
        ]


class FourierBound(Fourier):
    """The same; an FFT spreads the error of each frequency over all answers."""

    def __init__(self, points: int, storing: Storing) -> None:
        super().__init__(points, Precision(exactly, exactly, exactly, exactly))
        self.storing = storing

    def correlate(self, pairs, origin, height, width):
        pairs = list(pairs)
        frequencies = product(range(self.n), repeat=2)
        each = (self.storing.sum_of((a[i][j], b[i][j].conjugate()) for a, b in pairs) for i, j in frequencies)
        return [[sum(each) / self.n**2] * width] * height


class Direct:
    """Products and sums as they come, in the order of the taps."""

    def __init__(self, precision: Precision) -> None:
        self.to = precision

    def forward(self, x, w):
        wide = [padded(plane) for plane in x]
        height, width = len(x[0]), len(x[0][0])
        return [
            [
                [
                    self._sum(
                        (wide[c][i + r][j + s], filters[c][r][s])
                        for c, r, s in product(range(len(x)), range(3), range(3))
                    )
                    for j in range(width)
                ]
                for i in range(height)
            ]
            for filters in w
        ]

    def backward_filter(self, x, dy):
        wide = [padded(plane) for plane in x]
        height, width = len(x[0]), len(x[0][0])
        return [
            [
                [
                    [
                        self._sum(
                            (plane[i + r][j + s], mine[i][j]) for i, j in product(range(height), range(width))
                        )
                        for s in range(3)
                    ]
                    for r in range(3)
                ]
                for plane in wide
            ]
            for mine in dy
        ]

    def _sum(self, pairs):
        total = 0.0
        for a, b in pairs:
            total = self.to.adding(total + self.to.adding(self.to.operands(a) * self.to.operands(b)))
        return self.to.sums(total)


def turned(w):
    """The filters of the backward pass by the data: in and out exchanged, each turned by 180 degrees."""
    return [[[row[::-1] for row in filters[c][::-1]] for filters in w] for c in range(len(w[0]))]


def all_directions(model, data):
    """{"y", "dx", "dw"} of the canonical case by one model, flat."""
    x, w = planes(data["x"], data["x_shape"])[0], planes(data["w"], data["w_shape"])
    dy = planes(data["dy"], data["dy_shape"])[0]
    return {
        "y": flatten([model.forward(x, w)]),
        "dx": flatten([model.forward(dy, turned(w))]),
        "dw": flatten(model.backward_filter(x, dy)),
    }
