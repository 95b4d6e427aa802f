"""Values read from compiled files without running them: GPU code, NumPy's ABI, versions, names and symbols.

Nothing is loaded or executed; bytes are searched, and a search that finds nothing, or two different answers,
is None. The fatbin container is the one that ``cuobjdump`` lists: a header with the magic number, then one
entry for each cubin (kind 2) and PTX (kind 1), each with its compute capability
(https://docs.nvidia.com/cuda/cuda-binary-utilities/).

A loader goes by the dynamic section, which lies near the end of a file; the table of symbols and the texts
that it names lie near the start. Of a library that was not read to its end, the names of other libraries are
taken out of these texts: they hold nothing else that looks like ``libfoo.so.1`` but its own name.
"""

import contextlib
import itertools
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from builder.core.elf import (
    ELF_MACHINES,
    LOAD_SEGMENT,
    Segment,
    elf_links,
    elf_machine,
    elf_segments,
    reader_of,
)
from builder.core.versions import key
from builder.plan.facts.reading.cython_strings import keeps_in_one

_MAGIC = struct.pack("<I", 0xBA55ED50)
_PTX, _CUBIN = 1, 2
_FLAGS = re.compile(rb"(?<! )((?:sm|compute)_\d+[a-f]?(?: (?:sm|compute)_\d+[a-f]?)+)\0")


def order(architecture: str) -> tuple[int, str]:
    """Sort key: by capability, kernels before PTX."""
    return int(re.sub(r"\D", "", architecture)), "sm" if architecture.startswith("sm_") else "tx"


def fatbin_architectures(content: bytes) -> tuple[str, ...] | None:
    """``sm_80`` and ``compute_90`` of most of the whole GPU containers in (the beginning of) a library.

    Most, because some sources are compiled for fewer (attention kernels for new cards only), and objects that
    come out of a static library for others.
    """
    found = code_in(content).containers
    if not found:
        return None
    return tuple(sorted(found.most_common(1)[0][0], key=order))


@dataclass(frozen=True, kw_only=True)
class GpuCode:
    """The GPU code in (the beginning of) a library."""

    containers: Counter[frozenset[str]]
    """Architectures, by how many containers hold just these."""
    ptx: tuple[int, int] | None
    """The newest version of PTX in them, which tells the toolkit that wrote it."""


def code_in(content: bytes) -> GpuCode:
    """Every whole container. What is cut off is left out."""
    found, versions = Counter[frozenset[str]](), set[tuple[int, int]]()
    at = content.find(_MAGIC)
    while at >= 0:
        entries, after = _entries(content, at)
        if entries:
            found[frozenset(name for name, _ in entries)] += 1
            versions |= {version for name, version in entries if name.startswith("compute_")}
        at = content.find(_MAGIC, max(at + 4, after))
    return GpuCode(containers=found, ptx=max(versions, default=None))


def _entries(content: bytes, start: int) -> tuple[list[tuple[str, tuple[int, int]]], int]:
    """Architectures and format versions in one container, none if it is cut off, and where reading ended."""
    if start + 16 > len(content):
        return [], start
    version, header, size = struct.unpack_from("<HHQ", content, start + 4)
    at, end = start + header, start + header + size
    found: list[tuple[str, tuple[int, int]]] = []
    if version != 1 or header != 16 or end > len(content):
        return [], start
    while at + 64 <= end:
        kind, _, header, size = struct.unpack_from("<HHIQ", content, at)
        small, large, capability = struct.unpack_from("<HHI", content, at + 24)
        if kind not in {_PTX, _CUBIN} or not 20 <= capability < 1000 or header + size == 0:
            return [], at
        found.append((f"{'compute' if kind == _PTX else 'sm'}_{capability}", (large, small)))
        at += header + size
    return found, at


def arch_flags(content: bytes) -> tuple[str, ...] | None:
    """PyTorch's own ``CUDA_ARCH_FLAGS``, which ``torch.cuda.get_arch_list()`` prints."""
    found = {match[1].decode() for match in _FLAGS.finditer(content)}
    return tuple(found.pop().split()) if len(found) == 1 else None


