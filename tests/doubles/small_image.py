"""An image of a few bytes with evidence for it. The report is a test double for a GPU: no T4 took part.

``double_report`` is what a T4 would have the probe say. It never leaves a registry that a test started.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from builder.core.model import Base, Cell, Cuda, Deb, Pinned, RegistryBase, RootfsBase, Wheel
from builder.image.recipe.values import Recipe, RecipeFile
from builder.sources.oci.spec import MANIFEST, Manifest
from builder.sources.oci.staging import Staged, read_image
from builder.verify.evidence.attach import attach_statements, statements
from builder.verify.evidence.contents import Evidence
from builder.verify.runner.reports import ReportKey, SealedReport

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from builder.sources.oci.registry import Registry
    from builder.verify.evidence.attach import Attached
    from builder.verify.evidence.statement import Signer

PROBE = "ab" * 32
INPUTS = "sha256:" + "1" * 64
CELL = "tf2.15.1-py3.11-cuda12.2-cudnn8.9"
GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"

DEBS = (
    Deb(
        package="libc6",
        version="2.36-9+deb12u9",
        architecture="amd64",
        file="pool/main/g/glibc/libc6_2.36-9+deb12u9_amd64.deb",
        sha256="c6" * 32,
        size=1,
        archive="debian",
    ),
    Deb(
        package="python3",
        version="3.11.2-1+b1",
        architecture="amd64",
        file="pool/main/p/python3-defaults/python3_3.11.2-1+b1_amd64.deb",
        sha256="93" * 32,
        size=1,
        archive="debian",
    ),
)
WHEELS = tuple(
    Wheel(
        name=name,
        version=version,
        file=f"{name.replace('-', '_')}-{version}-py3-none-any.whl",
        sha256=hashlib.sha256(name.encode()).hexdigest(),
        size=1,
    )
    for name, version in (
        ("nvidia-cudnn-cu12", "8.9.4.25"),
        ("nvidia-cuda-runtime-cu12", "12.2.140"),
        ("nvidia-cublas-cu12", "12.2.5.6"),
        ("tensorflow", "2.15.1"),
        ("numpy", "1.26.4"),
        ("pip", "25.3"),
    )
)


def cell(**changes: Any) -> Cell:
    fields: dict[str, Any] = {
        "id": CELL,
        "matrix": "tf",
        "frameworks": ("tensorflow==2.15.1",),
        "python": "3.11",
        "base": Base(kind="rootfs", name="debian/bookworm"),
        "cuda": Cuda(provider="wheels", packages=()),
        "gpus": ("T4",),
    }
    return Cell(**fields | changes)


def pinned(**changes: Any) -> Pinned:
    fields: dict[str, Any] = {
        "cell": cell(),
        "base": RootfsBase(suite="bookworm", debs=DEBS, epoch=1700000000),
        "wheels": WHEELS,
        "epoch": 1700000000,
    }
    return Pinned(**fields | changes)


def on_registry_base(reference: str, digest: str) -> Pinned:
    """The same wheels on a base out of a registry."""
    base = RegistryBase(
        reference=reference,
        digest=digest,
        env=(),
        labels=(("org.opencontainers.image.ref.name", "ubuntu"),),
        size=1,
    )
    return pinned(cell=cell(base=Base(kind="registry", name=reference)), base=base)


def recipe(lock: Pinned | None = None) -> Recipe:
    lock = lock or pinned()
    return Recipe(
        cell=lock.cell,
        pinned=lock,
        files={"Dockerfile": RecipeFile(content=b"FROM scratch\n")},
        blobs={},
        inputs=INPUTS,
    )


def status_file(*more: str) -> bytes:
    """``/var/lib/dpkg/status`` of what ``DEBS`` installs, a removed package, and ``more``."""
    paragraphs = [
        f"Package: {deb.package}\nStatus: install ok installed\nArchitecture: {deb.architecture}\n"
        f"Version: {deb.version}\nDescription: one line\n and another: with a colon"
        for deb in DEBS
    ]
    paragraphs.append("Package: gone\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1")
    return ("\n\n".join([*paragraphs, *more]) + "\n").encode()


def layer(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.mode = 0o755 if name.startswith("usr/bin/") else 0o644
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)


LAYERS = (layer({"var/lib/dpkg/status": status_file()}), layer({"opt/runtime/x": b"x"}))


def push_image(
    registry: Any,
    repository: str,
    folder: Path,
    *,
    layers: tuple[bytes, ...] = LAYERS,
    labels: dict[str, str] | None = None,
    tag: str | None = "1",
) -> Staged:
    """A real push of a small image, without an engine."""
    own = {
        "io.rtbuild.cell": CELL,
        "io.rtbuild.matrix": "tf",
        "io.rtbuild.inputs": INPUTS,
        "io.rtbuild.version": "0.1.0",
    }
    config = {
        "os": "linux",
        "architecture": "amd64",
        "config": {"Labels": own | (labels or {})},
        "rootfs": {"type": "layers", "diff_ids": [_sha256(gzip.decompress(blob)) for blob in layers]},
    }
    entries = []
    for content, kind in (
        (json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json"),
        *((blob, GZIP) for blob in layers),
    ):
        (folder / "blob").write_bytes(content)
        registry.push_blob(repository, _sha256(content), folder / "blob")
        entries.append({"mediaType": kind, "digest": _sha256(content), "size": len(content)})
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": entries[0], "layers": entries[1:]}
    content = json.dumps(manifest).encode()
    registry.put_manifest(f"{repository}@{_sha256(content)}", content, MANIFEST)
    if tag is not None:
        registry.put_manifest(f"{repository}:{tag}", content, MANIFEST)
    return read_image(registry, repository, _sha256(content))


class Memory:
    """What of a registry is needed to push an image and read it back: a test double without a network."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}

    def push_blob(self, repository: str, digest: str, blob: Path | bytes) -> bool:
        self.blobs[digest] = blob if isinstance(blob, bytes) else blob.read_bytes()
        return True

    def put_manifest(self, reference: str, content: bytes, media_type: str) -> str:
        self.manifests[_sha256(content)] = content
        return _sha256(content)

    def digest_of(self, reference: str) -> str | None:
        return reference.rpartition("@")[2] or None

    def manifest(self, reference: str) -> Manifest:
        digest = reference.rpartition("@")[2]
        return Manifest(digest=digest, media_type=MANIFEST, content=self.manifests[digest])

    def blob(self, repository: str, digest: str) -> bytes:
        return self.blobs[digest]


