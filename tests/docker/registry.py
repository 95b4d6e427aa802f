"""A real registry on loopback: ``sudo apt-get install docker-registry``, a package of Debian and Ubuntu.

No container and no image is needed for it. With ``tls`` and ``login`` it stands in for a private registry.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import bcrypt
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_START_LIMIT = 20.0
"""Seconds until it must listen."""


@dataclass(frozen=True, kw_only=True)
class LoopbackRegistry:
    host: str
    """``127.0.0.1:PORT``, as in an image reference."""
    ca: Path | None
    """The certificate to trust, with TLS."""
    log: Path


@contextlib.contextmanager
def serve(
    folder: Path, *, tls: bool = False, login: tuple[str, str] | None = None
) -> Iterator[LoopbackRegistry]:
    """Run a registry with its storage below ``folder`` until the block ends; skips the test without one."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("needs a registry: sudo apt-get install docker-registry")
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ca = _certificate(folder) if tls else None
    config = folder / "config.yml"
    config.write_text(_config(folder, port, ca, login))
    log = folder / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen([program, "serve", str(config)], stdout=output, stderr=subprocess.STDOUT)
        try:
            _wait(process, port, log)
            yield LoopbackRegistry(host=f"127.0.0.1:{port}", ca=ca, log=log)
        finally:
            process.terminate()
            process.wait(timeout=10)


def _config(folder: Path, port: int, ca: Path | None, login: tuple[str, str] | None) -> str:
    lines = [
        "version: 0.1",
        "log: {level: warn}",
        f"storage: {{filesystem: {{rootdirectory: {folder}/data}}, delete: {{enabled: true}}}}",
        "http:",
        f"  addr: 127.0.0.1:{port}",
    ]
    if ca is not None:
        lines.append(f"  tls: {{certificate: {ca}, key: {folder}/key.pem}}")
    if login is not None:
        name, password = login
        hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(rounds=4)).decode()
        (folder / "htpasswd").write_text(f"{name}:{hashed}\n")
        lines.append(f"auth: {{htpasswd: {{realm: test, path: {folder}/htpasswd}}}}")
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


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    limit = time.monotonic() + _START_LIMIT
    while time.monotonic() < limit:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    pytest.fail(f"docker-registry does not listen:\n{log.read_text()}")
