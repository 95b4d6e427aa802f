"""Code that is compiled where a proposal is installed: a project's own for CUDA, and packages of which an
index has sources alone; what that takes on the system, and the releases that can compile for a card.
"""

import contextlib
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from builder.core.errors import UsageError
from builder.core.model import Cell
from builder.core.versions import (
    apart,
    at_least,
    canonical,
    key,
    lower_bound,
    pinned,
    requirement,
    short,
)
from builder.plan.facts.rules import cuda_of
from builder.plan.facts.tables import GpuRow, cards_of, load
from builder.plan.resolve.project_texts import read_text
from builder.plan.resolve.solve import Demand, Proposal
from builder.plan.resolve.wishes import NamedRequirement, Wishes


def compiling(asked: Wishes) -> list[str]:
    """The places of a project's own CUDA code, which is compiled as it runs or is installed."""
    return sorted({place for kind, _, place in asked.compiling if kind in {"run", "install"}})


def installed_by_nvcc(asked: Wishes) -> tuple[list[str], list[str]]:
    """What nvcc compiles of a project and of what is installed from source, and of what nobody read that."""
    here = [text for text, _, is_here in asked.sources if is_here]
    unread = dict.fromkeys(text for text, _, is_here in asked.sources if not is_here)
    unread |= dict.fromkeys(place for kind, _, place in asked.compiling if kind == "perhaps")
    by_script = sorted(place for kind, _, place in asked.compiling if kind == "script")
    return [*dict.fromkeys((*here, *compiling(asked), *by_script))], [*unread]


_BUILDS = re.compile(r"(?i)setup\.py|(?:.*\.)?makefile|CMakeLists\.txt|.*\.(?:sh|mk|cmake)|configure")
"""Names of files that compile."""
_BY_NVCC = re.compile(
    r"\bnvcc\b|\b\w+\.cu\b|\bCUDAExtension\b|\bcuda_add_\w+|\bfind_package\(CUDA|\bLANGUAGES\b.*\bCUDA\b"
)
"""What runs nvcc: https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/,
https://cmake.org/cmake/help/latest/module/FindCUDA.html
"""
_AGAINST_TENSORFLOW = re.compile(r"(?<!\w)(?:g\+\+|gcc|nvcc)\s.*/tensorflow\b|-ltensorflow_framework\b")
"""What compiles against TensorFlow in a folder that it names itself."""
_BY_SETUP = re.compile(
    r"\bpython[\d.]*\s+\S*setup\.py\s+(?:install|develop|build)|\bpip\d?\s+install\s+[^#\n]*git\+"
)


_SWITCH = re.compile(
    r"os\.(?:getenv|environ\.get)\(\s*['\"](?P<name>\w*(?:FORCE_CUDA|WITH_CUDA|USE_CUDA|BUILD_CUDA|KEEP_CUDA"
    r"|CUDA_EXT|CUDA_BUILD)\w*)['\"]\s*(?:,\s*['\"](?P<default>\w*)['\"]\s*)?\)\s*==\s*['\"](?P<value>\w+)['\"]"
)
"""A variable by which a setup.py compiles CUDA code, whatever it sees of the machine: FORCE_CUDA=1."""


def _switches(text: str) -> list[str]:
    """The variables, each with the value that turns CUDA code on, which it has not by default."""
    found = (one for one in _SWITCH.finditer(text) if not re.search(r"SKIP|NO_|DISABLE", one["name"]))
    switches = (f"{one['name']}={one['value']}" for one in found if one["value"] != one["default"])
    return [
        one for one in dict.fromkeys(switches) if one.partition("=")[2] not in {"0", "FALSE", "False", "OFF"}
    ]


def build_variables(asked: Wishes, cell: Cell, demand: Demand) -> list[str]:
    """What stands before pip where the project's own CUDA code is compiled, as words of a shell: the switches
    of its setup.py, and the architectures of the cards. A machine that builds, as of ``docker build`` or a
    login node, may see no card, and without these it compiles for the CPU alone, or for every architecture.
    """
    if not any(kind == "install" for kind, _, _ in asked.compiling):
        return []
    listed = _listed_for(cell, cards_of(demand.gpus))
    arch = [f"TORCH_CUDA_ARCH_LIST={shlex.quote(listed)}"] if listed else []
    return [*dict.fromkeys(value for kind, value, _ in asked.compiling if kind == "switch"), *arch]


