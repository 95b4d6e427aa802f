"""The HTTP client: bounded retries, sizes and times, the user's proxies and certificate authorities, as a
machine says of its network.

``requests`` bounds only the silence between two bytes: a server that sends a byte a second, or an endless
error page, would stop a run or fill its memory. It also reads the whole body of a redirect, and ``urllib3``
that of an answer before a retry.
"""

import configparser
import http.client
import io
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import LocationParseError, MaxRetryError, ProxyError
from urllib3.util import parse_url
from urllib3.util.retry import Retry

from builder import __version__
from builder.core.documents import redact, shown
from builder.core.errors import UsageError

_BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
_REMEDIES = {
    r"HTTP 407|407 +Proxy Auth|proxy authorization required": "a proxy's login is part of its address, with "
    "%XX for characters such as @ and /: NAME:PASSWORD@ before its host, in HTTPS_PROXY and HTTP_PROXY",
    r"proxy \S+ refuses|tunnel error: unsuccessful": "ask who runs the proxy to allow this host, or name a "
    "mirror that it allows; NO_PROXY names hosts that are reached without it",
    r"proxy \S+ did not answer|tunnel error|connect to proxy": "correct or unset HTTPS_PROXY and HTTP_PROXY",
    r"certificate verif|UnknownIssuer|certificate is NOT trusted": "if a company's proxy opens TLS, or the "
    "server has an authority of its own: SSL_CERT_FILE=FILE, a file with that authority and the system's",
}
"""Remedies for the way to a server, by the words of this package, uv and apt; the first that fits counts."""


def remedy(said: str) -> str | None:
    """The remedy for a failure of a proxy or of TLS, by its message; None for any other."""
    return next((advice for words, advice in _REMEDIES.items() if re.search(words, said)), None)


def proxies(env: Mapping[str, str]) -> dict[str, str]:
    """Proxy settings in both spellings, since curl and apt read one and others read the other."""
    found: dict[str, str] = {}
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        # Where both are set, the small one: curl does not read HTTP_PROXY, which a web server sets for its
        # CGI programs from a header of the request.
        value = env.get(name.lower()) or env.get(name)
        if value:
            found[name] = found[name.lower()] = value
    return found


def authorities(env: Mapping[str, str]) -> Path | None:
    """The certificate authorities that the environment, or else pip's configuration, names: file or folder.

    None if none are named: a program's own, or a base's, are as good. Raises UsageError for a path that is
    not there.
    """
    named = [(name, env[name]) for name in _BUNDLES if env.get(name)]
    if not named and (configured := " ".join(pip_settings(env).get("cert", ()))):
        named.append(("cert in pip's configuration", configured))
    if not named:
        return None
    name, value = named[0]
    path = Path(value).expanduser()
    if not path.exists():
        raise UsageError(f"{name} names {value}, which is not there", hint=f"unset {name}, or correct it")
    return path.resolve()


def ca_bundle(env: Mapping[str, str]) -> Path | None:
    """:func:`authorities` for a place that takes one file alone. Raises UsageError for a folder."""
    found = authorities(env)
    if found is not None and not found.is_file():
        hint = "name one file with all certificates: SSL_CERT_FILE=FILE"
        raise UsageError(f"the certificate authorities {found} are no file", hint=hint)
    return found


def pip_settings(environ: Mapping[str, str]) -> dict[str, list[str]]:
    """pip's options that concern indexes: its files in its order of precedence, then its variables.

    https://pip.pypa.io/en/stable/topics/configuration/ (sections ``global`` and ``install``).
    """
    found: dict[str, list[str]] = {}
    options = ("index-url", "extra-index-url", "find-links", "no-index", "cert", "default-timeout", "timeout")
    for path in _pip_files(environ):
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as problem:
            raise UsageError(f"{path} cannot be read: {problem}", hint="pip refuses it as well") from problem
        for section in ("global", "install"):
            if parser.has_section(section):
                values = {key.replace("_", "-"): value for key, value in parser.items(section)}
                found |= {name: values[name].split() for name in options if values.get(name)}
    for name in options:
        value = environ.get("PIP_" + name.upper().replace("-", "_"))
        if value:
            found[name] = value.split()
    if found.get("no-index", ["0"])[0].lower() in ("0", "false", "no", "off"):
        found.pop("no-index", None)
    return found


