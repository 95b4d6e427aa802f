"""Commands of ``diagnose``, held against what the same texts say is there: by classes, over all texts that
the tests know.
"""

import io
import json
import re
import shlex
from pathlib import Path

import pytest
from packaging.version import Version
from pages import diagnose_score

from builder.core.versions import at_least, key
from builder.plan.facts.tables import load
from builder.plan.resolve.solve import Demand, search, split
from builder.plan.resolve.wishes import from_arguments
from builder.verify.cudnn_verify.common.framework_builds import serves
from builder.verify.cudnn_verify.common.package_facts import PACKAGE_FACTS
from builder.verify.cudnn_verify.common.remedies import Remedies
from builder.verify.cudnn_verify.common.tables import Releases, read_facts, read_frameworks
from builder.verify.cudnn_verify.common.versions import numbers, pins_of, satisfies
from builder.verify.cudnn_verify.page import render_diagnosis
from builder.verify.cudnn_verify.read.diagnosis import _TOGETHER, diagnose
from builder.verify.cudnn_verify.read.fact_faults import first_branch
from builder.verify.cudnn_verify.read.reading import TextReading, read_text_given
from builder.verify.cudnn_verify.read.signatures import read_signatures
from builder.verify.cudnn_verify.read.text_facts import TextFacts

HERE = Path(__file__).parent
TEXTS = [
    row["text"]
    for name in ("corpus", "outside", "threads", "messages", "commands", "variants")
    for row in map(json.loads, (HERE / f"{name}.jsonl").read_text("utf-8").splitlines())
]
COMMANDS = [json.loads(row) for row in (HERE / "commands.jsonl").read_text("utf-8").splitlines()]
"""Messages as programs print them, with versions, cards, drivers or places beside them, that decide on the
command: the cause (several if one is as good), what the first of its commands has, and what none of them
has.
"""
VARIANTS = [json.loads(row) for row in (HERE / "variants.jsonl").read_text("utf-8").splitlines()]
"""Texts made up by class of fault, with other versions, cards and words than those of threads: the causes of
which one has to be first, what a command of the first two has, and what none has. Classes: a, a consequence
is no cause; b, companions of two releases; c, what is compiled here; d, facts that no line tells; e, a build
told in words; f, NPP, a Jetson's memory, headers; g, the command for the place and the facts; h, classes of
the seventh set that was held out.
"""
SAID = (
    "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
    "CUDA driver version is insufficient for CUDA runtime version",
    "forward compatibility was attempted on non supported HW",
    "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    "RuntimeError: operator torchvision::nms does not exist",
    "torchaudio/lib/_torchaudio.abi3.so: undefined symbol: torch_library_impl",
    "vllm/_C.abi3.so: undefined symbol: _ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib",
    "xformers/_C.so: undefined symbol: _ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib",
    "RuntimeError: Could not load libtorchcodec: undefined symbol: _ZN3c106detail14torchCheckFailE",
    "AssertionError: Torch not compiled with CUDA enabled",
    "ImportError: libcudart.so.13: cannot open shared object file\nimport torchvision",
    "nvcc fatal   : Unsupported gpu architecture 'compute_120'",
)
"""Messages that versions, cards, drivers and places beside them decide on."""
BESIDE = (
    "Driver Version: 470.82.01   CUDA Version: 11.4",
    "Driver Version: 550.54.14   CUDA Version: 12.4\nTesla P100",
    "Driver Version: 570.86.10   CUDA Version: 12.8\nRTX 5090",
    "NVIDIA driver 580.95.05\nRTX 3090",
    "Driver Version: 610.43.02  CUDA UMD Version: 13.3",
    "/usr/lib/python3.9/site-packages/torch",
    "/usr/lib/python3.14/site-packages/torch",
    "manylinux_2_39_aarch64 cpython-312-aarch64-linux-gnu.so",
    "C:\\venv\\Lib\\site-packages\\torch\\lib\\c10.dll",
)
TORCHES = ("2.1.2+cu118", "2.8.0+cu129", "2.13.0+cu132")
TEXTS += [f"{said}\n{beside}\ntorch=={torch}" for said in SAID for beside in BESIDE for torch in TORCHES]
PINNED = re.compile(r"([a-z][\w-]*)(?:\[[\w,-]*\])?==(\d+(?:\.\d+)*(?:\.post\d+)?)(?![\w.*])")
CHANGES_BUILD = {"framework-arch-missing", "driver-too-old", "framework-cpu-build", "build-toolkit-mismatch"}
"""Causes that another build of the framework mends, of whichever CUDA."""
ELSEWHERE = {"cuda-major-mixed", "build-not-published", "cudnn-arch-dropped"}


