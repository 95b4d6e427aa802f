"""Ready-made layers hold what pip installs: one image is built by pip, one stacked."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from layer_wheels import Builder, Made, paths, pinned, stack, tricky

from builder.core.resources import cache
from builder.image.layers.store import LayerStore
from builder.image.recipe.rendering import render

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from builder.image.recipe.values import Recipe

pytestmark = pytest.mark.docker

REAL = (
    "pip==26.0.1",
    "six==1.17.0",
    "numpy==1.26.4",
    "greenlet==3.1.1",
    "nvidia-cuda-runtime-cu11==11.8.89",
    "nvidia-nvtx-cu11==11.8.86",
)

PLATFORMS = ("manylinux_2_28", "manylinux_2_24", "manylinux_2_17", "manylinux2014", "manylinux1")

WHEELS = "--mount=type=bind,from=downloads,target=/mnt/wheels"
"""A folder of wheels in place of an index, for the stage that installs them."""
PIP_CONF = "[install]\nno-index = true\nfind-links = /mnt/wheels\n"

# In place of the stages that follow upon `wheels`: what a Python needs, and nothing that hides a difference.
RUNTIME = """\
FROM wheels AS runtime
RUN <<'EOF'
set -eu
python=$(basename "$(readlink -f /usr/bin/python3)")
ln -s "/usr/bin/$python" /opt/runtime/bin/python
ln -s python "/opt/runtime/lib/$python"
printf 'home = /usr/bin\\ninclude-system-site-packages = false\\n' > /opt/runtime/pyvenv.cfg
EOF
COPY look.py /look.py
"""

LOOK = """\
import hashlib, importlib, json, os, stat, subprocess, sys
tree = {}
for folder, folders, files in os.walk("/opt/runtime"):
    for name in folders + files:
        path = os.path.join(folder, name)
        status = os.lstat(path)
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFLNK:
            what = os.readlink(path)
        elif kind == stat.S_IFREG:
            what = hashlib.sha256(open(path, "rb").read()).hexdigest()
        else:
            what = ""
        generated = name in ("pyvenv.cfg",) or kind == stat.S_IFLNK or path in (
            "/opt/runtime/bin", "/opt/runtime/lib")
        tree[path] = [oct(status.st_mode), status.st_uid, status.st_gid, what,
                      None if generated else int(status.st_mtime)]
def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    return [done.returncode, done.stdout, done.stderr]
python = "/opt/runtime/bin/python"
bin = "/opt/runtime/bin/"
os.environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
imports = "six numpy greenlet tricky_all tricky_pure tricky_plat tricky_namespace.part"
scripts = "python options shell main class extra gui"
print(json.dumps({
    "tree": tree,
    "list": run(python, "-m", "pip", "list", "--format", "json"),
    "check": run(bin + "pip", "check"),
    "files": run(bin + "pip3", "show", "-f", "tricky-all"),
    "imports": [run(python, "-c", "import " + name) for name in imports.split()],
    "scripts": {name: run(bin + "tricky-" + name) for name in scripts.split()},
}, sort_keys=True))
"""


@pytest.fixture(scope="module")
def rootfs() -> Path:
    """A small Debian of this machine's own release, with Python, out of its own package sources."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is not installed")
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    target = cache() / "tests" / f"rootfs-{release}.tar"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f"{uuid.uuid4().hex}.tar")
        files = [p for p in Path("/etc/apt").rglob("*") if p.suffix in (".list", ".sources")]
        sources = [p for p in files if release in p.read_text()]
        subprocess.run(
            ["mmdebstrap", "--quiet", "--variant=minbase", "--include=python3", release, beside, *sources],
            check=True,
            timeout=300,
        )
        beside.rename(target)
    return target


@pytest.fixture(scope="module")
def python(rootfs: Path) -> str:
    """The version of the rootfs's Python, as ``3.11``."""
    with tarfile.open(rootfs) as archive:
        names = (name.rpartition("/usr/bin/python")[2] for name in archive.getnames())
        return next(name for name in names if re.fullmatch(r"3\.\d+", name))


def matching(folder: Path, pattern: str, python: str) -> Path | None:
    """A wheel in ``folder`` that this Python can use."""
    usable = (f"-cp{python.replace('.', '')}-", "-py3-", "-py2.py3-")
    return next(
        (path for path in sorted(folder.glob(pattern)) if any(tag in path.name for tag in usable)), None
    )


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory, python: str) -> list[Made]:
    """Real wheels and tricky ones, in one folder."""
    builder = Builder(tmp_path_factory.mktemp("wheels"))
    downloads = cache() / "dl"
    downloads.mkdir(parents=True, exist_ok=True)
    for requirement in REAL:
        name, _, version = requirement.partition("==")
        pattern = f"{name.replace('-', '_')}-{version}-*"
        source = matching(downloads, pattern, python)
        if source is None:
            subprocess.run(
                [
                    *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
                    *("--only-binary", ":all:", "--python-version", python, "--dest", downloads, requirement),
                    *(f"--platform={tag}_x86_64" for tag in PLATFORMS),
                ],
                check=True,
                timeout=300,
            )
            source = matching(downloads, pattern, python)
        assert source is not None
        target = builder.folder / source.name
        shutil.copyfile(source, target)
        builder.add(target, name=name, version=version)
    tricky(builder)
    return builder.made


