"""The two packages of a traceback of which one asks the other, or Python, for what it lacks."""

import functools
import re
from collections import namedtuple
from itertools import islice

from .distributions import (
    PLAIN_CLASSES,
    distribution_named,
    is_known_module,
    moved_with,
    release_told,
)
from .tables import read_patterns
from .versions import numbers

# asker, asked: distributions; asker is None where no line tells which one asks, and "" for the program.
# name: what is not there; file: the asker's, as the text has it; versions: {distribution: release or None};
# python: the release of Python that took the name away, or brought it; near: the name that is there instead
Apart = namedtuple("Apart", "kind asker asked name file versions python near")
_LACKS = re.compile(
    r"cannot\s+import\s+name\s+['\"`]?(?P<name>\w+)['\"`]?(?:\s+from\s+(?P<circular>partially\s+initialized\s+"
    r"module\s+)?['\"`]?(?P<of>\w[\w.]*\w|\w)['\"`]?(?:\s+\((?P<path>[^()\n]{1,300})\))?)?|"
    r"module\s+['\"`]?(?P<module>[A-Za-z_][\w.]*)['\"`]?\s+has\s+no\s+attribute\s+['\"`]?(?P<attribute>\w+)|"
    r"underlying\s+op\s+of\s+'(?P<op>[\w.]+)'\s+has\s+no\s+overload\s+name\s+'(?P<overload>\w+)|"
    r"'_OpNamespace'\s+'(?P<space>aten|prims|quantized)'\s+object\s+has\s+no\s+attribute\s+'(?P<operator>\w+)|"
    r"AttributeError:\s+(?P<dotted>[a-z]\w*(?:\.\w+)+)(?=\s*(?:$|\())|"
    r"(?<![\w.])(?:type\s+object\s+)?['\"`]?(?P<class>[A-Za-z_][\w.]*)['\"`]?\s+(?:object\s+)?has\s+no\s+attribute\s+"
    r"['\"`]?(?P<member>\w+)|"
    r"No\s+module\s+named\s+['\"`]?(?P<absent>[A-Za-z_]\w*(?:\.\w+)*)|"
    r"(?<![\w.])(?P<call>[A-Za-z_][\w.]*)\(\)\s+(?:got\s+an\s+unexpected\s+keyword\s+argument\s+['\"`](?P<argument>\w+)|"
    r"missing\s+\d+\s+required\s+(?:positional|keyword-only)\s+arguments?:\s+['\"`](?P<missing>\w+)|"
    r"takes\s+(?:from\s+)?\d+(?:\s+to\s+\d+)?\s+positional\s+arguments?\s+but\s+\d+\s+(?:was|were)\s+given)|"
    r"(?:(?<![\w+./\\~@-])(?P<library>[\w+./\\~@-]+?(?:\.|\u2026)(?:so|pyd|dylib)[\w.]*)\W{1,4})?undefined\s+symbol\W{1,6}"
    r"(?P<symbol>[A-Za-z_][\w:]+)|"
    r"(?<![\w.])(?P<sized>[a-z_]\w*(?:\.\w+)*)\.(?P<struct>\w+)\s+(?:size\s+changed|has\s+the\s+wrong\s+size),|"
    r"(?<![\w.])(?P<exporter>[a-z]\w*(?:\.\w+)*)\s+does\s+not\s+export\s+expected\s+C\s+(?:function|variable)\s+(?P<export>\w+)|"
    r"unsupported\s+operand\s+type\(s\)\s+for\s+\|:\s+(?P<union>'(?:type|_GenericAlias|NoneType|ABCMeta)')|"
    r"'(?P<generic>type|ABCMeta|builtin_function_or_method|_queue\.\w+)'\s+object\s+is\s+not\s+subscriptable|"
    r"type\s+'(?P<subscripted>[\w.]+)'\s+is\s+not\s+subscriptable|(?P<syntax>SyntaxError:\s+invalid\s+syntax)",
    re.MULTILINE,
)
"""What one package asks of another, or of Python, and does not find."""
_LACK_WORDS = (
    "cannot import",
    "no attribute",
    "no overload name",
    "o module named",
    "positional argument",
    "keyword argument",
) + (
    "symbol",
    "for |:",
    "subscriptable",
    "SyntaxError",
    "AttributeError",
    "required keyword-only",
    " size changed",
    "wrong size,",
    "not export expected",
)
_MOST_LACKS, _MOST_FRAMES = 60, 3000
_FRAME_FILE = re.compile(
    r"\.p(?:y|yx|xi|xd)(?:\", line \d+(?:, in (?P<in>[^\s(]+))?|:\d+(?:, in (?P<at>[^\s(]+)|"
    r": in (?P<of>\S+))?|"
    r"\(\d+\): (?P<by>\S+)|(?:\]\(\S{0,120}?\))? in (?P<here>[^\s(]+)|\"?(?=\s|$))",
    re.MULTILINE,
)
_LEFT_OUT = re.compile(r"(?m)^[ \t]*(?:\.{3}|\u2026|\[\.{3}\]|\[\u2026\]|<snip>)[ \t]*$")
"""What stands for frames that were cut out of a traceback."""
_BEFORE_PATH = re.compile(r"[\s\"'`(\[<>|,;=*]")
_CHAIN = re.compile(
    r"Traceback \(most recent|During handling of the above|was the direct cause of the following|"
    r"Traceback \(innermost|^-{20,}$",
    re.MULTILINE,
)
_CAUSE_OF_NEXT = "was the direct cause of the following"
_INSTALLED = re.compile(r"(?:site|dist)-packages/(?P<folder>[^/]+)(?:/(?P<egg>[^/]+))?")
_PYTHONS_OWN = re.compile(r"/[Ll]ib(?:64)?/python3?[\d.]+t?/|/Python3?[\d.]*/[Ll]ib/|^<frozen|^frozen ")
_CHECKOUT = re.compile(
    r"custom_nodes/([^/]+)/|/([A-Za-z]\w+)/(?:src/|python/)?\2/|/python/([A-Za-z]\w+)/srt/"
)
_NAMED_FILE = re.compile(r"(?<![\w/.-])([a-z]\w+)/[\w/]{1,120}\.py\b")
"""A file of a package that somebody names by its path within it."""
_SOURCE_FOLDER = re.compile(r"/(?:src|python)/([A-Za-z]\w+)/")
_CUT_PATH = re.compile(r"(?:/?\.{3}/|\u2026/|python/)?([A-Za-z_]\w*)/([A-Za-z_]\w*)?")
_COMPILED_PART = re.compile(r"_C\w*$|_?ext$|\w*_(?:cuda|C|ext|ops|kernels?|cpp)$|_\w*lib$|_ops$|_kernels?$")
_TORCH_SYMBOL = re.compile(r"_Z\w*?(?:2at|3c10|5torch)\d?|(?:aoti_)?torch_|THP[A-Z]|c10_|(?:c10|at|torch)::")
_IMPORTS = re.compile(
    r"^[^\n]{0,40}?(?:----?> ?\d+ +|>>> |\bpython[\d.]* -c [\"'])?\b(?:import|from) +(\w+)", re.M
)
_HANDED = re.compile(
    r"(?:Failed to import(?: module)?|Could not import(?: module)?|[Cc]annot import(?: module)?|"
    r"[Ee]rror (?:while )?import(?:ing)?|while importing)\s+['\"`]?([A-Za-z_]\w*)"
)
_CYTHON_START = re.compile(r"\.pyx\", line \d+, in init (\w+\.[\w.]+)")
_SYNTAX_OF = (
    (r"^\s*match [^\n=]+:\s*$|^\s*with \($", "3.10"),
    (r"^\s*except\*", "3.11"),
    (r"^\s*type \w+(?:\[[^\]]*\])? = |^\s*(?:def|class) \w+\[", "3.12"),
    (r"\(\w+ := |\bif \w+ := |\bwhile \w+ := ", "3.8"),
    (r"^\s*def \w+\([^)\n]*, /[,)]", "3.8"),
)
"""(what a line of code has, the first Python with it): https://docs.python.org/3/whatsnew/"""


