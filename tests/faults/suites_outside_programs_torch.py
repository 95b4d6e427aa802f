"""Run by PyTorch's own Python: the faults of suites_outside_programs.toml, in a real PyTorch on the CPU.

Usage and output are those of suites_outside_torch.py, whose ways to put a fault in it takes.
"""

from __future__ import annotations

import importlib
from unittest import mock

import torch
from suites_outside_torch import edit, fault, hit, main, on_gradient, on_operands, through

# -- conv


def _last_term_narrow(real, x, w, options):
    last = real(x[:, -1:].float(), w[:, -1:].float(), **options).double()
    return real(x[:, :-1], w[:, :-1], **options) + last


on_operands("fp64-operands-narrow", lambda real, x, w, options: (_short(x), _short(w), options))
on_gradient("fp64-gradient-narrow", of_w=lambda dw, *_: dw.float().double())


def _short(tensor):
    """Rounded to float32; the gradient passes."""
    return through(tensor, lambda value: value.float().double())


@fault("conv", "fp64-last-term")
def _last_term(dtype):
    real = torch.nn.functional.conv2d

    def convolve(x, w, **options):
        return hit(_last_term_narrow(real, x, w, options)) if x.dtype == dtype else real(x, w, **options)

    return [mock.patch.object(torch.nn.functional, "conv2d", convolve)]


# -- train: the function of Adam's steps, and the reader of a checkpoint

OPTIMIZER = importlib.import_module("torch.optim.adam")


def adam(name, before=None, after=None, options=None):
    """``before`` and ``after`` get (weights, gradients, means, squares, maxima, counts) of each step."""

    @fault("train", name)
    def put(dtype):
        real = OPTIMIZER.adam

        def step(*lists, **given):
            lists = before(*lists) or lists if before else lists
            real(*lists, **{**given, **(options(given) if options else {})})
            if after:
                after(*lists)
            hit(None)

        return [mock.patch.object(OPTIMIZER, "adam", step)]


def _cleared(weights, slopes, means, squares, maxima, counts):
    for one in (*means, *squares):
        one.zero_()


def _counts_once(weights, slopes, means, squares, maxima, counts):
    for one in counts:
        one.zero_()


def _in_float16(weights, slopes, means, squares, maxima, counts):
    for one in (*means, *squares):
        one.copy_(one.half().float())


def _last_left(weights, slopes, means, squares, maxima, counts):
    return weights[:-1], slopes[:-1], means[:-1], squares[:-1], maxima, counts[:-1]


adam("adam-forgets", before=_cleared)
adam("adam-counts-once", before=_counts_once)
adam("adam-epsilon", options=lambda given: {"eps": 1e5 * given["eps"]})
adam("adam-decays", options=lambda given: {"weight_decay": 0.01})
adam("adam-narrow", after=_in_float16)
adam("adam-last-left", before=_last_left)
adam("adam-exchanged", options=lambda given: {"beta1": given["beta2"], "beta2": given["beta1"]})


@fault("train", "adam-uncorrected")
def _uncorrected(dtype):
    def step(weights, slopes, means, squares, maxima, counts, *, beta1, beta2, lr, eps, **options):
        for weight, slope, mean, square in zip(weights, slopes, means, squares, strict=True):
            mean.mul_(beta1).add_(slope, alpha=1 - beta1)
            square.mul_(beta2).addcmul_(slope, slope, value=1 - beta2)
            weight.sub_(lr * mean / (square.sqrt() + eps))
        hit(None)

    return [mock.patch.object(OPTIMIZER, "adam", step)]


def reads(name, change):
    @fault("train", name)
    def put(dtype):
        real = torch.load
        return [
            mock.patch.object(
                torch, "load", lambda *given, **options: hit([change(one) for one in real(*given, **options)])
            )
        ]


reads("checkpoint-tail", lambda weight: edit(weight, (..., slice(-4, None)), 0.0))
reads("checkpoint-narrow", lambda weight: weight.half().float())


@fault("train", "checkpoint-stale")
def _stale(dtype):
    step, save, kept = OPTIMIZER.adam, torch.save, []

    def adam_step(weights, *lists, **options):
        kept[:] = [weight.clone() for weight in weights]
        step(weights, *lists, **options)

    return [
        mock.patch.object(OPTIMIZER, "adam", adam_step),
        mock.patch.object(torch, "save", lambda weights, stream: hit(save(kept, stream))),
    ]


if __name__ == "__main__":
    main("suites_outside_programs.toml")
