"""A recipe on disk is the same on every machine, whole or not there."""

from __future__ import annotations

import errno
import os
import stat

import pytest
import recipe_cells

from builder.core.errors import UsageError
from builder.image.recipe.rendering import render
from builder.image.recipe.values import write


@pytest.fixture
def blobs(tmp_path):
    made = {}
    for name in ("rootfs.tar", recipe_cells.PIP.file):
        made[name] = tmp_path / "cache" / name
        made[name].parent.mkdir(exist_ok=True)
        made[name].write_bytes(name.encode())
    return made


@pytest.fixture
def recipe():
    return render(recipe_cells.ROOTFS_WHEELS, probe=recipe_cells.PROBE, version="0.1.0")


def seen(folder):
    return {
        path.name: (stat.S_IMODE(path.stat().st_mode), int(path.stat().st_mtime), path.read_bytes())
        for path in folder.iterdir()
    }


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_modes_and_times_do_not_depend_on_the_user(tmp_path, recipe, blobs, umask):
    before = os.umask(umask)
    try:
        write(recipe, tmp_path / "out" / "cell", blobs=blobs)
    finally:
        os.umask(before)
    found = seen(tmp_path / "out" / "cell")
    assert found.keys() == recipe.files.keys() | recipe.blobs.keys()
    for name, file in recipe.files.items():
        assert found[name] == (file.mode, recipe_cells.EPOCH, file.content)
    folder = (tmp_path / "out" / "cell").stat()
    assert (stat.S_IMODE(folder.st_mode), int(folder.st_mtime)) == (0o755, recipe_cells.EPOCH)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["cell"]


def test_a_change_of_the_same_size_changes_the_time(tmp_path, recipe, blobs):
    """BuildKit keeps what it has of a file whose size and time are as they were."""
    other = render(recipe_cells.ROOTFS_WHEELS, probe=recipe_cells.PROBE[::-1], version="0.1.0")
    for name, one in {"first": recipe, "second": other, "third": recipe}.items():
        write(one, tmp_path / name / "cell", blobs=blobs)
    for file in ("cudnn-verify", "Dockerfile"):
        first, second, third = (
            (tmp_path / name / "cell" / file).stat() for name in ("first", "second", "third")
        )
        assert first.st_size == second.st_size
        assert first.st_mtime_ns != second.st_mtime_ns
        assert first.st_mtime_ns == third.st_mtime_ns


def test_large_files_are_linked(tmp_path, recipe, blobs):
    before = blobs["rootfs.tar"].stat().st_mtime_ns
    write(recipe, tmp_path / "cell", blobs=blobs)
    assert (tmp_path / "cell" / "rootfs.tar").samefile(blobs["rootfs.tar"])
    assert blobs["rootfs.tar"].stat().st_mtime_ns == before


def test_large_files_are_copied_where_they_cannot_be_linked(tmp_path, recipe, blobs, monkeypatch):
    def refuse(source, target):
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(os, "link", refuse)
    write(recipe, tmp_path / "cell", blobs=blobs)
    found = seen(tmp_path / "cell")
    assert found["rootfs.tar"] == (0o644, int(blobs["rootfs.tar"].stat().st_mtime), b"rootfs.tar")


def test_a_link_that_fails_for_another_reason_is_an_error(tmp_path, recipe, blobs, monkeypatch):
    def refuse(source, target):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(OSError, match="full"):
        write(recipe, tmp_path / "out" / "cell", blobs=blobs)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_recipe_is_replaced_whole(tmp_path, recipe, blobs):
    write(recipe, tmp_path / "cell", blobs=blobs)
    (tmp_path / "cell" / "left-over").write_text("x")
    write(recipe, tmp_path / "cell", blobs=blobs)
    assert seen(tmp_path / "cell").keys() == recipe.files.keys() | recipe.blobs.keys()


def test_an_empty_folder_is_taken(tmp_path, recipe, blobs):
    (tmp_path / "cell").mkdir()
    write(recipe, tmp_path / "cell", blobs=blobs)
    assert (tmp_path / "cell" / "Dockerfile").is_file()


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_is_no_recipe_is_left_alone(tmp_path, recipe, blobs, kind):
    place = tmp_path / "cell"
    if kind == "folder":
        place.mkdir()
        (place / "thesis.txt").write_text("x")
    elif kind == "file":
        place.write_text("x")
    else:
        place.symlink_to(tmp_path)
    with pytest.raises(UsageError, match="is no recipe of rtbuild"):
        write(recipe, place, blobs=blobs)
    assert place.exists()


def test_every_large_file_has_to_be_given(tmp_path, recipe):
    with pytest.raises(ValueError, match=r"rootfs\.tar"):
        write(recipe, tmp_path / "cell", blobs={})
    assert not (tmp_path / "cell").exists()
