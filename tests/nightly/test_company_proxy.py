"""docs/behind-a-proxy.md, followed: a proxy with a login that opens TLS by an authority of its own.

The proxy is mitmproxy. The commands run in a network namespace whose only way out is that proxy: one that did
not honour the variables would reach nothing, and no name of a host is known there.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from uv import find_uv_bin

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.long,
    pytest.mark.docker,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2, for a namespace"
    ),
]

PORT = 8891
OUTSIDE, INSIDE = "10.213.7.1", "10.213.7.2"
LOGIN = "clerk:c4nary-s3cret"
MATRIX = """\
version: 1
name: company
include:
- {framework: numpy==2.2.6, python: "3.11", base: rootfs:debian/bookworm, cuda: none}
"""
_SEEN = ("_proxy", "_PROXY", "_CERT", "_CERTS", "_BUNDLE", "_CAINFO", "SSL_CERT_FILE", "SSL_CERT_DIR")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    name = f"company-{os.getpid()}"
    near, far = f"cn{os.getpid() % 100000}", f"cf{os.getpid() % 100000}"
    ip("netns", "add", name)
    try:
        ip("link", "add", near, "type", "veth", "peer", "name", far)
        ip("link", "set", far, "netns", name)
        ip("addr", "add", f"{OUTSIDE}/30", "dev", near)
        ip("link", "set", near, "up")
        ip("-n", name, "addr", "add", f"{INSIDE}/30", "dev", far)
        ip("-n", name, "link", "set", far, "up")
        ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("link", "del", near)
        ip("netns", "del", name)


@pytest.fixture(scope="module")
def proxy(namespace: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with ``bundle.pem``, the system's authorities and the proxy's, and ``log``."""
    folder = tmp_path_factory.mktemp("proxy")
    uv = find_uv_bin()
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(folder / "env")], check=True)
    subprocess.run(
        [uv, "pip", "install", "-q", "--python", str(folder / "env/bin/python"), "mitmproxy"], check=True
    )
    known = os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt"
    command = [str(folder / "env/bin/mitmdump"), "--set", f"confdir={folder}/conf"]
    command += ["--listen-host", OUTSIDE, "-p", str(PORT), "--proxyauth", LOGIN]
    command += ["--set", f"ssl_verify_upstream_trusted_ca={known}", "--set", "connection_strategy=lazy"]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as running:
        try:
            until = time.monotonic() + 60
            while True:
                with contextlib.suppress(OSError), socket.create_connection((OUTSIDE, PORT), 1):
                    break
                assert running.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < until
                time.sleep(0.2)
            authority = (folder / "conf/mitmproxy-ca-cert.pem").read_text()
            (folder / "bundle.pem").write_text(Path(known).read_text() + authority)
            yield folder
        finally:
            running.terminate()


class Company:
    """Commands on a machine of the company's."""

    def __init__(self, namespace: str, proxy: Path, folder: Path) -> None:
        self.folder = folder
        self.enter = ["ip", "netns", "exec", namespace]
        address = f"http://{LOGIN}@{OUTSIDE}:{PORT}"
        kept = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("PIP_", "UV_")) and not name.endswith(_SEEN)
        }
        kept |= {"HTTPS_PROXY": address, "HTTP_PROXY": address, "NO_PROXY": "localhost,127.0.0.1"}
        kept |= {"SSL_CERT_FILE": str(proxy / "bundle.pem"), "RTBUILD_CACHE": str(proxy / "cache")}
        self.environment = kept | {"UV_CACHE_DIR": str(proxy / "uv")}

    def run(self, *command: str, **changed: str) -> subprocess.CompletedProcess[str]:
        rtbuild = str(Path(sys.executable).parent / "rtbuild")
        environment = {name: text for name, text in (self.environment | changed).items() if text}
        done = subprocess.run(
            [*self.enter, rtbuild, *command],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert "c4nary" not in done.stdout + done.stderr
        return done

    def ask(self, *command: str) -> str:
        done = self.run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def company(namespace: str, proxy: Path, tmp_path_factory: pytest.TempPathFactory) -> Company:
    folder = tmp_path_factory.mktemp("project")
    (folder / "matrices").mkdir()
    (folder / "matrices/company.yaml").write_text(MATRIX)
    return Company(namespace, proxy, folder)


def test_without_the_variables_nothing_is_had(company: Company) -> None:
    """The tests below can fail."""
    told = company.run("lock", "matrices/company.yaml", HTTPS_PROXY="", HTTP_PROXY="")
    assert told.returncode != 0


def test_a_wrong_login_is_named(company: Company) -> None:
    address = f"http://clerk:other@{OUTSIDE}:{PORT}"
    for command in (("lock", "matrices/company.yaml"), ("audit", "registry.example.com/team/x:1")):
        told = company.run(*command, HTTPS_PROXY=address, HTTP_PROXY=address)
        assert told.returncode != 0
        assert "407" in told.stderr
        assert "NAME:PASSWORD@ before its host" in told.stderr


def test_without_its_authority_the_variable_is_named(company: Company) -> None:
    told = company.run("audit", "registry.example.com/team/x:1", SSL_CERT_FILE="")
    assert told.returncode != 0
    assert "certificate verify failed" in told.stderr
    assert "SSL_CERT_FILE=FILE" in told.stderr


def test_resolve_and_check(company: Company) -> None:
    assert "wheels" in company.ask("resolve", "torch==2.6.0", "--gpu", "T4", "-o", "matrices/t.yaml")
    assert "possible" in company.ask("check", "matrices/t.yaml")


def without_a_network(company: Company) -> None:
    """With the cache that is filled now; then without one of its files."""
    there = Company("", Path(company.environment["RTBUILD_CACHE"]).parent, company.folder)
    there.enter = ["unshare", "--net"]
    build = ("build", "matrices/company.yaml", "--locked", "--engine", "none", "--output", "carried")
    there.ask(*build)
    empty = company.folder / "empty"
    told = there.run(*build, RTBUILD_CACHE=str(empty), HTTPS_PROXY="", HTTP_PROXY="")
    assert told.returncode != 0
    assert f"missing here: {empty}/" in told.stderr
    assert "RTBUILD_CACHE" in told.stderr


def test_lock_build_and_outdated(company: Company) -> None:
    company.ask("lock", "matrices/company.yaml")
    (lock,) = (company.folder / "matrices").glob("company.lock.json")
    assert "c4nary" not in lock.read_text()
    company.ask("build", "matrices/company.yaml", "--engine", "none", "--output", "images")
    told = company.run("build", "matrices/company.yaml", "--json")
    assert told.returncode == 0, told.stderr
    (cell,) = json.loads(told.stdout)["cells"]
    shown = subprocess.run(
        ["docker", "image", "inspect", cell["image"]["reference"]], capture_output=True, text=True, check=True
    )
    assert OUTSIDE not in shown.stdout
    without_a_network(company)
    newer = company.ask("outdated", "matrices/company.yaml")
    assert "unknown" not in newer
    assert "not known" not in newer
