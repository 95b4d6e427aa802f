"""What a user would write today: one Dockerfile for each cell, pip in one RUN, and `docker buildx bake`."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from uv import find_uv_bin

from benchmarks.sessions import CHANGED, REPOSITORY, Figures, Site

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchmarks.rig import Engine, Store
    from builder.core.model import Pinned

BASE = "bench/base"

DOCKERFILE = """\
FROM {base}
RUN --network=none --mount=type=bind,from=wheels,target=/wheels \\
    --mount=type=bind,source=requirements.txt,target=/requirements.txt \\
    python3 -m venv --without-pip /opt/venv && \\
    /opt/venv/bin/python /wheels/{pip}/pip install --no-index --find-links=/wheels --no-cache-dir \\
        --no-deps --require-hashes -r /requirements.txt
ENV PATH=/opt/venv/bin:$PATH
ENV LD_LIBRARY_PATH={libraries}
{env}CMD ["bash"]
"""
"""pip in one RUN. The wheels come from a folder of this machine, which BuildKit has been sent beforehand, and
not over a network: no download, and no copy of a download, is counted against the peer."""
UV_DOCKERFILE = """\
FROM {base}
RUN --network=none --mount=type=bind,from=wheels,target=/wheels --mount=type=bind,from=uv,target=/uv \\
    --mount=type=bind,source=requirements.txt,target=/requirements.txt \\
    /uv/uv venv --offline --no-python-downloads --python python3 /opt/venv && \\
    VIRTUAL_ENV=/opt/venv /uv/uv pip install --compile-bytecode --offline --no-index --find-links=/wheels \\
        --no-cache --no-deps --require-hashes -r /requirements.txt
ENV PATH=/opt/venv/bin:$PATH
ENV LD_LIBRARY_PATH={libraries}
{env}CMD ["bash"]
"""
"""The strongest that a user could write: uv, with bytecode, which images of rtbuild hold too."""


@dataclass(frozen=True, kw_only=True)
class Plain:
    """A build context of the kind that people write."""

    name: str
    folder: Path
    wheels: Path

    @property
    def build(self) -> list[str]:
        return ["build", "--network=none", "--build-context", f"wheels={self.wheels}", str(self.folder)]


def plain(
    pinned: Pinned,
    folder: Path,
    *,
    wheels: Path,
    base: str,
    env: Mapping[str, str],
    dockerfile: str = DOCKERFILE,
) -> Plain:
    """Write the context for one cell."""
    folder.mkdir(parents=True, exist_ok=True)
    pip = next(wheel for wheel in pinned.wheels if wheel.name == "pip")
    python = f"python{pinned.cell.python}"
    site = f"/opt/venv/lib/{python}/site-packages"
    parts = sorted(
        {wheel.name.removeprefix("nvidia-").rpartition("-")[0].replace("-", "_") for wheel in pinned.wheels
         if wheel.name.startswith("nvidia-")}
    )  # fmt: skip
    text = dockerfile.format(
        base=base,
        pip=pip.file,
        libraries=":".join(f"{site}/nvidia/{part}/lib" for part in parts) or "/usr/local/lib",
        env="".join(f"ENV {name}={value}\n" for name, value in env.items()),
    )
    (folder / "Dockerfile").write_text(text)
    lines = [f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}" for wheel in pinned.wheels]
    (folder / "requirements.txt").write_text("\n".join(lines) + "\n")
    return Plain(name=pinned.cell.id, folder=folder, wheels=wheels)


def bake_file(cells: Iterable[Plain], path: Path, repository: str) -> list[str]:
    """A `docker-bake.json` of these contexts; the tags that it makes."""
    cells = list(cells)
    tags = [f"{repository}:{cell.name}" for cell in cells]
    targets = {
        f"cell{number}": {
            "context": str(cell.folder),
            "contexts": {"wheels": str(cell.wheels)},
            "network": "none",
            "tags": [tags[number]],
            "output": ["type=docker"],
        }
        for number, cell in enumerate(cells)
    }
    path.write_text(json.dumps({"group": {"default": {"targets": list(targets)}}, "target": targets}))
    return tags


def family(site: Site, store: Store) -> Figures:
    """Plain `docker build` and `docker push` of the first cell from nothing, and with a changed variable."""
    pinned = site.cells(site.plan.family)[0]
    with tempfile.TemporaryDirectory(dir=site.work) as folder, site.rig(store) as (registry, engine):
        assert engine is not None  # a store was named
        wheels = site.wheels([pinned])
        base = base_image(site, engine, pinned)
        context = plain(pinned, Path(folder) / "first", wheels=wheels, base=base, env={})
        warm(engine, context, base)
        first = push_plain(engine, context)
        site.say(f"{store} first: {first['seconds']:.1f} s")
        changed = _changed(engine, context, pinned, wheels, base)
        return {"first": first | {"registry": registry.blob_bytes()}, "environment": changed}


def push_buildkit(engine: Engine, context: Plain, tag: str, output: str, compression: str = "zstd") -> float:
    """Build, and have BuildKit itself export the image; seconds."""
    # Without OCI's media types a layer's is one that Docker 28 counts as none, and the pull is refused.
    whole = f"type=image,name={tag},compression={compression},oci-mediatypes=true,{output}"
    uv_folder = f"uv={Path(find_uv_bin()).parent}"
    seconds, _ = engine.docker(
        "buildx", "build", "--build-context", uv_folder, "--provenance=false", "--output", whole,
        *context.build[1:],
    )  # fmt: skip
    return seconds


def push_plain(engine: Engine, context: Plain) -> Figures:
    tag = f"{REPOSITORY}/plain:{context.name}"
    build, _ = engine.docker(*context.build[:1], "--tag", tag, *context.build[1:])
    push, _ = engine.docker("push", "--quiet", tag)
    _, size = engine.docker("image", "inspect", "--format", "{{.Size}}", tag)
    return {"seconds": build + push, "build": build, "push": push, "size": int(size)}


def _changed(engine: Engine, context: Plain, pinned: Pinned, wheels: Path, base: str) -> Figures:
    """The peer's own best case: a variable changed after the RUN that pip is in."""
    again = plain(pinned, context.folder, wheels=wheels, base=base, env={CHANGED: "1"})
    return push_plain(engine, again)


