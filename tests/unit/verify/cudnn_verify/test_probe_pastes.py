"""Pastes that name no package of NVIDIA's, or another maker's card: the cause or the words, and a command.

The lines are those that the libraries print; each class is from public threads of before 2026-05.
"""

import pytest
from pages import diagnose_score


def _commands(document):
    return [row["text"] for cause in document["causes"] for row in cause["commands"]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        # https://github.com/Comfy-Org/ComfyUI/issues/2807
        ("AssertionError: Torch not compiled with CUDA enabled\nGPU: Radeon RX 6600 XT", "whl/rocm"),
        ("torch.cuda.is_available()\nFalse\nAMD Radeon RX 7900 XTX, torch 2.5.1+cu124", "whl/rocm"),
        ("RuntimeError: No HIP GPUs are available", "/dev/kfd"),
        ("ggml_cuda_init: failed to initialize ROCm: no ROCm-capable device is detected", "/dev/kfd"),
        # https://github.com/Dao-AILab/flash-attention/issues/1631
        (
            (
                "ERROR: Could not install packages due to an OSError: [Errno 2] No such file or directory: "
                "'C:\\\\Temp\\\\x.cpp'\nHINT: This error might have occurred since this system does not have "
                "Windows Long Path support enabled."
            ),
            "LongPathsEnabled",
        ),
        ("OSError: You are trying to access a gated repo.\n401 Client Error.", "hf auth login"),
        # https://github.com/NovaSky-AI/SkyRL/pull/108
        (
            (
                "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3353, "
                "unhandled cuda error, "
                "NCCL version 2.26.2\nLast error:\nCuda failure 217 'peer access is not supported "
                "between these two "
                "devices'"
            ),
            "export NCCL_P2P_DISABLE=1",
        ),
        (
            (
                "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms "
                "while trying to "
                "connect to (10.0.0.4, 29500)."
            ),
            "MASTER_ADDR",
        ),
        (
            (
                "torch.distributed.DistNetworkError: The server socket has failed to listen on any "
                "local network "
                "address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address "
                "already in use"
            ),
            "--master_port=29501",
        ),
        ("CMake Error: LLAMA_CUBLAS is deprecated and will be removed in the future.", "-DGGML_CUDA=on"),
        # two Pythons, told in words
        (
            (
                'In my terminal `python -c "import torch"` works, but in the notebook:\n'
                "ModuleNotFoundError: No module named 'torch'"
            ),
            "ipykernel",
        ),
    ],
)
def test_a_fault_outside_of_the_environment_has_a_way_in_words_and_no_command_of_nvidias(text, words):
    document = diagnose_score.answer(text)
    assert words in document["program"]["says"]
    assert document["causes"] == []
    assert document["look"] is None


