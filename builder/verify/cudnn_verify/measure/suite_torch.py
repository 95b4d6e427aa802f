"""The suites of PyTorch. Each gives rows for :mod:`suite_judge`, and says what it left out and why."""

import io
import os
import random
import re
import shutil
import tempfile

from ..common.versions import dotted
from .cuda import Driver
from .fw_common import imported
from .reference import CONVOLUTION_KINDS, ROUNDING, STRIDED, STRIDED_TERMS
from .suite_judge import (
    CHANCE,
    EXACT,
    FOURIER,
    LAPACK,
    MOVED,
    NEEDS,
    PINNED,
    PRODUCT,
    TIMES,
    UNIT,
    WHOLE,
    adam_reference,
    attention_reference,
    bounds_of,
    boxes_to_suppress,
    convolution_bounds,
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
    version_of_nccl,
)


class Counted(object):
    """A data set of whole numbers; item i can be told by its content."""

    def __init__(self, api, seed):
        self.api, self.seed = api, seed

    def __len__(self):
        return 32

    def __getitem__(self, index):
        """2048 numbers of this item, and the number of the process that made it."""
        if index >= len(self):
            raise IndexError(index)
        made = [float(os.getpid())]
        return self.api.cat(
            [(self.api.arange(2048) * (index + self.seed) % 251).float(), self.api.tensor(made)]
        )


