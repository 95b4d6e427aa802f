"""uv: the package indexes of the user's own configuration, and resolution by ``uv pip compile``.

rtbuild's code names no index. The default index is the first that is set of: uv's (``UV_DEFAULT_INDEX``,
``uv.toml``), pip's (``PIP_INDEX_URL``, ``pip.conf``), uv's built-in one. Extra indexes of both are added.

Resolution takes requirements and a target, and gives a parsed ``pylock.toml``:
https://packaging.python.org/en/latest/specifications/pylock-toml/
"""

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from uv import find_uv_bin

from builder.core.documents import redact
from builder.core.errors import (
    IndexSilentError,
    MissingToolError,
    NoSolutionError,
    PackageIndexError,
    UsageError,
)
from builder.core.model import Wheel
from builder.sources.index.target import Target
from builder.sources.net import authorities, pip_settings, remedy

_UV_INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_NO_INDEX")
_CONNECTION_VARIABLES = (
    *("UV_CACHE_DIR", "UV_CONCURRENT_DOWNLOADS", "UV_EXCLUDE_NEWER", "UV_HTTP_CONNECT_TIMEOUT"),
    *("UV_HTTP_RETRIES", "UV_HTTP_TIMEOUT", "UV_INDEX_STRATEGY", "UV_INSECURE_HOST"),
    *("UV_KEYRING_PROVIDER", "UV_NATIVE_TLS", "UV_NO_CACHE", "UV_OFFLINE", "UV_SYSTEM_CERTS"),
)
"""uv's variables that stay: how to reach an index, and ``UV_EXCLUDE_NEWER``, which bounds it by date.

The others are dropped. ``UV_CONSTRAINT`` or ``UV_RESOLUTION``, left in somebody's shell, would decide what is
locked without anyone seeing it.
"""


_HINTS = {
    r"Python (?:ABI|implementation) tag|Requires-Python|Python[<>=]": "take a Python that the package has "
    "wheels for, or another version of the package",
    "platform tag": "these wheels need a newer glibc: take a newer base, or another version of the package",
    "not found in the package registry": "check the name, or give the cell the index that has it (`index:`)",
    "no usable wheels|building from source is disabled": "only wheels are installed: take a version that has "
    "one, or, if it is pure Python, have rtbuild build it by naming it under 'from-source'",
    "": "loosen one of the requirements named above",
}
"""Remedies by uv's own words; the first that fits counts."""


@dataclass(frozen=True, kw_only=True)
class UploadLimit:
    """Files that count by the day of their upload: none of a later day than ``day``, ``2021-06-14``, or than
    that of ``packages``, by canonical name; None for any.
    """

    day: str
    packages: Mapping[str, str | None]

    @property
    def options(self) -> list[str]:
        """uv's: https://docs.astral.sh/uv/concepts/resolution/#reproducible-resolutions"""
        end = "T23:59:59Z"
        each = ((name, f"{day}{end}" if day else "false") for name, day in sorted(self.packages.items()))
        one_by_one = (part for name, day in each for part in ("--exclude-newer-package", f"{name}={day}"))
        return ["--exclude-newer", f"{self.day}{end}", *one_by_one]


_LACKING = re.compile(
    r"Wheels are required for `(?P<told>[\w.-]+)`"
    r"|(?<![\w.-])(?P<name>[A-Za-z0-9][\w.-]*)(?:[<>=!~][^\s]*)? ha(?:s|ve) no usable wheels"
)
"""uv's words for a package that has sources alone."""
_KEPT_OUT = re.compile(
    r"`([\w.-]+)` was filtered by `exclude-newer`"
    r"|(?<![\w.-])([A-Za-z0-9][\w.-]*)(?:[<>=!~][^\s]*)? ha(?:s|ve) no wheels with a matching"
)


def lacking(message: str) -> list[str]:
    """The packages that by uv's words have sources alone."""
    return list(dict.fromkeys(canonicalize_name(m["told"] or m["name"]) for m in _LACKING.finditer(message)))


