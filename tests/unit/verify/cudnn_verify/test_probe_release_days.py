"""Which of two packages is the later one, by the days of their releases, and the release that mends it.

The lines are those that the libraries print; each class is from public threads.
"""

import pytest
from pages import diagnose_score

from builder.verify.cudnn_verify.common.release_days import (
    day_of,
    day_told,
    first_after,
    last_for_python,
    newest_by,
)
from builder.verify.cudnn_verify.read.reading import redact


def _first(text):
    """(cause, its commands, what is told because of it, the look) of a text."""
    document = diagnose_score.answer(text)
    row = document["causes"][0]
    commands = [command["text"] for command in row["commands"]]
    return row["cause"], commands, row["because"], document["look"]


def test_the_day_of_a_release_is_that_of_the_release_or_of_the_one_before():
    assert day_of("peft", "0.18.0") == day_of("peft", "0.18.0+local") == 251113
    assert day_of("peft", "0.18.0.1") == 251113
    assert day_of("peft", "") is None
    assert day_of("no-such-package", "1.0") is None
    assert day_of("flash-attn", "2.8.3") < day_of("flash-attn", "2.8.3.post1")
    assert day_told(251113) == "November 2025"
    assert newest_by("apache-tvm-ffi", 260226) == "0.1.8.post2"
    assert first_after("apache-tvm-ffi", 260226) == "0.1.9"
    assert newest_by("peft", 200101) is None


@pytest.mark.parametrize(
    ("text", "command", "told"),
    [
        # the one that asks is the older: https://github.com/pyro-ppl/numpyro/issues/2172
        (
            (
                'File "/v/site-packages/numpyro/ops/provenance.py", line 7, in <module>\n'
                "ImportError: cannot import name 'xla_zmap_p' from 'jax.extend.core.primitives' "
                "(/v/site-packages/jax/extend/core/primitives.py)\njax-0.10.0 numpyro-0.20.1"
            ),
            'pip install "jax<0.10"',
            None,
        ),
        # the one that asks is the newer: https://github.com/huggingface/peft/issues/3290
        (
            (
                'File "/v/site-packages/transformers/integrations/a.py", line 7, in <module>\n'
                "ImportError: cannot import name 'no_such_helper' from 'peft.utils.save_and_load'\n"
                "transformers 5.12.1, peft 0.18.1"
            ),
            'pip install "peft>=0.19',
            None,
        ),
        # nobody is known to ask: of the few others in the text, all are later
        (
            (
                "ImportError: cannot import name 'no_such_helper' from 'peft.utils.save_and_load'\n"
                "diffusers 0.38.0, transformers 5.12.1, peft 0.18.1"
            ),
            'pip install "peft>=0.19',
            None,
        ),
        # a runtime in C++ aborts, and who asks for it by its own requirements is older
        (
            (
                "terminate called after throwing an instance of 'tvm::ffi::Error'\n  what(): registered\n"
                "apache-tvm-ffi 0.1.12, quack-kernels 0.4.0, transformers 4.57.1"
            ),
            'pip install "apache-tvm-ffi<0.1.11"',
            "what asks was written for an earlier apache-tvm-ffi",
        ),
        # https://github.com/VsonicV/es-at-scale/issues/41: what raises asks for one that is later
        (
            (
                'File "/v/site-packages/vllm/transformers_utils/tokenizer.py", line 96, in cached\n'
                "AttributeError: Qwen9Tokenizer has no attribute no_such_thing\n"
                "vLLM version: 0.11.0\ntransformers version: 5.1.0\nray version: 2.53.0"
            ),
            'pip install "transformers<4.57.1"',
            "what asks was written for an earlier transformers",
        ),
        # frames of a crash by their namespaces
        (
            (
                "!!!!!!! Segfault encountered !!!!!!!\n"
                '  File "<unknown>", line 0, in tvm::ffi::Metadata::ToJSON\n'
                '  File "<unknown>", line 0, in xgrammar::init()\nxgrammar==0.2.3 apache-tvm-ffi==0.1.13'
            ),
            'pip install "apache-tvm-ffi<0.1.13"',
            "which xgrammar calls",
        ),
        # the class of the exception is the package's own
        (
            (
                "vllm serve m\ntransformers.integrations.a.AmbiguousAttributeError: 'head_dim' may vary\n"
                "transformers in the image: 5.15.0"
            ),
            'pip install "transformers<5.15"',
            "own code of transformers 5.15.0",
        ),
    ],
)
def test_the_later_of_two_packages_is_told_by_their_days(text, command, told):
    cause, commands, because, _ = _first(text)
    assert cause == "package-pin-mismatch"
    assert commands[0].startswith(command)
    assert told is None or any(told in reason for reason in because)


