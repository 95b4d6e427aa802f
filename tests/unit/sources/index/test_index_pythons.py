"""Standalone Pythons: chosen out of uv's own catalogue, fetched from a mirror and held to their sums."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from doubles.http_server import Answer
from doubles.python_mirror import BUILD, PythonMirrorDouble, catalogue, file_name

from builder.core.errors import CellError, PackageIndexError, UsageError
from builder.sources.index import pythons
from builder.sources.index.pythons import PythonArchives, choose_python, offered
from builder.sources.net.http import Client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE = file_name("3.12.1")
CONTENT = b"an archive"
SUM = hashlib.sha256(CONTENT).hexdigest()


@pytest.mark.parametrize("platform", ["linux/amd64", "linux/arm64"])
def test_uv_s_own_catalogue(platform: str) -> None:
    known = offered(platform)
    machine = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}[platform]
    assert all(f"-{machine}-unknown-linux-gnu-install_only" in one.file for one in known)
    assert not any("freethreaded" in one.file for one in known)
    assert choose_python("3.12", platform).version.startswith("3.12.")
    assert choose_python("3.12.4", platform).build == "20240726"
    assert choose_python("3.12.3", platform).file.endswith("-install_only.tar.gz")
    assert [one.version for one in known].index("3.12.9") < [one.version for one in known].index("3.12.10")


@pytest.mark.parametrize(
    ("version", "said", "hint"),
    [
        ("3.7", "has no Python 3.7: it begins at 3.8", "take one of those"),
        ("3.11.2", "has no Python 3.11.2: it has 3.11.1 to", "nearest: 3.11.1, 3.11.3"),
        ("3.12.99", "has no Python 3.12.99", "3.12 takes the newest"),
        ("3.1", "has no Python 3.1:", "take one of those"),
    ],
)
def test_what_it_has_not(version: str, said: str, hint: str) -> None:
    with pytest.raises(CellError) as raised:
        choose_python(version, "linux/amd64")
    assert said in raised.value.message
    assert hint in str(raised.value.hint)


@pytest.fixture
def listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes uv's catalogue say what a test wants."""

    def use(text: str) -> None:
        file = tmp_path / f"catalogue-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
        file.write_text(text)
        monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", str(file))

    return use


def test_a_pre_release_alone(listing: Any) -> None:
    rows = json.loads(catalogue(["3.19.0"]))
    rows["cpython-3.19.0-linux-x86_64-gnu"] |= {"prerelease": "a2"}
    rows["cpython-3.19.0-linux-x86_64-gnu"]["url"] = rows["cpython-3.19.0-linux-x86_64-gnu"]["url"].replace(
        "3.19.0", "3.19.0a2"
    )
    listing(json.dumps(rows))
    with pytest.raises(CellError, match=r"a pre-release alone, 3\.19\.0a2"):
        choose_python("3.19", "linux/amd64")


def test_a_catalogue_that_uv_does_not_read(listing: Any) -> None:
    listing("{")
    with pytest.raises(UsageError, match="uv lists no Pythons"):
        offered("linux/amd64")


