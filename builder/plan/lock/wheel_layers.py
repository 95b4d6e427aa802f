"""Which layer each wheel of a lock is in. It follows from the lock alone: its order, its sizes, its cell."""

from collections.abc import Iterable

from builder.core.model import Pinned, Wheel
from builder.core.versions import canonical, names_of

LISTED_EARLY = 50_000_000
"""Bytes of a wheel file above which a lock lists it before the others, after NVIDIA's."""
OWN_LAYER = 8 << 20
"""Bytes of a wheel file from which it gets a layer of its own."""
MAX_OWN_LAYERS = 64
"""Engines take 127 layers; base and recipe need some. Beyond this many, the smaller wheels share one."""

Group = tuple[Wheel, ...]
"""Wheels that share a layer."""


def lock_order(wheels: Iterable[Wheel]) -> tuple[Wheel, ...]:
    """Wheels in the order of their layers: NVIDIA's, then the other large ones, then the small; each by name.

    Engines share unpacked layers between images only up to the first one that differs. NVIDIA's wheels are
    the same for every framework and Python of a CUDA version, a framework for every cell that pins it, and
    the small packages for hardly two. Names, not sizes, order a group: a new version changes the size.
    """

    def key(wheel: Wheel) -> tuple[int, str, str]:
        group = 0 if wheel.name.startswith("nvidia-") else 1 if wheel.size > LISTED_EARLY else 2
        return group, wheel.name, wheel.file

    return tuple(sorted(wheels, key=key))


def stands_alone(group: Group) -> bool:
    """Whether a layer is that of one large wheel."""
    return len(group) == 1 and group[0].size >= OWN_LAYER


def groups_of(pinned: Pinned) -> tuple[Group, ...]:
    """The wheels of each layer: lowest layer first, each large wheel alone, then all small ones together."""
    frameworks = names_of(pinned.cell.frameworks)

    def shared_first(wheel: Wheel) -> int:
        """NVIDIA's wheels, which frameworks of one CUDA have in common; others; the frameworks, of which each
        release is another. The order within each of these stays the lock's.
        """
        name = canonical(wheel.name)
        return 0 if name.startswith("nvidia-") else 1 + (name in frameworks)

    large = sorted(
        (wheel for wheel in pinned.wheels if wheel.size >= OWN_LAYER), key=lambda wheel: -wheel.size
    )
    alone = [wheel for wheel in pinned.wheels if wheel in large[:MAX_OWN_LAYERS]]
    small = tuple(sorted(wheel for wheel in pinned.wheels if wheel not in alone))
    if pinned.cell.dependencies == "listed":
        alone.sort(key=lambda wheel: wheel.name, reverse=True)
    else:
        alone.sort(key=shared_first)
    groups = tuple((wheel,) for wheel in alone)
    return (*groups, small) if small else groups
