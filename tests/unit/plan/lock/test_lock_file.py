"""The lock file: what is written is what is read, and what cannot be is refused."""

from __future__ import annotations

import dataclasses
import itertools
import json
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from lock_values import lock_cell, lock_deb, lock_matrix, lock_pinned, lock_registry_base, lock_wheel
from pages import model_schemas

from builder.core.errors import UsageError
from builder.core.model import Base, RootfsBase
from builder.plan.lock import file
from builder.plan.lock.file import LockStatus, lock_path, merge, pinned_cell, read_lock, render, state, status

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return lock_path(tmp_path / "tf28.yaml")


def test_it_stands_beside_the_matrix() -> None:
    assert lock_path(Path("matrices/tf28.yaml")) == Path("matrices/tf28.lock.json")


def test_nothing_is_lost(path: Path) -> None:
    rootfs, registry = lock_cell("a"), lock_cell("b", base=Base(kind="registry", name="nvidia/cuda:x"))
    pins = {"a": lock_pinned(rootfs), "b": lock_pinned(registry, base=lock_registry_base())}
    written = merge(path, lock_matrix(path, rootfs, registry), pins)
    read = read_lock(path)
    assert read == written
    assert read
    for cell in (rootfs, registry):
        pinned = pinned_cell(cell, read)
        assert pinned == pins[cell.id]
        assert pinned is not None
        assert pinned.inputs == pins[cell.id].inputs


def test_the_text(path: Path, golden: Callable[[str, str], None]) -> None:
    rootfs, registry = lock_cell("a"), lock_cell("b", base=Base(kind="registry", name="nvidia/cuda:x"))
    pins = {"b": lock_pinned(registry, base=lock_registry_base()), "a": lock_pinned(rootfs)}
    merge(path, lock_matrix(path, rootfs, registry), pins)
    golden("lock/tf28.lock.json", path.read_text())


def test_the_published_schema(path: Path, generated: Callable[[str, str], None]) -> None:
    schema = model_schemas.of_lock()
    generated("docs/lock.schema.json", json.dumps(schema, indent=2, sort_keys=True) + "\n")
    merge(path, lock_matrix(path, lock_cell("a")), {"a": lock_pinned(lock_cell("a"))})
    document = json.loads(path.read_text())
    jsonschema.validate(document, schema)


def test_status() -> None:
    cell = lock_cell("a")
    lockfile = merge_in_memory(cell)
    assert status(cell, {}) is LockStatus.MISSING
    assert status(lock_cell("b"), lockfile) is LockStatus.MISSING
    assert status(cell, lockfile) is LockStatus.FRESH
    assert status(dataclasses.replace(cell, env=(("A", "1"),)), lockfile) is LockStatus.FRESH
    changed = dataclasses.replace(cell, pip=("rich",))
    assert status(changed, lockfile) is LockStatus.STALE
    assert pinned_cell(changed, lockfile) is None


