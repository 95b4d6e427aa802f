"""Every reader of what comes from outside, with generated input for it.

A reader may refuse: with one of rtbuild's own errors, or with the error that its callers expect. Anything
else would be a traceback and exit code 70, and would end the run for all other cells.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doubles.project import PROBE, Project
from hypothesis import strategies as st

from builder.core import documents
from builder.core.errors import RegistryError, RtbuildError
from builder.image.layers.tar import TarReader
from builder.image.layers.wheel import Archive
from builder.image.sdist.bench import build_system, unpack
from builder.pipeline import layer_cache
from builder.plan.lock.file import read_lock
from builder.sources.index import simple_api
from builder.sources.oci.spec import choose_manifest, parse_reference
from builder.sources.oci.staging import read_image
from builder.sources.oci.wire import answer
from builder.verify.evidence.statement import parse_statement
from builder.verify.runner.reports import read_entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

    Reader = Callable[[bytes], object]

# Wrong types, huge numbers, control characters, addresses that are none, times beyond what a calendar has.
ODD_TEXTS = (
    "", "\0", "\x1b[2J\u202e", "\ud800", "../../x", "sha256:" + "a" * 64, "sha256:" + "A" * 64, "http://[",
    "[:1/x",
    "a" * 300, "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2026-11-21T00:00:00", "²", "\uff11",
    "linux", "amd64", "v2", "unknown", "1e999", "%00", "\ufeff", "x" * 70_000,
)  # fmt: skip
ODD_NUMBERS = (0, -1, 1 << 62, 1 << 80, 10**25, -1536, 1e300, 0.5)
TEXTS = st.one_of(st.sampled_from(ODD_TEXTS), st.text(max_size=20))
LEAVES = st.one_of(st.none(), st.booleans(), st.sampled_from(ODD_NUMBERS), st.integers(), TEXTS)
KEYS = st.sampled_from(
    ("manifests", "platform", "digest", "os", "architecture", "variant", "mediaType", "config", "layers",
     "size",
     "schema", "key", "document", "about", "verified", "seal", "rtbuild", "cell", "matrix", "content", "gpus",
     "files", "filename", "url", "hashes", "sha256", "yanked", "requires-python", "core-metadata", "_type",
     "subject", "predicate", "predicateType", "token", "build-system", "requires", "backend-path", "cells",
     "debs",
     "rootfs", "diff_ids", "Labels", "layer", "details", "history")
)  # fmt: skip
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(KEYS, TEXTS), inner, max_size=5)
    ),
    max_leaves=12,
)
DEEP = st.sampled_from(
    [b"[" * 100_000, b'{"a":' * 5_000, b"[" * 500 + b"]" * 500, b'{"a":' * 70 + b"1" + b"}" * 70]
)


def encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True).encode()


def broken(whole: bytes) -> SearchStrategy[bytes]:
    """The document with some bytes changed, cut out or put in."""

    def change(edits: list[tuple[int, int, bytes]]) -> bytes:
        found = bytearray(whole)
        for at, cut, put in edits:
            place = at % (len(found) + 1)
            found[place : place + cut] = put
        return bytes(found)

    edit = st.tuples(st.integers(0, 1 << 20), st.sampled_from([0, 0, 1, 1, 4, 100]), st.binary(max_size=6))
    return st.lists(edit, min_size=1, max_size=3).map(change)


def replaced(document: Any) -> SearchStrategy[bytes]:
    """The document with one value, somewhere in it, replaced by any other."""
    places: list[tuple[Any, ...]] = []

    def walk(value: Any, path: tuple[Any, ...]) -> None:
        places.append(path)
        items = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for key, inner in items:
            walk(inner, (*path, key))

    walk(document, ())

    def put(path: tuple[Any, ...], value: Any) -> bytes:
        if not path:
            return encoded(value)
        copy = json.loads(json.dumps(document))
        target = copy
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value
        return encoded(copy)

    return st.builds(put, st.sampled_from(places), JSON)


def texts(document: Any) -> SearchStrategy[bytes]:
    """JSON of all kinds: near to a right one, far from it, deep, in other encodings, and none at all."""
    whole = encoded(document)
    other = st.sampled_from([json.dumps(document).encode(code) for code in ("utf-16", "utf-32", "utf-8-sig")])
    return st.one_of(replaced(document), replaced(document), broken(whole), JSON.map(encoded), DEEP, other)


AMD = "sha256:" + "a" * 64
INDEX = {
    "manifests": [
        {"digest": AMD, "platform": {"os": "linux", "architecture": "amd64", "variant": "v1"}},
        {"digest": "sha256:" + "b" * 64, "platform": {"os": "linux", "architecture": "arm64"}},
    ]
}
PAGE = {
    "files": [
        {"filename": "a-1-py3-none-any.whl", "url": "a.whl", "hashes": {"sha256": "0" * 64}, "size": 5,
         "yanked": "x", "core-metadata": {"sha256": "0" * 64}, "requires-python": ">=3"}
    ]
}  # fmt: skip
HTML = (
    b'<html><base href="/x/"><a href="a-1-py3-none-any.whl#sha256='
    + b"0" * 64
    + b'" data-yanked="">a</a></html>'
)
PYPROJECT = b'[build-system]\nrequires = ["setuptools"]\nbuild-backend = "a.b:c"\nbackend-path = ["."]\n'
CHALLENGE = b'Bearer realm="https://auth.example/token",service="reg",scope="repository:a/b:pull"'


STATEMENT = {
    "_type": "https://in-toto.io/Statement/v1",
    "subject": [{"digest": {"sha256": "a" * 64}}],
    "predicateType": "x",
    "predicate": {},
}
LAYER: dict[str, Any] = {"schema": 1, "key": "k", "layer": {}, "details": {}, "files": None}
REFERENCE = b"nvidia/cuda:12@" + AMD.encode()
PROJECTS = (
    b"build-system = 5", b"build-system = []", b"a = " + b"[" * 5000, b"[build-system]\nrequires = 1",
)  # fmt: skip
RAW = TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass"))
MALFORMED = (documents.MalformedError,)


class Cases:
    """The readers by name, each with its input and the errors that are an answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        project = Project(folder / "project")
        memory = _Memory()
        project.report(memory.stage(project))
        (report,) = (project.results / "reports").glob("*.json")
        self.report = json.loads(report.read_bytes())
        self.lock = json.loads(project.path.with_name("tf.lock.json").read_bytes())
        self.image = memory
        packed = st.one_of(broken(_tar()), _headers()).map(gzip.compress)
        self.readers: dict[str, tuple[SearchStrategy[bytes], Reader, tuple[type[Exception], ...]]] = {
            "json": (texts(INDEX), documents.parse_json, MALFORMED),
            "moment": (RAW, _moment, MALFORMED),
            "report": (texts(self.report), lambda data: read_entry(data, "x").document["verdict"], ()),
            "sealed": (replaced(self.report), self._sealed, MALFORMED),
            "index": (texts(INDEX), _choose, MALFORMED),
            "manifest": (texts(memory.manifest_document), self._manifest, ()),
            "config": (texts(memory.config_document), self._config, ()),
            "statement": (texts(STATEMENT), parse_statement, ()),
            "page": (texts(PAGE), _page, (simple_api.NotAPageError,)),
            "html": (st.one_of(broken(HTML), st.binary(max_size=200)), _html, (simple_api.NotAPageError,)),
            "lock": (texts(self.lock), self._lock, ()),
            "challenge": (st.one_of(broken(CHALLENGE), RAW), _challenge, ()),
            "reference": (st.one_of(broken(REFERENCE), RAW), _reference, ()),
            "tar": (st.one_of(broken(_tar()), _headers()), _untar, ()),
            "wheel": (broken(_wheel()), self._wheel, ()),
            "sdist": (st.one_of(packed, broken(gzip.compress(_tar()))), self._sdist, ()),
            "pyproject": (st.one_of(broken(PYPROJECT), st.sampled_from(PROJECTS)), self._pyproject, ()),
            "layer": (texts(LAYER), _described, ()),
        }

    def _sealed(self, data: bytes) -> object:
        """With a seal that is right: anyone can compute it."""
        from builder.core.digests import digest_of

        entry = documents.parse_json(data)
        if not isinstance(entry, dict):
            return None
        body = {name: value for name, value in entry.items() if name != "seal"}
        return read_entry(json.dumps(body | {"seal": digest_of(body)}), "x").document["verdict"]

    def _manifest(self, data: bytes) -> object:
        return read_image(self.image.with_manifest(data), "r.example/a", self.image.digest)

    def _config(self, data: bytes) -> object:
        return read_image(self.image.with_config(data), "r.example/a", self.image.digest)

    def _lock(self, data: bytes) -> object:
        path = self.folder / "fuzzed.lock.json"
        path.write_bytes(data)
        return read_lock(path)

    def _wheel(self, data: bytes) -> object:
        path = self.folder / "fuzzed.whl"
        path.write_bytes(data)
        with Archive(path) as archive:
            return [len(archive.read(name)) for name in archive.members]

    def _sdist(self, data: bytes) -> object:
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            path = Path(name) / "tiny-1.0.tar.gz"
            path.write_bytes(data)
            return build_system(unpack(path, Path(name) / "out"), what="x")

    def _pyproject(self, data: bytes) -> object:
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            (Path(name) / "pyproject.toml").write_bytes(data)
            return build_system(Path(name), what="x")

    def run(self, name: str, data: bytes) -> None:
        """Read it; a refusal is an answer, and any other exception is passed on."""
        _, reader, refusals = self.readers[name]
        with contextlib.suppress(RtbuildError, *refusals):
            reader(data)


