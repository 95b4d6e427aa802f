"""Resolution with the real uv, and downloads, against an index on loopback."""

from __future__ import annotations

import base64
import dataclasses
import socket
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import requests
from doubles.http_server import Answer, Request, Server
from doubles.package_index import PackageIndexDouble, make_wheel, sha256

from builder.core.errors import NoSolutionError, PackageIndexError
from builder.core.model import Sdist, Wheel
from builder.sources.index.client import Index, LocalWheel, ask, cache_path
from builder.sources.index.target import Target
from builder.sources.index.uv import IndexSettings
from builder.sources.net.http import Client

if TYPE_CHECKING:
    from pathlib import Path

TARGET: dict[str, Any] = {"target": Target(python="3.9", platform="linux/amd64", glibc="2.31")}


@pytest.fixture
def index(fake_index: PackageIndexDouble, client: Client) -> Index:
    return Index(IndexSettings(default=fake_index.url), client=client)


def versions(wheels: tuple[Wheel, ...]) -> dict[str, str]:
    return {wheel.name: wheel.version for wheel in wheels}


@pytest.mark.parametrize("html", [False, True], ids=["json", "html"])
def test_resolve_and_fetch(
    index: Index, fake_index: PackageIndexDouble, server: Server, tmp_path: Path, html: bool
) -> None:
    fake_index.html = html
    top = fake_index.add("top", "1.0", requires=("leaf>=2", 'old; python_version < "3.0"'))
    fake_index.add("leaf", "1.0")
    fake_index.add("leaf", "2.0")
    fake_index.add("leaf", "2.0", tag="cp39-cp39-manylinux_2_17_x86_64")
    fake_index.add("leaf", "2.0", tag="cp39-cp39-manylinux_2_35_x86_64")
    leaf, found = index.resolve(["top"], **TARGET)
    assert leaf.file == "leaf-2.0-cp39-cp39-manylinux_2_17_x86_64.whl"
    assert (found.name, found.version, found.file) == ("top", "1.0", top.name)
    assert (found.sha256, found.size) == (sha256(top.read_bytes()), top.stat().st_size)
    assert found.uploaded == (0 if html else 1668624574)

    # A later process has no address from the resolution: only the lock and the index.
    later = Index(index.settings, client=index.client)
    counts: list[int] = []
    paths = later.fetch_all([found, leaf, found], cache=tmp_path / "cache", progress=counts.append)
    assert paths == {wheel.sha256: cache_path(wheel, tmp_path / "cache") for wheel in (found, leaf)}
    assert paths[found.sha256].read_bytes() == top.read_bytes()
    assert sum(counts) == found.size + leaf.size


@pytest.mark.parametrize("html", [False, True], ids=["json", "html"])
def test_wheel_variants_are_passed_over(index: Index, fake_index: PackageIndexDouble, html: bool) -> None:
    """PEP 825 gives a file name a sixth part, which no installer of today may take for a build tag."""
    fake_index.html = html
    plain = fake_index.add("thing", "1.0", tag="cp39-cp39-manylinux_2_17_x86_64")
    for tag in ("cp39-cp39-manylinux_2_17_x86_64-cu130", "1-cp39-cp39-manylinux_2_17_x86_64-x8664v3"):
        fake_index.add("thing", "1.0", tag=tag)
    fake_index.add("thing", "2.0", tag="cp39-cp39-manylinux_2_17_x86_64-cu130")
    (found,) = index.resolve(["thing"], **TARGET)
    assert found.file == plain.name
    assert ask(["thing"], index)["thing"].wheels == {"1.0": [plain.name]}
    assert len(index.offers("thing")) == 4


@pytest.mark.parametrize("listed", [False, True])
def test_a_built_wheel_is_the_one_of_its_package(
    index: Index, fake_index: PackageIndexDouble, tmp_path: Path, listed: bool
) -> None:
    """Also where an index has another version of it; and what it depends on is found."""
    fake_index.add("leaf", "1.0")
    fake_index.add("top", "3.0")
    (tmp_path / "built").mkdir()
    path = make_wheel(tmp_path / "built", "top", "2.0", requires=("leaf",))
    content = path.read_bytes()
    top = Wheel(name="top", version="2.0", file=path.name, sha256=sha256(content), size=len(content))
    found = index.resolve(["top"], **TARGET, listed=listed, built=[LocalWheel(wheel=top, path=path)])
    assert versions(found) == ({"top": "2.0"} if listed else {"leaf": "1.0", "top": "2.0"})
    assert found[-1] is top


