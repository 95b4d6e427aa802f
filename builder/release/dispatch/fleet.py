"""``fleet.yaml``: the scheduler, and the resources that it is asked for on each class of GPU."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints, ValidationError

from builder.core.errors import UsageError
from builder.core.model import Span
from builder.plan.matrix import Hole, Items, Node, Problems, Scalar, Table, compose, nearest, read

Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:@/+-]*$", max_length=200)]
"""A scheduler's name of something, without characters special to a shell or YAML."""
Names = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:@/+,&|\[\]-]*$", max_length=400)]
Place = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_/][A-Za-z0-9_.:@/+%-]*$", max_length=400)]
Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]*$", max_length=1000)]
"""One line of a shell's script, which is its owner's."""
Option = Annotated[str, StringConstraints(pattern="^[a-z][a-z-]*$", max_length=60)]
"""An option of sbatch in full."""
Count = Annotated[int, Field(ge=1, le=100_000)]
_FIRST = (
    "it names the scheduler and its classes of GPU; --fleet names another file. A first one:\n"
    "  version: 1\n  scheduler: slurm    # or kubernetes, dstack\n"
    "  staging: registry.example/staging\n  classes: {T4: {partition: gpu}}\n"
    "All keys: docs/dispatch.md"
)
BUILD = "build"
"""The column of tasks that build an image, in the place of a class of GPU."""
KEEP_IMAGES = 50
"""Gigabytes of pulled images that stay on a node unless a fleet file says something else."""


class Resources(BaseModel, extra="forbid", frozen=True):
    """The resources of a task. Fields of the other scheduler are ignored."""

    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    constraint: Names | None = None
    reservation: Word | None = None
    at_once: Count | None = Field(None, description="Tasks at a time at most.")
    minutes: Count | None = None
    cpus: Count | None = None
    memory: Word | None = Field(
        None, description="As the scheduler has it: 8G for sbatch, 8Gi in Kubernetes."
    )


class BuildLane(Resources, frozen=True):
    """Slurm: how builds are asked for, and whose signature on ready-made layers counts."""

    cpus: Count = 2
    layers_key: Place = Field(description="As build --layers-key, on a node.")
    key: Place = Field(description="As build --key, on a node.")


class Lane(Resources, frozen=True):
    """How one class of GPU is asked for."""

    gres: Word | None = Field(None, description="Slurm: gpu:t4:1. By default gpu:CLASS:1 in small letters.")
    product: Word | None = Field(
        None, description="Kubernetes: the node label nvidia.com/gpu.product, such as Tesla-T4."
    )
    setup: tuple[Line, ...] = Field(
        (), description="Slurm: lines of bash before the task, after the fleet's."
    )
    options: dict[Option, Names] = Field(
        {}, description="Slurm: other options of sbatch; those with a key win."
    )
    queue: Word | None = Field(None, description="Kubernetes: the queue of Kueue, if it is not the fleet's.")
    disk: Word = Field("2Gi", description="Kubernetes: ephemeral storage.")
    resource: Word = Field(
        "nvidia.com/gpu", description="Kubernetes: what a card is called, such as nvidia.com/mig-1g.10gb."
    )
    claim: Word | None = Field(None, description="Kubernetes: a ResourceClaimTemplate, in place of resource.")
    patch: dict[str, Any] = Field({}, description="Merged into the Job or dstack's task, after the fleet's.")


Scheduler = Literal["slurm", "kubernetes", "dstack"]


class Fleet(BaseModel, extra="forbid", frozen=True):
    version: Literal["1"]
    scheduler: Scheduler
    staging: Word | None = Field(None, description="Repository of the images; --from counts first.")
    attempts: Annotated[int, Field(ge=1, le=20)] = 3
    pause: Count = Field(60, description="Slurm: seconds before a task is tried again.")
    minutes: Count = Field(30, description="Time limit of a task.")
    command: Place = Field("rtbuild", description="Slurm: rtbuild on a node.")
    key: Place | None = Field(
        None, description="Signs reports, as verify --key. Slurm: on a node; Kubernetes: here, out of logs."
    )
    runtime: Literal["auto", "docker", "podman", "apptainer", "singularity"] = "auto"
    keep_images: Annotated[int, Field(ge=0, le=100_000)] = Field(
        KEEP_IMAGES, description="Slurm: gigabytes of pulled images that stay on a node."
    )
    log: Place | None = Field(None, description="Slurm: --output; %A and %a as sbatch has them.")
    namespace: Word = Field("default", description="Kubernetes.")
    queue: Word | None = Field(None, description="Kubernetes: the local queue of Kueue.")
    setup: tuple[Line, ...] = Field((), description="Slurm: lines of bash before each task.")
    patch: dict[str, Any] = Field({}, description="Merged into each Job, or task of dstack.")
    classes: dict[Word, Lane] = Field(min_length=1)
    build: BuildLane | None = None

    def lane(self, gpu_class: str) -> Lane:
        """The lane of a class that the fleet has, whatever its case."""
        return next(lane for name, lane in self.classes.items() if name.casefold() == gpu_class.casefold())

    def asked(self, column: str) -> Resources:
        """The resources to ask the scheduler for: those of a build, or of a class of GPU."""
        return self.build if column == BUILD and self.build is not None else self.lane(column)


