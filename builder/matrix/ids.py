"""Makes the id of a cell. No other code takes an id apart."""

import hashlib
import re
from collections.abc import Sequence

from builder.matrix.bases import parse_reference
from builder.matrix.requirements import pin
from builder.model import Base, Cuda, Profile

LONGEST = 128
"""A Docker tag's limit, in characters."""
_HASH = 12
DEFAULT_PLATFORM = "linux/amd64"


def cell_id(
    *,
    frameworks: Sequence[str],
    python: str,
    base: Base,
    cuda: Cuda,
    platform: str = DEFAULT_PLATFORM,
    profile: Profile = "plain",
    variant: str | None = None,
) -> str:
    """``tensorflow2.8.4-py3.9-bullseye-cudnn8.6.0.163``: a legal Docker tag in lower case.

    Two cells can get the same id (they differ in packages alone, say); the caller looks for that.
    """
    parts = [_framework(text) for text in frameworks]
    parts += [f"py{python}", _base(base)]
    if cuda.provider == "wheels":
        parts.append(_cudnn(cuda.packages))
    elif cuda.provider == "none":
        parts.append("cpu")
    if platform != DEFAULT_PLATFORM:
        parts.append(platform.partition("/")[2])
    if profile != "plain":
        parts.append(profile)
    if variant is not None:
        parts.append(variant)
    # What a tag does not allow is '+' and '!' of versions.
    whole = re.sub(r"[^a-z0-9_.-]", "_", "-".join(parts).lower())
    if len(whole) <= LONGEST:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:_HASH]
    return f"{whole[: LONGEST - _HASH - 1]}-{digest}"


def _framework(text: str) -> str:
    pinned = pin(text)
    return "".join(pinned) if pinned else text


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
