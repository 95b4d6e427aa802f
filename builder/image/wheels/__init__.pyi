from .archive import DEEPEST_PATH, LONGEST_PATH, Archive, Member
from .convert import LAYOUT, obtain_layer, refuse_collisions
from .excerpt import excerpt_of, is_library, is_source
from .wheel import (
    NAMED_FOR_PYTHON,
    SITE,
    EntryPointError,
    Tree,
    check_python,
    check_tags,
    entry_points,
    parents,
    scripts,
    style,
)

__all__ = [
    "DEEPEST_PATH",
    "LAYOUT",
    "LONGEST_PATH",
    "NAMED_FOR_PYTHON",
    "SITE",
    "Archive",
    "EntryPointError",
    "Member",
    "Tree",
    "check_python",
    "check_tags",
    "entry_points",
    "excerpt_of",
    "is_library",
    "is_source",
    "obtain_layer",
    "parents",
    "refuse_collisions",
    "scripts",
    "style",
]
