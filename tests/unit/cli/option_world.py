"""A folder, a registry and an engine in which every command can be run, with each call out of it recorded.

All of it are test doubles: no GPU, engine, index, scheduler or signature is real, and the registry is one on
this machine's loopback, gone with the test.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import io
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import pytest
import requests
from doubles.cosign import CosignDouble
from doubles.engine import T4_HOST, EngineDouble, says, stored
from doubles.project import CELL, PROBE, Project, report
from doubles.registry import RegistryDouble, registry_client, serve
from typer.exceptions import TyperException
from urllib3 import HTTPResponse

from builder.cli.app import loaded
from builder.cli.first_matrix import MatrixWish, matrix_text
from builder.core.errors import CellError, RtbuildError
from builder.core.model import Pinned, RegistryBase
from builder.core.suites import SUITES
from builder.image.engine.engine import Engine
from builder.image.engine.images import StoredImage
from builder.pipeline.run_context import MadeImages
from builder.plan.facts.reading.release_survey import Survey
from builder.plan.facts.reading.rereading import SideTables
from builder.plan.lock.file import lock_path, merge
from builder.plan.matrix import load
from builder.release.catalogue import collection
from builder.release.colab.diff import Inventory, Listed
from builder.sources.index import uv
from builder.sources.oci.registry import Registry
from builder.verify.evidence.attach import share
from builder.verify.evidence.statement import Cosign, Signed
from builder.verify.runner.reports import parse, read_entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from builder.image.engine.container import ProbeRun
    from builder.image.layers.store import Lease

AS_TEXT = {"text", "encoding", "errors", "universal_newlines"}
"""By each of these `subprocess` gives text."""
OTHERS = """\
version: 1
name: others
defaults:
  framework: tensorflow==2.15.1
  base: nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04
  python: "3.10"
  cuda: base
  apt: [git]
include:
  - {}
"""
IMPOSSIBLE = """\
version: 1
name: impossible
defaults: {framework: torch==2.9.1, python: "3.12", base: "rootfs:debian/bookworm", gpus: [K80]}
include:
  - {cuda: {from: wheels, packages: []}}
"""
FLEET = """\
version: 1
scheduler: slurm
staging: {host}/staging
classes: {{T4: {{partition: gpu}}}}
"""
AGAIN = """\
version: 1
name: again
defaults:
  framework: tensorflow==2.15.1
  base: rootfs:debian/bookworm
  python: 3.11
  cuda: {from: wheels, packages: [nvidia-cudnn-cu12==8.9.4.25, nvidia-cuda-runtime-cu12==12.2.140]}
  gpus: [T4]
  env: {AGAIN: "1"}
include:
  - {}
"""
UNLOCKED = """\
version: 1
name: unlocked
defaults: {framework: six==1.17.0, python: "3.11", base: "rootfs:debian/bookworm", cuda: none}
include:
  - {}
