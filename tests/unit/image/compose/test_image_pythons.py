"""Archives of standalone Pythons: what is laid out, and all that is refused before any of it runs."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from builder.core.errors import CellError
from builder.image.compose.systems import PythonTree

if TYPE_CHECKING:
    from pathlib import Path

FILE = "cpython-3.12.4+20240726-x86_64-unknown-linux-gnu-install_only_stripped.tar.gz"
SYSCONFIG = b"""build_time_vars = {'AR': '/tools/llvm/bin/llvm-ar',
 'CC': '/tools/clang-linux64/18.0.8/bin/clang -pthread', 'CXX': 'clang++ -pthread',
 'CFLAGS': '-O3 -I/tools/deps/include -I/install/include -DCLANG=clang_is_a_word',
 'LDFLAGS': '-L/tools/deps/lib -Wl,-s',
 'LIBDIR': '/install/lib', 'INCLUDEPY': '/install/include/python3.12', 'prefix': '/install',
 'HOME': '/opt/install/else', 'DOC': '/installed'}
"""


def program(machine: int = 62, loader: bytes = b"/lib64/ld-linux-x86-64.so.2") -> bytes:
    """An ELF file of 64 bits that says no more than whose program it is."""
    head = (
        b"\x7fELF\x02\x01\x01"
        + b"\0" * 9
        + struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    )
    header = struct.pack("<IIQQQQQQ", 3, 4, 120, 0, 0, len(loader) + 1, len(loader) + 1, 1)
    return head + header + loader + b"\0"


def contents(**changes: Any) -> dict[str, Any]:
    """Members by path: bytes, or a TarInfo's fields."""
    found: dict[str, Any] = {
        "python/bin/python3.12": program(),
        "python/bin/python3": {"type": tarfile.SYMTYPE, "linkname": "python3.12"},
        "python/bin/pip3": b"#!/bin/sh\n",
        "python/include/python3.12/patchlevel.h": b'#define PY_VERSION      "3.12.4"\n',
        "python/include/python3.12/pyconfig.h": b"/* #undef Py_GIL_DISABLED */\n",
        "python/lib/python3.12/os.py": b"import sys\n",
        "python/lib/python3.12/copy.py": {"type": tarfile.LNKTYPE, "linkname": "python/lib/python3.12/os.py"},
        "python/lib/python3.12/__pycache__/os.cpython-312.pyc": b"x",
        "python/lib/python3.12/test/test_os.py": b"x",
        "python/lib/python3.12/unittest/test_thing.py": b"kept: no folder of tests\n",
        "python/lib/python3.12/site-packages/pip/__init__.py": b"x",
        "python/lib/python3.12/_sysconfigdata__linux_x86_64-linux-gnu.py": SYSCONFIG,
    }
    return found | changes


def archive(path: Path, members: dict[str, Any], *, mode: int = 0o755, mtime: int = 1_900_000_000) -> Path:
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.mode, info.mtime, info.uid = mode, mtime, 1000
            fields = content if isinstance(content, dict) else {}
            for key, value in fields.items():
                setattr(info, key, value)
            data = content if isinstance(content, bytes) else b""
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def laid(path: Path, **options: Any) -> dict[str, tarfile.TarInfo]:
    out = io.BytesIO()
    read(path, **options).write(out)
    out.seek(0)
    with tarfile.open(fileobj=out) as tar:
        return {member.name: member for member in tar}


def read(path: Path, *, platform: str = "linux/amd64", version: str = "3.12.4") -> Any:
    return PythonTree(path, file=FILE, version=version, platform=platform)


def test_what_images_get(tmp_path: Path) -> None:
    path = archive(tmp_path / "a", contents(), mode=0o4755)
    found = laid(path)
    assert list(found) == [
        "opt", "opt/python", "opt/python/bin", "opt/python/bin/python3", "opt/python/bin/python3.12",
        "opt/python/include", "opt/python/include/python3.12", "opt/python/include/python3.12/patchlevel.h",
        "opt/python/include/python3.12/pyconfig.h", "opt/python/lib", "opt/python/lib/python3.12",
        "opt/python/lib/python3.12/_sysconfigdata__linux_x86_64-linux-gnu.py",
        "opt/python/lib/python3.12/copy.py", "opt/python/lib/python3.12/os.py",
        "opt/python/lib/python3.12/unittest", "opt/python/lib/python3.12/unittest/test_thing.py",
    ]  # fmt: skip
    assert {member.mode for member in found.values()} == {0o755, 0o777}
    assert {(member.uid, member.gid, member.mtime) for member in found.values()} == {(0, 0, 315619200)}
    assert found["opt/python/bin/python3"].linkname == "python3.12"


def test_the_layer_is_a_function_of_the_content(tmp_path: Path) -> None:
    outs = [io.BytesIO(), io.BytesIO()]
    members = contents()
    shuffled = dict(sorted(members.items(), key=lambda pair: pair[0] != "python/lib/python3.12/os.py"))
    read(archive(tmp_path / "a", members)).write(outs[0])
    read(archive(tmp_path / "b", shuffled, mtime=5)).write(outs[1])
    assert outs[0].getvalue() == outs[1].getvalue()


