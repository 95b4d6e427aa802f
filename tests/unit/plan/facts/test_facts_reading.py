"""Truth about cells: read once from index and registry, kept, and never a yes where nobody answered."""

from __future__ import annotations

import io
import json
import time
import zipfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from doubles.http_server import Answer, Server
from doubles.package_index import sha256
from lock_values import lock_cell, lock_registry_base, lock_wheel

from builder.core.model import Base, Cuda, Pinned, Wheel
from builder.plan.facts.reading.cache import BASE_DAYS, MISSING_DAYS, ReadingCache, base_reference
from builder.plan.facts.reading.cells import read_cells
from builder.plan.facts.rules.checking import check
from builder.plan.facts.rules.finding import Outcome
from builder.sources.index.client import Index
from builder.sources.index.uv import IndexSettings
from builder.sources.oci import spec as oci
from builder.sources.oci.registry import Registry

if TYPE_CHECKING:
    from pathlib import Path

    from builder.sources.net.http import Client

FILE = "torch-2.9.1-cp313-cp313-manylinux_2_28_x86_64.whl"
TAG = "nvidia/cuda:12.8.1-base-ubuntu24.04"


def torch_wheel(cuda: str = "12.8") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("torch/version.py", f"__version__ = '2.9.1'\ncuda = '{cuda}'\n")
        about = "Metadata-Version: 2.1\nName: torch\nVersion: 2.9.1\n"
        requires = "Requires-Dist: nvidia-cudnn-cu12==9.10.2.21\n"
        archive.writestr("torch-2.9.1.dist-info/METADATA", about + requires)
        archive.writestr("torch/lib/libtorch_python.so", b"sm_75 sm_120\0numpy._core")
    return out.getvalue()


@dataclass
class World:
    """A registry and an index on one loopback server, and a cell that stands on both."""

    server: Server
    client: Client
    cache: Path
    wheel: Wheel

    def page(self, **more: object) -> None:
        entry = {"filename": FILE, "url": f"/files/{FILE}", "hashes": {"sha256": self.wheel.sha256}} | more
        body = json.dumps({"files": [entry]}).encode()
        self.server.on("/simple/torch/", Answer(200, body, {"Content-Type": "application/json"}))

    @property
    def mirrors(self) -> dict[str, str]:
        return {"docker.io": self.server.host}

    def readings(self) -> ReadingCache:
        return ReadingCache(mirrors=self.mirrors, cache=self.cache)

    def read(self, *pairs, readings=None, deep=False):
        return read_cells(
            pairs,
            deep=deep,
            index=Index(IndexSettings(default=f"{self.server.url}/simple"), client=self.client),
            registry=Registry(self.mirrors, client=self.client, login=lambda _host: None),
            readings=readings or self.readings(),
        )

    def image(self, env: list[str]) -> None:
        config = json.dumps({"os": "linux", "architecture": "amd64", "config": {"Env": env}}).encode()
        body = {
            "mediaType": oci.MANIFEST,
            "config": {"digest": f"sha256:{sha256(config)}", "size": len(config)},
            "layers": [{"digest": f"sha256:{sha256(b'')}", "size": 1}],
        }
        root = "/v2/nvidia/cuda"
        self.server.on(f"{root}/blobs/sha256:{sha256(config)}", Answer(200, config))
        headers = {"Content-Type": oci.MANIFEST}
        tag = TAG.partition(":")[2]
        self.server.on(f"{root}/manifests/{tag}", Answer(200, json.dumps(body).encode(), headers))


@pytest.fixture
def world(server: Server, client: Client, tmp_path) -> World:
    content = torch_wheel()
    server.on("/v2/", Answer(200, b"{}"))

    def ranges(request):
        first, _, last = request.headers["range"].removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, len(content) - int(last))
        end = min(len(content), int(last) + 1) if first else len(content)
        return Answer(206, content[start:end], {"Content-Range": f"bytes {start}-{end - 1}/{len(content)}"})

    server.on(f"/files/{FILE}", ranges)
    wheel = Wheel(name="torch", version="2.9.1", file=FILE, sha256=sha256(content), size=len(content))
    made = World(server, client, tmp_path / "cache", wheel)
    made.page()
    return made


