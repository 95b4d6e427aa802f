"""Stands in for `rtbuild verify-digest` on a node of the tests' cluster, which has neither a GPU nor a
container tool.

Attaches a report that a test double wrote, or ends with the exit codes that the scene's file asks for, one an
attempt.
"""

import json
import sys
import time
from pathlib import Path

from publish_doubles import report

from builder.dispatch.node import attach_report
from builder.oci.registry import Registry
from builder.oci.staging import CELL_LABEL, read_image

CARDS = {
    "T4": ("Tesla T4", "7.5"),
    "A100": ("NVIDIA A100-SXM4-40GB", "8.0"),
    "L4": ("NVIDIA L4", "8.9"),
    "H100": ("NVIDIA H100 80GB HBM3", "9.0"),
}

scene, card, image = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
repository, _, digest = image.partition("@")
staged = read_image(Registry.to_write(), repository, digest)
cell = staged.label(CELL_LABEL) or ""
asked = json.loads((scene / "asked.json").read_text()).get(f"{cell} on {card}", [])
runs = scene / "runs" / f"{cell} on {card}"
runs.mkdir(parents=True, exist_ok=True)
attempt = len(list(runs.iterdir()))
(runs / str(time.time_ns())).touch()
code = asked[attempt] if attempt < len(asked) else 0
if code == "slow":
    time.sleep(20)
    code = 0
if code in {0, 20}:
    name, capability = CARDS[card]
    verdict = {} if code == 0 else {"verdict": "broken", "cause": "cudnn-missing"}
    document = report(staged, gpu={"name": name, "compute_capability": capability}, **verdict)
    attach_report(Registry.to_write(), staged, json.dumps(document).encode())
sys.exit(code)
