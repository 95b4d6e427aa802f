from .amendment import Replacement, amend, entry
from .expand import PROFILE_PYTHON, cell_id, load
from .nodes import Hole, Items, Node, Problems, Scalar, Table, compose, nearest, read
from .selection import Selection, matches, select
from .values import DEBIAN_SUITES, BadValue, seconds

__all__ = [
    "DEBIAN_SUITES",
    "PROFILE_PYTHON",
    "BadValue",
    "Hole",
    "Items",
    "Node",
    "Problems",
    "Replacement",
    "Scalar",
    "Selection",
    "Table",
    "amend",
    "cell_id",
    "compose",
    "entry",
    "load",
    "matches",
    "nearest",
    "read",
    "seconds",
    "select",
]