def _moment(data: bytes) -> object:
    return documents.parse_moment(data.decode("utf-8", "surrogatepass"))


def _page(data: bytes, kind: str = "application/vnd.pypi.simple.v1+json") -> object:
    return simple_api.parse(data.decode("utf-8", "replace"), kind, "https://index.example/simple/a/")


def _html(data: bytes) -> object:
    return _page(data, "text/html")


def _choose(data: bytes) -> object:
    return choose_manifest(documents.parse_json(data), "linux/amd64", "x")


def _reference(data: bytes) -> object:
    return parse_reference(data.decode("utf-8", "replace"))


def _challenge(data: bytes) -> object:
    challenge = data.decode("latin-1")
    client: Any = _Offline()
    return answer(
        client, challenge, ("repository:a/b:pull",), lambda: None, "r", own="https://r.example/v2/a/"
    )


class _Offline:
    def get(self, url: str, **_options: object) -> object:
        import requests

        assert url.startswith("https://"), f"a login would go to {url}"
        raise requests.ConnectionError("offline")

    def request(self, _method: str, url: str, **options: object) -> object:
        return self.get(url, **options)


def _untar(data: bytes) -> object:
    reader = TarReader(io.BytesIO(data), "x")
    return [(entry.name, len(b"".join(reader.content()))) for entry in reader]


