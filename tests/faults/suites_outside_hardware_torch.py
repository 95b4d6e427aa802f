"""Run by PyTorch's own Python: the faults of suites_outside_hardware.toml, in a real PyTorch on the CPU.

Usage and output are those of suites_outside_torch.py, whose ways to put a fault in it takes.
"""

from __future__ import annotations

from unittest import mock

import torch
import torchvision.ops
from suites_outside_torch import (
    F,
    attends,
    compiles,
    decomposition,
    draws,
    edit,
    fault,
    hit,
    loads,
    main,
    on_gradient,
    on_output,
    product,
    resizes,
    seen_by,
    step_of,
    ten_bits,
    through,
    trains,
)

# -- conv


def _neighbours(y, *_):
    flat = y.clone().reshape(-1)
    flat[31::32] = flat[30::32][: len(flat[31::32])]
    return flat.reshape(y.shape)


def _other_sign(y, *_):
    flat = y.clone().reshape(-1)
    at = flat.abs().argmax()
    flat[at] = -flat[at]
    return flat.reshape(y.shape)


on_output("conv", "lane-repeats", _neighbours)
on_output("conv", "sign-flipped", _other_sign)
on_output(
    "conv", "mantissa-bit-stuck", lambda y, *_: (y.contiguous().view(torch.int32) & ~(1 << 12)).view(y.dtype)
)
on_output("conv", "batch-stride-ignored", lambda y, *_: edit(y, -1, y[0]) if len(y) > 1 else y)


