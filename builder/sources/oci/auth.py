"""Logins for registries: those that Docker stored, and the tokens that they are exchanged for."""

import base64
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import requests

from builder.core.documents import MalformedError, parse_object, redact, shown
from builder.core.errors import RegistryError
from builder.sources.net import Client, explain, remedy
from builder.sources.oci.spec import DOCKER_HUB, is_loopback

_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")
"""A header's value; a line break in it would begin another header."""


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
