"""A runtime as `rtbuild colab diff` compares with it: from an import's record, or from the lists."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pydantic

from builder.colab.runtimes import NAMED, Runtime, read_runtime
from builder.errors import UsageError

_COMPILED = "compiled with the libraries of a Debian release: only the image on its rootfs has it"


@dataclass(frozen=True, kw_only=True)
class Listed:
    """What a runtime holds, and what is known of the packages that no index has."""

    name: str
    python: str
    cuda: str | None
    cudnn: str | None
    packages: Mapping[str, str | None]
    """Versions by name as listed; None if the list has none."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why a package could not be matched, by name."""
    unasked: Mapping[str, str] = field(default_factory=dict)
    """The index that did not answer, by the name of each package that only it may have."""


class _Missing(pydantic.BaseModel):
    name: str
    detail: str


class _Record(pydantic.BaseModel):
    """As much of a record as a comparison needs; :func:`builder.colab.imports.record` writes it."""

    model_config = pydantic.ConfigDict(strict=True)

    version: int = pydantic.Field(alias="schema")
    runtime: str
    python: str
    cuda: str | None
    cudnn: str | None
    packages: dict[str, str | None]
    missing: list[_Missing]
    compiled: dict[str, Any] = {}
    unasked: dict[str, str] = {}


def listed(against: str, *, folder: Path = Path("matrices")) -> Listed:
    """The runtime of that name (``2025.07``), of a record's path, or of a folder of lists.

    Raises:
        UsageError: there is no such runtime here, or its record is damaged.
    """
    path = Path(against)
    if path.is_dir():
        return of_runtime(read_runtime(path))
    if path.is_file():
        return _of_record(path)
    beside = folder / f"colab-{against}.runtime.json"
    if beside.is_file():
        return _of_record(beside)
    records = folder.glob("colab-*.runtime.json")
    known = sorted(p.name.removeprefix("colab-").removesuffix(".runtime.json") for p in records)
    hint = f"imported here: {', '.join(known)}" if known else "import it first: rtbuild colab import"
    if against in NAMED and against not in known:
        hint = f"{hint}; {against} is commit {NAMED[against]} of Google's lists"
    raise UsageError(f"'{against}' is no runtime, no record of one and no folder of lists", hint=hint)


def of_runtime(runtime: Runtime) -> Listed:
    return Listed(
        name=runtime.name,
        python=runtime.python,
        cuda=runtime.cuda,
        cudnn=runtime.cudnn,
        packages={package.name: package.version for package in runtime.packages},
    )


def _of_record(path: Path) -> Listed:
    try:
        raw: Any = json.loads(path.read_text(encoding="utf-8"))
        found = _Record.model_validate(raw)
    except (OSError, ValueError) as error:
        first = str(error).splitlines()[0]
        raise UsageError(
            f"{path} is no record of an import: {first}", hint="write it again: rtbuild colab import"
        ) from error
    if found.version != 1:
        raise UsageError(f"{path} has schema {found.version}, and this rtbuild knows 1")
    return Listed(
        name=found.runtime,
        python=found.python,
        cuda=found.cuda,
        cudnn=found.cudnn,
        packages=found.packages,
        unasked=found.unasked,
        reasons={row.name: row.detail for row in found.missing} | dict.fromkeys(found.compiled, _COMPILED),
    )
