"""Which cuDNN is loaded, whether there is exactly one, and whether it is new enough."""

import re
from collections.abc import Iterator

from builder.facts.finding import Finding, Outcome, Source, Value, impossible, possible, unknown, warns
from builder.facts.framework import CellFramework
from builder.facts.stack import Copy, Stack
from builder.facts.versions import agree, at_least, canonical, key, major, minor, short


def copies(stack: Stack) -> Iterator[Finding]:
    """``cudnn-copies``: exactly one. Which of two is loaded depends on the order of the search paths."""
    if len(stack.copies) < 2:
        return
    values = tuple(copy.version for copy in stack.copies if copy.version is not None)
    places = " and ".join(
        f"{_place(copy)} ({copy.version.text if copy.version else 'unknown'})" for copy in stack.copies
    )
    same = len(values) == len(stack.copies) and all(agree(values[0].text, value.text) for value in values)
    exact = not any(copy.ranged for copy in stack.copies)
    # A list that is installed as it stands has the copies that it has; the probe imports in every order.
    listed = stack.cell.dependencies == "listed"
    yield Finding(
        "cudnn-copies",
        Outcome.WARNS if listed or (same and exact) else Outcome.IMPOSSIBLE,
        f"{len(stack.copies)} copies of cuDNN: {places}. Which one is loaded, and whether its parts come "
        "from one copy, depends on search order; an image has exactly one",
        values,
    )


def wheel_names(stack: Stack) -> Iterator[Finding]:
    """``cudnn-wheels``: the cuDNN wheels of two CUDA majors write the same files."""
    if stack.truth.locked:
        found = {wheel.name: Source("wheel", wheel.reference) for wheel in stack.truth.wheels}
    else:
        found = {canonical(parsed.name): source for parsed, source in stack.asked}
    names = sorted(name for name in found if re.fullmatch(r"nvidia-cudnn-cu\d+", name))
    if len(names) > 1:
        yield impossible(
            "cudnn-wheels",
            f"{' and '.join(names)} write the same files: the frameworks are built for different CUDA majors",
            *[Value("wheel", name, found[name]) for name in names],
        )


def _place(copy: Copy) -> str:
    return {"base": "the base image", "wheels": "NVIDIA's wheel", "apt": "apt"}.get(
        copy.place, f"inside {copy.place}"
    )


def version(stack: Stack) -> Iterator[Finding]:
    """``cudnn-version``: same major, loaded minor not older than compiled; with ``strict_cudnn``, equal."""
    for framework in stack.frameworks:
        if framework.row is None and framework.cudnn is None:
            continue
        if framework.brings == "inside":
            if framework.cudnn is not None:
                text = f"{framework.label} carries its own cuDNN {framework.cudnn.text}"
                yield possible("cudnn-version", text, framework.cudnn)
            continue
        if framework.cudnn is None:
            if framework.row is not None and "cudnn" in framework.row.needs:
                text = f"no public source says which cuDNN {framework.label} was compiled with"
                yield unknown("cudnn-version", text)
            continue
        loaded = stack.cudnn_for(framework.cudnn)
        if loaded is None and _unread_base(stack):
            yield unknown(
                "cudnn-version",
                f"{framework.label} needs cuDNN {framework.cudnn.text}, and which one {stack.cell.base} "
                "holds is not known: NV_CUDNN_VERSION in its environment would settle it",
                framework.cudnn,
            )
        elif (
            loaded is None
            and framework.row is not None
            and "cudnn" not in (framework.row.needs or ("cudnn",))
        ):
            yield warns(
                "cudnn-version",
                f"{framework.label} opens cuDNN {framework.cudnn.text} for models with convolutions, "
                "and neither the base nor a wheel brings one",
                framework.cudnn,
            )
        elif loaded is None:
            yield impossible(
                "cudnn-version",
                f"{framework.label} needs cuDNN {framework.cudnn.text}, and neither the base nor a wheel "
                "brings one",
                framework.cudnn,
            )
        elif loaded.version is None:
            yield unknown(
                "cudnn-version",
                f"{stack.cell.base} holds a cuDNN, but which is not known; a registry that answers can tell",
                framework.cudnn,
            )
        else:
            strict = stack.cell.options.strict_cudnn
            yield _compare(framework, framework.cudnn, loaded.version, strict=strict, ranged=loaded.ranged)


