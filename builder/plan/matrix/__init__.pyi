from .amendment import Replacement, amend
from .bases import SUITES
from .entry_text import entry
from .expand import cell_id, load
from .nodes import Hole, Items, Node, Scalar, Table, compose
from .profiles import OLDEST_PYTHON
from .selection import Selection, matches, select
from .source import Problems, nearest, read
from .values import BadValue, seconds

__all__ = [
    "OLDEST_PYTHON",
    "SUITES",
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
