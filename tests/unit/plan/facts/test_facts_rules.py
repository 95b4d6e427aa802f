"""What the rules say, each with the case that it is there for and the case next to it."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from builder.cli.commands.check import verdict_text
from builder.core.model import Base, Cuda, Options
from builder.plan.facts.reading import observed
from builder.plan.facts.reading.observed import BaseTruth, Truth, WheelTruth
from builder.plan.facts.rules.checking import check, cuda_of
from builder.plan.facts.rules.finding import Outcome
from builder.plan.facts.rules.image_contents import stack_of
from builder.plan.facts.tables import loader as tables

CU11 = (
    "nvidia-cublas-cu11==11.11.3.6",
    "nvidia-cuda-runtime-cu11==11.8.89",
    "nvidia-cudnn-cu11==8.6.0.163",
    "nvidia-cufft-cu11==10.9.0.58",
    "nvidia-curand-cu11==10.3.0.86",
    "nvidia-cusolver-cu11==11.4.1.48",
    "nvidia-cusparse-cu11==11.7.5.86",
)
TF28 = ("tensorflow==2.8.4",)
GOOD_TAG = "nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04"


def outcome(findings, rule):
    found = [finding.outcome for finding in findings if finding.rule == rule]
    return max(found, key=lambda o: o.severity) if found else None


@pytest.fixture
def tf28(make):
    return make(*TF28, python="3.8", base=GOOD_TAG)


def registry(cudnn, cuda="11.2.2", **more):
    return Truth(
        base=BaseTruth(
            reference=GOOD_TAG,
            digest="sha256:" + "a" * 64,
            env=(("CUDA_VERSION", cuda), ("NV_CUDNN_VERSION", cudnn), *more.items()),
        )
    )


def test_a_good_cell_is_possible_and_says_why(tf28) -> None:
    findings = check(tf28)
    assert Outcome.of(findings) is Outcome.POSSIBLE
    text = verdict_text(tf28, findings)
    assert "compiled with cuDNN 8.1, would load 8.1.1" in text
    assert "libtensorflow_framework.so.2 of tensorflow 2.8.4" in text


@pytest.mark.parametrize(
    ("loaded", "expected"),
    [
        ("8.1.0.77", Outcome.POSSIBLE),  # any patch of the same minor
        ("8.9.6.50", Outcome.POSSIBLE),
        ("8.0.5.39", Outcome.IMPOSSIBLE),  # "loaded 8.0.5 but source was compiled with 8.1.0"
        ("9.1.0.70", Outcome.IMPOSSIBLE),
        ("7.6.5.32", Outcome.IMPOSSIBLE),
    ],
)
def test_cudnn_same_major_and_minor_not_older(tf28, loaded, expected) -> None:
    assert outcome(check(tf28, registry(loaded)), "cudnn-version") is expected


def test_of_a_range_of_pins_the_newest_counts_until_a_lock_decides(make) -> None:
    """JAX 0.4.30 pins cuDNN from 9.0 on, was built with 9.1, and raises with an older one."""
    cell = make("jax[cuda12]==0.4.30", python="3.11", base="rootfs:debian/bookworm", cuda="wheels")
    assert outcome(check(cell), "cudnn-version") is Outcome.POSSIBLE
    for version, expected in (("9.0.0.312", Outcome.IMPOSSIBLE), ("9.1.1.17", Outcome.POSSIBLE)):
        wheel = WheelTruth(name="nvidia-cudnn-cu12", version=version, file="x.whl")
        assert outcome(check(cell, Truth(wheels=(wheel,), locked=True)), "cudnn-version") is expected


def test_strict_wants_the_same_cudnn(tf28) -> None:
    strict = replace(tf28, options=Options(strict_cudnn=True))
    assert outcome(check(strict, registry("8.9.6.50")), "cudnn-version") is Outcome.IMPOSSIBLE
    # TensorFlow tells no patch, so equality can be held to the minor only
    assert outcome(check(strict, registry("8.1.1.33")), "cudnn-version") is Outcome.WARNS


def test_what_the_registry_says_beats_the_table_and_the_difference_is_reported(tf28) -> None:
    findings = check(tf28, registry("8.0.5.39"))
    assert Outcome.of(findings) is Outcome.IMPOSSIBLE
    difference = next(finding for finding in findings if finding.rule == "disagreement")
    assert [value.source.kind for value in difference.values] == ["registry", "table"]
    assert [value.text for value in difference.values] == ["8.0.5.39", "8.1.1.33"]


@pytest.mark.parametrize(
    "text", ["latest", "", "v12", "-1", "1" * 5000, "\u0661\u0662", "8.1\x00", "cuda>=11", "8.1\nRUN evil"]
)
def test_a_registry_that_says_no_version_makes_no_yes(tf28, text: str) -> None:
    assert Outcome.of(check(tf28, registry(text))) is Outcome.UNKNOWN
    assert Outcome.of(check(tf28, registry("8.1.1.33", cuda=text))) is Outcome.UNKNOWN


def test_what_the_wheel_says_beats_the_table(tf28) -> None:
    wheel = WheelTruth(
        name="tensorflow", version="2.8.4", file="tensorflow-2.8.4.whl", cuda="12.2", cudnn="9"
    )
    findings = check(tf28, Truth(wheels=(wheel,)))
    assert outcome(findings, "cudnn-version") is Outcome.IMPOSSIBLE
    assert outcome(findings, "cuda-version") is Outcome.IMPOSSIBLE
    assert len([finding for finding in findings if finding.rule == "disagreement"]) == 2


def test_a_major_alone_does_not_overrule_the_minor_that_the_table_knows(tf28) -> None:
    wheel = WheelTruth(name="tensorflow", version="2.8.4", file="t.whl", cuda="11.2", cudnn="8")
    findings = check(tf28, Truth(wheels=(wheel,)))
    assert outcome(findings, "disagreement") is None
    assert outcome(findings, "cudnn-version") is Outcome.POSSIBLE


def test_a_version_beyond_the_tables_is_unknown_never_a_yes(make) -> None:
    cell = make("tensorflow==2.99.0", python="3.13", base="rootfs:debian/trixie", cuda="wheels")
    assert Outcome.of(check(cell)) is Outcome.UNKNOWN
    strange = make("mxnet==1.9.1", python="3.8", base=GOOD_TAG)
    assert Outcome.of(check(strange)) is Outcome.UNKNOWN


def test_what_no_table_has_is_no_question_in_an_image_without_cuda(make) -> None:
    cell = make("numpy==2.2.6", python="3.11", base="rootfs:debian/bookworm", cuda="none")
    assert Outcome.of(check(cell)) is Outcome.POSSIBLE
    assert Outcome.of(check(replace(cell, cuda=Cuda(provider="wheels")))) is Outcome.UNKNOWN


def test_a_tag_without_a_known_cudnn_is_unknown_until_the_registry_answers(make, monkeypatch) -> None:
    tag = "nvidia/cuda:12.9.2-cudnn-runtime-ubuntu24.04"
    cell = make("tensorflow==2.20.0", python="3.12", base=tag)
    known = tables.load()
    unread = replace(
        known, tags=tuple(replace(row, cudnn=None) if row.cuda == "12.9.2" else row for row in known.tags)
    )
    monkeypatch.setattr(observed, "load", lambda: unread)
    found = check(cell)
    assert Outcome.of(found) is Outcome.UNKNOWN
    assert any(
        "12.9.2" in f.message and "registry" in f.message for f in found if f.outcome is Outcome.UNKNOWN
    )
    env = (("CUDA_VERSION", "12.9.2"), ("NV_CUDNN_VERSION", "9.10.2.21-1"))
    told = Truth(base=BaseTruth(reference=tag, env=env))
    assert Outcome.of(check(cell, told)) is Outcome.POSSIBLE


def test_a_tag_that_the_registry_does_not_have(tf28) -> None:
    gone = Truth(base=BaseTruth(reference=GOOD_TAG, exists=False))
    assert outcome(check(tf28, gone), "base-tag") is Outcome.IMPOSSIBLE


@pytest.mark.parametrize(
    ("tag", "answer", "words"),
    [
        ("12.4.1-base-ubi9", "possible", ""),
        ("12.9.1-base-rockylinux9", "possible", ""),
        ("13.0.0-base-ubi10", "possible", ""),
        ("12.4.1-base-debian12", "impossible", "for CUDA 12.4.1 it has rockylinux8, rockylinux9, ubi8"),
        ("12.4.1-base-ubuntu24.04", "impossible", "for CUDA 12.4.1 it has rockylinux8, rockylinux9, ubi8"),
        ("12.4-base-ubuntu22.04", "impossible", "CUDA 12.4.0, 12.4.1 are on record"),
        ("12.7.0-base-ubuntu22.04", "impossible", "CUDA 12.8.0 is on record"),
        ("12.3.0-cudnn9-runtime-ubuntu22.04", "impossible", "on ubuntu22.04 it has tags without cuDNN"),
        ("12.9.3-base-ubuntu22.04", "unknown", "CUDA 12.9.0, 12.9.1, 12.9.2 are on record"),
        ("13.1.1-base-ubi9", "unknown", "for CUDA 13.1.1 it has ubuntu22.04, ubuntu24.04"),
        ("99.0.0-base-ubuntu24.04", "unknown", "CUDA 13.3.0 is on record"),
    ],
)
def test_a_tag_of_any_system_is_decided_by_nvidias_lists(make, tag: str, answer: str, words: str) -> None:
    cell = make("torch==2.5.1", python="3.12", base=f"nvidia/cuda:{tag}", cuda="wheels")
    findings = check(cell)
    assert Outcome.of(findings).answer == answer
    said = [found.message for found in findings if found.rule == "base-tag"]
    assert said == [] if not words else words in said[0]


def test_a_cudnn_that_no_tag_of_that_cuda_has(make) -> None:
    """TensorFlow documents CUDA 12.3 and cuDNN 8.9 for 2.16 and 2.17; NVIDIA made no such image."""
    name = "nvidia/cuda:12.3.2-cudnn8-runtime-ubuntu22.04"
    cell = make("tensorflow==2.16.2", python="3.10", base=name)
    refusal = next(f for f in check(cell) if f.rule == "base-tag")
    assert refusal.outcome is Outcome.IMPOSSIBLE
    assert "Docker Hub has no nvidia/cuda:12.3.2-cudnn8-runtime-ubuntu22.04" in refusal.message
    mirrored = replace(cell, base=Base(kind="registry", name=f"registry.example.invalid/{name}"))
    assert outcome(check(mirrored), "base-tag") is None


def test_a_mirror_keeps_what_docker_hub_deleted(make) -> None:
    name = "nvidia/cuda:10.0-cudnn7-runtime-ubuntu18.04"
    on_hub = make("tensorflow-gpu==1.15.5", python="3.7", base=name)
    mirrored = make("tensorflow-gpu==1.15.5", python="3.7", base=f"registry.example.invalid/{name}")
    assert outcome(check(on_hub), "base-tag") is Outcome.IMPOSSIBLE
    findings = check(mirrored)
    assert Outcome.of(findings) is Outcome.WARNS
    assert [f.message[:22] for f in findings if f.outcome is Outcome.WARNS] == ["tensorflow-source-gast"]
    # the remedy that it names is not asked for again
    built = replace(mirrored, pip=("gast==0.2.2",), from_source=("gast",))
    assert Outcome.of(check(built)) is Outcome.POSSIBLE


@pytest.mark.parametrize(
    ("base", "python", "expected"),
    [
        ("ubuntu:24.04", "3.12", Outcome.POSSIBLE),
        ("registry.example.invalid/library/ubuntu:24.04", "3.11", Outcome.IMPOSSIBLE),
        ("debian:bookworm-slim", "3.11", Outcome.POSSIBLE),
        ("debian:bookworm", "3.13", Outcome.IMPOSSIBLE),
        ("someone/ubuntu-like:24.04", "3.12", Outcome.UNKNOWN),
    ],
)
def test_the_distributions_own_images_have_their_python(make, base, python, expected) -> None:
    cell = make("torch==2.9.1", python=python, base=base, cuda="wheels")
    own = replace(cell, python_from="base")
    assert Outcome.of(check(own, suggest=False)) is expected
    if expected is Outcome.IMPOSSIBLE:
        assert Outcome.of(check(cell, suggest=False)) is Outcome.POSSIBLE


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ({"python": "3.7"}, "uv's catalogue has no Python 3.7: it begins at 3.8"),
        (
            {"python": "3.12", "python_patch": "3.12.99"},
            "uv's catalogue has no Python 3.12.99: it has 3.12.0 to",
        ),
    ],
)
def test_a_python_that_nobody_has(make, python, said) -> None:
    cell = replace(make("numpy==1.21.6", python="3.8", base="rootfs:debian/bookworm", cuda="none"), **python)
    (finding,) = [found for found in check(cell, suggest=False) if found.outcome is Outcome.IMPOSSIBLE]
    assert finding.rule == "python"
    assert finding.message.startswith(said)


def test_two_copies_of_cudnn_are_refused_and_the_base_flavour_is_the_way_out(make) -> None:
    cell = make("torch==2.9.1", python="3.10", base="nvidia/cuda:12.8.1-cudnn-runtime-ubuntu22.04")
    findings = check(cell)
    refusal = next(finding for finding in findings if finding.rule == "cudnn-copies")
    assert refusal.outcome is Outcome.IMPOSSIBLE
    assert refusal.nearest is not None
    assert str(refusal.nearest.cell.base) == "nvidia/cuda:12.8.1-base-ubuntu22.04"
    assert Outcome.of(check(refusal.nearest.cell)) is Outcome.POSSIBLE


def test_cudnn_from_apt_counts_as_a_copy(make) -> None:
    cell = make(
        *TF28,
        python="3.8",
        base="nvidia/cuda:11.2.2-runtime-ubuntu20.04",
        apt=("libcudnn8=8.1.1.33-1+cuda11.2",),
    )
    assert Outcome.of(check(cell)) is Outcome.POSSIBLE


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("450.80.02", Outcome.POSSIBLE),
        ("535", Outcome.POSSIBLE),
        ("440.33", Outcome.IMPOSSIBLE),
        ("450", Outcome.UNKNOWN),  # releases of that branch lie on both sides of the floor
    ],
)
def test_driver_floor_of_the_cuda_major(tf28, driver, expected) -> None:
    assert outcome(check(tf28, driver=driver), "driver") is expected


def test_require_cuda_shuts_out_a_branch_that_it_does_not_list(make) -> None:
    cell = make("tensorflow==2.19.1", python="3.12", base="nvidia/cuda:12.6.3-cudnn-runtime-ubuntu24.04")
    assert outcome(check(cell, driver="535.104.05"), "require-cuda") is Outcome.WARNS
    assert outcome(check(cell, driver="545.23.08"), "require-cuda") is Outcome.IMPOSSIBLE
    assert outcome(check(cell, driver="570.86.10"), "require-cuda") is None


def test_require_cuda_is_read_from_the_registry(tf28) -> None:
    text = "cuda>=11.2 brand=tesla,driver>=418,driver<419"
    truth = registry("8.1.1.33", NVIDIA_REQUIRE_CUDA=text)
    assert outcome(check(tf28, truth, driver="450.80.02"), "require-cuda") is Outcome.IMPOSSIBLE


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ("T4", None),
        ("RTX3090", None),
        ("H100", Outcome.WARNS),  # PTX of compute_80 only, and a cuDNN that does not list 9.0
        ("K80", None),
        ("nonsense", Outcome.UNKNOWN),
    ],
)
def test_gpus_of_tensorflow_2_8(make, gpu, expected) -> None:
    cell = make(*TF28, python="3.8", base=GOOD_TAG, gpus=(gpu,))
    assert outcome(check(cell), "gpu") is expected


def test_a_gpu_without_kernels_leads_to_the_variant_that_has_them(make) -> None:
    cell = make("torch==2.9.1", python="3.13", base="rootfs:debian/trixie", cuda="wheels", gpus=("P100",))
    refusal = next(f for f in check(cell) if f.outcome is Outcome.IMPOSSIBLE)
    assert refusal.nearest is not None
    assert refusal.nearest.cell.frameworks == ("torch==2.9.1+cu126",)


def test_a_locked_cell_without_a_cudnn_wheel_has_none(make) -> None:
    cell = make(*TF28, python="3.9", base="rootfs:debian/bullseye", packages=CU11, pip=("numpy<1.24",))
    assert Outcome.of(check(cell)) is Outcome.POSSIBLE
    assert outcome(check(cell, Truth(locked=True)), "cudnn-version") is Outcome.IMPOSSIBLE


def test_wheel_tags_decide_about_python_and_glibc(make) -> None:
    cell = make("torch==2.9.1", python="3.10", base="nvidia/cuda:12.0.1-base-ubuntu18.04", cuda="wheels")
    tags = ("cp313-cp313-manylinux_2_28_x86_64",)
    wheel = WheelTruth(name="torch", version="2.9.1", file="torch.whl", tags=tags, cuda="12.8")
    findings = check(cell, Truth(wheels=(wheel,)))
    assert outcome(findings, "python") is Outcome.IMPOSSIBLE
    assert outcome(findings, "glibc") is Outcome.IMPOSSIBLE


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("amazonlinux:2", Outcome.IMPOSSIBLE),
        ("public.ecr.aws/amazonlinux/amazonlinux:2", Outcome.IMPOSSIBLE),
        ("centos:7.9.2009", Outcome.IMPOSSIBLE),
        ("opensuse/leap:15.2", Outcome.IMPOSSIBLE),
        ("amazonlinux:2023", None),
        ("almalinux:8.10", None),
        ("redhat/ubi9:9.4", None),
        ("quay.io/centos/centos:stream9", None),
        ("opensuse/leap:15.5", None),
        ("fedora:41", None),
        ("amazonlinux:9", Outcome.UNKNOWN),
        ("alpine:3.20", Outcome.UNKNOWN),
        ("example.org/own:1", Outcome.UNKNOWN),
    ],
)
def test_glibc_of_a_base_is_known_or_the_cell_is_not(make, base, expected) -> None:
    cell = make("torch==2.10.0", python="3.10", base=base, cuda="wheels", python_from="standalone")
    findings = check(cell)
    assert outcome(findings, "glibc") is expected
    assert Outcome.of(findings) is (expected or Outcome.POSSIBLE)
    refused = [one.message for one in findings if one.outcome is Outcome.IMPOSSIBLE]
    assert all("the newest on record for that and Python 3.10 is 2.6.0" in text for text in refused)


def test_a_wheel_for_older_patches_of_python_than_the_matrix_names(make) -> None:
    cell = make("torch==2.9.1", python="3.11", base="rootfs:debian/bookworm", cuda="wheels")
    wheel = WheelTruth(
        name="torch", version="2.9.1", file="torch.whl", requires_python="<3.11.5", cuda="12.8"
    )
    truth = Truth(wheels=(wheel,))
    assert outcome(check(cell, truth), "python") is None
    assert outcome(check(replace(cell, python_patch="3.11.9"), truth), "python") is Outcome.IMPOSSIBLE


def test_numpy_2_under_an_old_torch(make) -> None:
    cell = make(
        "torch==2.1.2", python="3.11", base="rootfs:debian/bookworm", cuda="wheels", pip=("numpy==2.1.0",)
    )
    assert outcome(check(cell), "known-bad") is Outcome.IMPOSSIBLE
    assert outcome(check(replace(cell, pip=("numpy==1.26.4",))), "known-bad") is None


@pytest.mark.parametrize(
    ("python", "broken", "sound", "worst"),
    [
        ("3.9", ("pydantic==1.10.7", "typing-extensions==4.6.0"), ("pydantic==1.10.8",), Outcome.WARNS),
        (
            "3.9",
            ("spacy==3.5.3", "pydantic==1.10.7", "typing-extensions==4.12.2"),
            ("typing-extensions==4.5.0",),
            Outcome.IMPOSSIBLE,
        ),
        ("3.13", ("pydantic==1.10.15",), ("pydantic==1.10.16",), Outcome.WARNS),
        ("3.13", ("fastapi==0.110.0", "pydantic==1.10.15"), ("pydantic==2.11.7",), Outcome.IMPOSSIBLE),
        ("3.12", ("openai==1.55.2", "httpx==0.28.0"), ("openai==1.55.3",), Outcome.IMPOSSIBLE),
    ],
)
def test_releases_of_pydantic_and_openai_that_others_left_behind(make, python, broken, sound, worst) -> None:
    cell = make(python=python, base="example.org/any:1", cuda="none", pip=broken)
    assert outcome(check(cell, suggest=False), "known-bad") is worst
    other = {text.partition("==")[0]: text for text in (*broken, *sound)}
    assert outcome(check(replace(cell, pip=(*other.values(),)), suggest=False), "known-bad") is None
    if python == "3.9":  # Python 3.10.1 and later and typing-extensions have one Literal
        newer = replace(cell, python="3.11")
        assert outcome(check(newer, suggest=False), "known-bad") is None


@pytest.mark.parametrize(
    ("python", "patch", "base", "worst"),
    [
        ("3.12", None, "rootfs:debian/bookworm", Outcome.IMPOSSIBLE),  # the newest standalone one
        ("3.12", "3.12.4", "rootfs:debian/bookworm", Outcome.IMPOSSIBLE),
        ("3.12", "3.12.3", "rootfs:debian/bookworm", None),
        ("3.12", None, "nvidia/cuda:12.6.3-runtime-ubuntu24.04", None),  # 3.12.3 of Ubuntu's
        ("3.11", None, "rootfs:debian/bookworm", None),
    ],
)
def test_a_patch_release_of_python_that_a_row_names(make, python, patch, base, worst) -> None:
    pip = ("fastapi==0.110.0", "pydantic==1.10.15")
    cell = make(python=python, python_patch=patch, base=base, cuda="none", pip=pip)
    assert outcome(check(cell, suggest=False), "known-bad") is worst


def test_what_many_packages_ask_for_is_known_to_be_absent_by_a_lock_alone(make) -> None:
    cell = make("torchvision==0.16.2", python="3.10", base="rootfs:debian/bookworm", cuda="none")

    def locked(*wheels: str) -> Outcome | None:
        pairs = (text.split("==") for text in ("torchvision==0.16.2", *wheels))
        truths = (WheelTruth(name=name, version=version, file=f"{name}.whl") for name, version in pairs)
        return outcome(check(cell, Truth(wheels=tuple(truths), locked=True), suggest=False), "known-bad")

    assert outcome(check(cell, suggest=False), "known-bad") is None
    assert locked() is Outcome.IMPOSSIBLE
    assert locked("packaging==24.0") is locked("setuptools==68.2.2") is None
    assert locked("setuptools==70.0.0") is Outcome.IMPOSSIBLE
    assert locked("setuptools==75.8.0") is None


@pytest.mark.parametrize(
    ("imports", "worst"),
    [
        ((), Outcome.WARNS),
        (("ray", "ray.scripts"), Outcome.WARNS),
        (("ray.scripts.scripts",), Outcome.IMPOSSIBLE),
        (("ray.scripts.scripts:main",), Outcome.IMPOSSIBLE),
    ],
)
def test_a_module_of_a_row_that_the_cell_imports(make, imports, worst) -> None:
    pip = ("ray==2.49.0", "click==8.3.0")
    cell = make(python="3.10", base="example.org/any:1", cuda="none", pip=pip, imports=imports)
    assert outcome(check(cell, suggest=False), "known-bad") is worst


@pytest.mark.parametrize(
    ("imports", "release", "is_told"),
    [
        ((), "2.15.0", False),
        (("tensorflow.keras.layers",), "2.15.0", False),
        (("tensorflow.keras.wrappers.scikit_learn:KerasClassifier",), "2.15.0", True),
        (("tensorflow.keras.wrappers.scikit_learn:KerasClassifier",), "2.12.0", False),
    ],
)
def test_a_row_of_a_module_alone_is_of_a_cell_that_imports_it(make, imports, release, is_told) -> None:
    cell = make(
        f"tensorflow-cpu=={release}", python="3.10", base="example.org/any:1", cuda="none", imports=imports
    )
    found = [one for one in check(cell, suggest=False) if "tensorflow-2.13-scikit-learn" in one.message]
    assert [one.outcome for one in found] == [Outcome.IMPOSSIBLE] * is_told


def test_json_of_a_finding_is_plain(make) -> None:
    cell = make("tensorflow==2.19.1", python="3.10", base="nvidia/cuda:12.5.1-cudnn-runtime-ubuntu22.04")
    document = json.loads(json.dumps([finding.as_json() for finding in check(cell)]))
    refusal = next(entry for entry in document if entry["answer"] == "impossible")
    assert refusal["nearest"] == {"base": "nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04"}
    assert {value["source"]["kind"] for value in refusal["values"]} == {"table"}


def test_a_thousand_cells_in_one_pass(tf28, make) -> None:
    check(tf28)
    bases = (GOOD_TAG, "nvidia/cuda:11.1.1-cudnn8-runtime-ubuntu20.04")
    cells = [make(*TF28, python="3.8", base=bases[n % 10 == 0], id=f"cell{n}") for n in range(1000)]
    started = time.process_time()
    for cell in cells:
        check(cell)
    assert time.process_time() - started < 10  # a fraction of a second, where nothing grows with the square


def test_what_is_compiled_stands_on_a_debian_release(make) -> None:
    compiled = (("psycopg2", ("libpq-dev",)), ("dlib", ()))
    image = make("torch==2.6.0", python="3.11", base="python:3.11-slim-bookworm", compiled=compiled)
    refusal = next(f for f in check(image) if f.rule == "compiled")
    assert refusal.outcome is Outcome.IMPOSSIBLE
    assert "psycopg2, dlib is compiled from sources in a Debian release" in refusal.message
    assert "take base: rootfs:debian/<suite>" in refusal.message
    rootfs = replace(image, base=Base(kind="rootfs", name="debian/bookworm"))
    assert outcome(check(rootfs), "compiled") is None
    assert outcome(check(replace(image, compiled=())), "compiled") is None


def test_numpy_of_a_lock_of_the_cell_and_of_nobody(make) -> None:
    cell = make(*TF28, python="3.9", base="rootfs:debian/bullseye", packages=CU11)
    told = next(f for f in check(cell) if f.rule == "numpy")
    assert "nothing keeps the resolver from NumPy 2" in told.message
    assert told.outcome is Outcome.WARNS
    assert told.message.endswith("`rtbuild lock` resolves with numpy<2")
    assert outcome(check(cell, suggest=False), "numpy") is Outcome.IMPOSSIBLE
    assert outcome(check(replace(cell, pip=("numpy<2",))), "numpy") is None
    assert outcome(check(replace(cell, pip=("numpy==2.0.2",))), "numpy") is Outcome.IMPOSSIBLE
    for version, expected in (("1.23.5", None), ("2.0.2", Outcome.IMPOSSIBLE)):
        wheel = WheelTruth(name="numpy", version=version, file="numpy.whl")
        assert outcome(check(cell, Truth(wheels=(wheel,), locked=True)), "numpy") is expected
    unread = make("ctranslate2==2.20.0", python="3.9", base="rootfs:debian/bullseye", cuda="wheels")
    assert outcome(check(replace(unread, pip=("numpy==2.0.2",))), "numpy") is Outcome.UNKNOWN


def test_what_wheels_demand_of_other_packages(make) -> None:
    cell = make(*TF28, python="3.8", base=GOOD_TAG, pip=("protobuf==4.21.0",))
    refusal = next(f for f in check(cell) if f.rule == "pins")
    assert refusal.outcome is Outcome.IMPOSSIBLE
    assert "the cell wants protobuf==4.21.0 and TensorFlow 2.8.4 wants protobuf" in refusal.message
    listed = replace(cell, dependencies="listed")
    assert outcome(check(listed), "pins") is Outcome.WARNS  # a list is installed as it stands
    assert outcome(check(replace(cell, pip=("protobuf<3.20", "six>=1.16"))), "pins") is None
    newer = make("torch==2.6.0", python="3.11", base="rootfs:debian/bookworm", cuda="wheels")
    for version, expected in (("0.4.30", None), ("0.4.31", Outcome.IMPOSSIBLE)):
        beside = replace(newer, pip=("jax==0.4.30", f"jaxlib=={version}"))
        assert outcome(check(beside), "pins") is expected  # jax itself refuses a newer one
    ranges = replace(cell, pip=("protobuf>=4",))
    assert outcome(check(ranges), "pins") is Outcome.IMPOSSIBLE


def test_a_list_has_only_the_cudnn_that_it_names(make) -> None:
    """torch 2.3.1 pins cuDNN 8.9.2; a list that is installed as it stands has the one that it lists."""
    cell = make(
        "torch==2.3.1",
        python="3.10",
        base="nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04",
        dependencies="listed",
        pip=("numpy==1.26.4",),
    )
    assert outcome(check(cell), "cudnn-copies") is None
    assert outcome(check(replace(cell, dependencies="resolved")), "cudnn-copies") is Outcome.IMPOSSIBLE


def test_an_old_card_and_a_range_of_pins(make) -> None:
    """cuDNN 9.11 left Pascal behind; JAX 0.5.3 has code for it, and its pins admit the newest cuDNN."""
    cell = make(
        "jax[cuda12]==0.5.3", python="3.11", base="rootfs:debian/bookworm", cuda="wheels", gpus=("P100",)
    )
    refusal = next(f for f in check(cell) if f.outcome is Outcome.IMPOSSIBLE)
    assert refusal.nearest is not None
    assert refusal.nearest.changes == (("pip", "nvidia-cudnn-cu12<=9.10.2.21"),)
    assert Outcome.of(check(refusal.nearest.cell)) is not Outcome.IMPOSSIBLE


def test_what_the_last_lock_said_is_no_yes(make) -> None:
    cell = make("torch==2.9.1", python="3.13", base="rootfs:debian/trixie", cuda="wheels")
    findings = check(cell, Truth(failed="torch has no usable wheels"))
    assert Outcome.of(findings) is Outcome.UNKNOWN
    assert "torch has no usable wheels" in next(f.message for f in findings if f.rule == "last-lock")


def test_a_platform_without_wheels(make) -> None:
    cell = make(
        "torch==1.13.1", python="3.11", base="rootfs:debian/bookworm", cuda="wheels", platform="linux/arm64"
    )
    assert (
        outcome(check(replace(cell, frameworks=("onnxruntime-gpu==1.16.3",))), "platform")
        is Outcome.IMPOSSIBLE
    )


def test_libraries_of_cuda_in_an_image_without_it_are_a_warning(make) -> None:
    """The default index's PyTorch brings them; its build for the CPU is named, and is no warning itself."""
    cell = make("torch==2.10.0", python="3.11", base="rootfs:debian/bookworm", cuda="none")
    said = [f for f in check(cell) if f.rule == "cuda-provider"]
    assert [f.outcome for f in said] == [Outcome.WARNS]
    assert "torch==2.10.0+cpu with `index: [https://download.pytorch.org/whl/cpu]`" in said[0].message
    for other in ("torch==2.10.0+cpu", "tensorflow-cpu==2.15.0", "jax==0.6.0"):
        assert outcome(check(replace(cell, frameworks=(other,))), "cuda-provider") is None, other