def test_paths_and_compilers_of_the_building_machine_are_mended(tmp_path: Path) -> None:
    out = io.BytesIO()
    read(archive(tmp_path / "a", contents())).write(out)
    out.seek(0)
    with tarfile.open(fileobj=out) as tar:
        file = tar.extractfile("opt/python/lib/python3.12/_sysconfigdata__linux_x86_64-linux-gnu.py")
        assert file is not None
        variables: dict[str, Any] = {}
        exec(file.read(), variables)
    assert variables["build_time_vars"] == {
        "AR": "ar",
        "CC": "cc -pthread",
        "CXX": "c++ -pthread",
        "CFLAGS": "-O3 -I/opt/python/include -DCLANG=clang_is_a_word",
        "LDFLAGS": " -Wl,-s",
        "LIBDIR": "/opt/python/lib",
        "INCLUDEPY": "/opt/python/include/python3.12",
        "prefix": "/opt/python",
        "HOME": "/opt/install/else",
        "DOC": "/installed",
    }


LINK = tarfile.SYMTYPE


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"../x": b""}, "it holds '../x', which is not below python/"),
        ({"/etc/x": b""}, "it holds 'etc/x', which is not below python/"),
        ({"python/../../x": b""}, "which is not below python/"),
        ({"python/a\nb": b""}, "which is not below python/"),
        ({"python/..\\x": b""}, "which is not below python/"),
        ({"python": b""}, "which is not below python/"),
        (
            {"python/lib/x": {"type": LINK, "linkname": "/etc/shadow"}},
            "'lib/x' links out of it, to '/etc/shadow'",
        ),
        ({"python/lib/x": {"type": LINK, "linkname": "../../../x"}}, "'lib/x' links out of it"),
        (
            {"python/lib/y": {"type": LINK, "linkname": "bin"}, "python/lib/y/z": b""},
            "it holds 'lib/y/z' below something that is no folder",
        ),
        ({"python/lib/y/z": b"", "python/lib/y": b""}, "'lib/y/z' below something that is no folder"),
        ({"python/x": {"type": tarfile.LNKTYPE, "linkname": "/etc/shadow"}}, "which is not before it"),
        ({"python/x": {"type": tarfile.FIFOTYPE}}, "'x' is a device or a pipe"),
        ({"python/x": {"type": tarfile.CHRTYPE}}, "'x' is a device or a pipe"),
        (
            {"python/bin/python3.12": b"#!/bin/sh\ntouch /tmp/ran\n"},
            "is no program for Linux on a machine of 64",
        ),
        ({"python/bin/python3.12": program(183)}, "its Python is for linux/arm64, not linux/amd64"),
        ({"python/bin/python3.12": program(243)}, "is for the ELF machine 243, not linux/amd64"),
        ({"python/bin/python3.12": program(62, b"/lib/ld-musl-x86_64.so.1")}, "its Python is for musl"),
        ({"python/include/python3.12/pyconfig.h": b"#define Py_GIL_DISABLED 1\n"}, "a free-threaded build"),
        ({"python/include/python3.12/pyconfig.h": b"#define Py_DEBUG 1\n"}, "a debug build"),
        (
            {"python/include/python3.12/patchlevel.h": b'#define PY_VERSION "3.12.5"\n'},
            "it holds Python 3.12.5, and not 3.12.4",
        ),
    ],
)
def test_what_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(CellError) as raised:
        read(archive(tmp_path / "a", contents() | changes))
    assert raised.value.message.startswith(f"{FILE} is not what its name says: ")
    assert said in raised.value.message


def test_another_python_inside(tmp_path: Path) -> None:
    other = {name.replace("3.12", "3.11"): content for name, content in contents().items()}
    other["python/lib/python3.11/copy.py"] = b""
    other["python/bin/python3"] = {"type": LINK, "linkname": "python3.11"}
    with pytest.raises(CellError, match=r"holds no CPython 3\.12: it has bin/python3, bin/python3\.11"):
        read(archive(tmp_path / "a", other))


def test_a_name_that_comes_twice(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a", "w:gz") as tar:
        for text in (b"1", b"2"):
            info = tarfile.TarInfo("python/lib/x")
            info.size = 1
            tar.addfile(info, io.BytesIO(text))
    with pytest.raises(CellError, match="holds 'lib/x' twice"):
        read(tmp_path / "a")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<!DOCTYPE html><title>Sign in</title>", "it is no gzip archive, and begins with '<!DOCTYPE html>"),
        (b"", "it is no gzip archive"),
        (gzip.compress(b"hello", mtime=0), "cannot be unpacked"),
        (gzip.compress(b"\0" * 1024, mtime=0), "it has no program of Python at all"),
    ],
)
def test_what_is_no_archive(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(CellError, match=said):
        read(tmp_path / "a")


def test_one_that_ends_early(tmp_path: Path) -> None:
    whole = archive(tmp_path / "a", contents() | {"python/lib/big.py": bytes(range(256)) * 4096}).read_bytes()
    (tmp_path / "b").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CellError, match="cannot be unpacked"):
        read(tmp_path / "b")


def test_a_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builder.image.compose.systems._MOST_BYTES", 1 << 20)
    path = archive(tmp_path / "a", contents() | {"python/lib/big.py": b"\0" * (2 << 20)})
    with pytest.raises(CellError, match="unpacks to more than"):
        read(path)