def test_pytorch_is_raised_to_the_time_of_what_asks_it():
    text = (
        "transformers version: 5.15.0\nPyTorch version: 2.6.0+cu124\nPlatform: Linux\n"
        "ImportError: cannot import name 'no_such_name' from 'torch.fx.experimental.symbolic_shapes'"
    )
    command = 'uv pip install --upgrade "torch>=2.13" torchvision torchaudio --torch-backend=auto'
    assert _first(f"{text}\n>>> import transformers.exporters\n")[1][0] == command


def test_what_runs_out_of_its_sources_is_newer_than_what_is_installed():
    # https://github.com/vllm-project/llm-compressor/issues
    text = (
        '  File "/home/me/llm-compressor/src/llmcompressor/entrypoints/__init__.py", line 13, in <module>\n'
        "ImportError: cannot import name 'NoSuchProfiler' from 'compressed_tensors.convert.memory' "
        "(/v/site-packages/compressed_tensors/convert/memory.py)"
    )
    assert _first(text)[1] == ["pip install --upgrade compressed-tensors"]


def test_a_release_that_works_by_the_texts_own_words_is_the_mend():
    # https://github.com/huggingface/diffusers/issues/12580
    error = "ModuleNotFoundError: Could not import module 'CLIPTextModel'."
    cause, commands, because, _ = _first(
        f"{error}\ntransformers: 4.57.0\nWith transformers 4.51.3 (and the same diffusers) it works."
    )
    assert (cause, commands) == ("package-pin-mismatch", ["pip install transformers==4.51.3"])
    assert because == ["it works with transformers 4.51.3, as the text says itself"]
    silent = diagnose_score.answer(f"{error}\nIt does not work with transformers 4.51.3 either.")
    assert not silent["causes"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            (
                'Traceback (most recent call last):\n  File "/v/site-packages/vllm/a.py", line 20, in main\n'
                "    import vllm.b\n  ..."
            ),
            "the last frame is of vllm",
        ),
        (
            '  File "/home/me/app.py", line 20, in main\n    run()\n(the rest is cut)',
            "ends before the exception",
        ),
    ],
)
def test_a_traceback_without_its_exception_is_said_to_be_cut(text, told):
    document = diagnose_score.answer(text)
    assert not document["causes"]
    assert told in document["look"]["decides"]
    whole = diagnose_score.answer(text + "\nOddError: a message of a program's own")
    assert whole["look"] is None or "ends before" not in whole["look"]["decides"]


@pytest.mark.parametrize(
    ("text", "cause", "command"),
    [
        # https://github.com/vllm-project/vllm/issues/36099: the wheel's own CUDA decides on its PyTorch
        (
            (
                "uv pip install vllm==0.17.0 --torch-backend=auto\n"
                "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory"
            ),
            "cuda-major-mixed",
            "uv pip install --reinstall vllm==0.17.0 --torch-backend=cu128",
        ),
        # https://github.com/pytorch/audio/issues/3902: the last index with torchaudio
        (
            "uv pip install vllm==0.27.1 --torch-backend=cu132 doesn't resolve (it pins torchaudio==2.11.0)",
            "build-not-published",
            "uv pip install vllm==0.27.1 --torch-backend=cu130",
        ),
        # https://github.com/microsoft/onnxruntime/issues/27653
        (
            (
                "Because onnxruntime==1.24.1 has no wheels with a matching Python ABI tag (`cp310`) and "
                "your project depends on onnxruntime==1.24.1, the requirements are unsatisfiable."
            ),
            "build-not-published",
            "pip install onnxruntime==1.23.2",
        ),
        # https://github.com/Dao-AILab/flash-attention/issues/2008
        (
            (
                "Guessing wheel URL: https://h/v2.8.3/flash_attn-2.8.3+cu12torch2.9cxx11abiTRUE-cp313-cp313-linux.whl\n"
                "Precompiled wheel not found. Building from source..."
            ),
            "build-not-published",
            "FLASH_ATTENTION_FORCE_BUILD=TRUE pip install --no-cache-dir --no-build-isolation flash-attn",
        ),
        # https://github.com/modelscope/ms-swift/issues/8352
        (
            "ValueError: Tokenizer class TokenizersBackend does not exist or is not currently imported.",
            "package-pin-mismatch",
            "pip install --upgrade transformers",
        ),
        # https://github.com/huggingface/diffusers/issues
        (
            (
                "Some weights of the model were newly initialized: ['proj']\npipe.to(device)  # diffusers\n"
                "NotImplementedError: Cannot copy out of meta tensor; no data!"
            ),
            "package-pin-mismatch",
            "pip install --upgrade diffusers",
        ),
    ],
)
def test_the_first_command_has_the_release_or_the_index_that_fits(text, cause, command):
    found = _first(text)
    assert found[0] == cause
    assert found[1][0].removeprefix("uv pip").removeprefix("pip") == command.removeprefix(
        "uv pip"
    ).removeprefix("pip")


