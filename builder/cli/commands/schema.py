"""``rtbuild schema``: the JSON schemas of rtbuild's input and output."""

from builder.cli import options as opt
from builder.cli.console import show
from builder.core import resources
from builder.core.errors import UsageError

_ENDING = ".schema.json"


def schema(name: str | None = opt.of("NAME: matrix, lock, report, run, publication …")) -> int:
    """Print a document's JSON schema; without a name, the names."""
    folder = resources.schemas()
    names = sorted(path.name.removesuffix(_ENDING) for path in folder.glob(f"*{_ENDING}"))
    if name is None:
        show(*names)
        return 0
    if name not in names:
        raise UsageError(f"there is no schema '{name}'", hint=f"there are: {', '.join(names)}")
    show((folder / f"{name}{_ENDING}").read_text("utf-8").removesuffix("\n"))
    return 0