def load_fleet(path: Path) -> Fleet:
    """Read a fleet file.

    Raises:
        MatrixError: with every error of the file, each at its place.
        UsageError: there is no such file.
    """
    if not path.exists():
        raise UsageError(f"there is no fleet file {path}", hint=_FIRST)
    text, problems = read(path)
    root = compose(text, path, problems)
    spans: dict[tuple[str | int, ...], Span] = {}
    plain = _plain(root, (), spans)
    if problems.noted:
        raise problems.error()
    try:
        return Fleet.model_validate(plain)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            _note(fault, spans, root, problems)
        raise problems.error() from error


def merged(old: Any, patch: Any) -> Any:
    """``old`` with a patch in it: tables key by key, lists item by item of the same name, else appended.

    A null takes a key away.
    """
    if isinstance(old, dict) and isinstance(patch, dict):
        whole = {key: merged(old.get(key), value) for key, value in patch.items()}
        return {key: value for key, value in (old | whole).items() if patch.get(key, "") is not None}
    if isinstance(old, list) and isinstance(patch, list):
        names = {one["name"]: one for one in patch if isinstance(one, dict) and "name" in one}
        known = [one.get("name") if isinstance(one, dict) else None for one in old]
        mine = [
            merged(one, names.get(name, {})) if name else one for one, name in zip(old, known, strict=True)
        ]
        fresh = [one for one in patch if not isinstance(one, dict) or one.get("name", "") not in known]
        return [*mine, *fresh]
    return patch


def _plain(node: Node, place: tuple[str | int, ...], spans: dict[tuple[str | int, ...], Span]) -> Any:
    """The value of a node, every scalar a text; the place of each part goes into ``spans``."""
    spans[place] = node.span
    match node:
        case Scalar():
            return _value(node) if place[:1] == ("patch",) or place[2:3] == ("patch",) else node.text
        case Items():
            return [_plain(child, (*place, number), spans) for number, child in enumerate(node.nodes)]
        case Table():
            spans |= {(*place, key, "[key]"): written.span for key, (written, _) in node.entries.items()}
            return {key: _plain(child, (*place, key), spans) for key, (_, child) in node.entries.items()}
        case Hole():
            return None


def _value(node: Scalar) -> Any:
    """The value of a scalar by the core schema: https://yaml.org/spec/1.2.2/#1032-tag-resolution."""
    if node.style or not (plain := re.fullmatch(r"(~|null|)|(true|false)|([-+]?[0-9]+)", node.text)):
        return node.text
    if plain[1] is not None:
        return None
    return node.text == "true" if plain[2] else int(node.text)


def _note(fault: Any, spans: dict[tuple[str | int, ...], Span], root: Node, problems: Problems) -> None:
    """Note one of pydantic's errors at the place that it is about, or at the nearest that is written."""
    place = tuple(fault["loc"])
    while place and place not in spans:
        place = place[:-1]
    if fault["type"] == "extra_forbidden":
        key = str(fault["loc"][-1])
        inner = BuildLane if fault["loc"][0] == "build" else Lane
        known = (Fleet if len(fault["loc"]) == 1 else inner).model_fields
        near = nearest(key, list(known))
        hint = f"did you mean '{near}'?" if near else f"there are: {', '.join(known)}"
        problems.add(f"unknown key '{key}'", spans.get((*place, "[key]"), root.span), hint)
        return
    name = ".".join(str(part) for part in fault["loc"] if part != "[key]")
    problems.add(f"{name}: {fault['msg']}", spans.get(place, root.span))
