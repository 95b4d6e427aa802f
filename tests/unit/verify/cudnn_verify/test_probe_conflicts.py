# ruff: noqa: E501, RUF001, as installers print it
"""Who asks, and whose bound holds, in all forms that installers print."""

import pytest

from builder.verify.cudnn_verify.read.diagnosis import diagnose
from builder.verify.cudnn_verify.read.reading import read_text_given
from builder.verify.cudnn_verify.read.text_facts import requirements_told


def first(text):
    return next(iter(diagnose(read_text_given(text))["causes"]), None)


# https://github.com/cocktailpeanut/fluxgym/pull/506
PIP = """ERROR: Cannot install -r requirements.txt (line 3) and transformers==4.49.0 because these package versions have conflicting dependencies.

The conflict is caused by:
    diffusers 0.40.0 depends on huggingface_hub<2.0 and >=1.23.0
    transformers 4.49.0 depends on huggingface-hub<1.0 and >=0.26.0
"""
BARE = """diffusers==0.40.0.dev0 depends on huggingface_hub>=1.23.0,<2.0
transformers==4.49.0 depends on huggingface-hub>=0.26.0,<1.0
"""
UV = """  × No solution found when resolving dependencies:
  ╰─▶ Because vllm==0.11.0 depends on transformers>=4.55.2,<5, we can conclude that vllm==0.11.0 and transformers>=5 are incompatible.
      And because your project depends on vllm==0.11.0 and transformers>=5, we can conclude that your project's requirements are unsatisfiable.
"""
MAMBA = """Could not solve for environment specs
The following packages are incompatible
├─ numpy 2.0** * is requested and can be installed;
└─ scikit-image 0.21.0** * is not installable because it requires
   └─ numpy >=1.21,<2 *, which conflicts with any installable versions previously reported.
"""
POETRY = """Because torchvision (0.19.0) depends on torch (2.4.0)
 and myproject depends on torch (^2.5), torchvision is forbidden.
So, because myproject depends on torchvision (0.19.0), version solving failed.
"""
# https://github.com/vllm-project/vllm-ascend/issues/9225
MARKED = """The conflict is caused by:
    vllm 0.19.1 depends on torch==2.10.0; platform_machine == "aarch64"
    vllm-ascend 0.19.1rc1 depends on torch==2.9.0
"""


@pytest.mark.parametrize(
    ("text", "told", "command"),
    [
        (PIP, "diffusers 0.40.0 wants huggingface-hub<2.0,>=1.23.0, and transformers 4.49.0", "diffusers transformers"),
        (BARE, "transformers 4.49.0 >=0.26.0,<1.0", "--upgrade diffusers transformers"),
        (UV, "vllm 0.11.0 wants transformers>=4.55.2,<5", 'vllm==0.11.0 "transformers>=4.55.2,<5"'),
        (MAMBA, "scikit-image 0.21.0 wants numpy>=1.21,<2", 'conda install -c conda-forge scikit-image==0.21.0 "numpy>=1.21,<2"'),
        (POETRY, "torchvision 0.19.0 wants torch==2.4.0", "torchvision==0.19.0 torch==2.4.0"),
        (MARKED, "vllm-ascend 0.19.1rc1 wants torch==2.9.0, and vllm 0.19.1 ==2.10.0", "vllm==0.19.1"),
    ],
    ids=["pip", "bare", "uv", "mamba", "poetry", "marker"],
)  # fmt: skip
def test_both_sides_are_named_with_a_line_that_satisfies_them(text, told, command):
    row = first(text)
    assert row["cause"] == "package-pin-mismatch"
    assert any(told in reason for reason in row["because"]), row["because"]
    assert command in row["commands"][0]["text"], row["commands"]


def test_a_second_requirement_of_one_sentence_is_read():
    assert requirements_told("your project depends on vllm==0.11.0 and transformers>=5") == [
        (None, "vllm", "==0.11.0"),
        (None, "transformers", ">=5"),
    ]


def test_requirements_that_go_together_are_no_conflict():
    assert first("accelerate 1.2 depends on torch>=1.10\ntimm 1.0 depends on torch>=1.7\n") is None


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("pkg_resources.ContextualVersionConflict: (numpy 2.0.1 (/usr/lib/python3.10/site-packages), Requirement.parse('numpy<2.0,>=1.17'), {'numba'})", '"numpy<2.0,>=1.17"'),
        ("pkg_resources.VersionConflict: (setuptools 40.8.0 (/opt/lib), Requirement.parse('setuptools>=42'))", '"setuptools>=42"'),
        ("ImportError: Found an incompatible version of auto-gptq. Found version 0.4.2, but only version above 0.5.0 are supported", '"auto-gptq>=0.5.0"'),
    ],
)  # fmt: skip
def test_a_bound_that_is_checked_as_a_package_is_imported(text, command):
    row = first(text)
    assert row["cause"] == "package-pin-mismatch"
    assert command in row["commands"][0]["text"]


def test_a_build_for_the_cpu_that_no_index_has_is_not_the_build_that_is_here():
    """https://github.com/modelscope/DiffSynth-Studio/issues/1236"""
    text = (
        "  × No solution found when resolving dependencies:\n  ╰─▶ Because diffsynth[npu] depends on "
        "torch==2.7.1+cpu and there is no version of torch==2.7.1+cpu, we can conclude that diffsynth[npu]'s "
        "requirements are unsatisfiable.\n"
    )
    assert first(text)["cause"] == "build-not-published"