def locked(world: World, **changes):
    cell = lock_cell(
        "c",
        frameworks=("torch==2.9.1",),
        python="3.13",
        base=Base(kind="rootfs", name="debian/trixie"),
        cuda=Cuda(provider="wheels"),
        pip=(),
        **changes,
    )
    cudnn = replace(lock_wheel("nvidia-cudnn-cu12"), version="9.10.2.21")
    # a rootfs' packages play no part here
    base = lock_registry_base(TAG) if changes else None
    return cell, Pinned(cell=cell, base=base, wheels=(world.wheel, cudnn), epoch=1)


def test_a_locked_wheel_is_read_once_and_known_without_network_from_then_on(world: World) -> None:
    cell, pinned = locked(world)
    assert world.readings().truth(cell, pinned).wheel("torch").cuda is None
    reading = world.read((cell, pinned))
    assert (reading.wheels, reading.bases) == (1, 0)
    assert 0 < reading.transferred < 100_000
    assert reading.truths[0].wheel("torch").cuda == "12.8"
    assert reading.truths[0].wheel("torch").cudnn == "9.10.2.21"
    assert reading.truths[0].wheel("nvidia-cudnn-cu12").version == "9.10.2.21"
    world.server.stop()
    world.server._http.server_close()
    kept = world.readings().truth(cell, pinned, links=True)
    assert kept == reading.truths[0]


def test_without_a_lock_the_wheel_is_read_that_the_index_offers(world: World) -> None:
    cell = replace(locked(world)[0], frameworks=("torch==2.9.*",))
    reading = world.read((cell, None))
    wheel = reading.truths[0].wheel("torch")
    assert reading.wheels == 1
    assert (wheel.version, wheel.cuda, wheel.cudnn) == ("2.9.1", "12.8", "9.10.2.21")
    assert reading.truths[0].locked is False
    assert reading.truths[0].unread == ()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"python": "3.12"}, "has wheels of torch==2.9.1, but none for Python 3.12 on linux/amd64"),
        ({"frameworks": ("torch==2.9.7",)}, "the package index has no wheel of torch==2.9.7"),
    ],
)
def test_without_a_lock_a_wheel_that_is_not_there_is_said(world: World, changes, reason) -> None:
    cell = replace(locked(world)[0], **changes)
    truth = world.read((cell, None)).truths[0]
    assert reason in truth.unread[0]
    assert Outcome.of(check(cell, truth)) is Outcome.IMPOSSIBLE


def test_a_release_of_which_an_index_has_only_sources_comes_with_the_way(world: World) -> None:
    """JAX had no wheel before 0.4."""
    world.page(filename="torch-2.9.1.tar.gz")
    cell = locked(world)[0]
    (absent,) = world.read((cell, None)).truths[0].absent
    assert absent.startswith("torch==2.9.1, only sources: ")
    assert absent.endswith("or the package in `from-source`")
    other = replace(cell, frameworks=("torch==2.9.7",))
    assert world.read((other, None)).truths[0].absent == ("torch==2.9.7",)


def test_what_an_index_lacks_is_impossible_and_what_a_silent_one_lacks_is_not_known(world: World) -> None:
    cell = replace(locked(world)[0], frameworks=("torch==2.9.1+cu118",))
    truth = world.read((cell, None)).truths[0]
    assert truth.absent == ("torch==2.9.1+cu118",)
    findings = check(cell, truth)
    assert [f.outcome for f in findings if f.rule == "index"] == [Outcome.IMPOSSIBLE]
    world.server.stop()
    world.server._http.server_close()
    silent = world.read((cell, None)).truths[0]
    assert silent.absent == ()
    assert Outcome.of(check(cell, silent)) is Outcome.UNKNOWN


def test_a_deep_reading_tells_gpu_code_and_numpy_and_is_known_from_then_on(world: World) -> None:
    cell, pinned = locked(world)
    shallow = world.read((cell, pinned)).truths[0].wheel("torch")
    assert (shallow.architectures, shallow.numpy_abi) == ((), None)
    deep = world.read((cell, pinned), deep=True).truths[0].wheel("torch")
    assert (deep.architectures, deep.numpy_abi, deep.cuda) == (("sm_75", "sm_120"), "2", "12.8")
    world.server.stop()
    world.server._http.server_close()
    assert world.readings().truth(cell, pinned).wheel("torch") == deep


