from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest

from builder.image.engine.facts import Gpu, cdi_devices, gpu_facts, gpu_traces, module_version

if TYPE_CHECKING:
    from pathlib import Path

VERSION = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023
GCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04)
"""
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder@U22)\n"
)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The files of a machine with one GPU."""
    (tmp_path / "dev").mkdir()
    for node in ("nvidia0", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / node).touch()
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(VERSION)
    return tmp_path


def program(folder: Path, name: str, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a test double of a tool of NVIDIA's on PATH."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_no_gpu_leaves_no_trace(tmp_path: Path) -> None:
    facts = gpu_facts({"Runtimes": {"runc": {}}}, local=True, root=tmp_path)
    assert (facts.traces, facts.request, facts.usable, facts.driver) == ((), None, False, None)


def test_traces_and_driver_come_from_the_machine(machine: Path) -> None:
    assert gpu_traces(machine) == ("/dev/nvidia0", "/dev/nvidiactl", "/proc/driver/nvidia/version")
    assert module_version(machine) == "535.104.05"
    (machine / "proc/driver/nvidia/version").write_text(OPEN)
    assert module_version(machine) == "580.65.06"


def test_a_gpu_without_the_toolkit_is_not_usable(machine: Path) -> None:
    facts = gpu_facts({"Runtimes": {"runc": {}}}, local=True, root=machine)
    assert facts.traces
    assert not facts.usable


def test_toolkit_driver_and_gpus(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin", "nvidia-smi", "echo 'Tesla T4, 535.104.05, 7.5'", monkeypatch)
    program(tmp_path / "bin", "nvidia-ctk", "echo 'NVIDIA Container Toolkit CLI version 1.17.8'", monkeypatch)
    facts = gpu_facts({"Runtimes": {"nvidia": {}, "runc": {}}}, local=True, root=machine)
    assert facts.usable
    assert facts.request == "gpus"
    assert facts.gpus == (Gpu(name="Tesla T4", compute_capability="7.5"),)
    assert (facts.driver, facts.toolkit) == ("535.104.05", "1.17.8")


def test_an_old_nvidia_smi_knows_no_compute_capability(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = 'case "$1" in *compute_cap*) exit 6;; esac; echo "Tesla K80, 450.80.02"'
    program(tmp_path / "bin", "nvidia-smi", body, monkeypatch)
    facts = gpu_facts({}, local=True, root=machine)
    assert facts.gpus == (Gpu(name="Tesla K80", compute_capability=None),)


def test_cdi_specifications_are_read_where_the_engine_reads_them(machine: Path) -> None:
    folder = machine / "etc/cdi"
    folder.mkdir(parents=True)
    (folder / "nvidia.yaml").write_text("kind: nvidia.com/gpu\ndevices:\n- name: '0'\n- name: all\n")
    (folder / "other.json").write_text(json.dumps({"kind": "vendor.com/net", "devices": [{"name": "x"}]}))
    (folder / "broken.json").write_text("{")
    (folder / "notes.txt").write_text("kind: nvidia.com/gpu")
    assert cdi_devices({"CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]}, machine) == (
        "nvidia.com/gpu=0",
        "nvidia.com/gpu=all",
    )
    assert cdi_devices({"CDISpecDirs": []}, machine) == ()
    facts = gpu_facts({"CDISpecDirs": ["/etc/cdi"]}, local=True, root=machine)
    assert (facts.request, facts.usable) == ("cdi", True)


def test_newer_engines_name_their_cdi_devices() -> None:
    info = {
        "DiscoveredDevices": [
            {"Source": "cdi", "ID": "nvidia.com/gpu=all"},
            {"Source": "cdi", "ID": "a.com/b=1"},
        ]
    }
    assert cdi_devices(info, None) == ("nvidia.com/gpu=all",)


def test_a_remote_engine_is_taken_at_its_word(machine: Path) -> None:
    facts = gpu_facts({"Runtimes": {"nvidia": {}}}, local=False, root=machine)
    assert (facts.remote, facts.traces, facts.driver, facts.usable) == (True, (), None, True)
