"""Colab's months without any image registry: one built, started, probed and compared; and each locked.

``make colab-month`` needs an engine and 51 GB of disk, which is looked at first; the locks alone
(``-k locks``) need 3 GB. Two things are put in the place of what may be out of reach. If PyTorch's
own index does not answer, its builds (``0.10.0+cu128``) become the common index's of the same version; and if
this machine has a CPython of that minor version, the double of the mirror serves it as the standalone one.
The comparison tells both apart.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import colab_page
import pytest
import yaml
from colab_runtime import free_port
from doubles.python_mirror import installed, machine_pythons
from packaging.utils import canonicalize_name
from rtbuild_command import RTBUILD, rtbuild

from builder.core import resources
from builder.core.errors import MissingToolError, PackageIndexError
from builder.image.compose.sizes import Need, refuse_full
from builder.image.engine.engine import Engine
from builder.sources.index.client import Index

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MATRICES = Path(__file__).resolve().parents[2] / "matrices"
MONTH = os.environ.get("RTBUILD_COLAB_MONTH", "2026.04")
"""The newest whose frameworks are all on the common index in Colab's own builds."""
MONTHS = sorted(path.name[len("colab-") : -len(".runtime.json")] for path in MATRICES.glob("*.runtime.json"))
WHOLE = Need(engine=31_000_000_000, cache=20_000_000_000)
"""Bytes of 2026.04: 21 unpacked and 10 of layers; 9 of wheels, their layers, the system."""
FRAMEWORKS = """
import jax, torch
import tensorflow as tf
from jax import lax
ones = jax.numpy.ones
print(
    float(tf.nn.conv2d(tf.ones((1, 4, 4, 1)), tf.ones((2, 2, 1, 1)), 1, "VALID")[0, 0, 0, 0]),
    float(torch.nn.functional.conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 2, 2))[0, 0, 0, 0]),
    float(lax.conv(ones((1, 1, 4, 4)), ones((1, 1, 2, 2)), (1, 1), "VALID")[0, 0, 0, 0]),
)
"""


def within_reach(text: str, minor: str | None) -> dict[str, Any]:
    """The month's cell on a rootfs, with what can be had here; ``minor``: the double's Python."""
    matrix: dict[str, Any] = yaml.safe_load(text)
    matrix["include"] = [row for row in matrix["include"] if row["base"].startswith("rootfs:")]
    defaults = matrix["defaults"]
    if minor is not None:
        defaults["python"]["version"] = minor
    if not all(map(answers, defaults.get("index", ()))):
        del defaults["index"]
        for key in ("framework", "pip"):
            defaults[key] = [re.sub(r"\+cu\d+$", "", pin) for pin in defaults[key]]
    return matrix


def answers(url: str) -> bool:
    try:
        Index.from_user(brief=True).with_extra((url,)).offers_of(url, "torch")
    except PackageIndexError:
        return False
    return True


@contextlib.contextmanager
def project(folder: Path, month: str) -> Iterator[Mapping[str, str]]:
    """Put the month's matrix into ``folder``; the environment that leads to its Python."""
    text = (MATRICES / f"colab-{month}.yaml").read_text()
    asked = re.search(r'python: \{version: "(3\.\d+)', text)
    minor = asked[1] if asked is not None and asked[1] in installed() else None
    (folder / "matrices").mkdir()
    (folder / f"matrices/colab-{month}.yaml").write_text(yaml.safe_dump(within_reach(text, minor)))
    mirror = (
        machine_pythons(minor, cache=resources.cache() / "tests") if minor else contextlib.nullcontext({})
    )
    with mirror as variables:
        yield {**os.environ, **variables}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """The project, the image's name, and the build's document."""
    cache = resources.cache()
    try:
        with Engine.connect() as engine:
            refuse_full(WHOLE, engine_free=engine.disk_free(), engine_root=engine.facts().root, cache=cache)
    except MissingToolError as problem:
        pytest.fail(f"{problem.message}, with empty caches")
    folder = tmp_path_factory.mktemp("month")
    with project(folder, MONTH) as env:
        done = rtbuild(folder, "build", "--json", "--progress", "plain", env=env, timeout=7200, check=None)
    assert done.returncode in {0, 1}, done.stderr
    cell = json.loads(done.stdout)["cells"][0]
    assert cell["image"] is not None, cell["error"]
    image = cell["image"]["reference"]
    yield folder, image, cell
    subprocess.run(["docker", "image", "rm", "--force", image], check=True)


def test_the_probe_finds_nothing_against_it(built: tuple[Path, str, dict[str, Any]]) -> None:
    assert built[2]["verification"]["verdict"] in {"unverified", "works"}


def test_it_is_as_near_to_colab_as_the_indexes_let_it(built: tuple[Path, str, dict[str, Any]]) -> None:
    folder, image, _ = built
    record = str(MATRICES / f"colab-{MONTH}.runtime.json")
    done = rtbuild(folder, "colab", "diff", image, "--against", record, "--json", timeout=1800)
    found = json.loads(done.stdout)
    print(
        json.dumps(
            {key: found[key] for key in ("core", "counts", "present_percent", "same_percent", "probe")}
        )
    )
    assert found["reached"], [row for row in found["packages"] if row["status"] in {"missing", "other"}]


def test_jupyter_answers_and_the_frameworks_convolve_in_one_process(
    built: tuple[Path, str, dict[str, Any]], tmp_path: Path
) -> None:
    _, image, _ = built
    command = [*RTBUILD, "run", image, "--json", "--content", str(tmp_path)]
    with subprocess.Popen(
        [*command, "--port", str(free_port())], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line == "}\n":
                break
        try:
            started = json.loads("".join(lines))
            page = colab_page.Page(started["address"])
            assert page.get("/api/kernelspecs").ok
            with page.kernel() as kernel:
                assert kernel.run("print(6 * 7)") == "42\n"
            inside = ["docker", "exec", "--interactive", started["container"], "python", "-"]
            done = subprocess.run(inside, input=FRAMEWORKS, capture_output=True, text=True, check=True)
            assert done.stdout.splitlines()[-1] == "4.0 4.0 4.0"
        finally:
            process.terminate()


@pytest.mark.parametrize("month", MONTHS)
def test_a_month_locks_at_colab_s_versions(month: str, tmp_path: Path) -> None:
    record = json.loads((MATRICES / f"colab-{month}.runtime.json").read_text())
    absent = {one["name"] for one in record["missing"]}
    wanted = {
        canonicalize_name(name): version.partition("+")[0]
        for name, version in record["packages"].items()
        if name not in absent
    }
    with project(tmp_path, month) as env:
        began = time.monotonic()
        rtbuild(tmp_path, "lock", "--progress", "plain", env=env, timeout=7200)
        seconds = time.monotonic() - began
    lock = json.loads((tmp_path / f"matrices/colab-{month}.lock.json").read_text())
    (cell,) = lock["cells"].values()
    wheels = [lock["wheels"][key] for key in cell["wheels"]]
    size = sum(wheel["size"] for wheel in wheels) / 1e9
    print(f"\n{month}: {len(wheels)} wheels, {size:.2f} GB, {len(lock['sdists'])} sources, {seconds:.0f} s")
    found = {wheel["name"]: wheel["version"].partition("+")[0] for wheel in wheels}
    assert {name: found.get(name) for name in wanted} == wanted
