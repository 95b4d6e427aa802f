"""One project's sources, laid out beside a system to build them in; and the calls of its build backend."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from builder.errors import CellError
from builder.layers.archive import Archive
from builder.sdist import wheel as wheels
from builder.sdist.confined import run_confined
from builder.sdist.unpack import refuse_address

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from builder.lock.index import Index
    from builder.model import Sdist, Wheel
    from builder.sdist.confined import Limits
    from builder.sdist.unpack import BuildSystem

INSIDE = Path(__file__).with_name("inside.py")
_EPOCH = 315619200
"""1980-01-02: what zip files can hold, and what does not depend on whether an index gives upload times."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A system with one project's sources beside it."""

    sdist: Sdist
    root: Path
    folder: Path
    """What is this build's own: ``sdist`` and ``requires``."""
    source: Path
    system: BuildSystem
    wanted: str
    """The Python that the wheel is for; :attr:`python` may be a neighbour of it."""
    cache: Path
    limits: Limits
    cancel: threading.Event

    @property
    def python(self) -> str:
        """The system's own: ``3.11``."""
        found = next(self.root.glob("usr/bin/python3.*[0-9]"), None)
        if found is None:
            raise CellError(f"the system to build {self.sdist.file} in has no Python")
        return found.name.removeprefix("python")

    def lay(self, requires: Sequence[Wheel], index: Index) -> None:
        """Put the files of wheels where the build's Python finds them; those of an earlier call go."""
        target = self.folder / "requires"
        if target.exists():
            shutil.rmtree(target)
        target.mkdir()
        paths = index.fetch_all(requires, cache=self.cache, stop=self.cancel)
        for wheel in requires:
            with Archive(paths[wheel.sha256]) as archive:
                for name in archive.members:
                    place = _installed(name)
                    if place is not None:
                        path = target / place
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(archive.read(name))
        (target / "inside.py").write_bytes(INSIDE.read_bytes())

    def requires_of_hook(self) -> tuple[str, ...]:
        """What the backend asks for besides: ``get_requires_for_build_wheel``."""
        what = f"asking {self.sdist.file} what its build needs{self._with}"
        try:
            found = json.loads(self._run("requires", what))
            texts = tuple(str(Requirement(text)) for text in found)
        except (ValueError, TypeError, InvalidRequirement) as problem:
            raise CellError(f"{what}: no list of requirements came back: {problem}") from problem
        for text in texts:
            refuse_address(text, self.sdist.file)
        return texts

    def build(self) -> tuple[str, wheels.Content]:
        """The wheel's file name and its files, after it was looked at."""
        what = f"building {self.sdist.file}{self._with}"
        said, _, data = self._run("wheel", what).partition(b"\n")
        try:
            name = json.loads(said)
        except ValueError:
            name = None
        if not isinstance(name, str) or "/" in name or not name.endswith(".whl"):
            raise CellError(f"{what}: the build ended without a wheel")
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            path = Path(folder) / name
            path.write_bytes(data)
            content = wheels.members(path)
            wheels.refuse_other(path, content, self.sdist, self.wanted)
        return name, content

    @property
    def _with(self) -> str:
        return "" if self.python == self.wanted else f" with Python {self.python}"

    def _run(self, hook: str, what: str) -> bytes:
        job = {
            "hook": hook,
            "backend": self.system.backend,
            "path": list(self.system.path),
            "source": f"/sdist/{self.source.name}",
            "work": "/build",
            "epoch": _EPOCH,
        }
        unpacked = sum(f.stat().st_size for f in self.source.rglob("*") if f.is_file())
        return run_confined(
            [f"/usr/bin/python{self.python}", "-s", "/requires/inside.py", json.dumps(job)],
            self.root,
            {f"/{part}": self.folder / part for part in ("sdist", "requires")},
            what=what,
            env=_ENVIRONMENT,
            limits=replace(self.limits, memory=self.limits.memory + 6 * unpacked),
            cancel=self.cancel,
        )


_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin",
    "HOME": "/build",
    "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONPATH": "/requires",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",
    "SOURCE_DATE_EPOCH": str(_EPOCH),
}


def _installed(name: str) -> str | None:
    """Where a wheel's file goes below one folder; None for scripts, headers and the like."""
    first, _, rest = name.partition("/")
    if not first.endswith(".data"):
        return name
    scheme, _, path = rest.partition("/")
    return path if scheme in {"purelib", "platlib"} else None
