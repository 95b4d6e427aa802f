"""Systems that images are not for, and machines without a card: the lines for pip on Windows and macOS, what
of a set has no build there, and the refusal for a Jetson.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from packaging.requirements import Requirement
from packaging.utils import parse_sdist_filename
from packaging.version import Version

from builder.core.errors import NothingPossibleError, NotKnownError, UsageError
from builder.core.model import Cell
from builder.core.versions import canonical, contains, key, pinned
from builder.plan.facts.tables import JetpackRow, load
from builder.plan.lock import after, pip_install, python_lines, smoke_statements
from builder.plan.resolve.solve import every_python, pythons
from builder.plan.resolve.wishes import TYPED, NamedRequirement, Wishes
from builder.sources.index import Index, IndexFile, page, takes, wheel_name


@dataclass(frozen=True, kw_only=True)
class AskedSystem:
    """The system on which pip is to install."""

    kind: str
    """``linux``, ``wsl``, ``windows``, ``macos``, ``macos-intel`` or ``jetson``."""
    glibc: str | None = None
    jetpack: str | None = None
    """The major version of JetPack, if it is told."""


_SYSTEMS = (
    (r"linux", "linux"),
    (r"wsl ?2?", "wsl"),
    (r"win(dows)? ?(\d+)?", "windows"),
    (r"(mac ?os|mac|osx|darwin)( ?\d+)?[ -]*(intel|x86.64)", "macos-intel"),
    (r"(mac ?os|mac|osx|darwin)( ?\d+)?( ?(arm64|m\d|apple.silicon))?", "macos"),
    (r"jetson", "jetson"),
)
_DISTRIBUTIONS = {
    "rhel": "ubi",
    "redhat": "ubi",
    "rocky": "rockylinux",
    "alma": "almalinux",
    "debian11": "debian/bullseye",
    "debian12": "debian/bookworm",
    "debian13": "debian/trixie",
}
"""Other names of systems on record. UBI is made of RHEL's packages."""


_FAMILY = frozenset({"torchvision", "torchaudio"})
"""Packages that lie on PyTorch's own index beside it."""


def asked_system(text: str) -> AskedSystem:
    """``--system``: a kind of system, a distribution, ``glibc 2.17``, ``JetPack 6.2``. Raises UsageError."""
    word = text.strip().lower()
    if (found := next((kind for names, kind in _SYSTEMS if re.fullmatch(names, word)), None)) is not None:
        return AskedSystem(kind=found)
    if jetpack := re.fullmatch(r"(?:jetson )?(?:jetpack|jp) ?(\d)(?:\.\d+)*", word):
        return AskedSystem(kind="jetson", jetpack=jetpack[1])
    if glibc := re.fullmatch(r"g?libc[ =]?(2\.\d{1,2})", word):
        return AskedSystem(kind="linux", glibc=glibc[1])
    name = re.sub(
        r"[ _-]|linux(?=\D*\d)(?<!rockylinux)(?<!oraclelinux)(?<!amazonlinux)(?<!almalinux)", "", word
    )
    for other, known in _DISTRIBUTIONS.items():
        if name.startswith(other) and not name.startswith(known):
            name = known + ("" if "/" in known else name.removeprefix(other))
    systems = load().systems
    for one in (name, re.sub(r"(?<=\d)\.\d+(\.\d+)*$", "", name)):  # CentOS 7.9
        if one in systems:
            return AskedSystem(kind="linux", glibc=systems[one].glibc)
    kinds = f"{', '.join(kind for _, kind in _SYSTEMS)}, 'JetPack 6.2'"
    raise UsageError(
        f"--system {text} is none that rtbuild knows",
        hint=f"one of {kinds}; a distribution: centos7, ubuntu18.04, rhel8; or 'glibc 2.17', as "
        "`ldd --version` prints it",
    )


def system_in(text: str) -> tuple[str, str | None]:
    """The name of a card without the system behind it, and that: ``Quadro P4000 Windows 10``."""
    found = re.search(r"(?i)[ ,(]+(?:on )?(windows(?: ?\d+)?|wsl ?2?|mac ?os|jetpack ?[\d.]+)\)?$", text)
    return (text[: found.start()], found[1]) if found else (text, None)


