from .compression import INFLATE_ERRORS, BlobWriter, codec, crc32, decompressed, inflater, plain
from .pack import FORMAT, Pack, Packed, find_pack, keep_pack
from .shared import (
    check_content,
    config_digest,
    description,
    manifest_of,
    read,
    shared_tag,
    signature_of,
    signed_text,
)
from .store import LayerStore, Lease
from .tar import END, MTIME, directory_header, file_header, padding, tar_layer, write_folder
from .tmpfs import MemoryFullError, workplace
from .types import MEDIA_TYPES, BaseLayers, Compression, Layer, SystemLayers
from .untar import TarEntry, TarReader, open_layer

__all__ = [
    "END",
    "FORMAT",
    "INFLATE_ERRORS",
    "MEDIA_TYPES",
    "MTIME",
    "BaseLayers",
    "BlobWriter",
    "Compression",
    "Layer",
    "LayerStore",
    "Lease",
    "MemoryFullError",
    "Pack",
    "Packed",
    "SystemLayers",
    "TarEntry",
    "TarReader",
    "check_content",
    "codec",
    "config_digest",
    "crc32",
    "decompressed",
    "description",
    "directory_header",
    "file_header",
    "find_pack",
    "inflater",
    "keep_pack",
    "manifest_of",
    "open_layer",
    "padding",
    "plain",
    "read",
    "shared_tag",
    "signature_of",
    "signed_text",
    "tar_layer",
    "workplace",
    "write_folder",
]
