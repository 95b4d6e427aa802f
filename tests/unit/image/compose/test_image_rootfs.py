"""A rootfs without mmdebstrap: what it is told, what it is not, and what becomes of its failures."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import stat
import sys
import tarfile
import threading
from typing import TYPE_CHECKING

import pytest

from builder.core.errors import CellError, CommandError, MissingToolError
from builder.core.model import Deb, RootfsBase
from builder.image.compose import systems
from builder.image.compose.systems import SCRIPT, cached_rootfs, make

if TYPE_CHECKING:
    from pathlib import Path

EPOCH = 1_789_205_228

MMDEBSTRAP = (
    f"#!{sys.executable} -IS\n"
    """
import io, json, os, pathlib, sys, tarfile
here = pathlib.Path(__file__).parent
if sys.argv[1:] == ["--version"]:
    print("mmdebstrap " + (here / "version").read_text())
    sys.exit()
umask = os.umask(0)
hook = next(a for a in sys.argv if a.startswith("--customize-hook=")).partition("=")[2]
archive = sys.argv[-1].split("copy://")[1].split()[0]
with (here / "calls").open("a") as calls:
    calls.write(json.dumps({
        "arguments": sys.argv[1:], "environment": dict(os.environ), "umask": umask,
        "hook": [oct(os.stat(hook).st_mode), pathlib.Path(hook).read_text()],
        "packages": (pathlib.Path(archive) / "Packages").read_text(),
        "files": {p.name: oct(p.stat().st_mode) for p in pathlib.Path(archive).iterdir()},
    }) + "\\n")
print("E: line one\\nE: line two", file=sys.stderr)
if (here / "fail").exists():
    sys.stdout.write("half a tar")
    sys.exit(25)
status = (here / "status").read_bytes()
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as tar:
    info = tarfile.TarInfo("./var/lib/dpkg/status")
    info.size = len(status)
    tar.addfile(info, io.BytesIO(status))
