"""Threads of public issue trackers with a confirmed cause: what ``diagnose`` answers to each."""

from collections import Counter

import pytest
from pages import diagnose_score

from builder.verify.cudnn_verify.common.causes import CAUSES


@pytest.fixture(scope="module")
def scored():
    return diagnose_score.outcomes()


def test_the_page_of_the_score_is_generated(generated, scored):
    generated("docs/diagnose-score.md", diagnose_score.markdown(scored))


def test_the_corpus_is_in_order_ends_before_may_2026_and_holds_failing_lines_alone():
    threads = diagnose_score.read_corpus()
    assert [thread["date"] for thread in threads] == sorted(thread["date"] for thread in threads)
    assert threads[-1]["date"] < "2026-05"
    assert len({(thread["url"], thread["text"]) for thread in threads}) == len(threads)
    known = {*CAUSES, diagnose_score.NO_CAUSE}
    for thread in threads:
        assert thread["url"].startswith("https://")
        assert len(thread["text"].splitlines()) <= 40
        assert set(thread["expected"]) <= known


def test_almost_all_of_the_corpus_is_answered_and_hardly_any_wrongly(scored):
    counts = Counter(result for _, _, result in scored)
    right = counts["right"] + counts["right with command"]
    assert right >= 0.93 * len(scored)
    assert counts["wrong"] <= 0.01 * len(scored)


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