def windows_lines(cell: Cell, left_out: Collection[str] = ()) -> list[str] | None:
    """pip's lines by which Windows gets what a cell for Linux has, less the requirements ``left_out``; None
    if nobody knows of one.

    https://pytorch.org/get-started/locally/: the builds with CUDA are on PyTorch's own index. By the build in
    the pin pip replaces one for the CPU of the same release, which is else enough for it.
    """
    own, rest = [], [text for text in cell.pip if text not in left_out]
    variant = None
    for parsed in map(Requirement, cell.frameworks):
        name = canonical(parsed.name)
        row = load().elsewhere_systems.get((load().table_name(name) or name, "windows"))
        if row is None or row.cuda == "none":
            return None
        if row.cuda == "wheel":
            rest.insert(0, str(parsed))
            continue
        version, _, taken = (pinned(parsed) or "").partition("+")
        default = next((one.variant for one in load().table(name).of(version) if one.default), None)
        variant = taken or default
        own.append(f"{parsed.name}=={version}+{variant}")
    if own and not variant:
        return None
    beside = _FAMILY if own else frozenset[str]()
    of_family = [Requirement(text) for text in rest if canonical(Requirement(text).name) in beside]
    own += [
        f"{one.name}=={pin.partition('+')[0]}+{variant}" if (pin := pinned(one)) else str(one)
        for one in of_family
    ]
    late = [text for text in after(cell) if text in rest]
    rest = [text for text in rest if canonical(Requirement(text).name) not in beside and text not in late]
    lines = (
        [pip_install((*own, "--index-url", f"https://download.pytorch.org/whl/{variant}"), ())] if own else []
    )
    lines += [pip_install(tuple(rest), ())] if rest else []
    return [*lines, *([pip_install(("--no-build-isolation", *late), ())] if late else [])]


def left_out_on(
    system: str, cell: Cell, index: Index | None, packages: Iterable[str] | None = None
) -> dict[str, str]:
    """The requirements of a cell, or the ``packages``, that a system, ``windows`` or ``macos``, has no wheel
    of, and those that are for CUDA where the framework's wheel has it within; each with the reason.
    """
    tables = load()
    rows = (
        tables.elsewhere_systems.get((tables.table_name(name) or name, system.partition("-")[0]))
        for name in (canonical(Requirement(text).name) for text in cell.frameworks)
    )
    within = all(row is not None and row.cuda != "wheel" for row in rows)
    found = dict[str, str]()
    for text in (*cell.cuda.packages, *cell.pip) if packages is None else packages:
        wish = _plain(NamedRequirement(parsed=Requirement(text), place=TYPED))
        why = of_cuda_alone(wish, system, cell.python, index, within=within)
        if why is not None:
            found[text] = why
    return found


def _plain(wish: NamedRequirement) -> NamedRequirement:
    """The same release without a build's mark: 2.8.0 of 2.8.0+cu128."""
    bare = re.sub(r"(==[^,;+ ]+)\+\w+", r"\1", str(wish.parsed.specifier))
    return wish.bound(bare) if bare != str(wish.parsed.specifier) else wish


@dataclass(frozen=True, kw_only=True)
class ElsewhereLine:
    """A line of an answer that has no matrix: a build for another system, or without a card."""

    kind: Literal["answer", "pip", "check", "detail", "unread"]
    """``pip`` and ``check`` have a command; ``unread`` says that the answer's releases are not known."""
    text: str
    command: str = ""


def without_cuda(
    asked: Wishes, system: str, python: str | None, index: Index | None
) -> Iterator[ElsewhereLine]:
    """Lines on the builds without CUDA that a system, ``linux``, ``windows`` or ``macos``, has of frameworks:
    what to type, and what of it was read. Raises NothingPossibleError for a framework that has none.
    """
    wishes = [*map(_plain, asked.wishes)]
    frameworks = [wish for wish in wishes if load().is_framework(wish.name)]
    left_out = {wish: why for wish in wishes if (why := of_cuda_alone(wish, system, python, index))}
    if any(wish not in left_out for wish in frameworks):
        frameworks = [wish for wish in frameworks if wish not in left_out]
    beside = [str(wish) for wish in wishes if wish not in (*frameworks, *left_out)]
    kind, devices = system.partition("-")[0], list[str]()
    for wish in frameworks:
        table = load().table_name(wish.name)
        row = load().elsewhere_systems.get((table, kind))
        if row is None or not row.cpu:
            raise NotKnownError(
                f"whether {wish} has a build without CUDA for {system} is not known",
                hint="its maker's page on how to install it says so",
            )
        name = row.cpu if wish.name != row.cpu else wish.name
        files = page(name, index) if index is not None else "the index was not asked"
        newest, its = None, list[str]()
        if not isinstance(files, str):
            newest, its = _newest_for(wish, files, system, python)
            if newest is None:
                on = f" on Python {python}" if python is not None else ""
                raise NothingPossibleError(
                    f"no release of {name} that {wish} admits has a wheel for {system}{on}",
                    hint="ask for another version or Python",
                )
        what = f"{name}=={newest}" if newest is not None else str(wish.parsed).replace(wish.name, name, 1)
        bounds = [text for one in load().table(wish.name).of(newest or "") if one.default for text in one.pip]
        options = ("--index-url", row.index) if row.index else ()
        where = f" on Python {' to '.join(dict.fromkeys((its[0], its[-1])))}" if its else ""
        text = f"{what}{where}" + ": computes on the CPU alone" * (kind != "macos")
        yield ElsewhereLine(kind="answer", text=text)
        mine = [text for text in beside if table == "torch" and canonical(Requirement(text).name) in _FAMILY]
        beside = [text for text in (*beside, *(bounds if options else ())) if text not in mine]
        here = () if options else bounds
        line = pip_install((what, *mine, *here, *options), ())
        yield ElsewhereLine(kind="pip", text=f"  by pip: {line}", command=line)
        devices += (what, *mine)
        if row.text and kind != "windows" and system != "macos-intel":
            yield ElsewhereLine(kind="detail", text=f"  {row.text} [{row.source}]")
        if isinstance(files, str):
            yield ElsewhereLine(kind="unread", text=f"  which releases there are was not read: {files}")
        elif row.index:
            text = f"  the releases are those of the default index; {row.index} was not read"
            yield ElsewhereLine(kind="detail", text=text)
    if beside:
        line = pip_install(tuple(beside), ())
        yield ElsewhereLine(kind="pip", text=f"  then: {line}", command=line)
    for line in python_lines(smoke_statements(devices, "mps" if system == "macos" else "cpu")):
        yield ElsewhereLine(kind="check", text=f"  to check it: {line}", command=line)
    for wish, why in left_out.items():
        once = f"; for all machines at once: `{wish} ; sys_platform == 'linux'`" * (kind != "linux")
        yield ElsewhereLine(kind="detail", text=f"  without {wish}: {why}{once}")
    yield from _of_marks(asked.wishes, system)


