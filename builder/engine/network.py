"""The user's network for a build: certificate authorities and proxies.

Both are the user's own configuration, read where pip and the other tools read it. The authorities go to the
build as a secret, which no layer and no history keeps; proxies as the predefined build arguments, which stay
out of the history as well.
"""

from collections.abc import Mapping
from pathlib import Path

from builder.errors import UsageError
from builder.index.settings import pip_settings

_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")


def ca_bundle(env: Mapping[str, str]) -> Path | None:
    """The certificate bundle that the environment, or else pip's configuration, names.

    None if no bundle is named: a base's own is as good as this machine's. Raises UsageError for a bundle that
    does not exist.
    """
    named = [(name, env[name]) for name in _CA_VARIABLES if env.get(name)]
    if configured := " ".join(pip_settings(env).get("cert", ())):
        named.append(("cert in pip's configuration", configured))
    if not named:
        return None
    name, value = named[0]
    path = Path(value).expanduser()
    if not path.is_file():
        raise UsageError(f"{name} names {value}, which is no file", hint=f"unset {name}, or correct it")
    return path.resolve()


def proxies(env: Mapping[str, str]) -> dict[str, str]:
    """Proxy settings in both spellings, since curl reads one and others read the other."""
    found: dict[str, str] = {}
    for name in _PROXY_VARIABLES:
        # Where both are set, the small one: curl does not read HTTP_PROXY, which a web server sets for its
        # CGI programs from a header of the request.
        value = env.get(name.lower()) or env.get(name)
        if value:
            found[name] = found[name.lower()] = value
    return found