@pytest.mark.parametrize(
    ("text", "cause", "command"),
    [
        (
            (
                "RuntimeError: Cuda extensions are being compiled with a version of Cuda that does "
                "not match the "
                "version used to compile Pytorch binaries.  Pytorch binaries were compiled with Cuda 12.1."
            ),
            "build-toolkit-mismatch",
            "cuda-toolkit-12-1",
        ),
        ("NameError: name 'bare_metal_version' is not defined", "build-toolkit-missing", "cuda-toolkit-"),
        (
            "[3/49] /usr/local/cuda/bin/nvcc -c a.cu\nKilled\nninja: build stopped: subcommand failed.",
            "host-memory",
            "MAX_JOBS=2",
        ),
        # https://github.com/syssec-utd/pylingual/issues/129
        (
            (
                "Unable to find installation candidates for torch (2.6.0+cu121)\nThis is likely not a "
                "Poetry issue."
            ),
            "build-not-published",
            "torch==2.6.0 --index-url",
        ),
        (
            (
                "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9866.00 MiB on device 1: "
                "cudaMalloc failed: "
                "out of memory"
            ),
            "out-of-memory",
            "-ngl",
        ),
        (
            (
                "time=2025-01-01 level=INFO source=runner.go:1\nggml_gallocr_reserve_n: failed to "
                "allocate CUDA1 "
                "buffer of size 10345253120\nollama run m"
            ),
            "out-of-memory",
            "ollama serve",
        ),
        (
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
            "out-of-memory",
            "--mem-fraction-static 0.9",
        ),
        (
            (
                "Capture cuda graph failed: CUDA out of memory. Possible solutions:\n1. set "
                "--mem-fraction-static "
                "to a smaller value"
            ),
            "out-of-memory",
            "--mem-fraction-static 0.75",
        ),
        (
            "RuntimeError: MPS backend out of memory (MPS allocated: 17.74 GB, max allowed: 18.13 GB).",
            "out-of-memory",
            "PYTORCH_MPS_HIGH_WATERMARK_RATIO",
        ),
        (
            (
                "torch.OutOfMemoryError: Allocation on device\nThis error means you ran out of memory on "
                "your GPU."
            ),
            "out-of-memory",
            "--lowvram",
        ),
        # https://github.com/keras-team/keras/issues/19441
        (
            "Exception encountered: Unrecognized keyword arguments passed to Conv2DTranspose: {'groups': 1}",
            "package-pin-mismatch",
            "tf-keras",
        ),
        (
            (
                "ValueError: File format not supported: filepath=m. Keras 3 only supports V3 "
                "`.keras` files and "
                "legacy H5 format files (`.h5` extension)."
            ),
            "package-pin-mismatch",
            "tf-keras",
        ),
        (
            "TypeError: Error when deserializing class 'InputLayer' using config={'batch_shape': [None, 8]}.",
            "package-pin-mismatch",
            "keras>=3",
        ),
        (
            (
                "NotImplementedError: No compiled cutlass_scaled_mm for CUDA device capability: 120. "
                "Required "
                "capability: 90 or 100\nvllm 0.8.5, RTX 5090"
            ),
            "framework-arch-missing",
            "--upgrade vllm",
        ),
        (
            "ImportError: cannot import name 'TypeIs' from 'typing_extensions' (/a/typing_extensions.py)",
            "package-pin-mismatch",
            "--upgrade typing-extensions",
        ),
        (
            "TypeError: unsupported operand type(s) for |: 'type' and 'NoneType'\nPython 3.9.18",
            "package-pin-mismatch",
            "uv venv --python 3.10",
        ),
        (
            "ImportError: cannot import name 'Self' from 'typing' (/usr/lib/python3.10/typing.py)",
            "package-pin-mismatch",
            "uv venv --python 3.11",
        ),
        (
            (
                "ERROR: Could not find a version that satisfies the requirement tensorflow (from "
                "versions: none)\n"
                "ERROR: No matching distribution found for tensorflow\nPython 3.13"
            ),
            "build-not-published",
            "uv venv --python 3.12 && uv pip install tensorflow",
        ),
        (
            "OSError: [WinError 1455] The paging file is too small for this operation to complete.",
            "host-memory",
            "SystemPropertiesPerformance",
        ),
        # a driver that no text tells serves the CUDA major version of the build that is here
        (
            (
                "ValueError: Due to a serious vulnerability issue in `torch.load`, we now require "
                "users to upgrade "
                "torch to at least v2.6\ntorch 2.5.1+cu121"
            ),
            "package-pin-mismatch",
            "whl/cu126",
        ),
    ],
)
def test_the_first_cause_has_a_command_that_mends(text, cause, command):
    document = diagnose_score.answer(text)
    assert document["cause"] == cause
    assert command in _commands(document)[0]


def test_what_pip_says_that_one_has_is_here_and_what_another_asks_for_is_not():
    text = "xformers 0.0.29.post3 requires torch==2.6.0, but you have torch 2.7.1 which is incompatible."
    document = diagnose_score.answer(text)
    assert document["read"]["packages"]["torch"] == "2.7.1"
    assert "for PyTorch 2.7.1" in document["causes"][0]["because"][0]
    assert "xformers==0.0.29.post3" not in " ".join(_commands(document))


