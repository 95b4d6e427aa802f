"""Faults around a sound environment: preloads, the user's own files, variables, limits, log lines."""

from __future__ import annotations

import os
import subprocess
import textwrap
from typing import TYPE_CHECKING

from fault_list import fault
from fault_scene import link_tree, replace

if TYPE_CHECKING:
    from fault_scene import Scene


def _append(scene: Scene, text: str) -> None:
    """Let the fake PyTorch do something more as it is imported."""
    package = scene.framework("torch") / "__init__.py"
    content = package.read_bytes()
    replace(package, content + text.encode())


def _old_part(scene: Scene) -> str:
    return str(scene.build.cudnn("9.1.0") / "libcudnn_graph.so.9")


@fault("a part of an older cuDNN in LD_PRELOAD", verdict="host", cause="preload-interference")
def older_cudnn_preloaded(scene: Scene) -> None:
    scene.cudnn()
    scene.env["LD_PRELOAD"] = _old_part(scene)


@fault("a sitecustomize.py that loads an older cuDNN", verdict="broken", cause="startup-preload")
def sitecustomize_preloads(scene: Scene) -> None:
    scene.cudnn()
    scene.startup(f"import ctypes\nctypes.CDLL({_old_part(scene)!r})\n")


@fault("a .pth file that loads an older cuDNN", verdict="broken", cause="startup-preload")
def pth_preloads(scene: Scene) -> None:
    scene.cudnn()
    (scene.site / "preload.pth").write_text(f"import ctypes; ctypes.CDLL({_old_part(scene)!r})\n")


@fault("cuDNN of CUDA 11 on LD_LIBRARY_PATH before the wheel's", verdict="broken", cause="cudnn-shadowed")
def cudnn_of_cuda_11_on_the_path(scene: Scene) -> None:
    scene.framework("torch")
    run_path = "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../../nvidia/cudnn/lib"
    shim = scene.cudnn() / "libcudnn.so.9"
    scene.build.requester(scene.site / "torch" / "lib" / "libtorch_cuda.so", (shim,), run_path)
    (scene.site / "torch" / "version.py").write_text("cuda = '12.4'\n")
    other = scene.folder("opt/cudnn-cu11")
    link_tree(scene.build.cudnn("9.10.2", 11), other)
    scene.search(other)


@fault("an NVRTC of CUDA 13 beside a broken one of CUDA 12", verdict="broken", cause="nvrtc-missing")
def other_nvrtc_stands_in(scene: Scene) -> None:
    scene.cudnn()
    folder = scene.site / "nvidia" / "cuda_nvrtc" / "lib"
    folder.mkdir(parents=True)
    (folder / "libnvrtc.so.12").write_bytes(b"\x7fELF")
    scene.search(scene.build.toolkit("libnvrtc.so.13").parent)


@fault("a variable that ends the framework", verdict="broken", cause="variable-breaks-framework")
def unknown_flag(scene: Scene) -> None:
    _append(scene, "import os\nif 'XLA_FLAGS' in os.environ:\n    os.abort()\n")
    scene.env |= {"XLA_FLAGS": "--xla_no_such_flag", "TF_CPP_MIN_LOG_LEVEL": "1"}


@fault("a random.py of the user's on PYTHONPATH", verdict="broken", cause="module-shadowed")
def standard_module_shadowed(scene: Scene) -> None:
    _append(scene, "import random\nrandom.random()\n")
    folder = scene.folder("mine")
    (folder / "random.py").write_text("seed = 7\n")
    (folder / "platform.py").write_text("raise SystemExit('mine')\n")
    scene.env["PYTHONPATH"] = str(folder)


@fault("an old C++ run-time on LD_LIBRARY_PATH", verdict="broken", cause="libc-too-old")
def old_libstdcxx_on_the_path(scene: Scene) -> None:
    old, new = scene.folder("gcc-4.4"), scene.folder("gcc-14")
    for folder, versions in ((old, "GLIBCXX_3.4 {};"), (new, "GLIBCXX_3.4 {}; GLIBCXX_3.4.29 {global: f;};")):
        (folder / "versions").write_text(versions)
        (folder / "f.c").write_text("int f(void) { return 0; }\n")
        command = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libstdc++.so.6", "f.c", "-o", "libstdc++.so.6"]
        subprocess.run([*command, "-Wl,--version-script=versions"], cwd=folder, check=True)
    scene.framework("torch")
    (scene.folder("g") / "g.c").write_text("int f(void);\nint g(void) { return f(); }\n")
    library = scene.site / "torch" / "lib" / "libtorch_cuda.so"
    library.parent.mkdir()
    links = [str(new / "libstdc++.so.6"), f"-Wl,--enable-new-dtags,-rpath,{new}", "-o", str(library)]
    subprocess.run(["gcc", "-shared", "-fPIC", str(scene.root / "g" / "g.c"), *links], check=True)
    scene.search(old)


