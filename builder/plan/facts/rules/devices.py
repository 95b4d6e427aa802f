"""The machine: is its driver new enough, will the container start, is there code for its GPUs?

Some of that code is compiled as programs run: whether the image has what that takes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from builder.core.versions import agree, at_least, canonical, contains, key, major, pinned, requirement, short
from builder.plan.facts.rules.cell_packages import CellFramework, CellPackage
from builder.plan.facts.rules.finding import (
    CELL,
    Finding,
    Outcome,
    Value,
    impossible,
    possible,
    unknown,
    warns,
)
from builder.plan.facts.rules.image_contents import Stack, asked_names, given_driver
from builder.plan.facts.rules.machines import MachineDrivers, drivers_of
from builder.plan.facts.tables import (
    CudnnRow,
    GpuRow,
    KernelRow,
    Source,
    builds_of,
    card_of,
    driver_installs,
    load,
    maker_of,
    near_names,
    other_cards,
)


def cuda_versions(stack: Stack) -> tuple[Value, ...]:
    """Every CUDA that the driver has to serve: the base's, the wheels', what frameworks are compiled for.

    CTranslate2 has its runtime inside and takes the other libraries from outside.
    """
    compiled = [framework.cuda for framework in stack.frameworks]
    compiled += [_of_package(one) for one in stack.beside]
    found = (stack.base_cuda, stack.wheel_cuda.version if stack.wheel_cuda else None, *compiled)
    return tuple(value for value in found if value is not None)


def _of_package(one: CellPackage) -> Value | None:
    """CUDA that a package beside the frameworks was compiled with; its code for GPUs is its own rule's."""
    row = one.row
    if row is None or row.cuda is None or row.archive == "source" or one.variant:
        return None
    return Value(f"CUDA that {one.name} was compiled with", row.cuda, row.source_of("cuda"))


def driver(stack: Stack) -> Iterator[Finding]:
    """``driver``: within a CUDA major any driver from its floor on; before CUDA 11, the toolkit's own."""
    needs = [need for value in cuda_versions(stack) if (need := _floor(value)) is not None]
    if not needs:
        return
    need = max(needs, key=lambda value: key(value.text))
    if stack.driver is None:
        yield possible(f"the machine needs driver {need.text} or newer", need)
        return
    given = stack.driver.text
    outcome = _against(given, need.text)
    if outcome is Outcome.IMPOSSIBLE and (forward := _forward(stack, need)) is not None:
        yield forward
        return
    message = {
        Outcome.POSSIBLE: f"driver {given} is not older than {need.text}",
        Outcome.UNKNOWN: f"branch {given} has releases before and after {need.text}; give the full version",
        Outcome.IMPOSSIBLE: f"driver {given} is older than {need.text}",
    }[outcome]
    yield Finding(outcome, message, (stack.driver, need))


def _forward(stack: Stack, need: Value) -> Finding | None:
    """The finding for ``cuda-compat`` in the base beside an older driver: NVIDIA's forward compatibility.

    None if there is none in the base, if it is older than what is needed, or not for this branch or card.
    """
    compat, given = compat_driver(stack), stack.driver
    if compat is None or given is None or not at_least(compat.text, need.text):
        return None
    served = {name: _is_forward(card_of(name)) for name in stack.cell.gpus}
    package = f"{compat.what} in the base gets past that on data-centre cards"
    older = f"driver {given.text} is older than {need.text}; {package}"
    if not served:
        return unknown(f"{older}: `gpus` says which card it is", given, need, compat)
    if others := ", ".join(name for name, is_served in served.items() if is_served is False):
        return impossible(f"{older}, and {others} is none", given, need, compat)
    if unsure := ", ".join(name for name, is_served in served.items() if is_served is None):
        return unknown(f"{older}: whether {unsure} is one is not known", given, need, compat)
    supported = load().compat.get(short(stack.base_cuda.text, 2)) if stack.base_cuda is not None else None
    branch = str(major(given.text))
    if supported is None or branch not in supported.branches:
        older += f"; NVIDIA's image admits branch {branch}, whose support has ended"
    return warns(older, given, need, compat)


