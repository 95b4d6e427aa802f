"""PyYAML's complaints in the words of someone who writes a matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from builder.matrix.source import Problems

_QUOTE = "a value with one of {}[],&*#?|-<>=!%@` in front, or with ': ' in it, wants quotes"
_QUOTE_GLOB = 'a glob that starts with * wants quotes: "*-py3.9-*"'
_QUOTE_EXTRA = 'quote the value: ["tensorflow[and-cuda]==2.15.0"]'
_BACKSLASH = "inside single quotes a \\ is only a \\"
_FIRST_DASH = "put its first '-' on a line of its own"
_ALIGN = "lines that belong together start in the same column"

# (part of PyYAML's context, part of its problem) → what to say, and the hint. The first that fits is used.
_WORDS = (
    ("", "found character '\\t'", "a tab where YAML wants blanks", "indent with spaces"),
    ("", "cannot start any token", "this character cannot start a value", _QUOTE),
    ("alias", "", "a '*' in front makes an alias of a value", _QUOTE_GLOB),
    ("anchor", "", "a '&' in front makes an anchor of a value", _QUOTE),
    ("quoted scalar", "end of stream", "this quote is never closed", "close it where the value ends"),
    ("quoted scalar", "document separator", "this quote is never closed", "close it where the value ends"),
    ("double-quoted", "escape", "an escape that YAML does not know", _BACKSLASH),
    ("double-quoted", "hexdecimal", "an escape that YAML does not know", _BACKSLASH),
    ("flow sequence", "<stream end>", "this '[' is never closed", "close it with ']'"),
    ("flow mapping", "<stream end>", "this '{' is never closed", "close it with '}'"),
    ("flow sequence", "'['", "a '[' inside a list in brackets", _QUOTE_EXTRA),
    ("flow sequence", "expected ',' or ']'", "a ',' or the closing ']' is missing before this", _QUOTE),
    ("flow mapping", "expected ',' or '}'", "a ',' or the closing '}' is missing before this", _QUOTE),
    ("", "mapping values are not allowed", "a ':' that YAML cannot place", f"{_ALIGN}; {_QUOTE}"),
    ("", "expected <block end>", "this line is indented unlike the lines it belongs to", _ALIGN),
    ("", "sequence entries are not allowed", "a list cannot start here", _FIRST_DASH),
    ("simple key", "could not find expected ':'", "a key without its ':'", f"{_ALIGN}; {_QUOTE}"),
)  # fmt: skip


def explain(failure: Exception | None, text: str, problems: Problems) -> None:
    """Notes why a file is no YAML, at the place where one would look for it."""
    if not isinstance(failure, yaml.MarkedYAMLError):
        hint = "an escape such as \\U with more than 10FFFF names no character"
        problems.add(f"the file is not YAML: {failure}", problems.span(1, 1), hint)
        return
    mark, context = failure.problem_mark, failure.context or ""
    problem = failure.problem or "it cannot be read"
    at_end = mark is None or mark.index >= len(text.rstrip())
    if at_end and failure.context_mark is not None:
        mark = failure.context_mark
    span = problems.span(mark.line + 1, mark.column + 1) if mark is not None else problems.span(1, 1)
    for in_context, in_problem, message, hint in _WORDS:
        if in_context in context and in_problem in problem:
            problems.add(message, span, hint)
            return
    problems.add(f"the file is not YAML: {problem}{f' {context}' if context else ''}", span)
