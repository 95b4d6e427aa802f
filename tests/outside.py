"""A programmable HTTP server on loopback, and made-up wheels to put on it."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from builder.core.model import Base, Cell, Cuda, Deb, Matrix, Pinned, RegistryBase, RootfsBase, Wheel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    break_after: int | None = None
    """Cut the connection after this many bytes of the body."""


class Server:
    """Answers by path; a path without an answer is a 404. Every request is kept in ``requests``."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._routes: dict[str, Callable[[Request], Answer]] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else every answer waits 40 ms for an acknowledgement

            def _answer(self) -> None:
                parts = urlsplit(self.path)
                length = int(self.headers.get("Content-Length") or 0)
                request = Request(
                    self.command,
                    unquote(parts.path),
                    parse_qs(parts.query),
                    {key.lower(): value for key, value in self.headers.items()},
                    self.rfile.read(length),
                )
                outer.requests.append(request)
                route = outer._routes.get(request.path)
                answer = (
                    route(request) if route else Answer(404, b"nothing here", {"Content-Type": "text/plain"})
                )
                self.send_response(answer.status)
                for key, value in answer.headers.items():
                    self.send_header(key, value)
                if "Transfer-Encoding" not in answer.headers and answer.headers.get("Connection") != "close":
                    self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                if self.command == "HEAD":
                    return
                if answer.break_after is not None:
                    self.wfile.write(answer.body[: answer.break_after])
                    self.close_connection = True
                    return
                self.wfile.write(answer.body)
                self.close_connection = answer.headers.get("Connection") == "close"

            do_GET = do_HEAD = do_POST = do_PUT = _answer

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.handle_error = lambda *_: None  # a client that hangs up is part of some tests
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._http.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def on(self, path: str, answer: Callable[[Request], Answer] | Answer) -> None:
        self._routes[path] = answer if callable(answer) else lambda _request: answer

    def file(self, path: str, content: bytes, *, ranges: bool = True) -> str:
        """Serve a file, with Range where ``ranges``; its address."""

        def serve(request: Request) -> Answer:
            wanted = request.headers.get("range")
            if not (wanted and ranges):
                return Answer(200, content, {"Content-Type": "application/octet-stream"})
            start = int(wanted.removeprefix("bytes=").partition("-")[0])
            if start >= len(content):
                return Answer(416)
            return Answer(
                206, content[start:], {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
            )

        self.on(path, serve)
        return self.url + path

    def route(self, path: str) -> Callable[[Request], Answer]:
        return self._routes[path]

    def asked(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == path]

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def make_wheel(
    folder: Path, name: str, version: str, *, requires: tuple[str, ...] = (), tag: str = "py3-none-any"
) -> Path:
    """A wheel with nothing in it but its metadata."""
    stem = f"{name.replace('-', '_')}-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-{tag}.whl"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Requires-Dist: {line}" for line in requires]
    files = {
        f"{stem}.dist-info/METADATA": "\n".join(metadata) + "\n",
        f"{stem}.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = [
        f"{file},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},{len(text)}"
        for file, text in files.items()
    ]
    files[f"{stem}.dist-info/RECORD"] = "\n".join([*record, f"{stem}.dist-info/RECORD,,"]) + "\n"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(zipfile.ZipInfo(file), text)
    return path


class FakeIndex:
    """A package index on a :class:`Server`, in JSON or HTML."""

    def __init__(self, server: Server, folder: Path, *, html: bool = False, prefix: str = "") -> None:
        self.server = server
        self.folder = folder
        self.html = html
        self.prefix = prefix
        self.url = f"{server.url}{prefix}/simple"
        self._files: dict[str, list[dict[str, Any]]] = {}

    def add(
        self,
        name: str,
        version: str,
        *,
        uploaded: str | None = "2022-11-16T18:49:34Z",
        yanked: str | None = None,
        **kw: Any,
    ) -> Path:
        path = make_wheel(self.folder, name, version, **kw)
        content = path.read_bytes()
        self.server.file(f"{self.prefix}/files/{path.name}", content)
        entry: dict[str, Any] = {
            "filename": path.name,
            "url": f"../../files/{path.name}",
            "hashes": {"sha256": sha256(content)},
            "size": len(content),
        }
        if uploaded:
            entry["upload-time"] = uploaded
        if yanked is not None:
            entry["yanked"] = yanked
        self._files.setdefault(name, []).append(entry)
        self.server.on(f"{self.prefix}/simple/{name}/", lambda _request: self._page(name))
        return path

    def page(self, name: str) -> list[dict[str, Any]]:
        return self._files[name]

    def _page(self, name: str) -> Answer:
        files = self._files[name]
        if self.html:
            lines = [
                f'<a href="{f["url"]}#sha256={f["hashes"]["sha256"]}"'
                + (f' data-yanked="{f["yanked"]}"' if "yanked" in f else "")
                + f">{f['filename']}</a>"
                for f in files
            ]
            body = "<!DOCTYPE html><html><body>" + "<br>".join(lines) + "</body></html>"
            return Answer(200, body.encode(), {"Content-Type": "text/html"})
        document = {"meta": {"api-version": "1.1"}, "name": name, "files": files, "versions": []}
        return Answer(
            200, json.dumps(document).encode(), {"Content-Type": "application/vnd.pypi.simple.v1+json"}
        )


def lock_wheel(name: str, version: str = "1.0", *, size: int = 1000, uploaded: int = 1_600_000_000) -> Wheel:
    return Wheel(
        name=name,
        version=version,
        file=f"{name.replace('-', '_')}-{version}-py3-none-any.whl",
        sha256=sha256(f"{name} {version}".encode()),
        size=size,
        uploaded=uploaded,
    )


def lock_deb(package: str, version: str = "1:2.0-3+deb11u1", archive: str = "debian") -> Deb:
    return Deb(
        package=package,
        version=version,
        architecture="amd64",
        file=f"pool/main/{package[0]}/{package}/{package}_2.0-3+deb11u1_amd64.deb",
        sha256=sha256(package.encode()),
        size=2000,
        archive=archive,
    )


def lock_registry_base(reference: str = "nvidia/cuda:x", **labels: str) -> RegistryBase:
    return RegistryBase(
        reference=reference,
        digest="sha256:" + sha256(reference.encode()),
        env=(("CUDA_VERSION", "11.8.0"), ("NV_CUDNN_VERSION", "8.6.0.163")),
        labels=tuple(sorted(labels.items())),
        size=3000,
    )


def lock_cell(cell_id: str, **changes: Any) -> Cell:
    values: dict[str, Any] = {
        "id": cell_id,
        "matrix": "tf28",
        "frameworks": ("tensorflow==2.8.4",),
        "python": "3.9",
        "base": Base(kind="rootfs", name="debian/bullseye"),
        "cuda": Cuda(provider="wheels", packages=("nvidia-cudnn-cu11==8.6.0.163",)),
        "pip": ("numpy==1.23.5",),
    }
    return Cell(**(values | changes))


def lock_pinned(cell: Cell, *, base: RegistryBase | RootfsBase | None = None) -> Pinned:
    system = RootfsBase(
        suite="bullseye",
        debs=(lock_deb("bash"), lock_deb("python3", archive="debian-security")),
        epoch=1_500_000_000,
    )
    wheels = (
        lock_wheel("nvidia-cudnn-cu11", "8.6.0.163", size=10),
        lock_wheel("tensorflow", "2.8.4"),
        lock_wheel("numpy", "1.23.5"),
    )
    return Pinned(cell=cell, base=base or system, wheels=wheels, epoch=1_600_000_000)


def lock_matrix(path: Path, *cells: Cell) -> Matrix:
    return Matrix(name="tf28", path=path, description="", cells=cells)
