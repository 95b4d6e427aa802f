"""The last release for each generation of cards and each driver branch, for ``docs/last-releases.md``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pages.facts import as_table

from builder.plan.resolve import last_release

if TYPE_CHECKING:
    from builder.plan.facts.tables.loader import Facts
    from builder.plan.resolve.refusals import LastRelease

CARDS = ("K80", "GTX1080-Ti", "V100", "T4", "RTX3090", "RTX4090", "H100", "B200", "RTX5090")
"""One for each list of GPU code that releases differ in."""
BRANCHES = ("470", "535", "570", "580", "595")
"""One for each floor of a CUDA major, and the first without Maxwell, Pascal and Volta."""
FRAMEWORKS = ("torch", "tensorflow", "jax", "onnxruntime-gpu", "ctranslate2")

INTRODUCTION = """\
# The last release for your card and driver

The newest release of each framework with a CUDA build that runs, by the [rules](compatibility.md) `driver`,
`gpu` and `known-bad`; made from the [facts](facts.md) by `make golden`. `rtbuild resolve torch
--gpu "GTX 1080 Ti" --driver 570` says the same for any card and driver, with a matrix to build.

A build such as `+cu126` is on PyTorch's own index. In brackets: the newest that the default index has, if it
is another. A card stands for all of its compute capability; a driver for its branch and those up to the next
one here. A dash: no release on record is known to run. A release that an older driver runs on data-centre
cards by `cuda-compat` in an image alone does not count: `resolve` proposes such an image.
"""


def markdown(facts: Facts) -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for name in CARDS:
        card = facts.gpus[name.lower()]
        rows, reasons, running = [], dict[str, None](), set[str]()
        for branch in BRANCHES:
            found = [last_release(framework, (card.name,), branch) for framework in FRAMEWORKS]
            rows.append((branch, *map(_said, found)))
            ran = [one for one in found if one.anywhere.text is not None]
            # where nothing runs, one reason is the reason of all
            reasons |= dict.fromkeys(_dropped(one, branch) for one in ran or found[:1])
            running |= {one.name for one in ran}
        never = [last_release(name, (card.name,), None) for name in FRAMEWORKS if name not in running]
        reasons |= dict.fromkeys(_dropped(one) for one in never)
        title = f"Compute capability {card.capability}: {card.name} and others"
        parts.append(as_table(title, ("driver", *FRAMEWORKS), rows))
        parts += ["What was dropped when:\n", *(f"- {text}" for text in reasons if text), ""]
    return "\n".join(parts).rstrip() + "\n"


def _said(last: LastRelease) -> str:
    newest, plain = last.anywhere.text, last.default.text
    if newest is None:
        return ""
    short = newest.partition("==")[2]
    return short if plain == newest else f"{short} ({plain.partition('==')[2] if plain else 'none'})"


def _dropped(last: LastRelease, branch: str = "") -> str:
    """Why the release after the newest one does not run, with the source; without a branch, on any driver."""
    why = last.anywhere.dropped
    if why is None:
        return ""
    sources = dict.fromkeys(value.source.reference for value in why.values if value.source.kind == "table")
    message = why.message.replace(f", and here is {branch}", "") if branch else why.message
    refused = last.anywhere.refused
    alone = last.anywhere.text is not None or not branch
    who = refused.text if refused is not None and alone else "All"
    return f"{who}: {message} ({'; '.join(sources)})"
