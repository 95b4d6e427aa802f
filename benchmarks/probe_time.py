"""How long `cudnn-verify` takes, next to what nobody can avoid: starting Python, importing the framework.

    python benchmarks/probe_time.py [--image IMAGE] [--runs N] [--output docs/benchmark-probe.md]

Without ``--image``: the probe on this machine against ``python3 -c pass``. With it, also inside that image
against ``import FRAMEWORK``, each in a fresh container without network, as `rtbuild verify` runs it. The two
sides take turns, and the ratio is taken pair by pair, so that a machine that slows down slows both.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from builder.image.recipe.probe_file import bundle

SANDBOX = ["docker", "run", "--rm", "--read-only", "--network=none", "--tmpfs=/tmp", "--user=65534"]


@dataclass(frozen=True, kw_only=True)
class Row:
    work: str
    peer: str
    seconds: list[float]
    peer_seconds: list[float]

    def line(self) -> str:
        ratios = [a / b for a, b in zip(self.seconds, self.peer_seconds, strict=True)]
        extra = statistics.median(a - b for a, b in zip(self.seconds, self.peer_seconds, strict=True))
        cells = [
            self.work,
            self.peer,
            f"{statistics.median(self.seconds):.2f} ({min(self.seconds):.2f} to {max(self.seconds):.2f})",
            f"{statistics.median(self.peer_seconds):.2f}",
            f"{statistics.median(ratios):.2f}",
            f"{extra:+.2f}",
        ]
        return "| " + " | ".join(cells) + " |"


def timed(command: list[str], accept: tuple[int, ...]) -> float:
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode not in accept:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}{done.stdout}")
    return seconds


def compare(work: str, command: list[str], peer: str, other: list[str], runs: int) -> Row:
    """``runs`` pairs after one that is not counted. The probe may say unverified (10), the peer only 0."""
    pairs = [(timed(command, (0, 10)), timed(other, (0,))) for _ in range(runs + 1)][1:]
    return Row(work=work, peer=peer, seconds=[a for a, _ in pairs], peer_seconds=[b for _, b in pairs])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--image")
    parser.add_argument("--framework", default="tensorflow")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder) / "cudnn_verify.py"
        probe.write_bytes(bundle())
        start = [sys.executable, "-c", "pass"]
        rows.append(
            compare(
                "no framework, this machine",
                [sys.executable, str(probe), "--json"],
                "`python3 -c pass`",
                start,
                args.runs,
            )
        )
    if args.image:
        imports = [*SANDBOX, args.image, "python", "-c", f"import {args.framework}"]
        verify = [*SANDBOX, args.image, "cudnn-verify", "--json"]
        rows.append(
            compare(
                f"{args.framework}, in its image", verify, f"`import {args.framework}`", imports, args.runs
            )
        )
    intro = (
        f"Made by `benchmarks/probe_time.py`: {args.runs} pairs in turns, after one that is not counted. "
        "Seconds of the whole process, median (smallest to largest). "
        f"Python {platform.python_version()}, {platform.machine()}, no GPU."
    )
    head = ["# How long `cudnn-verify` takes", "", intro, ""]
    table = [
        "| work | peer | seconds | peer's seconds | ratio | more than the peer, s |",
        "|---|---|---|---|---|---|",
    ]
    text = "\n".join([*head, *table, *(row.line() for row in rows), ""])
    if args.output:
        args.output.write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
