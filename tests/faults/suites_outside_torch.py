"""Run by PyTorch's own Python: the faults of suites_outside.toml, each put into a real PyTorch on the CPU.

Usage: suites_outside_torch.py REPOSITORY [SUITE | SUITE:FAULT]...; prints a line of JSON for each fault and
element type: {suite, fault, dtype, rows, applied: how many calls were spoiled, faults: what the judge says},
or {suite, fault, dtype, reason}. A fault replaces an operation of the framework, so the suite sees no more of
it than of the framework. Training is in bfloat16 on the CPU, whatever type the fault names.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import tomllib
import types
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from unittest import mock

repository, *chosen = sys.argv[1:]
for package in ("builder", "builder.core", "builder.verify", "builder.verify.cudnn_verify"):
    module = types.ModuleType(package)
    module.__path__ = [str(Path(repository, *package.split(".")))]
    sys.modules[package] = module

import torch  # noqa: E402
import torchvision.ops  # noqa: E402
from torch.utils import data  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from builder.verify.cudnn_verify.measure import suite_judge  # noqa: E402
from builder.verify.cudnn_verify.measure.protocol import Ctx  # noqa: E402
from builder.verify.cudnn_verify.measure.schedule import FRAMEWORKS, SUITE_CLASSES, run_suite  # noqa: E402
from builder.verify.cudnn_verify.measure.suite_judge import ON_CARD, judge_results  # noqa: E402

F = torch.nn.functional
TYPES = {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
NARROWER = {torch.float64: torch.float32, torch.float32: torch.bfloat16}
NAN = float("nan")
FAULTS: dict[tuple[str, str], object] = {}
APPLIED = [0]
REASONS = {
    ("linalg", "gemm-scale-forgotten"): "FP8 is computed on a card alone",
    ("loader", "not-pinned"): "memory is pinned beside a card alone",
    ("comm", "not-reduced"): "one card: the sum over one rank is its own part",
}
"""Why a fault cannot be put into PyTorch on the CPU."""
ON_HOST = {"silent-cpu": "", "checkpoint-on-cpu": "checkpoint"}
"""{fault: a word in the names of the results that stay on the CPU}; all others are taken for a card's."""


def fault(suite, name):
    def keep(function):
        FAULTS[suite, name] = function
        return function

    return keep


def hit(value):
    APPLIED[0] += 1
    return value


class _Through(torch.autograd.Function):
    """The tensor with its value, its gradient, or both changed on the way."""

    @staticmethod
    def forward(ctx, tensor, value, gradient):
        ctx.gradient = gradient
        return value(tensor) if value else tensor.clone()

    @staticmethod
    def backward(ctx, dy):
        return (ctx.gradient(dy) if ctx.gradient else dy), None, None


def through(tensor, value=None, gradient=None):
    if value is None and gradient is None:
        return tensor
    return hit(_Through.apply(tensor, value, gradient))


def edit(tensor, place, value):
    """A copy with one part replaced, which keeps the order of its memory."""
    copy = tensor.clone()
    copy[place] = value
    return copy


# -- conv


def convolutions(dtype, spoil):
    """Each convolution of this element type by ``spoil(the real one, x, w, options)``."""

    def patched(real):
        def convolve(x, w, **options):
            return spoil(real, x, w, options) if x.dtype == dtype else real(x, w, **options)

        return convolve

    names = ("conv2d", "conv3d", "conv_transpose2d")
    return [mock.patch.object(F, name, patched(getattr(F, name))) for name in names]


def on_output(suite, name, change):
    @fault(suite, name)
    def put(dtype):
        return convolutions(
            dtype,
            lambda real, x, w, options: through(
                real(x, w, **options), lambda y: change(y, x, w, real, options)
            ),
        )


def _other(y, x, w, real, options):
    return real(-x.detach().roll(1, -1), w.detach(), **options)