def kept_out(message: str) -> list[str]:
    """The packages whose releases within an :class:`UploadLimit` will not do, by uv's words: a later one is
    asked for, or those have no wheel that fits.
    """
    named = (one or other for one, other in _KEPT_OUT.findall(message))
    return [*dict.fromkeys((*map(canonicalize_name, named), *lacking(message)))]


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
    chosen: bool = False
    """Whether the user's configuration names an index that rtbuild asks: no other place is asked in the stead
    of one that does not answer."""
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
        chosen=default != builtin or bool(configured),
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
    """The configuration with ``extra`` asked first. Raises UsageError for one that is no URL."""
    for url in extra:
        if not _is_http(url):
            hint = "a lock made with it would work on this machine only; serve the folder over http"
            raise UsageError(f"index {redact(url)} is not an http or https address", hint=hint)
    unique = dict.fromkeys(url.rstrip("/") for url in (*extra, *settings.extra))
    unique.pop(settings.default, None)
    return replace(settings, extra=tuple(unique))


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
    done = subprocess.run(
        command, input="", env=dict(environ), capture_output=True, errors="replace", check=False
    )
    if (folder := re.search(r"Failed to initialize cache at\s+`([^`]*)`", done.stderr)) is not None:
        raise MissingToolError(
            f"uv cannot keep its downloads: the folder {folder[1]} cannot be made or written",
            hint="name one that you may write to: UV_CACHE_DIR for uv's, RTBUILD_CACHE for rtbuild's own, "
            "XDG_CACHE_HOME or HOME for both",
        )
    if done.returncode != 0:
        hint = "see the UV_* variables, uv.toml, and pyproject.toml in this folder"
        raise UsageError(f"uv does not accept its configuration:\n{redact(done.stderr.strip())}", hint=hint)
    found: dict[str, list[str]] = {"--index-url": [], "--extra-index-url": []}
    for option, _, url in (line.partition(" ") for line in done.stdout.splitlines()):
        found.get(option, []).append(url.strip())
    return found["--index-url"], found["--extra-index-url"]


