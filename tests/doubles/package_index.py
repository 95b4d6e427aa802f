"""Made-up wheels, and a package index that offers them."""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from typing import TYPE_CHECKING, Any

from doubles.http_server import Answer, Server

if TYPE_CHECKING:
    from pathlib import Path


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


class PackageIndexDouble:
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
