"""Small wheels for tests, right or wrong on purpose."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

import pytest

from builder.core.model import Base, Cell, Cuda, Options, Pinned, RootfsBase, Wheel
from builder.image.compose.cell_layers import LayerBuild, plan
from builder.image.layers.store import LayerStore
from builder.sources.oci.spec import plain_image, write_layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from builder.image.compose.cell_layers import Plan
    from builder.image.layers.store import Layer, Lease

PLAIN = 0o100644
PROGRAM = 0o100755


@dataclass(frozen=True, kw_only=True)
class Made:
    """A wheel on disk and as a lock has it."""

    path: Path
    wheel: Wheel


@dataclass(frozen=True, kw_only=True)
class Content:
    data: bytes
    mode: int = PLAIN
    recorded: str | None = None
    """The hash that RECORD gives; None for the right one, empty for none at all."""


@dataclass
class Builder:
    """Writes wheels into a folder."""

    folder: Path
    made: list[Made] = field(default_factory=list)

    def wheel(
        self,
        name: str,
        files: Mapping[str, bytes | Content],
        *,
        version: str = "1.0",
        tag: str = "py3-none-any",
        entry_points: str = "",
        requires_python: str = "",
        unrecorded: Sequence[str] = (),
        method: int = zipfile.ZIP_DEFLATED,
        pad: int = 0,
    ) -> Made:
        """``files`` are paths in the archive; ``pad`` makes the wheel that many bytes larger."""
        distribution = name.replace("-", "_")
        info = f"{distribution}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        metadata += f"Requires-Python: {requires_python}\n" if requires_python else ""
        contents = {
            path: one if isinstance(one, Content) else Content(data=one) for path, one in files.items()
        }
        contents.setdefault(f"{info}/METADATA", Content(data=metadata.encode()))
        contents.setdefault(
            f"{info}/WHEEL",
            Content(
                data=f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n".encode()
            ),
        )
        if entry_points:
            contents[f"{info}/entry_points.txt"] = Content(data=entry_points.encode())
        padding = f"{distribution}.pad"
        if pad:
            contents[padding] = Content(data=hashlib.shake_128(name.encode()).digest(pad))
        rows = [
            f"{path},{record_hash(one.data) if one.recorded is None else one.recorded},{len(one.data)}"
            for path, one in contents.items()
            if path not in unrecorded
        ]
        record = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
        contents.setdefault(f"{info}/RECORD", Content(data=record))
        path = self.folder / f"{distribution}-{version}-{tag}.whl"
        with zipfile.ZipFile(path, "w", method) as archive:
            for member, one in contents.items():
                entry = zipfile.ZipInfo(member, (2020, 1, 1, 0, 0, 0))
                entry.external_attr = one.mode << 16
                # what no method makes smaller takes a quarter of a second to find so
                entry.compress_type = zipfile.ZIP_STORED if member == padding else method
                archive.writestr(entry, one.data)
        return self.add(path, name=name, version=version)

    def add(self, path: Path, *, name: str, version: str) -> Made:
        content = path.read_bytes()
        wheel = Wheel(
            name=name,
            version=version,
            file=path.name,
            sha256=hashlib.sha256(content).hexdigest(),
            size=len(content),
        )
        made = Made(path=path, wheel=wheel)
        self.made.append(made)
        return made

    def pip(self, version: str = "26.0.1") -> Made:
        return self.wheel(
            "pip",
            {"pip/__init__.py": b"", "pip/__main__.py": b""},
            version=version,
            entry_points="[console_scripts]\npip = pip:main\npip3 = pip:main\n",
        )


def record_hash(data: bytes, algorithm: str = "sha256") -> str:
    digest = hashlib.new(algorithm, data).digest()
    return f"{algorithm}=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")


def pinned(
    made: Sequence[Made],
    *,
    python: str = "3.11",
    compression: str = "zstd",
    identity: str = "cell",
    dependencies: Literal["resolved", "listed"] = "resolved",
    frameworks: tuple[str, ...] = ("six==1.17.0",),
) -> Pinned:
    cell = Cell(
        id=identity,
        matrix="test",
        frameworks=frameworks,
        python=python,
        base=Base(kind="rootfs", name="debian/bookworm"),
        cuda=Cuda(provider="none"),
        dependencies=dependencies,
        options=Options(compression=compression),  # type: ignore[arg-type]
    )
    return Pinned(
        cell=cell,
        base=RootfsBase(suite="bookworm", debs=(), epoch=0),
        wheels=tuple(one.wheel for one in made),
        epoch=0,
    )


def paths(made: Sequence[Made]) -> dict[str, Path]:
    return {one.wheel.sha256: one.path for one in made}


def tricky(builder: Builder) -> list[Made]:
    """Wheels that use every corner of the format which pip installs."""
    everything = builder.wheel(
        "tricky-all",
        {
            "tricky_all/__init__.py": (
                b"def main():\n    print('tricky main')\n\nclass Tool:\n    run = staticmethod(main)\n"
            ),
            "tricky_all/data.bin": b"\x00\xff" * 70_000,
            "tricky_all/empty.txt": b"",
            "tricky_all/helper.sh": Content(data=b"#!/bin/sh\necho helper\n", mode=PROGRAM),
            "tricky_all/group.txt": Content(data=b"mode", mode=0o100664),
            "tricky_all/\u00fcml\u00e4ut/na\u00efve \u2713.txt": b"unicode",
            "tricky_all/" + "/".join(["deep" * 10] * 6) + "/" + "n" * 120 + ".txt": b"long path",
            "tricky_all/" + "/".join(["half" * 5] * 6) + "/file.txt": b"path for the ustar prefix",
            "tricky_namespace/__init__.py": b"",
            "tricky_all.pth": b"# nothing\n",
            "tricky_all-1.0.data/scripts/tricky-python": Content(
                data=b"#!python\nimport sys\nprint('script', sys.prefix)\n", mode=PROGRAM
            ),
            "tricky_all-1.0.data/scripts/tricky-options": Content(
                data=b"#!pythonw -u\nprint('options')\n", mode=PROGRAM
            ),
            "tricky_all-1.0.data/scripts/tricky-shell": Content(
                data=b"#!/bin/sh\necho shell\n", mode=PROGRAM
            ),
            "tricky_all-1.0.data/scripts/tricky-plain": b"#!/bin/sh\necho not executable\n",
            "tricky_all-1.0.data/scripts/tricky-main": b"#!python\nwrapper that pip replaces\n",
            "tricky_all-1.0.data/scripts/tricky-gui-script.py": b"#!python\nleft out by pip\n",
            "tricky_all-1.0.data/data/share/tricky/read me.txt": b"data",
            "tricky_all-1.0.data/data/etc/tricky.conf": b"data",
            "tricky_all-1.0.data/purelib/tricky_pure.py": b"VALUE = 1\n",
            "tricky_all-1.0.data/platlib/tricky_plat.py": b"VALUE = 2\n",
            "tricky_all/unrecorded.txt": b"RECORD does not know me",
            "tricky_all/strong.txt": Content(data=b"strong", recorded=record_hash(b"strong", "sha512")),
        },
        entry_points=(
            "[console_scripts]\n"
            "tricky-main = tricky_all:main\n"
            "tricky-class = tricky_all:Tool.run\n"
            "tricky-extra = tricky_all:main [extra]\n"
            "[gui_scripts]\n"
            "tricky-gui = tricky_all:main\n"
            "[tricky.plugins]\n"
            "other = tricky_all:nothing\n"
        ),
        unrecorded=("tricky_all/unrecorded.txt",),
    )
    sharing = builder.wheel(
        "Tricky.Sharing",
        {"tricky_namespace/__init__.py": b"", "tricky_namespace/part.py": b"VALUE = 3\n"},
        entry_points="[console_scripts]\ntricky-class = tricky_all:Tool.run\n",
        method=zipfile.ZIP_STORED,
    )
    headers = builder.wheel(
        "tricky-headers",
        {
            "tricky_headers/__init__.py": b"",
            "tricky_headers-1.0.data/headers/tricky.h": b"#define TRICKY 1\n",
            "tricky_headers-1.0.data/headers/sub/more.h": b"#define MORE 1\n",
        },
    )
    return [everything, sharing, headers]


@dataclass
class Stacked:
    """The layers of a lock as an image has them; they are leased until it is closed."""

    store: LayerStore
    lease: Lease
    plan: Plan

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.plan.stacked

    @property
    def made(self) -> int:
        return sum(one.new for one in self.plan.every)

    def blob(self, digest: str) -> bytes:
        return self.store.blob(digest).read_bytes()

    def layout(self, folder: Path) -> str:
        """An OCI layout of these layers, as buildx takes it for a stage."""
        image = plain_image(self.layers, self.plan.base.config)
        write_layout(folder, "wheels", "w:w", image, lambda one: self.store.blob(one.digest), link=True)
        return f"oci-layout://{folder}:wheels"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.lease.close()


def make_missing(
    given: Plan, *, wheel_paths: Mapping[str, Path], rootfs_tar: Path | None = None, **options: Any
) -> Plan:
    """All layers of a plan, of files that are all there."""
    with LayerBuild(given=given, rootfs=lambda _base: rootfs_tar, **options) as missing:  # type: ignore[arg-type,return-value]
        for wheel in given.missing:
            missing.wheel(wheel, wheel_paths[wheel.sha256])
        return missing.finish()


def stack(
    lock: Pinned,
    *,
    store: LayerStore,
    wheel_paths: Mapping[str, Path],
    rootfs_tar: Path | None = None,
    **options: Any,
) -> Stacked:
    """Make what is missing of a lock's layers, as a build does it."""
    lease = store.lease()
    try:
        begun = plan(lock, lease)
        made = make_missing(begun, wheel_paths=wheel_paths, rootfs_tar=rootfs_tar, **options)
    except BaseException:
        lease.close()
        raise
    return Stacked(store=store, lease=lease, plan=made)


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    folder = tmp_path / "wheels"
    folder.mkdir()
    return Builder(folder)


@pytest.fixture
def store(tmp_path: Path) -> LayerStore:
    return LayerStore(tmp_path / "store")


@pytest.fixture
def rootfs(tmp_path: Path) -> Path:
    path = tmp_path / "rootfs.tar"
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo("./etc/os-release")
        entry.size = 5
        archive.addfile(entry, io.BytesIO(b"ID=x\n"))
    return path
