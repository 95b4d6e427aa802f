"""Bytecode kept by distribution, laid together again, is that of one run of the recipe's step over all."""

from __future__ import annotations

import csv
import dataclasses
import importlib
import io
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from builder.core.errors import MissingToolError
from builder.image import sandbox
from builder.image.compose.run_steps import RootfsTree, compile_sources, compiler, parts_of
from builder.image.layers.convert import Excerpt, Pack, keep_pack
from builder.image.layers.store import LayerStore
from builder.image.layers.tar import MTIME
from builder.image.recipe.rendering import render

sys.path.insert(0, str(Path(__file__).parents[1] / "recipe"))
import recipe_cells

if TYPE_CHECKING:
    from builder.image.recipe.values import RecipeStep

SITE = "opt/runtime/lib/python/site-packages"
VERSIONS = Path("~/.pyenv/versions").expanduser()
FOLDERS = {
    place: Path(place) for place in ("/usr", "/bin", "/lib", "/lib64", str(VERSIONS)) if Path(place).is_dir()
}
"""Of this machine, in which its interpreters are."""


def pythons() -> list[Any]:
    """Every CPython from 3.6 on that is here, as the command in ``/usr/bin`` or below a pyenv. Those between
    the oldest and the newest are for the slow part.
    """
    found = {
        path.name[6:]: str(path) for path in Path("/usr/bin").glob("python3.*") if path.name[8:].isdigit()
    }
    found |= {path.parts[-3]: str(path) for path in VERSIONS.glob("3.*/bin/python3")}
    oldest_first = sorted(found, key=lambda version: [int(part) for part in version.split(".")])
    ends = {oldest_first[0], oldest_first[-1]} if found else set()
    return [
        pytest.param(found[version], marks=[] if version in ends else pytest.mark.slow)
        for version in oldest_first
    ]


def bytecode_step() -> RecipeStep:
    recipe = render(recipe_cells.ROOTFS_WHEELS, probe=recipe_cells.PROBE, version="0.1.0")
    return next(step for step in recipe.steps if step.name == "bytecode")


@pytest.fixture(params=pythons(), ids=lambda path: path.strip("/").replace("/", "-"))
def step(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> RecipeStep:
    """The recipe's step, run by one of this machine's interpreters, which is mounted into the scratch."""
    try:
        sandbox.require()
    except MissingToolError as problem:
        pytest.skip(str(problem))

    run = sandbox.run

    def with_folders(program: list[str], view: sandbox.View, **options: Any) -> bytes:
        return run(program, replace(view, folders=FOLDERS), **options)

    monkeypatch.setattr(importlib.import_module("builder.image.sandbox.bwrap"), "run", with_folders)
    found = bytecode_step()
    assert '"/usr/bin/$python" -B' in found.script
    script = found.script.replace('"/usr/bin/$python" -B', f'"{request.param}" -B')
    return dataclasses.replace(found, script=script)


WORDS = "".join(f"name_{number} = 'value_{number}'\n" for number in range(40)).encode()
"""Names that several files share: what one becomes depends on what its process has compiled before."""
FILES: dict[str, dict[str, bytes]] = {
    "one": {f"one/m{number}.py": WORDS + b"x = %d" % number for number in range(9)}
    | {"space/__init__.py": b"", "space/one.py": WORDS},
    "two": {
        "space/__init__.py": b"",
        "space/two.py": WORDS + b"\nx = 'x', 2.5 ** 0.5, (), {1} < {2}\n",
        "space/wrong.py": b"print 'for another Python'\n",
        "space/nul.py": b"x = 1\0\n",
        "space/latin.py": b"# coding: latin-1\nx = '\xe4'\n",
        "space/ver\u00fcckt \u2028name,.py": WORDS,
        "space/a.b.py": b"name_1 = 'value_1'\n",
    },
    "three": {"three.py": WORDS[::-1], "tests/data/template.py": b"{{ no python }}", "m.py": WORDS},
    "": {"stray.py": WORDS, "space/stray.py": WORDS + b"y = 1\n"},
}
"""Distributions that get into each other's way, and files that no RECORD names."""


def packed(store: LayerStore, *names: str) -> list[Pack]:
    """The excerpt of a layer for each of these distributions."""
    found = []
    for name in names:
        excerpt = Excerpt()
        rows = io.StringIO(newline="")
        csv.writer(rows).writerows((path, "", "") for path in FILES[name])
        record = {f"{name}-1.dist-info/RECORD": rows.getvalue().encode()} if name else {}
        for path, content in {**FILES[name], **record}.items():
            feed = excerpt.take(f"{SITE}/{path}", 0o755 if "two" in path else 0o644, len(content))
            assert feed is not None
            feed(content)
        found.append(keep_pack(f"test-{name}", name, excerpt.contents, store.lease()))
    return found


def compiled(
    step: RecipeStep, root: Path, packs: list[Pack], store: LayerStore
) -> tuple[list[str], dict[str, Any]]:
    """Which parts were compiled now, and the layer: each path with mode, time and content."""
    scratch = RootfsTree(root, threading.Event())
    lease = store.lease()
    for pack in packs:
        for folder in pack.notes["folders"]:
            scratch.folder(folder)
    env = sandbox.environment({})
    missing = compile_sources(
        step,
        packs,
        scratch,
        lease,
        env={},
        run=lambda: sandbox.run_script(
            step.script, scratch.root, what="it", env=env, cancel=threading.Event()
        ),
        progress=lambda _text: None,
    )
    out = scratch.root / "out/bytecode"
    found = {}
    for path in sorted(out.rglob("*")):
        status = path.stat()
        content = path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(out))] = (status.st_mode, status.st_mtime, content)
    return [part.title.removeprefix("bytecode of ") for part in missing], found