def _of_marks(wishes: Iterable[NamedRequirement], system: str) -> Iterator[ElsewhereLine]:
    """That the builds which requirements name are for CUDA."""
    if names := ", ".join(str(wish) for wish in wishes if _plain(wish) is not wish):
        text = f"{names}: the mark names a build for CUDA, and the release without it is the one for {system}"
        yield ElsewhereLine(kind="detail", text=f"  {text}")


def of_cuda_alone(
    wish: NamedRequirement, system: str, python: str | None, index: Index | None, *, within: bool = True
) -> str | None:
    """Why a package is left out on a system: it is part of CUDA, or none of the releases that are asked for
    has a wheel there, nor sources that are not for CUDA; None for any other, and for one of which an index
    that is silent told nothing. ``within``: whether nothing on the system loads CUDA of NVIDIA's wheels.
    """
    facts, kind = load(), system.partition("-")[0]
    if within and re.fullmatch(r"nvidia-.*|.*-cu(da)?\d+x?", wish.name):
        inside = "; PyTorch's wheel for Windows has CUDA's libraries within"
        return "it is for CUDA alone" + inside * (kind == "windows")
    compiles = (row for row in facts.kernels.values() if row.name == wish.name and "nvcc" in row.needs)
    if kind != "windows" and next(compiles, None) is not None:
        return "it compiles for CUDA alone"
    on_record = (facts.table_name(wish.name), kind) in facts.elsewhere_systems
    files = page(wish.name, index) if index is not None and not on_record else "the index was not asked"
    if isinstance(files, str) or _newest_for(wish, files, system, python)[0] is not None:
        return None
    for_cuda = wish.name in facts.packages or facts.is_framework(wish.name)
    for_cuda = for_cuda or any(row.name == wish.name for row in facts.builds if row.against)
    if not for_cuda and (not _has_wheel(wish, files) or _has_sources(wish, files)):
        return None
    return _without_wheel(wish, system, files, ", and its sources are for CUDA" * for_cuda)


def _without_wheel(wish: NamedRequirement, system: str, files: Sequence[IndexFile], sources: str) -> str:
    """The words on a package without a wheel for a system, with the newest of its releases that has one."""
    other, _ = _newest_for(wish.bound(""), files, system, None)
    if other is not None:
        return f"none of its releases that {wish} admits has a wheel for {system}; {other} has one"
    table = load().package_names.get(wish.name)
    instead = f"; programs do without it by {table.without}" if table is not None and table.without else ""
    return f"none of its releases has a wheel for {system}{sources * _has_sources(wish, files)}{instead}"


def _has_wheel(wish: NamedRequirement, files: Sequence[IndexFile]) -> bool:
    wheels = filter(None, (wheel_name(file.name) for file in files))
    return any(wish.parsed.specifier.contains(wheel.version, prereleases=True) for wheel in wheels)


