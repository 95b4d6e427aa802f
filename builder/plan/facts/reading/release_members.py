"""Members of classes, and keywords of functions, that releases of a package lost or brought, for the probe.

By the syntax trees of the wheels' sources alone. Which release lacks a name is what an error says; the table
says which releases have it, so a name counts as there wherever a source defines it.
"""

import ast
import functools
import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_IDENTIFIER = re.compile(r"[A-Za-z]\w*\Z")
_USE = re.compile(
    r"(?:[Uu]se|[Uu]sing|in favou?r of|replaced (?:by|with)|renamed? (?:to|into|as))"
    r" (?:the )?(?:argument |method |parameter |attribute |new_name=)?"
    r"[`'\"]+(?:[\w.]*\.)?([A-Za-z]\w*)(?:\(\))?[`'\"]"
)
"""What a deprecation says in its own words: the name to use, after the one that goes."""
_TOLD = re.compile(
    r"\bdeprecat\w*\(\s*['\"](?:[\w.]*\.)?(\w+)['\"],[^()]{0,40}?['\"](?:[\w.]*\.)?([A-Za-z]\w*)"
)
"""Pillow's ``deprecate("getsize", 10, "getbbox or getlength")``."""
_QUOTED = re.compile(r"[`'\"]+(?:[\w.]*\.)?([A-Za-z]\w*)(?:\(\))?[`'\"]")
_RENAMES = re.compile("deprecat|renam|alias|legacy|kwarg")
_HAS_FIELDS = re.compile(r"\b(?:dataclass|attrs?$|define$)")
_BROKEN = re.compile(r"['\"]\s*\n\s*[rf]?['\"]|\s+")
_ON_SELF = re.compile(
    r"\bself\.([A-Za-z_]\w*)(?=(?:[ \t]*:[^=\n]+|[ \t]*,[^=\n()]*)?[ \t]*=(?!=))|"
    r"^[ \t]*self\.([A-Za-z_]\w*)[ \t]*:",
    re.MULTILINE,
)
"""Also of several at once, and with a type that goes over lines: ``self.webhooks: Annotated[``."""
_TREES: dict[bytes, "SourceTree"] = {}
_MOST_TREES = 60_000


@dataclass(frozen=True, kw_only=True)
class FunctionTree:
    """What a function takes by name."""

    keywords: frozenset[str]
    takes_any: bool
    instead: Mapping[str, str] = field(default_factory=dict)
    """The new name of a keyword, as the source says it."""


@dataclass(frozen=True, kw_only=True)
class ClassTree:
    """A class as one source writes it."""

    bases: frozenset[str]
    members: frozenset[str]
    methods: Mapping[str, FunctionTree]
    fields: frozenset[str] | None
    """Those of a dataclass, which its constructor takes; None for another class."""
    instead: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class SourceTree:
    """The public classes and functions of one source."""

    classes: Mapping[str, ClassTree]
    functions: Mapping[str, FunctionTree]


NOTHING = SourceTree(classes={}, functions={})


def tree_of(content: bytes) -> SourceTree:
    """The classes and functions of a source; nothing of one that this Python does not understand. Releases
    have most sources in common, so each is read once in a process.
    """
    key = hashlib.sha256(content).digest()
    if key not in _TREES:
        if len(_TREES) >= _MOST_TREES:
            _TREES.clear()
        try:
            lines = content.decode("utf-8", "replace").split("\n")
            _TREES[key] = _source_tree(ast.parse(content), lines)
        except (SyntaxError, ValueError, RecursionError):
            _TREES[key] = NOTHING
    return _TREES[key]


def _source_tree(tree: ast.Module, lines: Sequence[str]) -> SourceTree:
    classes, functions = dict[str, ClassTree](), dict[str, FunctionTree]()
    for node in _statements(tree.body):
        if isinstance(node, ast.ClassDef) and _IDENTIFIER.match(node.name):
            classes[node.name] = _class_tree(node, lines)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _IDENTIFIER.match(node.name):
            functions[node.name] = _signature(node, functions.get(node.name), lines)
    return SourceTree(classes=classes, functions=functions)


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of a body, and of the branches in it, in their order."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, part, ()))
            for handler in getattr(node, "handlers", ()):
                yield from _statements(handler.body)