_OF_RUST = (b"_RUST_NUMPY_BORROW_CHECKING_API", b"Failed to access NumPy array API capsule")


def numpy_abi(content: bytes) -> str | None:
    """The newest major version of NumPy that a library's C code runs with: ``"1"`` or ``"2"``.

    NumPy 2's headers, and pybind11 from 2.12 on, look for ``numpy._core``; older ones for ``numpy.core``.
    None for Rust's ``numpy``, which asks for NumPy when the first array comes: a package has other inputs,
    too, and tokenizers 0.13 to 0.20 run beside NumPy 2
    (https://github.com/PyO3/rust-numpy/blob/main/src/npyffi/mod.rs).
    """
    if any(text in content for text in _OF_RUST):
        return None
    if b"numpy._core" in content:
        return "2"
    return "1" if b"numpy.core" in content else None


def numpy_interface(content: bytes) -> str | None:
    """As :func:`numpy_abi`, of a library that asks for NumPy's C interface: others only name NumPy's modules.

    A module of Cython's holds the sizes of NumPy's types against its own, also without ``import_array()``: a
    dtype of NumPy 2 is smaller (``__Pyx_ImportType`` in Cython's ``Utility/ImportExport.c``; "numpy.dtype
    size changed" of https://github.com/explosion/thinc/issues/939).
    """
    by_sizes = all(text in content for text in (b"size changed, may indicate", b"\0flatiter\0", b"\0dtype\0"))
    return numpy_abi(content) if by_sizes or b"_ARRAY_API" in content else None


_ASKS_NUMPY_API = re.compile(
    rb"\xff[\x90-\x97]\x98\x06\0\0"  # call [register + 8 * 211], PyArray_GetNDArrayCFeatureVersion
    rb"\x83\xf8(?P<number>[\x01-\x7f])"  # cmp eax, number
    rb"(?:[\x48-\x4f]\x8b(?:[\x05\x0d\x15\x1d\x25\x2d\x35\x3d].{4}"  # mov register, [rip + offset]
    rb"|[\x00-\x03\x06-\x0b\x0e-\x13\x16-\x1b\x1e\x1f]))?"  # mov register, [register]
    rb"(?:(?P<above>[\x76\x77\x7e\x7f]|\x0f[\x86\x87\x8e\x8f])|[\x72\x73\x7c\x7d]|\x0f[\x82\x83\x8c\x8d])",
    re.DOTALL,
)
"""``above``: whether an equal number is refused, too."""


def numpy_api(content: bytes) -> int | None:
    """The oldest API version of NumPy's C interface with which a module loads; None if it does not ask for it
    by the code for x86-64 that GCC makes.

    ``import_array()`` compares this constant with the NumPy that is there, and an older one raises "module
    compiled against API version" (``numpy/_core/code_generators/generate_numpy_api.py``, ``_import_array``).
    """
    found = {int(one["number"][0]) + bool(one["above"]) for one in _ASKS_NUMPY_API.finditer(content)}
    return found.pop() if len(found) == 1 else None


def jax_versions(content: bytes) -> tuple[str | None, str | None]:
    """CUDA and cuDNN that a JAX plug-in was built with, out of ``_versions.so``.

    Its functions return constants: ``mov edi, <constant>`` before ``PyLong_FromLong``, in the order of its
    source (https://github.com/jax-ml/jax/blob/main/jaxlib/cuda/versions.cc): CUDA, cuDNN, and so on.
    """
    constants = re.finditer(rb"\xbf(....)[\xe8\xe9]", content, re.DOTALL)
    for cuda, cudnn in itertools.pairwise(int.from_bytes(match[1], "little") for match in constants):
        if 11000 <= cuda < 20000 and cuda % 10 == 0 and (8000 <= cudnn < 10000 or 90000 <= cudnn < 200000):
            return f"{cuda // 1000}.{cuda % 1000 // 10}", cudnn_text(cudnn)
    return None, None