@fault("a torch.py of the user's on PYTHONPATH", verdict="broken", cause="module-shadowed")
def framework_shadowed(scene: Scene) -> None:
    package = scene.framework("torch")
    scene.record("torch", "2.6.0", [package / "__init__.py"])
    (scene.folder("mine") / "torch.py").write_text("x = 1\n")
    scene.env["PYTHONPATH"] = str(scene.folder("mine"))


@fault("CUDA_VISIBLE_DEVICES=-1 where there is no GPU either", verdict="host", cause="device-hidden")
def hidden_without_gpu(scene: Scene) -> None:
    scene.cudnn()
    scene.framework("torch")
    scene.env["CUDA_VISIBLE_DEVICES"] = "-1"


@fault(
    "a variable names a cache in which nothing can be made",
    verdict="broken",
    cause="variable-breaks-framework",
)
def cache_that_cannot_be_made(scene: Scene) -> None:
    scene.cudnn()
    package = scene.framework("torch")
    scene.record("torch", "2.6.0", [package / "__init__.py"])
    scene.env["TORCHINDUCTOR_CACHE_DIR"] = "/dev/null/cache"


@fault("ulimit -v below what an import needs", verdict="host", cause="host-memory")
def address_space_limited(scene: Scene) -> None:
    _append(scene, "held = bytearray(2 << 30)\n")
    python = str(scene.venv / "bin" / "python")
    scene.command = ["prlimit", "--as=1500000000", python, str(scene.probe)]


