"""How large CUDA is: what a `-cudnn-` base brings that a framework with CUDA of its own brings again.

No registry with nvidia/cuda is needed: the libraries of the same CUDA and cuDNN are in NVIDIA's wheels. The
real base is larger: it has NPP and NCCL besides.
"""

from __future__ import annotations

import re
import zipfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.sessions import Site

_LIBRARY = re.compile(r"nvidia/[^/]+/lib/")


def cuda(site: Site) -> dict[str, Any]:
    """Bytes of the family's CUDA libraries, unpacked."""
    pinned = site.cells(site.plan.family)[0]
    size = 0
    for wheel in pinned.wheels:
        if wheel.name.startswith("nvidia-"):
            with zipfile.ZipFile(site.wheel(wheel)) as archive:
                size += sum(info.file_size for info in archive.infolist() if _LIBRARY.match(info.filename))
    return {"cuda": {"bytes": size}}
