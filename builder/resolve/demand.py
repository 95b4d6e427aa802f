"""The demands that a question to ``resolve`` makes on an image, each with a name that people recognise."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from builder.errors import UsageError
from builder.facts.framework import table_name
from builder.facts.tables import load
from builder.facts.versions import contains, key
from builder.resolve.requirements import NamedRequirement, Wishes


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Everything that an image has to meet."""

    frameworks: tuple[NamedRequirement, ...]
    """Requirements that the tables have rows for."""
    companions: tuple[NamedRequirement, ...] = ()
    """Every other requirement: torchvision, numpy, transformers."""
    gpus: tuple[str, ...] = ()
    driver: str | None = None
    python: str | None = None
    """A version, ``3.11``, or a set of them, ``>=3.9,<3.12``."""
    index: tuple[str, ...] = ()

    def takes_python(self, version: str) -> bool:
        """Whether an image with this Python meets the demand, and every marker on a framework holds."""
        return (self.python is None or contains(pythons(self.python), f"{version}.99")) and all(
            wish.holds(version) for wish in self.frameworks
        )

    def parts(self) -> Iterator[tuple[str, Demand]]:
        """Each single demand by its name, and the whole without it."""
        for wish in self.frameworks:
            others = tuple(other for other in self.frameworks if other is not wish)
            yield f"{wish} ({wish.place})", replace(self, frameworks=others)
        for gpu in self.gpus:
            yield f"--gpu {gpu}", replace(self, gpus=tuple(other for other in self.gpus if other != gpu))
        if self.driver is not None:
            yield f"--driver {self.driver}", replace(self, driver=None)
        if self.python is not None:
            yield f"Python {self.python}", replace(self, python=None)


def pythons(text: str) -> SpecifierSet:
    """``3.11`` or ``>=3.9,<3.12`` as a set that full versions are looked up in. Raises UsageError."""
    try:
        return SpecifierSet(text if not text[:1].isdigit() else f"=={text.removesuffix('.*')}.*")
    except InvalidSpecifier as problem:
        raise UsageError(f"{text!r} names no Python", hint="as in 3.11, or '>=3.9,<3.12'") from problem


def split(
    wishes: Wishes, python: str | None = None
) -> tuple[tuple[NamedRequirement, ...], tuple[NamedRequirement, ...]]:
    """Frameworks, and the packages beside them.

    Of a framework that is named under several markers the one for the newest Python is taken, with a note.
    """
    frameworks: dict[str, NamedRequirement] = {}
    for wish in wishes.wishes:
        if table_name(wish.name) not in load().frameworks:
            continue
        other = frameworks.get(wish.name)
        if other is not None:
            kept, left = sorted((other, wish), key=lambda one: _newest(one, python), reverse=True)
            wishes.notes.append(f"{left.place}: {left}: left out: {kept} is for a newer Python")
            wish = kept  # noqa: PLW2901
        frameworks[wish.name] = wish
    beside = (wish for wish in wishes.wishes if table_name(wish.name) not in load().frameworks)
    return tuple(frameworks.values()), tuple(beside)


def _newest(wish: NamedRequirement, python: str | None) -> tuple[int, ...]:
    """The newest Python of a system on record that a requirement's marker holds for."""
    alone = Demand(frameworks=(wish,), python=python)
    every = {version for system in load().systems.values() for version in system.python}
    return max((key(version) for version in every if alone.takes_python(version)), default=())


def distributions(wishes: Iterable[NamedRequirement]) -> list[str]:
    """The projects on a package index that frameworks come from: CuPy has one for each CUDA."""
    found: dict[str, None] = {}
    for wish in wishes:
        variants = {row.variant for row in load().frameworks["cupy"].rows} if wish.name == "cupy" else ()
        found |= dict.fromkeys(f"cupy-{variant}" for variant in sorted(variants))
        if not variants:
            found[wish.name] = None
    return list(found)


def meant(name: str) -> str | None:
    """The framework that was probably meant: ``tensrflow`` and ``tensorflow-cpu`` → ``tensorflow``."""
    if (build := load().without.get(name)) is not None:
        return build.instead
    close = difflib.get_close_matches(name, [*load().frameworks, "cupy", "jax"], n=1, cutoff=0.8)
    # tensorflow-text is a package of its own
    return close[0] if close and not name.startswith(f"{close[0]}-") else None
