"""A real registry in a container, on a port of loopback: Debian's ``docker-registry``, by testcontainers.

It has the network of this machine, and listens on a port that the system chose, which nobody else can have
taken. A port of a network of its own is passed on by another process (``docker-proxy``), for which the tests
that ask thousands of times would wait.

No registry image is pulled for it: the image holds the program that ``scripts/ensure-tools`` installed, the
libraries that it is linked with, and nothing else. With ``tls`` and ``login`` it stands in for a private
registry.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import bcrypt
import containers
import pytest
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

if TYPE_CHECKING:
    from collections.abc import Iterator

_START_LIMIT = 20
"""Seconds until it must listen."""
_LISTENS = re.compile(r'msg="listening on (127\.0\.0\.1:\d+)')
_FILES = "/etc/docker/registry"


@dataclass(frozen=True, kw_only=True)
class LoopbackRegistry:
    host: str
    """``127.0.0.1:PORT``, as in an image reference."""
    ca: Path | None
    """The certificate to trust, with TLS."""


@contextlib.contextmanager
def serve(
    folder: Path, *, tls: bool = False, login: tuple[str, str] | None = None
) -> Iterator[LoopbackRegistry]:
    """Run a registry until the block ends; skips the test without one. ``folder`` gets its certificate."""
    folder.mkdir(parents=True, exist_ok=True)
    ca = _certificate(folder) if tls else None
    container = DockerContainer(_image()).with_kwargs(labels=containers.labels(), network="host")
    container.with_copy_into_container(_config(tls=tls, login=login).encode(), f"{_FILES}/config.yml")
    if ca is not None:
        container.with_copy_into_container(ca, f"{_FILES}/certificate.pem")
        container.with_copy_into_container(folder / "key.pem", f"{_FILES}/key.pem")
    if login is not None:
        name, password = login
        hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(rounds=4)).decode()
        container.with_copy_into_container(f"{name}:{hashed}\n".encode(), f"{_FILES}/htpasswd")
    ready = LogMessageWaitStrategy(_LISTENS).with_poll_interval(0.05).with_startup_timeout(_START_LIMIT)
    with container.waiting_for(ready):
        listens = _LISTENS.search(b"".join(container.get_logs()).decode())
        assert listens is not None
        yield LoopbackRegistry(host=listens[1], ca=ca)


@functools.cache
def _image() -> str:
    """The reference of an image of this machine's ``docker-registry``."""
    found = shutil.which("docker-registry")
    if found is None:
        pytest.skip("needs a registry: scripts/ensure-tools")
    if shutil.which("docker") is None:
        pytest.skip("needs a Docker Engine: scripts/ensure-engine")
    linked = subprocess.run(["ldd", found], capture_output=True, text=True, check=False).stdout
    libraries = re.findall(r"(/\S+) \(0x", linked)  # none where it is linked statically
    with tempfile.TemporaryDirectory(prefix="rtbuild-registry-") as name:
        context = Path(name)
        digest = hashlib.sha256()
        for file in (found, *libraries):
            place = context / "root" / file.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, place)
            digest.update(file.encode() + place.read_bytes())
        (context / "Dockerfile").write_text(
            f'FROM scratch\nCOPY root /\nLABEL {containers.LABEL}=image\nENTRYPOINT ["{found}"]\n'
            f'CMD ["serve", "{_FILES}/config.yml"]\n'
        )
        reference = f"rtbuild-test/docker-registry:{digest.hexdigest()[:12]}"
        done = subprocess.run(
            ["docker", "build", "-q", "-t", reference, name], capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    return reference


def _config(*, tls: bool, login: tuple[str, str] | None) -> str:
    lines = [
        "version: 0.1",
        "log: {level: info, accesslog: {disabled: true}}",
        "storage: {filesystem: {rootdirectory: /var/lib/registry}, delete: {enabled: true}}",
        "http:",
        "  addr: 127.0.0.1:0",
    ]
    if tls:
        lines.append(f"  tls: {{certificate: {_FILES}/certificate.pem, key: {_FILES}/key.pem}}")
    if login is not None:
        lines.append(f"auth: {{htpasswd: {{realm: test, path: {_FILES}/htpasswd}}}}")
    return "\n".join(lines) + "\n"


def _certificate(folder: Path) -> Path:
    certificate = folder / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(folder / "key.pem"), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return certificate
