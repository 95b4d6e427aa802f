"""What a project's sources tell of the Python that they are for, and the modules that they import."""

import ast
import contextlib
import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement

from builder.core.documents import parse_json
from builder.core.errors import UsageError
from builder.core.versions import canonical
from builder.plan.facts.tables import load
from builder.plan.resolve.evidence import used_names
from builder.plan.resolve.project_texts import read_text
from builder.plan.resolve.source_files import IMPORT, MOST_SOURCES, OF_MODULES, cells_of, sources_below
from builder.plan.resolve.wishes import NamedRequirement, Wishes


def note_language(folder: Path, found: Wishes) -> None:
    """Take over, as told, the Python by which a project's notebooks were run, and note source of Python 2.

    ``metadata.language_info.version`` of a notebook:
    https://nbformat.readthedocs.io/en/latest/format_description.html
    """
    pythons, old = Counter[str](), list[str]()
    for path in itertools.islice(sources_below(folder, (".py", ".ipynb")), MOST_SOURCES):
        with contextlib.suppress(UsageError):  # no text, or too long: another file tells
            text = read_text(path)
            if path.suffix == ".py":
                if (line := _of_python_2(text)) is not None:
                    old.append(f"{path}:{line}")
                continue
            with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):  # it tells none
                version = re.match(r"3\.\d+", str(parse_json(text)["metadata"]["language_info"]["version"]))
                pythons.update([version[0]] if version is not None else [])
    if pythons:
        python, times = pythons.most_common(1)[0]
        place = f"{times} of its notebooks, by their own metadata"
        found.told.setdefault(
            "python", NamedRequirement(parsed=Requirement(f"python=={python}"), place=place)
        )
    if old:
        more = f" and {len(old) - 3} more files" if len(old) > 3 else ""
        why = (
            "source of Python 2, which no Python 3 runs as it is: `2to3 -w -n FILE`, in a Python before 3.13"
        )
        found.notes.append(f"{', '.join(old[:3])}{more}: {why}")


_PYTHON_2 = re.compile(
    r"(?m)^[ \t]*(?:print[ \t]+(?![=(.\[,)])\S|print[ \t]*>>|exec[ \t]+['\"]|raise[ \t]+\w+[ \t]*,"
    r"|except[ \t]+[\w.]+[ \t]*,[ \t]*\w+:)|^[ \t]*(?:import|from)[ \t]+"
    r"(?:cPickle|urllib2|ConfigParser|StringIO|Queue|cStringIO|httplib|urlparse)\b"
    r"|\b(?:xrange|raw_input|unicode|iteritems|itervalues|has_key)\("
)
"""Statements, modules and names that only Python 2 has: https://docs.python.org/3/howto/pyporting.html"""


def _of_python_2(text: str) -> int | None:
    """The first line that no Python 3 takes, or that it has no name for; None if there is none."""
    if (found := _PYTHON_2.search(text)) is None or _FOR_BOTH.search(text):
        return None
    try:
        body = ast.parse(text)
    except SyntaxError as problem:
        said = "parentheses" in str(problem.msg) or "exception" in str(problem.msg)
        return problem.lineno if said else None
    except (ValueError, RecursionError, MemoryError):
        return None
    own = {
        one.asname or one.name
        for node in ast.walk(body)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for one in node.names
    }
    own |= {one.id for one in ast.walk(body) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    word = re.search(r"\w+", found[0].strip().removeprefix("import ").removeprefix("from "))
    certain = found[0].lstrip().startswith(("import", "from")) or (word is not None and word[0] not in own)
    return text.count("\n", 0, found.end()) + 1 if certain else None


_FOR_BOTH = re.compile(
    r"\b(?:six|future|past|sys\.version_info|PY[23])\b|except (?:Import|Name|ModuleNotFound)Error"
)
"""What source for both has: https://six.readthedocs.io, https://python-future.org"""


def modules_of(folder: Path) -> set[str]:
    """The modules that a folder's sources import, without its own."""
    own, found = {folder.absolute().name}, set[str]()
    for path in itertools.islice(sources_below(folder, (".py", ".ipynb")), MOST_SOURCES):
        own |= {path.stem, path.parent.name}
        with contextlib.suppress(UsageError):  # no text, or too long: another file tells
            text = read_text(path)
            text = "".join(code for _, code, _ in cells_of(text, path)) if path.suffix == ".ipynb" else text
            found.update(IMPORT.findall(text))
            for several in re.findall(r"(?m)^[ \t]*import[ \t]+(\w[^#\n]*,[^#\n]*)", text):
                found.update(re.findall(r"(?:^|,)[ \t]*(\w+)", several))
    return found - own - sys.stdlib_module_names


def is_module_of(name: str, modules: Iterable[str]) -> bool:
    """Whether one of these modules is that of a distribution: yaml of pyyaml."""
    plain = {OF_MODULES.get(one, one) for one in modules}
    plain |= {row.instead for one in modules if (row := load().mistaken_names.get(one.lower())) is not None}
    return name in {canonical(one) for one in plain}


_OF_TORCH = ("torchvision", "torchaudio", "torchtext")
"""Packages of PyTorch's own, each release of which is for one of PyTorch."""


def add_framework_companions(folder: Path, found: Wishes) -> None:
    """Take over, in any release, the packages of PyTorch's own that a folder's sources certainly import and
    no list has: each is for one release of PyTorch, so that one installed later would replace that.
    """
    names = {wish.name for wish in found.wishes}
    if "torch" not in names:
        return
    lacking, own, places = {*_OF_TORCH} - names, {folder.absolute().name}, dict[str, str]()
    for path in itertools.islice(sources_below(folder, (".py", ".ipynb")), MOST_SOURCES):
        own |= {path.stem, path.parent.name}
        with contextlib.suppress(UsageError):  # no text, or too long: another file tells
            text = read_text(path)
            sources = (
                cells_of(text, path)
                if path.suffix == ".ipynb"
                else [(str(path), text, f"{path}:{{}}".format)]
            )
            for _, code, place in sources if any(one in text for one in lacking) else ():
                for use in used_names(code, place)[0]:
                    places.setdefault(use.name.partition(".")[0], use.place)
    for name in sorted(lacking & {*places} - own):
        if not any(
            re.search(rf"(?i)pytorch/(?:{name.removeprefix('torch')}|{name})\b", one) for one in found.by_hand
        ):
            found.add(name, places[name])
            found.note(
                places[name], f"import of {name}", "taken, of the release for PyTorch's: no list has it"
            )
