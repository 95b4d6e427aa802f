"""The tables of compiled packages as Markdown, for ``docs/packages.md``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pages.facts import as_code, as_table
from pages.facts import pythons as as_pythons

from builder.plan.facts.tables import newest_minor

if TYPE_CHECKING:
    from builder.plan.facts.tables import PackageRow, PackageTable
    from builder.plan.facts.tables.loader import Facts

INTRODUCTION = """\
# Compiled packages

What the [rules](compatibility.md) `package-…` and `same-files` know of packages beside the frameworks.
`rtbuild facts refresh` reads it from the package index: requirements from each wheel's metadata, all
else from the beginning of the libraries inside, at most 48 MiB of a wheel; of a release without wheels,
from the build files of its source archive. The page is made by `make golden`; [facts.md](facts.md) says
how GPU code is written.

- *PyTorch*: what its metadata asks for; in brackets the minor releases that define every symbol it asks
  of PyTorch's small libraries (`libc10`, `libc10_cuda`, `libtorch_python`), or `stable` if it is
  compiled against PyTorch's stable interface alone.
- *CUDA*: by the PTX inside, which tells the oldest toolkit that writes it; else by the names of
  libraries that it is linked with, which tell the major.
- *linked with*: libraries of CUDA and of frameworks that it does not bring.
- *on the index*: final releases with a wheel for Linux or a source archive; those before the first on
  record are older than what people ask for, and are not read.
"""

NUMPY = """
Of these are read what they ask for, and the NumPy that their compiled code is made for: code that looks for
`numpy.core` alone was compiled for NumPy 1 and does not run with NumPy 2, code that looks for `numpy._core`
runs with both ([NumPy 2.0 migration
guide](https://numpy.org/doc/stable/dev/depending_on_numpy.html#numpy-2-abi-handling)). Of one that was not
read, an older release that runs with NumPy 2, or a newer one that does not, tells.
"""


def markdown(facts: Facts) -> str:
    """The whole page."""
    head = ("package", "on the index", "on record", "libraries read", "sources alone", "not read, and why")
    tables = [facts.packages[name] for name in sorted(facts.packages)]
    whole = [table for table in tables if not table.light]
    parts = [INTRODUCTION, as_table("Coverage", head, [_coverage(table) for table in whole])]
    parts += [_beside_numpy([table for table in tables if table.light]), _same_files(facts)]
    parts += [_package(table) for table in whole]
    return "\n".join(parts)


def _coverage(table: PackageTable) -> tuple[str, ...]:
    """A package's releases: how many there are, are on record and were read, and why values are missing."""
    wheels = [row for row in table.rows if row.archive != "source"]
    reasons: dict[str, list[str]] = {}
    for row in reversed(wheels):
        if not row.modules:
            why = row.unread.get("libraries", "older than the first whose libraries are read")
            reasons.setdefault(why, []).append(row.version)
        elif "architectures" in row.unread:
            reasons.setdefault(f"GPU code: {row.unread['architectures']}", []).append(row.version)
        elif "libraries" in row.unread:
            reasons.setdefault("single libraries: their names are not in their beginnings", []).append(
                row.version
            )
    for row in reversed(table.rows):
        if row.archive == "source" and "requires" in row.unread:
            reasons.setdefault(f"what it asks for: {row.unread['requires']}", []).append(row.version)
    oldest, newest = table.rows[-1].version, table.rows[0].version
    return (
        table.name,
        str(len(table.rows) + table.older) if table.older is not None else "-",
        f"{len(table.rows)} ({oldest if oldest == newest else f'{oldest} to {newest}'})",
        str(sum(bool(row.modules) for row in wheels)),
        str(len(table.rows) - len(wheels)),
        "; ".join(
            f"{why} ({of_it[0]}" + (f" to {of_it[-1]}, {len(of_it)} releases)" if len(of_it) > 1 else ")")
            for why, of_it in reasons.items()
        ),
    )


def _beside_numpy(tables: list[PackageTable]) -> str:
    """Of packages whose code asks nothing of CUDA, which releases run with which NumPy."""
    head = (
        "package",
        "on record",
        "for NumPy 1",
        "runs with NumPy 2",
        "asks nothing of it",
        "not read",
    )

    def span(rows: list[PackageRow]) -> str:
        ends = list(dict.fromkeys(row.version for row in (rows[-1:] + rows[:1])))
        return f"{' to '.join(ends)} ({len(rows)})" if rows else "-"

    rows = []
    for table in tables:
        wheels = [row for row in table.rows if row.archive != "source"]
        told = {abi: [row for row in wheels if row.numpy_abi == abi] for abi in ("1", "2")}
        silent = [row for row in wheels if row.numpy_abi is None]
        unread = [row for row in silent if "numpy_abi" in row.unread]
        rest = [row for row in silent if "numpy_abi" not in row.unread]
        rows.append((table.name, span(list(table.rows)), *map(span, (told["1"], told["2"], rest, unread))))
    return as_table("Beside NumPy", head, rows) + NUMPY


def _same_files(facts: Facts) -> str:
    rows = [(f"`{row.file}`", ", ".join(row.names), row.reason) for row in facts.same_files]
    return as_table(
        "One of each", ("file", "distributions that write it, the one to keep first", "why"), rows
    )


def _package(table: PackageTable) -> str:
    """The newest patch of each minor release."""
    wanted = set(newest_minor([row.version for row in table.rows if row.modules or row.archive]))
    rows = [_told(row) for row in table.rows if row.version in wanted]
    head = ("release", "Python", "PyTorch, NumPy, TensorFlow", "CUDA", "linked with", "GPU code", "glibc")
    return as_table(f"`{table.name}`", head, rows)


_SHOWN = ("torch", "numpy", "tensorflow", "jax", "onnxruntime", "ctranslate2")


def _told(row: PackageRow) -> tuple[str, ...]:
    asked = [line.partition(";")[0].strip() for line in row.requires if line.startswith(_SHOWN)]
    abi = "stable" if row.abi == "stable" else " ".join(row.torch)
    linked = [name for name in row.needed if name.startswith(("libcu", "libnv", "libtensorflow", "libnccl"))]
    cuda = row.cuda or ", ".join(sorted(row.by_cuda))
    if row.archive == "source":
        needs = ", ".join(row.compiles)
        return (
            row.version,
            "sources" + (f", compiled with {needs}" if needs else ""),
            ", ".join(asked),
            f"{row.cuda} or newer" if row.cuda else "",
            "",
            as_code(row.architectures),
            "",
        )
    return (
        row.version + (" yanked" if row.yanked else ""),
        as_pythons(row.python),
        ", ".join(asked) + (f" [{abi}]" if abi else ""),
        cuda,
        ", ".join(linked),
        as_code(row.architectures),
        row.glibc or "",
    )
