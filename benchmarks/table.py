"""The measured figures as the page that the docs show."""

from __future__ import annotations

import os
import platform
import statistics
import time
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.pulls import STORES, spread
from benchmarks.rig import bound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.sessions import Plan

_INTRODUCTION = """\
# What a build costs, beside what people do today

Made by `sudo make bench`. A ratio is rtbuild's seconds over the peer's, measured in one run on one machine:
build and push to a registry on loopback, the wheels downloaded before for both, no network. The peer is
plain `docker build` of the Dockerfile that people write, with pip in one RUN on the same base and the same
pinned wheels, and `docker push`; for four cells, `docker buildx bake`. Its base is in the engine and in the
registry, and its wheels are in BuildKit, before the clock runs. Of its two stores, containerd and overlay2,
the faster counts. All rows of one cell are held against the peer's build of the first; what it takes for a
changed variable is in the second table. rtbuild builds with `--engine none --push`: the image is in the
registry; the rows that say so leave it in an engine with the containerd store, too.

A second peer is the strongest that a user could write: one RUN with `uv pip install --compile-bytecode`, and
`docker buildx build --output type=image,push=true,compression=zstd,unpack=false` straight into the registry,
or without a push into the engine's store. On empty caches, the wheels come over a line of 36 MB/s on
loopback, and the base is put together from packages that are there; the peer is the downloads alone.

Pulls are from a registry on loopback into an engine with nothing in it, and the first import is that of the
framework in a new container, with `--network=none`. The next release is held against the peer's next release;
another base and another probe against its first image, which shares nothing with one on another base. The
small image has scikit-learn, SciPy, pandas and NumPy on Debian 12 (140 MB as it is pulled).
"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table. ``ours`` and ``peer`` are raw figures as text; ``value`` is what has a limit."""

    work: str
    ours: str
    peer: str
    value: float
    limit: float
    unit: str = ""
    load: str = ""
    """The machine's while its rounds ran."""
    day: str = ""

    def line(self) -> str:
        met = "yes" if self.value <= self.limit else "**no**"
        cells = (
            self.work,
            self.ours,
            self.peer,
            f"{self.value:.2f}{self.unit}",
            f"{self.limit:.2f}{self.unit}",
            met,
            self.day + (f", load {self.load}" if self.load else ""),
        )
        return "| " + " | ".join(cells) + " |"


