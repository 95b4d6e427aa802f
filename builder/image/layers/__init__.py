"""Wheels become layers: read without being believed, laid out as pip would, kept as blobs in a store."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .convert import (
        FORMAT as FORMAT,
        LAYOUT as LAYOUT,
        Pack as Pack,
        Packed as Packed,
        excerpt_of as excerpt_of,
        find_pack as find_pack,
        is_library as is_library,
        is_source as is_source,
        keep_pack as keep_pack,
        obtain_layer as obtain_layer,
        refuse_collisions as refuse_collisions,
    )
    from .store import MEDIA_TYPES as MEDIA_TYPES, Layer as Layer, LayerStore as LayerStore, Lease as Lease
    from .tar import (
        DAMAGED as DAMAGED,
        END as END,
        MTIME as MTIME,
        TarEntry as TarEntry,
        TarReader as TarReader,
        codec as codec,
        decompressed as decompressed,
        file_header as file_header,
        open_layer as open_layer,
        padding as padding,
        plain as plain,
        tar_layer as tar_layer,
        write_folder as write_folder,
    )
    from .wheel import (
        DEEPEST_PATH as DEEPEST_PATH,
        LONGEST_PATH as LONGEST_PATH,
        NAMED_FOR_PYTHON as NAMED_FOR_PYTHON,
        SITE as SITE,
        Archive as Archive,
        EntryPointError as EntryPointError,
        Member as Member,
        Tree as Tree,
        check_python as check_python,
        check_tags as check_tags,
        entry_points as entry_points,
        parents as parents,
        scripts as scripts,
        style as style,
    )
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
