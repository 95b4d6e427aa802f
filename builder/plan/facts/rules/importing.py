"""Whether the packages of a locked set can be imported: the proof by imports, out of its wheels."""

from collections.abc import Iterator

from builder.core.import_proof import Missing
from builder.plan.facts.rules.finding import Finding, Value, impossible
from builder.plan.facts.rules.image_contents import Stack
from builder.plan.facts.tables import Source


def imports(stack: Stack) -> Iterator[Finding]:
    """``imports``: what the import of a package that the cell names takes from another one is there."""
    labels = {wheel.name: f"{wheel.name} {wheel.version}" for wheel in stack.truth.wheels}
    for one in stack.truth.imports:
        yield _finding(one, labels.get(one.taker, one.taker), labels.get(one.giver, one.giver))


def _finding(one: Missing, taker: str, giver: str) -> Finding:
    through = f", which an import of {one.root} imports," if one.root != one.taker else ""
    if not giver:
        return impossible(
            f"{taker}{through} imports {one.lacked}, which nothing in the lock brings and {one.taker} does "
            f"not ask for: the import ends; add it to pip, or take another release of {one.taker}",
            Value(f"{one.path}, line {one.line}", one.lacked, Source("wheel", taker)),
        )
    way = f"another release of {one.taker}"
    way += f", or {one.giver} {one.older}, which has it" if one.older else f" or of {one.giver}"
    return impossible(
        f"{taker}{through} {'uses' if one.used else 'imports'} {one.lacked}, which {giver} does not have:"
        f" the import ends; take {way}",
        Value(f"{one.path}, line {one.line}", one.lacked, Source("wheel", taker)),
        Value("not there", one.lacked, Source("wheel", giver)),
    )
