"""Causes that lie in the image: cuDNN itself, the CUDA libraries, the packages."""

from collections import namedtuple

Cause = namedtuple("Cause", "id side title remedy explanation source")

CUDNN_CAUSES = (
    Cause(
        "cudnn-missing",
        "image",
        "There is no cuDNN where it is looked for",
        "Install the cuDNN that the framework asks for, by its own extra (pip install "
        "'tensorflow[and-cuda]', 'jax[cuda12]', torch) or from NVIDIA's packages; if a copy lies "
        "elsewhere, put its folder into /etc/ld.so.conf.d and run ldconfig.",
        "A framework opens libcudnn.so.N by name. The probe works out every place where the loader looks "
        "for that name, for the very library that asks, and finds it in none of them. A copy that lies "
        "somewhere else, in a wheel of another prefix for example, is listed in the evidence, but is no "
        "help to this program.",
        "https://docs.nvidia.com/deeplearning/cudnn/installation/latest/linux.html",
    ),
    Cause(
        "cudnn-sublibrary-missing",
        "image",
        "A part of cuDNN is missing",
        "Reinstall cuDNN as a whole (pip install --force-reinstall nvidia-cudnn-cu12==VERSION), and keep "
        "all its files in one folder.",
        "From version 8 on libcudnn.so is a thin shim that opens six to nine sub-libraries by name when "
        "they are first used. Importing a framework succeeds without them; the process is aborted in the "
        "middle of the first convolution, or at cudnnCreate. The probe compares each folder with the "
        "list of parts for its version.",
        "https://docs.nvidia.com/deeplearning/cudnn/backend/latest/api/overview.html",
    ),
    Cause(
        "cudnn-sublibrary-mismatch",
        "image",
        "The parts of cuDNN are of different versions",
        "Keep one cuDNN: remove the system's copy (apt remove 'libcudnn*') or the wheel, or reinstall so "
        "that all files come from one package.",
        "All sub-libraries must be of exactly the shim's version. A missing file in one copy is silently "
        "filled from another folder, and a copied file can be left over from an older version. cuDNN's "
        "own version checks, which need no GPU, return VERSION_MISMATCH (14) or "
        "SUBLIBRARY_VERSION_MISMATCH (1002); versions far apart end in an undefined symbol instead.",
        "https://github.com/pytorch/pytorch/issues/188892",
    ),
    Cause(
        "cudnn-shadowed",
        "image",
        "Another cuDNN on LD_LIBRARY_PATH takes the place of the right one",
        "Remove the cuDNN folder from LD_LIBRARY_PATH (or unset it); frameworks from wheels find their "
        "own copy.",
        "LD_LIBRARY_PATH is searched before the DT_RUNPATH of cuDNN's shim, so the shim may come from a "
        "wheel and its sub-libraries from a system folder. Proven by the counter-test: the same stage "
        "passes in a process started without LD_LIBRARY_PATH.",
        "https://github.com/pytorch/pytorch/issues/80637",
    ),
    Cause(
        "cudnn-too-old",
        "image",
        "The loaded cuDNN is older than the one the framework was compiled for",
        "Install a cuDNN of the same major version whose minor version is at least that of the build; or "
        "a framework built for the cuDNN that is there.",
        "A cuDNN x.y serves programs built for x.z with z not above y; patch releases do not matter. "
        "TensorFlow says 'Loaded runtime CuDNN library: 8.0.5 but source was compiled with: 8.1.0' and "
        "fails at the first convolution, PyTorch raises at the first use.",
        "https://github.com/googlecolab/colabtools/issues/2600",
    ),
    Cause(
        "cudnn-not-equal",
        "image",
        "The loaded cuDNN is not exactly the compiled one, and --strict demands that",
        "Pin cuDNN to the compiled version, or do without --strict: by NVIDIA's rule this pair is allowed.",
        "NVIDIA allows a newer minor version and any patch of the same major version. --strict is for "
        "those who want to exclude even that.",
        "https://docs.nvidia.com/deeplearning/cudnn/backend/latest/developer/forward-compatibility.html",
    ),
    Cause(
        "cudnn-major-mismatch",
        "image",
        "The framework needs another major version of cuDNN",
        "Install the major version that the framework was built for, beside or instead of the one that "
        "is there (both may coexist: their symbols carry versions).",
        "Nothing crosses a major version of cuDNN: libcudnn.so.8 and libcudnn.so.9 are different "
        "libraries with different functions. The probe names what the framework opens and which majors "
        "are installed.",
        "https://docs.nvidia.com/deeplearning/cudnn/backend/latest/developer/forward-compatibility.html",
    ),
    Cause(
        "cudnn-cuda-flavour",
        "image",
        "cuDNN is built for another CUDA than the framework",
        "Install the flavour for the framework's CUDA: nvidia-cudnn-cu12 for CUDA 12, nvidia-cudnn-cu11 "
        "for CUDA 11.",
        "Every cuDNN release exists once per CUDA major version and carries that CUDA's runtime inside. "
        "cudnnGetCudartVersion() tells which; the version number of cuDNN itself does not.",
        "https://docs.nvidia.com/deeplearning/cudnn/backend/latest/reference/support-matrix.html",
    ),
    Cause(
        "cudnn-file-corrupt",
        "image",
        "A cuDNN file is damaged",
        "Reinstall the package; check that the copy kept symbolic links and that Git LFS files were fetched.",
        "An empty file, a text file, a Git LFS pointer, a dangling link, a library of another machine, "
        "another library under its name (DT_SONAME tells), or one that ends early. The last is the nastiest: "
        "it maps without complaint and kills the "
        "process with SIGBUS. The probe reads every ELF header before anything is loaded.",
        "https://github.com/microsoft/CNTK/issues/2213",
    ),
    Cause(
        "cudnn-known-bad",
        "image",
        "This release of cuDNN is known to be broken",
        "Install cuDNN 9.10.1 or later.",
        "cuDNN 9.10.0 broke binary compatibility with programs built for earlier 9.x; NVIDIA repaired it "
        "in 9.10.1.",
        "https://github.com/jax-ml/jax/blob/main/jax_plugins/cuda/__init__.py",
    ),
    Cause(
        "toolkit-library-missing",
        "image",
        "A CUDA library that cuDNN or the framework needs is missing",
        "Install it with the framework's own dependencies (pip install without --no-deps), or take a "
        "-runtime base image of the right CUDA version.",
        "Frameworks and cuDNN need cuBLAS, cuFFT, cuSPARSE and others of the right major version. Where "
        "one is missing, PyTorch does not import, TensorFlow goes on silently on the CPU, cuDNN 8 aborts "
        "the process.",
        "https://github.com/pytorch/pytorch/issues/131284",
    ),
    Cause(
        "toolkit-mixed",
        "image",
        "CUDA libraries of two toolkits are mixed",
        "Unset LD_LIBRARY_PATH, or remove the second toolkit: all CUDA libraries have to come from one "
        "of them.",
        "cuBLAS from a wheel with cuBLASLt from /usr/local/cuda, or cuSPARSE with an older nvJitLink, "
        "end in an undefined symbol. Proven where the stage passes without LD_LIBRARY_PATH, or by the "
        "loader's own message about the file.",
        "https://github.com/Kaggle/docker-python/issues/1258",
    ),
    Cause(
        "nvrtc-missing",
        "image",
        "NVRTC, the run-time compiler, is missing or incomplete",
        "Install nvidia-cuda-nvrtc-cu12 (or cuda-nvrtc) of the toolkit's version; libnvrtc-builtins has "
        "to lie beside libnvrtc and be of the same minor version.",
        "cuDNN compiles some kernels at run time. cuDNN 8 opens libnvrtc.so without a version number. "
        "The probe lets NVRTC compile a one-line kernel, which needs no GPU.",
        "https://github.com/AUTOMATIC1111/stable-diffusion-webui/issues/10230",
    ),
    Cause(
        "unversioned-name-missing",
        "image",
        "A program opens a library by a name without version number, and only numbered names exist",
        "Add the link (ln -s libcudnn.so.8 libcudnn.so in the same folder, then ldconfig), or install "
        "the -dev package.",
        "Runtime packages and wheels ship libcudnn.so.8 but no libcudnn.so. Paddle, old TensorFlow and "
        "cuDNN 8 itself (libnvrtc.so, libcuda.so) open the bare name.",
        "https://github.com/PaddlePaddle/Paddle/issues/30841",
    ),
    Cause(
        "package-overwritten",
        "image",
        "A package's files were overwritten, cut or removed after it was installed",
        "Uninstall the packages that the evidence names, then install the one that is wanted (pip uninstall "
        "-y nvidia-cudnn-cu11 nvidia-cudnn-cu12; pip install --force-reinstall --no-cache-dir ...).",
        "nvidia-cudnn-cu11 and nvidia-cudnn-cu12 install the same paths. The later one wins, pip calls "
        "both installed, and uninstalling one deletes the files of the other. A full disk or a broken copy "
        "cuts files. RECORD knows the size and the hash of each file: sizes are always compared, hashes "
        "under --thorough, after a crash, and for a file with a hole of zeros in it.",
        "https://packaging.python.org/en/latest/specifications/recording-installed-packages/",
    ),
    Cause(
        "package-pin-mismatch",
        "image",
        "A package is not of the version that the framework's wheel demands",
        "Install the pinned version (pip check names it); do not upgrade nvidia-* packages on their own.",
        "A framework's wheel pins the NVIDIA packages it was built and tested with. An older minor or "
        "another major version breaks what NVIDIA promises; a newer minor of the same major is only "
        "noted. Halves of a framework (jaxlib and JAX's plug-ins, Keras under TensorFlow) must fit, and "
        "any other missed pin counts if the exception names that package.",
        "https://packaging.python.org/en/latest/specifications/core-metadata/",
    ),
    Cause(
        "ptxas-missing",
        "image",
        "ptxas or libdevice, which XLA compiles with, is missing",
        "Install the nvidia-cuda-nvcc package of the framework's CUDA (pip install --force-reinstall), or a "
        "toolkit with its bin folder on PATH.",
        "TensorFlow and JAX compile kernels by XLA, which starts ptxas and links libdevice.10.bc. Without "
        "them the import succeeds, convolutions may even run, and the first compiled function ends the "
        "process.",
        "https://github.com/jax-ml/jax/blob/main/jax/_src/lib/__init__.py",
    ),
    Cause(
        "startup-preload",
        "image",
        "A file that Python runs at its start loads CUDA libraries",
        "Remove the line from sitecustomize.py, usercustomize.py or the .pth file that the evidence names.",
        "Python runs sitecustomize and the import lines of .pth files before any program. A library "
        "loaded there is taken by everything that asks for its name later. Proven: without these files "
        "(python -S) the stage passes.",
        "https://docs.python.org/3/library/site.html",
    ),
    Cause(
        "system-library-missing",
        "image",
        "A library of the operating system is missing",
        "Install the distribution's package that holds it (libstdc++6, libgomp1, libgl1, ...).",
        "The wheels bring CUDA's libraries and rely on the C++ run-time and a few others of the "
        "distribution, which slim images leave out. No installed package lists the file, and the loader "
        "does not find it.",
        "https://peps.python.org/pep-0599/",
    ),
    Cause(
        "file-access-denied",
        "image",
        "A file cannot be read, or run, by this user",
        "Correct owner and mode of the file (chmod -R a+rX on the site-packages folder), or start as the "
        "user who installed it.",
        "A package that was installed under a strict umask, or copied without its modes, is invisible or "
        "unusable for another user. The loader then goes on searching as if it were not there.",
        "https://man7.org/linux/man-pages/man7/path_resolution.7.html",
    ),
    Cause(
        "python-incomplete",
        "image",
        "This Python was built without a part of its standard library",
        "Build Python with libffi's headers installed (libffi-dev), or take your distribution's.",
        "Without _ctypes no library can be opened from Python: neither the frameworks nor this probe can "
        "work.",
        "https://docs.python.org/3/library/ctypes.html",
    ),
    Cause(
        "libc-too-old",
        "image",
        "The C library is older than these libraries need",
        "Take a base image with a newer distribution, or libraries built for an older glibc (manylinux tag).",
        "The loader refuses a library that was linked against a newer glibc. Its message names the GLIBC "
        "version.",
        "https://peps.python.org/pep-0600/",
    ),
    Cause(
        "check-disabled",
        "image",
        "A framework's own comparison of cuDNN versions is switched off",
        "Remove the variable (PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK, JAX_SKIP_CUDA_CONSTRAINTS_CHECK or "
        "MXNET_CUDNN_LIB_CHECKING) from the environment.",
        "With the check off a forbidden pair of versions is used until it fails somewhere else. An image "
        "that sets such a variable hides its fault.",
        "https://github.com/pytorch/pytorch/blob/main/torch/backends/cudnn/__init__.py",
    ),
    Cause(
        "expect-mismatch",
        "image",
        "What is here is not what was asked for",
        "Rebuild the image from its lock, or correct the expectation.",
        "An expectation file names framework, cuDNN, CUDA, Python and package versions. The probe reads "
        "what is there and compares; every difference is listed.",
        "https://github.com/opencontainers/image-spec/blob/main/annotations.md",
    ),
    Cause(
        "execution-failed",
        "image",
        "A convolution or a training step fails, and nothing below it explains why",
        "Read the status in the evidence; try the framework's current release with its own cuDNN.",
        "Driver, memory and library checks passed, or there is no GPU, and a small standard convolution or "
        "training step still ends in an error; cuDNN's own by any of the algorithms tried, unless it says "
        "NOT_SUPPORTED and another one ran.",
        "https://docs.nvidia.com/deeplearning/cudnn/backend/latest/api/cudnn-graph-library.html",
    ),
    Cause(
        "wrong-result",
        "image",
        "The convolution ran and gave wrong numbers",
        "Do not use this combination. Run it on another GPU to tell a library fault from a hardware fault.",
        "The probe convolves whole numbers that FP32, TF32 and FP16 represent exactly. A direct algorithm "
        "has to match plain Python exactly; Winograd and FFT may be off by the rounding error that is "
        "proven for them, which is less than half of the distance between two answers.",
        "https://docs.nvidia.com/deeplearning/cudnn/backend/latest/developer/core-concepts.html",
    ),
    Cause(
        "crash",
        "image",
        "The process is killed in the middle of a call",
        "Look at the call in flight and the last lines of its output in the evidence; reinstall that "
        "library.",
        "The child process that made the call died, by a signal or by leaving on its own, and no "
        "counter-test explains it. The call is known, because it is announced before it is made.",
        "https://man7.org/linux/man-pages/man7/signal.7.html",
    ),
    Cause(
        "hang",
        "image",
        "A call does not come back",
        "Look at the call in flight; a first launch on a GPU newer than the wheel may compile for "
        "minutes: keep the result with CUDA_CACHE_PATH, or install a newer wheel, or raise --timeout.",
        "The child was stopped by the watchdog. The evidence holds the call in flight, the kernel's view "
        "of the process and the libraries it had mapped.",
        "https://github.com/tensorflow/tensorflow/issues/22043",
    ),
)
