"""Colab's layout widgets, which are made of its page's own scripts."""

from __future__ import annotations

from typing import Any

from ._explain import refusal

__all__ = ["Grid", "TabBar"]


class Grid(object):
    def __init__(self, *_: Any, **__: Any) -> None:
        raise refusal("widgets.Grid", "ipywidgets.GridBox does the same in every notebook.")


class TabBar(object):
    def __init__(self, *_: Any, **__: Any) -> None:
        raise refusal("widgets.TabBar", "ipywidgets.Tab does the same in every notebook.")