on_output(
    "conv",
    "stale-tile",
    lambda y, x, w, real, options: edit(
        y, (0, 0, ..., slice(0, 4), slice(0, 4)), _other(y, x, w, real, options)[0, 0, ..., :4, :4]
    ),
)
on_output("conv", "nan-corner", lambda y, *_: edit(y, (-1,) * y.dim(), NAN))
on_output("conv", "images-swapped", lambda y, *_: y[[1, 0, *range(2, len(y))]] if len(y) > 1 else y)
on_output("conv", "channel-zero", lambda y, *_: edit(y, (slice(None), 1), 0.0))
on_output("conv", "not-written", lambda y, *_: torch.empty_like(y))
on_output(
    "conv",
    "channels-last-strides",
    lambda y, x, *_: (
        y
        if y.dim() != 4 or x.is_contiguous()
        else y.contiguous().reshape(y.shape[0], y.shape[2], y.shape[3], y.shape[1]).permute(0, 3, 1, 2)
    ),
)


def _replicated(y, x, w, real, options):
    if "transpose" in real.__name__ or options["groups"] > 1:
        return y
    pad = options["padding"]
    wide = F.pad(x.detach(), (pad,) * (2 * (x.dim() - 2)), mode="replicate")
    return edit(y, (..., -1, slice(None)), real(wide, w.detach(), **{**options, "padding": 0})[..., -1, :])


on_output("conv", "replicate-padding", _replicated)


def on_operands(name, change):
    @fault("conv", name)
    def put(dtype):
        def spoil(real, x, w, options):
            changed = change(real, x, w, options)
            if changed is None:
                return real(x, w, **options)
            return hit(real(changed[0], changed[1], **changed[2]))

        return convolutions(dtype, spoil)


on_operands(
    "depthwise-groups-ignored",
    lambda real, x, w, options: (x, w[:1].expand_as(w), options) if options["groups"] > 1 else None,
)
on_operands(
    "dilation-ignored",
    lambda real, x, w, options: (
        (x, w, {**options, "dilation": 1, "padding": 1}) if options["dilation"] > 1 else None
    ),
)
on_operands(
    "transposed-flipped",
    lambda real, x, w, options: (x, w.flip(-1, -2), options) if "transpose" in real.__name__ else None,
)
on_operands(
    "depth-missed",
    lambda real, x, w, options: (
        (x, edit(w, (slice(None), slice(None), -1), 0.0), options) if x.dim() == 5 else None
    ),
)
on_operands(
    "low-precision-input",
    lambda real, x, w, options: (x.bfloat16().to(x.dtype), w.bfloat16().to(w.dtype), options),
)


def ten_bits(tensor):
    """Rounded to the 10 bits that float16 and TF32 keep, to the nearest; the gradient passes."""
    bits = (tensor.detach().view(torch.int32) + 0x1000) & ~0x1FFF
    return tensor + (bits.view(torch.float32) - tensor.detach())


on_operands("tf32-unasked", lambda real, x, w, options: (ten_bits(x), ten_bits(w), options))


def _rounded_sum(real, x, w, options):
    if "transpose" in real.__name__ or options["groups"] > 1:
        return real(x, w, **options)
    total = None
    for at in range(x.shape[1]):
        part = real(x[:, at : at + 1], w[:, at : at + 1], **options)
        total = part if total is None else total + part
    return hit(total)


FAULTS["conv", "rounded-sum"] = lambda dtype: convolutions(dtype, _rounded_sum)


def on_gradient(name, of_x=None, of_w=None):
    @fault("conv", name)
    def put(dtype):
        def spoil(real, x, w, options):
            taken = {}

            def capture(dy):
                taken["dy"] = dy
                return dy

            def changed(dw):
                return of_w(dw, taken["dy"], x.detach(), w.detach(), lambda a, b: real(a, b, **options))

            y = real(through(x, None, of_x), through(w, None, changed if of_w else None), **options)
            y.register_hook(capture)
            return y

        return convolutions(dtype, spoil)


def _without_last_image(dw, dy, x, w, convolve):
    with torch.enable_grad():
        w = w.requires_grad_()
        return dw - torch.autograd.grad(convolve(x[-1:], w), w, dy[-1:])[0]


on_gradient("weight-gradient-misses-image", of_w=_without_last_image)
on_gradient("weight-gradient-doubled", of_w=lambda dw, *_: 2 * dw)
on_gradient("input-gradient-zero", of_x=torch.zeros_like)
on_gradient("input-gradient-shifted", of_x=lambda dx: dx.roll(1, -1))

