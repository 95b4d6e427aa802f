"""The suites of JAX, with references of NumPy's. Each gives rows for :mod:`suite_judge`."""

import os

from .cuda import Driver
from .suite_judge import suite_row
from .suite_place import place_of_address
from .suite_reference import (
    EXACT,
    FOURIER,
    LAPACK,
    MOVED,
    PRODUCT,
    UNIT,
    attention_reference,
    fused_reference,
    moved_bounds,
    product_bound,
    train_reference,
)


class JaxSuites(object):
    """``device``: JAX's own object. As :class:`suite_torch.TorchSuites`."""

    def __init__(self, framework, device):
        import jax.numpy
        import numpy

        self.ctx, self.jax, self.jnp, self.np, self.device = (
            framework.ctx,
            framework.api,
            jax.numpy,
            numpy,
            device,
        )
        self.jax.config.update("jax_enable_x64", True)
        self.random = numpy.random.RandomState(int.from_bytes(os.urandom(4), "little"))
        self.skipped, self.driver = {}, None
        if device.platform in ("gpu", "cuda"):
            self.jax.device_put(0.0, device).block_until_ready()  # a context, for which the driver answers
            self.driver = Driver(self.ctx)

    def run(self, suite):
        return getattr(self, suite)()

    def fresh(self, *shape):
        return self.random.standard_normal(shape)

    def rounded(self, array, dtype):
        return array.astype(self.jnp.dtype(dtype)).astype("float64")

    def send(self, array, dtype="float32"):
        return self.jax.device_put(array.astype(self.jnp.dtype(dtype)), self.device)

    def poison(self, *arrays):
        """Fill memory of the size of these results with NaN, and free it: the allocator lends it next."""
        held = [self.jnp.full_like(array, float("nan")) for array in arrays for _ in range(2)]
        for array in held:
            array.block_until_ready()
            array.delete()

    def noise(self, array):
        return self.random.uniform(-1.0, 1.0, array.shape)

    def row(self, what, array, wanted, basis, found=None, **bounds):
        """A row about an array; ``found``: other numbers than its own, which were worked out of it."""
        for key, bound in bounds.items():
            bounds[key] = bound.reshape(-1).tolist() if getattr(bound, "shape", ()) else float(bound)
        values = self.np.asarray(array).astype("float64") if found is None else found
        array.block_until_ready()
        word = place_of_address(self.driver, array.addressable_data(0).unsafe_buffer_pointer())
        places = {"devices": [str(device) for device in array.devices()], "memory": [word]}
        right = wanted.reshape(-1).tolist()
        return suite_row(what, values.reshape(-1).tolist(), right, basis, **dict(bounds, **places))

    def moved_rows(self, what, parts, arrays, wanted, times):
        """Rows about the results of one computation, bound by Monte Carlo arithmetic."""
        rows = []
        for part, array, (right, largest, norm), factor in zip(parts, arrays, wanted, times):
            bounds = {"largest": 2.0 * factor * largest, "norm": factor * norm}
            rows.append(self.row("%s: %s" % (what, part), array, right, MOVED, **bounds))
        return rows

    def linalg(self):
        rows = []
        for dtype in ("float64", "float32", "tf32", "float16", "bfloat16"):
            if dtype == "tf32" and not self.driver:
                continue
            stored = "float32" if dtype == "tf32" else dtype
            a, b = self.rounded(self.fresh(160, 96), stored), self.rounded(self.fresh(96, 144), stored)
            # the default precision of a card is TF32 where it has it, and may be float32
            precision = None if dtype == "tf32" else self.jax.lax.Precision.HIGHEST
            one, other = self.send(a, stored), self.send(b, stored)
            self.poison(self.jnp.zeros((160, 144), one.dtype, device=self.device))
            found = self.jnp.matmul(one, other, precision=precision)
            bound = product_bound(a, b, dtype)
            rows.append(self.row("product in %s" % dtype, found, a @ b, PRODUCT, largest=bound))
        for dtype in ("float64", "float32"):
            rows += self._decompositions(dtype)
        return rows

    def _decompositions(self, dtype):
        size, linalg, np = 32, self.jnp.linalg, self.np
        a = self.rounded(self.fresh(size, size), dtype)
        near = 30.0 * size * UNIT[dtype] * np.linalg.norm(a)
        u, s, v = linalg.svd(self.send(a, dtype))
        back = np.asarray(u, "float64") * np.asarray(s, "float64") @ np.asarray(v, "float64")
        rows = [self.row("SVD in %s" % dtype, u, a, LAPACK, back, norm=near)]
        square = self.rounded(a @ a.T + size * np.eye(size), dtype)
        near = 30.0 * size * UNIT[dtype] * np.linalg.norm(square)
        low = linalg.cholesky(self.send(square, dtype))
        back = np.asarray(low, "float64") @ np.asarray(low, "float64").T
        rows.append(self.row("Cholesky in %s" % dtype, low, square, LAPACK, back, norm=near))
        x = self.rounded(self.fresh(8, 512), dtype)
        found, wanted = self.jnp.fft.fft(self.send(x, dtype)), np.fft.fft(x)
        near = 9 * (1 + 4 * 2**0.5 + 3) * UNIT[dtype] * np.linalg.norm(wanted)
        pairs = self.jnp.stack([found.real, found.imag], -1)
        wanted = np.stack([wanted.real, wanted.imag], -1)
        return rows + [self.row("FFT in %s" % dtype, pairs, wanted, FOURIER, norm=near)]

    def attention(self):
        attend = getattr(self.jax.nn, "dot_product_attention", None)
        if attend is None:
            self.skipped["attention"] = "JAX %s has no jax.nn.dot_product_attention" % self.jax.__version__
            return []
        rows, (heads, tokens, width) = [], (2, 136, 64)
        seen = self.np.tril(self.np.ones((tokens, tokens), bool))
        mask = self.np.where(seen, 0.0, -1e30)
        for dtype in ("float16", "bfloat16"):
            arrays = [self.rounded(0.5 * self.fresh(heads, tokens, width), dtype) for _ in "qk"]
            arrays += [self.rounded(self.fresh(heads, tokens, width), dtype) for _ in ("v", "dy")]
            wanted = moved_bounds(attention_reference, arrays + [mask], UNIT[dtype], self.noise)
            for name in ("xla", "cudnn") if self.driver else ("xla",):
                # its order is (batch, tokens, heads, width)
                q, k, v, dy = [self.send(array.swapaxes(0, 1)[None], dtype) for array in arrays]
                self.poison(q, k, v, dy)
                what = "attention by %s in %s, causal" % (name, dtype)

                def causal(q, k, v, name=name):
                    return attend(q, k, v, is_causal=True, implementation=name)

                try:
                    out, pull = self.jax.vjp(causal, q, k, v)
                except (NotImplementedError, ValueError, RuntimeError) as error:
                    if name != "cudnn" or "Unsupported" not in str(error) and "requires" not in str(error):
                        raise
                    self.skipped[what] = str(error).splitlines()[0][:200]
                    continue
                found = [array[0].swapaxes(0, 1) for array in (out,) + pull(dy)]
                rows += self.moved_rows(what, ("output", "dq", "dk", "dv"), found, wanted, [2.0] * 4)
        return rows

    def compile(self):
        """XLA compiles the function anew: its constants come from the seed, so no cache has it."""
        arrays = [self.rounded(self.fresh(*shape), "float32") for shape in ((96, 200), (200,), (200,))]
        wanted = moved_bounds(fused_reference, arrays, 8.0 * UNIT["float32"], self.noise)
        w, b = [array.astype("float32") for array in arrays[1:]]

        def fused(x):
            z = x * w + b
            return (z * self.jax.nn.sigmoid(z)).sum(-1)

        def both(x):
            y, pull = self.jax.vjp(fused, x)
            return y, pull(self.jnp.ones_like(y))[0]

        rows = []
        for how, function in (("compiled", self.jax.jit(both)), ("eager", both)):
            x = self.send(arrays[0])
            self.poison(x)
            rows += self.moved_rows(how, ("sums", "gradient"), function(x), wanted, [4.0, 4.0])
        return rows

    def train(self):
        """In float16 on a card, bfloat16 elsewhere, with the weights in float32 and the loss scaled."""
        steps, rate, scale, dtype = 6, 0.2, 1024.0, "float16" if self.driver else "bfloat16"
        shapes = ((1.0, 48, 24), (1.0, 48, 8), (0.2, 24, 64), (0.2, 64), (0.12, 64, 8))
        arrays = [self.rounded(shape[0] * self.fresh(*shape[1:]), "float32") for shape in shapes]

        def right(values, r):
            return train_reference(values, r, steps, rate)

        wanted = moved_bounds(right, arrays, UNIT[dtype], self.noise)
        x, targets, *weights = [self.send(array) for array in arrays]
        self.poison(*weights)

        def loss_of(weights):
            w1, b1, w2 = [weight.astype(dtype) for weight in weights]
            off = (self.jnp.tanh(x.astype(dtype) @ w1 + b1) @ w2).astype("float32") - targets
            return scale * (off * off).mean()

        step, losses, first = self.jax.jit(self.jax.value_and_grad(loss_of)), [], None
        for _ in range(steps):
            loss, slopes = step(weights)
            slopes = [slope / scale for slope in slopes]
            losses.append(loss / scale)
            first = first or slopes
            weights = [weight - rate * slope for weight, slope in zip(weights, slopes)]
        names = ["first gradient of " + name for name in ("w1", "b1", "w2")]
        names += [name + " at the end" for name in ("w1", "b1", "w2")] + ["losses"]
        found = first + weights + [self.jnp.stack(losses)]
        rows = self.moved_rows("training in %s" % dtype, names, found, wanted, [2.0] * 3 + [8.0] * 4)
        falls = dict(rows[-1], what="the loss falls", basis=EXACT, norm=None, largest=0.0)
        fell = float(losses[-1]) < 0.9 * float(losses[0])
        return rows + [dict(falls, found=[float(fell)], wanted=[1.0])]