def _listed_for(cell: Cell, cards: Sequence[GpuRow]) -> str:
    """The architectures of the cards as TORCH_CUDA_ARCH_LIST has them: ``8.0 8.6``."""
    known = {_known_to_nvcc(cell, card) for card in cards}
    return " ".join(sorted(known, key=lambda one: key(one.partition("+")[0])))


def note_builds(files: Iterable[Path], found: Wishes) -> None:
    """Remember a project's own scripts and makefiles that run nvcc, those that compile what is not here, and
    the architectures that they name; setup.py by PyTorch's tool is known before.
    """
    known = {place for _, _, place in found.compiling}
    for path in files:
        if path.name == "setup.py" and str(path) in known:
            with contextlib.suppress(UsageError):  # no text
                found.compiling += (("switch", one, str(path)) for one in _switches(read_text(path)))
        if not _BUILDS.fullmatch(path.name) or str(path) in known:
            continue
        with contextlib.suppress(UsageError):  # no text, or too long: another file tells
            text = re.sub(r"(?m)^\s*#.*$", "", read_text(path))
            if _AGAINST_TENSORFLOW.search(text) and "sysconfig" not in text:
                old = re.search(r"/cuda-(\d+\.\d+)", text)
                found.compiling.append(("tensorflow", old[1] if old is not None else "", str(path)))
            if _BY_NVCC.search(text):
                arches = re.findall(r"-arch[= ]\s*(?:sm|compute)_(\d{2,3})|\bcode=sm_(\d{2,3})", text)
                listed = sorted({one or other for one, other in arches}, key=int)
                found.compiling.append(("script", " ".join(listed), str(path)))
            elif path.suffix == ".sh" and _BY_SETUP.search(text):
                found.compiling.append(("perhaps", "", str(path)))


def for_compiling(demand: Demand, asked: Wishes) -> Demand:
    """The demand with a PyTorch whose tool for extensions knows the cards, where the project's own CUDA code
    is compiled by it and no requirement says otherwise.
    """
    places, cards = compiling(asked), cards_of(demand.gpus)
    if not places or not cards:
        return demand
    newest = max(cards, key=lambda card: key(card.capability))
    refused = [row for row in load().extensions if key(row.newest) < key(newest.capability)]
    least = max((row.before for row in refused), key=key, default=None)
    if least is None:
        return demand
    told = f"{newest.name} ({newest.capability})"
    why = f"{places[0]} compiles CUDA code, and {told} is unknown to PyTorch's tool for it before {least}"

    def bounded(wish: NamedRequirement) -> NamedRequirement:
        bound, mine = SpecifierSet(f">={least}"), lower_bound(wish.parsed)
        known = mine is not None and at_least(mine, least)
        if wish.name != "torch" or known or apart(wish.parsed.specifier, bound):
            return wish
        parsed = Requirement(str(wish.parsed))
        parsed.specifier &= bound
        asked.notes.append(f"torch>={least}: {why}")
        return replace(wish, parsed=parsed, use=wish.use or why)

    return replace(demand, frameworks=tuple(map(bounded, demand.frameworks)))


def _refuses(best: Proposal, cards: Sequence[GpuRow]) -> bool:
    """Whether the proposal's PyTorch has a tool for extensions that refuses one of the cards."""
    names = {canonical(one.name): pinned(one) or "" for one in map(Requirement, best.cell.frameworks)}
    version = names.get("torch", "").partition("+")[0]
    return any(
        at_least(version, row.since)
        and not at_least(version, row.before)
        and key(row.newest) < key(card.capability)
        for row in load().extensions
        if version
        for card in cards
    )


def of_compiled(texts: Iterable[str]) -> Iterator[str]:
    """The line that installs on the system what compiling these packages takes, if any needs more than a
    compiler; each as a requirement.
    """
    parsed = (one for text in texts if (one := requirement(text)) is not None)
    named = {canonical(one.name): pinned(one) or "0" for one in parsed}
    rows = [row for name, version in named.items() if (row := load().build_row(name, version)) is not None]
    if not rows:
        return
    debian = sorted({name for row in rows for name in row.needs or ()})
    others = sorted({name for row in rows for name in row.rpm})
    mind = "".join(f"; {row.name}: {row.mind}" for row in rows if row.mind)
    yield (
        f"to compile {', '.join(row.name for row in rows)}, on the system: Debian and Ubuntu `sudo apt-get "
        f"install -y build-essential {' '.join(debian)}`; Fedora `sudo dnf install -y gcc-c++ "
        f"{' '.join(others)}` (which of these RHEL's repositories have was not read){mind} [{rows[0].source}]"
    )