def _python_words(name):
    return read_patterns()["python-own"][name]


@functools.lru_cache(maxsize=1)
def _modules_of_python():
    gone = [name for row in read_patterns()["python-gone"].values() for name in row.split("|")]
    return set(_python_words("modules").split("|")) | {name for name in gone if "." not in name}


def _python_with(names, section):
    """The release of Python that took one of these names away, or brought it; None if none is known."""
    for release, row in read_patterns()[section].items():
        if set(names) & set(row.split("|")):
            return release
    return None


def package_of_path(path):
    """(the package that a file is of, its release where the path has it): None for Python's own, "" for a
    file of no package that the path tells.
    """
    path = path.replace("\\", "/")
    found = _INSTALLED.search(path)
    if found:
        folder = found.group("folder")
        egg = re.match(r"([\w.]+?)-(\d[\w.+]*?)-py3?[\d.]*\S*\.egg$", folder)
        if egg:
            return distribution_named(egg.group(1)), egg.group(2)
        module = re.split(r"\.(?:py|so|cpython|abi3|cp\d)", folder)[0]
        return distribution_named(".".join(filter(None, (module, found.group("egg"))))), None
    if _PYTHONS_OWN.search(path):
        return None, None
    found = _CHECKOUT.search(path)
    if found:
        return distribution_named(next(filter(None, found.groups()))), None
    found = _SOURCE_FOLDER.search(path)
    if found and is_known_module(found.group(1)):
        return distribution_named(found.group(1)), None
    if re.match(
        r"[a-z]\w*/[^\n]*\.p(?:yx|xi|xd)$", path
    ):  # Cython names its sources from the package's folder on
        return distribution_named(".".join(path.split("/")[:2])), None
    found = _CUT_PATH.match(path)
    module = found and ".".join(filter(None, found.groups()))
    known = found and (is_known_module(found.group(1)) or is_known_module(module))
    return (distribution_named(module) if known else ""), None


