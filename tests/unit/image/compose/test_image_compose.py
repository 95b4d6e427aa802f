"""A whole image without an engine, from a system of one shell: steps run, are kept, and are found again."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import threading
from typing import TYPE_CHECKING, Any

import pytest
import zstandard
from doubles.remote_layers import RemoteLayersDouble
from layer_wheels import Builder, make_missing, pinned

from builder.core import files as memory
from builder.core.errors import CellError, CommandError, MissingToolError, UsageError
from builder.image.compose.cell_layers import plan
from builder.image.compose.compose import ComposedImage, compose_image, go_json
from builder.image.compose.run_steps import BaseCache, ComposeInput, RootfsTree
from builder.image.compose.step_runners import StepRunner
from builder.image.layers.store import LayerStore
from builder.image.recipe.values import Recipe, RecipeFile, RecipeSetting, RecipeStep
from builder.image.sandbox import require
from builder.sources.oci.spec import write_layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from builder.core.model import Pinned
    from builder.image.layers.convert import Packed
    from builder.image.layers.store import Layer

STEPS = (
    RecipeStep(
        name="one",
        script="""\
set -eu
umask 022
mkdir -p /out/one/etc
for file in /opt/runtime/lib/python/site-packages/*.dist-info; do echo "$file" >> /out/one/etc/list; done
touch -d @1700000000 /out/one/etc/list /out/one/etc
""",
        makes=("one",),
        reads="libraries",
    ),
    RecipeStep(
        name="probe",
        script="""\
umask 022
mkdir -p /out/probe
cat /mnt/probe > /out/probe/probe
touch -d @1700000000 /out/probe/probe /out/probe
""",
        makes=("probe",),
        files=(("probe", "/mnt/probe"),),
    ),
)
SETTINGS = (
    RecipeSetting(kind="ENV", name="NAME", value="a <b> & c"),
    RecipeSetting(kind="ENV", name="PATH", value="/opt/runtime/bin:/bin"),
    RecipeSetting(kind="CMD", value=("sh",)),
    RecipeSetting(kind="LABEL", name="io.rtbuild.inputs", value="sha256:0"),
    RecipeSetting(kind="LABEL", name="a.label", value="x"),
)
PROGRAMS = ("sh", "mkdir", "touch", "cat")


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rootfs.tar with this machine's shell and the few programs of the steps."""
    try:
        require()
    except MissingToolError as problem:
        pytest.skip(str(problem))
    root = tmp_path_factory.mktemp("system")
    for name in PROGRAMS:
        program = shutil.which(name)
        assert program is not None
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for source in [program, *(word for word in listed.split() if word.startswith("/"))]:
            target = root / ("bin/" + name if source == program else source[1:])
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    path = root.parent / "rootfs.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(root, "./")
    return path


@dataclasses.dataclass
class Bench:
    store: LayerStore
    system: Path
    builder: Builder
    looked: list[str] = dataclasses.field(default_factory=list)
    workbench: Any = None

    def recipe(self, lock: Pinned, *, probe: bytes = b"1", **changes: Any) -> Recipe:
        values = {"steps": STEPS, "added": ("one", "probe"), "settings": SETTINGS, **changes}
        files = {"probe": RecipeFile(content=probe)}
        return Recipe(cell=lock.cell, pinned=lock, files=files, blobs={}, inputs="sha256:0", **values)

    def compose(self, lock: Pinned | None = None, **changes: Any) -> ComposedImage:
        lock = lock or dataclasses.replace(pinned(self.builder.made), epoch=1_700_000_000)
        lease = self.store.lease(RemoteLayersDouble(self.store, self.looked))
        paths = {one.wheel.sha256: one.path for one in self.builder.made}
        made = make_missing(plan(lock, lease), wheel_paths=paths, rootfs_tar=self.system)
        self.looked.clear()
        with self.workbench or BaseCache() as bench:
            image = compose_image(
                ComposeInput(
                    recipe=self.recipe(lock, **changes),
                    plan=made,
                    cancel=threading.Event(),
                    base_cache=bench,
                    runner=StepRunner(),
                )
            )
        lease.close()
        return image


@pytest.fixture
def bench(store: LayerStore, system: Path, builder: Builder) -> Bench:
    builder.wheel("one", {"one.py": b"1"})
    builder.pip()
    return Bench(store, system, builder)


def members(bench: Bench, layer: Layer) -> dict[str, bytes]:
    content = zstandard.ZstdDecompressor().stream_reader(bench.store.blob(layer.digest).read_bytes()).read()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}  # type: ignore[union-attr]


def steps_made(image: ComposedImage) -> int:
    """How many of the recipe's own layers were made now."""
    return sum(one.new for one in image.own if one.key.startswith("step-"))


def test_documents_and_layers(bench: Bench) -> None:
    image = bench.compose()
    manifest, config = json.loads(image.manifest), json.loads(image.config)
    assert manifest["config"]["digest"] == image.config_digest
    assert [entry["digest"] for entry in manifest["layers"]] == [layer.digest for layer in image.layers]
    assert config["rootfs"]["diff_ids"] == [layer.diff_id for layer in image.layers]
    assert config["config"]["Env"] == ["PATH=/opt/runtime/bin:/bin", "NAME=a <b> & c"]
    assert config["config"]["Labels"] == {"a.label": "x", "io.rtbuild.inputs": "sha256:0"}
    assert config["config"]["Cmd"] == ["sh"]
    said = [entry["created_by"] for entry in config["history"][-5:]]
    assert said[0] == "ENV NAME=a <b> & c"
    assert said[-1] == "LABEL a.label=x"
    assert b"a \\u003cb\\u003e \\u0026 c" in image.config, "as Go writes it"
    assert members(bench, image.layers[-2]) == {
        "etc/list": b"/opt/runtime/lib/python/site-packages/one-1.0.dist-info\n"
        b"/opt/runtime/lib/python/site-packages/pip-26.0.1.dist-info\n"
    }
    assert members(bench, image.layers[-1]) == {"probe": b"1"}
    assert steps_made(image) == 2


def test_again_nothing_is_looked_into(bench: Bench) -> None:
    first = bench.compose()
    assert bench.looked
    again = bench.compose()
    assert (steps_made(again), bench.looked) == (0, [])
    assert again.digest == first.digest


def test_another_probe_does_not_touch_the_wheels(bench: Bench) -> None:
    first = bench.compose()
    other = bench.compose(probe=b"2")
    assert steps_made(other) == 1
    assert bench.looked == ["rootfs bookworm"]
    assert [a == b for a, b in zip(first.layers, other.layers, strict=True)][-2:] == [True, False]
    environment = bench.compose(settings=SETTINGS[1:])
    assert (steps_made(environment), bench.looked) == (0, [])
    assert environment.layers == first.layers
    assert environment.digest != first.digest


def test_cells_of_one_run_unpack_a_base_once(bench: Bench) -> None:
    with BaseCache() as bench_of_all:
        shared = contextlib.nullcontext(bench_of_all)
        together = dataclasses.replace(bench, workbench=shared)
        first = together.compose(probe=b"1")
        assert together.looked == ["rootfs bookworm"], "once for all steps of a cell"
        second = together.compose(probe=b"2")
        assert together.looked == ["rootfs bookworm"], "the other one has wheels on it"
        third = together.compose(probe=b"3")
        assert together.looked == []
    for number, image in enumerate((first, second, third), 1):
        assert members(bench, image.layers[-1]) == {"probe": str(number).encode()}


def test_an_error_of_the_run_is_none_of_a_base_s_place(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves the bench as it is, however full the place of a base may be meanwhile."""
    bench.compose(probe=b"1")

    def run() -> None:
        with BaseCache() as bench_of_all:
            shared = contextlib.nullcontext(bench_of_all)
            dataclasses.replace(bench, workbench=shared).compose(
                probe=b"2"
            )  # sees no wheels: the base is kept
            monkeypatch.setattr(memory, "_NEARLY_FULL", 1 << 60)
            raise CommandError("of a step that ran elsewhere", command=[], returncode=1, tail=[])

    with pytest.raises(CommandError, match="of a step that ran elsewhere"):
        run()


def test_umask_and_root_folder_do_not_show(bench: Bench, tmp_path: Path, monkeypatch: Any) -> None:
    first = bench.compose()
    aside = Bench(LayerStore(tmp_path / "aside"), bench.system, bench.builder)
    old = os.umask(0o077)
    try:
        assert aside.compose().digest == first.digest
    finally:
        os.umask(old)
    assert list((aside.store.root / "tmp").iterdir()) == []


def test_memory_that_is_not_enough_is_no_error(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither where it is seen before, nor where it runs out on the way."""
    first = bench.compose()
    places: list[Path] = []
    write = RootfsTree.write

    def full(scratch: RootfsTree, files: Iterable[Packed], below: str = "") -> None:
        places.append(scratch.root)
        if scratch.root.is_relative_to(memory.SHARED):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(scratch, files, below)

    monkeypatch.setattr(RootfsTree, "write", full)
    if memory.roomy(1 << 30):
        aside = Bench(LayerStore(tmp_path / "one"), bench.system, bench.builder)
        with pytest.raises(MissingToolError, match="no room left"):
            aside.compose()  # with room left in memory the error is another's
        monkeypatch.setattr(memory, "_NEARLY_FULL", 1 << 60)
        aside = Bench(LayerStore(tmp_path / "two"), bench.system, bench.builder)
        assert aside.compose().digest == first.digest
        assert places[-1].is_relative_to(tmp_path)
    monkeypatch.setattr(memory, "available", lambda: 1 << 30)
    places.clear()
    aside = Bench(LayerStore(tmp_path / "three"), bench.system, bench.builder)
    assert aside.compose().digest == first.digest
    assert all(place.is_relative_to(tmp_path) for place in places)


def test_a_step_that_leaves_nothing_is_a_fault(bench: Bench) -> None:
    with pytest.raises(CellError, match="left no /out/probe"):
        bench.compose(steps=(STEPS[0], dataclasses.replace(STEPS[1], script="exit 0\n")))


def test_layouts_share_blobs_and_keep_each_other(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "layout"
    one, two = bench.compose(), bench.compose(probe=b"2")
    threads = [
        threading.Thread(
            target=write_layout,
            args=(folder, tag, f"r/{tag}", image, lambda one: bench.store.blob(one.digest)),
        )
        for tag, image in (("one", one), ("two", two), ("one", one))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    index = json.loads((folder / "index.json").read_bytes())
    assert {entry["digest"] for entry in index["manifests"]} == {one.digest, two.digest}
    assert len(index["manifests"]) == 2
    assert {path.name for path in folder.iterdir()} == {"blobs", "index.json", "oci-layout"}
    for path in (folder / "blobs/sha256").iterdir():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    with pytest.raises(UsageError, match="no OCI layout"):
        write_layout(tmp_path, "one", "r/one", one, lambda one: bench.store.blob(one.digest))


def test_a_layout_that_was_cut_short_is_mended(bench: Bench, tmp_path: Path) -> None:
    image = bench.compose()
    write_layout(tmp_path / "layout", "one", "r/one", image, lambda one: bench.store.blob(one.digest))
    blob = tmp_path / "layout/blobs/sha256" / image.layers[0].digest.partition(":")[2]
    blob.write_bytes(blob.read_bytes()[:1000])
    write_layout(tmp_path / "layout", "one", "r/one", image, lambda one: bench.store.blob(one.digest))
    assert "sha256:" + hashlib.sha256(blob.read_bytes()).hexdigest() == image.layers[0].digest


def test_a_disk_that_fills_up_leaves_no_half_of_a_layer(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_source: Path, target: Path) -> None:
        target.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    image = bench.compose()
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(MissingToolError, match="no room left"):
        write_layout(tmp_path / "layout", "one", "r/one", image, lambda one: bench.store.blob(one.digest))
    assert list((tmp_path / "layout/blobs/sha256").iterdir()) == []


def test_go_writes_json_so() -> None:
    assert go_json({"b": "<ü> &\u2028", "a": [1, {}]}) == (
        '{"b":"\\u003cü\\u003e \\u0026\\u2028","a":[1,{}]}'.encode()
    )


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    return refuse


@pytest.mark.usefixtures("no_links")
def test_hard_links_of_the_base_need_none(bench: Bench, tmp_path: Path) -> None:
    system = tmp_path / "linked.tar"
    shutil.copy(bench.system, system)
    with tarfile.open(system, "a") as archive:
        info = tarfile.TarInfo("./bin/again")
        info.type, info.linkname = tarfile.LNKTYPE, "./bin/sh"
        archive.addfile(info)
    assert steps_made(dataclasses.replace(bench, system=system).compose()) == 2
