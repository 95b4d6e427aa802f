"""``google.colab`` for local runtimes: what makes sense on one's own machine works, the rest says why not.

The names are those of https://github.com/googlecolab/colabtools; nothing of its code is here. Colab's form
comments (``#@param``, ``#@title``) need no module: its page reads them, and elsewhere they are comments.
"""

from __future__ import annotations

import sys
from typing import Any

from . import auth, data_table, drive, errors, files, output, patches, runtime, userdata

__all__ = ["auth", "data_table", "drive", "errors", "files", "output", "patches", "runtime", "userdata"]

_ONLY_AT_GOOGLE = {
    "_message": "It talks to Colab's own page.",
    "ai": "Call a model's own API, with its key from google.colab.userdata.",
    "autoviz": "Plot with matplotlib or pandas.",
    "html": "Show HTML by IPython.display.HTML.",
    "kernel": "Use IPython.get_ipython().kernel.",
    "sheets": "Read and write files with pandas, or use gspread with a service account.",
    "snippets": "They are part of Colab's page.",
    "sql": "Use the package google-cloud-bigquery, or ibis.",
    "syntax": "It is read by Colab's page; plain strings do the same.",
    "widgets": "ipywidgets.GridBox and ipywidgets.Tab do the same in every notebook.",
}

for _name, _instead in _ONLY_AT_GOOGLE.items():
    _full = f"{__name__}.{_name}"
    globals()[_name] = sys.modules[_full] = errors.OnlyAtGoogle(_full, _instead)


def __getattr__(name: str) -> Any:
    """For a name that is not here: why, instead of Python's bare "cannot import name"."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    here = ", ".join(__all__)
    raise errors.refusal(f"google.colab.{name}", f"This runtime's google.colab has: {here}.")


def load_ipython_extension(ipython: Any) -> None:
    """``%load_ext google.colab``, which Colab's notebooks may say; the magics are there already."""
    del ipython
