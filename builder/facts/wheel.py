"""The truth of a wheel, from its file name, its ``METADATA`` and a few of its members.

Members are Python files with plain assignments, which are parsed and never run, and of two frameworks the one
shared library that is small and yet linked with CUDA: the frameworks proper are hundreds of megabytes.
"""

from __future__ import annotations

import email.parser
import email.policy
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from builder.facts.elf import Needs, needs_of
from builder.facts.inside import Values, add, linked_cudnn, values_of
from builder.facts.truth import WheelTruth
from builder.facts.versions import canonical, exact_pin, key, short
from builder.index.target import wheel_name

_LINKED = ("torch/lib/libtorch_global_deps.so", "onnxruntime/capi/libonnxruntime_providers_tensorrt.so")
"""Libraries that are small and yet linked with CUDA."""


def members_of(file: str) -> tuple[str, ...]:
    """The small members worth reading of the wheel with this file name, besides its ``METADATA``."""
    parts = file.split("-")
    name = canonical(parts[0])
    if name in {"tensorflow", "tensorflow-gpu", "tensorflow-cpu"} and len(parts) > 1:
        return _of_tensorflow(parts[0], parts[1])
    plugin = re.fullmatch(r"jax-cuda(\d+)-plugin", name)
    if plugin:
        return tuple(f"jax_cuda{plugin[1]}_plugin/{member}" for member in ("_versions.so", "_prng.so"))
    known = {
        "torch": ("torch/version.py", _LINKED[0]),
        "onnxruntime-gpu": ("onnxruntime/capi/build_and_package_info.py", _LINKED[1]),
        "paddlepaddle-gpu": ("paddle/version/__init__.py",),
    }
    return known.get(name, ("cupy/.data/_wheel.json",) if name.startswith("cupy-cuda") else ())


def _of_tensorflow(name: str, version: str) -> tuple[str, ...]:
    """Its modules moved: into the wheel's data up to 1.14, into another package from 1.15 to 2.1."""
    release = key(version)[:2]
    package = "tensorflow_core" if (1, 15) <= release < (2, 2) else "tensorflow"
    root = f"{name}-{version}.data/purelib/{package}" if release < (1, 15) else package
    members = [f"{root}/python/platform/build_info.py"]
    if release < (2, 3):
        members.append(f"{root}/include/external/local_config_cuda/cuda/cuda/cuda_config.h")
    if release >= (2, 18):
        members.append(f"{root}/include/external/cuda_cudnn/include/cudnn_version.h")
    return tuple(members)


def optional_of(file: str) -> tuple[str, ...]:
    """The ones of :func:`members_of` that are read only if it is cheap."""
    return tuple(name for name in members_of(file) if not name.endswith(".py"))


def truth_from_members(
    file: str, metadata: bytes | None, members: Mapping[str, bytes], *, sha256: str | None = None
) -> WheelTruth:
    """A wheel's truth from its members. A value that is absent or does not parse stays None."""
    name, version, tags = _from_name(file)
    said = metadata_of(metadata)
    values = values_of(name.replace("tensorflow-cpu", "tensorflow"), members)
    linked = next((needs for path in _LINKED if (needs := needs_of(members.get(path, b"")))), Needs())
    gpu = values.get("gpu")
    if gpu is None and "cuda" in values:
        gpu = True
    local = values.get("version")
    return WheelTruth(
        name=name,
        version=local if isinstance(local, str) and local.split("+")[0] == version else version,
        file=file,
        sha256=sha256,
        requires_python=said.python,
        requires=said.requires,
        tags=tags,
        cuda=values.get("cuda"),
        cudnn=_pinned_cudnn(values.get("cudnn") or linked_cudnn(linked), said.requires, name),
        architectures=tuple(values.get("architectures", ())),
        numpy_abi=values.get("numpy_abi"),
        gpu=gpu,
        needed=tuple(sorted(name for name in linked.libraries if re.match(r"lib(cu|nvrtc)\w+\.so\.", name))),
        glibc=linked.glibc,
    )


def with_deep(truth: WheelTruth, values: Values) -> WheelTruth:
    """The truth with the values of a deep reading of the same wheel."""
    known = {"cuda": truth.cuda, "cudnn": truth.cudnn, "glibc": truth.glibc}
    exact = {name: value for name, value in known.items() if value is not None}
    add(exact, {name: values[name] for name in known if name in values})
    return replace(
        truth,
        cuda=exact.get("cuda"),
        cudnn=exact.get("cudnn"),
        glibc=max(filter(None, (truth.glibc, values.get("glibc"))), key=key, default=None),
        architectures=tuple(values.get("architectures", truth.architectures)),
        numpy_abi=values.get("numpy_abi", truth.numpy_abi),
        gpu=values.get("gpu", truth.gpu),
    )


def _from_name(file: str) -> tuple[str, str, tuple[str, ...]]:
    wheel = wheel_name(file)
    if wheel is None:
        parts = file.removesuffix(".whl").split("-")
        return canonical(parts[0]), parts[1] if len(parts) > 1 else "", ()
    return wheel.name, str(wheel.version), tuple(sorted(str(tag) for tag in wheel.tags))


@dataclass(frozen=True)
class Metadata:
    """The fields of a wheel's ``METADATA`` that decide anything."""

    python: str | None
    requires: tuple[str, ...]
    extras: tuple[str, ...]


def metadata_of(text: str | bytes | None) -> Metadata:
    """The fields, empty for a wheel without ``METADATA``."""
    content = text if isinstance(text, bytes) else (text or "").encode()
    message = email.parser.BytesParser(policy=email.policy.compat32).parsebytes(content, headersonly=True)

    def lines(name: str) -> tuple[str, ...]:
        return tuple(str(line) for line in message.get_all(name) or ())

    extras = tuple(canonical(name) for name in lines("Provides-Extra"))
    return Metadata(next(iter(lines("Requires-Python")), None) or None, lines("Requires-Dist"), extras)


def _pinned_cudnn(told: str | None, requires: tuple[str, ...], name: str) -> str | None:
    """The exact pin on NVIDIA's cuDNN, with which the wheel was built; more exact than its own value.

    A range is not: it says what the wheel accepts, so only its lower bound's major and minor would count.
    """
    exact = exact_pin(requires, r"nvidia-cudnn-cu\d+")
    if exact is None or (told is not None and short(exact, len(told.split("."))) != told):
        return told
    # PyTorch's pin is the very version; TensorFlow's a patch of the minor it was built with
    return exact if name == "torch" else short(exact, 2)
