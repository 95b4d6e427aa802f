"""What a person reads of ten thousand tasks: counts, and why some are lost; no line for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.cli.commands import dispatch as command
from builder.cli.console.board import CountTable
from builder.cli.console.terminal import Terminal
from builder.release.dispatch.tasks import Task, TaskState, TaskVerdict

if TYPE_CHECKING:
    import pytest

WORKS = TaskVerdict(verdict="works", gpu="Tesla T4", driver="535")
BROKEN = TaskVerdict(verdict="broken", cause="cudnn-missing", gpu="Tesla T4", driver="535")


def task(number: int, name: str = "T4") -> Task:
    return Task(
        column=name, matrix="m", cell=f"c{number}", repository="r/s", inputs="i", digest=f"sha256:{number}"
    )


def test_ten_thousand_tasks_are_counted_and_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    clock = [0.0]
    monkeypatch.setattr(command, "say", said.append)
    monkeypatch.setattr(command.time, "monotonic", lambda: clock[0])
    tasks = [task(number, name) for number in range(5000) for name in ("A100", "T4")]
    tell = command._Changes(len(tasks))
    tell([TaskState(task=one, state="waiting", word="PENDING") for one in tasks])
    assert said == ["A100: 5,000 waiting", "T4: 5,000 waiting"]
    for number, one in enumerate(tasks[:60:2]):
        clock[0] += 1
        tell([TaskState(task=one, state="verdict", verdict=BROKEN if number == 7 else WORKS)])
    assert len(said) == 2, "half a minute"
    clock[0] += 30
    why = "ended without a verdict: it is gone: n7: rtbuild is not on this node"
    tell([TaskState(task=one, state="lost", word=why) for one in tasks[100:110:2]])
    assert said[2:] == [
        f"lost, tasks: 5: {why}",
        "A100: 1 BROKEN, 5 lost, 4,965 waiting, 29 works",
    ], "what is as it was is not said again"
    clock[0] += 60
    tell([TaskState(task=tasks[120], state="lost", word=why)])
    assert said[-1] == "A100: 1 BROKEN, 6 lost, 4,964 waiting, 29 works", "its reason was said"


def test_few_tasks_are_told_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(command, "say", said.append)
    command._Changes(2)([TaskState(task=task(1), state="waiting", word="PENDING (Resources)")])
    assert said == ["c1, T4: waiting: PENDING (Resources)"]


def test_on_a_terminal_a_table_of_counts_changes_in_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tasks = [task(number, name) for number in range(50) for name in ("A100", "T4")]
    with CountTable(Terminal(progress="tty", color=False, github=False)) as table:
        tell = command._Changes(len(tasks), table)
        tell([TaskState(task=one, state="waiting", word="PENDING") for one in tasks])
        tell([TaskState(task=one, state="verdict", verdict=WORKS) for one in tasks[:20:2]])
        why = "ended without a verdict: it is gone"
        tell([TaskState(task=tasks[21], state="lost", word=why)])
    said = capsys.readouterr().err
    assert said.count("PENDING") == 0, "no line for each task"
    assert said.count(why) == 1, "what is lost is said, above the table"
    assert "\x1b[1A\x1b[2K" in said, "one table takes the place of the other"
    rows = dict.fromkeys(line for line in said.splitlines() if line.split()[:1] == ["A100"])
    assert [row.split()[1:] for row in rows] == [["50"], ["40", "10"], ["0", "40", "10"]]


def test_a_long_table_leaves_out_what_is_good() -> None:
    rows = [TaskState(task=task(number), state="verdict", verdict=WORKS) for number in range(1000)]
    rows[7] = TaskState(task=task(7), state="verdict", verdict=BROKEN)
    head, _, *lines = command._table(rows)
    assert head == "999 of 1,000 cells are good on every class; the others:"
    assert [line.split() for line in lines] == [["c7", "BROKEN"]]
    assert len([*command._table(rows[:100])]) == 101
