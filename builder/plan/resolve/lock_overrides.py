"""How a project that uv or Poetry locks keeps other releases than its lock has: what else is installed by hand,
the next ``uv run`` or ``poetry install`` undoes.

https://docs.astral.sh/uv/reference/settings/#override-dependencies,
https://docs.astral.sh/uv/concepts/projects/dependencies/#index, https://python-poetry.org/docs/cli/#add
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from packaging.requirements import Requirement

from builder.core.versions import canonical, pinned
from builder.plan.facts.rules import PYTORCH
from builder.plan.resolve.loosening import Substitution
from builder.plan.resolve.project_texts import is_file, is_folder
from builder.plan.resolve.solve import Proposal


def of_override(best: Proposal, changes: Sequence[Substitution], files: Iterable[Path]) -> Iterator[str]:
    """How each of the projects, by its lock, has the releases that were put in the place of others."""
    taken = [
        one.instead for one in changes if one.instead is not None and not one.instead.startswith("python")
    ]
    folders = dict.fromkeys(_folder(path) for path in files)
    for folder in folders if taken else ():
        if is_file(folder / "uv.lock"):
            yield f"{folder / 'uv.lock'} has the other releases, and `uv sync` and `uv run` put them back: {_by_uv(best, taken)}"
        elif is_file(folder / "poetry.lock"):
            words = shlex.join(["poetry", "add", *(text.partition("+")[0] for text in taken)])
            yield f"{folder / 'poetry.lock'} has the other releases, and `poetry install` puts them back: `{words}` changes both"


def _folder(path: Path) -> Path:
    plain = Path(re.sub(r"\[[\w.,\s-]+\]$", "", str(path)))
    return plain if is_folder(plain) else plain.parent


def _by_uv(best: Proposal, taken: Sequence[str]) -> str:
    """The settings by which uv locks these releases, with the index of a build."""
    listed = ", ".join(f'"{text.partition("+")[0]}"' for text in taken)
    said = f"`override-dependencies = [{listed}]` under [tool.uv] of pyproject.toml"
    for url in filter(PYTORCH.match, best.cell.index):
        named = [
            canonical(one.name)
            for one in map(Requirement, best.cell.frameworks)
            if "+" in (pinned(one) or "")
        ]
        name = f"pytorch-{url.rstrip('/').rpartition('/')[2]}"
        sources = ", ".join(f'{one} = {{ index = "{name}" }}' for one in named)
        said += f', `[[tool.uv.index]]` with `name = "{name}"`, `url = "{url}"`, `explicit = true`, and `{sources}` under [tool.uv.sources]'
    return f"{said}, then `uv lock && uv sync`; or, installed by hand, `uv run --no-sync`"