def test_the_number_of_nvidia_smi_is_no_release_of_a_package():
    text = "| NVIDIA-SMI 535.183.01   Driver Version: 535.183.01   CUDA Version: 12.2 |"
    assert diagnose_score.answer(text)["read"]["packages"] == {}


@pytest.mark.parametrize(
    ("text", "packages"),
    [
        (
            (
                "Requirement already satisfied: torch>=1.8.1 in /v/lib/python3.11/site-packages "
                "(from accelerate) "
                "(2.9.0+cu128)"
            ),
            {"torch": "2.9.0+cu128"},
        ),
        ("Collecting torch>=1.8.1 (from accelerate)", {}),
        ("RuntimeError: AutoSP requires PyTorch >= 2.9, found an older one", {}),
        ("I installed pytorch 2.9 (cu130) yesterday", {"torch": "2.9+cu130"}),
    ],
)
def test_what_is_asked_for_is_no_release_that_is_here(text, packages):
    assert diagnose_score.answer(text)["read"]["packages"] == packages


@pytest.mark.parametrize(
    ("text", "cause", "command"),
    [
        (
            "RuntimeError: AutoSP requires PyTorch >= 2.9, found 2.6.0.",
            "package-pin-mismatch",
            'uv pip install --upgrade "torch>=2.9"',
        ),
        # https://github.com/astral-sh/uv/issues/16594
        (
            (
                "hint: The `requires-python` value (>=3.9) includes Python versions that are not "
                "supported by your "
                "dependencies (e.g., all versions of vllm only supports >=3.10, <4). Consider using a more "
                "restrictive\n      `requires-python` value (like >=3.10, <4)."
            ),
            "build-not-published",
            'requires-python = ">=3.10, <4"',
        ),
        (
            "ERROR: Package 'vllm' requires a different Python: 3.9.18 not in '<3.14,>=3.10'",
            "build-not-published",
            "uv venv --python 3.12 && uv pip install vllm",
        ),
        # https://github.com/astral-sh/uv/issues/13197
        (
            (
                "Because only torch<=2.6.0+cu124 is available and you require torch>=2.7.0, we can "
                "conclude that "
                "your requirements are unsatisfiable."
            ),
            "build-not-published",
            "--torch-backend=auto",
        ),
        (
            (
                "PackagesNotFoundError: The following packages are not available from current channels:\n"
                "  - pytorch-cuda=12.8"
            ),
            "build-not-published",
            "whl/cu128",
        ),
        (
            "pytorch ==2.1.0 * is not installable because it requires pytorch-cuda 11.8",
            "build-not-published",
            "pytorch==2.1.0 pytorch-cuda=11.8",
        ),
        # https://github.com/NVIDIA/nvidia-docker/issues/1642
        (
            'docker was installed by snap\ncould not select device driver "" with capabilities: [[gpu]]',
            "container-no-gpu",
            "snap remove",
        ),
        # https://github.com/NVIDIA/nvidia-container-toolkit/issues/854
        (
            (
                'could not select device driver "" with capabilities: [[gpu]]\nDocker Desktop 4.37 on '
                "Ubuntu 24.04"
            ),
            "container-no-gpu",
            "docker context use default",
        ),
        (
            (
                "Could not load dynamic library 'cudart64_110.dll'; dlerror: cudart64_110.dll not found\n"
                "tensorflow 2.10.0"
            ),
            "toolkit-library-missing",
            "cudatoolkit=11.2 cudnn=8.1",
        ),
        (
            "vllm on DGX Spark: the process ended with exit code 137 while it loaded weights",
            "host-memory",
            "drop_caches",
        ),
        (
            "Exception: data did not match any variant of untagged enum ModelWrapper at line 757479 column 3",
            "package-pin-mismatch",
            "--upgrade transformers",
        ),
        (
            (
                "ValueError: Couldn't instantiate the backend tokenizer from one of: (1) a "
                "`tokenizers` library "
                "serialization file"
            ),
            "package-pin-mismatch",
            "sentencepiece",
        ),
    ],
)
def test_installers_and_loaders_failures_have_a_command(text, cause, command):
    document = diagnose_score.answer(text)
    assert document["cause"] == cause
    assert command in _commands(document)[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Error while deserializing header: HeaderTooLarge", "--force-download"),
        (
            (
                "RuntimeError: Unable to initialize backend 'METAL': INVALID_ARGUMENT: Mismatched "
                "PJRT plugin PJRT API "
                "version (0.47) and framework PJRT API version 0.54"
            ),
            "ENABLE_PJRT_COMPATIBILITY",
        ),
    ],
)
def test_a_cut_file_and_apples_plug_in_are_told_in_words(text, words):
    assert words in diagnose_score.answer(text)["program"]["says"]


