"""The store under bad luck: files cut short, full disks, processes that die, and several at once."""

from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from builder.core.errors import CellError, MissingToolError
from builder.core.files import locked, locked_folder
from builder.image.layers import store as store_room
from builder.image.layers.store import Layer, LayerStore


def layer(content: bytes) -> Layer:
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    return Layer(
        title="t", digest=digest, diff_id=digest, size=len(content), unpacked=len(content), media_type="m"
    )


def put(store: LayerStore, key: str, content: bytes = b"content") -> Layer:
    lease = store.lease()
    try:
        return lease.obtain(key, lambda path: write(path, content))
    finally:
        lease.close()


def write(path: Path, content: bytes) -> Layer:
    path.write_bytes(content)
    return replace(layer(content), details={"a": 1}, files=b"listing")


def names(store: LayerStore, folder: str) -> list[str]:
    return sorted(path.name for path in (store.root / folder).iterdir())


def age(store: LayerStore, key: str, seconds: int) -> None:
    moment = time.time() - seconds
    os.utime(store.root / "index" / f"{key}.json", (moment, moment))


def test_a_layer_is_made_once(store: LayerStore) -> None:
    first = put(store, "k")
    assert first.new
    again = put(store, "k", b"not asked for")
    assert not again.new
    assert again == first
    assert again.details == {"a": 1}
    assert store.files("k") == b"listing"
    assert sum(size for _, size in store._blobs()) == 7
    assert names(store, "tmp") == []


def test_another_process_finds_it(store: LayerStore) -> None:
    put(store, "k")
    assert not put(LayerStore(store.root), "k").new


@pytest.mark.parametrize("damage", [b"", b"conten", b"CONTENT", b"content and more"])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_blob_that_was_tampered_with_is_made_again(
    store: LayerStore, damage: bytes, *, fresh: bool
) -> None:
    record = put(store, "k")
    blob = store.blob(record.digest)
    times = (blob.stat().st_atime_ns, blob.stat().st_mtime_ns)
    blob.write_bytes(damage)
    os.utime(blob, ns=times)
    assert put(LayerStore(store.root) if fresh else store, "k").new
    assert blob.read_bytes() == b"content"


