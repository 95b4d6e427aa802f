"""Threads of public issue trackers with a confirmed cause: what ``diagnose`` answers to each."""

import html
import json
import os
import re
import shlex
import subprocess
import textwrap
import zlib
from collections import Counter
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from pages import diagnose_score

from builder.verify.cudnn_verify.common.causes import CAUSES, command_lines
from builder.verify.cudnn_verify.common.remedies import Remedies
from builder.verify.cudnn_verify.page import render_diagnosis
from builder.verify.cudnn_verify.read.looks import look_for
from builder.verify.cudnn_verify.read.reading import Line
from builder.verify.cudnn_verify.read.signatures import (
    FEWEST,
    by_frequency,
    read_counts,
    read_signatures,
    signature_sections,
)
from builder.verify.cudnn_verify.read.text_facts import TextFacts

HEALTHY = (Path(__file__).parent / "healthy.txt").read_text("utf-8").split("---\n")
"""What installers, compilers and frameworks print where nothing is wrong."""

CLASSES = [row.split("\t") for row in (Path(__file__).parent / "classes.txt").read_text("utf-8").splitlines()]
"""(cause, or - for none of ours; a message of a library or package that no exact signature names)."""
MESSAGES = [
    json.loads(row) for row in (Path(__file__).parent / "messages.jsonl").read_text("utf-8").splitlines()
]
"""What releases of the programs print of an environment that does not fit, out of their own files (package,
version, or the commit of its repository, file), with values in the places of those that a program fills in;
several causes if one is as good.
"""
REMARKS = (
    "Failed to decode the picture on the card, falling back to CPU decoding",
    "SM120 MXFP8 only supports swizzled (1D) scale format",
    "piecewise cuda graph is not supported by the current design",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)",
    "ValueError: CUDA tensors must be contiguous",
    "KeyError: 'device'",
    "can't use cuda graph for draft extend",
    "num_sm_parts mismatch in CUDA Graph replay: capture=3, replay=4",
    "--disable-cuda-graph-padding is incompatible with --enable-torch-compile",
    "no device found matching eth0, verify NCCL_OOB_NET_IFNAME",
    "Please adjust the fraction if you hit OOM",
    "Reinstall with pip install --no-build-isolation",
    "Triton MoE runner does not support MXFP8; use another one",
    "Custom allreduce is disabled because your platform lacks GPU P2P capability or P2P test failed.",
    "flash-attn may provide important feature support or performance improvement.",
    "ptxas info    : Compiling entry function '_Z6kernelv' for 'sm_90'",
    '-- Found CUDNN: libcudnn.so (found suitable version "9.10.2", minimum required is "8.5")',
    "SM100 dedicated kernel only supports tile_m=128 and tile_n=128",
    "Requirement already satisfied: numpy>=1.26 in ./venv/lib (from transformers) (2.3.1)",
    "architecture: this model architecture is not supported",
    "NVIDIA driver 580.95.05 is loaded, CUDA 13.0",
    "NVIDIA-SMI 610.88     KMD Version: 610.88     CUDA UMD Version: 13.3",
    "NVIDIA GB10, memory.total [MiB], [N/A]; torch.cuda.is_available() True",
    "load_backend: loaded CUDA backend from ggml-cuda.so; load_backend: loaded CPU backend from a.so",
    "Unsloth: Please install `causal_conv1d` to speed up Mamba training via `pip install causal_conv1d`",
    "`forward` falls back to its reference PyTorch implementation because `causal-conv1d` is not installed.",
    "[WARNING] async_io requires the dev libaio .so object and headers but these were not found.",
    "W0312 08:15:01.1 12 nvc.c:258] could not load kernel module nvidia_modeset",
    "bitsandbytes was compiled without optional parts; found 0.48.0, at least 0.46.1 is required: ok",
    "`torch_dtype` is deprecated! Use `dtype` instead!",
    "Building wheels for collected packages: foo, bar",
    "Successfully built foo; Removed build tracker: '/tmp/pip-build-tracker-x'",
    "ninja: no work to do.",
    "INFO: using CUDA 13.0 with driver 580.95, compiled for sm_90 and sm_120",
    "Moved 3 files from cache in /root/.cache/huggingface",
    "W0000 The name tf.Session is deprecated. Please use tf.compat.v1.Session instead.",
    "Loading checkpoint shards: 100%",
    "Skipping 12 samples, which were excluded by the filter on length",
    "The container is ready, no migrations to apply for service web",
    "pip 24.0 is available, you have pip 23.1; requires Python 3.8 or newer",
    "Removed unused imports in v1.2 of our module",
    "version conflict resolved by using 2.1 of both",
    "mismatched shapes in version 2 of the checkpoint: 3 vs 4",
    "Both the dtype and the device are installed by default",
    "INFO nvidia-fabricmanager started",
    "Successfully uninstalled torch-2.6.0+cu124; Successfully installed torch-2.7.0+cu128",
    "Compose file version is obsolete, it will be ignored; service web has no healthcheck",
    "kernels: 12 of 12 modules compiled; not compiled for debug",
    "RuntimeError: expected 4D input (got 3D input)",
    "ValueError: optimizer got an empty parameter list",
    "torch.compile: graph break, builds 2 graphs, memory planning disabled",
    "the GPU runs at 80 degrees, RTX 3090 is throttled",
    "loss is NaN after step 120 with RTX 4090 and bf16 kernels",
    "AssertionError: only batch size 1 is supported",
    "user group video is added, /dev/video0 works",
    "The RTX 5090 is faster than the H100 only in FP32",
    "Setting CUDA_HOME to /usr/local/cuda; set CUDA_HOME to change",
    "Found 3 CDI devices",
    "Procedure main not found in the index of functions",
    "libavcodec version: 61 is in use",
    "PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu",
    "a macOS runner (macosx_14_0_x86_64) has finished",
    "I updated the NVIDIA drivers and everything works great, docker containers are fine",
    "I upgraded the nvidia driver to 580 in my Dockerfile and the container builds now",
    "if I turn off GPU acceleration it completes faster",
    "Chrome: disabling GPU acceleration works around the flicker",
    "it does not work on my RTX 4090 laptop, the fan is broken",
    "We run on GKE with nvidia.com/gpu: 1 and training completes in 3 hours",
    "Llama.__init__: Loaded ggml backend registry count: 2",
    "With gcc 16 our C++ project compiles fine under cmake",
    "-- The CXX standard is C++17; CMAKE_CXX_STANDARD 17",
    "Compiled kernels with -std=c++17 for torch 2.8.0",
    "NVIDIA 580.95.05 builds fine on kernel 6.12",
    "thrust::distance is used in 3 places",
    "lerp(a, b, t) interpolates between two colours",
)


@pytest.fixture(scope="module")
def scored():
    return diagnose_score.outcomes()


@pytest.mark.slow
def test_the_page_of_the_score_is_generated(generated, scored):
    generated(
        "docs/diagnose-score.md",
        diagnose_score.markdown(scored, diagnose_score.outcomes(diagnose_score.UNSEEN)),
    )


@pytest.mark.slow
def test_the_counts_of_causes_are_those_of_the_confirmed_threads(generated):
    generated("builder/verify/cudnn_verify/read/cause_counts.ini", diagnose_score.cause_counts())


def test_the_order_of_likely_causes_is_that_of_the_counts():
    counts = {name: sum(row.values()) for name, row in read_counts().items()}
    assert max(counts.values()) >= FEWEST
    text = "RuntimeError: Library libcublas.so.12 is not found or cannot be loaded"
    rows = diagnose_score.answer(text)["causes"]
    assert [row["cause"] for row in rows] == ["cuda-major-mixed", "toolkit-library-missing"]
    frequent = read_counts()["ct2-toolkit-absent"]["cuda-major-mixed"]
    assert rows[0]["how"] == f"likely; the cause in {frequent} of {counts['ct2-toolkit-absent']} threads"


def test_fewer_threads_than_three_do_not_change_the_order_of_a_signature(monkeypatch):
    signature = next(row for row in read_signatures() if row.id == "ct2-toolkit-absent")
    turned = {signature.id: {signature.causes[1]: FEWEST - 1}}
    monkeypatch.setattr("builder.verify.cudnn_verify.read.signatures.read_counts", lambda: turned)
    assert by_frequency(signature) == signature.causes
    turned[signature.id] = {signature.causes[1]: FEWEST}
    assert by_frequency(signature) == signature.causes[::-1]


def test_the_corpus_is_in_order_and_holds_failing_lines_alone():
    threads = diagnose_score.read_corpus()
    assert [thread["date"] for thread in threads] == sorted(thread["date"] for thread in threads)
    assert len({(thread["url"], thread["text"]) for thread in threads}) == len(threads)
    known = {*CAUSES, diagnose_score.NO_CAUSE}
    for thread in threads:
        assert thread["url"].startswith("https://")
        assert len(thread["text"].splitlines()) <= 40
        assert set(thread["expected"]) <= known


def test_no_unseen_thread_is_in_the_corpus():
    unseen = diagnose_score.read_corpus(diagnose_score.UNSEEN)
    assert [thread["date"] for thread in unseen] == sorted(thread["date"] for thread in unseen)
    assert not {thread["url"] for thread in unseen} & {t["url"] for t in diagnose_score.read_corpus()}
    assert {cause for t in unseen for cause in t["expected"]} <= {*CAUSES, diagnose_score.NO_CAUSE}


@pytest.mark.slow
def test_almost_all_of_the_corpus_is_answered_and_hardly_any_wrongly(scored):
    counts = Counter(result for _, _, result in scored)
    right = counts["right"] + counts["right with command"]
    assert right >= 0.97 * len(scored)
    assert counts["wrong"] <= 0.01 * len(scored)


def as_pasted(text):
    """A text quoted, wrapped and with what logs put before each line; as four people paste it."""
    wrapped = [part for line in text.splitlines() for part in textwrap.wrap(line, 90) or [""]]
    yield "".join(f"> {line}\n" for line in wrapped)
    yield "".join(f"\x1b[31m2025-10-30T21:54:45.622Z {line}\x1b[0m\r\n" for line in text.splitlines())
    yield "".join(f"#39 12.61 {line}\n" for line in wrapped)
    yield f"```\n{text}\n```"


@pytest.mark.slow
def test_quotes_wrapping_timestamps_and_colours_change_hardly_any_answer(scored):
    """Half of the threads, each in one form: by its address, which a thread beside it does not change."""
    changed, asked = [], 0
    for thread, document, _ in scored:
        form, left_out = divmod(zlib.crc32(thread["url"].encode()), 2)
        if left_out:
            continue
        asked += 1
        pasted = list(as_pasted(thread["text"]))[form % 4]
        if diagnose_score.answer(pasted)["cause"] != document["cause"]:
            changed.append(thread["url"])
    assert len(changed) <= asked // 100, changed


def test_a_message_that_a_window_broke_within_words_is_read():
    text = "CUDA error 222 at ggml-cuda.cu:1835: the provided PTX was compiled with an unsupported toolchain."
    for width in (60, 78):
        broken = "\n".join(text[at : at + width] for at in range(0, len(text), width))
        assert diagnose_score.answer(broken)["cause"] == "driver-too-old"


@pytest.mark.parametrize("text", HEALTHY, ids=lambda text: text[:30])
def test_what_a_sound_machine_prints_names_no_cause(text):
    assert diagnose_score.answer(text)["causes"] == []


@pytest.mark.parametrize("message", MESSAGES, ids=lambda row: row["text"][:50])
def test_a_message_out_of_a_programs_own_files_gets_its_cause_first(message):
    assert diagnose_score.answer(message["text"])["cause"] in message["cause"].split(",")


def test_a_package_of_which_a_newer_release_is_asked_for_gets_it():
    for text, wanted in (
        ("bitsandbytes version is wrong. Please install bitsandbytes>=0.46.1.", "bitsandbytes>=0.46.1"),
        ("quantization requires FlashInfer 0.6.17, found 0.6.1", "flashinfer-python>=0.6.17"),
        ("SM120 FMHA requires nvidia-cutlass-dsl>=4.7.0; found 4.3.1", "nvidia-cutlass-dsl>=4.7.0"),
    ):
        command = diagnose_score.answer(text)["causes"][0]["commands"][0]["text"]
        assert command == f'pip install --upgrade "{wanted}"'
    # a newer PyTorch would be another fault for all that is compiled for the one that is here
    torch = diagnose_score.answer("this requires torch 2.7.0, found 2.6.0")
    assert not any("torch" in command["text"] for row in torch["causes"] for command in row["commands"])


def test_a_variable_that_a_message_asks_for_is_no_package():
    text = "RuntimeError: A shim build requires FLASHINFER_JIT_CACHE_PROVIDER_ARCHS"
    assert diagnose_score.answer(text)["causes"] == []
    (row,) = diagnose_score.answer("ImportError: this model requires flashinfer-jit-cache")["causes"]
    assert row["commands"][0]["text"].startswith("pip install flashinfer-jit-cache")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            (
                "RTX 5070 Ti: CUDA error: no kernel image is available for execution on the device\n"
                "~/.cache/tvm-ffi was cleared"
            ),
            'TVM_FFI_CUDA_ARCH_LIST="12.0"',
        ),
        (
            (
                "/tmp/.cache/flashinfer/0.6.6/120a/generated/decode.cu:100: no kernel image is available\n"
                "NVIDIA GB10"
            ),
            'FLASHINFER_CUDA_ARCH_LIST="12.1a"',
        ),
        (
            (
                "ptxas error: Feature 'cvt.f16x2.e2m1x2' not supported on .target 'sm_121'\n"
                "CUDA_ERROR_INVALID_PTX"
            ),
            "sm_121a",
        ),
        (
            "GB10: vLLM selects DEEPGEMM_MXFP4\nCUDA driver error: 200 (CUDA_ERROR_INVALID_IMAGE)",
            "VLLM_USE_DEEP_GEMM=0",
        ),
        (
            "torch 2.13 with -std=c++17: #error C++20 or later compatible compiler is required to use ATen",
            "std=c++20",
        ),
    ],
)
def test_what_another_package_compiles_is_not_mended_by_another_torch_or_driver(text, words):
    (row,) = diagnose_score.answer(text)["causes"]
    assert words in row["commands"][0]["text"]
    assert not any(
        "torch==" in command["text"] or "nvidia-driver" in command["text"] for command in row["commands"]
    )


