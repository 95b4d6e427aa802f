"""Real installs for the link proof, and sets out of them: each as installed or broken in one way, by a seed.

A set is a copy of an install's folder by hard links, so a break unlinks a file before it writes another one.
What the loader says of a set is the truth; :func:`compared` counts how often the proof says the same.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from link_oracle import Call, ask_loader, work_out
from uv import find_uv_bin

from builder.core.elf import elf_file
from builder.core.link import DiskView


@dataclass(frozen=True, kw_only=True)
class Install:
    """A row of ``nightly/link_installs.toml``, which says what its fields mean."""

    name: str
    requirements: list[str]
    donors: list[str]
    alone: bool = False


def installs() -> list[Install]:
    rows = tomllib.loads((Path(__file__).parent / "nightly/link_installs.toml").read_text())["installs"]
    return [Install(**row) for row in rows]


_LIBRARY = re.compile(r"\.so(\.[\w.]+)?$")


def install(row: Install, folder: Path, python: str = sys.executable) -> tuple[Path, Path]:
    """(site, donors): what is installed, and what may take its place; raises CalledProcessError."""
    site, donors = folder / "site", folder / "donors"
    base = [
        find_uv_bin(),
        "--quiet",
        "pip",
        "install",
        "--no-cache",
        "--only-binary",
        ":all:",
        "--python",
        python,
    ]
    options = ["--find-links", links] if (links := os.environ.get("PIP_FIND_LINKS")) else []
    deps = ["--no-deps"] if row.alone else []
    command = [*base, *options, *deps, "--target", str(site), *row.requirements]
    subprocess.run(command, check=True, timeout=1800, capture_output=True)
    for number, donor in enumerate(row.donors):
        command = [*base, "--no-deps", "--target", str(donors / str(number)), donor]
        subprocess.run(
            command, check=False, timeout=1800, capture_output=True
        )  # an old one may have no wheel
    return site, donors


def libraries(folder: Path) -> list[Path]:
    """The shared libraries below a folder, by their paths."""
    found = (path for path in sorted(folder.rglob("*.so*")) if _LIBRARY.search(path.name) and path.is_file())
    return [path for path in found if elf_file(str(path)).asked is not None]


@dataclass(kw_only=True)
class Scene:
    """A set: where it lies, and what a process does with it."""

    site: Path
    donors: Path
    there: list[Path]
    chance: random.Random
    variables: dict[str, str] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    note: str = ""

    def needed(self) -> list[Path]:
        """Libraries that others here need, by their file names."""
        names = {name for path in self.there for name in elf_file(str(path)).needed}
        return [path for path in self.there if path.name in names] or self.there

    def pick(self) -> Path:
        path = self.chance.choice(self.needed() if self.chance.random() < 0.7 else self.there)
        self.note = path.name
        return path


def _rewrite(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


def _edit(path: Path, old: str, new: str) -> bool:
    """Put a name of the same length in the place of another in a library's table of names."""
    content = path.read_bytes()
    if len(old) != len(new) or content.count(b"\0" + old.encode() + b"\0") == 0:
        return False
    _rewrite(path, content.replace(b"\0" + old.encode() + b"\0", b"\0" + new.encode() + b"\0"))
    return True


def as_installed(scene: Scene) -> None:
    """Nothing is broken."""


def deleted(scene: Scene) -> None:
    scene.pick().unlink()


def renamed(scene: Scene) -> None:
    path = scene.pick()
    path.rename(path.with_name(path.name.replace(".so", "-0a1b2c3d.so", 1)))


def other_soname(scene: Scene) -> None:
    path = scene.pick()
    soname = elf_file(str(path)).soname or path.name
    _edit(path, soname, soname[:-1] + ("9" if soname[-1] != "9" else "8"))


def other_need(scene: Scene) -> None:
    """A name of another major version, as a library of another CUDA has it."""
    path = scene.chance.choice(scene.there)
    names = [name for name in elf_file(str(path)).needed if not name.startswith("ld-")]
    if names:
        name = scene.chance.choice(names)
        scene.note = f"{path.name} {name}"
        _edit(path, name, name[:-1] + ("3" if name[-1] != "3" else "2"))


