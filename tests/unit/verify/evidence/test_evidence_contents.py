"""dpkg's list is found in layers as they come: any compression, hidden by another layer, damaged."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
import zstandard
from doubles import small_image

from builder.core.errors import EvidenceError
from builder.core.model import DebianPackage
from builder.verify.evidence import contents as module
from builder.verify.evidence.contents import parse_status, read_system

if TYPE_CHECKING:
    from pathlib import Path

    from builder.verify.evidence.contents import DpkgList

PACKAGES = tuple(
    sorted(DebianPackage(name=d.package, version=d.version, architecture="amd64") for d in small_image.DEBS)
)


class Layers:
    """Stands for the registry: blobs by digest."""

    def __init__(self, *blobs: bytes) -> None:
        self.blobs = {hashlib.sha256(blob).hexdigest(): blob for blob in blobs}
        self.asked: list[str] = []

    def fetch_blob(self, reference: Any, digest: str, to: Path, *, size: int = 0) -> Path:
        self.asked.append(digest)
        to.write_bytes(self.blobs[digest])
        return to


class Image:
    repository = "registry.example/team/tf"
    digest = "sha256:" + "0" * 64


def system(
    *blobs: bytes, media_type: str = small_image.GZIP, sizes: tuple[int, ...] = ()
) -> tuple[DpkgList, Layers]:
    registry = Layers(*blobs)
    layers = [
        {"digest": hashlib.sha256(blob).hexdigest(), "size": size, "mediaType": media_type}
        for blob, size in zip(blobs, sizes or [len(b) for b in blobs], strict=True)
    ]
    return read_system(registry, Image(), layers, note=lambda _text: None), registry  # type: ignore[arg-type]


STATUS = small_image.layer({"./var/lib/dpkg/status": small_image.status_file()})
OTHER = small_image.layer({"opt/x": b"x"})


def test_what_is_installed_and_what_is_only_remembered() -> None:
    assert parse_status(small_image.status_file().decode()) == PACKAGES


def test_the_topmost_list_counts() -> None:
    upper = small_image.layer(
        {"var/lib/dpkg/status": small_image.status_file("Package: new\nStatus: a ok installed")}
    )
    found, registry = system(STATUS, upper, OTHER)
    assert found.packages is not None
    assert "new" in {package.name for package in found.packages}
    assert len(registry.asked) == 2, "what lies below is not read"


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress, bytes])
def test_any_compression(pack: Any) -> None:
    found, _ = system(pack(gzip.decompress(STATUS)), media_type="application/vnd.oci.image.layer.v1.tar")
    assert found.packages == PACKAGES


def test_zstd_in_several_frames() -> None:
    plain = gzip.decompress(STATUS)
    compress = zstandard.ZstdCompressor().compress
    found, _ = system(compress(plain[:700]) + compress(plain[700:]))
    assert found.packages == PACKAGES


@pytest.mark.parametrize("name", ["var/lib/dpkg/.wh.status", "var/lib/.wh.dpkg", "var/lib/.wh..wh..opq"])
def test_a_layer_that_takes_it_away(name: str) -> None:
    found, _ = system(STATUS, small_image.layer({name: b""}))
    assert found.packages is None


def entries(*files: tuple[str, bytes, dict[str, Any]]) -> bytes:
    """A layer of these entries in this order; the last part has fields of the tar header."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content, fields in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for key, value in fields.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)


FEWER = b"Package: libc6\nStatus: install ok installed\nVersion: 1\nArchitecture: amd64\n"
LINK = {"type": tarfile.SYMTYPE, "linkname": "/tmp/x"}
SAID = ("var/lib/dpkg/status", small_image.status_file(), dict[str, Any]())


@pytest.mark.parametrize(
    "name",
    [
        "var//lib/dpkg/status", "./var/lib/dpkg/status", "/var/lib/dpkg/status", "var/./lib/dpkg/status",
        "var/lib/../lib/dpkg/status", "././var/lib/dpkg/status", "//var/lib/dpkg//status",
    ],
)  # fmt: skip
def test_the_list_is_found_by_the_path_that_an_engine_writes_to(name: str) -> None:
    assert system(entries((name, small_image.status_file(), {})))[0].packages == PACKAGES
    upper, _ = system(STATUS, entries((name, FEWER, {})))
    assert upper.packages is not None
    assert [package.version for package in upper.packages] == ["1"]


