"""One matrix's lock during a run: read once, brought up to date cell by cell, written as it grows."""

import threading
from collections.abc import Callable, Iterable, Mapping

from builder.errors import StaleLockError
from builder.lock.file import LockStatus, lock_path, merge, pinned_cell, read_lock, status
from builder.model import Cell, Matrix, Pinned


class LockKeeper:
    """Guards a matrix's lock file for the threads of a run."""

    def __init__(self, matrix: Matrix) -> None:
        self.path = lock_path(matrix.path)
        self._matrix = matrix
        self._guard = threading.Lock()
        self._lockfile = read_lock(self.path)

    def status(self, cell: Cell) -> LockStatus:
        return status(cell, self._lockfile)

    def pinned(self, cell: Cell) -> Pinned | None:
        """The cell's entry; None if it is missing or stale."""
        return pinned_cell(cell, self._lockfile)

    def pin(self, cell: Cell, make: Callable[[Pinned | None], Pinned]) -> Pinned:
        """Have ``make`` resolve the cell, and put the result into the file at once.

        It is given the old entry even if that is stale: a new resolution moves away from it no more than it
        must. A run that is interrupted keeps every cell that was locked.
        """
        pinned = make(pinned_cell(cell, self._lockfile, stale=True))
        with self._guard:
            self._lockfile = merge(self.path, self._matrix, {cell.id: pinned})
        return pinned


def refuse_stale(keeper_of: Mapping[str, LockKeeper], cells: Iterable[Cell]) -> None:
    """Raise StaleLockError with every cell that ``--locked`` cannot accept, and what would mend it."""
    states = [(cell, keeper_of[cell.matrix].status(cell)) for cell in cells]
    wrong = [(cell, state) for cell, state in states if state is not LockStatus.FRESH]
    if wrong:
        files = ", ".join(sorted({str(keeper_of[cell.matrix].path) for cell, _ in wrong}))
        lines = "".join(f"\n  {cell.id}: {state.value}" for cell, state in wrong)
        raise StaleLockError(
            f"the lock does not belong to the matrix as it stands ({files}):{lines}",
            hint="run `rtbuild lock` with the same matrix, and commit what it writes",
        )