@pytest.fixture(scope="module")
def facts():
    return load()


@pytest.fixture(scope="module")
def answered():
    """[(text, its facts, cause, command)] of all commands to all texts."""
    rows = []
    for text in TEXTS:
        here = TextFacts(read_text_given(text).lines)
        for row in diagnose_score.answer(text)["causes"]:
            rows += [(text, here, row["cause"], command["text"]) for command in row["commands"]]
    assert len(rows) > 1000
    return rows


def cuda_of(driver, facts):
    """The newest CUDA whose own driver is no newer than this one."""
    shipped = [(Version(row.driver), Version(cuda)) for cuda, row in facts.own_drivers.items()]
    return max(cuda for own, cuda in shipped if own <= driver)


@pytest.mark.slow
def test_no_command_asks_for_a_driver_where_the_text_shows_one_as_new(answered, facts):
    asked = [
        row
        for row in answered
        if re.search(r"nvidia-driver-\d", row[3])
        and row[2] not in ("driver-card-unsupported", "framework-known-bad")  # these go back on purpose
    ]
    assert len(asked) > 30
    wrong = []
    for text, here, cause, command in asked:
        branch = Version(re.search(r"nvidia-driver-(\d+)", command)[1])
        known = here.driver and Version(here.driver) >= branch
        newest = cuda_of(Version(f"{branch}.999"), facts)
        if known or (here.driver_cuda and Version(here.driver_cuda) >= newest):
            wrong.append((cause, command, text[:300]))
    assert wrong == []


@pytest.mark.slow
def test_every_release_in_a_command_has_wheels_for_the_python_and_the_processor_of_the_text(answered, facts):
    checked, wrong = 0, []
    for text, here, cause, command in answered:
        words = command if "venv" not in command and "--no-binary" not in command else ""
        for name, release in PINNED.findall(words if " install " in words else ""):
            table = facts.frameworks.get(name) or facts.packages.get(name)
            rows = [row for row in table.rows if Version(row.version) == Version(release)] if table else []
            rows = [row for row in rows if row.python]
            checked += bool(rows)
            python = here.python and not any(here.python in row.python for row in rows)
            arm = "aarch64" in here.places and not any("linux/arm64" in row.platforms for row in rows)
            if rows and (python or arm):
                wrong.append((cause, command, here.python, sorted(here.places), text[:200]))
    assert checked > 100
    assert wrong == []


@pytest.mark.slow
def test_what_is_compiled_for_a_pytorch_is_named_in_the_release_for_the_one_beside_it(answered, facts):
    checked, wrong = 0, []
    for _, _, _, command in answered:
        named = dict(PINNED.findall(command))
        for name in (
            {"torchvision", "torchaudio", "xformers", "vllm"} & set(named) if "torch" in named else ()
        ):
            rows = [row for row in facts.packages[name].rows if row.version == named[name]]
            pins = [one.specifier for row in rows for one in row.asks("torch")]
            checked += 1
            if not rows or not all(pin.contains(named["torch"]) for pin in pins):
                wrong.append(command)
    assert checked > 10
    assert wrong == []


@pytest.mark.slow
def test_what_a_command_installs_serves_the_card_and_the_driver_of_the_text(answered):
    """What is proposed has to pass the very facts that the fault was found with."""
    checked, wrong = 0, []
    for text, here, cause, command in answered:
        found = re.search(r"(?<![\w.-])torch==(\d+(?:\.\d+)+)", command)
        index = re.search(r"whl/(cu\d+)", command)
        whole = found and "$(" not in command and not command.startswith("rtbuild ")
        rows = Releases().builds("torch", found[1]) if whole else []
        rows = [row for row in rows if (row["variant"] == index[1] if index else row["default"])]
        card, machine = numbers(here.capability), Remedies(here)
        ours = rows if {"jetson", "macos"}.isdisjoint(here.places) else []
        for row in ours[:1]:
            checked += 1
            if card and len(here.capabilities) == 1 and not serves(row, card):
                wrong.append((cause, command, here.capability, text[:200]))
            served = not machine.driver_known() or machine.driver_serves(numbers(row["cuda"]))
            if not served and cause in CHANGES_BUILD:
                wrong.append((cause, command, here.driver, text[:200]))
        for spec in re.findall(r"onnxruntime-gpu(?:\[[\w,]+\])?([<>=][\d.,<>=]+)", command) if card else ():
            rows = Releases().builds("onnxruntime-gpu", None)
            newest = next((row for row in rows if satisfies(row["latest"], pins_of(spec))), None)
            checked += 1
            if newest and not serves(newest, card):
                wrong.append((cause, command, here.capability, text[:200]))
        if re.search(r"nvidia-cuda-nvrtc(-cu\d+)?$", command) and len(here.cuda_majors) > 1:
            wrong.append((cause, command, sorted(here.cuda_majors), text[:200]))
    assert checked > 100
    assert wrong == []