def _is_forward(card: GpuRow | None) -> bool | None:
    """Whether ``cuda-compat`` works on a card; None for one that nobody knows, and for a compute capability
    of which it does on some cards.
    """
    every = [] if card is None else [card]
    if card is not None and card.name.startswith("sm_"):
        every = [row for row in load().gpus.values() if row.capability == card.capability]
    answers = {row.name in load().forward.cards for row in every}
    return answers.pop() if len(answers) == 1 else None


def by_compat(findings: Iterable[Finding]) -> Finding | None:
    """The reservation of a cell that this driver runs by ``cuda-compat`` in the base alone, else None."""
    return next((one for one in findings if one.rule == "driver" and one.outcome is Outcome.WARNS), None)


def compat_driver(stack: Stack) -> Value | None:
    """The user-mode driver that ``cuda-compat`` in an nvidia/cuda base brings for the given branch."""
    listed = _branches(stack)
    if stack.driver is None or stack.base_cuda is None or stack.tag is None or listed is None:
        return None
    row = load().compat.get(short(stack.base_cuda.text, 2))
    branch, own = str(major(stack.driver.text)), own_driver(stack.base_cuda)
    arm = stack.cell.platform != "linux/amd64"
    admitted = branch in listed[0] or (row is not None and branch in row.branches)
    if own is None or arm or not admitted or _against(stack.driver.text, own.text) is Outcome.POSSIBLE:
        return None
    return replace(own, what=f"cuda-compat-{short(stack.base_cuda.text, 2).replace('.', '-')}")


def _against(driver_version: str, need: str) -> Outcome:
    """Whether a driver is not older than ``need``; ``unknown`` for a branch that began before it.

    A bare branch is compared as its first public release: all that are installed are at least that one.
    """
    begun = load().branches.get(driver_version)
    if at_least(begun.first if begun is not None else driver_version, need):
        return Outcome.POSSIBLE
    branch = len(key(driver_version)) < len(key(need)) and agree(driver_version, need)
    return Outcome.UNKNOWN if branch else Outcome.IMPOSSIBLE


def _floor(cuda: Value) -> Value | None:
    """The floor of the family, or the toolkit's own driver if that is older, as CUDA 11.0's is."""
    family = load().families.get(str(major(cuda.text)))
    own = own_driver(cuda) if family is not None else None
    if family is None or family.floor is None or (own is not None and not at_least(own.text, family.floor)):
        return own
    return Value(f"driver floor of CUDA {family.major}", family.floor, family.source)


def own_driver(cuda: Value) -> Value | None:
    """The driver that came with a toolkit: compiling PTX at run time needs it."""
    version = short(cuda.text, 2)
    row = load().own_drivers.get(version)
    return Value(f"driver of CUDA {version}", row.driver, row.source) if row is not None else None


def require_cuda(stack: Stack) -> Iterator[Finding]:
    """``require-cuda``: on which drivers ``NVIDIA_REQUIRE_CUDA`` in the base lets it start."""
    if stack.driver is None or stack.base_cuda is None:
        return
    own, exceptions = own_driver(stack.base_cuda), _branches(stack)
    branch = str(major(stack.driver.text))
    if own is None or exceptions is None or _against(stack.driver.text, own.text) is Outcome.POSSIBLE:
        return
    branches, consumer, source = exceptions
    if branch == str(major(own.text)):
        return
    allowed = Value("driver branches that may start it", ", ".join(branches) or "none", source)
    if branch not in branches:
        yield impossible(
            f"the container does not start: the base demands CUDA {short(stack.base_cuda.text, 2)} of the "
            f"driver, {stack.driver.text} is older, and branch {branch} is not among its exceptions",
            stack.driver,
            own,
            allowed,
        )
        return
    cards = [card_of(name) for name in stack.cell.gpus]
    geforce = ", ".join(card.name for card in cards if card is not None and card.consumer)
    if geforce and not consumer:
        yield impossible(
            f"the container does not start: on branch {branch} the base admits data-centre and "
            f"workstation GPUs only, not {geforce}",
            stack.driver,
            allowed,
        )
    elif not consumer and (not cards or any(card is None or card.consumer is None for card in cards)):
        text = f"on branch {branch} the base starts on data-centre and workstation GPUs only, not on GeForce"
        yield warns(text, stack.driver, allowed)