def _unread_base(stack: Stack) -> bool:
    """Whether CUDA comes from an image of the user's own, whose content is not known."""
    cell = stack.cell
    return cell.cuda.provider == "base" and cell.base.kind == "registry" and stack.tag is None


def _compare(
    framework: CellFramework, compiled: Value, loaded: Value, *, strict: bool, ranged: bool
) -> Finding:
    values = (compiled, loaded)

    def finding(outcome: Outcome, message: str) -> Finding:
        return Finding("cudnn-version", outcome, message, values)

    built, there = short(compiled.text, 3), short(loaded.text, 3)
    if major(built) != major(there):
        return finding(
            Outcome.IMPOSSIBLE,
            f"{framework.label} was compiled with cuDNN {built} and would load {there}: "
            "major versions are never compatible",
        )
    if minor(built) is None:
        return finding(
            Outcome.UNKNOWN,
            f"{framework.label} tells only that it was compiled with cuDNN {built}.x; "
            f"whether {there} is new enough is not known",
        )
    if not at_least(short(there, 2), short(built, 2)):
        return finding(
            Outcome.IMPOSSIBLE,
            f"{framework.label} was compiled with cuDNN {built} and would load {there}: "
            "the loaded minor is older",
        )
    if strict and (said := _strict(framework, built, there, ranged=ranged)) is not None:
        return finding(*said)
    chosen = ", the newest that its pins admit" if ranged else ""
    return finding(
        Outcome.POSSIBLE, f"{framework.label}, compiled with cuDNN {built}, would load {there}{chosen}"
    )


def _strict(framework: CellFramework, built: str, there: str, *, ranged: bool) -> tuple[Outcome, str] | None:
    """The reason against this cuDNN if it has to be the compiled one."""
    compiled = f"strict: {framework.label} was compiled with cuDNN {built}"
    if ranged:
        return Outcome.UNKNOWN, f"{compiled}, and pins leave open which is loaded; `rtbuild lock` settles it"
    if not agree(built, there):
        return Outcome.IMPOSSIBLE, f"{compiled}, loaded would be {there}"
    if len(key(built)) < 3:
        return Outcome.WARNS, f"strict: cuDNN {built} is known to the minor only; {there} agrees so far"
    return None


def documented_cuda(stack: Stack) -> Iterator[Finding]:
    """``documented-cuda``: the tag with TensorFlow's documented CUDA may hold the wrong cuDNN."""
    tag = stack.tag
    if tag is None or tag.infix is None:
        return
    for framework in stack.frameworks:
        if framework.name != "tensorflow" or framework.brings == "pins" or framework.row is None:
            continue
        cuda, cudnn, base = framework.row.cuda, framework.cudnn, stack.cudnn
        if not cuda or cudnn is None or base is None or base.place != "base" or base.version is None:
            continue
        if not agree(cuda, tag.cuda):
            continue
        wrong = major(base.version.text) != major(cudnn.text)
        if wrong or not at_least(short(base.version.text, 2), short(cudnn.text, 2)):
            documented = Value("CUDA that TensorFlow documents", cuda, framework.row.source)
            yield impossible(
                "documented-cuda",
                f"{framework.label} documents CUDA {cuda}, but NVIDIA's image of that CUDA holds cuDNN "
                f"{short(base.version.text, 3)}, not {cudnn.text}: choose the base by its cuDNN",
                documented,
                base.version,
                cudnn,
            )