def of_sources(asked: Wishes, best: Proposal, demand: Demand) -> Iterator[str]:
    """What it takes to compile a project's own CUDA code beside the first proposal: nvcc of its CUDA, an
    image that has it, and the architectures of the cards; and which of its own lines say another.
    """
    cuda = cuda_of(best.cell)
    if cuda is None or not (asked.sources or asked.compiling):
        return
    rows = [row for row in load().tags if short(row.cuda, 2) == short(cuda, 2) and row.state == "listed"]
    images = [(row, name) for row in rows for name in row.systems if name.startswith("ubuntu")]
    newest = max(images, key=lambda one: (key(one[0].cuda), key(one[1].removeprefix("ubuntu"))), default=None)
    row, system = newest if newest is not None else (None, "")
    devel = f": an image FROM nvidia/cuda:{row.cuda}-devel-{system} has" if row is not None else ""
    has_it = f"{devel} it" if devel else ""
    cards = cards_of(demand.gpus)
    known = {_known_to_nvcc(best.cell, card) for card in cards}
    listed = _listed_for(best.cell, cards)
    gcc = next((gcc for first, gcc in _GCC if len(key(cuda)) > 1 and key(cuda) >= key(first)), None)
    host = f", with a gcc of at most {gcc} (CC=gcc-{gcc} CXX=g++-{gcc})" if gcc is not None else ""
    host += _later_nvcc(cuda, cards)
    if asked.sources:
        told = ", ".join(f"{text} ({place})" for text, place, _ in asked.sources[:4])
        more = f" and {len(asked.sources) - 4} more" if len(asked.sources) > 4 else ""
        arch = f", with ENV TORCH_CUDA_ARCH_LIST={listed!r}" if listed else ""
        text = (
            f"{told}{more}: to be installed after the others, by `pip install --no-build-isolation`; CUDA "
            f"code in it takes nvcc of CUDA {short(cuda, 2)}, which "
            f"-base and -runtime images lack{host}{has_it}{arch}"
        )
        folders = [one for one, _, here in asked.sources if not here and "://" not in one and one != "."]
        yield text + "; its folder is not here: `git submodule update --init --recursive`" * bool(folders)
    installed = [place for kind, _, place in asked.compiling if kind == "install"]
    if installed and not any(text == "." for text, _, _ in asked.sources):
        arch = f", with TORCH_CUDA_ARCH_LIST={listed!r}" if listed else ""
        yield (
            f"{', '.join(installed[:4])}: CUDA code of the project's own, compiled as `pip install "
            f"--no-build-isolation` of its folder, after the others, by nvcc of CUDA {short(cuda, 2)}, which "
            f"-base and -runtime images lack{host}{has_it}{arch}"
        )
    at_run = [(value, place) for kind, value, place in asked.compiling if kind == "run"]
    if at_run:
        image = f"{devel} both" if devel else ""
        needed = f", without which it ends with `Unknown CUDA arch` on {cards[0].name}" * _refuses(
            best, cards[:1]
        )
        image += f"; with TORCH_CUDA_ARCH_LIST={listed!r}{needed}" if listed else ""
        yield (
            f"{', '.join(place for _, place in at_run[:4])}: {at_run[0][0]} compiles CUDA code as it runs, "
            f"by nvcc of CUDA {short(cuda, 2)}{host} and ninja; -base and -runtime images lack them{image}"
        )
    yield from _of_scripts(asked, f"CUDA {short(cuda, 2)}", host + has_it, cards, known)
    yield from _against_tensorflow(asked, short(cuda, 2))
    for kind, value, place in asked.compiling:
        if kind in {"run", "install", "script", "perhaps", "tensorflow", "switch"}:
            continue
        if kind == "architectures":
            for card in () if _compiled_for(value, cards) else cards[:1]:
                said = f"{place}: TORCH_CUDA_ARCH_LIST={value!r} has no {card.capability} ({card.name})"
                slow = ", and its PTX is compiled anew as programs start" * ("+PTX" in value)
                yield f"{said}{slow}: put {listed!r} there"
        elif key(value)[:2] != key(cuda)[:2]:
            yield (
                f"{place}: nvcc of CUDA {value} beside a PyTorch for CUDA {cuda}: take that of CUDA "
                f"{short(cuda, 2)}, nvidia/label/cuda-{row.cuda if row is not None else cuda}"
            )


