"""No fault leads to a wrong publication: what docs/publish.md promises, against a real registry.

After every fault two things hold: no public tag is on anything but the digest that was verified, with its
evidence there; and the next undisturbed run completes the publication. The reports are test doubles.
"""

from __future__ import annotations

import email.utils
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from doubles.project import PROBE
from doubles.unreliable import Proxy, before
from publish_scene import Scene, Zygote, impatient
from registry import serve

from builder.sources.oci.registry import Registry
from builder.verify.runner.reports import ReportStore

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.docker, pytest.mark.long]


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Registry, "to_write", impatient)
    monkeypatch.setattr("builder.release.publish.run.bundle", lambda: PROBE)


def verified(folder: Path, proxy: Proxy, name: str) -> Scene:
    scene = Scene(folder / name, proxy, name)
    scene.project.report(scene.image)
    return scene


@pytest.fixture
def scene(tmp_path: Path, proxy: Proxy) -> Scene:
    return verified(tmp_path, proxy, tmp_path.name.replace("_", "-"))


def completes(scene: Scene) -> None:
    scene.proxy.fault = lambda _number, _method, _path: None
    assert scene.publish().state in {"published", "unchanged"}
    assert scene.tags() == scene.wanted
    assert scene.has_evidence()


def test_every_request_is_answered_503_or_cut_once(scene: Scene) -> None:
    failed: set[str] = set()

    def first_time(_number: int, method: str, path: str) -> Any:
        key = f"{method} {path.partition('?')[0]}"
        if key in failed:
            return None
        failed.add(key)
        return ("503", "cut", "429")[len(failed) % 3]

    scene.proxy.fault = first_time
    assert scene.publish().state == "published"
    assert len(failed) > 30
    completes(scene)


def writes_of(scene: Scene) -> list[int]:
    """The numbers of the requests that change something, in a publication that nothing disturbs."""
    scene.proxy.requests.clear()
    assert scene.publish().state == "published"
    return [n for n, line in enumerate(scene.proxy.requests, 1) if line.split()[0] not in {"GET", "HEAD"}]


@pytest.mark.nightly
def test_the_registry_dies_between_any_two_requests(tmp_path: Path, proxy: Proxy) -> None:
    """It dies with each write: done, but never answered; or not done, and everything from there on is a 503.

    What is between two writes changes nothing, so these are all the states that a death can leave.
    """
    scene = verified(tmp_path, proxy, "dies0")
    points = writes_of(scene)
    assert len(points) > 15
    for round_, at in enumerate(points):
        way = "lost" if round_ % 3 else "503"
        scene.publish_to(f"{round_ + 1}")
        proxy.requests.clear()
        proxy.fault = lambda n, _method, _path, at=at, way=way: None if n < at else way if n == at else "503"
        assert scene.publish().state == "failed", f"{way} at request {at}"
        proxy.fault = lambda _number, _method, _path: None
        assert scene.is_sound(), f"{way} at request {at}"
        if round_ % 8 == 0:
            completes(scene)


@pytest.mark.nightly
def test_kill_9_at_every_write(tmp_path: Path, proxy: Proxy) -> None:
    """The real command, killed when the registry has done what it was asked, before it is told so."""
    zygote = Zygote(tmp_path / "log.txt")
    scene = verified(tmp_path, proxy, "killed")
    try:
        points = writes_of(scene)
        for round_, at in enumerate([*points, 10**6]):
            scene.publish_to(f"{round_}-killed")
            proxy.requests.clear()
            proxy.after = lambda n, _method, at=at: zygote.kill() if n == at else None
            command = ("publish", "tf.yaml", "--from", scene.through[0], "--to", scene.through[1], "-q")
            status = zygote.run(scene.project.folder, *command)
            proxy.after = None
            assert status == (-9 if at in points else 0), (at, zygote.log.read_text()[-2000:])
            assert scene.is_sound(), f"killed at request {at}"
            if round_ % 8 == 0:
                assert zygote.run(scene.project.folder, *command) == 0, zygote.log.read_text()[-2000:]
                assert scene.tags() == scene.wanted
    finally:
        zygote.close()


@pytest.mark.parametrize("lasts", [1, 3])
def test_a_token_that_expires(scene: Scene, lasts: int) -> None:
    scene.proxy.token_lasts = lasts
    assert scene.publish().state == "published"
    assert scene.proxy.tokens > 10
    assert scene.tags() == scene.wanted


def test_two_publishers_at_once(scene: Scene) -> None:
    assert {row.state for row in scene.publish_twice_at_once()} <= {"published", "unchanged"}
    assert scene.tags() == scene.wanted
    completes(scene)


def test_two_publishers_of_different_images(scene: Scene) -> None:
    """While one is at its tags another publishes a newer image of the cell: each tag is on one of them."""
    first, other = scene.image, scene.project.stage(scene.registry, scene.staging, extra=b"newer")
    scene.move_staged(first)
    scene.project.report(other)
    met: list[str] = []

    def meanwhile(_number: int, method: str, path: str) -> Any:
        if method == "PUT" and path.endswith("/latest") and not met:
            met.append(path)
            scene.move_staged(other)
            assert scene.publish().state == "published"
        return None

    scene.proxy.fault = meanwhile
    row = scene.publish()
    assert met
    assert row.state in {"published", "failed"}
    assert set(scene.tags().values()) == {first.digest, other.digest}
    assert len([tag for tag in scene.tags() if tag.endswith((first.digest[7:19], other.digest[7:19]))]) == 2