@pytest.mark.slow
def test_no_release_is_built_again_that_lacks_a_card_which_no_text_names(answered):
    for text, here, cause, command in answered:
        again = re.search(r"rtbuild up '[\w-]+==", command) and not here.capability
        assert not (again and cause == "framework-arch-missing"), (command, text[:200])


def test_a_package_that_was_compiled_here_is_compiled_anew_and_pytorch_stays():
    text = (
        "NVIDIA GB10, uv pip install -e . with TORCH_CUDA_ARCH_LIST unset\nNotImplementedError: No compiled"
    )
    text += " cutlass_scaled_mm for a compute capability less than CUDA device capability: 121"
    (row,) = diagnose_score.answer(text)["causes"]
    first = row["commands"][0]["text"]
    assert first == 'TORCH_CUDA_ARCH_LIST="12.1a" uv pip install -e . --no-build-isolation'
    assert not any("torch==" in command["text"] for command in row["commands"])


@pytest.mark.slow
def test_a_build_of_pytorch_is_taken_from_the_index_of_the_text(answered, facts):
    builds, checked, wrong = facts.frameworks["torch"], 0, []
    for text, here, cause, command in answered:
        named = dict(PINNED.findall(command))
        told = set(
            re.findall(
                r"(?i)\b(?:py)?torch\W{0,3}\d[\d.]+\+(cu\d{3})\b", text.partition("(you have")[2] or text
            )
        )
        other = cause in CHANGES_BUILD | ELSEWHERE or command.startswith("rtbuild ")
        ours = re.search(r"(?<![\w.-])(torch|torchvision|torchaudio|torchcodec|xformers)(==|>=| |$)", command)
        if other or len(told) != 1 or not ours or "$(" in command:
            continue
        variant, release = told.pop(), named.get("torch") or here.packages["torch"].partition("+")[0]
        row = next((r for r in Releases().builds("torch", release) if r["variant"] == variant), None)
        if row and here.capability and not serves(row, numbers(here.capability)):
            continue  # that build has no code for the card
        default = [row.variant for row in builds.rows if row.version == release and row.default]
        checked += 1
        # what is held as it is is looked for on no index
        if f"/{variant}" not in command and f"+{variant}" not in command and variant not in default:
            wrong.append((cause, command, text[:200]))
    assert checked > 60
    assert wrong == []


@pytest.mark.slow
def test_no_pytorch_without_cuda_is_taken_on_windows(answered):
    asked = [
        row
        for row in answered
        if "windows" in row[1].places and re.search(r"install .*\btorch(?===| |$)", row[3])
    ]
    assert len(asked) > 5
    assert [row[3] for row in asked if "index-url" not in row[3] and "--torch-backend" not in row[3]] == []


@pytest.mark.slow
def test_no_build_variable_has_a_card_that_the_text_does_not_name(answered):
    asked = [row for row in answered if "ARCH_LIST" in row[3]]
    assert len(asked) > 10
    for text, here, _, command in asked:
        value = re.search(r"ARCH_LIST=[\"']?([^\"' ]+)", command)[1]
        named = numbers(value.partition("+")[0].rstrip("a"))
        cards = map(numbers, here.capabilities)
        served = any(named[:1] == card[:1] and named <= card for card in cards)
        assert value.startswith("$(nvidia-smi") or served, (command, text[:200])


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row["text"][:50])
def test_what_stands_beside_a_message_decides_on_the_command(row):
    document = diagnose_score.answer(row["text"])
    first = document["causes"][0] if document["causes"] else {"cause": None, "commands": []}
    assert first["cause"] in row["cause"].split(",")
    texts = [command["text"] for command in first["commands"] if command["where"] != "rtbuild"]
    if row["command"]:
        assert texts, document
        assert row["command"] in texts[0]
    every = [command["text"] for cause in document["causes"] for command in cause["commands"]]
    assert not [text for text in every for never in row.get("never", ()) if never in text]
    for text in every:
        assert shlex.split(text.replace("'", "").replace('"', "")), text


