"""Run by JAX's own Python: faults of a list, in a real JAX on the CPU.

Usage: suites_outside_jax.py REPOSITORY LIST: suites_outside_hardware.toml or suites_outside_programs.toml;
prints lines as suites_outside_torch.py does. A fault is put into functions of JAX, those too that XLA
compiles, so the suite sees no more of it than of the framework.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
import types
from pathlib import Path
from unittest import mock

repository, list_of_faults = sys.argv[1:]
for package in ("builder", "builder.core", "builder.verify", "builder.verify.cudnn_verify"):
    module = types.ModuleType(package)
    module.__path__ = [str(Path(repository, *package.split(".")))]
    sys.modules[package] = module

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

from builder.verify.cudnn_verify.measure.protocol import Ctx  # noqa: E402
from builder.verify.cudnn_verify.measure.schedule import FRAMEWORKS, SUITE_CLASSES, run_suite  # noqa: E402
from builder.verify.cudnn_verify.measure.suite_judge import ON_CARD, judge_results  # noqa: E402

TYPES = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
APPLIED = [0]


def hit(value):
    APPLIED[0] += 1
    return value


def of_type(holder, name, change):
    """``change(real, operands, options)`` in place of a function's calls with a first operand of a type."""

    def put(dtype):
        real = getattr(holder, name)

        def call(*operands, **options):
            if str(operands[0].dtype) != TYPES[dtype]:
                return real(*operands, **options)
            return hit(change(real, operands, options))

        return mock.patch.object(holder, name, call)

    return put


def product(change):
    return of_type(jnp, "matmul", lambda real, operands, options: change(
        lambda a, b: real(a, b, **options), *operands))  # fmt: skip


def ten_bits(x):
    bits = (jax.lax.bitcast_convert_type(x, jnp.int32) + 0x1000) & ~0x1FFF
    return jax.lax.bitcast_convert_type(bits, jnp.float32)


def decomposed(name, change):
    return of_type(jnp.linalg, name, lambda real, operands, options: change(real(*operands), operands[0]))


def low_bits(x):
    return jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(x, jnp.int64) & ~0xFFFF, jnp.float64)


def exchanged(f, a):
    order = jnp.asarray([*range(len(f[1]) - 2), len(f[1]) - 1, len(f[1]) - 2])
    return f[0][:, order], f[1][order], f[2][order]


def fft_with_short_roots(real, operands, options):
    (x,) = operands
    at = jnp.arange(x.shape[-1])
    roots = jnp.exp(-2j * jnp.pi * at / x.shape[-1]).astype("complex64").astype("complex128")
    return x @ roots[at[:, None] * at % x.shape[-1]]


def through(backward):
    """A function that gives back its operand, with a gradient changed on the way."""

    @jax.custom_vjp
    def same(x):
        return x

    same.defvjp(lambda x: (x, None), lambda _, dx: (backward(dx),))
    return same


def attends(change):
    return of_type(jax.nn, "dot_product_attention", lambda real, operands, options: change(
        lambda *given, **more: real(*given, **{**options, **more}), *operands))  # fmt: skip


@jax.custom_vjp
def swapped(k, v):
    return k, v


swapped.defvjp(lambda k, v: ((k, v), None), lambda _, slopes: (slopes[1], slopes[0]))


def not_causal_backward(real, q, k, v):
    other = real(q, k, v, is_causal=False)
    return jax.lax.stop_gradient(real(q, k, v)) + (other - jax.lax.stop_gradient(other))


def compiles(change):
    def put(dtype):
        real = jax.jit
        return mock.patch.object(jax, "jit", lambda function: hit(change(real(function))))

    return put


def block_of_first(compiled):
    first = []

    def call(x):
        y, dx = compiled(x)
        first.append(y)
        return y.at[:4].set(first[0][:4]), dx

    return call


def gradient_dropped(compiled):
    def call(x):
        y, dx = compiled(x)
        return y, 0 * dx

    return call


def steps(change):
    """``change(step number, loss, slopes, slopes of the step before)``: of the compiled step."""

    def put(dtype):
        real = jax.jit

        def jit(function):
            compiled, kept = real(function), []

            def step(weights):
                loss, slopes = compiled(weights)
                kept.append((loss, slopes))
                return hit(change(len(kept), kept))

            return step

        return mock.patch.object(jax, "jit", jit)

    return put


def convolves(change):
    real = jax.lax.conv_general_dilated

    def put(dtype):
        def convolve(x, w, *given, **options):
            y = real(x, w, *given, **options)
            return hit(change(y)) if str(x.dtype) == TYPES[dtype] else y

        return mock.patch.object(jax.lax, "conv_general_dilated", convolve)

    return put


def neighbours(y):
    flat = y.reshape(-1)
    last = flat[31::32]
    return flat.at[31::32].set(flat[30::32][: len(last)]).reshape(y.shape)


def masked(change):
    def attend(real, operands, options):
        hidden = {"mask": change(options["mask"])} if "mask" in options else {}
        return real(*operands, **{**options, **hidden})

    return of_type(jax.nn, "dot_product_attention", attend)


def resized(change):
    return of_type(jax.image, "resize", lambda real, operands, options: change(
        lambda x, method="linear": real(x, operands[1], method=method), operands[0]))  # fmt: skip


