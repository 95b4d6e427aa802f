"""Container registries: images, blobs and referrers in both directions, by the OCI specifications."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .artifacts import (
        Artifact as Artifact,
        Attachment as Attachment,
        Kept as Kept,
        attach as attach,
        keep_in_tag as keep_in_tag,
        referrers as referrers,
        tag_of as tag_of,
    )
    from .registry import Registry as Registry
    from .spec import (
        CELL_LABEL as CELL_LABEL,
        INDEXES as INDEXES,
        INPUTS_LABEL as INPUTS_LABEL,
        MANIFEST as MANIFEST,
        MATRIX_LABEL as MATRIX_LABEL,
        Descriptor as Descriptor,
        OciImage as OciImage,
        Reference as Reference,
        archive_parts as archive_parts,
        blobs_of as blobs_of,
        choose_manifest as choose_manifest,
        image_manifest as image_manifest,
        is_digest as is_digest,
        is_tag as is_tag,
        parse_config as parse_config,
        parse_mirrors as parse_mirrors,
        parse_reference as parse_reference,
        plain_image as plain_image,
        write_layout as write_layout,
    )
    from .staging import (
        PREFIX as PREFIX,
        MovedTagError as MovedTagError,
        NoImageError as NoImageError,
        Staged as Staged,
        Tally as Tally,
        copy_image as copy_image,
        find_staged as find_staged,
        look as look,
        push_image as push_image,
        put_tag as put_tag,
        read_image as read_image,
        repository_of as repository_of,
        staged_reference as staged_reference,
        staged_tag as staged_tag,
    )
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