def _branches(stack: Stack) -> tuple[tuple[str, ...], bool, Source] | None:
    """Driver branches that may start the base, whether on GeForce cards too, and the source of that."""
    base = stack.truth.base
    if base is not None and (read := base.variable("NVIDIA_REQUIRE_CUDA")) is not None:
        found = re.findall(r"brand=(\w+),driver>=(\d+),driver<\d+", read)
        branches = tuple(sorted({branch for _, branch in found}))
        consumer = any(brand.startswith("geforce") for brand, _ in found)
        return branches, consumer, base.source
    if stack.tag is not None and stack.tag.row is not None and stack.tag.row.branches:
        return stack.tag.row.branches, stack.tag.row.consumer, stack.tag.row.source
    return None


def gpus(stack: Stack) -> Iterator[Finding]:
    """``gpu``: CUDA, cuDNN and the framework's wheel all have code for each GPU that the cell claims."""
    for name in stack.cell.gpus:
        row, asked = card_of(name), Value("gpu", name, CELL)
        if row is None and (maker := maker_of(name)) is not None:
            other = f"{name} is {maker}'s, and CUDA runs on NVIDIA's GPUs alone"
            yield impossible(f"{other}; {builds_of(maker)}", asked)
        elif row is None:
            near = ", ".join(near_names(name))
            yield unknown(
                f"{name} is no GPU that rtbuild knows{f'; is it one of {near}?' if near else '.'} Its "
                "compute capability would settle it (`nvidia-smi --query-gpu=compute_cap`): "
                "write sm_90 for 9.0",
                asked,
            )
        if row is None:
            continue
        if others := other_cards(name):
            yield warns(f"{name} is read as {row.name}; it may mean {' or '.join(others)}, too", asked)
        if row.platform not in {None, stack.cell.platform}:
            yield impossible(
                f"{row.name} is built together with an ARM processor, and the cell is for "
                f"{stack.cell.platform}: `platform: {row.platform}`",
                Value(f"platform of {row.name}", row.platform, row.sources[-1]),
                Value("platform", stack.cell.platform, CELL),
            )
        for given in map(given_driver, drivers_of(stack.machines, row.name) if stack.machines else ()):
            yield from _served(row, given)
        yield from _toolkit(stack, row)
        yield from _cudnn(stack, row)
        for framework in stack.frameworks:
            yield from _kernels(stack, framework, row)


def _capability(row: GpuRow) -> Value:
    return Value(f"compute capability of {row.name}", row.capability, row.source)


def _served(gpu: GpuRow, given: Value) -> Iterator[Finding]:
    """The driver has to know the card, whatever CUDA the image holds."""
    row = next((row for row in load().architectures if gpu.capability in row.capabilities), None)
    if row is None:
        text = f"which drivers serve {gpu.name} ({gpu.capability}) is not known; nvidia-smi beside it says so"
        yield unknown(text, given, _capability(gpu))
        return
    outcome = Outcome.POSSIBLE if row.since is None else _against(given.text, row.since)
    if row.since is not None and outcome is not Outcome.POSSIBLE:
        need = f"{gpu.name} ({row.name}) needs driver {row.since} or newer; here is {given.text}"
        yield Finding(outcome, need, (given, Value(f"oldest driver of {row.name}", row.since, row.source)))
    card = load().card_drivers.get(gpu.name)
    if card is not None and outcome is Outcome.POSSIBLE:
        values = (given, Value(f"first driver that lists {gpu.name}", card.since, card.source))
        first = f"{card.since} is the first driver that lists {gpu.name}"
        listed = _against(given.text, card.since)
        if listed is Outcome.UNKNOWN:
            yield warns(f"{first}; an older one of branch {given.text} may not serve it", *values)
        elif listed is Outcome.IMPOSSIBLE:
            # it serves the generation: releases differ in fixes and in the names that they know
            shows = "that `nvidia-smi` names the card shows that it serves it"
            yield warns(f"{first}; {given.text}, an older one, serves its generation: {shows}", *values)
    if row.before is not None and at_least(given.text, row.before):
        yield impossible(
            f"drivers from {row.before} on serve {row.name} no more; {gpu.name} needs an older one, and here "
            f"is {given.text}",
            given,
            Value(f"first driver without {row.name}", row.before, row.source),
        )


