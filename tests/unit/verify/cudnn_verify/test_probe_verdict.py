"""One verdict and one cause out of many checks."""

import pytest
from probe_elf import write_elf

from builder.verify.cudnn_verify.common.causes import CAUSES, EXIT_CODES, PROBE_FAULT, VERDICT_OF_SIDE
from builder.verify.cudnn_verify.measure.report import decide_verdict

GPU = {"gpus": [{"name": "Tesla T4"}]}


def check(number, outcome="passed", cause=None, stage="convolution", **evidence):
    row = {"id": number, "outcome": outcome, "summary": "what was seen", "cause": cause, "stage": stage}
    return dict(row, evidence=evidence, note=None)


def failed(number, cause, stage="cudnn", **evidence):
    return check(number, "failed", cause, stage, **evidence)


def decide(checks, facts=None, **options):
    return decide_verdict(checks, facts or {}, options)


def test_the_first_layer_that_fails_is_the_cause_and_the_rest_follow():
    found = decide(
        [check("E01"), failed("E05", "cudnn-sublibrary-missing", "files"), failed("F01", "crash", "torch")]
    )
    assert (found["verdict"], found["cause"], found["side"]) == (
        "broken",
        "cudnn-sublibrary-missing",
        "image",
    )
    assert found["remedy"] == CAUSES["cudnn-sublibrary-missing"].remedy
    assert [(row["id"], row["stage"]) for row in found["consequences"]] == [("F01", "torch")]


@pytest.mark.parametrize(
    "first",
    [
        failed("P02", "package-overwritten", "packages", weak=True),
        failed("E02", "check-disabled", "environment"),
    ],
)
def test_what_explains_no_failure_steps_back_behind_one_that_does(first):
    found = decide([dict(first), failed("C03", "cudnn-sublibrary-mismatch")])
    assert found["cause"] == "cudnn-sublibrary-mismatch"
    assert decide([dict(first)])["cause"] == first["cause"]


FILE = "/site/nvidia/nvjitlink/lib/libnvJitLink.so.12"
FOLLOWING = [cause.id for cause in CAUSES.values() if cause.follows == "yes"]
OTHERS = [
    cause.id
    for cause in CAUSES.values()
    if cause.follows != "yes" and cause.id not in ("check-disabled", "expect-mismatch")
]


@pytest.mark.parametrize("symptom", FOLLOWING)
@pytest.mark.parametrize("kind", ["weak", "yields", "strong"])
def test_a_file_that_is_not_as_installed_explains_what_follows_from_it(kind, symptom):
    """For each pair; a stripped file, one of another release, a damaged one. Not the other way round."""
    file = failed("P02", "package-overwritten", "packages", not_as_installed=[FILE], **{kind: True})
    found = decide([file, failed("F01", symptom, "torch")])
    assert found["cause"] == "package-overwritten"
    assert [row["cause"] for row in found["consequences"]] == [symptom]


@pytest.mark.parametrize(
    ("number", "stage", "first"), [("R02", "onnxruntime", "P02"), ("E06", "resolver", "E06")]
)
def test_what_a_framework_does_without_one_of_its_python_files_follows_from_that(number, stage, first):
    source = {"not_as_installed": ["/site/onnxruntime/capi/build_and_package_info.py"], "weak": True}
    checks = [
        failed("P02", "package-overwritten", "packages", **source),
        failed(number, "cudnn-missing", stage),
    ]
    assert decide(checks)["first"]["id"] == first


@pytest.mark.parametrize(("name", "cause"), [("12", "package-overwritten"), ("13", "cudnn-missing")])
def test_a_search_misses_the_very_file_that_is_gone(name, cause):
    file = failed("P02", "package-overwritten", "packages", not_as_installed=[FILE], weak=True)
    missed = dict(failed("E06", "cudnn-missing", "resolver"), summary=f"there is no libnvJitLink.so.{name}")
    assert decide([file, missed])["cause"] == cause


@pytest.mark.parametrize("cause", OTHERS)
def test_what_no_file_explains_is_the_cause_beside_a_stripped_one(cause):
    file = failed("P02", "package-overwritten", "packages", not_as_installed=[FILE], weak=True)
    assert decide([file, failed("F01", cause, "torch")])["cause"] == cause


@pytest.mark.parametrize("symptom", FOLLOWING)
def test_what_a_counter_test_has_proven_does_not_follow_from_a_file(symptom):
    file = failed("P02", "package-overwritten", "packages", not_as_installed=[FILE], weak=True)
    assert decide([file, failed("F01", symptom, "torch", cured_by="cleared-path")])["cause"] == symptom


