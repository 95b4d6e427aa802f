"""The operations of PaddlePaddle for the suites of :mod:`suite_arrays`."""

import os

from .suite_arrays import ArraySuites
from .suite_reference import EXACT


class CountedArrays(object):
    """Whole numbers; item i is told by its content, and by the number of the process that made it."""

    def __init__(self, numpy, seed):
        self.np, self.seed = numpy, seed

    def __len__(self):
        return 32

    def __getitem__(self, index):
        if index >= len(self):
            raise IndexError(index)
        numbers = self.np.arange(2048) * (index + self.seed) % 251
        return self.np.append(numbers, os.getpid()).astype("float32")


class PaddleSuites(ArraySuites):
    """``device``: ``gpu:0``."""

    def lacks(self):
        if not hasattr(self.api.Tensor, "data_ptr"):
            return "tensors of PaddlePaddle %s do not tell their address" % self.api.__version__
        return None

    def start(self):
        self.api.set_device(self.device)
        if self.device == "cpu":
            self.halves = ("float32",)  # it has no shorter type there

    def send(self, array, dtype="float32"):
        return self.api.to_tensor(array.astype("float64")).cast(dtype)

    def numbers(self, tensor):
        return tensor.detach().cast("float64").numpy()

    def place(self, tensor):
        return [str(tensor.place)], tensor.data_ptr()

    def product(self, a, b, dtype):  # noqa: ARG002
        return self.api.matmul(a, b)

    def svd(self, a):
        return self.api.linalg.svd(a)

    def cholesky(self, a):
        return self.api.linalg.cholesky(a)

    def fourier(self, x):
        return self.api.as_real(self.api.fft.fft(x))

    def uniform(self, count):
        return self.api.rand([count])

    def normal(self, count):
        return self.api.randn([count])

    def leaves(self, *tensors):
        """The tensors with a gradient to come."""
        for tensor in tensors:
            tensor.stop_gradient = False
        return tensors

    def attention(self):
        # its flash attention is compiled for Ampere, Ada and Hopper, and has a switch from 2.5 on
        import paddle.nn.functional.flash_attention as module

        if self.driver and self.capability[0] in (8, 9) and hasattr(module, "sdp_kernel"):
            self.attentions = ("operations", "flash")
        return super(PaddleSuites, self).attention()

    def _flash(self, q, k, v):
        """Its order is (batch, tokens, heads, width)."""
        import paddle.nn.functional.flash_attention as module

        q, k, v = [tensor.transpose([1, 0, 2]).unsqueeze(0) for tensor in (q, k, v)]
        with module.sdp_kernel(enable_math=False, enable_flash=True, enable_mem_efficient=False):
            out = module.flash_attention(q, k, v, causal=True)[0]
        return out.squeeze(0).transpose([1, 0, 2])

    def attend(self, name, operands, seen, what):
        q, k, v, dy = operands
        q, k, v = self.leaves(q, k, v)
        if name == "flash":
            try:
                out = self._flash(q, k, v)
            except (RuntimeError, NotImplementedError) as error:
                if "FlashAttention is unsupported" not in str(error):
                    raise
                self.skipped[what] = str(error).strip().splitlines()[0][:200]
                return None
            self.api.autograd.backward([out], [dy])
            return [out, q.grad, k.grad, v.grad]
        seen = self.np.tril(self.np.ones((q.shape[1], q.shape[1]), bool)) if seen is None else seen
        mask = self.send(self.np.where(seen, 0.0, -3e4), "float32").cast(q.dtype)
        scores = self.api.matmul(q, k, transpose_y=True) * q.shape[-1] ** -0.5
        out = self.api.matmul(self.api.nn.functional.softmax(scores + mask), v)
        self.api.autograd.backward([out], [dy])
        return [out, q.grad, k.grad, v.grad]

    def loader(self):
        import paddle.io

        rows, makers, source = [], set(), CountedArrays(self.np, int(self.random.randint(1, 250)))
        for at, batch in enumerate(paddle.io.DataLoader(source, batch_size=8, num_workers=2, timeout=20)):
            batch = batch[0] if isinstance(batch, list) else batch
            found = self.numbers(batch)
            makers.update(found[:, -1].tolist())
            wanted = self.np.stack([source[8 * at + index] for index in range(8)])
            if wanted.shape == found.shape:
                wanted[:, -1] = found[:, -1]
            rows.append(self.row("batch %d of two workers" % at, batch, wanted, EXACT, largest=0.0))
        if not rows:
            return []
        told = dict(rows[0], what="four batches, made by two other processes")
        found = [float(len(rows)), float(len(makers)), float(os.getpid() in makers)]
        return rows + [dict(told, found=found, wanted=[4.0, 2.0, 0.0])]

    def trained(self, x, targets, weights, steps, rate, dtype):
        scale, losses, first = 1024.0, [], None
        for _ in range(steps):
            weights = self.leaves(*[weight.detach() for weight in weights])
            w1, b1, w2 = [weight.cast(dtype) for weight in weights]
            hidden = self.api.tanh(self.api.matmul(x.cast(dtype), w1) + b1)
            off = self.api.matmul(hidden, w2).cast("float32") - targets
            loss = (off * off).mean()
            (loss * scale).backward()
            losses.append(loss.detach())
            slopes = [weight.grad / scale for weight in weights]
            first = first or slopes
            weights = [weight.detach() - rate * slope for weight, slope in zip(weights, slopes)]
        return self.api.stack(losses), first, weights

    def resize(self, image, side):
        options = {"size": [side, side], "mode": "bilinear", "align_corners": False}
        return self.api.nn.functional.interpolate(image.unsqueeze(0), **options)

    def kept(self, boxes, scores, threshold):
        import paddle.vision.ops

        return boxes[paddle.vision.ops.nms(boxes, threshold, scores)]

    def convolved(self, kind, x, w, dy):
        module = self.api.nn.functional
        back = None
        options = {"stride": kind.stride, "padding": kind.dilation, "dilation": kind.dilation}
        options["groups"] = kind.groups
        if kind.last:
            options["data_format"], back = "NHWC", [0, 3, 1, 2]
            x, dy = [tensor.transpose([0, 2, 3, 1]) for tensor in (x, dy)]
        x, w = self.leaves(x, w)
        name = "conv%dd_transpose" if kind.transposed else "conv%dd"
        y = getattr(module, name % kind.dimensions)(x, w, **options)
        self.api.autograd.backward([y], [dy])
        return [y.transpose(back), x.grad.transpose(back), w.grad] if back else [y, x.grad, w.grad]