def traceback_frames(text):
    """[(place, path, function)] of the lines of tracebacks, in the forms of Python, IPython and pytest."""
    found = []
    for match in islice(_FRAME_FILE.finditer(text), _MOST_FRAMES):
        start = max(match.start() - 300, text.rfind("\n", 0, match.start()) + 1)
        before = text[start : match.start()]
        quoted = before.rfind('File "')
        bare = 0
        for bare_at in _BEFORE_PATH.finditer(before):
            bare = bare_at.end()
        path = before[quoted + 6 :] if quoted >= 0 else before[bare:]
        named = match.group(match.lastgroup) if match.lastgroup else None
        of_module = _CYTHON_START.match(text, match.start())
        if of_module:  # File "interval.pyx", line 1, in init pandas._libs.interval
            path = of_module.group(1).replace(".", "/")
        plain = named is None and not match.group(0)[3:].strip('xid"')
        if ("/" in path or "\\" in path or quoted >= 0) and not (plain and "-packages" not in path):
            found.append((match.start(), path + match.group(0)[:4].rstrip('"],:( \n'), named or ""))
    return found


def _who_asks(text, frames, start, place, asked, hands):
    """(package, file) of the last frame before a message that hands nothing on: the package is "" for the
    program itself, and None if no line tells.
    """
    above = [frame for frame in frames if start <= frame[0] < place]
    line = text.rfind("\n", 0, place) + 1
    if above and _LEFT_OUT.search(text, above[-1][0], line):
        return None, None
    if not above:  # written below the message, or innermost first
        end = text.find("\n\n", place)
        above = [f for f in frames if place < f[0] < (end if end >= 0 else place + 600)][:1]
    program = loader = None
    for _, path, function in reversed(above):
        package = package_of_path(path)[0]
        if package is None or hands.match(function):
            loader = loader or (function == "_get_module" and (package, path))  # of modules of its own
            continue
        if not package and asked and "/%s/" % asked.replace("-", "_") in path.replace("\\", "/"):
            return asked, path  # its own source, beside the program
        if package or "site-packages" in path:
            return package, path
        program = program if program is not None else path
        if function:
            return "", path
    if program is not None:
        return "", program
    if loader:
        return loader
    near = [row.group(1) for row in _NAMED_FILE.finditer(text, max(0, place - 300), place + 600)]
    near = [distribution_named(name) for name in near if is_known_module(name)]
    for package in near:
        if package != asked:
            return package, None
    told = [found for found in _HANDED.finditer(text[:place]) if place - found.end() < 600]
    names = [found.group(1) for found in told]
    names += [found.group(1) for found in _IMPORTS.finditer(text[start:place])]
    modules = _modules_of_python()
    for name in names:
        if name not in modules and distribution_named(name) != asked and is_known_module(name):
            return distribution_named(name), None
    return None, None