@pytest.mark.parametrize("row", VARIANTS, ids=lambda row: f"{row['class']}: {row['text'][:50]}")
def test_the_facts_of_a_text_decide_on_cause_and_command(row):
    document = diagnose_score.answer(row["text"])
    assert document["cause"] in row["causes"], document["causes"]
    texts = [command["text"] for cause in document["causes"][:2] for command in cause["commands"]]
    assert not row["command"] or any(row["command"] in text for text in texts), texts
    assert not [text for text in texts for never in row["never"] if never in text]


def test_no_build_is_denied_that_the_table_may_lack():
    """Of 2.0 to 2.8 each build is on record; of other releases PyTorch's page lists some alone."""
    none = "ERROR: Could not find a version that satisfies the requirement torch==%s (from versions: none)"
    complete = diagnose(read_text_given(none % "2.6.0+cu121"))
    assert "and none for cu121" in complete["causes"][0]["because"][0]
    unsure = diagnose(read_text_given(none % "1.13.1+cu118"))
    assert "none is on record for cu118" in unsure["causes"][0]["because"][0]
    for published in (
        "1.7.1+cu110",
        "1.5.0+cu101",
        "1.5.1+cu92",
        "1.6.0+cu101",
        "1.8.0+cu101",
        "1.11.0+cu115",
    ):
        answer = diagnose(read_text_given(none % published))["causes"][0]
        assert not any("builds for" in reason for reason in answer["because"]), published


def test_a_python_that_is_too_new_is_named_by_what_the_index_lists():
    said = "ERROR: Could not find a version that satisfies the requirement %s (from versions: %s)"
    told = diagnose(read_text_given(said % ("torch==1.9.0+cu111", "1.11.0, 1.12.0")))["causes"][0]
    assert "wheels for Python 3.6 to 3.9" in told["because"][0]
    assert "too new" in told["because"][0]
    for unclear in ("1.9.0+cu102, 1.9.0", "1.4.0, 1.11.0", "none", "2.0.0+cu117, 2.0.0+cu118"):
        told = diagnose(read_text_given(said % ("torch==1.9.0+cu111", unclear)))["causes"][0]
        assert not told["because"], unclear


def test_each_line_to_run_the_probe_writes_it_first():
    command = diagnose(read_text_given("hello world"))["look"]["command"]
    assert command == "rtbuild probe -o cudnn_verify.py && python3 cudnn_verify.py"


def test_a_text_without_a_failure_leads_to_what_fits_its_card_and_driver():
    smi = "| Driver Version: 535.104.05  CUDA Version: 12.2 |\n|   0  NVIDIA GeForce RTX 3090  Off |"
    assert diagnose(read_text_given(smi))["look"]["command"] == (
        "rtbuild resolve torch --gpu 'NVIDIA GeForce RTX 3090' --driver 535.104.05"
    )
    failed = diagnose(read_text_given(smi + "\nRuntimeError: something else"))["look"]["command"]
    assert failed.startswith("rtbuild probe")


def test_an_empty_text_is_said_to_be_empty():
    document = diagnose(read_text_given("  \n"))
    assert document["read"]["notes"] == ["the text is empty"]
    page = render_diagnosis(document)
    assert page.startswith(
        "Nothing was read: the text is empty.\n\nWhat to do now:\n  $ PROGRAM 2>&1 | rtbuild"
    )
    assert "in quotes" in page


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "a picture"),
        (b"%PDF-1.7\n%\xe2\n", "a PDF"),
        (b"PK\x03\x04\x14\0", "an archive"),
    ],
)
def test_a_file_without_text_is_told_by_its_kind(start, kind):
    reading = TextReading()
    reading.add("shot", io.BytesIO(start + b"CUDA error: out of memory\n"))
    document = diagnose(reading)
    assert document["causes"] == []
    assert render_diagnosis(document).startswith(f"Nothing was read: shot is {kind}: ")


def test_an_empty_text_beside_another_is_a_note_alone():
    reading = TextReading()
    reading.add("a.log", io.BytesIO(b""))
    reading.add("b.log", io.BytesIO(b"hello\n"))
    page = render_diagnosis(diagnose(reading))
    assert page.startswith("No cause: ")
    assert "note: a.log is empty" in page


def test_a_bare_message_ends_with_what_prints_the_missing_facts():
    bare = "CUDA error: no kernel image is available for execution on the device"
    look = diagnose(read_text_given(bare))["look"]
    assert "nvidia-smi --query-gpu=name,compute_cap" in look["command"]
    printed = "NVIDIA GeForce RTX 5090, 12.0\n| Driver Version: 575.57.08  CUDA Version: 12.9 |"
    told = diagnose(read_text_given(f"{bare}\n{printed}\nPython 3.11.4\ntorch   2.5.1+cu124"))
    assert told["look"] is None
    assert "torch==" in told["causes"][0]["commands"][0]["text"]


