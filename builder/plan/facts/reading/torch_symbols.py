"""Symbols of PyTorch: those that its libraries define, and those that libraries of other wheels ask for.

An import binds them all at once (``RTLD_NOW``, https://docs.python.org/3/library/sys.html#sys.setdlopenflags),
and so does ``torch.ops.load_library``, by ctypes. The table of symbols of a large library lies at its
beginning and the texts, as patchelf puts them, at its end.
"""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from zipfile import ZipInfo

from builder.core.link_set import number_of
from builder.plan.facts.reading.binary import dynamic_symbols
from builder.plan.facts.reading.remote_library import read_whole_or_ends
from builder.sources.index import RemoteZip, UnknownError

TORCH = re.compile(r"_Z(?:T[VIST])?NK?[VR]?(?:3c10|2at|5torch|6caffe2|4c10d)|(?:aoti_)?torch_[a-z]")
"""Symbols of PyTorch's namespaces, and of its stable interface."""
_OWN = re.compile(r"torch/lib/lib(?:torch|c10|shm|caffe2)\w*\.so")
_ASKED = ("libtorch", "libc10")
_EDGES = ((1 << 20, 2 << 20), (6 << 20, 1 << 20))
"""Packed bytes of the beginning and the end: of PyTorch 2.6's ``libtorch_cpu``, 442 MB, the first will do."""
_MOST_ASKING, _MOST_ASKED, _BYTES = 24, 20_000, 6

Symbols = tuple[frozenset[str], frozenset[str]]
"""Undefined ones, without weak ones, and defined ones."""


def defined_by_torch(archive: RemoteZip, libraries: Iterable[ZipInfo]) -> str | None:
    """The symbols that PyTorch's libraries define, packed; None if any of them cannot be read."""
    found = set[int]()
    for entry in libraries:
        if _OWN.fullmatch(entry.filename):
            if (symbols := _symbols(archive, entry)) is None:
                return None
            found |= {number_of(one) for one in symbols[1] if TORCH.match(one)}
    return base64.b85encode(b"".join(one.to_bytes(_BYTES) for one in sorted(found))).decode() or None


def unpack_numbers(text: str) -> frozenset[int]:
    """The numbers of packed symbols. Raises ValueError."""
    data = base64.b85decode(text)
    return frozenset(int.from_bytes(data[at : at + _BYTES]) for at in range(0, len(data), _BYTES))


def asked_of_torch(
    archive: RemoteZip,
    libraries: Sequence[ZipInfo],
    needed: Mapping[str, Sequence[str]],
    known: Mapping[str, Symbols | None],
) -> dict[str, list[str]]:
    """PyTorch's symbols that each library asks for which is linked with it, without those that others of its
    wheel define. ``needed``, and symbols that are ``known`` already: by path. One that is linked with
    another of the wheel which cannot be read is left out.
    """
    asking = [one for one in libraries if any(name.startswith(_ASKED) for name in needed[one.filename])]
    asking = sorted(asking, key=lambda one: (one.filename not in known, one.compress_size))
    asking = asking[: len(known) + _MOST_ASKING]
    by_name = {PurePosixPath(one.filename).name: one for one in libraries}
    own = {
        by_name[name].filename: by_name[name]
        for one in asking
        for name in needed[one.filename]
        if name in by_name
    }
    every = {one.filename: one for one in asking} | own
    read = {path: known[path] if path in known else _symbols(archive, entry) for path, entry in every.items()}
    found: dict[str, list[str]] = {}
    defined = frozenset[str]().union(*(symbols[1] for symbols in read.values() if symbols is not None))
    for one in asking:
        beside = [by_name[name].filename for name in needed[one.filename] if name in by_name]
        symbols = read[one.filename]
        if symbols is None or any(read[path] is None for path in beside):
            continue
        mine = sorted(symbol for symbol in symbols[0] - defined if TORCH.match(symbol))
        if mine and len(mine) <= _MOST_ASKED:
            found[one.filename] = mine
    return found


def _symbols(archive: RemoteZip, entry: ZipInfo) -> Symbols | None:
    for begin, end in _EDGES:
        try:
            return dynamic_symbols(read_whole_or_ends(archive, entry, begin, end))
        except (UnknownError, ValueError):
            continue
    return None
