"""Sources, and what their builds say, fail their own cell: no traceback, and no memory without measure."""

from __future__ import annotations

import gzip
import io
import resource
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from layer_wheels import Builder
from sdist_files import backend, sdist
from test_sdist_workshop import Files, at, lock

from builder.core.errors import CellError
from builder.image.sdist.bench import refuse_address, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from builder.core.model import Wheel

__all__ = ["at"]
NAMES = {
    "long": '"' + "a" * 4096 + '.whl"',
    "nul": '"a\\u0000.whl"',
    "surrogate": '"\\ud800.whl"',
    "escape": '"\\u001b[2J.whl"',
    "deep": "[" * 100_000,
    "number": "9" * 5_000,
    "folder": '"../x.whl"',
    "list": "[]",
}


def says(text: str) -> str:
    """A backend's statement that gives this as its hook's result, and ends."""
    return f"os.write(3, {text!r}.encode() + b'\\n'); os._exit(0)"


@pytest.mark.parametrize("name", NAMES)
def test_a_wheel_of_any_name(at: Any, tmp_path: Path, name: str) -> None:
    index = Files(sdist(tmp_path / "tiny-1.0.tar.gz", backend(first=says(NAMES[name]))))
    with pytest.raises(CellError, match="ended without a wheel"):
        lock(at(), index)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "{}}", '["x; ' + "(" * 9_000 + '"]', '["\\ud800"]', "5", "9" * 5_000]
)
def test_requirements_that_are_none(at: Any, tmp_path: Path, text: str) -> None:
    index = Files(sdist(tmp_path / "tiny-1.0.tar.gz", backend(requires=says(text))))
    with pytest.raises(CellError, match="no list of requirements"):
        lock(at(), index)


def test_a_marker_that_is_deeper_than_calls_may_be() -> None:
    with pytest.raises(CellError, match="wants 'x"):
        refuse_address("x; " + "(" * 5_000, "tiny")


def test_a_wheel_that_expands_without_measure(at: Any, tmp_path: Path) -> None:
    first = 'zipfile.ZipFile.__init__.__defaults__ = ("r", zipfile.ZIP_DEFLATED, True, None)'
    index = Files(sdist(tmp_path / "tiny-1.0.tar.gz", backend(first=first, content="bytes(70 << 20)")))
    with pytest.raises(CellError, match="unpacks to more than 64 MiB"):
        lock(at(memory=64 << 20), index)


def test_wheels_that_build_and_do_not_go_together(
    at: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one with a folder where rtbuild's own file goes."""
    files = backend()
    files["pyproject.toml"] = files["pyproject.toml"].replace("[]", '["one"]', 1)
    index = Files(sdist(tmp_path / "tiny-1.0.tar.gz", files))
    (tmp_path / "wheels").mkdir()
    builder = Builder(tmp_path / "wheels")
    needs: list[Wheel] = []
    paths = {}
    for name, file in (("one", "a/b"), ("two", "a/b/c"), ("three", "inside.py/x")):
        made = builder.wheel(name, {file: b""})
        paths[made.wheel.sha256] = made.path
        needs.append(made.wheel)
    monkeypatch.setattr(index, "fetch_all", lambda *_, **__: paths)
    for chosen, said in ((needs[:2], "a/b"), (needs[2:], "inside.py")):
        monkeypatch.setattr(index, "resolve", lambda *_, chosen=chosen, **__: tuple(chosen))
        with pytest.raises(CellError, match=f"have {said}"):
            lock(at(), index)


def packed(path: Path, members: Iterator[tarfile.TarInfo]) -> Path:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member in members:
            archive.addfile(member)
    path.write_bytes(gzip.compress(made.getvalue(), 1))
    return path


MOST = 1000


def _folders() -> Iterator[tarfile.TarInfo]:
    for number in range(MOST // 50):
        member = tarfile.TarInfo("tiny/" + "/".join(f"{number}{part}" for part in range(60)))
        member.type = tarfile.DIRTYPE
        yield member


def _links() -> Iterator[tarfile.TarInfo]:
    for number in range(MOST + 1):
        member = tarfile.TarInfo(f"tiny/{number}")
        member.type, member.linkname = tarfile.SYMTYPE, "x"
        yield member


def _headers() -> Iterator[tarfile.TarInfo]:
    for number in range(150):
        member = tarfile.TarInfo(f"tiny/{number}")
        member.pax_headers = {"comment": "x" * 1_000_000}
        yield member


@pytest.mark.parametrize(("members", "said"), [(_folders, "holds more than"), (_links, "one too many")])
def test_more_than_files(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    members: Callable[[], Iterator[tarfile.TarInfo]],
    said: str,
) -> None:
    monkeypatch.setattr("builder.image.sdist.bench.MOST_FILES", MOST)
    with pytest.raises(CellError, match=said):
        unpack(packed(tmp_path / "tiny-1.0.tar.gz", members()), tmp_path / "out")


def test_attributes_are_not_gathered(tmp_path: Path) -> None:
    archive = packed(tmp_path / "tiny-1.0.tar.gz", _headers())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert len(list(unpack(archive, tmp_path / "out").iterdir())) == 150
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_headers_before_headers(tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 512 << 10
    record = b"524288 k=" + b"v" * (524288 - 10) + b"\n"
    (tmp_path / "tiny-1.0.tar.gz").write_bytes(gzip.compress((header.tobuf() + record) * 3, 1))
    with pytest.raises(CellError, match="extended headers have"):
        unpack(tmp_path / "tiny-1.0.tar.gz", tmp_path / "out")


def test_a_stream_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder may claim content, which is passed over: hours of it take a few megabytes."""
    monkeypatch.setattr("builder.image.sdist.bench.MOST_BYTES", 1 << 20)
    header = tarfile.TarInfo("tiny/x")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 100
    folder = tarfile.TarInfo("tiny/d")
    folder.type = tarfile.DIRTYPE
    empty = (folder.tobuf() + header.tobuf() + b"tiny/d".ljust(512, b"\0")) * 3000
    (tmp_path / "tiny-1.0.tar.gz").write_bytes(gzip.compress(empty, 1))
    with pytest.raises(CellError, match="unpacks to more than 2 MiB"):
        unpack(tmp_path / "tiny-1.0.tar.gz", tmp_path / "out")
