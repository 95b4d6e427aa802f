"""Suites whose operands and references are NumPy's. An adapter gives its framework's operations alone."""

import os
import re

from ..common.tables import read_patterns
from ..common.versions import dotted, numbers
from .cuda import Driver
from .fw_common import is_gpu_name
from .reference import CONVOLUTION_KINDS, ROUNDING
from .suite_judge import (
    CHANCE,
    EXACT,
    FOURIER,
    LAPACK,
    MOVED,
    NEEDS,
    PRODUCT,
    TIMES,
    UNIT,
    WHOLE,
    attention_reference,
    bounds_of,
    boxes_to_suppress,
    fused_reference,
    invertible,
    moved_bounds,
    normal_bounds,
    normal_moments,
    place_of_address,
    product_bound,
    resize_bound,
    resized,
    suite_row,
    suppressed,
    train_reference,
    uniform_bounds,
    uniform_moments,
)


class ArraySuites(object):
    """``device``: the framework's card, or its CPU. A suite is a method that gives its rows.

    ``skipped``: {what: why}. Operands come from a seed that nobody could foresee. Of an adapter's own:
    ``send(array, dtype)``: an array of NumPy on the device, ``numbers(tensor)``: a tensor as NumPy's float64,
    ``place(tensor)``: ([its devices by the framework's word], its address), and an operation, over tensors,
    for each that its suites ask for: see there.
    """

    products = ("float64", "float32", "tf32", "float16", "bfloat16")
    attentions = ("operations",)
    masks = ("causal",)
    halves = ("float16", "bfloat16")

    def __init__(self, framework, device):
        import numpy

        self.ctx, self.api, self.np, self.device = framework.ctx, framework.api, numpy, device
        self.random = numpy.random.RandomState(int.from_bytes(os.urandom(4), "little"))
        self.skipped, self.driver, self.capability = {}, None, None
        self.lacking = self.lacks()
        if self.lacking:
            return
        self.start()
        if is_gpu_name(str(device)):
            self.numbers(self.send(numpy.zeros(1)))  # a context, for which the driver answers
            self.driver = Driver(self.ctx)
            gpus = self.ctx.facts.get("gpus") or [{}]
            self.capability = numbers(gpus[0].get("compute_capability"))

    def lacks(self):
        """The lack of this release of the framework for any suite, or None; called before all else."""

    def start(self):
        """Called before the first tensor."""

    def run(self, suite):
        if self.lacking:
            self.skipped[suite] = self.lacking
            return []
        return getattr(self, suite.replace("-", "_"))()

    # -- arrays

    def fresh(self, *shape):
        return self.random.standard_normal(shape)

    def rounded(self, array, dtype):
        """Numbers that a type holds exactly, as float64; those of bfloat16 are cut off."""
        if dtype != "bfloat16":
            return array.astype(dtype).astype("float64")
        bits = array.astype("float32").view("uint32") & self.np.uint32(0xFFFF0000)
        return bits.view("float32").astype("float64")

    def noise(self, array):
        return self.random.uniform(-1.0, 1.0, array.shape)

    def unit(self, dtype):
        """By how much what is stored is moved. The sums of float32 are rounded, too; those of shorter types
        are kept in float32.
        """
        return UNIT[dtype] * (16 if dtype == "float32" else 1)

    def moved(self, compute, arrays, unit):
        return moved_bounds(compute, arrays, unit, self.noise)

    def poison(self, dtype, *shapes):
        """Fill memory of the size of these results with NaN, and free it: the allocator lends it next."""
        held = [self.send(self.np.full(shape, float("nan")), dtype) for shape in shapes for _ in range(2)]
        self.numbers(held[-1])
        del held

    def row(self, what, tensor, wanted, basis, found=None, **bounds):
        """A row about a tensor; ``found``: other numbers than its own, which were worked out of it."""
        bounds = {key: bound for key, bound in bounds.items() if bound is not None}
        for key, bound in bounds.items():
            bounds[key] = self.np.ravel(bound).tolist() if self.np.ndim(bound) else float(bound)
        values = self.numbers(tensor) if found is None else found
        devices, address = self.place(tensor)
        where = {"devices": devices, "memory": [place_of_address(self.driver, address)]}
        right = self.np.ravel(wanted).astype("float64").tolist()
        return suite_row(what, self.np.ravel(values).tolist(), right, basis, **dict(bounds, **where))

    def moved_rows(self, what, parts, tensors, wanted, times, lined=True):
        """Rows about the results of one computation, bound by Monte Carlo arithmetic; ``lined``: each row of
        a result, too.
        """
        rows = []
        for part, tensor, moved, factor in zip(parts, tensors, wanted, times):
            bounds = bounds_of(moved, factor, 2.0 * factor)
            bounds["rows"] = bounds["rows"] if lined else None
            rows.append(self.row("%s: %s" % (what, part), tensor, moved[0], MOVED, **bounds))
        return rows

    def offered(self, dtype):
        """True if the device has this type; of a card that lacks it that is noted."""
        if self.capability and self.capability < NEEDS.get(dtype, (0, 0)):
            self.skipped[dtype] = "compute capability %s has none" % dotted(self.capability)
            return False
        return bool(self.driver) or dtype != "tf32"

    def tried(self, what, dtype, operation, *arguments):
        """The operation's result. None where the framework says that it has none for such numbers, which is
        noted; on a card there has to be one for float32 and float64.
        """
        try:
            return operation(*arguments)
        except Exception as error:
            refusal = read_patterns()["said-by-frameworks"]["not-offered"] + "|CPU implementations do not yet"
            wanted = self.driver and dtype not in self.halves
            if wanted or not re.search(refusal, str(error)):
                raise
            self.skipped[what] = str(error).splitlines()[0][:200]
            return None

    # -- linalg

    def linalg(self):
        """``product(a, b, dtype)``, ``svd(a)``: u, s, v with a = u s v, ``cholesky(a)``; ``fourier(x)``: the
        parts in a last axis; ``uniform(count)`` and ``normal(count)``, or None.
        """
        rows = []
        for dtype in filter(self.offered, self.products):
            stored = "float32" if dtype == "tf32" else dtype
            a, b = self.rounded(self.fresh(160, 96), stored), self.rounded(self.fresh(96, 144), stored)
            one, other = self.send(a, stored), self.send(b, stored)
            self.poison(stored, (160, 144))
            what, bound = "product in %s" % dtype, product_bound(a, b, dtype)
            found = self.tried(what, dtype, self.product, one, other, dtype)
            if found is not None:
                rows.append(self.row(what, found, a @ b, PRODUCT, largest=bound))
        for dtype in ("float64", "float32"):
            rows += self._decompositions(dtype)
        return rows + self._random_numbers()

    def _decompositions(self, dtype):
        size, np = 32, self.np
        a = self.rounded(invertible(*np.linalg.svd(self.fresh(size, size))), dtype)
        near = 30.0 * size * UNIT[dtype] * np.linalg.norm(a)
        u, s, v = self.svd(self.send(a, dtype))
        back = self.numbers(u) * self.numbers(s) @ self.numbers(v)
        rows = [self.row("SVD in %s" % dtype, u, a, LAPACK, back, norm=near)]
        for name, part in (("left", self.numbers(u).T), ("right", self.numbers(v))):
            what, one = "%s singular vectors in %s" % (name, dtype), np.eye(size)
            rows.append(self.row(what, u, one, LAPACK, part @ part.T, norm=30.0 * size * UNIT[dtype]))
        values = self.numbers(s)
        rows.append(
            self.row(
                "singular values in %s, the largest first" % dtype,
                s,
                np.sort(values)[::-1],
                EXACT,
                values,
                largest=0.0,
            )
        )
        square = self.rounded(a @ a.T + size * np.eye(size), dtype)
        near = 30.0 * size * UNIT[dtype] * np.linalg.norm(square)
        low = self.cholesky(self.send(square, dtype))
        back = self.numbers(low) @ self.numbers(low).T
        rows.append(self.row("Cholesky in %s" % dtype, low, square, LAPACK, back, norm=near))
        x = self.rounded(self.fresh(8, 512), dtype)
        wanted = np.fft.fft(x)
        near = 9 * (1 + 4 * 2**0.5 + 3) * UNIT[dtype] * np.linalg.norm(wanted)
        wanted = np.stack([wanted.real, wanted.imag], -1)
        found = self.fourier(self.send(x, dtype))
        return rows + [self.row("FFT in %s" % dtype, found, wanted, FOURIER, norm=near)]

    def uniform(self, count):  # noqa: ARG002
        return None

    def normal(self, count):  # noqa: ARG002
        return None

    def _random_numbers(self):
        count, rows = 1 << 16, []
        for name, draw, moments, expected in (
            ("uniform", self.uniform, uniform_moments, uniform_bounds),
            ("normal", self.normal, normal_moments, normal_bounds),
        ):
            before = draw(count)
            if before is None:
                continue
            older = self.numbers(before)
            self.poison("float32", (count,))
            drawn = draw(count)
            values = self.numbers(drawn)
            found = moments(values, older, len(self.np.unique(values)))
            wanted, bounds = expected(count)
            rows.append(self.row(name + " numbers", drawn, wanted, CHANCE, found, largest=bounds))
        return rows

    # -- attention

    wide_softmax = True
    """False: the framework may sum the softmax in the short type, which is off by a factor in a whole row."""

    def attention(self):
        """``attend(name, (q, k, v, dy), seen, what)``: [output, dq, dk, dv] of (heads, tokens, width), or
        None where it is not offered. ``seen``: the keys that each token sees, or None for all before it.
        """
        rows, (heads, tokens, width) = [], (2, 136, 64)
        causal = self.np.tril(self.np.ones((tokens, tokens), bool))
        for dtype in filter(self.offered, self.halves):
            arrays = [self.rounded(0.5 * self.fresh(heads, tokens, width), dtype) for _ in "qk"]
            arrays += [self.rounded(self.fresh(heads, tokens, width), dtype) for _ in ("v", "dy")]
            for masking in self.masks:
                seen = causal
                if masking == "mask":
                    seen = causal & (self.random.uniform(size=causal.shape) < 0.7) | self.np.eye(
                        tokens, dtype=bool
                    )
                mask = self.np.where(seen, 0.0, -1e30)
                wanted = self.moved(attention_reference, arrays + [mask], self.unit(dtype))
                for name in self.attentions:
                    what = "attention by %s in %s, %s" % (name, dtype, masking)
                    operands = [self.send(array, dtype) for array in arrays]
                    self.poison(dtype, *[array.shape for array in arrays])
                    asked = None if masking == "causal" else seen
                    found = self.tried(what, dtype, self.attend, name, operands, asked, what)
                    if found is not None:
                        parts, times = ("output", "dq", "dk", "dv"), [TIMES] * 4
                        rows += self.moved_rows(what, parts, found, wanted, times, self.wide_softmax)
        return rows

    # -- compile

    def compile(self):
        """``fused(how, w, b)``: a function of x: each row's sum of z * sigmoid(z), z = x * w + b, and
        the gradient by x.
        """
        shift = [self.rounded(self.fresh(200), "float32") for _ in "wb"]
        rows, kept = [], {}
        # the second call has other numbers: what was kept of the first one would be wrong
        for how, name in (
            ("compiled", "compiled"),
            ("compiled, called again", "compiled"),
            ("eager", "eager"),
        ):
            if name not in kept:
                kept[name] = self.fused(name, *[self.send(array, "float32") for array in shift])
            arrays = [self.rounded(self.fresh(96, 200), "float32")] + shift
            # CUDA's exp and division are off by 2 units at most (CUDA C++ Programming Guide, their table)
            wanted = self.moved(fused_reference, arrays, 8.0 * UNIT["float32"])
            x = self.send(arrays[0], "float32")
            self.poison("float32", (96, 200), (96,))
            rows += self.moved_rows(how, ("sums", "gradient"), kept[name](x), wanted, [4.0, 4.0])
        return rows

    # -- train

    def train(self):
        """In float16 on a card; the weights are in float32, and the loss is scaled.

        ``trained(x, targets, weights, steps, rate, dtype)``: (losses, gradients of the first step, weights
        at the end), as tensors; the loss is the mean square of tanh(x w1 + b1) w2 - targets.
        """
        steps, rate, dtype = 6, 0.2, "float16" if self.driver else self.halves[-1]
        shapes = ((1.0, 48, 24), (1.0, 48, 8), (0.2, 24, 64), (0.2, 64), (0.12, 64, 8))
        arrays = [self.rounded(shape[0] * self.fresh(*shape[1:]), "float32") for shape in shapes]

        def right(values, r):
            return train_reference(values, r, steps, rate)

        wanted = self.moved(right, arrays, self.unit(dtype))
        tensors = [self.send(array, "float32") for array in arrays]
        self.poison("float32", *[array.shape for array in arrays])
        losses, first, weights = self.trained(tensors[0], tensors[1], tensors[2:], steps, rate, dtype)
        names = ["first gradient of " + name for name in ("w1", "b1", "w2")]
        names += [name + " at the end" for name in ("w1", "b1", "w2")] + ["losses"]
        found = list(first) + list(weights) + [losses]
        rows = self.moved_rows("training in %s" % dtype, names, found, wanted, [TIMES] * 3 + [8.0] * 4)
        falls = dict(rows[-1], what="the loss falls", basis=EXACT, norm=None, rows=None, largest=0.0)
        fell = rows[-1]["found"][-1] < 0.9 * rows[-1]["found"][0]
        return rows + [dict(falls, found=[float(fell)], wanted=[1.0])]

    # -- vision

    kept = None

    def vision(self):
        """``resize(image, side)``: square planes, the channels first, by bilinear interpolation;
        ``kept(boxes, scores, threshold)``: the boxes (x1, y1, x2, y2) that non-maximum suppression keeps, the
        best first; None without one.
        """
        size, side = 48, 77
        image = self.rounded(self.fresh(3, size, size), "float32")
        x = self.send(image, "float32")
        self.poison("float32", (3, side, side))
        wanted = [resized(plane, side) for plane in image.tolist()]
        bound = resize_bound(size, abs(image).max())
        rows = [self.row("bilinear resize", self.resize(x, side), wanted, PRODUCT, largest=bound)]
        if not self.kept:
            self.skipped["nms"] = "it has no non-maximum suppression"
            return rows
        boxes, scores, thresholds = boxes_to_suppress(lambda below: int(self.random.randint(below)))
        placed = [self.send(self.np.array(array), "float32") for array in (boxes, scores)]
        for threshold in thresholds:
            found = self.kept(placed[0], placed[1], threshold)
            wanted = [boxes[at] for at in suppressed(boxes, scores, threshold)]
            rows.append(self.row("nms above %.6f" % threshold, found, wanted, EXACT, largest=0.0))
        return rows

    # -- convolutions that ``conv`` has not

    def conv_kinds(self):
        """``convolved(kind, x, w, dy)``: (y, dx, dw)."""
        rows = []
        for kind in CONVOLUTION_KINDS:
            for dtype in filter(self.offered, ("float32", "float16", "bfloat16")):
                data = kind.fresh()
                tensors = [
                    self.send(self.np.array(data[name]).reshape(data[name + "_shape"]), dtype)
                    for name in kind.operands
                ]
                self.poison(dtype, *[data[name + "_shape"] for name in kind.operands])
                told = "%s in %s" % (kind.name, dtype)
                found = self.tried(told, dtype, self.convolved, kind, *tensors)
                for name, tensor in zip(kind.answers, found or ()):
                    what = "%s: %s" % (told, name)
                    rows.append(self.row(what, tensor, data[name], WHOLE, largest=ROUNDING["winograd"]))
        return rows
