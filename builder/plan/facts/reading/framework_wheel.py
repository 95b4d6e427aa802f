"""Reading values of a framework's wheel on its server, by HTTP ranges: its members that have deciding values.

``check --read`` reads at most 1 MiB of a wheel: its metadata and small members. A deep reading, as of a
refresh of the facts, has 16 MiB, down to the code in its libraries; each value is of the first member that
tells it. Values are in the user's cache by the wheel's hash: an interrupted refresh continues, and nothing is
read twice.

The metadata file beside a wheel is used if the index offers one: PEP 658 and PEP 714, now in
https://packaging.python.org/en/latest/specifications/simple-repository-api/.
"""

import ast
import contextlib
import functools
import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zipfile import ZipInfo

import requests

from builder.plan.facts.reading import binary
from builder.plan.facts.reading.binary import needs_of
from builder.plan.facts.reading.observed import (
    Kind,
    Values,
    WheelReading,
    add_values,
    load_reading,
    reading_path,
    save_reading,
)
from builder.sources.index import DEEP_LIMIT, LIMIT, IndexFile, RemoteZip, UnknownError, is_html, wheel_name
from builder.sources.net import Client, explain

_METADATA = r"[^/]+\.dist-info/METADATA"


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


def read_wheel(
    file: IndexFile, client: Client, kind: Kind = "small", *, cache: Path | None = None
) -> WheelReading:
    """Read one wheel, or take it from the cache. Nothing that a server does is an error: see ``unread``.

    A wheel without a hash is not kept, and a small reading only if it is complete.
    """
    limit = DEEP_LIMIT if kind in {"deep", "other"} else LIMIT

    def read(reading: WheelReading) -> None:
        with zip_of(file, client, reading, limit=limit) as archive:
            reading.metadata = metadata_beside(archive, file.metadata) if file.metadata else None
            _members(archive, parts_of(file.name, kind), reading, small=kind == "small")

    def complete(reading: WheelReading) -> bool:
        return reading.metadata is not None and not (reading.unread and kind == "small")

    return read_once(file, kind, read, complete, cache=cache)


def read_once(
    file: IndexFile,
    kind: Kind,
    read: Callable[[WheelReading], None],
    complete: Callable[[WheelReading], bool],
    *,
    cache: Path | None = None,
) -> WheelReading:
    """The reading of a file that is kept, else that of ``read``, which is kept if it is ``complete``.

    Whatever ``read`` raises of a server or a file becomes ``unread``. One with a line that broke is not kept:
    that says nothing about the file.
    """
    place = reading_path(file.sha256, kind, cache)
    known = load_reading(place)
    if known is not None:
        return known
    reading = WheelReading(file=file.name)
    try:
        read(reading)
    except UnknownError as problem:
        reading.unread.append(str(problem))
    except requests.RequestException as problem:
        reading.unread.append(explain(problem))
        return reading
    if place is not None and complete(reading):
        save_reading(place, reading)
    return reading


@contextlib.contextmanager
def zip_of(file: IndexFile, client: Client, reading: WheelReading, *, limit: int) -> Iterator[RemoteZip]:
    """A wheel on its server; ``reading`` gets how much of it was transferred. ``limit`` in bytes."""
    archive = RemoteZip(url=file.url, session=client, size=file.size, limit=limit)
    try:
        yield archive
    finally:
        reading.transferred = archive.transferred


def metadata_beside(archive: RemoteZip, expected: str | bool) -> str | None:
    """The metadata file beside the wheel; None if it is not there after all, or differs."""
    headers = {"Accept-Encoding": "identity"}
    parts = urlsplit(archive.url)
    beside = parts._replace(path=f"{parts.path}.metadata", fragment="").geturl()
    with archive.session.get(beside, stream=True, headers=headers) as answer:
        if answer.status_code != 200 or is_html(answer):
            return None
        content = archive.body(answer, LIMIT // 2)
    matches = isinstance(expected, bool) or hashlib.sha256(content).hexdigest() == expected
    return metadata_head(content) if matches and content.startswith(b"Metadata-Version:") else None


def metadata_head(metadata: bytes) -> str:
    """The metadata up to the description."""
    return re.split(r"\r?\n\r?\n", metadata.decode("utf-8", "replace"), maxsplit=1)[0]


def _members(archive: RemoteZip, parts: Sequence[WheelPart], reading: WheelReading, *, small: bool) -> None:
    """Read metadata and parts. In a small reading libraries and data may be missing without a reason.

    Raises UnknownError if the directory cannot be read.
    """
    patterns = [part.member for part in parts]
    if reading.metadata is None:
        patterns.append(_METADATA)
    if not patterns:
        return
    found, why = archive.find(patterns, first=small or not parts)
    if reading.metadata is None:
        try:
            reading.metadata = metadata_head(archive.content(found[_METADATA][0]))
        except IndexError:
            reading.unread.append(why or "it holds no METADATA")
        except UnknownError as problem:
            reading.unread.append(str(problem))
    needed = [part for part in parts if not small or part.member.endswith(r"\.py")]
    for part in parts:
        reasons = _part(archive, found[part.member], part, reading)
        reading.unread += reasons if part in needed else ()
    if why is not None and not all(found[part.member] for part in needed):
        reading.unread.append(why)


def _part(
    archive: RemoteZip, entries: Sequence[ZipInfo], part: WheelPart, reading: WheelReading
) -> list[str]:
    """Read one part, if it is there and may have a value that is not known yet; why it could not be read."""
    if all(name in reading.values for name in part.tells) or (
        part.gpu_only and reading.values.get("gpu") is False
    ):
        return []
    fitting = (one for one in entries if not part.largest or one.compress_size <= part.largest << 20)
    if (entry := next(fitting, None)) is None:
        return []
    size, room = entry.compress_size, archive.limit - archive.transferred - (4 << 10)
    most = min(part.most << 20, size) if part.most else size
    if most > room and part.most is None:
        return [f"{entry.filename} has {size >> 20} MiB, more than is left to read of one wheel"]
    try:
        found = part.read(archive.content(entry, min(most, room)))
    except UnknownError as problem:
        return [str(problem)]
    reading.read |= dict.fromkeys(add_values(reading.values, found), entry.filename)
    if min(most, room) < size:
        reading.beyond += [name for name in part.tells if name not in reading.values]
    return []


# -- members, and the readers of these


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
    """The libraries that a library is linked with: cuDNN's major version is in the name of its library."""
    linked = needs_of(content)
    if linked is None:
        return {}
    found = {m[1] for name in linked.libraries if (m := re.fullmatch(r"libcudnn\.so\.(\d+)", name))}
    return _told(
        cudnn=found.pop() if len(found) == 1 else None,
        needed=sorted(name for name in linked.libraries if re.match(r"lib(cu|nvrtc)\w+\.so\.", name)),
        linked_glibc=linked.glibc,
    )