"""


@dataclass(frozen=True)
class Observation:
    """What a run did, as far as anybody outside can see."""

    code: int
    stdout: str
    stderr: str
    calls: tuple[str, ...]
    """Sorted, each once: threads make some of them, and some are tried again."""
    files: tuple[tuple[str, str], ...]

    def differences(self, other: Observation) -> list[str]:
        return [name for name in self.__dataclass_fields__ if getattr(self, name) != getattr(other, name)]


@dataclass
class World:
    """Where a command runs: the same for every run, and new for each."""

    folder: Path
    template: Path
    server: RegistryDouble
    monkeypatch: pytest.MonkeyPatch
    calls: list[str] = field(default_factory=list)
    held: dict[str, StoredImage] = field(default_factory=dict)
    staged: str = ""
    """The digest of the image in staging."""

    def record(self, name: str, *arguments: object, **options: object) -> None:
        shown = [repr(one) for one in arguments] + [f"{key}={value!r}" for key, value in options.items()]
        self.calls.append(self.plain(f"{name}({', '.join(shown)})"))

    def recorded(self, name: str, answer: Any = None) -> Any:
        """A function that records its arguments, and answers or raises ``answer``."""

        def call(*arguments: object, **options: object) -> Any:
            self.record(name, *arguments, **options)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def plain(self, text: str) -> str:
        """The text without what differs from run to run: addresses, temporary names, moments, seconds."""
        text = text.replace(self.server.host, "REGISTRY")
        for pattern, shown in (
            (r" at 0x[0-9a-f]+", ""),
            (r"(?:\b|(?<=%3A))[0-9a-f]{12,64}\b", "HEX"),
            (r"rtbuild-[\w-]*[a-z0-9_]{6,}", "TEMPORARY"),
            (r"uploads/\d+", "UPLOAD"),
            (r"\d{8}T\d{6}Z-\d+", "MOMENT"),
            (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?", "MOMENT"),
            (r"\b\d{4}-\d\d-\d\d\b", "DAY"),
            (r'("seconds": |"time=")[\d.]+', "SECONDS"),
            (r'time="[\d.]+"', "SECONDS"),
            (r"\b\d+(\.\d+)? ?m?s\b", "SECONDS"),
            (r'("[a-z]+": )\d+\.\d{1,2}\b', "FIGURE"),
        ):
            text = re.sub(pattern, shown, text)
        return text

    def run(self, command: str, arguments: Sequence[str]) -> Observation:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.template, self.folder)
        held = dict(self.held)
        before = [dict(one) for one in (self.server.blobs, self.server.manifests, self.server.tags)]
        self.calls.clear()
        self.server.requests.clear()
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        name, *inner = command.split()
        words = [
            one.replace("REGISTRY", self.server.host).replace("DIGEST", self.staged)
            for one in (*inner, *arguments)
        ]
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = _code(name, words)
        out.flush()
        asked = [self.plain(f"registry {line}") for line in self.server.requests]
        self.server.blobs, self.server.manifests, self.server.tags = before
        self.held = held
        return Observation(
            code=code,
            stdout=self.plain(out.buffer.getvalue().decode("utf-8", "replace")),  # type: ignore[attr-defined]
            stderr=self.plain(err.getvalue()),
            calls=tuple(sorted({*self.calls, *asked})),
            files=tuple(self._files()),
        )

    def _files(self) -> Iterator[tuple[str, str]]:
        for path in sorted(self.folder.rglob("*")):
            name = str(path.relative_to(self.folder))
            if path.is_file() and not name.startswith(("cache/", "blob", "home/")):
                yield self.plain(name), self.plain(path.read_bytes().decode("utf-8", "replace"))


def _code(name: str, words: list[str]) -> int:
    """As the console script ends."""
    try:
        result = loaded(name).main(args=words, prog_name=name, standalone_mode=False)
    except TyperException as error:
        print(error.format_message(), file=sys.stderr)
        return 2
    except RtbuildError as error:
        print(f"{error.message}\n{error.hint}", file=sys.stderr)
        return error.exit_code
    return result if isinstance(result, int) else 0


NOT_RUN = [
    {"suite": name, "framework": None, "outcome": "not_run", "suggested": True, "reason": "a test double"}
    for name in SUITES
    if name != "conv"
]
"""What the probe says of the suites that a cell's packages suggest."""


