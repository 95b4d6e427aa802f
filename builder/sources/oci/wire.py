"""How a request reaches a registry: mirrors, scheme, logins and tokens, silence remembered, clocks.

And how its answers are read: documents of bounded size, and refusals as errors with a hint.
"""

import base64
import contextlib
import email.utils
import functools
import math
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import requests

from builder.core.documents import MalformedError, parse_object, redact, shown
from builder.core.errors import ImageMissingError, RegistryError, RegistryLoginError, RegistrySilentError
from builder.sources.net import Client, explain, remedy
from builder.sources.oci.spec import DOCKER_HUB, Place, Reference, is_loopback, parse_reference, place_of

_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")
"""A header's value; a line break in it would begin another header."""
MIRROR_VARIABLE = "RTBUILD_REGISTRY_MIRROR"
BUSY = frozenset({429, 500, 502, 503, 504})
"""Statuses of a registry that may do better in a moment."""
_SECONDS = re.compile(r"[0-9]{1,9}")
_LONGEST_PAUSE = 30.0
"""Seconds; a server may ask for hours by ``Retry-After``, and no run waits that long."""
_LARGEST_DOCUMENT = 16 << 20
"""Bytes of a manifest or config that are read; the specification lets registries refuse those over 4 MiB."""


@dataclass(frozen=True, kw_only=True)
class Login:
    """A stored login. ``identity`` is an OAuth2 refresh token and takes the password's place."""

    username: str
    password: str
    identity: str | None = None

    @property
    def basic(self) -> str:
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


def docker_login(host: str) -> Login | None:
    """The login that ``docker login HOST`` stored, in its file or in a credential helper; None without one.

    Raises RegistryError if the configured credential helper does not work.
    """
    # Late: the SDK takes longer to load than most commands that never log in have to do.
    import docker.auth
    import docker.errors

    stored_for = None if host.endswith(DOCKER_HUB) else host
    try:
        with warnings.catch_warnings():
            # The SDK warns of a helper that is not installed, and then raises.
            warnings.simplefilter("ignore")
            found = docker.auth.load_config().resolve_authconfig(stored_for)
    except docker.errors.DockerException as problem:
        raise RegistryError(
            f"Docker's stored login for {host} cannot be read: {problem}",
            hint="see credsStore and credHelpers in Docker's config.json",
        ) from problem
    login = {str(key).lower(): value or "" for key, value in (found or {}).items()}
    name, identity = login.get("username", ""), login.get("identitytoken", "")
    if not name and not identity:
        return None
    return Login(username=name, password=login.get("password", ""), identity=identity or None)


def _refuse_open(realm: str, own: str, where: str) -> None:
    try:
        asked, registry = urlsplit(realm), urlsplit(own)
        near = asked.hostname == registry.hostname or is_loopback(asked.hostname or "")
    except ValueError:
        raise RegistryError(f"{where} names a token service without an address: {shown(realm)}") from None
    if asked.scheme == "https" or (registry.scheme == "http" and near):
        return
    hint = "nothing was sent: who is in between could name any address; ask the registry's operator"
    raise RegistryError(f"{where} wants a login sent to {shown(redact(realm))}, which has no TLS", hint=hint)


