"""The versions asked of an image, and their differences to those that the probe measured."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from builder.model import Difference, Pinned
from builder.recipe.expect import expectation, first_parts
from builder.verify.document import ProbeDocument

_PROBED = frozenset({"cupy", "jax", "onnxruntime", "paddle", "tensorflow", "torch"})
"""The frameworks that the probe reports whenever they are installed."""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """The versions asked of an image. None: no version was asked for, or it is not known."""

    python: str | None = None
    frameworks: tuple[tuple[str, str], ...] = ()
    cuda: str | None = None
    """``11.8``"""
    cudnn: str | None = None
    """``8.6.0``"""

    @classmethod
    def of(cls, pinned: Pinned) -> Self:
        """From a lock: the content of its image's ``expect.json``."""
        document = json.loads(expectation(pinned))
        frameworks, cuda = tuple(sorted(document["frameworks"].items())), document["cuda"]["version"]
        return cls(python=document["python"], frameworks=frameworks, cuda=cuda, cudnn=document["cudnn"])


def compare(asked: Expectation, found: ProbeDocument) -> tuple[Difference, ...]:
    """All differences, including those that the probe found, each subject once.

    An unmeasured value is a difference only if the probe says ``works``: a machine without a GPU loads less,
    and the verdict says that already.
    """
    rows = [
        Difference(what=row.what, asked=str(row.asked), found=str(row.found)) for row in found.differences
    ]
    rows += _differences(asked, found)
    first = {row.what.casefold(): row for row in reversed(rows)}
    return tuple(row for row in rows if first[row.what.casefold()] is row)


def _differences(asked: Expectation, found: ProbeDocument) -> Iterator[Difference]:
    measured = found.verdict == "works"
    # With any other verdict an import may have failed, and the verdict says so.
    sound = measured or found.verdict == "unverified"
    python = found.python_version()
    if asked.python and python and first_parts(python, asked.python.count(".") + 1) != asked.python:
        yield Difference(what="python", asked=asked.python, found=python)
    installed = {family(row.name): row.version for row in found.frameworks}
    for name, version in asked.frameworks:
        actual = installed.get(family(name))
        if actual is not None and not same_version(version, actual):
            yield Difference(what=f"framework {name}", asked=version, found=actual)
        elif sound and family(name) in _PROBED and family(name) not in installed:
            yield Difference(what=f"framework {name}", asked=version, found="nothing")
    yield from _loaded("cuda", asked.cuda, found.loaded("cuda", "libcudart.so"), 2, demanded=False)
    yield from _loaded("cudnn", asked.cudnn, found.loaded("cudnn", "libcudnn.so"), 3, demanded=measured)


def family(name: str) -> str:
    """The framework behind a distribution's name: ``tensorflow`` of ``tensorflow-gpu``."""
    plain = re.sub(r"-(gpu|cpu|cuda\d+x?|cu\d+)$", "", canonicalize_name(name))
    return {"paddlepaddle": "paddle", "pytorch": "torch"}.get(plain, plain)


def same_version(asked: str, found: str) -> bool:
    """Equal as versions; a local part such as ``+cu124`` counts only if it was asked for."""
    try:
        wanted, actual = Version(asked), Version(found)
    except InvalidVersion:
        return asked == found
    return wanted == (actual if wanted.local else Version(actual.public))


def _loaded(
    what: str, asked: str | None, found: Iterable[str], parts: int, *, demanded: bool
) -> Iterator[Difference]:
    versions = sorted({first_parts(version, parts) or version for version in found})
    wrong = [version for version in versions if version != asked]
    if asked is not None and (wrong or (demanded and not versions)):
        yield Difference(what=what, asked=asked, found=", ".join(wrong) or "nothing")
