"""Wheels → OCI layout: what is in it, what is shared, and what is refused."""

from __future__ import annotations

import hashlib
import io
import json
import os
import queue
import tarfile
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import zstandard
from doubles.registry import RegistryDouble, serve, sha256
from layer_wheels import Builder, Content, Made, Stacked, paths, pinned, stack, tricky

from builder.core.errors import CancelledError, CellError, MissingToolError
from builder.core.model import Pinned, RegistryBase
from builder.image.compose.cell_layers import LayerBuild, SystemLayers, plan
from builder.image.compose.compose import final_config
from builder.image.layers import tar as codec_module
from builder.image.layers.store import LayerStore
from builder.image.recipe.values import Recipe
from builder.plan.lock.file import OWN_LAYER
from builder.sources.net.http import Client
from builder.sources.oci.registry import Registry
from builder.sources.oci.spec import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from builder.image.layers.store import Layer


@pytest.fixture
def build(store: LayerStore, rootfs: Path) -> Callable[..., Stacked]:
    def run(made: list[Made], *, into: LayerStore | None = None, **settings: Any) -> Stacked:
        lock = pinned(made, **settings)
        with stack(lock, store=into or store, wheel_paths=paths(made), rootfs_tar=rootfs) as context:
            return context

    return run


def test_every_digest_is_right(builder: Builder, build: Callable[..., Stacked]) -> None:
    context = build(
        [builder.wheel("large", {"large.py": b""}, pad=OWN_LAYER), builder.pip(), *tricky(builder)]
    )
    for layer in context.layers:
        content = context.blob(layer.digest)
        assert (hashlib.sha256(content).hexdigest(), len(content)) == (layer.digest[7:], layer.size)
        stream = zstandard.ZstdDecompressor().stream_reader(content).read()
        assert (hashlib.sha256(stream).hexdigest(), len(stream)) == (layer.diff_id[7:], layer.unpacked)
    assert context.plan.base.config["config"]["Env"][0].startswith("PATH=")
    assert [layer.title for layer in context.layers] == ["large 1.0", "rootfs bookworm", "4 small wheels"]


def test_entries_are_sorted_and_belong_to_nobody(builder: Builder, build: Callable[..., Stacked]) -> None:
    context = build([builder.pip(), *tricky(builder)])
    stream = zstandard.ZstdDecompressor().stream_reader(context.blob(context.layers[-1].digest)).read()
    with tarfile.open(fileobj=io.BytesIO(stream)) as archive:
        entries = archive.getmembers()
    found = [entry.name for entry in entries]
    assert found == sorted(found)
    assert len(found) == len(set(found))
    assert {(e.uid, e.gid, e.uname, e.gname, e.mtime) for e in entries} == {(0, 0, "", "", 315619200)}
    assert {e.mode for e in entries if e.isdir()} == {0o755}
    assert "opt/runtime/bin/pip3.11" in found


def test_the_same_lock_gives_the_same_digests_anywhere(
    builder: Builder, build: Callable[..., Stacked], tmp_path: Path
) -> None:
    made = [builder.wheel("large", {"large.py": b""}, pad=OWN_LAYER), builder.pip(), *tricky(builder)]
    one = build(made)
    two = build(made, into=LayerStore(tmp_path / "elsewhere"))
    assert one.layers == two.layers
    assert one.made == two.made == 3


def test_nothing_is_made_twice(builder: Builder, build: Callable[..., Stacked]) -> None:
    made = [builder.pip(), *tricky(builder)]
    first, second = build(made), build(made)
    assert (second.made, second.layers) == (0, first.layers)


def test_a_large_wheel_is_one_layer_for_every_python(builder: Builder, build: Callable[..., Stacked]) -> None:
    large = builder.wheel("nvidia-thing", {"nvidia/thing.so": b""}, pad=OWN_LAYER)
    new = build([large, builder.pip("26.0.1")], python="3.11")
    old = build([large, builder.pip("21.3.1")], python="3.6")
    assert new.layers[:2] == old.layers[:2]
    assert new.layers[2] != old.layers[2]