def test_truth_against_table_is_reported_and_wins(world: World) -> None:
    cell, pinned = locked(world)
    content = torch_wheel(cuda="12.6")
    world.wheel = replace(world.wheel, sha256=sha256(content), size=0)
    world.server.on(
        f"/files/{FILE}",
        lambda request: Answer(206, content, {"Content-Range": f"bytes 0-{len(content) - 1}/{len(content)}"}),
    )
    world.page()
    cell, pinned = locked(world)
    truth = world.read((cell, pinned)).truths[0]
    assert truth.wheel("torch").cuda == "12.6"
    differing = [f for f in check(cell, truth) if f.rule == "disagreement"]
    assert "12.6 was read from the wheel, the tables say 12.8" in differing[0].message


def test_a_yanked_wheel_and_one_that_is_gone_are_named(world: World) -> None:
    cell, pinned = locked(world)
    world.page(yanked="broken build")
    found = check(cell, world.read((cell, pinned)).truths[0])
    assert [f.message for f in found if f.rule == "yanked"] == [
        f"{FILE} was yanked by its maker: broken build"
    ]
    world.page(filename="torch-3.0-py3-none-any.whl")
    truth = world.read((cell, pinned)).truths[0]
    assert truth.unread == (f"{FILE} with the locked hash is no longer on the package index",)
    assert Outcome.of(check(cell, truth)) is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("path", "answer", "reason"),
    [
        ("/simple/torch/", Answer(503, b""), "HTTP 503"),
        (
            "/simple/torch/",
            Answer(200, b"<html>log in</html>", {"Content-Type": "text/html"}),
            "without one package file",
        ),
        (f"/files/{FILE}", Answer(200, b"<html>", {"Content-Type": "text/html"}), "answers with a page"),
        (f"/files/{FILE}", Answer(200, b"x" * 50), "does not support ranges"),
        (f"/files/{FILE}", Answer(302, b"", {"Location": "/elsewhere"}), "the server answers 404"),
        (f"/files/{FILE}", Answer(206, b"x", {"Content-Range": "bytes 7-7/9"}), "asked for"),
    ],
)
def test_an_index_that_spoils_the_answer_makes_unknown_with_the_reason(world, path, answer, reason) -> None:
    world.server.on(path, answer)
    cell, pinned = locked(world)
    truth = world.read((cell, pinned)).truths[0]
    assert len(truth.unread) == 1
    assert reason in truth.unread[0]
    assert FILE in truth.unread[0]
    assert Outcome.of(check(cell, truth)) is Outcome.UNKNOWN
    assert world.readings().truth(cell, pinned).wheel("torch").cuda is None


def unlocked():
    return lock_cell(
        "c",
        frameworks=("torch==2.9.1",),
        python="3.12",
        base=Base(kind="registry", name=TAG),
        cuda=Cuda(provider="wheels"),
        pip=(),
    )


def of_the_base(cell, truth) -> Outcome:
    """The answer if the index had the wheel: that of these tests has none for Python 3.12."""
    return Outcome.of(check(cell, replace(truth, absent=())))


def test_a_base_is_read_from_its_registry_and_kept_for_some_days(world: World, monkeypatch) -> None:
    world.image(["CUDA_VERSION=12.8.1", "NV_CUDNN_VERSION=9.8.0.87-1"])
    cell = unlocked()
    truth = world.read((cell, None)).truths[0]
    assert truth.base.variable("NV_CUDNN_VERSION") == "9.8.0.87-1"
    # a base tag that turns out to hold cuDNN is a second copy, whatever its name says
    assert Outcome.of(check(cell, truth)) is Outcome.IMPOSSIBLE
    assert world.readings().truth(cell, None).base == truth.base
    assert (
        ReadingCache(cache=world.cache).truth(cell, None).base is None
    )  # another place may answer otherwise
    later = time.time() + (BASE_DAYS + 1) * 86400
    monkeypatch.setattr(time, "time", lambda: later)
    assert world.readings().truth(cell, None).base is None


