"""`rtbuild verify-digest` by a real Docker and a real Podman: its command line, a report, what stays.

No card is here: a list of devices (CDI) gives Podman one that is none, and a stand-in takes `--gpus` out of
Docker's command. The image prints a report that a test double wrote.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from doubles.project import Project, report
from doubles.registry import registry_client
from doubles.small_image import layer, push_image, status_file

from builder.release.dispatch.node import PulledImages, reports_beside, verify_digest
from builder.sources.oci.registry import Registry

if TYPE_CHECKING:
    from registry import LoopbackRegistry

    from builder.release.dispatch.node import Tool
    from builder.sources.oci.staging import Staged

pytestmark = [pytest.mark.docker]
CDI = Path("/var/run/cdi/rtbuild-test.json")
PROGRAM = """\
#include <stdio.h>
int main(void) {
    FILE *file = fopen("/report.json", "r");
    int letter;
    while ((letter = fgetc(file)) != EOF) putchar(letter);
    return 0;
}
"""


@pytest.fixture
def registry() -> Registry:
    return registry_client()


@pytest.fixture
def images(server: LoopbackRegistry, registry: Registry, tmp_path: Path) -> list[Staged]:
    """Two that print a report."""
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PROGRAM)
    subprocess.run(["gcc", "-static", "-o", program, source], check=True)
    cell = Project(tmp_path / "project").cell
    files = {
        "usr/bin/cudnn-verify": program.read_bytes(),
        "report.json": json.dumps(report() | {"expectation": cell.id}).encode(),
    }
    name = tmp_path.name.replace("_", "-")
    labels = {"io.rtbuild.cell": cell.id, "io.rtbuild.matrix": cell.matrix, "io.rtbuild.version": "0"}
    return [
        push_image(
            registry,
            f"{server.host}/{name}",
            tmp_path,
            layers=(layer({"var/lib/dpkg/status": status_file()}), layer(files | {"number": b"%d" % number})),
            labels=labels,
            tag=f"t{number}",
        )
        for number in range(2)
    ]


def _here(tool: str, image: Staged) -> bool:
    return not subprocess.run(
        [tool, "image", "inspect", image.reference], capture_output=True, check=False
    ).returncode


@pytest.mark.parametrize("tool", ["docker", "podman"])
def test_a_report_by_a_real_runtime_and_what_stays(
    tool: Tool, images: list[Staged], registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"needs {tool}")
    if tool == "podman" and (os.geteuid() != 0 or CDI.exists()):
        pytest.skip("needs root, for a list of devices that Podman reads")
    folder = tmp_path / "bin"
    folder.mkdir()
    stand_in = folder / "docker"
    stand_in.write_text(
        "#!/bin/bash\nwords=()\nwhile [ $# != 0 ]; do\n"
        '  if [ "$1" = --gpus ]; then shift 2; else words+=("$1"); shift; fi\ndone\n'
        f'exec {shutil.which("docker")} "${{words[@]}}"\n'
    )
    stand_in.chmod(0o755)
    insecure = tmp_path / "registries.conf"
    host = images[0].repository.partition("/")[0]
    insecure.write_text(f'[[registry]]\nlocation = "{host}"\ninsecure = true\n')
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(insecure))
    # else Podman asks for more than a machine that is itself confined may give
    limits = json.dumps(["nofile=1024:1024", "nproc=4000:4000"])
    settings = tmp_path / "containers.conf"
    # crun refuses the control groups of some hosts
    settings.write_text(f'[containers]\ndefault_ulimits = {limits}\n[engine]\nruntime = "runc"\n')
    monkeypatch.setenv("CONTAINERS_CONF", str(settings))
    monkeypatch.setenv("RTBUILD_CACHE", str(tmp_path / "cache"))
    device = {"name": "all", "containerEdits": {"env": ["CARD=none"]}}
    listed = {"cdiVersion": "0.3.0", "kind": "nvidia.com/gpu", "devices": [device]}
    first, second = images

    def run(image: Staged, keep: int) -> tuple[int, str]:
        options = {"card": "T4", "tool": tool, "seconds": 300, "keep_images": keep}
        found = verify_digest(registry, image.repository, image.digest, **options)
        return found.exit_code, found.message

    try:
        if tool == "podman":
            CDI.parent.mkdir(parents=True, exist_ok=True)
            CDI.write_text(json.dumps(listed))
        assert run(first, 1) == (0, "works on T4")
        assert len(reports_beside(registry, first, None)) == 1
        assert _here(tool, first)
        assert run(second, 0) == (0, "works on T4")
        assert not _here(tool, first)
        assert not _here(tool, second)
        assert json.loads(PulledImages(tool=tool, gigabytes=0).path.read_text()) == {}
    finally:
        CDI.unlink(missing_ok=True)
        for image in (first, second):
            subprocess.run(
                [tool, "image", "rm", "--force", image.reference], capture_output=True, check=False
            )
