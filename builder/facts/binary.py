"""What compiled files of a wheel tell without being run: GPU code, NumPy's ABI, versions built in as numbers.

Nothing is loaded or executed; bytes are searched, and a search that finds nothing, or two different answers,
is None. The fatbin container is the one that ``cuobjdump`` lists: a header with the magic number, then one
entry for each cubin (kind 2) and PTX (kind 1), each with its compute capability
(https://docs.nvidia.com/cuda/cuda-binary-utilities/).
"""

from __future__ import annotations

import itertools
import re
import struct
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC = struct.pack("<I", 0xBA55ED50)
_PTX, _CUBIN = 1, 2
_FLAGS = re.compile(rb"((?:sm|compute)_\d+[a-f]?(?: (?:sm|compute)_\d+[a-f]?)+)\0")


def order(architecture: str) -> tuple[int, str]:
    """Sort key: by capability, kernels before PTX."""
    return int(re.sub(r"\D", "", architecture)), "sm" if architecture.startswith("sm_") else "tx"


def fatbin_architectures(content: bytes) -> tuple[str, ...] | None:
    """``sm_80`` and ``compute_90`` of most of the whole GPU containers in (the beginning of) a library.

    Most, because single sources are compiled for fewer (attention kernels for new cards only), and those that
    come out of a static library for others.
    """
    found = Counter(_containers(content))
    if not found:
        return None
    return tuple(sorted(found.most_common(1)[0][0], key=order))


def _containers(content: bytes) -> Iterator[frozenset[str]]:
    at = content.find(_MAGIC)
    while at >= 0:
        entries = _entries(content, at)
        if entries:
            yield frozenset(entries)
        at = content.find(_MAGIC, at + 4)


def _entries(content: bytes, start: int) -> list[str]:
    """The architectures of one container; empty where it is cut off, or is none."""
    if start + 16 > len(content):
        return []
    version, header, size = struct.unpack_from("<HHQ", content, start + 4)
    at, end = start + header, start + header + size
    found: list[str] = []
    if version != 1 or header != 16 or end > len(content):
        return []
    while at + 64 <= end:
        kind, _, header, size = struct.unpack_from("<HHIQ", content, at)
        (capability,) = struct.unpack_from("<I", content, at + 28)
        if kind not in {_PTX, _CUBIN} or not 20 <= capability < 1000 or header + size == 0:
            return []
        found.append(f"{'compute' if kind == _PTX else 'sm'}_{capability}")
        at += header + size
    return found


def arch_flags(content: bytes) -> tuple[str, ...] | None:
    """PyTorch's own ``CUDA_ARCH_FLAGS``, what ``torch.cuda.get_arch_list()`` prints."""
    found = {match[1].decode() for match in _FLAGS.finditer(content)}
    return tuple(found.pop().split()) if len(found) == 1 else None


def numpy_abi(content: bytes) -> str | None:
    """The newest major version of NumPy that a library's C code runs with: ``"1"`` or ``"2"``.

    NumPy 2's headers, and pybind11 from 2.12 on, look for ``numpy._core``; older ones for ``numpy.core``.
    """
    if b"numpy._core" in content:
        return "2"
    return "1" if b"numpy.core" in content else None


def jax_versions(content: bytes) -> tuple[str | None, str | None]:
    """CUDA and cuDNN that a JAX plug-in was built with, out of ``_versions.so``.

    Its functions return constants: ``mov edi, <constant>`` before ``PyLong_FromLong``, in the order of its
    source (https://github.com/jax-ml/jax/blob/main/jaxlib/cuda/versions.cc): CUDA, cuDNN, and so on.
    """
    numbers = [
        int(struct.unpack("<I", m[1])[0]) for m in re.finditer(rb"\xbf(....)[\xe8\xe9]", content, re.DOTALL)
    ]
    for cuda, cudnn in itertools.pairwise(numbers):
        if 11000 <= cuda < 20000 and cuda % 10 == 0 and (8000 <= cudnn < 10000 or 90000 <= cudnn < 200000):
            return f"{cuda // 1000}.{cuda % 1000 // 10}", cudnn_text(cudnn)
    return None, None


def cudnn_text(number: int) -> str:
    """``8902`` is 8.9.2 and ``90101`` is 9.1.1: from 9 on the major has four digits after it."""
    major, rest = divmod(number, 10000 if number >= 90000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def torch_cudnn(content: bytes) -> str | None:
    """cuDNN's version in ``torch/csrc/cuda/shared/cudnn.cpp``, where it is a tuple of three constants."""
    store = rb"\x48\xc7\x07(....)\x48\xc7\x47\x08(....)\x48\xc7\x47\x10(....)"
    found = set()
    for match in re.finditer(store, content, re.DOTALL):
        patch, minor, major = (int(struct.unpack("<I", part)[0]) for part in match.groups())
        if 7 <= major <= 9 and minor < 100 and patch < 100:
            found.add(f"{major}.{minor}.{patch}")
    return found.pop() if len(found) == 1 else None