class _Results:
    """What the sessions left; a figure that was not measured is None."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        self._results = results

    def get(self, session: str, row: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._results.get(session, {}).get("figures", {}).get(row)
        return found

    def peer(self, kind: str, row: str) -> tuple[str, dict[str, Any]] | None:
        """The store on which the peer was faster, and its figures."""
        there = [(s, f) for s in STORES if (f := self.get(f"peer-{kind}-{s}", row)) is not None]
        return min(there, key=lambda pair: pair[1]["seconds"]) if there else None

    def built(self) -> tuple[str, dict[str, Any]] | None:
        """The same, of its build alone."""
        there = [(s, f["build"]) for s in STORES if (f := self.get(f"peer-family-{s}", "first")) is not None]
        if not there:
            return None
        store, seconds = min(there, key=lambda pair: pair[1])
        return store, {"seconds": seconds}


def rows(results: Mapping[str, Any], plan: Plan) -> Iterator[Row]:
    """The lines for which there are figures, in the order of the list of what must be reached."""
    found = _Results(results)
    against = found.peer("family", "first")
    for number, (engine, where) in enumerate((("", ""), ("-engine", ", with an engine"))):
        for row, work, limits in (
            ("first", "one cell, nothing converted yet", (0.30, 0.22)),
            ("next", "the next release of its family (same CUDA wheels)", (0.12, 0.10)),
            ("base", "the same wheels on another base", (0.10, 0.04)),
            ("environment", "only the environment changed", (0.02, 0.02)),
            ("probe", "only the probe changed", (0.02, 0.012)),
        ):
            yield from _against(work + where, found.get(f"ours-family{engine}", row), against, limits[number])
        yield from _pair(
            f"one cell, nothing converted yet{where}, against uv and BuildKit's own push",
            found.get("pairs-pushed", "pairs"),
            ("registry", "engine")[number],
            (0.28, 0.45)[number],
        )
        yield from _against(
            f"four cells, nothing converted yet{where}",
            found.get(f"ours-matrix{engine}", "matrix"),
            found.peer("matrix", "matrix"),
            0.20,
        )
        yield from _alone(
            found.get(f"ours-matrix{engine}", "nothing"),
            f"nothing to do, 4 built and pushed cells{where}",
            0.8,
        )
    stored = found.get("ours-stored", "stored")
    work = "one cell, nothing converted yet, in an engine's store and not pushed"
    yield from _against(f"{work}, against `docker build` alone", stored, found.built(), 0.65)
    yield from _pair(f"{work}, against uv and BuildKit", found.get("pairs-stored", "pairs"), "stored", 0.65)
    cold = found.get("ours-cold", "cold")
    if cold is not None:
        alone = ("a line of 36 MB/s", {"seconds": cold["alone"]})
        yield from _against(
            "one cell on empty caches, in an engine's store, by its downloads", cold, alone, 1.4
        )
    yield from _environments(found)
    for session, where in (("hundred", "a registry"), ("hundred-engine", "an engine")):
        work = f"nothing to do, 100 locked cells whose images {where} has"
        yield from _alone(found.get(session, "hundred"), work, 1.8)
    thousand = found.get("thousand", "thousand") or {}
    for command in ("list", "check"):
        yield from _alone(thousand.get(command), f"a matrix of 1,000 cells: {command}", 1.0)
    yield from _pull_rows(found, plan)
    yield from _bytes(found)
    start = found.get("commands", "help")
    if start is not None:
        extra = start["help"] - start["pass"]
        yield Row(
            work="`rtbuild --help`",
            ours=f"{start['help']:.3f} s",
            peer=f"`python -c pass`: {start['pass']:.3f} s",
            value=extra,
            limit=0.20,
            unit=" s more",
        )


def _alone(figures: dict[str, Any] | None, work: str, limit: float) -> Iterator[Row]:
    if figures is not None:
        runs = f"{min(figures['runs']):.2f} to {max(figures['runs']):.2f} s"
        yield Row(work=work, ours=runs, peer="-", value=figures["seconds"], limit=limit, unit=" s")


def _against(
    work: str, ours: dict[str, Any] | None, peer: tuple[str, dict[str, Any]] | None, limit: float
) -> Iterator[Row]:
    if ours is None or peer is None:
        return
    store, figures = peer
    yield Row(
        work=work,
        ours=f"{ours['seconds']:.1f} s",
        peer=f"{figures['seconds']:.1f} s ({store}{_split(figures)})",
        value=ours["seconds"] / figures["seconds"],
        limit=limit,
    )


def _pair(work: str, figures: Mapping[str, Any] | None, kind: str, limit: float) -> Iterator[Row]:
    """The median of the rounds' own ratios: what slows a round slows both."""
    if figures is None:
        return
    rounds = figures["rounds"]
    yield _of_rounds(
        work,
        [(one[kind]["seconds"], one["uv"]["seconds"], bound(one[kind], one["disk"])) for one in rounds],
        "uv",
        limit,
        _load(figures),
    )


def _of_rounds(
    work: str, rounds: Sequence[tuple[float, float, float | None]], peer: str, limit: float, load: str
) -> Row:
    """``rounds``: rtbuild's seconds, the peer's, and those below which the machine could not do it."""
    ours, theirs = [one[0] for one in rounds], [one[1] for one in rounds]
    least = [one[2] for one in rounds if one[2] is not None]
    return Row(
        work=work,
        ours=spread(ours) + (f"; bound {statistics.median(least):.1f} s" if least else ""),
        peer=f"{peer}: {spread(theirs)}",
        value=statistics.median([mine / other for mine, other in zip(ours, theirs, strict=True)]),
        limit=limit,
        load=load,
    )


def _load(figures: Mapping[str, Any]) -> str:
    loads = [one["load"] for one in figures["rounds"]]
    return f"{min(loads):g} to {max(loads):g}"


def _environments(found: _Results) -> Iterator[Row]:
    for caches, where in (("cold", "empty caches, over 36 MB/s"), ("warm", "full caches")):
        figures = found.get("environments", caches)
        for part, work, limit in (
            ("install", f"`rtbuild venv` from {where}, the probe's run with it", 1.1),
            ("import", f"the first import after it, {where}", 0.6),
        ):
            if figures is not None:
                rounds = [(one["ours"][part], one["uv"][part], None) for one in figures["rounds"]]
                yield _of_rounds(work, rounds, "uv pip install", limit, _load(figures))


def _split(figures: Mapping[str, Any]) -> str:
    return f": {figures['build']:.1f} and {figures['push']:.1f}" if "push" in figures else ""


PULLS = (
    ("first", "the first image"),
    ("next", "the next release of its family"),
    ("base", "the same wheels on another base"),
    ("probe", "only the probe changed"),
)


