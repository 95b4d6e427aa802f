"""CUDA and cuDNN of a cell: their source, whether all parts of each are there once, and new enough."""

import re
from collections.abc import Iterator

from builder.core.versions import agree, at_least, canonical, key, major, minor, short
from builder.plan.facts.rules.cell_packages import CellFramework
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
from builder.plan.facts.rules.image_contents import NOT_IN_RUNTIME, Stack
from builder.plan.facts.tables import load, torch_for_cpu

_LINKED = re.compile(r"lib(cudnn|cudart)\.so\.(\d+)(?:\.\d+)?")


def provider(stack: Stack) -> Iterator[Finding]:
    """``cuda-provider``: CUDA comes from one place, and it is the place that the cell names."""
    cell = stack.cell
    named = Value("cuda", cell.cuda.provider, CELL)
    names = ", ".join(framework.label for framework in stack.frameworks if framework.carries_cuda)
    if cell.cuda.provider == "none":
        if cell.gpus:
            gpus = Value("gpus", ", ".join(cell.gpus), CELL)
            yield impossible("the cell claims GPUs, but has no CUDA provider", named, gpus)
        yield from _unused(stack, named)
        return
    yield from _one_major(stack)
    if stack.base_has_libraries and (names or cell.cuda.provider == "wheels"):
        who = names or "NVIDIA's wheels"
        yield warns(
            f"{who} bring CUDA, and {cell.base} holds it too: two copies; "
            "the base flavour of the tag is enough",
            *((named, Value("base", stack.tag.text, CELL)) if stack.tag else (named,)),
        )
    if cell.cuda.provider == "base" and names and not stack.base_has_libraries:
        yield warns(
            f"{names} bring CUDA in wheels while the cell says `cuda: base`; say `cuda: wheels`", named
        )


def _unused(stack: Stack, named: Value) -> Iterator[Finding]:
    """CUDA's libraries in an image without CUDA: the framework's build for the CPU has none."""
    platform = stack.cell.platform
    for framework in stack.frameworks:
        other = framework.variant.startswith(("cpu", "rocm", "xpu"))
        bare = framework.row is not None and platform in framework.row.cpu_only
        if other or bare or not framework.carries_cuda:
            continue
        cpu = next((one for one in load().without.values() if one.instead == framework.name), None)
        way = f": {cpu.name} is the build without them" if cpu else ""
        if framework.name == "torch":
            release = (framework.version or "VERSION").partition("+")[0]
            way = f": {torch_for_cpu(release)} is the build without them"
        values = (named, Value("framework", framework.requirement, CELL))
        yield warns(
            f"{framework.label} brings CUDA's libraries, which `cuda: none` leaves unused and which can be "
            f"several GB{way}",
            *values,
        )


def _one_major(stack: Stack) -> Iterator[Finding]:
    """Frameworks that share the image's CUDA are compiled for one major version of it."""
    sharing = [framework for framework in stack.frameworks if framework.brings != "inside"]
    values = {major(f.cuda.text): (f, f.cuda) for f in sharing if f.cuda is not None}
    if len(values) > 1:
        said = " and ".join(f"{f.label} for CUDA {number}" for number, (f, _) in sorted(values.items()))
        listed = stack.cell.dependencies == "listed"
        yield Finding(
            Outcome.WARNS if listed else Outcome.IMPOSSIBLE,
            f"{said}: an image has CUDA from one provider, and so of one major version",
            tuple(value for _, value in values.values()),
        )