@pytest.mark.parametrize(
    ("text", "cause", "command"),
    [
        ("ValueError: The memory capacity is unbalanced.", "out-of-memory", "nvidia-smi"),
        ("RuntimeError: Aborted due to the lack of CPU swap space.", "host-memory", "--swap-space 16"),
        (
            "ValueError: Too large swap space. 16.00 GiB out of the 15.50 GiB total CPU memory is allocated.",
            "host-memory",
            "--swap-space 1",
        ),
        (
            "ValueError: Model architectures ['Qwen3VLForConditionalGeneration'] are not supported for now.",
            "package-pin-mismatch",
            "--upgrade vllm",
        ),
        (
            "ValueError: `rope_scaling` must be a dictionary with two fields, `type` and `factor`",
            "package-pin-mismatch",
            "--upgrade transformers",
        ),
        (
            "PermissionError: [Errno 13] Permission denied: '/.cache/huggingface'",
            "file-access-denied",
            "HF_HOME=",
        ),
        ("$ pip install torch\nDownloading torch-2.6.0.whl\nKilled", "host-memory", "PIP_NO_CACHE_DIR=1"),
        (
            (
                "The current installed version of g++ (4.8.5) is less than the minimum required version by "
                "CUDA 11.8 (6.0.0). Please make sure to use an adequate version of g++ (>=6.0.0, <12.0)."
            ),
            "build-toolkit-mismatch",
            "g++-11",
        ),
        (
            "nvcc fatal   : No supported gcc/g++ host compiler found, but clang-14 is available.",
            "build-toolkit-mismatch",
            "CUDAHOSTCXX=g++",
        ),
        (
            "AssertionError: MMCV==2.2.0 is used but incompatible. Please install mmcv>=2.0.0rc4, <2.2.0.",
            "package-pin-mismatch",
            'mim install "mmcv>=2.0.0rc4,<2.2.0"',
        ),
        (
            "ERROR: No matching distribution found for torch\nFROM python:3.11-alpine",
            "build-not-published",
            "FROM python:3.12-slim",
        ),
        (
            "ERROR: No matching distribution found for torch\nPython 3.11.4 (32 bit) on win32",
            "build-not-published",
            "uv venv --python 3.12",
        ),
        # https://github.com/huggingface/transformers/issues/43576
        ("NameError: name 'TypeAdapter' is not defined", "package-pin-mismatch", "pydantic>=2"),
        ("NameError: name 'init_empty_weights' is not defined", "package-pin-mismatch", "accelerate"),
        (
            "Disabling PyTorch because PyTorch >= 2.4 is required but found 2.3.1",
            "package-pin-mismatch",
            "torch>=2.4",
        ),
        (
            "ollama ps shows 100% CPU\ndocker run -d -v ollama:/root/.ollama -p 11434:11434 ollama/ollama",
            "container-no-gpu",
            "--gpus=all",
        ),
        (
            "torch._inductor.exc.InductorError: RuntimeError: Compiler: cl is not found.",
            "kernel-compiler-missing",
            "BuildTools",
        ),
    ],
)
def test_servers_and_compilers_failures_have_a_command(text, cause, command):
    document = diagnose_score.answer(text)
    assert document["cause"] == cause
    assert command in _commands(document)[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Total number of attention heads (14) must be divisible by tensor parallel size (4).", "pipeline"),
        (
            "ValueError: The number of required GPUs exceeds the total number of available GPUs.",
            "nvidia-smi -L",
        ),
        ("RuntimeError: Gloo connectFullMesh failed with [pair.cc:144] no error", "GLOO_SOCKET_IFNAME"),
        ("OSError: We couldn't connect to 'https://huggingface.co' to load the files", "HF_ENDPOINT"),
        (
            "error: incomplete-download\nDownload failed because not enough bytes were received",
            "PIP_RESUME",
        ),
    ],
)
def test_what_is_the_programs_or_the_networks_is_told_so(text, words):
    document = diagnose_score.answer(text)
    assert words in document["program"]["says"]
    assert document["causes"] == []


