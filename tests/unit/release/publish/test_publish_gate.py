"""The gate as a function: which reports count, what is refused and in which words, what is claimed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from doubles.project import A100, MATRIX, T4, Project, entry, image_of, policy

from builder.core.digests import digest_of
from builder.core.errors import CellError
from builder.core.model import Exemption
from builder.release.publish.gate import Decision, decide
from builder.verify.evidence.judgement import claim_text
from builder.verify.runner.reports import Damaged, read_entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from builder.core.model import Cell

NOW = datetime.now(UTC).replace(microsecond=0)
MAX_AGE = timedelta(days=30)


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Cell:
    return Project(tmp_path_factory.mktemp("project")).cell


def kinds(decision: Decision) -> list[str]:
    return [refusal.kind for refusal in decision.refusals]


def judge(
    cell: Cell,
    *reports: Any,
    max_age: timedelta | None = MAX_AGE,
    exempt: tuple[Exemption, ...] = (),
    **changes: Any,
) -> Decision:
    return decide(
        cell, image_of(cell), reports, policy=policy(now=NOW, max_age=max_age, **changes), exemptions=exempt
    )


def test_one_good_report_opens_it(cell: Cell) -> None:
    decision = judge(cell, entry(cell))
    assert not decision.refusals
    assert (decision.claims, decision.exempt) == (("T4",), ())
    assert [found.key.driver for found in decision.counted] == ["535.104.05"]
    assert decision.measured == "tensorflow2.15.1-py3.11.2-cuda12.2-cudnn8.9.4-bookworm"


def test_without_a_report_it_is_shut(cell: Cell) -> None:
    decision = judge(cell)
    assert kinds(decision) == ["missing"]
    assert "sha256:" + "d" * 64 in decision.refusals[0].text
    assert "rtbuild verify" in (decision.refusals[0].hint or "")


CONVOLVED = [{"id": "C07", "stage": "convolution", "outcome": "passed", "summary": "", "evidence": {}}]
NOT_RUN = [{"id": "C07", "stage": "convolution", "outcome": "not_run", "summary": "", "evidence": {}}]
FAILED = [*CONVOLVED, {"id": "F05", "stage": "t", "outcome": "failed", "summary": "", "evidence": {}}]


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"digest": "sha256:" + "e" * 64}, "digest", "is about sha256:eeee"),
        ({"content": "sha256:" + "e" * 64}, "content", "other content"),
        ({"probe": {"version": "1", "sha256": "e" * 64}}, "probe", "by cudnn-verify eeee"),
        ({"test_double": True}, "test-double", "a test double stood in"),
        ({"verdict": "unverified", "gpus": [], "driver": None}, "unverified", "says unverified"),
        ({"verdict": "host", "cause": "driver-too-old"}, "host", "says host, driver-too-old on Tesla T4"),
        ({"verdict": "busy", "cause": "out-of-memory"}, "busy", "says busy"),
        ({"verdict": "broken", "cause": "cudnn-shadowed"}, "broken", "says broken, cudnn-shadowed"),
        ({"verdict": "unsupported-gpu"}, "unsupported-gpu", "says unsupported-gpu"),
        (
            {"verdict": "unsupported-gpu", "verified": NOW - timedelta(days=100)},
            "unsupported-gpu",
            "says unsupported-gpu",
        ),
        ({"verified": NOW - timedelta(days=31)}, "old", "31.0 days old, and 30.0 days are allowed"),
        ({"verified": NOW + timedelta(minutes=11)}, "future", "but here it is"),
        ({"verified": NOW + timedelta(days=3650)}, "future", "but here it is"),
        ({"checks": NOT_RUN}, "no-proof", "no convolution ran"),
        ({"checks": []}, "no-proof", "no convolution ran"),
        ({"checks": FAILED}, "no-proof", "checks failed in its report: F05"),
        ({"gpus": []}, "no-proof", "names no GPU"),
        ({"driver": None}, "no-proof", "names no driver"),
        ({"cause": "cudnn-shadowed"}, "no-proof", "says works, cudnn-shadowed"),
        ({"python": "3.9.2"}, "differs", "asked 3.11, found 3.9.2"),
    ],
)
def test_a_report_that_does_not_count(cell: Cell, changes: dict[str, Any], kind: str, words: str) -> None:
    report = entry(cell, where="results/reports/this.json", **changes)
    decision = judge(cell, report)
    assert kinds(decision) == [kind]
    assert words in decision.refusals[0].text
    assert "results/reports/this.json" in decision.refusals[0].text
    assert (decision.claims, decision.counted) == ((), ())


def test_a_good_report_beside_bad_ones(cell: Cell) -> None:
    """Machines that could not verify and an earlier image take nothing away from one that could."""
    bad = (
        entry(cell, verdict="unverified", gpus=[], driver=None),
        entry(cell, verdict="host", driver={"version": "470.1", "api": "11.4"}),
        entry(cell, digest="sha256:" + "e" * 64),
        entry(cell, verified=NOW - timedelta(days=300), driver={"version": "525.1", "api": "12.0"}),
        Damaged(where="x", why="x was changed after it was written", name="f" * 16 + "-x.json"),
    )
    decision = judge(cell, *bad, entry(cell))
    assert not decision.refusals
    assert len(decision.counted) == 1


def test_broken_once_is_not_outvoted(cell: Cell) -> None:
    """At fault with one driver is at fault, whatever another does, and however long ago."""
    broken = entry(
        cell,
        verdict="broken",
        cause="cudnn-shadowed",
        driver={"version": "470.1", "api": "11.4"},
        verified=NOW - timedelta(days=100),
    )
    assert kinds(judge(cell, broken, entry(cell))) == ["broken"]
    assert kinds(judge(cell, entry(cell), broken)) == ["broken"]


def test_of_two_reports_about_the_same_the_newer_counts(cell: Cell) -> None:
    old = entry(cell, verdict="broken", cause="x", verified=NOW - timedelta(days=2))
    new = entry(cell, verified=NOW - timedelta(days=1))
    assert not judge(cell, old, new).refusals
    assert not judge(cell, new, old).refusals
    older_good = entry(cell, verified=NOW - timedelta(days=3))
    assert kinds(judge(cell, older_good, old)) == ["broken"]


@pytest.mark.parametrize(
    "newer",
    [
        {"verdict": "busy", "cause": "out-of-memory"},
        {"verdict": "host", "cause": "driver-hang"},
        {"verdict": "unverified"},
        {"test_double": True},
        {"verified": NOW + timedelta(days=1)},
        {"checks": NOT_RUN},
        {"python": "3.9.2"},
    ],
)
@pytest.mark.parametrize("verdict", ["broken", "unsupported-gpu"])
def test_what_was_found_is_not_mended_by_a_report_that_does_not_count(
    cell: Cell, verdict: str, newer: dict[str, Any]
) -> None:
    """Beside it the same GPU works with another driver: the newer report must not hide the older one."""
    found = entry(cell, verdict=verdict, cause="x", verified=NOW - timedelta(days=2))
    later = entry(cell, **{"verified": NOW - timedelta(hours=1)} | newer)
    assert later.key == found.key
    good = entry(cell, driver={"version": "550.1", "api": "12.4"})
    assert kinds(judge(cell, found, later, good)) == [verdict]
    assert not judge(cell, found, entry(cell), later, good).refusals, "and one that counts has mended it"


def test_broken_and_works_in_one_second(cell: Cell) -> None:
    moment = NOW - timedelta(days=1)
    broken, good = entry(cell, verdict="broken", verified=moment), entry(cell, verified=moment)
    assert kinds(judge(cell, broken, good)) == kinds(judge(cell, good, broken)) == ["broken"]


def test_reports_of_other_cells_do_not_matter(cell: Cell) -> None:
    from dataclasses import replace

    other = replace(cell, id="other")
    far = {"digest": "sha256:" + "e" * 64, "content": "sha256:" + "f" * 64}
    assert kinds(judge(cell, entry(other, verdict="broken", **far))) == ["missing"]


def test_an_edited_report_is_named(cell: Cell) -> None:
    mine = Damaged(where="a", why="a was changed after it was written", name="c" * 16 + "-1.json")
    another = Damaged(where="b", why="b was changed after it was written", name="f" * 16 + "-1.json")
    folder = Damaged(where="r", why="r cannot be read (Permission denied)", name="")
    for beside in ((), (entry(cell),)):  # it may be the one that said broken, and was cut off
        decision = judge(cell, mine, another, folder, *beside)
        assert kinds(decision) == ["edited", "edited"]
        assert [refusal.text for refusal in decision.refusals] == [mine.why, folder.why]


def test_the_newest_report_is_how_much_was_known(cell: Cell) -> None:
    newest = entry(cell, verdict="busy", verified=NOW - timedelta(hours=1))
    future = entry(cell, verdict="host", verified=NOW + timedelta(days=9))
    assert judge(cell, entry(cell), newest, future).as_of == newest.verified


def test_the_claims_are_what_was_verified(cell: Cell) -> None:
    """More than the matrix asks for is claimed as well; with another driver it is the same class."""
    decision = judge(
        cell, entry(cell), entry(cell, gpu=A100), entry(cell, driver={"version": "550.1", "api": "12.4"})
    )
    assert decision.claims == ("A100", "T4")
    assert len(decision.counted) == 3
    assert decision.drivers == {"A100": ["535.104.05"], "T4": ["535.104.05", "550.1"]}
    assert claim_text(decision.drivers) == "A100 from driver 535.104.05 on, T4 from driver 535.104.05 on"


def test_of_a_machine_with_several_the_first_gpu_convolved(cell: Cell) -> None:
    assert judge(cell, entry(cell, gpus=[T4, A100])).claims == ("T4",)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Cell:
    text = MATRIX.replace("[T4]", "[T4, A100]") + "include: [{}]\n"
    return Project(tmp_path_factory.mktemp("claims"), text).cell


def test_a_claim_that_nobody_bears_out_shuts_it(two: Cell) -> None:
    decision = judge(two, entry(two))
    assert kinds(decision) == ["claim"]
    assert "claims A100, but no report comes from one" in decision.refusals[0].text


def test_and_so_does_a_report_that_does_not_count(two: Cell) -> None:
    decision = judge(two, entry(two), entry(two, gpu=A100, verdict="busy", cause="out-of-memory"))
    assert kinds(decision) == ["claim"]
    assert "says busy, out-of-memory on NVIDIA A100" in decision.refusals[0].text


def test_an_exemption_takes_the_claim_away(two: Cell) -> None:
    exempt = (Exemption(gpu="A100", cells="*", reason="none here"),)
    decision = judge(two, entry(two), max_age=None, exempt=exempt)
    assert not decision.refusals
    assert (decision.claims, decision.exempt) == (("T4",), ("A100",))


def test_also_where_it_was_verified(two: Cell) -> None:
    exempt = (Exemption(gpu="A100", cells="*", reason="too slow there"),)
    decision = judge(two, entry(two), entry(two, gpu=A100), max_age=None, exempt=exempt)
    assert (decision.claims, decision.exempt) == (("T4",), ("A100",))


def test_an_exemption_for_other_cells_is_none(two: Cell) -> None:
    exempt = (Exemption(gpu="A100", cells="torch*", reason="x"),)
    assert kinds(judge(two, entry(two), max_age=None, exempt=exempt)) == ["claim"]


def test_something_must_be_left_to_claim(two: Cell) -> None:
    exempt = tuple(Exemption(gpu=gpu, cells="*", reason="x") for gpu in ("A100", "T4"))
    decision = judge(two, entry(two), max_age=None, exempt=exempt)
    assert kinds(decision) == ["claim"]
    assert "T4, which its matrix exempts" in decision.refusals[0].text


def test_a_claim_that_another_driver_denies(two: Cell) -> None:
    exempt = (Exemption(gpu="A100", cells="*", reason="x"),)
    other = entry(two, verdict="unsupported-gpu", driver={"version": "450.1", "api": "11.0"})
    assert kinds(judge(two, entry(two), other, max_age=None, exempt=exempt)) == ["unsupported-gpu"]


def test_a_gpu_of_no_table_cannot_be_claimed(tmp_path) -> None:
    cell = Project(tmp_path, MATRIX.replace("  gpus: [T4]\n", "") + "include: [{}]\n").cell
    decision = judge(cell, entry(cell, gpu={"name": "NVIDIA X9000", "compute_capability": "19.0"}))
    assert kinds(decision) == ["unknown-gpu"]
    assert "gpus.toml" in (decision.refusals[0].hint or "")
    assert judge(cell, entry(cell)).claims == ("T4",)


def test_reports_that_measured_different_things(cell: Cell) -> None:
    other = entry(cell, python="3.11.9", driver={"version": "550.1", "api": "12.4"}, where="other.json")
    decision = judge(cell, entry(cell), other)
    assert kinds(decision) == ["differs"]
    assert "other.json" in decision.refusals[0].text


def test_no_policy_can_open_it(cell: Cell) -> None:
    """Whatever a single field of a good report is changed to, more is never claimed than before."""
    good = json.loads(entry(cell).text)["document"]
    for name in good:
        for value in (None, [], {}, "", False, "unverified", 0):
            try:
                changed = entry(cell, **{name: value})
            except Exception as error:  # noqa: BLE001 - what is no report cannot be one that counts
                assert "no valid report" in str(error)  # noqa: PT017
                continue
            decision = judge(cell, changed, max_age=None)
            assert decision.claims in ((), ("T4",))
            if name in {"verdict", "gpus", "driver", "checks", "test_double"} and value != good[name]:
                assert decision.refusals, (name, value)


def forged(entry: dict[str, Any]) -> str:
    """With a seal that fits: anyone can compute it."""
    body = {name: value for name, value in entry.items() if name != "seal"}
    return json.dumps(body | {"seal": digest_of(body)})


FORGERIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "digest in upper case": lambda e: e["key"].update(digest=e["key"]["digest"].upper()),
    "digest and a line": lambda e: e["key"].update(digest=e["key"]["digest"] + "\n"),
    "content of another": lambda e: e["key"].update(content="sha256:" + "9" * 64),
    **{
        f"test_double {value!r}": lambda e, value=value: e["document"].update(test_double=value)
        for value in (None, 0, "", True, "false")
    },
    **{
        f"verdict {value!r}": lambda e, value=value: e["document"].update(verdict=value)
        for value in ("works ", "WORKS", "w\N{CYRILLIC SMALL LETTER O}rks")
    },
    "other digits": lambda e: (
        e["document"]["driver"].update(version="5\uff13\uff15.104"),
        e["key"].update(driver="5\uff13\uff15.104"),
    ),
    "a time of no year": lambda e: e.update(verified="9999-12-31T23:59:59-23:59"),
    "a time without an offset": lambda e: e.update(verified="2026-11-22T00:00:00"),
    "check in lower case": lambda e: [row.update(id=row["id"].lower()) for row in e["document"]["checks"]],
    "check passed and failed": lambda e: e["document"]["checks"].extend(
        [row | {"outcome": "failed"} for row in e["document"]["checks"]]
    ),
    "outcome in upper case": lambda e: [row.update(outcome="PASSED") for row in e["document"]["checks"]],
    "a cause beside it": lambda e: e["document"].update(cause=""),
    "no differences": lambda e: e["document"].update(differences=None),
}  # fmt: skip


@pytest.mark.parametrize("name", ["none", *FORGERIES])
def test_a_forged_report_opens_nothing(cell: Cell, name: str) -> None:
    report = json.loads(entry(cell).text)
    FORGERIES.get(name, dict)(report)
    try:
        decision = judge(cell, read_entry(forged(report), "x"))
    except CellError:
        assert name != "none"
        return
    assert (not decision.refusals) is (name == "none"), name


def suites_of(*names: str) -> dict[str, Any]:
    """What a report says that these suites ran in PyTorch."""
    rows = [{"suite": name, "framework": "torch", "outcome": "passed", "ran": 3} for name in names]
    checks = [
        {"id": "W01", "stage": name, "outcome": "passed", "summary": "", "evidence": {}} for name in names
    ]
    return {"suites": rows, "checks": [*CONVOLVED, *checks]}


def wanting(cell: Cell, report: Any, *names: str) -> list[str]:
    return kinds(
        decide(cell, image_of(cell), [report], policy=replace(policy(now=NOW), suites=frozenset(names)))
    )


def test_a_report_without_a_demanded_suite_does_not_open_it(cell: Cell) -> None:
    assert wanting(cell, entry(cell, **suites_of("attention", "linalg")), "attention", "conv") == []
    assert wanting(cell, entry(cell, **suites_of("linalg")), "attention") == ["suite"]
    left = [{"suite": "attention", "framework": "torch", "outcome": "not_run", "reason": "no GPU here"}]
    assert wanting(cell, entry(cell, suites=left), "attention") == ["suite"]


def test_a_report_from_before_suites_counts_as_conv(cell: Cell) -> None:
    assert wanting(cell, entry(cell), "conv") == []
    assert wanting(cell, entry(cell), "attention") == ["suite"]


def test_a_row_without_its_check_is_no_suite_that_ran(cell: Cell) -> None:
    changes = {**suites_of("attention"), "checks": CONVOLVED}
    assert wanting(cell, entry(cell, **changes), "attention") == ["suite"]


def compiled(*rows: dict[str, Any]) -> dict[str, Any]:
    """What a report says of ``compile``: one that passed in PyTorch, changed, and further rows."""
    said = suites_of("compile")
    first, *others = rows or ({},)
    return {**said, "suites": [{**said["suites"][0], **first}, *others]}


def other(framework: str = "jax", **changes: Any) -> dict[str, Any]:
    return {"suite": "compile", "framework": framework, "outcome": "passed", "ran": 2, **changes}


EXCUSED = {"outcome": "not_run", "ran": 0, "reason": "there is no compiler here that it could use"}


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        pytest.param(compiled(), [], id="it ran"),
        pytest.param(compiled({"ran": 0}), ["suite"], id="it compared nothing"),
        pytest.param(compiled(EXCUSED), ["suite"], id="excused for want of a compiler"),
        pytest.param(compiled({}, other(**EXCUSED)), ["suite"], id="one framework had no compiler"),
        pytest.param(compiled({}, other(ran=0)), ["suite"], id="one framework compared nothing"),
        pytest.param(compiled({}, other(outcome="failed")), ["suite"], id="one framework failed"),
        pytest.param(compiled({}, other()), ["suite"], id="two rows with one check"),
        pytest.param(compiled({"suite": "linalg"}), ["suite"], id="another suite ran"),
    ],
)
def test_absence_of_a_demanded_suite_is_never_a_yes(
    cell: Cell, said: dict[str, Any], wanted: list[str]
) -> None:
    assert wanting(cell, entry(cell, **said), "compile") == wanted


def test_a_bad_second_card_shuts_it(cell: Cell) -> None:
    bad = {"id": "D06", "stage": "convolution", "outcome": "failed", "summary": "", "evidence": {"card": 1}}
    said = compiled()
    with_it = {**said, "checks": [*said["checks"], bad]}
    assert wanting(cell, entry(cell, **with_it), "compile") == ["no-proof"]
    assert wanting(cell, entry(cell, **{**with_it, "verdict": "host"}), "compile") == ["host"]


def test_a_convolution_that_compared_nothing_is_none(cell: Cell) -> None:
    row = {"suite": "conv", "framework": "cudnn", "outcome": "passed", "ran": 0}
    assert wanting(cell, entry(cell, suites=[row]), "conv") == ["suite"]
    assert wanting(cell, entry(cell, suites=[{**row, "ran": 6}]), "conv") == []
