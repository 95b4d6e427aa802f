"""A real registry on loopback: ``sudo apt-get install docker-registry``, a package of Debian and Ubuntu.

No container and no image is needed for it. With ``tls`` and ``login`` it stands in for a private registry.
"""

from __future__ import annotations

import contextlib
import re
import shutil
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
    ca = _certificate(folder) if tls else None
    config = folder / "config.yml"
    config.write_text(_config(folder, ca, login))
    log = folder / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen([program, "serve", str(config)], stdout=output, stderr=subprocess.STDOUT)
        try:
            yield LoopbackRegistry(host=_listens(process, log), ca=ca, log=log)
        finally:
            process.terminate()
            process.wait(timeout=10)


def _config(folder: Path, ca: Path | None, login: tuple[str, str] | None) -> str:
    lines = [
        "version: 0.1",
        "log: {level: info, accesslog: {disabled: true}}",
        f"storage: {{filesystem: {{rootdirectory: {folder}/data}}, delete: {{enabled: true}}}}",
        "http:",
        "  addr: 127.0.0.1:0",
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


def _listens(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where it says that it listens: on a port that the system chose, which nobody else can have taken."""
    limit = time.monotonic() + _START_LIMIT
    while time.monotonic() < limit and process.poll() is None:
        if found := re.search(r'msg="listening on ([\d.:]+)', log.read_text()):
            return found[1]
        time.sleep(0.05)
    pytest.fail(f"docker-registry does not listen:\n{log.read_text()}")
