"""``expect.json``: what the lock says is in the image. The probe reads it there and compares."""

import json
import re
from collections.abc import Iterator, Mapping

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from builder.core.model import Pinned, RegistryBase


def expectation(pinned: Pinned) -> bytes:
    """The document, with ``null`` for what is not known before the image is built."""
    cell = pinned.cell
    packages: dict[str, str] = {canonicalize_name(wheel.name): wheel.version for wheel in pinned.wheels}
    names = [canonicalize_name(Requirement(text).name) for text in cell.frameworks]
    cuda, cudnn = _versions(pinned, packages)
    document = {
        "schema": 1,
        "cell": cell.id,
        "python": cell.python if pinned.python is None else pinned.python.version,
        "frameworks": {name: packages[name] for name in names if name in packages},
        "cuda": {"provider": cell.cuda.provider, "version": cuda},
        "cudnn": cudnn,
        "strict": cell.options.strict_cudnn,
        "packages": dict(sorted(packages.items())),
        **({"compilers": True} if cell.compilers else {}),
    }
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _versions(pinned: Pinned, packages: Mapping[str, str]) -> Iterator[str | None]:
    """CUDA as ``11.8`` and cuDNN as ``8.6.0``, as their provider says; None if it does not.

    None, too, if a wheel brings another version than the base, as on Colab: each framework then has its own
    way to one of the two copies.
    """
    # From CUDA 13 on, NVIDIA's wheels other than cuDNN's carry no `-cuNN`.
    for variable, name, count in (
        ("CUDA_VERSION", r"nvidia-cuda-runtime(?:-cu\d+)?", 2),
        ("NV_CUDNN_VERSION", r"nvidia-cudnn(?:-cu\d+)?", 3),
    ):
        named = (version for package, version in sorted(packages.items()) if re.fullmatch(name, package))
        wheel = first_parts(next(named, None), count)
        match pinned.cell.cuda.provider:
            case "base":
                said = pinned.base.variable(variable) if isinstance(pinned.base, RegistryBase) else None
                base = first_parts(said, count)
                yield base if wheel in (None, base) else None
            case "wheels":
                yield wheel
            case "none":
                yield None


def first_parts(version: str | None, count: int) -> str | None:
    """The first numbers of a version: ``8.6.0`` of ``8.6.0.163-1+cuda11.8``."""
    numbers = re.match(r"\d+(?:\.\d+)*", version or "")
    return ".".join(numbers[0].split(".")[:count]) if numbers else None
