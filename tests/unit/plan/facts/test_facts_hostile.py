"""Libraries that name one thing a million times, or nest a million others, are read in bounded time."""

from __future__ import annotations

import resource
import signal
import struct
from typing import TYPE_CHECKING

import pytest

from builder.core.errors import CellError
from builder.image.layers.convert import Excerpt, Skeleton
from builder.plan.facts.reading import binary
from builder.plan.facts.reading.binary import needs_of
from builder.plan.facts.reading.observed import Truth, WheelReading, truth_of
from builder.plan.facts.rules.checking import check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from builder.core.model import Cell

TORCH = "torch-2.4.1-cp311-cp311-linux_x86_64.whl"
SECONDS = 10
MEGABYTES = 300
MIB = 1 << 20


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """10 s of processor time, which no other process takes away, and 300 MB."""

    def end(*_: object) -> None:
        raise TimeoutError

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    old = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, old)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEGABYTES << 10


def segment(kind: int, offset: int, length: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, 5, offset, offset, offset, length, length, 8)


def library(
    entries: Callable[[int], list[tuple[int, int]]], rest: bytes, *more: bytes, dynamic: int = 0
) -> bytes:
    """One whose dynamic section has ``entries``, made from the place of what follows it, ``rest``."""
    start = 64 + 56 * (2 + len(more))
    behind = start + 16 * len(entries(0))
    table = b"".join(struct.pack("<QQ", *entry) for entry in entries(behind))
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2 + len(more), 64, 0, 0)
    size = behind + len(rest)
    return (
        header
        + segment(1, 0, size)
        + segment(2, start, dynamic or len(table))
        + b"".join(more)
        + table
        + rest
    )


def named(place: int) -> list[tuple[int, int]]:
    return [*[(1, 0)] * 100_000, (5, place), (0, 0)]


def versioned(place: int) -> list[tuple[int, int]]:
    return [(5, place), (10, 2), (0x6FFFFFFE, place + 16), (0x6FFFFFFF, 1 << 60), (0, 0)]


# 60,000 versions, each of which is the first, again and again
ONE = struct.pack("<IHHII", 0, 0, 2, 0, 0)
CIRCLE = b"x\0" + bytes(14) + struct.pack("<HHIII", 1, 65535, 0, 0x10, 0x20) + ONE
VERSIONS = CIRCLE + (struct.pack("<HHIII", 1, 65535, 0, 0x10, 0x20) + ONE) * 2000


def cubin(left: int) -> bytes:
    """A container that ends where the data does, and in it one entry, in which the next container stands."""
    outer = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, left - 16)
    return outer + struct.pack("<HHIQ12xI32x", 2, 0, 80, 0, 80)


NESTED = b"".join(cubin(80 * count) for count in range(20_000, 0, -1))
SAID = b"\0but source was compiled with: "


@pytest.mark.parametrize(
    ("read", "content"),
    [
        (needs_of, library(named, b"n" * 15_000 + b"\0")),
        (needs_of, library(versioned, VERSIONS)),
        (needs_of, library(lambda place: [(5, place), (0, 0)], b"", dynamic=1 << 60)),
        (binary.arch_flags, b"sm_10 " * 200_000 + b"X"),
        (binary.tensorflow_cudnn, b"\x7fELF\x02\x01" + SAID),
        (
            binary.tensorflow_cudnn,
            library(
                lambda place: [(5, place), (0, 0)], SAID + bytes(8 * MIB), *[segment(1, 0, 8 * MIB)] * 200
            ),
        ),
    ],
)
def test_nothing_is_told_by_what_has_no_end(read: Callable[[bytes], object], content: bytes) -> None:
    assert read(content) is None


@pytest.mark.parametrize("end", [b"", bytes(8)])
def test_containers_in_one_another_are_read_once(end: bytes) -> None:
    """Also if the last one is none, so that no other is whole."""
    assert binary.fatbin_architectures(NESTED[: -len(end) or None] + end) in (("sm_80",), None)


@pytest.mark.parametrize(
    "head",
    [
        library(lambda place: [(5, place), (10, 1), (0, 0)], b"x", segment(4, 0, 700 * MIB)),
        library(lambda place: [(5, place), (10, 1), (0, 0)], b"x", dynamic=700 * MIB),
        library(lambda place: [(5, place), (10, 700 * MIB), (0, 0)], b"x"),
        library(lambda place: [(5, place), (10, 1), (0, 0)], b"x", *[segment(4, 0, 64 * MIB)] * 60_000),
    ],
    ids=["notes", "dynamic", "names", "many"],
)
def test_of_a_large_library_little_is_kept(head: bytes) -> None:
    skeleton = Skeleton(700 * MIB)
    skeleton.feed(head + b"\1" * (32 * MIB - len(head)))
    for _ in range(700 - 32):
        skeleton.feed(b"\1" * MIB)
    assert skeleton.ranges() is None, "it is kept whole, and counted"


def test_what_is_kept_whole_is_counted() -> None:
    excerpt = Excerpt()
    excerpt.take("a/b.py", 0o644, 1 << 30)
    with pytest.raises(CellError, match=r"a layer with /a/c\.py has more than 2 GiB"):
        excerpt.take("a/c.py", 0o644, (1 << 30) + 1)


MANY = "1" * 5000


@pytest.mark.parametrize(
    "line",
    [
        f"Requires-Dist: nvidia-cudnn-cu12=={MANY}",
        "Requires-Dist: nvidia-cudnn-cu12==v9",
        "Requires-Dist: nvidia-cudnn-cu12===latest",
        "Requires-Dist: nvidia-cuda-runtime-cu12==v12",
        f"Requires-Dist: numpy<{MANY}",
        "Requires-Dist: numpy<v2",
        f"Requires-Dist: x; {'(' * 5000}",
        f"Requires-Python: >={MANY}",
    ],
    ids=lambda line: line[:48],
)
def test_metadata_that_no_number_fits_ends_no_run(make: Callable[..., Cell], line: str) -> None:
    told = WheelReading(file=TORCH, metadata=f"Name: torch\nVersion: 2.4.1\n{line}\n")
    cell = make("torch==2.4.1", python="3.11", base="nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04")
    assert check(cell, Truth(wheels=(truth_of(TORCH, told),)))