def _pull_rows(found: _Results, plan: Plan) -> Iterator[Row]:
    """A value is the median of the rounds' own ratios: what slows a round slows both."""
    for (session, pulled), store in product(plan.pulls.items(), STORES):
        figures = found.get(session, store)
        if figures is None:
            continue
        of_plain, of_uv, later = pulled.limits
        for name, what in PULLS:
            work = f"{pulled.title} into {store}: {what}"
            if name != "first":
                yield _pulled(work, figures, name, "plain", later)
                continue
            for kind, against, limit in (("plain", "the plain one", of_plain), ("uv", "that of uv", of_uv)):
                yield _pulled(f"{work}, against {against}", figures, name, kind, limit)
                both = f"{work} and its first import, against {against}"
                yield _pulled(both, figures, name, kind, limit, "import")


def _pulled(work: str, figures: Mapping[str, Any], name: str, kind: str, limit: float, *more: str) -> Row:
    against, parts = "next" if name == "next" else "first", ("pull", *more)
    rounds = [
        (
            sum(one["ours"][name][part] for part in parts),
            sum(one[kind][against][part] for part in parts),
            None if more else bound(one["ours"][name], one["disk"]),
        )
        for one in figures["rounds"]
    ]
    row = _of_rounds(work, rounds, kind, limit, _load(figures))
    if more or name != "first":
        return row
    ours, theirs = (
        f"{one['bytes'] / 1e6:.0f} MB in {one['layers']} layers"
        for one in (figures["sizes"]["ours"], figures["sizes"][kind])
    )
    return replace(row, ours=f"{row.ours}; {ours}", peer=f"{row.peer}; {theirs}")


_NOTES = """\
All kinds of a round are measured in turns; a row has medians (smallest to largest). A bound is the bytes that
rtbuild, registry and engine wrote by the disk's speed, or their processor seconds by the cores, whichever is
longer, measured in the same round; of pulls, the engine's. A row keeps its day until it is measured again.
"""
_GROWTH = """\
## As work grows

Locked cells of small wheels that differ in a variable, their images in a registry; the median of three
runs, by processor.

| command | of | seconds | of processor | memory |
|---|---|---|---|---|"""


def _growth(figures: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    if not figures:
        return
    yield _GROWTH
    for command, counts in figures.items():
        for count, one in counts.items():
            cells = (count, f"{one['seconds']:.2f}", f"{one['processor']:.2f}")
            yield f"| {command} | {' | '.join(cells)} | {one['memory'] / 1e6:.0f} MB |"
    yield ""


def _bytes(found: _Results) -> Iterator[Row]:
    registry = found.get("ours-matrix", "registry")
    if registry is not None:
        yield Row(
            work="what a registry keeps of those 4 cells",
            ours=f"{registry['kept'] / 1e6:.1f} MB",
            peer=f"their different layers: {registry['layers'] / 1e6:.1f} MB",
            value=registry["kept"] / registry["layers"],
            limit=1.02,
        )
    ours, peer = found.get("ours-family", "first"), found.peer("family", "first")
    cuda = found.get("sizes", "cuda")
    if ours is not None and peer is not None and cuda is not None and cuda["bytes"]:
        size, written = max(ours["sizes"].values()), peer[1]["size"] + cuda["bytes"]
        yield Row(
            work="bytes of the image, unpacked",
            ours=f"{size / 1e9:.2f} GB",
            peer=f"the peer's on a base with the same CUDA: {written / 1e9:.2f} GB",
            value=size / written,
            limit=0.60,
        )


def merged(kept: Mapping[str, Any], results: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """What the page is made from: the rows kept of earlier runs, those measured now in their places."""
    today = time.strftime("%Y-%m-%d", time.gmtime())
    by_work = {row["work"]: row for row in kept.get("rows", ())}
    by_work |= {row.work: asdict(replace(row, day=today)) for row in rows(results, plan)}
    growth = _Results(results).get("growth", "growth") or kept.get("growth", {})
    return {"rows": list(by_work.values()), "growth": growth}


def document(measured: Mapping[str, Any], plan: Plan) -> str:
    """The whole page, of what ``merged`` returns."""
    lines = [
        *(_INTRODUCTION, f"{_machine()}. Families: {plan.describe}.", ""),
        "| work | rtbuild | peer | measured | at most | reached | when |",
        "|---|---|---|---|---|---|---|",
        *(Row(**row).line() for row in measured["rows"]),
        *("", _NOTES, *_growth(measured["growth"])),
    ]
    return "\n".join(lines)


def _machine() -> str:
    """What the figures were taken on, without a name."""
    memory = int(Path("/proc/meminfo").read_text("ascii").split()[1]) / 1e6
    return f"{os.cpu_count()} cores, {memory:.0f} GB of memory, Python {platform.python_version()}"
