"""Where CUDA comes from, whether all of it is there, and whether it is new enough for the framework."""

import re
from collections.abc import Iterator

from builder.facts.finding import CELL, Finding, Outcome, Source, Value, impossible, possible, unknown, warns
from builder.facts.framework import CellFramework
from builder.facts.stack import Stack
from builder.facts.versions import agree, at_least, canonical, major, short

# wheels that bring others of the same family with them (Requires-Dist of the wheels themselves)
BROUGHT_ALONG = {
    "cudnn": {"cublas"},
    "cusolver": {"cublas", "cusparse", "nvjitlink"},
    "cusparse": {"nvjitlink"},
    "cufft": {"nvjitlink"},
}

# what the pins of a framework bring (Requires-Dist of its wheels); the tables list only the pins that decide
_ALL = {"cuda-runtime", "cuda-nvrtc", "cublas", "cudnn", "cufft", "cusolver", "cusparse", "nvjitlink", "nccl"}
PINNED = {"torch": _ALL | {"curand"}, "tensorflow": _ALL | {"curand"}, "jax": _ALL}


def provider(stack: Stack) -> Iterator[Finding]:
    """``cuda-provider``: CUDA comes from one place, and it is the place that the cell names."""
    cell = stack.cell
    named = Value("cuda", cell.cuda.provider, CELL)
    bringing = [framework for framework in stack.frameworks if framework.carries_cuda]
    names = ", ".join(framework.label for framework in bringing)
    if cell.cuda.provider == "none":
        if cell.gpus:
            gpus = Value("gpus", ", ".join(cell.gpus), CELL)
            yield impossible("cuda-provider", "the cell claims GPUs, but has no CUDA provider", named, gpus)
        return
    yield from _one_major(stack)
    if stack.base_has_libraries and (bringing or cell.cuda.provider == "wheels"):
        who = f"{names} bring" if bringing else "NVIDIA's wheels bring"
        yield warns(
            "cuda-provider",
            f"{who} CUDA, and {cell.base} holds it too: two copies; the base flavour of the tag is enough",
            *((named, Value("base", stack.tag.text, CELL)) if stack.tag else (named,)),
        )
    if cell.cuda.provider == "base" and bringing and not stack.base_has_libraries:
        yield warns(
            "cuda-provider",
            f"{names} bring CUDA in wheels while the cell says `cuda: base`; say `cuda: wheels`",
            named,
        )


def _one_major(stack: Stack) -> Iterator[Finding]:
    """Frameworks that share the image's CUDA are compiled for one major version of it."""
    sharing = [framework for framework in stack.frameworks if framework.brings != "inside"]
    values = {major(f.cuda.text): (f, f.cuda) for f in sharing if f.cuda is not None}
    if len(values) > 1:
        said = " and ".join(f"{f.label} for CUDA {number}" for number, (f, _) in sorted(values.items()))
        listed = stack.cell.dependencies == "listed"
        yield Finding(
            "cuda-provider",
            Outcome.WARNS if listed else Outcome.IMPOSSIBLE,
            f"{said}: an image has CUDA from one provider, and so of one major version",
            tuple(value for _, value in values.values()),
        )


def libraries(stack: Stack) -> Iterator[Finding]:
    """``cuda-libraries``: without the libraries that it opens by name, a framework runs on the CPU."""
    for framework in stack.frameworks:
        if framework.row is None or not framework.row.needs or framework.carries_cuda:
            continue
        needed = Value(
            f"libraries that {framework.title} opens", ", ".join(framework.row.needs), framework.row.source
        )
        if stack.cell.cuda.provider == "wheels":
            missing = [family for family in framework.row.needs if family not in _families(stack)]
            if missing:
                packages = ", ".join((*stack.cell.cuda.packages, *stack.cell.pip)) or "none"
                yield impossible(
                    "cuda-libraries",
                    f"{framework.label} finds no {', '.join(missing)}: NVIDIA's wheels for them are not "
                    "among the cell's packages, and without them it runs on the CPU and says so only in "
                    "its log",
                    needed,
                    Value("packages", packages, CELL),
                )
        elif stack.cell.base.kind == "rootfs" or (stack.tag is not None and stack.tag.flavour == "base"):
            yield impossible(
                "cuda-libraries",
                f"{stack.cell.base} holds no CUDA libraries; {framework.label} needs the runtime flavour of "
                "an nvidia/cuda tag, or NVIDIA's wheels",
                needed,
            )


