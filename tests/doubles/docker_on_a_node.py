"""Stands in for Docker on a node of the tests' cluster, which has no GPU to give to a container.

Prints a report that a test double wrote, or ends with the exit codes that the scene's file asks for, one a
container. The program that runs it and attaches the report is the real `rtbuild verify-digest`.
"""

import json
import os
import sys
import time
from pathlib import Path

from slurm_cluster import NODES

from builder.sources.oci.registry import Registry
from builder.sources.oci.staging import CELL_LABEL, read_image
from doubles.project import report

CARDS = {
    "T4": ("Tesla T4", "7.5"),
    "A100": ("NVIDIA A100-SXM4-40GB", "8.0"),
    "L4": ("NVIDIA L4", "8.9"),
    "H100": ("NVIDIA H100 80GB HBM3", "9.0"),
}
VERDICTS = {
    0: {},
    20: {"verdict": "broken", "cause": "cudnn-missing"},
    22: {"verdict": "host", "cause": "driver-missing"},
    23: {"verdict": "busy", "cause": "device-busy"},
}

scene = Path(os.environ["SCENE"])
(image,) = (one for one in sys.argv if "@sha256:" in one)
card = NODES[os.environ["SLURMD_NODENAME"]][0].upper()
repository, _, digest = image.partition("@")
staged = read_image(Registry.to_write(), repository, digest)
cell = staged.label(CELL_LABEL) or ""
asked = json.loads((scene / "asked.json").read_text()).get(f"{cell} on {card}", [])
runs = scene / "runs" / f"{cell} on {card}"
runs.mkdir(parents=True, exist_ok=True)
attempt = len(list(runs.iterdir()))
run = runs / f"{time.time_ns()}-{os.getppid()}"
run.touch()
code = asked[attempt] if attempt < len(asked) else 0
if code in ("slow", "hangs"):
    time.sleep(20 if code == "slow" else 600)
    code = 0
name, capability = CARDS[card]
document = report(staged, gpu={"name": name, "compute_capability": capability}, **VERDICTS[code])
print(json.dumps(document), flush=True)
run.write_text(str(code))  # it ran to its end
sys.exit(code)
