"""The tables as Markdown, for ``docs/facts.md``: what people read is what the rules use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.plan.facts.reading.rereading import VALUES, coverage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from builder.plan.facts.tables.frameworks import FrameworkRow, FrameworkTable, Row
    from builder.plan.facts.tables.loader import Facts

INTRODUCTION = """\
# Facts

What the [compatibility rules](compatibility.md) know without asking a wheel or a registry. This page is made
from the tables in `builder/plan/facts/tables/data/` by `make golden`.

`data/releases/*.json` has a row for each release of a framework, read by `rtbuild facts refresh` from the
package index and the wheels; each value names the file that told it. `data/*.toml` has what no file says,
with sources and dates. A generated row that was changed by hand fails the tests. To correct one, add a row to
the TOML file, with `kept = "reason"` if the wheel is wrong. Packages beside the frameworks have [a page of
their own](packages.md).

Neighbouring releases with the same values share a line. GPU code: `7.5` are kernels for that compute
capability, `7.5+` kernels and PTX, which the driver compiles for newer cards, `7.5 PTX` is PTX alone.
PyTorch's +cuNNN builds were not read; their values are those of PyTorch's release table.
"""


def markdown(facts: Facts) -> str:
    """The whole page."""
    parts = [INTRODUCTION, _coverage()]
    parts += [_framework(table) for table in facts.frameworks.values()]
    parts += [
        _cuda(facts),
        _cudnn(facts),
        _tags(facts),
        _bad(facts),
        _without(facts),
        _elsewhere(facts),
        _systems(facts),
        _gpus(facts),
        _builds(facts),
    ]
    return "\n".join(parts) + "\n" + _sources(facts)


def as_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"## {title}", "", "| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") or "-" for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def pythons(versions: Sequence[str]) -> str:
    if len(versions) < 2:
        return "".join(versions)
    return f"{versions[0]} to {versions[-1]}"


def _coverage() -> str:
    """The values that are not read of all releases; of the others there is nothing to say."""
    rows = []
    for one in coverage():
        words = (str(one.read), str(one.added), str(one.missing), "; ".join(one.reasons))
        if one.added or one.missing:
            rows.append((one.framework, VALUES[one.value], *words))
    head = ("framework", "value", "read from files", "added by hand", "not known", "why")
    return as_table("Coverage: values that were not read of every release", head, rows)


def _framework(table: FrameworkTable) -> str:
    """Neighbouring releases that say the same are one line."""
    lines: list[tuple[list[FrameworkRow], tuple[str, ...]]] = []
    last: dict[tuple[str, str], int] = {}
    for row in table.rows:
        told = _told(row)
        at = last.get((row.distribution, row.variant))
        if at is not None and lines[at][1] == told:
            lines[at][0].append(row)
        else:
            last[row.distribution, row.variant] = len(lines)
            lines.append(([row], told))
    head = (
        "releases",
        "variant",
        "Python",
        "CUDA",
        "cuDNN",
        "brings cuDNN",
        "NumPy ABI",
        "glibc",
        "GPU code",
    )
    return as_table(f"{table.title} (`{table.name}`)", head, ((_span(rows), *told) for rows, told in lines))


def _span(rows: Sequence[FrameworkRow]) -> str:
    first, last = rows[0].version, rows[-1].version
    return first if len(rows) == 1 else f"{first} to {last}"


def _told(row: FrameworkRow) -> tuple[str, ...]:
    kind = row.distribution if row.distribution == "tensorflow-gpu" else row.variant
    if set(row.cpu_only) == set(row.platforms):
        kind = f"{kind} CPU only".strip()
    return (
        kind + ("" if row.default else " (own index)") + _only(row) + (" yanked" if row.yanked else ""),
        pythons(row.python),
        row.cuda or "",
        row.cudnn or "",
        row.brings + (f" `{row.extra}`" if row.extra else ""),
        row.numpy_abi or "",
        row.glibc or "",
        as_code(row.architectures if "linux/amd64" in row.platforms else row.architectures_arm64),
    )


def _only(row: FrameworkRow) -> str:
    return "" if "linux/amd64" in row.platforms else " ARM"


def as_code(architectures: Sequence[str]) -> str:
    """``sm_75 compute_75`` is ``7.5+``."""
    kinds: dict[str, set[str]] = {}
    for name in architectures:
        kind, _, number = name.partition("_")
        kinds.setdefault(f"{number[:-1]}.{number[-1]}" if number[-1].isdigit() else number, set()).add(kind)
    ends = {frozenset({"sm"}): "", frozenset({"compute"}): " PTX", frozenset({"sm", "compute"}): "+"}
    return ", ".join(name + ends[frozenset(found)] for name, found in kinds.items())


def _cuda(facts: Facts) -> str:
    families = as_table(
        "CUDA majors",
        ("CUDA", "driver floor", "compute capability"),
        (
            (
                row.major,
                row.floor or "the toolkit's own",
                f"{row.capability_min} to {row.capability_max}" if row.capability_min else "",
            )
            for row in facts.families.values()
        ),
    )
    architectures = as_table(
        "Architectures",
        ("GPUs", "compute capability", "first driver", "first driver without it"),
        (
            (row.name, ", ".join(row.capabilities), row.since or "", row.before or "")
            for row in facts.architectures
        ),
    )
    toolkits = as_table(
        "CUDA toolkits", ("CUDA", "its own driver"), ((row.version, row.driver) for row in facts.toolkits)
    )
    return f"{families}\n{architectures}\n{toolkits}"


def _cudnn(facts: Facts) -> str:
    rows = (
        (str(row.versions), ", ".join(row.cuda), f"{row.capability_min} to {row.capability_max}")
        for row in facts.cudnn
    )
    return as_table("cuDNN", ("cuDNN", "CUDA majors", "compute capability"), rows)


def _tags(facts: Facts) -> str:
    rows = (
        (
            f"{row.cuda}-{row.infix}",
            ", ".join(row.systems),
            row.cudnn or "",
            ", ".join(row.branches),
            row.state,
        )
        for row in facts.tags
    )
    head = ("tag", "Ubuntu", "cuDNN inside", "older driver branches that may start it", "Docker Hub")
    return as_table("nvidia/cuda tags", head, rows)


def _bad(facts: Facts) -> str:
    rows: list[Sequence[str]] = []
    for row in facts.bad:
        named = " or ".join(row.ends)
        always = row.outcome == "impossible"
        when = (*row.when, *([f"imports {named}"] if named and always else []))
        outcome = row.outcome if always or not named else f"{row.outcome}; impossible if imports {named}"
        outcome += f"; warns if no import of the lock comes to {row.loads}" if row.loads else ""
        rows.append((row.id, " and ".join(when), outcome, row.message, row.remedy))
    return as_table("Known bad", ("id", "when", "outcome", "what happens", "remedy"), rows)


def _systems(facts: Facts) -> str:
    rows = ((row.name, row.glibc, ", ".join(row.python)) for row in facts.systems.values())
    return as_table("Systems", ("system", "glibc", "Python"), rows)


def _without(facts: Facts) -> str:
    rows = ((row.name, row.instead) for row in facts.without.values())
    return as_table("Without CUDA", ("build", "the one with CUDA"), rows)


def _elsewhere(facts: Facts) -> str:
    rows = ((f"{row.name}{row.versions}", row.text) for row in facts.elsewhere)
    return as_table("Elsewhere than on a package index", ("release", "what there is"), rows)


def _gpus(facts: Facts) -> str:
    named: dict[str, list[str]] = {}
    for row in facts.gpus.values():
        named.setdefault(row.capability, []).append(row.name)
    rows = ((capability, ", ".join(named[capability])) for capability in sorted(named, key=_numbers))
    return as_table("GPUs", ("compute capability", "GPUs"), rows)


def _numbers(capability: str) -> tuple[int, ...]:
    return tuple(map(int, capability.split(".")))


def _builds(facts: Facts) -> str:
    rows = (
        (row.name, str(row.versions or ""), ", ".join(row.needs or ()), row.against) for row in facts.builds
    )
    needs = "Debian packages that its build needs"
    return as_table("Compiling", ("package", "versions", needs, "framework that its build imports"), rows)


def _sources(facts: Facts) -> str:
    rows: list[Row] = [*facts.toolkits, *facts.families.values(), *facts.cudnn, *facts.tags, *facts.bad]
    rows += [*facts.architectures, *facts.without.values(), *facts.elsewhere]
    rows += [*facts.systems.values(), *facts.gpus.values(), *facts.wheels.values(), *facts.builds]
    found = {(source.reference, source.date or "") for row in rows for source in row.sources}
    for table in facts.frameworks.values():
        found.add((f"wheels of {table.title} on the default package index", table.date or ""))
        found |= {(s.reference, s.date or "") for row in table.rows for s in row.added.values()}
    return as_table("Sources", ("reference", "read"), sorted(found))
