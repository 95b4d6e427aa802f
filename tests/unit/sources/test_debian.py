"""Debian packages with the real apt, against a signed archive of made-up packages on loopback."""

from __future__ import annotations

import email.utils
import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from doubles.http_server import Server

from builder.core.errors import CellError, MissingToolError, PackageIndexError
from builder.sources import debian
from builder.sources.debian import (
    AptSource,
    Debian,
    HostSource,
    archives_of,
    cache_path,
    host_proxies,
    host_sources,
    older_lists,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.sources.net.http import Client

DATES = {"debian": 1_600_000_000, "debian-security": 1_700_000_000}
# The tests of apt itself need what Debian and Ubuntu have: apt, dpkg-dev's dpkg-deb, and gnupg to sign with.
needs_apt = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("apt-get", "dpkg-deb", "gpg")),
    reason="needs apt, dpkg-deb and gpg",
)


@dataclass
class Archives:
    server: Server
    root: Path
    keyring: Path

    def debian(self, cache: Path, client: Client, **options: object) -> Debian:
        mirrors = {name: f"{self.server.url}/{name}" for name in DATES}
        return Debian(mirrors, cache=cache, client=client, keyring=self.keyring, **options)  # type: ignore[arg-type]


def control(name: str, version: str, architecture: str = "amd64", **fields: str) -> str:
    lines = [f"Package: {name}", f"Version: {version}", f"Architecture: {architecture}"]
    lines += ["Maintainer: nobody <nobody@example.invalid>", "Description: made up"]
    lines += [f"{key.replace('_', '-')}: {value}" for key, value in fields.items()]
    return "\n".join(lines) + "\n"


PACKAGES = {
    "debian": [
        control("base-thing", "1:1.0+x~1-2", Essential="yes", Depends="libthing"),
        control("libthing", "1.0", Recommends="not-wanted"),
        control("not-wanted", "1.0"),
        control("apt", "2.0"),
        control("ca-certificates", "2021", "all"),
        control("python3", "3.9.2-3"),
        control("python3-distutils", "3.9.2-1", "all"),
        control("git", "2.30", Depends="libthing (>= 0.5)"),
        control("broken", "1.0", Depends="absent"),
    ],
    "debian-security": [control("libthing", "1.1+deb11u1")],
}


def _packages(root: Path, archive: str) -> str:
    """Build the archive's packages; the text of its Packages file."""
    stanzas = []
    for text in PACKAGES[archive]:
        fields = dict(line.split(": ", 1) for line in text.splitlines())
        tree = root / "build" / archive / fields["Package"]
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(text)
        plain = fields["Version"].rpartition(":")[2]
        path = f"pool/main/{fields['Package']}_{plain}_{fields['Architecture']}.deb"
        (root / archive / path).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Znone", "-b", tree, root / archive / path],
            check=True,
            capture_output=True,
        )
        content = (root / archive / path).read_bytes()
        hashed = hashlib.sha256(content).hexdigest()
        stanzas.append(f"{text}Filename: {path}\nSize: {len(content)}\nSHA256: {hashed}\n")
    return "\n".join(stanzas)