def base_image(site: Site, engine: Engine, pinned: Pinned) -> str:
    """The operating system as an image in the engine and in the registry, before the clock runs."""
    tag = f"{REPOSITORY}/plain:base-{'apt' if pinned.cell.apt else 'plain'}"
    with tempfile.TemporaryDirectory(dir=site.work) as folder:
        os.link(site.rootfs(pinned), Path(folder) / "rootfs.tar")
        (Path(folder) / "Dockerfile").write_text("FROM scratch\nADD rootfs.tar /\n")
        engine.docker("build", "--tag", tag, folder)
    engine.docker("push", "--quiet", tag)
    return tag


def warm(engine: Engine, context: Plain, base: str) -> None:
    """Have BuildKit receive the wheels, and unpack the base, before the clock runs."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Dockerfile").write_text(
            f"FROM {base}\nRUN --network=none --mount=type=bind,from=wheels,target=/wheels ls /wheels\n"
        )
        engine.docker("build", "--network=none", "--build-context", f"wheels={context.wheels}", folder)


def matrix(site: Site, store: Store) -> Figures:
    """`docker buildx bake` of four plain Dockerfiles, and four pushes."""
    cells = site.cells(site.plan.matrix)
    with tempfile.TemporaryDirectory(dir=site.work) as folder, site.rig(store) as (registry, engine):
        assert engine is not None  # a store was named
        wheels = site.wheels(cells)
        base = base_image(site, engine, cells[0])
        contexts = [
            plain(
                pinned,
                Path(folder) / str(number),
                wheels=wheels,
                base=base_image(site, engine, pinned),
                env={},
            )
            for number, pinned in enumerate(cells)
        ]
        warm(engine, contexts[0], base)
        bake = Path(folder) / "docker-bake.json"
        tags = bake_file(contexts, bake, f"{REPOSITORY}/plain")
        build, _ = engine.docker("buildx", "bake", "--file", str(bake))
        push = sum(engine.docker("push", "--quiet", tag)[0] for tag in tags)
        site.say(f"{store} matrix: {build + push:.1f} s")
        return {
            "matrix": {
                "seconds": build + push,
                "build": build,
                "push": push,
                "registry": registry.blob_bytes(),
            }
        }