def test_a_mac_without_a_driver_is_asked_for_no_driver():
    document = diagnose_score.answer("RuntimeError: Found no NVIDIA driver on your system.\nMacBook Air M2")
    assert document["cause"] == "framework-cpu-build"
    assert not any("nvidia" in command for command in _commands(document))


@pytest.mark.parametrize(
    ("text", "cause", "command"),
    [
        (
            (
                "docker run --gpus all vllm/vllm-openai:v0.8.5 --model x\nRuntimeError: CUDA "
                "error: no kernel image "
                "is available for execution on the device\nGPU: RTX PRO 6000 Blackwell"
            ),
            "framework-arch-missing",
            "vllm/vllm-openai:latest",
        ),
        (
            (
                "The current project's supported Python range (>=3.9,<4.0) is not compatible "
                "with some of the "
                "required packages Python requirement:\n  - vllm requires Python <3.13,>=3.9, so "
                "it will not be "
                "satisfied for Python >=3.13,<4.0"
            ),
            "build-not-published",
            "<3.13,>=3.9",
        ),
        (
            (
                "Because torch==2.8.0+cu128 has no wheels with a matching platform tag (e.g., "
                "`macosx_15_0_arm64`) "
                "and you require torch==2.8.0+cu128, we can conclude that your requirements are "
                "unsatisfiable."
            ),
            "build-not-published",
            "torch==2.8.0",
        ),
        (
            (
                "hint: You require CPython 3.14 (`cp314`), but we only found wheels for `torch` "
                "(v2.7.1) with the "
                "following Python ABI tags: `cp311`, `cp312`, `cp313`"
            ),
            "build-not-published",
            "UV_PYTHON=3.13",
        ),
        (
            (
                "hint: This error likely indicates that `flash-attn@2.8.3` depends on `psutil`, "
                "but doesn't declare "
                "it as a build dependency."
            ),
            "build-isolation",
            "pip install psutil",
        ),
        ("error: invalid command 'bdist_wheel'", "build-isolation", "setuptools wheel"),
        (
            "Jetson Thor, JetPack 7.1, python 3.12; torch 2.9.1+cpu; torch.cuda.is_available() False",
            "framework-cpu-build",
            "download.pytorch.org/whl/cu13",
        ),
    ],
)
def test_images_installers_and_boards_have_the_command_of_their_own(text, cause, command):
    document = diagnose_score.answer(text)
    assert document["cause"] == cause
    assert command in _commands(document)[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("RuntimeError: Found no NVIDIA driver on your system.\nIntel Arc B580", "whl/xpu"),
        ("RuntimeError: Failed to infer device type\nAMD Instinct MI300X", "whl/rocm"),
        ('NVIDIA GB10: nvidia-smi shows memory "Not Supported"', "psutil"),
        ("Invalid cross-device link: 'flash_attn-2.7.4.whl' -> '/root/.cache/pip/a.whl'", "TMPDIR"),
    ],
)
def test_another_makers_card_and_a_shared_memory_are_told_in_words(text, words):
    document = diagnose_score.answer(text)
    assert words in document["program"]["says"]
    assert document["causes"] == []