def test_a_large_wheel_with_scripts_follows_the_pip(builder: Builder, build: Callable[..., Stacked]) -> None:
    large = builder.wheel(
        "tool", {"tool.py": b""}, pad=OWN_LAYER, entry_points="[console_scripts]\ntool = tool:main\n"
    )
    new = build([large, builder.pip("26.0.1")], python="3.11")
    old = build([large, builder.pip("21.3.1")], python="3.11")
    assert new.layers[0] != old.layers[0]
    assert new.layers[0] == build([large, builder.pip("26.0.1")], python="3.12").layers[0]


def test_layers_that_more_images_share_are_lower(builder: Builder, build: Callable[..., Stacked]) -> None:
    """An engine unpacks along the chain: another framework or base leaves what is below it."""
    names = ("framework", "nvidia-cublas-cu12", "libclang", "nvidia-cudnn-cu12")
    made = [builder.wheel(name, {f"{name}.py": b""}, pad=OWN_LAYER) for name in sorted(names)]
    context = build([*made, builder.pip(), *tricky(builder)], frameworks=("framework[gpu]==1.0",))
    assert [layer.title.rpartition(" ")[0] for layer in context.layers] == [
        "nvidia-cublas-cu12",
        "nvidia-cudnn-cu12",
        "libclang",
        "framework",
        "rootfs",
        "4 small",
    ]


def test_wheels_own_opt_runtime_and_nothing_else(builder: Builder, build: Callable[..., Stacked]) -> None:
    """So a base above them or below them makes the same tree."""
    large = builder.wheel(
        "large", {"large.py": b""}, pad=OWN_LAYER, entry_points="[console_scripts]\na = b:c\n"
    )
    context = build([large, builder.pip(), *tricky(builder)])
    for layer in (context.layers[0], context.layers[-1]):
        stream = zstandard.ZstdDecompressor().stream_reader(context.blob(layer.digest)).read()
        with tarfile.open(fileobj=io.BytesIO(stream)) as archive:
            for member in archive:
                assert member.name == "opt" or (member.name + "/").startswith("opt/runtime/")
                if member.name == "opt":
                    assert (member.isdir(), member.mode) == (True, 0o755)


@pytest.mark.parametrize(
    ("name", "kind", "mode", "said"),
    [
        ("./opt", tarfile.SYMTYPE, 0o777, r"/opt \(symlink"),
        ("./opt", tarfile.DIRTYPE, 0o700, r"/opt \(folder, mode 700\)"),
        ("./opt/runtime", tarfile.DIRTYPE, 0o755, "/opt/runtime"),
        ("./opt/runtime/bin/python", tarfile.REGTYPE, 0o755, "/opt/runtime/bin/python"),
    ],
)
def test_a_base_that_would_hide_the_wheels(
    builder: Builder, store: LayerStore, tmp_path: Path, name: str, kind: bytes, mode: int, said: str
) -> None:
    path = tmp_path / "hiding.tar"
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.linkname = kind, mode, "/srv" if kind == tarfile.SYMTYPE else ""
        tar.addfile(info)
    made = [builder.pip()]
    with pytest.raises(CellError, match=said):
        stack(pinned(made), store=store, wheel_paths=paths(made), rootfs_tar=path)


def test_a_base_may_have_more_below_opt(builder: Builder, store: LayerStore, tmp_path: Path) -> None:
    path = tmp_path / "more.tar"
    with tarfile.open(path, "w") as tar:
        for name in ("./opt", "./opt/other"):
            info = tarfile.TarInfo(name)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
    made = [builder.pip()]
    with stack(pinned(made), store=store, wheel_paths=paths(made), rootfs_tar=path) as stacked:
        assert stacked.made == 2


def test_compression_changes_the_blobs_and_not_what_is_in_them(
    builder: Builder, build: Callable[..., Stacked]
) -> None:
    made = [builder.pip(), *tricky(builder)]
    zstd, gzip = build(made), build(made, compression="gzip")
    assert [layer.diff_id for layer in zstd.layers] == [layer.diff_id for layer in gzip.layers]
    assert {layer.media_type.rpartition("+")[2] for layer in gzip.layers} == {"gzip"}


