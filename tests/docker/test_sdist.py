"""Real source distributions from the real index: locked, built, made again elsewhere, and in an image."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from sdist_scene import SMALL, docker, empty_cache, image, locked, workshop

from builder.core.errors import PackageIndexError
from builder.sources.index.client import Index, cache_path

if TYPE_CHECKING:
    from pathlib import Path

    from builder.core.model import Pinned

pytestmark = pytest.mark.docker

CELL = replace(
    SMALL,
    pip=("imutils==0.5.4", "pyperclip==1.9.0", "setuptools==75.2.0"),
    from_source=("imutils", "pyperclip", "setuptools"),
)


@pytest.fixture(scope="module")
def pinned(tmp_path_factory: pytest.TempPathFactory) -> Pinned:
    return locked(CELL, empty_cache(tmp_path_factory.mktemp("here") / "cache"))


def test_without_the_key_nothing_is_built(tmp_path: Path) -> None:
    with pytest.raises(PackageIndexError, match="naming it under 'from-source'"):
        locked(replace(CELL, from_source=()), empty_cache(tmp_path / "cache"))


def test_only_what_has_no_wheel_is_built(pinned: Pinned) -> None:
    built = {wheel.name: wheel for wheel in pinned.wheels if wheel.source is not None}
    assert set(built) == {"imutils", "pyperclip"}
    source = built["imutils"].source
    assert source is not None
    assert source.sdist.file == "imutils-0.5.4.tar.gz"
    assert [wheel.file for wheel in source.requires] == ["setuptools-75.2.0-py3-none-any.whl"]
    assert source.system == pinned.base


def test_another_machine_makes_the_same(pinned: Pinned, tmp_path: Path) -> None:
    wheel = next(wheel for wheel in pinned.wheels if wheel.name == "imutils")
    cache = empty_cache(tmp_path / "cache")
    works = workshop(cache)
    assert works.make(wheel, Index.from_user()) == cache_path(wheel, cache)


def test_what_was_built_stays_locked(pinned: Pinned, tmp_path: Path) -> None:
    changed = replace(CELL, pip=(*CELL.pip, "idna==3.7"))
    again = locked(changed, empty_cache(tmp_path / "cache"), pinned)
    assert {w for w in again.wheels if w.source} == {w for w in pinned.wheels if w.source}


def test_plain_docker_build_takes_them(pinned: Pinned, tmp_path: Path) -> None:
    """As from an index: no file says that they came from a folder."""
    with image(pinned, tmp_path / "recipe") as name:
        assert (tmp_path / "recipe/built/imutils-0.5.4-py3-none-any.whl").is_file()
        plain = docker("run", "--rm", name, "python", "-c", LOOK)
    found = json.loads(plain)
    assert found["versions"] == ["0.5.4", "1.9.0"]
    assert not [path for path in found["files"] if "direct_url" in path]


LOOK = """
import importlib.metadata as m, json, pyperclip
files = [str(f) for n in ("imutils", "pyperclip") for f in m.files(n)]
print(json.dumps({"versions": [m.version("imutils"), m.version("pyperclip")], "files": files}))
"""