def libraries(stack: Stack) -> Iterator[Finding]:
    """``cuda-libraries``: without the libraries that it opens by name, a framework runs on the CPU."""
    cell = stack.cell
    for framework in stack.frameworks:
        row = framework.row
        if row is None or not row.needs or framework.carries_cuda:
            continue
        needed = Value(f"libraries that {framework.title} opens", ", ".join(row.needs), row.source)
        if cell.cuda.provider == "wheels":
            there = _families(stack)
            if missing := ", ".join(family for family in row.needs if family not in there):
                yield impossible(
                    f"{framework.label} finds no {missing}: NVIDIA's wheels for them are not among the "
                    "cell's packages, and without them it runs on the CPU and says so only in its log",
                    needed,
                    Value("packages", ", ".join((*cell.cuda.packages, *cell.pip)) or "none", CELL),
                )
        elif stack.tag is not None and stack.tag.flavour == "runtime":
            there = _families(stack)
            lacks = [name for name in row.needs if name in NOT_IN_RUNTIME - there]
            lacks = [name for name in lacks if not any(one.startswith(f"{name}-") for one in cell.apt)]
            if missing := ", ".join(lacks):
                yield impossible(
                    f"{framework.label} opens {missing}, which runtime images of NVIDIA's lack: "
                    "take the devel flavour of the tag, or NVIDIA's wheels",
                    needed,
                )
        elif cell.base.kind == "rootfs" or (stack.tag is not None and stack.tag.flavour == "base"):
            needs = "needs the runtime flavour of an nvidia/cuda tag, or NVIDIA's wheels"
            yield impossible(f"{cell.base} holds no CUDA libraries; {framework.label} {needs}", needed)


def _families(stack: Stack) -> set[str]:
    """Families (``cublas``) that wheels bring, with the ones brought along."""
    names = {canonical(parsed.name) for parsed, _ in stack.asked}
    names |= {wheel.name for wheel in stack.truth.wheels}
    families = {re.sub(r"^nvidia-|-cu\d+$", "", name) for name in names if name.startswith("nvidia-")}
    known = load().wheel_families
    # the extras of cuda-toolkit[cublas,cudart] are named after the libraries
    extras = {extra for parsed, _ in stack.asked if parsed.name == "cuda-toolkit" for extra in parsed.extras}
    families |= {row.name for row in known.values() if row.extra in extras or (row.extra and "all" in extras)}
    if stack.truth.locked:
        return families
    pinned = {row.distribution: row.brings for row in load().registry}
    families |= {n for f in stack.frameworks if f.brings == "pins" for n in pinned.get(f.name, ())}
    return families.union(*(known[family].brings for family in families if family in known))


def linked(stack: Stack) -> Iterator[Finding]:
    """``elf-needs``: the libraries that a wheel is linked with are there in that major version."""
    copy = stack.cudnn
    there = {
        "cudnn": (copy is not None, copy.version if copy is not None else None),
        # what wheels bring in the end, a lock alone tells
        "cudart": (stack.cuda is not None or stack.base_has_libraries or not stack.truth.locked, stack.cuda),
    }
    for framework in stack.frameworks:
        if framework.wheel is None or framework.brings == "inside":
            continue
        for found in filter(None, map(_LINKED.fullmatch, framework.wheel.needed)):
            is_there, value = there[found[1]]
            linked_with = f"{framework.label} is linked with {found[0]}, and"
            asked = Value("linked with", found[0], framework.wheel.source)
            if value is not None and major(value.text) != int(found[2]):
                yield impossible(f"{linked_with} here is {short(value.text, 2)}", asked, value)
            elif not is_there:
                yield impossible(f"{linked_with} neither the base nor a wheel brings it", asked)


def cuda_version(stack: Stack) -> Iterator[Finding]:
    """``cuda-version``: same major; from CUDA 11 on a newer minor runs programs built for an older."""
    cell = stack.cell
    for framework in stack.frameworks:
        compiled, row = framework.cuda, framework.row
        if framework.carries_cuda:
            continue
        if compiled is None:
            if row is not None and cell.platform not in row.cpu_only:
                yield unknown(f"no file says for which CUDA {framework.label} was compiled; an import tells")
        elif stack.cuda is not None:
            yield _against_cuda(framework, compiled, stack.cuda)
        elif cell.base.kind == "registry" and cell.cuda.provider == "base":
            yield unknown(
                f"which CUDA {cell.base} holds is not known; a registry that answers can tell", compiled
            )


