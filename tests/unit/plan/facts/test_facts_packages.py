"""Compiled packages beside the frameworks: what the rules say of each, and of what stands next to it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from packaging.requirements import Requirement

from builder.core.versions import key
from builder.plan.facts.reading.observed import Truth, WheelTruth
from builder.plan.facts.rules.checking import check, check_candidate
from builder.plan.facts.rules.compiled_packages import FIRST_STABLE
from builder.plan.facts.rules.finding import Outcome
from builder.plan.facts.rules.packages import bad_pairs
from builder.plan.facts.tables import loader as tables
from builder.plan.facts.tables.packages import leaving_out
from builder.verify.cudnn_verify.common.tables import read_patterns


@pytest.fixture
def beside(make):
    def cell(framework: str, *pip: str, **more):
        more = {"python": "3.12", "base": "rootfs:debian/trixie", "cuda": "wheels", **more}
        return make(framework, pip=pip, **more)

    return cell


def said(cell, rule: str, *, truth: Truth | None = None) -> tuple[str, str]:
    """The worst finding of a rule: its outcome, and its message."""
    found = [f for f in check(cell, truth, suggest=False) if f.rule == rule]
    worst = max(found, key=lambda f: f.outcome.severity, default=None)
    return (worst.outcome.value, worst.message) if worst is not None else ("", "")


@pytest.mark.parametrize(
    ("framework", "pip"),
    [
        ("torch==2.14.0", "vllm==0.33.0"),
        ("torch==2.10.0", "vllm==0.19.1"),
        ("torch==2.9.1", "sgl-kernel==0.3.21"),
        ("torch==2.10.0", "xformers==0.0.35"),
        ("torch==2.14.0", "torchvision==0.29.1"),
        ("torch==2.14.0", "bitsandbytes==0.50.2"),
        ("torch==2.14.0", "vllm"),
        ("torch==2.10.0", "vllm"),
    ],
)
def test_what_goes_together_is_possible(beside, framework, pip) -> None:
    assert Outcome.of(check(beside(framework, pip, gpus=("A100",)), suggest=False)).answer == "possible"


@pytest.mark.parametrize(
    ("framework", "pip", "rule", "words"),
    [
        ("torch==2.10.0", "vllm==0.33.0", "package-cuda", "libcudart.so.13, libnvrtc.so.13, and here"),
        ("torch==2.14.0", "sgl-kernel==0.3.21", "package-torch", "asks for symbols that PyTorch 2.9 has"),
        ("torch==2.14.0", "xformers==0.0.35", "package-cuda", "libcudart.so.12, and here is CUDA 13"),
        ("torch==2.14.0", "bitsandbytes==0.45.0", "package-cuda", "no library for the CUDA 13.0"),
        ("torch==2.14.0", "torchcodec==0.5", "package-torch", "asks for symbols that PyTorch 2.7 to 2.9 has"),
        ("torch==2.15.0", "vllm", "package-known", "wants torch==2.14.0, and the cell PyTorch 2.15.0"),
        ("torch==2.9.1", "vllm==0.14.7", "package-known", "there is no vllm 0.14.7 on the package index"),
        ("torch==2.9.1", "flash-attn==2.8.3", "package-python", "asks for PyTorch, nvcc"),
        ("torch==2.9.1", "torchvision==0.29.2", "pins", "torchvision 0.29.2 wants torch>=2.14.0"),
        ("torch==2.9.1", "vllm==0.33.0", "pins", "vllm 0.33.0 wants torch==2.14.0"),
    ],
)  # fmt: skip
def test_what_does_not_is_refused_with_both_sides(beside, framework, pip, rule, words) -> None:
    outcome, message = said(beside(framework, pip), rule)
    assert outcome == "impossible"
    assert words in message


@pytest.mark.parametrize(
    "pip",
    [
        ("opencv-python", "numpy==1.12.1"),
        ("opencv-python==4.3.*",),
        ("pandas<1",),
        ("umap-learn", "numba==0.48"),
    ],
)
def test_a_release_older_than_those_on_record_is_not_refused(beside, pip) -> None:
    old = {"python": "3.8", "base": "ubuntu:20.04", "cuda": "none"}
    assert said(beside("tensorflow==2.2.0", *pip, **old), "package-known") == ("", "")


def test_a_release_that_the_framework_wants_from_before_the_record_is_left_to_the_resolver(beside) -> None:
    """TensorFlow 2.8 wants keras<2.9, the record begins at 2.11: its newest release decides nothing."""
    old = {"python": "3.9", "base": "debian:bullseye", "cuda": "none"}
    assert said(beside("tensorflow==2.8.0", "keras", **old), "package-known") == ("", "")
    outcome, message = said(beside("tensorflow==2.8.0", "keras>=3", **old), "package-known")
    assert outcome == "impossible"
    assert "is not the keras<2.9,>=2.8.0rc0 that the rest asks for" in message


def test_a_newer_release_than_the_tables_is_no_yes(beside) -> None:
    assert said(beside("torch==2.14.0", "vllm==99.1"), "package-known")[0] == "unknown"


def test_a_pre_release_that_another_package_asks_for_refuses_nothing(beside) -> None:
    """sglang 0.5.10 wants flash-attn-4>=4.0.0b4, and no pre-release is on record."""
    outcome, message = said(beside("torch==2.9.1", "sglang==0.5.10"), "package-known")
    assert outcome == "unknown"
    assert "pre-releases" in message


def test_code_for_a_card(beside) -> None:
    cell = beside("torch==2.10.0", "vllm==0.19.1", gpus=("P100",))
    assert said(cell, "package-gpu")[0] == "impossible"
    assert said(replace(cell, gpus=("RTX3090",)), "package-gpu") == ("", "")


@pytest.mark.parametrize(
    ("framework", "pip", "gpu", "outcome"),
    [
        # the default index's build was read, and has it
        ("torch==2.0.1+cu118", "torchvision==0.15.2+cu118", "RTX4090", ""),
        ("torch==2.0.1", "torchvision==0.15.2", "RTX4090", ""),
        ("torch==2.0.1+cu118", "torchaudio==2.0.2+cu118", "RTX4090", ""),
        ("torch==2.2.0+cu118", "torchvision==0.17.0+cu118", "RTX3090", ""),
        ("torch==2.7.1+cu118", "xformers==0.0.31+cu118", "RTX3090", ""),
        # or has none, and this build was not read
        ("torch==2.7.1+cu118", "xformers==0.0.31+cu118", "GTX1080Ti", "unknown"),
        ("torch==2.7.1+cu126", "xformers==0.0.31", "GTX1080Ti", "impossible"),
        ("torch==2.0.1+cu118", "xformers==0.0.22+cu118", "RTX3090", "unknown"),
        ("torch==2.0.1+cpu", "torchvision==0.15.2+cpu", "RTX4090", ""),
    ],
)
def test_a_build_of_pytorch_s_own_index_has_code_for_no_card_because_nobody_read_it(
    beside, framework, pip, gpu, outcome
) -> None:
    index = ("https://download.pytorch.org/whl/cu118",) if "+" in framework and "+" in pip else ()
    cell = beside(framework, pip, python="3.10", base="rootfs:debian/bookworm", gpus=(gpu,), index=index)
    assert said(cell, "package-gpu")[0] == outcome


def test_a_package_that_another_one_wants_is_told_with_who_wants_it(beside) -> None:
    cell = beside("torch==2.10.0", "vllm==0.33.0")
    messages = [f.message for f in check(cell, suggest=False) if f.rule == "package-cuda"]
    assert any("(because vllm 0.33.0 wants torchvision==0.29.0)" in message for message in messages)


def test_a_build_of_pytorch_s_own_index_is_not_what_the_default_index_has(beside) -> None:
    index = ("https://download.pytorch.org/whl/cu126",)
    cell = beside("torch==2.14.0+cu126", "torchvision==0.29.0", index=index)
    assert said(cell, "package-cuda") == ("", "")
    mixed = beside("torch==2.14.0+cu126", "torchvision==0.29.0+cu130", index=index)
    assert said(mixed, "package-cuda")[0] == "impossible"


def test_a_pytorch_for_the_cpu_brings_no_libraries_of_cuda(beside) -> None:
    cell = beside("torch==2.9.1+cpu", "vllm==0.13.0")
    assert said(cell, "package-cuda")[1].endswith("which PyTorch 2.9.1+cpu does not bring")


@pytest.mark.parametrize(
    ("pip", "keep"),
    [
        (("opencv-python", "opencv-contrib-python"), "opencv-contrib-python"),
        (("opencv-python", "opencv-python-headless"), "opencv-python-headless"),
        (("faster-whisper==1.1.0", "onnxruntime-gpu"), "onnxruntime-gpu"),
        (("nvidia-nccl-cu13",), "nvidia-nccl-cu12"),
    ],
)
def test_of_two_distributions_with_the_same_files_one_is_kept(beside, pip, keep) -> None:
    outcome, message = said(beside("torch==2.9.1", *pip), "same-files")
    assert outcome == "impossible"
    assert f"Keep {keep}: " in message
    assert said(beside("torch==2.9.1", *pip, dependencies="listed"), "same-files")[0] in {"warns", ""}
    assert said(beside("torch==2.9.1", pip[0] if len(pip) > 1 else "numpy"), "same-files") == ("", "")


def test_a_lock_says_what_is_there(beside) -> None:
    def wheel(name: str, version: str) -> WheelTruth:
        return WheelTruth(name=name, version=version, file=f"{name}-{version}-py3-none-any.whl")

    cell = beside("torch==2.14.0", "transformers")
    wheels = (wheel("torch", "2.14.0"), wheel("xformers", "0.0.35"), wheel("opencv-python", "4.12.0.88"))
    truth = Truth(wheels=wheels, locked=True)
    assert said(cell, "package-cuda", truth=truth)[0] == "impossible"
    assert said(cell, "same-files", truth=truth) == ("", "")
    both = replace(truth, wheels=(*wheels, wheel("opencv-python-headless", "4.12.0.88")))
    assert said(cell, "same-files", truth=both)[0] == "impossible"


def test_a_pytorch_that_a_package_brings_is_told_and_not_refused_for_another_framework_s_cuda(beside) -> None:
    outcome, message = said(beside("tensorflow[and-cuda]==2.19.0", "torchvision==0.29.2"), "package-cuda")
    assert (outcome, "name it among the frameworks" in message) == ("warns", True)


def test_a_package_without_a_table_is_no_finding(beside) -> None:
    assert (
        Outcome.of(check(beside("torch==2.14.0", "transformers", "einops"), suggest=False))
        is Outcome.POSSIBLE
    )


def test_a_release_that_the_framework_itself_names_is_no_question(beside) -> None:
    def locked(triton: str) -> Truth:
        wheels = [("torch", "2.1.2"), ("triton", triton)]
        return Truth(
            wheels=tuple(
                WheelTruth(name=name, version=v, file=f"{name}-{v}-py3-none-any.whl") for name, v in wheels
            ),
            locked=True,
        )

    cell = beside("torch==2.1.2", python="3.11")
    assert said(cell, "package-known", truth=locked("2.1.0")) == ("", "")
    assert said(cell, "package-known", truth=locked("2.0.0"))[0] == "unknown"


def test_the_releases_that_were_judged_are_named(beside) -> None:
    asked = beside("torch==2.10.0", "vllm", "transformers", "xformers[all]>=0.0.34")
    cell, _ = check_candidate(asked, None, companions=True)
    assert cell.pip == ("vllm==0.19.1", "transformers", "xformers[all]==0.0.35")


def test_every_package_of_the_list_has_a_table_and_each_file_that_two_of_them_own_is_listed() -> None:
    facts = tables.load()
    together = {frozenset((a, b)) for row in facts.same_files for a in row.names for b in row.names}
    owners: dict[str, set[str]] = {}
    for name, table in facts.packages.items():
        assert table.rows, name
        for module in next((row.modules for row in table.rows if row.modules), ()):
            owners.setdefault(module, set()).add(name)
    # transformer-engine is made to lie beside one of the others, with the same files
    alone = {
        (module, *sorted(names))
        for module, names in ((module, names - {"transformer-engine"}) for module, names in owners.items())
        if len(names) > 1 and not all(frozenset((a, b)) in together for a in names for b in names)
    }
    assert alone == set()


@pytest.mark.parametrize(
    ("framework", "pip", "rule", "change"),
    [
        ("torch==2.10.0", ("torchvision==0.20.1",), "package-torch", ("pip", "torchvision==0.25.0")),
        ("torch==2.10.0", ("sgl-kernel==0.3.21",), "package-torch", ("framework", "torch==2.9.1")),
        ("torch==2.14.0", ("torchcodec==0.5",), "package-torch", ("pip", "torchcodec==0.17.0")),
        ("torch==2.10.0", ("vllm==0.33.0",), "package-cuda", ("pip", "vllm==0.19.1")),
        ("torch==2.14.0", ("bitsandbytes==0.45.0",), "package-cuda", ("pip", "bitsandbytes==0.50.2")),
        ("torch==2.11.0", ("xformers==0.0.35",), "package-cuda", ("framework", "torch==2.11.0+cu126")),
        ("torch==2.15.0", ("vllm",), "package-known", ("framework", "torch==2.14.0")),
        (
            "torch==2.10.0",
            ("onnxruntime-gpu", "onnxruntime"),
            "same-files",
            ("pip", "onnxruntime-gpu==1.26.0"),
        ),
        ("torch==2.11.0", ("nvidia-nccl-cu12",), "same-files", ("pip", "none")),
    ],
)
def test_a_way_out_that_the_same_rules_let_pass(beside, framework, pip, rule, change) -> None:
    found = check(beside(framework, *pip, gpus=("A100",)))
    refusal = next(one for one in found if one.rule == rule)
    assert refusal.nearest is not None
    assert refusal.nearest.changes[0] == change
    assert Outcome.of(check(refusal.nearest.cell, suggest=False)) in {Outcome.POSSIBLE, Outcome.WARNS}


def test_several_packages_of_another_torch_are_exchanged_together(beside) -> None:
    found = check(beside("torch==2.10.0", "torchvision==0.20.1", "torchaudio==2.5.1"))
    near = next(one.nearest for one in found if one.nearest is not None)
    assert near.cell.pip == ("torchvision==0.25.0", "torchaudio==2.10.0")


def test_the_first_pytorch_with_a_stable_interface_is_that_of_the_tables() -> None:
    """The oldest that a package asks for which is compiled against that interface alone."""
    rows = [row for table in tables.load().packages.values() for row in table.rows if row.abi == "stable"]
    clauses = [clause for row in rows for asked in row.asks("torch") for clause in asked.specifier]
    assert min((clause.version for clause in clauses), key=key) in {FIRST_STABLE, f"{FIRST_STABLE}.0"}


def test_another_build_of_a_package_goes_with_the_release_and_not_with_the_build_that_the_default_index_names(
    beside,
) -> None:
    """torchvision 0.11.0 of the default index asks for ``torch==1.10.0+cu102``."""
    cell = beside("torch==1.10.0+cu111", "torchvision==0.11.0+cu111", python="3.9")
    cell = replace(cell, index=("https://download.pytorch.org/whl/cu111",))
    assert [found for found in check(cell) if found.rule == "pins"] == []
    other = replace(cell, pip=("torchvision==0.12.0+cu111",))
    assert any(found.rule == "pins" for found in check(other))


@pytest.mark.parametrize("lacked", sorted(read_patterns()["python-askers"]))
def test_what_the_probe_says_of_an_asker_the_rules_say_too(lacked) -> None:
    """By one row of ``known-bad``, which ends at the release that asks no longer."""
    mended = Requirement(read_patterns()["python-askers"][lacked])
    (first,) = (clause.version for clause in mended.specifier)
    rows = [
        row
        for row in tables.load().bad
        if lacked in row.message.lower() and any(Requirement(one).name == mended.name for one in row.when)
    ]
    assert len(rows) == 1
    (when,) = (one for one in map(Requirement, rows[0].when) if one.name == mended.name)
    assert f"<{first}" in str(when.specifier).split(",")
    assert any(Requirement(one).name == lacked.partition(".")[0] for one in rows[0].when)
    assert f"{mended.name} {first} or newer" in rows[0].remedy


OF_FRAMEWORKS = [
    (row, build)
    for row in tables.load().bad
    for build in tables.load().without.values()
    if build.instead in {Requirement(one).name for one in row.when}
    and not any("[" in one for one in row.when)
    and not row.ends  # of a module that the cell imports, which a report does not say
]


@pytest.mark.parametrize(
    ("bad", "build"), OF_FRAMEWORKS, ids=[f"{bad.id}, {build.name}" for bad, build in OF_FRAMEWORKS]
)
def test_a_build_without_cuda_fails_where_its_framework_does(bad, build) -> None:
    """TensorFlow Probability 0.23 was possible beside tensorflow-cpu 2.16. Cards and CUDA are no matter of
    such a build.
    """
    versions, cards = dict[str, str](), []
    for one in map(Requirement, bad.when):
        some = ["0.1", *(clause.version.removesuffix(".*") for clause in one.specifier)]
        if one.name == "gpu":
            cards = [card for card in tables.load().gpus.values() if card.capability in one.specifier][:1]
        else:
            versions[one.name] = next(text for text in some if one.specifier.contains(text))
    for one in map(
        Requirement, bad.open
    ):  # what a resolver takes of a package that is asked for without bound
        if one.name in versions:
            versions[one.name] = next(clause.version for clause in one.specifier)
    assert bad.id in {found.message.partition(":")[0] for found in bad_pairs(versions, cards)}
    other = {build.name if name == build.instead else name: version for name, version in versions.items()}
    told = bad.id in {found.message.partition(":")[0] for found in bad_pairs(other, cards)}
    assert told is not bool(cards or {"cuda", "cudnn"} & versions.keys())


@pytest.mark.parametrize(
    ("env", "imports", "word"),
    [
        ({}, ("keras",), "impossible"),
        ({}, (), "warns"),
        ({"KERAS_BACKEND": "jax"}, ("keras",), ""),
    ],
)
def test_keras_3_without_tensorflow_takes_the_name_of_its_backend(beside, env, imports, word) -> None:
    """A program may set it before its import; a cell that imports Keras itself does not."""
    wheels = [WheelTruth(name=n, version=v, file="x.whl") for n, v in (("jax", "0.4.30"), ("keras", "3.5.0"))]
    cell = beside("jax==0.4.30", "keras==3.5.0", env=tuple(env.items()), imports=imports)
    outcome, message = said(cell, "known-bad", truth=Truth(wheels=tuple(wheels), locked=True))
    assert (outcome, "KERAS_BACKEND" in message) == (word, bool(word))


@pytest.mark.parametrize(
    ("wish", "card", "says"),
    [
        # its build files name no code for the card, and compiling makes none
        (
            "mamba-ssm",
            "V100",
            ["compiling makes none", "the last release with code for it is mamba-ssm 2.3"],
        ),
        # its maker's page names the cards, whatever the build files of an older release list
        ("flash-attn", "V100", ["8.0 and newer", "xformers 0.0.30 (beside PyTorch 2.7.0) has code", "sdpa"]),
        ("flash-attn==2.5.0", "T4", ["8.0 and newer", "flash-attention-turing", "sdpa"]),
        # wheels: the release with which support ended, and that none ever had any
        ("xformers==0.0.35", "P100", ["the last release with code for it is xformers 0.0.30"]),
        ("vllm==0.19.1", "P100", ["7.0 and newer", "Ollama"]),
    ],
)
def test_a_package_without_code_for_a_card_says_so_and_what_there_is_instead(
    beside, wish, card, says
) -> None:
    """Nobody is told to compile by hand what has no code for their card."""
    cell = beside("torch==2.10.0", wish, gpus=(card,))
    outcome, message = said(cell, "package-known") if "==" not in wish else said(cell, "package-gpu")
    assert outcome == "impossible"
    for words in says:
        assert words in message
    assert "only sources" not in said(cell, "package-python")[1]


def test_a_way_out_is_named_for_the_cards_that_it_serves_alone(beside) -> None:
    """Ollama's page lists compute capability 5.0 and newer, and a K80 has 3.7."""
    cell = beside("torch==2.10.0", "vllm==0.19.1", gpus=("K80",))
    assert "Ollama" not in said(cell, "package-gpu")[1]


def test_what_is_compiled_for_a_card_that_its_build_files_name_is_only_a_matter_of_compiling(beside) -> None:
    message = said(beside("torch==2.10.0", "flash-attn", gpus=("RTX4090",)), "package-known")[1]
    assert "only sources" in message


def test_a_client_without_its_engine_is_no_answer(beside) -> None:
    """sglang 0.5.2 asks for no PyTorch, and so any went with it: what computes came with an extra."""
    outcome, message = said(beside("torch==2.15.0", "sglang==0.5.2"), "known-bad")
    assert outcome == "impossible"
    assert "extra all or srt" in message
    for wish in ("sglang[all]==0.5.2", "sglang==0.5.9"):
        assert said(beside("torch==2.9.1", wish), "known-bad") == ("", "")


def test_what_leaves_a_release_out_is_the_requirement_of_a_package_beside() -> None:
    pip = ("vllm==0.33.0", "numpy", "nobody-read-this==1.0")
    packages = tables.load().packages
    assert list(leaving_out(pip, "torch", "2.15.0", packages)) == ["vllm 0.33.0 wants torch==2.14.0"]
    assert list(leaving_out(pip, "torch", "2.14.0", packages)) == []