def test_one_cuda_major_in_an_image(make) -> None:
    both = ("cupy-cuda12x==13.6.0", "torch==2.13.0")
    cell = make(*both, python="3.11", base="rootfs:debian/bookworm", cuda="wheels")
    findings = check(cell)
    assert outcome(findings, "cuda-provider") is Outcome.IMPOSSIBLE
    ways = {f.nearest for f in findings if f.nearest is not None}
    assert all(outcome(check(way.cell, suggest=False), "cuda-provider") is None for way in ways)
    assert outcome(check(replace(cell, dependencies="listed")), "cuda-provider") is Outcome.WARNS


@pytest.mark.parametrize(
    ("driver", "expected"),
    [("535.104.05", Outcome.IMPOSSIBLE), ("570", None), ("575.57.08", None)],
)
def test_a_driver_that_does_not_know_the_card(make, driver: str, expected: Outcome | None) -> None:
    """CUDA 12's floor is 525.60.13, and Blackwell's 570.26 (cuDNN 9.10.2's support matrix)."""
    for gpu in ("B200", "sm_120"):
        cell = make("torch==2.10.0", python="3.13", base="rootfs:debian/trixie", cuda="wheels", gpus=(gpu,))
        assert outcome(check(cell, driver=driver), "gpu") is expected