def test_a_sound_blob_is_hashed_once_and_not_by_every_process(
    store: LayerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = put(store, "k")
    (store.root / "hashed" / record.digest.removeprefix("sha256:")).unlink()
    assert not put(LayerStore(store.root), "k").new
    monkeypatch.setattr("builder.image.layers.store.file_sha256", lambda _path: pytest.fail("hashed again"))
    assert not put(LayerStore(store.root), "k").new


def test_a_store_that_was_copied_is_checked_and_used(store: LayerStore) -> None:
    record = put(store, "k")
    blob = store.blob(record.digest)
    other = blob.with_name("copy")
    other.write_bytes(blob.read_bytes())
    other.replace(blob)
    assert not put(LayerStore(store.root), "k").new


@pytest.mark.parametrize("entry", [b"", b"{", b"[]", b'{"layer": {"digest": "x"}, "details": {}}', b"\xff"])
def test_an_index_that_cannot_be_read_is_forgotten(store: LayerStore, entry: bytes) -> None:
    put(store, "k")
    (store.root / "index" / "k.json").write_bytes(entry)
    assert put(store, "k").new


def test_a_full_disk_leaves_nothing_behind(store: LayerStore) -> None:
    def make(path: Path) -> Layer:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    lease = store.lease()
    with pytest.raises(MissingToolError, match="no room left on the disk") as caught:
        lease.obtain("k", make)
    lease.close()
    assert "RTBUILD_CACHE" in str(caught.value.hint)
    assert names(store, "tmp") == []
    assert sum(size for _, size in store._blobs()) == 0
    assert put(store, "k").new


def test_a_store_that_may_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises((MissingToolError, NotADirectoryError)):
        LayerStore(tmp_path / "file" / "store").lease()


def test_it_works_under_a_strict_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        store = LayerStore(tmp_path / "store")
        put(store, "k")
        assert not put(store, "k").new
    finally:
        os.umask(before)


def test_pruning_takes_what_was_used_longest_ago(store: LayerStore) -> None:
    for number in range(4):
        put(store, f"k{number}", bytes([number]) * 100)
        age(store, f"k{number}", 1000 - number)
    put(store, "k0", bytes([0]) * 100)  # used now
    assert store.prune(250) == 200
    assert sorted(path.stem for path in (store.root / "index").glob("*.json")) == ["k0", "k3"]
    assert sorted(path.stem for path in (store.root / "index").glob("*.files")) == ["k0", "k3"]
    assert len(names(store, "hashed")) == 2


def test_pruning_spares_what_is_in_use(store: LayerStore) -> None:
    lease = store.lease()
    record = lease.obtain("k", lambda path: write(path, b"content"))
    assert LayerStore(store.root).prune(0) == 0
    assert store.blob(record.digest).exists()
    lease.close()
    assert LayerStore(store.root).prune(0) == 7


def test_the_lease_of_a_dead_process_keeps_nothing(store: LayerStore) -> None:
    record = put(store, "k")
    (store.root / "leases" / "1-dead").write_text(record.digest + "\n")
    assert store.prune(0) == 7
    assert names(store, "leases") == []


def test_the_limit_holds_by_itself(tmp_path: Path) -> None:
    store = LayerStore(tmp_path / "store", limit=150)
    for number in range(3):
        put(store, f"k{number}", bytes([number]) * 100)
        age(store, f"k{number}", 10 - number)
    put(store, "k3", b"x")
    assert sum(size for _, size in store._blobs()) <= 150


@pytest.mark.parametrize("by", ["sweep", "prune"])
def test_what_a_dead_process_began_is_swept_by_the_next(store: LayerStore, by: str) -> None:
    """At once: it used to wait for a day, and for a prune."""
    put(store, "k")
    living = store.lease()
    mine = living.beside()
    for path in (mine, mine.with_suffix(".fetched"), mine.with_name(f".{mine.name}.fetched.lock")):
        path.write_text("half")
    kept = set(names(store, "tmp"))
    for name in ("0123abcd", "0123abcd.fetched.part", ".0123abcd.fetched.lock"):
        (store.folder("tmp") / name).write_text("half")
    (store.folder("tmp") / "bases-1" / "usr").mkdir(parents=True)
    (store.folder("leases") / "999999999-x").write_text("0123abcd\n")  # nobody holds its lock
    for folder in ("index", "hashed"):
        (store.folder(folder) / ".other.new").write_text("half")
    with locked_folder(store.folder("tmp"), "bases-") as laid_out:
        LayerStore(store.root).sweep() if by == "sweep" else store.prune(1000)
        assert set(names(store, "tmp")) == kept | {laid_out.name}
        assert ".other.new" not in names(store, "index") + names(store, "hashed")
    living.close()
    LayerStore(store.root).sweep()
    assert (names(store, "tmp"), names(store, "leases")) == ([], [])


def test_verify_names_and_removes_what_is_wrong(store: LayerStore) -> None:
    good = put(store, "good", b"good")
    bad = put(store, "bad", b"bad")
    store.blob(bad.digest).write_bytes(b"BAD")
    assert store.verify() == [bad.digest]
    assert store.blob(good.digest).exists()
    assert not store.blob(bad.digest).exists()
    assert store.verify() == []


@pytest.mark.parametrize("where", ["blob", "index"])
def test_a_folder_in_the_place_of_a_file_is_removed_and_made_again(store: LayerStore, where: str) -> None:
    record = put(store, "key")
    path = store.blob(record.digest) if where == "blob" else store.folder("index") / "key.json"
    path.unlink()
    (path / "inside").mkdir(parents=True)
    with store.lease() as lease:
        assert lease.find("key") is None
    assert put(store, "key").new
    with store.lease() as lease:
        assert lease.find("key") is not None


def test_verify_and_prune_remove_a_folder_among_the_blobs(store: LayerStore) -> None:
    for remove in (store.verify, lambda: store.prune(0)):
        record = put(store, "key")
        store.blob(record.digest).unlink()
        (store.blob(record.digest) / "inside").mkdir(parents=True)
        remove()
        assert not store.blob(record.digest).exists()


def test_a_blob_that_cannot_be_read_does_not_keep_verify_from_the_others(
    store: LayerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [put(store, key, key.encode()) for key in ("one", "two", "three")]
    store.blob(records[2].digest).write_bytes(b"BAD")
    real = store_room.file_sha256

    def fails(path: Path) -> str:
        if path == store.blob(records[0].digest):
            raise OSError(errno.EIO, "Input/output error")
        return real(path)

    monkeypatch.setattr(store_room, "file_sha256", fails)
    with pytest.raises(CellError, match=r"1 blobs were not looked at: .*Input/output error; 1 damaged"):
        store.verify()
    assert [store.blob(one.digest).exists() for one in records] == [True, True, False]


def test_threads_that_want_one_layer_make_it_once(store: LayerStore) -> None:
    made: list[int] = []

    def make(path: Path) -> Layer:
        made.append(1)
        time.sleep(0.05)
        return write(path, b"content")

    def want() -> None:
        lease = store.lease()
        lease.obtain("k", make)
        lease.close()

    threads = [threading.Thread(target=want) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]


def _stress(root: str, seed: int) -> None:
    store = LayerStore(Path(root), limit=600)
    for step in range(30):
        number = (seed * 7 + step * 3) % 10
        content = bytes([number]) * 100
        lease = store.lease()
        record = lease.obtain(f"k{number}", lambda path, content=content: write(path, content))
        if store.blob(record.digest).read_bytes() != content:
            os._exit(3)
        lease.close()


def test_processes_that_make_use_and_prune_at_once(store: LayerStore) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_stress, args=(str(store.root), seed)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(300)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert sum(size for _, size in store._blobs()) <= 600
    assert LayerStore(store.root).verify() == []
    assert names(store, "leases") == []


def test_a_lock_is_free_when_its_holder_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    child = os.fork()
    if child == 0:
        with locked(path):
            os._exit(0)
    os.waitpid(child, 0)
    with locked(path) as held:
        assert held >= 0


def test_the_index_is_json_that_a_person_can_read(store: LayerStore) -> None:
    put(store, "k")
    document = json.loads((store.root / "index" / "k.json").read_text())
    assert document["layer"]["size"] == 7
