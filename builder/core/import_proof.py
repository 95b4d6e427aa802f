"""The proof by imports: what an import takes from other wheels of a set, held against what they have.

It follows what is certainly executed, and a name is missing only where nothing can bring it. Whatever is not
decided is no finding.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from builder.core.import_outcomes import Executed, Missing, Outcomes
from builder.core.import_reach import may_come_to
from builder.core.import_set import IS_INNER, OWN, ImportSet, Lack
from builder.core.module_ends import catches, lets_out
from builder.core.module_values import Guard, Taken

_DEEPEST = 40
_PROGRAMS = frozenset({"pip"})
"""Distributions that run in a process of their own: no other import sees the modules that they carry."""
_MOST_OF_PAIR, _MOST_IN_DOUBT = 8, 64
_MOST_MODULES = 40_000
_MOST_COUNTED = 2_000
_MOST_TRIED = 5_000


def missing(
    every: ImportSet,
    roots: Mapping[str, Iterable[str]],
    beside: Mapping[str, Iterable[str]] | None = None,
    loaded: set[str] | None = None,
) -> Iterator[Missing]:
    """What imports of ``roots``, modules by distribution, certainly lack: the first for each two wheels, and
    each module that no wheel has.

    After them those of ``beside``, whose failure is ``aside``: what no wheel brings may be an extra's there.
    ``loaded`` gets the compiled modules that imports of ``roots`` come to, and names of files of libraries
    that modules open.
    """
    outcomes = Outcomes(every)
    walk = _Walk(outcomes)
    found = list(walk.run(roots))
    executed = frozenset(walk.by)
    if loaded is not None:
        loaded |= {module for module in walk.by if every.is_compiled(module)}
        read = filter(None, map(every.names, walk.by))
        loaded |= {file for names in read for file in names.files}
    found += (
        replace(one, aside=True)
        for one in walk.run(beside or {})
        if (one.giver or one.ends) and not one.because
        if not (one.ends and one.giver == one.taker)  # a module that is there to say that it is gone
    )
    lacks = list(dict.fromkeys(lack for one in found for lack in _lacks(every, one)))
    givers = {lack[2] for lack in lacks}
    others = (wheel for wheel in every.wheels if wheel.name not in _PROGRAMS)
    untold = {lack for one in found if one.untold for lack in _lacks(every, one)}
    unsaid, certain = set[Lack](), {lack for one in found if not one.aside for lack in _lacks(every, one)}
    for wheel in sorted(others, key=lambda one: one.name not in givers):  # what they may add is most
        answers = every.brings(wheel.name, lacks) if lacks else ()
        added = {lack for lack, brought in zip(lacks, answers, strict=True) if brought is not False}
        for lack in set(lacks) - added:
            if _in_added_folder(every, wheel.name, lack, executed if lack in certain else walk.by):
                added.add(lack)
        mine = [lack for lack in added if wheel.name == lack[2]]
        gone = {lack for lack in mine if _says_gone(every, lack)}
        # its sources may put the name together, and have it nowhere
        unsure = untold.union(one for one in mine if one[1] and every.mentions(wheel.name, one[1]) is False)
        made = unsure.intersection(mine) - gone
        lacks = [lack for lack in lacks if lack not in added or lack in gone or lack in made]
        unsaid |= made
    left = set(lacks)
    aside = {one.root for one in found if one.aside and left.issuperset(_lacks(every, one))}
    most = {root: _most(outcomes, root, left) for root in aside}
    pairs = set[tuple[str, ...]]()
    for one in found:
        doubt = one.doubt or not unsaid.isdisjoint(_lacks(every, one))
        pair = (*pair_of(one), *((one.lacked,) if doubt and not one.ends else ()))  # others may be certain
        if left.issuperset(_lacks(every, one)) and pair not in pairs:
            pairs.add(pair)
            share = most.get(one.root, "") if one.aside else ""
            yield replace(one, doubt=doubt, aside=one.aside and not share, most=share)


def _in_added_folder(every: ImportSet, wheel: str, lack: Lack, executed: Collection[str]) -> bool:
    """Whether a lacking module lies in a folder of a wheel that imports may add to those searched."""
    if lack[1] is not None:
        return False
    adders = every.adders(wheel, lack[0])
    names = [one.name for one in every.wheels if one.name not in {OWN, *_PROGRAMS}] if adders else []
    return adders is None or any(
        not one or may_come_to(one, executed, names, every.importers) for one in adders
    )


def pair_of(one: Missing) -> tuple[str, ...]:
    """The two wheels of which one row is told; of the cell's own imports each."""
    own = (one.lacked,) if one.taker == OWN else ()
    return (one.taker, one.giver or (one.library if one.ends else one.lacked), *own)


