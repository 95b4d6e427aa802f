"""Causes that lie in a framework, or between an image and this card."""

from .causes_cudnn import Cause

FRAMEWORK_CAUSES = (
    Cause(
        "framework-cpu-build",
        "image",
        "The framework is a build without CUDA",
        "Install the CUDA build: torch from its CUDA index, tensorflow instead of tensorflow-cpu, "
        "jax[cuda12], onnxruntime-gpu.",
        "No driver and no cuDNN helps a wheel that was compiled for the CPU. torch.version.cuda, "
        "TensorFlow's build information and the installed plugins tell.",
        "https://github.com/pytorch/pytorch/issues/28111",
    ),
    Cause(
        "framework-silent-cpu",
        "image",
        "The framework runs on the CPU without saying so",
        "Read the framework's warnings in the evidence: one of its CUDA libraries did not load, or a "
        "variable such as JAX_PLATFORMS=cpu forbids the GPU.",
        "TensorFlow, JAX and ONNX Runtime go on without the GPU when a library is missing or a variable "
        "says so. The probe asserts the device on which a result lies, not the absence of an exception.",
        "https://github.com/microsoft/onnxruntime/issues/21825",
    ),
    Cause(
        "framework-import",
        "image",
        "The framework does not import",
        "Read the exception in the evidence; reinstall the framework with its dependencies.",
        "The import raised an exception that no missing or mixed CUDA library explains: a broken "
        "package, an incompatible NumPy or protobuf, a file that shadows the module.",
        "https://docs.python.org/3/reference/import.html",
    ),
    Cause(
        "variable-breaks-framework",
        "image",
        "An environment variable ends the framework",
        "Remove or correct the variable that the evidence names.",
        "An unknown flag in XLA_FLAGS aborts the process, and other variables have values that do. "
        "Proven: without the frameworks' variables the stage passes; which one it is was found by taking "
        "away each alone.",
        "https://openxla.org/xla/flags_guidance",
    ),
    Cause(
        "module-shadowed",
        "image",
        "A file of yours has the name of a module that the framework needs",
        "Rename the file that the evidence names, or take its folder off PYTHONPATH.",
        "PYTHONPATH comes before the standard library, so a random.py or platform.py there is what a "
        "framework imports, and a torch.py is taken for PyTorch. Proven: with Python's own modules first the "
        "stage passes, or the module's file is none that pip installed.",
        "https://docs.python.org/3/library/sys_path_init.html",
    ),
    Cause(
        "import-order-conflict",
        "image",
        "Two frameworks work alone, but not together",
        "Import them in the order that works, or run them in two processes, or align their cuDNN versions.",
        "Two copies of cuDNN 9 in one process share one set of sub-libraries: those of the first import. "
        "The probe imports in both orders and compares.",
        "https://github.com/pytorch/pytorch/issues/187824",
    ),
    Cause(
        "training-loss",
        "image",
        "A few training steps do not lower the loss",
        "Treat it as a wrong result: do not use this combination.",
        "A tiny model with a known answer is trained for a few steps; its loss has to fall.",
        "https://docs.nvidia.com/deeplearning/cudnn/backend/latest/developer/core-concepts.html",
    ),
    Cause(
        "framework-arch-missing",
        "image-on-gpu",
        "The framework's wheel holds no code for this GPU",
        "Install a wheel built for this GPU (another CUDA variant or release), or use another GPU.",
        "A wheel holds machine code for some compute capabilities and PTX for others. Code runs on the "
        "same major version with an equal or higher minor one; PTX on any newer GPU. None of it fits "
        "here.",
        "https://github.com/pytorch/pytorch/issues/31285",
    ),
    Cause(
        "cudnn-arch-dropped",
        "image-on-gpu",
        "This cuDNN does not serve this GPU",
        "For compute capability below 7.5 install cuDNN 9.10.2 or older; for a new GPU a newer cuDNN.",
        "cuDNN 9.11 dropped Maxwell, Pascal and Volta; and an old cuDNN knows nothing of GPUs newer than "
        "itself.",
        "https://github.com/pytorch/pytorch/issues/162574",
    ),
    Cause(
        "compat-unsupported",
        "image-on-gpu",
        "cuda-compat is used on a GPU, or beside a driver, for which it is not made",
        "Upgrade the host's driver, take a base image with an older CUDA, or remove the cuda-compat folder.",
        "The forward-compatibility package works on data-centre GPUs only (elsewhere cuInit returns 804) "
        "and beside the driver branches it is made for (beside others 803).",
        "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",
    ),
)