def test_a_driver_of_cuda_13_is_not_told_to_become_one():
    text = "ptxas application ptx input, line 9; fatal:\nUnsupported .version 9.3; current version is '9.2'\n"
    (row,) = diagnose_score.answer(text + "driver version: 595.84")["causes"]
    assert "595.84" in row["remedy"]
    assert "580" not in row["remedy"]


def test_an_error_below_a_wide_line_stays_a_line_of_its_own():
    line = "vLLM v0.15.0, a model on a card of some name with compute capability, and so on to the end of it"
    text = line + "\nValueError: backend 'CUTLASS' is unsupported on sm_120\n"
    rows = diagnose_score.answer(text)["causes"]
    assert all(row["line"]["text"] != line + text.splitlines()[1] for row in rows)
    assert rows


def test_a_note_about_windows_or_macos_tells_no_macos():
    text = "NOTE: Redirects are currently not supported in Windows or MacOs.\nno Docker is here"
    assert diagnose_score.answer(text)["read"]["places"] == []


def test_what_counts_as_right_half_wrong_and_silent():
    thread = {"expected": ["driver-missing"]}
    row = {"cause": "driver-missing", "commands": []}
    other = {"cause": "no-device", "commands": []}

    def outcome(*causes, program=None, decided=False, look="nvidia-smi", thread=thread):
        document = {"causes": list(causes), "program": program, "decided": decided, "look": look}
        return diagnose_score.outcome(thread, document)

    assert outcome(row) == "right"
    assert outcome(row | {"commands": ["modprobe"]}) == "right with command"
    assert outcome(other, row) == "half"
    assert outcome(other, row, look=None) == "wrong"
    assert outcome(other, row, decided=True) == "wrong"
    assert outcome(other, other, row) == "wrong"
    assert outcome(program="an index") == "wrong"
    assert outcome() == "silent"
    assert outcome(thread={"expected": [diagnose_score.NO_CAUSE]}) == "right"
    assert outcome(row, thread={"expected": [diagnose_score.NO_CAUSE]}) == "wrong"


@pytest.mark.parametrize(
    ("text", "command", "word"),
    [
        ("Error 803: system has unsupported display driver", "ldconfig -p", "compat"),
        ("ModuleNotFoundError: No module named 'torch'", "pip show torch", "built"),
        ("RuntimeError: Found no NVIDIA driver on your system.", "nvidia-smi", "container"),
        ("CUDA error: device kernel image is invalid", "driver_version", "driver"),
        ("[sgl_kernel] CRITICAL: Could not load any common_ops library!", "pip list", "cuda-major-mixed"),
        ("CUDA unknown error - this may be due to an incorrectly set up environment", "/dev/nvidia", "node"),
    ],
)
def test_likely_causes_come_with_the_look_that_tells_them_apart(text, command, word):
    document = diagnose_score.answer(text)
    assert not document["decided"]
    assert len(document["equal"]) > 1
    assert command in document["look"]["command"]
    assert word in document["look"]["decides"]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (
            "PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu\n2.12.0+cpu",
            "unset PIP_EXTRA_INDEX_URL",
        ),
        (
            (
                "error: Distribution `onnxruntime==1.24.4` can't be installed because it doesn't have\n"
                "a source distribution or wheel for the current platform\n"
                "You're on macOS (`macosx_15_0_x86_64`)"
            ),
            "pip install onnxruntime==1.23.2",
        ),
        ('could not select device driver "" with capabilities: [[gpu]]\n6.1.el9', "sudo dnf install"),
        (
            (
                "cmake -B build -DGGML_CUDA=ON\nCMake Error: Compiling the CUDA compiler failed.\n"
                "gcc (GCC) 16.1.1 20260501 (Red Hat 16.1.1-1)"
            ),
            "sudo dnf install",
        ),
        ("The NVIDIA driver on your system is too old (found version 12040).", "sudo apt-get update"),
        (
            "torch._C._cuda_init(): NVIDIA driver on your system is too old (found version 12040)",
            "pip install",
        ),
        (
            "torch 2.12.1+cu130\nRuntimeError: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH",
            "pip install --no-deps",
        ),
        ("CTranslate2: libcudnn_ops_infer.so.8 cannot be loaded", 'pip install "ctranslate2>=4.6.3'),
        (
            "RuntimeError: Could not load libtorchcodec.\n/Library/Frameworks/Python.framework/x",
            "brew install",
        ),
        (
            (
                "Looking in indexes: https://download.pytorch.org/whl/cu117\n"
                "ERROR: No matching distribution found for torch"
            ),
            "pip install torch torchvision torchaudio --index-url https://download.pytorch.org/whl/cu126",
        ),
        ("libcusparseLt.so.0: cannot open shared object file", "pip install --force-reinstall --no-deps $("),
    ],
)
def test_the_first_command_mends_what_the_text_tells(text, first):
    row = diagnose_score.answer(text)["causes"][0]
    assert row["commands"][0]["text"].startswith(first)


def test_a_wheel_on_the_list_is_not_said_to_be_absent():
    text = (
        "Windows 11, ctranslate2==4.8.1, nvidia-cublas-cu12==12.9.2.10, no system-wide CUDA toolkit\n"
        "Library cublas64_12.dll is not found or cannot be loaded"
    )
    (row,) = diagnose_score.answer(text)["causes"]
    assert not any("no CUDA was installed" in reason for reason in row["because"])


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("cv2", "opencv-python-headless"),
        ("flash_attn", "flash-attn --no-build-isolation"),
        ("diffusers", "diffusers"),
    ],
)
def test_a_module_that_is_not_here_has_a_look_and_no_cause(module, package):
    document = diagnose_score.answer(f"ModuleNotFoundError: No module named '{module}'")
    assert document["causes"] == []
    assert document["look"]["command"] == "python3 -m pip show " + package.split()[0]
    assert document["look"]["decides"].endswith("pip install " + package)


def test_a_module_that_no_table_knows_is_not_installed_by_its_name():
    look = diagnose_score.answer("ModuleNotFoundError: No module named 'my_own_code'")["look"]
    assert "pip" not in look["command"]


FLASHINFER = "flashinfer-python 0.6.18, torch 2.13.0+cu132\nRuntimeError: "
NO_CUDNN = "libcudnn.so.9: cannot open shared object file"
NO_TARGET = "No supported CUDA architectures found for major versions [12]"


@pytest.mark.parametrize(
    ("text", "causes", "command"),
    [
        (
            'error: #error "CUDA compiler and CUDA toolkit headers are incompatible"\ntorch==2.11.0+cu130',
            ["build-toolkit-mismatch"],
            "nvidia-cuda-nvcc~=13.0.0 nvidia-cuda-crt~=13.0.0 nvidia-nvvm~=13.0.0",
        ),
        (
            "CUDA compiler and CUDA toolkit headers are incompatible\nnvidia-cuda-runtime==13.2.75",
            ["build-toolkit-mismatch"],
            "nvidia-cuda-nvcc~=13.2.0",
        ),
        # CUDA 12 has no wheel with nvcc
        (
            "CUDA compiler and CUDA toolkit headers are incompatible\ntorch==2.8.0+cu128",
            ["build-toolkit-mismatch"],
            None,
        ),
        (FLASHINFER + NO_TARGET + "\nRTX 5090", ["kernel-compiler-too-old"], "nvidia-cuda-nvcc~=13.2.0"),
        (FLASHINFER + NO_TARGET + "\nTesla T4", ["framework-known-bad", "framework-arch-missing"], None),
        (
            FLASHINFER + NO_TARGET,
            ["framework-known-bad", "framework-arch-missing", "kernel-compiler-too-old"],
            "CUDA_HOME",
        ),
        ("FlashInfer requires GPUs with sm75 or higher\nRTX 5090", ["kernel-compiler-too-old"], "cuda-12.9"),
        ("FlashInfer requires GPUs with sm75 or higher\nTesla V100", ["framework-arch-missing"], None),
        # PyTorch has code for the card: it is another package that has none
        (
            "no kernel image is available\nRTX 3080\ntorch 2.13.0+cu130, sgl_kernel 0.4.7",
            ["framework-arch-missing"],
            None,
        ),
        (
            "no kernel image is available\nGTX 1080\ntorch 2.13.0+cu130",
            ["framework-arch-missing"],
            "--force-reinstall torch==",
        ),
        (
            "`CUDAExecutionProvider` absent",
            ["package-overwritten", "framework-cpu-build"],
            "pip uninstall -y onnxruntime onnxruntime-gpu",
        ),
        # its part for CUDA is there: the package is the right one
        (
            f"CUDAExecutionProvider is missing\nlibonnxruntime_providers_cuda.so with error: {NO_CUDNN}",
            ["cudnn-missing", "cudnn-major-mismatch"],
            None,
        ),
        (
            "torch==2.9.1+cu128\ntorchcodec/decoders/_decoder.py\nRuntimeError: Unsupported device: cuda",
            ["framework-cpu-build"],
            '"torchcodec==0.9.*" --index-url https://download.pytorch.org/whl/cu128',
        ),
        (
            "libnvpl_lapack_lp64_gomp.so.0: cannot open shared object file",
            ["toolkit-library-missing"],
            "nvpl-blas",
        ),
        # one of two cards is served: the other may be the one
        (
            "no kernel image is available\nRTX 3080 and GTX 1080\ntorch 2.13.0+cu130",
            ["framework-arch-missing"],
            "--force-reinstall torch==",
        ),
        # two toolkits of the system: no wheel mends that
        (
            "/usr/local/cuda/cuda_toolkit.h: error CUDA compiler and CUDA toolkit headers are incompatible",
            ["build-toolkit-mismatch"],
            None,
        ),
        (
            "ValueError: ['CUDAExecutionProvider'] does not contain a subset of available providers",
            ["package-overwritten", "framework-cpu-build"],
            "pip uninstall -y onnxruntime onnxruntime-gpu",
        ),
        (
            "With `torch` 2.10.0\ncore_library_path = load_torchcodec_shared_libraries()",
            ["extension-mismatch", "system-library-missing"],
            '"torchcodec==0.10.*"',
        ),
        (
            "the cu124 index no longer serves nvidia-cudnn-cu12==9.1.0.70, which torch pins",
            ["build-not-published"],
            "nvidia-cudnn-cu12==9.1.0.70",
        ),
        (
            "C:\\app: onnxruntime can't resolve `cublasLt64_13.dll` (Error 126)",
            ["toolkit-library-missing", "toolkit-mixed", "cuda-major-mixed"],
            '"onnxruntime-gpu[cuda,cudnn]>=1.27"',
        ),
        ("Symbol not found: _torch_library_impl", ["extension-mismatch"], None),
        ("WSL environment detected but no adapters were found", ["driver-missing", "no-device"], "wsl.exe"),
    ],
)
def test_classes_of_faults_that_the_last_unseen_threads_showed(text, causes, command):
    rows = diagnose_score.answer(text)["causes"]
    assert sorted(row["cause"] for row in rows) == sorted(causes)
    found = [row["text"] for named in rows for row in named["commands"] if row["where"] != "rtbuild"]
    if command is None:
        assert not any("torch==" in text or "nvidia-cuda" in text for text in found)
    else:
        assert any(command in text for text in found), found


SAGE = "torch 2.8.0+cu129\nsageattention-2.2.0+cu128torch{}.post3-cp39-abi3-win_amd64\nImportError: "
SAGE += "DLL load failed while importing _fused: A dynamic link library (DLL) initialization routine failed."
NO_JAX_LIBRARIES = "cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.\n"
NO_JAX_LIBRARIES += "operation cudaRuntimeGetVersion(&version) failed: Error loading CUDA libraries."
NO_NVRTC = "libnvrtc.so.12: cannot open shared object file\n"
NVRTC_12 = "CUDA toolkit 13.0 (`/usr/local/cuda` -> `libnvrtc.so.{}`)\nlibnvrtc.so.12 not found"


@pytest.mark.parametrize(
    ("text", "cause", "command"),
    [
        ("RuntimeError: UVA is not available", "framework-known-bad", "VLLM_WSL2_ENABLE_PIN_MEMORY=1"),
        (
            "Because only vllm==0.19 is available and\nvllm==0.19 depends on torchvision==0.25.0,",
            "package-pin-mismatch",
            None,
        ),
        (
            "app requires nvidia-cublas>=13.3.0.5\ntorch 2.13 require nvidia-cublas==13.1.x",
            "package-pin-mismatch",
            None,
        ),
        ("app requires nvidia-cublas>=13.1\ntorch 2.13 requires nvidia-cublas==13.1.0.3", None, None),
        ("Requirements contain conflicting indexes for package `torch`:", "package-pin-mismatch", None),
        (
            "Stale venv detected (torch cpu != required cu130).",
            "framework-cpu-build",
            "pytorch.org/whl/cu130",
        ),
        (
            "pip install causal-conv1d # prebuilt wheel doesn't include sm_121\nno kernel image is availa",
            "framework-arch-missing",
            "--no-binary causal-conv1d",
        ),
        (NVRTC_12.format(13), "cuda-major-mixed", None),
        (NO_NVRTC + "/v/site-packages/nvidia/cu13/lib", "cuda-major-mixed", None),
        (NO_NVRTC + "/v/site-packages/nvidia/cu12/lib", "nvrtc-missing", None),
        (NO_NVRTC + "torch 2.9.1+cu130", "cuda-major-mixed", None),
        (NVRTC_12.format(12), "nvrtc-missing", None),
        (SAGE.format("2.9.0"), "extension-mismatch", None),
        (SAGE.format("2.8.0"), "system-library-missing", "winget"),
        ("[NO] No matching wheel for CUDA 13.0 + PyTorch 2.13.0", "build-not-published", None),
        ('JAX falls back to CPU ("Outdated cuBLAS installation")', "toolkit-mixed", None),
        (
            NO_JAX_LIBRARIES,
            "toolkit-library-missing",
            "jax[cuda12]",
        ),
        (
            "Found 3 CDI devices\nError: unresolvable CDI devices nvidia.com/gpu=0",
            "toolkit-known-bad",
            "1.18.2",
        ),
        ("Error: unresolvable CDI devices nvidia.com/gpu=0", "container-no-gpu", "cdi generate"),
        ("CUDA out of memory. Tried to allocate 13.61 GiB (GPU 0; 10.76 GiB total capacity;", None, None),
        (
            "CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 10.76 GiB total capacity;",
            "out-of-memory",
            None,
        ),
        (
            "CUDA out of memory. Tried to allocate 80.00 GiB. GPU 0 has a total capacity of 79.15 GiB",
            None,
            None,
        ),
    ],
)
def test_classes_of_faults_that_the_third_held_out_set_showed(text, cause, command):
    document = diagnose_score.answer(text)
    assert document["cause"] == cause
    commands = [row["text"] for named in document["causes"] for row in named["commands"]]
    assert command is None or any(command in text for text in commands), commands


