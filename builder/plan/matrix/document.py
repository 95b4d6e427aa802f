"""The values that a matrix file is read into, before they are multiplied out."""

from collections.abc import Mapping
from dataclasses import dataclass

from builder.core.model import Options, Span
from builder.plan.matrix.nodes import Node


@dataclass(frozen=True, slots=True)
class Setting:
    """The value of one key, checked. A list whatever its key: one item for a scalar, ``NAME=value`` items for
    ``env``, for ``cuda`` the provider and then its packages, for ``python`` the version and then where it is
    from, ``name`` or ``name: needs`` for builds."""

    items: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class CellSettings:
    """Keys of a cell: those of ``defaults``, or of one entry of ``include``."""

    settings: Mapping[str, Setting]
    given: frozenset[str]
    """Also the keys that are misspelt or whose values are wrong, so that they are not called missing."""
    span: Span
    sound: bool
    """False if an error was noted in it: no cells are made of it, so no error follows from another."""


@dataclass(frozen=True, slots=True)
class Axis:
    key: str
    values: tuple[Setting, ...]
    sound: bool


@dataclass(frozen=True, slots=True)
class Axes:
    axes: tuple[Axis, ...]
    zips: tuple[tuple[str, ...], ...]
    """Keys of axes that move together."""
    given: frozenset[str]
    span: Span
    sound: bool


@dataclass(frozen=True, slots=True)
class Glob:
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Rule:
    """An entry of ``exclude``: takes out the cells that match all of its globs."""

    globs: Mapping[str, Glob]
    """By key of a cell, or ``id``."""
    reason: str
    span: Span


@dataclass(frozen=True, slots=True)
class MatrixDocument:
    name: str
    description: str
    defaults: CellSettings
    axes: Axes | None
    include: tuple[CellSettings, ...]
    exclude: tuple[Rule, ...]
    options: Options
    publish: Node | None
    """Read once the cells are there, which it names."""
    complete: bool
    """False if an error may have cost a cell; a glob that matches no cell may then match the lost one."""
