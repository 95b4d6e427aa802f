"""``rtbuild cache``: sizes, and pruning by last use."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from rtbuild_command import called

import builder
from builder.cli.commands import cache as command
from builder.cli.commands.cache import size_of
from builder.core.errors import UsageError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RTBUILD_CACHE", str(tmp_path))
    for number, name in enumerate(("old", "new")):
        path = tmp_path / "wheels" / name / f"{name}.whl"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * 1000)
        os.utime(path, (1000.0 + number, 1000.0))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "size"), [("20GB", 20 * 10**9), ("1.5 GB", 1_500_000_000), ("500M", 500_000_000), ("0", 0)]
)
def test_sizes_as_people_write_them(text: str, size: int) -> None:
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["", "GB", "5XB", "-1GB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a size"):
        size_of(text)


@pytest.mark.parametrize("text", ["9" * 400 + "TB", "9" * 5000, "1" + "0" * 30])
def test_a_size_that_no_disk_holds_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="more than any disk holds"):
        size_of(text)


def test_it_shows_what_is_there(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(command.cache, json_=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["bytes"]["wheels"] == 2000
    assert document["freed"] == 0


def test_pruning_takes_what_was_used_longest_ago(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(command.cache, prune="1kB") == 0
    assert [path.name for path in cache.rglob("*.whl")] == ["new.whl"]
    assert "1 kB freed" in capsys.readouterr().out


def test_a_cache_that_fits_is_left_alone(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(command.cache, prune="1GB", verify_=True) == 0
    assert len(list(cache.rglob("*.whl"))) == 2
    assert "0 B freed" in capsys.readouterr().out


def test_a_size_that_is_none_is_told_before_anything_is_hashed(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command.LayerStore, "verify", lambda _: pytest.fail("it was begun"))
    with pytest.raises(UsageError, match="'much' is not a size"):
        called(command.cache, prune="much", verify_=True)


def test_a_lock_that_a_build_may_hold_is_not_pruned(cache: Path) -> None:
    (cache / "rootfs").mkdir()
    (cache / "rootfs" / "key.tar").write_bytes(b"x")
    (cache / "rootfs" / "key.lock").touch()
    os.utime(cache / "rootfs" / "key.lock", (1.0, 1.0))
    assert called(command.cache, prune="0") == 0
    assert [path.name for path in (cache / "rootfs").iterdir()] == ["key.lock"]


def test_what_pruning_keeps_is_told_and_how_to_remove_it(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("up", "home", "stranger"):
        (cache / name).mkdir()
        (cache / name / "file").write_bytes(b"x" * 500)
    assert called(command.cache, prune="0") == 0
    out = capsys.readouterr().out
    assert "2 kB freed\n--prune removes from layers, wheels, debs, rootfs" in out
    assert "the other folders (2 kB) stay" in out
    assert f"rm -r {cache}" in out
    assert "no folder of this rtbuild's" in out
    assert (cache / "home" / "file").exists()


def test_every_folder_that_is_made_is_named() -> None:
    """A folder of the cache is named in the table of contents."""
    words = re.compile(r'(?:\bcache\(\)|\bcache) / "([a-z-]+)"')
    texts = (path.read_text() for path in Path(builder.__file__).parent.rglob("*.py"))
    made = {name for text in texts for name in words.findall(text)}
    assert len(made) > 8
    assert made - set(command._CONTENTS) == set()
