"""What a machine says of its network: proxies, certificate authorities, pip's configuration."""

import configparser
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

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
    """What helps against a failure of a proxy or of TLS, by its message; None for any other."""
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