def _without_one_position(dw, dy, x, w, convolve):
    part = torch.zeros_like(dy[:1])
    at = (0, slice(None), *(size // 2 for size in dy.shape[2:]))
    part[at] = dy[at]
    with torch.enable_grad():
        w = w.requires_grad_()
        return dw - torch.autograd.grad(convolve(x[:1], w), w, part)[0]


on_gradient("atomic-lost", of_w=_without_one_position)
on_gradient("input-gradient-column", of_x=lambda dx: edit(dx, (..., -1), 0.0))

# -- linalg


def _narrow_tile(real, a, b):
    found = real(a, b)
    found[:4, :4] = real(ten_bits(a[:4]), ten_bits(b[:, :4].contiguous()))
    return found


product("gemm-rows-exchanged", lambda real, a, b: real(torch.cat([a[-8:], a[8:-8], a[:8]]), b))
product("gemm-chunk-twice", lambda real, a, b: real(a, b) + real(a[:, :8], b[:8]))
product(
    "gemm-low-bits-stuck", lambda real, a, b: (real(a, b).view(torch.int64) & ~0xFFFF).view(torch.float64)
)
product("gemm-tile-narrow", _narrow_tile)


def second_call(name, holder, operation, change):
    """In float64 the suite's own call is the second one: the first makes an operand or the reference."""

    @fault("linalg", name)
    def put(dtype):
        real, calls = getattr(holder, operation), []

        def call(*arguments, **options):
            found = real(*arguments, **options)
            if arguments[0].dtype != dtype:
                return found
            calls.append(1)
            own = len(calls) == (2 if dtype == torch.float64 else 1)
            return hit(change(found, arguments[0])) if own else found

        return [mock.patch.object(holder, operation, call)]


def _exchanged(f, a):
    order = [*range(len(f[1]) - 2), len(f[1]) - 1, len(f[1]) - 2]
    return f[0][:, order], f[1][order], f[2][order]


def _short_roots(f, a):
    angle = -2j * torch.pi * torch.arange(a.shape[-1], dtype=torch.float64) / a.shape[-1]
    at = torch.arange(a.shape[-1])
    return (
        a.to(torch.complex128)
        @ angle.exp().to(torch.complex64).to(torch.complex128)[at[:, None] * at % a.shape[-1]]
    )


second_call(
    "svd-vector-scaled",
    torch.linalg,
    "svd",
    lambda f, a: (edit(f[0], (slice(None), -1), 1.001 * f[0][:, -1]), f[1], f[2]),
)
second_call("svd-order", torch.linalg, "svd", _exchanged)
decomposition("cholesky-not-cleared", torch.linalg, "cholesky", lambda f, a: f + a.triu(1))
second_call("fft-twiddles", torch.fft, "fft", _short_roots)
draws("rng-bit-stuck", "rand", lambda u: u - (u * 128).floor() % 2 / 128)
draws("rng-short", "rand", lambda u: (u * 4096).floor() / 4096)
draws("rng-block-twice", "rand", lambda u: torch.cat([u[:2048], u[1024:2048], u[3072:]]))
draws("rng-tail", "randn", lambda x: torch.where(x.abs() > 3, x - 3 * x.sign(), x))

# -- attention


def _sum_of_neighbour(real, q, k, v, options):
    scores = (q.float() @ k.float().transpose(-1, -2)) * q.shape[-1] ** -0.5
    sums = scores.masked_fill(~seen_by(q, options), -1e30).exp().sum(-1).detach()
    wrong = (sums[..., 100] / sums[..., 101])[..., None]
    change = lambda y: edit(y, (..., 100, slice(None)), (y[..., 100, :].float() * wrong).to(y.dtype))  # noqa: E731
    return through(real(q, k, v, **options), change)


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, k, v):
        return k.clone(), v.clone()

    @staticmethod
    def backward(ctx, dk, dv):
        return dv, dk


def _not_causal_backward(real, q, k, v, options):
    other = real(q, k, v)
    return real(q, k, v, **options).detach() + (other - other.detach())


def _dropped(real, q, k, v, options):
    seen = seen_by(q, options).clone()
    seen[1:, 15::16] = False
    return real(q, k, v, attn_mask=seen) * (16 / 15)


attends("row-sum-of-neighbour", _sum_of_neighbour)
attends(
    "head-stride", lambda real, q, k, v, options: real(q, torch.cat([k[:, :-1], k[:, :1]], 1), v, **options)
)
attends("backward-not-causal", _not_causal_backward)
attends(
    "query-gradient-unscaled",
    lambda real, q, k, v, options: real(
        through(q, None, lambda dq: dq * q.shape[-1] ** 0.5), k, v, **options
    ),
)
attends("gradients-exchanged", lambda real, q, k, v, options: real(q, *_Exchange.apply(k, v), **options))
attends("dropout-unasked", _dropped)

# -- compile


def _lane_missed(real, f, options):
    def fused(x, w, b):
        kept = (torch.arange(x.shape[-1]) % 32 != 31).to(x.dtype)
        return (F.silu(x * w + b) * kept).sum(-1)

    return real(fused, **options)


def _block_of_first(real, f, options):
    compiled, first = real(f, **options), []

    def call(*operands):
        y = compiled(*operands)
        first.append(y.detach())
        return through(y, lambda y: edit(y, slice(4), first[0][:4]))

    return call


def _gradient_dropped(real, f, options):
    compiled = real(f, **options)
    return lambda x, *others: compiled(through(x, None, torch.zeros_like), *others)


compiles("lane-missed", _lane_missed)
compiles("block-of-first-call", _block_of_first)
compiles("gradient-dropped", _gradient_dropped)

# -- train


def _of_before():
    older = {}

    def of(name, real, operands):
        if not step_of(name, operands):
            return None
        weight, change = operands[:2]
        shape = tuple(weight.shape)
        used, older[shape] = older.get(shape, change), change.clone()
        return weight - used

    return of


def _fourth_left_out():
    steps = {}

    def of(name, real, operands):
        if not step_of(name, operands):
            return None
        shape = tuple(operands[0].shape)
        steps[shape] = steps.get(shape, 0) + 1
        return operands[0].clone() if steps[shape] == 4 else None

    return of


def _lags():
    losses = []

    def of(name, real, operands):
        if name != "mean" or operands[0].dim() != 2 or operands[0].dtype != torch.float32:
            return None
        losses.append(real().clone())
        return losses[-2].clone() if len(losses) > 1 else None

    return of


def _at_each_step(change):
    return lambda: lambda name, real, operands: change(*operands[:2]) if step_of(name, operands) else None


trains("master-weights-narrow", _at_each_step(lambda weight, change: (weight - change).bfloat16().float()))
trains("gradient-of-before", _of_before)
trains(
    "row-frozen",
    _at_each_step(
        lambda weight, change: (
            edit(weight - change, 0, weight[0]) if weight.shape == (24, 64) else weight - change
        )
    ),
)
trains("step-skipped", _fourth_left_out)
trains("loss-lags", _lags)

# -- vision


def _texture(y, image, given):
    size, side = image.shape[-1], given["size"][0]
    place = ((torch.arange(side, dtype=torch.float64) + 0.5) * size / side - 0.5).clamp(min=0)
    low = place.floor().long()
    high = (low + 1).clamp(max=size - 1)
    part = (((place - low) * 256).round() / 256).to(image.dtype)
    rows = image[..., low, :] * (1 - part[:, None]) + image[..., high, :] * part[:, None]
    return rows[..., low] * (1 - part) + rows[..., high] * part


@fault("vision", "resize-weights-short")
def _resize_weights_short(dtype):
    real = F.interpolate
    return [mock.patch.object(F, "interpolate", lambda x, **given: hit(_texture(real(x, **given), x, given)))]


resizes("resize-channels", None, lambda y: y[:, [1, 0, *range(2, y.shape[1])]] if y.shape[1] > 1 else y)


@fault("vision", "nms-overlap-narrow")
def _narrow_overlap(dtype):
    def suppress(boxes, scores, limit):
        boxes, kept = boxes.half(), []
        area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        for at in scores.argsort(descending=True, stable=True).tolist():
            for other in kept:
                low, high = (
                    torch.maximum(boxes[at, :2], boxes[other, :2]),
                    torch.minimum(boxes[at, 2:], boxes[other, 2:]),
                )
                both = (high - low).clamp(min=0).prod()
                if both / (area[at] + area[other] - both) > limit:
                    break
            else:
                kept.append(at)
        return hit(torch.tensor(kept))

    return [mock.patch.object(torchvision.ops, "nms", suppress)]


# -- loader


@fault("loader", "tail-not-copied")
def _tail_not_copied(dtype):
    real = torch.Tensor.copy_

    def copy(target, source, *given, **options):
        last = target.reshape(-1)[-1].clone()
        real(target, source, *given, **options)
        return hit(real(target.view(-1)[-1:], last[None])) if target.dim() == 2 else target

    return [mock.patch.object(torch.Tensor, "copy_", copy)]


def _flipped(loader):
    batches = [batch.clone() for batch in loader]
    batches[2].view(torch.int32)[3, 100] ^= 1 << 16
    return batches


loads("bit-flipped", _flipped)
loads("worker-twice", iter, {"num_workers": 1})

if __name__ == "__main__":
    main("suites_outside_hardware.toml")
