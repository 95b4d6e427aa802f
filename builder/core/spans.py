"""Spans: pieces of work with a name, a begin and an end, told to whoever watches a run."""

from collections.abc import Callable
from contextlib import AbstractContextManager

Span = Callable[[str], AbstractContextManager[object]]
"""Begins a span of this name in the thread that calls it; the block is the span.

:class:`contextlib.nullcontext` is one where nobody watches.
"""