def _toolkit(stack: Stack, gpu: GpuRow) -> Iterator[Finding]:
    majors = dict.fromkeys(str(major(cuda.text)) for cuda in cuda_versions(stack))
    for family in map(load().families.get, majors):
        if family is None or family.capability_min is None or family.capability_max is None:
            continue
        oldest, newest = family.capability_min, family.capability_max
        if not at_least(gpu.capability, oldest) or not at_least(newest, gpu.capability):
            serves = Value(f"CUDA {family.major}", f"{oldest} to {newest}", family.source)
            text = f"{serves.what} serves compute capability {serves.text}; {gpu.name} has {gpu.capability}"
            yield impossible(text, _capability(gpu), serves)


def _cudnn(stack: Stack, gpu: GpuRow) -> Iterator[Finding]:
    for version in (copy.version for copy in stack.copies if copy.version is not None):
        text = short(version.text, 3)
        row, newer = _lines_around(text)
        if row is None:
            continue
        line, span = _line_of(row, text)
        card, values = f"{gpu.name} ({gpu.capability})", (_capability(gpu), version)
        if not at_least(gpu.capability, row.capability_min):
            said = f"{line} serves compute capability {span}; {card} is older"
            yield impossible(said, *values, Value(line, span, row.source))
        elif (
            newer is not None
            and not contains(row.versions, text)
            and _serves(row, gpu) != _serves(newer, gpu)
        ):
            other, newer_span = _line_of(newer, text)
            said = f"whether cuDNN {text} serves {card} is not known: {line} serves compute capability {span}"
            said += f", {other} {newer_span}"
            # a newer card may take an older line's code for others; an older one takes none of a newer line
            judge = warns if _serves(newer, gpu) else unknown
            yield judge(said, *values, Value(line, span, row.source), Value(other, newer_span, newer.source))
        elif not at_least(row.capability_max, gpu.capability):
            # a binary runs on later cards of its major version, unless the card is one of Tegra's:
            # https://docs.nvidia.com/cuda/cuda-programming-guide/ (Binary Compatibility)
            same = row.capability_max.partition(".")[0] == gpu.capability.partition(".")[0] and not gpu.tegra
            means = f"it runs the code for {row.capability_max}" if same else "whether it has code for it"
            said = f"{line} serves compute capability {span}; {card} is newer: {means}, which a run proves"
            yield warns(said, *values, Value(line, span, row.source))


def _serves(row: CudnnRow, gpu: GpuRow) -> bool:
    return at_least(gpu.capability, row.capability_min) and at_least(row.capability_max, gpu.capability)


def _line_of(row: CudnnRow, version: str) -> tuple[str, str]:
    """A line by its name, which is the release's own if it is of it, and the cards that it serves."""
    bounds = ",".join(sorted(map(str, row.versions), reverse=True))
    name = version if contains(row.versions, version) else bounds
    return f"cuDNN {name}", f"{row.capability_min} to {row.capability_max}"


def _lines_around(cudnn: str) -> tuple[CudnnRow | None, CudnnRow | None]:
    """The line on record that a release is of, or the last before it; and the next one."""
    begins = [(min((clause.version for clause in row.versions), key=key), row) for row in load().cudnn]
    older = [row for begin, row in begins if at_least(cudnn, begin)]
    newer = [row for begin, row in begins if not at_least(cudnn, begin)]
    return (older[-1] if older else None, newer[0] if newer else None)