def _publish(root: Path, archive: str, suite: str, gpg: list[str]) -> None:
    packages = _packages(root, archive).encode()
    folder = root / archive / "dists" / suite
    (folder / "main/binary-amd64").mkdir(parents=True)
    (folder / "main/binary-amd64/Packages").write_bytes(packages)
    release = (
        f"Origin: Debian\nSuite: {suite}\nCodename: {suite}\nArchitectures: amd64\nComponents: main\n"
        f"Date: {email.utils.formatdate(DATES[archive], usegmt=True)}\n"
        f"Valid-Until: {email.utils.formatdate(DATES[archive] + 1000, usegmt=True)}\n"
        f"SHA256:\n {hashlib.sha256(packages).hexdigest()} {len(packages)} main/binary-amd64/Packages\n"
    )
    signed = subprocess.run([*gpg, "--clearsign"], input=release.encode(), check=True, capture_output=True)
    (folder / "InRelease").write_bytes(signed.stdout)
    dates = [email.utils.formatdate(DATES[archive] - ago, usegmt=True) for ago in (0, 86400)]
    older = release.replace(f"Date: {dates[0]}", f"Date: {dates[1]}").encode()
    signed = subprocess.run([*gpg, "--clearsign"], input=older, check=True, capture_output=True)
    (root / "older-InRelease").write_bytes(signed.stdout)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archives]:
    root = tmp_path_factory.mktemp("archives")
    home = (
        Path(os.environ.get("TMPDIR", "/tmp")) / f"rtbuild-gpg-{os.getpid()}"
    )  # its sockets want a short path
    home.mkdir(mode=0o700)
    gpg = [
        "gpg",
        "--homedir",
        str(home),
        "--batch",
        "--quiet",
        "--pinentry-mode",
        "loopback",
        "--passphrase",
        "",
    ]
    try:
        subprocess.run(
            [*gpg, "--quick-gen-key", "test@example.invalid", "ed25519", "sign", "never"], check=True
        )
        keyring = root / "keyring.gpg"
        subprocess.run([*gpg, "--output", str(keyring), "--export"], check=True)
        _publish(root, "debian", "bullseye", gpg)
        _publish(root, "debian-security", "bullseye-security", gpg)
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "gpg-agent"], check=False)
        shutil.rmtree(home, ignore_errors=True)
    server = Server()
    for archive in DATES:
        for path in (root / archive).rglob("*"):
            if path.is_file():
                server.file("/" + path.relative_to(root).as_posix(), path.read_bytes())
    yield Archives(server, root, keyring)
    server.stop()


@needs_apt
def test_resolve_and_fetch(archives: Archives, tmp_path: Path, client: Client) -> None:
    notes: list[str] = []
    found = archives.debian(tmp_path, client, note=notes.append)
    base = found.resolve("bullseye", platform="linux/amd64", packages=["git"])
    assert [(deb.package, deb.version, deb.archive) for deb in base.debs] == [
        ("apt", "2.0", "debian"),
        ("base-thing", "1:1.0+x~1-2", "debian"),
        ("ca-certificates", "2021", "debian"),
        ("git", "2.30", "debian"),
        ("libthing", "1.1+deb11u1", "debian-security"),
        ("python3", "3.9.2-3", "debian"),
        ("python3-distutils", "3.9.2-1", "debian"),
    ]
    assert base.suite == "bullseye"
    assert base.epoch == DATES["debian-security"]
    thing = base.debs[1]
    assert thing.file == "pool/main/base-thing_1.0+x~1-2_amd64.deb"
    assert [note.rpartition(" has no ")[2] for note in notes] == [
        "suite bullseye-updates: resolved without it"
    ]

    counts: list[int] = []
    paths = found.fetch(base.debs, progress=counts.append)
    assert paths == [cache_path(deb, tmp_path) for deb in base.debs]
    assert paths[1].read_bytes() == (archives.root / "debian" / thing.file).read_bytes()
    assert sum(counts) == sum(deb.size for deb in base.debs)

    asked = len(archives.server.requests)
    assert len(found.resolve("bullseye", platform="linux/amd64").debs) == 6
    assert len(archives.server.requests) == asked


