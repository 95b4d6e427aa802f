"""An engine receives images: whole, without what it has, cut short, over another of the same name."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import engines
import pytest
import tiny

from builder.core.digests import canonical_json, digest_of, sha256_of
from builder.core.errors import CancelledError, CommandError
from builder.image.engine import build as engine_build
from builder.image.engine.engine import Engine
from builder.image.layers.store import LayerStore
from builder.image.layers.tar import tar_layer
from builder.pipeline import image_build as feeding
from builder.pipeline.image_build import EngineLoad
from builder.sources.oci.spec import plain_image

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from builder.image.engine.images import StoredImage
    from builder.image.layers.store import Layer
    from builder.sources.oci.spec import OciImage

pytestmark = pytest.mark.docker

LARGE = 3_000_000


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine.connect() as found:
        yield found


class Images:
    """Images of a shell and one more file, whose layers lie in a store."""

    def __init__(self, folder: Path, busybox: Path) -> None:
        self.store = LayerStore(folder / "layers")
        self.memory = folder / "received"
        self._busybox = busybox.read_bytes()
        self._shell = self._layer({"bin/busybox": self._busybox, "large": bytes(LARGE)})
        self.sent = 0

    def _layer(self, files: dict[str, bytes]) -> Layer:
        path = self.memory.with_name("layer.tar")
        with tarfile.open(path, "w") as tar:
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(content), 0o755
                tar.addfile(info, io.BytesIO(content))
        key = f"test-{digest_of([sorted(files), [sha256_of(content) for content in files.values()]])[7:]}"
        with self.store.lease() as lease:
            return lease.obtain(
                key, lambda target: tar_layer(path, target, "test", "zstd", lambda _size: None)
            )

    def image(self, word: str) -> OciImage[Layer]:
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Labels": {tiny.LABEL: "1", "io.rtbuild.inputs": f"sha256:{word}"}},
        }
        layers = (self._shell, self._layer({"word": word.encode()}))
        return plain_image(layers, config)

    def give(self, engine: Engine, image: OciImage[Layer], name: str, **options: Any) -> StoredImage:
        self.sent = 0

        def count(size: int) -> None:
            self.sent += size

        def blob(layer: Layer) -> Path:
            return self.store.blob(layer.digest)

        engine.memory = self.memory
        settings = {"cancel": threading.Event(), "progress": count, **options}
        return engine.receive(image, blob, name, **settings)


@pytest.fixture(scope="module")
def busybox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.busybox(tmp_path_factory.mktemp("busybox"))


@pytest.fixture
def images(tmp_path: Path, busybox: Path) -> Images:
    return Images(tmp_path, busybox)


@pytest.fixture
def name(engine: Engine) -> Iterator[Callable[[], str]]:
    made: list[str] = []
    before = passing(engine)  # what a killed run left on this machine is no fault of this test

    def new() -> str:
        made.append(tiny.name())
        return made[-1]

    yield new
    for one in made:
        engine.remove(one)
    assert passing(engine) <= before, "an image was left under its passing name"


def passing(engine: Engine) -> set[str]:
    return set(engine.named(f"{engine_build.RECEIVING}/*"))


def word(image: str) -> str:
    command = ["docker", "run", "--rm", "--network=none", image, "/bin/busybox", "cat", "/word"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def digests(image: OciImage[Layer]) -> frozenset[str]:
    return frozenset(layer.digest for layer in image.layers)


def saved(image: str) -> set[str]:
    """The names in the image's archive."""
    done = subprocess.run(["docker", "save", image], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        return set(archive.getnames())


def test_it_runs_and_has_the_digest_and_the_blobs_that_were_given(
    engine: Engine, images: Images, name: Callable[[], str]
) -> None:
    image = images.image("one")
    stored = images.give(engine, image, called := name())
    assert (stored.digest, stored.content) == (image.digest, image.content)
    inspected = ["docker", "image", "inspect", "--format", "{{json .RootFS.Layers}}", called]
    layers = json.loads(subprocess.run(inspected, capture_output=True, check=True).stdout)
    assert layers == [layer.diff_id for layer in image.layers]
    assert word(called) == "one"
    assert {f"blobs/sha256/{digest.partition(':')[2]}" for digest in digests(image)} <= saved(called)


def test_of_a_second_image_only_what_is_new_is_sent(
    engine: Engine, images: Images, name: Callable[[], str]
) -> None:
    images.give(engine, images.image("first"), name())
    first = images.sent
    other = images.image("second")
    stored = images.give(engine, other, called := name())
    assert stored.digest == other.digest
    assert images.sent < 10_000 < first
    assert word(called) == "second"
    assert {f"blobs/sha256/{digest.partition(':')[2]}" for digest in digests(other)} <= saved(called)


def test_a_blob_that_the_engine_lost_is_sent_after_all(
    engine: Engine, images: Images, name: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = images.image("lost")
    monkeypatch.setattr(engine_build, "known_blobs", lambda _client: digests(image))
    stored = images.give(engine, image, called := name())
    assert stored.digest == image.digest
    assert images.sent > 100_000
    assert word(called) == "lost"


@pytest.fixture
def feed(engine: Engine, images: Images, monkeypatch: pytest.MonkeyPatch) -> EngineLoad:
    monkeypatch.setattr(feeding, "LEAST", 1)
    engine.memory = images.memory
    return EngineLoad(engine, blob=lambda layer: images.store.blob(layer.digest), cancel=threading.Event())


def wait_for_part(engine: Engine, before: set[str]) -> None:
    """Wait until the engine has one more part of an image."""
    deadline = time.monotonic() + 60
    while not passing(engine) - before:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_what_a_killed_process_left_under_passing_names_is_swept(
    engine: Engine, images: Images, name: Callable[[], str]
) -> None:
    kept = name()
    images.give(engine, images.image("fed"), kept)
    token = uuid.uuid4().hex[:12]
    left = f"{engine_build.RECEIVING}/{token}:3"
    noted = images.memory / f"receiving-{token}"
    noted.write_text(f"{left}\n{kept}\n")  # as after a kill: nobody holds its lock
    engine.tag(kept, left)
    with engine_build.passing_names(engine) as named:
        engine.tag(kept, alive := named("1"))
        engine_build.sweep_passing(engine)
        assert engine.inspect(left) is None
        assert engine.inspect(alive) is not None
    assert engine.inspect(alive) is None
    assert engine.inspect(kept) is not None  # no name of ours
    assert not list(images.memory.glob("receiving-*"))


def test_a_passing_name_whose_note_is_lost_goes_after_a_day(
    engine: Engine, images: Images, name: Callable[[], str]
) -> None:
    images.give(engine, images.image("fed"), kept := name())
    now, token = int(time.time()), uuid.uuid4().hex[:12]
    old, new = (f"{engine_build.RECEIVING}/{now - hours * 3600}-{token}:1" for hours in (25, 23))
    for passing_name in (old, new):
        engine.tag(kept, passing_name)
    engine_build.sweep_passing(engine)
    assert passing(engine) & {old, new} == {new}
    engine.remove(new)


def test_parts_of_an_image_go_in_before_the_whole(
    engine: Engine, images: Images, name: Callable[[], str], feed: EngineLoad
) -> None:
    image = images.image("fed")
    before = passing(engine)
    with feed:
        feed.add(0, image.layers[:1])
        wait_for_part(engine, before)
        feed.add(0, image.layers[:1])  # nothing new
        feed.finish()
        stored = images.give(engine, image, called := name())
        assert images.sent < 10_000
    assert stored.digest == image.digest
    assert word(called) == "fed"


def listed() -> set[str]:
    """The names of the images that the engine shows, passing ones too."""
    command = ["docker", "images", "--format", "{{.Repository}}:{{.Tag}}"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def kept(engine: Engine, feed: EngineLoad, layer: Layer) -> None:
    feed.add(9, (layer,))  # above others, of which nothing is known
    deadline = time.monotonic() + 60
    while layer.digest not in engine._kept:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_layer_goes_in_before_those_below_it_and_is_not_unpacked(
    engine: Engine, images: Images, name: Callable[[], str], feed: EngineLoad
) -> None:
    image, before = images.image("fed"), listed()
    with feed:
        kept(engine, feed, image.layers[1])
        assert listed() == before
        images.give(engine, image, called := name())
        assert images.sent < images.store.blob(image.layers[0].digest).stat().st_size + 10_000
        assert f"blobs/sha256/{image.layers[1].digest[7:]}" in saved(called)
    assert word(called) == "fed"


def test_layers_that_were_kept_need_not_be_sent_with_the_image(
    engine: Engine, images: Images, name: Callable[[], str], feed: EngineLoad
) -> None:
    image = images.image("fed")
    with feed:
        for layer in image.layers:
            kept(engine, feed, layer)
        feed.finish()
        stored = images.give(engine, image, called := name())
        assert images.sent < 10_000
    assert stored.digest == image.digest
    assert word(called) == "fed"  # after the layers' own names are gone


def test_a_kept_layer_that_the_engine_forgot_is_sent_after_all(
    engine: Engine, images: Images, name: Callable[[], str], feed: EngineLoad
) -> None:
    image = images.image("forgotten")
    with feed:
        for layer in image.layers:
            kept(engine, feed, layer)
        lost = set(engine._kept)
    assert not engine._kept  # nothing holds them any more
    engine._kept |= lost  # another cell counts on them
    stored = images.give(engine, image, called := name())
    assert images.sent > 100_000
    assert stored.digest == image.digest
    assert word(called) == "forgotten"


def test_a_part_that_fails_is_left_to_the_whole(
    engine: Engine, images: Images, name: Callable[[], str], feed: EngineLoad
) -> None:
    image = images.image(fresh := uuid.uuid4().hex)  # no engine has a blob of it
    blob = images.store.blob(image.layers[1].digest)
    good = blob.read_bytes()
    with feed:
        blob.write_bytes(good[:-4] + b"evil")
        feed.add(0, image.layers)
        deadline = time.monotonic() + 60
        while feed._given < len(image.layers) and time.monotonic() < deadline:
            time.sleep(0.1)
        feed.finish()
        assert not feed._gives
        blob.write_bytes(good)
        stored = images.give(engine, image, called := name())
    assert stored.digest == image.digest
    assert word(called) == fresh


def test_an_image_that_was_removed_is_not_counted_on(
    engine: Engine, images: Images, name: Callable[[], str]
) -> None:
    image = images.image("gone")
    images.give(engine, image, called := name())
    first = images.sent
    engine.remove(called)
    images.give(engine, image, called)
    assert images.sent == first
    assert word(called) == "gone"


def test_a_manifest_that_was_changed_in_the_cache_says_nothing(
    engine: Engine, images: Images, name: Callable[[], str]
) -> None:
    images.give(engine, images.image("first"), name())
    (kept,) = images.memory.iterdir()
    document = json.loads(kept.read_bytes())
    kept.write_bytes(canonical_json({**document, "more": 1}))
    images.give(engine, images.image("second"), called := name())
    assert images.sent > 100_000
    assert word(called) == "second"


def test_a_damaged_blob_is_refused_and_the_image_of_that_name_stays(
    engine: Engine, images: Images, name: Callable[[], str]
) -> None:
    called = name()
    images.give(engine, images.image("good"), called)
    bad = images.image("bad")
    blob = images.store.blob(bad.layers[-1].digest)
    blob.write_bytes(blob.read_bytes()[:-4] + b"evil")
    with pytest.raises(CommandError, match=f"the engine did not take {called}: ") as raised:
        images.give(engine, bad, called)
    assert raised.value.command[-2:] == ("load", "--quiet")
    assert word(called) == "good"


def test_an_archive_that_is_cut_in_half(engine: Engine, images: Images, name: Callable[[], str]) -> None:
    called, cancel = name(), threading.Event()
    images.give(engine, images.image("good"), called)
    cut = images.image("cut")
    memory, images.memory = images.memory, images.memory / "empty"  # so that the whole archive is sent

    def stop(_size: int) -> None:
        cancel.set()

    with pytest.raises(CancelledError):
        images.give(engine, cut, called, cancel=cancel, progress=stop)
    images.memory = memory
    assert word(called) == "good"
    assert images.give(engine, cut, called).digest == cut.digest
    assert word(called) == "cut"


def test_of_several_at_once_the_others_wait_and_send_what_is_new(
    engine: Engine, images: Images, name: Callable[[], str]
) -> None:
    made = [images.image(f"side-{number}") for number in range(3)]
    names = [name() for _ in made]
    counted = [0] * len(made)

    def give(number: int) -> None:
        def count(size: int) -> None:
            counted[number] += size

        images.give(engine, made[number], names[number], progress=count)

    threads = [threading.Thread(target=give, args=(number,)) for number in range(len(made))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [word(one) for one in names] == ["side-0", "side-1", "side-2"]
    assert sorted(size > 100_000 for size in counted) == [False, False, True]


@pytest.mark.long
def test_an_engine_with_a_graphdriver_takes_the_whole_archive(
    images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engines.second_engine(store="graphdriver") as second:
        monkeypatch.setenv("DOCKER_HOST", second.host)
        with Engine.connect() as other:
            assert other.facts().store == "graphdriver"
            for text in ("one", "two"):
                image = images.image(text)
                stored = images.give(other, image, f"rtbuild-test/graphdriver:{text}")
                assert stored.digest == image.config_digest
                assert stored.content == image.content
                assert images.sent > 100_000
            assert second.docker("images", "-q", "--filter", f"reference={engine_build.RECEIVING}/*") == ""