def test_a_product_of_matrices_that_does_not_start_is_memory_or_the_card():
    failed = "InternalError: Blas GEMM launch failed : a.shape=(100, 784), b.shape=(784, 256), m=100"
    unsure = diagnose(read_text_given(failed))
    assert unsure["equal"] == ["out-of-memory", "framework-arch-missing"]
    assert "nvidia-smi" in unsure["look"]["command"]
    old = diagnose(read_text_given(failed + "\ntensorflow==2.3.1\nGeForce RTX 3090"))
    assert (old["cause"], old["decided"]) == ("framework-arch-missing", True)
    full = diagnose(read_text_given(failed + "\n| 30%  40C  P8  20W / 350W | 24100MiB / 24268MiB |"))
    assert (full["cause"], full["decided"]) == ("out-of-memory", True)


@pytest.mark.slow
@pytest.mark.parametrize("framework", sorted({row["framework"] for row in read_facts()["builds"]}))
def test_an_image_that_is_promised_for_a_card_is_one_that_resolve_proposes(framework):
    """Over all compute capabilities on record, for a text without a release and with each minor one."""
    rows = read_frameworks().values()
    told = next(row["told"] for row in rows if framework in (row["told"], row.get("distribution")))
    builds = Releases().builds(framework, None)
    versions = {numbers(row["latest"])[:2]: row["latest"] for row in builds}
    promised = set()
    for capability in {row.capability for row in load().gpus.values()}:
        for version in (None, *versions.values()):
            here = TextFacts([])
            here.capability, here.packages = capability, {told: version} if version else {}
            command = Remedies(here, {"printed_by": [told]}, [told]).image("framework-arch-missing")
            promised |= {command.text} if command else set()
    refused = []
    for text in sorted(promised):
        _, _, wanted, _, card = shlex.split(text)
        frameworks, companions = split(from_arguments((wanted,)))
        demand = Demand(frameworks=frameworks, companions=companions, gpus=(card,))
        if not search(demand, enough=1).possible:
            refused.append(text)
    assert refused == []
    assert promised or framework in ("ctranslate2", "paddlepaddle-gpu"), "no image is ever promised for it"


@pytest.mark.parametrize("capability", ["5.0", "6.1", "7.0", "7.5", "8.6", "9.0", "10.0", "12.0"])
def test_the_index_for_a_card_has_a_build_with_code_for_it(capability):
    """Of a PyTorch whose release is not known; without an index the default one's builds serve the card."""
    here = TextFacts([])
    here.capability = capability
    remedies = Remedies(here, {}, ["torch"])
    index = PACKAGE_FACTS["index-for-card"](remedies)
    every = [row for row in Releases().builds("torch", None) if row["archs"]]
    newest = next(row for row in every if (row["variant"] == index if index else row["default"]))
    assert serves(newest, remedies.capability)


@pytest.mark.parametrize("python", ["3.9", "3.10", "3.11", "3.12", "3.13"])
def test_the_pytorch_for_an_old_glibc_is_the_newest_on_record_for_it(python):
    line = "ImportError: /lib64/libc.so.6: version `GLIBC_2.28' not found (required by libtorch_cpu.so)"
    here = TextFacts([])
    here.python = python
    remedies = Remedies(here, {"matched": line, "line": line}, ["torch"])
    fits = [
        row.version
        for row in load().table("torch").rows
        if row.default and python in row.python and row.glibc is not None and at_least("2.17", row.glibc)
    ]
    assert PACKAGE_FACTS["torch-of-old-libc"](remedies) == f"torch=={max(fits, key=key)}"


def test_the_first_driver_branch_for_a_card_is_that_of_the_rules():
    rows = [(one, row.since) for row in load().architectures if row.since for one in row.capabilities]
    told = {card: first_branch(numbers(card)) for card, _ in rows}
    wanted = {card: int(since.partition(".")[0]) for card, since in rows}
    assert told.pop("12.1") >= wanted.pop("12.1")  # GB10's own machines came with a later branch
    assert told == wanted


def test_facts_that_contradict_each_other_have_the_causes_of_their_signatures():
    told = {(need, cause) for one in read_signatures() for need in one.needs for cause in one.causes[:1]}
    assert set(_TOGETHER) <= told
