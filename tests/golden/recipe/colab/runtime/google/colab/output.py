"""A cell's output. What Colab does with JavaScript of its own page is explained."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator

from ._explain import refusal, say

__all__ = [
    "clear",
    "disable_custom_widget_manager",
    "enable_custom_widget_manager",
    "eval_js",
    "no_vertical_scroll",
    "redirect_to_element",
    "register_callback",
    "serve_kernel_port_as_iframe",
    "serve_kernel_port_as_window",
    "temporary",
    "to_default_area",
    "to_footer_area",
    "to_header_area",
    "use_tags",
]


def clear(wait: bool = False, output_tags: Any = ()) -> None:
    """Clear the cell's output: all of it, since elsewhere outputs have no tags."""
    from IPython.display import clear_output

    if not output_tags:
        clear_output(wait=wait)


def eval_js(script: str, ignore_result: bool = False, timeout_sec: float | None = None) -> Any:
    """Run JavaScript in the page; its value does not come back."""
    from IPython.display import Javascript, display

    del timeout_sec
    if not ignore_result:
        raise refusal("output.eval_js", "With ignore_result=True the script runs; its value cannot be had.")
    display(Javascript(script))


def register_callback(function_name: str, callback: Callable[..., Any]) -> None:
    """Colab's page would call ``callback``; no other page can."""
    del callback
    say("output.register_callback(%r): only scripts on Colab's own machines can call it." % function_name)


def enable_custom_widget_manager(*_: Any, **__: Any) -> None:
    """Nothing to do: Jupyter shows widgets by itself."""


def disable_custom_widget_manager() -> None:
    """Nothing to do."""


def no_vertical_scroll() -> None:
    """Nothing to do: it is Colab's page that scrolls long output."""


def serve_kernel_port_as_iframe(port: int, *_: Any, **__: Any) -> None:
    """Say how to reach a port of the runtime."""
    _port(port)


def serve_kernel_port_as_window(port: int, *_: Any, **__: Any) -> None:
    """Say how to reach a port of the runtime."""
    _port(port)


def _port(port: int) -> None:
    say(
        "port %d of this runtime is not open. Start it with --publish 127.0.0.1:%d:%d, and open"
        " http://127.0.0.1:%d in your browser." % (port, port, port, port)
    )


@contextlib.contextmanager
def _here(*_: Any, **__: Any) -> Iterator[None]:
    yield


redirect_to_element = use_tags = temporary = to_default_area = to_footer_area = to_header_area = _here
"""Areas and tags are parts of Colab's page: what is printed within them appears in the cell's output."""