def test_a_driver_is_no_yes_for_a_card_whose_drivers_are_not_on_record(make) -> None:
    cell = make("torch==2.10.0", python="3.13", base="rootfs:debian/trixie", cuda="wheels", gpus=("sm_87",))
    said = "which drivers serve sm_87 (8.7) is not known"
    assert not any(said in finding.message for finding in check(cell))
    assert any(said in f.message and f.outcome is Outcome.UNKNOWN for f in check(cell, driver="580.65"))


def test_a_framework_that_asks_for_no_numpy_gets_none(make) -> None:
    cell = make("torch==2.0.1", python="3.11", base="rootfs:debian/bookworm", cuda="wheels")
    assert outcome(check(cell), "numpy") is None
    assert outcome(check(replace(cell, pip=("setuptools<70",))), "numpy") is None
    assert outcome(check(replace(cell, pip=("transformers",))), "numpy") is Outcome.WARNS
    assert outcome(check(replace(cell, pip=("transformers", "numpy<2"))), "numpy") is None
    assert outcome(check(replace(cell, pip=("numpy",))), "numpy") is Outcome.WARNS
    assert outcome(check(replace(cell, pip=("numpy>=2",))), "numpy") is Outcome.IMPOSSIBLE


def colabs_of_2024(make, **others):
    """As Google listed it: TensorFlow finds the system's cuDNN 8, JAX and PyTorch the wheel's 9."""
    cell = make(
        "tensorflow==2.17.0", python="3.10", base="nvidia/cuda:12.2.2-cudnn8-devel-ubuntu22.04", cuda="base"
    )
    listed = {"frameworks": ("tensorflow==2.17.0", "jax==0.4.33"), "dependencies": "listed", "gpus": ("T4",)}
    return replace(cell, **(listed | others))


