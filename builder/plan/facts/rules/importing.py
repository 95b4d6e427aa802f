"""Whether the packages of a locked set can be imported: the proof by imports, out of its wheels."""

from collections.abc import Iterator

from builder.core.import_proof import PYTHON, Missing
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
        taker, giver = (labels.get(name, name) for name in (one.taker, one.giver))
        text, values = _said(one, taker, giver, f"Python {stack.cell.python}")
        yield Finding(outcome, text, values)


def _said(one: Missing, taker: str, giver: str, python: str) -> tuple[str, tuple[Value, ...]]:
    through = f", which an import of {one.root} imports," if one.root != one.taker else ""
    takes = Value(f"{one.path}, line {one.line}", one.lacked, Source("wheel", taker))
    if one.giver == PYTHON:
        return (
            f"{taker}{through} {'uses' if one.used else 'imports'} {one.lacked}, which {python} does not"
            f" have: the import ends; take another release of {one.taker}, or of Python"
        ), (takes, Value("not there", one.lacked, Source("wheel", taker)))
    if one.argument:
        way = f"another release of {one.taker} or of {giver}"
        return (
            f"{taker}{through} calls {one.lacked} with the argument {one.argument}, which it does not take in"
            f" {giver}: the import ends; take {way}"
        ), (takes, Value("does not take", one.argument, Source("wheel", giver)))
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
