from .amendment import Replacement, amend
from .bases import DEBIAN_SUITES
from .entry_text import entry
from .expand import cell_id, load
from .nodes import Hole, Items, Node, Scalar, Table, compose
from .profiles import PROFILE_PYTHON
from .selection import Selection, matches, select
from .source import Problems, nearest, read
from .values import BadValue, seconds

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