def test_two_packages_of_a_traceback_are_taken_in_releases_of_one_time():
    # https://github.com/unslothai/unsloth/issues/3727
    text = (
        '  File "/v/site-packages/unsloth_zoo/gradient_checkpointing.py", line 492, in forward\n'
        '  File "/v/site-packages/transformers/models/gpt_oss/modeling_gpt_oss.py", line 160, in forward\n'
        '  File "/v/site-packages/torch/nn/modules/module.py", line 1786, in _call_impl\n'
        "TypeError: patch_gpt_oss.<locals>.Mxfp4GptOssExperts.forward() got an unexpected keyword argument "
        "'router_indices'"
    )
    assert _first(text)[1] == ["pip install --upgrade transformers unsloth-zoo"]


def test_libraries_of_a_toolkit_that_a_text_lists_decide_on_the_cuda():
    # https://github.com/pykeio/ort/issues/548
    text = (
        "FAIL : Failed to load library libonnxruntime_providers_cuda.so with error: libcublasLt.so.12: "
        "cannot open shared object file: No such file or directory\n"
        "/usr/local/cuda-13.1/targets/x86_64-linux/lib/libcublasLt.so.13\n"
    )
    document = diagnose_score.answer(text)
    assert (document["cause"], document["decided"]) == ("cuda-major-mixed", True)


def test_a_value_that_is_not_found_is_no_release_of_the_package():
    frame = '  File "/v/site-packages/datasets/arrow_dataset.py", line 10, in __getitem__\n'
    document = diagnose_score.answer(frame + "KeyError: 'text'\ndatasets 3.2.0")
    assert not document["causes"]
    assert document["look"]["command"] == "python3 -m pip show datasets; python3 -m pip check"


def test_the_cudnn_that_a_build_is_told_to_be_made_with_is_not_the_one_that_is_here():
    text = (
        "torch.backends.cudnn.version() raises RuntimeError (version incompatibility)\n"
        "torch 2.13.0a0+nv26.6, built against cuDNN 9.23.0\n"
        "dpkg -l: libcudnn9-cuda-13 9.21.1.3-1, libcudnn9-dev-cuda-13 9.21.1.3-1"
    )
    cause, commands, because, _ = _first(text)
    assert cause == "cudnn-too-old"
    assert because == ["the build is made with cuDNN 9.23.0, and 9.21.1 is here"]
    assert commands[0].endswith("apt-get install -y libcudnn9-cuda-13")


def test_a_wheel_whose_cuda_the_text_tells_is_compared_with_pytorchs():
    text = (
        ">>> torch.version.cuda\n'13.0'\nonnxruntime-gpu is the PyPI wheel (cu12 build)\n"
        "ort providers of the session: ['CPUExecutionProvider']"
    )
    cause, commands, _, _ = _first(text)
    assert (cause, commands) == ("cuda-major-mixed", ['pip install "onnxruntime-gpu[cuda,cudnn]>=1.27"'])


_BUILT = (
    "Getting requirements to build wheel: finished with status 'error'\n"
    "ModuleNotFoundError: No module named 'pkg_resources'\n"
)


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        (_BUILT + "Windows 11, Python 3.12.10", ["(echo setuptools^<82)> build-constraints.txt&& set PIP_C"]),
        (
            "docker compose up\n" + _BUILT,
            ['RUN echo "setuptools<82" >', "ENV PIP_CONSTRAINT="],
        ),
        (_BUILT, ['echo "setuptools<82" > build-constraints.txt && export']),
        (
            "the build of whisper==20240930 crashes:\nModuleNotFoundError: No module named 'pkg_resources'",
            ['echo "setuptools<82" > build-constraints.txt && export'],
        ),
    ],
)
def test_a_bound_on_a_build_is_in_the_form_of_its_place(text, starts):
    commands = _first(text)[1]
    assert [command[: len(start)] for command, start in zip(commands, starts, strict=True)] == starts


def test_the_line_that_was_asked_for_is_asked_again_without_isolation():
    text = (
        "pip install -e .\nGetting requirements to build editable: finished with status 'error'\n"
        "ModuleNotFoundError: No module named 'torch'"
    )
    cause, commands, _, _ = _first(text)
    assert (cause, commands[0]) == ("build-isolation", "pip install --no-build-isolation -e .")


