"""The folders of rtbuild's own files, in a checkout as in an installed wheel, and of its caches."""

import os
import re
from pathlib import Path

from builder.core.documents import MalformedError, parse_toml, read_file, shown
from builder.core.errors import UsageError

_PACKAGE = Path(__file__).resolve().parents[1]


def templates() -> Path:
    """The folder with ``Dockerfile.j2``: beside the package in a checkout, inside it in a wheel."""
    installed = _PACKAGE / "_templates"
    return installed if installed.is_dir() else _PACKAGE.parent / "templates"


def schemas() -> Path:
    """The folder with ``*.schema.json``, one for each document that rtbuild reads or prints."""
    installed = _PACKAGE / "_schemas"
    return installed if installed.is_dir() else _PACKAGE.parent / "docs"


def matrices() -> Path:
    """The folder with the project's own matrices and their locks."""
    installed = _PACKAGE / "_matrices"
    return installed if installed.is_dir() else _PACKAGE.parent / "matrices"


def probe() -> Path:
    """The folder with the probe's sources, which are data here and never imported."""
    return _PACKAGE / "verify" / "cudnn_verify"


def probe_version() -> str:
    """The version of the probe, out of its source."""
    text = (probe() / "__main__.py").read_text("utf-8")
    (version,) = re.findall(r'^VERSION = "([^"]+)"$', text, re.MULTILINE)
    return str(version)


def runtime() -> Path:
    """The folder with what goes into images of the profile ``colab``, which is data here, too."""
    return _PACKAGE / "release" / "colab" / "runtime"


def facts() -> Path:
    """The folder with the compatibility tables."""
    return _PACKAGE / "plan" / "facts" / "tables" / "data"


def site() -> str:
    """The address of the project's site, without a slash at its end; empty if none is set.

    ``RTBUILD_SITE``, else ``site`` in ``[tool.rtbuild]`` of this folder's ``pyproject.toml``. Raises
    UsageError for a file that is no TOML, and for what is no address.
    """
    where, named = "RTBUILD_SITE", os.environ.get("RTBUILD_SITE")
    found: object = named
    if not named:
        where, found = "tool.rtbuild.site of pyproject.toml", _project_site(Path("pyproject.toml"))
    text = "" if found is None else str(found)
    if text and not (isinstance(found, str) and re.fullmatch(r"https?://[^\s\"'<>@?#]{1,500}", text)):
        said = f"{where} is no address of a site: {shown(text, most=100)}"
        raise UsageError(said, hint="as in https://docs.example/rtbuild, without login, ? and #")
    return text.rstrip("/")


def _project_site(path: Path) -> object:
    try:
        found: object = parse_toml(read_file(path, most=1 << 20))
    except FileNotFoundError:
        return None
    except (OSError, MalformedError) as problem:
        place = getattr(problem, "place", "")
        raise UsageError(f"{path}{place}: {problem}", hint="or name the site by RTBUILD_SITE") from problem
    for name in ("tool", "rtbuild", "site"):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def cache() -> Path:
    """The download and layer cache: ``RTBUILD_CACHE``, else ``rtbuild`` in the user's cache folder."""
    configured = os.environ.get("RTBUILD_CACHE")
    if configured:
        return Path(configured)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rtbuild"