def _says_gone(every: ImportSet, lack: Lack) -> bool:
    """Whether the package that lacks a name says so, or that a module is one which it never says."""
    module, name, owner = lack
    if name is not None:
        return every.says_gone(module, name)
    above, _, last = module.rpartition(".")
    unsaid = (
        every.whole and bool(owner) and every.owner(above) == owner and every.mentions(owner, last) is False
    )
    return unsaid or every.unsaid_module(module) == module


def _most(outcomes: Outcomes, distribution: str, left: set[Lack]) -> str:
    """How many modules of a distribution cannot be imported, if these are most: whoever imports the package
    alone has nothing of it then. What an extra would bring does not count, nor do its tests, nor what lies
    outside of the package that has its name: of torch 1.8 half is caffe2."""
    every = outcomes.every
    wheel = every.wheel(distribution)
    if wheel is None or len(wheel.modules) > _MOST_COUNTED:
        return ""
    below = tuple(f"{root}." for root in wheel.roots)
    mine = {name for name in wheel.modules if name.startswith(below) and not IS_INNER.search(name)}
    mine = {name for name in mine if (found := every.names(name)) is None or found.names or found.executed}
    above: dict[str, set[str]] = {}
    queue, seen, failing = deque(mine), set(mine), deque[str]()
    while queue:
        module = queue.popleft()
        outcome = outcomes.outcome(module)
        owner = every.owner(module)
        if owner is not None and any(_ends_it(every, one, owner, left) for one in outcome.lacks):
            failing.append(module)
        parts = module.split(".")
        inner = [".".join(parts[:number]) for number in range(1, len(parts))]
        for other in (*inner, *outcome.executed):
            above.setdefault(other, set()).add(module)
            if other not in seen and every.there(other):
                seen.add(other)
                queue.append(other)
    ended = set(failing)
    while failing:
        for module in above.get(failing.popleft(), ()):
            if module not in ended:
                ended.add(module)
                failing.append(module)
    count = len(ended & mine)
    return f"{count} of {len(mine)}" if 2 * count > len(mine) else ""


def _ends_it(every: ImportSet, one: Missing, owner: str, left: set[Lack]) -> bool:
    """Whether a lack of a module ends its import for certain, and no extra would bring what is lacking."""
    giver = one.giver if one.ends else every.giver(one.module, one.name)
    known = bool(giver) and giver != owner and not one.because and not one.doubt
    return known and (bool(one.ends) or (one.module, one.name, giver) in left)


def _lacks(every: ImportSet, one: Missing) -> Iterator[Lack]:
    """All names that have to be lacking, so that an import ends with it."""
    if not one.ends:
        yield one.module, one.name, one.giver
        above, _, last = one.module.rpartition(".")
        real = every.real(one.module) if one.name is not None or not above else f"{every.real(above)}.{last}"
        if real != one.module:  # whoever brings it may say either
            yield real, one.name, one.giver
    for module, name in one.because:
        yield module, name, every.giver(module, name) or ""


def _error(one: Missing) -> str:
    """The exception that an import ends with; empty if nobody knows."""
    if one.ends:
        return one.error
    return "TypeError" if one.argument else "AttributeError" if one.used else ""


def _is_no_import(one: Missing) -> bool:
    return bool(_error(one)) and catches(("ImportError",), _error(one)) is False and not one.because


