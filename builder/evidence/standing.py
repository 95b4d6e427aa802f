"""Which of several judgements about one image stand; docs/publish.md has the rule in words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Sequence

    from builder.evidence.judgement import JudgedReport
    from builder.verify.entry import ReportKey


def standing(words: Iterable[JudgedReport]) -> list[JudgedReport]:
    """Of several about the very same thing the newest; of two in one second the one against the image.

    A judgement against the image gives way only to a newer one for or against it: a busy GPU an hour later, a
    wrong clock or a test double do not repair the image.
    """
    latest: dict[ReportKey, JudgedReport] = {}
    for word in sorted(words, key=lambda word: (word.when, word.side == "against")):
        before = latest.get(word.key)
        if before is None or before.side != "against" or word.side != "neither":
            latest[word.key] = word
    return list(latest.values())


def broken(stand: Sequence[JudgedReport]) -> list[JudgedReport]:
    """Standing judgements that exclude an image: a ``works`` on another GPU does not outvote them, and
    they do not grow old."""
    return [word for word in stand if word.side == "against" and word.verdict == "broken"]


def denied(stand: Sequence[JudgedReport], claims: Container[str | None]) -> list[JudgedReport]:
    """Standing judgements that deny a claim, for instance with another driver on a GPU of that class."""
    return [
        word
        for word in stand
        if word.side == "against" and word.verdict == "unsupported-gpu" and word.gpu_class in claims
    ]


def without(claiming: Sequence[JudgedReport], classes: Collection[str | None]) -> list[JudgedReport]:
    """The same without any claim for these classes."""
    return [
        replace(found, claims=tuple(name for name in found.claims if name not in classes))
        for found in claiming
    ]


def without_exempt(claiming: Sequence[JudgedReport]) -> list[JudgedReport]:
    """The same without the claims that another statement takes back.

    Statements are never removed: one that claims a class stays beside the image when its matrix exempts the
    class later on. The claim comes back with a report that is newer than the exemption.
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
