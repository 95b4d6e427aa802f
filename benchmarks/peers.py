"""What a user would write today: one Dockerfile for each cell, pip in one RUN, and `docker buildx bake`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from builder.model import Pinned

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


@dataclass(frozen=True, kw_only=True)
class Plain:
    """A build context of the kind that people write."""

    name: str
    folder: Path
    wheels: Path

    @property
    def build(self) -> list[str]:
        return ["build", "--network=none", "--build-context", f"wheels={self.wheels}", str(self.folder)]


def plain(pinned: Pinned, folder: Path, *, wheels: Path, base: str, env: Mapping[str, str]) -> Plain:
    """Write the context for one cell."""
    folder.mkdir(parents=True, exist_ok=True)
    pip = next(wheel for wheel in pinned.wheels if wheel.name == "pip")
    python = f"python{pinned.cell.python}"
    site = f"/opt/venv/lib/{python}/site-packages"
    parts = sorted(
        {wheel.name.removeprefix("nvidia-").rpartition("-")[0].replace("-", "_") for wheel in pinned.wheels
         if wheel.name.startswith("nvidia-")}
    )  # fmt: skip
    text = DOCKERFILE.format(
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
    targets = {
        f"cell{number}": {
            "context": str(cell.folder),
            "contexts": {"wheels": str(cell.wheels)},
            "network": "none",
            "tags": [f"{repository}:{cell.name}"],
            "output": ["type=docker"],
        }
        for number, cell in enumerate(cells)
    }
    path.write_text(json.dumps({"group": {"default": {"targets": list(targets)}}, "target": targets}))
    return [target["tags"][0] for target in targets.values()]  # type: ignore[misc]
