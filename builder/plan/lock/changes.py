"""What has appeared or gone since a cell was locked: updates of its packages, withdrawn wheels, newer facts.

Nothing is changed: `rtbuild lock --upgrade` or ``--upgrade-package`` does that. A question that got no answer
is told apart in :class:`Outdated`.``unknown``, for silence is no sign that there is nothing newer.
"""

import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from packaging.utils import canonicalize_name
from packaging.version import Version

from builder.core.documents import shown
from builder.core.errors import MissingToolError, PackageIndexError, RtbuildError
from builder.core.model import Deb, Pinned, RegistryBase, RootfsBase, Wheel
from builder.plan.facts.reading import Memory
from builder.plan.facts.rules import Outcome, check
from builder.plan.lock.pinning import new_base
from builder.sources.debian import Debian
from builder.sources.index import Files, IndexFile, choose_python, wheel_name
from builder.sources.oci import Registry

Kind = Literal["security", "rules", "yanked", "gone", "base", "package", "cudnn", "python"]
"""In the order of a table: ``security`` and ``package`` are of Debian's archives, ``rules`` are findings of
``check`` that warn or refuse, ``gone`` is a file that the index no longer lists, or a package that the
archive no longer gives."""
_CUDNN = "nvidia-cudnn-cu"


@dataclass(frozen=True, kw_only=True)
class LockChange:
    """One item that is out of date."""

    kind: Kind
    name: str
    locked: str
    newer: str | None = None
    """The version that there is now; None if nothing replaces it."""
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Outdated:
    """The changes since a cell was locked, and the questions that are open, a sentence each."""

    changes: tuple[LockChange, ...]
    unknown: tuple[str, ...]
    """Of questions that were asked."""
    unasked: tuple[str, ...] = ()
    """What a lock does not list."""


Answer = LockChange | str
"""A change, or the sentence of a question that is open."""


def outdated(
    pinned: Pinned,
    *,
    pages: Mapping[str, Files],
    debian: Debian,
    registry: Registry,
    beside: str | None = None,
) -> Outdated:
    """Ask the archives, the registry, uv's list of Pythons and the rules of ``check`` about a locked cell.

    ``pages`` are the index's files of each of its packages, by canonical name, or why they are not known.
    ``beside`` is the repository of a published image, if its provenance states ``pinned``: whoever may push
    there can write one, so no host that it alone names is asked.
    """
    parts: tuple[tuple[str, Callable[[], Iterator[Answer]]], ...] = (
        ("the base", lambda: _base(pinned, debian, registry, beside)),
        ("Python", lambda: _python(pinned)),
        ("check", lambda: _rules(pinned)),
    )
    found: list[LockChange] = []
    unknown: list[str] = []
    for name, ask in parts:
        try:
            for answer in ask():
                if isinstance(answer, LockChange):
                    found.append(answer)
                else:
                    unknown.append(f"{name}: {answer}")
        except RtbuildError as problem:
            unknown.append(f"{name}: {problem.message}")
    for wheel in pinned.wheels:
        files = pages[canonicalize_name(wheel.name)]
        if isinstance(files, str):
            unknown.append(f"{wheel.name}: {files}")
            continue
        changes = list(_wheel(wheel, files))
        if beside is not None and pinned.cell.index and any(change.kind == "gone" for change in changes):
            unknown.append(
                f"{wheel.name}: it may be of an index that only the image names, which is not asked"
            )
        else:
            found += changes
    order = list(Kind.__args__)  # type: ignore[attr-defined]
    found.sort(key=lambda one: (order.index(one.kind), one.name))
    inside = isinstance(pinned.base, RegistryBase)
    unasked = (f"the packages inside {pinned.cell.base}: no lock lists them",) * inside
    return Outdated(changes=tuple(found), unknown=tuple(unknown), unasked=unasked)


def _base(pinned: Pinned, debian: Debian, registry: Registry, beside: str | None) -> Iterator[Answer]:
    named = pinned.base.reference if isinstance(pinned.base, RegistryBase) else None
    if named is not None and beside is not None and not registry.may_ask(named, beside=beside):
        yield f"{named} is in another registry, which only the image names: not asked"
        return
    match pinned.base, new_base(pinned.cell, registry, debian):
        case RootfsBase() as before, RootfsBase() as today:
            yield from newer_packages(before, today)
        case RegistryBase() as locked, RegistryBase() as now if now.digest != locked.digest:
            yield LockChange(
                kind="base",
                name=locked.reference,
                locked=locked.digest[:19],
                newer=now.digest[:19],
                why="the tag was pushed again",
            )