def cudnn_text(number: int) -> str:
    """``8902`` is 8.9.2 and ``90101`` is 9.1.1: from 9 on the major has four digits after it."""
    major, rest = divmod(number, 10000 if number >= 90000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def torch_cudnn(content: bytes) -> str | None:
    """cuDNN's version in ``torch/csrc/cuda/shared/cudnn.cpp``, if it is a tuple of three constants."""
    store = rb"\x48\xc7\x07(....)\x48\xc7\x47\x08(....)\x48\xc7\x47\x10(....)"
    found = set()
    for match in re.finditer(store, content, re.DOTALL):
        patch, minor, major = (int.from_bytes(part, "little") for part in match.groups())
        if 7 <= major <= 9 and minor < 100 and patch < 100:
            found.add(f"{major}.{minor}.{patch}")
    return found.pop() if len(found) == 1 else None


_LEA = re.compile(rb"[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d]")
_STORE = re.compile(
    rb"(?P<wide>\x48)?\xc7(?:\x85(?P<far>....)|\x84\x24(?P<stack>....)|\x45(?P<near>.)|\x44\x24(?P<top>.))(?P<value>....)",
    re.DOTALL,
)
_WIDE = re.compile(rb"\x48[\xb8-\xbf](....)(....)", re.DOTALL)
_ARGUMENTS = re.compile(rb"\xbf(.)\0\0\0.{1,24}?\xbf(.)\0\0\0.{1,36}?\xbf(.)\0\0\0", re.DOTALL)
_SEGMENTS, _REFERENCES = 8, 64
"""Loaded segments of a library, and places in it that load one text, as far as they are looked at."""
_RELATIVE = re.compile(rb"[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](?=(....))", re.DOTALL)
"""The end of an instruction with an operand relative to it (ModRM 00 reg 101)."""
_LOAD_ADDRESS, _NEAR = 0x8D, 24
_BEFORE_IT = re.compile(rb"[\x48-\x4f]\x8d[\x40-\x7f]([\x80-\xff])")
"""``lea`` of an address up to 128 bytes before the one in a register."""
_SHORTEST_TEXT = 4
_BEFORE = 1500
"""Bytes of code before the message in which its three numbers are put together."""


def tensorflow_cudnn(content: bytes) -> str | None:
    """cuDNN that TensorFlow was compiled with: the constants of its message "but source was compiled with".

    ``cuda_dnn.cc`` puts major, minor and patch into a structure right before it; compilers store them as two
    numbers in one, as three, or hand them over one by one. Found by the instruction that loads the message.
    """
    places = list(itertools.islice(_references(content, b"but source was compiled with: "), _REFERENCES))
    found = {version for at in places for version in _stored(content[max(0, at - _BEFORE) : at])}
    if not found:
        passed = (match for at in places for match in _ARGUMENTS.finditer(content[max(0, at - 400) : at]))
        numbers = ((match[1][0], match[2][0]) for match in passed)
        found = {f"{major}.{minor}" for major, minor in numbers if _is_cudnn(major, minor)}
    return found.pop() if len(found) == 1 else None


def _references(content: bytes, text: bytes) -> Iterator[int]:
    """The places at which code loads the address of a text, relative to the code."""
    at = content.find(text)
    if at < 0 or content[:4] != b"\x7fELF":
        return
    try:
        segments = _loaded(content)
    except ValueError:
        return
    starts = {content.rfind(b"\0", 0, at) + 1, at, at - 1}
    wanted = {address for start in starts for address in _addresses(start, segments)}
    yield from (place for place, address in _addresses_in_code(content, segments) if address in wanted)


def _loaded(content: bytes) -> list[Segment]:
    """The segments that are loaded. Raises ValueError."""
    return [one for one in elf_segments(reader_of(content)) if one.kind == LOAD_SEGMENT][:_SEGMENTS]


def _addresses(place: int, segments: Iterable[Segment]) -> Iterator[int]:
    """The address in the loaded library of an offset in the file."""
    yield from (
        place - one.offset + one.address for one in segments if one.offset <= place < one.offset + one.length
    )


def _addresses_in_code(content: bytes, segments: Iterable[Segment]) -> Iterator[tuple[int, int]]:
    """(offset in the file, address) of each instruction that loads an address, relative to the code."""
    for one in segments:
        if one.flags & 1:
            code = content[one.offset : one.offset + one.length]
            for match in _LEA.finditer(code, 0, len(code) - 7):
                (distance,) = struct.unpack_from("<i", code, match.start() + 3)
                yield one.offset + match.start(), one.address + match.start() + 7 + distance


class CompiledTexts:
    """The texts that a library's code and tables refer to, among them the ends of longer ones: a linker keeps
    ``uint1`` and ``int1`` once (https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.sheader.html,
    ``SHF_MERGE``), so that the bytes alone do not say whether there is an ``int1``.
    """

    def __init__(self, content: bytes) -> None:
        self._content, self._in_one = content, keeps_in_one(content)
        self._segments: list[Segment] = []
        if elf_machine(reader_of(content)) == ELF_MACHINES["amd64"]:
            with contextlib.suppress(ValueError):
                self._segments = _loaded(content)
        self._taken: frozenset[int] | None = None

    def refers(self, text: bytes) -> bool | None:
        """Whether the library has a use for a text that a zero byte ends; None if nobody knows: a compiler
        puts a short one into the code itself, a type is named ``module.Name``, and Cython may keep all in
        one.
        """
        content = self._content
        if not self._segments or len(text) < _SHORTEST_TEXT or self._in_one:
            return None
        if self._taken is None:
            self._taken = frozenset(_referred(content, self._segments))
        ended = False
        for match in re.finditer(re.escape(text) + b"\0", content):
            if content[match.start() - 1 : match.start()] == b".":
                return None
            for address in _addresses(match.start(), self._segments):
                if address in self._taken or self._points_to(address):
                    return True
                ended |= address + len(text) in self._taken
        begin = text[: 8 if len(text) >= 8 else 4]
        code = [(one.offset, one.offset + one.length) for one in self._segments if one.flags & 1]
        inside = any(content.find(begin, start, end) >= 0 for start, end in code)
        return None if ended or inside or content.count(text[:16]) != content.count(text) else False

    def _points_to(self, address: int) -> bool:
        """Whether a table that is loaded has an address: what is told for a debugger has many small numbers."""
        pointer = struct.pack("<Q", address)
        for one in self._segments:
            end, at = one.offset + one.length, one.offset - 1
            while (at := self._content.find(pointer, at + 1, end)) >= 0:
                if (at - one.offset + one.address) % len(pointer) == 0:
                    return True
        return False


def _referred(content: bytes, segments: Iterable[Segment]) -> Iterator[int]:
    """The addresses to which code refers, relative to itself; and those before one, by which code that goes
    through a text from both ends has its beginning: ``lea rdx, [rip + END]``, ``lea rsi, [rdx - LENGTH]``.
    """
    for one in segments:
        if one.flags & 1:
            code = content[one.offset : one.offset + one.length]
            for match in _RELATIVE.finditer(code):
                (distance,) = struct.unpack("<i", match[1])
                address = one.address + match.end(1) + distance
                yield address
                if code[match.start() - 1] == _LOAD_ADDRESS:
                    near = _BEFORE_IT.findall(code, match.end(1), match.end(1) + _NEAR)
                    yield from (address + before[0] - 256 for before in near)


def linked_texts(
    read: Callable[[str], bytes | None], parts: Iterable[str], paths: Iterable[str]
) -> Iterator[tuple[str, CompiledTexts | None]]:
    """Compiled modules of a wheel, and its libraries that they are linked with, by file name. ``read`` gives
    one of its files.
    """
    named = {path.rpartition("/")[2]: path for path in paths}
    queue, seen = [*parts], set[str]()
    while queue:
        if (path := queue.pop(0)) in seen:
            continue
        seen.add(path)
        content = read(path)
        yield path.rpartition("/")[2], CompiledTexts(content) if content is not None else None
        needs = needs_of(content) if content is not None else None
        queue += [named[one] for one in (needs.libraries if needs is not None else ()) if one in named]


def _stored(code: bytes) -> Iterator[str]:
    """Versions that this code stores, as exactly as it says."""
    for match in _WIDE.finditer(code):
        major, minor = (int.from_bytes(part, "little") for part in match.groups())
        if _is_cudnn(major, minor):
            yield f"{major}.{minor}"
    narrow: dict[int, int] = {}
    wide: dict[int, int] = {}
    for match in _STORE.finditer(code):
        place = next(part for name in ("far", "stack", "near", "top") if (part := match[name]) is not None)
        where = int.from_bytes(place, "little", signed=True)
        (wide if match["wide"] else narrow)[where] = int.from_bytes(match["value"], "little")
    for where, value in narrow.items():
        if where + 4 in narrow and where + 8 in narrow and _is_cudnn(value, narrow[where + 4]):
            yield f"{value}.{narrow[where + 4]}"
    yield from (f"{value}.0" for where, value in wide.items() if where + 8 in narrow and _is_cudnn(value, 0))


def _is_cudnn(major: int, minor: int) -> bool:
    return 7 <= major <= 9 and minor < 20


# -- names and symbols

_LIBRARY = re.compile(r"[\w.+-]+\.so(?:\.[\w.]+)?")
_SYMBOL = struct.Struct("<IBBHQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_DYNAMIC_SYMBOLS = 11
_UNDEFINED, _WEAK = 0, 2
_MOST_SYMBOLS = 1 << 20
_LANDMARKS = (
    b"__gmon_start__",
    b"_ITM_deregisterTMCloneTable",
    b"__cxa_finalize",
    b"__stack_chk_fail",
    b"free",
)
"""Names that compilers put into nearly every library; one of them leads to the others."""


@dataclass(frozen=True, kw_only=True)
class SharedLibrary:
    """The facts that one shared library states of itself."""

    needed: tuple[str, ...]
    """Names of other libraries that it is linked with."""
    glibc: str | None
    undefined: frozenset[str]
    """Symbols that others have to define, without weak ones."""
    defined: frozenset[str]


def library_of(content: bytes, name: str, *, whole: bool) -> SharedLibrary | None:
    """The facts of a library or its beginning; None if it is none, or a beginning without its names."""
    read = reader_of(content)
    try:
        if elf_machine(read) is None:
            return None
        segments = elf_segments(read)
    except ValueError:
        return None
    exact = None
    if whole:
        # one that is broken is told by its texts, as one that was not read to its end
        with contextlib.suppress(ValueError):
            links = elf_links(read, segments)
            exact = (links.needed, [row[1] for row in links.asked()]) if links is not None else None
    table = _section(content) if whole else None
    texts = _texts(content, [s.offset + s.length for s in segments if s.kind == LOAD_SEGMENT][:1])
    if exact is None and texts is None:
        return None
    said = content[slice(*texts)].decode("latin-1").split("\0") if texts is not None else []
    if table is None and texts is not None:
        table = (_rows(content, texts[0]), *texts)
    undefined, defined = _symbols(content, *table) if table is not None else (frozenset(), frozenset())
    needed, versions = exact if exact is not None else (_libraries(said, name), said)
    glibc = [text.removeprefix("GLIBC_") for text in versions if text.startswith("GLIBC_2.")]
    glibc = [text for text in glibc if re.fullmatch(r"[\d.]+", text)]
    return SharedLibrary(
        needed=tuple(dict.fromkeys(needed)),
        glibc=max(glibc, key=key, default=None),
        undefined=undefined,
        defined=defined,
    )


def _libraries(texts: list[str], own: str) -> list[str]:
    """Names of libraries among the texts but the library's own, which can differ from its file's."""
    stem = re.split(r"[.-]", own, maxsplit=1)[0]
    found = sorted({text for text in texts if ".so" in text and _LIBRARY.fullmatch(text)})
    return [text for text in found if re.split(r"[.-]", text, maxsplit=1)[0] != stem]


def _texts(content: bytes, ends: list[int]) -> tuple[int, int] | None:
    """The bounds of the texts that name symbols; None if they are not whole in the content."""
    for landmark in _LANDMARKS:
        at = content.find(b"\0" + landmark + b"\0", 0, ends[0] if ends else None)
        if at < 0:
            continue
        # no text is empty, so that two zeros end the table before, and two come after the last text
        start, end = content.rfind(b"\0\0", 0, at + 1) + 1, content.find(b"\0\0", at)
        return (start, end) if 0 < start < end else None
    return None


def _section(content: bytes) -> tuple[Iterable[int], int, int] | None:
    """The place of the rows of a whole library's table of symbols, and the bounds of their texts."""
    (table,) = struct.unpack_from("<Q", content, 40)
    row, count = struct.unpack_from("<HH", content, 58)
    if row != _SECTION.size or not 0 < table <= len(content) - row * count:
        return None
    sections = [_SECTION.unpack_from(content, table + number * row) for number in range(count)]
    for _, kind, _, _, offset, size, link, _, _, entry in sections:
        if kind == _DYNAMIC_SYMBOLS and entry == _SYMBOL.size and link < count:
            end = min(offset + size, len(content) - entry + 1, offset + _MOST_SYMBOLS * entry)
            texts = sections[link]
            return range(offset, end, entry), texts[4], min(texts[4] + texts[5], len(content))
    return None


def _symbols(
    content: bytes, rows: Iterable[int], start: int, end: int
) -> tuple[frozenset[str], frozenset[str]]:
    """Undefined and defined symbols of a table whose texts lie between ``start`` and ``end``."""
    undefined, defined = set[str](), set[str]()
    for at in rows:
        name, info, _, section, _, _ = _SYMBOL.unpack_from(content, at)
        close = content.find(b"\0", start + name, end + 1)
        if not name or start + name >= end or close < 0:
            continue
        text = content[start + name : close].decode("latin-1")
        if section != _UNDEFINED:
            defined.add(text)
        elif info >> 4 != _WEAK:
            undefined.add(text)
    return frozenset(undefined), frozenset(defined)


def _rows(content: bytes, end: int) -> Iterator[int]:
    """Offsets of the table's rows, back from its end to its first row, which is empty."""
    for number in range(1, _MOST_SYMBOLS):
        at = end - number * _SYMBOL.size
        if at < 0 or not any(content[at : at + _SYMBOL.size]):
            return
        yield at


@dataclass(frozen=True, kw_only=True)
class Needs:
    libraries: tuple[str, ...] = ()
    """As ``DT_NEEDED`` has them: ``libcudnn.so.9``."""
    glibc: str | None = None
    """None if no symbol of glibc's is versioned."""
    paths: tuple[str, ...] = ()
    """The folders in which it looks first, ``$ORIGIN`` and all: ``DT_RPATH`` and ``DT_RUNPATH``."""


def needs_of(content: bytes) -> Needs | None:
    """The needs of a library; None if the content is no such library, or not a whole one."""
    read = reader_of(content)
    try:
        links = elf_links(read, elf_segments(read)) if elf_machine(read) is not None else None
        if links is None:
            return None
        asked = (version for _, version, _ in links.asked())
        glibc = [name.removeprefix("GLIBC_") for name in asked if name.startswith("GLIBC_2")]
    except ValueError:
        return None
    paths = [path for text in (links.rpath, links.runpath) for path in (text or "").split(":") if path]
    return Needs(libraries=tuple(links.needed), glibc=max(glibc, key=key, default=None), paths=tuple(paths))