def answer(
    client: Client,
    challenge: str,
    scopes: Sequence[str],
    stored: Callable[[], Login | None],
    where: str,
    *,
    own: str,
) -> str | None:
    """The ``Authorization`` header that a ``WWW-Authenticate`` asks for; None if there is none to give:
    https://distribution.github.io/distribution/spec/auth/token/.

    ``own`` is an address of the registry. Its challenge names the token service that gets the ``stored``
    login, so that one is asked by TLS alone, unless the registry itself is reached without.

    Raises RegistryError if the token service refused, did not answer, or is none that a login is sent to.
    """
    word, _, rest = challenge.strip().partition(" ")
    scheme = word.lower()
    if scheme not in ("basic", "bearer"):
        return None
    # \b: else a long word that no value follows is tried from each of its letters on
    asked = dict(re.findall(r'\b(\w+)="([^"]*)"', rest))
    login = stored()
    if scheme == "basic":
        return login.basic if login is not None else None
    realm = asked.get("realm", "")
    if not realm.startswith(("http://", "https://")):
        raise RegistryError(f"{where} asks for a kind of login that is not known: {shown(scheme)}")
    _refuse_open(realm, own, where)
    fields = {"service": asked.get("service", ""), "scope": list(scopes)}
    try:
        if login is not None and login.identity is not None:
            # One parameter in this form, repeated in the other:
            # https://distribution.github.io/distribution/spec/auth/oauth/
            form = fields | {
                "scope": " ".join(scopes),
                "grant_type": "refresh_token",
                "client_id": "rtbuild",
                "refresh_token": login.identity,
            }
            response = client.request("POST", realm, data=form, allow_redirects=False)
        else:
            headers = {"Authorization": login.basic} if login is not None else {}
            response = client.get(realm, params=fields, headers=headers)
        document = parse_object(response.content) if response.status_code == 200 else {}
    except MalformedError as problem:
        raise RegistryError(
            f"the token service of {where} answers with something else than JSON with a token: {problem}",
            hint="a proxy may stand in between and want a login of its own",
        ) from None
    except requests.RequestException as problem:
        why = explain(problem)
        hint = remedy(why) or "check the network and the proxy variables"
        raise RegistryError(f"the token service of {where}: {why}", hint=hint) from problem
    token = document.get("token") or document.get("access_token")
    if isinstance(token, str) and _TOKEN.fullmatch(token):
        return f"Bearer {token}"
    if token:
        raise RegistryError(f"the token service of {where} answers with what is no token")
    if response.status_code in (400, 401, 403):
        return None
    raise RegistryError(f"the token service of {where}: HTTP {response.status_code} {response.reason}")


