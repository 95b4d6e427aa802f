from .download import Download, together
from .http import READ_TIMEOUT, Client, explain
from .surroundings import authorities, ca_bundle, pip_settings, proxies, remedy

__all__ = [
    "READ_TIMEOUT",
    "Client",
    "Download",
    "authorities",
    "ca_bundle",
    "explain",
    "pip_settings",
    "proxies",
    "remedy",
    "together",
]
