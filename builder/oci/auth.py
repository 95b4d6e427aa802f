"""Logins for registries: those that Docker stored, and the tokens that they are exchanged for."""

from __future__ import annotations

import base64
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import requests

from builder.errors import RegistryError
from builder.net.http import explain
from builder.oci.spec import DOCKER_HUB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from builder.net.http import Client


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

    Raises:
        RegistryError: the configured credential helper does not work.
    """
    # Late: the SDK takes longer to load than most commands that never log in have to do.
    import docker.auth
    import docker.errors

    name = None if host.endswith(DOCKER_HUB) else host
    try:
        with warnings.catch_warnings():
            # The SDK warns of a helper that is not installed, and then raises.
            warnings.simplefilter("ignore")
            found = docker.auth.load_config().resolve_authconfig(name)
    except docker.errors.DockerException as problem:
        raise RegistryError(
            f"Docker's stored login for {host} cannot be read: {problem}",
            hint="see credsStore and credHelpers in Docker's config.json",
        ) from problem
    if not found:
        return None
    login = {str(key).lower(): value for key, value in found.items()}
    if not (login.get("username") or login.get("identitytoken")):
        return None
    return Login(
        username=login.get("username") or "",
        password=login.get("password") or "",
        identity=login.get("identitytoken") or None,
    )


@dataclass(frozen=True, kw_only=True)
class Challenge:
    """A ``WWW-Authenticate`` header: https://distribution.github.io/distribution/spec/auth/token/."""

    scheme: str
    parameters: dict[str, str]

    @classmethod
    def parse(cls, header: str) -> Challenge:
        scheme, _, rest = header.strip().partition(" ")
        return cls(scheme=scheme.lower(), parameters=dict(re.findall(r'(\w+)="([^"]*)"', rest)))


def answer(
    client: Client, challenge: Challenge, scopes: Sequence[str], login: Login | None, where: str
) -> str | None:
    """The ``Authorization`` header that a challenge asks for; None if there is no login to answer with.

    Raises:
        RegistryError: the token service refused or did not answer.
    """
    if challenge.scheme == "basic":
        return login.basic if login is not None else None
    realm = challenge.parameters.get("realm", "")
    if challenge.scheme != "bearer" or not realm.startswith(("http://", "https://")):
        raise RegistryError(f"{where} asks for a kind of login that is not known: {challenge.scheme}")
    fields = {"service": challenge.parameters.get("service", ""), "scope": list(scopes)}
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
            response = client.request("POST", realm, data=form)
        else:
            headers = {"Authorization": login.basic} if login is not None else {}
            response = client.get(realm, params=fields, headers=headers)
        document = response.json() if response.status_code == 200 else {}
    except requests.exceptions.JSONDecodeError:
        raise RegistryError(
            f"the token service of {where} answers with something else than JSON",
            hint="a proxy may stand in between and want a login of its own",
        ) from None
    except requests.RequestException as problem:
        raise RegistryError(
            f"the token service of {where}: {explain(problem)}",
            hint="check the network and the proxy variables",
        ) from problem
    token = document.get("token") or document.get("access_token")
    if token:
        return f"Bearer {token}"
    if response.status_code in (400, 401, 403):
        return None
    raise RegistryError(f"the token service of {where}: HTTP {response.status_code} {response.reason}")
