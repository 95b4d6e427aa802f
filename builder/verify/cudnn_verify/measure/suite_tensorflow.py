"""The operations of TensorFlow 2 for the suites of :mod:`suite_arrays`."""

from ..common.versions import numbers
from .cuda import ctypes
from .suite_arrays import ArraySuites
from .suite_reference import EXACT


class TensorflowSuites(ArraySuites):
    """``device``: ``/GPU:0``. Nothing may move to another device without a word: soft placement is off."""

    masks, wide_softmax = ("causal", "mask"), False

    def lacks(self):
        if numbers(self.api.__version__)[:2] < (2, 2):
            return "TensorFlow %s has no DLPack, by which a tensor's address is known" % self.api.__version__
        return None if self.api.executing_eagerly() else "TensorFlow executes no operation at once here"

    def start(self):
        self.api.config.set_soft_device_placement(False)

    def run(self, suite):
        if self.lacking:
            return super(TensorflowSuites, self).run(suite)
        with self.api.device(self.device):
            return super(TensorflowSuites, self).run(suite)

    def send(self, array, dtype="float32"):
        with self.api.device(self.device):
            return self.api.cast(self.api.identity(self.api.constant(array, "float64")), dtype)

    def numbers(self, tensor):
        return self.api.cast(tensor, "float64").numpy()

    def place(self, tensor):
        return [tensor.device], address_of(self.api.experimental.dlpack.to_dlpack(tensor))

    def product(self, a, b, dtype):
        self.api.config.experimental.enable_tensor_float_32_execution(dtype == "tf32")
        return self.api.matmul(a, b)

    def svd(self, a):
        s, u, v = self.api.linalg.svd(a)
        return u, s, self.api.transpose(v)

    def cholesky(self, a):
        return self.api.linalg.cholesky(a)

    def fourier(self, x):
        found = self.api.signal.fft(self.api.complex(x, self.api.zeros_like(x)))
        return self.api.stack([self.api.math.real(found), self.api.math.imag(found)], -1)

    def uniform(self, count):
        return self.api.random.uniform([count])

    def normal(self, count):
        return self.api.random.normal([count])

    def attend(self, name, operands, seen, what):  # noqa: ARG002 - one implementation
        tf, (q, k, v, dy) = self.api, operands
        if seen is None:
            seen = self.np.tril(self.np.ones((q.shape[1], q.shape[1]), bool))
        mask = tf.cast(self.send(self.np.where(seen, 0.0, -3e4)), q.dtype)
        with tf.GradientTape() as tape:
            tape.watch([q, k, v])
            scores = tf.matmul(q, k, transpose_b=True) * tf.cast(q.shape[-1] ** -0.5, q.dtype)
            out = tf.matmul(tf.nn.softmax(scores + mask), v)
        return [out] + tape.gradient(out, [q, k, v], output_gradients=dy)

    def fused(self, how, w, b):
        tf = self.api

        def both(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                z = x * w + b
                y = tf.reduce_sum(z * tf.sigmoid(z), -1)
            return y, tape.gradient(y, x)

        return tf.function(both, jit_compile=True) if how == "compiled" else both

    def compile(self):
        if numbers(self.api.__version__)[:2] < (2, 5):
            self.skipped["compile"] = "TensorFlow %s has no jit_compile" % self.api.__version__
            return []
        return super(TensorflowSuites, self).compile()

    def trained(self, x, targets, weights, steps, rate, dtype):
        tf, scale, losses, first = self.api, 1024.0, [], None

        @tf.function
        def step(weights):
            with tf.GradientTape() as tape:
                tape.watch(weights)
                w1, b1, w2 = [tf.cast(weight, dtype) for weight in weights]
                hidden = tf.tanh(tf.matmul(tf.cast(x, dtype), w1) + b1)
                off = tf.cast(tf.matmul(hidden, w2), "float32") - targets
                loss = scale * tf.reduce_mean(off * off)
            return loss / scale, [slope / scale for slope in tape.gradient(loss, weights)]

        for _ in range(steps):
            loss, slopes = step(weights)
            losses.append(loss)
            first = first or slopes
            weights = [weight - rate * slope for weight, slope in zip(weights, slopes)]
        return tf.stack(losses), first, weights

    def resize(self, image, side):
        last = self.api.transpose(image, [1, 2, 0])
        return self.api.transpose(self.api.image.resize(last, [side, side], method="bilinear"), [2, 0, 1])

    def kept(self, boxes, scores, threshold):
        found = self.api.image.non_max_suppression(boxes, scores, len(boxes), iou_threshold=threshold)
        return self.api.gather(boxes, found)

    def convolved(self, kind, x, w, dy):
        """In TensorFlow's own order, the channels last; the filters' order is (space, inputs, outputs)."""
        tf, axes = self.api, list(range(2, 2 + kind.dimensions))
        first, last = [0, 1 + kind.dimensions] + [at - 1 for at in axes], [0] + axes + [1]
        x, dy, w = tf.transpose(x, last), tf.transpose(dy, last), tf.transpose(w, axes + [1, 0])
        steps = [1] + [kind.stride] * kind.dimensions + [1]
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            if kind.transposed:
                # the padding of "same" is that of the reference where the size is odd
                y = tf.nn.conv2d_transpose(x, w, dy.shape, steps, padding="SAME")
            elif kind.groups > 1:
                y = tf.nn.depthwise_conv2d(x, tf.transpose(w, [0, 1, 3, 2]), steps, "SAME")
            else:
                dilations = [1] + [kind.dilation] * kind.dimensions + [1]
                convolve = tf.nn.conv3d if kind.dimensions == 3 else tf.nn.conv2d
                y = convolve(x, w, steps, "SAME", dilations=dilations)
        dx, dw = tape.gradient(y, [x, w], output_gradients=dy)
        turned = [len(axes) + 1, len(axes)] + [at - 2 for at in axes]
        return [tf.transpose(y, first), tf.transpose(dx, first), tf.transpose(dw, turned)]

    def loader(self):
        """Whole numbers by ``tf.data``: worked out in parallel, and fetched to the card ahead."""
        tf, seed, rows = self.api, int(self.random.randint(1, 250)), []

        def item(at):
            return tf.cast(tf.range(2048, dtype=tf.int64) * (at + seed) % 251, tf.float32)

        with tf.device("/CPU:0"):
            source = tf.data.Dataset.range(32).map(item, num_parallel_calls=2).batch(8)
            source = source.apply(tf.data.experimental.prefetch_to_device(self.device))
        for at, batch in enumerate(source):
            wanted = [number * (8 * at + index + seed) % 251 for index in range(8) for number in range(2048)]
            rows.append(self.row("batch %d of tf.data" % at, batch, wanted, EXACT, largest=0.0))
        told = dict(rows[0], what="four batches came") if rows else {}
        return rows + ([dict(told, found=[float(len(rows))], wanted=[4.0])] if rows else [])


def address_of(capsule):
    """The address in a capsule of DLPack, whose DLTensor has it first, and its offset after 40 bytes:
    https://dmlc.github.io/dlpack/latest/c_api.html
    """
    ask = ctypes.pythonapi.PyCapsule_GetPointer
    ask.restype, ask.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    place = ask(capsule, b"dltensor")
    return ctypes.c_uint64.from_address(place).value + ctypes.c_uint64.from_address(place + 40).value