def test_words_about_other_causes_are_left_out_and_a_reason_is_told():
    assert diagnose_score.answer(SAGE.format("2.9.0"))["causes"][0]["says"] is None
    assert "run-time" in diagnose_score.answer(SAGE.format("2.8.0"))["causes"][0]["says"]
    text = "CUDA out of memory. Tried to allocate 13.61 GiB (GPU 0; 10.76 GiB total capacity;"
    look = diagnose_score.answer(text)["look"]["decides"]
    assert "asks for 13.61 GiB at once, and the card has 10.76 GiB" in look


def test_a_traceback_that_is_cut_below_its_raise_is_read():
    raised = (
        '  File "core.py", line 108, in check\n    raise RuntimeError("FlashInfer requires GPUs with sm75 or'
    )
    raised += ' higher")'
    assert diagnose_score.answer(raised)["cause"] == "kernel-compiler-too-old"
    assert diagnose_score.answer(raised.splitlines()[1])["causes"] == []


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("Failed to load onnxruntime_providers_cuda.dll, error code: 1114", "cudnn-missing"),
        ("symbol f version libcublasLt.so.11 not defined in file libcublasLt.so.11", "toolkit-mixed"),
        ("RuntimeError: Unable to find an engine to execute this computation", "out-of-memory"),
        ("Unable to load cuDNN: libcudnn.so.9", "cudnn-missing"),
        ('could not select device driver "cdi" with capabilities: [[]]', "container-no-gpu"),
        ("docker: failed to discover GPU vendor from CDI: no known GPU vendor", "container-no-gpu"),
        ('class "cub::_V_300302_SM_890::BlockScan<int>" has no member "x"', "build-toolkit-mismatch"),
    ],
)
def test_other_wordings_of_the_same_fault(text, cause):
    assert diagnose_score.answer(text)["cause"] == cause


def test_a_card_later_than_the_newest_of_its_major_version_is_served():
    text = "NVIDIA {} which is of cuda capability {}.\nMinimum and Maximum cuda capability supported by "
    text += "this version of PyTorch is\n(8.0) - (12.0)"
    assert diagnose_score.answer(text.format("GB10", "12.1"))["causes"] == []
    assert diagnose_score.answer(text.format("Tesla V100", "7.0"))["cause"] == "framework-arch-missing"


def test_the_package_without_code_is_named_where_pytorch_has_code_for_the_card():
    text = "no kernel image is available\nRTX 3080 (sm_86)\ntorch 2.13.0+cu130, sgl_kernel 0.4.7"
    because = diagnose_score.answer(text)["causes"][0]["because"]
    assert because == [
        "PyTorch 2.13.0+cu130 has code for compute capability 8.6: sgl-kernel, whose kernel failed, has none"
    ]
    assert not diagnose_score.answer(text.replace("3080", "1080"))["causes"][0]["because"]


def test_a_pin_of_any_patch_is_asked_for_as_a_valid_requirement():
    row = diagnose_score.answer("ERROR: No matching distribution found for torch==2.6.*")["causes"][0]
    asked = shlex.split(row["commands"][0]["text"])[2]
    assert str(Requirement(asked)) == "torch==2.6.*"
    assert "no torch 2.6.* for" in row["says"]


@pytest.mark.parametrize(
    ("line", "card"),
    [
        ("NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible", "NVIDIA GeForce RTX 5090"),
        ("Found GPU0 NVIDIA GeForce GTX 1080 which is of cuda capability 6.1", "NVIDIA GeForce GTX 1080"),
        ("NVIDIA GeForce RTX 2080 with Max-Q Design", "NVIDIA GeForce RTX 2080 with Max-Q Design"),
        ("RTX PRO 6000 Blackwell Server Edition (SM120, 96 GB)", "RTX PRO 6000 Blackwell Server Edition"),
    ],
)
def test_a_card_is_named_without_the_sentence_around_it(line, card):
    assert diagnose_score.answer(line)["read"]["cards"] == [card]


@pytest.mark.parametrize(("cause", "text"), CLASSES, ids=lambda text: text[:40])
def test_a_message_of_a_known_class_is_answered_whoever_prints_it(cause, text):
    document = diagnose_score.answer(text)
    assert (document["cause"] or "-") == cause
    assert not document["decided"]
    assert cause != "-" or "is shown to be wrong" in document["look"]["decides"]


@pytest.mark.parametrize("text", REMARKS)
def test_what_is_none_of_a_class_names_no_cause(text):
    assert diagnose_score.answer(text)["causes"] == []


def test_an_exact_signature_goes_before_a_class():
    text = "could not load libcublas.so.12\n"
    assert diagnose_score.answer(text)["causes"][0]["signature"] == "class-library-toolkit"
    found = diagnose_score.answer(text + "CUDA out of memory")["causes"]
    assert [row["signature"] for row in found] == ["oom-torch"]


def test_a_blank_of_a_signature_is_never_optional():
    """A blank is written out as ``\\s+``, so that ``?`` after it would make it lazy."""
    for name, row in signature_sections().items():
        assert not re.search(r" [?](?![:=!<P])", row["text"]), name


@pytest.mark.parametrize(
    ("site", "page"),
    [
        ("https://example.org/rt/", "https://example.org/rt/causes/out-of-memory.html"),
        ("https://example.org/\x1b[2J", None),
        ("javascript:alert(1)", None),
        ("", None),
    ],
)
def test_the_page_of_a_cause_follows_the_address_of_the_site_that_is_set(monkeypatch, site, page):
    monkeypatch.setenv("RTBUILD_SITE", site)
    document = diagnose_score.answer("CUDA out of memory")
    assert document["causes"][0]["page"] == page
    assert ("Page: " in render_diagnosis(document)) is bool(page)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("libcublas.so.12 is missing\ntorch 2.9.1+cu128", "pip install nvidia-cublas-cu12"),
        ("failed to dlopen libcufft.so.12\ntorch 2.9.1+cu130", "pip install nvidia-cufft"),
        ("Could not dlopen library 'libcudart.so.13'\ntorch 2.9.1+cu130", "pip install nvidia-cuda-runtime"),
    ],
)
def test_the_library_of_a_class_gives_its_package_where_the_packages_are_of_its_cuda(text, command):
    rows = diagnose_score.answer(text)["causes"]
    assert rows[0]["commands"][0]["text"] == command
    alone = diagnose_score.answer(text.partition("\n")[0])
    assert not any(row["commands"] for row in alone["causes"])
    assert alone["look"]["command"].startswith("pip list")


@pytest.mark.parametrize(("header", "here", "wanted"), [(96, 88, "numpy<2"), (88, 96, "numpy>=2")])
def test_numpy_is_asked_for_as_the_package_was_compiled(header, here, wanted):
    """``numpy.dtype.__basicsize__`` is 96 in NumPy 1.26 and 88 in 2.2."""
    text = f"numpy.dtype size changed, may indicate binary incompatibility. Expected {header} from C header, "
    row = diagnose_score.answer(f"ValueError: {text}got {here} from PyObject")["causes"][0]
    assert row["commands"][0]["text"] == f'pip install "{wanted}"'


@pytest.mark.parametrize(
    ("text", "cause", "command"),
    [
        (
            (
                "Because vllm==0.14.0 depends on torch==2.9.1 and your project depends on torch==2.10.0, "
                "we can conclude that your project's requirements are unsatisfiable."
            ),
            "package-pin-mismatch",
            "uv pip install vllm==0.14.0 torch==2.9.1",
        ),
        (
            (
                "The conflict is caused by:\n    The user requested torch==2.9.0\n"
                "    vllm 0.11.0 depends on torch==2.8.0"
            ),
            "package-pin-mismatch",
            "pip install vllm==0.11.0 torch==2.8.0",
        ),
        (
            (
                "app[cuda13] requires nvidia-cublas>=13.3.0.5\n\n"
                "torch==2.11.0+cu130 through torch==2.13.0+cu130\nrequire nvidia-cublas==13.1.x"
            ),
            "package-pin-mismatch",
            'echo "nvidia-cublas>=13.3.0.5" > overrides.txt && export UV_OVERRIDE=$PWD/overrides.txt',
        ),
        ("app requires torch>=2.9\nlib depends on torch~=2.9", None, None),
        ("app requires torch>=2.11\nlib depends on torch~=2.9.0", "package-pin-mismatch", None),
        (
            (
                "pip's dependency resolver does not currently take into account all the packages.\n"
                'torch 2.6.0+cu124 requires nvidia-cudnn-cu12==9.1.0.70; platform_system == "Linux", '
                "but you have nvidia-cudnn-cu12 9.3.0.75 which is incompatible."
            ),
            "package-pin-mismatch",
            "pip install nvidia-cudnn-cu12==9.1.0.70",
        ),
        (
            "torchaudio 2.8.0+cu128 requires torch==2.8.0, but you have torch 2.9.0 which is incompatible.",
            "extension-mismatch",
            "pip install --force-reinstall --no-deps torchaudio==2.9.0",
        ),
        (
            "Failed call to cudaGetRuntimeVersion: Error loading CUDA libraries.",
            "toolkit-library-missing",
            (
                'pip install $(python3 -c "from importlib.metadata import version; '
                "print('tensorflow[and-cuda]==' + version('tensorflow'))\")"
            ),
        ),
        (
            (
                "fabric manager NVIDIA GPU driver interface version 570.133.20 don't match with "
                "driver version 570.148.08."
            ),
            "fabric-not-ready",
            (
                "sudo apt-get update && sudo apt-get install -y --allow-downgrades "
                "nvidia-fabricmanager-570=570.148.08-1 && sudo systemctl restart nvidia-fabricmanager"
            ),
        ),
        (
            "ptxas application ptx input, line 9; fatal: Unsupported .version 8.8; current version is '8.4'",
            "driver-too-old",
            None,
        ),
        (
            "NVIDIA Thor with CUDA capability sm_110 is not compatible with the current PyTorch installation",
            "framework-arch-missing",
            (
                "pip install --force-reinstall torch==2.15.0 "
                "--index-url https://download.pytorch.org/whl/cu132"
            ),
        ),
    ],
)
def test_the_command_is_made_of_what_the_text_says(text, cause, command):
    document = diagnose_score.answer(text)
    assert document["cause"] == cause
    if command:
        assert document["causes"][0]["commands"][0]["text"] == command


_NO_TF_CUDA = "cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.\n"
_FULL_SHM = "RuntimeError: DataLoader worker (pid 37) is killed by signal: Bus error.\n"
_NOT_READY = "Error 802: system not yet initialized\n"
_NO_UNIT = "Unit nvidia-fabricmanager.service could not be found.\n"


def test_a_line_of_tensorflow_says_nothing_where_pytorch_computes_on_the_card():
    torch = "torch 2.8.0+cu128, cuda 12.8, NVIDIA GeForce RTX 4090, driver 580.95.05\nEpoch 1 done: 0.4\n"
    document = diagnose_score.answer(_NO_TF_CUDA + torch + _FULL_SHM)
    assert [row["cause"] for row in document["causes"]] == ["host-memory"]
    assert [row["line"]["line"] for row in document["harmless"]] == [1]
    idle = "torch 2.8.0+cu128, driver 580.95.05\n"
    assert "toolkit-library-missing" in [
        row["cause"] for row in diagnose_score.answer(_NO_TF_CUDA + idle)["causes"]
    ]


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (
            _NOT_READY + "nvidia-driver-570-server 570.172.08-0ubuntu0.24.04.1\n" + _NO_UNIT,
            "sudo apt-get install -y 'nvidia-fabricmanager-570=570.172.08*' && sudo systemctl enable --now",
        ),
        (_NOT_READY + _NO_UNIT, 'nvidia-fabricmanager-"${DRIVER%%.*}=$DRIVER*"'),
        (_NOT_READY, "sudo systemctl enable --now nvidia-fabricmanager"),
    ],
)
def test_a_fabric_manager_that_is_not_there_is_installed_of_the_drivers_version(text, command):
    row = diagnose_score.answer(text)["causes"][0]
    assert row["cause"] == "fabric-not-ready"
    assert command in row["commands"][0]["text"]


@pytest.mark.parametrize(
    ("text", "driver"),
    [
        ("libcuda.so.465.19.01\nname, driver_version\nNVIDIA GeForce RTX 3090, 455.45.01\n", "455.45.01"),
        ("libcuda.so.465.19.01\n", "465.19.01"),
        ("$ cat /sys/module/nvidia/version; nvidia-smi -L\nGPU 0: NVIDIA H100\n535.261.03\n", "535.261.03"),
        ("NVIDIA A100, 40536 MiB\n", None),
    ],
)
def test_the_hosts_driver_outweighs_a_libcuda(text, driver):
    assert diagnose_score.answer(text)["read"]["driver"] == driver


@pytest.mark.parametrize(
    ("card", "build", "told"),
    [
        ("NVIDIA GeForce GTX 1080", "13000", "too old for it: CUDA 13 begins at compute capability 7.5"),
        ("NVIDIA GeForce RTX 5090", "12040", "newer than CUDA 12.4"),
        ("", "12040", "newer than its CUDA (or was dropped by it)"),
    ],
)
def test_a_card_is_too_old_or_too_new_for_a_cuda(card, build, told):
    said = "nvrtc: error: invalid value for --gpu-architecture (-arch)\n"
    config = f"CuPy Version : 13.6.0\nCUDA Build Version : {build}\nDevice 0 Name : {card}\n"
    assert told in diagnose_score.answer(said + config)["causes"][0]["says"]


