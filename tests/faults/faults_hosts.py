"""Faults of the machine around a container or a process: device nodes, mounts, limits, the C library.

What the machine has not is made in a mount namespace of the probe's own, which takes root; nothing of it is
seen outside.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from fault_list import add, fault
from fault_scene import link_tree, replace

if TYPE_CHECKING:
    from fault_scene import Scene

_MODULE = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024"
NO_POWERS = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps")
NO_POWERS += ("-dac_override,-dac_read_search",)


def in_namespace(scene: Scene, commands: str, *before: str) -> None:
    """Run the probe after some shell commands that only it is to see."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make a mount namespace")
    python = str(scene.venv / "bin" / "python")
    script = f'set -e; {commands}; exec "$@"'
    scene.command = ["unshare", "-m", "bash", "-c", script, "probe", *before, python, str(scene.probe)]


def nodes(*names: str) -> str:
    """Commands that put device nodes which open into a /dev of the probe's own."""
    dev = ["null", "urandom", "tty"]
    made = [f"mknod /tmp-dev/{name} c 1 3" for name in names]
    kept = [f"cp -a /dev/{name} /tmp-dev/" for name in dev]
    steps = ["mount -t tmpfs tmpfs /mnt", "mkdir /mnt/dev", *made, *kept, "mount --bind /mnt/dev /dev"]
    return "; ".join(steps).replace("/tmp-dev", "/mnt/dev")


def module() -> str:
    """Commands that show NVIDIA's kernel module in /proc."""
    file = "/proc/driver/nvidia/version"
    return f"mount -t tmpfs tmpfs /proc/driver; mkdir /proc/driver/nvidia; echo '{_MODULE}' > {file}"


def _hosted(commands: str, *before: str, driver: str | None = None, **env: str):
    def prepare(scene: Scene) -> None:
        scene.cudnn()
        if driver is not None:
            scene.driver(driver)
        scene.env |= env
        in_namespace(scene, commands, *before)

    return prepare


_HOSTS = (
    ("node-without-a-library", "device nodes, and no libcuda.so.1", "driver-missing", nodes("nvidia0"), {}),
    (
        "container-without-a-gpu",
        "the host's kernel module shows, and the container was given no GPU",
        "container-no-gpu",
        module(),
        {"container": "docker"},
    ),
    (
        "module-and-no-device-in-a-container",
        "a driver library in a container that has no device node",
        "container-no-gpu",
        module(),
        {"container": "docker", "driver": "cuInit=100"},
    ),
    (
        "uvm-missing-beside-nodes",
        "/dev/nvidia0 is there and /dev/nvidia-uvm is not",
        "device-node-missing",
        nodes("nvidia0", "nvidiactl"),
        {"driver": "cuInit=999"},
    ),
    (
        "nodes-and-a-driver-of-another-version",
        "device nodes, and a libcuda that does not fit the module",
        "driver-library-mismatch",
        nodes("nvidia0", "nvidiactl", "nvidia-uvm"),
        {"driver": "cuInit=803"},
    ),
)
for _name, _title, _cause, _commands, _options in _HOSTS:
    add(_name, _title, "host", _cause, _hosted(_commands, **_options))
_CLOSED = nodes("nvidia0", "nvidia-uvm") + "; chmod 0 /dev/nvidia*"
add(
    "nodes-closed",
    "device nodes that this user may not open",
    "host",
    "device-access-denied",
    _hosted(_CLOSED, *NO_POWERS),
)
add(
    "nodes-closed-and-a-driver",
    "the driver cannot open its device nodes",
    "host",
    "device-access-denied",
    _hosted(_CLOSED, *NO_POWERS, driver="cuInit=999"),
)
for _word in ("utility", "graphics,display"):
    add(
        f"capabilities-{_word.partition(',')[0]}",
        f"NVIDIA_DRIVER_CAPABILITIES={_word}",
        "broken",
        "driver-capabilities",
        _hosted(nodes("nvidia0"), NVIDIA_DRIVER_CAPABILITIES=_word),
    )


@fault("cuDNN on a file system without execution", verdict="host", cause="noexec-mount")
def noexec_cudnn(scene: Scene) -> None:
    folder = scene.folder("data")
    link_tree(scene.build.cudnn("9.10.2"), folder)
    scene.search(folder)
    in_namespace(scene, f"mount --bind {folder} {folder}; mount -o remount,bind,noexec {folder}")


@fault("a framework on a file system without execution", verdict="host", cause="noexec-mount")
def noexec_framework(scene: Scene) -> None:
    scene.framework("torch")
    scene.links("torch/lib/libtorch_cuda.so", scene.cudnn())
    site = scene.site
    in_namespace(scene, f"mount --bind {site} {site}; mount -o remount,bind,noexec {site}")


@fault("a library in /etc/ld.so.preload", verdict="host", cause="preload-interference")
def preload_file_names_a_library(scene: Scene) -> None:
    scene.cudnn()
    old, etc = scene.build.cudnn("9.1.0") / "libcudnn_graph.so.9", scene.folder("etc")
    in_namespace(scene, f"cp -a /etc/. {etc}; echo {old} > {etc}/ld.so.preload; mount --bind {etc} /etc")


def nowhere_to_write(scene: Scene) -> str:
    empty = scene.folder("empty")
    scene.env["TMPDIR"] = str(empty)
    mounts = [f"mount -t tmpfs -o ro tmpfs {folder}" for folder in (empty, "/var/tmp")]
    mounts += ["mount --bind / /mnt; cd /proc", "mount -o bind,ro /tmp /tmp; mount -o remount,bind,ro /tmp"]
    return "; ".join(mounts)


@fault("no place for the temporary files of an import", verdict="host", cause="no-temporary-space")
def no_place_for_temporary_files(scene: Scene) -> None:
    package = scene.framework("torch") / "__init__.py"
    replace(package, package.read_bytes() + b"import tempfile\ntempfile.mkdtemp()\n")
    in_namespace(scene, nowhere_to_write(scene))


def _needs_newer(scene: Scene, library: str, node: str) -> None:
    """Let the fake PyTorch's library ask a system library for a version that no machine has."""
    folder = scene.folder("newer")
    (folder / "versions").write_text(f"{node} {{ global: *; }};\n")
    stand_in = folder / library
    command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{library},--version-script,{folder}/versions"]
    source = folder / "source.c"
    source.write_text("int newer(void) { return 0; }\n")
    subprocess.run([*command, "-o", str(stand_in), str(source)], check=True)
    source.write_text("int newer(void); int use(void) { return newer(); }\n")
    scene.framework("torch")
    target = scene.site / "torch" / "lib" / "libtorch_cuda.so"
    target.parent.mkdir()
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(target), str(source), str(stand_in)], check=True)


@fault("a library built for a newer glibc", verdict="broken", cause="libc-too-old")
def glibc_too_old(scene: Scene) -> None:
    _needs_newer(scene, "libc.so.6", "GLIBC_2.99")


@fault("a library built for a newer C++ run-time", verdict="broken", cause="libc-too-old")
def libstdcxx_too_old(scene: Scene) -> None:
    _needs_newer(scene, "libstdc++.so.6", "GLIBCXX_3.4.99")