def test_the_staging_tag_is_moved_to_another_image(scene: Scene) -> None:
    """To one that claims the same inputs: its digest has no report. To any other: its label says so."""
    other = scene.project.stage(scene.registry, scene.staging, extra=b"not what was verified")
    row = scene.publish()
    assert (row.state, [r.kind for r in row.refusals]) == ("refused", ["digest"])
    assert scene.image.digest[:19] in row.refusals[0].text
    assert other.digest[:19] in row.refusals[0].text

    digest = scene.move_staged_to_anything()
    row = scene.publish()
    assert (row.state, [r.kind for r in row.refusals]) == ("refused", ["moved"])
    assert digest in row.refusals[0].text
    assert scene.tags() == {}


def test_the_staging_tag_is_moved_while_it_is_published(scene: Scene) -> None:
    """After the gate only the digest counts."""
    moved: list[str] = []

    def meanwhile(_number: int, method: str, path: str) -> Any:
        if method == "POST" and not moved:
            moved.append(path)
            scene.project.stage(scene.registry, scene.staging, extra=b"something else")
        return None

    scene.proxy.fault = meanwhile
    assert scene.publish().state == "published"
    assert moved
    assert scene.tags() == scene.wanted


@pytest.mark.parametrize(
    ("old", "new"),
    [('"driver": "535.104.05"', '"driver": "999.1"'), ('"verified": "20', '"verified": "30')],
)
def test_a_report_edited_by_hand(scene: Scene, old: str, new: str) -> None:
    (path,) = scene.project.store.folder.iterdir()
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    row = scene.publish()
    assert (row.state, [r.kind for r in row.refusals]) == ("refused", ["edited"])
    assert str(path) in row.refusals[0].text
    assert scene.tags() == {}


def test_an_unverified_report_edited_into_one_that_works(scene: Scene) -> None:
    for path in scene.project.store.folder.iterdir():
        path.unlink()
    path = scene.project.report(scene.image, verdict="broken", cause="cudnn-shadowed")
    path.write_text(path.read_text().replace('"broken"', '"works"').replace('"cudnn-shadowed"', "null"))
    assert [r.kind for r in scene.publish().refusals] == ["edited"]
    assert scene.tags() == {}


@pytest.mark.parametrize("hours", [-30, 30])
def test_this_machine_s_clock_is_wrong(scene: Scene, hours: int) -> None:
    """Seen against the registry's: with a clock that is behind, an old report would look new."""
    scene.proxy.date = email.utils.formatdate(time.time() + hours * 3600, usegmt=True)
    row = scene.publish()
    assert (row.state, [r.kind for r in row.refusals]) == ("refused", ["clock"])
    assert ("ahead of" if hours < 0 else "behind") in row.refusals[0].text
    assert scene.tags() == {}


@pytest.mark.parametrize(("days", "kind"), [(-1, "future"), (31, "old")])
def test_the_verifying_machine_s_clock_is_wrong_or_the_report_is_old(
    scene: Scene, days: int, kind: str
) -> None:
    for path in scene.project.store.folder.iterdir():
        path.unlink()
    scene.project.report(scene.image, verified=datetime.now(UTC) - timedelta(days=days))
    row = scene.publish()
    assert [r.kind for r in row.refusals] == [kind]
    assert scene.tags() == {}


def test_a_results_folder_that_cannot_be_written(scene: Scene, tmp_path: Path) -> None:
    """What cannot be kept is not there; an earlier report is about an earlier digest, and opens nothing."""
    (tmp_path / "file").write_text("in the way")
    said: list[str] = []
    scene.project.store = ReportStore(tmp_path / "file" / "reports", warn=said.append)
    with pytest.raises(AssertionError):
        scene.project.report(scene.image)
    assert "cannot be kept" in said[0]
    row = scene.publish(results=tmp_path / "file")
    assert row.state == "refused"
    assert {r.kind for r in row.refusals} <= {"missing", "edited"}
    assert scene.tags() == {}


def test_a_push_that_is_cut_in_half(tmp_path: Path, proxy: Proxy) -> None:
    """Into another registry, where every blob's bytes pass: half of them arrive, once or always."""
    with serve(tmp_path / "other") as other, before(other.host) as target:
        for name, always in (("once", False), ("always", True)):
            scene = Scene(tmp_path / name, proxy, name, target=target)
            scene.project.report(scene.image)
            seen: set[str] = set()

            def half(_number: int, method: str, path: str, seen: Any = seen, always: Any = always) -> Any:
                if method != "PUT" or "/blobs/" not in path:
                    return None
                blob = path.rpartition("digest=")[2]  # every attempt has an upload of its own
                first = blob not in seen
                seen.add(blob)
                return "half" if always or first else None

            target.fault = half
            row = scene.publish()
            target.fault = lambda _number, _method, _path: None
            assert row.state == ("failed" if always else "published")
            assert scene.tags() == ({} if always else scene.wanted)
            completes(scene)