def test_parts_of_several_runs_are_what_one_run_makes(step: RecipeStep, tmp_path: Path) -> None:
    one, two = LayerStore(tmp_path / "one"), LayerStore(tmp_path / "two")
    names = ("one", "two", "three", "")
    made, whole = compiled(step, tmp_path / "whole", packed(one, *names), one)
    assert made == ["what is shared", "one-1", "three-1", "two-1"]
    made, _ = compiled(step, tmp_path / "before", packed(two, "one", "three"), two)
    assert made == ["one-1", "three-1"]
    made, parts = compiled(step, tmp_path / "parts", packed(two, *names), two)
    assert made == ["what is shared", "one-1", "two-1"], "alone, its __init__.py was nobody else's"
    old = os.umask(0o077)
    try:
        made, again = compiled(step, tmp_path / "again", packed(two, *names), two)
    finally:
        os.umask(old)
    assert made == []
    assert parts == whole
    assert again == whole
    assert {time for _, time, _ in whole.values()} == {MTIME}
    names_ = {path.rpartition("/")[2].partition(".cpython")[0] for path in whole if path.endswith(".pyc")}
    assert names_ >= {"__init__", "stray", "a.b", "latin", "ver\u00fcckt \u2028name,", "m0", "m8"}
    assert not names_ & {"wrong", "template"}


def test_what_a_part_is_looked_up_by(tmp_path: Path) -> None:
    store = LayerStore(tmp_path / "store")

    def keys(*names: str, by: str = "1") -> dict[str, str]:
        return {part.title: part.key for part in parts_of(packed(store, *names), made_by=by)}

    alone, together = keys("three"), keys("three", "one", "")
    assert together["bytecode of three-1"] == alone["bytecode of three-1"]
    assert keys("three", by="2")["bytecode of three-1"] != alone["bytecode of three-1"]
    assert keys("one", "two")["bytecode of one-1"] != keys("one")["bytecode of one-1"]


def test_the_interpreter_is_its_files_and_no_others(tmp_path: Path) -> None:
    step = bytecode_step()
    root = tmp_path / "root"
    for name in (
        "usr/bin/python3.9",
        "usr/lib/python3.9/os.py",
        "lib/x86_64-linux-gnu/libm-2.31.so",
        "etc/fstab",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "usr/bin/python3").symlink_to("python3.9")
    first = compiler(step, root, {})
    (root / "etc/fstab").write_text("other")
    (root / "lib/x86_64-linux-gnu/libgomp.so.1").write_text("new")
    assert compiler(step, root, {}) == first
    assert compiler(step, root, {"PYTHONOPTIMIZE": "1"}) != first
    for name in ("usr/lib/python3.9/os.py", "lib/x86_64-linux-gnu/libm-2.31.so", "usr/bin/python3.9"):
        (root / name).write_text("other")
        changed = compiler(step, root, {})
        assert changed != first
        first = changed
    (root / "usr/bin/python3").unlink()
    assert compiler(step, root, {}) != first


def test_a_part_that_was_cut_short_is_compiled_again(tmp_path: Path) -> None:
    store = LayerStore(tmp_path / "store")
    lease, packs, step = store.lease(), packed(store, "three"), bytecode_step()
    ran: list[str] = []

    def compiled_in(name: str) -> Path:
        """The bytecode of one file, below a folder of this name."""
        scratch = RootfsTree(tmp_path / name, threading.Event())
        made = scratch.root / "out/bytecode" / SITE / "__pycache__/three.cpython-39.pyc"

        def run() -> None:
            if not made.exists():
                ran.append(name)
                made.parent.mkdir(parents=True, exist_ok=True)
                made.write_bytes(b"compiled")

        compile_sources(step, packs, scratch, lease, env={}, run=run, progress=lambda _text: None)
        return made

    assert compiled_in("one").read_bytes() == compiled_in("two").read_bytes() == b"compiled"
    assert ran == ["one"]
    (part,) = parts_of(packs, made_by=compiler(step, tmp_path / "one", {}))
    record = lease.find(part.key)
    assert record is not None
    blob = store.blob(record.digest)
    blob.write_bytes(blob.read_bytes()[:-1])
    assert compiled_in("three").read_bytes() == b"compiled"
    assert ran == ["one", "three"]
