"""Package indexes: resolving requirements, project pages, downloads, and reading members of remote wheels."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import (
        Files as Files,
        Index as Index,
        LocalWheel as LocalWheel,
        Offer as Offer,
        ask as ask,
        cache_path as cache_path,
        page as page,
        pages as pages,
    )
    from .pythons import (
        PythonArchives as PythonArchives,
        choose_python as choose_python,
        known_release as known_release,
        machine_platform as machine_platform,
        offered as offered,
    )
    from .archives import (
        DEEP_LIMIT as DEEP_LIMIT,
        LIMIT as LIMIT,
        RemoteZip as RemoteZip,
        UnknownError as UnknownError,
        is_html as is_html,
        unpacked as unpacked,
    )
    from .archives import (
        SdistContents as SdistContents,
        sdist_contents as sdist_contents,
        sdist_files as sdist_files,
    )
    from .simple_api import IndexFile as IndexFile
    from .uv import UploadLimit as UploadLimit, kept_out as kept_out, lacking as lacking
    from .target import (
        MACHINES as MACHINES,
        Target as Target,
        environment as environment,
        glibc_of as glibc_of,
        host_platform as host_platform,
        rank as rank,
        takes as takes,
        wheel_name as wheel_name,
    )
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
