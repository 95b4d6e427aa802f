"""Members of frameworks' wheels that have deciding values, and the readers of these members.

``check --read`` reads small ones, a refresh of the facts and ``check --read --deep`` nearly all of them; each
value is of the first member that tells it.
"""

import ast
import contextlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from builder.facts import binary
from builder.facts.wheel import Kind, Values
from builder.index.target import wheel_name


@dataclass(frozen=True)
class WheelPart:
    """One member: its name as a pattern, and the function that reads it."""

    pattern: str
    read: Callable[[bytes], Values]
    tells: tuple[str, ...]
    """Values that it may tell; a part is left out if all of them are known already."""
    most: int | None = None
    """Packed bytes of it that are enough, if the whole would be too much."""
    largest: int | None = None
    """It is left out if it has more packed bytes: the value lies too deep in it."""
    kinds: tuple[Kind, ...] = ("deep",)
    """Readings that look for it. What is too much for one wheel is in ``other``, of a second one."""
    since: tuple[int, int] = (0, 0)
    before: tuple[int, int] = (1 << 31, 0)
    """Releases of which a small reading looks for it: in others the whole directory would be read in vain."""
    gpu_only: bool = False
    """True if it is of no use in a wheel that says that it has no CUDA."""


def parts_of(file: str, kind: Kind) -> tuple[WheelPart, ...]:
    """The parts to read of the wheel with this file name, in the order in which they are believed."""
    wheel = wheel_name(file)
    if wheel is None:
        return ()
    release = wheel.version.release[:2]
    parts = next((parts for pattern, parts in _PARTS.items() if re.fullmatch(pattern, wheel.name)), ())
    fitting = (part for part in parts if kind in part.kinds)
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
    linked = binary.needs_of(content)
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
    linked = binary.needs_of(content)
    if linked is None:
        return {}
    found = {m[1] for name in linked.libraries if (m := re.fullmatch(r"libcudnn\.so\.(\d+)", name))}
    return _told(
        cudnn=found.pop() if len(found) == 1 else None,
        needed=sorted(name for name in linked.libraries if re.match(r"lib(cu|nvrtc)\w+\.so\.", name)),
        linked_glibc=linked.glibc,
    )


_MIB = 1 << 20
_CODE, _ABI = ("architectures",), ("numpy_abi",)
_BOTH: tuple[Kind, ...] = ("small", "deep")
_TENSORRT = r"onnxruntime/capi/libonnxruntime_providers_tensorrt\.so"
_TENSORFLOW = (
    WheelPart(
        r"(?:.*/)?tensorflow(?:_core)?/python/platform/build_info\.py",
        _build_info,
        ("gpu", "cuda", "cudnn", "architectures"),
        kinds=_BOTH,
    ),
    WheelPart(
        r".*/local_config_cuda/cuda/cuda/cuda_config\.h",
        _cuda_config,
        ("cuda", "cudnn", "architectures"),
        kinds=_BOTH,
        before=(2, 3),
        gpu_only=True,
    ),
    WheelPart(
        r".*/include/external/cuda_cudnn/include/cudnn_version\.h",
        _cudnn_header,
        ("cudnn patch",),
        kinds=_BOTH,
        since=(2, 18),
        gpu_only=True,
    ),
    WheelPart(r".*/numpy_include/numpy/_numpyconfig\.h", _numpy_header, _ABI),
    WheelPart(r".*/python/framework/fast_tensor_util\.so", _numpy, _ABI),
    WheelPart(
        r".*/libtensorflow_framework\.so(?:\.\d)?",
        lambda content: _told(cudnn=binary.tensorflow_cudnn(content)),
        ("cudnn minor",),
        most=16 * _MIB,
        largest=20 * _MIB,
        gpu_only=True,
    ),
)
_PARTS: Mapping[str, tuple[WheelPart, ...]] = {
    r"tensorflow(-gpu|-cpu)?": _TENSORFLOW,
    r"torch": (
        WheelPart(r"torch/version\.py", _version_module, ("gpu", "cuda"), kinds=_BOTH),
        WheelPart(r"torch/lib/libtorch_global_deps\.so", _linked, ("needed",), kinds=("small",)),
        WheelPart(r"torch/lib/libtorch_python\.so", _torch_python, ("architectures", "numpy_abi", "cudnn")),
    ),
    r"torch\w+": (WheelPart(r"torch\w+/version\.py", _version_module, ("version",), kinds=("small",)),),
    r"jax-cuda\d+-plugin": (
        WheelPart(r"jax_cuda\d+_plugin/_versions\.so", _jax, ("cuda", "cudnn"), kinds=_BOTH),
        WheelPart(r"jax_cuda\d+_plugin/_prng\.so", _fatbin, _CODE, kinds=_BOTH),
    ),
    r"onnxruntime-gpu": (
        WheelPart(
            r"onnxruntime/capi/build_and_package_info\.py", _version_module, ("cuda", "cudnn"), kinds=_BOTH
        ),
        WheelPart(r"onnxruntime/capi/onnxruntime_pybind11_state\..*\.so", _numpy, _ABI, kinds=("other",)),
        WheelPart(_TENSORRT, _linked, ("cudnn",)),
        WheelPart(_TENSORRT, _linked, ("needed",), kinds=("small",)),
        WheelPart(r"onnxruntime/capi/libonnxruntime_providers_cuda\.so", _fatbin, _CODE, most=16 * _MIB),
    ),
    r"paddlepaddle-gpu": (
        WheelPart(
            r"paddle/version(?:/__init__)?\.py", _version_module, ("gpu", "cuda", "cudnn"), kinds=_BOTH
        ),
        WheelPart(r"paddle/libs/libwarpctc\.so", _glibc, ("glibc",)),
    ),
    r"ctranslate2": (
        WheelPart(r"ctranslate2/_ext\..*\.so", _numpy, _ABI, most=15 * _MIB, kinds=("other",)),
        WheelPart(
            r"ctranslate2\.libs/libctranslate2-.*",
            _ctranslate2,
            ("cuda", "cudnn", "architectures"),
            most=16 * _MIB,
        ),
    ),
    r"cupy-cuda\d+x?": (
        WheelPart(r"cupy/\.data/_wheel\.json", _cupy, ("cuda",), kinds=_BOTH),
        WheelPart(r"cupy/random/_generator_api\..*\.so", _fatbin, _CODE),
        WheelPart(r"cupy/cuda/(?:cub|thrust)\..*\.so", _fatbin, _CODE, most=12 * _MIB),
    ),
}
