"""What a wheel tells of itself, from its file name, its ``METADATA`` and a few of its members.

Members are Python files with plain assignments, which are parsed and never run, and of two frameworks the one
shared library that is small and yet linked with CUDA: the frameworks proper are hundreds of megabytes.
"""

from __future__ import annotations

import ast
import email.parser
import email.policy
import re
from typing import TYPE_CHECKING, Any

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from builder.facts.elf import Needs, needs_of
from builder.facts.truth import WheelTruth
from builder.facts.versions import key, pinned, requirement, short

if TYPE_CHECKING:
    from collections.abc import Mapping

MEMBERS = {
    "tensorflow": "tensorflow/python/platform/build_info.py",
    "torch": "torch/version.py",
    "onnxruntime-gpu": "onnxruntime/capi/build_and_package_info.py",
    "paddlepaddle-gpu": "paddle/version/__init__.py",
}
LIBRARIES = {
    "torch": "torch/lib/libtorch_global_deps.so",
    "onnxruntime-gpu": "onnxruntime/capi/libonnxruntime_providers_tensorrt.so",
}
ALIASES = {"tensorflow-gpu": "tensorflow", "tensorflow-cpu": "tensorflow"}


def members_of(file: str) -> tuple[str, ...]:
    """The members worth reading of the wheel with this file name, besides its ``METADATA``."""
    parts = file.split("-")
    name = canonicalize_name(parts[0])
    member = MEMBERS.get(ALIASES.get(name, name))
    if member is None:
        return ()
    if name.startswith("tensorflow") and len(parts) > 1 and (1, 15) <= key(parts[1])[:2] < (2, 2):
        # 1.15 to 2.1 kept their modules in a package of another name
        return (member.replace("tensorflow/", "tensorflow_core/", 1),)
    return (member, LIBRARIES[name]) if name in LIBRARIES else (member,)


def truth_from_members(
    file: str, metadata: bytes | None, members: Mapping[str, bytes], *, sha256: str | None = None
) -> WheelTruth:
    """A wheel's truth from what was read of it. What is absent or does not parse stays None."""
    name, version, tags = _from_name(file)
    requires_python, requires = _from_metadata(metadata)
    values: dict[str, Any] = {}
    linked = Needs()
    for path in members_of(file):
        if path.endswith(".so"):
            linked = needs_of(members.get(path, b"")) or linked
        else:
            values |= assignments(members.get(path, b""))
    info = values.get("build_info")
    if isinstance(info, dict):
        values |= info
    cuda = version_text(values.get("cuda_version", values.get("cuda")))
    cudnn = version_text(values.get("cudnn_version")) or _linked_cudnn(linked)
    listed = values.get("cuda_compute_capabilities") or ()
    gpu = values.get("is_cuda_build")
    if gpu is None and ("cuda" in values or "cuda_version" in values):
        gpu = cuda is not None
    local = values.get("__version__") if name == "torch" else None
    return WheelTruth(
        name=name,
        version=local if isinstance(local, str) and local.split("+")[0] == version else version,
        file=file,
        sha256=sha256,
        requires_python=requires_python,
        requires=requires,
        tags=tags,
        cuda=cuda,
        cudnn=_pinned_cudnn(cudnn, requires, name),
        architectures=architectures_of(listed),
        gpu=bool(gpu) if gpu is not None else None,
        needed=tuple(sorted(name for name in linked.libraries if re.match(r"lib(cu|nvrtc)\w+\.so\.", name))),
        glibc=linked.glibc,
    )


def _linked_cudnn(linked: Needs) -> str | None:
    """The major version, which is all that a library's name tells."""
    found = (re.fullmatch(r"libcudnn\.so\.(\d+)", name) for name in linked.libraries)
    return next((match[1] for match in found if match), None)


def architectures_of(listed: Any) -> tuple[str, ...]:
    """TensorFlow's list, in which ``compute_80`` stands for kernels and PTX (``cuda_configure.bzl``)."""
    found: dict[str, None] = {}
    for arch in listed:
        if isinstance(arch, str):
            found |= dict.fromkeys([arch.replace("compute_", "sm_"), arch])
    return tuple(found)


def _from_name(file: str) -> tuple[str, str, tuple[str, ...]]:
    try:
        name, version, _, tags = parse_wheel_filename(file)
    except InvalidWheelFilename:
        parts = file.removesuffix(".whl").split("-")
        return canonicalize_name(parts[0]), parts[1] if len(parts) > 1 else "", ()
    return name, str(version), tuple(sorted(str(tag) for tag in tags))


def _from_metadata(metadata: bytes | None) -> tuple[str | None, tuple[str, ...]]:
    if metadata is None:
        return None, ()
    message = email.parser.BytesParser(policy=email.policy.compat32).parsebytes(metadata, headersonly=True)
    requires = tuple(str(line) for line in message.get_all("Requires-Dist") or ())
    python = message.get("Requires-Python")
    return (str(python) if python else None), requires


def assignments(source: bytes) -> dict[str, Any]:
    """Names that a Python file assigns a literal to at its top level, ``OrderedDict([…])`` as a dict."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return {}
    found: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name):
            _literal(found, target.id, value)
    return found


def _literal(found: dict[str, Any], name: str, value: ast.expr) -> None:
    wrapped = isinstance(value, ast.Call) and len(value.args) == 1
    try:
        literal = ast.literal_eval(value.args[0] if isinstance(value, ast.Call) and wrapped else value)
        found[name] = dict(literal) if wrapped else literal
    except (ValueError, TypeError):
        return  # not a literal: a function call, a name; nothing that is looked for here


def version_text(value: Any) -> str | None:
    """``64_8`` (TensorFlow on some builds) and ``False`` (Paddle on the CPU) are no versions."""
    return value if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)*", value) else None


def _pinned_cudnn(told: str | None, requires: tuple[str, ...], name: str) -> str | None:
    """The exact pin on NVIDIA's cuDNN is what the wheel was built with, more exact than what it tells itself.

    A range is not: it says what the wheel accepts, so only its lower bound's major and minor would count.
    """
    pins = set()
    for line in requires:
        parsed = requirement(line)
        if parsed is not None and re.fullmatch(r"nvidia-cudnn-cu\d+", canonicalize_name(parsed.name)):
            pins.add(pinned(parsed))
    if len(pins) == 1 and None not in pins:
        (exact,) = pins
        if exact is not None and (told is None or short(exact, len(told.split("."))) == told):
            # PyTorch's pin is the very version; TensorFlow's a patch of the minor it was built with
            return exact if name == "torch" else short(exact, 2)
    return told