@pytest.mark.parametrize(
    "blob",
    [
        entries(SAID, ("var/lib/dpkg/status", FEWER, {})),
        entries(SAID, ("var//lib/dpkg/status", FEWER, {})),
        entries(("./var/lib/dpkg/status", FEWER, {}), SAID),
        entries(("var/lib/dpkg/status", b"", LINK)),
        entries(("var/lib/dpkg/status", b"", {"type": tarfile.LNKTYPE, "linkname": "tmp/x"})),
        entries(("var/lib/dpkg/status", b"", {"type": tarfile.DIRTYPE})),
        entries(("var/lib/dpkg/status", b"", {"type": tarfile.FIFOTYPE})),
        entries(SAID, ("var/lib/dpkg", b"", LINK)),
        entries(("var//lib", b"", LINK), ("tmp/x/dpkg/status", FEWER, {})),
        entries(("var", b"", {"type": tarfile.LNKTYPE, "linkname": "tmp/x"})),
    ],
    ids=[
        "twice", "twice by another path", "another first", "a link", "a hard link", "a folder", "a pipe",
        "a link above", "a link far above", "a hard link above",
    ],
)  # fmt: skip
def test_a_list_that_two_readers_see_differently_is_refused(blob: bytes) -> None:
    for layers in [(blob,), (STATUS, blob)]:
        with pytest.raises(EvidenceError, match=r"/var\S* is (no folder|there twice)"):
            system(*layers)


@pytest.mark.parametrize(
    "text",
    [
        "Package:new\nStatus:install ok installed\nVersion:1\nArchitecture:amd64",
        "PACKAGE: new\nstatus:   install ok installed\nversion: 1\narchitecture: amd64",
        (
            "Package: new\nDescription: x\x0bPackage: other\x85Status: deinstall ok config-files\n"
            "Status: install ok installed\nVersion: 1\nArchitecture: amd64"
        ),
        (
            "Package: a\nStatus: deinstall ok config-files\n \t\nPackage: new\nStatus: install ok installed\n"
            "Version: 1\nArchitecture: amd64"
        ),
    ],
    ids=["no blank", "other case", "other ends of lines", "a line of blanks"],
)
def test_the_list_is_read_as_dpkg_reads_it(text: str) -> None:
    assert parse_status(text) == (DebianPackage(name="new", version="1", architecture="amd64"),)


def test_a_field_that_is_there_twice_is_refused() -> None:
    with pytest.raises(EvidenceError, match="twice"):
        parse_status("Package: a\nStatus: install ok installed\npackage: b")


def test_an_image_without_dpkg() -> None:
    found, _ = system(OTHER)
    assert (found.packages, found.skipped) == (None, 0)


def test_large_layers_are_not_read_but_the_lowest_is() -> None:
    huge = module.LARGEST_READ + 1
    found, registry = system(STATUS, OTHER, sizes=(huge, huge))
    assert (found.packages, found.skipped) == (PACKAGES, 1)
    assert len(registry.asked) == 1


@pytest.mark.parametrize(
    "blob", [b"", b"no archive at all" * 100, STATUS[:200], b"\x28\xb5\x2f\xfd" + b"broken" * 9]
)
def test_a_layer_that_is_damaged(blob: bytes) -> None:
    with pytest.raises(EvidenceError, match="cannot be read"):
        system(blob)


def test_a_layer_that_unpacks_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LARGEST_LAYER", 1 << 20)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for number in range(4):
            member = tarfile.TarInfo(f"zeros{number}")
            member.size = 1 << 20
            archive.addfile(member, io.BytesIO(bytes(1 << 20)))
    with pytest.raises(EvidenceError, match="unpacks to more"):
        system(gzip.compress(buffer.getvalue()))


def test_a_header_that_fills_memory() -> None:
    """In a layer that whoever pushes to staging made."""
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 64 << 20
    with pytest.raises(EvidenceError, match="extended headers have"):
        system(
            gzip.compress(header.tobuf() + b"67108864 k=" + bytes((64 << 20) - 12) + b"\n" + bytes(1024), 1)
        )
