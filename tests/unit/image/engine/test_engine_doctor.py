from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
import requests
from doubles.engine import EngineDouble

from builder.core.errors import MissingToolError
from builder.image.engine import doctor
from builder.image.engine.doctor import DoctorCheck, diagnose, gpu_checks, network
from builder.image.engine.facts import Gpu, GpuFacts
from builder.sources.net import Client

if TYPE_CHECKING:
    from pathlib import Path


def by_name(checks: list[DoctorCheck]) -> dict[str, DoctorCheck]:
    assert len({check.name for check in checks}) == len(checks)
    return {check.name: check for check in checks}


def test_no_engine_leaves_the_rest_to_be_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = GpuFacts(
        request=None,
        traces=("/dev/nvidia0",),
        driver="535.104.05",
        gpus=(Gpu(name="Tesla T4", compute_capability="7.5"),),
    )
    monkeypatch.setattr(doctor, "gpu_facts", lambda *_, **__: card)
    checks = by_name(diagnose(MissingToolError("no engine", hint="start it"), cache=tmp_path / "not" / "yet"))
    assert checks["engine"] == DoctorCheck(
        name="engine", outcome="failed", found="no engine", remedy="start it", required=True
    )
    unasked = ("buildx", "image store", "engine disk", "NVIDIA toolkit")
    assert {checks[name].outcome for name in unasked} == {"not_run"}
    assert "535.104.05" in checks["NVIDIA driver"].found
    assert "Tesla T4" in checks["GPU"].found
    assert checks["uv"].outcome == "passed"
    assert checks["cache disk"].outcome in {"passed", "failed"}


def test_a_sound_machine_without_a_gpu(tmp_path: Path) -> None:
    checks = by_name(diagnose(EngineDouble(), cache=tmp_path))
    assert {checks[name].outcome for name in ("engine", "buildx", "image store", "engine disk")} == {"passed"}
    assert {checks[name].outcome for name in ("NVIDIA toolkit", "NVIDIA driver", "GPU")} == {"not_run"}


def test_every_failure_has_a_remedy(tmp_path: Path) -> None:
    gpu = GpuFacts(request=None, traces=("/dev/nvidia0",))
    engine = EngineDouble(gpu=gpu, machine={"store": "graphdriver", "disk_free": 10**9})
    failed = [check for check in diagnose(engine, cache=tmp_path) if check.outcome == "failed"]
    assert {"image store", "engine disk", "NVIDIA toolkit", "NVIDIA driver", "GPU"} <= {
        c.name for c in failed
    }
    assert all(check.remedy for check in failed)


def test_a_remote_engine_s_disk_is_not_looked_at(tmp_path: Path) -> None:
    check = by_name(diagnose(EngineDouble(machine={"disk_free": None}), cache=tmp_path))["engine disk"]
    assert check.outcome == "not_run"


def test_a_gpu_host() -> None:
    gpu = GpuFacts(
        request="gpus",
        traces=("/dev/nvidia0",),
        toolkit="1.17.8",
        driver="535.104.05",
        gpus=(Gpu(name="Tesla T4", compute_capability="7.5"),),
    )
    checks = gpu_checks(gpu)
    assert [check.outcome for check in checks] == ["passed"] * 3
    assert [check.remedy for check in checks] == [None] * 3
    assert "Tesla T4 (compute capability 7.5)" in checks[2].found


def test_a_toolkit_that_the_engine_does_not_know() -> None:
    toolkit = gpu_checks(GpuFacts(request=None, traces=("/dev/nvidia0",), toolkit="1.17.8"))[0]
    assert toolkit.outcome == "failed"
    assert "nvidia-ctk runtime configure" in str(toolkit.remedy)


def test_the_hosts_of_a_build_are_those_of_the_settings_without_a_login(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, url in {
        "UV_DEFAULT_INDEX": "https://me:secret@index.example/simple",
        "RTBUILD_DEBIAN_MIRROR": "https://debian.example:8443/debian",
        "RTBUILD_DEBIAN_SECURITY_MIRROR": "https://security.example/debian-security",
        "UV_PYTHON_INSTALL_MIRROR": "https://python.example/builds",
    }.items():
        monkeypatch.setenv(name, url)

    def down(_client: Client, _method: str, url: str, **_: object) -> requests.Response:
        raise requests.ConnectionError(f"Connection refused: {url}")

    monkeypatch.setattr(Client, "request", down)
    found = {one.use: one for one in network({"docker.io": "mirror.example:5000/hub"})}
    assert {one.hosts for one in found.values()} >= {
        ("index.example",),
        ("mirror.example:5000",),
        ("debian.example:8443",),
        ("python.example",),
    }
    assert all(one.problem for one in found.values())
    assert "secret" not in str(found)

    def redirected(_client: Client, _method: str, url: str, **_: object) -> requests.Response:
        first, last = requests.Response(), requests.Response()
        first.url, last.url = url, "https://files.example/x"
        last.history, last.status_code, last.raw = [first], 200, io.BytesIO()
        return last

    monkeypatch.setattr(Client, "request", redirected)
    found = {one.use: one for one in network({})}
    assert found["rootfs: bases"].hosts == ("debian.example:8443", "files.example", "security.example")
    assert found["rootfs: bases"].problem is None
    assert found["bases from a registry"].problem  # an empty answer is no manifest
