"""PyYAML's complaints in the words of someone who writes a matrix."""

import re

import yaml

from builder.matrix.source import Problems

_ALIGN = "lines that belong together start in the same column"
_COLON = f"a value with ': ' in it wants quotes; {_ALIGN}"
_FRONT = "a value that starts with one of {}[],&*#?|-<>=!%@` wants quotes"
_INSIDE = "between brackets and braces, a value with one of [ ] {} , or ': ' in it wants quotes"
_GLOB = 'a glob that starts with * wants quotes: "*-py3.9-*"'
_BACKSLASH = "inside single quotes a \\ is only a \\"
_UNCLOSED = "close it where the value ends"

# Part of PyYAML's context, part of its problem, what to say instead, what to do. The first that fits counts.
_WORDS = (
    ("", "cannot start any token", "this character cannot start a value", _FRONT),
    ("alias", "", "a '*' in front makes an alias of a value", _GLOB),
    ("anchor", "", "a '&' in front makes an anchor of a value", _FRONT),
    ("quoted scalar", "end of stream", "this quote is never closed", _UNCLOSED),
    ("quoted scalar", "document separator", "this quote is never closed", _UNCLOSED),
    ("double-quoted", "", "an escape that YAML does not know", _BACKSLASH),
    ("flow sequence", "<stream end>", "this '[' is never closed", "close it with ']'"),
    ("flow mapping", "<stream end>", "this '{{' is never closed", "close it with '}'"),
    ("flow sequence", "", "the '[' of line {line} needs a ',' or its ']' before this", _INSIDE),
    ("flow mapping", "", "the '{{' of line {line} needs a ',' or its '}}' before this", _INSIDE),
    ("", "mapping values are not allowed", "a ':' where no key can stand", _COLON),
    ("", "expected <block end>", "this line is indented unlike the lines it belongs to", _ALIGN),
    ("", "sequence entries are not allowed", "a list cannot start here", "start it on the next line"),
    ("simple key", "could not find expected ':'", "a key without its ':'", _COLON),
)  # fmt: skip


def explain(failure: Exception | None, text: str, problems: Problems) -> None:
    """Notes why a file is no YAML, at the place where one would look for it."""
    if not isinstance(failure, yaml.MarkedYAMLError):
        # PyYAML in Python lets these through to chr(), which knows no place.
        for number, line in enumerate(text.splitlines(), 1):
            for found in re.finditer(r"\\U(?!000|0010)[0-9A-Fa-f]{8}", line):
                span = problems.span(number, found.start() + 1, len(found[0]))
                problems.add("this escape names no character", span, _BACKSLASH)
        if not problems.noted:
            problems.add(f"the file is not YAML: {failure}", problems.span(1, 1))
        return
    mark, context = failure.problem_mark, failure.context or ""
    problem = failure.problem or "it cannot be read"
    if failure.context_mark is not None and (mark is None or mark.index >= len(text.rstrip())):
        mark = failure.context_mark
    span = problems.span(mark.line + 1, mark.column + 1) if mark is not None else problems.span(1, 1)
    opened = failure.context_mark.line + 1 if failure.context_mark is not None else span.line
    for in_context, in_problem, message, hint in _WORDS:
        if in_context in context and in_problem in problem:
            problems.add(message.format(line=opened), span, hint)
            return
    problems.add(f"the file is not YAML: {problem}{f' {context}' if context else ''}", span)
