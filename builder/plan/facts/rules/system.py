"""Is there such a framework, such a base, such a Python on it, and does its glibc run the wheels?"""

import re
from collections.abc import Iterator

from builder.core.errors import CellError, RtbuildError
from builder.core.model import Cell
from builder.core.versions import at_least, canonical, contains, key, pinned, requirement, short
from builder.plan.facts.reading import DOCKER_HUB, CudaTag
from builder.plan.facts.rules.candidates import REBUILT
from builder.plan.facts.rules.cell_packages import PYTORCH, CellFramework
from builder.plan.facts.rules.finding import CELL, Finding, Value, impossible, unknown, warns
from builder.plan.facts.rules.image_contents import Stack
from builder.plan.facts.tables import Source, TagRow, load
from builder.sources.index import glibc_of, takes

_STANDALONE_GLIBC = "2.17"
_RUNNING = Source(
    "table", "https://github.com/astral-sh/python-build-standalone/blob/main/docs/running.md", "2026-11-22"
)

_TORCH_INDEX = re.compile(r"cu\d+|cpu|xpu|rocm[\d.]+")

_OTHERS = {"cpu": "the CPU", "rocm": "AMD's GPUs", "xpu": "Intel's GPUs"}
"""Variants of PyTorch's without CUDA."""


def known_framework(stack: Stack) -> Iterator[Finding]:
    """``framework-known``: there is such a release with CUDA in it, and something is known about it."""
    wants_gpu = bool(stack.cell.gpus) or stack.cell.cuda.provider != "none"
    for framework in stack.frameworks:
        values = [Value("framework", framework.requirement, CELL)]
        if (build := load().without.get(framework.name)) is not None:
            values.append(Value("build without CUDA", build.name, build.source))
        if (without := _without_cuda(framework, stack)) is not None:
            if wants_gpu and framework.requirement in stack.cell.frameworks:
                yield impossible(f"{framework.label} has no code for NVIDIA's GPUs: {without}", *values)
            elif wants_gpu:  # beside a framework with CUDA it may be meant for the CPU
                yield warns(f"{framework.label}, in pip, runs on the CPU: {without}", *values)
        elif framework.row is not None or (framework.wheel is not None and framework.wheel.cuda):
            continue
        elif (missing := _no_such_release(framework, stack.cell)) is not None:
            yield impossible(missing, *values)
        elif framework.table is not None or wants_gpu:
            # what another package was compiled for is no question in an image without CUDA
            yield unknown(_why(framework, stack), *values)


def _without_cuda(framework: CellFramework, stack: Stack) -> str | None:
    """The reason why there is no CUDA in it; None if there is, or if that is not known."""
    platform = stack.cell.platform
    if (build := load().without.get(framework.name)) is not None:
        return f"{build.name} is a build without CUDA; {build.instead} has it"
    if framework.variant == "cpu" and framework.name == "jax":
        return f"it names no CUDA extra, so JAX comes without its plug-in; {_with_extra(framework)}"
    if (other := re.match("cpu|rocm|xpu", framework.variant)) is not None:
        return f"it is the build for {_OTHERS[other[0]]}"
    if framework.wheel is not None and framework.wheel.gpu is False:
        return "its wheel says that it was built without CUDA"
    if framework.row is not None and platform in framework.row.cpu_only:
        return f"its wheel for {platform} was built without CUDA"
    return None


def _with_extra(framework: CellFramework) -> str:
    """Requirements in place of a jax without an extra: with the extras that this release has."""
    rows = framework.table.rows if framework.table is not None else ()
    mine = framework.table.of(framework.version or "") if framework.table is not None else []
    bad = {text for row in load().bad for text in row.when}
    usual = [row for row in rows if row.default and f"jax[{row.variant}]=={row.version}" not in bad]
    if not mine and usual and framework.version and at_least(usual[-1].version, framework.version):
        first = usual[0]
        return (
            f"no build of {framework.version} with CUDA lies on the default package index (they are on a "
            f"page of its maker's); the first that does is jax[{first.extra}]=={first.version}"
        )
    newest = mine or [row for row in usual if row.version == usual[-1].version]
    return f"ask for {' or '.join(dict.fromkeys(f'jax[{row.extra}]' for row in newest))}"


def _no_such_release(framework: CellFramework, cell: Cell) -> str | None:
    table, version, parsed = framework.table, framework.version, requirement(framework.requirement)
    if table is None or version is None or framework.wheel is not None:
        return None
    name = canonical(parsed.name) if parsed is not None else table.name
    if (missing := table.no_such_release(version, name)) is not None:
        return missing
    # an index of anybody else may have a build of its own
    return table.no_such_variant(version) if all(map(PYTORCH.match, cell.index)) else None


