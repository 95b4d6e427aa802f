"""Threads of public issue trackers with a confirmed cause: what ``diagnose`` answers to each."""

import textwrap
from collections import Counter
from pathlib import Path

import pytest
from pages import diagnose_score

from builder.verify.cudnn_verify.common.causes import CAUSES
from builder.verify.cudnn_verify.read.signatures import FEWEST, by_frequency, read_counts, read_signatures

HEALTHY = (Path(__file__).parent / "healthy.txt").read_text("utf-8").split("---\n")
"""What installers, compilers and frameworks print where nothing is wrong."""


@pytest.fixture(scope="module")
def scored():
    return diagnose_score.outcomes()


def test_the_page_of_the_score_is_generated(generated, scored):
    generated(
        "docs/diagnose-score.md",
        diagnose_score.markdown(scored, diagnose_score.outcomes(diagnose_score.UNSEEN)),
    )


def test_the_order_of_likely_causes_is_that_of_the_confirmed_threads(generated):
    generated("builder/verify/cudnn_verify/read/cause_counts.ini", diagnose_score.cause_counts())
    counts = {name: sum(row.values()) for name, row in read_counts().items()}
    assert max(counts.values()) >= FEWEST
    text = "RuntimeError: Library libcublas.so.12 is not found or cannot be loaded"
    rows = diagnose_score.answer(text)["causes"]
    assert [row["cause"] for row in rows] == ["cuda-major-mixed", "toolkit-library-missing"]
    frequent = read_counts()["ct2-toolkit-absent"]["cuda-major-mixed"]
    assert rows[0]["how"] == f"fits; the cause in {frequent} of {counts['ct2-toolkit-absent']} threads"


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


def test_quotes_wrapping_timestamps_and_colours_change_hardly_any_answer(scored):
    changed = []
    for number, (thread, document, _) in enumerate(scored[::2]):
        pasted = list(as_pasted(thread["text"]))[number % 4]
        if diagnose_score.answer(pasted)["cause"] != document["cause"]:
            changed.append(thread["url"])
    assert len(changed) <= 2, changed


def test_a_message_that_a_window_broke_within_words_is_read():
    text = "CUDA error 222 at ggml-cuda.cu:1835: the provided PTX was compiled with an unsupported toolchain."
    for width in (60, 78):
        broken = "\n".join(text[at : at + width] for at in range(0, len(text), width))
        assert diagnose_score.answer(broken)["cause"] == "driver-too-old"


@pytest.mark.parametrize("text", HEALTHY, ids=lambda text: text[:30])
def test_what_a_sound_machine_prints_names_no_cause(text):
    assert diagnose_score.answer(text)["causes"] == []


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
