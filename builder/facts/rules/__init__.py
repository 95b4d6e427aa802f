"""The rules: each looks at one stack, and yields findings. ``docs/compatibility.md`` explains their ids."""

from collections.abc import Callable, Iterable, Iterator

from builder.facts.finding import Finding
from builder.facts.rules import cuda, cudnn, devices, packages, pairs, system
from builder.facts.stack import Stack

RULES: tuple[Callable[[Stack], Iterable[Finding]], ...] = (
    system.unread,
    system.yanked,
    system.known_framework,
    system.base_tag,
    system.compiled,
    system.python,
    system.platform,
    system.glibc,
    cuda.provider,
    cuda.libraries,
    cuda.linked,
    cuda.version,
    cudnn.copies,
    cudnn.wheel_names,
    cudnn.version,
    cudnn.documented_cuda,
    devices.driver,
    devices.require_cuda,
    devices.gpus,
    pairs.known_bad,
    packages.numpy,
    packages.pins,
    system.last_lock,
)
"""In the order in which a person would look: what is asked for, then what is under it, then the machine."""
_OF_CUDA = frozenset(
    {
        *(cuda.libraries, cuda.linked, cuda.version, cudnn.copies, cudnn.version),
        *(devices.driver, devices.gpus),
    }
)
"""Rules that ask nothing of an image without CUDA."""


def findings(stack: Stack) -> Iterator[Finding]:
    """The findings of every rule, each made when it is asked for."""
    without = stack.cell.cuda.provider == "none"
    for rule in RULES:
        if not (without and rule in _OF_CUDA):
            yield from rule(stack)
