"""Causes that lie in the machine: driver, devices, container set-up, session."""

from .causes_cudnn import Cause

HOST_CAUSES = (
    Cause(
        "driver-missing",
        "host",
        "There is a GPU, but no driver library",
        "Install NVIDIA's driver on the host; in a container start with --gpus all and "
        "nvidia-container-toolkit; on Colab and WSL put /usr/lib64-nvidia or /usr/lib/wsl/lib into the "
        "loader's configuration.",
        "libcuda.so.1 belongs to the driver and comes from the host. Frameworks say 'Found no NVIDIA "
        "driver' or 'CUDA driver version is insufficient', the latter also where there is none at all.",
        "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html",
    ),
    Cause(
        "driver-too-old",
        "host",
        "The driver is too old for this CUDA",
        "Upgrade the driver (CUDA 13: 580, CUDA 12: 525, CUDA 11: 450 or later), or use an image for an "
        "older CUDA.",
        "A driver serves CUDA versions up to its own major version; within one major version any driver "
        "will do. cuDriverGetVersion() is compared with what the framework and cuDNN were built for.",
        "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
    ),
    Cause(
        "driver-error",
        "host",
        "The driver is there and does not work",
        "Look at dmesg for NVRM messages, run nvidia-smi on the host, restart the machine.",
        "libcuda.so.1 is a dangling link, for another machine or damaged; or it loads, and cuInit or the "
        "first call on the device fails with a number that has no more precise meaning.",
        "https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html",
    ),
    Cause(
        "driver-stub",
        "image",
        "The loader finds the stub of libcuda instead of the driver",
        "Remove .../lib64/stubs from LD_LIBRARY_PATH and /etc/ld.so.conf.d: it is for linking only.",
        "Development images carry a libcuda.so without a driver behind it. On the run-time path it takes "
        "the place of the real one, and cuInit returns 34.",
        "https://github.com/tensorflow/tensorflow/issues/36974",
    ),
    Cause(
        "driver-capabilities",
        "image",
        "NVIDIA_DRIVER_CAPABILITIES keeps CUDA out of the container",
        "Set NVIDIA_DRIVER_CAPABILITIES=compute,utility in the image.",
        "The container toolkit mounts libcuda.so.1 for the capability 'compute'. With 'utility' alone "
        "nvidia-smi works and CUDA does not.",
        "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html",
    ),
    Cause(
        "driver-library-mismatch",
        "host",
        "The driver's library and its kernel module are of different versions",
        "Restart the machine (or reload the module) after a driver upgrade, recreate the container, "
        "remove any libcuda that was copied into the image.",
        "cuInit returns 803. The versions of the kernel module and of libcuda stand side by side in the "
        "evidence.",
        "https://github.com/NVIDIA/nvidia-container-toolkit/issues/394",
    ),
    Cause(
        "fabric-not-ready",
        "host",
        "The NVSwitch fabric is not up",
        "Start nvidia-fabricmanager, of exactly the driver's version, on the host.",
        "On machines with NVSwitch cuInit returns 802 until the fabric manager has done its work, while "
        "nvidia-smi shows all GPUs.",
        "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html",
    ),
    Cause(
        "device-node-missing",
        "host",
        "A device node is missing",
        "Run nvidia-modprobe -u -c=0 on the host and start the container anew; regenerate the CDI "
        "specification.",
        "CUDA needs /dev/nvidia-uvm besides /dev/nvidia0. Without it nvidia-smi works and cuInit returns "
        "999.",
        "https://github.com/NVIDIA/nvidia-container-toolkit/issues/1934",
    ),
    Cause(
        "device-access-denied",
        "host",
        "The device nodes cannot be opened",
        "Start the container anew; see to it that /dev/char links or CDI are used; check the user's groups.",
        "The node is there and open() is refused: the container's device permissions were dropped (a "
        "systemd reload does that), or the user may not.",
        "https://github.com/NVIDIA/nvidia-container-toolkit/issues/48",
    ),
    Cause(
        "device-hidden",
        "host",
        "CUDA_VISIBLE_DEVICES hides the GPU",
        "Unset CUDA_VISIBLE_DEVICES, or set it to an index that exists.",
        "Proven by the counter-test: without the variable the driver shows devices.",
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html",
    ),
    Cause(
        "no-device",
        "host",
        "The driver shows no GPU",
        "Check nvidia-smi -L on the host; in a container start with --gpus all.",
        "cuInit returns 100, or the number of devices is 0, although a driver is there.",
        "https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__INITIALIZE.html",
    ),
    Cause(
        "container-no-gpu",
        "host",
        "The host has a GPU, the container was given none",
        "Start with docker run --gpus all; if Docker refuses, install nvidia-container-toolkit and run "
        "nvidia-ctk runtime configure.",
        "The kernel module shows in /proc, but neither device nodes nor the driver's library are in the "
        "container.",
        "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html",
    ),
    Cause(
        "preload-interference",
        "host",
        "A preloaded library (LD_PRELOAD, /etc/ld.so.preload) breaks the framework or cuDNN",
        "Start without LD_PRELOAD, or remove the line from /etc/ld.so.preload.",
        "A wrapper around dlopen (profilers have one) makes the loader search with the wrapper's run "
        "path instead of cuDNN's, and sub-libraries are not found; another cuDNN is taken in place of the "
        "right one. Proven: without the variable, or with the file hidden, the stage passes.",
        "https://github.com/bloomberg/memray/issues/212",
    ),
    Cause(
        "host-memory",
        "host",
        "The machine, or a limit, does not give the process the memory that it needs",
        "Raise the limit (ulimit -v unlimited, docker run --memory, the batch system's request), or stop "
        "other processes.",
        "A framework maps several gigabytes of libraries before it computes anything. A limit on the "
        "address space or of the container ends it with MemoryError, 'failed to map segment', or SIGKILL.",
        "https://man7.org/linux/man-pages/man2/getrlimit.2.html",
    ),
    Cause(
        "noexec-mount",
        "host",
        "The libraries lie on a file system from which nothing may be executed",
        "Mount it without noexec, or install elsewhere.",
        "On a file system mounted noexec the loader cannot map a library's code: 'failed to map segment "
        "from shared object'.",
        "https://man7.org/linux/man-pages/man8/mount.8.html",
    ),
    Cause(
        "no-temporary-space",
        "host",
        "There is no place for temporary files",
        "Mount a writable /tmp (docker run --tmpfs /tmp), free space in it, or set TMPDIR to a folder "
        "that can be written to.",
        "Compilers of kernels write temporary files, and so do parts of the frameworks. None of TMPDIR, "
        "/tmp, /var/tmp, /usr/tmp and the current folder could be written to, and the framework's "
        "exception is about a temporary file.",
        "https://docs.python.org/3/library/tempfile.html",
    ),
    Cause(
        "env-set-too-late",
        "busy",
        "LD_LIBRARY_PATH was set inside a running process, where it has no effect",
        "Set it before Python starts (in the image, or os.environ and then a restart of the runtime).",
        "The loader reads LD_LIBRARY_PATH when a process starts. Child processes see a later change, the "
        "process itself does not.",
        "https://github.com/python/cpython/issues/100567",
    ),
    Cause(
        "stale-process",
        "busy",
        "The running process still holds libraries that were replaced on disk",
        "Restart the runtime (Colab: Runtime, Restart session).",
        "After pip install the files are new, and what is mapped is old: /proc/PID/maps marks it as deleted.",
        "https://man7.org/linux/man-pages/man5/proc_pid_maps.5.html",
    ),
    Cause(
        "device-busy",
        "busy",
        "The GPU is taken or its mode forbids another process",
        "Wait for the other process, or set the compute mode to DEFAULT (nvidia-smi -c 0); with MIG "
        "choose an instance.",
        "In exclusive mode one process owns the GPU; in prohibited mode none may.",
        "https://docs.nvidia.com/deploy/nvidia-smi/index.html",
    ),
    Cause(
        "out-of-memory",
        "busy",
        "The GPU's memory is taken",
        "Stop other processes on the GPU (nvidia-smi), or let frameworks grow their memory "
        "(TF_FORCE_GPU_ALLOW_GROWTH=true, XLA_PYTHON_CLIENT_PREALLOCATE=false).",
        "cudnnCreate reports lack of memory as NOT_INITIALIZED, INTERNAL_ERROR or ALLOC_FAILED. The "
        "probe reads the free memory first, and proves the lack by an allocation that fails.",
        "https://github.com/tensorflow/tensorflow/issues/24496",
    ),
)
