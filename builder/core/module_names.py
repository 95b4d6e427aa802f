"""Reads the source of a Python module, without running it, into what :class:`.ModuleNames` holds."""

import ast
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from builder.core import python_names
from builder.core.decided_tests import Target
from builder.core.lazy_names import names_given, names_gone, names_made, of_module, own_names
from builder.core.module_additions import LARGEST, additions_of, old_finders
from builder.core.module_ends import counts_attributes, files_opened, has_no_hash, mentioned, newest_syntax
from builder.core.module_runs import kept_source
from builder.core.module_statements import StatementWalk
from builder.core.module_syntax import last_name, nodes_of, texts_of
from builder.core.module_values import (
    ALWAYS,
    BY_OLD_PROTOC,
    UNREAD,
    Effects,
    Ends,
    ModuleNames,
    Signature,
    before,
    since,
)
from builder.core.python_names import OF_PYTHON

_MOST_NAMES = 20_000
_SLASH = re.compile(r"/\s*[,)]"), re.compile(r"[(,]\s*/\s*[,)]")
"""What begins with the character that is rare is found ten times as fast."""
_NEW_SYNTAX = (
    (":=", re.compile(":=")),
    ("match", re.compile(r"^[ \t]*match\b", re.MULTILINE)),
    ("except", re.compile(r"except[ \t]*\*")),
    ("type", re.compile(r"^[ \t]*type[ \t]+\w", re.MULTILINE)),
    ("[", re.compile(r"^[ \t]*(?:def|class)[ \t]+\w+\[", re.MULTILINE)),
)
"""In a source that may have a statement of Python 3.8 or newer, and what such a source has at least."""
_ADDS_FOLDER = re.compile(
    r"^__path__\.append\(os\.path\.join\(os\.path\.dirname\(__file__\), \"(\w+)\"\)\)", re.MULTILINE
)
_OPENS = re.compile(r"\b(?:CDLL|PyDLL|LoadLibrary|dlopen|_?find_library)\b")
_RAISES = re.compile(r"\braise\s+(?:\w+\.)*(?:ImportError|ModuleNotFoundError)\b")
_GENERATED = re.compile(
    r"^\w+\.ValidateProtobufRuntimeVersion\(\s*\w+\.Domain\.PUBLIC,\s*(\d+),\s*(\d+),\s*(\d+),", re.MULTILINE
)
_OLD_DESCRIPTOR = re.compile(r"^_\w+ = _descriptor\.(?:Enum|Field)?Descriptor\($", re.MULTILINE)


def names_of(content: bytes, module: str, *, package: bool) -> ModuleNames:
    """The names in a module's source; :data:`UNREAD` if it is not read in bounds."""
    if len(content) > LARGEST:
        return UNREAD
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of others' escapes, comparisons and regular expressions
            return _read(
                ast.parse(content), content, module, module if package else module.rpartition(".")[0]
            )
    except SyntaxError as problem:
        return _not_parsed(problem)
    except (ValueError, LookupError, RecursionError, MemoryError):
        return UNREAD