def test_a_wheel_that_pip_fetches_is_read_by_its_name():
    text = (
        "Downloading https://download.pytorch.org/whl/cu130/torch-2.10.0%2Bcu130-cp312-cp312-linux_x86_64.whl"
    )
    assert diagnose_score.answer(text)["read"]["packages"] == {"torch": "2.10.0+cu130"}
    refused = (
        "ERROR: torch-2.4.0+cu121-cp310-cp310-linux_x86_64.whl is not a supported wheel on this platform."
    )
    assert diagnose_score.answer(refused)["read"]["packages"] == {}


@pytest.mark.parametrize(
    ("text", "cause", "command"),
    [
        ("RuntimeError: Unable to JIT load the async_io op", "system-library-missing", "libaio-dev"),
        ("No module named 'fused_layer_norm_cuda'", "extension-mismatch", "NVIDIA/apex"),
        (
            "TypeError: causal_conv1d_fwd(): incompatible function arguments.",
            "package-pin-mismatch",
            "mamba-ssm causal-conv1d",
        ),
        (
            (
                "RuntimeError: CUDA failed with error no kernel image is available for execution on the "
                "device\nctranslate2 4.5.0 RTX 5070"
            ),
            "framework-arch-missing",
            "--upgrade ctranslate2",
        ),
    ],
)
def test_parts_that_are_compiled_apart_have_the_command_of_their_own(text, cause, command):
    document = diagnose_score.answer(text)
    assert document["cause"] == cause
    assert command in _commands(document)[0]


_FRAMES = """\
  File "{program}", line 4, in <module>
  File "/v/site-packages/docling_ibm_models/predictor.py", line 26, in <module>
    AutoImageProcessor.register(
  File "/v/site-packages/{raiser}/auto_factory.py", line 680, in register
    if key.__module__.startswith("transformers."):
{error}
"""


@pytest.mark.parametrize(
    ("fields", "above", "command"),
    [
        # https://github.com/docling-project/docling-ibm-models/issues/167
        ({}, "transformers              5.13.0\n", 'pip install "transformers<5.13"'),
        ({}, "transformers 5.13.2\n", 'pip install "transformers<5.13.2"'),
        # the one that calls it is older: a release of its time, or a later one of it
        ({}, "transformers 5.13.0, docling-ibm-models 3.10.0\n", 'pip install "transformers<4.57.'),
        ({}, "", "pip install --upgrade docling-ibm-models transformers"),
        ({"raiser": "torch"}, "torch 2.9.0\n", None),
        ({"error": "ValueError: an image has three channels"}, "transformers 5.13.0\n", None),
        ({"error": "OSError: no such file"}, "transformers 5.13.0\n", None),
    ],
)
def test_an_error_out_of_a_packages_own_code_is_likely_one_of_its_release(fields, above, command):
    words = {
        "program": "<stdin>",
        "raiser": "transformers",
        "error": "AttributeError: 'str' object has no attribute '__module__'",
        **fields,
    }
    document = diagnose_score.answer(above + _FRAMES.format(**words))
    told = [because for row in document["causes"] for because in row["because"] if "own code" in because]
    assert bool(told) is (command is not None)
    if command:
        (row,) = document["causes"]
        assert row["cause"] == "package-pin-mismatch"
        assert not document["decided"]
        assert row["commands"][0]["text"].startswith(command)
        assert document["look"]["command"].startswith("python3 -m pip show ")


def test_an_error_of_the_programs_own_call_is_no_release_of_a_package():
    text = (
        'File "train.py", line 4, in <module>\n  File "/v/site-packages/peft/a.py", line 2, in b\nKeyError: 1'
    )
    document = diagnose_score.answer("peft 0.18.0\n" + text)
    assert not document["causes"]
    assert "own code" not in document["look"]["decides"]


def test_a_module_that_came_with_a_release_says_nothing_of_a_later_name_in_it():
    """``torch.fx.experimental`` came with 1.9, ``guard_or_true`` in it much later:
    https://github.com/huggingface/transformers/issues/47710
    """
    line = "ImportError: cannot import name 'guard_or_true' from 'torch.fx.experimental.symbolic_shapes'"
    document = diagnose_score.answer(f"transformers version: 5.15.0\nPyTorch version: 2.6.0+cu124\n{line}")
    assert document["cause"] == "package-pin-mismatch"
    assert not any("from 1.9 on" in because for because in document["causes"][0]["because"])


