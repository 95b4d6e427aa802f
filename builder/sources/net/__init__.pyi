from .download import Download, together
from .http import READ_TIMEOUT, Client, explain

__all__ = [
    "READ_TIMEOUT",
    "Client",
    "Download",
    "explain",
    "together",
]
