"""Gathers what the catalogue shows: tables, matrices with their locks, reports, publications, causes."""

from __future__ import annotations

import configparser
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from builder import resources
from builder.catalogue.releases import cards_of, judgement, releases_of
from builder.catalogue.values import Catalogue, CataloguedImage, Cause, DatedRuntime, Part, Run
from builder.colab.listed import listed
from builder.errors import CellError, RtbuildError
from builder.evidence.verification import no_proof
from builder.facts import check, tables
from builder.facts.gpus import class_of
from builder.lock.file import lock_path, read_lock
from builder.verify import Damaged, ReportStore
from builder.verify.document import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from builder.facts.tables import Facts
    from builder.lock.file import LockEntry
    from builder.model import Cell, Matrix
    from builder.verify import SealedReport

_CAUSES = (
    "import json, sys\n"
    "names = {'__name__': 'cudnn_verify'}\n"
    "exec(compile(sys.stdin.read(), 'cudnn_verify.py', 'exec'), names)\n"
    "causes = names['CAUSES'].values()\n"
    "names = ('id', 'title', 'side', 'explanation', 'remedy', 'source')\n"
    "sys.stdout.write(json.dumps([{name: getattr(cause, name) for name in names} for cause in causes]))\n"
)
_PUBLICATIONS = 1000
"""Publication records that are read, the newest first."""
_LARGEST = 64 << 20
"""Bytes of a record that is read."""


def collect(
    matrices: Sequence[Matrix], *, results: Path, runtimes: Path, probe: bytes, facts: Facts | None = None
) -> Catalogue:
    """Everything that lies in these places. What cannot be read is named in the catalogue's notes.

    Args:
        results: Folder of reports and of ``publication-*.json``; it may be missing.
        runtimes: Folder of ``colab-*.runtime.json``.
        probe: The one-file probe, which knows the causes.
    """
    known = facts or tables.load()
    notes: list[str] = []
    runs = _runs(ReportStore(results / "reports").entries(), known, notes)
    published = _published(results, notes)
    images = []
    for matrix in matrices:
        locked = _locked(matrix, notes)
        for cell in matrix.cells:
            if cell.excluded is None:
                target, digest = published.get((matrix.name, cell.id), (None, None))
                mine = runs.get((matrix.name, cell.id), ())
                images.append(
                    CataloguedImage(
                        cell=cell,
                        possible=judgement(check(cell, facts=known, suggest=False)),
                        parts=_parts(locked.get(cell.id)),
                        runs=tuple(sorted(mine, key=lambda run: run.when, reverse=True)),
                        published=target,
                        digest=digest,
                    )
                )
    return Catalogue(
        releases=tuple(releases_of(known)),
        cards=cards_of(known),
        images=tuple(images),
        causes=causes_of(probe),
        runtimes=_runtimes(runtimes, notes),
        notes=tuple(notes),
    )


def _runs(
    entries: Iterable[SealedReport | Damaged], facts: Facts, notes: list[str]
) -> Mapping[tuple[str, str], list[Run]]:
    """Reports by matrix and cell. One without a GPU is about no card, and a test double's about nothing."""
    found: dict[tuple[str, str], list[Run]] = {}
    for entry in entries:
        if isinstance(entry, Damaged):
            notes.append(f"{entry.where} is not shown: {entry.why}")
            continue
        if entry.test_double or not entry.key.gpus or entry.key.driver is None:
            continue
        doubt = next(no_proof(parse(json.dumps(entry.document))), None) if entry.verdict == "works" else None
        if doubt is not None:
            notes.append(f"{entry.where} is not shown: {doubt}")
            continue
        name, capability = entry.key.gpus[0]
        cause = entry.document.get("cause")
        run = Run(
            gpu=name,
            card=class_of(name, capability, facts=facts),
            driver=entry.key.driver,
            when=entry.verified,
            verdict=entry.verdict,
            cause=None if cause is None else str(cause),
            digest=entry.key.digest,
            evidence=entry.where,
        )
        found.setdefault((entry.matrix, entry.cell), []).append(run)
    return found


