"""The drivers of several machines, each with its own card, as one value where one driver is asked about."""

from collections.abc import Iterable, Sequence

from builder.core.versions import key


class MachineDrivers(str):
    """The oldest driver of several machines, as a text, with those that each card has on its machines.

    A rule that asks about no card takes the oldest; one about a card takes :func:`drivers_of` it.
    """

    __slots__ = ("pairs",)
    pairs: tuple[tuple[str, str], ...]
    """(card as the tables name it, driver of a machine that has it), sorted."""

    def __new__(cls, pairs: Iterable[tuple[str, str]]) -> "MachineDrivers":
        found = tuple(sorted(set(pairs)))
        made = super().__new__(cls, min((driver for _, driver in found), key=key))
        made.pairs = found
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MachineDrivers) and self.pairs == other.pairs

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.pairs)


def drivers_of(driver: str, gpu: str) -> tuple[str, ...]:
    """The drivers of the machines that have a card, the oldest first; of one driver that itself."""
    pairs = driver.pairs if isinstance(driver, MachineDrivers) else ()
    return tuple(sorted((own for card, own in pairs if card == gpu), key=key)) or (str(driver),)


def among(driver: str | None, gpus: Sequence[str]) -> str | None:
    """The drivers of those machines that have one of the cards."""
    if not isinstance(driver, MachineDrivers):
        return driver
    kept = [pair for pair in driver.pairs if pair[0] in gpus]
    return MachineDrivers(kept) if kept else str(driver)


def machines_told(gpus: Sequence[str], driver: str | None) -> str:
    """Cards and drivers for a line that people read: ``RTX3090 with 535, A100 with 550``."""
    if not isinstance(driver, MachineDrivers):
        return ", ".join([*gpus, *([f"driver {driver}"] if driver is not None else [])])
    own = (f"{gpu} with {' and '.join(drivers_of(driver, gpu))}" for gpu in gpus)
    return f"drivers {', '.join(own)}"
