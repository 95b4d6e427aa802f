"""The disk is checked before the first byte: shared wheels count once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builder.core.errors import MissingToolError
from builder.core.model import Base, Cell, Cuda, Deb, Pinned, RootfsBase, Wheel
from builder.image.compose.sizes import MARGIN, RECOMPRESSED, UNPACKED, Need, estimate, refuse_full

if TYPE_CHECKING:
    from pathlib import Path

GB = 10**9


def pinned(name: str, *sizes: int) -> Pinned:
    cell = Cell(
        id=name,
        matrix="m",
        frameworks=("six==1.17.0",),
        python="3.11",
        base=Base(kind="rootfs", name="debian/bookworm"),
        cuda=Cuda(provider="none"),
    )
    wheels = tuple(
        Wheel(
            name=f"w{size}", version="1", file=f"w{size}-1-py3-none-any.whl", sha256=f"{size:064x}", size=size
        )
        for size in sizes
    )
    deb = Deb(
        package="dash",
        version="0.5",
        architecture="amd64",
        file="pool/dash.deb",
        sha256="0" * 64,
        size=0,
        archive="debian",
    )
    return Pinned(cell=cell, base=RootfsBase(suite="bookworm", debs=(deb,), epoch=0), wheels=wheels, epoch=0)


def test_wheels_that_cells_share_count_once() -> None:
    one = estimate([pinned("a", 2 * GB)])
    two = estimate([pinned("a", 2 * GB), pinned("b", 2 * GB)])
    assert one == two
    assert one.engine == round(2 * GB * (UNPACKED + RECOMPRESSED))


def test_wheels_that_were_fetched_before_are_not_counted_again() -> None:
    fresh = estimate([pinned("a", GB)])
    cached = estimate([pinned("a", GB)], cached=frozenset({f"{GB:064x}"}))
    assert fresh.cache - cached.cache == GB


def test_a_full_disk_is_refused_with_both_figures(tmp_path: Path) -> None:
    with pytest.raises(MissingToolError, match=r"takes about 9\d+\.\d GB .* are free") as raised:
        refuse_full(Need(engine=0, cache=900_000 * GB), engine_free=None, engine_root="/x", cache=tmp_path)
    assert raised.value.exit_code == 5
    assert "RTBUILD_CACHE" in (raised.value.hint or "")


def test_the_engines_own_disk_is_refused_by_its_own_space(tmp_path: Path) -> None:
    with pytest.raises(MissingToolError, match="/engine"):
        refuse_full(Need(engine=2 * GB, cache=0), engine_free=MARGIN, engine_root="/engine", cache=tmp_path)


def test_a_remote_engine_is_not_second_guessed(tmp_path: Path) -> None:
    refuse_full(Need(engine=900_000 * GB, cache=0), engine_free=None, engine_root="/x", cache=tmp_path)


def test_what_the_cache_holds_needs_no_room_there() -> None:
    cells = [pinned("one", 1 * GB, 2 * GB)]
    names = {wheel.size: wheel.sha256 for wheel in cells[0].wheels}
    new = estimate(cells)
    fetched = estimate(cells, cached=frozenset(names.values()))
    ready = estimate(cells, cached=frozenset(), ready=frozenset({names[2 * GB]}))
    assert new.engine == fetched.engine == ready.engine
    assert new.cache - fetched.cache == 3 * GB
    assert new.cache - ready.cache == round(2 * GB * (1 + RECOMPRESSED))
