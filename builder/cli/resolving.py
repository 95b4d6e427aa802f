"""``rtbuild resolve``: from requirements to a matrix of possible cells."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from builder.console import print_json
from builder.errors import CellError, UsageError
from builder.facts import Outcome, availability, propose, tables, to_matrix_yaml
from builder.facts.conda import in_wheels, read
from builder.facts.versions import requirement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from builder.facts import Proposal
    from builder.facts.availability import Offer
    from builder.facts.conda import Environment
    from builder.index.client import Index
    from builder.model import Cell

_MOST = 200
"""Proposals that the index is asked about at most."""


def run(
    requirements: Sequence[str],
    *,
    python: str | None,
    gpu: str | None,
    driver: str | None,
    limit: int,
    name: str,
    index: Index | None,
    json: bool,
) -> int:
    """Print a matrix of at most ``limit`` cells, best first. ``index`` None: the facts alone are asked.

    Raises:
        UsageError: A requirement does not parse, or names a framework that the facts do not cover.
        CellError: Nothing is possible, or the index has no wheels for it.
    """
    offers = availability.ask(_projects(requirements), index) if index is not None else {}
    own: dict[tuple[str, str], Offer] = {}
    # a +cu126 build may be on an index of its own alone
    elsewhere = {canonicalize_name(text.partition("==")[0]) for text in requirements if "+" in text}
    absent = [
        project
        for project, offer in offers.items()
        if offer.unknown is None and not offer.wheels and project not in elsewhere
    ]
    if absent:
        raise CellError(
            f"the package index has no wheel of {', '.join(absent)} for Linux on x86-64",
            hint="check the name and UV_DEFAULT_INDEX or pip.conf; --offline asks only rtbuild's own tables",
        )
    proposals = propose(
        requirements,
        python=python,
        gpu=gpu,
        driver=driver,
        available={project: offer.versions for project, offer in offers.items() if offer.wheels},
        limit=_MOST,
    )
    if index is not None:
        # what a proposal takes from NVIDIA's wheels has to be there, too
        packages = {
            r.name for p in proposals for t in p.cell.cuda.packages if (r := requirement(t)) is not None
        }
        offers |= availability.ask(packages, index)
        own = availability.ask_own((p.cell for p in proposals), index)
        proposals = _there(proposals, offers, own)
    proposals = proposals[:limit]
    matrix = to_matrix_yaml(proposals, name)
    if json:
        print_json(_document(requirements, offers, own, proposals, matrix))
        return 0
    _say(requirements, offers, own, proposals)
    sys.stdout.write(matrix)
    return 0


def from_conda(path: Path) -> Environment:
    """A conda environment in wheels; what is not in them is said on stderr.

    Raises:
        UsageError: There is no such file, or it does not say which PyTorch.
        CellError: It cannot have used a GPU, or there are no such wheels.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"{path}: {getattr(problem, 'strerror', None) or problem}") from problem
    told = in_wheels(*read(text), tables.load())
    python = f" on Python {told.python}" if told.python else ""
    sys.stderr.write(f"{path} in wheels: {', '.join(told.requirements)}{python}\n")
    for note in told.notes:
        sys.stderr.write(f"   {note}\n")
    return told


def _projects(requirements: Sequence[str]) -> list[str]:
    found = []
    for text in requirements:
        parsed = requirement(text)
        if parsed is None:
            raise UsageError(f"{text!r} is not a requirement", hint="as in 'tensorflow==2.15.*'")
        found.append(parsed.name)
    return found


def _there(
    proposals: Sequence[Proposal], offers: Mapping[str, Offer], own: Mapping[tuple[str, str], Offer]
) -> list[Proposal]:
    """Those for which the indexes have every wheel that is pinned by name."""
    lacking = [availability.missing(proposal.cell, offers, own) for proposal in proposals]
    kept = [proposal for proposal, lack in zip(proposals, lacking, strict=True) if lack is None]
    if not kept:
        reasons = dict.fromkeys(lack for lack in lacking if lack is not None)
        raise CellError(
            "what is possible by the rules is not on the package index:\n"
            + "\n".join(f"  {r}" for r in list(reasons)[:8]),
            hint="another index may have it; --offline asks only rtbuild's own tables",
        )
    return kept


def _origin(text: str, offers: Mapping[str, Offer]) -> tuple[str, str]:
    """Where the versions of a requirement come from, ``index`` or ``facts``, and why."""
    parsed = requirement(text)
    offer = offers.get(canonicalize_name(parsed.name)) if parsed is not None else None
    if offer is None:
        return "facts", "the index was not asked"
    if offer.unknown is not None:
        return "facts", offer.unknown
    return "index", f"it has {len(offer.versions)} releases with wheels for Linux on x86-64"


def _own_indexes(cell: Cell, own: Mapping[tuple[str, str], Offer]) -> list[tuple[str, str | None]]:
    """Each index that a cell names, and why it is not known to have the wheels; None where it has them."""
    found: list[tuple[str, str | None]] = []
    for url in cell.index:
        said = [offer.unknown for (_, asked), offer in own.items() if asked == url]
        found.append((url, next(iter(said), "it was not asked")))
    return found


def _say(
    requirements: Sequence[str],
    offers: Mapping[str, Offer],
    own: Mapping[tuple[str, str], Offer],
    proposals: Sequence[Proposal],
) -> None:
    for text in requirements:
        origin, why = _origin(text, offers)
        sys.stderr.write(f"{text}: versions from the {origin}: {why}\n")
    for number, proposal in enumerate(proposals, 1):
        cell = proposal.cell
        what = ", ".join((*cell.frameworks, f"Python {cell.python}", str(cell.base)))
        sys.stderr.write(f"{number}. {what}: {proposal.outcome.answer}\n")
        for url, unknown in _own_indexes(cell, own):
            told = "which has them" if unknown is None else f"which may have them: {unknown}"
            sys.stderr.write(f"   its wheels come from {url}, {told}\n")
        for finding in proposal.findings:
            if finding.outcome is Outcome.WARNS:
                sys.stderr.write(f"   {finding.rule}: {finding.message}\n")


def _document(
    requirements: Sequence[str],
    offers: Mapping[str, Offer],
    own: Mapping[tuple[str, str], Offer],
    proposals: Sequence[Proposal],
    matrix: str,
) -> dict[str, Any]:
    origins = {text: _origin(text, offers) for text in requirements}
    return {
        "schema": 1,
        "requirements": [
            {"requirement": text, "versions_from": origin, "reason": why}
            for text, (origin, why) in origins.items()
        ],
        "proposals": [
            {
                "outcome": proposal.outcome.old_name,
                "answer": proposal.outcome.answer,
                "cell": proposal.cell.inputs() | {"gpus": list(proposal.cell.gpus)},
                "indexes": [
                    {"url": url, "answered": why is None} | ({"reason": why} if why else {})
                    for url, why in _own_indexes(proposal.cell, own)
                ],
                "findings": [finding.as_json() for finding in proposal.findings],
            }
            for proposal in proposals
        ],
        "matrix": matrix,
    }
