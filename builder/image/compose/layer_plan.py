"""Which layers a lock's wheels are, and which of them somebody has."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from builder.core.digests import digest_of
from builder.core.model import Cell, Pinned, RootfsBase, StandalonePython, Wheel
from builder.image.compose import pythons
from builder.image.compose.rootfs import rootfs_key
from builder.image.layers import BaseLayers, Layer, LayerStore, Lease, codec
from builder.image.recipe import LEFT_OUT, pip_of
from builder.image.wheels import LAYOUT, NAMED_FOR_PYTHON, Tree, check_tags
from builder.image.wheels import style as launcher_style
from builder.plan.lock import Group, groups_of, stands_alone

_SLIM = digest_of(LEFT_OUT).removeprefix("sha256:")[:8]
"""The rule for files that are left out, as a part of layers' keys."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The layers of a lock: those that are there, and those to be made of which wheels."""

    pinned: Pinned
    lease: Lease
    groups: tuple[Group, ...]
    """Lowest layer first: each large wheel alone, in the order of :func:`groups_of`, then all small ones
    together. Wheels of a list that is installed as it stands are in pip's order, by which the last one wins:
    see :mod:`builder.image.wheels.convert`."""
    known: Mapping[Group, Layer]
    base: BaseLayers = field(default=BaseLayers(layers=(), config={}))
    """Without layers as long as they are not known: those of a registry's base come with the build."""
    interpreter: tuple[Layer, ...] = ()
    """The layer of a standalone Python, if the lock has one and its layer is known."""

    @property
    def missing(self) -> tuple[Wheel, ...]:
        """The wheels that are needed, those of the lowest layer first."""
        return tuple(wheel for group in self.groups if group not in self.known for wheel in group)

    @property
    def wheels(self) -> tuple[Layer, ...]:
        """The layers of the wheels, lowest first, once all are known."""
        return tuple(self.known[group] for group in self.groups)

    @property
    def every(self) -> tuple[Layer, ...]:
        """The layers that are known and found by their keys: all but those of a registry's base."""
        rootfs = self.base.layers if isinstance(self.pinned.base, RootfsBase) else ()
        return (*self.known.values(), *rootfs, *self.interpreter)

    @property
    def stacked(self) -> tuple[Layer, ...]:
        """The layers of wheels and base, lowest first, once all are known.

        A rootfs stands above the large wheels: an engine unpacks along the chain of layers, and more images
        have the wheels in common than the base. Below ``/opt`` it holds nothing, so the tree is the same
        (:mod:`builder.image.compose.layer_build` refuses another). A registry's base is lowest, where engines
        look for it. A standalone Python comes right after the base.
        """
        below = self.base_at
        return (*self.wheels[:below], *self.base.layers, *self.interpreter, *self.wheels[below:])

    @property
    def base_at(self) -> int:
        """How many of the groups are below the base."""
        if not isinstance(self.pinned.base, RootfsBase):
            return 0
        return sum(map(stands_alone, self.groups))


def plan(pinned: Pinned, lease: Lease) -> Plan:
    """Look for every layer of ``pinned``; nothing is made."""
    for wheel in pinned.wheels:
        check_tags(wheel, pinned.cell)
    groups, cell = groups_of(pinned), pinned.cell
    base_keys = [rootfs_key(pinned.base, cell)] if isinstance(pinned.base, RootfsBase) else []
    python_keys = [python_key(pinned.python, cell)] if pinned.python is not None else []
    with ThreadPoolExecutor(8 if lease.remote else 1, thread_name_prefix="look") as pool:
        wanted = {group: pool.submit(lease.look, layer_keys_of(group, pinned)) for group in groups}
        rootfs = pool.submit(lease.look, base_keys)
        python = pool.submit(lease.look, python_keys)
        found = {group: future.result() for group, future in wanted.items()}
    planned = Plan(
        pinned=pinned,
        lease=lease,
        groups=groups,
        known={group: one for group, one in found.items() if one is not None},
        interpreter=tuple(filter(None, [python.result()])),
    )
    system = rootfs.result()
    return planned if system is None else replace(planned, base=rootfs_base(system, cell))


def rootfs_base(layer: Layer, cell: Cell) -> BaseLayers:
    operating_system, _, architecture = cell.platform.partition("/")
    # BuildKit's setting for an image that starts `FROM scratch`, as the Dockerfile of a recipe does.
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    config = {"architecture": architecture, "os": operating_system, "config": {"Env": [path]}}
    return BaseLayers(layers=(layer,), config=config)


def ready_wheels(pinned: Pinned, store: LayerStore) -> frozenset[str]:
    """The wheels, by sha256, whose layers seem to be in the store: for an estimate, nothing is kept."""
    ready = [group for group in groups_of(pinned) if any(map(store.has, layer_keys_of(group, pinned)))]
    return frozenset(wheel.sha256 for group in ready for wheel in group)


def python_key(python: StandalonePython, cell: Cell) -> str:
    """The key of the layer of a standalone Python: the archive, and the form in which it is laid out."""
    return f"python{pythons.FORMAT}-{python.sha256}-{codec(cell.options.compression)}"


def python_title(python: StandalonePython) -> str:
    """The title of that layer: ``CPython 3.12.16, standalone``."""
    return f"CPython {python.version}, standalone"


def layer_keys_of(wheels: Group, pinned: Pinned) -> list[str]:
    """The keys of a layer: first for wheels without scripts, then with all that scripts depend on."""
    style = launcher_style(pip_of(pinned).version)
    names_python = any(wheel.name in NAMED_FOR_PYTHON for wheel in wheels)
    variant = f"{style}-py{pinned.cell.python}" if names_python else style
    shas = [wheel.sha256 for wheel in wheels]
    alone = len(shas) == 1
    made_of = f"wheel-{shas[0]}" if alone else f"wheels-{digest_of(shas).removeprefix('sha256:')}"
    # Whatever the rule leaves out of these: if that is nothing, both keys lead to the same blob.
    slim = f"-slim{_SLIM}" if pinned.cell.options.slim else ""
    end = f"v{LAYOUT}{slim}-{codec(pinned.cell.options.compression)}"
    return [f"{made_of}-{end}", f"{made_of}-{variant}-{end}"]


def title_of(group: Group) -> str:
    return f"{group[0].name} {group[0].version}" if len(group) == 1 else f"{len(group)} small wheels"


def installed(path: Path, wheel: Wheel, pinned: Pinned) -> Tree:
    """The wheel, open, with the files that installing it would leave in the lock's image."""
    cell, style = pinned.cell, launcher_style(pip_of(pinned).version)
    return Tree(path, wheel, python=cell.python, style=style, slim=cell.options.slim)