@pytest.mark.parametrize(("tensorflow", "broken"), [("2.15.1", True), ("2.19.1", False)])
def test_a_cudnn_that_breaks_another_framework_of_the_text_is_told_so(tensorflow, broken):
    text = (
        "Outdated cuDNN installation found.\nVersion JAX was built against: 9100\nMinimum supported: 9100\n"
        f"Installed version: 8904\njax==0.4.31\njaxlib==0.4.31\njax-cuda12-plugin==0.4.31\n"
        f"tensorflow=={tensorflow}\n"
    )
    commands = diagnose_score.answer(text)["causes"][0]["commands"]
    ask = [c["text"] for c in commands if c["text"].startswith("rtbuild resolve")]
    assert ask == (["rtbuild resolve jax==0.4.31 tensorflow"] if broken else [])
    assert broken is ("breaks TensorFlow" in next(c["note"] for c in commands if c["where"] == "pip"))


def test_ctranslate2_gets_all_folders_of_nvidias_wheels():
    said = "Unable to load any of {libcudnn_ops.so.9.1.0, libcudnn_ops.so.9}\nctranslate2==4.6.0\n"
    row = diagnose_score.answer(said + "nvidia-cublas-cu12==12.8.4.1\nnvidia-cudnn-cu12==9.10.2.21\n")[
        "causes"
    ][0]
    assert "/*/lib" in row["commands"][0]["text"]
    assert "nothing is to be installed anew" in row["remedy"]


def test_the_words_name_the_libraries_that_a_framework_brings():
    text = "Cannot dlopen some GPU libraries.\ntensorflow==2.20.0\nDriver Version: 535.261.03\n"
    row = diagnose_score.answer(text)["causes"][0]
    assert "CUDA 12.5 and cuDNN 9.3" in row["remedy"]
    assert "Driver 535.261.03 is enough" in row["remedy"]


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("pip install flash-attn==2.8.3\nNo module named 'torch'", "--no-build-isolation flash-attn==2.8.3"),
        ("No module named 'nvidia.cublas'", "pip install nvidia-cublas-cu12"),
        ("no kernel image is available for execution on the device\nRTX 5060, PyTorch", "/whl/cu128"),
        ("libcudss.so.0: cannot open shared object file\ntorch 2.9.0+cu130", "nvidia-cudss-cu13"),
        ("libcudart.so.12: cannot open shared object file\nsgl_kernel torch 2.11.0+cu130", "/whl/cu130"),
        (
            "vllm/_C: libcudart.so.13: cannot open shared object file\ntorch 2.9.1+cu128",
            "--torch-backend=auto",
        ),
        ("failed to open libnvrtc-builtins.so.13.0", "nvidia-cuda-nvrtc"),
        ("libcufile.so.0: cannot open shared object file\narm cu128 nightly", "nvidia-cufile-cu12"),
        ("no kernel image is available for execution on the device\non my 5070 Ti, torch", "/whl/cu128"),
        ("Unsupported gpu architecture 'compute_100a'\nJetson AGX Orin", 'TORCH_CUDA_ARCH_LIST="8.7'),
        ("libkvikio: undefined symbol: shm_open", "LD_PRELOAD=librt.so.1"),
        ("libx.so: undefined symbol: __nvJitLinkGetErrorLog_13_1, version libnvJitLink.so.13", ">=13.1"),
        ("torch==2.10.0 will reject to import torchcodec>=0.11.0", "torchcodec==0.10.*"),
        ("No matching distribution found for torch\nhttps://download.pytorch.org/whl/cu134", "/whl/cu132"),
        ("supported through the NVIDIA 470.xx Legacy drivers", "nvidia-driver-470"),
        (
            "Failed to initialize NVML: Driver/library version mismatch, even after a reboot",
            "cat /proc/driver",
        ),
        ("/usr/bin/ld: cannot find -lcuda", "LIBRARY_PATH=/usr/local/cuda/lib64/stubs"),
        (
            "No matching distribution found for torch==2.4.0\nPython 3.13",
            "uv venv --python 3.12 && uv pip install torch==2.4.0",
        ),
        (
            "No matching distribution found for nvidia-cudnn-cu12==8.9.2.26 (from versions: 8.9.4.25, 9.1)",
            "nvidia-cudnn-cu12==8.9.4.25",
        ),
        (
            "flash_attn-2.8.3+cu12torch2.8-cp312-linux_x86_64.whl is not a supported wheel on this platform",
            "--no-build-isolation flash-attn==2.8.3",
        ),
        ("cudnn64_9.dll which is missing: ONNX Runtime", "onnxruntime-gpu[cuda,cudnn]"),
        ("bitsandbytes was compiled without GPU support", "--upgrade bitsandbytes"),
        ("cannot import name 'triton_key' from 'triton.compiler'", "requires('torch')"),
        (
            (
                "This container was built for NVIDIA Driver Release 580.82 or later, but\n"
                "       version 550.54 was detected and compatibility mode is UNAVAILABLE."
            ),
            "nvidia-driver-580",
        ),
        (
            "torch/_ops.py, in load_library\nlibnvrtc.so.13: cannot open shared object file\ntorchcodec",
            "torchcodec --index-url https://download.pytorch.org/whl/cu126",
        ),
    ],
)
def test_a_package_in_the_text_is_installed_as_the_text_has_it(text, command):
    assert command in diagnose_score.answer(text)["causes"][0]["commands"][0]["text"]


@pytest.mark.parametrize(
    "text",
    [
        "jax: compute capability 12.0 is not supported by this jaxlib",
        "thread 'main' panicked at src/main.rs:3: onnxruntime: libcublasLt.so.12: cannot open shared object",
    ],
)
def test_no_other_framework_than_that_of_the_text_is_installed(text):
    rows = [command["text"] for row in diagnose_score.answer(text)["causes"] for command in row["commands"]]
    assert not re.search(r"torch=|onnxruntime", " ".join(rows))


def test_a_symbol_of_pytorch_and_a_removed_name_bring_no_command_for_another_package():
    text = (
        "undefined symbol: c10::cuda::c10_cuda_check_implementation(int, char const*, char const*, int, bool)"
    )
    assert diagnose_score.answer(text)["causes"][0]["commands"] == []
    text = "torch 2.9.1: module 'torchaudio' has no attribute 'set_audio_backend'"
    texts = [row["text"] for row in diagnose_score.answer(text)["causes"][0]["commands"]]
    assert [text for text in texts if "torchaudio==2.8.0" in text] == texts[:1]


XLA_PTX = "LLVM ERROR: PTX version 8.5 does not support target 'sm_120'."
NO_NVRTC = "CuPy failed to load libnvrtc.so.12: OSError: libnvrtc.so.12: cannot open shared object file"


@pytest.mark.parametrize(
    ("text", "cause", "command"),
    [
        (
            "Error: crun: cannot stat `/lib64/libEGL_nvidia.so.550.54.14`: No such file or directory",
            "container-no-gpu",
            "nvidia-ctk cdi generate",
        ),
        (
            "error stat'ing file /lib/x86_64-linux-gnu/libcuda.so.535.161.07: No such file or directory",
            "container-no-gpu",
            "nvidia-ctk cdi generate",
        ),
        (
            "after the upgrade of the graphics card's driver, podman containers cannot see the GPU",
            "container-no-gpu",
            "nvidia-ctk cdi generate",
        ),
        ("the driver was updated, and the container runs on the GPU", None, None),
        (
            "OCI runtime create failed: failed to check if link exists: unexpected link target: libcuda.so.1",
            "toolkit-known-bad",
            "install -y nvidia-container-toolkit",
        ),
        (
            "Error: OCI runtime error\n$ nvidia-ctk --version\nNVIDIA Container Toolkit CLI version 1.17.0",
            "toolkit-known-bad",
            "install -y nvidia-container-toolkit",
        ),
        ("NVIDIA Container Toolkit CLI version 1.17.0", None, None),
        (
            "ptxas error: Value 'sm_103a' is not defined for option 'gpu-name'",
            "kernel-compiler-too-old",
            "nvcc",
        ),
        (
            "flashinfer: Value 'sm_107a' is not defined for option 'gpu-name'",
            "kernel-compiler-too-old",
            "cuda-toolkit-13",
        ),
        ("NVCC version should be >= 12.9", "kernel-compiler-too-old", "cuda-toolkit-12-9"),
        (
            "Assertion error (jit/kernel_runtime.hpp:31): exit_code == 0",
            "kernel-compiler-missing",
            "cuda-cuobjdump-",
        ),
        ("TensorFlow\n" + XLA_PTX, "framework-arch-missing", None),
        ("jax\n" + XLA_PTX, "kernel-compiler-too-old", "jax[cuda13]"),
        ("a C++ ABI mismatch of the two packages", "extension-mismatch", None),
        (
            "pip pulled torch 2.8.0 (no CUDA), overwriting the one that was here",
            "framework-cpu-build",
            "torch",
        ),
        ("onnxruntime overwrites the files of onnxruntime-gpu", "package-overwritten", "onnxruntime"),
        ("jobs are degraded to CPU with a warning", "framework-cpu-build", None),
        ("torch jobs are degraded to CPU with a warning", "framework-cpu-build", "torch"),
        ("it can not find the cuda-13.3 asset", None, None),
        (
            "CUDA SETUP ERROR: Missing dependency: libcusparse.so.13",
            "toolkit-library-missing",
            None,
        ),
        (
            "CUDA SETUP ERROR: Missing dependency: libnvJitLink.so.13",
            "toolkit-library-missing",
            "nvidia-nvjitlink",
        ),
        ("on CUDA 13: nppicc64_12.dll is missing", "cuda-major-mixed", None),
        ("nppicc64_12.dll is missing", "toolkit-library-missing", None),
        (
            "/usr/local/cuda -> /usr/local/cuda-13.1\n" + NO_NVRTC,
            "cuda-major-mixed",
            "install cupy-cuda13x",
        ),
        ("/usr/local/cuda -> /usr/local/cuda-12.8\n" + NO_NVRTC, "nvrtc-missing", "cupy-cuda12x[ctk]"),
        ("llama-b7000-bin-ubuntu-cpu-x64.zip\nlibcudart.so.13 is missing", "framework-cpu-build", None),
    ],
)
def test_classes_of_faults_that_the_fifth_held_out_set_showed(text, cause, command):
    document = diagnose_score.answer(text)
    assert document["cause"] == cause
    commands = [row["text"] for named in document["causes"][:1] for row in named["commands"]]
    assert any(command in text for text in commands) if command else not any("torch=" in t for t in commands)


def test_a_driver_is_read_by_its_new_label_and_is_not_missing():
    read = diagnose_score.answer("Driver Version: 610.47    CUDA UMD Version: 13.3")["read"]
    assert (read["driver"], read["driver_cuda"]) == ("610.47", "13.3")
    rows = diagnose_score.answer("- **Driver**: 610.47\nGPU not found, using CPU")["causes"]
    assert [row["cause"] for row in rows] == ["framework-cpu-build", "container-no-gpu"]


def test_points_of_a_list_as_long_as_a_window_are_not_put_together():
    first = "the asset has another version than what was asked for: a mismatch"
    second = "- PyTorch is here, and works".ljust(len(first) + 1, ".")
    assert diagnose_score.answer(f"{first}\n{second}")["causes"] == []
    assert diagnose_score.answer(f"{first}\n{second[2:]}..")["cause"] == "extension-mismatch"


def test_no_pytorch_without_cuda_is_installed_on_windows():
    text = "xformers: ABI mismatch of torch{}, Entry Point Not Found in xformers/_C.pyd"
    for told, index in ((" 2.9.0", "cu128"), ("==2.9.0+cu130", "cu130")):
        rows = diagnose_score.answer(text.format(told))["causes"][0]["commands"]
        assert "--no-deps xformers==0.0.33.post1 " in rows[0]["text"]
        assert rows[0]["text"].endswith(f" --index-url https://download.pytorch.org/whl/{index}")


def test_a_wheel_that_is_installed_is_led_to():
    text = "pip install nvidia-cublas-cu12\nC:\\x\nLibrary cublas64_12.dll is not found or cannot be loaded"
    document = diagnose_score.answer(text)
    assert document["cause"] == "toolkit-library-missing"
    assert "env:PATH" in document["causes"][0]["commands"][0]["note"]


def _each(change):
    return lambda text: "\n".join(map(change, text.split("\n")))


_AROUND = {
    "entities": html.escape,
    "typeset": lambda text: text.replace("'", "\u2019").replace('"', "\u201d"),
    "vllm": _each("(EngineCore_DP0 pid=1234) {}".format),
    "ray": _each("\x1b[36m(RayWorkerWrapper pid=331, ip=192.0.2.3)\x1b[0m {}".format),
    "torchrun": _each("[rank3]: {}".format),
    "kubernetes": _each("2026-05-12T12:00:01.123456789Z stderr F {}".format),
}


@pytest.mark.parametrize("around", _AROUND)
@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("version 'GLIBC_2.41' not found (required by /x/libfoo.so)", "libc-too-old"),
        ("nvcc fatal : Unsupported gpu architecture 'compute_35'", "build-toolkit-mismatch"),
        ('could not select device driver "" with capabilities: [[gpu]]', "container-no-gpu"),
        ("ModuleNotFoundError: No module named 'torch._some'", "package-pin-mismatch"),
        ("error: Can't find libdevice directory ${CUDA_DIR}/nvvm/libdevice", "ptxas-missing"),
        (
            (
                "PackagesNotFoundError: The following packages are not available from current channels:\n\n"
                "  - pytorch-cuda=12.9"
            ),
            "build-not-published",
        ),
    ],
)
def test_what_a_program_or_a_forum_puts_around_a_message_changes_nothing(around, text, cause):
    assert diagnose_score.answer(text)["cause"] == cause
    assert diagnose_score.answer(_AROUND[around](text))["cause"] == cause


