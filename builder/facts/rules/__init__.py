"""The rules: each looks at one stack, and yields findings."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from builder.facts.finding import Finding
from builder.facts.rules import cuda, cudnn, devices, packages, pairs, system
from builder.facts.stack import Stack

RULES: dict[str, Callable[[Stack], Iterable[Finding]]] = {
    "unread": system.unread,
    "yanked": system.yanked,
    "framework-known": system.known_framework,
    "base-tag": system.base_tag,
    "compiled": system.compiled,
    "python": system.python,
    "platform": system.platform,
    "glibc": system.glibc,
    "cuda-provider": cuda.provider,
    "cuda-libraries": cuda.libraries,
    "elf-needs": cuda.linked,
    "cuda-version": cuda.version,
    "cudnn-copies": cudnn.copies,
    "cudnn-wheels": cudnn.wheel_names,
    "cudnn-version": cudnn.version,
    "documented-cuda": cudnn.documented_cuda,
    "driver": devices.driver,
    "require-cuda": devices.require_cuda,
    "gpu": devices.gpus,
    "known-bad": pairs.known_bad,
    "numpy": packages.numpy,
    "pins": packages.pins,
    "last-lock": system.last_lock,
}
"""By their ids, which ``docs/compatibility.md`` explains; in the order in which a person would look: what is
asked for, then what is under it, then the machine."""
_OF_CUDA = {"cuda-libraries", "elf-needs", "cuda-version", "cudnn-copies", "cudnn-version", "driver", "gpu"}
"""Rules that ask nothing of an image without CUDA."""


def findings(stack: Stack) -> Iterator[Finding]:
    """The findings of every rule, each made when it is asked for."""
    without = stack.cell.cuda.provider == "none"
    for name, rule in RULES.items():
        if not (without and name in _OF_CUDA):
            yield from (replace(finding, rule=name) for finding in rule(stack))