def _why(framework: CellFramework, stack: Stack) -> str:
    table, version = framework.table, framework.version
    if table is None:
        return f"there is no table about {framework.title}, and its wheel was not read"
    if version is None:
        from builder.plan.facts.rules.candidates import newest_beside  # few cells leave a release open

        fits = newest_beside(stack, framework)
        way = f"; {fits} is the newest on record for this Python and CUDA" if fits else ""
        return f"{framework.requirement} does not name one version{way}"
    others = sorted({row.variant for row in table.rows if contains(row.versions, version.split("+", 1)[0])})
    if others and framework.variant:
        there = ", ".join(others)
        return f"{framework.label}: no {framework.variant} build is on record; there are {there}"
    public = version.partition("+")[0]
    if at_least(public, table.newest) and public != table.newest:
        end = f"which end at {table.newest}, and its wheel was not read"
        return f"{framework.label} is newer than the tables, {end}"
    covered = {row.version for row in table.rows}
    near = min(covered, key=lambda other: (key(other) < key(version), key(other)))
    end = f"and its wheel was not read; the next release on record is {near}"
    return f"the tables do not cover {framework.label}, {end}"


def unread(stack: Stack) -> Iterator[Finding]:
    """``unread``: registry and index answered. If one did not, the tables alone are no yes."""
    for reason in stack.truth.unread:
        yield unknown(reason)


def index(stack: Stack) -> Iterator[Finding]:
    """``index``: an index has the frameworks; for builds the default lacks, the cell names it."""
    cell, truth = stack.cell, stack.truth
    for text in truth.absent:
        yield impossible(f"the package index has no wheel of {text}", Value("requirement", text, CELL))
    if cell.index or truth.locked or truth.absent:
        return
    for text in dict.fromkeys((*cell.frameworks, *cell.pip)):
        parsed = requirement(text)
        local = (pinned(parsed) or "").partition("+")[2] if parsed is not None else ""
        if parsed is None or not local or text in truth.offered or truth.wheel(parsed.name) is not None:
            continue
        way = "name the index that has it in `index`"
        if parsed.name.startswith("torch") and _TORCH_INDEX.fullmatch(local):
            way = f'write `index: ["https://download.pytorch.org/whl/{local}"]`'
        none = f"the default package index has no +{local} build, and the cell names no index: {way}"
        known = "`rtbuild check --read` asks the indexes of your own configuration"
        yield unknown(f"{text}: {none}; {known}", Value("requirement", text, CELL))
    for framework in stack.frameworks:
        if _on_its_makers_page(framework) and truth.wheel("jaxlib") is None:
            page = "a page of its maker's that is no package index"
            way = "name an index that has it in `index`"
            text = f"{framework.label}: its jaxlib with CUDA lies on {page}: {way}"
            yield unknown(text, Value("requirement", framework.requirement, CELL))


def _on_its_makers_page(framework: CellFramework) -> bool:
    """Whether it is a JAX that has its CUDA in jaxlib."""
    row, table, version = framework.row, framework.table, framework.version
    if framework.name != "jax" or table is None or version is None or framework.variant == "cpu":
        return False
    if row is not None:
        return not row.default
    return table.on_its_makers_page(version)


def last_lock(stack: Stack) -> Iterator[Finding]:
    """``last-lock``: no lock of these requirements ended without a set of wheels that works together."""
    if (said := stack.truth.failed) is not None:
        yield unknown(f"the last lock of this cell failed; `rtbuild lock` asks again: {said}")


def yanked(stack: Stack) -> Iterator[Finding]:
    """``yanked``: no wheel was yanked by its maker."""
    for framework in stack.frameworks:
        row = framework.row
        if row is not None and row.yanked is not None and framework.wheel is None:
            text = f"{framework.label} was yanked by its maker: {row.yanked}"
            yield warns(text, Value(framework.title, row.version, row.source))
    for wheel in stack.truth.wheels:
        if wheel.yanked is not None:
            text = f"{wheel.file} was yanked by its maker: {wheel.yanked}"
            yield warns(text, Value(wheel.name, wheel.version, wheel.source))