def test_a_list_with_jaxs_plugin_beside_is_no_cpu_build(make) -> None:
    pip = ("numpy==1.26.4", "jaxlib==0.4.33", "jax-cuda12-plugin==0.4.33", "nvidia-cudnn-cu12==9.4.0.58")
    assert Outcome.of(check(colabs_of_2024(make, pip=pip))).answer == "possible"
    old = colabs_of_2024(
        make,
        frameworks=("tensorflow==2.17.0", "jax==0.4.26"),
        pip=("numpy==1.26.4", "jaxlib==0.4.26+cuda12.cudnn89"),
        index=("https://index.example/jax",),
    )
    assert Outcome.of(check(old)).answer == "possible"
    without = colabs_of_2024(make, pip=("numpy==1.26.4", "jaxlib==0.4.33"))
    assert outcome(check(without), "framework-known") is Outcome.IMPOSSIBLE


def test_each_framework_finds_the_cudnn_of_its_own_major(make) -> None:
    pip = ("numpy==1.26.4", "jaxlib==0.4.33", "jax-cuda12-plugin==0.4.33", "nvidia-cudnn-cu12==9.0.0.312")
    found = [f for f in check(colabs_of_2024(make, pip=pip)) if f.rule == "cudnn-version"]
    assert [f.outcome for f in found] == [Outcome.POSSIBLE, Outcome.IMPOSSIBLE], found
    assert "JAX 0.4.33 was compiled with cuDNN 9.1" in found[1].message