def test_sources_are_fetched_like_wheels(
    index: Index, fake_index: PackageIndexDouble, server: Server, tmp_path: Path
) -> None:
    fake_index.add("thing", "1.0")
    content = b"an archive"
    sdist = Sdist(name="thing", version="1.0", file="thing-1.0.tar.gz", sha256=sha256(content), size=0)
    server.file(f"/files/{sdist.file}", content)
    fake_index.page("thing").append(
        {
            "filename": sdist.file,
            "url": f"{server.url}/files/{sdist.file}",
            "hashes": {"sha256": sdist.sha256},
        }
    )
    assert index.fetch(sdist, cache=tmp_path / "cache").read_bytes() == content
    assert cache_path(sdist, tmp_path / "cache").is_relative_to(tmp_path / "cache/sdists")
    server.file(f"/files/{sdist.file}", b"something else")
    with pytest.raises(PackageIndexError, match=r"thing-1\.0\.tar\.gz"):
        index.fetch(sdist, cache=tmp_path / "other")


def test_what_cannot_be_satisfied_is_explained(index: Index, fake_index: PackageIndexDouble) -> None:
    fake_index.add("top", "1.0", requires=("leaf<2",))
    fake_index.add("leaf", "1.0")
    fake_index.add("leaf", "2.0")
    fake_index.add("other", "1.0")
    with pytest.raises(PackageIndexError) as caught:
        index.resolve(["top==1.0", "leaf==2.0", "other"], **TARGET)
    first, *rest = caught.value.message.splitlines()
    assert first == (
        "no set of wheels for Python 3.9 on glibc 2.31 satisfies the requirements (top==1.0, leaf==2.0)"
    )
    assert "leaf<2" in " ".join(rest)


@pytest.mark.parametrize(
    ("added", "asked", "hint"),
    [
        ({"tag": "cp312-cp312-manylinux_2_17_x86_64"}, "thing", "take a Python"),
        ({"tag": "cp39-cp39-manylinux_2_35_x86_64"}, "thing", "newer glibc"),
        ({}, "nothing", "check the name"),
    ],
)
def test_the_hint_fits_the_reason(
    index: Index, fake_index: PackageIndexDouble, added: dict[str, str], asked: str, hint: str
) -> None:
    fake_index.add("thing", "1.0", **added)
    with pytest.raises(PackageIndexError) as caught:
        index.resolve([asked], **TARGET)
    assert hint in (caught.value.hint or "")


def test_an_index_that_does_not_answer(client: Client) -> None:
    index = Index(IndexSettings(default="http://user:secret@127.0.0.1:1/simple"), client=client)
    with pytest.raises(PackageIndexError, match="no answer to resolve with") as caught:
        index.resolve(["thing"], **TARGET)
    assert "secret" not in str(caught.value)
    assert "UV_DEFAULT_INDEX" in (caught.value.hint or "")


def test_pages_that_uv_has_read_are_believed_only_where_that_is_asked(
    index: Index, fake_index: PackageIndexDouble, server: Server
) -> None:
    fake_index.add("thing", "1.0")
    series = Index(dataclasses.replace(index.settings, believed=60), client=index.client)
    for _ in range(3):
        series.resolve(["thing"], **TARGET)
    assert len(server.asked("/simple/thing/")) == 1
    fake_index.add("other", "1.0")
    for _ in range(2):
        index.resolve(["other"], **TARGET)
    assert len(server.asked("/simple/other/")) == 2