@pytest.mark.parametrize("package", ["pycocotools", "pandas", "own_module"])
def test_the_package_that_is_compiled_for_numpy_1_is_named(package: str) -> None:
    """It is that of the traceback's last line before the error, and not the one that imports it."""
    folder = "/home/u/.venv/lib/python3.10/site-packages"
    text = (
        "A module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.2.6 as it may crash.\n"
        f'Traceback (most recent call last):  File "{folder}/torch/__init__.py", line 9, in <module>\n'
        f'    import {package}\n  File "{folder}/{package}/core.py", line 3, in <module>\n'
        f"    from . import _ext\nAttributeError: _ARRAY_API not found\n"
    )
    (cause,) = diagnose_score.answer(text)["causes"]
    assert cause["cause"] == "package-pin-mismatch"
    assert cause["says"].startswith(f"{package} was compiled for NumPy 1, and NumPy 2 is here")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("ImportError: libnvjpeg.so.13: cannot open shared object file", "toolkit-library-missing"),
        ("OSError: libcutensorMg.so.2: cannot open shared object file", "toolkit-library-missing"),
        ("libnvshmem_transport_ibrc.so.3: cannot open shared object file", "toolkit-library-missing"),
        ("libgomp.so.1: version `GOMP_5.0' not found (required by /x/lib.so)", "libc-too-old"),
        ("AttributeError: _ARRAY_API not found", "package-pin-mismatch"),
        (
            "foo-1.0-cp310-cp310-linux_x86_64.whl is not a supported wheel on this platform",
            "build-not-published",
        ),
        ("RuntimeError: This version of jaxlib (0.4.30) requires jax >= 0.4.30", "package-pin-mismatch"),
        ("No module named 'transformers.models.some_model'", "package-pin-mismatch"),
        ("g++: fatal error: Killed signal terminated program cc1plus", "host-memory"),
        ("nvcc error : 'ptxas' died due to signal 9 (Kill signal)", "host-memory"),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: 'x86_64-linux-gnu-gcc'",
            "kernel-compiler-missing",
        ),
        ("No such file or directory: '/usr/bin/clang++-18'", "kernel-compiler-missing"),
    ],
)
def test_any_member_of_a_class_is_answered(text, cause):
    assert diagnose_score.answer(text)["cause"] == cause


NO_IMAGE = "CUDA error: no kernel image is available for execution on the device\nRTX 5090, torch == 2.8.0\n"


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (">>> torch.cuda.get_arch_list()\n['sm_75', 'sm_90', 'sm_120']", False),
        ("`torch.cuda.get_arch_list()` says that it should be compatible with `sm_120`", False),
        ("`torch.cuda.get_arch_list()` does not have sm_120", True),
        (">>> torch.cuda.get_arch_list()\n['sm_75', 'sm_86', 'sm_90']", True),
    ],
)
def test_pytorch_that_lists_the_card_is_not_replaced(text, changes):
    row = diagnose_score.answer(NO_IMAGE + text)["causes"][0]
    assert any("torch" in command["text"] for command in row["commands"]) is changes


def test_a_ceiling_of_a_requirement_is_no_floor():
    text = "ImportError: Numba needs NumPy {} or less. Got NumPy 2.4."
    commands = diagnose_score.answer(text.format("2.2"))["causes"][0]["commands"]
    assert [row["text"] for row in commands] == ['pip install "numpy<2.3"']


def _first_command(text):
    rows = diagnose_score.answer(text)["causes"]
    return rows[0]["cause"], next((row["text"] for row in rows[0]["commands"]), None)


FRAME = '  File "/venv/lib/python3.11/site-packages/{}/core.py", line 7, in <module>\n'


@pytest.mark.parametrize(
    ("text", "cause", "command"),
    [
        (
            "cannot import name 'cached_download' from 'huggingface_hub'",
            "package-pin-mismatch",
            'pip install "huggingface-hub<0.26"',
        ),
        (
            "module 'numpy' has no attribute 'bool'",
            "package-pin-mismatch",
            'pip install "numpy<1.24"',
        ),
        (
            "`np.float_` was removed in the NumPy 2.0 release",
            "package-pin-mismatch",
            'pip install "numpy<2"',
        ),
        (
            "ModuleNotFoundError: No module named 'tensorflow.contrib.layers'",
            "package-pin-mismatch",
            'pip install "tensorflow<2"',
        ),
        (
            "AttributeError: module 'tensorflow' has no attribute 'placeholder'",
            "package-pin-mismatch",
            'pip install "tensorflow<2"',
        ),
        # PyTorch is chosen by CUDA and the card, and the newest is the one without the module
        ("ModuleNotFoundError: No module named 'torch._six'", "package-pin-mismatch", None),
        # not on record: of two packages of nothing but Python both are renewed
        (
            FRAME.format("peft") + "ImportError: cannot import name 'Foo' from 'transformers'",
            "package-pin-mismatch",
            "pip install --upgrade peft transformers",
        ),
        # a package asks itself for what it has not
        (
            "transformers==4.33.0\n"
            + FRAME.format("transformers")
            + "cannot import name 'foo' from 'transformers.utils'",
            "package-overwritten",
            "pip install --force-reinstall --no-deps transformers==4.33.0",
        ),
        # any other two packages: a later release of the one that asks, by the files that it is of
        (
            FRAME.format("flask") + "ImportError: cannot import name 'url_quote' from 'werkzeug.urls'",
            "package-pin-mismatch",
            (
                'pip install --upgrade $(python3 -c "from importlib.metadata import '
                "packages_distributions as p; print(*p()['flask'])\")"
            ),
        ),
        (
            "ImportError: tokenizers>=0.22.0,<=0.23.0 is required for a normal functioning of this module",
            "package-pin-mismatch",
            'pip install "tokenizers>=0.22.0,<=0.23.0"',
        ),
        (
            "gencode 6.31.1 runtime 5.29.3. Runtime version cannot be older than the linked gencode version",
            "package-pin-mismatch",
            'pip install "protobuf>=6.31.1"',
        ),
        (
            "Free memory on device (19.77/22.05 GiB) on startup is less than desired GPU memory utilization",
            "out-of-memory",
            "vllm serve MODEL --gpu-memory-utilization 0.88",
        ),
        (
            "/lib/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by /opt/conda/envs/a/x.so)",
            "libc-too-old",
            "export LD_LIBRARY_PATH=$CONDA_PREFIX/lib:$LD_LIBRARY_PATH",
        ),
        (
            "/opt/conda/envs/a/bin/../lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found",
            "libc-too-old",
            'conda install -c conda-forge "libstdcxx-ng>=13"',
        ),
        (
            "nvidia-driver-530 : Depends: nvidia-kernel-common-530 (>= 530.41) but 530.30 is to be installed",
            "package-pin-mismatch",
            (
                "sudo apt-get purge -y 'nvidia-*' 'libnvidia-*' && sudo apt-get update && "
                "sudo apt-get install -y nvidia-driver-530"
            ),
        ),
        (
            "/bin/sh: 1: :/usr/local/cuda-12.8/bin/nvcc: not found",
            "kernel-compiler-missing",
            "export CUDA_HOME=/usr/local/cuda-12.8",
        ),
        # what was asked for is no build for the CPU that is here
        (
            "ERROR: No matching distribution found for torch==1.11.0+cpu",
            "build-not-published",
            "pip install torch==1.11.0",
        ),
        # a command is for the place that failed
        (
            'kubelet  Failed to create pod sandbox: rpc error: no runtime for "nvidia" is configured',
            "container-no-gpu",
            "sudo nvidia-ctk runtime configure --runtime=containerd && sudo systemctl restart containerd",
        ),
        (
            "nvidia-container-cli: device error: no-gpu-has-128MiB-to-run: unknown device: unknown.",
            "device-hidden",
            "nvidia-smi -L",
        ),
        (
            "/home/a/miniconda3/envs/te/bin/cmake\nCould NOT find CUDNN (missing: CUDNN_LIBRARY)",
            "build-toolkit-missing",
            "conda install -c conda-forge cudnn",
        ),
    ],
)
def test_the_first_command_is_for_the_package_or_place_that_failed(text, cause, command):
    assert _first_command(text) == (cause, command)


@pytest.mark.parametrize(
    ("here", "told"),
    [
        ("torch==2.3.0", ["torch 2.3.0, which the text names, is too old"]),
        ("", ["the torch here is too old"]),
        ("torch==2.6.0", ["the 2.6.0 that the text names has it, so another torch is imported"]),
    ],
)
def test_a_name_of_a_later_pytorch_says_from_which_release_it_is_there(here, told):
    text = "AttributeError: module 'torch.library' has no attribute 'custom_op'\n" + here
    row = diagnose_score.answer(text)["causes"][0]
    assert row["cause"] == "package-pin-mismatch"
    said = [reason for reason in row["because"] if "from 2.4 on" in reason]
    assert [re.split("from 2.4 on[:;] ", reason)[1] for reason in said] == told
    # no wheel of PyTorch is chosen by a name, and no image is of the release that lacks it: a release that is
    # too old goes up with its companions, from the index that the driver serves
    commands = [command["text"] for command in row["commands"]]
    assert not any("/whl/" in command or "2.3" in command for command in commands)
    raised = [command for command in commands if "install" in command]
    assert raised == ['uv pip install --upgrade "torch>=2.4" torchvision torchaudio --torch-backend=auto'] * (
        here == "torch==2.3.0"
    )


@pytest.mark.parametrize(
    "text",
    [
        # a module of the program itself, and a circle of imports
        "File \"app.py\", line 3\nImportError: cannot import name 'foo' from 'utils'",
        FRAME.format("foo") + "ImportError: cannot import name 'a' from partially initialized module 'bar'",
        "AttributeError: 'Model' object has no attribute 'foo'",
    ],
)
def test_a_name_that_no_installed_package_asks_of_another_names_no_cause(text):
    assert diagnose_score.answer(text)["causes"] == []


@pytest.mark.parametrize(
    ("text", "told", "command"),
    [
        # two causes: the library's wheel, the toolkit, the kernels of another PyTorch would deepen the one
        (
            "ImportError: libcudart.so.12: cannot open shared object file",
            "\ntorch 2.9.1+cu128",
            "cuda-runtime-cu12",
        ),
        ("ERROR: Failed building wheel for flash-attn", "", "cuda-toolkit"),
        ("[sgl_kernel] CRITICAL: Could not load any common_ops library!", "", "sgl-kernel"),
        (
            "CUDA driver version is insufficient for CUDA runtime version",
            "",
            "nvidia-driver",
        ),
    ],
)
def test_under_two_causes_no_package_is_changed_unless_what_chooses_it_was_read(text, told, command):
    document = diagnose_score.answer(text)
    rows = [row["text"] for named in document["causes"] for row in named["commands"]]
    assert document["look"]
    assert not any(command in row for row in rows)
    rows = [
        row["text"] for named in diagnose_score.answer(text + told)["causes"] for row in named["commands"]
    ]
    assert any(command in row for row in rows) is bool(told)


def test_what_no_text_tells_is_asked_of_what_is_installed(tmp_path):
    """The line of a shell, in one whose PyTorch is of each of these releases."""
    _, command = _first_command("RuntimeError: operator torchvision::nms does not exist")
    asked = {
        "2.9.1+cu128": "torchvision==0.24.* --index-url https://download.pytorch.org/whl/cu128",
        "1.13.1+cu117": "torchvision==0.14.* --index-url https://download.pytorch.org/whl/cu117",
        "2.12.0": "torchvision==0.27.*",
    }
    for version, words in asked.items():
        told = tmp_path / version / f"torch-{version}.dist-info"
        told.mkdir(parents=True)
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        line = ["bash", "-c", "set -f; echo " + command]
        said = subprocess.run(
            line,
            check=True,
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": str(told.parent)},
        )
        assert said.stdout.strip() == f"pip install --force-reinstall --no-deps {words}"


def test_a_library_in_a_source_folder_is_compiled_anew_there():
    text = "ImportError: {}vllm/_C.abi3.so: undefined symbol: _ZN5torch3jit17parseSchemaOrNameERKSsb"
    assert _first_command(text.format("/src/vllm/"))[1] == "pip install --no-build-isolation --no-deps -e ."
    assert "version('vllm')" in _first_command(text.format("/usr/lib/python3/dist-packages/"))[1]


@pytest.mark.parametrize(
    ("text", "cause", "command"),
    [
        (
            'docker: Error: could not select device driver "" with capabilities: [[gpu]]\nAMD Radeon 780M',
            "no-device",
            "docker run --rm IMAGE",
        ),
        (
            (
                'docker: Error: could not select device driver "" with capabilities: [[gpu]]\n'
                "Intel UHD Graphics 630, GeForce RTX 2060"
            ),
            "container-no-gpu",
            "nvidia-container-toolkit",
        ),
        (
            (
                "podman version 4.9.3; nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml\n"
                "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=0"
            ),
            "toolkit-known-bad",
            "podman --version",
        ),
        ("NVRM: GPU 0000:65:00.0 is already bound to nouveau.", "driver-missing", "blacklist nouveau"),
        ("NVRM: GPU 0000:65:00.0 is already bound to vfio-pci.", "driver-missing", "lspci -nnk"),
        ("ERROR: Unable to load the kernel module 'nvidia-drm.ko'.", "driver-missing", "dmesg"),
        (
            "RTX 5090: NVRM: installed in this system requires use of the NVIDIA open kernel modules.",
            "driver-card-unsupported",
            "nvidia-driver-580-open",
        ),
        (
            "RTX 5090, driver 575.51.02, proprietary driver\nUnable to determine the device handle for GPU0",
            "driver-card-unsupported",
            "nvidia-driver-575-open",
        ),
        (
            "The NVIDIA driver on your system is too old (found version 12020).\nvllm/vllm-openai:latest",
            "driver-too-old",
            "nvidia-driver-",
        ),
        (
            (
                "BatchPrefill failed with error code no kernel image is available for execution on the\n"
                "Tesla T4"
            ),
            "framework-arch-missing",
            "",
        ),
        (
            "cannot import name 'flashinfer_scaled_fp4_mm' from 'vllm.utils.flashinfer'",
            "kernel-compiler-missing",
            "export CUDA_HOME=/usr/local/cuda",
        ),
        ("error: 'gpu.module' GPUModuleOp: TypeError", "package-overwritten", "nvidia-cutlass-dsl-libs-"),
        ("fatal error: bits/libc-header-start.h: No such file", "kernel-compiler-missing", "libc6-dev"),
        ("/usr/bin/ld: cannot find Scrt1.o: No such file", "kernel-compiler-missing", "libc6-dev"),
        ("CuPy: could not find cuda_fp16.h", "kernel-compiler-missing", "cuda-cudart-dev"),
        ("ld.lld: error: unable to find library -lcuda", "unversioned-name-missing", "lib64/stubs"),
        (
            "cuDNN 9.10.0 crashes in the attention, gone with 9.12.1; torch==2.8.0+cu128",
            "framework-known-bad",
            "nvidia-cudnn-cu12==9.12.1.*",
        ),
        (
            "ImportError: cannot import name 'HybridCache' from 'transformers'",
            "package-pin-mismatch",
            "peft>=0.18",
        ),
        ("ollama 0.31.2, driver: 535.183.01, all on the CPU", "driver-too-old", "nvidia-driver-"),
        (
            "RTX 5090, nvidia-driver-580-open after the proprietary driver\nNVRM: RmInitAdapter failed!",
            "driver-error",
            "",
        ),
        (
            (
                'docker: Error: could not select device driver "" with capabilities: [[gpu]]\n'
                "Intel UHD Graphics, RTX3060"
            ),
            "container-no-gpu",
            "nvidia-container-toolkit",
        ),
    ],
    ids=lambda value: value[:40],
)
def test_classes_of_faults_that_the_eighth_held_out_set_showed(text, cause, command):
    first = diagnose_score.answer(text)["causes"][0]
    commands = [row["text"] for row in first["commands"]]
    assert first["cause"] == cause
    assert command in commands[0] if command else commands == []