def _pip_files(environ: Mapping[str, str]) -> list[Path]:
    """From the weakest to the strongest: machine, user, environment, ``PIP_CONFIG_FILE``."""
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    home = Path(environ.get("HOME") or Path.home())
    own = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    shared = (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    files = [Path(folder) / "pip/pip.conf" for folder in shared]
    files += [Path("/etc/pip.conf"), home / ".pip/pip.conf", own / "pip/pip.conf"]
    files += [Path(sys.prefix) / "pip.conf", *([Path(named)] if named else [])]
    return [path for path in files if path.is_file()]


CONNECT_TIMEOUT = 5.0
"""Seconds until a server must have answered the connection."""
READ_TIMEOUT = 60.0
"""Seconds that a server may stay silent, for instance a mirror that fetches a whole wheel first."""

LARGEST = 32 << 20
"""Most bytes of an answer that is read whole; the page of a project with 10,000 files has a third of them."""
PATIENCE = 90.0
"""Seconds that any answer may take; a longer one must bring :data:`SLOWEST` bytes per further second."""
SLOWEST = 4 << 10
AROUND = 8 << 20
"""Most bytes that come without a piece of the body: headers, ``100 Continue``, trailers, empty blocks."""
_PIECE = 1 << 16
_SENT = 128 << 10
"""Bytes of an upload that are sent at once: at each of urllib3's 16 KiB this thread waits for others. A piece
must go out within the time limit of connecting, 5 s, on a slow line, too."""
_CONNECTIONS = 16
"""Connections to one server that are kept for the next request."""
_REASONS = {
    "Name or service not known|getaddrinfo failed|NameResolution|nodename nor": "the host name is unknown",
    "Network is unreachable|No route to host": "no network leads there",
    "Connection refused": "connection refused",
    "IncompleteRead|ended prematurely|response ended": "the answer broke off",
    "Connection reset|Connection aborted|RemoteDisconnected": "the connection was cut",
}
"""By the words of requests, urllib3 and the system; the first that fits counts."""


def explain(error: requests.RequestException) -> str:
    """Why a request failed, in one short line."""
    text = str(error)
    if isinstance(error, requests.exceptions.SSLError):
        found = re.search(r"certificate verify failed[^(\"']*", text)
        return f"TLS: {found.group(0).strip(': ')}" if found else "TLS handshake failed"
    if isinstance(error, ProxyProblemError):
        return text
    if isinstance(error, requests.exceptions.ConnectTimeout):
        allowed = re.search(r"connect timeout=([\d.]+)", text)
        return f"no connection within {float(allowed[1]) if allowed else CONNECT_TIMEOUT:g} s"
    if isinstance(error, requests.exceptions.Timeout) or "timed out" in text:
        return "the server stopped answering"
    reasons = (reason for said, reason in _REASONS.items() if re.search(said, text, re.IGNORECASE))
    return next(reasons, redact(text))


def _proxy(session: requests.Session, url: str) -> str:
    """The proxy that a request to ``url`` takes."""
    settings = session.merge_environment_settings(url, {}, None, None, None)
    found = requests.utils.select_proxy(url, settings["proxies"]) or "in between"
    return found if "://" in found else f"http://{found}"


def _past_proxy(
    session: requests.Session, method: str, url: str, options: Mapping[str, Any]
) -> requests.Response:
    """One request. Raises ProxyProblemError for what a proxy says instead of the server."""
    try:
        answer = session.request(method, url, **options)
    except requests.exceptions.ProxyError as problem:
        raise _proxy_problem(url, _proxy(session, url), str(problem)) from problem
    if answer.status_code == 407:
        answer.close()
        raise _proxy_problem(url, _proxy(session, url), f"HTTP: 407 {answer.reason}")
    return answer


def _server(url: str) -> str:
    return url.partition("://")[2].partition("/")[0]


class ProxyProblemError(requests.exceptions.ProxyError):
    """A proxy refused or did not answer; the text names it, without its login, and says which."""


def _proxy_problem(url: str, proxy: str, said: str) -> ProxyProblemError:
    """From what urllib3 or the proxy's own answer to a plain request says."""
    name = f"the proxy {redact(proxy)}"
    refusal = re.search(r"(?:Tunnel connection failed|HTTP): (\d{3}) ?([^'\")]*)", said)
    if refusal is None:
        reasons = (reason for words, reason in _REASONS.items() if re.search(words, said, re.IGNORECASE))
        why = next(reasons, "timed out" if "timed out" in said else "no connection")
        return ProxyProblemError(f"{name} did not answer: {why}")
    status = f"HTTP {refusal[1]} {shown(refusal[2], most=80)}".strip()
    if refusal[1] == "407":
        return ProxyProblemError(f"{name} wants a login, or refuses the one that its address has ({status})")
    return ProxyProblemError(f"{name} refuses a connection to {_server(redact(url))} ({status})")


class TooLargeError(requests.RequestException):
    """An answer has more bytes than are read of one."""


class _Paced(io.RawIOBase):
    """A socket's bytes, as long as they come fast enough."""

    def __init__(self, raw: Any, sock: socket.socket) -> None:
        self._raw = raw
        self._sock = sock
        self._began = time.monotonic()
        self._received = 0
        self._taken = 0

    def taken(self) -> None:
        """A piece of the body has come out of the bytes so far."""
        self._taken = self._received

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = PATIENCE + self._received / SLOWEST - (time.monotonic() - self._began)
        if left <= 0 or self._received - self._taken > AROUND:
            raise TimeoutError("timed out: the server answers too slowly, or without an end")
        silence = self._sock.gettimeout()
        if silence is None or silence > left:
            self._sock.settimeout(left)
        try:
            count: int | None = self._raw.readinto(buffer)
        finally:
            self._sock.settimeout(silence)
        self._received += count or 0
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _PacedAnswer(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.paced = _Paced(self.fp.detach(), sock)
        self.fp = io.BufferedReader(self.paced, _PIECE)


class _Http(HTTPConnection):
    response_class = _PacedAnswer


class _Https(HTTPSConnection):
    response_class = _PacedAnswer


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _Https


_POOLS = {"http": _HttpPool, "https": _HttpsPool}


class _Again(Retry):
    """Retries without reading the refused answer to its end; what a proxy refuses is not asked for again."""

    def increment(
        self,
        method: Any = None,
        url: Any = None,
        response: Any = None,
        error: Any = None,
        _pool: Any = None,
        _stacktrace: Any = None,
    ) -> Self:
        if isinstance(error, ProxyError) and re.search(r"Tunnel connection failed: 4\d\d", str(error)):
            raise MaxRetryError(_pool, url or "", error)
        left = super().increment(method, url, response, error, _pool, _stacktrace)
        if response is not None:
            response.close()
        return left


class _Answer(requests.Response):
    """``content`` has at most :data:`LARGEST` bytes; readers of pieces count them."""

    def iter_content(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        answer: Any = self.raw._original_response  # noqa: SLF001 - requests takes cookies from it, too
        try:
            for piece in super().iter_content(*arguments, **options):
                answer.paced.taken()
                yield piece
        except requests.RequestException:
            raise
        except ValueError as problem:  # of urllib3, for a chunk of less than nothing
            raise requests.exceptions.ChunkedEncodingError(str(problem)) from problem

    @property
    def content(self) -> bytes:
        taken: bytes | bool | None = self._content
        if taken is False:
            body = bytearray()
            for piece in self.iter_content(_PIECE):
                body += piece
                if len(body) > LARGEST:
                    self.close()
                    raise TooLargeError(f"the answer has more than {LARGEST >> 20} MiB", response=self)
            self._content, self._content_consumed = bytes(body), True
        return self._content or b""


class _Adapter(HTTPAdapter):
    def __init__(self, *, retries: int, connection_retries: int, backoff: float) -> None:
        again = _Again(
            total=retries,
            connect=connection_retries,
            read=connection_retries,
            backoff_factor=backoff,
            backoff_max=10,
            status_forcelist=(429, 500, 502, 503, 504),
            # Without this a server may ask for a pause of hours, and urllib3 would take it.
            respect_retry_after_header=False,
            raise_on_status=False,
        )
        super().__init__(max_retries=again, pool_maxsize=_CONNECTIONS)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, blocksize=_SENT, **options)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, blocksize=_SENT, **options)
        manager.pool_classes_by_scheme = _POOLS
        return manager

    def build_response(self, req: requests.PreparedRequest, resp: Any) -> requests.Response:
        built = super().build_response(req, resp)
        built.__class__ = _Answer
        return built


class _Session(requests.Session):
    """Reads the environment's proxies and certificates once per server instead of at every request.

    Reading them takes a third of a small request. They depend on scheme, host and port alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self._settings: dict[tuple[object, ...], dict[str, Any]] = {}

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        # Named, since requests puts REQUESTS_CA_BUNDLE before what a session was given.
        verify = self.verify if verify is None else verify
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
    """One ``requests`` session a thread, since they are not promised to be safe across threads, over
    connections that are kept for all.

    Proxies and ``.netrc`` come from the environment, as in every program built on ``requests``, certificate
    authorities as of :func:`~builder.sources.net.http.authorities`.
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
        connecting = self.retries if self.connection_retries is None else self.connection_retries
        # urllib3's pools are made for threads: what one has connected to, the next need not look up
        self._adapter = _Adapter(retries=self.retries, connection_retries=connecting, backoff=self.backoff)
        self._silent: dict[str, requests.RequestException] = {}
        """Servers that were given up, each with its failure."""

    def request(self, method: str, url: str, **options: Any) -> requests.Response:
        """One request, retried on connection errors and on 429, 500, 502, 503, 504 (idempotent methods)."""
        options.setdefault("timeout", (self.connect_timeout, self.read_timeout))
        if failure := self.given_up(url):
            raise type(failure)(*failure.args)
        try:
            return _past_proxy(self._session(), method, url, options)
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

    def _session(self) -> requests.Session:
        found: requests.Session | None = getattr(self._local, "session", None)
        if found is not None:
            return found
        session = self._local.session = _Session()
        session.headers["User-Agent"] = f"rtbuild/{__version__}"
        if known := self.ca or authorities(os.environ):
            session.verify = str(known)
        session.proxies.update(self.proxies)
        session.max_redirects = 10
        session.mount("https://", self._adapter)
        session.mount("http://", self._adapter)
        return session