@pytest.fixture
def mirror(listing: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[PythonMirrorDouble]:
    listing(catalogue(["3.12.1"]))
    double = PythonMirrorDouble({f"{BUILD}/{FILE}": CONTENT})
    with double.serve() as address:
        monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", address)
        yield double


def pin(
    cache: Path, known: str | None = None, check: Any = lambda _path: None, **options: Any
) -> tuple[Any, list[str]]:
    notes: list[str] = []
    archives = PythonArchives(cache=cache, client=Client(retries=0))
    one = choose_python("3.12", "linux/amd64")
    return archives.pin(one, known=known, check=check, note=notes.append, **options), notes


def test_the_first_fetch_decides(mirror: PythonMirrorDouble, tmp_path: Path) -> None:
    found, notes = pin(tmp_path / "cache")
    assert (found.version, found.build, found.file, found.sha256, found.size) == (
        "3.12.1", BUILD, FILE, SUM, len(CONTENT),
    )  # fmt: skip
    assert ["gives no sum of" in note for note in notes] == [True]
    archives = PythonArchives(cache=tmp_path / "cache")
    assert archives.fetch(found).read_bytes() == CONTENT
    assert mirror.asked == [f"{BUILD}/SHA256SUMS", f"{BUILD}/{FILE}"]
    archives.place(found).write_bytes(b"a disk's fault")
    assert archives.fetch(found).read_bytes() == CONTENT


@pytest.mark.parametrize("form", ["{sum}  {file}", "{sum} *{file}\r", "{SUM}  {file}"])
def test_the_release_s_own_sums(mirror: PythonMirrorDouble, tmp_path: Path, form: str) -> None:
    lines = ["0" * 64 + "  other.tar.gz", form.format(sum=SUM, SUM=SUM.upper(), file=FILE), "not a line"]
    mirror.files[f"{BUILD}/SHA256SUMS"] = "\n".join(lines).encode()
    found, notes = pin(tmp_path)
    assert (found.sha256, notes) == (SUM, [])


def test_sums_that_are_cut_are_none(mirror: PythonMirrorDouble, tmp_path: Path) -> None:
    mirror.files[f"{BUILD}/SHA256SUMS"] = Answer(200, f"{SUM}  {FILE}\n".encode(), break_after=20)
    found, notes = pin(tmp_path)
    assert found.sha256 == SUM
    assert ["gives no sum of" in note for note in notes] == [True]


@pytest.mark.parametrize("told", ["by the release", "by uv"])
def test_another_file_than_the_sum_says(mirror: PythonMirrorDouble, tmp_path: Path, told: str) -> None:
    mirror.files[f"{BUILD}/SHA256SUMS"] = f"{'0' * 64}  {FILE}\n".encode()
    with pytest.raises(PackageIndexError, match="the file that arrived is another one") as raised:
        pin(tmp_path, known="0" * 64 if told == "by uv" else None)
    assert SUM in raised.value.message
    assert [path for path in tmp_path.rglob("*.gz") if path.is_file() and path.stat().st_size] == []


def test_what_the_check_refuses_is_not_kept(mirror: PythonMirrorDouble, tmp_path: Path) -> None:
    def refuse(_path: Path) -> None:
        raise CellError("is something else")

    with pytest.raises(CellError, match="is something else"):
        pin(tmp_path / "cache", check=refuse)
    assert list((tmp_path / "cache").rglob("*.gz")) == []


def test_a_known_sum_is_locked_without_the_archive(mirror: PythonMirrorDouble, tmp_path: Path) -> None:
    mirror.files.clear()
    found, notes = pin(tmp_path, known="a" * 64)
    assert (found.sha256, found.size) == ("a" * 64, 0)
    assert "was not fetched" in notes[0]
    with pytest.raises(PackageIndexError, match="could not be downloaded"):
        pin(tmp_path, known="a" * 64, at_once=True)
    with pytest.raises(PackageIndexError, match="could not be downloaded"):
        pin(tmp_path)


def test_a_catalogue_that_moved_on_still_leads_to_the_old_build(
    mirror: PythonMirrorDouble, listing: Any, tmp_path: Path
) -> None:
    found, _ = pin(tmp_path / "here")
    listing(catalogue(["3.12.2", "3.13.0"]))
    assert PythonArchives(cache=tmp_path / "there").fetch(found).read_bytes() == CONTENT


def test_a_mirror_of_this_machine_alone(
    mirror: PythonMirrorDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", "file:///srv/mirror")
    with pytest.raises(PackageIndexError, match="a lock must work on every machine"):
        pin(tmp_path)


def test_a_login_is_in_no_message(
    mirror: PythonMirrorDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.files.clear()
    host = pythons.offered("linux/amd64")[0].url.split("/")[2]
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", f"http://user:s3cret@{host}/pbs")
    with pytest.raises(PackageIndexError) as raised:
        pin(tmp_path)
    assert "s3cret" not in f"{raised.value.message}{raised.value.hint}"