@pytest.mark.parametrize(
    ("text", "cause", "beside"),
    [
        ("GTX 1080 Ti\nThe launcher installs the wheel for cu128.", "framework-arch-missing", "line 2"),
        ("Tesla P40 with ghcr.io/foo/app:cuda13: it stopped working", "framework-arch-missing", "CUDA 13"),
        ("My 50 series card with PyTorch 2.4: the program just closes", "framework-arch-missing", "2.4"),
        ("nvidia-smi says CUDA Version: 12.4\nnvidia-cublas-cu13 is installed", "driver-too-old", "12.4"),
        ("Driver 470.256, and the CUDA 12 build of onnxruntime", "driver-too-old", "525"),
        ("Python 3.14 and pip install torch==2.6.0 does not work", "build-not-published", "3.14"),
        ("torch 2.9.1+cu128\nnvidia-cublas-cu13 13.1.0: a crash", "cuda-major-mixed", "2.9.1+cu128"),
    ],
)
def test_two_facts_that_contradict_each_other_are_a_likely_cause_with_both_as_proof(text, cause, beside):
    document = diagnose_score.answer(text)
    first = document["causes"][0]
    assert first["cause"] == cause
    assert not document["decided"]
    assert beside in " ".join(first["because"])


@pytest.mark.parametrize(
    "text",
    [
        "RTX 4090, the wheel for cu128: the program closes",
        "Driver 580.95, and the CUDA 13 build of the program does not start",
        "Python 3.12 and pip install torch==2.6.0",
        "GTX 1080, CUDA 12 build: the program closes",
    ],
)
def test_two_facts_that_fit_each_other_are_no_cause(text):
    assert diagnose_score.answer(text)["causes"] == []


def test_a_contradiction_comes_before_what_fits_equally_and_after_a_proof():
    facts = "Driver 470.256, and the CUDA 12 build of onnxruntime. "
    rows = diagnose_score.answer(facts + "onnxruntime falls back to the CPU")["causes"]
    assert [row["cause"] for row in rows][:2] == ["driver-too-old", "framework-cpu-build"]
    proven = diagnose_score.answer(facts + "\nlibcuda.so: cannot open shared object file")
    assert proven["decided"]
    assert proven["cause"] == "unversioned-name-missing"


@pytest.mark.parametrize(
    ("text", "look"),
    [
        ("Windows 11, RTX 3070: it crashes as soon as I click. Error", "nvidia-smi"),
        (
            "The docker container exits immediately with RTX 3070. Error 137 of unknown origin",
            "docker info",
        ),
        ("Windows 11: CUDAExecutionProvider not loaded", "where.exe"),
        ("ComfyUI exits with 0xC0000005, torch 2.10.0+cu130", "driver_version"),
        ("process exited with code 3221225781", "vcruntime140_1.dll"),
        ("koboldcpp crashes only when the GPU is on", "driver_version"),
    ],
)
def test_what_tells_the_cause_fits_the_system_of_the_text(text, look):
    assert look in diagnose_score.answer(text)["look"]["command"]


@pytest.mark.parametrize(
    ("text", "cause", "command"),
    [
        (
            (
                "the driver of the host was upgraded, and in the container nvidia-smi says\n"
                "Failed to initialize NVML: Driver/library version mismatch"
            ),
            "driver-library-mismatch",
            "docker restart",
        ),
        (
            "kubernetes pod: Failed to initialize NVML: Driver/library version mismatch",
            "driver-library-mismatch",
            "kubectl delete pod",
        ),
        (
            "k8s pod with /dev/nvidia0: libcuda.so.1: cannot open shared object file",
            "container-no-gpu",
            "kubectl exec",
        ),
        ("WSL2: CUDA driver error: device not ready", "out-of-memory", "expandable_segments:False"),
        ("CUDA driver error: operation not supported", "driver-error", "expandable_segments:False"),
        ("OMP: Error #15: Initializing libiomp5md.dll", "import-order-conflict", "KMP_DUPLICATE_LIB_OK"),
        (
            (
                "libnvrtc.so: cannot open shared object file: No such file or directory\n"
                "/venv/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"
            ),
            "unversioned-name-missing",
            "libnvrtc.so",
        ),
        (
            "ldconfig has libcuda.so.1 but not libcuda.so: -lcuda fails",
            "unversioned-name-missing",
            "libcuda.so",
        ),
        (
            "NVIDIA GPU library was not found: only libnvidia-ml.so.1 is installed",
            "unversioned-name-missing",
            "libnvidia-ml.so",
        ),
        (
            "make_cpu_buft_list: no CPU backend found\nllama_model_load: failed to load model",
            "package-overwritten",
            "GGML_BACKEND_DL=OFF",
        ),
        (
            "RuntimeError: Failed to load shared library 'D:\\venv\\llama_cpp\\lib\\ggml.dll'",
            "system-library-missing",
            "VCRedist",
        ),
        (
            "The procedure entry point __kmpc_fork_call could not be located in the library llama.dll",
            "system-library-missing",
            "VCRedist",
        ),
        (
            "ModuleNotFoundError: No module named 'flash_attn.flash_attn_interface'",
            "package-overwritten",
            "uninstall -y flash-attn",
        ),
        (
            "Found no NVIDIA driver on your system.\npod on GKE, image python:3.11-slim",
            "container-no-gpu",
            "LD_LIBRARY_PATH=/usr/local/nvidia/lib64",
        ),
        (
            (
                "After I upgraded the NVIDIA driver on the host, my Plex container no longer sees CUDA; "
                "nvidia-smi in it shows CUDA Version: N/A"
            ),
            "driver-library-mismatch",
            "--force-recreate",
        ),
        ("torchcodec 0.0.0.dev0 was installed on my DGX Spark", "build-not-published", "whl/cpu"),
        (
            "ImportError: AttrsDescriptor not found in triton\nOS: Windows 11, torch 2.6.0+cu124",
            "package-pin-mismatch",
            '"triton-windows>=3.2,<3.3"',
        ),
        (
            "With GPU acceleration enabled it exits with code 1, disabling CUDA it works; GTX 1070",
            "framework-arch-missing",
            "/whl/cu126",
        ),
        (
            "Windows fatal exception: access violation\nTitan X, a Maxwell card",
            "framework-arch-missing",
            "cu126",
        ),
        ("cudaErrorNotSupported: update your GPU driver", "driver-too-old", "nvidia.com"),
        (
            (
                'The compilation of "CMakeCUDACompilerId.cu" failed: 100 errors detected\n'
                "gcc 15.2.1, CUDA 12.9"
            ),
            "build-toolkit-mismatch",
            "g++-14",
        ),
        (
            "The driver supports CUDA 12.8 at most, and pip install torch took cu130 (torch 2.11.0)",
            "driver-too-old",
            "torch==2.11.0",
        ),
        (
            (
                "pip install torch --index-url https://download.pytorch.org/whl/cu118\n"
                "ERROR: No matching distribution found for torch\nPython 3.14.1"
            ),
            "build-not-published",
            "uv venv --python 3.13",
        ),
        (
            "natten-0.1-cp311-cp311-linux_x86_64.whl is not a supported wheel on this platform\nPython 3.13",
            "build-not-published",
            "uv venv --python 3.11",
        ),
        (
            (
                "No NVIDIA GPU or driver detected. The app needs an RTX 30 or newer\n"
                "nvidia-smi reports a KMD version of 580.95.05"
            ),
            "unversioned-name-missing",
            "libnvidia-ml.so",
        ),
        (
            "the image (CUDA 13.1) silently falls back to CPU with driver 580.126.09",
            "driver-too-old",
            "nvidia-driver-590",
        ),
        ("ModuleNotFoundError: No module named 'torch._C'", "package-overwritten", ""),
        (
            "No matching distribution found for torch==2.10.0.dev20251012+cu130",
            "build-not-published",
            "/whl/nightly/cu130",
        ),
        (
            'Unraid: could not select device driver "" with capabilities: [[gpu]]',
            "container-no-gpu",
            "--runtime=nvidia",
        ),
        (
            (
                "LocalAI, Tesla M40: ggml_cuda_compute_forward: CUDA error: "
                "no kernel image is available for execution on the device"
            ),
            "framework-arch-missing",
            "",
        ),
        (
            "docker run --gpus all IMAGE\nin the container: No GPU or driver detected, CPU mode",
            "container-no-gpu",
            "nvidia-ctk runtime configure",
        ),
    ],
    ids=lambda value: value[:40],
)
def test_classes_of_faults_that_users_of_desktop_programs_showed(text, cause, command):
    first = diagnose_score.answer(text)["causes"][0]
    commands = [row["text"] for row in first["commands"]]
    assert first["cause"] == cause
    assert command in commands[0] if command else commands == []


@pytest.mark.parametrize(
    ("text", "cause", "command"),
    [
        (
            (
                "Warp CUDA error: Function cuDeviceGetUuid_f: a suitable driver entry point was not found\n"
                "Warp CUDA error 36: API call is not supported in the installed CUDA driver\n"
                "   CUDA Toolkit 12.8, Driver 13.0"
            ),
            "framework-known-bad",
            "warp-lang>=1.10.1",
        ),
        (
            "Failed to get driver entry point 'cuDeviceGetUuid' (CUDA error 1)",
            "framework-known-bad",
            "warp-lang>=1.10.1",
        ),
        (
            (
                "import transformer_engine: libtransformer_engine.so: undefined symbol: "
                "cublasLtGroupedMatrixLayoutInit_internal, version libcublasLt.so.13"
            ),
            "package-pin-mismatch",
            "nvidia-cublas",
        ),
        (
            "_kernels.so: undefined symbol: cublasLtMatmulTileGet, version libcublasLt.so.12",
            "package-pin-mismatch",
            "nvidia-cublas-cu12",
        ),
        (
            (
                "LD_LIBRARY_PATH=/usr/local/cuda-12.4/lib64\nlibtransformer_engine.so: "
                "undefined symbol: cublasLtGroupedMatrixLayoutInit, version libcublasLt.so.12"
            ),
            "toolkit-mixed",
            "LD_LIBRARY_PATH",
        ),
        ("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x1f:2142)", "driver-error", "dmesg"),
        (
            "h264_nvenc: minimum required Nvidia driver for nvenc is 610.00 or newer",
            "driver-too-old",
            "nvidia-driver-610",
        ),
        (
            "[av1_nvenc] The minimum required Nvidia driver for nvenc is 570.0 or newer (Found 12.1)",
            "driver-too-old",
            "nvidia-driver-570",
        ),
        (
            (
                "`kernels==0.13.0` + `transformers==4.57.6`: huggingface-hub>=0.34.0,<1.0 is required for a "
                "normal functioning of this module, but found huggingface-hub==1.24.0."
            ),
            "package-pin-mismatch",
            'pip install "huggingface-hub>=0.34.0,<1.0" kernels transformers',
        ),
        (
            "ATen/core/List_inl.h:202:52: error: need 'typename' before 'decltype(impl_->list)'",
            "extension-mismatch",
            "std=c++20",
        ),
        (
            "torch/include/c10/util/StringUtil.h(169): error C7555: use of designated initializers requires",
            "extension-mismatch",
            "std=c++20",
        ),
        ("torch 2.14's headers need C++20, this passes C++17", "extension-mismatch", "std=c++20"),
        (
            "a C++17 build cannot compile the headers of torch: torch headers need C++20",
            "extension-mismatch",
            "CUDA)_STANDARD (14|17)",
        ),
        (
            "torch 2.14.0+cu130\n#include <ATen/ATen.h>\nnvcc fails; it is started with\n-std=c++17",
            "extension-mismatch",
            "std=c++20",
        ),
        (
            "nv-pci.c:240:9: error: too few arguments to function 'pci_resize_resource'",
            "driver-missing",
            "linux-headers",
        ),
        (
            "Fedora 44: common/inc/nv-linux.h:1730:10: fatal error: linux/of_gpio.h: No such file",
            "driver-missing",
            "akmods",
        ),
        (
            "Void 7.0.1_1 x86_64 GenuineIntel\nDKMS module 'nvidia-580.126.18' failed to build",
            "driver-missing",
            "xbps-install",
        ),
        (
            "NixOS, linux-cachyos-lto\n570.172.08 does not build against recent 6.12 kernels",
            "driver-missing",
            "nixos-rebuild",
        ),
        (
            'CUDA 13.2.0: iexpand.h(92): error: namespace "thrust" has no member "distance"',
            "build-toolkit-mismatch",
            "cuda-toolkit-12-9",
        ),
        (
            "CUDA 13: error: 'make_tuple' is not a member of 'thrust'",
            "build-toolkit-mismatch",
            "cuda-toolkit-12-9",
        ),
        (
            "CUDA 13: a call of lerp(float, float, float) is ambiguous, lerp",
            "build-toolkit-mismatch",
            "cuda-toolkit-12-9",
        ),
        (
            "With CUDA Toolkit 13.x: fatal error: thrust/sort.h: No such file or directory",
            "build-toolkit-mismatch",
            "/include/cccl",
        ),
        (
            "nvlink error   : Uncompress failed (target: sm_80)\nlibnccl_static.a",
            "build-toolkit-mismatch",
            "libnccl-dev",
        ),
        (
            "nvcc: CUDA 12.8 does not support `compute_103` and `compute_110`",
            "build-toolkit-mismatch",
            "CUDAARCHS",
        ),
        (
            (
                "Remove compute_60 due to incompatibility with CUDA 13+, the build fails\n"
                "-- The CUDA compiler identification is NVIDIA 13.2.51"
            ),
            "build-toolkit-mismatch",
            "cuda-toolkit-12-9",
        ),
        (
            "uv installed torch==2.8.0, the cu128 build, which doesn't work with the CUDA 12.4 driver",
            "driver-too-old",
            "torch==2.8.0 --torch-backend=auto",
        ),
        (
            (
                "Your Tesla V100 GPU (compute capability 7.0) is not supported on CUDA 13+.\n"
                "ERROR: CUDA error: unknown error (code 999, ERROR_UNKNOWN)"
            ),
            "framework-arch-missing",
            "set_runtime_version",
        ),
        (
            (
                'ollama libDirs="[...lib\\ollama ...lib\\ollama\\cuda_v13]"\n'
                'msg="skipping CUDA device - compute capability not in compiled architectures"'
            ),
            "framework-arch-missing",
            "setx OLLAMA_LLM_LIBRARY cuda_v12",
        ),
    ],
    ids=lambda value: value[:40],
)
def test_classes_of_faults_that_the_ninth_held_out_set_showed(text, cause, command):
    first = diagnose_score.answer(text)["causes"][0]
    assert first["cause"] == cause
    assert command in first["commands"][0]["text"]