def test_ctranslate2_warns_where_its_convolutions_find_no_cudnn(make) -> None:
    cell = make("ctranslate2==4.5.0", python="3.11", base="rootfs:debian/bookworm")
    cublas = replace(cell, cuda=Cuda(provider="wheels", packages=("nvidia-cublas-cu12==12.5.3.2",)))
    assert outcome(check(cublas), "cudnn-version") is Outcome.WARNS
    eight = Cuda(provider="wheels", packages=(*cublas.cuda.packages, "nvidia-cudnn-cu12==8.9.7.29"))
    assert outcome(check(replace(cell, cuda=eight)), "cudnn-version") is Outcome.IMPOSSIBLE
    newest = replace(cublas, frameworks=("ctranslate2==4.8.5",))
    assert Outcome.of(check(newest)) is Outcome.POSSIBLE


def test_all_pins_that_clash_are_named_at_once(make) -> None:
    pip = ("torchvision==0.10.0", "torchaudio==0.10.0", "numpy==1.26.4", "numpy==1.20.0")
    cell = make("torch==2.3.0", python="3.9", base="rootfs:debian/bullseye", cuda="wheels", pip=pip)
    said = [found.message for found in check(cell) if found.rule == "pins"]
    assert said == [
        (
            "the cell wants torch==2.3.0 and torchvision 0.10.0 wants torch==1.9.0 and torchaudio 0.10.0 "
            "wants torch==1.10.0: no version is all of these"
        ),
        "the cell wants numpy==1.26.4 and the cell wants numpy==1.20.0: no version is both",
    ]