class _Walk:
    """The modules that imports execute, one after the other, each once."""

    def __init__(self, outcomes: Outcomes) -> None:
        self.outcomes, self.every = outcomes, outcomes.every
        self.by: dict[str, str | None] = {}
        self.roots: dict[str, str] = {}
        self.queue: deque[str] = deque()
        self.pairs: Counter[tuple[str, str, bool]] = Counter()
        self.tried = 0
        """Modules that imports of a ``try`` came to."""

    def run(self, roots: Mapping[str, Iterable[str]]) -> Iterator[Missing]:
        for root, modules in roots.items():
            for module in modules:
                self.execute(module, None, root)
            while self.queue and len(self.by) < _MOST_MODULES:
                module = self.queue.popleft()
                outcome = self.outcomes.outcome(module)
                for other in outcome.executed:
                    self.execute(other, module, root)
                yield from self.lacking(module, outcome)
                yield from self.opening(module)
            if (code := self.outcomes.refused_code(root)) is not None and code not in self.by:
                self.by[code], self.roots[code] = None, root
                yield from self.lacking(code, self.outcomes.outcome(code))
        for module in tuple(self.by):
            for at, guard in self.outcomes.outcome(module).tried:
                if self.every.whole:
                    yield from self.trying(module, at, guard)
                if all(self.succeeds(one) for one in guard.tried if one.pythons >> self.every.python & 1):
                    yield from self.lacking(module, self.outcomes.after(at, guard))

    def succeeds(self, one: Taken) -> bool:
        """Whether an import is also one that no handler is around: it fails there, if it fails."""
        inner = one.module if one.name is None else f"{one.module}.{one.name}"
        return one.module in self.by and (
            inner in self.by or self.every.has(one.module, one.name or "") is True
        )

    def trying(self, module: str, of: str, guard: Guard) -> Iterator[Missing]:
        """What ends the imports of a ``try``, or what is used after them, by another exception than its
        handlers get.

        Nothing if an ImportError may come before it, of which the handlers are; of what comes after the
        imports also nothing if a module of theirs was not read.
        """
        inner, root = _Walk(self.outcomes), self.roots[module]
        inner.by, inner.roots = dict(self.by), dict(self.roots)
        for one in guard.tried:
            if one.pythons >> self.every.python & 1:
                own = f"{of}.{one.name}" if one.module == of else ""  # bound by the handler alone
                outcome = self.outcomes.executes(one)
                if outcome.deferred:
                    return
                for other in (*outcome.executed, own):
                    inner.execute(other, module, root)
        found: list[Missing] = []
        whole = True
        while inner.queue:
            at = inner.queue.popleft()
            self.tried += 1
            names, outcome = self.every.names(at), self.outcomes.outcome(at)
            whole &= names is not None
            raises = names is not None and (names.raises or names.opens)
            unknown = raises or outcome.deferred or self.tried > _MOST_TRIED
            if unknown or not all(map(_is_no_import, outcome.lacks)):
                return
            for other in outcome.executed:
                inner.execute(other, at, root)
            found += inner.lacking(at, outcome)
        yield from (one for one in found if lets_out(guard.kinds, _error(one)))
        if whole and not found and all(map(inner.succeeds, guard.tried)):
            yield from self.lacking(module, self.outcomes.after(of, guard))

    def lacking(self, module: str, outcome: Executed) -> Iterator[Missing]:
        for one in outcome.lacks:
            taker = self.every.owner(one.taking)
            giver = one.giver if one.ends else self.every.giver(one.module, one.name)
            if taker is None or giver is None or (giver == taker and not one.ends):
                continue
            # what a wheel adds may fill a count, and hide what none does; so may what is in doubt
            pair = (taker, giver or one.module, one.doubt)
            self.pairs[pair] += 1
            if self.pairs[pair] <= (_MOST_IN_DOUBT if one.doubt else _MOST_OF_PAIR) or taker == OWN:
                path, chain = self.every.path(one.taking), self.chain(module)
                yield replace(one, root=self.roots[module], taker=taker, path=path, giver=giver, chain=chain)

    def opening(self, module: str) -> Iterator[Missing]:
        """Libraries that a module names to open them, if none of these is there."""
        names, taker = self.every.names(module), self.every.owner(module)
        lacked = self.outcomes.lacks_library(names.opens) if names is not None and names.opens else None
        if lacked is not None and taker is not None:
            named = lacked.removesuffix("*")
            text = f"names the library {named} to open it, which nothing in the lock brings"
            yield Missing(
                module,
                1,
                module,
                None,
                ends=text,
                library=lacked,
                doubt=True,
                root=self.roots[module],
                taker=taker,
                path=self.every.path(module),
                chain=self.chain(module),
            )

    def execute(self, module: str, by: str | None, root: str) -> None:
        """A module is executed after all that it lies in."""
        parts = module.split(".")
        for number in range(1, len(parts) + 1):
            part = ".".join(parts[:number])
            if part not in self.by and self.every.there(part):
                self.by[part] = by
                self.roots[part] = root
                self.queue.append(part)

    def chain(self, module: str) -> tuple[str, ...]:
        found, at = list[str](), self.by.get(module)
        while at is not None and len(found) < _DEEPEST:
            found.append(at)
            at = self.by.get(at)
        return tuple(reversed(found))
