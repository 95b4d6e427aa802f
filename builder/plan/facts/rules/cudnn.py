"""Which cuDNN is loaded, whether there is exactly one, and whether it is new enough."""

import re
from collections.abc import Iterator

from builder.core.versions import agree, at_least, canonical, key, major, minor, short
from builder.plan.facts.rules.finding import Finding, Outcome, Value, impossible, possible, unknown, warns
from builder.plan.facts.rules.framework import CellFramework
from builder.plan.facts.rules.image_contents import Stack


def copies(stack: Stack) -> Iterator[Finding]:
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


def wheel_names(stack: Stack) -> Iterator[Finding]:
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


def version(stack: Stack) -> Iterator[Finding]:
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
            yield _compare(label, compiled, loaded.version, strict=strict, ranged=loaded.ranged)


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


def _compare(label: str, compiled: Value, loaded: Value, *, strict: bool, ranged: bool) -> Finding:
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
