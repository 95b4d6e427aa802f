"""Selects the judgements about one image that stand; docs/publish.md describes the rule."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from builder.evidence.judgement import JudgedReport
from builder.verify.entry import ReportKey


def standing(words: Iterable[JudgedReport]) -> list[JudgedReport]:
    """The newest judgement for each key; of two in one second the one against the image.

    Only a newer judgement for or against the image replaces one against it; a later report of a busy GPU, a
    wrong clock or a test double does not.
    """
    latest: dict[ReportKey, JudgedReport] = {}
    for word in sorted(words, key=lambda word: (word.when, word.side == "against")):
        before = latest.get(word.key)
        if before is None or before.side != "against" or word.side != "neither":
            latest[word.key] = word
    return list(latest.values())


def broken(stand: Sequence[JudgedReport]) -> list[JudgedReport]:
    """Standing judgements that exclude an image, at any age and whatever other GPUs report."""
    return [word for word in stand if word.side == "against" and word.verdict == "broken"]


def denied(stand: Sequence[JudgedReport], claims: Container[str | None]) -> list[JudgedReport]:
    """Standing judgements that deny a claim, for instance with another driver on a GPU of that class."""
    return [
        word
        for word in stand
        if word.side == "against" and word.verdict == "unsupported-gpu" and word.gpu_class in claims
    ]


def without_exempt(claiming: Sequence[JudgedReport]) -> list[JudgedReport]:
    """The judgements without the claims that another statement takes back.

    Statements are never removed: one that claims a class stays beside the image if its matrix exempts the
    class later. A report that is newer than the exemption restores the claim.
    """
    return [
        replace(
            found,
            claims=tuple(
                name
                for name in found.claims
                if not any(name in other.exempt and found.when <= other.exempt_until for other in claiming)
            ),
        )
        for found in claiming
    ]
