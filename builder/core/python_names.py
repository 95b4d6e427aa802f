"""Modules and names of the standard library that some releases of Python 3 lack.

From the pages "What's New in Python 3.x", sections Removed and New Modules, and the notes "Added in version"
of https://docs.python.org/3/library/ (read 2026-11-28). Names that no release on record lacks stand nowhere.
"""

import itertools
import sys
from collections.abc import Iterator, Mapping

_REMOVED: Mapping[int, tuple[str, ...]] = {
    8: ("macpath",),
    9: ("dummy_threading", "_dummy_thread"),
    10: ("formatter", "parser", "symbol"),
    11: ("binhex",),
    12: ("asynchat", "asyncore", "distutils", "imp", "smtpd"),
    13: (
        *(
            "aifc",
            "audioop",
            "cgi",
            "cgitb",
            "chunk",
            "crypt",
            "imghdr",
            "lib2to3",
            "mailcap",
            "nis",
        ),
        *("nntplib", "ossaudiodev", "pipes", "sndhdr", "spwd", "sunau", "telnetlib", "uu", "xdrlib"),
    ),
}
"""Modules, by the first minor release without them."""
_ADDED: Mapping[int, tuple[str, ...]] = {
    7: ("contextvars", "dataclasses", "importlib.resources"),
    8: ("importlib.metadata",),
    9: ("graphlib", "zoneinfo"),
    11: ("tomllib", "wsgiref.types"),
    14: ("annotationlib", "compression", "concurrent.interpreters", "string.templatelib"),
}
_NAMES_REMOVED: Mapping[int, Mapping[str, tuple[str, ...]]] = {
    9: {
        "base64": ("encodestring", "decodestring"),
        "fractions": ("gcd",),
        "plistlib": ("readPlist", "writePlist", "readPlistFromBytes", "writePlistToBytes", "Data"),
    },
    10: {
        "collections": (
            *("Awaitable", "ByteString", "Callable", "Collection", "Container", "Coroutine", "Generator"),
            *("Hashable", "ItemsView", "Iterable", "Iterator", "KeysView", "Mapping", "MappingView"),
            *("MutableMapping", "MutableSequence", "MutableSet", "Reversible", "Sequence", "Set", "Sized"),
            *("ValuesView",),
        ),
    },
    11: {
        "asyncio": ("coroutine",),
        "gettext": ("lgettext", "ldgettext", "lngettext", "ldngettext", "bind_textdomain_codeset"),
        "inspect": ("formatargspec", "getargspec"),
    },
    12: {
        "configparser": ("SafeConfigParser",),
        "importlib": ("find_loader",),
        "importlib.abc": ("Finder",),
        "locale": ("format",),
        "pkgutil": ("ImpImporter", "ImpLoader"),
        "sqlite3": ("OptimizedUnicode", "enable_shared_cache"),
        "ssl": ("RAND_pseudo_bytes", "match_hostname", "wrap_socket"),
    },
    13: {
        "locale": ("resetlocale",),
        "re": ("TEMPLATE", "template"),
        "typing": ("io",),
        "unittest": ("findTestCases", "getTestCaseNames", "makeSuite"),
    },
    14: {
        "ast": ("Bytes", "Ellipsis", "NameConstant", "Num", "Str"),
        "asyncio": ("AbstractChildWatcher", "SafeChildWatcher", "get_child_watcher", "set_child_watcher"),
        "pkgutil": ("find_loader", "get_loader"),
        "urllib.request": ("FancyURLopener", "URLopener"),
    },
}
_NAMES_ADDED: Mapping[int, Mapping[str, tuple[str, ...]]] = {
    8: {
        "functools": ("cached_property", "singledispatchmethod"),
        "typing": (
            "Final",
            "Literal",
            "Protocol",
            "SupportsIndex",
            "TypedDict",
            "final",
            "runtime_checkable",
        ),
    },
    9: {"asyncio": ("to_thread",), "functools": ("cache",), "typing": ("Annotated",)},
    10: {
        "dataclasses": ("KW_ONLY",),
        "inspect": ("get_annotations",),
        "itertools": ("pairwise",),
        "types": ("EllipsisType", "NoneType", "UnionType"),
        "typing": ("Concatenate", "ParamSpec", "ParamSpecArgs", "ParamSpecKwargs", "TypeAlias", "TypeGuard"),
    },
    11: {
        "asyncio": ("Runner", "TaskGroup", "timeout"),
        "datetime": ("UTC",),
        "enum": ("EnumType", "ReprEnum", "StrEnum", "member", "nonmember"),
        "typing": (
            *("LiteralString", "Never", "NotRequired", "Required", "Self", "TypeVarTuple", "Unpack"),
            *("assert_never", "assert_type", "dataclass_transform", "reveal_type"),
        ),
    },
    12: {
        "collections.abc": ("Buffer",),
        "itertools": ("batched",),
        "typing": ("TypeAliasType", "override"),
    },
    13: {"typing": ("NoDefault", "ReadOnly", "TypeIs"), "warnings": ("deprecated",)},
}

OF_PYTHON = sys.stdlib_module_names | {
    name.partition(".")[0] for table in (_REMOVED, _ADDED) for names in table.values() for name in names
}
"""Modules of the standard library, which come before a wheel's, of some Python or other."""
_GONE = {name: minor for minor, names in _REMOVED.items() for name in names}
_CAME = {name: minor for minor, names in _ADDED.items() for name in names}
_NAME_GONE = {
    (module, name): minor
    for minor, modules in _NAMES_REMOVED.items()
    for module, names in modules.items()
    for name in names
}
_NAME_CAME = {
    (module, name): minor
    for minor, modules in _NAMES_ADDED.items()
    for module, names in modules.items()
    for name in names
}
VARIES = frozenset({*_GONE, *_CAME, *(module for module, _ in (*_NAME_GONE, *_NAME_CAME))})
"""Modules that some release lacks, or names of which one does."""


def lacks(module: str, python: int) -> str | None:
    """The part of a module's name that Python 3.``python`` does not have, as far as is known."""
    lacking = (part for part in _parts(module) if not _CAME.get(part, 0) <= python < _GONE.get(part, 1000))
    return next(lacking, None)


def lacks_name(module: str, name: str, python: int) -> bool:
    """Whether a module of Python 3.``python`` is without a name that another release has there."""
    key = module, name
    return not _NAME_CAME.get(key, 0) <= python < _NAME_GONE.get(key, 1000)


def varies(module: str, name: str | None) -> bool:
    """Whether it is of use to know that a module, or a name of it, is taken."""
    if name is not None and ((module, name) in _NAME_GONE or (module, name) in _NAME_CAME):
        return True
    return any(part in _GONE or part in _CAME for part in _parts(f"{module}.{name}" if name else module))


def _parts(module: str) -> Iterator[str]:
    """A module's name and those of the packages that it lies in, the outermost first."""
    return itertools.accumulate(module.split("."), "{}.{}".format)