def test_a_source_tree_in_the_place_of_the_package_is_the_programs_own_fault():
    text = "RuntimeError: flashinfer-cubin version (0.6.7) does not match flashinfer version (0.0.0+unknown)"
    document = diagnose_score.answer(text)
    assert document["causes"] == []
    assert "no installed package" in document["program"]["says"]


def test_headers_of_pytorch_before_microsofts_compiler():
    """https://github.com/turboderp-org/exllamav3/pull/360"""
    text = (
        "torch 2.13.0\nerror C7582: default member initializers for bit-fields requires at least /std:c++20\n"
    )
    assert (
        diagnose_score.answer(text + "error C2139: 'torch::autograd::Node'")["cause"] == "extension-mismatch"
    )


@pytest.mark.parametrize("above", ["Ubuntu on WSL2\n", "Windows 11, in WSL:\n"])
def test_within_wsl_a_driver_for_linux_goes_and_no_machine_is_restarted(above):
    """https://docs.nvidia.com/cuda/wsl-user-guide/index.html"""
    document = diagnose_score.answer(above + "Failed to initialize NVML: Driver/library version mismatch")
    assert document["cause"] == "driver-library-mismatch"
    (command,) = _commands(document)
    assert "apt-get purge" in command
    assert "--shutdown" in command
    assert "reboot" not in command


_IMPORT = "ImportError: cannot import name '%s' from '%s' (/v/site-packages/transformers/__init__.py)"


@pytest.mark.parametrize(
    ("name", "module", "command"),
    [
        # the wheels' own first release without it, before what is kept by hand of a whole major release:
        # https://github.com/idiap/coqui-ai-TTS/issues/558
        ("isin_mps_friendly", "transformers.pytorch_utils", 'pip install "transformers<5.1"'),
        # gone from the package's own names before the class was: https://github.com/coqui-ai/TTS/issues/4420
        ("BeamSearchScorer", "transformers", 'pip install "transformers<4.57"'),
    ],
)
def test_the_bound_of_a_name_is_the_first_release_without_it(name, module, command):
    assert _commands(diagnose_score.answer(_IMPORT % (name, module)))[0] == command


# https://github.com/MegaWiz-Dev-Team/agentic_rag_workshop/issues/1
@pytest.mark.parametrize(
    ("here", "cause", "commands"),
    [
        ("numpy 1.26.4", "stale-process", []),
        ("numpy 2.2.1", "package-pin-mismatch", ['pip install "numpy<2"']),
    ],
)
def test_a_numpy_that_is_already_the_wanted_one_asks_for_a_restart_and_no_installation(here, cause, commands):
    size = "numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88"
    document = diagnose_score.answer(f"{here}\nValueError: {size} from PyObject")
    assert [row["cause"] for row in document["causes"]] == [cause]
    assert _commands(document) == commands


@pytest.mark.parametrize(("here", "printed"), [("protobuf 3.20.3", False), ("protobuf 4.25.1", True)])
def test_no_command_asks_for_a_range_that_what_is_here_is_in_already(here, printed):
    text = here + "\nTypeError: Descriptors cannot be created directly."
    assert ('pip install "protobuf<3.21"' in _commands(diagnose_score.answer(text))) is printed


# https://github.com/paberr/ownscribe/issues/34
@pytest.mark.parametrize(("left_out", "told"), [("", True), ("  ...\n", False), ("  [...]\n", False)])
def test_the_last_frame_before_what_was_left_out_is_not_who_asks(left_out, told):
    text = (
        "Traceback (most recent call last):\n"
        '  File "/v/site-packages/click/core.py", line 1569, in __call__\n'
        "    return self.main(*args)\n%sAttributeError: module 'torchaudio' has no attribute "
        "'list_audio_backends'"
    )
    because = diagnose_score.answer(text % left_out)["causes"][0]["because"]
    assert any("click" in line for line in because) is told