# -- linalg


def product(name, spoil):
    @fault("linalg", name)
    def put(dtype):
        real = torch.matmul

        def multiply(a, b, out=None):
            if a.dtype != dtype:
                return real(a, b, out=out) if out is not None else real(a, b)
            found = hit(spoil(real, a, b))
            return found if out is None else out.copy_(found)

        return [mock.patch.object(torch, "matmul", multiply)]


def _running(real, a, b):
    total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
    for at in range(a.shape[1]):
        total = total + a[:, at : at + 1] * b[at : at + 1]
    return total


def _bit(real, a, b):
    found = real(a, b)
    bits, whole = {torch.float64: (52, torch.int64), torch.float32: (23, torch.int32)}.get(
        a.dtype, (10 if a.dtype == torch.float16 else 7, torch.int16)
    )
    found.view(whole)[3, 5] ^= 1 << bits
    return found


product(
    "gemm-transposed",
    lambda real, a, b: real(a, b).reshape(-1).view(b.shape[1], a.shape[0]).t().contiguous(),
)
product("gemm-last-block", lambda real, a, b: real(a[:, :-8], b[:-8]))
product("gemm-one-term", lambda real, a, b: real(a[:, :-1], b[:-1]))
product(
    "gemm-narrow",
    lambda real, a, b: real(a.to(NARROWER[a.dtype]).to(a.dtype), b.to(NARROWER[a.dtype]).to(a.dtype)),
)
product("gemm-rounded-sum", _running)
product("gemm-bit", _bit)


def decomposition(name, holder, operation, change):
    @fault("linalg", name)
    def put(dtype):
        real = getattr(holder, operation)

        def call(*arguments, **options):
            found = real(*arguments, **options)
            return hit(change(found, arguments[0])) if arguments[0].dtype == dtype else found

        return [mock.patch.object(holder, operation, call)]


decomposition(
    "svd-vectors-swapped",
    torch.linalg,
    "svd",
    lambda f, a: (f[0][:, [1, 0, *range(2, f[0].shape[1])]], f[1], f[2]),
)
decomposition(
    "svd-sign", torch.linalg, "svd", lambda f, a: (edit(f[0], (slice(None), 0), -f[0][:, 0]), f[1], f[2])
)
decomposition("svd-value", torch.linalg, "svd", lambda f, a: (f[0], edit(f[1], -1, 0.0), f[2]))
decomposition("cholesky-upper", torch.linalg, "cholesky", lambda f, a: f.t())
decomposition("cholesky-last", torch.linalg, "cholesky", lambda f, a: edit(f, (-1, -1), f[-1, -1] ** 2))
decomposition("fft-unnormalised", torch.fft, "fft", lambda f, a: f / f.shape[-1])
decomposition("fft-conjugate", torch.fft, "fft", lambda f, a: f.conj().resolve_conj())
decomposition("fft-rolled", torch.fft, "fft", lambda f, a: f.roll(1, -1))


def draws(name, operation, change):
    @fault("linalg", name)
    def put(dtype):
        real = getattr(torch, operation)

        def draw(*shape, **options):
            values = real(*shape, **options)
            large = values.dtype == dtype and values.dim() == 1
            return hit(change(values)) if large else values

        return [mock.patch.object(torch, operation, draw)]


