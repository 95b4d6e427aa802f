"""Files and versions of projects on the user's package indexes, several at a time. Raises nothing."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from builder.core.errors import RtbuildError
from builder.core.versions import canonical
from builder.sources.index import MACHINES, Index, IndexFile, wheel_name

Files = tuple[IndexFile, ...] | str
"""A project's files, or why they are not known."""
_THREADS = 4


@dataclass(frozen=True, kw_only=True)
class Offer:
    """The index's answer about one project; ``unknown`` is the reason if there is none."""

    wheels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """File names for Linux on one platform by version, without yanked files and pre-releases."""
    unknown: str | None = None

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(self.wheels)


def page(name: str, index: Index, url: str | None = None) -> Files:
    """The files that all of the user's indexes have of a project, or the one at ``url``."""
    try:
        return index.offers(name) if url is None else index.offers_of(url.rstrip("/"), name)
    except RtbuildError as problem:
        return problem.message


def pages(names: Iterable[str], index: Index) -> dict[str, Files]:
    """The pages of several projects, by canonical name."""
    wanted = sorted({canonical(name) for name in names})
    with ThreadPoolExecutor(_THREADS) as pool:
        return dict(zip(wanted, pool.map(lambda name: page(name, index), wanted), strict=True))


def ask(names: Iterable[str], index: Index, platform: str = "linux/amd64") -> dict[str, Offer]:
    """The wheels of several projects for one platform, by canonical name."""
    return {
        name: Offer(unknown=files)
        if isinstance(files, str)
        else Offer(wheels=_wheels(files, MACHINES[platform]))
        for name, files in pages(names, index).items()
    }


def _wheels(files: Iterable[IndexFile], machine: str) -> dict[str, list[str]]:
    """File names of released, standing wheels for Linux on ``x86_64`` or ``aarch64``, by version."""
    found: dict[str, list[str]] = {}
    for file in files:
        wheel = wheel_name(file.name)
        if wheel is None or file.yanked is not None or wheel.version.is_prerelease:
            continue
        platforms = {tag.platform for tag in wheel.tags}
        if any(name.endswith((machine, "any")) and not name.startswith("macos") for name in platforms):
            found.setdefault(str(wheel.version), []).append(file.name)
    return found