def _raised_by(frames, start, place):
    """The package whose own ``__getattr__`` raises the message: that of the class; None of another one."""
    last = next((frame for frame in reversed(frames) if start <= frame[0] < place), None)
    package = package_of_path(last[1])[0] if last and last[2] in ("__getattr__", "__getattribute__") else None
    return package.replace("-", "_") if package else None


def _owner_of_class(text, name, place):
    """The package that a text imports a class or a function from, or names it with; None if no line does."""
    last = name.rpartition(".")[2]
    if "." in name and name[0].islower():
        return name.partition(".")[0]
    found = re.search(r"\bfrom ([A-Za-z_]\w*)(?:\.[\w.]+)? import [^\n]{0,200}\b%s\b" % re.escape(last), text)
    dotted = re.compile(r"\b([a-z]\w*)(?:\.\w+){0,6}\.%s\b" % re.escape(last))
    found = found or dotted.search(text, 0, place)
    if not found:  # called by another name than its own: the line of code above
        line = next((row for row in reversed(text[:place].splitlines()[-5:-1]) if row.strip(" ^~")), "")
        found = re.match(r"\s*@?(?:\w+ = |return )?([a-z]\w*)\.\w+\(", line)
        found = found if found and is_known_module(found.group(1)) else None
    if not found:  # a chain of calls below the message
        below = dotted.search(text, place)
        found = below if below and is_known_module(below.group(1)) else None
    owner = found.group(1) if found else None
    return owner if owner not in ("self", "cls", "super", "np", "tf", "nn") else None


_ABSENT_MODULE = re.compile(r"ModuleNotFoundError: No module named '([A-Za-z_]\w*)'")


def named_package(text, place):
    """The package of the last file that somebody names, by its path within the package, before a place."""
    found = [row.group(1) for row in _NAMED_FILE.finditer(text, max(0, place - 300), place)]
    known = [distribution_named(name) for name in found if is_known_module(name)]
    return known[-1] if known else None


def imports_that_fail(text):
    """{module that is not there: the installed package whose file imports it} of a text's tracebacks; without
    those of Python's own, and those of which the package that asks is not known.
    """
    found, modules = {}, _modules_of_python()
    absent = [row for row in islice(_ABSENT_MODULE.finditer(text), _MOST_LACKS) if row[1] not in modules]
    frames = traceback_frames(text) if absent else []
    starts = [0] + [row.end() for row in _CHAIN.finditer(text)] if absent else []
    hands = re.compile("(?:%s)$" % _python_words("hands-on"))
    for row in absent:
        start = max(at for at in starts if at <= row.start())
        asker = _who_asks(text, frames, start, row.start(), None, hands)[0]
        if asker and asker != distribution_named(row[1]) and not moved_with(row[1]):
            found.setdefault(row[1], asker)
    return found


def find_apart(text, python=None):
    """The last message of a text that one package prints where another one, or Python, lacks what it asks
    for, as an :class:`Apart`; None without one. Of an exception that others follow from it is the first.
    """
    if not any(word in text for word in _LACK_WORDS):
        return None
    lacks = list(islice(_LACKS.finditer(text), _MOST_LACKS))
    if not lacks:
        return None
    frames, starts = traceback_frames(text), [0] + [found.end() for found in _CHAIN.finditer(text)]
    hands = re.compile("(?:%s)$" % _python_words("hands-on"))
    order = list(reversed(lacks))
    direct = text.find(_CAUSE_OF_NEXT)
    if direct >= 0:
        order = [found for found in order if found.end() < direct] + order
    for found in order:
        start = max(at for at in starts if at <= found.start())
        apart = _apart_of(text, found, frames, start, hands, python)
        if apart:
            return apart
    return None