def double_report(**changes: Any) -> dict[str, Any]:
    """A test double: what cudnn-verify would say of the image on a T4."""
    document: dict[str, Any] = {
        "schema": 1,
        "probe": {"version": "1.0", "sha256": PROBE},
        "verdict": "works",
        "cause": None,
        "side": None,
        "summary": "cuDNN 8.9.4 works on Tesla T4",
        "remedy": None,
        "proof": [],
        "consequences": [],
        "checks": [
            {"id": "D03", "stage": "driver", "outcome": "passed", "summary": "cuInit", "evidence": {}},
            {"id": "C07", "stage": "convolution", "outcome": "passed", "summary": "exact", "evidence": {}},
            {"id": "F05", "stage": "tensorflow", "outcome": "passed", "summary": "exact", "evidence": {}},
            {"id": "F06", "stage": "coimport", "outcome": "not_run", "summary": "one only", "evidence": {}},
        ],
        "python": {"version": "3.11.2", "executable": "/opt/runtime/bin/python"},
        "gpus": [{"name": "Tesla T4", "compute_capability": "7.5", "memory": 15843721216}],
        "driver": {"version": "535.104.05", "api": "12.2"},
        "libraries": [
            {
                "name": "libcudnn.so.8",
                "path": "/opt/runtime/lib/python/site-packages/nvidia/cudnn/lib/libcudnn.so.8",
                "version": "8.9.4",
                "mapped_by": "tensorflow",
            }
        ],
        "frameworks": [
            {
                "name": "tensorflow",
                "version": "2.15.1",
                "compiled": {"cuda": "12.2", "cudnn": "8"},
                "loaded": {"cuda": "12.2", "cudnn": "8.9.4"},
                "device": "GPU:0",
            }
        ],
        "differences": [],
        "expectation": CELL,
        "fingerprint": {
            "packages": {wheel.name: wheel.version for wheel in WHEELS},
            "system_packages": {},
        },
        "test_double": False,
        "seconds": 12.5,
    }
    return deepcopy(document) | changes


def moment(**ago: float) -> datetime:
    return datetime.now(UTC).replace(microsecond=0) - timedelta(**ago)


def verification(
    image: Staged,
    *,
    document: dict[str, Any] | None = None,
    verified: datetime | None = None,
    manifest: str | None = None,
    content: str | None = None,
) -> SealedReport:
    """A report on the image, without a file."""
    return SealedReport(
        where="results/reports/x.json",
        key=ReportKey(
            digest=manifest or image.digest,
            content=content or image.content,
            probe=PROBE,
            gpus=(),
            driver=None,
        ),
        cell=image.label("io.rtbuild.cell") or "",
        matrix=image.label("io.rtbuild.matrix") or "",
        verified=verified or moment(days=2),
        rtbuild="0.1.0",
        document=double_report() if document is None else document,
        text="",
    )


def evidence(image: Staged, **changes: Any) -> Evidence:
    fields: dict[str, Any] = {
        "recipe": recipe(),
        "verifications": (verification(image),),
        "claims": ("T4",),
        "matrix": b"version: 1\n",
        "lock": b"{}\n",
    }
    return Evidence(**fields | changes)


def _sha256(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def attach_all(
    registry: Registry,
    image: Staged,
    evidence: Evidence,
    *,
    signer: Signer | None = None,
    note: Callable[[str], None] = lambda _text: None,
) -> tuple[Attached, ...]:
    """All evidence about an image attached to it, as publishing does."""
    made = statements(registry, image, evidence, note=note)
    return attach_statements(registry, image, made, signer=signer, note=note)