draws("rng-constant", "rand", lambda values: torch.full_like(values, 0.5))
draws("rng-repeats", "rand", lambda values: torch.cat([values[: len(values) // 2]] * 2))
draws("rng-narrow", "randn", lambda values: 0.95 * values)
draws(
    "rng-uniform",
    "randn",
    lambda values: (torch.rand(values.shape, dtype=torch.float64) - 0.5).float() * 12**0.5,
)

# -- attention


def attends(name, spoil):
    @fault("attention", name)
    def put(dtype):
        real = F.scaled_dot_product_attention

        def attend(q, k, v, attn_mask=None, is_causal=False):
            options = {"attn_mask": attn_mask, "is_causal": is_causal}
            if q.dtype != dtype:
                return real(q, k, v, **options)
            changed = spoil(real, q, k, v, options)
            return real(q, k, v, **options) if changed is None else hit(changed)

        return [mock.patch.object(F, "scaled_dot_product_attention", attend)]


def _triangle(real, q, k, v, options, diagonal):
    if not options["is_causal"]:
        return None
    seen = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).tril(diagonal)
    seen[0, 0] = True
    return real(q, k, v, attn_mask=seen)


def _masked(real, q, k, v, options, change):
    return None if options["attn_mask"] is None else real(q, k, v, attn_mask=change(options["attn_mask"]))


def _scaled(times):
    return lambda real, q, k, v, options: real(q, k, v, scale=times(q.shape[-1]), **options)


def seen_by(q, options):
    if options["is_causal"]:
        return torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).tril()
    return options["attn_mask"]


def _without_last_keys(real, q, k, v, options):
    seen = seen_by(q, options).clone()
    seen[4:, -4:] = False
    return real(q, k, v, attn_mask=seen)


def _not_rescaled(real, q, k, v, options):
    scores = (q.float() @ k.float().transpose(-1, -2)) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~seen_by(q, options), -1e30)
    half = scores.shape[-1] // 2
    first, second = scores[..., :half], scores[..., half:]
    top = scores.max(-1, keepdim=True).values
    parts = torch.cat([(first - first.max(-1, keepdim=True).values).exp(), (second - top).exp()], -1)
    return (parts / parts.sum(-1, keepdim=True) @ v.float()).to(q.dtype)


attends("causal-off-by-one", lambda *given: _triangle(*given, 1))
attends("causal-too-strict", lambda *given: _triangle(*given, -1))
attends("causal-ignored", lambda real, q, k, v, options: real(q, k, v) if options["is_causal"] else None)
attends("mask-ignored", lambda *given: _masked(*given, torch.ones_like))
attends("mask-inverted", lambda *given: _masked(*given, torch.logical_not))
attends("scale-forgotten", _scaled(lambda width: 1.0))
attends("scale-twice", _scaled(lambda width: 1.0 / width))
attends("last-keys-missed", _without_last_keys)
attends("tile-not-rescaled", _not_rescaled)


def attended(name, change):
    attends(name, lambda real, q, k, v, options: through(real(q, k, v, **options), change))


attended("heads-swapped", lambda out: out[:, [1, 0, *range(2, out.shape[1])]])
attended("other-type", lambda out: out.bfloat16().to(out.dtype))
attended("nan-row", lambda out: edit(out, (-1, -1, -1), NAN))
attended(
    "last-row-not-written", lambda out: edit(out, (..., -1, slice(None)), torch.empty_like(out)[..., -1, :])
)
attends(
    "query-gradient-dropped",
    lambda real, q, k, v, options: real(through(q, None, torch.zeros_like), k, v, **options),
)
attends(
    "key-gradient-head",
    lambda real, q, k, v, options: real(q, through(k, None, lambda dk: edit(dk, (0, 1), 0.0)), v, **options),
)


def _stale_rows(dv):
    return edit(dv, (..., slice(-4, None), slice(None)), dv.flip(-2)[..., -4:, :])


attends(
    "value-gradient-stale",
    lambda real, q, k, v, options: real(q, k, through(v, None, _stale_rows), **options),
)

# -- compile


def compiles(name, made):
    @fault("compile", name)
    def put(dtype):
        real = torch.compile
        return [
            mock.patch.object(
                torch, "compile", lambda function, **options: hit(made(real, function, options))
            )
        ]


def _first_inputs(real, function, options):
    compiled, first = real(function, **options), []

    def call(*operands):
        first.append(operands)
        return compiled(*first[0])

    return call


def _changed_result(real, function, options):
    compiled = real(function, **options)
    return lambda *operands: through(compiled(*operands), lambda y: edit(y, slice(-3, None), torch.empty(3)))


compiles("first-inputs", _first_inputs)
compiles("tail", _changed_result)
compiles("operation-skipped", lambda real, f, options: real(lambda x, w, b: (x * w + b).sum(-1), **options))
# .half().float() would be no fault: Inductor leaves out such a pair (joint_graph.py, pointless_convert)
compiles("half-between", lambda real, f, options: real(
    lambda x, w, b: F.silu(ten_bits(x * w + b)).sum(-1), **options))  # fmt: skip
compiles("not-compiled", lambda real, f, options: f)

# -- train: the operations of the steps, by their shapes

WEIGHTS = ((24, 64), (64,), (64, 8))


class _Step(TorchDispatchMode):
    """``of(name, the real call, operands)``: the result in place of the operation's, or None."""

    def __init__(self, of):
        super().__init__()
        self.of = of

    def __torch_dispatch__(self, function, kinds, operands=(), options=None):
        def real(*changed):
            return function(*(changed or operands), **(options or {}))

        found = self.of(function.__name__.split(".")[0], real, operands)
        return real() if found is None else hit(found)


def trains(name, of):
    @fault("train", name)
    def put(dtype):
        return [_Step(of())]


def step_of(name, operands):
    return name == "sub" and operands[0].dtype == torch.float32 and tuple(operands[0].shape) in WEIGHTS


def _at_step(change):
    return lambda: lambda name, real, operands: change(*operands[:2]) if step_of(name, operands) else None


trains("weights-not-updated", _at_step(lambda weight, change: weight.clone()))
trains("step-upwards", _at_step(lambda weight, change: weight + change))
trains("step-twice", _at_step(lambda weight, change: weight - 2 * change))


def _kept():
    older = {}

    def of(name, real, operands):
        if not step_of(name, operands):
            return None
        shape = tuple(operands[0].shape)
        older[shape] = older.get(shape, 0.0) + operands[1]
        return operands[0] - older[shape]

    return of


def _on_slope(change):
    def of(name, real, operands):
        at_slope = (
            name == "div" and operands[0].dtype == torch.float32 and tuple(operands[0].shape) in WEIGHTS
        )
        return change(operands[0], real) if at_slope and operands[1] == 1024.0 else None

    return lambda: of


def _third_loss():
    seen = []

    def of(name, real, operands):
        if name != "mean" or operands[0].dim() != 2 or operands[0].dtype != torch.float32:
            return None
        seen.append(1)
        return real() * NAN if len(seen) > 2 else None

    return of


trains("gradients-kept", _kept)
trains("never-unscaled", _on_slope(lambda slope, real: slope.clone()))
trains(
    "gradient-dropped", _on_slope(lambda slope, real: torch.zeros_like(slope) if slope.dim() == 1 else None)
)
trains("loss-nan", _third_loss)


@fault("train", "autocast-ignored")
def _autocast_ignored(dtype):
    real = torch.autocast

    def autocast(*given, **options):
        return hit(real("cpu", enabled=False))

    return [mock.patch.object(torch, "autocast", autocast)]


# -- vision


def suppresses(name, change):
    @fault("vision", name)
    def put(dtype):
        real = torchvision.ops.nms
        return [
            mock.patch.object(
                torchvision.ops,
                "nms",
                lambda boxes, scores, limit: hit(change(real(boxes, scores, limit), scores)),
            )
        ]


def _one_more(kept, scores):
    return torch.cat([kept, torch.tensor([at for at in range(len(scores)) if at not in kept.tolist()][:1])])


suppresses("nms-one-too-many", _one_more)
suppresses("nms-best-lost", lambda kept, scores: kept[1:])
suppresses("nms-threshold", lambda kept, scores: scores.argsort(descending=True))
suppresses("nms-order", lambda kept, scores: kept.sort().values)


def resizes(name, options=None, change=None):
    @fault("vision", name)
    def put(dtype):
        real = F.interpolate

        def resize(image, **given):
            found = hit(real(image, **(options(given) if options else given)))
            return change(found) if change else found

        return [mock.patch.object(F, "interpolate", resize)]


resizes("resize-half-pixel", lambda given: {**given, "align_corners": not given["align_corners"]})
resizes("resize-nearest", lambda given: {"size": given["size"], "mode": "nearest"})
resizes("resize-last-row", None, lambda y: edit(y, (..., -1, slice(None)), torch.empty_like(y)[..., -1, :]))

# -- loader


def loads(name, change, changed=None):
    @fault("loader", name)
    def put(dtype):
        real = data.DataLoader
        return [
            mock.patch.object(
                data,
                "DataLoader",
                lambda source, **options: hit(change(real(source, **{**options, **(changed or {})}))),
            )
        ]


def _spoilt(change):
    return lambda loader: change([batch.clone() for batch in loader])


loads("batch-repeated", _spoilt(lambda batches: [batches[0], batches[0], *batches[2:]]))
loads("last-sample-lost", _spoilt(lambda batches: [*batches[:-1], batches[-1][:-1]]))
loads("order", _spoilt(lambda batches: [batches[0], batches[2], batches[1], *batches[3:]]))
loads(
    "read-early",
    _spoilt(lambda batches: [
        batches[0],
        *[torch.cat([new[:4], old[4:]]) for old, new in pairwise(batches)],
    ]),
)  # fmt: skip
loads("no-workers", iter, {"num_workers": 0, "timeout": 0})


# -- comm


@fault("comm", "tail-lost")
def _tail_lost(dtype):
    import torch.distributed as spread

    real = spread.all_gather

    def gather(outs, x):
        last = [out[-1].clone() for out in outs]
        real(outs, x)
        for out, value in zip(outs, last, strict=True):
            out[-1] = value
        return hit(None)

    return [mock.patch.object(spread, "all_gather", gather)]


@fault("comm", "other-version")
def _other_version(dtype):
    def other(version):
        version._obj.value += 100
        return hit(0)

    nccl = types.SimpleNamespace(ncclGetVersion=other)
    return [mock.patch.object(suite_judge, "open_library", return_value=nccl)]


def main(list_of_faults: str) -> None:
    wheel = "nvidia-nccl-cu12"
    packages = {wheel: {"name": wheel, "version": importlib.metadata.version(wheel)}}
    framework = FRAMEWORKS["torch"](
        Ctx("torch", {"facts": {"packages": packages}}, os.open(os.devnull, os.O_WRONLY))
    )
    framework.load()
    if hasattr(framework, "prepare"):
        framework.prepare(None)
    listed = tomllib.loads(Path(__file__).with_name(list_of_faults).read_text("utf-8"))
    for suite, entries in listed.items():
        if suite == "infer" or "-" in suite:  # another framework's
            continue
        name = "conv-kinds" if suite == "conv" else suite
        for fault_name, entry in [("sound", {"dtypes": [""]}), *entries.items()]:
            if chosen and not {suite, f"{suite}:{fault_name}"} & set(chosen):
                continue
            for dtype in entry["dtypes"]:
                told = {"suite": suite, "fault": fault_name, "dtype": dtype}
                if (suite, fault_name) in REASONS:
                    print(json.dumps({**told, "reason": REASONS[suite, fault_name]}), flush=True)
                    continue
                APPLIED[0] = 0
                torch.compiler.reset()
                with ExitStack() as patches:
                    put = FAULTS.get((suite, fault_name), lambda _: [])
                    if fault_name != "sound" and fault_name not in ON_HOST:
                        put = FAULTS[suite, fault_name]
                    for patch in put(TYPES.get(dtype)):
                        patches.enter_context(patch)
                    try:
                        rows, raised = run_suite(SUITE_CLASSES["torch"], framework, "cpu", name)[0], []
                    except (
                        AttributeError,
                        RuntimeError,
                        TypeError,
                        ValueError,
                    ) as problem:  # the probe's check of the suite has failed then
                        rows, raised = [], [f"{type(problem).__name__}: {problem}"]
                card, word = {"devices": ["cuda:0"], "memory": [ON_CARD + "0"]}, ON_HOST.get(fault_name)
                rows = [row if word is not None and word in row["what"] else {**row, **card} for row in rows]
                faults = raised or [one["says"] for one in judge_results(rows)["faults"]]
                print(
                    json.dumps({**told, "rows": len(rows), "applied": APPLIED[0], "faults": faults[:3]}),
                    flush=True,
                )


if __name__ == "__main__":
    main("suites_outside.toml")