def test_a_companion_of_the_build_for_the_cpu_is_of_its_index():
    # https://github.com/rhel-lightspeed/docs2db/pull/4
    text = "RuntimeError: operator torchvision::nms does not exist\ntorch 2.8.0+cpu\ntorchvision 0.23.0"
    cause, commands, _, _ = _first(text)
    assert cause == "extension-mismatch"
    assert commands[0].endswith("torchvision==0.23.0 --index-url https://download.pytorch.org/whl/cpu")


def test_two_parts_of_one_package_are_taken_anew_together():
    text = "OSError: /v/site-packages/pysiglib_cuda/libcusig.so: undefined symbol: _Z15transform_path_IfEv"
    cause, commands, _, _ = _first(text)
    assert cause == "extension-mismatch"
    assert commands[0].endswith("--no-deps pysiglib pysiglib-cuda")


def test_a_library_of_the_host_is_missing_where_cuda_works():
    text = (
        "ImportError: libnvdla_compiler.so: cannot open shared object file\nOrin NX, docker runtime nvidia\n"
        "torch.cuda.is_available() -> True"
    )
    cause, commands, _, _ = _first(text)
    assert cause == "system-library-missing"
    assert commands[0].endswith("nvidia-l4t-dla-compiler")
    assert _first(text.replace("True", "False"))[0] == "container-no-gpu"


def test_files_of_the_driver_that_an_image_installs_are_the_images_fault():
    text = (
        "image from a Dockerfile with nvidia-utils-580-server=580.126.20-0ubuntu0.24.04.1\n"
        "Failed to initialize NVML: Driver/library version mismatch\nKernel Module  595.58.03"
    )
    row = diagnose_score.answer(text)["causes"][0]
    assert (row["cause"], row["verdict"]) == ("driver-library-mismatch", "broken")
    assert row["commands"][0]["text"].startswith("RUN apt-get purge -y 'nvidia-utils-*'")
    plain = diagnose_score.answer(text.partition("\n")[2])["causes"][0]
    assert (plain["cause"], plain["verdict"]) == ("driver-library-mismatch", "host")


def test_a_toolkit_above_the_driver_speaks_for_the_driver_being_old():
    text = (
        "nvcc 13.3, driver 580.159.03\n"
        "CUDA error: the provided PTX was compiled with an unsupported toolchain."
    )
    _, _, because, _ = _first(text)
    assert not any("speaks against" in reason for reason in because)


def test_a_release_is_no_secret():
    text = "ImportError: tokenizers>=0.22.0,<=0.23.0 is required, but found tokenizers==0.23.1."
    assert redact(text) == text
    assert redact("hf_token=abcdefgh") == "hf_token=[redacted]"
    assert redact("api_key: 12345678") == "api_key: [redacted]"


# https://github.com/pegasystems/pega-datascientist-tools/pull/813
@pytest.mark.parametrize(
    ("text", "commands", "told"),
    [
        (
            "onnxruntime==1.24.3\nuv sync --python 3.10\nno wheel for the current platform (onnxruntime)",
            ['uv add "onnxruntime==1.23.2"', "uv python pin 3.11 && uv sync"],
            "onnxruntime 1.24.3 has no file for Python 3.10: 1.23.2 is the last release with one",
        ),
        # https://github.com/ymx10086/ResearchClaw/issues/16
        (
            (
                ".python-version: Python 3.10\nerror: Distribution onnxruntime==1.24.3 can't be installed "
                "because it doesn't have a source distribution or wheel for the current platform"
            ),
            ["pip install onnxruntime==1.23.2"],
            "onnxruntime 1.24.3 has no file for Python 3.10: 1.23.2 is the last release with one",
        ),
        # a Python that it has files for: another thing is at fault
        (
            "onnxruntime==1.24.3\nuv sync --python 3.12\nno wheel for the current platform (onnxruntime)",
            [],
            None,
        ),
    ],
)
def test_a_release_without_a_file_for_this_python_names_the_last_one_with(text, commands, told):
    cause, found, because, _ = _first(text)
    assert cause == "build-not-published"
    assert [command for command in found if not command.startswith("rtbuild")] == commands
    assert (told in because) is (told is not None)


def test_the_last_release_for_a_python_is_told_of_a_later_one_alone():
    assert last_for_python("onnxruntime", "1.24.3", (3, 10)) == ("1.23.2", "3.11")
    assert last_for_python("onnxruntime", "1.23.2", (3, 10)) is None
    assert last_for_python("onnxruntime", "1.24.3", (3, 11)) is None
    assert last_for_python("onnxruntime", "", (3, 10)) is None
    assert last_for_python("no-such-package", "1.0", (3, 10)) is None