def _published(results: Path, notes: list[str]) -> Mapping[tuple[str, str], tuple[str, str]]:
    """Where each cell was published last, its name and digest; of two publications the later one counts."""
    found: dict[tuple[str, str], tuple[str, str, str]] = {}
    for path in sorted(results.glob("publication-*.json"), reverse=True)[:_PUBLICATIONS]:
        try:
            for key, row in _publications(path):
                if key not in found or row[0] > found[key][0]:
                    found[key] = row
        except CellError as error:
            notes.append(f"{path} is not shown: {error.message}")
    return {key: (target, digest) for key, (_, target, digest) in found.items()}


def _publications(path: Path) -> list[tuple[tuple[str, str], tuple[str, str, str]]]:
    document = _read_json(path)
    if document.get("schema") != 1 or document.get("kind") != "publication":
        raise CellError("it is no publication of a schema that this rtbuild knows")
    rows = []
    try:
        for cell in document["cells"] if not document["dry_run"] else ():
            if cell["outcome"] in {"published", "unchanged"}:
                key = str(cell["matrix"]), str(cell["id"])
                target = f"{cell['target']}:{cell['id']}"
                rows.append((key, (str(document["started"]), target, str(cell["digest"]))))
    except (LookupError, TypeError) as error:
        raise CellError(f"it lacks what a publication has ({error!r})") from error
    return rows


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            raise CellError("it is no file of a sensible size")
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CellError(f"it cannot be read ({error})") from error
    if not isinstance(document, dict):
        raise CellError("it is no JSON object")
    return document


def _locked(matrix: Matrix, notes: list[str]) -> Mapping[str, LockEntry]:
    try:
        lock = read_lock(lock_path(matrix.path))
    except RtbuildError as error:
        notes.append(error.message)
        return {}
    return {} if lock is None else lock.cells


def _parts(entry: LockEntry | None) -> tuple[Part, ...]:
    if entry is None:
        return ()
    size = getattr(entry.base, "size", None)
    if size is None:
        size = sum(deb.size for deb in getattr(entry.base, "debs", ()))
    base = Part(name="base", version=str(getattr(entry.base, "suite", "")), size=size)
    wheels = (Part(name=wheel.name, version=wheel.version, size=wheel.size) for wheel in entry.wheels)
    return tuple(sorted((base, *wheels), key=lambda part: (-part.size, part.name)))


def causes_of(probe: bytes) -> tuple[Cause, ...]:
    """The probe's closed list of causes, as the probe tells it, each with the texts of its signatures."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", _CAUSES], input=probe, capture_output=True, check=True, timeout=60
    )
    texts = _texts(resources.probe() / "signatures.ini")
    return tuple(Cause(**row, texts=texts.get(row["id"], ())) for row in json.loads(done.stdout))


def _texts(signatures: Path) -> Mapping[str, tuple[str, ...]]:
    """Example texts by cause, out of the signatures that ``diagnose`` goes by."""
    parser = configparser.RawConfigParser(strict=True)
    parser.read(signatures, encoding="utf-8")
    found: dict[str, list[str]] = {}
    for section in parser.sections():
        cause, example = (
            parser.get(section, "cause", fallback=""),
            parser.get(section, "example", fallback=""),
        )
        if cause and example:
            found.setdefault(cause, []).append(example)
    return {cause: tuple(dict.fromkeys(rows)) for cause, rows in found.items()}


def _runtimes(folder: Path, notes: list[str]) -> tuple[DatedRuntime, ...]:
    found = []
    for path in sorted(folder.glob("colab-*.runtime.json")):
        try:
            one = listed(str(path), folder=folder)
        except RtbuildError as error:
            notes.append(error.message)
            continue
        found.append(DatedRuntime(name=one.name, packages=dict(one.packages)))
    return tuple(found)


def cell_frameworks(cell: Cell) -> tuple[tuple[str, str], ...]:
    """``(("torch", "2.6.0"),)`` of a cell's pinned requirements, extras and variants left out."""
    rows = []
    for text in cell.frameworks:
        name, _, version = text.partition("==")
        rows.append((name.partition("[")[0], version.partition("+")[0]))
    return tuple(rows)