def _described(data: bytes) -> object:
    manifest = {"config": {}, "layers": [{"digest": AMD, "size": 1, "mediaType": "x"}]}
    return layer_cache.read(data, manifest, "wheel-k", "x")


def _tar() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in (
            ("tiny-1.0/pyproject.toml", PYPROJECT),
            ("tiny-1.0/" + "d" * 120 + "/ü", b"x" * 600),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo("tiny-1.0/link")
        link.type, link.linkname = tarfile.SYMTYPE, "pyproject.toml"
        archive.addfile(link)
    return made.getvalue()


def _headers() -> SearchStrategy[bytes]:
    """One entry behind an extended header that says anything; checksums are right."""

    def build(key: str, value: str, kind: bytes, size: int) -> bytes:
        record = f" {key}={value}\n".encode("utf-8", "surrogatepass")
        length = len(record) + len(str(len(record) + 3))
        return (
            _block(b"x", str(length).encode() + record, None) + _block(kind, b"content", size) + bytes(1024)
        )

    keys = st.sampled_from(["size", "path", "linkpath", "GNU.sparse.major", "mtime", "uid", "hdrcharset"])
    values = st.one_of(
        st.sampled_from(["abc", "-1536", "1e9", "9" * 30, "\0", "a/" * 3000, "../x", "/x"]), TEXTS
    )
    return st.builds(build, keys, values, st.sampled_from([b"0", b"1", b"2", b"3", b"5", b"L", b"x", b"S"]),
                     st.sampled_from([7, 0, -1, 1 << 40, None]))  # fmt: skip


def _block(kind: bytes, content: bytes, size: int | None) -> bytes:
    stated = len(content) if size is None else size
    number = (
        b"%011o\0" % stated if 0 <= stated < 8**11 else (stated % (1 << 95) | 1 << 95).to_bytes(12, "big")
    )
    header = bytearray(512)
    header[:10], header[100:108], header[124:136] = b"tiny-1.0/a", b"0000644\0", number
    header[156:157], header[257:265], header[148:156] = kind, b"ustar\x0000", b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + content + bytes(-len(content) % 512)


def _wheel() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("tiny/__init__.py", "tiny-1.0.dist-info/METADATA", "tiny-1.0.dist-info/RECORD"):
            archive.writestr(name, f"Name: tiny\nVersion: 1.0\n{name}\n" * 20)
    return made.getvalue()


class _Memory:
    """A registry with one image, whose documents a test replaces."""

    def __init__(self) -> None:
        self.manifest_document: dict[str, Any] = {}
        self.config_document: dict[str, Any] = {}
        self.digest = AMD
        self._manifest = self._config = b""

    def stage(self, project: Project) -> Any:
        from doubles.small_image import Memory

        registry = Memory()
        staged = project.stage(registry, "r.example/a")  # type: ignore[arg-type]
        self.manifest_document = json.loads(staged.manifest.content)
        self.config_document = json.loads(registry.blob("r.example/a", staged.config_digest))
        self._manifest, self._config = staged.manifest.content, encoded(self.config_document)
        self.digest = staged.digest
        return staged

    def with_manifest(self, data: bytes) -> Any:
        return _One(data, self._config, self.digest)

    def with_config(self, data: bytes) -> Any:
        return _One(self._manifest, data, self.digest)


class _One:
    def __init__(self, manifest: bytes, config: bytes, digest: str) -> None:
        self._manifest, self._config, self._digest = manifest, config, digest

    def manifest(self, _reference: str) -> Any:
        from builder.sources.oci.spec import MANIFEST, Manifest

        try:
            documents.parse_object(self._manifest)
        except documents.MalformedError as problem:  # as the client does
            raise RegistryError("no manifest") from problem
        return Manifest(digest=self._digest, media_type=MANIFEST, content=self._manifest)

    def blob(self, _reference: str, _digest: str) -> bytes:
        return self._config


__all__ = ["PROBE", "Cases"]
