"""Whether the packages of a locked set can be imported: the proof by imports, out of its wheels."""

from collections.abc import Iterator

from builder.core.import_proof import Missing
from builder.plan.facts.rules.finding import Finding, Outcome, Value
from builder.plan.facts.rules.image_contents import Stack
from builder.plan.facts.tables import Source


def imports(stack: Stack) -> Iterator[Finding]:
    """``imports``: what the import of a package that the cell names takes from another one is there.

    A list of packages as some machine has them is taken as it is, and this is said of it.
    """
    labels = {wheel.name: f"{wheel.name} {wheel.version}" for wheel in stack.truth.wheels}
    outcome = Outcome.WARNS if stack.cell.dependencies == "listed" else Outcome.IMPOSSIBLE
    for one in stack.truth.imports:
        text, values = _said(one, labels.get(one.taker, one.taker), labels.get(one.giver, one.giver))
        yield Finding(outcome, text, values)


def _said(one: Missing, taker: str, giver: str) -> tuple[str, tuple[Value, ...]]:
    through = f", which an import of {one.root} imports," if one.root != one.taker else ""
    takes = Value(f"{one.path}, line {one.line}", one.lacked, Source("wheel", taker))
    if not giver:
        return (
            f"{taker}{through} imports {one.lacked}, which nothing in the lock brings and {one.taker} does "
            f"not ask for: the import ends; add it to pip, or take another release of {one.taker}"
        ), (takes,)
    way = f"another release of {one.taker}"
    way += f", or {one.giver} {one.older}, which has it" if one.older else f" or of {one.giver}"
    return (
        f"{taker}{through} {'uses' if one.used else 'imports'} {one.lacked}, which {giver} does not have:"
        f" the import ends; take {way}"
    ), (takes, Value("not there", one.lacked, Source("wheel", giver)))