def is_of_several(content: bytes) -> bool:
    """Whether the source of a package says no more than that other folders have parts of it, too: each
    distribution of a namespace may bring one of its own (``pkgutil.extend_path``; PEP 420)."""
    if re.search(rb"extend_path|declare_namespace", content):
        return True
    try:
        body = ast.parse(content).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    return all(
        (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        or (isinstance(one, ast.Assign) and isinstance(one.value, ast.Constant))
        for one in body
    )


def _not_parsed(problem: SyntaxError) -> ModuleNames:
    """A source that this Python does not parse: an older one does not either, newer ones may."""
    own = sys.version_info[1]
    if problem.msg.startswith("Missing parentheses in call to"):
        text = f"is written in Python 2: {problem.msg.partition('.')[0]}"
        ends = Ends(problem.lineno or 1, "python", (text,), "SyntaxError")
        return replace(UNREAD, executed=Effects(ends=(ends,)))
    if isinstance(problem, IndentationError) and "too many levels" in problem.msg:
        return UNREAD
    text = f"is written in no Python that 3.{own} reads: {problem.msg}"
    ends = Ends(problem.lineno or 1, "python", (text,), "SyntaxError", before(own + 1) & since(7))
    return replace(UNREAD, executed=Effects(ends=(ends,)))


def _read(tree: ast.Module, content: bytes, module: str, package: str) -> ModuleNames:
    """``package``: the one that relative imports begin at."""
    text = content.decode("utf-8", "replace")  # to look for names in it: the parser saw to the encoding
    walk = StatementWalk(module, package, text)
    bound = walk.bound
    _take_in_text(walk, tree, text)
    given = names_given(tree, text, module) if "__getattr__" in text else None
    walk.makers = given.makers if given is not None else set()
    opens = any(word in text for word in ("DLL", "LoadLibrary", "dlopen", "find_library"))
    opens = opens and _OPENS.search(text) is not None
    walk.opens = mentioned(tree) if opens else set()
    if (came := newest_syntax(tree) if _may_be_new(text) else 0) > 7:
        walk.end(1, "python", (f"is written in Python 3.{came}",), before(came), "SyntaxError")
    walk.block(tree.body, ALWAYS)
    gone, tables, deferred = set[str](), set[str](), dict[str, tuple[str, str | None]]()
    if "__getattr__" in bound.names:
        gone, tables = names_gone(tree, text)
        walk.anything |= given is None
        deferred |= {
            name: ("", None) for name in (given.names if given is not None else ()) if name not in bound.names
        }
        if given is not None:
            bound.add(given.names)
            deferred |= {name: given.taken[name] for name in deferred.keys() & given.taken.keys()}
    if walk.lazy:
        texts = (one.value for one in nodes_of(tree) if isinstance(one, ast.Constant))
        bound.add(text for text in texts if isinstance(text, str) and text.isidentifier())
    if len(bound.names) > _MOST_NAMES:
        return UNREAD
    known: dict[str, Target] = {}
    for name, targets in bound.targets.items():
        only = next(iter(targets))
        if len(targets) != 1 or only is None or name in bound.globals:
            continue
        if only[0].partition(".")[0] not in OF_PYTHON or only[0] in python_names.VARIES:
            known[name] = only
    if given is not None and not walk.anything:
        known |= {name: (of, None) for name, of in given.modules.items() if name not in bound.targets}

    def elsewhere(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """The modules that names were imported from, and their names there."""
        found = (known.get(one, ("", None)) for one in sorted(names))
        return tuple((of, name) for of, name in found if name)

    def classes(has: Callable[[ast.ClassDef], bool]) -> frozenset[str]:
        every = ((name, one) for name, one in walk.defined.items() if name not in bound.again)
        return frozenset(name for name, one in every if isinstance(one, ast.ClassDef) and has(one))

    executed, functions = walk.out.effects(known, walk.defined), walk.bodies(known)
    used = {alias for one in (executed, *functions.values()) for alias in one.aliases()}
    once = {name: one for name, one in walk.defined.items() if name not in bound.again}
    return ModuleNames(
        names=frozenset(bound.names),
        bound={
            name: to for name, to in known.items() if name in used or to[0].partition(".")[0] not in OF_PYTHON
        },
        stars=tuple(dict.fromkeys(walk.stars)),
        hidden=tuple(dict.fromkeys(walk.hidden)),
        public=frozenset(walk.public) if walk.public is not None and walk.public_known else None,
        anything=walk.anything or len(elsewhere(walk.makers)) < len(walk.makers),
        submodules=walk.submodules,
        paths=tuple(f"{module}.{one}" for one in _ADDS_FOLDER.findall(text)) if "__path__" in text else (),
        unfound=since(12) if "find_module" in text and old_finders(tree, module) else 0,
        lazy=walk.lazy,
        gone=frozenset(gone),
        gone_tables=elsewhere(tables),
        tables=_written(tree) | (names_made(tree, text) if "__dict__" in text else {}),
        makers=elsewhere(walk.makers),
        executed=executed,
        functions=functions,
        signatures={name: found for name, one in once.items() if (found := _signature_of(one)) is not None},
        generated=_generated(text),
        hashless=classes(lambda one: has_no_hash(one, bound.dotted)),
        strict=classes(counts_attributes),
        versions={name: version for name, version in bound.versions.items() if name not in bound.again},
        source=kept_source(tree, text, bound.globals, lazy=walk.lazy),
        deferred=deferred,
        on_use=dict(_loaded_on_use(tree.body)) if "LazyLoader" in text else {},
        backends={name: asked for name, one in once.items() if (asked := _backends_of(one))},
        opens=frozenset(walk.opens),
        files=frozenset(files_opened(tree)) if opens else frozenset(),
        only={name: on for name, on in bound.only.items() if on != ALWAYS},
        raises=("ImportError" in text or "NotFoundError" in text) and _RAISES.search(text) is not None,
    )


def _may_be_new(text: str) -> bool:
    if any(word in text and pattern.search(text) is not None for word, pattern in _NEW_SYNTAX):
        return True
    return all(pattern.search(text) is not None for pattern in _SLASH)


def _take_in_text(walk: StatementWalk, tree: ast.Module, text: str) -> None:
    """Take in what the text alone tells, functions aside that :mod:`.lazy_names` knows."""
    lines = text.split("\n")
    for node in of_module(tree.body):
        if isinstance(node, ast.FunctionDef) and node.name in {"__getattr__", "attach", "_attach"}:
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or 0) - node.lineno + 1)
            text = "\n".join(lines)
    lazy = "sys.modules[__name__] = _LazyModule("
    walk.lazy, text = lazy in text, text.replace(lazy, "(")
    walk.submodules |= "meta_path" in text or text.count("__path__") > len(_ADDS_FOLDER.findall(text))
    walk.anything |= "f_globals" in text
    if ("sys.modules" in text or "from sys import" in text) and re.search(r"\bmodules\b", text):
        _take_in_added(walk, tree)
    if any(word in text for word in ("globals", "locals", "vars(")):
        names, anything = own_names(tree)
        walk.bound.add(names)
        walk.anything |= anything