def _class_tree(node: ast.ClassDef, lines: Sequence[str]) -> ClassTree:
    members, methods, fields = set[str](), dict[str, FunctionTree](), set[str]()
    for child in _statements(node.body):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            members.add(child.name)
            methods[child.name] = _signature(child, methods.get(child.name), lines)
            if child.name == "__init__":
                members |= {one or other for one, other in _ON_SELF.findall(_text(child, lines))}
        elif isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            members.add(child.target.id)
            fields |= {child.target.id} if child.target.id[0] != "_" else set()
        elif isinstance(child, ast.Assign):
            members |= {one.id for one in child.targets if isinstance(one, ast.Name)}
        elif isinstance(child, ast.ClassDef):
            members.add(child.name)
    decorators = "|".join(map(_last_name, node.decorator_list))
    return ClassTree(
        bases=frozenset(filter(None, map(_last_name, node.bases))),
        members=frozenset(name for name in members if not name.startswith("__") and name != "_"),
        methods={name: one for name, one in methods.items() if name == "__init__" or name[0] != "_"},
        fields=frozenset(fields) if _HAS_FIELDS.search(decorators) else None,
        instead=dict(_replacements(_text(node, lines), fields | members)),
    )


def _signature(
    node: ast.FunctionDef | ast.AsyncFunctionDef, other: FunctionTree | None, lines: Sequence[str]
) -> FunctionTree:
    """``other``: an earlier definition of the same name, as of an overload, or in another branch."""
    own = {one.arg for one in (*node.args.args, *node.args.kwonlyargs)} - {"self", "cls"}
    instead, taken = dict[str, str](), set[str]()
    for call in (one for one in node.decorator_list if isinstance(one, ast.Call)):
        if _RENAMES.search(_last_name(call)):  # its wrapper takes the old name, too
            words = [_word(one) for one in (*call.args, *(word.value for word in call.keywords))]
            names = [
                one for one in words if _IDENTIFIER.match(one) and one not in {node.name, "True", "False"}
            ]
            taken |= set(names)
            if len(names) == 2 and names[0] not in own and names[1] in own:
                instead[names[0]] = names[1]
    instead |= dict(_replacements(_text(node, lines), own | taken))
    before = other or FunctionTree(keywords=frozenset(), takes_any=False)
    return FunctionTree(
        keywords=before.keywords | {one for one in own | taken if one[0] != "_"},
        takes_any=before.takes_any or node.args.kwarg is not None,
        instead={**before.instead, **instead},
    )


