"""The benchmark can be started, and its page says of made-up figures what is true of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rtbuild_command import inside

from benchmarks import builds, growth, rig, sessions, table
from benchmarks.pulls import KINDS, ROUNDS, _sizes


def _round(ours: float, plain: float, uv: float) -> dict[str, Any]:
    images = {"ours": ("first", "next", "base", "probe"), "plain": ("first", "next"), "uv": ("first", "next")}
    seconds = {"ours": ours, "plain": plain, "uv": uv}
    return {"load": 1.5, "disk": 100e6} | {
        kind: {
            name: {"pull": seconds[kind], "import": 1.0, "processor": 0.5, "written": 100e6}
            for name in images[kind]
        }
        for kind in KINDS
    }


RESULTS = {
    "pulls": {
        "figures": {
            "overlay2": {
                "rounds": [_round(2.0, 10.0, 4.0), _round(3.0, 10.0, 3.0), _round(4.0, 40.0, 2.0)],
                "sizes": {kind: {"layers": 3, "bytes": 70e6} for kind in KINDS},
            }
        }
    },
    "pairs-stored": {
        "figures": {
            "pairs": {
                "rounds": [
                    {
                        "load": 0.5,
                        "disk": 1e6,
                        "stored": {"seconds": ours, "processor": 0.0, "written": 8e6},
                        "uv": {"seconds": uv},
                    }
                    for ours, uv in ((10.0, 20.0), (9.0, 10.0), (12.0, 20.0))
                ]
            }
        }
    },
    "environments": {
        "figures": {
            caches: {
                "rounds": [
                    {
                        "load": 0.5,
                        "ours": {"install": 6.0, "import": 1.0},
                        "uv": {"install": 5.0, "import": 4.0},
                    }
                ]
            }
            for caches in ("cold", "warm")
        }
    },
    "growth": {
        "figures": {
            "growth": {"list": {"1,000 cells": {"seconds": 1.5, "processor": 1.25, "memory": 60_000_000}}},
        }
    },
}


def test_a_row_of_pulls_is_the_median_of_pairs_with_the_spread_and_the_bound() -> None:
    pulls = [row for row in table.rows(RESULTS, sessions.SMALL) if row.work.startswith("pull")]
    first, first_import, by_uv, *_ = pulls
    assert first.ours == "3.0 s (2.0 to 4.0); bound 1.0 s; 70 MB in 3 layers"
    assert first.peer == "plain: 10.0 s (10.0 to 40.0); 70 MB in 3 layers"
    assert first.value == pytest.approx(0.2)
    assert first_import.value == pytest.approx(3 / 11)
    assert by_uv.value == pytest.approx(1.0)
    assert by_uv.line().endswith("| **no** | , load 1.5 to 1.5 |"), "0.8 is wanted"


def test_a_build_beside_uvs_is_the_median_of_pairs_too() -> None:
    row = next(table.rows(RESULTS, sessions.SMALL))
    assert row.ours == "10.0 s (9.0 to 12.0); bound 8.0 s"
    assert row.peer == "uv: 20.0 s (10.0 to 20.0)"
    assert row.value == pytest.approx(0.6)
    assert "| yes |" in row.line()


def test_an_environment_has_rows_for_its_making_and_for_the_first_import() -> None:
    made, first = [row for row in table.rows(RESULTS, sessions.SMALL) if "full caches" in row.work]
    assert made.value == pytest.approx(1.2)
    assert first.value == pytest.approx(0.25)


def test_a_row_stays_until_it_is_measured_again() -> None:
    earlier = asdict(table.Row(work="a", ours="1 s", peer="-", value=1.0, limit=2.0, day="2020-02-02"))
    again = earlier | {"work": next(table.rows(RESULTS, sessions.SMALL)).work}
    measured = table.merged({"rows": [again, earlier], "growth": {}}, RESULTS, sessions.SMALL)
    days = {row["work"]: row["day"] for row in measured["rows"]}
    assert days["a"] == "2020-02-02"
    assert days[again["work"]] > "2026"
    assert [row["work"] for row in measured["rows"]][:2] == [again["work"], "a"], "each in its place"
    page = table.document(measured, sessions.SMALL)
    assert "| 1 s | - | 1.00 | 2.00 | yes | 2020-02-02 |" in page
    assert "| list | 1,000 cells | 1.50 | 1.25 | 60 MB |" in page


def test_the_page_is_made_from_the_rows() -> None:
    measured = json.loads(builds.ROWS.read_text())
    made = table.document(measured, sessions.FULL).splitlines()
    page = builds.DOCUMENT.read_text().splitlines()
    assert [line for line in made if "cores" not in line] == [line for line in page if "cores" not in line]


def test_a_bound_is_the_slower_of_disk_and_cores() -> None:
    cores = len(os.sched_getaffinity(0))
    assert rig.bound({"written": 300.0, "processor": 0.0}, 100.0) == 3.0
    assert rig.bound({"written": 0.0, "processor": 8.0 * cores}, 100.0) == 8.0


def test_an_index_stands_for_its_image() -> None:
    image = {"layers": [{"size": 5}, {"size": 7}]}
    registry: Any = SimpleNamespace(
        host="r",
        manifest=lambda *_: {"manifests": [{"digest": "sha256:a"}, {"digest": "sha256:provenance"}]},
        by_digest={"sha256:a": image}.__getitem__,
    )
    images = {"plain": {"first": "r/plain:x"}, "ours": {"first": "r/ours@sha256:a"}}
    both = {"layers": 2, "bytes": 12}
    assert _sizes(registry, images) == {"plain": both, "ours": both}


def test_every_session_has_a_plan() -> None:
    site = sessions.Site(work=Path("/nowhere"), plan=sessions.FULL, say=lambda _text: None)
    assert {
        "growth",
        "environments",
        "pairs-pushed",
        "pairs-stored",
        "pulls",
        "ours-family",
    } <= builds.plan_of(site).keys()
    assert ROUNDS >= 3
    for plan in (sessions.FULL, sessions.SMALL):
        assert len(site.cells(plan.family)) >= 3, "their locks fit their matrices"


def test_what_an_engines_programs_used_is_counted_with_it() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'sum(range(10**7))']); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        engine = rig.Engine(Path("/nowhere"), "containerd", process=process)
        try:
            while not engine.totals()["processor"]:
                assert process.poll() is None
        finally:
            process.kill()
    with pytest.raises(rig.BenchError):
        rig.Engine(Path("/nowhere"), "containerd").totals()


@pytest.mark.parametrize("command", growth.PLANNING)
def test_what_is_asked_about_the_largest_cell_can_be_asked(command: str, tmp_path: Path) -> None:
    cell, wheels = growth.largest(tmp_path)
    assert wheels > 500
    verb, *options = command.split()
    inside(tmp_path, verb, f"{growth.LARGEST}.yaml", "--select", cell, *options)
