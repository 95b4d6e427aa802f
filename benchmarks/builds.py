"""What rtbuild's builds cost beside what people do today, in one run on this machine.

    sudo make bench                      everything: about an hour and 20 GB of disk
    python -m benchmarks.builds --small  the same with small wheels, to try the benchmark: a few minutes
    python -m benchmarks.builds --only ours-family,peer-family-overlay2

What is measured stays in ``WORK/results.json`` by session, and a session that is there is not measured again
(``--again`` does). One that fails, or that the disk has no room for, keeps no other from its turn. The page
is made from the rows in ``benchmarks/builds.json``, where a row stays until it is measured again.
Engines, registry and caches are the benchmark's own and are removed after each session.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import environments, growth, ours, pairs, peers, pulls, quick, sessions, sizes, table
from benchmarks.rig import ALONE, BenchError, enter_private_network
from builder.core import resources
from builder.core.files import write_whole
from builder.core.model import RootfsBase
from builder.image.compose.systems import cached_rootfs
from builder.sources.debian import Debian
from builder.sources.index.client import Index

if TYPE_CHECKING:
    from collections.abc import Callable

WORK = Path("/var/tmp/rtbuild-bench")
"""On a real disk, which /tmp may not be."""
HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parent / "docs" / "benchmarks.md"
ROWS = HERE / "builds.json"
"""The rows of every run, from which the page is made."""


def plan_of(site: sessions.Site) -> dict[str, Callable[[], dict[str, Any]]]:
    """Every session by name, in the order in which they run: what says most first."""
    found: dict[str, Callable[[], dict[str, Any]]] = {
        "ours-family": partial(ours.family, site, None),
        "peer-family-overlay2": partial(peers.family, site, "overlay2"),
        **{f"pairs-{output}": partial(pairs.pairs, site, output) for output in pairs.KINDS},
        "ours-stored": partial(ours.stored, site),
        "ours-cold": partial(ours.cold, site),
        "environments": partial(environments.environments, site),
        "commands": partial(quick.commands, site.say),
        "thousand": partial(quick.thousand, site.say),
        "sizes": partial(sizes.cuda, site),
        "ours-matrix": partial(ours.matrix, site, None),
        "hundred": partial(ours.hundred, site, None),
        "peer-matrix-overlay2": partial(peers.matrix, site, "overlay2"),
        "peer-family-containerd": partial(peers.family, site, "containerd"),
        "hundred-engine": partial(ours.hundred, site, "containerd"),
        "ours-family-engine": partial(ours.family, site, "containerd"),
        "ours-matrix-engine": partial(ours.matrix, site, "containerd"),
    }
    for name, pulled in site.plan.pulls.items():
        found[name] = partial(pulls.pulls, site, pulled.family)
    found["growth"] = partial(growth.growth, site)
    for store in site.plan.matrix_stores:
        found.setdefault(f"peer-matrix-{store}", partial(peers.matrix, site, store))
    return found


def prepare(site: sessions.Site) -> None:
    """Download what is missing, before the network goes."""
    cache = resources.cache()
    index, debian = Index.from_user(), Debian(cache=cache)
    for name in {
        site.plan.family,
        site.plan.matrix,
        "small",
        *(one.family for one in site.plan.pulls.values()),
    }:
        for pinned in site.cells(name):
            index.fetch_all(pinned.wheels, cache=cache)
            if isinstance(pinned.base, RootfsBase):
                cached_rootfs(pinned.base, cache=cache, fetch=debian.fetch)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--work", type=Path, default=WORK, help="where everything is put (default: %(default)s)"
    )
    parser.add_argument(
        "--only", default="*", metavar="GLOBS", help="sessions to measure, with commas between"
    )
    parser.add_argument("--again", action="store_true", help="measure also what was measured before")
    parser.add_argument("--small", action="store_true", help="small wheels; the figures say nothing")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    work: Path = args.work / ("small" if args.small else "full")
    work.mkdir(parents=True, exist_ok=True)
    site = sessions.Site(work=work, plan=sessions.SMALL if args.small else sessions.FULL, say=_say)
    if not os.environ.get(ALONE):
        prepare(site)
    enter_private_network()
    results_file = work / "results.json"
    results: dict[str, Any] = json.loads(results_file.read_text()) if results_file.exists() else {}
    wanted = args.only.split(",")
    left_out = []
    for name, session in plan_of(site).items():
        if not any(fnmatch.fnmatchcase(name, glob) for glob in wanted):
            continue
        if name in results and not args.again:
            _say(f"== {name}: measured before")
            continue
        full = sessions.room(site, name)
        if full is not None:
            _say(f"== {name}: left out: {full}")
            left_out.append(name)
            continue
        _say(f"== {name}")
        start, load = time.time(), os.getloadavg()[0]
        try:
            figures = session()
        except BenchError as problem:
            _say(f"== {name}: failed, the others go on: {problem}")
            left_out.append(name)
            continue
        results[name] = {"started": round(start), "load": round(load, 2), "figures": figures}
        beside = results_file.with_suffix(".part")
        beside.write_text(json.dumps(results, indent=1))
        beside.replace(results_file)
    rows, page = (work / "rows.json", work / DOCUMENT.name) if args.small else (ROWS, DOCUMENT)
    measured = table.merged(json.loads(rows.read_text()) if rows.exists() else {}, results, site.plan)
    write_whole(rows, (json.dumps(measured, indent=1) + "\n").encode())
    write_whole(page, (text := table.document(measured, site.plan)).encode())
    sys.stdout.write(text)
    return 1 if left_out else 0


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # engines and registries end with what began them
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(f"error: {error}")