class TorchSuites(object):
    """``device``: PyTorch's name of the card. A suite is a method that gives its rows.

    ``skipped``: {what: why}. Operands come from a seed that nobody could foresee.
    """

    def __init__(self, framework, device):
        self.ctx, self.api, self.device = framework.ctx, framework.api, device
        self.seed = int.from_bytes(os.urandom(6), "little")
        self.random, self.skipped = random.Random(self.seed), {}
        self.api.manual_seed(self.seed)
        self.driver = None
        self.capability = None
        if device.startswith("cuda"):
            self.api.zeros(1, device=device)  # a context, for which the driver answers
            self.driver = Driver(self.ctx)
            self.capability = tuple(self.api.cuda.get_device_capability())

    def run(self, suite):
        return getattr(self, suite.replace("-", "_"))()

    # -- arrays

    def fresh(self, *shape):
        """Normal numbers as float64 on the CPU."""
        count = 1
        for size in shape:
            count *= size
        values = [self.random.gauss(0.0, 1.0) for _ in range(count)]
        return self.api.tensor(values, dtype=self.api.float64).reshape(shape)

    def rounded(self, array, dtype):
        """The array with each element rounded to a type, again as float64."""
        return array.to(getattr(self.api, dtype)).double()

    def send(self, array, dtype="float32"):
        return array.to(getattr(self.api, dtype)).to(self.device)

    def poison(self, *tensors):
        """Fill memory of the size of these results with NaN, and free it: the allocator lends it next."""
        held = []
        for tensor in tensors:
            held += [self.api.full_like(tensor, float("nan")) for _ in range(2)]
        del held

    def noise(self, array):
        return self.api.rand(array.shape, dtype=self.api.float64) * 2.0 - 1.0

    def moved(self, compute, arrays, dtype, unit=None):
        return moved_bounds(compute, arrays, unit or UNIT[dtype], self.noise)

    def row(self, what, tensor, wanted, basis, **bounds):
        """A row about a tensor; ``wanted`` and a bound of each element are arrays of float64."""
        for key, bound in bounds.items():
            if hasattr(bound, "reshape"):
                bounds[key] = bound.reshape(-1).tolist()
        found = tensor.detach().double().cpu().reshape(-1).tolist()
        wanted = wanted.reshape(-1).tolist() if hasattr(wanted, "reshape") else wanted
        where = {"devices": [str(tensor.device)], "memory": [self.place_of(tensor)]}
        return suite_row(what, found, wanted, basis, **dict(bounds, **where))

    def place_of(self, tensor):
        """The driver's word on the address of a tensor."""
        return place_of_address(self.driver, tensor.data_ptr())

    def offered(self, dtype):
        """True if the card has this type; otherwise that is noted."""
        if self.capability and self.capability < NEEDS.get(dtype, (0, 0)):
            self.skipped[dtype] = "compute capability %s has none" % dotted(self.capability)
            return False
        return True

    # -- linalg

    def linalg(self):
        rows = [self._product(dtype) for dtype in ("float64", "float32", "float16", "bfloat16")]
        if self.driver:
            rows += [self._product("tf32"), self._product_of_fp8()]
        rows = [row for row in rows if row]
        for dtype in ("float64", "float32"):
            rows += self._decompositions(dtype) + [self._fourier(dtype)]
        return rows + self._random_numbers()

    def _product(self, dtype):
        if not self.offered(dtype):
            return None
        stored = "float32" if dtype == "tf32" else dtype
        matmul = self.api.backends.cuda.matmul
        for name in ("fp16", "bf16"):  # sums in half precision are another, coarser, promise
            if hasattr(matmul, "allow_%s_reduced_precision_reduction" % name):
                setattr(matmul, "allow_%s_reduced_precision_reduction" % name, False)
        if hasattr(matmul, "allow_tf32"):
            matmul.allow_tf32 = dtype == "tf32"
        a, b = self.rounded(self.fresh(160, 96), stored), self.rounded(self.fresh(96, 144), stored)
        out = self.send(a[:, :1] @ b[:1], stored).fill_(float("nan"))
        self.api.matmul(self.send(a, stored), self.send(b, stored), out=out)
        bound = product_bound(a, b, dtype)
        return self.row("product in %s" % dtype, out, a @ b, PRODUCT, largest=bound)

    def _product_of_fp8(self):
        multiply, dtype = getattr(self.api, "_scaled_mm", None), "float8_e4m3fn"
        if multiply is None or not hasattr(self.api, dtype):
            self.skipped[dtype] = "PyTorch %s has no product of it" % self.api.__version__
            return None
        if not self.offered(dtype):
            return None
        a, b = self.rounded(self.fresh(160, 96), dtype), self.rounded(self.fresh(96, 144), dtype)
        one = self.api.ones((), device=self.device)
        turned = self.send(b.t().contiguous(), dtype).t()
        found = multiply(self.send(a, dtype), turned, scale_a=one, scale_b=one, out_dtype=self.api.bfloat16)
        found = found[0] if isinstance(found, tuple) else found
        return self.row("product in %s" % dtype, found, a @ b, PRODUCT, largest=product_bound(a, b, dtype))

    def _decompositions(self, dtype):
        if not hasattr(getattr(self.api, "linalg", None), "svd"):
            self.skipped["decompositions"] = "PyTorch %s has no torch.linalg" % self.api.__version__
            return []
        size, linalg = 32, self.api.linalg
        a = self.rounded(invertible(*linalg.svd(self.fresh(size, size))), dtype)
        near = 30.0 * size * UNIT[dtype] * float((a * a).sum()) ** 0.5
        u, s, v = linalg.svd(self.send(a, dtype))
        back = u.double().cpu() * s.double().cpu() @ v.double().cpu()
        rows = [self._rebuilt("SVD in %s" % dtype, u, back, a, near)]
        one = self.api.eye(size, dtype=self.api.float64)
        for name, part in (("left", u.double().cpu().t()), ("right", v.double().cpu())):
            what, off = "%s singular vectors in %s" % (name, dtype), 30.0 * size * UNIT[dtype]
            rows.append(self._rebuilt(what, u, part @ part.t(), one, off))
        rows.append(self.row("singular values in %s" % dtype, s, linalg.svd(a)[1], LAPACK, largest=near))
        order = s.double().cpu().sort(descending=True)[0]
        rows.append(
            self.row("singular values in %s, the largest first" % dtype, s, order, EXACT, largest=0.0)
        )
        square = self.rounded(a @ a.t() + size * self.api.eye(size, dtype=self.api.float64), dtype)
        low = linalg.cholesky(self.send(square, dtype))
        near = 30.0 * size * UNIT[dtype] * float((square * square).sum()) ** 0.5
        back = low.double().cpu() @ low.double().cpu().t()
        return rows + [self._rebuilt("Cholesky in %s" % dtype, low, back, square, near)]

    def _rebuilt(self, what, part, back, wanted, near):
        """A row about the matrix that parts of it make again; ``part`` says where they lie."""
        row = self.row(what, part, wanted, LAPACK, norm=near)
        return dict(row, found=back.reshape(-1).tolist())

    def _fourier(self, dtype):
        x = self.rounded(self.fresh(8, 512), dtype)
        wanted = self.api.view_as_real(self.api.fft.fft(x))
        # log2(512) steps; the twiddle factors are right to a unit, and a step is off by three more
        near = 9 * (1 + 4 * 2**0.5 + 3) * UNIT[dtype] * float((wanted * wanted).sum()) ** 0.5
        found = self.api.view_as_real(self.api.fft.fft(self.send(x, dtype)))
        return self.row("FFT in %s" % dtype, found, wanted, FOURIER, norm=near)

    def _random_numbers(self):
        count, rows = 1 << 16, []
        for name, draw, moments, expected in (
            ("uniform", self.api.rand, uniform_moments, uniform_bounds),
            ("normal", self.api.randn, normal_moments, normal_bounds),
        ):
            before = draw(count, device=self.device)
            self.poison(before)
            drawn = draw(count, device=self.device)
            values, older = drawn.double().cpu(), before.double().cpu()
            wanted, bounds = expected(count)
            row = self.row(name + " numbers", drawn, wanted, CHANCE, largest=bounds)
            rows.append(dict(row, found=moments(values, older, values.unique().numel())))
        return rows

    # -- attention

    def attention(self):
        if not hasattr(self.api.nn.functional, "scaled_dot_product_attention"):
            self.skipped["attention"] = (
                "PyTorch %s has no scaled_dot_product_attention" % self.api.__version__
            )
            return []
        rows = []
        for dtype in filter(self.offered, ("float16", "bfloat16")):
            for masking in ("causal", "mask"):
                rows += self._attention(dtype, masking)
        return rows

    def _backends(self):
        """{name: context}: each implementation that the build names; without names, its own choice alone."""
        module = imported("torch.nn.attention")
        kinds = getattr(module, "SDPBackend", None)
        if kinds is None:
            return {"any": None}
        names = ("MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION")
        return {name.lower(): getattr(kinds, name) for name in names if hasattr(kinds, name)}

    def _attention(self, dtype, masking):
        heads, tokens, width = 2, 136, 64
        arrays = [self.rounded(0.5 * self.fresh(heads, tokens, width), dtype) for _ in "qk"]
        arrays += [self.rounded(self.fresh(heads, tokens, width), dtype) for _ in ("v", "dy")]
        causal = self.api.ones(tokens, tokens, dtype=self.api.bool).tril()
        seen = causal
        if masking == "mask":
            seen = causal & (self.api.rand(tokens, tokens) < 0.7) | self.api.eye(tokens, dtype=self.api.bool)
        mask = (~seen).double() * -1e30
        wanted = self.moved(attention_reference, arrays + [mask], dtype)
        rows = []
        for name, backend in self._backends().items():
            what = "attention by %s in %s, %s" % (name, dtype, masking)
            q, k, v, dy = [self.send(array, dtype)[None] for array in arrays]
            q, k, v = [tensor.requires_grad_() for tensor in (q, k, v)]
            options = {"is_causal": True} if masking == "causal" else {"attn_mask": seen.to(self.device)}
            self.poison(q, k, v, dy)
            try:
                out = self._attend(backend, (q, k, v), options)
                out.backward(dy)
            except RuntimeError as error:
                if not re.search(r"No (available kernel|viable backend)|not implemented", str(error)):
                    raise
                self.skipped[what] = str(error).splitlines()[0][:200]
                continue
            for part, tensor, moved in zip(
                ("output", "dq", "dk", "dv"), (out, q.grad, k.grad, v.grad), wanted
            ):
                bounds = bounds_of(moved, TIMES, 2.0 * TIMES)
                rows.append(self.row("%s: %s" % (what, part), tensor, moved[0], MOVED, **bounds))
        return rows

    def _attend(self, backend, operands, options):
        attend = self.api.nn.functional.scaled_dot_product_attention
        if backend is None:
            return attend(*operands, **options)
        with imported("torch.nn.attention").sdpa_kernel([backend]):
            return attend(*operands, **options)

    # -- compile

    def compile(self):
        if not hasattr(self.api, "compile"):
            self.skipped["compile"] = "PyTorch %s has no torch.compile" % self.api.__version__
            return []
        folder = tempfile.mkdtemp(prefix="cudnn-verify-")
        os.environ.update(TORCHINDUCTOR_CACHE_DIR=folder, TRITON_CACHE_DIR=folder)
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no pool of workers for one kernel
        try:
            return self._compiled(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _compiled(self, folder):
        api, rows = self.api, []

        def fused(x, w, b):
            return api.nn.functional.silu(x * w + b).sum(-1)

        compiled = api.compile(fused, fullgraph=True)
        # the second call has other numbers: what was kept of the first one would be wrong
        for how, function in (("compiled", compiled), ("compiled, called again", compiled), ("eager", fused)):
            arrays = [self.rounded(self.fresh(*shape), "float32") for shape in ((96, 200), (200,), (200,))]
            # CUDA's exp and division are off by 2 units at most (CUDA C++ Programming Guide, their table)
            wanted = self.moved(fused_reference, arrays, "float32", unit=8.0 * UNIT["float32"])
            x, w, b = [self.send(array) for array in arrays]
            x = x.requires_grad_()
            self.poison(x, x.sum(-1))
            y = function(x, w, b)
            y.backward(api.ones_like(y))
            for part, tensor, moved in zip(("sums", "gradient"), (y, x.grad), wanted):
                bounds = bounds_of(moved, 4.0, 4.0)
                rows.append(self.row("%s: %s" % (how, part), tensor, moved[0], MOVED, **bounds))
        ending = ".cubin" if self.driver else ".so"
        made = sum(name.endswith(ending) for _, _, names in os.walk(folder) for name in names)
        told = dict(rows[0], what="a %s file was compiled" % ending, basis=EXACT, norm=None, rows=None)
        return rows + [dict(told, found=[float(made > 0)], wanted=[1.0], largest=0.0)]

    # -- train

    def train(self):
        """Under autocast, with the loss scaled, the steps by hand; then those of an optimizer, and a
        checkpoint.
        """
        api, steps, rate = self.api, 6, 0.2
        dtype = "float16" if self.driver else "bfloat16"
        shapes = ((48, 24), (48, 8), (24, 64), (64,), (64, 8))
        sizes = (1.0, 1.0, 0.2, 0.2, 0.12)
        arrays = [self.rounded(size * self.fresh(*shape), "float32") for size, shape in zip(sizes, shapes)]

        def right(values, r):
            return train_reference(values, r, steps, rate)

        wanted = self.moved(right, arrays, dtype)
        x, targets, *weights = [self.send(array) for array in arrays]
        self.poison(*weights)
        scaler, losses, first = self._scaler(), [], None
        for _ in range(steps):
            weights = [weight.detach().requires_grad_() for weight in weights]
            with self._autocast(dtype):
                hidden = (x @ weights[0] + weights[1]).tanh()
                off = (hidden @ weights[2]).float() - targets
                loss = (off * off).mean()
            scaler.scale(loss).backward()
            losses.append(loss.detach())
            slopes = [weight.grad / scaler.get_scale() for weight in weights]
            scaled = [weight.grad for weight in weights]
            first = first or slopes
            weights = [weight.detach() - rate * slope for weight, slope in zip(weights, slopes)]
        names = ["first gradient of " + name for name in ("w1", "b1", "w2")]
        names += ["%s at the end" % name for name in ("w1", "b1", "w2")] + ["losses"]
        rows = []
        for at, (name, tensor) in enumerate(zip(names, first + weights + [api.stack(losses)])):
            times = TIMES if at < 3 else 8.0  # the same rounding in each step adds up; moves at random do not
            bounds = bounds_of(wanted[at], times, 2.0 * times)
            rows.append(self.row("%s, %s" % (name, dtype), tensor, wanted[at][0], MOVED, **bounds))
        falls = dict(rows[-1], what="the loss falls", basis=EXACT, norm=None, rows=None, largest=0.0)
        fell = float(losses[-1]) < 0.9 * float(losses[0])
        rows.append(dict(falls, found=[float(fell)], wanted=[1.0]))
        # autocast multiplies in the short type: the gradients of both matrices have no more bits than that
        short = [slope.to(getattr(api, dtype)).to(slope.dtype) for slope in scaled]
        found = [float(bool((slope == cut).all())) for slope, cut in zip(scaled, short)]
        told = dict(falls, what="gradients of the matrices are numbers of %s" % dtype)
        rows.append(dict(told, found=[found[0], found[2]], wanted=[1.0, 1.0]))
        return rows + self._optimized()

    def _optimized(self):
        """Three steps of Adam, and its weights through a checkpoint.

        By the function, not the class, which imports Dynamo first: that takes seconds, cold more than ten.
        """
        adam = getattr(imported("torch.optim.adam"), "adam", None)
        if adam is None:
            self.skipped["Adam"] = "PyTorch %s has no function for it" % self.api.__version__
            return []
        rate, shapes, rows = 0.05, ((40, 16), (16,)), []
        arrays = [self.rounded(self.fresh(*shape), "float32") for shape in shapes * 4]
        # CUDA's root and division are off by 2 units at most (CUDA C++ Programming Guide, their table)
        wanted = self.moved(
            lambda values, r: adam_reference(values, r, len(shapes), rate),
            arrays,
            "float32",
            unit=8.0 * UNIT["float32"],
        )
        sent = [self.send(array) for array in arrays]
        weights, state = sent[: len(shapes)], [[self.api.zeros_like(one) for one in sent[:2]] for _ in "mv"]
        counts = [self.api.tensor(0.0) for _ in shapes]
        options = {"amsgrad": False, "beta1": 0.9, "beta2": 0.999, "lr": rate, "weight_decay": 0.0}
        for step in range(1, 4):
            slopes = sent[step * len(shapes) : (step + 1) * len(shapes)]
            adam(weights, slopes, state[0], state[1], [], counts, eps=1e-8, maximize=False, **options)
        for at, (weight, moved) in enumerate(zip(weights, wanted)):
            what, bounds = "weight %d after three steps of Adam" % at, bounds_of(moved, 4.0, 4.0)
            rows.append(self.row(what, weight, moved[0], MOVED, **bounds))
        stream = io.BytesIO()
        self.api.save(weights, stream)
        stream.seek(0)
        for at, read in enumerate(self.api.load(stream, map_location=self.device)):
            right = weights[at].double().cpu()
            rows.append(self.row("weight %d out of a checkpoint" % at, read, right, EXACT, largest=0.0))
        return rows

    def _scaler(self):
        if self.driver:
            return (
                self.api.cuda.amp.GradScaler(init_scale=1024.0)
                if not hasattr(self.api.amp, "GradScaler")
                else (self.api.amp.GradScaler("cuda", init_scale=1024.0))
            )
        return self.api.amp.GradScaler("cpu", init_scale=1024.0)

    def _autocast(self, dtype):
        kind = "cuda" if self.driver else "cpu"
        return self.api.autocast(kind, dtype=getattr(self.api, dtype))

    # -- vision

    def vision(self):
        rows, operators = [self._resized()], imported("torchvision.ops")
        if operators is None:
            self.skipped["nms"] = "there is no torchvision"
            return rows
        boxes, scores, thresholds = boxes_to_suppress(self.random.randrange)
        placed = self.api.tensor(boxes).float().to(self.device)
        for threshold in thresholds:
            found = operators.nms(placed, self.api.tensor(scores).float().to(self.device), threshold)
            wanted = [float(at) for at in suppressed(boxes, scores, threshold)]
            rows.append(self.row("nms above %.6f" % threshold, found, wanted, EXACT, largest=0.0))
        return rows

    def _resized(self):
        size, side = 48, 77
        image = self.rounded(self.fresh(3, size, size), "float32")
        wanted = [value for plane in image.tolist() for row in resized(plane, side) for value in row]
        x = self.send(image)[None]
        self.poison(self.api.zeros(1, 3, side, side, device=self.device))
        options = {"size": (side, side), "mode": "bilinear", "align_corners": False}
        found = self.api.nn.functional.interpolate(x, **options)
        near = resize_bound(size, abs(image).max())
        return self.row("bilinear resize", found, wanted, PRODUCT, largest=near)

    # -- convolutions that ``conv`` has not

    def conv_kinds(self):
        rows = []
        for kind in CONVOLUTION_KINDS:
            for dtype in filter(self.offered, ("float32", "float16", "bfloat16")):
                data = kind.fresh()
                tensors = [self._placed(kind, data, name, dtype) for name in kind.operands]
                self.poison(*tensors)
                for name, tensor in zip(kind.answers, self._convolved(kind, *tensors)):
                    what = "%s in %s: %s" % (kind.name, dtype, name)
                    wanted = [float(value) for value in data[name]]
                    rows.append(self.row(what, tensor, wanted, WHOLE, largest=ROUNDING["winograd"]))
        return rows + self._strided()

    def _strided(self):
        """In real numbers, with sums in float32 and without TF32, which whole numbers do not tell apart."""
        rows, kind, cudnn = [], STRIDED, self.api.backends.cudnn
        allowed = getattr(cudnn, "allow_tf32", None)
        if allowed is not None:
            cudnn.allow_tf32 = False
        for dtype, bits in (("float64", 53), ("float32", 24), ("float16", 11), ("bfloat16", 8)):
            if not self.offered(dtype):
                continue
            data = kind.fresh_real(bits)
            bounds = convolution_bounds(data, STRIDED_TERMS, dtype)
            tensors = [self._placed(kind, data, name, dtype) for name in kind.operands]
            self.poison(*tensors)
            for name, tensor in zip(kind.answers, self._convolved(kind, *tensors)):
                what = "%s in %s: %s" % (kind.name, dtype, name)
                rows.append(self.row(what, tensor, data[name], PRODUCT, **bounds[name]))
        if allowed is not None:
            cudnn.allow_tf32 = allowed
        return rows

    def _placed(self, kind, data, name, dtype):
        array = self.api.tensor(data[name], dtype=self.api.float64).reshape(data[name + "_shape"])
        tensor = self.send(array, dtype)
        return tensor.contiguous(memory_format=self.api.channels_last) if kind.last else tensor

    def _convolved(self, kind, x, w, dy):
        name = "conv_transpose%dd" if kind.transposed else "conv%dd"
        x, w = x.requires_grad_(), w.requires_grad_()
        options = {"stride": kind.stride, "dilation": kind.dilation, "groups": kind.groups}
        options["padding"] = kind.dilation
        y = getattr(self.api.nn.functional, name % kind.dimensions)(x, w, **options)
        y.backward(dy)
        return y, x.grad, w.grad

    # -- loader

    def loader(self):
        data, seed = imported("torch.utils.data"), self.random.randrange(1, 250)
        options = {"batch_size": 8, "num_workers": 2, "pin_memory": bool(self.driver), "timeout": 20}
        rows, pinned, makers = [], [], set()
        source = Counted(self.api, seed)
        for at, batch in enumerate(data.DataLoader(source, **options)):
            pinned.append(self.place_of(batch))
            makers.update(batch[:, -1].tolist())
            wanted = self.api.stack([source[8 * at + index] for index in range(8)]).double()
            if batch.shape == wanted.shape:
                wanted[:, -1] = batch[:, -1].double()
            target = self.api.full_like(batch, float("nan"), device=self.device)
            target.copy_(batch, non_blocking=True)
            rows.append(self.row("batch %d of two workers" % at, target, wanted, EXACT, largest=0.0))
        if rows:
            told = dict(rows[0], what="four batches, made by two other processes")
            found = [float(len(rows)), float(len(makers)), float(os.getpid() in makers)]
            rows.append(dict(told, found=found, wanted=[4.0, 2.0, 0.0]))
        if self.driver and rows:
            right = [float(word == PINNED) for word in pinned]
            told = dict(rows[0], what="the batches lie in %s" % PINNED)
            rows.append(dict(told, found=right, wanted=[1.0] * 4))
        return rows

    # -- comm

    def comm(self):
        spread = imported("torch.distributed")
        if spread is None or not spread.is_available() or not (spread.is_nccl_available() or not self.driver):
            self.skipped["comm"] = "this PyTorch is built without NCCL"
            return []
        spread.init_process_group(
            "nccl" if self.driver else "gloo", store=spread.HashStore(), rank=0, world_size=1
        )
        try:
            x = self.send(self.api.arange(3000).double() % 1021)
            out = self.api.full_like(x, float("nan"))
            spread.all_gather([out], x)
            rows = [self.row("all_gather of one card", out, x.double().cpu(), EXACT, largest=0.0)]
        finally:
            spread.destroy_process_group()
        return rows + self._nccl(rows[0])

    def _nccl(self, row):
        rows = []
        count = self.api.cuda.device_count()
        if count > 1:
            parts = [self.api.full((3000,), float(at + 1), device="cuda:%d" % at) for at in range(count)]
            self.api.cuda.nccl.all_reduce(parts)
            total = [count * (count + 1) / 2.0] * 3000
            rows += [
                self.row("all_reduce, card %d" % at, part, total, EXACT, largest=0.0)
                for at, part in enumerate(parts)
            ]
        told, reason = version_of_nccl(self.ctx.facts.get("packages") or {}, row)
        if reason:
            self.skipped["version of NCCL"] = reason
        return rows + told
