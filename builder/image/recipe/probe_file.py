"""Puts the probe's modules together into the one file that goes into images: the same bytes every time.

As SQLite's amalgamation does it: the modules in the order of their imports, relative imports taken out,
each under a header that names it. The rules that make this possible (``from .module import name`` or ``from
..folder.module import name`` only, ``from ....core.module`` for what rtbuild shares with it, every module's
and every top-level name unique across the folders) are checked by
``tests/unit/verify/cudnn_verify/test_probe_bundle.py``.
"""

import ast
import contextlib
import functools
import hashlib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from builder.core import resources
from builder.core.files import write_whole

_HEAD = '''\
#!/usr/bin/env python3
# cudnn-verify: says whether cuDNN works here and, if not, which one cause is to blame.
#
#     python3 cudnn_verify.py            a page for people; --json for machines; --help for the rest
#     %load_ext cudnn_verify             in a notebook, then %cudnn_verify
#
# One file, nothing to install, Python 3.6 or later. Put together from builder/verify/cudnn_verify/ of
# rtbuild by builder/image/recipe/probe_file.py; do not edit this form of it. License: Apache-2.0.
"""Says whether cuDNN works here and, if not, which one cause is to blame."""
'''
DATA = frozenset({".ini", ".json", ".txt"})
"""Endings of the probe's data files."""
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


@dataclass(frozen=True, kw_only=True)
class _Module:
    name: str
    docstring: str
    body: str
    needs: frozenset[str]
    """Modules of the probe that this one imports from."""
    imports: tuple[str, ...]
    """Import statements of the standard library, one each."""


@functools.cache
def bundle(folder: Path | None = None) -> bytes:
    """The probe as one file; put together once in a process."""
    folder = resources.probe() if folder is None else folder
    paths = sources(folder)
    modules = {path.stem: _read(path.stem, _with_data(path, folder)) for path in paths}
    order = list(_in_order(modules))
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
    """The probe's modules, of all its folders, and those of rtbuild that it shares: ``from ....core.elf
    import``.
    """
    own = sorted(path for path in folder.rglob("*.py") if path.name != "__init__.py")
    texts = [path.read_text(encoding="utf-8") for path in own]
    shared = sorted(
        {name for text in texts for name in re.findall(r"(?m)^from \.{3,4}core\.(\w+) import", text)}
    )
    return own + [path for name in shared if (path := folder.parents[1] / "core" / f"{name}.py").is_file()]


def kept_bundle(cache: Path) -> bytes:
    """:func:`bundle`, put together once for the same sources: that takes a third of a second each time.

    Kept below ``cache/probe`` with its own hash, so that half a file is not taken for the whole.
    """
    data = sorted(p for p in resources.probe().rglob("*.*") if p.suffix in DATA)
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


def _with_data(path: Path, folder: Path) -> str:
    """A module's source, with ``NAME = beside("FILE")`` at its top level turned into the text of that file.

    Paths of files are below the probe's ``folder``.
    """
    source = path.read_text(encoding="utf-8")

    def text_of(found: re.Match[str]) -> str:
        text = (folder / found["file"]).read_text(encoding="utf-8")
        return f'{found["name"]} = r"""{text}"""'

    return re.sub(r'(?m)^(?P<name>[A-Z]+) = beside\("(?P<file>[\w./]+)"\)$', text_of, source)


def _read(name: str, source: str) -> _Module:
    tree = ast.parse(source, filename=f"{name}.py", feature_version=(3, 6))
    needs: set[str] = set()
    imports: list[str] = []
    docstring = ast.get_docstring(tree) or ""
    dropped: list[ast.stmt] = tree.body[:1] if docstring else []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level:
            needs.add((node.module or "").rpartition(".")[2])
        elif isinstance(node, ast.ImportFrom):
            imports += [f"from {node.module} import {alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            imports += [f"import {alias.name}" for alias in node.names]
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
    )


def _in_order(modules: Mapping[str, _Module]) -> Iterator[str]:
    """Names so that each comes after those it needs; among free ones by name, ``__main__`` last."""
    done: set[str] = set()
    left = sorted(modules, key=lambda name: (name == "__main__", name))
    while left:
        free = next((name for name in left if modules[name].needs <= done), None)
        if free is None:
            raise ValueError(f"a circle of imports, or a module that is not there, among {left}")
        yield free
        done.add(free)
        left.remove(free)


def _section(module: _Module) -> str:
    lines = ["", _RULE, f"# {module.name}", "#"]
    lines += [f"# {line}".rstrip() for line in module.docstring.splitlines()]
    return "\n".join([*lines, _RULE, "", module.body, ""])


if __name__ == "__main__":
    sys.stdout.buffer.write(bundle())