def _take_in_added(walk: StatementWalk, tree: ast.Module) -> None:
    """Take in the modules that the source puts among the interpreter's, itself among them."""
    added = additions_of(tree, walk.module, walk.package)
    below = f"{walk.module}."
    for name in added.modules:  # another package's, as openai 0.28 puts pkg_resources there, is none below
        begin, star, _ = (name or "*").partition("*")
        walk.submodules |= begin.startswith(below) or (bool(star) and below.startswith(begin))
    if added.replaced and not walk.lazy:
        walk.anything = walk.submodules = True
    walk.anything |= any(name == walk.module for _, name in added.passed)
    own = {name for target, name in added.names if target.name == walk.module}
    walk.anything |= None in own
    walk.bound.add(name for name in own if name is not None)


def _generated(text: str) -> tuple[int, int, int] | None:
    """The protobuf that made the module."""
    if "_descriptor" not in text:
        return None
    found = _GENERATED.search(text)
    if found is not None:
        return int(found[1]), int(found[2]), int(found[3])
    return BY_OLD_PROTOC if _OLD_DESCRIPTOR.search(text) else None


def _written(tree: ast.Module) -> dict[str, tuple[str, ...]]:
    """``__name__ = {"text": ...}``, the keys."""
    found: dict[str, tuple[str, ...]] = {}
    for one in tree.body:
        name = last_name(one.targets[0]) if isinstance(one, ast.Assign) else None
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Dict) and name and name.startswith("__"):
            keys = [key.value for key in one.value.keys if isinstance(key, ast.Constant)]
            found[name] = tuple(key for key in keys if isinstance(key, str))
    return found


def _loaded_on_use(body: Iterable[ast.stmt]) -> Iterator[tuple[str, str]]:
    """``name = LazyLoader("name", globals(), "module")``, as TensorFlow has it and others copied it:
    https://github.com/tensorflow/tensorflow/blob/v2.16.2/tensorflow/python/util/lazy_loader.py
    """
    for one in body:
        match one:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=called, args=[_, _, ast.Constant(value=str(module)), *_]),
            ) if last_name(called) == "LazyLoader":
                yield name, module
            case _:
                pass


def _backends_of(own: ast.stmt) -> tuple[str, ...]:
    """``backends`` of a decorator."""
    words = (word for one in getattr(own, "decorator_list", ()) for word in getattr(one, "keywords", ()))
    texts = (texts_of(word.value) for word in words if word.arg == "backends")
    return tuple(sorted(set[str]().union(*(found if found is not None else {"?"} for found in texts))))


def _signature_of(own: ast.stmt) -> Signature | None:
    """The arguments of a function, or of a class that its own ``__init__`` makes; None if not known."""
    if isinstance(own, ast.FunctionDef) and not own.decorator_list:
        return _signature(own.args, 0)
    made = _made_by(own) if isinstance(own, ast.ClassDef) and not own.decorator_list else None
    if made is None or not isinstance(own, ast.ClassDef):
        return None
    found = _signature(made.args, 1)
    return found if not own.bases else found._replace(demanded=())  # a base may give some


def _signature(args: ast.arguments, given: int) -> Signature:
    """``given``: how many of the first ones a call has already."""
    names = [one.arg for one in (*args.posonlyargs, *args.args)][given:]
    words = [one.arg for one, default in zip(args.kwonlyargs, args.kw_defaults, strict=True) if not default]
    return Signature(
        names=(*names, *(one.arg for one in args.kwonlyargs)),
        any_keywords=args.kwarg is not None,
        demanded=(*names[: max(len(names) - len(args.defaults), 0)], *words),
    )


def _made_by(own: ast.ClassDef) -> ast.FunctionDef | None:
    """The function that a call of a class calls, if that is certainly its own ``__init__``."""
    methods = [one for one in own.body if isinstance(one, ast.FunctionDef)]
    made = [one for one in methods if one.name == "__init__"]
    if own.keywords or len(made) != 1 or made[0].decorator_list or any(m.name == "__new__" for m in methods):
        return None
    bases = [last_name(one) or "?" for one in own.bases]
    return made[0] if not any(re.search(r"Meta|Enum|\?", base) for base in bases) else None
