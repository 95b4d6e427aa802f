"""Makes the id of a cell. No other code takes an id apart."""

import hashlib
import re
from collections.abc import Sequence

from builder.matrix.bases import parse_reference
from builder.matrix.requirements import pin
from builder.model import Base, Cell

LONGEST = 128
"""A Docker tag's limit, in characters."""
_HASH = 12
DEFAULT_PLATFORM = "linux/amd64"


def cell_id(cell: Cell) -> str:
    """``tensorflow2.8.4-py3.9-bullseye-cudnn8.6.0.163``: a legal Docker tag in lower case.

    Two cells can get the same id (they differ in packages alone, say); the caller looks for that.
    """
    parts = ["".join(pin(text) or text) for text in cell.frameworks]
    parts += [f"py{cell.python_patch or cell.python}", _base(cell.base)]
    if cell.cuda.provider == "wheels":
        parts.append(_cudnn(cell.cuda.packages))
    elif cell.cuda.provider == "none":
        parts.append("cpu")
    if cell.platform != DEFAULT_PLATFORM:
        parts.append(cell.platform.partition("/")[2])
    if cell.profile != "plain":
        parts.append(cell.profile)
    if cell.variant is not None:
        parts.append(cell.variant)
    # What a tag does not allow is '+' and '!' of versions.
    whole = re.sub(r"[^a-z0-9_.-]", "_", "-".join(parts).lower())
    if len(whole) <= LONGEST:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:_HASH]
    return f"{whole[: LONGEST - _HASH - 1]}-{digest}"


def _base(base: Base) -> str:
    if base.kind == "rootfs":
        return base.name.rpartition("/")[2]
    reference = parse_reference(base.name)
    name = reference.path.rpartition("/")[2]
    if reference.tag is None:
        # Only if nothing else identifies the image: a newer digest of the same tag keeps its cell's id.
        return f"{name}-{(reference.digest or '').removeprefix('sha256:')[:_HASH]}"
    tag = reference.tag
    if f"/{reference.path}".endswith("/nvidia/cuda"):
        tag = tag.replace("-runtime", "", 1)
    return f"{name}{tag}" if tag[0].isdigit() else f"{name}-{tag}"


def _cudnn(packages: Sequence[str]) -> str:
    for text in packages:
        pinned = pin(text)
        if pinned and re.fullmatch(r"nvidia-cudnn-cu\d+", pinned[0]):
            return f"cudnn{pinned[1]}"
    return "cudawheels"