@needs_apt
def test_what_the_lists_have_today(archives: Archives, tmp_path: Path, client: Client) -> None:
    notes: list[str] = []
    found = archives.debian(tmp_path, client, note=notes.append)
    packages = ["libthing", "base-thing", "gone", "--version", "Not A Name"]
    today = found.today("bullseye", platform="linux/amd64", packages=packages)
    assert today.newest == {"libthing": "1.1+deb11u1", "base-thing": "1:1.0+x~1-2"}
    assert today.security == {"libthing": "1.1+deb11u1"}
    dates = [(one.suite, one.date, one.valid_until, one.newest) for one in today.releases]
    main, security = DATES.values()
    assert dates == [
        ("bullseye-security", security, security + 1000, security),
        ("bullseye", main, main + 1000, main),
    ]
    assert len(notes) == 1
    later = tmp_path / "apt" / "bullseye-amd64" / "newest-lists.json"
    assert json.loads(later.read_text()) == {"bullseye": main, "bullseye-security": security}
    later.write_text(json.dumps({"bullseye-security": security + 86400}))
    again = archives.debian(tmp_path, client, note=notes.append)
    (older,) = (
        text for one in again.today("bullseye", platform="linux/amd64", packages=[]).releases
        if (text := older_lists(one))
    )  # fmt: skip
    assert "2023-11-14 22:13, and this machine had some of 2023-11-15 22:13" in older
    assert older in notes


@needs_apt
def test_an_older_answer_than_the_last_one_is_said(
    archives: Archives, tmp_path: Path, client: Client
) -> None:
    """apt takes the older lists for none, keeps its own, and prints what it does for lists without news."""
    suite = {"suite": "bullseye", "platform": "linux/amd64", "packages": ["libthing"]}
    first = archives.debian(tmp_path, client).today(**suite)  # type: ignore[arg-type]
    assert [older_lists(one) for one in first.releases] == [None, None]
    path = "/debian-security/dists/bullseye-security/InRelease"
    now = (archives.root / path[1:]).read_bytes()
    try:
        archives.server.file(path, (archives.root / "older-InRelease").read_bytes())
        notes: list[str] = []
        again = archives.debian(tmp_path, client, note=notes.append).today(**suite)  # type: ignore[arg-type]
    finally:
        archives.server.file(path, now)
    assert again.security == first.security
    security, main = again.releases
    assert security.date == security.newest == DATES["debian-security"]
    assert older_lists(main) is None
    assert older_lists(security) == (
        "the archive has lists of bullseye-security of 2023-11-13 22:13, and this machine keeps those of "
        "2023-11-14 22:13: a mirror that lags, or an old answer"
    )
    assert older_lists(security) in notes


def test_an_archive_that_does_not_answer_has_no_date(tmp_path: Path, client: Client) -> None:
    archive = Debian({"debian": "http://127.0.0.1:1"}, cache=tmp_path, client=client)
    source = AptSource("http://127.0.0.1:1", "bookworm", optional=False, check_valid_until=True)
    assert archive._answered(source) is None


@pytest.mark.parametrize("suite", ["", "..", "x y", "x\ndeb [trusted=yes] file:. x", "--help"])
def test_a_suite_is_a_name(suite: str, tmp_path: Path) -> None:
    with pytest.raises(CellError, match="is no name of a suite"):
        Debian({"debian": "http://127.0.0.1:1/debian"}, cache=tmp_path).today(
            suite, platform="linux/amd64", packages=[]
        )


@needs_apt
def test_a_package_that_is_not_there(archives: Archives, tmp_path: Path, client: Client) -> None:
    found = archives.debian(tmp_path, client)
    with pytest.raises(PackageIndexError, match="Unable to locate package no-such") as caught:
        found.resolve("bullseye", platform="linux/amd64", packages=["no-such"])
    assert "check the name" in (caught.value.hint or "")
    with pytest.raises(PackageIndexError, match="unmet dependencies") as caught:
        found.resolve("bullseye", platform="linux/amd64", packages=["broken"])
    assert "cannot be installed together" in (caught.value.hint or "")


@needs_apt
def test_another_key_is_refused(archives: Archives, tmp_path: Path, client: Client) -> None:
    found = archives.debian(tmp_path, client)
    found.keyring = tmp_path / "empty.gpg"
    found.keyring.write_bytes(b"")
    with pytest.raises(PackageIndexError, match="could not be fetched") as caught:
        found.resolve("bullseye", platform="linux/amd64")
    assert "debian-archive-keyring" in (caught.value.hint or "")