def base_tag(stack: Stack) -> Iterator[Finding]:
    """``base-tag``: NVIDIA deletes tags; one that is gone cannot be built on before it is built again."""
    base, tag = stack.truth.base, stack.tag
    if base is not None and not base.exists:
        asked = Value("base", str(stack.cell.base), Source("registry", base.reference))
        yield impossible(f"the registry has no {base.reference}", asked)
    if base is None and tag is not None and (tag.registry or "").rstrip("/") == REBUILT:
        if tag.row is not None and tag.row.state == "deleted":
            image = tag.text.partition("/")[2]
            yield warns(
                f"NVIDIA deleted {image} from Docker Hub: it has to be built first from its recipe, which "
                "is public (dist/end-of-life of gitlab.com/nvidia/container-images/cuda), and pushed to a "
                f"registry of your own, whose host goes in the place of {REBUILT}",
                *[Value("base", tag.text, source) for source in tag.row.sources],
            )
        return
    if base is not None or tag is None or tag.registry not in DOCKER_HUB:
        return
    if tag.row is not None and tag.row.state == "deleted":
        yield impossible(
            f"{tag.text} was deleted from Docker Hub: NVIDIA removes tags six months after their end of life",
            *[Value("base", tag.text, source) for source in tag.row.sources],
        )
    elif tag.row is None:
        rows, there = _instead_of(tag)
        if rows:
            values = [Value("tags of that CUDA", ", ".join(row.systems), row.source) for row in rows[:3]]
            yield impossible(f"Docker Hub has no {tag.text}: {there}", *values)
        else:
            text = f"no table lists {tag.text}; a registry that answers can tell{there}"
            yield unknown(text, Value("base", tag.text, CELL))


def _instead_of(tag: CudaTag) -> tuple[list[TagRow], str]:
    """The rows that show that there is no such tag, and what there is; no row if none shows it.

    On record are every Ubuntu of each toolkit up to the newest one, and every system of a toolkit that has
    any row of another system. A patch release later than the last of its line may have come since.
    """
    rows = load().tags
    mine = [row for row in rows if row.cuda == tag.cuda]
    if here := [row for row in mine if tag.system in row.systems]:
        kinds = ", ".join(row.infix or "tags without cuDNN" for row in here)
        return here, f"for CUDA {tag.cuda} on {tag.system} it has {kinds}"
    if mine:
        systems = sorted({system for row in mine if row.state == "listed" for system in row.systems})
        every = tag.system.startswith("ubuntu") or any(not s.startswith("ubuntu") for s in systems)
        there = f"for CUDA {tag.cuda} it has {', '.join(systems) or 'nothing any more'}"
        return (mine, there) if every else ([], f"; {there}")
    line = [row for row in rows if short(row.cuda, 2) == short(tag.cuda, 2)]
    last = max((key(row.cuda) for row in line or rows), default=())
    every_cuda = sorted({row.cuda for row in rows}, key=key)
    later = next((cuda for cuda in every_cuda if key(cuda) > key(tag.cuda)), every_cuda[-1])
    near = sorted({row.cuda for row in line}, key=key) or [later]
    there = f"CUDA {', '.join(near)} {'is' if len(near) == 1 else 'are'} on record"
    return (line or [*rows], there) if key(tag.cuda) < last else ([], f"; {there}")


def compiled(stack: Stack) -> Iterator[Finding]:
    """``compiled``: code compiled from sources runs on the Debian release that it was compiled in."""
    cell = stack.cell
    if cell.compiled and cell.base.kind != "rootfs":
        names = ", ".join(name for name, _ in cell.compiled)
        yield impossible(
            f"{names} is compiled from sources in a Debian release, and {cell.base} has other libraries: "
            "take base: rootfs:debian/<suite>, or an index that has wheels",
            Value("from-source", names, CELL),
            Value("base", str(cell.base), CELL),
        )


def python(stack: Stack) -> Iterator[Finding]:
    """``python``: the base's own archive has that Python, or uv's catalogue of standalone ones; and each
    framework has a wheel for it."""
    cell, system = stack.cell, stack.system
    wanted = cell.named_python
    asked = Value("python", cell.python, CELL)
    if not cell.has_own_python(system):
        from builder.sources.index import choose_python  # with an HTTP client: a tenth of a second

        try:
            choose_python(wanted, cell.platform)
        except RtbuildError as problem:
            refuse = impossible if isinstance(problem, CellError) else unknown
            yield refuse(problem.message, asked)
    elif system is None:
        yield unknown(f"which Python versions {cell.base} offers is not known", asked)
    elif wanted not in system.python:
        there = ", ".join(system.python) or "none that is installed"
        has = Value(f"python in {system.name}", there, system.source)
        text = f"{system.name} has no Python {wanted} in its archive (it has {there})"
        yield impossible(f"{text}, and 'from: base' wants no other", asked, has)
    for framework in stack.frameworks:
        yield from _wheels_for(framework, asked, wanted)