def newer_packages(locked: RootfsBase, today: RootfsBase) -> Iterator[Answer]:
    """The packages of which ``today`` has a newer version, those of the security archive as ``security``, or
    none at all.

    Raises:
        PackageIndexError: today's lists are older than those of the lock.
        MissingToolError: there is no dpkg to compare versions.
    """
    if today.epoch < locked.epoch:
        raise PackageIndexError(
            f"the archive's lists of {locked.suite} are older than those that the lock was made from: "
            "a mirror that lags, or an old answer"
        )
    there = {deb.package: deb for deb in today.debs}
    for deb in locked.debs:
        now = there.get(deb.package)
        if now is None:
            why = f"the packages that make the system of {locked.suite} today are without it"
            yield LockChange(kind="gone", name=deb.package, locked=deb.version, why=why)
        elif now.version != deb.version:
            newer = _is_newer(now, deb)
            if newer is None:
                yield f"{deb.package}: dpkg cannot compare {now.version} with {deb.version}"
            elif not newer:
                yield f"{deb.package}: the archive's lists have {now.version}, older than {deb.version}"
            else:
                kind: Kind = "security" if now.archive == "debian-security" else "package"
                yield LockChange(kind=kind, name=deb.package, locked=deb.version, newer=now.version)


def _is_newer(now: Deb, before: Deb) -> bool | None:
    """By dpkg, whose rules these are: https://manpages.debian.org/deb-version; None if it fails.

    It ends with 0 for yes, 1 for no and 2 for an error: https://manpages.debian.org/dpkg
    """
    command = ["dpkg", "--compare-versions", now.version, "gt", before.version]
    try:
        status = subprocess.run(command, check=False, capture_output=True).returncode
    except FileNotFoundError as problem:
        raise MissingToolError("dpkg compares Debian's versions, and this machine lacks it") from problem
    return {0: True, 1: False}.get(status)


def _python(pinned: Pinned) -> Iterator[LockChange]:
    locked = pinned.python
    if locked is None or pinned.cell.python_patch is not None:
        return
    now = choose_python(pinned.cell.python, pinned.cell.platform)
    if (Version(now.version), now.build) > (Version(locked.version), locked.build):
        names = [f"{one.version} ({one.build})" for one in (locked, now)]
        yield LockChange(kind="python", name="Python", locked=names[0], newer=names[1])


def _rules(pinned: Pinned) -> Iterator[Answer]:
    cell = pinned.cell
    for finding in check(cell, Memory().truth(cell, pinned), suggest=False):
        if finding.outcome in {Outcome.IMPOSSIBLE, Outcome.WARNS}:
            word = finding.outcome.answer
            yield LockChange(kind="rules", name=finding.rule, locked=word, why=finding.message)
        elif finding.outcome is Outcome.UNKNOWN:
            yield f"{finding.rule}: {finding.message}"


def _wheel(wheel: Wheel, files: tuple[IndexFile, ...]) -> Iterator[LockChange]:
    if wheel.source is not None:
        source = wheel.source.sdist
        name, sha256 = source.file, source.sha256
    else:
        name, sha256 = wheel.file, wheel.sha256
    same = [file for file in files if file.name == name and file.sha256 in {None, sha256}]
    if not same:
        yield LockChange(kind="gone", name=wheel.name, locked=wheel.version, why=f"no index lists {name}")
    elif (reason := same[0].yanked) is not None:
        yield LockChange(kind="yanked", name=wheel.name, locked=wheel.version, why=shown(reason, most=200))
    if canonicalize_name(wheel.name).startswith(_CUDNN):
        yield from _newer_cudnn(wheel, files)


def _newer_cudnn(wheel: Wheel, files: tuple[IndexFile, ...]) -> Iterator[LockChange]:
    """A newer patch of the same minor release: cuDNN keeps its interface within one.

    https://docs.nvidia.com/deeplearning/cudnn/backend/latest/developer/forward-compatibility.html
    """
    locked = Version(wheel.version)
    versions = []
    for file in files:
        named = wheel_name(file.name)
        if named is not None and file.yanked is None and named.version.release[:2] == locked.release[:2]:
            versions.append(named.version)
    if versions and max(versions) > locked:
        why = "a newer patch of the same minor release"
        yield LockChange(
            kind="cudnn", name=wheel.name, locked=wheel.version, newer=str(max(versions)), why=why
        )
