"""Which of several words about one image stand. The gate asks it of reports before a publication, the audit
of statements after one: there is no second copy of the rule.

What counts as a word, and for which side, is theirs to say; docs/publish.md has the rule in words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence
    from datetime import datetime

    from builder.verify.entry import ReportKey

Side = Literal["for", "against", "neither"]
"""``neither``: it says nothing about the image, or proves nothing."""


class Word(Protocol):
    """What a report says of an image."""

    @property
    def key(self) -> ReportKey: ...
    @property
    def when(self) -> datetime: ...
    @property
    def side(self) -> Side: ...
    @property
    def verdict(self) -> str: ...
    @property
    def gpu_class(self) -> str | None: ...


_Word = TypeVar("_Word", bound=Word)


def standing(words: Iterable[_Word]) -> list[_Word]:
    """Of several about the very same thing the newest; of two in one second the one against the image.

    What speaks against the image gives way only to a newer word for it, or to a newer one against it: a GPU
    that is taken an hour later, a clock that is wrong or a test double do not mend what was found.
    """
    latest: dict[ReportKey, _Word] = {}
    for word in sorted(words, key=lambda word: (word.when, word.side == "against")):
        before = latest.get(word.key)
        if before is None or before.side != "against" or word.side != "neither":
            latest[word.key] = word
    return list(latest.values())


def broken(stand: Sequence[_Word]) -> list[_Word]:
    """Of the words that stand those that shut an image out, whatever others say: one that says ``works`` on
    another GPU does not outvote them, and they do not grow old."""
    return [word for word in stand if word.side == "against" and word.verdict == "broken"]


def denied(stand: Sequence[_Word], claims: Container[str | None]) -> list[_Word]:
    """Of the words that stand those that deny a claim: with another driver on a GPU of that class, say."""
    return [
        word
        for word in stand
        if word.side == "against" and word.verdict == "unsupported-gpu" and word.gpu_class in claims
    ]