def test_another_library_that_is_absent_does_not_follow_from_a_file(tmp_path):
    file = failed("P02", "package-overwritten", "packages", not_as_installed=[FILE], weak=True)
    absent = failed(
        "R02", "toolkit-library-missing", "runtime", absent=[{"name": "libcufft.so.11", "by": "torch"}]
    )
    assert decide([file, absent])["cause"] == "toolkit-library-missing"
    own = failed(
        "R02", "toolkit-library-missing", "runtime", absent=[{"name": "libnvJitLink.so.12", "by": "torch"}]
    )
    assert decide([file, own])["cause"] == "package-overwritten"
    asking = str(write_elf(tmp_path / "libcusolver.so.11", needed=["libcufft.so.11"]))
    file = failed("P02", "package-overwritten", "packages", not_as_installed=[asking], weak=True)
    assert decide([file, absent])["cause"] == "package-overwritten"


def test_a_package_that_is_not_installed_does_not_follow_from_a_file():
    file = failed("P02", "package-overwritten", "packages", not_as_installed=[FILE], weak=True)
    pin = failed("P01", "nvrtc-missing", "packages", absent=[{"by": "torch", "name": "libnvrtc.so.12"}])
    assert decide([pin, file])["cause"] == "nvrtc-missing"


def test_a_mapping_that_fails_is_laid_to_the_file_that_it_is_about():
    file = failed("P02", "package-overwritten", "packages", not_as_installed=[FILE], weak=True)
    mapping = dict(failed("F01", "host-memory", "torch"), summary="libnvJitLink.so.12: failed to map segment")
    assert decide([file, mapping])["cause"] == "package-overwritten"
    other = dict(failed("F01", "host-memory", "torch"), summary="libcufft.so.11: failed to map segment")
    assert decide([file, other])["cause"] == "host-memory"


@pytest.mark.parametrize(
    ("cause", "verdict"),
    [
        ("cudnn-shadowed", "broken"),
        ("framework-arch-missing", "unsupported-gpu"),
        ("driver-too-old", "host"),
        ("out-of-memory", "busy"),
    ],
)
def test_whose_fault_it_is(cause, verdict):
    assert decide([failed("X", cause)])["verdict"] == verdict


def test_a_driver_that_hangs_is_the_machines_fault():
    assert decide([failed("H01", "hang", "driver")])["verdict"] == "host"
    assert decide([failed("H01", "hang", "torch")])["verdict"] == "broken"


def test_works_needs_a_convolution_on_a_gpu():
    assert decide([check("C07")], GPU)["verdict"] == "works"
    assert decide([check("C07", "not_run")], GPU)["verdict"] == "unverified"
    assert decide([check("C01")], {})["verdict"] == "unverified"
    assert decide([check("C07")], GPU, only="convolution")["verdict"] == "unverified"


def test_every_framework_that_reported_must_have_convolved():
    facts = dict(GPU, frameworks=[{"name": "torch"}, {"name": "jax"}])
    both = [check("C07"), check("F05", stage="torch"), check("F05", stage="jax")]
    assert decide(both, facts)["verdict"] == "works"
    assert decide(both[:2], facts)["verdict"] == "unverified"
    assert decide([*both[:2], check("F05", "not_run", stage="jax")], facts)["verdict"] == "unverified"


def test_no_stage_without_an_answer_is_passed_over():
    """The packages stage says which frameworks there are: killed, it would leave none to convolve."""
    found = decide([check("H01", "not_run", stage="packages"), check("C07")], GPU)
    assert found["verdict"] == "unverified"
    assert "the stage packages did not come to its end" in found["summary"]
    assert "packages" in decide([check("H01", "not_run", stage="packages")])["summary"]
    assert decide([check("H01", "not_run", stage="session"), check("C07")], GPU)["verdict"] == "works"


@pytest.mark.parametrize(
    "facts",
    [
        {"installed": {"torch": "torch"}},
        {"consumers": [{"framework": "mxnet", "optional": False}]},
        {"frameworks": [{"name": "torch", "linkage": "absent"}], "candidates": [{}]},
    ],
    ids=["installed and silent", "no stage for it", "convolved without cuDNN"],
)
def test_works_leaves_no_framework_out(facts):
    ran = [check("C07")]
    if "frameworks" in facts:
        ran.append(check("F05", stage="torch"))
    assert decide(ran, dict(GPU, **facts))["verdict"] == "unverified"