def dockerfile(recipe: Recipe) -> str:
    """The recipe's own stages up to the one that ready-made layers replace."""
    text = recipe.files["Dockerfile"].content.decode()
    stages, found, _ = text.partition("FROM wheels AS additions\n")
    assert found
    assert stages.count("RUN --mount") == 1
    return stages.replace("RUN --mount", f"RUN {WHEELS} --mount") + RUNTIME


class Bench:
    """Builds the same context in both ways and looks at the images from inside."""

    def __init__(self, folder: Path, rootfs: Path, python: str, wheels: list[Made]) -> None:
        self.folder = folder
        self.python = python
        self.rootfs = rootfs
        self.wheels = wheels
        self.images: list[str] = []
        shutil.copyfile(rootfs, folder / "rootfs.tar")
        recipe = render(pinned(wheels, python=python), probe=b"", version="test")
        for name in ("slim.py", "requirements.txt"):
            (folder / name).write_bytes(recipe.files[name].content)
        (pip,) = (one for one in wheels if one.wheel.name == "pip")
        shutil.copyfile(pip.path, folder / pip.wheel.file)
        (folder / "Dockerfile").write_text(dockerfile(recipe))
        (folder / "look.py").write_text(LOOK)
        (folder / "pip.conf").write_text(PIP_CONF)

    def build(self, contexts: Mapping[str, str]) -> str:
        name = f"rtbuild-test-layers:{uuid.uuid4().hex}"
        command = ["docker", "buildx", "build", "--provenance=false", "--progress=plain", "--tag", name]
        command += ["--secret", f"id=pip_conf,src={self.folder}/pip.conf"]
        # "downloads" even where its stage is overridden: BuildKit looks up every name in the file.
        for stage, place in {"downloads": str(self.wheels[0].path.parent), **contexts}.items():
            command += ["--build-context", f"{stage}={place}"]
        done = subprocess.run(
            [*command, "--output", f"type=image,name={name},compression=zstd", self.folder],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        self.images.append(name)
        return name

    def look(self, image: str) -> dict[str, Any]:
        done = subprocess.run(
            ["docker", "run", "--rm", "--network=none", image, "python3", "/look.py"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def remove(self) -> None:
        subprocess.run(
            ["docker", "rmi", "--force", *self.images], capture_output=True, check=False, timeout=60
        )


@pytest.fixture(scope="module")
def bench(
    tmp_path_factory: pytest.TempPathFactory, rootfs: Path, python: str, wheels: list[Made]
) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("bench"), rootfs, python, wheels)
    yield bench
    bench.remove()


def layered(bench: Bench, store: LayerStore, *, compression: str = "zstd") -> str:
    lock = pinned(bench.wheels, python=bench.python, compression=compression)
    with stack(lock, store=store, wheel_paths=paths(bench.wheels), rootfs_tar=bench.rootfs) as stacked:
        place = stacked.layout(bench.folder.parent / uuid.uuid4().hex)
        # Every stage below, or BuildKit 0.13 sends the files of those that are not built.
        return bench.build(dict.fromkeys(("base", "installer", "wheels"), place))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LayerStore:
    return LayerStore(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def fast(bench: Bench, store: LayerStore) -> dict[str, Any]:
    return bench.look(layered(bench, store))


def without_python_version(tree: dict[str, Any], headers: str) -> dict[str, Any]:
    """Leave out what differs: RECORD of a wheel with headers, whose folder pip names after the Python."""
    return {path: entry for path, entry in tree.items() if not (headers in path and path.endswith("/RECORD"))}


def test_both_ways_give_the_same_tree_and_the_same_environment(bench: Bench, fast: dict[str, Any]) -> None:
    plain = bench.look(bench.build({}))
    assert plain["scripts"]["main"] == [0, "tricky main\n", ""]
    assert [one[0] for one in plain["imports"]] == [0] * 7, plain["imports"]
    plain_tree, fast_tree = plain.pop("tree"), dict(fast)["tree"]
    for headers in ("tricky_headers-", "greenlet-"):
        plain_tree = without_python_version(plain_tree, headers)
        fast_tree = without_python_version(fast_tree, headers)
    assert sorted(plain_tree) == sorted(fast_tree)
    assert {p: (e, fast_tree[p]) for p, e in plain_tree.items() if e != fast_tree[p]} == {}
    assert plain == {key: value for key, value in fast.items() if key != "tree"}


def test_headers_are_recorded_where_they_are(fast: dict[str, Any]) -> None:
    header = "/opt/runtime/include/site/python/tricky-headers/tricky.h"
    assert fast["tree"][header][0] == oct(0o100644)


def test_gzip_layers_hold_the_same_tree(bench: Bench, store: LayerStore, fast: dict[str, Any]) -> None:
    assert bench.look(layered(bench, store, compression="gzip")) == fast


def test_a_second_build_makes_nothing_and_takes_no_time(
    bench: Bench, store: LayerStore, fast: dict[str, Any]
) -> None:
    lock = pinned(bench.wheels, python=bench.python)
    start = time.monotonic()
    with stack(lock, store=store, wheel_paths=paths(bench.wheels), rootfs_tar=bench.rootfs) as stacked:
        assert stacked.made == 0
    layered(bench, store)
    assert fast["list"][0] == 0
    assert time.monotonic() - start < 60