def test_an_index_that_was_given_up_is_not_waited_for_by_uv(
    fake_index: PackageIndexDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It accepts connections and says nothing; the server that does answer is not asked either."""
    fake_index.add("thing", "1.0")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        extra = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        once = Client(retries=0, connect_timeout=1, read_timeout=0.3, gives_up=True)
        with pytest.raises(requests.ConnectionError, match="timed out"):
            once.get(f"{extra}/thing/")
        once.read_timeout = 60  # for the server that answers
        index = Index(IndexSettings(default=fake_index.url, extra=(extra,)), client=once)
        with pytest.raises(PackageIndexError, match="stopped answering"):
            index.offers("thing")
        monkeypatch.setattr("builder.sources.index.uv.compile_requirements", pytest.fail)
        with pytest.raises(PackageIndexError, match="stopped answering"):
            index.resolve(["thing"], **TARGET)
        monkeypatch.undo()
    alone = Index(IndexSettings(default=fake_index.url), client=once)
    assert versions(alone.resolve(["thing"], **TARGET)) == {"thing": "1.0"}


def test_a_login_is_no_argument_that_others_can_read(
    index: Index, fake_index: PackageIndexDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_index.add("thing", "1.0")
    with_login = fake_index.url.replace("://", "://user:secret@")
    shown: list[str] = []
    run = subprocess.run

    def watched(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        shown.extend(command)
        return run(command, **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr("builder.sources.index.uv.subprocess.run", watched)
    found = Index(IndexSettings(default=with_login), client=index.client).resolve(["thing"], **TARGET)
    assert versions(found) == {"thing": "1.0"}
    assert shown
    assert not any("secret" in argument for argument in shown)


@pytest.mark.parametrize("login", ["", "me:wrong@"])
def test_an_index_that_wants_a_login_is_no_index_without_the_package(
    fake_index: PackageIndexDouble, server: Server, client: Client, login: str
) -> None:
    server.on("/simple/thing/", Answer(401, b"", {"WWW-Authenticate": "Basic realm=index"}))
    private = Index(IndexSettings(default=fake_index.url.replace("//", f"//{login}")), client=client)
    with pytest.raises(PackageIndexError, match="HTTP 401") as caught:
        private.resolve(["thing"], **TARGET)
    assert not isinstance(caught.value, NoSolutionError)
    assert "netrc" in str(caught.value.hint)
    assert "wrong" not in caught.value.message


def test_nothing_moves_without_need(index: Index, fake_index: PackageIndexDouble) -> None:
    fake_index.add("one", "1.0")
    fake_index.add("two", "1.0")
    before = index.resolve(["one", "two"], **TARGET)
    fake_index.add("one", "1.1")
    fake_index.add("two", "1.1")
    fake_index.add("two", "1.0", tag="cp39-cp39-manylinux_2_17_x86_64")
    ask = ["one", "two"]
    assert index.resolve(ask, **TARGET, previous=before) == before
    named = index.resolve(ask, **TARGET, previous=before, upgrade=["one"])
    assert versions(named) == {"one": "1.1", "two": "1.0"}
    assert versions(index.resolve(ask, **TARGET, previous=before, upgrade=True)) == {
        "one": "1.1",
        "two": "1.1",
    }
    assert versions(index.resolve(["one>1.0", "two"], **TARGET, previous=before)) == {
        "one": "1.1",
        "two": "1.0",
    }


def test_a_cells_own_index_comes_first(
    index: Index, fake_index: PackageIndexDouble, server: Server, tmp_path: Path
) -> None:
    fake_index.add("torch", "2.0")
    fake_index.add("numpy", "2.0")
    extra = PackageIndexDouble(server, tmp_path / "extra", prefix="/cu118")
    extra.add("torch", "2.0+cu118")
    extra.add("numpy", "1.0")
    wheels = index.with_extra([extra.url]).resolve(["torch==2.0", "numpy==2.0"], **TARGET)
    assert versions(wheels) == {"torch": "2.0+cu118", "numpy": "2.0"}
    paths = Index(index.with_extra([extra.url]).settings).fetch_all(wheels, cache=tmp_path / "cache")
    assert len(paths) == 2


def test_a_yanked_version_is_taken_when_pinned_and_named(
    fake_index: PackageIndexDouble, client: Client
) -> None:
    fake_index.add("thing", "1.0", yanked="broken kernels")
    fake_index.add("thing", "0.9")
    notes: list[str] = []
    index = Index(IndexSettings(default=fake_index.url), client=client, note=notes.append)
    assert versions(index.resolve(["thing"], **TARGET)) == {"thing": "0.9"}
    assert notes == []
    assert versions(index.resolve(["thing==1.0"], **TARGET)) == {"thing": "1.0"}
    assert "thing==1.0" in notes[0]
    assert "broken kernels" in notes[0]


def test_an_address_is_not_a_version(index: Index, fake_index: PackageIndexDouble) -> None:
    path = fake_index.add("thing", "1.0")
    with pytest.raises(PackageIndexError, match="does not come from a package index"):
        index.resolve([f"thing @ {fake_index.url.replace('/simple', '/files')}/{path.name}"], **TARGET)


def test_variables_that_would_decide_unseen_are_dropped(
    index: Index, fake_index: PackageIndexDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_index.add("thing", "1.0")
    fake_index.add("thing", "2.0")
    (tmp_path / "constraints.txt").write_text("thing<2\n")
    monkeypatch.setenv("UV_CONSTRAINT", str(tmp_path / "constraints.txt"))
    monkeypatch.setenv("UV_RESOLUTION", "lowest")
    assert versions(index.resolve(["thing"], **TARGET)) == {"thing": "2.0"}


@pytest.fixture
def locked(fake_index: PackageIndexDouble) -> Wheel:
    path = fake_index.add("thing", "1.0")
    content = path.read_bytes()
    return Wheel(name="thing", version="1.0", file=path.name, sha256=sha256(content), size=len(content))


def test_a_replaced_file_is_refused(
    index: Index, fake_index: PackageIndexDouble, locked: Wheel, tmp_path: Path
) -> None:
    other = dataclasses.replace(locked, sha256="0" * 64)
    with pytest.raises(PackageIndexError) as caught:
        index.fetch(other, cache=tmp_path)
    assert "0" * 64 in caught.value.message
    assert locked.sha256 in caught.value.message
    assert "--upgrade-only thing" in (caught.value.hint or "")


def test_an_altered_file_is_refused(
    index: Index, fake_index: PackageIndexDouble, server: Server, locked: Wheel, tmp_path: Path
) -> None:
    server.file(f"/files/{locked.file}", b"x" * locked.size)
    with pytest.raises(PackageIndexError, match="another one"):
        index.fetch(locked, cache=tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("wheels/**/[!.]*.whl*"))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(404), "is in none of the indexes"),
        (Answer(403), "is in none of the indexes"),
        (Answer(401), "HTTP 401"),
        (Answer(500), "HTTP 500"),
        (
            Answer(200, b"<html><a href='/login'>x</a></html>", {"Content-Type": "text/html"}),
            "answers with an HTML page",
        ),
        (Answer(200, b"hello", {"Content-Type": "text/plain"}), "text/plain"),
    ],
)
def test_an_index_that_answers_badly(
    index: Index, server: Server, locked: Wheel, tmp_path: Path, answer: Answer, words: str
) -> None:
    server.on("/simple/thing/", answer)
    with pytest.raises(PackageIndexError, match=words):
        index.fetch(locked, cache=tmp_path)


def test_a_moved_file_is_found_again(
    index: Index, fake_index: PackageIndexDouble, server: Server, locked: Wheel, tmp_path: Path
) -> None:
    index._known[locked.sha256] = f"{server.url}/moved/{locked.file}"
    assert index.fetch(locked, cache=tmp_path).is_file()


def test_the_login_of_an_index_goes_to_its_own_host_only(
    fake_index: PackageIndexDouble, server: Server, client: Client, locked: Wheel, tmp_path: Path
) -> None:
    wanted = "Basic " + base64.b64encode(b"me:secret").decode()

    def guarded(route: str) -> None:
        inner = server.route(route)

        def answer(request: Request) -> Answer:
            return inner(request) if request.headers.get("authorization") == wanted else Answer(401)

        server.on(route, answer)

    fake_index.page("thing")[0]["url"] = f"{server.url}/files/{locked.file}"
    guarded(f"/files/{locked.file}")
    guarded("/simple/thing/")
    private = Index(IndexSettings(default=fake_index.url.replace("//", "//me:secret@")), client=client)
    assert private.fetch(locked, cache=tmp_path / "one").is_file()
    (resolved,) = private.resolve(["thing"], **TARGET)
    assert resolved.sha256 == locked.sha256
    assert private.fetch(resolved, cache=tmp_path / "two").is_file()

    other = Server()
    try:
        other.file(f"/{locked.file}", b"not it")
        fake_index.page("thing")[0]["url"] = f"{other.url}/{locked.file}"
        with pytest.raises(PackageIndexError, match="another one"):
            Index(private.settings, client=client).fetch(locked, cache=tmp_path / "three")
        assert all("authorization" not in request.headers for request in other.requests)
    finally:
        other.stop()


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [([1, 1], [(0, 4), (2, 4)]), ([1 << 30, 1], [(1, 2), (1, 2)]), ([1 << 30], [(1, 4), (0, 4)])],
)
def test_large_wheels_take_half_of_the_downloads_if_there_are_others(
    index: Index,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sizes: list[int],
    expected: list[tuple[int, int]],
) -> None:
    asked: list[tuple[int, int]] = []

    def together(lanes: Any, _work: object, **_: object) -> dict[Wheel, Path]:
        asked.extend((len(items), threads) for items, threads in lanes)
        return {}

    monkeypatch.setattr("builder.sources.index.client.together", together)
    wheels = [
        Wheel(name="w", version=f"{at}", file=f"w-{at}-py3-none-any.whl", sha256=f"{at}" * 64, size=size)
        for at, size in enumerate(sizes)
    ]
    index.fetch_all(wheels, cache=tmp_path)
    assert asked == expected
