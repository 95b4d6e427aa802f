"""A locked cell as a definition file of Apptainer, for clusters where nobody is root and no engine runs, with
the job that checks the card before it computes.

https://apptainer.org/docs/user/main/definition_files.html, https://apptainer.org/docs/user/main/gpu.html
"""

import shlex
from collections.abc import Iterable, Iterator

from builder.core.model import Pinned
from builder.core.versions import canonical, names_of
from builder.plan.facts.tables import load
from builder.plan.lock.smoke_tests import python_lines, smoke_statements

_VENV = "/opt/venv"
_FILES = "/opt/requirements.txt"


def stands_for(pinned: Pinned) -> str:
    """The image that a definition begins with: the base itself, or Debian's image of its suite."""
    cell = pinned.cell
    if cell.base.kind == "registry":
        return cell.base.name
    return f"{cell.base.name.replace('/', ':')}-slim"


def definition(pinned: Pinned, requirements: Iterable[str]) -> Iterator[str]:
    """The lines of a ``.def``; ``requirements``: those of pip's hash-checking mode."""
    cell = pinned.cell
    name = f"{canonical(cell.matrix)}.sif"
    cuda = cell.cuda.provider != "none"
    checks = smoke_statements((*cell.frameworks, *cell.pip), "cuda" if cuda else "cpu")
    run = f"apptainer exec {'--nv ' * cuda}{name} python"
    yield "#"
    yield "# To build without root, where a network is; the cache needs more room than most homes have:"
    yield "#   export APPTAINER_CACHEDIR=/scratch/$USER/apptainer APPTAINER_TMPDIR=/scratch/$USER/apptainer"
    yield "#   mkdir -p $APPTAINER_CACHEDIR"
    yield f"#   apptainer build --fakeroot {name} {canonical(cell.matrix)}.def"
    yield "# The job; it ends before it computes on the CPU, and takes nothing from a network:"
    yield "#   #!/bin/bash"
    yield from ("#   #SBATCH --gpus=1",) if cuda else ()
    yield "#   set -euo pipefail"
    yield from (f"#   {line}" for line in python_lines(checks, run))
    yield f"#   {run} train.py"
    yield ""
    yield "Bootstrap: docker"
    yield f"From: {stands_for(pinned)}"
    yield from ("", "%post", "    set -e")
    yield from (f"    {line}" for line in _system(pinned))
    yield f"    cat > {_FILES} <<'REQUIREMENTS'"
    yield from requirements
    yield "REQUIREMENTS"
    yield f"    {_VENV}/bin/python -m pip install --no-cache-dir --no-deps -r {_FILES}"
    if cell.cuda.provider == "wheels":
        folders = f"find {_VENV} -path '*/nvidia/*/lib' -type d"
        yield f"    {folders} > /etc/ld.so.conf.d/nvidia-wheels.conf && ldconfig"
    yield from ("", "%environment", f"    export PATH={_VENV}/bin:$PATH")
    yield from (f"    export {key}={shlex.quote(value)}" for key, value in cell.env)
    yield from ("", "%test", "    # no card is there while it is built: that the packages are imported")
    yield from (f'    {_VENV}/bin/python -c "import {module}"' for module in _modules(pinned))
    yield from ("", "%runscript", f'    exec {_VENV}/bin/python "$@"')


def _system(pinned: Pinned) -> Iterator[str]:
    """The system's packages, and an environment with the cell's Python: uv has those that a base lacks."""
    cell = pinned.cell
    if any(word in cell.base.name for word in ("ubi", "rocky", "centos", "alma")):
        yield "dnf install -y python3-pip"
    else:
        built = any(wheel.source is not None for wheel in pinned.wheels)
        names = dict.fromkeys(("python3-venv", "ca-certificates", *cell.apt))
        names |= dict.fromkeys(("build-essential",) if built or cell.compilers else ())
        yield "apt-get update"
        yield f"apt-get install -y --no-install-recommends {shlex.join(names)}"
        yield "rm -rf /var/lib/apt/lists/*"
    yield "export UV_PYTHON_INSTALL_DIR=/opt/python"
    yield "python3 -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir uv"
    yield f"/opt/uv/bin/uv venv --seed --python {cell.named_python} {_VENV}"


def _modules(pinned: Pinned) -> Iterator[str]:
    """The modules of the cell's frameworks."""
    here = {load().table_name(name) for name in names_of(pinned.cell.frameworks)}
    for row in load().registry:
        if row.distribution is not None and load().table_name(row.distribution) in here:
            yield row.module