def platform(stack: Stack) -> Iterator[Finding]:
    """``platform``: each framework has a wheel for the cell's platform."""
    wanted = stack.cell.platform
    for framework in stack.frameworks:
        row = framework.row
        if row is not None and framework.wheel is None and wanted not in row.platforms:
            if (why := row.unread.get("platforms")) is not None:
                text = f"whether {framework.label} has a wheel for {wanted} is not known: {why}"
                yield unknown(text, Value("platform", wanted, CELL))
                continue
            there = ", ".join(row.platforms)
            has = Value(f"{framework.title} wheels for", there, row.source_of("platforms"))
            text = f"{framework.label} has no wheel for {wanted} (it has {there})"
            yield impossible(text, Value("platform", wanted, CELL), has)


def _wheels_for(framework: CellFramework, asked: Value, wanted: str) -> Iterator[Finding]:
    wheel, row = framework.wheel, framework.row
    if wheel is not None and (wheel.tags or wheel.requires_python):
        allowed = takes(wheel.requires_python, wanted)
        if not allowed or (wheel.tags and not any(_serves(tag, asked.text) for tag in wheel.tags)):
            text = wheel.requires_python if not allowed and wheel.requires_python else ", ".join(wheel.tags)
            said = Value(f"{framework.title} wheel for", text, wheel.source)
            yield impossible(f"{wheel.file} does not install on Python {wanted}", asked, said)
    elif row is not None and asked.text not in row.python:
        there = Value(f"{framework.title} wheels for", ", ".join(row.python), row.source)
        text = f"{framework.label} has no wheel for Python {asked.text} (it has {there.text})"
        yield impossible(text, asked, there)


def _serves(tag: str, python: str) -> bool:
    """Whether a wheel tag fits a Python: a pure one, its own ``cp311``, or an older ``abi3``."""
    interpreter, abi = tag.split("-")[:2]
    found = re.fullmatch(r"(?:cp|py)(\d)(\d*)", interpreter)
    if found is None or abi == "none":
        return abi == "none"
    version, wanted = (int(found[1]), int(found[2] or 0)), key(python)[:2]
    return version == wanted or (abi == "abi3" and version <= wanted)


def glibc(stack: Stack) -> Iterator[Finding]:
    """``glibc``: the base's C library is not older than the one that a Python or a wheel was built for. Of a
    system that nobody knows that is unknown.
    """
    cell, system = stack.cell, stack.system
    needed = [(one, needs) for one in stack.frameworks if (needs := needed_glibc(one, cell.platform))]
    if system is None:
        texts = [f"{one.label} needs {needs.text}" for one, needs in needed]
        if not cell.has_own_python(None):
            texts.append(f"a standalone Python {_STANDALONE_GLIBC}")
        if texts:
            asks = tuple(needs for _, needs in needed)
            yield unknown(f"which glibc {cell.base} has is not known, and {' and '.join(texts)}", *asks)
        return
    if not cell.has_own_python(system) and not at_least(system.glibc, _STANDALONE_GLIBC):
        yield impossible(
            f"a standalone Python needs glibc {_STANDALONE_GLIBC}, {system.name} has {system.glibc}",
            Value("glibc that a standalone Python needs", _STANDALONE_GLIBC, _RUNNING),
        )
    has = Value(f"glibc in {system.name}", system.glibc, system.source)
    for framework, needs in needed:
        if not at_least(system.glibc, needs.text):
            text = f"{framework.label} needs glibc {needs.text}, {system.name} has {system.glibc}"
            older = _newest_for(framework, cell, system.glibc)
            way = f"; the newest on record for that and Python {cell.python} is {older}" if older else ""
            yield impossible(text + way, needs, has)


def _newest_for(framework: CellFramework, cell: Cell, has: str) -> str | None:
    """The newest release on record, of the builds that a bare name gets, whose wheel runs with a glibc."""
    arm = cell.platform.endswith("arm64")
    fitting = [
        row.version
        for row in (framework.table.rows if framework.table is not None else ())
        if row.default and cell.python in row.python and cell.platform in row.platforms
        if (needs := row.glibc_arm64 if arm else row.glibc) is not None and at_least(has, needs)
    ]
    return max(fitting, key=key, default=None)


def needed_glibc(framework: CellFramework, platform_: str) -> Value | None:
    """The oldest glibc that a framework's wheel takes, as read or by the tables; None if it is not known."""
    what, row, wheel = f"glibc that {framework.title} needs", framework.row, framework.wheel
    if wheel is not None and wheel.tags:
        versions = [v for tag in wheel.tags if (v := glibc_of(tag.rsplit("-", 1)[-1]))]
        if not versions:
            return None
        asked = min(versions, key=key)
        # a tag is a promise; the symbols are what the loader goes by
        return Value(what, max(asked, wheel.glibc or asked, key=key), wheel.source)
    needed = None if row is None else row.glibc_arm64 if platform_.endswith("arm64") else row.glibc
    return Value(what, needed, row.source_of("glibc")) if row is not None and needed is not None else None
