"""The lines by which a person tries an installation: each package of a set that has one in
``smoke-tests.toml`` finds the GPU, and computes something small on it.
"""

import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from builder.core.versions import canonical, contains, pinned
from builder.plan.facts.tables import Row, TableFile, load

Device = Literal["cuda", "mps", "cpu"]


@dataclass(frozen=True, kw_only=True)
class SmokeTestRow(Row):
    """A statement of Python that fails where a package does not compute; ``smoke-tests.toml`` says how."""

    name: str
    versions: SpecifierSet | None = None
    cuda: str
    mps: str = ""
    cpu: str = ""


@functools.cache
def _rows() -> tuple[SmokeTestRow, ...]:
    return TableFile(load().folder / "smoke-tests.toml").rows(SmokeTestRow)


def smoke_statements(requirements: Iterable[str], device: Device = "cuda") -> list[str]:
    """A statement of Python for each of the requirements that has one, the frameworks' first: ``cupy`` for
    ``cupy-cuda12x``. Where a release is left open, that of the newest row.
    """
    parsed = [*map(Requirement, requirements)]
    known = load()
    parsed.sort(key=lambda one: not known.is_framework(canonical(one.name)))
    found = dict[str, None]()
    for one in parsed:
        names = {canonical(one.name), known.table_name(canonical(one.name))}
        version = (pinned(one) or "").partition("+")[0]
        for row in _rows():
            fits = row.versions is None or not version or contains(row.versions, version)
            if row.name in names and fits:
                found |= {text: None for text in (getattr(row, device),) if text}
                break
    return [*found]


def python_lines(statements: Iterable[str], python: str = "python") -> list[str]:
    """A command for each statement, as sh, cmd.exe and PowerShell take it. ``python``: what runs it, as in
    ``apptainer exec --nv torch.sif python3``.
    """
    return [f"{python} -c {json.dumps(text)}" for text in statements]
