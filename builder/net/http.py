"""The HTTP client: bounded retries, time limits, the user's proxies and certificate authorities."""

import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import requests
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from builder import __version__
from builder.documents import shown
from builder.net.transport import Adapter

CONNECT_TIMEOUT = 5.0
"""Seconds until a server must have answered the connection."""
READ_TIMEOUT = 60.0
"""Seconds that a server may stay silent, for instance a mirror that fetches a whole wheel first."""

_MOST_REDIRECTS = 10
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")


def redact(text: str) -> str:
    """The text with ``user:password@`` taken out of every URL in it."""
    return _CREDENTIALS.sub("", text)


def explain(error: requests.RequestException) -> str:
    """Why a request failed, in one short line."""
    text = str(error)
    if isinstance(error, requests.exceptions.SSLError):
        found = re.search(r"certificate verify failed[^(\"']*", text)
        return f"TLS: {found.group(0).strip(': ')}" if found else "TLS handshake failed"
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy did not answer"
    if isinstance(error, requests.exceptions.ConnectTimeout):
        allowed = re.search(r"connect timeout=([\d.]+)", text)
        return f"no connection within {float(allowed[1]) if allowed else CONNECT_TIMEOUT:g} s"
    if isinstance(error, requests.exceptions.Timeout) or "timed out" in text:
        return "the server stopped answering"
    for pattern, reason in (
        (
            "Name or service not known|getaddrinfo failed|NameResolution|nodename nor",
            "the host name is unknown",
        ),
        ("Connection refused", "connection refused"),
        ("IncompleteRead|ended prematurely|response ended", "the answer broke off"),
        ("Connection reset|Connection aborted|RemoteDisconnected", "the connection was cut"),
    ):
        if re.search(pattern, text, re.IGNORECASE):
            return reason
    return redact(text)


def _server(url: str) -> str:
    return url.partition("://")[2].partition("/")[0]


class _Session(requests.Session):
    """Reads the environment's proxies and certificates once per server instead of at every request.

    Reading them takes a third of a small request. They depend on scheme, host and port alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self._settings: dict[tuple[object, ...], dict[str, Any]] = {}

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        if proxies:
            return super().merge_environment_settings(url, proxies, stream, verify, cert)
        parts = parse_url(url)
        asked = (parts.scheme, parts.netloc, stream, verify, cert)
        found = self._settings.get(asked)
        if found is None:
            found = dict(super().merge_environment_settings(url, proxies, stream, verify, cert))
            self._settings[asked] = found
        return found | {"proxies": found["proxies"].copy()}


@dataclass(kw_only=True)
class Client:
    """One ``requests`` session a thread; sessions are not promised to be safe across threads.

    Proxies, ``.netrc`` and ``REQUESTS_CA_BUNDLE`` come from the environment, as in every program built on
    ``requests``; ``SSL_CERT_FILE`` is honoured if that is unset.
    """

    ca: str | None = None
    proxies: Mapping[str, str] = field(default_factory=dict)
    retries: int = 4
    connection_retries: int | None = None
    """None: as ``retries``."""
    backoff: float = 0.5
    connect_timeout: float = CONNECT_TIMEOUT
    read_timeout: float = READ_TIMEOUT
    gives_up: bool = False
    """A server that did not answer is not asked again: its failure is raised anew."""

    def __post_init__(self) -> None:
        self._local = threading.local()
        self._silent: dict[str, requests.RequestException] = {}
        """Servers that were given up, each with its failure."""

    def request(self, method: str, url: str, **options: Any) -> requests.Response:
        """One request, retried on connection errors and on 429, 500, 502, 503, 504 (idempotent methods)."""
        options.setdefault("timeout", (self.connect_timeout, self.read_timeout))
        if failure := self.given_up(url):
            raise type(failure)(*failure.args)
        try:
            return self._session().request(method, url, **options)
        except (requests.ConnectionError, requests.Timeout) as problem:
            if self.gives_up:
                self._silent[_server(url)] = problem
            raise
        except requests.RequestException:
            raise
        except (LocationParseError, ValueError) as problem:  # of urllib3, idna and urllib, past requests
            raise requests.exceptions.InvalidURL(f"no address: {shown(redact(url), most=80)}") from problem

    def given_up(self, url: str) -> requests.RequestException | None:
        """The failure of an address's server, if it was given up."""
        return self._silent.get(_server(url))

    def get(self, url: str, **options: Any) -> requests.Response:
        return self.request("GET", url, **options)

    def head(self, url: str, **options: Any) -> requests.Response:
        return self.request("HEAD", url, allow_redirects=True, **options)

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = self._new_session()
        return session

    def _new_session(self) -> requests.Session:
        session = _Session()
        session.headers["User-Agent"] = f"rtbuild/{__version__}"
        if authorities := self.ca or os.environ.get("SSL_CERT_FILE"):
            session.verify = authorities
        session.proxies.update(self.proxies)
        session.max_redirects = _MOST_REDIRECTS
        connecting = self.retries if self.connection_retries is None else self.connection_retries
        adapter = Adapter(retries=self.retries, connection_retries=connecting, backoff=self.backoff)
        session.mount("https://", adapter)
        session.mount("http://", adapter)
        return session
