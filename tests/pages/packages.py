"""The tables of compiled packages as Markdown, for ``docs/packages.md``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pages.facts import as_code, as_table
from pages.facts import pythons as as_pythons

from builder.plan.facts.maintain.coverage_report import package_coverage
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


def markdown(facts: Facts) -> str:
    """The whole page."""
    head = ("package", "on the index", "on record", "libraries read", "sources alone", "not read, and why")
    rows = [
        (
            one.name,
            str(one.indexed or "-"),
            f"{one.releases} ({one.span})",
            str(one.read),
            str(one.sources),
            "; ".join(one.reasons),
        )
        for one in package_coverage()
    ]
    parts = [INTRODUCTION, as_table("Coverage", head, rows), _same_files(facts)]
    parts += [_package(facts.packages[name]) for name in sorted(facts.packages)]
    return "\n".join(parts)


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
