"""HTTP and downloads: retries, time limits, resumption, checks by content."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .download import Download as Download, together as together
    from .http import (
        READ_TIMEOUT as READ_TIMEOUT,
        Client as Client,
        authorities as authorities,
        ca_bundle as ca_bundle,
        explain as explain,
        pip_settings as pip_settings,
        proxies as proxies,
        remedy as remedy,
    )
else:
    from builder.core import faces

    __getattr__, __dir__, __all__ = faces.attach(__name__, __file__)