def compile_requirements(
    requirements: Sequence[str],
    target: Target,
    settings: IndexSettings,
    *,
    previous: Sequence[Wheel] = (),
    upgrade: Collection[str] | bool = False,
    listed: bool = False,
    files: Sequence[Path] = (),
    limit: UploadLimit | None = None,
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The ``[[packages]]`` of the solution, and uv's warnings.

    ``files`` are wheels that no index has. With ``listed`` the requirements are complete: their own
    dependencies are ignored. ``previous`` are preferences: their versions stay if the requirements allow it,
    except for those that ``upgrade`` names (True: all). ``limit`` leaves out what was uploaded later.

    Raises PackageIndexError: no solution, with uv's own explanation; or the index did not answer.
    """
    command = [find_uv_bin(), "pip", "compile", "-", "--no-header", "--color", "never"]
    command += ["--python", sys.executable, "--python-version", target.release or target.python]
    command += ["--python-platform", target.uv_platform, "--only-binary", ":all:"]
    command += [part for path in files for part in ("--find-links", str(path.parent))]
    command += ["--no-deps"] if listed else []
    command += limit.options if limit is not None else []
    if upgrade is True:
        command.append("--upgrade")
    else:
        command += [part for name in sorted(upgrade or ()) for part in ("--upgrade-package", name)]

    with tempfile.TemporaryDirectory(prefix="rtbuild-lock-") as folder:
        # uv takes versions of the output file that is there already as preferences.
        output, config = Path(folder) / "pylock.toml", Path(folder) / "uv.toml"
        config.write_text(_configuration(settings), encoding="utf-8")
        if previous and upgrade is not True:
            output.write_text(_preferences(previous), encoding="utf-8")
        done = subprocess.run(
            [*command, "--config-file", str(config), "--format", "pylock.toml", "--output-file", str(output)],
            input="\n".join(requirements) + "\n",
            env=_environment(settings),
            capture_output=True,
            errors="replace",
            check=False,
            cwd=folder,
        )
        if done.returncode != 0:
            raise _failure(requirements, target, settings, done.stderr)
        packages: list[dict[str, Any]] = tomllib.loads(output.read_text(encoding="utf-8")).get("packages", [])
    warnings = [
        line.partition("warning: ")[2] for line in done.stderr.splitlines() if line.startswith("warning: ")
    ]
    return packages, tuple(redact(text) for text in warnings)


def _configuration(settings: IndexSettings) -> str:
    """The indexes for uv, in a file that takes the place of the user's: arguments, which every user of the
    machine can read, would show logins.

    With ``believed``, answers count as fresh for that long, metadata of wheels for an hour, whatever their
    server says: https://docs.astral.sh/uv/concepts/indexes/#customizing-cache-control-headers
    """
    fresh = f'cache-control = {{ api = "max-age={settings.believed}", files = "max-age=3600" }}\n'
    held = fresh if settings.believed else ""
    tables = [f"[[index]]\nurl = {json.dumps(url)}\n{held}" for url in settings.all]
    return "".join(tables) + "default = true\n"


def _environment(settings: IndexSettings) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("UV_")
        or name in _CONNECTION_VARIABLES
        or name.endswith(("_USERNAME", "_PASSWORD"))
    }
    if (known := authorities(os.environ)) is not None:
        kept["SSL_CERT_DIR" if known.is_dir() else "SSL_CERT_FILE"] = str(known)
    # A matrix's own index comes first, and the default fills in what it does not have in a fitting version:
    # PyTorch's indexes carry a few old versions of other packages too, and uv's default would stop at those.
    kept.setdefault("UV_INDEX_STRATEGY", "unsafe-first-match")
    if settings.timeout is not None:
        kept.setdefault("UV_HTTP_TIMEOUT", str(max(1, round(settings.timeout))))
    # uv would fetch an interpreter of the target's version, only to build source packages, which we never do.
    kept["UV_PYTHON_DOWNLOADS"] = "never"
    return kept


def _preferences(wheels: Sequence[Wheel]) -> str:
    lines = ['lock-version = "1.0"', 'created-by = "rtbuild"']
    for wheel in wheels:
        # uv wants an address and never opens it: only name and version are read.
        lines += ["[[packages]]", f'name = "{wheel.name}"', f'version = "{wheel.version}"']
        address = f'url = "http://localhost/{wheel.file}", hashes = {{ sha256 = "{wheel.sha256}" }}'
        lines.append(f"wheels = [{{ {address} }}]")
    return "\n".join(lines) + "\n"


def _failure(
    requirements: Sequence[str], target: Target, settings: IndexSettings, stderr: str
) -> PackageIndexError:
    text = re.sub(r"^error: ", "", redact(stderr.strip()), flags=re.MULTILINE)
    lines = (line for line in text.splitlines() if not line.startswith("warning: "))
    indented = "\n".join(f"  {line}".rstrip() for line in lines)
    if "No solution found" not in text:
        urls = ", ".join(map(redact, settings.all))
        hint = remedy(text) or "check the network, the proxy variables, and UV_DEFAULT_INDEX or pip.conf"
        hint = f"asked: {urls}; {hint}"
        return IndexSilentError(f"the package index gave no answer to resolve with\n{indented}", hint=hint)
    names = {line: re.escape(canonicalize_name(Requirement(line).name)) for line in requirements}
    clashing = [line for line, name in names.items() if re.search(rf"(?<![\w.-]){name}(?![\w-])", text)]
    which = f" ({', '.join(clashing)})" if clashing and len(clashing) < len(requirements) else ""
    place = f"Python {target.release or target.python} on glibc {target.glibc}"
    hint = next(advice for said, advice in _HINTS.items() if re.search(said, text))
    said = f"no set of wheels for {place} satisfies the requirements{which}"
    return NoSolutionError(f"{said}\n{indented}", hint=hint)
