"""A runtime as `rtbuild colab diff` compares with it: from an import's record, or from the lists."""

import functools
from pathlib import Path
from typing import Any, Literal

import pydantic

from builder.colab.runtimes import NAMED, Runtime, read_runtime
from builder.errors import UsageError

_COMPILED = "compiled with the libraries of a Debian release: only the image on its rootfs has it"


class _Missing(pydantic.BaseModel):
    name: str
    detail: str


class Listed(pydantic.BaseModel):
    """What a runtime holds, and what is known of the packages that no index has.

    As much of a record as a comparison needs; :func:`builder.colab.imports.record` writes it.
    """

    model_config = pydantic.ConfigDict(strict=True, frozen=True)

    version: Literal[1] = pydantic.Field(default=1, alias="schema")
    runtime: str
    python: str
    cuda: str | None
    cudnn: str | None
    packages: dict[str, str | None]
    """Versions by name as listed; None if the list has none."""
    missing: list[_Missing] = []
    compiled: dict[str, Any] = {}
    unasked: dict[str, str] = {}
    """The index that did not answer, by the name of each package that only it may have."""

    @functools.cached_property
    def reasons(self) -> dict[str, str]:
        """Why a package could not be matched, by name."""
        return {row.name: row.detail for row in self.missing} | dict.fromkeys(self.compiled, _COMPILED)


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
        runtime=runtime.name,
        python=runtime.python,
        cuda=runtime.cuda,
        cudnn=runtime.cudnn,
        packages={package.name: package.version for package in runtime.packages},
    )


def _of_record(path: Path) -> Listed:
    try:
        return Listed.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        first, *said = str(error).splitlines()
        raise UsageError(
            f"{path} is no record of an import: {' '.join(said[:2]) or first}",
            hint="write it again: rtbuild colab import",
        ) from error