def test_pins_under_a_marker_are_those_of_the_cell_s_machine(make) -> None:
    lines = ("nvidia-cudnn-cu12==9.1.0.70; platform_system == 'Linux' and platform_machine == 'x86_64'",)
    told = Truth(wheels=(WheelTruth(name="torch", version="2.9.1", file="torch.whl", requires=lines),))
    cell = make("torch==2.9.1", python="3.12", base="rootfs:debian/bookworm", cuda="wheels")
    for platform, pins in (("linux/amd64", 1), ("linux/arm64", 0)):
        assert len(stack_of(replace(cell, platform=platform), told).frameworks[0].pins) == pins


def test_what_a_cuda_major_says_of_a_card_is_said_once(make) -> None:
    """However many parts of the image are of that major: base, wheels, framework."""
    base = "nvidia/cuda:12.8.0-base-ubuntu24.04"
    cell = make("torch==2.9.1", python="3.12", base=base, cuda="wheels", gpus=("K80",))
    said = [finding.message for finding in check(cell, suggest=False)]
    assert len(said) == len(set(said)), said


def test_a_jaxlib_that_is_on_no_package_index_is_no_yes(make) -> None:
    """Before 0.4.22 JAX's CUDA build lay on a page of Google's alone; each release names its own extras."""
    pip = ("numpy<2", "nvidia-cudnn-cu12<=8.9.7.29")
    options = {"python": "3.11", "base": "rootfs:debian/bookworm", "cuda": "wheels", "pip": pip}
    cell = make("jax[cuda12_pip]==0.4.16", **options)
    findings = check(cell)
    assert Outcome.of(findings) is Outcome.UNKNOWN
    assert any("its jaxlib with CUDA lies on a page of its maker's" in f.message for f in findings)
    named = replace(cell, index=("https://index.example/jax",))
    assert Outcome.of(check(named)) is Outcome.POSSIBLE
    (refused,) = (f for f in check(make("jax==0.4.16", **options)) if f.rule == "framework-known")
    assert refused.message.endswith("ask for jax[cuda11-pip] or jax[cuda12-pip]")