def test_works_needs_cudnn_itself_where_there_is_one():
    facts = dict(GPU, frameworks=[{"name": "torch", "linkage": "static"}])
    assert decide([check("F05", stage="torch")], facts)["verdict"] == "works"
    assert decide([check("F05", stage="torch")], dict(facts, candidates=[{}]))["verdict"] == "unverified"


def test_a_test_double_never_works():
    found = decide([check("C07")], dict(GPU, test_double=True))
    assert (found["verdict"], found["cause"]) == ("unverified", None)


def test_what_has_no_convolutions_holds_nothing_up():
    """CuPy 14 has no cuDNN at all; a CPU build that nobody asked for cannot convolve on a GPU either."""
    cupy = dict(GPU, frameworks=[{"name": "cupy", "linkage": "none"}], installed={"cupy": "cupy"})
    assert decide([check("C07"), check("F05", "not_run", stage="cupy")], cupy)["verdict"] == "works"
    facts = dict(GPU, frameworks=[{"name": "torch"}, {"name": "tensorflow"}])
    facts["consumers"] = [{"framework": "torch", "optional": False}]
    cpu = failed("P03", "framework-cpu-build", "tensorflow")
    assert decide([check("C07"), check("F05", stage="torch"), cpu], facts)["verdict"] == "works"


def test_only_the_first_gpu_is_spoken_for():
    facts = {"gpus": [{"name": "Tesla T4"}, {"name": "Tesla P100"}]}
    assert "the first of 2 GPUs; the others were not tried" in decide([check("C07")], facts)["summary"]
    both = decide([check("C07"), check("D06", card=1)], facts)
    assert "the first of 2 GPUs; cuDNN's are right on 1 of the others, too" in both["summary"]
    taken = decide([check("C07"), check("D06", "not_run", card=1)], facts)
    assert "the others were not tried" in taken["summary"]


@pytest.mark.parametrize("asked", ["onnxruntime-gpu", "onnxruntime_gpu"])
def test_a_cpu_build_over_the_gpu_build_that_was_asked_for(asked):
    """onnxruntime and onnxruntime-gpu share a folder; the expectation has the package's name."""
    cpu = failed("P03", "framework-cpu-build", "onnxruntime")
    expect = {"frameworks": {asked: "1.22.0"}}
    assert decide([check("C07"), cpu], GPU, expect=expect)["cause"] == "framework-cpu-build"


def test_a_file_changed_since_its_installation_is_a_remark_where_it_works():
    weak = failed("P02", "package-overwritten", "packages", weak=True)
    assert decide([dict(weak), check("C07")], GPU)["verdict"] == "works"
    assert decide([dict(weak)])["verdict"] == "broken"


def test_a_cpu_build_is_excused_only_beside_a_cuda_build_that_was_meant():
    cpu = failed("P03", "framework-cpu-build", "torch")
    consumers = [{"framework": "tensorflow", "optional": False}]
    assert decide([dict(cpu)])["cause"] == "framework-cpu-build"
    assert decide([dict(cpu)], {"consumers": consumers})["cause"] is None
    asked = {"frameworks": {"tensorflow": "2.18.0"}}
    assert decide([dict(cpu)], expect=asked)["cause"] is None
    assert decide([dict(cpu)], {"consumers": consumers}, expect={"frameworks": {"torch": "2.6"}})["cause"]


FASTER_WHISPER = {
    "faster-whisper": {"name": "faster-whisper", "requires": ["ctranslate2<5,>=4.0", "onnxruntime<2,>=1.14"]},
    "ctranslate2": {"name": "ctranslate2", "requires": []},
    "onnxruntime": {"name": "onnxruntime", "requires": []},
}


