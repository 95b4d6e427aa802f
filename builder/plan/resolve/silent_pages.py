"""Sets whose framework lies on an index that does not answer: the resolver's word on the rest of them.

The rest is resolved beside the same release of the default index, which is another build with the same
requirements of Python packages; only the framework's own wheel stays unasked.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from packaging.requirements import Requirement

from builder.core.versions import pinned
from builder.plan.resolve.resolver import solved
from builder.plan.resolve.solve import Demand, Proposal
from builder.sources.index import Index

_IS_NONE = re.compile(r"was not found in the package registry|\byanked\b")
"""The resolver's words on a package that no build of the framework could bring. What else it says may be of
the other build, or of sources of which pip takes older ones.
"""


def asked_of_rest(
    standing: Sequence[Proposal], refused: Mapping[str, Proposal], demand: Demand, index: Index
) -> tuple[list[Proposal], dict[str, Proposal]]:
    """The proposals with the resolver's word on their rest, where they are unasked; those with a package that
    no index has are among the refused, with its words.
    """
    kept, words = list[Proposal](), dict(refused)
    for one in standing:
        answer = rest_of(one, demand, index)
        if isinstance(answer, str):
            words.setdefault(answer, one)
        else:
            kept.append(answer)
    return kept, words


def rest_of(one: Proposal, demand: Demand, index: Index) -> Proposal | str:
    """A proposal whose rest was resolved, by :attr:`~.solve.Proposal.wheels`, or the resolver's words.

    As it is, if it was asked about or has no rest; with what the resolver says against the rest, if it may be
    of the other build alone.
    """
    cell = one.cell
    builds = [text for text in cell.frameworks if "+" in (pinned(Requirement(text)) or "")]
    if one.unasked is None or not cell.pip or not builds:
        return one
    plain = tuple(text.partition("+")[0] if text in builds else text for text in cell.frameworks)
    # the card is that of the other build, which the rules accepted
    beside = replace(cell, frameworks=plain, index=demand.index, gpus=())
    answer = solved(replace(one, cell=beside, unasked=None), index, None, period=demand.period)
    if isinstance(answer, str):
        if _IS_NONE.search(answer):
            return answer
        head, _, rest = answer.partition("\n")
        cause = re.search(r"cause: (.*)", rest)
        told = f"{one.unasked}; of the rest it says: {cause[1] if cause is not None else head}"
        return replace(one, unasked=told)
    found, wheels = answer
    if found.unasked is not None:
        return one  # the project's own index is silent, too
    return replace(
        one,
        cell=replace(found.cell, frameworks=cell.frameworks, index=cell.index, gpus=cell.gpus),
        findings=(*one.findings, *(finding for finding in found.findings if finding.rule == "from-source")),
        added=tuple(dict.fromkeys((*one.added, *found.added))),
        sources=found.sources,
        wheels=len(wheels),
        unasked=f"{one.unasked}; of the rest, beside {', '.join(plain)} of the default index, it finds a set",
    )