def _apart_of(text, found, frames, start, hands, python):
    said, place = found.groupdict(), found.start()
    asked, name, kind, path, of_class = None, None, None, said["path"], False
    modules = _modules_of_python()
    if said["name"]:
        source = re.findall(r"\bfrom +([A-Za-z_][\w.]*) +import +[^\n]{0,200}\b%s\b" % said["name"], text)
        asked, name, kind = said["of"] or (source or [None])[-1], said["name"], "name"
        if said["circular"] or "unknown location" in (path or ""):
            return None
    elif said["module"] or said["dotted"]:
        asked, name, kind = said["module"], said["attribute"], "name"
        if said["dotted"]:
            asked, _, name = said["dotted"].rpartition(".")
    elif said["op"] or said["space"]:
        asked = "torch.ops." + (said["op"] or said["space"])
        name, kind = said["overload"] or said["operator"], "name"
    elif said["absent"]:
        asked, _, name = said["absent"].rpartition(".")
        kind = "module"
        if not asked and said["absent"] in modules:
            asked, name = said["absent"], ""
        elif not asked and moved_with(said["absent"]):
            asked, name, kind = said["absent"], said["absent"], "moved"
        elif asked.partition(".")[0] in _python_words("namespaces").split("|"):
            return None
    elif said["member"] and not PLAIN_CLASSES.match(said["class"]):
        asked, name, kind = _owner_of_class(text, said["class"], place), said["member"], "member"
        asked = asked or _raised_by(frames, start, place)
        of_class = found.group(0).startswith("type object")
    elif said["call"]:
        name = said["argument"] or said["missing"] or said["call"]
        asked, kind = _owner_of_class(text, re.sub(r"\.__\w+__$", "", said["call"]), place), "argument"
        if said["call"] == "dataclass":
            asked = "dataclasses"
    elif said["symbol"]:
        return _symbol_apart(text, said)
    elif said["sized"]:
        asked, name, kind = said["sized"], said["struct"], "size"
    elif said["exporter"]:
        asked, name, kind = said["exporter"], said["export"], "export"
    if said["union"] or said["generic"] or said["subscripted"] or said["syntax"]:
        return _python_too_old(text, said, frames, start, place, hands, python)
    if of_class and not asked:
        asker, file = _who_asks(text, frames, start, place, None, hands)
        told = {asker: release_told(text, asker)} if asker else None
        return told and Apart(kind, asker, None, _told_name(kind, "", name, said), file, told, None, None)
    if not asked:
        return None
    top = asked.partition(".")[0]
    asker, file = _who_asks(text, frames, start, place, distribution_named(top), hands)
    if top in modules:
        whole = ".".join(filter(None, (asked, name)))
        if path and not _PYTHONS_OWN.search(path.replace("\\", "/")):
            return None  # a file of the program's in the place of Python's module
        names = [whole] + (["dataclass." + name] if top == "dataclasses" else [])
        gone, new = _python_with(names, "python-gone"), _python_with(names, "python-new")
        here = numbers(python)[:2]
        if not (gone or new) or here and (numbers(gone) > here if gone else numbers(new) <= here):
            return None
        kind, release = ("python-gone", gone) if gone else ("python-new", new)
        versions = {asker: release_told(text, asker)} if asker else {}
        return Apart(kind, asker, "python", whole, file, versions, release, None)
    owner = package_of_path(path)[0] if path else None
    dist = owner if owner else distribution_named(asked if "." in asked else top)
    if kind in ("member", "argument") and (asker in (None, dist) or not is_known_module(top) and not asker):
        return None
    if kind == "module" and _COMPILED_PART.match(name.rpartition(".")[2]):
        kind = "part"
    elif asker == dist and kind != "moved":
        kind = "itself"
    elif not asker and kind != "size" and not (owner or is_known_module(top)):
        return None
    near = re.match(r"[^\n]{0,200}?Did you mean:? ['\"`]?(\w+)", text[found.end() :])
    near = near.group(1) if near else None
    names = [one for one in (asker, dist) if one]
    versions = {one: release_told(text, one) for one in names}
    return Apart(kind, asker, dist, _told_name(kind, asked, name, said), file, versions, None, near)


def _told_name(kind, asked, name, said):
    if kind in ("module", "part", "size", "export", "moved"):
        return "%s.%s" % (asked, name) if asked != name else name
    if kind == "argument":
        return "%s of %s()" % (name, said["call"]) if name != said["call"] else said["call"] + "()"
    if kind == "member":
        return "%s.%s" % (said["class"].rpartition(".")[2], name)
    return name


