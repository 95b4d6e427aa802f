"""The release of NCCL that is loaded, beside that of the wheel it came in."""

import os
import re

from ..common.distributions import canonical
from ..common.versions import numbers
from .cuda import ctypes, open_library
from .library_files import mapped_paths

_NCCL = re.compile(r"libnccl\.so(\.|$)")


def version_of_nccl(packages, row):
    """([a row like ``row`` about the release], None), or ([], why there is none)."""
    # mapped_libraries has CUDA's and cuDNN's alone
    loaded = [path for path in sorted(mapped_paths() or ()) if _NCCL.match(os.path.basename(path))]
    wheels = [one for name, one in packages.items() if canonical(name).startswith("nvidia-nccl-cu")]
    if not loaded or not wheels:
        return [], "it comes from no wheel of NVIDIA's here"
    number = ctypes.c_int(0)
    open_library(loaded[0]).ncclGetVersion(ctypes.byref(number))
    # 10000 major + 100 minor + patch, from 2.9 on (nccl.h)
    said = [number.value // 10000, number.value // 100 % 100, number.value % 100]
    wanted = list(numbers(wheels[0]["version"])[:3])
    told = dict(row, what="NCCL is that of %(name)s %(version)s" % wheels[0])
    return [dict(told, found=[float(part) for part in said], wanted=[float(part) for part in wanted])], None
