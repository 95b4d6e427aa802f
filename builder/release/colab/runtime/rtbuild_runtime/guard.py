"""A server extension for every Jupyter: pages of other sites are refused, no token reaches the log, and no
path leads out of the work folder.

Jupyter itself leaves the refusal to the browser, and answers any preflight that asks for ``Authorization``
with the asking page's own origin. Here a request from a page that is neither Colab's nor this server's own
gets 403 and a line in the log, before anything is done for it.

For Colab's page, Chrome also wants to hear that a page of the public network may reach this one:
https://wicg.github.io/private-network-access/#cors-preflight, googlecolab/colabtools#5506.

notebook 6 logs the address of every request that fails, with its token; Colab's page makes one such request.

Jupyter follows links out of its folder, and answers 500 to a path with a NUL, as if it were at fault itself:
https://jupyter-server.readthedocs.io/en/latest/operators/security.html
"""

from __future__ import annotations

import errno
import logging
import os
import re
from typing import Any, Callable
from urllib.parse import unquote, urlsplit

from .settings import COLAB

_log = logging.getLogger("rtbuild")


def allowed(origin: str | None, host: str) -> bool:
    """Whether a page of ``origin`` may talk to the server that was asked as ``host``.

    No origin: not a page, or a page of this server that only reads.
    """
    if origin is None or origin == COLAB:
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc == host


def readable(path: str) -> bool:
    """Whether the path of an address could be a file's: what a NUL is in, no system has."""
    return "\0" not in unquote(path)


def within(root: str, path: str) -> bool:
    """Whether a path is that of a file below ``root`` once all links are followed."""
    root = os.path.realpath(root)
    found = os.path.realpath(path)
    return found == root or found.startswith(root.rstrip(os.sep) + os.sep)


def confine(contents: Any) -> None:
    """Have Jupyter's keeper of files say 404 for a path that leads out of its folder.

    There, and not by the address: the target of a renaming stands in a request's body.
    """
    name = "_get_os_path"
    for keeper in (contents, getattr(contents, "checkpoints", None)):
        find = getattr(keeper, name, None)
        if find is not None:
            setattr(keeper, name, _confined(find, contents))


def _confined(find: Callable[[str], str], contents: Any) -> Callable[[str], str]:
    from tornado.web import HTTPError

    class OutsideError(HTTPError, OSError):
        """Where a folder is listed, Jupyter leaves out what it cannot reach, by this number."""

        errno = errno.ELOOP

    def found(path: str) -> str:
        if "\0" in path or not within(contents.root_dir, find(path)):
            raise OutsideError(404, "this path leads out of the work folder")
        return find(path)

    return found


def _mask_tokens() -> None:
    make = logging.getLogRecordFactory()

    def masked(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        try:
            text = record.getMessage()
        except (TypeError, ValueError, KeyError):  # the logger's own fault; logging reports it
            return record
        if "token" in text.lower():
            # as later Jupyters log it
            record.msg = re.sub(r"(?i)(\btoken[=:]\s*)[^\s&\"'\[]+", r"\1[secret]", text)
            record.args = ()
        return record

    logging.setLogRecordFactory(masked)


def load_jupyter_server_extension(app: Any) -> None:
    """Called by notebook 6, and under its other name by jupyter_server."""
    from tornado.routing import Matcher, Rule
    from tornado.web import OutputTransform, RequestHandler

    class FromElsewhere(Matcher):
        def match(self, request: Any) -> dict[str, Any] | None:
            return None if allowed(request.headers.get("Origin"), request.host) else {}

    class Refused(RequestHandler):
        def prepare(self) -> None:
            origin = self.request.headers.get("Origin", "")
            _log.warning("refused a page of %s: only %s may use this runtime", origin[:100], COLAB)
            self.set_status(403)
            self.finish("rtbuild: pages of this site may not use this runtime, only %s may\n" % COLAB)

    class Unreadable(Matcher):
        def match(self, request: Any) -> dict[str, Any] | None:
            return None if readable(request.path) else {}

    class NoPath(RequestHandler):
        def prepare(self) -> None:
            self.set_status(400)
            self.finish("rtbuild: this is the path of no file\n")

    class FromThePublicNetwork(OutputTransform):
        def __init__(self, request: Any) -> None:
            asked = request.headers.get("Access-Control-Request-Private-Network") == "true"
            self._answer = asked and request.headers.get("Origin") == COLAB

        def transform_first_chunk(
            self,
            status_code: int,
            headers: Any,
            chunk: bytes,
            finishing: bool,  # noqa: ARG002
        ) -> tuple[int, Any, bytes]:
            if self._answer:
                headers["Access-Control-Allow-Private-Network"] = "true"
            return status_code, headers, chunk

    _mask_tokens()
    confine(app.contents_manager)
    app.web_app.default_router.rules[:0] = [Rule(FromElsewhere(), Refused), Rule(Unreadable(), NoPath)]
    app.web_app.add_transform(FromThePublicNetwork)


_load_jupyter_server_extension = load_jupyter_server_extension


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]
