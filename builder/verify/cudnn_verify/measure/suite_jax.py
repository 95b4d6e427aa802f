"""The operations of JAX for the suites of :mod:`suite_arrays`."""

from .suite_arrays import ArraySuites


class JaxSuites(ArraySuites):
    """``device``: JAX's own object."""

    masks = ("causal", "mask")

    def lacks(self):
        return None if hasattr(self.api, "Array") else "JAX %s has no jax.Array" % self.api.__version__

    def start(self):
        import jax.numpy

        self.jax, self.jnp = self.api, jax.numpy
        self.jax.config.update("jax_enable_x64", True)
        self.attentions = ("xla", "cudnn") if self.device.platform in ("gpu", "cuda") else ("xla",)

    def send(self, array, dtype="float32"):
        return self.jax.device_put(array.astype(self.jnp.dtype(dtype)), self.device)

    def numbers(self, tensor):
        return self.np.asarray(tensor).astype("float64")

    def place(self, tensor):
        tensor.block_until_ready()
        address = tensor.addressable_data(0).unsafe_buffer_pointer()
        return [str(device) for device in tensor.devices()], address

    def poison(self, dtype, *shapes):
        held = [self.send(self.np.full(shape, float("nan")), dtype) for shape in shapes for _ in "xx"]
        for array in held:
            array.block_until_ready()
            array.delete()

    def product(self, a, b, dtype):
        # the default precision of a card is TF32 where it has it, and may be float32
        return self.jnp.matmul(a, b, precision=None if dtype == "tf32" else self.jax.lax.Precision.HIGHEST)

    def svd(self, a):
        return self.jnp.linalg.svd(a)

    def cholesky(self, a):
        return self.jnp.linalg.cholesky(a)

    def fourier(self, x):
        found = self.jnp.fft.fft(x)
        return self.jnp.stack([found.real, found.imag], -1)

    def attention(self):
        if not hasattr(self.jax.nn, "dot_product_attention"):
            self.skipped["attention"] = "JAX %s has no jax.nn.dot_product_attention" % self.jax.__version__
            return []
        return super(JaxSuites, self).attention()

    def attend(self, name, operands, seen, what):
        # its order is (batch, tokens, heads, width)
        q, k, v, dy = [array.swapaxes(0, 1)[None] for array in operands]

        options = {"is_causal": True} if seen is None else {"mask": self.jnp.asarray(seen)[None, None]}

        def masked(q, k, v):
            return self.jax.nn.dot_product_attention(q, k, v, implementation=name, **options)

        try:
            out, pull = self.jax.vjp(masked, q, k, v)
        except (NotImplementedError, ValueError, RuntimeError) as error:
            if name != "cudnn" or ("Unsupported" not in str(error) and "requires" not in str(error)):
                raise
            self.skipped[what] = str(error).splitlines()[0][:200]
            return None
        return [array[0].swapaxes(0, 1) for array in (out,) + pull(dy)]

    def fused(self, how, w, b):
        """XLA compiles the function anew: its constants come from the seed, so no cache has it."""
        w, b = self.np.asarray(w), self.np.asarray(b)

        def sums(x):
            z = x * w + b
            return (z * self.jax.nn.sigmoid(z)).sum(-1)

        def both(x):
            y, pull = self.jax.vjp(sums, x)
            return y, pull(self.jnp.ones_like(y))[0]

        return self.jax.jit(both) if how == "compiled" else both

    def trained(self, x, targets, weights, steps, rate, dtype):
        scale, losses, first = 1024.0, [], None

        def loss_of(weights):
            w1, w2 = weights[0].astype(dtype), weights[2].astype(dtype)
            # XLA may sum the gradient of a bias in its own type, term by term: so it stays in float32
            hidden = self.jnp.tanh((x.astype(dtype) @ w1).astype("float32") + weights[1])
            off = (hidden.astype(dtype) @ w2).astype("float32") - targets
            return scale * (off * off).mean()

        step = self.jax.jit(self.jax.value_and_grad(loss_of))
        for _ in range(steps):
            loss, slopes = step(weights)
            slopes = [slope / scale for slope in slopes]
            losses.append(loss / scale)
            first = first or slopes
            weights = [weight - rate * slope for weight, slope in zip(weights, slopes)]
        return self.jnp.stack(losses), first, weights

    def resize(self, image, side):
        return self.jax.image.resize(image, (len(image), side, side), method="linear")

    def convolved(self, kind, x, w, dy):
        space = "DHW"[3 - kind.dimensions :]
        names = ("NC" + space, "OI" + space, "NC" + space)
        back = None
        if kind.last:
            names, back = ("N%sC" % space, "OI" + space, "N%sC" % space), (0, 3, 1, 2)
            x, dy = [array.transpose((0, 2, 3, 1)) for array in (x, dy)]
        same = [(kind.dilation, kind.dilation)] * kind.dimensions

        def convolve(x, w):
            options = {"rhs_dilation": (kind.dilation,) * kind.dimensions, "dimension_numbers": names}
            options.update(feature_group_count=kind.groups)
            return self.jax.lax.conv_general_dilated(x, w, (kind.stride,) * kind.dimensions, same, **options)

        def transposed(x, w):
            turned = self.jnp.flip(w, tuple(range(2, 2 + kind.dimensions))).swapaxes(0, 1)
            options = {"lhs_dilation": (kind.stride,) * kind.dimensions, "dimension_numbers": names}
            return self.jax.lax.conv_general_dilated(x, turned, (1,) * kind.dimensions, same, **options)

        def both(x, w, dy):
            y, pull = self.jax.vjp(transposed if kind.transposed else convolve, x, w)
            return (y,) + pull(dy)

        y, dx, dw = self.jax.jit(both)(x, w, dy)  # one compilation and not five
        return [y.transpose(back), dx.transpose(back), dw] if back else [y, dx, dw]