def _kernels(stack: Stack, framework: CellFramework, gpu: GpuRow) -> Iterator[Finding]:
    wheel, row, name = framework.wheel, framework.row, _code_of(stack)
    if wheel is not None and wheel.architectures:
        listed, source = wheel.architectures, wheel.source
    elif row is not None and (found := getattr(row, name)):
        listed, source = found, row.source_of(name)
    else:
        yield from _not_listed(stack, framework, gpu)
        return
    values = [_capability(gpu), Value(f"code in {framework.title}", " ".join(listed), source)]
    have = key(gpu.capability)[:2]
    kernels = [_arch(text) for text in listed if text.startswith("sm_")]
    desktop = any(kernel[0] == have[0] and kernel[1] <= have[1] for kernel in kernels)
    if have in kernels or (desktop and not gpu.tegra):
        return
    if not any(_arch(text) <= have for text in listed if text.startswith("compute_")):
        why = ""
        if desktop:
            runs = f"sm_{have[0]}{have[1]}, or PTX"
            values.append(Value(f"code that runs on {gpu.name}", runs, gpu.sources[-1]))
            why = " itself: code for desktop cards does not run on Jetson, whose own wheels have it"
        yield impossible(f"{framework.label} has no code for {gpu.name} ({gpu.capability}){why}", *values)
        return
    own = own_driver(framework.cuda) if framework.cuda is not None else None
    only = f"{framework.label} has only PTX for {gpu.name}"
    compat = compat_driver(stack)
    served = _is_forward(gpu) if compat is not None else False
    oldest = drivers_of(stack.machines, gpu.name)[0] if stack.machines else None
    there = compat if served else given_driver(oldest) if oldest is not None else None
    outcome = Outcome.POSSIBLE if there is None or own is None else _against(there.text, own.text)
    if served is None and outcome is Outcome.IMPOSSIBLE:
        outcome = Outcome.UNKNOWN
    if own is not None and outcome is not Outcome.POSSIBLE:
        yield Finding(outcome, f"{only}, and compiling it needs driver {own.text}", (*values, own))
    else:
        yield warns(f"{only} ({gpu.capability}): the first start compiles for minutes", *values)


def _code_of(stack: Stack) -> str:
    """The field of a row with the GPU code of its wheel for the cell's platform."""
    return "architectures_arm64" if stack.cell.platform.endswith("arm64") else "architectures"


def _not_listed(stack: Stack, framework: CellFramework, gpu: GpuRow) -> Iterator[Finding]:
    """Nobody read which GPUs the wheel has code for: no yes, and no reason for a no."""
    row, platform = framework.row, stack.cell.platform
    if row is None or framework.variant == "cpu" or platform in row.cpu_only or platform not in row.platforms:
        return  # `framework-known` or `platform` has said what is not known, or that there is no code at all
    why = row.unread.get(_code_of(stack), "no file says which architectures it was built for")
    whether = f"whether {framework.label} has code for {gpu.name} ({gpu.capability}) is not known"
    yield unknown(f"{whether}: {why}; `rtbuild check --read` asks the wheel itself", _capability(gpu))


def _arch(text: str) -> tuple[int, ...]:
    digits = re.sub(r"\D", "", text)
    return int(digits[:-1]), int(digits[-1])


# -- what a reader has to know of cards


def of_generations(gpus: Sequence[str], driver_: str | None = None, *, modules: bool = True) -> Iterator[str]:
    """Lines on the cards of a demand: the last driver branch of each generation that newer ones do not serve,
    which of several cards stays with current builds, and with ``modules`` the kernel modules that they need.
    """
    named = {gpu: row.capability for gpu in gpus if (row := card_of(gpu)) is not None}
    for kind in load().architectures:
        cards = _with_and(gpu for gpu, capability in named.items() if capability in kind.capabilities)
        if not cards or kind.before is None:
            continue
        last = max((one for one in load().branches if key(one) < key(kind.before)), key=key, default=None)
        is_last = (
            f"{last} is the last driver branch for {cards} ({kind.name})"
            if last
            else f"{cards} ({kind.name})"
        )
        yield f"{is_last}: no driver from {kind.before} on serves it [{kind.source}]"
    newest = max(load().families.values(), key=lambda family: key(family.major))
    oldest = newest.capability_min or "0"
    old = [f"{gpu} ({capability})" for gpu, capability in named.items() if not at_least(capability, oldest)]
    young = [f"{gpu} ({capability})" for gpu, capability in named.items() if at_least(capability, oldest)]
    if old and young:
        yield (
            f"current builds stay with {_with_and(young)}: CUDA {newest.major} serves compute capability "
            f"{oldest} and newer, and so neither it nor what is built with it serves {_with_and(old)} "
            f"[{newest.source}]"
        )
    if modules:
        yield from _kernel_modules(named, driver_)


def of_driver(gpus: Sequence[str], least: str, *, modules: bool = True) -> Iterator[str]:
    """How a driver is installed that is at least ``least`` and serves the cards: a line for each system."""
    if not modules:
        yield "a newer driver on Windows itself: https://www.nvidia.com/en-us/drivers/, then `wsl --shutdown`"
        return
    for system, command in driver_installs(gpus, least):
        yield f"driver {least} or newer on {system}: `{command}`"


