"""The one template environment: strict in all that Jinja allows to be strict in."""

from __future__ import annotations

import threading
from functools import cache
from typing import TYPE_CHECKING, Any

import jinja2

from builder import resources
from builder.recipe.quote import FILTERS, Quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

_guard = threading.Lock()


class UnquotedError(TypeError):
    """A template writes a value that went through no filter of :mod:`builder.recipe.quote`: a bug in it."""


def only_quoted(value: object) -> Quoted:
    """Jinja's ``finalize``: called with every value that a template writes."""
    if not isinstance(value, Quoted):
        raise UnquotedError(f"a template writes {value!r}, which no filter has checked and quoted")
    return value


@cache
def environment() -> jinja2.Environment:
    """An undefined name, a None and a value without its filter are errors; nothing is filled in."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.templates()),
        auto_reload=False,  # nobody changes them while rtbuild runs: no question for their dates at each use
        undefined=jinja2.StrictUndefined,
        finalize=only_quoted,
        autoescape=False,  # noqa: S701 - not HTML; every value is quoted by the filter of its type
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.clear()
    made.filters.update(FILTERS)
    return made


def fill(name: str, values: Mapping[str, Any]) -> str:
    """The template ``name`` with ``values`` in it; it is compiled once, whichever threads ask for it."""
    with _guard:
        template = environment().get_template(name)
    return template.render(values)
