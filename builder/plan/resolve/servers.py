"""Servers that their makers publish as images, which no table of wheels covers: what the machine has."""

from collections.abc import Iterator

from builder.core.versions import at_least, canonical, major
from builder.plan.facts.tables import load, to_type
from builder.plan.resolve.solve import Demand


def of_servers(demand: Demand) -> Iterator[str]:
    """Lines on each server among the packages asked for: its image, the CUDA that the driver serves, and the
    page with its drivers. Which of its releases run is not on record.
    """
    for wish in demand.companions:
        row = load().servers.get(canonical(wish.name))
        if row is not None:
            yield (
                f"{row.title} comes as an image, `docker pull {row.image}`, and which of its releases run "
                "here is not on record"
            )
            yield from _of_machine(demand)
            yield f"{row.page} lists the drivers that each release asks for; {row.text} [{row.source}]"


def _of_machine(demand: Demand) -> Iterator[str]:
    """What the driver serves, by CUDA's major versions; nothing without a driver."""
    families = [row for row in load().families.values() if row.floor is not None]
    driver = str(demand.driver) if demand.driver is not None else "0"
    served = [row for row in families if at_least(driver, row.floor or "")]
    if not served:
        return
    newest = max(served, key=lambda row: int(row.major))
    cards = " and ".join(map(to_type, demand.gpus)) or "this machine"
    said = (
        f"driver {driver} serves all of CUDA {newest.major} on {cards}, but for code that it compiles itself"
    )
    later = [row for row in families if int(row.major) > int(newest.major)]
    for row in later[:1]:
        said += f"; CUDA {row.major} takes driver {row.floor}"
        if demand.gpus and all(gpu in load().forward.cards for gpu in demand.gpus):
            said += (
                f", or the cuda-compat of the image, which NVIDIA supports on {_branches(row.major, driver)}"
            )
    yield said


def _branches(family: str, driver: str) -> str:
    """Whether ``cuda-compat`` of a CUDA major version is for a driver's branch, in words."""
    rows = [row for version, row in load().compat.items() if version.partition(".")[0] == family]
    branch = str(major(driver))
    named = sorted({one for row in rows for one in row.branches})
    told = f"branches {', '.join(named)}" if named else "branches that nobody read here"
    return told + f", and {branch} is {'one' if branch in named else 'none'} of them" * bool(named)
