"""A matrix file to cells, and the selection among them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .expand import Replacement as Replacement, amend as amend, entry as entry
    from .expand import PROFILE_PYTHON as PROFILE_PYTHON, cell_id as cell_id, load as load
    from .nodes import (
        Hole as Hole,
        Items as Items,
        Node as Node,
        Problems as Problems,
        Scalar as Scalar,
        Table as Table,
        compose as compose,
        nearest as nearest,
        read as read,
    )
    from .selection import NOT_SELECTED as NOT_SELECTED, Selection as Selection
    from .selection import matches as matches, select as select
    from .values import DEBIAN_SUITES as DEBIAN_SUITES, BadValue as BadValue, seconds as seconds
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