def _symbol_apart(text, said):
    """Whose library asks, and whose function it asks for, by how the symbol starts."""
    library, symbol = (said["library"] or "").replace("\\", "/"), said["symbol"]
    asker = package_of_path(library)[0] if "/" in library else ""
    stem = re.sub(r"^(?:lib|_)+|[.].*$|_core\d+$", "", library.rpartition("/")[2])
    if not asker or not is_known_module(asker.replace("-", "_")):
        named = next(
            (distribution_named(name) for name in _shorter_names(stem) if is_known_module(name)), None
        )
        asker = named or asker
    owners = read_patterns()["symbol-owners"].items()
    owner = "torch" if _TORCH_SYMBOL.match(symbol) else None
    owner = owner or next((name for name, start in owners if re.match(start, symbol)), None)
    owner = "python" if not owner and re.match(r"_?Py[A-Z_]", symbol) else owner
    space = re.match(r"_ZN?K?\d+([a-z]\w+?)(?:\d|E|$)", symbol)
    if not owner and space and asker and distribution_named(space.group(1)) == asker:
        owner = asker
    if not owner:
        return None
    versions = {one: release_told(text, one) for one in (asker, owner) if one}
    file = library or None
    if asker == owner:
        return Apart("itself", asker, owner, symbol, file, versions, None, None)
    return Apart("symbol", asker if library else None, owner, symbol, file, versions, None, None)


def _shorter_names(stem):
    """``flash_attn_2_cuda``, ``flash_attn_2``, ``flash_attn``, ``flash``"""
    parts = stem.split("_")
    return ["_".join(parts[:size]) for size in range(len(parts), 0, -1)]


def _python_too_old(text, said, frames, start, place, hands, python):
    """A package whose code is of a later Python than this one."""
    asker, file = _who_asks(text, frames, start, place, None, hands)
    code = [line for line in text[start:place].splitlines()[-6:] if line.strip(" ^~")]
    release, name = "3.10" if said["union"] else "3.9", "X | Y" if said["union"] else "a type in brackets"
    if said["syntax"]:
        rows = [(row[1], line.strip()) for line in code for row in _SYNTAX_OF if re.search(row[0], line)]
        release, name = rows[-1] if rows else (None, None)
    here = numbers(python)[:2]
    if not asker or not release:
        return None
    if here and here >= numbers(release):
        release = None  # a later one than this Python, whichever
        if said["syntax"]:
            return None
    return Apart("python-new", asker, "python", name, file, {asker: release_told(text, asker)}, release, None)


def apart_told(apart, python=None):
    """The sentence on an :class:`Apart`: who asks whom for what, and the releases of both as far as the text
    has them.
    """
    names = {name: " ".join(filter(None, (name, apart.versions.get(name)))) for name in apart.versions}
    file = re.sub(r".*[/\\]", "", apart.file or "")
    asker = names.get(apart.asker) or ("the program (%s)" % file if apart.asker == "" else "what is imported")
    asker += " (%s)" % file if apart.asker and file else ""
    asked = names.get(apart.asked) or apart.asked or "a class"
    if apart.kind == "python-gone":
        told = "%s asks Python for %s, which Python %s took away" % (asker, apart.name, apart.python)
        return told + (", and this is Python %s" % python if python else "")
    if apart.kind == "python-new":
        told = (
            "%s has %s" % (asker, apart.name) if " " in apart.name else "%s asks for %s" % (asker, apart.name)
        )
        told += ", which %s" % (
            "Python has from %s on" % apart.python if apart.python else "a later Python knows"
        )
        return told + (", and this is Python %s" % python if python else "")
    if apart.kind == "itself":
        return "%s asks for %s of its own, which is not there: its files are not of one release" % (
            asker,
            apart.name,
        )
    if apart.kind == "part":
        return "%s is here without its compiled part %s" % (asked, apart.name)
    if apart.kind == "moved":
        return "%s asks for %s, which later releases of %s do not bring" % (asker, apart.name, asked)
    if apart.kind == "symbol":
        return "%s asks %s for the function %s, which the one that is loaded does not have" % (
            asker,
            asked,
            apart.name[:60],
        )
    if apart.kind in ("size", "export"):
        here = "the %s that is here" % asked if names.get(apart.asked) else "the one here"
        return "%s was compiled for another release of %s than %s (%s)" % (
            asker,
            apart.asked or asked,
            here,
            apart.name,
        )
    if apart.kind == "argument":
        return "%s calls %s otherwise than the %s that is here takes it" % (asker, apart.name, asked)
    near = " (it has %s)" % apart.near if apart.near else ""
    return "%s asks %s for %s, and the %s that is here does not have it%s" % (
        asker,
        asked,
        apart.name,
        apart.asked or "one",
        near,
    )
