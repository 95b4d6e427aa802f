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
        """Have ``make`` resolve the cell, given its old entry, and put the result into the file at once.

        A run that is interrupted so keeps every cell that was locked.
        """
        pinned = make(self.previous(cell))
        with self._guard:
            self._lockfile = merge(self.path, self._matrix, {cell.id: pinned})
        return pinned

    def previous(self, cell: Cell) -> Pinned | None:
        """The entry even if it is stale: a new resolution moves away from it no more than it must."""
        return pinned_cell(cell, self._lockfile, stale=True)


def refuse_stale(keeper_of: Mapping[str, LockKeeper], cells: Iterable[Cell]) -> None:
    """Raise StaleLockError with every cell that ``--locked`` cannot accept, and what would mend it."""
    wrong = [(cell, keeper_of[cell.matrix].status(cell)) for cell in cells]
    lines = [f"  {cell.id}: {found.value}" for cell, found in wrong if found is not LockStatus.FRESH]
    if lines:
        files = sorted({str(keeper_of[cell.matrix].path) for cell, s in wrong if s is not LockStatus.FRESH})
        raise StaleLockError(
            f"the lock does not belong to the matrix as it stands ({', '.join(files)}):\n" + "\n".join(lines),
            hint="run `rtbuild lock` with the same matrix, and commit what it writes",
        )