@fault("the kernel kills an import for memory", verdict="host", cause="host-memory")
def killed_for_memory(scene: Scene) -> None:
    _append(scene, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")


@fault("a Python without _ctypes", verdict="broken", cause="python-incomplete")
def no_ctypes(scene: Scene) -> None:
    scene.cudnn()
    scene.startup("import sys\nsys.modules['_ctypes'] = None\n")


_LOG = "W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load dynamic library"


def _logs(scene: Scene, name: str) -> None:
    """What TensorFlow logs on every machine without a GPU, and then an exception about something else."""
    line = f"2024-01-01 00:00:00.000001: {_LOG} '{name}'; dlerror: {name}: cannot open shared object file"
    _append(scene, f"import sys\nprint({line!r}, file=sys.stderr)\n")
    scene.env["RTBUILD_DOUBLE_TORCH"] = "conv=shapes+do+not+agree"


@fault(
    "a log line about libcuda.so.1, and an exception of its own", verdict="broken", cause="execution-failed"
)
def log_line_of_the_driver(scene: Scene) -> None:
    _logs(scene, "libcuda.so.1")


@fault("a log line about TensorRT, and an exception of its own", verdict="broken", cause="execution-failed")
def log_line_of_tensorrt(scene: Scene) -> None:
    _logs(scene, "libnvinfer.so.7")


@fault("libcuda.so.1 is a link to nothing", verdict="host", cause="driver-error")
def driver_link_dangles(scene: Scene) -> None:
    scene.cudnn()
    (scene.folder("driver") / "libcuda.so.1").symlink_to("libcuda.so.550.54.15")
    scene.search(scene.folder("driver"))


@fault("libcuda.so.1 for another machine", verdict="host", cause="driver-error")
def driver_of_another_machine(scene: Scene) -> None:
    scene.cudnn()
    data = bytearray((scene.build.driver() / "libcuda.so.1").read_bytes())
    data[18:20] = (183).to_bytes(2, "little")  # e_machine: AArch64
    (scene.folder("driver") / "libcuda.so.1").write_bytes(bytes(data))
    scene.search(scene.folder("driver"))


@fault("a usercustomize.py that loads an older cuDNN", verdict="broken", cause="startup-preload")
def usercustomize_preloads(scene: Scene) -> None:
    scene.cudnn()
    config = scene.venv / "pyvenv.cfg"
    config.write_text(config.read_text().replace("false", "true"))
    folder = scene.folder(f".local/lib/{scene.site.parent.name}/site-packages")
    (folder / "usercustomize.py").write_text(f"import ctypes\nctypes.CDLL({_old_part(scene)!r})\n")


@fault("a random.py that leaves with status 0", verdict="broken", cause="module-shadowed")
def standard_module_leaves(scene: Scene) -> None:
    _append(scene, "import random\n")
    (scene.folder("mine") / "random.py").write_text("import os\nos._exit(0)\n")
    scene.env["PYTHONPATH"] = str(scene.folder("mine"))


@fault(
    "a package of the user's, named as one that PyTorch imports",
    verdict="broken",
    cause="module-shadowed",
)
def dependency_shadowed(scene: Scene) -> None:
    _append(scene, "import typing_extensions\ntyping_extensions.TypeVar\n")
    real = scene.site / "typing_extensions.py"
    real.write_text("TypeVar = object\n")
    scene.record("typing_extensions", "4.12.2", [real])
    package = scene.folder("mine/typing_extensions")
    (package / "__init__.py").write_text("")
    scene.env["PYTHONPATH"] = str(scene.folder("mine"))


@fault("a folder torch in the current folder, under python -m", verdict="broken", cause="module-shadowed")
def framework_shadowed_by_the_current_folder(scene: Scene) -> None:
    package = scene.framework("torch")
    scene.record("torch", "2.6.0", [package / "__init__.py"])
    (scene.folder("torch") / "__init__.py").write_text("")
    (scene.root / "cudnn_verify.py").write_bytes(scene.probe.read_bytes())
    scene.command = [str(scene.venv / "bin" / "python"), "-m", "cudnn_verify"]


@fault("ulimit -d below what an import needs", verdict="host", cause="host-memory")
def data_segment_limited(scene: Scene) -> None:
    _append(scene, "held = bytearray(2 << 30)\n")
    python = str(scene.venv / "bin" / "python")
    scene.command = ["prlimit", "--data=1000000000", python, str(scene.probe)]


@fault("too few open files for an import", verdict="host", cause="host-memory")
def too_few_files(scene: Scene) -> None:
    _append(scene, "import os\nheld = [os.open('/dev/null', os.O_RDONLY) for _ in range(80)]\n")
    python = str(scene.venv / "bin" / "python")
    scene.command = ["prlimit", "--nofile=64", python, str(scene.probe)]


@fault("one of three variables ends the framework", verdict="broken", cause="variable-breaks-framework")
def one_of_three_variables(scene: Scene) -> None:
    text = "import os\nif os.environ.get('KMP_AFFINITY') == 'none,bad':\n    raise ValueError('KMP')\n"
    _append(scene, text)
    scene.env |= {"KMP_AFFINITY": "none,bad", "OMP_NUM_THREADS": "2", "TF_CPP_MIN_LOG_LEVEL": "1"}


@fault("a directory of stubs beside a driver", verdict="broken", cause="driver-stub")
def stub_before_a_driver(scene: Scene) -> None:
    scene.cudnn()
    stubs = scene.folder("usr/local/cuda/lib64/stubs")
    (stubs / "libcuda.so.1").hardlink_to(scene.build.toolkit("libcuda.so.1"))
    scene.search(stubs)
    scene.driver()


@fault("an older cuDNN on LD_LIBRARY_PATH, too old for PyTorch", verdict="broken", cause="cudnn-shadowed")
def older_cudnn_on_the_path(scene: Scene) -> None:
    scene.framework("torch")
    run_path = "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../../nvidia/cudnn/lib"
    shim = scene.cudnn() / "libcudnn.so.9"
    scene.build.requester(scene.site / "torch" / "lib" / "libtorch_cuda.so", (shim,), run_path)
    other = scene.folder("opt/cudnn")
    link_tree(scene.build.cudnn("9.0.0"), other)
    scene.search(other)


@fault("a hard limit of memory that stays, and wheels that do not fit", verdict="host", cause="host-memory")
def hard_limit_of_memory(scene: Scene) -> None:
    """``ulimit -v`` sets the hard limit, too; the framework's own remedy hides the loader's message."""
    package = scene.folder(scene.site.relative_to(scene.root) / "onnxruntime")
    module = """
        __version__ = "1.22.0"

        def get_available_providers():
            return ["CUDAExecutionProvider", "CPUExecutionProvider"]

        def preload_dlls():
            print("Failed to load libcufft.so.11")
        """
    (package / "__init__.py").write_text(textwrap.dedent(module))
    (package / "capi").mkdir()
    fft = scene.folder(scene.site.relative_to(scene.root) / "nvidia/cufft/lib") / "libcufft.so.11"
    (scene.root / "fft.c").write_text("char room[2000000000UL];\n")
    command = ["gcc", "-shared", "-fPIC", "-mcmodel=large", "-Wl,-soname,libcufft.so.11", "fft.c"]
    subprocess.run([*command, "-o", str(fft)], cwd=scene.root, check=True)
    provider = package / "capi" / "libonnxruntime_providers_cuda.so"
    scene.build.requester(provider, (fft,))
    scene.record("onnxruntime-gpu", "1.22.0", [package / "__init__.py", provider])
    scene.record("nvidia-cufft-cu12", "11.4.1.4", [fft])
    python = str(scene.venv / "bin" / "python")
    unprivileged = ["setpriv", "--bounding-set=-sys_resource"] if os.geteuid() == 0 else []
    scene.command = [*unprivileged, "prlimit", "--as=1000000000", python, str(scene.probe)]


@fault(
    "NVRTC's builtins need a library of the system that is an empty file",
    verdict="broken",
    cause="system-library-missing",
)
def empty_system_library(scene: Scene) -> None:
    nvrtc = scene.nvrtc()
    system = scene.folder("system")
    (system / "libstdc++.so.6").hardlink_to(scene.build.toolkit("libstdc++.so.6"))
    builtins = next(nvrtc.glob("libnvrtc-builtins.so.*"))
    builtins.unlink()
    scene.build.requester(builtins, (system / "libstdc++.so.6",))
    replace(system / "libstdc++.so.6", b"")
    scene.search(system)


@fault(
    "cuDNN 8 of CUDA 12 on LD_LIBRARY_PATH, and no driver, which both cuDNNs need",
    verdict="broken",
    cause="cudnn-shadowed",
)
def cudnn_8_on_the_path_without_a_driver(scene: Scene) -> None:
    scene.framework("torch", cudnn="8.5.0", compiled="8.5.0", cuda="11.7")
    shim = scene.cudnn("8.5.0", flavour=11) / "libcudnn.so.8"
    run_path = ("-Wl,--disable-new-dtags,-rpath,$ORIGIN/../../nvidia/cudnn/lib",)
    scene.build.requester(scene.site / "torch" / "lib" / "libtorch_cuda.so", (shim,), *run_path)
    (scene.site / "torch" / "version.py").write_text("cuda = '11.7'\n")
    other = link_tree(scene.build.cudnn("8.9.7"), scene.folder("opt/cudnn"))
    driver = scene.build.toolkit("libcuda.so.1")
    for part in (shim.with_name("libcudnn_ops_infer.so.8"), other / "libcudnn_cnn_infer.so.8"):
        part.unlink()
        scene.build.requester(part, (driver,))
    files = sorted(shim.parent.iterdir())
    scene.record("nvidia-cudnn-cu11", "8.5.0.0", files)
    scene.search(other)


@fault("a C++ run-time without versions on LD_LIBRARY_PATH", verdict="broken", cause="libc-too-old")
def libstdcxx_without_versions(scene: Scene) -> None:
    other, new = scene.folder("other"), scene.folder("gcc-14")
    (new / "versions").write_text("CXXABI_1.3 {global: f;};")
    for folder, text, flags in (
        (new, "int f(void) { return 0; }\n", ["-Wl,--version-script=versions"]),
        (other, "int x;\n", []),
    ):
        (folder / "f.c").write_text(text)
        command = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libstdc++.so.6", "f.c", "-o", "libstdc++.so.6"]
        subprocess.run([*command, *flags], cwd=folder, check=True)
    scene.framework("torch")
    (scene.folder("g") / "g.c").write_text("int f(void);\nint (*g)(void) = f;\n")
    library = scene.site / "torch" / "lib" / "libtorch_cuda.so"
    library.parent.mkdir()
    links = [str(new / "libstdc++.so.6"), f"-Wl,--enable-new-dtags,-rpath,{new}", "-o", str(library)]
    subprocess.run(["gcc", "-shared", "-fPIC", str(scene.root / "g" / "g.c"), *links], check=True)
    scene.search(scene.cudnn(into=scene.folder("opt/cudnn")), other)
