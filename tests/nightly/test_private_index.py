"""docs/behind-a-proxy.md, followed: an index that needs a login, behind a certificate authority of its own.

The mirror hands on what the index of this machine's configuration has, to whoever logs in, over TLS by a
certificate that nobody knows. A command that asked anywhere else, or without the login, would not end well:
its own index is this one alone, and the store of what was fetched is empty.
"""

from __future__ import annotations

import base64
import json
import os
import re
import ssl
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import pytest
import requests
from doubles.http_server import Answer, Request, Server

from builder.sources.index.uv import from_user

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.nightly, pytest.mark.long, pytest.mark.docker]

ROOT = Path(__file__).resolve().parents[2]
SECRET = "c4nary-s3cret"
AUTHORITIES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT")
MATRIX = """\
version: 1
name: private
include:
- {framework: numpy==2.2.6, python: "3.11", base: rootfs:debian/bookworm, cuda: none}
"""


@dataclass
class Mirror:
    """What stands before the configured index, and who was sent away."""

    upstream: str
    files: dict[str, str] = field(default_factory=dict)
    """The address of each file at the index, by its path here."""
    refused: int = 0
    served: int = 0

    def answer(self, request: Request) -> Answer:
        login = base64.b64encode(f"reader:{SECRET}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {login}":
            self.refused += 1
            return Answer(401, b"", {"WWW-Authenticate": 'Basic realm="mirror"'})
        self.served += 1
        path, metadata = request.path, ""
        if path.endswith(".metadata"):
            path, metadata = path.removesuffix(".metadata"), ".metadata"
        address = self.files.get(path)
        if path.startswith("/simple/"):
            address = f"{self.upstream}/{path.removeprefix('/simple/')}"
        if address is None:
            return Answer(404)
        passed = {name: request.headers[name] for name in ("accept", "range") if name in request.headers}
        passed["Accept-Encoding"] = "identity"
        got = requests.request(request.method, address + metadata, headers=passed, timeout=120)
        body, kind = got.content, got.headers.get("Content-Type", "application/octet-stream")
        if path.startswith("/simple/"):
            there = re.compile(r'("url":\s*"|href=")([^"#]+)')
            body = there.sub(lambda one: one[1] + self._here(got.url, one[2]), got.text).encode()
        kept = {"Content-Type": kind, "Accept-Ranges": "bytes"}
        kept |= {name: got.headers[name] for name in ("Content-Range",) if name in got.headers}
        if request.method == "HEAD":
            kept["Content-Length"] = got.headers.get("Content-Length", "0")
        return Answer(got.status_code, body, kept)

    def _here(self, page: str, address: str) -> str:
        whole = urljoin(page, address)
        name = whole.partition("?")[0].rpartition("/")[2]
        if not name:
            return address  # a link to another page of the index
        path = f"/files/{name}"
        self.files[path] = whole
        return path


def openssl(*arguments: str, folder: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``ca.pem``, the mirror's certificate by it, and ``bundle.pem`` with all."""
    folder = tmp_path_factory.mktemp("authority")
    new = ("req", "-newkey", "rsa:2048", "-nodes", "-subj")
    openssl(*new, "/CN=own", "-x509", "-days", "2", "-keyout", "ca.key", "-out", "ca.pem", folder=folder)
    openssl(*new, "/CN=127.0.0.1", "-keyout", "mirror.key", "-out", "mirror.csr", folder=folder)
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    sign = ("x509", "-req", "-in", "mirror.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
    openssl(*sign, "-days", "2", "-extfile", "names", "-out", "mirror.pem", folder=folder)
    known = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile or ""
    system = Path(known).read_text() if known else ""
    (folder / "bundle.pem").write_text(system + (folder / "ca.pem").read_text())
    return folder


@pytest.fixture(scope="module")
def mirror(authority: Path) -> Iterator[tuple[Mirror, str]]:
    found = Mirror(upstream=from_user().default)
    with Server(found.answer) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority / "mirror.pem", authority / "mirror.key")
        server._http.socket = context.wrap_socket(server._http.socket, server_side=True)
        yield found, f"https://{server.host}/simple"


@pytest.fixture(scope="module")
def env(authority: Path, mirror: tuple[Mirror, str]) -> dict[str, str]:
    """As the how-to says: the index by pip's setting, the login in a netrc, the authority by its variable."""
    (authority / "netrc").write_text(f"machine 127.0.0.1 login reader password {SECRET}\n")
    (authority / "netrc").chmod(0o600)
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    bundle = str(authority / "bundle.pem")
    kept |= dict.fromkeys(AUTHORITIES, bundle)
    kept |= {"PIP_INDEX_URL": mirror[1], "PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"}
    return kept | {"NETRC": str(authority / "netrc"), "RTBUILD_CACHE": str(authority / "cache")}


@pytest.fixture(scope="module")
def rtbuild(env: dict[str, str], authority: Path, mirror: tuple[Mirror, str]) -> str:
    """Installed by pip, from the mirror alone."""
    inside = authority / "env/bin"
    subprocess.run([sys.executable, "-m", "venv", str(authority / "env")], check=True)
    before = mirror[0].served
    told = done(str(inside / "pip"), "install", "-q", str(ROOT), env=env, cwd=authority)
    assert told.returncode == 0, told.stderr
    assert mirror[0].served > before
    return str(inside / "rtbuild")


def done(*command: str, env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=900)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "matrices").mkdir()
    (folder / "matrices/private.yaml").write_text(MATRIX)
    return folder


def test_without_the_login_nothing_is_had(
    rtbuild: str, env: dict[str, str], project: Path, mirror: tuple[Mirror, str]
) -> None:
    """The tests below can fail."""
    told = done(rtbuild, "lock", "matrices/private.yaml", env=env | {"NETRC": os.devnull}, cwd=project)
    assert told.returncode != 0
    assert mirror[0].refused


def test_without_the_authority_nothing_is_had(rtbuild: str, env: dict[str, str], project: Path) -> None:
    ours = dict.fromkeys(
        ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT"), "/etc/ssl/certs/ca-certificates.crt"
    )
    told = done(rtbuild, "lock", "matrices/private.yaml", env=env | ours, cwd=project)
    assert told.returncode != 0
    assert "certificate" in told.stderr


def test_resolve_asks_the_mirror(rtbuild: str, env: dict[str, str], project: Path) -> None:
    told = done(rtbuild, "resolve", "torch==2.6.0", "--gpu", "T4", "-o", "r.yaml", env=env, cwd=project)
    assert told.returncode == 0, told.stderr
    assert "wheels" in told.stdout + told.stderr
    assert SECRET not in told.stdout + told.stderr


def test_lock_build_and_run(rtbuild: str, env: dict[str, str], project: Path) -> None:
    told = done(rtbuild, "lock", "matrices/private.yaml", env=env, cwd=project)
    assert told.returncode == 0, told.stderr
    (lock,) = (project / "matrices").glob("*.lock.json")
    assert SECRET not in lock.read_text()
    built = done(rtbuild, "build", "matrices/private.yaml", "--json", env=env, cwd=project)
    assert built.returncode == 0, built.stderr
    (cell,) = json.loads(built.stdout)["cells"]
    image = cell["image"]["reference"]
    shown = done("docker", "history", "--no-trunc", image, env=env, cwd=project)
    inspected = done("docker", "inspect", image, env=env, cwd=project)
    assert shown.returncode == inspected.returncode == 0
    for text in (shown.stdout, inspected.stdout):
        assert SECRET not in text
        assert "127.0.0.1" not in text
    ran = done(rtbuild, "run", image, "--verify", "--no-content", "--gpus", "none", env=env, cwd=project)
    assert "UNVERIFIED" in ran.stdout + ran.stderr


def test_up_does_it_in_one_go(rtbuild: str, env: dict[str, str], project: Path) -> None:
    told = done(rtbuild, "up", "torch==2.6.0", "--gpu", "T4", "--dry-run", "--save", env=env, cwd=project)
    assert told.returncode == 0, told.stderr
    assert SECRET not in told.stdout + told.stderr
