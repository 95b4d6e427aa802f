"""A server extension for every Jupyter: pages of other sites are refused, and no token reaches the log.

Jupyter itself leaves the refusal to the browser, and answers any preflight that asks for ``Authorization``
with the asking page's own origin. Here a request from a page that is neither Colab's nor this server's own
gets 403 and a line in the log, before anything is done for it.

For Colab's page, Chrome also wants to hear that a page of the public network may reach this one:
https://wicg.github.io/private-network-access/#cors-preflight, googlecolab/colabtools#5506.

notebook 6 logs the address of every request that fails, with its token; Colab's page makes one such request.
"""

from __future__ import annotations

import logging
import re
from typing import Any
from urllib.parse import urlsplit

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


def without_tokens(text: str) -> str:
    """``?token=…`` as later Jupyters log it."""
    return re.sub(r"(?i)(\btoken[=:]\s*)[^\s&\"'\[]+", r"\1[secret]", text)


def _mask_tokens() -> None:
    make = logging.getLogRecordFactory()

    def masked(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        try:
            text = record.getMessage()
        except (TypeError, ValueError, KeyError):  # the logger's own fault; logging reports it
            return record
        if "token" in text.lower():
            record.msg, record.args = without_tokens(text), ()
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
    app.web_app.default_router.rules.insert(0, Rule(FromElsewhere(), Refused))
    app.web_app.add_transform(FromThePublicNetwork)


_load_jupyter_server_extension = load_jupyter_server_extension


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]