@needs_apt
def test_a_suite_that_is_not_there(archives: Archives, tmp_path: Path, client: Client) -> None:
    with pytest.raises(PackageIndexError, match="trixie"):
        archives.debian(tmp_path, client).resolve("trixie", platform="linux/amd64")


@needs_apt
def test_a_package_that_was_replaced(archives: Archives, tmp_path: Path, client: Client) -> None:
    found = archives.debian(tmp_path, client)
    base = found.resolve("bullseye", platform="linux/amd64")
    deb = next(deb for deb in base.debs if deb.package == "libthing")
    route = f"/debian-security/{deb.file}"
    kept = archives.server._routes.pop(route)
    try:
        with pytest.raises(
            PackageIndexError, match=r"libthing 1\.1\+deb11u1 could not be downloaded"
        ) as caught:
            found.fetch([deb])
    finally:
        archives.server._routes[route] = kept
    assert "RTBUILD_DEBIAN_SECURITY_MIRROR" in (caught.value.hint or "")
    assert "rtbuild lock --upgrade" in (caught.value.hint or "")


def test_without_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("RTBUILD_DEBIAN_MIRROR", "http://mirror.invalid/debian")
    with pytest.raises(MissingToolError, match="apt-get, which this machine lacks"):
        Debian(cache=tmp_path, keyring=tmp_path).resolve("bullseye", platform="linux/amd64")


def test_without_debians_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "KEYRINGS", (tmp_path / "absent.gpg",))
    with pytest.raises(MissingToolError, match="key that Debian signs") as caught:
        Debian(cache=tmp_path).resolve("bullseye", platform="linux/amd64")
    assert "debian-archive-keyring" in (caught.value.hint or "")


def source(uri: str, suite: str, origin: str = "Debian", component: str = "main") -> HostSource:
    return HostSource(uri=uri, suite=suite, component=component, origin=origin)


def test_the_hosts_own_sources() -> None:
    host = [
        source("http://vendor.invalid/debian/12/prod", "bookworm", origin="vendor"),
        source("http://vendor.invalid/linux/debian", "bookworm", component="stable", origin=""),
        source("cdrom:/x", "bookworm", origin=""),
        source("http://m.invalid/debian", "bookworm"),
        source("http://m.invalid/debian", "bookworm-updates"),
        source("http://s.invalid/security", "bookworm-security"),
        source("http://later.invalid/debian", "trixie"),
    ]
    assert archives_of({}, lambda: host) == {
        "debian": "http://m.invalid/debian",
        "debian-security": "http://s.invalid/security",
    }
    assert archives_of({"RTBUILD_DEBIAN_MIRROR": "http://x.invalid/debian/"}, lambda: host) == {
        "debian": "http://x.invalid/debian",
        "debian-security": "http://s.invalid/security",
    }
    assert archives_of({"RTBUILD_DEBIAN_MIRROR": "http://x.invalid/debian"}, list) == {
        "debian": "http://x.invalid/debian",
        "debian-security": "http://x.invalid/debian-security",
    }


def test_a_host_without_debian() -> None:
    ubuntu = [
        source("http://u.invalid/ubuntu", "jammy", origin="Ubuntu"),
        source("http://u.invalid/ubuntu", "jammy-security"),
    ]
    with pytest.raises(MissingToolError, match="knows no Debian archive") as caught:
        archives_of({}, lambda: ubuntu)
    assert "RTBUILD_DEBIAN_MIRROR" in (caught.value.hint or "")


def test_lines_of_indextargets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = r"http://m.invalid/debian/\tbookworm\tmain\tDebian\nhttp://n.invalid\tsid\tmain\t$(ORIGIN)\n"
    (tmp_path / "apt-get").write_text(f"#!/bin/sh\nprintf '{lines}'\n")
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host_sources() == (
        source("http://m.invalid/debian", "bookworm"),
        source("http://n.invalid", "sid", origin=""),
    )


def test_a_machine_without_apt_has_no_settings_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`doctor --network` on Fedora was a traceback."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host_proxies() == {}