@pytest.mark.parametrize("asked", ["jax[cuda11_cudnn86]==0.3.25", "jax[cuda]==0.3.25"])
def test_a_jax_before_those_on_record_is_unknown_and_what_would_decide_is_named(make, asked) -> None:
    base = "nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04"
    findings = check(make(asked, python="3.10", base=base, cuda="base"))
    assert Outcome.of(findings) is Outcome.UNKNOWN
    (decides,) = (f.message for f in findings if f.rule == "index")
    assert decides.endswith(
        "lies on a page of its maker's that is no package index: name an index that has it in `index`"
    )


def test_the_cuda_of_a_cell_is_told_as_far_as_it_is_known(make) -> None:
    def told(*frameworks, base="rootfs:debian/bookworm", cuda="wheels"):
        return cuda_of(make(*frameworks, python="3.11", base=base, cuda=cuda))

    assert told("torch==2.3.0") == "12.1"
    assert told("jax[cuda12]==0.5.3") == "12"  # a range of wheels
    assert told("cupy-cuda12x==13.6.0", base="nvidia/cuda:12.6.3-runtime-ubuntu24.04", cuda="base") == "12.6"
    assert told("numpy==2.2.6", cuda="none") is None


@pytest.mark.parametrize(
    ("driver", "answer"),
    [
        ("570.133.07", Outcome.WARNS),  # 570.148.08 is the first that lists it; 570.26 serves Blackwell
        ("570", Outcome.WARNS),
        ("575.57.08", None),
        ("565.57.01", Outcome.IMPOSSIBLE),  # serves no Blackwell
    ],
)
def test_a_driver_of_the_branch_that_lists_a_card_is_a_reservation(make, driver: str, answer) -> None:
    base = "rootfs:debian/trixie"
    cell = make("torch==2.10.0", python="3.13", base=base, cuda="wheels", gpus=("RTX5060-Ti",))
    assert outcome(check(cell, driver=driver), "gpu") == answer