def of_older_driver(cuda: str, gpus: Sequence[str], driver_: str) -> Iterator[str]:
    """What a driver does not do that runs a newer CUDA of its major version by NVIDIA's minor-version
    compatibility: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
    """
    own = load().own_drivers.get(short(cuda, 2))
    if own is None or _against(driver_, own.driver) is not Outcome.IMPOSSIBLE:
        return
    told = (
        f"driver {driver_} is older than CUDA {short(cuda, 2)} ({own.driver}): it runs what is compiled for "
        "the card, and translates no PTX of that CUDA, which fails as `unsupported toolchain`"
    )
    if gpus and all(gpu in load().forward.cards for gpu in gpus):
        told += (
            f"; `cuda-compat-{short(cuda, 2).replace('.', '-')}` of NVIDIA's repository does, on these cards"
        )
    yield f"{told} [{own.source}]"


def driver_of(finding: Finding) -> str | None:
    """The driver that is asked for by a finding on one that is too old, ``580.65.06``; None for another."""
    if not any(value.what == "driver" for value in finding.values):
        return None
    numbers = (value.text for value in finding.values[1:] if re.fullmatch(r"\d{3,}(\.\d+)*", value.text))
    return max(numbers, key=key, default=None)


_OPEN_BY_DEFAULT = "560"
"""The first branch whose installer takes the open kernel modules by itself, by the source of their table."""


def _kernel_modules(named: Mapping[str, str], driver_: str | None) -> Iterator[str]:
    """The kind of the driver's kernel modules that a card needs, and cards that have none in common."""
    serving, branches = dict[str, list[str]](), {driver_} - {None}
    for gpu, capability in named.items():
        kind = next((one for one in load().architectures if capability in one.capabilities), None)
        if kind is not None and (row := load().kernel_modules.get(kind.name)) is not None:
            serving.setdefault(row.kind, []).append(gpu)
            branches |= {kind.since} - {None}
    source = next(iter(load().kernel_modules.values())).source
    young, old = serving.get("open", ()), serving.get("proprietary", ())
    if young:
        since = max(filter(None, branches), key=key)
        yield (
            f"{_with_and(young)}: the driver's open kernel modules alone serve it, on Ubuntu "
            f"nvidia-driver-{major(since)}-open [{source}]"
        )
    apart = isinstance(driver_, MachineDrivers)
    if young and old and not apart:
        yield (
            f"{_with_and(old)} beside {_with_and(young)} in one computer: one driver serves not both, for "
            "the open kernel modules serve Turing and newer, and the proprietary ones nothing from Blackwell "
            f"on [{source}]"
        )
    elif old and not young and driver_ is not None and at_least(driver_, _OPEN_BY_DEFAULT):
        yield (
            f"{_with_and(old)}: the driver's proprietary kernel modules alone serve it; from "
            f"{_OPEN_BY_DEFAULT} on the installer takes the open ones unless told: on Ubuntu "
            f"nvidia-driver-{major(driver_)}, without -open [{source}]"
        )


def _with_and(names: Iterable[str]) -> str:
    return " and ".join(names)


# -- code that is compiled as programs run


_TOOLS = {
    "cc": "a C compiler",
    "cxx": "a C++ compiler",
    "python-headers": "the headers of Python",
    "nvcc": "nvcc",
    "ptxas": "ptxas",
}
_TOOLS_OF_APT = {
    "cc": r"gcc(-\d+)?|clang(-\d+)?|g\+\+(-\d+)?|build-essential",
    "cxx": r"g\+\+(-\d+)?|clang(-\d+)?|build-essential",
    "nvcc": r"cuda-nvcc-.*|cuda-toolkit-.*|nvidia-cuda-toolkit",
}
"""Debian packages that have it."""
_ALL_LISTED = 90
"""Targets above it are all in the row of a release that knows them; of older ones some are left out."""