def test_a_driver_that_serves_the_build_is_not_called_too_old_for_a_function():
    text = "API call is not supported in the installed CUDA driver\nCUDA Toolkit 12.8, Driver %s"
    assert diagnose_score.answer(text % "13.0")["cause"] != "driver-too-old"
    assert diagnose_score.answer(text % "12.4")["cause"] == "driver-too-old"


def test_what_is_asked_of_a_family_is_no_release_that_is_here():
    text = "pip fails: `cuda-python>=12.0` is asked for, and cuda-bindings 13.3.1 is installed"
    assert diagnose_score.answer(text)["cause"] is None


def test_a_standard_of_cxx_is_at_fault_beside_a_pytorch_that_asks_for_a_later_one_alone():
    text = "#include <ATen/ATen.h>\nnvcc is started with -std=c++17, torch %s"
    assert diagnose_score.answer(text % "2.14.0")["cause"] == "extension-mismatch"
    assert diagnose_score.answer(text % "2.8.0")["cause"] is None


def test_the_driver_of_a_card_from_blackwell_on_is_the_one_with_open_modules():
    text = "CUDA error: the provided PTX was compiled with an unsupported toolchain.\nnvcc 13.3, %s"
    texts = {
        card: [row["text"] for row in diagnose_score.answer(text % card)["causes"][0]["commands"]]
        for card in ("NVIDIA GB10", "RTX 4090")
    }
    assert any("nvidia-driver-610-open" in command for command in texts["NVIDIA GB10"])
    assert not any("-open" in command for command in texts["RTX 4090"])


def test_the_python_of_a_text_comes_before_the_one_in_the_tag_of_a_wheel():
    text = "flash_attn-2.7.4-cp311-cp311-linux_x86_64.whl is not a supported wheel on this platform.\n"
    assert diagnose_score.answer(text)["read"]["python"] == "3.11"
    assert diagnose_score.answer(text + "Python 3.13.1")["read"]["python"] == "3.13"


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: HIP error: invalid device function\nHIP kernel errors might be asynchronous",
        "hipErrorNoBinaryForGpu: Unable to find code object for all current devices!",
        "ROCm error: invalid device function\n  in function ggml_cuda_compute_forward at ggml-cuda.cu:2366",
        "torch 2.9.1+rocm6.4, RX 7900 XTX\nRuntimeError: CUDA error: no kernel image is available",
    ],
)
def test_what_amds_software_says_has_no_cause_and_no_command_of_nvidias(text):
    document = diagnose_score.answer(text)
    assert document["causes"] == []
    assert document["program"]["elsewhere"]
    assert "none of NVIDIA's software" in render_diagnosis(document)


def test_a_text_with_a_card_of_nvidias_is_not_amds_for_a_word():
    text = "NVIDIA GeForce RTX 3090\nHIP error\nCUDA error: no kernel image is available for execution"
    assert diagnose_score.answer(text)["cause"] == "framework-arch-missing"


@pytest.mark.parametrize(
    "text",
    [
        "XLA is disabling parallel compilation, which may slow down compilation.",
        (
            "The NVIDIA driver's CUDA version is 12.4 which is older than the PTX compiler version 12.6.20. "
            "Because the driver is older than the PTX compiler version, XLA is disabling parallel "
            "compilation, which may slow down compilation. You should update your NVIDIA driver or use the "
            "NVIDIA-provided CUDA forward compatibility packages."
        ),
    ],
)
def test_a_line_of_routine_decides_nothing(text):
    document = diagnose_score.answer(text)
    assert document["causes"] == []
    assert document["harmless"]


@pytest.mark.parametrize(
    ("where", "on_mac"),
    [
        ('File "/Users/bob/venv/lib/python3.12/site-packages/torch/cuda/__init__.py", line 310', True),
        ('File "C:\\Users\\bob\\venv\\lib\\site-packages\\torch\\cuda\\__init__.py", line 310', False),
        ('File "C:/Users/bob/venv/lib/site-packages/torch/cuda/__init__.py", line 310', False),
        ('File "/mnt/c/Users/bob/venv/lib/python3.12/site-packages/torch/cuda/__init__.py", line 310', False),
    ],
)
def test_a_mac_is_known_by_its_folder_of_users_and_gets_no_build_for_cuda(where, on_mac):
    document = diagnose_score.answer(
        where + ", in _lazy_init\nAssertionError: Torch not compiled with CUDA enabled"
    )
    texts = [command["text"] for command in document["causes"][0]["commands"]]
    assert document["cause"] == "framework-cpu-build"
    assert ("mps" in " ".join(texts)) == on_mac
    assert any("torch-backend" in text for text in texts) != on_mac


SMI_FAILED = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
PTXAS_90 = "ptxas fatal : Value 'sm_90' is not defined for option 'gpu-name'"
CUDNN_894 = "Loaded runtime CuDNN library: 8.9.4 but source was compiled with: 9.1.0. CuDNN library"


@pytest.mark.parametrize(
    ("text", "causes", "commands"),
    [
        (SMI_FAILED, ["driver-missing"], ["dkms status; mokutil --sb-state", "dkms autoinstall"]),
        (SMI_FAILED + "\nNixOS", ["driver-missing"], ["lsmod"]),
        (
            CUDNN_894 + "\njax 0.4.30\njaxlib 0.4.30\nnvidia-cudnn-cu12 8.9.4.25",
            ["cudnn-major-mismatch"],
            ['"nvidia-cudnn-cu12>=9.1.0,<10"', "rtbuild up"],
        ),
        (
            CUDNN_894 + "\npip install jax",
            ["cudnn-major-mismatch"],
            ["pip install nvidia-cudnn-cu12==9.1.0"],
        ),
        (
            (
                "PackagesNotFoundError: The following packages are not available from current channels:\n\n"
                "  - pytorch-cuda=11.7*"
            ),
            ["build-not-published"],
            ["pytorch-cuda=11.7 -c pytorch -c nvidia"],
        ),
        ("nothing provides __cuda >=11.8 needed by pytorch", ["driver-missing", "driver-too-old"], None),
        ("nothing provides __cuda needed by tensorflow-2.9.1", ["driver-missing"], None),
        (
            "Could not find cuda drivers on your machine, GPU will not be used.\non WSL, Ubuntu 22.04",
            ["toolkit-library-missing", "driver-missing"],  # it is libcudart that did not open
            ["tensorflow[and-cuda]"],
        ),
        (
            "Could not find cuda drivers on your machine, GPU will not be used.\nDriver Version: 550.54.14",
            ["toolkit-library-missing"],
            ["tensorflow[and-cuda]"],
        ),
        (
            (
                "tensorflow==2.12.1\nCould not find cuda drivers on your machine, GPU will not be used.\n"
                "Driver Version: 550.54.14"
            ),
            ["toolkit-library-missing"],
            ["conda install -c conda-forge cudatoolkit=11.8 cudnn=8", "rtbuild up"],  # its extra came later
        ),
        (PTXAS_90, ["kernel-compiler-too-old", "framework-arch-missing"], None),
        (PTXAS_90 + "\ntensorflow", ["framework-arch-missing"], None),
        (PTXAS_90 + "\ntriton, torch.compile", ["kernel-compiler-too-old"], None),
        (
            "Could not find cuda drivers on your machine, GPU will not be used\n" * 2,
            ["toolkit-library-missing", "driver-missing"],
            None,
        ),
        (
            "kernel version 470.182.3 does not match DSO version 520.61.5 -- cannot find working devices",
            ["driver-library-mismatch", "compat-unsupported"],
            None,
        ),
        (
            (
                "TensorFlow was not built with CUDA kernel binaries compatible with compute capability 12.0\n"
                "'cuModuleLoadData(&module, data)' failed with 'CUDA_ERROR_INVALID_PTX'"
            ),
            ["framework-arch-missing"],
            None,
        ),
    ],
)
def test_classes_of_faults_that_a_new_users_tasks_showed(text, causes, commands):
    document = diagnose_score.answer(text)
    assert [row["cause"] for row in document["causes"]] == causes
    if commands is not None:
        found = [row["text"] for row in document["causes"][0]["commands"]]
        assert len(found) == len(commands)
        assert all(part in text for part, text in zip(commands, found, strict=True)), found


def test_the_remedy_in_words_stands_beside_the_commands():
    page = render_diagnosis(diagnose_score.answer("torch.cuda.OutOfMemoryError: CUDA out of memory."))
    assert "nvidia-smi" in page
    assert "smaller batch" in page
    assert "PYTORCH_CUDA_ALLOC_CONF" in page


def test_a_narrowed_remedy_stands_beside_its_own_sentence_and_never_beside_the_general_one():
    narrowed = 0
    for signature in read_signatures():
        for cause in signature.causes if signature.wants else ():
            detail = {"matched": signature.example, "line": signature.example}
            remedies = Remedies(TextFacts([]), dict(detail, requirement=signature.wants), signature.systems)
            commands = remedies.commands(cause)
            lines = [row[0] for row in command_lines(cause) if all(map(remedies._holds, row[0].split()))]
            if commands and re.search(r"(?:^|\s)wants-", lines[0]):
                narrowed += 1
                assert remedies.words(cause, commands) != CAUSES[cause].remedy, (signature.id, cause)
    assert narrowed > 100
    rows = [row for cause in CAUSES for row in command_lines(cause)]
    wanting = [row for row in rows if re.search(r"(?:^|\s)wants-", row[0])]
    assert not [row for row in wanting if row[1] != "see" and not row[3]]


@pytest.mark.parametrize(
    ("text", "told", "not_told"),
    [
        (
            "RuntimeError: FlashAttention only supports Ampere GPUs or newer. on a Tesla T4",
            "attn_implementation",
            "another CUDA variant",
        ),
        (
            (
                "LD_LIBRARY_PATH=/usr/local/cuda/compat:/usr/local/nvidia/lib64\n"
                "Error 803: system has unsupported display driver / cuda driver combination\n"
                "Driver Version: 580.95.05\n"
                "docker run IMAGE ls /usr/local/cuda/compat: libcuda.so.570.124.06"
            ),
            "driver 580.95.05 needs nothing",
            "upgrade",
        ),
        (
            "CUDA error 304: cudaErrorOperatingSystem\n>>> ctypes.CDLL(None).syscall(319, b'x', 0)\n-1",
            "memfd_create",
            "check the user's groups",
        ),
    ],
)
def test_the_sentence_names_the_act_of_the_command(text, told, not_told):
    page = " ".join(render_diagnosis(diagnose_score.answer(text)).split())
    assert told.lower() in page.lower()
    assert not_told.lower() not in page.lower()


@pytest.mark.parametrize(
    ("text", "command", "told", "not_told"),
    [
        (
            "PS C:\\x> torch 2.9.1+cu128\nTritonMissing: Cannot find a working triton installation",
            "triton-windows>=3.5,<3.6",
            "no wheels for Windows",
            "reinstall",
        ),
        (
            "PS C:\\x> torch 2.8.0+cu128\nERROR: No matching distribution found for triton",
            "triton-windows>=3.4,<3.5",
            "no wheels for Windows",
            "take another CUDA",
        ),
        (
            (
                "MacBook:~ $ pip install torch==2.8.0+cu126 --index-url https://download.pytorch.org/whl/cu126\n"
                "ERROR: No matching distribution found for torch==2.8.0+cu126"
            ),
            None,
            "No build for macOS has CUDA",
            "take another CUDA",
        ),
        (
            (
                "uv sync\n"
                "Distribution `torch==2.8.0+cu126 @ registry+https://download.pytorch.org/whl/cu126` "
                "can't be installed because it doesn't have a source distribution or wheel for "
                "the current platform\nhint: You're on macOS (`macosx_15_0_arm64`)"
            ),
            None,
            "sys_platform == 'linux'",
            "take another CUDA",
        ),
        (
            "Collecting torch==2.8.0\n[Errno 28] No space left on device\nthe runner has no GPU",
            "torch==2.8.0 --index-url https://download.pytorch.org/whl/cpu",
            "build for the CPU",
            "TMPDIR",
        ),
        (
            (
                "PS C:\\x> pip install easyocr\nSuccessfully installed torch-2.9.0\n"
                'PS C:\\x> python -c "import torch"\nOSError: [WinError 1114] '
                'Error loading "C:\\x\\torch\\lib\\c10.dll" or one of its dependencies.'
            ),
            "whl/cpu",
            "run-time",
            "needs a driver",
        ),
        (
            (
                "RuntimeError: Could not load libtorchcodec. We support versions 4 on all platforms, and 8 "
                "on Mac and Linux.\ntorchcodec/libtorchcodec_core6.so: "
                "undefined symbol: _ZNK3c1016SymIntArrayRef4dataEv\n"
                "torch 2.7.1+cu126, torchcodec 0.8.1"
            ),
            'torchcodec==0.5.*"',
            "PyTorch",
            "for a Mac",
        ),
    ],
)
def test_the_platform_and_the_versions_of_the_text_decide_the_remedy(text, command, told, not_told):
    document = diagnose_score.answer(text)
    page = " ".join(render_diagnosis(document).split())
    commands = [row["text"] for cause in document["causes"] for row in cause["commands"]]
    assert (
        any(command in row for row in commands) if command else not any("/whl/cu" in row for row in commands)
    )
    assert told in page
    assert not_told not in page


