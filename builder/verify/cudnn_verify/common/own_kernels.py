"""Packages that are compiled for PyTorch and have kernels of their own, for a list of cards of their own.

The conditions take a :class:`~text_facts.TextFacts` and the detail of the line, and give a sentence if it is
so, else nothing.
"""

import re

from .toolkit_facts import text_of

KERNEL_EXTENSIONS = (
    "transformer-engine-torch",
    "grouped-gemm",
    "gsplat",
    "natten",
    "causal-conv1d",
    "mamba-ssm",
    "torch-cluster",
    "torch-scatter",
    "torch-sparse",
    "torch-spline-conv",
)
"""By their distributions' names: those that pip compiles out of the archive on the index, against the PyTorch
that is here."""
_TORCH_ITSELF = re.compile(
    r"is not compatible with the current PyTorch installation|current PyTorch install supports CUDA|"
    r"get_arch_list\(\)|torch\.(?:ones|zeros|rand\w*|tensor|empty)\([^)\n]*cuda"
)
"""Words with which PyTorch's own list is told, or an operation of its own is run on the card."""


def extension_told(here):
    """The one of :data:`KERNEL_EXTENSIONS` that a text names; None for none, and for several."""
    text = text_of(here)
    names = [
        name
        for name in KERNEL_EXTENSIONS
        if re.search(r"(?i)(?<![\w/-])%s(?![\w-])" % name.replace("-", "[-_]"), text)
    ]
    return names[0] if len(names) == 1 else None


def extension_of_own_kernels(facts, _):
    """A card has no code in a text about one such package, and nothing in it tells of PyTorch's own list."""
    name = extension_told(facts)
    if not name or _TORCH_ITSELF.search(facts.trace.text) or facts.arch_list:
        return None
    return "%s has kernels of its own, and the text does not tell that PyTorch's fail" % name


OWN_KERNELS = {"extension-of-own-kernels": extension_of_own_kernels}
"""By the names in ``signatures.ini``."""