"""
)
DPKG_DEB = """#!/bin/sh
[ "$1" = --field ] || exit 2
grep -v '^data' "$2"
"""


def status(*packages: tuple[str, str]) -> str:
    return "\n".join(
        f"Package: {name}\nStatus: install ok installed\nVersion: {version}\nDescription: x\n folded: text\n"
        for name, version in packages
    )


@pytest.fixture
def tools(tmp_path, monkeypatch):
    folder = tmp_path / "tools"
    folder.mkdir()
    for name, text in {"mmdebstrap": MMDEBSTRAP, "dpkg-deb": DPKG_DEB}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "version").write_text("1.3.5")
    (folder / "status").write_text(status(("libc6", "2.31"), ("python3.9", "3.9.2")))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.fixture
def debs(tmp_path):
    return [package(tmp_path, "libc6", "2.31"), package(tmp_path, "python3.9", "3.9.2")]


def package(folder: Path, name: str, version: str) -> tuple[Deb, Path]:
    path = folder / f"{name}_{version}_amd64.deb"
    path.write_text(f"Package: {name}\nVersion: {version}\nArchitecture: amd64\ndata {name}\n")
    content = path.read_bytes()
    deb = Deb(
        package=name,
        version=version,
        architecture="amd64",
        file=f"pool/{path.name}",
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        archive="debian",
    )
    return deb, path


def base_of(debs, **fields) -> RootfsBase:
    return RootfsBase(**{"suite": "bullseye", "debs": tuple(deb for deb, _ in debs), "epoch": EPOCH} | fields)


def paths(debs):
    return [path for _, path in debs]


def calls(tools):
    file = tools / "calls"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_what_mmdebstrap_is_told(tmp_path, tools, debs, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("LANG", "tlh_XX")
    before = os.umask(0o077)
    try:
        out = make(base_of(debs), paths(debs), tmp_path / "out.tar")
    finally:
        os.umask(before)
    (call,) = calls(tools)
    assert "--variant=custom" in call["arguments"]
    assert "--include=libc6,python3.9" in call["arguments"]
    assert "--architectures=amd64" in call["arguments"]
    assert ("--mode=root" in call["arguments"]) == (os.geteuid() == 0)
    assert call["arguments"][-3:-1] == ["bullseye", "-"]
    environment = call["environment"]
    assert environment["SOURCE_DATE_EPOCH"] == str(EPOCH)
    assert environment["LC_ALL"] == "C.UTF-8"
    assert not {"SECRET_TOKEN", "LANG"} & environment.keys()
    assert call["umask"] == 0o022
    assert call["hook"] == ["0o100755", SCRIPT.read_text("utf-8")]
    assert set(call["files"].values()) == {"0o100644"}
    with tarfile.open(out) as tar:
        dev = tar.getmember("./dev")
    assert (dev.isdir(), dev.mode, dev.mtime) == (True, 0o755, EPOCH)


@pytest.mark.parametrize("merged", [True, False])
def test_a_merged_system_is_merged_from_the_beginning(tmp_path, tools, debs, merged):
    if merged:
        debs.append(package(tmp_path, "usr-is-merged", "37"))
        (tools / "status").write_text(status(*((deb.package, deb.version) for deb, _ in debs)))
    make(base_of(debs), paths(debs), tmp_path / "out.tar")
    (call,) = calls(tools)
    assert [a for a in call["arguments"] if a.startswith("--setup-hook=")] == (
        [f"--setup-hook={systems._MERGE_USR}"] if merged else []
    )


def test_the_archive_is_the_lock_s(tmp_path, tools, debs):
    make(base_of(debs), paths(debs), tmp_path / "out.tar")
    (call,) = calls(tools)
    paragraphs = call["packages"].split("\n\n")
    assert [text.splitlines()[0] for text in paragraphs] == ["Package: libc6", "Package: python3.9"]
    deb = debs[0][0]
    assert paragraphs[0].splitlines()[-3:] == [
        f"Filename: ./{deb.sha256}.deb",
        f"Size: {deb.size}",
        f"SHA256: {deb.sha256}",
    ]
    assert call["files"].keys() == {"Packages", *(f"{deb.sha256}.deb" for deb, _ in debs)}


def test_nothing_of_the_work_is_left(tmp_path, tools, debs, monkeypatch):
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setattr(systems.tempfile, "tempdir", str(work))
    make(base_of(debs), paths(debs), tmp_path / "out.tar")
    assert list(work.iterdir()) == []


def test_a_mmdebstrap_that_does_not_start_is_a_fault_of_the_machine(tmp_path, tools):
    (tools / "version").unlink()
    with pytest.raises(MissingToolError, match=r"(?s)mmdebstrap does not start .*No such file"):
        systems._version()


@pytest.mark.parametrize("tool", ["mmdebstrap", "dpkg-deb"])
def test_a_missing_tool_says_what_to_install(tmp_path, tools, debs, monkeypatch, tool):
    (tools / tool).unlink()
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(MissingToolError, match=tool) as caught:
        make(base_of(debs), paths(debs), tmp_path / "out.tar")
    assert "apt-get install mmdebstrap" in str(caught.value.hint)


def test_a_package_that_changed_reaches_no_tool(tmp_path, tools, debs):
    debs[1][1].write_text("Package: evil\n")
    with pytest.raises(CellError, match="the lock says") as caught:
        make(base_of(debs), paths(debs), tmp_path / "out.tar")
    assert "python3.9_3.9.2_amd64.deb" in str(caught.value)
    assert calls(tools) == []


def test_a_failure_shows_the_command_and_its_last_lines(tmp_path, tools, debs):
    (tools / "fail").touch()
    with pytest.raises(CommandError, match=r"mmdebstrap 1\.3\.5 could not put bullseye together") as caught:
        make(base_of(debs), paths(debs), tmp_path / "out.tar")
    assert caught.value.returncode == 25
    assert caught.value.tail == ("E: line one", "E: line two")
    assert caught.value.command[0] == "mmdebstrap"
    assert not (tmp_path / "out.tar").exists()


@pytest.mark.parametrize(
    ("found", "named"),
    [
        ([("libc6", "2.31")], "python3.9 3.9.2"),
        ([("libc6", "2.31"), ("python3.9", "3.9.2"), ("cowsay", "3.03")], "cowsay 3.03"),
        ([("libc6", "2.32"), ("python3.9", "3.9.2")], "libc6 2.31, libc6 2.32"),
        ([], "libc6 2.31, python3.9 3.9.2"),
    ],
)
def test_a_system_that_is_not_the_lock_s_is_refused(tmp_path, tools, debs, found, named):
    (tools / "status").write_text(status(*found))
    with pytest.raises(CellError, match="does not hold what its lock says") as caught:
        make(base_of(debs), paths(debs), tmp_path / "out.tar")
    assert named in caught.value.message
    assert not (tmp_path / "out.tar").exists()


def test_a_second_call_makes_nothing(tmp_path, tools, debs):
    asked = []

    def fetch(wanted):
        asked.append(wanted)
        return paths(debs)

    first = cached_rootfs(base_of(debs), cache=tmp_path / "cache", fetch=fetch)
    assert cached_rootfs(base_of(debs), cache=tmp_path / "cache", fetch=fetch) == first
    assert asked == [base_of(debs).debs]
    assert len(calls(tools)) == 1
    assert first.parent == tmp_path / "cache" / "rootfs"
    assert {path.suffix for path in first.parent.iterdir()} == {".tar", ".sha256", ".lock"}


def test_what_a_killed_process_left_of_the_same_system_goes(tmp_path, tools, debs):
    def get():
        return cached_rootfs(base_of(debs), cache=tmp_path / "cache", fetch=lambda _: paths(debs))

    tar = get()
    left, other = tar.with_name(f".{tar.name[:12]}.left"), tar.with_name(".another-one.left")
    for folder in (left, other):
        folder.mkdir()
        (folder / tar.name).write_bytes(b"half a system")
    tar.unlink()
    get()
    assert not left.exists()
    assert other.exists(), "somebody may be at work there"


@pytest.mark.parametrize("damage", ["flipped", "cut", "unrecorded", "gone"])
def test_a_damaged_tar_is_made_again(tmp_path, tools, debs, damage):
    def get():
        return cached_rootfs(base_of(debs), cache=tmp_path / "cache", fetch=lambda _: paths(debs))

    tar = get()
    good = tar.read_bytes()
    if damage == "flipped":
        tar.write_bytes(good[:600] + b"X" + good[601:])
    elif damage == "cut":
        tar.write_bytes(good[:600])
    elif damage == "unrecorded":
        tar.with_suffix(".sha256").unlink()
    else:
        tar.unlink()
    assert get().read_bytes() == good
    assert len(calls(tools)) == 2


def test_the_key_moves_with_all_that_decides_the_tar(tmp_path, tools, debs):
    def get(base):
        return cached_rootfs(base, cache=tmp_path / "cache", fetch=lambda _: paths(debs))

    first = get(base_of(debs))
    assert get(base_of(debs, epoch=EPOCH + 1)) != first
    assert get(base_of(debs, suite="bookworm")) != first
    changed = [dataclasses.replace(debs[0][0], archive="debian-security"), debs[1][0]]
    assert (
        get(dataclasses.replace(base_of(debs), debs=tuple(changed))) == first
    )  # the same content from elsewhere
    (tools / "version").write_text("1.5.0")
    assert get(base_of(debs)) != first


def test_a_failure_leaves_nothing_in_the_cache(tmp_path, tools, debs):
    (tools / "fail").touch()
    with pytest.raises(CommandError):
        cached_rootfs(base_of(debs), cache=tmp_path / "cache", fetch=lambda _: paths(debs))
    assert {path.suffix for path in (tmp_path / "cache" / "rootfs").iterdir()} == {".lock"}


def test_several_at_once_make_it_once(tmp_path, tools, debs):
    found = []

    def get():
        found.append(cached_rootfs(base_of(debs), cache=tmp_path / "cache", fetch=lambda _: paths(debs)))

    threads = [threading.Thread(target=get) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 4
    assert len(calls(tools)) == 1


def test_the_finishing_script_is_sound_shell():
    assert SCRIPT.read_text("utf-8").startswith("#!/bin/sh\n")
    assert os.system(f"sh -n '{SCRIPT}'") == 0
    assert stat.S_ISREG(SCRIPT.stat().st_mode)