def _word(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _text(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, lines: Sequence[str]) -> str:
    return "\n".join(lines[node.lineno - 1 : node.end_lineno])


def _replacements(text: str, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(the name that goes, the one to use) of what a source says of its own names."""
    if "eprecat" not in text and "removed" not in text:
        return
    known, whole = set(names), _BROKEN.sub(lambda found: "" if found[0].strip() else " ", text)
    for told in _TOLD.finditer(whole):
        if told[1] in known and told[1] != told[2]:
            yield told[1], told[2]
    for found in _USE.finditer(whole):
        before = _QUOTED.findall(whole, max(0, found.start() - 200), found.start())
        old = next((one for one in reversed(before) if one in known and one != found[1]), None)
        if old is not None:
            yield old, found[1]


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call | ast.Subscript):
        return _last_name(node.func if isinstance(node, ast.Call) else node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


class ReleaseMembers:
    """What the classes and functions of one release have, by their names alone: of several of one name all
    that one of them has. ``trees``: its public sources.
    """

    def __init__(self, trees: Iterable[SourceTree]) -> None:
        self.classes: dict[str, list[ClassTree]] = {}
        self.functions: dict[str, list[FunctionTree]] = {}
        for tree in trees:
            for name, one in tree.classes.items():
                self.classes.setdefault(name, []).append(one)
            for name, signature in tree.functions.items():
                self.functions.setdefault(name, []).append(signature)
        self.lines = {name: self._line(name, ()) for name in self.classes}

    def _line(self, name: str, below: tuple[str, ...]) -> tuple[str, ...]:
        """A class and its bases in the package, the nearest first."""
        bases = [one for tree in self.classes[name] for one in sorted(tree.bases)]
        found = dict.fromkeys([name])
        for base in bases:
            if base in self.classes and base != name and base not in below:
                found |= dict.fromkeys(self._line(base, (*below, name)))
        return tuple(found)

    def outside(self, name: str) -> frozenset[str]:
        """The bases of a class, and of its bases, that other packages have: nobody has read their members."""
        bases = (
            base for one in self.lines.get(name, ()) for tree in self.classes[one] for base in tree.bases
        )
        return frozenset(base for base in bases if base not in self.classes)

    def members(self) -> set[tuple[str, str]]:
        """{(class, member)}, with those of its bases."""
        return {
            (name, member)
            for name, line in self.lines.items()
            for one in line
            for tree in self.classes[one]
            for member in tree.members
        }

    def keywords(self) -> set[tuple[str, str]]:
        """{(``function``, ``Class`` for its constructor or ``Class.method``, keyword)} of what each takes by
        name.
        """
        return {
            (name, keyword)
            for name, found in self._signatures.items()
            for one in found
            for keyword in one.keywords
        }

    def open(self) -> frozenset[str]:
        """The functions that take any keyword, or may."""
        return frozenset(
            name for name, found in self._signatures.items() if any(one.takes_any for one in found)
        )

    def there(self) -> frozenset[str]:
        """The classes, and the functions as :meth:`keywords` names them."""
        return frozenset({*self.classes, *self._signatures})

    def instead(self, owner: str, name: str) -> str:
        """The name to use for another one that goes, as the sources say; empty if they do not."""
        outer = owner.partition(".")[0]
        classes = [tree for one in self.lines.get(outer, ()) for tree in self.classes[one]]
        found = [one.instead for one in self._signatures.get(owner, ())]
        return next((one[name] for one in (*found, *(tree.instead for tree in classes)) if name in one), "")

    def bases(self, name: str) -> tuple[str, ...]:
        return self.lines.get(name, ())[1:]

    @functools.cached_property
    def _signatures(self) -> Mapping[str, list[FunctionTree]]:
        found = dict(self.functions)
        for name, line in self.lines.items():
            trees = [(one, tree) for one in line for tree in self.classes[one]]
            for method in {method for _, tree in trees for method in tree.methods}:
                nearest = next(one for one, tree in trees if method in tree.methods)
                own = [
                    tree.methods[method] for one, tree in trees if one == nearest and method in tree.methods
                ]
                found[name if method == "__init__" else f"{name}.{method}"] = own
            fields = [tree.fields for _, tree in trees if tree.fields is not None]
            if name not in found and fields:
                found[name] = [FunctionTree(keywords=frozenset().union(*fields), takes_any=False)]
        return found


def changes(releases: Sequence[tuple[str, ReleaseMembers]]) -> dict[str, Mapping[str, Any]]:
    """What came and went from one release to the next, by the text of each release, the oldest first.

    ``members`` and ``keywords`` that are ``lost``, by "first release without, last with", or ``brought``, by
    the first release with them: {class or function: names}. ``Trainer`` has the keywords of its constructor,
    ``Trainer.train`` those of a method. A name that a base in the package loses, too, stands with the base
    alone, and what a method of many classes loses alike under ``*.train``. ``classes``: {base: the classes
    below it} of the bases that have such rows.
    """
    every = [one for _, one in releases]
    there, open_ = [one.there() for one in every], [one.open() for one in every]
    found = dict[str, dict[str, dict[str, str]]]()
    bases: dict[str, set[str]] = {}
    for kind, sets in (
        ("members", [one.members() for one in every]),
        ("keywords", [one.keywords() for one in every]),
    ):
        numbers: dict[tuple[str, str], list[int]] = {}
        for number, pairs in enumerate(sets):
            for pair in pairs:
                numbers.setdefault(pair, []).append(number)
        lost, brought = _places(releases, kind, numbers, there, open_)
        for name, places in (("lost", lost), ("brought", brought)):
            kept = {place: _apart(rows, every) for place, rows in places.items()}
            for rows in kept.values():
                for owner in rows:
                    bases.setdefault(owner.partition(".")[0], set())
            found[f"{kind} {name}"] = {place: _texts_of(rows) for place, rows in kept.items() if rows}
    for release in every:
        for name in release.lines:
            for base in release.bases(name):
                if base in bases:
                    bases[base].add(name)
    classes = {base: " ".join(sorted(names)) for base, names in sorted(bases.items()) if names}
    return {**found, "classes": classes}


Rows = dict[str, dict[str, str]]
"""{class or function: {name: the one to use instead}}."""


def _places(
    releases: Sequence[tuple[str, ReleaseMembers]],
    kind: str,
    numbers: Mapping[tuple[str, str], Sequence[int]],
    there: Sequence[frozenset[str]],
    open_: Sequence[frozenset[str]],
) -> tuple[dict[str, Rows], dict[str, Rows]]:
    lost, brought = dict[str, Rows](), dict[str, Rows]()
    last = len(releases) - 1
    for (owner, name), shown in sorted(numbers.items()):

        def lacks(number: int, owner: str = owner) -> bool:
            may_take = kind == "keywords" and owner in open_[number]
            return owner in there[number] and not may_take

        def may_have(number: int, other: int, owner: str = owner) -> bool:
            """By a base out of another package that it does not have in the other release."""
            outer = owner.partition(".")[0]
            here, there = (releases[one][1].outside(outer) for one in (number, other))
            return not here <= there

        ends = [one for one, other in itertools.pairwise(shown) if other > one + 1 and lacks(one + 1)]
        if shown[-1] < last and lacks(shown[-1] + 1):
            ends.append(shown[-1])
        ends = [one for one in ends if not may_have(one + 1, one)]
        if ends:  # of one that comes back the last time that it was lost
            end = ends[-1]
            instead = releases[end][1].instead(owner, name)
            lost.setdefault(f"{releases[end + 1][0]} {releases[end][0]}", {}).setdefault(owner, {})[name] = (
                instead
            )
        start = next((one for one in shown if ends and one > ends[-1]), shown[0])
        if start > 0 and lacks(start - 1) and not may_have(start - 1, start):
            brought.setdefault(releases[start][0], {}).setdefault(owner, {})[name] = ""
    return lost, brought


_OF_MANY = 4


def _apart(rows: Rows, releases: Sequence[ReleaseMembers]) -> Rows:
    """Without what a base has, too; what a method of many classes takes alike is under ``*.forward``."""
    newest = releases[::-1]

    def line(owner: str) -> Iterator[str]:
        outer, dot, method = owner.partition(".")
        release = next((one for one in newest if outer in one.lines), None)
        for base in release.bases(outer) if release is not None else ():
            yield base + dot + method

    kept: Rows = {}
    for owner, names in rows.items():
        above = {name for base in line(owner) for name in rows.get(base, ())}
        if own := {name: instead for name, instead in names.items() if name not in above}:
            kept[owner] = own
    alike: dict[tuple[str, str], list[str]] = {}
    for owner, names in kept.items():
        for name in names:
            alike.setdefault((_method(owner), name), []).append(owner)
    many: Rows = {}
    for (method, name), owners in alike.items():
        if method and len(owners) >= _OF_MANY:
            said = {kept[owner].pop(name) for owner in owners}
            many.setdefault(method, {})[name] = said.pop() if len(said) == 1 else ""
    return {owner: names for owner, names in {**kept, **many}.items() if names}


def _method(owner: str) -> str:
    return f"*.{owner.partition('.')[2]}" if "." in owner else ""


def _texts_of(rows: Rows) -> dict[str, str]:
    return {
        owner: " ".join(name + (instead and ">" + instead) for name, instead in sorted(names.items()))
        for owner, names in sorted(rows.items())
    }
