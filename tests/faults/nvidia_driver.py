"""NVIDIA's real user-space driver without a device: Debian's non-free packages, unpacked into the cache.

Nothing is installed. Whatever loads these files has to run by :func:`without_nodes`: as root they make device
nodes (``/dev/nvidiactl``), on a machine without a GPU, too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from builder.core import resources

BRANCHES = {
    "470": ("libnvidia-tesla-470-cuda1", "libnvidia-tesla-470-ml1", "nvidia-tesla-470-smi"),
    "535": ("libcuda1", "libnvidia-ml1", "nvidia-smi"),
}
"""Branch of the driver -> its packages in Debian 12."""
_SOURCES = Path("/etc/apt")


def real_driver(branch: str) -> Path:
    """The folder with ``libcuda.so.1``, ``libnvidia-ml.so.1`` and ``nvidia-smi``; downloads them once.

    Skips the test on a machine without apt, or whose apt knows no Debian 12.
    """
    target = resources.cache() / "nvidia-drivers" / branch
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        half = target.with_name(f"{branch}.part")
        shutil.rmtree(half, ignore_errors=True)
        _unpack(BRANCHES[branch], half)
        half.rename(target)
    return target


def without_nodes(*command: object) -> list[str]:
    """The command, run so that it can make no device node: root gives up CAP_MKNOD for good."""
    drop = ["setpriv", "--bounding-set=-mknod", "--inh-caps=-mknod"] if os.geteuid() == 0 else []
    return [*drop, *map(str, command)]


def _unpack(packages: tuple[str, ...], half: Path) -> None:
    if shutil.which("apt-get") is None:
        pytest.skip("no apt here, from which the driver's libraries could be had")
    state = half / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True)
    (state / "non-free.sources").write_text(_non_free())
    options = {
        "Dir::Etc::SourceList": state / "non-free.sources",
        "Dir::Etc::SourceParts": "-",
        "Dir::State::Lists": state / "lists",
        "Dir::Cache": state / "cache",
        "APT::Sandbox::User": "root",
        "APT::Architectures": "amd64",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    try:
        subprocess.run([*apt, "update"], check=True, capture_output=True, text=True, timeout=300)
        subprocess.run(
            [*apt, "download", *packages], check=True, capture_output=True, text=True, timeout=300, cwd=half
        )
    except subprocess.CalledProcessError as error:
        pytest.skip(f"apt does not have {', '.join(packages)}: {error.stderr.strip()[-300:]}")
    for archive in half.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(archive), str(half / "tree")], check=True)
        archive.unlink()
    for pattern in ("libcuda.so*", "libnvidia-ml.so*", "nvidia-smi"):
        for path in (half / "tree").rglob(pattern):
            if "nvidia" in path.parts and not (half / path.name).exists() and path.suffix != ".gz":
                shutil.move(path, half / path.name)
    shutil.rmtree(half / "tree")
    shutil.rmtree(state)


def _non_free() -> str:
    """The machine's own Debian sources, with the component non-free alone; deb822 and one-line style."""
    stanzas = []
    for path in sorted(_SOURCES.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text()):
            body = "\n".join(line for line in stanza.splitlines() if not line.startswith("#"))
            if re.search(r"^Suites:.*bookworm", body, re.MULTILINE):
                stanzas.append(re.sub(r"^Components:.*$", "Components: non-free", body, flags=re.MULTILINE))
    for path in (_SOURCES / "sources.list", *sorted(_SOURCES.glob("sources.list.d/*.list"))):
        lines = path.read_text().splitlines() if path.exists() else []
        found = (re.match(r"deb\s+(?:\[.*?\]\s+)?(\S+)\s+(bookworm\S*)\s", line) for line in lines)
        stanzas += [f"Types: deb\nURIs: {m[1]}\nSuites: {m[2]}\nComponents: non-free" for m in found if m]
    if not stanzas:
        pytest.skip("this machine's apt knows no Debian 12, whose non-free component has the driver")
    return "\n\n".join(stanzas) + "\n"