def _families(stack: Stack) -> set[str]:
    """Families (``cublas``) that wheels bring, with the ones brought along."""
    names = {canonical(parsed.name) for parsed, _ in stack.asked}
    names |= {wheel.name for wheel in stack.truth.wheels}
    brought = [PINNED.get(f.name, set()) for f in stack.frameworks if f.brings == "pins"]
    families = {
        name.removeprefix("nvidia-").rsplit("-cu", 1)[0] for name in names if name.startswith("nvidia-")
    }
    families |= _of_toolkit(stack)
    if not stack.truth.locked:
        families = families.union(*brought)
        for family in sorted(families):
            families |= BROUGHT_ALONG.get(family, set())
    return families


def _of_toolkit(stack: Stack) -> set[str]:
    """Families that ``cuda-toolkit[cublas,cudart]`` brings: its extras are named after the libraries."""
    extras = {extra for r, _ in stack.asked if r.name == "cuda-toolkit" for extra in r.extras}
    return {{"cudart": "cuda-runtime", "nvrtc": "cuda-nvrtc"}.get(extra, extra) for extra in extras}


def linked(stack: Stack) -> Iterator[Finding]:
    """``elf-needs``: the libraries that a wheel is linked with are there in that major version."""
    copy = stack.cudnn
    brought = {"cudnn": copy.version if copy is not None else None, "cudart": stack.cuda}
    there = {"cudnn": copy is not None, "cudart": stack.cuda is not None or stack.base_has_libraries}
    for framework in stack.frameworks:
        if framework.wheel is None or framework.brings == "inside":
            continue
        source = Source("wheel", framework.wheel.reference)
        for name in framework.wheel.needed:
            found = re.fullmatch(r"lib(cudnn|cudart)\.so\.(\d+)(?:\.\d+)?", name)
            if found is None:
                continue
            library, wanted = found[1], int(found[2])
            value, asked = brought[library], Value("linked with", name, source)
            if value is not None and major(value.text) != wanted:
                why = f"here is {short(value.text, 2)}"
            elif not there[library] and (library == "cudnn" or stack.truth.locked):
                why = "neither the base nor a wheel brings it"
            else:
                continue
            yield impossible(
                "elf-needs",
                f"{framework.label} is linked with {name}, and {why}",
                *((asked, value) if value is not None else (asked,)),
            )


def version(stack: Stack) -> Iterator[Finding]:
    """``cuda-version``: same major; from CUDA 11 on a newer minor runs programs built for an older."""
    for framework in stack.frameworks:
        if framework.carries_cuda:
            continue
        if framework.cuda is None:
            if framework.row is not None and stack.cell.platform not in framework.row.cpu_only:
                yield unknown(
                    "cuda-version",
                    f"no file says for which CUDA {framework.label} was compiled; an import tells",
                )
            continue
        found = stack.cuda
        if found is None:
            if stack.cell.base.kind == "registry" and stack.cell.cuda.provider == "base":
                yield unknown(
                    "cuda-version",
                    f"which CUDA {stack.cell.base} holds is not known; a registry that answers can tell",
                    framework.cuda,
                )
            continue
        yield _compare(framework, framework.cuda, found)


def _compare(framework: CellFramework, compiled: Value, found: Value) -> Finding:
    built, there = short(compiled.text, 2), short(found.text, 2)
    values = (compiled, found)
    if major(built) != major(there) or (major(built) < 11 and not agree(built, there)):
        return impossible(
            "cuda-version",
            f"{framework.label} was compiled for CUDA {built} and opens libraries of that version by name; "
            f"here is CUDA {there}",
            *values,
        )
    if not at_least(there, built):
        return warns(
            "cuda-version",
            f"CUDA {there} is older than the {built} that {framework.label} was compiled with; NVIDIA "
            "promises only that newer minors run older programs",
            *values,
        )
    return possible(
        "cuda-version", f"{framework.label}, compiled for CUDA {built}, finds CUDA {there}", *values
    )