@pytest.mark.parametrize("at", [1, 2])
def test_two_that_lock_cells_of_one_matrix_at_a_time_lose_none(
    path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """The other one comes before the lock is written, or while it is."""
    a, b = lock_cell("a"), lock_cell("b")
    other = threading.Thread(target=merge, args=(path, lock_matrix(path, a, b), {"b": lock_pinned(b)}))
    calls = itertools.count(1)

    def interrupted(*given: Any) -> str:
        text = render(*given)
        if threading.current_thread() is not other and next(calls) == at:
            other.start()
            other.join(0.3)
        return text

    monkeypatch.setattr(file, "render", interrupted)
    merge(path, lock_matrix(path, a, b), {"a": lock_pinned(a)})
    other.join()
    assert set(read_lock(path)) == {"a", "b"}


def merge_in_memory(cell: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = lock_path(Path(folder) / "m.yaml")
        return merge(path, lock_matrix(path, cell), {cell.id: lock_pinned(cell)})


def test_a_stale_entry_says_what_it_was_made_with() -> None:
    lockfile = merge_in_memory(lock_cell("a", apt=("git",)))
    moved = lock_cell("a", apt=("curl",), base=Base(kind="registry", name="nvidia/cuda:x"))
    old = pinned_cell(moved, lockfile, stale=True)
    assert old is not None
    assert (str(old.cell.base), old.cell.apt) == ("rootfs:debian/bullseye", ("git",))


def test_cells_that_were_not_locked_now_keep_their_entries(path: Path) -> None:
    a, b = lock_cell("a"), lock_cell("b")
    merge(path, lock_matrix(path, a, b), {"a": lock_pinned(a), "b": lock_pinned(b)})
    newer = dataclasses.replace(lock_pinned(a), epoch=99)
    lockfile = merge(path, lock_matrix(path, a, b), {"a": newer})
    assert [lockfile[key].epoch for key in ("a", "b")] == [99, lock_pinned(b).epoch]
    assert set(merge(path, lock_matrix(path, b), {})) == {"b"}


def test_the_same_content_is_not_written_again(path: Path) -> None:
    cell = lock_cell("a")
    merge(path, lock_matrix(path, cell), {"a": lock_pinned(cell)})
    before = path.stat().st_ino
    merge(path, lock_matrix(path, cell), {"a": lock_pinned(cell)})
    assert path.stat().st_ino == before
    assert [entry.name for entry in path.parent.glob("*lock*")] == [path.name]
    assert path.stat().st_mode & 0o777 == 0o644


def test_two_files_of_one_name(path: Path) -> None:
    """An index may have replaced a file since, and two indexes may each have one of that name."""
    a, b = lock_cell("a"), lock_cell("b")
    other = dataclasses.replace(lock_wheel("numpy", "1.23.5"), sha256="0" * 64)
    pins = {"a": lock_pinned(a), "b": dataclasses.replace(lock_pinned(b), wheels=(other,))}
    merge(path, lock_matrix(path, a, b), pins)
    read = read_lock(path)
    assert read
    assert read["b"].wheels == (other,)
    assert read["a"].wheels == pins["a"].wheels


def test_one_file_of_two_archives(path: Path) -> None:
    """A point release takes packages over from the security archive: each base keeps the row of its lock."""
    a, b = lock_cell("a"), lock_cell("b")
    bases = [
        RootfsBase(suite="bullseye", debs=(lock_deb("apt", archive=archive),), epoch=epoch)
        for epoch, archive in enumerate(("debian", "debian-security"), 1)
    ]
    merge(path, lock_matrix(path, a, b), {"a": lock_pinned(a, base=bases[0])})
    merge(path, lock_matrix(path, a, b), {"b": lock_pinned(b, base=bases[1])})
    read = read_lock(path)
    assert [read[cell].base for cell in ("a", "b")] == bases
    merge(path, lock_matrix(path, a, b), {"a": lock_pinned(a, base=bases[1])})
    assert list(json.loads(path.read_text())["debs"]) == ["apt_1:2.0-3+deb11u1_amd64"]


def edit(text: str, change: Callable[[dict[str, Any]], None]) -> str:
    document = json.loads(text)
    change(document)
    return json.dumps(document)


def first(table: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda document: next(iter(document[table].values()))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(schema=2), "has schema 2"),
        (lambda d: d.update(schema="1"), "schema"),
        (lambda d: d.pop("wheels"), "wheels"),
        (lambda d: d.update(more=1), "more"),
        (lambda d: d["wheels"].clear(), "not in its table"),
        (lambda d: d["debs"].clear(), "not in its table"),
        (lambda d: d["rootfs"].clear(), "not in its table"),
        (lambda d: first("wheels")(d).update(sha256="short"), "sha256"),
        (lambda d: first("wheels")(d).update(size="10"), "size"),
        (lambda d: first("wheels")(d).update(size=-1), "size"),
        (lambda d: first("wheels")(d).update(file="../../etc/x.whl"), "file"),
        (lambda d: first("debs")(d).update(file="pool/../../x.deb"), "file"),
        (lambda d: first("debs")(d).update(file="/etc/x.deb"), "file"),
        (lambda d: first("debs")(d).update(archive="elsewhere"), "archive"),
        (lambda d: first("cells")(d).update(inputs="sha256:0"), "inputs"),
    ],
)
def test_a_damaged_lock(path: Path, change: Callable[[dict[str, Any]], None], words: str) -> None:
    merge(path, lock_matrix(path, lock_cell("a")), {"a": lock_pinned(lock_cell("a"))})
    path.write_text(edit(path.read_text(), change))
    with pytest.raises(UsageError, match=words) as caught:
        read_lock(path)
    assert str(path) in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "Expecting value"),
        (b"[]", "top level"),
        (b"{\n<<<<<<< HEAD\n}", "conflict markers"),
        (b"\xff\xfe", "not a lock file"),
    ],
)
def test_no_lock_at_all(path: Path, content: bytes, words: str) -> None:
    path.write_bytes(content)
    with pytest.raises(UsageError, match=words):
        read_lock(path)


def test_no_file(path: Path) -> None:
    assert read_lock(path) == {}


def test_a_change_is_one_line_of_diff() -> None:
    cell = lock_cell("a")
    before = render("m", merge_in_memory(cell)).splitlines()
    lockfile = merge_in_memory(cell)
    entry = lockfile["a"]
    moved = dataclasses.replace(
        entry, wheels=(dataclasses.replace(entry.wheels[0], uploaded=5), *entry.wheels[1:])
    )
    after = render("m", {"a": moved}).splitlines()
    assert len(before) == len(after)
    assert sum(one != two for one, two in zip(before, after, strict=True)) == 1


def test_a_lock_that_cannot_be_read_is_not_called_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builder.plan.lock.file.read_file", refused)
    with pytest.raises(UsageError, match="cannot read the lock x") as caught:
        read_lock(Path("x.lock.json"))
    assert caught.value.message == "cannot read the lock x.lock.json: Permission denied"
    assert caught.value.hint is None


def test_imports_make_a_lock_stale_and_none_keeps_the_old_one() -> None:
    """What code imports is proven of a set when it is resolved."""
    cell = lock_cell("a")
    wanted = dataclasses.replace(cell, imports=("moviepy.editor",))
    assert "imports" not in cell.inputs()
    assert status(wanted, merge_in_memory(cell)) is LockStatus.STALE
    assert status(wanted, merge_in_memory(wanted)) is LockStatus.FRESH


def test_compilers_make_another_lock_and_none_keeps_the_old_one() -> None:
    cell = lock_cell("a", apt=("git",))
    wanted = dataclasses.replace(cell, compilers=True)
    assert "compilers" not in cell.inputs()
    assert status(wanted, merge_in_memory(cell)) is LockStatus.STALE
    lockfile = merge_in_memory(wanted)
    assert status(wanted, lockfile) is LockStatus.FRESH
    assert lockfile["a"].apt == ("g++", "gcc", "git", "libpython3.9-dev")
    assert "Debian packages" in state(cell, lockfile)
    old = pinned_cell(cell, lockfile, stale=True)
    assert old is not None
    assert old.apt == lockfile["a"].apt
