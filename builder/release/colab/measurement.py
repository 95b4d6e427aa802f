"""What is in an image, by its own word: packages by their metadata, CUDA and cuDNN by the probe."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from builder.core.errors import CellError, CommandError
from builder.image.engine import Engine
from builder.release.colab.diff import Inventory
from builder.verify.runner import parse

_SECONDS, _PROBE_SECONDS = 120.0, 900.0
_PYTHONS = (
    'for p in /opt/runtime/bin/python python3; do command -v $p >/dev/null && exec $p "$@"; done; exit 127'
)
# Runs in the image, on Python 3.6 and later. What a project calls itself inside tells PyTorch's builds apart:
# its wheels on the index have no label, and version.py says 2.6.0+cu124.
_SCRIPT = r"""
import json, os, platform, re, sys
try:
    from importlib.metadata import distributions
except ImportError:
    import pkg_resources
    rows = [(d.project_name, d.version, d.location) for d in pkg_resources.working_set]
else:
    rows = [(d.metadata["Name"], d.version, str(d.locate_file(""))) for d in distributions()]
packages, inside = {}, {}
for name, version, folder in rows:
    if not name or name in packages:
        continue
    packages[name] = version
    path = os.path.join(folder, name.lower().replace("-", "_"), "version.py")
    if name.lower() in sys.argv[1:] and os.path.isfile(path):
        with open(path, encoding="utf-8") as stream:
            found = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", stream.read(), re.M)
        if found:
            inside[name] = found.group(1)
print(json.dumps({"python": platform.python_version(), "packages": packages, "inside": inside}))
"""


def measure(
    engine: Engine, reference: str, *, probe: bytes, labelled: Sequence[str] = (), gpus: bool = False
) -> Inventory:
    """Look into an image; it need not be rtbuild's. ``probe`` is cudnn-verify, run on the image's Python.

    ``labelled`` are the packages to ask for the version in their code.

    Raises:
        CellError: the image is not there, has no Python, or the probe failed in it.
    """
    if engine.inspect(reference) is None:
        hint = f"rtbuild build, or docker pull {reference}"
        raise CellError(f"the engine has no image {reference}", hint=hint)
    with tempfile.TemporaryDirectory(prefix="rtbuild-colab-") as folder:
        script, verify = Path(folder, "packages.py"), Path(folder, "cudnn_verify.py")
        script.write_text(_SCRIPT, encoding="utf-8")
        verify.write_bytes(probe)
        for path in (Path(folder), script, verify):
            path.chmod(0o755)  # the container's user is nobody
        mounts = {script: "/mnt/packages.py", verify: "/mnt/cudnn_verify.py"}

        def run(arguments: Sequence[str], seconds: float) -> str:
            argv = ["/bin/sh", "-c", _PYTHONS, "sh", *arguments]
            done = engine.run_probe(reference, argv, gpus=gpus, timeout=seconds, mounts=mounts)
            if not done.started or done.timed_out or not done.stdout.strip():
                late = "it did not end in time" if done.timed_out else ""
                why = done.daemon_error or late or done.stderr.strip() or "it has no Python"
                raise CommandError(
                    f"{reference} does not say what is in it: {why}",
                    command=["docker", "run", reference, *argv],
                    returncode=done.returncode,
                    tail=done.stderr.splitlines()[-10:],
                )
            return done.stdout

        found: dict[str, Any] = json.loads(run(["-I", "/mnt/packages.py", *labelled], _SECONDS))
        report = parse(run(["/mnt/cudnn_verify.py", "--json"], _PROBE_SECONDS))
    return Inventory(
        python=found["python"],
        packages={canonicalize_name(name): version for name, version in found["packages"].items()},
        inside={canonicalize_name(name): version for name, version in found["inside"].items()},
        report=report,
    )