PROGRAMS = {
    ("jax-attention", "mask-ignored"): masked(jnp.ones_like),
    ("jax-attention", "mask-inverted"): masked(jnp.logical_not),
    ("jax-attention", "mask-of-first-row"): masked(
        lambda mask: mask[..., :1, :] | jnp.eye(mask.shape[-1], dtype=bool)
    ),
    ("jax-attention", "mask-of-one-head"): masked(lambda mask: jnp.concatenate([mask, mask | True], 1)),
    ("jax-attention", "mask-tile"): masked(lambda mask: mask.at[..., 96:112, 32:48].set(True)),
    ("jax-vision", "nearest"): resized(lambda real, x: real(x, "nearest")),
    ("jax-vision", "cubic"): resized(lambda real, x: real(x, "cubic")),
    ("jax-vision", "turned"): resized(lambda real, x: real(x).swapaxes(1, 2)),
    ("jax-vision", "last-row"): resized(lambda real, x: real(x).at[:, -1].set(real(x)[:, -2])),
    ("jax-vision", "plane-repeated"): resized(lambda real, x: jnp.broadcast_to(real(x[:1]), real(x).shape)),
    ("jax-vision", "products-narrow"): resized(lambda real, x: real(ten_bits(x))),
}
FAULTS = {
    ("conv", "lane-repeats"): convolves(neighbours),
    ("conv", "batch-stride-ignored"): convolves(lambda y: y.at[-1].set(y[0])),
    ("linalg", "gemm-rows-exchanged"): product(
        lambda real, a, b: real(jnp.concatenate([a[-8:], a[8:-8], a[:8]]), b)
    ),
    ("linalg", "gemm-chunk-twice"): product(lambda real, a, b: real(a, b) + real(a[:, :8], b[:8])),
    ("linalg", "gemm-low-bits-stuck"): product(lambda real, a, b: low_bits(real(a, b))),
    ("linalg", "gemm-tile-narrow"): product(
        lambda real, a, b: real(a, b).at[:4, :4].set(real(ten_bits(a[:4]), ten_bits(b[:, :4])))
    ),
    ("linalg", "svd-vector-scaled"): decomposed(
        "svd", lambda f, a: (f[0].at[:, -1].multiply(1.001), f[1], f[2])
    ),
    ("linalg", "svd-order"): decomposed("svd", exchanged),
    ("linalg", "cholesky-not-cleared"): decomposed("cholesky", lambda f, a: f + jnp.triu(a, 1)),
    ("linalg", "fft-twiddles"): of_type(jnp.fft, "fft", fft_with_short_roots),
    ("attention", "head-stride"): attends(
        lambda real, q, k, v: real(q, jnp.concatenate([k[:, :, :-1], k[:, :, :1]], 2), v)
    ),
    ("attention", "backward-not-causal"): attends(not_causal_backward),
    ("attention", "query-gradient-unscaled"): attends(
        lambda real, q, k, v: real(through(lambda dq: dq * 8)(q), k, v)
    ),
    ("attention", "gradients-exchanged"): attends(lambda real, q, k, v: real(q, *swapped(k, v))),
    ("compile", "block-of-first-call"): compiles(block_of_first),
    ("compile", "gradient-dropped"): compiles(gradient_dropped),
    ("train", "gradient-of-before"): steps(lambda at, kept: (kept[-1][0], kept[max(at - 2, 0)][1])),
    ("train", "row-frozen"): steps(
        lambda at, kept: (kept[-1][0], [kept[-1][1][0].at[0].set(0.0), *kept[-1][1][1:]])
    ),
    ("train", "step-skipped"): steps(
        lambda at, kept: (kept[-1][0], [0 * slope for slope in kept[-1][1]] if at == 4 else kept[-1][1])
    ),
    ("train", "loss-lags"): steps(lambda at, kept: (kept[max(at - 2, 0)][0], kept[-1][1])),
}


def main() -> None:
    framework = FRAMEWORKS["jax"](Ctx("jax", {}, os.open(os.devnull, os.O_WRONLY)))
    framework.load()
    jax.config.update("jax_platforms", "cpu")
    device = jax.local_devices(backend="cpu")[0]
    listed = tomllib.loads(Path(__file__).with_name(list_of_faults).read_text("utf-8"))
    faults = {"suites_outside_hardware.toml": FAULTS, "suites_outside_programs.toml": PROGRAMS}[
        list_of_faults
    ]
    for suite, name in sorted(faults):
        for dtype in listed[suite][name]["dtypes"]:
            APPLIED[0] = 0
            jax.clear_caches()
            with faults[suite, name](dtype):
                ran = "conv-kinds" if suite == "conv" else suite.partition("jax-")[2] or suite
                rows = run_suite(SUITE_CLASSES["jax"], framework, device, ran)[0]
            rows = [{**row, "devices": ["cuda:0"], "memory": [ON_CARD + "0"]} for row in rows]
            told = {"suite": suite, "fault": name, "dtype": dtype, "rows": len(rows), "applied": APPLIED[0]}
            told["faults"] = [one["says"] for one in judge_results(rows)["faults"]][:3]
            print(json.dumps(told), flush=True)


main()
