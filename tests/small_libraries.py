"""Small real libraries for the loader, made by the C compiler, and processes that open them: all by a seed.

Each name comes in several builds: with DT_RPATH, DT_RUNPATH or none, with another soname or none, with
versions or none, with a symbol that nobody has. A layout copies some of them into folders, some damaged.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from link_oracle import Call

NAMES = [f"lib{letter}.so.1" for letter in "abcdefgh"]
FOLDERS = ["one", "two", "three", "four"]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A folder of libraries, and what a process does with it."""

    calls: list[Call]
    variables: dict[str, str]


def _compile(out: Path, source: str, *options: str, versions: str = "") -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    text, script = out.with_suffix(".c"), out.with_suffix(".map")
    text.write_text(source)
    script.write_text(versions)
    extra = [f"-Wl,--version-script={script}"] if versions else []
    command = ["gcc", "-shared", "-fPIC", "-nostdlib", "-o", str(out), str(text), *extra, *options]
    subprocess.run(command, check=True, capture_output=True)
    text.unlink()
    script.unlink()


def make_builds(folder: Path, chance: random.Random, *, each: int = 3) -> list[Path]:
    """So many builds of each name, as ``NAME.number``."""
    stubs = folder / "stubs"
    for at, name in enumerate(NAMES):
        source = f"int f{at}(void) {{ return 1; }} int g{at}(void) {{ return 1; }}"
        _compile(
            stubs / name,
            source,
            f"-Wl,-soname,{name}",
            versions=f"V{at}_1 {{ f{at}; }}; V{at}_2 {{ g{at}; }};",
        )
    made = []
    for at, name in enumerate(NAMES):
        for number in range(each):
            needs = [n for n in range(len(NAMES)) if n != at and chance.random() < 0.18]
            used = [f"{chance.choice('fg')}{n}" for n in needs]
            weak = [
                f"{chance.choice('fg')}{n}" for n in range(len(NAMES)) if chance.random() < 0.1 and n != at
            ]
            own = [f"f{at}"] + [f"g{at}"] * (chance.random() < 0.75)
            source = "".join(f"int {one}(void) {{ return 1; }}\n" for one in own)
            source += "".join(
                f"extern int {one}(void); int (*p_{one}_{at})(void) = {one};\n" for one in set(used)
            )
            source += "".join(
                f"extern int {one}(void) __attribute__((weak)); int (*w_{one}_{at})(void) = {one};\n"
                for one in set(weak) - set(used)
            )
            if chance.random() < 0.1:
                source += f"extern int nowhere(void); int call{at}(void) {{ return nowhere(); }}\n"
            kind = chance.choice(["none", "RPATH", "RUNPATH", "RUNPATH"])
            places = [
                chance.choice(["$ORIGIN/../", "${ORIGIN}/../", "$ORIGIN/../two/../"]) + chance.choice(FOLDERS)
                for _ in range(chance.randint(2, 4))
            ] + [""] * (chance.random() < 0.1)
            options = ["-Wl,--no-as-needed", "-Wl,--unresolved-symbols=ignore-all", f"-L{stubs}"]
            options += [f"-l:{NAMES[n]}" for n in needs]
            if kind != "none":
                tags = "enable" if kind == "RUNPATH" else "disable"
                options += [f"-Wl,-rpath,{':'.join(places)}", f"-Wl,--{tags}-new-dtags"]
            soname = chance.choice([name] * 6 + [chance.choice(NAMES), ""])
            options += [f"-Wl,-soname,{soname}"] if soname else []
            versions = ""
            if chance.random() < 0.7:
                versions = f"V{at}_1 {{ f{at}; }}; " + f"V{at}_2 {{ g{at}; }};" * (f"g{at}" in own)
            made.append(folder / "builds" / f"{name}.{number}")
            _compile(made[-1], source, *options, versions=versions)
    return made


def lay_out(folder: Path, builds: list[Path], chance: random.Random) -> Layout:
    """Copy some builds into folders below ``folder``, break some, and choose calls and variables."""
    for place in FOLDERS:
        (folder / place).mkdir(parents=True)
        for name in NAMES:
            if chance.random() < 0.7:
                target = folder / place / name
                build = chance.choice([one for one in builds if one.name.startswith(name)])
                others = sorted((folder).glob("*/*"))
                how = chance.random()
                if how < 0.08 and others:
                    target.symlink_to(chance.choice(others))
                elif how < 0.11:
                    target.write_bytes(chance.choice([b"", b"junk\n", build.read_bytes()[:3000]]))
                elif how < 0.13:
                    content = bytearray(build.read_bytes())
                    content[18] = 40  # another machine
                    target.write_bytes(content)
                else:
                    shutil.copy(build, target)
    variables = {}
    if chance.random() < 0.4:
        paths = [str(folder / place) for place in chance.sample(FOLDERS, chance.randint(1, 2))]
        variables["LD_LIBRARY_PATH"] = chance.choice([":", ";"]).join(paths)
    there = [str(path) for path in sorted(folder.glob("*/*"))]
    if chance.random() < 0.15 and there:
        variables["LD_PRELOAD"] = chance.choice(there)
    calls = []
    for _ in range(chance.randint(1, 6)):
        name = chance.choice(there) if there and chance.random() < 0.85 else chance.choice(NAMES)
        calls.append(Call(name, everywhere=chance.random() < 0.3, lazy=chance.random() < 0.2))
    return Layout(calls=calls, variables=variables)
