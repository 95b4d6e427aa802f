"""The package indexes of the user's own configuration. rtbuild's code names no index.

The default index is the first that is set of: uv's (``UV_DEFAULT_INDEX``, ``uv.toml``), pip's
(``PIP_INDEX_URL``, ``pip.conf``), uv's built-in one. Extra indexes of both are added.
"""

import dataclasses
import functools
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from uv import find_uv_bin

from builder.core.documents import redact
from builder.core.errors import MissingToolError, UsageError
from builder.sources.net import pip_settings

_UV_INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_NO_INDEX")


@dataclass(frozen=True, kw_only=True)
class IndexSettings:
    """Index addresses as the user wrote them, possibly with credentials: never written to a lock or log."""

    default: str
    extra: tuple[str, ...] = ()
    """Asked before the default, in this order."""
    timeout: float | None = None
    """The user's limit for a silent server, in seconds: ``UV_HTTP_TIMEOUT`` or pip's ``timeout``."""
    notes: tuple[str, ...] = ()
    """Settings that are not used, with the reason."""
    believed: int = 0
    """Seconds for which uv does not ask again for a page that it has read; 0: as long as the index says."""

    @property
    def all(self) -> tuple[str, ...]:
        """Every index, in the order in which they are asked."""
        return (*self.extra, self.default)


def from_user() -> IndexSettings:
    """Read the configuration."""
    environ = os.environ
    notes: list[str] = []
    pip = pip_settings(environ)
    uv_default, uv_extra = _ask_uv(environ)
    builtin = _uv_builtin()
    candidates = [url for url in uv_default if url != builtin] + pip.get("index-url", [])
    default = next((url for url in candidates if _portable(url, notes)), builtin)
    configured = [url for url in [*uv_extra, *pip.get("extra-index-url", [])] if _portable(url, notes)]
    notes += [
        f"pip's {option} is not used: a lock must work on every machine"
        for option in ("find-links", "no-index")
        if pip.get(option)
    ]
    if environ.get("UV_FIND_LINKS"):
        notes.append("UV_FIND_LINKS is not used: a lock must work on every machine")
    plain = IndexSettings(
        default=default.rstrip("/"),
        timeout=_timeout(environ, pip),
        notes=tuple(dict.fromkeys(notes)),
    )
    return with_extra(plain, configured)


def _timeout(environ: Mapping[str, str], pip: Mapping[str, list[str]]) -> float | None:
    named = environ.get("UV_HTTP_TIMEOUT") or next(
        (pip[name][0] for name in ("timeout", "default-timeout") if pip.get(name)), ""
    )
    try:
        return float(named)
    except ValueError:
        return None


def with_extra(settings: IndexSettings, extra: Sequence[str]) -> IndexSettings:
    """The same configuration, asking ``extra`` first. Raises UsageError for one that is no URL."""
    for url in extra:
        if not _is_http(url):
            hint = "a lock made with it would work on this machine only; serve the folder over http"
            raise UsageError(f"index {redact(url)} is not an http or https address", hint=hint)
    unique = dict.fromkeys(url.rstrip("/") for url in (*extra, *settings.extra))
    unique.pop(settings.default, None)
    return dataclasses.replace(settings, extra=tuple(unique))


def _is_http(url: str) -> bool:
    return url.startswith(("http://", "https://"))


def _portable(url: str, notes: list[str]) -> bool:
    if _is_http(url):
        return True
    notes.append(f"index {redact(url)} is not used: a lock must work on every machine")
    return False


@functools.cache
def _uv_builtin() -> str:
    """The index that uv uses if nothing is configured."""
    environ = {key: value for key, value in os.environ.items() if key not in _UV_INDEX_VARIABLES}
    default, _ = _ask_uv(environ, "--no-config")
    if not default:
        raise MissingToolError("uv does not say which package index it uses", hint="rtbuild needs uv >= 0.9")
    return default[0]


def _ask_uv(environ: Mapping[str, str], *options: str) -> tuple[list[str], list[str]]:
    """The default and the extra indexes that uv would use, by its own account; it opens no connection."""
    command = [find_uv_bin(), "pip", "compile", "-", "--offline", "--emit-index-url", "--no-header"]
    command += ["--quiet", "--python", sys.executable, *options]
    done = subprocess.run(command, input="", env=dict(environ), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        hint = "see the UV_* variables, uv.toml, and pyproject.toml in this folder"
        raise UsageError(f"uv does not accept its configuration:\n{redact(done.stderr.strip())}", hint=hint)
    found: dict[str, list[str]] = {"--index-url": [], "--extra-index-url": []}
    for option, _, url in (line.partition(" ") for line in done.stdout.splitlines()):
        found.get(option, []).append(url.strip())
    return found["--index-url"], found["--extra-index-url"]