def test_a_vanished_tag_is_refused_but_only_on_the_registrys_own_word(world: World, monkeypatch) -> None:
    cell = unlocked()
    path = f"/v2/nvidia/cuda/manifests/{TAG.partition(':')[2]}"
    world.server.on(path, Answer(404, b"404 page not found", {"Content-Type": "text/plain"}))
    truth = world.read((cell, None)).truths[0]
    assert truth.base is None
    assert "does not exist" in truth.unread[0]
    assert of_the_base(cell, truth) is Outcome.UNKNOWN
    said = json.dumps({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}).encode()
    world.server.on(path, Answer(404, said, {"Content-Type": "application/json"}))
    truth = world.read((cell, None)).truths[0]
    assert truth.base.exists is False
    assert "base-tag" in {f.rule for f in check(cell, truth) if f.outcome is Outcome.IMPOSSIBLE}
    assert f"{TAG} (asked at its mirror {world.server.host})" in truth.base.reference
    # it is known without network from then on, for a day: somebody may fill the mirror
    assert world.readings().truth(cell, None).base.exists is False
    later = time.time() + (MISSING_DAYS + 1) * 86400
    monkeypatch.setattr(time, "time", lambda: later)
    assert world.readings().truth(cell, None).base is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(200, b"<html>", {"Content-Type": "text/html"}), "a web page"),
        (Answer(503, b""), "503"),
        (Answer(429, b""), "too many requests"),
        (Answer(200, b"[]", {"Content-Type": oci.MANIFEST}), "could not be read"),
        (Answer(200, b"{}", {"Content-Type": oci.MANIFEST}), "could not be read"),
    ],
)
def test_a_registry_that_spoils_the_answer_makes_unknown(world: World, answer, reason) -> None:
    world.server.on(f"/v2/nvidia/cuda/manifests/{TAG.partition(':')[2]}", answer)
    cell = unlocked()
    truth = world.read((cell, None)).truths[0]
    assert truth.base is None
    assert reason in truth.unread[0]
    assert of_the_base(cell, truth) is Outcome.UNKNOWN


def test_nobody_listening_is_unknown_and_a_damaged_cache_is_read_again(world: World) -> None:
    cell = unlocked()
    world.image(["CUDA_VERSION=12.8.1"])
    world.read((cell, None))
    (kept,) = (world.cache / "basemeta").iterdir()
    kept.write_text("{")
    assert world.readings().truth(cell, None).base is None
    world.server.stop()
    readings = ReadingCache(mirrors={"docker.io": "127.0.0.1:9"}, cache=world.cache)
    nobody = Registry({"docker.io": "127.0.0.1:9"}, client=world.client, login=lambda _host: None)
    index = Index(IndexSettings(default="http://127.0.0.1:9/simple"), client=world.client)
    truth = read_cells([(cell, None)], index=index, registry=nobody, readings=readings).truths[0]
    assert "connection refused" in truth.unread[0]
    assert of_the_base(cell, truth) is Outcome.UNKNOWN


def test_a_registry_that_falls_silent_leaves_what_it_said_before_but_no_yes(world: World) -> None:
    cell = unlocked()
    world.image(["CUDA_VERSION=12.8.1"])
    known = world.read((cell, None)).truths[0].base
    world.server.on(f"/v2/nvidia/cuda/manifests/{TAG.partition(':')[2]}", Answer(503, b""))
    truth = world.read((cell, None)).truths[0]
    assert truth.base == known
    assert "503" in truth.unread[0]
    assert of_the_base(cell, truth) is Outcome.UNKNOWN


def test_a_locked_base_is_asked_for_by_its_digest(world: World) -> None:
    cell, pinned = locked(world, platform="linux/amd64")
    assert base_reference(cell, pinned) == f"{TAG}@{pinned.base.digest}"


def test_a_thousand_cells_are_judged_without_reading_again(world: World) -> None:
    cell, pinned = locked(world)
    world.read((cell, pinned))
    pairs = [
        (replace(cell, id=f"c{n}"), replace(pinned, cell=replace(cell, id=f"c{n}"))) for n in range(1000)
    ]
    started = time.process_time()
    readings = world.readings()
    outcomes = {Outcome.of(check(one, readings.truth(one, pin))) for one, pin in pairs}
    # a fraction of a second; a file read for each cell takes longer
    assert time.process_time() - started < 10
    assert outcomes == {Outcome.POSSIBLE}
