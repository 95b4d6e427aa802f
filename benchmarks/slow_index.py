"""A package index on loopback with the bandwidth of a usual line: for first runs, without a network.

python -m benchmarks.slow_index FOLDER PORT MEGABYTES_PER_SECOND
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import urlopen

from packaging.utils import canonicalize_name, parse_wheel_filename

_PIECE = 1 << 16
_SIMPLE = "application/vnd.pypi.simple.v1+json"
_TOGETHER = 4


class Line:
    """All transfers together take so many bytes a second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._free = time.monotonic()
        self._guard = threading.Lock()

    def wait(self, count: int) -> None:
        with self._guard:
            self._free = max(self._free, time.monotonic()) + count / self._rate
            until = self._free
        time.sleep(max(0.0, until - time.monotonic()))


def serve(folder: Path, port: int, rate: float) -> None:
    """Offer the wheels of a flat folder, until the process is ended."""
    projects: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.whl")):
        projects.setdefault(canonicalize_name(parse_wheel_filename(path.name)[0]), []).append(path)
    line = Line(rate)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            place = self.path.strip("/").split("/")
            if place[0] == "simple":
                self._page(place[-1])
            else:
                self._file(folder / Path(place[-1]).name)

        def _page(self, name: str) -> None:
            files = [
                {"filename": path.name, "url": f"/files/{path.name}", "hashes": {"sha256": _sha256(path)},
                 "size": path.stat().st_size}
                for path in projects.get(name, ())
            ]  # fmt: skip
            body = json.dumps({"meta": {"api-version": "1.1"}, "name": name, "files": files}).encode()
            self.send_response(200 if files else 404)
            self.send_header("Content-Type", _SIMPLE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _file(self, path: Path) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(path.stat().st_size))
            self.end_headers()
            with path.open("rb") as file:
                while piece := file.read(_PIECE):
                    line.wait(len(piece))
                    self.wfile.write(piece)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(folder: Path, port: int) -> float:
    """Seconds that all files take alone, several at a time and kept nowhere."""

    def one(path: Path) -> None:
        with urlopen(f"http://127.0.0.1:{port}/files/{path.name}") as answer:
            while answer.read(_PIECE):
                pass

    start = time.perf_counter()
    with ThreadPoolExecutor(_TOGETHER) as pool:
        list(pool.map(one, sorted(folder.glob("*.whl"), key=lambda path: -path.stat().st_size)))
    return time.perf_counter() - start


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) * 1e6)