def _of_scripts(
    asked: Wishes, cuda: str, compiler: str, cards: Sequence[GpuRow], known: Iterable[str]
) -> Iterator[str]:
    """What a project's own scripts and makefiles take that run nvcc, and which name no card of these."""
    scripts = [(value, place) for kind, value, place in asked.compiling if kind == "script"]
    if not scripts:
        return
    more = f" and {len(scripts) - 4} more" if len(scripts) > 4 else ""
    yield (
        f"{', '.join(place for _, place in scripts[:4])}{more}: the project compiles CUDA code of its own, "
        f"by nvcc of {cuda}, which no wheel brings and -base and -runtime images lack{compiler}"
    )
    put = " and ".join(sorted(f"sm_{one.partition('+')[0].replace('.', '')}" for one in known))
    for value, place in scripts:
        named = " ".join(f"{one[:-1]}.{one[-1]}" for one in value.split())
        if named and cards and not _compiled_for(named, cards):
            asks = ", ".join(f"sm_{one}" for one in value.split())
            has = f"{cards[0].name} has {cards[0].capability}"
            yield f"{place}: compiles for {asks}, and {has}: put {put} there"


def _later_nvcc(cuda: str, cards: Sequence[GpuRow]) -> str:
    """Which nvcc of the same major knows the cards, where that of a build's CUDA does not: 11.8 beside cu117
    on an 8.9. Builds that ask the card itself stop without it: `nvcc fatal: Unsupported gpu architecture`.
    """
    rows = (row for row in load().architectures for card in cards if card.capability in row.capabilities)
    first = max((row.nvcc for row in rows if row.nvcc is not None), key=key, default=cuda)
    if key(first) <= key(cuda)[:2] or key(first)[0] != key(cuda)[0]:
        return ""
    names = " and ".join(f"{card.name} ({card.capability})" for card in cards)
    return f"; or of CUDA {first}, of the same major, which knows {names}, where a build asks the card itself"


def _against_tensorflow(asked: Wishes, cuda: str) -> Iterator[str]:
    """What stands for the folders of TensorFlow and of CUDA that a project's scripts name themselves:
    https://www.tensorflow.org/api_docs/python/tf/sysconfig
    """
    scripts = [(value, place) for kind, value, place in asked.compiling if kind == "tensorflow"]
    if not scripts:
        return
    flags = (f"$(python -c 'import tensorflow as tf; print(*tf.sysconfig.{name}())')" for name in _FLAGS)
    more = f" and {len(scripts) - 4} more" if len(scripts) > 4 else ""
    others = sorted({value for value, _ in scripts if value and value != cuda}, key=key)
    paths = f", and /usr/local/cuda-{cuda} in that of /usr/local/cuda-{', -'.join(others)}" * bool(others)
    yield (
        f"{', '.join(place for _, place in scripts[:4])}{more}: compiles against TensorFlow: "
        f"{' and '.join(f'`{one}`' for one in flags)} in place of its folders and of -ltensorflow_framework"
        f"{paths}: with another ABI or library what is compiled ends with `undefined symbol`"
    )


_FLAGS = ("get_compile_flags", "get_link_flags")
_GCC = (("13.0", 15), ("12.8", 14), ("12.4", 13), ("12.0", 12), ("11.5", 11), ("11.1", 10), ("11.0", 9))
"""The newest gcc that nvcc takes, from each CUDA on: host_config.h, and the tables of host compilers in
https://docs.nvidia.com/cuda/archive/ (CUDA Installation Guide for Linux).
"""


def _known_to_nvcc(cell: Cell, card: GpuRow) -> str:
    """The newest architecture that runs on a card, ``8.6`` on one of 8.9, of those that the framework's own
    build is for: its nvcc knows them. Without one of the card's major the newest older one, with its PTX. The
    card's own if nobody read the build.
    """
    have = key(card.capability)
    for parsed in map(Requirement, cell.frameworks):
        release_, _, taken = (pinned(parsed) or "").partition("+")
        for row in load().table(canonical(parsed.name)).of(release_):
            if row.variant != taken and (taken or not row.default):
                continue
            made = {f"{text[3:-1]}.{text[-1]}" for text in row.architectures if re.fullmatch(r"sm_\d+", text)}
            fitting = [one for one in made if key(one) <= have]
            best = max(fitting, key=key, default=card.capability)
            return best + "+PTX" * (key(best)[0] != have[0])
    return card.capability


def _compiled_for(listed: str, cards: Sequence[GpuRow]) -> bool:
    """Whether ``8.0 8.6`` makes code for all cards: that of the same major, and of a minor not above it."""
    made = [key(one) for one in re.findall(r"\d+\.\d", listed)]
    have = [key(card.capability) for card in cards]
    return not made or all(any(one[0] == mine[0] and one <= mine for one in made) for mine in have)