# https://github.com/unslothai/unsloth/issues/6961
def test_a_line_that_names_what_it_imports_is_not_of_another_package_of_the_text():
    text = (
        "torch 2.10 + cu130\nimport torchao: libcudart.so.12: cannot open shared object file\n"
        "flash-attn: skipped by setup"
    )
    document = diagnose_score.answer(text)
    assert document["causes"][0]["cause"] == "cuda-major-mixed"
    assert not any("flash-attn" in command or "cu130" in command for command in _commands(document))


# https://github.com/flashinfer-ai/flashinfer/pull/3636
def test_a_compiler_of_a_build_that_was_killed_wants_fewer_of_them():
    text = "FAILED: [code=137] a.o\nninja: build stopped: subcommand failed."
    document = diagnose_score.answer(text)
    assert [row["cause"] for row in document["causes"]] == ["host-memory"]
    assert "MAX_JOBS=" in _commands(document)[0]


# https://github.com/isaac-sim/IsaacLab/issues/7139
@pytest.mark.parametrize(("after", "certain"), [("", True), ("\npython.sh: Segmentation fault", False)])
def test_a_library_that_is_not_found_before_a_crash_is_not_certainly_the_cause(after, certain):
    line = "ImportError: libcusparseLt.so.0: cannot open shared object file: No such file or directory"
    row = diagnose_score.answer(line + after)["causes"][0]
    assert (row["cause"], row["how"] != "likely") == ("toolkit-library-missing", certain)


# https://github.com/flashinfer-ai/flashinfer/issues/5355
def test_a_kernel_compiled_on_one_of_two_unlike_cards_is_not_the_framework_wheel_for_certain():
    text = "RTX 4080 SUPER and RTX 3080\nflashinfer.norm: cuda:0 ok, cuda:1 cudaErrorNoKernelImageForDevice"
    row = diagnose_score.answer(text)["causes"][0]
    assert (row["cause"], row["how"]) == ("framework-arch-missing", "likely")
    assert "~/.cache/flashinfer" in row["remedy"]


# https://github.com/numpy/numpy/issues/32457
def test_an_illegal_instruction_does_not_say_what_the_processor_lacks():
    told = str(diagnose_score.answer("Gentoo, Ryzen 7 3800X\nIllegal instruction"))
    assert "compiled anew without the flag" in told
    assert "prints nothing" not in told


_FULL = "OSError: [Errno 28] No space left on device"


@pytest.mark.parametrize(
    ("text", "has", "lacks"),
    [
        # https://github.com/matteospanio/torchfx/issues/74
        ("cu128 wheels, GitHub-hosted runner, cibuildwheel\n" + _FULL, "/usr/share/dotnet", "whl/cpu"),
        # https://github.com/ROCm/rocm-aic/pull/84
        ("GitHub-hosted runner, docker build of the ROCm image\n" + _FULL, "docker system prune", "whl/cpu"),
        # https://github.com/OpenADMET/openadmet-models/pull/574
        ("ubuntu-latest, docker build\nNo space left on device", "/usr/local/lib/android", "tmpfs"),
        ("docker build on my machine\nNo space left on device", "docker builder prune", "tmpfs"),
        (f"Collecting torch==2.8.0\n{_FULL}\nthe runner has no GPU", "whl/cpu", "dotnet"),
    ],
)
def test_a_full_disk_is_freed_where_it_is_full_and_a_build_for_the_card_stays_one(text, has, lacks):
    commands = " ".join(_commands(diagnose_score.answer(text)))
    assert has in commands
    assert lacks not in commands


# https://github.com/jjang-ai/vmlx/issues/120
def test_a_metal_library_of_a_newer_macos_asks_for_the_wheel_of_this_one():
    text = (
        "macOS Sequoia\nTag: cp312-cp312-macosx_26_0_arm64\nFailed to load the default metallib. "
        "This library is using language version 4.0 which is not supported on this OS."
    )
    document = diagnose_score.answer(text)
    assert "macosx_14_0_arm64" in str(document)
