"""Packages that are compiled for real: in a Debian with a compiler, and started in an image without one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from sdist_scene import SMALL, docker, empty_cache, image, locked, workshop

from builder.core.errors import CellError, CommandError
from builder.core.model import Compilation, RootfsBase, Wheel
from builder.sources.index.client import Index, cache_path

if TYPE_CHECKING:
    from pathlib import Path

    from builder.core.model import Pinned

pytestmark = [pytest.mark.docker, pytest.mark.long, pytest.mark.nightly]

CELL = replace(
    SMALL,
    pip=("psycopg2==2.9.10", "pycairo==1.28.0"),
    apt=("libcairo2", "libpq5"),
    compiled=(("psycopg2", ("libpq-dev",)), ("pycairo", ("libcairo2-dev", "pkg-config"))),
)


@pytest.fixture(scope="module")
def pinned(tmp_path_factory: pytest.TempPathFactory) -> Pinned:
    return locked(CELL, empty_cache(tmp_path_factory.mktemp("here") / "cache"))


def compiled(pinned: Pinned) -> dict[str, Wheel]:
    return {wheel.name: wheel for wheel in pinned.wheels if wheel.source is not None}


def test_what_it_loads_is_known_and_the_compiler_is_not_in_the_image(pinned: Pinned) -> None:
    wheels = compiled(pinned)
    assert {wheel.file for wheel in wheels.values()} == {
        "psycopg2-2.9.10-cp311-cp311-linux_x86_64.whl",
        "pycairo-1.28.0-cp311-cp311-linux_x86_64.whl",
    }
    sources = {name: wheel.source for name, wheel in wheels.items()}
    assert sources["psycopg2"] is not None
    assert sources["psycopg2"].compiled == Compilation(needs=("libpq-dev",), libraries=("libc6", "libpq5"))
    built_in = {deb.package for deb in sources["psycopg2"].system.debs}
    assert {"gcc", "python3-dev", "libpq-dev"} <= built_in
    assert "libcairo2-dev" not in built_in
    assert isinstance(pinned.base, RootfsBase)
    assert not {"gcc", "python3-dev", "libpq-dev"} & {deb.package for deb in pinned.base.debs}


def test_another_cache_makes_the_same(pinned: Pinned, tmp_path: Path) -> None:
    wheel = compiled(pinned)["psycopg2"]
    cache = empty_cache(tmp_path / "cache")
    works = workshop(cache)
    assert works.make(wheel, Index.from_user()) == cache_path(wheel, cache)


def test_they_are_imported_in_the_image(pinned: Pinned, tmp_path: Path) -> None:
    with image(pinned, tmp_path / "recipe") as name:
        said = json.loads(docker("run", "--rm", name, "python", "-c", LOOK))
    assert said["psycopg2"].startswith("2.9.10")
    assert said["libpq"] >= 150000
    assert said["png"] == "89504e47"


LOOK = """
import io, json, cairo, psycopg2
png = io.BytesIO()
cairo.ImageSurface(cairo.FORMAT_ARGB32, 8, 8).write_to_png(png)
found = {"psycopg2": psycopg2.__version__, "libpq": psycopg2.extensions.libpq_version()}
print(json.dumps({**found, "png": png.getvalue()[:4].hex()}))
"""


def test_a_library_that_the_image_lacks(tmp_path: Path, pinned: Pinned) -> None:
    with pytest.raises(CellError, match="libcairo2, by pycairo; libpq5, by psycopg2") as raised:
        locked(replace(CELL, apt=()), empty_cache(tmp_path / "cache"))
    assert raised.value.hint == "add libcairo2, libpq5 to 'apt'"


def test_what_the_compiler_lacks_is_named(tmp_path: Path) -> None:
    cell = replace(CELL, pip=CELL.pip[:1], compiled=(("psycopg2", ()),))
    with pytest.raises(CommandError, match="pg_config") as raised:
        locked(cell, empty_cache(tmp_path / "cache"))
    assert "add the Debian package that has it (libpq-dev, by its own pages)" in str(raised.value.hint)


def test_as_pure_python_it_says_how_to_compile_it(tmp_path: Path) -> None:
    cell = replace(CELL, pip=CELL.pip[:1], compiled=(), from_source=("psycopg2",))
    with pytest.raises(CommandError) as raised:
        locked(cell, empty_cache(tmp_path / "cache"))
    assert "as in 'psycopg2: [libpq-dev]'" in str(raised.value.hint)
