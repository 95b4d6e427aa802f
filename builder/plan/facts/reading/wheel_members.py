"""Members of frameworks' wheels that have deciding values, and the readers of these members.

``check --read`` reads small ones, a refresh of the facts and ``check --read --deep`` nearly all of them; each
value is of the first member that tells it.
"""

import ast
import contextlib
import functools
import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builder.core.elf_needs import needs_of
from builder.plan.facts.reading import binary
from builder.plan.facts.reading.wheel import Kind, Values
from builder.sources.index import wheel_name


@dataclass(frozen=True, kw_only=True)
class WheelPart:
    """One member: a row of ``parts.toml``, which says what its fields mean."""

    wheel: str
    member: str
    read: Callable[[bytes], Values]
    tells: tuple[str, ...]
    most: int | None = None
    """In MiB, as :attr:`largest`."""
    largest: int | None = None
    kinds: tuple[Kind, ...] = ("deep",)
    since: tuple[int, int] = (0, 0)
    before: tuple[int, int] = (1 << 31, 0)
    gpu_only: bool = False


@functools.cache
def _parts() -> tuple[WheelPart, ...]:
    rows = tomllib.loads(Path(__file__).with_name("parts.toml").read_text("utf-8"))["rows"]
    plain = ({name: tuple(v) if isinstance(v, list) else v for name, v in row.items()} for row in rows)
    return tuple(WheelPart(**row | {"read": globals()[f"_{row['read']}"]}) for row in plain)


def parts_of(file: str, kind: Kind) -> tuple[WheelPart, ...]:
    """The parts to read of the wheel with this file name, in the order in which they are believed."""
    wheel = wheel_name(file)
    if wheel is None:
        return ()
    release = wheel.version.release[:2]
    fitting = (part for part in _parts() if kind in part.kinds and re.fullmatch(part.wheel, wheel.name))
    return tuple(part for part in fitting if kind != "small" or part.since <= release < part.before)


def _architectures(listed: Any) -> tuple[str, ...]:
    """TensorFlow's list, in which ``compute_80`` stands for kernels and PTX (``cuda_configure.bzl``)."""
    texts = (arch for arch in listed if isinstance(arch, str))
    return tuple(dict.fromkeys(name for arch in texts for name in (arch.replace("compute_", "sm_"), arch)))


def _assignments(source: bytes) -> dict[str, Any]:
    """Names that a Python file assigns a literal to at its top level, ``OrderedDict([…])`` as a dict."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return {}
    found: dict[str, Any] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                continue
        # what is no literal is a function call or a name: nothing that is looked for here
        with contextlib.suppress(ValueError, TypeError):
            match value:
                case ast.Call(args=[wrapped]):
                    found[name] = dict(ast.literal_eval(wrapped))
                case _:
                    found[name] = ast.literal_eval(value)
    return found


def _version_text(value: Any) -> str | None:
    """``64_8`` (TensorFlow on some builds) and ``False`` (Paddle on the CPU) are no versions."""
    return value if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)*", value) else None


def _told(**values: Any) -> Values:
    return {name: value for name, value in values.items() if value is not None}


def _build_info(content: bytes) -> Values:
    """TensorFlow's ``build_info.py``: up to 2.2 single names, later one dictionary."""
    values = _assignments(content)
    info = values.get("build_info")
    values = values | info if isinstance(info, dict) else values
    gpu = values.get("is_cuda_build")
    if gpu is False:
        return {"gpu": False}
    return _told(
        gpu=gpu if isinstance(gpu, bool) else None,
        cuda=_version_text(values.get("cuda_version")),
        cudnn=_version_text(values.get("cudnn_version", values.get("cudnn_version_number"))),
        architectures=_architectures(values.get("cuda_compute_capabilities") or ()) or None,
    )