def test_without_isal_the_content_is_the_same(
    builder: Builder, build: Callable[..., Stacked], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = [builder.pip(), *tricky(builder)]
    with_isal = build(made)
    monkeypatch.setattr(codec_module, "isal_zlib", None)
    assert codec_module.codec("gzip").startswith("zlib-")
    assert build(made, into=LayerStore(tmp_path / "zlib")).layers == with_isal.layers
    gzip = build(made, compression="gzip")
    assert [layer.diff_id for layer in gzip.layers] == [layer.diff_id for layer in with_isal.layers]


@pytest.mark.parametrize("large", [False, True])
def test_two_wheels_that_fight_over_a_path(
    builder: Builder, build: Callable[..., Stacked], *, large: bool
) -> None:
    pad = OWN_LAYER if large else 0
    one = builder.wheel("one", {"cv2/__init__.py": b"one", "cv2/util.py": b"1"}, pad=pad)
    two = builder.wheel("two", {"cv2/__init__.py": b"two", "cv2/util.py": b"2"})
    with pytest.raises(CellError) as caught:
        build([one, two, builder.pip()])
    assert str(caught.value).startswith(
        "one and two both own /opt/runtime/lib/python/site-packages/cv2/__init__.py and 1 more, "
        "with different content"
    )


@pytest.mark.parametrize("path", ["one.py", "LICENSE", "tests/__init__.py", "one-1.data/data/etc/one.cfg"])
def test_of_a_file_that_is_used_by_itself_pip_s_choice_stands(
    builder: Builder, store: LayerStore, rootfs: Path, path: str
) -> None:
    """jupyter 1.0 and jupyter-core both bring ``jupyter.py``."""
    one = builder.wheel("one", {path.replace("one-1", "one-1.0"): b"1"})
    two = builder.wheel("two", {path.replace("one-1", "two-1.0"): b"2"}, pad=OWN_LAYER)
    three = builder.wheel("a.three", {"three.py": b""})
    made, said = [one, two, three, builder.pip()], list[str]()
    with stack(
        pinned(made), store=store, wheel_paths=paths(made), rootfs_tar=rootfs, warn=said.append
    ) as stacked:
        assert stacked.made == 3
    (line,) = said
    assert line.startswith("one and two both own /opt/runtime/")
    assert line.endswith(", with different content: that of one stays, as with pip")


@pytest.mark.parametrize("path", ["one.so", "lib/libone.so.1", "one.pth", "one/part.py"])
def test_a_library_or_a_part_of_a_package_has_one_owner(
    builder: Builder, build: Callable[..., Stacked], path: str
) -> None:
    one, two = builder.wheel("one", {path: b"1"}), builder.wheel("two", {path: b"2"})
    with pytest.raises(CellError, match=f"one and two both own .*{path}, with different content"):
        build([one, two, builder.pip()])


def test_a_small_wheel_that_pip_would_overwrite_with_a_large_one_s_file(
    builder: Builder, build: Callable[..., Stacked]
) -> None:
    """All small wheels are the topmost layer: the image would not be what pip leaves."""
    one, two = builder.wheel("one", {"x.py": b"1"}, pad=OWN_LAYER), builder.wheel("two", {"x.py": b"2"})
    with pytest.raises(CellError, match=r"one and two both own .*x\.py, with different content"):
        build([one, two, builder.pip()])


@pytest.mark.parametrize(("first", "second"), [(0, 0), (OWN_LAYER, OWN_LAYER), (0, OWN_LAYER)])
def test_of_a_list_the_file_wins_that_pip_installs_last(
    builder: Builder, build: Callable[..., Stacked], first: int, second: int
) -> None:
    """By name, Z before A."""
    one = builder.wheel("one", {"cv2/__init__.py": b"one", "cv2/one.py": b""}, pad=first)
    two = builder.wheel("two", {"cv2/__init__.py": b"two", "cv2/two.py": b""}, pad=second)
    context = build([one, two, builder.pip()], dependencies="listed")
    left: dict[str, bytes] = {}
    for layer in context.layers:
        stream = zstandard.ZstdDecompressor().stream_reader(context.blob(layer.digest))
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                if member.isfile() and "/cv2/" in member.name:
                    content = archive.extractfile(member)
                    assert content is not None
                    left[member.name.rpartition("/")[2]] = content.read()
    assert left == {"__init__.py": b"one", "one.py": b"", "two.py": b""}


def test_a_list_whose_layers_cannot_leave_what_pip_does(
    builder: Builder, build: Callable[..., Stacked]
) -> None:
    """All small wheels are the topmost layer, so a large one cannot win over one of them."""
    one = builder.wheel("one", {"cv2/__init__.py": b"one"}, pad=OWN_LAYER)
    two = builder.wheel("two", {"cv2/__init__.py": b"two"})
    with pytest.raises(CellError, match=r"one and two both own .*cv2/__init__.py, with different content"):
        build([one, two, builder.pip()], dependencies="listed")


def test_a_list_is_no_excuse_for_a_file_that_is_a_folder(
    builder: Builder, build: Callable[..., Stacked]
) -> None:
    one = builder.wheel("one", {"thing": b"file"})
    two = builder.wheel("two", {"thing/deep/x.py": b""})
    with pytest.raises(CellError, match="one and two both own"):
        build([one, two, builder.pip()], dependencies="listed")


@pytest.mark.parametrize("large", [False, True])
def test_two_wheels_that_share_a_file(
    builder: Builder, build: Callable[..., Stacked], *, large: bool
) -> None:
    pad = OWN_LAYER if large else 0
    one = builder.wheel("one", {"nvidia/__init__.py": b"same"}, pad=pad, unrecorded=["nvidia/__init__.py"])
    two = builder.wheel("two", {"nvidia/__init__.py": b"same"})
    assert build([one, two, builder.pip()]).made >= 2


@pytest.mark.parametrize("large", [False, True])
def test_a_file_of_one_that_is_a_folder_of_another(
    builder: Builder, build: Callable[..., Stacked], *, large: bool
) -> None:
    one = builder.wheel("one", {"thing": b"file"}, pad=OWN_LAYER if large else 0)
    two = builder.wheel("two", {"thing/deep/x.py": b""})
    with pytest.raises(CellError, match=r"one and two both own /opt/runtime/lib/python/site-packages/thing"):
        build([one, two, builder.pip()])


def test_a_reused_layer_is_still_held_against_the_cell(
    builder: Builder, build: Callable[..., Stacked]
) -> None:
    large = builder.wheel("modern", {"m.py": b""}, pad=OWN_LAYER, requires_python=">=3.10")
    build([large, builder.pip()], python="3.11")
    with pytest.raises(CellError, match=r"modern asks for Python >=3\.10, the cell has 3\.9"):
        build([large, builder.pip()], python="3.9")


def test_a_damaged_wheel_leaves_nothing_in_the_store(
    builder: Builder, build: Callable[..., Stacked], store: LayerStore
) -> None:
    bad = builder.wheel("bad", {"bad.py": Content(data=b"evil", recorded="sha256=" + "A" * 43)})
    with pytest.raises(CellError, match=r"bad\.py is not what its RECORD says"):
        build([bad, builder.pip()])
    assert not list((store.root / "tmp").iterdir())
    assert not list((store.root / "leases").iterdir())
    assert not any("bad" in path.read_text() for path in (store.root / "index").glob("*.json"))


def test_a_disk_that_fills_up_in_the_middle(
    builder: Builder, build: Callable[..., Stacked], store: LayerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = builder.wheel("large", {"large.py": b""}, pad=OWN_LAYER)
    real = Path.open

    def full(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        return open("/dev/full", mode) if self.parent.name == "tmp" else real(self, mode, *args, **kwargs)  # noqa: PTH123

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", full)
        with pytest.raises(MissingToolError, match="no room left"):
            build([large, builder.pip()])
    assert sum(size for _, size in store._blobs()) == 0
    assert build([large, builder.pip()]).made == 3


def test_progress_counts_every_byte(builder: Builder, store: LayerStore, rootfs: Path) -> None:
    made = [builder.pip(), *tricky(builder)]
    seen: dict[str, list[tuple[int, int]]] = {}
    with stack(
        pinned(made),
        store=store,
        wheel_paths=paths(made),
        rootfs_tar=rootfs,
        progress=lambda title, done, total: seen.setdefault(title, []).append((done, total)),
    ):
        pass
    assert set(seen) == {"rootfs bookworm", "4 small wheels"}
    for steps in seen.values():
        assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert seen["rootfs bookworm"][-1] == (rootfs.stat().st_size,) * 2


def test_a_call_that_is_cancelled_ends_and_leaves_nothing(
    builder: Builder, store: LayerStore, rootfs: Path
) -> None:
    made = [builder.wheel("large", {"large.py": b""}, pad=OWN_LAYER), builder.pip()]
    cancel = threading.Event()

    def stop(title: str, _done: int, _total: int) -> None:
        if title.startswith("large"):
            cancel.set()

    with pytest.raises(CancelledError):
        stack(
            pinned(made),
            store=store,
            wheel_paths=paths(made),
            rootfs_tar=rootfs,
            progress=stop,
            cancel=cancel,
        )
    assert not list(store.root.glob("tmp/*"))
    assert not list(store.root.glob("leases/*"))
    assert not any("large" in path.read_text() for path in store.root.glob("index/*.json"))


def test_the_first_failure_ends_the_other_conversions(
    builder: Builder, store: LayerStore, rootfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = builder.wheel("bad", {"bad.py": Content(data=b"evil", recorded="sha256=" + "A" * 43)})
    large = builder.wheel("large", {"large.py": b""}, pad=OWN_LAYER)
    began: list[LayerBuild] = []
    begin = LayerBuild.__enter__
    monkeypatch.setattr(LayerBuild, "__enter__", lambda self: began.append(self) or begin(self))

    def slow(title: str, _done: int, _total: int) -> None:
        if title.startswith("large"):
            assert began[0]._failed.wait(60)

    with pytest.raises(CellError, match=r"bad\.py is not what its RECORD says"):
        stack(
            pinned([large, bad, builder.pip()]),
            store=store,
            wheel_paths=paths(builder.made),
            rootfs_tar=rootfs,
            progress=slow,
        )
    assert not any("large" in path.read_text() for path in store.root.glob("index/*.json"))


def test_blobs_of_a_build_under_way_are_not_pruned(builder: Builder, store: LayerStore, rootfs: Path) -> None:
    made = [builder.pip()]
    with stack(pinned(made), store=store, wheel_paths=paths(made), rootfs_tar=rootfs) as context:
        assert LayerStore(store.root).prune(0) == 0
        assert all(store.blob(layer.digest).exists() for layer in context.layers)
    assert LayerStore(store.root).prune(0) > 0
    assert not any(store.blob(layer.digest).exists() for layer in context.layers)


def test_a_pruned_layer_comes_back(
    builder: Builder, build: Callable[..., Stacked], store: LayerStore
) -> None:
    made = [builder.pip()]
    first = build(made)
    store.prune(0)
    assert build(made).layers == first.layers


def test_every_image_needs_a_pip(builder: Builder, store: LayerStore, rootfs: Path) -> None:
    made = [builder.wheel("x", {"x.py": b""})]
    with pytest.raises(CellError, match="the lock holds no pip"):
        stack(pinned(made), store=store, wheel_paths=paths(made), rootfs_tar=rootfs)
    assert not list(store.root.glob("leases/*"))


def test_a_layer_is_ready_before_the_next_wheel_has_arrived(
    builder: Builder, store: LayerStore, rootfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builder.plan.lock.file.OWN_LAYER", 1)
    one, pip = builder.wheel("one", {"one.py": b"1"}), builder.pip()
    ready: queue.Queue[str] = queue.Queue()
    lease = store.lease()
    given = plan(pinned([one, pip]), lease)

    def tell(_place: int, layers: Sequence[Layer]) -> None:
        for layer in layers:
            ready.put(layer.title)

    with LayerBuild(given=given, rootfs=lambda _base: rootfs, ready=tell) as missing:
        missing.wheel(one.wheel, one.path)
        assert {ready.get(timeout=60), ready.get(timeout=60)} == {"one 1.0", "rootfs bookworm"}
        missing.wheel(pip.wheel, pip.path)
        made = missing.finish()
    lease.close()
    assert [made.known[group].title for group in made.groups] == ["one 1.0", "pip 26.0.1"]
    assert [layer.title for layer in made.base.layers] == ["rootfs bookworm"]


def test_each_layer_is_a_span_of_the_thread_that_makes_it(
    builder: Builder, store: LayerStore, rootfs: Path
) -> None:
    spans: list[tuple[str, str]] = []

    def span(name: str) -> AbstractContextManager[None]:
        spans.append((threading.current_thread().name, name))
        return nullcontext()

    made = [builder.pip(), builder.wheel("one", {"one.py": b"1"}, pad=OWN_LAYER)]
    with stack(pinned(made), store=store, wheel_paths=paths(made), rootfs_tar=rootfs, span=span):
        pass
    here = threading.current_thread().name
    assert {name: track.partition("_")[0] for track, name in spans} == {
        "wait for layers": here,
        "rootfs bookworm": "base",
        "layer of rootfs bookworm": "base",
        "layer of one 1.0": "layers",
        "layer of pip 26.0.1": "layers",
    }


@pytest.mark.parametrize("fed", [True, False])
def test_the_lowest_layer_is_made_first_for_an_engine_and_otherwise_the_costliest(
    builder: Builder, store: LayerStore, rootfs: Path, monkeypatch: pytest.MonkeyPatch, fed: bool
) -> None:
    monkeypatch.setattr("builder.plan.lock.file.OWN_LAYER", 1)
    low, high = (
        builder.wheel("low", {"low.py": b"1"}),
        builder.wheel("much", {"much.py": os.urandom(9999)}),
    )
    first, pip = builder.wheel("first", {"first.py": b"1"}), builder.pip()
    order: list[str] = []
    go, begun, both = threading.Event(), threading.Event(), threading.Event()

    places: list[int] = []

    def ready(place: int, layers: Sequence[Layer]) -> None:
        places.append(place)
        for layer in layers:
            if layer.title.startswith(("low", "much")):
                order.append(layer.title)
            if len(order) == 2:
                both.set()
            if layer.title == "first 1.0":
                begun.set()
                go.wait(60)

    def base(_base: object) -> Path:
        both.wait(60)  # its thread would be a second worker
        return rootfs

    given = plan(pinned([first, low, high, pip]), store.lease())
    with LayerBuild(given=given, rootfs=base, ready=ready, lowest_first=fed, workers=1) as missing:
        missing.wheel(first.wheel, first.path)
        assert begun.wait(60)
        for one in (pip, high, low):
            missing.wheel(one.wheel, one.path)
        go.set()
        missing.finish()
    given.lease.close()
    assert order == (["low 1.0", "much 1.0"] if fed else ["much 1.0", "low 1.0"])
    assert sorted(places) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("fault", ["wheel", "rootfs"])
def test_a_failure_is_raised_at_the_next_arrival(
    builder: Builder, store: LayerStore, rootfs: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr("builder.plan.lock.file.OWN_LAYER", 1)
    one, pip = builder.wheel("one", {"one.py": b"1"}), builder.pip()

    def base(_base: object) -> Path:
        if fault == "rootfs":
            raise MissingToolError("no mmdebstrap here")
        return rootfs

    if fault == "wheel":
        one.path.write_bytes(one.path.read_bytes()[:-40])
    lease = store.lease()
    given = plan(pinned([one, pip]), lease)

    def arrivals() -> None:  # as many as a long download has pieces
        with LayerBuild(given=given, rootfs=base) as missing:
            for _ in range(6000):
                missing.wheel(one.wheel, one.path)
                time.sleep(0.01)

    with pytest.raises(MissingToolError if fault == "rootfs" else CellError):
        arrivals()
    lease.close()


@dataclass(frozen=True)
class RegistryImage:
    """An image of two layers in a registry that calls itself example.invalid."""

    server: RegistryDouble
    layers: tuple[str, ...]
    """Their digests."""
    digest: str

    @property
    def registry(self) -> Registry:
        """A new one, as each run has."""
        client = Client(retries=0, read_timeout=5)
        return Registry({"example.invalid": self.server.host}, client=client, login=lambda _host: None)

    def pinned(self, made: list[Made]) -> Pinned:
        lock = pinned(made)
        base = RegistryBase(reference="example.invalid/cuda:1", digest=self.digest, env=(), labels=(), size=1)
        return Pinned(cell=lock.cell, base=base, wheels=lock.wheels, epoch=0)


@pytest.fixture
def pushed() -> Iterator[RegistryImage]:
    config = {
        "architecture": "amd64",
        "os": "linux",
        "container": "dropped",
        "config": {"Env": ["PATH=/bin", "CUDA_VERSION=11.8.0"], "Labels": {"a": "b"}},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + "1" * 64, "sha256:" + "2" * 64]},
        "history": [{"created_by": "one"}, {"created_by": "env", "empty_layer": True}, {"created_by": "two"}],
    }
    blobs = {sha256(one): one for one in (b"layer one", b"layer two", json.dumps(config).encode())}
    *layers, config_digest = blobs
    media_type = "application/vnd.docker.image.rootfs.diff.tar.gzip"
    manifest = {
        "schemaVersion": 2,
        "config": {"digest": config_digest, "size": len(blobs[config_digest])},
        "layers": [{"mediaType": media_type, "digest": one, "size": len(blobs[one])} for one in layers],
    }
    content = json.dumps(manifest).encode()
    with serve(RegistryDouble(blobs=blobs, manifests={sha256(content): (MANIFEST, content)})) as server:
        yield RegistryImage(server, tuple(layers), sha256(content))


def test_a_registry_base_keeps_its_layers_config_and_history(
    builder: Builder, store: LayerStore, pushed: RegistryImage
) -> None:
    made = [builder.pip()]
    lock = pushed.pinned(made)
    with stack(lock, store=store, wheel_paths=paths(made), registry=pushed.registry) as context:
        recipe = Recipe(cell=lock.cell, pinned=lock, files={}, blobs={}, inputs="")
        config = json.loads(final_config(recipe, context.plan.base, context.layers, SystemLayers(), ()))
        assert [one.digest for one in context.layers[:2]] == list(pushed.layers)
        assert context.blob(pushed.layers[1]) == b"layer two"
    assert context.layers[0].media_type == "application/vnd.oci.image.layer.v1.tar+gzip"
    assert config["config"]["Env"] == ["PATH=/bin", "CUDA_VERSION=11.8.0"]
    assert config["config"]["Labels"] == {"a": "b"}
    assert "container" not in config
    said = [one.get("created_by") for one in config["history"]]
    assert said == ["one", "env", "two", "rtbuild: pip 26.0.1"]


def test_blobs_of_a_registry_base_are_fetched_once(
    builder: Builder, store: LayerStore, pushed: RegistryImage
) -> None:
    made = [builder.pip()]
    for _ in range(2):
        stack(
            pushed.pinned(made), store=store, wheel_paths=paths(made), registry=pushed.registry
        ).lease.close()
    asked = [line.rpartition("/")[2] for line in pushed.server.requests if line.startswith("GET /v2/cuda/")]
    assert sorted(asked) == sorted([pushed.digest, pushed.digest, *pushed.server.blobs])


def test_it_needs_no_hard_links(
    builder: Builder, build: Callable[..., Stacked], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", lambda *_: pytest.fail("hard link"))
    assert build([builder.pip()]).made == 2