def _renamed(framework: CellFramework, built: str, there: str) -> Finding | None:
    """The refusal for a library that has another name in the CUDA that is there."""
    for library in framework.row.needs if framework.row is not None and minor(built) is not None else ():
        wanted, has = load().soname(library, built), load().soname(library, there)
        if wanted is not None and has is not None and wanted.soname != has.soname:
            text = f"{framework.label} opens {wanted.soname} of CUDA {built}; CUDA {there} has {has.soname}"
            return impossible(
                text,
                Value(f"{library} of CUDA {built}", wanted.soname, wanted.source),
                Value(f"{library} of CUDA {there}", has.soname, has.source),
            )
    return None


def _against_cuda(framework: CellFramework, compiled: Value, found: Value) -> Finding:
    built, there = short(compiled.text, 2), short(found.text, 2)
    values = (compiled, found)
    if major(built) != major(there) or (major(built) < 11 and not agree(built, there)):
        opens = f"was compiled for CUDA {built} and opens libraries of that version by name"
        return impossible(f"{framework.label} {opens}; here is CUDA {there}", *values)
    if (other := _renamed(framework, built, there)) is not None:
        return other
    if not at_least(there, built):
        older = f"CUDA {there} is older than the {built} that {framework.label} was compiled with"
        return warns(f"{older}; NVIDIA promises only that newer minors run older programs", *values)
    return possible(f"{framework.label}, compiled for CUDA {built}, finds CUDA {there}", *values)


# -- cuDNN


def cudnn_copies(stack: Stack) -> Iterator[Finding]:
    """``cudnn-copies``: exactly one. Which of two is loaded depends on the order of the search paths."""
    if len(stack.copies) < 2:
        return
    values = tuple(copy.version for copy in stack.copies if copy.version is not None)
    names = {"base": "the base image", "wheels": "NVIDIA's wheel", "apt": "apt"}
    places = " and ".join(
        f"{names.get(c.place, f'inside {c.place}')} ({c.version.text if c.version else 'unknown'})"
        for c in stack.copies
    )
    same = len(values) == len(stack.copies) and all(agree(values[0].text, value.text) for value in values)
    exact = not any(copy.ranged for copy in stack.copies)
    # A list that is installed as it stands has the copies that it has; the probe imports in every order.
    listed = stack.cell.dependencies == "listed"
    outcome = Outcome.WARNS if listed or (same and exact) else Outcome.IMPOSSIBLE
    rest = "Which one is loaded, and whether its parts come from one copy, depends on search order"
    message = f"{len(stack.copies)} copies of cuDNN: {places}. {rest}; an image has exactly one"
    yield Finding(outcome, message, values)


def cudnn_wheels(stack: Stack) -> Iterator[Finding]:
    """``cudnn-wheels``: the cuDNN wheels of two CUDA majors write the same files."""
    if stack.truth.locked:
        found = {wheel.name: wheel.source for wheel in stack.truth.wheels}
    else:
        found = {canonical(parsed.name): source for parsed, source in stack.asked}
    names = sorted(name for name in found if re.fullmatch(r"nvidia-cudnn-cu\d+", name))
    if len(names) > 1:
        yield impossible(
            f"{' and '.join(names)} write the same files: the frameworks are built for different CUDA majors",
            *[Value("wheel", name, found[name]) for name in names],
        )