def _has_sources(wish: NamedRequirement, files: Sequence[IndexFile]) -> bool:
    """Whether a release that is asked for, or one whose version its archive's name does not tell, has
    sources.
    """
    for file in files:
        if not file.name.endswith((".tar.gz", ".zip", ".tar.bz2")):
            continue
        try:
            version = parse_sdist_filename(file.name)[1]
        except ValueError:
            return True
        if wish.parsed.specifier.contains(version, prereleases=True):
            return True
    return False


def _newest_for(
    wish: NamedRequirement, files: Sequence[IndexFile], system: str, python: str | None
) -> tuple[str | None, list[str]]:
    """The newest release that has a wheel for a system, and the Pythons that it is for, the oldest first."""
    ends = {
        "windows": r"win_amd64",
        "macos": r"macosx_.*_(arm64|universal2)",
        "macos-intel": r"macosx_.*_(x86_64|universal2|intel)",
        "linux": r"(many)?linux.*_x86_64",
    }[system]
    found: dict[Version, set[str]] = {}
    for file in files:
        wheel = wheel_name(file.name)
        if wheel is None or file.yanked is not None or wheel.version.is_prerelease:
            continue
        for tag in wheel.tags if wish.parsed.specifier.contains(wheel.version) else ():
            if tag.platform != "any" and not re.fullmatch(ends, tag.platform):
                continue
            mine = re.fullmatch(r"cp(\d)(\d+)", tag.interpreter) if not tag.abi.endswith("t") else None
            named = [f"{mine[1]}.{mine[2]}"] if mine else []
            if tag.interpreter == "py3":
                named = every_python()
            there = {one for one in named if takes(file.requires_python, one)}
            if python is not None:
                there = {one for one in there if contains(pythons(python), f"{one}.99")}
            if there:
                found.setdefault(wheel.version, set()).update(there)
    if not found:
        return None, []
    newest = max(found)
    return str(newest), sorted(found[newest], key=key)


def of_jetson(asked: Wishes, jetpack: str | None) -> NothingPossibleError:
    """The refusal for a Jetson, with the wheels that NVIDIA has for each JetPack: a plain no to another
    PyTorch than these, and torchvision by its sources.
    """
    names = " ".join(str(wish) for wish in asked.wishes)
    rows = [row for row in load().jetpacks.values() if jetpack in {None, row.version}]
    rows = rows or [*load().jetpacks.values()]
    told = (
        f"{names}: builds of the package indexes are not for a Jetson up to JetPack 6: those for ARM compute "
        "on the CPU there, or are for servers"
    )
    lines = [told]
    for row in rows:
        way = f"`pip install {names} --index-url {row.index}`; or {row.page}" if row.index else row.page
        has = f"L4T {row.l4t}, CUDA {row.cuda}, Python {row.python}"
        lines.append(f"  JetPack {row.version} ({has}): {way} [{row.source}]")
        lines += (f"    {text}" for text in _on_jetpack(row, asked.wishes))
    thor = "" if jetpack else f"; on Thor, which has a later JetPack: `rtbuild resolve {names} --gpu Thor`"
    return NothingPossibleError(
        "\n".join(lines),
        reasons=lines,
        hint="`cat /etc/nv_tegra_release` prints the L4T; CUDA and the driver come with JetPack: no other "
        f"driver is installed there; NVIDIA's l4t containers of the same JetPack are another way{thor}",
    )


def _on_jetpack(row: JetpackRow, wishes: Sequence[NamedRequirement]) -> Iterator[str]:
    """The newest PyTorch that NVIDIA has for a JetPack, whether it is one that is asked for, and the
    torchvision that goes with it.
    """
    torch = next((wish for wish in wishes if wish.name == "torch"), None)
    if row.torch is None or (torch is None and not {"torchvision"} & {wish.name for wish in wishes}):
        return
    other = torch is not None and not contains(torch.parsed.specifier, row.torch)
    no = f"no: NVIDIA lists no wheel of {torch} for JetPack {row.version}; " * other
    yield f"{no}the newest there is of PyTorch {row.torch}, for JetPack {row.releases} [{row.sources[-1]}]"
    if any(wish.name == "torchvision" for wish in wishes):
        vision = _beside_torch("torchvision", row.torch)
        branch = f"--branch v{vision} " if vision is not None else ""
        yield (
            f"torchvision {vision or 'of that PyTorch'} by its sources, after PyTorch: `git clone {branch}"
            "https://github.com/pytorch/vision && cd vision && python3 setup.py install --user`; what asks "
            "for both comes by `pip install --no-deps`, which leaves them alone"
        )


def _beside_torch(name: str, version: str) -> str | None:
    """The release of a package that is made for a PyTorch, by its own pin; None if none is on record."""
    table = load().packages.get(name)
    for row in table.rows if table is not None else ():
        pins = (one for one in map(Requirement, row.requires) if canonical(one.name) == "torch")
        if any(pinned(one) == version for one in pins):
            return row.version
    return None