def _cuda_config(content: bytes) -> Values:
    """TensorFlow's ``cuda_config.h``.

    Up to 2.2 its wrapper of nvcc made kernels and PTX for each capability (``code=sm_35,compute_35``, in
    ``third_party/gpus/crosstool``); later lists do not say which are PTX, and ``build_info.py`` has them.
    """
    text = content.decode("utf-8", "replace")
    found = dict(re.findall(r'#define (TF_CUDA_VERSION|TF_CUDNN_VERSION) "([\d.]+)"', text))
    listed = re.findall(r'CudaVersion\("(\d)\.(\d)"\)', text)
    code = tuple(f"{kind}_{major}{minor}" for major, minor in listed for kind in ("sm", "compute"))
    return _told(
        cuda=found.get("TF_CUDA_VERSION"), cudnn=found.get("TF_CUDNN_VERSION"), architectures=code or None
    )


def _cudnn_header(content: bytes) -> Values:
    numbers = [
        re.search(rb"#define CUDNN_%s (\d+)" % name, content) for name in (b"MAJOR", b"MINOR", b"PATCHLEVEL")
    ]
    if not all(numbers):
        return {}
    return {"cudnn": ".".join(match[1].decode() for match in numbers if match)}


def _numpy_header(content: bytes) -> Values:
    found = re.search(rb"#define NPY_ABI_VERSION 0x0(\d)", content)
    return _told(numpy_abi=found[1].decode() if found else None)


def _numpy(content: bytes) -> Values:
    return _told(numpy_abi=binary.numpy_abi(content)) | _glibc(content)


def _fatbin(content: bytes) -> Values:
    return _told(architectures=binary.fatbin_architectures(content)) | _glibc(content)


def _glibc(content: bytes) -> Values:
    """The oldest glibc with all symbols that a library asks for; nothing if it was not read to its end."""
    linked = needs_of(content)
    return _told(glibc=linked.glibc if linked else None)


def _version_module(content: bytes) -> Values:
    """The modules with versions of PyTorch, ONNX Runtime and Paddle."""
    values = _assignments(content)
    named = next((name for name in ("cuda", "cuda_version") if name in values), None)
    cuda = _version_text(values[named]) if named else None
    cudnn, gpu = _version_text(values.get("cudnn_version")), cuda is not None if named else None
    return _told(cuda=cuda, cudnn=cudnn, gpu=gpu, version=values.get("__version__"))


def _torch_python(content: bytes) -> Values:
    return _told(
        architectures=binary.arch_flags(content),
        numpy_abi=binary.numpy_abi(content),
        cudnn=binary.torch_cudnn(content),
    ) | _glibc(content)


def _tensorflow_framework(content: bytes) -> Values:
    return _told(cudnn=binary.tensorflow_cudnn(content))


def _jax(content: bytes) -> Values:
    cuda, cudnn = binary.jax_versions(content)
    return _told(cuda=cuda, cudnn=cudnn)


def _cupy(content: bytes) -> Values:
    """``10.2``, or ``12.x``, which promises the first number alone."""
    try:
        told = json.loads(content)["cuda"]
    except (ValueError, KeyError, TypeError):
        return {}
    return _told(cuda=_version_text(told.removesuffix(".x"))) if isinstance(told, str) else {}


def _ctranslate2(content: bytes) -> Values:
    """The cuBLAS that it opens has CUDA's major version in its name."""

    def only(name: bytes) -> str | None:
        found = set(re.findall(rb"lib" + name + rb"\.so\.(\d+)\0", content))
        return found.pop().decode() if len(found) == 1 else None

    return _fatbin(content) | _told(cuda=only(b"cublas"), cudnn=only(b"cudnn"))


def _linked(content: bytes) -> Values:
    """What a library is linked with: cuDNN's major version is in the name of its library."""
    linked = needs_of(content)
    if linked is None:
        return {}
    found = {m[1] for name in linked.libraries if (m := re.fullmatch(r"libcudnn\.so\.(\d+)", name))}
    return _told(
        cudnn=found.pop() if len(found) == 1 else None,
        needed=sorted(name for name in linked.libraries if re.match(r"lib(cu|nvrtc)\w+\.so\.", name)),
        linked_glibc=linked.glibc,
    )
