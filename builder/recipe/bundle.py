"""Puts the probe's modules together into the one file that goes into images: the same bytes every time.

As SQLite's amalgamation does it: the modules in the order of their imports, relative imports taken out,
each under a header that names it. The rules that make this possible (flat package, ``from .module import
name`` only, ``from ..module`` for what rtbuild shares with it, every top-level name unique) are checked here.
"""

import ast
import contextlib
import hashlib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from builder import resources
from builder.files import write_whole

_HEAD = '''\
#!/usr/bin/env python3
# cudnn-verify: says whether cuDNN works here and, if not, which one cause is to blame.
#
#     python3 cudnn_verify.py            a page for people; --json for machines; --help for the rest
#     %load_ext cudnn_verify             in a notebook, then %cudnn_verify
#
# One file, nothing to install, Python 3.6 or later. Put together from builder/probe/ of rtbuild by
# builder/recipe/bundle.py; do not edit this form of it. License: Apache-2.0.
"""Says whether cuDNN works here and, if not, which one cause is to blame."""
'''
_RULE = "# " + "-" * 76
_FIRST = "isolation"
"""The module that comes before the imports of the others: it keeps the user's files out of them."""
_GUARDED = """\
isolate()
try:
%s
except ImportError as _missing:
    sys.path[:] = USER_PATH
    end_at_import(_missing, __name__)
"""


class BundleError(Exception):
    """The probe's sources break a rule of the bundle. A fault of rtbuild, not of its user."""


@dataclass(frozen=True, kw_only=True)
class _Module:
    name: str
    docstring: str
    body: str
    needs: frozenset[str]
    """Modules of the probe that this one imports from."""
    imports: tuple[str, ...]
    """Import statements of the standard library, one each."""
    defines: frozenset[str]


def bundle(folder: Path | None = None) -> bytes:
    """The probe as one file; raises :class:`BundleError` if the sources break a rule."""
    folder = resources.probe() if folder is None else folder
    paths = [path for path in sources(folder) if path.name != "__init__.py"]
    modules = {path.stem: _read(path.stem, _with_data(path)) for path in paths}
    order = list(_in_order(modules))
    _check_names(modules, order)
    order.remove(_FIRST)
    first, *most, last = (_section(modules[name]) for name in (_FIRST, *order))
    imports = sorted(
        {line for name in order for line in modules[name].imports},
        key=lambda line: (line.startswith("from"), line),
    )
    guarded = _GUARDED % "\n".join(f"    {line}" for line in imports)
    # Before the last, which starts the probe: one of the others imports ctypes only if it is there.
    returned = "sys.path[:] = USER_PATH\n"
    text = "\n".join([_HEAD, "\n".join(modules[_FIRST].imports), first, guarded, *most, returned, last])
    compile(text, "cudnn_verify.py", "exec", dont_inherit=True)
    return text.encode()


def sources(folder: Path) -> list[Path]:
    """The probe's modules, and those of rtbuild that it shares: ``from ..elf import``."""
    own = sorted(folder.glob("*.py"))
    texts = [path.read_text(encoding="utf-8") for path in own]
    shared = sorted({name for text in texts for name in re.findall(r"(?m)^from \.\.(\w+) import", text)})
    return own + [path for name in shared if (path := folder.parent / f"{name}.py").is_file()]