class _Engine(EngineDouble):
    """Tells the world what it is asked, has the images that the world holds, and builds nothing."""

    client_command = ("docker",)

    def __init__(self, world: World) -> None:
        super().__init__(run=says(report()), gpu=T4_HOST, machine=MACHINE, probe=PROBE)
        self.world = world

    def __getattr__(self, name: str) -> Any:
        return self.world.recorded(f"engine.{name}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def disk_free(self) -> int:
        return MACHINE["disk_free"]

    def inspect(self, reference: str) -> StoredImage | None:
        return self.world.held.get(reference.replace(self.world.server.host, "REGISTRY"))

    def find(self, inputs: str, names: Sequence[str] = ()) -> StoredImage | None:
        self.world.record("engine.find", inputs, names)
        held = (self.world.held.get(name) for name in names)
        return next((one for one in held if one and one.label("io.rtbuild.inputs") == inputs), None)

    def cells(self) -> dict[str, str]:
        return {}

    def built(self) -> dict[str, tuple[str, ...]]:
        return {}

    def read_file(self, reference: str, path: str) -> bytes | None:
        self.world.record("engine.read_file", reference, path)
        return super().read_file(reference, path) or b"runtime:x:1000:1000::/home/runtime:/bin/sh\n"

    def run_probe(self, reference: str, argv: Sequence[str], *, gpus: bool, **options: Any) -> ProbeRun:
        self.world.record("engine.run_probe", reference, argv, gpus, options.get("timeout"))
        return super().run_probe(reference, argv, gpus=gpus)

    def pull(self, reference: str, **options: Any) -> None:
        self.world.record("engine.pull", reference)
        options["progress"]("a layer", 1, 2)

    def receive(self, image: Any, _blob: object, name: str, *, progress: Any, **_more: object) -> StoredImage:
        self.world.record("engine.receive", name)
        progress(5)
        return _stored(name, image.digest, image.content)

    def build(self, *arguments: object, **options: object) -> Any:
        self.world.record("engine.build", *arguments, **options)
        raise CellError("the double builds nothing")


MACHINE: dict[str, Any] = {
    "store": "graphdriver",
    "driver": "overlay2",
    "disk_free": 10**12,
    "host": "unix:///var/run/docker.sock",
    "memory": 16 << 30,
}


def _stored(name: str, digest: str, content: str, **labels: str) -> StoredImage:
    named = tuple((f"io.rtbuild.{label}", text) for label, text in labels.items())
    return stored(name, digest, content=content, labels=named)


class _Cosign(CosignDouble):
    """Tells the world what it is asked, and signs no image."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def sign_text(self, text: bytes, signer: Any) -> str:
        self.world.record("cosign.sign_text", signer)
        return super().sign_text(text, signer)

    def sign(self, image: str, _statement: object, signer: Any) -> None:
        self.world.record("cosign.sign", image, signer)
        raise CellError("the double signs nothing")

    def verify(self, *arguments: object, **options: object) -> Signed:
        self.world.record("cosign.verify", *arguments, **options)
        return Signed(statements=(), reason="the double verifies nothing", present=False)


def _made() -> Any:
    return SimpleNamespace(
        digest="sha256:" + "1" * 64,
        config_digest="sha256:" + "2" * 64,
        content="sha256:" + "3" * 64,
        size=5,
        layers=(),
        records=(),
        manifest=b"{}",
        config=b"{}",
    )


def furnish(folder: Path, server: RegistryDouble) -> tuple[dict[str, StoredImage], str]:
    """Matrices, locks and reports in ``folder``, images in the registry; what an engine would hold."""
    registry = registry_client()
    project = Project(folder)
    matrices = folder / "matrices"
    matrices.mkdir()
    for path in (project.path, lock_path(project.path)):
        shutil.move(path, matrices / path.name)
    others_unlocked = OTHERS.replace("name: others", "name: others-unlocked")
    for name, text in (
        ("others", OTHERS),
        ("others-unlocked", others_unlocked),
        ("impossible", IMPOSSIBLE),
        ("unlocked", UNLOCKED),
    ):
        (folder / f"{name}.yaml").write_text(text)
    others = load(folder / "others.yaml")
    base = RegistryBase(
        reference="nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04",
        digest="sha256:" + "b" * 64,
        env=(("CUDA_VERSION", "12.2.2"), ("NV_CUDNN_VERSION", "8.9.6.50")),
        labels=(("org.opencontainers.image.ref.name", "ubuntu"),),
        size=1,
    )
    wheels = next(iter(project.recipes.values())).pinned.wheels
    locked = {cell.id: Pinned(cell=cell, base=base, wheels=wheels, epoch=1) for cell in others.cells}
    merge(lock_path(others.path), others, locked)
    for name in ("cosign.pub", "cosign.key"):
        (folder / name).write_text(name)
    staged = project.stage(registry, f"{server.host}/staging")
    project.report(staged, suites=NOT_RUN)
    _elsewhere(folder / "again", registry, server)
    damaged = folder / "cache" / "layers" / "blobs" / "sha256" / ("d" * 64)
    damaged.parent.mkdir(parents=True)
    damaged.write_text("other bytes than its name says")
    (folder / "requirements.txt").write_text("torch==2.9.1\n")
    locked = 'lock-version = "1.0"\n[[packages]]\nname = "torch"\nversion = "2.9.1"\n'
    (folder / "pylock.toml").write_text(locked)
    (folder / "pyproject.toml").write_text('[project]\nname = "p"\ndependencies = ["torch==2.9.1"]\n')
    lines = {"cell_type": "code", "source": ["!pip install torch==2.9.1"], "outputs": []}
    (folder / "notebook.ipynb").write_text(json.dumps({"cells": [lines], "nbformat": 4}))
    (folder / "environment.yml").write_text("dependencies: [pip, {pip: [torch==2.9.1]}]\n")
    (folder / "fleet.yaml").write_text(FLEET.format(host=server.host))
    (folder / "report.json").write_text(json.dumps(report()))
    for name in ("lists", "others"):
        (folder / name).mkdir()
        lines = ("numpy==2.0.2", "tensorflow==2.18.0", f"{name}==1.0")
        (folder / name / "pip-freeze.gpu.txt").write_text("\n".join(lines) + "\n")
        (folder / name / "apt-list-gpu.txt").write_text(
            "libcudnn9-cuda-12/now 9.2.1.18-1 amd64 [installed,local]\n"
        )
        (folder / name / "os-info-gpu.txt").write_text("Ubuntu 22.04.4 LTS\nPython 3.11.13\n")
    (folder / ".venv").mkdir()
    wish = MatrixWish(words=("torch",), gpu="T4", driver="535", jupyter=True, offline=True)
    (folder / "up.yaml").write_text(matrix_text(wish))
    server.tags[load(folder / "up.yaml").cells[0].id] = staged.digest
    (folder / ".devcontainer").mkdir()
    (folder / ".devcontainer" / "devcontainer.json").write_text("{}")
    recipe = project.recipes[CELL]
    held = _stored(
        f"rtbuild/tf:{CELL}",
        staged.config_digest,
        staged.content,
        cell=CELL,
        matrix="tf",
        inputs=recipe.inputs,
    )
    project.report(replace(staged, manifest=replace(staged.manifest, digest=held.digest)), suites=NOT_RUN)
    MadeImages(folder / "cache" / "made").remember(
        recipe.inputs, digest=staged.digest, content=staged.content
    )
    colab = replace(held, labels=(*held.labels, ("io.rtbuild.profile", "colab")))
    return {held.reference: held, f"rtbuild/colab:{CELL}": colab}, staged.digest


def _elsewhere(folder: Path, registry: Registry, server: RegistryDouble) -> None:
    """A cell of another matrix that another machine built, and whose report lies beside its image.

    In the public repository its tag is already one of the matrix ``tf``.
    """
    project = Project(folder, AGAIN)
    staged = project.stage(registry, f"{server.host}/staging", extra=b"again")
    share(registry, staged, [read_entry(project.report(staged).read_text(), "x.json")])


def _page(request: Any) -> requests.Response:
    """A package index with a wheel of each project of the runtime's list but one, of which it has sources."""
    project = urlsplit(request.url).path.strip("/").rpartition("/")[2]
    files = {
        "numpy": "numpy-2.0.2-py3-none-any.whl",
        "tensorflow": "tensorflow-2.18.0-py3-none-any.whl",
        "lists": "lists-1.0.tar.gz",
    }
    if project not in files:
        raise requests.ConnectionError("the double answers nobody", request=request)
    entry = {"filename": files[project], "url": files[project], "hashes": {"sha256": "a" * 64}, "size": 5}
    answer = requests.Response()
    answer.status_code, answer.url, answer.request = 200, request.url, request
    answer.headers["Content-Type"] = "application/vnd.pypi.simple.v1+json"
    page = {"meta": {"api-version": "1.0"}, "name": project, "files": [entry]}
    answer.raw = HTTPResponse(io.BytesIO(json.dumps(page).encode()), preload_content=False)
    return answer


FEW, CAUSES = tuple(itertools.islice(collection.releases_of(), 2)), collection.causes_of()
RUNTIME = Listed(
    runtime="2025.07",
    python="3.11.13",
    cuda="12.5.1",
    cudnn="9.2.1.18",
    packages={"numpy": "2.0.2", **{f"package{number}": "1.0" for number in range(50)}},
)


def _inventory() -> Inventory:
    """An image that has a little of the runtime."""
    return Inventory(
        python="3.11.13", packages={"numpy": "2.0.1"}, inside={}, report=parse(json.dumps(report()))
    )


def _colab_said() -> str:
    """What Google's command line prints when the probe has run on one of its machines."""
    changed = {"changes": [{"what": "driver", "before": "1", "now": "2"}]}
    packed = base64.b64encode(zlib.compress(json.dumps(report() | changed).encode())).decode()
    return f"rtbuild-report-begin\n{packed}\nrtbuild-report-end\n"


class _Waiting(threading.Event):
    """A test double of a dispatcher's patience: it waits for no time."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def wait(self, timeout: float | None = None) -> bool:
        self.world.record("wait", f"{timeout:g} of them")
        return self.is_set()


class _Missing:
    """A test double of the layers that a build lacks: there are none."""

    def __init__(self, *, given: Any, **_: object) -> None:
        self.given = given

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wheel(self, *_: object) -> None:
        pass

    def finish(self) -> Any:
        return self.given


def _record_making(world: World) -> None:
    """Layers and images are made of nothing; what is sent, signed, written and asked for is recorded."""

    def planned(_pinned: object, lease: Lease) -> Any:
        lease.look(["a layer"])
        base = SimpleNamespace(layers=(), config={})
        return SimpleNamespace(missing=(), every=(), base=base, interpreter=(), lease=lease)

    patch = world.monkeypatch.setattr
    patch("builder.pipeline.image_build.plan", planned)
    patch("builder.pipeline.image_build.LayerBuild", _Missing)
    patch("builder.pipeline.image_build.python_tar", world.recorded("python"))
    patch("builder.pipeline.image_build.fetch_wheels", world.recorded("wheels"))
    patch("builder.pipeline.image_build.compose_image", lambda _given: _made())
    patch("builder.image.compose.step_runner", lambda _engine: SimpleNamespace(check=lambda: None))
    patch(
        "builder.pipeline.image_build.push_image",
        lambda _registry, where, *_, **__: world.record("push", where),
    )
    patch(
        "builder.pipeline.image_build.write_layout", lambda folder, *_, **__: world.record("layout", folder)
    )
    patch(
        "builder.pipeline.image_build.sign_pushed",
        lambda site, where: world.record("sign", site.signer, where),
    )


@dataclass(frozen=True)
class Furnished:
    """What every world begins with; a run changes a copy of it, and the registry is put back after each."""

    template: Path
    server: RegistryDouble
    held: dict[str, StoredImage]
    staged: str


@contextlib.contextmanager
def furnished(folder: Path) -> Iterator[Furnished]:
    """A project with images, reports and one publication, in ``folder`` and in a registry that answers."""
    with serve() as server, pytest.MonkeyPatch.context() as monkeypatch:
        made = Furnished(folder / "template", server, *furnish(folder / "template", server))
        world = open_world(folder, made, monkeypatch)
        public = ["matrices/tf.yaml", "--from", f"{server.host}/staging", "--to", f"{server.host}/known"]
        with contextlib.chdir(world.template), contextlib.redirect_stderr(io.StringIO()) as said:
            assert _code("publish", public) == 0, said.getvalue()
        monkeypatch.undo()
        yield made


def open_world(  # noqa: C901 - one recorder after the other
    folder: Path, begin: Furnished, monkeypatch: pytest.MonkeyPatch
) -> World:
    """The world, with a recorder at each way out of rtbuild."""
    server = begin.server
    world = World(folder / "here", begin.template, server, monkeypatch, held=dict(begin.held))
    world.staged = begin.staged
    patch = monkeypatch.setattr
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(folder / "home"))
    monkeypatch.setenv("RTBUILD_CACHE", str(world.folder / "cache"))
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://index.invalid/simple")
    monkeypatch.setenv("COLUMNS", "200")
    for name in [name for name in os.environ if name.startswith("GITHUB_")]:
        monkeypatch.delenv(name)

    def connect(*, context: str | None = None, builder: str | None = None) -> _Engine:
        world.record("engine.connect", context, builder)
        return _Engine(world)

    patch(Engine, "connect", connect)
    patch(Cosign, "find", lambda: _Cosign(world))

    def send(adapter: Any, request: Any, **options: Any) -> Any:
        if request.url.startswith(f"http://{server.host}/"):
            return real_send(adapter, request, **options)
        host = urlsplit(request.url).hostname
        world.record("http", request.method, host)
        if host == "index.invalid":
            return _page(request)
        raise requests.ConnectionError("the double answers nobody", request=request)

    real_send = requests.adapters.HTTPAdapter.send
    patch(requests.adapters.HTTPAdapter, "send", send)

    # asked once in a process: an answer of the world would be kept for the tests after it
    patch(uv, "_uv_builtin", lambda: "http://index.invalid/simple")

    def ran(command: Any, **options: Any) -> Any:
        if "--only-downloads" in command or "--emit-index-url" in command:
            text = "[]" if "--only-downloads" in command else "--index-url http://index.invalid/simple\n"
            return subprocess.CompletedProcess(command, 0, text, "")
        world.record("process", command, (options.get("env") or {}).get("LD_LIBRARY_PATH"))
        if "nvidia-smi" in str(command[0]):
            raise FileNotFoundError(command[0])
        text = json.dumps(report()) + "\n"
        plain = options.keys() & AS_TEXT
        if command[1:2] == ["venv"]:
            Path(command[-1], "bin").mkdir(parents=True, exist_ok=True)
        if command[1:2] == ["pull"]:
            world.held[command[-1].replace(server.host, "REGISTRY")] = world.held[f"rtbuild/colab:{CELL}"]
        if command[0] == "sbatch":
            text = "1;cluster\n"
        elif command[0] == "colab":
            text = _colab_said()
        elif command[0] in {"squeue", "scontrol", "sacct"}:
            text = ""
        return subprocess.CompletedProcess(command, 0, text if plain else text.encode(), "")

    patch(subprocess, "run", ran)

    class Process:
        def __init__(self, command: Any, **options: Any) -> None:
            world.record("process", command)
            said = json.dumps(report()) + "\n"
            text = options.keys() & AS_TEXT
            self.stdout: Any = io.StringIO(said) if text else io.BytesIO(said.encode())
            self.stderr: Any = io.StringIO() if text else io.BytesIO()
            self.returncode = 0
            self.pid = 1 << 30
            """Above every process's."""

        def __class_getitem__(cls, _inner: object) -> object:
            return cls

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def communicate(self, *_: object, **__: object) -> tuple[str, str]:
            return "", ""

        def wait(self, *_: object) -> int:
            return 0

        def poll(self) -> int:
            return 0

    patch(subprocess, "Popen", Process)
    there = SimpleNamespace(which=lambda name: f"/usr/bin/{name}")
    patch("builder.release.dispatch.node.shutil", there)

    class Limit:
        def __init__(self, seconds: float, _ends: object) -> None:
            world.record("limit", seconds)

        def start(self) -> None:
            pass

        cancel = start

    patch("builder.release.dispatch.node.threading.Timer", Limit)
    patch(
        "builder.cli.commands.dispatch.threading", SimpleNamespace(Event=functools.partial(_Waiting, world))
    )
    patch("builder.image.engine.doctor.require", world.recorded("sandbox"))

    def pool(workers: int, **options: Any) -> ThreadPoolExecutor:
        world.record("threads", workers)
        return ThreadPoolExecutor(workers, **options)

    patch("builder.pipeline.events.ThreadPoolExecutor", pool)
    patch("builder.image.engine.build.sweep_passing", world.recorded("sweep"))
    _record_making(world)
    patch("builder.plan.facts.reading.rereading.survey", world.recorded("survey", Survey()))

    def refreshed(folder: Path, *, registry: Registry, **_more: object) -> SideTables:
        world.record("refresh", folder)
        with contextlib.suppress(CellError):
            registry.digest_of("nvidia/cuda:12.2.2-base-ubuntu22.04")
        return SideTables()

    patch("builder.plan.facts.reading.rereading.read_side_tables", refreshed)
    patch("builder.plan.facts.reading.rereading.differences", lambda _index: ())
    patch("builder.plan.facts.reading.rereading.write_whole", world.recorded("write"))
    patch("builder.cli.commands.facts.portable", lambda: "{}")
    patch("builder.cli.commands.facts.write_whole", world.recorded("write"))
    patch("builder.cli.commands.colab.listed", world.recorded("runtime", RUNTIME))
    patch("builder.cli.commands.colab.measure", world.recorded("measure", _inventory()))
    # a site has a page for each release, card and cause: two are enough here
    for name, row in (("releases_of", FEW), ("cards_of", collection.cards_of()), ("causes_of", CAUSES)):
        patch(collection, name, functools.partial(tuple, row[:2]))
    return world