@dataclass
class Wire:
    """The transport below :class:`builder.sources.oci.registry.Registry`. Threads may share one."""

    mirrors: Mapping[str, str]
    client: Client
    login: Callable[[str], Login | None] = docker_login
    hint: str | None = None
    """How to deal with a registry that does not answer, if a mirror does not help."""
    remembers: float = math.inf
    """Seconds for which a registry that did not answer is not asked again."""

    def __post_init__(self) -> None:
        self.ahead: dict[str, float] = {}
        """Seconds by which this machine's clock is ahead of a host's, by its last answer."""
        self._authorizations: dict[tuple[str, tuple[str, ...]], str] = {}
        self._schemes: dict[str, str] = {}
        self._silent: dict[str, tuple[float, RegistryError]] = {}
        """Each with the moment until which it is not asked."""

    def place(self, reference: str | Reference) -> Place:
        """The host that is asked for an image: its registry or the mirror of that."""
        name = reference if isinstance(reference, Reference) else parse_reference(reference)
        return place_of(name, self.mirrors)

    def call(
        self,
        method: str,
        place: Place,
        path: str,
        *,
        actions: str = "pull",
        also: str | None = None,
        **options: Any,
    ) -> requests.Response:
        """Send a request to a repository and answer the registry's challenge, if there is one.

        A token that has run out brings a challenge like none at all does, and a new one is asked for.
        ``path`` is below the repository, or a whole URL that the registry gave: one on another host gets no
        login of ours, and needs none where it is signed. ``also`` names a repository of the same registry
        that must be readable, too. Raises RegistryError if nothing answers.
        """
        own = self.url(place, "")
        url = path if path.startswith(("http://", "https://")) else own + path
        given = options.pop("headers", {})
        options.setdefault("stream", method == "GET")
        if _origin(url, place) != _origin(own, place):
            return self.send(method, place, url, headers=given, **options)
        header = self.header(place, actions, also=also)
        data: Any = options.get("data")
        start = data.tell() if hasattr(data, "tell") else None
        response = self.send(method, place, url, headers=given | header, **options)
        if response.status_code != 401:
            return response
        found = self._answered(response, place, actions, also)
        if found is None:
            return response
        response.close()
        if start is not None:  # what was sent with a token that had run out is sent once more
            data.seek(start)
        try:
            return self.send(method, place, url, headers=given | {"Authorization": found}, **options)
        finally:  # shared after its first use: others may use it up
            self._authorizations[place.host, _scopes(place, actions, also)] = found

    def header(self, place: Place, actions: str = "pull", *, also: str | None = None) -> dict[str, str]:
        """The ``Authorization`` that earlier answers earned, if any."""
        known = self._authorizations.get((place.host, _scopes(place, actions, also)))
        return {"Authorization": known} if known else {}

    def renew(self, response: requests.Response, place: Place) -> bool:
        """Answer the challenge of a 401 to a pull, for :meth:`header` from here on; False if there is no
        answer.
        """
        found = self._answered(response, place, "pull", None)
        if found is not None:
            self._authorizations[place.host, _scopes(place, "pull", None)] = found
        return found is not None

    def _answered(
        self, response: requests.Response, place: Place, actions: str, also: str | None
    ) -> str | None:
        scopes, challenge = _scopes(place, actions, also), response.headers.get("WWW-Authenticate", "")
        stored, own = functools.partial(self.login, place.known_as), self.url(place, "")
        return answer(self.client, challenge, scopes, stored, str(place), own=own)

    def send(self, method: str, place: Place, url: str, **options: Any) -> requests.Response:
        """Send a request without answering a challenge. Raises RegistryError if nothing answers."""
        self._refuse_silent(place)
        try:
            sent = self.client.request(method, url, allow_redirects=method in ("GET", "HEAD"), **options)
        except requests.RequestException as problem:
            raise self._unreachable(place, problem) from problem
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            theirs = email.utils.parsedate_to_datetime(sent.headers.get("Date", ""))
            self.ahead[place.host] = time.time() - theirs.timestamp()
        return sent

    def persist(self, attempt: Callable[[], requests.Response], place: Place) -> requests.Response:
        """Try until the status is one that no waiting mends, or the retries are used up.

        For requests that the client does not repeat by itself: a POST, and those that only count together.
        ``attempt`` may raise RegistryError for a connection that broke.
        """
        for number in range(min(self.client.retries, 2)):
            pause = self.client.backoff * 2**number
            try:
                response = attempt()
            except RegistryError:
                self._silent.pop(place.host, None)
            else:
                if response.status_code not in BUSY:
                    return response
                asked = response.headers.get("Retry-After", "")
                response.close()
                pause = min(float(asked), _LONGEST_PAUSE) if _SECONDS.fullmatch(asked) else pause
            time.sleep(pause)
        return attempt()

    def _refuse_silent(self, place: Place) -> None:
        until, silent = self._silent.get(place.host, (0.0, None))
        if silent is not None and time.monotonic() < until:
            raise RegistrySilentError(silent.message, hint=silent.hint)

    def _unreachable(self, place: Place, problem: requests.RequestException) -> RegistryError:
        why = explain(problem)
        error = RegistrySilentError(
            f"registry {place} did not answer: {why}",
            hint=remedy(why)
            or self.hint
            or f"if this network has a mirror: --registry-mirror {place.name.host}=HOST[:PORT][/PREFIX], or "
            f"{MIRROR_VARIABLE}",
        )
        self._silent[place.host] = time.monotonic() + self.remembers, error
        return error

    def url(self, place: Place, path: str) -> str:
        return f"{self._scheme(place)}://{place.host}/v2/{place.repository}/{path}"

    def _scheme(self, place: Place) -> str:
        """https, except for a registry on this machine that speaks plain http, as Docker has it."""
        if place.scheme is not None or not is_loopback(place.host):
            return place.scheme or "https"
        if place.host not in self._schemes:
            self._schemes[place.host] = self._probe_scheme(place)
        return self._schemes[place.host]

    def _probe_scheme(self, place: Place) -> str:
        self._refuse_silent(place)
        try:
            response = self.client.get(f"http://{place.host}/v2/", allow_redirects=False, stream=True)
            response.close()
        except requests.RequestException as problem:
            nobody = isinstance(problem, requests.exceptions.ConnectTimeout) or "refused" in explain(problem)
            if isinstance(problem, requests.ConnectionError) and not nobody and self._speaks_tls(place):
                return "https"
            raise self._unreachable(place, problem) from problem
        # Go's TLS listener answers plain http with 400 and a sentence.
        return "https" if response.status_code == 400 else "http"

    def _speaks_tls(self, place: Place) -> bool:
        """Whether a server that cut plain http answers by TLS, with whatever certificate.

        One that was just starting, or too busy, cuts both: it is asked once more, another time.
        """
        try:
            self.client.get(f"https://{place.host}/v2/", allow_redirects=False, stream=True).close()
        except requests.exceptions.SSLError as problem:
            return "certificate" in str(problem).lower()
        except requests.RequestException:
            return False
        return True


