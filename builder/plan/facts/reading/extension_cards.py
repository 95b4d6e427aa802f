"""The cards that PyTorch's tool for extensions refuses, by its source in the wheels of each release.

``_get_cuda_arch_flags`` of ``torch/utils/cpp_extension.py`` holds a list of the compute capabilities that it
knows. Where ``TORCH_CUDA_ARCH_LIST`` says nothing, a card that is not on the list is an error, unless the
tool takes the newest code of the build itself (``get_arch_list``) for a newer card.
"""

import ast
import re
from collections.abc import Iterator

from builder.core.versions import at_least, key
from builder.plan.facts.tables import load
from builder.sources.index import Index, IndexFile, RemoteZip, UnknownError, page

_MEMBER = r"torch/utils/cpp_extension\.py"
_WHEEL = re.compile(r"torch-(?P<version>\d+(?:\.\d+)+)(?:\.post\d+)?-.*linux.*x86_64\.whl")
_FUNCTION = "_get_cuda_arch_flags"


def newest_known(source: bytes) -> str | None:
    """The newest compute capability that the tool names, ``7.5``, if it refuses a newer card; None if it
    refuses none. Raises UnknownError if the source does not tell.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as problem:
        raise UnknownError(f"cpp_extension.py does not parse: {problem}") from problem
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == _FUNCTION)
    function = next(functions, None)
    if function is None:
        if b"Unknown CUDA arch" in source:
            raise UnknownError(f"cpp_extension.py refuses cards outside of {_FUNCTION}")
        return None
    nodes = list(ast.walk(function))
    if any(isinstance(node, ast.Attribute) and node.attr == "get_arch_list" for node in nodes):
        return None
    known = [
        text
        for node in nodes
        if isinstance(node, ast.Assign)
        and [name.id for name in node.targets if isinstance(name, ast.Name)] == ["supported_arches"]
        for one in ast.walk(node.value)
        if isinstance(one, ast.Constant) and re.fullmatch(r"\d+\.\d", text := str(one.value))
    ]
    if not known:
        raise UnknownError(f"{_FUNCTION} has no list of compute capabilities")
    return max(known, key=key)


def read_releases(index: Index) -> Iterator[tuple[str, str | UnknownError | None]]:
    """Each release of torch on the user's index, the oldest first, with :func:`newest_known` of a wheel for
    Linux, or with why it was not read. Yields nothing but the index's own answer if it lists none.
    """
    files = page("torch", index)
    if isinstance(files, str):
        yield "torch", UnknownError(files)
        return
    wheels: dict[str, IndexFile] = {}
    for file in files:
        if (named := _WHEEL.fullmatch(file.name)) is not None:
            wheels.setdefault(named["version"], file)
    for version in sorted(wheels, key=key):
        try:
            yield version, newest_known(_source(wheels[version], index))
        except UnknownError as problem:
            yield version, problem


def _source(file: IndexFile, index: Index) -> bytes:
    """The tool's source in a wheel. Raises UnknownError, as without an answer of its server."""
    archive = RemoteZip(url=file.url, session=index.client, size=file.size)
    try:
        found, why = archive.find([_MEMBER], first=True)
        if not found[_MEMBER]:
            raise UnknownError(why or "its wheel has no cpp_extension.py")
        return archive.content(found[_MEMBER][0])
    except OSError as problem:  # requests' exceptions are
        raise UnknownError(str(problem)) from problem


def on_record(version: str) -> str | None:
    """The newest compute capability of a release's tool by ``extensions`` of ``kernel-compilers.toml``."""
    rows = load().extensions
    fitting = (row for row in rows if at_least(version, row.since) and not at_least(version, row.before))
    return next((row.newest for row in fitting), None)


def differences(index: Index) -> Iterator[str]:
    """What the wheels say otherwise than the table, and what was not read, each as a line."""
    for version, read in read_releases(index):
        if isinstance(read, UnknownError):
            yield f"the tool for extensions of torch {version} was not read: {read}"
        elif read != (told := on_record(version)):
            words = [f"refuses cards above {one}" if one else "refuses no card" for one in (read, told)]
            yield f"the tool for extensions of torch {version} {words[0]}; kernel-compilers.toml: {words[1]}"