def cudnn_version(stack: Stack) -> Iterator[Finding]:
    """``cudnn-version``: same major, loaded minor not older than compiled; with ``strict_cudnn``, equal."""
    for framework in stack.frameworks:
        label, compiled, row = framework.label, framework.cudnn, framework.row
        if compiled is None:
            if row is not None and "cudnn" in row.needs and framework.brings != "inside":
                yield unknown(f"no public source says which cuDNN {label} was compiled with")
        elif framework.brings == "inside":
            yield possible(f"{label} carries its own cuDNN {compiled.text}", compiled)
        elif (loaded := stack.cudnn_for(compiled)) is None:
            yield _absent(stack, framework, compiled)
        elif loaded.version is None:
            text = "holds a cuDNN, but which is not known; a registry that answers can tell"
            yield unknown(f"{stack.cell.base} {text}", compiled)
        else:
            strict = stack.cell.options.strict_cudnn
            yield _against_cudnn(label, compiled, loaded.version, strict=strict, ranged=loaded.ranged)


def _absent(stack: Stack, framework: CellFramework, compiled: Value) -> Finding:
    cell, row, needs = stack.cell, framework.row, f"{framework.label} needs cuDNN {compiled.text}"
    if cell.cuda.provider == "base" and cell.base.kind == "registry" and stack.tag is None:
        # an image of the user's own
        why = f"which one {cell.base} holds is not known: NV_CUDNN_VERSION in its environment would settle it"
        return unknown(f"{needs}, and {why}", compiled)
    if row is None and not framework.wants:
        return unknown(f"{needs}; whether it carries its own is not known, as no table covers it", compiled)
    if row is not None and row.needs and "cudnn" not in row.needs:
        opens = f"{framework.label} opens cuDNN {compiled.text} for models with convolutions"
        return warns(f"{opens}, and neither the base nor a wheel brings one", compiled)
    return impossible(f"{needs}, and neither the base nor a wheel brings one", compiled)


def _against_cudnn(label: str, compiled: Value, loaded: Value, *, strict: bool, ranged: bool) -> Finding:
    built, there = short(compiled.text, 3), short(loaded.text, 3)
    made = f"{label} was compiled with cuDNN {built}"
    outcome = Outcome.IMPOSSIBLE
    if major(built) != major(there):
        message = f"{made} and would load {there}: major versions are never compatible"
    elif minor(built) is None:
        outcome = Outcome.UNKNOWN
        told = f"{label} tells only that it was compiled with cuDNN {built}.x"
        message = f"{told}; whether {there} is new enough is not known"
    elif not at_least(short(there, 2), short(built, 2)):
        message = f"{made} and would load {there}: the loaded minor is older"
    elif strict and ranged:
        outcome = Outcome.UNKNOWN
        message = f"strict: {made}, and pins leave open which is loaded; `rtbuild lock` settles it"
    elif strict and not agree(built, there):
        message = f"strict: {made}, loaded would be {there}"
    elif strict and len(key(built)) < 3:
        outcome = Outcome.WARNS
        message = f"strict: cuDNN {built} is known to the minor only; {there} agrees so far"
    else:
        outcome, chosen = Outcome.POSSIBLE, ", the newest that its pins admit" if ranged else ""
        message = f"{label}, compiled with cuDNN {built}, would load {there}{chosen}"
    return Finding(outcome, message, (compiled, loaded))


def documented_cuda(stack: Stack) -> Iterator[Finding]:
    """``documented-cuda``: the tag with TensorFlow's documented CUDA may hold the wrong cuDNN."""
    tag, base = stack.tag, stack.cudnn
    if tag is None or tag.infix is None or base is None or base.place != "base" or base.version is None:
        return
    for framework in stack.frameworks:
        row, cudnn, held = framework.row, framework.cudnn, base.version.text
        if framework.name != "tensorflow" or framework.brings == "pins" or row is None or cudnn is None:
            continue
        fits = major(held) == major(cudnn.text) and at_least(short(held, 2), short(cudnn.text, 2))
        if row.cuda and agree(row.cuda, tag.cuda) and not fits:
            yield impossible(
                f"{framework.label} documents CUDA {row.cuda}, but NVIDIA's image of that CUDA holds cuDNN "
                f"{short(held, 3)}, not {cudnn.text}: choose the base by its cuDNN",
                Value("CUDA that TensorFlow documents", row.cuda, row.source),
                base.version,
                cudnn,
            )