def _scopes(place: Place, actions: str, also: str | None) -> tuple[str, ...]:
    """In the words of https://distribution.github.io/distribution/spec/auth/scope/."""
    own = f"repository:{place.repository}:{actions}"
    return (own,) if also is None else (own, f"repository:{also}:pull")


def _origin(url: str, place: Place) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    except ValueError:
        raise RegistryError(f"{place} names an address that is none: {shown(url)}") from None


def read(response: requests.Response, place: Place) -> bytes:
    content = bytearray()
    try:
        with response:
            if response.headers.get("Content-Type", "").startswith("text/html"):
                raise no_registry(place, "a web page")
            for block in response.iter_content(1 << 16):
                content += block
                if len(content) > _LARGEST_DOCUMENT:
                    raise no_registry(place, f"more than {_LARGEST_DOCUMENT >> 20} MiB")
    except requests.RequestException as problem:
        raise RegistrySilentError(
            f"{place.name} from {place}: {explain(problem)}", hint="try again"
        ) from problem
    return bytes(content)


def no_registry(place: Place, found: str) -> RegistryError:
    hint = "is it a registry? A proxy may stand in between and want a login of its own"
    return RegistryError(f"{place} answers a question for {place.name} with {found}", hint=hint)


def refuse_altered(what: object, place: Place, expected: str, found: str) -> None:
    if found != expected:
        raise RegistryError(
            f"{place} gives another content for {what} than its digest says\n"
            f"  expected {expected}\n  received {found}",
            hint="nothing was kept; a proxy or mirror in between may have altered it",
        )


def refusal(response: requests.Response, place: Place) -> RegistryError:
    """The error for a registry's refusal, by status, with the registry's own message if there is one."""
    status, name, login = response.status_code, place.name, f"docker login {place.known_as}"
    with response:
        said = _own_words(response)
    if response.headers.get("Content-Type", "").startswith("text/html") and status < 500:
        return no_registry(place, f"a web page (HTTP {status})")
    if status == 404:
        hint = "check the name and the tag"
        if name.repository.endswith("nvidia/cuda"):
            hint = (
                "NVIDIA deletes the tags of CUDA releases that have ended, half a year later: take a newer "
                "tag, a mirror that kept it (--registry-mirror), or rootfs:debian/<suite> and CUDA's wheels"
            )
        # Only the specification's own error document says it for certain: a gateway answers 404, too.
        kind = ImageMissingError if said else RegistryError
        return kind(f"{name} does not exist in {place}{said}", hint=hint)
    if status in (401, 403):
        return RegistryLoginError(
            f"{place} does not show {name} without a login, or it does not exist{said}",
            hint=f"check the name; if it is private: {login}",
        )
    if status == 429:
        hint = f"wait, or {login} for a higher limit, or use a mirror (--registry-mirror)"
        return RegistrySilentError(f"{place} has had too many requests from this address{said}", hint=hint)
    what, kind = (
        ("has a problem of its own", RegistrySilentError) if status >= 500 else ("refuses", RegistryError)
    )
    hint = "try again later"
    return kind(f"{place} {what}: HTTP {status} {response.reason} for {name}{said}", hint=hint)


def _own_words(response: requests.Response) -> str:
    """``errors[0].message`` if the answer is the specification's error document."""
    try:
        if int(response.headers.get("Content-Length", "0")) > _LARGEST_DOCUMENT:
            return ""
        first = parse_object(response.content)["errors"][0]
        words = first.get("message") or first.get("code") or ""
    except (requests.RequestException, ValueError, LookupError, TypeError, AttributeError):
        return ""
    return f" ({shown(redact(str(words)))})" if words else ""