def test_a_cpu_build_that_another_package_brings_is_a_remark_beside_any_framework_with_cuda():
    """faster-whisper computes by CTranslate2, and finds speech by ONNX Runtime on the CPU."""
    cpu = failed("P03", "framework-cpu-build", "onnxruntime")
    cuda = check("P03", stage="ctranslate2")
    found = [dict(cpu), dict(cuda)]
    decided = decide(found, {"packages": FASTER_WHISPER})
    assert (decided["verdict"], decided["cause"]) == ("unverified", None)
    assert found[0]["note"] == cpu["summary"]
    without_cuda = dict(cuda, note="a build for the CPU")
    typed = {name: row for name, row in FASTER_WHISPER.items() if name != "faster-whisper"}
    extra = {**typed, "whole": {"name": "whole", "requires": ["onnxruntime; extra == 'cpu'"]}}
    both = {**FASTER_WHISPER, "onnxruntime-gpu": {"name": "onnxruntime-gpu", "requires": []}}
    of_torch = {
        "torch": {"name": "torch", "requires": []},
        "whisperx": {"name": "whisperx", "requires": ["torch"]},
    }
    for checks, packages in (
        ([cpu], FASTER_WHISPER),
        ([cpu, without_cuda], FASTER_WHISPER),
        ([cpu, cuda], typed),
        ([cpu, cuda], extra),
        ([cpu, cuda], both),
        ([dict(cpu, stage="torch"), cuda], of_torch),
    ):
        decided = decide([dict(one) for one in checks], {"packages": packages})
        assert (decided["verdict"], decided["cause"]) == ("broken", "framework-cpu-build")
    asked = {"frameworks": {"onnxruntime-gpu": "1.22.0"}}
    assert decide([dict(cpu), dict(cuda)], {"packages": FASTER_WHISPER}, expect=asked)["cause"]


def test_a_missed_pin_is_a_remark_where_the_gpu_proved_it_harmless():
    pin = failed("P01", "package-pin-mismatch", "packages")
    facts = dict(GPU, frameworks=[{"name": "torch"}])
    found = [dict(pin), check("C07"), check("F05", stage="torch")]
    assert decide(found, facts)["verdict"] == "works"
    assert found[0]["note"].startswith("and yet it works")
    assert decide([dict(pin), check("C07")], facts)["cause"] == "package-pin-mismatch"
    assert decide([dict(pin)])["cause"] == "package-pin-mismatch"


def test_nothing_at_all_is_said_to_be_nothing():
    assert "nothing to check" in decide([check("E01")])["summary"]
    assert "--no-gpu" in decide([check("E01")], no_gpu=True)["summary"]


def test_verdicts_causes_and_exit_codes_fit_together():
    assert EXIT_CODES == {
        "works": 0,
        "unverified": 10,
        "broken": 20,
        "unsupported-gpu": 21,
        "host": 22,
        "busy": 23,
    }
    assert PROBE_FAULT == 30
    for identifier, cause in CAUSES.items():
        assert identifier == cause.id
        assert VERDICT_OF_SIDE[cause.side] in EXIT_CODES
        assert cause.source.startswith("https://")
        assert all((cause.title, cause.remedy, cause.explanation))


@pytest.mark.parametrize("cause", CAUSES)
def test_every_finding_has_a_command_or_says_why_there_is_none(cause):
    found = decide([failed("F01", cause, "torch")], {"packages": {}})
    assert found["commands"] or len(found["no_command"]) > 30
    assert not (found["commands"] and found["no_command"])


@pytest.mark.parametrize("name", ["TORCH_LOGS", "XLA_FLAGS", "JAX_PLATFORMS"])
@pytest.mark.parametrize("cause", ["variable-breaks-framework", "framework-silent-cpu"])
def test_a_variable_that_is_at_fault_is_unset(name, cause):
    found = decide([failed("F04", cause, "jax", variable=name)], {"packages": {}})
    assert [row["text"] for row in found["commands"]] == [f"unset {name}"]


@pytest.mark.parametrize(
    ("package", "library"),
    [("nvshmem", "libnvshmem_host.so.3"), ("nccl", "libnccl.so.2"), ("cufile", "libcufile.so.0")],
)
def test_a_pinned_package_that_is_absent_is_installed_as_it_is_pinned(package, library):
    """By the check of the pins, and by the import that fails for want of its library."""
    need = {"by": "torch 2.9.1", "wants": f"nvidia-{package}-cu12==1.2.3", "name": f"nvidia-{package}-cu12"}
    pins = failed("P01", "toolkit-library-missing", "packages", lost=[need], not_installed=[])
    loads = dict(
        failed("F01", "toolkit-library-missing", "torch"),
        summary=f"{library}: cannot open shared object file",
    )
    for check, facts in ((pins, {}), (loads, {"not_installed": [need]})):
        (command,) = decide([check], {"packages": {}, **facts})["commands"]
        assert " install " in command["text"]  # of pip or, for a Python without one, of uv
        assert command["text"].endswith(f" --no-deps {need['wants']}")