def newer_version(scene: Scene) -> None:
    """A symbol version that nobody has."""
    path = scene.chance.choice(scene.there)
    rows = elf_file(str(path)).asked()
    if rows:
        _, version, _ = scene.chance.choice(rows)
        scene.note = f"{path.name} {version}"
        _edit(path, version, version[:-1] + ("Z" if version[-1] != "Z" else "Y"))


def other_symbol(scene: Scene) -> None:
    """A symbol that its library does not offer under this name."""
    path = scene.chance.choice([one for one in scene.there if one.stat().st_size < 64 << 20] or scene.there)
    table = elf_file(str(path)).symbols()
    if table is not None and table.wanted:
        name = scene.chance.choice([row[0].decode() for row in table.wanted.values()])
        scene.note = f"{path.name} {name}"
        _edit(path, name, name[:-1] + ("q" if name[-1] != "q" else "z"))


def truncated(scene: Scene) -> None:
    path = scene.pick()
    content = path.read_bytes()
    _rewrite(path, content[: scene.chance.choice([0, 40, len(content) // 2, len(content) - 64])])


def other_release(scene: Scene) -> None:
    """Libraries of another release in the place of these: one, or a whole folder."""
    donors = {path.name: path for path in libraries(scene.donors)} if scene.donors.is_dir() else {}
    shared = [path for path in scene.there if path.name in donors]
    if not shared:
        return deleted(scene)
    chosen = scene.chance.choice(shared)
    folder = [path for path in shared if path.parent == chosen.parent]
    scene.note = chosen.name
    for path in folder if scene.chance.random() < 0.4 else [chosen]:
        path.unlink()
        shutil.copy(donors[path.name], path)
    return None


def variable(scene: Scene) -> None:
    """LD_LIBRARY_PATH names folders of libraries, a system's, or another release."""
    folders = sorted({str(path.parent) for path in scene.there + libraries(scene.donors)})
    chosen = scene.chance.sample(folders, min(len(folders), scene.chance.randint(1, 3)))
    scene.variables["LD_LIBRARY_PATH"] = ":".join([*chosen, *["/usr/lib"] * (scene.chance.random() < 0.3)])


def two_copies(scene: Scene) -> None:
    """A second copy of a library, which comes first in the process or on LD_LIBRARY_PATH."""
    path = scene.pick()
    place = scene.site / "second"
    place.mkdir(exist_ok=True)
    shutil.copy(path, place / path.name)
    if scene.chance.random() < 0.5:
        scene.variables["LD_LIBRARY_PATH"] = str(place)
    else:
        scene.calls.append(Call(str(place / path.name), everywhere=scene.chance.random() < 0.5))


def preloaded(scene: Scene) -> None:
    """Another release, or one of the set's own libraries, is in the process before all."""
    path = scene.chance.choice((libraries(scene.donors) if scene.donors.is_dir() else []) or scene.there)
    scene.note = path.name
    scene.calls.append(Call(str(path), everywhere=True))


BREAKS: tuple[Callable[[Scene], None], ...] = (
    deleted, renamed, other_soname, other_need, newer_version, other_symbol, truncated, other_release,
    variable, two_copies, preloaded,
)  # fmt: skip


def make_scene(site: Path, donors: Path, place: Path, seed: str, break_: Callable[[Scene], None]) -> Scene:
    """A set in ``place``, broken, with the calls of a process: extensions in any order, some by name."""
    shutil.copytree(
        site, place, copy_function=os.link, symlinks=True, ignore=shutil.ignore_patterns("*.py", "*.pyi")
    )
    chance = random.Random(seed)
    scene = Scene(site=place, donors=donors, there=libraries(place), chance=chance)
    break_(scene)
    extensions = [path for path in scene.there if re.search(r"\.(cpython-\w+-|abi3)", path.name)]
    for _ in range(chance.randint(4, 8)):
        path = chance.choice(extensions if extensions and chance.random() < 0.6 else scene.there)
        name = path.name if chance.random() < 0.1 else str(path)
        scene.calls.append(Call(name, everywhere=chance.random() < 0.25, lazy=chance.random() < 0.1))
    broken = [path for path in scene.there if path.name in scene.note.split()]
    at = chance.randrange(len(scene.calls) + 1)
    users = [p for p in scene.there if p.exists() and broken and broken[0].name in elf_file(str(p)).needed]
    scene.calls[at:at] = [Call(str(path)) for path in [*users[:2], *broken[:1]]]
    return scene


@dataclass(kw_only=True)
class Agreement:
    """Of one kind of sets: how many sets and calls, and in how many the proof says what the loader does."""

    sets: int = 0
    calls: int = 0
    same: int = 0
    loaded: int = 0
    wrong_yes: int = 0
    wrong_no: int = 0
    wrong_file: int = 0
    unknown: int = 0
    died: int = 0
    """Calls in which a library's own start ended the process: the loader had done its part."""
    words: list[str] = field(default_factory=list)

    def __add__(self, other: Agreement) -> Agreement:
        numbers = {name: value + vars(other)[name] for name, value in vars(self).items()}
        return Agreement(**numbers)


def compared(scene: Scene, view: DiskView, python: str = sys.executable) -> Agreement:
    """One set: what the loader did beside what was worked out."""
    run = ask_loader(python, scene.calls, scene.variables, timeout=300)
    _, answers = work_out(python, run, scene.calls, scene.variables, view)
    found = Agreement(sets=1)
    for call, told, mine in zip(scene.calls, run.answers, answers, strict=False):
        name = Path(call.name).name
        loads = told.loads
        if loads is None:
            found.died += 1
            if mine.loads is not False:
                continue
            loads = True
        found.calls += 1
        found.loaded += loads
        paths = [row.path for row in mine.rows]
        if mine.loads is None:
            found.unknown += 1
            found.words.append(f"unknown: {name}: {mine.text}; the loader: {told.error}")
        elif mine.loads != loads:
            found.wrong_yes += mine.loads
            found.wrong_no += loads
            found.words.append(
                f"wrong: {name}: {mine.kind} {mine.text} {mine.library}; the loader: {told.error}"
            )
        elif loads and list(told.new) != paths:
            found.wrong_file += 1
            apart = set(told.new) ^ set(paths)
            found.words.append(f"other files: {name}: {sorted(map(str, apart))[:4] or 'another order'}")
        else:
            found.same += 1
    return found


def sets_of(row: Install, folder: Path, number: int, seed: int) -> dict[str, Agreement]:
    """So many sets of one install, half of them as installed or in another order; agreement by kind."""
    site, donors = install(row, folder)
    for empty in (site, donors):
        empty.mkdir(exist_ok=True)
    base, found = DiskView(), dict[str, Agreement]()
    for path in libraries(site) + libraries(donors):
        base.file(str(path))
    for count in range(number):
        break_ = BREAKS[(count // 2 + seed) % len(BREAKS)] if count % 2 else as_installed
        place = folder / "set"
        try:
            scene = make_scene(site, donors, place, f"{row.name} {seed} {count}", break_)
            result = compared(scene, base.copy())
        finally:
            shutil.rmtree(place, ignore_errors=True)
        found[break_.__name__] = found.get(break_.__name__, Agreement()) + result
    return found


def table(found: dict[str, Agreement]) -> str:
    """Lines for people: one for each kind, and their sum."""
    total = sum(found.values(), Agreement())
    heads = ("sets", "calls", "loaded", "same", "yes", "no", "file", "unkn.", "died")
    lines = [" " * 15 + "".join(f"{head:>7}" for head in heads)]
    for name, one in [*sorted(found.items()), ("all", total)]:
        numbers = (one.sets, one.calls, one.loaded, one.same, one.wrong_yes, one.wrong_no, one.wrong_file)
        lines.append(f"{name:15}" + "".join(f"{n:7}" for n in (*numbers, one.unknown, one.died)))
    counts = Counter(word.partition(":")[0] for one in found.values() for word in one.words)
    return "\n".join([*lines, str(dict(counts))])
