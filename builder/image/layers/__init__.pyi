from .archive import DEEPEST_PATH, LONGEST_PATH, Archive, Member
from .compression import DAMAGED, codec, decompressed, plain
from .convert import LAYOUT, obtain_layer, refuse_collisions
from .excerpt import excerpt_of, is_library, is_source
from .pack import FORMAT, Pack, Packed, find_pack, keep_pack
from .store import MEDIA_TYPES, Layer, LayerStore, Lease
from .tar import END, MTIME, TarEntry, TarReader, file_header, open_layer, padding, tar_layer, write_folder
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
    "DAMAGED",
    "DEEPEST_PATH",
    "END",
    "FORMAT",
    "LAYOUT",
    "LONGEST_PATH",
    "MEDIA_TYPES",
    "MTIME",
    "NAMED_FOR_PYTHON",
    "SITE",
    "Archive",
    "EntryPointError",
    "Layer",
    "LayerStore",
    "Lease",
    "Member",
    "Pack",
    "Packed",
    "TarEntry",
    "TarReader",
    "Tree",
    "check_python",
    "check_tags",
    "codec",
    "decompressed",
    "entry_points",
    "excerpt_of",
    "file_header",
    "find_pack",
    "is_library",
    "is_source",
    "keep_pack",
    "obtain_layer",
    "open_layer",
    "padding",
    "parents",
    "plain",
    "refuse_collisions",
    "scripts",
    "style",
    "tar_layer",
    "write_folder",
]
