"""What the recipe's steps look at, set aside as a layer is made: the same as what is taken from the layer."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import weakref
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import zstandard
from doubles.remote_layers import RemoteLayersDouble
from layer_wheels import Builder, Content, make_missing, pinned

from builder.core.errors import CancelledError, CellError
from builder.image.compose.cell_layers import Plan, plan
from builder.image.compose.run_steps import RootfsTree
from builder.image.layers.convert import Skeleton, excerpt_of
from builder.image.layers.store import LayerStore
from builder.plan.lock.file import OWN_LAYER

if TYPE_CHECKING:
    from builder.image.layers.convert import Pack
    from builder.image.layers.store import Layer

SITE = "opt/runtime/lib/python/site-packages"


@pytest.fixture(scope="module")
def library() -> Path:
    """A large shared library of this machine, and of these the smallest."""
    paths = [path for path in Path("/usr/lib").glob("*-linux-gnu/lib*.so.*") if not path.is_symlink()]
    large = [path for path in paths if path.stat().st_size > 2 << 20]
    if not large:
        pytest.skip("no large shared library here")
    return min(large, key=lambda path: path.stat().st_size)


def converted(store: LayerStore, builder: Builder) -> Plan:
    lock = pinned([*builder.made, builder.pip()])
    paths = {one.wheel.sha256: one.path for one in builder.made}
    lease = store.lease()
    return make_missing(plan(lock, lease), wheel_paths=paths, rootfs_tar=builder.folder / "rootfs.tar")


def layers(made: Plan) -> list[Layer]:
    return [made.known[group] for group in made.groups]


def look(layer: Layer, made: Plan, blobs: list[str] | None = None) -> Pack:
    made.lease.remote = RemoteLayersDouble(made.lease, [] if blobs is None else blobs)
    return excerpt_of(layer, made.lease, threading.Event())


@pytest.fixture
def made(store: LayerStore, builder: Builder, library: Path, rootfs: Path) -> Plan:
    shutil.copy(rootfs, builder.folder / "rootfs.tar")
    builder.wheel(
        "nvidia-thing",
        {
            "nvidia/__init__.py": b"",
            "nvidia/thing/lib/libthing.so.1": library.read_bytes(),
            "nvidia/thing/include/thing.h": b"1",
            "nvidia/elsewhere.so": library.read_bytes(),
        },
        pad=OWN_LAYER,
        method=zipfile.ZIP_STORED,
    )
    builder.wheel("small", {"small.py": Content(data=b"x = 1\n", mode=0o100755), "small.json": b"{}"})
    return converted(store, builder)


def test_it_is_set_aside_as_the_layer_is_made(made: Plan, library: Path) -> None:
    blobs: list[str] = []
    large, small = (look(layer, made, blobs) for layer in layers(made))
    assert blobs == [], "nothing was unpacked for it"
    kept = {file.path.removeprefix(f"{SITE}/") for file in (*large.files, *small.files)}
    assert kept >= {"nvidia/__init__.py", "nvidia/thing/lib/libthing.so.1", "small.py"}
    assert kept >= {"nvidia_thing-1.0.dist-info/RECORD", "small-1.0.dist-info/RECORD"}
    assert not {name for name in kept if name.endswith((".h", ".json", ".pad", "elsewhere.so", "METADATA"))}
    skeleton = next(file for file in large.files if file.path.endswith(".so.1"))
    assert skeleton.size == library.stat().st_size
    assert sum(length for _, length in skeleton.ranges) < skeleton.size / 2
    assert f"{SITE}/nvidia/thing/include" in large.notes["folders"], "folders are there without their files"
    assert large.notes["records"] == {"nvidia_thing-1.0.dist-info": ["nvidia/__init__.py"]}


def test_taken_from_a_layer_it_is_the_same(made: Plan, tmp_path: Path) -> None:
    """As with layers that came from a registry."""
    other = LayerStore(tmp_path / "other")
    remote = RemoteLayersDouble(made.lease)
    for layer in layers(made):
        remote.fetched.clear()
        found = excerpt_of(layer, other.lease(remote), threading.Event())
        assert remote.fetched == [layer.title]
        assert found.path.name == look(layer, made).path.name, "the same bytes"
    cancel = threading.Event()
    cancel.set()
    third = LayerStore(tmp_path / "third")
    with pytest.raises(CancelledError):
        excerpt_of(layer, third.lease(remote), cancel)


@pytest.mark.parametrize("damage", ["cut", "turned", "gone"])
def test_a_damaged_one_is_taken_again(made: Plan, damage: str) -> None:
    layer = layers(made)[-1]
    path = look(layer, made).path
    sound = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(sound[:-5] if damage == "cut" else sound[:-5] + bytes([sound[-5] ^ 1]) + sound[-4:])
    blobs: list[str] = []
    assert look(layer, made, blobs).path.read_bytes() == sound
    assert blobs == [layer.title]


def test_prune_knows_it_and_a_lease_keeps_it(made: Plan) -> None:
    paths = [look(layer, made).path for layer in layers(made)]
    made.lease.prune(0)
    assert all(path.exists() for path in paths)
    made.lease.close()
    made.lease.prune(0)
    assert not any(path.exists() for path in paths)


def test_a_content_that_ends_early_is_an_error(made: Plan) -> None:
    pack = look(layers(made)[-1], made)
    content = pack.path.read_bytes()
    index = content[: 8 + int.from_bytes(content[:8], "big")]
    pack.path.write_bytes(index + zstandard.compress(b""))
    with pytest.raises(CellError, match="cut short"):
        list(pack.contents(lambda _file: True))


@pytest.mark.skipif(shutil.which("ldconfig", path="/sbin:/usr/sbin") is None, reason="has no ldconfig")
def test_ldconfig_sees_no_difference(made: Plan, library: Path, tmp_path: Path) -> None:
    command = shutil.which("ldconfig", path="/sbin:/usr/sbin")
    assert command is not None
    seen = []
    scratch = RootfsTree(tmp_path / "skeleton", threading.Event())
    scratch.write(look(layers(made)[0], made).contents(lambda file: ".so" in file.path))
    folder = f"{SITE}/nvidia/thing/lib"
    whole = tmp_path / "whole"
    (whole / folder).mkdir(parents=True)
    shutil.copyfile(library, whole / folder / "libthing.so.1")
    for root in (whole, scratch.root):
        (root / "etc").mkdir()
        (root / "etc/ld.so.conf").write_text(f"/{folder}\n")
        subprocess.run([command, "-X", "-r", root], check=True, capture_output=True)
        seen.append((root / "etc/ld.so.cache").read_bytes())
    assert library.name.encode().partition(b".so")[0] in seen[0]
    assert seen[0] == seen[1]
    status = (scratch.root / folder / "libthing.so.1").stat()
    assert status.st_blocks * 512 < status.st_size == library.stat().st_size


def test_pieces_of_any_length_give_one_skeleton(library: Path) -> None:
    content = library.read_bytes()
    found = []
    for length in (len(content), 1 << 20, 70_001):
        skeleton = Skeleton(len(content))
        for start in range(0, len(content), length):
            skeleton.feed(content[start : start + length])
        image = bytearray(len(content))
        for offset, data in skeleton.ranges() or []:
            image[offset : offset + len(data)] = data
        found.append(bytes(image))
    assert found[0] == found[1] == found[2]
    assert any(found[0])


def test_a_skeleton_holds_no_piece(library: Path) -> None:
    """A layer has hundreds of libraries, each of up to hundreds of megabytes."""
    sound = library.read_bytes()
    for content in (sound, sound[:20] + bytes(len(sound) - 20), b"no library" * 1000):
        free = sys.getrefcount(content)
        skeleton = Skeleton(len(content))
        skeleton.feed(content)
        assert sys.getrefcount(content) == free
        skeleton.ranges()
        kept = weakref.ref(skeleton)
        del skeleton
        assert kept() is None, "what it kept waits for Python's collector of cycles"


def test_names_far_in_front_take_a_second_reading(
    store: LayerStore, builder: Builder, library: Path, rootfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("layers.convert._HEAD", "layers.wheel._FEED", "layers.tar._BUFFER"):
        monkeypatch.setattr(f"builder.image.{place}", 512)
    shutil.copy(rootfs, builder.folder / "rootfs.tar")
    builder.wheel("nvidia-thing", {"nvidia/thing/lib/libthing.so.1": library.read_bytes()})
    made = converted(store, builder)
    blobs: list[str] = []
    (pack,) = (look(layer, made, blobs) for layer in layers(made))
    assert blobs == ["2 small wheels"], "set aside it was not, because the layer had to be read twice"
    (content,) = pack.contents(lambda file: ".so" in file.path)
    assert content.pieces == [library.read_bytes()]