_SATISFIED = "Requirement already satisfied: torch in /home/a/envs/x/lib/python3.11/site-packages (2.8.0)\n"
_ABSENT = "ModuleNotFoundError: No module named 'torch'\n"


@pytest.mark.parametrize("text", [_SATISFIED + _ABSENT, _ABSENT + "$ pip install torch\n" + _SATISFIED])
def test_what_pip_has_and_python_has_not_is_of_two_pythons(text):
    document = diagnose_score.answer(text)
    assert document["cause"] is None
    assert "ipykernel install" in document["program"]["says"]
    built = _SATISFIED + "Collecting flash-attn\nGetting requirements to build wheel: error\n" + _ABSENT
    assert diagnose_score.answer(built)["cause"] == "build-isolation"


@pytest.mark.parametrize(
    ("driver", "command"),
    [("470.256.02", "torch==2.7.1 torchvision==0.22.1 --index-url"), (None, None), ("390.157", None)],
)
def test_a_torch_load_that_is_refused_gets_a_pytorch_that_the_driver_serves(driver, command):
    text = (
        "ValueError: Due to a serious vulnerability issue in `torch.load`, even with `weights_only=True`, we "
    )
    text += "now require users to upgrade torch to at least v2.6. Tesla V100"
    document = diagnose_score.answer(text + (", driver " + driver if driver else ""))
    commands = [row["text"] for row in document["causes"][0]["commands"] if row["where"] == "pip"]
    assert "safetensors" in document["causes"][0]["remedy"]
    assert command in commands[0] if command else not commands


def test_versions_of_the_text_stand_in_the_reason():
    text = "torch 2.6.0, jax 0.5.3, jaxlib 0.5.3, nvidia-cudnn-cu12 9.1.0.70\n"
    text += "jaxlib: Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.8.0."
    assert "pins nvidia-cudnn-cu12==9.1.0.70" in " ".join(diagnose_score.answer(text)["causes"][0]["because"])
    text = "The CUDA compiler identification is NVIDIA 12.0.140\n/usr/bin/nvcc -c a.cu\n"
    text += "nvcc fatal   : Unsupported gpu architecture 'compute_120'\n"
    text += "Driver Version: 580.95.05   CUDA Version: 13.0"
    told = " ".join(diagnose_score.answer(text)["causes"][0]["because"])
    assert "nvcc in use is of CUDA 12.0 (/usr/bin/nvcc" in told


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("(GitHub-hosted, no GPU) torch 2.9.1", True),
        ("the runner has no GPU", True),
        ("RuntimeError: No GPU found", False),
        ("No GPU available, using the CPU", False),
        ("I have no GPU in this container, RTX 3090, driver 580.95.05", False),
    ],
)
def test_a_machine_without_a_card_is_one_whose_text_says_so_and_names_none(text, without):
    facts = TextFacts([Line("x", 1, text)])
    assert Remedies(facts, {}).without_card() is without


def test_a_look_decides_for_no_other_cause_than_those_that_are_listed():
    document = diagnose_score.answer("CUDA Setup failed despite GPU being available.")
    assert "extension-mismatch" in document["look"]["decides"]
    named = re.compile(r"[a-z]+(?:-[a-z]+)+")
    for row in (row for row in read_signatures() if row.kind in ("fits", "class") and len(row.causes) > 1):
        look = look_for(list(row.causes), [{}], TextFacts([]))
        told = set(named.findall(look["decides"])) & set(CAUSES)
        assert not told - set(row.causes) or len(told & set(row.causes)) > 1, (row.id, look)


@pytest.mark.slow
def test_a_line_that_is_logged_twice_has_the_causes_of_one():
    different = []
    for row in (row for row in read_signatures() if row.kind == "proves"):
        once, twice = (diagnose_score.answer("\n".join([row.example] * count)) for count in (1, 2))
        if [one["cause"] for one in once["causes"]] != [one["cause"] for one in twice["causes"]]:
            different.append(row.id)
    assert different == []


@pytest.mark.parametrize(
    ("text", "told", "first", "last"),
    [
        (
            "torch==2.6.0 torchvision==0.20.0 xformers==0.0.28, RTX 5090, Driver Version: 550.54",
            ("older than RTX 5090", "no code for", "torchvision 0.20.0 and xformers 0.0.28"),
            "nvidia-driver-580-open",
            (
                "pip install --force-reinstall torch==2.7.1 torchvision==0.22.1 xformers==0.0.31.post1 "
                "--index-url https://download.pytorch.org/whl/cu128"
            ),
        ),
        (
            "GTX 1080 Ti does not work, driver 595.71.05, torch 2.9.0+cu130",
            ("no longer serves GTX 1080 Ti", "no code for"),
            "nvidia-driver-580",
            "pip install --force-reinstall torch==2.9.0 --index-url https://download.pytorch.org/whl/cu126",
        ),
        (
            "RTX 3090, driver 470.199, torch 2.7.0 and torchvision 0.21.0, Python 3.8: import fails",
            ("CUDA 12 needs", "Python 3.8", "torchvision 0.21.0 is not"),
            "torch==2.4.1",
            (
                "pip install --force-reinstall torch==2.4.1 torchvision==0.19.1 "
                "--index-url https://download.pytorch.org/whl/cu118"
            ),
        ),
        (
            "RTX 4090, driver 535.183.01, jax 0.7.2, jaxlib 0.6.0, torch 2.9.0+cu130",
            ("CUDA 13 needs", "jaxlib 0.6.0"),
            "rtbuild resolve",
            "rtbuild resolve torch jax --gpu 'RTX 4090' --driver 535.183.01",
        ),
    ],
)
def test_all_facts_that_contradict_each_other_are_told_and_one_way_satisfies_them(text, told, first, last):
    row = diagnose_score.answer(text)["causes"][0]
    for words, sentence in zip(told, row["because"], strict=False):
        assert words in sentence
    assert first in row["commands"][0]["text"]
    assert row["commands"][-1]["text"] == last


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("As of Fedora 44 / Nvidia ~590 my 940MX is dead", "driver", "590"),
        ("since R595 drivers came to the repository", "driver", "595"),
        ("the 590xx drivers are installed", "driver", "590"),
        ("a wheel of cu130 on a CC 6.1 card", "capability", "6.1"),
        ("the sm_103 hardware of the cluster", "capability", "10.3"),
        ("Failed on SM107 hardware", "capability", "10.7"),
        ("GTX 1080 Ti does not work", "cards", ["GTX 1080 Ti"]),
        ("the H100 runner fails", "cards", ["H100"]),
        ("nan on an A100 torch 2.8", "cards", ["A100"]),
        ("host driver must be >= 570 (CUDA 12.8)", "driver_cuda", None),
    ],
)
def test_facts_in_the_words_of_people_are_read(text, key, value):
    assert diagnose_score.answer(text)["read"][key] == value


def test_a_check_for_the_very_name_of_a_card_is_the_programs_own_fault():
    served = "RTX 4060 (sm_89) is not supported by this PyTorch build. Supported architectures: sm_80, sm_86"
    assert diagnose_score.answer(served)["program"]
    assert not diagnose_score.answer(served)["causes"]
    left_out = served.replace("sm_80, sm_86", "sm_90, sm_100")
    assert diagnose_score.answer(left_out)["cause"] == "framework-arch-missing"


_CODES = {
    "driver-error": "CUDA_ERROR_CONTAINED cudaErrorNvlinkUncorrectable cudaErrorExternalDevice "
    "CUDA_ERROR_TIMEOUT CUDA_ERROR_DEVICE_NOT_LICENSED cudaErrorStartupFailure "
    "NVML_ERROR_GPU_IS_LOST NVML_ERROR_IRQ_ISSUE",
    "device-busy": "cudaErrorDevicesUnavailable CUDA_ERROR_DEVICE_UNAVAILABLE NVML_ERROR_IN_USE",
    "driver-stub": "cudaErrorStubLibrary CUDA_ERROR_STUB_LIBRARY",
    "driver-library-mismatch": "cudaErrorSystemDriverMismatch NVML_ERROR_LIB_RM_VERSION_MISMATCH",
    "driver-missing": "NVML_ERROR_DRIVER_NOT_LOADED",
    "device-access-denied": "NVML_ERROR_NO_PERMISSION",
    "variable-breaks-framework": "CUDA_ERROR_JIT_COMPILATION_DISABLED",
    None: "cudaErrorInvalidPitchValue CUDA_ERROR_NOT_MAPPED CUDA_ERROR_STREAM_CAPTURE_MERGE "
    "cudaErrorNotReady NVML_ERROR_NOT_SUPPORTED CUFFT_INVALID_SIZE NVRTC_ERROR_INVALID_INPUT "
    "CUDNN_STATUS_RUNTIME_IN_PROGRESS",
}


@pytest.mark.parametrize("cause", _CODES)
def test_each_code_has_an_answer(cause):
    for code in _CODES[cause].split():
        document = diagnose_score.answer(f"RuntimeError: {code}")
        assert document["cause"] == cause, code
        assert cause or "nothing in" in document["look"]["decides"].lower(), code


def test_each_number_of_the_kernels_log_and_of_cuda_has_an_answer():
    numbers = [*range(1, 173)]
    texts = [f"NVRM: Xid (PCI:0000:01:00): {number}, pid=1234, name=python" for number in numbers]
    texts += [f"CUDA error {number}" for number in (4, 28, 49, 102, 216, 223, 401, 720, 811, 909, 999)]
    for text in texts:
        document = diagnose_score.answer(text)
        silent = not document["look"] or "no signature fits" in document["look"]["decides"]
        assert document["causes"] or document["program"] or not silent, text


_LOST = """
cannot import name 'AutoModelForVision2Seq' from 'transformers', 5.2.0 | 5.2.0, which | transformers<5
cannot import name 'AutoModelForVision2Seq' | AutoModelForImageTextToText | transformers>=4.31,<5
module 'jax.core' has no attribute 'concrete_or_error' | is jax.extend.core.concrete_or_error now | jax<0.11
No module named 'torch.ao.quantization.pt2e.utils' | 2.11.0, which the text names, is | torch<2.11
'LlamaConfig' object has no attribute 'rope_theta' | is config.rope_parameters | transformers<5
module 'numpy' has no attribute 'row_stack' | 2.4 is the last release with it | numpy<2.5
'DataFrame' object has no attribute 'append' | 1.5 is the last release with it | pandas<2
'SubDataFrame' object has no attribute 'append'. pandas==2.2.0 | DataFrame.append | pandas<2
type object 'DataFrame' has no attribute 'iteritems' | DataFrame.iteritems no longer from 2 on | pandas<2
'FreeTypeFont' object has no attribute 'getsize' | it is getbbox now | pillow<10
"""


@pytest.mark.parametrize("row", _LOST.strip().splitlines())
def test_a_name_that_a_release_lost_says_which_and_where_it_is_now(row):
    text, told, command = row.split(" | ")
    kind = "AttributeError: " if "attribute" in text else "ModuleNotFoundError: " if "module" in text else ""
    text = kind + text.replace(", 5.2.0", "\ntransformers==5.2.0") + "\ntorch 2.11.0" * ("torch" in text)
    text = text.replace(". pandas", "\npandas")
    document = diagnose_score.answer(text)
    assert (document["cause"], document["decided"]) == ("package-pin-mismatch", True)
    assert any(told in reason for reason in document["causes"][0]["because"])
    assert f'"{command}"' in document["causes"][0]["commands"][0]["text"]


@pytest.mark.parametrize(
    ("text", "told", "command"),
    [
        (
            "TypeError: DataFrame.fillna() got an unexpected {} 'method'",
            "method of DataFrame.fillna()",
            "pandas<3",
        ),
        (
            "    s = pd.Series(x)\nTypeError: __init__() got an unexpected {} 'fastpath'",
            "of Series()",
            "pandas<3",
        ),
    ],
)
def test_an_argument_that_a_release_lost_is_of_the_function_that_is_called(text, told, command):
    document = diagnose_score.answer(text.format("keyword argument"))
    assert (document["cause"], document["decided"]) == ("package-pin-mismatch", True)
    assert any(told in reason for reason in document["causes"][0]["because"])
    assert f'"{command}"' in document["causes"][0]["commands"][0]["text"]


_FRAMES = """\
  File "/home/me/lib/train.py", line 3, in <module>
  File "/venv/lib/python3.11/site-packages/accelerate/accelerator.py", line 300, in prepare
  File "{}", line 12, in call
  File "/venv/lib/python3.11/site-packages/transformers/trainer.py", line 172, in __getattr__
AttributeError: 'MyTrainer' object has no attribute 'tokenizer'
transformers 5.1.0
accelerate {}
"""


@pytest.mark.parametrize(
    ("file", "release", "commands"),
    [
        ("/usr/lib/python3.11/contextlib.py", "0.30.1", ["--upgrade accelerate", '"transformers<5"']),
        ("/usr/lib/python3.11/contextlib.py", "9.0", ['"transformers<5"']),
        ("/home/me/lib/train.py", "0.30.1", ['"transformers<5"']),
    ],
    ids=["an older one asks", "the newest one asks", "the program asks"],
)
def test_who_asks_for_what_is_gone_is_upgraded_where_it_has_later_releases(file, release, commands):
    row = diagnose_score.answer(_FRAMES.format(file, release))["causes"][0]
    told = next(one for one in row["because"] if "MyTrainer.tokenizer no longer from 5 on" in one)
    assert "it is processing_class now" in told
    assert [one["text"].partition("install ")[2] for one in row["commands"]] == commands


def test_an_attribute_of_an_object_is_no_name_of_a_package():
    document = diagnose_score.answer(
        "pandas==2.2\nAttributeError: 'NoneType' object has no attribute 'append'"
    )
    assert document["cause"] is None
    document = diagnose_score.answer("AttributeError: 'Reader' object has no attribute 'product'")
    assert document["cause"] is None


def test_a_release_beside_a_name_that_it_has_is_not_that_of_what_is_imported():
    text = "ImportError: cannot import name 'download_url' from 'transformers.utils'\nb: transformers==4.57.1"
    row = diagnose_score.answer(text)["causes"][0]
    assert row["cause"] == "package-pin-mismatch"
    assert any("4.57.1 that the text names has it" in reason for reason in row["because"])
    assert not any("asks transformers 4.57.1 for" in reason for reason in row["because"])
