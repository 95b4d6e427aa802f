"""What a build needs to reach the user's network: certificate authority, proxies, package indexes.

All of it is the user's own configuration, read where pip and the other tools read it. Files and credentials
go to the build as secrets, which no layer and no history keeps; proxies as the predefined build arguments,
which stay out of the history as well.
"""

from __future__ import annotations

import configparser
import io
import os
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from builder.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CA_SECRET = "ca"  # noqa: S105
PIP_SECRET = "pip_conf"  # noqa: S105

_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
_PIP_KEYS = ("index-url", "extra-index-url", "trusted-host")
_PIP_SECTIONS = ("global", "install")


@dataclass(frozen=True, kw_only=True)
class UserNetwork:
    """Secrets (``ca``, ``pip_conf``: files readable by the user alone) and predefined proxy arguments."""

    secrets: Mapping[str, Path]
    build_args: Mapping[str, str]


@contextmanager
def user_network(
    *, indexes: Sequence[str] | None = None, env: Mapping[str, str] = os.environ
) -> Iterator[UserNetwork]:
    """Yield the user's network settings for builds; what was written for them goes with the context.

    ``ca`` is there where the user named a bundle; without one, a base's own is as good as this machine's.
    ``pip_conf`` is there where an index is configured. ``indexes``, the default first, are what the lock was
    made with, and taken instead of what pip's configuration says. Raises UsageError for a bundle that does
    not exist.
    """
    with tempfile.TemporaryDirectory(prefix="rtbuild-network-") as folder:  # mode 0700
        secrets: dict[str, Path] = {}
        bundle = ca_bundle(env)
        if bundle is not None:
            secrets[CA_SECRET] = bundle
        text = pip_conf(env, indexes)
        if text is not None:
            secrets[PIP_SECRET] = Path(folder) / "pip.conf"
            _write_private(secrets[PIP_SECRET], text)
        yield UserNetwork(secrets=secrets, build_args=proxies(env))


def ca_bundle(env: Mapping[str, str]) -> Path | None:
    """The certificate bundle that the environment, or else pip's configuration, names."""
    named = [(name, env[name]) for name in _CA_VARIABLES if env.get(name)]
    configured = _pip_settings(env).get("cert")
    if configured:
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


def pip_conf(env: Mapping[str, str], indexes: Sequence[str] | None = None) -> str | None:
    """A ``pip.conf`` with the user's indexes; None if there is none that a build could reach.

    Only ``http`` and ``https`` are taken: a folder of this machine does not exist in the build, and the lock
    says by hash what is installed, from wherever it comes.
    """
    settings = _pip_settings(env)
    if indexes:
        settings |= {"index-url": indexes[0], "extra-index-url": " ".join(indexes[1:])}
    kept: dict[str, str] = {}
    for key in ("index-url", "extra-index-url"):
        urls = [url for url in settings.get(key, "").split() if url.startswith(("https://", "http://"))]
        if urls:
            kept[key] = "\n".join(urls)
    if not kept:
        return None
    if settings.get("trusted-host"):
        kept["trusted-host"] = "\n".join(settings["trusted-host"].split())
    parser = configparser.RawConfigParser()
    parser["global"] = kept
    text = io.StringIO()
    parser.write(text)
    return text.getvalue()


def _pip_settings(env: Mapping[str, str]) -> dict[str, str]:
    """pip's own order: its files from general to particular, then ``PIP_…`` variables
    (https://pip.pypa.io/en/stable/topics/configuration/)."""
    settings: dict[str, str] = {}
    for path in _pip_files(env):
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            raise UsageError(f"pip's configuration {path} cannot be read: {error}") from error
        for section in _PIP_SECTIONS:
            if parser.has_section(section):
                settings.update(parser.items(section))
    for key in (*_PIP_KEYS, "cert"):
        value = env.get("PIP_" + key.upper().replace("-", "_"))
        if value:
            settings[key] = value
    return settings


def _pip_files(env: Mapping[str, str]) -> list[Path]:
    own = env.get("PIP_CONFIG_FILE")
    if own == os.devnull:
        return []
    home = Path(env.get("HOME") or Path.home())
    folders = (env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    files = [Path(folder) / "pip" / "pip.conf" for folder in reversed(folders)]
    files += [
        Path("/etc/pip.conf"),
        home / ".pip" / "pip.conf",
        Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf",
        Path(sys.prefix) / "pip.conf",
    ]
    return [*files, Path(own)] if own else files


def _write_private(path: Path, text: str) -> None:
    """Never readable by others, not even for the moment between creation and ``chmod``."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
