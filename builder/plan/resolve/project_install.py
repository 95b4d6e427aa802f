"""How a project is installed beside a set: its own folder and what it has from repositories, by hand, and how
its lock keeps the releases that were put in the place of others, which ``uv run`` or ``poetry install`` undo.

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
from builder.plan.lock import pip_install
from builder.plan.resolve.loosening import Substitution
from builder.plan.resolve.project_texts import is_file, is_folder
from builder.plan.resolve.solve import Demand, Proposal
from builder.plan.resolve.wishes import Wishes


def of_override(best: Proposal, changes: Sequence[Substitution], files: Iterable[Path]) -> Iterator[str]:
    """How each of the projects, by its lock, has the releases that were put in the place of others."""
    taken = [
        one.instead for one in changes if one.instead is not None and not one.instead.startswith("python")
    ]
    folders = dict.fromkeys(_folder(path) for path in files)
    for folder in folders if taken else ():
        if is_file(folder / "uv.lock"):
            back = "has the other releases, and `uv sync` and `uv run` put them back"
            yield f"{folder / 'uv.lock'} {back}: {_by_uv(best, taken)}"
        elif is_file(folder / "poetry.lock"):
            words = shlex.join(["poetry", "add", *(text.partition("+")[0] for text in taken)])
            back = "has the other releases, and `poetry install` puts them back"
            yield f"{folder / 'poetry.lock'} {back}: `{words}` changes both"


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
        said += f', `[[tool.uv.index]]` with `name = "{name}"`, `url = "{url}"`, `explicit = true`'
        said += f", and `{sources}` under [tool.uv.sources]"
    return f"{said}, then `uv lock && uv sync`; or, installed by hand, `uv run --no-sync`"


def of_hand(asked: Wishes, before: Sequence[str] = ()) -> Iterator[str]:
    """The line that installs the project itself, and what it has from repositories and folders; ``before``:
    variables of what is compiled, as words of a shell.
    """
    lines = [pip_install(("--no-build-isolation", *asked.by_hand), ())] if asked.by_hand else []
    lines += [line_of_itself(asked)] if asked.itself else []
    if lines:
        yield f"then, by hand: {' && '.join(with_variables(lines, before))}"


def line_of_itself(asked: Wishes) -> str:
    """How pip installs the project's own folder beside a set that has its requirements."""
    options = (*["--no-build-isolation"] * asked.compiles_itself, "--no-deps", str(asked.itself))
    return pip_install(options, ())


def with_variables(lines: Iterable[str], before: Sequence[str]) -> list[str]:
    """The lines, with variables before those that compile the project's own code."""
    return [" ".join((*before, line)) if "--no-build-isolation" in line else line for line in lines]


def told_python(asked: Wishes) -> str | None:
    """The one Python that a README's words, jobs or notebooks name: ``3.7``."""
    told = asked.told.get("python")
    exact = pinned(told.parsed) if told is not None else None
    return ".".join(exact.split(".")[:2]) if exact is not None else None


def of_told_python(best: Proposal, demand: Demand, asked: Wishes) -> Iterator[str]:
    """Who tells the Python of the first proposal, or that it is another."""
    told = asked.told.get("python")
    if demand.told_python is None or told is None:
        return
    other = f"; {best.cell.python} is the nearest that the set has here" * (
        best.cell.python != demand.told_python
    )
    yield f"Python {demand.told_python}: {told.place}{other}; a requirement would count more"


def told_of(demand: Demand, asked: Wishes) -> Iterator[str]:
    """What a README or jobs say of the packages of a demand, where nothing is possible."""
    names = {wish.name for wish in (*demand.frameworks, *demand.companions)}
    told = [f"{one.parsed} ({one.place})" for name, one in asked.told.items() if name in names]
    if told:
        yield f"its author's own set, by words: {', '.join(told)}"