def kept_bundle(cache: Path) -> bytes:
    """:func:`bundle`, put together once for the same sources: that takes a third of a second each time.

    Kept below ``cache/probe`` with its own hash, so that half a file is not taken for the whole.
    """
    data = sorted(p for p in resources.probe().iterdir() if p.is_file() and p.suffix != ".py")
    read = [*sources(resources.probe()), *data, Path(__file__)]
    key = hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in read))
    kept = cache / "probe" / key.hexdigest()
    with contextlib.suppress(FileNotFoundError):
        digest, _, text = kept.read_bytes().partition(b"\n")
        if hashlib.sha256(text).hexdigest().encode() == digest:
            return text
    text = bundle()
    with contextlib.suppress(OSError):  # a cache that cannot be written to costs time, and nothing else
        write_whole(kept, hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
    return text


def _with_data(path: Path) -> str:
    """A module's source, with ``NAME = beside("FILE")`` at its top level turned into the file's text."""
    source = path.read_text(encoding="utf-8")

    def text_of(found: re.Match[str]) -> str:
        text = (path.parent / found["file"]).read_text(encoding="utf-8")
        if '"""' in text or text.endswith(("\\", '"')):
            raise BundleError(f"{found['file']}: its text cannot stand in a raw string")
        return f'{found["name"]} = r"""{text}"""'

    return re.sub(r'(?m)^(?P<name>[A-Z]+) = beside\("(?P<file>[\w.]+)"\)$', text_of, source)


def _read(name: str, source: str) -> _Module:
    tree = ast.parse(source, filename=f"{name}.py", feature_version=(3, 6))
    needs: set[str] = set()
    imports: list[str] = []
    docstring = ast.get_docstring(tree) or ""
    dropped: list[ast.stmt] = tree.body[:1] if docstring else []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            if node not in tree.body:
                raise BundleError(f"{name}.py:{node.lineno}: a relative import inside a function")
            needs.add(_relative(f"{name}.py:{node.lineno}", node))
        elif isinstance(node, ast.Import | ast.ImportFrom) and node in tree.body:
            imports += _absolute(f"{name}.py:{node.lineno}", node)
        else:
            continue
        dropped.append(node)
    gone = {line for node in dropped for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    kept = (line for number, line in enumerate(source.splitlines(), 1) if number not in gone)
    return _Module(
        name=name,
        docstring=docstring,
        body="\n".join(kept).strip("\n"),
        needs=frozenset(needs),
        imports=tuple(imports),
        defines=frozenset(_defined(tree)),
    )


def _relative(place: str, node: ast.ImportFrom) -> str:
    if node.level > 2 or not node.module or "." in node.module:
        raise BundleError(f"{place}: the probe is a flat package, use `from .module import name`")
    if any(alias.asname or alias.name == "*" for alias in node.names):
        raise BundleError(f"{place}: no alias and no star, names stay what they are in one file")
    return node.module


def _absolute(place: str, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    origin = node.module or "" if isinstance(node, ast.ImportFrom) else ""
    for alias in node.names:
        root = (origin or alias.name).partition(".")[0]
        if root not in sys.stdlib_module_names:
            raise BundleError(f"{place}: {root} is not in the standard library")
        if alias.asname:
            raise BundleError(f"{place}: no alias, names stay what they are in one file")
        yield f"from {origin} import {alias.name}" if origin else f"import {alias.name}"


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))


def _in_order(modules: Mapping[str, _Module]) -> Iterator[str]:
    """Names so that each comes after those it needs; among free ones by name, ``__main__`` last."""
    done: set[str] = set()
    left = sorted(modules, key=lambda name: (name == "__main__", name))
    while left:
        free = [name for name in left if modules[name].needs <= done]
        if not free:
            unknown = {need for name in left for need in modules[name].needs} - set(modules)
            what = f"unknown modules: {sorted(unknown)}" if unknown else f"a circle of imports among {left}"
            raise BundleError(f"the probe's modules cannot be ordered: {what}")
        yield free[0]
        done.add(free[0])
        left.remove(free[0])


def _check_names(modules: Mapping[str, _Module], order: list[str]) -> None:
    owner: dict[str, str] = {}
    for name in order:
        for line in modules[name].imports:
            owner[line.split()[-1].partition(".")[0]] = "an import"
    for name in order:
        for defined in modules[name].defines:
            if defined in owner:
                raise BundleError(f"{defined} is defined in {name}.py and in {owner[defined]}")
            owner[defined] = f"{name}.py"


def _section(module: _Module) -> str:
    lines = ["", _RULE, f"# {module.name}", "#"]
    lines += [f"# {line}".rstrip() for line in module.docstring.splitlines()]
    return "\n".join([*lines, _RULE, "", module.body, ""])


if __name__ == "__main__":
    sys.stdout.buffer.write(bundle())
