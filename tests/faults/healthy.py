"""Environments in which nothing is wrong, however odd they look: the probe may remark, and names no cause.

Each is a function that prepares a scene; without a GPU the verdict is ``unverified``.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fault_scene import link_tree
from faults_hosts import NO_POWERS, in_namespace, nowhere_to_write
from faults_kernels import KNOWN, triton, without

if TYPE_CHECKING:
    from collections.abc import Callable

    from fault_scene import Scene

HEALTHY: dict[str, Callable[[Scene], None]] = {}
"""What is unusual about it -> how it is made."""


def healthy(title: str) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    def register(prepare: Callable[[Scene], None]) -> Callable[[Scene], None]:
        HEALTHY[title] = prepare
        return prepare

    return register


def _sound(scene: Scene) -> None:
    scene.cudnn()
    scene.framework("torch")


def _variables(title: str, **values: str | None) -> None:
    def prepare(scene: Scene) -> None:
        _sound(scene)
        for name, value in values.items():
            scene.env[name] = "" if value is None else value

    HEALTHY[title] = prepare


@healthy("a pinned library that lies there without its dist-info")
def _without_metadata(scene: Scene) -> None:
    _sound(scene)
    places = {"nccl": "nvidia/nccl/lib/libnccl.so.2", "cusparselt": "cusparselt/lib/libcusparseLt.so.0"}
    for place in places.values():
        path = scene.site / place
        path.parent.mkdir(parents=True)
        shutil.copy(scene.cudnn_lib / "libcudnn_ops.so.9", path)
    pins = tuple(f"nvidia-{name}-cu12==1.0" for name in places)
    scene.record("torch", "2.6.0", [scene.site / "torch" / "__init__.py"], pins)


for _locale in ("C", "POSIX", "tr_TR.UTF-8", "zh_CN.GB18030", "de_DE.ISO-8859-1", "xx_YY.nothing"):
    _variables(f"`LC_ALL={_locale}`", LC_ALL=_locale, LANG=_locale)
for _setting in (
    "PYTHONIOENCODING=ascii",
    "PYTHONUTF8=0",
    "PYTHONOPTIMIZE=2",
    "PYTHONSAFEPATH=1",
    "PYTHONWARNINGS=error",
    "PYTHONMALLOC=debug",
    "PYTHONPATH=/nowhere:relative",
    "PYTHONSTARTUP=/nowhere/start.py",
    "NVIDIA_VISIBLE_DEVICES=all",
    "NVIDIA_REQUIRE_CUDA=cuda>=12.4",
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    "CUDA_HOME=/none",
    "CUDA_MODULE_LOADING=LAZY",
    "CUDA_VISIBLE_DEVICES=0",
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    "TF_FORCE_GPU_ALLOW_GROWTH=true",
    "JAX_PLATFORMS=cuda,cpu",
    "XLA_FLAGS=--xla_dump_to=/nowhere",
    "OMP_NUM_THREADS=1",
    "LD_LIBRARY_PATH=::relative",
    "LD_LIBRARY_PATH=$ORIGIN:/nowhere",
    "LD_PRELOAD=/nowhere/libnothing.so",
    "LD_PRELOAD=libm.so.6",
    "TMPDIR=/nowhere",
    "HOME=/dev/null",
    "PATH=",
    "TERM=dumb",
    "CONDA_PREFIX=/nowhere",
    "COLAB_RELEASE_TAG=release-colab_20250725",
):
    _name, _, _value = _setting.partition("=")
    _variables(f"`{_setting}`", **{_name: _value})
_variables(
    "300 entries and one of 4,000 letters in LD_LIBRARY_PATH",
    LD_LIBRARY_PATH=":".join([f"/nowhere/{n}" for n in range(300)] + ["/" + "x" * 4000]),
)


def _options(*options: str) -> None:
    def prepare(scene: Scene) -> None:
        _sound(scene)
        scene.command = [str(scene.venv / "bin" / "python"), *options, str(scene.probe)]

    HEALTHY[f"`python {' '.join(options)}`"] = prepare


for _flags in ("-O", "-OO", "-B", "-I", "-E -s", "-X dev", "-X utf8=0", "-W error", "-u"):
    _options(*_flags.split())


def _shell(title: str, script: str) -> None:
    def prepare(scene: Scene) -> None:
        _sound(scene)
        python = str(scene.venv / "bin" / "python")
        scene.command = ["bash", "-c", f'{script}; exec "$@"', "probe", python, str(scene.probe)]

    HEALTHY[title] = prepare


_shell("a current folder that was removed", "mkdir gone; cd gone; rmdir ../gone")
_shell("`ulimit -f 0`", "ulimit -f 0")
_shell("`ulimit -n 64`", "ulimit -n 64")
_shell("`ulimit -s unlimited`", "ulimit -s unlimited")
_shell("SIGCHLD ignored", "trap '' CHLD")
_shell("`umask 077`", "umask 077")
_shell("`nice 19`", "renice -n 19 $$ > /dev/null")
_shell("standard input closed", "exec <&-")
_shell("standard error closed", "exec 2>&-")
_shell("HOME unset", "unset HOME")


def _placed(title: str, name: str) -> None:
    def prepare(scene: Scene) -> None:
        scene.search(scene.cudnn(into=scene.folder(name)))
        scene.probe = Path(shutil.copy(scene.probe, scene.root / name / "cudnn verify"))

    HEALTHY[title] = prepare


_placed("blanks, umlauts and quotes in the paths of libraries and probe", "a b/\u00fc \u65e5\u672c/q\"'")
_placed("a path that is no UTF-8", os.fsdecode(b"by\xffte \xc3\xbc"))
_placed("a path of 900 letters", "/".join(["x" * 90] * 10))


@healthy("a virtual environment with the system's packages")
def system_site_packages(scene: Scene) -> None:
    _sound(scene)
    config = scene.venv / "pyvenv.cfg"
    config.write_text(config.read_text().replace("false", "true"))


@healthy("the framework in the user's own site-packages")
def user_site(scene: Scene) -> None:
    system_site_packages(scene)
    place = scene.folder(f".local/lib/{scene.site.parent.name}") / "site-packages"
    scene.site.rename(place)
    scene.site = place


@healthy("packages in a folder of `pip install --target`")
def target_folder(scene: Scene) -> None:
    _sound(scene)
    place = scene.root / "target"
    scene.site.rename(place)
    scene.env["PYTHONPATH"] = str(place)


@healthy("a conda-like prefix with the libraries in its lib folder")
def conda_prefix(scene: Scene) -> None:
    scene.framework("torch")
    (scene.venv / "conda-meta").mkdir()
    scene.search(scene.cudnn(into=scene.venv / "lib"))
    scene.env["CONDA_PREFIX"] = str(scene.venv)


@healthy("python as a chain of five links, called by a path with ..")
def chain_of_links(scene: Scene) -> None:
    _sound(scene)
    folder = scene.venv / "bin"
    for number in range(5):
        (folder / f"python{number + 10}").symlink_to("python" if number == 0 else f"python{number + 9}")
    scene.command = [f"venv/../venv/bin/python{14}", str(scene.probe)]


@healthy("libraries as links into a store")
def linked_store(scene: Scene) -> None:
    _sound(scene)
    store = scene.folder("store")
    for path in sorted(scene.cudnn_lib.iterdir()):
        path.rename(store / path.name)
        path.symlink_to(store / path.name)


@healthy("the whole folder nvidia as a link")
def linked_folder(scene: Scene) -> None:
    _sound(scene)
    (scene.site / "nvidia").rename(scene.root / "nvidia")
    (scene.site / "nvidia").symlink_to(scene.root / "nvidia")


@healthy("NVRTC of CUDA 13, which has no run path to its builtins")
def nvrtc_of_cuda_13(scene: Scene) -> None:
    scene.nvrtc()


@healthy("cuDNN 8 with its wheel in the folder of cuDNN 9")
def two_majors_in_one_folder(scene: Scene) -> None:
    scene.cudnn()
    files = sorted(link_tree(scene.build.cudnn("8.9.7"), scene.cudnn_lib).glob("*.so.8"))
    scene.record("nvidia-cudnn-cu11", "8.9.7.29", files, requires=("nvidia-cublas-cu11",))
    library, shim = scene.framework("torch") / "lib" / "libtorch_cuda.so", scene.cudnn_lib / "libcudnn.so.9"
    scene.build.requester(library, (shim,), f"-Wl,--disable-new-dtags,-rpath,{scene.cudnn_lib}")


@healthy("what an interrupted pip left: ~vidia, dist-info without METADATA or with no UTF-8")
def leftovers(scene: Scene) -> None:
    _sound(scene)
    (scene.site / "~vidia_cudnn_cu12-9.1.0.70.dist-info").mkdir()
    (scene.site / "~orch").mkdir()
    (scene.site / "half-1.0.dist-info").mkdir()
    other = scene.site / "old-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_bytes(b"Name: old\nVersion: 1.0\nAuthor: J\xfcrgen\n")
    (other / "RECORD").write_bytes(b"")


@healthy("a RECORD with CRLF, and one that is absent")
def records(scene: Scene) -> None:
    _sound(scene)
    record = next(scene.site.glob("nvidia_cudnn*/RECORD"))
    record.write_bytes(record.read_bytes().replace(b"\n", b"\r\n"))
    scene.record("numpy", "2.0.0", [])
    next(scene.site.glob("numpy*/RECORD")).unlink()


@healthy("start-up files that only print, and finders of editable installs")
def start_up_files(scene: Scene) -> None:
    _sound(scene)
    scene.startup(
        "import atexit, sys\nprint('hello', file=sys.stderr)\nprint('hello')\natexit.register(print, 'bye')\n"
    )
    (scene.site / "distutils-precedence.pth").write_text("import os; enabled = 'x'\n")
    (scene.site / "__editable__.mine-1.0.pth").write_text(f"{scene.folder('mine')}\n")


@healthy("names of Python's own modules beside the probe")
def names_beside(scene: Scene) -> None:
    folder = scene.folder("beside")
    for name in ("platform", "random", "json", "argparse", "resource", "types", "select", "ctypes"):
        (folder / f"{name}.py").write_text("raise SystemExit('mine')\n")
    scene.probe = Path(shutil.copy(scene.probe, folder))
    _sound(scene)


@healthy("the probe as a file that may only be read, without .py, by a relative path")
def file_without_suffix(scene: Scene) -> None:
    _sound(scene)
    shutil.copy(scene.probe, scene.root / "verify")
    (scene.root / "verify").chmod(0o444)
    scene.command = [str(scene.venv / "bin" / "python"), "verify"]


@healthy("the probe by python -m")
def as_module(scene: Scene) -> None:
    _sound(scene)
    shutil.copy(scene.probe, scene.root)
    scene.command = [str(scene.venv / "bin" / "python"), "-m", "cudnn_verify"]


@healthy("a second cuDNN of another major on LD_LIBRARY_PATH, which nothing asks for")
def other_major_on_the_path(scene: Scene) -> None:
    _sound(scene)
    scene.search(scene.cudnn("8.9.7", into=scene.folder("opt/cudnn8")))


@healthy("the same cuDNN twice")
def same_twice(scene: Scene) -> None:
    _sound(scene)
    scene.search(scene.cudnn(into=scene.folder("opt/cudnn")))


@healthy("a newer cuDNN than the framework was compiled for")
def newer_minor(scene: Scene) -> None:
    scene.cudnn()
    scene.framework("torch", cudnn="9.10.2", compiled="9.3.0")


@healthy("a newer patch than a wheel pins")
def newer_patch(scene: Scene) -> None:
    _sound(scene)
    scene.record("somenet", "1.0", [], requires=("nvidia-cudnn-cu12==9.10.1.4",))


@healthy("a pin under a marker that does not hold here")
def marker_elsewhere(scene: Scene) -> None:
    _sound(scene)
    scene.record(
        "torch",
        "2.6.0",
        [scene.site / "torch" / "__init__.py"],
        requires=("nvidia-nccl-cu12==2.21.5 ; sys_platform == 'win32'",),
    )


@healthy("an extra of which all is installed but NCCL")
def extra_without_nccl(scene: Scene) -> None:
    _sound(scene)
    names = ("cublas", "cufft", "curand", "nccl")
    requires = tuple(f"nvidia-{name}-cu12==1.0 ; extra == 'with-cuda'" for name in names)
    scene.record("somenet", "1.0", [], requires=requires)
    for name in names[:3]:
        scene.record(f"nvidia-{name}-cu12", "1.0", [])


@healthy("neither cuDNN nor a framework")
def nothing(scene: Scene) -> None:
    scene.env["CUDA_VERSION"] = "12.4.1"


@healthy("cuDNN 7 alone")
def cudnn_7(scene: Scene) -> None:
    scene.cudnn("7.6.5")


@healthy("cuDNN 8 alone")
def cudnn_8(scene: Scene) -> None:
    scene.cudnn("8.9.7")


@healthy("a framework that holds cuDNN inside")
def static_cudnn(scene: Scene) -> None:
    scene.framework("torch", cudnn="7.6.5", compiled="7.6.5", cuda="10.2")


@healthy("a release that is known to be faulty on other cards, without a card")
def known_bad_elsewhere(scene: Scene) -> None:
    scene.framework("torch", cudnn="7.6.5", compiled="7.6.5", cuda="10.2", version="1.8.0")


@healthy("packages owned by root and read-only, run without root's powers")
def read_only_packages(scene: Scene) -> None:
    _sound(scene)
    link_tree(scene.site, scene.root / "copy")
    for path in scene.site.rglob("*"):
        if path.is_dir():
            path.chmod(0o555)
    python = str(scene.venv / "bin" / "python")
    scene.command = [*NO_POWERS, python, str(scene.probe)]


def _namespace(title: str, commands: Callable[[Scene], str]) -> None:
    def prepare(scene: Scene) -> None:
        scene.cudnn()
        in_namespace(scene, commands(scene))

    HEALTHY[title] = prepare


_namespace("no place for temporary files that nobody needs", nowhere_to_write)
_namespace("a read-only root", lambda _: "mount -o remount,bind,ro / || mount --bind -o ro / /mnt")
_namespace(
    "/tmp without execution for a TMPDIR elsewhere",
    lambda scene: f"mount -t tmpfs -o noexec t {scene.folder('t')}",
)
_namespace("no /sys", lambda _: "mount -t tmpfs -o ro t /sys")
_namespace("other processes hidden in /proc", lambda _: "mount -o remount,hidepid=2 /proc || true")
_namespace(
    "site-packages on an overlay file system",
    lambda scene: (
        f"mount -t tmpfs t {scene.folder('o')}; mkdir {scene.root}/o/u {scene.root}/o/w; mount -t overlay o "
        f"-o lowerdir={scene.site},upperdir={scene.root}/o/u,workdir={scene.root}/o/w {scene.site}"
    ),
)
_PYENV = Path("~/.pyenv/versions").expanduser()


def _python(version: str) -> None:
    def prepare(scene: Scene) -> None:
        found = next(iter(sorted(_PYENV.glob(f"{version}.*/bin/python3"))), None)
        path = str(found) if found else shutil.which(f"python{version}")
        if path is None and version == f"{sys.version_info[0]}.{sys.version_info[1]}":
            path = sys.executable
        if path is None:
            import pytest

            pytest.skip(f"there is no Python {version} here")
        scene.search(scene.cudnn(into=scene.folder("opt/cudnn")))
        scene.command = [path, str(scene.probe)]

    HEALTHY[f"Python {version}"] = prepare


for _minor in range(6, 16):
    _python(f"3.{_minor}")


@healthy("Triton in an image without a compiler, which nothing asks for")
def _triton_without_a_compiler(scene: Scene) -> None:
    triton(scene, *KNOWN)
    without(scene, "gcc", "g++", "clang")


@healthy("an image that is to have compilers, and has them")
def _compilers(scene: Scene) -> None:
    triton(scene, *KNOWN)
    scene.expect(compilers=True)
    tool = scene.folder("cc") / "gcc"
    tool.write_text("#!/bin/sh\nexit 0\n")
    tool.chmod(0o755)
    scene.env.update(CC=str(tool), CXX=str(tool))


@healthy("a ptxas of Triton older than the GPU, where nothing asks for compilers")
def _older_ptxas(scene: Scene) -> None:
    scene.cudnn()
    scene.driver(capability=121, driver=13000)
    triton(scene, *KNOWN)