def kernels(stack: Stack) -> Iterator[Finding]:
    """``kernels``: what packages compile as programs run can be compiled in the image."""
    there = _tools(stack)
    if there is None:
        return
    names, asked = stack.package_names, asked_names(stack.cell)
    wanted = {one.name for one in stack.beside if any(who != "the cell" for who, _ in one.wanted)}
    for row in load().kernels.values():
        missing = any(one not in (*row.brings, *there) for one in row.needs)
        if row.name in names and row.unless not in names and missing:
            yield _not_compiled(row, alone=row.name in asked - wanted)
        if "ptxas" in row.brings and row.name in names:
            yield from _assembled(stack, row)


def _assembled(stack: Stack, row: KernelRow) -> Iterator[Finding]:
    """The package's own ptxas knows the cards; ``TRITON_PTXAS_PATH`` and the like name another one."""
    table, version = load().packages[row.name], _release_of(stack, row.name)
    one = table.row(version) if version is not None else None
    if one is None or not one.architectures or any(name.endswith("PTXAS_PATH") for name, _ in stack.cell.env):
        return
    if row.second is not None and at_least(one.version, row.second):
        return  # with a second ptxas for newer cards, whose list is not in the row
    for card in filter(None, map(card_of, stack.cell.gpus)):
        target = f"sm_{card.capability.replace('.', '')}"
        if target not in one.architectures and int(target.removeprefix("sm_")) > _ALL_LISTED:
            text = f"the ptxas in {one.label} does not know {card.name} ({target}): {row.uses} fail there"
            ways = f"{row.name}>={row.second} has one that does; TRITON_PTXAS_PATH names one of a newer CUDA"
            yield warns(f"{text}; {ways}", Value("cards it knows", " ".join(one.architectures), row.source))


def _release_of(stack: Stack, name: str) -> str | None:
    """The release of a package in the image: by the lock, the cell, or a framework's pin."""
    if (wheel := stack.truth.wheel(name)) is not None:
        return wheel.version
    lines = [line for one in stack.frameworks if one.row is not None for line in one.row.requires]
    parsed = filter(None, map(requirement, (*stack.cell.pip, *lines)))
    return next(filter(None, (pinned(one) for one in parsed if canonical(one.name) == name)), None)


def _not_compiled(row: KernelRow, *, alone: bool) -> Finding:
    """``alone``: the cell itself names the package, and no other one wants it. For one that does, as vLLM
    wants FlashInfer, it is one way of several, chosen by card and model.
    """
    takes = [one for one in row.needs if one not in row.brings]
    ways = ["`compilers: true` brings compilers and headers"]
    if "nvcc" in takes:
        ways.append("nvcc is in the devel flavour of an nvidia/cuda tag")
    if row.unless is not None:
        ways.append(f"{row.unless} has kernels that are compiled already")
    values = (
        Value(f"what {row.uses} takes", ", ".join(row.needs), row.source),
        Value("packages", row.name, CELL),
    )
    judge = impossible if row.when == "always" and alone else possible
    words = " and ".join(_TOOLS[one] for one in takes)
    return judge(f"{row.uses} cannot compile here, which takes {words}: {'; '.join(ways)}", *values)


def _tools(stack: Stack) -> set[str] | None:
    """The tools that the image has; None if nobody knows the contents of the base."""
    cell, tag = stack.cell, stack.tag
    if cell.base.kind == "registry" and tag is None:
        return None
    apt = [text.partition("=")[0] for text in cell.apt]
    found = {one for one, names in _TOOLS_OF_APT.items() if any(re.fullmatch(names, name) for name in apt)}
    headers = rf"(lib)?python({re.escape(cell.python)}|3)-dev"
    own = cell.has_own_python(stack.system)
    if cell.compilers or not own or any(re.fullmatch(headers, name) for name in apt):
        found.add("python-headers")
    if cell.compilers:
        found |= {"cc", "cxx"}
    if tag is not None and tag.flavour == "devel":
        # https://gitlab.com/nvidia/container-images/cuda, dist/*/devel: build-essential and the toolkit
        found |= {"cc", "cxx", "nvcc", "ptxas"}
    if "nvidia-cuda-nvcc" in stack.package_names and {"CUDA_HOME", "CUDA_PATH"} & {
        name for name, _ in cell.env
    }:
        found |= {"nvcc", "ptxas"}  # nothing looks for it in the wheel, which is CUDA 13's, by itself
    return found
